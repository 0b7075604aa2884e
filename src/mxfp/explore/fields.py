# SPDX-License-Identifier: Apache-2.0
"""Numbers as students type them."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Final

import numpy as np

from ..formats import Floats

MOST: Final = 4096
"""Numbers that one field takes."""
_POWER: Final = re.compile(r"([+-]?)(?:(\d+(?:\.\d+)?)\*)?2(?:\^|\*\*)([+-]?\d+)")
_MINUS: Final = str.maketrans("−–×·", "--**")


def number(text: str) -> float:
    """One number: 0.1, -6, 1e-3, 2^24, 1.5*2^-3, 0x1.8p3, inf or nan.

    Raises ValueError for anything else.

    >>> number("−2^24"), number("1.75*2^2"), number("0x1.8p1")
    (-16777216.0, 7.0, 3.0)
    """
    word = text.strip().translate(_MINUS).lower()
    power = _POWER.fullmatch(word)
    try:
        if power:
            sign, factor, exponent = power.groups()
            found = math.ldexp(float(factor or 1), int(exponent))
            return -found if sign == "-" else found
        if word.lstrip("+-").startswith("0x"):
            return float.fromhex(word)
        return float(word)
    except (ValueError, OverflowError):
        raise ValueError(f"{text.strip()!r} is no number; write 0.1, -6, 1e-3, 2^24, inf or nan") from None


def numbers(text: str, most: int = MOST) -> Floats:
    """Numbers with spaces or commas between them, value*count for repeated ones -> (n,) float64.

    Raises ValueError for a word that is no number, for none at all, and for more than `most`.

    >>> numbers("6, -0.5 1*3 2^4").tolist()
    [6.0, -0.5, 1.0, 1.0, 1.0, 16.0]
    """
    found: list[float] = []
    for word in text.replace(",", " ").split():
        plain = word.translate(_MINUS)
        value, star, count = plain.rpartition("*")
        if not star or value.endswith("*") or _POWER.fullmatch(plain):
            times = 1
            value = plain
        elif count.isdecimal() and 0 < int(count[:9]) <= MOST:
            times = int(count[:9])
        else:
            raise ValueError(f"{word!r}: behind the * stands how often the number is repeated, 1 … {MOST}")
        found += [number(value)] * times
        if len(found) > most:
            raise ValueError(f"that is {len(found)} numbers; there is room for {most}")
    if not found:
        raise ValueError("no numbers; write some with spaces between them, such as 1 -2.5 6*8")
    return np.array(found, np.float64)


def exact(text: str) -> Fraction:
    """What a student answers, as an exact number: 14, -3584, 0.25, 1/4, 2^-2.

    Raises ValueError for anything else, infinities and NaN included.

    >>> exact("1/4") == exact("0.25") == exact("2^-2")
    True
    """
    word = re.sub(r"(?<=\d)[ ',](?=\d{3}\b)", "", text.strip()).translate(_MINUS).lower()
    try:
        if len(word) > 40 or re.search(r"e[+-]?\d{4}", word):  # 1e999999999 would take for ever
            raise ValueError
        if "2^" in word or "2**" in word:
            return Fraction(number(word))
        return Fraction(word)
    except (ValueError, ZeroDivisionError, OverflowError):
        raise ValueError(f"{text.strip()!r} is no number; write 14, -3584, 0.25, 1/4 or 2^-2") from None
