# SPDX-License-Identifier: Apache-2.0
"""Room 7: terms -> one number. Accumulators as frozen objects, each defining its result bit for bit.

Here are what they share and the three that add in floats; `registers` has the two that add integers.

Every accumulator is written once, as the steps it takes; calling it runs them and keeps the last state,
`mxfp.trace` keeps them all. Contract §5.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .dot import INT64_BITS, Terms
from .floats import (
    AnyFloats,
    add_to_odd,
    canonical_nan,
    check_subnormals,
    float_dtype,
    round_float64,
    round_integers,
)
from .formats import Floats, Integers
from .integers import MOST_BITS, WidthError


class Fixed(NamedTuple):
    """Exact integers and the exponents of their unit: integers * 2**exponent."""

    integers: NDArray[Any]
    exponent: NDArray[Any] | int


class Step(NamedTuple):
    """One step of an accumulator: what it added, aligned as it added it, and its state afterwards."""

    label: str
    added: Fixed | None
    state: AnyFloats | Fixed


@dataclass(frozen=True)
class Accumulator(ABC):
    """What turns the terms of a dot product into its result.

    Call it with `Terms` (..., n) to get the results (...), of `result_dtype`; n = 0 gives zeros.
    """

    short: ClassVar[str]
    """The name that short texts begin with."""

    @property
    @abstractmethod
    def result_dtype(self) -> np.dtype[Any]:
        """The dtype of the results."""

    @property
    def terms_of(self) -> int | None:
        """Products per term that this accumulator works on; None is a whole block."""
        return None

    @abstractmethod
    def _steps(self, terms: Terms) -> Iterator[Step]:
        """Each step in order, for terms of at least two axes (numpy turns arrays of none into scalars)."""

    def steps(self, terms: Terms) -> Iterator[Step]:
        """Each step in order; the state of the last one, finished, is the result."""
        for step in self._lifted_steps(terms):
            yield step if terms.sums.ndim > 1 else _lowered(step)

    def _lifted_steps(self, terms: Terms) -> Iterator[Step]:
        if not isinstance(terms, Terms):
            raise TypeError(f"an accumulator takes Terms (see mxfp.block_dots), got {type(terms).__name__}")
        if self.terms_of is not None and terms.group not in (None, self.terms_of):
            raise ValueError(
                f"{self} takes terms of {self.terms_of} products, got terms of {terms.group} "
                f"(block_dots(..., group={self.terms_of}) makes them)"
            )
        try:
            yield from self._steps(_lifted(terms))
        except WidthError as error:
            raise error.at(error.index if terms.sums.ndim > 1 else ()) from None

    def __call__(self, terms: Terms) -> AnyFloats:
        """Terms (..., n) -> results (...)."""
        check_subnormals()
        state: AnyFloats | Fixed | None = None
        for step in self._lifted_steps(terms):
            state = step.state
        shape = terms.sums.shape[:-1]
        return self.finish(np.zeros(shape, self.result_dtype) if state is None else state, terms)

    def finish(self, state: AnyFloats | Fixed, terms: Terms) -> AnyFloats:
        """The last state -> the result: tensor scales applied, NaN and infinite terms in their place."""
        shape, terms = terms.sums.shape[:-1], _lifted(terms)
        dtype = self.result_dtype
        significand, exponent = terms.factor
        if isinstance(state, Fixed):
            integers = np.atleast_1d(np.asarray(state.integers))
            if significand != 1:
                integers = integers.astype(object) * significand
            result = round_integers(integers, state.exponent + exponent, dtype)
        else:
            result = np.atleast_1d(np.asarray(state))
            result = result if terms.factor == (1, 0) else _scaled(result, terms.factor, dtype)
        return self.place_specials(result, terms).reshape(shape)

    def place_specials(self, result: AnyFloats, terms: Terms) -> AnyFloats:
        """Results with NaN and infinities as the accumulator gives them; its floats already hold them."""
        return canonical_nan(result, np.isnan(result))

    def __str__(self) -> str:
        """The short text that `mxfp.names.accumulator` reads."""
        parameters = [getattr(self, f.name) for f in fields(self)]
        return ":".join([self.short, *(str(p) for p in parameters if p is not None)])


def set_integer(accumulator: Accumulator, name: str, low: int, high: int) -> None:
    """Check a parameter, and keep it as a Python integer: numpy's would wrap."""
    value = getattr(accumulator, name)
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or not low <= value <= high:
        raise ValueError(f"{name} is an integer, {low} … {high}, got {value!r}")
    object.__setattr__(accumulator, name, int(value))


