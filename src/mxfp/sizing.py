# SPDX-License-Identifier: Apache-2.0
"""Side room off 7: the fixed-point register that K elements need, and what a coarser LSB costs, exactly.

Every bound here is reached: by blocks that `FixedPointNeed.witness` builds, so that a width is necessary as
well as sufficient and an error is the worst there is, not merely not exceeded. Contract §5.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from .blocks import BlockArray, check_choice
from .formats import MXFP4, BlockFormat, ElementFormat
from .integers import signed_bits, sum_bounds
from .profiles import MOST_K, CodeRange, check_formats, check_length, scale_codes
from .registers import SHIFT_ROUNDINGS, FixedPoint, ShiftRounding
from .sums import lanes_for, reachable_sums, reaches

Extreme = Literal["low", "high", "error_low", "error_high"]
EXTREMES: Final[tuple[Extreme, ...]] = ("low", "high", "error_low", "error_high")
LISTED: Final = 1 << 21
"""Sums over a range up to this are all tried; of more, those near powers of two."""


class Scales(NamedTuple):
    """A pair of scale codes and the product of the two scales, significand * 2**exponent."""

    significand: int
    exponent: int
    code_a: int
    code_b: int

    @property
    def value(self) -> Fraction:
        """The product, exact."""
        return self.significand * Fraction(2) ** self.exponent


class BlockCase(NamedTuple):
    """One block at an extreme: its sum of products, its scales, and what the extreme is, in LSBs."""

    sum: int
    scales: Scales
    value: Fraction


@dataclass(frozen=True)
class FixedPointNeed:
    """What a fixed-point register needs for every dot product of `k` elements with scale codes in two ranges.

    low, high: what the register reaches, in its LSBs. error_low, error_high: result - exact sum at its worst,
    exact values; both 0 where nothing is lost. All four are reached. Made by `fixed_point_for`.
    """

    a: BlockFormat
    b: BlockFormat
    k: int
    scales_a: CodeRange
    scales_b: CodeRange
    lsb_exponent: int
    rounding: ShiftRounding

    @property
    def blocks(self) -> int:
        """Terms that are added: blocks along K."""
        return -(-self.k // self.a.block)

    @cached_property
    def scale_products(self) -> tuple[Scales, ...]:
        """Every product of two scales in the ranges that is not zero, once each, ascending."""
        sides = []
        for fmt, codes in ((self.a, self.scales_a), (self.b, self.scales_b)):
            own = np.arange(codes[0], codes[1] + 1)
            sides.append(own[fmt.scale.significands[own] > 0])
            if not len(sides[-1]):
                raise ValueError(f"every scale of {fmt.name} from code {codes[0]} to {codes[1]} is zero")
        a, b = self.a.scale, self.b.scale
        significands = np.multiply.outer(a.significands[sides[0]], b.significands[sides[1]])
        exponents = np.add.outer(a.exponents[sides[0]], b.exponents[sides[1]])
        zeros = np.log2(significands & -significands).astype(np.int64)  # of a power of two: exact
        kinds = np.stack([significands >> zeros, exponents + zeros], axis=-1).reshape(-1, 2)
        _, first = np.unique(kinds, axis=0, return_index=True)
        found = [
            Scales(
                int(kinds[n, 0]),
                int(kinds[n, 1]),
                int(sides[0][n // len(sides[1])]),
                int(sides[1][n % len(sides[1])]),
            )
            for n in first
        ]
        return tuple(sorted(found, key=lambda s: s.value))

    @property
    def exact_lsb(self) -> int:
        """The exponent of the coarsest LSB at which nothing is lost."""
        return self._unit + min(s.exponent for s in self.scale_products)

    @property
    def range_bits(self) -> int:
        """Binades between the smallest and the largest product of two scales."""
        smallest, largest = self.scale_products[0].value, self.scale_products[-1].value
        return math.ceil(math.log2(largest / smallest))

    @property
    def _unit(self) -> int:
        return self.a.element.lsb_exponent + self.b.element.lsb_exponent

    @cached_property
    def _cases(self) -> dict[Extreme, list[BlockCase]]:
        """For each extreme the full block's case, and that of a last partial block."""
        return {extreme: [self._case(extreme, n) for n in self._sizes] for extreme in EXTREMES}

    @property
    def _sizes(self) -> list[int]:
        """Elements of a full block, if there is one, and of a last partial one, if there is one."""
        full, rest = divmod(self.k, self.a.block)
        return [self.a.block] * bool(full) + [rest] * bool(rest)

    def _counts(self) -> list[int]:
        full, rest = divmod(self.k, self.a.block)
        return [full] * bool(full) + [1] * bool(rest)

    def _total(self, extreme: Extreme) -> Fraction:
        return sum(
            (n * case.value for n, case in zip(self._counts(), self._cases[extreme], strict=True)),
            Fraction(0),
        )

    @property
    def low(self) -> int:
        """The least that the register holds, in LSBs."""
        return int(self._total("low"))

    @property
    def high(self) -> int:
        """The most that the register holds, in LSBs."""
        return int(self._total("high"))

    @property
    def width(self) -> int:
        """Signed bits that low … high take."""
        return signed_bits(self.low, self.high)

    @property
    def error_low(self) -> Fraction:
        """The most that a result is below the exact sum."""
        return self._total("error_low") * Fraction(2) ** self.lsb_exponent

    @property
    def error_high(self) -> Fraction:
        """The most that a result is above the exact sum."""
        return self._total("error_high") * Fraction(2) ** self.lsb_exponent

    @property
    def proven(self) -> bool:
        """Whether the errors are known to be the worst: all sums were tried, or no rounding can lose more.

        False only where toward zero meets sums too many to try (E4M3, E5M2) and scales with significands.
        """
        return all(self._is_worst(size, n) for n, size in enumerate(self._sizes))

    def _is_worst(self, size: int, place: int) -> bool:
        low, high = sum_bounds(self.a.element, self.b.element, size)
        if high - low < LISTED or self.lsb_exponent <= self.exact_lsb:
            return True
        shifts = [self.lsb_exponent - self._unit - s.exponent for s in self.scale_products]
        if self.rounding == "floor":
            most = 1 - Fraction(1, 1 << max(shifts))
        else:
            ends = [max(-low, high) * s.significand for s in self.scale_products]
            limit = 1 if self.rounding == "nearest_even" else 2
            most = max(
                min(Fraction(limit, 2), 1 - Fraction(1, 1 << d), Fraction(end, 1 << d))
                for d, end in zip(shifts, ends, strict=True)
                if d > 0
            )
        worst = max(abs(self._cases[side][place].value) for side in ("error_low", "error_high"))
        return worst == most

    def accumulator(self, **options: Any) -> FixedPoint:
        """The `FixedPoint` of this width, LSB and rounding; options are its others, overflow and dtype."""
        return FixedPoint(self.width, self.lsb_exponent, rounding=self.rounding, **options)

    def witness(self, extreme: Extreme) -> tuple[BlockArray, BlockArray]:
        """Vectors of k elements that reach one of "low", "high", "error_low", "error_high".

        >>> import mxfp
        >>> need = fixed_point_for(k=64, scales_a=(127, 127), scales_b=(127, 127))
        >>> a, b = need.witness("high")
        >>> int(mxfp.block_dots(a, b).sums.sum()), need.high
        (9216, 9216)
        """
        check_choice(extreme, EXTREMES, "extreme")
        codes: list[list[Any]] = [[], []]
        scales: list[list[int]] = [[], []]
        for size, count, case in zip(self._sizes, self._counts(), self._cases[extreme], strict=True):
            pair = lanes_for(case.sum, self.a.element, self.b.element, size)
            for side, code in enumerate((case.scales.code_a, case.scales.code_b)):
                codes[side] += [pair[side]] * count
                scales[side] += [code] * count
        a, b = (
            BlockArray(np.concatenate(codes[side]), np.array(scales[side], np.uint8), fmt)
            for side, fmt in enumerate((self.a, self.b))
        )
        return a, b

    def _case(self, extreme: Extreme, size: int) -> BlockCase:
        """The block of `size` elements at an extreme."""
        low, high = sum_bounds(self.a.element, self.b.element, size)
        if extreme in ("low", "high"):
            largest, end = self.scale_products[-1], low if extreme == "low" else high
            return BlockCase(end, largest, Fraction(self._rounded(end, largest)))
        best = BlockCase(0, self.scale_products[0], Fraction(0))
        if self.lsb_exponent <= self.exact_lsb:
            return best
        for total, scales in self._losing(size):
            error = self._rounded(total, scales) - self._aligned(total, scales)
            if error < best.value if extreme == "error_low" else error > best.value:
                best = BlockCase(total, scales, error)
        return best

    def _losing(self, size: int) -> Iterator[tuple[int, Scales]]:
        """Sums and scales among which is the worst rounding of a block, either way.

        For each shift the two sums that lose most, the nearest to zero of those; beyond the shift that leaves
        less than half a unit of any sum, only the sums nearest to zero and the ends.
        """
        low, high = sum_bounds(self.a.element, self.b.element, size)
        sums = _candidates(self.a.element, self.b.element, size)
        for scales in self.scale_products:
            shift = self.lsb_exponent - self._unit - scales.exponent
            if shift > signed_bits(low, high) + scales.significand.bit_length():
                yield from ((total, scales) for total in (-1, 1, low, high))
            elif shift > 0:
                lost = _lost(sums * scales.significand, shift, self.rounding)
                for worst in (lost.min(), lost.max()):
                    nearest = np.abs(sums[np.asarray(lost == worst, np.bool_)]).argmin()
                    yield int(sums[np.asarray(lost == worst, np.bool_)][nearest]), scales

    def _aligned(self, total: int, scales: Scales) -> Fraction:
        return total * scales.value * Fraction(2) ** (self._unit - self.lsb_exponent)

    def _rounded(self, total: int, scales: Scales) -> int:
        exact = self._aligned(total, scales)
        if self.rounding == "nearest_even":
            return round(exact)
        return math.floor(exact) if self.rounding == "floor" else math.trunc(exact)

    def __str__(self) -> str:
        """Two lines to read."""
        pair = f"{self.a.name} × {self.b.name}" if self.a != self.b else self.a.name
        first = (
            f"{pair}, K = {self.k} ({self.blocks} blocks), scale codes {_span(self.scales_a)} and "
            f"{_span(self.scales_b)}:\n"
            f"  {self.width} bits with LSB 2^{self.lsb_exponent} ({self.low} … {self.high})"
        )
        if not (self.error_low or self.error_high):
            return f"{first}\n  nothing is lost"
        return (
            f"{first}\n  lost by {self.rounding}, at worst: {float(self.error_low):g} … "
            f"{float(self.error_high):g}; nothing with LSB 2^{self.exact_lsb}"
        )


