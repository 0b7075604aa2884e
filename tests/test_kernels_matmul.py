# SPDX-License-Identifier: Apache-2.0
"""The kernels of matmul against the reference and the oracle, and the threads that they run on."""

import itertools
import os
import subprocess
import sys
import threading
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mxfp
from mxfp.formats import Specials
from mxfp.integers import sum_width
from mxfp.kernels import exact, gemm, isa, threads
from mxfp.kernels import matmul as kernels
from support import (
    DTYPES,
    FORMATS,
    HERE,
    JIT,
    MX,
    bits,
    name_of,
    oracle_result,
    random_blocks,
    same_bits,
    size,
)

ROOM = sys.modules["mxfp.matmul"]
E2M1, INT8 = mxfp.MXFP4, mxfp.MXINT8
SEQUENTIAL = [mxfp.Sequential(dtype) for dtype in DTYPES]
EXACT = [mxfp.Exact(dtype) for dtype in DTYPES]
FEW = [mxfp.Sequential("float32"), mxfp.Exact("float32"), mxfp.BLACKWELL_MXFP4]
MANY = [*SEQUENTIAL, *EXACT, mxfp.FixedPoint(40, -20, "wrap"), mxfp.BLACKWELL_MXFP4]


def sides(fmt_a, fmt_b, m, k, n, seed=1, **options):
    """Any (M, K) and (K, N) of two formats."""
    a = random_blocks(fmt_a, (m, k), seed, **options)
    return a, random_blocks(fmt_b, (k, n), seed + 1000, axis=0, **options)


def blocks(codes, scales, fmt=E2M1, axis=-1):
    """Codes and scale codes of anything that numpy takes -> BlockArray."""
    return mxfp.BlockArray(np.array(codes, np.uint8), np.array(scales, np.uint8), fmt, axis)


def uniform(code, scale, k, fmt=E2M1):
    """A vector of one code and one scale code."""
    return blocks(np.full(k, code), np.full(-(-k // fmt.block), scale), fmt)


def unpacked():
    """Few rows go the way of many, whose weights are unpacked."""
    return mock.patch.dict(kernels.GEMV_MOST, dict.fromkeys(kernels.GEMV_MOST, 0))


def agree(a, b, accumulators=FEW, *, cells=1):
    """Multiply on both engines, and `cells` of the results with the oracle; the last result is returned."""
    rng = np.random.default_rng(1)
    for accumulator in accumulators:
        expected = mxfp.matmul(a, b, accumulator=accumulator, engine="reference")
        same_bits(mxfp.matmul(a, b, accumulator=accumulator), expected)
        with unpacked():
            same_bits(mxfp.matmul(a, b, accumulator=accumulator), expected)
        if a.ndim == b.ndim == 2 and expected.size and a.shape[1]:
            for _ in range(cells):
                m, n = (int(rng.integers(count)) for count in expected.shape)
                found = oracle_result(accumulator, row(a, m), row(b.T, n))
                assert int(bits(expected[m, n])) == found, f"{accumulator} at {(m, n)}"
    return expected


def row(q, m):
    """One row of a matrix in blocks along its last axis."""
    return mxfp.BlockArray(q.codes[m], q.scales[m], q.format, -1, q.tensor_scale)


@pytest.fixture
def small_slabs(monkeypatch):
    """Slabs of one tile by one panel, and a reference that takes one cell at a time."""
    monkeypatch.setattr(kernels, "SLAB", 1)
    monkeypatch.setattr(kernels, "ROWS", 6)
    monkeypatch.setattr(kernels, "COLUMNS", 32)
    monkeypatch.setattr(ROOM, "TILE", 1)


# --- shapes


@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4], ids=name_of)
@pytest.mark.parametrize("m", size((1, 2, 3, 4, 5, 6, 7, 12, 13, 64, 65), (1, 7)))
def test_any_number_of_rows_by_any_number_of_columns(m, fmt):
    for n in size((1, 31, 32, 33, 64, 65), (1, 33)):
        agree(*sides(fmt, fmt, m, 70, n, seed=n, nan_share=0.02), FEW)


@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4], ids=name_of)
@pytest.mark.parametrize("m", size((1, 5, 7, 64), (5,)))
def test_all_rows_go_through_some_groups_before_the_next(m, fmt):
    rng = np.random.default_rng(m)
    for groups in (gemm.GROUPS, gemm.GROUPS + 1, 2 * gemm.GROUPS + 1) if JIT else (2,):
        k = groups * fmt.block - 3
        a, b = (
            mxfp.quantize(rng.standard_normal((m, k)), fmt),
            mxfp.quantize(rng.standard_normal((33, k)), fmt),
        )
        agree(a, b.T, FEW[:1])


@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4, mxfp.MXFP6_E3M2, mxfp.MXFP8_E4M3], ids=name_of)
@pytest.mark.parametrize(
    "k", size((1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 1023, 1024, 1025, 1056, 2080), (1, 17, 32, 33))
)
def test_any_number_of_products(k, fmt):
    for m, n in ((1, 3), size((5, 33), (2, 3))):
        agree(*sides(fmt, fmt, m, k, n, seed=k), FEW[:2] if fmt.element.bits > 4 else FEW)


def test_a_chunk_and_a_little_more():
    """More blocks than are integers at a time; the state waits for the next chunk."""
    for accumulator in (*FEW, mxfp.FixedPoint(40, -20, "wrap"), mxfp.Sequential("float16")):
        agree(*sides(E2M1, E2M1, size(7, 1), 1024 + 40, size(40, 2), scales=(120, 135)), [accumulator])


@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4], ids=name_of)
def test_as_many_rows_as_a_slab_holds_and_one_more_or_less(fmt):
    tall = kernels.ROWS
    for m in size((tall - 1, tall, tall + 1, 2 * tall + 1), (7,)):
        agree(*sides(fmt, fmt, m, size(70, 17), 3, nan_share=0.01), FEW[:2], cells=3)


@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4, mxfp.MXFP8_E4M3], ids=name_of)
@pytest.mark.parametrize(
    ("slab", "tall", "wide"),
    size([(1, 6, 32), (1, 12, 96), (96 * 64, 684, 64), (1 << 22, 6, 32), (1, 684, 4096)], [(1, 6, 32)]),
)
def test_slabs_change_nothing(monkeypatch, fmt, slab, tall, wide):
    a, b = sides(fmt, fmt, size(20, 7), size(70, 20), size(100, 33), nan_share=0.02)
    for name, value in (("SLAB", slab), ("ROWS", tall), ("COLUMNS", wide)):
        monkeypatch.setattr(kernels, name, value)
    for right in (b, mxfp.prepare(b)):
        for accumulator in (*FEW, mxfp.Exact("float64"), mxfp.FixedPoint(40, -20, "wrap")):
            same_bits(
                mxfp.matmul(a, right, accumulator=accumulator),
                mxfp.matmul(a, b, accumulator=accumulator, engine="reference"),
            )


