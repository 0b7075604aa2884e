# SPDX-License-Identifier: Apache-2.0
"""Side room off 5: the sums that exist, against sets counted here, and the fewest lanes that make one."""

import itertools
from functools import cache

import numpy as np
import pytest

import mxfp
import oracle
from mxfp.formats import ElementFormat, Specials
from mxfp.sums import ReachableSums, countable, distinct_products, lanes_for, reachable_sums, reaches
from support import ELEMENTS

E2M1, E4M3, E5M2, INT8 = mxfp.E2M1, mxfp.E4M3, mxfp.E5M2, mxfp.INT8
PAIRS = list(itertools.combinations_with_replacement([fmt.name for fmt in ELEMENTS], 2))
NAMED = {fmt.name: fmt for fmt in ELEMENTS}


@cache
def integers(name):
    """{code: value in LSB units} of every code that is a number, from the specification's fields."""
    lsb = oracle.magnitudes(name)[1]
    values = {code: oracle.element(name, code) for code in range(2 ** oracle.ELEMENT_BITS[name])}
    assert all(v.denominator == 1 for v in (x / lsb for x in values.values() if not isinstance(x, str)))
    return {code: int(x / lsb) for code, x in values.items() if not isinstance(x, str)}


@cache
def products(a, b):
    """Every product of two codes, ascending."""
    return sorted({x * y for x in integers(a).values() for y in integers(b).values()})


def counted(a, b, lanes):
    """The sums of 1, 2 … `lanes` products, one numpy array of values after the other."""
    ps = np.array(products(a, b))
    found, low = np.ones(1, np.bool_), 0
    for _ in range(lanes):
        after = np.zeros(len(found) + int(ps[-1] - ps[0]), np.bool_)
        for p in (ps - ps[0]).tolist():
            after[p : p + len(found)] |= found
        found, low = after, low + int(ps[0])
        yield np.flatnonzero(found) + low


@cache
def fewest(a, b, lanes):
    """{sum: fewest nonzero products that make it}, by breadth first search."""
    steps = [p for p in products(a, b) if p]
    found, edge = {0: 0}, {0}
    for n in range(1, lanes + 1):
        edge = {s + p for s in edge for p in steps} - found.keys()
        found |= dict.fromkeys(edge, n)
    return found


def core(values):
    """The largest m of which every integer from -m to m is there."""
    held = set(values)
    return next(m for m in itertools.count() if not {m + 1, -m - 1} <= held)


