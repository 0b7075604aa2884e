# SPDX-License-Identifier: Apache-2.0
"""The scale rules and roundings that files were made with, by name, and which of them give what a file has.

A rule for scales is weighed by the scales alone. Roundings are weighed against the scales that the file has,
whatever rule gave those. So each is found apart, and one that is not known does not hide the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ..blocks import BlockArray
from ..floats import to_float64
from ..formats import Bools, Codes, ElementFormat, Floats, Integers
from ..scale import exponents, power_of_two_codes, significand_codes
from ..search import search_exponents
from .blockwise import in_blocks, in_scale, magnitudes_of, present, scales_of

SCALE_TEXTS: Final = {
    "floor": "floor",
    "even": "even",
    "rceil": "rceil",
    "ceil": "ceil",
    "nearest": "nearest",
    "search": "search",
    "nearest_log2": "round(log2 amax) - emax",
    "floor_float32": "floor with log2 in float32",
}
"""Rules for scales; the last two are no rules of this package, and are named if no other fits."""
ROUNDING_TEXTS: Final = {
    "nearest_even": "ties to even",
    "nearest_away": "ties away from zero",
    "nearest_zero": "ties toward zero",
    "even_but_quarter": "ties to even, but the smallest tie up",
    "toward_zero": "truncation toward zero",
    "either": "codes on either side, as of stochastic rounding",
}
"""Roundings; the fourth and the last are named if no other fits."""
ZERO_TEXTS: Final = {
    "kept": "the sign of zero is kept",
    "lost": "-0 is never written",
    "negative": "zeros of what is not positive are -0",
}
"""What becomes of the sign of an element that is zero; the last is named if no other fits."""
READINGS: Final[Mapping[str, np.dtype[Any]]] = {
    "float32": np.dtype(np.float32),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float16": np.dtype(np.float16),
}
"""What a source may have been rounded to before it was quantized."""
_LAST: Final = {"nearest_log2", "floor_float32", "even_but_quarter", "either", "negative"}


@dataclass
class Weighed:
    """How often each rule and rounding misses what a file has. misses: by name, counts that are not zero.

    tried: all names. blocks: those that scale rules were held against, searched: "search". elements: those
    that roundings were. left_out: blocks that are not finite in the source. nan: blocks that are NaN in the
    file alone. zero_scales: blocks of zeros whose scale code is not 0.
    """

    blocks: int = 0
    searched: int = 0
    elements: int = 0
    left_out: int = 0
    nan: int = 0
    zero_scales: int = 0
    tried: dict[str, None] = field(default_factory=dict)
    misses: Counter[str] = field(default_factory=Counter)

    def add(self, other: Weighed) -> None:
        """Count what lies behind too."""
        self.blocks += other.blocks
        self.searched += other.searched
        self.elements += other.elements
        self.left_out += other.left_out
        self.nan += other.nan
        self.zero_scales += other.zero_scales
        self.tried |= other.tried
        self.misses += other.misses

    def fitting(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of some names that never miss; of last resort only if no other is.

        "either" fits nearly all that is nearly right, and so only where others miss one element in a hundred.
        """
        found = [name for name in names if name in self.tried and not self.misses[name]]
        if "either" in found and 100 * self.closest(ROUNDING_TEXTS)[1] < self.elements:
            found.remove("either")
        return tuple(name for name in found if name not in _LAST) or tuple(found)

    def closest(self, names: Iterable[str]) -> tuple[str, int]:
        """The one of some names that misses least often, and how often."""
        tried = [name for name in names if name in self.tried and name != "either"]
        best = min(tried, key=lambda name: self.misses[name])
        return best, self.misses[best]

    @property
    def explained(self) -> bool:
        """Whether a rule, a rounding and a sign of zero give all that the file has."""
        return not self.nan and all(map(self.fitting, (SCALE_TEXTS, ROUNDING_TEXTS, ZERO_TEXTS)))


