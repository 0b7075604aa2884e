# SPDX-License-Identifier: Apache-2.0
"""Lesson 2: thirty-two numbers share one scale."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..blocks import BlockArray, dequantize, quantize
from ..draw.example import A
from ..draw.fates import Block, bits_text, block_of, fates, scale_text
from ..draw.style import power
from ..encode import Rounding
from ..formats import BLOCK_FORMATS, MXFP4, BlockFormat, Floats, ScaleRule
from ..scale import scale_factors, step_up
from .presets import Preset, Presets
from .questions import Question
from .tables import Table, shown

FORMATS: Final = {f.name: f for f in BLOCK_FORMATS.values()}


def draw_seed(rounding: Rounding) -> np.random.Generator | None:
    """What stochastic rounding draws from: always the same, so that a page does not change by itself."""
    return np.random.default_rng(0) if rounding == "stochastic" else None


def with_first(x: Floats, first: float | None) -> Floats:
    """The numbers with another first one; None leaves it."""
    return x if first is None else np.concatenate([[first], x[1:]])


def made(x: Floats, fmt: BlockFormat, rule: ScaleRule | None, rounding: Rounding) -> Block:
    """Numbers (n,), n at most the block -> the block before and after."""
    return block_of(x, fmt, rule=rule, rounding=rounding, rng=draw_seed(rounding))


def part_of(x: Floats, q: BlockArray, element: int) -> Block:
    """The block of q that an element lies in, before and after; x, which q was made from, may be shorter."""
    first = element // q.format.block * q.format.block
    scale = q.scales[first // q.format.block :][:1]
    codes = q.codes[first : first + q.format.block]
    before = np.zeros(codes.size)
    given = x[first : first + codes.size]
    before[: given.size] = given
    one = BlockArray(codes, scale, q.format, tensor_scale=q.tensor_scale)
    after = dequantize(one, dtype=np.float64, engine="reference")
    factor = float(scale_factors(scale, q.format.scale, q.tensor_scale)[0])
    return Block(before, after, codes, fates(before, after, factor, q.format.element), factor, one)


def headline(block: Block) -> str:
    """The block in one line.

    >>> headline(made(np.array([7.0, 0.1]), MXFP4, "floor", "nearest_even"))
    'largest magnitude 7 → scale code 127 = 2⁰; 1 saturated, 1 flushed to zero'
    """
    finite = np.abs(block.before[np.isfinite(block.before)])
    largest = shown(float(finite.max(initial=0.0)))
    saturated, flushed = block.count("saturated"), block.count("to zero")
    lost = (
        "every number is NaN"
        if np.isnan(block.after).all()
        else f"{saturated} saturated, {flushed} flushed to zero"
    )
    return f"largest magnitude {largest} → scale {block.scale}; {lost}"


def elements_table(block: Block) -> Table:
    """Element by element: number, number / scale, code, bits, value and what happened."""
    element = block.quantized.format.element
    rows = tuple(
        (str(k), shown(v), shown(v / block.factor), bits_text(c, element), shown(y), fate, shown(y - v))
        for k, (v, c, y, fate) in enumerate(
            zip(block.before.tolist(), block.codes.tolist(), block.after.tolist(), block.fates, strict=True)
        )
    )
    marked = frozenset(k for k, fate in enumerate(block.fates) if fate not in ("", "tie"))
    return Table(("k", "x", "x / scale", "code", "value", "", "error"), rows, marked=marked)


def rules_table(x: Floats, fmt: BlockFormat, rounding: Rounding, chosen: ScaleRule | None) -> Table:
    """Every scale rule of the format on one block: scale, what saturates and is flushed, squared error."""
    rows: list[tuple[str, ...]] = []
    marked: list[int] = []
    for rule in fmt.scale_rules:
        block = made(x, fmt, rule, rounding)
        with np.errstate(over="ignore"):
            lost = block.squared_error
        scale = float(fmt.scale.values[block.quantized.scales[0]]) * block.quantized.tensor_scale
        marked += [len(rows)] if rule == chosen else []
        rows.append(
            (
                rule,
                scale_text(int(block.quantized.scales[0]), fmt.scale).partition(" = ")[2],
                str(block.count("saturated")),
                str(block.count("to zero")),
                shown(lost),
                shown(fmt.element.max * scale),
                _steps_up(rule, fmt),
            )
        )
    columns = ("rule", "scale", "saturated", "flushed", "squared error", "reaches", "steps up at")
    return Table(
        columns,
        tuple(rows),
        "steps up at: the significand of the largest magnitude, 1 … 2, from which the scale is one binade "
        "higher",
        frozenset(marked),
    )


def _steps_up(rule: ScaleRule, fmt: BlockFormat) -> str:
    if fmt.scale.mantissa_bits:
        return "-"
    if rule == "search":
        return "tries all"
    limit = step_up(rule, fmt.element)
    if np.isinf(limit):
        return "never"
    short = f"{limit:g}"
    return short if float(short) == limit else f"above {short}"


def exponents_table(x: Floats, fmt: BlockFormat) -> Table:
    """The exponent of the largest magnitude as rule floor takes it, and as floor(log2) in floats has it."""
    finite = np.abs(x[np.isfinite(x)])
    amax = float(finite.max()) if finite.size else 0.0
    if amax == 0.0:
        return Table(("", "exponent", "scale"), (("no magnitude above zero", "-", "code 0"),))
    exact = int(np.frexp(amax)[1]) - 1
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        single = float(np.log2(np.float32(amax)))
    guesses = (
        ("exact, from the float's exponent field", str(exact)),
        ("floor(log2(x)) in float64", str(int(np.floor(np.log2(amax))))),
        ("floor(log2(x)) in float32", str(int(np.floor(single))) if np.isfinite(single) else f"{single}"),
    )
    rows = tuple(
        (what, found, power(int(found) - fmt.element.emax) if found.lstrip("-").isdecimal() else "-")
        for what, found in guesses
    )
    wrong = frozenset(n for n, row in enumerate(rows) if row[1] != str(exact))
    return Table((f"amax = {shown(amax)}", "exponent", "scale"), rows, marked=wrong)


PRESETS: Final = Presets(
    {
        "thirty-two numbers": Preset(
            "The largest magnitude, 3.25, has exponent 1; the largest E2M1 value, 6, has exponent 2. So the "
            "scale is 2^(1−2) = 0.5, and every number is divided by it before it becomes a code.",
            {
                "values": " ".join(f"{v:g}" for v in A),
                "first": 0.5,
                "format": "MXFP4",
                "rule": "floor",
                "rounding": "nearest_even",
            },
        ),
        "rceil against floor": Preset(
            "With 7 in front, `floor` keeps scale 1 and 7 saturates at 6. `rceil` takes 2: nothing "
            "saturates, but the small ones are flushed. Neither is wrong; they are choices, and they are "
            "not equal.",
            {"values": "7 5 3 1.5 0.75 0.5 0.3 0.25", "first": 7.0},
        ),
        "an outlier": Preset(
            "One 96 among thirty-one ones: the scale is 16, and 1/16 is nearer to 0 than to 0.5. The "
            "outlier lives, everything else is flushed. Drag the first number down and watch the others "
            "come back.",
            {"values": "96 1*31", "first": 96.0},
        ),
        "one ulp below 8": Preset(
            "7.999999999999999 is the float64 just below 8, so its exponent is 2. `floor(log2(x))` computed "
            "in floats says 3: log2 itself rounds up. The scale of the whole block is then twice too large.",
            {"values": "7.999999999999999 4 2 1 0.5", "first": None},
        ),
        "a block of zeros": Preset(
            "No scale fits: E8M0 has no zero. Code 0, the smallest scale, is what every rule gives; all "
            "codes are 0.",
            {"values": "0*31 -0", "first": None},
        ),
        "a NaN": Preset(
            "E2M1 has no NaN, so the scale says it: code 255, and all thirty-two numbers of the block are "
            "NaN.",
            {"values": "1 2 nan 4*29", "first": None},
        ),
        "6.5, between even and rceil": Preset(
            "6.5 is above 6, so `rceil` steps up. `even` steps up from 7 on, and saturates 6.5 at 6: it is "
            "nearer to 6 than to the next value, 8.",
            {"values": "6.5 3 2 1 0.5", "first": 6.5, "rule": "even"},
        ),
    }
)
_ONE_BELOW_8: Final = float(np.nextafter(8.0, 0.0))
_NAN_CHOICES: Final = ("they stay what they were", "they become zero", "they become NaN too")


def _scale_of(x: list[float], rule: ScaleRule) -> float:
    return made(np.array(x), MXFP4, rule, "nearest_even").factor


def _flushed() -> int:
    return made(np.array([96.0] + [1.0] * 31), MXFP4, "floor", "nearest_even").count("to zero")


def _beside_nan() -> str:
    other = dequantize(quantize([np.nan, 1.0], MXFP4, engine="reference"), engine="reference")[1]
    return _NAN_CHOICES[2 if np.isnan(other) else 1 if other == 0 else 0]


def _last_of_rceil() -> float:
    """The largest multiple of 1/8 that rceil still holds with scale 1."""
    steps = [n / 8 for n in range(32, 72)]
    return max(v for v in steps if _scale_of([v], "rceil") == 1.0)


QUESTIONS: Final = {
    "scale": Question(
        "The largest magnitude of a block is **20**. Which **scale** does `floor` give it?",
        lambda: _scale_of([20.0], "floor"),
        "Right: 20 = 1.25 · 2^4, E2M1's largest exponent is 2, and 2^(4−2) is 4. 20/4 is 5: a tie, by the "
        "way.",
        "Write 20 as f · 2^k with 1 ≤ f < 2. The scale is 2^(k−2), for 6 = 1.5 · 2^2.",
        {
            "16": "That is 2^4, the exponent of 20. E2M1 reaches up to 2^2 itself: take 2 off.",
            "2": "4 − 2 is 2; and 2^2?",
        },
    ),
    "rceil": Question(
        "A block's scale is to be **1** under `rceil`. How large may its largest magnitude be?",
        _last_of_rceil,
        "Right: rceil takes the smallest scale at which nothing saturates, and E2M1 ends at 6.",
        "rceil never lets a number saturate. Which is the largest value at scale 1?",
        {
            "7": "7 saturates at scale 1. floor allows that, rceil does not.",
            "8": "floor goes up to just below 8.",
        },
    ),
    "outlier": Question(
        "One number is **96**, thirty-one are **1**. How many numbers of the block become **zero** under "
        "`floor`?",
        _flushed,
        "Right: 1/16 lies below 0.25, so every one of them. That is what outliers do to a block.",
        "Take the preset of the outlier and count, or divide 1 by the scale.",
        {
            "32": "The outlier itself is still there.",
            "0": "1 divided by the scale of 16 is 0.0625: which value is nearest?",
        },
    ),
    "log2": Question(
        "x is the float64 **just below 8**. Which scale does `floor` give a block whose largest magnitude "
        "is x?",
        lambda: _scale_of([_ONE_BELOW_8], "floor"),
        "Right: x is below 2^3, so its exponent is 2 and the scale 2^0. Read exponents, do not compute them.",
        "x is below 8 = 2^3, even if only just. Which power of two is the last that is not above x?",
        {"2": "That is what floor(log2(x)) in floats would give: log2(x) is rounded to 3."},
    ),
    "nan": Question(
        "One of the thirty-two numbers is NaN. What becomes of the **others**?",
        _beside_nan,
        "Right: E2M1 has no NaN; the shared scale has, and it is shared.",
        "Take the preset and look at the column of values.",
        choices=_NAN_CHOICES,
    ),
}
