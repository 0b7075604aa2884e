# SPDX-License-Identifier: Apache-2.0
"""Cases put together one after the other, each sequence as it runs, into one batch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...formats import Codes
from ..unit import Batch, Unit

PARTS = ("codes_a", "codes_b", "scales_a", "scales_b", "first")


@dataclass
class Sequences:
    """A batch in the making: cases that are first, and sequences of other batches."""

    unit: Unit
    parts: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in PARTS})

    def add_case(self, codes_a: Codes, codes_b: Codes, scales_a: Codes, scales_b: Codes) -> None:
        """One case, which is first."""
        cases = (codes_a, codes_b, scales_a, scales_b, np.True_)
        for name, values in zip(PARTS, cases, strict=True):
            self.parts[name].append(np.asarray(values)[None])

    def add_rows(self, batch: Batch) -> None:
        """All cases of a batch."""
        for name in PARTS:
            self.parts[name].append(getattr(batch, name))

    def batch(self, group: str = "fill") -> Batch:
        """All of them in order, as one group."""
        shapes = {"codes": self.unit.elements, "scales": self.unit.blocks}
        found: dict[str, Any] = {}
        for name, values in self.parts.items():
            width = shapes.get(name.partition("_")[0])
            shape = (0,) if width is None else (0, width)
            kind = np.bool_ if width is None else np.uint8
            found[name] = np.concatenate([np.zeros(shape, kind), *values])
            if name.startswith("scales") and not self.unit.scaled:
                found[name] = found[name][:, :0]
        count = len(found["first"])
        return Batch(self.unit, **found, group=np.zeros(count, np.int64), groups=(group,))


def joined(batch: Batch) -> Batch:
    """The batch, numbered from 0."""
    return replace(batch, start=0)
