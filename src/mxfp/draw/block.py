# SPDX-License-Identifier: Apache-2.0
"""One block before and after: where each element was, where it is now, and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..encode import Rounding
from ..formats import MXFP4, BlockFormat, ElementFormat, ScaleRule
from .fates import Block, Fate, bits_text, block_of
from .style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    RED,
    SMALL,
    WIDTH,
    bare,
    drawn,
    number,
    place,
    sheet,
    short,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEFT, _BITS, _AFTER, _FATE = 0.9, 0.066, 0.7, 0.58
"""Inches of columns of text beside the picture: left of it; of a bit; of a value; of a word."""
_ROW, _TOP, _BOTTOM = 0.19, 0.98, 0.75
_GRID = 32
"""Magnitudes up to which every value has its line."""
MARKS: Final[dict[Fate, tuple[str, str, str]]] = {
    "": ("o", BLUE, "after"),
    "tie": ("D", GREEN, "after a tie"),
    "saturated": ("^", RED, "saturated"),
    "to zero": ("X", ORANGE, "to zero"),
}
"""Fate -> marker, colour and the word of the legend."""


@drawn
def block(
    values: Any,
    fmt: BlockFormat = MXFP4,
    *,
    rule: ScaleRule | None = None,
    rounding: Rounding = "nearest_even",
    rng: np.random.Generator | None = None,
    tensor_scale: float | None = None,
) -> Figure:
    """Reals (n,), n at most the block -> each element before and after quantizing, a row each.

    Options are those of `mxfp.quantize`. Saturated elements, those that became zero and ties have marks of
    their own. NaN and infinities make the block NaN: it has no picture then but a text.

    Raises what `mxfp.quantize` raises, and ValueError for more than one block.

    >>> from mxfp import draw
    >>> figure = draw.block([0.1, -2.3, 7.0, 2.5])
    """
    made = block_of(values, fmt, rule=rule, rounding=rounding, rng=rng, tensor_scale=tensor_scale)
    count = len(made.fates)
    figure = sheet(
        _TOP + _ROW * count + _BOTTOM,
        f"One block of {fmt.name}, before and after",
        f"rule {made.quantized.scale_rule} · scale {made.scale} · {rounding}",
        _words(made),
    )
    right = _bits_width(fmt.element) + _AFTER + _FATE
    axes = place(figure, _LEFT, _TOP, WIDTH - _LEFT - right, _ROW * count)
    _values(axes, made, fmt.element)
    _elements(axes, made)
    _columns(place(figure, 0, _TOP - 0.3, WIDTH, _ROW * count + 0.3), made, fmt.element)
    figure.legend(
        *_legend(made), loc="lower center", ncols=5, handletextpad=0.2, columnspacing=1.2, borderaxespad=0.2
    )
    return figure


def _values(axes: Axes, made: Block, element: ElementFormat) -> None:
    """The values that the scale offers, as lines; beyond the largest everything saturates."""
    largest = element.max * made.factor
    finite = np.abs(made.before[np.isfinite(made.before)])
    reach = 1.08 * max(largest, float(finite.max(initial=0.0)))
    axes.set(xlim=(-reach, reach), ylim=(len(made.fates) - 0.5, -0.5), yticks=[])
    axes.spines[["left"]].set_visible(False)
    axes.tick_params(axis="x", length=3)
    axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter(lambda x, _: number(x))
    axes.set_xlabel("value", labelpad=1)
    for row in range(0, len(made.fates), 2):
        axes.axhspan(row - 0.5, row + 0.5, color=PALE, alpha=0.3, linewidth=0, zorder=0)
    if not np.isfinite(made.after).any():
        return
    codes = element.magnitudes
    shown = codes if codes.size <= _GRID else codes[[0, -1]]
    both = np.concatenate([-shown[:0:-1], shown])
    axes.vlines(both * made.factor, *axes.get_ylim(), color=GREY, linewidth=0.4, zorder=1)
    for limit in (-largest, largest):
        axes.axvline(limit, color=RED, linewidth=1.0, linestyle=(0, (4, 2)), zorder=1)

    def scaled(x: Any) -> Any:
        return x / made.factor

    def unscaled(x: Any) -> Any:
        return x * made.factor

    top = axes.secondary_xaxis("top", functions=(scaled, unscaled))
    labelled = _apart(both, reach / made.factor)
    top.set_xticks(labelled, [number(v, 4) for v in labelled])
    top.tick_params(length=2, pad=1)
    top.set_xlabel(f"{element.name} value", labelpad=4)


def _apart(values: Any, reach: float) -> list[float]:
    """Values with room for their labels: the largest, 0 and powers of two first, then whole numbers."""

    def order(value: float) -> tuple[bool, bool, float]:
        first = abs(value) == values[-1] or value == 0
        return not first, np.frexp(value)[0] not in (0.5, -0.5), -abs(value)

    kept: list[float] = []
    for value in sorted(values.tolist(), key=order):
        wanted = value.is_integer() or abs(value) == values[-1]
        if wanted and all(abs(value - other) > 2 * reach / 15 for other in kept):
            kept.append(value + 0.0)
    return sorted(kept)


def _elements(axes: Axes, made: Block) -> None:
    """A row for each element: a ring where it was, a mark where it is, and a line between them."""
    rows = np.arange(len(made.fates))
    axes.hlines(rows, made.before, made.after, color=INK, linewidth=0.9, zorder=2)
    axes.plot(
        made.before, rows, "o", markersize=4.6, markerfacecolor="white", markeredgecolor=INK, label="before"
    )
    for fate, (marker, colour, label) in MARKS.items():
        chosen = np.array([f == fate for f in made.fates])
        axes.plot(
            made.after[chosen],
            rows[chosen],
            marker,
            color=colour,
            markersize=5.4,
            markeredgecolor="white",
            markeredgewidth=0.4,
            label=label,
            zorder=4,
        )


def _bits_width(element: ElementFormat) -> float:
    """Inches of the column of bits."""
    return 0.12 + _BITS * len(bits_text(0, element))


def _columns(axes: Axes, made: Block, element: ElementFormat) -> None:
    """The same in figures, at both sides of the picture."""
    bare(axes)
    count = len(made.fates)
    axes.set(xlim=(0, WIDTH), ylim=(count - 0.5, -0.5 - 0.3 / _ROW))
    after = WIDTH - _FATE
    ends = (0.25, _LEFT - 0.08, after - _AFTER, after - 0.1)
    rows = [("k", "before", "bits", "after")]
    for k, (x, code, y) in enumerate(zip(made.before, made.codes.tolist(), made.after, strict=True)):
        rows.append((str(k), short(x), bits_text(code, element), short(y)))
        axes.text(after, k, made.fates[k], va="center_baseline", fontsize=SMALL)
    for k, cells in enumerate(rows, -1):
        for n, (x, cell) in enumerate(zip(ends, cells, strict=True)):
            axes.text(
                x,
                k - 0.9 * (k < 0),
                cell,
                ha="right",
                va="center_baseline",
                fontsize=SMALL,
                color=GREY if n == 0 or k < 0 else INK,
                family="monospace" if n == 2 and k >= 0 else None,
            )


def _legend(made: Block) -> tuple[list[Any], list[str]]:
    """Handles and labels of what the block has."""
    from matplotlib.lines import Line2D

    ring = Line2D(
        [], [], marker="o", linestyle="", markerfacecolor="white", markeredgecolor=INK, markersize=4.6
    )
    handles, labels = [ring], ["before"]
    for fate, (marker, colour, label) in MARKS.items():
        if fate in made.fates:
            handles.append(Line2D([], [], marker=marker, linestyle="", color=colour, markersize=5.4))
            labels.append(label)
    return handles, labels


def _words(made: Block) -> str:
    counts = ", ".join(f"{made.count(fate)} {fate}" for fate in ("saturated", "to zero", "tie"))
    pairs = ", ".join(f"{number(x)} to {number(y)}" for x, y in zip(made.before, made.after, strict=True))
    return (
        f"A block of {len(made.fates)} elements with scale {made.scale}: {counts}. Each before and after: "
        f"{pairs}."
    )
