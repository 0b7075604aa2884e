# SPDX-License-Identifier: Apache-2.0
"""Room 7: every accumulator against the oracle, on terms made to break it."""

import dataclasses
import itertools
import math
import pickle
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mxfp
import oracle
from mxfp.accumulate import Fixed
from mxfp.distributions import DISTRIBUTIONS, draw
from mxfp.dot import Terms
from mxfp.names import accumulator as parse
from mxfp.registers import TENSOR_CORES
from support import (
    ACCUMULATORS,
    DTYPES,
    FIXED,
    FLOAT_ACCUMULATORS,
    FORMATS,
    FUSED,
    as_floats,
    bits,
    digits,
    golden,
    name_of,
    oracle_result,
    random_blocks,
    same_bits,
)

PAIRS = [(a, b) for a, b in itertools.combinations_with_replacement(FORMATS, 2) if a.block == b.block]


def made_of(sums: list[list[int]], exponents: list[list[int]], width: int) -> Terms:
    """Terms of any sums and exponents, in int64 or Python integers as the width asks."""
    kind = np.int64 if width <= 62 else object
    return Terms(np.array(sums, kind), np.array(exponents, np.int64), width, -2)


def expected_of(accumulator, sums, exponents) -> list[int]:
    """The oracle's bits for each row of terms."""
    found = []
    for row, powers in zip(sums, exponents, strict=True):
        terms = [s * oracle.power(e) for s, e in zip(row, powers, strict=True)]
        dtype = accumulator.result_dtype.name
        if isinstance(accumulator, mxfp.Exact):
            found.append(oracle.exact(terms, dtype))
        elif isinstance(accumulator, mxfp.Sequential):
            found.append(oracle.sequential(terms, dtype))
        elif isinstance(accumulator, mxfp.Pairwise):
            found.append(oracle.pairwise(terms, dtype))
        else:
            register = oracle.fixed_point(
                terms, accumulator.width, accumulator.lsb_exponent, accumulator.overflow, accumulator.rounding
            )
            found.append(oracle.fixed_point_bits(register, accumulator.lsb_exponent, dtype))
    return found


def hard_terms(width: int, seed: int) -> tuple[list[list[int]], list[list[int]]]:
    """Rows of 6 terms: cancellation, swamping, ties with something far below, extremes, random."""
    rng = np.random.default_rng(seed)
    top = (1 << (width - 1)) - 1
    rows = []

    def row(*terms):
        rows.append([(int(s), int(e)) for s, e in terms] + [(0, 0)] * (6 - len(terms)))

    for centre in (-400, -266, -150, -149, -140, -126, -40, -24, -14, -2, 0, 4, 15, 100, 110, 120, 127, 250):
        low = max(centre, -300)
        for digits_kept in (8, 11, 24, 53):
            if digits_kept <= 24 or width >= 60:
                one = (1, low + digits_kept)
                row(one, (1, low), (-1, low + digits_kept))
                row(one, (1, low), (1, low - 60), (-1, low + digits_kept))
                row(one, (1, low), (-1, low - 60))
                row((-1, low + digits_kept), (-1, low), (-1, low))
                row((1, low), (1, low), one)
                row((3, low + digits_kept - 1), (1, low), (1, low - 90), (-1, low - 200))
        row((top, low), (-top, low), (1, low - 250))
        row((1, low - 30), (top, low), (-top, low))
        row((-1, low), (1, low), (-1, low - 300))
        row((top, low), (top, low), (top, low), (top, low))
        row((-top, low), (-top, low), (top, low), (top, low), (5, low))
        row((-1, low))
        row((1, low), (2, low - 1), (-4, low - 1))
    for _ in range(120):
        spread = int(rng.choice([1, 8, 30, 250]))
        centre = int(rng.integers(-260, 260 - spread))
        sums = [int(s) >> int(rng.integers(0, width - 1)) for s in rng.integers(-(2**62), 2**62, 6)]
        sums = [
            max(min(s << max(width - 63, 0), top), -top - 1) if width > 62 else s >> (63 - width)
            for s in sums
        ]
        rows.append([(s, centre + int(rng.integers(spread))) for s in sums])
    sums = [[s for s, _ in terms] for terms in rows]
    exponents = [[e for _, e in terms] for terms in rows]
    return sums, exponents


