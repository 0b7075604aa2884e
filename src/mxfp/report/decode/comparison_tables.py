# SPDX-License-Identifier: Apache-2.0
"""The tables that put something beside the ceiling: measurements, and what-ifs."""

from __future__ import annotations

from ..tables import Table
from .digits import gb, rate, si
from .forecast import Forecast
from .whatif import Case


def comparisons(found: Forecast) -> list[Table]:
    """What was measured, the line through it, other formats, and where another limit binds."""
    return [*_measured(found), *_fit(found), *_storage(found), *_binding(found)]


def _measured(found: Forecast) -> list[Table]:
    if not found.compared:
        return []
    rows = tuple(
        (
            "as stored" if c.measured.format is None else c.measured.format.upper(),
            f"{c.measured.context:,}",
            f"{c.measured.tokens_per_second:g}",
            rate(c.ceiling.tokens_per_second),
            f"{100 * c.share:.1f}",
            gb(c.bytes_per_second),
            c.ceiling.binds,
        )
        for c in found.compared
    )
    remark = "share: of the ceiling; GB/s: what these tokens a second read, if each reads the bytes above"
    if any(c.share > 1 for c in found.compared):
        remark += "; above 100 %: the measurement, bandwidth, context or model is not what was said here"
    columns = ("format", "context", "measured tokens/s", "at most", "share %", "GB/s", "bound by")
    return [Table("Measured", columns, rows, remark)]


def _fit(found: Forecast) -> list[Table]:
    f = found.fit
    if f is None:
        return []
    return [
        Table(
            "Time of a step against its bytes, fitted",
            ("contexts", "effective GB/s", "of the roof %", "fixed ms"),
            (
                (
                    str(f.points),
                    "-" if f.bandwidth is None else gb(f.bandwidth),
                    "-" if f.bandwidth is None else f"{100 * f.bandwidth / found.device.bandwidth:.1f}",
                    "-" if f.fixed_seconds is None else f"{1000 * f.fixed_seconds:.3g}",
                ),
            ),
            f"seconds = fixed + bytes / effective bandwidth, by least squares; {f.verdict}",
        )
    ]


def _storage(found: Forecast) -> list[Table]:
    if not found.cases:
        return []
    base = found.model.stored
    rows = tuple(
        (
            c.format,
            gb(c.stored),
            "-" if c.format == "as stored" else f"{100 * (base - c.stored) / base:.1f}",
            gb(c.roof.traffic.total / found.batch),
            f"{si(c.native_operations / found.batch)}op" if c.native_operations else "none",
            rate(c.roof.tokens_per_second),
            "" if c.measured is None else f"{c.measured:g}",
        )
        for c in found.cases
        if (c.bandwidth, c.roof.traffic.batch) == (found.device.bandwidth, found.batch)
    )
    return [
        Table(
            f"What if weights were in another format, at a context of {found.roofs[-1].traffic.context:,}",
            ("format", "stored GB", "saved %", "moved GB", "native", "tokens/s at most", "measured"),
            rows,
            "four things that are not one: saved: of the file; moved: bytes a token, which set the ceiling "
            "of decode; native: operations a token that run in the stored format itself, on a device that "
            "multiplies it on both sides (--peak FORMAT=...), while elsewhere weights are unpacked first; "
            "measured: speed, blank until somebody measured it",
        )
    ]


def _binding(found: Forecast) -> list[Table]:
    if not found.cases:
        return []
    rows = tuple(
        (
            c.format,
            f"{c.bandwidth / 1e9:g}",
            f"{c.roof.traffic.batch:,}",
            rate(c.roof.tokens_per_second),
            c.roof.binds,
            "never" if c.kv_from is None else f"{c.kv_from:,}",
            _compute_from(c),
        )
        for c in found.cases
    )
    return [
        Table(
            f"Where another limit binds, at a context of {found.roofs[-1].traffic.context:,}",
            ("format", "GB/s", "batch", "tokens/s", "bound by", "cache from", "compute from"),
            rows,
            "tokens/s: at most, of the whole batch; cache from: the context from which one sequence reads "
            "more cache than weights; compute from: the batch from which operations take longer than bytes, "
            "at this context",
        )
    ]


def _compute_from(case: Case) -> str:
    if case.roof.compute_seconds is None:
        return "no peak"
    return "never" if case.compute_from is None else f"{case.compute_from:,}"
