# SPDX-License-Identifier: Apache-2.0
"""Read bandwidth: the first roof, over sizes from the first cache level to memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...kernels import isa, probes
from ...kernels.threads import PIECES, spread
from ..throughput import Run
from ..throughput import spread as quartiles
from .caches import Cache, level_of
from .roofline import Sample
from .rounds import by_turns
from .sizes import Budget

PATTERNS: Final = {"in order": 0, "asking 4 kB ahead": 4096}
"""Ways to read, by the bytes that are asked for in advance; the quickest counts."""
UNIT: Final = probes.READ_UNIT
"""Bytes that are read at a time."""
PAGE: Final = 4096


def words(nbytes: int) -> NDArray[Any]:
    """So many bytes as uint64, at the beginning of a page, all of them written to."""
    found = np.empty(nbytes + PAGE, np.uint8)
    first = -found.ctypes.data % PAGE
    aligned = found[first : first + nbytes].view(np.uint64)
    aligned[:] = 1
    return aligned


def reader(data: NDArray[Any], threads: int, ahead: int, *, at_least: int) -> tuple[Run, int]:
    """What reads all of `data` on so many threads, and the bytes that one call reads.

    Small data are read again and again within a call until it has read `at_least` bytes, each thread its
    own part of them, so that it stays in the thread's caches.
    """
    repeats = max(at_least // data.nbytes, 1)
    pieces = threads if repeats > 1 else PIECES * threads
    found = np.zeros(pieces, np.uint64)
    tag = isa.widest()

    def run() -> None:
        spread(probes.read, pieces, tag, data, pieces, repeats, ahead, found)

    return run, repeats * (data.nbytes // UNIT * UNIT)


def readers(data: NDArray[Any], threads: int, *, at_least: int) -> dict[str, tuple[Run, int]]:
    """A reader for each pattern, which has run once."""
    made = {name: reader(data, threads, ahead, at_least=at_least) for name, ahead in PATTERNS.items()}
    for run, _ in made.values():
        run()
    return made


def quickest(data: NDArray[Any], threads: int, budget: Budget) -> tuple[str, Run, int]:
    """The pattern that reads `data` the quickest, its run, and the bytes that a call reads."""
    made = readers(data, threads, at_least=budget.read)
    runs = [run for run, _ in made.values()]
    taken = by_turns(runs, [0.0] * len(runs), rounds=budget.rounds, seconds=budget.curve_seconds)
    name = _best({name: [1 / time for time in times] for name, times in zip(made, taken, strict=True)})
    run, moved = made[name]
    return name, run, moved


def _best(rates: dict[str, list[float]]) -> str:
    """Rates by pattern and round -> the pattern with the highest median."""
    return max(rates, key=lambda name: quartiles(rates[name]).median)


def sizes(smallest: int, largest: int) -> list[int]:
    """Sizes to read, each twice the one before.

    >>> sizes(1 << 14, 1 << 16)
    [16384, 32768, 65536]
    """
    return [smallest << n for n in range((largest // smallest).bit_length())]


def curve(
    found: Sequence[Cache], threads: int, largest: int, budget: Budget, tick: Callable[[int], None]
) -> list[Sample]:
    """The read bandwidth of every size up to `largest`, all in the same rounds."""
    smallest = budget.smallest * threads
    nbytes = sizes(smallest, max(largest, smallest))
    data = words(nbytes[-1])
    named = [
        (size, name, run, moved)
        for size in nbytes
        for name, (run, moved) in readers(data[: size // 8], threads, at_least=budget.read).items()
    ]
    runs = [run for _, _, run, _ in named]
    rests = [0.0] * len(runs)
    taken = by_turns(runs, rests, rounds=budget.rounds, seconds=budget.curve_seconds, tick=tick)
    samples = []
    for size in nbytes:
        rates = {
            name: [1e-9 * moved / time for time in times]
            for (other, name, _, moved), times in zip(named, taken, strict=True)
            if other == size
        }
        pattern = _best(rates)
        rate = quartiles(rates[pattern])
        level = level_of(size, found, threads)
        samples.append(Sample(size, level, pattern, rate.median, rate.low, rate.high))
    return samples
