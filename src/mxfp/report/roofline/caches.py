# SPDX-License-Identifier: Apache-2.0
"""The caches of this machine, from what Linux says about them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CPUS: Final = Path("/sys/devices/system/cpu")
MEMORY: Final = "memory"
ASSUMED: Final = 32 << 20
"""Bytes of the last level where nothing is known of it."""
COLD: Final = 4
"""Times the last cache level that bytes take which are read from memory; of fewer it still holds a part."""
_UNITS: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Cache:
    """A level: bytes of one cache, and how many of them serve the CPUs that this process may use."""

    level: int
    nbytes: int
    count: int


def caches(*, root: Path = CPUS, cpus: Collection[int] | None = None) -> list[Cache]:
    """Data caches by level, the first level first; none where the system does not say.

    cpus: None is those that this process may run on.
    """
    found: dict[int, dict[str, int]] = {}
    for cpu in sorted(os.sched_getaffinity(0) if cpus is None else cpus):
        for folder in sorted(root.glob(f"cpu{cpu}/cache/index*")):
            with contextlib.suppress(OSError, ValueError, KeyError):
                text = {name: (folder / name).read_text().strip() for name in _FILES}
                if text["type"] != "Instruction":
                    size = text["size"]
                    nbytes = int(size[:-1]) * _UNITS[size[-1]]
                    found.setdefault(int(text["level"]), {})[text["shared_cpu_list"]] = nbytes
    return [Cache(level, min(sizes.values()), len(sizes)) for level, sizes in sorted(found.items())]


_FILES: Final = ("level", "type", "size", "shared_cpu_list")


def held(cache: Cache, threads: int) -> int:
    """Bytes that a level holds for so many threads: each has a cache of its own where there are enough."""
    return cache.nbytes * min(cache.count, threads)


def last_level(found: Sequence[Cache], threads: int) -> int:
    """Bytes of the last level for so many threads; ASSUMED where nothing is known.

    >>> last_level([Cache(1, 1 << 15, 8), Cache(3, 1 << 24, 2)], 4) == 2 << 24
    True
    """
    return held(found[-1], threads) if found else ASSUMED


def level_of(nbytes: int, found: Sequence[Cache], threads: int) -> str:
    """Where so many bytes, divided among the threads, lie: "L1", "L2" …, "L3 and memory", "memory".

    >>> level_of(1 << 20, [Cache(1, 1 << 15, 8), Cache(3, 1 << 24, 2)], 4)
    'L3'
    """
    for cache in found:
        if nbytes <= held(cache, threads):
            return f"L{cache.level}"
    last, name = last_level(found, threads), f"L{found[-1].level}" if found else "cache"
    if nbytes >= COLD * last:
        return MEMORY
    return f"{name} and {MEMORY}" if nbytes > last else name
