# SPDX-License-Identifier: Apache-2.0
"""mxfp campaign: a sweep of many cases over all cores, or over a cluster."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from ..accumulate import Accumulator
from ..campaigns import Campaign, CampaignError, CampaignInterrupted, Row, Worst, run
from ..distributions import DISTRIBUTIONS, SCALES
from .app import AccumulatorType, Progress, cli


class Bar(Progress):
    """A progress bar that counts, and says how long it will take."""

    def __enter__(self) -> Bar:
        from rich import progress

        columns = (
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            progress.TextColumn("left"),
            progress.TimeRemainingColumn(),
        )
        console = Console(stderr=True)
        self.bar = progress.Progress(
            *columns, console=console, transient=True, disable=not console.is_terminal
        )
        self.task = self.bar.add_task("starting", total=None)
        self.bar.start()
        return self


def several(*names: str, **options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """An option that may be given several times."""
    return click.option(*names, multiple=True, show_default=True, **options)


@cli.command()
@several("--format", "formats", default=["MXFP4"], help="Block format, or A:B for sides that differ.")
@several("--accumulator", "accumulators", type=AccumulatorType(), required=True)
@several("--distribution", "distributions", type=click.Choice(DISTRIBUTIONS), default=["normal"])
@several("--scales", type=click.Choice(SCALES), help="How scales are drawn. Default: the distribution's own.")
@several("--k", "lengths", type=click.IntRange(min=1), default=[128], help="Length of a dot product.")
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="How many seeds.")
@click.option("--first-seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--count", type=click.IntRange(min=1), default=1000, show_default=True, help="Dot products of one case."
)
@click.option("--specials", is_flag=True, help="Keep NaN and infinities among the inputs.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="Results, JSON Lines."
)
@click.option("--workers", type=click.IntRange(min=1), help="Processes. Default: one for each core.")
@click.option("--scheduler", help="Address of a Dask scheduler to work on instead: tcp://host:port.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON instead of a table.")
def campaign(
    formats: tuple[str, ...],
    accumulators: tuple[Accumulator, ...],
    distributions: tuple[str, ...],
    scales: tuple[str, ...],
    lengths: tuple[int, ...],
    seeds: int,
    first_seed: int,
    count: int,
    specials: bool,
    out: Path,
    workers: int | None,
    scheduler: str | None,
    as_json: bool,
) -> None:
    """Sweep formats, distributions, scales, K and seeds, and compare accumulators with the exact sum.

    Options without a number may be repeated. Finished cases are kept as they come: after Ctrl-C, or when it
    was killed, the same command goes on from there. The results are the same bytes however many workers.

    \b
    Example:
      mxfp campaign --accumulator sequential:float16 --accumulator blackwell \
                    --distribution normal --distribution edges --seeds 100 --out sweep.jsonl
    """  # noqa: D301  (click reads the backspace)
    sweep = Campaign(
        formats=formats,
        accumulators=accumulators,
        distributions=distributions,
        scales=scales or (None,),
        k=lengths,
        seeds=range(first_seed, first_seed + seeds),
        count=count,
        finite=not specials,
    )
    try:
        with Bar() as progress, _executor(scheduler, workers) as (executor, known):
            results = run(sweep, out, executor=executor, workers=known, progress=progress)
        rows = results.rows()
    except CampaignError as error:
        raise click.ClickException(str(error)) from None
    except CampaignInterrupted as error:
        click.echo(f"mxfp: {error}", err=True)
        sys.exit(130)
    if as_json:
        click.echo(json.dumps([row.as_dict() for row in rows], indent=1))
    else:
        _print(rows)
    click.echo(f"{len(results)} cases of {count} dot products in {out}", err=True)


@contextmanager
def _executor(scheduler: str | None, workers: int | None) -> Iterator[tuple[Any, int | None]]:
    """The executor and its number of workers: none of its own without a scheduler."""
    if scheduler is None:
        yield None, workers
        return
    try:
        from distributed import Client
        from distributed.comm.registry import get_backend
    except ImportError:
        raise click.ClickException(
            "--scheduler needs distributed: pip install 'mxfp-emulator[cluster]'"
        ) from None
    try:
        if "://" in scheduler:
            get_backend(scheduler.partition("://")[0])  # a client takes long to notice that there is none
        client = Client(scheduler, timeout=10, set_as_default=False)
    except (OSError, ValueError) as error:
        raise click.ClickException(
            f"no Dask scheduler at {scheduler}: {str(error).splitlines()[0]}"
        ) from None
    with client:
        yield client.get_executor(), workers or max(1, sum(client.nthreads().values()))


def _print(rows: list[Row]) -> None:
    """Print a row for each; what all have in common is the title."""
    from .. import terminal

    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.3g}"

    def worst(found: Worst | None) -> str:
        return number(None if found is None else found.value)

    common: list[tuple[str, Callable[[Row], str]]] = [
        ("formats", lambda row: row.formats),
        ("distribution", lambda row: row.distribution),
        ("scales", lambda row: f"{row.scales} scales"),
        ("K", lambda row: f"K {row.k:,}"),
        ("dots", lambda row: f"{row.dots:,} dot products"),
    ]
    title = [text(rows[0]) for _, text in common if len({text(row) for row in rows}) == 1]
    columns = [column for column in common if len({column[1](row) for row in rows}) > 1]
    columns.append(("accumulator", lambda row: row.accumulator))
    columns.append(("differ", lambda row: f"{row.differ:,}"))
    if any(row.overflow for row in rows):
        columns.append(("overflow", lambda row: f"{row.overflow:,}"))
    if any(row.nan for row in rows):
        columns.append(("NaN", lambda row: f"{row.nan:,}"))
    columns += [
        ("mean error", lambda row: number(row.mean_error)),
        ("largest", lambda row: worst(row.error)),
        ("at", lambda row: "-" if row.error is None else f"{row.error.case}:{row.error.index}"),
        ("of terms", lambda row: worst(row.relative)),
        ("of bound", lambda row: worst(row.ratio)),
    ]
    terminal.put_table(
        Console(),
        f"{', '.join(title)}: distance from the exact sum",
        [name for name, _ in columns],
        [[text(row) for _, text in columns] for row in rows],
        "at: case and index of the largest error; largest error of the sum of the terms' magnitudes, and of "
        "its proved bound",
    )
