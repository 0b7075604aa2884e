# SPDX-License-Identifier: Apache-2.0
"""Side room off 7: how many bits the adders of a dot product need, proved, or the case that breaks fewer.

The bounds of a sum of n products are n times those of one, and both ends are reached: by n lanes of the same
pair of codes. So a width derived from them is sufficient and necessary, and a narrower one has a
counterexample whose lanes can be counted. Contract §4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from .adders import AdderTree, balanced, check_lanes
from .blocks import BlockArray
from .dot import block_dots
from .formats import (
    BLOCK_FORMATS,
    E8M0,
    MXFP4,
    POWER_OF_TWO_RULES,
    BlockFormat,
    Codes,
    ElementFormat,
    element_of,
)
from .integers import check_bits, product_bounds, signed_bits, sum_bounds, to_integers, wrap
from .sums import code_pair, countable, distinct_products, lanes_for, reachable_sums

__all__ = [
    "Node",
    "WidthCounterexample",
    "WidthProof",
    "check_width",
    "lanes_for",
    "level_widths",
    "reachable_sums",
]

COUNTED: Final = 1 << 18
"""Sums over a range up to this are counted out in a proof; wider ones are left to the interval."""
ONE: Final = 127
"""The E8M0 code of 1."""

How = Literal["every product", "every sum", "interval"]
"""How a node's ends are known: all code pairs enumerated; all sums counted; n times the ends of one product,
which n lanes of its codes reach."""


class Node(NamedTuple):
    """What the nodes of one level that sum as many lanes hold: low … high, both reached."""

    level: int
    nodes: int
    lanes: int
    low: int
    high: int
    needed: int
    """Signed bits that low … high take; one fewer does not hold them."""
    width: int
    """Signed bits declared."""
    how: How
    sums: int | None
    """How many different values there are, where they were counted."""


@dataclass(frozen=True)
class WidthProof:
    """That widths are enough for every input: truthy. `str` is the table; `replay` checks it by adding.

    >>> bool(check_width(14)), check_width(14).nodes[-1].needed
    (True, 14)
    """

    a: ElementFormat
    b: ElementFormat
    tree: AdderTree
    widths: tuple[int, ...]
    """Of each level, the products first."""
    nodes: tuple[Node, ...]
    low_codes: tuple[int, int]
    """The codes of the smallest product."""
    high_codes: tuple[int, int]
    """The codes of the largest product."""

    def replay(self) -> None:
        """Add up both ends in integers, lane by lane; ArithmeticError if any node differs or does not fit.

        That they are the ends is seen from all products of two elements.
        """
        products = distinct_products(self.a, self.b)
        for codes, end in ((self.low_codes, "low"), (self.high_codes, "high")):
            one, other = (int(to_integers(c, f)) for c, f in zip(codes, (self.a, self.b), strict=True))
            if one * other != products[0 if end == "low" else -1]:
                raise ArithmeticError(f"the proof does not hold: codes {codes} do not make the {end} product")
            held = self.tree.sums([one * other] * self.tree.lanes)
            expected = {(n.level, n.lanes): n for n in self.nodes}
            for value, level, count in zip(held, self.tree.levels, self.tree.counts, strict=True):
                node, limit = expected.get((level, count)), 1 << (self.widths[level] - 1)
                if node is None or value != getattr(node, end) or not -limit <= value < limit:
                    raise ArithmeticError(f"the proof does not hold: {node}, whose {end} is {value}")
                if (node.width, node.needed) != (self.widths[level], signed_bits(node.low, node.high)):
                    raise ArithmeticError(f"the proof does not hold: {node} has or needs other widths")

    def __str__(self) -> str:
        """One line a level."""
        what = f"{self.tree.lanes} products {self.a.name} × {self.b.name}"
        lines = [f"{what}: {_widths(self.widths)} bits hold every sum; ends reached by"]
        for name, (x, y) in (("low", self.low_codes), ("high", self.high_codes)):
            lines.append(f"  {name:<4} {self.a.values[x]:g} × {self.b.values[y]:g} in every lane")
        for n in self.nodes:
            counted = "" if n.sums is None else f", {n.sums} different"
            lines.append(
                f"  level {n.level}: {n.nodes} × {n.lanes} lanes, {n.low} … {n.high}, needs {n.needed}, "
                f"has {n.width} ({n.how}{counted})"
            )
        return "\n".join(lines)


@dataclass(frozen=True)
class WidthCounterexample:
    """The case with the fewest nonzero lanes that does not fit the widths: falsy.

    codes_a, codes_b: uint8 (lanes,). level, node: where the sum does not fit; value: that sum; width: its
    bits; wrapped: what two's complement makes of it. fits: the largest number of the same lanes that does
    fit, and their sum. failing: every level that some input breaks.

    >>> case = check_width(13)
    >>> case.nonzero, case.value, case.fits, case.wrapped
    (29, 4176, (28, 4032), -4016)
    """

    a: ElementFormat
    b: ElementFormat
    tree: AdderTree
    widths: tuple[int, ...]
    codes_a: Codes
    codes_b: Codes
    level: int
    node: int
    value: int
    width: int
    fits: tuple[int, int]
    failing: tuple[int, ...]

    def __bool__(self) -> bool:
        """False: the widths are not enough."""
        return False

    @property
    def nonzero(self) -> int:
        """How many lanes are not zero; no case has fewer."""
        return int(np.count_nonzero(self.codes_a))

    @property
    def wrapped(self) -> int:
        """What a two's-complement register of the width would hold instead."""
        return int(wrap(self.value, self.width))

    def blocks(self) -> tuple[BlockArray, BlockArray]:
        """The case as one block a side with scales of 1, for `mxfp.block_dots(a, b, width=…)`."""
        sides = ((self.a, self.codes_a), (self.b, self.codes_b))
        a, b = (
            BlockArray(codes, np.full(1, ONE, np.uint8), block_format(fmt, self.tree.lanes))
            for fmt, codes in sides
        )
        return a, b

    def replay(self) -> None:
        """Multiply the blocks with that width declared: raises the WidthError that hardware would hide."""
        block_dots(*self.blocks(), width=self.width)

    def __str__(self) -> str:
        """What breaks, where, and what still fits, in a few lines."""
        x, y = int(self.codes_a[self.first]), int(self.codes_b[self.first])
        low, high = -(1 << (self.width - 1)), (1 << (self.width - 1)) - 1
        where = "a product" if self.level == 0 else f"an adder at level {self.level} of {self.tree.depth}"
        pair = f"{self.a.values[x]:g} × {self.b.values[y]:g}"
        many = f"{self.nonzero} lanes of {pair} are" if self.nonzero > 1 else f"{pair} is"
        fewer = f"  {self.fits[0]} fit ({self.fits[1]}); no case has fewer than {self.nonzero} nonzero lanes"
        lines = [
            f"{self.width} bits ({low} … {high}) do not hold {where}:",
            f"  {many} {self.value}, which wraps to {self.wrapped}",
            fewer if self.nonzero > 1 else "  a single lane; no case has fewer",
            f"  a ({self.a.name} codes) {self.codes_a.tobytes().hex(' ')}",
            f"  b ({self.b.name} codes) {self.codes_b.tobytes().hex(' ')}",
        ]
        if len(self.failing) > 1:
            lines.append(f"  levels that some input breaks: {', '.join(map(str, self.failing))}")
        return "\n".join(lines)

    @property
    def first(self) -> int:
        """The first lane that is not zero."""
        return int(np.flatnonzero(self.codes_a)[0])


