# SPDX-License-Identifier: Apache-2.0
"""A contest: several ways to do one piece of work, bits asserted first, then timed by turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mxfp.report import throughput
from mxfp.report.throughput import Run

Expect = Callable[[Any], int]
"""Asserts the bits of a result; returns how many elements it compared."""


@dataclass(frozen=True)
class Entrant:
    """One way to do the work.

    share: how much of it one call of `run` does; times are scaled by it. moves: bytes that the whole work
    must read or write. isa: the instruction set, of mxfp's own. expect: what its first result must be.
    """

    name: str
    run: Run
    share: float = 1.0
    moves: float = 0.0
    isa: str = ""
    expect: Expect | None = None


@dataclass(frozen=True)
class Contest:
    """Entrants to one piece of work: `work` operations or elements, in `unit` a second once divided by 1e9.

    baseline: the entrant that the others' ratios are to.
    """

    suite: str
    group: str
    shape: tuple[int, ...]
    work: float
    unit: str
    baseline: str
    entrants: tuple[Entrant, ...]


@dataclass(frozen=True)
class Record:
    """What one entrant of one contest took.

    seconds: median over the rounds, for the whole work; low, high: its quartiles. ratio: how many times as
    fast as the baseline, the median of the quotients of each round; ratio_low, ratio_high: its quartiles.
    rate: work a second, in `unit`. checked: elements whose bits were compared with the reference's.
    samples: the seconds of each round.
    """

    suite: str
    group: str
    name: str
    shape: list[int]
    threads: int
    cpu: str
    blas: str
    isa: str
    seconds: float
    low: float
    high: float
    baseline: str
    ratio: float
    ratio_low: float
    ratio_high: float
    rate: float
    unit: str
    moves: float
    share: float
    checked: int
    rounds: int
    samples: list[float]


def hold(
    contest: Contest,
    *,
    threads: int,
    rounds: int,
    seconds: float | None = None,
    tick: Callable[[int], None] = lambda amount: None,
) -> list[Record]:
    """Run every entrant once, assert the bits of what must have the reference's, then time them all.

    AssertionError, before anything is timed, where the bits are wrong.
    """
    checked = []
    for entrant in contest.entrants:
        result = entrant.run()
        checked.append(entrant.expect(result) if entrant.expect else 0)
    runs = [entrant.run for entrant in contest.entrants]
    taken = throughput.interleaved(runs, rounds=rounds, seconds=seconds, tick=tick)
    return records(contest, threads, taken, checked)


def records(
    contest: Contest, threads: int, taken: list[list[float]], checked: list[int] | None = None
) -> list[Record]:
    """Seconds by entrant and round -> a record of each entrant."""
    machine = throughput.machine()
    whole = [
        [_digits(x / entrant.share) for x in times]
        for entrant, times in zip(contest.entrants, taken, strict=True)
    ]
    base = whole[[entrant.name for entrant in contest.entrants].index(contest.baseline)]
    found = []
    for entrant, times, count in zip(contest.entrants, whole, checked or [0] * len(whole), strict=True):
        middle, ratio = throughput.spread(times), throughput.ratios(base, times)
        found.append(
            Record(
                contest.suite,
                contest.group,
                entrant.name,
                list(contest.shape),
                threads,
                machine.cpu,
                machine.blas,
                entrant.isa,
                _digits(middle.median),
                _digits(middle.low),
                _digits(middle.high),
                contest.baseline,
                _digits(ratio.median),
                _digits(ratio.low),
                _digits(ratio.high),
                _digits(1e-9 * contest.work / middle.median),
                contest.unit,
                entrant.moves,
                entrant.share,
                count,
                len(times),
                times,
            )
        )
    return found


def _digits(value: float) -> float:
    """Five significant digits: more than any clock here is good for."""
    return float(f"{value:.5g}")


def sliced(make: Callable[[int], Run], rows: int, limit: float) -> tuple[Run, float]:
    """What does `rows` rows of work -> a run of all of them, or of as many as `limit` seconds allow.

    The share of the rows comes with it. Slow rivals are measured on a slice and scaled.
    """
    some = min(rows, 8)
    while True:
        run = make(some)
        run()  # compiles, or fills caches
        seconds = min(throughput.seconds_of(run, 0.0) for _ in range(2))
        if some == rows or seconds * rows / some <= limit:
            return make(rows), 1.0
        if seconds > limit / 8:
            some = min(max(int(some * limit / seconds), 1), rows)
            return make(some), some / rows
        some = min(4 * some, rows)


def picked(length: int, count: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Indices of at most `count` of `length` things, in order: the first, the last, and some between."""
    if length <= count:
        return np.arange(length)
    inner = np.random.default_rng(seed).choice(length - 2, max(count - 2, 0), replace=False) + 1
    return np.unique(np.concatenate([[0, length - 1][: max(count, 1)], inner]))


def same_bits(actual: Any, expected: Any, what: str) -> int:
    """Assert that two arrays are equal in every bit; how many elements they have."""
    found, wanted = np.ascontiguousarray(actual), np.ascontiguousarray(expected)
    if (found.dtype, found.shape, found.tobytes()) != (wanted.dtype, wanted.shape, wanted.tobytes()):
        raise AssertionError(f"{what} does not have the reference's bits; timing it is pointless")
    return int(wanted.size)
