# SPDX-License-Identifier: Apache-2.0
"""Twins of `mxfp.blocks`: quantize and dequantize for formats whose scale is a power of two.

Kernels read and write patterns, unsigned integers of the width of the floats, so that float16 and
bfloat16 need no type of their own. They see an array as (outer, K, inner), contiguous: in rows where the
blocks lie along the last axis in memory, and in strips, across many blocks at once, where they do not.
Whatever is not contiguous goes through them one tile at a time.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..blocks import Nonfinite, blocks_along, element_index, tiles
from ..encode import Rounding, starts
from ..floats import BFLOAT16, NAN_BITS, to_float64
from ..formats import BlockFormat, Codes, ElementFormat, ScaleRule, Specials
from ..scale import step_up
from ._jit import kernel
from .encode import count_starts, draw, encoding, goes_up, nearest_code, negation, signed_code
from .threads import spread

TILE: Final = 1 << 20
"""Elements that are copied at a time on the way to or from a layout that is not contiguous."""
GRAIN: Final = 1 << 16
"""Elements that are worth a thread."""
TOGETHER: Final = 64
"""Blocks whose scales are found before their codes."""
STRIP: Final = 256
"""Blocks that lie side by side and are worked on together."""

_MASKS: Final = {
    np.dtype(np.float16): (0x7FFF, 0x7C00, 13, np.float32(2.0**112)),
    BFLOAT16: (0x7FFF, 0x7F80, 16, np.float32(1)),
    np.dtype(np.float32): (0x7FFFFFFF, 0x7F800000, 0, None),
    np.dtype(np.float64): ((1 << 63) - 1, 0x7FF << 52, None, None),
}
"""Patterns of each dtype: the bits of a magnitude; infinity; and how a magnitude becomes a float32, which
is shifted and then multiplied. None: not multiplied; not to become one."""


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
    if not codes.size:
        return codes, scales
    options = (fmt, rule, rounding, nonfinite)
    if key is None and x.dtype in _MASKS and _together(x, codes, scales):
        order = _memory_order(x)
        inside = [a.transpose(order) for a in (x, codes, scales)]
        _quantize(inside[0], inside[1], inside[2], order.index(axis), options)
        return codes, scales
    for place, scale_place in tiles(x.shape, axis, fmt.block, TILE):
        piece = _widened(x[place])
        with _Target(codes[place]) as some_codes, _Target(scales[scale_place]) as some_scales:
            if key is None:
                _quantize(piece, some_codes, some_scales, axis, options)
            else:
                index = element_index(x.shape, place)
                _quantize_stochastic(piece, axis, options, key, index, some_codes, some_scales)
    return codes, scales


class _Target:
    """A part of an array that a kernel can write to: the part itself if it is contiguous, or a copy."""

    def __init__(self, part: NDArray[Any]) -> None:
        self.part = part
        usable = part.flags.c_contiguous and part.flags.aligned and part.dtype.isnative
        self.written = part if usable else np.empty(part.shape, part.dtype.newbyteorder("="))

    def __enter__(self) -> NDArray[Any]:
        return self.written

    def __exit__(self, *_: object) -> None:
        if self.written is not self.part:
            self.part[...] = self.written


def _memory_order(x: NDArray[Any]) -> list[int]:
    """The axes of an array from the longest stride to the shortest."""
    return sorted(range(x.ndim), key=lambda axis: (-abs(x.strides[axis]), axis))


def _together(*arrays: NDArray[Any]) -> bool:
    """Whether arrays are contiguous, and kernels can read them, in the memory order of the first."""
    order = _memory_order(arrays[0])
    return all(a.transpose(order).flags.c_contiguous and a.flags.aligned and a.dtype.isnative for a in arrays)


def _widened(x: NDArray[Any]) -> NDArray[Any]:
    """A tile -> contiguous, integers as the smaller of float32 and float64 that is exact or odd."""
    if x.dtype.kind in "iu":
        return np.ascontiguousarray(x.astype(np.float32) if x.dtype.itemsize < 4 else to_float64(x))
    return np.require(x, x.dtype.newbyteorder("="), ["C", "A"])


def _patterns(x: NDArray[Any]) -> NDArray[Any]:
    """A contiguous array -> its bytes as one row of unsigned integers, read-only."""
    flat: NDArray[Any] = x.reshape(-1).view(f"u{x.dtype.itemsize}")
    flat.flags.writeable = False
    return flat


def _sizes(shape: tuple[int, ...], axis: int, block: int) -> tuple[int, int, int]:
    """K, inner (elements from one along the axis to the next) and the block size."""
    return shape[axis], math.prod(shape[axis + 1 :]), block


def _cuts(rows: Any, strips: Any, sizes: tuple[int, int, int], scales: Codes) -> tuple[Any, int, int]:
    """The kernel for blocks or for strips of them, how many there are, and how many are worth a thread."""
    _, inner, block = sizes
    if inner == 1:
        return rows, scales.size, GRAIN // block
    across = -(-inner // STRIP)
    return strips, scales.size // inner * across, GRAIN // (block * min(inner, STRIP)) + 1


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
    patterns = _patterns(x)
    unsigned = patterns.dtype.type
    mask, infinity, shift, factor = _MASKS[x.dtype]
    top = np.iinfo(unsigned).max
    source = (unsigned(mask), unsigned(infinity if nonfinite == "saturate" else top), unsigned(infinity))
    sizes = _sizes(x.shape, axis, fmt.block)
    run, count, grain = _cuts(_quantize_in_rows, _quantize_in_strips, sizes, scales)
    with np.errstate(all="ignore"):  # of numpy's scalars, where there is no compiler
        spread(
            run,
            count,
            patterns,
            sizes,
            source,
            None if shift is None else np.uint32(shift),
            factor,
            (*_scaling(fmt, rule), np.int64(fmt.scale.nan_code)),
            encoding(fmt.element, starts(fmt.element, rounding)),
            codes.reshape(-1),
            scales.reshape(-1),
            grain=grain,
        )


@kernel
def _power32(field: Any) -> Any:
    """An exponent field of float32, 0 to 254 -> 2**(field - 127); 0 stands for 2**-127."""
    return np.int32(max(np.int32(np.int32(field) << 23), np.int32(0x400000))).view(np.float32)


@kernel
def _power64(field: Any) -> Any:
    """An exponent field of float64, 1 to 2046 -> 2**(field - 1023)."""
    return np.int64(np.int64(field) << 52).view(np.float64)


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
        return _power64(1023 + scaling[2] - np.int64(scale))
    return _power32(127 + scaling[2] - np.int64(scale))


@kernel
def _scaled(pattern: Any, shift: Any, factor: Any, unscale: Any) -> Any:
    """The pattern of a magnitude -> that of a float32 of the scaled magnitude, rounded to odd.

    Nothing is lost but far below the smallest element.
    """
    if shift is None:
        wide = np.float64(np.float64(np.uint64(pattern).view(np.float64)) * unscale)
        exact = np.float64(wide).view(np.int64)
        odd = np.int64((exact >> 29) | ((exact & 0x1FFFFFFF) != 0)) - (896 << 23)
        return np.int32(min(max(odd, np.int64(0)), np.int64(0x7F800000)))
    single = np.uint32(np.uint32(pattern) << (shift & np.uint32(31))).view(np.float32)
    if factor is not None:
        single = np.float32(single * factor)
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
    mask, left_out, infinity = source
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
                    code = nearest_code(_scaled(pattern & mask, shift, factor, unscale), form)
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
    mask, left_out, infinity = source
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
                scaled = _scaled(pattern & mask, shift, factor, _unscale(scale, shift, scaling))
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
    infinity = _MASKS[np.dtype(np.float64)][1]
    with np.errstate(all="ignore"):
        spread(
            _quantize_drawn,
            scales.size,
            np.ascontiguousarray(to_float64(x)).reshape(-1),
            _sizes(x.shape, axis, fmt.block),
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


# --- dequantize


def dequantize_rows(codes: Codes, scales: Codes, axis: int, fmt: BlockFormat, out: NDArray[Any]) -> None:
    """Codes (...) and scales -> values (...) in place, of out's dtype. See `mxfp.blocks._dequantize_rows`."""
    if not codes.size:
        return
    if _together(codes, scales, out):
        order = _memory_order(codes)
        _dequantize(
            codes.transpose(order), scales.transpose(order), order.index(axis), fmt, out.transpose(order)
        )
        return
    for place, scale_place in tiles(codes.shape, axis, fmt.block, TILE):
        with _Target(out[place]) as some:
            _dequantize(
                np.ascontiguousarray(codes[place]), np.ascontiguousarray(scales[scale_place]), axis, fmt, some
            )


