# SPDX-License-Identifier: Apache-2.0
"""Side room off 3: the scale with the smallest exact squared error of its block (rule `search`).

Errors are first summed in float64, which decides nearly every block; where two candidates lie closer
than that sum can tell apart, exact rationals decide.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .encode import Rounding, encode_scaled
from .formats import BlockFormat, ElementFormat, Floats, Integers
from .scale import exponents


def search_exponents(
    given: NDArray[Any], values: Floats, amax: Floats, fmt: BlockFormat, rounding: Rounding
) -> Integers:
    """(..., block) blocks -> (...) int64 exponents of the scale. Contract §2, `search`.

    `given` are the elements as they came, `values` the same in float64 (exact or rounded to odd) with 0
    for what is not finite, `amax` their largest magnitude. The candidates run from one below floor's
    exponent to one above ceil's, each clamped to the scale format; ties go to the larger. Stochastic
    rounding is measured as nearest_even, so that the scale does not depend on the draws.
    """
    measured: Rounding = "nearest_even" if rounding == "stochastic" else rounding
    low = exponents(amax, fmt.element, "floor") - 1
    high = exponents(amax, fmt.element, "ceil") + 1
    # In units of the largest candidate no error of a block overflows; tiny ones may vanish, and then
    # the candidates are close enough for the exact comparison.
    unit = np.ldexp(1.0, -np.clip(high, -900, 900))[..., None]
    best, best_error = high, np.full(amax.shape, np.inf)
    close = np.zeros(amax.shape, np.bool_)
    for step in range(4):
        candidate = high - step
        exponent = _clamped(candidate, fmt)[..., None]
        scaled = np.ldexp(values, -exponent)
        rounded = fmt.element.values[encode_scaled(scaled, fmt.element, measured)]
        difference = (values - np.ldexp(rounded, exponent)) * unit
        error = (difference * difference).sum(axis=-1)
        valid = candidate >= low
        margin = 2.0**-40 * np.minimum(error, best_error) + 2.0**-900
        better = valid & (error < best_error)
        near = valid & (step > 0) & (np.abs(error - best_error) <= margin)
        close |= near & (_clamped(candidate, fmt) != _clamped(best, fmt))
        best = np.where(better & ~near, candidate, best)
        best_error = np.where(better, error, best_error)
    best = _clamped(best, fmt)
    with np.errstate(invalid="ignore"):  # a signalling NaN
        finite = np.isfinite(given)
    for index in np.argwhere(close & (amax > 0)):
        where = tuple(index)
        block = [
            Fraction(v.item()) if ok else Fraction(0)
            for v, ok in zip(given[where], finite[where], strict=True)
        ]
        best[where] = _exact_best(block, values[where], int(low[where]), int(high[where]), fmt, measured)
    return best


def _clamped(exponent: Integers, fmt: BlockFormat) -> Integers:
    return np.clip(exponent, -fmt.scale.bias, fmt.scale.nan_code - 1 - fmt.scale.bias)


def _exact_best(
    block: list[Fraction], values: Floats, low: int, high: int, fmt: BlockFormat, rounding: Rounding
) -> int:
    candidates = {int(_clamped(np.array(e), fmt)) for e in range(low, high + 1)}
    errors = {e: _exact_error(block, values, e, fmt.element, rounding) for e in candidates}
    smallest = min(errors.values())
    return max(e for e, error in errors.items() if error == smallest)


def _exact_error(
    block: list[Fraction], values: Floats, exponent: int, element: ElementFormat, rounding: Rounding
) -> Fraction:
    codes = encode_scaled(np.ldexp(values, -exponent), element, rounding)
    scale = Fraction(2) ** exponent
    integers = element.integers[codes].tolist()
    lsb = scale * Fraction(2) ** element.lsb_exponent
    return sum(((x - n * lsb) ** 2 for x, n in zip(block, integers, strict=True)), Fraction(0))
