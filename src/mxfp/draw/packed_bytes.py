# SPDX-License-Identifier: Apache-2.0
"""The bytes that a block packs into, and which bit of which code each of their bits is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..blocks import quantize
from ..formats import BlockFormat, Codes, Integers, check_codes
from ..packing import ORDERS, Order, pack
from . import example
from .style import BOXES, GREY, INK, SMALL, TEXT, WIDTH, bare, place, sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TOP, _LINE, _LEFT = 0.62, 0.72, 0.1
_BYTES = 8
"""Bytes in a line, of codes that fill nibbles or bytes."""


def packed_bytes(fmt: BlockFormat, codes: Any = None) -> Figure:
    """A block format -> a block's bytes, in every order; see `bit_layout`."""
    element = fmt.element
    if codes is None:
        codes = quantize(example.A[: fmt.block], fmt, engine="reference").codes
    shown = check_codes(codes, element.code_count, f"{fmt.name} codes")
    if shown.shape != (fmt.block,):
        raise ValueError(f"a block of {fmt.name} is {fmt.block} codes in a row, got shape {shown.shape}")
    orders = [order for order in ORDERS if order == "pairs" or element.bits == 4]
    lines = -(-fmt.block * element.bits // 8 // _BYTES) if element.bits != 6 else 1
    part = 0.3 + _LINE * lines
    height = _TOP + part * len(orders) + 0.25
    figure = sheet(
        height,
        f"{fmt.name}: a block in bytes",
        f"{fmt.block} codes of {element.bits} bits in {fmt.block * element.bits // 8} bytes, beside one "
        f"{fmt.scale.name} scale",
        _words(fmt, shown, orders),
    )
    for n, order in enumerate(orders):
        axes = place(figure, 0, _TOP + part * n, WIDTH, part)
        bare(axes)
        axes.set(xlim=(0, WIDTH), ylim=(part, 0))
        axes.text(_LEFT, 0.17, f"order “{order}”", fontsize=TEXT, fontweight="bold", va="center")
        axes.text(WIDTH - 0.1, 0.17, _rule(fmt, order), fontsize=SMALL, color=GREY, va="center", ha="right")
        data = pack(shown, fmt, order=order)
        owner, bit = owners(fmt, order)
        if element.bits == 6:
            _bit_line(axes, data[:3], owner, bit)
        else:
            for line in range(lines):
                first = line * _BYTES
                _byte_line(axes, data[first : first + _BYTES], owner, first, 0.3 + _LINE * line, fmt)
    if element.bits == 6:
        note = f"The first 3 of {fmt.block * 6 // 8} bytes, high bits left; above a bit: which of its code."
    else:
        note = f"Hexadecimal, high bits left; elements above, darker: 0 … {fmt.block // 2 - 1}."
    figure.text(0.08 / WIDTH, 0.08 / height, note, fontsize=SMALL, color=GREY)
    return figure


def _rule(fmt: BlockFormat, order: Order) -> str:
    if order == "halves":
        return f"byte j: element j low, j + {fmt.block // 2} high"
    return {
        4: "byte j: element 2j low, 2j + 1 high",
        6: "four codes in three bytes, from the lowest bit up",
    }.get(fmt.element.bits, "byte j: element j")


def owners(fmt: BlockFormat, order: Order) -> tuple[Integers, Integers]:
    """A block's bytes -> (bytes, 8) int64 each, bit 7 first: the element whose bit it is, and which bit.

    Found by packing codes of which one bit is set.

    >>> from mxfp import MXFP4
    >>> owners(MXFP4, "halves")[0][0].tolist()
    [16, 16, 16, 16, 0, 0, 0, 0]
    """
    bits, count = fmt.element.bits, fmt.block
    codes = np.zeros((count * bits, count), np.uint8)
    each = np.arange(count * bits)
    codes[each, each // bits] = 1 << each % bits
    ones: NDArray[np.uint8] = np.unpackbits(pack(codes, fmt, order=order), axis=-1)
    source = ones.argmax(axis=0).reshape(-1, 8)
    return source // bits, source % bits


def _byte_line(axes: Axes, data: Codes, owner: Integers, first: int, top: float, fmt: BlockFormat) -> None:
    """Bytes in a row, each cut into the codes that it holds, high bits left."""
    from matplotlib.patches import Rectangle

    step = (WIDTH - 2 * _LEFT) / _BYTES
    digits = 2 * fmt.element.bits // 8
    for n, byte in enumerate(data.tolist()):
        left = _LEFT + n * step
        axes.text(
            left + step / 2 - 0.03,
            top + 0.64,
            f"byte {first + n}",
            ha="center",
            va="center",
            fontsize=SMALL - 0.5,
            color=GREY,
        )
        cuts = 2 // digits
        wide = (step - 0.06) / cuts
        for k in range(cuts):
            element = int(owner[first + n, k * fmt.element.bits])
            x = left + k * wide
            fill = BOXES["mantissa" if 2 * element >= fmt.block else "exponent"]
            axes.add_patch(
                Rectangle((x, top + 0.2), wide, 0.34, facecolor=fill, edgecolor=INK, linewidth=0.7)
            )
            axes.text(x + wide / 2, top + 0.1, str(element), ha="center", va="center", fontsize=SMALL)
            text = f"{byte:02x}"[k * digits : (k + 1) * digits]
            axes.text(
                x + wide / 2, top + 0.37, text, ha="center", va="center", family="monospace", fontsize=TEXT
            )


def _bit_line(axes: Axes, data: Codes, owner: Integers, bit: Integers) -> None:
    """Three bytes bit by bit, with the bit of which element each is."""
    from matplotlib.patches import Rectangle

    step = (WIDTH - 2 * _LEFT) / len(data)
    wide = (step - 0.08) / 8
    names = tuple(BOXES)
    for n, byte in enumerate(data.tolist()):
        left = _LEFT + n * step
        for k in range(8):
            x, element = left + k * wide, int(owner[n, k])
            fill = BOXES[names[element % len(names)]]
            axes.add_patch(Rectangle((x, 0.55), wide, 0.3, facecolor=fill, edgecolor=INK, linewidth=0.7))
            axes.text(
                x + wide / 2,
                0.7,
                str(byte >> (7 - k) & 1),
                ha="center",
                va="center",
                family="monospace",
                fontsize=TEXT,
            )
            axes.text(
                x + wide / 2, 0.47, str(bit[n, k]), ha="center", va="center", fontsize=SMALL - 1, color=GREY
            )
        axes.text(left + 4 * wide, 0.95, f"byte {n}", ha="center", va="center", fontsize=SMALL, color=GREY)
        for element in dict.fromkeys(owner[n].tolist()):
            mine = np.flatnonzero(owner[n] == element)
            middle = left + (mine[0] + mine[-1] + 1) / 2 * wide
            axes.text(middle, 0.36, f"el. {element}", ha="center", va="center", fontsize=SMALL - 0.5)


def _words(fmt: BlockFormat, codes: Codes, orders: list[Order]) -> str:
    parts = [f"Order {order}: {pack(codes, fmt, order=order).tobytes().hex(' ')}." for order in orders]
    return f"A block of {fmt.name} in bytes. " + " ".join(parts)
