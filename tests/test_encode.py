# SPDX-License-Identifier: Apache-2.0
"""Room 3: every 16-bit pattern, every midpoint and every named rounding against the oracle."""

import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

import mxfp
import oracle
from mxfp.encode import check_rounding, draw_key, draws, encode_scaled, starts
from support import (
    DETERMINISTIC,
    DTYPES,
    ELEMENTS,
    JIT,
    ROUNDINGS,
    by_bisection,
    from_bits,
    key_of,
    midpoints,
    name_of,
    oracle_magnitudes,
    same_bits,
    table,
    values_of,
)

SIXTEEN = ("float16", "bfloat16")


@cache
def magnitude_codes(dtype: str, fmt: str, rounding: str) -> np.ndarray:
    """The oracle's code of every finite unsigned pattern; it asks only where the code changes."""
    return by_bisection(
        lambda p: oracle.encode(fmt, oracle.magnitude_of(p, dtype), rounding), oracle.infinity_bits(dtype)
    )


def every_code(dtype: str, element: mxfp.ElementFormat, rounding: str) -> np.ndarray:
    """The oracle's code of every pattern, both signs; that of 0 where a NaN has none."""
    name, infinity = element.name, oracle.infinity_bits(dtype)
    found = magnitude_codes(dtype, name, rounding)
    size = oracle.sign_bit(dtype)
    codes = np.zeros((2, size), np.int64)
    codes[0, :infinity] = found
    negated = np.array([oracle.encode(name, -m, rounding, negative=True) for m in oracle.magnitudes(name)])
    codes[1, :infinity] = negated[found]
    codes[0, infinity], codes[1, infinity] = (oracle.encode(name, v, rounding) for v in ("inf", "-inf"))
    codes[:, infinity + 1 :] = oracle.NAN_CODE.get(name, 0)
    return codes.ravel().astype(np.uint8)


@pytest.mark.parametrize("dtype", SIXTEEN)
@pytest.mark.parametrize("element", ELEMENTS, ids=name_of)
@pytest.mark.parametrize("rounding", DETERMINISTIC)
def test_every_16_bit_pattern_has_the_code_of_the_oracle(dtype, element, rounding):
    patterns = np.arange(1 << 16)
    if element.nan_code is None:
        nan = (patterns & 0x7FFF) > oracle.infinity_bits(dtype)
        patterns[nan] = 0
    x = from_bits(patterns, dtype)
    same_bits(mxfp.encode(x, element, rounding=rounding), every_code(dtype, element, rounding))


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_every_16_bit_pattern_asked_one_by_one(dtype):
    """No bisection here: nothing about the oracle's order is taken for granted."""
    infinity = oracle.infinity_bits(dtype)
    for minus in (False, True):
        values = [oracle.magnitude_of(p, dtype) * (-1 if minus else 1) for p in range(infinity)]
        expected = [oracle.encode("E2M1", v, "nearest_even", negative=minus) for v in values]
        x = from_bits(np.arange(infinity) + minus * oracle.sign_bit(dtype), dtype)
        assert mxfp.encode(x, mxfp.E2M1).tolist() == expected


