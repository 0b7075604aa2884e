# SPDX-License-Identifier: Apache-2.0
"""Side room of `strategies`: a pair for a dot product that can still be written to.

The methods of `Draft` make it cancel, tie, swamp or overflow. Nothing is random here: `strategies` draws
what they are given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np

from .blocks import BlockArray
from .dot import block_dots
from .formats import BlockFormat, Codes, ElementFormat, Integers, ScaleFormat
from .pairs import DotPair

Swamped = Literal["large first", "large last", "large at both ends"]
"""Where the large term of `Draft.swamp` stands; at both ends, the second one takes the first away."""
SWAMPED: Final[tuple[Swamped, ...]] = get_args(Swamped)


def one_of(scale: ScaleFormat) -> int:
    """The scale code of 1.0, or of what is nearest to it."""
    return int(np.nanargmin(np.abs(scale.values - 1.0)))


def extremes(a: ElementFormat, b: ElementFormat) -> tuple[int, int, int]:
    """Codes x of a, y and z of b: x · y is the largest product, x · z the most negative with that x."""
    low, high = int(a.integers.argmin()), int(a.integers.argmax())
    least, most = int(b.integers.argmin()), int(b.integers.argmax())
    if int(a.integers[low]) * int(b.integers[least]) > int(a.integers[high]) * int(b.integers[most]):
        return low, least, most
    return high, most, least


def power_code(element: ElementFormat) -> int:
    """The code of the largest power of two."""
    return int(np.flatnonzero(element.magnitudes == 2.0**element.emax)[0])


def negated(codes: Codes, element: ElementFormat) -> Codes:
    """The codes of minus the values. What has no negative (INT8's -2) gives the largest magnitude."""
    table = np.arange(element.code_count, dtype=np.uint8)
    count = element.magnitudes.size
    table[:count] = element.negated
    table[element.negated] = np.arange(count)
    if element.twos_complement:
        table[element.code_count // 2] = count - 1
    return np.asarray(table[codes], np.uint8)


@dataclass
class Draft:
    """A pair that can still be written to: codes (blocks, block) and scale codes (blocks,) of both sides."""

    format_a: BlockFormat
    format_b: BlockFormat
    codes_a: Codes
    codes_b: Codes
    scales_a: Integers
    scales_b: Integers

    @classmethod
    def empty(cls, format_a: BlockFormat, format_b: BlockFormat, count: int) -> Draft:
        """So many blocks of zeros at scales of 1.0."""
        none = np.zeros((0, format_a.block), np.uint8)
        draft = cls(format_a, format_b, none, none, np.zeros(0, np.int64), np.zeros(0, np.int64))
        draft.pad(count)
        return draft

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self.scales_a)

    def pair(self) -> DotPair:
        """What is written now, as two vectors."""
        return DotPair(
            BlockArray(self.codes_a.ravel(), self.scales_a.astype(np.uint8), self.format_a),
            BlockArray(self.codes_b.ravel(), self.scales_b.astype(np.uint8), self.format_b),
        )

    def take(self, rows: list[int]) -> None:
        """Keep these blocks, in this order; a block may come more than once."""
        for name in ("codes_a", "codes_b", "scales_a", "scales_b"):
            setattr(self, name, getattr(self, name)[rows])

    def negate(self, row: int) -> None:
        """Change the sign of a block's term, on the side of a; its zeros stay what they are."""
        codes, element = self.codes_a[row], self.format_a.element
        self.codes_a[row] = np.where(element.integers[codes] == 0, codes, negated(codes, element))

    def pad(self, least: int) -> None:
        """Blocks of zeros at a scale of 1.0 behind the others, until there are `least`."""
        more = max(least - len(self), 0)
        for name, fmt in (("a", self.format_a), ("b", self.format_b)):
            codes, scales = getattr(self, f"codes_{name}"), getattr(self, f"scales_{name}")
            setattr(self, f"codes_{name}", np.concatenate([codes, np.zeros((more, fmt.block), np.uint8)]))
            setattr(self, f"scales_{name}", np.concatenate([scales, np.full(more, one_of(fmt.scale))]))

    def set_lanes(self, row: int, lanes: list[tuple[int, int]]) -> None:
        """A block of these pairs of codes, zeros behind them."""
        for n, side in enumerate((self.codes_a, self.codes_b)):
            side[row] = 0
            side[row, : len(lanes)] = [lane[n] for lane in lanes]

    def tile(self, row: int, lanes: list[tuple[int, int]], *, first: int, fill: int, flip: int) -> None:
        """A block of these pairs of codes, repeated over `fill` lanes, the first of them at lane `first`.

        Each repetition pairs the codes of b one further on. flip: the signs of both sides of even (1), odd
        (2) or all (3) lanes.
        """
        block, count = self.codes_a.shape[1], len(lanes)
        self.codes_a[row] = self.codes_b[row] = 0
        lane = np.arange(min(max(fill, count), block) if count else 0)
        if lane.size:
            a, b = np.array(lanes, np.uint8).T
            a, b = a[lane % count], b[(lane + lane // count) % count]
            flipped = (flip >> lane % 2 & 1).astype(np.bool_)
            where = (lane + first) % block
            self.codes_a[row, where] = np.where(flipped, negated(a, self.format_a.element), a)
            self.codes_b[row, where] = np.where(flipped, negated(b, self.format_b.element), b)

    def mark(self, row: int, sides: str) -> None:
        """A NaN scale for a block, on the sides that are named."""
        for side in sides:
            getattr(self, f"scales_{side}")[row] = getattr(self, f"format_{side}").scale.nan_code

    def exponents(self) -> list[int | None]:
        """floor(log2 |term|) of each block; None for a term of zero."""
        terms = block_dots(*self.pair())
        both = zip(terms.sums.tolist(), terms.exponents.tolist(), strict=True)
        return [abs(s).bit_length() - 1 + e if s else None for s, e in both]

    def shift(self, row: int, binades: int) -> int:
        """Scale a block's term by 2**binades, half of it on each side; what the scales cannot is returned."""
        for side, wanted in (("a", binades - binades // 2), ("b", None), ("a", None)):
            scale: ScaleFormat = getattr(self, f"format_{side}").scale
            codes, step = getattr(self, f"scales_{side}"), 1 << scale.mantissa_bits
            up = (scale.nan_code - 1 - int(codes[row])) // step
            down = max((int(codes[row]) - step * scale.has_zero) // step, 0)
            moved = max(min(binades if wanted is None else wanted, up), -down)
            codes[row] += moved * step
            binades -= moved
        return binades

    def cancel_inside(self, nudge: int) -> None:
        """Every block the same lanes twice, once with each sign; the last one LSB (nudge 1, -1) from it."""
        half = (self.codes_a.shape[1] - 1) // 2
        for row in range(len(self)):
            a, b = self.codes_a[row, :half].copy(), self.codes_b[row, :half].copy()
            used = int(np.flatnonzero(a | b)[-1]) + 1 if (a | b).any() else 0
            self.codes_a[row, :used] = self._cancellable(a[:used])
            self.negate(row)
            self.codes_a[row, used:], self.codes_b[row, used:] = 0, 0
            self.codes_a[row, used : 2 * used] = self.codes_a[row, :used]
            self.codes_b[row, used : 2 * used] = b[:used]
            self.codes_a[row, :used] = self._cancellable(a[:used])
        self._nudge(len(self) - 1, nudge)

    def cancel_across(self, nudge: int, *, backwards: bool, trade: int) -> None:
        """Every block again with the other sign, behind all; the last one LSB (nudge 1, -1) from it.

        backwards: in the opposite order. trade: binades that its scales hand from b to a, if they can.
        """
        count = len(self)
        self.codes_a[:, -1] = self.codes_b[:, -1] = 0
        self.codes_a = self._cancellable(self.codes_a)
        order = list(range(count))
        self.take(order + (order[::-1] if backwards else order))
        for row in range(count, 2 * count):
            self.negate(row)
            a, b = self._moved("a", row, trade), self._moved("b", row, -trade)
            if a is not None and b is not None:
                self.scales_a[row], self.scales_b[row] = a, b
        self._nudge(2 * count - 1, nudge)

    def _moved(self, side: str, row: int, binades: int) -> int | None:
        """The scale code of a block, so many binades up; None if there is none that is exactly that."""
        scale: ScaleFormat = getattr(self, f"format_{side}").scale
        step, code = 1 << scale.mantissa_bits, int(getattr(self, f"scales_{side}")[row])
        moved = code + binades * step
        return moved if step * scale.has_zero <= min(code, moved) and 0 <= moved < scale.nan_code else None

    def _cancellable(self, codes: Codes) -> Codes:
        """Codes of a whose negative exists."""
        return negated(negated(codes, self.format_a.element), self.format_a.element)

    def _nudge(self, row: int, nudge: int) -> None:
        """One product of the smallest elements behind those of a block, if it has any, and room for it."""
        used = np.flatnonzero(self.codes_a[row] | self.codes_b[row])
        lane = int(used[-1]) + 1 if used.size else 0
        if nudge and 0 < lane < self.format_a.block:
            self.codes_a[row, lane] = self.format_a.element.negated[1] if nudge < 0 else 1
            self.codes_b[row, lane] = 1

    def tie(self, precision: int, *, nudge: int, odd: bool, below: bool, negative: bool) -> None:
        """Terms whose running sum lies midway between two floats of so many bits, or an LSB (nudge) off.

        A power of two, then half of its last place. odd: one last place between them, so that the float
        below the midpoint is odd. below: a quarter instead, which is midway where the sum falls below the
        power of two. negative: the half is taken away. The first block's scales, without their mantissa
        bits, are those of the half.
        """
        self.pad(1)
        self.take([0] * (3 if odd else 2))
        for codes, fmt in ((self.scales_a, self.format_a.scale), (self.scales_b, self.format_b.scale)):
            step = 1 << fmt.mantissa_bits
            codes[:] = np.maximum(codes // step, fmt.has_zero) * step
        power = power_code(self.format_a.element), power_code(self.format_b.element)
        last = len(self) - 1
        for row in range(last + 1):
            self.set_lanes(row, [power])
        self._nudge(last, nudge)
        if negative:
            self.negate(last)
        short = self.shift(0, precision + below)
        if odd:
            self.shift(1, 1 + below - short)
        self.shift(last, -short)

    def swamp(self, gap: int, small: int, where: Swamped) -> None:
        """The first block 2**gap above `small` copies of the second, in leading bits of their terms."""
        self.pad(2)
        for codes, fmt in ((self.scales_a, self.format_a.scale), (self.scales_b, self.format_b.scale)):
            codes[(codes == 0) & fmt.has_zero] = one_of(fmt)
        for row, size in enumerate(self.exponents()[:2]):
            if size is None:
                self.set_lanes(row, [(self._unit(self.format_a), self._unit(self.format_b))])
        large, little = (e or 0 for e in self.exponents()[:2])
        self.shift(1, -self.shift(0, gap + little - large))
        rows = {
            "large first": [0] + [1] * small,
            "large last": [1] * small + [0],
            "large at both ends": [0] + [1] * small + [0],
        }[where]
        self.take(rows)
        if where == "large at both ends":
            self.codes_a = self._cancellable(self.codes_a)
            self.negate(len(self) - 1)

    @staticmethod
    def _unit(fmt: BlockFormat) -> int:
        """The code of 1.0, or of the largest power of two below it, or of the smallest there is."""
        return max(int(np.searchsorted(fmt.element.magnitudes, 1.0, side="right")) - 1, 1)

    def fill(self, lanes: int, *, negative: bool) -> None:
        """The first lanes of the first block: the products of the largest magnitude and one sign."""
        self.pad(1)
        x, most, least = extremes(self.format_a.element, self.format_b.element)
        self.codes_a[0, :lanes], self.codes_b[0, :lanes] = x, least if negative else most

    def aim(self, exponent: int) -> None:
        """All scales moved so that the largest term's leading bit is 2**exponent, if they reach."""
        found = [e for e in self.exponents() if e is not None]
        for row in range(len(self)) if found else ():
            self.shift(row, exponent - max(found))