def _lost(integers: Any, shift: int, rounding: ShiftRounding) -> Any:
    """(integers * 2**-shift, rounded) - itself, in units of 2**-shift."""
    rest = np.mod(integers, 1 << shift)
    if rounding == "floor":
        return -rest
    if rounding == "toward_zero":
        return np.where(np.asarray(integers < 0, np.bool_), np.mod(-integers, 1 << shift), -rest)
    odd = np.asarray((integers >> shift) % 2 == 1, np.bool_)
    half = 1 << (shift - 1)
    up = np.asarray(rest > half, np.bool_) | (np.asarray(rest == half, np.bool_) & odd)
    return np.where(up, (1 << shift) - rest, -rest)


@lru_cache(maxsize=16)
def _candidates(a: ElementFormat, b: ElementFormat, lanes: int) -> Any:
    """All sums, where they are few; else those near powers of two, and the ends."""
    low, high = sum_bounds(a, b, lanes)
    if high - low < LISTED:
        return reachable_sums(a, b, lanes).values()
    found = {0, 1, -1, low, high}
    for n in range(high.bit_length()):
        near = (1 << n, (1 << n) - 1, (1 << n) + 1, 3 << n)
        found |= {s for total in near for s in (total, -total) if reaches(s, a, b, lanes)}
    return np.array(sorted(found), object)


