# SPDX-License-Identifier: Apache-2.0
"""Side room off 7: what is known of terms before any is added; `bounds` works with nothing else.

How large the terms and their exact partial sums get, what every term is a multiple of, and what a tensor core
aligns it by: of given terms, or of the largest and finest that K elements can make. Upward arithmetic, in
which float64 never falls below the number that it stands for, is here too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .accumulate import Accumulator, Exact, Fixed
from .dot import Terms, check_group
from .formats import BlockFormat, Floats, Integers
from .integers import sum_bounds
from .registers import Fused

NEVER: Final = 1 << 40
"""An exponent that no term has: what zero is a multiple of."""
MOST_K: Final = 1 << 24
"""The longest dot product that is bounded here."""
CodeRange = tuple[int, int]
"""The smallest and the largest scale code of one side."""


class Profile(NamedTuple):
    """What a bound knows of n terms, along the last axis."""

    sums: Floats
    """At least |exact sum of the terms so far|."""
    sizes: Floats
    """At least |term|."""
    exponents: Integers
    """The term is a multiple of 2**exponents; NEVER for zero."""
    leading: Integers
    """The exponent that a tensor core aligns the term by; -NEVER where all its products are zero."""
    factor: tuple[int, int]
    """What the result is multiplied by: significand and exponent."""


def profile_of(accumulator: Accumulator, terms: Terms) -> Profile:
    """Terms (..., n) -> their profile, each array (..., n); NaN and infinite terms count as zeros."""
    nonzero = np.asarray(terms.sums != 0, np.bool_)
    sums = np.zeros(terms.sums.shape, np.float64)
    for n, step in enumerate(Exact("float64").steps(replace(terms, specials=None))):
        if isinstance(step.state, Fixed):
            sums[..., n] = above(step.state.integers, step.state.exponent)
    aligned = terms.scale_exponents
    if isinstance(accumulator, Fused) and accumulator.exponents == "products" and terms.leading is not None:
        aligned = terms.leading.reshape(terms.sums.shape)
    return Profile(
        sums,
        above(terms.sums, terms.exponents),
        np.where(nonzero, terms.exponents, NEVER),
        np.where(nonzero if terms.live is None else terms.live, aligned, -NEVER),
        terms.factor,
    )


def extreme_profile(
    accumulator: Accumulator,
    a: BlockFormat,
    b: BlockFormat,
    k: int,
    scales_a: CodeRange | None,
    scales_b: CodeRange | None,
) -> Profile:
    """The profile of k elements that are as large as they get and as fine as they get, arrays (n,)."""
    group = check_group(accumulator.terms_of, a)
    whole, rest = divmod(check_length(k), group)
    codes = [scale_codes(f, r, s) for f, r, s in ((a, scales_a, "scales_a"), (b, scales_b, "scales_b"))]
    largest, finest, leading = 1.0, 0, 0
    for fmt, own in zip((a, b), codes, strict=True):
        live = own[fmt.scale.significands[own] > 0]
        if not len(live):
            raise ValueError(f"every scale of {fmt.name} in the range is zero")
        largest *= float(fmt.scale.values[live].max())
        finest += int(fmt.scale.exponents[live].min()) + fmt.element.lsb_exponent
        leading += int(fmt.scale.exponents[live].max()) + fmt.scale.mantissa_bits
        if isinstance(accumulator, Fused) and accumulator.exponents == "products":
            leading += int(fmt.element.exponents[fmt.element.finite].max())
    lsb = a.element.lsb_exponent + b.element.lsb_exponent
    counts = [group] * (whole > 0) + [rest] * (rest > 0)
    integers = [max(abs(end) for end in sum_bounds(a.element, b.element, n)) for n in counts]
    sizes = up(np.array([float(i) for i in integers]) * largest * 2.0**lsb)
    sizes = np.concatenate([np.repeat(sizes[:1], whole), sizes[len(sizes) - (rest > 0) :]])
    return Profile(
        up(np.cumsum(sizes) * (1 + len(sizes) * 2.0**-52)),
        sizes,
        np.full(len(sizes), finest),
        np.full(len(sizes), leading),
        (1, 0),
    )


def check_formats(a: BlockFormat, b: BlockFormat) -> None:
    """TypeError or ValueError unless both are block formats of one block size."""
    for side, fmt in (("a", a), ("b", b)):
        if not isinstance(fmt, BlockFormat):
            raise TypeError(f"{side} is a BlockFormat, such as mxfp.MXFP4, got {fmt!r}")
    if a.block != b.block:
        raise ValueError(
            f"a is {a.name} in blocks of {a.block}, b is {b.name} in blocks of {b.block}; "
            "block sizes must be equal"
        )


def check_length(k: int) -> int:
    """A number of elements along K; ValueError for anything else."""
    whole = isinstance(k, (int, np.integer)) and not isinstance(k, bool)
    if not whole or not 1 <= k <= MOST_K:
        raise ValueError(f"k is a number of elements, 1 … {MOST_K}, got {k!r}")
    return int(k)


def scale_codes(fmt: BlockFormat, codes: CodeRange | None, name: str) -> NDArray[np.int64]:
    """All scale codes of a range, ends included; ValueError where a code is NaN or there is none."""
    most = fmt.scale.code_count - 1 - int(not fmt.scale.finite[-1])
    ends = (0, most) if codes is None else codes
    pair = isinstance(ends, (tuple, list)) and len(ends) == 2
    whole = pair and all(isinstance(c, (int, np.integer)) and not isinstance(c, bool) for c in ends)
    if not whole or not 0 <= ends[0] <= ends[1] <= most:
        raise ValueError(
            f"{name} is the smallest and the largest scale code of {fmt.scale.name}, within 0 … {most}, "
            f"got {codes!r}"
        )
    return np.arange(ends[0], ends[1] + 1)


# --- upward arithmetic


def up(x: Any) -> Floats:
    """The next float64 above, of what is not zero."""
    x = np.asarray(x, np.float64)
    return np.asarray(np.where(x == 0, x, np.nextafter(x, np.inf)))


def plus(x: Floats, y: Floats) -> Floats:
    """X + y, rounded up where float64 does not hold it (the error is Knuth's TwoSum)."""
    with np.errstate(invalid="ignore"):
        total = x + y
        back = total - x
        short = (x - (total - back)) + (y - back) > 0
    return np.asarray(np.where(short, up(total), total))


def above(integers: NDArray[Any], exponents: Any) -> Floats:
    """At least |integers * 2**exponents|, exact where float64 is."""
    size = np.asarray(np.abs(integers))  # of an object array without axes, numpy gives an int
    wide = size.astype(np.float64)
    exact = wide.astype(object) == size if size.dtype == object else wide < 2.0**53
    return np.asarray(np.ldexp(np.where(np.asarray(exact, np.bool_), wide, up(wide)), exponents))
