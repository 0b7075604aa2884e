# SPDX-License-Identifier: Apache-2.0
"""Pools of cases that are likely to hit what only an accumulator's steps show.

Sums and exponents are drawn near where things happen: around the ends of the float format, at such distances
from the term before that the last place, a tie or a sticky bit decides, and at its opposite.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...formats import Bools, Codes, Integers
from ...integers import sum_bounds
from ...registers import FixedPoint, Fused
from ...sums import lanes_for, reaches
from ..unit import Batch, Unit
from ..vectors.draws import Draws
from .reach import Limits, limits, precision_of

SEQUENCES: Final = 1536
"""Of one length in a pool."""
LENGTHS: Final = (1, 2, 4, 7, 9)
"""Cases of the sequences of a running unit's pools."""
NAN_SHARE: Final = 64
"""One term in so many has a NaN scale."""
OPPOSITE: Final = 3
"""Out of eight terms, how many have the sum of the one before, negated."""


def sequences_of(batch: Batch, case: int, *, before: bool) -> Batch:
    """The sequence of a case; with `before`, that and the one in front of it."""
    begins = np.flatnonzero(batch.first)
    place = int(np.searchsorted(begins, case, side="right")) - 1
    end = int(begins[place + 1]) if place + 1 < len(begins) else len(batch)
    return batch.cut(slice(int(begins[max(place - int(before), 0)]), end))


def pools(unit: Unit, seed: int, rounds: int) -> Iterator[Batch]:
    """Batches to search, the exact decompositions of a format's ends first."""
    known, draws = limits(unit), Draws(seed, "fill")
    if not unit.scaled:
        return
    ends = _ends(unit, known)
    if ends is not None:
        yield ends
    for n in range(rounds):
        for length in LENGTHS if unit.kind == "running" else (1,):
            yield _pool(unit, known, draws, n, length)


