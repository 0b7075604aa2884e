# SPDX-License-Identifier: Apache-2.0
"""One case that went wrong, in words: where it differs, what came, what should have, and the operands."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

import numpy as np

from .check.failure import operands, shown_steps
from .unit import Batch

STAGES: Final = ("product", "level", "sum", "exponent", "special", "term", "result")
"""The order of the stages, in which the first that differs is looked for."""


def stage_order(name: str) -> tuple[int, int]:
    """A stage's place on the way from products to the result; level2 stands behind level1."""
    word = name.rstrip("0123456789")
    if word not in STAGES:
        raise ValueError(
            f"{name!r} is no stage; stages are product, level1, level2 … and {', '.join(STAGES[2:])}"
        )
    return STAGES.index(word), int(name[len(word) :] or 0)


class Undefined:
    """A value with X or Z bits, as the simulator writes it, in binary."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return f"{self.text} (undefined bits)"


Value = int | Undefined
"""What a pin holds: bits as an unsigned integer, or some of them unknown."""


@dataclass(frozen=True)
class Mismatch:
    """One case that went wrong: at which stage, where in it, and what it should have been.

    stage: the first that differs, or "missing" (never answered), "unasked" (a result for no case).
    """

    number: int
    tag: Hashable
    stage: str
    index: int
    got: str
    wanted: str
    operands: str = ""

    def __str__(self) -> str:
        """All of it, on some lines."""
        case = f"case {self.number}" + ("" if self.tag is None else f" (tag {self.tag})")
        if self.stage == "missing":
            return f"{case}: no result came; expected {self.wanted}\n{self.operands}"
        if self.stage == "unasked":
            return f"a result without a case{'' if self.tag is None else f', tag {self.tag}'}: {self.got}"
        where = f"{self.stage}[{self.index}]" if self.stage != "result" else "result"
        return f"{case}: {where} is {self.got}, expected {self.wanted}\n{self.operands}"


def described(batch: Batch, row: int) -> str:
    """The operands of a case in lines; of a running unit, all steps since the accumulator was cleared."""
    if batch.unit.kind != "running":
        return "\n".join(f"  {line}" for line in operands(batch, row))
    begin = int(np.flatnonzero(batch.first[: row + 1])[-1])
    steps = shown_steps(row + 1 - begin)
    lines = [f"  {steps.start} steps before these"] if steps.start else []
    for step in steps:
        lines.append(f"  step {step}{'' if step else ', first'}")
        lines += [f"    {line}" for line in operands(batch, begin + step)]
    return "\n".join(lines)