@pytest.mark.parametrize("width", [14, 42, 54, 55, 62, 70])
@pytest.mark.parametrize("accumulator", FLOAT_ACCUMULATORS, ids=name_of)
def test_hard_terms_are_accumulated_as_the_oracle_does(accumulator, width):
    sums, exponents = hard_terms(width, seed=width)
    found = accumulator(made_of(sums, exponents, width))
    same_bits(found, as_floats(expected_of(accumulator, sums, exponents), accumulator.result_dtype))


@pytest.mark.parametrize("width", [14, 62, 70])
@pytest.mark.parametrize("accumulator", FIXED, ids=name_of)
def test_hard_terms_go_into_a_register_as_the_oracle_says(accumulator, width):
    sums, exponents = hard_terms(width, seed=width)
    found = accumulator(made_of(sums, exponents, width))
    same_bits(found, as_floats(expected_of(accumulator, sums, exponents), accumulator.result_dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@given(st.lists(st.tuples(st.integers(-(2**13), 2**13 - 1), st.integers(-256, 256)), min_size=1, max_size=9))
def test_any_terms(dtype, terms):
    sums, exponents = [[s for s, _ in terms]], [[e for _, e in terms]]
    for kind in (mxfp.Exact, mxfp.Sequential, mxfp.Pairwise):
        found = kind(dtype)(made_of(sums, exponents, 14))
        assert bits(found).tolist() == expected_of(kind(dtype), sums, exponents)


# --- golden and real blocks


GOLDEN = {
    "exact_float32": mxfp.Exact("float32"),
    "sequential_float32": mxfp.Sequential("float32"),
    "sequential_float16": mxfp.Sequential("float16"),
    "sequential_bfloat16": mxfp.Sequential("bfloat16"),
    "blackwell": mxfp.BLACKWELL_MXFP4,
}


@pytest.mark.parametrize("name", GOLDEN)
def test_every_golden_row(name):
    accumulator = GOLDEN[name]
    for case in golden("accumulate.jsonl"):
        a, b = (
            mxfp.BlockArray(
                np.concatenate([digits(block) for block in case[side]]), case[f"{side}_scales"], mxfp.MXFP4
            )
            for side in "ab"
        )
        whole = mxfp.block_dots(a, b)
        assert whole.sums.tolist() == case["sums"]
        assert whole.exponents.tolist() == case["exponents"]
        found = accumulator(mxfp.block_dots(a, b, group=accumulator.terms_of))
        assert float(found) == float.fromhex(case["expected"][name]), case["id"]


@pytest.mark.parametrize("specials", [False, True], ids=["finite", "specials"])
@pytest.mark.parametrize(("fa", "fb"), PAIRS, ids=name_of)
def test_every_pair_of_formats_with_every_accumulator(fa, fb, specials):
    one_a, one_b = (127 if f.scale is mxfp.E8M0 else 56 for f in (fa, fb))
    for seed, (length, around) in enumerate(((100, 2), (70, 60), (130, None))):
        sides = []
        for fmt, one, side in ((fa, one_a, 0), (fb, one_b, 1)):
            scales = None if around is None or fmt.tensor_scale else (one - around, one + around)
            sides.append(
                random_blocks(
                    fmt,
                    (length,),
                    seed=10 * seed + side,
                    scales=scales,
                    specials=specials and seed == 1,
                    nan_share=0.1 if specials else 0.0,
                )
            )
        a, b = sides
        for accumulator in ACCUMULATORS:
            found = accumulator(mxfp.block_dots(a, b, group=accumulator.terms_of))
            assert int(bits(found)[()]) == oracle_result(accumulator, a, b), (accumulator, seed)


@pytest.mark.parametrize("accumulator", FUSED, ids=name_of)
@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4, mxfp.MXFP8_E4M3, mxfp.MXFP8_E5M2], ids=name_of)
def test_tensor_cores_over_ranges_of_scales(fmt, accumulator):
    top = fmt.scale.nan_code
    middle = 127 if fmt.scale is mxfp.E8M0 else 60
    ranges = [(middle - 3, middle + 4), (middle - 20, middle + 20), (0, 12), (top - 12, top), (0, top)]
    for seed, scales in enumerate(ranges):
        for length in (33, 64, 200):
            a = random_blocks(fmt, (length,), seed=seed, scales=scales, zero_share=0.5 if seed % 2 else 0.1)
            b = random_blocks(fmt, (length,), seed=seed + 50, scales=scales)
            found = accumulator(mxfp.block_dots(a, b, group=accumulator.terms_of))
            assert int(bits(found)[()]) == oracle_result(accumulator, a, b), (scales, length)


