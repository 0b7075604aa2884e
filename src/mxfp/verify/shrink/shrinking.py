# SPDX-License-Identifier: Apache-2.0
"""A failing case -> the smallest that still fails, in few runs of the unit: each tries many at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...formats import Bools
from ..check.policy import Policy
from ..unit import Batch, Unit, expected
from .runner import Answer, Command, of_function
from .shrunk import Shrunk
from .smaller import PASSES
from .steps import Edit, Steps, measure

MOST_RUNS: Final = 200
AT_ONCE: Final = 4096
"""Candidates in one run."""

Run = Callable[[Batch], Any]
Progress = Callable[[str, int, int], object]


class ShrinkError(ValueError):
    """A case that cannot be made smaller: the unit has it right, or gives now this and now that."""


@dataclass
class _Search:
    """The runs so far, and how candidates are judged."""

    unit: Unit
    run: Callable[[Batch], Answer]
    most: int
    progress: Progress | None
    policy: Policy
    alone: bool = False
    runs: int = 0
    passed: set[bytes] = field(default_factory=set)

    def judged(self, many: list[Steps]) -> tuple[NDArray[Any], NDArray[Any], Bools]:
        """Run candidates in one batch: what is due and came for the last step of each, and which fail."""
        batch = Steps.batch(self.unit, many)
        last = np.cumsum([len(steps) for steps in many]) - 1
        primary = "result" if self.unit.scaled else "sum"
        due = expected(batch, stages=False)[primary][last, 0]
        self.runs += 1
        came, answered = self.run(batch)
        if self.progress is not None:
            self.progress("runs of the unit", self.runs, self.most)
        came, answered = np.asarray(came)[last], answered[last]
        kind = np.uint64 if self.unit.scaled else np.int64
        due, came = due.astype(kind), came.astype(kind)
        same = self.policy.same(self.unit, due, came) if self.unit.scaled else due == came
        return due, came, ~(answered & same)

    def fails(self, many: list[Steps]) -> Bools:
        """Which of the candidates fail; where what was before matters, one a run, and no more than one."""
        if not many:
            return np.zeros(0, np.bool_)
        found = np.zeros(len(many), np.bool_)
        size = 1 if self.alone else AT_ONCE
        for start in range(0, len(many), size):
            part = many[start : start + size]
            key = part[0].key if self.alone else b""
            if self.runs >= self.most or (key and key in self.passed):
                continue
            found[start : start + size] = self.judged(part)[2]
            if self.alone:
                if found[start]:
                    break
                self.passed.add(key)
        return found

    def tried(self, steps: Steps, edits: list[Edit]) -> list[tuple[Edit, Steps]]:
        """Edits that make it smaller, and what they make; the smallest first where one is enough."""
        now = measure(self.unit, steps)
        seen: set[bytes] = set()
        found = []
        for edit in edits:
            candidate = edit(steps)
            size = measure(self.unit, candidate)
            if size < now and candidate.key not in seen:
                seen.add(candidate.key)
                found.append((size, edit, candidate))
        if self.alone:
            found.sort(key=lambda entry: entry[0])
        return [(edit, candidate) for _, edit, candidate in found]

    def smaller(self, steps: Steps, edits: list[Edit]) -> Steps | None:
        """The smallest that fails, after one edit or after several of those that work alone; None if none."""
        tried = self.tried(steps, edits)
        failing = self.fails([candidate for _, candidate in tried])
        working = [tried[n] for n in np.flatnonzero(failing).tolist()]
        if not working:
            return None
        working.sort(key=lambda pair: measure(self.unit, pair[1]))
        best = working[0][1]
        together, stacked = best, []
        for edit, _ in working[1:]:
            try:
                joined = edit(together)
            except IndexError:  # of steps that are gone
                continue
            if measure(self.unit, joined) < measure(self.unit, together):
                together = joined
                stacked.append(joined)
        if stacked and not self.alone:
            failing = self.fails(stacked)
            good = [stacked[n] for n in np.flatnonzero(failing).tolist()]
            best = min([best, *good], key=lambda s: measure(self.unit, s))
        return best


def shrink(
    case: Batch,
    run: Run,
    *,
    before: Batch | None = None,
    policy: Policy | str = "bits",
    most_runs: int = MOST_RUNS,
    progress: Progress | None = None,
) -> Shrunk:
    """Make a failing case as small as it goes.

    case: a batch with the case alone; of a running unit its sequence, the failing step last. run: a function
    of a batch that gives the bits of its results (or sums), or a `Command`. before: what the unit was given
    before, for a case that is right on its own. most_runs: the unit is run no more often than that.

    The answer fails, alone, in a run of its own; it is the same one every time. Smaller means, in this order:
    fewer steps, blocks, lanes; scales nearer to 1; fewer different codes; plainer codes.

    Raises ShrinkError where the unit has the case right or is not deterministic, RunError where it dies.
    """
    chosen = Policy.named(policy) if isinstance(policy, str) else policy
    runner = run if isinstance(run, Command) else of_function(run)
    search = _Search(case.unit, runner, most_runs, progress, chosen)
    steps = Steps.of(case)
    note = ""
    if not _fails_twice(search, steps):
        joined = None if before is None else Steps.batch(case.unit, [Steps.of(before), steps])
        if joined is None or not _fails_twice(search, Steps.of(joined)):
            raise ShrinkError(
                "the unit is right on this case alone"
                + (" and after the case before it" if before is not None else "")
                + "; what it does depends on what came earlier, or it is not deterministic"
            )
        steps, note = Steps.of(joined), "it is right on its own, and wrong after what stands before it"
        search.alone = True
    start = steps
    found = _reduced(search, steps)
    if not _fails_twice(search, found) and not search.alone:
        search.alone = True
        found = _reduced(search, start)
        if not _fails_twice(search, found):
            raise ShrinkError("cases that failed among others are right alone; what was before them matters")
    due, came, _ = search.judged([found])
    answered = search.run(Steps.batch(case.unit, [found]))[1]
    if search.runs >= most_runs:
        note = (note + "; " if note else "") + f"stopped after {search.runs} runs, perhaps not the smallest"
    return Shrunk(
        Steps.batch(case.unit, [found]),
        int(due[0]),
        int(came[0]) if answered[-1] else None,
        search.runs,
        note,
    )


def _fails_twice(search: _Search, steps: Steps) -> bool:
    """Whether it fails in a run of its own; ShrinkError if a second run says something else."""
    one, other = (search.judged([steps]) for _ in range(2))
    if bool(one[2][0]) != bool(other[2][0]) or int(one[1][0]) != int(other[1][0]):
        raise ShrinkError(
            f"the unit is not deterministic: one case gave {int(one[1][0]):x}, and then {int(other[1][0]):x}"
        )
    return bool(one[2][0])


def _reduced(search: _Search, steps: Steps) -> Steps:
    """Edits of every kind, again and again, until none makes it smaller."""
    improved = True
    while improved and search.runs < search.most:
        improved = False
        for edits in PASSES:
            while search.runs < search.most:
                smaller = search.smaller(steps, list(edits(search.unit, steps)))
                if smaller is None:
                    break
                steps, improved = smaller, True
    return steps


__all__ = ["MOST_RUNS", "ShrinkError", "shrink"]
