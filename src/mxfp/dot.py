# SPDX-License-Identifier: Apache-2.0
"""Room 6: integers -> exact terms, one per block (OCP MX §6.2). Nothing is rounded here.

A term is an exact integer and an exponent, value sums * 2**exponents, for every pair of formats: the
integer takes in the significands of both scales, the exponent their exponents and both LSBs. Sums that
int64 cannot hold become Python integers, by their derived width.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from .blocks import BlockArray, blocks_along, check_choice
from .formats import BlockFormat, Bools, Codes, Floats, Integers
from .integers import WidthError, check_bits, saturate, sum_width, wrap

Overflow = Literal["raise", "wrap", "saturate"]
"""What a register does with a value it cannot hold."""
OVERFLOWS: Final[tuple[Overflow, ...]] = ("raise", "wrap", "saturate")

INT64_BITS: Final = 62
"""Widths up to this are computed in int64, two bits to spare; wider ones in Python integers."""


@dataclass(frozen=True)
class Terms:
    """Exact terms (..., n), one per block (or per group of `block_dots(group=…)`).

    sums: int64, or object (Python integers) where the width asks for it. exponents: int64; the value is
    sums * 2**exponents. bits: signed bits that any sum of this kind needs. unit: exponents - unit is the
    exponent of the scales alone. specials: float64, 0.0 for a finite term, else NaN or an infinity; None
    if all are finite. live: whether any product of the term is nonzero. factor: significand and exponent
    of the product of both tensor scales, outside the terms. group: products per term. leading: int64, for
    terms of one product only: the exponents of both elements and both scales, added (see
    `ElementFormat.exponents`); the product's magnitude is 2**leading times less than 4, or less than 16
    with scales that have mantissa bits.

    >>> import mxfp
    >>> q = mxfp.quantize([6.0] * 32)
    >>> terms = mxfp.block_dots(q, q)
    >>> terms.sums.tolist(), terms.exponents.tolist(), terms.fractions().tolist()
    ([4608], [-2], [Fraction(1152, 1)])
    """

    sums: NDArray[Any]
    exponents: Integers
    bits: int
    unit: int
    specials: Floats | None = None
    live: Bools | None = None
    factor: tuple[int, int] = (1, 0)
    group: int | None = None
    leading: Integers | None = None

    def __len__(self) -> int:
        """Number of terms of each dot product."""
        return int(self.sums.shape[-1])

    @property
    def scale_exponents(self) -> Integers:
        """(..., n) int64: the exponent of both scales, the LSBs of the elements left out."""
        return self.exponents - self.unit

    def fractions(self) -> NDArray[np.object_]:
        """(..., n) fractions.Fraction: each term's value; the sums of non-finite terms are 0."""

        def value(integer: int, exponent: int) -> Fraction:
            return Fraction(integer) * Fraction(2) ** exponent

        exact = np.frompyfunc(value, 2, 1)(self.sums.astype(object), self.exponents.astype(object))
        return np.asarray(exact, object)


@dataclass(frozen=True)
class Operand:
    """One side of a dot product, its block axis last and cut into groups: (rows, groups, group)."""

    format: BlockFormat
    codes: Codes
    scales: Codes  # (rows, groups): the scale of the block that each group lies in
    tensor_scale: float

    @cached_property
    def integers(self) -> Integers:
        """(rows, groups, group) int64 in LSB units; 0 for NaN and infinite codes, see `specials`."""
        return self.format.element.integers[self.codes]

    @property
    def leading(self) -> Integers:
        """(rows, groups) int64: the exponents of each group's first element and of its scale, added."""
        element, scale = self.format.element, self.format.scale
        return element.exponents[self.codes[..., 0]] + scale.exponents[self.scales] + scale.mantissa_bits

    @property
    def finite(self) -> bool:
        """No NaN scale, no NaN or infinite element."""
        element, scale = self.format.element, self.format.scale
        return bool(scale.finite[self.scales].all() and element.finite[self.codes].all())

    @property
    def values(self) -> Floats:
        """(rows, groups, group) float64, NaN and infinities where they are; scaled by 1 or NaN only."""
        nan_scale = np.where(self.format.scale.finite[self.scales], 1.0, np.nan)
        return self.format.element.values[self.codes] * nan_scale[..., None]


