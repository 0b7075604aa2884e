# SPDX-License-Identifier: Apache-2.0
"""Room 1: the numbers themselves. A format is its table.

Every element and scale format of eight bits or fewer is a table from code to value, derived once from
the fields that the OCP Microscaling Formats (MX) v1.0 specification gives in §5.3 and §5.4. Every
later room looks values up; none asks for a format by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, Final, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint8]
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ScaleRule = Literal["floor", "ceil", "rceil", "even", "search", "nearest"]
"""How a block's largest magnitude becomes a scale code (contract §2)."""

POWER_OF_TWO_RULES: Final[tuple[ScaleRule, ...]] = ("floor", "ceil", "rceil", "even", "search")
"""The rules of scales without mantissa bits (E8M0)."""
SIGNIFICAND_RULES: Final[tuple[ScaleRule, ...]] = ("nearest", "rceil")
"""The rules of scales with mantissa bits (UE4M3)."""


class Specials(Enum):
    """Which codes of an element format are not numbers."""

    NONE = "none"
    """Every code is a number: E2M1, E2M3, E3M2, INT8."""
    NAN_AT_TOP = "nan at the top"
    """E4M3: only S.1111.111 is NaN; there is no infinity."""
    IEEE = "ieee"
    """E5M2: an all-ones exponent is infinity (mantissa 0) or NaN."""


_T = TypeVar("_T", bound=np.generic)


def _frozen(array: NDArray[_T]) -> NDArray[_T]:
    array.flags.writeable = False
    return array


def _exponent(value: float) -> int:
    """floor(log2 value), exact: read from the exponent field."""
    return int(np.frexp(value)[1]) - 1


