# SPDX-License-Identifier: Apache-2.0
"""Who works: processes of one's own, which leave with the one that started them, or nobody but it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from .. import __version__
from .campaign import Case
from .lines import Record
from .measure import measure

_T = TypeVar("_T")


def versions() -> tuple[str, str]:
    """Of mxfp and of numpy, whose streams of random numbers may change."""
    return __version__, np.__version__


def task(case: Case, expected: tuple[str, str]) -> Record:
    """`measure`, unless this worker has other versions than the process that asks."""
    if versions() != expected:
        raise RuntimeError(f"this worker has mxfp and numpy {versions()}, the campaign {expected}")
    return measure(case)


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Alone(Executor):
    """An executor that works in this thread, when something is submitted."""

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """The finished future; Ctrl-C goes through."""
        future: Future[_T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Pool(ProcessPoolExecutor):
    """Processes, started afresh (spawn), each with one thread.

    Ctrl-C is for the process that started them; they end with it, also if it is killed.
    """

    def __init__(self, workers: int) -> None:
        self._others = set(multiprocessing.active_children())
        with _without_interrupts():
            super().__init__(workers, mp_context=multiprocessing.get_context("spawn"), initializer=_enter)

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """As every executor; the processes that this starts inherit that Ctrl-C waits."""
        with _without_interrupts():
            return super().submit(fn, *args, **kwargs)

    def stop(self) -> None:
        """End the processes at once, whatever they are doing."""
        for process in set(multiprocessing.active_children()) - self._others:
            process.terminate()
        self.shutdown(cancel_futures=True)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Let Ctrl-C wait until the end; what is started meanwhile never hears of it, where systems can do that.

    It takes both: a handler that only notes it, as any other thread may get the signal, and a mask, which is
    what new processes inherit.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    came: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    masks = hasattr(signal, "pthread_sigmask")
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]) if masks else None
    try:
        yield
    finally:
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)


def _enter() -> None:
    """Begin a process of the pool."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["NUMBA_NUM_THREADS"] = "1"  # read when numba is loaded, which nothing here has done yet
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
