# SPDX-License-Identifier: Apache-2.0
"""An adder of floats and exact terms, and each way in which hardware gets it wrong, as a parameter.

With the defaults it is `Sequential`; the exact sum is rounded to odd first, from which every rounding to
fewer bits follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ...floats import add_to_odd, float_dtype, round_float64
from ...formats import Floats, Integers
from ..digits import floats_of
from .significand import FAR, Mode, rounded

Overflow = Literal["infinity", "largest", "zero", "negated", "positive", "nan", "wraps_8", "wraps_9"]
"""What becomes of a result too large: wraps_8 and wraps_9 keep so many bits of its exponent."""
Subnormal = Literal[
    "kept",
    "zero",
    "signed_zero",
    "smallest_normal",
    "twice",
    "truncated",
    "unshifted",
    "halved",
    "least_zero",
    "least_up",
]
"""What becomes of a result below the normals; least_…: of one below the smallest subnormal."""
Inputs = Literal["kept", "zero", "hidden_bit", "halved", "nan_number", "infinity_number"]
"""What the accumulator counts as: a subnormal one, or one that is NaN or infinite."""
Cancel = Literal["zero", "negative", "of_term", "of_state", "2^-125", "2^-126", "2^-149", "nan"]
"""What an exact cancellation gives."""

Bits = NDArray[np.uint64]


@dataclass(frozen=True)
class FloatAdder:
    """acc + term in a float dtype.

    dtype: float16, bfloat16 or float32. bits: of the significand that are kept. first: rounded to that many
    bits before, on the grid of the result or without its lower end (`unbounded`). guard: both addends are
    cut that many bits below the last one of the larger; two's complement (`floor`) or magnitude. window:
    bits of the adder, at whose top stand the significand and a sum of `sum_bits`, unnormalised; what is
    shifted out of it is lost, or jammed into its last bit (`sticky`); `zero_moves`: terms of zero shift too.
    shift: what the distance of the "term" or the "state" becomes. kept: only so many bits below the last one
    decide the rounding. sign: of the state alone. carry: whether rounding up carries into the exponent.
    negative_zero: whether a negative result that rounds to zero is −0.
    """

    dtype: str = "float32"
    mode: Mode = "nearest_even"
    bits: int | None = None
    first: int | None = None
    unbounded: bool = False
    guard: int | None = None
    floor: bool = False
    window: int | None = None
    sum_bits: int = 14
    sticky: bool = False
    zero_moves: bool = False
    shift: tuple[Literal["term", "state"], Literal["wraps", "clamped"], int] | None = None
    kept: int | None = None
    overflow: Overflow = "infinity"
    subnormal: Subnormal = "kept"
    inputs: Inputs = "kept"
    cancel: Cancel = "zero"
    sign: Literal["own", "of_state"] = "own"
    carry: bool = True
    negative_zero: bool = True

    @cached_property
    def found(self) -> np.dtype[Any]:
        """The dtype itself."""
        return float_dtype(self.dtype)

    @cached_property
    def _info(self) -> Any:
        return ml_dtypes.finfo(self.found)  # type: ignore[no-untyped-call]

    @property
    def places(self) -> int:
        """Bits of a significand."""
        return int(self._info.nmant) + 1

    @property
    def lowest(self) -> int:
        """The exponent of the smallest normal."""
        return int(self._info.minexp)

    def add(self, bits: Bits, sums: Integers, exponents: Integers, special: Floats | None) -> Bits:
        """Patterns of accumulators, and a term for each (special: 0.0, else NaN or infinite) -> patterns."""
        state = self._input(bits)
        finite = np.isfinite(state)
        held = np.where(finite, state, 0.0)
        term = np.ldexp(sums.astype(np.float64), exponents)
        place = int(self._info.nmant) + 1
        if self.guard is not None:
            top = np.maximum(_exponent(held), _exponent(term))
            unit = np.where(top > FAR, top, 0) - (place - 1) - self.guard
            total = np.ldexp(self._cut(held, unit) + self._cut(term, unit), unit) + 0.0  # no -0
        elif self.window is not None:
            total = self._in_window(held, term, exponents)
        else:
            total = add_to_odd(held, term)
        if self.sign == "of_state":
            total = np.copysign(total, held)
        out = self.encoded(self._rounded(total, place), total)
        if self.cancel != "zero":
            by_sign = self.cancel in ("of_term", "of_state")
            gone = (total == 0) & (by_sign | (held != 0))
            out = np.where(gone, self._cancelled(held, term), out)
        out = np.where(finite, out, bits)
        if special is None or not (special != 0).any():
            return out
        with np.errstate(invalid="ignore"):
            joined = round_float64(np.where(finite, 0.0, state) + special, self.found)
        return np.where(special != 0, self.patterns(joined), out)

    def _input(self, bits: Bits) -> Floats:
        """The accumulators as they are read."""
        state = self.values(bits)
        small = (np.abs(state) < 2.0**self.lowest) & (state != 0)
        if self.inputs == "zero":
            return np.where(small, 0.0, state)
        if self.inputs == "hidden_bit":
            return np.where(small, state + np.copysign(2.0**self.lowest, state), state)
        if self.inputs == "halved":
            return np.where(small, state / 2, state)
        number = float(np.ldexp(1.0, int(self._info.maxexp)))
        if self.inputs == "nan_number":
            return np.where(np.isnan(state), 1.5 * number, state)
        if self.inputs == "infinity_number":
            return np.where(np.isinf(state), np.copysign(number, state), state)
        return state

    def _cut(self, x: Floats, unit: Integers) -> Floats:
        """In units, without what is smaller."""
        scaled = np.ldexp(x, -unit)
        whole = np.floor(scaled) if self.floor else np.trunc(scaled)
        if self.sticky:
            jam = (whole != scaled) & (whole % 2 == 0)
            whole = np.where(jam, whole + np.copysign(1.0, scaled), whole)
        return np.asarray(whole)

    def _in_window(self, held: Floats, term: Floats, exponents: Integers) -> Floats:
        """The sum in an adder of so many bits."""
        wide = self.window or 0
        of_state = np.maximum(_exponent(held), self.lowest) - (wide - 1)
        of_term = exponents - (wide - self.sum_bits)
        distance = of_state - of_term
        moves = (distance < 0) & ((term != 0) | self.zero_moves)
        if self.shift is None:
            unit = np.where(moves, of_term, of_state)
            return self._placed(np.ldexp(self._cut(held, unit) + self._cut(term, unit), unit) + 0.0)  # no -0
        which, how, much = self.shift
        far = np.where(moves, -distance, 0) if which == "state" else np.where(moves, 0, distance)
        far = np.maximum(far, 0)
        less = far - (np.minimum(far, much) if how == "clamped" else far & (1 << much) - 1)
        if which == "state":
            return add_to_odd(np.ldexp(held, less), term)
        return add_to_odd(held, np.ldexp(term, less))

    def _placed(self, total: Floats) -> Floats:
        """A sum below the normals, shifted down in the adder's bits and one more: the same loss again."""
        unit = np.full(total.shape, self.lowest - (self.window or 0))
        return np.where(np.abs(total) < 2.0**self.lowest, np.ldexp(self._cut(total, unit), unit), total)

    def _rounded(self, total: Floats, place: int) -> Floats:
        kept = min(self.bits or place, place)
        if self.kept is not None:
            total = rounded(total, "toward_zero", kept + self.kept, self.lowest)
        if self.first is not None:
            total = rounded(total, "nearest_even", self.first, FAR if self.unbounded else self.lowest)
        if self.subnormal == "twice":
            total = rounded(total, self.mode, kept)
        if self.subnormal == "unshifted":
            return rounded(total, self.mode, kept)
        small = np.abs(total) < 2.0**self.lowest
        if self.subnormal == "halved":
            total = np.where(small, total / 2, total)
        value = rounded(total, self.mode, kept, self.lowest)
        least = 2.0 ** (self.lowest - place + 1)
        if self.subnormal == "least_zero":
            value = np.where(np.abs(total) < least, np.copysign(0.0, total), value)
        elif self.subnormal == "least_up":
            value = np.where(np.abs(total) == least / 2, np.copysign(least, total), value)
        if not self.carry:
            carried = ~small & (np.abs(value) > np.abs(total)) & (_exponent(value) > _exponent(total))
            value = np.where(carried, value / 4, value)
        if self.subnormal == "truncated":
            value = np.where(small, rounded(total, "toward_zero", kept, self.lowest), value)
        return value

    def encoded(self, value: Floats, total: Floats) -> Bits:
        """Values on the dtype's grid -> patterns, what is too large or too small as the adder has it."""
        least = 2.0**self.lowest
        small = (np.abs(value) < least) & (total != 0)
        if self.subnormal == "zero":
            value = np.where(small, 0.0, value)
        elif self.subnormal == "signed_zero":
            value = np.where(small, np.copysign(0.0, total), value)
        elif self.subnormal == "smallest_normal":
            value = np.where(small, np.copysign(least, total), value)
        if not self.negative_zero:
            value = np.where(value == 0, 0.0, value)
        largest = float(self._info.max)
        big = np.abs(value) > largest
        if self.overflow in ("wraps_8", "wraps_9") or self.subnormal == "unshifted":
            return self._packed(value, total)
        with np.errstate(over="ignore"):
            out = self.patterns(round_float64(value, self.found))
        if not big.any() or self.overflow == "infinity":
            return out
        instead = {
            "largest": np.copysign(largest, value),
            "zero": np.zeros_like(value),
            "negated": np.copysign(np.inf, -value),
            "positive": np.full_like(value, np.inf),
            "nan": np.full_like(value, np.nan),
        }[self.overflow]
        return np.where(big, self.patterns(round_float64(instead, self.found)), out)

    def _packed(self, value: Floats, total: Floats) -> Bits:
        """Sign, exponent and fraction put side by side, the exponent in as many bits as there are."""
        places = int(self._info.nmant)
        mantissa, exponent = np.frexp(np.abs(value))
        field = exponent.astype(np.int64) - 1 - self.lowest + 1
        whole = np.ldexp(mantissa, places + 1).astype(np.int64) - (1 << places)
        width = int(self._info.nexp)
        normal = value != 0
        if self.subnormal != "unshifted":
            small = field < 1
            whole = np.where(
                small,
                np.ldexp(np.where(small, np.abs(value), 0), places - self.lowest).astype(np.int64),
                whole,
            )
            field = np.where(small, 0, field)
        largest = (1 << width) - 1
        if self.overflow == "wraps_9":
            lost = _exponent(total) - self.lowest + 1 >= 1 << width  # before it is rounded
            whole = np.where(lost | (field >= largest), 0, whole)
            field = np.where(lost, 0, np.minimum(field, largest))
        elif self.overflow != "wraps_8":
            whole = np.where(field >= largest, 0, whole)
            field = np.minimum(field, largest)
        packed = (field & largest) << places | whole & ((1 << places) - 1)
        packed = np.where(normal, packed, 0)
        negative = np.signbit(value)
        return (packed | negative.astype(np.int64) << (places + width)).astype(np.uint64)

    def _cancelled(self, held: Floats, term: Floats) -> Bits:
        if self.cancel == "negative":
            value = np.full_like(held, -0.0)
        elif self.cancel in ("of_term", "of_state"):
            value = np.copysign(0.0, term if self.cancel == "of_term" else held)
        elif self.cancel == "nan":
            value = np.full_like(held, np.nan)
        else:
            value = np.full_like(held, 2.0 ** int(self.cancel.partition("^")[2]))
        return self.patterns(round_float64(value, self.found))

    def values(self, bits: Bits) -> Floats:
        """Patterns -> float64."""
        return floats_of(bits, self.found)

    def patterns(self, values: NDArray[Any]) -> Bits:
        """Floats of the dtype -> patterns."""
        return np.ascontiguousarray(values).view(f"u{self.found.itemsize}").astype(np.uint64)


def _exponent(x: Floats) -> Integers:
    """floor(log2 |x|); FAR for zero."""
    return np.where(x == 0, FAR, np.frexp(x)[1].astype(np.int64) - 1)
