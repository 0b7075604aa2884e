# SPDX-License-Identifier: Apache-2.0
"""The kernels of quantize and dequantize against the reference: layouts, edges, `out=` and memory."""

import itertools
import tracemalloc

import ml_dtypes
import numpy as np
import pytest

import mxfp
from mxfp.blocks import blocks_along, element_index, tiles
from mxfp.encode import encode_scaled, starts
from mxfp.formats import Specials
from mxfp.kernels import arrays
from mxfp.kernels import blocks as kernels
from mxfp.kernels.encode import encoding, nearest_code
from support import (
    DETERMINISTIC,
    DTYPES,
    ELEMENTS,
    INTEGERS,
    MX,
    bits,
    from_bits,
    hard_array,
    name_of,
    random_blocks,
    same_bits,
    same_blocks,
    size,
    with_specials,
)

RULES = ("floor", "ceil", "rceil", "even")


def agree(x, fmt=mxfp.MXFP4, **options):
    """Quantize on both engines: the same codes and scales; the reference's is returned."""
    found, expected = (mxfp.quantize(x, fmt, engine=engine, **options) for engine in ("numba", "reference"))
    same_blocks(found, expected.codes, expected.scales)
    assert found.axis == expected.axis
    assert found.scale_rule == expected.scale_rule
    return expected


def agree_back(q):
    """Dequantize on both engines, to every dtype."""
    for dtype in DTYPES:
        same_bits(mxfp.dequantize(q, dtype=dtype), mxfp.dequantize(q, dtype=dtype, engine="reference"))


# --- the code of one magnitude


@pytest.mark.parametrize("rounding", DETERMINISTIC)
@pytest.mark.parametrize("element", ELEMENTS, ids=name_of)
def test_codes_change_at_the_starts_and_nowhere_else(element, rounding):
    table = starts(element, rounding)
    form = encoding(element, table)
    first = np.float32(table)
    first = np.where(first < table, np.nextafter(first, np.float32(np.inf)), first).view(np.int32)
    for n, pattern in enumerate(first.tolist()):
        found = [int(nearest_code(np.int32(pattern + step), form)) for step in (-1, 0)]
        assert found == [n, n + 1], (element, rounding, n)
    for pattern in (0, 1, 0x7FFFFF, 0x800000):
        assert int(nearest_code(np.int32(pattern), form)) == 0
    for pattern in (0x7F7FFFFF, 0x7F800000, 0x7FFFFFFF):
        assert int(nearest_code(np.int32(pattern), form)) == table.size


@pytest.mark.parametrize("rounding", DETERMINISTIC)
@pytest.mark.parametrize("element", ELEMENTS, ids=name_of)
def test_any_pattern_has_the_code_of_the_reference(element, rounding):
    form = encoding(element, starts(element, rounding))
    patterns = np.random.default_rng(1).integers(0, 0x7F800000, size(20_000, 200), np.int32)
    near = np.float32(np.random.default_rng(2).uniform(0, 1.1 * element.max, patterns.size)).view(np.int32)
    for pattern in (patterns, near):
        expected = encode_scaled(pattern.view(np.float32).astype(np.float64), element, rounding)
        assert [int(nearest_code(p, form)) for p in pattern] == expected.tolist()


# --- every pattern, every threshold


@pytest.mark.parametrize("fmt", MX, ids=name_of)
@pytest.mark.parametrize("dtype", DTYPES)
def test_infinity_is_the_largest_element_beside_the_largest_floats_too(dtype, fmt):
    """2**16, which float16's infinity looks like, is none of the largest elements under some scales."""
    top = DTYPES[dtype].type(ml_dtypes.finfo(DTYPES[dtype]).max)
    x = np.zeros((8, 32), DTYPES[dtype])
    x[:, 0] = [top, -top, top / 2, top * DTYPES[dtype].type(0.75), 1, 0, top, top / 4]
    x[:, 1], x[:6, 2] = np.inf, -np.inf
    for rule, rounding in itertools.product(RULES, DETERMINISTIC):
        for y, axis in ((x, 1), (x.T.copy(), 0)):
            q = agree(y, fmt, axis=axis, scale_rule=rule, rounding=rounding, nonfinite="saturate")
            codes = q.codes if axis else q.codes.T
            assert (fmt.element.values[codes[:, 1]] == fmt.element.max).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.MXFP8_E5M2, mxfp.MXINT8], ids=name_of)
