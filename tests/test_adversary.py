# SPDX-License-Identifier: Apache-2.0
"""Side room off 7: bad cases are what they say, come back for a seed, and are near their bound."""

from fractions import Fraction

import numpy as np
import pytest

import mxfp
import oracle
from mxfp.adversary import order_spread, worst_case
from mxfp.bounds import error_bound, errors, worst_error_bound
from mxfp.integers import WidthError
from mxfp.registers import TENSOR_CORES
from support import FORMATS, name_of, oracle_terms, random_blocks, values_of

FLOATS = [kind(d) for kind in (mxfp.Sequential, mxfp.Pairwise) for d in ("float16", "bfloat16", "float32")]
FIXED = [
    mxfp.FixedPoint(24, -8),
    mxfp.FixedPoint(30, -6, "raise", "nearest_even"),
    mxfp.FixedPoint(40, 0, "saturate", "toward_zero"),
    mxfp.FixedPoint(18, -2, "wrap"),
]
MAIN = [*FLOATS, *FIXED, *TENSOR_CORES.values(), mxfp.Sequential("float32", 8), mxfp.Exact("float16")]


def exact_sum(a, b):
    return sum(oracle_terms(a, b), Fraction(0)) * Fraction(a.tensor_scale) * Fraction(b.tensor_scale)


def value_of(result):
    (value,), _ = values_of(np.asarray(result).reshape(1))
    return value


def check_case(case):
    """Result, exact sum, error and ratio worked out again from the vectors."""
    terms = mxfp.block_dots(case.a, case.b, group=case.accumulator.terms_of)
    result, exact = value_of(case.accumulator(terms)), exact_sum(case.a, case.b)
    assert float(result) == case.result
    assert oracle.round_to(exact, "float64") == int(np.float64(case.exact + 0.0).view(np.uint64))
    assert oracle.round_to(abs(result - exact), "float64") == int(np.float64(case.error).view(np.uint64))
    assert case.terms.fractions().tolist() == terms.fractions().tolist()
    assert errors(case.accumulator, case.terms) == case.error
    assert case.ratio == case.error / case.bound
    assert 0 < case.ratio <= 1
    shown = str(case)
    assert shown.startswith(f"{case.accumulator}: {case.result:g} where the exact sum is {case.exact:g}")
    assert case.family in shown


@pytest.mark.parametrize("accumulator", MAIN, ids=name_of)
def test_a_case_found_is_what_it_says_and_near_its_bound(accumulator):
    case = worst_case(accumulator, k=512, rounds=6)
    check_case(case)
    assert case.a.shape == case.b.shape == (512,)
    assert case.bound == error_bound(accumulator, case.terms)
    assert case.ratio > (
        0.45 if accumulator.terms_of == 1 else 0.65 if accumulator.short == "pairwise" else 0.9
    )


@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_cases_of_every_format_with_partial_blocks(fmt):
    for accumulator, k in ((mxfp.Sequential("float16"), 70), (mxfp.FixedPoint(60, -3), 5)):
        case = worst_case(accumulator, fmt, k=k, rounds=2)
        check_case(case)
        assert case.a.format is case.b.format is fmt
        assert case.a.shape == (k,)


def test_two_formats_and_ranges_of_scales():
    found = worst_case(
        mxfp.Sequential("bfloat16"),
        mxfp.MXFP4,
        mxfp.MXFP8_E4M3,
        k=96,
        scales_a=(120, 122),
        scales_b=(130, 130),
        rounds=3,
    )
    check_case(found)
    assert (found.a.format, found.b.format) == (mxfp.MXFP4, mxfp.MXFP8_E4M3)
    assert ((found.a.scales >= 120) & (found.a.scales <= 122)).all()
    assert (found.b.scales == 130).all()


