# SPDX-License-Identifier: Apache-2.0
"""What multiplies a pair of formats for an accumulator: which integers, and which of the kernels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

import ml_dtypes
import numpy as np

from ..accumulate import Accumulator, Exact, Sequential
from ..dot import OVERFLOWS
from ..formats import BlockFormat, ElementFormat
from ..integers import sum_width
from ..prepared import BLOCK
from ..registers import SHIFT_ROUNDINGS, FixedPoint, Fused
from . import isa

CHUNK: Final = 32
"""Blocks of a panel that are integers at a time: 32 kB of bytes."""


class Rounded(NamedTuple):
    """Sequential: float64 state, rounded to a narrower float after each addition; scales are values."""

    mantissa_bits: int
    lowest: int
    top: float


class Added(NamedTuple):
    """Sequential(float64), and Exact where float64 holds every sum: added as they are; scales are values."""

    mantissa_bits: int = 52


class Register(NamedTuple):
    """FixedPoint: int64 state; scales are exponents from the LSB on. rounding and overflow by their index."""

    width: int
    rounding: int
    overflow: int


class Aligned(NamedTuple):
    """Fused: float32 state; scales are powers of two. unit: exponent of one in sums whose scales are 1."""

    fraction_bits: int
    zero_exponent: int
    per_step: int
    unit: int


class Kind(NamedTuple):
    """How the integers of a pair are held: both dtypes, what is added to b's, and its name."""

    name: str
    a: Any
    b: Any
    offset: int


def kind_of(a: ElementFormat, b: ElementFormat, terms: int, name: str) -> Kind | None:
    """The narrowest integers that hold both sides and their sums of `terms`; None if float64 does not.

    Bytes of b are offset to be unsigned. AVX2 adds two products in int16, and up to half a block.
    """
    largest_a, largest_b = (int(np.abs(side.integers).max()) for side in (a, b))
    offset = -int(b.integers.min())
    if max(a.bits_of_integer, b.bits_of_integer) <= 8:
        pair = 2 * (int(b.integers.max()) + offset) * largest_a
        narrow = pair <= 32767 and terms // 2 * largest_a * largest_b <= 32767
        if narrow or name != "avx2":
            return Kind("bytes", np.dtype(np.int8), np.dtype(np.uint8), offset)
    total = terms * largest_a * largest_b
    if max(a.bits_of_integer, b.bits_of_integer) <= 16 and total < 1 << 31:
        return Kind("shorts", np.dtype(np.int16), np.dtype(np.int16), 0)
    return Kind("wide", np.dtype(np.float64), np.dtype(np.float64), 0) if total <= 1 << 53 else None


@dataclass(frozen=True)
class Plan:
    """How a pair and an accumulator are multiplied.

    kind: of integers. group: products in a term. bits: signed bits of a sum times both significands of
    scales. how: what adds terms. state: its dtype. vectors: whether a micro-kernel ends with it.
    """

    kind: Kind
    group: int
    bits: int
    how: Any
    state: np.dtype[Any]
    vectors: bool = False


SINGLE: Final = np.dtype(np.float32)
DOUBLE: Final = np.dtype(np.float64)
INT64: Final = np.dtype(np.int64)


def _rounded(dtype: np.dtype[Any]) -> Rounded:
    info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return Rounded(int(info.nmant), int(info.minexp), float(info.max))


def plan(a: BlockFormat, b: BlockFormat, accumulator: Accumulator) -> Plan | None:
    """How to multiply these with the instruction set in use; None where the reference does it."""
    return _plan(a, b, accumulator, isa.chosen())


@cache
def _plan(a: BlockFormat, b: BlockFormat, accumulator: Accumulator, name: str) -> Plan | None:
    group = accumulator.terms_of or a.block
    if BLOCK % a.block or a.block % group or group % 4:
        return None
    kind = kind_of(a.element, b.element, group, name)
    largest = (int(side.scale.significands.max()) for side in (a, b))
    significant = sum(n.bit_length() for n in largest if n > 1)
    bits = sum_width(a, b, group) + significant
    if kind is None or bits > 53:
        return None
    vectors = kind.name != "wide" and group in (16, 32)
    if isinstance(accumulator, Sequential):
        dtype = accumulator.result_dtype
        if (a.scale.has_zero or b.scale.has_zero) and not _keeps(a, b, dtype):
            return None
        if dtype == DOUBLE:
            return Plan(kind, group, bits, Added(), DOUBLE, vectors)
        whole = group == BLOCK or _keeps(a, b, SINGLE)
        if dtype == SINGLE and vectors and whole and bits <= 25 and _fits_float32(a, b):
            return Plan(kind, group, bits, _rounded(dtype), SINGLE, vectors)
        return Plan(kind, group, bits, _rounded(dtype), DOUBLE)
    if isinstance(accumulator, Exact):
        return Plan(kind, group, bits, Added(), DOUBLE, vectors)
    if isinstance(accumulator, FixedPoint) and accumulator.width <= 61:
        rounding, overflow = (
            SHIFT_ROUNDINGS.index(accumulator.rounding),
            OVERFLOWS.index(accumulator.overflow),
        )
        return Plan(kind, group, bits, Register(accumulator.width, rounding, overflow), INT64)
    if isinstance(accumulator, Fused):
        if accumulator.exponents != "scales" or accumulator.result_bits != 23:
            return None
        per_step = accumulator.step // group
        unit = a.element.lsb_exponent + b.element.lsb_exponent - a.scale.mantissa_bits - b.scale.mantissa_bits
        widest = accumulator.fraction_bits + max(bits + unit, 2) + per_step.bit_length()
        if widest > 53 or abs(accumulator.zero_exponent) > 400 or BLOCK * CHUNK % accumulator.step:
            return None
        step = Aligned(accumulator.fraction_bits, accumulator.zero_exponent, per_step, unit)
        return Plan(kind, group, bits, step, SINGLE)
    return None


def _keeps(a: BlockFormat, b: BlockFormat, dtype: np.dtype[Any]) -> bool:
    """Whether no term is below the dtype's smallest number, so that none rounds to -0.

    A micro-kernel goes on through the groups that fill up a block of K, and +0 would make +0 of a -0. Where
    a scale is zero, a sum below zero becomes -0 in all kernels, and would leave a -0 that +0 should end.
    """
    lsb = a.element.lsb_exponent + b.element.lsb_exponent
    info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return bool(a.scale.smallest * b.scale.smallest * 2.0**lsb >= float(info.smallest_subnormal))


def _fits_float32(a: BlockFormat, b: BlockFormat) -> bool:
    """Whether float32 has every scale of b, and of a times both LSBs all that are not too large.

    Those are looked for product by product.
    """
    lsb = a.element.lsb_exponent + b.element.lsb_exponent
    for fmt, shift, limit in ((a, lsb, 2.0**128), (b, 0, np.inf)):
        exact = np.ldexp(fmt.scale.values[fmt.scale.finite], shift)
        exact = exact[exact < limit]
        with np.errstate(over="ignore", under="ignore"):
            single = exact.astype(np.float32)
        if not np.array_equal(single, exact):
            return False
    return True
