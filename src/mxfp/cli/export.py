# SPDX-License-Identifier: Apache-2.0
"""mxfp export-c: the C model as two files, for DPI-C and for any other C."""

from __future__ import annotations

from pathlib import Path

import click

from ..verify.export import export_c
from .app import cli


@cli.command("export-c")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite files of the same name that have other content.")
def export(directory: Path, force: bool) -> None:
    """Write the C model, mxfp_dot.c and mxfp_dot.h, to DIR.

    Sums of products, scaled block dots and the accumulators in C99, with the bits of this package; the header
    has the SystemVerilog that imports them. Example:

    \b
      mxfp export-c model
      cc -std=c99 -O2 -shared -fPIC -o model/libmxfp_dot.so model/mxfp_dot.c
    """  # noqa: D301  (click reads the backspace)
    for path in export_c(directory, force=force):
        click.echo(directory / path.name)
