# SPDX-License-Identifier: Apache-2.0
"""Side room off 5: which sums of products exist, counted exactly, and the fewest lanes that make one.

A bound says that a register is wide enough; a sum that is reached says that a narrower one is not.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .adders import check_lanes
from .formats import BlockFormat, Codes, ElementFormat, Integers, element_of
from .integers import product_bounds, signed_bits, sum_bounds

MOST_SUMS: Final = 1 << 25
"""The widest range of sums that is counted out, in LSB units."""
MOST_WORK: Final = 1 << 38
"""The most bits that are shifted while counting: some seconds."""
MOST_KEPT: Final = 1 << 29
"""The most bits that are kept of one pair of formats: the sets of 1, 2, 3 … lanes."""


@dataclass(frozen=True)
class ReachableSums:
    """The set of all sums of `lanes` products, in units of both LSBs: bit i of `mask` is the sum low + i.

    >>> from mxfp import E2M1
    >>> sums = reachable_sums(E2M1, E2M1, 32)
    >>> sums.low, sums.high, 4608 in sums, 4607 in sums, len(sums), sums.core
    (-4608, 4608, True, False, 8893, 4362)
    """

    lanes: int
    low: int
    high: int
    mask: int

    def __contains__(self, value: object) -> bool:
        """Whether that integer is the sum of some products."""
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
            return False
        place = int(value) - self.low
        return place >= 0 and bool(self.mask >> place & 1)

    def __len__(self) -> int:
        """How many sums there are."""
        return self.mask.bit_count()

    def values(self) -> Integers:
        """(len,) int64, ascending."""
        count = self.high - self.low + 1
        raw = np.frombuffer(self.mask.to_bytes((count + 7) // 8, "little"), np.uint8)
        return np.flatnonzero(np.unpackbits(raw, count=count, bitorder="little")).astype(np.int64) + self.low

    @property
    def core(self) -> int:
        """The largest m of which every integer from -m to m is a sum."""
        missing = ~self.mask & ((1 << (self.high - self.low + 1)) - 1)
        above = missing >> -self.low
        upper = (above & -above).bit_length() - 2 if above else self.high
        below = missing & ((1 << -self.low) - 1)
        lower = -self.low - below.bit_length() if below else -self.low
        return min(upper, lower)


@lru_cache(maxsize=64)
def distinct_products(a: ElementFormat, b: ElementFormat) -> NDArray[Any]:
    """All products of two elements, in units of both LSBs, ascending: int64, or object if wider."""
    found = np.unique(_products(a, b)[np.ix_(a.finite, b.finite)])
    found.flags.writeable = False
    return found


def _products(a: ElementFormat, b: ElementFormat) -> NDArray[Any]:
    kind: Any = np.int64 if signed_bits(*product_bounds(a, b)) <= 64 else object
    return np.asarray(np.multiply.outer(a.integers.astype(kind), b.integers.astype(kind)))


def countable(a: ElementFormat, b: ElementFormat, lanes: int) -> bool:
    """Whether the sums of that many products lie in a range small enough to count out."""
    low, high = sum_bounds(a, b, lanes)
    kept = (high - low) * lanes // 2
    return high - low < MOST_SUMS and kept < MOST_KEPT and kept * len(distinct_products(a, b)) < MOST_WORK


@lru_cache(maxsize=8)
def _masks(a: ElementFormat, b: ElementFormat) -> list[int]:
    """Masks for 0, 1, 2 … products, as far as anyone has asked; grown by `_mask`."""
    return [1]


def _mask(a: ElementFormat, b: ElementFormat, lanes: int) -> int:
    masks, products = _masks(a, b), distinct_products(a, b)
    while len(masks) <= lanes:
        before, after = masks[-1], 0
        for place in (products - products[0]).tolist():
            after |= before << place
        masks.append(after)
    return masks[lanes]


def reachable_sums(
    a: ElementFormat | BlockFormat, b: ElementFormat | BlockFormat, lanes: int
) -> ReachableSums:
    """Every sum of `lanes` products of one element of a and one of b: a set, exact.

    Counted by dynamic programming: the sums of n products, shifted by each product, are those of n + 1.
    ValueError where there are too many (E4M3, E5M2, or hundreds of lanes): there `lanes_for` still finds
    products for one sum, and the ends of the range are always reached.

    >>> from mxfp import E2M1
    >>> reachable_sums(E2M1, E2M1, 1).values()[-6:].tolist()
    [36, 48, 64, 72, 96, 144]
    """
    one, other, lanes = element_of(a), element_of(b), check_lanes(lanes)
    low, high = sum_bounds(one, other, lanes)
    if not countable(one, other, lanes):
        raise ValueError(
            f"sums of {lanes} products {one.name} × {other.name} lie in {low} … {high}, too many to count "
            "out; lanes_for finds products for one sum"
        )
    return ReachableSums(lanes, low, high, _mask(one, other, lanes))


def lanes_for(
    value: int, a: ElementFormat | BlockFormat, b: ElementFormat | BlockFormat, lanes: int
) -> tuple[Codes, Codes]:
    """Codes of a and of b, uint8 (lanes,) each, whose sum of products is `value` LSB units.

    With the fewest nonzero lanes, the first ones, largest products first. Where the sums cannot be counted
    out (see `reachable_sums`) the lanes are found greedily and may be more than the fewest. ValueError for a
    sum that no products make.

    >>> from mxfp import E2M1
    >>> a, b = lanes_for(-142, E2M1, E2M1, 4)
    >>> E2M1.values[a].tolist(), E2M1.values[b].tolist()
    ([6.0, 0.5, 0.0, 0.0], [-6.0, 1.0, 0.0, 0.0])
    """
    one, other, lanes = element_of(a), element_of(b), check_lanes(lanes)
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"value is a whole number of LSB units, got {value!r}")
    low, high = sum_bounds(one, other, lanes)
    products = _counted(int(value), one, other, lanes) if low <= value <= high else None
    if products is None:
        raise ValueError(
            f"no sum of {lanes} products {one.name} × {other.name} found that is {value} LSB units; they "
            f"reach from {low} to {high}, not every integer in between"
        )
    found = np.zeros((2, lanes), np.uint8)
    for lane, product in enumerate(products):
        found[:, lane] = code_pair(product, one, other)
    return found[0], found[1]


def reaches(value: int, a: ElementFormat, b: ElementFormat, lanes: int) -> bool:
    """Whether `lanes_for` finds products for a sum.

    >>> from mxfp import E2M1
    >>> reaches(4607, E2M1, E2M1, 32), reaches(4095, E2M1, E2M1, 32)
    (False, True)
    """
    low, high = sum_bounds(a, b, lanes)
    if not low <= value <= high:
        return False
    if countable(a, b, lanes):
        return value in reachable_sums(a, b, lanes)
    return _greedy(value, _choices(a, b), lanes) is not None


@lru_cache(maxsize=16)
def _choices(a: ElementFormat, b: ElementFormat) -> list[int]:
    """All products, the largest first, positive before negative."""
    return sorted(distinct_products(a, b).tolist(), key=lambda p: (-abs(p), p < 0))


def _counted(value: int, a: ElementFormat, b: ElementFormat, lanes: int) -> list[int] | None:
    """The fewest products that add up to value, or None."""
    choices = _choices(a, b)
    if not countable(a, b, lanes):
        return _greedy(value, choices, lanes)
    lowest = min(choices)
    for count in range(lanes + 1):
        if _holds(_mask(a, b, count), value - count * lowest):
            break
    else:
        return None
    found = []
    for left in range(count - 1, -1, -1):
        mask, start = _mask(a, b, left), left * lowest
        ahead = [p for p in choices if (p > 0) == (value > 0)] + choices
        product = next(p for p in ahead if _holds(mask, value - p - start))
        found.append(product)
        value -= product
    return found


def _holds(mask: int, place: int) -> bool:
    return place >= 0 and bool(mask >> place & 1)


def _greedy(value: int, choices: list[int], lanes: int) -> list[int] | None:
    """The nearest product, again and again."""
    ascending = sorted(choices)
    found: list[int] = []
    while value and len(found) < lanes:
        place = bisect_left(ascending, value)
        product = min(ascending[max(place - 1, 0) : place + 1], key=lambda p: abs(value - p))
        found.append(product)
        value -= product
    return found if value == 0 else None


@lru_cache(maxsize=1 << 14)
def code_pair(product: int, a: ElementFormat, b: ElementFormat) -> tuple[int, int]:
    """The codes of one product: of all pairs that make it, the one nearest to a square; a sign is b's."""
    made = np.asarray(_products(a, b) == product, np.bool_) & a.finite[:, None] & b.finite[None, :]
    pairs = np.argwhere(made)
    if not len(pairs):
        raise ValueError(f"{product} is no product of {a.name} and {b.name}")

    def plainness(pair: tuple[int, int]) -> tuple[bool, bool, float, int, int]:
        one, other = pair
        return (
            bool(a.negative[one]),
            bool(b.negative[other]) != (product < 0),
            abs(abs(float(a.values[one])) - abs(float(b.values[other]))),
            one,
            other,
        )

    return min(((int(i), int(j)) for i, j in pairs), key=plainness)
