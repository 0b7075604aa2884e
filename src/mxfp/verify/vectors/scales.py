# SPDX-License-Identifier: Apache-2.0
"""Groups about scales, what is not a number, and codes and scales drawn at random."""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ...distributions import Scales, edges, scale_codes
from ...drafts import one_of
from ...formats import Codes, ElementFormat, Integers, ScaleFormat
from ..unit import Unit
from .cases import Blocks, Plan, finite_codes, none, room_of
from .draws import Draws
from .lanes import cancelled

STEPS: Final = 4
"""Cases in a sequence of random steps of a running accumulator."""
NAN_ROWS: Final = 192
"""Sequences with a NaN scale, for each block of a case."""
Elements = Literal["any", "edges", "sparse", "largest", "specials"]
"""How elements are drawn, see `random_codes`."""


def scale_corners(unit: Unit, draws: Draws) -> Plan:
    """Scales at their ends, around one and in between, every one of a with every one of b."""
    if not unit.scaled:
        return none("the unit takes no scales")
    a, b = (corners(fmt.scale) for fmt in unit.sides)
    pair = np.stack([np.repeat(a, len(b)), np.tile(b, len(a))])

    def make(rows: Integers) -> Blocks:
        kind = rows // pair.shape[1]
        return _contents(unit, draws, rows, kind, *pair[:, rows % pair.shape[1]])

    return Plan(6 * pair.shape[1], 1, make)


