# SPDX-License-Identifier: Apache-2.0
"""Lesson 4: what the accumulator keeps, and what it loses."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

import numpy as np

from ..accumulate import Accumulator, Exact, Fixed, Pairwise, Sequential, Step
from ..blocks import BlockArray, dequantize, quantize
from ..bounds import errors
from ..dot import block_dots
from ..draw.accumulators import run_of
from ..draw.style import power
from ..formats import MXFP4, Floats
from ..integers import WidthError
from ..matmul import matmul
from ..registers import BLACKWELL_MXFP4, FixedPoint, Fused
from ..trace import Trace, bits_of, trace
from .presets import Preset, Presets
from .questions import Question
from .tables import Table, shown

NAMED: Final[dict[str, Accumulator]] = {
    "sequential:float16": Sequential("float16"),
    "sequential:bfloat16": Sequential("bfloat16"),
    "sequential:float32": Sequential("float32"),
    "pairwise:float16": Pairwise("float16"),
    "pairwise:bfloat16": Pairwise("bfloat16"),
    "blackwell": BLACKWELL_MXFP4,
    "exact:float32": Exact("float32"),
}
"""Those that have no parameters here."""
REGISTER: Final = "fixed-point register"
"""The one that has, by the name that the page gives it."""
MOST_TERMS: Final = 64


def chosen(name: str, width: int, lsb_exponent: int, overflow: str) -> Accumulator:
    """The accumulator of a name in the list; the other arguments are those of the register."""
    return NAMED[name] if name in NAMED else FixedPoint(width, lsb_exponent, overflow)  # type: ignore[arg-type]


def blocks_of(numbers: Floats) -> tuple[BlockArray, BlockArray]:
    """Numbers (n,) -> two vectors of n blocks whose terms they are: one number a block, times 1."""
    a, b = (np.zeros((numbers.size, MXFP4.block)) for _ in range(2))
    a[:, 0], b[:, 0] = numbers, 1.0
    return quantize(a.ravel(), MXFP4, engine="reference"), quantize(b.ravel(), MXFP4, engine="reference")


def rounded_away(numbers: Floats) -> str:
    """A line on numbers that four bits cannot hold, and what they are instead; empty if there are none."""
    kept = dequantize(blocks_of(numbers)[0], dtype=np.float64, engine="reference").reshape(-1, MXFP4.block)[
        :, 0
    ]
    other = [
        (v, k) for v, k in zip(numbers.tolist(), kept.tolist(), strict=True) if v != k and not math.isnan(v)
    ]
    if not other:
        return ""
    shown = ", ".join(f"{v:g} is {k:g}" for v, k in dict(other[:4]).items())
    return f"Each number is one E2M1 value times a power of two; here {shown}."


def contest_table(a: BlockArray, b: BlockArray, register: Accumulator) -> Table:
    """The same exact terms under each accumulator: result, bits, distance from the exact sum."""
    rows = []
    for accumulator in (*NAMED.values(), register):
        terms = block_dots(a, b, group=accumulator.terms_of)
        name = ":".join(str(accumulator).split(":")[:4])  # of a register: width, LSB, overflow
        try:
            result = matmul(a, b, accumulator=accumulator, engine="reference")
            error = float(errors(accumulator, terms, result))
            digits = result.dtype.itemsize * 2
            rows.append((name, shown(float(result)), shown(error), f"0x{bits_of(result):0{digits}x}"))
        except WidthError:
            rows.append((name, "overflow", "-", "WidthError"))
    wrong = frozenset(n for n, row in enumerate(rows) if row[2] not in ("0", "nan"))
    return Table(
        ("accumulator", "result", "error", "bits"), tuple(rows), "error: distance from the exact sum", wrong
    )


def steps_table(t: Trace) -> Table:
    """Step by step: what is added, what is then held, and how far that is from the exact sum so far.

    Steps in which something is lost stand out. The levels of a tree are no running sums: only its end is
    compared.
    """
    errors = [math.nan] * len(t.steps)
    if t.terms.specials is None and t.steps:
        run = run_of(t.a, t.b, t.accumulator)
        errors[-len(run.errors) :] = run.errors
    rows, marked, before = [], [], 0.0
    for n, (step, error) in enumerate(zip(t.steps, errors, strict=True)):
        marked += [n] if error != before and not math.isnan(error) else []
        rows.append((step.label, _adds(t, n), _holds(step), "-" if math.isnan(error) else shown(error)))
        before = before if math.isnan(error) else error
    return Table(("step", "adds", "holds", "held − exact"), tuple(rows), marked=frozenset(marked))


def _adds(t: Trace, n: int) -> str:
    """What step n adds, as numbers; of a tensor core's step the last is what it carries on."""
    added = t.steps[n].added
    if added is None:
        return "pairs of the level before"
    integers, exponents = (x.ravel() for x in np.broadcast_arrays(added.integers, added.exponent))
    values = np.ldexp(integers.astype(np.float64), exponents.astype(np.int64))
    if t.terms.specials is not None:
        each = (
            t.accumulator.step // t.accumulator.group if isinstance(t.accumulator, Fused) else integers.size
        )
        special = t.terms.specials[n * each : n * each + each]
        values[: special.size] = np.where(special != 0, special, values[: special.size])
    return "  ".join(shown(v) for v in values.tolist())