@pytest.mark.parametrize("row", table("midpoints.csv"), ids=lambda row: row["midpoint"])
def test_every_row_of_the_table_of_midpoints(row):
    x = float.fromhex(row["midpoint"])
    for rounding in DETERMINISTIC:
        assert mxfp.encode([x, -x], mxfp.E2M1, rounding=rounding).tolist() == [
            int(row[rounding]),
            int(row[rounding]) + 8,
        ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("element", ELEMENTS, ids=name_of)
@pytest.mark.parametrize("rounding", DETERMINISTIC)
def test_an_ulp_to_each_side_of_each_boundary(dtype, element, rounding):
    points = midpoints(element) + oracle_magnitudes(element)[1:] + [oracle_magnitudes(element)[-1] * 1.5]
    found = set()
    for point in points:
        at = oracle.pattern_below(Fraction(point), dtype)
        found |= {at - 1, at, at + 1}
    patterns = sorted(p for p in found if p < oracle.infinity_bits(dtype))
    x = from_bits(patterns, dtype)
    for array in (x, -x):
        values, signs = values_of(array)
        expected = [
            oracle.encode(element.name, v, rounding, negative=s) for v, s in zip(values, signs, strict=True)
        ]
        assert mxfp.encode(array, element, rounding=rounding).tolist() == expected


@pytest.mark.parametrize("element", ELEMENTS, ids=name_of)
def test_every_value_encodes_to_its_own_code(element):
    for rounding in ROUNDINGS:
        rng = np.random.default_rng(0) if rounding == "stochastic" else None
        finite = np.flatnonzero(element.finite).astype(np.uint8)
        if element is mxfp.INT8:
            finite = finite[finite != 0x80]  # -2 decodes and is never produced
        same_bits(mxfp.encode(element.values[finite], element, rounding=rounding, rng=rng), finite)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("element", ELEMENTS, ids=name_of)
def test_integers_are_encoded_exactly(dtype, element):
    info = np.iinfo(dtype)
    near = sorted(
        n for n in {*range(-600, 600), info.min, info.max, 57343, 57344, 49152} if info.min <= n <= info.max
    )
    expected = [oracle.encode(element.name, Fraction(n), "nearest_even") for n in near]
    assert mxfp.encode(np.array(near, dtype), element).tolist() == expected


def test_a_float64_is_not_first_rounded_to_float32():
    x = np.array([0.25 + 2.0**-50, 0.25 - 2.0**-50, 5 + 2.0**-45, 2.5 - 2.0**-45])
    assert x.astype(np.float32).tolist() == [0.25, 0.25, 5, 2.5]
    assert mxfp.encode(x, mxfp.E2M1).tolist() == [1, 0, 7, 4]


def test_beyond_the_maximum_everything_saturates():
    for element in ELEMENTS:
        x = [element.max * 1.01, 1e300, math.inf, -element.max * 1.01, -1e300, -math.inf]
        for rounding in ROUNDINGS:
            rng = np.random.default_rng(0) if rounding == "stochastic" else None
            found = mxfp.encode(x, element, rounding=rounding, rng=rng)
            top = element.magnitudes.size - 1
            assert found.tolist() == [top] * 3 + [int(element.negated[top])] * 3


@pytest.mark.parametrize("element", ELEMENTS, ids=name_of)
def test_nan_becomes_the_nan_of_the_format_or_is_refused_at_its_first_index(element):
    x = np.array([[1.0, 2.0], [math.nan, math.nan]])
    if element.nan_code is None:
        with pytest.raises(ValueError, match=rf"{element.name} has no NaN.*\(1, 0\)"):
            mxfp.encode(x, element)
    else:
        nan = oracle.NAN_CODE[element.name]
        assert mxfp.encode(x, element)[1].tolist() == [nan, nan]
        assert mxfp.encode(-x, element)[1].tolist() == [nan, nan]


def test_shapes_are_kept_and_block_formats_stand_for_their_elements():
    assert mxfp.encode(1.0, mxfp.MXFP4).shape == ()
    assert mxfp.encode(np.zeros((2, 0, 3)), mxfp.E2M1).shape == (2, 0, 3)
    x = np.arange(12.0).reshape(3, 4)
    same_bits(mxfp.encode(x.T, mxfp.NVFP4), mxfp.encode(x, mxfp.E2M1).T)
    assert mxfp.encode(x, mxfp.E2M1).dtype == np.uint8


# --- stochastic


@pytest.mark.parametrize("element", ELEMENTS, ids=name_of)
def test_a_draw_decides_exactly(element):
    """Fractions that equal (u + 1) / 2**32, and one float64 ulp to each side of it."""
    seed, magnitudes = 11, np.array(oracle_magnitudes(element))
    n = 3 * (magnitudes.size - 1)
    u = np.array([oracle.splitmix64_draw(key_of(seed), i) for i in range(n)])
    low, high = magnitudes[np.arange(n) // 3], magnitudes[np.arange(n) // 3 + 1]
    x = low + (high - low) * ((u + 1) * 2.0**-32)
    shift = np.arange(n) % 3
    x = np.where(shift == 0, np.nextafter(x, 0), np.where(shift == 2, np.nextafter(x, np.inf), x))
    expected = [
        oracle.encode(element.name, Fraction(v), "stochastic", u=int(d)) for v, d in zip(x, u, strict=True)
    ]
    rises = np.array(expected) - np.arange(n) // 3
    assert (rises[shift == 0] == 0).sum() > n // 4
    assert (rises[shift == 1] == 1).all()
    found = mxfp.encode(x, element, rounding="stochastic", rng=np.random.default_rng(seed))
    assert found.tolist() == expected


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("element", ELEMENTS, ids=name_of)
def test_stochastic_codes_are_those_of_the_oracle(dtype, element):
    rng = np.random.default_rng(3)
    x = (rng.uniform(-1.1, 1.1, (5, 40)) * element.max).astype(DTYPES[dtype])
    values, signs = values_of(x)
    key = key_of(4)
    expected = [
        oracle.encode(element.name, v, "stochastic", negative=s, u=oracle.splitmix64_draw(key, i))
        for i, (v, s) in enumerate(zip(values, signs, strict=True))
    ]
    found = mxfp.encode(x, element, rounding="stochastic", rng=np.random.default_rng(4))
    assert found.ravel().tolist() == expected


def test_draws_are_those_of_splitmix64():
    for key in (0, 1, 2**64 - 1, 0x0123456789ABCDEF):
        index = np.array([0, 1, 2, 1000, 2**40], np.uint64)
        expected = [oracle.splitmix64_draw(key, int(i)) for i in index]
        assert draws(np.uint64(key), index).tolist() == expected


def test_one_key_is_drawn_per_call():
    rng, other = np.random.default_rng(9), np.random.default_rng(9)
    mxfp.encode(np.ones(1000), mxfp.E2M1, rounding="stochastic", rng=rng)
    key = other.integers(0, 2**64, dtype=np.uint64)
    assert draw_key(np.random.default_rng(9)) == key
    assert rng.integers(1 << 60) == other.integers(1 << 60)


@pytest.mark.parametrize("value", [0.1, 0.4999, 1.26, 2.9, 3.5, 5.75, -4.2, -0.001])
def test_the_mean_of_stochastic_rounding_is_the_value(value):
    n = 40_000
    codes = mxfp.encode(np.full(n, value), mxfp.E2M1, rounding="stochastic", rng=np.random.default_rng(2))
    decoded = mxfp.decode(codes, mxfp.E2M1, dtype=np.float64)
    assert set(np.abs(decoded)) <= set(mxfp.E2M1.magnitudes)
    spread = decoded.std() / math.sqrt(n)
    assert abs(decoded.mean() - value) < 4.5 * spread


def test_stochastic_rounding_needs_a_generator_and_nothing_else_takes_one():
    for wrong in (None, 0, np.random.RandomState(0)):
        with pytest.raises(TypeError, match="rng="):
            mxfp.encode([1.0], mxfp.E2M1, rounding="stochastic", rng=wrong)
    with pytest.raises(TypeError, match="stochastic rounding only"):
        mxfp.encode([1.0], mxfp.E2M1, rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"nearest_even.*'up'"):
        check_rounding("up", None)


# --- starts and decode


@pytest.mark.parametrize("element", ELEMENTS, ids=name_of)
@pytest.mark.parametrize("rounding", DETERMINISTIC)
def test_a_code_begins_at_its_start_and_not_an_ulp_before(element, rounding):
    for code, start in enumerate(starts(element, rounding).tolist()):
        assert oracle.encode(element.name, Fraction(start), rounding) == code + 1
        assert oracle.encode(element.name, Fraction(math.nextafter(start, 0)), rounding) == code
    assert np.array_equal(starts(element, "stochastic"), starts(element, "toward_zero"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("element", ELEMENTS, ids=name_of)
def test_every_code_decodes_to_its_value_rounded_once(element, dtype):
    codes = np.arange(element.code_count, dtype=np.uint8)
    expected = [
        oracle.round_to(
            oracle.element(element.name, c), dtype, negative_zero=oracle.negative(element.name, c)
        )
        for c in codes.tolist()
    ]
    same_bits(mxfp.decode(codes, element, dtype=dtype), from_bits(expected, dtype))


def test_decode_refuses_codes_and_dtypes_that_do_not_exist():
    with pytest.raises(ValueError, match=r"E2M1 codes are 0 … 15, got 16 at index \(1,\)"):
        mxfp.decode([0, 16], mxfp.E2M1)
    with pytest.raises(TypeError, match="float64"):
        mxfp.decode([0.0], mxfp.E2M1)
    with pytest.raises(TypeError, match="int32"):
        mxfp.decode([0], mxfp.E2M1, dtype="int32")


# --- every float32


@pytest.mark.slow
@pytest.mark.skipif(not JIT, reason="4,294,967,296 patterns need the compiler")
def test_every_float32_pattern_has_its_e2m1_code():
    """All 2**32 patterns through the kernel's encoder, against midpoints written here by hand."""
    import numba

    from mxfp.kernels.encode import count_starts

    table_of_starts = starts(mxfp.E2M1, "nearest_even")
    negated = mxfp.E2M1.negated

    @numba.njit
    def by_hand(x):
        m = abs(x)
        code = 7
        if m <= 0.25:
            code = 0
        elif m < 0.75:
            code = 1
        elif m <= 1.25:
            code = 2
        elif m < 1.75:
            code = 3
        elif m <= 2.5:
            code = 4
        elif m < 3.5:
            code = 5
        elif m <= 5.0:
            code = 6
        return code

    @numba.njit(parallel=True, nogil=True)
    def differing(first, count, starts, negated):
        wrong = 0
        seen = 0
        for i in numba.prange(count):
            pattern = np.uint32(first + i)
            x = pattern.view(np.float32)
            if x == x:
                seen += 1
                code = count_starts(abs(np.float64(x)), starts)
                minus = pattern >> np.uint32(31) != 0
                if minus:
                    code = negated[code]
                expected = by_hand(x) + (8 if minus else 0)
                if code != expected:
                    wrong += 1
        return wrong, seen

    chunk, seen = 1 << 28, 0
    for first in range(0, 1 << 32, chunk):
        wrong, some = differing(first, chunk, table_of_starts, negated)
        assert wrong == 0
        seen += some
    assert seen == 2**32 - 2 * (2**23 - 1)
    assert encode_scaled(np.array([5.0]), mxfp.E2M1, "nearest_even").tolist() == [6]
