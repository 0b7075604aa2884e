# SPDX-License-Identifier: Apache-2.0
"""mxfp widths: the table, the proof, the counterexample, the register, and every wrong call."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

import mxfp
from mxfp import cli, widths
from mxfp.sizing import fixed_point_for


def run(*arguments):
    return CliRunner().invoke(cli.cli, ["widths", *map(str, arguments)])


def failed(*arguments):
    """How the command line ends on a call that a person can mend."""
    command = [sys.executable, "-m", "mxfp", "widths", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_table_says_what_each_level_needs_and_what_breaks_one_bit_less():
    result = run()
    assert result.exit_code == 0
    rows = [line.split() for line in result.output.splitlines() if line.strip()[:1].isdigit()]
    assert [row[5] for row in rows] == ["9", "10", "11", "12", "13", "14"]
    assert [row[4] for row in rows] == ["144", "288", "576", "1152", "2304", "4608"]
    assert [row[6] for row in rows] == ["1", "2", "4", "8", "15", "29"]
    assert [row[9] for row in rows] == ["37", "253", "829", "1981", "4285", "8893"]


@pytest.mark.parametrize("formats", [("E2M1", "E2M1"), ("INT8", "INT8"), ("E4M3", "INT8")])
def test_what_breaks_one_bit_less_is_looked_for_once_a_width_not_once_a_node(formats, monkeypatch):
    """A linear tree has a level a lane; each of its rows has the case that a check of that node finds."""
    calls = []

    def counted(*arguments, **options):
        calls.append(arguments)
        return widths.check_width(*arguments, **options)

    monkeypatch.setattr(cli.widths, "check_width", counted)
    monkeypatch.setenv("COLUMNS", "200")
    lines = run(*formats, "--lanes", 300, "--tree", "linear").output.splitlines()
    rows = [line.split() for line in lines if line.strip()[:1].isdigit() and len(line.split()) > 8]
    assert len(rows) == 300
    assert len(calls) < 20
    a, b = (mxfp.formats.ELEMENT_FORMATS[name] for name in formats)
    for row in rows:
        narrow = widths.check_width(int(row[5]) - 1, a, b, lanes=int(row[2]))
        x, y = narrow.codes_a[narrow.first], narrow.codes_b[narrow.first]
        assert row[6:9] == [str(narrow.nonzero), "×", f"{a.values[x]:g}·{b.values[y]:g}"]


def test_thirteen_bits_print_the_counterexample_and_exit_with_one():
    result = run("--width", 13)
    assert result.exit_code == 1
    assert result.output == f"{widths.check_width(13)}\n"
    assert "29 lanes of 6 × 6 are 4176" in result.output


def test_fourteen_bits_print_the_proof():
    result = run("--width", 14)
    assert (result.exit_code, result.output) == (0, f"{widths.check_width(14)}\n")


def test_a_width_for_each_level():
    assert run("--width", "9,10,11,12,13,14").exit_code == 0
    narrow = run("--width", "9,10,11,11,13,14")
    assert narrow.exit_code == 1
    assert "an adder at level 3 of 5" in narrow.output


@pytest.mark.parametrize("tree", ["binary", "linear", "4"])
def test_json_is_what_the_library_says(tree):
    found = json.loads(run("E2M3", "E3M2", "--lanes", 12, "--tree", tree, "--width", 22, "--json").output)
    shape = mxfp.adders.tree_named(tree, 12)
    assert tuple(found["widths"]) == widths.level_widths(mxfp.E2M3, mxfp.E3M2, tree=shape)
    assert found["holds"]
    assert [n["needed"] for n in found["nodes"]][-1] == found["widths"][-1]


def test_json_has_the_counterexample_as_codes():
    found = json.loads(run("--width", 13, "--json").output)
    case = widths.check_width(13)
    assert not found["holds"]
    assert found["counterexample"]["codes_a"] == case.codes_a.tolist()
    assert found["counterexample"]["value"] == 4176
    assert found["counterexample"]["fits"] == [28, 4032]


def test_the_register_of_k_elements():
    result = run("--k", 8192, "--scales-a", "123:127", "--scales-b", "123:127", "--lsb", -4)
    need = fixed_point_for(k=8192, scales_a=(123, 127), scales_b=(123, 127), lsb_exponent=-4)
    assert result.exit_code == 0
    assert result.output.endswith(f"{need}\n")
    found = json.loads(run("--k", 64, "--scales-a", 127, "--scales-b", 127, "--json").output)["register"]
    assert (found["width"], found["lsb_exponent"], found["high"], found["error_low"]) == (15, -2, 9216, 0.0)


@pytest.mark.parametrize("lsb", [-4096, 1000])
def test_registers_at_both_ends_of_what_an_lsb_may_be(lsb):
    arguments = ("--k", 1 << 24, "--lsb", lsb)
    assert run(*arguments).exit_code == 0
    found = json.loads(run(*arguments, "--json").output)["register"]
    assert (found["lsb_exponent"], found["error_low"]) == (lsb, 0.0 if lsb < 0 else -(2.0**1000) * 2**19)


def test_nvfp4_has_its_own_block_and_scales():
    found = json.loads(run("NVFP4", "--k", 16, "--json").output)
    assert (found["lanes"], found["widths"][-1]) == (16, 13)
    assert found["register"]["width"] == fixed_point_for(mxfp.NVFP4, k=16).width


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--width", "0"], "width is a number of bits, 1 … 4096, got 0"),
        (["--width", "a"], "'a' is no width, such as 13"),
        (["--width", "9,10"], "has 6 levels, the products first, got 2 widths"),
        (["--tree", "star"], "a tree is binary, linear"),
        (["--lanes", "100000"], "lanes is a number of products, 1 … 16384, got 100000"),
        (["E9M9"], "'E9M9' is not one of"),
        (["--scales-a", "1:2"], "give --k too"),
        (["--k", "32", "--scales-a", "3:300"], "scales_a is the smallest and the largest scale code of E8M0"),
        (["--k", "32", "--scales-a", "x"], "'x' is no range of scale codes, such as 118:130"),
        (["--k", "32", "--scales-a", "118:"], "'118:' is no range of scale codes, such as 118:130"),
        (["--k", "32", "--scales-b", ":118"], "':118' is no range of scale codes, such as 118:130"),
        (["--k", "32", "--lsb", "99999"], "99999 is not in the range -4096<=x<=1000"),
        (["--k", "32", "--lsb", "1001", "--json"], "1001 is not in the range -4096<=x<=1000"),
        (["--k", "99999999"], "k is a number of elements, 1 … 16777216"),
        (["MXFP4", "NVFP4", "--k", "32"], "blocks of 32"),
    ],
)
def test_wrong_calls_end_in_one_clear_line(arguments, says):
    done = failed(*arguments)
    assert done.returncode not in (0, 139)
    assert says in done.stderr
    assert "Traceback" not in done.stderr
