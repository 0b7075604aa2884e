# SPDX-License-Identifier: Apache-2.0
"""The command line. Every wrong call ends in one clear line and a non-zero exit."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console

from . import __version__
from .accumulate import Accumulator
from .blocks import BlockArray, dequantize, quantize
from .encode import ROUNDINGS
from .formats import BLOCK_FORMATS, ELEMENT_FORMATS, MXFP4, SCALE_FORMATS, BlockFormat
from .names import accumulator as accumulator_named
from .scale import SCALE_RULES
from .trace import trace

NUMBERS: dict[str, Any] = {"ignore_unknown_options": True}  # so that -2.3 is a number, not an option


class AccumulatorType(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """An accumulator by its short text: `exact`, `sequential:float16`, `fixed:24:-12`."""

    name = "accumulator"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Accumulator:
        """Text -> Accumulator, or one clear line."""
        if isinstance(value, Accumulator):
            return value
        try:
            return accumulator_named(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _format_option(function: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--format",
        "fmt",
        type=click.Choice(list(BLOCK_FORMATS), case_sensitive=False),
        default=MXFP4.name,
        show_default=True,
        help="Block format.",
    )(function)


def _rounding_options(function: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option(
            "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of stochastic rounding."
        ),
        click.option("--rounding", type=click.Choice(ROUNDINGS), default="nearest_even", show_default=True),
        click.option("--scale-rule", type=click.Choice(SCALE_RULES), help="Default: the format's own."),
    ):
        function = option(function)
    return function


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mxfp")
def cli() -> None:
    r"""Microscaling (MX) arithmetic, bit for bit.

    \b
    Try:
      mxfp report                     what MXFP4 does to a real layer
      mxfp show 0.1 -2.3 7 1          one block's journey
      mxfp dot                        one dot product's journey
      mxfp formats                    the formats; mxfp formats E2M1: every code
    """


@cli.command()
@click.argument("name", required=False)
def formats(name: str | None) -> None:
    """Print the table of formats, or every code of one (E2M1, E8M0, MXFP4 …)."""
    from . import terminal

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
@_format_option
@_rounding_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def show(
    numbers: tuple[float, ...], fmt: str, scale_rule: Any, rounding: Any, seed: int, as_json: bool
) -> None:
    """Follow NUMBERS through a block: amax, scale, codes in bits, integers, values, error.

    Numbers are float64 and rounded once. Example: mxfp show 0.1 -2.3 7 1
    """
    from . import terminal

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
@_format_option
@_rounding_options
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

    Without -a and -b: the first K elements of a token and a weight row of the embedded layer. Example:
    mxfp dot -a "1 2 3" -b "0.5 -6 1" --accumulator sequential:float16
    """
    from . import terminal
    from .data import embedded_layer

    if (text_a is None) != (text_b is None):
        raise click.UsageError("give both -a and -b, or neither for the embedded layer")
    if text_a is not None and text_b is not None:
        sides: list[Any] = [_numbers(text_a, "-a"), _numbers(text_b, "-b")]
        if sides[0].size != sides[1].size:
            raise click.UsageError(f"-a has {sides[0].size} numbers and -b has {sides[1].size}")
    else:
        layer = embedded_layer()
        sides = [layer.activations[0, :length], layer.weight[0, :length]]
    a, b = (_quantized(x, fmt, scale_rule, rounding, seed + n) for n, x in enumerate(sides))
    terminal.dot_journey(Console(), trace(a, b, accumulator=accumulator))


def _numbers(text: str, option: str) -> Any:
    try:
        found = [float(word) for word in text.replace(",", " ").split()]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None
    if not found:
        raise click.BadParameter("no numbers", param_hint=option)
    return np.array(found, np.float64)


@cli.command()
@click.option(
    "--data", type=click.Path(path_type=Path), help="An .npz with activations (tokens, K) and weight (N, K)."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write report.md, report.json and PNGs here.",
)
@_format_option
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
    from . import terminal
    from .data import Layer, embedded_layer, layer_from_file
    from .report import measure
    from .report.figures import CAPTIONS, pictures, require_matplotlib
    from .report.render import json_text, markdown, writable, write
    from .report.tables import headline, tables

    if out is not None:
        require_matplotlib()
        writable(out.absolute())
    layer = embedded_layer() if data is None else layer_from_file(data)
    if tokens is not None:
        layer = Layer(layer.name, layer.activations[:tokens], layer.weight, layer.attribution)
    with _Progress() as progress:
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
        console = Console()
        console.print(headline(found), highlight=False)
        if found.attribution:
            console.print(f"Data: {found.attribution}", highlight=False)
        console.print()
        for text in tables(found):
            terminal.print_text_table(console, text)
    if out is not None:
        files = {"report.md": markdown(found, CAPTIONS).encode(), "report.json": json_text(found).encode()}
        write({**files, **pictures(found)}, out)
        click.echo(f"wrote {', '.join([*files, *CAPTIONS])} to {out}", err=True)


class _Progress:
    """A progress bar on standard error, where that is a terminal."""

    def __enter__(self) -> _Progress:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self.bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self.task = self.bar.add_task("starting")
        self.bar.start()
        return self

    def __exit__(self, *details: object) -> None:
        self.bar.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show how far `what` has come."""
        self.bar.update(self.task, description=what, completed=done, total=total)


def main() -> None:
    """Run the command line; what the user can mend is one line, not a traceback."""
    try:
        code = cli.main(prog_name="mxfp", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("mxfp: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except (ValueError, TypeError, ImportError, FloatingPointError, OSError) as error:
        click.echo(f"mxfp: {error}", err=True)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