def block_format(element: ElementFormat, lanes: int) -> BlockFormat:
    """Blocks of `lanes` elements with one E8M0 scale: the named format if that is one."""
    for fmt in BLOCK_FORMATS.values():
        if (fmt.element, fmt.block, fmt.scale) == (element, lanes, E8M0):
            return fmt
    return BlockFormat(f"{element.name}x{lanes}", element, E8M0, lanes, POWER_OF_TWO_RULES)


def level_widths(
    a: ElementFormat | BlockFormat = MXFP4,
    b: ElementFormat | BlockFormat | None = None,
    *,
    lanes: int | None = None,
    tree: AdderTree | None = None,
) -> tuple[int, ...]:
    """The signed bits that each level of an adder tree needs, the products first. Contract §4.

    The tree is binary unless one is given; lanes default to the block of a. See `mxfp.adders`.

    >>> level_widths()
    (9, 10, 11, 12, 13, 14)
    >>> from mxfp import INT8, adders
    >>> level_widths(INT8, tree=adders.balanced(32, arity=4))
    (16, 18, 20, 21)
    """
    one, other, found = _operands(a, b, lanes, tree)
    most = [0] * (found.depth + 1)
    for level, count in zip(found.levels, found.counts, strict=True):
        most[level] = max(most[level], count)
    return tuple(signed_bits(*sum_bounds(one, other, count)) for count in most)


