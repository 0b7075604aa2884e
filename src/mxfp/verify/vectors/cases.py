# SPDX-License-Identifier: Apache-2.0
"""What a group of vectors is made of: blocks in sequences, and how they become the cases of a unit.

A group thinks in terms of blocks that are added one after the other. Where they go is a matter of the unit:
into the one block of a sum, among the blocks of a dot product, or into the steps of a running accumulator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from ...drafts import negated, one_of
from ...formats import Bools, Codes, ElementFormat, Integers, ScaleFormat
from ..unit import Unit

MOST_STEPS: Final = 8
"""The longest sequence that a group gives a running accumulator, in blocks that matter."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """n sequences of t blocks. codes_a, codes_b: uint8 (n, t, lanes). scales_a, scales_b: uint8 (n, t)."""

    codes_a: Codes
    codes_b: Codes
    scales_a: Codes
    scales_b: Codes

    def __len__(self) -> int:
        """How many sequences."""
        return len(self.codes_a)

    def rows(self, where: Integers) -> Blocks:
        """Some of the sequences."""
        return Blocks(*(x[where] for x in (self.codes_a, self.codes_b, self.scales_a, self.scales_b)))


@dataclass(frozen=True, eq=False)
class Plan:
    """A group for a unit: how many sequences, how many blocks in each, and what makes any of them.

    steps: 0 has the blocks placed by `placed`; else the blocks fill so many cases each. why: what the unit
    lacks, where there are none.
    """

    sequences: int
    terms: int
    make: Callable[[Integers], Blocks]
    steps: int = 0
    why: str = ""

    def steps_of(self, unit: Unit) -> int:
        """Cases of each sequence."""
        if unit.kind != "running":
            return 1
        return self.steps or self.terms

    def cases(self, unit: Unit) -> int:
        """Cases of all sequences."""
        return self.sequences * self.steps_of(unit)


@dataclass(frozen=True, eq=False)
class Cases:
    """Cases as a `Batch` has them: codes (n, elements), scales (n, blocks), first (n,)."""

    codes_a: Codes
    codes_b: Codes
    scales_a: Codes
    scales_b: Codes
    first: Bools


def _nothing(rows: Integers) -> Blocks:
    raise IndexError(f"no sequences, and {len(rows)} asked for")


def none(why: str) -> Plan:
    """No sequences, and why."""
    return Plan(0, 1, _nothing, why=why)


def fixed(blocks: Blocks) -> Plan:
    """The plan of sequences that are made already."""
    return Plan(len(blocks), blocks.codes_a.shape[1], blocks.rows)


def room_of(unit: Unit) -> int:
    """The most blocks that one sequence can add in this unit."""
    return MOST_STEPS if unit.kind == "running" else unit.blocks


def placed(plan: Plan, unit: Unit, rows: Integers) -> Cases:
    """Sequences -> cases. Blocks without a purpose are zeros, at scales that change nothing."""
    blocks = plan.make(rows)
    n, terms, lanes = blocks.codes_a.shape
    steps, width = plan.steps_of(unit), unit.blocks
    if terms == steps * width:
        parts = [blocks.codes_a, blocks.codes_b, blocks.scales_a, blocks.scales_b]
    else:
        where = _places(rows, terms, steps, width)
        codes = [np.zeros((n, steps * width, lanes), np.uint8) for _ in "ab"]
        scales = [idle_scales(fmt.scale)[(_mixed(rows) >> 1) % 3][:, None] for fmt in unit.sides]
        parts = [*codes, *(np.repeat(s, steps * width, axis=1) for s in scales)]
        given = (blocks.codes_a, blocks.codes_b, blocks.scales_a, blocks.scales_b)
        for part, values in zip(parts, given, strict=True):
            part[np.arange(n)[:, None], where] = values
    first = np.zeros((n, steps), np.bool_)
    first[:, 0] = True
    cases = n * steps
    return Cases(
        parts[0].reshape(cases, width * lanes),
        parts[1].reshape(cases, width * lanes),
        parts[2].reshape(cases, width),
        parts[3].reshape(cases, width),
        first.reshape(cases),
    )


def _places(rows: Integers, terms: int, steps: int, width: int) -> Integers:
    """(n, terms): where each block goes, of steps * width; in order, and by turns together and apart."""
    turn, even = _mixed(rows)[:, None] >> 9, (_mixed(rows) & 1 == 0)[:, None]
    block = np.arange(terms)[None, :]
    if steps > 1:
        together = np.repeat(block, len(rows), axis=0)
        apart = block * width + turn % width
    else:
        together = block + turn % (width - terms + 1)
        apart = np.repeat(block * (width - 1) // max(terms - 1, 1), len(rows), axis=0)
    return np.where(even, apart if terms > 1 or steps > 1 else together, together)


def _mixed(rows: Integers) -> Integers:
    """Sequence numbers -> 23 bits with no period in common with what a group makes of the numbers."""
    return (rows * 2654435761 & 0xFFFFFFFF) >> 9


@lru_cache(maxsize=16)
def idle_scales(scale: ScaleFormat) -> Codes:
    """Scales of blocks of zeros: that of one, the smallest and the largest."""
    return np.array([one_of(scale), int(scale.has_zero), scale.nan_code - 1], np.uint8)


def ones(unit: Unit, n: int, terms: int = 1) -> tuple[Codes, Codes]:
    """Scales of one for both sides, (n, terms)."""
    a, b = (np.full((n, terms), one_of(fmt.scale), np.uint8) for fmt in unit.sides)
    return a, b


@lru_cache(maxsize=16)
def finite_codes(element: ElementFormat) -> Codes:
    """All codes that are numbers."""
    return np.flatnonzero(element.finite).astype(np.uint8)


@lru_cache(maxsize=16)
def opposites(element: ElementFormat) -> tuple[Codes, Bools]:
    """Code -> the code of minus its value, and whether there is exactly that."""
    codes = np.arange(element.code_count, dtype=np.uint8)
    found = negated(codes, element)
    return found, (element.integers[found] == -element.integers[codes]) & element.finite[codes]
