# SPDX-License-Identifier: Apache-2.0
"""Coverage: how often a run of vectors hit each bin of a unit, what it missed, and what it hit by a bug."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...formats import Bools, Integers
from ..unit import Batch, Unit
from .bin_classes import PRODUCT_CLASSES, element_classes, product_classes
from .bins import Bin, Family, families
from .observe import observe
from .reach import limits

SCHEMA: Final = "mxfp-coverage/1"
"""Of the JSON that `Coverage.as_dict` makes."""
MOST: Final = 1 << 53
"""Past the largest count that is read."""


class Hit(NamedTuple):
    """A bin that should not have been hit, and the number of the first case that did."""

    family: str
    bin: Bin
    case: int


@dataclass
class Coverage:
    """Counts of a unit's bins over the cases that were added; counts of several runs add up.

    unit: what was run. cases: how many. counts: for each family an int64 array, in the order of its bins.
    groups: cases by the name of their group. first: (family, bin) -> the first case that hit it.

    >>> import numpy as np
    >>> unit = Unit("sum", lanes=2)
    >>> cover, none = Coverage(unit), np.zeros((1, 0), np.uint8)
    >>> cover.add(Batch(unit, np.uint8([[7, 7]]), np.uint8([[7, 15]]), none, none,
    ...     np.array([True]), np.array([0]), ("ends",)))
    >>> cover.count("cancellation", "largest halves"), cover.count("product", "highest")
    (1, 1)
    """

    unit: Unit
    cases: int = 0
    counts: dict[str, Integers] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    first: dict[tuple[str, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Every bin begins at zero."""
        for family in self.families:
            self.counts.setdefault(family.name, np.zeros(len(family.bins), np.int64))

    @property
    def families(self) -> tuple[Family, ...]:
        """All families of bins of the unit."""
        return families(self.unit)

    def count(self, family: str, name: str) -> int:
        """How often a bin was hit."""
        place = {f.name: f for f in self.families}[family].names.index(name)
        return int(self.counts[family][place])

    def add(
        self,
        batch: Batch,
        *,
        answers: Mapping[str, NDArray[Any]] | None = None,
        answered: Bools | None = None,
        numbers: Integers | None = None,
    ) -> None:
        """Count the cases of a batch.

        answers: what the unit gave, stages as in `unit.expected`; its "result" is then what is classed.
        answered: (n,) which cases the unit gave anything for; the others do not count. numbers: (n,) those of
        the cases, where they are not in a row from the batch's start.
        """
        if batch.unit != self.unit:
            raise ValueError(f"coverage is of {self.unit}, got cases of {batch.unit}")
        kept = np.ones(len(batch), np.bool_) if answered is None else np.asarray(answered, np.bool_)
        if kept.shape != (len(batch),):
            raise ValueError(f"answered has a truth value for each of {len(batch)} cases, got {kept.shape}")
        if not kept.any():
            return
        self.cases += int(kept.sum())
        for number, name in enumerate(batch.groups):
            count = int((kept & (batch.group == number)).sum())
            self.groups[name] = self.groups.get(name, 0) + count
        for counted, counts in lane_counts(batch, kept).items():
            self.counts[counted] += counts
        marks = observe(batch, answers)
        for family in self.families:
            if family.counts == "lanes":
                continue
            found, total = marks[family.name], self.counts[family.name]
            for index, wanted in enumerate(family.bins):
                hit = found[wanted.name] & kept
                count = int(np.count_nonzero(hit))
                total[index] += count
                if count and wanted.kind != "wanted":
                    key = family.name, wanted.name
                    place = int(np.argmax(hit))
                    case = batch.start + place if numbers is None else int(numbers[place])
                    self.first[key] = min(case, self.first.get(key, case))

    def __add__(self, other: Coverage) -> Coverage:
        """Both runs together."""
        if other.unit != self.unit:
            raise ValueError(f"coverage of {self.unit} and of {other.unit} do not add up")
        counts = {name: mine + other.counts[name] for name, mine in self.counts.items()}
        groups = dict(self.groups)
        for name, count in other.groups.items():
            groups[name] = groups.get(name, 0) + count
        first = dict(other.first)
        for key, case in self.first.items():
            first[key] = min(case, first.get(key, case))
        return Coverage(self.unit, self.cases + other.cases, counts, groups, first)

    def bins(self) -> Iterator[tuple[Family, Bin, int]]:
        """Every bin with its count."""
        for family in self.families:
            for wanted, count in zip(family.bins, self.counts[family.name].tolist(), strict=True):
                yield family, wanted, count

    def missed(self) -> list[tuple[str, str]]:
        """Family and name of every bin that was wanted and not hit."""
        return [(f.name, b.name) for f, b, count in self.bins() if b.kind == "wanted" and not count]

    def wrong(self) -> list[Hit]:
        """Bins that were hit and should not be: a bug in the unit, or in the reason given."""
        return [
            Hit(f.name, b, self.first.get((f.name, b.name), -1))
            for f, b, count in self.bins()
            if b.kind != "wanted" and count
        ]

    @property
    def hit(self) -> int:
        """How many wanted bins were hit."""
        return self.wanted - len(self.missed())

    @property
    def wanted(self) -> int:
        """How many bins are wanted."""
        return sum(b.kind == "wanted" for _, b, _ in self.bins())

    def rows(self) -> list[tuple[str, str, str, str]]:
        """For each family: its name, wanted bins hit and in all, bins that cannot be reached."""
        found = []
        for family in self.families:
            kinds = np.array([b.kind for b in family.bins])
            counts = self.counts[family.name]
            hit = int(((kinds == "wanted") & (counts > 0)).sum())
            found.append(
                (
                    family.name,
                    str(hit),
                    str(int((kinds == "wanted").sum())),
                    str(int((kinds == "unreachable").sum())),
                )
            )
        return found

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON. schema: mxfp-coverage/1."""
        return {
            "schema": SCHEMA,
            "unit": self.unit_as_dict(),
            "cases": self.cases,
            "hit": self.hit,
            "wanted": self.wanted,
            "groups": self.groups,
            "families": {
                family.name: dict(zip(family.names, self.counts[family.name].tolist(), strict=True))
                for family in self.families
            },
            "missed": [list(pair) for pair in self.missed()],
            "unreachable": [[f.name, b.name, b.why] for f, b, _ in self.bins() if b.kind == "unreachable"],
            "wrong": [[h.family, h.bin.name, h.bin.why, h.case] for h in self.wrong()],
        }

    def unit_as_dict(self) -> dict[str, Any]:
        """What the unit is, in words and numbers."""
        a, b = self.unit.sides
        return {
            "kind": self.unit.kind,
            "a": a.name,
            "b": b.name,
            "lanes": self.unit.a.block,
            "blocks": self.unit.blocks,
            "accumulator": str(self.unit.accumulator) if self.unit.scaled else None,
        }

    @classmethod
    def from_dict(cls, unit: Unit, record: Mapping[str, Any]) -> Coverage:
        """The counts that `as_dict` wrote, for the same unit; ValueError for anything else."""
        made = cls(unit)
        schema = record.get("schema") if isinstance(record, Mapping) else None
        if schema != SCHEMA:
            raise ValueError(f"counts are JSON of schema {SCHEMA}, got {schema!r}")
        try:
            if record["unit"] != made.unit_as_dict():
                raise ValueError(f"counts are of {record['unit']}, and the unit is {made.unit_as_dict()}")
            for family in made.families:
                named = record["families"][family.name]
                made.counts[family.name] = np.array([_count(named[name]) for name in family.names], np.int64)
            made.cases = _count(record["cases"])
            made.groups = {name: _count(count) for name, count in record["groups"].items()}
            made.first = {(f, name): _count(case) for f, name, _, case in record["wrong"]}
        except KeyError as error:
            raise ValueError(f"counts of this unit have {error}, and these have not") from None
        except (AttributeError, TypeError) as error:
            raise ValueError(f"these are no counts: {error}") from None
        return made


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MOST:
        raise ValueError(f"a count is a whole number, 0 … 2^53 - 1, got {value!r:.40}")
    return value


def lane_counts(batch: Batch, kept: Bools) -> dict[str, Integers]:
    """Counts of the families whose counts are of lanes: classes of elements and products, pairs by lane."""
    unit, known = batch.unit, limits(batch.unit)
    a, b = known.a, known.b
    rows = slice(None) if kept.all() else kept
    x, y = batch.codes_a[rows], batch.codes_b[rows]
    pair = x.astype(np.int32) * b.code_count + y
    size = a.code_count * b.code_count
    found: dict[str, Integers] = {}
    if known.pairs_by_lane:
        lane = np.arange(unit.elements, dtype=np.int32) % known.lanes * size
        by_lane = np.bincount((pair + lane).reshape(-1), minlength=known.lanes * size)
        found["pair in lane"] = by_lane.astype(np.int64)
        pairs = by_lane.reshape(known.lanes, size).sum(axis=0)
    else:
        pairs = np.bincount(pair.reshape(-1), minlength=size)
    table = pairs.reshape(a.code_count, b.code_count).astype(np.int64)
    for side, fmt, axis in (("a", a, 1), ("b", b, 0)):
        names, classes = element_classes(fmt)
        found[f"element of {side}"] = _by_class(table.sum(axis=axis), classes, len(names))
    products = product_classes(a, b)
    by_class = _by_class(table, products, len(PRODUCT_CLASSES))
    present = sorted(set(products.reshape(-1).tolist()))
    found["product"] = by_class[present]
    return found


def _by_class(counts: Integers, classes: Integers, size: int) -> Integers:
    total = np.zeros(size, np.int64)
    np.add.at(total, classes, counts)
    return total
