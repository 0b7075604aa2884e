# SPDX-License-Identifier: Apache-2.0
"""The smallest case that fails, as a line of vectors, as Python, and as an initial block of SystemVerilog."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...formats import BLOCK_FORMATS, BlockFormat
from ..check.failure import operands
from ..layout import PLAIN, Adapter, line_fields, lines
from ..unit import Batch, Unit, expected


@dataclass(frozen=True, eq=False)
class Shrunk:
    """A case of as few steps, blocks and lanes as fail.

    batch: its steps, the last of which is wrong. right: bits that are due; got: that came, None for X or Z.
    runs: how often the unit was run. note: what else is to be known.
    """

    batch: Batch
    right: int
    got: int | None
    runs: int
    note: str = ""

    @property
    def unit(self) -> Unit:
        """What was tested."""
        return self.batch.unit

    @property
    def nonzero(self) -> int:
        """Lanes that are not zero, in all steps together."""
        return int(np.count_nonzero(self.batch.codes_a | self.batch.codes_b))

    def digits(self, value: int | None) -> str:
        """Bits in hex."""
        if value is None:
            return "x"
        if self.unit.scaled:
            return f"{value:0{2 * self.unit.accumulator.result_dtype.itemsize}x}"
        count = -(-self.unit.sum_bits // 4)
        return f"{value & (1 << 4 * count) - 1:0{count}x}"

    def vectors(self, *, stages: bool = False, adapter: Adapter = PLAIN) -> str:
        """The lines of hex digits, one a step."""
        layout = line_fields(self.unit, stages=stages, adapter=adapter)
        return lines(self.batch, expected(self.batch, stages=stages), layout, adapter).decode()

    def python(self) -> str:
        """A program that makes both operands and prints what is due."""
        begin = int(np.flatnonzero(self.batch.first)[-1])
        a, b = self.unit.sides
        due = expected(self.batch, stages=False)
        rows = [
            "import numpy as np",
            "import mxfp",
            "from mxfp.names import accumulator",
            "from mxfp.verify.unit import Unit",
            "",
            f'unit = Unit("{self.unit.kind}", mxfp.{_name(a)}, mxfp.{_name(b)}, {self.unit.lanes}, '
            f'{self.unit.blocks}, accumulator("{self.unit.accumulator}"))',
        ]
        for side, fmt in zip("ab", ("unit.a", "unit.sides[1]"), strict=True):
            codes = getattr(self.batch, f"codes_{side}")[begin:].ravel()
            scales = getattr(self.batch, f"scales_{side}")[begin:].ravel()
            rows += [
                f"codes_{side} = np.array({_listed(codes)}, np.uint8)",
                f"{side} = mxfp.BlockArray(codes_{side}, np.array({_listed(scales)}, np.uint8), {fmt})",
            ]
        rows.append("terms = mxfp.block_dots(a, b, group=unit.accumulator.terms_of)")
        if self.unit.scaled:
            size = self.unit.accumulator.result_dtype.itemsize
            shown = f'f"{{int(result.view(np.uint{8 * size})):0{2 * size}x}}"'
            rows += [
                "result = np.asarray(unit.accumulator(terms))",
                f"print({shown})  # {self.digits(self.right)}",
            ]
        else:
            rows.append(f"print(int(terms.sums[0]))  # {int(due['sum'][-1, 0])}")
        return "\n".join(rows) + "\n"

    def systemverilog(self, adapter: Adapter = PLAIN) -> str:
        """An initial block that drives the operands, a step each clock cycle, as the adapter has them."""
        plain = replace(adapter, endian="big")
        layout = line_fields(self.unit, adapter=plain)
        rows = ["initial begin"]
        for line in self.vectors(adapter=plain).splitlines():
            number = int(line, 16)
            given = []
            for field in layout:
                if not field.given:
                    continue
                bits = field.bits * field.count
                value = number >> field.lsb & (1 << bits) - 1
                if field.name == "flags":
                    given.append(f"valid = 1'b{value & 1}; first = 1'b{value >> 1 & 1};")
                else:
                    given.append(f"{field.name} = {bits}'h{value:0{-(-bits // 4)}x};")
            rows += [f"  {text}" for text in given]
            rows.append("  @(posedge clk);")
        rows.append(f"  // due: {self.digits(self.right)}; the unit gave {self.digits(self.got)}")
        rows.append("end")
        return "\n".join(rows) + "\n"

    def __str__(self) -> str:
        """What it is, in words."""
        what = f"{self.nonzero} lane{'s' * (self.nonzero != 1)} not zero"
        if len(self.batch) > 1:
            what += f" in {len(self.batch)} steps"
        rows = [f"{what}: due {self.digits(self.right)}, the unit gave {self.digits(self.got)}"]
        for n in range(len(self.batch)):
            if len(self.batch) > 1:
                rows.append(f"step {n}{', first' if self.batch.first[n] else ''}")
            rows += ["  " + line for line in operands(self.batch, n)]
        rows.append(f"found in {self.runs} runs" + (f"; {self.note}" if self.note else ""))
        return "\n".join(rows)


def _name(fmt: BlockFormat) -> str:
    """The name of the format that it has in the package."""
    for name, known in BLOCK_FORMATS.items():
        if (known.element, known.scale) == (fmt.element, fmt.scale):
            return name
    raise ValueError(f"{fmt.name} is none of the formats that have a name: {', '.join(BLOCK_FORMATS)}")


def _listed(values: NDArray[Any]) -> str:
    """A list in Python, its runs written as [x] * n."""
    runs = [(value, len(list(group))) for value, group in groupby(values.tolist())]
    parts: list[str] = []
    for value, count in runs:
        parts.append(f"[{value}] * {count}" if count > 1 else f"[{value}]")
    return " + ".join(parts)
