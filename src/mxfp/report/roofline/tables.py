# SPDX-License-Identifier: Apache-2.0
"""A Roofline as tables of text, as Markdown and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Final

from ..render import page
from ..tables import Table
from .caches import held
from .roofline import FLAT, HALF, Point, Roof, Roofline, Series, Trial

_UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def headline(found: Roofline) -> str:
    """One line: what was measured, and where."""
    what = f"weight ({found.n:,}, {found.k:,}), activations (M, {found.k:,}) @ weight.T"
    return f"Roofline of {found.subject}: {what}"


def tables(found: Roofline) -> list[Table]:
    """The roofline in reading order: roofs, where they cross, the products, and what they are made of."""
    return [
        *_bandwidths(found),
        _roofs(found),
        _series(found),
        *(_points(found, line) for line in found.series),
        *_trials(found),
    ]


def size(nbytes: int) -> str:
    """Bytes in the largest unit that keeps them above 1.

    >>> size(48 << 10), size(3 << 29), size(12)
    ('48 KiB', '1.5 GiB', '12 B')
    """
    for unit, name in _UNITS:
        if nbytes >= unit:
            return f"{nbytes / unit:.4g} {name}"
    return f"{nbytes} B"


def time(seconds: float) -> str:
    """Seconds in a unit that keeps them above 1.

    >>> time(0.00234), time(2e-5), time(2.5)
    ('2.34 ms', '20 µs', '2.5 s')
    """
    if math.isnan(seconds):
        return "-"
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 1e-6:.3g} µs"


def number(x: float) -> str:
    """Three digits, and no more zeros than a reader wants.

    >>> number(1234.5), number(12.345), number(float("nan")), number(float("inf"))
    ('1,234', '12.3', '-', 'never')
    """
    if math.isnan(x):
        return "-"
    if math.isinf(x):
        return "never"
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def _copies(n: int) -> str:
    return "one copy" if n == 1 else f"{n} copies by turns"


def _bandwidths(found: Roofline) -> list[Table]:
    if not found.samples:
        return []
    rows = [
        (size(s.nbytes), s.level, number(s.gbs), f"{number(s.low)} … {number(s.high)}", s.pattern)
        for s in found.samples
    ]
    levels = ", ".join(f"L{cache.level} {size(held(cache, found.threads))}" for cache in found.caches)
    return [
        Table(
            "Read bandwidth by size",
            ("bytes read", "lie in", "GB/s", "quartiles", "the quickest way"),
            tuple(rows),
            f"of all threads together, each with its own part; what the caches hold for them: "
            f"{levels or 'not known here'}",
        )
    ]


def _roof(roof: Roof, unit: str) -> tuple[str, ...]:
    spread = f"{number(roof.low)} … {number(roof.median)}" if roof.origin == "measured" else "-"
    return roof.name, f"{number(roof.value)} {unit}", spread, roof.origin, roof.how


def _roofs(found: Roofline) -> Table:
    rows = [_roof(roof, "GB/s") for roof in found.bandwidths] + [_roof(roof, "Gop/s") for roof in found.peaks]
    remark = "an operation is a multiplication or an addition"
    if any(roof.origin == "measured" for roof in (*found.bandwidths, *found.peaks)):
        remark += (
            "; a measured roof is the upper quartile of its rounds, which run between those of the products; "
            "low: the lower quartile; float16 is computed in float32, whose peak it has"
        )
    return Table("Roofs", ("roof", "value", "low … median", "origin", "how"), tuple(rows), remark)


def _series(found: Roofline) -> Table:
    columns: tuple[str, ...] = ("format", "bits/weight", "weight", "ridge op/B", "M at the ridge")
    remark = "ridge: peak / bandwidth; M at the ridge: rows at which a product has that intensity. "
    if found.timed:
        columns += ("M seen", "flat to M")
        remark += (
            "M seen: where, in the measured times, the level line of the first call meets the rising line of "
            "the quickest row; flat to: the most rows whose call takes at most "
            f"{FLAT:g} times as long as the first. "
        )
    remark += "Fewer rows are decode (GEMV), bandwidth-bound; more are prefill (GEMM), compute-bound"
    rows = []
    for line in found.series:
        row: tuple[str, ...] = (
            line.format,
            f"{line.weight_bits:.4g}",
            size(line.weight_bytes),
            f"{number(line.ridge)}{_quoted(line)}",
            number(line.crossing),
        )
        if found.timed:
            row += (number(line.seen_crossing), str(line.flat_to) if line.flat_to else "-")
        rows.append(row)
    return Table("Where each format stops being bandwidth-bound", columns, tuple(rows), remark)


def _quoted(line: Series) -> str:
    return " (quoted)" if "quoted" in (line.bandwidth.origin, line.peak.origin) else ""


def _share(line: Series) -> str:
    if line.bandwidth.origin == "quoted":
        return ""
    return "% of it: the median of the rounds, each with the bandwidth that was read in the same one; "


def _points(found: Roofline, line: Series) -> Table:
    points = [point for point in found.points if point.format == line.format]
    measured = any(point.software for point in points)
    software: dict[str, None] = dict.fromkeys(point.software for point in points if point.software)
    remark = f"roof: min({line.peak}, {line.bandwidth} x op/B)"
    if measured:
        remark += (
            f"; time: the median of a call, weights from {_copies(found.copies[line.format])}; "
            f"{_share(line)}"
            f"limit: the roof above, but software where less than {100 * HALF:g} % of it is reached"
        )
    if any(0 < point.rows < point.m for point in points):
        remark += "; * measured on fewer rows, and scaled"
    if len(software) == 1:
        remark += f"; by {next(iter(software))}"
    columns: tuple[str, ...] = ("M", "op/B", "roof Gop/s", "limit")
    if measured:
        columns = ("M", "op/B", "time", "quartiles", "Gop/s", "roof Gop/s", "% of it", "limit")
        columns += ("by",) if len(software) > 1 else ()
    rows = [_point(point, measured, len(software) > 1) for point in points]
    return Table(f"Products in {line.format}", columns, tuple(rows), remark)


def _point(point: Point, measured: bool, several: bool) -> tuple[str, ...]:
    place = f"{point.m:,}", number(point.intensity)
    if not measured:
        return *place, number(point.attainable), point.limit
    some = "*" if point.rows < point.m else ""
    row = (
        *place,
        time(point.seconds),
        f"{time(point.low)} … {time(point.high)}",
        number(point.gops) + some,
        number(point.attainable),
        f"{100 * point.share:.0f}",
        point.binds,
    )
    return (*row, point.software) if several else row


def _trials(found: Roofline) -> list[Table]:
    """What every software of a format with several took at the first M, and at its last."""
    rows = []
    for line in found.series:
        trials = [trial for trial in found.trials if trial.format == line.format]
        names = list(dict.fromkeys(trial.software for trial in trials))
        for name in names if len(names) > 1 else []:
            own = [trial for trial in trials if trial.software == name]
            rows.append((line.format, name, *_trial(found, own)))
    if not rows:
        return []
    return [
        Table(
            "Software for plain floats",
            ("format", "software", "M", "time", "Gop/s", "last M", "time", "Gop/s"),
            tuple(rows),
            "one call each, at the first M and at the last that it was asked for: the quickest at each M is "
            "in the tables above, and one that takes twice as long is not asked for more. mxfp reads weights "
            "once, widens float16 in registers and adds in float32; mxfp and BLAS: widened in slabs, which "
            "BLAS multiplies; numpy multiplies float16 in a plain loop, with one thread; BLAS is "
            f"{found.machine.blas}",
        )
    ]


def _trial(found: Roofline, own: Sequence[Trial]) -> tuple[str, ...]:
    cells: list[str] = []
    for trial in (own[0], own[-1]):
        work = 2e-9 * trial.m * found.n * found.k
        cells += [f"{trial.m:,}", time(trial.seconds), number(work / trial.seconds)]
    return tuple(cells)


def markdown(found: Roofline, pictures: Mapping[str, str] | None = None) -> str:
    """A Roofline -> Markdown text; `pictures` maps file names to what they show."""
    m = found.machine
    closing = "Nothing was measured; by `mxfp roofline`."
    if found.measured:
        closing = (
            f"Measured with numpy {m.numpy}, numba {m.numba}, {m.blas}, Python {m.python}, kernels for "
            f"{found.isa}, by `mxfp roofline`."
        )
    return page("Roofline", headline(found), "", tables(found), pictures or {}, closing)


def json_text(found: Roofline) -> str:
    """A Roofline -> JSON text, one schema: mxfp-roofline/1."""
    return json.dumps(found.as_dict(), indent=1, allow_nan=False) + "\n"
