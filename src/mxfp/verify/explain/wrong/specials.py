# SPDX-License-Identifier: Apache-2.0
"""Behaviours of NaN scales and of NaN and infinite elements."""

from __future__ import annotations

import numpy as np

from ....formats import Bools
from ...unit import Unit
from ..flow import Change, Flow, Named


def _nan_scales(unit: Unit, flow: Flow, sides: str) -> Bools:
    found = np.zeros(flow.special.shape, np.bool_)
    for side, fmt, codes in zip("ab", unit.sides, (flow.scales_a, flow.scales_b), strict=True):
        if side in sides:
            found |= ~fmt.scale.finite[codes]
    return found


def specials(unit: Unit) -> Named:
    """NaN scales and special elements, ignored or taken for something else."""
    if not unit.scaled:
        return

    def ignored(sides: str) -> Change:
        def change(flow: Flow) -> None:
            lanes = np.zeros(flow.special.shape)
            if flow.lanes_special is not None:
                with np.errstate(invalid="ignore"):
                    lanes = flow.lanes_special.sum(axis=-1)
            others = _nan_scales(unit, flow, "".join(set("ab") - set(sides)))
            flow.special = np.where(others, np.nan, lanes)

        return change

    for sides, what in (("ab", "on both sides"), ("a", "of a"), ("b", "of b")):
        yield (
            f"nan-scale-ignored-{sides}",
            f"the NaN scale {what} counts as a number",
            "special",
            (ignored(sides)),
        )

    def needs_both(flow: Flow) -> None:
        both = _nan_scales(unit, flow, "a") & _nan_scales(unit, flow, "b")
        flow.special = np.where(both, np.nan, 0.0)

    def zero_block(flow: Flow) -> None:
        flow.special = np.where(((flow.x != 0) & (flow.y != 0)).any(axis=-1), flow.special, 0.0)

    def zero_sum(flow: Flow) -> None:
        flow.special = np.where(flow.sums != 0, flow.special, 0.0)

    def zero_term(flow: Flow) -> None:
        flow.sums = np.where(flow.special != 0, 0, flow.sums)
        flow.special = np.zeros_like(flow.special)

    def infinite(flow: Flow) -> None:
        flow.special = np.where(
            np.isnan(flow.special), np.where(flow.sums < 0, -np.inf, np.inf), flow.special
        )

    def elements(flow: Flow) -> None:
        flow.special = np.where(_nan_scales(unit, flow, "ab"), np.nan, 0.0)

    def all_nan(flow: Flow) -> None:
        flow.special = np.where(flow.special != 0, np.nan, 0.0)

    yield "nan-scale-needs-both", "a term is NaN only if both scales are", "special", needs_both
    yield "nan-scale-of-zeros", "a block whose products are all 0 is not NaN", "special", zero_block
    yield "nan-scale-of-zero-sum", "a block whose sum is 0 is not NaN", "special", zero_sum
    yield "nan-scale-is-zero", "a term that is not finite counts as 0", "special", zero_term
    yield "nan-scale-is-infinity", "a term with a NaN scale is infinite", "special", infinite
    if not all(fmt.element.finite.all() for fmt in unit.sides):
        yield "special-elements-zero", "NaN and infinite elements count as 0", "special", elements
        yield "infinite-elements-nan", "infinite elements make NaN", "special", all_nan
