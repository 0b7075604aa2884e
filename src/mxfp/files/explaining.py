# SPDX-License-Identifier: Apache-2.0
"""Which rule explains a difference: found from the floats that both files were made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..blocks import BlockArray
from ..formats import BlockFormat
from .blockwise import pieces
from .difference import Difference, Pair
from .model import ModelFile
from .pipeline import in_order
from .rules import READINGS, ROUNDING_TEXTS, SCALE_TEXTS, ZERO_TEXTS, Weighed, weigh

WRITERS: Final = (
    ("floor", "nearest_zero", "lost", "ggml and gguf"),
    ("floor_float32", "nearest_zero", "lost", "ggml and gguf"),
    ("nearest_log2", "nearest_zero", "lost", "ggml's CUDA kernels"),
    ("rceil", "nearest_zero", "negative", "modelopt"),
    ("floor", "nearest_away", "kept", "microxcaling"),
)
"""Rules that programs are known for; docs/differences.md has them."""

TILE: Final = 1 << 16
"""Elements that are weighed together, about: what is made on the way stays in the cache."""
SEARCHED: Final = 1 << 18
"""Elements that the rule "search" is held against, about: it takes long."""


@dataclass(frozen=True)
class Explanation:
    """What one file's blocks of one format were made with. reading: what the source was rounded to first."""

    format: BlockFormat
    reading: str
    weighed: Weighed

    @property
    def scale_rules(self) -> tuple[str, ...]:
        """The rules that give every scale; several where the data do not tell them apart."""
        return self.weighed.fitting(SCALE_TEXTS)

    @property
    def roundings(self) -> tuple[str, ...]:
        """The roundings that give every code with the file's own scales, but for the signs of zeros."""
        return self.weighed.fitting(ROUNDING_TEXTS)

    @property
    def zeros(self) -> tuple[str, ...]:
        """What gives the sign of every zero."""
        return self.weighed.fitting(ZERO_TEXTS)

    @property
    def complete(self) -> bool:
        """Whether rules that are known give everything."""
        return self.weighed.explained

    @property
    def writer(self) -> str:
        """A program known for these rules, if it is one."""
        found = self.scale_rules, self.roundings, self.zeros
        return next((who for *rules, who in WRITERS if found == tuple((rule,) for rule in rules)), "")

    def __str__(self) -> str:
        """One line: the rules, or the closest with how often they miss."""
        found = self.weighed
        if not found.blocks:
            return "nothing to tell by: no block that is finite and not zero"
        parts = [
            self._part("scale rule ", SCALE_TEXTS, f"of {found.blocks:,} blocks"),
            self._part("", ROUNDING_TEXTS, f"of {found.elements:,} elements"),
        ]
        if self.format.element.negated[0]:
            parts.append(self._part("", ZERO_TEXTS, f"of {found.elements:,} elements"))
        if "search" in self.scale_rules and found.searched < found.blocks:
            parts[0] += f" (by {found.searched:,} of {found.blocks:,} blocks)"
        if self.reading:
            parts.append(f"the source rounded to {self.reading} first")
        if found.nan:
            parts.append(f"{found.nan:,} blocks NaN that are finite in the source")
        if found.zero_scales:
            parts.append(f"{found.zero_scales:,} blocks of zeros with a scale code other than 0")
        if self.writer:
            parts.append(f"as {self.writer}")
        head = "" if self.complete else "none of the rules known explains all: "
        return head + "; ".join(parts)

    def _part(self, what: str, texts: Mapping[str, str], total: str) -> str:
        if fit := self.weighed.fitting(texts):
            return what + named(fit, texts)
        name, misses = self.weighed.closest(texts)
        return f"{what}{texts[name]}, but for {misses:,} {total}"


def named(names: Sequence[str], texts: Mapping[str, str]) -> str:
    """Rules in words; where the data do not tell several apart, that.

    >>> named(("floor", "even"), SCALE_TEXTS)
    'floor or even'
    """
    if {"nearest_even", "nearest_away", "nearest_zero"} <= {*names}:
        return "rounding to nearest, with no tie to tell which way"
    if {"kept", "lost"} <= {*names}:
        return "no zero to tell its sign"
    return " or ".join(texts[name] for name in names)


