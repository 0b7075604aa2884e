# SPDX-License-Identifier: Apache-2.0
"""The kernels of NVFP4, whose scales have mantissa bits, against the reference and the oracle."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mxfp
from mxfp import scale
from mxfp.blocks import largest_magnitude
from mxfp.encode import starts
from mxfp.files.sqnr import sqnr
from mxfp.floats import divide_to_odd
from mxfp.formats import Specials
from mxfp.kernels import arrays, blocks, scaled_blocks, scaled_drawn, scaled_tables
from support import (
    DETERMINISTIC,
    DTYPES,
    INTEGERS,
    ROUNDINGS,
    as_floats,
    bits,
    check_quantize,
    from_bits,
    hard_array,
    name_of,
    random_blocks,
    same_bits,
    same_blocks,
    size,
    with_specials,
)

RULES = mxfp.NVFP4.scale_rules
TENSOR_SCALES = [1.0, float(np.float32(0.1)), float(np.float32(1234.567)), 2.0**-149, 2.0**128 - 2.0**104]
INFINITY = {name: int(bits(np.array(np.inf, dtype))) for name, dtype in DTYPES.items()}


def agree(x, fmt=mxfp.NVFP4, *, seed=None, **options):
    """Quantize on both engines: the same codes, scales and tensor scale; the reference's is returned."""
    found, expected = (
        mxfp.quantize(
            x, fmt, engine=engine, rng=None if seed is None else np.random.default_rng(seed), **options
        )
        for engine in ("numba", "reference")
    )
    same_blocks(found, expected.codes, expected.scales)
    assert found.tensor_scale == expected.tensor_scale
    return expected


def agree_back(q):
    """Dequantize on both engines, to every dtype."""
    for dtype in DTYPES:
        same_bits(mxfp.dequantize(q, dtype=dtype), mxfp.dequantize(q, dtype=dtype, engine="reference"))


def beside(values, dtype):
    """The float next below each positive number, or that number, and the two after it; all finite."""
    with np.errstate(over="ignore", under="ignore"):
        near = bits(np.asarray(values).astype(DTYPES[dtype])).astype(np.int64)
    patterns = np.clip(near[..., None] + np.arange(-1, 2), 0, INFINITY[dtype] - 1)
    return from_bits(patterns.ravel(), dtype).reshape(*patterns.shape)


def test_both_kinds_of_scales_have_kernels_of_their_own():
    assert scaled_tables.supports(mxfp.NVFP4)
    assert not blocks.supports(mxfp.NVFP4)
    assert not scaled_tables.supports(mxfp.MXFP4)


# --- tables


@given(st.floats(0, allow_infinity=False), st.sampled_from(["float16", "bfloat16", "float32", "float64"]))
def test_the_last_pattern_below_a_number_is_the_last_one(start, dtype):
    last = int(scaled_tables.last_patterns(np.array([max(start, 5e-324)]), DTYPES[dtype])[0])
    below, above = (from_bits([pattern], dtype).astype(np.float64)[0] for pattern in (last, last + 1))
    assert below < max(start, 5e-324) <= above
    assert last < INFINITY[dtype]


@pytest.mark.parametrize("t", TENSOR_SCALES)
@pytest.mark.parametrize("rule", RULES)
def test_scale_codes_change_at_their_starts_and_nowhere_else(rule, t):
    found = scaled_tables.scale_starts(mxfp.NVFP4, rule, t)
    assert found.size == 126
    for asked, expected in ((found, np.arange(1, 127)), (np.nextafter(found, 0), np.arange(126))):
        codes = scale.significand_codes(asked, mxfp.E2M1, mxfp.UE4M3, rule, t)
        assert codes.tolist() == expected.tolist()


@given(
    st.floats(0, allow_infinity=False), st.integers(1, 2**24 - 1), st.integers(1, 15), st.integers(-149, 110)
)
def test_quotients_are_rounded_to_odd(x, t, s, exponent):
    divisor = float(np.ldexp(float(t * s), exponent))
    with np.errstate(all="ignore"):
        found = scaled_drawn.divide_to_odd(np.float64(x), np.float64(divisor))
    expected = divide_to_odd(np.array(x), np.array(divisor))
    if 2.0**-900 < expected < np.inf:  # further down nothing is left of it that a code could tell
        assert found == expected
    else:
        assert (found < 2.0**-800) == (expected < 2.0**-800)


