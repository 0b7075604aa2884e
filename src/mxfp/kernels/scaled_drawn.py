# SPDX-License-Identifier: Apache-2.0
"""Stochastic rounding under scales that have mantissa bits: it wants the quotient itself, rounded to odd."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import kernel
from .encode import count_starts, draw, goes_up
from .scaled_tables import scale_code


@kernel
def divide_to_odd(x: Any, divisor: Any) -> Any:
    """Two positive float64, the divisor of at most 28 bits -> their quotient, rounded to odd.

    See `mxfp.floats.divide_to_odd`: the remainder is exact, as the quotient is in parts of 18 bits.
    """
    quotient = np.float64(x / divisor)
    pattern = np.float64(quotient).view(np.int64)
    if pattern >= (0x7FF << 52):
        return quotient
    remainder, rest = np.float64(x), quotient
    for _ in range(3):
        part = np.int64(np.float64(rest).view(np.int64) >> 35 << 35).view(np.float64)
        remainder -= part * divisor
        rest -= part
    if remainder == 0 or pattern & 1:
        return quotient
    return np.int64(pattern + (1 if remainder > 0 else -1)).view(np.float64)


@kernel
def quantize_drawn(
    begin: int,
    end: int,
    x: Any,
    sizes: Any,
    fixed: Any,
    wide: Any,
    ends_of_scales: Any,
    factors: Any,
    starts: Any,
    magnitudes: Any,
    key: Any,
    index: Any,
    codes: Any,
    scales: Any,
) -> None:
    """Stochastic rounding of float64: every block by itself, one quotient and one draw per element."""
    length, inner, block = sizes
    mask, left_out, nan_code, minus = fixed
    per_row = (length + block - 1) // block
    for n in range(begin, end):
        line = n // inner
        outer = line // per_row
        first = (line - outer * per_row) * block
        last = min(first + block, length)
        start = outer * length * inner + (n - line * inner)
        largest, infinite = np.int64(0), False
        for k in range(first, last):
            found = x[start + k * inner] & mask
            if found == left_out:
                infinite = True
            else:
                largest = np.int64(max(largest, found))
        scale = scale_code(largest, infinite, ends_of_scales)
        scales[n] = scale
        for k in range(first, last):
            at = start + k * inner
            if scale == nan_code:
                codes[at] = 0
                continue
            scaled = divide_to_odd(np.int64(x[at] & mask).view(np.float64), factors[scale])
            code = count_starts(scaled, starts)
            if code < starts.size and goes_up(
                scaled, magnitudes[code], magnitudes[code + 1], draw(key, np.uint64(index[at]))
            ):
                code += 1
            codes[at] = code | minus if x[at] < 0 else code
