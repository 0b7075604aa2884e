# SPDX-License-Identifier: Apache-2.0
"""Where the bits are: the fields of a code, with codes that show them; codes in packed bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..formats import (
    BLOCK_FORMATS,
    ELEMENT_FORMATS,
    SCALE_FORMATS,
    BlockFormat,
    ElementFormat,
    ScaleFormat,
    check_codes,
)
from .packed_bytes import packed_bytes
from .style import BOXES, GREY, INK, SMALL, TEXT, WIDTH, bare, drawn, number, place, power, sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AnyFormat = ElementFormat | ScaleFormat | BlockFormat
LAYOUTS: Final[dict[str, AnyFormat]] = {**ELEMENT_FORMATS, **SCALE_FORMATS, **BLOCK_FORMATS}
_TOP, _HEAD, _ROW, _BOX, _LEFT = 0.62, 0.55, 0.36, 0.29, 0.1


@drawn
def bit_layout(fmt: str | AnyFormat = "E2M1", *, codes: Any = None) -> Figure:
    """A format or its name -> where its bits are.

    An element or scale format: its fields, and codes from the smallest to the largest with their values;
    `codes` chooses others. A block format: the bytes that a block packs into, in every order that
    `mxfp.pack` knows for it; `codes` are then those of the block, the running example's if None.

    Raises ValueError for a name that is none and for codes out of range.

    >>> from mxfp import draw
    >>> figure = draw.bit_layout("E8M0")
    >>> figure = draw.bit_layout("MXFP4")
    """
    chosen = LAYOUTS.get(fmt.upper()) if isinstance(fmt, str) else fmt
    if chosen is None or not isinstance(chosen, AnyFormat):
        raise ValueError(f"bit layouts are of {', '.join(LAYOUTS)}, got {fmt!r}")
    return packed_bytes(chosen, codes) if isinstance(chosen, BlockFormat) else _fields(chosen, codes)


def _fields(fmt: ElementFormat | ScaleFormat, codes: Any) -> Figure:
    shown = _telling(fmt) if codes is None else {int(c): "" for c in _in_a_row(codes, fmt)}
    figure = sheet(
        _TOP + _HEAD + _ROW * len(shown) + 0.15,
        f"{fmt.name}: the bits of a code",
        _facts(fmt),
        f"{fmt.name} has {_listed(fmt)}. "
        + " ".join(f"{c:0{fmt.bits}b} is {_value(fmt, c)}." for c in shown),
    )
    axes = place(figure, 0, _TOP, WIDTH, _HEAD + _ROW * len(shown))
    bare(axes)
    axes.set(xlim=(0, WIDTH), ylim=(_HEAD + _ROW * len(shown), 0))
    _head(axes, fmt)
    for n, (code, remark) in enumerate(shown.items()):
        _code(axes, fmt, code, remark, _HEAD + _ROW * n)
    return figure


def _in_a_row(codes: Any, fmt: ElementFormat | ScaleFormat) -> Any:
    """Codes in a row, each one of the format; ValueError otherwise."""
    found = check_codes(codes, fmt.code_count, f"{fmt.name} codes")
    if found.ndim != 1 or not 1 <= found.size <= 32:
        raise ValueError(f"1 … 32 codes in a row are drawn, got shape {found.shape}")
    return found


def _listed(fmt: ElementFormat | ScaleFormat) -> str:
    return ", ".join(f"{count} bit{'s' * (count > 1)} {name}" for name, count in fields_of(fmt))


def fields_of(fmt: ElementFormat | ScaleFormat) -> list[tuple[str, int]]:
    """Names and bits of a format's fields, from the highest bit down.

    >>> from mxfp import E8M0, E4M3, INT8
    >>> fields_of(E4M3), fields_of(E8M0), fields_of(INT8)
    ([('sign', 1), ('exponent', 4), ('mantissa', 3)], [('exponent', 8)], [("two's complement", 8)])
    """
    if isinstance(fmt, ElementFormat) and fmt.twos_complement:
        return [("two's complement", fmt.bits)]
    sign = [("sign", 1)] if isinstance(fmt, ElementFormat) else []
    rest = [("exponent", fmt.exponent_bits), ("mantissa", fmt.mantissa_bits)]
    return sign + [(name, count) for name, count in rest if count]


def _facts(fmt: ElementFormat | ScaleFormat) -> str:
    if isinstance(fmt, ElementFormat) and fmt.twos_complement:
        return f"an integer in units of {power(fmt.lsb_exponent)}"
    if isinstance(fmt, ScaleFormat) and fmt.power_of_two:
        return f"2 to the power of code − {fmt.bias}; no sign, no zero"
    sign = "±" if isinstance(fmt, ElementFormat) else ""
    normal = f"{sign}2^(exponent − {fmt.bias}) · 1.mantissa"
    return f"{normal}; exponent 0: {sign}{power(1 - fmt.bias)} · 0.mantissa"


def _head(axes: Axes, fmt: ElementFormat | ScaleFormat) -> None:
    """The fields' names over their bits, and the bits' numbers."""
    x = _LEFT
    for name, count in fields_of(fmt):
        middle = x + count * _BOX / 2
        axes.plot([x + 0.02, x + count * _BOX - 0.02], [0.22, 0.22], color=INK, linewidth=1.4)
        shown = name if count > 2 or len(name) < 5 else {"exponent": "exp.", "mantissa": "man."}[name]
        axes.text(middle, 0.17, shown, ha="center", va="bottom", fontsize=SMALL)
        x += count * _BOX
    if fmt.bits < 8 and isinstance(fmt, ScaleFormat):
        remark = "in a byte whose bit 7 is 0"
        axes.text(WIDTH - 0.08, 0.17, remark, ha="right", va="bottom", fontsize=SMALL, color=GREY)
    for n in range(fmt.bits):
        axes.text(
            _LEFT + (n + 0.5) * _BOX,
            0.48,
            str(fmt.bits - 1 - n),
            ha="center",
            va="bottom",
            fontsize=SMALL - 0.5,
            color=GREY,
        )


def _code(axes: Axes, fmt: ElementFormat | ScaleFormat, code: int, remark: str, top: float) -> None:
    """A code's bits in boxes, and its value."""
    from matplotlib.patches import Rectangle

    fills = [BOXES[name] for name, count in fields_of(fmt) for _ in range(count)]
    for n, (fill, digit) in enumerate(zip(fills, f"{code:0{fmt.bits}b}", strict=True)):
        x = _LEFT + n * _BOX
        axes.add_patch(Rectangle((x, top), _BOX, 0.28, facecolor=fill, edgecolor=INK, linewidth=0.7))
        axes.text(
            x + _BOX / 2, top + 0.145, digit, ha="center", va="center", family="monospace", fontsize=TEXT
        )
    x = _LEFT + fmt.bits * _BOX + 0.12
    axes.text(x, top + 0.145, f"= {_value(fmt, code)}", va="center", fontsize=TEXT)
    axes.text(WIDTH - 0.08, top + 0.145, remark, va="center", ha="right", fontsize=SMALL, color=GREY)


