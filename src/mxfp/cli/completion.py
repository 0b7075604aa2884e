# SPDX-License-Identifier: Apache-2.0
"""mxfp completion: what a shell needs to complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from .app import cli

SHELLS = ("bash", "zsh", "fish")


@cli.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print what SHELL needs to complete commands, options and their values.

    \b
    Examples:
      mxfp completion bash >> ~/.bashrc
      mxfp completion zsh >> ~/.zshrc
      mxfp completion fish > ~/.config/fish/completions/mxfp.fish
    """  # noqa: D301  (click reads the backspace)
    made = get_completion_class(shell)
    assert made is not None, "click has all of SHELLS"
    click.echo(made(cli, {}, "mxfp", "_MXFP_COMPLETE").source())
