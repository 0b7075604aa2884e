# SPDX-License-Identifier: Apache-2.0
"""Lines that are no answers, or answers to no case: the first word for word, and how many of each kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

SHOWN: Final = 20
"""Problems that are kept word for word; all are counted."""
MOST_STRAY: Final = 100_000
"""Lines to no case that are read before a stream counts as a flood, which may never end."""

SENTENCES: Final = {
    "malformed": ("1 line is no answer", "{} lines are no answers"),
    "chatter": ("1 line is something else than an answer", "{} lines are something else than answers"),
    "range": ("1 answer does not fit its bits", "{} answers do not fit their bits"),
    "duplicate": ("1 answer is to a case that had one", "{} answers are to cases that had one"),
    "extra": ("1 answer is to no case", "{} answers are to no case"),
    "junk": ("the answers are not text, or not all of them",) * 2,
    "flood": (f"more than {MOST_STRAY:,} lines are answers to no case, and the rest was not read",) * 2,
}
"""Kinds of problems, and what is wrong with answers that have one or more."""


class Problem(NamedTuple):
    """A line that is no answer, or one too many: its number (0: of no line), its kind and what it is."""

    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        """In a line."""
        return f"line {self.line}: {self.text}" if self.line else self.text


@dataclass
class Problems:
    """What was found in the answers as such. counts: by kind; stray: how many took the place of no case."""

    first: list[Problem] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    stray: int = 0

    def add(self, line: int, kind: str, text: str, *, stray: bool = False) -> None:
        """Count one, and keep it if it is among the first."""
        self.counts[kind] += 1
        self.stray += stray
        if len(self.first) < SHOWN:
            self.first.append(Problem(line, kind, text))


def sentences(counts: Mapping[str, int]) -> list[str]:
    """How many there are of each kind, a sentence each."""
    return [SENTENCES[kind][count > 1].format(count) for kind, count in counts.items() if count]
