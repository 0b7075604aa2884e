# SPDX-License-Identifier: Apache-2.0
"""Side room off 5: an adder tree is the netlist that was asked for, and sums what its lanes hold."""

import itertools
import random

import numpy as np
import pytest

from mxfp.adders import MOST_LANES, AdderTree, balanced, linear, tree_named


def expand(tree, node):
    """A node as nested tuples of lanes, read from the netlist alone."""
    if node < tree.lanes:
        return node
    return tuple(expand(tree, i) for i in tree.adders[node - tree.lanes])


def leaves(nested):
    return [nested] if isinstance(nested, int) else [x for part in nested for x in leaves(part)]


def height(nested):
    return 0 if isinstance(nested, int) else 1 + max(map(height, nested))


def total(nested, products):
    return products[nested] if isinstance(nested, int) else sum(total(x, products) for x in nested)


def random_tree(lanes, seed):
    """Adders of two to five nodes, taken from anywhere."""
    draw = random.Random(seed)
    loose, adders = list(range(lanes)), []
    while len(loose) > 1:
        taken = [loose.pop(draw.randrange(len(loose))) for _ in range(min(len(loose), draw.randint(2, 5)))]
        loose.append(lanes + len(adders))
        adders.append(tuple(taken))
    return AdderTree(lanes, tuple(adders))


TREES = [
    *(linear(n) for n in (1, 2, 7)),
    *(balanced(n, arity=k) for n in (1, 2, 5, 16, 31, 32, 33) for k in (2, 3, 4, 9)),
    *(random_tree(n, seed) for n, seed in itertools.product((3, 8, 29, 64), range(3))),
]


@pytest.mark.parametrize("tree", TREES, ids=lambda t: f"{t.lanes}-{t.depth}")
def test_levels_counts_and_lanes_are_those_of_the_nested_sum(tree):
    products = [3**n for n in range(tree.lanes)]  # every set of lanes has its own sum
    held = tree.sums(products)
    assert len(held) == len(tree.levels) == len(tree.counts) == tree.root + 1
    for node in range(tree.root + 1):
        nested = expand(tree, node)
        assert tree.levels[node] == height(nested)
        assert tree.lanes_of(node) == tuple(sorted(leaves(nested)))
        assert tree.counts[node] == len(leaves(nested))
        assert held[node] == total(nested, products)
    assert tree.lanes_of(tree.root) == tuple(range(tree.lanes))
    assert tree.depth == height(expand(tree, tree.root))


def test_a_chain_adds_one_product_at_a_time():
    assert expand(linear(5), linear(5).root) == ((((0, 1), 2), 3), 4)
    assert linear(MOST_LANES).depth == MOST_LANES - 1


def test_a_balanced_tree_adds_neighbours_and_passes_on_the_last_one():
    assert expand(balanced(5), 8) == (((0, 1), (2, 3)), 4)
    assert expand(balanced(7, arity=3), balanced(7, arity=3).root) == ((0, 1, 2), (3, 4, 5), 6)
    assert expand(balanced(4, arity=9), 4) == (0, 1, 2, 3)


@pytest.mark.parametrize("arity", [2, 3, 4, 7])
def test_a_balanced_tree_is_as_shallow_as_its_arity_allows(arity):
    for lanes in (1, 2, 3, 31, 32, 33, 81, 1000):
        depth = next(d for d in itertools.count() if arity**d >= lanes)
        assert balanced(lanes, arity=arity).depth == depth


def test_trees_by_name():
    assert tree_named("binary", 9) == balanced(9)
    assert tree_named(" LINEAR ", 9) == linear(9)
    assert tree_named("4", 32) == balanced(32, arity=4)


def test_numbers_of_numpy_are_numbers():
    tree = AdderTree(np.int64(2), np.array([[0, 1]]))
    assert tree == linear(np.int32(2)) == balanced(np.uint8(2), arity=np.int64(2))
    assert all(type(i) is int for i in (tree.lanes, *tree.adders[0]))
    assert hash(tree) == hash(linear(2))


@pytest.mark.parametrize("lanes", [0, -1, 1.0, True, None, "4", MOST_LANES + 1, 10**30])
def test_lanes_that_are_no_number_of_products(lanes):
    for make in (linear, balanced, lambda n: AdderTree(n, ())):
        with pytest.raises(ValueError, match="lanes is a number of products, 1 … 16384, got"):
            make(lanes)


@pytest.mark.parametrize(
    ("adders", "words"),
    [
        ((), "node 0 is added by no adder"),
        (((0, 1),), "node 2 is added by no adder"),
        (((0, 1, 2, 3), (4,)), "adder 5 adds up two nodes or more"),
        (((0, 1, 2, 3), ()), "adder 5 adds up two nodes or more"),
        (((0, 1), (2, 2), (3, 4)), "node 2 is added twice, the second time by adder 5"),
        (((0, 1), (4, 2), (4, 3)), "node 4 is added twice, the second time by adder 6"),
        (((0, 4), (1, 2, 3)), "adder 4 adds nodes 0 … 3, got 4"),
        (((0, 5), (1, 2, 3)), "adder 4 adds nodes 0 … 3, got 5"),
        (((0, 1), (-1, 2), (3, 4)), "adder 5 adds nodes 0 … 4, got -1"),
    ],
)
def test_what_is_no_tree(adders, words):
    with pytest.raises(ValueError, match=words):
        AdderTree(4, adders)


@pytest.mark.parametrize("adders", [None, 3, (3,), ((0, 1.7),), ((0, "1"),), (("0", "1"),)])
def test_what_is_no_netlist(adders):
    with pytest.raises(TypeError, match="adders are tuples of node numbers"):
        AdderTree(2, adders)


@pytest.mark.parametrize("arity", [1, 0, -2, 2.0, True, None])
def test_an_adder_adds_two_or_more(arity):
    with pytest.raises(ValueError, match="arity is how many nodes an adder adds, 2 or more"):
        balanced(8, arity=arity)


@pytest.mark.parametrize("text", ["", "1", "0", "²", "-2", "2.0", "tree", None, "9" * 5000])
def test_names_of_no_tree(text):
    with pytest.raises(ValueError, match="a tree is binary, linear, or how many nodes each adder adds"):
        tree_named(text, 8)


def test_sums_take_one_product_a_lane():
    with pytest.raises(ValueError, match="the tree has 4 lanes, got 3 products"):
        balanced(4).sums([1, 2, 3])
