# SPDX-License-Identifier: Apache-2.0
"""What a unit gave against what is expected of it, case by case, without holding either."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ...formats import Bools
from ..classes import classes_of
from ..explain.evidence import Evidence
from ..explain.explanation import explain as explanation_of
from ..unit import Batch, Unit, expected
from .answers import ANSWERED, MALFORMED, MISSING, UNKNOWN, AnswerReader, Answers, Source
from .failure import Failure
from .policy import Policy
from .verdict import Tally, Verdict

SHOWN: Final = 10
"""Cases that are shown whole, unless another number is asked for."""

Progress = Callable[[str, int, int], object]


class Vectors(Protocol):
    """What a unit was given: a `Suite`, or anything with a unit and batches in order."""

    @property
    def unit(self) -> Unit:
        """The unit."""

    def batches(self) -> Iterator[Batch]:
        """All cases in order."""


def check(
    vectors: Vectors,
    answers: Source,
    *,
    policy: Policy | str = "bits",
    prefix: str = "",
    shown: int = SHOWN,
    explain: bool = True,
    progress: Progress | None = None,
) -> Verdict:
    """Compare answers with what is expected: a Verdict, truthy only if every case is there and right.

    vectors: a Suite, or an object with `unit` and `batches()`. answers: a Path, a binary file, or lines.
    policy: "bits", or a tolerance by name (see `Policy`); stages other than the result are compared by bits.
    prefix: of lines that are answers, where a simulator prints others too. shown: failures kept whole.
    explain: look for a behaviour that explains the failures. Memory does not grow with the cases.

    >>> from mxfp.verify.vectors.suite import Suite
    >>> suite = Suite(Unit("sum"), groups=("walking-lanes",))
    >>> right = [expected(batch)["sum"][:, 0] for batch in suite.batches()]
    >>> bool(check(suite, [f"{int(v) & 0xffff:04x}" for part in right for v in part]))
    True
    """
    chosen = Policy.named(policy) if isinstance(policy, str) else policy
    unit = vectors.unit
    reader = AnswerReader(answers, unit, prefix=prefix)
    evidence = Evidence(unit)
    groups: dict[str, Tally] = {}
    classes: dict[str, Tally] = {}
    stages: Counter[str] = Counter()
    total, last_answered = Tally(), -1
    failures: list[Failure] = []
    cases = getattr(vectors, "cases", 0)
    for batch in vectors.batches():
        found = reader.take(len(batch))
        answered = found.state == ANSWERED
        names = tuple(found.values)
        deep = any(name == "product" or name.startswith("level") for name in names)
        right = expected(batch, stages=deep)
        wrong = np.zeros(len(batch), np.bool_)
        first = np.full(len(batch), -1)
        for number, name in enumerate(_in_order(names, right)):
            same = _same(chosen, unit, name, right[name], found.values[name])
            first[answered & ~same & ~wrong] = number
            wrong |= answered & ~same
        _count(groups, classes, total, batch, right, found, wrong)
        ordered = _in_order(names, right)
        for number in first[first >= 0].tolist():
            stages[ordered[number]] += 1
        evidence.add(batch, found.values, right, answered, wrong)
        bad = np.flatnonzero(wrong | (found.state == UNKNOWN))
        failures += [
            _failure(vectors, batch, row, right, found, ordered, int(first[row]))
            for row in bad[: max(shown - len(failures), 0)].tolist()
        ]
        if answered.any():
            last_answered = batch.start + int(np.flatnonzero(answered)[-1])
        if progress is not None:
            progress("cases", total.cases, max(cases, total.cases))
    reader.finish()
    found_explanation = explanation_of(evidence, progress=progress) if explain and total.wrong else None
    return Verdict(
        unit=unit,
        policy=str(chosen),
        level=getattr(vectors, "level", None),
        seed=getattr(vectors, "seed", None),
        total=total,
        groups=groups,
        classes={name: tally for name, tally in classes.items() if tally.cases},
        stages=stages,
        names=reader.names,
        failures=tuple(failures),
        problems=tuple(reader.problems),
        counts=dict(reader.counts),
        last_answered=last_answered,
        lines=reader.line,
        explanation=found_explanation,
    )


def _in_order(names: tuple[str, ...], right: Mapping[str, Any]) -> list[str]:
    """Stages that were given, from the first to the last."""
    order = [*sorted((n for n in names if n.startswith("level")), key=lambda n: int(n[5:]))]
    ranks = ["product", *order, "sum", "exponent", "special", "term", "result"]
    return [name for name in ranks if name in names and name in right]


def _same(policy: Policy, unit: Unit, name: str, due: NDArray[Any], got: NDArray[Any]) -> Bools:
    if name == "result":
        return policy.same(unit, due[:, 0].astype(np.uint64), got[:, 0].astype(np.uint64))
    return np.asarray((due.astype(np.int64) == got.astype(np.int64)).all(axis=1))


def _count(
    groups: dict[str, Tally],
    classes: dict[str, Tally],
    total: Tally,
    batch: Batch,
    right: Mapping[str, NDArray[Any]],
    found: Answers,
    wrong: Bools,
) -> None:
    everything = np.ones(len(batch), np.bool_)
    parts: list[tuple[Tally, Bools]] = [(total, everything)]
    numbers = np.unique(batch.group).tolist()
    parts += [(groups.setdefault(batch.groups[n], Tally()), batch.group == n) for n in numbers]
    sorts = classes_of(batch.unit, right)
    parts += [(classes.setdefault(name, Tally()), holds) for name, holds in sorts]
    for tally, which in parts:
        tally.cases += int(which.sum())
        tally.wrong += int((wrong & which).sum())
        for state, name in ((UNKNOWN, "unknown"), (MALFORMED, "malformed"), (MISSING, "missing")):
            setattr(tally, name, getattr(tally, name) + int(((found.state == state) & which).sum()))


def _failure(
    vectors: Vectors,
    batch: Batch,
    row: int,
    right: Mapping[str, NDArray[Any]],
    found: Answers,
    ordered: list[str],
    first: int,
) -> Failure:
    begin = row
    while batch.unit.kind == "running" and begin and not batch.first[begin]:
        begin -= 1
    given = found.state[row] == ANSWERED
    stage = ordered[first] if given else ("result" if batch.unit.scaled else "sum")
    place = 0
    if given:
        differ = right[stage][row].astype(np.int64) != found.values[stage][row].astype(np.int64)
        place = int(np.flatnonzero(differ)[0])
    return Failure(
        batch.cut(slice(begin, row + 1)),
        batch.start + row,
        batch.groups[int(batch.group[row])],
        getattr(vectors, "seed", None),
        getattr(vectors, "level", None),
        stage,
        place,
        {name: values[row] for name, values in right.items()},
        {name: values[row] for name, values in found.values.items()} if given else {},
        found.said.get(row, ""),
    )