def test_what_the_reference_has_to_finish_is_whole(small_slabs):
    """One cell that no kernel does, in the middle of the slabs; NaN and numbers all around it."""
    a, b = sides(mxfp.NVFP4, mxfp.NVFP4, 14, size(1100, 20), size(100, 70), scales=(55, 58))
    scales_a, scales_b = a.scales.copy(), b.scales.copy()
    codes_a, codes_b = a.codes.copy(), b.codes.copy()
    scales_a[8, :2] = scales_b[:2, 40] = 1, 126
    codes_a[8, :32], codes_b[:32, 40] = 3, 3
    scales_a[0, 0] = scales_b[0, 66] = 127
    a = mxfp.BlockArray(codes_a, scales_a, mxfp.NVFP4, -1, a.tensor_scale)
    b = mxfp.BlockArray(codes_b, scales_b, mxfp.NVFP4, 0, b.tensor_scale)
    agree(a, b, [mxfp.Exact("float32"), mxfp.Exact("float64")])
    codes = random_blocks(mxfp.MXFP8_E5M2, (14, 20), seed=1, scales=(120, 130)).codes.copy()
    codes[8, 3] = 0x7C
    infinite = blocks(codes, np.full((14, 1), 127), mxfp.MXFP8_E5M2)
    agree(infinite, random_blocks(E2M1, (20, 70), seed=2, axis=0, nan_share=0.05), FEW)


# --- layouts


def sealed(array):
    """A copy that nobody can write to, so that a BlockArray keeps views of it as they lie."""
    copied = np.array(array)
    copied.flags.writeable = False
    return copied


LAYOUTS = {
    "rows": sealed,
    "columns": lambda x: sealed(x.T).T,
    "every second row and third column": lambda x: sealed(np.repeat(np.repeat(x, 2, 0), 3, 1))[::2, 1::3],
    "the same of columns": lambda x: sealed(np.repeat(np.repeat(x.T, 2, 0), 3, 1))[1::2, ::3].T,
    "backwards": lambda x: sealed(x[::-1, ::-1])[::-1, ::-1],
    "a window": lambda x: sealed(np.pad(x, 3))[3:-3, 3:-3],
    "a window of columns": lambda x: sealed(np.pad(x.T, 3))[3:-3, 3:-3].T,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4, mxfp.MXINT8], ids=name_of)
def test_operands_are_read_as_they_lie(fmt, layout):
    a, b = sides(fmt, fmt, size(7, 2), 70, size(40, 3), nan_share=0.02)
    expected = mxfp.matmul(a, b, engine="reference")
    view = LAYOUTS[layout]
    left = mxfp.BlockArray(view(a.codes), view(a.scales), fmt, -1, a.tensor_scale)
    right = mxfp.BlockArray(view(b.codes), view(b.scales), fmt, 0, b.tensor_scale)
    assert np.array_equal(left.codes, a.codes)
    assert left.codes.strides == view(a.codes).strides
    for pair in ((left, b), (a, right), (left, right), (left, mxfp.prepare(right))):
        same_bits(mxfp.matmul(*pair), expected)
    turned = mxfp.BlockArray(view(b.codes.T), view(b.scales.T), fmt, 1, b.tensor_scale)
    same_bits(mxfp.matmul(a, turned.T), expected)


def test_a_row_that_is_repeated_without_a_copy():
    a, b = sides(E2M1, E2M1, 1, 70, size(40, 3))
    a, b = (
        mxfp.BlockArray(
            np.broadcast_to(sealed(x.codes), shape), np.broadcast_to(sealed(x.scales), scales), E2M1, axis
        )
        for x, shape, scales, axis in (
            (a, (7, 70), (7, 3), -1),
            (blocks(b.codes[:, :1], b.scales[:, :1], axis=0), (70, 9), (3, 9), 0),
        )
    )
    assert a.codes.strides[0] == b.codes.strides[1] == 0
    found = agree(a, b)
    assert (found == found[0, 0]).all()


def test_batches_and_vectors_of_every_kind():
    shapes = [
        ((2, 1, 3, 40), (3, 40, 5)),
        ((3, 40), (2, 40, 5)),
        ((2, 3, 40), (40, 5)),
        ((40,), (2, 40, 5)),
        ((2, 3, 40), (40,)),
        ((40,), (40, 5)),
        ((3, 40), (40,)),
        ((40,), (40,)),
        ((0, 3, 40), (40, 5)),
    ]
    for left, right in shapes:
        a = random_blocks(E2M1, left, seed=1, nan_share=0.05)
        b = random_blocks(E2M1, right, seed=2, axis=max(len(right) - 2, 0), nan_share=0.05)
        agree(a, b)
        if len(right) == 2:
            same_bits(mxfp.matmul(a, mxfp.prepare(b)), mxfp.matmul(a, b, engine="reference"))
    base = random_blocks(E2M1, (4, 40, 3, 6), seed=3, axis=1)
    a = mxfp.BlockArray(base.codes.transpose(0, 2, 3, 1), base.scales.transpose(0, 2, 3, 1), E2M1)
    b = mxfp.BlockArray(base.codes[1].transpose(1, 0, 2), base.scales[1].transpose(1, 0, 2), E2M1, 1)
    agree(a, b)


def test_the_operands_are_left_as_they_were():
    a, b = sides(E2M1, E2M1, 7, 40, 33)
    before = [x.copy() for q in (a, b) for x in (q.codes, q.scales)]
    w = mxfp.prepare(b)
    panels = w.codes.copy()
    for accumulator in FEW:
        mxfp.matmul(a, b, accumulator=accumulator)
        mxfp.matmul(a, w, accumulator=accumulator)
    for x, y in zip(before, (a.codes, a.scales, b.codes, b.scales), strict=True):
        assert np.array_equal(x, y)
    assert np.array_equal(panels, w.codes)


# --- scales

ENDS = (0, 1, 113, 114, 115, 126, 127, 128, *range(241, 255))


@pytest.mark.parametrize("fmt", [E2M1, INT8, mxfp.MXFP6_E3M2], ids=name_of)
def test_every_pair_of_scales_from_both_ends(fmt):
    """Each row and each column has a scale of its own; a second block has another."""
    rng = np.random.default_rng(5)
    ends = np.array(size(ENDS, ENDS[::4]), np.uint8)
    a, b = sides(fmt, fmt, ends.size, 40, ends.size)
    a = blocks(a.codes, np.stack([ends, rng.choice(ends, ends.size)], axis=1), fmt)
    b = blocks(b.codes, np.stack([ends, rng.choice(ends, ends.size)]), fmt, 0)
    agree(a, b, MANY if fmt is E2M1 else FEW[:2], cells=3)


def test_the_smallest_scale_where_it_is_no_subnormal_float32():
    """Code 0 of a scale of few bits; as a row's, a column's and both."""
    scale = mxfp.ScaleFormat("E4M0", 4, 0, 7, False)
    fmt = mxfp.BlockFormat("MXFP4 of E4M0", mxfp.E2M1, scale, 32, ("floor",))
    for m, other in itertools.product((1, size(70, 2)), (fmt, E2M1)):
        for left, right in ((fmt, other), (other, fmt)):
            a, b = sides(left, right, m, 70, 33, seed=m, scales=(1, 14))
            codes = a.scales.copy()
            codes[::2, 1] = 0
            a = mxfp.BlockArray(a.codes, codes, left)
            agree(a, b, FEW, cells=0)


