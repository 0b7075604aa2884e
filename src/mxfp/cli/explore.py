# SPDX-License-Identifier: Apache-2.0
"""mxfp explore: the interactive lessons in a browser, or one of them to edit."""

from __future__ import annotations

from pathlib import Path

import click

from ..explore.catalogue import LESSONS, Lesson, lesson_named
from .app import cli


class LessonType(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A lesson by its name or number."""

    name = "lesson"

    def convert(
        self, value: str | Lesson, param: click.Parameter | None, ctx: click.Context | None
    ) -> Lesson:
        """Text -> Lesson, or one clear line."""
        if isinstance(value, Lesson):
            return value
        try:
            return lesson_named(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@cli.command(
    epilog="\b\nLessons:\n" + "\n".join(f"  {x.place} {x.name:<12}{x.title}" for x in LESSONS),
)
@click.argument("lesson", required=False, type=LessonType())
@click.option("--port", type=click.IntRange(1, 65535), help="Default: the first free one from 2718 on.")
@click.option("--host", default="127.0.0.1", show_default=True, help="0.0.0.0 lets a whole class in.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.option("--edit", is_flag=True, help="Copy LESSON to this folder and open it in marimo's editor.")
def explore(lesson: Lesson | None, port: int | None, host: str, no_browser: bool, edit: bool) -> None:
    """Open the interactive lessons in a browser, or one LESSON.

    Sliders and fields for every choice; each stage follows. They run on this machine and fetch nothing.
    For example:

    \b
      mxfp explore
      mxfp explore accumulator
      mxfp explore --edit number
    """  # noqa: D301  (click reads the backspace)
    from ..explore import server

    if not edit:
        server.serve(lesson, host=host, port=port, browser=not no_browser, say=click.echo)
        return
    if lesson is None:
        raise click.UsageError("--edit needs a lesson, such as: mxfp explore --edit number")
    status = server.edit(lesson, Path.cwd(), port=port, browser=not no_browser, say=click.echo)
    if status:
        raise click.exceptions.Exit(status)
