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
from ..files.others import Floats
from .app import cli
from .bytes_bar import ByteBar, check_new, shown
from .file_options import file_options, others_notes, written


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
    help="Read OUT again and compare all bits before it has its name.",
)
@file_options
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def convert(
    source: Path,
    out: Path,
    layout: str | None,
    check: bool,
    dequantize_others: Floats | None,
    external_data: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Write a model in another layout: gpt-oss, compressed-tensors, modelopt, mxfp, GGUF or ONNX.

    Codes, scales, names and all other tensors stay as they are, NaN scales and the sign of zero among them.
    What the layout cannot hold is refused, by its name, before anything is written. GGUF's other quantized
    types (Q8_0, Q4_K and so on) keep their bytes in GGUF; elsewhere they are refused, or decoded with
    --dequantize-others. OUT appears when it is complete and has been checked, or not at all.

    \b
    Examples:
      mxfp convert gpt-oss-20b/ gpt-oss-20b.gguf
      mxfp convert model.gguf model.safetensors --layout gpt-oss
      mxfp convert gpt-oss-20b.gguf gpt-oss-20b.onnx --dequantize-others bfloat16
    """  # noqa: D301  (click reads the backspace)
    with open_model(source, dequantize_others=dequantize_others) as model:
        check_destination(model, out)
        check_new(out, force)
        with ByteBar() as progress:
            done = convert_model(
                model,
                out,
                layout=layout,
                check=check,
                overwrite=force,
                external_data=external_data,
                progress=progress,
            )
    if as_json:
        click.echo(json.dumps(_record(done, source), indent=1))
        return
    checked = "read again, all bits equal" if done.checked else "not read again"
    click.echo(
        f"{out.name}: {done.tensors} tensors, {len(done.blocks)} of them in blocks, in the layout "
        f"{done.layout}; {checked}"
    )
    for note in (*others_notes(done.kept, done.decoded, dequantize_others), done.carried.note):
        if note:
            click.echo(f"Note: {note}")
    for name, count in done.nan_blocks.items():
        taken = ", which readers of this layout take for numbers" if done.nan_is_number else ""
        click.echo(f"Note: {shown(name)} has {count:,} NaN scales{taken}")
    click.echo(f"wrote {written(out, done.beside)}: {done.size:,} bytes in {done.seconds:.2f} s", err=True)


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
        "other_types": dict(done.kept),
        "dequantized": dict(done.decoded),
        "nan_scales": dict(done.nan_blocks),
        "checked": done.checked,
        "note": done.carried.note or None,
        "file_size": done.size,
        "external_data": None if done.beside is None else str(done.beside),
        "seconds": done.seconds,
    }
