# SPDX-License-Identifier: Apache-2.0
"""The suites: which contests there are, on how many threads, in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from mxfp.report import throughput

from . import casts, processes, products, rivals
from .contest import Contest, Record, hold
from .processes import Growth, Tick
from .sizes import Sizes

SUITES: Final = ("headline", "sweep", "casts", "startup", "memory")


@dataclass(frozen=True)
class Plan:
    """Something to measure: `run` gives its records, and ticks `ticks` times."""

    suite: str
    group: str
    ticks: int
    run: Callable[[Tick], Sequence[Record | Growth]]

    @property
    def title(self) -> str:
        """What the progress bar says."""
        return f"{self.suite}: {self.group}"


def plans(sizes: Sizes, threads: Sequence[int], suites: Sequence[str], only: Sequence[str]) -> list[Plan]:
    """Every plan of the suites and groups asked for; none named is all. `threads` are counts, most last."""
    found = [
        *_headline(sizes, threads),
        *_sweep(sizes, threads),
        *_casts(sizes, threads),
        Plan("startup", "startup", sizes.processes, partial(processes.startup, "startup", "startup", sizes)),
        *(
            Plan(
                "memory",
                group,
                2 * len(sizes.memory),
                partial(processes.memory, "memory", group, sizes, prepared=prepared),
            )
            for group, prepared in (("memory-prepared", True), ("memory-unprepared", False))
        ),
    ]
    return [p for p in found if p.suite in (suites or SUITES) and (not only or p.group in only)]


def _timed(sizes: Sizes, suite: str, group: str, threads: int, build: Callable[[Sizes], Contest]) -> Plan:
    """A plan that builds a contest and holds it, on so many threads."""
    rounds = sizes.sweep_rounds if suite == "sweep" else sizes.rounds

    def run(tick: Tick) -> list[Record]:
        rivals.load()
        with throughput.threads(threads), np.errstate(all="ignore"):
            return hold(
                build(sizes),
                threads=threads,
                rounds=rounds,
                seconds=sizes.round_seconds,
                tick=tick,
            )

    return Plan(suite, group, rounds, run)


def _headline(sizes: Sizes, threads: Sequence[int]) -> list[Plan]:
    suite, most = "headline", threads[-1]
    found = [
        _timed(sizes, suite, group, count, products.product(suite, group, shape))
        for group, shape in (("gemm", sizes.gemm), ("gemv", sizes.gemv))
        for count in threads
    ]
    found += [
        _timed(sizes, suite, "end-to-end", most, products.end_to_end(suite, "end-to-end", sizes.end_to_end)),
        _timed(sizes, suite, "exact", most, products.accumulators(suite, "exact", sizes.gemm)),
        _timed(sizes, suite, "blackwell", most, products.blackwell(suite, "blackwell", sizes.gemm)),
    ]
    for count in threads:
        found.append(_timed(sizes, suite, "quantize", count, casts.quantizing(suite, "quantize", count)))
        found.append(
            _timed(sizes, suite, "dequantize", count, casts.dequantizing(suite, "dequantize", count))
        )
    return found


def _sweep(sizes: Sizes, threads: Sequence[int]) -> list[Plan]:
    k, n = sizes.weight
    rest = sizes.sweep_rest
    shapes = {
        "m": [(m, k, n) for m in sizes.sweep_m],
        "k": [(rest, k, rest) for k in sizes.sweep_k],
        "n": [(rest, rest, n) for n in sizes.sweep_n],
    }
    return [
        _timed(sizes, "sweep", letter, count, products.point("sweep", letter, shape))
        for letter, listed in shapes.items()
        for count in threads
        for shape in listed
    ]


def _casts(sizes: Sizes, threads: Sequence[int]) -> list[Plan]:
    most = threads[-1]
    return [
        _timed(sizes, "casts", "to-blocks", most, casts.quantize_variants("casts", "to-blocks")),
        _timed(sizes, "casts", "from-blocks", most, casts.dequantize_variants("casts", "from-blocks")),
    ]
