# SPDX-License-Identifier: Apache-2.0
"""Draw a Report: histograms of scales and codes, error per scale rule, throughput (extra `plot`)."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from ..formats import BLOCK_FORMATS
from .measure import Report

CAPTIONS: Final = {
    "scales.png": "Scale codes of the blocks",
    "codes.png": "Codes of the elements",
    "errors.png": "Error by scale rule and cause",
    "throughput.png": "Throughput of GEMM and GEMV",
}
# Okabe and Ito's palette: told apart by colour-blind readers and in grey.
_BLUE, _ORANGE, _GREEN = "#0072B2", "#E69F00", "#009E73"


def require_matplotlib() -> None:
    """Raise ImportError naming the extra if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ImportError(
            "figures need matplotlib; install it with: pip install 'mxfp-emulator[plot]'"
        ) from None


def pictures(report: Report) -> dict[str, bytes]:
    """A Report -> PNG files by name, see CAPTIONS."""
    require_matplotlib()
    draw = {"scales.png": _scales, "codes.png": _codes, "errors.png": _errors, "throughput.png": _throughput}
    return {name: picture(name, (8, 4.2), partial(part, report=report)) for name, part in draw.items()}


def picture(name: str, size: tuple[float, float], draw: Callable[[Any], None]) -> bytes:
    """A figure of so many inches that `draw` fills -> the bytes of a file of that name, always the same."""
    require_matplotlib()
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    kind = name.rpartition(".")[2]
    with mpl.rc_context({"svg.hashsalt": "mxfp", "svg.fonttype": "none"}):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure)
        file = io.BytesIO()
        figure.savefig(file, format=kind, dpi=130, metadata={"Date": None} if kind == "svg" else {})
    return file.getvalue()


def _pair(axes: Any, positions: Any, left: Any, right: Any) -> None:
    axes.bar(np.asarray(positions) - 0.2, left, 0.4, color=_BLUE, label="activations")
    axes.bar(
        np.asarray(positions) + 0.2, right, 0.4, color=_ORANGE, label="weights", hatch="//", edgecolor="white"
    )
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def _share(counts: list[int]) -> Any:
    return 100 * np.asarray(counts) / max(sum(counts), 1)


def _scales(figure: Any, report: Report) -> None:
    axes = figure.subplots()
    a, w = (_share(report.scale_counts[side]) for side in ("activations", "weights"))
    used = np.flatnonzero(a + w)
    shown = np.arange(used.min(), used.max() + 1)
    _pair(axes, shown, a[shown], w[shown])
    axes.set(
        title=f"{report.format}, rule {report.causes[0].rule}: scale codes",
        xlabel=f"{BLOCK_FORMATS[report.format].scale.name} code",
        ylabel="% of blocks",
    )


def _codes(figure: Any, report: Report) -> None:
    axes = figure.subplots()
    element = BLOCK_FORMATS[report.format].element
    a, w = (_share(report.code_counts[side]) for side in ("activations", "weights"))
    order = np.argsort(
        np.where(element.finite, element.values - 1e-9 * element.negative, np.inf), kind="stable"
    )
    order = order[: int(element.finite.sum())]
    positions = np.arange(order.size)
    _pair(axes, positions, a[order], w[order])
    few = order.size <= 16
    ticks = positions if few else positions[:: order.size // 8]
    axes.set_xticks(ticks, [f"{element.values[order[i]]:g}" for i in ticks])
    axes.set(
        title=f"{report.format}: how often each {element.name} value occurs",
        xlabel="value",
        ylabel="% of elements",
    )


def _errors(figure: Any, report: Report) -> None:
    axes = figure.subplots()
    positions = np.arange(len(report.causes))
    bars = (
        ("activations alone", [c.from_activations for c in report.causes], _BLUE, ""),
        ("weights alone", [c.from_weights for c in report.causes], _ORANGE, "//"),
        ("both", [c.from_both for c in report.causes], _GREEN, ".."),
    )
    for n, (label, heights, colour, hatch) in enumerate(bars):
        place = positions + 0.27 * (n - 1)
        drawn = axes.bar(
            place, 100 * np.asarray(heights), 0.25, color=colour, label=label, hatch=hatch, edgecolor="white"
        )
        axes.bar_label(drawn, fmt="%.1f", fontsize=7)
    axes.set_xticks(positions, [c.rule for c in report.causes])
    axes.set(
        title=f"{report.format}: error of the product by scale rule",
        xlabel="scale rule",
        ylabel="relative error, %",
    )
    axes.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, -0.3))
    axes.spines[["top", "right"]].set_visible(False)


def _throughput(figure: Any, report: Report) -> None:
    half = len(report.speeds) // 2
    panels = figure.subplots(1, 2)
    for axes, title, part in zip(
        panels, ("GEMM (prefill)", "GEMV (decode)"), (report.speeds[:half], report.speeds[half:]), strict=True
    ):
        drawn = axes.bar(
            [s.name.replace(" ", "\n") for s in part], [s.gops for s in part], color=[_BLUE, _ORANGE, _GREEN]
        )
        axes.bar_label(drawn, fmt="%.3g")
        axes.set(title=title, ylabel="Gop/s, log scale", yscale="log")
        axes.margins(y=0.2)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{report.machine.cpu}, {report.machine.numba_threads} threads", fontsize=9)
