# SPDX-License-Identifier: Apache-2.0
"""Side room off 4: a matrix laid out once for the kernels, and back again bit for bit."""

import copy
import pickle
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mxfp
from mxfp import prepared
from mxfp.blocks import ENGINES
from mxfp.matmul import multiply_count
from support import DTYPES, FORMATS, name_of, random_blocks, same_bits, same_blocks

LENGTHS = (0, 1, 31, 32, 33, 70)


def weight(fmt, k, n, seed=1, **options):
    """Any (K, N) matrix of a format, in blocks along K."""
    return random_blocks(fmt, (k, n), seed, axis=0, specials=True, nan_share=0.1, **options)


def prepare(q):
    """Prepared by either engine: the same bytes, none of which can be written to."""
    found, expected = (mxfp.prepare(q, engine=engine) for engine in ("numba", "reference"))
    assert np.array_equal(found.codes, expected.codes)
    assert np.array_equal(found.scales, expected.scales)
    assert (found.format, found.shape, found.tensor_scale) == (q.format, q.shape, q.tensor_scale)
    for array in (found.codes, found.scales, expected.codes, expected.scales):
        assert not array.flags.writeable
    return found


# --- there and back


@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_what_was_prepared_comes_back_bit_for_bit(fmt):
    for k in LENGTHS:
        for n in LENGTHS:
            q = weight(fmt, k, n)
            w = prepare(q)
            same_blocks(w.to_blocks(), q.codes, q.scales)
            assert w.to_blocks() == q
            assert (w.shape, w.ndim, w.axis, w.block_axis) == ((k, n), 2, 0, 0)
            assert (w.format, w.tensor_scale) == (fmt, q.tensor_scale)


@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4, mxfp.MXFP8_E4M3], ids=name_of)
def test_matrices_that_are_laid_out_in_slabs_come_back_too(monkeypatch, fmt):
    q = weight(fmt, 70, 100)
    whole = prepare(q)
    for codes in (1, 3 * 96 * 32):
        monkeypatch.setattr(prepared, "PANELS", codes)
        assert prepare(q) == whole
        assert np.array_equal(prepare(q).marked, whole.marked)
        assert whole.to_blocks() == q


@given(st.data())
def test_any_matrix_comes_back(data):
    fmt = data.draw(st.sampled_from(FORMATS))
    k, n = data.draw(st.integers(0, 100)), data.draw(st.integers(0, 70))
    q = weight(fmt, k, n, data.draw(st.integers(0, 2**32)))
    assert prepare(q).to_blocks() == q


@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4, mxfp.MXINT8], ids=name_of)
def test_every_memory_layout_is_prepared_alike(fmt):
    q = weight(fmt, 70, 40)
    expected = prepare(q)
    for order in "CF":
        parts = [np.array(x, order=order) for x in (q.codes, q.scales)]
        doubled = [np.repeat(np.repeat(x, 2, 0), 3, 1) for x in parts]
        for x in (*parts, *doubled):
            x.flags.writeable = False
        for codes, scales in (parts, [x[::2, 1::3] for x in doubled]):
            assert prepare(mxfp.BlockArray(codes, scales, fmt, 0, q.tensor_scale)) == expected
        backwards = [x[::-1, ::-1][::-1, ::-1] for x in parts]
        assert prepare(mxfp.BlockArray(*backwards, fmt, -2, q.tensor_scale)) == expected
    rows = mxfp.BlockArray(q.codes.T.copy(), q.scales.T.copy(), fmt, 1, q.tensor_scale)
    assert prepare(rows.T) == expected


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_its_values_are_those_of_the_block_array(fmt, engine):
    q = weight(fmt, 70, 5)
    for dtype in DTYPES.values():
        expected = mxfp.dequantize(q, dtype=dtype, engine="reference")
        same_bits(prepare(q).dequantize(dtype=dtype, engine=engine), expected)
    same_bits(prepare(q).dequantize(), mxfp.dequantize(q))


