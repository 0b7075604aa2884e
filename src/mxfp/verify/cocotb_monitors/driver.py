# SPDX-License-Identifier: Apache-2.0
"""Puts cases on the input pins of a unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from cocotb.triggers import FallingEdge, ReadOnly, RisingEdge

from ..layout import FIRST, Adapter, Field, line_fields, lines
from ..unit import Batch, Unit, expected
from .pins import Group, Pins, is_high, port

SILENT: Final = 1000
"""Clock cycles after which a unit that takes no case, or gives no result, will not any more."""


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

    async def send(self, given: Mapping[str, list[int]], *, tag: int | None = None) -> bool:
        """One case: on the pins from this falling edge until a rising edge at which the unit takes it.

        Whether it did, within `SILENT` clock cycles.
        """
        for name, group in self.groups.items():
            group.drive(given[name])
        if self.first is not None:
            self.first.value = int(bool(given["flags"][0] & FIRST))
        if self.tag is not None:
            self.tag.value = tag
        if self.valid is not None:
            self.valid.value = 1
        for _ in range(SILENT):
            await ReadOnly()
            taken = is_high(self.ready)
            await RisingEdge(self.clock)
            await FallingEdge(self.clock)
            if taken:
                return True
        return False
