# SPDX-License-Identifier: Apache-2.0
"""Side room off 7: the accumulators that add integers, a fixed-point register and the tensor cores'.

Every term is shifted to a common unit, where bits are dropped, and added exactly. Contract §5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from .accumulate import Accumulator, Fixed, Step, joined, set_integer
from .blocks import check_choice
from .dot import INT64_BITS, OVERFLOWS, Overflow, Terms
from .floats import AnyFloats, canonical_nan, float_dtype
from .formats import Integers
from .integers import MOST_BITS, WidthError, check_bits, saturate, wrap

ShiftRounding = Literal["floor", "toward_zero", "nearest_even"]
"""What happens to the bits that a right shift drops."""
SHIFT_ROUNDINGS: Final[tuple[ShiftRounding, ...]] = ("floor", "toward_zero", "nearest_even")

Exponents = Literal["scales", "products"]
"""Whose exponent a sum of products is aligned by."""
EXPONENTS: Final[tuple[Exponents, ...]] = ("scales", "products")

INT64_EXACT: Final = 53
"""Bits of an integer that float64 also holds, which is how its length is found."""
FLOAT32: Final = np.dtype(np.float32)
NAN_TENSOR_CORE: Final = np.uint32(0x7FFFFFFF)


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

    short: ClassVar[str] = "fixed"
    width: int
    lsb_exponent: int
    overflow: Overflow = "raise"
    rounding: ShiftRounding = "floor"
    dtype: Any = "float64"

    def __post_init__(self) -> None:
        """Check every parameter."""
        object.__setattr__(self, "width", check_bits(self.width))
        set_integer(self, "lsb_exponent", -MOST_BITS, MOST_BITS)
        check_choice(self.overflow, OVERFLOWS, "overflow")
        check_choice(self.rounding, SHIFT_ROUNDINGS, "rounding")
        object.__setattr__(self, "dtype", float_dtype(self.dtype).name)

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
            aligned = shift_integers(sums, shifts[..., k], self.rounding)
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


def shift_integers(integers: NDArray[Any], shift: Integers, rounding: ShiftRounding) -> NDArray[Any]:
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
    """Tensor-core style: align to the largest exponent, truncate, add exactly, truncate.

    Per step of `step` products: exact sums of `group` products each, and the running result c. With
    exponents="scales", a sum has the exponent of its scales, unnormalised; with "products", where each
    product is its own sum (group=1), the exponents of both elements beside it, unnormalised too. Sums
    whose products are all zero have `zero_exponent`. c has its own, never below -126 (`zero_exponent` for
    zero). All are truncated toward zero `fraction_bits` below the largest exponent and added; the sum is
    truncated toward zero to a float32 of `result_bits` fraction bits. Never -0; overflow is infinity; NaN
    is 0x7FFFFFFF. Parameters and source of each instance stand beside it. Contract §5.

    >>> import mxfp
    >>> q = mxfp.quantize([6.0] * 64)
    >>> float(mxfp.matmul(q, q, accumulator=mxfp.BLACKWELL_MXFP4))
    2304.0
    """

    short: ClassVar[str] = "fused"
    fraction_bits: int
    group: int
    step: int
    zero_exponent: int
    exponents: Exponents = "scales"
    result_bits: int = 23

    def __post_init__(self) -> None:
        """Check every parameter."""
        set_integer(self, "fraction_bits", 0, MOST_BITS)
        set_integer(self, "group", 1, MOST_BITS)
        set_integer(self, "step", 1, 1 << 20)
        set_integer(self, "zero_exponent", -MOST_BITS, MOST_BITS)
        check_choice(self.exponents, EXPONENTS, "exponents")
        set_integer(self, "result_bits", 0, 23)
        if self.step % self.group:
            raise ValueError(f"group divides step, got group {self.group}, step {self.step}")
        if self.exponents == "products" and self.group != 1:
            raise ValueError(f"exponents 'products' are of single ones, group 1; got group {self.group}")

    @property
    def result_dtype(self) -> np.dtype[Any]:
        """float32."""
        return FLOAT32

    @property
    def terms_of(self) -> int | None:
        """Products per term."""
        return self.group

    def _steps(self, terms: Terms) -> Iterator[Step]:
        """One alignment, exact addition and truncation per step."""
        if not len(terms):
            return
        per_step = self.step // self.group
        state: AnyFloats = np.zeros(terms.sums.shape[:-1], np.float32)
        live = terms.sums != 0 if terms.live is None else terms.live
        exponents, sum_bits = self._alignment(terms)
        for first in range(0, len(terms), per_step):
            part = slice(first, first + per_step)
            own, mantissa = self._split(state)
            alive = live[..., part]
            aligned_by = np.where(alive, exponents[..., part], self.zero_exponent)
            largest = np.maximum(aligned_by.max(axis=-1), own)
            if aligned_by.shape[-1] < per_step:  # the groups past the end are all zero
                largest = np.maximum(largest, self.zero_exponent)
            unit = (largest - self.fraction_bits)[..., None]
            # Bits of the largest aligned sum, and of c (one before its point); then those of adding them.
            widest = self.fraction_bits + max(sum_bits, 2) + per_step.bit_length()
            small = widest <= INT64_EXACT and terms.bits <= INT64_BITS
            kind: Any = np.int64 if small else object
            sums = terms.sums[..., part].astype(kind)
            aligned = shift_integers(
                sums, np.where(alive, terms.exponents[..., part] - unit, 0), "toward_zero"
            )
            carried = shift_integers(mantissa.astype(kind), own - 23 - unit[..., 0], "toward_zero")
            added = np.concatenate([aligned, carried[..., None]], axis=-1)
            before, state = state, self._truncated(added.sum(axis=-1), unit[..., 0], state)
            if terms.specials is not None:  # one addition, in which nothing finite has overflowed yet
                with np.errstate(invalid="ignore"):
                    special = terms.specials[..., part].sum(axis=-1)
                state = np.where(special != 0, joined(before, special), state)
            yield Step(f"products {first * self.group}", Fixed(added, unit), state)

    def _alignment(self, terms: Terms) -> tuple[Integers, int]:
        """The exponent of each sum, and signed bits of a sum before the point that it sets."""
        if self.exponents == "scales":
            return terms.scale_exponents, terms.bits + terms.unit
        if terms.leading is None:
            raise ValueError(f"{self} takes terms of single products, as block_dots(..., group=1) makes them")
        return terms.leading, 5  # two significands and two of scales, each below 2

    def _split(self, c: AnyFloats) -> tuple[Integers, Integers]:
        """float32 -> its exponent as the adder takes it, and its significand with 23 fraction bits."""
        wide = np.where(np.isfinite(c), c, 0).astype(np.float64)
        exponent = np.maximum(np.frexp(wide)[1].astype(np.int64) - 1, -126)
        mantissa = np.ldexp(wide, 23 - exponent).astype(np.int64)
        return np.where(wide == 0, self.zero_exponent, exponent), mantissa

    def _truncated(self, total: NDArray[Any], unit: Integers, before: AnyFloats) -> AnyFloats:
        """Integers * 2**unit -> the result toward zero; an infinite or NaN `before` stays."""
        magnitude = np.abs(total)
        if total.dtype == object:
            length = np.frompyfunc(int.bit_length, 1, 1)(magnitude).astype(np.int64)
        else:
            length = np.frexp(magnitude.astype(np.float64))[1].astype(np.int64)
        lowest = -126 - self.result_bits
        drop = np.maximum(np.maximum(length - 1 - self.result_bits, lowest - unit), 0)
        kept = shift_integers(magnitude, -drop, "floor")
        value = np.ldexp(kept.astype(np.float64), unit + drop)
        value = np.where(value >= 2.0**128, np.inf, value)
        signed = np.where(np.asarray(total < 0, np.bool_) & (value != 0), -value, value).astype(np.float32)
        return np.where(np.isfinite(before), signed, before)

    def __str__(self) -> str:
        """The short text that `mxfp.names.accumulator` reads."""
        return next((name for name, known in TENSOR_CORES.items() if known == self), super().__str__())

    def place_specials(self, result: AnyFloats, terms: Terms) -> AnyFloats:
        """As IEEE, with the tensor core's NaN."""
        result = super().place_specials(result, terms)
        return np.where(np.isnan(result), NAN_TENSOR_CORE.view(np.float32), result)


