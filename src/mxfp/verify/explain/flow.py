# SPDX-License-Identifier: Apache-2.0
"""Cases on their way through a unit, and what a change of a stage is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...formats import Bools, Codes, Floats, Integers
from ..unit import Batch, Unit
from .addition import Bits

Stage = Literal["codes", "integers", "products", "level", "sum", "exponent", "special", "result"]
"""Where a change is made: after what the stage is named for is there."""


@dataclass
class Flow:
    """Cases on their way through a unit; a change at a stage writes what it alters.

    codes_a, codes_b: (n, blocks, lanes). scales_a, scales_b: (n, blocks). before: (n,) patterns that the
    unit gave for the case before each, or None: then each sequence is followed from its start. previous,
    following: the cases beside each, and result_before, result_after: what is expected of them, for what
    comes late or early; None where that is not known.
    """

    unit: Unit
    codes_a: Codes
    codes_b: Codes
    scales_a: Codes
    scales_b: Codes
    first: Bools
    before: Bits | None = None
    previous: Batch | None = None
    following: Batch | None = None
    result_before: Bits | None = None
    result_after: Bits | None = None
    x: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    y: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    products: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    level: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    number: int = 0
    sums: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    exponents: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    special: Floats = field(default_factory=lambda: np.zeros(0))
    lanes_special: Floats | None = None
    result: Bits = field(default_factory=lambda: np.zeros(0, np.uint64))
    stages: dict[str, NDArray[Any]] = field(default_factory=dict)

    @staticmethod
    def of(batch: Batch, before: Bits | None = None) -> Flow:
        """A batch, its codes cut into blocks."""
        shape = (len(batch), batch.unit.blocks, batch.unit.a.block)
        return Flow(
            batch.unit,
            batch.codes_a.reshape(shape),
            batch.codes_b.reshape(shape),
            batch.scales_a,
            batch.scales_b,
            batch.first,
            before,
        )


Change = Callable[[Flow], None]
Named = Iterator[tuple[str, str, Stage, Change]]
"""Names, descriptions, and what is changed after which stage."""


def on(name: str, function: Callable[[Any], Any]) -> Change:
    """The change that puts function(x) for an array x of the flow."""

    def change(flow: Flow) -> None:
        setattr(flow, name, function(getattr(flow, name)))

    return change
