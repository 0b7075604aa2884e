# SPDX-License-Identifier: Apache-2.0
"""The roofs above the formats: those that are quoted, and the probes that measure all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...formats import BLOCK_FORMATS
from ..throughput import Run, spread
from . import memory
from .caches import COLD, Cache, caches, last_level, level_of
from .peaks import FLOAT32, block_peak, float32_peak
from .placing import Above
from .points import Probe, Times
from .roofline import measured_roof, quoted_roof
from .sizes import Budget
from .weights import FLOATS, copies, weight_bytes


@dataclass(frozen=True)
class Quoted:
    """Roofs that somebody else names: Gop/s by format, or by "" for all others, and GB/s."""

    peaks: Mapping[str, float]
    bandwidth: float | None

    def peak(self, fmt: str) -> float | None:
        """The peak that is quoted for a format."""
        return self.peaks.get(fmt, self.peaks.get(""))


@dataclass(frozen=True)
class Here:
    """Caches, threads, and the bytes that the last level has for them."""

    caches: list[Cache]
    threads: int
    last_level: int


def here(threads: int) -> Here:
    """What is known of this machine, for so many threads."""
    found = caches()
    return Here(found, threads, last_level(found, threads))


class Roofs:
    """The probes that have to run beside the products, and the roofs that they give."""

    def __init__(
        self, n: int, k: int, formats: Sequence[str], quoted: Quoted, where: Here, budget: Budget
    ) -> None:
        self.quoted, self.where, self.budget = quoted, where, budget
        self.sizes: dict[str, int] = {}
        self.readings: dict[int, str] = {}
        self.probes: list[Probe] = []
        if quoted.bandwidth is None:
            self.sizes = {fmt: self._size(weight_bytes(fmt, n, k)) for fmt in formats}
            self._add_readers()
        for name in dict.fromkeys(_peak(fmt) for fmt in formats if quoted.peak(fmt) is None):
            self.probes.append(Probe(name, *self._peak_run(name)))

    def _size(self, weight: int) -> int:
        """Bytes to read for the roof over a weight: what its copies take, as far as that matters."""
        last = self.where.last_level
        size = min(weight * copies(weight, last), COLD * last)
        return max(size // memory.UNIT, 1) * memory.UNIT

    def _add_readers(self) -> None:
        data = memory.words(max(self.sizes.values()))
        for size in sorted(set(self.sizes.values())):
            pattern, run, moved = memory.quickest(data[: size // 8], self.where.threads, self.budget)
            self.readings[size] = f"reading {size / 2**20:.4g} MiB {pattern}"
            self.probes.append(Probe(self.readings[size], run, moved))

    def _peak_run(self, name: str) -> tuple[Run, int]:
        threads, operations = self.where.threads, self.budget.operations
        if name == FLOAT32:
            return float32_peak(threads, operations=operations)
        return block_peak(BLOCK_FORMATS[name], threads, k=self.budget.tile, operations=operations)

    def above(self, fmt: str, times: Times) -> Above:
        """The two roofs of a format, from all that was timed."""

        def rates(probe: str) -> list[float]:
            return [rate for some in times.rates.values() for rate in some[probe]]

        given, bandwidth = self.quoted.peak(fmt), self.quoted.bandwidth
        if given is None:
            how = "multiply-adds in registers" if fmt in FLOATS else "micro-kernel, first cache level"
            peak = measured_roof(f"{_peak(fmt)} peak", spread(rates(_peak(fmt))), how)
        else:
            peak = quoted_roof(f"{fmt} peak" if fmt in self.quoted.peaks else "peak", given)
        if bandwidth is not None:
            return Above(quoted_roof("bandwidth", bandwidth), peak)
        size = self.sizes[fmt]
        name = f"{level_of(size, self.where.caches, self.where.threads)} bandwidth"
        reading = self.readings[size]
        return Above(measured_roof(name, spread(rates(reading)), reading), peak, reading)


def _peak(fmt: str) -> str:
    """The name of what measures a format's peak: float16 is computed in float32."""
    return FLOAT32 if fmt in FLOATS else fmt
