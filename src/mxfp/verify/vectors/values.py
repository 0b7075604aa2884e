# SPDX-License-Identifier: Apache-2.0
"""Numbers -> blocks: codes and scales whose term is exactly a given number, spread over the lanes."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ...formats import Codes, ElementFormat, Integers, ScaleFormat
from ...sums import code_pair, distinct_products
from ..unit import Unit
from .cases import Blocks, Plan, fixed, none, ones, opposites, room_of
from .draws import Draws

Value = tuple[int, int]
"""m, t: the number m * 2**t."""


@lru_cache(maxsize=1 << 14)
def spelled(value: int, a: ElementFormat, b: ElementFormat, lanes: int) -> tuple[Codes, Codes] | None:
    """Codes (lanes,) whose sum of products is `value` LSB units; None if none are found.

    Always the largest product that does not go beyond: not the fewest lanes, for which `mxfp.sums` counts,
    but quick for every format.
    """
    products = distinct_products(a, b)
    found: list[int] = []
    left = value
    while left and len(found) < lanes:
        if left > 0:
            product = int(products[np.searchsorted(products, left, side="right") - 1])
        else:
            product = int(products[np.searchsorted(products, left, side="left")])
        found.append(product)
        left -= product
    if left:
        return None
    codes = np.zeros((2, lanes), np.uint8)
    for lane, product in enumerate(found):
        codes[:, lane] = code_pair(product, a, b)
    return codes[0], codes[1]


@lru_cache(maxsize=16)
def powers(scale: ScaleFormat) -> dict[int, int]:
    """Exponent -> the code of the scale that is 2**exponent; the exponents are in a row."""
    found = {}
    for code in np.flatnonzero(scale.finite & (scale.significands > 0)).tolist():
        mantissa, exponent = np.frexp(scale.values[code])
        if mantissa == 0.5:
            found[int(exponent) - 1] = code
    return found


class Speller:
    """Finds blocks for numbers, for one unit; `speller` has it for each."""

    def __init__(self, unit: Unit) -> None:
        self.a, self.b = (fmt.element for fmt in unit.sides)
        self.lanes, self.scaled, self.bits = unit.a.block, unit.scaled, unit.sum_bits
        self.lsb = self.a.lsb_exponent + self.b.lsb_exponent
        self.powers = tuple(powers(fmt.scale) for fmt in unit.sides)
        self.low = min(self.powers[0]), min(self.powers[1])
        self.high = max(self.powers[0]), max(self.powers[1])
        self.reach = 1
        while all(spelled(v, self.a, self.b, self.lanes) for v in _samples(self.reach + 1)):
            self.reach += 1

    def span(self) -> tuple[int, int]:
        """The exponents t for which a block of the smallest product can be 2**t."""
        return sum(self.low) + self.lsb, sum(self.high) + self.lsb

    def scales(self, exponent: int, pick: int) -> tuple[int, int]:
        """Scale codes whose product is 2**exponent: the most even way, either at its end, or any."""
        low = max(self.low[0], exponent - self.high[1])
        high = min(self.high[0], exponent - self.low[1])
        middle = min(max(exponent // 2, low), high)
        own = (middle, low, high, low + pick // 4 % (high - low + 1))[pick % 4]
        return self.powers[0][own], self.powers[1][exponent - own]

    def block(self, value: Value, pick: int) -> tuple[Codes, Codes, int, int] | None:
        """Codes and scales of a block whose term is the number, one of all ways; None if there is none.

        0 is a block of zeros under scales whose product is 2**t, or as near as there are.
        """
        m, t = value
        if m == 0:
            nothing = np.zeros(self.lanes, np.uint8)
            return nothing, nothing, *self.scales(min(max(t, sum(self.low)), sum(self.high)), pick)
        zeros = (m & -m).bit_length() - 1
        first = max(-zeros, t - self.lsb - sum(self.high))  # exponent of the scales: t - shift - lsb
        last = min(self.bits - 1 - m.bit_length(), t - self.lsb - sum(self.low))
        ways = last - first + 1
        for way in range(max(ways, 0)):
            shift = first + (pick + way) % ways
            codes = spelled(m << shift if shift >= 0 else m >> -shift, self.a, self.b, self.lanes)
            if codes is not None:
                return *codes, *self.scales(t - shift - self.lsb, pick // ways)
        return None


@lru_cache(maxsize=16)
def speller(unit: Unit) -> Speller:
    """The speller of a unit."""
    return Speller(unit)


def reach(unit: Unit) -> int:
    """The most bits of which blocks of this unit can spell every number, as far as samples say."""
    return speller(unit).reach


def _samples(bits: int) -> list[int]:
    """Numbers that are hard to spell, of so many bits."""
    top = 1 << bits
    return sorted({top, *(top - d for d in range(1, min(top, 16))), *(top * n // 17 for n in range(9, 17))})


def parts(unit: Unit, value: Value) -> list[Value]:
    """A number as a sum of numbers that blocks can spell, the largest first."""
    m, t = value
    bits = reach(unit)
    found: list[Value] = []
    while m and not (m & -m) << bits >= abs(m):
        digit = ((m + (1 << bits)) & ((2 << bits) - 1)) - (1 << bits)
        if digit:
            found.append((digit, t))
        m, t = (m - digit) >> (bits + 1), t + bits + 1
    return [*([(m, t)] if m else []), *found[::-1]]


def built(unit: Unit, draws: Draws, scenarios: list[list[Value]], why: str) -> Plan:
    """The plan of sequences of terms that are these numbers; `why`, if the unit can make none of them.

    Sequences of fewer terms than the longest get zeros, before or behind them by turns.
    """
    room, spell = room_of(unit), speller(unit)
    found: list[list[tuple[Codes, Codes, int, int] | None]] = []
    picks = draws.words("pick", np.arange(len(scenarios)), room) >> np.uint64(33)
    for number, scenario in enumerate(scenarios):
        if not 0 < len(scenario) <= room:
            continue
        made = [spell.block(v, int(picks[number, n])) for n, v in enumerate(scenario)]
        if all(block is not None for block in made):
            found.append(made)
    if not found:
        return none(why)
    terms, n, lanes = max(len(made) for made in found), len(found), unit.a.block
    a, b = np.zeros((2, n, terms, lanes), np.uint8)
    scales = ones(unit, n, terms)
    for row, made in enumerate(found):
        start = (terms - len(made)) * (row % 2)
        for place, block in enumerate(made, start):
            if block is not None:
                a[row, place], b[row, place], scales[0][row, place], scales[1][row, place] = block
    return fixed(shuffled(unit, draws, Blocks(a, b, *scales)))


def shuffled(unit: Unit, draws: Draws, blocks: Blocks, rows: Integers | None = None) -> Blocks:
    """The same terms, each block's lanes in random order, and the signs of both sides of some turned."""
    n, terms, lanes = blocks.codes_a.shape
    at = np.arange(n) if rows is None else rows
    places = (at[:, None] * terms + np.arange(terms)).ravel()
    order = draws.order("lanes", places, lanes).reshape(n, terms, lanes)
    turned = draws.codes("signs", places, lanes, np.arange(2)).reshape(n, terms, lanes) == 1
    sides = [np.take_along_axis(codes, order, axis=2) for codes in (blocks.codes_a, blocks.codes_b)]
    tables = [opposites(fmt.element) for fmt in unit.sides]
    for codes, (_, exact) in zip(sides, tables, strict=True):
        turned &= exact[codes]
    a, b = (np.where(turned, t[codes], codes) for codes, (t, _) in zip(sides, tables, strict=True))
    return Blocks(a, b, blocks.scales_a, blocks.scales_b)
