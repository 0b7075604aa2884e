# SPDX-License-Identifier: Apache-2.0
"""Room 4: quantize and dequantize against the oracle for every format, rule, rounding, policy and layout."""

import copy
import dataclasses
import math
import pickle
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mxfp
import oracle
from mxfp.blocks import ENGINES, blocks_along, check_axis
from support import (
    DETERMINISTIC,
    DTYPES,
    FORMATS,
    INTEGERS,
    MX,
    ROUNDINGS,
    bits,
    check_quantize,
    digits,
    from_bits,
    golden,
    hard_array,
    name_of,
    oracle_dequantize,
    oracle_quantize,
    random_blocks,
    same_bits,
    same_blocks,
    size,
    with_specials,
)

MX_RULES = ("floor", "ceil", "rceil", "even")


# --- quantize against golden cases and the oracle


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rounding", DETERMINISTIC)
@pytest.mark.parametrize("rule", MX_RULES)
def test_every_golden_block(rule, rounding, engine):
    cases = golden("quantize.jsonl")
    text = "".join(case["x_f32_hex"] for case in cases)
    x = from_bits([int(text[i : i + 8], 16) for i in range(0, len(text), 8)], "float32").reshape(-1, 32)
    expected = [case["expected"][f"{rule}/{rounding}"] for case in cases]
    q = mxfp.quantize(x, scale_rule=rule, rounding=rounding, engine=engine)
    same_blocks(
        q,
        np.stack([digits(codes) for _, codes in expected]),
        np.array([[scale] for scale, _ in expected], np.uint8),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_hard_blocks_of_every_format_rounding_and_dtype(fmt, rounding, dtype):
    blocks = 12 if fmt.element.bits < 8 else 6
    x = hard_array(dtype, fmt.element, (blocks, fmt.block), seed=FORMATS.index(fmt), block=fmt.block)
    for rule in fmt.scale_rules:
        if rule != "search":
            seed = 17 if rounding == "stochastic" else None
            check_quantize(x, fmt, scale_rule=rule, rounding=rounding, seed=seed)


@pytest.mark.parametrize("nonfinite", ["nan", "saturate"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_nan_and_infinity_follow_the_named_policy(fmt, dtype, nonfinite):
    x = with_specials(hard_array(dtype, fmt.element, (6, 70), seed=5, block=fmt.block), seed=6)
    assert np.isnan(x).any()
    assert np.isinf(x).any()
    check_quantize(x, fmt, nonfinite=nonfinite)
    check_quantize(x, fmt, nonfinite=nonfinite, rounding="stochastic", seed=1)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("nonfinite", ["nan", "saturate"])
def test_signalling_bfloat16_nans_mark_their_block_in_silence(nonfinite, engine):
    """0x7F81 is a NaN of bfloat16 that a cast signals as invalid; a caller sees no warning."""
    x = from_bits([0x3F80, 0x7F81, 0xFF81, 0x4000], "bfloat16")
    q = mxfp.quantize(x, nonfinite=nonfinite, engine=engine)
    same_blocks(q, np.zeros(4, np.uint8), np.array([255], np.uint8))


@pytest.mark.parametrize("engine", ENGINES)
def test_signalling_float32_nans_mark_their_block_in_silence(engine):
    x = from_bits([0x3F800000, 0x7F800001, 0xFF800001], "float32")
    same_blocks(mxfp.quantize(x, engine=engine), np.zeros(3, np.uint8), np.array([255], np.uint8))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_raise_names_the_first_index_in_the_shape_given(value, dtype, engine):
    x = np.ones((3, 40), DTYPES[dtype])
    x[1, 35] = x[2, 0] = value
    for axis in (0, 1):
        with pytest.raises(ValueError, match=r"\(1, 35\)"):
            mxfp.quantize(x, axis=axis, nonfinite="raise", engine=engine)
    x[1, 35] = x[2, 0] = 1
    assert mxfp.quantize(x, nonfinite="raise", engine=engine) == mxfp.quantize(x)


@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 32, 33, 64, 95])
@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4, mxfp.MXINT8], ids=name_of)
def test_a_last_block_may_be_partial(fmt, length):
    x = np.random.default_rng(length).standard_normal((3, length)).astype(np.float32)
    check_quantize(x, fmt)
    check_quantize(x, fmt, rounding="stochastic", seed=length)
    q = mxfp.quantize(x, fmt)
    assert q.scales.shape == (3, blocks_along(length, fmt.block))