@dataclass(frozen=True)
class Explained:
    """Both files' explanations for tensors of one format, and what that makes of the difference."""

    a: Explanation
    b: Explanation

    @property
    def verdict(self) -> str:
        """One line: what B did otherwise than A, by name."""
        unknown = [side for side, e in (("A", self.a), ("B", self.b)) if not e.complete]
        said = []
        for texts, form in (
            (SCALE_TEXTS, "B used {}, A {}"),
            (ROUNDING_TEXTS, "B has {}, A {}"),
            (ZERO_TEXTS, "in B {}, in A {}"),
        ):
            one, other = self.a.weighed.fitting(texts), self.b.weighed.fitting(texts)
            if one and other and not set(one) & set(other):
                said.append(form.format(named(other, texts), named(one, texts)))
        if self.a.reading != self.b.reading:
            read = [f"the source {f'in {e.reading}' if e.reading else 'as it is'}" for e in (self.a, self.b)]
            said.append(f"B quantized {read[1]}, A {read[0]}")
        if unknown:
            said.append(f"none of the rules known explains all of {' or '.join(unknown)}")
        rest = "the same rules fit both; they say nothing of blocks of zeros, of NaN, and of tensor scales"
        return "; ".join(said) or rest


def explain(
    difference: Difference,
    source: ModelFile,
    *,
    progress: Callable[[str, int], None] = lambda name, nbytes: None,
) -> Mapping[str, Explained]:
    """Hold both files against a source, in the tensors that differ -> by format, what each was made with.

    Every block of those tensors counts, not only those that differ. Where no rule gives all, the rule
    "search" is tried too, on some of the blocks, and a source that was first rounded to a narrower type.
    progress: called with a name and bytes of the source done; they may be read twice. Bounded memory, as for
    `compare`.
    """
    pairs = [found.pair for found in difference.in_blocks if found.pair.source is not None]
    job = _Job(difference, source)
    first = _total(job.run(pairs, ("",), False, progress))
    best = {key: ("", found[""]) for key, found in first.items()}
    lacking = {fmt for (_, fmt), (_, found) in best.items() if not found.explained}
    if lacking:
        again = [pair for pair in pairs if pair.a.type in lacking]
        kinds = {pair.source.type for pair in again if pair.source is not None}
        second = _total(job.run(again, ("", *_readings(kinds)), True, progress))
        for key, found in second.items():
            if not best[key][1].explained:
                best[key] = next((one for one in found.items() if one[1].explained), ("", found[""]))
    formats = {pair.a.type: pair.a.format for pair in pairs}
    made = {key: Explanation(_known(formats[key[1]]), *found) for key, found in best.items()}
    return {name: Explained(made["a", name], made["b", name]) for name in formats}


def _known(fmt: BlockFormat | None) -> BlockFormat:
    assert fmt is not None
    return fmt


def _readings(types: set[str]) -> Sequence[str]:
    """What floats of these types may have been rounded to."""
    if types <= {"F16", "BF16"}:
        return tuple(name for name in ("bfloat16",) if "F16" in types)
    return tuple(READINGS)[0 if "F64" in types else 1 :]


Key = tuple[str, str]
"""The side, "a" or "b", and the name of a format."""
Found = dict[Key, dict[str, Weighed]]


def _total(found: Iterable[Found]) -> Found:
    total: Found = {}
    for some in found:
        for key, readings in some.items():
            for reading, weighed in readings.items():
                total.setdefault(key, {}).setdefault(reading, Weighed()).add(weighed)
    return total


class _Job:
    """What the threads share."""

    def __init__(self, difference: Difference, source: ModelFile) -> None:
        self.difference, self.source = difference, source

    def run(
        self,
        pairs: Iterable[Pair],
        readings: Sequence[str],
        search: bool,
        progress: Callable[[str, int], None],
    ) -> Iterable[Found]:
        """Weigh tile by tile."""
        chosen = [pair for pair in pairs if pair.source is not None]
        every = max(sum(pair.a.elements for pair in chosen) // SEARCHED, 1)

        def work(job: tuple[int, tuple[Pair, Any, int, int]]) -> tuple[str, int, Found]:
            n, (pair, given, start, stop) = job
            x = self.source.values(given.name, start, stop)
            sides = (
                ("a", self.difference.a.rows(pair.a.name, start, stop)),
                ("b", self.difference.b.rows(pair.b.name, start, stop)),
            )
            return pair.name, x.nbytes, self.weigh(x, sides, readings, search and n % every == 0)

        jobs = (
            (pair, pair.source, *cut)
            for pair in chosen
            if pair.source is not None
            for cut in pieces(pair.a, pair.b, pair.source, size=TILE)
        )
        for name, nbytes, found in in_order(work, enumerate(jobs)):
            progress(name, nbytes)
            yield found

    def weigh(
        self,
        x: NDArray[Any],
        sides: Iterable[tuple[str, Any]],
        readings: Sequence[str],
        search: bool,
    ) -> Found:
        """Rows of the source and of both files -> by side, what each reading of the source gives."""
        found: Found = {}
        for side, q in sides:
            assert isinstance(q, BlockArray)
            for reading in readings:
                read = x
                if reading:
                    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                        read = x.astype(READINGS[reading])
                key = (side, q.format.name)
                found.setdefault(key, {})[reading] = weigh(read, q, search=search and not reading)
        return found
