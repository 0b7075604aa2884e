# SPDX-License-Identifier: Apache-2.0
"""Kernels on several threads: a range of tasks cut into pieces, which threads take until none is left.

The threads are Python's; compiled kernels run without the GIL. No layer of numba's is entered, so that
forked children and callers from several threads need no care. There are as many threads as numba is
set to use: NUMBA_NUM_THREADS, numba.set_num_threads.

A helper that has nothing to do watches for the next call for about a millisecond before it goes to sleep:
waking a thread takes as long as many products.

An interrupt may end a call anywhere. So that it leaves no lock behind, callers take plain ones, by `with`:
conditions and events take theirs in Python, and an interrupt comes between two lines of it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic, overload
from numba.np.ufunc import parallel as layers

from . import isa, tiles
from ._jit import kernel
from .alone import works_alone

_config: Any = numba.config

PIECES: Final = 4
"""Pieces for each thread: few enough to cost nothing, enough that a slow core holds up none."""
TURNS: Final = 16
"""Turns for each thread, which cost less."""
WORTH = 1.0
"""How much of a grain is worth a thread; 0 shares whatever can be shared, which tests want."""
WATCH: Final = 30_000
"""Looks at the next call before a helper sleeps, each some tens of nanoseconds after the last."""

REST: Final = 100
"""Pauses between a look that saw something and going on: by then whoever wrote it has let go of the GIL,
which is quicker than to be woken up for it."""


@kernel
def watch(tag: Any, flag: Any, seen: int, looks: int, rest: int) -> None:
    """Return a little after flag[0] is no longer `seen`, or after so many looks."""
    tiles.watch(tag, flag, seen, looks, rest)


class _Job:
    """One call of `spread`: pieces to take, room for so many helpers, and how many are at work."""

    def __init__(self, todo: Iterator[int], work: Callable[[int], None], room: int) -> None:
        self.todo, self.work, self.room = todo, work, room
        self.lock = threading.Lock()
        self.open, self.helpers = True, 0
        self.busy = threading.Lock()
        """Held until the last helper of a call that is over has left."""
        self.busy.acquire()
        self.errors: list[BaseException] = []

    def take(self) -> None:
        """Work until no piece is left."""
        for piece in self.todo:
            self.work(piece)

    def help(self, pool: _Pool) -> None:
        """The same in another thread, unless the call is over already or has no room."""
        with self.lock:
            if not (self.open and self.room):
                return
            self.room -= 1
            self.helpers += 1
        try:
            self.take()
        except BaseException as error:
            self.errors.append(error)
        with self.lock:
            self.helpers -= 1
            if not (self.helpers or self.open):
                self.busy.release()
                pool.left[0] += 1

    def close(self, pool: _Pool) -> None:
        """Let nobody join any more, and wait for those that have."""
        for _ in self.todo:  # after an interrupt: leave nothing to do
            pass
        with self.lock:
            self.open = False
            before, busy = int(pool.left[0]), self.helpers > 0
        if busy:
            watch(isa.widest(), pool.left, before, WATCH, REST)
            self.busy.acquire()

    def forget(self) -> None:
        """In a child that was forked in the middle: wait for nobody, and say what is missing."""
        self.lock = threading.Lock()
        if self.helpers:
            self.helpers = 0
            self.errors.append(RuntimeError("this process was forked from one in the middle of a call"))
            self.busy.release()


class _Pool:
    """The helpers, started by the first call that needs them; a forked child starts its own."""

    owner: _Job | None = None
    """The call that has the helpers."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew: the threads of a parent are not there in its child."""
        if self.owner is not None:
            self.owner.forget()
        self.lock = threading.Lock()
        self.owner = None
        self.calling = threading.Lock()
        self.call = threading.Condition(self.calling)
        self.called, self.left = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self.job: _Job | None = None
        self.size = 0

    def start(self, count: int) -> None:
        """Have at least `count` helpers; fewer where no thread can be had, as at the end of the process."""
        try:
            while self.size < count:
                threading.Thread(target=self.serve, name=f"mxfp-{self.size}", daemon=True).start()
                self.size += 1
        except RuntimeError:
            pass

    def serve(self) -> None:
        """A helper: wait for a call, watching and then asleep, and help with it."""
        seen = 0
        while True:
            watch(isa.widest(), self.called, seen, WATCH, REST)
            with self.call:
                while self.called[0] == seen:
                    self.call.wait()
                seen, job = int(self.called[0]), self.job
            if job is not None:
                job.help(self)
            del job

    def run(self, job: _Job) -> None:
        """Do a job with the help of others."""
        self.start(job.room)
        try:
            with self.calling:
                self.job = job
                self.called[0] += 1
                self.call.notify_all()
            job.take()
        finally:
            self.job = None
            job.close(self)
        for error in job.errors:
            raise error