def _decoding(element: ElementFormat) -> tuple[Any, ...]:
    """A format as the numbers that `_value` reads.

    Where the sign is; the negation; the shift that makes a magnitude's code the fraction of a float32; the
    first normal code; what puts the exponent right, at it and below; and the implicit one, taken away
    below. No subnormal float32 comes up on the way, which some machines are slow at.
    """
    exponent = 127 - element.bias
    return (
        np.int32(element.bits - 1),
        *negation(element),
        np.int32(23 - element.mantissa_bits),
        np.int32(1 << element.mantissa_bits),
        np.int32(exponent << 23),
        np.int32((exponent + 1) << 23),
        np.float32(2.0 ** (1 - element.bias)),
    )


def _specials(element: ElementFormat) -> tuple[np.int32, np.int32] | None:
    """The codes of infinity (0, which it never is, where there is none) and of the first NaN."""
    if element.specials is Specials.NONE:
        return None
    has_infinity = element.specials is Specials.IEEE
    last = element.magnitudes.size
    return np.int32(last * has_infinity), np.int32(last + has_infinity)


_NARROW: Final = {
    np.dtype(np.float16): (np.float32(2.0**-112), np.uint32(0x7C00 << 13), np.uint32(13)),
    BFLOAT16: (np.float32(1), np.uint32(0x7F80 << 16), np.uint32(16)),
}
"""How a float32 becomes a float of 16 bits: a factor between the biases, the pattern of infinity, and the
shift that rounds."""


