# SPDX-License-Identifier: Apache-2.0
"""mxfp coverage: which bins a set of vectors hits, and vectors for those that it missed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from ..verify.check.answers import ANSWERED, AnswerReader
from ..verify.check.problems import sentences
from ..verify.coverage import Coverage, fill
from ..verify.coverage.reports import as_markdown, missed_in_words
from ..verify.unit import Batch
from ..verify.vectors import Recorded, Written, write_suite
from ..whole import writable
from .app import cli
from .campaign import Bar
from .check import vectors_named, vectors_options

SHOWN = 20
"""Missed bins of a family that are printed by name."""
ABOUT = "Cases for bins of the coverage that other vectors missed."


@cli.command()
@vectors_options
@click.option(
    "--results",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What the simulator wrote: count only the cases answered, and the classes of these results.",
)
@click.option("--prefix", default="", help="Only lines of --results that begin with this are answers.")
@click.option(
    "--add",
    "earlier",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Counts of another run of the same unit, as --json wrote them. May be repeated.",
)
@click.option("--fill", "filled", is_flag=True, help="Make vectors for what was missed; give --out.")
@click.option("--fill-seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of --fill.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for them.")
@click.option("--strict", is_flag=True, help="Exit status 1 unless every bin that can be reached is hit.")
@click.option("--json", "form", flag_value="json", help="Print JSON, all counts in it.")
@click.option("--markdown", "form", flag_value="markdown", help="Print Markdown.")
def coverage(
    vectors: str,
    results: Path | None,
    prefix: str,
    earlier: tuple[Path, ...],
    filled: bool,
    fill_seed: int,
    out: Path | None,
    strict: bool,
    form: str | None,
    **asked: Any,
) -> None:
    """Count what vectors hit: classes of operands, sums, scales, roundings and results.

    VECTORS is the .json that was made with them, or the arguments of `mxfp vectors` again. A result that no
    right unit gives (an illegal bin) is an error, with the number of its case; so is a line of --results that
    is no answer, or one to no case. Bins that this unit cannot reach are listed with the reason.

    \b
    Example:
      mxfp coverage vectors/dot.json
      mxfp coverage vectors/dot.json --results results.txt
      mxfp coverage vectors/running.json --fill --out more
    """  # noqa: D301  (click reads the backspace)
    if filled != (out is not None):
        raise click.UsageError("--fill and --out go together")
    suite = vectors_named(vectors, asked)
    if out is not None:
        writable(out)
    cover = Coverage(suite.unit)
    for path in earlier:
        cover += _read(cover, path)
    usable = _count(cover, suite, results, prefix)
    if form == "json":
        click.echo(json.dumps(cover.as_dict(), indent=1))
    elif form == "markdown":
        click.echo(as_markdown(cover), nl=False)
    else:
        _print(cover)
    if out is not None:
        _fill(cover, suite, out, Path(vectors).stem, fill_seed)
    wrong = cover.wrong()
    for hit in wrong:
        click.echo(f"mxfp: case {hit.case}: {hit.family}: {hit.bin.name}, but {hit.bin.why}", err=True)
    if wrong or not usable or (strict and cover.missed()):
        raise click.exceptions.Exit(1)


def _read(cover: Coverage, path: Path) -> Coverage:
    try:
        return Coverage.from_dict(cover.unit, json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, RecursionError) as error:
        raise click.ClickException(f"{path}: {error}") from None


def _count(cover: Coverage, suite: Written, answers: Path | None, prefix: str) -> bool:
    """Add the suite, or what of it was answered; whether every line was an answer to a case."""
    reader = None if answers is None else AnswerReader(answers, suite.unit, prefix=prefix)
    before, done = cover.cases, 0
    with Bar() as progress:
        for batch in suite.batches():
            if reader is None:
                cover.add(batch)
            else:
                given = reader.take(len(batch))
                cover.add(batch, answers=given.values, answered=given.state == ANSWERED)
            done += len(batch)
            progress("counting", done, suite.cases)
    if reader is None:
        return True
    reader.finish()
    answered = cover.cases - before
    for problem in reader.problems:
        click.echo(f"mxfp: {answers}: {problem}", err=True)
    for sentence in sentences(reader.counts):
        click.echo(f"mxfp: {answers}: {sentence}", err=True)
    if not answered:
        raise click.ClickException(f"{answers} answers none of {suite.cases:,} cases")
    if answered < suite.cases:
        click.echo(
            f"mxfp: {answers} answers {answered:,} of {suite.cases:,} cases; only these count", err=True
        )
    return not reader.counts


def _print(cover: Coverage) -> None:
    from ..terminal import put_table

    console = Console(soft_wrap=True)
    unit = cover.unit_as_dict()
    added = "" if unit["accumulator"] is None else f", {unit['accumulator']}"
    title = f"{unit['kind']}, {unit['a']} × {unit['b']}, {unit['blocks']} × {unit['lanes']} lanes{added}"
    rows = [(*row[:2], row[2], "-" if row[3] == "0" else row[3]) for row in cover.rows()]
    rows.append(("all", str(cover.hit), str(cover.wanted), "-"))
    put_table(console, title, ("bins", "hit", "of", "unreachable"), rows, f"{cover.cases:,} cases")
    for line in missed_in_words(cover, SHOWN):
        console.print(line, highlight=False, markup=False)


def _fill(cover: Coverage, suite: Written, out: Path, stem: str, seed: int) -> None:
    """Write vectors for what was missed, in the layout of the suite."""
    batch = fill(cover, seed=seed)
    if not len(batch):
        click.echo("nothing to fill: no case was found for what is missed", err=True)
        return
    origin = {"made_by": "mxfp coverage --fill", "vectors": stem, "fill_seed": seed}
    filled = Recorded(batch, suite.adapter, suite.stages, ABOUT, origin)
    paths = write_suite(filled, out, name=f"{stem}-fill")
    after = _with(cover, batch)
    click.echo(f"{len(batch):,} cases: {', '.join(path.name for path in paths)} in {out}", err=True)
    left = after.missed()
    click.echo(f"with them {after.hit} of {after.wanted} bins are hit", err=True)
    for family, missed in left[:SHOWN]:
        click.echo(f"  no case found for {family}: {missed}", err=True)


def _with(cover: Coverage, batch: Batch) -> Coverage:
    more = Coverage(cover.unit)
    more.add(batch)
    return cover + more
