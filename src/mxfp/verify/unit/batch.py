# SPDX-License-Identifier: Apache-2.0
"""Cases for a unit, in a row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...blocks import BlockArray
from ...formats import Bools, Codes, Integers
from .unit import Unit


@dataclass(frozen=True, eq=False)
class Batch:
    """Cases in a row. n cases of `elements` each; blocks one behind the other.

    codes_a, codes_b: uint8 (n, elements). scales_a, scales_b: uint8 (n, blocks). first: (n,) whether the
    accumulator is cleared before the case; always true unless the unit is "running". group: (n,) which of
    `groups` each case is of. start: the number of the first case. A running sequence lies within one batch.
    """

    unit: Unit
    codes_a: Codes
    codes_b: Codes
    scales_a: Codes
    scales_b: Codes
    first: Bools
    group: Integers
    groups: tuple[str, ...]
    start: int = 0

    def __len__(self) -> int:
        """How many cases."""
        return len(self.codes_a)

    @property
    def pair(self) -> tuple[BlockArray, BlockArray]:
        """All cases as two BlockArrays (n, elements)."""
        a, b = self.unit.sides
        return BlockArray(self.codes_a, self.scales_a, a), BlockArray(self.codes_b, self.scales_b, b)

    def cut(self, rows: slice) -> Batch:
        """Some of the cases, numbered as they were."""
        first, _, step = rows.indices(len(self))
        if step != 1:
            raise ValueError("cases are cut in a row")
        names = ("codes_a", "codes_b", "scales_a", "scales_b", "first", "group")
        parts: dict[str, Any] = {name: getattr(self, name)[rows] for name in names}
        return replace(self, **parts, start=self.start + first)