@pytest.mark.parametrize("shape", [(40,), (33, 5), (4, 34, 3), (2, 3, 2, 33)], ids=str)
@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4], ids=name_of)
def test_every_axis(fmt, shape):
    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    for axis in range(-len(shape), len(shape)):
        check_quantize(x, fmt, axis=axis)
        check_quantize(x, fmt, axis=axis, rounding="stochastic", seed=3)
        assert mxfp.quantize(x, fmt, axis=axis) == mxfp.quantize(x, fmt, axis=axis % len(shape))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.MXINT8, mxfp.MXFP8_E5M2, mxfp.NVFP4], ids=name_of)
def test_integers_are_quantized_exactly(fmt, dtype):
    info = np.iinfo(dtype)
    rng = np.random.default_rng(4)
    near = [s * (m << k) + d for k in range(58) for m in (1, 3, 5, 7) for d in (-1, 0, 1) for s in (1, -1)]
    near = [n for n in near if info.min <= n <= info.max]
    x = rng.choice(np.array(near, dtype), 8 * 32)
    x = x[np.argsort(np.abs(x.astype(object)))].reshape(8, 32)
    x[0, 0], x[-1, -1] = info.max, info.min
    for rule in fmt.scale_rules:
        if rule != "search":
            check_quantize(x, fmt, scale_rule=rule)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_an_integer_of_64_bits_is_not_first_rounded_to_float64(dtype):
    # 5 * 2**59 is the midpoint of 2 and 3 at the scale 2**60; one more is above it and rounds to 3.
    x = np.array([1 << 62, 5 << 59, (5 << 59) + 1, (5 << 59) - 1], dtype)
    assert len(set(x.astype(np.float64)[1:].tolist())) == 1
    for engine in ENGINES:
        assert mxfp.quantize(x, engine=engine).codes.tolist() == [6, 4, 5, 4]


def test_a_float64_is_rounded_once_where_float32_would_round_twice():
    for value in (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0):
        for e in (-100, 0, 60):
            for delta in (2.0**-40, -(2.0**-40)):
                x = np.ldexp(np.array([4.0, value * (1 + delta)]), e)
                assert np.float32(x[1]) == np.float32(math.ldexp(value, e))
                check_quantize(x, mxfp.MXFP4)
    x = np.array([6.0 * (1 + 2.0**-40)])
    assert mxfp.quantize(x, scale_rule="rceil").scales.tolist() == [128]
    check_quantize(x, mxfp.MXFP4, scale_rule="rceil")


def test_the_sign_of_zero_and_of_what_rounds_to_zero_is_kept():
    x = np.array([4.0, 0.0, -0.0, -1e-30, 1e-30, -0.2, 0.2])
    for fmt in MX:
        for engine in ENGINES:
            codes = mxfp.quantize(x[:5], fmt, engine=engine).codes
            minus_zero = 0 if fmt is mxfp.MXINT8 else 1 << (fmt.element.bits - 1)
            assert codes[1:].tolist() == [0, minus_zero, minus_zero, 0], fmt
    assert mxfp.quantize(x).codes.tolist() == [6, 0, 8, 8, 0, 8, 0]


@pytest.mark.parametrize("engine", ENGINES)
def test_magnitudes_beyond_every_scale_saturate(engine):
    q = mxfp.quantize([1e308, -1e300, 1.0], engine=engine)
    assert (q.scales.tolist(), q.codes.tolist()) == ([254], [7, 15, 0])
    q = mxfp.quantize([2.0**-149, -(2.0**-140)], engine=engine)
    assert q.scales.tolist() == [0]
    check_quantize(np.array([5e-324, 2.0**-128, -(2.0**-127)]), mxfp.MXFP4)


# --- layouts


def layouts(x: np.ndarray) -> dict[str, np.ndarray]:
    """The same numbers in other memory: each equals `x`."""
    apart = np.empty((2 * x.shape[0], 3 * x.shape[1]), x.dtype)
    apart[::2, ::3] = x
    read_only = x.copy()
    read_only.flags.writeable = False
    odd = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    odd[...] = x
    return {
        "Fortran": np.asfortranarray(x),
        "reversed": x[::-1, ::-1].copy()[::-1, ::-1],
        "strided": apart[::2, ::3],
        "transposed": x.T.copy().T,
        "read-only": read_only,
        "unaligned": odd,
        "big-endian": x.astype(x.dtype.newbyteorder(">")),
    }


