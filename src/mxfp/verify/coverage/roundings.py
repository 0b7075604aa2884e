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
from ...floats import AnyFloats, round_float64
from ...formats import Bools, Floats
from ...registers import FixedPoint, Fused
from .places import added_exactly, of_integers, parts, places, wide
from .reach import precision_of

Marks = dict[str, dict[str, Bools]]
"""Family -> bin -> (n,): whether each dot product hit it at this step."""
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


def _sequential(accumulator: Sequential, terms: Terms) -> Iterator[tuple[int, int, Marks]]:
    shape = precision_of(accumulator)
    before = np.zeros(terms.sums.shape[:-1], accumulator.result_dtype)
    for k, step in enumerate(accumulator.steps(terms)):
        result = np.asarray(step.state)
        term, rest = wide(terms, k)
        exact, left = added_exactly(before.astype(np.float64), term, rest, shape)
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
    exact, rest = of_integers(state, shape)
    exact = np.where(finite, exact, np.nan)
    result = accumulator.finish(state, terms).astype(np.float64)
    yield 0, len(terms), {"rounding": places(exact, rest, result, shape)}


def _pairwise(accumulator: Pairwise, terms: Terms) -> Iterator[tuple[int, int, Marks]]:
    shape, count = precision_of(accumulator), len(terms)
    level: Any = None
    for step in accumulator.steps(terms):
        after = np.asarray(step.state)
        after = after.reshape(*terms.sums.shape[:-1], -1)
        if level is None:
            exact, rest = wide(terms, slice(None))
            odd, left = added_exactly(exact, np.zeros_like(exact), rest, shape)
            yield 0, count, _any({"rounding": places(odd, left, after.astype(np.float64), shape)})
        else:
            even = level.shape[-1] // 2 * 2
            left_side, right = (level[..., n:even:2].astype(np.float64) for n in (0, 1))
            with np.errstate(invalid="ignore"):
                odd, left = added_exactly(left_side, right, np.zeros_like(right), shape)
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
        value, rest = (np.ldexp(x, -accumulator.lsb_exponent) for x in wide(terms, k))
        value = np.where(finite, value, 0.0)
        magnitude = np.abs(value)
        below = np.floor(magnitude)
        part = magnitude - below + np.where(value < 0, -rest, rest)
        marks: Marks = {"rounding": parts(part, below, finite)}
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
        values, rest = wide(terms, part)
        good = np.isfinite(values).all(axis=-1) & np.isfinite(before)
        addends = np.concatenate([values, before.astype(np.float64)[..., None]], axis=-1)
        kept = np.ldexp(aligned.astype(np.float64), unit)
        cut = kept != addends
        cut[..., :-1] |= rest != 0
        gone = (aligned == 0) & (addends != 0)
        exact, left = of_integers(Fixed(aligned.sum(axis=-1), unit[..., 0]), shape)
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
