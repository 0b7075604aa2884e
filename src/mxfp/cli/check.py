# SPDX-License-Identifier: Apache-2.0
"""mxfp check: what a simulator gave against what is expected, and why it differs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import click
from click.core import ParameterSource

from ..verify.check.comparison import SHOWN, check
from ..verify.check.policy import EXAMPLES, Policy
from ..verify.unit import KINDS
from ..verify.vectors import Written, read_suite
from ..whole import writable
from .app import cli
from .campaign import Bar
from .vectors import OPTIONS, suite_asked_for


class PolicyType(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A policy by its text."""

    name = "policy"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Policy:
        """Text -> Policy, or one clear line."""
        if isinstance(value, Policy):
            return value
        try:
            return Policy.named(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def vectors_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the argument VECTORS, and the options of `mxfp vectors`; `vectors_named` reads them."""
    for option in reversed(OPTIONS[1:]):
        function = option(function)
    return click.argument("vectors", metavar="VECTORS")(function)


def vectors_named(vectors: str, asked: dict[str, Any]) -> Written:
    """The vectors of a sidecar, or of a kind and the options of `mxfp vectors`."""
    if vectors in KINDS:
        return suite_asked_for(vectors, **asked)
    context = click.get_current_context()
    given = [name for name in asked if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if given:
        raise click.UsageError(
            f"{vectors} is a sidecar, which says all about its vectors; options such as "
            f"--{given[0].replace('_', '-')} are for {', '.join(KINDS)}"
        )
    path = Path(vectors)
    if not path.exists():
        raise click.UsageError(
            f"VECTORS is the .json of `mxfp vectors`, or one of {', '.join(KINDS)} and the same options; "
            f"there is no {vectors}"
        )
    return read_suite(path)


@cli.command(name="check")
@vectors_options
@click.option(
    "--results",
    type=click.Path(path_type=Path, dir_okay=False),
    help="What the simulator wrote. Default: standard input.",
)
@click.option("--policy", type=PolicyType(), default="bits", show_default=True, help=f"{EXAMPLES}.")
@click.option("--prefix", default="", help="Only lines that begin with this are answers.")
@click.option("--show", type=click.IntRange(min=0), default=SHOWN, show_default=True, help="Failures shown.")
@click.option("--no-explain", is_flag=True, help="Do not look for a behaviour that explains the failures.")
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), help="Write JUnit XML here.")
@click.option("--json", "json_path", type=click.Path(path_type=Path, dir_okay=False), help="Write JSON here.")
def check_command(
    vectors: str,
    results: Path | None,
    policy: Policy,
    prefix: str,
    show: int,
    no_explain: bool,
    junit: Path | None,
    json_path: Path | None,
    **asked: Any,
) -> None:
    """Compare what a simulator wrote with what is expected; VECTORS is the .json that was made with them.

    Or the arguments of `mxfp vectors` again, for a pipe. The results are one line a case, in order: the hex
    digits of the result (or sum); or with a number before them; or stages as name=hex; or JSON Lines.

    Exit status: 0 every case is there and right; 1 some are wrong, or X; 2 the results cannot be used as
    they are: lines are missing, malformed, or too many.

    \b
    Example:
      mxfp check vectors/dot.json --results results.txt --junit report.xml
      mxfp vectors dot --level 2 --stdout | simulator | mxfp check dot --level 2
    """  # noqa: D301  (click reads the backspace)
    try:
        suite = vectors_named(vectors, asked)
        source = _answers(results)
        for path in (junit, json_path):
            _check_report(path)
        with Bar() as progress:
            verdict = check(
                suite,
                source,
                policy=policy,
                prefix=prefix,
                shown=show,
                explain=not no_explain,
                progress=progress,
            )
    except (ValueError, OSError) as error:  # 1 would say that cases are wrong
        raise _unusable(error) from None
    failed: list[OSError] = []
    for write, path in ((verdict.write_junit, junit), (verdict.write_json, json_path)):
        try:
            if path is not None:
                write(path)
        except OSError as error:
            failed.append(error)
    click.echo(str(verdict))
    if failed:
        raise _unusable(failed[0])
    raise click.exceptions.Exit(verdict.status)


def _answers(results: Path | None) -> Path | IO[bytes]:
    """The file of results, or standard input."""
    if results is None:
        if sys.stdin is None:
            raise click.UsageError("standard input is closed; give --results")
        return sys.stdin.buffer
    if not results.exists():
        raise click.UsageError(f"--results: there is no {results}; did the simulator run?")
    return results


def _check_report(path: Path | None) -> None:
    """OSError, before the work rather than after it, where a report cannot be written."""
    if path is not None:
        folder = path.absolute().parent
        if not folder.is_dir():
            raise click.UsageError(f"there is no folder {folder} for the report {path}")
        writable(folder)


def _unusable(error: Exception) -> click.exceptions.Exit:
    """One line about what went wrong, and the exit status of a check without a verdict."""
    click.echo(f"mxfp: {error}", err=True)
    return click.exceptions.Exit(2)
