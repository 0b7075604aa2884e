# SPDX-License-Identifier: Apache-2.0
"""Arrays as rows of blocks, whatever the axis: what statistics and differences are counted on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..blocks import BlockArray
from ..floats import divide_to_odd
from ..formats import BlockFormat, Bools, Codes, ElementFormat, Floats
from ..scale import scale_factors
from .pipeline import TILE
from .tensor import Tensor


def magnitudes_of(codes: Codes, element: ElementFormat) -> Codes:
    """Element codes -> the codes of their magnitudes; one more where not finite, and for -2 of INT8.

    >>> from mxfp import E2M1
    >>> magnitudes_of(np.array([0, 7, 8, 15], np.uint8), E2M1).tolist()
    [0, 7, 0, 7]
    """
    if element.twos_complement:
        return np.asarray(np.abs(codes.view(np.int8)).view(np.uint8))  # that of -128 is 128
    magnitude = codes & np.uint8(element.code_count // 2 - 1)
    if element.finite.all():
        return magnitude
    return np.asarray(np.minimum(magnitude, np.uint8(element.magnitudes.size)), np.uint8)


def in_blocks(array: NDArray[Any], axis: int, block: int) -> NDArray[Any]:
    """An array (...) -> (blocks, block) along an axis, the last block of a row filled with zeros.

    >>> in_blocks(np.arange(6).reshape(2, 3), 1, 2).tolist()
    [[0, 1], [2, 0], [3, 4], [5, 0]]
    """
    moved = np.moveaxis(array, axis, -1)
    if padding := -moved.shape[-1] % block:
        moved = np.concatenate([moved, np.zeros((*moved.shape[:-1], padding), array.dtype)], axis=-1)
    return moved.reshape(math.prod(moved.shape) // block, block)


def scales_of(q: BlockArray) -> Codes:
    """Scales in the order of `in_blocks`, one a block."""
    return np.moveaxis(q.scales, q.block_axis, -1).reshape(-1)


def present(q: BlockArray) -> Bools:
    """(blocks, block): False where the last block of a row has been filled up."""
    length, block = q.shape[q.block_axis], q.format.block
    blocks = -(-length // block)
    row = (np.arange(blocks * block) < length).reshape(blocks, block)
    return np.tile(row, (q.codes.size // max(length, 1), 1))


def in_scale(x: Floats, scales: Codes, fmt: BlockFormat, tensor_scale: float) -> Floats:
    """(n, block) float64 -> the same over the scales of their blocks, exact or rounded to odd."""
    factors = scale_factors(scales, fmt.scale, tensor_scale)[:, None]
    if fmt.scale.mantissa_bits:
        return divide_to_odd(x, factors)
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(x / factors)  # a power of two: exact wherever a code can tell


def pieces(*tensors: Tensor, size: int = TILE) -> Iterator[tuple[int, int]]:
    """Rows from … to of about `size` elements, at which tensors of one shape can all be cut.

    One row at a time where each has a tensor scale of its own.
    """
    rows, step = tensors[0].rows, math.lcm(*(tensor.step for tensor in tensors))
    each = -(-tensors[0].tile(size) // step) * step
    if any(t.format and t.format.tensor_scale and t.parts[1:] and t.parts[-1].elements > 1 for t in tensors):
        each = 1
    return ((start, min(start + each, rows)) for start in range(0, rows, each))