def _lifted(terms: Terms) -> Terms:
    """The same terms with at least one leading axis."""
    if terms.sums.ndim > 1:
        return terms
    lifted: dict[str, Any] = {}
    for name in ("sums", "exponents", "specials", "live", "leading"):
        array = getattr(terms, name)
        lifted[name] = None if array is None else array[None]
    return replace(terms, **lifted)


def _lowered(step: Step) -> Step:
    """A step of lifted terms without its leading axis."""

    def lower(x: Any) -> Any:
        if isinstance(x, Fixed):
            return Fixed(lower(x.integers), lower(x.exponent))
        return x.reshape(x.shape[1:]) if isinstance(x, np.ndarray) and x.ndim else x

    return Step(step.label, lower(step.added), lower(step.state))


def joined(state: AnyFloats, special: Floats | None) -> AnyFloats:
    """State plus a NaN or infinite term, by IEEE 754; the state itself where the term is finite (0.0)."""
    if special is None:
        return state
    with np.errstate(invalid="ignore"):
        return np.where(special != 0, state.astype(np.float64) + special, state).astype(state.dtype)


def _special(terms: Terms, k: int) -> Floats | None:
    return None if terms.specials is None else terms.specials[..., k]


def _scaled(state: AnyFloats, factor: tuple[int, int], dtype: np.dtype[Any]) -> AnyFloats:
    """Floats * significand * 2**exponent, one rounding to their dtype."""
    wide = state.astype(np.float64)
    finite = np.isfinite(wide)
    integers, exponents = _as_integers(np.where(finite, wide, 0.0))
    product = round_integers(integers.astype(object) * factor[0], exponents + factor[1], dtype)
    product = np.where(wide == 0, state, product).astype(dtype)
    return np.where(finite, product, state).astype(dtype)


