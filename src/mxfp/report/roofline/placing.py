# SPDX-License-Identifier: Apache-2.0
"""Times and roofs -> points in the roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..throughput import spread
from .points import Times, Timing
from .roofline import (
    Point,
    Roof,
    Series,
    Traffic,
    attainable,
    crossing,
    flat_to,
    intensity,
    limit_at,
    operations,
    seen_crossing,
)


@dataclass(frozen=True)
class Above:
    """The two roofs of a format. probe: what measured the bandwidth, "" if it is quoted."""

    bandwidth: Roof
    peak: Roof
    probe: str = ""

    @property
    def ridge(self) -> float:
        """Operations per byte at which both roofs are the same."""
        return self.peak.value / self.bandwidth.value


def place(fmt: str, m: int, n: int, k: int, traffic: Traffic, above: Above) -> Point:
    """Where a product of m rows lies, measured or not."""
    where = intensity(m, n, k, traffic)
    return Point(
        fmt,
        m,
        traffic.moved(m),
        where,
        attainable(where, above.peak.value, above.bandwidth.value),
        limit_at(where, above.ridge),
    )


def timed(
    point: Point, n: int, k: int, timing: Timing, above: Above, rates: Mapping[str, Sequence[float]]
) -> Point:
    """A point with what was measured there. rates: of the probes, in the rounds of the timing."""
    seconds = spread(timing.seconds)
    work = 1e-9 * operations(point.m, n, k)
    bandwidths = rates[above.probe] if above.probe else [above.bandwidth.value] * len(timing.seconds)
    shares = [
        work / spent / attainable(point.intensity, above.peak.value, bandwidth)
        for spent, bandwidth in zip(timing.seconds, bandwidths, strict=True)
    ]
    return replace(
        point,
        software=timing.software,
        rows=timing.rows,
        seconds=seconds.median,
        low=seconds.low,
        high=seconds.high,
        gops=work / seconds.median,
        share=spread(shares).median,
    )


def points_of(
    fmt: str, ms: Sequence[int], n: int, k: int, traffic: Traffic, above: Above, times: Times
) -> list[Point]:
    """Every point of a format, by M."""
    timings = {timing.m: timing for timing in times.timings if timing.format == fmt}
    points = []
    for m in sorted(set(ms)):
        if m in timings:
            timing = timings[m]
            point = place(fmt, m, n, k, timing.traffic, above)
            points.append(timed(point, n, k, timing, above, times.rates.get(m, {})))
        else:
            points.append(place(fmt, m, n, k, traffic, above))
    return points


def series_of(fmt: str, n: int, k: int, traffic: Traffic, above: Above, points: Sequence[Point]) -> Series:
    """A format's roofs and points -> where it stops being bandwidth-bound."""
    seconds = {point.m: point.seconds for point in points if point.software}
    return Series(
        fmt,
        traffic.weights,
        8 * traffic.weights / (n * k),
        above.bandwidth,
        above.peak,
        above.ridge,
        crossing(above.ridge, n, k, traffic),
        seen_crossing(seconds),
        flat_to(seconds),
    )
