# SPDX-License-Identifier: Apache-2.0
"""A way to run a unit: a Python function, or a command that reads vectors and writes results."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
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

NAMES: Final = ("vectors", "results", "include", "cases")
"""What a command can ask for in braces: three paths, and the number of cases."""


class RunError(RuntimeError):
    """The unit could not be run: what happened, and what it said."""


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
        return found.reshape(len(batch)), np.ones(len(batch), np.bool_)

    return run


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

    def __call__(self, batch: Batch) -> Answer:
        """Run it on a batch. RunError where it dies, hangs, or writes something else."""
        count = len(batch)
        if self.fill is not None:
            if count > self.fill:
                parts = [self(batch.cut(slice(n, n + self.fill))) for n in range(0, count, self.fill)]
                return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
            batch = _filled(batch, self.fill)
        layout = line_fields(self.unit, stages=self.stages, adapter=self.adapter)
        with tempfile.TemporaryDirectory(prefix="mxfp-") as folder:
            paths = {name: Path(folder) / f"{name}.txt" for name in ("vectors", "results")}
            paths["include"] = Path(folder) / "vectors.svh"
            content = lines(batch, expected(batch, stages=self.stages), layout, self.adapter)
            paths["vectors"].write_bytes(content)
            paths["include"].write_text(include(self.unit, layout, len(batch), "vectors"), encoding="utf-8")
            text = self.text.replace("{cases}", str(len(batch)))
            for name, path in paths.items():
                text = text.replace("{" + name + "}", shlex.quote(str(path)))
            given = b"" if "{vectors}" in self.text else content
            code, said, errors = self._run(text, given, folder)
            if "{results}" not in self.text:
                paths["results"].write_bytes(said)
            elif not paths["results"].exists():
                raise RunError(f"the command wrote no results{_ended(code)}{_tail(said + errors)}")
            reader = AnswerReader(paths["results"], self.unit, prefix=self.prefix)
            found = reader.take(len(batch))
            reader.finish()
        usable = (found.state == ANSWERED) | (found.state == UNKNOWN)
        if not usable.all() or reader.counts:
            why = f": {reader.problems[0]}" if reader.problems else ""
            raise RunError(
                f"the command answered {int(usable.sum())} of {len(batch)} cases{_ended(code)}{why}"
                f"{_tail(errors)}"
            )
        values = found.values[reader.primary][:count, 0]
        return values, np.asarray(found.state == ANSWERED)[:count]

    def _run(self, text: str, given: bytes, folder: str) -> tuple[int, bytes, bytes]:
        """Run a shell of its own process group, which is ended whole if it takes too long."""
        process = subprocess.Popen(
            text,
            shell=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "MXFP_FOLDER": folder},
        )
        try:
            said, errors = process.communicate(given, timeout=self.timeout)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise RunError(f"the command did not end within {self.timeout:g} seconds") from None
            raise
        return process.returncode, said, errors


def _ended(code: int) -> str:
    """How it ended, where that was not well."""
    if not code:
        return ""
    return f" and was killed by signal {-code}" if code < 0 else f" and ended with exit status {code}"


def _tail(said: bytes) -> str:
    """The last lines that it wrote."""
    text = said.decode(errors="replace").strip().splitlines()[-3:]
    return "; it said: " + " | ".join(text)[-300:] if text else ""


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
