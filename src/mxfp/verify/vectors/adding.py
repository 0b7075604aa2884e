# SPDX-License-Identifier: Apache-2.0
"""Groups about adding to the accumulator: ties, sticky bits, swamping, cancellation, what it held before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ...formats import Codes, Integers
from ...registers import Fused
from ...sums import distinct_products
from ..unit import Unit
from .cases import Blocks, Plan, finite_codes, none, opposites, room_of
from .draws import Draws
from .grids import grid_of
from .lanes import scales_about
from .results import NO_SCALES, OUT_OF_REACH, TWO_BLOCKS, both, signed
from .values import Value, built, parts, reach, shuffled, speller

MANY: Final = 160
"""Numbers at random of each kind."""


def ties(unit: Unit, draws: Draws) -> Plan:
    """Sums midway between two results: even below, odd below, all ones below, a power of two below."""
    if not unit.scaled:
        return none(NO_SCALES)
    found = [(2 * q + 1, t) for q, t in _results(unit, draws, MANY)]
    return built(unit, draws, both(unit, found, repeats=1), OUT_OF_REACH)


def sticky(unit: Unit, draws: Draws) -> Plan:
    """Sums off the midway between two results by one bit, near or far, in a block of its own or not."""
    if not unit.scaled:
        return none(NO_SCALES)
    grid, room = grid_of(unit.accumulator), room_of(unit)
    scenarios: list[list[Value]] = []
    near = [n for n in range(1, 12) if n < reach(unit)]
    far = sorted({1, 2, 3, 8, 12, grid.precision - 2, grid.precision, grid.precision + 3, 60, 120})
    for n, (q, t) in enumerate(_results(unit, draws, MANY)):
        sign = 1 if n % 2 else -1
        if near:
            d = near[n % len(near)]
            scenarios += both(unit, [(((2 * q + 1) << d) + sign, t - d)], repeats=1)
            scenarios += signed(_sparse(unit, grid.precision, n, d, sign, t))
        tail = (sign, t - far[n % len(far)])
        pieces = parts(unit, (2 * q + 1, t))
        if len(pieces) < room:
            scenarios += signed([[tail, *pieces[::-1]], [*pieces, tail]])
    return built(unit, draws, scenarios, OUT_OF_REACH)


def _sparse(unit: Unit, precision: int, n: int, d: int, sign: int, t: int) -> list[list[Value]]:
    """A number with zeros in its middle, and half of its last place with the sticky bit: two blocks."""
    bits = min(reach(unit), precision - 3)
    low = ((2 * (n // 2 % 4) + 1) << d) + sign
    if bits < 1 or low.bit_length() > reach(unit):
        return []
    high = (1 << (bits - 1)) + n * 37 % (1 << (bits - 1))
    terms = [(high, t + precision + 1 - bits), (low, t - d)]
    return [terms, terms[::-1]]


def _results(unit: Unit, draws: Draws, count: int) -> list[tuple[int, int]]:
    """q, t for results q * 2**(t+1) that the accumulator holds; q of all its bits, of few, or at an end."""
    grid, (lowest, highest) = grid_of(unit.accumulator), speller(unit).span()
    p = min(grid.precision, 60)
    ends = ((1 << p) - 1, 1 << (p - 1), (1 << (p - 1)) + 1, (1 << p) - 2)
    words = draws.words("q", np.arange(count), 2)
    found = []
    for n, (one, other) in enumerate(words.tolist()):
        if grid.normal is None:
            q, t = one % (1 << (1 + other % min(p, 20))), grid.grain - 1
        else:
            low, high = max(grid.normal - p, lowest), min(grid.top - p - 2, highest)
            if low > high:
                continue
            middle = min(max(-p, low), high)
            t = middle if n % 2 else low + other % (high - low + 1)
            q = ((1 << (p - 1)) + one % (1 << (p - 1)), ends[n // 4 % len(ends)])[n % 4 == 0]
            short = min(reach(unit) - 1, p)
            if n % 8 >= 6 and short > 0:
                q = (q >> (p - short)) << (p - short)
        found.append((q, t))
    return found


def swamping(unit: Unit, draws: Draws) -> Plan:
    """A large term before, behind or around small ones, at every distance until they are lost, and beyond."""
    if not unit.scaled:
        return none(NO_SCALES)
    if room_of(unit) < 2:
        return none(TWO_BLOCKS)
    scenarios: list[list[Value]] = []
    for n, gap, t in _distances(unit, draws, 0):
        for m in (1, (1 << max(reach(unit) - 1, 1)) - 1 - 2 * (n % 2)):
            small, large = (m, t), (1, t + gap)
            scenarios += [[large, small], [small, large], [(-1, t + gap), small], [small, (-1, t + gap)]]
            scenarios += [[large, small, (-1, t + gap)], [large, small, small, small, small]]
            scenarios += [[small, small, small, small, large], [large, small, small, (-1, t + gap), small]]
    return built(unit, draws, signed(scenarios), OUT_OF_REACH)


def _distances(unit: Unit, draws: Draws, bits: int) -> Iterator[tuple[int, int, int]]:
    """n, gap, t: every gap in which some of `bits` more bits than results have are lost, and some beyond.

    2**t and 2**(t + gap) are numbers of the accumulator, near 1 and anywhere.
    """
    grid, accumulator, (lowest, highest) = grid_of(unit.accumulator), unit.accumulator, speller(unit).span()
    reached = max(grid.precision, accumulator.fraction_bits if isinstance(accumulator, Fused) else 0)
    gaps = [*range(1, min(reached, 64) + bits + 9), 80, 120, 200]
    for n, (gap, word) in enumerate(zip(gaps, draws.words("t", np.arange(len(gaps)), 1)[:, 0], strict=True)):
        low, high = max(lowest, grid.lowest - (2 if grid.normal else 12)), min(highest, grid.top - 4) - gap
        if low <= high:
            for t in {min(max(-gap // 2, low), high), low + int(word) % (high - low + 1)}:
                yield n, gap, t


def swamping_widest(unit: Unit, draws: Draws) -> Plan:
    """A power of two, before or behind the widest sums of a block, of either sign, at the same distances."""
    if not unit.scaled:
        return none(NO_SCALES)
    if room_of(unit) < 2:
        return none(TWO_BLOCKS)
    products = [int(p) for p in distinct_products(*(fmt.element for fmt in unit.sides))]
    odd = [p for p in products if p % 2]
    scenarios: list[list[Value]] = []
    for _, gap, t in _distances(unit, draws, unit.sum_bits):
        for end in (0, -1):  # odd, so that no smaller sum at a larger scale is the same number
            wide, large = ((unit.a.block - 1) * products[end] + odd[end], t), (1, t + gap)
            scenarios += [[large, wide], [wide, large], [(-1, t + gap), wide], [wide, (-1, t + gap)]]
    return built(unit, draws, scenarios, OUT_OF_REACH)


def opposite_accumulator(unit: Unit, draws: Draws) -> Plan:
    """A term that takes away what the accumulator holds: all of it, all but one bit, or its leading bits."""
    if not unit.scaled:
        return none(NO_SCALES)
    if room_of(unit) < 2:
        return none(TWO_BLOCKS)
    scenarios: list[list[Value]] = []
    bits = max(reach(unit) - 1, 1)
    for n, (q, t) in enumerate(_results(unit, draws, MANY)):
        pieces = parts(unit, (q, t + 1))
        minus = [(-m, e) for m, e in pieces]
        scenarios += [[*pieces, *minus], [*pieces, *minus[::-1]], [*pieces[::-1], *minus]]
        m, lead = q % (1 << bits) or 1, 1 << (1 + n % bits)
        scenarios += [[(m, t), (-m, t)], [(m, t), (-m + 1, t)], [(m, t), (-m - 1, t)]]
        scenarios += [
            [(lead + 1, t), (-lead, t)],
            [(lead, t), (1 - lead, t)],
            [(lead, t), (-lead, t), (1, t)],
        ]
    return built(unit, draws, signed(scenarios), OUT_OF_REACH)


def cancellation_across_blocks(unit: Unit, draws: Draws) -> Plan:
    """Random blocks and their opposites, whose scales have the same product: the result is +0."""
    return _across(unit, draws, 0)


def cancellation_across_blocks_but_one(unit: Unit, draws: Draws) -> Plan:
    """Random blocks and their opposites but for one LSB of their sums, of both signs."""
    if unit.a.block < 2:
        return none("needs a lane for the one LSB")
    return _across(unit, draws, 1)


def _across(unit: Unit, draws: Draws, left: int) -> Plan:
    if not unit.scaled:
        return none(NO_SCALES)
    if room_of(unit) < 2:
        return none(TWO_BLOCKS)
    element, other = (fmt.element for fmt in unit.sides)
    opposite, exact = opposites(element)
    kept = np.flatnonzero(exact).astype(np.uint8)
    lanes = unit.a.block

    def make(rows: Integers) -> Blocks:
        x = draws.codes("x", rows, lanes, kept)
        y = draws.codes("y", rows, lanes, finite_codes(other))
        minus = opposite[x]
        if left:
            x[:, -1] = minus[:, -1] = y[:, -1] = 0
            minus[:, -1] = np.where(rows // 2 % 2 == 0, 1, opposite[1])
            y[:, -1] = 1
        one = scales_about(unit, draws, rows, 1)
        two = _same_product(unit, draws, rows, *one)
        scales = [np.concatenate(pair, axis=1) for pair in zip(one, two, strict=True)]
        a, b = np.stack([x, minus], axis=1), np.stack([y, y], axis=1)
        return shuffled(unit, draws, Blocks(a, b, scales[0], scales[1]), rows)

    return Plan(768, 2, make)


def cancelled_beside_small(unit: Unit, draws: Draws) -> Plan:
    """Lanes that cancel two by two at large scales, before or behind a small sum, at every distance."""
    if not unit.scaled:
        return none(NO_SCALES)
    if unit.a.block < 2:
        return none("one lane has nothing to cancel")
    if room_of(unit) < 2:
        return none(TWO_BLOCKS)
    bits = reach(unit)
    scenarios: list[list[Value]] = []
    for n, gap, t in _distances(unit, draws, bits):
        for turn in range(2):
            small, zeros = ((1 << bits) - 1 - 2 * ((n + turn) % (1 << (bits - 1))), t), (0, t + gap)
            scenarios += [[zeros, small], [small, zeros]]
    plan = built(unit, draws, signed(scenarios), OUT_OF_REACH)
    a, b = (fmt.element for fmt in unit.sides)
    opposite, exact = opposites(a)
    pairs = unit.a.block // 2

    def make(rows: Integers) -> Blocks:
        blocks = plan.make(rows)
        x = draws.codes("x", rows, pairs, np.flatnonzero(exact & (a.integers != 0)))
        y = draws.codes("y", rows, pairs, np.flatnonzero(b.finite & (b.integers != 0)))
        alone = np.arange(pairs)[None, :] == draws.below("pair", rows, 1, pairs)
        x = np.where((rows % 4 > 0)[:, None] | alone, x, 0)
        zeros = (a.integers[blocks.codes_a] == 0).all(axis=2)
        for codes, (even, uneven) in ((blocks.codes_a, (x, opposite[x])), (blocks.codes_b, (y, y))):
            cancelling = np.zeros((len(rows), unit.a.block), np.uint8)
            cancelling[:, 0 : 2 * pairs : 2], cancelling[:, 1 : 2 * pairs : 2] = even, uneven
            codes[:] = np.where(zeros[:, :, None], cancelling[:, None], codes)
        return blocks

    return plan if not plan.sequences else Plan(plan.sequences, plan.terms, make)


def _same_product(unit: Unit, draws: Draws, rows: Integers, a: Codes, b: Codes) -> tuple[Codes, Codes]:
    """Scales with the same product: by turns the same, exchanged, and any, as far as the formats allow."""
    one, other = (fmt.scale for fmt in unit.sides)
    way = (rows // 4 % 3)[:, None]
    if one == other:
        a, b = np.where(way == 1, b, a), np.where(way == 1, a, b)
    if one.power_of_two and other.power_of_two:
        total = a.astype(np.int64) + b
        low = np.maximum(total - (other.nan_code - 1), 0)
        high = np.minimum(total, one.nan_code - 1)
        own = low + draws.below("split", rows, 1, 1 << 20) % (high - low + 1)
        a, b = (
            np.where(way == 2, own, a).astype(np.uint8),
            np.where(way == 2, total - own, b).astype(np.uint8),
        )
    return a, b


def stale_accumulator(unit: Unit, draws: Draws) -> Plan:
    """Sequences that end in NaN, infinity or large numbers, each before one of small numbers."""
    if unit.kind != "running":
        return none("the unit keeps no accumulator")
    grid, (lowest, highest) = grid_of(unit.accumulator), speller(unit).span()
    top, low = min(grid.top, highest), max(grid.lowest, lowest)
    ends: list[list[Value]] = [
        [(1, top), (1, top)],
        [(-1, top), (-1, top)],
        [(1, top - 2), (1, top - 3)],
        [(-1, low), (-1, low)],
        [(1, 0), (1, 1)],
        [(-3, 1), (1, -1)],
    ]
    scenarios = [
        scenario
        for n in range(48)
        for scenario in (ends[n % len(ends)], [(1 + n % 3, -(n % 5)), (-1 - n % 2, -(n % 4))])
    ]
    plan = built(unit, draws, scenarios, OUT_OF_REACH)

    def make(rows: Integers) -> Blocks:
        blocks = plan.make(rows)
        for n, (codes, fmt) in enumerate(zip((blocks.scales_a, blocks.scales_b), unit.sides, strict=True)):
            codes[rows % 16 == 8 * n, -1] = fmt.scale.nan_code
        return blocks

    return plan if not plan.sequences else Plan(plan.sequences, plan.terms, make)
