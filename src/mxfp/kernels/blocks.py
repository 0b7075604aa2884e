# SPDX-License-Identifier: Apache-2.0
"""Twins of `mxfp.blocks`: quantize and dequantize for formats whose scale is a power of two."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from ..blocks import Nonfinite, blocks_along
from ..encode import Rounding, starts
from ..floats import to_float64
from ..formats import BlockFormat, Codes, ScaleRule
from ..scale import step_up
from ._jit import parallel_kernel
from .encode import count_starts, draw, goes_up


def quantize_rows(
    x: NDArray[Any],
    fmt: BlockFormat,
    rule: ScaleRule,
    rounding: Rounding,
    nonfinite: Nonfinite,
    tensor_scale: float,
    key: np.uint64 | None,
    inner: int,
) -> tuple[Codes, Codes]:
    """(rows, K) reals -> (rows, K) codes and (rows, blocks) scales. See `mxfp.blocks._quantize_rows`."""
    element = fmt.element
    exact = x if x.dtype.newbyteorder("=") in (np.float32, np.float64) else _widened(x)
    codes = np.zeros(x.shape, np.uint8)
    scales = np.zeros((x.shape[0], blocks_along(x.shape[1], fmt.block)), np.uint8)
    if codes.size:
        _quantize(
            np.ascontiguousarray(exact, exact.dtype.newbyteorder("=")),
            fmt.block,
            fmt.scale.bias,
            fmt.scale.nan_code,
            element.emax,
            step_up(rule, element),
            starts(element, rounding),
            element.magnitudes,
            element.negated,
            nonfinite == "saturate",
            key is not None,
            np.uint64(0) if key is None else key,
            inner,
            codes,
            scales,
        )
    return codes, scales


def _widened(x: NDArray[Any]) -> NDArray[Any]:
    """Other dtypes -> the smallest of float32 and float64 that is exact (or rounded to odd)."""
    if x.dtype.kind in "iu":
        return x.astype(np.float32) if x.dtype.itemsize < 4 else to_float64(x)
    return x.astype(np.float32)


@parallel_kernel
def _quantize(
    x: Any,
    block: int,
    bias: int,
    nan_code: int,
    emax: int,
    step: float,
    starts: Any,
    magnitudes: Any,
    negated: Any,
    saturate: bool,
    stochastic: bool,
    key: Any,
    inner: int,
    codes: Any,
    scales: Any,
) -> None:
    """Every block by itself: amax, scale code, then one search per element."""
    rows, length = x.shape
    per_row = scales.shape[1]
    for n in numba.prange(rows * per_row):
        row = n // per_row
        first = (n - row * per_row) * block
        last = min(first + block, length)
        amax = 0.0
        marked = False
        for k in range(first, last):
            magnitude = abs(np.float64(x[row, k]))
            if magnitude <= 1.7976931348623157e308:
                amax = max(amax, magnitude)
            elif not (saturate and magnitude == math.inf):
                marked = True
        if marked:
            scales[row, n - row * per_row] = nan_code
            continue
        exponent = -bias
        if amax > 0.0:
            fraction, power = math.frexp(amax)
            exponent = power - 1 - emax
            if 2.0 * fraction >= step:
                exponent += 1
            exponent = min(max(exponent, -bias), nan_code - 1 - bias)
        scales[row, n - row * per_row] = exponent + bias
        unscale = math.ldexp(1.0, -exponent)
        for k in range(first, last):
            scaled = np.float64(x[row, k]) * unscale
            magnitude = abs(scaled)
            code = count_starts(magnitude, starts)
            if stochastic and code < starts.size:
                index = ((row // inner) * length + k) * inner + row % inner
                drawn = draw(key, np.uint64(index))
                if goes_up(magnitude, magnitudes[code], magnitudes[code + 1], drawn):
                    code += 1
            codes[row, k] = negated[code] if math.copysign(1.0, scaled) < 0 else code


def dequantize_rows(codes: Codes, scales: Codes, fmt: BlockFormat, out: NDArray[Any]) -> None:
    """(rows, K) codes and (rows, blocks) scales -> out (rows, K), float32 or float64."""
    if codes.size:
        _dequantize(
            np.ascontiguousarray(codes),
            np.ascontiguousarray(scales),
            fmt.element.values,
            fmt.scale.values,
            fmt.block,
            out,
        )


@parallel_kernel
def _dequantize(codes: Any, scales: Any, values: Any, factors: Any, block: int, out: Any) -> None:
    """Every block by itself: value times scale in float64, then the rounding of the store."""
    rows, length = codes.shape
    per_row = scales.shape[1]
    for n in numba.prange(rows * per_row):
        row = n // per_row
        first = (n - row * per_row) * block
        factor = factors[scales[row, n - row * per_row]]
        for k in range(first, min(first + block, length)):
            # The mask keeps the index in the table whatever becomes of a mapped file's bytes.
            value = values[codes[row, k] & (values.size - 1)] * factor
            out[row, k] = math.nan if math.isnan(value) else value
