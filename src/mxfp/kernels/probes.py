# SPDX-License-Identifier: Apache-2.0
"""Probes: kernels that do one thing as fast as this machine can, for measuring its roofs.

Reading memory, float32 multiply-adds in registers, and the micro-kernel of block products on operands
that stay in the first cache level. Each runs pieces of work, for `threads.spread`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from ..accumulate import Sequential
from ..blocks import BlockArray
from ..matmul import Side
from ..prepared import BLOCK, WIDTH, prepare
from . import tiles, vectors
from ._jit import kernel
from .assembly import HEIGHT
from .matmul import Work
from .operands import panel_scales, unpack_panel
from .plans import SINGLE, plan
from .tiles import TILE

READ_UNIT: Final = 8 * vectors.BLOCK_WORDS
"""Bytes that are read at a time."""


@kernel
def read(
    begin: int, end: int, tag: Any, words: Any, pieces: int, repeats: int, ahead: int, found: Any
) -> None:
    """Pieces of `words` (uint64), read `repeats` times each; all bits that a piece has go to found[piece].

    ahead: bytes that are asked for in advance, 0 to leave that to the machine.
    """
    blocks = words.size // vectors.BLOCK_WORDS
    for piece in range(begin, end):
        first = piece * blocks // pieces
        count = (piece + 1) * blocks // pieces - first
        bits = np.uint64(0)
        for _ in range(repeats):
            bits |= vectors.read(tag, words, first, count, ahead)
        found[piece] = bits


@kernel
def multiply_adds(begin: int, end: int, tag: Any, times: int, found: Any) -> None:
    """`times` additions of 0.5 * 2 to each of `vectors.sums_of(tag)` float32 sums; their total, by piece."""
    for piece in range(begin, end):
        found[piece] = vectors.multiply_adds(tag, times, np.float32(0.5), np.float32(2))


class Tile(NamedTuple):
    """Operands of one tile as the micro-kernel reads them, and what goes with them."""

    tag: Any
    rows: Any
    integers: Any
    scales: Any
    group: int
    groups: int
    offset: int

    @property
    def products(self) -> int:
        """Products of the tile, all groups."""
        return TILE * self.group * self.groups


def tile_of(a: BlockArray, b: BlockArray) -> Tile | None:
    """(HEIGHT, K) times (WIDTH, K) of one format, blocks along K -> the operands of its micro-kernel.

    None where the format has none that adds in float32.
    """
    accumulator = Sequential("float32")
    chosen = plan(a.format, b.format, accumulator)
    if chosen is None or not chosen.vectors or chosen.state != SINGLE:
        return None
    right = prepare(b.T)
    out = np.empty((HEIGHT, WIDTH), np.float32)
    work = Work(chosen, Side(a.codes, a.scales, a.format, a.tensor_scale), right, accumulator, out)
    rows, panels = work.floats(slice(0, HEIGHT), slice(0, WIDTH), (right.codes, right.scales, 0))
    blocks = work.blocks
    integers = np.empty(blocks * BLOCK * WIDTH, panels.table.dtype)
    scales = np.empty(work.stored * WIDTH, panels.values.dtype)
    unpack_panel(work.tag, panels, 0, 0, blocks, blocks, integers)
    panel_scales(panels, 0, 0, work.stored, work.stored, scales)
    return Tile(work.tag, rows, integers, scales, chosen.group, work.stored, chosen.kind.offset)


@kernel
def add_tiles(
    begin: int, end: int, tag: Any, rows: Any, integers: Any, scales: Any, group: int, groups: int,
    offset: int, repeats: int, found: Any,
) -> None:  # fmt: skip
    """`repeats` times all groups of a Tile, from zero each time; the last result to found[piece]."""
    state = np.empty(TILE, np.float32)
    for piece in range(begin, end):
        for _ in range(repeats):
            state[:] = 0
            tiles.add_groups(
                tag, rows.integers, 0, rows.seeds, rows.scales, 0, integers, 0, offset, scales, 0, group,
                groups, state, 0,
            )  # fmt: skip
        found[piece] = state
