# SPDX-License-Identifier: Apache-2.0
"""What is verified: a unit, batches of cases for it, and what it should give at every stage.

Everything expected is computed by the rooms of the package, on whole batches; nothing here re-implements
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ..accumulate import Accumulator, Sequential
from ..blocks import BlockArray, check_choice
from ..dot import INT64_BITS, Terms, block_dots, check_group
from ..formats import MXFP4, BlockFormat, Bools, Codes, Integers
from ..integers import signed_bits, sum_bounds, sum_width

Kind = Literal["sum", "dot", "running"]
"""A unit that sums products; that multiplies scaled blocks; that adds each case to one it keeps."""
KINDS: Final[tuple[Kind, ...]] = ("sum", "dot", "running")
DEFAULT: Final = Sequential("float32")
MOST_ELEMENTS: Final = 1 << 14
"""The most lanes times blocks of one case."""


@dataclass(frozen=True)
class Unit:
    """A dot-product unit: `lanes` products a block, `blocks` blocks a case, and what adds them.

    kind: "sum" gives the integer sum of products of one block, without scales; "dot" the accumulator's result
    over the blocks of a case; "running" adds the blocks of each case to an accumulator that it keeps, until a
    case is marked first. a, b: block formats, whose blocks become `lanes` long.

    >>> Unit("dot").lanes, Unit("dot").sum_bits, str(Unit("dot").accumulator)
    (32, 14, 'sequential:float32')
    """

    kind: Kind
    a: BlockFormat = MXFP4
    b: BlockFormat | None = None
    lanes: int | None = None
    blocks: int = 1
    accumulator: Accumulator = DEFAULT

    def __post_init__(self) -> None:
        """Check that the parts go together."""
        check_choice(self.kind, KINDS, "kind")
        b = self.a if self.b is None else self.b
        for side, fmt in (("a", self.a), ("b", b)):
            if not isinstance(fmt, BlockFormat):
                raise TypeError(f"{side} is a BlockFormat, such as mxfp.MXFP4, got {fmt!r}")
        lanes = self.a.block if self.lanes is None else self.lanes
        for name, value in (("lanes", lanes), ("blocks", self.blocks)):
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} is a number, 1 or more, got {value!r}")
        if lanes * self.blocks > MOST_ELEMENTS:
            raise ValueError(
                f"a case has at most {MOST_ELEMENTS} elements, got {lanes} lanes × {self.blocks} blocks"
            )
        if self.kind == "sum" and self.blocks != 1:
            raise ValueError(f"a unit that sums products has one block, got {self.blocks}")
        for name, value in (("lanes", int(lanes)), ("blocks", int(self.blocks))):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "a", _with_block(self.a, int(lanes)))
        object.__setattr__(self, "b", _with_block(b, int(lanes)))
        if not isinstance(self.accumulator, Accumulator):
            raise TypeError(
                f"accumulator is one of mxfp's, such as mxfp.Sequential('float32'), got {self.accumulator!r}"
            )
        if self.kind != "sum":
            check_group(self.accumulator.terms_of, self.a)
        step = getattr(self.accumulator, "step", 1)
        if self.kind == "running" and self.elements % step:
            raise ValueError(
                f"{self.accumulator} adds {step} products a step, and a case has {self.elements}; give more "
                "blocks"
            )
        if sum_width(self.a, self.sides[1], int(lanes)) > INT64_BITS:
            raise ValueError(
                f"sums of {lanes} products {self.a.name} × {self.sides[1].name} take "
                f"{sum_width(self.a, self.sides[1], int(lanes))} bits; vectors hold at most {INT64_BITS}"
            )

    @property
    def sides(self) -> tuple[BlockFormat, BlockFormat]:
        """The formats of both sides."""
        return self.a, self.a if self.b is None else self.b

    @property
    def elements(self) -> int:
        """Elements of one case on each side."""
        return (self.lanes or self.a.block) * self.blocks

    @property
    def sum_bits(self) -> int:
        """Signed bits of a sum of products."""
        return sum_width(*self.sides, self.a.block)

    @property
    def level_bits(self) -> tuple[int, ...]:
        """Signed bits of the products and of each level of a binary adder tree."""
        found, lanes, count = [sum_width(*self.sides, 1)], self.a.block, 1
        while count < lanes:
            count = min(2 * count, lanes)
            found.append(sum_width(*self.sides, count))
        return tuple(found)

    @property
    def scaled(self) -> bool:
        """Whether the unit takes scales."""
        return self.kind != "sum"

    @property
    def exponent_range(self) -> tuple[int, int]:
        """The smallest and the largest exponent of a term."""
        a, b = self.sides
        lsb = a.element.lsb_exponent + b.element.lsb_exponent
        low, high = (
            int(getattr(a.scale.exponents, end)() + getattr(b.scale.exponents, end)())
            for end in ("min", "max")
        )
        return low + lsb, high + lsb

    @property
    def exponent_bits(self) -> int:
        """Signed bits of an exponent."""
        return signed_bits(*self.exponent_range)

    @property
    def term_bits(self) -> int:
        """Signed bits of a sum times the significands of both scales."""
        low, high = sum_bounds(self.a.element, self.sides[1].element, self.a.block)
        largest = 1
        for fmt in self.sides:
            largest *= int(fmt.scale.significands.max())
        return signed_bits(low * largest, high * largest)


def _with_block(fmt: BlockFormat, lanes: int) -> BlockFormat:
    """The format with blocks of that many elements; the very same one where it has them already."""
    return fmt if fmt.block == lanes else replace(fmt, name=f"{fmt.name}x{lanes}", block=lanes)


@dataclass(frozen=True, eq=False)
class Batch:
    """Cases in a row. n cases of `elements` each; blocks one behind the other.

    codes_a, codes_b: uint8 (n, elements). scales_a, scales_b: uint8 (n, blocks). first: (n,) whether the
    accumulator is cleared before the case; always true unless the unit is "running". group: (n,) which of
    `groups` each case is of. start: the number of the first case. A running sequence lies within one batch.
    """

    unit: Unit
    codes_a: Codes
    codes_b: Codes
    scales_a: Codes
    scales_b: Codes
    first: Bools
    group: Integers
    groups: tuple[str, ...]
    start: int = 0

    def __len__(self) -> int:
        """How many cases."""
        return len(self.codes_a)

    @property
    def pair(self) -> tuple[BlockArray, BlockArray]:
        """All cases as two BlockArrays (n, elements)."""
        a, b = self.unit.sides
        return BlockArray(self.codes_a, self.scales_a, a), BlockArray(self.codes_b, self.scales_b, b)

    def cut(self, rows: slice) -> Batch:
        """Some of the cases, numbered as they were."""
        first, _, step = rows.indices(len(self))
        if step != 1:
            raise ValueError("cases are cut in a row")
        names = ("codes_a", "codes_b", "scales_a", "scales_b", "first", "group")
        parts: dict[str, Any] = {name: getattr(self, name)[rows] for name in names}
        return replace(self, **parts, start=self.start + first)


Expected = Mapping[str, NDArray[Any]]
"""Stage by stage, (n, count) integers: product, level1 …, sum, exponent, special, term, result (bits)."""


def expected(batch: Batch, *, stages: bool = True) -> dict[str, NDArray[Any]]:
    """What a right unit gives for each case of a batch, at every stage, as integers.

    product, level1, level2 … (with stages): int64 (n, …); sum: int64 (n, blocks), of the codes alone. Units
    with scales: exponent: int64 (n, blocks), of the LSB of the sum; special: 0 finite, 1 NaN, 2 +infinity, 3
    -infinity; term: the sum times both scales' significands, where scales have any; result: the bits of the
    accumulator, unsigned (n, 1).

    >>> import numpy as np
    >>> unit = Unit("dot", lanes=2)
    >>> one = np.full((1, 1), 127, np.uint8)
    >>> codes, first = (np.uint8([[7, 1]]), np.uint8([[15, 2]])), np.array([True])
    >>> found = expected(Batch(unit, *codes, one, one, first, np.array([0]), ("x",)))
    >>> {name: values.tolist() for name, values in found.items() if name != "result"}
    {'product': [[-144, 2]], 'level1': [[-142]], 'sum': [[-142]], 'exponent': [[-2]], 'special': [[0]]}
    >>> f"{int(found['result'][0, 0]):08x}"
    'c20e0000'
    """
    unit = batch.unit
    found = _tree(batch) if stages else {}
    if not unit.scaled:
        return found if stages else {"sum": _sums(batch)}
    a, b = unit.sides
    lsb = a.element.lsb_exponent + b.element.lsb_exponent
    terms = block_dots(*batch.pair, group=unit.accumulator.terms_of)
    per_block = terms if terms.sums.shape[-1] == unit.blocks else block_dots(*batch.pair)
    if not stages:
        plain = per_block.specials is None and unit.term_bits == unit.sum_bits
        found["sum"] = per_block.sums if plain else _sums(batch)
    found["exponent"] = a.scale.exponents[batch.scales_a] + b.scale.exponents[batch.scales_b] + lsb
    found["special"] = _special(per_block)
    if unit.term_bits != unit.sum_bits:
        significands = a.scale.significands[batch.scales_a], b.scale.significands[batch.scales_b]
        found["term"] = found["sum"] * significands[0] * significands[1]
    add = unit.accumulator
    result = _running(batch, terms) if unit.kind == "running" else np.asarray(add(terms))
    found["result"] = result.view(f"u{result.dtype.itemsize}").astype(np.uint64)[:, None]
    return found


def _integers(batch: Batch) -> tuple[Integers, Integers]:
    """Elements of both sides as integers, (n, blocks, lanes)."""
    shape = (len(batch), batch.unit.blocks, batch.unit.a.block)
    a, b = (fmt.element.integers for fmt in batch.unit.sides)
    return a[batch.codes_a].reshape(shape), b[batch.codes_b].reshape(shape)


def _sums(batch: Batch) -> Integers:
    x, y = _integers(batch)
    return np.asarray((x * y).sum(axis=-1))


def _tree(batch: Batch) -> dict[str, NDArray[Any]]:
    """The products, each level of a binary tree, and the sum."""
    x, y = _integers(batch)
    level = x * y
    found = {"product": level.reshape(len(batch), -1)}
    while level.shape[-1] > 1:
        even = level.shape[-1] // 2 * 2
        level = np.concatenate([level[..., 0:even:2] + level[..., 1:even:2], level[..., even:]], axis=-1)
        found[f"level{len(found)}"] = level.reshape(len(batch), -1)
    return {**found, "sum": level[..., 0]}


def _special(terms: Terms) -> Integers:
    if terms.specials is None:
        return np.zeros(terms.sums.shape, np.int64)
    kinds = [np.isnan(terms.specials), terms.specials == np.inf, terms.specials == -np.inf]
    return np.select(kinds, [1, 2, 3], 0).astype(np.int64)


def _running(batch: Batch, terms: Terms) -> NDArray[Any]:
    """The accumulator after each case: that of the terms of all cases since the last first one, together."""
    unit = batch.unit
    if len(batch) and not batch.first[0]:
        raise ValueError("a batch of a running unit begins with a case that is marked first")
    sequence = np.cumsum(batch.first) - 1
    begins = np.flatnonzero(batch.first)
    place = np.arange(len(batch)) - begins[sequence] if len(batch) else np.zeros(0, np.int64)
    found = np.zeros(len(batch), unit.accumulator.result_dtype)
    for length in range(1, int(place.max(initial=-1)) + 2):
        last = np.flatnonzero(place == length - 1)
        found[last] = unit.accumulator(_together(terms, last[:, None] + np.arange(1 - length, 1)))
    return found


def _together(terms: Terms, rows: Integers) -> Terms:
    """(n, m) rows of terms -> n rows, the terms of m of them behind each other."""
    arrays: dict[str, Any] = {}
    for name in ("sums", "exponents", "specials", "live", "leading"):
        array = getattr(terms, name)
        arrays[name] = None if array is None else array[rows].reshape(len(rows), -1)
    return replace(terms, **arrays)
