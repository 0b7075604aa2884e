# SPDX-License-Identifier: Apache-2.0
"""Which bins each case of a batch hits: a batch -> marks, (n,) booleans by family and bin.

What the operands say is counted from the operands; the classes of the result are those of what the unit
answered, where its answers are given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...accumulate import Exact, Pairwise
from ...blocks import BlockArray
from ...dot import Terms, block_dots
from ...formats import Bools, Floats, Integers
from ...integers import sum_bounds
from ..unit import Batch, expected
from .bin_classes import (
    LENGTHS,
    SCALE_CLASSES,
    adders,
    exponent_cuts,
    interval_names,
    named_sums,
    scale_classes,
    width_names,
)
from .bins import families
from .reach import Limits, limits
from .results import as_floats, result_classes, sum_classes
from .roundings import Marks, marks_of_steps

STEPPED: Final = ("rounding", "accumulation", "alignment")
"""Families that the accumulator's steps hit."""
NEARLY: Final = 2.0**-8
"""What terms leave when they nearly cancel, at most, as a part of the largest of them."""


def observe(batch: Batch, answers: Mapping[str, NDArray[Any]] | None = None) -> Marks:
    """Marks of all families whose counts are of cases.

    answers: what the unit gave, stage by stage as in `unit.expected`; only "result" (or "sum", of a unit
    that sums products) is looked at. None is what a right unit gives.
    """
    unit, known = batch.unit, limits(batch.unit)
    shape = (len(batch), unit.blocks, unit.a.block)
    x, y = (fmt.element.integers[codes].reshape(shape) for fmt, codes in _sides(batch))
    products = x * y
    right = None if answers is not None and not unit.scaled else expected(batch, stages=False)
    sums = products.sum(axis=-1) if right is None else right["sum"]
    marks: Marks = {"lane alone": _alone(products), "sum": _sums(sums, known)}
    if known.lanes > 1:
        marks["adder"], halves = _adders(products, known)
        marks["cancellation"] = _cancellations(products, sums, halves, known)
    given = right if answers is None else answers
    assert given is not None
    if not unit.scaled:
        marks["result"] = sum_classes(given["sum"][:, 0].astype(np.int64), known)
        return marks
    assert right is not None
    marks["scales a × b"], marks["exponent of the scales"] = _scales(batch)
    marks["special"] = _specials(batch, right["special"], sums, products)
    if known.several_blocks:
        marks["cancellation"] = marks.get("cancellation", {}) | _across(batch)
    for family, found in _stepped(batch):
        marks[family] = found
    results = as_floats(batch, right["result"])
    if known.running:
        marks["sequence"] = _sequences(batch, results)
    marks["result"] = result_classes(batch, as_floats(batch, given["result"]), right, known)
    return marks


def _sides(batch: Batch) -> Iterator[tuple[Any, NDArray[np.uint8]]]:
    return zip(batch.unit.sides, (batch.codes_a, batch.codes_b), strict=True)


def _alone(products: Integers) -> dict[str, Bools]:
    live = products != 0
    alone = live & (live.sum(axis=-1, keepdims=True) == 1)
    hit = alone.any(axis=1)
    return {f"lane {n}": hit[:, n] for n in range(products.shape[-1])}


def _sums(sums: Integers, known: Limits) -> dict[str, Bools]:
    found = {name: (sums == value).any(axis=1) for name, value in named_sums(known)}
    magnitude = np.where(sums < 0, ~sums, sums)
    bits = 1 + np.where(magnitude > 0, np.frexp(magnitude.astype(np.float64))[1], 0)
    if known.sum_bits > 53:
        bits = 1 + np.asarray(np.frompyfunc(int.bit_length, 1, 1)(magnitude.astype(object)), np.int64)
    for name, width in width_names(known.sum_bits):
        right_sign = sums > 0 if name.startswith("positive") else sums < 0
        found[name] = (right_sign & (bits == width)).any(axis=1)
    return found


def _adders(products: Integers, known: Limits) -> tuple[dict[str, Bools], Integers]:
    """Every adder at its ends; and the two addends of the last one."""
    level: Integers = products
    levels = [level]
    while level.shape[-1] > 1:
        even = level.shape[-1] // 2 * 2
        level = np.concatenate([level[..., 0:even:2] + level[..., 1:even:2], level[..., even:]], axis=-1)
        levels.append(level)
    found = {}
    ends: dict[tuple[int, str], Bools] = {}
    for name, number, place, end in adders(known.lanes):
        if (number, end) not in ends:
            # an adder at the end of a tree that is not full adds fewer products
            counts = [
                min(1 << number, known.lanes - n * (1 << number)) for n in range(levels[number].shape[-1])
            ]
            bound = np.array([sum_bounds(known.a, known.b, n)[end == "highest"] for n in counts])
            ends[number, end] = (levels[number] == bound).any(axis=1)
        found[name] = ends[number, end][:, place]
    return found, levels[-2]


