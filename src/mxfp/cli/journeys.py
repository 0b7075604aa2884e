# SPDX-License-Identifier: Apache-2.0
"""mxfp formats, show and dot: tables, one block's journey, one dot product's."""

from __future__ import annotations

import json
from typing import Any

import click
import numpy as np
from rich.console import Console

from ..accumulate import Accumulator
from ..blocks import BlockArray, dequantize, quantize
from ..formats import BLOCK_FORMATS, ELEMENT_FORMATS, SCALE_FORMATS, BlockFormat
from ..trace import trace
from .app import AccumulatorType, cli, format_option, numbers, rounding_options

NUMBERS: dict[str, Any] = {"ignore_unknown_options": True}  # so that -2.3 is a number, not an option


@cli.command()
@click.argument("name", required=False)
def formats(name: str | None) -> None:
    """Print the table of formats, or every code of one (E2M1, E8M0, MXFP4 …).

    \b
    Examples:
      mxfp formats
      mxfp formats E2M1
      mxfp formats E8M0
    """  # noqa: D301  (click reads the backspace)
    from .. import terminal

    console = Console()
    if name is None:
        terminal.formats(console)
        return
    known: dict[str, Any] = {**ELEMENT_FORMATS, **SCALE_FORMATS, **BLOCK_FORMATS}
    fmt = known.get(name.upper())
    if fmt is None:
        raise click.BadParameter(f"{name!r} is none of {', '.join(known)}", param_hint="NAME")
    if isinstance(fmt, BlockFormat):
        console.print(
            f"{fmt.name}: blocks of {fmt.block} {fmt.element.name}, one {fmt.scale.name} scale each"
        )
        fmt = fmt.element
    terminal.codes_of(console, fmt)


@cli.command(context_settings=NUMBERS)
@click.argument("numbers", nargs=-1, required=True, type=float)
@format_option
@rounding_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def show(
    numbers: tuple[float, ...], fmt: str, scale_rule: Any, rounding: Any, seed: int, as_json: bool
) -> None:
    """Follow NUMBERS through a block: amax, scale, codes in bits, integers, values, error.

    Numbers are float64 and rounded once.

    \b
    Examples:
      mxfp show 0.1 -2.3 7 2.5
      mxfp show 0.1 -2.3 7 2.5 --scale-rule rceil
      mxfp show 300 0.001 --format mxfp8_e4m3
    """  # noqa: D301  (click reads the backspace)
    from .. import terminal

    x = np.array(numbers, np.float64)
    q = _quantized(x, fmt, scale_rule, rounding, seed)
    if as_json:
        click.echo(json.dumps(_block_record(q), indent=1))
    else:
        terminal.block_journey(Console(), x, q, rounding)


def _quantized(x: Any, fmt: str, rule: Any, rounding: Any, seed: int) -> BlockArray:
    rng = np.random.default_rng(seed) if rounding == "stochastic" else None
    return quantize(x, BLOCK_FORMATS[fmt], scale_rule=rule, rounding=rounding, rng=rng, engine="reference")


def _block_record(q: BlockArray) -> dict[str, Any]:
    return {
        "format": q.format.name,
        "scale_rule": q.scale_rule,
        "tensor_scale": q.tensor_scale,
        "scales": q.scales.tolist(),
        "codes": q.codes.tolist(),
        "integers": q.format.element.integers[q.codes].tolist(),
        "values": [
            v if np.isfinite(v) else str(v)
            for v in dequantize(q, dtype=np.float64, engine="reference").tolist()
        ],
    }


@cli.command()
@click.option("-a", "--a", "text_a", help="Numbers, separated by spaces or commas.")
@click.option("-b", "--b", "text_b", help="As many numbers.")
@format_option
@rounding_options
@click.option("--accumulator", type=AccumulatorType(), default="sequential:float32", show_default=True)
@click.option(
    "--k", "length", type=click.IntRange(1, 384), default=64, show_default=True, help="Without -a and -b."
)
def dot(
    text_a: str | None,
    text_b: str | None,
    fmt: str,
    scale_rule: Any,
    rounding: Any,
    seed: int,
    accumulator: Accumulator,
    length: int,
) -> None:
    """Follow one dot product: codes, integers, products, adder tree, terms, accumulator, result.

    Without -a and -b: the first K elements of a token and a weight row of the embedded layer.

    \b
    Examples:
      mxfp dot
      mxfp dot --k 128 --accumulator blackwell
      mxfp dot -a "1 2 3" -b "0.5 -6 1" --accumulator sequential:float16
    """  # noqa: D301  (click reads the backspace)
    from .. import terminal
    from ..data import embedded_layer

    if (text_a is None) != (text_b is None):
        raise click.UsageError("give both -a and -b, or neither for the embedded layer")
    if text_a is not None and text_b is not None:
        sides: list[Any] = [numbers(text_a, "-a"), numbers(text_b, "-b")]
        if sides[0].size != sides[1].size:
            raise click.UsageError(f"-a has {sides[0].size} numbers and -b has {sides[1].size}")
    else:
        layer = embedded_layer()
        sides = [layer.activations[0, :length], layer.weight[0, :length]]
    a, b = (_quantized(x, fmt, scale_rule, rounding, seed + n) for n, x in enumerate(sides))
    terminal.dot_journey(Console(), trace(a, b, accumulator=accumulator))