def test_every_pattern_of_16_bits_as_a_member_of_a_block(fmt, dtype):
    patterns = np.arange(0, 1 << 16, size(1, 257)).astype(np.uint16)
    patterns = np.resize(patterns, (blocks_along(patterns.size, 32), 32))
    for x in (from_bits(patterns, dtype), from_bits(patterns.T.copy(), dtype)):
        for nonfinite in ("nan", "saturate"):
            for rounding in DETERMINISTIC:
                agree(x, fmt, nonfinite=nonfinite, rounding=rounding)
        agree(x, fmt, axis=0, scale_rule="rceil", nonfinite="saturate")
    # Beside a one, so that the scale is that of one and every smaller number is a code of its own.
    x = from_bits(patterns, dtype).copy()
    x[:, 0] = 1
    with np.errstate(invalid="ignore"):
        x[~(np.abs(x.astype(np.float32)) <= 1)] = 0.5
    for rounding in DETERMINISTIC:
        agree(x, fmt, rounding=rounding)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rounding", DETERMINISTIC)
@pytest.mark.parametrize("fmt", MX, ids=name_of)
def test_the_starts_of_every_code_and_one_ulp_to_each_side(fmt, rounding, dtype):
    element = fmt.element
    found = DTYPES[dtype]
    exponents = {"float16": (-6, 0, 3), "bfloat16": (-125, -3, 100)}.get(dtype, (-126, -130, 0, 100))
    for exponent in exponents[: size(4, 1)]:
        points = np.concatenate([starts(element, rounding), element.magnitudes[1:]])
        with np.errstate(over="ignore", under="ignore"):
            x = np.ldexp(points, exponent - element.emax).astype(found)
            patterns = bits(x).astype(np.int64)[:, None] + np.arange(-1, 2)
            flat = from_bits(np.maximum(patterns, 0).ravel(), dtype)
            top = np.array(np.ldexp(element.max, exponent - element.emax)).astype(found)
        flat = flat[np.isfinite(flat)]
        if not np.isfinite(top):
            continue
        rows = np.resize(flat, (blocks_along(flat.size, 31), 31))
        block = np.concatenate([np.full((len(rows), 1), top, found), rows], axis=1)
        for x in (block, -block):
            agree(x, fmt, rounding=rounding)
            agree(np.ascontiguousarray(x.T), fmt, rounding=rounding, axis=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fmt", MX, ids=name_of)
def test_the_thresholds_of_every_rule_and_one_ulp_to_each_side(fmt, dtype):
    found = DTYPES[dtype]
    limits = [1.0, 1.25, 1.5, 1.75, 1.875, 1.9375, 1.984375, fmt.element.max / 2.0**fmt.element.emax]
    low, high = {"float16": (-24, 15), "float64": (-1074, 1023)}.get(dtype, (-149, 127))
    with np.errstate(over="ignore", under="ignore"):
        amax = np.ldexp(np.array(limits)[:, None], np.arange(low, high + 1, size(3, 90)))
        patterns = bits(amax.astype(found)).astype(np.int64)[..., None] + np.arange(-1, 2)
    flat = from_bits(np.maximum(patterns, 0).ravel(), dtype)
    flat = flat[np.isfinite(flat)]
    x = np.zeros((flat.size, 3), found)
    x[:, 1] = flat
    for rule in RULES:
        agree(x, fmt, scale_rule=rule)
        agree(x.T.copy(), fmt, scale_rule=rule, axis=0)


def test_a_float64_is_not_first_rounded_to_float32_in_any_format():
    for fmt in MX:
        for rounding in DETERMINISTIC:
            points = starts(fmt.element, rounding)
            beside = [points * (1 + delta) for delta in (0.0, 2.0**-50, -(2.0**-50), 2.0**-30, -(2.0**-30))]
            values = np.concatenate([*beside, np.nextafter(points, 0), np.nextafter(points, 9)])
            rows = np.resize(values, (blocks_along(values.size, 31), 31))
            x = np.concatenate([np.full((len(rows), 1), fmt.element.max), rows], axis=1)
            for exponent in (-120, 90, 0, -1000, 900)[: size(5, 1)]:
                with np.errstate(over="ignore", under="ignore"):
                    agree(np.ldexp(x, exponent), fmt, rounding=rounding)


# --- shapes and layouts


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fmt", MX, ids=name_of)
def test_every_axis_of_hard_arrays_with_specials(fmt, dtype):
    x = hard_array(dtype, fmt.element, (3, size(40, 2), size(67, 35)), seed=3)
    for n, axis in enumerate(range(3)):
        # The hard blocks lie along the axis.
        y = np.ascontiguousarray(np.moveaxis(x, -1, axis))
        for rule, rounding in itertools.product(RULES, DETERMINISTIC):
            agree(y, fmt, axis=axis, scale_rule=rule, rounding=rounding)
        for nonfinite in ("nan", "saturate"):
            agree_back(agree(with_specials(y, seed=n), fmt, axis=axis, nonfinite=nonfinite))


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((0,), 0),
        ((0, 5), 0),
        ((5, 0), 0),
        ((1,), 0),
        ((32,), 0),
        ((33,), 0),
        ((2, 1), 1),
        ((2, 1), 0),
        ((31, 2), 0),
        ((64, 3), 0),
        ((size(65, 3), arrays.STRIP + 1), 0),
        ((size(33, 2), 2 * arrays.STRIP), 0),
        ((2, 34, 3, 2), 1),
        ((259, size(33, 3)), 1),
        ((size(3, 1), 32 * arrays.TOGETHER + 5), 1),
        ((2, 3, 1, 35, 1, 2), 3),
    ],
    ids=str,
)
def test_odd_shapes(shape, axis):
    rng = np.random.default_rng(6)
    x = rng.standard_normal(shape)
    for dtype in DTYPES:
        q = agree(with_specials(x.astype(DTYPES[dtype]), seed=2, share=0.01), axis=axis)
        agree_back(q)
    assert agree((x * 50).astype(np.int16), axis=axis - len(shape)).shape == shape


