# SPDX-License-Identifier: Apache-2.0
"""Room 6: terms are exact, whatever the formats, scales, widths and specials."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import mxfp
import oracle
from mxfp.dot import Terms
from support import FORMATS, MX, digits, golden, name_of, oracle_terms, random_blocks

PAIRS = [(a, b) for a, b in itertools.combinations_with_replacement(FORMATS, 2) if a.block == b.block]


def as_values(terms: Terms) -> list[oracle.Value]:
    """The terms of one dot product as oracle values."""
    found: list[oracle.Value] = list(terms.fractions().tolist())
    if terms.specials is not None:
        for i, special in enumerate(terms.specials.tolist()):
            if special:
                found[i] = "nan" if math.isnan(special) else ("inf" if special > 0 else "-inf")
    return found


def test_every_golden_dot_product():
    cases = golden("dot.jsonl")
    a, b = (np.stack([digits(case[side]) for case in cases]) for side in "ab")
    scales = np.full((len(cases), 1), 127, np.uint8)
    terms = mxfp.block_dots(mxfp.BlockArray(a, scales, mxfp.MXFP4), mxfp.BlockArray(b, scales, mxfp.MXFP4))
    assert terms.sums.ravel().tolist() == [case["sum_quarters"] for case in cases]
    assert terms.exponents.ravel().tolist() == [-2] * len(cases)
    assert terms.bits == 14


@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_every_product_of_two_codes(fmt):
    """One element a block, so that each sum is one product: 256 of E2M1, 65,536 of 8-bit formats."""
    element = fmt.element
    codes = np.flatnonzero(element.finite)
    x, y = np.meshgrid(codes, codes, indexing="ij")
    one = 127 if fmt.scale is mxfp.E8M0 else 56
    scales = np.full((x.size, 1), one, np.uint8)
    a, b = (mxfp.BlockArray(side.reshape(-1, 1), scales, fmt) for side in (x, y))
    terms = mxfp.block_dots(a, b)
    integers = [int(oracle.element(element.name, int(c)) / oracle.element(element.name, 1)) for c in codes]
    shift = terms.exponents[0, 0] - 2 * element.lsb_exponent
    scale = 1 if fmt.scale is mxfp.E8M0 else 64
    assert terms.sums.ravel().tolist() == [i * j * scale for i in integers for j in integers]
    assert shift == (0 if fmt.scale is mxfp.E8M0 else -6)


@pytest.mark.parametrize("block", [mxfp.MXFP4, mxfp.NVFP4], ids=name_of)
def test_every_pair_of_scale_codes(block):
    count = block.scale.code_count
    ca, cb = np.meshgrid(np.arange(count, dtype=np.uint8), np.arange(count, dtype=np.uint8), indexing="ij")
    ones = np.full((count * count, 1), 2, np.uint8)  # 1.0
    a, b = (mxfp.BlockArray(ones, side.reshape(-1, 1), block) for side in (ca, cb))
    terms = mxfp.block_dots(a, b)
    nan = block.scale.nan_code
    assert terms.specials is not None
    marked = (ca == nan) | (cb == nan)
    assert np.array_equal(np.isnan(terms.specials), marked.reshape(-1, 1))
    assert not terms.specials[~marked.reshape(-1, 1)].any()
    values = [oracle.scale(block.scale.name, c) for c in range(count)]
    found = terms.fractions().reshape(count, count)
    for i in range(count):
        for j in range(count):
            if not marked[i, j]:
                assert found[i, j] == values[i] * values[j]
    if block is mxfp.MXFP4:
        exponents = terms.exponents.reshape(256, 256)
        assert np.array_equal(exponents[:255, :255], ca[:255, :255].astype(int) + cb[:255, :255] - 254 - 2)
        assert np.array_equal(terms.scale_exponents, terms.exponents + 2)


@pytest.mark.parametrize("specials", [False, True], ids=["finite", "specials"])
@pytest.mark.parametrize(("fa", "fb"), PAIRS, ids=name_of)
def test_terms_are_those_of_the_oracle(fa, fb, specials):
    for seed, length in enumerate((1, 31, 32, 100)):
        nan_share = 0.2 if specials else 0.0
        a = random_blocks(fa, (length,), seed=2 * seed, specials=specials, nan_share=nan_share)
        b = random_blocks(fb, (length,), seed=2 * seed + 1, specials=specials, nan_share=nan_share)
        found = as_values(mxfp.block_dots(a, b))
        expected = oracle_terms(a, b)
        compared = [f if isinstance(e, str) else Fraction(f) for f, e in zip(found, expected, strict=True)]
        assert compared == expected
        swapped = mxfp.block_dots(b, a)
        assert as_values(swapped) == found


@pytest.mark.parametrize("fmt", MX, ids=name_of)
def test_the_worst_blocks_need_and_fit_the_derived_width(fmt):
    element = fmt.element
    low, high = oracle.adder_bounds(element.name, element.name, 32)
    top = np.full(32, np.argmax(np.abs(element.integers)), np.uint8)
    bottom = np.full(32, np.argmin(element.integers), np.uint8)
    positive = np.full(32, np.argmax(element.integers), np.uint8)

    def block(codes):
        return mxfp.BlockArray(codes, [127], fmt)

    assert mxfp.block_dots(block(top), block(top)).sums.tolist() == [high]
    assert mxfp.block_dots(block(bottom), block(positive)).sums.tolist() == [low]
    bits = mxfp.block_dots(block(top), block(top)).bits
    assert bits == oracle.signed_bits(low, high)
    assert mxfp.block_dots(block(top), block(top), width=bits).sums.tolist() == [high]
    with pytest.raises(mxfp.WidthError, match=f"block 0.*{high}.*{bits - 1} bits"):
        mxfp.block_dots(block(top), block(top), width=bits - 1)


@pytest.mark.parametrize("width", [1, 2, 8, 13, 14, 20, 64, 70])
@pytest.mark.parametrize("overflow", ["wrap", "saturate"])
@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4, mxfp.MXFP8_E5M2], ids=name_of)
def test_wrapping_and_saturating_sums_are_asked_for_by_name(fmt, overflow, width):
    a, b = (random_blocks(fmt, (20, 100), seed=seed, zero_share=0.1) for seed in (1, 2))
    one = 127 if fmt.scale is mxfp.E8M0 else 8
    scales = np.full_like(a.scales, one)
    a, b = (mxfp.BlockArray(q.codes, scales, fmt) for q in (a, b))
    exact = mxfp.block_dots(a, b)
    share = int(fmt.scale.significands[one]) ** 2
    low, high = -(1 << (width - 1)), (1 << (width - 1)) - 1
    expected = []
    for total in exact.sums.ravel().tolist():
        sums = total // share
        wrapped, clamped = (sums - low) % (1 << width) + low, min(max(sums, low), high)
        sums = wrapped if overflow == "wrap" else clamped
        expected.append(sums * share)
    found = mxfp.block_dots(a, b, width=width, overflow=overflow)
    assert found.sums.ravel().tolist() == expected
    assert found.sums.shape == exact.sums.shape


def test_a_width_error_names_block_sum_and_width():
    a = mxfp.quantize(np.array([[1.0] * 64, [1.0] * 32 + [6.0] * 32]))
    b = mxfp.quantize(np.ones(64) * 6)
    with pytest.raises(
        mxfp.WidthError, match=r"block 1 of dot product \(1,\).*4608.*signed 13 bits \(-4096 … 4095\)"
    ):
        mxfp.block_dots(a, b, width=13)
    assert mxfp.block_dots(a, b, width=14).sums.max() == 4608


@pytest.mark.parametrize("group", [1, 2, 4, 8, 16, 32])
def test_groups_cut_a_block_into_more_terms(group):
    a, b = (random_blocks(mxfp.MXFP4, (70,), seed=seed, nan_share=0.0) for seed in (1, 2))
    terms = mxfp.block_dots(a, b, group=group)
    expected = oracle_terms(a, b, group=group)
    assert len(terms) == -(-70 // group)
    found = terms.fractions().tolist()
    assert found == expected
    assert [sum(found[i : i + 32 // group]) for i in range(0, len(found), 32 // group)] == oracle_terms(a, b)
    for wrong in (0, 3, 33, 64):
        with pytest.raises(ValueError, match=rf"group {wrong} must .*block of 32"):
            mxfp.block_dots(a, b, group=wrong)


@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_terms_of_one_product_know_its_exponents(fmt):
    """Of all finite products but zeros, under scales of every kind, as the contract's §5 has them."""
    codes = np.flatnonzero(fmt.element.integers)
    scales = np.array([0, 1, 7, 8, 9, 15, 16, 60, fmt.scale.nan_code - 1], np.uint8)
    rng = np.random.default_rng(1)
    x, y = (rng.choice(codes, (400, 1)).astype(np.uint8) for _ in "ab")
    ca, cb = (rng.choice(scales, (400, 1)) for _ in "ab")
    x[: codes.size, 0], y[-codes.size :, 0] = codes, codes
    a, b = mxfp.BlockArray(x, ca, fmt), mxfp.BlockArray(y, cb, fmt)
    terms = mxfp.block_dots(a, b, group=1)
    names = fmt.element.name, fmt.scale.name
    expected = [
        sum(oracle.element_exponent(names[0], c) for c in (i, j))
        + sum(oracle.leading_exponent(names[1], c) for c in (k, m))
        for i, j, k, m in zip(*(s.ravel().tolist() for s in (x, y, ca, cb)), strict=True)
    ]
    assert terms.leading is not None
    assert terms.leading.shape == (400, 1)
    assert terms.leading.ravel().tolist() == expected
    whole = [
        abs(value) / oracle.power(e) for value, e in zip(terms.fractions().ravel(), expected, strict=True)
    ]
    assert max(whole) < (16 if fmt.scale.mantissa_bits else 4)
    assert mxfp.block_dots(a, b, group=2).leading is None
    assert mxfp.block_dots(a, b).leading is None
    one = mxfp.block_dots(mxfp.BlockArray(x[0], ca[0], fmt), mxfp.BlockArray(y, cb, fmt), group=1)
    assert one.leading is not None
    assert one.leading.shape == (400, 1)


