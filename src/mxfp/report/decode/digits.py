# SPDX-License-Identifier: Apache-2.0
"""Numbers as the tables print them."""

from __future__ import annotations


def gb(n: float) -> str:
    """Bytes in units of 10^9, to four digits."""
    if 0 < n < 1e6:
        return "< 0.001"
    return f"{n / 1e9:.4g}" if n < 1e12 else f"{n / 1e9:,.0f}"


def rate(x: float) -> str:
    """Tokens a second, to three digits."""
    return f"{x:.3g}" if x < 1000 else f"{x:,.0f}"


def si(x: float) -> str:
    """A number of operations with its prefix."""
    for size, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if x >= size:
            return f"{x / size:.4g} {prefix}"
    return f"{x:.4g} "


def seconds(x: float) -> str:
    """Seconds, to three digits."""
    return f"{x:.3g}"
