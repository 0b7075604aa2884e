# SPDX-License-Identifier: Apache-2.0
"""One decorator for every kernel: the same options everywhere, and never `fastmath`, which changes bits."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable
from typing import Any, Final, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

GUARD: Final = threading.RLock()
"""Held around parallel calls: numba's workqueue layer aborts the process if two threads enter at once."""


def kernel(function: Function) -> Function:
    """Compile a function on its first call, without the GIL; cached on disk where that is possible."""
    return _cached(numba.njit(nogil=True, error_model="numpy", boundscheck=False), function)


def parallel_kernel(function: Function) -> Function:
    """The same, with `prange` spread over numba's threads; one caller at a time."""
    compiled = _cached(
        numba.njit(nogil=True, error_model="numpy", boundscheck=False, parallel=True), function
    )

    def guarded(*arguments: Any) -> Any:
        with GUARD, warnings.catch_warnings():
            # A cache that cannot be written is no concern of the caller.
            warnings.simplefilter("ignore", numba.NumbaWarning)
            return compiled(*arguments)

    return guarded  # type: ignore[return-value]


def _cached(decorator: Any, function: Function) -> Function:
    compiled = decorator(function)
    if hasattr(compiled, "enable_caching"):  # not with NUMBA_DISABLE_JIT
        # A read-only installation without a cache directory to write to compiles anew in each process.
        with contextlib.suppress(RuntimeError, OSError):
            compiled.enable_caching()
    return compiled
