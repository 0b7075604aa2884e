# SPDX-License-Identifier: Apache-2.0
"""Watches the output pins of a unit."""

from __future__ import annotations

from typing import Any

from cocotb.triggers import FallingEdge, ReadOnly

from ..layout import line_fields
from ..mismatch import Undefined, Value
from ..scoreboard import Scoreboard
from .pins import Pins, is_high, port, value_of


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
