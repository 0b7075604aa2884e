# SPDX-License-Identifier: Apache-2.0
"""Peaks: the second roof, operations a second on operands that registers or the first cache level hold."""

from __future__ import annotations

from typing import Final

import numpy as np

from ...blocks import quantize
from ...formats import BlockFormat
from ...kernels import isa, probes, vectors
from ...kernels.assembly import HEIGHT
from ...kernels.threads import PIECES, spread
from ...prepared import WIDTH
from ..throughput import Run

FLOAT32: Final = "float32 FMA"


def float32_peak(threads: int, *, operations: int) -> tuple[Run, int]:
    """Multiply-adds of float32 in registers on so many threads, and the operations of a call.

    operations: that a thread's piece of a call has, at least.
    """
    tag, pieces = isa.widest(), PIECES * threads
    each = 2 * vectors.sums_of(tag)
    times = max(operations // each, 1)
    found = np.zeros(pieces, np.float32)
    return lambda: spread(probes.multiply_adds, pieces, tag, times, found), pieces * times * each


def block_peak(fmt: BlockFormat, threads: int, *, k: int, operations: int) -> tuple[Run, int]:
    """The micro-kernel of a block format on one tile of K = k, and the operations of a call.

    Its operands lie in the first cache level, as integers; the scales and the additions are part of it.
    ValueError for a format without one.
    """
    rng = np.random.default_rng(0)
    sides = (quantize(rng.standard_normal((rows, k)), fmt) for rows in (HEIGHT, WIDTH))
    tile = probes.tile_of(*sides)
    if tile is None:
        raise ValueError(
            f"{fmt.name} has no micro-kernel that adds in float32, and so no peak to measure; quote one or "
            "leave it out"
        )
    pieces = PIECES * threads
    repeats = max(operations // (2 * tile.products), 1)
    found = np.zeros((pieces, HEIGHT * WIDTH), np.float32)
    done = pieces * repeats * 2 * tile.products
    return lambda: spread(probes.add_tiles, pieces, *tile, repeats, found), done
