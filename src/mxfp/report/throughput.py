# SPDX-License-Identifier: Apache-2.0
"""Speed of GEMM and GEMV in MXFP4, float16 and float32: one process, same threads, interleaved, medians.

The bits of the compiled product are asserted against the reference before anything is timed.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..blocks import BlockArray
from ..matmul import matmul

ROUNDS: Final = 7
ROUND_SECONDS: Final = 0.05
"""A contestant is called again within a round until this much time has passed."""
FLOAT16_WORK: Final = 1 << 25
"""Multiply-adds of float16 that numpy is asked for: it has no BLAS for float16 and takes 1 to 10 ns each."""


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

    `expected` is the reference's product, whose bits the compiled one must have. BLAS gets as many
    threads as numba has.
    """
    import numba
    import threadpoolctl

    if matmul(qa, qw).tobytes() != expected.tobytes():
        raise AssertionError(
            "the compiled product does not have the reference's bits; timing it is pointless"
        )
    with np.errstate(over="ignore", under="ignore"):
        a32, w32 = np.asarray(a, np.float32), np.asarray(w, np.float32)
        a16, w16 = a32.astype(np.float16), w32.astype(np.float16)
    rows16 = min(len(a32), max(FLOAT16_WORK // w32.size, 1))
    one = BlockArray(qa.codes[0], qa.scales[0], qa.format, -1, qa.tensor_scale)
    name = qa.format.name
    k, n = w32.shape
    # A layer's weight is stored (N, K); its transpose is a view, as a user would pass it.
    contests: list[list[tuple[str, int, Callable[[], Any]]]] = [
        [
            (name, len(a32), lambda: matmul(qa, qw)),
            ("float16 (numpy)", rows16, lambda: a16[:rows16] @ w16),
            ("float32 (BLAS)", len(a32), lambda: a32 @ w32),
        ],
        [
            (name, 1, lambda: matmul(one, qw)),
            ("float16 (numpy)", 1, lambda: a16[0] @ w16),
            ("float32 (BLAS)", 1, lambda: a32[0] @ w32),
        ],
    ]
    found = []
    with threadpoolctl.threadpool_limits(numba.get_num_threads(), "blas"), np.errstate(all="ignore"):
        for contest in contests:
            taken: list[list[float]] = [[] for _ in contest]
            for _, _, run in contest:
                run()
            for _ in range(ROUNDS):
                for times, (_, _, run) in zip(taken, contest, strict=True):
                    times.append(_seconds(run))
                tick(1)
            for times, (label, rows, _) in zip(taken, contest, strict=True):
                seconds = statistics.median(times)
                found.append(Speed(label, (rows, k, n), seconds, 2e-9 * rows * k * n / seconds))
    return found


def _seconds(run: Callable[[], Any]) -> float:
    """Mean seconds of a call, over calls that fill ROUND_SECONDS."""
    calls, start = 0, time.perf_counter()
    while True:
        run()
        calls += 1
        elapsed = time.perf_counter() - start
        if elapsed >= ROUND_SECONDS:
            return elapsed / calls
