# SPDX-License-Identifier: Apache-2.0
"""Floats rounded to fewer bits, in every way that there is."""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np

from ...formats import Floats

Mode = Literal[
    "nearest_even",
    "toward_zero",
    "away",
    "up",
    "down",
    "half_away",
    "half_up",
    "half_zero",
    "half_odd",
    "odd",
    "jam",
]
"""How a significand is rounded; half_…: nearest, with halves that way."""
FAR: Final = -100_000
"""An exponent below all others: significands are rounded as if nothing were subnormal."""


def rounded(x: Floats, mode: Mode, bits: int, lowest: int = FAR) -> Floats:
    """float64, exact or rounded to odd -> the nearest with that many bits, none below 2**(lowest-bits+1).

    >>> rounded(np.array([5.0, 7.0, -5.0]), "half_up", 2).tolist()
    [6.0, 8.0, -4.0]
    """
    magnitude = np.abs(x)
    unit = np.maximum(np.frexp(magnitude)[1].astype(np.int64) - 1, lowest) - (bits - 1)
    scaled = np.ldexp(magnitude, -unit)
    whole = np.floor(scaled)
    rest = scaled - whole
    odd = whole % 2 == 1
    negative = x < 0
    up: Any
    if mode == "nearest_even":
        up = (rest > 0.5) | ((rest == 0.5) & odd)
    elif mode == "half_odd":
        up = (rest > 0.5) | ((rest == 0.5) & ~odd)
    elif mode == "half_away":
        up = rest >= 0.5
    elif mode == "half_zero":
        up = rest > 0.5
    elif mode == "half_up":
        up = (rest > 0.5) | ((rest == 0.5) & ~negative)
    elif mode == "away":
        up = rest > 0
    elif mode == "up":
        up = (rest > 0) & ~negative
    elif mode == "down":
        up = (rest > 0) & negative
    elif mode == "odd":
        up = (rest > 0) & ~odd
    elif mode == "jam":  # the first bit that is cut off becomes the last bit kept
        up = (rest >= 0.5) & ~odd
    else:
        up = np.zeros(x.shape, np.bool_)
    return np.asarray(np.copysign(np.ldexp(whole + up, unit), x))