def test_a_tensor_core_that_cancels_to_zero_is_plus_zero_and_its_nan_is_its_own():
    one = mxfp.BlockArray(np.full(64, 2, np.uint8), [127, 127], mxfp.MXFP4)
    codes = np.full(64, 2, np.uint8)
    codes[32:] = 10
    other = mxfp.BlockArray(codes, [127, 127], mxfp.MXFP4)
    assert int(bits(mxfp.matmul(one, other, accumulator=mxfp.BLACKWELL_MXFP4))[()]) == 0
    nan = mxfp.BlockArray(np.zeros(64, np.uint8), [127, 255], mxfp.MXFP4)
    assert int(bits(mxfp.matmul(one, nan, accumulator=mxfp.BLACKWELL_MXFP4))[()]) == 0x7FFFFFFF
    for accumulator in FLOAT_ACCUMULATORS:
        found = mxfp.matmul(one, nan, accumulator=accumulator)
        assert int(bits(found)[()]) == oracle.NAN_BITS[accumulator.dtype]


@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
@pytest.mark.parametrize("accumulator", TENSOR_CORES.values(), ids=name_of)
def test_tensor_cores_on_every_distribution(accumulator, fmt):
    rng = np.random.default_rng(8)
    for name, (scales, finite) in itertools.product(
        DISTRIBUTIONS, (("near-unit", True), ("near-unit", False), ("uniform", True), ("corner", True))
    ):
        a, b = (draw(name, fmt, (70,), rng, scales=scales, finite=finite) for _ in "ab")
        found = accumulator(mxfp.block_dots(a, b, group=accumulator.terms_of))
        assert int(bits(found)[()]) == oracle_result(accumulator, a, b), (name, scales)


