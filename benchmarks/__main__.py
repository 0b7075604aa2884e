# SPDX-License-Identifier: Apache-2.0
"""The command: `python -m benchmarks`."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
import numba
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from mxfp.report import throughput
from mxfp.terminal import print_text_table
from mxfp.whole import writable, write_folder

from . import ROOT, pair
from .contest import Record
from .page import markdown
from .processes import Growth
from .results import Results, gathered, json_text
from .results import command as again_command
from .rivals import missing
from .sizes import FULL, QUICK
from .suites import SUITES, Plan, plans
from .tables import sections

PAGE = "performance.md"


@click.command()
@click.option("--suite", "suites", type=click.Choice(SUITES), multiple=True, help="Default: all.")
@click.option(
    "--only", multiple=True, metavar="GROUP", help="Of the suites, only these groups, such as gemm."
)
@click.option("--threads", type=click.IntRange(min=1), multiple=True, help="Default: 1 and all.")
@click.option("--rounds", type=click.IntRange(min=1), help="Of each contest.")
@click.option("--quick", is_flag=True, help="Small shapes, in less than a minute.")
@click.option("--out", type=click.Path(path_type=Path), help=f"Write {PAGE} and {pair.FILE} here.")
@click.option("--docs", is_flag=True, help="Write them to docs/, of which they are a page.")
@click.option("--pair/--no-pair", "pairs", default=True, help="Also AVX2 against AVX2, in a second process.")
@click.option("--quiet", is_flag=True, help="Print no tables.")
def command(
    suites: tuple[str, ...],
    only: tuple[str, ...],
    threads: tuple[int, ...],
    rounds: int | None,
    quick: bool,
    out: Path | None,
    docs: bool,
    pairs: bool,
    quiet: bool,
) -> None:
    """Measure mxfp and what stands beside it: interleaved, bits first, medians and ratios.

    Ctrl-C leaves no files. OpenBLAS picks its kernel by the machine unless OPENBLAS_CORETYPE says otherwise.
    """
    if docs and out is not None:
        raise click.UsageError("--docs writes to docs/; give one of --docs and --out")
    directory = ROOT / "docs" if docs else out
    if directory is not None:
        writable(directory.absolute())
    most = numba.get_num_threads()
    counts = tuple(sorted({min(n, most) for n in threads or (1, most)}))
    sizes = QUICK if quick else FULL
    sizes = replace(sizes, rounds=rounds, sweep_rounds=rounds) if rounds else sizes
    chosen = plans(sizes, counts, suites, only)
    if not chosen:
        names = dict.fromkeys(plan.group for plan in plans(sizes, counts, suites, ()))
        raise click.UsageError(f"no group {', '.join(only)}; there are: {', '.join(names)}")
    for line in missing():
        click.echo(line, err=True)
    start = time.perf_counter()
    found = measure(chosen)
    headline = dict.fromkeys(plan.group for plan in chosen if plan.suite == "headline")
    again = [group for group in headline if group in pair.GROUPS]
    if pairs and again and pair.possible(throughput.machine().blas):
        words = [word for count in counts for word in ("--threads", str(count))]
        words += ["--quick"] * quick + (["--rounds", str(rounds)] if rounds else [])
        found += pair.avx2(again, words)
    results = gathered(
        again_command(sys.argv[1:]),
        "quick" if quick else "full",
        time.perf_counter() - start,
        found,
    )
    show(results, quiet=quiet)
    if directory is not None:
        files = {PAGE: markdown(results).encode(), pair.FILE: json_text(results).encode()}
        write_folder(files, directory)
        click.echo(f"wrote {', '.join(files)} to {directory}", err=True)


def measure(chosen: Sequence[Plan]) -> list[Record | Growth]:
    """Run the plans one after another, with a bar."""
    found: list[Record | Growth] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=sum(plan.ticks for plan in chosen))
        for plan in chosen:
            progress.update(task, description=plan.title)
            found += plan.run(lambda amount: progress.advance(task, amount))
    return found


def show(results: Results, *, quiet: bool) -> None:
    """Print the tables."""
    console = Console()
    for section in [] if quiet else sections(results):
        print_text_table(console, section.table)


def main() -> None:
    """Run the command; what the user can mend is one line, not a traceback."""
    try:
        command.main(prog_name="python -m benchmarks", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("benchmarks: interrupted, nothing written", err=True)
        sys.exit(130)
    except (AssertionError, OSError, RuntimeError, subprocess.CalledProcessError) as error:
        click.echo(f"benchmarks: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
