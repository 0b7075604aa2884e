# SPDX-License-Identifier: Apache-2.0
"""A unit in a simulator, driven and watched from cocotb: pins by name, a driver, monitors, a run of a suite.

Needs cocotb 2 (`pip install 'mxfp-emulator[verify]'`), and is the only module of the package that imports it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import cocotb
from cocotb.clock import Clock
from cocotb.handle import SimHandleBase
from cocotb.triggers import FallingEdge, ReadOnly, RisingEdge

from .coverage.coverage import Coverage
from .layout import FIRST, Adapter, Field, line_fields, lines
from .mismatch import Undefined, Value
from .scoreboard import Scoreboard
from .unit import Batch, Unit, expected
from .vectors.suite import Suite

Port = str | Sequence[str]
"""One port that holds all elements, element 0 lowest; or a port for each. "a_{}" is a_0, a_1 …"""
SILENT: Final = 1000
"""Clock cycles without an answer after which those that wait count as missing."""


@dataclass(frozen=True)
class Pins:
    """The names of a unit's ports. None is a port that the unit has not got.

    a, b, scale_a, scale_b: each one port, or "a_{}" for a port a lane, or a list of names. valid, ready,
    first: of the input. result (of a unit that sums products: its sum), result_valid, result_ready: of the
    output. tag, result_tag: where answers come out of order. stages: stage -> port, such as {"sum": "total"},
    valid with the result. latency: without result_valid, the clock cycles from an input to its result.
    """

    clock: str = "clk"
    reset: str | None = "rst"
    reset_active_low: bool = False
    a: Port = "a"
    b: Port = "b"
    scale_a: Port | None = "scale_a"
    scale_b: Port | None = "scale_b"
    valid: str | None = "valid"
    ready: str | None = None
    first: str | None = None
    tag: str | None = None
    result: str = "result"
    result_valid: str | None = "valid_out"
    result_ready: str | None = None
    result_tag: str | None = None
    stages: Mapping[str, str] = field(default_factory=dict)
    latency: int | None = None

    def __post_init__(self) -> None:
        """Check that a result can be told from none."""
        if self.result_valid is None and self.latency is None:
            raise ValueError("give result_valid, or the latency of a unit that has no such port")
        if self.latency is not None and self.ready is not None:
            raise ValueError("a unit that makes its input wait has no fixed latency; give result_valid")
        if (self.tag is None) != (self.result_tag is None):
            raise ValueError("tag and result_tag go together")


def port(dut: Any, name: str) -> Any:
    """A port of the unit; ValueError that lists its ports if it has none of that name."""
    found = getattr(dut, name, None)
    if not isinstance(found, SimHandleBase):
        there = ", ".join(sorted(handle._name for handle in dut))
        raise ValueError(f"the unit has no port {name!r}; it has {there}")
    return found


class Group:
    """The elements of an operand on the pins, whether they share a port or not."""

    def __init__(self, dut: Any, names: Port, width: int, count: int) -> None:
        if isinstance(names, str) and "{}" in names:
            names = [names.format(n) for n in range(count)]
        self.handles = [port(dut, name) for name in ([names] if isinstance(names, str) else names)]
        self.width, self.count = width, count
        if len(self.handles) not in (1, count):
            raise ValueError(f"{count} elements take 1 port or {count}, got {len(self.handles)}: {names}")
        if len(self.handles) == 1 and len(self.handles[0]) != width * count:
            name, bits = self.handles[0]._name, len(self.handles[0])
            raise ValueError(f"{name} has {bits} bits, and {count} elements of {width} take {width * count}")

    def drive(self, elements: Sequence[int]) -> None:
        """Put elements on the pins, element 0 lowest."""
        if len(self.handles) == 1:
            self.handles[0].value = sum(value << (self.width * n) for n, value in enumerate(elements))
            return
        for handle, value in zip(self.handles, elements, strict=True):
            handle.value = value


def value_of(handle: Any, *, signed: bool = False) -> Value:
    """What a port holds: an integer, or Undefined with its X and Z bits."""
    held = handle.value
    text = str(held)
    if set(text) - set("01"):
        return Undefined(text)
    number = int(text, 2)
    return number - (1 << len(text)) if signed and text[0] == "1" else number


def is_high(handle: Any | None) -> bool:
    """Whether a port that may not be there is 1; one that is not there always is, X never."""
    return handle is None or str(handle.value) == "1"


class Driver:
    """Puts cases on the input pins, one a clock cycle, and waits for ready where there is such a pin.

    Pins change at the falling edge, so that a unit without delays sees them settled.
    """

    def __init__(self, dut: Any, pins: Pins, unit: Unit, adapter: Adapter) -> None:
        self.unit, self.pins = unit, pins
        self.adapter = replace(adapter, endian="big")  # bytes of a file; pins have none
        self.layout = line_fields(unit, adapter=self.adapter)
        self.clock = port(dut, pins.clock)
        names = {"a": pins.a, "b": pins.b}
        if unit.scaled:
            for name, given in (("scale_a", pins.scale_a), ("scale_b", pins.scale_b)):
                if given is None:
                    raise ValueError(f"a unit that is {unit.kind} takes scales; name its port {name}")
                names[name] = given
        self.groups = {f.name: Group(dut, names[f.name], f.width, f.count) for f in self.fields(names)}
        self.valid, self.ready, self.first, self.tag = (
            None if name is None else port(dut, name)
            for name in (pins.valid, pins.ready, pins.first, pins.tag)
        )
        if unit.kind == "running" and self.first is None:
            raise ValueError("a running unit has a port that clears its accumulator; name it as first=")
        self.idle()

    def fields(self, names: Mapping[str, Any]) -> Iterator[Field]:
        """The fields that have pins; scales are as wide as their port, the byte of a line."""
        for given in self.layout:
            if given.name in names:
                width = given.bits if given.name.startswith("scale") else given.width
                yield replace(given, width=width)

    def idle(self) -> None:
        """No case on the pins."""
        if self.valid is not None:
            self.valid.value = 0
        if self.first is not None:
            self.first.value = 0

    def elements(self, batch: Batch) -> Iterator[dict[str, list[int]]]:
        """For each case, what goes on the pins, laid out by the adapter."""
        text = lines(batch, expected(batch, stages=False), self.layout, self.adapter).decode()
        used = {f.name: f for f in self.layout if f.name in self.groups or f.name == "flags"}
        for line in text.split():
            whole = int(line, 16)
            yield {
                name: [whole >> (f.lsb + f.bits * n) & ((1 << f.bits) - 1) for n in range(f.count)]
                for name, f in used.items()
            }

    async def send(self, given: Mapping[str, list[int]], *, tag: int | None = None) -> None:
        """One case: on the pins from this falling edge until a rising edge at which the unit takes it."""
        for name, group in self.groups.items():
            group.drive(given[name])
        if self.first is not None:
            self.first.value = int(bool(given["flags"][0] & FIRST))
        if self.tag is not None:
            self.tag.value = tag
        if self.valid is not None:
            self.valid.value = 1
        while True:
            await ReadOnly()
            taken = is_high(self.ready)
            await RisingEdge(self.clock)
            await FallingEdge(self.clock)
            if taken:
                return


class Monitor:
    """Watches the output pins: every result, with its tag and stages, goes to the scoreboard."""

    def __init__(self, dut: Any, pins: Pins, board: Scoreboard) -> None:
        self.board = board
        self.clock = port(dut, pins.clock)
        self.result = port(dut, pins.result)
        self.valid, self.ready, self.tag = (
            None if name is None else port(dut, name)
            for name in (pins.result_valid, pins.result_ready, pins.result_tag)
        )
        self.stages = {name: port(dut, given) for name, given in pins.stages.items()}
        self.fields = {f.name: f for f in line_fields(board.unit, stages=True)}
        for name in self.stages:
            if name not in self.fields:
                raise ValueError(f"{name!r} is no stage; this unit has {', '.join(self.fields)}")
        if self.ready is not None:
            self.ready.value = 1
        self.latency = pins.latency if pins.result_valid is None else None
        self.taken: list[int] = []
        self.cycle = self.silent = 0

    def sees_input(self) -> None:
        """The unit has taken a case in this cycle; of a unit with a fixed latency."""
        if self.latency is not None:
            self.taken.append(self.cycle + self.latency)

    async def watch(self) -> None:
        """Look at the pins in every clock cycle, when they have settled, for ever."""
        while True:
            await FallingEdge(self.clock)
            await ReadOnly()
            if self._there():
                self.silent = 0
                stages = {name: self._stage(name, handle) for name, handle in self.stages.items()}
                tag = None if self.tag is None else value_of(self.tag)
                signed = not self.board.unit.scaled
                number = tag if isinstance(tag, int) or tag is None else str(tag)
                self.board.got(value_of(self.result, signed=signed), tag=number, stages=stages)
            else:
                self.silent += 1
            self.cycle += 1

    def _there(self) -> bool:
        if self.latency is not None:
            due = bool(self.taken) and self.taken[0] <= self.cycle
            return bool(due and self.taken.pop(0) is not None)
        return is_high(self.valid) and is_high(self.ready)

    def _stage(self, name: str, handle: Any) -> list[Value]:
        """The elements of a stage, the port cut into as many equal parts."""
        f = self.fields[name]
        text = str(handle.value)
        if len(text) % f.count:
            raise ValueError(f"{handle._name} has {len(text)} bits, and {name} is {f.count} values")
        each = len(text) // f.count
        parts = [text[len(text) - each * (n + 1) : len(text) - each * n] for n in range(f.count)]
        found: list[Value] = []
        for part in parts:
            if set(part) - set("01"):
                found.append(Undefined(part))
            else:
                found.append(int(part, 2) - (1 << each) * (f.signed and part[0] == "1"))
        return found


async def run_suite(
    dut: Any,
    suite: Suite,
    pins: Pins | None = None,
    *,
    limit: int = 10,
    cases: int | None = None,
    period: int | None = 10,
    gap: int = 8,
    coverage: Coverage | None = None,
) -> Scoreboard:
    """Run a suite on a unit: reset, drive every case, compare every result. AssertionError unless all pass.

    pins: the names of the ports. limit: failures that are told in full. cases: only so many. period: of the
    clock, in steps of the simulator; None leaves the clock alone. gap: an idle cycle after every so many
    cases, valid low and the operands still there; 0 has none. coverage: counts what was answered. Returns
    the scoreboard.
    """
    names = Pins() if pins is None else pins
    board = Scoreboard(suite.unit, limit=limit, stages=bool(set(names.stages) - {"sum"}), coverage=coverage)
    driver = Driver(dut, names, suite.unit, suite.adapter)
    monitor = Monitor(dut, names, board)
    if period is not None:
        Clock(port(dut, names.clock), period, unit="step").start()
    await _reset(dut, names)
    watching = cocotb.start_soon(monitor.watch())
    sent = 0
    for batch in suite.batches():
        left = len(batch) if cases is None else min(len(batch), cases - sent)
        part = batch.cut(slice(0, left))
        wanted = expected(part, stages=board.stages)
        for row, given in enumerate(driver.elements(part)):
            tag = None if driver.tag is None else sent & ((1 << len(driver.tag)) - 1)
            board.push_row(part, row, wanted, tag=tag)
            monitor.sees_input()
            await driver.send(given, tag=tag)
            sent += 1
            if gap and driver.valid is not None and sent % gap == 0:
                driver.idle()
                await FallingEdge(driver.clock)
        if sent == cases:
            break
    driver.idle()
    monitor.silent = 0
    while board.waiting and monitor.silent < SILENT:
        await FallingEdge(driver.clock)
    for _ in range(4):  # a result too many shows now
        await FallingEdge(driver.clock)
    watching.cancel()
    summary = board.finish()
    cocotb.log.info(summary)
    if not board.passed:
        told = "\n".join(str(failure) for failure in board.failures)
        raise AssertionError(f"{summary}\n{told}")
    return board


async def _reset(dut: Any, pins: Pins) -> None:
    clock = port(dut, pins.clock)
    if pins.reset is not None:
        reset = port(dut, pins.reset)
        reset.value = int(not pins.reset_active_low)
        for _ in range(3):
            await FallingEdge(clock)
        reset.value = int(pins.reset_active_low)
    await FallingEdge(clock)
