# SPDX-License-Identifier: Apache-2.0
"""What a run of vectors can hit on a unit: bins in families, and those that nothing may hit or nothing can.

A bin that no vector reaches says why, and only where that follows from the formats and the accumulator; a
bin that is merely hard to hit stays wanted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from ...accumulate import Exact, Pairwise, Sequential
from ...integers import sum_bounds
from ...registers import FixedPoint, Fused
from ...sums import countable
from ..unit import Unit
from .bin_classes import (
    ALIGNED,
    ENDS,
    LENGTH_NAMES,
    MAGNITUDES,
    MEETINGS,
    PLACES,
    PRODUCT_CLASSES,
    SCALE_CLASSES,
    SPECIALS,
    adders,
    element_classes,
    exponent_cuts,
    interval_names,
    named_sums,
    no_sum,
    product_classes,
    width_names,
    width_span,
)
from .reach import Limits, limits

BinKind = Literal["wanted", "illegal", "unreachable"]
"""To be hit; a sign of a bug if hit, whatever the operands; not to be hit by any vector, with the reason."""


@dataclass(frozen=True)
class Bin:
    """One thing to hit. why: for a bin that is not wanted, the reason."""

    name: str
    kind: BinKind = "wanted"
    why: str = ""


@dataclass(frozen=True)
class Family:
    """Bins of one kind. counts: what a count is of, cases or lanes."""

    name: str
    bins: tuple[Bin, ...]
    counts: Literal["cases", "lanes"] = "cases"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the bins, in order."""
        return tuple(b.name for b in self.bins)


def _wanted(names: tuple[str, ...]) -> tuple[Bin, ...]:
    return tuple(Bin(name) for name in names)


def _reasoned(name: str, reason: str) -> Bin:
    """Wanted, unless there is a reason why it cannot be reached."""
    return Bin(name, "unreachable", reason) if reason else Bin(name)


def _operands(unit: Limits) -> list[Family]:
    a, b = unit.a, unit.b
    found = []
    for side, fmt in (("a", a), ("b", b)):
        found.append(Family(f"element of {side}", _wanted(element_classes(fmt)[0]), "lanes"))
    present = set(product_classes(a, b).reshape(-1).tolist())
    bins = [Bin(name) for n, name in enumerate(PRODUCT_CLASSES) if n in present]
    found.append(Family("product", tuple(bins), "lanes"))
    if unit.pairs_by_lane:
        values = [[f"{v:g}" for v in fmt.values.tolist()] for fmt in (a, b)]
        names = [f"{lane}: {x} × {y}" for lane in range(unit.lanes) for x in values[0] for y in values[1]]
        found.append(Family("pair in lane", _wanted(tuple(names)), "lanes"))
    found.append(Family("lane alone", _wanted(tuple(f"lane {n}" for n in range(unit.lanes)))))
    return found


def _sums(unit: Limits) -> list[Family]:
    a, b, lanes = unit.a, unit.b, unit.lanes
    low, high = sum_bounds(a, b, lanes)
    bins = []
    for name, value in named_sums(unit):
        none = no_sum(unit, value, value)
        bins.append(_reasoned(name, f"no {lanes} products add up to {value}" if none else ""))
    for name, bits in width_names(unit.sum_bits):
        first, last = width_span(name, bits)
        if first > high or last < low:
            bins.append(_reasoned(name, f"sums lie in {low} … {high}"))
        else:
            none = no_sum(unit, first, last)
            bins.append(_reasoned(name, f"no {lanes} products add up to {first} … {last}" if none else ""))
    found = [Family("sum", tuple(bins))]
    names = ["exact", "leaves -1", "leaves 1"] if lanes > 1 else []
    names += ["largest halves"] if lanes % 2 == 0 and low == -high else []
    names += ["across blocks, exact", "across blocks, nearly"] if unit.several_blocks else []
    if names:
        found.append(Family("cancellation", _wanted(tuple(names))))
    if lanes > 1:
        found.append(Family("adder", _wanted(tuple(n for n, *_ in adders(lanes)))))
    return found