def test_live_says_whether_any_product_is_not_zero():
    codes = np.zeros((4, 32), np.uint8)
    codes[1, 3], codes[2, 3], codes[2, 4], codes[3, :2] = 1, 1, 9, (1, 9)
    ones = mxfp.BlockArray(np.full((4, 32), 2, np.uint8), np.full((4, 1), 127, np.uint8), mxfp.MXFP4)
    terms = mxfp.block_dots(mxfp.BlockArray(codes, np.full((4, 1), 127, np.uint8), mxfp.MXFP4), ones)
    assert terms.live.ravel().tolist() == [False, True, True, True]
    assert terms.sums.ravel().tolist() == [0, 2, 0, 0]


@pytest.mark.parametrize(
    ("fmt", "x", "y", "expected"),
    [
        (mxfp.MXFP8_E5M2, [0x7C], [0x3C], "inf"),
        (mxfp.MXFP8_E5M2, [0xFC], [0x3C], "-inf"),
        (mxfp.MXFP8_E5M2, [0x7C, 0xFC], [0x3C, 0x3C], "nan"),
        (mxfp.MXFP8_E5M2, [0x7C, 0x7C], [0x3C, 0x3C], "inf"),
        (mxfp.MXFP8_E5M2, [0x7C], [0x00], "nan"),
        (mxfp.MXFP8_E5M2, [0x7C], [0xFC], "-inf"),
        (mxfp.MXFP8_E5M2, [0x7E], [0x00], "nan"),
        (mxfp.MXFP8_E4M3, [0x7F], [0x38], "nan"),
        (mxfp.MXFP8_E4M3, [0xFF], [0x00], "nan"),
    ],
)
def test_special_elements_make_of_a_term_what_ieee_makes_of_it(fmt, x, y, expected):
    a, b = (mxfp.BlockArray(codes, [127], fmt) for codes in (x, y))
    assert as_values(mxfp.block_dots(a, b)) == [expected]
    assert oracle_terms(a, b) == [expected]


