# SPDX-License-Identifier: Apache-2.0
"""Draw an Accumulation: mean and largest error against K, as PNG and SVG (extra `plot`)."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np

from .accumulation import Accumulation, Curve
from .figures import picture

CAPTION: Final = "Error of each accumulator against K"
PICTURES: Final = ("error_by_k.png", "error_by_k.svg")
# Okabe and Ito's palette without its yellow: told apart by colour-blind readers; markers and dashes in grey.
_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
_MARKERS: Final = ("o", "s", "^", "D", "v", "X", "P", "*")
_DASHES: Final = ("-", (0, (4, 1.5)))
_THIN: Final = {"linewidth": 0.8, "linestyle": (0, (1, 1.3))}


def pictures(found: Accumulation) -> dict[str, bytes]:
    """An Accumulation -> the files of PICTURES by name; the same data give the same bytes."""
    return {name: picture(name, (9.6, 4.6), partial(_draw, found=found)) for name in PICTURES}


def _draw(figure: Any, found: Accumulation) -> None:
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    order = sorted(range(len(found.curves)), key=lambda n: -_height(found.curves[n]))
    handles, names = [], []
    for n in order:
        curve = found.curves[n]
        style = {
            "color": _COLOURS[n % len(_COLOURS)],
            "marker": _MARKERS[n % len(_MARKERS)],
            "linestyle": _DASHES[n % len(_DASHES)],
            "markersize": 5.5,
            "markeredgecolor": "white",
            "markeredgewidth": 0.6,
            "linewidth": 1.6,
        }
        (line,) = left.plot(found.ks, _positive(curve, "mean_relative"), **style)
        right.plot(found.ks, _positive(curve, "largest_relative"), **style)
        right.plot(found.ks, _bounds(curve), color=style["color"], **_THIN)
        handles.append(line)
        names.append(curve.label + _remark(curve))
    (thin,) = right.plot([], [], color="0.3", **_THIN)
    left.set(title="mean error", ylabel="error / RMS of the exact sums")
    right.set(title="largest error, and its proved bound")
    if not any(np.isfinite(_positive(curve, "mean_relative")).any() for curve in found.curves):
        left.set_ylim(2.0**-24, 1.0)  # a log axis needs limits, and there is nothing to take them from
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(_ticks(found.ks), [f"{k:,}" for k in _ticks(found.ks)])
        axes.minorticks_off()
        axes.set_xlabel("K, products added")
        axes.grid(color="0.9", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(
        [*handles, thin], [*names, "proved bound"], loc="outside right center", frameon=False, fontsize=8.5
    )
    formats = found.format if found.format == found.format_b else f"{found.format} x {found.format_b}"
    figure.suptitle(f"{found.layer} in {formats}: each accumulator against the exact sum", fontsize=10)


def _height(curve: Curve) -> float:
    """Where a curve ends, for the order of the legend; 0 if it has no error anywhere."""
    drawn = [point.mean_relative for point in curve.points if point.mean_relative > 0]
    return drawn[-1] if drawn else 0.0


def _remark(curve: Curve) -> str:
    """What a curve cannot show."""
    overflowing = [point.k for point in curve.points if point.overflowed]
    if overflowing:
        return f"\noverflows from K = {overflowing[0]:,}"
    return "" if _height(curve) else " (no error)"


def _positive(curve: Curve, figure: str) -> Any:
    """Figures for a log axis: what is 0 or unknown is not drawn."""
    values = np.array([getattr(point, figure) for point in curve.points], np.float64)
    return np.where(np.isfinite(values) & (values > 0), values, np.nan)


def _bounds(curve: Curve) -> Any:
    """The bound over the RMS, at the K where the accumulator has errors."""
    values = np.array([p.largest_bound / p.rms if p.rms else np.nan for p in curve.points], np.float64)
    return np.where(np.isnan(_positive(curve, "largest_relative")) | ~np.isfinite(values), np.nan, values)


def _ticks(ks: list[int]) -> list[int]:
    """Every K that has room: none closer to the one before it than a factor of 1.4, the last always."""
    chosen: list[int] = []
    for k in reversed(ks):
        if not chosen or chosen[-1] >= 1.4 * k:
            chosen.append(k)
    return chosen[:: -(-len(chosen) // 9)][::-1]
