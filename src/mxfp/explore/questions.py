# SPDX-License-Identifier: Apache-2.0
"""Questions whose answers are computed by the package, and what a student is told about a wrong one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, NamedTuple

from .fields import exact

Mark = Literal["open", "unreadable", "wrong", "right"]


class Verdict(NamedTuple):
    """What became of an answer, and a line to say about it."""

    mark: Mark
    text: str


@dataclass(frozen=True)
class Question:
    """One question. Its answer is a number, or one of `choices` where there are any.

    ask: the question, in Markdown. answer: makes the right answer, with the package. because: said when it is
    given. hint: said when it is not; `hints` has better ones for the wrong answers that one expects, written
    as a student would.
    """

    ask: str
    answer: Callable[[], float | int | Fraction | str]
    because: str
    hint: str
    hints: Mapping[str, str] = field(default_factory=dict)
    choices: tuple[str, ...] = ()

    def check(self, given: str | None) -> Verdict:
        """What a student gave -> right or wrong, and why or a hint; never an error.

        >>> question = Question("How many bits?", lambda: 4, "E2M1.", "Count.", {"5": "One less."})
        >>> [question.check(text).text for text in ("", "4.0", "5", "6", "many")]
        ['', 'E2M1.', 'One less.', 'Count.', "'many' is no number; write 14, -3584, 0.25, 1/4 or 2^-2"]
        """
        if given is None or not given.strip():
            return Verdict("open", "")
        if self.choices:
            right = given == self.answer()
            hint = self.hints.get(given, self.hint)
        else:
            try:
                found = exact(given)
            except ValueError as error:
                return Verdict("unreadable", str(error))
            right = found == Fraction(self.answer())
            hint = next((said for wrong, said in self.hints.items() if exact(wrong) == found), self.hint)
        return Verdict("right", self.because) if right else Verdict("wrong", hint)
