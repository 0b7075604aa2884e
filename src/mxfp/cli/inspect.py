# SPDX-License-Identifier: Apache-2.0
"""mxfp inspect: what a model file holds, from its header, and what is in its blocks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import click
import numpy as np
from rich.console import Console

from ..files.carrying import Ticker
from ..files.header import FileError
from ..files.model import ModelFile, open_model
from ..files.outline import Line, outline
from ..files.statistics import Statistics, measure, total
from ..files.tensor import Tensor
from ..formats import ScaleFormat
from .app import cli
from .bytes_bar import ByteBar, shape_text, shown
from .records import inspect_record, totals

SMALL: Final = 1 << 30
"""Bytes of blocks that are read without being asked: some seconds."""
MOST_ROWS: Final = 16
"""Rows of a histogram of scales, and codes that are listed."""
MOST_LINES: Final = 1000
"""Lines of an outline that are shown; --json has all tensors."""


def chosen_tensors(model: ModelFile, globs: Sequence[str]) -> list[Tensor]:
    """The tensors whose names match a glob, or all. FileError for a glob that matches none."""
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in model.names):
            some = ", ".join(map(shown, model.names[:3]))
            raise FileError(
                f"{model.path}: none of its {len(model.names)} tensors is called {glob}; some are {some}"
            )
    return [t for t in model.tensors if not globs or any(fnmatchcase(t.name, glob) for glob in globs)]


@cli.command(name="inspect")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--tensor", "globs", multiple=True, metavar="GLOB", help="Only tensors of these names. Repeat.")
@click.option(
    "--statistics/--no-statistics",
    default=None,
    help="Read the blocks and count what is in them. Default: if they have at most 1 GiB.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every tensor, instead of tables.")
def inspect_command(file: Path, globs: tuple[str, ...], statistics: bool | None, as_json: bool) -> None:
    """Tensors of a model file, shapes, types, bytes and bits; and what is in its blocks.

    FILE is a .gguf, .safetensors, .onnx, .npz or .npy, the index of shards, or a folder with one. Layers
    that are alike are shown once. Blocks are counted by scale and by code: how many elements are at the
    largest code, where all that saturates ends, how many are zero, and which blocks are NaN. A file that is
    cut off, or only a header, is shown from its header.

    \b
    Examples:
      mxfp inspect model.gguf
      mxfp inspect model.safetensors --tensor '*down_proj*' --statistics
    """  # noqa: D301  (click reads the backspace)
    with open_model(file, complete=False) as model:
        tensors = chosen_tensors(model, globs)
        there = [t for t in tensors if model.has_data(t.name)]
        nbytes = sum(t.nbytes for t in there if t.format is not None)
        found: Mapping[str, Statistics] = {}
        if statistics or (statistics is None and nbytes <= SMALL):
            with ByteBar() as bar:
                found = measure(model, there, progress=Ticker(nbytes, bar))
        missing = len(tensors) - len(there)
        if as_json:
            click.echo(json.dumps(inspect_record(model, tensors, found, missing), indent=1))
            return
        console = Console(markup=False, highlight=False)
        _print_tensors(console, model, tensors, missing)
        if found:
            _print_statistics(console, tensors, found)
        elif statistics is None and nbytes:
            click.echo(f"{nbytes:,} bytes of blocks are not read; --statistics counts what is in them")


def _print_tensors(console: Console, model: ModelFile, tensors: Sequence[Tensor], missing: int) -> None:
    from .. import terminal

    files = f" in {len(model.headers)} files" if len(model.headers) > 1 else ""
    click.echo(f"{model.path}: {model.format}{files}")
    if missing:
        click.echo(
            f"Data are missing: {missing} of {len(tensors)} tensors are not there, or not whole. "
            "This is what the header says."
        )
    click.echo()
    rows = []
    for line in _lines(tensors):
        name = _name(line)
        if not line.tensors:
            rows.append((name, *[""] * 5))
            continue
        one, nbytes = line.tensors[0], sum(t.nbytes for t in line.tensors)
        kind = f"{one.type} {one.layout}" if one.layout not in {"", "gguf"} else one.type
        rows.append(
            (name, shape_text(one.shape), kind, str(len(line.tensors)), f"{nbytes:,}", f"{one.bits:.4g}")
        )
    terminal.put_table(console, "", ("tensor", "shape", "type", "number", "bytes", "bits"), rows)
    found = totals(tensors)
    if not found:
        click.echo("It has no tensors.")
        return
    terminal.put_table(
        console,
        "By type",
        ("type", "tensors", "elements", "bytes", "of all %", "bits"),
        [
            (
                name,
                f"{t['tensors']:,}",
                f"{t['elements']:,}",
                f"{t['bytes']:,}",
                f"{100 * t['bytes'] / max(found['together']['bytes'], 1):.3g}",
                f"{t['bits']:.4g}",
            )
            for name, t in found.items()
        ],
        "bits: an element, of scales and all",
    )


def _lines(tensors: Iterable[Tensor]) -> list[Line]:
    """The outline, cut off where it gets long."""
    found = outline(tensors)
    more = Line(0, f"and {len(found) - MOST_LINES:,} lines more, which --json has")
    return found if len(found) <= MOST_LINES else [*found[:MOST_LINES], more]


def _name(line: Line) -> str:
    """A line's name, as deep as it lies."""
    alike = f" ({line.alike} alike)" if line.alike > 1 else ""
    return "  " * line.level + shown(line.text) + alike


