# SPDX-License-Identifier: Apache-2.0
"""Both sides of a product as the micro-kernels read them: rows of integers, and panels of packed weights.

Rows are made from a slab of a BlockArray's codes at a time; panels come as `mxfp.prepare` lays them
out and become integers in a buffer that the first cache level holds.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..formats import BlockFormat, Codes, ElementFormat
from ..prepared import BLOCK, WIDTH
from . import assembly, isa, tiles
from ._jit import kernel
from .assembly import HEIGHT
from .plans import Kind
from .threads import spread
from .tiles import to_odd

SLAB: Final = 1 << 22
"""Codes of one side that are looked at or packed at a time, at least a tile's."""
PACK_WORK: Final = 1 << 19
"""Codes that are worth a thread."""
STRETCH: Final = 128
"""Words of each of a panel's columns that are packed at a time."""
FAR: Final = 1 << 20
"""An exponent beyond all others: that of nothing but zeros, up or down."""


class Rows(NamedTuple):
    """Tiles of rows: integers [tile][group][row][k], and for each [tile][group][row] the rest.

    seeds: see `assembly`. scales: values or exponents. masks: a bit for each k that is not zero.
    """

    integers: Any
    seeds: Any
    scales: Any
    masks: Any


class Panels(NamedTuple):
    """Panels of weights: codes and scale codes as prepared, and the tables they are looked up in.

    per_scale: groups that share a scale code. first: the panel that a slab begins with.
    """

    codes: Any
    codes_per_block: int
    scales: Any
    per_scale: int
    first: int
    table: Any
    constants: Any
    values: Any


