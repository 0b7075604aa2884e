# SPDX-License-Identifier: Apache-2.0
"""What commands that end in a report share: their options, the layer, and what is printed and written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from ..data import Layer
from .app import layer_asked_for

if TYPE_CHECKING:
    from ..report.tables import Table


def layer_options(stem: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command --data, --tokens, --out and --json, for a report on a layer in files named `stem`."""

    def give(function: Callable[..., None]) -> Callable[..., None]:
        for option in (
            click.option("--json", "as_json", is_flag=True, help=f"Print {stem}.json instead of tables."),
            click.option(
                "--out",
                type=click.Path(path_type=Path, file_okay=False),
                help=f"Write {stem}.md, {stem}.json and pictures here.",
            ),
            click.option("--tokens", type=click.IntRange(min=1), help="Use only the first of the tokens."),
            click.option(
                "--data",
                type=click.Path(path_type=Path),
                help="An .npz with activations (tokens, K) and weight (N, K).",
            ),
        ):
            function = option(function)
        return function

    return give


def layer_to_report(data: Path | None, tokens: int | None, out: Path | None) -> Layer:
    """The layer that was asked for; an error first if nothing could be drawn or written in the end."""
    from ..report.figures import require_matplotlib
    from ..whole import writable

    if out is not None:
        require_matplotlib()
        writable(out.absolute())
    return layer_asked_for(data, tokens)


def put_report(
    files: Mapping[str, str],
    headline: str,
    attribution: str,
    tables: Iterable[Table],
    pictures: Callable[[], Mapping[str, bytes]],
    *,
    out: Path | None,
    as_json: bool,
) -> None:
    """Print a report as tables, or the .json of its files; with `out`, write files and pictures there."""
    from .. import terminal
    from ..whole import write_folder

    if as_json:
        click.echo(next(text for name, text in files.items() if name.endswith(".json")), nl=False)
    else:
        terminal.print_report(Console(markup=False), headline, attribution, tables)
    if out is not None:
        written: dict[str, Any] = {name: text.encode() for name, text in files.items()}
        written.update(pictures())
        write_folder(written, out)
        click.echo(f"wrote {', '.join(written)} to {out}", err=True)
