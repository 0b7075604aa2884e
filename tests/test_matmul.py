# SPDX-License-Identifier: Apache-2.0
"""Room 8: numpy's shapes, the accumulator's bits, whatever the tiling and the engine."""

import sys
from functools import partial

import numpy as np
import pytest

import mxfp
import oracle
from mxfp.blocks import ENGINES
from mxfp.matmul import multiply_count
from support import ACCUMULATORS, FORMATS, as_floats, bits, name_of, oracle_result, random_blocks, same_bits

ROOM = sys.modules["mxfp.matmul"]


def vector(q: mxfp.BlockArray, index: tuple, axis: int) -> mxfp.BlockArray:
    """One vector of K out of an array, by the indices of its other axes."""
    codes, scales = np.moveaxis(q.codes, axis, -1)[index], np.moveaxis(q.scales, axis, -1)[index]
    return mxfp.BlockArray(codes, scales, q.format, -1, q.tensor_scale)


def cells(a: mxfp.BlockArray, b: mxfp.BlockArray, one) -> np.ndarray:
    """one(row, column) for every output of a two-dimensional product."""
    rows, columns = a.shape[0], b.shape[1]
    found = [[one(vector(a, (m,), 1), vector(b, (n,), 0)) for n in range(columns)] for m in range(rows)]
    return np.array(found, object if isinstance(found[0][0], int) else None)


SHAPES = [
    ((5, 40), (40, 3)),
    ((40,), (40, 3)),
    ((5, 40), (40,)),
    ((40,), (40,)),
    ((2, 5, 40), (40, 3)),
    ((5, 40), (2, 40, 3)),
    ((2, 5, 40), (2, 40, 3)),
    ((2, 1, 5, 40), (3, 40, 2)),
    ((1, 5, 40), (4, 40, 2)),
    ((40,), (2, 40, 3)),
    ((2, 5, 40), (40,)),
    ((1, 1), (1, 1)),
    ((3, 0), (0, 4)),
    ((0,), (0,)),
    ((0, 40), (40, 3)),
    ((5, 40), (40, 0)),
    ((0, 40), (40, 0)),
    ((0, 40), (40,)),
    ((40,), (40, 0)),
    ((2, 0, 40), (40, 3)),
    ((0, 5, 40), (40, 3)),
    ((2, 3, 0), (0, 4)),
    ((2, 3, 0), (2, 0, 4)),
    ((0, 0), (0, 0)),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4], ids=name_of)
@pytest.mark.parametrize(("left", "right"), SHAPES, ids=str)
def test_shapes_are_those_of_numpy(left, right, fmt, engine):
    rng = np.random.default_rng(1)
    # Small integers at the scale 1: exact, so that numpy's product is the answer too.
    x, y = (rng.integers(-2, 3, shape).astype(np.float32) for shape in (left, right))
    one = 56 if fmt is mxfp.NVFP4 else 127
    a, b = (mxfp.quantize(z, fmt, axis=axis) for z, axis in ((x, -1), (y, max(y.ndim - 2, 0))))
    a, b = (
        mxfp.BlockArray(mxfp.encode(z, fmt), np.full_like(side.scales, one), fmt, side.axis)
        for z, side in ((x, a), (y, b))
    )
    for accumulator in (mxfp.Sequential("float32"), mxfp.Exact("float64"), mxfp.BLACKWELL_MXFP4):
        found = mxfp.matmul(a, b, accumulator=accumulator, engine=engine)
        expected = np.matmul(x.astype(np.float64), y.astype(np.float64)).astype(found.dtype) + 0
        same_bits(found, expected)
    assert multiply_count(a, b) == (found.size * left[-1])


@pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=name_of)
@pytest.mark.parametrize("engine", ENGINES)
def test_each_output_is_the_accumulated_dot_product_of_its_row_and_column(accumulator, engine):
    a = random_blocks(mxfp.MXFP4, (4, 100), seed=1, scales=(115, 140))
    b = random_blocks(mxfp.MXFP4, (100, 3), seed=2, scales=(115, 140), axis=0)
    found = mxfp.matmul(a, b, accumulator=accumulator, engine=engine)
    assert found.dtype == accumulator.result_dtype
    rooms = cells(a, b, lambda x, y: accumulator(mxfp.block_dots(x, y, group=accumulator.terms_of)))
    same_bits(found, rooms)
    expected = cells(a, b, lambda x, y: oracle_result(accumulator, x, y))
    same_bits(found, as_floats(expected.tolist(), accumulator.result_dtype))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_every_format_with_nan_scales_and_special_codes(fmt, engine):
    a = random_blocks(fmt, (4, 70), seed=1, specials=True, nan_share=0.1)
    b = random_blocks(fmt, (70, 3), seed=2, specials=True, nan_share=0.1, axis=0)
    for accumulator in (
        mxfp.Sequential("float32"),
        mxfp.Exact("float32"),
        mxfp.Exact("float64"),
        mxfp.BLACKWELL_MXFP4,
    ):
        found = mxfp.matmul(a, b, accumulator=accumulator, engine=engine)
        expected = cells(a, b, partial(oracle_result, accumulator))
        same_bits(found, as_floats(expected.tolist(), accumulator.result_dtype))


@pytest.mark.parametrize("engine", ENGINES)
def test_formats_of_one_block_size_can_be_mixed(engine):
    a = random_blocks(mxfp.MXFP8_E5M2, (3, 70), seed=1, scales=(120, 135))
    for fmt in (mxfp.MXFP4, mxfp.MXINT8, mxfp.MXFP6_E3M2):
        b = random_blocks(fmt, (70, 2), seed=2, axis=0)
        found = mxfp.matmul(a, b, engine=engine)
        same_bits(
            found,
            as_floats(
                cells(a, b, lambda x, y: oracle_result(mxfp.Sequential("float32"), x, y)).tolist(),
                found.dtype,
            ),
        )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "accumulator",
    [
        mxfp.Sequential("float32"),
        mxfp.Exact("float32"),
        mxfp.Exact("float64"),
        mxfp.BLACKWELL_MXFP4,
        mxfp.FixedPoint(60, -20),
    ],
    ids=name_of,
)
def test_a_nan_scale_hits_exactly_the_outputs_that_use_its_block(accumulator, engine):
    x = np.ones((6, 96), np.float32)
    a, b = mxfp.quantize(x), mxfp.quantize(np.ones((96, 5), np.float32), axis=0)
    sa, sb = a.scales.copy(), b.scales.copy()
    sa[2, 1], sa[4, 2], sb[0, 3] = 255, 255, 255
    zero = a.codes.copy()
    zero[2, 32:64] = 0
    found = mxfp.matmul(
        mxfp.BlockArray(zero, sa, mxfp.MXFP4),
        mxfp.BlockArray(b.codes, sb, mxfp.MXFP4, 0),
        accumulator=accumulator,
        engine=engine,
    )
    marked = np.zeros((6, 5), bool)
    marked[[2, 4]] = True
    marked[:, 3] = True
    assert np.array_equal(np.isnan(found), marked)
    nan = 0x7FFFFFFF if isinstance(accumulator, mxfp.Fused) else oracle.NAN_BITS[found.dtype.name]
    assert set(bits(found)[marked].tolist()) == {nan}
    assert set(found[~marked].tolist()) == {96.0}


@pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=name_of)
def test_nvfp4_tensor_scales_are_an_epilogue(accumulator):
    rng = np.random.default_rng(2)
    x, y = (
        rng.standard_normal((3, 40)).astype(np.float32) * 1e-3,
        rng.standard_normal((40, 2)).astype(np.float32),
    )
    a, b = mxfp.quantize(x, mxfp.NVFP4), mxfp.quantize(y, mxfp.NVFP4, axis=0)
    if isinstance(accumulator, mxfp.FixedPoint):
        accumulator = mxfp.FixedPoint(60, -20, accumulator.overflow, accumulator.rounding)
    found = mxfp.matmul(a, b, accumulator=accumulator)
    expected = cells(a, b, lambda p, q: oracle_result(accumulator, p, q))
    same_bits(found, as_floats(expected.tolist(), accumulator.result_dtype))


