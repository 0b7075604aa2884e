# SPDX-License-Identifier: Apache-2.0
"""Groups about results: where they overflow, end, and are subnormal.

All are numbers written down as integers times powers of two, for whatever the accumulator's results are;
`values` finds codes and scales for them. A number that takes more bits than a block can spell is added in
several blocks, the smallest first, so that it is rounded once at the last; and the largest first.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ...registers import Fused
from ..unit import Unit
from .cases import Plan, none, room_of
from .draws import Draws
from .grids import grid_of
from .values import Value, built, parts, reach, speller

NO_SCALES: Final = "the unit takes no scales"
TWO_BLOCKS: Final = "needs two blocks, or an accumulator that keeps running"
OUT_OF_REACH: Final = "no blocks of this unit make such numbers"
REPEATS: Final = 3
"""How often each number is made, by other scales and other lanes."""


def overflow(unit: Unit, draws: Draws) -> Plan:
    """Results just below, at and above where the accumulator overflows, of both signs; sums back below."""
    if not unit.scaled:
        return none(NO_SCALES)
    grid = grid_of(unit.accumulator)
    top, ulp = grid.top, grid.top - grid.precision
    found = around(unit, top)
    found += [((1 << (grid.precision + 2)) + d, ulp - 2) for d in (-8, -6, -5, -4, -3, -2, -1, 1, 2, 3, 4, 8)]
    found += [(3, top - 1), (1, top + 1), (1, top + 20), (1, top + 100)]
    one, half = (1, top), (1, top - 1)
    scenarios: list[list[Value]] = [
        [half, half],
        [half, half, (-1, top - 1)],
        [one, (-1, top)],
        [one, one, (-1, top + 1)],
        [half, (1, top - 2), (1, top - 2)],
        [half, (1, ulp - 1), (-1, top - 1)],
        [half, (1, ulp), (-1, ulp), half],
    ]
    return built(unit, draws, [*both(unit, found), *signed(scenarios)], OUT_OF_REACH)


def smallest_normal(unit: Unit, draws: Draws) -> Plan:
    """Results at the smallest normal number, and in quarters of the smallest of all beside it."""
    if not unit.scaled:
        return none(NO_SCALES)
    grid = grid_of(unit.accumulator)
    if grid.normal is None:
        return none(f"{unit.accumulator} is a register, which has no subnormal numbers")
    found = around(unit, grid.normal)
    found += [((1 << (grid.normal - grid.grain + 2)) + d, grid.grain - 2) for d in range(-9, 10)]
    one, half = (1, grid.normal), (1, grid.normal - 1)
    scenarios: list[list[Value]] = [
        [half, half],
        [one, (-1, grid.normal - 1)],
        [one, (-1, grid.grain)],
        [one, (-1, grid.grain - 1)],
        [one, (-3, grid.grain - 1)],
        [(1, grid.normal + 1), (-1, grid.normal), (-1, grid.grain)],
        [(3, grid.normal), (-3, grid.normal - 1), (-1, grid.normal)],
    ]
    return built(unit, draws, [*both(unit, found), *signed(scenarios)], OUT_OF_REACH)


def subnormals(unit: Unit, draws: Draws) -> Plan:
    """Subnormal results: the smallest, of every length, exact and rounded (of a register: some LSBs)."""
    if not unit.scaled:
        return none(NO_SCALES)
    grid = grid_of(unit.accumulator)
    bits = min(grid.precision - 1, 40)
    many = {*range(1, 17), *((1 << n) + d for n in range(1, bits) for d in (-1, 0, 1))}
    whole = sorted(m for m in many if 0 < m < 1 << bits)
    words = [int(w) for w in draws.words("m", np.arange(192), 1)[:, 0]]
    short = min(reach(unit), bits)
    random = [(w % (1 << bits), w >> 60 & 3) for w in words[:96]]
    random += [(w % (1 << (1 + w % short)), w >> 60 & 3) for w in words[96:]]
    found: list[Value] = [(m, grid.grain) for m in whole]
    found += [(4 * m + d, grid.grain - 2) for m, d in random if m or d]
    return built(unit, draws, both(unit, found, repeats=1), OUT_OF_REACH)


def half_the_smallest(unit: Unit, draws: Draws) -> Plan:
    """Halfway to the smallest result and between the first few, just above and just below, and far below."""
    if not unit.scaled:
        return none(NO_SCALES)
    grid, found = grid_of(unit.accumulator), []
    for more in range(reach(unit)):
        for odd in (1, 3, 5, 7):
            middle = odd << more
            found += [(middle + d, grid.grain - 1 - more) for d in ((-1, 0, 1) if more else (0,))]
    found += [(m, grid.grain - 2) for m in (1, 3)] + [(1, grid.grain - n) for n in (3, 5, 12, 24, 60, 90)]
    kept = [value for value in found if value[0]]
    scenarios: list[list[Value]] = []
    for far in (1, 2, 5, 12, 23, 40):
        for small in (1, -1):
            scenarios.append([(1, grid.grain - 1), (small, grid.grain - 1 - far)])
            scenarios.append([(small, grid.grain - 1 - far), (1, grid.grain - 1)])
    scenarios += [[(1, grid.grain - 1), (1, grid.grain - 1)], [(1, grid.grain), (-1, grid.grain - 1)]]
    return built(unit, draws, [*both(unit, kept, repeats=2), *signed(scenarios)], OUT_OF_REACH)


def trace_beside_the_smallest(unit: Unit, draws: Draws) -> Plan:
    """The first few results and a trace of either sign below them, at every distance, added to zero."""
    if not unit.scaled:
        return none(NO_SCALES)
    if room_of(unit) < 2:
        return none(TWO_BLOCKS)
    grid, accumulator = grid_of(unit.accumulator), unit.accumulator
    last = grid.precision + 6
    if isinstance(accumulator, Fused):  # what zeros have as an exponent decides where a trace is cut off
        last = max(last, grid.grain - accumulator.zero_exponent + accumulator.fraction_bits + 4)
    scenarios: list[list[Value]] = []
    for far in range(1, min(last, grid.grain - speller(unit).span()[0] + 1)):
        for whole in (1, 2, 3, 4 + far % 5):
            for trace in ((1, grid.grain - far), (-1, grid.grain - far)):
                scenarios += [[(whole, grid.grain), trace], [trace, (whole, grid.grain)]]
    return built(unit, draws, signed(scenarios), OUT_OF_REACH)


def around(unit: Unit, exponent: int) -> list[Value]:
    """2**exponent and the numbers next to it, of every length that one block can spell."""
    found: list[Value] = [(1, exponent)]
    for bits in range(1, reach(unit) + 1):
        found += [((1 << bits) + d, exponent - bits) for d in (-1, 0, 1)]
    return found


def both(unit: Unit, values: list[Value], *, repeats: int = REPEATS) -> list[list[Value]]:
    """Numbers -> sequences of terms: both signs, the smallest part first and last, several times."""
    found = []
    for value in values:
        if len(pieces := parts(unit, value)) > room_of(unit):
            continue
        orders = [pieces[::-1], pieces] if len(pieces) > 1 else [pieces]
        found += [order for order in orders for _ in range(repeats)]
    return signed(found)


def signed(scenarios: list[list[Value]]) -> list[list[Value]]:
    """The same, and the same with every sign turned."""
    return [[(sign * m, t) for m, t in scenario] for scenario in scenarios for sign in (1, -1)]
