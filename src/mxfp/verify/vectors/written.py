# SPDX-License-Identifier: Apache-2.0
"""What all vectors of a unit have, whatever makes their cases: lines, groups, and a sidecar."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ..layout import Adapter, Field, line_bits, line_fields, lines
from ..unit import Batch, Unit, expected


class Written(ABC):
    """Vectors: a `Suite`, which arguments make, or `Recorded` ones, which a file holds.

    unit: what they are for. adapter, stages: how their lines are laid out. level, seed: what made them; None
    where that is not all.
    """

    unit: Unit
    adapter: Adapter
    stages: bool
    level: int | None
    seed: int | None

    @property
    @abstractmethod
    def tally(self) -> dict[str, int]:
        """How many cases there are of each group, in their order."""

    @abstractmethod
    def batches(self) -> Iterator[Batch]:
        """All cases in order, some at a time."""

    @abstractmethod
    def case(self, number: int) -> tuple[Batch, int]:
        """One case: the batch of its sequence (of one case, but for running units), and its place there."""

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """The sidecar, without the files."""

    @property
    def cases(self) -> int:
        """How many cases."""
        return sum(self.tally.values())

    @property
    def layout(self) -> tuple[Field, ...]:
        """The fields of a line."""
        return line_fields(self.unit, stages=self.stages, adapter=self.adapter)

    @property
    def line_bits(self) -> int:
        """Bits of a line; its digits are a quarter of that, and even with the little endian."""
        return line_bits(self.layout, self.adapter)

    def lines(self, batch: Batch) -> bytes:
        """A batch as lines of hex digits."""
        return lines(batch, expected(batch, stages=self.stages), self.layout, self.adapter)

    def lines_as_dict(self) -> dict[str, Any]:
        """The part of the sidecar that says what lines look like."""
        return {
            "stages": self.stages,
            "adapter": self.adapter.as_dict(),
            "cases": self.cases,
            "line_bits": self.line_bits,
            "line_digits": self.line_bits // 4,
            "fields": [asdict(field) for field in self.layout],
        }
