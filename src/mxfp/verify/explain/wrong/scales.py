# SPDX-License-Identifier: Apache-2.0
"""Behaviours of scales: exponents that wrap, scales of another block or case."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ....formats import Integers
from ....integers import saturate, wrap
from ...unit import Unit
from ..flow import Change, Flow, Named, on


def exponents(unit: Unit) -> Named:
    """The exponent of a term: off by some, wrapped, saturated."""
    if not unit.scaled:
        return
    a, b = unit.sides
    lsb = a.element.lsb_exponent + b.element.lsb_exponent
    for off in (1, -1, 2, -2, 3, -3):
        yield (
            f"exponent{off:+d}",
            f"every term is multiplied by 2^{off}",
            "exponent",
            _exponent(lambda e: e, off),
        )
    if not (a.scale.power_of_two and b.scale.power_of_two):
        return
    bias = a.scale.bias + b.scale.bias
    for width in (8, 7):
        for offset, what in ((0, "sum"), (lsb, "scales")):
            of = "the sum's LSB" if what == "sum" else "both scales"
            yield (
                f"exponent-wraps-{width}-{what}",
                f"the exponent of {of} wraps to {width} signed bits",
                "exponent",
                _exponent(_wrapped(width), 0, offset),
            )
            yield (
                f"exponent-saturates-{width}-{what}",
                f"the exponent of {of} saturates at {width} signed bits",
                "exponent",
                _exponent(_saturated(width), 0, offset),
            )
    for width in (8, 7):
        for offset, name, about in (
            (lsb - bias // 2, "biased", f"the codes of both scales, less {bias // 2}, are"),
            (lsb - bias, "codes", "the codes of both scales, added, are"),
        ):
            yield (
                f"{name}-wrap-{width}",
                f"{about} kept in {width} bits",
                "exponent",
                _exponent(_masked(width), 0, offset),
            )
    for most in (254, 255):
        yield (
            f"scale-product-within-{most}",
            f"the product of both scales is clamped to scale codes 0 … {most}",
            "exponent",
            _exponent(_clamped(most), 0, lsb - bias // 2),
        )
    yield (
        "codes-saturate-255",
        "the codes of both scales, added, stop at 255",
        "exponent",
        _exponent(_clamped(255), 0, lsb - bias),
    )
    yield (
        "exponent-not-negative",
        "negative exponents count as 0",
        "exponent",
        _exponent(_clamped(1 << 20), 0, lsb),
    )
    yield "exponent-magnitude", "exponents lose their sign", "exponent", _exponent(np.abs, 0, lsb)


Function = Callable[[Integers], NDArray[np.int64]]


def _exponent(function: Function, add: int, offset: int = 0) -> Change:
    return on("exponents", lambda e: function(e - offset) + offset + add)


def _wrapped(width: int) -> Function:
    return lambda e: np.asarray(wrap(e, width))


def _saturated(width: int) -> Function:
    return lambda e: np.asarray(saturate(e, width))


def _masked(width: int) -> Function:
    return lambda e: e & ((1 << width) - 1)


def _clamped(most: int) -> Function:
    return lambda e: np.clip(e, 0, most)


def scales(unit: Unit) -> Named:
    """Scales that are ignored, swapped, or another block's or case's."""
    if not unit.scaled:
        return
    formats = dict(zip("ab", unit.sides, strict=True))
    for side, other in (("a", "b"), ("b", "a")):
        one = int(np.nanargmin(np.abs(formats[side].scale.values - 1)))
        yield (
            f"scale-{side}-ignored",
            f"the scale of {side} counts as 1",
            "codes",
            on(f"scales_{side}", _constant(one)),
        )
        if formats["a"].scale == formats["b"].scale:
            yield (
                f"scale-{side}-for-both",
                f"the scale of {side} is taken for {other} too",
                "codes",
                (_taken(f"scales_{other}", f"scales_{side}")),
            )
            yield (
                f"exponent-{side}-for-both",
                f"the exponent of scale {side} counts twice, that of {other} not",
                "exponent",
                _twice(unit, side),
            )
        if formats[side].scale.power_of_two:
            yield f"scale-{side}-0-is-zero", f"scale code 0 of {side} counts as 0", "sum", _zero_code(side)
            yield f"scale-{side}-0-is-1", f"scale code 0 of {side} is read as 1", "exponent", _low_code(side)
            yield (
                f"scale-{side}-254-is-nan",
                f"scale code 254 of {side} is taken for NaN",
                "special",
                (_top_code(side)),
            )
    if formats["a"].scale != formats["b"].scale:
        yield "scales-swapped", "the scales of a and b are swapped", "codes", _swapped(unit)
    if unit.blocks > 1:
        for sides in ("a", "b", "ab"):
            names = tuple(f"scales_{side}" for side in sides)
            for what, about, order in _block_orders(unit.blocks):
                yield (
                    f"scale-{sides}-{what}",
                    f"scale{'s' * (len(sides) > 1)} of {' and '.join(sides)}: {about}",
                    "codes",
                    _reordered(names, order),
                )
    for when, word in (("previous", "before"), ("following", "after")):
        for names in (("scales_a",), ("scales_b",), ("scales_a", "scales_b"), ("codes_a",), ("codes_b",)):
            name = names[0].replace("_", "-") if len(names) == 1 else "scales"
            yield (
                f"{name}-of-case-{word}",
                f"{' and '.join(names)} are those of the case {word}",
                "codes",
                (_late(when, names)),
            )


def _block_orders(blocks: int) -> list[tuple[str, str, Integers]]:
    order = np.arange(blocks)
    return [
        ("of-next-block", "each block has that of the next", np.roll(order, -1)),
        ("of-block-before", "each block has that of the one before", np.roll(order, 1)),
        ("reversed", "in reverse order", order[::-1]),
        ("of-first-block", "every block has that of the first", 0 * order),
        ("of-last-block", "every block has that of the last", 0 * order + blocks - 1),
    ]


def _constant(code: int) -> Callable[[NDArray[np.uint8]], NDArray[np.uint8]]:
    return lambda codes: np.full_like(codes, code)


def _taken(name: str, other: str) -> Change:
    return lambda flow: setattr(flow, name, getattr(flow, other))


def _twice(unit: Unit, side: str) -> Change:
    def change(flow: Flow) -> None:
        a, b = unit.sides
        own, other = (a.scale.exponents[flow.scales_a], b.scale.exponents[flow.scales_b])
        flow.exponents = flow.exponents + (own - other if side == "a" else other - own)

    return change


def _zero_code(side: str) -> Change:
    def change(flow: Flow) -> None:
        flow.sums = np.where(getattr(flow, f"scales_{side}") == 0, 0, flow.sums)

    return change


def _low_code(side: str) -> Change:
    def change(flow: Flow) -> None:
        flow.exponents = flow.exponents + (getattr(flow, f"scales_{side}") == 0)

    return change


def _top_code(side: str) -> Change:
    def change(flow: Flow) -> None:
        flow.special = np.where(getattr(flow, f"scales_{side}") == 254, np.nan, flow.special)

    return change


def _swapped(unit: Unit) -> Change:
    def change(flow: Flow) -> None:
        a, b = unit.sides
        flow.scales_a, flow.scales_b = (
            np.minimum(flow.scales_b, a.scale.code_count - 1),
            np.minimum(flow.scales_a, b.scale.code_count - 1),
        )

    return change


def _reordered(names: tuple[str, ...], order: Integers) -> Change:
    def change(flow: Flow) -> None:
        for name in names:
            setattr(flow, name, getattr(flow, name)[:, order])

    return change


def _late(when: str, names: tuple[str, ...]) -> Change:
    def change(flow: Flow) -> None:
        other = getattr(flow, when)
        for name in names if other is not None else ():
            setattr(flow, name, getattr(other, name).reshape(getattr(flow, name).shape))

    return change
