# SPDX-License-Identifier: Apache-2.0
"""Behaviours of products and of the adder tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....integers import saturate, wrap
from ...unit import Unit
from ..flow import Change, Flow, Named, on


def levels(unit: Unit) -> Named:
    """Adders that are too narrow, forget a carry or a sign, at every level."""
    widths = unit.level_bits
    for number in range(len(widths) - 1, 0, -1):
        name, full = f"level{number}", widths[number]
        for width in range(full - 1, max(full - 4, 1), -1):
            yield (
                f"{name}-wraps-{width}",
                f"sums of adder level {number} wrap to {width} bits",
                *_at(number, _to(wrap, width)),
            )
            yield (
                f"{name}-saturates-{width}",
                f"sums of adder level {number} saturate at {width} bits",
                *_at(number, _to(saturate, width)),
            )
        for width in (full, full - 1):
            yield (
                f"{name}-unsigned-{width}",
                f"{width}-bit sums of adder level {number} are filled up with zeros, not with their sign",
                *_at(number, _unsigned(width)),
            )
        yield (
            f"{name}-addends-unsigned",
            f"adder level {number} fills its addends up with zeros, not with their signs",
            "level",
            _addends_unsigned(number, widths),
        )
        for bit in range(1, full):
            yield (
                f"{name}-carry-{bit}",
                f"no carry into bit {bit} in the adders of level {number}",
                "level",
                _no_carry(number, bit),
            )
    yield "sum-negated", "the sum has the opposite sign", "sum", on("sums", np.negative)
    yield "sum-magnitude", "the sum loses its sign", "sum", on("sums", np.abs)
    for by, about in ((-1, "too low"), (1, "too high")):
        yield f"negative-sum{by:+d}", f"a negative sum is one {about}", "sum", on("sums", _below(by))


def products(unit: Unit) -> Named:
    """Products that are too narrow, or wrong for some factors."""
    full = unit.level_bits[0]
    for width in range(full - 1, 4, -1):
        yield (
            f"products-wrap-{width}",
            f"products wrap to {width} bits",
            "products",
            on("products", _to(wrap, width)),
        )
        yield (
            f"products-saturate-{width}",
            f"products saturate at {width} bits",
            "products",
            on("products", _to(saturate, width)),
        )
    for bit in range(3):
        yield (
            f"products-bit{bit}-lost",
            f"bit {bit} of the magnitude of every product is 0",
            "products",
            on("products", _without(bit)),
        )
    if max(fmt.element.code_count for fmt in unit.sides) > 16:
        return
    for small, text in ((1, "±0.5"), (3, "±1.5")):
        for sides, where in (("ab", ""), ("a", " of a"), ("b", " of b")):
            for what, factor in (("0", 0), ("half", 1), ("twice", 4)):
                yield (
                    f"product-of-{text[1:]}-{what}{'-' + sides if len(sides) == 1 else ''}",
                    f"{text}{where} times ±2, 3, 4, 6 is {what}" + (" of it" if what == "half" else ""),
                    "products",
                    _small_times_large(small, sides, factor),
                )


Function = Callable[[NDArray[Any]], NDArray[Any]]


def _to(function: Callable[[Any, int], Any], width: int) -> Function:
    return lambda x: np.asarray(function(x, width))


def _unsigned(width: int) -> Function:
    return lambda x: x & ((1 << width) - 1)


def _below(by: int) -> Function:
    return lambda x: np.where(x < 0, x + by, x)


def _without(bit: int) -> Function:
    return lambda x: np.sign(x) * (np.abs(x) & ~(1 << bit))


def _at(number: int, function: Function) -> tuple[Any, Change]:
    def change(flow: Flow) -> None:
        if flow.number == number:
            flow.level = function(flow.level)

    return "level", change


def _addends(flow: Flow) -> tuple[NDArray[Any], NDArray[Any], int]:
    """Left and right of every adder of the level that was just added, and how many adders there are."""
    below = flow.products if flow.number == 1 else flow.stages[f"level{flow.number - 1}"]
    below = below.reshape(*flow.level.shape[:-1], -1)
    pairs = below.shape[-1] // 2
    return below[..., 0 : 2 * pairs : 2], below[..., 1 : 2 * pairs : 2], pairs


def _addends_unsigned(number: int, widths: tuple[int, ...]) -> Change:
    def change(flow: Flow) -> None:
        if flow.number != number:
            return
        left, right, pairs = _addends(flow)
        mask = (1 << widths[number - 1]) - 1
        flow.level = flow.level.copy()
        flow.level[..., :pairs] = wrap((left & mask) + (right & mask), widths[number])

    return change


def _no_carry(number: int, bit: int) -> Change:
    def change(flow: Flow) -> None:
        if flow.number != number:
            return
        left, right, pairs = _addends(flow)
        mask = (1 << bit) - 1
        flow.level = flow.level.copy()
        flow.level[..., :pairs] -= ((left & mask) + (right & mask)) >> bit << bit

    return change


def _small_times_large(small: int, sides: str, factor: int) -> Change:
    """Products of that integer and one of 4 or more times half of `factor`."""

    def change(flow: Flow) -> None:
        wrong = np.zeros(flow.x.shape, np.bool_)
        for side, one, other in (("a", flow.x, flow.y), ("b", flow.y, flow.x)):
            if side in sides:
                wrong |= (np.abs(one) == small) & (np.abs(other) >= 4)
        flow.products = np.where(wrong, flow.products * factor // 2, flow.products)

    return change
