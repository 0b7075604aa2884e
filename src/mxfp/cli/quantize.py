# SPDX-License-Identifier: Apache-2.0
"""mxfp quantize: a model of floats to a block format."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console

from ..blocks import Nonfinite
from ..encode import Rounding
from ..files.choosing import Choice
from ..files.hub_config import CONFIG, check_config, config_beside, told, write_config
from ..files.layouts import LAYOUTS
from ..files.model import open_model
from ..files.others import Floats, carried_types, decoded_types, is_decoded
from ..files.planning import Item, Plan, plan_quantize
from ..files.quantizing import Quantized, quantize_model
from ..files.tensor import Tensor
from ..formats import BLOCK_FORMATS
from .app import cli, format_option, rounding_options
from .bytes_bar import ByteBar, check_new, shape_text, shown
from .file_options import file_options, others_notes, written

NONFINITE: Final[dict[str, Nonfinite]] = {"refuse": "raise", "nan": "nan", "saturate": "saturate"}
WORST: Final = 10
"""Tensors of least SQNR that are shown."""
MOST_ROWS: Final = 40
"""Rows of a table of the plan; --json has all."""


@cli.command()
@click.argument("source", metavar="IN", type=click.Path(path_type=Path))
@click.argument("out", metavar="OUT", type=click.Path(path_type=Path))
@format_option
@click.option(
    "--layout",
    type=click.Choice(list(LAYOUTS)),
    help="How blocks lie in OUT. Default: mxfp in .safetensors, gguf in .gguf, onnx in .onnx.",
)
@click.option("--include", multiple=True, metavar="GLOB", help="Quantize these and no others. Repeat.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Keep these as they are. Repeat.")
@rounding_options
@click.option(
    "--nonfinite",
    type=click.Choice(list(NONFINITE)),
    default="refuse",
    show_default=True,
    help="What a NaN or an infinity does: end it, make its block NaN, or (infinities) saturate.",
)
@click.option(
    "--config", is_flag=True, help="Write IN's config.json beside OUT, with its quantization_config."
)
@file_options
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
@click.option("--dry-run", is_flag=True, help="Show the plan and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every tensor, instead of tables.")
def quantize(
    source: Path,
    out: Path,
    fmt: str,
    layout: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    scale_rule: Any,
    rounding: Rounding,
    seed: int,
    nonfinite: str,
    config: bool,
    dequantize_others: Floats | None,
    external_data: bool,
    force: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Quantize the weights of a model: IN in float32, float16 or bfloat16, OUT in a block format.

    IN is a .safetensors or .gguf file, an index of shards, or a folder with one; OUT ends in .safetensors,
    .gguf or .onnx. Without --include, matrices whose last axis is whole blocks are quantized, but for norms,
    embeddings, heads and routers, by their names. All other tensors, their names and GGUF's metadata are
    copied bit for bit; those of GGUF's other quantized types (Q8_0 and so on) to GGUF alone. OUT appears when
    it is complete, or not at all.

    \b
    Examples:
      mxfp quantize model.safetensors model.gguf --dry-run
      mxfp quantize model/ quantized/model.safetensors --layout compressed-tensors --config
      mxfp quantize model.gguf out.gguf --format nvfp4 --exclude 'blk.0.*' --scale-rule nearest
    """  # noqa: D301  (click reads the backspace)
    with open_model(source, dequantize_others=dequantize_others) as model:
        plan = plan_quantize(
            model,
            out,
            BLOCK_FORMATS[fmt],
            layout=layout,
            choice=Choice(include, exclude),
            scale_rule=scale_rule,
            nonfinite=NONFINITE[nonfinite],
            external_data=external_data,
        )
        check_new(out, force)
        beside = check_config(plan, overwrite=force) if config else None
        if not as_json:
            _show_plan(plan, rounding, config, dequantize_others)
        if dry_run:
            if as_json:
                click.echo(json.dumps(_record(plan, rounding, seed, nonfinite), indent=1))
            return
        with one_thread_a_kernel(), ByteBar() as progress:
            done = quantize_model(plan, rounding=rounding, seed=seed, overwrite=force, progress=progress)
        if beside is not None:
            click.echo(f"wrote {write_config(plan, beside)}", err=True)
    if as_json:
        click.echo(json.dumps(_record(plan, rounding, seed, nonfinite, done), indent=1))
    else:
        _show_cost(done)
    rate = _sizes(plan.items)[0] / max(done.seconds, 1e-9) / 1e6
    files = written(out, plan.beside)
    click.echo(f"wrote {files}: {plan.size:,} bytes in {done.seconds:.2f} s, {rate:,.0f} MB/s read", err=True)


@contextmanager
def one_thread_a_kernel() -> Iterator[None]:
    """Kernels that do not share their work among threads: the job has threads of its own.

    Helpers of the kernels would watch for the next call meanwhile, and take the processors from those.
    """
    import numba

    config: Any = numba.config
    before = config.NUMBA_NUM_THREADS
    config.NUMBA_NUM_THREADS = 1
    try:
        yield
    finally:
        config.NUMBA_NUM_THREADS = before


