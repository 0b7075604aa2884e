# SPDX-License-Identifier: Apache-2.0
"""The JSON file beside vectors: what every one says, and how what it says is read back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from ... import __version__
from ...formats import BLOCK_FORMATS, BlockFormat
from ...names import accumulator as accumulator_named
from ..layout import Adapter
from ..unit import Unit
from .groups import GENERATOR
from .written import Written

SCHEMA: Final = "mxfp-vectors/1"
NOTES: Final = (
    "Lines hold one case each, the most significant digit first, as $readmemh reads them; bit 0 is the last "
    "digit's. Offsets are from bit 0. Every case has flags bit 0 set; a row without it was never written.",
    "sum is the sum of products in units of both LSBs; its weight is 2^exponent. exponent is that of the "
    "codes, NaN's too. special: 0 finite, 1 NaN, 2 +infinity, 3 -infinity. result: the accumulator's bits.",
    "Operands are in the order and coding that the adapter says; what is expected is as mxfp has it, stage "
    "by stage, for blocks and lanes in mxfp's order.",
)


def read_sidecar(path: str | Path) -> dict[str, Any]:
    """The JSON object of a sidecar; ValueError for anything else."""
    try:
        given = json.loads(Path(path).read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a sidecar: not text") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a sidecar: {error}") from None
    schema = given.get("schema") if isinstance(given, dict) else None
    if schema != SCHEMA:
        raise ValueError(f"{path} is not a sidecar of {SCHEMA}: its schema is {schema!r}")
    return dict(given)


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Whatever a part of a sidecar lacks becomes a ValueError that names the file."""
    try:
        yield
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path} is not a sidecar that this mxfp reads: {reason}") from None


def check_same(path: str | Path, given: Mapping[str, Any], suite: Written, names: Sequence[str]) -> None:
    """ValueError unless a sidecar says, under these names, what that of the suite would say."""
    mine = json.loads(json.dumps(suite.as_dict()))
    for name in names:
        if given.get(name) != mine[name]:
            raise ValueError(
                f"{path} was made by mxfp {given.get('mxfp')}, generator {given.get('generator')}; this "
                f"is mxfp {__version__}, generator {GENERATOR}, and its {name} would differ. Make the "
                "vectors again, or check them with the version that made them"
            )


def adapter_from_dict(given: Mapping[str, Any]) -> Adapter:
    """The adapter of a sidecar."""
    return Adapter(**{**given, "codes": tuple(given["codes"])})


def unit_as_dict(unit: Unit) -> dict[str, Any]:
    """A unit by the names of its formats, and its accumulator with every parameter."""
    a, b = unit.sides
    accumulator = unit.accumulator
    return {
        "kind": unit.kind,
        "format_a": _format_name(a),
        "format_b": _format_name(b),
        "lanes": unit.a.block,
        "blocks": unit.blocks,
        "accumulator": {
            "name": str(accumulator),
            "kind": type(accumulator).__name__,
            "parameters": {f.name: getattr(accumulator, f.name) for f in fields(accumulator)},
            "result": accumulator.result_dtype.name,
        },
        "sum_bits": unit.sum_bits,
        "level_bits": list(unit.level_bits),
        "exponent_bits": unit.exponent_bits,
        "term_bits": unit.term_bits,
    }


def unit_from_dict(given: Mapping[str, Any]) -> Unit:
    """The unit of a sidecar."""
    a, b = (BLOCK_FORMATS[given[name]] for name in ("format_a", "format_b"))
    accumulator = accumulator_named(given["accumulator"]["name"])
    return Unit(given["kind"], a, b, given["lanes"], given["blocks"], accumulator)


def _format_name(fmt: BlockFormat) -> str:
    """The named format of the same element and scale."""
    for name, known in BLOCK_FORMATS.items():
        if (known.element, known.scale) == (fmt.element, fmt.scale):
            return name
    raise ValueError(f"a suite is of the formats {', '.join(BLOCK_FORMATS)}, not of {fmt.name}")