def _span(codes: CodeRange) -> str:
    return str(codes[0]) if codes[0] == codes[1] else f"{codes[0]} … {codes[1]}"


def fixed_point_for(
    a: BlockFormat = MXFP4,
    b: BlockFormat | None = None,
    *,
    k: int,
    scales_a: CodeRange | None = None,
    scales_b: CodeRange | None = None,
    lsb_exponent: int | None = None,
    rounding: ShiftRounding = "floor",
) -> FixedPointNeed:
    """The width and the LSB that hold every dot product of k elements, or what a given LSB loses.

    a, b: block formats of one block size, b is a's if not given. scales_a, scales_b: smallest and largest
    scale code of each side; all that are not NaN if not given. lsb_exponent: of the register; the coarsest
    that loses nothing if not given. rounding: of the shift, as `FixedPoint` has it. A tensor scale (NVFP4) is
    outside the register.

    >>> need = fixed_point_for(k=8192, scales_a=(127, 127), scales_b=(127, 127))
    >>> need.width, need.lsb_exponent, need.high         # 14 bits, and 8 for 256 blocks
    (22, -2, 1179648)
    >>> print(fixed_point_for(k=1024, scales_a=(120, 127), scales_b=(120, 127), lsb_exponent=-8))
    MXFP4, K = 1024 (32 blocks), scale codes 120 … 127 and 120 … 127:
      25 bits with LSB 2^-8 (-9437184 … 9437184)
      lost by floor, at worst: -0.124512 … 0; nothing with LSB 2^-16
    """
    b = a if b is None else b
    check_formats(a, b)
    check_choice(rounding, SHIFT_ROUNDINGS, "rounding")
    ranges = []
    for name, fmt, codes in (("scales_a", a, scales_a), ("scales_b", b, scales_b)):
        own = scale_codes(fmt, codes, name)
        ranges.append((int(own[0]), int(own[-1])))
    exact = FixedPointNeed(a, b, check_length(k), ranges[0], ranges[1], 0, rounding)
    lsb = exact.exact_lsb if lsb_exponent is None else FixedPoint(1, lsb_exponent).lsb_exponent
    return FixedPointNeed(a, b, exact.k, ranges[0], ranges[1], lsb, rounding)


def longest_k(
    register: FixedPoint,
    a: BlockFormat = MXFP4,
    b: BlockFormat | None = None,
    *,
    scales_a: CodeRange | None = None,
    scales_b: CodeRange | None = None,
) -> int:
    """The largest K of which a register holds every dot product; one element more can overflow it.

    0 if not even one product fits; MOST_K if nothing that long overflows.

    >>> register = FixedPoint(24, -2)
    >>> longest_k(register, scales_a=(127, 127), scales_b=(127, 127))     # 144 a lane, 2**23 - 1 at most
    58254
    """
    if not isinstance(register, FixedPoint):
        raise TypeError(f"register is a FixedPoint, such as mxfp.FixedPoint(24, -2), got {register!r}")

    def fits(k: int) -> bool:
        need = fixed_point_for(
            a,
            b,
            k=k,
            scales_a=scales_a,
            scales_b=scales_b,
            lsb_exponent=register.lsb_exponent,
            rounding=register.rounding,
        )
        return need.width <= register.width

    low, high = 0, 1
    while high <= MOST_K and fits(high):
        low, high = high, high * 2
    while high - low > 1 and low < MOST_K:
        middle = min((low + high) // 2, MOST_K)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return min(low, MOST_K)
