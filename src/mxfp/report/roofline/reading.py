# SPDX-License-Identifier: Apache-2.0
"""roofline.json -> the Roofline that it was written from."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import Any, TypeVar

from ..throughput import Machine
from .caches import Cache
from .roofline import SCHEMA, Point, Roof, Roofline, Sample, Series, Trial

_Record = TypeVar("_Record")


def from_json(text: str) -> Roofline:
    """The text of a roofline.json -> the Roofline, equal to the one that wrote it.

    Raises ValueError for anything else.
    """
    try:
        found = json.loads(text)
        if found["schema"] != SCHEMA:
            raise ValueError(f"its schema is {found['schema']!r:.40}")
        return _roofline(found)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"this is not a roofline.json of the schema {SCHEMA}: {error}") from None


def _roofline(found: dict[str, Any]) -> Roofline:
    def line(one: dict[str, Any]) -> Series:
        roofs = {name: _record(Roof, one[name]) for name in ("bandwidth", "peak")}
        return _record(Series, {**one, **roofs})

    some = {
        "machine": _record(Machine, found["machine"]),
        "caches": [_record(Cache, one) for one in found["caches"]],
        "samples": [_record(Sample, one) for one in found["samples"]],
        "bandwidths": [_record(Roof, one) for one in found["bandwidths"]],
        "peaks": [_record(Roof, one) for one in found["peaks"]],
        "series": [line(one) for one in found["series"]],
        "points": [_record(Point, one) for one in found["points"]],
        "trials": [_record(Trial, one) for one in found["trials"]],
    }
    return _record(Roofline, {**found, **some})


def _record(kind: type[_Record], found: dict[str, Any]) -> _Record:
    """A record from its fields; JSON's null is infinity for a crossing, and NaN for all else."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    missing = {"crossing": math.inf}
    return kind(
        **{name: missing.get(name, math.nan) if found[name] is None else found[name] for name in names}
    )
