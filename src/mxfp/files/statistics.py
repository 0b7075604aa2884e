# SPDX-License-Identifier: Apache-2.0
"""What blocks hold: how often each element code and each scale code, and how far blocks reach."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ..blocks import BlockArray
from ..formats import BlockFormat, Integers
from .blockwise import in_blocks, magnitudes_of, pieces, scales_of
from .model import ModelFile
from .pipeline import in_order
from .tensor import Tensor


@dataclass(frozen=True, eq=False)
class Statistics:
    """Counts over the blocks of a tensor, or of several of one format; they can be added.

    codes: elements of each code. scales: blocks of each scale code. zero_scales: the same for blocks whose
    elements are all zero. largest: blocks by their largest magnitude, as its code, without those that are
    NaN or whose scale is the format's smallest or largest. tensor_scales: the smallest and the largest.

    >>> import mxfp
    >>> found = statistics_of(mxfp.quantize([0.1, -2.3, 7.0, -0.0] * 8))
    >>> found.elements, found.at_largest, found.zeros, found.negative_zeros, found.scale_range
    (32, 8, 16, 8, (127, 127))
    """

    format: BlockFormat
    codes: Integers
    scales: Integers
    zero_scales: Integers
    largest: Integers
    tensor_scales: tuple[float, float]

    def __add__(self, other: Statistics) -> Statistics:
        """Of both together. ValueError if they are of different formats."""
        if self.format != other.format:
            raise ValueError(f"statistics of {self.format} and of {other.format} cannot be added")
        low, high = zip(self.tensor_scales, other.tensor_scales, strict=True)
        return Statistics(
            self.format,
            self.codes + other.codes,
            self.scales + other.scales,
            self.zero_scales + other.zero_scales,
            self.largest + other.largest,
            (min(low), max(high)),
        )

    @property
    def elements(self) -> int:
        """How many elements."""
        return int(self.codes.sum())

    @property
    def blocks(self) -> int:
        """How many blocks."""
        return int(self.scales.sum())

    @property
    def at_largest(self) -> int:
        """Elements of the largest magnitude, where all that saturates ends."""
        element = self.format.element
        top = element.magnitudes.size - 1
        return int(self.codes[top] + self.codes[element.negated[top]])

    @property
    def negative_zeros(self) -> int:
        """Elements that are -0; none in INT8, which has no such code."""
        zero = int(self.format.element.negated[0])
        return int(self.codes[zero]) if zero else 0

    @property
    def zeros(self) -> int:
        """Elements that are zero, of either sign: what was zero, and what was flushed to it."""
        return int(self.codes[0]) + self.negative_zeros

    @property
    def specials(self) -> int:
        """Elements that are NaN or infinite by their own code (E4M3, E5M2)."""
        return int(self.codes[~self.format.element.finite].sum())

    @property
    def nan_blocks(self) -> int:
        """Blocks whose scale is NaN."""
        return int(self.scales[self.format.scale.nan_code])

    @property
    def zero_blocks(self) -> int:
        """Blocks whose elements are all zero."""
        return int(self.zero_scales.sum())

    @property
    def scale_range(self) -> tuple[int, int] | None:
        """The smallest and the largest scale code of blocks that are neither zero nor NaN, if there are."""
        used = (self.scales - self.zero_scales)[: self.format.scale.nan_code]
        found = np.flatnonzero(used)
        return (int(found[0]), int(found[-1])) if found.size else None


def total(found: Iterable[Statistics]) -> Statistics:
    """Of several together, at least one, of one format."""
    first, *rest = found
    return sum(rest, first)


def statistics_of(q: BlockArray) -> Statistics:
    """Count what one BlockArray holds."""
    fmt = q.format
    codes, scales = in_blocks(q.codes, q.block_axis, fmt.block), scales_of(q)
    count = fmt.scale.code_count
    # Maxima down long columns are vectors, along short rows they are not.
    magnitudes = magnitudes_of(codes, fmt.element)
    largest = np.ascontiguousarray(magnitudes.T).max(axis=0, initial=0)
    usual = (scales > int(fmt.scale.has_zero)) & (scales < fmt.scale.nan_code - 1)
    return Statistics(
        fmt,
        np.bincount(q.codes.reshape(-1), minlength=fmt.element.code_count),
        np.bincount(scales, minlength=count),
        np.bincount(scales[largest == 0], minlength=count),
        np.bincount(largest[usual], minlength=fmt.element.magnitudes.size + 1),
        (q.tensor_scale, q.tensor_scale),
    )


def measure(
    model: ModelFile,
    tensors: Iterable[Tensor],
    *,
    progress: Callable[[str, int], None] = lambda name, nbytes: None,
) -> Mapping[str, Statistics]:
    """The statistics of tensors in blocks, by name; those that are in none, or empty, are left out.

    Read tile by tile on some threads: as many tiles of a million elements are in memory as there are
    threads, and one more. progress: called with a name and the bytes done. FileError where a file is not as
    its header says.
    """

    def count(job: tuple[Tensor, int, int]) -> tuple[Tensor, int, Statistics]:
        tensor, start, stop = job
        rows = model.rows(tensor.name, start, stop)
        assert isinstance(rows, BlockArray)
        return tensor, tensor.nbytes * (stop - start) // tensor.rows, statistics_of(rows)

    chosen = [tensor for tensor in tensors if tensor.format is not None and tensor.elements]
    found: dict[str, Statistics] = {}
    for tensor, nbytes, some in in_order(count, ((t, *cut) for t in chosen for cut in pieces(t))):
        found[tensor.name] = found[tensor.name] + some if tensor.name in found else some
        progress(tensor.name, nbytes)
    return found
