# SPDX-License-Identifier: Apache-2.0
"""The ports of a unit by name, and what they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cocotb.handle import SimHandleBase

from ..mismatch import Undefined, Value

Port = str | Sequence[str]
"""One port that holds all elements, element 0 lowest; or a port for each. "a_{}" is a_0, a_1 …"""


@dataclass(frozen=True)
class Pins:
    """The names of a unit's ports. None is a port that the unit has not got.

    a, b, scale_a, scale_b: each one port, or "a_{}" for a port a lane, or a list of names. valid, ready,
    first: of the input. result (of a unit that sums products: its sum), result_valid, result_ready: of the
    output. tag, result_tag: where answers come out of order. stages: stage -> port, such as {"sum": "total"},
    valid with the result. latency: without result_valid, the clock cycles from an input to its result: how
    many registers are between them, 0 for none.
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
        latency = self.latency
        if latency is not None and (type(latency) is not int or latency < 0):
            raise ValueError(f"latency is a number of clock cycles, 0 or more, got {latency!r}")
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
