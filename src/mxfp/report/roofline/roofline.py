# SPDX-License-Identifier: Apache-2.0
"""The roofline as plain data, and its arithmetic: intensity, the roof above it, ridges and crossings.

An operation is a multiplication or an addition: a product (M, K) @ (K, N) has 2 M N K. Its intensity is
operations per byte that the format moves: the weights once, activations in and results out. No product
is faster than P = min(peak, bandwidth x intensity) [Williams, Waterman, Patterson 2009]; the ridge is
the intensity at which both are the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from ..measure import plain
from ..throughput import Machine, Spread
from .caches import Cache

FLAT: Final = 1.5
"""A call is as long as that of the fewest rows if it takes at most so many times as long."""
SCHEMA: Final = "mxfp-roofline/1"
"""Of roofline.json."""
HALF: Final = 0.5
"""Below this share of its roof a product is bound by its software, and by neither roof."""

Limit = Literal["bandwidth", "compute"]
Origin = Literal["measured", "quoted"]


@dataclass(frozen=True)
class Roof:
    """One roof: GB/s of a bandwidth, Gop/s of a peak.

    value: the upper quartile of its rounds, for what disturbs a machine only ever makes it slower. median,
    low: the median and the lower quartile. how: what was measured.
    """

    name: str
    value: float
    median: float
    low: float
    origin: Origin
    how: str

    def __str__(self) -> str:
        """The name, and whether it was only quoted."""
        return self.name if self.origin == "measured" else f"{self.name} (quoted)"


def measured_roof(name: str, rates: Spread, how: str) -> Roof:
    """The rates of its rounds -> a roof."""
    return Roof(name, rates.high, rates.median, rates.low, "measured", how)


def quoted_roof(name: str, value: float) -> Roof:
    """A roof that somebody else names."""
    return Roof(name, value, value, value, "quoted", "-")


@dataclass(frozen=True)
class Sample:
    """Read bandwidth of `nbytes` in all, in GB/s: its median and quartiles.

    level: where so much lies. pattern: the way of reading that was the quickest.
    """

    nbytes: int
    level: str
    pattern: str
    gbs: float
    low: float
    high: float


@dataclass(frozen=True)
class Traffic:
    """Bytes that products (M, K) @ (K, N) of one format move: the weights, and in and out for each row."""

    weights: int
    row: int

    def moved(self, m: int) -> int:
        """Bytes of a product of m rows."""
        return self.weights + m * self.row


@dataclass(frozen=True)
class Point:
    """One product: its place in the roofline, and what was measured there; NaN and "" where nothing was.

    rows: those that one call did; where fewer than m, `seconds` are scaled. low, high: quartiles of
    `seconds`. share: of the roof above it, with the bandwidth of the same rounds, which drifts; the median.
    """

    format: str
    m: int
    moved: int
    intensity: float
    attainable: float
    limit: Limit
    software: str = ""
    rows: int = 0
    seconds: float = math.nan
    low: float = math.nan
    high: float = math.nan
    gops: float = math.nan
    share: float = math.nan

    @property
    def binds(self) -> str:
        """What holds it back: the roof above it, or its software."""
        return "software" if self.share < HALF else self.limit


@dataclass(frozen=True)
class Series:
    """One format: its weights, its roofs, and where it stops being bandwidth-bound.

    ridge: operations per byte. crossing: rows at the ridge, not rounded; infinite where no number of rows
    gets there. seen_crossing: where the two straight lines through the measured times meet. flat_to: the
    most rows whose call is as long as that of the fewest. Both NaN and 0 without times.
    """

    format: str
    weight_bytes: int
    weight_bits: float
    bandwidth: Roof
    peak: Roof
    ridge: float
    crossing: float
    seen_crossing: float
    flat_to: int


@dataclass(frozen=True)
class Trial:
    """One call of one software, made to find the quickest for a format: seconds, scaled to m rows."""

    format: str
    software: str
    m: int
    seconds: float


@dataclass(frozen=True)
class Roofline:
    """Everything `mxfp roofline` found. `as_dict` is what roofline.json holds.

    copies: of the weights of each format, which calls take by turns so that no cache holds them.
    """

    machine: Machine
    isa: str
    threads: int
    n: int
    k: int
    copies: dict[str, int]
    caches: list[Cache]
    samples: list[Sample]
    bandwidths: list[Roof]
    peaks: list[Roof]
    series: list[Series]
    points: list[Point]
    trials: list[Trial]

    @property
    def timed(self) -> bool:
        """Whether products were timed."""
        return any(point.software for point in self.points)

    @property
    def measured(self) -> bool:
        """Whether anything was measured."""
        return self.timed or any(roof.origin == "measured" for roof in (*self.bandwidths, *self.peaks))

    @property
    def subject(self) -> str:
        """Whose roofline it is: this machine's, unless everything was quoted."""
        if not self.measured:
            return "quoted roofs"
        return f"{self.machine.cpu}, {self.threads} thread{'s' * (self.threads != 1)}"

    def as_dict(self) -> dict[str, Any]:
        """Plain lists, strings and numbers; a figure that is not finite is None."""
        found = plain(asdict(self))
        for point, own in zip(found["points"], self.points, strict=True):
            point["binds"] = own.binds if own.software else None
        return {"schema": SCHEMA, **found}


