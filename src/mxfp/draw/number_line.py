# SPDX-License-Identifier: Apache-2.0
"""The number line of an element format: values, the gaps between them, and where ties go."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

import numpy as np

from ..encode import Rounding, encode
from ..formats import E2M1, BlockFormat, ElementFormat, Floats, element_of
from .fates import bits_text
from .style import BLUE, GREY, INK, PALE, RED, SMALL, WIDTH, bare, drawn, number, place, power, sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST = 9
"""Magnitudes that a line has room for with their bits."""
_EDGE, _SPAN = 0.1, 4.45
"""Inches beside the axes of a run, and from its first value to its last."""
_TOP, _LINE = 1.05, 1.75
"""Inches above the runs, and of one with all that stands above and below it."""
_RULES: Final = {
    "nearest_even": "has the even code",
    "nearest_away": "is farther from zero",
    "toward_zero": "is nearer to zero",
}


@drawn
def number_line(fmt: ElementFormat | BlockFormat = E2M1, *, rounding: Rounding = "nearest_even") -> Figure:
    """An element format -> all values on one line, then gaps, midpoints, ties and bits of its ends.

    fmt: an element format, or a block format for its elements. rounding: whose ties are drawn; not
    "stochastic", whose ties go both ways. A format of more than nine magnitudes is drawn at both ends: the
    smallest and the largest.

    Raises TypeError for another format, ValueError for another rounding.

    >>> import mxfp
    >>> from mxfp import draw
    >>> figure = draw.number_line(mxfp.E4M3)
    """
    element = element_of(fmt)
    if rounding == "stochastic":
        raise ValueError("ties of stochastic rounding go both ways; choose another rounding")
    parts = _parts(element)
    height = _TOP + _LINE * len(parts) + 0.2
    figure = sheet(
        height,
        f"{element.name}: every value, and what lies between",
        f"{element.bits} bits · largest {number(element.max, 9)} · every value is a multiple of "
        f"{_multiple(element)}",
        _words(element, rounding),
    )
    _all(place(figure, 0.25, 0.5, WIDTH - 0.5, 0.5), element)
    for n, codes in enumerate(parts):
        _part(place(figure, _EDGE, _TOP + _LINE * n, WIDTH - 2 * _EDGE, _LINE), element, codes, rounding)
    note = f"Diamonds: midpoints. The arrow goes to the neighbour that {_RULES[rounding]} ({rounding})."
    figure.text(0.08 / WIDTH, 0.08 / height, note, fontsize=SMALL, color=GREY)
    return figure


def _multiple(element: ElementFormat) -> str:
    """The LSB, as a decimal where that is short."""
    exact = number(element.smallest_subnormal, 17)
    return exact if len(exact) <= 5 else f"{power(element.lsb_exponent)}"


def _parts(element: ElementFormat) -> list[range]:
    """Runs of codes to draw with their bits: all of a small format, else the smallest and the largest."""
    count = element.magnitudes.size
    if count <= _MOST:
        return [range(count)]
    first = count - 4
    label = (element.bits + 1) * 0.066  # inches that the bits of a code take
    while first > count - _MOST:
        shown = element.magnitudes[first - 1 :]
        if np.diff(shown).min() * _SPAN < label * (shown[-1] - shown[0]):
            break
        first -= 1
    return [range(_MOST), range(first, count)]


def _all(axes: Axes, element: ElementFormat) -> None:
    """All finite values of both signs, as ticks."""
    bare(axes)
    values = element.values[element.finite]
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.vlines(values, 0, 1, color=BLUE, linewidth=1.2 if values.size <= 64 else 0.5, label="values")
    ends = (float(values.min()), 0.0, float(values.max()))
    for x in ends:
        axes.text(x, -0.2, number(x, 9), ha="center", va="top", fontsize=SMALL)
    span = ends[2] - ends[0]
    axes.set(xlim=(ends[0] - 0.02 * span, ends[2] + 0.02 * span), ylim=(-1, 1.1))


def _part(axes: Axes, element: ElementFormat, codes: range, rounding: Rounding) -> None:
    """A run of magnitudes: gaps above, ties in the middle, values and bits below."""
    bare(axes)
    values = element.magnitudes[codes.start : codes.stop]
    exponent = _unit(element, values)
    edge = (WIDTH - 2 * _EDGE - _SPAN) / 2 / _SPAN * (values[-1] - values[0])
    axes.set(xlim=(values[0] - edge, values[-1] + edge), ylim=(-0.85, 0.85))
    axes.axhspan(-0.12, 0.12, color=PALE, alpha=0.35, linewidth=0)
    axes.axhline(0, color=INK, linewidth=0.8)
    if codes.start:
        axes.text(0.005, 0.02, "…", ha="left", va="bottom", transform=axes.get_yaxis_transform())
    axes.vlines(values, -0.12, 0.12, color=BLUE, linewidth=2.2, label="values")
    for code, value in zip(codes, values.tolist(), strict=True):
        shown = number(float(np.ldexp(value, -exponent)))
        axes.text(value, -0.2, shown, ha="center", va="top", fontweight="bold")
        digits = bits_text(code, element).replace(" ", "")
        axes.text(value, -0.46, digits, ha="center", va="top", fontsize=SMALL, family="monospace")
    _gaps(axes, values, exponent)
    _ties(axes, element, values, exponent, rounding)
    if exponent:
        unit = f"in units of {power(exponent)}"
        axes.text(values[0], -0.7, unit, ha="left", va="top", fontsize=SMALL, color=GREY)


def _unit(element: ElementFormat, values: Floats) -> int:
    """The exponent of the unit that a run is written in: 0, or that of the LSB where decimals are long."""
    return element.lsb_exponent if max(len(number(v)) for v in values) > 5 else 0


def _gaps(axes: Axes, values: Floats, exponent: int) -> None:
    """Brackets over neighbours that are equally far apart, with the distance."""
    bracket = {"arrowstyle": "|-|, widthA=0.25, widthB=0.25", "color": INK, "shrinkA": 0, "shrinkB": 0}
    start = 0
    for distance, run in groupby(np.diff(values).tolist()):
        stop = start + len(list(run))
        left, right = values[start], values[stop]
        axes.annotate("", (left, 0.62), (right, 0.62), arrowprops=bracket)
        shown = number(float(np.ldexp(distance, -exponent)))
        axes.text((left + right) / 2, 0.66, f"{shown} apart", ha="center", va="bottom", fontsize=SMALL)
        start = stop


def _ties(axes: Axes, element: ElementFormat, values: Floats, exponent: int, rounding: Rounding) -> None:
    """Midpoints, and an arrow from each to the value that it becomes."""
    middles, won = _midpoints(element, values, rounding)
    axes.plot(middles, np.zeros_like(middles), "D", color=RED, markersize=3.5, label="midpoints")
    for middle, winner in zip(middles.tolist(), won.tolist(), strict=True):
        arrow = {
            "arrowstyle": "-|>",
            "color": RED,
            "connectionstyle": f"arc3,rad={0.7 if winner < middle else -0.7}",
            "shrinkA": 1,
            "shrinkB": 0,
            "mutation_scale": 7,
        }
        axes.annotate("", (winner, 0.14), (middle, 0.06), arrowprops=arrow)
        shown = number(float(np.ldexp(middle, -exponent)))
        axes.text(middle, 0.4, shown, ha="center", va="center", fontsize=SMALL, color=RED)


def _midpoints(element: ElementFormat, values: Floats, rounding: Rounding) -> tuple[Floats, Floats]:
    """Neighbouring magnitudes -> the midpoints between them, and what each becomes."""
    middles = (values[:-1] + values[1:]) / 2
    return middles, element.values[encode(middles, element, rounding=rounding)]


def _words(element: ElementFormat, rounding: Rounding) -> str:
    few = element.magnitudes[:_MOST]
    listed = ", ".join(number(v) for v in few)
    ties = ", ".join(
        f"{number(m)} to {number(w)}" for m, w in zip(*_midpoints(element, few, rounding), strict=True)
    )
    return f"Number line of {element.name}. Its smallest magnitudes: {listed}. Ties under {rounding}: {ties}."
