# SPDX-License-Identifier: Apache-2.0
"""Which named behaviour would give, case by case, what a unit gave: right where it was, and wrong alike.

Every behaviour is tried on a part of the evidence; what fits there is tried on all of it. If none fits, pairs
are tried of those that explain some of the wrong cases and spoil none of the right ones, and of the nearest
with those that alone change nothing here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np

from ...formats import Bools, Integers
from ..digits import floats_of
from ..unit import Unit
from .behaviours import Behaviour, behaviours
from .common import common
from .datapath import Datapath
from .evidence import Compared, Evidence

SCREENED: Final = 512
"""Wrong cases, and right ones, that every behaviour is tried on: fewer where they are wide."""
SCREENED_ELEMENTS: Final = 1 << 17
FEWEST: Final = 32
PAIRED: Final = 14
"""Behaviours that are tried in pairs, at most."""
NEAREST: Final = 3
"""Behaviours that are also tried with each of those that alone change nothing in these cases."""
PIECE: Final = 1 << 14
"""Cases that a behaviour is run on at once."""
SHOWN: Final = 8
"""Behaviours that are named in a report."""

Progress = Callable[[str, int, int], object]


@dataclass(frozen=True)
class Partial:
    """A behaviour that explains some of the wrong cases. spoilt: right cases that it would have wrong."""

    behaviour: Behaviour
    explained: int
    wrong: int
    spoilt: int
    right: int

    def __str__(self) -> str:
        """In a line."""
        text = f"{self.behaviour.name} would explain {self.explained} of {self.wrong} wrong cases"
        return text + (f" and spoil {self.spoilt} of {self.right} right ones" if self.spoilt else "")


@dataclass(frozen=True)
class Explanation:
    """What fits, and how much it was tried on.

    found: behaviours, the plainest first, each of which alone gives exactly what the unit gave (or pairs of
    them that do together). searched: how many were tried; visible: of those, how many would show in these
    cases. wrong, right: cases they were held against, of all_wrong and all_right. partial: the best of those
    that do not fit. common: what the wrong cases have in common, and no right one has.
    """

    found: tuple[tuple[Behaviour, ...], ...]
    searched: int
    visible: int
    wrong: int
    right: int
    all_wrong: int
    all_right: int
    partial: Partial | None = None
    common: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything fits."""
        return bool(self.found)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of what fits; pairs with a + between them."""
        return tuple(" + ".join(b.name for b in some) for some in self.found)

    @property
    def whole(self) -> bool:
        """Whether every case that was checked is among those it was held against."""
        return (self.wrong, self.right) == (self.all_wrong, self.all_right)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "found": [[{"name": b.name, "about": b.about} for b in some] for some in self.found],
            "searched": self.searched,
            "visible": self.visible,
            "wrong": {"tried": self.wrong, "all": self.all_wrong},
            "right": {"tried": self.right, "all": self.all_right},
            "partial": None if self.partial is None else str(self.partial),
            "common": list(self.common),
        }

    def __str__(self) -> str:
        """In a few lines."""
        tried = f"{self.wrong} wrong and {self.right} right cases"
        if not self.whole:
            tried += f" (of {self.all_wrong} and {self.all_right})"
        if self.found:
            many = (
                "One behaviour gives" if len(self.found) == 1 else f"{len(self.found)} behaviours each give"
            )
            lines = [f"{many} exactly what the unit gave in {tried}:"]
            for some in self.found[:SHOWN]:
                lines += [f"  {' and '.join(str(b) for b in some)}"]
            if len(self.found) > SHOWN:
                lines.append(f"  and {len(self.found) - SHOWN} more")
        else:
            lines = [
                f"None of the {self.searched} behaviours explains what the unit gave in {tried}",
                f"  ({self.visible} of them would show in these cases; the likeliest were tried in pairs)",
            ]
            if self.partial is not None:
                lines.append(f"  nearest: {self.partial}")
        if self.common:
            lines.append(f"Wrong exactly where {'; where '.join(self.common)}")
        return "\n".join(lines)


def explain(evidence: Evidence, *, progress: Progress | None = None) -> Explanation | None:
    """The behaviours that fit; None where no answered case is wrong.

    progress: called with what is done, how many of how many.
    """
    if not evidence.totals["wrong"] or not evidence.parts:
        return None
    cases = evidence.all()
    unit = evidence.unit
    right = Datapath.of(unit)
    known = (*behaviours(unit), *_constants(unit, cases))
    primary = "result" if unit.scaled else "sum"
    fresh = ~_same(right, cases, primary) if unit.kind == "running" else cases.wrong
    part = cases.rows(_screen(cases, fresh))
    right_there = _output(right, part)[primary]
    part_wrong = ~(right_there == part.got[primary]).all(axis=1)
    fits: list[tuple[Behaviour, ...]] = []
    partials: list[Partial] = []
    silent: list[Behaviour] = []
    for number, behaviour in enumerate(known):
        if progress is not None and number % 16 == 0:
            progress("behaviours", number, len(known))
        found = _output(behaviour.apply(right), part)[primary]
        same = (found == part.got[primary]).all(axis=1)
        if np.array_equal(found, right_there):
            silent.append(behaviour)
        elif same.all():
            fits.append((behaviour,))
        elif (same & part_wrong).any():
            partials.append(_partial(behaviour, same, part_wrong))
    near, fits = fits, _verified(right, cases, fits, primary)
    if not fits:  # they fit the part, so they are nearer than all others
        partials += [_partial(some[0], _fits(right, some, cases, primary), cases.wrong) for some in near]
    partials.sort(key=lambda p: ((p.wrong - p.explained + p.spoilt) / (p.wrong + p.right), p.spoilt))
    if not fits:
        clean = [p.behaviour for p in partials if not p.spoilt][:PAIRED]
        pairs: list[tuple[Behaviour, ...]] = [*combinations(clean, 2)]
        pairs += [(p.behaviour, quiet) for p in partials[:NEAREST] for quiet in silent]
        pairs = [pair for pair in pairs if _fits(right, pair, part, primary).all()]
        fits = _verified(right, cases, pairs, primary)
    wrong = int(cases.wrong.sum())
    return Explanation(
        tuple(fits),
        len(known),
        len(known) - len(silent),
        wrong,
        len(cases) - wrong,
        evidence.totals["wrong"],
        evidence.totals["right"],
        partials[0] if partials and not fits else None,
        common(cases, fresh),
    )


def _partial(behaviour: Behaviour, same: Bools, wrong: Bools) -> Partial:
    return Partial(
        behaviour,
        int((same & wrong).sum()),
        int(wrong.sum()),
        int((~same & ~wrong).sum()),
        int((~wrong).sum()),
    )


def _changed(right: Datapath, some: tuple[Behaviour, ...]) -> Datapath:
    for behaviour in some:
        right = behaviour.apply(right)
    return right


def _output(path: Datapath, cases: Compared) -> dict[str, Any]:
    return path.run(cases.flow())


def _fits(right: Datapath, some: tuple[Behaviour, ...], cases: Compared, primary: str) -> Bools:
    return _same(_changed(right, some), cases, primary)


def _same(path: Datapath, cases: Compared, *names: str) -> Bools:
    """(n,) which cases come out as the unit gave them, in those of these stages that are run."""
    same = np.ones(len(cases), np.bool_)
    for rows in _pieces(cases):
        part = cases.rows(rows)
        found = _output(path, part)
        for name in names:
            if name in found:
                same[rows] &= (found[name].reshape(len(rows), -1) == part.got[name]).all(axis=1)
    return same


def _pieces(cases: Compared) -> list[Integers]:
    """Rows in pieces; a sequence stays in one."""
    begins = np.flatnonzero(cases.batch.first)
    cuts, last = [], 0
    for begin in begins.tolist():
        if begin - last >= PIECE:
            cuts.append(begin)
            last = begin
    return np.split(np.arange(len(cases)), cuts)


def _verified(
    right: Datapath, cases: Compared, fits: list[tuple[Behaviour, ...]], primary: str
) -> list[tuple[Behaviour, ...]]:
    """Those that fit all the evidence; if any fits every stage that was given, those alone."""
    others = [name for name in cases.got if name != primary]
    whole, result = [], []
    for some in fits:
        if _fits(right, some, cases, primary).all():
            result.append(some)
            if others and _same(_changed(right, some), cases, *others).all():
                whole.append(some)
    return whole or result


def _screen(cases: Compared, fresh: Bools) -> Integers:
    """Rows that every behaviour is tried on, spread over all groups; whole sequences of a running unit."""
    sequence = (
        np.cumsum(cases.batch.first) - 1 if cases.batch.unit.kind == "running" else np.arange(len(cases))
    )
    begins = np.flatnonzero(np.diff(sequence, prepend=-1))
    bad = np.zeros(len(begins), np.bool_)
    np.logical_or.at(bad, sequence, fresh)
    lengths = np.diff(np.append(begins, len(cases)))
    keep = np.zeros(len(begins), np.bool_)
    most = max(FEWEST, min(SCREENED, SCREENED_ELEMENTS // cases.batch.unit.elements))
    for which in (bad, ~bad):
        places = np.flatnonzero(which)
        if not len(places):
            continue
        wanted = max(1, int(most / lengths[places].mean()))
        groups = cases.batch.group[begins[places]]
        order = np.argsort(groups, kind="stable")
        turn = np.empty(len(places), np.int64)  # the how manieth of its group each is
        sizes = np.bincount(groups)
        turn[order] = np.concatenate([np.arange(size) for size in sizes[sizes > 0]])
        keep[places[np.argsort(turn, kind="stable")[:wanted]]] = True
    return np.flatnonzero(keep[sequence])


def _constants(unit: Unit, cases: Compared) -> list[Behaviour]:
    """Behaviours whose parameter is read off: one pattern wherever NaN, infinity or zero is due."""
    if not unit.scaled or unit.accumulator.result_dtype.itemsize > 4:
        return []
    right = Datapath.of(unit).run(cases.flow())["result"][:, 0]
    got = cases.got["result"][:, 0]
    dtype = unit.accumulator.result_dtype
    values = floats_of(right, dtype)
    found = []
    for name, where in (("nan", np.isnan(values)), ("infinity", np.isinf(values)), ("zero", values == 0)):
        wrong = got[where & (got != right)]
        for pattern in np.unique(wrong)[:2].tolist() if len(wrong) else ():
            digits = f"{pattern:0{2 * dtype.itemsize}x}"
            found.append(
                Behaviour(
                    f"{name}-gives-{digits}",
                    f"wherever {name} is due there is {digits}",
                    _given(name, pattern),
                )
            )
    return found


def _given(name: str, pattern: int) -> Callable[[Datapath], Datapath]:
    def change(flow: Any) -> None:
        dtype = flow.unit.accumulator.result_dtype
        values = floats_of(flow.result, dtype)
        where = {"nan": np.isnan(values), "infinity": np.isinf(values), "zero": values == 0}[name]
        flow.result = np.where(where, np.uint64(pattern), flow.result)

    return lambda path: path.changed("result", change)
