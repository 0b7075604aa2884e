# SPDX-License-Identifier: Apache-2.0
"""One case that a unit got wrong, with all that shows why, for a person and for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ...formats import Bools
from ..digits import floats_of
from ..unit import Batch, Unit

STEPS: Final = 32
"""Steps of a sequence that are shown: the last ones."""


@dataclass(frozen=True, eq=False)
class Failure:
    """A case that was not as expected.

    batch: the case, and for a running unit its sequence up to it, the case last. stage: the first that
    differs, at element `place` of it. right, got: what is due and what came, by stage, (count,) each; got is
    empty where the unit gave no number, and `said` is what it gave instead.
    """

    batch: Batch
    case: int
    group: str
    seed: int | None
    level: int | None
    stage: str
    place: int
    right: Mapping[str, NDArray[Any]]
    got: Mapping[str, NDArray[Any]]
    said: str = ""

    @property
    def unit(self) -> Unit:
        """What was tested."""
        return self.batch.unit

    @property
    def primary(self) -> str:
        """The stage that a unit gives at the end."""
        return "result" if self.unit.scaled else "sum"

    def as_dict(self) -> dict[str, Any]:
        """For JSON: operands of every step, right and got by stage."""
        last = self.batch
        return {
            "case": self.case,
            "group": self.group,
            "seed": self.seed,
            "level": self.level,
            "stage": self.stage,
            "place": self.place,
            "said": self.said,
            "steps": [
                {
                    "a": last.codes_a[n].tolist(),
                    "b": last.codes_b[n].tolist(),
                    "scale_a": last.scales_a[n].tolist(),
                    "scale_b": last.scales_b[n].tolist(),
                    "first": bool(last.first[n]),
                }
                for n in range(len(last))
            ],
            "expected": {name: values.tolist() for name, values in self.right.items()},
            "got": {name: values.tolist() for name, values in self.got.items()},
        }

    def __str__(self) -> str:
        """Where it is, what was due and what came, and the operands that are not zero."""
        made = "" if self.seed is None else f" (level {self.level}, seed {self.seed})"
        lines = [f"case {self.case} of {self.group}{made}"]
        lines += self._difference()
        if self.stage != self.primary or (self.unit.blocks > 1 and self.stage != "result"):
            lines.append(f"  first differs: {self._stage()}")
        steps = shown_steps(len(self.batch))
        if steps.start:
            lines.append(f"  {steps.start} steps before these")
        for n in steps:
            if self.unit.kind == "running":
                step = self.case - len(self.batch) + 1 + n
                mark = ", first" if self.batch.first[n] else ""
                lines.append(f"  step {n} (case {step}{mark})")
            lines += ["  " + line for line in operands(self.batch, n)]
        return "\n".join(lines)

    def _difference(self) -> list[str]:
        """Expected and got, in hex and in parts."""
        due = int(self.right[self.primary][0])
        if not self.got:
            return [f"  expected {self._digits(due)}  {self._value(due)}", f"  got      {self.said}"]
        came = int(self.got[self.primary][0])
        if due == came:
            return [f"  {self.primary} {self._digits(due)}, as expected"]
        lines = [
            f"  expected {self._digits(due)}  {self._value(due)}",
            f"  got      {self._digits(came)}  {self._value(came)}",
        ]
        if self.unit.scaled:
            far, finite = ulps(self.unit, np.array([due], np.uint64), np.array([came], np.uint64))
            if finite[0]:
                lines.append(f"  {far[0]} ulp{'s' * int(far[0] != 1)} apart")
        else:
            lines.append(f"  {came - due:+d}")
        return lines

    def _digits(self, value: int) -> str:
        if not self.unit.scaled:
            digits = -(-self.unit.sum_bits // 4)
            return f"{value & (1 << 4 * digits) - 1:0{digits}x}"
        return f"{value:0{2 * self.unit.accumulator.result_dtype.itemsize}x}"

    def _value(self, value: int) -> str:
        if not self.unit.scaled:
            return str(value)
        dtype = self.unit.accumulator.result_dtype
        info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
        fraction = int(info.nmant)
        field = value >> fraction & (1 << int(info.nexp)) - 1
        number = float(floats_of(np.array([value], np.uint64), dtype)[0])
        parts = f"sign {value >> (8 * dtype.itemsize - 1)}, exponent {field}, "
        parts += f"fraction {value & (1 << fraction) - 1:0{-(-fraction // 4)}x}"
        return f"{number!r:<24} {parts}"

    def _stage(self) -> str:
        """The first stage that differs, in words."""
        count = len(self.right[self.stage])
        each = count // self.unit.blocks if self.stage != "result" else 1
        block, node = divmod(self.place, each)
        where = f" of block {block}" if self.unit.blocks > 1 else ""
        if self.stage == "product":
            where += f", lane {node}"
        elif self.stage.startswith("level"):
            size = 1 << int(self.stage[5:])
            where += f", lanes {node * size}–{min((node + 1) * size, self.unit.a.block) - 1}"
        due, came = int(self.right[self.stage][self.place]), int(self.got[self.stage][self.place])
        return f"{self.stage}{where}: expected {due}, got {came}"


def shown_steps(count: int) -> range:
    """The steps that are shown of so many."""
    return range(max(0, count - STEPS), count)


def operands(batch: Batch, row: int) -> list[str]:
    """The operands of one case in lines: scales and term of every block, and each lane that is not zero."""
    unit = batch.unit
    a, b = unit.sides
    lanes = a.block
    lines = []
    for block in range(unit.blocks):
        part = slice(block * lanes, (block + 1) * lanes)
        codes_a, codes_b = batch.codes_a[row, part], batch.codes_b[row, part]
        x, y = a.element.integers[codes_a], b.element.integers[codes_b]
        total = int((x * y).sum())
        head = f"block {block}: sum {total}"
        if unit.scaled:
            scale_a, scale_b = int(batch.scales_a[row, block]), int(batch.scales_b[row, block])
            head += f", scales {scale_a} × {scale_b}"
            finite = a.scale.finite[scale_a] and b.scale.finite[scale_b]
            exponent = int(a.scale.exponents[scale_a] + b.scale.exponents[scale_b])
            exponent += a.element.lsb_exponent + b.element.lsb_exponent
            head += f", term {total} · 2^{exponent}" if finite else ", term NaN"
        lines.append(head)
        lines += _lanes(codes_a.tolist(), codes_b.tolist(), unit)
    return lines


def _lanes(codes_a: list[int], codes_b: list[int], unit: Unit) -> list[str]:
    """A line for each run of lanes that hold the same, codes of 0 left out; products of 0 share one."""
    a, b = (fmt.element for fmt in unit.sides)
    digits = -(-max(a.bits, b.bits) // 4)
    runs: list[tuple[int, int, int, int]] = []
    for lane, (one, other) in enumerate(zip(codes_a, codes_b, strict=True)):
        if runs and runs[-1][2:] == (one, other):
            runs[-1] = (runs[-1][0], lane, one, other)
        else:
            runs.append((lane, lane, one, other))
    lines, zeros = [], []
    for first, last, one, other in runs:
        x, y = int(a.integers[one]), int(b.integers[other])
        name = f"lane {first}" if first == last else f"lanes {first}–{last}"
        codes = f"{one:0{digits}x} × {other:0{digits}x}"
        if x * y or not (a.finite[one] and b.finite[other]):
            product = f"{a.values[one]:g} × {b.values[other]:g}  ({x} · {y} = {x * y})"
            lines.append(f"  {name:<11} {codes}  {product}")
        elif one or other:
            zeros.append(f"{name.split()[1]}: {codes}")
    if zeros:
        lines.append(f"  products of 0, by lane: {', '.join(zeros)}")
    return lines


def ulps(unit: Unit, one: NDArray[np.uint64], other: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], Bools]:
    """How many floats apart two patterns are, and where that means something: both are finite."""
    dtype = unit.accumulator.result_dtype
    size = 8 * dtype.itemsize
    info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    infinity = np.uint64(((1 << int(info.nexp)) - 1) << int(info.nmant))
    x, y = (bits & np.uint64((1 << (size - 1)) - 1) for bits in (one, other))
    same_side = (one ^ other) >> np.uint64(size - 1) == 0
    far = np.where(same_side, np.maximum(x, y) - np.minimum(x, y), x + y)
    return far, np.asarray((x < infinity) & (y < infinity))