def _value(fmt: ElementFormat | ScaleFormat, code: int) -> str:
    """What a code's value is made of, and the value where it is a short decimal."""
    value = float(fmt.values[code])
    decimal = number(value, 17)
    if value == 0 or not np.isfinite(value):
        return decimal
    if isinstance(fmt, ScaleFormat):
        count, exponent = int(fmt.significands[code]), int(fmt.exponents[code])
        made = power(exponent) if fmt.power_of_two else f"{count} · {power(exponent)}"
    elif fmt.twos_complement:
        made = f"{number(float(fmt.integers[code]))} · {power(fmt.lsb_exponent)}"
    else:
        exponent = int(fmt.exponents[code])
        made = f"{number(float(np.ldexp(value, -exponent)))} · {power(exponent)}"
    return f"{made} = {decimal}" if len(decimal) <= 9 else made


def _telling(fmt: ElementFormat | ScaleFormat) -> dict[int, str]:
    """Codes that show what a format can do, each with what it is."""
    found: dict[int, str] = {}

    def add(code: int | None, remark: str) -> None:
        if code is not None:
            found[code] = f"{found[code]}, {remark}" if code in found else remark

    if isinstance(fmt, ScaleFormat):
        add(0, "zero" if fmt.has_zero else "smallest")
        add(1 if fmt.has_zero else None, "smallest")
        for value in (0.5, 1.0, 1.5):
            match = np.flatnonzero(fmt.values == value)
            add(int(match[0]) if match.size else None, "")
        add(fmt.nan_code - 1, "largest")
        add(fmt.nan_code, "the only NaN")
        return found
    add(0, "zero")
    add(1, "smallest")
    if not fmt.twos_complement:
        normal = int(np.flatnonzero(fmt.magnitudes == fmt.smallest_normal)[0])
        add(normal - 1, "largest subnormal")
        add(normal, "smallest normal")
    add(int(np.flatnonzero(fmt.magnitudes == 1.0)[0]), "one")
    add(fmt.magnitudes.size - 1, "largest")
    add(int(fmt.negated[-1]), "its negative")
    if fmt.twos_complement:
        add(fmt.code_count // 2, "never produced")
    else:
        add(fmt.code_count // 2, "minus zero")
    infinite = np.flatnonzero(np.isposinf(fmt.values))
    add(int(infinite[0]) if infinite.size else None, "infinity")
    add(fmt.nan_code, "NaN")
    return found
