# SPDX-License-Identifier: Apache-2.0
"""One case, one line of hex digits: which bits of it are which field, and how a unit's own order differs.

The most significant digit comes first, as `$readmemh` reads it. From bit 0 upward stand the operands, the
flags and what is expected; every field begins at a multiple of four bits, and each of its elements takes a
multiple of four.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ..blocks import check_choice
from ..formats import Codes
from .unit import Batch, Unit

VALID: Final = 1
"""Bit of the flags that every case has: a row of a memory that was never written reads as zeros."""
FIRST: Final = 2
"""Bit of the flags of a case before which the accumulator is cleared."""
DIGITS: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
VALUES: Final = np.full(256, 255, np.uint8)
"""ASCII -> digit; 255 for what is none."""
VALUES[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)
VALUES[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16)


@dataclass(frozen=True)
class Field:
    """Bits of a line: `count` elements of `bits` bits from bit `lsb` on; `width` of them mean something."""

    name: str
    lsb: int
    bits: int
    count: int
    width: int
    signed: bool
    given: bool
    """Whether the unit is given it; else it is expected of the unit."""


@dataclass(frozen=True)
class Adapter:
    """How a unit's operands are laid out, where that is not mxfp's own way.

    lanes: "descending" has element 0 in the highest lane. nibbles: "high_first" has the first of two 4-bit
    codes in the upper half of a byte. scales: "ba" has the scale of b before that of a. codes: for each code
    of an element, the one that the unit uses instead; empty is the same. endian: "little" writes the bytes of
    a line last first.
    """

    lanes: Literal["ascending", "descending"] = "ascending"
    nibbles: Literal["low_first", "high_first"] = "low_first"
    scales: Literal["ab", "ba"] = "ab"
    codes: tuple[int, ...] = ()
    endian: Literal["big", "little"] = "big"

    def __post_init__(self) -> None:
        """Check every choice."""
        check_choice(self.lanes, ("ascending", "descending"), "lanes")
        check_choice(self.nibbles, ("low_first", "high_first"), "nibbles")
        check_choice(self.scales, ("ab", "ba"), "scales")
        check_choice(self.endian, ("big", "little"), "endian")
        object.__setattr__(self, "codes", tuple(int(c) for c in self.codes))
        if sorted(self.codes) != list(range(len(self.codes))):
            raise ValueError(f"codes is one code for each code, every one once, got {self.codes}")

    @property
    def plain(self) -> bool:
        """Whether it changes nothing."""
        return self == Adapter()

    def check(self, unit: Unit) -> None:
        """ValueError unless a unit's operands can be laid out like this."""
        for fmt in unit.sides:
            bits = fmt.element.bits
            if self.codes and len(self.codes) != 1 << bits:
                raise ValueError(
                    f"an element of {bits} bits has {1 << bits} codes, and codes has {len(self.codes)}"
                )
            if self.nibbles == "high_first" and (bits != 4 or unit.elements % 2):
                raise ValueError("nibbles are those of an even number of 4-bit codes")

    def as_dict(self) -> dict[str, Any]:
        """The choices, for a sidecar."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


PLAIN: Final = Adapter()


def _padded(width: int) -> int:
    return -(-width // 4) * 4


def line_fields(unit: Unit, *, stages: bool = False, adapter: Adapter = PLAIN) -> tuple[Field, ...]:
    """The fields of a line, from bit 0 upward.

    >>> [(f.name, f.lsb, f.bits) for f in line_fields(Unit("dot"))[:5]]
    [('a', 0, 4), ('b', 128, 4), ('scale_a', 256, 8), ('scale_b', 264, 8), ('flags', 272, 4)]
    >>> [(f.name, f.lsb, f.bits, f.width) for f in line_fields(Unit("dot"))[5:]]
    [('sum', 276, 16, 14), ('exponent', 292, 12, 9), ('special', 304, 4, 2), ('result', 308, 32, 32)]
    """
    a, b = unit.sides
    wanted: list[tuple[str, int, int, bool, bool]] = [
        ("a", a.element.bits, unit.elements, False, True),
        ("b", b.element.bits, unit.elements, False, True),
    ]
    if unit.scaled:
        scales = [("scale_a", a.scale.bits), ("scale_b", b.scale.bits)]
        for name, width in scales if adapter.scales == "ab" else scales[::-1]:
            wanted.append((name, width, unit.blocks, False, True))
    wanted.append(("flags", 2, 1, False, True))
    if stages:
        count = unit.a.block
        for number, width in enumerate(unit.level_bits):
            wanted.append(
                (f"level{number}" if number else "product", width, count * unit.blocks, True, False)
            )
            count = -(-count // 2)
    wanted.append(("sum", unit.sum_bits, unit.blocks, True, False))
    if unit.scaled:
        wanted.append(("exponent", unit.exponent_bits, unit.blocks, True, False))
        wanted.append(("special", 2, unit.blocks, False, False))
        if unit.term_bits != unit.sum_bits:
            wanted.append(("term", unit.term_bits, unit.blocks, True, False))
        wanted.append(("result", 8 * unit.accumulator.result_dtype.itemsize, 1, False, False))
    found, lsb = [], 0
    for name, width, count, signed, given in wanted:
        bits = 8 if name.startswith("scale") else _padded(width)
        found.append(Field(name, lsb, bits, count, width, signed, given))
        lsb += bits * count
    return tuple(found)


def line_bits(layout: tuple[Field, ...], adapter: Adapter = PLAIN) -> int:
    """Bits of a line: a multiple of four, with the little endian of eight."""
    last = layout[-1]
    bits = last.lsb + last.bits * last.count
    return bits if adapter.endian == "big" else -(-bits // 8) * 8


def lines(
    batch: Batch, expected: Mapping[str, NDArray[Any]], layout: tuple[Field, ...], adapter: Adapter = PLAIN
) -> bytes:
    """A batch -> its lines, hex digits and a newline each."""
    adapter.check(batch.unit)
    digits = np.zeros((len(batch), line_bits(layout) // 4), np.uint8)  # the least significant digit first
    given = {
        "a": _adapted(batch.codes_a, adapter),
        "b": _adapted(batch.codes_b, adapter),
        "scale_a": batch.scales_a,
        "scale_b": batch.scales_b,
        "flags": (VALID + FIRST * batch.first.astype(np.uint8))[:, None],
    }
    for field in layout:
        values = given[field.name] if field.given else expected[field.name]
        place, each = field.lsb // 4, field.bits // 4
        for digit in range(each):
            part = slice(place + digit, place + each * field.count, each)
            digits[:, part] = values >> 4 * digit & 15 if values.dtype != np.uint64 else _digit(values, digit)
    if adapter.endian == "little":
        digits = _bytes_reversed(digits)
    text = np.empty((len(batch), digits.shape[1] + 1), np.uint8)
    text[:, :-1] = DIGITS[digits[:, ::-1]]
    text[:, -1] = ord("\n")
    return text.tobytes()


def _digit(values: NDArray[Any], digit: int) -> NDArray[Any]:
    return values >> np.uint64(4 * digit) & np.uint64(15)


def _adapted(codes: Codes, adapter: Adapter) -> Codes:
    """Codes in the order and the coding of a unit, for which `Adapter.check` has been asked."""
    if adapter.codes:
        codes = np.array(adapter.codes, np.uint8)[codes]
    if adapter.lanes == "descending":
        codes = codes[:, ::-1]
    if adapter.nibbles == "high_first":
        codes = codes.reshape(len(codes), -1, 2)[:, :, ::-1].reshape(len(codes), -1)
    return codes


def _unadapted(codes: Codes, adapter: Adapter) -> Codes:
    """Codes of a unit in mxfp's order and coding, the inverse of `_adapted`."""
    codes = _adapted(codes, replace(adapter, codes=()))  # turned twice, an order is as it was
    return np.argsort(adapter.codes).astype(np.uint8)[codes] if adapter.codes else codes


