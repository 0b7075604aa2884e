# SPDX-License-Identifier: Apache-2.0
"""Twin of `mxfp.blocks.dequantize` for scales that have mantissa bits: what a code is worth is looked up."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..blocks import blocks_along
from ..formats import BlockFormat, Codes
from ._jit import kernel
from .arrays import STRIP, cuts, dequantize_in_tiles, patterns, share_out, sizes_of
from .scaled_tables import values_of

WIDTH: Final = 16
"""Elements that are looked up at once in a row: as many as a block of NVFP4 has."""


def dequantize_rows(
    codes: Codes, scales: Codes, axis: int, fmt: BlockFormat, tensor_scale: float, out: NDArray[Any]
) -> None:
    """Codes (...) and scales -> values (...) in place, of out's dtype. See `mxfp.blocks._dequantize_rows`."""
    values = values_of(fmt, tensor_scale, out.dtype.newbyteorder("="))

    def run(some: Codes, some_scales: Codes, out: NDArray[Any], axis: int) -> None:
        sizes = sizes_of(some.shape, axis, fmt.block)
        work, count, grain = cuts(_dequantize_in_rows, _dequantize_in_strips, sizes, some_scales)
        if sizes[1] > 1:  # every step along K is a strip
            count = count // blocks_along(sizes[0], sizes[2]) * sizes[0]
        bits = out.reshape(-1).view(f"u{out.dtype.itemsize}")
        share_out(
            work,
            count,
            patterns(some),
            patterns(some_scales),
            sizes,
            patterns(values),
            fmt.element.code_count,
            bits,
            grain=grain,
        )

    dequantize_in_tiles(run, codes, scales, axis, fmt.block, out)


@kernel
def _dequantize_in_rows(
    begin: int, end: int, codes: Any, scales: Any, sizes: Any, values: Any, count: Any, out: Any
) -> None:
    """Blocks begin … end along the last axis, every one by itself."""
    length, _, block = sizes
    per_row = (length + block - 1) // block
    first = begin % per_row * block
    start = np.uint64(begin // per_row * length + first)
    for n in range(begin, end):
        width = np.uint64(min(block, length - first))
        at = np.uint64(scales[n]) * np.uint64(count)
        if width == WIDTH:
            for k in range(np.uint64(WIDTH)):
                out[start + k] = values[at + np.uint64(codes[start + k])]
        else:
            for k in range(width):
                out[start + k] = values[at + np.uint64(codes[start + k])]
        start += width
        first += block
        if first >= length:
            first = 0


@kernel
def _dequantize_in_strips(
    begin: int, end: int, codes: Any, scales: Any, sizes: Any, values: Any, count: Any, out: Any
) -> None:
    """Strips begin … end: a step along K of up to STRIP blocks side by side."""
    length, inner, block = sizes
    per_row = (length + block - 1) // block
    across = (inner + STRIP - 1) // STRIP
    for n in range(begin, end):
        line = n // across
        left = (n - line * across) * STRIP
        outer = line // length
        at = np.uint64((outer * per_row + (line - outer * length) // block) * inner + left)
        start = np.uint64(line * inner + left)
        for i in range(np.uint64(min(STRIP, inner - left))):
            out[start + i] = values[
                np.uint64(scales[at + i]) * np.uint64(count) + np.uint64(codes[start + i])
            ]
