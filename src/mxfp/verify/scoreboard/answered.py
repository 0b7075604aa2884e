# SPDX-License-Identifier: Apache-2.0
"""Answers of a unit that wait to be counted by a coverage, many at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ..coverage.coverage import Coverage
from ..unit import Batch
from ..vectors.sequences import PARTS

TOGETHER: Final = 1024
"""Cases that are counted at once, those before them in their sequences among them."""


@dataclass
class Answered:
    """Cases with their answers, each with the steps before it. coverage: what counts them, if anything."""

    coverage: Coverage | None
    parts: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in PARTS})
    answers: list[int] = field(default_factory=list)
    answered: list[bool] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def add(self, batch: Batch, row: int, number: int, answer: int) -> None:
        """Keep a case: where it stands in its batch, its number, and what came."""
        if self.coverage is None:
            return
        begin = int(np.flatnonzero(batch.first[: row + 1])[-1])
        for name, found in self.parts.items():
            found.append(getattr(batch, name)[begin : row + 1])
        before = row - begin
        self.answers += [0] * before + [answer]  # those before are there for what they leave behind
        self.answered += [False] * before + [True]
        self.numbers += range(number - before, number + 1)
        if len(self.numbers) >= TOGETHER:
            self.count()

    def count(self) -> None:
        """Give the coverage what was kept."""
        if self.coverage is None or not self.numbers:
            return
        unit = self.coverage.unit
        joined: dict[str, Any] = {name: np.concatenate(found) for name, found in self.parts.items()}
        joined["group"] = np.zeros(len(self.numbers), np.int64)
        kind: Any = np.uint64 if unit.scaled else np.int64
        self.coverage.add(
            Batch(unit, **joined, groups=("answered",)),
            answers={"result" if unit.scaled else "sum": np.array(self.answers, kind)[:, None]},
            answered=np.array(self.answered),
            numbers=np.array(self.numbers),
        )
        for kept in (*self.parts.values(), self.answers, self.answered, self.numbers):
            kept.clear()
