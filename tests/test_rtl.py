# SPDX-License-Identifier: Apache-2.0
"""The example RTL: right on every vector at every stage, in both simulators, and every planted bug found."""

import functools
import importlib
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import mxfp
from mxfp.dot import block_dots
from mxfp.integers import WidthError
from mxfp.verify.export import export_c
from mxfp.verify.unit import Unit, expected
from mxfp.verify.vectors import Suite, write_suite
from test_explain import named, outputs

ROOT = Path(__file__).parents[1]
RTL = ROOT / "examples" / "rtl"
DOC = ROOT / "docs" / "rtl-mutants.md"
sys.path.insert(0, str(RTL))
mutants = importlib.import_module("mutants")
hunter = importlib.import_module("run_mutants")

MISSING = [name for name in ("iverilog", "vvp", "verilator", "make", "g++") if shutil.which(name) is None]
if MISSING:
    pytest.skip(
        f"needs {', '.join(MISSING)} (Debian: apt install iverilog verilator g++ make)",
        allow_module_level=True,
    )

SUITES = {
    "sum": Suite(Unit("sum"), stages=True),
    "dot4": Suite(Unit("dot", blocks=4)),
    "running": Suite(Unit("running")),
    "blackwell": Suite(Unit("dot", blocks=4, accumulator=mxfp.BLACKWELL_MXFP4)),
    "blackwell3": Suite(Unit("dot", blocks=3, accumulator=mxfp.BLACKWELL_MXFP4)),
}
"""The whole of level 1 for each of them."""


def bench_of(kind):
    return "tb_sum.sv" if kind == "sum" else "tb_readmemh.sv"


def defines_of(kind):
    return ["BLACKWELL"] if kind.startswith("blackwell") else []


