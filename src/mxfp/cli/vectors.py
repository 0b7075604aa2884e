# SPDX-License-Identifier: Apache-2.0
"""mxfp vectors: cases for a dot-product unit, with what it should give at every stage."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ..accumulate import Accumulator, Sequential
from ..formats import BLOCK_FORMATS, MXFP4
from ..verify.layout import Adapter
from ..verify.unit import KINDS, Unit
from ..verify.vectors import Suite
from ..verify.vectors.groups import COUNT, GROUPS
from ..verify.vectors.writers import FORMATS, Format, stream, write_suite
from .app import AccumulatorType, cli
from .campaign import Bar

FORMAT = click.Choice(list(BLOCK_FORMATS), case_sensitive=False)


class CodeMap(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """Codes of an element as a unit has them: one for each, with commas, in decimal or 0x hex."""

    name = "codes"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Text -> codes, or one clear line."""
        if isinstance(value, tuple):
            return value
        try:
            return tuple(int(code, 0) for code in value.split(","))
        except ValueError:
            self.fail(f"{value!r} is not numbers with commas between them, such as 0,1,2,3", param, ctx)


OPTIONS: tuple[Callable[[Callable[..., None]], Callable[..., None]], ...] = (
    click.argument("kind", type=click.Choice(KINDS)),
    click.option("--format", "fmt", type=FORMAT, default=MXFP4.name, show_default=True, help="Block format."),
    click.option("--format-b", type=FORMAT, help="Block format of b. Default: --format."),
    click.option(
        "--lanes", type=click.IntRange(min=1), help="Products of a block. Default: the format's block."
    ),
    click.option(
        "--blocks", type=click.IntRange(min=1), default=1, show_default=True, help="Blocks of a case."
    ),
    click.option(
        "--accumulator",
        type=AccumulatorType(),
        default=str(Sequential("float32")),
        show_default=True,
        help="What adds the blocks, such as exact:float16, fixed:24:-12:wrap or blackwell.",
    ),
    click.option(
        "--level",
        type=click.IntRange(1, 2),
        default=1,
        show_default=True,
        help="1: all constructed cases and some at random. 2: --count more at random.",
    ),
    click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True),
    click.option("--count", type=click.IntRange(min=0), help=f"Random cases of level 2. Default: {COUNT:,}."),
    click.option(
        "--group",
        "groups",
        multiple=True,
        metavar="NAME",
        help=f"Only this group; repeat for several. Groups: {', '.join(group.name for group in GROUPS)}.",
    ),
    click.option(
        "--stages", is_flag=True, help="Put products and every level of the adder tree into the lines."
    ),
    click.option(
        "--lane-order",
        type=click.Choice(["ascending", "descending"]),
        default="ascending",
        show_default=True,
        help="Descending: element 0 in the highest lane.",
    ),
    click.option(
        "--nibble-order",
        type=click.Choice(["low_first", "high_first"]),
        default="low_first",
        show_default=True,
        help="High first: the first of two 4-bit codes in the upper half of a byte.",
    ),
    click.option(
        "--scale-order",
        type=click.Choice(["ab", "ba"]),
        default="ab",
        show_default=True,
        help="Which scale is lower in the line.",
    ),
    click.option(
        "--code-map",
        type=CodeMap(),
        default=(),
        help="For each code of an element, the one that the unit uses instead, with commas.",
    ),
    click.option(
        "--endian",
        type=click.Choice(["big", "little"]),
        default="big",
        show_default=True,
        help="Little: the bytes of a line last first.",
    ),
)


def suite_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the argument and the options that name a suite; `suite_asked_for` reads them."""
    for option in reversed(OPTIONS):
        function = option(function)
    return function


def suite_asked_for(
    kind: Any,
    fmt: str,
    format_b: str | None,
    lanes: int | None,
    blocks: int,
    accumulator: Accumulator,
    level: int,
    seed: int,
    count: int | None,
    groups: tuple[str, ...],
    stages: bool,
    lane_order: Any,
    nibble_order: Any,
    scale_order: Any,
    code_map: tuple[int, ...],
    endian: Any,
) -> Suite:
    """The suite of these options."""
    b = None if format_b is None else BLOCK_FORMATS[format_b]
    unit = Unit(kind, BLOCK_FORMATS[fmt], b, lanes, blocks, accumulator)
    adapter = Adapter(lane_order, nibble_order, scale_order, code_map, endian)
    return Suite(unit, level, seed, adapter, stages, groups or None, count)


@cli.command()
@suite_options
@click.option("--hex", "as_hex", is_flag=True, help="NAME.hex, for $readmemh (the default).")
@click.option("--columns", is_flag=True, help="NAME.txt, a column of hex digits for each field.")
@click.option("--jsonl", is_flag=True, help="NAME.jsonl, an object for each case.")
@click.option("--name", help="Name of the files, without ending. Default: KIND.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for the files.")
@click.option("--stdout", is_flag=True, help="Write lines to standard output instead, as they are made.")
def vectors(
    as_hex: bool, columns: bool, jsonl: bool, name: str | None, out: Path | None, stdout: bool, **asked: Any
) -> None:
    """Make vectors for a unit: KIND is sum (of products), dot (with scales) or running (accumulating).

    Same arguments, same bytes, on any machine. NAME.json says where every field of a line is, what each group
    holds and what the files' digests are; NAME.svh says the same to SystemVerilog.

    \b
    Example:
      mxfp vectors dot --format mxfp4 --lanes 32 --blocks 1 --level 1 --out vectors
      mxfp vectors running --level 2 --count 5000000 --stdout | simulator | mxfp check ...
    """  # noqa: D301  (click reads the backspace)
    if (out is None) == (not stdout):
        raise click.UsageError("give --out FOLDER, or --stdout")
    formats: tuple[Format, ...] = tuple(
        form for form, wanted in zip(FORMATS, (as_hex, columns, jsonl), strict=True) if wanted
    ) or ("hex",)
    suite = suite_asked_for(**asked)
    if stdout:
        if len(formats) > 1 or name is not None:
            raise click.UsageError("--stdout takes one of --hex, --columns and --jsonl, and no --name")
        stream(suite, sys.stdout.buffer, form=formats[0])
        return
    with Bar() as progress:
        paths = write_suite(suite, out or Path(), name=name, formats=formats, progress=progress)
    made = f"{suite.cases:,} cases of {len(suite.tally) - len(suite.empty)} groups"
    click.echo(f"{made}: {', '.join(path.name for path in paths)} in {out}", err=True)
    for group, why in suite.empty.items():
        click.echo(f"  no {group}: {why}", err=True)
