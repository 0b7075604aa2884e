# SPDX-License-Identifier: Apache-2.0
"""What is measured of a case: a record, the same bytes on whatever machine it was made.

Floats stand in records as `float.hex` writes them, exactly; means are of sums rounded once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accumulate import Accumulator, Exact
from ..bounds import error_bound, errors, registers_without_ends
from ..dot import Terms, block_dots
from ..floats import AnyFloats
from ..formats import Bools, Floats
from ..integers import WidthError
from ..registers import FixedPoint
from .campaign import Case
from .lines import Record


def measure(case: Case) -> Record:
    """A case -> its record: for each accumulator, how it differs from the exact sum.

    dots: dot products. finite: those of them whose terms are all numbers; only these have errors. For each
    accumulator by its short text:

    - differ: results that are not, bit for bit, those of `Exact` of the same dtype; any NaN is a NaN.
    - overflow: infinite results of finite terms, and registers that overflowed on the way, whatever they
      do then. Where that is a WidthError there is no result, and it counts as infinite.
    - nan: results that are NaN.
    - error: the largest and the mean distance from the exact sum, of finite results, and their count.
    - relative: the same, divided by the sum of the magnitudes of the terms, those of whole blocks.
    - ratio: the largest of error to `mxfp.bounds.error_bound`; above 1 would disprove the bound.
      unbounded: dot products that have no finite bound, all of them for an accumulator of one's own.

    Counts have the index of the first, largest values that of the first that attains them; None if there
    is none. `replay` gives the inputs at an index.

    >>> from mxfp.campaigns import Campaign, measure
    >>> case = Campaign(accumulators="sequential:float16", distributions="bits", count=50).case(0)
    >>> found = measure(case)["accumulators"]["sequential:float16"]
    >>> found["differ"]["count"], float.fromhex(found["ratio"]["largest"]) <= 1
    (12, True)
    """
    tallies = [_Tally(accumulator) for accumulator in case.accumulators]
    finite = 0
    for part in range(case.parts):
        a, b = case.inputs(part)
        blocks = block_dots(a, b)
        magnitude = _magnitude(blocks)
        seen: dict[int | None, _Inputs] = {None: _Inputs(blocks)}
        for tally in tallies:
            group = tally.accumulator.terms_of
            if group not in seen:
                seen[group] = _Inputs(block_dots(a, b, group=group))
            tally.add(part * case.rows, seen[group], magnitude)
        finite += int(seen[None].finite.sum())
    return {
        "case": case.number,
        "key": case.key,
        "dots": case.count,
        "finite": finite,
        "accumulators": {str(tally.accumulator): tally.record() for tally in tallies},
    }


def _magnitude(terms: Terms) -> Floats:
    """The exact sum of the terms' magnitudes, rounded once."""
    return Exact("float64")(replace(terms, sums=np.abs(terms.sums), bits=terms.bits + 1, specials=None))


