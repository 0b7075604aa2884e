# SPDX-License-Identifier: Apache-2.0
"""What no vector of a unit can reach, with the reason: bounds that follow from formats and accumulator alone.

Three facts carry every reason. Each term, and so each result, is a multiple of the smallest term; no result
is larger than all terms together; and the sum of one block has only so many significant bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import log2
from typing import Any, Final

import ml_dtypes
import numpy as np

from ...accumulate import Accumulator
from ...floats import NAN_BITS
from ...formats import ElementFormat
from ...integers import sum_bounds
from ...registers import NAN_TENSOR_CORE, FixedPoint, Fused
from ..unit import Unit

UNLIMITED: Final = 1 << 40
"""Blocks of a result that is never finished."""


@dataclass(frozen=True)
class Precision:
    """A float format: bits of its significand, the exponents of its smallest and of its largest value."""

    bits: int
    lowest: int
    highest: int

    @property
    def largest(self) -> float:
        """The largest value."""
        return float(np.ldexp(2.0 - 2.0 ** (1 - self.bits), self.highest))

    @property
    def smallest_normal(self) -> int:
        """The exponent of the smallest normal value."""
        return self.lowest + self.bits - 1


def precision_of(accumulator: Accumulator) -> Precision:
    """The float format of an accumulator's results.

    >>> import mxfp
    >>> precision_of(mxfp.Sequential("float32"))
    Precision(bits=24, lowest=-149, highest=127)
    """
    if isinstance(accumulator, Fused):
        return Precision(accumulator.result_bits + 1, -126 - accumulator.result_bits, 127)
    info: Any = ml_dtypes.finfo(accumulator.result_dtype)  # type: ignore[no-untyped-call]
    return Precision(info.nmant + 1, info.minexp - info.nmant, info.maxexp - 1)


@dataclass(frozen=True)
class Limits:
    """The facts about a unit that its bins follow from. accumulator: None where a unit only sums products.

    scale_exponents: the lowest and the highest sum of both scales' exponents. term_exponent: every term is a
    multiple of two to this. term_log: log2 of the largest term. sum_width: significant bits of a block's sum,
    scales' significands included. additions: how many steps make one result.
    """

    a: ElementFormat
    b: ElementFormat
    lanes: int
    sum_bits: int
    accumulator: Accumulator | None = None
    running: bool = False
    blocks: int = 1
    additions: int = 1
    scale_exponents: tuple[int, int] = (0, 0)
    term_exponent: int = 0
    term_log: float = 0.0
    sum_width: int = 0
    nan_bits: int = 0

    @property
    def pairs_by_lane(self) -> bool:
        """Whether pairs of codes are counted lane by lane."""
        return self.a.code_count * self.b.code_count <= 256 and self.lanes <= 256

    @property
    def infinite_elements(self) -> bool:
        """Whether a term can be infinite."""
        return bool(np.isinf(self.a.values).any() or np.isinf(self.b.values).any())

    @property
    def several_blocks(self) -> bool:
        """Whether a case itself has several blocks."""
        return self.blocks > 1 and not self.running

    @property
    def single(self) -> bool:
        """Whether a result is of one block alone."""
        return self.blocks == 1 and not self.running

    @property
    def largest_log(self) -> float:
        """Log2 of a bound of every sum of terms, roundings included."""
        if self.running:
            return float(UNLIMITED)
        assert self.accumulator is not None
        growth = log2(1 + 2.0 ** -precision_of(self.accumulator).bits)
        return self.term_log + log2(self.blocks) + self.additions * growth + 1e-6

    def why_not_minus_zero(self) -> tuple[Any, str]:
        """The kind of a result of -0, and why it is illegal if it is."""
        if isinstance(self.accumulator, (Fused, FixedPoint)):
            return "illegal", f"{self.accumulator} never gives -0"
        assert self.accumulator is not None
        if self.term_exponent >= precision_of(self.accumulator).lowest:
            return "illegal", f"{self._multiple()}, so nothing rounds to zero"
        return "wanted", ""

    def why_not_result(self, magnitude: str) -> str:
        """Why no result has a magnitude of that name (bins.MAGNITUDES); "" where one may."""
        assert self.accumulator is not None
        shape, lsb = precision_of(self.accumulator), self.term_exponent
        fixed = self.accumulator if isinstance(self.accumulator, FixedPoint) else None
        if fixed is not None:  # its register is the term that the result is rounded from
            lsb, bound = fixed.lsb_exponent, float(fixed.lsb_exponent + fixed.width - 1)
            reason = f"the register holds multiples of 2^{lsb} up to 2^{fixed.lsb_exponent + fixed.width - 1}"
        else:
            bound, reason = self.largest_log, self._multiple()
        if magnitude == "infinity":
            if fixed is None and self.infinite_elements:
                return ""
            past = bound < log2(shape.largest)
            return self._bound(bound, reason, fixed) if past else ""
        exact = {
            "smallest subnormal": shape.lowest,
            "subnormal": shape.smallest_normal - 1,
            "largest subnormal": shape.lowest,
            "smallest normal": shape.smallest_normal,
        }
        if magnitude in exact and lsb > exact[magnitude]:
            return reason
        if magnitude == "largest" and bound < log2(shape.largest):
            return self._bound(bound, reason, fixed)
        ones = fixed.width if fixed is not None else self.sum_width if self.single else UNLIMITED
        if magnitude == "largest" and ones < shape.bits:
            return self._narrow(shape.bits, fixed)
        if magnitude == "largest subnormal" and ones < shape.bits - 1:
            return self._narrow(shape.bits - 1, fixed)
        if magnitude == "subnormal" and shape.bits < 4:
            return "the format has too few subnormals"
        return ""

    def why_not_rounding(self, name: str) -> str:
        """Why no step of the accumulator rounds in that way; "" where one may."""
        assert self.accumulator is not None
        shape, lsb = precision_of(self.accumulator), self.term_exponent
        if isinstance(self.accumulator, FixedPoint):
            return self._why_not_in_register(name, self.accumulator)
        if name == "exact":
            return ""
        if name == "overflow":
            bound = self.largest_log
            return self._bound(bound, "", None) if bound < log2(shape.largest) else ""
        if name in ("carry", "overflow by rounding") and isinstance(self.accumulator, Fused):
            return f"{self.accumulator} rounds toward zero"
        if name == "overflow by rounding":
            return self.why_not_result("largest")
        if name == "subnormal, exact":
            return self._multiple() if lsb >= shape.smallest_normal else ""
        below = lsb < shape.lowest
        if name in ("subnormal, rounded", "to zero"):
            return "" if below else self._multiple()
        narrow = self.single and self.sum_width <= shape.bits
        span = self.largest_log - lsb <= shape.bits
        if not below and (narrow or span):
            return f"{self._multiple()} that {shape.bits} bits hold, so every step is exact"
        return ""

    def _why_not_in_register(self, name: str, fixed: FixedPoint) -> str:
        if name.startswith("overflow"):
            if fixed.overflow == "raise":
                return "overflow 'raise' ends in a WidthError, so no vector holds one"
            if not self.running and self.term_log + log2(self.blocks) < fixed.width - 1 + fixed.lsb_exponent:
                return f"all terms together stay below 2^{fixed.width - 1 + fixed.lsb_exponent}"
            return ""
        if name != "exact" and self.term_exponent >= fixed.lsb_exponent:
            return f"{self._multiple()}, a multiple of the register's LSB"
        return ""

    def why_not_meeting(self, name: str) -> str:
        """Why no accumulator meets its addend in that way; "" where one may."""
        if name == "infinity stays":
            return self.why_not_result("infinity")
        if name in ("addend lost", "accumulator lost"):
            if isinstance(self.accumulator, FixedPoint):
                if name == "addend lost":
                    return self.why_not_rounding("below half")
                return (
                    "" if self.accumulator.overflow == "saturate" else "a register that wraps loses nothing"
                )
            return self.why_not_rounding("below half")
        return ""

    def _multiple(self) -> str:
        return f"every result is a multiple of 2^{self.term_exponent}"

    def _narrow(self, bits: int, fixed: FixedPoint | None) -> str:
        of = "the register" if fixed is not None else "the sum of one block"
        width = fixed.width if fixed is not None else self.sum_width
        return f"{of} has {width} significant bits, and this takes {bits}"

    @staticmethod
    def _bound(bound: float, reason: str, fixed: FixedPoint | None) -> str:
        return reason if fixed is not None else f"no sum of terms exceeds 2^{bound:.1f}"


@lru_cache(maxsize=32)
def limits(unit: Unit) -> Limits:
    """The facts about a unit."""
    a, b = unit.sides
    low, high = sum_bounds(a.element, b.element, unit.a.block)
    if not unit.scaled:
        return Limits(a.element, b.element, unit.a.block, unit.sum_bits)
    ends = [(fmt.scale.exponents[fmt.scale.finite], fmt.scale.values) for fmt in (a, b)]
    exponents = tuple(int(sum(getattr(e, end)() for e, _ in ends)) for end in ("min", "max"))
    lsb = a.element.lsb_exponent + b.element.lsb_exponent
    largest = max(-low, high)
    significands = int(a.scale.significands.max()) * int(b.scale.significands.max())
    accumulator = unit.accumulator
    per_case = unit.elements if accumulator.terms_of else unit.blocks
    each = getattr(accumulator, "step", None) or accumulator.terms_of or 1
    additions = UNLIMITED if unit.kind == "running" else max(1, -(-per_case // each))
    dtype = accumulator.result_dtype
    nan = NAN_TENSOR_CORE if isinstance(accumulator, Fused) else NAN_BITS[dtype]
    return Limits(
        a.element,
        b.element,
        unit.a.block,
        unit.sum_bits,
        accumulator,
        unit.kind == "running",
        unit.blocks,
        additions,
        (exponents[0], exponents[1]),
        exponents[0] + lsb,
        log2(largest) + lsb + sum(log2(float(np.nanmax(v))) for _, v in ends),
        (largest * significands).bit_length(),
        int(nan),
    )