def verilate(folder, bench, *more, defines=()):
    """Sources -> a simulator; every warning is an error. Compiled without optimising, which takes longer."""
    top = bench.removesuffix(".sv")
    command = ["verilator", "--binary", "--timing", "-Wall", f"-I{folder}", "--top-module", top]
    command += ["-MAKEFLAGS", "OPT_FAST=-O0 OPT_SLOW=-O0 OPT_GLOBAL=-O0"]
    command += ["-Mdir", folder / "verilated", "-o", "simulator", *(f"-D{d}" for d in defines)]
    command += [RTL / bench, *sorted(RTL.glob("mx_*.sv")), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "%Warning" not in done.stderr
    return folder / "verilated" / "simulator"


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """A folder with the vectors of each unit, level 1."""
    folder = tmp_path_factory.mktemp("vectors")
    for kind, suite in SUITES.items():
        write_suite(suite, folder / kind, name="vectors", formats=("hex",))
    return folder


@pytest.fixture(scope="module")
def verilated(vectors):
    """Unit -> its simulator, compiled once."""
    return functools.cache(lambda kind: verilate(vectors / kind, bench_of(kind), defines=defines_of(kind)))


@pytest.mark.parametrize("kind", SUITES)
def test_verilator_agrees_with_level_1_at_every_stage(vectors, verilated, kind):
    folder = vectors / kind
    results = folder / "results.txt"
    passed, said = hunter.simulate([verilated(kind), f"+vectors={folder}/vectors.hex", f"+results={results}"])
    assert passed, said
    assert f"PASS: {SUITES[kind].cases} cases, every stage" in said
    assert len(results.read_text().splitlines()) == SUITES[kind].cases


@pytest.fixture(scope="module")
def chosen(tmp_path_factory):
    """The vectors that bugs are hunted with: those groups of level 1 that are chosen, not drawn."""
    folder = tmp_path_factory.mktemp("chosen")
    hunter.make_vectors(folder)
    write_suite(Suite(Unit("sum"), stages=True, groups=GROUPS_OF_SUMS), folder / "sum", name="vectors")
    return folder


GROUPS_OF_SUMS = ("signed-zeros", "pairs-in-all-lanes", "walking-lanes", "sum-extremes", "level-extremes")


@pytest.mark.parametrize("kind", ["sum", "running", "blackwell"])
def test_icarus_agrees_at_every_stage(chosen, tmp_path, kind):
    folder, simulator = chosen / kind, tmp_path / "simulator"
    hunter.compile_icarus(RTL, folder, simulator, bench=bench_of(kind), defines=defines_of(kind))
    passed, said = hunter.simulate(["vvp", "-n", simulator, f"+vectors={folder}/vectors.hex"])
    assert passed, said
    assert "every stage" in said


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A folder for what the unit gave with each bug, a file each."""
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def hunted(chosen, results):
    """Bug -> the first case that finds it, or none."""

    def hunt(mutant):
        return mutant.name, hunter.hunt(mutant, chosen, stop=True, results=results / mutant.name)

    with ThreadPoolExecutor(2) as pool:
        return dict(pool.map(hunt, mutants.MUTANTS))


@pytest.mark.parametrize("name", [mutant.name for mutant in mutants.MUTANTS])
def test_the_vectors_find_every_planted_bug(hunted, name):
    assert hunted[name]


ROWS = [line for line in DOC.read_text().partition(hunter.MARK)[2].splitlines() if line.startswith("| `")]
"""The table of the page."""


def test_the_table_in_the_docs_is_what_the_run_says(hunted):
    groups = {kind: hunter.groups_of(kind) for kind in hunter.SUITES}
    heads = [hunter.head(mutant, hunted[mutant.name], groups) for mutant in mutants.MUTANTS]
    assert [row[: len(head)] for row, head in zip(ROWS, heads, strict=True)] == heads


EXPLAINED = {mutant.name: mutant for mutant in mutants.MUTANTS if mutant.behaviour}


@pytest.mark.parametrize("name", EXPLAINED)
def test_what_explains_a_bug_gives_what_the_unit_gave_and_is_wrong_as_often(hunted, results, name):
    mutant = EXPLAINED[name]
    suite = hunter.SUITES[hunter.kind_of(mutant)]
    path = named(suite.unit, *mutant.behaviour.split(" + "))
    wrong, lines = [], []
    for batch, found in zip(suite.batches(size=1 << 20), outputs(suite, path), strict=True):
        lines += [f"{bits:08x}" for bits in found["result"][:, 0].tolist()]
        for stage, right in expected(batch, stages=False).items():
            differs = found[stage].astype(np.int64).reshape(right.shape) != right.astype(np.int64)
            wrong += (batch.start + np.flatnonzero(differs.any(axis=1))).tolist()
    (row,) = (row for row in ROWS if row.startswith(f"| `{name}` |"))
    assert f"{len(set(wrong)):,}" == row.split(" | ")[-2]
    given = (results / name).read_text().splitlines()  # up to the first case that is wrong
    assert len(given) - 1 == hunted[name][0].case == min(wrong)
    assert all(line in ("x" * 8, due) for line, due in zip(given, lines, strict=False))


def test_a_bug_that_is_not_there_to_plant_is_an_error():
    mutant = mutants.Mutant("none", "mx_sum.sv", "no such text", "", "")
    with pytest.raises(ValueError, match=r"none: mx_sum.sv has 0 times the text 'no such text'"):
        mutant.plant((RTL / "mx_sum.sv").read_text())


def too_wide(batch):
    """The numbers of those cases whose sum 13 bits do not hold."""
    try:
        block_dots(*batch.pair, width=13)
    except WidthError:
        half = len(batch) // 2
        return (
            {batch.start}
            if not half
            else too_wide(batch.cut(slice(half))) | too_wide(batch.cut(slice(half, None)))
        )
    return set()


def test_thirteen_bits_are_wrong_where_a_width_error_says_so_and_right_elsewhere(chosen, tmp_path):
    suite = hunter.SUITES["running"]
    folder, simulator, failures = chosen / "running", tmp_path / "simulator", tmp_path / "failures"
    hunter.compile_icarus(RTL, folder, simulator, defines=["SUM_BITS=13"])
    passed, said = hunter.simulate(
        ["vvp", "-n", simulator, f"+vectors={folder}/vectors.hex", f"+failures={failures}"]
    )
    assert not passed, said
    wrong = {int(line.split()[0]) for line in failures.read_text().splitlines() if line.endswith(" sum")}
    expected = set().union(*map(too_wide, suite.batches()))
    assert len(expected) > 20
    assert wrong == expected


@pytest.mark.parametrize("simulator", ["icarus", "verilator"])
def test_a_file_that_ends_early_is_said_to(vectors, verilated, tmp_path, simulator):
    folder = vectors / "sum"
    lines = (folder / "vectors.hex").read_text().splitlines(keepends=True)
    short = tmp_path / "short.hex"
    short.write_text("".join(lines[:100]))
    if simulator == "icarus":
        built = tmp_path / "simulator"
        hunter.compile_icarus(RTL, folder, built, bench="tb_sum.sv")
        command = ["vvp", "-n", built]
    else:
        command = [verilated("sum")]
    passed, said = hunter.simulate([*command, f"+vectors={short}"])
    assert not passed
    assert re.search(rf"FAIL: case 100 of {len(lines)} is not in .*short.hex: its valid bit is not set", said)


def test_the_unit_agrees_with_the_c_model_through_dpi(tmp_path):
    export_c(tmp_path)
    simulator = verilate(tmp_path, "tb_dpi.sv", tmp_path / "mxfp_dot.c")
    passed, said = hunter.simulate([simulator, "+cases=100000"])
    assert passed, said
    assert "PASS: 100000 cases beside the C model" in said


def test_the_cocotb_bench_passes(tmp_path):
    pytest.importorskip("cocotb_tools.runner", reason="needs cocotb: pip install 'mxfp-emulator[verify]'")
    done = subprocess.run(
        [sys.executable, RTL / "cocotb_mac.py"],
        env={
            **os.environ,
            "BUILD": str(tmp_path),
            "CASES": "300",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1:] == ["2 of 2 passed"], done.stdout + done.stderr


def test_the_makefile_runs_a_bench(tmp_path):
    for target in ("sim-sum", "lint"):
        done = subprocess.run(
            ["make", "-C", RTL, target, f"BUILD={tmp_path}", f"MXFP={sys.executable} -m mxfp"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        if target == "sim-sum":
            assert f"PASS: {SUITES['sum'].cases} cases, every stage" in done.stdout
