# SPDX-License-Identifier: Apache-2.0
"""Twins of `mxfp.accumulate` and `mxfp.registers`, for the accumulators that no micro-kernel ends with.

They take a step of a tile at a time. The type of the argument `how`, one of the tags of `plans`, decides
which is compiled.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba.extending import overload

from ..dot import OVERFLOWS
from ..prepared import BLOCK, WIDTH
from ..registers import SHIFT_ROUNDINGS
from . import tiles
from ._jit import kernel
from .assembly import HEIGHT
from .operands import (
    corners,
    panel_masks,
    panel_scales,
    panel_weights,
    spare,
    store,
    unpack_panel,
    weigh,
)
from .plans import CHUNK, Aligned, Register, Rounded
from .tiles import TILE, add_to_odd

TOWARD_ZERO, NEAREST_EVEN = (SHIFT_ROUNDINGS.index(name) for name in ("toward_zero", "nearest_even"))
WRAP = OVERFLOWS.index("wrap")


@kernel
def power(exponent: Any) -> float:
    """2**exponent as float64, for -1022 … 1023."""
    return np.int64((np.int64(exponent) + 1023) << 52).view(np.float64)


@kernel
def round_to(x: float, mantissa_bits: int, lowest: int, top: float) -> float:
    """float64 rounded to odd -> nearest even of a float with fewer bits. See `mxfp.floats.round_float64`."""
    drop = 52 - mantissa_bits
    bits = np.float64(x).view(np.int64)
    bits += (np.int64(1) << (drop - 1)) - 1 + ((bits >> drop) & 1)
    normal = np.int64(bits & ~((np.int64(1) << drop) - 1)).view(np.float64)
    # Below the normals the last bit has a fixed place: that of a sum with a constant.
    constant = 1.5 * power(52 + lowest - mantissa_bits)
    subnormal = (x + constant) - constant
    rounded = subnormal if abs(x) < power(lowest) else normal
    rounded = math.inf if abs(rounded) > top else abs(rounded)
    return math.copysign(rounded, x)


@kernel
def add_rounded(
    how: Any, found: Any, scales_a: Any, row_at: int, scales_b: Any, at: int, state: Any, place: int
) -> None:
    """One group: state + term, exact, then one rounding."""
    assert row_at >= 0 and at >= 0 and place >= 0  # or indices could wrap, and LLVM would not vectorise
    for row in range(HEIGHT):
        scale_a = scales_a[row_at + row]
        for column in range(WIDTH):
            n = row * WIDTH + column
            before = state[place + n]
            term = np.float64(found[n]) * scale_a * scales_b[at + column]
            after = round_to(add_to_odd(before, term), how.mantissa_bits, how.lowest, how.top)
            state[place + n] = after if abs(before) < math.inf else before


@kernel
def add_plain(found: Any, scales_a: Any, row_at: int, scales_b: Any, at: int, state: Any, place: int) -> None:
    """One group: state + term in float64."""
    assert row_at >= 0 and at >= 0 and place >= 0  # or indices could wrap, and LLVM would not vectorise
    for row in range(HEIGHT):
        scale_a = scales_a[row_at + row]
        for column in range(WIDTH):
            n = row * WIDTH + column
            state[place + n] += np.float64(found[n]) * scale_a * scales_b[at + column]


@kernel
def shift_integer(value: Any, shift: Any, rounding: int) -> Any:
    """Int64 * 2**shift, rounded to an integer by its rule; a left shift of up to 63 wraps.

    See `mxfp.registers.shift_integers`.
    """
    left, right = np.int64(min(max(shift, 0), 63)), np.int64(min(max(-shift, 0), 63))
    shifted = value << left
    floor = shifted >> right
    rest = shifted - (floor << right)
    if rounding == TOWARD_ZERO:
        return floor + (1 if shifted < 0 and rest != 0 else 0)
    if rounding == NEAREST_EVEN:
        half = np.int64(1) << max(right - 1, np.int64(0))
        up = rest > half or (rest == half and floor & 1 == 1)
        # Below half an LSB whatever the value: sums have at most 53 bits.
        return (floor + (1 if up and right > 0 else 0)) if right < 62 else np.int64(0)
    return floor


@kernel
def add_register(
    how: Any, found: Any, scales_a: Any, row_at: int, scales_b: Any, at: int, state: Any, place: int
) -> Any:
    """One group: shift to the LSB, add, see what the register does. True if it was left, and did not wrap."""
    assert row_at >= 0 and at >= 0 and place >= 0  # or indices could wrap, and LLVM would not vectorise
    limit = np.int64(1) << (how.width - 1)
    raised = False
    for row in range(HEIGHT):
        for column in range(WIDTH):
            n = row * WIDTH + column
            value = np.int64(found[n])
            shift = np.int64(scales_a[row_at + row]) + np.int64(scales_b[at + column])
            aligned = shift_integer(value, shift, how.rounding)
            if how.overflow == WRAP:
                total = ((state[place + n] + aligned + limit) & (2 * limit - 1)) - limit
            else:
                # A shift that lost bits is far outside: any register that does not wrap shows it.
                lost = shift > 63 or (shift > 0 and aligned >> max(min(shift, 63), 0) != value)
                far = lost or aligned >= 2 * limit or aligned < -2 * limit
                total = state[place + n] + aligned
                if far and value != 0:
                    total = 2 * limit if value > 0 else -2 * limit
                raised |= total < -limit or total >= limit
                total = min(max(total, -limit), limit - 1)
            state[place + n] = total
    return raised


@kernel
def reciprocal(x: float) -> float:
    """1 / x of a power of two."""
    return np.int64((np.int64(2046) << 52) - np.float64(x).view(np.int64)).view(np.float64)


@kernel
def add_aligned(
    how: Any, count: int, found: Any, scales_a: Any, masks_a: Any, row_at: int, scales_b: Any, masks_b: Any,
    at: int, state: Any, place: int,
) -> None:  # fmt: skip
    """`count` groups and the running result: align to the largest exponent, truncate, add, truncate.

    Exponents are powers of two in float64: the larger exponent is the larger number, and to shift is to
    multiply, exactly.
    """
    assert row_at >= 0 and at >= 0 and place >= 0  # or indices could wrap, and LLVM would not vectorise
    largest = np.empty(WIDTH, np.float64)
    total = np.empty(WIDTH, np.float64)
    nothing = power(how.zero_exponent)
    unit, fraction = power(how.unit), power(how.fraction_bits)
    for row in range(HEIGHT):
        here = place + row * WIDTH
        for column in range(WIDTH):
            own = own_power(np.float64(state[here + column]), nothing)
            largest[column] = own if count == how.per_step else max(own, nothing)
        for s in range(count):
            scale, mask, n = (
                scales_a[row_at + s * HEIGHT + row],
                masks_a[row_at + s * HEIGHT + row],
                at + s * WIDTH,
            )
            for column in range(WIDTH):
                alive = mask & masks_b[n + column] != 0
                largest[column] = max(largest[column], scale * scales_b[n + column] if alive else nothing)
        for column in range(WIDTH):
            total[column] = np.trunc(state[here + column] * (reciprocal(largest[column]) * fraction))
        for s in range(count):
            scale, n = scales_a[row_at + s * HEIGHT + row] * unit, at + s * WIDTH
            for column in range(WIDTH):
                term = found[s * TILE + row * WIDTH + column] * (scale * scales_b[n + column])
                total[column] += np.trunc(term * (reciprocal(largest[column]) * fraction))
        for column in range(WIDTH):
            exact = total[column] * (largest[column] * reciprocal(fraction))
            state[here + column] = truncated(exact, state[here + column])


@kernel
def truncated(exact: float, before: float) -> Any:
    """float64 -> float32 toward zero, never -0; an infinite `before` stays."""
    cut = np.int64(np.float64(exact).view(np.int64) & ~np.int64((1 << 29) - 1)).view(np.float64)
    tiny = np.trunc(exact * power(149)) * power(-149)
    kept = (tiny if abs(exact) < power(-126) else cut) + 0.0
    kept = math.copysign(math.inf, kept) if abs(kept) >= power(128) else kept
    return np.float32(kept) if abs(before) < math.inf else np.float32(before)


@kernel
def own_power(before: float, nothing: float) -> float:
    """The power of two that a running result aligns by."""
    own = np.int64(np.float64(before).view(np.int64) & np.int64(0x7FF << 52)).view(np.float64)
    return nothing if before == 0.0 else min(max(own, power(-126)), power(127))


@kernel
def add_four(
    how: Any, found: Any, scales_a: Any, masks_a: Any, row_at: int, scales_b: Any, masks_b: Any, at: int,
    state: Any, place: int,
) -> None:  # fmt: skip
    """`add_aligned` of four groups, a Blackwell step, in one loop."""
    # Unsigned indices cannot count from the end, which is what LLVM has to know to make vectors of this.
    width, tile = np.uint64(WIDTH), np.uint64(TILE)
    nothing, unit, fraction = power(how.zero_exponent), power(how.unit), power(how.fraction_bits)
    lost = 1.0 / fraction
    for row in range(HEIGHT):
        r0 = row_at + row
        r1, r2, r3 = r0 + HEIGHT, r0 + 2 * HEIGHT, r0 + 3 * HEIGHT
        a0, a1, a2, a3 = scales_a[r0], scales_a[r1], scales_a[r2], scales_a[r3]
        m0, m1, m2, m3 = masks_a[r0], masks_a[r1], masks_a[r2], masks_a[r3]
        first, here = np.uint64(row * WIDTH), np.uint64(place + row * WIDTH)
        for column in range(width):
            c0 = np.uint64(at) + column
            c1 = c0 + width
            c2 = c1 + width
            c3 = c2 + width
            n0 = first + column
            n1 = n0 + tile
            n2 = n1 + tile
            n3 = n2 + tile
            p0, p1 = a0 * scales_b[c0], a1 * scales_b[c1]
            p2, p3 = a2 * scales_b[c2], a3 * scales_b[c3]
            before = np.float64(state[here + column])
            largest = max(
                own_power(before, nothing),
                p0 if m0 & masks_b[c0] != 0 else nothing,
                p1 if m1 & masks_b[c1] != 0 else nothing,
                p2 if m2 & masks_b[c2] != 0 else nothing,
                p3 if m3 & masks_b[c3] != 0 else nothing,
            )
            inverse = reciprocal(largest) * fraction
            scaled = inverse * unit
            total = (
                np.trunc(before * inverse)
                + np.trunc(found[n0] * (p0 * scaled))
                + np.trunc(found[n1] * (p1 * scaled))
                + np.trunc(found[n2] * (p2 * scaled))
                + np.trunc(found[n3] * (p3 * scaled))
            )
            state[here + column] = truncated(total * (largest * lost), before)


def add_step(
    how: Any,
    count: int,
    found: Any,
    scales_a: Any,
    masks_a: Any,
    row_at: int,
    scales_b: Any,
    masks_b: Any,
    at: int,
    state: Any,
    place: int,
) -> Any:
    """One step of a tile on the state from `place` on; True if a register was left."""
    if isinstance(how, Aligned) and count == how.per_step == 4:
        add_four(how, found, scales_a, masks_a, row_at, scales_b, masks_b, at, state, place)
    elif isinstance(how, Aligned):
        add_aligned(how, count, found, scales_a, masks_a, row_at, scales_b, masks_b, at, state, place)
    elif isinstance(how, Register):
        return add_register(how, found, scales_a, row_at, scales_b, at, state, place)
    elif isinstance(how, Rounded):
        add_rounded(how, found, scales_a, row_at, scales_b, at, state, place)
    else:
        add_plain(found, scales_a, row_at, scales_b, at, state, place)
    return False


@overload(add_step, strict=False)
def _add_step(
    how: Any,
    count: int,
    found: Any,
    scales_a: Any,
    masks_a: Any,
    row_at: int,
    scales_b: Any,
    masks_b: Any,
    at: int,
    state: Any,
    place: int,
) -> Any:
    kind = how.instance_class
    if kind is Register:

        def raising(how, count, found, scales_a, masks_a, row_at, scales_b, masks_b, at, state, place):
            return add_register(how, found, scales_a, row_at, scales_b, at, state, place)

        return raising
    if kind is Aligned:

        def aligned(how, count, found, scales_a, masks_a, row_at, scales_b, masks_b, at, state, place):
            if count == 4 and how.per_step == 4:
                add_four(how, found, scales_a, masks_a, row_at, scales_b, masks_b, at, state, place)
            else:
                add_aligned(how, count, found, scales_a, masks_a, row_at, scales_b, masks_b, at, state, place)
            return False

        return aligned
    if kind is Rounded:

        def rounded(how, count, found, scales_a, masks_a, row_at, scales_b, masks_b, at, state, place):
            add_rounded(how, found, scales_a, row_at, scales_b, at, state, place)
            return False

        return rounded

    def plain(how, count, found, scales_a, masks_a, row_at, scales_b, masks_b, at, state, place):
        add_plain(found, scales_a, row_at, scales_b, at, state, place)
        return False

    return plain


@kernel
def step_tasks(
    begin: int, end: int, tag: Any, how: Any, per_step: int, rows: Any, panels: Any, shape: Any, offset: int,
    weights: Any, kinds: Any, raised: Any, factor: Any, out: Any, edge: Any,
) -> None:  # fmt: skip
    """Any accumulator, a step of a tile at a time."""
    per_block = BLOCK // shape.group
    integers = np.empty(CHUNK * BLOCK * WIDTH, panels.table.dtype)
    words = integers.view(kinds.words.dtype)
    scales = np.empty(CHUNK * per_block * WIDTH, panels.values.dtype)
    masks = np.zeros(CHUNK * per_block * WIDTH, np.uint32)
    significands = np.ones(CHUNK * per_block * WIDTH, np.int32)
    sums = np.empty(TILE, kinds.sums.dtype)
    found = np.empty(per_step * TILE, kinds.found.dtype)
    state = np.empty(shape.tiles_per_task * TILE, kinds.state.dtype)
    for t in range(begin, end):
        panel, first, last = corners(t, shape)
        state[:] = 0
        for block in range(0, shape.blocks, CHUNK):
            count = min(CHUNK, shape.blocks - block)
            group = block * per_block
            groups = min(count * per_block, shape.groups - group)
            unpack_panel(tag, panels, panel, block, count, shape.blocks, integers)
            panel_scales(panels, panel, group, groups, shape.stored, scales)
            if weights.masked:
                panel_masks(words, integers.itemsize, offset, shape.group, groups, masks)
            if weights.used:
                panel_weights(panels, panel, group, groups, shape.stored, weights.table, significands)
                for n in range(groups * WIDTH):
                    if significands[n] == 0:
                        masks[n] = 0
            for tile in range(first, last):
                for g in range(0, groups, per_step):
                    at = (tile * shape.stored + group + g) * HEIGHT
                    some = min(per_step, groups - g)
                    for s in range(some):
                        n = at + s * HEIGHT
                        tiles.sums(
                            tag, rows.integers, n * shape.group, rows.seeds, n,
                            integers, (g + s) * shape.group * WIDTH, offset, shape.group, sums,
                        )  # fmt: skip
                        weigh(
                            sums, weights.used, weights.rows, n, significands, (g + s) * WIDTH, found,
                            s * TILE,
                        )  # fmt: skip
                    if weights.spared:
                        spare(weights, tile, panel * WIDTH, some, found)
                    if add_step(
                        how, some, found, rows.scales, rows.masks, at, scales, masks, g * WIDTH,
                        state, (tile - first) * TILE,
                    ):  # fmt: skip
                        raised[0] = True
        store(state, panel, first, last, factor, out, edge)
