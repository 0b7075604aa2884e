# SPDX-License-Identifier: Apache-2.0
"""A coverage in words: what was missed, what cannot be reached and why, and all of it as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from .coverage import Coverage


def missed_in_words(cover: Coverage, most: int) -> Iterator[str]:
    """A line for each family with bins that were missed, and one for each reason why bins cannot be hit."""
    missed: dict[str, list[str]] = {}
    for family, name in cover.missed():
        missed.setdefault(family, []).append(name)
    for family, names in missed.items():
        more = f" and {len(names) - most} more" if len(names) > most else ""
        yield f"missed, {family}: {'; '.join(names[:most])}{more}"
    for reason, names in reasons(cover).items():
        yield f"unreachable, {'; '.join(names)}: {reason}"
    for hit in cover.wrong():
        yield f"WRONG, case {hit.case}: {hit.family}: {hit.bin.name}, but {hit.bin.why}"


def reasons(cover: Coverage) -> dict[str, list[str]]:
    """Why bins cannot be reached: reason -> "family: bin" of each."""
    found: dict[str, list[str]] = {}
    for family, one, _ in cover.bins():
        if one.kind == "unreachable":
            found.setdefault(one.why, []).append(f"{family.name}: {one.name}")
    return found


def as_markdown(cover: Coverage) -> str:
    """The report as Markdown: a table of families, what was missed, and what cannot be reached."""
    unit = cover.unit_as_dict()
    head = ", ".join(f"{name} {value}" for name, value in unit.items() if value is not None)
    rows = [
        f"# Coverage: {head}",
        "",
        f"{cover.cases:,} cases hit {cover.hit:,} of {cover.wanted:,} bins.",
        "",
    ]
    rows += ["| bins | hit | of | unreachable |", "|---|---:|---:|---:|"]
    rows += [f"| {' | '.join(row)} |" for row in cover.rows()]
    if cover.groups:
        rows += ["", "| group | cases |", "|---|---:|"]
        rows += [f"| {_cell(name)} | {count:,} |" for name, count in cover.groups.items()]
    words = list(missed_in_words(cover, 1000))
    if words:
        rows += ["", *(f"- {line}" for line in words)]
    return "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    """Text that stays in a cell of a table."""
    return " ".join(text.replace("|", "\\|").split())
