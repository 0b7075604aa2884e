# SPDX-License-Identifier: Apache-2.0
"""Numbers as the tables print them."""

from __future__ import annotations


def gb(n: float) -> str:
    """Bytes in units of 10^9, to four digits."""
    if 0 < n < 1e6:
        return "< 0.001"
    return f"{n / 1e9:.4g}" if n < 1e12 else f"{n / 1e9:,.0f}"


def rate(x: float) -> str:
    """Tokens a second, or seconds, to three digits; all digits before the point.

    >>> rate(52.57), rate(999.9), rate(1133.4)
    ('52.6', '1,000', '1,133')
    """
    return f"{x:.3g}" if x < 999.5 else f"{x:,.0f}"


def si(x: float) -> str:
    """A number of operations with its prefix."""
    for power, prefix in ((21, "Z"), (18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if x >= 10**power:
            return f"{x / 10**power:.4g} {prefix}"
    return f"{x:.4g} "
