# SPDX-License-Identifier: Apache-2.0
"""How large the work is and how long it may take: the full run, a quick one, and the tests'."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Sizes:
    """Shapes (M, K, N) and budgets.

    rounds, round_seconds: of a contest; sweeps have rounds of their own. limit: seconds of one call, above
    which a slice of the rows is measured; again sweeps have their own. checked: multiply-adds for which
    the reference is asked. processes: fresh ones for each figure.
    """

    gemm: Shape
    gemv: Shape
    end_to_end: Shape
    cast: tuple[int, int]
    variant: tuple[int, int]
    sweep_m: tuple[int, ...]
    weight: tuple[int, int]
    sweep_k: tuple[int, ...]
    sweep_n: tuple[int, ...]
    sweep_rest: int
    memory: tuple[int, ...]
    rounds: int
    sweep_rounds: int
    round_seconds: float
    limit: float
    sweep_limit: float
    checked: int
    processes: int


def _powers(first: int, last: int) -> tuple[int, ...]:
    return tuple(1 << n for n in range(first.bit_length() - 1, last.bit_length()))


FULL: Final = Sizes(
    gemm=(1024, 1024, 1024),
    gemv=(1, 8192, 8192),
    end_to_end=(64, 4096, 4096),
    cast=(4096, 8192),
    variant=(1024, 8192),
    sweep_m=_powers(1, 4096),
    weight=(8192, 8192),
    sweep_k=_powers(32, 8192),
    sweep_n=_powers(32, 8192),
    sweep_rest=1024,
    memory=(512, 1024, 2048, 4096),
    rounds=9,
    sweep_rounds=5,
    round_seconds=0.05,
    limit=0.5,
    sweep_limit=4.0,
    checked=1 << 22,
    processes=7,
)
QUICK: Final = Sizes(
    gemm=(256, 256, 256),
    gemv=(1, 2048, 2048),
    end_to_end=(64, 1024, 1024),
    cast=(256, 8192),
    variant=(128, 8192),
    sweep_m=(1, 16, 256),
    weight=(1024, 1024),
    sweep_k=(32, 512, 2048),
    sweep_n=(32, 512, 2048),
    sweep_rest=128,
    memory=(256, 1024),
    rounds=3,
    sweep_rounds=2,
    round_seconds=0.01,
    limit=0.05,
    sweep_limit=0.1,
    checked=1 << 18,
    processes=2,
)
TINY: Final = Sizes(
    gemm=(3, 64, 5),
    gemv=(1, 64, 6),
    end_to_end=(2, 64, 3),
    cast=(3, 64),
    variant=(2, 64),
    sweep_m=(1, 3),
    weight=(64, 4),
    sweep_k=(32, 64),
    sweep_n=(1, 3),
    sweep_rest=2,
    memory=(32, 64),
    rounds=3,
    sweep_rounds=2,
    round_seconds=0.0,
    limit=0.01,
    sweep_limit=0.01,
    checked=1 << 12,
    processes=1,
)