def test_the_example_by_which_mma_sim_tells_tensor_cores_apart():
    """arXiv:2511.10909, Eq. 10 and Table 8: 2**23 - 2**23 - 0.5 - 0.25 - 0.125, the first of them as c."""
    results = {}
    for name in ("blackwell-mxf8f6f4", "hopper-fp8", "ada-fp8"):
        step = TENSOR_CORES[name].step
        a, b = np.zeros((2, step + 4))
        a[0], b[0] = 2.0**13, 2.0**10
        a[step:], b[step:] = [-(2.0**13), -0.5, -0.25, -0.125], [2.0**10, 1, 1, 1]
        sides = [
            mxfp.BlockArray(mxfp.encode(x, mxfp.E5M2), [127] * -(-len(x) // 32), mxfp.MXFP8_E5M2)
            for x in (a, b)
        ]
        results[name] = float(mxfp.matmul(*sides, accumulator=TENSOR_CORES[name]))
    a, b = np.zeros((2, 128))
    a[0], b[0] = 4, 2
    a[[64, 96, 97, 98]], b[[64, 96, 97, 98]] = [-4, -1, -1, -0.5], [4, 1, 0.5, 0.5]
    sides = [
        mxfp.BlockArray(mxfp.encode(x, mxfp.E2M1), scales, mxfp.MXFP4)
        for x, scales in ((a, [147, 127, 146, 127]), (b, [127, 127, 127, 126]))
    ]
    results["blackwell"] = float(mxfp.matmul(*sides, accumulator=mxfp.BLACKWELL_MXFP4))
    assert results == {"blackwell-mxf8f6f4": -0.75, "hopper-fp8": 0.0, "ada-fp8": 0.0, "blackwell": -0.875}


@pytest.mark.parametrize("accumulator", FUSED, ids=name_of)
def test_a_trace_ends_where_matmul_does(accumulator):
    a, b = (random_blocks(mxfp.MXFP8_E4M3, (75,), seed=s, scales=(120, 134)) for s in (1, 2))
    found = mxfp.trace(a, b, accumulator=accumulator)
    assert found.result_bits == int(bits(mxfp.matmul(a, b, accumulator=accumulator))[()])
    assert len(found.steps) == -(-75 // accumulator.step)
    assert found.group == accumulator.group


def test_products_on_their_own_need_terms_that_know_their_exponents():
    terms = made_of([[1, 2]], [[0, 0]], 14)
    with pytest.raises(ValueError, match=r"hopper-fp8 takes terms of single products.*group=1"):
        mxfp.HOPPER_FP8(terms)
    q = mxfp.quantize([6.0] * 32)
    with pytest.raises(ValueError, match=r"ada-fp8 takes terms of 1 products, got terms of 32"):
        mxfp.ADA_FP8(mxfp.block_dots(q, q))


# --- specials


def e5m2(values: list[list[float]], scales: list[int]) -> mxfp.BlockArray:
    """Blocks of E5M2 whose first elements are these values, infinities among them."""
    codes = np.zeros((len(values), 32), np.uint8)
    for row, block in enumerate(values):
        for column, value in enumerate(block):
            table = mxfp.E5M2.values
            codes[row, column] = int(
                np.flatnonzero(np.isnan(table))[0] if math.isnan(value) else np.flatnonzero(table == value)[0]
            )
    return mxfp.BlockArray(codes.ravel(), scales, mxfp.MXFP8_E5M2)


@pytest.mark.parametrize("accumulator", [*FLOAT_ACCUMULATORS, mxfp.BLACKWELL_MXFP4], ids=name_of)
@pytest.mark.parametrize(
    "values",
    [
        [[math.inf], [1.0]],
        [[1.0], [-math.inf], [2.0]],
        [[math.inf], [-math.inf]],
        [[math.inf], [math.inf], [-1.0]],
        [[math.nan], [math.inf]],
        [[57344.0], [57344.0], [-math.inf]],
        [[-57344.0], [-57344.0], [math.inf], [1.0]],
        [[math.inf], [-57344.0], [-57344.0]],
    ],
    ids=str,
)
@pytest.mark.parametrize("scale", [127, 254], ids=["moderate", "overflowing"])
def test_infinite_terms_follow_ieee_even_where_finite_ones_overflow(values, accumulator, scale):
    """An infinity that overflow made and one that a term brought cancel to NaN, as IEEE 754 has it."""
    a = e5m2(values, [scale] * len(values))
    b = e5m2([[57344.0]] * len(values), [scale] * len(values))
    found = accumulator(mxfp.block_dots(a, b, group=accumulator.terms_of))
    assert int(bits(found)[()]) == oracle_result(accumulator, a, b)


@pytest.mark.parametrize("overflow", ["raise", "wrap", "saturate"])
def test_a_register_makes_nan_of_any_term_that_is_not_finite(overflow):
    register = mxfp.FixedPoint(10, 0, overflow)
    zeros = mxfp.BlockArray(np.zeros(64, np.uint8), [255, 127], mxfp.MXFP4)
    ones = mxfp.BlockArray(np.full(64, 2, np.uint8), [127, 127], mxfp.MXFP4)
    assert int(bits(register(mxfp.block_dots(zeros, ones)))[()]) == oracle.NAN_BITS["float64"]
    infinite = e5m2([[math.inf], [1.0]], [127, 127])
    assert math.isnan(register(mxfp.block_dots(infinite, e5m2([[1.0], [1.0]], [127, 127]))))


def test_codes_under_a_nan_scale_do_not_overflow_a_register():
    """The term is NaN, so the output is; 4608 / 4 * 2**128 is nobody's sum."""
    a = mxfp.BlockArray(np.full(32, 7, np.uint8), [255], mxfp.MXFP4)
    found = mxfp.FixedPoint(24, 0, "raise")(mxfp.block_dots(a, a))
    assert int(bits(found)[()]) == oracle.NAN_BITS["float64"]


# --- FixedPoint


@pytest.mark.parametrize("rounding", ["floor", "toward_zero", "nearest_even"])
@pytest.mark.parametrize("overflow", ["raise", "wrap", "saturate"])
@pytest.mark.parametrize("width", [1, 4, 8, 31, 62, 63, 64, 65, 100])
def test_registers_of_every_width_overflow_and_rounding(width, overflow, rounding):
    rng = np.random.default_rng(width)
    for lsb in (-2, 0, 3, width - 20):
        register = mxfp.FixedPoint(width, lsb, overflow, rounding)
        for _ in range(12):
            reach = min(width, 40)
            sums = [int(rng.integers(-(1 << 13), 1 << 13)) for _ in range(5)]
            exponents = [int(rng.integers(lsb - 4, lsb + max(reach - 11, 1))) for _ in range(5)]
            terms = made_of([sums], [exponents], 14)
            try:
                expected = expected_of(register, [sums], [exponents])
            except OverflowError:
                with pytest.raises(mxfp.WidthError, match=rf"in units of 2\*\*{lsb}.*signed {width} bits"):
                    register(terms)
            else:
                assert bits(register(terms)).tolist() == expected


@pytest.mark.parametrize(
    ("total", "shift", "expected"),
    [
        (5, -1, {"floor": 2, "toward_zero": 2, "nearest_even": 2}),
        (7, -1, {"floor": 3, "toward_zero": 3, "nearest_even": 4}),
        (-5, -1, {"floor": -3, "toward_zero": -2, "nearest_even": -2}),
        (-7, -1, {"floor": -4, "toward_zero": -3, "nearest_even": -4}),
        (-1, -200, {"floor": -1, "toward_zero": 0, "nearest_even": 0}),
        (8191, -14, {"floor": 0, "toward_zero": 0, "nearest_even": 0}),
        (-8192, -14, {"floor": -1, "toward_zero": 0, "nearest_even": 0}),
        (8191, -13, {"floor": 0, "toward_zero": 0, "nearest_even": 1}),
        (3, 2, {"floor": 12, "toward_zero": 12, "nearest_even": 12}),
    ],
)
def test_a_shift_drops_bits_as_its_rounding_says(total, shift, expected):
    for rounding, value in expected.items():
        assert float(mxfp.FixedPoint(30, 0, rounding=rounding)(made_of([[total]], [[shift]], 14))[0]) == value


def test_a_width_error_names_the_block_and_the_result():
    terms = made_of([[1, 1, 1], [100, 20, 8]], [[0, 0, 0], [0, 0, 0]], 14)
    with pytest.raises(
        mxfp.WidthError, match=r"block 2 of result \(1,\).*128 in units.*signed 8 bits \(-128 … 127\)"
    ):
        mxfp.FixedPoint(8, 0)(terms)


@pytest.mark.parametrize("lsb", [-2000, -1100, -1074, -200, 200, 1000, 1100, 2000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_register_far_from_one_is_rounded_once_and_in_silence(lsb, dtype):
    for sums in ([3], [-1], [5461], [0]):
        register = mxfp.FixedPoint(30, lsb, "saturate", dtype=dtype)
        terms = made_of([sums], [[lsb if abs(lsb) < 300 else (300 if lsb > 0 else -300)]], 14)
        scaled = sums[0] * oracle.power(int(terms.exponents[0, 0]))
        held = oracle.fixed_point([scaled], 30, lsb, "saturate", "floor")
        assert bits(register(terms)).tolist() == [oracle.fixed_point_bits(held, lsb, dtype)]


# --- tensor scales


@pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=name_of)
def test_tensor_scales_are_an_epilogue_with_one_rounding(accumulator):
    for seed, (ta, tb) in enumerate(
        (
            (0.75, 1.0),
            (float(np.float32(1 / 3)), float(np.float32(1e-3))),
            (2.0**-149, 3.0),
            (2.0**127, 1.5),
            (2.0**-20, 2.0**-120),
        )
    ):
        a, b = (random_blocks(mxfp.NVFP4, (70,), seed=seed + side, scales=(40, 70)) for side in (0, 1))
        a = mxfp.BlockArray(a.codes, a.scales, mxfp.NVFP4, -1, ta)
        b = mxfp.BlockArray(b.codes, b.scales, mxfp.NVFP4, -1, tb)
        found = accumulator(mxfp.block_dots(a, b, group=accumulator.terms_of))
        assert int(bits(found)[()]) == oracle_result(accumulator, a, b), (ta, tb)


# --- what they are


@pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=name_of)
def test_no_terms_make_plus_zero(accumulator):
    found = accumulator(made_of([[], [], []], [[], [], []], 14))
    assert found.dtype == accumulator.result_dtype
    assert bits(found).tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_exact_does_not_depend_on_the_order_of_terms(dtype):
    sums, exponents = hard_terms(14, seed=3)
    exact = mxfp.Exact(dtype)
    expected = exact(made_of(sums, exponents, 14))
    rng = np.random.default_rng(0)
    for _ in range(5):
        order = rng.permutation(6)
        shuffled = made_of(np.array(sums)[:, order].tolist(), np.array(exponents)[:, order].tolist(), 14)
        same_bits(exact(shuffled), expected)
    reversed_sums = np.array(sums)[:, ::-1].tolist()
    found = mxfp.Sequential(dtype)(made_of(reversed_sums, np.array(exponents)[:, ::-1].tolist(), 14))
    assert not np.array_equal(bits(found), bits(mxfp.Sequential(dtype)(made_of(sums, exponents, 14))))


@pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=name_of)
def test_the_last_step_is_the_result_and_the_first_added_is_the_term(accumulator):
    a, b = (random_blocks(mxfp.MXFP4, (100,), seed=s, scales=(120, 134)) for s in (1, 2))
    terms = mxfp.block_dots(a, b, group=accumulator.terms_of)
    steps = list(accumulator.steps(terms))
    same_bits(np.asarray(accumulator.finish(steps[-1].state, terms)), np.asarray(accumulator(terms)))
    assert all(step.label for step in steps)
    if isinstance(accumulator, (mxfp.Exact, mxfp.Sequential)):
        assert isinstance(steps[0].added, Fixed)
        added = [int(s.added.integers) * Fraction(2) ** int(s.added.exponent) for s in steps]
        assert added == terms.fractions().tolist()


@pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=name_of)
def test_the_text_of_an_accumulator_is_read_back(accumulator):
    assert parse(str(accumulator)) == accumulator
    assert parse(f"  {str(accumulator).upper()} ") == accumulator
    assert hash(parse(str(accumulator))) == hash(accumulator)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(accumulator, dataclasses.fields(accumulator)[0].name, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("exact", mxfp.Exact("float32")),
        ("sequential:bfloat16", mxfp.Sequential("bfloat16")),
        ("pairwise:float64", mxfp.Pairwise("float64")),
        ("fixed:24:-12", mxfp.FixedPoint(24, -12)),
        ("fixed:24:-12:saturate:toward_zero", mxfp.FixedPoint(24, -12, "saturate", "toward_zero")),
        ("fused:35:16:64:-139", mxfp.BLACKWELL_MXFP4),
        ("blackwell", mxfp.BLACKWELL_MXFP4),
        ("fused:25:1:32:-133:products", mxfp.BLACKWELL_MXF8F6F4),
        ("blackwell-mxf8f6f4", mxfp.BLACKWELL_MXF8F6F4),
        ("fused:13:1:32:-133:products:13", mxfp.HOPPER_FP8),
        ("hopper-fp8", mxfp.HOPPER_FP8),
        ("ada-fp8", mxfp.ADA_FP8),
    ],
)
def test_short_texts_name_accumulators(text, expected):
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "exact:int8",
        "sum",
        "fixed",
        "fixed:24",
        "fixed:x:0",
        "fixed:24:0:ignore",
        "fused:35",
        "blackwell:1",
        "hopper",
        "fused:25:16:32:-133:products",
        "fused:25:1:32:-133:sums",
        "fused:25:1:32:-133:products:24",
        "exact:float32:1",
        "fixed:²:0",
    ],
)
def test_other_texts_are_refused_with_examples(text):
    with pytest.raises(ValueError, match="for example exact"):
        parse(text)


