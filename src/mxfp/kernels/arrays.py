# SPDX-License-Identifier: Apache-2.0
"""Arrays as the kernels of blocks see them: contiguous, (outer, K, inner), and as patterns.

Kernels read and write patterns, integers of the width of the floats, so that float16 and bfloat16 need
no type of their own. They work in rows where the blocks lie along the last axis in memory, and in strips,
across many blocks at once, where they do not. Whatever is not contiguous goes through them one tile at a
time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..blocks import tiles
from ..floats import BFLOAT16, to_float64
from ..formats import Codes
from .threads import spread

TILE: Final = 1 << 20
"""Elements that are copied at a time on the way to or from a layout that is not contiguous."""
GRAIN: Final = 1 << 16
"""Elements that are worth a thread."""
TOGETHER: Final = 64
"""Blocks whose scales are found before their codes."""
STRIP: Final = 256
"""Blocks that lie side by side and are worked on together."""

PATTERNS: Final = {
    np.dtype(np.float16): (0x7FFF, 0x7C00),
    BFLOAT16: (0x7FFF, 0x7F80),
    np.dtype(np.float32): (0x7FFFFFFF, 0x7F800000),
    np.dtype(np.float64): ((1 << 63) - 1, 0x7FF << 52),
}
"""Patterns of each dtype: the bits of a magnitude, and infinity."""


def quantize_in_tiles(
    run: Callable[..., None],
    x: NDArray[Any],
    axis: int,
    block: int,
    codes: Codes,
    scales: Codes,
    *,
    whole: bool,
) -> None:
    """run(x, codes, scales, axis, place) on contiguous arrays: at once if `whole` and they are, or in tiles.

    place: where the tile lies in x, in C order; of no meaning if it is not one.
    """
    if not codes.size:
        return
    if whole and x.dtype in PATTERNS and together(x, codes, scales):
        order = memory_order(x)
        run(*(a.transpose(order) for a in (x, codes, scales)), order.index(axis), ())
        return
    for place, scale_place in tiles(x.shape, axis, block, TILE):
        piece = _widened(x[place])
        with _Target(codes[place]) as some_codes, _Target(scales[scale_place]) as some_scales:
            run(piece, some_codes, some_scales, axis, place)


def dequantize_in_tiles(
    run: Callable[..., None], codes: Codes, scales: Codes, axis: int, block: int, out: NDArray[Any]
) -> None:
    """run(codes, scales, out, axis) on contiguous arrays: at once if they are, or in tiles."""
    if not codes.size:
        return
    if together(codes, scales, out):
        order = memory_order(codes)
        run(*(a.transpose(order) for a in (codes, scales, out)), order.index(axis))
        return
    for place, scale_place in tiles(codes.shape, axis, block, TILE):
        with _Target(out[place]) as some:
            run(np.ascontiguousarray(codes[place]), np.ascontiguousarray(scales[scale_place]), some, axis)


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


def memory_order(x: NDArray[Any]) -> list[int]:
    """The axes of an array from the longest stride to the shortest."""
    return sorted(range(x.ndim), key=lambda axis: (-abs(x.strides[axis]), axis))


def together(*arrays: NDArray[Any]) -> bool:
    """Whether arrays are contiguous, and kernels can read them, in the memory order of the first."""
    order = memory_order(arrays[0])
    return all(a.transpose(order).flags.c_contiguous and a.flags.aligned and a.dtype.isnative for a in arrays)


def _widened(x: NDArray[Any]) -> NDArray[Any]:
    """A tile -> contiguous, integers as the smaller of float32 and float64 that is exact or odd."""
    if x.dtype.kind in "iu":
        return np.ascontiguousarray(x.astype(np.float32) if x.dtype.itemsize < 4 else to_float64(x))
    return np.require(x, x.dtype.newbyteorder("="), ["C", "A"])


def patterns(x: NDArray[Any]) -> NDArray[Any]:
    """A contiguous array -> its bytes as one row of unsigned integers, read-only."""
    flat: NDArray[Any] = x.reshape(-1).view(f"u{x.dtype.itemsize}")
    flat.flags.writeable = False
    return flat


def sizes_of(shape: tuple[int, ...], axis: int, block: int) -> tuple[int, int, int]:
    """K, inner (elements from one along the axis to the next) and the block size."""
    return shape[axis], math.prod(shape[axis + 1 :]), block


def cuts(rows: Any, strips: Any, sizes: tuple[int, int, int], scales: Codes) -> tuple[Any, int, int]:
    """The kernel for blocks or for strips of them, how many there are, and how many are worth a thread."""
    _, inner, block = sizes
    if inner == 1:
        return rows, scales.size, GRAIN // block
    across = -(-inner // STRIP)
    return strips, scales.size // inner * across, GRAIN // (block * min(inner, STRIP)) + 1


def share_out(run: Callable[..., Any], count: int, *arguments: Any, grain: int) -> None:
    """`threads.spread` without numpy's warnings."""
    with np.errstate(all="ignore"):  # of numpy's scalars, where there is no compiler
        spread(run, count, *arguments, grain=grain)
