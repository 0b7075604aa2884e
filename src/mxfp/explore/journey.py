# SPDX-License-Identifier: Apache-2.0
"""Lesson 5: the whole journey of a dot product, every choice in one place."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

import numpy as np

from ..blocks import BlockArray, quantize
from ..draw.example import A, B
from ..draw.fates import scale_text
from ..draw.style import power
from ..encode import Rounding
from ..formats import MXFP4, BlockFormat, Floats, ScaleRule
from ..trace import Trace, trace
from .accumulator import REGISTER, exact_text
from .block import draw_seed
from .presets import Preset, Presets
from .questions import Question
from .tables import Table, shown

MOST: Final = 256
"""Elements of a side."""


def sides(
    a: Floats, b: Floats, fmt: BlockFormat, rule: ScaleRule, rounding: Rounding
) -> tuple[BlockArray, BlockArray]:
    """Two rows of numbers -> two vectors of the same length; the shorter is filled up with zeros.

    A rule that the format does not have (NVFP4 has others than MX) becomes the format's own.
    """
    size = max(a.size, b.size)
    chosen = rule if rule in fmt.scale_rules else None
    first, second = (
        quantize(
            np.concatenate([x, np.zeros(size - x.size)]),
            fmt,
            scale_rule=chosen,
            rounding=rounding,
            rng=draw_seed(rounding),
            engine="reference",
        )
        for x in (a, b)
    )
    return first, second


def stages_table(t: Trace, a: Floats, b: Floats) -> Table:
    """The journey in short, one row a stage. a, b: the numbers before they were quantized."""
    both = (("a", t.a), ("b", t.b))
    rows = [
        ("formats", f"{t.a.format.name}: blocks of {t.a.format.block}, rule {t.a.scale_rule}"),
        *(
            (f"scales of {side}", "; ".join(scale_text(c, q.format.scale) for c in q.scales.tolist()))
            for side, q in both
        ),
        ("terms", "; ".join(_term(t, n) for n in range(len(t.terms)))),
        ("accumulator", str(t.accumulator)),
        ("result", f"{shown(float(t.result))}, bits {result_bits(t)}"),
        ("exact sum of the terms", exact_text(t)),
        ("exact product of the numbers", unquantized_text(a, b)),
    ]
    return Table(("stage", "what it has"), tuple(rows))


def _term(t: Trace, n: int) -> str:
    special = 0.0 if t.terms.specials is None else float(t.terms.specials[n])
    return f"{special:g}" if special else f"{t.terms.sums[n]} · {power(int(t.terms.exponents[n]))}"


def result_bits(t: Trace) -> str:
    """The pattern of the result in hex, with its dtype."""
    result = np.asarray(t.result)
    return f"0x{t.result_bits:0{result.dtype.itemsize * 2}x} ({result.dtype.name})"


def unquantized_text(a: Floats, b: Floats) -> str:
    """The dot product of the numbers as they were typed, exact and then rounded once to float64."""
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return "none: a number is NaN or infinite"
    pairs = zip(a.tolist(), b.tolist(), strict=False)
    return shown(float(sum((Fraction(x) * Fraction(y) for x, y in pairs), Fraction(0))))


_TWO_BLOCKS: Final = {"a": " ".join(f"{v:g}" for v in A), "b": " ".join(f"{v:g}" for v in B)}

PRESETS: Final = Presets(
    {
        "two blocks": Preset(
            "The running example, from numbers to the result. Change one thing at a time: the rule, the "
            "rounding, the format, the accumulator.",
            {
                **_TWO_BLOCKS,
                "format": "MXFP4",
                "rule": "floor",
                "rounding": "nearest_even",
                "accumulator": "sequential:float32",
                "width": 14,
                "register": 24,
                "lsb": -12,
                "overflow": "raise",
            },
        ),
        "ties to even": Preset(
            "All seven ties of E2M1 against ones: 0.25 0.75 1.25 1.75 2.5 3.5 5 become 0 1 1 2 2 4 4. The 6 "
            "keeps the scale at 1. Change the rounding to nearest_away.",
            {"a": "6 0.25 0.75 1.25 1.75 2.5 3.5 5", "b": "0 1*7"},
        ),
        "4608 needs 14 bits": Preset(
            "Thirty-two times 12 · 12. Set the width of the register for sums to 13.",
            {"a": "6*32", "b": "6*32"},
        ),
        "one ulp below 8": Preset(
            "The largest magnitude is the float64 just below 8, so the scale is 1, and 3, 1.5 and 0.5 are "
            "kept. With the scale of 2 that log2 in floats gives, 0.5 would be flushed: take `ceil`, which "
            "has it by right.",
            {"a": "7.999999999999999 3 1.5 0.5", "b": "1*4"},
        ),
        "swamping in float16": Preset(
            "Term 0 is 2048, the others are 1. float16 forgets every one of them; change the accumulator.",
            {
                "a": "2048 0*31 1 0*31 1 0*31 1",
                "b": "1 0*31 1 0*31 1 0*31 1",
                "accumulator": "sequential:float16",
            },
        ),
        "a NaN scale": Preset(
            "One NaN in the second block of a: its scale is NaN, its term is NaN, the result is NaN.",
            {"a": "1*32 2 nan", "b": "1*34"},
        ),
        "a zero block": Preset(
            "a's first block is zero: scale code 0, which is 2^-127, and a term of 0. It disturbs nobody.",
            {"a": "0*32 3 -1.5", "b": "5*32 2 1"},
        ),
        "rceil against floor": Preset(
            "With `rceil` the scale is 2 and 7 becomes 8; with `floor` it is 1 and 7 becomes 6. Two "
            "results, both right.",
            {"a": "7 0.5 0.25 3", "b": "1*4", "rule": "rceil"},
        ),
        "a register that overflows": Preset(
            "12 bits whose LSB is 2^-2 end at 511.75. The register raises; change what it does, or give it "
            "a bit more.",
            {"a": "6*64", "b": "6*64", "accumulator": REGISTER, "register": 12, "lsb": -2},
        ),
    }
)


_NAN_CHOICES: Final = ("the sum of the others", "NaN", "infinity")


def _result(rule: ScaleRule) -> float:
    x = np.array([7.0, 0.5, 0.25, 3.0])
    a, b = sides(x, np.ones(4), MXFP4, rule, "nearest_even")
    return float(trace(a, b).result)


def _largest() -> float:
    six = np.full(MXFP4.block, MXFP4.element.max)
    return float(trace(*sides(six, six, MXFP4, "floor", "nearest_even")).result)


def _beside_nan() -> str:
    a, b = sides(np.array([np.nan, *[1.0] * 63]), np.ones(64), MXFP4, "floor", "nearest_even")
    result = float(trace(a, b).result)
    return _NAN_CHOICES[1 if math.isnan(result) else 2 if math.isinf(result) else 0]


QUESTIONS: Final = {
    "rules": Question(
        "7, 0.5, 0.25 and 3, each times 1. By how much does the result under `rceil` **exceed** that under "
        "`floor`?",
        lambda: _result("rceil") - _result("floor"),
        "Right: 11 against 9.5. The exact product is 10.75: each rule loses something else.",
        "Take the preset, read the result, change the rule, read it again.",
        {"2": "7 becomes 8 instead of 6; but what becomes of 0.5 and 0.25 when the scale is 2?"},
    ),
    "largest": Question(
        "Thirty-two times 6 · 6 is 4608 in integers. Which **number** is that?",
        _largest,
        "Right: integers count halves on both sides, so products count quarters: 4608 / 4.",
        "An integer of 12 stands for 6. What does a product of 144 stand for?",
        {
            "4608": "That is the integer. Its unit is 2^-2.",
            "2304": "Both sides count halves, not one of them.",
        },
    ),
    "nan": Question(
        "One of 64 numbers of a is NaN; the numbers are two blocks. What is the **result**?",
        _beside_nan,
        "Right: the block's scale is NaN, so its term is, and no accumulator can undo that.",
        "Take the preset of the NaN scale and follow it from stage to stage.",
        choices=_NAN_CHOICES,
    ),
}
