# SPDX-License-Identifier: Apache-2.0
"""What is verified: a dot-product unit, its formats, its lanes, and what adds its blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from ...accumulate import Accumulator, Sequential
from ...blocks import check_choice
from ...dot import INT64_BITS, check_group
from ...formats import MXFP4, BlockFormat
from ...integers import signed_bits, sum_bounds, sum_width

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