def check_set(sums, values):
    assert np.array_equal(sums.values(), values)
    assert sums.values().dtype == np.int64
    assert (sums.low, sums.high, len(sums)) == (values[0], values[-1], len(values))
    held = set(values.tolist())
    sample = range(sums.low - 3, sums.high + 4, max(1, (sums.high - sums.low) // 9000))
    assert all((v in sums) == (v in held) for v in sample)
    assert sums.core == core(held)


def test_all_256_products_of_e2m1():
    made = [x * y for x in integers("E2M1").values() for y in integers("E2M1").values()]
    assert len(made) == 256
    assert distinct_products(E2M1, E2M1).tolist() == sorted(set(made))
    assert len(set(made)) == 37


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_the_products_of_every_pair_of_codes(a, b):
    found = distinct_products(NAMED[a], NAMED[b])
    assert found.tolist() == products(a, b)


def test_e2m1_sums_of_1_to_32_products():
    for lanes, values in enumerate(counted("E2M1", "E2M1", 32), 1):
        check_set(reachable_sums(E2M1, E2M1, lanes), values)
    assert len(values) == 8893


@pytest.mark.parametrize(
    ("a", "b", "lanes"),
    [
        ("E2M1", "E2M3", 9),
        ("E2M1", "E3M2", 5),
        ("E2M1", "INT8", 6),
        ("INT8", "E2M1", 6),
        ("E2M3", "E3M2", 3),
        ("INT8", "INT8", 3),
        ("E2M3", "INT8", 3),
        ("E4M3", "E2M1", 2),
    ],
)
def test_sums_of_other_pairs(a, b, lanes):
    for n, values in enumerate(counted(a, b, lanes), 1):
        check_set(reachable_sums(NAMED[a], NAMED[b], n), values)


@pytest.mark.parametrize(
    "values", [(-3, -2, -1, 0, 2), (-3, -1, 0, 1, 2), (-2, -1, 0, 1, 2, 3, 5), (-9, -1, 0, 1), (0,)]
)
def test_the_core_ends_at_the_first_gap_on_either_side(values):
    mask = sum(1 << (v - values[0]) for v in values)
    assert ReachableSums(1, values[0], values[-1], mask).core == core(values)


def test_sets_know_only_integers():
    sums = reachable_sums(mxfp.MXFP4, E2M1, np.int64(2))
    assert np.int64(288) in sums
    assert -(10**30) not in sums
    assert 10**30 not in sums
    assert not any(x in sums for x in (0.0, True, "0", None, np.array([0])))


@pytest.mark.parametrize("name", ["INT8", "E5M2", "E4M3", "E3M2"])
def test_sums_that_spread_too_wide_are_not_counted(name):
    fmt = NAMED[name]
    lanes = 32 if name in ("E5M2", "E4M3") else 16384
    assert not countable(fmt, fmt, lanes)
    with pytest.raises(ValueError, match=f"sums of {lanes} products {name} × {name} lie in"):
        reachable_sums(fmt, fmt, lanes)


# --- lanes for a sum


def check_lanes(value, a, b, lanes):
    """The products of the codes found; nonzero ones first."""
    codes_a, codes_b = lanes_for(value, NAMED[a], NAMED[b], lanes)
    assert codes_a.dtype == codes_b.dtype == np.uint8
    assert codes_a.shape == codes_b.shape == (lanes,)
    pairs = zip(codes_a.tolist(), codes_b.tolist(), strict=True)
    made = [integers(a)[x] * integers(b)[y] for x, y in pairs]
    assert sum(made) == value
    used = lanes - made.count(0)
    assert not any(made[used:])
    assert not codes_a[used:].any()
    assert not codes_b[used:].any()
    return made[:used]


def test_every_sum_of_32_products_takes_the_fewest_lanes():
    known = fewest("E2M1", "E2M1", 32)
    assert len(known) == 8893
    for value, count in known.items():
        assert len(check_lanes(value, "E2M1", "E2M1", 32)) == count
        assert reaches(value, E2M1, E2M1, 32)


def test_a_sum_that_no_products_make_is_refused():
    known = fewest("E2M1", "E2M1", 32)
    missing = [v for v in range(-4610, 4611) if v not in known]
    assert len(missing) == 9221 - 8893
    for value in missing:
        assert not reaches(value, E2M1, E2M1, 32)
        with pytest.raises(ValueError, match=f"no sum of 32 products E2M1 × E2M1 found that is {value} LSB"):
            lanes_for(value, E2M1, E2M1, 32)


@pytest.mark.parametrize(
    ("a", "b", "lanes", "step"),
    [("E2M1", "E2M1", 3, 1), ("E2M1", "E2M3", 3, 7), ("INT8", "E2M1", 3, 61), ("INT8", "INT8", 2, 1997)],
)
def test_every_sum_of_smaller_pairs(a, b, lanes, step):
    known = fewest(a, b, lanes)
    low, high = lanes * products(a, b)[0], lanes * products(a, b)[-1]
    for value in sorted({*range(low - 2, high + 3, step), low, high}):
        if value in known:
            assert len(check_lanes(value, a, b, lanes)) == known[value]
        else:
            with pytest.raises(ValueError, match="no sum of"):
                lanes_for(value, NAMED[a], NAMED[b], lanes)


@pytest.mark.parametrize(("a", "b"), [("E4M3", "E4M3"), ("E5M2", "E5M2"), ("E5M2", "INT8"), ("E4M3", "E3M2")])
def test_sums_too_many_to_count_are_exact_when_found(a, b):
    rng = np.random.default_rng(7)
    some = rng.choice(np.array(products(a, b), object), (300, 32))
    wanted = [sum(row[: n % 33]) for n, row in enumerate(some.tolist())]
    ends = [32 * products(a, b)[0], 32 * products(a, b)[-1], 0, 1, -1, 31 * products(a, b)[-1]]
    found = 0
    for value in [*wanted, *ends]:
        if reaches(value, NAMED[a], NAMED[b], 32):
            check_lanes(value, a, b, 32)
            found += 1
        else:
            with pytest.raises(ValueError, match="no sum of 32 products"):
                lanes_for(value, NAMED[a], NAMED[b], 32)
    assert all(reaches(value, NAMED[a], NAMED[b], 32) for value in ends)
    assert found > 250  # what is found is nearly everything


def test_codes_are_near_a_square_and_the_sign_is_on_the_right():
    a, b = lanes_for(-36, E2M1, E2M1, 1)
    assert (a[0], b[0]) == (5, 13)  # 3 × -3, and neither 6 × -1.5 nor -3 × 3
    a, b = lanes_for(16384, INT8, INT8, 1)
    assert (a[0], b[0]) == (128, 128)  # -2 × -2: nothing else makes 4


@pytest.mark.parametrize("value", [1.0, "1", None, True, np.bool_(True), np.float64(3)])
def test_a_sum_is_a_whole_number(value):
    with pytest.raises(ValueError, match="value is a whole number of LSB units, got"):
        lanes_for(value, E2M1, E2M1, 4)


def test_formats_are_formats():
    for call in (lambda f: lanes_for(1, f, E2M1, 4), lambda f: reachable_sums(E2M1, f, 4)):
        for fmt in ("E2M1", None, 4, mxfp.E8M0):
            with pytest.raises(TypeError, match="expected an element or block format"):
                call(fmt)
        with pytest.raises(ValueError, match="lanes is a number of products"):
            reachable_sums(E2M1, E2M1, 0)


def test_formats_of_ones_own():
    """Two's complement of four bits; and one whose only number is zero."""
    own = ElementFormat("I4", 1, 2, bias=1, twos_complement=True)
    held = {0}
    for lanes in range(1, 6):
        held = {s + x * y for s in held for x in range(-8, 8) for y in range(-8, 8)}
        check_set(reachable_sums(own, own, lanes), np.array(sorted(held)))
    nothing = ElementFormat("N", 1, 0, bias=1, specials=Specials.NAN_AT_TOP)
    assert reachable_sums(nothing, E2M1, 9).values().tolist() == [0]
    assert lanes_for(0, nothing, nothing, 2)[0].tolist() == [0, 0]
    with pytest.raises(ValueError, match="they reach from 0 to 0"):
        lanes_for(1, nothing, nothing, 2)