def operand(codes: Codes, scales: Codes, fmt: BlockFormat, tensor_scale: float, group: int) -> Operand:
    """Codes (rows, K) and scale codes (rows, blocks), block axis last -> Operand in groups.

    `group` divides the block. A partial last group is filled with zeros, which change no sum.
    """
    rows, length = codes.shape
    groups = blocks_along(length, group)
    filled = np.zeros((rows, groups * group), np.uint8)
    filled[:, :length] = codes
    return Operand(
        fmt,
        filled.reshape(rows, groups, group),
        np.repeat(scales, fmt.block // group, axis=1)[:, :groups],
        tensor_scale,
    )


def check_pair(a: Any, b: Any, right: tuple[type, ...] = (BlockArray,)) -> None:
    """TypeError or ValueError, printing both sides, unless a and b can be multiplied.

    right: what b may be.
    """
    for side, q, kinds in (("a", a, (BlockArray,)), ("b", b, right)):
        if not isinstance(q, kinds):
            raise TypeError(f"{side} must be a BlockArray (see mxfp.quantize), got {type(q).__name__}")
    if a.format.block != b.format.block:
        raise ValueError(
            f"a is {a.format.name} in blocks of {a.format.block}, b is {b.format.name} in blocks of "
            f"{b.format.block}; block sizes must be equal"
        )


def check_group(group: int | None, fmt: BlockFormat) -> int:
    """The number of products in a term: the block, or a divisor of it that was asked for."""
    if group is None:
        return fmt.block
    whole = isinstance(group, (int, np.integer)) and not isinstance(group, bool)
    if not whole or group < 1 or fmt.block % group:
        raise ValueError(
            f"group {group!r} must be an integer that divides the block of {fmt.block} of {fmt.name}"
        )
    return int(group)


def sums_of_products(a: Operand, b: Operand, *, outer: bool) -> NDArray[Any]:
    """(M, G, g), (N, G, g) -> (M, N, G) exact integers; with outer=False row by row, (M, G).

    Every partial sum is an integer below the derived width, so a float product of that many bits is
    exact in any order; that is what makes the reference fast. Wider elements are cut in two.
    """
    width = sum_width(a.format, b.format, a.codes.shape[-1])
    x, y = a.integers, b.integers
    if width <= 54:
        dtype = np.float32 if width <= 25 else np.float64
        return _contract(x.astype(dtype), y.astype(dtype), outer).astype(np.int64)
    half = max(a.format.element.bits_of_integer, b.format.element.bits_of_integer) // 2
    kind: Any = np.int64 if width <= INT64_BITS else object
    total: NDArray[Any] | int = 0
    for part_x, shift_x in _cut(x, half):
        for part_y, shift_y in _cut(y, half):
            part = _contract(part_x, part_y, outer).astype(np.int64).astype(kind)
            total = total + (part << (shift_x + shift_y))
    return np.asarray(total, kind)


def _cut(integers: Integers, half: int) -> tuple[tuple[Floats, int], tuple[Floats, int]]:
    """Integers -> low and high parts as float64, value = low + high * 2**half."""
    high = integers >> half
    low = integers - (high << half)
    return (low.astype(np.float64), 0), (high.astype(np.float64), half)


def _contract(x: NDArray[Any], y: NDArray[Any], outer: bool) -> NDArray[Any]:
    if not outer:
        return np.asarray((x * y).sum(axis=-1))
    product = np.matmul(x.transpose(1, 0, 2), y.transpose(1, 2, 0))  # (G, M, N)
    return np.moveaxis(product, 0, -1)


def _specials(a: Operand, b: Operand, *, outer: bool) -> Floats | None:
    """What IEEE arithmetic makes of NaN and infinities: 0.0 where a term is finite."""
    if a.finite and b.finite:
        return None
    x, y = a.values, b.values
    with np.errstate(invalid="ignore"):
        if outer:
            total = np.stack(
                [(x[:, None] * y[n][None, None]).sum(axis=-1)[:, 0] for n in range(len(y))], axis=1
            )
        else:
            total = (x * y).sum(axis=-1)
    return np.where(np.isfinite(total), 0.0, total)


def dots(
    a: Operand, b: Operand, *, outer: bool, width: int | None = None, overflow: Overflow = "raise"
) -> Terms:
    """Two operands -> Terms (M, N, G), or (M, G) row by row. See `block_dots` and `mxfp.matmul`."""
    sums = sums_of_products(a, b, outer=outer)
    bits = sum_width(a.format, b.format, a.codes.shape[-1])
    if width is not None:
        sums, bits = _fit(sums, width, overflow, a.format.block // a.codes.shape[-1]), width
    pick = (slice(None), None) if outer else (slice(None),)
    scale_a, scale_b = a.format.scale, b.format.scale
    for fmt, codes, index in ((scale_a, a.scales, pick), (scale_b, b.scales, ())):
        if not fmt.power_of_two:
            largest = int(fmt.significands.max())
            bits += largest.bit_length()
            sums = (sums if bits <= INT64_BITS else sums.astype(object)) * fmt.significands[codes][index]
    lsb = a.format.element.lsb_exponent + b.format.element.lsb_exponent
    unit = lsb - scale_a.mantissa_bits - scale_b.mantissa_bits
    exponents = scale_a.exponents[a.scales][pick] + scale_b.exponents[b.scales] + lsb
    live_sums = _contract((a.integers != 0).astype(np.float32), (b.integers != 0).astype(np.float32), outer)
    significant = (scale_a.significands[a.scales] > 0)[pick] & (scale_b.significands[b.scales] > 0)
    specials = _specials(a, b, outer=outer)
    if specials is not None:
        sums = np.where(specials != 0, 0, sums)
    return Terms(
        sums,
        exponents,
        bits,
        unit,
        specials,
        (live_sums > 0) & significant,
        _factor(a.tensor_scale, b.tensor_scale),
        a.codes.shape[-1],
        a.leading[pick] + b.leading if a.codes.shape[-1] == 1 else None,
    )


def _factor(a: float, b: float) -> tuple[int, int]:
    """Two float32 -> their exact product as an odd integer and an exponent."""
    product = Fraction(a) * Fraction(b)
    exponent = 1 - product.denominator.bit_length()
    significand = product.numerator
    zeros = (significand & -significand).bit_length() - 1
    return significand >> zeros, exponent + zeros


def _fit(sums: NDArray[Any], width: int, overflow: Overflow, per_block: int) -> NDArray[Any]:
    """Sums (..., n), `per_block` of them a block -> what a register of `width` bits makes of them."""
    outside = np.asarray((sums < -(1 << (width - 1))) | (sums > (1 << (width - 1)) - 1), np.bool_)
    if not outside.any():
        return sums
    if overflow == "raise":
        *index, term = (int(i) for i in np.argwhere(outside)[0])
        value = int(sums[(*index, term)])
        raise WidthError(
            "the sum of products is {}", "dot product", term // per_block, tuple(index), value, width
        )
    if width > INT64_BITS:
        sums = sums.astype(object)
    return np.asarray((wrap if overflow == "wrap" else saturate)(sums, width), sums.dtype)


def block_dots(
    a: BlockArray,
    b: BlockArray,
    *,
    width: int | None = None,
    overflow: Overflow = "raise",
    group: int | None = None,
) -> Terms:
    """Two BlockArrays of one shape (..., K), block axis last -> Terms (..., ceil(K / block)). OCP MX §6.2.

    The dot products of a and b, row by row, up to where they are exact: one term per block. Leading
    axes broadcast. width: signed bits of the register that holds a sum of products; None is the width
    derived from the formats (MXFP4: 14), which cannot overflow. overflow: "raise" is a WidthError naming
    block, sum and width. group: products per term, a divisor of the block (tensor cores use 16).

    Raises ValueError, printing both sides, for shapes, axes or block sizes that do not match.

    >>> import mxfp
    >>> a, b = mxfp.quantize([6.0, 1.0]), mxfp.quantize([-6.0, 0.5])
    >>> mxfp.block_dots(a, b).sums.tolist()
    [-142]
    >>> mxfp.block_dots(a, b, width=8)
    Traceback (most recent call last):
    ...
    mxfp.integers.WidthError: block 0: the sum of products is -142, which does not fit signed 8 bits …
    """
    check_pair(a, b)
    check_choice(overflow, OVERFLOWS, "overflow")
    if width is not None:
        width = check_bits(width)
    for side, q in (("a", a), ("b", b)):
        if q.block_axis != q.ndim - 1:
            raise ValueError(
                f"block_dots takes both sides along the last axis; {side} {q.shape} is along axis {q.axis} "
                f"(a.T or b.T may be what you want)"
            )
    try:
        shape = np.broadcast_shapes(a.shape[:-1], b.shape[:-1])
        if a.shape[-1] != b.shape[-1]:
            raise ValueError
    except ValueError:
        raise ValueError(f"a {a.shape} and b {b.shape} do not match: K and the leading axes must") from None
    size = check_group(group, a.format)
    rows = int(np.prod(shape, dtype=np.int64))
    sides = [
        operand(
            np.broadcast_to(q.codes, (*shape, q.shape[-1])).reshape(rows, q.shape[-1]),
            np.broadcast_to(q.scales, (*shape, q.scales.shape[-1])).reshape(rows, q.scales.shape[-1]),
            q.format,
            q.tensor_scale,
            size,
        )
        for q in (a, b)
    ]
    try:
        terms = dots(sides[0], sides[1], outer=False, width=width, overflow=overflow)
    except WidthError as error:
        raise error.at(
            tuple(int(i) for i in np.unravel_index(error.index[0], shape)) if shape else ()
        ) from None
    count = blocks_along(a.shape[-1], size)

    def reshaped(x: Any) -> Any:
        return None if x is None else x.reshape(*shape, count)

    return Terms(
        reshaped(terms.sums),
        reshaped(terms.exponents),
        terms.bits,
        terms.unit,
        reshaped(terms.specials),
        reshaped(terms.live),
        terms.factor,
        size,
        reshaped(terms.leading),
    )
