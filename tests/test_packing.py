# SPDX-License-Identifier: Apache-2.0
"""Side room off 4: codes and bytes, against a bit stream written out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mxfp
from mxfp.packing import packed_length
from support import ELEMENTS, FORMATS, name_of, same_bits

ORDERS = ("pairs", "halves")


def stream(codes: list[int], width: int) -> bytes:
    """A little-endian bit stream: code i takes bits i * width and up of one long integer."""
    total = sum(code << (i * width) for i, code in enumerate(codes))
    return total.to_bytes(-(-len(codes) * width // 8), "little")


@pytest.mark.parametrize("fmt", ELEMENTS, ids=name_of)
@given(st.data())
def test_pairs_are_a_little_endian_bit_stream(fmt, data):
    codes = data.draw(st.lists(st.integers(0, fmt.code_count - 1), max_size=70))
    packed = mxfp.pack(np.array(codes, np.uint8), fmt)
    assert packed.tobytes() == stream(codes, fmt.bits)
    assert packed.size == packed_length(len(codes), fmt)
    assert mxfp.unpack(packed, fmt, len(codes)).tolist() == codes
    assert mxfp.unpack(packed.tobytes(), fmt, len(codes)).tolist() == codes


@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4], ids=name_of)
@pytest.mark.parametrize("count", [1, 15, 16, 17, 32, 33, 64, 100])
def test_halves_put_element_j_beside_element_j_plus_half_a_block(fmt, count):
    codes = np.random.default_rng(count).integers(0, 16, count).astype(np.uint8)
    packed = mxfp.pack(codes, fmt, order="halves")
    half = fmt.block // 2
    padded = np.zeros(-(-count // fmt.block) * fmt.block, np.uint8)
    padded[:count] = codes
    expected = []
    for first in range(0, padded.size, fmt.block):
        low, high = padded[first : first + half], padded[first + half : first + fmt.block]
        expected += [int(p) + 16 * int(q) for p, q in zip(low, high, strict=True)]
    assert packed.tolist() == expected
    assert packed.size == packed_length(count, fmt, order="halves")
    same_bits(mxfp.unpack(packed, fmt, count, order="halves"), codes)


@pytest.mark.parametrize("slab", [1, 3, 64])
def test_the_size_of_a_slab_changes_nothing(monkeypatch, slab):
    codes = np.random.default_rng(slab).integers(0, 16, (3, 65)).astype(np.uint8)
    packed = mxfp.pack(codes, mxfp.MXFP4)
    monkeypatch.setattr(mxfp.packing, "SLAB", slab)
    for other in (codes, np.asfortranarray(codes), codes[::-1, ::-1].copy()[::-1, ::-1]):
        same_bits(mxfp.pack(other, mxfp.MXFP4), packed)
    assert packed[1].tobytes() == stream(codes[1].tolist(), 4)
    for other in (packed, np.asfortranarray(packed)):
        same_bits(mxfp.unpack(other, mxfp.MXFP4, 65), codes)


def test_element_0_is_in_the_low_nibble():
    assert mxfp.pack([1, 2, 3], mxfp.E2M1).tobytes().hex() == "2103"
    block = [*range(16), *range(15, -1, -1)]
    assert mxfp.pack(block, mxfp.MXFP4, order="halves").tolist() == [j + 16 * (15 - j) for j in range(16)]


@pytest.mark.parametrize("fmt", [*ELEMENTS, *FORMATS], ids=name_of)
@pytest.mark.parametrize("shape", [(0,), (3, 0), (2, 5), (2, 3, 7), (0, 8)], ids=str)
def test_leading_axes_are_packed_row_by_row(fmt, shape):
    element = getattr(fmt, "element", fmt)
    codes = np.random.default_rng(1).integers(0, element.code_count, shape).astype(np.uint8)
    packed = mxfp.pack(codes, fmt)
    assert packed.shape == (*shape[:-1], packed_length(shape[-1], fmt))
    assert packed.dtype == np.uint8
    for row in np.ndindex(shape[:-1]):
        assert packed[row].tobytes() == stream(codes[row].tolist(), element.bits)
    same_bits(mxfp.unpack(packed, fmt, shape[-1]), codes)


@pytest.mark.parametrize("order", ORDERS)
def test_a_pack_of_8_bit_codes_is_a_copy_and_layouts_do_not_matter(order):
    codes = np.random.default_rng(1).integers(0, 16, (64, 6)).astype(np.uint8)
    same_bits(mxfp.pack(codes.T, mxfp.MXFP4, order=order), mxfp.pack(codes.T.copy(), mxfp.MXFP4, order=order))
    wide = mxfp.pack(codes, mxfp.E4M3)
    assert not np.shares_memory(wide, codes)
    packed = mxfp.pack(codes.T.copy(), mxfp.MXFP4, order=order)
    same_bits(mxfp.unpack(np.asfortranarray(packed), mxfp.MXFP4, 64, order=order), codes.T.copy())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: mxfp.pack([16], mxfp.E2M1), ValueError, r"0 … 15, got 16 at index \(0,\)"),
        (lambda: mxfp.pack([64], mxfp.E2M3), ValueError, r"0 … 63, got 64"),
        (lambda: mxfp.pack([1.5], mxfp.E2M1), TypeError, "float64"),
        (lambda: mxfp.pack(3, mxfp.E2M1), ValueError, "at least one dimension"),
        (lambda: mxfp.pack([1], mxfp.E2M1, order="big"), ValueError, "'pairs', 'halves', got 'big'"),
        (lambda: mxfp.pack([1], mxfp.E2M1, order="halves"), ValueError, "block formats of 4-bit"),
        (lambda: mxfp.pack([1], mxfp.MXFP8_E4M3, order="halves"), ValueError, "block formats of 4-bit"),
        (lambda: mxfp.pack([1], "E2M1"), TypeError, "element or block format"),
        (lambda: mxfp.unpack(np.zeros(2, np.uint8), mxfp.E2M1, 5), ValueError, "5 codes.*3 bytes, got 2"),
        (lambda: mxfp.unpack(np.zeros(2, np.uint8), mxfp.E2M1, 2), ValueError, "2 codes.*1 bytes, got 2"),
        (lambda: mxfp.unpack(np.zeros(2, np.int8), mxfp.E2M1, 4), TypeError, "int8"),
        (lambda: mxfp.unpack(np.uint8(2), mxfp.E2M1, 2), TypeError, r"\(\)"),
        (lambda: mxfp.unpack(np.zeros(2, np.uint8), mxfp.E2M1, -1), ValueError, "-1"),
        (lambda: mxfp.unpack(np.zeros(2, np.uint8), mxfp.E2M1, 4.0), ValueError, "4.0"),
        (lambda: mxfp.unpack(np.zeros(1, np.uint8), mxfp.E2M1, True), ValueError, "True"),
    ],
)
def test_what_cannot_be_packed_or_unpacked_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    ("fmt", "count", "order", "position"),
    [
        (mxfp.E2M1, 3, "pairs", 12),
        (mxfp.E2M1, 1, "pairs", 4),
        (mxfp.E2M3, 1, "pairs", 6),
        (mxfp.E2M3, 1, "pairs", 7),
        (mxfp.E3M2, 3, "pairs", 18),
        (mxfp.E3M2, 3, "pairs", 23),
        (mxfp.MXFP4, 31, "halves", 8 * 15 + 4),
        (mxfp.MXFP4, 40, "halves", 128 + 4),
    ],
)
def test_a_bit_beyond_the_codes_is_refused(fmt, count, order, position):
    packed = mxfp.pack(np.zeros(count, np.uint8), fmt, order=order)
    assert not mxfp.unpack(packed, fmt, count, order=order).any()
    packed[position // 8] |= 1 << (position % 8)
    with pytest.raises(ValueError, match=f"beyond the {count} codes"):
        mxfp.unpack(packed, fmt, count, order=order)


def test_every_bit_of_every_code_comes_back():
    for fmt in ELEMENTS:
        codes = np.arange(fmt.code_count, dtype=np.uint8)
        packed = mxfp.pack(codes, fmt)
        for bit in range(packed.size * 8):
            flipped = packed.copy()
            flipped[bit // 8] ^= 1 << (bit % 8)
            back = mxfp.unpack(flipped, fmt, codes.size)
            assert np.flatnonzero(back != codes).tolist() == [bit // fmt.bits]
