# SPDX-License-Identifier: Apache-2.0
"""The group that every command joins, and the options that several share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console

from .. import __version__
from ..accumulate import Accumulator
from ..data import Layer, embedded_layer, layer_from_file
from ..encode import ROUNDINGS
from ..formats import BLOCK_FORMATS, MXFP4
from ..names import accumulator as accumulator_named
from ..scale import SCALE_RULES
from .group import FIRST_PAGE, Commands


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


def format_option(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command --format."""
    return click.option(
        "--format",
        "fmt",
        type=click.Choice(list(BLOCK_FORMATS), case_sensitive=False),
        default=MXFP4.name,
        show_default=True,
        help="Block format.",
    )(function)


def rounding_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command --scale-rule, --rounding and --seed."""
    for option in (
        click.option(
            "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of stochastic rounding."
        ),
        click.option("--rounding", type=click.Choice(ROUNDINGS), default="nearest_even", show_default=True),
        click.option("--scale-rule", type=click.Choice(SCALE_RULES), help="Default: the format's own."),
    ):
        function = option(function)
    return function


def layer_asked_for(data: Path | None, tokens: int | None) -> Layer:
    """The layer of a file, or the one in the package; its first tokens, if a number is given."""
    layer = embedded_layer() if data is None else layer_from_file(data)
    if tokens is None:
        return layer
    return Layer(layer.name, layer.activations[:tokens], layer.weight, layer.attribution)


def numbers(text: str, option: str) -> Any:
    """Numbers with spaces or commas between -> float64 (n,), or one line that names the option."""
    try:
        found = [float(word) for word in text.replace(",", " ").split()]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None
    if not found:
        raise click.BadParameter("no numbers", param_hint=option)
    return np.array(found, np.float64)


class Progress:
    """A progress bar on standard error, where that is a terminal."""

    def __enter__(self) -> Progress:
        from rich import progress

        columns = (
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.TimeElapsedColumn(),
        )
        console = Console(stderr=True)
        self.bar = progress.Progress(
            *columns, console=console, transient=True, disable=not console.is_terminal
        )
        self.task = self.bar.add_task("starting")
        self.bar.start()
        return self

    def __exit__(self, *details: object) -> None:
        self.bar.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show how far `what` has come."""
        self.bar.update(self.task, description=what, completed=done, total=total)


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True
)
@click.version_option(__version__, prog_name="mxfp")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Microscaling (MX) arithmetic, bit for bit: MXFP4, its family and NVFP4.

    Without a command: what to try first.
    """
    if ctx.invoked_subcommand is None:
        click.echo(FIRST_PAGE, nl=False)
