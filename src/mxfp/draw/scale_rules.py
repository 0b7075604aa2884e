# SPDX-License-Identifier: Apache-2.0
"""The scale rules side by side on one block: which values each offers, and where the elements go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..encode import Rounding
from ..formats import MXFP4, BlockFormat
from .block import MARKS
from .fates import Block, Fate, block_of
from .style import BLUE, GREY, INK, PALE, RED, SMALL, TEXT, WIDTH, bare, drawn, number, place, sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEFT, _TOP, _STRIP, _BOTTOM = 1.22, 0.62, 1.05, 0.72
"""Inches: the text at the left, the head, the strip of a rule, the foot."""
_LINES: dict[Fate, tuple[str, float, Any]] = {
    "": (GREY, 0.6, "-"),
    "tie": (MARKS["tie"][1], 1.0, (0, (6, 1, 1, 1))),
    "to zero": (MARKS["to zero"][1], 1.2, (0, (1.5, 1))),
    "saturated": (RED, 2.0, "-"),
}
"""Fate -> colour, width and dashes of an element's line."""


@drawn
def scale_rules(values: Any, fmt: BlockFormat = MXFP4, *, rounding: Rounding = "nearest_even") -> Figure:
    """Reals (n,), n at most the block -> a strip for each scale rule of the format.

    In each strip the elements stand above, the values that the scale offers below, and a line leads from
    each element to what it becomes. Raises what `mxfp.quantize` raises, ValueError for more than one block,
    for NaN and infinities, under which every rule gives NaN, and for stochastic rounding.

    >>> from mxfp import draw
    >>> figure = draw.scale_rules([0.1, -2.3, 7.0, 2.5])
    """
    if rounding == "stochastic":
        raise ValueError("rules are compared under a rounding that gives the same every time, not stochastic")
    made = {rule: block_of(values, fmt, rule=rule, rounding=rounding) for rule in fmt.scale_rules}
    first = next(iter(made.values()))
    if not np.isfinite(first.before).all():
        raise ValueError("a block with NaN or infinity is NaN under every scale rule: nothing to draw")
    height = _TOP + _STRIP * len(made) + _BOTTOM
    figure = sheet(
        height,
        f"Scale rules of {fmt.name} on one block",
        f"{first.before.size} elements, the largest {number(float(np.abs(first.before).max()))} · {rounding}",
        _words(made),
    )
    largest = [fmt.element.max * b.factor for b in made.values()]
    reach = 1.05 * max(*largest, float(np.abs(first.before).max()))
    for n, (rule, block) in enumerate(made.items()):
        top = _TOP + _STRIP * n
        axes = place(figure, _LEFT, top + 0.08, WIDTH - _LEFT - 0.12, _STRIP - 0.2)
        _strip(axes, block, reach, last=n == len(made) - 1)
        _text(place(figure, 0.08, top, _LEFT - 0.08, _STRIP), rule, block)
    note = (
        "Above: the elements. Below: the values that the scale offers, dashed from the largest.\n"
        "Lines: thick, saturated; dotted, to zero; dashed and dotted, ties."
    )
    figure.text(0.08 / WIDTH, 0.08 / height, note, fontsize=SMALL, color=GREY)
    return figure


def _strip(axes: Axes, block: Block, reach: float, *, last: bool) -> None:
    """One rule: elements at 1, values at 0, and lines between."""
    from matplotlib.collections import LineCollection

    element = block.quantized.format.element
    axes.set(xlim=(-reach, reach), ylim=(-0.35, 1.12), yticks=[])
    axes.spines[["left"]].set_visible(False)
    axes.xaxis.set_major_formatter(lambda x, _: number(x))
    axes.tick_params(axis="x", length=3, labelbottom=last)
    if last:
        axes.set_xlabel("value", labelpad=1)
    offered = np.concatenate([-element.magnitudes[:0:-1], element.magnitudes]) * block.factor
    axes.vlines(offered, -0.35, 0, color=BLUE, linewidth=1.5 if offered.size < 64 else 0.5, label="offered")
    for limit in (-element.max * block.factor, element.max * block.factor):
        axes.vlines(limit, -0.35, 1.0, color=RED, linewidth=1.0, linestyle=(0, (4, 2)))
    ways = list(zip(block.before.tolist(), block.after.tolist(), block.fates, strict=True))
    for kind, (colour, width, dashes) in _LINES.items():
        lines = [[(x, 1), (y, 0)] for x, y, fate in ways if fate == kind]
        if lines:
            drawn_as: dict[str, Any] = {"colors": colour, "linewidths": width, "linestyles": [dashes]}
            axes.add_collection(LineCollection(lines, label=kind or "moved", **drawn_as), autolim=False)
    axes.plot(
        block.before,
        np.ones_like(block.before),
        "o",
        markersize=3.6,
        markerfacecolor="white",
        markeredgecolor=INK,
        markeredgewidth=0.8,
        label="before",
    )
    axes.axhline(0, color=PALE, linewidth=0.8, zorder=0)


def _text(axes: Axes, rule: str, block: Block) -> None:
    """What one rule does, in words."""
    bare(axes)
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.text(0, 0.9, rule, va="top", fontsize=TEXT + 0.5, fontweight="bold")
    lines = (
        f"scale {number(block.factor)}",
        f"{block.count('saturated')} saturated",
        f"{block.count('to zero')} to zero",
        f"error² {number(block.squared_error, 4)}",
    )
    axes.text(0, 0.68, "\n".join(lines), va="top", fontsize=SMALL, linespacing=1.3)


def _words(made: dict[Any, Block]) -> str:
    parts = [
        f"{rule}: scale {number(b.factor)}, {b.count('saturated')} saturated, {b.count('to zero')} to zero, "
        f"squared error {number(b.squared_error, 4)}"
        for rule, b in made.items()
    ]
    return "One block under each scale rule. " + "; ".join(parts) + "."
