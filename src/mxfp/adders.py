# SPDX-License-Identifier: Apache-2.0
"""Side room off 5: trees of adders, as a netlist: which sums each adder takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import Any, Final

import numpy as np

MOST_LANES: Final = 1 << 14
"""The most products that a tree adds up here."""


@dataclass(frozen=True)
class AdderTree:
    """A tree of adders over `lanes` products.

    Nodes 0 … lanes - 1 are the products; each adder is one more node, in order, and `adders` has the nodes
    that it adds up. Every node but the last, the root, is added once. A node's level is 0 for a product and
    one above its highest input for an adder.

    Raises ValueError where that is no tree.

    >>> tree = AdderTree(4, ((0, 1), (2, 3), (4, 5)))
    >>> tree == balanced(4), tree.levels, tree.lanes_of(6)
    (True, (0, 0, 0, 0, 1, 1, 2), (0, 1, 2, 3))
    """

    lanes: int
    adders: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        """Check that every node is defined before it is used, and used once."""
        object.__setattr__(self, "lanes", check_lanes(self.lanes))
        try:
            adders = tuple(tuple(index(i) for i in inputs) for inputs in self.adders)
        except TypeError:
            raise TypeError(
                f"adders are tuples of node numbers, such as ((0, 1), (2, 3), (4, 5)), got {self.adders!r}"
            ) from None
        object.__setattr__(self, "adders", adders)
        used: set[int] = set()
        for own, inputs in enumerate(adders, self.lanes):
            if len(inputs) < 2:
                raise ValueError(f"adder {own} adds up two nodes or more, got {inputs}")
            for i in inputs:
                if not 0 <= i < own:
                    raise ValueError(f"adder {own} adds nodes 0 … {own - 1}, got {i}")
                if i in used:
                    raise ValueError(f"node {i} is added twice, the second time by adder {own}")
                used.add(i)
        loose = set(range(self.root)) - used
        if loose:
            raise ValueError(f"node {min(loose)} is added by no adder")

    @property
    def root(self) -> int:
        """The node that holds the sum of all lanes."""
        return self.lanes + len(self.adders) - 1

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """The level of every node."""
        found = [0] * self.lanes
        for inputs in self.adders:
            found.append(1 + max(found[i] for i in inputs))
        return tuple(found)

    @property
    def depth(self) -> int:
        """Levels of adders."""
        return self.levels[self.root]

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """How many lanes each node sums."""
        found = [1] * self.lanes
        for inputs in self.adders:
            found.append(sum(found[i] for i in inputs))
        return tuple(found)

    def lanes_of(self, node: int) -> tuple[int, ...]:
        """The lanes that a node sums, in order."""
        open_nodes, found = [node], []
        while open_nodes:
            last = open_nodes.pop()
            if last < self.lanes:
                found.append(last)
            else:
                open_nodes.extend(self.adders[last - self.lanes])
        return tuple(sorted(found))

    def sums(self, products: Sequence[Any]) -> list[Any]:
        """Products (one a lane) -> what every node holds if it is as wide as it needs to be."""
        if len(products) != self.lanes:
            raise ValueError(f"the tree has {self.lanes} lanes, got {len(products)} products")
        held = list(products)
        for inputs in self.adders:
            held.append(sum(held[i] for i in inputs))
        return held


def check_lanes(lanes: int) -> int:
    """A number of lanes; ValueError for anything else."""
    whole = isinstance(lanes, (int, np.integer)) and not isinstance(lanes, bool)
    if not whole or not 1 <= lanes <= MOST_LANES:
        raise ValueError(f"lanes is a number of products, 1 … {MOST_LANES}, got {lanes!r}")
    return int(lanes)


def linear(lanes: int) -> AdderTree:
    """A chain: each adder adds one more product, as an accumulator does in time.

    >>> linear(4).adders
    ((0, 1), (4, 2), (5, 3))
    """
    lanes = check_lanes(lanes)
    chain = tuple((lanes + n - 1 if n else 0, n + 1) for n in range(lanes - 1))
    return AdderTree(lanes, chain)


def balanced(lanes: int, *, arity: int = 2) -> AdderTree:
    """Level by level, `arity` neighbours an adder; a last one alone is passed on to the next level.

    >>> balanced(32).depth, balanced(32, arity=4).depth, balanced(5).adders
    (5, 3, ((0, 1), (2, 3), (5, 6), (7, 4)))
    """
    lanes = check_lanes(lanes)
    if isinstance(arity, bool) or not isinstance(arity, (int, np.integer)) or arity < 2:
        raise ValueError(f"arity is how many nodes an adder adds, 2 or more, got {arity!r}")
    level = list(range(lanes))
    adders: list[tuple[int, ...]] = []
    while len(level) > 1:
        after = []
        for inputs in _runs(level, int(arity)):
            if len(inputs) == 1:
                after.append(inputs[0])
            else:
                after.append(lanes + len(adders))
                adders.append(inputs)
        level = after
    return AdderTree(lanes, tuple(adders))


def _runs(nodes: list[int], size: int) -> Iterator[tuple[int, ...]]:
    for first in range(0, len(nodes), size):
        yield tuple(nodes[first : first + size])


def tree_named(text: str, lanes: int) -> AdderTree:
    """A tree over `lanes` products by its name: binary, linear, or its arity as a number.

    >>> tree_named("binary", 8) == tree_named("2", 8) == balanced(8)
    True
    """
    word = str(text).strip().lower()
    if word == "linear":
        return linear(lanes)
    if word == "binary":
        return balanced(lanes)
    if word.isdecimal() and len(word) < 10 and int(word) >= 2:
        return balanced(lanes, arity=int(word))
    raise ValueError(f"a tree is binary, linear, or how many nodes each adder adds (2, 3, 4 …); got {text!r}")
