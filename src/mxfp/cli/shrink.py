# SPDX-License-Identifier: Apache-2.0
"""mxfp shrink: the smallest case that a unit still gets wrong."""

from __future__ import annotations

import json
from typing import Any

import click

from ..verify.check import Policy
from ..verify.shrink import Command, RunError, Shrunk
from ..verify.shrink.shrinking import MOST_RUNS, ShrinkError, shrink
from ..verify.unit import Batch
from ..verify.vectors import Written
from .app import cli
from .campaign import Bar
from .check import PolicyType, vectors_named, vectors_options


@cli.command(name="shrink")
@vectors_options
@click.option("--case", "number", type=click.IntRange(min=0), required=True, help="The case that fails.")
@click.option("--run", "text", required=True, help="A command that runs the unit; see below.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True)
@click.option("--fill", type=click.IntRange(min=1), help="The command always reads so many cases.")
@click.option("--prefix", default="", help="Only lines that begin with this are answers.")
@click.option("--policy", type=PolicyType(), default="bits", show_default=True)
@click.option("--most-runs", type=click.IntRange(min=4), default=MOST_RUNS, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def shrink_command(
    vectors: str,
    number: int,
    text: str,
    timeout: float,
    fill: int | None,
    prefix: str,
    policy: Policy,
    most_runs: int,
    as_json: bool,
    **asked: Any,
) -> None:
    """Make a failing case as small as it goes: fewer steps and lanes, plainer codes, scales nearer to 1.

    --run is a shell command. {vectors} and {results} in it stand for files of lines that it reads and writes,
    {include} for a SystemVerilog include with the places of the fields, {cases} for how many there are.
    Without {vectors} it gets the lines on its standard input, without {results} its output is read. It is run
    some tens of times, each time on many cases.

    Exit status 1: the unit has the case right, is not deterministic, or the command fails.

    \b
    Example:
      mxfp shrink vectors/dot.json --case 4711 --run "./simulate +vectors={vectors} +results={results}"
    """  # noqa: D301  (click reads the backspace)
    suite = vectors_named(vectors, asked)
    if not number < suite.cases:
        raise click.UsageError(f"--case: there are cases 0 … {suite.cases - 1}, got {number}")
    case = _steps(suite, number)
    earlier = number - len(case)
    before = _steps(suite, earlier) if earlier >= 0 else None
    command = Command(text, suite.unit, suite.adapter, suite.stages, prefix, timeout, fill)
    try:
        with Bar() as progress:
            found = shrink(
                case, command, before=before, policy=policy, most_runs=most_runs, progress=progress
            )
    except (ShrinkError, RunError) as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(json.dumps(_record(found, suite), indent=1))
        return
    click.echo(str(found))
    click.echo("\nvectors:\n" + found.vectors(stages=suite.stages, adapter=suite.adapter))
    click.echo("Python:\n" + _indented(found.python()))
    click.echo("SystemVerilog:\n" + _indented(found.systemverilog(suite.adapter)))


def _steps(suite: Written, number: int) -> Batch:
    """A case with the steps before it in its sequence."""
    batch, place = suite.case(number)
    return batch.cut(slice(0, place + 1))


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" if line else "\n" for line in text.splitlines())


def _record(found: Shrunk, suite: Written) -> dict[str, Any]:
    return {
        "nonzero": found.nonzero,
        "steps": len(found.batch),
        "due": found.digits(found.right),
        "got": found.digits(found.got),
        "runs": found.runs,
        "note": found.note,
        "a": found.batch.codes_a.tolist(),
        "b": found.batch.codes_b.tolist(),
        "scale_a": found.batch.scales_a.tolist(),
        "scale_b": found.batch.scales_b.tolist(),
        "first": found.batch.first.tolist(),
        "vectors": found.vectors(stages=suite.stages, adapter=suite.adapter).splitlines(),
        "python": found.python(),
        "systemverilog": found.systemverilog(suite.adapter),
    }
