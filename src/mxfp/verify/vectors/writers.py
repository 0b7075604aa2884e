# SPDX-License-Identifier: Apache-2.0
"""Suites -> files: hex for $readmemh, columns, JSON Lines, a sidecar and an include; or a stream."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ...blocks import check_choice
from ..layout import Adapter, include, lines
from ..unit import Batch, expected
from .written import Written

Format = Literal["hex", "columns", "jsonl"]
"""What lines of vectors look like."""
FORMATS: Final[tuple[Format, ...]] = ("hex", "columns", "jsonl")
SUFFIX: Final[dict[str, str]] = {"hex": ".hex", "columns": ".txt", "jsonl": ".jsonl"}
Progress = Callable[[str, int, int], object]


def encoded(suite: Written, batch: Batch, formats: Sequence[Format]) -> dict[Format, bytes]:
    """A batch in each of the formats; what is expected is computed once."""
    found = expected(batch, stages=suite.stages or "jsonl" in formats)
    made: dict[Format, bytes] = {}
    for name in formats:
        if name == "hex":
            made[name] = lines(batch, found, suite.layout, suite.adapter)
        elif name == "columns":
            made[name] = _columns(suite, batch, found)
        else:
            made[name] = _json_lines(suite, batch, found)
    return made


def heading(suite: Written, name: Format) -> bytes:
    """What stands above the lines: the names of the columns, and nothing elsewhere."""
    if name != "columns":
        return b""
    return f"# {' '.join(field.name for field in suite.layout)}\n".encode()


def _columns(suite: Written, batch: Batch, found: Mapping[str, NDArray[Any]]) -> bytes:
    """One case a line, its fields in the order of their bits, each in hex with its elements highest first."""
    adapter = suite.adapter
    big = Adapter(adapter.lanes, adapter.nibbles, adapter.scales, adapter.codes)
    digits = np.frombuffer(lines(batch, found, suite.layout, big), np.uint8).reshape(len(batch), -1)
    width = digits.shape[1] - 1
    parts: list[NDArray[Any]] = []
    for field in suite.layout:
        end = width - field.lsb // 4
        parts += [
            digits[:, end - field.bits * field.count // 4 : end],
            np.full((len(batch), 1), 32, np.uint8),
        ]
    parts[-1] = np.full((len(batch), 1), 10, np.uint8)
    return np.concatenate(parts, axis=1).tobytes()


def _json_lines(suite: Written, batch: Batch, found: Mapping[str, NDArray[Any]]) -> bytes:
    """One object a case: its number, group, operands as they are (no adapter), and every stage."""
    unit = suite.unit
    given = {"a": batch.codes_a, "b": batch.codes_b}
    if unit.scaled:
        given |= {"scale_a": batch.scales_a, "scale_b": batch.scales_b}
    columns = {name: values.tolist() for name, values in given.items()}
    stages = {name: values.tolist() for name, values in found.items() if name != "result"}
    group, first = batch.group.tolist(), batch.first.tolist()
    digits = unit.accumulator.result_dtype.itemsize * 2
    rows = []
    for n in range(len(batch)):
        row: dict[str, Any] = {"index": batch.start + n, "group": batch.groups[group[n]]}
        row |= {name: values[n] for name, values in columns.items()}
        row["first"] = first[n]
        row["expected"] = {name: values[n] for name, values in stages.items()}
        if unit.scaled:
            row["expected"]["result"] = f"{int(found['result'][n, 0]):0{digits}x}"
        rows.append(json.dumps(row, separators=(",", ":")))
    return ("\n".join(rows) + "\n").encode() if rows else b""


def stream(suite: Written, out: BinaryIO, *, form: Format = "hex", progress: Progress | None = None) -> int:
    """Write all lines to a stream as they are made, and return how many cases. Memory: one batch."""
    check_choice(form, FORMATS, "form")
    out.write(heading(suite, form))
    done, total = 0, suite.cases
    for batch in suite.batches():
        out.write(encoded(suite, batch, [form])[form])
        done += len(batch)
        if progress is not None:
            progress("vectors", done, total)
    out.flush()
    return done


def write_suite(
    suite: Written,
    directory: str | Path,
    *,
    name: str | None = None,
    formats: Sequence[Format] = ("hex",),
    progress: Progress | None = None,
) -> list[Path]:
    """Write a suite's files into a directory, made if need be: all of them whole, or none.

    name: of the files, without ending; None is the unit's kind. Beside the formats asked for there are
    NAME.json, the sidecar, and NAME.svh, an include. Returns their paths, the sidecar last.
    """
    wanted = tuple(dict.fromkeys(formats))
    if not wanted:
        raise ValueError(f"formats are one or more of {', '.join(FORMATS)}")
    for form in wanted:
        check_choice(form, FORMATS, "formats")
    name = suite.unit.kind if name is None else name
    if not name or name != Path(name).name or name.startswith("."):
        raise ValueError(f"name is that of a file, without a folder or an ending, got {name!r}")
    target = Path(directory).absolute()
    target.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=target))
    try:
        files = _lines_of_all(suite, staging, name, wanted, progress)
        text = include(suite.unit, suite.layout, suite.cases, name, adapter=suite.adapter)
        files["include"] = _put(staging / f"{name}.svh", text.encode())
        sidecar = {**suite.as_dict(), "name": name, "files": files}
        _put(staging / f"{name}.json", (json.dumps(sidecar, indent=1) + "\n").encode())
        names = [*(entry["name"] for entry in files.values()), f"{name}.json"]
        for made in names:
            (staging / made).replace(target / made)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return [target / made for made in names]


def _put(path: Path, content: bytes) -> dict[str, Any]:
    path.write_bytes(content)
    return {"name": path.name, "bytes": len(content), "sha256": sha256(content).hexdigest()}


def _lines_of_all(
    suite: Written, staging: Path, name: str, formats: tuple[Format, ...], progress: Progress | None
) -> dict[str, Any]:
    """Write the lines of every format in one pass, and say what is in each file."""
    digests = {form: sha256() for form in formats}
    sizes = dict.fromkeys(formats, 0)
    paths = {form: staging / f"{name}{SUFFIX[form]}" for form in formats}
    outs = {}
    try:
        for form in formats:
            outs[form] = paths[form].open("wb")

        def put(form: Format, content: bytes) -> None:
            outs[form].write(content)
            digests[form].update(content)
            sizes[form] += len(content)

        for form in formats:
            put(form, heading(suite, form))
        done, total = 0, suite.cases
        for batch in suite.batches():
            for form, content in encoded(suite, batch, formats).items():
                put(form, content)
            done += len(batch)
            if progress is not None:
                progress("vectors", done, total)
    finally:
        for out in outs.values():
            out.close()
    return {
        form: {"name": paths[form].name, "bytes": sizes[form], "sha256": digests[form].hexdigest()}
        for form in formats
    }
