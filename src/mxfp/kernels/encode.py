# SPDX-License-Identifier: Apache-2.0
"""Twins of `mxfp.encode`: one scaled magnitude -> its code.

The deterministic roundings without a branch or a table in memory, so that a compiler can do many
elements at once; stochastic rounding as a search among the starts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..formats import ElementFormat, Floats
from ._jit import kernel

FLOAT32_BIAS = 127


def encoding(element: ElementFormat, starts: Floats) -> tuple[Any, ...]:
    """Format and deterministic rounding as the numbers that `nearest_code` and `signed_code` read.

    Mantissa bits; the exponent field that a float32 has at the smallest normal; the two thresholds; the
    pattern of the largest magnitude; and what turns a code into that of its negative.
    """
    largest = np.float32(element.max).view(np.int32)
    even, odd = thresholds(element, starts)
    return (
        np.int32(element.mantissa_bits),
        np.int32(FLOAT32_BIAS + 1 - element.bias),
        even,
        odd,
        largest,
        *negation(element),
    )


def thresholds(element: ElementFormat, starts: Floats) -> tuple[np.float32, np.float32]:
    """From which fraction of the way to the next magnitude a rounding takes it: after even and odd codes.

    Read from the table of starts, and rounded up to float32, which holds every fraction that is compared.

    >>> from mxfp import E2M1
    >>> from mxfp.encode import starts
    >>> [[float(t) for t in thresholds(E2M1, starts(E2M1, r))] for r in ("nearest_away", "toward_zero")]
    [[0.5, 0.5], [1.0, 1.0]]
    """
    magnitudes, fractions = element.magnitudes, []
    for code in (0, min(1, magnitudes.size - 2)):
        exact = (starts[code] - magnitudes[code]) / (magnitudes[code + 1] - magnitudes[code])
        near = np.float32(exact)
        fractions.append(near if near >= exact else np.nextafter(near, np.float32(2)))
    return fractions[0], fractions[1]


def negation(element: ElementFormat) -> tuple[np.int32, np.int32]:
    """(flip, plus) such that (code ^ flip) + plus, in as many bits as a code has, is minus the element."""
    if element.twos_complement:
        return np.int32(element.code_count - 1), np.int32(1)
    return np.int32(element.code_count // 2), np.int32(0)


@kernel
def nearest_code(pattern: Any, form: Any) -> Any:
    """A scaled magnitude as the int32 pattern of a float32 -> its code. See `encoding`.

    In units of the last place of its binade the magnitude is a code's mantissa and a fraction.
    """
    mantissa_bits, lowest, even, odd, largest, _, _ = form
    pattern = np.int32(min(pattern, largest))
    exponent = np.int32(max(np.int32(pattern >> 23), lowest))
    unit = np.int32(np.int32(254 + mantissa_bits - exponent) << 23)
    value = np.float32(np.int32(pattern).view(np.float32) * np.int32(unit).view(np.float32))
    whole = np.int32(value)
    code = np.int32(whole + np.int32(np.int32(exponent - lowest) << (mantissa_bits & 31)))
    threshold = np.float32(odd if code & 1 else even)
    return np.int32(code + (np.float32(value - np.float32(whole)) >= threshold))


@kernel
def signed_code(code: Any, negative: Any, form: Any) -> Any:
    """The code of a magnitude, or that of its negative."""
    return np.uint8(((code ^ form[5]) + form[6]) & 255 if negative else code)


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