@pytest.mark.parametrize("block", [1, 2, 5, 16, 100])
def test_other_block_sizes(block):
    fmt = mxfp.BlockFormat("MXFP4 in other blocks", mxfp.E2M1, mxfp.E8M0, block, RULES)
    x = np.random.default_rng(block).standard_normal((7, size(213, 43)))
    for dtype, axis in itertools.product(DTYPES, (0, 1)):
        agree_back(agree(x.astype(DTYPES[dtype]), fmt, axis=axis, scale_rule="ceil"))


def layouts(x):
    """The same numbers in other memory."""
    apart = np.zeros((2 * x.shape[0], 3 * x.shape[1], 2 * x.shape[2]), x.dtype)
    apart[::2, ::3, 1::2] = x
    odd = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    odd[...] = x
    read_only = x.copy()
    read_only.flags.writeable = False
    return {
        "C": x.copy(),
        "Fortran": np.asfortranarray(x),
        "permuted": x.transpose(1, 2, 0).copy().transpose(2, 0, 1),
        "strided": apart[::2, ::3, 1::2],
        "reversed": x[::-1, ::-1, ::-1].copy()[::-1, ::-1, ::-1],
        "unaligned": odd,
        "big-endian": x.astype(x.dtype.newbyteorder(">")),
        "read-only": read_only,
    }


