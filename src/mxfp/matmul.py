# SPDX-License-Identifier: Apache-2.0
"""Room 8: GEMV and GEMM, rooms 4 to 7 over rows and columns (contract §6)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .accumulate import Accumulator, Sequential
from .blocks import ENGINES, BlockArray, Engine, check_choice
from .dot import Operand, check_group, check_pair, dots, operand
from .floats import check_subnormals
from .formats import BlockFormat, Codes
from .integers import WidthError
from .prepared import PreparedMatrix

TILE: Final = 1 << 20
"""Terms that the reference holds at a time."""
_DEFAULT: Final = Sequential("float32")


def matmul(
    a: BlockArray,
    b: BlockArray | PreparedMatrix,
    *,
    accumulator: Accumulator = _DEFAULT,
    engine: Engine = "numba",
) -> NDArray[Any]:
    """BlockArrays (..., M, K) @ (..., K, N) -> (..., M, N), in the accumulator's dtype. OCP MX §6.2.

    numpy's shape rules, vectors and broadcasting included. a has its blocks along its last axis, b along
    its second last (a vector along its only one); b may be a PreparedMatrix, see `mxfp.prepare`. The
    result is defined by the accumulator alone, bit for bit; `engine` decides only how fast it comes.
    K = 0 gives zeros.

    Raises ValueError, printing both sides, for shapes, block axes or block sizes that do not match.

    >>> import mxfp, numpy as np
    >>> a = mxfp.quantize(np.eye(2, 64))
    >>> b = mxfp.quantize(np.ones((64, 3)), axis=0)
    >>> mxfp.matmul(a, b).tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    check_pair(a, b, (BlockArray, PreparedMatrix))
    check_choice(engine, ENGINES, "engine")
    if not isinstance(accumulator, Accumulator):
        raise TypeError(
            f"accumulator must be one of mxfp's, such as mxfp.Sequential('float32'), got {accumulator!r}"
        )
    check_subnormals()
    batch = _check_shapes(a, b)
    group = check_group(accumulator.terms_of, a.format)
    twin = _kernel(a, b, accumulator) if engine == "numba" else None
    rows, columns = a.shape[-2] if a.ndim > 1 else 1, b.shape[-1] if b.ndim > 1 else 1
    out = np.zeros((*batch, rows, columns), accumulator.result_dtype)
    flat = out.reshape(math.prod(batch), rows, columns)
    lefts, rights = _stack(a, a.ndim - 1, batch), _stack(b, max(b.ndim - 2, 0), batch)
    for n, (left, right) in enumerate(zip(lefts, rights, strict=True)):
        first = 0 if twin is None else twin(left, right, accumulator, flat[n])
        if first is None:
            continue
        try:
            _multiply(left, _as_side(right), group, accumulator, flat[n], first)
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


def _check_shapes(a: BlockArray, b: BlockArray | PreparedMatrix) -> tuple[int, ...]:
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


class Side(NamedTuple):
    """One side of a product: (rows, K) codes and (rows, blocks) scales, blocks along K."""

    codes: Codes
    scales: Codes
    format: BlockFormat
    tensor_scale: float


def _stack(q: BlockArray | PreparedMatrix, axis: int, batch: tuple[int, ...]) -> Iterator[Any]:
    """The matrices of one side, one for each place of the batch; a vector is one row."""
    count = math.prod(batch)
    if isinstance(q, PreparedMatrix):
        return itertools.repeat(q, count)
    parts = []
    for array in (q.codes, q.scales):
        last = np.moveaxis(array, axis, -1)
        last = last[None] if q.ndim == 1 else last
        parts.append(np.broadcast_to(last, (*batch, *last.shape[-2:])).reshape(count, *last.shape[-2:]))
    return (Side(codes, scales, q.format, q.tensor_scale) for codes, scales in zip(*parts, strict=True))


def _as_side(right: Any) -> Side:
    if isinstance(right, PreparedMatrix):
        q = right.to_blocks()
        return Side(q.codes.T, q.scales.T, q.format, q.tensor_scale)
    found: Side = right
    return found


def _kernel(a: BlockArray, b: BlockArray | PreparedMatrix, accumulator: Accumulator) -> Any:
    """The compiled twin of `_multiply`, or None where the reference does the work."""
    from .kernels import matmul as kernels

    plan = kernels.plan(a.format, b.format, accumulator)
    return None if plan is None else partial(kernels.multiply, plan)


def _multiply(a: Side, b: Side, group: int, accumulator: Accumulator, out: NDArray[Any], first: int) -> None:
    """(M, K) and (N, K) -> out (M, N) from row `first` on, tile by tile, so that memory stays bounded."""
    rows, columns = out.shape
    left, right = (operand(side.codes, side.scales, side.format, side.tensor_scale, group) for side in (a, b))
    groups = left.codes.shape[1]
    if not (rows and columns and groups):
        return
    width = max(min(columns, TILE // groups), 1)
    height = max(TILE // (groups * width), 1)
    for top in range(first // height * height, rows, height):
        part = _cut(left, slice(top, top + height))
        for start in range(0, columns, width):
            other = _cut(right, slice(start, start + width))
            try:
                out[top : top + height, start : start + width] = accumulator(dots(part, other, outer=True))
            except WidthError as error:
                raise error.at((top + error.index[0], start + error.index[1])) from None


def _cut(side: Operand, rows: slice) -> Operand:
    return Operand(side.format, side.codes[rows], side.scales[rows], side.tensor_scale)


def multiply_count(a: BlockArray, b: BlockArray | PreparedMatrix) -> int:
    """Multiply-adds of `matmul(a, b)`, for throughput: M * N * K times the batch.

    >>> import mxfp, numpy as np
    >>> multiply_count(mxfp.quantize(np.ones((2, 64))), mxfp.quantize(np.ones(64)))
    128
    """
    batch = _check_shapes(a, b)
    rows = a.shape[-2] if a.ndim > 1 else 1
    columns = b.shape[-1] if b.ndim > 1 else 1
    return math.prod(batch) * rows * columns * a.shape[-1]
