# SPDX-License-Identifier: Apache-2.0
"""What wrong cases have in common and no right one has: a hint where no behaviour fits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...formats import Bools
from ..classes import classes_of
from ..unit import expected
from .evidence import Compared

MOST = 4
"""Conditions that are named."""


def common(cases: Compared, wrong: Bools) -> tuple[str, ...]:
    """Conditions that hold in every wrong case and in no right one, the plainest first."""
    if not wrong.any() or wrong.all():
        return ()
    found = [text for text, holds in _conditions(cases) if np.array_equal(holds, wrong)]
    return tuple(found[:MOST])


def _conditions(cases: Compared) -> Iterator[tuple[str, Bools]]:
    batch = cases.batch
    unit = batch.unit
    shape = (len(batch), unit.blocks, unit.a.block)
    a, b = (fmt.element for fmt in unit.sides)
    x, y = a.integers[batch.codes_a].reshape(shape), b.integers[batch.codes_b].reshape(shape)
    right = expected(batch, stages=False)
    for name, holds in classes_of(unit, right):
        yield f"the result is {name}", holds
    for lane in range(unit.a.block):
        live = ((x[..., lane] != 0) & (y[..., lane] != 0)).any(axis=1)
        yield f"lane {lane} is not zero", live
        both = batch.codes_a.reshape(shape)[..., lane] | batch.codes_b.reshape(shape)[..., lane]
        yield f"lane {lane} has a code other than 0", _any(both != 0)
    for side, fmt, codes in (("a", a, batch.codes_a), ("b", b, batch.codes_b)):
        if fmt.code_count <= 256:
            for code in range(fmt.code_count):
                yield f"{side} has code {code} ({fmt.values[code]:g})", _any(codes == code)
    sums = right["sum"]
    for limit in (
        0,
        *(1 << bits for bits in range(4, unit.sum_bits)),
        *(1 - (1 << bits) for bits in range(4, unit.sum_bits)),
    ):
        yield f"a sum is {limit} or more", _any(sums >= limit)
        yield f"a sum is less than {limit}", _any(sums < limit)
    if not unit.scaled:
        return
    for side, scales in (("a", batch.scales_a), ("b", batch.scales_b)):
        for code in np.unique(scales).tolist():
            yield f"a scale of {side} is {code}", _any(scales == code)
    if unit.sides[0].scale.power_of_two and unit.sides[1].scale.power_of_two:
        total = batch.scales_a.astype(np.int64) + batch.scales_b
        for limit in np.unique(total).tolist():
            yield f"the scale codes of a block add up to {limit} or more", _any(total >= limit)
            yield f"the scale codes of a block add up to {limit} or less", _any(total <= limit)
    if unit.kind == "running":
        yield "the case is first", batch.first
        yield "the case is not first", ~batch.first


def _any(holds: Any) -> Bools:
    """(n, …) -> (n,) whether it holds anywhere in a case."""
    return np.asarray(np.any(holds, axis=1))
