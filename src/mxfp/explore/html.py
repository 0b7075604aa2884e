# SPDX-License-Identifier: Apache-2.0
"""What a lesson shows as HTML: tables, bits and the number line, readable on a phone and without colour."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Final

from ..draw.style import BLUE, GREEN, ORANGE, RED, render
from .number import Encoded
from .questions import Mark
from .tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE: Final = f"""<style>
.mx {{ line-height: 1.5; overflow-wrap: break-word; }}
.mx h1 {{ font-size: 1.7rem; font-weight: 700; line-height: 1.2; margin: 0 3rem .5rem 0; }}
.mx h2 {{ font-size: 1.15rem; font-weight: 700; margin: 1rem 0 .25rem; }}
.mx-scroll {{ overflow: auto; max-height: 24rem; max-width: 100%; width: fit-content; }}
.mx-scroll:focus-visible {{ outline: 2px solid {BLUE}; }}
.mx table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }}
.mx th {{ position: sticky; top: 0; background: var(--background, Canvas); text-align: right;
  font-weight: 700;  border-bottom: 2px solid color-mix(in srgb, currentColor 40%, transparent); }}
.mx th, .mx td {{ padding: .15rem .6rem; white-space: pre; }}
.mx td {{ text-align: right; border-bottom: 1px solid color-mix(in srgb, currentColor 15%, transparent); }}
.mx th.words, .mx td.words {{ text-align: left; white-space: pre-wrap; }}
.mx tr.marked td {{ background: color-mix(in srgb, {ORANGE} 22%, transparent); font-weight: 600; }}
.mx tr.marked td:first-child {{ box-shadow: inset 4px 0 {ORANGE}; }}
.mx-remark {{ font-size: .85rem; opacity: .8; margin: .25rem 0 0; }}
.mx-note {{ border-left: 4px solid {BLUE}; padding: .4rem .8rem; margin: 0;
  background: color-mix(in srgb, {BLUE} 8%, transparent); }}
.mx-note.wrong {{ border-color: {RED}; background: color-mix(in srgb, {RED} 10%, transparent); }}
.mx-note.right {{ border-color: {GREEN}; background: color-mix(in srgb, {GREEN} 10%, transparent); }}
.mx-bits {{ display: flex; flex-wrap: wrap; align-items: flex-start; gap: .35rem; }}
.mx-bits span {{ display: flex; flex-direction: column; align-items: center; font-size: .8rem; }}
.mx-bits b {{ font: 700 1.6rem/1.2 ui-monospace, monospace; letter-spacing: .15em;
  padding: .1rem .35rem .1rem .5rem; border: 2px solid; border-radius: .25rem; }}
.mx-big {{ font-size: 1.35rem; font-weight: 700; font-variant-numeric: tabular-nums; }}
.mx img {{ width: 40rem; max-width: 100%; height: auto; background: white; }}
.mx svg {{ display: block; width: 100%; height: auto; max-width: 46rem; }}
.mx nav {{ display: flex; flex-wrap: wrap; gap: 1.5rem; }}
.mx nav a {{ color: {BLUE}; text-decoration: underline; }}
@media (max-width: 600px) {{ .mx table {{ font-size: .8rem; }} .mx th, .mx td {{ padding: .15rem .25rem; }}
  .mx th {{ white-space: normal; vertical-align: bottom; }} }}
