# SPDX-License-Identifier: Apache-2.0
"""Twin of `mxfp.blocks.dequantize` for formats whose scale is a power of two.

An element is put together as a float32 from its bits; its product with the scale is the only arithmetic.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..blocks import blocks_along
from ..floats import BFLOAT16, NAN_BITS
from ..formats import BlockFormat, Codes, ElementFormat, Specials
from ._jit import kernel
from .arrays import STRIP, cuts, dequantize_in_tiles, patterns, share_out, sizes_of
from .encode import negation


def dequantize_rows(
    codes: Codes, scales: Codes, axis: int, fmt: BlockFormat, tensor_scale: float, out: NDArray[Any]
) -> None:
    """Codes (...) and scales -> values (...) in place, of out's dtype. See `mxfp.blocks._dequantize_rows`."""

    def run(some: Codes, some_scales: Codes, values: NDArray[Any], axis: int) -> None:
        _dequantize(some, some_scales, axis, fmt, values)

    dequantize_in_tiles(run, codes, scales, axis, fmt.block, out)


def decoding(element: ElementFormat) -> tuple[Any, ...]:
    """A format as the numbers that `value_of` reads.

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


def specials_of(element: ElementFormat) -> tuple[np.int32, np.int32] | None:
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
    sizes = sizes_of(codes.shape, axis, fmt.block)
    run, count, grain = cuts(_dequantize_in_rows, _dequantize_in_strips, sizes, scales)
    if sizes[1] > 1:  # every step along K is a strip
        count = count // blocks_along(sizes[0], sizes[2]) * sizes[0]
    bias = np.int64(fmt.scale.bias)
    share_out(
        run,
        count,
        patterns(codes),
        patterns(scales),
        sizes,
        decoding(fmt.element),
        specials_of(fmt.element),
        (bias, np.uint8(fmt.scale.nan_code), NAN_BITS[out.dtype]),
        _NARROW.get(out.dtype),
        True if out.dtype == np.float64 else None,
        out.reshape(-1).view(f"u{out.dtype.itemsize}"),
        grain=grain,
    )


@kernel
def power32(field: Any) -> Any:
    """An exponent field of float32, 0 to 254 -> 2**(field - 127); 0 stands for 2**-127."""
    return np.int32(max(np.int32(np.int32(field) << 23), np.int32(0x400000))).view(np.float32)


@kernel
def power64(field: Any) -> Any:
    """An exponent field of float64, 1 to 2046 -> 2**(field - 1023)."""
    return np.int64(np.int64(field) << 52).view(np.float64)


@kernel
def factor_of(scale: Any, bias: Any, wide: Any) -> Any:
    """A scale code -> its scale, in float32 or float64."""
    if wide is None:
        return power32(127 - bias + np.int64(scale))
    return power64(1023 - bias + np.int64(scale))


@kernel
def value_of(code: Any, factor: Any, form: Any, specials: Any, nan: Any, narrow: Any, wide: Any) -> Any:
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
            factor = factor_of(scale, bias, wide)
            for k in range(width):
                out[start + k] = value_of(codes[start + k], factor, form, specials, nan, narrow, wide)
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
            value = value_of(
                codes[start + i], factor_of(scale, bias, wide), form, specials, nan, narrow, wide
            )
            out[start + i] = nan if scale == nan_code else value
