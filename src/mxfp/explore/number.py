# SPDX-License-Identifier: Apache-2.0
"""Lesson 1: one number becomes four bits (or six, or eight)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ..draw.fates import bits_text, fates
from ..draw.style import power
from ..encode import Rounding, encode, starts
from ..formats import E2M1, E2M3, E3M2, ElementFormat
from .presets import Preset, Presets
from .questions import Question
from .tables import Table, shown

FORMATS: Final = {f.name: f for f in (E2M1, E2M3, E3M2)}
"""Those that a slider covers with steps fine enough for every tie."""
DRAWS: Final = 1000
"""Stochastic roundings of the same number that are counted."""


@dataclass(frozen=True)
class Encoded:
    """One number and its code. fate: exact, rounded, or one of `mxfp.draw.fates`."""

    x: float
    element: ElementFormat
    rounding: Rounding
    code: int
    fate: str

    @property
    def value(self) -> float:
        """What the code stands for."""
        return float(self.element.values[self.code])

    @property
    def magnitude_code(self) -> int:
        """The code without its sign."""
        return self.code & (self.element.code_count // 2 - 1)

    @property
    def fields(self) -> tuple[str, str, str]:
        """Sign, exponent and mantissa bits."""
        sign, exponent, mantissa = bits_text(self.code, self.element).split()
        return sign, exponent, mantissa

    @property
    def neighbours(self) -> tuple[int, int]:
        """Codes of the magnitudes at or below |x| and above; the same twice where nothing is above."""
        below = int(np.searchsorted(self.element.magnitudes, abs(self.x), side="right")) - 1
        return below, min(below + 1, self.element.magnitudes.size - 1)


def encoded(x: float, element: ElementFormat = E2M1, rounding: Rounding = "nearest_even") -> Encoded:
    """A number -> its code and what happened to it; stochastic rounding draws with seed 0.

    Raises ValueError for NaN, which these formats do not have.

    >>> [(e.value, e.fate) for e in map(encoded, (2.0, 2.2, 2.5, 0.25, 7.0))]
    [(2.0, 'exact'), (2.0, 'rounded'), (2.0, 'tie'), (0.0, 'to zero'), (6.0, 'saturated')]
    """
    rng = np.random.default_rng(0) if rounding == "stochastic" else None
    code = int(encode([x], element, rounding=rounding, rng=rng)[0])
    value = float(element.values[code])
    fate = "exact" if value == x else fates(np.array([x]), np.array([value]), 1.0, element)[0] or "rounded"
    return Encoded(x, element, rounding, code, fate)


def _is_tie(x: float, element: ElementFormat) -> bool:
    return abs(x) in (element.magnitudes[:-1] + element.magnitudes[1:]) / 2


def story(e: Encoded) -> str:
    """One sentence: why the number became this code.

    >>> story(encoded(-2.5))
    '2.5 lies halfway between 2 (code 4) and 3 (code 5): a tie, and nearest_even takes the even code, 4.'
    """
    x, (low, high) = abs(e.x), e.neighbours
    values = e.element.magnitudes
    if e.fate == "exact":
        return f"{shown(e.x)} is a value of {e.element.name}: nothing is lost."
    if e.fate == "saturated":
        return (
            f"{shown(x)} is beyond the largest value, {e.element.max:g}: it saturates, under every rounding."
        )
    between = f"{values[low]:g} (code {low}) and {values[high]:g} (code {high})"
    taken = f"{e.rounding} takes {abs(e.value):g}"
    if e.rounding == "stochastic":
        chance = (x - values[low]) / (values[high] - values[low])
        drawn = f"it goes up with chance {chance:.6g}; this draw gave {abs(e.value):g}"
        return f"{shown(x)} lies between {between}: {drawn}."
    if _is_tie(x, e.element):
        if e.rounding == "nearest_even":
            taken = f"nearest_even takes the even code, {e.magnitude_code}"
        said = f"{shown(x)} lies halfway between {between}: a tie, and {taken}."
    elif e.rounding == "toward_zero":
        said = f"{shown(x)} lies between {between}: toward_zero takes the smaller, {values[low]:g}."
    else:
        said = f"{shown(x)} lies between {between}, nearer to {abs(e.value):g}."
    return said + (" It is flushed to zero, and keeps its sign." if e.fate == "to zero" else "")


def slider(element: ElementFormat) -> tuple[float, float, float]:
    """Start, stop and step of a slider that covers a format, ties and saturation too.

    >>> slider(E2M1)
    (-8.0, 8.0, 0.125)
    """
    stop = float(np.ceil(element.max * 1.25))
    return -stop, stop, element.smallest_subnormal / 4


def codes_table(e: Encoded, most: int = 9) -> Table:
    """Every magnitude (or the `most` around the one taken): code, bits, integer, and what rounds to it."""
    element, chosen = e.element, e.magnitude_code
    count = element.magnitudes.size
    first = max(0, min(chosen - most // 2, count - most))
    rows: list[tuple[str, ...]] = []
    marked: list[int] = []
    for code in range(first, min(first + most, count)):
        marked += [len(rows)] if code == chosen else []
        rows.append(
            (
                str(code),
                bits_text(code, element),
                f"{element.magnitudes[code]:g}",
                _interval(element, e.rounding, code),
                str(element.integers[code]),
            )
        )
    return Table(
        ("code", "bits", "value", "numbers that become it", "integer"),
        tuple(rows),
        f"magnitudes; the sign is the first bit. Integers count {power(element.lsb_exponent)}",
        frozenset(marked),
    )


def _interval(element: ElementFormat, rounding: Rounding, code: int) -> str:
    """The magnitudes that become a code; a bracket at an end that belongs to it."""
    last = code == element.magnitudes.size - 1
    if rounding == "stochastic":
        above = "" if last else f"; by chance up to {element.magnitudes[code + 1]:g}"
        return f"{element.magnitudes[code]:g}{above}"
    low, mine = _boundary(element, rounding, code - 1) if code else (0.0, True)
    left = f"{'[' if mine else '('}{low:g}"
    if last:
        return f"{left}, ∞)"
    high, not_mine = _boundary(element, rounding, code)
    return f"{left}, {high:g}{')' if not_mine else ']'}"


def _boundary(element: ElementFormat, rounding: Rounding, code: int) -> tuple[float, bool]:
    """Where a code ends and the next begins, and whether that number belongs to the next."""
    begin = float(starts(element, rounding)[code])
    middle = float(element.magnitudes[code] + element.magnitudes[code + 1]) / 2
    return (middle, False) if begin == np.nextafter(middle, np.inf) else (begin, True)


def draws_table(x: float, element: ElementFormat) -> Table:
    """How often each value came up in `DRAWS` stochastic roundings of one number."""
    codes = encode(np.full(DRAWS, x), element, rounding="stochastic", rng=np.random.default_rng(0))
    found, counts = np.unique(element.values[codes], return_counts=True)
    mean = float(element.values[codes].mean())
    return Table(
        ("value", f"times in {DRAWS:,} draws"),
        tuple((f"{v:g}", str(n)) for v, n in zip(found.tolist(), counts.tolist(), strict=True)),
        f"their mean is {mean:.4g}, and x is {x:.4g}",
    )


PRESETS: Final = Presets(
    {
        "2.5, a tie": Preset(
            "2.5 is as far from 2 as from 3. `nearest_even` takes the even *code*, 4, so the value 2. Not "
            "the even *value*: look at 3.5 next.",
            {"x": 2.5, "typed": "", "rounding": "nearest_even", "format": "E2M1"},
        ),
        "3.5, a tie that goes up": Preset(
            "The neighbours are 3 (code 5) and 4 (code 6). The even code is 6, so 3.5 becomes 4.", {"x": 3.5}
        ),
        "a hair above a tie": Preset(
            "2.5000000000000004 is the next float64 after 2.5. It is no tie any more, and goes up to 3. A "
            "unit that first rounds to float32 sees 2.5, and goes down.",
            {"x": 2.5, "typed": "2.5000000000000004"},
        ),
        "0.25, flushed to zero": Preset(
            "The smallest value above zero is 0.5. Up to 0.25, halfway, everything becomes 0; the tie "
            "itself too, for code 0 is even.",
            {"x": 0.25},
        ),
        "−0.125, minus zero": Preset(
            "Zero has two codes. A negative number that is flushed keeps its sign: code 8, which is −0.",
            {"x": -0.125},
        ),
        "7, saturated": Preset(
            "There is no infinity. Whatever is beyond 6 becomes 6, however far away: type 1e30.", {"x": 7.0}
        ),
        "2.5 away from zero": Preset(
            "`nearest_away` sends every tie up: 2.5 becomes 3. Half of all ties then differ from "
            "`nearest_even`.",
            {"x": 2.5, "rounding": "nearest_away"},
        ),
        "2.25, by chance": Preset(
            "`stochastic` goes up with chance 1/4: the distance from 2 over the gap to 3. The mean of many "
            "draws comes close to 2.25, which no single code can express.",
            {"x": 2.25, "rounding": "stochastic"},
        ),
    }
)

_VALUES: Final = E2M1.magnitudes


def _ties_down() -> int:
    middles = (_VALUES[:-1] + _VALUES[1:]) / 2
    return int((E2M1.values[encode(middles, E2M1)] < middles).sum())


QUESTIONS: Final = {
    "five": Question(
        "Which value does **5** become under `nearest_even`?",
        lambda: encoded(5.0).value,
        "Right: 5 lies halfway between 4 (code 6) and 6 (code 7), and 6 is the even code.",
        "Set x to 5. Between which two values does it lie, and which of their codes is even?",
        {
            "6": "6 has code 7, which is odd. The tie goes to the even code.",
            "5": "5 is no value of E2M1: above 4 the values are 2 apart.",
        },
    ),
    "ties": Question(
        "There are seven ties between the eight magnitudes. How many of them go **down** under "
        "`nearest_even`?",
        _ties_down,
        "Right: codes 0, 2, 4 and 6 are even, so 0.25, 1.25, 2.5 and 5 go down; 0.75, 1.75 and 3.5 go up.",
        "Look at the column of intervals: a bracket ] says that the tie at its end goes down.",
        {"7": "Then it would round toward zero. Look at 0.75.", "3": "That is how many go up."},
    ),
    "codes": Question(
        "How many **different numbers** can E2M1 express? Codes 0 and 8 are the same number.",
        lambda: int(np.unique(E2M1.values).size),
        "Right: sixteen codes, and zero has two of them.",
        "Four bits make sixteen codes; which two of them are the same number?",
        {"16": "That is how many codes there are. Zero has two.", "8": "That is the magnitudes alone."},
    ),
    "apart": Question(
        "All values are multiples of 0.5. How far apart are the **largest two**?",
        lambda: float(_VALUES[-1] - _VALUES[-2]),
        "Right: 4 and 6. Multiples of 0.5 are not the same as 0.5 apart: the gaps are 0.5, 1 and 2.",
        "Look at the last two rows of the table.",
        {"0.5": "That is the gap near zero. Being multiples of 0.5 does not make neighbours 0.5 apart."},
    ),
}