def _cancellations(products: Integers, sums: Integers, halves: Integers, known: Limits) -> dict[str, Bools]:
    both = (products > 0).any(axis=-1) & (products < 0).any(axis=-1)
    found = {
        "exact": (both & (sums == 0)).any(axis=1),
        "leaves -1": (both & (sums == -1)).any(axis=1),
        "leaves 1": (both & (sums == 1)).any(axis=1),
    }
    most = sum_bounds(known.a, known.b, known.lanes // 2)[1]
    found["largest halves"] = ((np.abs(halves[..., 0]) == most) & (sums == 0)).any(axis=1)
    return found


def _scales(batch: Batch) -> tuple[dict[str, Bools], dict[str, Bools]]:
    a, b = (fmt.scale for fmt in batch.unit.sides)
    crossed = scale_classes(a)[batch.scales_a] * len(SCALE_CLASSES) + scale_classes(b)[batch.scales_b]
    names = [f"{one} × {other}" for one in SCALE_CLASSES for other in SCALE_CLASSES]
    found = {name: (crossed == n).any(axis=1) for n, name in enumerate(names)}
    finite = a.finite[batch.scales_a] & b.finite[batch.scales_b]
    exponents = a.exponents[batch.scales_a] + b.exponents[batch.scales_b]
    cuts = exponent_cuts(*limits(batch.unit).scale_exponents)
    place = np.where(finite, np.searchsorted(cuts, exponents, side="right") - 1, -1)
    return found, {name: (place == n).any(axis=1) for n, name in enumerate(interval_names(cuts))}


def _specials(batch: Batch, special: Integers, sums: Integers, products: Integers) -> dict[str, Bools]:
    a, b = batch.unit.sides
    nan_a = batch.scales_a == a.scale.nan_code
    nan_b = batch.scales_b == b.scale.nan_code
    live = (products != 0).any(axis=-1)
    found = {}
    for side, where in (("a", nan_a & ~nan_b), ("b", nan_b & ~nan_a), ("both", nan_a & nan_b)):
        for codes, which in (("zero", ~live), ("nonzero", live)):
            found[f"NaN scale of {side}, {codes} codes"] = (where & which).any(axis=1)
    shape = (*sums.shape, batch.unit.a.block)
    element = [
        np.isnan(fmt.element.values[codes]).reshape(shape).any(axis=-1) for fmt, codes in _sides(batch)
    ]
    found["NaN element"] = (element[0] | element[1]).any(axis=1)
    found["term +infinity"] = (special == 2).any(axis=1)
    found["term -infinity"] = (special == 3).any(axis=1)
    return found


def _across(batch: Batch) -> dict[str, Bools]:
    """Blocks that cancel each other, exactly or nearly."""
    terms = block_dots(*batch.pair)
    values = np.ldexp(terms.sums.astype(np.float64), terms.exponents)
    if terms.specials is not None:
        values = np.where(terms.specials != 0, 0.0, values)
    largest = np.abs(values).max(axis=1)
    rough = np.abs(values.sum(axis=1))
    exact = np.zeros(len(batch), np.bool_)
    for row in np.flatnonzero((largest > 0) & (rough <= 2.0**-30 * largest)):
        exact[row] = _cancels(terms, int(row))
    near = (largest > 0) & (rough <= NEARLY * largest) & ~exact
    return {"across blocks, exact": exact, "across blocks, nearly": near}


def _cancels(terms: Terms, row: int) -> bool:
    lowest = int(terms.exponents[row].min())
    pairs = zip(terms.sums[row].tolist(), terms.exponents[row].tolist(), strict=True)
    return bool(sum(s << (e - lowest) for s, e in pairs) == 0)


# --- sequences and steps


def _sequence_rows(batch: Batch) -> Iterator[tuple[Integers, bool]]:
    """Cases (sequences, length) that an accumulator takes in a row; whether their last case alone is news.

    One that ends in a rounding (exact, pairwise) begins again for each case of a sequence.
    """
    begins = np.flatnonzero(batch.first)
    lengths = np.diff(np.append(begins, len(batch)))
    again = isinstance(batch.unit.accumulator, (Exact, Pairwise))
    for length in range(1, int(lengths.max(initial=0)) + 1) if again else np.unique(lengths).tolist():
        yield begins[lengths >= length if again else lengths == length][:, None] + np.arange(length), again


def _stepped(batch: Batch) -> Iterator[tuple[str, dict[str, Bools]]]:
    """What the accumulator's steps did, by the case whose terms they took."""
    unit, none = batch.unit, np.zeros(len(batch), np.bool_)
    total: Marks = {f.name: {n: none.copy() for n in f.names} for f in families(unit) if f.name in STEPPED}
    for rows, last in _sequence_rows(batch):
        a, b = (
            BlockArray(codes[rows].reshape(len(rows), -1), scales[rows].reshape(len(rows), -1), fmt)
            for codes, scales, fmt in (
                (batch.codes_a, batch.scales_a, unit.sides[0]),
                (batch.codes_b, batch.scales_b, unit.sides[1]),
            )
        )
        terms = block_dots(a, b, group=unit.accumulator.terms_of)
        per_case = len(terms) / rows.shape[1]
        for _, stop, marks in marks_of_steps(unit.accumulator, terms):
            cases = rows[:, -1 if last else int((min(stop, len(terms)) - 1) // per_case)]
            for family, found in marks.items():
                into = total.setdefault(family, {})
                for name, hit in found.items():
                    into.setdefault(name, none.copy())[cases] |= hit
    yield from total.items()


def _sequences(batch: Batch, results: Floats) -> dict[str, Bools]:
    """Lengths of sequences, at their last case; and what was cleared before the next one."""
    last = np.append(batch.first[1:], True)
    begins = np.flatnonzero(batch.first)
    place = np.arange(len(batch)) - begins[np.cumsum(batch.first) - 1] + 1 if len(batch) else np.zeros(0)
    names = ("length 1", "length 2", "length 3 … 4", "length 5 … 8", "length 9 or more")
    found = {
        name: last & (place >= low) & (place <= high)
        for name, (low, high) in zip(names, LENGTHS, strict=True)
    }
    found["not first"] = ~batch.first
    before = np.append(0.0, results[:-1])
    found["cleared after a number"] = batch.first & np.isfinite(before) & (before != 0)
    found["cleared after infinity"] = batch.first & np.isinf(before)
    found["cleared after NaN"] = batch.first & np.isnan(before)
    return found