def weigh(x: NDArray[Any], q: BlockArray, *, search: bool = False) -> Weighed:
    """Floats and the blocks that were made of them -> how often each rule misses. search: try that rule too.

    >>> import mxfp
    >>> x = np.array([0.5, 0.75, 1.25, -0.1, 0.0, 6.5])
    >>> found = weigh(x, mxfp.quantize(x, scale_rule="rceil", rounding="nearest_away"))
    >>> [found.fitting(names) for names in (SCALE_TEXTS, ROUNDING_TEXTS, ZERO_TEXTS)]
    [('rceil', 'ceil'), ('nearest_away',), ('kept',)]
    """
    fmt = q.format
    given = in_blocks(x, q.block_axis, fmt.block)
    codes, scales = in_blocks(q.codes, q.block_axis, fmt.block), scales_of(q)
    values = to_float64(given)
    finite = np.isfinite(values).all(axis=1)
    nan = scales == fmt.scale.nan_code
    found = Weighed(left_out=int(np.count_nonzero(~finite)), nan=int(np.count_nonzero(nan & finite)))
    kept, there = finite & ~nan, present(q)
    if not kept.all():
        given, values, codes, scales, there = (a[kept] for a in (given, values, codes, scales, there))
    amax = np.abs(values).max(axis=1, initial=0.0)
    found.zero_scales = int(np.count_nonzero(scales[amax == 0]))
    used = amax > 0
    found.blocks = int(np.count_nonzero(used))
    found.searched = found.blocks if search else 0
    for name, made in _scales(given, values, amax, q, search).items():
        _count(found, name, (made != scales) & used)
    scaled = in_scale(values, scales, fmt, q.tensor_scale)
    if not there.all():
        scaled, values, codes = scaled[there], values[there], codes[there]
    _weigh_codes(found, scaled, values, codes, fmt.element)
    return found


def _count(found: Weighed, name: str, missed: Bools) -> None:
    found.tried[name] = None
    if number := int(np.count_nonzero(missed)):
        found.misses[name] += number


def _scales(
    given: NDArray[Any], values: Floats, amax: Floats, q: BlockArray, search: bool
) -> dict[str, Codes]:
    """The scale codes that each rule gives."""
    fmt = q.format
    if fmt.scale.mantissa_bits:
        return {
            rule: significand_codes(amax, fmt.element, fmt.scale, rule, q.tensor_scale)
            for rule in fmt.scale_rules
        }
    rules: dict[str, Callable[[], Integers]] = {
        "nearest_log2": lambda: _nearest_log2(amax, fmt.element),
        "floor_float32": lambda: _floor_float32(amax, fmt.element),
    }
    if search:
        rules["search"] = lambda: search_exponents(given, values, amax, fmt, "nearest_even")
    made = {name: rule() for name, rule in rules.items()}
    for rule in fmt.scale_rules:
        if rule != "search":
            made[rule] = exponents(amax, fmt.element, rule)
    return {name: power_of_two_codes(found, amax, fmt.scale) for name, found in made.items()}


def _nearest_log2(amax: Floats, element: ElementFormat) -> Integers:
    fraction, exponent = np.frexp(amax)
    # No float lies between the square root of 2 and the nearest one.
    return np.asarray(exponent - 1 - element.emax + (2.0 * fraction > np.sqrt(2.0)), np.int64)


def _floor_float32(amax: Floats, element: ElementFormat) -> Integers:
    with np.errstate(over="ignore", divide="ignore"):
        logarithm = np.log2(amax.astype(np.float32))
    bounded = np.nan_to_num(np.floor(logarithm), posinf=128.0, neginf=-150.0)
    return bounded.astype(np.int64) - element.emax


def _weigh_codes(
    found: Weighed, scaled: Floats, values: Floats, codes: Codes, element: ElementFormat
) -> None:
    """Each rounding against the codes; zeros' signs apart."""
    magnitudes, top = element.magnitudes, element.magnitudes.size - 1
    size = np.abs(scaled)
    below = _below(size, magnitudes)
    middles = np.append((magnitudes[:-1] + magnitudes[1:]) / 2, np.inf)[below]
    tie = size == middles
    odd = (below & 1).astype(np.bool_)
    nearest = below + (size > middles)
    above = below + (size > magnitudes[below]) * (below < top)
    even = nearest + (tie & odd)
    actual = magnitudes_of(codes, element)
    zero, minus = actual == 0, element.negative[codes]
    wrong_sign = ~zero & (minus != np.signbit(values))
    for name, made in (
        ("nearest_even", even),
        ("nearest_away", nearest + tie),
        ("nearest_zero", nearest),
        ("even_but_quarter", even + (tie & (below == 0))),
        ("toward_zero", below),
    ):
        _count(found, name, (made != actual) | wrong_sign)
    _count(found, "either", ((below != actual) & (above != actual)) | wrong_sign)
    found.elements += actual.size
    if element.negated[0]:
        _count(found, "kept", zero & (minus != np.signbit(values)))
        _count(found, "lost", zero & minus)
        _count(found, "negative", zero & (minus != ~(values > 0)))
    else:
        _count(found, "kept", np.zeros(0, np.bool_))


def _below(size: Floats, magnitudes: Floats) -> Codes:
    """The code of the largest magnitude that is not above each."""
    if magnitudes.size > 32:
        return (np.searchsorted(magnitudes, size, side="right") - 1).astype(np.uint8)
    found = np.zeros(size.shape, np.uint8)
    for start in magnitudes[1:]:  # faster than a search where there are few
        found += size >= start
    return found
