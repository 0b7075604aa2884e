# SPDX-License-Identifier: Apache-2.0
"""What a campaign sweeps, and its cases: every combination, numbered, each with inputs of its own.

The inputs of a case follow from its key and its seed alone, so that no result depends on how many workers
there are, or on which of them is done first.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from .. import __version__
from ..accumulate import Accumulator
from ..blocks import BlockArray, check_choice
from ..distributions import DISTRIBUTIONS, SCALES, Distribution, Scales, draw
from ..dot import check_group
from ..formats import BLOCK_FORMATS, BlockFormat
from ..names import accumulator as accumulator_named
from ..profiles import MOST_K

SCHEMA: Final = "mxfp-campaign/1"
"""Of the results file, of what a record says, and of how inputs are drawn."""
PART: Final = 1 << 18
"""Elements of one side that are drawn and computed at once."""
MOST_CASES: Final = 10_000_000
"""Cases of one campaign; a case can have as many dot products as one likes."""

_TOO_MANY: Final = f"a campaign has up to {MOST_CASES:,} cases"

Pair = tuple[BlockFormat, BlockFormat]


class CampaignError(Exception):
    """A campaign that could not go on, or a file that is not its own: what happened and what to do."""


@dataclass(frozen=True)
class Case:
    """One combination of a campaign: `count` dot products of length k, drawn from `seed` and `key`.

    formats: of the two sides. accumulators: all of them run on the same inputs. number: its place in the
    campaign. Dot products are drawn in parts of `rows`, so that one can be drawn again without the rest.
    """

    number: int
    formats: Pair
    distribution: Distribution
    scales: Scales | None
    k: int
    seed: int
    count: int
    finite: bool
    accumulators: tuple[Accumulator, ...]

    @property
    def key(self) -> str:
        """Its name, the same in every campaign that has it: `MXFP4/normal/default/k=128/seed=0`."""
        return "/".join(
            [name_of(self.formats), self.distribution, self.scales or "default", f"k={self.k}", self._seed]
        )

    @property
    def _seed(self) -> str:
        return f"seed={self.seed}" + ("" if self.finite else "/specials")

    @property
    def rows(self) -> int:
        """Dot products of one part; the last may have fewer."""
        return min(self.count, max(1, PART // self.k))

    @property
    def parts(self) -> int:
        """Number of parts."""
        return -(-self.count // self.rows)

    def inputs(self, part: int) -> tuple[BlockArray, BlockArray]:
        """Both sides of a part, (rows, k), blocks along the last axis."""
        digest = hashlib.sha256(f"{SCHEMA} {self.key}".encode()).digest()
        words = np.frombuffer(digest, "<u4").tolist()
        entropy = np.random.SeedSequence([self.seed, *words], spawn_key=(part,))
        rng = np.random.Generator(np.random.PCG64(entropy))
        shape = (min(self.rows, self.count - part * self.rows), self.k)
        a, b = self.formats
        left = draw(self.distribution, a, shape, rng, scales=self.scales, finite=self.finite)
        return left, draw(self.distribution, b, shape, rng, scales=self.scales, finite=self.finite)


def replay(case: Case, index: int) -> tuple[BlockArray, BlockArray]:
    """Both sides (k,) of one dot product of a case, as they were when it was measured.

    index: 0 … count-1, as the results name it; ValueError for any other.

    >>> case = Campaign(accumulators="sequential:float16", distributions="bits", k=64).case(0)
    >>> a, b = replay(case, 999)
    >>> a.shape, a.format, a == replay(case, 999)[0]
    ((64,), MXFP4, True)
    """
    if not isinstance(case, Case):
        raise TypeError(f"case is a Case, as campaign.case(number) gives it, got {type(case).__name__}")
    if isinstance(index, bool) or not isinstance(index, (int, np.integer)) or not 0 <= index < case.count:
        raise ValueError(f"index of a dot product of {case.key} is 0 … {case.count - 1}, got {index!r}")
    part, row = divmod(int(index), case.rows)
    a, b = (
        BlockArray(q.codes[row], q.scales[row], q.format, -1, q.tensor_scale, scale_rule=q.scale_rule)
        for q in case.inputs(part)
    )
    return a, b


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """Every combination of formats, distributions, scales, k and seeds; all accumulators on each.

    formats: block formats or their names, "MXFP8_E4M3:MXFP4" or a tuple of two for sides that differ.
    accumulators: accumulators or their short texts. distributions, scales: as `mxfp.distributions.draw`
    takes them. seeds: integers from 0 on. k: lengths of dot products, up to 2**24. count: dot products per
    case. finite: leave NaN and infinities out of the inputs. A single value stands for a list of one.

    Raises ValueError for what does not exist, for what does not go together, for anything named twice, and
    for more than ten million cases.

    >>> campaign = Campaign(formats=["MXFP4", "NVFP4"], accumulators=["blackwell", "exact"], seeds=range(3))
    >>> len(campaign), campaign.case(4).key
    (6, 'NVFP4/normal/default/k=128/seed=1')
    """

    accumulators: Any
    formats: Any = ("MXFP4",)
    distributions: Any = ("normal",)
    scales: Any = (None,)
    k: Any = (128,)
    seeds: Any = (0,)
    count: int = 1000
    finite: bool = True

    def __post_init__(self) -> None:
        """Check everything, and keep it as tuples of what it stands for."""
        put = object.__setattr__
        put(self, "formats", tuple(_pair(entry) for entry in _several(self.formats, "formats")))
        put(self, "accumulators", tuple(map(_accumulator, _several(self.accumulators, "accumulators"))))
        put(self, "distributions", _several(self.distributions, "distributions"))
        put(self, "scales", _several(self.scales, "scales"))
        for name in self.distributions:
            check_choice(name, DISTRIBUTIONS, "distribution")
        for name in self.scales:
            if name is not None:
                check_choice(name, SCALES, "scales")
        for what, low, high in (("k", 1, MOST_K), ("seeds", 0, None)):
            numbers = _several(getattr(self, what), what)
            put(self, what, tuple(_integer(number, what, low, high) for number in numbers))
        if math.prod(map(len, self._axes)) > MOST_CASES:
            raise ValueError(f"{_TOO_MANY}, got {math.prod(map(len, self._axes)):,}")
        put(self, "count", _integer(self.count, "count", 1))
        put(self, "finite", bool(self.finite))
        _no_twins("formats", [name_of(pair) for pair in self.formats])
        _no_twins("accumulators", [str(accumulator) for accumulator in self.accumulators])
        for what in ("distributions", "scales", "k", "seeds"):
            _no_twins(what, getattr(self, what))
        for accumulator in self.accumulators:
            for pair in self.formats:
                try:
                    check_group(accumulator.terms_of, pair[0])
                except ValueError as error:
                    raise ValueError(f"accumulator {accumulator}, format {name_of(pair)}: {error}") from None

    def __len__(self) -> int:
        """Number of cases."""
        return math.prod(map(len, self._axes))

    @property
    def _axes(self) -> tuple[tuple[Any, ...], ...]:
        return self.formats, self.distributions, self.scales, self.k, self.seeds

    def case(self, number: int) -> Case:
        """The case of a number, 0 … len - 1; seeds vary first, formats last."""
        whole = isinstance(number, (int, np.integer)) and not isinstance(number, bool)
        if not whole or not 0 <= number < len(self):
            raise ValueError(f"case is a number, 0 … {len(self) - 1}, got {number!r}")
        number = int(number)
        chosen, rest = [], number
        for axis in reversed(self._axes):
            rest, place = divmod(rest, len(axis))
            chosen.append(axis[place])
        seed, k, scales, distribution, formats = chosen
        return Case(
            number, formats, distribution, scales, k, seed, self.count, self.finite, self.accumulators
        )

    def cases(self) -> Iterator[Case]:
        """Every case in its order."""
        return map(self.case, range(len(self)))

    def header(self) -> dict[str, Any]:
        """What the results file says of the campaign, and the digest that tells it from every other."""
        said = {
            "formats": [name_of(pair) for pair in self.formats],
            "distributions": list(self.distributions),
            "scales": list(self.scales),
            "k": list(self.k),
            "seeds": _runs(self.seeds),
            "count": self.count,
            "finite": self.finite,
            "accumulators": [str(accumulator) for accumulator in self.accumulators],
        }
        whole = [
            said,
            [[asdict(f) for f in pair] for pair in self.formats],
            list(map(repr, self.accumulators)),
        ]
        text = json.dumps([SCHEMA, __version__, whole], sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode()).hexdigest()
        return {"schema": SCHEMA, "mxfp": __version__, "digest": digest, "campaign": said}


def name_of(pair: Pair) -> str:
    """A pair of formats as a text: one name if both sides are of one format."""
    a, b = pair
    return a.name if a == b else f"{a.name}:{b.name}"


def _several(value: Any, what: str, kinds: Any = (Sequence, range, np.ndarray)) -> tuple[Any, ...]:
    """One value or several -> several; ValueError for none."""
    if isinstance(value, range) and value[MOST_CASES:]:
        raise ValueError(f"{_TOO_MANY}, got {what} {value!r}")
    several = isinstance(value, kinds) and not isinstance(value, str)
    found = tuple(value) if several else (value,)
    if not found:
        raise ValueError(f"{what} of a campaign: at least one, got none")
    return found


def _pair(entry: Any) -> Pair:
    """A format, a text or a tuple of two -> the formats of both sides."""
    parts = entry.split(":") if isinstance(entry, str) else entry if isinstance(entry, tuple) else (entry,)
    found: list[Any] = [
        BLOCK_FORMATS.get(part.strip().upper(), part) if isinstance(part, str) else part for part in parts
    ]
    if not 1 <= len(found) <= 2 or not all(isinstance(part, BlockFormat) for part in found):
        raise ValueError(f"format {entry!r} is none of {', '.join(BLOCK_FORMATS)}, nor two of them as A:B")
    if found[0].block != found[-1].block:
        raise ValueError(
            f"format {entry!r}: blocks of {found[0].block} and {found[-1].block} do not multiply"
        )
    return found[0], found[-1]


def _accumulator(entry: Any) -> Accumulator:
    return entry if isinstance(entry, Accumulator) else accumulator_named(entry)


def _integer(value: Any, what: str, low: int, high: int | None = None) -> int:
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < low or (high is not None and value > high):
        most = "on" if high is None else f"to {high}"
        raise ValueError(f"{what} of a campaign: integers from {low} {most}, got {value!r}")
    return int(value)


def _no_twins(what: str, names: Sequence[Any]) -> None:
    if len(set(names)) < len(names):
        twin = next(name for name, times in Counter(names).items() if times > 1)
        raise ValueError(f"{what} of a campaign: {twin!r} is there twice")


def _runs(numbers: Sequence[int]) -> list[list[int]]:
    """Integers -> first and last of each run, in their order: a million seeds are few words."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return runs
