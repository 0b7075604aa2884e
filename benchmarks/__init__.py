# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: `python -m benchmarks`, from the root of the repository.

Contests in one process, interleaved, on the same threads, bits asserted before anything is timed. The
engines are those of `tests/engines.py`, the stopwatch is that of `mxfp report`.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The repository."""
_TESTS = str(ROOT / "tests")
if _TESTS not in sys.path:  # where the table of engines is
    sys.path.insert(0, _TESTS)
