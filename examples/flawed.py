# SPDX-License-Identifier: Apache-2.0
"""Four ways to get an accumulator wrong, one step each. The property test of this folder finds all four."""

from my_accumulator import MyAccumulator, nearest_even


class DropsABit(MyAccumulator):
    """The alignment shifter is one bit short: what is shifted loses its lowest bit."""

    def add(self, x, x_unit, y, y_unit):
        if not x or not y:
            return x + y, x_unit if x else y_unit
        unit = min(x_unit, y_unit) + 1
        return shifted(x, x_unit - unit) + shifted(y, y_unit - unit), unit


class RoundsTwice(MyAccumulator):
    """The adder rounds to 27 bits, and the result register rounds that to 24."""

    def round(self, total, unit):
        return super().round(*nearest_even(total, unit, total.bit_length() + unit - 27))


class WrapsAt13Bits(MyAccumulator):
    """The sum of a block is kept in 13 bits; 32 products of E2M1 need 14."""

    def block_sum(self, term):
        return (term + 4096) % 8192 - 4096


class AddsBackwards(MyAccumulator):
    """The last block is added first."""

    def order(self, terms):
        return list(terms)[::-1]


def shifted(value, by):
    """Value * 2**by, the bits below the point lost."""
    return value << by if by >= 0 else value >> -by
