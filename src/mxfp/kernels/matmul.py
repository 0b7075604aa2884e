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
    x, marked_a = _side(codes_a, scales_a, format_a)
    y, marked_b = _side(codes_b, scales_b, format_b)
    exponents_a, exponents_b = format_a.scale.exponents[scales_a], format_b.scale.exponents[scales_b]
    lsb = format_a.element.lsb_exponent + format_b.element.lsb_exponent
    block = format_a.block
    if isinstance(accumulator, Sequential):
        # Powers of two whose product with a sum stays far inside float64, so that every term is exact.
        powers_a, powers_b = np.ldexp(1.0, exponents_a + lsb), np.ldexp(1.0, exponents_b)
        _sequential(x, powers_a, y, powers_b, block, out)
        result = out
    else:
        exact = np.empty(out.shape, np.float64)
        nearest = accumulator.result_dtype == np.float64
        bits = sum_width(format_a, format_b, block)
        _exact(x, exponents_a + lsb, y, exponents_b, block, bits, nearest, exact)
        result = exact if nearest else round_float64(exact, accumulator.result_dtype)
    marked = _any_marked(marked_a, marked_b)
    out[...] = result if marked is None else canonical_nan(result, marked)


def _side(codes: Codes, scales: Codes, fmt: BlockFormat) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Codes and scales of rows -> small integers (rows, K), and which blocks are NaN."""
    dtype = np.int8 if fmt.element.bits_of_integer <= 8 else np.int16
    integers = fmt.element.integers.astype(dtype)[codes]
    return np.ascontiguousarray(integers), ~fmt.scale.finite[scales]


def _any_marked(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    """(M, G), (N, G) NaN blocks -> (M, N) outputs that use one, or None if there are none at all."""
    if not (a.any() or b.any()):
        return None
    return np.logical_or.outer(a.any(axis=1), b.any(axis=1))


@kernel
def block_sum(x: Any, y: Any) -> Any:
    """The sum of products of two vectors of small integers, in int32. See `mxfp.dot.sums_of_products`."""
    total = np.int32(0)
    for k in range(x.size):
        total += np.int32(x[k]) * np.int32(y[k])
    return total


@kernel
def add_to_odd(a: float, b: float) -> float:
    """A + b rounded to odd. See `mxfp.floats.add_to_odd`; a is never infinite here."""
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
def _sequential(x: Any, powers_x: Any, y: Any, powers_y: Any, block: int, out: Any) -> None:
    """Every output by itself: block sums in order, each exact term added with one rounding."""
    rows, columns = out.shape
    for cell in numba.prange(rows * columns):
        m = cell // columns
        n = cell - m * columns
        row, column = x[m], y[n]
        accumulator = np.float32(0.0)
        for g in range(powers_x.shape[1]):
            part = slice(g * block, min(g * block + block, row.size))
            term = np.float64(block_sum(row[part], column[part])) * powers_x[m, g] * powers_y[n, g]
            if math.isinf(accumulator):
                break
            accumulator = np.float32(add_to_odd(np.float64(accumulator), term))
        out[m, n] = accumulator


@parallel_kernel
def _exact(
    x: Any, exponents_x: Any, y: Any, exponents_y: Any, block: int, bits: int, nearest: bool, out: Any
) -> None:
    """Every output by itself: one int64 where the terms fit, a register of limbs where they do not."""
    rows, columns = out.shape
    length = x.shape[1]
    groups = exponents_x.shape[1]
    count_bits = math.ceil(math.log2(groups + 1))
    for m in numba.prange(rows):
        sums = np.zeros(groups, np.int64)
        limbs = np.zeros(2 + (bits + 2 * 256 + count_bits) // LIMB + 1, np.int64)
        for n in range(columns):
            lowest = np.int64(1 << 20)
            highest = np.int64(-(1 << 20))
            for g in range(groups):
                part = slice(g * block, min(g * block + block, length))
                sums[g] = block_sum(x[m, part], y[n, part])
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
def _round_limbs(total: Any, exponent: Any, limbs: Any, wide: bool, nearest: bool) -> float:
    """A register of limbs (or one int64) * 2**exponent -> float64, nearest even or rounded to odd."""
    negative: Any = False
    sticky: Any = False
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
    value = math.ldexp(np.float64(total), int(exponent + drop))
    return -value if negative else value
