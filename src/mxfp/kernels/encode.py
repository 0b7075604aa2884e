# SPDX-License-Identifier: Apache-2.0
"""Twins of `mxfp.encode`: one scaled magnitude -> its code."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import kernel


@kernel
def count_starts(magnitude: Any, starts: Any) -> int:
    """How many starts lie at or below the magnitude: its code. See `mxfp.encode.starts`."""
    low = 0
    high = starts.size
    while low < high:
        middle = (low + high) >> 1
        if starts[middle] <= magnitude:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def draw(key: Any, index: Any) -> Any:
    """The 32-bit draw of element `index`. See `mxfp.encode.draws`."""
    z = key + (index + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))) >> np.uint64(32)


@kernel
def goes_up(magnitude: Any, low: Any, high: Any, drawn: Any) -> Any:
    """Whether stochastic rounding takes the upper neighbour. See `mxfp.encode.encode_scaled`."""
    chance = np.float64(drawn + np.uint64(1)) * 2.0**-32
    return chance <= (magnitude - low) / (high - low)