@pytest.mark.parametrize(
    "accumulator", [mxfp.Sequential("float16"), mxfp.FixedPoint(40, -6), mxfp.BLACKWELL_MXFP4], ids=name_of
)
def test_the_largest_error_of_a_range_is_sought(accumulator):
    ranges = {"scales_a": (112, 124), "scales_b": (112, 122)}
    case = worst_case(accumulator, k=256, against="range", rounds=10, **ranges)
    check_case(case)
    assert case.bound == worst_error_bound(accumulator, k=256, **ranges)
    against_input = worst_case(accumulator, k=256, rounds=0, **ranges)
    assert case.error >= against_input.error * 0.5


def test_the_same_seed_finds_the_same_case():
    first, again, other = (worst_case(mxfp.Sequential("float32"), k=256, rounds=3, seed=s) for s in (5, 5, 6))
    for one, two in ((first.a, again.a), (first.b, again.b)):
        assert np.array_equal(one.codes, two.codes)
        assert np.array_equal(one.scales, two.scales)
    assert (first.result, first.error, first.bound, first.family) == (
        again.result,
        again.error,
        again.bound,
        again.family,
    )
    assert not np.array_equal(first.a.codes, other.a.codes) or not np.array_equal(
        first.a.scales, other.a.scales
    )


def test_more_rounds_are_no_worse():
    few, many = (worst_case(mxfp.Sequential("float16"), k=512, rounds=r, seed=2) for r in (0, 12))
    assert many.ratio >= few.ratio


def test_an_accumulator_that_errs_on_nothing_has_no_case():
    with pytest.raises(ValueError, match="was exact, or overflowed, on all that was tried with k = 32"):
        worst_case(mxfp.FixedPoint(100, -40), k=32, rounds=1)
    with pytest.raises(ValueError, match="was exact, or overflowed"):  # no block fits
        worst_case(mxfp.FixedPoint(2, -40), k=32, rounds=1)


def test_a_range_that_overflows_has_no_bound():
    with pytest.raises(ValueError, match="may overflow on scale codes"):
        worst_case(mxfp.Sequential("float16"), k=1024, against="range", scales_a=(127, 254), rounds=1)


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"accumulator": "sequential"}, TypeError, "accumulator"),
        ({"a": mxfp.E2M1}, TypeError, "a is a BlockFormat"),
        ({"b": "MXFP4"}, TypeError, "b is a BlockFormat"),
        ({"b": mxfp.NVFP4}, ValueError, "in blocks of 16"),
        ({"k": 0}, ValueError, "k is a number of elements"),
        ({"k": 1.5}, ValueError, "k is a number of elements"),
        ({"scales_a": (0, 255)}, ValueError, "scales_a is the smallest and the largest scale code"),
        ({"scales_b": 7}, ValueError, "scales_b is the smallest and the largest scale code"),
        ({"against": "all"}, ValueError, "against"),
        ({"rounds": -1}, ValueError, "rounds"),
        ({"rounds": 1.5}, ValueError, "rounds"),
        ({"rounds": None}, ValueError, "rounds"),
    ],
)
def test_wrong_arguments(options, kind, words):
    options = {"accumulator": mxfp.Sequential("float16"), "k": 64, "rounds": 1, **options}
    with pytest.raises(kind, match=words):
        worst_case(**options)


# --- orders


def moved(q, order):
    """Blocks in another order, by hand."""
    block = q.format.block
    filled = np.zeros(len(q.scales) * block, np.uint8)
    filled[: len(q.codes)] = q.codes
    codes = np.concatenate([filled[n * block : (n + 1) * block] for n in order])
    return mxfp.BlockArray(codes, q.scales[list(order)], q.format, -1, q.tensor_scale)


