# SPDX-License-Identifier: Apache-2.0
"""What a simulator wrote -> integers, case by case; whatever is no answer is named, never skipped.

Lines that look alike go through arrays, thousands at once; all others are read one by one. Neither keeps
more than the cases that were asked for.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from ..digits import field_values, lengths_of
from ..layout import VALUES, line_fields
from ..unit import Unit
from .lines import LineReader, Template
from .problems import MOST_STRAY, Problem, Problems
from .words import AnswerError, Line, decoded, parse

ANSWERED, UNKNOWN, MALFORMED, MISSING = range(4)
"""What became of a case: it has a value; the unit gave X or Z; its line is none; there is no line."""
CHUNK: Final = 8192
"""Lines that are looked at as one array."""
AHEAD: Final = 1 << 16
"""How far numbered answers may run ahead of one that is late."""
MEMORY: Final = 1 << 27
"""Digits of all of those, which are fewer where lines are long."""

Source = Path | IO[bytes] | Iterable[bytes | str]
"""A file, by its path or open for bytes, or lines."""


@dataclass
class Answers:
    """The answers to n cases in a row.

    values: stage -> (n, count) int64, or uint64 where unsigned; 0 where there is none. state: (n,), one of
    the four above. said: for a case that is not answered, what its line said.
    """

    values: dict[str, NDArray[Any]]
    state: NDArray[np.uint8]
    said: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        """How many cases."""
        return len(self.state)


class AnswerReader:
    """Reads the answers of a unit's cases in order, `take` by `take`; see docs/checking.md for the forms.

    prefix: only lines that begin with it are answers, without it; others are passed over. problems: the
    first of them; counts: all, by kind. names: the stages that the answers give, once one was read.

    >>> reader = AnswerReader([b"c20e0000", b"c20exxxx"], Unit("dot"))
    >>> found = reader.take(3)
    >>> [f"{v:08x}" for v in found.values["result"][:, 0].tolist()], found.state.tolist(), found.said[1]
    (['c20e0000', '00000000', '00000000'], [0, 1, 3], 'c20exxxx')
    """

    def __init__(self, source: Source, unit: Unit, *, prefix: str = "") -> None:
        self.unit = unit
        self.fields = {f.name: f for f in line_fields(unit, stages=True) if not f.given}
        self.primary = "result" if unit.scaled else "sum"
        self.names: tuple[str, ...] = ()
        self.start = 0
        self._problems = Problems()
        self._lines = LineReader(source, os.fsencode(prefix))
        self._indexed = False
        self._ahead = min(AHEAD, 1 + MEMORY // sum(max(lengths_of(f)) for f in self.fields.values()))
        self._early: dict[int, tuple[Line, int]] = {}
        self._failed = False

    @property
    def problems(self) -> list[Problem]:
        """The first lines that are no answers, or answers to no case."""
        return self._problems.first

    @property
    def counts(self) -> Counter[str]:
        """How many of those there are in all, by kind."""
        return self._problems.counts

    @property
    def line(self) -> int:
        """The number of the last line that was read."""
        return self._lines.number

    def take(self, n: int) -> Answers:
        """The answers to the next n cases; those that are not there are MISSING."""
        found = Answers({}, np.full(n, MISSING, np.uint8))
        if self.names or self._begin():
            found.values = {name: self._zeros(name, n) for name in self.names}
            if self._indexed:
                self._take_indexed(found)
            else:
                self._take_in_order(found)
        else:
            found.values = {self.primary: self._zeros(self.primary, n)}
        self.start += n
        return found

    def finish(self) -> None:
        """Read to the end: answers beyond the last case are problems."""
        for index in sorted(self._early):
            self._stray("extra", f"an answer to case {index}; there is no such case", self._early[index][1])
        self._early.clear()
        while (text := self._next()) is not None:
            try:
                line = parse(text, self.fields, self.primary)
            except AnswerError as error:
                self._stray(error.kind, str(error))
                continue
            if line.case is not None and line.case < self.start:
                self._stray("duplicate", f"a second answer to case {line.case}")
            else:
                self._stray("extra", f"an answer more than there are cases: {text[:80]!r}")

    def _zeros(self, name: str, n: int) -> NDArray[Any]:
        f = self.fields[name]
        return np.zeros((n, f.count), np.int64 if f.signed else np.uint64)

    def _stray(self, kind: str, text: str, line: int | None = None) -> None:
        """A line, the last one unless it is given, that takes the place of no case."""
        self._problems.add(self.line if line is None else line, kind, text, stray=True)

    def _next(self) -> str | None:
        """The next line that holds something; None at the end, or where the rest cannot be read."""
        if self._failed:
            return None
        if self._problems.stray >= MOST_STRAY:
            self._failed = True
            self._problems.add(self.line, "flood", "so many lines are to no case; the rest is not read")
            return None
        try:
            return self._lines.next()
        except AnswerError as error:
            self._failed = True
            self._problems.add(self.line, error.kind, str(error))
            return None

    def _begin(self) -> bool:
        """Find the first answer: its form is that of all."""
        while (text := self._next()) is not None:
            try:
                line = parse(text, self.fields, self.primary)
            except AnswerError as error:
                if error.takes_a_place:  # a form is known, though not a value
                    self.names, self._indexed = (self.primary,), False
                    self._lines.back()
                    return True
                self._stray(error.kind, str(error))
                continue
            if self.primary not in line.words:
                self._stray("malformed", f"{text[:80]!r} gives no {self.primary}, which is what is checked")
                continue
            self.names = tuple(line.words)
            self._indexed = line.case is not None
            self._lines.back()
            return True
        return False

    # --- lines

    def _take_in_order(self, found: Answers) -> None:
        done = 0
        while done < len(found):
            quick = self._quick(found, done)
            if quick:
                done += quick
                continue
            rows: list[tuple[int, Line]] = []
            stop = min(done + CHUNK, len(found))
            while done < stop:
                text = self._next()
                if text is None:
                    break
                line = self._read(text, found, done)
                if line is None:
                    continue
                if line.words:
                    rows.append((done, line))
                done += 1
            self._put(found, rows)
            if done < stop:
                return

    def _take_indexed(self, found: Answers) -> None:
        due = [case for case in self._early if case < self.start + len(found)]
        rows = [(case - self.start, self._early.pop(case)[0]) for case in due]
        taken = {row for row, _ in rows}
        quick = 0
        while not taken and not self._early and quick < len(found):
            more = self._quick(found, quick)
            if not more:
                break
            quick += more
        left = len(found) - quick - len(taken)
        while left and len(self._early) < self._ahead:
            text = self._next()
            if text is None:
                break
            line = self._read(text, found, None)
            if line is None or line.case is None:
                continue
            row = line.case - self.start
            if row < quick or row in taken or line.case in self._early:
                self._stray("duplicate", f"a second answer to case {line.case}, or a late one")
            elif row >= len(found):
                self._early[line.case] = (line, self.line)
            else:
                taken.add(row)
                rows.append((row, line))
                left -= 1
        self._put(found, rows)

    def _read(self, text: str, found: Answers, row: int | None) -> Line | None:
        """A line -> its words; None if it takes no place. An empty Line takes a place and has no value."""
        try:
            line = parse(text, self.fields, self.primary)
            if (line.case is not None) != self._indexed or set(line.words) != set(self.names):
                numbered = "a number and " if self._indexed else ""
                raise AnswerError(
                    f"{text[:80]!r} is not written as the answers before it, with {numbered}"
                    f"{', '.join(self.names)}",
                    takes_a_place=True,
                )
        except AnswerError as error:
            if not error.takes_a_place or row is None:
                self._stray(error.kind, str(error))
                return None
            self._problems.add(self.line, error.kind, str(error))
            found.state[row], found.said[row] = MALFORMED, text[:80]
            return Line(None, {}, False)
        return line

    def _put(self, found: Answers, rows: list[tuple[int, Line]]) -> None:
        """Words of lines -> values of their rows."""
        for row, line in rows:
            if line.unknown:
                found.state[row] = UNKNOWN
                pairs = (f"{name}={word}" for name, word in line.words.items())
                found.said[row] = line.words[self.primary] if len(line.words) == 1 else " ".join(pairs)
        known = [(row, line) for row, line in rows if not line.unknown]
        if not known:
            return
        places = np.array([row for row, _ in known])
        fits = np.ones(len(known), np.bool_)
        for name in self.names:
            values, good = decoded([line.words[name] for _, line in known], self.fields[name])
            found.values[name][places] = values
            fits &= good
        found.state[places] = np.where(fits, ANSWERED, MALFORMED)
        widths = ", ".join(f"{name} {self.fields[name].width}" for name in self.names)
        for n in np.flatnonzero(~fits).tolist():
            row, said = known[n][0], " ".join(known[n][1].words.values())[:80]
            text = f"case {self.start + row}: {said!r} does not fit its bits ({widths})"
            self._problems.add(0, "range", text)
            found.said[row] = said

    # --- many lines at once

    def _quick(self, found: Answers, done: int) -> int:
        """Answers of lines that all look like the next one; 0 if they do not, and nothing was read."""
        if self._failed:
            return 0
        example = self._lines.peek()
        template = None if example is None else Template.of(example, self._lines.prefix, self.primary)
        if template is None or set(template.spans) != set(self.names):
            return 0
        if (template.number is not None) != self._indexed:
            return 0
        rows = self._lines.array(min(CHUNK, len(found) - done), template.length)
        if rows is None or not template.fits(rows):
            return 0
        part = slice(done, done + len(rows))
        if template.number is not None:
            first = self.start + done
            if not np.array_equal(template.indices(rows), np.arange(first, first + len(rows))):
                return 0
        for name, span in template.spans.items():
            digits = VALUES[rows[:, span]]
            if digits.max() > 15 or digits.shape[1] not in lengths_of(self.fields[name]):
                return 0
            values, good = field_values(digits, self.fields[name])
            if not good.all():
                return 0
            found.values[name][part] = values
        found.state[part] = ANSWERED
        self._lines.skip(rows)
        return len(rows)