@dataclass(frozen=True)
class ElementFormat:
    """A signed element format of at most eight bits, described by its fields (OCP MX §5.3).

    `values`, `integers`, `finite` and the rest are tables indexed by code, derived from the fields.
    INT8 is the same kind of object: its magnitudes are those of a float with one exponent bit, six
    mantissa bits and bias 1, and only its negative codes are written as two's complement.

    >>> E2M1.values[:8].tolist()
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    >>> E2M1.integers[:8].tolist(), E2M1.lsb_exponent
    ([0, 1, 2, 3, 4, 6, 8, 12], -1)
    >>> INT8.max, E4M3.max, E5M2.max
    (1.984375, 448.0, 57344.0)
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    specials: Specials = Specials.NONE
    twos_complement: bool = False

    def __post_init__(self) -> None:
        """Refuse fields that do not make a table of at most 256 codes."""
        numbers = (self.exponent_bits, self.mantissa_bits, self.bias)
        if not all(isinstance(n, int) and not isinstance(n, bool) for n in numbers):
            raise TypeError(f"{self.name}: bits and bias of an element format are integers, got {numbers}")
        if not (self.exponent_bits >= 1 and self.mantissa_bits >= 0 and self.bits <= 8):
            raise ValueError(
                f"{self.name}: an element format has 1 or more exponent bits, 0 or more mantissa bits and "
                f"at most 8 bits in all, got {self.exponent_bits} + {self.mantissa_bits} + sign"
            )
        if (1 << self.exponent_bits) - 1 + self.mantissa_bits > 62:
            raise ValueError(
                f"{self.name}: {self.exponent_bits} exponent bits span more than the 62 bits that integers "
                "in LSB units may take here"
            )

    @property
    def bits(self) -> int:
        """Bits of one code."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def code_count(self) -> int:
        """Number of codes, 2**bits."""
        return 1 << self.bits

    @property
    def lsb_exponent(self) -> int:
        """Every finite value is an integer times 2**lsb_exponent."""
        return 1 - self.bias - self.mantissa_bits

    @cached_property
    def _magnitude_code(self) -> Integers:
        """(code_count,) int64: the code of each code's magnitude; INT8's -2 has none and keeps 128."""
        code = np.arange(self.code_count)
        negative = code >> (self.bits - 1) == 1
        if self.twos_complement:
            return np.where(negative, self.code_count - code, code)
        return code & (self.code_count // 2 - 1)

    @cached_property
    def negative(self) -> Bools:
        """(code_count,) bool: True where the sign bit is set, -0 included."""
        return _frozen(np.arange(self.code_count) >> (self.bits - 1) == 1)

    @cached_property
    def integers(self) -> Integers:
        """(code_count,) int64: each code in units of 2**lsb_exponent; 0 where it is not finite."""
        code = self._magnitude_code
        mantissa = code & ((1 << self.mantissa_bits) - 1)
        exponent = code >> self.mantissa_bits
        normal = exponent > 0
        significand = mantissa + (normal.astype(np.int64) << self.mantissa_bits)
        magnitude = significand << np.where(normal, exponent - 1, 0)
        signed = np.where(self.negative, -magnitude, magnitude)
        return _frozen(np.where(self.finite, signed, 0))

    @cached_property
    def finite(self) -> Bools:
        """(code_count,) bool: False where the code is NaN or infinite."""
        code = self._magnitude_code
        if self.specials is Specials.NONE:
            return _frozen(np.ones(self.code_count, np.bool_))
        if self.specials is Specials.NAN_AT_TOP:
            return _frozen(code != self.code_count // 2 - 1)
        return _frozen(code >> self.mantissa_bits != (1 << self.exponent_bits) - 1)

    @cached_property
    def exponents(self) -> Integers:
        """(code_count,) int64: floor(log2) of the magnitude; below the smallest normal, that of it."""
        field = np.maximum(self._magnitude_code >> self.mantissa_bits, 1)
        return _frozen(field - self.bias)

    @cached_property
    def values(self) -> Floats:
        """(code_count,) float64: the value of each code, exact; -0.0, infinities and NaN where they are."""
        magnitude = np.ldexp(np.abs(self.integers).astype(np.float64), self.lsb_exponent)
        if self.specials is Specials.IEEE:
            infinite = ~self.finite & (self._magnitude_code & ((1 << self.mantissa_bits) - 1) == 0)
            magnitude = np.where(infinite, np.inf, np.where(self.finite, magnitude, np.nan))
        else:
            magnitude = np.where(self.finite, magnitude, np.nan)
        return _frozen(np.where(self.negative, -magnitude, magnitude))

    @cached_property
    def magnitudes(self) -> Floats:
        """(n,) float64: the finite values from 0 to max in order; the index is the code."""
        half = slice(0, self.code_count // 2)
        return _frozen(self.values[half][self.finite[half]])

    @cached_property
    def negated(self) -> Codes:
        """(n,) uint8: the code of minus each magnitude. INT8 has no -0: its zero stays 0."""
        code = np.arange(self.magnitudes.size)
        if self.twos_complement:
            return _frozen((-code & (self.code_count - 1)).astype(np.uint8))
        return _frozen((code | self.code_count // 2).astype(np.uint8))

    @property
    def bits_of_integer(self) -> int:
        """Signed bits of an element as an integer (E2M1: 5, INT8: 8)."""
        low, high = int(self.integers.min()), int(self.integers.max())
        return 1 + max(high.bit_length(), (-low - 1).bit_length())

    @property
    def max(self) -> float:
        """The largest finite value that encoding produces."""
        return float(self.magnitudes[-1])

    @property
    def emax(self) -> int:
        """floor(log2 max): the exponent that §6.3 subtracts from a block's."""
        return _exponent(self.max)

    @property
    def smallest_normal(self) -> float:
        """The smallest positive value with a full significand."""
        return float(np.ldexp(1.0, 1 - self.bias))

    @property
    def smallest_subnormal(self) -> float:
        """The smallest positive value, one LSB."""
        return float(np.ldexp(1.0, self.lsb_exponent))

    @cached_property
    def nan_code(self) -> int | None:
        """The code that encoding gives NaN (the quiet NaN), or None where the format has none."""
        if self.specials is Specials.NONE:
            return None
        if self.specials is Specials.NAN_AT_TOP:
            return self.code_count // 2 - 1
        infinity = ((1 << self.exponent_bits) - 1) << self.mantissa_bits
        return infinity | 1 << (self.mantissa_bits - 1)

    def __repr__(self) -> str:
        """The name: a format is a constant."""
        return self.name


@dataclass(frozen=True)
class ScaleFormat:
    """An unsigned scale format: a significand and an exponent for every code (OCP MX §5.4).

    E8M0 is (1, c - 127); UE4M3, the scale of NVFP4, is E4M3 without its sign, (0…15, e). One formula,
    significand * 2**exponent, serves both. Codes from `code_count` to 255 do not exist.

    >>> int(E8M0.significands[127]), int(E8M0.exponents[127]), E8M0.nan_code
    (1, 0, 255)
    >>> float(UE4M3.values[126]), UE4M3.code_count
    (448.0, 128)
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    has_zero: bool

    @property
    def bits(self) -> int:
        """Bits that carry information; a scale is stored in one byte."""
        return self.exponent_bits + self.mantissa_bits

    @property
    def code_count(self) -> int:
        """Number of codes, 2**bits."""
        return 1 << self.bits

    @property
    def power_of_two(self) -> bool:
        """Whether every code but NaN is a power of two: no significands, and no zero."""
        return not (self.mantissa_bits or self.has_zero)

    @property
    def nan_code(self) -> int:
        """The only code that is not a number, all ones."""
        return self.code_count - 1

    @property
    def _fields(self) -> tuple[Integers, Integers]:
        code = np.arange(self.code_count)
        return code >> self.mantissa_bits, code & ((1 << self.mantissa_bits) - 1)

    @cached_property
    def significands(self) -> Integers:
        """(code_count,) int64; 0 for NaN."""
        exponent, mantissa = self._fields
        implicit = (exponent > 0) | (not self.has_zero)
        significand = mantissa + (implicit.astype(np.int64) << self.mantissa_bits)
        significand[self.nan_code] = 0
        return _frozen(significand)

    @cached_property
    def exponents(self) -> Integers:
        """(code_count,) int64: value = significand * 2**exponent."""
        exponent, _ = self._fields
        biased = np.maximum(exponent, 1) if self.has_zero else exponent
        return _frozen(biased - self.bias - self.mantissa_bits)

    @cached_property
    def finite(self) -> Bools:
        """(code_count,) bool: False at the NaN code."""
        return _frozen(np.arange(self.code_count) != self.nan_code)

    @cached_property
    def values(self) -> Floats:
        """(code_count,) float64: the value of each code, exact; NaN at the NaN code."""
        exact = np.ldexp(self.significands.astype(np.float64), self.exponents)
        return _frozen(np.where(self.finite, exact, np.nan))

    @property
    def max(self) -> float:
        """The largest scale."""
        return float(np.nanmax(self.values))

    @property
    def smallest(self) -> float:
        """The smallest positive scale."""
        return float(self.values[int(self.has_zero)])

    def __repr__(self) -> str:
        """The name: a format is a constant."""
        return self.name


@dataclass(frozen=True)
class BlockFormat:
    """Elements of one format that share a scale in blocks (OCP MX §5.2, NVFP4).

    `scale_rules` are the rules that `quantize` knows for it, the default first. With `tensor_scale` the
    whole tensor has one more scale, a positive float32.

    >>> MXFP4.block, MXFP4.bits_per_element
    (32, 4.25)
    >>> NVFP4.block, NVFP4.bits_per_element
    (16, 4.5)
    """

    name: str
    element: ElementFormat
    scale: ScaleFormat
    block: int
    scale_rules: tuple[ScaleRule, ...]
    tensor_scale: bool = False

    def __post_init__(self) -> None:
        """Refuse parts that do not go together."""
        if not (isinstance(self.element, ElementFormat) and isinstance(self.scale, ScaleFormat)):
            raise TypeError(
                f"{self.name}: a block format has an ElementFormat and a ScaleFormat, got {self.element!r} "
                f"and {self.scale!r}"
            )
        if isinstance(self.block, bool) or not isinstance(self.block, int) or self.block < 1:
            raise ValueError(f"{self.name}: block is a number of elements, 1 or more, got {self.block!r}")
        if self.tensor_scale and not self.scale.mantissa_bits:
            raise ValueError(
                f"{self.name}: a tensor scale goes with block scales that have mantissa bits (UE4M3), "
                f"not {self.scale.name}"
            )
        known = SIGNIFICAND_RULES if self.scale.mantissa_bits else POWER_OF_TWO_RULES
        if not self.scale_rules or not set(self.scale_rules) <= set(known):
            raise ValueError(
                f"{self.name}: scale_rules for {self.scale.name} are one or more of {known}, "
                f"got {self.scale_rules!r}"
            )

    @property
    def bits_per_element(self) -> float:
        """Storage bits of one element in a full block, its share of the scale included."""
        return self.element.bits + 8 / self.block

    def __repr__(self) -> str:
        """The name: a format is a constant."""
        return self.name


E2M1: Final = ElementFormat("E2M1", 2, 1, bias=1)
E2M3: Final = ElementFormat("E2M3", 2, 3, bias=1)
E3M2: Final = ElementFormat("E3M2", 3, 2, bias=3)
E4M3: Final = ElementFormat("E4M3", 4, 3, bias=7, specials=Specials.NAN_AT_TOP)
E5M2: Final = ElementFormat("E5M2", 5, 2, bias=15, specials=Specials.IEEE)
INT8: Final = ElementFormat("INT8", 1, 6, bias=1, twos_complement=True)

E8M0: Final = ScaleFormat("E8M0", 8, 0, bias=127, has_zero=False)
UE4M3: Final = ScaleFormat("UE4M3", 4, 3, bias=7, has_zero=True)

MXFP4: Final = BlockFormat("MXFP4", E2M1, E8M0, 32, POWER_OF_TWO_RULES)
MXFP6_E2M3: Final = BlockFormat("MXFP6_E2M3", E2M3, E8M0, 32, POWER_OF_TWO_RULES)
MXFP6_E3M2: Final = BlockFormat("MXFP6_E3M2", E3M2, E8M0, 32, POWER_OF_TWO_RULES)
MXFP8_E4M3: Final = BlockFormat("MXFP8_E4M3", E4M3, E8M0, 32, POWER_OF_TWO_RULES)
MXFP8_E5M2: Final = BlockFormat("MXFP8_E5M2", E5M2, E8M0, 32, POWER_OF_TWO_RULES)
MXINT8: Final = BlockFormat("MXINT8", INT8, E8M0, 32, POWER_OF_TWO_RULES)
NVFP4: Final = BlockFormat("NVFP4", E2M1, UE4M3, 16, SIGNIFICAND_RULES, tensor_scale=True)

ELEMENT_FORMATS: Final = {f.name: f for f in (E2M1, E2M3, E3M2, E4M3, E5M2, INT8)}
SCALE_FORMATS: Final = {f.name: f for f in (E8M0, UE4M3)}
BLOCK_FORMATS: Final = {
    f.name: f for f in (MXFP4, MXFP6_E2M3, MXFP6_E3M2, MXFP8_E4M3, MXFP8_E5M2, MXINT8, NVFP4)
}


def element_of(fmt: Any) -> ElementFormat:
    """The element format of `fmt`: an ElementFormat itself, or a BlockFormat's.

    Raises TypeError for anything else, names included.

    >>> element_of(MXFP4)
    E2M1
    """
    if isinstance(fmt, BlockFormat):
        return fmt.element
    if isinstance(fmt, ElementFormat):
        return fmt
    raise TypeError(
        f"expected an element or block format such as mxfp.E2M1 or mxfp.MXFP4, got {fmt!r} "
        f"({type(fmt).__name__})"
    )


def check_codes(codes: Any, count: int, what: str) -> Codes:
    """Integers in 0 … count-1 -> uint8 of the same shape (a view where they are uint8 already).

    Raises TypeError for other dtypes and ValueError naming the first index that is out of range.
    """
    if isinstance(codes, np.ma.MaskedArray):
        raise TypeError(f"{what} are a masked array; fill it first, for example with .filled(0)")
    try:
        given = np.asarray(codes)
    except ValueError:
        raise ValueError(f"{what} are not an array: their rows differ in length") from None
    if given.size == 0 and given.dtype.kind == "f":
        given = given.astype(np.uint8)
    if given.dtype.kind not in "iu":
        raise TypeError(f"{what} are integers 0 … {count - 1}, got dtype {given.dtype}")
    if given.size and (int(given.max()) >= count or int(given.min()) < 0):
        first = tuple(int(i) for i in np.argwhere((given < 0) | (given >= count))[0])
        raise ValueError(f"{what} are 0 … {count - 1}, got {int(given[first])} at index {first}")
    return given.astype(np.uint8, copy=False)
