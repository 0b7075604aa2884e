# SPDX-License-Identifier: Apache-2.0
"""Side room off 1: exact on the way in, rounded once on the way out, and never flushed to zero."""

import ctypes
import math
import mmap
import platform
import struct
import sys
import threading
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mxfp
import oracle
from mxfp import floats
from mxfp.floats import (
    add_to_odd,
    canonical_nan,
    check_subnormals,
    divide_to_odd,
    float_dtype,
    real_array,
    round_float64,
    round_integers,
    to_float64,
)
from support import DTYPES, bits, from_bits, same_bits

NARROW = ("float16", "bfloat16", "float32")


def odd(x: Fraction) -> int:
    """The float64 pattern of x rounded to odd: truncated, the last bit set if anything was cut off."""
    pattern = oracle.pattern_below(abs(x), "float64")
    if pattern == oracle.infinity_bits("float64"):
        raise OverflowError
    pattern |= oracle.magnitude_of(pattern, "float64") != abs(x)
    return pattern | (oracle.sign_bit("float64") if x < 0 else 0)


def as_float64(pattern: int) -> float:
    return struct.unpack("<d", struct.pack("<Q", pattern))[0]


# --- dtypes at the door


@pytest.mark.parametrize("name", DTYPES)
def test_each_float_dtype_is_known_by_name_type_and_byte_order(name):
    dtype = DTYPES[name]
    assert float_dtype(name) == dtype
    assert float_dtype(dtype) == dtype
    assert float_dtype(dtype.type) == dtype
    assert float_dtype(dtype.newbyteorder(">")) == dtype


@pytest.mark.parametrize(
    "wrong", [None, "float8", np.int8, "int64", bool, complex, object, "nonsense", 5], ids=str
)
def test_other_dtypes_are_refused_by_name(wrong):
    with pytest.raises(TypeError, match=r"float16, bfloat16, float32 or float64, got .*"):
        float_dtype(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros(2, np.bool_),
        np.zeros(2, complex),
        np.zeros(2, object),
        np.zeros(2, ml_dtypes.float8_e4m3fn),
        np.zeros(2, ml_dtypes.float4_e2m1fn),
        np.zeros(2, "U3"),
        np.zeros(2, "m8[s]"),
        np.zeros(2, [("x", np.float32)]),
        [2**64],
        [None],
    ],
    ids=lambda x: str(np.asarray(x).dtype),
)
def test_arrays_of_other_dtypes_are_refused_by_name(wrong):
    name = str(np.asarray(wrong).dtype)
    with pytest.raises(TypeError) as caught:
        real_array(wrong)
    assert name in str(caught.value)


def test_masked_arrays_are_refused():
    with pytest.raises(TypeError, match="masked"):
        real_array(np.ma.masked_array([1.0, 2.0], [0, 1]))


def test_long_double_is_refused_where_it_is_longer():
    if np.dtype(np.longdouble).itemsize > 8:
        with pytest.raises(TypeError, match=r"longdouble|float128|float96"):
            real_array(np.zeros(2, np.longdouble))


# --- on the way in