@pytest.mark.parametrize("fmt", [E2M1, INT8, mxfp.MXFP6_E3M2], ids=name_of)
@pytest.mark.parametrize("m", size((1, 7), (1,)))
def test_sums_times_the_scale_of_a_row_that_leave_float32_or_just_do_not(m, fmt):
    code = 128 if fmt is INT8 else fmt.element.code_count // 2 - 1
    for top in size(range(225, 255), range(236, 255, 3)):
        a = blocks(np.full((m, 32), code), np.full((m, 1), top), fmt)
        for low in (0, 1, 254 - top, 127):
            b = blocks(np.full((32, 2), code), [[low, 0]], fmt, 0)
            agree(a, b, FEW[:1])


@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4, mxfp.MXFP8_E4M3], ids=name_of)
def test_a_nan_scale_marks_its_row_or_column_and_nothing_else(fmt):
    a, b = sides(fmt, fmt, 8, 40, size(40, 5))
    nan = fmt.scale.nan_code
    for rows, columns in (((2,), ()), ((), (3,)), ((0, 7), (4, 0)), (range(8), ()), ((), range(b.shape[1]))):
        scales_a, scales_b = a.scales.copy(), b.scales.copy()
        codes_a, codes_b = a.codes.copy(), b.codes.copy()
        scales_a[list(rows), 1], scales_b[-1, list(columns)] = nan, nan
        codes_a[list(rows)], codes_b[:, list(columns)] = 0, 0
        left = mxfp.BlockArray(codes_a, scales_a, fmt, -1, a.tensor_scale)
        right = mxfp.BlockArray(codes_b, scales_b, fmt, 0, b.tensor_scale)
        marked = np.zeros((8, b.shape[1]), bool)
        marked[list(rows)], marked[:, list(columns)] = True, True
        for accumulator in (*FEW, mxfp.FixedPoint(60, 20, "wrap")) if fmt is E2M1 else FEW[:2]:
            found = mxfp.matmul(left, right, accumulator=accumulator)
            assert np.array_equal(np.isnan(found), marked)
            same_bits(found, mxfp.matmul(left, right, accumulator=accumulator, engine="reference"))


def test_nan_everywhere_is_nan_everywhere():
    a, b = sides(E2M1, E2M1, 3, 40, 4)
    a = blocks(a.codes, np.full(a.scales.shape, 255))
    for accumulator in MANY:
        assert np.isnan(mxfp.matmul(a, b, accumulator=accumulator).astype(float)).all()
    agree(a, b, MANY)


# --- what is added


@pytest.mark.parametrize("dtype", DTYPES)
def test_signs_of_zero(dtype):
    """-0 from a negative term that is too small; +0 from cancellation, zeros, and -0 plus a zero term."""
    tiny = dict(zip(DTYPES, (40, 1, 0, 0), strict=True))[dtype]
    ones = blocks(np.full((64, 1), 2), [[tiny], [tiny]], axis=0)
    codes = np.zeros((5, 64), np.uint8)
    codes[0, 0] = 9
    codes[1, 32] = 9
    codes[2, 0], codes[2, 1] = 9, 1
    codes[3] = 8
    codes[4, 0], codes[4, 32] = 3, 11
    a = blocks(codes, np.full((5, 2), tiny))
    agree(a, ones, [mxfp.Sequential(dtype), mxfp.Exact(dtype)], cells=9)
    found = mxfp.matmul(a, ones, accumulator=mxfp.Sequential(dtype))[:, 0].astype(np.float64)
    below = dtype != "float64"
    assert np.signbit(found[:4]).tolist() == [not below, True, False, False]
    assert (found[:2] == 0).all() == below
    assert np.signbit(mxfp.matmul(a, ones, accumulator=mxfp.Exact(dtype))[:2, 0].astype(np.float64)).all()
    assert not found[2:4].any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_zero_scale_makes_plus_zero_of_a_sum_that_fell_to_minus_zero(dtype):
    """In formats of one's own: NVFP4's own scales keep all sums away from there."""
    zeros = mxfp.BlockFormat("E2M1 of UE4M3 in 32", mxfp.E2M1, mxfp.UE4M3, 32, ("nearest",))
    small = mxfp.BlockFormat("small", mxfp.ElementFormat("E2M1'", 2, 1, 40), mxfp.E8M0, 32, ("floor",))
    codes = np.full((size(7, 1), 96), 9, np.uint8)
    scales = np.tile(np.array([1, 0, 0], np.uint8), (len(codes), 1))
    a, halves = mxfp.BlockArray(codes, scales, zeros), blocks(np.full((96, 2), 1), np.zeros((3, 2)), small, 0)
    for left, right in ((a, halves), (halves.T, a.T)):
        found = agree(left, right, [mxfp.Sequential(dtype)], cells=0)
        assert bits(found).any() == (dtype == "float64")


@pytest.mark.parametrize("dtype", DTYPES)
def test_subnormal_results(dtype):
    smallest = {"float16": -24, "bfloat16": -133, "float32": -149, "float64": -254}[dtype]
    middle = (254 + smallest) // 2
    a, b = sides(E2M1, E2M1, size(7, 2), 100, size(40, 3), scales=(max(middle - 6, 0), middle + 1))
    found = agree(a, b, [mxfp.Exact(dtype), mxfp.Sequential(dtype)], cells=3).astype(np.float64)
    limit = {"float16": 2.0**-14, "float64": np.inf}.get(dtype, 2.0**-126)
    assert ((np.abs(found) < limit) & (found != 0)).any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_overflow_is_infinity_and_stays_it_unless_the_sum_is_exact(dtype):
    """Twice the largest, then as much and more back."""
    top = {"float16": 127 + 6, "bfloat16": 127 + 118, "float32": 127 + 118}[dtype]
    codes = np.repeat(np.array([[7, 7, 15, 15, 15], [15, 15, 7, 7, 1]], np.uint8), 32, axis=1)
    a = blocks(codes, np.full((2, 5), top))
    b = blocks(np.full((160, 3), 7), np.full((5, 3), 127), axis=0)
    agree(a, b, [mxfp.Sequential(dtype), mxfp.Exact(dtype)], cells=3)
    found = mxfp.matmul(a, b, accumulator=mxfp.Sequential(dtype)).astype(np.float64)
    assert np.array_equal(found[:, 0], [np.inf, -np.inf])
    assert np.isfinite(mxfp.matmul(a, b, accumulator=mxfp.Exact(dtype)).astype(np.float64)[1]).all()
    # A tie at the very top goes to infinity, one term less does not.
    agree(*sides(E2M1, E2M1, 3, 100, 3, scales=(top - 3, top + 3)), [mxfp.Sequential(dtype)])


@pytest.mark.parametrize("scales", [(50, 60), None], ids=["narrow", "any"])
def test_tensor_scales_from_the_smallest_to_the_largest(scales):
    """Of 24 bits, of one, and a pair whose product is 1."""
    a, b = sides(mxfp.NVFP4, mxfp.NVFP4, size(7, 2), 70, size(35, 2), scales=scales, nan_share=0.02)
    odd = float(np.float32(1 + 2.0**-23))
    largest, smallest = float(np.finfo(np.float32).max), 2.0**-149
    for factors in ((odd, odd), (largest, largest), (smallest, smallest), (2.0**-40, largest), (4.0, 0.25)):
        left, right = (
            mxfp.BlockArray(q.codes, q.scales, mxfp.NVFP4, q.axis, t)
            for q, t in zip((a, b), factors, strict=True)
        )
        agree(left, right, [*MANY, mxfp.FixedPoint(60, -40, "wrap", dtype="float16")], cells=1)