class _Inputs:
    """The terms of a part, and what several accumulators are compared with."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.finite: Bools = np.ones(terms.sums.shape[:-1], np.bool_)
        if terms.specials is not None:
            self.finite = np.asarray(~(terms.specials != 0).any(axis=-1))
        self._exact: dict[np.dtype[Any], AnyFloats] = {}

    def exact(self, dtype: np.dtype[Any]) -> AnyFloats:
        """The exact sums, rounded once to dtype."""
        if dtype not in self._exact:
            self._exact[dtype] = Exact(dtype)(self.terms)
        return self._exact[dtype]


@dataclass
class _First:
    """How many, and which was the first."""

    count: int = 0
    index: int | None = None

    def add(self, start: int, which: Bools) -> None:
        if which.any() and self.index is None:
            self.index = start + int(np.argmax(which))
        self.count += int(which.sum())

    def record(self) -> Record:
        return {"count": self.count, "first": self.index}


@dataclass
class _Largest:
    """The largest value, the first index that attains it, and what the mean takes."""

    value: float | None = None
    index: int | None = None
    count: int = 0
    sums: list[float] = field(default_factory=list)

    def add(self, start: int, values: Floats, which: Bools) -> None:
        if not which.any():
            return
        place = int(np.argmax(np.where(which, values, -1.0)))
        if self.value is None or values[place] > self.value:
            self.value, self.index = float(values[place]), start + place
        self.count += int(which.sum())
        self.sums.append(math.fsum(values[which].tolist()))

    def record(self, *, mean: bool = True) -> Record:
        said: Record = {"largest": None if self.value is None else self.value.hex(), "index": self.index}
        if mean:
            said["mean"] = (math.fsum(self.sums) / self.count).hex() if self.count else None
            said["count"] = self.count
        return said


class _Tally:
    """One accumulator's measures, part by part."""

    def __init__(self, accumulator: Accumulator) -> None:
        self.accumulator = accumulator
        self.differ, self.overflow, self.nan = _First(), _First(), _First()
        self.error, self.relative, self.ratio = _Largest(), _Largest(), _Largest()
        self.unbounded = 0

    def add(self, start: int, inputs: _Inputs, magnitude: Floats) -> None:
        accumulator, terms, finite = self.accumulator, inputs.terms, inputs.finite
        results, overflow = _results(accumulator, terms)
        exact = inputs.exact(accumulator.result_dtype)
        is_nan, no_result = np.isnan(results), np.isinf(results)
        self.differ.add(start, (_bits(results) != _bits(exact)) & ~(is_nan & np.isnan(exact)))
        self.overflow.add(start, (overflow | no_result) & finite)
        self.nan.add(start, is_nan)
        error = errors(accumulator, terms, results)
        which = finite & ~no_result & ~is_nan
        self.error.add(start, error, which)
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.where(error > 0, error / magnitude, 0.0)
            self.relative.add(start, relative, which)
            bound = _bound(accumulator, terms)
            bounded = np.isfinite(bound)
            self.ratio.add(start, np.where(error > 0, error / bound, 0.0), which & bounded)
        self.unbounded += int((finite & ~bounded).sum())

    def record(self) -> Record:
        return {
            "differ": self.differ.record(),
            "overflow": self.overflow.record(),
            "nan": self.nan.record(),
            "error": self.error.record(),
            "relative": self.relative.record(),
            "ratio": {**self.ratio.record(mean=False), "unbounded": self.unbounded},
        }


def _bits(x: AnyFloats) -> NDArray[Any]:
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")


def _bound(accumulator: Accumulator, terms: Terms) -> Floats:
    """The bounds, infinite for an accumulator of which none is known."""
    try:
        return error_bound(accumulator, terms)
    except TypeError:
        return np.full(terms.sums.shape[:-1], np.inf)


def _results(accumulator: Accumulator, terms: Terms) -> tuple[AnyFloats, Bools]:
    """Results (rows,), infinite where the accumulator raises WidthError, and where a register overflowed."""
    if not isinstance(accumulator, FixedPoint):
        return _one_by_one(accumulator, terms)
    overflow = _overflow(accumulator, terms)
    if accumulator.overflow != "raise":
        return accumulator(terms), overflow
    results = replace(accumulator, overflow="wrap")(terms)
    return np.where(overflow, np.inf, results).astype(results.dtype), overflow


def _overflow(accumulator: FixedPoint, terms: Terms) -> Bools:
    """Where a register overflows on the way."""
    limit = 1 << (accumulator.width - 1)
    found = np.zeros(terms.sums.shape[:-1], np.bool_)
    for held in registers_without_ends(accumulator, terms):
        found |= np.asarray((held < -limit) | (held >= limit), np.bool_)
    return found


def _one_by_one(accumulator: Accumulator, terms: Terms) -> tuple[AnyFloats, Bools]:
    """Results of an accumulator that may raise WidthError, and where it did.

    One row that overflows takes all others with it; halves are tried until it is alone.
    """
    rows = terms.sums.shape[0]
    try:
        return accumulator(terms), np.zeros(rows, np.bool_)
    except WidthError:
        if rows == 1:
            return np.full(1, np.inf, accumulator.result_dtype), np.ones(1, np.bool_)
    halves = [_one_by_one(accumulator, _rows(terms, part)) for part in _halves(rows)]
    return np.concatenate([results for results, _ in halves]), np.concatenate([lost for _, lost in halves])


def _halves(rows: int) -> tuple[slice, slice]:
    return slice(rows // 2), slice(rows // 2, None)


def _rows(terms: Terms, part: slice) -> Terms:
    """Some rows of terms (rows, n), in whatever arrays they have."""
    values: dict[str, Any] = {f.name: getattr(terms, f.name) for f in fields(terms)}
    arrays = {name: value[part] for name, value in values.items() if isinstance(value, np.ndarray)}
    return Terms(**{**values, **arrays})