@pytest.mark.parametrize(
    "make",
    [
        lambda: mxfp.FixedPoint(0, 0),
        lambda: mxfp.FixedPoint(8.0, 0),
        lambda: mxfp.FixedPoint(True, 0),
        lambda: mxfp.FixedPoint(8, 0.5),
        lambda: mxfp.FixedPoint(8, 0, "ignore"),
        lambda: mxfp.FixedPoint(8, 0, rounding="up"),
        lambda: mxfp.Fused(-1, 16, 64, -139),
        lambda: mxfp.Fused(35, 16, 40, -139),
        lambda: mxfp.Fused(35, 0, 64, -139),
        lambda: mxfp.Fused(35.0, 16, 64, -139),
        lambda: mxfp.Fused(35, 16, 64, -139, "products"),
        lambda: mxfp.Fused(35, 1, 64, -139, "sums"),
        lambda: mxfp.Fused(35, 16, 64, -139, result_bits=24),
        lambda: mxfp.Fused(35, 16, 64, -139, result_bits=-1),
        lambda: mxfp.Fused(35, 16, 64, -139, result_bits=10.0),
    ],
)
def test_parameters_that_make_no_accumulator_are_refused(make):
    with pytest.raises(ValueError, match="got"):
        make()


def test_dtypes_by_any_name_make_equal_accumulators():
    for kind in (mxfp.Exact, mxfp.Sequential, mxfp.Pairwise):
        for name, dtype in DTYPES.items():
            assert kind(name) == kind(dtype) == kind(dtype.type)
        with pytest.raises(TypeError, match="int8"):
            kind("int8")
    assert mxfp.Exact() != mxfp.Sequential()