# --- where codes change


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rule", RULES)
def test_the_largest_of_a_block_on_and_beside_every_start_of_a_scale(rule, dtype):
    for t in TENSOR_SCALES[:: size(1, 2)]:
        exact = scaled_tables.scale_starts(mxfp.NVFP4, rule, t)[:: size(1, 9)]
        x = beside(exact, dtype).reshape(-1, 1)
        agree(x, scale_rule=rule, tensor_scale=t)
        agree(x.T, axis=0, scale_rule=rule, tensor_scale=t)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rounding", DETERMINISTIC)
def test_elements_on_and_beside_every_start_under_every_scale(rounding, dtype):
    """The scale is chosen by a last element that is six times it."""
    table = starts(mxfp.E2M1, rounding)
    scales = mxfp.UE4M3.values[1 : 127 : size(1, 14)]
    for t in TENSOR_SCALES[: size(3, 2)]:
        exact = np.nextafter(table, 0) * (scales * t)[:, None]
        near = beside(exact, dtype)
        x = np.zeros((near.shape[0], 32), DTYPES[dtype])
        x[:, :15], x[:, 16:31] = near[:, :5].reshape(-1, 15), near[:, 2:].reshape(-1, 15)
        with np.errstate(over="ignore"):
            top = (6 * scales * t).astype(DTYPES[dtype])
        x[:, 15], x[:, 31] = top, -top
        for y in (x, -x):
            agree(y[np.isfinite(top)], rounding=rounding, tensor_scale=t)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_pattern_of_16_bits_as_a_member_of_a_block(dtype):
    x = from_bits(np.arange(0, 1 << 16, size(1, 41)), dtype)
    for t, rounding in zip((0.25, *TENSOR_SCALES[1:]), itertools.cycle(ROUNDINGS), strict=False):
        for nonfinite in ("nan", "saturate"):
            seed = 1 if rounding == "stochastic" else None
            agree(x, rounding=rounding, nonfinite=nonfinite, tensor_scale=t, seed=seed)
            shuffled = np.random.default_rng(2).permutation(x)
            agree(shuffled, rounding=rounding, nonfinite=nonfinite, tensor_scale=t, seed=seed)


@given(
    st.lists(st.floats(width=64), min_size=1, max_size=40),
    st.sampled_from(RULES),
    st.sampled_from(ROUNDINGS),
    st.sampled_from(["nan", "saturate"]),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from([None, *TENSOR_SCALES]),
)
def test_any_floats(values, rule, rounding, nonfinite, dtype, t):
    with np.errstate(over="ignore"):
        x = np.array(values).astype(dtype)
    seed = 1 if rounding == "stochastic" else None
    agree_back(agree(x, scale_rule=rule, rounding=rounding, nonfinite=nonfinite, tensor_scale=t, seed=seed))


@pytest.mark.parametrize("dtype", DTYPES)
def test_hard_arrays_against_the_oracle(dtype):
    x = with_specials(hard_array(dtype, mxfp.E2M1, (size(18, 6), 33), seed=4, block=16), seed=2, share=0.01)
    for rule, nonfinite in itertools.product(RULES, ("nan", "saturate")):
        check_quantize(x, mxfp.NVFP4, scale_rule=rule, nonfinite=nonfinite)


# --- what is not finite


def test_a_block_of_nothing_but_infinities_and_zeros_has_the_smallest_scale():
    for dtype, zeros in itertools.product(DTYPES, (0, 5)):
        x = np.zeros((2, 20), DTYPES[dtype])
        x[:, zeros:] = np.inf
        x[0, 3::2] *= -1
        x[np.isnan(x)] = -0.0
        for axis, rounding in itertools.product((0, 1), ("nearest_even", "stochastic")):
            seed = 1 if rounding == "stochastic" else None
            q = agree(x, axis=axis, nonfinite="saturate", rounding=rounding, tensor_scale=1.0, seed=seed)
            assert set(q.scales.ravel().tolist()) <= {0, 1}
            assert {7, 15} <= set(q.codes.ravel().tolist())


