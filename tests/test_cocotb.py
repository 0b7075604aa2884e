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

from mxfp.verify.coverage import Coverage, fill
from mxfp.verify.layout import Adapter
from mxfp.verify.unit import Unit
from mxfp.verify.vectors import Recorded, Suite, write_suite

RTL = Path(__file__).parents[1] / "examples" / "rtl"

if shutil.which("iverilog") is None:
    pytest.skip("needs Icarus Verilog (Debian: iverilog)", allow_module_level=True)
pytest.importorskip("cocotb_tools.runner", reason="needs cocotb: pip install 'mxfp-emulator[verify]'")

BENCH = """
import cocotb
from mxfp.verify.cocotb_monitors import Pins, run_suite
from mxfp.verify.coverage import Coverage
from mxfp.verify.layout import Adapter
from mxfp.verify.vectors import Suite, read_suite
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
RANDOM = 'Suite(Unit("sum", lanes=1), groups=("random-near-unit",))'
TWO = 'reset="nrst", reset_active_low=True, a="x{}", b=["y0", "y1"], valid="go", ready="take", tag="id", '
TWO += 'result="total", result_valid="done", result_tag="id_out"'
CASES = Suite(Unit("running"), groups=GROUPS).cases
TWICE = """
    function automatic logic signed [4:0] twice(input logic [3:0] code);
        logic [3:0] m;
        case (code[2:0])
            0: m = 0; 1: m = 1; 2: m = 2; 3: m = 3; 4: m = 4; 5: m = 6; 6: m = 8; default: m = 12;
        endcase
        return code[3] ? -$signed({1'b0, m}) : $signed({1'b0, m});
    endfunction
"""
SMALL = """
module pair (
    input logic clk, input logic nrst, input logic go, output logic take,
    input logic [3:0] x0, input logic [3:0] x1, input logic [3:0] y0, input logic [3:0] y1,
    input logic [1:0] id, output logic done, output logic [1:0] id_out, output logic signed [9:0] total
);
    // twice
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


FEW = """
// Eight stages, and a tag of one bit.
module few (
    input logic clk, input logic go, input logic id, input logic [3:0] a, input logic [3:0] b,
    output logic done, output logic id_out, output logic signed [8:0] total
);
    logic [7:0] gos = 0, ids = 0;
    logic signed [8:0] held [0:7];
    // twice
    always_ff @(posedge clk) begin
        gos <= {gos[6:0], go}; ids <= {ids[6:0], id}; held[0] <= twice(a) * twice(b);
        for (int n = 1; n < 8; n++) held[n] <= held[n-1];
    end
    assign done = gos[7];
    assign id_out = ids[7];
    assign total = held[7];
endmodule
"""
LATE = """
module late #(parameter integer STAGES = 1, parameter integer FORGETS = 0) (
    input logic clk, input logic valid, input logic [3:0] a, input logic [3:0] b,
    output logic signed [8:0] result
);
    // twice
    // Nothing says when a result is there: it is STAGES clock cycles behind its operands.
    wire signed [8:0] product = twice(a) * twice(b);
    logic signed [8:0] held [0:7];
    always_ff @(posedge clk) begin
        held[0] <= product;
        for (int n = 1; n < 8; n++) held[n] <= held[n-1];
    end
    wire signed [8:0] late = STAGES == 0 ? product : held[(STAGES + 7) % 8];
    assign result = FORGETS && late == -144 ? 'x : late;
endmodule
"""


def with_twice(module):
    """A module with the function that decodes E2M1 into twice its value."""
    return module.replace("    // twice\n", TWICE)


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
    small.write_text(with_twice(SMALL))
    groups, adapter = ("pairs", "cancellation"), Adapter(lanes="descending")
    suite = f'Suite(Unit("sum", lanes=2), groups={groups}, adapter={adapter})'
    passed, text, covered = simulate(tmp_path, suite, TWO, sources=[small], top="pair")
    assert passed, text
    assert covered > 500


