# SPDX-License-Identifier: Apache-2.0
"""Measured tokens a second beside the ceiling, and what several contexts say together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from .ceiling import Ceiling, Device, ceiling
from .model import Model

MOST_CONTEXT: Final = 10**9
LEAST_RATE: Final = 1e-9
MOST_RATE: Final = 1e12
LEAST_SPREAD: Final = 0.02
"""Contexts whose bytes differ by less than this part cannot tell a slope from noise."""


@dataclass(frozen=True)
class Measured:
    """Tokens a second that somebody measured, of all sequences together; of another format if it is named."""

    tokens_per_second: float
    context: int
    format: str | None = None

    def __post_init__(self) -> None:
        if not LEAST_RATE <= self.tokens_per_second <= MOST_RATE:
            raise ValueError(
                f"{self.tokens_per_second} tokens a second: expected a positive finite number, "
                f"{LEAST_RATE:g} … {MOST_RATE:g}"
            )
        if not 0 <= self.context <= MOST_CONTEXT:
            raise ValueError(f"a context of {self.context} tokens: expected 0 … {MOST_CONTEXT}")


@dataclass(frozen=True)
class Compared:
    """A measurement against its ceiling: the share reached, and the bytes a second that this implies."""

    measured: Measured
    ceiling: Ceiling
    share: float
    bytes_per_second: float


@dataclass(frozen=True)
class Fit:
    """Time of a step against its bytes: seconds = fixed + bytes / bandwidth, by least squares.

    `bandwidth` and `fixed_seconds` are None where the data give no sense to them; `verdict` says why, or what
    to make of them. `residual` is the largest distance from the line, as a part of the time measured.
    """

    points: int
    bandwidth: float | None
    fixed_seconds: float | None
    residual: float | None
    verdict: str


def compare(
    model: Model,
    device: Device,
    measured: Sequence[Measured],
    *,
    batch: int = 1,
    kv_type: str = "F16",
) -> tuple[Compared, ...]:
    """Each measurement beside the ceiling at its context."""
    found = []
    for one in measured:
        roof = ceiling(model, device, one.context, batch=batch, kv_type=kv_type)
        rate = one.tokens_per_second / batch * roof.traffic.total
        found.append(Compared(one, roof, one.tokens_per_second / roof.tokens_per_second, rate))
    return tuple(found)


def fit(compared: Sequence[Compared], device: Device) -> Fit | None:
    """The line through measurements at several contexts; None for fewer than two measurements.

    The slope is seconds a byte: its inverse is the bandwidth that the device kept up. The intercept is what
    every step takes whatever it reads. Nothing is reported that the data cannot carry: contexts too alike,
    a slope lost in noise, time that does not grow with bytes, a fixed time below zero, more bandwidth than
    the roof.
    """
    if len(compared) < 2:
        return None
    count = len(compared)
    moved = np.array([c.ceiling.traffic.total for c in compared])
    seconds = np.array([c.ceiling.traffic.batch / c.measured.tokens_per_second for c in compared])
    spread = (moved.max() - moved.min()) / moved.max()
    if spread < LEAST_SPREAD:
        return Fit(
            count,
            None,
            None,
            None,
            f"no fit: the bytes of these contexts differ by {100 * spread:.2g} %, too little for a slope; "
            "measure at a longer context too",
        )
    centred = moved - moved.mean()
    slope = float(centred @ (seconds - seconds.mean()) / (centred @ centred))
    fixed = float(seconds.mean() - slope * moved.mean())
    residual = float(np.max(np.abs(fixed + slope * moved - seconds) / seconds))
    if slope <= 0:
        return Fit(
            count,
            None,
            None,
            residual,
            "no fit: the time of a token does not grow with its bytes, so it is not made of reading them",
        )
    squares = float(np.sum((fixed + slope * moved - seconds) ** 2))
    error = math.sqrt(squares / (count - 2) / float(centred @ centred)) if count > 2 else 0.0
    if 2 * error > slope:
        lost = f"no fit: {1e9 * slope:.2g} ± {1e9 * error:.2g} s/GB is lost in noise; measure more contexts"
        return Fit(count, None, None, residual, lost)
    bandwidth = 1 / slope
    if bandwidth > device.bandwidth:
        verdict = (
            "more bytes cost less time than the bandwidth given allows: some of the cache is not read, or "
            "the bandwidth or the contexts are not those of the measurement"
        )
        return Fit(count, None, None, residual, verdict)
    if fixed < 0:
        verdict = (
            "a fixed time below zero: longer contexts cost more than their bytes, as attention that computes "
            "or reads more does; the slope is not the bandwidth of the weights"
        )
        return Fit(count, bandwidth, None, residual, verdict)
    sure = "two points, and a line goes through any two: a third would tell"
    if count > 2:
        sure = (
            f"slope ± {100 * error / slope:.2g} %, no point off the line by more than {100 * residual:.2g} %"
        )
    return Fit(count, bandwidth, fixed, residual, sure)