class Shape(NamedTuple):
    """Tiles of rows, panels, blocks of K, products in a group, groups stored and groups in all of K."""

    tiles: int
    panels: int
    blocks: int
    group: int
    stored: int
    groups: int
    tiles_per_task: int
    tasks: int

    def grain(self, work: int) -> int:
        """Tasks that hold so many products."""
        return int(work // max(self.tiles_per_task * HEIGHT * WIDTH * self.blocks * BLOCK, 1))


class Edge(NamedTuple):
    """Where in the result a slab begins, and where it ends."""

    row: int
    column: int
    rows: int
    columns: int


class Factor(NamedTuple):
    """The product of both tensor scales, and whether results times it are rounded again afterwards."""

    value: float
    odd: bool


class Weights(NamedTuple):
    """What terms need beside sums and exponents.

    used: significands of scales, by [tile][group][row] and by b's code. masked: masks. spared: rows and
    columns whose results are NaN, which no register is to raise for.
    """

    used: bool
    masked: bool
    spared: bool
    rows: Any
    table: Any
    spared_rows: Any
    spared_columns: Any


class Kinds(NamedTuple):
    """Empty arrays of the dtypes of words of a panel, of sums, of terms, and of the state."""

    words: Any
    sums: Any
    found: Any
    state: Any


@cache
def constants(fmt: BlockFormat, dtype: Any, offset: int, seed: int) -> NDArray[Any]:
    """The operand `constants` of the assembly for 4-bit codes that become bytes with an offset.

    seed: the offset of the other side's integers, times which sums of these make seeds.
    """
    table = in_table(fmt.element, dtype, offset)
    found = np.zeros(assembly.CONSTANTS, np.uint8)
    found[assembly.LOOKUP : assembly.NIBBLES] = np.tile(table[:16].view(np.uint8), 2)
    found[assembly.NIBBLES : assembly.ONES] = 15
    found[assembly.ONES : assembly.LEAST].view(np.int16)[:] = 1
    # 2**-127 is the one E8M0 scale whose exponent field is not its code: float32 holds it as a subnormal.
    found[assembly.LEAST : assembly.UNIT].view(np.int32)[:] = 0 if fmt.scale.has_zero else 1 << 22
    found[assembly.UNIT : assembly.SEED].view(np.float32)[:] = 2.0 ** (127 - fmt.scale.bias)
    found[assembly.SEED :].view(np.int16)[:] = -seed
    return found.view(dtype)


@cache
def in_table(element: ElementFormat, dtype: Any, offset: int = 0) -> NDArray[Any]:
    """Integers by code, repeated up to 256, so that no byte is outside."""
    return np.resize(element.integers + offset, 256).astype(dtype)


@cache
def scale_values(fmt: BlockFormat, shift: int, dtype: Any) -> NDArray[Any]:
    """Scale values times 2**shift by code, exact; 1 where the code is NaN or does not exist."""
    found = np.ones(256, dtype)
    exact = np.ldexp(fmt.scale.values, shift)
    found[: exact.size] = np.where(fmt.scale.finite, exact, 1.0).astype(dtype)
    return found


@cache
def scale_exponents(fmt: BlockFormat, shift: int) -> NDArray[np.int32]:
    """Scale exponents plus shift by code; 0 where the code is NaN or does not exist."""
    found = np.zeros(256, np.int32)
    found[: fmt.scale.code_count] = np.where(fmt.scale.finite, fmt.scale.exponents + shift, 0)
    return found


def one_code(fmt: BlockFormat) -> np.uint8:
    """The scale code of 1."""
    return np.uint8(fmt.scale.bias << fmt.scale.mantissa_bits)


@cache
def scale_fields(fmt: BlockFormat, shift: int) -> NDArray[np.int32]:
    """Scale exponents plus shift by code, where float32 has its exponent; codes 0 and NaN as that of 1."""
    exponents = scale_exponents(fmt, 0).copy()
    exponents[[0, fmt.scale.nan_code]] = 0
    return (exponents + shift) << 23


@cache
def scale_powers(fmt: BlockFormat, shift: int) -> NDArray[Any]:
    """2**(exponent + shift) by code, significands left out."""
    return np.ldexp(1.0, scale_exponents(fmt, shift))


@cache
def scale_significands(fmt: BlockFormat) -> NDArray[np.int32]:
    """Scale significands by code."""
    found = np.zeros(256, np.int32)
    found[: fmt.scale.code_count] = fmt.scale.significands
    return found


def marked_rows(codes: Codes, scales: Codes, fmt: BlockFormat, largest: int) -> NDArray[np.bool_]:
    """Codes (N, K), scales (N, blocks) -> (N,) whether a row has a NaN scale or an element not finite.

    largest: of the scale codes.
    """
    if largest < fmt.scale.nan_code and fmt.element.finite.all():
        return np.zeros(len(codes), np.bool_)
    marked: NDArray[np.bool_] = (scales == fmt.scale.nan_code).any(axis=1)
    if not fmt.element.finite.all():
        step = max(SLAB // max(codes.shape[1], 1), 1)
        for top in range(0, codes.shape[0], step):
            part = slice(top, top + step)
            marked[part] |= ~fmt.element.finite[codes[part]].all(axis=1)
    return marked


def rows_of(
    tag: isa.Isa,
    codes: Codes,
    scales: Codes,
    fmt: BlockFormat,
    kind: Kind,
    group: int,
    height: int,
) -> Rows:
    """Codes (rows, K) and scales (rows, blocks) -> Rows, whose scales are still codes.

    Rows and elements past the end are zero. A group of zeros, and a NaN scale, get the scale code of 1.
    """
    rows, length = codes.shape
    blocks = -(-length // BLOCK)
    count, groups = -(-rows // height), blocks * (BLOCK // group)
    integers = np.empty(count * groups * height * group, kind.a)
    seeds = np.empty(count * groups * height, np.int32)
    masks = np.empty(count * groups * height, np.uint32)
    found = np.empty(count * groups * height, np.uint8)
    table = in_table(fmt.element, kind.a)
    spread(
        _pack_rows,
        count,
        tag,
        _plain(codes),
        _plain(scales),
        table,
        constants(fmt, kind.a, 0, kind.offset)
        if fmt.element.bits == 4 and kind.name == "bytes"
        else np.zeros(0, kind.a),
        Shape(count, 0, blocks, group, groups, groups, 1, count),
        height,
        fmt.block,
        kind.offset,
        kind.name == "bytes" and isinstance(tag, isa.Avx2),
        (one_code(fmt), np.uint8(fmt.scale.nan_code)),
        integers,
        seeds,
        masks,
        found,
        grain=PACK_WORK // (height * blocks * BLOCK),
    )
    return Rows(integers, seeds, found, masks)


def _plain(array: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """C-contiguous and read-only, so that every caller's array has one type."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


@kernel
def _pack_rows(
    begin: int, end: int, tag: Any, codes: Any, scales: Any, table: Any, constants: Any, shape: Any,
    height: int, block: int, offset: int, split: bool, special: Any, integers: Any, seeds: Any, masks: Any,
    scale_codes: Any,
) -> None:  # fmt: skip
    """Tiles of rows; see `rows_of`."""
    rows, length = codes.shape
    flat = codes.reshape(-1)
    buffer = np.zeros(shape.blocks * BLOCK, np.uint8)
    per_scale = block // shape.group
    for n in range(begin * height, end * height):
        tile = n // height
        at = tile * shape.stored * height + n - tile * height
        if n < rows and length == buffer.size:
            tiles.pack_row(
                tag, flat, n * length, table, constants, offset, split, shape.group, shape.stored, height,
                at, integers, seeds, masks,
            )  # fmt: skip
        else:
            for k in range(length):
                buffer[k] = codes[n, k] if n < rows else 0
            tiles.pack_row(
                tag, buffer, 0, table, constants, offset, split, shape.group, shape.stored, height,
                at, integers, seeds, masks,
            )  # fmt: skip
        for g in range(shape.stored):
            place = g // per_scale
            code = scales[n, place] if n < rows and place < scales.shape[1] else special[0]
            dead = masks[at + g * height] == 0 or code == special[1]
            scale_codes[at + g * height] = special[0] if dead else code


@kernel
def unpack_panel(tag: Any, panels: Any, panel: int, first: int, count: int, blocks: int, target: Any) -> None:
    """Blocks first … first+count of a panel -> integers [k/step][column][step], offset included."""
    at = ((panels.first + panel) * blocks + first) * panels.codes_per_block
    if panels.codes_per_block == BLOCK * WIDTH // 2 and target.itemsize == 1:
        tiles.unpack(tag, panels.codes, at, target, panels.constants, count)
    else:
        step = max(4 // target.itemsize, 1)
        for k in range(count * BLOCK):
            inside = at + k // BLOCK * panels.codes_per_block
            j = k % BLOCK
            if panels.codes_per_block == BLOCK * WIDTH:
                source = inside + j // 4 * 4 * WIDTH + j % 4
                shift = 0
            else:
                source = inside + j // 8 * 4 * WIDTH + j % 4
                shift = j & 4
            to = k // step * step * WIDTH + k % step
            for column in range(WIDTH):
                code = panels.codes[source + 4 * column]
                if panels.codes_per_block != BLOCK * WIDTH:
                    code = (code >> shift) & 15
                target[to + column * step] = panels.table[code]


@kernel
def panel_scales(panels: Any, panel: int, first: int, count: int, stored: int, target: Any) -> None:
    """Groups first … first+count of a panel -> what its scale codes stand for, [group][column]."""
    for g in range(count):
        at = ((panels.first + panel) * stored + first + g) // panels.per_scale * WIDTH
        assert at >= 0  # or indices could wrap, and LLVM would not vectorise
        for column in range(WIDTH):
            target[g * WIDTH + column] = panels.values[panels.scales[at + column]]


@kernel
def panel_weights(
    panels: Any, panel: int, first: int, count: int, stored: int, table: Any, target: Any
) -> None:
    """The same for the significands of its scale codes."""
    for g in range(count):
        at = ((panels.first + panel) * stored + first + g) // panels.per_scale * WIDTH
        assert at >= 0  # or indices could wrap, and LLVM would not vectorise
        for column in range(WIDTH):
            target[g * WIDTH + column] = table[panels.scales[at + column]]


@kernel
def panel_masks(words: Any, size: int, zero: int, group: int, count: int, target: Any) -> None:
    """Integers of a panel -> for each [group][column] a bit for each k that is not zero.

    words: the integers as they lie in columns, uint32 (four bytes, two int16) or uint64 (a float64). size:
    bytes of one. zero: what zero is stored as.
    """
    step = max(4 // size, 1)
    pattern = words.dtype.type(zero * 0x01010101 if size == 1 else 0)
    for g in range(count):
        for column in range(WIDTH):
            target[g * WIDTH + column] = 0
        for w in range(group // step):
            at = (g * (group // step) + w) * WIDTH
            shift = np.uint32(w * step)
            for column in range(WIDTH):
                word = words[at + column] ^ pattern
                if size == 1:
                    # The top bit of each byte that is not zero, then those four bits side by side.
                    tops = np.uint32(((word & 0x7F7F7F7F) + 0x7F7F7F7F | word) & 0x80808080) >> np.uint32(7)
                    bits = tops | tops >> np.uint32(7) | tops >> np.uint32(14) | tops >> np.uint32(21)
                    bits &= np.uint32(15)
                elif size == 2:
                    bits = np.uint32(word & 0xFFFF != 0) | np.uint32(word >> 16 != 0) << np.uint32(1)
                else:
                    bits = np.uint32(word != 0)
                target[g * WIDTH + column] |= bits << shift


@kernel
def weigh(
    sums: Any, used: bool, rows: Any, row_at: int, significands: Any, at: int, found: Any, place: int
) -> None:
    """Sums of a tile -> integers of its terms, times both significands where scales have them."""
    assert row_at >= 0 and at >= 0 and place >= 0  # or indices could wrap, and LLVM would not vectorise
    for n in range(HEIGHT * WIDTH):
        found[place + n] = sums[n]
    if used:
        for row in range(HEIGHT):
            for column in range(WIDTH):
                found[place + row * WIDTH + column] *= rows[row_at + row] * significands[at + column]


@kernel
def spare(weights: Any, tile: int, left: int, count: int, found: Any) -> None:
    """Zero the terms of rows and columns whose results are NaN anyway."""
    for row in range(HEIGHT):
        m = tile * HEIGHT + row
        whole = m < weights.spared_rows.size and weights.spared_rows[m]
        for column in range(WIDTH):
            n = left + column
            if whole or (n < weights.spared_columns.size and weights.spared_columns[n]):
                for s in range(count):
                    found[s * HEIGHT * WIDTH + row * WIDTH + column] = 0


@kernel
def corners(t: int, shape: Any) -> tuple[int, int, int]:
    """Task -> its panel, its first tile and the tile after its last."""
    parts = -(-shape.tiles // shape.tiles_per_task)
    panel = t // parts
    first = (t - panel * parts) * shape.tiles_per_task
    return panel, first, min(first + shape.tiles_per_task, shape.tiles)


@kernel
def store(state: Any, panel: int, first: int, last: int, factor: Any, out: Any, edge: Any) -> None:
    """Tiles of results times the tensor scales -> the parts of them that lie in out."""
    columns = min(WIDTH, edge.columns - edge.column - panel * WIDTH)
    for tile in range(first, last):
        for r in range(min(HEIGHT, edge.rows - edge.row - tile * HEIGHT)):
            row, column = edge.row + tile * HEIGHT + r, edge.column + panel * WIDTH
            at = ((tile - first) * HEIGHT + r) * WIDTH
            assert row >= 0 and column >= 0 and at >= 0  # or indices could wrap, and LLVM would not vectorise
            if factor.value == 1.0:
                for c in range(columns):
                    out[row, column + c] = state[at + c]
            else:
                for c in range(columns):
                    value = np.float64(state[at + c])
                    exact = multiply_to_odd(value, factor.value) if factor.odd else value * factor.value
                    out[row, column + c] = exact if abs(value) < np.inf else value


@kernel
def multiply_to_odd(x: float, factor: float) -> float:
    """X times a float64 of at most 48 bits, rounded to odd: the error is found by Dekker's product."""
    product = x * factor
    high_x = x * 134217729.0
    high_x -= high_x - x
    high_f = factor * 134217729.0
    high_f -= high_f - factor
    low_x, low_f = x - high_x, factor - high_f
    error = ((high_x * high_f - product) + high_x * low_f + low_x * high_f) + low_x * low_f
    return to_odd(product, error)


def as_integer(x: float) -> tuple[int, int]:
    """A float -> an odd integer (or 0) and the exponent of its unit."""
    numerator, denominator = x.as_integer_ratio()
    zeros = (numerator & -numerator).bit_length() - 1 if numerator else 0
    return numerator >> zeros, zeros - denominator.bit_length() + 1


# --- panels from codes (see mxfp.prepared for the layout)


def pack_panels(codes: Codes, element: ElementFormat, target: Codes) -> None:
    """Codes (N, K), best contiguous as they are or as their transpose -> panels."""
    columns, length = codes.shape
    by_rows = codes.flags.c_contiguous or not codes.T.flags.c_contiguous
    source = _plain(codes if by_rows else codes.T)
    shift = 4 if element.bits == 4 else 0
    panels, words = -(-columns // WIDTH), target.view(np.uint32)
    grain = PACK_WORK // (WIDTH * max(length, 1))
    if by_rows and length % BLOCK == 0 and length:
        rows = source.view(np.uint64 if shift else np.uint32)
        spread(_pack_words, panels, rows, shift, words, grain=grain)
    else:
        spread(_pack_panels, panels, source, by_rows, shift, columns, length, words, grain=grain)


@kernel
def _pack_panels(
    begin: int, end: int, codes: Any, by_rows: bool, shift: int, columns: int, length: int, target: Any
) -> None:
    """A word holds four codes of one column, and with a shift the four after them above those."""
    per_word = 8 if shift else 4
    words = -(-length // BLOCK) * BLOCK // per_word
    for panel in range(begin, end):
        first = panel * WIDTH
        width = min(columns - first, WIDTH)
        for w in range(words):
            k = w * per_word
            at = (panel * words + w) * WIDTH
            target[at : at + WIDTH] = 0
            for i in range(min(per_word, length - k)):
                place = 8 * i if i < 4 else 8 * (i - 4) + shift
                if by_rows:
                    for column in range(width):
                        target[at + column] |= np.uint32(codes[first + column, k + i]) << np.uint32(place)
                else:
                    for column in range(width):
                        target[at + column] |= np.uint32(codes[k + i, first + column]) << np.uint32(place)


@kernel
def _pack_words(begin: int, end: int, words: Any, shift: int, target: Any) -> None:
    """The same from rows of whole blocks: words of four or eight codes (N, K/4 or K/8)."""
    columns, length = words.shape
    for panel in range(begin, end):
        first = panel * WIDTH
        for left in range(0, length, STRETCH):  # what is written lies in the first cache level
            for column in range(WIDTH):
                for w in range(left, min(left + STRETCH, length)):
                    at = (panel * length + w) * WIDTH + column
                    if first + column < columns:
                        word = words[first + column, w]
                        target[at] = np.uint32(word | word >> np.uint64(32 - shift) if shift else word)
                    else:
                        target[at] = 0
