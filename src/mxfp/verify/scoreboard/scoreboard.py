# SPDX-License-Identifier: Apache-2.0
"""A scoreboard: what a unit was given, what it should give, and what it gave, compared by bits.

It knows no simulator. Whatever drives the unit pushes each case as it goes in, and reports each result as it
comes out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..coverage.coverage import Coverage
from ..mismatch import Mismatch, Undefined, Value, described, stage_order
from ..unit import Batch, Unit, expected, expected_last
from ..vectors.sequences import Sequences
from .answered import Answered
from .stage import bits_of, same, written


@dataclass
class _Waiting:
    """A case that went in: its batch, its place in that, and what is expected at every stage."""

    number: int
    batch: Batch
    row: int
    wanted: Mapping[str, Any]


@dataclass
class Scoreboard:
    """Compares what comes out of a unit with what should, in order or by tag.

    push what goes in, report with `got` what comes out, and `finish` at the end: a case without a result is a
    failure too. limit: failures that are kept in words; all are counted. coverage: counts the cases answered,
    with the unit's own results, if given.

    >>> board = Scoreboard(Unit("sum", lanes=2))
    >>> board.push(a=[7, 1], b=[7, 9])
    0
    >>> print(board.got(144))
    case 0: result is 0x090 (144), expected 0x08f (143)
      block 0: sum 143
        lane 0      7 × 7  6 × 6  (12 · 12 = 144)
        lane 1      1 × 9  0.5 × -0.5  (1 · -1 = -1)
    >>> board.finish()
    'FAIL: 1 case, 0 right, 1 wrong, 0 missing, 0 unasked'
    """

    unit: Unit
    limit: int = 10
    stages: bool = True
    coverage: Coverage | None = None
    failures: list[Mismatch] = field(default_factory=list)
    right: int = 0
    wrong: int = 0
    missing: int = 0
    unasked: int = 0
    pushed: int = 0

    def __post_init__(self) -> None:
        """Begin with nothing waiting."""
        self._queue: OrderedDict[Hashable, _Waiting] = OrderedDict()
        self._sequence: Batch | None = None
        self._answered = Answered(self.coverage)

    # --- what goes in

    def push(
        self,
        a: Sequence[int],
        b: Sequence[int],
        *,
        scale_a: Sequence[int] | int = (),
        scale_b: Sequence[int] | int = (),
        first: bool = True,
        tag: Hashable = None,
    ) -> int:
        """One case as it goes in: codes of all lanes, scale codes of all blocks. Returns its number.

        first: the accumulator of a running unit is cleared before it. tag: what the result will come with,
        where a unit answers out of order.
        """
        unit = self.unit
        rows: dict[str, Any] = {}
        for name, given, count in (
            ("codes_a", a, unit.elements),
            ("codes_b", b, unit.elements),
            ("scales_a", scale_a, unit.blocks * unit.scaled),
            ("scales_b", scale_b, unit.blocks * unit.scaled),
        ):
            rows[name] = _codes(name, given, count, unit)
        one = np.array([bool(first) or unit.kind != "running"])
        if self._sequence is None and not one[0]:
            raise ValueError("the first case of a running unit must be marked first")
        batch = Batch(unit, **rows, first=one, group=np.zeros(1, np.int64), groups=("",))
        if self._sequence is not None and not one[0]:
            steps = Sequences(unit)
            for part in (self._sequence, batch):
                steps.add_rows(part)
            batch = steps.batch("")
        wanted = expected_last(batch, stages=self.stages)
        number = self._wait(batch, len(batch) - 1, {name: found[0] for name, found in wanted.items()}, tag)
        self._sequence = batch
        return number

    def push_batch(self, batch: Batch, *, tags: Sequence[Hashable] | None = None) -> None:
        """Many cases at once, in the order in which they go in; sequences lie within the batch."""
        if batch.unit != self.unit:
            raise ValueError(f"the scoreboard is of {self.unit}, got cases of {batch.unit}")
        wanted = expected(batch, stages=self.stages)
        for row in range(len(batch)):
            self.push_row(batch, row, wanted, tag=None if tags is None else tags[row])

    def push_row(self, batch: Batch, row: int, wanted: Mapping[str, Any], *, tag: Hashable = None) -> int:
        """One case of a batch whose expected values are known already; returns its number."""
        return self._wait(batch, row, {name: found[row] for name, found in wanted.items()}, tag)

    def _wait(self, batch: Batch, row: int, wanted: Mapping[str, Any], tag: Hashable) -> int:
        number = self.pushed
        key = ("number", number) if tag is None else ("tag", tag)
        if key in self._queue:
            raise ValueError(f"tag {tag!r} is given to a case while another with it is still under way")
        self._queue[key] = _Waiting(number, batch, row, wanted)
        self.pushed += 1
        return number

    def under_way(self, tag: Hashable) -> bool:
        """Whether a case with that tag has gone in and not come out; no tag never is."""
        return tag is not None and ("tag", tag) in self._queue

    @property
    def waiting(self) -> int:
        """How many cases have gone in and not come out."""
        return len(self._queue)

    # --- what comes out

    def got(
        self,
        result: Value,
        *,
        tag: Hashable = None,
        stages: Mapping[str, Value | Sequence[Value]] | None = None,
    ) -> Mismatch | None:
        """One result as it comes out, of the oldest case or of the one with that tag; None if it is right.

        result: the bits, unsigned or two's complement. stages: what came out beside it, such as {"sum": 5}.
        """
        key: Hashable = ("tag", tag) if tag is not None else next(iter(self._queue), None)
        if key not in self._queue:
            self.unasked += 1
            text = str(result) if isinstance(result, Undefined) else f"{result:#x}"
            return self._keep(Mismatch(-1, tag, "unasked", 0, text, ""))
        last = "result" if self.unit.scaled else "sum"
        given = self._checked({**(stages or {}), last: result}, self._queue[key])
        case = self._queue.pop(key)
        found = self._compared(case, given, tag)
        if found is None:
            self.right += 1
        else:
            self.wrong += 1
            self._keep(found)
        if not isinstance(result, Undefined):
            self._answered.add(case.batch, case.row, case.number, self._answer(int(result)))
        return found

    def finish(self) -> str:
        """Every case that still waits is missing; then the summary. The coverage is complete now."""
        self._answered.count()
        while self._queue:
            key, case = self._queue.popitem(last=False)
            self.missing += 1
            last = "result" if self.unit.scaled else "sum"
            wanted = written(self.unit, last, int(case.wanted[last][0]))
            tag = key[1] if isinstance(key, tuple) and key[0] == "tag" else None
            self._keep(Mismatch(case.number, tag, "missing", 0, "", wanted, described(case.batch, case.row)))
        return self.summary

    @property
    def passed(self) -> bool:
        """Whether there was something to compare, and all of it was right and is answered."""
        return self.right == self.pushed > 0 and not self.unasked

    @property
    def summary(self) -> str:
        """One line: PASS or FAIL, and how many of what."""
        cases = f"{self.pushed} case{'' if self.pushed == 1 else 's'}"
        counts = f"{self.right} right, {self.wrong} wrong, {self.missing} missing, {self.unasked} unasked"
        waiting = f", {self.waiting} still waiting" if self.waiting else ""
        return f"{'PASS' if self.passed else 'FAIL'}: {cases}, {counts}{waiting}"

    def _keep(self, failure: Mismatch) -> Mismatch:
        if len(self.failures) < self.limit:
            self.failures.append(failure)
        return failure

    def _checked(
        self, given: Mapping[str, Value | Sequence[Value]], case: _Waiting
    ) -> list[tuple[str, list[Value]]]:
        """Stages in the order in which numbers travel; ValueError for what is none, or not its values."""
        found = []
        for stage in sorted(given, key=stage_order):
            if stage not in case.wanted:
                raise ValueError(
                    f"a unit that is {self.unit.kind} has the stages {', '.join(case.wanted)}, not {stage}"
                )
            value = given[stage]
            values = [value] if isinstance(value, (int, np.integer, Undefined)) else list(value)
            if len(values) != len(case.wanted[stage]):
                raise ValueError(f"{stage} is {len(case.wanted[stage])} values a case, got {len(values)}")
            for one in values:
                if not isinstance(one, (int, np.integer, Undefined)):
                    raise ValueError(f"{stage} is bits as integers, or Undefined, got {one!r}")
            found.append((stage, values))
        return found

    def _compared(
        self, case: _Waiting, given: list[tuple[str, list[Value]]], tag: Hashable
    ) -> Mismatch | None:
        """The first value that differs."""
        for stage, values in given:
            bits = bits_of(self.unit, stage)
            for index, (one, right) in enumerate(zip(values, case.wanted[stage].tolist(), strict=True)):
                if isinstance(one, Undefined) or not same(int(one), right, bits):
                    got = str(one) if isinstance(one, Undefined) else written(self.unit, stage, int(one))
                    shown = "result" if stage == "sum" and not self.unit.scaled else stage
                    text, due = described(case.batch, case.row), written(self.unit, stage, right)
                    return Mismatch(case.number, tag, shown, index, got, due, text)
        return None

    def _answer(self, result: int) -> int:
        """What came, as a coverage has it: the bits of a result; a sum as a number that int64 holds."""
        if self.unit.scaled:
            return result & ((1 << bits_of(self.unit, "result")) - 1)
        bits = self.unit.sum_bits
        signed = result - (1 << bits) if result >> (bits - 1) == 1 else result
        return max(-(1 << 62), min(signed, 1 << 62))


def _codes(name: str, given: Sequence[int] | int, count: int, unit: Unit) -> Any:
    """Codes as they go in -> uint8 (1, count); ValueError unless they are that many codes of the side."""
    fmt = unit.sides[name.endswith("b")]
    limit = fmt.element.code_count if name.startswith("codes") else fmt.scale.code_count
    row = np.atleast_1d(np.asarray(given))
    whole = not row.size or row.dtype.kind in "iu"
    if row.shape != (count,) or not whole or (count and not (row.min() >= 0 and row.max() < limit)):
        raise ValueError(f"{name} is {count} codes, 0 … {limit - 1}, got {np.asarray(given).tolist()}")
    return row.astype(np.uint8)[None]