@pytest.mark.parametrize("name", DTYPES)
def test_every_kind_of_float_becomes_float64_exactly(name):
    infinity = oracle.infinity_bits(name)
    step = max(infinity // 4001, 1)
    x = from_bits(list(range(0, infinity, step)), name)
    expected = [float(oracle.magnitude_of(p, name)) for p in range(0, infinity, step)]
    same_bits(to_float64(x), np.array(expected))
    same_bits(to_float64(-x), -np.array(expected))
    same_bits(to_float64(x.astype(x.dtype.newbyteorder(">"))), np.array(expected))


@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_integers_are_exact_up_to_53_bits_and_rounded_to_odd_beyond(name, order):
    info = np.iinfo(name)
    near = {s * 2**k + d for k in range(65) for d in range(-3, 4) for s in (1, -1)}
    near |= {info.min, info.max, 3**40, -(3**39), 2**63 - 512, 2**63 - 513, 2**53 + 1}
    given_values = sorted(n for n in near if info.min <= n <= info.max)
    found = to_float64(np.array(given_values, np.dtype(name).newbyteorder(order)))
    assert found.dtype == np.float64
    assert bits(found).tolist() == [odd(Fraction(n)) for n in given_values]


# --- rounding to odd

finite64 = st.floats(allow_nan=False, allow_infinity=False, width=64)
moderate = st.floats(min_value=-(2.0**300), max_value=2.0**300, allow_nan=False).filter(
    lambda x: x == 0 or abs(x) > 2.0**-300
)


@given(moderate, moderate)
def test_a_sum_is_rounded_to_odd(a, b):
    total = Fraction(a) + Fraction(b)
    if total:
        assert bits(add_to_odd(np.array(a), np.array(b)))[()] == odd(total)
    else:
        assert float(add_to_odd(np.array(a), np.array(b))) == 0


@given(st.floats(1, 2), st.integers(-120, 120), st.sampled_from([-1, 1]), st.integers(0, 7))
def test_a_sum_with_a_far_smaller_term_is_rounded_to_odd(a, exponent, sign, tail):
    b = sign * math.ldexp(1.0 + tail / 8, exponent)
    assert bits(add_to_odd(np.array(a), np.array(b)))[()] == odd(Fraction(a) + Fraction(b))


def test_sums_with_infinities_are_ieee():
    inf = np.array([math.inf, -math.inf, math.inf, math.inf, 1.0])
    other = np.array([1.0, 1e308, math.inf, -math.inf, -math.inf])
    found = add_to_odd(inf, other)
    assert found[:3].tolist() == [math.inf, -math.inf, math.inf]
    assert math.isnan(found[3])
    assert found[4] == -math.inf


def test_the_signs_of_zero_sums_are_ieee():
    found = add_to_odd(np.array([0.0, -0.0, -0.0, 1.0]), np.array([0.0, -0.0, 0.0, -1.0]))
    assert np.signbit(found).tolist() == [False, True, False, False]


@given(moderate, st.integers(1, 2**28 - 1), st.integers(-160, 100))
def test_a_quotient_is_rounded_to_odd(x, significand, exponent):
    divisor = math.ldexp(significand, exponent)
    found = divide_to_odd(np.array([x]), np.array([divisor]))
    assert bits(found)[0] == odd(Fraction(x) / Fraction(divisor)) if x else found[0] == 0


@given(st.integers(1, 2**24 - 1), st.integers(1, 2**28 - 1), st.integers(-3, 3))
def test_a_quotient_that_is_exact_or_an_ulp_beside_it_is_rounded_to_odd(quotient, divisor, ulps):
    x = as_float64(bits(np.array(float(quotient * divisor)))[()].item() + ulps)
    found = divide_to_odd(np.array([x, -x]), np.array([float(divisor)]))
    assert bits(found).tolist() == [odd(Fraction(x) / divisor), odd(-Fraction(x) / divisor)]


# --- on the way out


def neighbours(dtype: str, patterns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Magnitudes of patterns and of the next ones, as float64; infinity stands for 2**(emax + 1)."""
    kind = f"u{DTYPES[dtype].itemsize}"
    low = patterns.astype(kind).view(DTYPES[dtype]).astype(np.float64)
    high = (patterns + 1).astype(kind).view(DTYPES[dtype]).astype(np.float64)
    top = float(oracle.magnitude_of(oracle.infinity_bits(dtype), dtype))
    return low, np.where(np.isinf(high), top, high)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("sign", [1, -1])
def test_midpoints_go_to_the_even_pattern_and_one_ulp_decides(dtype, sign):
    infinity = oracle.infinity_bits(dtype)
    every = (
        np.arange(infinity) if infinity < 1 << 16 else np.random.default_rng(1).integers(0, infinity, 40_000)
    )
    edges = [
        0,
        1,
        2,
        *range((1 << oracle.FLOATS[dtype][1]) - 3, (1 << oracle.FLOATS[dtype][1]) + 3),
        infinity - 1,
    ]
    patterns = np.unique(np.append(every, edges))
    low, high = neighbours(dtype, patterns)
    midpoint = (low + high) / 2
    flip = 0 if sign > 0 else oracle.sign_bit(dtype)
    for x, expected in (
        (low, patterns),
        (np.nextafter(midpoint, -1), patterns),
        (midpoint, patterns + (patterns & 1)),
        (np.nextafter(midpoint, np.inf), patterns + 1),
        (high, patterns + 1),
    ):
        assert np.array_equal(bits(round_float64(sign * x, DTYPES[dtype])), expected + flip)


@pytest.mark.parametrize("dtype", DTYPES)
@given(finite64)
def test_a_float64_is_rounded_as_the_oracle_rounds(dtype, x):
    found = round_float64(np.array([x]), DTYPES[dtype])
    assert found.dtype == DTYPES[dtype]
    assert bits(found)[0] == oracle.round_to(Fraction(x), dtype, negative_zero=math.copysign(1, x) < 0)


@pytest.mark.parametrize("dtype", NARROW)
@given(st.integers(0, 2**16), st.integers(-8, 8), st.booleans())
def test_a_value_rounded_to_odd_rounds_as_the_exact_value(dtype, place, tail, minus):
    """Exact values a 2**-200 beside a midpoint, which float64 can only hold rounded to odd."""
    pattern = place * (oracle.infinity_bits(dtype) - 1) // 2**16
    middle = (oracle.magnitude_of(pattern, dtype) + oracle.magnitude_of(pattern + 1, dtype)) / 2
    exact = (middle + tail * oracle.power(-200)) * (-1 if minus else 1)
    found = round_float64(np.array([as_float64(odd(exact))]), DTYPES[dtype])
    assert bits(found)[0] == oracle.round_to(exact, dtype, negative_zero=minus)


@pytest.mark.parametrize("dtype", DTYPES)
def test_specials_come_out_canonical(dtype):
    payloads = np.array([0x7FF0000000000001, 0xFFF8000000000000, 0x7FFFFFFFFFFFFFFF], np.uint64).view(
        np.float64
    )
    assert set(bits(round_float64(payloads, DTYPES[dtype])).tolist()) == {oracle.NAN_BITS[dtype]}
    found = round_float64(np.array([math.inf, -math.inf, 0.0, -0.0]), DTYPES[dtype])
    sign, infinity = oracle.sign_bit(dtype), oracle.infinity_bits(dtype)
    assert bits(found).tolist() == [infinity, infinity | sign, 0, sign]


def test_canonical_nan_leaves_its_argument_and_the_rest_alone():
    x = np.array([1.0, 2.0], np.float32)
    found = canonical_nan(x, np.array([False, True]))
    assert x.tolist() == [1.0, 2.0]
    assert bits(found).tolist() == [0x3F800000, 0x7FC00000]
    assert canonical_nan(x, np.array([False, False])) is x


@pytest.mark.parametrize("dtype", DTYPES)
@given(st.integers(-(2**80), 2**80), st.integers(-320, 320))
def test_integers_of_any_size_are_rounded_once(dtype, integer, exponent):
    expected = oracle.round_to(integer * oracle.power(exponent), dtype)
    found = round_integers(np.array([integer], object), exponent, DTYPES[dtype])
    assert bits(found).tolist() == [expected]
    if abs(integer) < 2**62:
        assert bits(round_integers(np.array([integer]), np.array([exponent]), DTYPES[dtype])).tolist() == [
            expected
        ]


@pytest.mark.parametrize("dtype", DTYPES)
def test_wide_integers_beside_midpoints_are_rounded_once(dtype):
    mantissa = oracle.FLOATS[dtype][1]
    for length in (61, 62, 70, 300):
        for even in (0, 1):
            lead = (1 << mantissa) + even
            middle = (2 * lead + 1) << (length - mantissa - 2)
            values = [middle - 1, middle, middle + 1, -middle, -middle - 1]
            expected = [oracle.round_to(n * oracle.power(-length), dtype) for n in values]
            kind = np.int64 if length < 63 else object
            assert bits(round_integers(np.array(values, kind), -length, DTYPES[dtype])).tolist() == expected


# --- flush to zero


def test_a_thread_that_keeps_subnormals_passes():
    check_subnormals()


@pytest.mark.parametrize(
    ("canary", "value"),
    [("_SMALLEST_NORMAL", np.zeros(1, np.float32)), ("_SMALLEST_SCALE", np.zeros(1))],
)
@pytest.mark.parametrize(
    "call",
    [
        lambda: mxfp.quantize([1.0]),
        lambda: mxfp.dequantize(mxfp.BlockArray([1], [0], mxfp.MXFP4)),
        lambda: mxfp.decode([1], mxfp.E2M1),
        lambda: mxfp.matmul(mxfp.BlockArray([1], [0], mxfp.MXFP4), mxfp.BlockArray([1], [0], mxfp.MXFP4)),
    ],
    ids=["quantize", "dequantize", "decode", "matmul"],
)
def test_a_flushed_canary_is_an_error_at_every_door(monkeypatch, canary, value, call):
    monkeypatch.setattr(floats, canary, value)
    with pytest.raises(FloatingPointError, match="flushes subnormal numbers"):
        call()


@pytest.mark.skipif(
    not (sys.platform == "linux" and platform.machine() == "x86_64"), reason="sets the MXCSR of x86-64"
)
@pytest.mark.parametrize("flag", [0x8000, 0x0040, 0x8040], ids=["FTZ", "DAZ", "both"])
def test_a_thread_that_flushes_is_told_so_and_others_are_not(flag):
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(bytes.fromhex("0fae1fc3" + "0fae17c3"))  # stmxcsr [rdi]; ret   ldmxcsr [rdi]; ret
    start = ctypes.addressof(ctypes.c_char.from_buffer(page))
    register = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_uint32))
    read, write = register(start), register(start + 4)
    raised = []

    def flushing() -> None:
        state = ctypes.c_uint32()
        read(state)
        write(ctypes.c_uint32(state.value | flag))
        try:
            mxfp.quantize([2.0**-126], engine="reference")
        except FloatingPointError as error:
            raised.append(str(error))
        finally:
            write(state)

    thread = threading.Thread(target=flushing)
    thread.start()
    thread.join()
    assert len(raised) == 1
    assert "FTZ/DAZ" in raised[0]
    check_subnormals()