_pool = _Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.forget)


def thread_count() -> int:
    """Threads that numba is set to use in this thread, asked without starting its own.

    1 with no compiler, and in a thread that is to work alone.
    """
    if _config.DISABLE_JIT or works_alone():
        return 1
    if not getattr(layers, "_is_initialized", True):
        return int(_config.NUMBA_NUM_THREADS)
    return int(numba.get_num_threads())


def spread(run: Callable[..., Any], count: int, *arguments: Any, grain: int = 1) -> None:
    """run(first, last, *arguments) until all of range(count) is done. Results must not depend on the cuts.

    grain: how many are worth a thread. A call from a second thread, while the helpers are busy, is alone.
    """
    threads = _worth(count, grain)
    pieces = min(PIECES * threads, count)

    def work(piece: int) -> None:
        run(piece * count // pieces, (piece + 1) * count // pieces, *arguments)

    if count > 0 and not (threads > 1 and _together(work, pieces, threads)):
        run(0, count, *arguments)


def share(run: Callable[..., Any], count: int, *arguments: Any, grain: int = 1) -> None:
    """The same for a kernel that cuts range(count) itself: each thread calls it once, and it takes turns.

    run(turns, count, step, *arguments) does `step` of them from every `take(turns, step)` on that is below
    count. To call a kernel costs some ten microseconds once its operands have been through the caches,
    which is as long as half a megabyte takes to read.
    """
    threads = _worth(count, grain)
    turns, step = np.zeros(1, np.int64), max(count // (TURNS * threads), 1)

    def work(piece: int) -> None:
        run(turns, count, step, *arguments)

    if count > 0 and not (threads > 1 and _together(work, threads, threads)):
        work(0)


def _worth(count: int, grain: int) -> int:
    """How many threads so much work is worth, one at least."""
    return max(min(thread_count(), count // max(int(grain * WORTH), 1)), 1)


def _together(work: Callable[[int], None], pieces: int, threads: int) -> bool:
    """Do all pieces with helpers; False, and nothing is done, if those are busy."""
    pool, job = _pool, _Job(iter(range(pieces)), work, threads - 1)
    try:
        with pool.lock:
            if pool.owner is None:
                pool.owner = job
        if pool.owner is not job:
            return False
        pool.run(job)
    finally:  # nothing is called here, or beside the owner above: that is where an interrupt can come
        if pool.owner is job:
            pool.owner = None
    return True


def take(turns: Any, step: int) -> int:
    """What turns[0] was before `step` was added to it, by no other thread at the same time."""
    turns[0] += step
    return int(turns[0]) - step


def _atomic(context: Any, turns: Any, step: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, values[0])
        return builder.atomic_rmw("add", array.data, values[1], "monotonic")

    return types.int64(turns, types.int64), generate


_add: Any = intrinsic(_atomic)


@overload(take, strict=False)
def _take(turns: Any, step: int) -> Any:
    def fast(turns: Any, step: Any) -> Any:
        return _add(turns, step)

    return fast
