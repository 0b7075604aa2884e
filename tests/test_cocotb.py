# SPDX-License-Identifier: Apache-2.0
"""A unit in a real simulator: Icarus Verilog under cocotb, the right one passing and a planted bug found."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from mxfp.verify.layout import Adapter
from mxfp.verify.unit import Unit
from mxfp.verify.vectors import Suite

RTL = Path(__file__).parents[1] / "examples" / "rtl"

if shutil.which("iverilog") is None:
    pytest.skip("needs Icarus Verilog (Debian: iverilog)", allow_module_level=True)
pytest.importorskip("cocotb_tools.runner", reason="needs cocotb: pip install 'mxfp-emulator[verify]'")

BENCH = """
import cocotb
from mxfp.verify.cocotb_monitors import Pins, run_suite
from mxfp.verify.coverage import Coverage
from mxfp.verify.layout import Adapter
from mxfp.verify.vectors import Suite
from mxfp.verify.unit import Unit
from mxfp.verify.vectors import Suite
from mxfp.verify.unit import Unit


@cocotb.test()
async def check_the_unit(dut):
    suite = {suite}
    cover = Coverage(suite.unit)
    try:
        await run_suite(dut, suite, Pins({pins}), coverage=cover, {options})
    finally:
        print("COVERED", cover.cases, cover.hit)
"""
PINS = 'first="first", stages={"sum": "sum", "exponent": "exponent", "special": "special"}'
GROUPS = ("sum-extremes", "nan-scales", "stale-accumulator")
RUNNING = f'Suite(Unit("running"), groups={GROUPS})'
CASES = Suite(Unit("running"), groups=GROUPS).cases
SMALL = """
module pair (
    input logic clk, input logic nrst, input logic go, output logic take,
    input logic [3:0] x0, input logic [3:0] x1, input logic [3:0] y0, input logic [3:0] y1,
    input logic [1:0] id, output logic done, output logic [1:0] id_out, output logic signed [9:0] total
);
    function automatic logic signed [4:0] twice(input logic [3:0] code);
        logic [3:0] m;
        case (code[2:0])
            0: m = 0; 1: m = 1; 2: m = 2; 3: m = 3; 4: m = 4; 5: m = 6; 6: m = 8; default: m = 12;
        endcase
        return code[3] ? -$signed({1'b0, m}) : $signed({1'b0, m});
    endfunction
    logic signed [9:0] one, two;
    assign one = twice(x0) * twice(y0);
    assign two = twice(x1) * twice(y1);
    // Every third cycle it takes nothing; an answer with an odd tag comes after the even one behind it.
    logic [1:0] wait_count;
    logic late;
    logic [1:0] late_id;
    logic signed [9:0] late_total;
    assign take = wait_count != 2 && !(late && wait_count == 1);
    always_ff @(posedge clk)
        if (!nrst) begin
            wait_count <= 0; done <= 0; late <= 0;
        end else begin
            wait_count <= wait_count == 2 ? 0 : wait_count + 1;
            done <= 0;
            if (go && take) begin
                if (id[0] && !late) begin
                    late <= 1; late_id <= id; late_total <= one + two;
                end else begin
                    done <= 1; id_out <= id; total <= one + two;
                end
            end else if (late) begin
                done <= 1; id_out <= late_id; total <= late_total; late <= 0;
            end
        end
