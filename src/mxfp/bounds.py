# SPDX-License-Identifier: Apache-2.0
"""Side room off 7: how far an accumulator can be from the exact sum, bounded rigorously.

One bound for each kind of accumulator, from what is known of the terms before any is added (`profiles`): how
large the exact partial sums get, and what every term is a multiple of. A rounding to nearest of something
below M errs by half a unit in the last place of M at most, and not at all where that unit divides every term;
what has erred before makes M larger. (The running analysis of Higham, "Accuracy and Stability of Numerical
Algorithms", §3.3 and §4.2, with the exact sums in the place of the computed ones.) All steps are rounded
upward in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from .accumulate import Accumulator, Exact, Pairwise, Sequential
from .dot import INT64_BITS, Terms
from .floats import AnyFloats
from .formats import MXFP4, BlockFormat, Floats, Integers
from .profiles import NEVER, CodeRange, Profile, check_formats, extreme_profile, plus, profile_of, up
from .registers import FixedPoint, Fused, shift_integers


def errors(accumulator: Accumulator, terms: Terms, results: AnyFloats | None = None) -> Floats:
    """Terms (..., n) -> float64 (...): the distance of results from exact sums, rounded once.

    results: what accumulator(terms) gave, if it is at hand. Infinite where a result overflowed, NaN where the
    exact sum is NaN or infinite.

    >>> import mxfp
    >>> big, one = mxfp.quantize([4096.0] + [0.0] * 31 + [1.0]), mxfp.quantize([1.0] + [0.0] * 31 + [1.0])
    >>> float(errors(mxfp.Sequential("float16"), mxfp.block_dots(big, one)))
    1.0
    """
    _check(accumulator, terms)
    found = np.asarray(accumulator(terms) if results is None else results).astype(np.float64)
    if found.shape != terms.sums.shape[:-1]:
        raise ValueError(
            f"results of terms {terms.sums.shape} are {terms.sums.shape[:-1]}, got {found.shape}"
        )
    finite = np.isfinite(found)
    mantissa, exponent = np.frexp(np.where(finite, found, 0.0))
    significand, shift = terms.factor
    wide = terms.bits > INT64_BITS or significand != 1
    sums = terms.sums.astype(object) * significand if wide else terms.sums
    minus = np.asarray(-np.ldexp(mantissa, 53).astype(np.int64))
    longer = replace(
        terms,
        sums=np.concatenate([sums, minus.astype(sums.dtype)[..., None]], axis=-1),
        exponents=np.concatenate(
            [terms.exponents + shift, exponent.astype(np.int64)[..., None] - 53], axis=-1
        ),
        bits=max(terms.bits + significand.bit_length(), 54),
        specials=None,
        live=None,
        leading=None,
        factor=(1, 0),
        group=None,
    )
    error = np.abs(Exact("float64")(longer))
    error = np.where(finite, error, np.inf)  # of finite terms NaN is an overflow, too: infinity - infinity
    if terms.specials is not None:
        error = np.where((terms.specials != 0).any(axis=-1), np.nan, error)
    return np.asarray(error, np.float64)


def registers_without_ends(accumulator: FixedPoint, terms: Terms) -> Iterator[NDArray[Any]]:
    """Terms (..., n) -> after each, integers (...): what the register would hold if it had no ends.

    It overflows where one of them is outside its range, whatever it does then. As in the register itself, dot
    products with a NaN or an infinite term add nothing.

    >>> import mxfp
    >>> terms = mxfp.block_dots(mxfp.quantize([6.0] * 64), mxfp.quantize([6.0] * 64))
    >>> [int(held) for held in registers_without_ends(mxfp.FixedPoint(8, 0), terms)]
    [1152, 2304]
    """
    shape = terms.sums.shape
    sums = np.atleast_2d(terms.sums)  # numpy turns arrays of no axes into Python's integers
    shifts = np.atleast_2d(terms.exponents) - accumulator.lsb_exponent
    if terms.specials is not None:
        sums = np.where(np.atleast_2d(terms.specials != 0).any(axis=-1, keepdims=True), 0, sums)
    left = int(np.max(shifts, where=sums != 0, initial=0))
    kind: Any = np.int64 if terms.bits + left + len(terms).bit_length() + 2 <= INT64_BITS else object
    held: NDArray[Any] = np.zeros(sums.shape[:-1], kind)
    for n in range(shape[-1]):
        held = held + shift_integers(sums[..., n].astype(kind), shifts[..., n], accumulator.rounding)
        yield held.reshape(shape[:-1])


def error_bound(accumulator: Accumulator, terms: Terms) -> Floats:
    """Terms (..., n) -> float64 (...): no less than `errors(accumulator, terms)`, from the terms alone.

    Infinite where the accumulator may overflow, NaN where a term is NaN or infinite. Rigorous, for the
    accumulators of `mxfp`; TypeError for others.

    >>> import mxfp
    >>> big, one = mxfp.quantize([4096.0] + [0.0] * 31 + [1.0]), mxfp.quantize([1.0] + [0.0] * 31 + [1.0])
    >>> terms = mxfp.block_dots(big, one)
    >>> [float(error_bound(mxfp.Sequential(d), terms)) for d in ("bfloat16", "float16", "float32")]
    [16.0, 2.0, 0.0]
    """
    _check(accumulator, terms)
    bound = _of(accumulator)(accumulator, profile_of(accumulator, terms))
    if terms.specials is not None:
        bound = np.where((terms.specials != 0).any(axis=-1), np.nan, bound)
    return np.asarray(bound, np.float64)


def worst_error_bound(
    accumulator: Accumulator,
    a: BlockFormat = MXFP4,
    b: BlockFormat | None = None,
    *,
    k: int,
    scales_a: CodeRange | None = None,
    scales_b: CodeRange | None = None,
) -> float:
    """No dot product of k elements, with scale codes within these ranges, has a larger error.

    a, b: block formats, b is a's if not given. scales_a, scales_b: the smallest and the largest scale code,
    all of them if not given; tensor scales (NVFP4) are outside. Infinite where the accumulator may overflow.
    The bound is that of terms as large as they get and all of one sign, on the finest grid.

    >>> import mxfp
    >>> worst_error_bound(mxfp.Sequential("float32"), k=4096, scales_a=(120, 127), scales_b=(120, 127))
    0.41290283203125
    """
    b = a if b is None else b
    bound = _of(accumulator)
    check_formats(a, b)
    return float(bound(accumulator, extreme_profile(accumulator, a, b, k, scales_a, scales_b)))


def _check(accumulator: Accumulator, terms: Terms) -> None:
    """TypeError or ValueError unless the accumulator takes these terms."""
    if not isinstance(accumulator, Accumulator):
        raise TypeError(f"accumulator is one such as mxfp.Sequential('float32'), got {accumulator!r}")
    if not isinstance(terms, Terms):
        raise TypeError(f"terms are Terms (see mxfp.block_dots), got {type(terms).__name__}")
    group = accumulator.terms_of
    single = isinstance(accumulator, Fused) and accumulator.exponents == "products"
    if group is not None and (terms.group not in (None, group) or (single and terms.leading is None)):
        raise ValueError(
            f"{accumulator} takes terms of {group} products, as block_dots(..., group={group}) makes them; "
            f"got terms of {terms.group}"
        )


def _exponent(x: Floats, lowest: int) -> Integers:
    """floor(log2 x), never below the lowest."""
    found = np.frexp(np.where(np.isfinite(x), x, 0.0))[1].astype(np.int64) - 1
    return np.maximum(found, lowest)


def _rounding(size: Floats, grid: Integers, dtype: np.dtype[Any]) -> Floats:
    """The error of rounding to nearest what is at most `size`, and a multiple of 2**grid."""
    spec: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call, unused-ignore]
    ulp = _exponent(size, int(spec.minexp)) - int(spec.nmant)
    error = np.where((size == 0) | (ulp <= grid), 0.0, np.ldexp(0.5, ulp))
    return np.where(size <= float(spec.max), error, np.inf)


def _grid(exponents: Integers) -> Integers:
    """What all terms so far are multiples of."""
    return np.minimum.accumulate(exponents, axis=-1)


def _finished(error: Floats, profile: Profile, dtype: np.dtype[Any]) -> Floats:
    """The bound with tensor scales: multiplied by their product, and one more rounding."""
    if profile.factor == (1, 0):
        return error
    significand, exponent = profile.factor
    scaled = up(up(error * up(float(significand))) * 2.0**exponent)
    size = plus(up(up(profile.sums[..., -1] * up(float(significand))) * 2.0**exponent), scaled)
    return plus(scaled, _rounding(size, np.full(size.shape, -NEVER), dtype))


# --- one bound for each kind


def _sequential(accumulator: Sequential, profile: Profile) -> Floats:
    dtype = accumulator.result_dtype
    grid, error = _grid(profile.exponents), np.zeros(profile.sums.shape[:-1])
    for n in range(profile.sums.shape[-1]):
        size = plus(profile.sums[..., n], error)
        error = plus(error, _rounding(size, grid[..., n], dtype))
    return _finished(error, profile, dtype)


def _exact(accumulator: Exact, profile: Profile) -> Floats:
    significand, exponent = profile.factor
    size = profile.sums[..., -1]
    if profile.factor != (1, 0):
        size = up(up(size * up(float(significand))) * 2.0**exponent)
    grid = _grid(profile.exponents)[..., -1] + exponent
    return _rounding(size, grid, accumulator.result_dtype)


def _pairwise(accumulator: Pairwise, profile: Profile) -> Floats:
    dtype = accumulator.result_dtype
    sizes, grid = profile.sizes, profile.exponents
    error = _rounding(sizes, grid, dtype)
    while sizes.shape[-1] > 1:
        even = sizes.shape[-1] // 2 * 2
        left, right = slice(0, even, 2), slice(1, even, 2)
        added = plus(sizes[..., left], sizes[..., right])
        carried = plus(error[..., left], error[..., right])
        both = np.minimum(grid[..., left], grid[..., right])
        carried = plus(carried, _rounding(plus(added, carried), both, dtype))
        sizes, error, grid = (
            np.concatenate([new, old[..., even:]], axis=-1)
            for new, old in ((added, sizes), (carried, error), (both, grid))
        )
    return _finished(error[..., 0], profile, dtype)


def _fixed_point(accumulator: FixedPoint, profile: Profile) -> Floats:
    lsb = accumulator.lsb_exponent
    dropped = profile.exponents < lsb
    with np.errstate(over="ignore", invalid="ignore"):
        unit = np.ldexp(1.0, lsb)
        loss = unit / 2 if accumulator.rounding == "nearest_even" else unit
        rest = unit - np.ldexp(1.0, np.minimum(profile.exponents, lsb))
        each = np.where(dropped, np.minimum(loss, rest), 0.0)
        places = accumulator.width - 1  # 2**places - 1 units, or less where float64 does not hold that
        most = np.ldexp(1.0 - 2.0 ** -min(places, 53), places + lsb)
    held = np.ones(profile.sums.shape[:-1], np.bool_)
    error = np.zeros(profile.sums.shape[:-1])
    for n in range(profile.sums.shape[-1]):
        error = plus(error, each[..., n])
        held &= plus(profile.sums[..., n], error) <= most
    significand, exponent = profile.factor
    size = plus(profile.sums[..., -1], error)
    if profile.factor != (1, 0):
        error = up(up(error * up(float(significand))) * 2.0**exponent)
        size = up(up(size * up(float(significand))) * 2.0**exponent)
    grid = np.full(size.shape, lsb + exponent)
    return np.where(held, plus(error, _rounding(size, grid, accumulator.result_dtype)), np.inf)


def _fused(accumulator: Fused, profile: Profile) -> Floats:
    per_step = accumulator.step // accumulator.group
    grid, error = _grid(profile.exponents), np.zeros(profile.sums.shape[:-1])
    before, coarsest = np.zeros(error.shape), np.full(error.shape, NEVER)
    for first in range(0, profile.sums.shape[-1], per_step):
        part = slice(first, first + per_step)
        last = min(first + per_step, profile.sums.shape[-1]) - 1
        carried = np.where(before > 0, _exponent(before, -126), accumulator.zero_exponent)
        largest = np.maximum(
            profile.leading[..., part].max(axis=-1), np.maximum(carried, accumulator.zero_exponent)
        )
        unit = largest - accumulator.fraction_bits
        cut = (profile.exponents[..., part] < unit[..., None]).sum(axis=-1)
        cut = cut + ((before > 0) & (coarsest < unit))
        with np.errstate(over="ignore"):
            error = plus(error, np.ldexp(cut.astype(np.float64), unit))
        size = plus(profile.sums[..., last], error)
        coarsest = grid[..., last]
        ulp = _exponent(size, -126) - accumulator.result_bits
        rest = np.where((size == 0) | (ulp <= coarsest), 0.0, np.ldexp(1.0, ulp))
        error = np.where(size < 2.0**128, plus(error, rest), np.inf)
        before = plus(profile.sums[..., last], error)
    return _finished(error, profile, accumulator.result_dtype)


_BOUNDS: Final[dict[type[Accumulator], Callable[[Any, Profile], Floats]]] = {
    Sequential: _sequential,
    Exact: _exact,
    Pairwise: _pairwise,
    FixedPoint: _fixed_point,
    Fused: _fused,
}


def _of(accumulator: Accumulator) -> Callable[[Any, Profile], Floats]:
    found = _BOUNDS.get(type(accumulator))
    if found is None:
        known = ", ".join(kind.__name__ for kind in _BOUNDS)
        raise TypeError(f"error bounds are known for {known}, not for {accumulator!r}")

    def bound(accumulator: Any, profile: Profile) -> Floats:
        if not profile.sums.shape[-1]:
            return np.zeros(profile.sums.shape[:-1])
        return found(accumulator, profile)

    return bound
