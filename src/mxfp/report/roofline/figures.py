# SPDX-License-Identifier: Apache-2.0
"""Draw a Roofline: the roofs with the products under them, and time per call by rows (extra `plot`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from ..figures import picture
from .caches import MEMORY
from .roofline import Point, Roofline, Series
from .tables import number

CAPTION: Final = "Roofs, products under them, and time per call"
PICTURES: Final = ("roofline.png", "roofline.svg")
# Okabe and Ito's palette without its yellow, as in the other figures; markers tell apart in grey.
_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_MARKERS: Final = ("o", "s", "^", "D", "v", "X", "P")
_THIN: Final = {"color": "0.65", "linewidth": 0.8, "linestyle": (0, (1, 1.3)), "zorder": 1}
_DOTTED: Final = {"linewidth": 0.9, "linestyle": (0, (4, 2)), "zorder": 1, "alpha": 0.7}
_BEHIND: Final = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.6}
_LINE: Final = {"markersize": 5.5, "markeredgecolor": "white", "markeredgewidth": 0.6, "linewidth": 1.6}


def pictures(found: Roofline) -> dict[str, bytes]:
    """A Roofline -> the files of PICTURES by name; the same data give the same bytes."""
    size = (12.6 if found.timed else 7.4, 5.6)
    return {name: picture(name, size, partial(_draw, found=found)) for name in PICTURES}


def _draw(figure: Any, found: Roofline) -> None:
    panels = figure.subplots(1, 2, width_ratios=(3, 2)) if found.timed else [figure.subplots()]
    _roofs(panels[0], found)
    if found.timed:
        _times(panels[1], found)
    figure.suptitle(
        f"{found.subject}: activations (M, {found.k:,}) @ weight ({found.n:,}, {found.k:,}).T", fontsize=10
    )


def _own(found: Roofline, line: Series) -> list[Point]:
    return [point for point in found.points if point.format == line.format]


def _style(n: int) -> dict[str, Any]:
    return {"color": _COLOURS[n % len(_COLOURS)], "marker": _MARKERS[n % len(_MARKERS)], **_LINE}


def _roofs(axes: Any, found: Roofline) -> None:
    places = [point.intensity for point in found.points] + [line.ridge for line in found.series]
    left, right = min(places) / 2.5, max(places) * 2.5
    heights = [point.gops for point in found.points if point.software]
    heights += [point.attainable for point in found.points]
    low, high = min(heights) / 3, max(line.peak.value for line in found.series) * 6
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(low, high))
    _caches(axes, found, left, right)
    _peaks(axes, found, right)
    for roof in dict.fromkeys(line.bandwidth for line in found.series):
        under = [line for line in found.series if line.bandwidth == roof]
        end = max(line.ridge for line in under)
        axes.plot([left, end], [roof.value * left, roof.value * end], color="black", linewidth=1.6, zorder=2)
        _along(axes, left * 1.15, roof.value * left * 1.15, f"{roof}, {number(roof.value)} GB/s", "black")
    for n, line in enumerate(found.series):
        colour = _COLOURS[n % len(_COLOURS)]
        points = _own(found, line)
        ends = [(p.intensity, p.gops if p.software else p.attainable) for p in points]
        axes.plot(*zip(*ends, strict=True), label=line.format, zorder=3, **_style(n))
        for point, where in ((points[0], ends[0]), (points[-1], ends[-1])):
            axes.annotate(
                f"M = {point.m:,}",
                where,
                (6, -9),
                textcoords="offset points",
                va="center",
                fontsize=7,
                color=colour,
                bbox=_BEHIND,
            )
        axes.plot([line.ridge] * 2, [low, line.peak.value], color=colour, **_DOTTED)
    sides = {"left": "bandwidth-bound\n(decode, GEMV)", "right": "compute-bound\n(prefill, GEMM)"}
    for side, text in sides.items():
        place = 0.02 if side == "left" else 0.98
        axes.text(place, 0.975, text, transform=axes.transAxes, va="top", ha=side, fontsize=10)
    title = "Roofline" if found.timed else "Roofline, nothing timed under it"
    axes.set(title=title, xlabel="operations per byte moved", ylabel="Gop/s")
    axes.legend(loc="lower right", frameon=False)
    _plain(axes)


def _caches(axes: Any, found: Roofline, left: float, right: float) -> None:
    """The bandwidth of each cache level, the highest of its sizes."""
    levels: dict[str, float] = {}
    for sample in found.samples:
        if not sample.level.endswith(MEMORY):
            levels[sample.level] = max(levels.get(sample.level, 0.0), sample.gbs)
    start = left
    for level, gbs in sorted(levels.items(), key=lambda one: one[1]):
        axes.plot([left, right], [gbs * left, gbs * right], **_THIN)
        start *= 1.15 if start == left else 1.9  # beside the label of the line below
        _along(axes, start, gbs * start, f"{level}, {number(gbs)} GB/s", "0.45")


def _peaks(axes: Any, found: Roofline, right: float) -> None:
    for n, line in enumerate(found.series):
        same = [other.format for other in found.series if other.peak == line.peak]
        if same[0] != line.format:
            continue
        colour = "black" if len(same) > 1 else _COLOURS[n % len(_COLOURS)]
        axes.plot([line.ridge, right], [line.peak.value] * 2, color=colour, linewidth=1.6, zorder=2)
        axes.annotate(
            f"{line.peak}, {number(line.peak.value)} Gop/s",
            (right / 1.1, line.peak.value),
            (0, 3),
            textcoords="offset points",
            ha="right",
            fontsize=8,
            color=colour,
            bbox=_BEHIND,
        )


def _along(axes: Any, x: float, y: float, text: str, colour: str) -> None:
    """Text above a line through (x, y) that rises as fast as x."""
    above = 1.2 * y
    axes.text(
        x,
        above,
        text,
        rotation=math.degrees(math.atan2(above, x)),
        rotation_mode="anchor",
        transform_rotates_text=True,
        fontsize=8,
        color=colour,
        bbox=_BEHIND,
    )


def _times(axes: Any, found: Roofline) -> None:
    """Time per call by rows: level as long as it is the weights that take the time, then rising."""
    ms = sorted({point.m for point in found.points if point.software})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for n, line in enumerate(found.series):
        timed = [point for point in _own(found, line) if point.software]
        if not timed:
            continue
        style = _style(n)
        times = np.array([1e3 * point.seconds for point in timed])
        axes.plot([point.m for point in timed], times, label=line.format, zorder=3, **style)
        if len(timed) > 1:
            fewest, each = timed[0].m, min(times / [point.m for point in timed])
            meets = max(line.seen_crossing, fewest)
            thin = {**_THIN, "color": style["color"]}
            axes.plot([fewest, meets, ms[-1]], [times[0], times[0], max(each * ms[-1], times[0])], **thin)
            axes.plot([meets], [times[0]], marker="|", markersize=11, color=style["color"], zorder=4)
    axes.set_xticks(_ticks(ms), [f"{m:,}" for m in _ticks(ms)])
    axes.set(title="Time per call", xlabel="M, rows (tokens at a time)", ylabel="ms")
    axes.plot([], [], label="level, then rising:\nthey meet at |", **_THIN)
    axes.legend(loc="upper left", frameon=False, fontsize=8.5)
    _plain(axes)


def _ticks(ms: Sequence[int]) -> list[int]:
    """Every M that has room."""
    return list(ms[:: -(-len(ms) // 8)])


def _plain(axes: Any) -> None:
    axes.minorticks_off()
    axes.grid(color="0.93", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
