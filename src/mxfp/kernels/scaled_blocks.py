# SPDX-License-Identifier: Apache-2.0
"""Twins of `mxfp.blocks` for scales that have mantissa bits and a tensor scale above them: NVFP4.

The code of an element, and of a scale, is how many ends of codes lie below its pattern, for which
`scaled_tables` has a table each. Stochastic rounding is in `scaled_drawn`, the way back in
`scaled_dequantize`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .. import scale
from ..blocks import Nonfinite, Place, element_index
from ..encode import Rounding, starts
from ..floats import to_float64
from ..formats import BlockFormat, Codes, ScaleRule
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
from .scaled_dequantize import dequantize_rows
from .scaled_drawn import quantize_drawn
from .scaled_tables import (
    STEPS,
    all_scales,
    ends_of_elements,
    ends_of_scales,
    scale_code,
    supports,
    working_type,
)

__all__ = ["dequantize_rows", "quantize_rows", "supports"]

WIDTH: Final = 16
"""Elements that are worked on at once in a row: as many as a block of NVFP4 has."""


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
    tables: dict[np.dtype[Any], tuple[Any, ...]] = {}

    def tables_for(dtype: np.dtype[Any]) -> tuple[Any, ...]:
        if dtype not in tables:
            ends = ends_of_scales(fmt, rule, tensor_scale, dtype)
            if key is None:
                tables[dtype] = ends, ends_of_elements(fmt, rounding, tensor_scale, dtype)
            else:
                tables[dtype] = (ends,)
        return tables[dtype]

    def run(piece: NDArray[Any], some: Codes, some_scales: Codes, axis: int, place: Place) -> None:
        given = piece if key is None else np.ascontiguousarray(to_float64(piece))
        sizes = sizes_of(piece.shape, axis, fmt.block)
        working = working_type(given.dtype)
        mask, infinity = (working(pattern) for pattern in PATTERNS[given.dtype])
        left_out = infinity if nonfinite == "saturate" else working(-1)
        fixed = (mask, left_out, np.uint8(fmt.scale.nan_code), np.uint8(fmt.element.code_count // 2))
        signed = patterns(given).view(f"i{given.dtype.itemsize}")
        wide = True if working is np.int64 else None
        before = (signed, sizes, fixed, wide, *tables_for(given.dtype))
        after = (some.reshape(-1), some_scales.reshape(-1))
        if key is None:
            work, count, grain = cuts(_quantize_in_rows, _quantize_in_strips, sizes, some_scales)
            share_out(work, count, *before, *after, grain=grain)
        else:
            factors = scale.scale_factors(all_scales(fmt), fmt.scale, tensor_scale)
            element = (factors, starts(fmt.element, rounding), fmt.element.magnitudes)
            index = element_index(x.shape, place).reshape(-1)
            grain = GRAIN // fmt.block
            share_out(quantize_drawn, some_scales.size, *before, *element, key, index, *after, grain=grain)

    quantize_in_tiles(run, x, axis, fmt.block, codes, scales, whole=key is None)
    return codes, scales


@kernel
def _magnitude(pattern: Any, mask: Any, wide: Any) -> Any:
    """A pattern without its sign, in the integers that it is compared in."""
    if wide is None:
        return np.int32(np.int32(pattern) & mask)
    return np.int64(pattern & mask)


@kernel
def _ends_at(ends: Any, at: Any, stride: Any) -> Any:
    """The STEPS ends from `at` on, one every stride."""
    two, four = stride + stride, stride + stride + stride + stride
    return (
        ends[at],
        ends[at + stride],
        ends[at + two],
        ends[at + two + stride],
        ends[at + four],
        ends[at + four + stride],
        ends[at + four + two],
    )


@kernel
def _code(magnitude: Any, ends: Any) -> Any:
    """How many of STEPS ends lie below a pattern."""
    code = np.uint8(0)
    for end in ends:
        code = np.uint8(code + (magnitude > end))
    return code


@kernel
def _largest(x: Any, start: Any, width: Any, mask: Any, wide: Any) -> Any:
    """The largest magnitude of a row's block, as a pattern."""
    if wide is None:
        largest = np.int32(0)
        for k in range(width):
            largest = np.int32(max(largest, np.int32(np.int32(x[start + k]) & mask)))
        return largest
    largest64 = np.int64(0)
    for k in range(width):
        largest64 = np.int64(max(largest64, np.int64(x[start + k] & mask)))
    return largest64


