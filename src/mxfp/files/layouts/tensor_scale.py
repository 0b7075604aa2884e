# SPDX-License-Identifier: Apache-2.0
"""The float32 beside NVFP4's block scales: multiplied with, or divided by; one for all, or one an expert."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from ..tensor import Bytes, LayoutError, Tensor

MOST_STEPS: Final = 16
"""Float32 that are tried: of any two there is one, but where reciprocals are subnormal."""


def reciprocal(divisor: float) -> float:
    """A float32 that divides -> the float32 that multiplies, rounded once, as its readers round it.

    >>> reciprocal(4.0), reciprocal(3.0) == float(np.float32(1 / 3))
    (0.25, True)
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        return float(np.float32(1.0) / np.float32(divisor))


def divisor(scale: float, what: str) -> float:
    """The float32 that divides whose reciprocal is exactly `scale`; LayoutError if no float32 has it.

    Of the float32 in a binade, 83 in a hundred are the rounded reciprocal of another.

    >>> divisor(0.25, "x")
    4.0
    """
    if _is_reciprocal(scale):
        return reciprocal(scale)
    raise LayoutError(
        f"{what}: the tensor scale {scale!r} is written as its reciprocal here, and no float32 has it for "
        f"its reciprocal; the next above that is one is {nearest_divisible(scale)!r}"
    )


def nearest_divisible(scale: float) -> float:
    """A tensor scale that a layout which divides can hold: this one, or the next float32 above that is.

    A scale that is larger by a unit in the last place saturates nothing more. LayoutError for those so small
    that their reciprocals are beyond float32.

    >>> nearest_divisible(0.25)
    0.25
    """
    found = np.float32(scale)
    for _ in range(MOST_STEPS):
        if _is_reciprocal(float(found)):
            return float(found)
        with np.errstate(over="ignore"):
            found = np.nextafter(found, np.float32(math.inf))
    raise LayoutError(f"the tensor scale {scale!r} has no reciprocal in float32")


def _is_reciprocal(scale: float) -> bool:
    """Whether a float32 has this one for its rounded reciprocal. If one has, that of this one has."""
    found = reciprocal(scale)
    return 0 < found < math.inf and reciprocal(found) == scale


def read_scale(tensor: Tensor, raw: Bytes, start: int, stop: int, *, divides: bool) -> float:
    """The tensor scale of rows start … stop, from all bytes of its part.

    Raises ValueError where it is no positive finite number, or where each expert has its own and the rows
    are of more than one.
    """
    with np.errstate(invalid="ignore"):  # a signalling NaN, which is refused below
        values = raw.view("<f4").astype(np.float64)
    if values.size > 1:
        values = values[start:stop]
    part = tensor.parts[-1].name
    if values.size == 0:
        return 1.0
    if values.size > 1 and not (values == values[0]).all():
        raise ValueError(
            f"{part} has {raw.size // 4} different scales, one for each of the first axis; read "
            f"{tensor.name!r:.80} one row (expert) at a time"
        )
    found = float(values[0])
    scale = reciprocal(found) if divides and found > 0 else found
    if not 0 < scale < math.inf:
        how = "a float32 with a finite reciprocal" if divides else "a positive finite float32"
        raise ValueError(f"{part} is {found!r}, expected {how}")
    return scale
