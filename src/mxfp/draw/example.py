# SPDX-License-Identifier: Apache-2.0
"""The running example: the two blocks that every figure and page carries.

Under MXFP4's default rule, floor, the scale of A is 1/2. 3.25 is then 6.5, beyond the largest value, and
saturates; 0.03125 becomes zero and -0.0625 minus zero; 1.25 and 1.75 are ties, one down and one up. Every
number is a multiple of 1/32, so that every float format of the package holds it exactly.
"""

from __future__ import annotations

from typing import Final

A: Final = (
    0.5, -1.25, 0.8125, -0.0625, 1.75, -0.375, 0.25, 3.25,
    -0.6875, 0.125, -2.125, 0.9375, 0.0, -1.5, 0.4375, -0.1875,
    1.125, -0.5625, 0.03125, 2.5, -0.875, 0.3125, -0.09375, 0.75,
    -1.0, 0.15625, 1.375, -0.25, -2.75, 0.625, -0.4375, 0.21875,
)  # fmt: skip
B: Final = (
    0.75, 0.3125, -0.5, 1.0, 0.1875, -1.125, 0.4375, 1.5,
    0.0625, -0.25, -0.875, 0.5625, 0.125, -0.6875, 0.375, -0.03125,
    -0.9375, 0.25, 0.625, 1.25, -0.3125, 0.8125, -0.15625, 0.5,
    1.375, -0.4375, 0.6875, -0.75, 0.21875, -0.1875, 0.09375, -1.0,
)  # fmt: skip

SHIFTS: Final = (9, 0, 1, -1, 0, 0, 1, 0, -1, 0, 2, 0, 0, -1, 1, 0)
"""Of the long example: block k of its first side is A * 2**SHIFTS[k]. The first term is far the largest."""
LONG_A: Final = tuple(value * 2.0**shift for shift in SHIFTS for value in A)
LONG_B: Final = B * len(SHIFTS)
"""512 elements: what sixteen blocks do to an accumulator."""