def check_width(
    width: int | Sequence[int],
    a: ElementFormat | BlockFormat = MXFP4,
    b: ElementFormat | BlockFormat | None = None,
    *,
    lanes: int | None = None,
    tree: AdderTree | None = None,
) -> WidthProof | WidthCounterexample:
    """Whether registers of `width` signed bits hold every sum of products: a proof, or a counterexample.

    width: of every node, or one for each level, the products first. a, b: formats of the elements; b is a's
    if not given. lanes: products, a's block if not given (an element format: 32). tree: see `mxfp.adders`;
    binary if not given. The answer is truthy exactly if it is a `WidthProof`. Contract §4.

    Raises ValueError for widths that are no widths, or not one a level.

    >>> print(check_width(13))  # doctest: +ELLIPSIS
    13 bits (-4096 … 4095) do not hold an adder at level 5 of 5:
      29 lanes of 6 × 6 are 4176, which wraps to -4016
      28 fit (4032); no case has fewer than 29 nonzero lanes
      a (E2M1 codes) 07 07 07 07 ...
      b (E2M1 codes) 07 07 07 07 ...
    >>> check_width((9, 10, 11, 11, 13, 14)).level
    3
    """
    one, other, found = _operands(a, b, lanes, tree)
    widths = _one_a_level(width, found)
    low, high = product_bounds(one, other)
    broken = []
    for node, (level, count) in enumerate(zip(found.levels, found.counts, strict=True)):
        limit = 1 << (widths[level] - 1)
        for end, most in ((high, limit - 1), (low, limit)):
            needed = most // abs(end) + 1 if end else count + 1
            if needed <= count:
                broken.append((needed, level, end < 0, node))
    if not broken:
        ends = [code_pair(end, one, other) for end in (low, high)]
        return WidthProof(one, other, found, widths, _nodes(one, other, found, widths), ends[0], ends[1])
    needed, level, negative, node = min(broken)
    pair = code_pair(low if negative else high, one, other)
    codes = np.zeros((2, found.lanes), np.uint8)
    codes[:, list(found.lanes_of(node)[:needed])] = np.array(pair, np.uint8)[:, None]
    product = low if negative else high
    return WidthCounterexample(
        one,
        other,
        found,
        widths,
        codes[0],
        codes[1],
        level,
        node,
        needed * product,
        widths[level],
        (needed - 1, (needed - 1) * product),
        tuple(sorted({place for _, place, _, _ in broken})),
    )


def _operands(
    a: Any, b: Any, lanes: int | None, tree: AdderTree | None
) -> tuple[ElementFormat, ElementFormat, AdderTree]:
    """Element formats and a tree; ValueError where they do not go together."""
    for side, fmt in (("a", a), ("b", b)):
        if not isinstance(fmt, (ElementFormat, BlockFormat)) and not (side == "b" and fmt is None):
            raise TypeError(f"{side} is an ElementFormat or a BlockFormat, such as mxfp.MXFP4, got {fmt!r}")
    if tree is not None and not isinstance(tree, AdderTree):
        raise TypeError(f"tree is an AdderTree (see mxfp.adders.balanced and linear), got {tree!r}")
    if tree is not None and lanes is not None and lanes != tree.lanes:
        raise ValueError(f"the tree has {tree.lanes} lanes, and lanes is {lanes}")
    if lanes is None:
        lanes = a.block if isinstance(a, BlockFormat) else 32
    one = element_of(a)
    return one, one if b is None else element_of(b), tree or balanced(check_lanes(lanes))


def _one_a_level(width: int | Sequence[int], tree: AdderTree) -> tuple[int, ...]:
    if isinstance(width, (int, np.integer)):
        return (check_bits(width),) * (tree.depth + 1)
    if not isinstance(width, (Sequence, np.ndarray)) or isinstance(width, str):
        raise TypeError(f"width is a number of bits, or one for each level, got {width!r}")
    widths = tuple(check_bits(w) for w in width)
    if len(widths) != tree.depth + 1:
        raise ValueError(
            f"a tree of {tree.lanes} lanes has {tree.depth + 1} levels, the products first, got "
            f"{len(widths)} widths"
        )
    return widths


def _nodes(a: ElementFormat, b: ElementFormat, tree: AdderTree, widths: tuple[int, ...]) -> tuple[Node, ...]:
    """One entry for all nodes of a level that sum as many lanes."""
    kinds: dict[tuple[int, int], int] = {}
    for kind in zip(tree.levels, tree.counts, strict=True):
        kinds[kind] = kinds.get(kind, 0) + 1
    found = []
    for (level, count), nodes in sorted(kinds.items()):
        low, high = sum_bounds(a, b, count)
        how, sums = _established(a, b, count, low, high)
        found.append(Node(level, nodes, count, low, high, signed_bits(low, high), widths[level], how, sums))
    return tuple(found)


def _established(
    a: ElementFormat, b: ElementFormat, count: int, low: int, high: int
) -> tuple[How, int | None]:
    """How low and high are known to be reached; the sets are counted where they are small."""
    if count == 1:
        return "every product", len(distinct_products(a, b))
    if high - low < COUNTED and countable(a, b, count):
        sums = reachable_sums(a, b, count)
        values = sums.values()
        if (values[0], values[-1]) != (low, high):
            raise ArithmeticError(f"sums of {count} products reach {values[0]} … {values[-1]}")
        return "every sum", len(sums)
    return "interval", None


def _widths(widths: tuple[int, ...]) -> str:
    same = len(set(widths)) == 1
    return str(widths[0]) if same else ", ".join(map(str, widths))
