# SPDX-License-Identifier: Apache-2.0
"""Accumulators over one dot product, step by step, against the exact sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..accumulate import Accumulator, Exact, Fixed, Sequential
from ..blocks import BlockArray
from ..registers import BLACKWELL_MXFP4, FixedPoint, Fused
from ..trace import trace
from .style import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    SMALL,
    WIDTH,
    drawn,
    number,
    place,
    sheet,
    short,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACCUMULATORS: Final[tuple[Accumulator, ...]] = (
    Sequential("float32"),
    Sequential("float16"),
    Sequential("bfloat16"),
    FixedPoint(16, 0),
    BLACKWELL_MXFP4,
)
STYLES: Final = (
    (BLUE, "o"),
    (RED, "s"),
    (GREEN, "^"),
    (PURPLE, "D"),
    (ORANGE, "v"),
    (SKY, "P"),
    (INK, "X"),
)
"""Colour and marker of each accumulator, in order; no more can be told apart."""
_LEFT, _TOP, _MAIN, _STRIP, _BOTTOM = 0.62, 0.62, 2.1, 0.78, 0.42


@dataclass(frozen=True)
class Run:
    """One accumulator's way: after how many products it held what, and what the exact sum was then.

    done: products added. held: exact values, None where it is NaN or infinite. exact: the exact sums.
    """

    accumulator: Accumulator
    done: tuple[int, ...]
    held: tuple[Fraction | None, ...]
    exact: tuple[Fraction, ...]
    result: float

    @property
    def errors(self) -> tuple[float, ...]:
        """Held minus exact, NaN where it is not finite."""
        pairs = zip(self.held, self.exact, strict=True)
        return tuple(float("nan") if h is None else float(h - e) for h, e in pairs)


@drawn
def accumulators(a: BlockArray, b: BlockArray, accumulators: Sequence[Accumulator] = ACCUMULATORS) -> Figure:
    """Two quantized vectors (K,) -> the running value of each accumulator, and its error, step by step.

    The exact sum is a broad grey line. A pairwise accumulator holds no running value: its result alone is
    drawn. Up to seven accumulators.

    Raises ValueError for vectors that do not match, for NaN scales and for a register that overflows.

    >>> import mxfp
    >>> from mxfp import draw
    >>> q = mxfp.quantize(draw.example.LONG_A)
    >>> figure = draw.accumulators(q, q, [mxfp.Sequential("float16")])
    """
    chosen = tuple(accumulators)
    if not 1 <= len(chosen) <= len(STYLES):
        raise ValueError(f"1 … {len(STYLES)} accumulators can be told apart in a figure, got {len(chosen)}")
    runs = [run_of(a, b, accumulator) for accumulator in chosen]
    exact = run_of(a, b, Exact("float64"))
    figure = sheet(
        _TOP + _MAIN + _STRIP * len(runs) + _BOTTOM + 0.1,
        "Accumulators, step by step",
        f"{a.shape[0]} products of {a.format.name} · the exact sum is {number(float(exact.exact[-1]), 10)}",
        _words(runs, exact),
    )
    _running(place(figure, _LEFT, _TOP, WIDTH - _LEFT - 0.15, _MAIN), exact, runs, a.shape[0])
    for n, run in enumerate(runs):
        top = _TOP + _MAIN + 0.36 + _STRIP * n
        axes = place(figure, _LEFT, top, WIDTH - _LEFT - 0.15, _STRIP - 0.34)
        _error(axes, run, STYLES[n], a.shape[0], last=n == len(runs) - 1)
    return figure


def run_of(a: BlockArray, b: BlockArray, accumulator: Accumulator) -> Run:
    """Trace two vectors, and read off what the accumulator held and what the exact sum was.

    >>> import mxfp
    >>> q = mxfp.quantize([3.0] * 64)
    >>> run = run_of(q, q, mxfp.Sequential("bfloat16"))
    >>> run.done, [float(h) for h in run.held], run.errors, run.result
    ((32, 64), [288.0, 576.0], (0.0, 0.0), 576.0)
    """
    t = trace(a, b, accumulator=accumulator)
    if t.terms.specials is not None or not len(t.terms):
        what = "holds NaN or infinities" if len(t.terms) else "has no products"
        raise ValueError(f"the dot product {what}: there is no exact sum to draw")
    factor = t.terms.factor[0] * Fraction(2) ** t.terms.factor[1]
    sums = [_value(step.state, factor) for step in Exact("float64").steps(t.terms)]
    length = a.shape[0]
    if any(np.ndim(_numbers(step.state)) for step in t.steps):  # a tree: its levels are no running value
        held, done = [_finite(float(t.result))], [length]
    else:
        held = [_value(step.state, factor) for step in t.steps]
        size = accumulator.step if isinstance(accumulator, Fused) else t.group
        done = [min((n + 1) * size, length) for n in range(len(t.steps))]
    exact = [sums[-(-n // t.group) - 1] for n in done]
    return Run(
        accumulator, tuple(done), tuple(held), tuple(e for e in exact if e is not None), float(t.result)
    )


def _numbers(state: Any) -> Any:
    return state.integers if isinstance(state, Fixed) else state


def _value(state: Any, factor: Fraction) -> Fraction | None:
    """An accumulator's state, times what the tensor scales make of it."""
    if isinstance(state, Fixed):
        return int(state.integers) * Fraction(2) ** int(state.exponent) * factor
    held = _finite(float(state))
    return None if held is None else held * factor


