# SPDX-License-Identifier: Apache-2.0
"""Tiles: what a micro-kernel does, as plain loops, and the assembly that stands in for them on x86.

Called from Python, or compiled for `Portable`, these functions are the loops written here. Compiled for
another tag they are the micro-kernels of `assembly`. Same operands, same bits; `seeds` are for the
assembly alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from ..prepared import WIDTH
from . import assembly
from ._jit import kernel
from .assembly import HEIGHT
from .isa import Avx2, Avx512Vnni

TILE = HEIGHT * WIDTH
HALF = WIDTH // 2


@kernel
def to_odd(value: float, error: float) -> float:
    """Value + error, of which value is the nearest float64 -> rounded to odd, without branches."""
    bits = np.float64(value).view(np.int64)
    # The neighbour on the side of the error: one step away from zero, or one towards it.
    step = 1 if (error > 0.0) == (value > 0.0) else -1
    return np.int64(bits + (step if error != 0.0 and bits & 1 == 0 else 0)).view(np.float64)


@kernel
def add_to_odd(a: float, b: float) -> float:
    """A + b rounded to odd. See `mxfp.floats.add_to_odd`."""
    total = a + b
    virtual = total - a
    return to_odd(total, (a - (total - virtual)) + (b - virtual))


@kernel
def plain_sums(a: Any, a_at: int, b: Any, b_at: int, offset: int, group: int, state: Any) -> None:
    """One group of integers: sums of products, a [row][k] and b [k/step][column][step], into state."""
    assert a_at >= 0 and b_at >= 0  # or indices could wrap, and LLVM would not vectorise
    step = 4 // a.itemsize
    for n in range(TILE):
        state[n] = 0
    for k in range(group):
        at = b_at + k // step * step * WIDTH + k % step
        for row in range(HEIGHT):
            x = np.int32(a[a_at + row * group + k])
            for column in range(WIDTH):
                y = np.int32(b[at + column * step]) - np.int32(offset)
                state[row * WIDTH + column] += x * y


@kernel
def wide_sums(a: Any, a_at: int, b: Any, b_at: int, group: int, state: Any) -> None:
    """The same of integers held by float64, whose sums float64 holds too."""
    assert a_at >= 0 and b_at >= 0  # or indices could wrap, and LLVM would not vectorise
    for n in range(TILE):
        state[n] = 0.0
    for k in range(group):
        at = b_at + k * WIDTH
        for row in range(HEIGHT):
            x = a[a_at + row * group + k]
            for column in range(WIDTH):
                state[row * WIDTH + column] += x * b[at + column]


def sums(
    isa: Any,
    a: Any,
    a_at: int,
    seeds: Any,
    seeds_at: int,
    b: Any,
    b_at: int,
    offset: int,
    group: int,
    state: Any,
) -> None:
    """One group of a tile: its exact sums of products, int32 or float64 (TILE,) from state[0] on."""
    if state.itemsize == 8:
        wide_sums(a, a_at, b, b_at, group, state)
    else:
        plain_sums(a, a_at, b, b_at, offset, group, state)


def new_sums(a: Any) -> Any:
    """An array for the sums of a tile, for such integers."""
    return np.zeros(TILE, np.float64 if a.itemsize == 8 else np.int32)


def add_groups(
    isa: Any, a: Any, a_at: int, seeds: Any, scales_a: Any, row_at: int, b: Any, b_at: int, offset: int,
    scales_b: Any, column_at: int, group: int, groups: int, state: Any, state_at: int,
) -> None:  # fmt: skip
    """`groups` groups of a tile, each exact term added to the state with one rounding to its dtype."""
    found = new_sums(a)
    # Or indices could wrap, and LLVM would not vectorise.
    assert row_at >= 0 and column_at >= 0 and state_at >= 0
    for g in range(groups):
        sums(
            isa, a, a_at + g * group * HEIGHT, seeds, row_at + g * HEIGHT, b, b_at + g * group * WIDTH,
            offset, group, found,
        )  # fmt: skip
        for row in range(HEIGHT):
            scale_a = np.float64(scales_a[row_at + g * HEIGHT + row])
            for column in range(WIDTH):
                scale = scale_a * np.float64(scales_b[column_at + g * WIDTH + column])
                n = state_at + row * WIDTH + column
                before = np.float64(state[n])
                term = np.float64(found[row * WIDTH + column]) * scale
                if state.itemsize == 8:
                    state[n] = before + term
                elif abs(before) < np.inf:
                    state[n] = add_to_odd(before, term)


def unpack(isa: Any, source: Any, source_at: int, target: Any, constants: Any, blocks: int) -> None:
    """Blocks of nibbles [k/8][column][4] -> bytes [k/4][column][4], looked up in the constants."""
    for eight in range(4 * blocks):
        for n in range(4 * WIDTH):
            byte = source[source_at + eight * 4 * WIDTH + n]
            target[eight * 8 * WIDTH + n] = constants[byte & 15]
            target[eight * 8 * WIDTH + 4 * WIDTH + n] = constants[byte >> 4]


@kernel
def pack_codes(
    source: Any, source_at: int, table: Any, offset: int, split: bool, group: int, count: int, height: int,
    at: int, integers: Any, seeds: Any, masks: Any,
) -> None:  # fmt: skip
    """`count` groups of one row's codes -> integers [group][row][k], seeds and masks, from `at` on."""
    for g in range(count):
        place = at + g * height
        total = np.int32(0)
        low = np.int32(0)
        mask = np.uint32(0)
        for k in range(group):
            value = table[source[source_at + g * group + k]]
            integers[place * group + k] = value
            if offset != 0:
                total += np.int32(value)
                low += np.int32(value) if k & 2 == 0 else np.int32(0)
            mask |= np.uint32(value != 0) << np.uint32(k)
        masks[place] = mask
        seeds[place] = (
            (-offset * low & 0xFFFF) | (-offset * (total - low) << 16) if split else -offset * total
        )


