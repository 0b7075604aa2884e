# SPDX-License-Identifier: Apache-2.0
"""Every engine and how to call it: one table, which the tests and the benchmarks read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mxfp.kernels import isa

REFERENCE = "reference"
"""The engine that the others are held against."""


@dataclass(frozen=True)
class Engine:
    """How to call one engine: `engine(mxfp.matmul, a, b, accumulator=...)`.

    engine: the option of that name. isa: the instruction set that its kernels are held to; None is the
    machine's best.
    """

    engine: str
    isa: str | None = None

    def active(self) -> contextlib.AbstractContextManager[Any]:
        """A `with` in which kernels use this engine's instruction set."""
        return contextlib.nullcontext() if self.isa is None else isa.using(self.isa)

    def __call__(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a function of mxfp that takes `engine=`."""
        with self.active():
            return function(*arguments, engine=self.engine, **options)


ENGINES = {
    REFERENCE: Engine(REFERENCE),
    "numba": Engine("numba"),
    **{f"numba/{name}": Engine("numba", name) for name in isa.available()},
}
"""Engines by name. "numba" is the machine's best; one more stands for each instruction set."""
FAST = [name for name in ENGINES if name != REFERENCE]
