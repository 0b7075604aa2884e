# SPDX-License-Identifier: Apache-2.0
"""What results an accumulator can have: their bits, the smallest normal and of all, where they overflow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes

from ...accumulate import Accumulator
from ...registers import FixedPoint, Fused


@dataclass(frozen=True)
class Grid:
    """Results are multiples of 2**grain, of `precision` significant bits, below 2**top.

    normal: the exponent of the smallest that has all its bits; of a register, which has them anywhere, None.

    >>> import mxfp
    >>> grid_of(mxfp.Sequential("float32"))
    Grid(precision=24, grain=-149, top=128, normal=-126)
    """

    precision: int
    grain: int
    top: int
    normal: int | None

    @property
    def lowest(self) -> int:
        """The exponent from which results have `precision` bits, or would have."""
        return self.grain if self.normal is None else self.normal


def grid_of(accumulator: Accumulator) -> Grid:
    """The grid of an accumulator's results: of its dtype, or of its register."""
    if isinstance(accumulator, FixedPoint):
        lsb = accumulator.lsb_exponent
        return Grid(accumulator.width - 1, lsb, lsb + accumulator.width - 1, None)
    info: Any = ml_dtypes.finfo(accumulator.result_dtype)  # type: ignore[no-untyped-call]
    bits = accumulator.result_bits if isinstance(accumulator, Fused) else int(info.nmant)
    return Grid(bits + 1, int(info.minexp) - bits, int(info.maxexp), int(info.minexp))
