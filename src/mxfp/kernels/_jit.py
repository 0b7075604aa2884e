# SPDX-License-Identifier: Apache-2.0
"""One decorator for every kernel: the same options everywhere, and never `fastmath`, which changes bits."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile a function on its first call, without the GIL; cached on disk where that is possible."""
    return _cached(numba.njit(nogil=True, error_model="numpy", boundscheck=False), function)


def parallel_kernel(function: Function) -> Function:
    """The same, with `prange` spread over numba's threads; one caller at a time.

    In a process forked from one that has run a parallel kernel it runs on one thread: OpenMP's threads do
    not survive a fork, and numba ends the process that asks for them.
    """
    parallel = _cached(
        numba.njit(nogil=True, error_model="numpy", boundscheck=False, parallel=True), function
    )
    # Not cached: numba's cache cannot tell it from the parallel one.
    serial: Any = numba.njit(nogil=True, error_model="numpy", boundscheck=False)(function)

    def run(*arguments: Any) -> Any:
        with _guard.lock:
            _guard.process = _guard.process or os.getpid()
            forked = _guard.process != os.getpid()
            return (serial if forked else parallel)(*arguments)

    return cast(Function, functools.wraps(function)(run))


class _Guard:
    """A lock around parallel calls, and which process made the first.

    numba's workqueue layer aborts the process if two threads enter at once.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.process = 0

    def renew(self) -> None:
        """Have a fresh lock in a forked child: the old one may be held by a thread that is not there."""
        self.lock = threading.RLock()


_guard = _Guard()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_guard.renew)


def _cached(decorator: Any, function: Function) -> Function:
    compiled = decorator(function)
    if hasattr(compiled, "enable_caching"):  # not with NUMBA_DISABLE_JIT
        # A read-only installation without a cache directory to write to compiles anew in each process.
        with contextlib.suppress(RuntimeError, OSError):
            compiled.enable_caching()
    return compiled
