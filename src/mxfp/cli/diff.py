# SPDX-License-Identifier: Apache-2.0
"""mxfp diff: where two quantized files differ, how, and by which rule."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from ..files.carrying import Ticker
from ..files.concluding import conclude
from ..files.difference import Difference, TensorDifference, compare
from ..files.explaining import Explained, explain
from ..files.header import FileError
from ..files.kinds import BLOCK_KINDS, ELEMENT_KINDS, Counts, First, Side
from ..files.model import ModelFile, open_model
from ..files.others import Floats
from ..files.statistics import measure, total
from ..formats import BlockFormat
from .app import cli
from .bytes_bar import ByteBar, error_line, shape_text, shown
from .file_options import others_option
from .inspect import scale_text
from .records import diff_record


class RenameType(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A regular expression and what it is replaced by, with = between."""

    name = "regex=text"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Text -> (expression, replacement)."""
        if isinstance(value, tuple):
            return value
        pattern, sign, replacement = str(value).rpartition("=")
        if not sign or not pattern:
            self.fail(f"{value!r}: expected a regular expression, =, and what replaces it", param, ctx)
        return pattern, replacement


@dataclass(frozen=True)
class Found:
    """All that was found: the difference, and what explains it, by format."""

    difference: Difference
    explained: Mapping[str, Explained]
    concluded: Mapping[str, list[str]]


@cli.command(name="diff")
@click.argument("a", metavar="A", type=click.Path(path_type=Path))
@click.argument("b", metavar="B", type=click.Path(path_type=Path))
@click.option("--source", type=click.Path(path_type=Path), help="The floats that both were made of.")
@click.option("--tensor", "globs", multiple=True, metavar="GLOB", help="Only tensors of these names. Repeat.")
@click.option(
    "--rename",
    "renames",
    type=RenameType(),
    multiple=True,
    help="Names in B and the source, where they differ from those in A. Repeat: one after the other.",
)
@others_option("their bytes are compared")
@click.option("--show", type=click.IntRange(min=0), default=20, show_default=True, help="Tensors shown.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every tensor, instead of tables.")
def diff_command(
    a: Path,
    b: Path,
    source: Path | None,
    globs: tuple[str, ...],
    renames: tuple[tuple[str, str], ...],
    dequantize_others: Floats | None,
    show: int,
    as_json: bool,
) -> None:
    """Compare two model files, in whatever layouts, by the bits of their tensors.

    Codes and scales of blocks are compared, not bytes: a gpt-oss file and a GGUF file can be equal. Of what
    differs it shows the first element, counts by kind, and which rule was used, if one explains it: with
    --source by quantizing that with every rule it knows, else as far as codes and scales tell. Metadata are
    not compared.

    Exit status: 0 all is equal; 1 something differs; 2 a file cannot be read, or the answer not printed.

    \b
    Examples:
      mxfp diff a.gguf b.gguf
      mxfp diff a.gguf b.safetensors --source model.safetensors
      mxfp diff a.gguf b.safetensors --rename '^model\\.layers\\.=blk.' --rename 'mlp\\.up_proj=ffn_up'
    """  # noqa: D301  (click reads the backspace)
    try:
        with ExitStack() as stack:

            def opened(path: Path) -> ModelFile:
                return stack.enter_context(open_model(path, dequantize_others=dequantize_others))

            one, other, given = opened(a), opened(b), None if source is None else opened(source)
            with ByteBar() as bar:
                found = _find(one, other, given, globs, renames, bar)
        if as_json:
            click.echo(json.dumps(diff_record(found.difference, found.explained, found.concluded), indent=1))
        else:
            _print(found, show)
    except BrokenPipeError:
        raise
    except (ValueError, OSError, ImportError, MemoryError) as error:  # 1 would say that the files differ
        click.echo(error_line(error), err=True)
        raise click.exceptions.Exit(2) from None
    raise click.exceptions.Exit(0 if found.difference.equal else 1)


def _find(
    a: ModelFile,
    b: ModelFile,
    source: ModelFile | None,
    globs: Sequence[str],
    renames: Sequence[tuple[str, str]],
    bar: ByteBar,
) -> Found:
    def chosen(name: str) -> bool:
        return not globs or any(fnmatchcase(name, glob) for glob in globs)

    tick = Ticker(sum(t.nbytes for t in a.tensors if chosen(t.name)), bar)
    difference = compare(a, b, source, chosen=chosen, renames=renames, progress=tick)
    if not (difference.tensors or difference.only_a or difference.only_b) and globs:
        raise FileError(f"--tensor {' '.join(globs)}: no tensor of {a.path} or {b.path} has such a name")
    differing = difference.in_blocks
    if source is not None and any(t.pair.source for t in differing):
        nbytes = sum(t.pair.source.nbytes for t in differing if t.pair.source)
        return Found(difference, explain(difference, source, progress=Ticker(2 * nbytes, bar)), {})
    tick = Ticker(sum(t.pair.a.nbytes + t.pair.b.nbytes for t in differing), bar)
    ones = measure(a, [t.pair.a for t in differing], progress=tick)
    others = measure(b, [t.pair.b for t in differing], progress=tick)
    concluded = {}
    for name in dict.fromkeys(t.pair.a.type for t in differing):
        some = [t for t in differing if t.pair.a.type == name]
        counts = _total(some)
        left, right = total(ones[t.pair.a.name] for t in some), total(others[t.pair.b.name] for t in some)
        concluded[name] = conclude(counts, left, right)
    return Found(difference, {}, concluded)


def _total(tensors: Sequence[TensorDifference]) -> Counts:
    counts = Counts()
    for tensor in tensors:
        counts.add(tensor.counts)
    return counts


def _print(found: Found, show: int) -> None:
    console = Console(markup=False, highlight=False)
    difference = found.difference
    for side, model in (("A", difference.a), ("B", difference.b)):
        click.echo(f"{side} is {model.path}: {model.format}, {_count(len(model.tensors), 'tensor')}")
    equal = sum(t.status == "equal" for t in difference.tensors)
    differ = [t for t in difference.tensors if t.status != "equal"]
    click.echo(
        f"{_count(len(difference.tensors), 'tensor')} in both: {equal} equal in every bit, {len(differ)} not"
    )
    for side, names in (("A", difference.only_a), ("B", difference.only_b)):
        if names:
            more = f" and {len(names) - show:,} more" if len(names) > show else ""
            click.echo(f"In {side} alone: {', '.join(map(shown, names[:show]))}{more}")
    if not differ:
        return
    click.echo()
    _print_tensors(console, differ, show)
    first = next((t for t in differ if t.counts.first is not None), None)
    if first is not None and first.counts.first is not None:
        _print_first(console, first, first.counts.first)
    _print_kinds(console, _total(differ))
    _print_reasons(console, found)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _print_tensors(console: Console, differ: Sequence[TensorDifference], show: int) -> None:
    from .. import terminal

    rows = []
    for tensor in differ[:show]:
        pair, counts = tensor.pair, tensor.counts
        number, share = f"{counts.elements.total():,}", ""
        if tensor.status != "differs":
            number = "-"
        elif "bytes" not in counts.elements:
            share = f"{100 * counts.elements.total() / pair.a.elements:.3g}"
        blocks = f"{counts.blocks.total():,}" if tensor.blocks else "-"
        note = tensor.note or pair.without_source
        rows.append((shown(pair.name), pair.a.type, shape_text(pair.a.shape), number, share, blocks, note))
    columns = ("tensor", "type", "shape", "differ", "%", "blocks", "")
    more = f"and {len(differ) - show:,} more; --show has them" if len(differ) > show else ""
    terminal.put_table(console, "Tensors that differ", columns, rows, more)


def _print_first(console: Console, tensor: TensorDifference, first: First) -> None:
    from .. import terminal

    at = ", ".join(map(str, first.index))
    source = "" if first.source is None else f", in the source {first.source!r}"
    title = f"First: {shown(tensor.pair.name)} at ({at}){source}"
    fmt = tensor.pair.a.format
    if fmt is None or not isinstance(first.a, Side) or not isinstance(first.b, Side):
        click.echo(f"{title}: {first.a} in A, {first.b} in B\n")
        return
    click.echo(title)
    columns = ("", "scale code", "scale", "code", "bits", "element", "value")
    rows = [(name, *_side(side, fmt)) for name, side in (("A", first.a), ("B", first.b))]
    terminal.put_table(console, "", columns, rows)


def _side(side: Side, fmt: BlockFormat) -> tuple[str, ...]:
    from .. import terminal

    element = fmt.element
    return (
        f"{side.scale:02x}",
        scale_text(fmt.scale, side.scale),
        f"{side.code:0{(element.bits + 3) // 4}x}",
        terminal.bits(side.code, element.bits, 0 if element.twos_complement else element.exponent_bits),
        f"{element.values[side.code]:g}",
        f"{side.value:.9g}",
    )


def _print_kinds(console: Console, counts: Counts) -> None:
    from .. import terminal

    for title, texts, found in (
        ("Elements that differ", ELEMENT_KINDS, counts.elements),
        ("Blocks that differ", BLOCK_KINDS, counts.blocks),
    ):
        rows = [(texts[kind], f"{found[kind]:,}") for kind in texts if found[kind]]
        if rows:
            terminal.put_table(console, title, ("how", "number"), rows)


def _print_reasons(console: Console, found: Found) -> None:
    several = len({*found.explained, *found.concluded}) > 1
    for name, explained in found.explained.items():
        what = f"{name}, " if several else ""
        click.echo(f"{what}A: {explained.a}")
        click.echo(f"{what}B: {explained.b}")
        click.echo(f"So: {explained.verdict}")
    for name, sentences in found.concluded.items():
        if sentences:
            click.echo(f"From codes and scales alone{f', {name}' if several else ''}:")
        for sentence in sentences:
            click.echo(f"- {sentence}")
