# SPDX-License-Identifier: Apache-2.0
"""Behaviours of lanes: in another order, with a wrong sign, missing or doubled.

Orders are of one side alone: what happens to both sides alike does not show in a sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ....formats import Bools, Integers
from ...unit import Unit
from ..flow import Change, Flow, Named

SIGNS: Final[tuple[tuple[str, str, Callable[[Bools, Bools], Bools]], ...]] = (
    ("inverted", "is inverted", lambda s, t: ~(s ^ t)),
    ("of-a", "is that of a alone", lambda s, t: s),
    ("of-b", "is that of b alone", lambda s, t: t),
    ("lost", "is always +", lambda s, t: np.zeros_like(s)),
    ("or", "is - if either factor is negative", lambda s, t: s | t),
    ("and", "is - if both factors are negative", lambda s, t: s & t),
)


def orders(unit: Unit) -> Named:
    """Lanes and blocks of one side in another order."""
    count = unit.a.block
    lane = np.arange(count)
    found: list[tuple[str, str, Integers]] = [("lanes-reversed", "are reversed", lane[::-1])]
    if count % 2 == 0:
        pairs = lane.reshape(-1, 2)
        found += [
            ("nibbles-swapped", "are swapped in pairs", pairs[:, ::-1].ravel()),
            ("halves-swapped", "have their halves swapped", np.roll(lane, count // 2)),
            ("lanes-interleaved", "are interleaved, even ones first", pairs.T.ravel()),
            ("lanes-deinterleaved", "come from both halves in turns", lane.reshape(2, -1).T.ravel()),
        ]
    if count % 8 == 0:
        eights = lane.reshape(-1, 8)
        found.append(("words-reversed", "are reversed in eights", eights[:, ::-1].ravel()))
        found.append(("word-order-reversed", "have their eights in reverse order", eights[::-1].ravel()))
    found += [
        ("lanes-rotated-up", "are one place too high", np.roll(lane, 1)),
        ("lanes-rotated-down", "are one place too low", np.roll(lane, -1)),
    ]
    for name, about, order in found:
        yield name, f"the lanes of one side {about}", "codes", _ordered(order)
    for first in range(count - 1):
        order = lane.copy()
        order[[first, first + 1]] = order[[first + 1, first]]
        yield (
            f"lanes-{first}-{first + 1}-swapped",
            f"lanes {first} and {first + 1} of one side are swapped",
            "codes",
            _ordered(order),
        )
    if unit.blocks > 1:
        yield (
            "blocks-reversed",
            "blocks are added in reverse order",
            "codes",
            _reversed(("codes_a", "codes_b", "scales_a", "scales_b")),
        )
        yield (
            "blocks-of-one-side-reversed",
            "codes of one side have their blocks reversed",
            "codes",
            (_reversed(("codes_a",))),
        )


def _ordered(order: Integers) -> Change:
    def change(flow: Flow) -> None:
        flow.codes_a = flow.codes_a[:, :, order]

    return change


def _reversed(names: tuple[str, ...]) -> Change:
    def change(flow: Flow) -> None:
        for name in names:
            setattr(flow, name, getattr(flow, name)[:, ::-1])

    return change


def signs(unit: Unit) -> Named:
    """Signs of products, in every lane and in each."""
    for name, about, rule in SIGNS:
        yield f"signs-{name}", f"the sign of every product {about}", "products", _signed(unit, None, rule)
    for lane in range(unit.a.block):
        for name, about, rule in SIGNS:
            yield (
                f"lane{lane}-sign-{name}",
                f"the sign of lane {lane}'s product {about}",
                "products",
                _signed(unit, lane, rule),
            )


def _signed(unit: Unit, lane: int | None, rule: Callable[[Bools, Bools], Bools]) -> Change:
    a, b = (fmt.element.negative for fmt in unit.sides)
    part: Any = slice(None) if lane is None else slice(lane, lane + 1)

    def change(flow: Flow) -> None:
        negative = rule(a[flow.codes_a[..., part]], b[flow.codes_b[..., part]])
        flow.products = flow.products.copy()
        magnitude = np.abs(flow.products[..., part])
        flow.products[..., part] = np.where(negative, -magnitude, magnitude)

    return change


def lanes(unit: Unit) -> Named:
    """Single lanes that are dropped, doubled, or read their neighbour."""
    count = unit.a.block
    for lane in range(count):
        yield f"lane{lane}-dropped", f"lane {lane} counts as 0", "integers", _times(lane, 0)
        yield f"lane{lane}-twice", f"lane {lane} counts twice", "integers", _times(lane, 2)
        for other in (lane - 1, lane + 1):
            for side in "ab" if 0 <= other < count else "":
                yield (
                    f"lane{lane}-{side}-of-{other}",
                    f"lane {lane} reads {side} of lane {other}",
                    "codes",
                    _reads(lane, other, f"codes_{side}"),
                )


def _times(lane: int, factor: int) -> Change:
    def change(flow: Flow) -> None:
        flow.x = flow.x.copy()
        flow.x[..., lane] *= factor

    return change


def _reads(lane: int, other: int, name: str) -> Change:
    def change(flow: Flow) -> None:
        codes = getattr(flow, name).copy()
        codes[..., lane] = codes[..., other]
        setattr(flow, name, codes)

    return change
