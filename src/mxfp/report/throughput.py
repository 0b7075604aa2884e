# SPDX-License-Identifier: Apache-2.0
"""Measuring speed: one process, same threads, interleaved rounds, medians; and what machine it was.

`interleaved`, `spread`, `ratios`, `threads` and `machine` are what the benchmarks measure with too. The
bits of a compiled product are asserted against the reference before anything is timed.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..blocks import BlockArray
from ..matmul import matmul
from ..prepared import prepare

ROUNDS: Final = 7
ROUND_SECONDS: Final = 0.05
"""A contestant is called again within a round until this much time has passed."""
SETTLE: Final = 0.03
"""Seconds of rest before a turn on several threads: idle threads of OpenBLAS spin for 2**26 cycles."""
FLOAT16_WORK: Final = 1 << 25
"""Multiply-adds of float16 that numpy is asked for: it has no BLAS for float16 and takes 1 to 10 ns each."""

Run = Callable[[], Any]
"""One contestant: called again and again, its result dropped."""


@dataclass(frozen=True)
class Spread:
    """The median of some figures, and the quartiles around it."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Figures -> their median and quartiles.

    >>> spread([3.0, 1.0, 2.0, 5.0, 4.0])
    Spread(median=3.0, low=2.0, high=4.0)
    """
    low, median, high = (float(x) for x in np.percentile(values, [25, 50, 75]))
    return Spread(median, low, high)


def ratios(of: Sequence[float], to: Sequence[float]) -> Spread:
    """Figures of the same rounds -> the spread of their quotients, taken round by round.

    >>> ratios([2.0, 4.0, 9.0], [1.0, 2.0, 3.0]).median
    2.0
    """
    return spread([x / y for x, y in zip(of, to, strict=True)])


def interleaved(
    runs: Sequence[Run],
    *,
    rounds: int = ROUNDS,
    seconds: float | None = None,
    tick: Callable[[int], None] = lambda amount: None,
) -> list[list[float]]:
    """Seconds of a call of each run, by rounds.

    Every run once a round, so that what disturbs the machine disturbs all; each round begins one run
    later. A run is called again within its turn until `seconds` (None: ROUND_SECONDS) have passed. On more
    than one thread a turn begins with a rest, so that no other library's threads still hold a core.
    """
    import numba

    enough = ROUND_SECONDS if seconds is None else seconds
    rest = SETTLE if enough and numba.get_num_threads() > 1 else 0.0
    taken: list[list[float]] = [[] for _ in runs]
    for first in range(rounds):
        for turn in range(len(runs)):
            which = (first + turn) % len(runs)
            time.sleep(rest)
            if rest and taken[which] and taken[which][-1] < enough:
                runs[which]()
            taken[which].append(seconds_of(runs[which], enough))
        tick(1)
    return taken


def seconds_of(run: Run, enough: float) -> float:
    """Mean seconds of a call, over the calls that fill `enough` seconds; one at least."""
    calls, start = 0, time.perf_counter()
    while True:
        run()
        calls += 1
        elapsed = time.perf_counter() - start
        if elapsed >= enough:
            return elapsed / calls


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """The same number of threads for numba, BLAS and torch (if it is loaded), inside the `with`."""
    import numba
    import threadpoolctl

    torch: Any = sys.modules.get("torch")
    before = numba.get_num_threads(), torch.get_num_threads() if torch else 0
    with threadpoolctl.threadpool_limits(count, "blas"):
        numba.set_num_threads(count)
        if torch:
            torch.set_num_threads(count)
        try:
            yield
        finally:
            numba.set_num_threads(before[0])
            if torch:
                torch.set_num_threads(before[1])


@dataclass(frozen=True)
class Speed:
    """One contestant on one shape: M x K x N, median seconds, billions of operations (2 M N K) a second."""

    name: str
    shape: tuple[int, int, int]
    seconds: float
    gops: float


@dataclass(frozen=True)
class Machine:
    """What the figures were measured on."""

    cpu: str
    numba_threads: int
    blas: str
    blas_threads: int
    numpy: str
    numba: str
    python: str


def machine() -> Machine:
    """Describe this machine and the libraries that do the work."""
    import numba
    import threadpoolctl

    blas = [lib for lib in threadpoolctl.threadpool_info() if lib["user_api"] == "blas"]
    first = blas[0] if blas else {"internal_api": "none", "num_threads": 1}
    kernel = first.get("architecture")
    return Machine(
        _cpu_name(),
        numba.get_num_threads(),
        f"{first['internal_api']} {first.get('version') or ''}".strip() + (f" ({kernel})" if kernel else ""),
        int(str(first["num_threads"])),
        np.__version__,
        numba.__version__,
        platform.python_version(),
    )


def _cpu_name() -> str:
    try:
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {len(os.sched_getaffinity(0))} cores"


def speeds(
    qa: BlockArray,
    qw: BlockArray,
    a: NDArray[Any],
    w: NDArray[Any],
    expected: NDArray[Any],
    tick: Callable[[int], None],
) -> list[Speed]:
    """Time (M, K) @ (K, N) and its first row alone, in MXFP4, float16 and float32.

    Weights are prepared, once. `expected` is the reference's product, whose bits the compiled one must
    have. BLAS gets as many threads as numba has.
    """
    import numba

    if matmul(qa, prepare(qw)).tobytes() != expected.tobytes():
        raise AssertionError(
            "the compiled product does not have the reference's bits; timing it is pointless"
        )
    with np.errstate(over="ignore", under="ignore"):
        a32, w32 = np.asarray(a, np.float32), np.asarray(w, np.float32)
        a16, w16 = a32.astype(np.float16), w32.astype(np.float16)
    rows16 = min(len(a32), max(FLOAT16_WORK // w32.size, 1))
    one = BlockArray(qa.codes[0], qa.scales[0], qa.format, -1, qa.tensor_scale)
    weights = prepare(qw)
    name = qa.format.name
    k, n = w32.shape
    # A layer's weight is stored (N, K); its transpose is a view, as a user would pass it.
    contests: list[list[tuple[str, int, Run]]] = [
        [
            (name, len(a32), lambda: matmul(qa, weights)),
            ("float16 (numpy)", rows16, lambda: a16[:rows16] @ w16),
            ("float32 (BLAS)", len(a32), lambda: a32 @ w32),
        ],
        [
            (name, 1, lambda: matmul(one, weights)),
            ("float16 (numpy)", 1, lambda: a16[0] @ w16),
            ("float32 (BLAS)", 1, lambda: a32[0] @ w32),
        ],
    ]
    found = []
    with threads(numba.get_num_threads()), np.errstate(all="ignore"):
        for contest in contests:
            runs = [run for _, _, run in contest]
            for run in runs:
                run()
            for times, (label, rows, _) in zip(interleaved(runs, tick=tick), contest, strict=True):
                seconds = spread(times).median
                found.append(Speed(label, (rows, k, n), seconds, 2e-9 * rows * k * n / seconds))
    return found
