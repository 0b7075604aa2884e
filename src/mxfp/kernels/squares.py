# SPDX-License-Identifier: Apache-2.0
"""Twin of `mxfp.files.sqnr`: what is left of floats after quantizing them, squared and added, in one pass.

Sums are float64, added in an order that neither threads nor the machine change.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..blocks import BlockArray
from ..floats import BFLOAT16, NAN_BITS
from . import blocks, scaled_tables
from ._jit import kernel
from .arrays import GRAIN, patterns, share_out, sizes_of
from .dequantize import decoding, specials_of, value_of

CHUNK: Final = 1 << 9
"""Blocks that are added by themselves."""
TOGETHER: Final = 64
"""Blocks of those whose differences are found before they are squared."""
LANES: Final = 128
"""Sums that squares are added to by turns, so that none waits for another, and vectors hold several."""

_SINGLE: Final = {
    np.dtype(np.float32): (np.uint32(0), None),
    BFLOAT16: (np.uint32(16), None),
    np.dtype(np.float16): (np.uint32(13), np.float32(2.0**112)),
}
"""How patterns become those of float32: a shift, and a factor between the biases."""


def square_sums(x: NDArray[Any], q: BlockArray) -> tuple[float, float] | None:
    """Floats of 16 or 32 bits and the same quantized -> the sums of squares of x and of x - q.

    Not finite where an element or a difference is not. None where there is no kernel: for other formats,
    and where blocks do not lie in rows, one behind the other.
    """
    fmt = q.format
    rows = all(a.flags.c_contiguous and a.flags.aligned and a.dtype.isnative for a in (x, q.codes, q.scales))
    if not (rows and x.shape == q.shape and q.block_axis == q.ndim - 1 and x.dtype in _SINGLE and x.size):
        return None
    if not (blocks.supports(fmt) or scaled_tables.supports(fmt)):
        return None
    factors = fmt.scale.values * q.tensor_scale
    if not fmt.tensor_scale:
        with np.errstate(over="ignore"):
            factors = factors.astype(np.float32)
    out = np.empty((-(-q.scales.size // CHUNK), 2))
    share_out(
        _sums_of_chunks,
        len(out),
        *(patterns(x), patterns(q.codes), patterns(q.scales)),
        sizes_of(q.shape, q.block_axis, fmt.block),
        *_SINGLE[x.dtype],
        (decoding(fmt.element), specials_of(fmt.element), NAN_BITS[np.dtype(np.float32)]),
        factors,
        out,
        grain=GRAIN // (CHUNK * fmt.block) + 1,
    )
    with np.errstate(over="ignore"):
        signal, noise = out.sum(axis=0).tolist()
    if math.isfinite(signal + noise):
        signal, noise = math.fsum(out[:, 0].tolist()), math.fsum(out[:, 1].tolist())
    return signal, noise


@kernel
def _single(pattern: Any, shift: Any, factor: Any) -> Any:
    """The pattern of a float of 16 or 32 bits -> float32."""
    if factor is None:
        return np.uint32(np.uint32(pattern) << (shift & np.uint32(31))).view(np.float32)
    magnitude = np.uint32(pattern & np.uint32(0x7FFF))
    found = np.float32(np.uint32(magnitude << (shift & np.uint32(31))).view(np.float32) * factor)
    found = np.float32(np.inf) if magnitude >= np.uint32(0x7C00) else found
    return np.float32(-found if pattern & np.uint32(0x8000) else found)


@kernel
def _sums_of_chunks(
    begin: int,
    end: int,
    x: Any,
    codes: Any,
    scales: Any,
    sizes: Any,
    shift: Any,
    factor: Any,
    form: Any,
    factors: Any,
    out: Any,
) -> None:
    """Chunks begin … end of CHUNK blocks each."""
    length, _, block = sizes
    per_row = (length + block - 1) // block
    given, left = np.empty(TOGETHER * block, np.float32), np.empty(TOGETHER * block, factors.dtype)
    signals, noises = np.zeros(LANES), np.zeros(LANES)
    for chunk in range(begin, end):
        first = chunk * CHUNK % per_row * block
        start = np.uint64(chunk * CHUNK // per_row * length + first)
        last = min((chunk + 1) * CHUNK, scales.size)
        for group in range(chunk * CHUNK, last, TOGETHER):
            begun = start
            for n in range(group, min(group + TOGETHER, last)):
                width = np.uint64(min(block, length - first))
                times = factors[scales[n]]
                at = start - begun
                # What is left of elements without their codes' values: rounded once, if at all.
                for k in range(width):
                    code = value_of(codes[start + k], np.float32(1), form[0], form[1], form[2], None, None)
                    value = np.uint32(code).view(np.float32) * times
                    given[at + k] = _single(x[start + k], shift, factor)
                    left[at + k] = given[at + k] - value
                start += width
                first += block
                if first >= length:
                    first = 0
            _add_squares(given, start - begun, signals)
            _add_squares(left, start - begun, noises)
        out[chunk, 0] = _total(signals)
        out[chunk, 1] = _total(noises)


@kernel
def _add_squares(values: Any, count: Any, sums: Any) -> None:
    """The square of values[k], in float64, to sums[k % LANES]."""
    whole = count - count % np.uint64(LANES)
    for start in range(np.uint64(0), whole, np.uint64(LANES)):
        for lane in range(np.uint64(LANES)):
            value = np.float64(values[start + lane])
            sums[lane] += value * value
    for k in range(whole, count):
        value = np.float64(values[k])
        sums[k - whole] += value * value


@kernel
def _total(sums: Any) -> Any:
    """All sums, by halves; they are zero afterwards."""
    width = LANES
    while width > 1:
        width //= 2
        for lane in range(width):
            sums[lane] += sums[lane + width]
    total = sums[0]
    sums[:] = 0
    return total