@kernel
def _largest_but(x: Any, start: Any, width: Any, mask: Any, wide: Any, left_out: Any) -> Any:
    """The same without the elements of one magnitude."""
    largest = left_out ^ left_out
    for k in range(width):
        magnitude = _magnitude(x[start + k], mask, wide)
        if magnitude != left_out:
            largest = max(largest, magnitude)
    return largest


@kernel
def _encode_row(
    x: Any, start: Any, width: Any, mask: Any, wide: Any, ends: Any, at: Any, minus: Any, codes: Any
) -> None:
    """Elements of one block -> their codes, under the scale whose ends begin at `at`."""
    own = _ends_at(ends, at, np.uint64(1))
    for k in range(width):
        pattern = x[start + k]
        code = _code(_magnitude(pattern, mask, wide), own)
        codes[start + k] = np.uint8(code | (minus if pattern < 0 else np.uint8(0)))


@kernel
def _quantize_in_rows(
    begin: int,
    end: int,
    x: Any,
    sizes: Any,
    fixed: Any,
    wide: Any,
    ends_of_scales: Any,
    ends_of_elements: Any,
    codes: Any,
    scales: Any,
) -> None:
    """Blocks begin … end along the last axis, every one by itself."""
    length, _, block = sizes
    mask, left_out, nan_code, minus = fixed
    per_row = (length + block - 1) // block
    first = begin % per_row * block
    start = np.uint64(begin // per_row * length + first)
    largest = np.empty(TOGETHER, ends_of_scales.dtype)
    infinite = np.zeros(TOGETHER, np.uint8)
    for left in range(begin, end, TOGETHER):
        count = min(TOGETHER, end - left)
        k, at = first, start
        for n in range(count):
            width = np.uint64(min(block, length - k))
            if width == WIDTH:
                largest[n] = _largest(x, at, np.uint64(WIDTH), mask, wide)
            else:
                largest[n] = _largest(x, at, width, mask, wide)
            if left_out >= 0:
                infinite[n] = largest[n] >= left_out
                if infinite[n]:
                    largest[n] = _largest_but(x, at, width, mask, wide, left_out)
            at += width
            k += block
            if k >= length:
                k = 0
        for n in range(count):
            scales[left + n] = scale_code(largest[n], infinite[n], ends_of_scales)
        for n in range(left, left + count):
            width = np.uint64(min(block, length - first))
            ends = np.uint64(scales[n]) * np.uint64(STEPS)
            sign = np.uint8(0 if scales[n] == nan_code else minus)
            if width == WIDTH:
                _encode_row(x, start, np.uint64(WIDTH), mask, wide, ends_of_elements, ends, sign, codes)
            else:
                _encode_row(x, start, width, mask, wide, ends_of_elements, ends, sign, codes)
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
    fixed: Any,
    wide: Any,
    ends_of_scales: Any,
    ends_of_elements: Any,
    codes: Any,
    scales: Any,
) -> None:
    """Strips begin … end: up to STRIP blocks side by side, one step along K after another."""
    length, inner, block = sizes
    mask, left_out, nan_code, minus = fixed
    per_row = (length + block - 1) // block
    across = (inner + STRIP - 1) // STRIP
    largest = np.empty(STRIP, ends_of_scales.dtype)
    infinite = np.empty(STRIP, np.uint8)
    signs = np.empty(STRIP, np.uint8)
    ends = np.empty(STEPS * STRIP, ends_of_scales.dtype)
    for n in range(begin, end):
        line = n // across
        left = (n - line * across) * STRIP
        width = np.uint64(min(STRIP, inner - left))
        outer = line // per_row
        first = (line - outer * per_row) * block
        last = min(first + block, length)
        at = np.uint64(line * inner + left)
        for i in range(width):
            largest[i] = infinite[i] = 0
        for k in range(first, last):
            start = np.uint64((outer * length + k) * inner + left)
            for i in range(width):
                found = _magnitude(x[start + i], mask, wide)
                infinite[i] |= found == left_out
                largest[i] = max(largest[i], mask ^ mask if found == left_out else found)
        for i in range(width):
            code = scale_code(largest[i], infinite[i], ends_of_scales)
            scales[at + i] = code
            signs[i] = 0 if code == nan_code else minus
            for step in range(STEPS):
                ends[np.uint64(step * STRIP) + i] = ends_of_elements[np.int64(code) * STEPS + step]
        for k in range(first, last):
            start = np.uint64((outer * length + k) * inner + left)
            for i in range(width):
                pattern = x[start + i]
                code = _code(_magnitude(pattern, mask, wide), _ends_at(ends, i, np.uint64(STRIP)))
                codes[start + i] = np.uint8(code | (signs[i] if pattern < 0 else np.uint8(0)))
