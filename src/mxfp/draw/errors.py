# SPDX-License-Identifier: Apache-2.0
"""Errors of real weights in each format: how large they are, and how many are of which size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..blocks import dequantize, quantize
from ..floats import real_array, to_float64
from ..formats import BLOCK_FORMATS, BlockFormat, Floats
from .style import BLUE, INK, RED, SMALL, WIDTH, drawn, number, place, sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS: Final = tuple(BLOCK_FORMATS.values())
PER_OCTAVE: Final = 4
"""Bins of a histogram for each factor of two."""
_LEFT, _TOP, _STRIP, _BOTTOM = 0.2, 0.62, 0.8, 0.42


@dataclass(frozen=True, eq=False)
class Errors:
    """The errors of one format. Sizes are over the RMS of the weights.

    sizes: abs(error) of those that are not exact, over the RMS. exact: the share without error. rms,
    largest: of all errors. sqnr_db: weights over errors, infinite without any.
    """

    format: BlockFormat
    sizes: Floats
    exact: float
    rms: float
    largest: float

    @property
    def sqnr_db(self) -> float:
        """Weights over errors, in decibels."""
        return float(-20 * np.log10(self.rms)) if self.rms else float("inf")


@drawn
def errors(weights: Any, formats: Sequence[BlockFormat] = FORMATS) -> Figure:
    """Reals (..., K), quantized along the last axis -> a histogram of error sizes for each format.

    Sizes are abs(error) over the RMS of the weights, on a logarithmic axis. Weights that a format holds
    exactly have no place on it: their share is a figure beside. A dashed line is the RMS of the errors. Rules
    and rounding are each format's default.

    Raises ValueError for no weights, for NaN and infinities, and for weights that are all zero.

    >>> from mxfp import MXFP4, draw
    >>> figure = draw.errors([[0.1, 0.7, -1.3], [2.0, -0.4, 0.9]], [MXFP4])
    """
    chosen = list(formats)
    if not chosen:
        raise ValueError(f"errors needs formats, such as {', '.join(BLOCK_FORMATS)}; got none")
    measured = [errors_of(weights, fmt) for fmt in chosen]
    count = np.asarray(weights).size
    figure = sheet(
        _TOP + _STRIP * len(measured) + _BOTTOM + 0.1,
        "Errors of weights, format by format",
        f"{count:,} weights · a strip is the share of weights by size of error · dashed: RMS of the errors",
        f"Errors of {count:,} weights over their RMS. " + "; ".join(map(_line, measured)) + ".",
    )
    edges = _edges(measured)
    for n, found in enumerate(measured):
        axes = place(figure, _LEFT, _TOP + _STRIP * n + 0.22, WIDTH - 2 * _LEFT, _STRIP - 0.3)
        _strip(axes, found, count, edges, last=n == len(measured) - 1)
    return figure


def errors_of(weights: Any, fmt: BlockFormat) -> Errors:
    """Weights (..., K) -> the Errors of one format.

    >>> from mxfp import MXFP4
    >>> found = errors_of([3.0, 2.0, 0.0, 0.75], MXFP4)
    >>> found.exact, found.sizes.size
    (1.0, 0)
    """
    given = to_float64(real_array(weights, "weights"))
    rms = float(np.sqrt(np.mean(given * given))) if given.size else 0.0
    if not 0 < rms < np.inf:
        raise ValueError("weights are one or more finite numbers that are not all zero")
    q = quantize(weights, fmt, engine="reference")
    found = np.abs(dequantize(q, dtype=np.float64, engine="reference") - given) / rms
    sizes = np.sort(found[found > 0])
    spread = float(np.sqrt(np.mean(found * found)))
    return Errors(fmt, sizes, 1 - sizes.size / given.size, spread, float(found.max()))


def _edges(measured: list[Errors]) -> Floats:
    """Edges of bins, from where the smallest 0.5 % of errors end to the largest."""
    ends = [np.log2([e.sizes[e.sizes.size // 200], e.largest]) for e in measured if e.sizes.size]
    low, high = (min(e[0] for e in ends), max(e[1] for e in ends)) if ends else (-1.0, 0.0)
    return 2.0 ** (np.arange(np.floor(low) * PER_OCTAVE, (np.ceil(high) + 0.25) * PER_OCTAVE) / PER_OCTAVE)


def _strip(axes: Axes, found: Errors, count: int, edges: Floats, *, last: bool) -> None:
    """One format's histogram, its RMS, and its figures in a line above."""
    heights = np.histogram(np.maximum(found.sizes, edges[0]), edges)[0] / count
    axes.stairs(
        heights, edges, fill=True, facecolor=BLUE, alpha=0.55, edgecolor=INK, linewidth=0.8, label="share"
    )
    axes.stairs(heights, edges, color=INK, linewidth=0.7)
    axes.set(
        xscale="log", xlim=(edges[0], edges[-1]), ylim=(0, max(1.05 * float(heights.max()), 1e-3)), yticks=[]
    )
    axes.spines[["left"]].set_visible(False)
    if found.rms:
        axes.axvline(found.rms, color=RED, linewidth=1.4, linestyle=(0, (4, 2)), label="rms")
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(lambda x, _: f"{number(100 * x)} %")
    axes.tick_params(length=3, labelbottom=last)
    if last:
        axes.set_xlabel("|error| / RMS of the weights", labelpad=1)
    name = f"{found.format.name}, {number(found.format.bits_per_element)} bits"
    style: dict[str, Any] = {"transform": axes.transAxes, "va": "bottom", "fontsize": SMALL}
    axes.text(0, 1.04, name, fontweight="bold", **style)
    axes.text(1, 1.04, _figures(found), ha="right", **style)


def _figures(found: Errors) -> str:
    sqnr = f"{found.sqnr_db:.1f} dB" if found.rms else "no error"
    return (
        f"SQNR {sqnr} · largest {number(100 * found.largest, 3)} % · exact {number(100 * found.exact, 3)} %"
    )


def _line(found: Errors) -> str:
    return f"{found.format.name}: {_figures(found)}"