def _print_statistics(console: Console, tensors: Sequence[Tensor], found: Mapping[str, Statistics]) -> None:
    from .. import terminal

    rows: list[tuple[str, ...]] = []
    for line in _lines(t for t in tensors if t.name in found):
        name = _name(line)
        if not line.tensors:
            rows.append((name, *[""] * 7))
        else:
            rows.append((name, *_figures(total(found[t.name] for t in line.tensors))))
    formats: dict[str, list[Statistics]] = {}
    for one in found.values():
        formats.setdefault(one.format.name, []).append(one)
    together = {name: total(some) for name, some in formats.items()}
    rows += [(f"all {name}", *_figures(some)) for name, some in together.items()]
    terminal.put_table(
        console,
        "In the blocks",
        ("tensor", "blocks", "scales", "largest %", "zero %", "-0 %", "zeros", "NaN"),
        rows,
        "scales: of blocks that are neither zero nor NaN; largest: elements at the largest code, where what "
        "saturates ends; zeros, NaN: blocks that are all zero, or NaN",
    )
    for some in together.values():
        _print_codes(console, some)
        _print_scales(console, some)


def _figures(s: Statistics) -> tuple[str, ...]:
    shares = (f"{100 * n / max(s.elements, 1):.3g}" for n in (s.at_largest, s.zeros, s.negative_zeros))
    return (f"{s.blocks:,}", _range(s), *shares, f"{s.zero_blocks:,}", f"{s.nan_blocks:,}")


def _range(s: Statistics) -> str:
    if s.scale_range is None:
        return "-"
    low, high = (scale_text(s.format.scale, code) for code in s.scale_range)
    return low if low == high else f"{low}…{high}"


def scale_text(scale: ScaleFormat, code: int) -> str:
    """The value of a scale code.

    >>> from mxfp import E8M0, UE4M3
    >>> scale_text(E8M0, 120), scale_text(UE4M3, 60), scale_text(E8M0, 255)
    ('2^-7', '1.5', 'NaN')
    """
    if not scale.finite[code]:
        return "NaN"
    return f"2^{scale.exponents[code]}" if scale.power_of_two else f"{scale.values[code]:g}"


def _print_codes(console: Console, s: Statistics) -> None:
    """The share of each code; of formats that have too many, none: --json lists them."""
    from .. import terminal

    element, total = s.format.element, max(s.elements, 1)
    if element.code_count > MOST_ROWS:
        return
    terminal.put_table(
        console,
        f"Codes of {s.format.name}",
        ("code", "value", "elements", "%"),
        [
            (f"{code:x}", f"{element.values[code]:g}", f"{count:,}", f"{100 * count / total:.3g}")
            for code, count in enumerate(s.codes.tolist())
        ],
    )


def _print_scales(console: Console, s: Statistics) -> None:
    """A histogram of scales, several codes a row where there are many."""
    from .. import terminal

    used = np.flatnonzero(s.scales).tolist()
    step = max(1, -(-(used[-1] - used[0] + 1) // MOST_ROWS))
    rows = []
    for start in range(used[0], used[-1] + 1, step):
        last = min(start + step, used[-1] + 1) - 1
        count = int(s.scales[start : last + 1].sum())
        ends = ((str(code), scale_text(s.format.scale, code)) for code in dict.fromkeys((start, last)))
        codes, values = (" … ".join(texts) for texts in zip(*ends, strict=True))
        share = count / s.blocks
        rows.append((codes, values, f"{count:,}", f"{100 * share:.3g} {'█' * round(30 * share)}"))
    terminal.put_table(console, f"Scales of {s.format.name}", ("code", "value", "blocks", "%"), rows)
