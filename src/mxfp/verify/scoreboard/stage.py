# SPDX-License-Identifier: Apache-2.0
"""Values of a stage as a simulator gives them: whether they are the ones due, and how they are written."""

from __future__ import annotations

import numpy as np

from ..unit import Unit


def bits_of(unit: Unit, stage: str) -> int:
    """Bits of a stage's register."""
    word = stage.rstrip("0123456789")
    if word in ("product", "level"):
        return unit.level_bits[int(stage[len(word) :] or 0)]
    widths = {"sum": unit.sum_bits, "exponent": unit.exponent_bits, "special": 4, "term": unit.term_bits}
    return widths.get(stage, 8 * unit.accumulator.result_dtype.itemsize)


def same(given: int, wanted: int, bits: int) -> bool:
    """Whether a value is right as a number, or as two's complement of the stage's bits or of more."""
    if given == wanted:
        return True
    if given < 0 <= wanted:
        return given + (1 << bits) == wanted and given >= -(1 << (bits - 1))
    wide = max(bits, given.bit_length())
    return wanted < 0 < given and given == wanted & ((1 << wide) - 1)


def written(unit: Unit, stage: str, value: int) -> str:
    """Bits in hex, and what they are."""
    bits = bits_of(unit, stage)
    pattern = value & ((1 << bits) - 1) if value < 0 else value
    digits = f"0x{pattern:0{-(-bits // 4)}x}"
    if stage == "result":
        if pattern >> bits:
            return f"{digits} (more than {bits} bits)"
        dtype = unit.accumulator.result_dtype
        number = np.array([pattern], f"u{dtype.itemsize}").view(dtype)[0]
        return f"{digits} ({float(number):g})"
    signed = value - (1 << bits) if stage != "special" and value >> (bits - 1) == 1 else value
    return f"{digits} ({signed})"
