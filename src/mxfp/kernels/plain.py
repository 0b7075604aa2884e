# SPDX-License-Identifier: Apache-2.0
"""Products of weights in float16 and float32 with few rows: what block formats are compared with.

numpy has no BLAS for float16, and BLAS packs float32 weights anew in every product of two rows or more,
which takes several times as long as to read them. Here weights are read once and multiplied on the way;
float16 becomes float32 in registers. Sums are float32.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from . import isa, vectors
from ._jit import kernel
from .threads import spread

HEIGHT: Final = 4
"""Rows at a time."""
WORK: Final = 1 << 19
"""Weights that are worth a thread."""


def widens() -> bool:
    """Whether the machine turns float16 into float32 by itself."""
    return not isa.target().startswith("x86") or "f16c" in isa.features()


def multiply(x: NDArray[Any], w: NDArray[Any]) -> NDArray[np.float32]:
    """(M, K) float32 and (N, K) float16 or float32, both C-contiguous -> x @ w.T in float32.

    K must be a multiple of 64.
    """
    (rows, length), columns = x.shape, len(w)
    if length % vectors.STEP:
        raise ValueError(f"plain.multiply takes K in multiples of {vectors.STEP}, got {length}")
    height = min(rows, HEIGHT)
    tall = -(-rows // height) * height
    padded = x
    if tall > rows:
        padded = np.zeros((tall, length), np.float32)
        padded[:rows] = x
    out = np.empty((tall, columns), np.float32)
    tag = isa.widest()
    spread(
        _columns, columns, tag, (0,) * height, (0,) * vectors.columns_of(tag), padded.reshape(-1),
        patterns(w).reshape(-1), length, out.reshape(-1), grain=max(WORK // length, 1),
    )  # fmt: skip
    return out[:rows]


def patterns(w: NDArray[Any]) -> NDArray[Any]:
    """Float16 as uint16, which kernels take; anything else as it is."""
    return w.view(np.uint16) if w.dtype == np.float16 else w


@kernel
def _columns(
    begin: int, end: int, tag: Any, height: Any, width: Any, x: Any, w: Any, length: int, out: Any
) -> None:
    """Columns begin … end of a product, some at a time."""
    rows, columns = x.size // length, w.size // length
    first = begin
    while first < end:
        several = end - first >= len(width)
        for top in range(0, rows, len(height)):
            at, place = top * length, top * columns + first
            if several:
                vectors.dots(tag, height, width, x, at, w, first * length, length, out, place, columns)
            else:
                vectors.dots(tag, height, (0,), x, at, w, first * length, length, out, place, columns)
        first += len(width) if several else 1


@kernel
def widen(tag: Any, w: Any, first: int, target: Any) -> None:
    """Rows of float16 (N, K), as patterns, from `first` on -> target (rows, K), float32."""
    length = target.shape[1]
    vectors.widen(tag, w.reshape(-1), first * length, target.reshape(-1), 0, target.size)