@pytest.mark.parametrize("dtype", [*DTYPES, *INTEGERS])
def test_the_memory_that_x_lies_in_changes_nothing(dtype):
    x = (np.random.default_rng(7).standard_normal((3, 35, 6)) * 20).astype(DTYPES.get(dtype, dtype))
    for axis in range(3):
        expected = mxfp.quantize(x, axis=axis, engine="reference")
        drawn = mxfp.quantize(
            x, axis=axis, rounding="stochastic", rng=np.random.default_rng(1), engine="reference"
        )
        for name, other in layouts(x).items():
            assert mxfp.quantize(other, axis=axis) == expected, (name, axis)
            again = mxfp.quantize(other, axis=axis, rounding="stochastic", rng=np.random.default_rng(1))
            assert again == drawn, (name, axis)


def test_codes_lie_in_memory_as_x_does():
    x = np.zeros((64, 96), np.float32)
    for axis in (0, 1):
        assert mxfp.quantize(x, axis=axis).codes.flags.c_contiguous
        q = mxfp.quantize(x.T, axis=axis)
        assert q.codes.T.flags.c_contiguous
        assert q.scales.T.flags.c_contiguous


@pytest.mark.parametrize("tile", [64, 1 << 10])
@pytest.mark.parametrize("engine", ["numba", "reference"])
def test_arrays_of_many_tiles(monkeypatch, engine, tile):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((5, 70, 9)).astype(np.float16)
    wanted = [mxfp.quantize(x, axis=axis, engine="reference") for axis in range(3)]
    drawn = [
        mxfp.quantize(x, axis=axis, rounding="stochastic", rng=np.random.default_rng(1)) for axis in range(3)
    ]
    monkeypatch.setattr(arrays, "TILE", tile)
    monkeypatch.setattr(tiles, "__defaults__", (tile,))
    for axis in range(3):
        for other in (x, layouts(x)["strided"]):
            assert mxfp.quantize(other, axis=axis, engine=engine) == wanted[axis]
            rng = np.random.default_rng(1)
            again = mxfp.quantize(other, axis=axis, rounding="stochastic", rng=rng, engine=engine)
            assert again == drawn[axis]
        out = np.zeros((5, 70, 9, 2), np.float32)[..., 0]
        mxfp.dequantize(wanted[axis], out=out, engine=engine)
        same_bits(out, wanted[axis].dequantize())


@pytest.mark.parametrize("shape", [(7,), (100, 3), (3, 100), (2, 33, 5), (40, 2, 3, 4)], ids=str)
@pytest.mark.parametrize("room", [1, 40, 200, 10**6])
def test_tiles_cover_an_array_once_and_never_cut_a_block(shape, room):
    for axis, block in itertools.product(range(len(shape)), (1, 16)):
        scale_shape = list(shape)
        scale_shape[axis] = blocks_along(shape[axis], block)
        codes, scales = np.zeros(shape, int), np.zeros(scale_shape, int)
        index = np.arange(codes.size).reshape(shape)
        for place, scale_place in tiles(shape, axis, block, room):
            codes[place] += 1
            scales[scale_place] += 1
            assert codes[place].size <= max(room, block)
            assert place[axis].start % block == 0
            assert place[axis].stop % block == 0 or place[axis].stop == shape[axis]
            assert np.array_equal(element_index(shape, place), index[place])
        assert (codes == 1).all()
        assert (scales == 1).all()


# --- dequantize


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("fmt", MX, ids=name_of)
def test_every_code_under_the_scale_codes_at_the_ends(fmt, axis):
    scales = np.array([0, 1, 2, 23, 104, 105, 126, 127, 128, 140, 253, 254, 255], np.uint8)
    codes = np.repeat(np.arange(fmt.element.code_count, dtype=np.uint8)[:, None], scales.size, axis=1)
    blocks = np.repeat(scales[None], blocks_along(len(codes), 32), axis=0)
    agree_back(mxfp.BlockArray(codes, blocks, fmt, 0))
    agree_back(mxfp.BlockArray(codes, blocks, fmt, 0).T)
    q = random_blocks(fmt, (70, 40), seed=axis, axis=axis, specials=True, nan_share=0.2)
    agree_back(q)


