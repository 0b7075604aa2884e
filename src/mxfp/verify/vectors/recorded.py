# SPDX-License-Identifier: Apache-2.0
"""Vectors that no arguments make again: their file holds the cases, and is read back with a proof.

What is expected of a case is never taken from the file. It is computed from the operands, like that of any
other case, and must be what the file says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np

from ... import __version__
from ...formats import Integers
from ..layout import PLAIN, Adapter, batch_of, line_fields
from ..unit import Batch, Unit
from .groups import ELEMENTS, SIZE, check_unit
from .sidecar import (
    NOTES,
    SCHEMA,
    adapter_from_dict,
    check_same,
    read_sidecar,
    reading,
    unit_as_dict,
    unit_from_dict,
)
from .suite import Suite
from .written import Written

FORM: Final = "hex"
"""The format whose file holds the cases."""
NOTE: Final = (
    "No arguments make these cases again: they are those of the hex file, which must have its sha256. What "
    "is expected is computed from their operands and must be what the file says."
)


@dataclass(frozen=True, eq=False)
class Recorded(Written):
    """Vectors that are the cases of a batch, in memory; `write_suite` writes them, `read_suite` reads them.

    batch: all cases, those of a group together. about: what each group is. origin: what made them, for the
    sidecar.

    >>> from mxfp.verify.vectors.groups import batches
    >>> found = Recorded(next(batches(Unit("dot"), groups=["pairs"], size=3)))
    >>> found.cases, found.tally, found.line_bits
    (3, {'pairs': 3}, 340)
    """

    batch: Batch
    adapter: Adapter = PLAIN
    stages: bool = False
    about: str = ""
    origin: Mapping[str, Any] = field(default_factory=dict)
    unit: Unit = field(init=False)
    level: int | None = field(init=False, default=None)
    seed: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Check that the cases can be written and read back."""
        batch = self.batch
        if not len(batch):
            raise ValueError("no cases: there is nothing to record")
        if not batch.first[0] or not (batch.first.all() or batch.unit.kind == "running"):
            raise ValueError("every case is first, but for the steps of a running unit after their first one")
        for name in batch.groups:
            if not name or not name.isprintable():
                raise ValueError(f"the name of a group is a text to be printed, got {name!r}")
        if (np.diff(batch.group) < 0).any():
            raise ValueError("the cases of a group stand together, in the order of the groups")
        check_unit(batch.unit)
        self.adapter.check(batch.unit)
        object.__setattr__(self, "batch", replace(batch, start=0))
        object.__setattr__(self, "unit", batch.unit)

    @property
    def tally(self) -> dict[str, int]:
        """How many cases there are of each group, in their order."""
        counts = np.bincount(self.batch.group, minlength=len(self.batch.groups)).tolist()
        return {name: count for name, count in zip(self.batch.groups, counts, strict=True) if count}

    def batches(self, *, size: int = SIZE) -> Iterator[Batch]:
        """All cases in order, at most `size` at a time, but for a sequence that is longer."""
        most = max(1, min(size, ELEMENTS // self.unit.elements))
        begins, place = self._begins, 0
        while place < len(begins) - 1:
            start = int(begins[place])
            place = max(int(np.searchsorted(begins, start + most, side="right")) - 1, place + 1)
            yield self.batch.cut(slice(start, int(begins[place])))

    @property
    def _begins(self) -> Integers:
        """Where each sequence begins, and where the last one ends."""
        return np.append(np.flatnonzero(self.batch.first), len(self.batch))

    def case(self, number: int) -> tuple[Batch, int]:
        """One case: the batch of its sequence, and its place there. IndexError if there is none."""
        if not 0 <= number < len(self.batch):
            raise IndexError(f"there are {self.cases} cases, 0 … {self.cases - 1}; got {number}")
        place = int(np.searchsorted(self._begins, number, side="right"))
        first, end = self._begins[place - 1 : place + 1].tolist()
        return self.batch.cut(slice(first, end)), number - first

    def as_dict(self) -> dict[str, Any]:
        """The sidecar, without the files."""
        first, groups = 0, []
        for name, count in self.tally.items():
            groups.append({"name": name, "about": self.about, "cases": count, "first": first})
            first += count
        return {
            "schema": SCHEMA,
            "mxfp": __version__,
            "generator": None,
            "unit": unit_as_dict(self.unit),
            "level": None,
            "seed": None,
            "count": None,
            "asked_groups": None,
            **self.lines_as_dict(),
            "groups": groups,
            "recorded": FORM,
            "origin": dict(self.origin),
            "notes": [*NOTES, NOTE],
        }


def read_suite(path: str | Path) -> Suite | Recorded:
    """The vectors of a sidecar: made again from what it says, or read from the file that holds them.

    Raises ValueError where they would not be the same, byte for byte: another version, a file that is not
    there or has another sha256, expected values that this version does not compute; OSError where a file
    cannot be read.
    """
    given = read_sidecar(path)
    if given.get("recorded") is None:
        return Suite.from_sidecar(path)
    with reading(path):
        if given["recorded"] != FORM:
            raise ValueError(f"recorded is {FORM!r}, got {given['recorded']!r}")
        unit, adapter = unit_from_dict(given["unit"]), adapter_from_dict(given["adapter"])
        groups = {str(group["name"]): int(group["cases"]) for group in given["groups"]}
        about, origin = str(given["groups"][0]["about"]), dict(given["origin"])
        file, content = _verified(Path(path), given["files"][FORM])
        layout = line_fields(unit, stages=bool(given["stages"]), adapter=adapter)
        batch = batch_of(content, unit, layout, adapter)
        counts = list(groups.values())
        if sum(counts) != len(batch) or min(counts) < 0:
            raise ValueError(f"its groups have {counts} cases, and {file.name} has {len(batch)}")
        batch = replace(batch, group=np.repeat(np.arange(len(counts)), counts), groups=tuple(groups))
        suite = Recorded(batch, adapter, bool(given["stages"]), about, origin)
    check_same(path, given, suite, ("unit", "cases", "line_bits", "fields", "groups"))
    _check_expected(file, content, suite, str(given.get("mxfp")))
    return suite


def _verified(sidecar: Path, entry: Mapping[str, Any]) -> tuple[Path, bytes]:
    """The file of an entry, which stands beside the sidecar, and its content; ValueError for another one."""
    name, size, digest = str(entry["name"]), int(entry["bytes"]), str(entry["sha256"])
    if name != Path(name).name:
        raise ValueError(f"the file of its cases is one beside it, got {name!r}")
    file = sidecar.parent / name
    if not file.is_file():
        raise ValueError(f"its cases are those of {name}, and there is no such file beside it")
    if file.stat().st_size != size:
        raise ValueError(f"{name} has {file.stat().st_size} bytes, and the sidecar is of one with {size}")
    content = file.read_bytes()
    if sha256(content).hexdigest() != digest:
        raise ValueError(f"{name} is not the file that was written: its sha256 is not {digest}")
    return file, content


def _check_expected(file: Path, content: bytes, suite: Recorded, version: str) -> None:
    """ValueError unless this version expects of every case what the file says."""
    for batch in suite.batches():
        width = suite.line_bits // 4 + 1
        there = content[batch.start * width : (batch.start + len(batch)) * width]
        here = suite.lines(batch)
        if there != here:
            pairs = zip(there.split(b"\n"), here.split(b"\n"), strict=True)
            line = batch.start + next(n for n, (one, other) in enumerate(pairs, 1) if one != other)
            raise ValueError(
                f"{file} was made by mxfp {version}, and this is mxfp {__version__}: what it expects of line "
                f"{line} differs. Make the vectors again, or check them with the version that made them"
            )
