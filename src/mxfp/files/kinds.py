# SPDX-License-Identifier: Apache-2.0
"""How blocks of one format differ: which elements, in what way, and the first of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..blocks import BlockArray
from ..floats import to_float64
from ..formats import BlockFormat, Bools, Codes, Floats
from .blockwise import in_blocks, in_scale, magnitudes_of, present, scales_of

ELEMENT_KINDS: Final = {
    "nan": "NaN in one of them, by the scale or the code",
    "same_value": "the same value, by another scale and code",
    "zero_sign": "+0 in one, -0 in the other",
    "saturated_a": "at the largest code in A, beyond it in B",
    "saturated_b": "at the largest code in B, beyond it in A",
    "other_scale": "another value, by another scale",
    "tie": "a tie, rounded otherwise; scales equal",
    "step": "neighbouring codes; scales equal",
    "other": "codes further apart, or of opposite signs; scales equal",
    "bits": "other bits, of arrays that are in no blocks",
    "bytes": "other bytes, of types that are compared as they lie",
}
"""How an element differs: the first of these that is so. Ties are known with the source alone."""
BLOCK_KINDS: Final = {
    "nan_a": "the scale is NaN in A",
    "nan_b": "the scale is NaN in B",
    "zeros": "all elements zero, another scale",
    "up": "the scale is one code higher in B",
    "down": "the scale is one code lower in B",
    "other_scale": "the scale is another one",
    "codes": "the same scale, other codes",
}
"""How a block differs: the first of these that is so."""

SLAB: Final = 1 << 14
"""Elements that are looked at together: what is made on the way stays in the cache."""


@dataclass(frozen=True)
class Side:
    """An element in one of two files: its block's scale code, its own code, and its value."""

    scale: int
    code: int
    value: float


@dataclass(frozen=True)
class First:
    """The first element that differs: where, both sides of it, and what it was in the source, if known.

    For arrays that are in no blocks a and b are the values themselves.
    """

    index: tuple[int, ...]
    a: Side | float | str
    b: Side | float | str
    source: float | None = None


@dataclass
class Counts:
    """Of some blocks: how many elements and blocks differ, by kind, and the first.

    steps: of elements in neighbouring codes (ties too), how many there are, and in how many of them B is the
    larger in magnitude, A has the even code, B has the even code.
    """

    elements: Counter[str] = field(default_factory=Counter)
    blocks: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    tensor_scales: tuple[float, float] | None = None
    first: First | None = None

    def add(self, other: Counts) -> None:
        """Count what lies behind too."""
        self.elements += other.elements
        self.blocks += other.blocks
        self.steps += other.steps
        self.tensor_scales = self.tensor_scales or other.tensor_scales
        self.first = self.first or other.first

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not self.elements and self.tensor_scales is None


class _Blocks(NamedTuple):
    """The blocks that differ, of one side: codes (n, block), scales (n,)."""

    codes: Codes
    scales: Codes
    tensor_scale: float

    def values(self, fmt: BlockFormat) -> Floats:
        factors = fmt.scale.values[self.scales] * self.tensor_scale
        with np.errstate(invalid="ignore"):
            return np.asarray(fmt.element.values[self.codes] * factors[:, None])


def same(a: BlockArray, b: BlockArray) -> bool:
    """Whether codes, scales and tensor scales are equal bits."""
    return (
        a.tensor_scale == b.tensor_scale
        and np.array_equal(a.scales, b.scales)
        and np.array_equal(a.codes, b.codes)
    )


