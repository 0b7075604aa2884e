# SPDX-License-Identifier: Apache-2.0
"""Side room off 4: codes <-> packed bytes. Nibble orders by name.

`pairs` is a little-endian bit stream along the last axis: element 0 in the lowest bits of the first
byte, so that two 4-bit codes share a byte, low nibble first, and four 6-bit codes share three bytes. It
is what torch, ONNX, compressed-tensors and gpt-oss files use. `halves` is GGUF's: within each block,
byte j holds element j in its low nibble and element j + block/2 in its high one.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from .blocks import blocks_along, check_choice
from .encode import SLAB
from .floats import plain_array
from .formats import BlockFormat, Codes, ElementFormat, check_codes, element_of

Order = Literal["pairs", "halves"]
"""Where in the bytes each code goes."""
ORDERS: Final[tuple[Order, ...]] = ("pairs", "halves")


def _halves_block(fmt: ElementFormat | BlockFormat) -> int:
    if not isinstance(fmt, BlockFormat) or fmt.element.bits != 4 or fmt.block % 2:
        element, block = element_of(fmt), f" in blocks of {fmt.block}" if isinstance(fmt, BlockFormat) else ""
        raise ValueError(
            "order 'halves' is for block formats of 4-bit elements in even blocks such as MXFP4, got "
            f"{fmt!r} of {element.bits} bits{block}"
        )
    return fmt.block


def packed_length(count: int, fmt: ElementFormat | BlockFormat, *, order: Order = "pairs") -> int:
    """Bytes that `count` codes take along the last axis.

    >>> import mxfp
    >>> packed_length(33, mxfp.MXFP4), packed_length(33, mxfp.MXFP4, order="halves")
    (17, 32)
    """
    check_choice(order, ORDERS, "order")
    _check_count(count)
    if order == "halves":
        block = _halves_block(fmt)
        return blocks_along(count, block) * block // 2
    return -(-count * element_of(fmt).bits // 8)


def _check_count(count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 0:
        raise ValueError(f"count is the number of codes along the last axis, got {count!r}")


def _swap_halves(codes: Codes, block: int) -> Codes:
    """(..., K) in element order -> (..., K) in pair order of the halves layout; K is whole blocks."""
    split = codes.reshape(*codes.shape[:-1], codes.shape[-1] // block, 2, block // 2)
    return np.swapaxes(split, -1, -2).reshape(codes.shape)


def _unswap_halves(codes: Codes, block: int) -> Codes:
    split = codes.reshape(*codes.shape[:-1], codes.shape[-1] // block, block // 2, 2)
    return np.swapaxes(split, -1, -2).reshape(codes.shape)


def _padded(codes: Codes, multiple: int) -> Codes:
    padding = -codes.shape[-1] % multiple
    return np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, padding)]) if padding else codes


def _join_nibbles(codes: Codes) -> Codes:
    """(..., 2n) codes -> (..., n) bytes, even codes low. Two codes are one integer of 16 bits, at first."""
    pairs = np.ascontiguousarray(codes).reshape(-1).view("<u2")
    out = np.empty(pairs.size, np.uint8)
    for start in range(0, pairs.size, SLAB):
        part = slice(start, start + SLAB)
        joined = pairs[part] >> 4
        joined |= pairs[part]
        out[part] = joined  # its low byte
    return out.reshape(*codes.shape[:-1], codes.shape[-1] // 2)


def _split_nibbles(data: Codes) -> Codes:
    """The inverse of `_join_nibbles`."""
    flat = np.ascontiguousarray(data).reshape(-1)
    pairs = np.empty(flat.size, "<u2")
    for start in range(0, flat.size, SLAB):
        part = slice(start, start + SLAB)
        low = flat[part].astype(np.uint16)
        pairs[part] = (low << 4 | low) & 0x0F0F
    return pairs.view(np.uint8).reshape(*data.shape[:-1], 2 * data.shape[-1])


def pack(codes: Any, fmt: ElementFormat | BlockFormat, *, order: Order = "pairs") -> Codes:
    """uint8 codes (..., K), one a byte -> uint8 bytes (..., ceil(K * bits / 8)), packed along the last axis.

    order: "pairs" (element 0 in the low nibble) or "halves" (GGUF; whole blocks, so a last partial block
    is filled with 0). Unused bits are 0.

    Raises ValueError for a code out of range, an unknown order, or "halves" without a 4-bit block format.

    >>> import mxfp
    >>> mxfp.pack([1, 15, 2, 5], mxfp.E2M1).tobytes().hex()
    'f152'
    """
    element = element_of(fmt)
    check_choice(order, ORDERS, "order")
    checked = check_codes(codes, element.code_count, f"{element.name} codes")
    if checked.ndim == 0:
        raise ValueError("pack needs codes of at least one dimension, got a scalar")
    if order == "halves":
        block = _halves_block(fmt)
        checked = _swap_halves(_padded(checked, block), block)
    if element.bits == 8:
        return checked.copy()
    if element.bits == 4:
        return _join_nibbles(_padded(checked, 2))
    count = checked.shape[-1]
    bits = np.unpackbits(checked[..., None], axis=-1, count=element.bits, bitorder="little")
    stream = bits.reshape(*checked.shape[:-1], count * element.bits)
    return np.packbits(stream, axis=-1, bitorder="little")


def unpack(
    data: Any, fmt: ElementFormat | BlockFormat, count: int, *, order: Order = "pairs"
) -> NDArray[np.uint8]:
    """uint8 bytes (..., B) -> uint8 codes (..., count), the inverse of `pack`.

    Raises ValueError if B is not what `count` codes take, or if a bit beyond them is set (a sign that
    the count or the order is wrong); TypeError for other dtypes than uint8.

    >>> import mxfp, numpy as np
    >>> mxfp.unpack(np.frombuffer(bytes.fromhex("a201"), np.uint8), mxfp.E2M1, 3).tolist()
    [2, 10, 1]
    """
    element = element_of(fmt)
    check_choice(order, ORDERS, "order")
    _check_count(count)
    raw = isinstance(data, (bytes, bytearray, memoryview))
    try:
        data = np.frombuffer(data, np.uint8) if raw else plain_array(data, "packed data")
    except ValueError as error:
        raise TypeError(f"packed data is uint8 of at least one dimension: {error}") from None
    if data.dtype != np.uint8 or data.ndim == 0:
        raise TypeError(f"packed data is uint8 of at least one dimension, got {data.dtype} {data.shape}")
    expected = packed_length(int(count), fmt, order=order)
    if data.shape[-1] != expected:
        raise ValueError(
            f"{count} codes of {element.name} in order {order!r} take {expected} bytes, got {data.shape[-1]}"
        )
    if element.bits == 8:
        codes = data.copy()
    elif element.bits == 4:
        codes = _split_nibbles(data)
    else:
        bits = np.unpackbits(data, axis=-1, bitorder="little")
        whole = bits.shape[-1] // element.bits
        bits, rest = bits[..., : whole * element.bits], bits[..., whole * element.bits :]
        codes = np.packbits(bits.reshape(*data.shape[:-1], whole, element.bits), axis=-1, bitorder="little")[
            ..., 0
        ]
        if rest.any():
            raise ValueError(f"bits beyond the {count} codes are set; is the count right?")
    if order == "halves":
        codes = _unswap_halves(codes, _halves_block(fmt))
    if codes[..., count:].any():
        raise ValueError(f"bits beyond the {count} codes are set; is the count right?")
    return np.asarray(codes[..., :count], np.uint8)