@pytest.mark.parametrize("nonfinite", ["nan", "saturate"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_kind_of_nan_makes_its_block_nan(dtype, nonfinite):
    first = INFINITY[dtype]
    sign = 1 << 8 * DTYPES[dtype].itemsize - 1
    for pattern in (first + 1, sign - 1, sign | first + 1, 2 * sign - 1):
        x = np.ones((2, 40), DTYPES[dtype])
        x[0, 17] = from_bits([pattern], dtype)[0]
        bits(x)[0, 17] = pattern
        x[1, ::2] = -np.inf if nonfinite == "saturate" else -2
        for axis in (0, 1):
            q = agree(x, axis=axis, nonfinite=nonfinite, tensor_scale=0.125)
            assert np.count_nonzero(q.scales == 127) == 1
            assert not q.codes[0, 17]


# --- shapes and memory


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((1,), 0),
        ((15,), 0),
        ((17, 3), 0),
        ((3, 17), 1),
        ((2, 34, 3), 1),
        ((0, 16), 1),
        ((16, 0), 0),
        ((1, 1, 1), 2),
        ((size(33, 17), arrays.STRIP + 1), 0),
        ((size(20, 2), 2 * arrays.STRIP), 0),
        ((size(3, 1), 16 * arrays.TOGETHER + 5), 1),
        ((size(70, 3), 16), 1),
    ],
    ids=str,
)
def test_odd_shapes(shape, axis):
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    for dtype in DTYPES:
        y = with_specials(x.astype(DTYPES[dtype]), seed=2, share=0.01)
        agree_back(agree(y, axis=axis, nonfinite="saturate"))
        agree_back(agree(y, axis=axis, rounding="stochastic", seed=3))


def layouts(x):
    """The same numbers in other memory."""
    apart = np.zeros((2 * x.shape[0], 3 * x.shape[1]), x.dtype)
    apart[::2, ::3] = x
    odd = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    odd[...] = x
    return {
        "Fortran": np.asfortranarray(x),
        "strided": apart[::2, ::3],
        "reversed": x[::-1, ::-1].copy()[::-1, ::-1],
        "unaligned": odd,
        "big-endian": x.astype(x.dtype.newbyteorder(">")),
    }


@pytest.mark.parametrize("dtype", [*DTYPES, *INTEGERS])
def test_the_memory_that_x_lies_in_changes_nothing(monkeypatch, dtype):
    monkeypatch.setattr(arrays, "TILE", 64)
    x = (np.random.default_rng(7).standard_normal((5, 35)) * 20).astype(DTYPES.get(dtype, dtype))
    for axis, rounding in itertools.product((0, 1), ("nearest_even", "stochastic")):
        seed = 4 if rounding == "stochastic" else None
        expected = agree(x, axis=axis, rounding=rounding, seed=seed)
        for name, other in layouts(x).items():
            found = agree(other, axis=axis, rounding=rounding, seed=seed)
            assert found == expected, (name, axis)
            if dtype in DTYPES:
                out = layouts(np.zeros(x.shape, x.dtype))[name]
                mxfp.dequantize(found, out=out)
                same_bits(out.astype(x.dtype), mxfp.dequantize(expected, dtype=x.dtype, engine="reference"))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_of_every_size(dtype):
    info = np.iinfo(dtype)
    rng = np.random.default_rng(1)
    x = rng.integers(info.min, info.max, (size(40, 4), 35), dtype, endpoint=True)
    x = x >> rng.integers(0, info.bits, x.shape).astype(dtype)
    for rounding, axis in itertools.product(DETERMINISTIC, (0, 1)):
        agree(x, rounding=rounding, axis=axis, scale_rule="rceil")
        agree(x, rounding=rounding, axis=axis, tensor_scale=float(np.float32(0.3)))


@pytest.mark.parametrize("axis", [0, 1])
def test_every_code_under_every_scale(axis):
    codes = np.tile(np.arange(16, dtype=np.uint8), (128, 1))
    scales = np.arange(128, dtype=np.uint8)[:, None]
    for t in TENSOR_SCALES:
        q = mxfp.BlockArray(codes, scales, mxfp.NVFP4, -1, t)
        agree_back(q if axis else q.T)


# --- formats of one's own


def custom(name, element, scale, *, block=16, tensor_scale=False):
    return mxfp.BlockFormat(name, element, scale, block, RULES, tensor_scale)


def ends(bias, scale_bias):
    """E2M1 and UE4M3 with other biases."""
    return mxfp.ElementFormat("E2M1'", 2, 1, bias), mxfp.ScaleFormat("UE4M3'", 4, 3, scale_bias, True)


