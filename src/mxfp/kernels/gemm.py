# SPDX-License-Identifier: Apache-2.0
"""Twins of `mxfp.matmul` where micro-kernels end with the accumulator: GEMM and GEMV.

A task is a panel by some tiles; each kernel does the tasks from begin to end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..prepared import BLOCK, WIDTH
from . import tiles
from ._jit import kernel
from .assembly import HEIGHT
from .operands import corners, panel_scales, store, unpack_panel
from .plans import CHUNK
from .threads import take
from .tiles import TILE


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

    height is a tuple as long as there are rows.
    """
    state = np.empty(len(height) * WIDTH, np.float32)
    first = take(turns, step)
    while first < count:
        for panel in range(first, min(first + step, count)):
            place = panels.first + panel
            state[:] = 0
            tiles.gemv(
                tag, height, shape.group, rows.integers, rows.seeds, rows.scales,
                panels.codes, place * shape.blocks * panels.codes_per_block,
                panels.scales, place * (shape.stored // panels.per_scale) * WIDTH,
                shape.stored, panels.constants, state,
            )  # fmt: skip
            store(state, panel, 0, 1, factor, out, edge)
        first = take(turns, step)
