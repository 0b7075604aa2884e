# SPDX-License-Identifier: Apache-2.0
"""mxfp accumulate: accumulators against the exact sum, on real data."""

from __future__ import annotations

from pathlib import Path

import click

from ..accumulate import Accumulator
from ..formats import BLOCK_FORMATS
from .app import AccumulatorType, Progress, cli, format_option
from .reports import layer_options, layer_to_report, put_report


@cli.command()
@click.option(
    "--model",
    "models",
    multiple=True,
    type=AccumulatorType(),
    help="An accumulator, such as sequential:float16, fixed:24:-12 or blackwell. Repeat for several.",
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
@layer_options("accumulate")
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
    behind the other.

    \b
    Examples:
      mxfp accumulate
      mxfp accumulate --model sequential:float16 --model fixed:16:-12 --out acc
    """  # noqa: D301  (click reads the backspace)
    from ..report.accumulation import compare
    from ..report.accumulation_figures import CAPTION, PICTURES, pictures
    from ..report.accumulation_tables import headline, json_text, markdown, tables

    layer = layer_to_report(data, tokens, out)
    with Progress() as progress:
        found = compare(
            layer,
            fmt=BLOCK_FORMATS[fmt],
            fmt_b=None if format_b is None else BLOCK_FORMATS[format_b],
            accumulators=models or None,
            ks=ks or None,
            progress=progress,
        )
    files = {
        "accumulate.md": markdown(found, {PICTURES[0]: CAPTION}),
        "accumulate.json": json_text(found),
    }
    put_report(
        files,
        headline(found),
        found.attribution,
        tables(found),
        lambda: pictures(found),
        out=out,
        as_json=as_json,
    )