E1M1 = mxfp.ElementFormat("E1M1", 1, 1, 0)
UE5M3 = mxfp.ScaleFormat("UE5M3", 5, 3, 15, True)
OWN = [
    (custom("E2M1 in blocks of 10", mxfp.E2M1, mxfp.UE4M3, block=10), True),
    (custom("E2M1 in blocks of 40", mxfp.E2M1, mxfp.UE4M3, block=40, tensor_scale=True), True),
    (custom("E2M1 of UE5M3", mxfp.E2M1, UE5M3, tensor_scale=True), True),
    (custom("E2M1 of UE2M1", mxfp.E2M1, mxfp.ScaleFormat("UE2M1", 2, 1, 1, True)), True),
    (custom("E1M1", E1M1, mxfp.UE4M3), True),
    (custom("E3M0", mxfp.ElementFormat("E3M0", 3, 0, 3), mxfp.UE4M3, tensor_scale=True), True),
    (custom("E4M3", mxfp.E4M3, mxfp.UE4M3), False),
    (custom("E2M1 with NaN", mxfp.ElementFormat("E2M1N", 2, 1, 1, Specials.NAN_AT_TOP), mxfp.UE4M3), False),
    (custom("scales without zero", mxfp.E2M1, mxfp.ScaleFormat("UE4M3-", 4, 3, 7, False)), False),
    (custom("scales far below one", mxfp.E2M1, mxfp.ScaleFormat("deep", 4, 3, 300, True)), False),
    (custom("scales far above one", mxfp.E2M1, mxfp.ScaleFormat("high", 4, 3, -300, True)), False),
    (custom("small", *ends(64, 62)), True),
    (custom("large", *ends(-60, -48)), True),
    (custom("elements far below one", *ends(200, -100)), False),
    (custom("elements below float32 under large scales", *ends(200, -9)), False),
    (custom("elements beyond float32", *ends(-130, 130)), False),
    (custom("scales below float32 of large elements", *ends(-40, 160)), False),
]


@pytest.mark.parametrize(("fmt", "supported"), OWN, ids=name_of)
def test_formats_of_ones_own_have_the_bits_of_the_reference(fmt, supported):
    assert scaled_blocks.supports(fmt) == supported
    rng = np.random.default_rng(5)
    middle = float(np.median(fmt.scale.values[fmt.scale.finite]))
    x = rng.standard_normal((12, 45)) * fmt.element.max * middle * np.exp2(rng.integers(-4, 4, (12, 1)))
    some = itertools.product(("float32", "float64"), RULES, ROUNDINGS, (0, 1), ("nan", "saturate"))
    for dtype, rule, rounding, axis, nonfinite in itertools.islice(some, 0, None, size(1, 9)):
        with np.errstate(over="ignore", under="ignore"):
            y = x.astype(dtype)
        y[3, 4], y[5, :] = np.inf, 0
        seed = 1 if rounding == "stochastic" else None
        q = agree(y, fmt, axis=axis, scale_rule=rule, rounding=rounding, nonfinite=nonfinite, seed=seed)
        agree_back(q)
        if y.dtype != np.float64:
            found, expected = (sqnr(y, q, engine=engine) for engine in ("numba", "reference"))
            assert (found.elements, found.left_out) == (expected.elements, expected.left_out)
            assert np.isclose(found.signal, expected.signal, rtol=1e-12, atol=0)
            assert np.isclose(found.noise, expected.noise, rtol=1e-12, atol=0)


# --- the largest magnitude


@pytest.mark.parametrize("dtype", [*DTYPES, *INTEGERS])
def test_the_largest_magnitude_is_that_of_the_reference(monkeypatch, dtype):
    monkeypatch.setattr(arrays, "TILE", 64)
    x = (np.random.default_rng(7).standard_normal((7, size(5000, 30))) * 20).astype(DTYPES.get(dtype, dtype))
    cases = [x, x[:0], x[:, ::-3], x.T, *layouts(x).values()]
    if dtype in DTYPES:
        cases += [with_specials(x, seed=3, share=share) for share in (0.002, 1.0)]
        cases.append(as_floats([INFINITY[dtype] + 1, 1], DTYPES[dtype]))
    for case in cases:
        for finite in (True, False):
            found, expected = (
                largest_magnitude(case, finite=finite, engine=engine) for engine in ("numba", "reference")
            )
            assert found == expected or (found != found and expected != expected)


def test_the_largest_magnitude_may_stand_anywhere():
    x = np.zeros(size(3, 1) * (1 << 14) + 5, np.float32)
    for at in (0, 5, (1 << 14) - 1, 1 << 14, x.size - 1):
        x[at] = -3
        assert largest_magnitude(x) == 3
        x[at] = 0


# --- random blocks, many at once


def test_dequantize_and_quantize_again_gives_the_same_blocks():
    """Where a block holds a six, its scale is found again."""
    q = random_blocks(mxfp.NVFP4, (size(64, 6), 80), seed=1, scales=(1, 127))
    codes = q.codes.copy()
    codes[:, ::16] = 7
    q = mxfp.BlockArray(codes, q.scales, mxfp.NVFP4, -1, q.tensor_scale)
    again = mxfp.quantize(q.dequantize(dtype=np.float64), mxfp.NVFP4, tensor_scale=q.tensor_scale)
    same_blocks(again, q.codes, q.scales)
