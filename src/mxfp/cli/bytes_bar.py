# SPDX-License-Identifier: Apache-2.0
"""What commands that read and write model files share: a bar that counts bytes, names that can be shown."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
from rich.console import Console

from ..files.tensor import printable
from .app import Progress

MOST_SAID: Final = 2000
"""Characters of an error that are shown."""


class ByteBar(Progress):
    """A progress bar on standard error, with bytes a second and the time left."""

    def __enter__(self) -> ByteBar:
        from rich import progress

        columns = (
            progress.BarColumn(20),
            progress.DownloadColumn(),
            progress.TransferSpeedColumn(),
            progress.TimeRemainingColumn(),
            progress.TextColumn("{task.description}", markup=False),
        )
        console = Console(stderr=True)
        self.bar = progress.Progress(
            *columns, console=console, transient=True, disable=not console.is_terminal
        )
        self.task = self.bar.add_task("starting", total=None)
        self.bar.start()
        return self

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show how many bytes are done."""
        super().__call__(shown(what)[-20:], done, total)  # the line has room for no more


def shown(name: str, most: int = 80) -> str:
    """A name of a tensor as a terminal can show it: nothing in it is a command, and it is not long."""
    plain = printable(name)
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def error_line(error: BaseException) -> str:
    """What is said of an error: one line, whatever names and paths are in it."""
    said = str(error)
    if isinstance(error, MemoryError):
        said = f"not enough memory{f': {said}' if said else ''}"
    return f"mxfp: {shown(said, MOST_SAID)}"


def check_new(path: Path, force: bool) -> None:
    """One clear line for a file that exists, before any work."""
    if not force and (path.exists() or path.is_symlink()):
        raise click.ClickException(f"{path} exists; --force replaces it")


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape as tables have it.

    >>> shape_text((2048, 4096)), shape_text(())
    ('2,048 × 4,096', '-')
    """
    return " × ".join(f"{n:,}" for n in shape) or "-"