def _holds(step: Step) -> str:
    if isinstance(step.state, Fixed):
        return f"{step.state.integers} · {power(int(step.state.exponent))}"
    return "  ".join(shown(float(v)) for v in np.asarray(step.state).ravel())


def followed(a: BlockArray, b: BlockArray, accumulator: Accumulator) -> Trace:
    """The trace; raises WidthError, naming the block, where a register overflows and is to say so."""
    return trace(a, b, accumulator=accumulator)


def headline(t: Trace) -> str:
    """The result in one line.

    >>> headline(followed(*blocks_of(np.array([2048.0, 1.0])), Sequential("float16")))
    'sequential:float16 gives 2048; the exact sum is 2049'
    """
    return f"{t.accumulator} gives {shown(float(t.result))}; the exact sum is {exact_text(t)}"


def exact_text(t: Trace) -> str:
    """The sum of all terms without any rounding, tensor scales included."""
    if t.terms.specials is not None:
        return "no number"
    significand, exponent = t.terms.factor
    total = sum(t.terms.fractions().tolist(), Fraction(0)) * significand * Fraction(2) ** exponent
    near = float(total)
    return ("" if Fraction(near) == total else "about ") + shown(near)


def _result(text_terms: list[float], accumulator: Accumulator) -> float:
    a, b = blocks_of(np.array(text_terms))
    return float(matmul(a, b, accumulator=accumulator, engine="reference"))


def _last_heard() -> int:
    """The smallest n at which adding 1 to 2^n changes nothing in float16."""
    half = Sequential("float16")
    return next(n for n in range(1, 16) if _result([2.0**n, 1.0], half) == 2.0**n)


