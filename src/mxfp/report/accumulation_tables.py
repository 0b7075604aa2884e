# SPDX-License-Identifier: Apache-2.0
"""An Accumulation as tables of text, as Markdown and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from .accumulation import Accumulation, Curve
from .render import page
from .tables import Table
from .tally import Point

MOST_COLUMNS: Final = 6
"""Values of K that a table shows; JSON has all."""


def headline(found: Accumulation) -> str:
    """One line: what was compared."""
    formats = found.format if found.format == found.format_b else f"{found.format} x {found.format_b}"
    longer = (
        f"; beyond K = {found.layer_k} up to {found.joined} rows stand one behind the other"
        if found.joined > 1
        else ""
    )
    return (
        f"{found.layer}: accumulators on activations ({found.tokens}, K) @ weight ({found.n}, K).T in "
        f"{formats}, K = {found.ks[-1]}: {found.curves[0].points[-1].outputs:,} outputs{longer}"
    )


def tables(found: Accumulation) -> list[Table]:
    """The comparison in reading order: the largest K in full, then every K."""
    return [
        _errors(found),
        _bounds(found),
        *_registers(found),
        _by_k(found, "Mean error by K, % of the RMS of the exact sums", "mean_relative"),
        _by_k(found, "Largest error by K, % of the RMS of the exact sums", "largest_relative"),
    ]


def _last(found: Accumulation) -> list[tuple[Curve, Point]]:
    return [(curve, curve.points[-1]) for curve in found.curves]


def _number(x: float, scale: float = 1.0) -> str:
    if math.isnan(x):
        return "-"
    return f"{scale * x:.3g}"


def _errors(found: Accumulation) -> Table:
    rows = [
        (
            curve.label,
            _number(p.mean_error),
            _number(p.largest_error),
            _number(p.largest_ulps),
            "-" if math.isnan(p.sqnr_db) else f"{p.sqnr_db:.2f}",
            f"{p.differ:,}",
            f"{100 * p.differ / p.outputs:.3g}",
        )
        for curve, p in _last(found)
    ]
    rms = _last(found)[0][1].rms
    return Table(
        f"Error against the exact sum, K = {found.ks[-1]}",
        ("accumulator", "mean", "largest", "ulps", "SQNR", "differ", "%"),
        tuple(rows),
        f"of the same terms; RMS of the exact sums: {rms:.4g}; ulps: the largest error in units "
        "of the last place that the result has, a register's LSB; SQNR: in dB; differ: outputs that are not, "
        "bit for bit, the exact sum rounded once to their dtype",
    )


def _bounds(found: Accumulation) -> Table:
    rows = [
        (
            curve.label,
            curve.dtype,
            f"{p.overflowed:,}",
            f"{p.nan:,}",
            _number(p.largest_bound),
            _number(p.largest_ratio),
        )
        for curve, p in _last(found)
    ]
    return Table(
        f"Overflow and proved bounds, K = {found.ks[-1]}",
        ("accumulator", "dtype", "overflowed", "NaN", "bound", "error / bound"),
        tuple(rows),
        "overflowed: outputs that are infinite, or whose register did not hold a sum on the way; what has no "
        "finite result is counted here and is in none of the errors. bound: the largest proved bound of any "
        "output, infinite where one may overflow; error / bound: the largest of any output",
    )


def _registers(found: Accumulation) -> list[Table]:
    rows = []
    for curve, p in _last(found):
        if p.register_bits is None:
            continue
        where = "-"
        if p.first_overflow is not None:
            first = p.first_overflow
            where = f"block {first.block} of output {first.output}: {first.value:,}"
        rows.append((curve.label, f"{curve.register_width:,}", f"{p.register_bits:,}", where))
    table = Table(
        f"Registers, K = {found.ks[-1]}",
        ("accumulator", "bits", "bits needed", "first overflow"),
        tuple(rows),
        "needed: signed bits that hold every sum on the way, on these data; first overflow: what the "
        "register would hold there, in units of its LSB",
    )
    return [table] if rows else []


def _by_k(found: Accumulation, title: str, figure: str) -> Table:
    shown = np.unique(np.linspace(0, len(found.ks) - 1, MOST_COLUMNS).round().astype(int)).tolist()
    rows = [
        (curve.label, *(_number(getattr(curve.points[n], figure), 100) for n in shown))
        for curve in found.curves
    ]
    return Table(title, ("accumulator", *(f"{found.ks[n]:,}" for n in shown)), tuple(rows))


def markdown(found: Accumulation, pictures: Mapping[str, str] | None = None) -> str:
    """An Accumulation -> Markdown text; `pictures` maps file names to what they show."""
    title = f"Accumulators on {found.layer}"
    closing = "Made by `mxfp accumulate`."
    return page(title, headline(found), found.attribution, tables(found), pictures or {}, closing)


def json_text(found: Accumulation) -> str:
    """An Accumulation -> JSON text, one schema: mxfp-accumulate/1."""
    return json.dumps(found.as_dict(), indent=1, allow_nan=False) + "\n"
