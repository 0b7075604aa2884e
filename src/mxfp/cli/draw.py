# SPDX-License-Identifier: Apache-2.0
"""mxfp draw: figures of formats, blocks, adders and accumulators as SVG, PNG or PDF."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console

from ..data import embedded_layer, layer_from_file
from ..draw import FIGURES, named, pictures, render, save
from ..formats import BLOCK_FORMATS, ELEMENT_FORMATS, SCALE_FORMATS
from ..whole import write_folder
from .app import AccumulatorType, cli, numbers, rounding_options

FORMATS = [*BLOCK_FORMATS, *ELEMENT_FORMATS, *SCALE_FORMATS]


@cli.command()
@click.argument(
    "name", required=False, metavar="[NAME]", type=click.Choice(list(FIGURES), case_sensitive=False)
)
@click.option("--format", "format", type=click.Choice(FORMATS, case_sensitive=False), help="A format.")
@click.option("--values", help="Numbers, separated by spaces or commas. Default: the running example.")
@click.option("--values-b", help="As many numbers: the other side of a product.")
@rounding_options
@click.option("--accumulator", type=AccumulatorType(), multiple=True, help="May be repeated.")
@click.option("--width", type=click.IntRange(min=1), help="Mark sums that registers of so many bits lose.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="An .npz file whose weights to take. Default: the layer here.",
)
@click.option(
    "--out", type=click.Path(path_type=Path, allow_dash=True), help="FILE.svg, .png or .pdf; - prints SVG."
)
@click.option(
    "--all",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="All pictures of the docs, into DIR.",
)
@click.pass_context
def draw(
    context: click.Context, /, name: str | None, out: Path | None, folder: Path | None, **_: Any
) -> None:
    """Draw the figure NAME to a file, NAME.svg if --out is not given. Without NAME: list the figures.

    \b
      mxfp draw number-line --format E4M3
      mxfp draw block --values "0.1 -2.3 7 2.5" --scale-rule rceil --out block.png
      mxfp draw accumulators --accumulator sequential:float16 --accumulator hopper-fp8
      mxfp draw adder-tree --width 7
      mxfp draw --all figures
    """  # noqa: D301  (click reads the backspace)
    given = _given(context)
    if folder is not None:
        if name or given or out:
            raise click.UsageError(
                "--all draws the pictures of the docs and takes no name and no other option"
            )
        made = pictures(embedded_layer().weight)
        write_folder(made, folder)
        click.echo(f"{len(made)} pictures in {folder}")
    elif name is None:
        if given or out:
            raise click.UsageError(f"which figure? {', '.join(FIGURES)}")
        _list()
    else:
        data = given.pop("data", None)
        if "weights" in FIGURES[name].options:
            given["weights"] = (embedded_layer() if data is None else layer_from_file(data)).weight
        elif data is not None:
            raise click.UsageError(f"{name} is not drawn from --data")
        figure = named(name, **given)
        if out == Path("-"):
            click.echo(render(figure, "svg"), nl=False)
            return
        path = Path(f"{name}.svg") if out is None else out
        save(figure, path)
        click.echo(path)


def _given(context: click.Context) -> dict[str, Any]:
    """The options of figures that are on the command line, numbers read."""
    given = {
        option: value
        for option, value in context.params.items()
        if option not in ("name", "out", "folder")
        and context.get_parameter_source(option) is not ParameterSource.DEFAULT
    }
    for option in ("values", "values_b"):
        if option in given:
            given[option] = numbers(given[option], f"--{option.replace('_', '-')}")
    return given


def _list() -> None:
    from ..terminal import put_table

    rows = [(name, entry.summary, _options(entry.options)) for name, entry in FIGURES.items()]
    put_table(Console(), "", ("figure", "shows", "options"), rows)


def _options(names: tuple[str, ...]) -> str:
    words = ("--data" if n == "weights" else f"--{n.replace('_', '-')}" for n in names)
    return " ".join(words)
