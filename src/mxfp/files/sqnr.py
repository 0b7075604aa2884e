# SPDX-License-Identifier: Apache-2.0
"""What quantizing costs, as a ratio of signal to quantization noise (SQNR)."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..blocks import ENGINES, BlockArray, Engine, check_choice, dequantize, square_sums
from ..floats import BFLOAT16, check_subnormals

CHUNK: Final = 1 << 16
"""Elements that are squared at a time, so that their float64 stays in the cache."""
SHORT: Final = 1 << 13
"""Elements that are squared and added in one call of BLAS: few enough that it wakes no threads of its own."""


@dataclass(frozen=True)
class Sqnr:
    """Sums of squares, in float64: of the elements, and of what quantizing changed in them.

    elements: how many the sums are of. left_out: those that are NaN or infinite, on either side.

    >>> (Sqnr(2, 100.0, 1.0) + Sqnr(1, 0.0, 0.0)).db
    20.0
    """

    elements: int = 0
    signal: float = 0.0
    noise: float = 0.0
    left_out: int = 0

    def __add__(self, other: Sqnr) -> Sqnr:
        """Both together."""
        return Sqnr(
            self.elements + other.elements,
            self.signal + other.signal,
            self.noise + other.noise,
            self.left_out + other.left_out,
        )

    @property
    def db(self) -> float:
        """10 log10(signal / noise); infinite if nothing was changed."""
        if not self.noise:
            return math.inf
        return 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf


def sqnr(x: NDArray[Any], q: BlockArray, *, engine: Engine = "numba") -> Sqnr:
    """Floats of 16 or 32 bits, and the same quantized -> their Sqnr.

    Squares and sums are float64. What is squared is exact for a format without a tensor scale and a
    deterministic rounding: then a difference is no larger than the element, and float32 holds it. Stochastic
    rounding has it rounded once to float32, 24 bits; with a tensor scale all is float64. Of n elements the
    ratio is right to about n * 2**-53, and mostly far better. engine: both add the same squares, "numba" in
    one pass and in another order. Raises ValueError for shapes that differ.

    >>> import mxfp, numpy as np
    >>> x = np.array([3.0, 4.0, 1.25], np.float32)
    >>> sqnr(x, mxfp.quantize(x)).noise
    0.0625
    """
    check_choice(engine, ENGINES, "engine")
    check_subnormals()
    if x.shape != q.shape:
        raise ValueError(f"x and q must have one shape, got {x.shape} and {q.shape}")
    if engine == "numba":
        sums = square_sums(x, q)
        if sums is not None and math.isfinite(sum(sums)):
            return Sqnr(x.size, *sums)
    wide = np.dtype(np.float64 if q.format.tensor_scale else np.float32)
    given, left = _widened(x.reshape(-1), wide), _buffer(x.size, wide)
    dequantize(q, out=left.reshape(q.shape), engine=engine)
    with np.errstate(invalid="ignore", over="ignore"):
        np.subtract(given, left, out=left)
    signal, noise = _squared(given), _squared(left)
    if math.isfinite(signal + noise):
        return Sqnr(x.size, signal, noise)
    kept = np.isfinite(left)
    count = int(np.count_nonzero(kept))
    return Sqnr(count, _squared(given[kept]), _squared(left[kept]), x.size - count)


MOST_HELD: Final = 1 << 24
"""Bytes of a buffer that is kept."""
_held = threading.local()
"""A buffer of each thread: fresh memory costs as much as what is done with it."""


def _buffer(size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Room for an array, which is there until the next call in this thread."""
    nbytes = size * dtype.itemsize
    if nbytes > MOST_HELD:
        return np.empty(size, dtype)
    if getattr(_held, "room", None) is None or _held.room.size < nbytes:
        _held.room = np.empty(nbytes, np.uint8)
    return np.asarray(_held.room[:nbytes].view(dtype))


def _widened(x: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Floats in float32 or float64, exact; bfloat16 by its bits, many times faster than by ml_dtypes."""
    if x.dtype == BFLOAT16:
        wide = x.view(np.uint16).astype(np.uint32)
        wide <<= 16
        x = wide.view(np.float32)
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return x.astype(dtype, copy=False)


@np.errstate(invalid="ignore", over="ignore")
def _squared(x: NDArray[Any]) -> float:
    """The sum of squares, in float64."""
    total, wide = 0.0, np.empty(min(CHUNK, x.size))
    for start in range(0, x.size, CHUNK):
        some = x[start : start + CHUNK]
        part = wide[: some.size]
        part[...] = some
        whole = part[: part.size // SHORT * SHORT].reshape(-1, SHORT)
        rest = part[whole.size :]
        total += float(np.vecdot(whole, whole).sum() + rest @ rest)
    return total
