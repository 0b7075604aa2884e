# SPDX-License-Identifier: Apache-2.0
"""A run of vectors on a unit in a simulator, from its reset to the verdict."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from ..coverage.coverage import Coverage
from ..scoreboard import Scoreboard
from ..unit import expected
from ..vectors.written import Written
from .driver import SILENT, Driver
from .monitor import Monitor
from .pins import Pins, port


async def run_suite(
    dut: Any,
    suite: Written,
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
    if cases is not None and cases < 1:
        raise ValueError(f"cases is how many are run, 1 or more, got {cases}")
    names = Pins() if pins is None else pins
    board = Scoreboard(suite.unit, limit=limit, stages=bool(set(names.stages) - {"sum"}), coverage=coverage)
    driver = Driver(dut, names, suite.unit, suite.adapter)
    monitor = Monitor(dut, names, board)
    if period is not None:
        Clock(port(dut, names.clock), period, unit="step").start()
    await _reset(dut, names)
    watching = cocotb.start_soon(monitor.watch())
    await FallingEdge(driver.clock)  # the first edge after reset, from which both count clock cycles
    taken = await _sent(suite, driver, monitor, cases, gap)
    driver.idle()
    monitor.silent = 0
    while board.waiting and monitor.silent < SILENT:
        await FallingEdge(driver.clock)
    for _ in range(4):  # a result too many shows now
        await FallingEdge(driver.clock)
    watching.cancel()
    summary = board.finish()
    if not taken:
        summary += f"; the unit took no more cases for {SILENT} clock cycles"
    cocotb.log.info(summary)
    if not board.passed:
        told = "\n".join(str(failure) for failure in board.failures)
        raise AssertionError(f"{summary}\n{told}")
    return board


async def _sent(suite: Written, driver: Driver, monitor: Monitor, cases: int | None, gap: int) -> bool:
    """Drive the cases of a suite; whether the unit took all of them."""
    board, sent = monitor.board, 0
    for batch in suite.batches():
        left = len(batch) if cases is None else min(len(batch), cases - sent)
        part = batch.cut(slice(0, left))
        wanted = expected(part, stages=board.stages)
        for row, given in enumerate(driver.elements(part)):
            tag = None if driver.tag is None else sent & ((1 << len(driver.tag)) - 1)
            while board.under_way(tag):  # no more cases at once than there are tags
                if monitor.silent > SILENT:
                    return False
                driver.idle()
                await FallingEdge(driver.clock)
            board.push_row(part, row, wanted, tag=tag)
            monitor.sees_input()
            if not await driver.send(given, tag=tag):
                return False
            sent += 1
            if gap and driver.valid is not None and sent % gap == 0:
                driver.idle()
                await FallingEdge(driver.clock)
        if sent == cases:
            break
    return True


async def _reset(dut: Any, pins: Pins) -> None:
    clock = port(dut, pins.clock)
    if pins.reset is not None:
        reset = port(dut, pins.reset)
        reset.value = int(not pins.reset_active_low)
        for _ in range(3):
            await FallingEdge(clock)
        reset.value = int(pins.reset_active_low)
