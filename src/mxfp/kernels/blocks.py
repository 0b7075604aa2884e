# SPDX-License-Identifier: Apache-2.0
"""Twin of `mxfp.blocks.quantize` for formats whose scale is a power of two.

The way back is in `dequantize`. How both see arrays is in `arrays`; formats whose scale has mantissa bits
are in `scaled_blocks`.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..blocks import Nonfinite, Place, element_index
from ..encode import Rounding, starts
from ..floats import BFLOAT16, to_float64
from ..formats import BlockFormat, Codes, ScaleRule
from ..scale import step_up
from ._jit import kernel
from .arrays import (
    GRAIN,
    PATTERNS,
    STRIP,
    TOGETHER,
    cuts,
    patterns,
    quantize_in_tiles,
    share_out,
    sizes_of,
)
from .dequantize import dequantize_rows, power32, power64
from .encode import count_starts, draw, encoding, goes_up, nearest_code, signed_code

__all__ = ["dequantize_rows", "quantize_rows", "supports"]

_SINGLE: Final = {
    np.dtype(np.float16): (np.uint32(13), np.float32(2.0**112)),
    BFLOAT16: (np.uint32(16), np.float32(1)),
    np.dtype(np.float32): (np.uint32(0), None),
    np.dtype(np.float64): (None, None),
}
"""How the pattern of a magnitude becomes a float32, which is shifted and then multiplied. None: not
multiplied; not to become one."""


def supports(fmt: BlockFormat) -> bool:
    """Whether float32 holds all there is on the way; the reference does the other formats."""
    element, scale = fmt.element, fmt.scale
    return (
        scale.power_of_two
        and scale.bias <= 127
        and scale.nan_code - 1 - scale.bias <= 127
        and element.bias >= 0
        and element.lsb_exponent >= -22
        and element.magnitudes.size > 1
        and element.emax <= 60
    )


# --- quantize


def quantize_rows(
    x: NDArray[Any],
    axis: int,
    fmt: BlockFormat,
    rule: ScaleRule,
    rounding: Rounding,
    nonfinite: Nonfinite,
    tensor_scale: float,
    key: np.uint64 | None,
    codes: Codes,
    scales: Codes,
) -> tuple[Codes, Codes]:
    """Reals (...) -> codes (...) and scales, in place. See `mxfp.blocks._quantize_rows`."""
    options = (fmt, rule, rounding, nonfinite)

    def run(piece: NDArray[Any], some: Codes, some_scales: Codes, axis: int, place: Place) -> None:
        if key is None:
            _quantize(piece, some, some_scales, axis, options)
        else:
            index = element_index(x.shape, place)
            _quantize_stochastic(piece, axis, options, key, index, some, some_scales)

    quantize_in_tiles(run, x, axis, fmt.block, codes, scales, whole=key is None)
    return codes, scales


def _scaling(fmt: BlockFormat, rule: ScaleRule) -> tuple[np.int64, np.int64, np.int64]:
    """The rule as what is added to a float64's pattern, and then to its exponent; and the bias.

    A significand of `step_up` or more carries into the exponent.
    """
    step = step_up(rule, fmt.element)
    carry = 0 if math.isinf(step) else (1 << 52) - (int(np.float64(step).view(np.int64)) & (1 << 52) - 1)
    bias = fmt.scale.bias
    return np.int64(carry), np.int64(bias - 1023 - fmt.element.emax), np.int64(bias)


def _quantize(
    x: NDArray[Any],
    codes: Codes,
    scales: Codes,
    axis: int,
    options: tuple[BlockFormat, ScaleRule, Rounding, Nonfinite],
) -> None:
    """Contiguous floats -> contiguous codes and scales."""
    fmt, rule, rounding, nonfinite = options
    bits = patterns(x)
    unsigned = bits.dtype.type
    (mask, infinity), (shift, factor) = PATTERNS[x.dtype], _SINGLE[x.dtype]
    top = np.iinfo(unsigned).max
    saturate = nonfinite == "saturate"
    source = (
        unsigned(mask),
        unsigned(infinity if saturate else top),
        unsigned(infinity),
        unsigned(infinity) if saturate and x.dtype == np.float16 else None,
    )
    sizes = sizes_of(x.shape, axis, fmt.block)
    run, count, grain = cuts(_quantize_in_rows, _quantize_in_strips, sizes, scales)
    share_out(
        run,
        count,
        bits,
        sizes,
        source,
        shift,
        factor,
        (*_scaling(fmt, rule), np.int64(fmt.scale.nan_code)),
        encoding(fmt.element, starts(fmt.element, rounding)),
        codes.reshape(-1),
        scales.reshape(-1),
        grain=grain,
    )


@kernel
def _widest(largest: Any, shift: Any, factor: Any) -> Any:
    """The pattern of a magnitude -> that of the same float64."""
    if shift is None:
        return np.int64(largest)
    single = np.uint32(np.uint32(largest) << (shift & np.uint32(31))).view(np.float32)
    if factor is not None:
        single = np.float32(single * factor)
    return np.float64(single).view(np.int64)


@kernel
def _scale_code(largest: Any, infinity: Any, shift: Any, factor: Any, scaling: Any) -> Any:
    """The pattern of a block's largest magnitude -> its scale code. See `_scaling`."""
    carry, offset, _, nan_code = scaling
    exponent = np.int64(((_widest(largest, shift, factor) + carry) >> 52) + offset)
    code = np.int64(min(max(exponent, np.int64(0)), nan_code - 1))
    return np.uint8(nan_code if largest >= infinity else code)