@pytest.mark.parametrize("accumulator", MAIN, ids=name_of)
@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4, mxfp.MXFP8_E4M3], ids=name_of)
def test_orders_give_the_results_that_are_named(accumulator, fmt):
    low = 40 if fmt is mxfp.NVFP4 else 119
    a, b = (random_blocks(fmt, (300,), seed, scales=(low, low + 8)) for seed in (1, 2))
    if isinstance(accumulator, mxfp.FixedPoint) and accumulator.overflow == "raise":
        accumulator = mxfp.FixedPoint(60, accumulator.lsb_exponent, "raise", accumulator.rounding)
    found = order_spread(accumulator, a, b, tries=25)
    count = len(a.scales)
    for result, order in ((found.lowest, found.lowest_order), (found.highest, found.highest_order)):
        assert sorted(order.tolist()) == list(range(count))
        terms = mxfp.block_dots(moved(a, order), moved(b, order), group=accumulator.terms_of)
        assert float(accumulator(terms)) == result
    own = float(accumulator(mxfp.block_dots(a, b, group=accumulator.terms_of)))
    assert found.lowest <= own <= found.highest
    if isinstance(accumulator, mxfp.Exact):
        assert found.lowest == found.highest
    again = order_spread(accumulator, a, b, tries=25)
    assert (again.lowest, again.highest) == (found.lowest, found.highest)


def test_swamping_lies_between_the_orders():
    a = mxfp.BlockArray(np.repeat(np.uint8([7, 1, 15]), 32), np.uint8([139, 127, 139]), mxfp.MXFP4)
    b = mxfp.BlockArray(np.full(96, 1, np.uint8), np.uint8([139, 127, 139]), mxfp.MXFP4)
    found = order_spread(mxfp.Sequential("float32"), a, b, tries=0)
    assert found.lowest == 0
    assert found.highest == 8 == exact_sum(a, b)


def test_orders_of_what_is_not_a_number():
    a, b = (random_blocks(mxfp.MXFP4, (96,), seed, nan_share=1.0) for seed in (1, 2))
    found = order_spread(mxfp.Sequential("float32"), a, b, tries=2)
    assert np.isnan([found.lowest, found.highest]).all()


def test_orders_that_end_in_nan_are_left_out():
    """Of two large terms and the same taken away, each pair of one sign overflows: infinity - infinity."""
    a = mxfp.BlockArray(np.repeat(np.uint8([7, 7, 15, 15, 7]), 32), [244, 244, 244, 244, 127], mxfp.MXFP4)
    b = mxfp.BlockArray(np.full(160, 7, np.uint8), np.full(5, 127), mxfp.MXFP4)
    accumulator = mxfp.Pairwise("float32")
    assert np.isnan(accumulator(mxfp.block_dots(a, b)))
    found = order_spread(accumulator, a, b, tries=100)
    assert (found.lowest, found.highest) == (-np.inf, np.inf)
    for result, order in ((-np.inf, found.lowest_order), (np.inf, found.highest_order)):
        assert accumulator(mxfp.block_dots(moved(a, order), moved(b, order))) == result


def test_what_has_no_orders():
    q, accumulator = mxfp.quantize(np.ones((2, 64))), mxfp.Sequential("float32")
    one, none = mxfp.quantize(np.ones(64)), mxfp.quantize(np.ones(0))
    with pytest.raises(ValueError, match=r"order_spread takes two vectors, got \(2, 64\) and \(2, 64\)"):
        order_spread(accumulator, q, q)
    with pytest.raises(ValueError, match="vectors of one block or more, got none"):
        order_spread(accumulator, none, none)
    with pytest.raises(ValueError, match="do not match"):
        order_spread(accumulator, one, mxfp.quantize(np.ones(32)))
    for wrong in (None, [1.0] * 64, np.ones(64)):
        with pytest.raises(TypeError, match="BlockArray"):
            order_spread(accumulator, one, wrong)
    with pytest.raises(TypeError, match="accumulator"):
        order_spread("sequential", one, one)
    for tries in (-1, 1.5, None, True):
        with pytest.raises(ValueError, match="tries"):
            order_spread(accumulator, one, one, tries=tries)
    with pytest.raises(WidthError):
        order_spread(mxfp.FixedPoint(2, 0), one, one, tries=1)
