# SPDX-License-Identifier: Apache-2.0
"""Pieces of a file worked on by some threads, and given back in their order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

from ..blocks import work_alone

Job = TypeVar("Job")
Result = TypeVar("Result")

MOST_THREADS: Final = 4
"""Kernels called from these have no threads of their own: each works on a tile, from reading it on."""
TILE: Final = 1 << 20
"""Elements that a thread works on at a time, about; rows are not cut."""


def thread_count() -> int:
    """Processors that this process may use, at most MOST_THREADS."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(usable, MOST_THREADS))


def in_order(work: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
    """work(job) for each, in the order of the jobs; the results of some are waiting, and no more.

    The first error is raised, and nothing is begun after it. Left early, it waits for what has begun.

    >>> list(in_order(lambda n: n * n, range(4)))
    [0, 1, 4, 9]
    """
    threads = thread_count()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="mxfp-file", initializer=work_alone)
    waiting: deque[Future[Result]] = deque()
    try:
        for job in jobs:
            waiting.append(pool.submit(work, job))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