def interesting(known: Limits) -> list[int]:
    """Sums worth adding: around powers of two, the ends, ones in a row."""
    low, high = sum_bounds(known.a, known.b, known.lanes)
    found = {0, 1, 3, 5, 7, low, high}
    power = 2
    while power <= high:
        found |= {power - 1, power, power + 1, 3 * power // 2}
        power *= 2
    both = sorted(
        {v for value in found for v in (value, -value) if low <= v <= high}, key=lambda v: (abs(v), v)
    )
    return [v for v in both if reaches(v, known.a, known.b, known.lanes)]


def _table(known: Limits, values: list[int]) -> tuple[Codes, Codes]:
    pairs = [lanes_for(v, known.a, known.b, known.lanes) for v in values]
    return np.array([a for a, _ in pairs]), np.array([b for _, b in pairs])


def _scale_codes(unit: Unit) -> tuple[Integers, Integers]:
    """Scale exponents from the lowest sum up -> codes of a and of b that are powers of two, evenly split."""
    sides = []
    for fmt in unit.sides:
        mantissa, exponent = np.frexp(np.where(fmt.scale.finite, fmt.scale.values, 0.0))
        codes = np.flatnonzero(mantissa == 0.5)
        sides.append({int(exponent[c]) - 1: int(c) for c in codes})
    low, high = (sum(f(side) for side in sides) for f in (min, max))
    found = []
    for total in range(low, high + 1):
        half = min(max(total // 2, min(sides[0])), max(sides[0]))
        half = min(max(half, total - max(sides[1])), total - min(sides[1]))
        found.append((total, sides[0][half], sides[1][total - half]))
    table = np.array(found, np.int64)
    return table[:, 0], table[:, 1:]


def _anchors(unit: Unit, known: Limits, lsb: int) -> list[int]:
    """Exponents of a term at which something ends, of the LSB of its sum."""
    shape, bits = precision_of(unit.accumulator), known.sum_bits
    around = [shape.lowest, shape.smallest_normal, shape.highest + 1 - bits, lsb]
    if isinstance(unit.accumulator, FixedPoint):
        around = [
            unit.accumulator.lsb_exponent,
            unit.accumulator.lsb_exponent + unit.accumulator.width - bits,
        ]
    found = [a + d for a in around for d in range(-bits, bits + 1)]
    if isinstance(unit.accumulator, Fused):
        zero = unit.accumulator.zero_exponent
        cut = zero - unit.accumulator.fraction_bits
        found += [z + d for z in (zero, cut) for d in range(-2 * bits, bits)]
    return found


def _pool(unit: Unit, known: Limits, draws: Draws, number: int, length: int) -> Batch:
    values = interesting(known)
    terms, rows = unit.blocks * length, np.arange(SEQUENCES)
    lsb = known.a.lsb_exponent + known.b.lsb_exponent
    name = f"pool {number} {length}"
    place = draws.below(f"{name} sums", rows, terms, len(values))
    anchors = np.array(_anchors(unit, known, lsb))
    exponents = anchors[draws.below(f"{name} anchors", rows, terms, len(anchors))]
    shape = precision_of(unit.accumulator)
    steps = [0, 0, 0, 1, -1, 2, -2, *range(3, 14, 2), *range(-13, -2, 2)]
    steps += [s * (shape.bits + d) for s in (1, -1) for d in range(-known.sum_bits - 1, 3, 2)]
    delta = np.array(steps)[draws.below(f"{name} deltas", rows, terms, len(steps))]
    choice = draws.below(f"{name} choices", rows, terms, 8)
    negative = {v: n for n, v in enumerate(values)}
    opposite = np.array([negative.get(-v, n) for n, v in enumerate(values)])
    for k in range(1, terms):
        again = choice[:, k] < OPPOSITE
        place[:, k] = np.where(again, opposite[place[:, k - 1]], place[:, k])
        near = choice[:, k] < 7
        exponents[:, k] = np.where(near, exponents[:, k - 1] + delta[:, k], exponents[:, k])
        exact = choice[:, k] == 0
        exponents[:, k] = np.where(exact, exponents[:, k - 1], exponents[:, k])
    nan = draws.below(f"{name} nan", rows, terms, NAN_SHARE) == 0
    return _batch(unit, known, values, place, exponents - lsb, length, nan)


def _batch(
    unit: Unit,
    known: Limits,
    values: list[int],
    place: Integers,
    exponents: Integers,
    length: int,
    nan: Bools | None = None,
) -> Batch:
    """Places in `values` and scale exponents (n, terms) -> a batch of sequences of `length` cases."""
    codes = [table[place] for table in _table(known, values)]
    totals, scales = _scale_codes(unit)
    at = np.clip(exponents - totals[0], 0, len(totals) - 1)
    found = scales[at].astype(np.uint8)
    if nan is not None:
        found[nan, 0] = unit.sides[0].scale.nan_code
    cases = place.shape[0] * length
    first = np.zeros((place.shape[0], length), np.bool_)
    first[:, 0] = True
    sides: list[NDArray[np.uint8]] = [c.reshape(cases, -1) for c in codes]
    return Batch(
        unit,
        sides[0],
        sides[1],
        found[..., 0].reshape(cases, -1),
        found[..., 1].reshape(cases, -1),
        first.reshape(-1),
        np.zeros(cases, np.int64),
        ("fill",),
    )


def _ends(unit: Unit, known: Limits) -> Batch | None:
    """The values that a format ends with, each cut into terms that blocks can hold, largest first."""
    shape = precision_of(unit.accumulator)
    lsb = known.a.lsb_exponent + known.b.lsb_exponent
    top = shape.highest + 1 - shape.bits
    ends = [(2**shape.bits - 1, top), (2 ** (shape.bits + 1) - 1, top - 1), (2**shape.bits - 1, top - 1)]
    ends += [(2 ** (shape.bits - 1) - 1, shape.lowest), (1, shape.smallest_normal), (1, shape.lowest)]
    ends += [(2**shape.bits - 1, -1), (2 ** (shape.bits + 1) - 1, 0), (2 ** (shape.bits + 1) + 1, 0)]
    rows = []
    for sign in (1, -1):
        rows += [_cut(known, sign * value, exponent) for value, exponent in ends]
        power = min(known.sum_bits - 2, 12)
        if all(reaches(part, known.a, known.b, known.lanes) for part in (-sign, sign << power)):
            # what lies half a unit or less below the power of two past the end
            rows += [[(-sign, top - 1), (sign << power, shape.highest + 1 - power)]]
    most = max(len(row) for row in rows)
    length = -(-most // unit.blocks) if unit.kind == "running" else 1
    terms = length * unit.blocks
    rows = [row for row in rows if row and len(row) <= terms]
    if not rows:
        return None
    values = sorted({0, *(value for row in rows for value, _ in row)})
    place = np.full((len(rows), terms), values.index(0))
    exponents = np.full((len(rows), terms), lsb)
    for n, row in enumerate(rows):
        for k, (value, exponent) in enumerate(row):
            place[n, k], exponents[n, k] = values.index(value), exponent
    return _batch(unit, known, values, place, exponents - lsb, length)


def _cut(known: Limits, value: int, exponent: int) -> list[tuple[int, int]]:
    """Value * 2**exponent -> sums and exponents, the largest first, in as few as there are such sums for."""
    sign = -1 if value < 0 else 1
    for width in range(known.sum_bits - 1, 0, -1):
        pieces = range(0, abs(value).bit_length(), width)
        cuts = [(sign * (abs(value) >> place & ((1 << width) - 1)), exponent + place) for place in pieces]
        cuts = [cut for cut in cuts[::-1] if cut[0]]
        if all(reaches(part, known.a, known.b, known.lanes) for part, _ in cuts):
            return cuts
    return []