PRESETS: Final = Presets(
    {
        "swamping in float16": Preset(
            "float16 has 11 significant bits. Beside 2048 a 1 is half a unit in the last place: a tie, to "
            "even, so it is lost, sixteen times over. bfloat16 has 8 bits and loses much earlier.",
            {
                "terms": "2048 1*16",
                "accumulator": "sequential:float16",
                "width": 24,
                "lsb": -2,
                "overflow": "raise",
            },
        ),
        "the same, ones first": Preset(
            "The same numbers in another order: the ones add up to 16 first, and 16 beside 2048 is heard. "
            "Rounded addition is not associative.",
            {"terms": "1*16 2048"},
        ),
        "in pairs": Preset(
            "A tree adds the ones to each other before they meet 2048. That is why sums are taken in pairs; "
            "only the last step sees the large one.",
            {"terms": "2048 1*15", "accumulator": "pairwise:float16"},
        ),
        "2^24 + 1 − 2^24": Preset(
            "The exact sum is 1. float32 loses it: 2^24 + 1 is a tie. Blackwell adds two blocks of 32 "
            "exactly in one step, truncates 2^24 + 1, which has 25 bits, to float32, and loses it just the "
            "same.",
            {"terms": "2^24 1 -2^24", "accumulator": "blackwell"},
        ),
        "2^24 − 2^24 + 1 on Blackwell": Preset(
            "Now the two large ones stand in the same step of 64 products, and cancel there before anything "
            "is truncated: the 1 is kept. Where a step ends matters.",
            {"terms": "2^24 -2^24 1", "accumulator": "blackwell"},
        ),
        "36 bits below on Blackwell": Preset(
            "Within a step, what lies more than 35 bits below the largest is cut off before it is added: "
            "beside −2^36 the 1 is gone, although 2^36 cancels. float32, one after another, keeps it. "
            "Change both 36 to 35.",
            {"terms": "2^36 0 -2^36 1", "accumulator": "blackwell"},
        ),
        "a register that wraps": Preset(
            "Fixed point has no swamping, every addition is exact; but it ends. 12 bits of 1 hold −2048 … "
            "2047, and 2047 + 1 is −2048.",
            {
                "terms": "1024 512 256 192 48 12 3 1 4",
                "accumulator": REGISTER,
                "width": 12,
                "lsb": 0,
                "overflow": "wrap",
            },
        ),
        "a register that is too coarse": Preset(
            "A unit of 2^0 cannot hold 0.75: the shift drops it, one term after another. That is 16 · 0.75 "
            "= 12 lost.",
            {"terms": "8 0.75*16", "accumulator": REGISTER, "width": 24, "lsb": 0},
        ),
        "a NaN scale": Preset(
            "One block whose scale is NaN makes its term NaN, and so the result, however many others there "
            "are.",
            {"terms": "4 nan 8", "accumulator": "sequential:float32"},
        ),
    }
)
_BIG_FIRST: Final = [2048.0] + [1.0] * 16
_BLACKWELL: Final = {1.0: "1, the exact sum", 0.0: "0", 2.0**24: "2^24"}

QUESTIONS: Final = {
    "first": Question(
        "float16, one after another: **2048**, then sixteen times **1**. What is the **result**?",
        lambda: _result(_BIG_FIRST, Sequential("float16")),
        "Right: each 2048 + 1 is a tie and goes to the even neighbour, 2048. All sixteen are lost.",
        "Between 2048 and 4096 the float16 values are 2 apart. What does 2048 + 1 round to?",
        {
            "2064": "That is the exact sum. float16 rounds after every addition.",
            "2050": "A tie goes to the even one.",
        },
    ),
    "last": Question(
        "And with **2048 last**: sixteen times 1, then 2048?",
        lambda: _result(_BIG_FIRST[::-1], Sequential("float16")),
        "Right: 16 is a multiple of 2, so 2064 is a float16 value. Order matters.",
        "What have the ones become by the time 2048 comes?",
        {"2048": "That was the other order. Here the ones add up before they meet 2048."},
    ),
    "bits": Question(
        "What is the smallest n at which, in float16, adding 1 to **2^n** changes nothing?",
        _last_heard,
        "Right: with 11 significant bits the values at 2^11 are 2 apart, and the tie goes to 2^11.",
        "Type terms such as 2^9 1 and look at the step.",
        {
            "10": "1025 is a float16 value: 11 significant bits.",
            "12": "It is lost there, but not there first.",
        },
    ),
    "blackwell": Question(
        "Three blocks have the terms **2^24, 1, −2^24**. What does a Blackwell tensor core give?",
        lambda: _BLACKWELL[_result([2.0**24, 1.0, -(2.0**24)], BLACKWELL_MXFP4)],
        "Right: its step is 64 products, two blocks. After the first step 2^24 + 1 is cut to 24 bits.",
        "Take the preset and read the steps: what does it hold after products 0 … 63?",
        {"1, the exact sum": "It adds exactly within a step; but between steps it holds a float32."},
        choices=("1, the exact sum", "0", "2^24"),
    ),
}
