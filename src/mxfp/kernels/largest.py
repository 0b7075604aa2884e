# SPDX-License-Identifier: Apache-2.0
"""Twin of `mxfp.blocks.largest_magnitude`: the largest of many floats, by their patterns."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..blocks import tiles
from ._jit import kernel
from .arrays import GRAIN, PATTERNS, TILE, memory_order, patterns, share_out, together

CHUNK: Final = 1 << 14
"""Elements whose largest is found at a time."""


def largest(x: NDArray[Any]) -> float:
    """Floats (...), not none -> the largest of their magnitudes; infinity or NaN if one is there."""
    if together(x):
        return _largest_of(x.transpose(memory_order(x)))
    native = x.dtype.newbyteorder("=")
    found = [_largest_of(np.require(x[place], native, ["C", "A"])) for place, _ in tiles(x.shape, 0, 1, TILE)]
    return float(np.max(found))


def _largest_of(x: NDArray[Any]) -> float:
    """The same for an array that is contiguous."""
    given = patterns(x)
    mask = given.dtype.type(PATTERNS[x.dtype][0])
    out = np.zeros(-(-x.size // CHUNK), given.dtype)
    share_out(
        _largest_of_chunks, out.size, given, mask, None if x.itemsize < 8 else True, out, grain=GRAIN // CHUNK
    )
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return float(out.max(keepdims=True).view(x.dtype)[0])


@kernel
def _largest_of_chunks(begin: int, end: int, x: Any, mask: Any, wide: Any, out: Any) -> None:
    """The largest pattern of each chunk begin … end."""
    for n in range(begin, end):
        last = np.uint64(min((n + 1) * CHUNK, x.size))
        if wide is None:
            found = np.uint32(0)
            for k in range(np.uint64(n * CHUNK), last):
                found = np.uint32(max(found, np.uint32(x[k] & mask)))
            out[n] = found
        else:
            found64 = np.uint64(0)
            for k in range(np.uint64(n * CHUNK), last):
                found64 = np.uint64(max(found64, np.uint64(x[k] & mask)))
            out[n] = found64
