# SPDX-License-Identifier: Apache-2.0
"""mxfp convert: a quantized model from one layout to another, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ..files.carrying import check_destination
from ..files.converting import Converted, convert_model
from ..files.layouts import LAYOUTS
from ..files.model import open_model
from .app import cli
from .bytes_bar import ByteBar, check_new, shown


@cli.command()
@click.argument("source", metavar="IN", type=click.Path(path_type=Path))
@click.argument("out", metavar="OUT", type=click.Path(path_type=Path))
@click.option(
    "--layout",
    type=click.Choice(list(LAYOUTS)),
    help="How blocks lie in OUT. Default: mxfp in .safetensors, gguf in .gguf, onnx in .onnx.",
)
@click.option(
    "--check/--no-check",
    default=True,
    show_default=True,
    help="Read OUT again and compare all bits; it is removed if it differs.",
)
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def convert(source: Path, out: Path, layout: str | None, check: bool, force: bool, as_json: bool) -> None:
    """Write a model in another layout: gpt-oss, compressed-tensors, modelopt, mxfp, GGUF or ONNX.

    Codes, scales, names and all other tensors stay as they are, NaN scales and the sign of zero among them.
    What the layout cannot hold is refused, by its name, before anything is written. OUT appears when it is
    complete, or not at all.

    \b
    Examples:
      mxfp convert gpt-oss-20b/ gpt-oss-20b.gguf
      mxfp convert model.gguf model.safetensors --layout gpt-oss
    """  # noqa: D301  (click reads the backspace)
    with open_model(source) as model:
        check_destination(model, out)
        check_new(out, force)
        with ByteBar() as progress:
            done = convert_model(model, out, layout=layout, check=check, overwrite=force, progress=progress)
    if as_json:
        click.echo(json.dumps(_record(done, source), indent=1))
        return
    checked = "read again, all bits equal" if done.checked else "not read again"
    click.echo(
        f"{out.name}: {done.tensors} tensors, {len(done.blocks)} of them in blocks, in the layout "
        f"{done.layout}; {checked}"
    )
    if done.carried.note:
        click.echo(f"Note: {done.carried.note}")
    for name, count in done.nan_blocks.items():
        taken = ", which readers of this layout take for numbers" if done.nan_is_number else ""
        click.echo(f"Note: {shown(name)} has {count:,} NaN scales{taken}")
    click.echo(f"wrote {out}: {done.size:,} bytes in {done.seconds:.2f} s", err=True)


def _record(done: Converted, source: Path) -> dict[str, Any]:
    return {
        "schema": "mxfp-convert/1",
        "in": str(source),
        "out": str(done.path),
        "layout": done.layout,
        "tensors": done.tensors,
        "blocks": [
            {"name": t.name, "shape": list(t.shape), "format": t.type, "from": t.layout} for t in done.blocks
        ],
        "nan_scales": dict(done.nan_blocks),
        "checked": done.checked,
        "note": done.carried.note or None,
        "file_size": done.size,
        "seconds": done.seconds,
    }
