# SPDX-License-Identifier: Apache-2.0
"""A case that is being made smaller: its steps, and how large it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ...formats import Bools, Codes, ElementFormat
from ..unit import Batch, Unit


@dataclass(frozen=True, eq=False)
class Steps:
    """One case: r steps, of which the last is judged. codes: (r, elements); scales: (r, blocks)."""

    codes_a: Codes
    codes_b: Codes
    scales_a: Codes
    scales_b: Codes
    first: Bools

    def __len__(self) -> int:
        """How many steps."""
        return len(self.first)

    @property
    def key(self) -> bytes:
        """What tells it from others."""
        parts = (self.codes_a, self.codes_b, self.scales_a, self.scales_b, self.first)
        return b"".join(part.tobytes() for part in parts)

    @staticmethod
    def of(batch: Batch) -> Steps:
        """All cases of a batch as the steps of one."""
        return Steps(batch.codes_a, batch.codes_b, batch.scales_a, batch.scales_b, batch.first)

    @staticmethod
    def batch(unit: Unit, many: list[Steps]) -> Batch:
        """Several, one behind the other."""
        names = ("codes_a", "codes_b", "scales_a", "scales_b", "first")
        arrays: dict[str, Any] = {
            name: np.concatenate([getattr(steps, name) for steps in many]) for name in names
        }
        count = len(arrays["first"])
        return Batch(unit, **arrays, group=np.zeros(count, np.int64), groups=("shrinking",))


Edit = Callable[[Steps], Steps]


@lru_cache(maxsize=32)
def ranks(element: ElementFormat) -> tuple[int, ...]:
    """How plain each code is, 0 the plainest: zero, one, other powers of two, few bits; negative after."""

    def key(code: int) -> tuple[Any, ...]:
        integer = abs(int(element.integers[code]))
        if not element.finite[code]:
            return (3, 0, code)
        if integer == 0:
            return (0, 0, code)
        odd = integer >> ((integer & -integer).bit_length() - 1)
        from_one = abs(np.log2(float(np.abs(element.values[code]))))
        return (1, odd.bit_length(), from_one, bool(element.negative[code]), code)

    order = sorted(range(element.code_count), key=key)
    found = [0] * element.code_count
    for rank, code in enumerate(order):
        found[code] = rank
    return tuple(found)


def one_of_scale(unit: Unit) -> tuple[int, int]:
    """The codes of scale 1 on both sides."""
    a, b = (int(np.nanargmin(np.abs(fmt.scale.values - 1))) for fmt in unit.sides)
    return a, b


def measure(unit: Unit, steps: Steps) -> tuple[int, ...]:
    """How large a case is; the first number counts most.

    Steps, blocks that are not zero, lanes that are not zero, how far scales are from 1, different pairs of
    codes, how plain the codes are.
    """
    shape = (len(steps), unit.blocks, unit.a.block)
    a, b = steps.codes_a.reshape(shape), steps.codes_b.reshape(shape)
    live = (a != 0) | (b != 0)
    one = one_of_scale(unit)
    far = sum(
        int((np.abs(scales.astype(np.int64) - o) + (scales != o)).sum())
        for scales, o in zip((steps.scales_a, steps.scales_b), one, strict=True)
    )
    pairs = len(np.unique(a[live].astype(np.int64) * 256 + b[live])) if live.any() else 0
    rank_a, rank_b = (np.array(ranks(fmt.element)) for fmt in unit.sides)
    plain = int(rank_a[a].sum() + rank_b[b].sum())
    return len(steps), int(live.any(axis=2).sum()), int(live.sum()), far, pairs, plain