@pytest.mark.parametrize("dtype", [*DTYPES, *INTEGERS])
@pytest.mark.parametrize("engine", ENGINES)
def test_memory_layout_and_byte_order_change_nothing(dtype, engine):
    x = (np.random.default_rng(7).standard_normal((9, 50)) * 20).astype(DTYPES.get(dtype, dtype))
    before = x.copy()
    for fmt in (mxfp.MXFP4, mxfp.NVFP4):
        for axis in (0, 1):
            expected = mxfp.quantize(x, fmt, axis=axis, engine="reference")
            for name, other in layouts(x).items():
                found = mxfp.quantize(other, fmt, axis=axis, engine=engine)
                assert found == expected, f"{name} along {axis}"
    same_bits(x, before)


@pytest.mark.parametrize("engine", ENGINES)
def test_broadcast_arrays_are_read_and_not_written(engine):
    row = np.random.default_rng(7).standard_normal(40).astype(np.float32)
    x = np.broadcast_to(row, (5, 40))
    assert mxfp.quantize(x, engine=engine) == mxfp.quantize(x.copy())
    assert mxfp.quantize(x, axis=0, engine=engine) == mxfp.quantize(x.copy(), axis=0)


@pytest.mark.parametrize("shape", [(0,), (0, 32), (3, 0), (2, 0, 5)], ids=str)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4], ids=name_of)
def test_empty_arrays_stay_empty(fmt, engine, shape):
    for axis in range(len(shape)):
        q = mxfp.quantize(np.zeros(shape, np.float32), fmt, axis=axis, engine=engine)
        assert q.shape == shape
        assert q.scales.size == 0
        assert q.dequantize().shape == shape
        assert "BlockArray" in repr(q)


def test_lists_and_subclasses_are_taken_as_arrays():
    expected = mxfp.quantize(np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert mxfp.quantize([[1.0, 2.0], [3.0, 4.0]]) == expected
    assert mxfp.quantize([[1, 2], [3, 4]]) == expected
    assert mxfp.quantize(((1.0, 2.0), (3.0, 4.0))) == expected


@given(
    st.lists(st.floats(width=32), min_size=1, max_size=40),
    st.sampled_from(MX_RULES),
    st.sampled_from(DETERMINISTIC),
    st.sampled_from(["nan", "saturate"]),
)
def test_any_float32_block(values, rule, rounding, nonfinite):
    x = np.array(values, np.float32)
    check_quantize(x, mxfp.MXFP4, scale_rule=rule, rounding=rounding, nonfinite=nonfinite)


@given(st.lists(st.floats(), min_size=1, max_size=20), st.sampled_from(FORMATS))
def test_any_float64_block(values, fmt):
    check_quantize(np.array(values), fmt)


# --- NVFP4


@pytest.mark.parametrize("rule", ["nearest", "rceil"])
@pytest.mark.parametrize("tensor_scale", [None, 1.0, 2.0**-149, 2.0**128 - 2.0**104, float(np.float32(0.1))])
def test_nvfp4_against_the_oracle(rule, tensor_scale):
    for dtype, scale in (("float32", 1.0), ("float64", 1e-30), ("float32", 1e20)):
        x = (np.random.default_rng(3).standard_normal((6, 40)) * scale).astype(dtype)
        x[2] = 0
        x[3, :16] *= 1e-4
        check_quantize(x, mxfp.NVFP4, scale_rule=rule, tensor_scale=tensor_scale)


def test_nvfp4_elements_on_and_beside_midpoints_of_their_scale():
    """s * t has up to 28 bits, so the midpoints are exact in float64 and an ulp decides."""
    rng = np.random.default_rng(12)
    for _ in range(20):
        t = float(np.float32(rng.uniform(0.5, 2)))
        s = float(oracle.ue4m3(int(rng.integers(8, 127))))
        middles = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]) * (s * t)
        x = np.concatenate([middles, np.nextafter(middles, 0), [6 * s * t, -6 * s * t]])
        check_quantize(x, mxfp.NVFP4, tensor_scale=t)
        x = np.concatenate([middles, np.nextafter(middles, np.inf), [6 * s * t, -6 * s * t]])
        check_quantize(x, mxfp.NVFP4, tensor_scale=t)


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.inf, math.nan, 0.1, 1e-60, 1e40])
def test_a_tensor_scale_is_a_positive_finite_float32(wrong):
    with pytest.raises(ValueError, match="positive finite float32"):
        mxfp.quantize([1.0], mxfp.NVFP4, tensor_scale=wrong)


