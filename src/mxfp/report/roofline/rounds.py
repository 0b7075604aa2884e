# SPDX-License-Identifier: Apache-2.0
"""Rounds in which runs take turns, and those rest whose threads do not let go of the cores at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from ..throughput import Run, seconds_of

SPIN: Final = 0.15
"""Seconds after a call in which the threads of OpenBLAS hold a core: 2**28 cycles of the clock, 103 ms on a
machine of 2.6 GHz."""


def by_turns(
    runs: Sequence[Run],
    rests: Sequence[float],
    *,
    rounds: int,
    seconds: float,
    tick: Callable[[int], None] = lambda amount: None,
) -> list[list[float]]:
    """Seconds of a call of each run, by rounds.

    Every run once a round, so that what disturbs the machine disturbs all; each round begins one run later.
    A run is called again within its turn until `seconds` have passed. rests: seconds after each run's turn
    in which nothing runs.
    """
    taken: list[list[float]] = [[] for _ in runs]
    for first in range(rounds):
        for turn in range(len(runs)):
            which = (first + turn) % len(runs)
            if taken[which] and taken[which][-1] < seconds:
                runs[which]()
            taken[which].append(seconds_of(runs[which], seconds))
            time.sleep(rests[which])
        tick(1)
    return taken
