# SPDX-License-Identifier: Apache-2.0
"""A tree of adders over the products of two blocks: the values on it, and the bits of each level."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..adders import AdderTree, balanced
from ..formats import E2M1, BlockFormat, ElementFormat, element_of
from ..integers import check_bits, saturate, sum_bounds, to_integers
from ..widths import level_widths
from .style import BLUE, GREY, INK, ORANGE, RED, SMALL, TEXT, WIDTH, bare, drawn, number, place, power, sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LANES: Final = 64
MOST_LEVELS: Final = 8
"""The largest tree that is still read."""
_TOP, _ROW, _BOTTOM = 1.0, 0.19, 0.3
_FIRST, _LAST = 1.55, WIDTH - 0.42
"""Inches from the left to the products, and to the root."""


@drawn
def adder_tree(
    codes_a: Any,
    codes_b: Any,
    fmt_a: ElementFormat | BlockFormat = E2M1,
    fmt_b: ElementFormat | BlockFormat | None = None,
    *,
    tree: AdderTree | None = None,
    width: int | None = None,
) -> Figure:
    """Codes (n,) of both sides -> products and sums of the tree, with the bits that each level needs.

    fmt_b: fmt_a if None. tree: binary if None, see `mxfp.adders`; up to 64 lanes and 8 levels. The largest
    value of a level has a thick frame. width: registers of so many signed bits; values that do not fit them
    are marked.

    Raises ValueError for codes that have no integer or do not go with the tree, and for a larger tree.

    >>> from mxfp import draw
    >>> figure = draw.adder_tree([7, 7, 1, 9], [7, 15, 2, 3])
    """
    a, b = element_of(fmt_a), element_of(fmt_a if fmt_b is None else fmt_b)
    x, y = to_integers(codes_a, a), to_integers(codes_b, b)
    if x.ndim != 1 or x.shape != y.shape or not 2 <= x.size <= MOST_LANES:
        raise ValueError(
            f"a tree is drawn over 2 … {MOST_LANES} codes of either side, as many of both, "
            f"got {x.shape} and {y.shape}"
        )
    shape = balanced(x.size) if tree is None else tree
    if shape.depth > MOST_LEVELS:
        raise ValueError(f"a tree of up to {MOST_LEVELS} levels is drawn, this one has {shape.depth}")
    held = shape.sums([p * q for p, q in zip(x.tolist(), y.tolist(), strict=True)])
    bits = level_widths(a, b, tree=shape)
    unit = a.lsb_exponent + b.lsb_exponent
    root = number(float(held[shape.root]) * 2.0**unit)
    figure = sheet(
        _TOP + _ROW * x.size + _BOTTOM,
        f"{x.size} products of {a.name}" + (f" × {b.name}" if a != b else "") + ", added in a tree",
        f"integers in units of {power(unit)}; the sum {_text(held[shape.root])} is {root}, before scales",
        f"A tree of adders over {x.size} products, {', '.join(map(str, held[: x.size]))}. Signed bits of its "
        f"levels: {', '.join(map(str, bits))}. The sum is {held[shape.root]} in units of {power(unit)}.",
    )
    axes = place(figure, 0, _TOP - 0.5, WIDTH, 0.5 + _ROW * x.size + _BOTTOM)
    bare(axes)
    axes.set(xlim=(0, WIDTH), ylim=(x.size - 0.5 + _BOTTOM / _ROW, -0.5 - 0.5 / _ROW))
    _heads(axes, shape, bits, a, b)
    _operands(axes, x.tolist(), y.tolist())
    _nodes(axes, shape, held, width)
    note = "Thick frame: the largest of its level."
    if width is not None:
        note += f" Crossed out: does not fit signed {width} bits."
    axes.text(0.08, x.size + 0.6, note, va="center", fontsize=SMALL, color=GREY)
    return figure


def _across(tree: AdderTree, level: int) -> float:
    return _FIRST + (_LAST - _FIRST) * level / tree.depth


def _heads(axes: Axes, tree: AdderTree, bits: tuple[int, ...], a: ElementFormat, b: ElementFormat) -> None:
    """Above each level its bits, and the range that needs them."""
    counts = [
        max(n for n, m in zip(tree.counts, tree.levels, strict=True) if m == k) for k in range(len(bits))
    ]
    for level, (count, needed) in enumerate(zip(counts, bits, strict=True)):
        x = _across(tree, level)
        low, high = sum_bounds(a, b, count)
        span = f"±{_text(high)}" if low == -high else f"{_text(low)} …\n{_text(high)}"
        axes.text(x, -2.05, f"{needed} bits", ha="center", va="bottom", fontsize=TEXT, fontweight="bold")
        axes.text(x, -1.85, span, ha="center", va="top", fontsize=SMALL - 0.5, color=GREY, linespacing=0.95)
    for x, head in ((0.5, "a"), (1.13, "b")):
        axes.text(x, -1.85, head, ha="right", va="top", fontsize=SMALL, color=GREY)


def _operands(axes: Axes, a: list[int], b: list[int]) -> None:
    """The integers that each product is of."""
    for k, (x, y) in enumerate(zip(a, b, strict=True)):
        for place_, text in ((0.5, _text(x)), (0.62, "×"), (1.13, _text(y)), (1.24, "=")):
            axes.text(place_, k, text, ha="right", va="center_baseline", fontsize=SMALL)


def _nodes(axes: Axes, tree: AdderTree, held: list[Any], width: int | None) -> None:
    """Products and sums where they stand, and lines from each to the adder that takes it."""
    rows: list[float] = [float(k) for k in range(tree.lanes)]
    for inputs in tree.adders:
        rows.append(sum(rows[i] for i in inputs) / len(inputs))
    places = [(_across(tree, level), row) for level, row in zip(tree.levels, rows, strict=True)]
    for own, inputs in enumerate(tree.adders, tree.lanes):
        x, y = places[own]
        for i in inputs:
            left, row = places[i]
            axes.plot([left, x - 0.3, x], [row, y, y], color=GREY, linewidth=0.7, zorder=1)
    largest = [
        max(abs(h) for h, m in zip(held, tree.levels, strict=True) if m == k) for k in range(tree.depth + 1)
    ]
    for node, ((x, y), value) in enumerate(zip(places, held, strict=True)):
        extreme = value != 0 and abs(value) == largest[tree.levels[node]]
        broken = width is not None and int(saturate(value, check_bits(width))) != value
        frame = {
            "boxstyle": "square,pad=0.12",
            "facecolor": ORANGE if broken else "white",
            "edgecolor": RED if broken else (INK if extreme else BLUE),
            "linewidth": 1.6 if extreme or broken else 0.5,
        }
        axes.text(
            x,
            y,
            _text(value) + (" ✗" if broken else ""),
            ha="center",
            va="center",
            fontsize=SMALL,
            fontweight="bold" if extreme else "normal",
            bbox=frame,
            zorder=3,
        )


def _text(value: int) -> str:
    """An integer, or its size where that is long."""
    digits = str(value).replace("-", "−")
    return digits if len(digits) <= 7 else number(float(value), 3)
