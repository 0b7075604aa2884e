# SPDX-License-Identifier: Apache-2.0
"""The printed page: formats, one block's journey and one dot product's, as rich tables.

Front of house, beside `cli`: it prints what the rooms computed and computes nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table

from .accumulate import Fixed, Step
from .blocks import BlockArray, dequantize
from .draw.fates import fates
from .floats import to_float64
from .formats import BLOCK_FORMATS, ELEMENT_FORMATS, ElementFormat, ScaleFormat
from .integers import sum_width
from .report.tables import Table as TextTable
from .scale import scale_factors
from .trace import Trace


def put_table(
    console: Console, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], remark: str = ""
) -> None:
    """Print a table, columns of words to the left and columns of numbers to the right, and a remark."""
    made = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    filled = [tuple(row) for row in rows]
    for n, column in enumerate(columns):
        words = any(row[n][:1].isalpha() or " " in row[n].strip() for row in filled)
        made.add_column(column, justify="left" if words or not n else "right", overflow="fold")
    for row in filled:
        made.add_row(*row)
    console.print(made)
    if remark:
        console.print(f"({remark})", highlight=False)


def print_text_table(console: Console, text: TextTable) -> None:
    """Print a table of the report."""
    put_table(console, text.title, text.columns, text.rows, text.remark)
    console.print()


def print_report(console: Console, headline: str, attribution: str, texts: Iterable[TextTable]) -> None:
    """Print a report: what it is of, where the data are from, and its tables."""
    console.print(headline, highlight=False)
    if attribution:
        console.print(f"Data: {attribution}", highlight=False)
    console.print()
    for text in texts:
        print_text_table(console, text)


def bits(code: int, width: int, exponent_bits: int = 0) -> str:
    """A code in binary, its fields apart: sign, exponent, mantissa."""
    digits = f"{code:0{width}b}"
    if not exponent_bits:
        return digits
    return f"{digits[0]} {digits[1 : 1 + exponent_bits]} {digits[1 + exponent_bits :]}".strip()


def formats(console: Console) -> None:
    """Print the block formats and their element formats."""
    put_table(
        console,
        "Block formats",
        ("name", "element", "block", "scale", "bits/element", "bits of 32-term sums"),
        (
            (
                f.name,
                f.element.name,
                str(f.block),
                f.scale.name,
                f"{f.bits_per_element:g}",
                _width(f.name),
            )
            for f in BLOCK_FORMATS.values()
        ),
    )
    put_table(
        console,
        "Element formats",
        ("name", "fields", "bias", "max", "emax", "normal from", "smallest", "LSB", "NaN", "inf"),
        (
            (
                f.name,
                f"1+{f.exponent_bits}+{f.mantissa_bits}" if not f.twos_complement else "two's 8",
                str(f.bias) if not f.twos_complement else "-",
                f"{f.max:g}",
                str(f.emax),
                f"2^{1 - f.bias}" if not f.twos_complement else "-",
                f"2^{f.lsb_exponent}",
                f"2^{f.lsb_exponent}",
                "yes" if f.nan_code is not None else "no",
                "yes" if np.isinf(f.values).any() else "no",
            )
            for f in ELEMENT_FORMATS.values()
        ),
        "mxfp formats NAME prints every code of one",
    )


def _width(name: str) -> str:
    element = BLOCK_FORMATS[name].element
    return str(sum_width(element, element, 32))


def codes_of(console: Console, fmt: ElementFormat | ScaleFormat) -> None:
    """Print every code of one format."""
    if isinstance(fmt, ScaleFormat):
        rows: Iterable[tuple[str, ...]] = (
            (f"{c:02x}", bits(c, 8), str(fmt.significands[c]), f"2^{fmt.exponents[c]}", f"{fmt.values[c]:g}")
            for c in range(fmt.code_count)
        )
        columns: tuple[str, ...] = ("code", "bits", "significand", "times", "value")
    else:
        exponent = 0 if fmt.twos_complement else fmt.exponent_bits
        rows = (
            (
                f"{c:0{(fmt.bits + 3) // 4}x}",
                bits(c, fmt.bits, exponent),
                str(fmt.integers[c]) if fmt.finite[c] else "-",
                f"{fmt.values[c]:g}",
            )
            for c in range(fmt.code_count)
        )
        columns = ("code", "bits", f"integer, of 2^{fmt.lsb_exponent}", "value")
    put_table(console, f"{fmt.name}, every code", columns, rows)


def block_journey(console: Console, x: NDArray[Any], q: BlockArray, rounding: str) -> None:
    """Print what quantizing did to a vector, block by block, element by element."""
    fmt = q.format
    exact = to_float64(x)
    values = dequantize(q, dtype=np.float64, engine="reference")
    factors = scale_factors(q.scales, fmt.scale, q.tensor_scale)
    for n, code in enumerate(q.scales.tolist()):
        part = slice(n * fmt.block, min((n + 1) * fmt.block, x.size))
        console.print(_block_title(n, code, exact[part], q, rounding))
        rows = []
        became = fates(exact[part], values[part], float(factors[n]), fmt.element)
        for v, c, value, fate in zip(exact[part], q.codes[part].tolist(), values[part], became, strict=True):
            rows.append(
                (
                    f"{v:.9g}",
                    f"{v / factors[n]:.6g}",
                    f"{c:0{(fmt.element.bits + 3) // 4}x}",
                    bits(
                        c, fmt.element.bits, 0 if fmt.element.twos_complement else fmt.element.exponent_bits
                    ),
                    str(fmt.element.integers[c]),
                    f"{value:.9g}",
                    f"{value - v:.3g}",
                    fate,
                )
            )
        columns = (
            "x",
            "x / scale",
            "code",
            "bits",
            f"integer (of 2^{fmt.element.lsb_exponent})",
            "value",
            "error",
            "",
        )
        put_table(console, "", columns, rows)


def _block_title(n: int, code: int, part: NDArray[np.float64], q: BlockArray, rounding: str) -> str:
    fmt = q.format
    finite = np.abs(part[np.isfinite(part)])
    amax = float(finite.max()) if finite.size else 0.0
    scale = fmt.scale
    if not scale.finite[code]:
        shown = "NaN"
    elif scale.mantissa_bits:
        shown = f"{scale.significands[code]} * 2^{scale.exponents[code]} = {scale.values[code]:g}"
    else:
        shown = f"2^{scale.exponents[code]} = {scale.values[code]:g}"
    tensor = f", tensor scale {q.tensor_scale:g}" if fmt.tensor_scale else ""
    return (
        f"{fmt.name} block {n}: amax {amax:g}, rule {q.scale_rule}: scale code {code} (0x{code:02x}) = "
        f"{shown}{tensor}; rounding {rounding}"
    )


def dot_journey(console: Console, t: Trace) -> None:
    """Print a Trace: codes, integers, products, adder tree, terms, accumulator, result."""
    a, b, terms = t.a.format, t.b.format, t.terms
    lsb = a.element.lsb_exponent + b.element.lsb_exponent
    per_block = a.block // t.group
    for n in range(len(terms)):
        block = n // per_block
        k = slice(n * t.group, min((n + 1) * t.group, t.a.shape[0]))
        console.print(
            f"Term {n}: block {block}, scale codes {t.a.scales[block]} and {t.b.scales[block]}"
            + (f", products {k.start} … {k.stop - 1}" if per_block > 1 else "")
        )
        units = f"2^{a.element.lsb_exponent} and 2^{b.element.lsb_exponent}"
        remark = f"a and b as integers in units of {units}, products of 2^{lsb}"
        count = k.stop - k.start
        if count > 8:
            columns: tuple[str, ...] = ("k", "a", "b", "a bits", "b bits", "product")
            put_table(console, "", columns, _products(t, n, k), remark)
        else:
            columns = ("", *(str(i) for i in range(k.start, k.stop)))
            put_table(console, "", columns, _products_across(t, n, k), remark)
        if t.levels:
            put_table(
                console,
                f"Adder tree of term {n}",
                ("level", "signed bits", "values"),
                [
                    (
                        f"{values.shape[1]} sum{'s' * (values.shape[1] > 1)}",
                        str(w),
                        " ".join(map(str, values[n].tolist())),
                    )
                    for values, w in zip(t.levels, t.level_widths[1:], strict=True)
                ],
            )
        console.print(
            f"term = {terms.sums[..., n]} * 2^{terms.exponents[..., n]} = {_number(terms.fractions()[n])}\n"
        )
    put_table(
        console,
        f"Accumulator {t.accumulator}",
        ("step", "adds", "state"),
        [(step.label, _added(step), _state(step.state)) for step in t.steps],
    )
    digits = np.asarray(t.result).dtype.itemsize * 2
    console.print(
        f"result {float(t.result)!r}, bits 0x{t.result_bits:0{digits}x} ({np.asarray(t.result).dtype.name})"
    )
    if terms.specials is None:
        exact = (
            sum(terms.fractions().tolist(), Fraction(0)) * terms.factor[0] * Fraction(2) ** terms.factor[1]
        )
        console.print(f"exact  {_number(exact)}")


def _products(t: Trace, n: int, k: slice) -> list[tuple[str, ...]]:
    a, b = t.a.format.element, t.b.format.element
    return [
        (
            str(i),
            str(t.a_integers[n, i - k.start]),
            str(t.b_integers[n, i - k.start]),
            bits(int(t.a.codes[i]), a.bits, 0 if a.twos_complement else a.exponent_bits),
            bits(int(t.b.codes[i]), b.bits, 0 if b.twos_complement else b.exponent_bits),
            str(t.products[n, i - k.start]),
        )
        for i in range(k.start, k.stop)
    ]


def _products_across(t: Trace, n: int, k: slice) -> list[tuple[str, ...]]:
    count = k.stop - k.start
    rows = (("a", t.a_integers), ("b", t.b_integers), ("product", t.products))
    return [(name, *(str(v) for v in values[n, :count])) for name, values in rows]


def _number(x: Fraction) -> str:
    """A fraction as a decimal where that is short, else as a power-of-two quotient."""
    as_float = float(x) if abs(x) < Fraction(2) ** 1000 else None
    if as_float is not None and Fraction(as_float) == x:
        return f"{as_float:.17g}"
    return f"{x.numerator} / 2^{x.denominator.bit_length() - 1}" if x.denominator > 1 else str(x)


def _added(step: Step) -> str:
    if step.added is None:
        return ""
    integers, exponents = np.broadcast_arrays(step.added.integers, step.added.exponent)
    return "  ".join(
        f"{i} * 2^{e}" for i, e in zip(integers.ravel().tolist(), exponents.ravel().tolist(), strict=True)
    )


def _state(state: Any) -> str:
    if isinstance(state, Fixed):
        return f"{state.integers} * 2^{state.exponent}"
    return " ".join(f"{float(v):.9g}" for v in np.asarray(state).ravel())
