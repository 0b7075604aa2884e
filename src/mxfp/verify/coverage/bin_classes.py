# SPDX-License-Identifier: Apache-2.0
"""The classes that bins are of: of codes, products, sums, scales, exponents, adders, roundings, results."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import isnan
from typing import Final

import numpy as np

from ...formats import ElementFormat, Integers, ScaleFormat
from ...integers import product_bounds, signed_bits, sum_bounds
from ...sums import countable, distinct_products, reachable_sums
from .reach import Limits

SCALE_CLASSES: Final = ("0", "1", "below", "near 1", "above", "last but one", "last", "NaN")
"""Of scale codes: 0, 1, up to two below that of 1.0, the three around it, above, the last two, NaN."""
SPECIALS: Final = tuple(
    f"NaN scale of {side}, {codes} codes" for side in ("a", "b", "both") for codes in ("zero", "nonzero")
)
LENGTHS: Final = ((1, 1), (2, 2), (3, 4), (5, 8), (9, 1 << 30))
"""Lengths of the sequences of a running unit."""
LENGTH_NAMES: Final = ("length 1", "length 2", "length 3 … 4", "length 5 … 8", "length 9 or more")
PLACES: Final = (
    "exact",
    "below half",
    "tie, even below",
    "tie, odd below",
    "above half",
    "a trace below",
    "half and a trace",
)
"""Where an exact value lies between the two floats (or integers) around it, by magnitude."""
TRACE: Final = 2.0**-8
"""Less than this part of a unit in the last place is a trace: what only a sticky bit sees."""
ENDS: Final = (
    "carry",
    "overflow",
    "overflow by rounding",
    "subnormal, exact",
    "subnormal, rounded",
    "to zero",
)
"""What rounding does at the ends of a binade and of the format."""
MEETINGS: Final = (
    "equal and opposite",
    "cancels deeply",
    "addend lost",
    "accumulator lost",
    "infinity stays",
    "NaN stays",
)
"""How an accumulator and what is added to it meet."""
ALIGNED: Final = (
    "nothing cut",
    "addend cut",
    "addend gone",
    "accumulator cut",
    "accumulator gone",
    "accumulator is largest",
    "addend is largest",
)
"""What aligning to the largest exponent did."""
MAGNITUDES: Final = (
    "smallest subnormal",
    "subnormal",
    "largest subnormal",
    "smallest normal",
    "normal",
    "largest",
    "infinity",
)
"""Of results that are not zero."""
PRODUCT_CLASSES: Final = (
    "zero",
    "lowest",
    "highest",
    "-1 LSB",
    "1 LSB",
    "negative",
    "positive",
    "not finite",
)


@lru_cache(maxsize=32)
def element_classes(fmt: ElementFormat) -> tuple[tuple[str, ...], Integers]:
    """Names of classes of codes, and the class of each code.

    Each code its own where there are 16; of wider formats each binade, with the ends of the table apart.

    >>> from mxfp import E2M1, E4M3
    >>> element_classes(E2M1)[0][:3], element_classes(E2M1)[0][8:10]
    (('0', '0.5', '1'), ('-0', '-0.5'))
    >>> element_classes(E4M3)[0][:4]
    ('0', '2^-9', '2^-8…', '2^-7…')
    """
    labels = []
    for code, value in enumerate(fmt.values.tolist()):
        if fmt.code_count <= 16:
            labels.append("NaN" if isnan(value) else f"{value:g}")
            continue
        magnitude, sign = abs(value), "-" if fmt.negative[code] else ""
        if isnan(value):
            labels.append("NaN")
        elif magnitude in (0.0, np.inf) or magnitude >= fmt.max:
            labels.append(f"{value:g}")
        elif magnitude == fmt.smallest_subnormal:
            labels.append(f"{sign}2^{fmt.lsb_exponent}")
        else:
            labels.append(f"{sign}2^{int(np.frexp(magnitude)[1]) - 1}…")
    names = tuple(dict.fromkeys(labels))
    return names, np.array([names.index(label) for label in labels])


@lru_cache(maxsize=32)
def product_classes(a: ElementFormat, b: ElementFormat) -> Integers:
    """(codes of a, codes of b): which of PRODUCT_CLASSES each product is of."""
    products = np.multiply.outer(a.integers, b.integers)
    low, high = product_bounds(a, b)
    conditions = [
        ~np.logical_and.outer(a.finite, b.finite),
        products == 0,
        products == low,
        products == high,
        products == -1,
        products == 1,
        products < 0,
    ]
    places = [PRODUCT_CLASSES.index("not finite"), *range(6)]
    return np.select(conditions, places, PRODUCT_CLASSES.index("positive"))


@lru_cache(maxsize=8)
def scale_classes(fmt: ScaleFormat) -> Integers:
    """Which of SCALE_CLASSES each scale code is of."""
    one = int(np.flatnonzero(fmt.values == 1.0)[0])
    code = np.arange(fmt.code_count)
    conditions = [code == 0, code == 1, code < one - 1, code <= one + 1, code < fmt.nan_code - 2]
    conditions += [code == fmt.nan_code - 2, code == fmt.nan_code - 1]
    return np.select(conditions, range(7), 7)


@lru_cache(maxsize=32)
def named_sums(unit: Limits) -> tuple[tuple[str, int], ...]:
    """The sums that have bins of their own: ends, neighbours, where one bit fewer ends, and around zero."""
    a, b, lanes = unit.a, unit.b, unit.lanes
    low, high = sum_bounds(a, b, lanes)
    short = signed_bits(low, high) - 1
    edge = 1 << (short - 1)
    found = [("lowest", low), (f"beyond {short} bits", -edge - 1), (f"last in {short} bits", -edge)]
    found += [("", -1), ("", 0), ("", 1)]
    found += [(f"last in {short} bits", edge - 1), (f"beyond {short} bits", edge), ("highest", high)]
    if countable(a, b, lanes) and high - low > 4:
        values = reachable_sums(a, b, lanes).values()
        found.insert(1, ("next to lowest", int(values[1])))
        found.insert(-1, ("next to highest", int(values[-2])))
    named: dict[int, str] = {}
    for text, value in found:
        if low <= value <= high:
            named.setdefault(value, f"{value} ({text})" if text else f"{value}")
    return tuple((named[value], value) for value in sorted(named))


@lru_cache(maxsize=8)
def known_sums(unit: Limits) -> Integers | None:
    """Every sum that products of a block make, ascending; None where they are too many to count out."""
    if unit.lanes == 1:
        return distinct_products(unit.a, unit.b).astype(np.int64)
    if countable(unit.a, unit.b, unit.lanes):
        return reachable_sums(unit.a, unit.b, unit.lanes).values()
    return None


def no_sum(unit: Limits, first: int, last: int) -> bool:
    """Whether no products of a block add up to any of first … last, where that is known for sure."""
    values = known_sums(unit)
    return values is not None and not ((values >= first) & (values <= last)).any()


def width_span(name: str, bits: int) -> tuple[int, int]:
    """The first and the last sum of a width and a sign, those of `width_names`."""
    first, last = 1 << (bits - 2), (1 << (bits - 1)) - 1
    return (first, last) if name.startswith("positive") else (~last, ~first)


def width_names(bits: int) -> tuple[tuple[str, int], ...]:
    """A bin for each signed width and sign of a sum."""
    return tuple((f"{sign}, {n} bits", n) for sign in ("positive", "negative") for n in range(2, bits + 1))


@lru_cache(maxsize=32)
def exponent_cuts(low: int, high: int) -> tuple[int, ...]:
    """Where the intervals of the sum of both scales' exponents begin; the last entry is past the end."""
    inner = (low, low + 1, -150, -127, -1, 0, 1, 2, 127, 128, high, high + 1)
    return tuple(sorted({cut for cut in inner if low <= cut <= high + 1}))


def interval_names(cuts: tuple[int, ...]) -> tuple[str, ...]:
    """The intervals between cuts, in words."""
    return tuple(f"{one}" if one == other - 1 else f"{one} … {other - 1}" for one, other in pairwise(cuts))


@lru_cache(maxsize=32)
def adders(lanes: int) -> tuple[tuple[str, int, int, str], ...]:
    """Every adder of a binary tree at both ends: (name, level, place, end); carried odd ones out are none."""
    found, width, level = [], lanes, 0
    while width > 1:
        level += 1
        found += [
            (f"level {level}, adder {n}, {end}", level, n, end)
            for n in range(width // 2)
            for end in ("lowest", "highest")
        ]
        width = -(-width // 2)
    return tuple(found)