BLACKWELL_MXFP4: Final = Fused(fraction_bits=35, group=16, step=64, zero_exponent=-139)
"""Blackwell's mxf4 and mxf4nvf4, for MXFP4 and NVFP4: GST-FDPA of MMA-Sim, arXiv:2511.10909."""
BLACKWELL_MXF8F6F4: Final = Fused(25, 1, 32, -133, "products")
"""Blackwell's mxf8f6f4, for any two of MXFP8, MXFP6 and MXFP4: ST-FDPA of MMA-Sim, arXiv:2511.10909.

Where all scales are 1 it is f8f6f4, the instruction without scales, too (T-FDPA).
"""
HOPPER_FP8: Final = Fused(13, 1, 32, -133, "products", 13)
"""Hopper's FP8 (wgmma), whose hardware has no scales: where all of them are 1. T-FDPA of MMA-Sim."""
ADA_FP8: Final = Fused(13, 1, 16, -132, "products", 13)
"""Ada Lovelace's FP8 (mma), whose hardware has no scales: where all of them are 1. T-FDPA of MMA-Sim."""

TENSOR_CORES: Final[dict[str, Fused]] = {
    "blackwell": BLACKWELL_MXFP4,
    "blackwell-mxf8f6f4": BLACKWELL_MXF8F6F4,
    "hopper-fp8": HOPPER_FP8,
    "ada-fp8": ADA_FP8,
}
"""Those of published tensor cores, by their short texts; docs/accumulators.md has the sources."""
