# SPDX-License-Identifier: Apache-2.0
"""Threads in which kernels work alone. Without numba, so that a thread can say it before any is compiled."""

from __future__ import annotations

import threading

_thread = threading.local()


def work_alone() -> None:
    """Have kernels that this thread calls work in it alone: for a thread among others at the same work."""
    _thread.alone = True


def works_alone() -> bool:
    """Whether this thread asked for that."""
    return getattr(_thread, "alone", False)
