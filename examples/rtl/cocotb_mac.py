# SPDX-License-Identifier: Apache-2.0
"""The unit under cocotb 2: mxfp drives its pins, watches every stage and keeps score.

    pip install 'mxfp-emulator[verify]'
    python cocotb_mac.py

Icarus Verilog 11 and later go with cocotb 2. The Verilator of Debian 12, 5.006, is too old for it.
"""

import os
import sys
from pathlib import Path

import cocotb
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner

from mxfp.verify.cocotb_monitors import Pins, run_suite
from mxfp.verify.unit import Unit
from mxfp.verify.vectors import Suite

HERE = Path(__file__).resolve().parent
PINS = Pins(first="first", stages={"sum": "sum", "exponent": "exponent", "special": "special"})
GROUPS = (
    "sum-extremes",
    "scale-sums",
    "overflow",
    "subnormals",
    "ties",
    "cancellation-across-blocks",
    "stale-accumulator",
)


@cocotb.test()
async def every_case_at_every_stage(dut):
    """The vectors of a running accumulator in which most goes wrong. CASES=N takes the first N."""
    cases = int(os.environ["CASES"]) if "CASES" in os.environ else None
    await run_suite(dut, Suite(Unit("running"), groups=GROUPS), PINS, cases=cases)


@cocotb.test()
async def the_corners_of_the_scales(dut):
    """One block a case, scales 0, 1, 126 … 128, 253, 254 and NaN."""
    await run_suite(dut, Suite(Unit("dot"), groups=("scale-corners", "nan-scales")), PINS)


def run():
    """Build the unit and run the tests above: how many there were, and how many failed."""
    build = Path(os.environ.get("BUILD", HERE / "build")).resolve() / "cocotb"
    runner = get_runner("icarus")
    runner.build(
        sources=sorted(HERE.glob("mx_*.sv")),
        hdl_toplevel="mx_mac",
        build_dir=build,
        build_args=["-g2012"],
        timescale=("1ns", "1ps"),
        always=True,
    )
    results = build / "results.xml"
    results.unlink(missing_ok=True)
    runner.test(
        hdl_toplevel="mx_mac",
        test_module=Path(__file__).stem,
        test_dir=build,
        build_dir=build,
        results_xml=str(results),
    )
    return get_results(results)


if __name__ == "__main__":
    count, failed = run()
    print(f"{count - failed} of {count} passed")
    sys.exit(failed != 0 or count == 0)
