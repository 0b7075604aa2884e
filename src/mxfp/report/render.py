# SPDX-License-Identifier: Apache-2.0
"""Write a Report to a directory: report.md, report.json and figures, whole or not at all."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from .measure import Report
from .tables import Table, headline, tables


def markdown(report: Report, pictures: Mapping[str, str] | None = None) -> str:
    """A Report -> Markdown text; `pictures` maps file names to what they show."""
    m = report.machine
    closing = f"Measured with numpy {m.numpy}, numba {m.numba}, Python {m.python} by `mxfp report`."
    title = f"{report.format} on {report.layer}"
    return page(title, headline(report), report.attribution, tables(report), pictures or {}, closing)


def page(
    title: str,
    headline: str,
    attribution: str,
    tables: Iterable[Table],
    pictures: Mapping[str, str],
    closing: str,
) -> str:
    """The parts of a report -> one page of Markdown."""
    lines = [f"# {title}", "", headline + "."]
    if attribution:
        lines += ["", f"Data: {attribution}."]
    for table in tables:
        lines += ["", f"## {table.title}", "", *_rows(table)]
        if table.remark:
            lines += ["", table.remark[0].upper() + table.remark[1:] + "."]
    for name, caption in pictures.items():
        lines += ["", f"## {caption}", "", f"![{caption}]({name})"]
    return "\n".join([*lines, "", closing, ""])


def _rows(table: Table) -> list[str]:
    def line(cells: tuple[str, ...]) -> str:
        return f"| {' | '.join(cell or ' ' for cell in cells)} |"

    return [line(table.columns), line(tuple("---" for _ in table.columns)), *map(line, table.rows)]


def json_text(report: Report) -> str:
    """A Report -> JSON text, one schema: mxfp-report/1."""
    return json.dumps(report.as_dict(), indent=1, allow_nan=False) + "\n"


def writable(directory: Path) -> None:
    """Raise OSError naming `directory` unless files can be put there; leave nothing behind."""
    try:
        _staging(directory).rmdir()
    except OSError as error:
        raise OSError(f"cannot write to {directory}: {error.strerror}") from None


def _staging(directory: Path) -> Path:
    """Make a new folder on the same file system: inside `directory` if it exists, else beside it to be."""
    if directory.exists() or directory.is_symlink():
        return Path(tempfile.mkdtemp(prefix=".mxfp-", dir=directory))
    directory.parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))


def write(files: Mapping[str, bytes], directory: Path) -> None:
    """Put all files into `directory`, made if need be, so that none is ever seen half-written.

    A new directory appears with everything in it, by one rename; in one that exists each file is
    replaced whole. Raises OSError where it cannot be written.
    """
    directory = directory.absolute()
    staging = _staging(directory)
    try:
        for name, content in files.items():
            (staging / name).write_bytes(content)
        if directory.exists():
            for name in files:
                (staging / name).replace(directory / name)
        else:
            staging.chmod(0o755)
            staging.rename(directory)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