def _dequantize(codes: Codes, scales: Codes, axis: int, fmt: BlockFormat, out: NDArray[Any]) -> None:
    """Contiguous codes and scales -> contiguous values."""
    sizes = _sizes(codes.shape, axis, fmt.block)
    run, count, grain = _cuts(_dequantize_in_rows, _dequantize_in_strips, sizes, scales)
    if sizes[1] > 1:  # every step along K is a strip
        count = count // blocks_along(sizes[0], sizes[2]) * sizes[0]
    bias = np.int64(fmt.scale.bias)
    with np.errstate(all="ignore"):
        spread(
            run,
            count,
            _patterns(codes),
            _patterns(scales),
            sizes,
            _decoding(fmt.element),
            _specials(fmt.element),
            (bias, np.uint8(fmt.scale.nan_code), NAN_BITS[out.dtype]),
            _NARROW.get(out.dtype),
            True if out.dtype == np.float64 else None,
            out.reshape(-1).view(f"u{out.dtype.itemsize}"),
            grain=grain,
        )


@kernel
def _factor(scale: Any, bias: Any, wide: Any) -> Any:
    """A scale code -> its scale, in float32 or float64."""
    if wide is None:
        return _power32(127 - bias + np.int64(scale))
    return _power64(1023 - bias + np.int64(scale))


@kernel
def _value(code: Any, factor: Any, form: Any, specials: Any, nan: Any, narrow: Any, wide: Any) -> Any:
    """A code and its scale -> the pattern of their product, rounded once."""
    sign_at, flip, plus, shift, first_normal, normal, below, implicit = form
    code = np.int32(code)
    negative = np.uint32(code >> (sign_at & 31))
    magnitude = np.int32((code ^ flip) + plus) if negative else code
    small = magnitude < first_normal
    pattern = np.int32(np.int32(magnitude << (shift & 31)) + (below if small else normal))
    element = np.float32(np.int32(pattern).view(np.float32) - (implicit if small else np.float32(0)))
    not_a_number = False
    if specials is not None:
        element = np.float32(np.inf) if magnitude == specials[0] and specials[0] else element
        not_a_number = magnitude >= specials[1]
    if wide is not None:
        exact = np.float64(np.float64(element) * factor)
        return (
            nan if not_a_number else np.uint64(np.uint64(negative) << 63 | np.float64(exact).view(np.uint64))
        )
    single = np.float32(element * factor)
    if narrow is None:
        bits = np.uint32(np.float32(single).view(np.uint32))
        return nan if not_a_number else np.uint32(np.uint32(negative << 31) | bits)
    between, infinity, cut = narrow
    # What the factor loses lies below half of the smallest float16 by far.
    bits = np.uint32(min(np.float32(single * between).view(np.uint32), infinity))
    kept = np.uint32(bits >> (cut & 31))
    half = np.uint32(np.uint32(1) << ((cut - 1) & 31))
    bits = np.uint32(np.uint32(bits + half - 1 + (kept & 1)) >> (cut & 31))
    return np.uint16(nan if not_a_number else np.uint32(np.uint32(negative << 15) | bits))


@kernel
def _dequantize_in_rows(
    begin: int,
    end: int,
    codes: Any,
    scales: Any,
    sizes: Any,
    form: Any,
    specials: Any,
    scale_form: Any,
    narrow: Any,
    wide: Any,
    out: Any,
) -> None:
    """Blocks begin … end along the last axis, every one by itself."""
    length, _, block = sizes
    bias, nan_code, nan = scale_form
    per_row = (length + block - 1) // block
    first = begin % per_row * block
    start = np.uint64(begin // per_row * length + first)
    for n in range(begin, end):
        width = np.uint64(min(block, length - first))
        scale = scales[n]
        if scale == nan_code:
            for k in range(width):
                out[start + k] = nan
        else:
            factor = _factor(scale, bias, wide)
            for k in range(width):
                out[start + k] = _value(codes[start + k], factor, form, specials, nan, narrow, wide)
        start += width
        first += block
        if first >= length:
            first = 0


@kernel
def _dequantize_in_strips(
    begin: int,
    end: int,
    codes: Any,
    scales: Any,
    sizes: Any,
    form: Any,
    specials: Any,
    scale_form: Any,
    narrow: Any,
    wide: Any,
    out: Any,
) -> None:
    """Strips begin … end: a step along K of up to STRIP blocks side by side."""
    length, inner, block = sizes
    bias, nan_code, nan = scale_form
    per_row = (length + block - 1) // block
    across = (inner + STRIP - 1) // STRIP
    for n in range(begin, end):
        line = n // across
        left = (n - line * across) * STRIP
        outer = line // length
        at = np.uint64((outer * per_row + (line - outer * length) // block) * inner + left)
        start = np.uint64(line * inner + left)
        for i in range(np.uint64(min(STRIP, inner - left))):
            scale = scales[at + i]
            value = _value(codes[start + i], _factor(scale, bias, wide), form, specials, nan, narrow, wide)
            out[start + i] = nan if scale == nan_code else value
