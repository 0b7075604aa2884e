# SPDX-License-Identifier: Apache-2.0
"""A scoreboard: what a unit was given, what it should give, and what it gave, compared by bits.

It knows no simulator. Whatever drives the unit pushes each case as it goes in, and reports each result as it
comes out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from .coverage.coverage import Coverage
from .mismatch import Mismatch, Undefined, Value, described, stage_order
from .unit import Batch, Unit, expected
from .vectors.sequences import PARTS

TOGETHER: Final = 1024
"""Answers that are counted at once."""


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
        self._sequence: list[Batch] = []
        self._answered: list[tuple[_Waiting, int, int]] = []

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
            row = np.atleast_1d(np.asarray(given, np.int64))
            fmt = unit.sides[name.endswith("b")]
            limit = fmt.element.code_count if name.startswith("codes") else fmt.scale.code_count
            if row.shape != (count,) or (count and not (row.min() >= 0 and row.max() < limit)):
                raise ValueError(
                    f"{name} is {count} codes, 0 … {limit - 1}, got {np.asarray(given).tolist()}"
                )
            rows[name] = row.astype(np.uint8)[None]
        one = np.array([bool(first) or unit.kind != "running"])
        if unit.kind == "running" and not self._sequence and not one[0]:
            raise ValueError("the first case of a running unit must be marked first")
        return self._push_sequence(
            Batch(unit, **rows, first=one, group=np.zeros(1, np.int64), groups=("",)), tag
        )

    def _push_sequence(self, batch: Batch, tag: Hashable) -> int:
        """One case; a running unit's is expected together with those since the last first one."""
        if batch.first[0]:
            self._sequence = []
        self._sequence.append(batch)
        if len(self._sequence) == 1:
            whole = batch
        else:
            parts: dict[str, Any] = {
                name: np.concatenate([getattr(b, name) for b in self._sequence])
                for name in ("codes_a", "codes_b", "scales_a", "scales_b", "first", "group")
            }
            whole = replace(batch, **parts)
        wanted = expected(whole, stages=self.stages)
        return self.push_row(whole, len(whole) - 1, wanted, tag=tag)

    def push_batch(self, batch: Batch, *, tags: Sequence[Hashable] | None = None) -> None:
        """Many cases at once, in the order in which they go in; sequences lie within the batch."""
        if batch.unit != self.unit:
            raise ValueError(f"the scoreboard is of {self.unit}, got cases of {batch.unit}")
        wanted = expected(batch, stages=self.stages)
        for row in range(len(batch)):
            self.push_row(batch, row, wanted, tag=None if tags is None else tags[row])

    def push_row(self, batch: Batch, row: int, wanted: Mapping[str, Any], *, tag: Hashable = None) -> int:
        """One case of a batch whose expected values are known already; returns its number."""
        number = self.pushed
        key = ("number", number) if tag is None else ("tag", tag)
        if key in self._queue:
            raise ValueError(f"tag {tag!r} is given to a case while another with it is still under way")
        self._queue[key] = _Waiting(number, batch, row, wanted)
        self.pushed += 1
        return number

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
        case = self._queue.pop(key)
        last = "result" if self.unit.scaled else "sum"
        found = None
        for name, given in sorted(
            {**(stages or {}), last: result}.items(), key=lambda item: stage_order(item[0])
        ):
            values = [given] if isinstance(given, (int, np.integer, Undefined)) else list(given)
            found = self._compare(case, name, values, tag)
            if found is not None:
                break
        if found is None:
            self.right += 1
        else:
            self.wrong += 1
            self._keep(found)
        if self.coverage is not None and not isinstance(result, Undefined):
            self._cover(case, last, int(result))
        return found

    def finish(self) -> str:
        """Every case that still waits is missing; then the summary. The coverage is complete now."""
        self._count()
        while self._queue:
            key, case = self._queue.popitem(last=False)
            self.missing += 1
            last = "result" if self.unit.scaled else "sum"
            wanted = self._written(last, int(case.wanted[last][case.row, 0]))
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

    def _compare(self, case: _Waiting, stage: str, given: list[Value], tag: Hashable) -> Mismatch | None:
        if stage not in case.wanted:
            raise ValueError(
                f"a unit that is {self.unit.kind} has the stages {', '.join(case.wanted)}, not {stage}"
            )
        wanted = case.wanted[stage][case.row].tolist()
        if len(given) != len(wanted):
            raise ValueError(f"{stage} is {len(wanted)} values a case, got {len(given)}")
        bits = self._bits(stage)
        for index, (one, right) in enumerate(zip(given, wanted, strict=True)):
            if isinstance(one, Undefined) or not self._same(int(one), right, bits):
                got = str(one) if isinstance(one, Undefined) else self._written(stage, int(one))
                shown = "result" if stage == "sum" and not self.unit.scaled else stage
                text = described(case.batch, case.row)
                return Mismatch(case.number, tag, shown, index, got, self._written(stage, right), text)
        return None

    def _bits(self, stage: str) -> int:
        """Bits of a stage's register."""
        unit = self.unit
        word = stage.rstrip("0123456789")
        if word in ("product", "level"):
            return unit.level_bits[int(stage[len(word) :] or 0)]
        widths = {"sum": unit.sum_bits, "exponent": unit.exponent_bits, "special": 4, "term": unit.term_bits}
        return widths.get(stage, 8 * unit.accumulator.result_dtype.itemsize)

    @staticmethod
    def _same(given: int, wanted: int, bits: int) -> bool:
        """Whether a value is right as a number, or as two's complement of the stage's bits or of more."""
        if given == wanted:
            return True
        if given < 0 <= wanted:
            return given + (1 << bits) == wanted and given >= -(1 << (bits - 1))
        wide = max(bits, given.bit_length())
        return wanted < 0 < given and given == wanted & ((1 << wide) - 1)

    def _written(self, stage: str, value: int) -> str:
        """Bits in hex, and what they are."""
        bits = self._bits(stage)
        pattern = value & ((1 << bits) - 1) if value < 0 else value
        digits = f"0x{pattern:0{-(-bits // 4)}x}"
        if stage == "result":
            if pattern >> bits:
                return f"{digits} (more than {bits} bits)"
            dtype = self.unit.accumulator.result_dtype
            number = np.array([pattern], f"u{dtype.itemsize}").view(dtype)[0]
            return f"{digits} ({float(number):g})"
        signed = value - (1 << bits) if stage != "special" and value >> (bits - 1) == 1 else value
        return f"{digits} ({signed})"

    def _cover(self, case: _Waiting, last: str, result: int) -> None:
        """Keep a case that was answered for the coverage, with those before it in its sequence."""
        rows = case.batch.first[: case.row + 1]
        begin = int(np.flatnonzero(rows)[-1])
        signed = result
        if last == "sum" and result >> (self.unit.sum_bits - 1) == 1:
            signed -= 1 << self.unit.sum_bits
        self._answered.append((case, begin, signed))
        if len(self._answered) >= TOGETHER:
            self._count()

    def _count(self) -> None:
        """Give the coverage what was kept."""
        if self.coverage is None or not self._answered:
            return
        last = "result" if self.unit.scaled else "sum"
        parts: dict[str, list[Any]] = {name: [] for name in PARTS}
        answers: list[Any] = []
        answered: list[bool] = []
        numbers: list[int] = []
        for case, begin, given in self._answered:
            rows = slice(begin, case.row + 1)
            for name, found in parts.items():
                found.append(getattr(case.batch, name)[rows])
            wanted = case.wanted[last][rows].copy()
            wanted[-1, 0] = given
            answers.append(wanted)
            answered += [False] * (case.row - begin) + [True]
            numbers += range(case.number - (case.row - begin), case.number + 1)
        self._answered = []
        joined: dict[str, Any] = {name: np.concatenate(found) for name, found in parts.items()}
        joined["group"] = np.zeros(len(numbers), np.int64)
        self.coverage.add(
            Batch(self.unit, **joined, groups=("answered",)),
            answers={last: np.concatenate(answers)},
            answered=np.array(answered),
            numbers=np.array(numbers),
        )
