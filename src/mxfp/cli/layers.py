# SPDX-License-Identifier: Apache-2.0
"""mxfp report: what a block format does to a layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console

from ..accumulate import Accumulator
from ..formats import BLOCK_FORMATS
from ..scale import SCALE_RULES
from .app import AccumulatorType, Progress, cli, format_option, layer_asked_for


@cli.command()
@click.option(
    "--data", type=click.Path(path_type=Path), help="An .npz with activations (tokens, K) and weight (N, K)."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write report.md, report.json and PNGs here.",
)
@format_option
@click.option(
    "--scale-rule",
    "rules",
    multiple=True,
    type=click.Choice(SCALE_RULES),
    help="Repeat for several. Default: all.",
)
@click.option(
    "--accumulator", "accumulators", multiple=True, type=AccumulatorType(), help="Repeat for several."
)
@click.option("--tokens", type=click.IntRange(min=1), help="Use only the first of the tokens.")
@click.option("--json", "as_json", is_flag=True, help="Print report.json instead of tables.")
def report(
    data: Path | None,
    out: Path | None,
    fmt: str,
    rules: tuple[Any, ...],
    accumulators: tuple[Accumulator, ...],
    tokens: int | None,
    as_json: bool,
) -> None:
    """Measure what a block format does to a layer: accuracy against fp16, width, bytes, speed.

    Without --data: a real layer that comes with the package.
    """
    from .. import terminal
    from ..report import measure
    from ..report.figures import CAPTIONS, pictures, require_matplotlib
    from ..report.render import json_text, markdown
    from ..report.tables import headline, tables
    from ..whole import writable, write_folder

    if out is not None:
        require_matplotlib()
        writable(out.absolute())
    layer = layer_asked_for(data, tokens)
    with Progress() as progress:
        found = measure(
            layer,
            fmt=BLOCK_FORMATS[fmt],
            rules=rules or None,
            accumulators=accumulators or None,
            progress=progress,
        )
    if as_json:
        click.echo(json_text(found), nl=False)
    else:
        terminal.print_report(Console(), headline(found), found.attribution, tables(found))
    if out is not None:
        files = {"report.md": markdown(found, CAPTIONS).encode(), "report.json": json_text(found).encode()}
        write_folder({**files, **pictures(found)}, out)
        click.echo(f"wrote {', '.join([*files, *CAPTIONS])} to {out}", err=True)
