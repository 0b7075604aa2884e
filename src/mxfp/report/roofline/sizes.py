# SPDX-License-Identifier: Apache-2.0
"""How large and how long: the default weight, what fits memory, and how long things are measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...formats import MXFP4
from .caches import COLD
from .weights import copies, strips, weight_bytes

LARGEST: Final = 16384
"""Rows and columns of the default weight at most."""
SMALLEST: Final = 1024
SHARE: Final = 0.7
"""Of the memory that is free, what all this may take."""
MAKING: Final = 6
"""Bytes for each number that is drawn: float32, and what becomes of it on the way to another format."""


@dataclass(frozen=True)
class Budget:
    """How long things are measured.

    rounds: of each. seconds, curve_seconds: that a turn lasts, of a product and of a size. read: bytes that
    a call reads at least. operations: of a thread's piece of work at a peak. tile: K of the micro-kernel's
    tile. smallest: bytes of each thread that the curve begins with. beyond: times the last cache level that
    it ends with, `most` bytes at most.
    """

    rounds: int = 5
    seconds: float = 0.03
    curve_seconds: float = 0.01
    read: int = 1 << 25
    operations: int = 1 << 26
    tile: int = 512
    smallest: int = 1 << 14
    beyond: int = 8
    most: int = 1 << 30


FULL: Final = Budget()


def needed(n: int, k: int, most_rows: int, formats: Sequence[str], last_level: int) -> int:
    """Bytes that measuring takes, about: weights, activations, results, and the memory that is read."""
    total = COLD * last_level + 3 * 4 * most_rows * (n + k) + MAKING * n * k // strips(n)
    for fmt in formats:
        nbytes = weight_bytes(fmt, n, k)
        total += nbytes * copies(nbytes, last_level)
    return total


def default_shape(
    last_level: int, formats: Sequence[str], most_rows: int, *, free: int | None = None
) -> tuple[int, int]:
    """The smallest square weight whose MXFP4 is COLD times the last cache level, from SMALLEST to LARGEST.

    Smaller where memory has no room. free: bytes of it; None asks the system.

    >>> default_shape(32 << 20, ["MXFP4"], 1, free=1 << 40)
    (16384, 16384)
    """
    side = SMALLEST
    while side < LARGEST and weight_bytes(MXFP4.name, side, side) < COLD * last_level:
        side *= 2
    room = SHARE * (available() if free is None else free)
    while side > SMALLEST and needed(side, side, most_rows, formats, last_level) > room:
        side //= 2
    return side, side


def check_room(n: int, k: int, most_rows: int, formats: Sequence[str], last_level: int) -> None:
    """ValueError where memory has no room for it."""
    wanted, free = needed(n, k, most_rows, formats, last_level), available()
    if wanted > SHARE * free:
        raise ValueError(
            f"a weight of {n:,} x {k:,} in {', '.join(formats)} and what goes with it take about "
            f"{wanted / 1e9:.1f} GB of memory, of which {free / 1e9:.1f} GB are free; ask for a smaller one "
            "or for fewer formats"
        )


def available() -> int:
    """Bytes of memory that are free, by what Linux says; 8 GB where nothing is known."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="utf-8")
        return 1024 * int(text.partition("MemAvailable:")[2].split()[0])
    except (OSError, ValueError, IndexError):
        return 8 << 30