def test_a_nan_scale_makes_its_term_nan_even_if_all_codes_are_zero():
    a = mxfp.BlockArray(np.zeros(96, np.uint8), [127, 255, 127], mxfp.MXFP4)
    b = mxfp.BlockArray(np.zeros(96, np.uint8), [127, 127, 255], mxfp.MXFP4)
    assert as_values(mxfp.block_dots(a, b)) == [0, "nan", "nan"]


def test_the_sum_of_a_term_that_is_not_finite_is_0():
    """As the record says of itself, so that no register sees what is left of the sum."""
    a = mxfp.BlockArray(np.full(32, 7, np.uint8), [255], mxfp.MXFP4)
    assert mxfp.block_dots(a, a).sums.tolist() == [0]
    codes = np.array([0x7C] + [0x3C] * 31, np.uint8)
    b = mxfp.BlockArray(codes, [127], mxfp.MXFP8_E5M2)
    assert mxfp.block_dots(b, b).sums.tolist() == [0]


def test_leading_axes_broadcast():
    a = random_blocks(mxfp.MXFP4, (4, 1, 40), seed=1)
    b = random_blocks(mxfp.MXFP4, (3, 40), seed=2)
    terms = mxfp.block_dots(a, b)
    assert terms.sums.shape == (4, 3, 2)
    for i in range(4):
        for j in range(3):
            one = mxfp.block_dots(
                mxfp.BlockArray(a.codes[i, 0], a.scales[i, 0], mxfp.MXFP4),
                mxfp.BlockArray(b.codes[j], b.scales[j], mxfp.MXFP4),
            )
            assert np.array_equal(terms.sums[i, j], one.sums)
            assert np.array_equal(terms.exponents[i, j], one.exponents)


