# SPDX-License-Identifier: Apache-2.0
"""The figures of one accumulator at one K, gathered tile by tile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ..accumulate import Accumulator
from ..bounds import error_bound, errors, registers_without_ends
from ..dot import Terms
from ..floats import AnyFloats
from ..formats import Bools, Floats
from ..integers import signed_bits
from ..registers import FixedPoint


@dataclass(frozen=True, order=True)
class Overflow:
    """Where a register overflows first: the smallest block, then the smallest output; and on what value.

    value: what the register would hold, in units of its LSB.
    """

    block: int
    output: tuple[int, int]
    value: int


@dataclass(frozen=True)
class Point:
    """How far one accumulator is from the exact sums of `outputs` dot products of K elements.

    rms: of the exact sums. mean_error, largest_error: |result - exact sum|; mean_relative,
    largest_relative: the same over rms. largest_ulps: in units of the last place that the result has, at
    the larger of result and exact sum; a register's last place is its LSB. sqnr_db: exact sums over
    errors. differ: results that are not, bit for bit, the exact sum rounded once to their dtype.

    overflowed: results that are infinite, or whose register overflowed on the way; nan: results that are
    NaN, infinities of both signs added. What has no finite result (under "raise" a register that has
    overflowed has none) is counted there, and is in none of the errors. register_bits: what holds every
    sum on the way, None without a register; first_overflow: None where none overflowed.

    largest_bound: the largest of the proved bounds of the error; infinite where one may overflow.
    largest_ratio: the largest quotient of an error and its own bound.
    """

    k: int
    outputs: int
    rms: float
    mean_error: float
    mean_relative: float
    largest_error: float
    largest_relative: float
    largest_ulps: float
    sqnr_db: float
    differ: int
    overflowed: int
    nan: int
    register_bits: int | None
    first_overflow: Overflow | None
    largest_bound: float
    largest_ratio: float


class Tally:
    """Adds up the figures of one accumulator; `add` takes a tile, `point` gives the result."""

    def __init__(self, accumulator: Accumulator, k: int) -> None:
        self.accumulator, self.k = accumulator, k
        self.outputs = self.counted = self.differ = self.overflowed = self.nan = 0
        self.sum = self.squares = self.signal = self.all_squares = 0.0
        self.largest = self.ulps = self.ratio = 0.0
        self.bound = 0.0
        self.low = self.high = 0
        self.first: Overflow | None = None

    def add(
        self, product: AnyFloats, exact: Floats, rounded: AnyFloats, terms: Terms, place: tuple[int, int]
    ) -> None:
        """A tile: results, the exact sums in float64 and in the result's dtype, their terms, and its corner.

        All are (M, N), the terms (M, N, n). A register that would raise is given as it wraps.
        """
        accumulator = self.accumulator
        lost = np.zeros(exact.shape, np.bool_)
        if isinstance(accumulator, FixedPoint):
            lost = self._watch(accumulator, terms, place)
        nothing = lost & (getattr(accumulator, "overflow", "") == "raise")
        finite = np.isfinite(product) & ~nothing
        self.outputs += exact.size
        self.overflowed += int((lost | np.isinf(product)).sum())
        self.nan += int((np.isnan(product) & ~nothing).sum())
        same = np.asarray(_patterns(product) == _patterns(rounded), np.bool_)
        self.differ += int((~same | nothing).sum())
        self.all_squares += float(np.square(exact).sum())

        bound = error_bound(accumulator, terms)
        self.bound = max(self.bound, float(bound.max()))
        error = errors(accumulator, terms, product)[finite]
        self.counted += error.size
        if not error.size:
            return
        self.sum += float(error.sum())
        self.squares += float(np.square(error).sum())
        self.signal += float(np.square(exact[finite]).sum())
        self.largest = max(self.largest, float(error.max()))
        magnitude = np.maximum(np.abs(exact), np.abs(product.astype(np.float64)))[finite]
        self.ulps = max(self.ulps, float((error / last_place(accumulator, magnitude, terms.factor)).max()))
        with np.errstate(divide="ignore", invalid="ignore"):
            self.ratio = max(self.ratio, float(np.where(error > 0, error / bound[finite], 0.0).max()))

    def _watch(self, accumulator: FixedPoint, terms: Terms, place: tuple[int, int]) -> Bools:
        """Follow the register as if it had no ends -> which outputs it overflows for."""
        limit = 1 << (accumulator.width - 1)
        lost = np.zeros(terms.sums.shape[:-1], np.bool_)
        for block, register in enumerate(registers_without_ends(accumulator, terms)):
            low, high = int(register.min()), int(register.max())
            self.low, self.high = min(self.low, low), max(self.high, high)
            if -limit <= low and high < limit:
                continue
            outside = np.asarray((register < -limit) | (register >= limit), np.bool_)
            row, column = (int(i) for i in np.argwhere(outside)[0])
            found = Overflow(block, (place[0] + row, place[1] + column), int(register[row, column]))
            self.first = found if self.first is None else min(self.first, found)
            lost |= outside
        return lost

    def point(self) -> Point:
        """What was found."""
        rms = math.sqrt(self.all_squares / self.outputs)
        mean = self.sum / self.counted if self.counted else math.nan
        largest = self.largest if self.counted else math.nan
        register = isinstance(self.accumulator, FixedPoint)
        return Point(
            self.k,
            self.outputs,
            rms,
            mean,
            _quotient(mean, rms),
            largest,
            _quotient(largest, rms),
            self.ulps if self.counted else math.nan,
            self._sqnr(),
            self.differ,
            self.overflowed,
            self.nan,
            signed_bits(self.low, self.high) if register else None,
            self.first,
            self.bound,
            self.ratio if self.counted else math.nan,
        )

    def _sqnr(self) -> float:
        if not self.counted:
            return math.nan
        if not self.squares:
            return math.inf
        return 10 * math.log10(self.signal / self.squares) if self.signal else -math.inf


def last_place(accumulator: Accumulator, magnitude: Floats, factor: tuple[int, int] = (1, 0)) -> Floats:
    """Magnitudes -> the unit in the last place of the accumulator's dtype there, at least a register's LSB.

    factor: the tensor scales that a register's value is multiplied by.

    >>> from mxfp import Sequential
    >>> last_place(Sequential("float16"), np.array([1.0, 2048.0, 0.0])).tolist() == [2**-10, 2.0, 2**-24]
    True
    """
    finfo: Any = ml_dtypes.finfo
    info = finfo(accumulator.result_dtype)
    exponent = np.maximum(np.frexp(magnitude)[1] - 1, info.minexp) - info.nmant
    unit = np.where(magnitude > 0, np.ldexp(1.0, exponent), np.ldexp(1.0, info.minexp - info.nmant))
    if isinstance(accumulator, FixedPoint):
        with np.errstate(over="ignore"):  # there are registers whose LSB float64 does not hold
            unit = np.maximum(unit, np.ldexp(float(factor[0]), accumulator.lsb_exponent + factor[1]))
    return np.asarray(unit, np.float64)


def _patterns(x: AnyFloats) -> NDArray[Any]:
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")


def _quotient(x: float, y: float) -> float:
    """The quotient, with 0 / 0 = 0 and the rest of IEEE 754."""
    if y == 0:
        return 0.0 if x == 0 else (math.nan if math.isnan(x) else math.inf)
    return x / y