@pytest.mark.parametrize("tile", [1, 2, 3, 7, 20, 1000])
@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4, mxfp.MXFP8_E5M2], ids=name_of)
def test_tiles_change_nothing(monkeypatch, fmt, tile):
    a = random_blocks(fmt, (5, 70), seed=1)
    b = random_blocks(fmt, (70, 6), seed=2, axis=0)
    for accumulator in (
        mxfp.Sequential("float32"),
        mxfp.Exact("float32"),
        mxfp.BLACKWELL_MXFP4,
        mxfp.FixedPoint(40, -20, "wrap"),
    ):
        expected = mxfp.matmul(a, b, accumulator=accumulator, engine="reference")
        with monkeypatch.context() as patch:
            patch.setattr(ROOM, "TILE", tile)
            same_bits(mxfp.matmul(a, b, accumulator=accumulator, engine="reference"), expected)


@pytest.mark.parametrize("engine", ENGINES)
def test_transposes_and_views_are_multiplied_as_they_stand(engine):
    a = random_blocks(mxfp.MXFP4, (40, 5), seed=1, axis=0)
    b = random_blocks(mxfp.MXFP4, (3, 40), seed=2, axis=1)
    found = mxfp.matmul(a.T, b.T, engine=engine)
    copied = mxfp.matmul(
        mxfp.BlockArray(a.codes.T.copy(), a.scales.T.copy(), mxfp.MXFP4),
        mxfp.BlockArray(b.codes.T.copy(), b.scales.T.copy(), mxfp.MXFP4, 0),
        engine=engine,
    )
    same_bits(found, copied)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_overflowing_register_raises_from_a_matrix_product_too(engine):
    a, b = mxfp.quantize(np.full((2, 32), 6.0)), mxfp.quantize(np.full((32, 2), 6.0), axis=0)
    with pytest.raises(mxfp.WidthError, match=r"block 0 of result \(0, 0\).*1152.*signed 11 bits"):
        mxfp.matmul(a, b, accumulator=mxfp.FixedPoint(11, 0), engine=engine)
    assert mxfp.matmul(a, b, accumulator=mxfp.FixedPoint(12, 0), engine=engine).tolist() == [[1152.0] * 2] * 2


def q(shape, axis=-1, fmt=mxfp.MXFP4):
    return mxfp.quantize(np.ones(shape), fmt, axis=axis)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: mxfp.matmul(q((5, 40)), q((41, 3), 0)),
            ValueError,
            r"\(5, 40\).*\(41, 3\).*K is 40 in a and 41 in b",
        ),
        (
            lambda: mxfp.matmul(q((5, 40)), q((40, 3))),
            ValueError,
            r"a is MXFP4 \(5, 40\) along axis -1, b is MXFP4 \(40, 3\) along axis -1.*\.T",
        ),
        (lambda: mxfp.matmul(q((5, 40), 0), q((40, 3), 0)), ValueError, "axis 1 of a and axis 0 of b"),
        (
            lambda: mxfp.matmul(q((2, 5, 40)), q((3, 40, 3), 1)),
            ValueError,
            r"\(2,\) and \(3,\) do not broadcast",
        ),
        (lambda: mxfp.matmul(q(40), q(40, fmt=mxfp.NVFP4)), ValueError, "blocks of 32.*blocks of 16"),
        (lambda: mxfp.matmul(q(40), np.ones(40)), TypeError, "b must be a BlockArray.*ndarray"),
        (lambda: mxfp.matmul(np.ones(40), q(40)), TypeError, "a must be a BlockArray.*ndarray"),
        (
            lambda: mxfp.matmul(q(40), q(40), accumulator="exact"),
            TypeError,
            "accumulator must be one of mxfp's.*'exact'",
        ),
        (lambda: mxfp.matmul(q(40), q(40), engine="cuda"), ValueError, "'numba', 'reference', got 'cuda'"),
        (
            lambda: mxfp.matmul(q(40), q(40), accumulator=mxfp.Fused(35, 64, 64, -139)),
            ValueError,
            "group 64 must .*block of 32",
        ),
    ],
)
def test_what_does_not_match_is_refused_with_both_sides(call, error, message):
    with pytest.raises(error, match=message):
        call()