def _finite(value: float) -> Fraction | None:
    return Fraction(value) if np.isfinite(value) else None


def _floats(values: Sequence[Fraction | None]) -> list[float]:
    return [float("nan") if v is None else float(v) for v in values]


def _running(axes: Axes, exact: Run, runs: list[Run], length: int) -> None:
    """All running values, and the exact sum behind them."""
    (broad,) = axes.plot(
        exact.done,
        _floats(exact.exact),
        color="#BDBDBD",
        linewidth=5,
        drawstyle="steps-post",
        solid_capstyle="round",
        label="exact",
    )
    size = 4.5 if len(exact.done) <= 32 else 2.5
    for run, (colour, marker) in zip(runs, STYLES, strict=False):
        axes.plot(
            run.done,
            _floats(run.held),
            color=colour,
            marker=marker,
            markersize=size,
            markeredgecolor="white",
            markeredgewidth=0.4,
            linewidth=1.1,
            drawstyle="steps-post",
            label=str(run.accumulator),
        )
    _across(axes, length)
    axes.tick_params(labelbottom=False)
    axes.set_ylabel("running value")
    axes.legend([broad], ["exact sum"], loc="upper left", borderaxespad=0.1)


def _across(axes: Axes, length: int) -> None:
    axes.set_xlim(0, length * 1.02)
    axes.yaxis.set_major_formatter(lambda y, _: number(y))
    axes.tick_params(length=3)
    axes.grid(axis="y", color="#E5E5E5", linewidth=0.6)


def _error(axes: Axes, run: Run, style: tuple[str, str], length: int, *, last: bool) -> None:
    """How far one accumulator is from the exact sum, after each step."""
    colour, marker = style
    errors = np.array(run.errors)
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.vlines(run.done, 0, errors, color=colour, linewidth=1.4)
    axes.plot(run.done, errors, marker, color=colour, markersize=3.5, label="error")
    low, high = (float(end) for end in (np.nanmin(errors, initial=0.0), np.nanmax(errors, initial=0.0)))
    _across(axes, length)
    edge = 0.15 * (high - low) or 1.0
    axes.set_ylim(low - edge, high + edge)
    far = [y for y in (low, high) if abs(y) > 0.3 * (high - low)]
    axes.set_yticks([0.0, *far], [number(y, 3) for y in (0.0, *far)])
    axes.tick_params(labelbottom=last)
    if last:
        axes.set_xlabel("products added", labelpad=1)
    axes.plot(0.012, 1.22, marker, color=colour, markersize=5, transform=axes.transAxes, clip_on=False)
    axes.text(
        0.035,
        1.22,
        str(run.accumulator),
        transform=axes.transAxes,
        va="center_baseline",
        fontsize=SMALL,
        fontweight="bold",
    )
    axes.text(
        1, 1.22, _ending(run), transform=axes.transAxes, va="center_baseline", ha="right", fontsize=SMALL
    )


def _ending(run: Run) -> str:
    """Where an accumulator ends."""
    lost = [done for done, held in zip(run.done, run.held, strict=True) if held is None]
    if lost:
        return f"ends at {number(run.result)}, not finite from product {lost[0]} on"
    end = f"ends at {number(run.result, 10)}"
    return f"{end}, error {short(run.errors[-1])}" if any(run.errors) else f"{end}, exact at every step"


def _words(runs: list[Run], exact: Run) -> str:
    parts = "; ".join(f"{run.accumulator} {_ending(run)}" for run in runs)
    return f"Accumulators over {exact.done[-1]} products, the exact sum {number(exact.result, 10)}: {parts}."
