# SPDX-License-Identifier: Apache-2.0
"""mxfp evaluate: what 4-bit weights and activations cost, layer by layer, on real activations."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from ..accumulate import Accumulator
from ..files.others import Floats
from ..formats import BLOCK_FORMATS
from ..scale import SCALE_RULES
from .app import AccumulatorType, Progress, cli
from .file_options import others_option
from .reports import put_report


@cli.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path),
    help="An .npz or .safetensors with activations (tokens, K) for each layer, named as its weight, with or "
    "without .weight.",
)
@click.option(
    "--source", type=click.Path(path_type=Path), help="The float model, where MODEL is in blocks already."
)
@click.option(
    "--format",
    "fmt",
    type=click.Choice(list(BLOCK_FORMATS), case_sensitive=False),
    help="Block format. Default: MXFP4, or what MODEL is in.",
)
@click.option("--scale-rule", "rule", type=click.Choice(SCALE_RULES), help="Default: the format's own.")
@click.option(
    "--accumulator", type=AccumulatorType(), default="sequential:float32", show_default=True, help="Of W4A4."
)
@click.option("--include", default="*", show_default=True, help="Only layers whose names match this pattern.")
@others_option("layers with such weights are refused")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Write evaluate.md and .json here."
)
@click.option("--json", "as_json", is_flag=True, help="Print evaluate.json instead of tables.")
def evaluate(
    model: Path,
    data: Path,
    source: Path | None,
    fmt: str | None,
    rule: Any,
    accumulator: Accumulator,
    include: str,
    dequantize_others: Floats | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Compare each layer's product in blocks, and in float16, with the exact one, on real activations.

    W4A16: weights in blocks, activations in float16. W4A4: both in blocks.

    \b
    Examples:
      mxfp evaluate model.safetensors --data activations.npz
      mxfp evaluate model-mxfp4.gguf --source model.gguf --data activations.npz
      mxfp evaluate model.safetensors --data activations.npz --format nvfp4 --accumulator blackwell
    """  # noqa: D301  (click reads the backspace)
    from ..files import open_model
    from ..report.evaluation import Activations
    from ..report.evaluation import evaluate as measured
    from ..report.evaluation_tables import headline, json_text, markdown, tables
    from ..whole import writable

    if out is not None:
        writable(out.absolute())
    with ExitStack() as stack:
        opened = stack.enter_context(open_model(model, dequantize_others=dequantize_others))
        original = None
        if source is not None:
            original = stack.enter_context(open_model(source, dequantize_others=dequantize_others))
        activations = stack.enter_context(Activations(data))
        with Progress() as progress:
            found = measured(
                opened,
                activations,
                source=original,
                fmt=None if fmt is None else BLOCK_FORMATS[fmt],
                rule=rule,
                accumulator=accumulator,
                include=include,
                progress=progress,
            )
    files = {"evaluate.md": markdown(found), "evaluate.json": json_text(found)}
    put_report(files, headline(found), "", tables(found), dict, out=out, as_json=as_json)
