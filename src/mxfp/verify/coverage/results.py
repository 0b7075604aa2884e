# SPDX-License-Identifier: Apache-2.0
"""Which bins of results each case of a batch hits, those among them that no right unit gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...accumulate import Exact
from ...dot import block_dots
from ...formats import Bools, Floats, Integers
from ...integers import sum_bounds
from ...registers import FixedPoint
from ...sums import countable, reachable_sums
from ..unit import Batch, expected
from .bin_classes import MAGNITUDES
from .reach import Limits, limits, precision_of


def as_floats(batch: Batch, patterns: NDArray[Any]) -> Any:
    """Patterns of a batch's results -> floats of the accumulator's dtype, (n,)."""
    dtype = batch.unit.accumulator.result_dtype
    return patterns.reshape(len(batch)).astype(f"u{dtype.itemsize}").view(dtype)


def sum_classes(sums: Integers, known: Limits) -> dict[str, Bools]:
    """Classes of sums of products (n,), and those that no products make."""
    low, high = sum_bounds(known.a, known.b, known.lanes)
    outside = (sums < low) | (sums > high)
    found = {"negative": sums < 0, "zero": sums == 0, "positive": sums > 0, "out of range": outside}
    if countable(known.a, known.b, known.lanes):
        values = reachable_sums(known.a, known.b, known.lanes).values()
        found["sum of no products"] = ~outside & ~np.isin(sums, values)
    return found


def result_classes(batch: Batch, results: Any, right: Mapping[str, Any], known: Limits) -> dict[str, Bools]:
    """Classes of results, and those that cannot be right whatever the operands."""
    accumulator = batch.unit.accumulator
    shape = precision_of(accumulator)
    wide = results.astype(np.float64)
    negative, magnitude, nan = np.signbit(wide), np.abs(wide), np.isnan(wide)
    smallest, normal = 2.0**shape.lowest, 2.0**shape.smallest_normal
    classes = {
        "smallest subnormal": magnitude == smallest,
        "subnormal": (magnitude > smallest) & (magnitude < normal - smallest),
        "largest subnormal": magnitude == normal - smallest,
        "smallest normal": magnitude == normal,
        "normal": (magnitude > normal) & (magnitude < shape.largest),
        "largest": magnitude == shape.largest,
        "infinity": np.isinf(wide),
    }
    assert tuple(classes) == MAGNITUDES
    found = {"+0": (magnitude == 0) & ~negative, "-0": (magnitude == 0) & negative}
    for sign, which in (("+", ~negative), ("-", negative)):
        for name, hit in classes.items():
            found[f"{sign}{name}"] = hit & which
    patterns = results.view(f"u{results.dtype.itemsize}")
    found["NaN"] = nan
    found["NaN of other bits"] = nan & (patterns != known.nan_bits)
    special = right["special"]
    poisoned = _since_first(batch, (special == 1).any(axis=1))
    any_special = _since_first(batch, (special != 0).any(axis=1))
    found["number of a NaN term"] = poisoned & ~nan
    zero = ~any_special & ~_since_first(batch, _live(batch, right))
    found["nonzero of zero terms"] = zero & (found["-0"] | (magnitude != 0))
    found["NaN of numbers"] = nan & ~any_special
    if isinstance(accumulator, Exact):
        own = as_floats(batch, right["result"]).astype(np.float64)
        found["nonzero of an exact sum of zero"] = _exact_zero(batch, own, any_special) & (magnitude != 0)
    if isinstance(accumulator, FixedPoint):
        found["number of a NaN term"] = any_special & ~nan
    return found


def _live(batch: Batch, right: Mapping[str, Any]) -> Bools:
    """Whether any term that the accumulator adds is not zero: groups of a block that cancels may be."""
    group = batch.unit.accumulator.terms_of
    sums = right.get("term", right["sum"]) if group is None else block_dots(*batch.pair, group=group).sums
    return np.asarray((sums != 0).any(axis=1), np.bool_)


def _exact_zero(batch: Batch, right: Floats, any_special: Bools) -> Bools:
    """Where the exact sum is zero: the exact accumulator's own +0, unless a positive value rounds to it."""
    shape = precision_of(batch.unit.accumulator)
    if limits(batch.unit).term_exponent >= shape.lowest:
        return np.asarray(~any_special & (right == 0), np.bool_)
    wide = replace(batch, unit=replace(batch.unit, accumulator=Exact("float64")))
    exact = expected(wide, stages=False)["result"].reshape(-1)
    return np.asarray(~any_special & (exact << np.uint64(1) == 0), np.bool_)


def _since_first(batch: Batch, where: Bools) -> Bools:
    """Whether it was so for any case since the accumulator was cleared."""
    if not len(batch):
        return where
    total = np.cumsum(where)
    begins = np.flatnonzero(batch.first)[np.cumsum(batch.first) - 1]
    return np.asarray(total - (total - where)[begins] > 0, np.bool_)
