# SPDX-License-Identifier: Apache-2.0
"""A Report as text: report.md and report.json."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from .measure import Report
from .tables import Table, headline, tables

BAR: Final = r"\|"
"""What a cell of a Markdown table has for a bar."""


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
        return f"| {' | '.join(cell.replace('|', BAR) or ' ' for cell in cells)} |"

    return [line(table.columns), line(tuple("---" for _ in table.columns)), *map(line, table.rows)]


def json_text(report: Report) -> str:
    """A Report -> JSON text, one schema: mxfp-report/1."""
    return json.dumps(report.as_dict(), indent=1, allow_nan=False) + "\n"
