# SPDX-License-Identifier: Apache-2.0
"""A unit in a simulator, driven and watched from cocotb: pins by name, a driver, monitors, a run of a suite.

Needs cocotb 2 (`pip install 'mxfp-emulator[verify]'`), and is the only part of the package that imports it.
"""

from .driver import Driver
from .monitor import Monitor
from .pins import Pins
from .running import run_suite

__all__ = ["Driver", "Monitor", "Pins", "run_suite"]
