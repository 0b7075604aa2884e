# SPDX-License-Identifier: Apache-2.0
"""Hex digits of a field -> its values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..formats import Bools, Floats
from .layout import Field


def lengths_of(f: Field) -> tuple[int, ...]:
    """How many hex digits a field may have: each element filled up to whole digits, or packed bit by bit."""
    return f.count * f.bits // 4, -(-f.count * f.width // 4)


def field_values(digits: NDArray[np.uint8], f: Field) -> tuple[NDArray[Any], Bools]:
    """(n, digits) of a field, most significant first -> (n, count) values, and whether each row fits.

    A signed value may be filled up with zeros or with its sign.
    """
    n, length = digits.shape
    if length == f.count * f.bits // 4:
        each = f.bits // 4
        if f.count == 1 and each == 8:  # one word of 32 bits: the usual result
            nibbles = digits[:, ::2] << 4 | digits[:, 1::2]
            raw = nibbles.view(">u4").astype(np.uint64)
        else:
            raw = np.zeros((n, f.count), np.uint64)
            turned = digits[:, ::-1].reshape(n, f.count, each)
            for digit in range(each):
                raw |= turned[:, :, digit].astype(np.uint64) << np.uint64(4 * digit)
    else:
        bits = np.unpackbits(digits[:, ::-1, None], axis=2, bitorder="little", count=4).reshape(n, -1)
        fits = np.asarray(~bits[:, f.count * f.width :].any(axis=1))
        elements = bits[:, : f.count * f.width].reshape(n, f.count, f.width)
        raw = np.zeros((n, f.count), np.uint64)
        for bit in range(f.width):
            raw |= elements[:, :, bit].astype(np.uint64) << np.uint64(bit)
        return _signed(raw, f), fits
    if f.width == f.bits:
        return _signed(raw, f), np.ones(n, np.bool_)
    above = raw >> np.uint64(f.width)
    good = above == 0
    if f.signed:
        sign = raw >> np.uint64(f.width - 1) & np.uint64(1)
        good |= (sign == 1) & (above == np.uint64((1 << (f.bits - f.width)) - 1))
    return _signed(raw & np.uint64((1 << f.width) - 1), f), good.all(axis=1)


def floats_of(bits: NDArray[Any], dtype: np.dtype[Any]) -> Floats:
    """Patterns -> float64; a signalling NaN becomes a quiet one without a warning."""
    with np.errstate(invalid="ignore"):
        return bits.astype(f"u{dtype.itemsize}").view(dtype).astype(np.float64)


def _signed(raw: NDArray[np.uint64], f: Field) -> NDArray[Any]:
    """Bits of the field's width -> int64 where it is signed."""
    if not f.signed:
        return raw
    shift = np.uint64(64 - f.width)
    return np.asarray((raw << shift).astype(np.int64) >> np.int64(64 - f.width))