def test_a_scale_of_nan_is_the_canonical_nan_under_every_code():
    for fmt in MX:
        codes = np.arange(fmt.element.code_count, dtype=np.uint8)
        q = mxfp.BlockArray(codes, np.full(blocks_along(codes.size, 32), 255, np.uint8), fmt)
        for dtype, found in DTYPES.items():
            expected = np.full(codes.size, mxfp.floats.NAN_BITS[found])
            assert np.array_equal(bits(q.dequantize(dtype=dtype)), expected)


# --- formats of one's own


def custom(name, exponent_bits, mantissa_bits, bias, specials=Specials.NONE, scale=mxfp.E8M0):
    element = mxfp.ElementFormat(name, exponent_bits, mantissa_bits, bias, specials)
    return mxfp.BlockFormat(name, element, scale, 8, RULES)


SMALL = mxfp.ScaleFormat("E5M0", 5, 0, 15, False)
OWN = [
    (custom("E2M0", 2, 0, 1), True),
    (custom("E1M0", 1, 0, 1), True),
    (custom("E3M0", 3, 0, 3), True),
    (custom("E1M2", 1, 2, 0), True),
    (custom("E3M4 with IEEE specials", 3, 4, 3, Specials.IEEE), True),
    (custom("E2M1 of small scales", 2, 1, 1, scale=SMALL), True),
    (custom("E2M1 far below one", 2, 1, 60), False),
    (custom("E2M1 far above one", 2, 1, -90), False),
    (custom("E2M1 of large scales", 2, 1, 1, scale=mxfp.ScaleFormat("wide", 8, 0, 20, False)), False),
    (custom("E2M1 of tiny scales", 2, 1, 1, scale=mxfp.ScaleFormat("deep", 8, 0, 200, False)), False),
]


@pytest.mark.parametrize(("fmt", "supported"), OWN, ids=name_of)
def test_formats_of_ones_own_have_the_bits_of_the_reference(fmt, supported):
    assert kernels.supports(fmt) == supported
    rng = np.random.default_rng(5)
    x = np.ldexp(rng.choice(fmt.element.magnitudes, (20, 40)), rng.integers(-3, 3, (20, 1)))
    x = np.concatenate([x, rng.standard_normal((20, 40)) * fmt.element.max])
    some = itertools.product(("float32", "float64"), RULES, DETERMINISTIC)
    for dtype, rule, rounding in itertools.islice(some, 0, None, size(1, 5)):
        with np.errstate(over="ignore", under="ignore"):
            y = x.astype(dtype)
        for axis in (0, 1):
            agree_back(agree(y, fmt, axis=axis, scale_rule=rule, rounding=rounding))


# --- out=


def outputs(x, axis=-1, fmt=mxfp.MXFP4):
    """Two arrays of the shapes that the result has, filled with what no result is."""
    shape = list(x.shape)
    shape[axis] = blocks_along(x.shape[axis], fmt.block)
    return np.full(x.shape, 99, np.uint8), np.full(shape, 99, np.uint8)


@pytest.mark.parametrize("engine", ["numba", "reference"])
@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4, mxfp.MXFP8_E4M3], ids=name_of)
def test_quantize_writes_to_the_arrays_given_and_the_result_holds_them(fmt, engine):
    x = np.random.default_rng(1).standard_normal((5, 70)).astype(np.float32)
    for axis in (0, 1):
        expected = mxfp.quantize(x, fmt, axis=axis, engine="reference")
        for order in "CF":
            codes, scales = (np.asarray(a, order=order) for a in outputs(x, axis, fmt))
            q = mxfp.quantize(x, fmt, axis=axis, out=(codes, scales), engine=engine)
            assert q == expected
            same_bits(codes, expected.codes)
            same_bits(scales, expected.scales)
            assert np.shares_memory(q.codes, codes)
            assert np.shares_memory(q.scales, scales)
            assert not q.codes.flags.writeable
            assert not q.scales.flags.writeable
            assert codes.flags.writeable