# --- parameters as numpy gives them


@pytest.mark.parametrize("width", [np.int64(65 - 1), np.int32(33), np.uint8(20), np.int8(30)], ids=repr)
@pytest.mark.parametrize("overflow", ["raise", "wrap", "saturate"])
def test_a_numpy_integer_is_as_good_a_width_as_a_python_one(width, overflow):
    q = mxfp.quantize([6.0] * 32)
    plain = mxfp.FixedPoint(int(width), 0, overflow)
    register = mxfp.FixedPoint(width, np.int16(0), overflow)
    assert register == plain
    assert mxfp.matmul(q, q, accumulator=register) == mxfp.matmul(q, q, accumulator=plain) == 1152.0


def test_numpy_integers_are_as_good_for_a_tensor_core():
    q = mxfp.quantize([6.0] * 96)
    fused = mxfp.Fused(np.uint8(35), np.uint8(16), np.uint8(64), np.int16(-139))
    assert fused == mxfp.BLACKWELL_MXFP4
    assert mxfp.matmul(q, q, accumulator=fused) == 3456.0


def test_a_width_error_survives_a_process_boundary():
    q = mxfp.quantize([6.0] * 32)
    with pytest.raises(mxfp.WidthError) as caught:
        mxfp.block_dots(q, q, width=13)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.block, again.value) == (str(caught.value), 0, 4608)