def simulate_late(tmp_path, latency, *, valid=None, suite=RANDOM, options="", **parameters):
    """Run a suite on a unit without a valid output."""
    (tmp_path / "late.sv").write_text(with_twice(LATE))
    pins = f"reset=None, valid={valid!r}, result_valid=None, latency={latency}"
    sources = [tmp_path / "late.sv"]
    return simulate(
        tmp_path, suite, pins, sources=sources, top="late", parameters=parameters, options=options
    )


@pytest.mark.parametrize(("stages", "valid"), [(0, None), (1, None), (3, None), (2, "valid")])
def test_a_result_is_taken_so_many_cycles_after_its_operands(tmp_path, stages, valid):
    passed, text, covered = simulate_late(tmp_path, stages, valid=valid, options="cases=60", STAGES=stages)
    assert passed, text
    assert covered == 60


def test_vectors_of_a_file_are_driven_too(tmp_path):
    filled = Recorded(fill(Coverage(Unit("sum", lanes=1))))
    write_suite(filled, tmp_path, name="x")
    suite = f"read_suite({str(tmp_path / 'x.json')!r})"
    passed, text, covered = simulate_late(tmp_path, 1, suite=suite, STAGES=1)
    assert passed, text
    assert covered == filled.cases > 20


@pytest.mark.parametrize(("stages", "latency"), [(1, 0), (1, 2)])
def test_another_latency_than_the_unit_has_is_no_pass(tmp_path, stages, latency):
    passed, text, _ = simulate_late(tmp_path, latency, options="cases=60", STAGES=stages)
    assert not passed
    assert "FAIL: 60 cases" in text


def test_x_after_so_many_cycles_is_wrong(tmp_path):
    suite = 'Suite(Unit("sum", lanes=1), groups=("pairs",))'
    passed, text, _ = simulate_late(tmp_path, 2, suite=suite, STAGES=2, FORGETS=1)
    assert not passed
    assert "FAIL: 256 cases, 254 right, 2 wrong" in text
    assert "(undefined bits), expected 0x170 (-144)" in text


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("assign take = ", "assign take = 0 && "), "1 missing, 0 unasked; the unit took no more cases"),
        (("done <= 0; late <= 0;", "done <= 0; late <= 1;"), "20 right, 0 wrong, 0 missing, 1 unasked"),
        (("done <= 1; id_out <= late_id;", "done <= 'x; id_out <= late_id;"), "the unit took no more cases"),
        (("done <= 1; id_out <= late_id;", "done <= 1; id_out <= 'x;"), " unasked"),
    ],
)
def test_a_unit_that_hangs_or_answers_nobody_ends_and_fails(tmp_path, change, why):
    assert SMALL.count(change[0]) == 1
    (tmp_path / "pair.sv").write_text(with_twice(SMALL.replace(*change)))
    suite = 'Suite(Unit("sum", lanes=2), groups=("random-near-unit",))'
    passed, text, _ = simulate(
        tmp_path, suite, TWO, sources=[tmp_path / "pair.sv"], top="pair", options="cases=20"
    )
    assert not passed
    assert why in re.search("AssertionError: FAIL: .*", text)[0]


def test_no_more_cases_are_under_way_than_there_are_tags(tmp_path):
    (tmp_path / "few.sv").write_text(with_twice(FEW))
    pins = 'reset=None, valid="go", tag="id", result="total", result_valid="done", result_tag="id_out"'
    passed, text, covered = simulate(
        tmp_path, RANDOM, pins, sources=[tmp_path / "few.sv"], top="few", options="cases=40"
    )
    assert passed, text
    assert covered == 40


@pytest.mark.parametrize(
    ("pins", "why"),
    [
        ("latency=-1, result_valid=None", "latency is a number of clock cycles, 0 or more, got -1"),
        ("latency=1.5, result_valid=None", "got 1.5"),
        ("latency=True, result_valid=None", "got True"),
        ("result_valid=None", "give result_valid, or the latency"),
        ('latency=2, ready="take"', "has no fixed latency"),
        ('tag="id"', "tag and result_tag go together"),
    ],
)
def test_pins_that_say_nothing_of_when_a_result_is_there_are_refused(pins, why):
    code = f"from mxfp.verify.cocotb_monitors import Pins\nPins({pins})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"ValueError: {why}" in done.stderr or why in done.stderr.splitlines()[-1]
    assert done.returncode == 1


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