def test_quantize_writes_through_any_strides_and_nowhere_else():
    x = np.random.default_rng(1).standard_normal((6, 64))
    expected = mxfp.quantize(x)
    together = np.full((12, 3 * 66), 99, np.uint8)
    codes, scales = together[::-2, : 3 * 64 : 3], together[1::2, 3 * 64 : 3 * 64 + 2]
    q = mxfp.quantize(x, out=(codes, scales))
    assert q == expected
    assert np.shares_memory(q.codes, together)
    assert (together == 99).sum() == together.size - codes.size - scales.size
    drawn = mxfp.quantize(x, rounding="stochastic", rng=np.random.default_rng(1), out=[codes, scales])
    assert drawn == mxfp.quantize(x, rounding="stochastic", rng=np.random.default_rng(1))


@pytest.mark.parametrize("engine", ["numba", "reference"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_dequantize_writes_to_the_array_given_and_returns_it(dtype, engine):
    for fmt, axis in itertools.product((mxfp.MXFP4, mxfp.NVFP4), (0, 1, 2)):
        q = random_blocks(fmt, (3, 35, 6), seed=axis, axis=axis, nan_share=0.1)
        expected = mxfp.dequantize(q, dtype=dtype, engine="reference")
        for name, out in layouts(np.zeros(q.shape, DTYPES[dtype])).items():
            if name != "read-only":
                assert mxfp.dequantize(q, out=out, engine=engine) is out, name
                same_bits(out.astype(out.dtype.newbyteorder("=")), expected)
        out = np.zeros(q.shape, DTYPES[dtype])
        assert q.dequantize(dtype=dtype, out=out) is out
        same_bits(out, expected)


def wrong_outputs():
    x = np.ones((4, 64), np.float32)
    codes, scales = outputs(x)
    sealed = codes.copy()
    sealed.flags.writeable = False
    inside = x.view(np.uint8)
    return [
        ((codes, scales[:, :1]), ValueError, r"out\[1\], for scales, must have shape \(4, 2\), got \(4, 1\)"),
        ((codes[:3], scales), ValueError, r"out\[0\], for codes, must have shape \(4, 64\), got \(3, 64\)"),
        ((sealed, scales), ValueError, r"out\[0\], for codes, is read-only"),
        ((codes.astype(np.int8), scales), TypeError, "must be of dtype uint8, got int8"),
        (
            (codes, scales.tolist()),
            TypeError,
            r"out\[1\], for scales, must be a numpy array of uint8, got list",
        ),
        (codes, TypeError, r"two uint8 arrays \(codes, scales\), got ndarray"),
        ((codes,), TypeError, "got tuple of 1"),
        ((codes, scales, scales), TypeError, "got tuple of 3"),
        ((np.ma.masked_array(codes), scales), TypeError, "got MaskedArray"),
        ((codes, codes[:, :2]), ValueError, r"out\[0\] and out\[1\] share memory"),
        ((inside[:, :64], scales), ValueError, r"out\[0\] and x share memory"),
        ((codes, inside[:, 64:66]), ValueError, r"out\[1\] and x share memory"),
    ], x


@pytest.mark.parametrize("engine", ["numba", "reference"])
def test_outputs_that_do_not_fit_are_refused_before_anything_is_written(engine):
    cases, x = wrong_outputs()
    for out, error, message in cases:
        with pytest.raises(error, match=message):
            mxfp.quantize(x, out=out, engine=engine)
        assert all((np.asarray(part) == 99).all() for part in out if np.asarray(part).base is not x)
        assert (x == 1).all()


@pytest.mark.parametrize("engine", ["numba", "reference"])
@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4], ids=name_of)
def test_a_refused_infinity_leaves_the_outputs_as_they_were(fmt, engine):
    x = np.ones((4, 64), np.float16)
    x[2, 40] = np.inf
    out = outputs(x, fmt=fmt)
    with pytest.raises(ValueError, match=r"x is inf at index \(2, 40\)"):
        mxfp.quantize(x, fmt, nonfinite="raise", out=out, engine=engine)
    assert all((part == 99).all() for part in out)
    x[2, 40] = 2
    assert mxfp.quantize(x, fmt, nonfinite="raise", out=out, engine=engine) == mxfp.quantize(x, fmt)


