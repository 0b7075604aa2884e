# SPDX-License-Identifier: Apache-2.0
"""Points: products of M rows with one weight in every format, timed in the same rounds as the roofs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..throughput import ROUNDS, Run, seconds_of
from .roofline import Traffic, Trial
from .rounds import by_turns
from .software import Software

LIMIT: Final = 0.6
"""Seconds that a call may take; beyond, fewer rows are multiplied and the time is scaled."""
LONG: Final = 0.5
"""Seconds of all calls of a round from which on there are fewer rounds."""
FEW_ROUNDS: Final = 3
HOPELESS: Final = 2.0
MANY: Final = 64
"""A software that takes HOPELESS times as long as the quickest is not asked for more rows, once there are
MANY, or once it cannot do more in a call."""


@dataclass(frozen=True)
class Probe:
    """A roof that is measured again and again: what runs, and what one call moves or does."""

    name: str
    run: Run
    amount: float


@dataclass
class Timing:
    """A format at M rows: the quickest software, and its seconds by rounds, scaled to M rows."""

    format: str
    m: int
    software: str
    traffic: Traffic
    rows: int
    seconds: list[float]


@dataclass
class Times:
    """What was timed: formats, and roofs by the name of their probe and by M, a rate for every round."""

    timings: list[Timing] = field(default_factory=list)
    rates: dict[int, dict[str, list[float]]] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)


def measure_points(
    formats: Mapping[str, Sequence[Software]],
    ms: Sequence[int],
    probes: Sequence[Probe],
    *,
    rounds: int = ROUNDS,
    seconds: float,
    tick: Callable[[int], None],
) -> Times:
    """Formats with their software, and numbers of rows -> Times.

    For every M each software is called, its bits are checked, and the quickest of each format is timed in
    rounds with the probes. tick: called with 1 after each M.
    """
    found = Times()
    alive = {fmt: list(ways) for fmt, ways in formats.items()}
    last: dict[tuple[str, str], float] = {}
    for m in sorted(set(ms)):
        chosen: list[tuple[Software, Run, int, float]] = []
        for fmt, ways in alive.items():
            tried = [(way, *_tried(way, m, last.get((fmt, way.name), 0.0))) for way in ways]
            best = min(tried, key=lambda trial: trial[3])
            chosen.append(best)
            alive[fmt] = []
            for way, _, rows, each in tried:
                last[fmt, way.name] = each
                found.trials.append(Trial(fmt, way.name, m, each * m))
                if each <= HOPELESS * best[3] or (m < MANY and way.most_rows is None and rows == m):
                    alive[fmt].append(way)
        runs = [*(probe.run for probe in probes), *(run for _, run, _, _ in chosen)]
        for probe in probes:
            probe.run()
        long = sum(rows * each for _, _, rows, each in chosen) > LONG
        rests = [*(0.0 for _ in probes), *(way.rest for way, *_ in chosen)]
        taken = by_turns(runs, rests, rounds=min(rounds, FEW_ROUNDS) if long else rounds, seconds=seconds)
        found.rates[m] = {
            probe.name: [1e-9 * probe.amount / spent for spent in times]
            for probe, times in zip(probes, taken, strict=False)
        }
        for (way, _, rows, _), times in zip(chosen, taken[len(probes) :], strict=True):
            found.timings.append(
                Timing(way.format, m, way.name, way.traffic, rows, [spent * m / rows for spent in times])
            )
        tick(1)
    return found


def _tried(way: Software, m: int, each: float) -> tuple[Run, int, float]:
    """One software at m rows, which took `each` seconds a row before -> run, its rows, seconds a row."""
    rows = min(m, way.most_rows or m)
    if each * rows > LIMIT:
        rows = max(int(LIMIT / each), 1)
    run = way.make(rows)
    start = time.perf_counter()
    result = run()
    taken = time.perf_counter() - start
    way.check(result, rows)
    if taken < LIMIT / 4 or taken > 2 * each * rows:  # short, or longer than expected: it may have compiled
        taken = seconds_of(run, 0.0)
    time.sleep(way.rest)
    return run, rows, taken / rows
