# SPDX-License-Identifier: Apache-2.0
"""What makes a case smaller: the edits that can be tried on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ...formats import ElementFormat
from ..unit import Unit
from .steps import Edit, Steps, one_of_scale, ranks


def fewer_steps(unit: Unit, steps: Steps) -> Iterator[Edit]:
    """Runs of steps left out, the longest first; never the last one."""
    last = len(steps) - 1
    size = last
    while size:
        for start in range(0, last - size + 1, size):
            yield _without(start, start + size)
        size //= 2


def _without(start: int, stop: int) -> Edit:
    def edit(steps: Steps) -> Steps:
        keep = np.ones(len(steps), np.bool_)
        end = min(stop, len(steps) - 1)  # the last is the one that is judged
        keep[start:end] = False
        first = steps.first.copy()
        first[end] |= first[start:end].any()
        arrays = {name: getattr(steps, name)[keep] for name in ("codes_a", "codes_b", "scales_a", "scales_b")}
        return Steps(**arrays, first=first[keep])

    return edit


def fewer_lanes(unit: Unit, steps: Steps) -> Iterator[Edit]:
    """Runs of lanes set to zero, whole blocks first."""
    elements = unit.elements
    live = [
        (row, lane)
        for row in range(len(steps))
        for lane in np.flatnonzero((steps.codes_a[row] != 0) | (steps.codes_b[row] != 0)).tolist()
    ]
    for row in range(len(steps)):
        for block in range(unit.blocks):
            yield _set(row, slice(block * unit.a.block, (block + 1) * unit.a.block), 0, 0)
    if len(steps) > 1:
        for lane in sorted({lane for _, lane in live}):
            yield _set(slice(None), lane, 0, 0)
    size = max(1, min(len(live), elements) // 2)
    while size:
        for start in range(0, len(live), size):
            yield _zeros(live[start : start + size])
        size //= 2


def _zeros(places: list[tuple[int, int]]) -> Edit:
    rows, lanes = (np.array(x) for x in zip(*places, strict=True))
    return _set(rows, lanes, 0, 0)


def _set(row: Any, lane: Any, code_a: int | None, code_b: int | None) -> Edit:
    def edit(steps: Steps) -> Steps:
        changed: dict[str, Any] = {}
        for name, code in (("codes_a", code_a), ("codes_b", code_b)):
            if code is not None:
                codes = getattr(steps, name).copy()
                codes[row, lane] = code
                changed[name] = codes
        return replace(steps, **changed)

    return edit


def one_lane(unit: Unit, steps: Steps) -> Iterator[Edit]:
    """One lane for a whole block, with a scale that makes up for it; a step that is minus another one."""
    a, b = (fmt.element for fmt in unit.sides)
    plain = [(x, y) for x in _plain(a) for y in _plain(b) if ranks(b)[y] <= ranks(a)[x]]
    most = unit.sides[0].scale.code_count - 2
    lanes = unit.a.block
    for row in range(len(steps)):
        for block in range(unit.blocks):
            part = slice(block * lanes, (block + 1) * lanes)
            live = np.flatnonzero(steps.codes_a[row, part] | steps.codes_b[row, part])
            if len(live) < 2:
                continue
            lane = block * lanes + int(live[0])
            for x, y in plain:
                for by in range(-unit.sum_bits, unit.sum_bits + 1):
                    scale = int(steps.scales_a[row, block]) + by
                    if 0 <= scale <= most:
                        yield _alone(row, block, part, lane, x, y, scale)
    for row in range(1, len(steps)):
        yield _minus(unit, row)
        live = np.flatnonzero(steps.codes_a[row - 1] | steps.codes_b[row - 1])
        if len(live):
            yield _opposite(unit, row, int(live[0]), *plain[0])


def _plain(element: ElementFormat) -> list[int]:
    """The plainest codes of a few magnitudes, of both signs."""
    rank = ranks(element)
    order = sorted(range(element.code_count), key=lambda code: rank[code])
    return [code for code in order if element.finite[code] and element.integers[code]][:8]


def _alone(row: int, block: int, part: slice, lane: int, x: int, y: int, scale: int) -> Edit:
    def edit(steps: Steps) -> Steps:
        steps = _set(row, part, 0, 0)(steps)
        return _scales(row, block, scale, None)(_set(row, lane, x, y)(steps))

    return edit


def _minus(unit: Unit, row: int) -> Edit:
    """A step becomes the one before it, with the opposite sign."""

    def edit(steps: Steps) -> Steps:
        if row >= len(steps):
            return steps
        element = unit.a.element
        changed: dict[str, Any] = {}
        for name in ("codes_a", "codes_b", "scales_a", "scales_b"):
            changed[name] = getattr(steps, name).copy()
            changed[name][row] = changed[name][row - 1]
        opposite = np.arange(element.code_count, dtype=np.uint8)
        nonzero = np.flatnonzero(element.integers)
        where = {int(value): code for code, value in zip(nonzero, element.integers[nonzero], strict=True)}
        for code in nonzero.tolist():
            opposite[code] = where.get(-int(element.integers[code]), code)
        changed["codes_a"][row] = opposite[changed["codes_a"][row]]
        return replace(steps, **changed)

    return edit


def _opposite(unit: Unit, row: int, lane: int, x: int, y: int) -> Edit:
    """A step and the one before it become one lane, and minus one lane."""

    def edit(steps: Steps) -> Steps:
        steps = _set(row - 1, slice(None), 0, 0)(steps)
        return _minus(unit, row)(_set(row - 1, lane, x, y)(steps))

    return edit


def alike(unit: Unit, steps: Steps) -> Iterator[Edit]:
    """The first lanes of a block all the same, and the others zero: for sums that are too large."""
    lanes = unit.a.block
    top = [int(np.argmax(np.where(fmt.element.finite, fmt.element.values, -np.inf))) for fmt in unit.sides]
    low = [int(np.argmin(np.where(fmt.element.finite, fmt.element.values, np.inf))) for fmt in unit.sides]
    ends = [(top[0], top[1]), (top[0], low[1])]
    for row in range(len(steps)):
        for block in range(unit.blocks):
            part = slice(block * lanes, (block + 1) * lanes)
            a, b = steps.codes_a[row, part], steps.codes_b[row, part]
            live = int(((a != 0) | (b != 0)).sum())
            pairs = sorted({(int(x), int(y)) for x, y in zip(a, b, strict=True) if x and y})
            for x, y in [*ends, *pairs[:64]]:
                for count in range(1, live + 1):
                    yield _first_lanes(row, part, count, x, y)


def _first_lanes(row: int, part: slice, count: int, x: int, y: int) -> Edit:
    def edit(steps: Steps) -> Steps:
        steps = _set(row, part, 0, 0)(steps)
        return _set(row, slice(part.start, part.start + count), x, y)(steps)

    return edit


def plainer_codes(unit: Unit, steps: Steps) -> Iterator[Edit]:
    """Codes that are plainer: everywhere that one stands, and in one place."""
    for name, other, fmt in (("a", "b", unit.sides[0]), ("b", "a", unit.sides[1])):
        rank = ranks(fmt.element)
        order = sorted(range(len(rank)), key=lambda code, rank=rank: rank[code])  # type: ignore[misc]
        codes = getattr(steps, f"codes_{name}")
        for code in sorted({int(c) for c in np.unique(codes)}):
            for plain in order[: rank[code]]:
                yield _everywhere(name, code, plain)
        magnitudes = np.abs(fmt.element.integers)
        half = [code for code in order if fmt.element.finite[code] and not fmt.element.negative[code]]
        for code in half:
            for plain in half[: half.index(code)]:
                yield _magnitude(name, fmt.element, int(magnitudes[code]), int(magnitudes[plain]))
        for row, lane in np.argwhere(codes != 0).tolist():
            for plain in order[: rank[int(codes[row, lane])]][:16]:
                yield _set(row, lane, plain if name == "a" else None, plain if name == "b" else None)
        del other


def _everywhere(name: str, code: int, plain: int) -> Edit:
    def edit(steps: Steps) -> Steps:
        codes = getattr(steps, f"codes_{name}")
        changed: Any = {f"codes_{name}": np.where(codes == code, np.uint8(plain), codes)}
        return replace(steps, **changed)

    return edit


def _magnitude(name: str, element: ElementFormat, old: int, new: int) -> Edit:
    """Every code of a magnitude becomes that of another with its sign."""
    codes = np.arange(element.code_count, dtype=np.uint8)
    where = {int(value): code for code, value in enumerate(element.integers.tolist()) if value}
    for sign in (1, -1):
        if sign * old in where:
            codes[where[sign * old]] = where.get(sign * new, 0)

    def edit(steps: Steps) -> Steps:
        changed: Any = {f"codes_{name}": codes[getattr(steps, f"codes_{name}")]}
        return replace(steps, **changed)

    return edit


def plainer_scales(unit: Unit, steps: Steps) -> Iterator[Edit]:
    """Scales nearer to 1: all, those of a side, each; and what one has moved to the other."""
    one = one_of_scale(unit)
    for part in (slice(None), *range(len(steps))):
        yield _scales(part, slice(None), one[0], one[1])
        yield _scales(part, slice(None), one[0], None)
        yield _scales(part, slice(None), None, one[1])
    a, b = steps.scales_a.astype(np.int64), steps.scales_b.astype(np.int64)
    most = [fmt.scale.code_count - 2 for fmt in unit.sides]
    for side, values in enumerate((a, b)):
        for value in np.unique(values).tolist():
            gap = one[side] - value
            while gap:
                yield _shifted(side, gap, most[side])
                gap = int(gap / 2)
    for row, block in np.argwhere((a != one[0]) | (b != one[1])).tolist():
        x, y = int(a[row, block]), int(b[row, block])
        yield _scales(row, block, one[0], one[1])
        yield _scales(row, block, one[0], None)
        yield _scales(row, block, None, one[1])
        total = x + y
        for moved in (total - one[1], max(0, min(total - one[1], most[0]))):
            if 0 <= moved <= most[0] and 0 <= total - moved <= most[1]:
                yield _scales(row, block, moved, total - moved)
        for value, o, side in ((x, one[0], 0), (y, one[1], 1)):
            gap = value - o
            while gap:
                gap = int(gap / 2)
                pair = [None, None]
                pair[side] = o + gap  # type: ignore[call-overload]
                yield _scales(row, block, pair[0], pair[1])
            if value != o:
                step = value - 1 if value > o else value + 1
                yield _scales(row, block, step if side == 0 else None, step if side == 1 else None)


def _shifted(side: int, by: int, most: int) -> Edit:
    """All scales of a side, but NaN, so many codes higher."""
    name = f"scales_{'ab'[side]}"

    def edit(steps: Steps) -> Steps:
        scales = getattr(steps, name).astype(np.int64)
        moved = np.where(scales <= most, np.clip(scales + by, 0, most), scales)
        changed: Any = {name: moved.astype(np.uint8)}
        return replace(steps, **changed)

    return edit


def _scales(row: Any, block: Any, scale_a: int | None, scale_b: int | None) -> Edit:
    def edit(steps: Steps) -> Steps:
        changed: dict[str, Any] = {}
        for name, code in (("scales_a", scale_a), ("scales_b", scale_b)):
            if code is not None:
                scales = getattr(steps, name).copy()
                scales[row, block] = code
                changed[name] = scales
        return replace(steps, **changed)

    return edit


PASSES: tuple[Callable[[Unit, Steps], Iterator[Edit]], ...] = (
    fewer_steps,
    fewer_lanes,
    one_lane,
    alike,
    plainer_scales,
    plainer_codes,
)
"""Kinds of edits, in the order in which they are tried."""
