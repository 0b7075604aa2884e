# SPDX-License-Identifier: Apache-2.0
"""All vectors of a unit as one frozen object, that a sidecar holds and that makes them again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from ... import __version__
from ..layout import PLAIN, Adapter
from ..unit import Batch, Unit
from .groups import GENERATOR, SIZE, batches, case, check_unit, plans
from .sidecar import (
    NOTES,
    SCHEMA,
    adapter_from_dict,
    check_same,
    read_sidecar,
    reading,
    unit_as_dict,
    unit_from_dict,
)
from .written import Written

PROBED: Final = 16
"""Sequences at the start and the end of each group that go into the probe of a suite."""


@dataclass(frozen=True)
class Suite(Written):
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
    def tally(self) -> dict[str, int]:
        """How many cases there are of each group, in their order."""
        return {group.name: plan.cases(self.unit) for group, plan in self._planned}

    @property
    def empty(self) -> dict[str, str]:
        """Groups that have no cases, and why."""
        return {group.name: plan.why for group, plan in self._planned if not plan.cases(self.unit)}

    def batches(self, *, size: int = SIZE) -> Iterator[Batch]:
        """All cases in order, at most `size` at a time."""
        return batches(
            self.unit, level=self.level, seed=self.seed, groups=self.groups, count=self.count, size=size
        )

    def case(self, number: int) -> tuple[Batch, int]:
        """One case made alone: the batch of its sequence (of one case, but for running units), its place."""
        return case(self.unit, number, level=self.level, seed=self.seed, groups=self.groups, count=self.count)

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
            **self.lines_as_dict(),
            "groups": groups,
            "probe": self.probe,
            "notes": list(NOTES),
        }

    @classmethod
    def from_sidecar(cls, path: str | Path) -> Suite:
        """The suite that a sidecar describes. ValueError if this version would make other bytes of it."""
        given = read_sidecar(path)
        if given.get("recorded") is not None:
            raise ValueError(
                f"the cases of {path} are those of a file, which no arguments make again; read it with "
                "mxfp.verify.vectors.read_suite"
            )
        with reading(path):
            suite = cls(
                unit_from_dict(given["unit"]),
                level=given["level"],
                seed=given["seed"],
                adapter=adapter_from_dict(given["adapter"]),
                stages=given["stages"],
                groups=None if given["asked_groups"] is None else tuple(given["asked_groups"]),
                count=given["count"],
            )
        names = ("generator", "unit", "cases", "line_bits", "fields", "groups", "probe")
        check_same(path, given, suite, names)
        return suite
