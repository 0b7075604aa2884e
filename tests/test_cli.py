# SPDX-License-Identifier: Apache-2.0
"""The command line: what it prints, and that every wrong call ends in one clear line."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner

import mxfp
from mxfp import cli, names
from mxfp.cli.group import SECTIONS


def run(*arguments, **options):
    command = [sys.executable, "-m", "mxfp", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, **options)


def inside(*arguments):
    return CliRunner().invoke(cli.cli, [str(a) for a in arguments], catch_exceptions=False)


def test_formats_lists_every_format():
    out = inside("formats").output
    assert all(name in out for name in (*mxfp.formats.BLOCK_FORMATS, *mxfp.formats.ELEMENT_FORMATS))


@pytest.mark.parametrize(
    "name", [*mxfp.formats.ELEMENT_FORMATS, *mxfp.formats.SCALE_FORMATS, *mxfp.formats.BLOCK_FORMATS]
)
def test_formats_name_prints_every_code(name):
    out = inside("formats", name.lower()).output
    known = {**mxfp.formats.ELEMENT_FORMATS, **mxfp.formats.SCALE_FORMATS}
    fmt = known[name] if name in known else mxfp.formats.BLOCK_FORMATS[name].element
    rows = [line for line in out.splitlines() if line[1:3].strip() and line.split()[0] != "code"]
    assert sum(len(row.split()) >= 4 for row in rows) >= fmt.code_count
    assert f"{fmt.values[1]:g}" in out


def test_show_prints_scale_codes_bits_integers_values_and_remarks():
    out = inside("show", "0.1", "-2.3", "7", "2.5").output
    for piece in ("amax 7", "scale code 127", "1 10 0", "-4", "saturated", "to zero", "tie"):
        assert piece in out


def test_show_takes_negative_numbers_infinities_and_nan():
    result = inside("show", "-1e300", "-inf", "nan")
    assert result.exit_code == 0
    assert "not finite" in result.output


def test_show_json_has_what_quantize_gives():
    found = json.loads(inside("show", "0.1", "-2.3", "7", "1", "--scale-rule", "rceil", "--json").output)
    q = mxfp.quantize([0.1, -2.3, 7, 1], scale_rule="rceil")
    assert (found["codes"], found["scales"]) == (q.codes.tolist(), q.scales.tolist())


def test_show_stochastic_is_reproducible_from_its_seed():
    first, again, other = (
        inside("show", *np.linspace(0.1, 6, 40), "--rounding", "stochastic", "--seed", s).output
        for s in (1, 1, 2)
    )
    assert first == again != other


@pytest.mark.parametrize("fmt", mxfp.formats.BLOCK_FORMATS)
@pytest.mark.parametrize(
    "accumulator", ["sequential", "exact:float16", "pairwise", "fixed:80:-40", "blackwell"]
)
def test_dot_prints_the_result_of_matmul(fmt, accumulator):
    arguments = ("-a", "1 2 3.3", "-b", "0.5,-6,1", "--format", fmt, "--accumulator", accumulator)
    out = inside("dot", *arguments).output
    kind, chosen = mxfp.formats.BLOCK_FORMATS[fmt], names.accumulator(accumulator)
    a, b = mxfp.quantize([1, 2, 3.3], kind), mxfp.quantize([0.5, -6, 1], kind)
    assert f"result {float(mxfp.matmul(a, b, accumulator=chosen))!r}, bits 0x" in out
    assert f"{mxfp.trace(a, b, accumulator=chosen).result_bits:x} (" in out
    assert "Adder tree" in out


def test_dot_without_numbers_uses_the_embedded_layer():
    assert "Adder tree of term 1" in inside("dot").output


WRONG = {
    "unknown command": (("frobnicate",), "frobnicate"),
    "unknown format": (("formats", "E9M9"), "E9M9"),
    "not a number": (("show", "1", "two"), "two"),
    "no numbers": (("show",), "NUMBERS"),
    "unknown rule": (("show", "1", "--scale-rule", "best"), "best"),
    "rule of another format": (("show", "1", "--format", "NVFP4", "--scale-rule", "floor"), "nearest"),
    "one side only": (("dot", "-a", "1 2"), "both"),
    "unequal sides": (("dot", "-a", "1 2", "-b", "1"), "2 numbers"),
    "empty side": (("dot", "-a", " ", "-b", "1"), "no numbers"),
    "bad side": (("dot", "-a", "1 x", "-b", "1 2"), "x"),
    "bad accumulator": (("dot", "--accumulator", "sequential:int8"), "int8"),
    "unknown accumulator": (("dot", "--accumulator", "quantum"), "quantum"),
    "accumulator overflow": (("dot", "--accumulator", "fixed:4:-30"), "block 0"),
    "missing file": (("report", "--data", "nowhere.npz"), "nowhere.npz"),
    "zero tokens": (("report", "--tokens", "0"), "0"),
}


@pytest.mark.parametrize(("arguments", "piece"), WRONG.values(), ids=WRONG)
def test_a_wrong_call_exits_non_zero_with_one_clear_line(arguments, piece):
    result = run(*arguments)
    assert result.returncode not in (0, 130)
    last = result.stderr.strip().splitlines()[-1]
    assert piece in last
    assert "Traceback" not in result.stderr


def test_no_arguments_tell_a_newcomer_what_to_try():
    result = run()
    assert "mxfp report" in result.stdout + result.stderr


def test_a_closed_pipe_is_no_traceback():
    result = subprocess.run(
        f"{sys.executable} -m mxfp formats E4M3 | head -n 1",
        shell=True,
        check=False,
        capture_output=True,
        text=True,
    )
    assert result.stderr == ""


@pytest.mark.skipif(os.name == "nt", reason="sends a POSIX signal")
def test_ctrl_c_leaves_nothing_half_written(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "big.npz", activations=rng.normal(size=(512, 2048)), weight=rng.normal(size=(2048, 2048))
    )
    command = [
        sys.executable,
        "-m",
        "mxfp",
        "report",
        "--data",
        tmp_path / "big.npz",
        "--out",
        tmp_path / "out",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(4)
    assert process.poll() is None, "the report was done before it could be interrupted"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["big.npz"]


def test_an_interrupt_while_the_command_line_is_imported_is_one_line():
    code = (
        "import sys\n"
        "from mxfp.__main__ import main\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'mxfp.cli':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "mxfp: interrupted\n")


@pytest.mark.parametrize("command", [(), *((name,) for name in cli.cli.commands)], ids=" ".join)
def test_help_shows_no_marks_of_its_layout(command):
    out = inside(*command, "--help").output
    assert "\\b" not in out
    assert "\b" not in out


def test_without_a_command_the_first_page_says_what_to_try_and_all_of_it_works():
    page = inside().output
    tried = re.findall(r"^  (mxfp .*?)  +\w", page, re.MULTILINE)
    assert len(tried) >= 6
    for line in tried:
        name = line.split()[1]
        assert name in cli.cli.commands, line


def test_every_command_stands_under_one_heading_of_the_help():
    listed = [name for names in SECTIONS.values() for name in names]
    assert len(listed) == len(set(listed))
    assert set(cli.cli.commands) <= set(listed)
    out = inside("--help").output
    assert all(f"\n  {name} " in out for name in cli.cli.commands)


@pytest.mark.parametrize("command", list(cli.cli.commands))
def test_every_command_has_examples_in_its_help(command):
    assert re.search(rf"^ +(\$ )?mxfp {command}\b", inside(command, "--help").output, re.MULTILINE)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_get_what_they_need_to_complete_commands(shell):
    assert "_MXFP_COMPLETE" in inside("completion", shell).output


def test_completion_knows_commands_and_formats():
    code = "from mxfp.cli import cli; cli.main(prog_name='mxfp')"

    def of(words):
        env = {**os.environ, "_MXFP_COMPLETE": "bash_complete", "COMP_WORDS": words}
        env["COMP_CWORD"] = str(len(words.split(" ")) - 1)
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert "plain,show" in of("mxfp sh")
    assert "plain,nvfp4" in of("mxfp show --format NV")


@pytest.mark.parametrize("command", [("show", "0.1", "7"), ("dot",), ("formats",)], ids=lambda c: c[0])
def test_colours_are_for_terminals_that_want_them(command):
    run = [sys.executable, "-m", "mxfp", *command]
    plain = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "FORCE_COLOR"}}
    piped = subprocess.run(run, env=plain, capture_output=True, text=True, check=True).stdout
    assert "\x1b" not in piped
    forced = subprocess.run(run, env=plain | {"FORCE_COLOR": "1"}, capture_output=True, text=True, check=True)
    assert "\x1b" in forced.stdout
    unwanted = plain | {"FORCE_COLOR": "1", "NO_COLOR": "1"}
    without = subprocess.run(run, env=unwanted, capture_output=True, text=True, check=True).stdout
    assert not re.search("\x1b\\[(3|4|9|10)\\d", without)
