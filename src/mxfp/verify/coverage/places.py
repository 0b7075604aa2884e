# SPDX-License-Identifier: Apache-2.0
"""Where an exact value lies between the floats, or integers, around it."""

from __future__ import annotations

from typing import Final

import numpy as np

from ...accumulate import Fixed
from ...dot import Terms
from ...floats import add_to_odd
from ...formats import Bools, Floats
from .bin_classes import TRACE
from .reach import Precision

FLOAT64_BITS: Final = 53


def places(exact: Floats, rest: Floats, result: Floats, shape: Precision) -> dict[str, Bools]:
    """Exact values -> how rounding them to a float format goes.

    The value is exact + rest: of formats below float64, `exact` is rounded to odd and rest is 0; of float64
    it is the nearest, and rest what that left. result: what came out, for what overflowed.
    """
    magnitude = np.abs(exact)
    finite = np.isfinite(exact)
    magnitude = np.where(finite, magnitude, 0.0)
    exponent = np.maximum(np.frexp(magnitude)[1].astype(np.int64) - shape.bits, shape.lowest)
    scaled = np.ldexp(magnitude, -exponent)
    below = np.floor(scaled)
    part = scaled - below
    if shape.bits == FLOAT64_BITS:
        part = np.ldexp(np.where(exact < 0, -rest, rest), -exponent)
        below = np.where(part < 0, below - 1, below)
        part = np.where(part < 0, part + 1, part)
    over = finite & (magnitude > shape.largest)
    just = over & (np.ldexp(below, exponent) <= shape.largest)
    within = finite & (~over | just)
    found = parts(part, below, within)
    inexact = within & (part > 0)
    small = finite & (magnitude < 2.0**shape.smallest_normal) & (magnitude > 0)
    up = inexact & (np.abs(result) > np.ldexp(below, exponent))
    mantissa = np.frexp(np.where(np.isfinite(result), result, 0.0))[0]
    found["carry"] = up & (np.abs(mantissa) == 0.5) & (below >= 2)
    found["overflow"] = over & ~just
    found["overflow by rounding"] = just & np.isinf(result)
    found["subnormal, exact"] = small & (part == 0)
    found["subnormal, rounded"] = small & (part > 0)
    found["to zero"] = small & (result == 0)
    return found


def parts(part: Floats, below: Floats, where: Bools) -> dict[str, Bools]:
    """The part of a unit that lies above `below` -> bins.PLACES."""
    odd = np.asarray(below % 2 == 1, np.bool_)
    return {
        "exact": where & (part == 0),
        "below half": where & (part > 0) & (part < 0.5),
        "tie, even below": where & (part == 0.5) & ~odd,
        "tie, odd below": where & (part == 0.5) & odd,
        "above half": where & (part > 0.5),
        "a trace below": where & (part > 0) & (part < TRACE),
        "half and a trace": where & (part > 0.5) & (part < 0.5 + TRACE),
    }


_LEFT: Final = np.frompyfunc(lambda integer: float(integer - int(float(integer))), 1, 1)


def wide(terms: Terms, k: int | slice) -> tuple[Floats, Floats]:
    """Terms -> float64 and what is left of them, both exact; NaN and infinite terms are NaN."""
    sums, exponents = terms.sums[..., k], terms.exponents[..., k]
    high = sums.astype(np.float64)
    low = np.zeros_like(high)
    if terms.bits > FLOAT64_BITS:
        low = np.asarray(_LEFT(sums.astype(object)), np.float64)
    if terms.specials is not None:
        high = np.where(terms.specials[..., k] != 0, np.nan, high)
    return np.ldexp(high, exponents), np.ldexp(low, exponents)


def added_exactly(left: Floats, right: Floats, rest: Floats, shape: Precision) -> tuple[Floats, Floats]:
    """Three numbers -> the sum as `places` takes it."""
    with np.errstate(invalid="ignore", over="ignore"):
        if shape.bits < FLOAT64_BITS:
            if rest.any():  # the smallest first: two additions, each to odd, keep what a later rounding needs
                right = add_to_odd(right, rest)
            return add_to_odd(left, right), np.zeros_like(left)
        total = left + right
        virtual = total - left
        error = (left - (total - virtual)) + (right - virtual)
        again = total + (error + rest)
        return again, (total - again) + (error + rest)


def of_integers(state: Fixed, shape: Precision) -> tuple[Floats, Floats]:
    """Exact integers * 2**exponent -> float64 as `places` takes it."""
    integers = np.asarray(state.integers)
    if integers.dtype != object and (np.abs(integers) < 1 << FLOAT64_BITS).all():
        exact = np.ldexp(integers.astype(np.float64), state.exponent)
        return exact, np.zeros_like(exact)

    def convert(integer: int, exponent: int) -> tuple[float, float]:
        shift = max(abs(integer).bit_length() - FLOAT64_BITS, 0)
        kept, rest = abs(integer) >> shift, abs(integer) & ((1 << shift) - 1)
        sign = -1.0 if integer < 0 else 1.0
        if shape.bits < FLOAT64_BITS:
            return sign * _ldexp(kept | (rest != 0), exponent + shift), 0.0
        if 2 * rest > 1 << shift:
            kept, rest = kept + 1, rest - (1 << shift)
        return sign * _ldexp(kept, exponent + shift), sign * _ldexp(rest, exponent)

    high, low = np.frompyfunc(convert, 2, 2)(
        integers.astype(object), np.asarray(state.exponent).astype(object)
    )
    return np.asarray(high, np.float64), np.asarray(low, np.float64)


def _ldexp(integer: int, exponent: int) -> float:
    with np.errstate(over="ignore", under="ignore"):
        return float(np.ldexp(float(integer), exponent))
