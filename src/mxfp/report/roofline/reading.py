# SPDX-License-Identifier: Apache-2.0
"""roofline.json -> the Roofline that it was written from."""

from __future__ import annotations

import json
import math
from dataclasses import is_dataclass
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from .roofline import SCHEMA, Point, Roofline, attainable, operations
from .weights import FORMATS

_MISSING: Final = {
    "Series.crossing": math.inf,
    "Series.seen_crossing": math.nan,
    **{f"Point.{name}": math.nan for name in ("seconds", "low", "high", "gops", "share")},
}
"""What null stands for, where it may stand."""
_LEAST, _MOST, _MOST_INTEGER = 1e-99, 1e99, 1 << 99
_LONGEST: Final = 200
_ODD: Final = frozenset("[]$|")
"""What a terminal, a page or a picture would take for something else than text."""


def from_json(text: str) -> Roofline:
    """The text of a roofline.json -> the Roofline, equal to the one that wrote it.

    Raises ValueError for anything else: fields of another type, figures that are not positive, roofs,
    points and formats that do not go together.
    """
    try:
        found = json.loads(text)
        if not isinstance(found, dict) or found.get("schema") != SCHEMA:
            raise ValueError("it does not say so")
        made: Roofline = _value(Roofline, found, "it")
        _check(made)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"this is not a roofline.json of the schema {SCHEMA}: {error}") from None
    return made


def _value(kind: Any, found: Any, name: str) -> Any:
    """What JSON holds -> a value of a kind: a record of roofline.py, or a type that its fields have."""
    whole, parts = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(found, dict):
        return _record(kind, found)
    if whole is list and isinstance(found, list):
        return [_value(parts[0], one, name) for one in found]
    if whole is dict and isinstance(found, dict):
        return {_value(parts[0], key, name): _value(parts[1], one, name) for key, one in found.items()}
    if found is None and name in _MISSING:
        return _MISSING[name]
    if (whole is Literal and found in parts) or _plain(kind, found):
        return found
    raise ValueError(f"{name} cannot be {found!r:.40}")


def _record(kind: Any, found: dict[str, Any]) -> Any:
    hints, name = get_type_hints(kind), kind.__name__
    for field in hints:
        if field not in found:
            raise ValueError(f"there is no {name}.{field}")
    return kind(**{field: _value(hint, found[field], f"{name}.{field}") for field, hint in hints.items()})


def _plain(kind: Any, found: Any) -> bool:
    """Whether it is a text of one line, a number from 0, or a positive figure."""
    if kind is str and isinstance(found, str):
        return found.isprintable() and len(found) <= _LONGEST and not _ODD & set(found)
    if kind is int and type(found) is int:
        return 0 <= found <= _MOST_INTEGER
    return kind is float and type(found) in (int, float) and _LEAST <= found <= _MOST


def _check(found: Roofline) -> None:
    """ValueError where the parts do not go together."""
    formats = [line.format for line in found.series]
    known = len(formats) == len(set(formats)) and set(formats) <= set(FORMATS)
    if not (known and formats and set(formats) == {point.format for point in found.points}):
        raise ValueError(f"its points are not of its formats: {', '.join(formats) or 'none'}")
    if not set(formats) <= set(found.copies) or not {trial.format for trial in found.trials} <= set(formats):
        raise ValueError("its copies or trials are not of its formats")
    if len({(point.format, point.m) for point in found.points}) < len(found.points):
        raise ValueError("it has a point twice")
    counts = [found.n, found.k, found.threads, *found.copies.values()]
    counts += [point.m for point in found.points] + [trial.m for trial in found.trials]
    if min(counts) < 1:
        raise ValueError("a shape, threads, copies and rows are 1 or more")
    for line in found.series:
        if line.bandwidth not in found.bandwidths or line.peak not in found.peaks:
            raise ValueError(f"the roofs of {line.format} are not among the roofs")
        if not math.isclose(line.ridge, line.peak.value / line.bandwidth.value):
            raise ValueError(f"the ridge of {line.format} is not its peak by its bandwidth")
        for point in found.points:
            if point.format == line.format:
                _check_point(point, found, line.peak.value, line.bandwidth.value)


def _check_point(point: Point, found: Roofline, peak: float, bandwidth: float) -> None:
    """ValueError for a point that does not lie where its rows, bytes and seconds put it."""
    work = operations(point.m, found.n, found.k)
    right = math.isclose(point.intensity * point.moved, work)
    right = right and math.isclose(point.attainable, attainable(point.intensity, peak, bandwidth))
    if point.software:
        right = right and 1 <= point.rows <= point.m and math.isclose(point.gops * point.seconds, 1e-9 * work)
        right = right and point.low <= point.seconds <= point.high and point.share > 0
    else:
        timed = (point.seconds, point.low, point.high, point.gops, point.share)
        right = right and all(map(math.isnan, timed))
    if not right:
        raise ValueError(f"the figures of {point.format} at M = {point.m} do not go together")
