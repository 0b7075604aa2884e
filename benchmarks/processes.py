# SPDX-License-Identifier: Apache-2.0
"""What needs a fresh process: import time, first calls with a warm disk cache, and peak memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .contest import Contest, Entrant, Record, records
from .sizes import Sizes

Tick = Callable[[int], None]

_CLOCK: Final = """
import time
start = time.perf_counter()
{timed}
print(time.perf_counter() - start)
"""
_FIRST: Final = """
import numpy as np, mxfp
x = np.ones((64, 1024), np.float32)
{before}
import time
start = time.perf_counter()
{timed}
print(time.perf_counter() - start)
"""
SCRIPTS: Final = {
    "import numpy, ml_dtypes": _CLOCK.format(timed="import numpy, ml_dtypes"),
    "import mxfp": _CLOCK.format(timed="import mxfp"),
    "import numba": _CLOCK.format(timed="import numba"),
    "first quantize": _FIRST.format(before="", timed="mxfp.quantize(x)"),
    "first matmul, prepared": _FIRST.format(
        before="q = mxfp.quantize(x, engine='reference')", timed="mxfp.matmul(q, mxfp.prepare(q.T))"
    ),
    "import and first matmul": _CLOCK.format(
        timed="import numpy as np, mxfp\n"
        "q = mxfp.quantize(np.ones((64, 1024), np.float32))\n"
        "mxfp.matmul(q, mxfp.prepare(q.T))"
    ),
}
"""Each prints the seconds it took. They run once beforehand, so that compiled kernels are on disk."""


def startup(suite: str, group: str, sizes: Sizes, tick: Tick) -> list[Record]:
    """Import times and first calls, each in fresh processes, by turns."""
    taken: list[list[float]] = [[] for _ in SCRIPTS]
    for script in SCRIPTS.values():
        _run(script)
    for _ in range(sizes.processes):
        for times, script in zip(taken, SCRIPTS.values(), strict=True):
            times.append(float(_run(script)))
        tick(1)
    entrants = tuple(Entrant(name, lambda: None) for name in SCRIPTS)
    contest = Contest(suite, group, (), 1e9, "a second", "import numpy, ml_dtypes", entrants)
    return records(contest, 1, taken)


@dataclass(frozen=True)
class Growth:
    """How much the peak memory of a process grew by one call.

    operands, result: bytes of the codes and scales given, and of what came back. growth: of the peak of
    the resident set, the result included.
    """

    suite: str
    group: str
    shape: list[int]
    operands: int
    result: int
    growth: int


_MEMORY: Final = """
import ctypes, json, resource, sys
import numpy as np, mxfp

def current(name):
    try:
        lines = open("/proc/self/status").read().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

def blocks(rows, k):
    rng = np.random.default_rng(rows + k)
    codes = rng.integers(0, 16, (rows, k), np.uint8)
    return mxfp.BlockArray(codes, rng.integers(120, 130, (rows, -(-k // 32)), np.uint8), mxfp.MXFP4)

m, k, n, prepared = {arguments}
small = blocks(64, 64)
mxfp.matmul(small, mxfp.prepare(small.T) if prepared else small.T)
a, b = blocks(m, k), blocks(n, k).T
right = mxfp.prepare(b) if prepared else b
operands = a.codes.nbytes + a.scales.nbytes + (right.nbytes if prepared else b.codes.nbytes + b.scales.nbytes)
try:
    ctypes.CDLL(None).malloc_trim(0)  # free pages would hide what is taken
except (AttributeError, OSError, TypeError):
    pass
try:
    open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
except OSError:
    pass
before = current("VmRSS")
result = mxfp.matmul(a, right)
print(json.dumps([operands, result.nbytes, max(current("VmHWM") - before, 0)]))
"""


def memory(suite: str, group: str, sizes: Sizes, tick: Tick, *, prepared: bool = True) -> list[Growth]:
    """Peak memory of a GEMM at growing sizes: first of the weight, then of the result."""
    found = []
    few = min(64, sizes.memory[0])
    for shape in [(few, side, side) for side in sizes.memory] + [(side, few, side) for side in sizes.memory]:
        script = _MEMORY.replace("{arguments}", repr((*shape, prepared)))
        operands, result, growth = json.loads(_run(script))
        found.append(Growth(suite, group, list(shape), operands, result, growth))
        tick(1)
    return found


def _run(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"a fresh process failed: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout.strip()
