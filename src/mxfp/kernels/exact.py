# SPDX-License-Identifier: Apache-2.0
"""Twins of `Exact`: in float64 where it holds every sum, in a register of limbs where it does not."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from ..prepared import BLOCK, WIDTH
from . import tiles
from ._jit import kernel
from .assembly import HEIGHT
from .operands import (
    FAR,
    Factor,
    corners,
    panel_masks,
    panel_scales,
    panel_weights,
    store,
    unpack_panel,
    weigh,
)
from .plans import CHUNK
from .tiles import TILE

LIMB: Final = 30
"""Bits of one limb of the exact register; int64 leaves room to carry late."""
LIMB_MASK: Final = (1 << LIMB) - 1


@kernel
def row_ranges(tiles: int, groups: int, masks: Any, exponents: Any, low: Any, high: Any) -> None:
    """The smallest and largest exponent of a row that is not all zero, for each [tile][group]."""
    for n in range(tiles * groups):
        lowest = np.int32(FAR)
        highest = np.int32(-FAR)
        for row in range(HEIGHT):
            if masks[n * HEIGHT + row] != 0:
                lowest = min(lowest, exponents[n * HEIGHT + row])
                highest = max(highest, exponents[n * HEIGHT + row])
        low[n] = lowest
        high[n] = highest


@kernel
def panel_range(
    panels: Any, panel: int, first: int, count: int, stored: int, table: Any, masks: Any, low: Any, high: Any
) -> None:
    """Groups of a panel -> the smallest and largest exponent of a column that is not all zero there."""
    for g in range(count):
        at = ((panels.first + panel) * stored + first + g) // panels.per_scale * WIDTH
        assert at >= 0  # or indices could wrap, and LLVM would not vectorise
        lowest = np.int32(FAR)
        highest = np.int32(-FAR)
        for column in range(WIDTH):
            exponent = table[panels.scales[at + column]]
            alive = masks[g * WIDTH + column] != 0
            lowest = min(lowest, exponent if alive else np.int32(FAR))
            highest = max(highest, exponent if alive else np.int32(-FAR))
        low[g] = lowest
        high[g] = highest


@kernel
def exact_tasks(
    begin: int, end: int, tag: Any, rows: Any, low_a: Any, high_a: Any, panels: Any, exponent_table: Any,
    shape: Any, offset: int, kinds: Any, room: int, wide: Any, factor: Any, out: Any, edge: Any,
) -> None:  # fmt: skip
    """Exact in float64, where the exponents of a tile lie so close that nothing is rounded; else marked."""
    per_block = BLOCK // shape.group
    integers = np.empty(CHUNK * BLOCK * WIDTH, panels.table.dtype)
    words = integers.view(kinds.words.dtype)
    scales = np.empty(CHUNK * per_block * WIDTH, np.float64)
    masks = np.empty(CHUNK * per_block * WIDTH, np.uint32)
    state = np.empty(shape.tiles_per_task * TILE, np.float64)
    lowest = np.empty(shape.tiles_per_task, np.int32)
    highest = np.empty(shape.tiles_per_task, np.int32)
    low = np.empty(CHUNK * per_block, np.int32)
    high = np.empty(CHUNK * per_block, np.int32)
    for t in range(begin, end):
        panel, first, last = corners(t, shape)
        state[:] = 0
        lowest[:] = FAR
        highest[:] = -FAR
        for block in range(0, shape.blocks, CHUNK):
            count = min(CHUNK, shape.blocks - block)
            group, groups = block * per_block, count * per_block
            unpack_panel(tag, panels, panel, block, count, shape.blocks, integers)
            panel_scales(panels, panel, group, groups, shape.stored, scales)
            panel_masks(words, integers.itemsize, offset, shape.group, groups, masks)
            panel_range(panels, panel, group, groups, shape.stored, exponent_table, masks, low, high)
            for tile in range(first, last):
                at = tile * shape.stored + group
                down, up = lowest[tile - first], highest[tile - first]
                assert at >= 0  # or indices could wrap, and LLVM would not vectorise
                for g in range(groups):
                    down = min(down, low_a[at + g] + low[g])
                    up = max(up, high_a[at + g] + high[g])
                lowest[tile - first] = down
                highest[tile - first] = up
                if up - down <= room:
                    tiles.add_groups(
                        tag, rows.integers, at * HEIGHT * shape.group, rows.seeds, rows.scales, at * HEIGHT,
                        integers, 0, offset, scales, 0, shape.group, groups, state, (tile - first) * TILE,
                    )  # fmt: skip
        for tile in range(first, last):
            wide[panel * shape.tiles + tile] = highest[tile - first] - lowest[tile - first] > room
        store(state, panel, first, last, factor, out, edge)


@kernel
def limb_tasks(
    begin: int, end: int, tag: Any, rows: Any, panels: Any, shape: Any, offset: int, weights: Any, kinds: Any,
    lowest: int, size: int, shift: int, factor_a: int, factor_b: int, nearest: bool, places: Any, out: Any,
    edge: Any,
) -> None:  # fmt: skip
    """Exact for tiles whose exponents lie far apart: each output has a register as wide as all of them."""
    per_block = BLOCK // shape.group
    integers = np.empty(CHUNK * BLOCK * WIDTH, panels.table.dtype)
    scales = np.empty(CHUNK * per_block * WIDTH, np.int32)
    significands = np.ones(CHUNK * per_block * WIDTH, np.int32)
    sums = np.empty(TILE, kinds.sums.dtype)
    found = np.empty(TILE, kinds.found.dtype)
    limbs = np.empty((TILE, size), np.int64)
    results = np.empty(TILE, np.float64)
    one = Factor(1.0, False)
    for t in range(begin, end):
        panel = places[t] // shape.tiles
        tile = places[t] - panel * shape.tiles
        limbs[:] = 0
        for block in range(0, shape.blocks, CHUNK):
            count = min(CHUNK, shape.blocks - block)
            group, groups = block * per_block, count * per_block
            unpack_panel(tag, panels, panel, block, count, shape.blocks, integers)
            panel_scales(panels, panel, group, groups, shape.stored, scales)
            if weights.used:
                panel_weights(panels, panel, group, groups, shape.stored, weights.table, significands)
            for g in range(groups):
                at = (tile * shape.stored + group + g) * HEIGHT
                tiles.sums(
                    tag, rows.integers, at * shape.group, rows.seeds, at,
                    integers, g * shape.group * WIDTH, offset, shape.group, sums,
                )  # fmt: skip
                weigh(sums, weights.used, weights.rows, at, significands, g * WIDTH, found, 0)
                for n in range(TILE):
                    if found[n] != 0:
                        exponent = rows.scales[at + n // WIDTH] + scales[g * WIDTH + n % WIDTH]
                        add_limbs(found[n], exponent - lowest, limbs[n])
        for n in range(TILE):
            if factor_a != 1 or factor_b != 1:
                multiply_limbs(limbs[n], factor_a)
                multiply_limbs(limbs[n], factor_b)
            results[n] = round_limbs(lowest + shift, limbs[n], nearest)
        store(results, panel, tile, tile + 1, one, out, edge)


@kernel
def add_limbs(value: Any, shift: Any, limbs: Any) -> None:
    """Value * 2**shift into a register of limbs that carry late."""
    for part in range(2):
        piece = (value & LIMB_MASK) if part == 0 else value >> LIMB
        place = (shift + part * LIMB) // LIMB
        shifted = piece << (shift % LIMB)
        limbs[place] += shifted & LIMB_MASK
        limbs[place + 1] += shifted >> LIMB


@kernel
def multiply_limbs(limbs: Any, factor: int) -> None:
    """A register of limbs times an integer of at most 24 bits; the top limb keeps the sign."""
    carry = np.int64(0)
    for i in range(limbs.size - 1):
        value = limbs[i] + carry
        limbs[i] = value & LIMB_MASK
        carry = value >> LIMB
    limbs[limbs.size - 1] += carry
    for i in range(limbs.size):
        limbs[i] *= factor


@kernel
def round_limbs(exponent: Any, limbs: Any, nearest: bool) -> float:
    """A register of limbs * 2**exponent -> float64, nearest even or rounded to odd; changes the limbs."""
    sticky: Any = False
    carry = np.int64(0)
    for i in range(limbs.size):
        value = limbs[i] + carry
        limbs[i] = value & LIMB_MASK
        carry = value >> LIMB
    negative = carry < 0
    if negative:
        borrow = np.int64(1)
        for i in range(limbs.size):
            value = (limbs[i] ^ LIMB_MASK) + borrow
            limbs[i] = value & LIMB_MASK
            borrow = value >> LIMB
    top = limbs.size - 1
    while top > 1 and limbs[top] == 0:
        top -= 1
    # The top two limbs and as many bits of a third as make 62; what lies below is sticky.
    length = 0
    while limbs[top] >> length:
        length += 1
    total = (limbs[top] << LIMB) | limbs[top - 1]
    exponent += (top - 1) * LIMB
    if top > 1:
        take = min(62 - LIMB - length, LIMB)
        total = (total << take) | (limbs[top - 2] >> (LIMB - take))
        sticky = (limbs[top - 2] & ((np.int64(1) << (LIMB - take)) - 1)) != 0
        exponent -= take
        for i in range(top - 2):
            sticky = sticky or limbs[i] != 0
    keep = 54 if nearest else 53
    length = 0
    while total >> length:
        length += 1
    drop = max(length - keep, 0)
    sticky = sticky or (total & ((np.int64(1) << drop) - 1)) != 0
    total >>= drop
    if nearest:
        # One more bit than the result, then the sticky bit below it: rounding decided in integers.
        up = (total & 1) == 1 and length >= keep and (sticky or (total & 2) != 0)
        if length >= keep:
            total = (total >> 1) + (1 if up else 0)
            drop += 1
    elif sticky:
        total |= 1
    value = math.ldexp(np.float64(total), int(exponent + drop))
    return -value if negative else value