def _show_plan(plan: Plan, rounding: Rounding, config: bool, floats: Floats | None) -> None:
    from .. import terminal

    console = Console(markup=False, highlight=False)
    chosen, kept = plan.quantized, [item for item in plan.items if not item.quantized]
    terminal.put_table(
        console,
        f"To be quantized to {plan.format}, rule {plan.scale_rule}, rounding {rounding}",
        ("tensors", "count", "shape", "type", "bytes", "after"),
        _rows(chosen),
    )
    if kept:
        terminal.put_table(
            console,
            "Kept as they are",
            ("tensors", "count", "shape", "type", "bytes", "because"),
            _rows(kept),
        )
    before, after = _sizes(plan.items)
    console.print(
        f"{len(chosen)} of {len(plan.items)} tensors are quantized; {before:,} bytes become {after:,} "
        f"({100 * after / max(before, 1):.1f} %), in the layout {plan.layout}"
    )
    tensors = plan.model.tensors
    for note in (*others_notes(carried_types(tensors), decoded_types(tensors), floats), plan.carried.note):
        if note:
            console.print(f"Note: {note}")
    if told(plan.layout, plan.format, ()) is not None and not config and config_beside(plan.model):
        console.print(f"Note: {CONFIG} is not written; with --config it is, with a quantization_config")


def _sizes(items: Sequence[Item]) -> tuple[int, int]:
    """Bytes before and after."""
    return sum(item.source.nbytes for item in items), sum(item.target.nbytes for item in items)


def _rows(items: Sequence[Item]) -> list[tuple[str, ...]]:
    """A row for each kind of tensor: names that differ in numbers alone are one, and all of one axis are."""
    kinds: dict[tuple[Any, ...], list[Item]] = {}
    for item in items:
        source = item.source
        kind: tuple[Any, ...] = (re.sub(r"\d+", "N", source.name), source.shape)
        if len(source.shape) < 2:
            kind = ()
        kinds.setdefault((*kind, _type(source), item.kept_because), []).append(item)
    rows: list[tuple[str, ...]] = []
    for kind, some in kinds.items():
        before, after = _sizes(some)
        first = some[0].source
        names = shown(first.name)
        if len(some) > 1:
            names = shown(kind[0]) if len(first.shape) > 1 else "those of one axis"
        rows.append(
            (
                names,
                f"{len(some):,}",
                shape_text(first.shape) if len(first.shape) > 1 else "",
                _type(first),
                f"{before:,}",
                some[0].kept_because or f"{after:,}",
            )
        )
    if len(rows) > MOST_ROWS:
        more = len(rows) - MOST_ROWS
        rows = [*rows[:MOST_ROWS], (f"and {more:,} kinds more, which --json has", "", "", "", "", "")]
    return rows


def _type(source: Tensor) -> str:
    return f"{source.parts[0].type} as {source.type}" if is_decoded(source) else source.type


def _show_cost(done: Quantized) -> None:
    from .. import terminal

    console = Console(markup=False, highlight=False)
    shapes = {item.source.name: item.source.shape for item in done.plan.quantized}
    terminal.put_table(
        console,
        "Signal to quantization noise (SQNR), the least first",
        ("tensor", "shape", "SQNR, dB", "mean square noise"),
        [
            (shown(name), shape_text(shapes[name]), _db(cost.db), f"{cost.noise / max(cost.elements, 1):.3g}")
            for name, cost in done.worst(WORST)
        ],
    )
    total = done.total
    console.print(f"All quantized tensors together: {_db(total.db)} dB")
    if total.left_out:
        console.print(f"Left out of it: {total.left_out:,} elements in blocks that are NaN, or infinite")


def _db(value: float) -> str:
    return "no error" if value == math.inf else f"{value:.2f}"


def _record(
    plan: Plan, rounding: Rounding, seed: int, nonfinite: str, done: Quantized | None = None
) -> dict[str, Any]:
    from ..report.measure import plain

    tensors = []
    for item in plan.items:
        one: dict[str, Any] = {
            "name": item.source.name,
            "shape": list(item.source.shape),
            "type": item.source.type,
            "becomes": item.target.type,
            "bytes": item.source.nbytes,
            "bytes_after": item.target.nbytes,
            "kept_because": item.kept_because or None,
        }
        if done is not None and item.quantized:
            cost = done.sqnr[item.source.name]
            one |= {"sqnr_db": cost.db, "signal": cost.signal, "noise": cost.noise, "left_out": cost.left_out}
            one["tensor_scale"] = done.tensor_scales.get(item.source.name)
        tensors.append(one)
    before, after = _sizes(plan.items)
    found: dict[str, Any] = {
        "schema": "mxfp-quantize/1",
        "in": str(plan.model.path),
        "out": str(plan.path),
        "layout": plan.layout,
        "format": str(plan.format),
        "scale_rule": plan.scale_rule,
        "rounding": rounding,
        "seed": seed if rounding == "stochastic" else None,
        "nonfinite": nonfinite,
        "other_types": dict(carried_types(plan.model.tensors)),
        "dequantized": dict(decoded_types(plan.model.tensors)),
        "note": plan.carried.note or None,
        "bytes": before,
        "bytes_after": after,
        "file_size": plan.size,
        "external_data": None if plan.beside is None else str(plan.beside),
        "tensors": tensors,
    }
    if done is not None:
        found |= {"sqnr_db": done.total.db, "seconds": done.seconds}
    return dict(plain(found))
