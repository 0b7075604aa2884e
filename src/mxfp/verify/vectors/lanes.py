# SPDX-License-Identifier: Apache-2.0
"""Groups about products and their sum: pairs of codes, lanes, adders, zeros, and what cancels in a block."""

from __future__ import annotations

from typing import Final

import numpy as np

from ...distributions import edges
from ...formats import Codes, Integers
from ...integers import product_bounds, sum_bounds
from ...sums import code_pair, countable, distinct_products, lanes_for, reachable_sums, reaches
from ..unit import Unit
from .cases import Blocks, Plan, finite_codes, fixed, none, ones, opposites
from .draws import Draws
from .values import shuffled, spelled

ISOLATED: Final = 1 << 14
"""The most cases of all code pairs, each on its own in each lane; beyond it, only all lanes at once."""
WALKED: Final = 32
"""The most codes that walk through the lanes."""
COUNTED: Final = 1 << 16
"""The widest range of sums whose neighbours are counted out."""
NEIGHBOURS: Final = 48
"""Sums at each end of the range."""


def pairs(unit: Unit, draws: Draws) -> Plan:
    """Every pair of codes in every lane, all other lanes +0; where that is not too many."""
    x, y = _pairs(unit)
    count = len(x) * unit.a.block
    if count > ISOLATED:
        return none(f"{count} cases, one pair at a time; pairs-in-all-lanes has them together")

    def make(rows: Integers) -> Blocks:
        lane, pair = rows // len(x), rows % len(x)
        a, b = np.zeros((2, len(rows), 1, unit.a.block), np.uint8)
        a[np.arange(len(rows)), 0, lane], b[np.arange(len(rows)), 0, lane] = x[pair], y[pair]
        return Blocks(a, b, *ones(unit, len(rows)))

    return Plan(count, 1, make)


