# SPDX-License-Identifier: Apache-2.0
"""mxfp report: what a block format does to a layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..accumulate import Accumulator
from ..formats import BLOCK_FORMATS
from ..scale import SCALE_RULES
from .app import AccumulatorType, Progress, cli, format_option
from .reports import layer_options, layer_to_report, put_report


@cli.command()
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
@layer_options("report")
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

    \b
    Examples:
      mxfp report
      mxfp report --format nvfp4 --out report
      mxfp report --data layer.npz --scale-rule rceil --accumulator blackwell
    """  # noqa: D301  (click reads the backspace)
    from ..report import measure
    from ..report.figures import CAPTIONS, pictures
    from ..report.render import json_text, markdown
    from ..report.tables import headline, tables

    layer = layer_to_report(data, tokens, out)
    with Progress() as progress:
        found = measure(
            layer,
            fmt=BLOCK_FORMATS[fmt],
            rules=rules or None,
            accumulators=accumulators or None,
            progress=progress,
        )
    files = {"report.md": markdown(found, CAPTIONS), "report.json": json_text(found)}
    put_report(
        files,
        headline(found),
        found.attribution,
        tables(found),
        lambda: pictures(found),
        out=out,
        as_json=as_json,
    )