endmodule
"""


def simulate(tmp_path, suite, pins, *, sources, top="mx_mac", parameters=None, options=""):
    """Run a suite under cocotb -> (whether it passed, what it printed, cases covered)."""
    from cocotb_tools.runner import get_runner

    bench = f"bench_{tmp_path.name}".replace("[", "_").replace("]", "_")
    (tmp_path / f"{bench}.py").write_text(BENCH.format(suite=suite, pins=pins, options=options))
    runner = get_runner("icarus")
    log = tmp_path / "log.txt"
    build = tmp_path / "build"
    runner.build(
        sources=sources,
        hdl_toplevel=top,
        build_dir=build,
        build_args=["-g2012"],
        parameters=parameters or {},
        log_file=log,
        always=True,
    )
    path = [str(tmp_path), *(entry for entry in sys.path if entry)]
    results = tmp_path / "results.xml"
    with contextlib.suppress(SystemExit):  # how the runner tells pytest that a test failed
        runner.test(
            test_module=bench,
            hdl_toplevel=top,
            build_dir=build,
            test_dir=tmp_path,
            extra_env={"PYTHONPATH": ":".join(path)},
            log_file=log,
            results_xml=str(results),
        )
    cases = list(ElementTree.parse(results).iter("testcase"))
    assert [case.get("name") for case in cases] == ["check_the_unit"]
    text = log.read_text()
    covered = int(text.split("COVERED ")[1].split()[0]) if "COVERED " in text else None
    failed = cases[0].find("failure") is not None or cases[0].find("error") is not None
    return not failed, text, covered


def sources():
    return sorted(RTL.glob("mx_*.sv"))


def test_the_right_unit_passes_and_every_case_is_counted(tmp_path):
    passed, text, covered = simulate(tmp_path, RUNNING, PINS, sources=sources())
    assert passed, text
    assert covered == CASES > 1000
    assert f"PASS: {CASES} cases, {CASES} right, 0 wrong, 0 missing, 0 unasked" in text


def test_a_sum_of_thirteen_bits_is_found_at_the_sum(tmp_path):
    passed, text, covered = simulate(tmp_path, RUNNING, PINS, sources=sources(), parameters={"SUM_BITS": 13})
    assert not passed
    assert covered == CASES
    assert "sum[0] is 0x0e00 (3584), expected 0x2e00 (-4608)" in text


def test_a_unit_that_forgets_what_it_was_given_has_missing_results(tmp_path):
    broken = tmp_path / "mx_mac.sv"
    text = (RTL / "mx_mac.sv").read_text()
    assert text.count("valid_out <= term_valid && !rst;") == 1
    broken.write_text(text.replace("term_valid && !rst;", "term_valid && !rst && !(&term_sum[1:0]);"))
    others = [path for path in sources() if path.name != "mx_mac.sv"]
    suite = 'Suite(Unit("dot"), groups=("sum-extremes",))'
    passed, said, _ = simulate(tmp_path, suite, PINS, sources=[*others, broken], options="cases=40")
    assert not passed
    assert " 0 missing" not in said


def test_ports_of_its_own_waiting_tags_and_a_reversed_order(tmp_path):
    small = tmp_path / "pair.sv"
    small.write_text(SMALL)
    pins = (
        'reset="nrst", reset_active_low=True, a="x{}", b=["y0", "y1"], valid="go", ready="take", tag="id", '
        'result="total", result_valid="done", result_tag="id_out"'
    )
    groups, adapter = ("pairs", "cancellation"), Adapter(lanes="descending")
    suite = f'Suite(Unit("sum", lanes=2), groups={groups}, adapter={adapter})'
    passed, text, covered = simulate(tmp_path, suite, pins, sources=[small], top="pair")
    assert passed, text
    assert covered > 500


@pytest.mark.slow
def test_the_tutorial_runs_from_the_port_list_to_the_lane_and_prints_what_it_says(tmp_path):
    shutil.copytree(RTL, tmp_path / "rtl")
    page = (RTL.parents[1] / "docs" / "verify.md").read_text(encoding="utf-8")
    names = [str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "0", "COLUMNS": "110", "PATH": os.pathsep.join(names)}
    printed, compared, files = None, 0, []
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        name = re.match(r"(?://|#) ([\w.]+\.(?:sv|py))\n", text)
        if name:
            (tmp_path / name[1]).write_text(text)
            files.append(name[1])
        elif language == "sh":
            run = ["bash", "-euo", "pipefail", "-c", text]
            done = subprocess.run(
                run, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False
            )
            assert done.returncode == 0, done.stderr
            printed = done.stdout
        elif language == "text":
            lines = [line.rstrip() for line in printed.rstrip("\n").split("\n")]
            assert lines == text.rstrip("\n").split("\n")
            compared += 1
    assert files == ["bench.sv", "test_mac.py", "run.py"]
    assert compared == 7


def test_a_wrong_port_name_is_told_with_those_that_there_are(tmp_path):
    passed, text, _ = simulate(tmp_path, RUNNING, 'first="first", a="operand_a"', sources=sources())
    assert not passed
    assert "the unit has no port 'operand_a'; it has " in text
    assert all(f", {name}, " in text for name in ("a", "b", "clk", "scale_a", "result"))