def pairs_in_all_lanes(unit: Unit, draws: Draws) -> Plan:
    """Every pair of codes in every lane, another pair in each of the others: as many cases as pairs."""
    x, y = _pairs(unit)
    lane = np.arange(unit.a.block)
    start = draws.below("start", np.array([0]), unit.a.block, len(x))[0]
    odd = 2 * draws.below("step", np.array([0]), unit.a.block, len(x) // 2)[0] + 1
    while (shared := np.gcd(odd, len(x)) > 1).any():
        odd = np.where(shared, (odd + 2) % len(x), odd)

    def make(rows: Integers) -> Blocks:
        pair = (start[lane] + odd[lane] * rows[:, None]) % len(x)
        return Blocks(x[pair][:, None], y[pair][:, None], *ones(unit, len(rows)))

    return Plan(len(x), 1, make)


def _pairs(unit: Unit) -> tuple[Codes, Codes]:
    """All pairs of codes that are numbers."""
    a, b = (finite_codes(fmt.element) for fmt in unit.sides)
    return np.repeat(a, len(b)), np.tile(b, len(a))


def walking_lanes(unit: Unit, draws: Draws) -> Plan:
    """One lane at a time: each code against 1 LSB and against the largest, on each side."""
    x, y = _walking(unit)

    def make(rows: Integers) -> Blocks:
        lane, pair = rows % unit.a.block, rows // unit.a.block
        a, b = np.zeros((2, len(rows), 1, unit.a.block), np.uint8)
        a[np.arange(len(rows)), 0, lane], b[np.arange(len(rows)), 0, lane] = x[pair], y[pair]
        return Blocks(a, b, *ones(unit, len(rows)))

    return Plan(len(x) * unit.a.block, 1, make)


def walking_holes(unit: Unit, draws: Draws) -> Plan:
    """One lane at a time is zero, or has the other sign, and all others are at the end of their range."""
    low, high = _extremes(unit)

    def make(rows: Integers) -> Blocks:
        lane, kind, end = rows % unit.a.block, rows // unit.a.block % 2, rows // unit.a.block // 2
        many, other = (np.where(end[:, None] == e, high, low).astype(np.uint8) for e in (0, 1))
        a, b = (np.repeat(many[:, None, None, side], unit.a.block, axis=2) for side in (0, 1))
        for side, codes in enumerate((a, b)):
            codes[np.arange(len(rows)), 0, lane] = np.where(kind == 0, 0, other[:, side])
        return Blocks(a, b, *ones(unit, len(rows)))

    return Plan(4 * unit.a.block, 1, make)


def _walking(unit: Unit) -> tuple[Codes, Codes]:
    a, b = (fmt.element for fmt in unit.sides)
    found = []
    for one, other, swap in ((a, b, False), (b, a, True)):
        codes = finite_codes(one)
        if len(codes) > WALKED:
            some = codes[:: -(-len(codes) // (WALKED // 2))]
            codes = np.unique(np.concatenate([edges(one, finite=True), some]))
        for against in (1, int(other.integers.argmax())):
            pair = np.stack([codes, np.full(len(codes), against, np.uint8)])
            found.append(pair[::-1] if swap else pair)
    x, y = np.unique(np.concatenate(found, axis=1), axis=1)
    return x, y


def _extremes(unit: Unit) -> tuple[Codes, Codes]:
    """The pairs of codes of the smallest and of the largest product."""
    a, b = (fmt.element for fmt in unit.sides)
    low, high = (np.array(code_pair(end, a, b), np.uint8) for end in product_bounds(a, b))
    return low, high


def sum_extremes(unit: Unit, draws: Draws) -> Plan:
    """Sums at both ends of their range and the next ones that exist, at 0, and around powers of two."""
    found, (x, y), lanes = [], (fmt.element for fmt in unit.sides), unit.a.block
    for n, value in enumerate(_sums(unit)):
        codes = spelled(value, x, y, lanes)
        if codes is None and _counted(unit) and reaches(value, x, y, lanes):
            codes = lanes_for(value, x, y, lanes)
        if codes is not None:
            found += [codes] * (2 if n % 2 else 3)
    a, b = (np.array([codes[side] for codes in found], np.uint8)[:, None] for side in (0, 1))
    return fixed(shuffled(unit, draws, Blocks(a, b, *ones(unit, len(a)))))


def _counted(unit: Unit) -> bool:
    """Whether all sums that exist are few enough to be counted out at once."""
    a, b = (fmt.element for fmt in unit.sides)
    low, high = sum_bounds(a, b, unit.a.block)
    return high - low < COUNTED and countable(a, b, unit.a.block)


def _sums(unit: Unit) -> list[int]:
    a, b = (fmt.element for fmt in unit.sides)
    low, high = sum_bounds(a, b, unit.a.block)
    powers = [s * (1 << n) + d for n in range(high.bit_length() + 1) for s in (1, -1) for d in range(-2, 3)]
    if _counted(unit):
        every = reachable_sums(a, b, unit.a.block).values().tolist()
        ends = [*every[:NEIGHBOURS], *every[-NEIGHBOURS:]]
    else:
        products = distinct_products(a, b).tolist()
        ends = [low - products[0] + p for p in products[:NEIGHBOURS]]
        ends += [high - products[-1] + p for p in products[-NEIGHBOURS:]]
        ends += [low // unit.a.block * n for n in range(unit.a.block + 1)]
        ends += [high // unit.a.block * n for n in range(unit.a.block + 1)]
    return sorted({v for v in [*ends, *powers, *range(-8, 9)] if low <= v <= high})


def level_extremes(unit: Unit, draws: Draws) -> Plan:
    """Every adder of a binary tree at both ends of its range, and one product below; others as they come.

    The lanes outside the adder are zeros, at random, or at the opposite end.
    """
    lanes = unit.a.block
    spans, width = [], 1
    while width < 2 * lanes:
        spans += [(first, min(first + width, lanes)) for first in range(0, lanes, width)]
        width *= 2
    span = np.array(spans)
    ends = np.stack(_extremes(unit))
    a, b = (fmt.element for fmt in unit.sides)
    next_below = np.array(
        [code_pair(int(distinct_products(a, b)[place]), a, b) for place in (1, -2)], np.uint8
    )

    def make(rows: Integers) -> Blocks:
        node, variant = rows // 12, rows % 12
        end, outside, less = variant % 2, variant // 2 % 3, variant // 6
        lane = np.arange(lanes)[None, :]
        inside = (lane >= span[node, 0][:, None]) & (lane < span[node, 1][:, None])
        codes = []
        for side, fmt in enumerate(unit.sides):
            other = draws.codes(f"other {side}", rows, lanes, finite_codes(fmt.element))
            opposite = ends[1 - end, side][:, None]
            around = np.where(outside[:, None] == 1, other, np.where(outside[:, None] == 0, 0, opposite))
            full = np.where(inside, ends[end, side][:, None], around)
            last = (less == 1)[:, None] & (lane == span[node, 1][:, None] - 1)
            codes.append(np.where(last, next_below[end, side][:, None], full).astype(np.uint8)[:, None])
        return Blocks(codes[0], codes[1], *ones(unit, len(rows)))

    return Plan(12 * len(spans), 1, make)


def signed_zeros(unit: Unit, draws: Draws) -> Plan:
    """Zeros of both signs against anything, in every lane or beside one product; the sum is as it was."""
    zeros = [np.flatnonzero(np.abs(fmt.element.values) == 0).astype(np.uint8) for fmt in unit.sides]

    def make(rows: Integers) -> Blocks:
        lanes = unit.a.block
        codes = [
            draws.codes(f"code {side}", rows, lanes, finite_codes(fmt.element))
            for side, fmt in enumerate(unit.sides)
        ]
        nothing = [draws.codes(f"zero {side}", rows, lanes, zeros[side]) for side in (0, 1)]
        which = draws.below("which", rows, lanes, 3)
        kind = (rows % 4)[:, None]
        clear_a = (kind == 0) | (kind == 1) & (which != 1) | (kind >= 2)
        clear_b = (kind == 0) | (kind == 1) & (which != 2) | (kind == 2)
        here = np.arange(lanes)[None, :] == draws.below("lane", rows, 1, lanes)
        kept = (rows // 4 % 2 == 1)[:, None] & here
        a = np.where(clear_a & ~kept, nothing[0], codes[0])[:, None]
        b = np.where(clear_b & ~kept, nothing[1], codes[1])[:, None]
        return Blocks(a, b, *ones(unit, len(rows)))

    return Plan(512, 1, make)


def cancellation(unit: Unit, draws: Draws) -> Plan:
    """Lanes that cancel each other exactly: the sum is 0, and the result +0."""
    if unit.a.block < 2:
        return none("one lane has nothing to cancel")
    return Plan(1024, 1, lambda rows: cancelled(unit, draws, rows, 0))


def cancellation_but_one(unit: Unit, draws: Draws) -> Plan:
    """Lanes that cancel but for one LSB, of both signs."""
    if unit.a.block < 3:
        return none("needs three lanes: two that cancel, and one LSB")
    return Plan(1024, 1, lambda rows: cancelled(unit, draws, rows, 1))


def cancelled(unit: Unit, draws: Draws, rows: Integers, left: int, *, every: int = 1) -> Blocks:
    """Blocks whose lanes cancel but for `left` LSB, in random places; a few lanes used, or all.

    every: of so many rows, only one has the LSB.
    """
    lanes, half = unit.a.block, (unit.a.block - left) // 2
    element, n = unit.a.element, len(rows)
    opposite, exact = opposites(element)
    kept = np.flatnonzero(exact).astype(np.uint8)
    x = draws.codes("x", rows, half, kept)
    y = draws.codes("y", rows, half, finite_codes(unit.sides[1].element))
    used = np.where(rows % 4 == 0, half, 1 + draws.below("used", rows, 1, half)[:, 0])[:, None]
    unused = np.arange(half)[None, :] >= used
    x, y = np.where(unused, 0, x), np.where(unused, 0, y)
    a, b = np.zeros((2, n, lanes), np.uint8)
    a[:, :half], a[:, half : 2 * half] = x, np.where(unused, 0, opposite[x])
    b[:, :half], b[:, half : 2 * half] = y, y
    if left:
        one = np.where(rows // 4 % 2 == 0, 1, opposite[1])
        a[:, -1], b[:, -1] = np.where(rows % every == 0, one, 0), 1
    scales = scales_about(unit, draws, rows, 1)
    return shuffled(unit, draws, Blocks(a[:, None], b[:, None], *scales), rows)


def scales_about(unit: Unit, draws: Draws, rows: Integers, terms: int) -> tuple[Codes, Codes]:
    """Scales of one for half of the rows, any that are numbers and not zero for the others."""
    found = []
    for side, (fmt, one) in enumerate(zip(unit.sides, ones(unit, len(rows), terms), strict=True)):
        any_scale = draws.codes(f"scale {side}", rows, terms, np.flatnonzero(fmt.scale.significands > 0))
        found.append(np.where((rows // 2 % 2 == 0)[:, None], one, any_scale))
    return found[0], found[1]
