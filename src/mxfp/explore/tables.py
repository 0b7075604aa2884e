# SPDX-License-Identifier: Apache-2.0
"""What a lesson shows as rows: plain text, before it is a page."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Column headings, rows, a remark below them, and the numbers of the rows that stand out."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    remark: str = ""
    marked: frozenset[int] = frozenset()


def shown(x: float) -> str:
    """A number, short: whole ones whole, large and small powers of two as such, others in six digits.

    All digits where six would make it look like another number.

    >>> shown(0.1), shown(1 / 3), shown(7.999999999999999), shown(-(2.0**36)), shown(16777217.0)
    ('0.1', '0.333333', '7.999999999999999', '-2^36', '16777217')
    """
    if not math.isfinite(x) or x == 0:
        return f"{x:g}"
    mantissa, exponent = math.frexp(abs(x))
    if mantissa == 0.5 and not -10 <= exponent - 1 <= 20:
        return f"{'-' if x < 0 else ''}2^{exponent - 1}"
    if x.is_integer() and abs(x) < 1e12:
        return f"{x:.0f}"
    short = f"{x:.6g}"
    digits = sum(c.isdigit() for c in short.partition("e")[0].lstrip("-0."))
    return short if float(short) == x or digits >= 6 else repr(x)
