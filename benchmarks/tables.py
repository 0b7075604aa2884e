# SPDX-License-Identifier: Apache-2.0
"""Results -> tables of text, which the terminal and the page both print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from mxfp.report import throughput
from mxfp.report.tables import Table

from .contest import Record
from .pair import SUITE
from .processes import Growth
from .results import Results
from .rivals import BASELINE, FLOAT16


@dataclass(frozen=True)
class Section:
    """A table, and the options of `python -m benchmarks` that measure it again."""

    table: Table
    again: str


class Versus(NamedTuple):
    """A line of the summary: ours against the fastest of some rivals, by time or by bytes a second."""

    what: str
    group: str
    ours: str
    rivals: tuple[str, ...]
    beside: str
    by_bytes: bool = False


SUMMARY: Final = (
    Versus("GEMM", "gemm", "mxfp", (BASELINE,), "BLAS float32 (sgemm)"),
    Versus("GEMM", "gemm", "mxfp", ("float16 numpy",), "float16, numpy"),
    Versus("GEMM", "gemm", "mxfp", FLOAT16, "float16, the best here"),
    Versus("GEMV", "gemv", "mxfp", (BASELINE,), "BLAS float32 (sgemv)"),
    Versus("GEMV", "gemv", "mxfp", ("float16 numpy",), "float16, numpy"),
    Versus("GEMV", "gemv", "mxfp", FLOAT16, "float16, the best here"),
    Versus("quantize(x) and GEMM", "end-to-end", "mxfp", (BASELINE,), "BLAS float32 (sgemm)"),
    Versus("quantize(x) and GEMM", "end-to-end", "mxfp", ("torch MX emulation",), "MX emulation in torch"),
    Versus("GEMM, Exact(float32)", "exact", "mxfp Exact(float32)", ("mxfp",), "Sequential(float32)"),
    Versus("GEMM, Blackwell", "blackwell", "mxfp", ("mmasim",), "mmasim"),
    Versus("quantize", "quantize", "mxfp", ("ml_dtypes cast",), "ml_dtypes cast, no scales"),
    Versus("quantize", "quantize", "mxfp", ("copy",), "a copy, by bytes", True),
    Versus("dequantize", "dequantize", "mxfp", ("ml_dtypes cast",), "ml_dtypes cast, no scales"),
    Versus("dequantize", "dequantize", "mxfp", ("copy",), "a copy, by bytes", True),
)


def sections(results: Results) -> list[Section]:
    """Every table of the results, in reading order; those without records are left out."""
    records = results.records
    found = [_summary(results), _pairs(results)]
    found += [
        _details([r for r in records if (r.suite, r.group) == ("headline", group)], group)
        for group in _unique(r.group for r in records if r.suite == "headline")
    ]
    found += [_sweep(results, letter) for letter in ("m", "k", "n")]
    found += [
        _details([r for r in records if r.group == group], group)
        for group in _unique(r.group for r in records if r.suite == "casts")
    ]
    found.append(_startup([r for r in records if r.suite == "startup"]))
    for group in _unique(g.group for g in results.memory):
        found.append(_memory([g for g in results.memory if g.group == group], group))
    return [section for section in found if section.table.rows]


def figure(value: float) -> str:
    """Three digits that count, without an exponent where people would not write one.

    >>> figure(1234.5), figure(12.34), figure(0.01234)
    ('1,234', '12.3', '0.0123')
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """Seconds with a unit that suits.

    >>> duration(0.00123), duration(1.5)
    ('1.23 ms', '1.5 s')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{figure(seconds / size)} {unit}"
    return f"{figure(seconds / 1e-9)} ns"


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _by(shape: Sequence[int]) -> str:
    return " x ".join(f"{n:,}" for n in shape)


def _most(records: Sequence[Record]) -> list[Record]:
    """Those on the most threads."""
    most = max((r.threads for r in records), default=0)
    return [r for r in records if r.threads == most]


def _fastest(records: Sequence[Record], names: tuple[str, ...]) -> Record | None:
    return min((r for r in records if r.name in names), key=lambda r: r.seconds, default=None)


def _rows(r: Record) -> str:
    return f"{round(r.share * r.shape[0]):,} of {r.shape[0]:,}"


def _range(low: float, high: float) -> str:
    return f"{figure(low)} … {figure(high)}"


def _summary(results: Results) -> Section:
    rows = []
    for line in SUMMARY:
        group = _most([r for r in results.records if (r.suite, r.group) == ("headline", line.group)])
        ours, rival = _fastest(group, (line.ours,)), _fastest(group, line.rivals)
        if ours is None or rival is None:
            continue
        ratio = throughput.ratios(rival.samples, ours.samples)
        scale = ours.moves / rival.moves if line.by_bytes else 1.0
        beside = line.beside + (f": {rival.name}" if len(line.rivals) > 1 else "")
        share = "" if rival.share == 1 else f", on {_rows(rival)} rows"
        rows.append(
            (
                line.what,
                _by(ours.shape),
                f"{figure(ours.rate)} {ours.unit}",
                beside + share,
                figure(scale * ratio.median),
                _range(scale * ratio.low, scale * ratio.high),
            )
        )
    some = _most([r for r in results.records if r.suite == "headline"])
    remark = f"{some[0].cpu}; {some[0].threads} threads on both sides; {some[0].blas}" if some else ""
    return Section(
        Table(
            "In short",
            ("work", "shape", "mxfp", "beside", "times as fast", "quartiles"),
            tuple(rows),
            remark
            and f"products are (M, K) @ (K, N), shapes M x K x N, weights prepared, activations quantized; "
            f"{remark}; numpy's float16 and ml_dtypes have one thread whatever they are given",
        ),
        "--suite headline",
    )


def _pairs(results: Results) -> Section:
    """Ours against the BLAS of the same instruction set: each BLAS kernel that ran."""
    rows = []
    for ours in results.records:
        if ours.suite not in ("headline", SUITE) or ours.name != "mxfp" or ours.baseline != BASELINE:
            continue
        same = [
            r
            for r in results.records
            if (r.suite, r.group, r.threads) == (ours.suite, ours.group, ours.threads)
        ]
        base = _fastest(same, (BASELINE,))
        if base:
            rows.append(
                (
                    ours.group,
                    _by(ours.shape),
                    str(ours.threads),
                    ours.isa,
                    ours.blas,
                    figure(ours.rate),
                    figure(base.rate),
                    figure(ours.ratio),
                    _range(ours.ratio_low, ours.ratio_high),
                )
            )
    return Section(
        Table(
            "Like against like",
            (
                "work",
                "shape",
                "threads",
                "mxfp runs",
                "BLAS runs",
                "mxfp Gop/s",
                "BLAS Gop/s",
                "times as fast",
                "quartiles",
            ),
            tuple(rows),
            "the same contest with the kernels of each instruction set: mxfp's held to it by MXFP_ISA, "
            "OpenBLAS's by OPENBLAS_CORETYPE",
        ),
        "--suite headline --only gemm --only gemv --only end-to-end",
    )


BY_BYTES: Final = ("gemv", "quantize", "dequantize")
"""Groups that memory bounds."""
TITLES: Final = {
    "gemm": "GEMM",
    "gemv": "GEMV",
    "end-to-end": "From float32: quantize(x), then GEMM",
    "exact": "The exact accumulator",
    "blackwell": "The Blackwell accumulator",
    "quantize": "float32 to MXFP4",
    "dequantize": "MXFP4 to float32",
    "to-blocks": "quantize: rules, roundings, dtypes, formats",
    "from-blocks": "dequantize: dtypes, formats",
    "memory-prepared": "Peak memory of a GEMM, prepared weights",
    "memory-unprepared": "Peak memory of a GEMM, weights as they are",
}


def _details(records: Sequence[Record], group: str) -> Section:
    first = records[0]
    moves = group in BY_BYTES
    rows = [
        (
            r.name + (f" ({r.isa})" if r.name == "mxfp" and r.isa else ""),
            str(r.threads),
            duration(r.seconds),
            f"{duration(r.low)} … {duration(r.high)}",
            figure(r.rate),
            *([figure(1e-9 * r.moves / r.seconds) if r.moves else ""] if moves else []),
            figure(r.ratio),
            "all" if r.share == 1 else _rows(r),
            f"{r.checked:,}" if r.checked else "",
        )
        for r in records
    ]
    columns = (
        "",
        "threads",
        "time",
        "quartiles",
        first.unit,
        *(["GB/s"] if moves else []),
        f"times as fast as {first.baseline}",
        "rows",
        "bits checked",
    )
    return Section(
        Table(
            f"{TITLES.get(group, group)}, {_by(first.shape)}",
            columns,
            tuple(rows),
            f"medians of {first.rounds} interleaved rounds on {first.cpu}, {first.blas}; rows: those that "
            "one call does, from which the time is scaled; bits checked: elements of the result compared "
            "with the reference before timing"
            + ("; GB/s: bytes of the weights, or of what goes in and out" if moves else "")
            + ("; copy: float32 into an array that is there already" if first.baseline == "copy" else ""),
        ),
        f"--suite {first.suite} --only {group}",
    )


def _sweep(results: Results, letter: str) -> Section:
    records = [r for r in results.records if (r.suite, r.group) == ("sweep", letter)]
    ours = [r for r in records if r.name == "mxfp"]
    place = "mkn".index(letter)
    rows = []
    for r in ours:
        base = next(b for b in records if b.name == BASELINE and (b.shape, b.threads) == (r.shape, r.threads))
        rows.append(
            (
                f"{r.shape[place]:,}",
                str(r.threads),
                duration(r.seconds),
                figure(r.rate),
                figure(base.rate),
                *([figure(1e-9 * x.moves / x.seconds) for x in (r, base)] if letter == "m" else []),
                figure(r.ratio),
                _range(r.ratio_low, r.ratio_high),
            )
        )
    name = letter.upper()
    fixed = {"m": "K x N = ", "k": "M = N = ", "n": "M = K = "}[letter]
    what = "" if not ours else _by(ours[0].shape[1:]) if letter == "m" else f"{ours[0].shape[0]:,}"
    remark = ""
    if letter == "m" and ours:
        remark = "; ".join(["GB/s: bytes of the weights, read once, over the time", *_knees(records)])
    return Section(
        Table(
            f"Sweep over {name}, {fixed}{what}",
            (
                name,
                "threads",
                "mxfp time",
                "mxfp Gop/s",
                "BLAS Gop/s",
                *(["mxfp GB/s", "BLAS GB/s"] if letter == "m" else []),
                "times as fast",
                "quartiles",
            ),
            tuple(rows),
            remark,
        ),
        f"--suite sweep --only {letter}",
    )


def _knees(records: Sequence[Record]) -> list[str]:
    """Up to which M a product takes less than twice the time of M = 1: reading the weights bounds it."""
    found = []
    for name, threads in dict.fromkeys((r.name, r.threads) for r in records):
        line = sorted(
            (r for r in records if (r.name, r.threads) == (name, threads)), key=lambda r: r.shape[0]
        )
        last = 0
        for r in line:
            if r.seconds >= 2 * line[0].seconds:
                break
            last = r.shape[0]
        found.append(
            f"{name} on {threads} thread{'s' * (threads > 1)} takes less than twice its time of "
            f"M = {line[0].shape[0]} up to M = {last:,}"
        )
    return found


def _startup(records: Sequence[Record]) -> Section:
    return Section(
        Table(
            "Fresh processes",
            ("", "time", "quartiles"),
            tuple((r.name, duration(r.seconds), f"{duration(r.low)} … {duration(r.high)}") for r in records),
            "clocked inside the process, so without Python's own start; compiled kernels lie in the disk "
            "cache; a first call holds what it loads and links, and numba's import",
        ),
        "--suite startup",
    )


def _memory(growths: Sequence[Growth], group: str) -> Section:
    return Section(
        Table(
            TITLES.get(group, group),
            ("M x K x N", "operands MB", "result MB", "peak grew by MB", "besides the result MB"),
            tuple(
                (
                    _by(g.shape),
                    f"{1e-6 * g.operands:.2f}",
                    f"{1e-6 * g.result:.2f}",
                    f"{1e-6 * g.growth:.2f}",
                    f"{1e-6 * (g.growth - g.result):.2f}",
                )
                for g in growths
            ),
            "of the resident set, in a fresh process for each line",
        ),
        "--suite memory",
    )
