# SPDX-License-Identifier: Apache-2.0
"""Some of the cases that were checked, right and wrong, with what the unit gave: what explanations must fit.

As many of each group as there is room for, so that memory is bounded; of a running unit whole sequences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...formats import Bools, Integers
from ..unit import Batch, Unit
from .addition import Bits
from .flow import Flow

PER_GROUP: Final = 1 << 14
"""Cases that are kept of each group, right ones and as many wrong."""
ELEMENTS: Final = 1 << 23
"""Elements that are kept in all."""


@dataclass
class Evidence:
    """Cases of a unit with answers. wrong: (n,) which were not as expected.

    totals: how many right and wrong cases there were, kept or not.
    """

    unit: Unit
    parts: list[dict[str, Any]] = field(default_factory=list)
    totals: Counter[str] = field(default_factory=Counter)
    _kept: Counter[Any] = field(default_factory=Counter)
    _last: tuple[Batch, int, int] | None = None
    _held: int = 0

    def add(
        self,
        batch: Batch,
        got: Mapping[str, NDArray[Any]],
        expected: Mapping[str, NDArray[Any]],
        answered: Bools,
        wrong: Bools,
    ) -> None:
        """Keep some of a batch: got and expected by stage, answered and wrong (n,)."""
        self.totals["wrong"] += int((wrong & answered).sum())
        self.totals["right"] += int((~wrong & answered).sum())
        rows = self._chosen(batch, answered, wrong)
        primary = "result" if self.unit.scaled else "sum"
        given = got[primary][:, 0].astype(np.uint64)
        due = expected[primary][:, 0].astype(np.uint64)
        last = self._last
        if len(rows):
            part: dict[str, Any] = {"batch": _rows(batch, rows), "wrong": wrong[rows]}
            part["got"] = {name: values[rows] for name, values in got.items()}
            before = np.append(np.uint64(0 if last is None else last[1]), given[:-1])
            part["before"] = before[rows]
            part["due_before"] = np.append(np.uint64(0 if last is None else last[2]), due[:-1])[rows]
            part["due_after"] = np.append(due[1:], due[-1:])[rows]
            part["previous"] = _rows(batch, np.maximum(rows - 1, 0))
            if rows[0] == 0:
                self._set_first(part["previous"], None if last is None else last[0])
            part["following"] = _rows(batch, np.minimum(rows + 1, len(batch) - 1))
            self.parts.append(part)
        if len(batch):
            end = len(batch) - 1
            self._last = (_rows(batch, np.array([end])), int(given[end]), int(due[end]))

    def _set_first(self, previous: Batch, last: Batch | None) -> None:
        """The case before the first of a batch: the last one of the batch before; zeros before all."""
        for name in ("codes_a", "codes_b", "scales_a", "scales_b"):
            getattr(previous, name)[0] = 0 if last is None else getattr(last, name)[0]

    def _chosen(self, batch: Batch, answered: Bools, wrong: Bools) -> Integers:
        """Rows to keep, in order."""
        most = ELEMENTS // self.unit.elements
        if self.unit.kind == "running":
            sequence = np.cumsum(batch.first) - 1
            whole = ~np.isin(sequence, sequence[~answered])
            bad = np.isin(sequence, sequence[wrong])
            begins = np.flatnonzero(batch.first & whole)
            lengths = np.bincount(sequence, minlength=1)
        else:
            sequence, bad = np.arange(len(batch)), wrong
            begins, lengths = np.flatnonzero(answered), np.ones(len(batch), np.int64)
        keep = np.zeros(len(lengths), np.bool_)
        group = batch.group
        keys = group[begins] * 2 + bad[begins]
        for key in np.unique(keys).tolist():
            name = (batch.groups[key // 2], key % 2)
            of = begins[keys == key]
            many = lengths[sequence[of]].cumsum()
            room = min(PER_GROUP - self._kept[name], most - self._held)
            taken = of[many <= max(room, 0)]
            keep[sequence[taken]] = True
            count = int(lengths[sequence[taken]].sum())
            self._kept[name] += count
            self._held += count
        return np.flatnonzero(keep[sequence])

    def all(self) -> Compared:
        """All that was kept, as one."""
        if not self.parts:
            raise ValueError("no case was kept")
        joined: dict[str, Any] = {
            name: np.concatenate([part[name] for part in self.parts])
            for name in ("wrong", "before", "due_before", "due_after")
        }
        batches: dict[str, Any] = {
            name: _joined([part[name] for part in self.parts]) for name in ("batch", "previous", "following")
        }
        names = self.parts[0]["got"]
        got = {name: np.concatenate([part["got"][name] for part in self.parts]) for name in names}
        return Compared(**batches, **joined, got=got)


@dataclass(frozen=True, eq=False)
class Compared:
    """Cases, what stands beside them, and what the unit gave."""

    batch: Batch
    previous: Batch
    following: Batch
    wrong: Bools
    before: Bits
    due_before: Bits
    due_after: Bits
    got: dict[str, NDArray[Any]]

    def __len__(self) -> int:
        """How many."""
        return len(self.wrong)

    def rows(self, rows: Integers) -> Compared:
        """Some of them."""
        batches: dict[str, Any] = {
            name: _rows(getattr(self, name), rows) for name in ("batch", "previous", "following")
        }
        arrays: dict[str, Any] = {
            name: getattr(self, name)[rows] for name in ("wrong", "before", "due_before", "due_after")
        }
        return Compared(**batches, **arrays, got={name: values[rows] for name, values in self.got.items()})

    def flow(self) -> Flow:
        """A flow of them, as a datapath runs it."""
        found = Flow.of(self.batch, self.before if self.batch.unit.scaled else None)
        found.previous, found.following = self.previous, self.following
        found.result_before, found.result_after = self.due_before, self.due_after
        return found


def _rows(batch: Batch, rows: Integers) -> Batch:
    names = ("codes_a", "codes_b", "scales_a", "scales_b", "first", "group")
    arrays: dict[str, Any] = {name: getattr(batch, name)[rows] for name in names}
    return replace(batch, **arrays, start=0)


def _joined(batches: list[Batch]) -> Batch:
    """Batches put together, which may have other groups each."""
    names = tuple(dict.fromkeys(name for batch in batches for name in batch.groups))
    group = np.concatenate(
        [np.array([names.index(name) for name in batch.groups], np.int64)[batch.group] for batch in batches]
    )
    parts = ("codes_a", "codes_b", "scales_a", "scales_b", "first")
    arrays: dict[str, Any] = {}
    for name in parts:
        arrays[name] = np.concatenate([getattr(batch, name) for batch in batches])
    return replace(batches[0], **arrays, group=group, groups=names)
