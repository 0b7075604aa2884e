# SPDX-License-Identifier: Apache-2.0
"""All vectors of a unit as one frozen object, that a sidecar holds and that makes them again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from ... import __version__
from ...formats import BLOCK_FORMATS, BlockFormat
from ...names import accumulator as accumulator_named
from ..layout import PLAIN, Adapter, Field, line_bits, line_fields, lines
from ..unit import Batch, Unit, expected
from .groups import GENERATOR, SIZE, batches, case, check_unit, plans

SCHEMA: Final = "mxfp-vectors/1"
PROBED: Final = 16
"""Sequences at the start and the end of each group that go into the probe of a suite."""
NOTES: Final = (
    "Lines hold one case each, the most significant digit first, as $readmemh reads them; bit 0 is the last "
    "digit's. Offsets are from bit 0. Every case has flags bit 0 set; a row without it was never written.",
    "sum is the sum of products in units of both LSBs; its weight is 2^exponent. exponent is that of the "
    "codes, NaN's too. special: 0 finite, 1 NaN, 2 +infinity, 3 -infinity. result: the accumulator's bits.",
    "Operands are in the order and coding that the adapter says; what is expected is as mxfp has it, stage "
    "by stage, for blocks and lanes in mxfp's order.",
)


@dataclass(frozen=True)
class Suite:
    """Vectors for a unit. The same suite is the same bytes on every machine.

    level: 1 has all constructed cases and some at random, 2 has `count` more at random. groups: names of
    those wanted, None is all of the level. stages: whether lines hold every level of the adder tree.

    >>> suite = Suite(Unit("dot"), groups=("nan-scales",))
    >>> suite.cases, suite.line_bits, suite.tally
    (192, 340, {'nan-scales': 192})
    """

    unit: Unit
    level: int = 1
    seed: int = 0
    adapter: Adapter = PLAIN
    stages: bool = False
    groups: tuple[str, ...] | None = None
    count: int | None = None

    def __post_init__(self) -> None:
        """Check that there are such vectors."""
        if self.groups is not None:
            object.__setattr__(self, "groups", tuple(self.groups))
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise ValueError(f"seed is a whole number, 0 or more, got {self.seed!r}")
        check_unit(self.unit)
        self.adapter.check(self.unit)
        if not self.cases:
            raise ValueError(f"no cases: {'; '.join(why for why in self.empty.values())}")

    @property
    def _planned(self) -> Any:
        return plans(self.unit, self.level, self.seed, self.groups, self.count)

    @property
    def layout(self) -> tuple[Field, ...]:
        """The fields of a line."""
        return line_fields(self.unit, stages=self.stages, adapter=self.adapter)

    @property
    def line_bits(self) -> int:
        """Bits of a line; its digits are a quarter of that, and even with the little endian."""
        bits = line_bits(self.layout)
        return bits if self.adapter.endian == "big" else -(-bits // 8) * 8

    @property
    def tally(self) -> dict[str, int]:
        """How many cases there are of each group, in their order."""
        return {group.name: plan.cases(self.unit) for group, plan in self._planned}

    @property
    def empty(self) -> dict[str, str]:
        """Groups that have no cases, and why."""
        return {group.name: plan.why for group, plan in self._planned if not plan.cases(self.unit)}

    @property
    def cases(self) -> int:
        """How many cases."""
        return sum(self.tally.values())

    def batches(self, *, size: int = SIZE) -> Iterator[Batch]:
        """All cases in order, at most `size` at a time."""
        return batches(
            self.unit, level=self.level, seed=self.seed, groups=self.groups, count=self.count, size=size
        )

    def case(self, number: int) -> tuple[Batch, int]:
        """One case made alone: the batch of its sequence (of one case, but for running units), its place."""
        return case(self.unit, number, level=self.level, seed=self.seed, groups=self.groups, count=self.count)

    def lines(self, batch: Batch) -> bytes:
        """A batch as lines of hex digits."""
        return lines(batch, expected(batch, stages=self.stages), self.layout, self.adapter)

    @property
    def probe(self) -> str:
        """A digest of the first and last cases of every group, which tells suites apart quickly."""
        digest = sha256(json.dumps([SCHEMA, self.tally], sort_keys=True).encode())
        start = 0
        for _, plan in self._planned:
            cases, steps = plan.cases(self.unit), plan.steps_of(self.unit)
            ends = range(plan.sequences)
            for sequence in sorted({*ends[:PROBED], *ends[-PROBED:]}):
                digest.update(self.lines(self.case(start + sequence * steps)[0]))
            start += cases
        return digest.hexdigest()

    def as_dict(self) -> dict[str, Any]:
        """The sidecar, without the files."""
        first, groups = 0, []
        for group, plan in self._planned:
            count = plan.cases(self.unit)
            entry = {"name": group.name, "about": group.about, "cases": count, "first": first}
            groups.append(entry if count else {**entry, "why": plan.why})
            first += count
        return {
            "schema": SCHEMA,
            "mxfp": __version__,
            "generator": GENERATOR,
            "unit": unit_as_dict(self.unit),
            "level": self.level,
            "seed": self.seed,
            "count": self.count,
            "asked_groups": None if self.groups is None else list(self.groups),
            "stages": self.stages,
            "adapter": self.adapter.as_dict(),
            "cases": self.cases,
            "line_bits": self.line_bits,
            "line_digits": self.line_bits // 4,
            "fields": [asdict(field) for field in self.layout],
            "groups": groups,
            "probe": self.probe,
            "notes": list(NOTES),
        }

    @classmethod
    def from_sidecar(cls, path: str | Path) -> Suite:
        """The suite that a sidecar describes. ValueError if this version would make other bytes of it."""
        given = _read(Path(path))
        try:
            suite = cls(
                unit_from_dict(given["unit"]),
                level=given["level"],
                seed=given["seed"],
                adapter=Adapter(**{**given["adapter"], "codes": tuple(given["adapter"]["codes"])}),
                stages=given["stages"],
                groups=None if given["asked_groups"] is None else tuple(given["asked_groups"]),
                count=given["count"],
            )
        except (KeyError, TypeError, ValueError) as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{path} is not a sidecar that this mxfp reads: {reason}") from None
        mine = json.loads(json.dumps(suite.as_dict()))
        for name in ("generator", "cases", "line_bits", "fields", "groups", "probe"):
            if given.get(name) != mine[name]:
                raise ValueError(
                    f"{path} was made by mxfp {given.get('mxfp')}, generator {given.get('generator')}; this "
                    f"is mxfp {__version__}, generator {GENERATOR}, and its {name} would differ. Make the "
                    "vectors again, or check them with the version that made them"
                )
        return suite


def _read(path: Path) -> dict[str, Any]:
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a sidecar: not text") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not a sidecar: {error}") from None
    schema = given.get("schema") if isinstance(given, dict) else None
    if schema != SCHEMA:
        raise ValueError(f"{path} is not a sidecar of {SCHEMA}: its schema is {schema!r}")
    return dict(given)


def unit_as_dict(unit: Unit) -> dict[str, Any]:
    """A unit by the names of its formats, and its accumulator with every parameter."""
    a, b = unit.sides
    accumulator = unit.accumulator
    return {
        "kind": unit.kind,
        "format_a": _format_name(a),
        "format_b": _format_name(b),
        "lanes": unit.a.block,
        "blocks": unit.blocks,
        "accumulator": {
            "name": str(accumulator),
            "kind": type(accumulator).__name__,
            "parameters": {f.name: getattr(accumulator, f.name) for f in fields(accumulator)},
            "result": accumulator.result_dtype.name,
        },
        "sum_bits": unit.sum_bits,
        "level_bits": list(unit.level_bits),
        "exponent_bits": unit.exponent_bits,
        "term_bits": unit.term_bits,
    }


def unit_from_dict(given: Mapping[str, Any]) -> Unit:
    """The unit of a sidecar."""
    a, b = (BLOCK_FORMATS[given[name]] for name in ("format_a", "format_b"))
    accumulator = accumulator_named(given["accumulator"]["name"])
    return Unit(given["kind"], a, b, given["lanes"], given["blocks"], accumulator)


def _format_name(fmt: BlockFormat) -> str:
    """The named format of the same element and scale."""
    for name, known in BLOCK_FORMATS.items():
        if (known.element, known.scale) == (fmt.element, fmt.scale):
            return name
    raise ValueError(f"a suite is of the formats {', '.join(BLOCK_FORMATS)}, not of {fmt.name}")
