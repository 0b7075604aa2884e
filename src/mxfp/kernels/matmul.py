# SPDX-License-Identifier: Apache-2.0
"""Twins of `mxfp.matmul`: Sequential(float32) and Exact, for power-of-two scales and sums within int32.

Straightforward compiled loops over outputs and blocks: an int32 sum of products, then the exact term
goes to the accumulator.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numba
import numpy as np
from numpy.typing import NDArray

from ..accumulate import Accumulator, Exact, Sequential
from ..floats import canonical_nan, round_float64
from ..formats import BlockFormat, Codes
from ..integers import sum_width
from ._jit import kernel, parallel_kernel

LIMB: Final = 30
"""Bits of one limb of the exact register; int64 leaves room to carry late."""
LIMB_MASK: Final = (1 << LIMB) - 1


def supports(a: BlockFormat, b: BlockFormat, accumulator: Accumulator) -> bool:
    """Whether `multiply` has a kernel for these; the reference does the rest."""
    return (
        not (a.scale.mantissa_bits or b.scale.mantissa_bits)
        and sum_width(a, b, a.block) <= 31
        and bool(a.element.finite.all() and b.element.finite.all())
        and (isinstance(accumulator, Exact) or accumulator == Sequential("float32"))
    )


def multiply(
    codes_a: Codes,
    scales_a: Codes,
    format_a: BlockFormat,
    codes_b: Codes,
    scales_b: Codes,
    format_b: BlockFormat,
    accumulator: Accumulator,
    out: NDArray[Any],
) -> None:
    """(M, K) and (N, K) codes with their scales -> out (M, N). See `mxfp.matmul._multiply`."""
    if not (out.size and codes_a.shape[1]):
        return
    x, marked_a, exponents_a = _side(codes_a, scales_a, format_a)
    y, marked_b, exponents_b = _side(codes_b, scales_b, format_b)
    lsb = format_a.element.lsb_exponent + format_b.element.lsb_exponent
    block = format_a.block
    if isinstance(accumulator, Sequential):
        _sequential(x, exponents_a + lsb, y, exponents_b, block, out)
        result = out
    else:
        exact = np.empty(out.shape, np.float64)
        nearest = accumulator.result_dtype == np.float64
        bits = sum_width(format_a, format_b, block)
        _exact(x, exponents_a + lsb, y, exponents_b, block, bits, nearest, exact)
        result = exact if nearest else round_float64(exact, accumulator.result_dtype)
    marked = _any_marked(marked_a, marked_b)
    out[...] = result if marked is None else canonical_nan(result, marked)


def _side(codes: Codes, scales: Codes, fmt: BlockFormat) -> tuple[NDArray[Any], Any, NDArray[np.int64]]:
    """Codes and scales of rows -> small integers, NaN blocks, exponents."""
    dtype = np.int8 if fmt.element.bits_of_integer <= 8 else np.int16
    integers = fmt.element.integers.astype(dtype)[codes]
    return np.ascontiguousarray(integers), ~fmt.scale.finite[scales], fmt.scale.exponents[scales]


def _any_marked(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    """(M, G), (N, G) NaN blocks -> (M, N) outputs that use one, or None if there are none at all."""
    if not (a.any() or b.any()):
        return None
    marked: NDArray[np.bool_] = a.any(axis=1)[:, None] | b.any(axis=1)[None, :]
    return marked


@kernel
def block_sum(x, y, m: int, n: int, first: int, last: int) -> int:  # noqa: ANN001
    """The sum of products of one block, in int32. See `mxfp.dot.sums_of_products`."""
    total = np.int32(0)
    for k in range(first, last):
        total += np.int32(x[m, k]) * np.int32(y[n, k])
    return total


@kernel
def add_to_odd(a: float, b: float) -> float:
    """a + b rounded to odd. See `mxfp.floats.add_to_odd`; a is never infinite here."""
    total = a + b
    virtual = total - a
    error = (a - (total - virtual)) + (b - virtual)
    if error != 0.0:
        bits = np.float64(total).view(np.int64)
        if bits & 1 == 0:
            # The neighbour on the side of the error: one step away from zero, or one towards it.
            total = np.int64(bits + (1 if (error > 0.0) == (total > 0.0) else -1)).view(np.float64)
    return total


@parallel_kernel
def _sequential(  # noqa: ANN202, D103
    x,  # noqa: ANN001
    exponents_x: NDArray[np.int64],
    y,  # noqa: ANN001
    exponents_y: NDArray[np.int64],
    block: int,
    out: NDArray[np.float32],
):
    rows, columns = out.shape
    length = x.shape[1]
    for cell in numba.prange(rows * columns):
        m = cell // columns
        n = cell - m * columns
        accumulator = np.float32(0.0)
        for g in range(exponents_x.shape[1]):
            total = block_sum(x, y, m, n, g * block, min(g * block + block, length))
            term = math.ldexp(np.float64(total), exponents_x[m, g] + exponents_y[n, g])
            if math.isinf(accumulator):
                break
            accumulator = np.float32(add_to_odd(np.float64(accumulator), term))
        out[m, n] = accumulator


@parallel_kernel
def _exact(  # noqa: ANN202, D103
    x,  # noqa: ANN001
    exponents_x: NDArray[np.int64],
    y,  # noqa: ANN001
    exponents_y: NDArray[np.int64],
    block: int,
    bits: int,
    nearest: bool,
    out: NDArray[np.float64],
):
    rows, columns = out.shape
    length = x.shape[1]
    groups = exponents_x.shape[1]
    count_bits = int(math.ceil(math.log2(groups + 1)))
    for m in numba.prange(rows):
        sums = np.zeros(groups, np.int64)
        limbs = np.zeros(2 + (bits + 2 * 256 + count_bits) // LIMB + 1, np.int64)
        for n in range(columns):
            lowest = np.int64(1 << 20)
            highest = np.int64(-(1 << 20))
            for g in range(groups):
                sums[g] = block_sum(x, y, m, n, g * block, min(g * block + block, length))
                if sums[g] != 0:
                    exponent = exponents_x[m, g] + exponents_y[n, g]
                    lowest = min(lowest, exponent)
                    highest = max(highest, exponent)
            if lowest > highest:
                out[m, n] = 0.0
            elif bits + highest - lowest + count_bits <= 62:
                total = np.int64(0)
                for g in range(groups):
                    if sums[g] != 0:
                        total += sums[g] << (exponents_x[m, g] + exponents_y[n, g] - lowest)
                out[m, n] = _round_limbs(total, lowest, limbs, False, nearest)
            else:
                limbs[:] = 0
                for g in range(groups):
                    if sums[g] != 0:
                        shift = exponents_x[m, g] + exponents_y[n, g] - lowest
                        shifted = sums[g] << (shift % LIMB)
                        limbs[shift // LIMB] += shifted & LIMB_MASK
                        limbs[shift // LIMB + 1] += shifted >> LIMB
                out[m, n] = _round_limbs(np.int64(0), lowest, limbs, True, nearest)


@kernel
def _round_limbs(total: int, exponent: int, limbs: NDArray[np.int64], wide: bool, nearest: bool) -> float:
    """A register of limbs (or one int64) * 2**exponent -> float64, nearest even or rounded to odd."""
    negative = False
    sticky = False
    if wide:
        carry = np.int64(0)
        for i in range(limbs.size):
            value = limbs[i] + carry
            limbs[i] = value & LIMB_MASK
            carry = value >> LIMB
        negative = carry < 0
        if negative:
            borrow = np.int64(1)
            for i in range(limbs.size):
                value = (limbs[i] ^ LIMB_MASK) + borrow
                limbs[i] = value & LIMB_MASK
                borrow = value >> LIMB
        top = limbs.size - 1
        while top > 1 and limbs[top] == 0:
            top -= 1
        # The top two limbs and as many bits of a third as make 62; what lies below is sticky.
        length = 0
        while limbs[top] >> length:
            length += 1
        total = (limbs[top] << LIMB) | limbs[top - 1]
        exponent += (top - 1) * LIMB
        if top > 1:
            take = min(62 - LIMB - length, LIMB)
            total = (total << take) | (limbs[top - 2] >> (LIMB - take))
            sticky = (limbs[top - 2] & ((np.int64(1) << (LIMB - take)) - 1)) != 0
            exponent -= take
            for i in range(top - 2):
                sticky = sticky or limbs[i] != 0
    else:
        negative = total < 0
        total = abs(total)
    keep = 54 if nearest else 53
    length = 0
    while total >> length:
        length += 1
    drop = max(length - keep, 0)
    sticky = sticky or (total & ((np.int64(1) << drop) - 1)) != 0
    total >>= drop
    if nearest:
        # One more bit than the result, then the sticky bit below it: rounding decided in integers.
        up = (total & 1) == 1 and length >= keep and (sticky or (total & 2) != 0)
        if length >= keep:
            total = (total >> 1) + (1 if up else 0)
            drop += 1
    elif sticky:
        total |= 1
    value = math.ldexp(np.float64(total), exponent + drop)
    return -value if negative else value