# --- docs/accumulators.md


PAGE = (Path(__file__).parents[1] / "docs" / "accumulators.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| `")
]


def test_every_short_text_of_the_page_is_the_accumulator_beside_it():
    for text, python, *_ in ROWS:
        assert parse(text.strip("`")) == eval(python.strip("`"), {"mxfp": mxfp}), text
    assert {parse(text.strip("`")).short for text, *_ in ROWS} == {
        "exact",
        "sequential",
        "pairwise",
        "fixed",
        "fused",
    }


def test_the_numbers_of_every_tensor_core_are_those_of_the_page():
    rows = {row[0].strip("`"): row for row in ROWS if len(row) == 10}
    assert list(rows) == list(TENSOR_CORES)
    for name, known in TENSOR_CORES.items():
        numbers = [int(cell.replace("−", "-")) for cell in rows[name][5:]]
        fused = known.fraction_bits, known.step, known.group, known.zero_exponent, known.result_bits
        assert tuple(numbers) == fused
        assert rows[name][4] == known.exponents
        assert str(known) == name


def test_every_other_text_of_the_page_names_an_accumulator_too():
    texts = re.findall(r"`((?:sequential|fixed|fused|pairwise|exact):[^`]*)`", PAGE)
    assert len(texts) > 15
    for text in texts:
        assert parse(text).short == text.split(":")[0]


@pytest.mark.parametrize("fmt", [f for f in FORMATS if f.block == 32], ids=name_of)
def test_published_registers_of_a_block_neither_round_nor_overflow(fmt):
    """MX-for-FPGA's for every format, and 40 bits with LSB 2**-16 where a product is a multiple of that."""
    element = fmt.element.name
    text = re.search(rf"`(fixed:\d+:-\d+)` \({element}\)", PAGE)
    assert text is not None
    registers = [parse(text.group(1))]
    if element not in ("E4M3", "E5M2"):
        registers.append(parse("fixed:40:-16:saturate"))
    rng = np.random.default_rng(1)
    low, high = int(fmt.element.integers.argmin()), int(fmt.element.integers.argmax())
    ends = [[x, y] for x in (low, high) for y in (low, high)]
    rows = [np.full((32, 2), end, np.uint8) for end in ends]
    rows += [draw("edges", fmt, (32, 2), rng, axis=0, finite=True).codes for _ in range(40)]
    for codes in rows:
        a, b = (mxfp.BlockArray(codes[:, side], [127], fmt) for side in (0, 1))
        terms = mxfp.block_dots(a, b)
        for register in registers:
            same_bits(np.asarray(register(terms)), np.asarray(mxfp.Exact("float64")(terms)))