def test_exact_sums_with_tensor_scales_that_float64_does_not_hold(limbs):
    """A tensor scale comes in before the only rounding: into the register of limbs too."""
    k = 16 * 70
    a, b = sides(mxfp.NVFP4, mxfp.NVFP4, size(7, 1), k, size(35, 1), scales=(55, 58))
    scales_a, scales_b = a.scales.copy(), b.scales.copy()
    scales_a[:, :2], scales_b[:2] = (1, 126), [[1], [126]]
    codes_a, codes_b = a.codes.copy(), b.codes.copy()
    codes_a[:, :32], codes_b[:32] = 3, 3
    for factor in (1.0, 3.0, float(np.float32(1 + 2.0**-23)), float(np.finfo(np.float32).max)):
        left = mxfp.BlockArray(codes_a, scales_a, mxfp.NVFP4, -1, factor)
        right = mxfp.BlockArray(codes_b, scales_b, mxfp.NVFP4, 0, a.tensor_scale)
        agree(left, right, EXACT)
    assert limbs


@pytest.fixture
def limbs(monkeypatch):
    """A list that grows with each call of the kernel for sums that float64 does not hold."""
    calls = []
    real = exact.limb_tasks

    def counted(*arguments):
        calls.append(arguments[:2])
        return real(*arguments)

    monkeypatch.setattr(exact, "limb_tasks", counted)
    return calls


def test_zero_blocks_of_any_scale_do_not_widen_exact_sums(limbs):
    """A block of zeros has scale code 0; so has the padding of a last tile."""
    a, b = sides(E2M1, E2M1, 7, 128, size(40, 3), scales=(120, 135))
    codes_a, scales_a, codes_b, scales_b = (x.copy() for q in (a, b) for x in (q.codes, q.scales))
    codes_a[2, 32:64], scales_a[2, 1] = 0, 0
    codes_a[:, 96:], scales_a[:, 3] = 0, 254
    codes_b[:32, 1], scales_b[0, 1] = 8, 0
    codes_b[64:96], scales_b[2] = 0, 254
    a, b = blocks(codes_a, scales_a), blocks(codes_b, scales_b, axis=0)
    for accumulator in EXACT:
        agree(a, b, [accumulator])
        same_bits(
            mxfp.matmul(a, mxfp.prepare(b), accumulator=accumulator),
            mxfp.matmul(a, b, accumulator=accumulator, engine="reference"),
        )
    assert not limbs
    scales_a[3, 0] = 0
    agree(blocks(codes_a, scales_a), b, EXACT[2:3])
    assert limbs


def test_exact_sums_of_53_bits_and_of_54(limbs):
    """float64 holds them as far as their exponents lie within its bits, and not one further."""
    fmt = mxfp.MXFP6_E2M3
    top = 31  # 60 in units of the LSB: 32 products fill 17 bits
    room = 53 - (sum_width(fmt, fmt, 32) - 1) - 3
    for spread in (room - 1, room, room + 1, room + 2):
        codes = np.zeros((2, 256), np.uint8)
        codes[:, :192] = top
        codes[:, 192], codes[:, 224] = 1, 1
        codes[1, 224] = 33
        # Six blocks of the largest sum, one that makes a tie of float32, and one unit beside the tie.
        tie = 14 + spread + 6 - 25
        scales = np.array([100 + spread] * 6 + [100 + tie, 100], np.uint8)
        a = blocks(codes, [scales, scales], fmt)
        for code in (top, 1):
            other = np.full((256, 1), code, np.uint8)
            other[192:] = 1
            b = blocks(other, np.full((8, 1), 127), fmt, 0)
            limbs.clear()
            agree(a, b, EXACT, cells=2)
            assert bool(limbs) == (spread > room), spread


def test_exact_sums_on_and_beside_a_tie_with_54_bits():
    """6 · 115200 · 2**34 + 2**29 + 1: float32 rounds it up, but down if its last bit is lost."""
    fmt = mxfp.MXFP6_E2M3
    for last, up in ((1, True), (33, False), (0, False)):
        codes = np.zeros((1, 256), np.uint8)
        codes[0, :192] = 31
        codes[0, 192], codes[0, 224] = 1, last
        a = blocks(codes, [[161] * 6 + [156, 127]], fmt)
        other = np.full((256, 1), 31, np.uint8)
        other[192:] = 1
        b = blocks(other, np.full((8, 1), 127), fmt, 0)
        found = agree(a, b, [mxfp.Exact("float64"), mxfp.Exact("float32")])
        big = 6 * 115200 * 2**34
        assert found.dtype == np.float32
        assert float(found[0, 0]) * 64 == (big + 2**30 if up else big)


@pytest.mark.parametrize("accumulator", [*EXACT, *SEQUENTIAL], ids=name_of)
def test_terms_that_lie_as_far_apart_as_scales_go(accumulator):
    for seed, choices in enumerate(([0, 254], [0, 127, 254], [0, 1, 60, 190, 253, 254])):
        a, b = sides(E2M1, E2M1, size(7, 2), 192, size(35, 2), seed=seed)
        rng = np.random.default_rng(seed)
        a = blocks(a.codes, rng.choice(choices, a.scales.shape))
        b = blocks(b.codes, rng.choice(choices, b.scales.shape), axis=0)
        agree(a, b, [accumulator])
        # Each block and its negative: all but the last element cancels.
        codes = np.concatenate([a.codes[:, :96], a.codes[:, :96] ^ 8], axis=1)
        codes[:, -1] ^= 1
        a = blocks(codes, np.concatenate([a.scales[:, :3]] * 2, axis=1))
        b = blocks(np.concatenate([b.codes[:96]] * 2), np.concatenate([b.scales[:3]] * 2), axis=0)
        agree(a, b, [accumulator])


# --- registers

WIDTHS = size((2, 14, 24, 40, 54, 61, 62), (2, 40, 61))
LSBS = size((-300, -62, -20, -2, 0, 13, 300), (-300, -20, 300))


@pytest.mark.parametrize("rounding", ["floor", "toward_zero", "nearest_even"])
@pytest.mark.parametrize("overflow", ["wrap", "saturate"])
def test_registers_of_any_width_and_lsb(overflow, rounding):
    a, b = sides(E2M1, E2M1, size(7, 2), 70, size(35, 2), scales=(117, 138), nan_share=0.02)
    for width, lsb in itertools.product(WIDTHS, LSBS):
        agree(a, b, [mxfp.FixedPoint(width, lsb, overflow, rounding)])


@pytest.mark.parametrize("overflow", ["wrap", "saturate"])
def test_registers_over_any_scales_and_formats(overflow):
    for fmt in (mxfp.MXFP4, mxfp.NVFP4, mxfp.MXFP6_E3M2):
        a, b = sides(fmt, fmt, size(7, 2), 40, size(35, 2), nan_share=0.02)
        for rounding in ("floor", "toward_zero", "nearest_even"):
            agree(a, b, [mxfp.FixedPoint(40, -20, overflow, rounding)], cells=2)


