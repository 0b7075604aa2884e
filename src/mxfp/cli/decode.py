# SPDX-License-Identifier: Apache-2.0
"""mxfp decode: the ceiling of decode of a model on a device, and measurements beside it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from .app import cli

LEAST, MOST = 1e-6, 1e12
"""Of GB/s and of 10^12 operations a second: all else is a mistake."""


class Number(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A positive number that a device could have, optionally behind `FORMAT=`."""

    name = "number"

    def __init__(self, unit: float, *, named: bool = False) -> None:
        self.unit, self.named = unit, named

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Text -> (format or None, number) if formats can be named, else the number."""
        label, sign, digits = str(value).rpartition("=") if self.named else ("", "", str(value))
        try:
            number = float(digits)
        except ValueError:
            number = math.nan
        if not LEAST <= number <= MOST or (sign and not label):
            form = "a positive number, or FORMAT=number" if self.named else "a positive number"
            self.fail(f"{value!r:.60} is not {form}, of {LEAST:g} … {MOST:g}", param, ctx)
        return (label or None, number * self.unit) if self.named else number * self.unit


class Numbers(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """Whole numbers, several with commas between."""

    name = "n[,n...]"

    def __init__(self, least: int) -> None:
        self.least = least

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Text -> numbers."""
        try:
            found = tuple(int(v) for v in str(value).split(","))
        except ValueError:
            found = ()
        if not found or any(not self.least <= v <= 10**9 for v in found):
            self.fail(
                f"{value!r:.60} is not a whole number from {self.least} on, up to 10^9, or several with "
                "commas",
                param,
                ctx,
            )
        return found


class MeasuredType(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """`37.8`, `37.8@500` (at a context of 500 tokens), or `mxfp4:37.8@500` (in another format)."""

    name = "[format:]rate[@context]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Text -> Measured."""
        from ..report.decode.compare import Measured

        rate, at, context = str(value).partition("@")
        label, _, digits = rate.rpartition(":")
        try:
            return Measured(float(digits), int(context) if at else 0, label or None)
        except (ValueError, OverflowError) as error:
            reason = str(error) if "expected" in str(error) else "expected TOKENS_PER_S[@CONTEXT]"
            self.fail(f"{value!r}: {reason}", param, ctx)


@cli.command()
@click.argument("model", required=False, type=click.Path(path_type=Path))
@click.option(
    "--bandwidth",
    "bandwidths",
    type=Number(1e9),
    multiple=True,
    required=True,
    help="GB/s (10^9 bytes a second) at which the device reads memory. Repeat for what-ifs.",
)
@click.option(
    "--peak",
    "peaks",
    type=Number(1e12, named=True),
    multiple=True,
    help="Peak in 10^12 operations a second; FORMAT=PEAK for a format that is multiplied natively. Repeat.",
)
@click.option(
    "--context", "contexts", type=Numbers(0), multiple=True, help="Tokens in the cache. Repeat for several."
)
@click.option("--kv-type", default="f16", show_default=True, help="Type of the KV cache, such as q8_0.")
@click.option(
    "--batch",
    "batches",
    type=Numbers(1),
    multiple=True,
    help="Sequences decoded together; weights are read once for all. Default: 1. Repeat for what-ifs.",
)
@click.option("--prompt", type=click.IntRange(min=1), help="Tokens of a prompt: prints the time to answer.")
@click.option(
    "--output", type=click.IntRange(min=1), help="Tokens of its answer. Default: 500, with --prompt."
)
@click.option(
    "--measured",
    type=MeasuredType(),
    multiple=True,
    help="Tokens/s that were measured, TOKENS_PER_S[@CONTEXT]. Repeat: several contexts are fitted.",
)
@click.option(
    "--what-if",
    "formats",
    multiple=True,
    metavar="FORMAT[,FORMAT...]",
    help="Weights in another format: mxfp4, f16.",
)
@click.option("--weights", "stored_as", help="Type of the matrices, where the model is shapes alone.")
@click.option("--shape", "shapes", multiple=True, metavar="KEY=VALUE", help="A key of config.json. Repeat.")
@click.option(
    "--window-period",
    type=click.IntRange(min=0),
    help="Every N-th layer sees all tokens, the others a window. Default: by file or architecture.",
)
@click.option("--json", "as_json", is_flag=True, help="Print decode.json instead of tables.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Write decode.md and decode.json here."
)
def decode(
    model: Path | None,
    bandwidths: tuple[float, ...],
    peaks: tuple[tuple[str | None, float], ...],
    contexts: tuple[tuple[int, ...], ...],
    kv_type: str,
    batches: tuple[tuple[int, ...], ...],
    prompt: int | None,
    output: int | None,
    measured: tuple[Any, ...],
    formats: tuple[str, ...],
    stored_as: str | None,
    shapes: tuple[str, ...],
    window_period: int | None,
    as_json: bool,
    out: Path | None,
) -> None:
    """Tokens a second that a device cannot pass on MODEL: bandwidth over the bytes that a token reads.

    MODEL is a .gguf (its header is enough), a .safetensors, an index of shards or a folder with a
    config.json, or a config.json alone; without MODEL, --shape gives its keys.

    \b
    Examples:
      mxfp decode model.gguf --bandwidth 256
      mxfp decode model.gguf --bandwidth 256 --measured 37.8@500 --measured 30@8000
      mxfp decode model.gguf --bandwidth 256 --peak 59 --prompt 4000 --output 500
      mxfp decode model.gguf --bandwidth 256 --what-if mxfp4,q8_0,f16 --batch 1,8,64
    """  # noqa: D301  (click reads the backspace)
    from .. import terminal
    from ..report.decode.ceiling import Device
    from ..report.decode.forecast import CONTEXTS, forecast
    from ..report.decode.source import model_from, shape_from
    from ..report.decode.tables import headline, json_text, markdown, tables
    from ..whole import writable, write_folder

    if model is None and not shapes:
        raise click.UsageError("give a MODEL, or its shapes with --shape KEY=VALUE")
    if output is not None and prompt is None:
        raise click.UsageError("--output needs --prompt")
    if out is not None:
        writable(out.absolute())
    plain = [v for name, v in peaks if name is None]
    if len(plain) > 1:
        raise click.UsageError(f"--peak is given {len(plain)} times without a format, expected once")
    native = {name: v for name, v in peaks if name is not None}
    given = dict(map(shape_from, shapes))
    found = forecast(
        model_from(model, shapes=given, stored_as=stored_as, window_period=window_period),
        [Device(b, plain[0] if plain else None, native) for b in bandwidths],
        contexts=[n for some in contexts for n in some] or CONTEXTS,
        kv_type=kv_type,
        batches=[n for some in batches for n in some] or (1,),
        prompt=prompt,
        output=500 if output is None else output,
        measured=measured,
        formats=[name for some in formats for name in some.split(",")],
    )
    if as_json:
        click.echo(json_text(found), nl=False)
    else:
        terminal.print_report(Console(markup=False), headline(found), "", tables(found))
    if out is not None:
        write_folder({"decode.md": markdown(found).encode(), "decode.json": json_text(found).encode()}, out)
        click.echo(f"wrote decode.md, decode.json to {out}", err=True)