def pack_row(
    isa: Any, source: Any, source_at: int, table: Any, constants: Any, offset: int, split: bool, group: int,
    count: int, height: int, at: int, integers: Any, seeds: Any, masks: Any,
) -> None:  # fmt: skip
    """The same; constants are there for 4-bit codes."""
    pack_codes(source, source_at, table, offset, split, group, count, height, at, integers, seeds, masks)


def watch(isa: Any, flag: Any, seen: int, looks: int, rest: int) -> None:
    """Nothing: plain loops would not see what other threads write."""


# --- the assembly


def _name(isa: Any) -> str | None:
    """The instruction set of a tag's numba type, None for the portable one."""
    return {Avx512Vnni: "avx512vnni", Avx2: "avx2"}.get(isa.instance_class)


def _kind(a: Any) -> str | None:
    """What the micro-kernels call integers of this array; None where they have nothing for it."""
    return {types.int8: "bytes", types.int16: "shorts"}.get(a.dtype)


@overload(sums, strict=False)
def _sums(
    isa: Any,
    a: Any,
    a_at: int,
    seeds: Any,
    seeds_at: int,
    b: Any,
    b_at: int,
    offset: int,
    group: int,
    state: Any,
) -> Any:
    name, kind = _name(isa), _kind(a)
    if kind is None and name is None:

        def wide(isa, a, a_at, seeds, seeds_at, b, b_at, offset, group, state):
            wide_sums(a, a_at, b, b_at, group, state)

        return wide
    if kind is None:
        routine, columns = (assembly.wide_512, WIDTH) if name == "avx512vnni" else (assembly.wide_256, 8)

        def fused(isa, a, a_at, seeds, seeds_at, b, b_at, offset, group, state):
            for first in range(0, WIDTH, columns):
                routine(a, a_at, b, b_at + first, state, first, 8 * group, group)

        return fused
    if name is None:

        def plain(isa, a, a_at, seeds, seeds_at, b, b_at, offset, group, state):
            plain_sums(a, a_at, b, b_at, offset, group, state)

        return plain
    step = 4 if kind == "bytes" else 2
    whole = assembly.tile(name, "sums", kind, 32 // step)
    half = assembly.tile(name, "sums", kind, 16 // step)
    narrow = name == "avx2"

    def fast(isa, a, a_at, seeds, seeds_at, b, b_at, offset, group, state):
        if group == 32:
            whole(a, a_at, seeds, seeds_at, b, b_at, state, 0)
            if narrow:
                whole(a, a_at, seeds, seeds_at, b, b_at + HALF * step, state, HALF)
        else:
            half(a, a_at, seeds, seeds_at, b, b_at, state, 0)
            if narrow:
                half(a, a_at, seeds, seeds_at, b, b_at + HALF * step, state, HALF)

    return fast


@overload(new_sums, strict=False)
def _new_sums(a: Any) -> Any:
    dtype = np.float64 if a.dtype == types.float64 else np.int32

    def new(a):
        return np.zeros(TILE, dtype)

    return new


@overload(add_groups, strict=False)
def _add_groups(
    isa: Any, a: Any, a_at: int, seeds: Any, scales_a: Any, row_at: int, b: Any, b_at: int, offset: int,
    scales_b: Any, column_at: int, group: int, groups: int, state: Any, state_at: int,
) -> Any:  # fmt: skip
    name, kind = _name(isa), _kind(a)
    if name is None or kind is None:
        return add_groups
    step = 4 if kind == "bytes" else 2
    ending = "float32" if state.dtype == types.float32 else "float64"
    if scales_a.dtype == types.int32:
        ending = "shifted"
    whole = assembly.tile(name, ending, kind, 32 // step)
    half = assembly.tile(name, ending, kind, 16 // step)
    parts = 2 if name == "avx2" else 1

    def fast(
        isa,
        a,
        a_at,
        seeds,
        scales_a,
        row_at,
        b,
        b_at,
        offset,
        scales_b,
        column_at,
        group,
        groups,
        state,
        state_at,
    ):
        for part in range(parts):
            columns = part * HALF
            b_part, scale_part, state_part = b_at + columns * step, column_at + columns, state_at + columns
            if group == 32:
                whole(
                    a, a_at, seeds, row_at, scales_a, row_at, b, b_part, scales_b, scale_part,
                    state, state_part, groups,
                )  # fmt: skip
            else:
                half(
                    a, a_at, seeds, row_at, scales_a, row_at, b, b_part, scales_b, scale_part,
                    state, state_part, groups,
                )  # fmt: skip

    return fast


@overload(unpack, strict=False)
def _unpack(isa: Any, source: Any, source_at: int, target: Any, constants: Any, blocks: int) -> Any:
    name = _name(isa)
    if name is None or target.dtype != types.uint8:
        return unpack
    routine = assembly.unpack_512 if name == "avx512vnni" else assembly.unpack_256

    def fast(isa, source, source_at, target, constants, blocks):
        routine(source, source_at, target, 0, constants, 0, 4 * blocks)

    return fast


@overload(watch, strict=False)
def _watch(isa: Any, flag: Any, seen: int, looks: int, rest: int) -> Any:
    if _name(isa) is None:
        return watch

    def fast(isa, flag, seen, looks, rest):
        assembly.watch(flag, 0, seen, looks, rest)

    return fast


@overload(pack_row, strict=False)
def _pack_row(
    isa: Any, source: Any, source_at: int, table: Any, constants: Any, offset: int, split: bool, group: int,
    count: int, height: int, at: int, integers: Any, seeds: Any, masks: Any,
) -> Any:  # fmt: skip
    name = _name(isa)
    if name is None or integers.dtype != types.int8:
        return pack_row
    whole, half = (assembly.pack(size, name == "avx2") for size in (32, 16))

    def fast(
        isa,
        source,
        source_at,
        table,
        constants,
        offset,
        split,
        group,
        count,
        height,
        at,
        integers,
        seeds,
        masks,
    ):
        place = at * group
        stride, step = height * group, height * 4
        if constants.size == 0:
            pack_codes(
                source, source_at, table, offset, split, group, count, height, at, integers, seeds, masks
            )
        elif group == 32:
            whole(source, source_at, integers, place, seeds, at, masks, at, constants, 0, stride, step, count)
        else:
            half(source, source_at, integers, place, seeds, at, masks, at, constants, 0, stride, step, count)

    return fast


def gemv(
    isa: Any, height: Any, group: int, a: Any, seeds: Any, scales_a: Any, row_at: int, b: Any, b_at: int,
    scales_b: Any, column_at: int, groups: int, constants: Any, state: Any, state_at: int,
) -> None:  # fmt: skip
    """Up to four rows by a panel of nibbles, as `add_groups`; height is a tuple as long as there are rows.

    Only assembly gains by it: where there is none, `matmul` unpacks the panel, and this is never asked.
    """
    raise NotImplementedError("gemv is for AVX2 and AVX-512; GEMV_MOST keeps the others away")


@overload(gemv, strict=False)
def _gemv(
    isa: Any, height: Any, group: int, a: Any, seeds: Any, scales_a: Any, row_at: int, b: Any, b_at: int,
    scales_b: Any, column_at: int, groups: int, constants: Any, state: Any, state_at: int,
) -> Any:  # fmt: skip
    name = _name(isa)
    assert name is not None
    # Blocks of 32 have E8M0 scales, whose codes are float32's exponent field; blocks of 16 have UE4M3.
    whole, half = (assembly.gemv(name, len(height), steps, shift) for steps, shift in ((8, 23), (4, 20)))

    def fast(
        isa, height, group, a, seeds, scales_a, row_at, b, b_at, scales_b, column_at, groups, constants,
        state, state_at,
    ):  # fmt: skip
        at = row_at * group
        if group == 32:
            whole(
                a, at, seeds, row_at, scales_a, row_at, b, b_at, scales_b, column_at, state, state_at,
                groups, constants, 0,
            )  # fmt: skip
        else:
            half(
                a, at, seeds, row_at, scales_a, row_at, b, b_at, scales_b, column_at, state, state_at,
                groups, constants, 0,
            )  # fmt: skip

    return fast
