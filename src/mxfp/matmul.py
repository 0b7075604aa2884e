# SPDX-License-Identifier: Apache-2.0
"""Room 8: GEMV and GEMM, rooms 4 to 7 over rows and columns (contract §6)."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .accumulate import Accumulator, Sequential
from .blocks import ENGINES, BlockArray, Engine, check_choice
from .dot import Operand, check_group, check_pair, dots, operand
from .floats import check_subnormals
from .integers import WidthError

TILE: Final = 1 << 20
"""Terms that the reference holds at a time."""
_DEFAULT: Final = Sequential("float32")


def matmul(
    a: BlockArray, b: BlockArray, *, accumulator: Accumulator = _DEFAULT, engine: Engine = "numba"
) -> NDArray[Any]:
    """BlockArrays (..., M, K) @ (..., K, N) -> (..., M, N), in the accumulator's dtype. OCP MX §6.2.

    numpy's shape rules, vectors and broadcasting included. a has its blocks along its last axis, b along
    its second last (a vector along its only one). The result is defined by the accumulator alone, bit
    for bit; `engine` decides only how fast it comes. K = 0 gives zeros.

    Raises ValueError, printing both sides, for shapes, block axes or block sizes that do not match.

    >>> import mxfp, numpy as np
    >>> a = mxfp.quantize(np.eye(2, 64))
    >>> b = mxfp.quantize(np.ones((64, 3)), axis=0)
    >>> mxfp.matmul(a, b).tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    check_pair(a, b)
    check_choice(engine, ENGINES, "engine")
    if not isinstance(accumulator, Accumulator):
        raise TypeError(
            f"accumulator must be one of mxfp's, such as mxfp.Sequential('float32'), got {accumulator!r}"
        )
    check_subnormals()
    batch = _check_shapes(a, b)
    (codes_a, scales_a), (codes_b, scales_b) = _rows_last(a, a.ndim - 1), _rows_last(b, max(b.ndim - 2, 0))
    rows, columns = codes_a.shape[-2], codes_b.shape[-2]
    group = check_group(accumulator.terms_of, a.format)
    twin = _kernel(a, b, accumulator) if engine == "numba" else None
    out = np.zeros((*batch, rows, columns), accumulator.result_dtype)
    count = math.prod(batch)
    stacks = [
        np.broadcast_to(x, (*batch, *x.shape[-2:])).reshape(count, *x.shape[-2:])
        for x in (codes_a, scales_a, codes_b, scales_b)
    ]
    flat = out.reshape(count, rows, columns)
    for n, (ca, sa, cb, sb) in enumerate(zip(*stacks, strict=True)):
        if twin is not None:
            twin(ca, sa, a.format, cb, sb, b.format, accumulator, flat[n])
            continue
        left = operand(ca, sa, a.format, a.tensor_scale, group)
        right = operand(cb, sb, b.format, b.tensor_scale, group)
        try:
            _multiply(left, right, accumulator, flat[n])
        except WidthError as error:
            place = [int(i) for i in np.unravel_index(n, batch)] if batch else []
            row = error.index[:1] if a.ndim > 1 else ()
            column = error.index[1:] if b.ndim > 1 else ()
            raise error.at((*place, *row, *column)) from None
    if a.ndim == 1:
        out = out[..., 0, :]
    if b.ndim == 1:
        out = out[..., 0]
    return out


def _check_shapes(a: BlockArray, b: BlockArray) -> tuple[int, ...]:
    """The batch shape; ValueError where shapes or block axes do not match."""
    both = ", ".join(
        f"{name} is {q.format.name} {q.shape} along axis {q.axis}" for name, q in (("a", a), ("b", b))
    )
    wanted_a, wanted_b = a.ndim - 1, max(b.ndim - 2, 0)
    if a.block_axis != wanted_a or b.block_axis != wanted_b:
        raise ValueError(
            f"{both}; blocks must lie along K: axis {wanted_a} of a and axis {wanted_b} of b "
            f"(quantize with axis=, or transpose with .T)"
        )
    if a.shape[wanted_a] != b.shape[wanted_b]:
        raise ValueError(f"{both}; K is {a.shape[wanted_a]} in a and {b.shape[wanted_b]} in b")
    try:
        return np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ValueError(
            f"{both}; their leading axes {a.shape[:-2]} and {b.shape[:-2]} do not broadcast"
        ) from None


def _rows_last(q: BlockArray, axis: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Codes (..., rows, K) and scales (..., rows, blocks); a vector is one row."""
    codes, scales = np.moveaxis(q.codes, axis, -1), np.moveaxis(q.scales, axis, -1)
    return (codes[None], scales[None]) if q.ndim == 1 else (codes, scales)


def _kernel(a: BlockArray, b: BlockArray, accumulator: Accumulator) -> Any:
    """The compiled twin of `_multiply`, or None where the reference does the work."""
    if a.format.scale.mantissa_bits or b.format.scale.mantissa_bits:
        return None
    from .kernels import matmul as kernels

    return kernels.multiply if kernels.supports(a.format, b.format, accumulator) else None


def _multiply(a: Operand, b: Operand, accumulator: Accumulator, out: NDArray[Any]) -> None:
    """(M, G, g) and (N, G, g) -> out (M, N), tile by tile, so that memory stays bounded."""
    rows, columns = out.shape
    groups = a.codes.shape[1]
    if not (rows and columns and groups):
        return
    width = max(min(columns, TILE // groups), 1)
    height = max(TILE // (groups * width), 1)
    for top in range(0, rows, height):
        left = _cut(a, slice(top, top + height))
        for start in range(0, columns, width):
            right = _cut(b, slice(start, start + width))
            try:
                out[top : top + height, start : start + width] = accumulator(dots(left, right, outer=True))
            except WidthError as error:
                raise error.at((top + error.index[0], start + error.index[1])) from None


def _cut(side: Operand, rows: slice) -> Operand:
    return Operand(side.format, side.codes[rows], side.scales[rows], side.tensor_scale)


def multiply_count(a: BlockArray, b: BlockArray) -> int:
    """Multiply-adds of `matmul(a, b)`, for throughput: M * N * K times the batch.

    >>> import mxfp, numpy as np
    >>> multiply_count(mxfp.quantize(np.ones((2, 64))), mxfp.quantize(np.ones(64)))
    128
    """
    batch = _check_shapes(a, b)
    rows = a.shape[-2] if a.ndim > 1 else 1
    columns = b.shape[-1] if b.ndim > 1 else 1
    return math.prod(batch) * rows * columns * a.shape[-1]