def _as_integers(x: Floats) -> tuple[Integers, Integers]:
    """Finite float64 -> 53-bit integers and exponents, x = integers * 2**exponents."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(mantissa, 53).astype(np.int64), exponent.astype(np.int64) - 53


def _exact_float64(terms: Terms, k: int) -> Floats:
    return np.ldexp(terms.sums[..., k].astype(np.float64), terms.exponents[..., k])


def _add(state: AnyFloats, terms: Terms, k: int, dtype: np.dtype[Any]) -> AnyFloats:
    """State + term k, exactly, then one rounding to dtype."""
    wide = state.astype(np.float64)
    if terms.bits <= 54:
        term = _exact_float64(terms, k)
        if dtype == np.float64:
            with np.errstate(over="ignore"):
                return np.asarray(wide + term)
        return round_float64(add_to_odd(wide, term), dtype)
    finite = np.isfinite(wide)
    integers, exponents = _as_integers(np.where(finite, wide, 0.0))
    unit = np.minimum(exponents, terms.exponents[..., k])
    total = (integers.astype(object) << (exponents - unit).astype(object)) + (
        terms.sums[..., k].astype(object) << (terms.exponents[..., k] - unit).astype(object)
    )
    return np.where(finite, round_integers(np.asarray(total, object), unit, dtype), state).astype(dtype)


class _FloatAccumulator(Accumulator):
    """One that has a float dtype for a parameter."""

    dtype: Any

    def __post_init__(self) -> None:
        """Check the dtype, and keep its name so that equal accumulators compare equal."""
        object.__setattr__(self, "dtype", float_dtype(self.dtype).name)

    @property
    def result_dtype(self) -> np.dtype[Any]:
        """The dtype that it rounds to."""
        return float_dtype(self.dtype)


@dataclass(frozen=True)
class Exact(_FloatAccumulator):
    """The exact sum of all terms, rounded once to dtype, nearest even.

    >>> import mxfp
    >>> q = mxfp.quantize([6.0, 0.5])
    >>> float(Exact("float32")(mxfp.block_dots(q, q)))
    36.25
    """

    short: ClassVar[str] = "exact"
    dtype: Any = "float32"

    def _steps(self, terms: Terms) -> Iterator[Step]:
        """Add each term to a register as wide as it takes."""
        if not len(terms):
            return
        nonzero = np.asarray(terms.sums != 0, np.bool_)
        highest = int(np.max(terms.exponents, where=nonzero, initial=-(1 << 20)))
        lowest = min(int(np.min(terms.exponents, where=nonzero, initial=1 << 20)), highest)
        spread = highest - lowest
        kind: Any = np.int64 if terms.bits + spread + len(terms).bit_length() <= INT64_BITS else object
        total = np.zeros(terms.sums.shape[:-1], kind)
        for k in range(len(terms)):
            sums = terms.sums[..., k].astype(kind)
            shift = np.where(sums != 0, terms.exponents[..., k] - lowest, 0).astype(kind)
            total = total + (sums << shift)
            yield Step(f"block {k}", Fixed(terms.sums[..., k], terms.exponents[..., k]), Fixed(total, lowest))

    def place_specials(self, result: AnyFloats, terms: Terms) -> AnyFloats:
        """A sum that holds NaN or infinities is what IEEE 754 makes of those alone."""
        if terms.specials is None:
            return result
        with np.errstate(invalid="ignore"):
            special = terms.specials.sum(axis=-1)
        return super().place_specials(np.where(special != 0, special, result).astype(result.dtype), terms)


@dataclass(frozen=True)
class Sequential(_FloatAccumulator):
    """acc = round(acc + term) in block order: one rounding per addition of the exact term.

    What a loop of fused multiply-adds gives. Overflow goes to infinity, subnormals are kept. group: products
    per term, a divisor of the block, as of dot-product units that are narrower than one; None is the block.

    >>> import mxfp
    >>> big, one = mxfp.quantize([4096.0] + [0.0] * 31 + [1.0]), mxfp.quantize([1.0] + [0.0] * 31 + [1.0])
    >>> terms = mxfp.block_dots(big, one)
    >>> float(Sequential("float16")(terms)), float(Sequential("float32")(terms))
    (4096.0, 4097.0)
    """

    short: ClassVar[str] = "sequential"
    dtype: Any = "float32"
    group: int | None = None

    def __post_init__(self) -> None:
        """Check both parameters."""
        super().__post_init__()
        if self.group is not None:
            set_integer(self, "group", 1, MOST_BITS)

    @property
    def terms_of(self) -> int | None:
        """Products per term."""
        return self.group

    def _steps(self, terms: Terms) -> Iterator[Step]:
        """Add the terms in order."""
        dtype = self.result_dtype
        state: AnyFloats = np.zeros(terms.sums.shape[:-1], dtype)
        for k in range(len(terms)):
            state = joined(_add(state, terms, k, dtype), _special(terms, k))
            yield Step(f"block {k}", Fixed(terms.sums[..., k], terms.exponents[..., k]), state)


@dataclass(frozen=True)
class Pairwise(_FloatAccumulator):
    """Terms rounded to dtype, then added in a balanced binary tree, rounding at each node.

    An odd one out is carried up unchanged.
    """

    short: ClassVar[str] = "pairwise"
    dtype: Any = "float32"

    def _steps(self, terms: Terms) -> Iterator[Step]:
        """Round the leaves, then halve their number until one is left."""
        if not len(terms):
            return
        dtype = self.result_dtype
        level = joined(round_integers(terms.sums, terms.exponents, dtype), terms.specials)
        yield Step("leaves", Fixed(terms.sums, terms.exponents), self._root(level))
        while level.shape[-1] > 1:
            even = level.shape[-1] // 2 * 2
            wide = level.astype(np.float64)
            left, right = wide[..., 0:even:2], wide[..., 1:even:2]
            if dtype == np.float64:
                with np.errstate(over="ignore", invalid="ignore"):
                    added = left + right
            else:
                added = round_float64(add_to_odd(left, right), dtype)
            level = np.concatenate([added, level[..., even:]], axis=-1)
            yield Step(f"{level.shape[-1]} left", None, self._root(level))

    @staticmethod
    def _root(level: AnyFloats) -> AnyFloats:
        """The result once a single node is left; until then the whole level."""
        return level[..., 0] if level.shape[-1] == 1 else level
