# SPDX-License-Identifier: Apache-2.0
"""A run's results as plain data: one JSON schema, one record a line."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from mxfp.report import throughput

from .contest import Record
from .processes import Growth
from .rivals import OPTIONAL, missing

SCHEMA: Final = "mxfp-benchmarks/1"
SETTINGS: Final = (
    "OPENBLAS_CORETYPE",
    "OPENBLAS_L2_SIZE",
    "MXFP_ISA",
    "NUMBA_NUM_THREADS",
    "NUMBA_THREADING_LAYER",
)
"""Of the environment: they decide what is measured."""


@dataclass(frozen=True)
class Results:
    """Everything one run found.

    command: how to do it again. sizes: "full" or "quick". machine, versions: on what. missing: a line for
    each rival that was left out. seconds: how long the run took.
    """

    command: str
    sizes: str
    seconds: float
    machine: dict[str, Any]
    versions: dict[str, str]
    missing: list[str]
    records: list[Record]
    memory: list[Growth]


def gathered(command: str, sizes: str, seconds: float, found: Sequence[Record | Growth]) -> Results:
    """Records of a run -> Results, with what they were measured on."""
    return Results(
        command,
        sizes,
        round(seconds, 1),
        asdict(throughput.machine()),
        versions(),
        missing(),
        [x for x in found if isinstance(x, Record)],
        [x for x in found if isinstance(x, Growth)],
    )


def command(words: Sequence[str]) -> str:
    """Options of a run -> the line that does it again, settings of the environment first."""
    set_to = [f"{name}={os.environ[name]}" for name in SETTINGS if os.environ.get(name)]
    return shlex.join([*set_to, "python", "-m", "benchmarks", *words])


def versions() -> dict[str, str]:
    """Installed versions of what takes part."""
    found = {}
    for name in ("mxfp-emulator", "numpy", "numba", "ml_dtypes", *OPTIONAL):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def json_text(results: Results) -> str:
    """Results -> JSON text."""
    head = {"schema": SCHEMA, **asdict(results)}
    lists = {name: head.pop(name) for name in ("records", "memory")}
    lines = [f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in head.items()]
    for name, items in lists.items():
        rows = ",\n".join(json.dumps(item, allow_nan=False) for item in items)
        lines.append(f'"{name}": [\n{rows}\n]' if rows else f'"{name}": []')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def from_json(text: str) -> Results:
    """JSON text -> Results; ValueError if it is of another schema."""
    data = json.loads(text)
    if not isinstance(data, dict) or data.pop("schema", None) != SCHEMA:
        raise ValueError(f"not results of schema {SCHEMA}")
    wanted = {f.name for f in fields(Results)}
    if set(data) != wanted:
        raise ValueError(f"results have {', '.join(sorted(wanted))}; got {', '.join(sorted(data))}")
    data["records"] = [Record(**x) for x in data["records"]]
    data["memory"] = [Growth(**x) for x in data["memory"]]
    return Results(**data)
