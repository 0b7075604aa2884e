# SPDX-License-Identifier: Apache-2.0
"""Room 7: terms -> one number. Accumulators as frozen objects, each defining its result bit for bit.

Every accumulator is written once, as the steps it takes; calling it runs them and keeps the last state,
`mxfp.trace` keeps them all. Contract §5.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .blocks import check_choice
from .dot import INT64_BITS, OVERFLOWS, Overflow, Terms
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
from .integers import MOST_BITS, WidthError, check_width, saturate, wrap

ShiftRounding = Literal["floor", "toward_zero", "nearest_even"]
"""What happens to the bits that a right shift drops."""
SHIFT_ROUNDINGS: Final[tuple[ShiftRounding, ...]] = ("floor", "toward_zero", "nearest_even")

INT64_EXACT: Final = 53
"""Bits of an integer that float64 also holds, which is how its length is found."""
_FLOAT32: Final = np.dtype(np.float32)
_NAN_TENSOR_CORE: Final = np.uint32(0x7FFFFFFF)


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
        """As `parse` reads it."""
        if self == BLACKWELL_MXFP4:
            return "blackwell"
        parts = [str(getattr(self, f.name)) for f in fields(self)]
        return ":".join([_NAMES[type(self)], *parts])


def _lifted(terms: Terms) -> Terms:
    """The same terms with at least one leading axis."""
    if terms.sums.ndim > 1:
        return terms
    return replace(
        terms,
        sums=terms.sums[None],
        exponents=terms.exponents[None],
        specials=None if terms.specials is None else terms.specials[None],
        live=None if terms.live is None else terms.live[None],
    )


def _lowered(step: Step) -> Step:
    """A step of lifted terms without its leading axis."""

    def lower(x: Any) -> Any:
        if isinstance(x, Fixed):
            return Fixed(lower(x.integers), lower(x.exponent))
        return x.reshape(x.shape[1:]) if isinstance(x, np.ndarray) and x.ndim else x

    return Step(step.label, lower(step.added), lower(step.state))


def _joined(state: AnyFloats, special: Floats | None) -> AnyFloats:
    """State plus a NaN or infinite term, by IEEE 754; the state itself where the term is finite (0.0)."""
    if special is None:
        return state
    with np.errstate(invalid="ignore"):
        return np.where(special != 0, state.astype(np.float64) + special, state).astype(state.dtype)


def _special(terms: Terms, k: int) -> Floats | None:
    return None if terms.specials is None else terms.specials[..., k]


def _dtype_name(dtype: Any) -> str:
    return float_dtype(dtype).name


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


def _set_integer(accumulator: Accumulator, name: str, low: int, high: int) -> None:
    """Check a parameter, and keep it as a Python integer: numpy's would wrap."""
    value = getattr(accumulator, name)
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or not low <= value <= high:
        raise ValueError(f"{name} is an integer, {low} … {high}, got {value!r}")
    object.__setattr__(accumulator, name, int(value))