@pytest.mark.parametrize("engine", ["numba", "reference"])
def test_a_refused_out_of_dequantize_stays_as_it_was(engine):
    memory = np.zeros(64 * 4, np.uint8)
    q = mxfp.quantize(np.ones(64, np.float32), out=(memory[:64], memory[64:66]))
    sealed = np.full(64, 5, np.float32)
    sealed.flags.writeable = False
    for out, dtype, error, message in [
        (np.full(63, 5, np.float32), ..., ValueError, r"out must have shape \(64,\), got \(63,\)"),
        (np.full((64, 1), 5, np.float32), ..., ValueError, r"got \(64, 1\)"),
        (sealed, ..., ValueError, "out is read-only"),
        (np.full(64, 5, np.int32), ..., TypeError, "float16 or bfloat16 or float32 or float64, got int32"),
        (np.full(64, 5, np.float32), np.float64, TypeError, "of dtype float64, got float32"),
        ([5.0] * 64, ..., TypeError, "out must be a numpy array of .*, got list"),
    ]:
        with pytest.raises(error, match=message):
            mxfp.dequantize(q, dtype=dtype, out=out, engine=engine)
        assert (np.asarray(out) == 5).all()
    before = memory.copy()
    with pytest.raises(ValueError, match="out shares memory with the codes or scales of q"):
        mxfp.dequantize(q, out=memory.view(np.float32), engine=engine)
    assert np.array_equal(memory, before)


# --- memory


def peak_of(call):
    """Bytes that a second call takes at its peak."""
    call()
    tracemalloc.start()
    result = call()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return result, peak


PIECE = 1 << 12
"""Elements of a tile in the tests below: their arrays are many times as large."""


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int16", "int64", "float64", "float32"])
def test_quantize_takes_memory_for_its_result_and_a_tile(monkeypatch, dtype):
    monkeypatch.setattr(arrays, "TILE", PIECE)
    wide = np.zeros((size(128, 3), 2048), DTYPES.get(dtype, dtype))
    some = wide[:, ::2]
    # A copy of a tile, widened; 64-bit integers take many temporaries on their way to float64.
    tile = PIECE * (16 * 8 if dtype == "int64" else 2 * 8) + (1 << 16)
    for x, axis in ((some, 1), (some.T, 1), (wide, 0), (wide, 1)):
        q, peak = peak_of(lambda x=x, axis=axis: mxfp.quantize(x, axis=axis))
        assert peak < q.codes.nbytes + q.scales.nbytes + tile
        out = (np.empty(x.shape, np.uint8), np.empty(q.scales.shape, np.uint8))
        _, peak = peak_of(lambda x=x, axis=axis, out=out: mxfp.quantize(x, axis=axis, out=out))
        assert peak < tile


@pytest.mark.parametrize("dtype", DTYPES)
def test_dequantize_into_an_array_takes_memory_for_a_tile(monkeypatch, dtype):
    monkeypatch.setattr(arrays, "TILE", PIECE)
    rows = size(128, 3)
    q = mxfp.BlockArray(np.zeros((rows, 2048), np.uint8), np.zeros((rows, 64), np.uint8), mxfp.MXFP4)
    for one, out in (
        (q, np.empty(q.shape, DTYPES[dtype])),
        (q.T, np.empty(q.T.shape, DTYPES[dtype])),
        (q, np.empty((rows, 4096), DTYPES[dtype])[:, ::2]),
    ):
        _, peak = peak_of(lambda one=one, out=out: mxfp.dequantize(one, out=out))
        assert peak < PIECE * 2 * 8 + (1 << 16)