def test_mx_formats_have_no_tensor_scale():
    with pytest.raises(ValueError, match=r"MXFP4 has no tensor scale, got 2\.0"):
        mxfp.quantize([1.0], tensor_scale=2.0)
    assert mxfp.quantize([1.0], tensor_scale=1.0) == mxfp.quantize([1.0])


# --- dequantize


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_every_element_code_under_many_scales(fmt, dtype):
    count = fmt.element.code_count
    if fmt.scale is mxfp.E8M0:
        scales = [0, 1, 2, 3, 20, 100, 111, 112, 120, 126, 127, 128, 140, 150, 200, 251, 252, 253, 254, 255]
    else:
        scales = [0, 1, 7, 8, 9, 63, 100, 126, 127]
    per_row = blocks_along(count, fmt.block)
    codes = np.tile(np.arange(count, dtype=np.uint8), (len(scales), 1))
    t = float(np.float32(2 / 3)) if fmt.tensor_scale else 1.0
    q = mxfp.BlockArray(codes, np.repeat(np.array(scales, np.uint8)[:, None], per_row, 1), fmt, -1, t)
    expected = oracle_dequantize(q, dtype)
    for engine in ENGINES:
        same_bits(mxfp.dequantize(q, dtype=dtype, engine=engine), expected)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_scale_code_decodes_every_e2m1_code_exactly(engine):
    codes = np.tile(np.arange(16, dtype=np.uint8), (256, 1))
    q = mxfp.BlockArray(codes, np.arange(256, dtype=np.uint8)[:, None], mxfp.MXFP4)
    for dtype in DTYPES:
        same_bits(mxfp.dequantize(q, dtype=dtype, engine=engine), oracle_dequantize(q, dtype))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4, mxfp.MXFP8_E5M2], ids=name_of)
def test_dequantize_along_every_axis(fmt, axis):
    q = random_blocks(fmt, (7, 35, 18), seed=1, axis=axis, specials=True, nan_share=0.1)
    expected = oracle_dequantize(q, "float32")
    for engine in ENGINES:
        found = mxfp.dequantize(q, engine=engine)
        same_bits(found, expected)
        assert found.flags.c_contiguous
        assert found.flags.writeable


def test_quantizing_what_was_dequantized_gives_the_same_blocks_back():
    x = np.random.default_rng(5).standard_normal((20, 64)).astype(np.float32)
    for fmt in MX:
        q = mxfp.quantize(x, fmt)
        again = mxfp.quantize(q.dequantize(), fmt)
        same_bits(again.dequantize(), q.dequantize())


@pytest.mark.parametrize("engine", ENGINES)
def test_the_memory_of_dequantize_is_that_of_its_result_and_a_slab(engine):
    rows, length = size(64, 8), size(1 << 16, 1 << 13)
    q = mxfp.BlockArray(
        np.zeros((rows, length), np.uint8), np.zeros((rows, length // 32), np.uint8), mxfp.MXFP4
    )
    mxfp.dequantize(mxfp.quantize([1.0]), engine=engine)
    tracemalloc.start()
    out = mxfp.dequantize(q, engine=engine)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # float64 temporaries of the reference, a few times a slab of 2**18 elements.
    assert peak < out.nbytes + 8 * 8 * (1 << 18)


# --- BlockArray


def blocks(shape=(3, 40), fmt=mxfp.MXFP4, axis=-1):
    return random_blocks(fmt, shape, seed=1, axis=axis)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ([[1] * 128], [[1] * 3], mxfp.MXFP4),
            r"MXFP4: codes \(1, 128\) along axis -1 need scales \(1, 4\), got \(1, 3\)",
        ),
        (([1] * 32, [1, 1], mxfp.MXFP4), r"need scales \(1,\), got \(2,\)"),
        (([1] * 32, [1], mxfp.NVFP4), r"NVFP4.*need scales \(2,\), got \(1,\)"),
        (([16], [1], mxfp.MXFP4), r"MXFP4 codes are 0 … 15, got 16 at index \(0,\)"),
        (([1], [128], mxfp.NVFP4), r"NVFP4 scale codes are 0 … 127, got 128"),
        (([1], [256], mxfp.MXFP4), r"MXFP4 scale codes are 0 … 255, got 256"),
        (([1], [1], mxfp.MXFP4, 1), r"axis 1 is out of range"),
        ((5, 5, mxfp.MXFP4), r"no axis"),
        (([1], [1], mxfp.MXFP4, -1, 2.0), r"no tensor scale"),
        (([1], [1], mxfp.NVFP4, -1, -2.0), r"positive finite float32"),
    ],
)
def test_a_block_array_that_does_not_fit_says_so_with_the_numbers(arguments, message):
    with pytest.raises(ValueError, match=message):
        mxfp.BlockArray(*arguments)


