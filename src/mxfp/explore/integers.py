# SPDX-License-Identifier: Apache-2.0
"""Lesson 3: a dot product of two blocks becomes integers."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..blocks import BlockArray, quantize
from ..dot import Overflow, block_dots
from ..draw.example import A, B
from ..draw.fates import scale_text
from ..draw.style import power
from ..formats import E2M1, MXFP4, Floats
from ..integers import WidthError, signed_bits, sum_bounds, sum_width, wrap
from ..trace import Trace, trace
from .presets import Preset, Presets
from .questions import Question
from .tables import Table, shown

LANES: Final = MXFP4.block
LARGEST: Final = E2M1.max


def pair(a: Floats, b: Floats, maximal: int = 0) -> Trace:
    """Two rows of numbers (n,) -> the trace of their dot product in MXFP4, by rule floor.

    The first `maximal` pairs are made 6 · 6; both sides are filled up to 32 with zeros.
    """
    sides = []
    for x in (a, b):
        filled = np.zeros(LANES)
        filled[: x.size] = x
        filled[:maximal] = LARGEST
        sides.append(quantize(filled, MXFP4, engine="reference"))
    return trace(*sides)


def products_table(t: Trace, term: int = 0) -> Table:
    """Lane by lane: both values, both integers, and their product."""
    lanes = range(min(t.group, t.a.shape[0] - term * t.group))
    a, b = (_values(q) for q in (t.a, t.b))
    rows = tuple(
        (
            str(lane),
            f"{a[term * t.group + lane]:g}",
            f"{b[term * t.group + lane]:g}",
            str(t.a_integers[term, lane]),
            str(t.b_integers[term, lane]),
            str(t.products[term, lane]),
        )
        for lane in lanes
    )
    units = t.a.format.element.lsb_exponent, t.b.format.element.lsb_exponent
    remark = (
        f"a and b: element values, scale left out; integers count {power(units[0])}, "
        f"products {power(sum(units))}"
    )
    return Table(("lane", "a", "b", "integer a", "integer b", "product"), rows, remark)


def _values(q: BlockArray) -> Floats:
    return q.format.element.values[q.codes]


def tree_table(t: Trace, term: int = 0) -> Table:
    """Level by level: how many numbers, the bits that the level needs, and what is on it."""
    rows = tuple(
        (
            f"{values.shape[1]} sum{'s' * (values.shape[1] > 1)}",
            str(width),
            "  ".join(map(str, values[term].tolist())),
        )
        for values, width in zip((t.products, *t.levels), t.level_widths, strict=True)
    )
    first = (f"{t.group} products", *rows[0][1:])
    return Table(("level", "signed bits", "values"), (first, *rows[1:]))


def headline(t: Trace) -> str:
    """The sum in one line.

    >>> headline(pair(np.array([6.0]), np.array([6.0]), 32))
    'sum of 32 products: 4608, which needs 14 signed bits'
    """
    total = int(t.terms.sums[0])
    if t.terms.specials is not None:
        return "a number is NaN: so is the sum"
    needed = signed_bits(min(total, 0), max(total, 0))
    return f"sum of {t.group} products: {total}, which needs {needed} signed bits"


def term_text(t: Trace, term: int = 0) -> str:
    """The sum and the exponent as one number, and where the exponent comes from.

    >>> term_text(pair(np.array([24.0]), np.array([6.0])))
    'term = 144 · 2⁰ = 144; 2⁰ is scale of a 2², scale of b 2⁰, and 2⁻² of the products'
    """
    block = term * t.group // t.a.format.block
    exponent = int(t.terms.exponents[term])
    if t.terms.specials is not None and t.terms.specials[term] != 0:
        return f"term = {t.terms.specials[term]:g}: a scale or an element is no number"
    a, b = (_scale(int(q.scales[block]), q) for q in (t.a, t.b))
    unit = power(t.terms.unit)
    value = shown(float(t.terms.fractions()[term]))
    return (
        f"term = {t.terms.sums[term]} · {power(exponent)} = {value}; {power(exponent)} is scale of a {a}, "
        f"scale of b {b}, and {unit} of the products"
    )


def _scale(code: int, q: BlockArray) -> str:
    return scale_text(code, q.format.scale).partition(" = ")[2]


def register_table(t: Trace, width: int, term: int = 0) -> Table:
    """What a register of `width` bits holds of a sum, by what it does when the sum does not fit."""
    exact = int(t.terms.sums[term])
    rows = []
    policies: tuple[Overflow, ...] = ("raise", "wrap", "saturate")
    for overflow in policies:
        try:
            held = str(int(block_dots(t.a, t.b, width=width, overflow=overflow).sums[term]))
        except WidthError:
            held = "WidthError"
        rows.append((overflow, held, "the sum" if held == str(exact) else f"not {exact}"))
    wrong = frozenset(n for n, row in enumerate(rows) if row[2] != "the sum")
    low, high = -(1 << (width - 1)), (1 << (width - 1)) - 1
    return Table(("overflow", "holds", ""), tuple(rows), f"signed {width} bits hold {low} … {high}", wrong)


PRESETS: Final = Presets(
    {
        "two blocks": Preset(
            "Every E2M1 value is a multiple of 0.5, so its double is an integer, −12 … 12. From here to the "
            "sum nothing is rounded: a dot product of two blocks is integers and one exponent.",
            {
                "a": " ".join(f"{v:g}" for v in A),
                "b": " ".join(f"{v:g}" for v in B),
                "maximal": 0,
                "width": 14,
            },
        ),
        "4608 needs 14 bits": Preset(
            "Thirty-two times 6 · 6: each product is 12 · 12 = 144, their sum 4608. Signed 13 bits end at "
            "4095. Pull the width to 13 and see what becomes of the sum.",
            {"a": "6*32", "b": "6*32", "maximal": 32},
        ),
        "28 fit 13 bits, 29 do not": Preset(
            "28 · 144 = 4032 is the most that 13 bits hold. A test with 28 large products passes on a unit "
            "that is one bit too narrow. Move the slider to 29.",
            {"a": "0*32", "b": "0*32", "maximal": 28, "width": 13},
        ),
        "the other end, −4608": Preset(
            "Two's complement reaches one further down than up: 13 bits hold −4096. −4608 is beyond that, "
            "too.",
            {"a": "6*32", "b": "-6*32", "width": 13},
        ),
        "large products that cancel": Preset(
            "The result is 0, but a level of the tree still holds ±144 and its sums on the way; the width "
            "of a level is what any input can put there, not what this one does.",
            {"a": "6*32", "b": "6*16 -6*16", "width": 9},
        ),
        "a scale far away": Preset(
            "b is 2^20 times larger. The integers stay what they were; only the exponent of the term "
            "changes.",
            {"a": "3 -1.5 0.5 6", "b": "2^20 1.5*2^20 2^21 3*2^20"},
        ),
    }
)
_SUM: Final = sum_bounds(E2M1, E2M1, LANES)[1]

QUESTIONS: Final = {
    "integer": Question(
        "Which **integer** stands for the E2M1 value **1.5**?",
        lambda: int(E2M1.integers[E2M1.values.tolist().index(1.5)]),
        "Right: integers count halves, and 1.5 is three of them.",
        "E2M1's unit is 2^-1. How many of it are in 1.5?",
        {"1.5": "1.5 is no integer. In units of 0.5?", "6": "Twice is enough: the unit is 0.5, not 0.25."},
    ),
    "bits": Question(
        "How many **signed bits** does the sum of 32 products need?",
        lambda: sum_width(MXFP4, MXFP4, LANES),
        "Right: −4608 … 4608; 13 bits end at 4095, 14 at 8191.",
        "The largest sum is 32 · 144 = 4608. What is the largest number of n signed bits?",
        {
            "13": "Signed 13 bits hold −4096 … 4095. 4608 is more.",
            "12": "That ends at 2047.",
            "15": "Enough, but not the fewest: they end at 16383.",
        },
    ),
    "wrapped": Question(
        "What does a **13-bit** register hold of the sum **4608** if it wraps?",
        lambda: int(wrap(_SUM, 13)),
        "Right: 4608 − 8192. A large positive result has become a large negative one.",
        "Wrapping is modulo 2^13 = 8192. Which number between −4096 and 4095 is 4608 plus or minus 8192?",
        {
            "512": "4608 − 4096 is 512, but the register wraps by 2^13 = 8192.",
            "4095": "That is what saturate gives.",
        },
    ),
    "most": Question(
        "How many products of **144** can be added before **13** bits are too few?",
        lambda: max(n for n in range(1, LANES + 1) if sum_width(MXFP4, MXFP4, n) <= 13),
        "Right: 28 · 144 = 4032 still fits, 29 · 144 = 4176 does not. Tests need more than 28.",
        "Divide 4095 by 144, or move the slider until the register complains.",
        {"29": "29 · 144 = 4176. The question is how many still fit.", "32": "That is all of them: 4608."},
    ),
}
