# SPDX-License-Identifier: Apache-2.0
"""What became of each element of one block, in numbers and in a word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from ..blocks import BlockArray, dequantize, quantize
from ..encode import Rounding
from ..floats import real_array, to_float64
from ..formats import BlockFormat, Codes, ElementFormat, Floats, ScaleFormat, ScaleRule
from ..scale import scale_factors
from .style import number, power

Fate = Literal["", "saturated", "to zero", "tie", "not finite"]
FATES: Final[tuple[Fate, ...]] = ("", "tie", "to zero", "saturated", "not finite")
FARTHEST: Final = 1e300
"""No picture reaches farther: its axes have margins, which float64 must hold too."""


@dataclass(frozen=True, eq=False)
class Block:
    """One block before and after: `before` and `after` are exact float64 (n,), `fates` a word for each.

    factor: what elements were divided by. after is NaN where the scale is.
    """

    before: Floats
    after: Floats
    codes: Codes
    fates: tuple[Fate, ...]
    factor: float
    quantized: BlockArray

    @property
    def scale(self) -> str:
        """The scale as text: code, value, and a tensor scale if there is one."""
        q = self.quantized
        text = scale_text(int(q.scales[0]), q.format.scale)
        return text + (f" · tensor scale {number(q.tensor_scale, 4)}" if q.format.tensor_scale else "")

    def count(self, fate: Fate) -> int:
        """How many elements had this fate."""
        return self.fates.count(fate)

    @property
    def squared_error(self) -> float:
        """The sum of squared errors of the finite elements; infinite beyond float64."""
        error = (self.after - self.before)[np.isfinite(self.before)]
        with np.errstate(over="ignore"):
            return float(error @ error)


def block_of(
    values: Any,
    fmt: BlockFormat,
    *,
    rule: ScaleRule | None = None,
    rounding: Rounding = "nearest_even",
    rng: np.random.Generator | None = None,
    tensor_scale: float | None = None,
) -> Block:
    """Reals (n,), n from 1 to the block -> the Block.

    Raises ValueError for more than a block, and for values too large for a picture.

    >>> import mxfp
    >>> made = block_of([0.1, -2.3, 7.0, 2.5, 1.0], mxfp.MXFP4)
    >>> made.fates, made.scale
    (('to zero', '', 'saturated', 'tie', ''), 'code 127 = 2⁰')
    """
    q = quantize(
        values,
        fmt,
        scale_rule=rule,
        rounding=rounding,
        rng=rng,
        tensor_scale=tensor_scale,
        engine="reference",
    )
    if q.ndim != 1 or not 1 <= q.shape[0] <= fmt.block:
        raise ValueError(f"one block of {fmt.name} is 1 … {fmt.block} values in a row, got shape {q.shape}")
    before = to_float64(real_array(values))
    if np.abs(before[np.isfinite(before)]).max(initial=0.0) > FARTHEST:
        raise ValueError(f"a picture reaches to magnitudes of {FARTHEST:g}, and values go beyond")
    after = dequantize(q, dtype=np.float64, engine="reference")
    factor = float(scale_factors(q.scales, fmt.scale, q.tensor_scale)[0])
    return Block(before, after, q.codes, fates(before, after, factor, fmt.element), factor, q)


def fates(before: Floats, after: Floats, factor: float, element: ElementFormat) -> tuple[Fate, ...]:
    """Elements before and after, and what they were divided by -> what became of each, in a word.

    saturated: beyond the largest value. to zero: it was not zero, and is now. tie: half way between two
    values. Compared with products, which are exact, not with quotients.
    """
    middles = (element.magnitudes[:-1] + element.magnitudes[1:]) / 2 * factor

    def fate(x: float, y: float) -> Fate:
        if not (np.isfinite(x) and np.isfinite(y)):
            return "not finite"
        if abs(x) > element.max * factor:
            return "saturated"
        if x != 0 and y == 0:
            return "to zero"
        return "tie" if abs(x) in middles else ""

    return tuple(fate(x, y) for x, y in zip(before.tolist(), after.tolist(), strict=True))


def scale_text(code: int, scale: ScaleFormat) -> str:
    """A scale code and its value.

    >>> from mxfp import E8M0, UE4M3
    >>> scale_text(126, E8M0), scale_text(57, UE4M3), scale_text(255, E8M0)
    ('code 126 = 2⁻¹', 'code 57 = 1.125', 'code 255 = NaN')
    """
    if not scale.finite[code]:
        return f"code {code} = NaN"
    if scale.power_of_two:
        return f"code {code} = {power(int(scale.exponents[code]))}"
    return f"code {code} = {number(float(scale.values[code]))}"


def bits_text(code: int, element: ElementFormat) -> str:
    """A code in binary, its fields apart; two's complement has no fields.

    >>> from mxfp import E2M1, INT8
    >>> bits_text(13, E2M1), bits_text(129, INT8)
    ('1 10 1', '10000001')
    """
    digits = f"{code:0{element.bits}b}"
    if element.twos_complement:
        return digits
    cut = 1 + element.exponent_bits
    return f"{digits[0]} {digits[1:cut]} {digits[cut:]}".strip()
