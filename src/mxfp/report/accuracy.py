# SPDX-License-Identifier: Apache-2.0
"""Accuracy figures of a product against the exact one, and where the error comes from (contract §7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accumulate import Accumulator
from ..blocks import BlockArray, dequantize
from ..dot import operand, sums_of_products
from ..floats import AnyFloats, add_to_odd, round_float64
from ..formats import Floats
from ..integers import signed_bits, sum_width
from ..matmul import matmul
from ..scale import scale_factors

WORK = 1 << 25
"""Multiply-adds between two ticks of progress."""

Tick = Callable[[int], None]
"""Called with the number of multiply-adds just done."""


@dataclass(frozen=True)
class Figures:
    """How far a product is from the exact one.

    relative_error: Frobenius norm of the error over that of the exact product. sqnr_db: the same in
    decibel. max_abs_error, cosine: as they say. All are infinite or NaN where the product is.
    """

    relative_error: float
    sqnr_db: float
    max_abs_error: float
    cosine: float


def figures(product: NDArray[Any], exact: Floats) -> Figures:
    """A product and the exact one, same shape -> Figures.

    >>> figures(np.array([1.0, 2.0]), np.array([1.0, 1.0])).max_abs_error
    1.0
    """
    got = product.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        error = got - exact
        relative = relative_norm(error, exact)
        x, y = got / (np.abs(got).max() or 1.0), exact / (np.abs(exact).max() or 1.0)
        cosine = np.vdot(x, y) / (np.linalg.norm(x) * np.linalg.norm(y))
        sqnr = -20 * np.log10(relative)
    return Figures(relative, float(sqnr), float(np.abs(error).max()), float(cosine))


def relative_norm(error: Floats, exact: Floats) -> float:
    """Frobenius norm of the error over that of the exact product; 0 for 0 over 0."""
    largest = float(np.abs(exact).max())
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        unit = largest or 1.0  # squares of very small and very large numbers leave float64
        norm = np.linalg.norm(error / unit)
        return float(norm / np.linalg.norm(exact / unit)) if norm else 0.0


def row_chunks(rows: int, work_per_row: int) -> Iterator[slice]:
    """Slices of rows of about WORK multiply-adds each."""
    height = max(WORK // max(work_per_row, 1), 1)
    for top in range(0, rows, height):
        yield slice(top, min(top + height, rows))


def product_of_blocks(
    a: BlockArray, b: BlockArray, accumulator: Accumulator, tick: Tick, engine: Any = "numba"
) -> AnyFloats:
    """(M, K) @ (K, N) by `matmul`, some rows at a time, so that progress shows and Ctrl-C works."""
    out = np.empty((a.shape[0], b.shape[1]), accumulator.result_dtype)
    for rows in row_chunks(a.shape[0], a.shape[1] * b.shape[1]):
        part = BlockArray(a.codes[rows], a.scales[rows], a.format, -1, a.tensor_scale)
        out[rows] = matmul(part, b, accumulator=accumulator, engine=engine)
        tick(out[rows].size * a.shape[1])
    return out


def product_of_float16(
    a: NDArray[np.float16], b: NDArray[np.float16], dtype: np.dtype[Any], tick: Tick
) -> AnyFloats:
    """(M, K) float16 @ (K, N) float16: exact products, added in K order, one rounding to dtype each.

    Contract §7. A product of two float16 has 22 bits and is exact in float64.
    """
    out = np.empty((a.shape[0], b.shape[1]), dtype)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    for rows in row_chunks(a.shape[0], a.shape[1] * b.shape[1]):
        state: AnyFloats = np.zeros(out[rows].shape, dtype)
        with np.errstate(invalid="ignore"):
            for k in range(a.shape[1]):
                product = wide_a[rows, k, None] * wide_b[None, k]
                state = round_float64(add_to_odd(state.astype(np.float64), product), dtype)
        out[rows] = state
        tick(state.size * a.shape[1])
    return out


@dataclass(frozen=True)
class Elements:
    """What quantizing did to an array's elements.

    saturated: share beyond the largest magnitude. flushed: share of nonzero elements that became zero.
    relative_error: of the array itself. smallest_scale, largest_scale: exponents of its scales.
    """

    saturated: float
    flushed: float
    relative_error: float
    smallest_scale: int
    largest_scale: int


def elements(x: NDArray[Any], q: BlockArray) -> Elements:
    """An array and its quantized self, blocks along the last axis -> Elements."""
    exact = x.astype(np.float64)
    factors = np.repeat(scale_factors(q.scales, q.format.scale, q.tensor_scale), q.format.block, axis=-1)
    factors = factors[..., : exact.shape[-1]]
    saturated = np.abs(exact) > q.format.element.max * factors
    values = dequantize(q, dtype=np.float64)
    nonzero = exact != 0
    exponents = np.frexp(q.format.scale.values[q.scales])[1] - 1
    return Elements(
        float(saturated.mean()),
        float((nonzero & (values == 0)).sum() / max(int(nonzero.sum()), 1)),
        relative_norm(values - exact, exact),
        int(exponents.min()),
        int(exponents.max()),
    )


@dataclass(frozen=True)
class WidthCheck:
    """The widest sum of products met, and what the formats allow.

    largest: the largest magnitude in LSB units. bits_needed: the signed register that holds it.
    bound, bits_proved: the same for any data.
    """

    largest: int
    bits_needed: int
    bound: int
    bits_proved: int


def width_check(a: BlockArray, b: BlockArray, tick: Tick) -> WidthCheck:
    """(M, K) and (K, N) -> the largest sum of products of any block of any output."""
    codes_b, scales_b = b.codes.T, b.scales.T
    right = operand(codes_b, scales_b, b.format, b.tensor_scale, b.format.block)
    low = high = 0
    for rows in row_chunks(a.shape[0], a.shape[1] * b.shape[1]):
        left = operand(a.codes[rows], a.scales[rows], a.format, a.tensor_scale, a.format.block)
        sums = sums_of_products(left, right, outer=True)
        low, high = min(low, int(sums.min())), max(high, int(sums.max()))
        tick(sums.shape[0] * sums.shape[1] * a.shape[1])
    element_a, element_b, block = a.format.element, b.format.element, a.format.block
    return WidthCheck(
        max(high, -low),
        signed_bits(low, high),
        block * int(np.abs(element_a.integers).max()) * int(np.abs(element_b.integers).max()),
        sum_width(element_a, element_b, block),
    )