def test_a_block_array_refuses_other_types():
    with pytest.raises(TypeError, match="block format"):
        mxfp.BlockArray([1], [1], mxfp.E2M1)
    with pytest.raises(TypeError, match="float64"):
        mxfp.BlockArray([1.0], [1], mxfp.MXFP4)
    with pytest.raises(TypeError, match="axis must be an integer"):
        mxfp.BlockArray([1], [1], mxfp.MXFP4, 0.0)


def test_equality_is_of_every_bit_and_of_nothing_else():
    q = blocks()
    assert q == mxfp.BlockArray(q.codes.copy(), q.scales.copy(), mxfp.MXFP4, 1, scale_rule="ceil")
    for i in range(q.codes.size):
        codes = q.codes.copy()
        codes.ravel()[i] ^= 8
        assert q != mxfp.BlockArray(codes, q.scales, mxfp.MXFP4)
    for i in range(q.scales.size):
        scales = q.scales.copy()
        scales.ravel()[i] ^= 1
        assert q != mxfp.BlockArray(q.codes, scales, mxfp.MXFP4)
    square = blocks((40, 40))
    assert square != mxfp.BlockArray(square.codes, square.scales.T, mxfp.MXFP4, 0)
    other = mxfp.BlockFormat("other", mxfp.E2M1, mxfp.E8M0, 32, ("floor",))
    assert q != mxfp.BlockArray(q.codes, q.scales, other)
    nv = blocks(fmt=mxfp.NVFP4)
    assert nv != mxfp.BlockArray(nv.codes, nv.scales, mxfp.NVFP4, -1, nv.tensor_scale * 2)
    assert q != 5
    with pytest.raises(TypeError, match="unhashable"):
        hash(q)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2])
def test_the_transpose_takes_its_block_axis_along(axis):
    q = blocks((3, 40, 34), axis=axis)
    assert q.T.shape == (34, 40, 3)
    assert q.T.block_axis == 2 - axis % 3
    same_bits(q.T.dequantize(), q.dequantize().T)
    assert q == q.T.T


@pytest.mark.parametrize(
    ("fmt", "shape", "axis", "expected"),
    [
        (mxfp.MXFP4, (64,), 0, 32 + 2),
        (mxfp.MXFP4, (33,), 0, 17 + 2),
        (mxfp.MXFP4, (3, 33), 1, 3 * 17 + 6),
        (mxfp.MXFP4, (33, 3), 0, 3 * 17 + 6),
        (mxfp.MXFP6_E2M3, (2, 32), 1, 2 * 24 + 2),
        (mxfp.MXFP6_E3M2, (5,), 0, 4 + 1),
        (mxfp.MXFP8_E4M3, (2, 40), 1, 80 + 4),
        (mxfp.NVFP4, (2, 40), 1, 40 + 6 + 4),
        (mxfp.MXFP4, (0,), 0, 0),
    ],
)
def test_nbytes_are_those_of_the_packed_array(fmt, shape, axis, expected):
    assert mxfp.quantize(np.ones(shape), fmt, axis=axis).nbytes == expected


