# SPDX-License-Identifier: Apache-2.0
"""A model of an accumulator, as a hardware team may have one: plain integers, no numpy, nothing of mxfp.

The terms of a dot product come in, one (sum, exponent) for each block, worth sum * 2**exponent. They are
added in order to a float32 that is rounded to nearest even after each addition.
"""

import math


class MyAccumulator:
    """The unit in four steps; `flawed.py` gets one of them wrong at a time."""

    def dot(self, terms):
        """[(sum, exponent), ...] -> the float32 that the unit gives, as a Python float."""
        total, unit = 0, 0
        for term, exponent in self.order(terms):
            total, unit = self.add(total, unit, self.block_sum(term), exponent)
            total, unit = self.round(total, unit)
            if total and total.bit_length() + unit > 128:  # it has overflowed
                return math.copysign(math.inf, total)
        return math.ldexp(total, unit)

    def order(self, terms):
        """The order in which terms are added: that in which they come."""
        return list(terms)

    def block_sum(self, term):
        """What the adder tree of a block hands over: the sum, whole."""
        return term

    def add(self, x, x_unit, y, y_unit):
        """x * 2**x_unit + y * 2**y_unit: both shifted to the smaller unit, then added."""
        unit = min(x_unit, y_unit)
        return (x << x_unit - unit) + (y << y_unit - unit), unit

    def round(self, total, unit):
        """total * 2**unit -> the same in float32: 24 bits, and no unit below 2**-149."""
        return nearest_even(total, unit, max(unit, total.bit_length() + unit - 24, -149))


def nearest_even(total, unit, wanted):
    """total * 2**unit -> (integer, wanted), rounded to a multiple of 2**wanted; ties to the even one."""
    if wanted <= unit or total == 0:
        return total, unit
    drop = wanted - unit
    kept, rest = total >> drop, total & (1 << drop) - 1
    half = 1 << drop - 1
    return kept + (rest > half or (rest == half and kept & 1)), wanted
