# SPDX-License-Identifier: Apache-2.0
"""mxfp roofline: this machine's roofs, and products in several formats under them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console

from .app import Progress, cli


class PeakType(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """Gop/s, for all formats or for one: `460`, `MXFP4=1200`."""

    name = "[format=]gop/s"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Text -> (format or "", Gop/s), or one clear line."""
        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).rpartition("=")
        try:
            if equals and not name:
                raise ValueError
            return _format_named(name), float(text)
        except ValueError:
            self.fail(f"{value!r} is not a number of Gop/s, such as 460 or MXFP4=1200", param, ctx)


class FormatType(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A block format, float16 or float32, whatever the case of its letters."""

    name = "format"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Text -> the format's name; what has no such name is for `measure` to refuse."""
        return _format_named(str(value))


def _format_named(text: str) -> str:
    from ..formats import BLOCK_FORMATS

    known = {name.lower(): name for name in (*BLOCK_FORMATS, "float16", "float32")}
    return known.get(text.lower(), text)


@cli.command()
@click.option(
    "--shape",
    type=(click.IntRange(min=1), click.IntRange(min=1)),
    metavar="N K",
    help="Of the weight. Default: the smallest square, up to 16384, of which no cache holds the MXFP4.",
)
@click.option(
    "--m",
    "ms",
    multiple=True,
    type=click.IntRange(min=1),
    help="Rows of activations. Repeat for several. Default: 1, 2, 4 … 1024.",
)
@click.option(
    "--format",
    "--formats",
    "formats",
    multiple=True,
    type=FormatType(),
    help="A block format, float16 or float32. Repeat for several. Default: MXFP4, float16, float32.",
)
@click.option("--threads", type=click.IntRange(min=1), help="Default: as many as there are cores.")
@click.option(
    "--peak",
    "peaks",
    multiple=True,
    type=PeakType(),
    help="A quoted peak in Gop/s instead of the measured one: 460, or for one format MXFP4=1200.",
)
@click.option(
    "--bandwidth",
    type=click.FloatRange(min=0, min_open=True),
    help="A quoted bandwidth in GB/s instead of the measured one.",
)
@click.option("--no-points", is_flag=True, help="Time no products; say only where they lie.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write roofline.md, roofline.json and a picture here.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A roofline.json that was written before: show it again, and measure nothing.",
)
@click.option("--json", "as_json", is_flag=True, help="Print roofline.json instead of tables.")
def roofline(
    shape: tuple[int, int] | None,
    ms: tuple[int, ...],
    formats: tuple[str, ...],
    threads: int | None,
    peaks: tuple[tuple[str, float], ...],
    bandwidth: float | None,
    no_points: bool,
    out: Path | None,
    data: Path | None,
    as_json: bool,
) -> None:
    """Measure memory bandwidth, peaks, and GEMV and GEMM in several formats under them; about a minute.

    Decode multiplies one row with every weight (GEMV) and is bound by bandwidth; prefill multiplies many
    (GEMM) and is bound by the peak. The ridge is where one becomes the other.

    Roofs are measured unless they are quoted; with both quoted and --no-points nothing is.

    \b
    Examples:
      mxfp roofline --out roofline
      mxfp roofline --shape 8192 8192 --format mxfp4 --format nvfp4 --m 1 --m 512
      mxfp roofline --bandwidth 256 --peak 59000 --no-points
      mxfp roofline --data roofline/roofline.json
    """  # noqa: D301
    from .. import terminal
    from ..report.figures import require_matplotlib
    from ..report.roofline.figures import CAPTION, PICTURES, pictures
    from ..report.roofline.measure import DEFAULT_FORMATS, DEFAULT_MS, measure
    from ..report.roofline.reading import from_json
    from ..report.roofline.tables import headline, json_text, markdown, tables
    from ..whole import writable, write_folder

    if out is not None:
        require_matplotlib()
        writable(out.absolute())
    named = [name for name, _ in peaks]
    for name in named:
        if named.count(name) > 1:
            raise click.UsageError(f"--peak was given more than once for {name or 'all formats'}")
    if data is not None:
        if any((shape, ms, formats, threads, peaks, bandwidth, no_points)):
            raise click.UsageError("--data shows what was measured before; only --out and --json go with it")
        try:
            found = from_json(data.read_text(encoding="utf-8"))
        except ValueError as error:
            raise click.ClickException(f"{data}: {error}") from None
    else:
        with Progress() as progress:
            found = measure(
                shape=shape,
                ms=ms or DEFAULT_MS,
                formats=formats or DEFAULT_FORMATS,
                threads=threads,
                peaks=dict(peaks),
                bandwidth=bandwidth,
                points=not no_points,
                progress=progress,
            )
    if as_json:
        click.echo(json_text(found), nl=False)
    else:
        terminal.print_report(Console(markup=False), headline(found), "", tables(found))
    if out is not None:
        files = {
            "roofline.md": markdown(found, {PICTURES[0]: CAPTION}).encode(),
            "roofline.json": json_text(found).encode(),
        }
        write_folder({**files, **pictures(found)}, out)
        click.echo(f"wrote {', '.join([*files, *PICTURES])} to {out}", err=True)
