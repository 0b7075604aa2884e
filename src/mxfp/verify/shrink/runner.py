# SPDX-License-Identifier: Apache-2.0
"""A way to run a unit: a Python function, or a command that reads vectors and writes results."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...formats import Bools
from ..check.answers import ANSWERED, UNKNOWN, AnswerReader
from ..layout import PLAIN, Adapter, include, line_fields, lines
from ..unit import Batch, Unit, expected
from .process import RunError, run_shell, tail

MOST_SAID: Final = 1 << 26
"""Bytes that a command may print, and as many more for each case:"""
MOST_A_CASE: Final = 1 << 12
MOST_FILLED: Final = 1 << 26
"""Elements of a side that a command reads at once."""

Answer = tuple[NDArray[Any], Bools]
"""(n,) what the unit gave, and for which cases it gave a number."""


def of_function(function: Callable[[Batch], Any]) -> Callable[[Batch], Answer]:
    """A function of a batch that gives the bits of its results (or sums) -> a runner."""

    def run(batch: Batch) -> Answer:
        found = np.asarray(function(batch))
        if found.size != len(batch) or found.dtype.kind not in "iu":
            raise RunError(
                f"the function gave {found.dtype} {found.shape}; due are {len(batch)} integers, one a case"
            )
        return _unsigned(found.reshape(len(batch)), batch.unit), np.ones(len(batch), np.bool_)

    return run


def _unsigned(found: NDArray[Any], unit: Unit) -> NDArray[Any]:
    """Bits of results that were given as signed integers of as many bits; sums are as they are."""
    bits = 8 * unit.accumulator.result_dtype.itemsize
    if not unit.scaled or found.dtype.kind == "u" or bits == 64:
        return found
    wide = found.astype(np.int64)
    return np.where((wide < 0) & (wide >= -(1 << (bits - 1))), wide + (1 << bits), wide)


@dataclass(frozen=True)
class Command:
    """A shell command that runs a unit.

    text: {vectors} and {results} in it are the paths of files, {include} that of a SystemVerilog include,
    {cases} their number; without {vectors} lines go to its standard input, without {results} its standard
    output is read. fill: it always reads that many cases; there are zeros behind. timeout: seconds.
    """

    text: str
    unit: Unit
    adapter: Adapter = PLAIN
    stages: bool = False
    prefix: str = ""
    timeout: float = 60.0
    fill: int | None = None

    def __post_init__(self) -> None:
        """Check the limits."""
        if not self.timeout > 0:
            raise ValueError(f"timeout is a number of seconds above 0, got {self.timeout}")
        most = MOST_FILLED // self.unit.elements
        if self.fill is not None and not 1 <= self.fill <= most:
            raise ValueError(f"fill is a number of cases, 1 … {most} of this unit, got {self.fill}")

    def __call__(self, batch: Batch) -> Answer:
        """Run it on a batch. RunError where it dies, hangs, or writes something else."""
        count = len(batch)
        if self.fill is not None:
            if count > self.fill:
                parts = [self(batch.cut(slice(n, n + self.fill))) for n in range(0, count, self.fill)]
                return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
            batch = _filled(batch, self.fill)
        with tempfile.TemporaryDirectory(prefix="mxfp-", ignore_cleanup_errors=True) as folder:
            values, answered = self._answers(batch, Path(folder))
        return values[:count], answered[:count]

    def _answers(self, batch: Batch, folder: Path) -> Answer:
        """Run it on all of a batch, with files in a folder."""
        layout = line_fields(self.unit, stages=self.stages, adapter=self.adapter)
        content = lines(batch, expected(batch, stages=self.stages), layout, self.adapter)
        header = include(self.unit, layout, len(batch), "vectors", adapter=self.adapter)
        paths = {name: folder / f"{name}.txt" for name in ("vectors", "results")}
        paths["include"] = folder / "vectors.svh"
        paths["vectors"].write_bytes(content)
        paths["include"].write_text(header, encoding="utf-8")
        text = self.text.replace("{cases}", str(len(batch)))
        for name, path in paths.items():
            text = text.replace("{" + name + "}", shlex.quote(str(path)))
        given = b"" if "{vectors}" in self.text else content
        most = MOST_SAID + MOST_A_CASE * len(batch)
        ended = run_shell(text, given, folder, timeout=self.timeout, most=most)
        results = paths["results"] if "{results}" in self.text else ended.said
        if not results.is_file():
            raise RunError(f"the command wrote no results{ended}{tail(ended.said, ended.errors)}")
        reader = AnswerReader(results, self.unit, prefix=self.prefix)
        found = reader.take(len(batch))
        reader.finish()
        usable = (found.state == ANSWERED) | (found.state == UNKNOWN)
        if not usable.all() or reader.counts:
            why = f": {reader.problems[0]}" if reader.problems else ""
            raise RunError(
                f"the command answered {int(usable.sum())} of {len(batch)} cases{ended}{why}"
                f"{tail(ended.errors)}"
            )
        return found.values[reader.primary][:, 0], np.asarray(found.state == ANSWERED)


def _filled(batch: Batch, count: int) -> Batch:
    """A batch with cases of zeros behind it."""
    more = count - len(batch)
    one = [int(np.nanargmin(np.abs(fmt.scale.values - 1))) for fmt in batch.unit.sides]
    values = {"codes_a": 0, "codes_b": 0, "scales_a": one[0], "scales_b": one[1], "first": True, "group": 0}
    arrays: dict[str, Any] = {}
    for name, value in values.items():
        array = getattr(batch, name)
        rest = np.full((more, *array.shape[1:]), value, array.dtype)
        arrays[name] = np.concatenate([array, rest])
    return replace(batch, **arrays)
