# SPDX-License-Identifier: Apache-2.0
"""Side room off 7: every width is what enumeration says, and every narrower one breaks as the case says."""

import dataclasses
import itertools
from functools import cache

import numpy as np
import pytest

import mxfp
import oracle
from mxfp.adders import AdderTree, balanced, linear
from mxfp.formats import ElementFormat, Specials
from mxfp.integers import WidthError
from mxfp.widths import WidthCounterexample, WidthProof, block_format, check_width, level_widths
from support import ELEMENTS, name_of
from test_adders import random_tree
from test_sums import counted, integers, products

E2M1, INT8, MXFP4 = mxfp.E2M1, mxfp.INT8, mxfp.MXFP4
PAIRS = list(itertools.product(ELEMENTS, repeat=2))
HAND = AdderTree(7, ((0, 1, 2), (3, 4), (8, 7), (9, 5, 6)))
TREES = {
    "linear": linear(6),
    "binary": balanced(32),
    "4-ary": balanced(32, arity=4),
    "odd": balanced(29),
    "odd-3-ary": balanced(31, arity=3),
    "by-hand": HAND,
    "random": random_tree(24, 5),
    "one": linear(1),
}


def bits_of(low, high):
    """The narrowest two's complement that holds both, by trying."""
    return next(w for w in itertools.count(1) if -(2 ** (w - 1)) <= low and high < 2 ** (w - 1))


@cache
def ends(a, b):
    """The smallest and the largest of all products."""
    return products(a.name, b.name)[0], products(a.name, b.name)[-1]


def needed_widths(a, b, tree):
    """Of each level the bits of its fullest node."""
    most = [
        max(c for c, lv in zip(tree.counts, tree.levels, strict=True) if lv == n)
        for n in range(tree.depth + 1)
    ]
    low, high = ends(a, b)
    return tuple(bits_of(n * low, n * high) for n in most)


def fewest_lanes(a, b, tree, widths):
    """(lanes, level): n products lie between n times the ends, so this many are needed and no fewer."""
    low, high = ends(a, b)
    found = []
    for count, level in set(zip(tree.counts, tree.levels, strict=True)):
        limit = 2 ** (widths[level] - 1)
        over = [n for n in range(1, count + 1) if n * high >= limit or n * low < -limit]
        found += [(over[0], level)] if over else []
    return min(found), tuple(sorted({level for _, level in found}))


def check_case(case, a, b, tree, widths):
    """A counterexample against own arithmetic, and through block_dots."""
    assert isinstance(case, WidthCounterexample)
    assert not case
    (lanes, level), failing = fewest_lanes(a, b, tree, widths)
    x, y = integers(a.name), integers(b.name)
    made = [x[i] * y[j] for i, j in zip(case.codes_a.tolist(), case.codes_b.tolist(), strict=True)]
    assert len(made) - made.count(0) == case.nonzero == lanes
    held = tree.sums(made)
    limits = [2 ** (widths[n] - 1) for n in tree.levels]
    broken = [n for n, v in enumerate(held) if not -limits[n] <= v < limits[n]]
    assert min(tree.levels[n] for n in broken) == case.level == tree.levels[case.node] == level
    assert case.node in broken
    assert held[case.node] == sum(made) == case.value
    assert case.failing == failing
    assert case.width == widths[level]
    limit = limits[case.node]
    count, fit = case.fits
    one = case.value // lanes
    assert (count, fit) == (lanes - 1, one * (lanes - 1))
    assert -limit <= fit < limit
    assert -limit <= case.wrapped < limit
    assert (case.wrapped - case.value) % (2 * limit) == 0
    for call in (case.replay, lambda: mxfp.block_dots(*case.blocks(), width=case.width)):
        with pytest.raises(WidthError) as caught:
            call()
        assert (caught.value.value, caught.value.width) == (case.value, case.width)
    wider = mxfp.block_dots(*case.blocks(), width=bits_of(min(case.value, 0), max(case.value, 0)))
    assert wider.sums.tolist() == [case.value]
    shown = str(case)
    assert f"{case.width} bits" in shown
    assert str(case.value) in shown
    assert str(case.wrapped) in shown


# --- what is claimed of E2M1


def test_the_widths_of_e2m1_products_and_sums_for_1_to_32_lanes():
    for lanes, sums in enumerate(counted("E2M1", "E2M1", 32), 1):
        width = bits_of(sums[0], sums[-1])
        assert level_widths(E2M1, lanes=lanes)[-1] == width
        proof, case = check_width(width, E2M1, lanes=lanes), check_width(width - 1, E2M1, lanes=lanes)
        assert proof
        assert not case
        node = proof.nodes[-1]
        assert (node.low, node.high, node.needed, node.sums) == (sums[0], sums[-1], width, len(sums))
        proof.replay()
    assert level_widths() == (9, 10, 11, 12, 13, 14)


