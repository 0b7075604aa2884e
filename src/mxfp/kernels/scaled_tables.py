# SPDX-License-Identifier: Apache-2.0
"""Tables for scales that have mantissa bits: where codes end, and what they are worth.

A code is a range of magnitudes, which has a last pattern, its end. The code of a magnitude is how many ends
lie below its own pattern: nothing is divided, and nothing rounded.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .. import scale
from ..encode import Rounding, starts
from ..floats import round_float64
from ..formats import BlockFormat, Codes, Floats, ScaleRule, Specials
from ._jit import kernel
from .arrays import PATTERNS

STEPS: Final = 7
"""Codes of an element that begin somewhere: a sign and at most three more bits."""
SCALES: Final = 256
"""Scale codes that there is room for; of those a format lacks, none is ever reached."""


def supports(fmt: BlockFormat) -> bool:
    """Whether codes are few enough for these tables, and float32 holds all elements, scales and products.

    The reference does the other formats.
    """
    element, scale = fmt.element, fmt.scale
    return (
        scale.mantissa_bits > 0
        and scale.has_zero
        and scale.bits <= 8
        and not element.twos_complement
        and element.specials is Specials.NONE
        and 1 < element.magnitudes.size <= STEPS + 1
        and min(scale.smallest, element.smallest_subnormal) >= 2.0**-64
        and max(scale.max, element.max) < 2.0**64
    )


def scale_starts(fmt: BlockFormat, rule: ScaleRule, tensor_scale: float) -> Floats:
    """(n,) float64: scale code i + 1 begins at starts[i], a largest magnitude of a block.

    Asked of `mxfp.scale.significand_codes`, whose codes change at a scale or between two, or just above.

    >>> from mxfp import NVFP4
    >>> float(scale_starts(NVFP4, "nearest", 1.0)[-1]), float(scale_starts(NVFP4, "rceil", 1.0)[-1])
    (2592.0, 2496.0000000000005)
    """
    values = fmt.scale.values[fmt.scale.finite]
    limits = np.concatenate([[0.0], values, (values[:-1] + values[1:]) / 2]) * (
        fmt.element.max * tensor_scale
    )
    asked = np.sort(np.concatenate([limits, np.nextafter(limits, np.inf)]))
    codes = scale.significand_codes(asked, fmt.element, fmt.scale, rule, tensor_scale)
    return asked[np.searchsorted(codes, np.arange(1, values.size))]


def last_patterns(starts: Floats, dtype: np.dtype[Any]) -> NDArray[Any]:
    """float64 (...) -> the largest pattern of a magnitude of the dtype that lies below each.

    >>> last_patterns(np.array([1.0, 1.0 + 2**-50, 1e-300]), np.dtype(np.float16)).tolist()
    [15359, 15360, 0]
    """
    with np.errstate(over="ignore", under="ignore"):
        near = starts.astype(dtype)
    below = near.astype(np.float64) < starts
    return near.view(f"i{dtype.itemsize}").astype(working_type(dtype)) - ~below


def working_type(dtype: np.dtype[Any]) -> type[np.signedinteger[Any]]:
    """The integers that patterns of a dtype are compared in."""
    return np.int64 if dtype.itemsize == 8 else np.int32


def all_scales(fmt: BlockFormat) -> Codes:
    """Every scale code of a format."""
    return np.arange(fmt.scale.code_count).astype(np.uint8)


def ends_of_scales(
    fmt: BlockFormat, rule: ScaleRule, tensor_scale: float, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """(SCALES,) integers: the last pattern of each scale code; infinity is the first with that of NaN."""
    working = working_type(dtype)
    ends = np.full(SCALES, np.iinfo(working).max, working)
    found = last_patterns(scale_starts(fmt, rule, tensor_scale), dtype)
    ends[: found.size] = found
    ends[found.size] = PATTERNS[dtype][1] - 1
    return ends


def ends_of_elements(
    fmt: BlockFormat, rounding: Rounding, tensor_scale: float, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """(scale codes * STEPS,) integers: the last pattern of each element code under each scale code.

    A start is a limit of few bits, or just above one; the limit times the scale is exact in float64.
    """
    table = starts(fmt.element, rounding)
    limits = table.astype(np.float32).astype(np.float64)
    products = limits * scale.scale_factors(all_scales(fmt), fmt.scale, tensor_scale)[:, None]
    begins = np.where(table > limits, np.nextafter(products, np.inf), products)
    working = working_type(dtype)
    ends = np.full((fmt.scale.code_count, STEPS), np.iinfo(working).max, working)
    ends[:-1, : table.size] = last_patterns(begins, dtype)[:-1]
    return ends.reshape(-1)


def values_of(fmt: BlockFormat, tensor_scale: float, dtype: np.dtype[Any]) -> NDArray[Any]:
    """(scale codes * codes,) of the dtype: what each code is under each scale, rounded once."""
    with np.errstate(invalid="ignore"):
        exact = fmt.element.values * (fmt.scale.values * tensor_scale)[:, None]
    return round_float64(exact, dtype).reshape(-1)


@kernel
def scale_code(largest: Any, infinite: Any, ends: Any) -> Any:
    """How many of SCALES ends lie below a pattern; at least 1 where an infinity was left out.

    Products in place of branches, which nobody could predict.
    """
    code = np.int64(0)
    for step in (128, 64, 32, 16, 8, 4, 2, 1):
        code += np.int64(ends[np.uint64(code + step - 1)] < largest) * step
    return np.uint8(max(code, np.int64(infinite)))
