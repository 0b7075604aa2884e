# SPDX-License-Identifier: Apache-2.0
"""What the notebooks share of marimo: headings, presets, fields, questions (extra `explore`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar

import marimo as mo

from . import html
from .catalogue import LESSONS, Lesson
from .presets import Presets
from .questions import Question
from .tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_T = TypeVar("_T")
PAUSE = 100
"""Milliseconds without a key after which a field is read."""


def heading(lesson: Lesson) -> mo.Html:
    """The title of a lesson, and the style that all its parts share."""
    title = f"{lesson.place}. {lesson.title}"
    return mo.Html(html.STYLE + html.boxed(f"<h1>{escape(title)}</h1>"))


def preset(presets: Presets) -> mo.ui.dropdown:
    """The choice of a preset; an address that ends in ?preset=TITLE opens with that one."""
    asked = mo.query_params().get("preset")
    return mo.ui.dropdown(presets.titles, value=presets.opening(asked), label="Preset")


def look(presets: Presets, title: str) -> mo.Html:
    """What to look at in a preset."""
    return mo.md(f"**Look:** {presets.look(title)}")


def row(*elements: Any) -> mo.Html:
    """Inputs beside each other, in as many lines as it takes."""
    return mo.hstack(elements, wrap=True, justify="start", gap=1.5)


def column(*parts: Any) -> mo.Html:
    """Parts below each other."""
    return mo.vstack(parts, gap=0.75)


def read(what: Callable[..., _T], *arguments: Any, **options: Any) -> _T:
    """What a function makes of the inputs; a ValueError is shown in its place, and the cell ends there."""
    try:
        return what(*arguments, **options)
    except ValueError as error:
        mo.stop(True, mo.Html(html.note(str(error), "unreadable")))
        raise


def table(made: Table, title: str) -> mo.Html:
    """A table with its title."""
    return mo.Html(html.table(made, title))


def picture(draw: Callable[..., Figure], *arguments: Any, **options: Any) -> mo.Html:
    """A figure of mxfp.draw; where it cannot be drawn, why."""
    return mo.Html(html.picture(read(draw, *arguments, **options)))


def note(text: str) -> mo.Html:
    """A remark; nothing for an empty one."""
    return mo.Html(html.note(text) if text else "")


def headline(text: str) -> mo.Html:
    """One line that is larger than the rest."""
    return mo.Html(html.boxed(f'<p class="mx-big" role="status">{escape(text)}</p>'))


def asked(questions: Mapping[str, Question]) -> mo.ui.dictionary:
    """An input for each question; a drop-down for choices, whose options every keyboard reaches."""
    return mo.ui.dictionary(
        {
            key: mo.ui.dropdown(question.choices, allow_select_none=True, label="Your answer")
            if question.choices
            else mo.ui.text(placeholder="a number", label="Your answer", debounce=PAUSE)
            for key, question in questions.items()
        }
    )


def marked(questions: Mapping[str, Question], answers: mo.ui.dictionary) -> mo.Html:
    """Every question with its input, and below it what became of the answer."""
    parts: list[Any] = [mo.Html(html.boxed("<h2>What do you think?</h2>"))]
    given: dict[str, Any] = answers.value
    right = 0
    for place, (key, question) in enumerate(questions.items(), 1):
        verdict = question.check(given[key])
        right += verdict.mark == "right"
        parts += [mo.md(f"**{place}**  {question.ask}"), answers.elements[key]]
        parts.append(mo.Html(html.note(verdict.text, verdict.mark) if verdict.text else ""))
    parts.append(mo.Html(html.boxed(f"<p>{right} of {len(questions)} right.</p>")))
    return column(*parts)


def footer(lesson: Lesson) -> mo.Html:
    """The way to the lessons before and after; nothing in a copy that is being edited."""
    if mo.app_meta().mode != "run":
        return mo.Html("")
    links = ['<a href="/">All lessons</a>']
    links += [
        f'<a href="/{other.name}/">{other.place}. {escape(other.title)}</a>'
        for other in LESSONS
        if abs(other.place - lesson.place) == 1
    ]
    return mo.Html(html.boxed(f"<nav>{''.join(links)}</nav>"))