def test_thirteen_bits_hold_28_lanes_of_6_by_6_and_not_29():
    case = check_width(13)
    assert (case.nonzero, case.value, case.fits, case.wrapped) == (29, 4176, (28, 4032), -4016)
    assert (case.level, case.failing) == (5, (5,))
    assert set(case.codes_a[:29]) == set(case.codes_b[:29]) == {7}
    assert check_width(13, lanes=28)
    assert not check_width(13, lanes=29)
    a, b = (mxfp.BlockArray(x, [127], MXFP4) for x in (case.codes_a, case.codes_b))
    with pytest.raises(
        WidthError, match="block 0: the sum of products is 4176, which does not fit signed 13"
    ):
        mxfp.block_dots(a, b, width=13)


def test_int8_needs_21_bits_for_128_squared():
    assert level_widths(INT8)[-1] == 21
    assert check_width(21, mxfp.MXINT8)
    case = check_width(20, mxfp.MXINT8)
    assert (case.nonzero, case.value, case.fits) == (32, 2**19, (31, 31 * 2**14))
    assert set(case.codes_a) == {0x80}


# --- every pair, every tree, every level


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
@pytest.mark.parametrize(("a", "b"), PAIRS, ids=name_of)
def test_the_widths_derived_are_enough_and_none_can_be_narrower(a, b, tree):
    widths = needed_widths(a, b, tree)
    assert level_widths(a, b, tree=tree) == widths
    proof = check_width(widths, a, b, tree=tree)
    assert isinstance(proof, WidthProof)
    assert proof
    proof.replay()
    for level, width in enumerate(widths):
        for fewer in {1, width // 2, width - 2, width - 1} - {0, -1}:
            narrowed = (*widths[:level], fewer, *widths[level + 1 :])
            check_case(check_width(narrowed, a, b, tree=tree), a, b, tree, narrowed)
    for width in {1, 2, widths[0], widths[-1] - 1}:
        if width < max(widths):
            uniform = (width,) * len(widths)
            check_case(check_width(width, a, b, tree=tree), a, b, tree, uniform)
    assert check_width(max(widths), a, b, tree=tree)


def test_every_way_to_narrow_a_small_tree():
    tree = balanced(5)
    for widths in itertools.product(range(8, 13), repeat=4):
        answer = check_width(widths, E2M1, tree=tree)
        enough = all(w >= need for w, need in zip(widths, (9, 10, 11, 11), strict=True))
        assert bool(answer) == enough
        if not enough:
            check_case(answer, E2M1, E2M1, tree, widths)


def test_levels_are_narrowed_one_by_one_and_named():
    for level in range(6):
        widths = list(level_widths())
        widths[level] -= 1
        case = check_width(widths)
        assert (case.level, case.failing) == (level, (level,))
        assert (f"level {level} of 5" if level else "do not hold a product") in str(case)
    assert "levels that some input breaks: 2, 3, 4, 5" in str(check_width(10))


# --- proofs


def proof_of(tree=None):
    return check_width((9, 10, 11, 12, 13, 15), tree=tree)


def test_a_proof_names_every_kind_of_node_and_how_it_is_known():
    proof = check_width(16, E2M1, tree=HAND)
    kinds = sorted(set(zip(HAND.levels, HAND.counts, strict=True)))
    assert [(n.level, n.lanes) for n in proof.nodes] == kinds
    assert sum(n.nodes for n in proof.nodes) == HAND.root + 1
    sizes = {n: len(sums) for n, sums in enumerate(counted("E2M1", "E2M1", 7), 1)}
    for n in proof.nodes:
        assert (n.low, n.high) == (-144 * n.lanes, 144 * n.lanes)
        assert n.sums == sizes[n.lanes]
        assert n.how == ("every product" if n.lanes == 1 else "every sum")
        assert f"level {n.level}: {n.nodes} × {n.lanes} lanes, {n.low} … {n.high}" in str(proof)
    wide = check_width(80, mxfp.MXFP8_E5M2).nodes
    assert [n.how for n in wide] == ["every product"] + 5 * ["interval"]
    assert wide[-1].high == 32 * (57344 * 2**16) ** 2


@pytest.mark.parametrize("field", ["low", "high", "needed", "width"])
@pytest.mark.parametrize("step", [-1, 1])
def test_a_proof_with_a_wrong_number_does_not_replay(field, step):
    proof = proof_of()
    for place, node in enumerate(proof.nodes):
        wrong = node._replace(**{field: getattr(node, field) + step})
        nodes = (*proof.nodes[:place], wrong, *proof.nodes[place + 1 :])
        with pytest.raises(ArithmeticError, match="the proof does not hold"):
            dataclasses.replace(proof, nodes=nodes).replay()


def test_a_proof_of_other_widths_nodes_trees_or_codes_does_not_replay():
    proof = proof_of()
    four = tuple(n._replace(low=-64 * n.lanes, high=64 * n.lanes) for n in proof.nodes)
    for changed in (
        {"widths": (9, 10, 11, 12, 13, 13)},
        {"widths": (8, 10, 11, 12, 13, 15)},
        {"nodes": proof.nodes[:-1]},
        {"nodes": ()},
        {"tree": linear(6)},
        {"high_codes": (6, 6)},
        {"low_codes": (7, 7)},
        {"low_codes": (6, 14), "high_codes": (6, 6), "nodes": four},  # 4 × 4 is not the largest
        {"a": mxfp.E2M3},
    ):
        with pytest.raises(ArithmeticError, match="the proof does not hold"):
            dataclasses.replace(proof, **changed).replay()
    proof.replay()


# --- formats, long trees, and what is no width


def test_blocks_of_a_case_are_the_named_format_where_there_is_one():
    assert block_format(E2M1, 32) is MXFP4
    assert block_format(INT8, 32) is mxfp.MXINT8
    assert block_format(E2M1, 16).scale is mxfp.E8M0
    assert check_width(13, mxfp.NVFP4)
    assert not check_width(12, mxfp.NVFP4)


def test_formats_of_ones_own():
    own = ElementFormat("I3", 1, 1, bias=1, twos_complement=True)  # -4 … 3: products -12 … 16
    assert level_widths(own, lanes=4) == (6, 7, 8)
    case = check_width(6, own, lanes=4)
    assert (case.nonzero, case.value, case.fits, case.level) == (2, 32, (1, 16), 1)
    nothing = ElementFormat("N", 1, 0, bias=1, specials=Specials.NAN_AT_TOP)
    assert check_width(1, nothing)
    check_width(1, nothing).replay()
    assert level_widths(nothing, mxfp.E5M2, lanes=3) == (1, 1, 1)


@pytest.mark.parametrize("tree", [linear(16384), balanced(16384)], ids=["linear", "binary"])
def test_trees_of_16384_lanes(tree):
    width = bits_of(-144 * 16384, 144 * 16384)
    check_width(width, tree=tree).replay()
    case = check_width(width - 1, tree=tree)
    assert case.nonzero == 2 ** (width - 2) // 144 + 1
    with pytest.raises(WidthError):
        case.replay()


@pytest.mark.parametrize("width", [0, -1, 4097, True, (9, 10, 11, 12, 13, 0), (9, 10.0, 11, 12, 13, 14), "9"])
def test_what_is_no_number_of_bits(width):
    with pytest.raises((ValueError, TypeError), match="width is a number of bits, "):
        check_width(width)


@pytest.mark.parametrize("width", [None, 13.0, {13}, "13"])
def test_what_is_neither_a_width_nor_several(width):
    with pytest.raises(TypeError, match="width is a number of bits, or one for each level, got"):
        check_width(width)


@pytest.mark.parametrize("widths", [(), (14,), (9, 10, 11, 12, 13), (14,) * 7])
def test_one_width_for_each_level(widths):
    with pytest.raises(ValueError, match=f"has 6 levels, the products first, got {len(widths)} widths"):
        check_width(widths)


def test_numbers_of_numpy_are_widths():
    assert not check_width(np.int64(13))
    assert check_width(np.array(level_widths()), lanes=np.int64(32))
    assert not check_width(13, tree=balanced(32), lanes=32)


def test_formats_and_trees_are_checked():
    for call in (check_width, lambda _, *args, **named: level_widths(*args, **named)):
        with pytest.raises(TypeError, match="a is an ElementFormat or a BlockFormat"):
            call(13, "MXFP4")
        with pytest.raises(TypeError, match="b is an ElementFormat or a BlockFormat"):
            call(13, MXFP4, mxfp.E8M0)
        with pytest.raises(TypeError, match=r"tree is an AdderTree .*, got \[\(0, 1\)\]"):
            call(13, tree=[(0, 1)])
        with pytest.raises(ValueError, match="the tree has 8 lanes, and lanes is 32"):
            call(13, lanes=32, tree=balanced(8))
        for lanes in (0, 2.0, True, 1 << 15):
            with pytest.raises(ValueError, match="lanes is a number of products"):
                call(13, lanes=lanes)


def test_the_oracle_agrees_on_a_case():
    case = check_width(13, mxfp.MXFP6_E2M3)
    dot = oracle.dot("E2M3", "E2M3", case.codes_a.tolist(), case.codes_b.tolist())
    assert dot * 64 == case.value