def test_a_block_array_is_frozen_and_read_only():
    codes = np.ones((2, 32), np.uint8)
    q = mxfp.BlockArray(codes, np.ones((2, 1), np.uint8), mxfp.MXFP4)
    for name in ("codes", "scales", "axis", "format"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(q, name, None)
    for array in (q.codes, q.scales):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 2
    assert codes.flags.writeable


def test_asarray_dequantizes():
    q = mxfp.quantize(np.random.default_rng(1).standard_normal((3, 40)))
    same_bits(np.asarray(q), q.dequantize())
    same_bits(np.asarray(q, dtype=np.float64), q.dequantize(dtype=np.float64))
    same_bits(np.array(q), q.dequantize())
    with pytest.raises(ValueError, match="copy"):
        np.array(q, copy=False)
    with pytest.raises(TypeError, match="int8"):
        np.asarray(q, dtype=np.int8)


def test_a_repr_shows_what_a_person_wants_to_know():
    text = repr(mxfp.quantize(np.ones((2, 64)), scale_rule="ceil"))
    for part in ("MXFP4", "(2, 64)", "4 blocks of 32", "rule ceil", "68 bytes", "7d", "666", "…"):
        assert part in text, part
    assert "tensor scale" in repr(mxfp.quantize([1.0], mxfp.NVFP4))
    assert "nan" in repr(mxfp.quantize([math.nan, 1.0]))
    assert "\n  codes  40 40\n" in repr(mxfp.quantize([1.0, 1.0], mxfp.MXINT8))


# --- choices that do not exist


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rounding": "up"}, ValueError, "'nearest_even'.*'up'"),
        ({"nonfinite": "zero"}, ValueError, "'nan', 'saturate', 'raise', got 'zero'"),
        ({"engine": "cuda"}, ValueError, "'numba', 'reference', got 'cuda'"),
        ({"axis": 2}, ValueError, "axis 2 is out of range for x of 2 dimensions"),
        ({"axis": -3}, ValueError, "axis -3 is out of range"),
        ({"axis": 1.0}, TypeError, "axis must be an integer, got 1.0"),
        ({"axis": True}, TypeError, "axis must be an integer"),
        ({"fmt": mxfp.E2M1}, TypeError, "block format"),
        ({"fmt": "MXFP4"}, TypeError, "block format"),
        ({"rounding": "stochastic"}, TypeError, "rng="),
        ({"rng": np.random.default_rng(0)}, TypeError, "stochastic rounding only"),
    ],
)
def test_choices_that_do_not_exist_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        mxfp.quantize(np.ones((2, 3)), **options)


@pytest.mark.parametrize("dtype", [np.bool_, np.complex64, object, "U1", "M8[s]"], ids=str)
def test_dtypes_that_are_not_reals_are_refused(dtype):
    with pytest.raises(TypeError, match="got dtype"):
        mxfp.quantize(np.zeros(3, dtype))


def test_a_scalar_has_no_axis():
    with pytest.raises(ValueError, match="at least one dimension"):
        mxfp.quantize(1.0)
    with pytest.raises(ValueError, match="at least one dimension"):
        check_axis(0, 0)
    with pytest.raises(TypeError, match="ndarray"):
        mxfp.dequantize(np.ones(3))
    with pytest.raises(TypeError, match="int8"):
        mxfp.dequantize(mxfp.quantize([1.0]), dtype=np.int8)


def test_oracle_quantize_counts_draws_in_the_arrays_own_order():
    """The helper itself: along axis 0 element (k, n) uses draw k * N + n."""
    x = np.full((2, 3), 1.25)
    codes, scales, _ = oracle_quantize(x, mxfp.MXFP4, axis=0, rounding="stochastic", seed=2)
    key = int(np.random.default_rng(2).integers(0, 2**64, dtype=np.uint64))
    divisor = Fraction(2) ** (int(scales[0, 0]) - 127)
    expected = [
        oracle.encode("E2M1", Fraction(5, 4) / divisor, "stochastic", u=oracle.splitmix64_draw(key, i))
        for i in range(6)
    ]
    assert codes.ravel().tolist() == expected
    assert bits(x).shape == x.shape


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda q: pickle.loads(pickle.dumps(q))])
@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_a_copy_is_equal_frozen_and_keeps_its_rule(fmt, again):
    q = mxfp.quantize(np.linspace(-3, 5, 40).reshape(2, 20), fmt, axis=0)
    found = again(q)
    assert found == q
    assert (found.scale_rule, found.axis) == (q.scale_rule, q.axis)
    assert not found.codes.flags.writeable
    assert not found.scales.flags.writeable


def test_nobody_can_write_to_what_a_block_array_holds():
    memory = bytearray(32)
    views = [np.zeros(32, np.uint8), np.frombuffer(memoryview(memory).toreadonly(), np.uint8)]
    views.append(views[0][::-1])
    for codes in views:
        q = mxfp.BlockArray(codes, np.array([127], np.uint8), mxfp.MXFP4)
        memory[0] = 200
        views[0][:] = 200
        assert not q.codes.any()
        memory[0] = 0
        views[0][:] = 0