@kernel
def _unscale(scale: Any, shift: Any, scaling: Any) -> Any:
    """A scale code -> one over its scale."""
    if shift is None:
        return power64(1023 + scaling[2] - np.int64(scale))
    return power32(127 + scaling[2] - np.int64(scale))


@kernel
def _scaled(pattern: Any, overflow: Any, shift: Any, factor: Any, unscale: Any) -> Any:
    """The pattern of a magnitude -> that of a float32 of the scaled magnitude, rounded to odd.

    Nothing is lost but far below the smallest element. overflow: float16's infinity, which comes out as
    2**16 otherwise; None where there is none.
    """
    if shift is None:
        wide = np.float64(np.float64(np.uint64(pattern).view(np.float64)) * unscale)
        exact = np.float64(wide).view(np.int64)
        odd = np.int64((exact >> 29) | ((exact & 0x1FFFFFFF) != 0)) - (896 << 23)
        return np.int32(min(max(odd, np.int64(0)), np.int64(0x7F800000)))
    single = np.uint32(np.uint32(pattern) << (shift & np.uint32(31))).view(np.float32)
    if factor is not None:
        single = np.float32(single * factor)
    if overflow is not None:
        single = np.float32(np.inf) if pattern >= overflow else single
    return np.float32(single * unscale).view(np.int32)


@kernel
def _largest(x: Any, start: Any, width: Any, mask: Any, shift: Any) -> Any:
    """The largest magnitude of a row's block, as a pattern."""
    if shift is None:
        largest64 = np.uint64(0)
        for k in range(width):
            largest64 = np.uint64(max(largest64, np.uint64(x[start + k] & mask)))
        return largest64
    largest = np.uint32(0)
    for k in range(width):
        largest = np.uint32(max(largest, np.uint32(x[start + k] & mask)))
    return largest


@kernel
def _largest_but(x: Any, start: Any, width: Any, mask: Any, left_out: Any, largest: Any) -> Any:
    """The same without the elements of one magnitude."""
    found = largest ^ largest
    for k in range(width):
        magnitude = x[start + k] & mask
        if magnitude != left_out:
            found = max(found, magnitude)
    return found