def test_halves_of_the_lsb_and_their_neighbours_go_to_even():
    products = np.array([[1, 2], [3, 4], [5, 6], [7, 12], [9, 10], [13, 14]], np.uint8)
    a = blocks(np.pad(products, ((0, 0), (0, 30))), np.full((6, 1), 127))
    b = blocks(np.full((32, 7), 1), [np.arange(124, 131)], axis=0)
    for rounding in ("floor", "toward_zero", "nearest_even"):
        agree(a, b, [mxfp.FixedPoint(20, 1, "raise", rounding)], cells=9)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_result_of_a_register_is_rounded_once(dtype):
    a, b = sides(E2M1, E2M1, size(7, 2), 100, size(35, 2), scales=(117, 138))
    for width, lsb in ((61, -40), (40, -20), (61, 4), (20, -152), (30, 90)):
        agree(a, b, [mxfp.FixedPoint(width, lsb, "wrap", dtype=dtype)])
    agree(
        *sides(mxfp.NVFP4, mxfp.NVFP4, 2, 100, 3, scales=(40, 70)),
        [mxfp.FixedPoint(61, -40, "wrap", dtype=dtype)],
    )


def width_error(a, b, accumulator, engine):
    """What a product raises: its text and parts; None if nothing."""
    try:
        mxfp.matmul(a, b, accumulator=accumulator, engine=engine)
    except mxfp.WidthError as error:
        return str(error), error.index, error.block, error.value, error.width, error.of
    return None


@pytest.mark.parametrize(
    "shapes",
    [((70,), (70,)), ((7, 70), (70, 35)), ((70,), (70, 3)), ((3, 70), (70,)), ((2, 1, 3, 70), (2, 70, 3))],
    ids=str,
)
def test_a_register_raises_for_the_cell_that_the_reference_names(shapes):
    left, right = shapes
    seen = set()
    for seed in range(size(4, 1)):
        a = random_blocks(E2M1, left, seed, scales=(125, 130))
        b = random_blocks(E2M1, right, seed + 9, axis=max(len(right) - 2, 0), scales=(125, 130))
        for width in range(8, 20, size(1, 3)):
            accumulator = mxfp.FixedPoint(width, -3)
            expected = width_error(a, b, accumulator, "reference")
            assert width_error(a, b, accumulator, "numba") == expected
            if len(right) == 2:
                assert width_error(a, mxfp.prepare(b), accumulator, "numba") == expected
            seen.add(expected is None)
    assert seen == {True, False}


def test_a_register_raises_for_that_cell_in_whatever_slab_it_lies(small_slabs):
    """The kernels meet (13, 5) before (1, 40); the reference names the first in its own order."""
    codes_a, codes_b = np.full((14, 32), 1), np.full((32, 70), 1)
    codes_a[1], codes_a[13], codes_b[:, 5], codes_b[:, 40] = 2, 4, 4, 7
    a, b = blocks(codes_a, np.full((14, 1), 127)), blocks(codes_b, np.full((1, 70), 127), axis=0)
    for width in range(6, 13):
        accumulator = mxfp.FixedPoint(width, -2)
        assert width_error(a, b, accumulator, "numba") == width_error(a, b, accumulator, "reference")
    assert width_error(a, b, mxfp.FixedPoint(10, -2), "numba")[1] == (1, 40)


def test_a_register_does_not_raise_for_a_cell_that_is_nan():
    codes = np.full((3, 64), 1)
    codes[1] = 7
    ones = blocks(np.full((64, 2), 7), np.full((2, 2), 127), axis=0)
    accumulator = mxfp.FixedPoint(12, -2)
    loud = blocks(codes, np.full((3, 2), 127))
    assert width_error(loud, ones, accumulator, "numba")[1:4] == ((1, 0), 0, 4608)
    for block in range(2):
        scales = np.full((3, 2), 127)
        scales[1, block] = 255
        agree(blocks(codes, scales), ones, [accumulator], cells=3)
        found = mxfp.matmul(blocks(codes, scales), ones, accumulator=accumulator)
        assert np.isnan(found[1]).all()
        assert np.isfinite(found[[0, 2]]).all()
    scales = np.full((2, 2), 127)
    scales[1, 1] = 255
    half = blocks(np.full((64, 2), 7), scales, axis=0)
    assert width_error(loud, half, accumulator, "numba")[1:4] == ((1, 0), 0, 4608)
    turned = blocks(np.full((64, 3), 1), np.full((2, 3), 127), axis=0)
    codes_b = turned.codes.copy()
    codes_b[:, 2] = 7
    scales = turned.scales.copy()
    scales[0, 2] = 255
    agree(loud, blocks(codes_b, scales, axis=0), [mxfp.FixedPoint(13, -2)], cells=3)
    many = np.full((8, 64), 7)  # a row of another tile, and a column of another panel
    scales = np.full((8, 2), 127)
    scales[7, 0] = 255
    many[:7] = 1
    agree(blocks(many, scales), ones, [accumulator])


def test_the_kernels_do_the_work(monkeypatch):
    """All of it, for every accumulator and format that has kernels: the reference is not asked."""

    def asked(*arguments):
        raise AssertionError("the reference was asked")

    monkeypatch.setattr(ROOM, "_multiply", asked)
    registers = [mxfp.FixedPoint(8, -2, overflow) for overflow in ("wrap", "saturate")]
    for fmt in (mxfp.MXFP4, mxfp.NVFP4, mxfp.MXFP6_E3M2, mxfp.MXFP8_E4M3):
        a, b = sides(fmt, fmt, size(7, 1), 40, 3, nan_share=0.1)
        for accumulator in [*MANY, *registers] if fmt is E2M1 else FEW[:2]:
            mxfp.matmul(a, b, accumulator=accumulator)
    # A register that would overflow, but for NaN in its row or column.
    codes = np.ones((3, 64))
    codes[1] = 7
    scales = np.full((3, 2), 127)
    scales[1, 1] = 255
    loud, quiet = blocks(codes, scales), blocks(np.ones((2, 64)), np.full((2, 2), 127))
    for a, b in ((loud, quiet.T), (quiet, loud.T)):
        assert np.isnan(mxfp.matmul(a, b, accumulator=mxfp.FixedPoint(9, -2))).any()
    with pytest.raises(AssertionError, match="was asked"):
        mxfp.matmul(*sides(E2M1, E2M1, 2, 40, 3), accumulator=mxfp.Pairwise("float32"))


# --- tensor cores

PARAMETERS = [
    (35, 16, 64, -139),
    (25, 16, 64, -139),
    (35, 32, 32, -139),
    (35, 32, 1024, -139),
    (0, 4, 4, -200),
    (1, 4, 1024, 0),
    (8, 8, 16, -139),
    (13, 8, 256, 50),
    (22, 4, 32, -20),
    (24, 16, 16, -200),
    (3, 32, 64, 50),
    (36, 16, 64, -139),
    (60, 16, 64, -139),
    (25, 2, 64, -139),
    (25, 1, 32, -139),
    (25, 32, 96, -139),
]


@pytest.mark.parametrize("parameters", size(PARAMETERS, PARAMETERS[::3]), ids=str)
def test_tensor_cores_of_many_parameters(parameters):
    accumulator = mxfp.Fused(*parameters)
    for seed, scales in enumerate([(120, 135), (60, 70), (0, 255)]):
        for k in size((17, 32, 70, 200), (17, 40)):
            a, b = sides(E2M1, E2M1, size(7, 2), k, size(35, 2), seed=seed, scales=scales, zero_share=0.5)
            agree(a, b, [accumulator])


