# SPDX-License-Identifier: Apache-2.0
"""The tables of a Report: one definition, which the terminal and report.md both print."""

from __future__ import annotations

from dataclasses import dataclass

from .measure import Report


@dataclass(frozen=True)
class Table:
    """A title, column headings (all but the first right-aligned when `numeric`), rows, and a remark."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    remark: str = ""


def tables(report: Report) -> list[Table]:
    """The report as tables of text, in reading order."""
    return [
        _accuracy(report),
        _causes(report),
        _elements(report),
        _width(report),
        _stored(report),
        *_speeds(report),
    ]


def headline(report: Report) -> str:
    """One line: what was measured."""
    return (
        f"{report.layer}: activations ({report.tokens}, {report.k}) @ weight ({report.n}, {report.k}).T in "
        f"{report.format}"
    )


def _accuracy(report: Report) -> Table:
    rows = [
        (
            f"{x.name} {x.rule}".strip(),
            x.accumulator or "-",
            f"{x.figures.sqnr_db:.2f}",
            f"{100 * x.figures.relative_error:.3g}",
            f"{x.figures.max_abs_error:.3g}",
            f"{x.figures.cosine:.5f}",
            f"{100 * x.accumulator_error:.2g}",
        )
        for x in report.accuracy
    ]
    return Table(
        "Accuracy against the exact product",
        ("product", "accumulator", "SQNR", "error %", "largest", "cosine", "acc. %"),
        tuple(rows),
        "SQNR: in dB; error: Frobenius norm relative to the exact product of the unquantized inputs; "
        "largest: of any output; acc.: the error that the accumulator alone makes. float16: inputs "
        "rounded to float16, exact products, added one by one with one rounding each",
    )


def _causes(report: Report) -> Table:
    return Table(
        "Where the error comes from",
        ("scale rule", "activations alone %", "weights alone %", "both, exact sums %"),
        tuple(
            (
                c.rule,
                f"{100 * c.from_activations:.3f}",
                f"{100 * c.from_weights:.3f}",
                f"{100 * c.from_both:.3f}",
            )
            for c in report.causes
        ),
    )


def _elements(report: Report) -> Table:
    rows = []
    for cause in report.causes:
        for side, e in (("activations", cause.activations), ("weights", cause.weights)):
            rows.append(
                (
                    cause.rule,
                    side,
                    f"{100 * e.saturated:.3f}",
                    f"{100 * e.flushed:.3f}",
                    f"{100 * e.relative_error:.3f}",
                    f"2^{e.smallest_scale} … 2^{e.largest_scale}",
                )
            )
    return Table(
        "What quantizing did to the elements",
        ("scale rule", "side", "saturated %", "flushed %", "error %", "scales"),
        tuple(rows),
    )


def _width(report: Report) -> Table:
    w = report.width
    return Table(
        "Width of a sum of products",
        ("", "largest magnitude", "signed bits"),
        (
            ("met here", f"{w.largest:,}", str(w.bits_needed)),
            ("proved, any data", f"{w.bound:,}", str(w.bits_proved)),
        ),
        "in units of both LSBs; the proof is the derived bound of the formats, attained by the largest codes",
    )


def _stored(report: Report) -> Table:
    largest = report.stored[0].nbytes
    return Table(
        "Weights stored",
        ("format", "bytes", "bits a weight", "of float32"),
        tuple(
            (s.name, f"{s.nbytes:,}", f"{s.bits_per_weight:.3f}", f"1/{largest / s.nbytes:.2f}")
            for s in report.stored
        ),
    )


def _speeds(report: Report) -> list[Table]:
    half = len(report.speeds) // 2
    m = report.machine
    found = []
    for title, part in (
        ("GEMM, all tokens (prefill)", report.speeds[:half]),
        ("GEMV, one token (decode)", report.speeds[half:]),
    ):
        ours = part[0].gops
        found.append(
            Table(
                f"Speed of {title}",
                ("", "M x K x N", "seconds", "Gop/s", f"{report.format} is"),
                tuple(
                    (
                        s.name,
                        " x ".join(map(str, s.shape)),
                        f"{s.seconds:.3g}",
                        f"{s.gops:.3g}",
                        "" if s is part[0] else f"{ours / s.gops:.3g} times as fast",
                    )
                    for s in part
                ),
                f"{m.cpu}; {m.numba_threads} numba threads, {m.blas_threads} BLAS threads ({m.blas}); "
                "numpy's float16 has no BLAS and one thread; medians of interleaved rounds, bits checked "
                "first",
            )
        )
    return found