def corners(scale: ScaleFormat) -> Codes:
    """The first two and last two, those around one, and the middle of each half.

    >>> from mxfp import E8M0
    >>> corners(E8M0).tolist()
    [0, 1, 63, 64, 126, 127, 128, 190, 191, 253, 254]
    """
    one, top = one_of(scale), scale.nan_code - 1
    middle = [one // 2, one // 2 + 1, (one + top) // 2, (one + top) // 2 + 1]
    return np.unique(np.array([0, 1, *middle, one - 1, one, one + 1, top - 1, top], np.uint8))


def scale_sums(unit: Unit, draws: Draws) -> Plan:
    """Every sum of two scale codes, from the smallest to the largest, in three ways."""
    if not unit.scaled:
        return none("the unit takes no scales")
    top = [fmt.scale.nan_code - 1 for fmt in unit.sides]
    count = sum(top) + 1

    def make(rows: Integers) -> Blocks:
        total, way = rows % count, rows // count % 3
        low, high = np.maximum(total - top[1], 0), np.minimum(total, top[0])
        random = low + draws.below("split", rows, 1, 1 << 20)[:, 0] % (high - low + 1)
        own = np.select([way == 0, way == 1], [np.clip(total // 2, low, high), low], random)
        return _contents(unit, draws, rows, rows // count + 1, own, total - own)

    return Plan(3 * count, 1, make)


def _contents(
    unit: Unit, draws: Draws, rows: Integers, kind: Integers, scale_a: Integers, scale_b: Integers
) -> Blocks:
    """Blocks by kind: 0 one LSB, 1 and 3 random, 2 the largest sum, 4 the smallest, 5 zeros."""
    a, b = (fmt.element for fmt in unit.sides)
    largest = (int(a.integers.argmax()), int(b.integers.argmax()), int(b.integers.argmin()))
    codes = []
    for side, element in enumerate((a, b)):
        any_code = draws.codes(f"code {side}", rows, unit.a.block, finite_codes(element))
        single = np.zeros_like(any_code)
        single[np.arange(len(rows)), draws.below("lane", rows, 1, unit.a.block)[:, 0]] = 1
        which = (kind % 6)[:, None]
        ends = (largest[side], largest[2 * side])
        whole = np.array([0, 0, ends[0], 0, ends[1], 0], np.uint8)[which]
        codes.append(np.where(which == 0, single, np.where(which % 2 * (which < 5) == 1, any_code, whole)))
    scales = (np.asarray(s, np.uint8)[:, None] for s in (scale_a, scale_b))
    return Blocks(codes[0][:, None], codes[1][:, None], *scales)


def nan_scales(unit: Unit, draws: Draws) -> Plan:
    """A scale that is NaN on a, b or both, of zeros, of what cancels, large or random; a block beside it.

    The other block, before or behind it, is there if the unit has room for two.
    """
    if not unit.scaled:
        return none("the unit takes no scales")
    terms = min(room_of(unit), 2)
    kinds = np.array([5, 2, 1, 0] if unit.a.block < 2 else [5, 2, 1, 0, 1])

    def make(rows: Integers) -> Blocks:
        sides, content, turn = rows % 3 + 1, rows // 3 % len(kinds), rows // (3 * len(kinds))
        scales, others = [], []
        for side, fmt in enumerate(unit.sides):
            corner = scale_codes(fmt.scale, "corner", finite=True)
            other = draws.codes(f"scale {side}", rows, 2, corner)
            scales.append(np.where(sides >> side & 1 == 1, fmt.scale.nan_code, other[:, 0]))
            others.append(other[:, 1].astype(np.int64))
        blocks = _contents(unit, draws, rows, kinds[content], scales[0], scales[1])
        if (where := np.flatnonzero(content == 4)).size:
            zero = cancelled(unit, draws, rows[where], 0)
            blocks.codes_a[where], blocks.codes_b[where] = zero.codes_a, zero.codes_b
        if terms == 1:
            return blocks
        beside = _contents(unit, draws, rows + NAN_ROWS * unit.blocks, turn % 6, others[0], others[1])
        both = [
            np.concatenate([getattr(x, name) for x in (blocks, beside)], axis=1)
            for name in ("codes_a", "codes_b", "scales_a", "scales_b")
        ]
        turned = turn // 2 % 2 == 1
        for values in both:
            values[turned] = values[turned][:, ::-1]
        return Blocks(*both)

    return Plan(NAN_ROWS * unit.blocks, terms, make)


def special_elements(unit: Unit, draws: Draws) -> Plan:
    """Elements that are NaN or infinite, one in each lane in turn, against zeros and others."""
    found = [np.flatnonzero(~fmt.element.finite).astype(np.uint8) for fmt in unit.sides]
    if not unit.scaled or not sum(map(len, found)):
        return none("no element of these formats is NaN or infinite" if unit.scaled else "sums are integers")
    which = [(side, code) for side in (0, 1) for code in found[side].tolist()]
    side_of, code_of = np.array(which).T
    lanes = unit.a.block

    def make(rows: Integers) -> Blocks:
        lane, kind, special = rows % lanes, rows // lanes % 3, rows // lanes // 3
        blocks = _contents(unit, draws, rows, np.where(kind == 0, 5, 1), *_near(unit, draws, rows))
        here = np.arange(lanes)[None, :] == lane[:, None]
        for side, codes in enumerate((blocks.codes_a, blocks.codes_b)):
            mine = here & (side_of[special] == side)[:, None]
            codes[:, 0] = np.where(mine, code_of[special][:, None], codes[:, 0])
            if found[side].size:
                other = draws.codes(f"special {side}", rows, lanes, found[side])
                codes[:, 0] = np.where(here & (kind == 2)[:, None] & ~mine, other, codes[:, 0])
        return blocks

    return Plan(len(which) * 3 * lanes, 1, make)


def _near(unit: Unit, draws: Draws, rows: Integers) -> tuple[Integers, Integers]:
    a, b = (
        draws.codes(f"near {side}", rows, 1, scale_codes(fmt.scale, "near-unit", finite=True))[:, 0]
        for side, fmt in enumerate(unit.sides)
    )
    return a.astype(np.int64), b.astype(np.int64)


def drawn(unit: Unit, draws: Draws, count: int, elements: Elements, scales: Scales) -> Plan:
    """About `count` cases at random, in sequences of `STEPS` steps for a running accumulator."""
    if not unit.scaled and elements == "any" and scales != "near-unit":
        return none("the unit takes no scales")
    if not unit.scaled and elements == "specials":
        return none("sums are integers")
    steps = STEPS if unit.kind == "running" else 1
    terms = steps * unit.blocks

    def make(rows: Integers) -> Blocks:
        n = len(rows)
        codes = [
            random_codes(draws, f"{side}", rows, terms * unit.a.block, fmt.element, elements)
            for side, fmt in enumerate(unit.sides)
        ]
        drawn_scales = [
            draws.codes(f"scale {side}", rows, terms, scale_codes(fmt.scale, scales, finite=scales != "bits"))
            for side, fmt in enumerate(unit.sides)
        ]
        a, b = (c.reshape(n, terms, unit.a.block) for c in codes)
        return Blocks(a, b, drawn_scales[0], drawn_scales[1])

    return Plan(-(-count // steps), terms, make, steps)


def random_codes(
    draws: Draws, purpose: str, rows: Integers, count: int, element: ElementFormat, kind: Elements
) -> Codes:
    """Codes at random: any number, one of `edges`, mostly zeros, ± the largest, or any code at all."""
    choices: NDArray[Any] = finite_codes(element)
    if kind == "edges":
        choices = edges(element, finite=True)
    elif kind == "largest":
        choices = np.array([element.integers.argmax(), element.integers.argmin()], np.uint8)
    elif kind == "specials":
        choices = np.arange(element.code_count)
    found = draws.codes(f"code {purpose}", rows, count, choices)
    if kind == "sparse":
        share = draws.codes(f"zero {purpose}", rows, count, np.arange(8))
        found = np.where(share == 0, found, 0).astype(np.uint8)
    return found


def drawn_cancelling(unit: Unit, draws: Draws, count: int) -> Plan:
    """Random blocks whose lanes cancel exactly, or but for one LSB by turns."""
    if unit.a.block < 3:
        return none("needs three lanes: two that cancel, and one LSB")
    return Plan(count, 1, lambda rows: cancelled(unit, draws, rows, 1, every=2))