class _FloatAccumulator(Accumulator):
    """One that has a float dtype for a parameter."""

    dtype: Any

    def __post_init__(self) -> None:
        """Check the dtype, and keep its name so that equal accumulators compare equal."""
        object.__setattr__(self, "dtype", _dtype_name(self.dtype))

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

    What a loop of fused multiply-adds gives. Overflow goes to infinity, subnormals are kept.

    >>> import mxfp
    >>> big, one = mxfp.quantize([4096.0] + [0.0] * 31 + [1.0]), mxfp.quantize([1.0] + [0.0] * 31 + [1.0])
    >>> terms = mxfp.block_dots(big, one)
    >>> float(Sequential("float16")(terms)), float(Sequential("float32")(terms))
    (4096.0, 4097.0)
    """

    dtype: Any = "float32"

    def _steps(self, terms: Terms) -> Iterator[Step]:
        """Add the terms in order."""
        dtype = self.result_dtype
        state: AnyFloats = np.zeros(terms.sums.shape[:-1], dtype)
        for k in range(len(terms)):
            state = _joined(_add(state, terms, k, dtype), _special(terms, k))
            yield Step(f"block {k}", Fixed(terms.sums[..., k], terms.exponents[..., k]), state)


@dataclass(frozen=True)
class Pairwise(_FloatAccumulator):
    """Terms rounded to dtype, then added in a balanced binary tree, rounding at each node.

    An odd one out is carried up unchanged.
    """

    dtype: Any = "float32"

    def _steps(self, terms: Terms) -> Iterator[Step]:
        """Round the leaves, then halve their number until one is left."""
        if not len(terms):
            return
        dtype = self.result_dtype
        level = _joined(round_integers(terms.sums, terms.exponents, dtype), terms.specials)
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


@dataclass(frozen=True)
class FixedPoint(Accumulator):
    """A two's-complement register of `width` bits whose LSB is 2**lsb_exponent.

    Each term is shifted to the LSB with `rounding` ("floor", what hardware that drops bits does,
    "toward_zero" or "nearest_even") and added; after each addition `overflow` is "raise" (a WidthError
    naming the block), "wrap" or "saturate". The result is the register's value, rounded once to dtype:
    float64 is exact up to 54 bits.

    >>> import mxfp
    >>> q = mxfp.quantize([0.5, 6.0])
    >>> float(FixedPoint(24, 0)(mxfp.block_dots(q, q)))
    36.0
    """

    width: int
    lsb_exponent: int
    overflow: Overflow = "raise"
    rounding: ShiftRounding = "floor"
    dtype: Any = "float64"

    def __post_init__(self) -> None:
        """Check every parameter."""
        object.__setattr__(self, "width", check_width(self.width))
        _set_integer(self, "lsb_exponent", -MOST_BITS, MOST_BITS)
        check_choice(self.overflow, OVERFLOWS, "overflow")
        check_choice(self.rounding, SHIFT_ROUNDINGS, "rounding")
        object.__setattr__(self, "dtype", _dtype_name(self.dtype))

    @property
    def result_dtype(self) -> np.dtype[Any]:
        """The dtype of the result; the register itself is exact."""
        return float_dtype(self.dtype)

    def _steps(self, terms: Terms) -> Iterator[Step]:
        """Shift, add, and see what the register does with it."""
        if not len(terms):
            return
        shifts = terms.exponents - self.lsb_exponent
        left = int(np.max(shifts, where=terms.sums != 0, initial=0))
        small = max(terms.bits + max(left, 0), self.width) + 2 <= INT64_BITS
        kind: Any = np.int64 if small else object
        register = np.zeros(terms.sums.shape[:-1], kind)
        finite = True if terms.specials is None else ~(terms.specials != 0).any(axis=-1)
        for k in range(len(terms)):
            sums = np.where(finite, terms.sums[..., k], 0).astype(kind)
            aligned = _shift(sums, shifts[..., k], self.rounding)
            register = self._held(register + aligned, k)
            yield Step(f"block {k}", Fixed(aligned, self.lsb_exponent), Fixed(register, self.lsb_exponent))

    def _held(self, total: NDArray[Any], block: int) -> NDArray[Any]:
        limit = 1 << (self.width - 1)
        outside = np.asarray((total < -limit) | (total >= limit), np.bool_)
        if not outside.any():
            return total
        if self.overflow == "raise":
            first = tuple(int(i) for i in np.argwhere(outside)[0])
            what = f"the accumulator would hold {{}} in units of 2**{self.lsb_exponent}"
            raise WidthError(what, "result", block, first, int(total[first]), self.width)
        held = wrap(total, self.width) if self.overflow == "wrap" else saturate(total, self.width)
        return np.asarray(held, total.dtype)

    def place_specials(self, result: AnyFloats, terms: Terms) -> AnyFloats:
        """A register has no infinities: whatever is not finite makes the result NaN."""
        if terms.specials is None:
            return result
        return canonical_nan(result, (terms.specials != 0).any(axis=-1))


def _shift(integers: NDArray[Any], shift: Integers, rounding: ShiftRounding) -> NDArray[Any]:
    """int64 or object integers * 2**shift, rounded to integers."""
    is_object = integers.dtype == object
    left = np.where(integers != 0, np.maximum(shift, 0), 0)
    right = np.maximum(-shift, 0)
    if not is_object:  # nearest_even has room for one more bit, and its integers are small
        right = np.minimum(right, 62 if rounding == "nearest_even" else 63)
    left, right = left.astype(integers.dtype), right.astype(integers.dtype)
    shifted = integers << left
    if rounding == "toward_zero":
        return np.asarray(np.where(shifted < 0, -(-shifted >> right), shifted >> right), integers.dtype)
    floor = shifted >> right
    if rounding == "nearest_even":
        rest = shifted - (floor << right)
        twice = rest + rest
        unit = np.ones_like(right) << right
        up = (twice > unit) | ((twice == unit) & (floor % 2 == 1))
        floor = floor + np.where(right > 0, up, False).astype(integers.dtype)
    return np.asarray(floor, integers.dtype)


@dataclass(frozen=True)
class Fused(Accumulator):
    """Tensor-core style: align to the largest exponent, truncate, add exactly, truncate to float32.

    Per step of `step` products: exact sums of `group` products each, and the running result c. A sum
    keeps the exponent of its scales, unnormalised (`zero_exponent` if its products are all zero); c takes
    its own, never below -126 (`zero_exponent` for zero). All are truncated toward zero `fraction_bits`
    below the largest exponent and added; the sum is truncated toward zero to float32. Never -0; overflow
    is infinity; NaN is 0x7FFFFFFF. Parameters and source of each instance stand beside it.

    >>> import mxfp
    >>> q = mxfp.quantize([6.0] * 64)
    >>> float(mxfp.matmul(q, q, accumulator=mxfp.BLACKWELL_MXFP4))
    2304.0
    """

    fraction_bits: int
    group: int
    step: int
    zero_exponent: int

    def __post_init__(self) -> None:
        """Check every parameter."""
        _set_integer(self, "fraction_bits", 0, MOST_BITS)
        _set_integer(self, "group", 1, MOST_BITS)
        _set_integer(self, "step", 1, 1 << 20)
        _set_integer(self, "zero_exponent", -MOST_BITS, MOST_BITS)
        if self.step % self.group:
            raise ValueError(f"group divides step, got group {self.group}, step {self.step}")

    @property
    def result_dtype(self) -> np.dtype[Any]:
        """float32."""
        return _FLOAT32

    @property
    def terms_of(self) -> int | None:
        """Products per term."""
        return self.group

    def _steps(self, terms: Terms) -> Iterator[Step]:
        """One alignment, exact addition and truncation per step."""
        per_step = self.step // self.group
        state: AnyFloats = np.zeros(terms.sums.shape[:-1], np.float32)
        live = terms.sums != 0 if terms.live is None else terms.live
        scale_exponents = terms.scale_exponents
        for first in range(0, len(terms), per_step):
            part = slice(first, first + per_step)
            own, mantissa = self._split(state)
            alive = live[..., part]
            scale = np.where(alive, scale_exponents[..., part], self.zero_exponent)
            largest = np.maximum(scale.max(axis=-1), own)
            if scale.shape[-1] < per_step:  # the groups past the end are all zero
                largest = np.maximum(largest, self.zero_exponent)
            unit = (largest - self.fraction_bits)[..., None]
            # Bits of the largest aligned sum, and of c (one before its point); then those of adding them.
            widest = self.fraction_bits + max(terms.bits + terms.unit, 2) + per_step.bit_length()
            small = widest <= INT64_EXACT and terms.bits <= INT64_BITS
            kind: Any = np.int64 if small else object
            sums = terms.sums[..., part].astype(kind)
            aligned = _shift(sums, np.where(alive, terms.exponents[..., part] - unit, 0), "toward_zero")
            carried = _shift(mantissa.astype(kind), own - 23 - unit[..., 0], "toward_zero")
            added = np.concatenate([aligned, carried[..., None]], axis=-1)
            before, state = state, self._truncated(added.sum(axis=-1), unit[..., 0], state)
            if terms.specials is not None:  # one addition, in which nothing finite has overflowed yet
                with np.errstate(invalid="ignore"):
                    special = terms.specials[..., part].sum(axis=-1)
                state = np.where(special != 0, _joined(before, special), state)
            yield Step(f"products {first * self.group}", Fixed(added, unit), state)

    def _split(self, c: AnyFloats) -> tuple[Integers, Integers]:
        """float32 -> its exponent as the adder takes it, and its significand with 23 fraction bits."""
        wide = np.where(np.isfinite(c), c, 0).astype(np.float64)
        exponent = np.maximum(np.frexp(wide)[1].astype(np.int64) - 1, -126)
        mantissa = np.ldexp(wide, 23 - exponent).astype(np.int64)
        return np.where(wide == 0, self.zero_exponent, exponent), mantissa

    @staticmethod
    def _truncated(total: NDArray[Any], unit: Integers, before: AnyFloats) -> AnyFloats:
        """Integers * 2**unit -> float32 toward zero; an infinite or NaN `before` stays."""
        magnitude = np.abs(total)
        if total.dtype == object:
            length = np.frompyfunc(int.bit_length, 1, 1)(magnitude).astype(np.int64)
        else:
            length = np.frexp(magnitude.astype(np.float64))[1].astype(np.int64)
        drop = np.maximum(np.maximum(length - 24, -149 - unit), 0)
        kept = _shift(magnitude, -drop, "floor")
        value = np.ldexp(kept.astype(np.float64), unit + drop)
        value = np.where(value >= 2.0**128, np.inf, value)
        signed = np.where(np.asarray(total < 0, np.bool_) & (value != 0), -value, value).astype(np.float32)
        return np.where(np.isfinite(before), signed, before)

    def place_specials(self, result: AnyFloats, terms: Terms) -> AnyFloats:
        """As IEEE, with the tensor core's NaN."""
        result = super().place_specials(result, terms)
        return np.where(np.isnan(result), _NAN_TENSOR_CORE.view(np.float32), result)