@kernel
def _quantize_in_rows(
    begin: int,
    end: int,
    x: Any,
    sizes: Any,
    source: Any,
    shift: Any,
    factor: Any,
    scaling: Any,
    form: Any,
    codes: Any,
    scales: Any,
) -> None:
    """Blocks begin … end along the last axis, every one by itself."""
    length, _, block = sizes
    mask, left_out, infinity, overflow = source
    per_row = (length + block - 1) // block
    first = begin % per_row * block
    # Unsigned indices: signed ones are asked whether they count from the end.
    start = np.uint64(begin // per_row * length + first)
    # The scales of some blocks and then their codes: two short loops overlap better than one long.
    for left in range(begin, end, TOGETHER):
        right = min(left + TOGETHER, end)
        k, at = first, start
        for n in range(left, right):
            width = np.uint64(min(block, length - k))
            largest = np.uint64(_largest(x, at, width, mask, shift))
            if largest >= left_out:
                largest = np.uint64(_largest_but(x, at, width, mask, left_out, largest))
            scales[n] = _scale_code(largest, infinity, shift, factor, scaling)
            at += width
            k += block
            if k >= length:
                k = 0
        for n in range(left, right):
            width = np.uint64(min(block, length - first))
            scale = scales[n]
            if scale == scaling[3]:
                for i in range(width):
                    codes[start + i] = np.uint8(0)
            else:
                unscale = _unscale(scale, shift, scaling)
                for i in range(width):
                    pattern = x[start + i]
                    code = nearest_code(_scaled(pattern & mask, overflow, shift, factor, unscale), form)
                    codes[start + i] = signed_code(code, pattern > mask, form)
            start += width
            first += block
            if first >= length:
                first = 0


@kernel
def _quantize_in_strips(
    begin: int,
    end: int,
    x: Any,
    sizes: Any,
    source: Any,
    shift: Any,
    factor: Any,
    scaling: Any,
    form: Any,
    codes: Any,
    scales: Any,
) -> None:
    """Strips begin … end: up to STRIP blocks side by side, one step along K after another."""
    length, inner, block = sizes
    mask, left_out, infinity, overflow = source
    per_row = (length + block - 1) // block
    across = (inner + STRIP - 1) // STRIP
    largest = np.empty(STRIP, x.dtype)
    for n in range(begin, end):
        line = n // across
        left = (n - line * across) * STRIP
        width = np.uint64(min(STRIP, inner - left))
        outer = line // per_row
        first = (line - outer * per_row) * block
        at = np.uint64(line * inner + left)
        for i in range(width):
            largest[i] = 0
        for k in range(first, min(first + block, length)):
            start = np.uint64((outer * length + k) * inner + left)
            for i in range(width):
                found = x[start + i] & mask
                largest[i] = max(largest[i], mask & ~mask if found == left_out else found)
        for i in range(width):
            scales[at + i] = _scale_code(largest[i], infinity, shift, factor, scaling)
        for k in range(first, min(first + block, length)):
            start = np.uint64((outer * length + k) * inner + left)
            for i in range(width):
                scale = scales[at + i]
                pattern = mask & ~mask if scale == scaling[3] else x[start + i]
                scaled = _scaled(pattern & mask, overflow, shift, factor, _unscale(scale, shift, scaling))
                codes[start + i] = signed_code(nearest_code(scaled, form), pattern > mask, form)


def _quantize_stochastic(
    x: NDArray[Any],
    axis: int,
    options: tuple[BlockFormat, ScaleRule, Rounding, Nonfinite],
    key: np.uint64,
    index: NDArray[np.uint64],
    codes: Codes,
    scales: Codes,
) -> None:
    """A tile of reals and the index of each element -> codes and scales."""
    fmt, rule, rounding, nonfinite = options
    infinity = PATTERNS[np.dtype(np.float64)][1]
    share_out(
        _quantize_drawn,
        scales.size,
        np.ascontiguousarray(to_float64(x)).reshape(-1),
        sizes_of(x.shape, axis, fmt.block),
        np.int64(infinity if nonfinite == "saturate" else -1),
        (*_scaling(fmt, rule), np.int64(fmt.scale.nan_code)),
        starts(fmt.element, rounding),
        fmt.element.magnitudes,
        fmt.element.negated,
        key,
        index.reshape(-1),
        codes.reshape(-1),
        scales.reshape(-1),
        grain=GRAIN // fmt.block,
    )


@kernel
def _quantize_drawn(
    begin: int,
    end: int,
    x: Any,
    sizes: Any,
    left_out: Any,
    scaling: Any,
    starts: Any,
    magnitudes: Any,
    negated: Any,
    key: Any,
    index: Any,
    codes: Any,
    scales: Any,
) -> None:
    """Stochastic rounding of float64: every block by itself, one search and one draw per element."""
    length, inner, block = sizes
    per_row = (length + block - 1) // block
    for n in range(begin, end):
        line = n // inner
        outer = line // per_row
        first = (line - outer * per_row) * block
        last = min(first + block, length)
        start = (outer * length) * inner + (n - line * inner)
        _block_drawn(
            x, start, inner, first, last, left_out, scaling, starts, magnitudes, negated, key, index, codes,
            scales, n,
        )  # fmt: skip


@kernel
def _block_drawn(
    x: Any,
    start: Any,
    inner: Any,
    first: Any,
    last: Any,
    left_out: Any,
    scaling: Any,
    starts: Any,
    magnitudes: Any,
    negated: Any,
    key: Any,
    index: Any,
    codes: Any,
    scales: Any,
    n: Any,
) -> None:
    infinity = np.int64(0x7FF << 52)
    largest = np.int64(0)
    for k in range(first, last):
        found = np.float64(abs(x[start + k * inner])).view(np.int64)
        if found != left_out:
            largest = max(largest, found)
    scale = _scale_code(largest, infinity, None, None, scaling)
    scales[n] = scale
    unscale = _unscale(scale, None, scaling) if largest < infinity else 0.0
    for k in range(first, last):
        at = start + k * inner
        if largest >= infinity:
            codes[at] = 0
            continue
        scaled = x[at] * unscale
        magnitude = abs(scaled)
        code = count_starts(magnitude, starts)
        if code < starts.size and goes_up(
            magnitude, magnitudes[code], magnitudes[code + 1], draw(key, np.uint64(index[at]))
        ):
            code += 1
        codes[at] = negated[code] if math.copysign(1.0, scaled) < 0 else code