def test_a_group_that_cancels_still_sets_the_exponent():
    """1 - 1 at the scale 2**40 drowns a half beside it; a group of zeros there does not."""
    codes = np.zeros((2, 64), np.uint8)
    codes[:, 32] = 1
    codes[0, :2] = 2, 10
    a = blocks(codes, [[167, 127]] * 2)
    b = blocks(np.full((64, 1), 2), [[127], [127]], axis=0)
    accumulator = mxfp.Fused(35, 16, 64, -139)
    agree(a, b, [accumulator, mxfp.Fused(35, 32, 64, -139), mxfp.Fused(35, 4, 128, -139)], cells=4)
    assert mxfp.matmul(a, b, accumulator=accumulator)[:, 0].tolist() == [0.0, 0.5]


def test_groups_that_are_missing_from_the_last_step_are_zeros():
    """Their exponent, high as it is here, cuts bits of the sum that a whole step has left."""
    for parameters, k in (((12, 8, 32, 10), 72), ((12, 4, 64, 10), 130), ((14, 32, 64, 12), 160)):
        a, b = sides(E2M1, E2M1, size(7, 2), k, size(35, 4), scales=(125, 130), zero_share=0)
        found = agree(a, b, [mxfp.Fused(*parameters)], cells=3)
        assert (found != 0).any()
        whole = k // parameters[2] * parameters[2]
        codes, other = a.codes.copy(), b.codes.copy()
        codes[:, whole:], other[whole:] = 0, 0
        a, b = blocks(codes, a.scales), blocks(other, b.scales, axis=0)
        cut = agree(a, b, [mxfp.Fused(*parameters)], cells=3)
        uncut = mxfp.matmul(
            blocks(codes[:, :whole], a.scales[:, : -(-whole // 32)]),
            blocks(other[:whole], b.scales[: -(-whole // 32)], axis=0),
            accumulator=mxfp.Fused(*parameters),
        )
        assert (cut != uncut).any()


def test_a_scale_of_zero_makes_a_group_of_zeros():
    """0 times 2**8 has the exponent of zeros, not one that would cut what lies beside it."""
    codes = np.full((2, 32), 7)
    for scales_a, scales_b in (([[0, 1], [8, 1]], [126, 1]), ([[126, 1], [126, 1]], [0, 1])):
        a = blocks(codes, scales_a, mxfp.NVFP4)
        b = blocks(np.full((32, 1), 7), np.transpose([scales_b]), mxfp.NVFP4, 0)
        found = agree(a, b, [mxfp.BLACKWELL_MXFP4, mxfp.Fused(10, 16, 64, -139)], cells=4)
        assert found[0, 0] == 16 * 36 * 2.0**-18


def test_cancelled_groups_and_zero_blocks_of_any_scale():
    rng = np.random.default_rng(3)
    a, b = sides(E2M1, E2M1, size(7, 2), 128, size(35, 2), scales=(110, 145))
    codes_a, codes_b = a.codes.copy(), b.codes.copy()
    codes_a[:, 1::2] = codes_a[:, ::2] ^ 8
    codes_b[1::2] = codes_b[::2]
    codes_a[:, rng.random(128) < 0.1] = 1
    codes_a[0, 32:64], codes_b[64:96, 1] = 0, 8
    a, b = blocks(codes_a, a.scales), blocks(codes_b, b.scales, axis=0)
    for parameters in ((35, 16, 64, -139), (25, 8, 32, -20), (10, 32, 128, 0)):
        agree(a, b, [mxfp.Fused(*parameters)], cells=3)


@pytest.mark.parametrize(
    "fmt", [mxfp.NVFP4, mxfp.MXFP6_E2M3, mxfp.MXFP6_E3M2, mxfp.MXFP8_E4M3, mxfp.MXINT8], ids=name_of
)
def test_tensor_cores_on_other_formats(fmt):
    """Significands of scales, 0 among them; integers of two bytes and of float64."""
    for seed, scales in enumerate([None, (0, 12), (50, 60)]):
        a, b = sides(fmt, fmt, size(7, 2), 100, size(35, 2), seed=seed, scales=scales, nan_share=0.02)
        agree(a, b, [mxfp.BLACKWELL_MXFP4, mxfp.Fused(20, 4, 32, -139)], cells=2)


# --- pairs of formats


@pytest.mark.parametrize("fmt_a", MX, ids=name_of)
def test_every_pair_of_formats_in_both_orders(fmt_a):
    for fmt_b in MX:
        a, b = sides(fmt_a, fmt_b, size(7, 2), 70, size(35, 2), specials=True, nan_share=0.02)
        agree(a, b, FEW[:2])
        a, b = sides(fmt_a, fmt_b, size(7, 2), 70, size(35, 2), scales=(120, 135))
        agree(a, b, FEW[:2])


@pytest.mark.parametrize("fmt_a", MX, ids=name_of)
def test_the_largest_integers_of_both_signs(fmt_a):
    """32 products of the largest, where narrow registers would overflow: INT8's -2 times itself too."""
    for fmt_b in MX:
        extremes = []
        for fmt in (fmt_a, fmt_b):
            integers = fmt.element.integers
            extremes.append([int(integers.argmin()), int(integers.argmax())])
        for group in (32, 2):
            a = np.repeat([extremes[0], extremes[0][::-1]], 32, axis=1)
            b = np.repeat([extremes[1], extremes[1][::-1], extremes[1][:1] * 2], 32, axis=1)
            a, b = a[:, :32], b[:, :32]
            if group == 2:
                a, b = a.copy(), b.copy()
                a[:, 2::4], a[:, 3::4] = a[::-1, 2::4], a[::-1, 3::4]
            agree(
                blocks(a, np.full((2, 1), 127), fmt_a), blocks(b.T, np.full((1, 3), 127), fmt_b, 0), FEW[:2]
            )


@pytest.mark.parametrize("fmt", [mxfp.MXFP8_E4M3, mxfp.MXFP8_E5M2], ids=name_of)
def test_elements_that_are_nan_or_infinite(fmt):
    special = np.flatnonzero(~fmt.element.finite)
    for other in (fmt, E2M1, INT8):
        for turned in (False, True):
            a, b = sides(fmt, other, 7, 70, 9, scales=(120, 135))
            codes = a.codes.copy()
            codes[2, 40], codes[6, 69] = special[0], special[-1]
            a = blocks(codes, a.scales, fmt)
            if turned:
                a, b = b.T, a.T
            for accumulator in (*FEW, mxfp.FixedPoint(50, -40, "saturate")):
                agree(a, b, [accumulator])


# --- anything

KINDS = {
    E2M1: [*MANY, mxfp.FixedPoint(20, -6, "saturate", "nearest_even"), mxfp.Fused(8, 8, 16, -139)],
    mxfp.NVFP4: [*FEW, mxfp.Exact("float64"), mxfp.Sequential("float16"), mxfp.FixedPoint(50, -20, "wrap")],
}


@settings(max_examples=size(150, 25))
@given(st.data())
def test_any_product(data):
    fmt_a = data.draw(st.sampled_from(FORMATS))
    fmt_b = data.draw(st.sampled_from(MX)) if fmt_a in MX else fmt_a
    m, n = data.draw(st.integers(0, size(14, 2))), data.draw(st.integers(0, size(70, 3)))
    k = data.draw(st.integers(0, size(140, 40)))
    top = fmt_a.scale.nan_code
    middle = data.draw(st.integers(0, top - 1))
    reach = data.draw(st.sampled_from([1, 5, 20, 60, 255]))
    options = {
        "scales": (max(middle - reach, 0), min(middle + reach, top)),
        "specials": data.draw(st.booleans()),
        "nan_share": data.draw(st.sampled_from([0, 0, 0.1])),
        "zero_share": data.draw(st.sampled_from([0, 0.2, 0.9])),
    }
    a, b = sides(fmt_a, fmt_b, m, k, n, data.draw(st.integers(0, 2**32)), **options)
    same = fmt_a is fmt_b and fmt_a in KINDS
    accumulator = data.draw(st.sampled_from(KINDS[fmt_a] if same else FEW[:2]))
    agree(a, b, [accumulator])
    expected = mxfp.matmul(a, b, accumulator=accumulator, engine="reference")
    same_bits(mxfp.matmul(a, mxfp.prepare(b), accumulator=accumulator), expected)


# --- threads


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 100])
@pytest.mark.parametrize("number", [1, 2, 3, 8])
def test_every_task_is_done_exactly_once(monkeypatch, number, count):
    monkeypatch.setattr(threads, "thread_count", lambda: number)
    done = []

    def run(first, last, *arguments):
        assert arguments == ("an", "argument")
        done.extend(range(first, last))

    threads.spread(run, count, "an", "argument")
    assert sorted(done) == list(range(count))


class Watch:
    """Pieces of work that say when they began and ended; one of them, of the caller's or not, fails."""

    def __init__(self, error, *, in_caller):
        self.error, self.in_caller = error, in_caller
        self.began, self.ended = [], []
        self.others, self.failed = threading.Event(), threading.Event()
        self.caller = threading.current_thread()

    def __call__(self, first, last):
        mine = threading.current_thread() is self.caller
        if not mine:
            self.others.set()
        if mine == self.in_caller and not self.failed.is_set() and self.others.wait(10):
            self.failed.set()
            raise self.error
        self.began.append(first)
        self.failed.wait(10)
        threading.Event().wait(0.3)
        self.ended.append(first)


@pytest.mark.parametrize("in_caller", [True, False])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError("no room")], ids=repr)
def test_an_error_in_one_piece_waits_for_the_others(monkeypatch, error, in_caller):
    monkeypatch.setattr(threads, "thread_count", lambda: 4)
    watch = Watch(error, in_caller=in_caller)
    with pytest.raises(type(error)):
        threads.spread(watch, 100)
    assert watch.began
    assert sorted(watch.ended) == sorted(watch.began)
    if in_caller:
        assert len(watch.ended) < 12, "an interrupt leaves the pieces, 16 in all, that have not begun"
    done = []
    threads.spread(lambda first, last: done.extend(range(first, last)), 30)
    assert sorted(done) == list(range(30))


@pytest.mark.skipif(not JIT, reason="numba's threads belong to compiled kernels")
@pytest.mark.parametrize("count", [1, 2])
def test_the_number_of_threads_changes_no_bit(monkeypatch, count):
    import numba

    monkeypatch.setattr(threads, "WORTH", 0)
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(min(count, before))
        assert threads.thread_count() == min(count, before)
        for m, n in ((1, 200), (200, 3), (40, 70)):
            agree(*sides(E2M1, E2M1, m, 200, n), [*FEW, mxfp.FixedPoint(40, -20, "wrap")])
    finally:
        numba.set_num_threads(before)


@pytest.mark.parametrize("number", [1, 3, 8])
def test_however_many_threads_share_a_product(monkeypatch, number):
    monkeypatch.setattr(threads, "WORTH", 0)
    monkeypatch.setattr(threads, "thread_count", lambda: number)
    monkeypatch.setattr(kernels, "thread_count", lambda: number)
    for m, n in ((1, size(200, 70)), (size(100, 14), 3), (size(40, 7), size(70, 33))):
        agree(*sides(E2M1, E2M1, m, size(200, 20), n, nan_share=0.01, scales=(100, 150)), FEW)


def test_several_python_threads_multiply_at_once():
    cases = []
    for m, n in ((1, 70), (size(30, 7), 33)):
        for accumulator in FEW:
            a, b = sides(E2M1, E2M1, m, size(200, 20), n)
            expected = mxfp.matmul(a, b, accumulator=accumulator, engine="reference")
            cases += [(a, b, accumulator, expected), (a, mxfp.prepare(b), accumulator, expected)]
    wrong = []

    def work(turn):
        try:
            for a, b, accumulator, expected in cases[turn:] + cases[:turn]:
                for _ in range(size(10, 1)):
                    same_bits(mxfp.matmul(a, b, accumulator=accumulator), expected)
        except BaseException as error:
            wrong.append(error)

    workers = [threading.Thread(target=work, args=(turn,)) for turn in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


PRODUCT = """
import os, sys, threading, time
import mxfp, numpy as np
from mxfp.kernels import threads
threads.WORTH = 0
a = mxfp.quantize(np.arange(640.0).reshape(10, 64) % 37)
w = mxfp.prepare(mxfp.quantize(np.arange(64 * 70.0).reshape(64, 70) % 23, axis=0))
expected = mxfp.matmul(a, w, engine="reference").tobytes()
def same(_=None):
    return mxfp.matmul(a, w).tobytes() == expected
"""
FORKED = """
print(same())
child = os.fork()
if child == 0:
    os._exit(0 if same() else 3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), same())
"""
POOLED = """
import multiprocessing
print(same())
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(all(pool.map(same, range(4))), same())
"""
LATE = """
import atexit
atexit.register(lambda: print("at exit", same()))
def late():
    threading.main_thread().join()
    print("after main", same())
if sys.argv[1:]:
    print(same())
threading.Thread(target=late).start()
"""


def run_script(text, *arguments):
    """Run a script of two threads in a process of its own -> what it prints, in words."""
    environment = {**os.environ, "NUMBA_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PRODUCT + text, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=HERE,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_forked_from_a_process_that_has_multiplied_gets_the_same_bits():
    assert run_script(FORKED) == ["True", "0", "True"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_pool_of_forked_workers_gets_the_same_bits():
    assert run_script(POOLED) == ["True", "True", "True"]


@pytest.mark.parametrize("warm", [(), ("warm",)], ids=["its first product", "not its first"])
def test_a_thread_that_outlives_the_main_one_and_a_last_word_at_exit_multiply_too(warm):
    assert run_script(LATE, *warm) == [*["True"][: len(warm)], "after", "main", "True", "at", "exit", "True"]


# --- instruction sets


def test_an_instruction_set_is_chosen_by_the_environment(monkeypatch):
    a, b = sides(E2M1, E2M1, 2, 40, 3)
    for name in isa.available():
        monkeypatch.setenv(isa.VARIABLE, name)
        assert isa.chosen() == name
        agree(a, b, FEW[:1])
    monkeypatch.setenv(isa.VARIABLE, "")
    assert isa.chosen() == isa.available()[0]


@pytest.mark.parametrize("name", ["sse9", "AVX2", " portable"])
def test_an_unknown_instruction_set_is_refused_with_those_that_there_are(monkeypatch, name):
    a, b = sides(E2M1, E2M1, 2, 40, 3)
    monkeypatch.setenv(isa.VARIABLE, name)
    with pytest.raises(ValueError, match=rf"portable here, got {name!r}") as caught:
        mxfp.matmul(a, b)
    assert "MXFP_ISA" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert mxfp.matmul(a, b, engine="reference").shape == (2, 3)


UNKNOWN = """
import mxfp, numpy as np
q = mxfp.quantize(np.ones((2, 64)))
for _ in range(2):
    try:
        mxfp.matmul(q, q.T)
    except ValueError as error:
        print("MXFP_ISA" in str(error), "sse9" in str(error))
print(mxfp.matmul(q, q.T, engine="reference")[0, 0])
"""


def test_an_unknown_instruction_set_stops_nothing_else_in_a_fresh_process():
    environment = {**os.environ, isa.VARIABLE: "sse9"}
    done = subprocess.run(
        [sys.executable, "-c", UNKNOWN],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=HERE,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True"] * 4 + ["64.0"]


def test_an_instruction_set_that_this_machine_lacks_is_refused(monkeypatch):
    monkeypatch.setattr(isa, "available", lambda: ("portable",))
    with pytest.raises(ValueError, match=r"of portable here, got 'avx2'"), isa.using("avx2"):
        pass
    monkeypatch.setenv(isa.VARIABLE, "avx512vnni")
    with pytest.raises(ValueError, match=r"MXFP_ISA.*of portable here, got 'avx512vnni'"):
        mxfp.matmul(*sides(E2M1, E2M1, 2, 40, 3))


def test_an_instruction_set_is_given_back_even_after_an_error(monkeypatch):
    monkeypatch.setattr(isa, "available", lambda: isa.INSTRUCTION_SETS)
    before = isa.chosen()
    seen = []

    def stop():
        with isa.using("portable"):
            seen.append(isa.chosen())
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        stop()
    assert seen == ["portable"]
    assert isa.chosen() == before
    with isa.using("avx2"), isa.using("portable"):
        with isa.using("avx2"):
            assert isa.chosen() == "avx2"
        assert isa.chosen() == "portable"
    assert isa.chosen() == before


# --- scales as exponent fields


@pytest.mark.parametrize("total", [-130, -128, -127, -126, -125, 125, 126, 127, 128, 129, 131])
def test_scales_whose_product_is_at_an_end_of_float32(total):
    """Exponents of both scales and the LSBs add up to one beside, at and beyond the normals' ends."""
    rng = np.random.default_rng(total % 100)
    for lead in (-60, 0, 50):
        first = rng.integers(0, 16, (7, 96)).astype(np.uint8)
        second = rng.integers(0, 16, (96, 35)).astype(np.uint8)
        first[2, :32], second[32:64, 5] = 0, 8
        scales_a = np.full((7, 3), 127 + lead, np.uint8)
        scales_b = np.full((3, 35), np.clip(127 + total + 2 - lead, 1, 254), np.uint8)
        scales_a[2, 0], scales_b[1, 5] = 0, 0
        a, b = blocks(first, scales_a), blocks(second, scales_b, axis=0)
        for right in (b, mxfp.prepare(b)):
            with unpacked():
                same_bits(mxfp.matmul(a, right), mxfp.matmul(a, b, engine="reference"))
            same_bits(mxfp.matmul(a, right), mxfp.matmul(a, b, engine="reference"))


def test_a_live_block_with_scale_code_0_among_blocks_of_zeros():
    codes = np.zeros((64, 40), np.uint8)
    codes[:, 7] = 7
    scales = np.zeros((2, 40), np.uint8)
    b = blocks(codes, scales, axis=0)
    for scale in (127, 150, 230, 254):
        a = blocks(np.full((6, 64), 7), np.full((6, 2), scale))  # no rows are filled up
        for right in (b, mxfp.prepare(b)):
            same_bits(mxfp.matmul(a, right), mxfp.matmul(a, b, engine="reference"))
            with unpacked():
                same_bits(mxfp.matmul(a, right), mxfp.matmul(a, b, engine="reference"))


# --- formats of one's own

OWN_ELEMENTS = [
    mxfp.E2M1,
    mxfp.ElementFormat("INT4", 1, 2, 1, Specials.NONE, True),
    mxfp.ElementFormat("E3M0", 3, 0, 3, Specials.NAN_AT_TOP),
    mxfp.ElementFormat("E2M1 of IEEE", 2, 1, 1, Specials.IEEE),
    mxfp.INT8,
    mxfp.E4M3,
]
OWN_SCALES = [
    mxfp.ScaleFormat("UE4M2", 4, 2, 7, True),
    mxfp.ScaleFormat("UE5M3", 5, 3, 15, True),
    mxfp.ScaleFormat("UE4M0", 4, 0, 7, True),
    mxfp.ScaleFormat("UE4M3 without zero", 4, 3, 7, False),
    mxfp.ScaleFormat("E8M0, bias 0", 8, 0, 0, False),
    mxfp.ScaleFormat("E8M0, bias 200", 8, 0, 200, False),
    mxfp.ScaleFormat("E8M0, bias 254", 8, 0, 254, False),
]


@pytest.mark.parametrize("scale", OWN_SCALES, ids=name_of)
@pytest.mark.parametrize("block", [16, 32])
def test_formats_of_ones_own(scale, block):
    """No kernel knows a format by its bits: tables, and what float32 has of them, decide."""
    rng = np.random.default_rng(block)
    accumulators = [*FEW, mxfp.Sequential("bfloat16"), mxfp.FixedPoint(40, -10, "wrap")]
    for element in OWN_ELEMENTS:
        rules = ("nearest",) if scale.mantissa_bits else ("floor",)
        fmt = mxfp.BlockFormat(f"{element.name} by {scale.name}", element, scale, block, rules)
        for m in size((1, 6, 20), (1,)):
            a, b = sides(fmt, fmt, m, size(100, 40), 35, specials=True, seed=m)
            codes, scales = b.codes.copy(), b.scales.copy()
            scales[rng.random(scales.shape) < 0.4] = 0
            codes[:block] = element.code_count // 2  # -0, but -2 of integers
            b = mxfp.BlockArray(codes, scales, fmt, 0)
            for accumulator in accumulators:
                expected = mxfp.matmul(a, b, accumulator=accumulator, engine="reference")
                for right in (b, mxfp.prepare(b)):
                    same_bits(mxfp.matmul(a, right, accumulator=accumulator), expected)
            assert mxfp.prepare(b).to_blocks() == b


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("group", [4, 8, 16, 32])
def test_groups_that_k_does_not_have_leave_a_negative_zero(group, dtype):
    """-2**-256 rounds to -0, and a term of +0 after it would make +0 of that."""
    accumulator = mxfp.Sequential(dtype, group)
    for k in (1, group, group + 1, 32):
        row = np.zeros(k, np.uint8)
        row[0] = 9  # -0.5
        scales = np.zeros((1, -(-k // 32)))
        a, b = blocks([row], scales), blocks(row[:, None] & 7, scales.T, axis=0)
        expected = -0.0 if k <= group and dtype != "float64" else 0.0
        for right in (b, mxfp.prepare(b)):
            found = mxfp.matmul(a, right, accumulator=accumulator)
            same_bits(found, mxfp.matmul(a, b, accumulator=accumulator, engine="reference"))
            if dtype != "float64":
                assert str(float(found[0, 0])) == str(expected), k
