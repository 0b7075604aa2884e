# SPDX-License-Identifier: Apache-2.0
"""Vectors for the bins that a run missed: constructed where a bin says of what, else searched for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from ...formats import Codes
from ...integers import product_bounds, sum_bounds
from ...sums import code_pair, distinct_products, lanes_for, reaches
from ..unit import Batch, Unit
from ..vectors.groups import check_unit
from ..vectors.sequences import Sequences, joined
from .bin_classes import (
    PRODUCT_CLASSES,
    SCALE_CLASSES,
    adders,
    element_classes,
    exponent_cuts,
    interval_names,
    known_sums,
    named_sums,
    product_classes,
    scale_classes,
    width_names,
    width_span,
)
from .coverage import Coverage
from .observe import observe
from .reach import Limits, limits
from .searching import pools, sequences_of

Case = dict[str, Codes]
"""Codes (elements,) and scales (blocks,) of one case, by the names that a Batch has for them."""
SEARCHED: Final = ("rounding", "accumulation", "alignment", "result", "cancellation", "sequence")
"""Families whose bins say nothing of operands: a pool of likely cases is searched."""
ROUNDS: Final = 6
"""Pools that are searched before a bin counts as not found."""


def fill(coverage: Coverage, *, seed: int = 0) -> Batch:
    """Cases that hit bins which were missed: a batch of one group, "fill". The same for the same seed.

    Not every bin that is wanted is found: add the batch to the coverage and see what is still missed.

    >>> cover = Coverage(Unit("sum", lanes=4))
    >>> cover.add(fill(cover))
    >>> cover.cases, cover.missed()
    (..., [])
    """
    unit = coverage.unit
    check_unit(unit)
    missed = set(coverage.missed())
    made = Sequences(unit)
    for family, find in FINDERS.items():
        names = [name for f, name in coverage.missed() if f == family]
        if names:
            for case in find(unit, limits(unit), names):
                made.add_case(**case)
    for parts in _searched(unit, missed, made.batch(), seed):
        made.add_rows(parts)
    return made.batch()


def _searched(unit: Unit, missed: set[tuple[str, str]], made: Batch, seed: int) -> Iterator[Batch]:
    """Sequences out of pools that hit what is missed and not made already."""
    left = {pair for pair in missed if pair[0] in SEARCHED}
    if not left:
        return
    left -= _hit(made, left)
    for pool in pools(unit, seed, ROUNDS):
        if not left:
            return
        marks = observe(pool)
        for family, name in sorted(left):
            hits = np.flatnonzero(marks[family][name])
            if (family, name) in left and len(hits):
                chosen = joined(sequences_of(pool, int(hits[0]), before=family == "sequence"))
                left -= _hit(chosen, left)
                yield chosen


def _hit(batch: Batch, among: set[tuple[str, str]]) -> set[tuple[str, str]]:
    if not len(batch):
        return set()
    marks = observe(batch)
    return {(family, name) for family, name in among if marks[family][name].any()}


# --- what a bin's name says to construct


def _case(unit: Unit, a: Codes, b: Codes, scales: tuple[int, int] | None = None) -> Case:
    """One block of codes at lanes 0 … n-1, with the scales of one or those given; other blocks idle."""
    found = {
        "codes_a": np.zeros(unit.elements, np.uint8),
        "codes_b": np.zeros(unit.elements, np.uint8),
    }
    found["codes_a"][: len(a)], found["codes_b"][: len(b)] = a, b
    for n, fmt in enumerate(unit.sides):
        one = int(np.flatnonzero(fmt.scale.values == 1.0)[0])
        found[f"scales_{'ab'[n]}"] = np.full(unit.blocks, one, np.uint8)
        if scales is not None:
            found[f"scales_{'ab'[n]}"][0] = scales[n]
    return found


def _one_pair(unit: Unit, known: Limits, lane: int, a: int, b: int) -> Case:
    codes = np.zeros((2, known.lanes), np.uint8)
    codes[:, lane] = a, b
    return _case(unit, codes[0], codes[1])


def _elements(unit: Unit, known: Limits, names: list[str], side: int) -> Iterator[Case]:
    fmt, other = ((known.a, known.b), (known.b, known.a))[side]
    one = int(np.flatnonzero(other.integers == other.integers[other.finite].max())[0])
    classes, of_code = element_classes(fmt)
    for n, name in enumerate(names):
        code = int(np.flatnonzero(of_code == classes.index(name))[0])
        pair = (code, one) if side == 0 else (one, code)
        yield _one_pair(unit, known, n % known.lanes, *pair)


def _products(unit: Unit, known: Limits, names: list[str]) -> Iterator[Case]:
    classes = product_classes(known.a, known.b)
    for n, name in enumerate(names):
        found = np.argwhere(classes == PRODUCT_CLASSES.index(name))
        a, b = found[len(found) // 2]
        yield _one_pair(unit, known, n % known.lanes, int(a), int(b))


def _pairs(unit: Unit, known: Limits, names: list[str]) -> Iterator[Case]:
    """Missed pairs, as many lanes at once as have one left."""
    values = [[f"{v:g}" for v in fmt.values.tolist()] for fmt in (known.a, known.b)]
    code = [{text: n for n, text in enumerate(side)} for side in values]
    waiting: list[list[tuple[int, int]]] = [[] for _ in range(known.lanes)]
    for name in names:
        place, _, pair = name.partition(": ")
        x, _, y = pair.partition(" × ")
        waiting[int(place)].append((code[0][x], code[1][y]))
    for n in range(max((len(w) for w in waiting), default=0)):
        codes = np.zeros((2, known.lanes), np.uint8)
        for lane, pairs in enumerate(waiting):
            if n < len(pairs):
                codes[:, lane] = pairs[n]
        yield _case(unit, codes[0], codes[1])


def _lanes(unit: Unit, known: Limits, names: list[str]) -> Iterator[Case]:
    a, b = code_pair(product_bounds(known.a, known.b)[1], known.a, known.b)
    for name in names:
        yield _one_pair(unit, known, int(name.split()[1]), a, b)


def _sums(unit: Unit, known: Limits, names: list[str]) -> Iterator[Case]:
    values, widths = dict(named_sums(known)), dict(width_names(known.sum_bits))
    for name in names:
        candidates = [values[name]] if name in values else _of_width(known, name, widths[name])
        for value in candidates:
            if reaches(value, known.a, known.b, known.lanes):
                yield _summing(unit, known, value)
                break


def _of_width(known: Limits, name: str, bits: int) -> Sequence[int]:
    """Sums of a width and a sign to try: all that there are, or else those nearest to zero."""
    first, last = width_span(name, bits)
    there = known_sums(known)
    if there is not None:
        return [int(value) for value in there[(there >= first) & (there <= last)]]
    low, high = sum_bounds(known.a, known.b, known.lanes)
    ascending = range(max(first, low), min(last, high) + 1)
    return (ascending if first > 0 else ascending[::-1])[:4096]


def _summing(unit: Unit, known: Limits, value: int) -> Case:
    return _case(unit, *lanes_for(value, known.a, known.b, known.lanes))


def _adders(unit: Unit, known: Limits, names: list[str]) -> Iterator[Case]:
    low, high = product_bounds(known.a, known.b)
    for name, level, place, end in adders(known.lanes):
        if name in names:
            codes = np.zeros((2, known.lanes), np.uint8)
            part = slice(place << level, (place + 1) << level)
            codes[0, part], codes[1, part] = code_pair(low if end == "lowest" else high, known.a, known.b)
            yield _case(unit, codes[0], codes[1])


def _cancelling(unit: Unit, known: Limits, names: list[str]) -> Iterator[Case]:
    products = distinct_products(known.a, known.b).tolist()
    there = set(products)
    wanted = {"exact": 0, "leaves -1": -1, "leaves 1": 1}
    for name, left in wanted.items():
        pair = next(
            ((p, left - p) for p in reversed(products) if p > 0 > left - p and left - p in there), None
        )
        if name in names and pair is not None:
            codes = np.array([code_pair(p, known.a, known.b) for p in pair], np.uint8)
            yield _case(unit, codes[:, 0], codes[:, 1])
    if "largest halves" in names:
        half = known.lanes // 2
        ends = [code_pair(p, known.a, known.b) for p in product_bounds(known.a, known.b)[::-1]]
        codes = np.array([ends[lane >= half] for lane in range(known.lanes)], np.uint8)
        yield _case(unit, codes[:, 0], codes[:, 1])


def _crossed(unit: Unit, known: Limits, names: list[str]) -> Iterator[Case]:
    codes = [scale_classes(fmt.scale) for fmt in unit.sides]
    for name in names:
        wanted = [SCALE_CLASSES.index(part) for part in name.split(" × ")]
        a, b = (int(np.flatnonzero(c == w)[-1]) for c, w in zip(codes, wanted, strict=True))
        yield _case(unit, *lanes_for(1, known.a, known.b, known.lanes), scales=(a, b))


def _exponents(unit: Unit, known: Limits, names: list[str]) -> Iterator[Case]:
    cuts = exponent_cuts(*known.scale_exponents)
    a, b = (fmt.scale for fmt in unit.sides)
    sums = np.add.outer(a.exponents[a.finite], b.exponents[b.finite])
    for name, low, end in zip(interval_names(cuts), cuts[:-1], cuts[1:], strict=True):
        if name in names:
            found = np.argwhere((sums >= low) & (sums < end))
            x, y = found[len(found) // 2]
            yield _case(unit, *lanes_for(1, known.a, known.b, known.lanes), scales=(int(x), int(y)))


def _specials(unit: Unit, known: Limits, names: list[str]) -> Iterator[Case]:
    one = lanes_for(1, known.a, known.b, known.lanes)
    zero = np.zeros(1, np.uint8), np.zeros(1, np.uint8)
    for name in names:
        if name.startswith("NaN scale"):
            side = name.split()[3].rstrip(",")
            scales = [
                fmt.scale.nan_code
                if side in (letter, "both")
                else int(np.flatnonzero(fmt.scale.values == 1)[0])
                for letter, fmt in zip("ab", unit.sides, strict=True)
            ]
            codes = zero if "zero codes" in name and "nonzero" not in name else one
            yield _case(unit, *codes, scales=(scales[0], scales[1]))
            continue
        value = {"NaN element": np.nan, "term +infinity": np.inf, "term -infinity": -np.inf}[name]
        found = [
            np.flatnonzero(np.isnan(fmt.values) if np.isnan(value) else fmt.values == value)
            for fmt in (known.a, known.b)
        ]
        ones = [int(np.flatnonzero(fmt.integers == fmt.integers.max())[0]) for fmt in (known.a, known.b)]
        pair = (int(found[0][0]), ones[1]) if len(found[0]) else (ones[0], int(found[1][0]))
        yield _one_pair(unit, known, 0, *pair)


Finder = Callable[[Unit, Limits, list[str]], Iterator[Case]]
FINDERS: Final[dict[str, Finder]] = {
    "element of a": lambda unit, known, names: _elements(unit, known, names, 0),
    "element of b": lambda unit, known, names: _elements(unit, known, names, 1),
    "product": _products,
    "pair in lane": _pairs,
    "lane alone": _lanes,
    "sum": _sums,
    "cancellation": _cancelling,
    "adder": _adders,
    "scales a × b": _crossed,
    "exponent of the scales": _exponents,
    "special": _specials,
}
