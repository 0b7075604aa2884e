# SPDX-License-Identifier: Apache-2.0
"""Room 9: the whole journey of one dot product as one frozen record.

What is drawn, printed and compared stage by stage is this record, made by the rooms themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .accumulate import Accumulator, Sequential, Step
from .blocks import BlockArray
from .dot import Terms, block_dots, check_group
from .floats import AnyFloats
from .formats import Integers
from .integers import sum_width


@dataclass(frozen=True, eq=False)
class Trace:
    """One dot product, stage by stage. `n` terms of `g` products each, K filled up with zeros.

    a, b: the two vectors. accumulator: what added the terms. a_integers, b_integers: int64 (n, g) in LSB
    units. products: int64 or object (n, g). levels: the adder tree, one array a level, from (n, ceil(g/2))
    to (n, 1); level_widths: the signed bits that products and each level need, derived. terms: sums,
    exponents and all. steps: each step of the accumulator. result: a scalar; result_bits: its pattern.
    """

    a: BlockArray
    b: BlockArray
    accumulator: Accumulator
    a_integers: Integers
    b_integers: Integers
    products: NDArray[Any]
    levels: tuple[NDArray[Any], ...]
    level_widths: tuple[int, ...]
    terms: Terms
    steps: tuple[Step, ...]
    result: Any
    result_bits: int

    @property
    def group(self) -> int:
        """Products per term."""
        return int(self.products.shape[-1])


def trace(a: BlockArray, b: BlockArray, *, accumulator: Accumulator | None = None) -> Trace:
    """Two quantized vectors (K,) -> the Trace of their dot product.

    accumulator: None is the default of `mxfp.matmul`, Sequential("float32"). The result has the bits that
    `matmul` gives. Raises ValueError for anything but two vectors that match.

    >>> import mxfp
    >>> t = mxfp.trace(mxfp.quantize([0.5, -6.0]), mxfp.quantize([6.0, 1.0]))
    >>> t.products[0, :2].tolist(), t.level_widths, float(t.result), f"{t.result_bits:08x}"
    ([12, -24], (9, 10, 11, 12, 13, 14), -3.0, 'c0400000')
    """
    chosen = Sequential("float32") if accumulator is None else accumulator
    if not isinstance(chosen, Accumulator):
        raise TypeError(f"accumulator must be one of mxfp's, such as mxfp.Exact('float32'), got {chosen!r}")
    for side, q in (("a", a), ("b", b)):
        if isinstance(q, BlockArray) and q.ndim != 1:
            raise ValueError(f"trace follows one dot product of two vectors; {side} has shape {q.shape}")
    terms = block_dots(a, b, group=chosen.terms_of)
    group = check_group(chosen.terms_of, a.format)
    x, y = (_filled(q, len(terms), group) for q in (a, b))
    wide = sum_width(a.format, b.format, group) > 62
    products = x.astype(object) * y.astype(object) if wide else x * y
    levels = tuple(_adder_tree(products))
    sizes = [1, *(min(2 ** (n + 1), group) for n in range(len(levels)))]
    result = np.asarray(chosen(terms))
    return Trace(
        a,
        b,
        chosen,
        x,
        y,
        products,
        levels,
        tuple(sum_width(a.format, b.format, n) for n in sizes),
        terms,
        tuple(chosen.steps(terms)),
        result[()],
        bits_of(result),
    )


def _filled(q: BlockArray, terms: int, group: int) -> Integers:
    """A vector's integers, filled up with zeros to (terms, group)."""
    integers = np.zeros(terms * group, np.int64)
    integers[: q.shape[0]] = q.format.element.integers[q.codes]
    return integers.reshape(terms, group)


def _adder_tree(products: NDArray[Any]) -> list[NDArray[Any]]:
    """(n, g) -> sums of pairs, of pairs of pairs … down to (n, 1); an odd one out is carried up."""
    levels = []
    while products.shape[-1] > 1:
        even = products.shape[-1] // 2 * 2
        pairs = products[:, 0:even:2] + products[:, 1:even:2]
        products = np.concatenate([pairs, products[:, even:]], axis=1)
        levels.append(products)
    return levels


def bits_of(value: AnyFloats) -> int:
    """A float scalar's bit pattern as an integer."""
    array = np.asarray(value)
    return int(array.view(f"u{array.dtype.itemsize}")[()])