BLACKWELL_MXFP4: Final = Fused(fraction_bits=35, group=16, step=64, zero_exponent=-139)
"""mxf4 of Blackwell (block 32, ue8m0): MMA-Sim, arXiv:2511.10909. huweim/emulation_sys reports 25 bits."""

_NAMES: Final[dict[type[Accumulator], str]] = {
    Exact: "exact",
    Sequential: "sequential",
    Pairwise: "pairwise",
    FixedPoint: "fixed",
    Fused: "fused",
}
_EXAMPLES: Final = (
    "exact, exact:float16, sequential:bfloat16, pairwise:float32, fixed:24:-12:saturate, "
    "fused:35:16:64:-139, blackwell"
)


def parse(text: str) -> Accumulator:
    """The accumulator that a short text names, its parameters in order after colons.

    Raises ValueError with examples for a text that names none.

    >>> parse("sequential:float16"), str(parse("fixed:24:-12:saturate"))
    (Sequential(dtype='float16'), 'fixed:24:-12:saturate:floor:float64')
    >>> parse("blackwell") == BLACKWELL_MXFP4
    True
    """
    if not isinstance(text, str):
        raise TypeError(f"an accumulator is named by a text such as {_EXAMPLES}; got {text!r}")
    name, *parameters = text.strip().lower().split(":")
    if name == "blackwell" and not parameters:
        return BLACKWELL_MXFP4
    kind = {short: kind for kind, short in _NAMES.items()}.get(name)
    names = [f.name for f in fields(kind)] if kind else []
    required = 0 if kind is None else sum(f.default is MISSING for f in fields(kind))
    try:
        if kind is None:
            raise ValueError("no such accumulator")
        if not required <= len(parameters) <= len(names):
            raise ValueError(f"{name} takes {required} to {len(names)} parameters, {':'.join(names)}")
        typed = [int(p) if p.lstrip("+-").isdigit() else p for p in parameters]
        return kind(*typed)
    except (TypeError, ValueError) as error:
        raise ValueError(f"accumulator {text!r}: {error}; for example {_EXAMPLES}") from None