def test_no_elements_make_no_terms():
    a = mxfp.quantize(np.zeros((3, 0)))
    terms = mxfp.block_dots(a, a)
    assert terms.sums.shape == (3, 0)
    assert len(terms) == 0


def test_tensor_scales_stand_beside_the_terms():
    a = mxfp.quantize([1.0, 2.0], mxfp.NVFP4, tensor_scale=0.75)
    b = mxfp.quantize([1.0, 2.0], mxfp.NVFP4, tensor_scale=2.5)
    significand, exponent = mxfp.block_dots(a, b).factor
    assert significand * Fraction(2) ** exponent == Fraction(15, 8)
    assert significand % 2 == 1
    q = mxfp.quantize([1.0])
    assert mxfp.block_dots(q, q).factor == (1, 0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda q: mxfp.block_dots(q, np.ones(40)), TypeError, "b must be a BlockArray.*ndarray"),
        (
            lambda q: mxfp.block_dots(q, mxfp.quantize(np.ones(40), mxfp.NVFP4)),
            ValueError,
            "32.*NVFP4 in blocks of 16",
        ),
        (lambda q: mxfp.block_dots(q, mxfp.quantize(np.ones(41))), ValueError, r"\(40,\) and b \(41,\)"),
        (
            lambda q: mxfp.block_dots(q, mxfp.quantize(np.ones((40, 3)), axis=0)),
            ValueError,
            r"b \(40, 3\).*axis 0",
        ),
        (lambda q: mxfp.block_dots(q, q, overflow="ignore"), ValueError, "'wrap'"),
        (lambda q: mxfp.block_dots(q, q, width=0), ValueError, "width"),
        (lambda q: mxfp.block_dots(q, q, width=13.0), ValueError, "13.0"),
        (lambda q: mxfp.block_dots(q, q, width=True), ValueError, "True"),
    ],
)
def test_what_does_not_match_is_refused_with_both_sides(call, error, message):
    with pytest.raises(error, match=message):
        call(mxfp.quantize(np.ones(40)))


def test_leading_axes_that_do_not_broadcast_are_refused():
    a, b = mxfp.quantize(np.ones((2, 40))), mxfp.quantize(np.ones((3, 40)))
    with pytest.raises(ValueError, match=r"a \(2, 40\) and b \(3, 40\) do not match"):
        mxfp.block_dots(a, b)


def test_a_scale_of_zero_makes_its_terms_zero_with_and_without_mantissa_bits():
    for bits in (0, 2):
        scale = mxfp.ScaleFormat("own", 4, bits, 7, True)
        rules = ("nearest",) if bits else ("floor",)
        fmt = mxfp.BlockFormat("own", mxfp.E2M1, scale, 32, rules)
        zero = mxfp.BlockArray(np.full(32, 7, np.uint8), [0], fmt)
        one = mxfp.BlockArray(np.full(32, 7, np.uint8), [7 << bits], fmt)
        assert not mxfp.dequantize(zero).any()
        assert not mxfp.block_dots(zero, one).sums.any()
        assert mxfp.block_dots(one, one).fractions().tolist() == [1152]