def operations(m: int, n: int, k: int) -> int:
    """Multiplications and additions of (M, K) @ (K, N).

    >>> operations(2, 3, 4)
    48
    """
    return 2 * m * n * k


def intensity(m: int, n: int, k: int, traffic: Traffic) -> float:
    """Operations per byte of (M, K) @ (K, N).

    >>> intensity(1, 32, 64, Traffic(weights=1024, row=0))
    4.0
    """
    return operations(m, n, k) / traffic.moved(m)


def attainable(where: float, peak: float, bandwidth: float) -> float:
    """The roof at an intensity: P = min(peak, bandwidth x intensity), in Gop/s for Gop/s and GB/s.

    >>> attainable(2.0, 100.0, 10.0), attainable(20.0, 100.0, 10.0)
    (20.0, 100.0)
    """
    return min(peak, bandwidth * where)


def limit_at(where: float, ridge: float) -> Limit:
    """Which roof is above an intensity; at the ridge itself both are, and memory is no longer the limit."""
    return "bandwidth" if where < ridge else "compute"


def crossing(ridge: float, n: int, k: int, traffic: Traffic) -> float:
    """The rows M, not rounded, at which (M, K) @ (K, N) has the ridge's intensity; inf if none has.

    >>> crossing(8.0, 32, 64, Traffic(weights=1024, row=0))
    2.0
    >>> crossing(8.0, 32, 64, Traffic(weights=1024, row=512))
    inf
    """
    each = operations(1, n, k) - ridge * traffic.row
    return ridge * traffic.weights / each if each > 0 else math.inf


def seen_crossing(seconds: Mapping[int, float]) -> float:
    """Times of calls by rows -> the rows at which their two straight lines meet; NaN for fewer than two.

    One line is level, through the call of the fewest rows; the other rises with the quickest row.

    >>> seen_crossing({1: 4.0, 2: 4.0, 8: 8.0, 16: 16.0})
    4.0
    """
    if len(seconds) < 2:
        return math.nan
    first = min(seconds)
    return seconds[first] / min(time / m for m, time in seconds.items())


def flat_to(seconds: Mapping[int, float]) -> int:
    """The most rows up to which no call takes over FLAT times as long as that of the fewest; 0 for none.

    >>> flat_to({1: 4.0, 2: 4.1, 4: 5.0, 8: 9.0, 16: 4.0})
    4
    """
    found = 0
    for m in sorted(seconds):
        if seconds[m] > FLAT * seconds[min(seconds)]:
            break
        found = m
    return found