def _bytes_reversed(digits: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Digits, filled up to whole bytes, with the bytes in the opposite order."""
    whole = np.zeros((len(digits), digits.shape[1] + digits.shape[1] % 2), np.uint8)
    whole[:, : digits.shape[1]] = digits
    return whole.reshape(len(digits), -1, 2)[:, ::-1].reshape(len(digits), -1)


def batch_of(
    content: bytes, unit: Unit, layout: tuple[Field, ...], adapter: Adapter = PLAIN, *, group: str = "read"
) -> Batch:
    """Lines -> the batch whose operands they hold, of one group; what they expect is not looked at.

    ValueError, with the number of the line, for what `lines` cannot have written.
    """
    adapter.check(unit)
    width = line_bits(layout, adapter) // 4
    if not content or len(content) % (width + 1):
        raise ValueError(f"lines of {width} digits are due, and {len(content)} bytes are not so many of them")
    rows = np.frombuffer(content, np.uint8).reshape(-1, width + 1)
    digits = VALUES[rows[:, -2::-1]]  # the least significant digit first
    text = np.append(digits < 16, rows[:, -1:] == ord("\n"), axis=1)
    _check_rows(text, f"is not {width} hex digits and a newline")
    if adapter.endian == "little":
        digits = _bytes_reversed(digits)
    given = {f.name: values_of(digits, f) for f in layout if f.given}
    a, b = unit.sides
    for name, fmt in (("a", a), ("b", b)):
        _check_rows(given[name] < fmt.element.code_count, f"has a code of {name} that is none")
        if unit.scaled:
            codes = given[f"scale_{name}"]
            _check_rows(codes < fmt.scale.code_count, f"has a scale of {name} that is none")
    flags = given["flags"][:, 0]
    _check_rows((flags & VALID == VALID) & (flags <= VALID | FIRST), "is not marked as valid")
    first = np.asarray(flags & FIRST == FIRST)
    _check_rows(first | (unit.kind == "running") & (np.arange(len(first)) > 0), "is not marked as first")
    none = np.zeros((len(rows), 0), np.uint8)
    return Batch(
        unit,
        _unadapted(given["a"].astype(np.uint8), adapter),
        _unadapted(given["b"].astype(np.uint8), adapter),
        given.get("scale_a", none).astype(np.uint8),
        given.get("scale_b", none).astype(np.uint8),
        first,
        np.zeros(len(rows), np.int64),
        (group,),
    )


def _check_rows(good: NDArray[Any], what: str) -> None:
    """ValueError that names the first line for which not all is good, (n,) or (n, count)."""
    lines_good = good.reshape(len(good), -1).all(axis=1)
    if not lines_good.all():
        raise ValueError(f"line {int(np.argmin(lines_good)) + 1} {what}")


def values_of(digits: NDArray[np.uint8], field: Field) -> NDArray[Any]:
    """Digits of lines, the least significant first -> values of a field: int64, or uint64 if unsigned."""
    place, each = field.lsb // 4, field.bits // 4
    kind: Any = np.int64 if field.signed else np.uint64
    total = np.zeros((len(digits), field.count), np.uint64)
    for digit in range(each):
        part = digits[:, place + digit : place + each * field.count : each].astype(np.uint64)
        total |= part << np.uint64(4 * digit)
    if not field.signed or field.bits >= 64:
        return total.astype(kind)
    signed = total.astype(np.int64)
    return np.where(signed >> (field.bits - 1) & 1 == 1, signed - (1 << field.bits), signed)


def include(unit: Unit, layout: tuple[Field, ...], cases: int, name: str, *, adapter: Adapter = PLAIN) -> str:
    """A SystemVerilog include with the number of cases and the place of every field."""
    rows = [
        f"// Field offsets of {name}, made by mxfp: {unit.kind}, {unit.a.name} x {unit.sides[1].name}.",
        f"localparam integer MXFP_CASES = {cases};",
        f"localparam integer MXFP_LINE_BITS = {line_bits(layout, adapter)};",
    ]
    for field in layout:
        word = f"MXFP_{field.name.upper()}"
        for what, value in (
            ("LSB", field.lsb),
            ("BITS", field.bits),
            ("WIDTH", field.width),
            ("COUNT", field.count),
        ):
            rows.append(f"localparam integer {word}_{what} = {value};")
    return "\n".join(rows) + "\n"