def _scales(unit: Limits) -> list[Family]:
    names = tuple(f"{one} × {other}" for one in SCALE_CLASSES for other in SCALE_CLASSES)
    specials = list(SPECIALS)
    if not (unit.a.finite.all() and unit.b.finite.all()):
        specials.append("NaN element")
    if unit.infinite_elements:
        specials += ["term +infinity", "term -infinity"]
    cuts = exponent_cuts(*unit.scale_exponents)
    return [
        Family("scales a × b", _wanted(names)),
        Family("exponent of the scales", _wanted(interval_names(cuts))),
        Family("special", _wanted(tuple(specials))),
    ]


def _results(unit: Limits) -> Family:
    """Classes of the result, and what no result may be."""
    if unit.accumulator is None:
        bins = [Bin("negative"), Bin("zero"), Bin("positive")]
        low, high = sum_bounds(unit.a, unit.b, unit.lanes)
        bins.append(Bin("out of range", "illegal", f"sums lie in {low} … {high}"))
        if countable(unit.a, unit.b, unit.lanes):
            bins.append(Bin("sum of no products", "illegal", "no products add up to it"))
        return Family("result", tuple(bins))
    bins = [Bin("+0"), Bin("-0", *unit.why_not_minus_zero())]
    for sign in "+-":
        for name in MAGNITUDES:
            bins.append(_reasoned(f"{sign}{name}", unit.why_not_result(name)))
    bins.append(Bin("NaN"))
    bins.append(Bin("NaN of other bits", "illegal", f"NaN is {unit.nan_bits:#x} always"))
    bins.append(Bin("number of a NaN term", "illegal", "a NaN scale or element makes every result NaN"))
    bins.append(Bin("nonzero of zero terms", "illegal", "terms that are all zero add up to +0"))
    if isinstance(unit.accumulator, Exact):
        bins.append(Bin("nonzero of an exact sum of zero", "illegal", "the sum is rounded once, and is zero"))
    if isinstance(unit.accumulator, Pairwise) and unit.additions > 1 and not unit.why_not_result("infinity"):
        bins.append(Bin("NaN of numbers"))
    elif isinstance(unit.accumulator, (Exact, Sequential, Pairwise, FixedPoint, Fused)):
        bins.append(Bin("NaN of numbers", "illegal", "finite terms never add up to NaN"))
    return Family("result", tuple(bins))


def _steps(unit: Limits) -> list[Family]:
    accumulator = unit.accumulator
    if not isinstance(accumulator, (Exact, Sequential, Pairwise, FixedPoint, Fused)):
        return []
    found = []
    fixed = isinstance(accumulator, FixedPoint)
    names = [*PLACES, *(("overflow up", "overflow down") if fixed else ENDS)]
    bins = [_reasoned(name, unit.why_not_rounding(name)) for name in names]
    found.append(Family("rounding", tuple(bins)))
    if unit.additions > 1 and not isinstance(accumulator, Exact):
        kept = MEETINGS[:4] if fixed else MEETINGS
        bins = [_reasoned(name, unit.why_not_meeting(name)) for name in kept]
        found.append(Family("accumulation", tuple(bins)))
    if isinstance(accumulator, Fused):
        names = [n for n in ALIGNED if unit.additions > 1 or "accumulator" not in n]
        found.append(Family("alignment", _wanted(tuple(names))))
    return found


def _sequences(unit: Limits) -> Family:
    bins = [Bin(name) for name in (*LENGTH_NAMES, "not first", "cleared after a number")]
    bins.append(_reasoned("cleared after infinity", unit.why_not_result("infinity")))
    return Family("sequence", (*bins, Bin("cleared after NaN")))


@lru_cache(maxsize=16)
def families(unit: Unit) -> tuple[Family, ...]:
    """Every family of bins of a `Unit`, in the order in which they are printed.

    >>> [family.name for family in families(Unit("sum"))][3:]
    ['pair in lane', 'lane alone', 'sum', 'cancellation', 'adder', 'result']
    """
    known = limits(unit)
    found = [*_operands(known), *_sums(known)]
    if known.accumulator is not None:
        found += [*_scales(known), *_steps(known)]
        if known.running:
            found.append(_sequences(known))
    return (*found, _results(known))
