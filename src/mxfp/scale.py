# SPDX-License-Identifier: Apache-2.0
"""Room 2: the largest magnitude of a block -> its scale code (OCP MX §6.3, NVFP4).

A power-of-two rule is one number. Write amax = f * 2**k with 1 <= f < 2: the scale's exponent is
k - emax, one more from some significand f on, and that threshold is the whole rule. The exponent is
read from the float (frexp), never computed with log2, which is one too high just below a power of two.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from .floats import round_float64, starts_of_nearest_even
from .formats import (
    POWER_OF_TWO_RULES,
    SIGNIFICAND_RULES,
    BlockFormat,
    Codes,
    ElementFormat,
    Floats,
    Integers,
    ScaleFormat,
    ScaleRule,
)

SCALE_RULES: Final = tuple(dict.fromkeys((*POWER_OF_TWO_RULES, *SIGNIFICAND_RULES)))


def check_rule(rule: ScaleRule | None, fmt: BlockFormat) -> ScaleRule:
    """The rule, or the format's default for None; ValueError for one the format does not have."""
    if rule is None:
        return fmt.scale_rules[0]
    if not isinstance(rule, str) or rule not in fmt.scale_rules:
        known = ", ".join(repr(r) for r in fmt.scale_rules)
        raise ValueError(f"{fmt.name} has the scale rules {known}, got {rule!r}")
    return rule


def step_up(rule: ScaleRule, element: ElementFormat) -> float:
    """The significand, 1 <= f < 2, from which a block's scale is one binade higher than floor's.

    infinity for `floor`, which never steps up. Contract §2; the strict rules (`ceil`, `rceil`) begin
    one float64 ulp above their limit.

    >>> from mxfp import E2M1
    >>> step_up("even", E2M1), step_up("rceil", E2M1) > 1.5
    (1.75, True)
    """
    if rule == "floor":
        return float("inf")
    if rule == "even":
        return 2.0 - 2.0 ** -(element.mantissa_bits + 1)
    limit = 1.0 if rule == "ceil" else element.max / 2.0**element.emax
    return float(np.nextafter(limit, 2.0))


def exponents(amax: Floats, element: ElementFormat, rule: ScaleRule) -> Integers:
    """(...) float64 amax -> (...) int64 exponents of the scale, before clamping. OCP MX §6.3.

    `amax` is exact or rounded to odd; where it is 0 the result is of no use.
    """
    fraction, exponent = np.frexp(amax)
    return exponent - 1 - element.emax + (2.0 * fraction >= step_up(rule, element)).astype(np.int64)


def power_of_two_codes(exponent: Integers, amax: Floats, scale: ScaleFormat) -> Codes:
    """Exponents -> E8M0 codes, clamped to the format; 0 for a block of zeros. OCP MX §5.4.1.

    >>> from mxfp import E8M0
    >>> power_of_two_codes(np.array([0, -300, 300, 7]), np.array([1.0, 1, 1, 0]), E8M0).tolist()
    [127, 0, 254, 0]
    """
    code = np.clip(exponent + scale.bias, 0, scale.nan_code - 1)
    return np.where(amax > 0, code, 0).astype(np.uint8)


def significand_codes(
    amax: Floats, element: ElementFormat, scale: ScaleFormat, rule: ScaleRule, tensor_scale: float
) -> Codes:
    """(...) float64 amax -> (...) codes of a scale with mantissa bits (UE4M3). Contract §2, NVFP4.

    Compares amax with s * max * tensor_scale, which float64 holds exactly, so that no quotient is ever
    rounded. `nearest`: ties to the even code; `rceil`: the smallest scale at which nothing saturates.
    """
    scales = scale.values[scale.finite]
    unit = element.max * tensor_scale
    if rule == "rceil":
        code = np.searchsorted(scales * unit, amax, side="left")
    else:
        starts = starts_of_nearest_even((scales[:-1] + scales[1:]) / 2 * unit)
        code = np.searchsorted(starts, amax, side="right")
    return np.where(amax > 0, np.clip(code, 1, scales.size - 1), 0).astype(np.uint8)


def tensor_scale_for(amax: float, fmt: BlockFormat) -> np.float32:
    """The float32 tensor scale for a tensor's largest magnitude. Contract §2, NVFP4.

    amax / (max element * max scale), rounded once, clamped to positive finite float32; 1 for amax 0.

    >>> from mxfp import NVFP4
    >>> float(tensor_scale_for(2688.0, NVFP4))
    1.0
    """
    if amax == 0:
        return np.float32(1.0)
    largest = np.finfo(np.float32)
    numerator, denominator = amax.as_integer_ratio()
    limit = int(fmt.element.max * fmt.scale.max)
    scaled = _divide_to_odd(numerator, denominator * limit)
    rounded = round_float64(np.array([scaled]), np.dtype(np.float32))[0]
    return np.float32(min(max(rounded, largest.smallest_subnormal), largest.max))


def _divide_to_odd(numerator: int, denominator: int) -> float:
    """Positive integers -> their quotient as float64, rounded to odd; infinity or tiny beyond float64."""
    shift = 53 - (numerator.bit_length() - denominator.bit_length())
    if shift > 0:
        numerator <<= shift
    else:
        denominator <<= -shift
    quotient, remainder = divmod(numerator, denominator)
    drop = quotient.bit_length() - 53
    sticky = remainder != 0 or quotient & ((1 << drop) - 1) != 0
    return float(np.ldexp(float(quotient >> drop | sticky), drop - shift))


def scale_factors(codes: Codes, scale: ScaleFormat, tensor_scale: float) -> Floats:
    """Scale codes -> (...) float64, what elements are divided by; 1 where the scale is 0 or NaN.

    A block whose scale is 0 or NaN has nothing left to divide.
    """
    factors: NDArray[np.float64] = scale.values[codes] * tensor_scale
    return np.where(scale.finite[codes] & (scale.significands[codes] > 0), factors, 1.0)