</style>"""


def boxed(inner: str) -> str:
    """HTML in the style of the lessons."""
    return f'<div class="mx">{inner}</div>'


def table(made: Table, title: str) -> str:
    """A table with its title; it scrolls by itself, so that the page does not."""
    words = [_of_words(made, n) for n in range(len(made.columns))]

    def cells(row: Iterable[str], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=words' if left else ''}>{escape(cell)}</{tag}>"
            for cell, left in zip(row, words, strict=True)
        )

    rows = "".join(
        f"<tr{' class=marked' if n in made.marked else ''}>{cells(row, 'td')}</tr>"
        for n, row in enumerate(made.rows)
    )
    remark = f'<p class="mx-remark">{escape(made.remark)}</p>' if made.remark else ""
    return boxed(
        f"<h2>{escape(title)}</h2>"
        f'<div class="mx-scroll" role="region" tabindex="0" aria-label="{escape(title)}">'
        f"<table><thead><tr>{cells(made.columns, 'th')}</tr></thead><tbody>{rows}</tbody></table></div>"
        f"{remark}"
    )


def _of_words(made: Table, column: int) -> bool:
    """Whether a column is set to the left: the first one, and those that hold words or lists."""
    cells = [row[column] for row in made.rows]
    return column == 0 or any("  " in cell or (cell[:1].isalpha() and cell != "nan") for cell in cells)


def note(text: str, mark: Mark = "open") -> str:
    """A line with a bar beside it: plain, right, or wrong; right and wrong say so in words."""
    word = {"open": "", "right": "✓ ", "wrong": "✗ Not yet. ", "unreadable": "✗ "}[mark]
    kind = {"open": "", "right": " right"}.get(mark, " wrong")
    return boxed(f'<p class="mx-note{kind}" role="status">{word}{escape(text)}</p>')


def bits(e: Encoded) -> str:
    """The fields of a code, boxes with their names below."""
    names = zip(("sign", "exponent", "mantissa"), e.fields, (RED, BLUE, GREEN), strict=True)
    boxes = "".join(
        f'<span><b style="border-color:{colour}">{field}</b>{name}</span>' for name, field, colour in names
    )
    return f'<div class="mx-bits">{boxes}</div>'


def line(e: Encoded) -> str:
    """The number line of a format: its values, its ties, the number, and where it goes."""
    element, top = e.element, max(e.element.max * 1.2, 1.0)
    values = sorted({float(v) + 0.0 for v in element.values.tolist()})
    ties = [(low + high) / 2 for low, high in itertools.pairwise(values)]

    def at(v: float) -> float:
        return 240 + 228 * min(max(v, -top), top) / top

    ticks = "".join(f'<path d="M{at(v):.1f} 48 v12" stroke="currentColor"/>' for v in values)
    labels, last = "", [-99.0, -99.0]
    for v in values:
        row = next((n for n in (0, 1) if at(v) - last[n] > 26), None)
        if row is not None:
            last[row] = at(v)
            labels += f'<text x="{at(v):.1f}" y="{76 + 16 * row}">{v:g}</text>'
    dots = "".join(f'<circle cx="{at(v):.1f}" cy="54" r="2.2" stroke="{BLUE}"/>' for v in ties)
    x, y = f"{at(e.x):.1f}", f"{at(e.value):.1f}"
    title = f"{e.x:g} on the number line of {element.name}; it becomes {e.value:g}"
    return (
        f'<svg viewBox="0 0 480 98" role="img" aria-label="{escape(title)}" fill="none" stroke-width="1.2">'
        f'<path d="M4 54 h472" stroke="currentColor"/>{ticks}{dots}'
        f'<g font-size="14" text-anchor="middle" fill="currentColor">{labels}</g>'
        f'<path d="M{x} 26 L{y} 46" stroke="{RED}" stroke-width="2"/>'
        f'<path d="M{x} 29 l-6 -11 h12 z" fill="{RED}"/><circle cx="{y}" cy="54" r="5.5" fill="{RED}"/>'
        f'<text x="{x}" y="13" text-anchor="middle" font-size="15" font-weight="700" fill="{RED}">x</text>'
        "</svg>"
        '<p class="mx-remark">▼ x; ● the value that it becomes; | values; ○ ties</p>'
    )


def picture(figure: Figure) -> str:
    """A figure as an image inside the page: nothing is fetched, and its words are read aloud."""
    data = base64.b64encode(render(figure)).decode("ascii")
    words = str(figure.get_label()).replace("\n", ". ")
    return boxed(f'<img src="data:image/svg+xml;base64,{data}" alt="{escape(words)}">')