# --- the layout that the docstring describes


@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4], ids=name_of)
def test_a_nibble_lies_in_its_panel_block_eight_column_and_byte(fmt):
    k, n, blocks = 100, 70, 4
    for i, j in [(0, 0), (3, 0), (4, 0), (7, 1), (8, 0), (31, 31), (32, 32), (69, 33), (99, 69), (45, 63)]:
        codes = np.zeros((k, n), np.uint8)
        codes[i, j] = 13
        w = prepare(mxfp.BlockArray(codes, np.zeros((-(-k // fmt.block), n), np.uint8), fmt, 0))
        assert w.codes.shape == (3 * blocks * 512,)
        eight = (j // 32 * blocks + i // 32) * 4 + i % 32 // 8
        assert np.flatnonzero(w.codes).tolist() == [eight * 128 + j % 32 * 4 + i % 4]
        assert w.codes.max() == (13 if i % 8 < 4 else 13 << 4)


@pytest.mark.parametrize("fmt", [mxfp.MXFP6_E3M2, mxfp.MXFP8_E4M3, mxfp.MXINT8], ids=name_of)
def test_a_wider_code_has_a_byte_to_itself(fmt):
    k, n, blocks = 70, 40, 3
    for i, j in [(0, 0), (3, 1), (4, 0), (31, 31), (32, 32), (69, 39)]:
        codes = np.zeros((k, n), np.uint8)
        codes[i, j] = fmt.element.code_count - 1
        w = prepare(mxfp.BlockArray(codes, np.zeros((blocks, n), np.uint8), fmt, 0))
        assert w.codes.shape == (2 * blocks * 1024,)
        four = (j // 32 * blocks + i // 32) * 8 + i % 32 // 4
        assert np.flatnonzero(w.codes).tolist() == [four * 128 + j % 32 * 4 + i % 4]


@pytest.mark.parametrize(("fmt", "per_panel"), [(mxfp.MXFP4, 3), (mxfp.NVFP4, 6)], ids=str)
def test_a_scale_code_lies_in_its_panel_block_and_column(fmt, per_panel):
    count = -(-70 // fmt.block)
    for block, j in [(0, 0), (1, 0), (count - 1, 31), (0, 32), (count - 1, 69)]:
        scales = np.zeros((count, 70), np.uint8)
        scales[block, j] = 77
        w = prepare(mxfp.BlockArray(np.zeros((70, 70), np.uint8), scales, fmt, 0))
        assert w.scales.shape == (3 * per_panel * 32,)
        assert np.flatnonzero(w.scales).tolist() == [(j // 32 * per_panel + block) * 32 + j % 32]
        assert w.scales.max() == 77


def test_four_bits_and_a_quarter_and_what_the_padding_adds():
    for k, n in ((32, 32), (64, 32), (128, 96)):
        assert prepare(weight(mxfp.MXFP4, k, n)).nbytes * 8 == 4.25 * k * n
        assert prepare(weight(mxfp.MXFP6_E2M3, k, n)).nbytes * 8 == 8.25 * k * n
        assert prepare(weight(mxfp.NVFP4, k, n)).nbytes * 8 == 4.5 * k * n + 32
    for k, n in ((1, 1), (31, 32), (32, 31)):
        assert prepare(weight(mxfp.MXFP4, k, n)).nbytes == 544
    assert prepare(weight(mxfp.MXFP4, 33, 33)).nbytes == 4 * 544
    assert prepare(weight(mxfp.MXFP4, 0, 33)).nbytes == 0
    w = prepare(weight(mxfp.NVFP4, 70, 33))
    assert w.nbytes == w.codes.nbytes + w.scales.nbytes + 4


def test_columns_with_a_nan_or_an_infinity_are_marked():
    codes, scales = np.zeros((70, 40), np.uint8), np.full((3, 40), 100, np.uint8)
    scales[2, 7] = 255
    codes[69, 33], codes[0, 34], codes[0, 35] = 0x7F, 0xFC, 0x7B
    q = mxfp.BlockArray(codes, scales, mxfp.MXFP8_E5M2, 0)
    assert np.flatnonzero(prepare(q).marked).tolist() == [7, 33, 34]
    q = mxfp.BlockArray(codes, scales, mxfp.MXFP8_E4M3, 0)
    assert np.flatnonzero(prepare(q).marked).tolist() == [7, 33]


# --- as an object


def test_equal_means_equal_bits():
    q = weight(mxfp.NVFP4, 40, 5)
    w = prepare(q)
    assert w == prepare(q)
    other = q.codes.copy()
    other[39, 4] ^= 1
    for changed in (
        mxfp.BlockArray(other, q.scales, mxfp.NVFP4, 0, q.tensor_scale),
        mxfp.BlockArray(q.codes, q.scales ^ 1, mxfp.NVFP4, 0, q.tensor_scale),
        mxfp.BlockArray(q.codes, q.scales, mxfp.NVFP4, 0, 2 * q.tensor_scale),
        mxfp.BlockArray(q.codes[:39], q.scales, mxfp.NVFP4, 0, q.tensor_scale),
        mxfp.BlockArray(q.codes[:, :4], q.scales[:, :4], mxfp.NVFP4, 0, q.tensor_scale),
    ):
        assert w != prepare(changed)
    zeros = [
        prepare(mxfp.BlockArray(np.zeros((32, 2), np.uint8), np.zeros((1, 2), np.uint8), fmt, 0))
        for fmt in (mxfp.MXFP6_E2M3, mxfp.MXFP6_E3M2)
    ]
    assert zeros[0] != zeros[1]
    assert w != q
    assert w != "w"
    with pytest.raises(TypeError, match="unhashable"):
        hash(w)


def test_its_repr_is_one_line_of_format_shape_and_size():
    w = prepare(weight(mxfp.MXFP4, 64, 64))
    assert repr(w) == "PreparedMatrix MXFP4 (64, 64): 2,176 bytes, 4.25 bits an element"
    assert repr(prepare(weight(mxfp.MXFP4, 0, 5))) == "PreparedMatrix MXFP4 (0, 5): 0 bytes"
    assert "(33, 31): 1,088 bytes, 8.508 bits" in repr(prepare(weight(mxfp.MXFP4, 33, 31)))


@pytest.mark.parametrize(
    "again",
    [
        lambda w: w,
        copy.copy,
        copy.deepcopy,
        *(lambda w, p=p: pickle.loads(pickle.dumps(w, p)) for p in range(2, pickle.HIGHEST_PROTOCOL + 1)),
    ],
    ids=["itself", "copy", "deepcopy", *(f"pickle {p}" for p in range(2, pickle.HIGHEST_PROTOCOL + 1))],
)
@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4], ids=name_of)
def test_copies_are_equal_and_as_read_only(fmt, again):
    q = weight(fmt, 40, 35)
    w = prepare(q)
    other = again(w)
    assert other == w
    assert other.to_blocks() == q
    assert np.array_equal(other.marked, w.marked)
    for array in (other.codes, other.scales, other.marked):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(FrozenInstanceError):
        other.codes = w.codes
    a = random_blocks(fmt, (2, 40), seed=2)
    same_bits(mxfp.matmul(a, other), mxfp.matmul(a, q, engine="reference"))


def test_panels_of_ones_own_are_kept_if_they_have_the_size():
    q = weight(mxfp.NVFP4, 40, 35)
    w = prepare(q)
    codes, scales = w.codes.copy(), w.scales.copy()
    other = mxfp.PreparedMatrix(codes, scales, mxfp.NVFP4, (40, 35), q.tensor_scale)
    codes[:], scales[:] = 0, 0
    assert other == w
    for parts, message in (
        ((w.codes[:-1], w.scales), r"codes of a PreparedMatrix NVFP4 \(40, 35\) are uint8 \(2048,\)"),
        ((w.codes, w.scales[1:]), r"scales .* are uint8 \(256,\).* got uint8 \(255,\)"),
        ((w.codes.astype(np.int8), w.scales), "got int8"),
        ((w.codes.tolist(), w.scales), "got list"),
    ):
        with pytest.raises(ValueError, match=message):
            mxfp.PreparedMatrix(*parts, mxfp.NVFP4, (40, 35), q.tensor_scale)
    with pytest.raises(ValueError, match="MXFP4 has no tensor scale"):
        mxfp.PreparedMatrix(np.zeros(0, np.uint8), np.zeros(0, np.uint8), mxfp.MXFP4, (0, 0), 2.0)


def test_the_block_array_that_it_was_made_from_can_be_forgotten():
    codes, scales = np.full((32, 3), 2, np.uint8), np.full((1, 3), 127, np.uint8)
    w = prepare(mxfp.BlockArray(codes, scales, mxfp.MXFP4, 0))
    codes[:], scales[:] = 0, 0
    assert set(w.dequantize().ravel().tolist()) == {1.0}


# --- what it refuses


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (np.ones((32, 3)), TypeError, r"prepare takes a BlockArray \(see mxfp.quantize\), got ndarray"),
        (None, TypeError, "got NoneType"),
        (mxfp.quantize(np.ones(32)), ValueError, r"a matrix \(K, N\), got MXFP4 \(32,\)"),
        (mxfp.quantize(np.ones((2, 32, 3)), axis=1), ValueError, r"got MXFP4 \(2, 32, 3\)"),
        (
            mxfp.quantize(np.ones((3, 64))),
            ValueError,
            r"along its first axis; MXFP4 \(3, 64\) is along axis -1 \(prepare\(q\.T\)",
        ),
    ],
    ids=["an array", "nothing", "a vector", "three axes", "blocks along N"],
)
def test_what_is_not_the_right_side_of_a_product_is_refused(given, error, message):
    for engine in ENGINES:
        with pytest.raises(error, match=message):
            mxfp.prepare(given, engine=engine)


def test_an_engine_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="engine must be one of 'numba', 'reference', got 'cuda'"):
        mxfp.prepare(weight(mxfp.MXFP4, 32, 2), engine="cuda")


def test_a_prepared_matrix_is_not_prepared_again():
    with pytest.raises(TypeError, match="got PreparedMatrix"):
        prepare(prepare(weight(mxfp.MXFP4, 32, 2)))


@pytest.mark.parametrize("block", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("element", [mxfp.MXFP4, mxfp.MXINT8], ids=name_of)
def test_smaller_blocks_that_divide_32_are_prepared(element, block):
    fmt = replace(element, name=f"blocks of {block}", block=block)
    for k in (1, 31, 33, 70):
        q = weight(fmt, k, 35)
        w = prepare(q)
        assert w.to_blocks() == q
        a = random_blocks(fmt, (2, k), seed=3)
        same_bits(mxfp.matmul(a, w), mxfp.matmul(a, q, engine="reference"))


@pytest.mark.parametrize("block", [3, 24, 48, 64, 128])
def test_blocks_that_do_not_divide_32_are_refused_by_name_and_size(block):
    fmt = replace(mxfp.MXFP4, name="wide", block=block)
    with pytest.raises(ValueError, match=f"divides 32, wide has {block}"):
        prepare(weight(fmt, 2 * block, 3))


# --- as the right side of a product


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_products_have_the_bits_of_the_block_array(fmt, engine):
    q = weight(fmt, 70, 35)
    w = prepare(q)
    for shape in ((70,), (1, 70), (3, 70), (2, 1, 70), (0, 70)):
        a = random_blocks(fmt, shape, seed=4, specials=True, nan_share=0.05)
        found = mxfp.matmul(a, w, engine=engine)
        same_bits(found, mxfp.matmul(a, q, engine="reference"))
        assert multiply_count(a, w) == multiply_count(a, q) == found.size * 70


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "accumulator",
    [
        mxfp.Exact("float32"),
        mxfp.Sequential("float16"),
        mxfp.Pairwise("float32"),
        mxfp.FixedPoint(40, -20, "wrap"),
        mxfp.BLACKWELL_MXFP4,
    ],
    ids=name_of,
)
def test_every_kind_of_accumulator_takes_it(accumulator, engine):
    q = random_blocks(mxfp.MXFP4, (70, 35), seed=1, axis=0, nan_share=0.05)
    a = random_blocks(mxfp.MXFP4, (2, 70), seed=2, nan_share=0.05)
    same_bits(
        mxfp.matmul(a, prepare(q), accumulator=accumulator, engine=engine),
        mxfp.matmul(a, q, accumulator=accumulator, engine="reference"),
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_no_rows_no_columns_and_no_elements(engine):
    for m, k, n in ((0, 40, 3), (2, 0, 3), (2, 40, 0), (0, 0, 0)):
        a, q = random_blocks(mxfp.MXFP4, (m, k), seed=1), weight(mxfp.MXFP4, k, n)
        same_bits(mxfp.matmul(a, prepare(q), engine=engine), np.zeros((m, n), np.float32))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_register_that_overflows_names_the_same_cell(engine):
    a, q = mxfp.quantize(np.full((2, 2, 32), 6.0)), mxfp.quantize(np.full((32, 2), 6.0), axis=0)
    with pytest.raises(mxfp.WidthError, match=r"block 0 of result \(0, 0, 0\).*1152.*signed 11 bits"):
        mxfp.matmul(a, prepare(q), accumulator=mxfp.FixedPoint(11, 0), engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("a", "error", "message"),
    [
        (
            mxfp.quantize(np.ones((5, 40))),
            ValueError,
            r"^a is MXFP4 \(5, 40\) along axis -1, b is MXFP4 \(64, 3\) along axis 0; "
            r"K is 40 in a and 64 in b$",
        ),
        (
            mxfp.quantize(np.ones((64, 64)), axis=0),
            ValueError,
            r"^a is MXFP4 \(64, 64\) along axis 0, b is MXFP4 \(64, 3\) along axis 0; .*axis 1 of a.*$",
        ),
        (
            mxfp.quantize(np.ones((5, 64)), mxfp.NVFP4),
            ValueError,
            r"^a is NVFP4 in blocks of 16, b is MXFP4 in blocks of 32; block sizes must be equal$",
        ),
        (np.ones((5, 64)), TypeError, "^a must be a BlockArray .*got ndarray$"),
    ],
    ids=["K", "axis", "block", "an array"],
)
def test_a_mismatch_names_both_sides_in_one_line(a, error, message, engine):
    w = prepare(mxfp.quantize(np.ones((64, 3)), axis=0))
    with pytest.raises(error, match=message):
        mxfp.matmul(a, w, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_it_is_the_right_side_only(engine):
    w = prepare(mxfp.quantize(np.ones((64, 64)), axis=0))
    with pytest.raises(TypeError, match=r"a must be a BlockArray.*got PreparedMatrix"):
        mxfp.matmul(w, w, engine=engine)


def test_live_scales_leave_out_nan_and_blocks_of_zeros():
    codes = np.full((70, 3), 2, np.uint8)
    codes[:32, 1], codes[:32, 2] = 0, 8
    scales = np.array([[130, 0, 0], [120, 255, 140], [125, 125, 125]], np.uint8)
    q = mxfp.BlockArray(codes, scales, mxfp.MXFP4, 0)
    assert mxfp.prepare(q).live_scales == (120, 140)
    codes[5, 2] = 9
    assert mxfp.prepare(mxfp.BlockArray(codes, scales, mxfp.MXFP4, 0)).live_scales == (0, 140)
    nothing = mxfp.BlockArray(np.zeros((0, 3), np.uint8), np.zeros((0, 3), np.uint8), mxfp.MXFP4, 0)
    assert mxfp.prepare(nothing).live_scales == (255, 0)
