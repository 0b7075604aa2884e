# SPDX-License-Identifier: Apache-2.0
"""Twins of `mxfp.matmul` where micro-kernels end with the accumulator: GEMM and GEMV.

A task is a panel by some tiles; each kernel does the tasks from begin to end.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..prepared import BLOCK, WIDTH
from . import tiles
from ._jit import kernel
from .assembly import HEIGHT
from .operands import Edge, corners, panel_scales, store, unpack_panel
from .plans import CHUNK
from .threads import take
from .tiles import TILE

GROUPS: Final = 512
"""Groups of a panel that all rows go through in turn: 256 kB of nibbles where a group is 32."""


@kernel
def float_tasks(
    begin: int,
    end: int,
    tag: Any,
    rows: Any,
    panels: Any,
    shape: Any,
    offset: int,
    factor: Any,
    out: Any,
    edge: Any,
) -> None:
    """Sequential in the dtype of the scales: micro-kernels add every term."""
    per_block = BLOCK // shape.group
    integers = np.empty(CHUNK * BLOCK * WIDTH, panels.table.dtype)
    scales = np.empty(CHUNK * per_block * WIDTH, panels.values.dtype)
    state = np.empty(shape.tiles_per_task * TILE, out.dtype)
    for t in range(begin, end):
        panel, first, last = corners(t, shape)
        state[:] = 0
        for block in range(0, shape.blocks, CHUNK):
            count = min(CHUNK, shape.blocks - block)
            group = block * per_block
            unpack_panel(tag, panels, panel, block, count, shape.blocks, integers)
            panel_scales(panels, panel, group, count * per_block, shape.stored, scales)
            for tile in range(first, last):
                at = (tile * shape.stored + group) * HEIGHT
                tiles.add_groups(
                    tag, rows.integers, at * shape.group, rows.seeds, rows.scales, at, integers, 0, offset,
                    scales, 0, shape.group, count * per_block, state, (tile - first) * TILE,
                )  # fmt: skip
        store(state, panel, first, last, factor, out, edge)


@kernel
def gemv_tasks(
    turns: Any, count: int, step: int, tag: Any, rows: Any, panels: Any, shape: Any, height: Any,
    factor: Any, out: Any, edge: Any,
) -> None:  # fmt: skip
    """A few rows by panels of nibbles, some of which are taken at a turn, until all `count` are done.

    height is a tuple as long as a tile has rows. Where there are several tiles, all go through some groups of
    a panel, which stay in the cache, before the next are read.
    """
    size = len(height) * WIDTH
    state = np.empty(shape.tiles * size, np.float32)
    first = take(turns, step)
    while first < count:
        for panel in range(first, min(first + step, count)):
            codes_at = (panels.first + panel) * shape.blocks * panels.codes_per_block
            scales_at = (panels.first + panel) * shape.stored * WIDTH
            state[:] = 0
            for group in range(0, shape.stored, GROUPS):
                for tile in range(shape.tiles):
                    tiles.gemv(
                        tag, height, shape.group, rows.integers, rows.seeds, rows.scales,
                        (tile * shape.stored + group) * len(height),
                        panels.codes, codes_at + group * shape.group * WIDTH // 2,
                        panels.scales, scales_at + group * WIDTH,
                        min(GROUPS, shape.stored - group), panels.constants, state, tile * size,
                    )  # fmt: skip
            for tile in range(shape.tiles):
                top = edge.row + tile * len(height)
                part = Edge(top, edge.column, min(top + len(height), edge.rows), edge.columns)
                store(state[tile * size :], panel, 0, 1, factor, out, part)
        first = take(turns, step)
