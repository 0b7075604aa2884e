# SPDX-License-Identifier: Apache-2.0
"""Room 3: one scaled element <-> its code. The named roundings.

A deterministic rounding is a table of starts: code i + 1 begins at `starts[i]` on the positive axis.
Encoding is then one search, and there is no arithmetic left to round.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from .floats import (
    check_subnormals,
    float_dtype,
    real_array,
    round_float64,
    starts_of_nearest_even,
    to_float64,
)
from .formats import BlockFormat, Codes, ElementFormat, Floats, check_codes, element_of

Rounding = Literal["nearest_even", "nearest_away", "toward_zero", "stochastic"]
"""How a value between two codes becomes one of them (contract §2)."""

ROUNDINGS: Final[tuple[Rounding, ...]] = ("nearest_even", "nearest_away", "toward_zero", "stochastic")
DRAW_BITS: Final = 32
SLAB: Final = 1 << 18
"""Elements that the reference works on at a time; its temporaries are a few times as large."""


def check_rounding(rounding: str, rng: Any) -> None:
    """ValueError for an unknown rounding; TypeError where `rng` and the rounding do not go together."""
    if not isinstance(rounding, str) or rounding not in ROUNDINGS:
        raise ValueError(f"rounding must be one of {', '.join(map(repr, ROUNDINGS))}, got {rounding!r}")
    if rounding == "stochastic" and not isinstance(rng, np.random.Generator):
        raise TypeError(
            "stochastic rounding needs rng=, a numpy.random.Generator such as numpy.random.default_rng(0), "
            f"got {type(rng).__name__}"
        )
    if rounding != "stochastic" and rng is not None:
        raise TypeError(f"rng is for stochastic rounding only, and rounding is {rounding!r}")


def starts(element: ElementFormat, rounding: Rounding) -> Floats:
    """(n,) float64: code i + 1 begins at starts[i]. For `stochastic`, the starts of toward_zero.

    >>> from mxfp import E2M1
    >>> starts(E2M1, "nearest_away").tolist()
    [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]
    """
    below, above = element.magnitudes[:-1], element.magnitudes[1:]
    if rounding in ("toward_zero", "stochastic"):
        return above
    midpoint = (below + above) / 2
    return midpoint if rounding == "nearest_away" else starts_of_nearest_even(midpoint)


def draw_key(rng: np.random.Generator) -> np.uint64:
    """The one 64-bit draw that a call of stochastic rounding takes from `rng`."""
    return np.uint64(rng.integers(0, 2**64, dtype=np.uint64))


def draws(key: np.uint64, index: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Element indices -> their 32-bit draws: the upper half of outputs of SplitMix64 seeded with `key`.

    Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014. A function of the
    index alone, so neither threads nor block order change a result.
    """
    with np.errstate(over="ignore"):
        z = key + (index + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        return (z ^ z >> np.uint64(31)) >> np.uint64(64 - DRAW_BITS)


def encode_scaled(
    scaled: Floats, element: ElementFormat, rounding: Rounding, draw: NDArray[np.uint64] | None = None
) -> Codes:
    """Signed float64 in units of the scale, exact or rounded to odd -> uint8 codes; saturates.

    `draw` holds one 32-bit draw per element for `stochastic`. NaN must not come here.
    """
    magnitude = np.abs(scaled)
    code = np.searchsorted(starts(element, rounding), magnitude, side="right")
    if rounding == "stochastic":
        assert draw is not None
        low = element.magnitudes[code]
        gap = np.append(np.diff(element.magnitudes), np.inf)[code]
        with np.errstate(invalid="ignore"):
            # Exact: low is 0 or at least half of magnitude, and every gap is a power of two.
            fraction = (magnitude - low) / gap
        chance = (draw + np.uint64(1)).astype(np.float64) * 2.0**-DRAW_BITS
        code = code + (chance <= fraction)
    return np.where(np.signbit(scaled), element.negated[code], code).astype(np.uint8)


def encode(
    x: Any,
    fmt: ElementFormat | BlockFormat,
    *,
    rounding: Rounding = "nearest_even",
    rng: np.random.Generator | None = None,
) -> Codes:
    """Reals (...) -> uint8 element codes (...), one element each, no scale. OCP MX §5.3, §6.3.

    x: float16, bfloat16, float32, float64 or integers, each rounded once. fmt: an element format, or a
    block format for its elements. Magnitudes beyond the largest, infinities included, saturate; the sign
    of zero is kept. NaN becomes the format's NaN.

    Raises TypeError for another dtype, ValueError for NaN where the format has none, for an unknown
    rounding, or for `stochastic` without `rng`.

    >>> import mxfp
    >>> mxfp.encode([0.25, 0.75, 2.5, -0.1, 100.0], mxfp.E2M1).tolist()
    [0, 2, 4, 8, 7]
    """
    element = element_of(fmt)
    check_rounding(rounding, rng)
    given = real_array(x)
    if element.nan_code is None:
        _refuse_nan(given, element)
    key = None if rng is None else draw_key(rng)
    flat, codes = given.reshape(-1), np.empty(given.size, np.uint8)
    for start in range(0, given.size, SLAB):
        part = slice(start, min(start + SLAB, given.size))
        values = to_float64(flat[part])
        nan = np.isnan(values)
        draw = None if key is None else draws(key, np.arange(part.start, part.stop, dtype=np.uint64))
        codes[part] = encode_scaled(np.where(nan, 0.0, values), element, rounding, draw)
        if element.nan_code is not None:
            codes[part][nan] = element.nan_code
    return codes.reshape(given.shape)


def _refuse_nan(x: NDArray[Any], element: ElementFormat) -> None:
    if x.dtype.kind in "iu":
        return
    with np.errstate(invalid="ignore"):  # a signalling NaN
        nan = np.isnan(x)
    if nan.any():
        first = tuple(int(i) for i in np.argwhere(nan)[0])
        raise ValueError(f"{element.name} has no NaN, and x is NaN at index {first}")


def decode(codes: Any, fmt: ElementFormat | BlockFormat, *, dtype: Any = np.float32) -> NDArray[Any]:
    """uint8 element codes (...) -> their values (...), no scale. OCP MX §5.3.

    dtype: float16, bfloat16, float32 or float64; every element format is exact in float32. NaN is the
    canonical quiet NaN.

    Raises ValueError naming the first code out of range, TypeError for codes that are not integers.

    >>> import mxfp
    >>> mxfp.decode([1, 15, 8], mxfp.E2M1).tolist()
    [0.5, -6.0, -0.0]
    """
    element = element_of(fmt)
    wanted = float_dtype(dtype)
    check_subnormals()
    checked = check_codes(codes, element.code_count, f"{element.name} codes")
    return np.asarray(round_float64(element.values, wanted)[checked])
