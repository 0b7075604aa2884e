# SPDX-License-Identifier: Apache-2.0
"""mxfp accumulate: accumulators against the exact sum, on real data."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from ..accumulate import Accumulator
from ..formats import BLOCK_FORMATS
from .app import AccumulatorType, Progress, cli, format_option, layer_asked_for


@cli.command()
@click.option(
    "--model",
    "models",
    multiple=True,
    type=AccumulatorType(),
    help="An accumulator, such as sequential:float16, fixed:24:-12 or blackwell. Repeat for several.",
)
@click.option(
    "--data", type=click.Path(path_type=Path), help="An .npz with activations (tokens, K) and weight (N, K)."
)
@format_option
@click.option(
    "--format-b",
    type=click.Choice(list(BLOCK_FORMATS), case_sensitive=False),
    help="Block format of the weights. Default: --format.",
)
@click.option(
    "--k",
    "ks",
    multiple=True,
    type=click.IntRange(min=1),
    help="Products to add. Repeat for several. Default: one block, doubled up to the layer's K.",
)
@click.option("--tokens", type=click.IntRange(min=1), help="Use only the first of the tokens.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write accumulate.md, accumulate.json and a picture here.",
)
@click.option("--json", "as_json", is_flag=True, help="Print accumulate.json instead of tables.")
def accumulate(
    models: tuple[Accumulator, ...],
    data: Path | None,
    fmt: str,
    format_b: str | None,
    ks: tuple[int, ...],
    tokens: int | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Compare accumulators on a layer: error against the exact sum, overflow, bounds, error against K.

    Without --data: a real layer that comes with the package. A K beyond the layer's own puts its rows one
    behind the other. Example: mxfp accumulate --model sequential:float16 --model fixed:16:-12 --out acc
    """
    from .. import terminal
    from ..report.accumulation import compare
    from ..report.accumulation_figures import CAPTION, PICTURES, pictures
    from ..report.accumulation_tables import headline, json_text, markdown, tables
    from ..report.figures import require_matplotlib
    from ..whole import writable, write_folder

    if out is not None:
        require_matplotlib()
        writable(out.absolute())
    layer = layer_asked_for(data, tokens)
    with Progress() as progress:
        found = compare(
            layer,
            fmt=BLOCK_FORMATS[fmt],
            fmt_b=None if format_b is None else BLOCK_FORMATS[format_b],
            accumulators=models or None,
            ks=ks or None,
            progress=progress,
        )
    if as_json:
        click.echo(json_text(found), nl=False)
    else:
        terminal.print_report(Console(), headline(found), found.attribution, tables(found))
    if out is not None:
        files = {
            "accumulate.md": markdown(found, {PICTURES[0]: CAPTION}).encode(),
            "accumulate.json": json_text(found).encode(),
        }
        write_folder({**files, **pictures(found)}, out)
        click.echo(f"wrote {', '.join([*files, *PICTURES])} to {out}", err=True)
