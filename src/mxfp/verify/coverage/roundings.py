# SPDX-License-Identifier: Apache-2.0
"""What each step of an accumulator did: how it rounded, how its addends met, what alignment cut.

All of it is read off the steps that the accumulator itself takes (`Accumulator.steps`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...accumulate import Exact, Fixed, Pairwise, Sequential, Step
from ...dot import Terms
from ...floats import AnyFloats, add_to_odd, round_float64
from ...formats import Bools, Floats
from ...registers import FixedPoint, Fused
from .bin_classes import TRACE
from .reach import Precision, precision_of

Marks = dict[str, dict[str, Bools]]
"""Family -> bin -> (n,): whether each dot product hit it at this step."""
FLOAT64_BITS: Final = 53
DEEP: Final = 2.0**-8
"""What is left after a deep cancellation, at most, as a part of the accumulator."""


def marks_of_steps(accumulator: Any, terms: Terms) -> Iterator[tuple[int, int, Marks]]:
    """Terms (n, m) -> for each step, the first and the last + 1 of the terms that it took, and its marks.

    Accumulators of one's own have no steps to read: nothing.
    """
    if isinstance(accumulator, Sequential):
        yield from _sequential(accumulator, terms)
    elif isinstance(accumulator, Exact):
        yield from _exact(accumulator, terms)
    elif isinstance(accumulator, Pairwise):
        yield from _pairwise(accumulator, terms)
    elif isinstance(accumulator, FixedPoint):
        yield from _fixed(accumulator, terms)
    elif isinstance(accumulator, Fused):
        yield from _fused(accumulator, terms)


# --- where an exact value lies


def places(exact: Floats, rest: Floats, result: Floats, shape: Precision) -> dict[str, Bools]:
    """Exact values -> how rounding them to a float format goes.

    The value is exact + rest: of formats below float64, `exact` is rounded to odd and rest is 0; of float64
    it is the nearest, and rest what that left. result: what came out, for what overflowed.
    """
    magnitude = np.abs(exact)
    finite = np.isfinite(exact)
    magnitude = np.where(finite, magnitude, 0.0)
    exponent = np.maximum(np.frexp(magnitude)[1].astype(np.int64) - shape.bits, shape.lowest)
    scaled = np.ldexp(magnitude, -exponent)
    below = np.floor(scaled)
    part = scaled - below
    if shape.bits == FLOAT64_BITS:
        part = np.ldexp(np.where(exact < 0, -rest, rest), -exponent)
        below = np.where(part < 0, below - 1, below)
        part = np.where(part < 0, part + 1, part)
    over = finite & (magnitude > shape.largest)
    just = over & (np.ldexp(below, exponent) <= shape.largest)
    within = finite & (~over | just)
    found = _parts(part, below, within)
    inexact = within & (part > 0)
    small = finite & (magnitude < 2.0**shape.smallest_normal) & (magnitude > 0)
    up = inexact & (np.abs(result) > np.ldexp(below, exponent))
    mantissa = np.frexp(np.where(np.isfinite(result), result, 0.0))[0]
    found["carry"] = up & (np.abs(mantissa) == 0.5) & (below >= 2)
    found["overflow"] = over & ~just
    found["overflow by rounding"] = just & np.isinf(result)
    found["subnormal, exact"] = small & (part == 0)
    found["subnormal, rounded"] = small & (part > 0)
    found["to zero"] = small & (result == 0)
    return found


def _parts(part: Floats, below: Floats, where: Bools) -> dict[str, Bools]:
    """The part of a unit that lies above `below` -> bins.PLACES."""
    odd = np.asarray(below % 2 == 1, np.bool_)
    return {
        "exact": where & (part == 0),
        "below half": where & (part > 0) & (part < 0.5),
        "tie, even below": where & (part == 0.5) & ~odd,
        "tie, odd below": where & (part == 0.5) & odd,
        "above half": where & (part > 0.5),
        "a trace below": where & (part > 0) & (part < TRACE),
        "half and a trace": where & (part > 0.5) & (part < 0.5 + TRACE),
    }


_LEFT: Final = np.frompyfunc(lambda integer: float(integer - int(float(integer))), 1, 1)


def _wide(terms: Terms, k: int | slice) -> tuple[Floats, Floats]:
    """Terms -> float64 and what is left of them, both exact; NaN and infinite terms are NaN."""
    sums, exponents = terms.sums[..., k], terms.exponents[..., k]
    high = sums.astype(np.float64)
    low = np.zeros_like(high)
    if terms.bits > FLOAT64_BITS:
        low = np.asarray(_LEFT(sums.astype(object)), np.float64)
    if terms.specials is not None:
        high = np.where(terms.specials[..., k] != 0, np.nan, high)
    return np.ldexp(high, exponents), np.ldexp(low, exponents)


def _added(left: Floats, right: Floats, rest: Floats, shape: Precision) -> tuple[Floats, Floats]:
    """Three numbers -> the sum as `places` takes it."""
    with np.errstate(invalid="ignore", over="ignore"):
        if shape.bits < FLOAT64_BITS:
            if rest.any():  # the smallest first: two additions, each to odd, keep what a later rounding needs
                right = add_to_odd(right, rest)
            return add_to_odd(left, right), np.zeros_like(left)
        total = left + right
        virtual = total - left
        error = (left - (total - virtual)) + (right - virtual)
        again = total + (error + rest)
        return again, (total - again) + (error + rest)


def _meetings(before: AnyFloats, term: Floats, result: AnyFloats, alone: AnyFloats) -> dict[str, Bools]:
    """How an accumulator and its addend met (bins.MEETINGS)."""
    b, r = before.astype(np.float64), result.astype(np.float64)
    both = np.isfinite(b) & np.isfinite(term) & (b != 0) & (term != 0)
    finite = both & np.isfinite(r)
    return {
        "equal and opposite": both & (b == -term),
        "cancels deeply": finite & ((b < 0) != (term < 0)) & (r != 0) & (np.abs(r) <= DEEP * np.abs(b)),
        "addend lost": finite & (r == b),
        "accumulator lost": finite & (r == alone.astype(np.float64)),
        "infinity stays": np.isinf(b) & (r == b),
        "NaN stays": np.isnan(b) & np.isnan(r),
    }


# --- the accumulators


def _sequential(accumulator: Sequential, terms: Terms) -> Iterator[tuple[int, int, Marks]]:
    shape = precision_of(accumulator)
    before = np.zeros(terms.sums.shape[:-1], accumulator.result_dtype)
    for k, step in enumerate(accumulator.steps(terms)):
        result = np.asarray(step.state)
        term, rest = _wide(terms, k)
        exact, left = _added(before.astype(np.float64), term, rest, shape)
        alone = round_float64(term, accumulator.result_dtype)
        marks = {
            "rounding": places(exact, left, result.astype(np.float64), shape),
            "accumulation": _meetings(before, term, result, alone),
        }
        yield k, k + 1, marks
        before = result


def _exact(accumulator: Exact, terms: Terms) -> Iterator[tuple[int, int, Marks]]:
    shape = precision_of(accumulator)
    state: Any = None
    for step in accumulator.steps(terms):
        state = step.state
    if state is None:
        return
    finite = True if terms.specials is None else ~(terms.specials != 0).any(axis=-1)
    exact, rest = _of_integers(state, shape)
    exact = np.where(finite, exact, np.nan)
    result = accumulator.finish(state, terms).astype(np.float64)
    yield 0, len(terms), {"rounding": places(exact, rest, result, shape)}


def _of_integers(state: Fixed, shape: Precision) -> tuple[Floats, Floats]:
    """Exact integers * 2**exponent -> float64 as `places` takes it."""
    integers = np.asarray(state.integers)
    if integers.dtype != object and (np.abs(integers) < 1 << FLOAT64_BITS).all():
        exact = np.ldexp(integers.astype(np.float64), state.exponent)
        return exact, np.zeros_like(exact)

    def convert(integer: int, exponent: int) -> tuple[float, float]:
        shift = max(abs(integer).bit_length() - FLOAT64_BITS, 0)
        kept, rest = abs(integer) >> shift, abs(integer) & ((1 << shift) - 1)
        sign = -1.0 if integer < 0 else 1.0
        if shape.bits < FLOAT64_BITS:
            return sign * _ldexp(kept | (rest != 0), exponent + shift), 0.0
        if 2 * rest > 1 << shift:
            kept, rest = kept + 1, rest - (1 << shift)
        return sign * _ldexp(kept, exponent + shift), sign * _ldexp(rest, exponent)

    high, low = np.frompyfunc(convert, 2, 2)(
        integers.astype(object), np.asarray(state.exponent).astype(object)
    )
    return np.asarray(high, np.float64), np.asarray(low, np.float64)


def _ldexp(integer: int, exponent: int) -> float:
    with np.errstate(over="ignore", under="ignore"):
        return float(np.ldexp(float(integer), exponent))


def _pairwise(accumulator: Pairwise, terms: Terms) -> Iterator[tuple[int, int, Marks]]:
    shape, count = precision_of(accumulator), len(terms)
    level: Any = None
    for step in accumulator.steps(terms):
        after = np.asarray(step.state)
        after = after.reshape(*terms.sums.shape[:-1], -1)
        if level is None:
            exact, rest = _wide(terms, slice(None))
            odd, left = _added(exact, np.zeros_like(exact), rest, shape)
            yield 0, count, _any({"rounding": places(odd, left, after.astype(np.float64), shape)})
        else:
            even = level.shape[-1] // 2 * 2
            left_side, right = (level[..., n:even:2].astype(np.float64) for n in (0, 1))
            with np.errstate(invalid="ignore"):
                odd, left = _added(left_side, right, np.zeros_like(right), shape)
            result = after[..., : even // 2]
            marks = {
                "rounding": places(odd, left, result.astype(np.float64), shape),
                "accumulation": _meetings(level[..., 0:even:2], right, result, right),
            }
            yield 0, count, _any(marks)
        level = after


def _any(marks: Marks) -> Marks:
    """Marks of several nodes -> of their dot product."""
    return {
        family: {name: np.asarray(mark.any(axis=-1), np.bool_) for name, mark in found.items()}
        for family, found in marks.items()
    }


def _fixed(accumulator: FixedPoint, terms: Terms) -> Iterator[tuple[int, int, Marks]]:
    before: NDArray[Any] = np.zeros(terms.sums.shape[:-1], np.int64)
    finite = np.ones(before.shape, np.bool_)
    for k, step in enumerate(accumulator.steps(terms)):
        added, register = _integers(step)
        if terms.specials is not None:
            finite = finite & (terms.specials[..., k] == 0)
        value, rest = (np.ldexp(x, -accumulator.lsb_exponent) for x in _wide(terms, k))
        value = np.where(finite, value, 0.0)
        magnitude = np.abs(value)
        below = np.floor(magnitude)
        part = magnitude - below + np.where(value < 0, -rest, rest)
        marks: Marks = {"rounding": _parts(part, below, finite)}
        total = before + added
        marks["rounding"]["overflow up"] = finite & np.asarray(total > register, np.bool_)
        marks["rounding"]["overflow down"] = finite & np.asarray(total < register, np.bool_)
        there = finite & np.asarray((before != 0) & (value != 0), np.bool_)
        left = np.asarray(np.abs(register), np.float64) <= DEEP * np.asarray(np.abs(before), np.float64)
        opposite = np.asarray((before < 0) != (value < 0), np.bool_)
        marks["accumulation"] = {
            "equal and opposite": there & np.asarray(before == -added, np.bool_),
            "cancels deeply": there & opposite & np.asarray(register != 0, np.bool_) & left,
            "addend lost": there & np.asarray(added == 0, np.bool_),
            "accumulator lost": there & np.asarray(register == added, np.bool_),
        }
        yield k, k + 1, marks
        before = register


def _integers(step: Step) -> tuple[NDArray[Any], NDArray[Any]]:
    assert isinstance(step.added, Fixed)
    assert isinstance(step.state, Fixed)
    return np.asarray(step.added.integers), np.asarray(step.state.integers)


def _fused(accumulator: Fused, terms: Terms) -> Iterator[tuple[int, int, Marks]]:
    shape, size = precision_of(accumulator), accumulator.step // accumulator.group
    before = np.zeros(terms.sums.shape[:-1], np.float32)
    for n, step in enumerate(accumulator.steps(terms)):
        result = np.asarray(step.state)
        part = slice(n * size, min((n + 1) * size, len(terms)))
        assert isinstance(step.added, Fixed)
        unit = np.asarray(step.added.exponent)
        aligned = np.asarray(step.added.integers)
        values, rest = _wide(terms, part)
        good = np.isfinite(values).all(axis=-1) & np.isfinite(before)
        addends = np.concatenate([values, before.astype(np.float64)[..., None]], axis=-1)
        kept = np.ldexp(aligned.astype(np.float64), unit)
        cut = kept != addends
        cut[..., :-1] |= rest != 0
        gone = (aligned == 0) & (addends != 0)
        exact, left = _of_integers(Fixed(aligned.sum(axis=-1), unit[..., 0]), shape)
        exact = np.where(good, exact, np.nan)
        alone = np.ldexp(aligned[..., :-1].sum(axis=-1).astype(np.float64), unit[..., 0])
        largest = unit[..., 0] + accumulator.fraction_bits
        own = np.frexp(np.where(good, before, 0).astype(np.float64))[1].astype(np.int64) - 1
        holds = good & (before != 0) & (np.maximum(own, -126) == largest)
        marks = {
            "rounding": places(exact, left, result.astype(np.float64), shape),
            "accumulation": _meetings(before, np.where(good, alone, np.nan), result, alone),
            "alignment": {
                "nothing cut": good & ~cut.any(axis=-1),
                "addend cut": good & (cut & ~gone)[..., :-1].any(axis=-1),
                "addend gone": good & gone[..., :-1].any(axis=-1),
                "accumulator cut": good & (cut & ~gone)[..., -1],
                "accumulator gone": good & gone[..., -1],
                "accumulator is largest": holds,
                "addend is largest": good & ~holds & (values != 0).any(axis=-1),
            },
        }
        yield part.start, part.stop, marks
        before = result
