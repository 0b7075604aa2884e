# SPDX-License-Identifier: Apache-2.0
"""Behaviours of decoders: codes that are read as other values."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ....formats import ElementFormat, Integers, Specials
from ...unit import Unit
from ..flow import Change, Flow, Named


def values(unit: Unit) -> Named:
    """Codes of a, of b, and of both, read by another table."""
    a, b = (fmt.element for fmt in unit.sides)
    for sides, where in (("ab", "both sides"), ("a", "side a"), ("b", "side b")):
        if sides == "ab" and a != b:
            continue
        for name, about, table in tables(b if sides == "b" else a):
            yield f"{name}-{sides}", f"{about}, on {where}", "integers", _read(sides, table)


def _read(sides: str, table: Integers) -> Change:
    def change(flow: Flow) -> None:
        if "a" in sides:
            flow.x = table[flow.codes_a]
        if "b" in sides:
            flow.y = table[flow.codes_b]

    return change


def tables(element: ElementFormat) -> Iterator[tuple[str, str, Integers]]:
    """Names, descriptions, and what every code is read as, in units of the LSB."""
    integers, codes, half = element.integers, np.arange(element.code_count), element.code_count // 2
    magnitudes, sign = np.abs(integers), np.where(element.negative, -1, 1)
    implicit = 1 << element.mantissa_bits
    if element.specials is not Specials.NONE:
        exponent, mantissa = (codes & (half - 1)) >> element.mantissa_bits, codes & (implicit - 1)
        whole = mantissa + np.where(exponent > 0, implicit, 0)
        numbers = sign * (whole << np.maximum(exponent - 1, 0))
        yield "special-elements-numbers", "NaN and infinite elements are read as numbers", numbers
    small = (magnitudes > 0) & (magnitudes < implicit)
    if small.any():
        for name, about, table in (
            ("zero", "are read as 0", 0 * integers),
            ("one", "are read with a leading one", sign * (magnitudes + implicit)),
            ("half", "are read as normals of exponent 0", sign * ((magnitudes + implicit) >> 1)),
            ("twice", "are read as twice their value", 2 * integers),
        ):
            yield (
                f"subnormal-elements-{name}",
                f"subnormal elements {about}",
                np.where(small, table, integers),
            )
    if not element.twos_complement:
        least, most = int(magnitudes[magnitudes > 0].min()), int(magnitudes.max())
        for name, about, value in (
            ("least", "the smallest negative number", -least),
            ("largest", "the largest negative number", -most),
            ("implicit", "a negative number with a leading one", -implicit),
        ):
            yield f"negative-zero-{name}", f"-0 is read as {about}", np.where(codes == half, value, integers)
        inverted = np.where(element.negative, -magnitudes - 1, integers)
        yield "codes-ones-complement", "negative codes are inverted, and no 1 is added", inverted
        yield "codes-without-sign", "codes are read without their sign", magnitudes
    if element.code_count > 16:
        return
    if not element.twos_complement:
        twos = np.where(element.negative, -magnitudes[-codes % element.code_count], integers)
        yield "codes-twos-complement", "negative codes are read as two's complement", twos
    flipped = [int(f"{code:0{element.bits}b}"[::-1], 2) for code in codes.tolist()]
    yield "codes-bit-reversed", "codes are read with their bits reversed", integers[flipped]
    yield "codes-as-integers", "codes are read as a sign and an integer", sign * (codes & (half - 1))
    for code in range(1, half):
        own = int(integers[code])
        for other in sorted({0, *magnitudes.tolist(), own - 1, own + 1, 16} - {own}):
            if other < 0 or (small[code] and other in (0, 2 * own)):  # named above
                continue
            about = f"{element.values[code]:g} is read as {other * 2.0**element.lsb_exponent:g}"
            yield f"code{code}-is-{other}", about, np.where(codes % half == code, sign * other, integers)
