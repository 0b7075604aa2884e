# SPDX-License-Identifier: Apache-2.0
"""Measure this machine's roofs and the products under them: the first step, which gives a Roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from ...kernels import isa
from .. import throughput
from ..measure import Progress, ticking
from . import memory
from .placing import points_of, series_of
from .points import measure_points
from .roofline import Roofline, Sample
from .roofs import Here, Quoted, Roofs, here
from .sizes import FULL, Budget, check_room, default_shape
from .software import load_torch, softwares
from .weights import FORMATS, Weights, copies, traffic

DEFAULT_MS: Final = tuple(1 << n for n in range(11))
DEFAULT_FORMATS: Final = ("MXFP4", "float16", "float32")
MOST: Final = 1 << 30
"""Rows, and N and K, at most."""
QUOTED: Final = (1e-9, 1e15)
"""GB/s or Gop/s that can be quoted, from and to."""


def measure(
    *,
    shape: tuple[int, int] | None = None,
    ms: Sequence[int] = DEFAULT_MS,
    formats: Sequence[str] = DEFAULT_FORMATS,
    threads: int | None = None,
    peaks: Mapping[str, float] | None = None,
    bandwidth: float | None = None,
    points: bool = True,
    budget: Budget = FULL,
    progress: Progress = lambda what, done, total: None,
) -> Roofline:
    """Roofs of this machine, and products of M rows with one weight in each format -> a Roofline.

    shape: of the weight, (N, K); None is `sizes.default_shape`. threads: None is as many as numba is set
    to. peaks: Gop/s that are quoted, by format, or by "" for all others; bandwidth: GB/s that are quoted.
    What is quoted is not measured. points: whether products are timed, or only placed.

    Raises ValueError for what does not fit memory, for a format without a micro-kernel, and for a `FULL`
    budget without the compiler, whose loops in Python would take hours; and AssertionError, before anything
    is timed, if a product has the wrong bits.
    """
    import numba

    load_torch()
    config: Any = numba.config
    most = int(config.NUMBA_NUM_THREADS)
    count = numba.get_num_threads() if threads is None else threads
    if not 1 <= count <= most:
        raise ValueError(f"there are 1 to {most} threads here (NUMBA_NUM_THREADS), got {threads}")
    where, quoted = here(count), Quoted(peaks or {}, bandwidth)
    last = where.last_level
    ms, formats = sorted(set(ms)), list(dict.fromkeys(formats))
    _check(shape or (1, 1), ms, formats, quoted)
    nothing = bandwidth is not None and not points and all(quoted.peak(fmt) is not None for fmt in formats)
    if config.DISABLE_JIT and budget is FULL and not nothing:
        raise ValueError(
            "without numba's compiler (NUMBA_DISABLE_JIT) there is nothing to measure but Python's loops; "
            "unset it, or quote both roofs and time no points"
        )
    n, k = default_shape(last, formats, ms[-1]) if shape is None else shape
    if points:
        check_room(n, k, ms[-1], formats, last)
    with throughput.threads(count), np.errstate(all="ignore"):
        roofs = Roofs(n, k, formats, quoted, where, budget)
        samples = [] if bandwidth else _samples(where, budget, progress)
        progress("making weights", 0, 1)
        weights = Weights(n, k, ms[-1], last) if points else None
        ways = {fmt: softwares(fmt, weights) for fmt in formats} if weights else {}
        times = measure_points(
            ways,
            ms if points else ms[:1],
            roofs.probes,
            rounds=budget.rounds,
            seconds=budget.seconds,
            tick=ticking(progress, "products", len(ms) if points else 1),
        )
        machine = throughput.machine()
    above = {fmt: roofs.above(fmt, times) for fmt in formats}
    moved = {fmt: traffic(fmt, n, k) for fmt in formats}
    placed = {fmt: points_of(fmt, ms, n, k, moved[fmt], above[fmt], times) for fmt in formats}
    return Roofline(
        machine,
        isa.chosen(),
        count,
        n,
        k,
        {fmt: copies(moved[fmt].weights, last) for fmt in formats},
        where.caches,
        samples,
        list(dict.fromkeys(above[fmt].bandwidth for fmt in formats)),
        list(dict.fromkeys(above[fmt].peak for fmt in formats)),
        [series_of(fmt, n, k, moved[fmt], above[fmt], placed[fmt]) for fmt in formats],
        [point for fmt in formats for point in placed[fmt]],
        times.trials,
    )


def _samples(where: Here, budget: Budget, progress: Progress) -> list[Sample]:
    """Read bandwidth from the first level to memory."""
    largest = min(budget.beyond * where.last_level, budget.most)
    tick = ticking(progress, "read bandwidth", budget.rounds)
    return memory.curve(where.caches, where.threads, largest, budget, tick)


def _check(shape: tuple[int, int], ms: Sequence[int], formats: Sequence[str], quoted: Quoted) -> None:
    """ValueError for what makes no sense."""
    if not formats or not ms or min(*shape, *ms) < 1 or max(*shape, *ms) > MOST:
        raise ValueError(
            f"a roofline takes formats, and numbers of rows and a shape from 1 to {MOST:,}, got "
            f"{list(formats)}, {list(ms)} and {shape[0]} x {shape[1]}"
        )
    for fmt in formats:
        if fmt not in FORMATS:
            raise ValueError(f"a format of the roofline is one of {', '.join(FORMATS)}, got {fmt!r}")
    for name in quoted.peaks:
        if name and name not in formats:
            raise ValueError(f"a peak was given for {name!r}, which is none of {', '.join(formats)}")
    for value in (*quoted.peaks.values(), *([] if quoted.bandwidth is None else [quoted.bandwidth])):
        if not QUOTED[0] <= value <= QUOTED[1]:
            raise ValueError(
                f"a quoted roof is a number from {QUOTED[0]:g} to {QUOTED[1]:g} of GB/s or Gop/s, got {value}"
            )