def counts_of(a: BlockArray, b: BlockArray, start: int, x: NDArray[Any] | None) -> Counts:
    """Rows of two tensors of one format, shape and axis -> how they differ.

    start: the index of their first row. x: the same rows of the source, floats, if there is one.
    """
    fmt, axis = a.format, a.block_axis
    counts = Counts()
    if a.tensor_scale != b.tensor_scale:
        counts.tensor_scales = a.tensor_scale, b.tensor_scale
    codes_a, codes_b = (in_blocks(q.codes, axis, fmt.block) for q in (a, b))
    scales_a, scales_b = scales_of(a), scales_of(b)
    where = np.flatnonzero((scales_a != scales_b) | (codes_a != codes_b).any(axis=1))
    there, given = present(a), None if x is None else in_blocks(x, axis, fmt.block)
    for first in range(0, where.size, max(SLAB // fmt.block, 1)):
        part = where[first : first + max(SLAB // fmt.block, 1)]
        one = _Blocks(codes_a[part], scales_a[part], a.tensor_scale)
        other = _Blocks(codes_b[part], scales_b[part], b.tensor_scale)
        source = None if given is None else to_float64(given[part])
        kinds, steps = _element_kinds(one, other, fmt, source)
        for name, mask in kinds.items():
            _add(counts.elements, name, mask & there[part])
        _count_steps(counts, one, other, fmt, steps & there[part])
        _count_blocks(counts, one, other, fmt)
    if where.size:
        counts.first = _first(a, b, start, x)
    return counts


def _add(counter: Counter[str], name: str, mask: Bools) -> None:
    if number := int(np.count_nonzero(mask)):
        counter[name] += number


def _element_kinds(
    a: _Blocks, b: _Blocks, fmt: BlockFormat, x: Floats | None
) -> tuple[dict[str, Bools], Bools]:
    """Masks (n, block) by kind, and that of all neighbouring codes."""
    element, nan = fmt.element, fmt.scale.nan_code
    rescaled = np.broadcast_to((a.scales != b.scales)[:, None], a.codes.shape)
    left = rescaled | (a.codes != b.codes)
    found: dict[str, Bools] = {}

    def take(name: str, mask: Bools) -> None:
        nonlocal left
        found[name] = left & mask
        left = left & ~mask

    one, other = (magnitudes_of(codes, element).astype(np.int16) for codes in (a.codes, b.codes))
    negative_a, negative_b = element.negative[a.codes], element.negative[b.codes]
    va, vb = a.values(fmt), b.values(fmt)
    top = element.magnitudes.size - 1
    special = ~element.finite[a.codes] | ~element.finite[b.codes]
    take("nan", special | ((a.scales == nan) | (b.scales == nan))[:, None])
    signs_differ = negative_a != negative_b
    take("same_value", rescaled & (va == vb) & ~((va == 0) & signs_differ))
    take("zero_sign", (one == 0) & (other == 0))
    with np.errstate(invalid="ignore"):
        take("saturated_a", rescaled & (one == top) & (np.abs(vb) > np.abs(va)))
        take("saturated_b", rescaled & (other == top) & (np.abs(va) > np.abs(vb)))
    take("other_scale", rescaled)
    # The sign of a zero may be lost; it is no other side.
    steps = left & (np.abs(one - other) == 1) & (~signs_differ | (one == 0) | (other == 0))
    if x is not None and top:
        lower = np.minimum(np.minimum(one, other), top - 1)
        midpoint = (element.magnitudes[:-1] + element.magnitudes[1:])[lower] / 2
        take("tie", steps & (np.abs(in_scale(x, a.scales, fmt, a.tensor_scale)) == midpoint))
    take("step", steps)
    take("other", np.ones_like(left))
    return found, np.asarray(steps, np.bool_)


def _count_steps(counts: Counts, a: _Blocks, b: _Blocks, fmt: BlockFormat, steps: Bools) -> None:
    one, other = (magnitudes_of(codes[steps], fmt.element) for codes in (a.codes, b.codes))
    for name, mask in (
        ("all", one != other),
        ("b_larger", other > one),
        ("a_even", one % 2 == 0),
        ("b_even", other % 2 == 0),
    ):
        _add(counts.steps, name, mask)


def _count_blocks(counts: Counts, a: _Blocks, b: _Blocks, fmt: BlockFormat) -> None:
    nan = fmt.scale.nan_code
    up = b.scales.astype(np.int16) - a.scales
    one, other = (magnitudes_of(codes, fmt.element).any(axis=1) for codes in (a.codes, b.codes))
    zeros = ~(one | other)
    left = np.ones(up.shape, np.bool_)
    for name, mask in (
        ("nan_a", (a.scales == nan) & (up != 0)),
        ("nan_b", (b.scales == nan) & (up != 0)),
        ("zeros", zeros & (up != 0)),
        ("up", up == 1),
        ("down", up == -1),
        ("other_scale", up != 0),
        ("codes", up == 0),
    ):
        _add(counts.blocks, name, left & mask)
        left &= ~mask


def _first(a: BlockArray, b: BlockArray, start: int, x: NDArray[Any] | None) -> First:
    axis, block = a.block_axis, a.format.block
    rescaled = np.repeat(a.scales != b.scales, block, axis=axis)
    kept = tuple(slice(length) for length in a.shape)
    flat = int(np.argmax((a.codes != b.codes) | rescaled[kept]))
    index = tuple(int(i) for i in np.unravel_index(flat, a.shape))
    place = (*index[:axis], index[axis] // block, *index[axis + 1 :])
    sides = []
    for q in (a, b):
        scale, code = int(q.scales[place]), int(q.codes[index])
        factor = float(q.format.scale.values[scale]) * q.tensor_scale
        sides.append(Side(scale, code, float(q.format.element.values[code]) * factor))
    source = None if x is None else float(x[index])
    return First((index[0] + start, *index[1:]), sides[0], sides[1], source)
