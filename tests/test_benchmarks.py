# SPDX-License-Identifier: Apache-2.0
"""The benchmarks on tiny shapes: bits before times, one schema, one page. No timing is asserted."""

import json
import os
import subprocess
import sys
import types
from dataclasses import fields, replace
from pathlib import Path

import numba
import numpy as np
import pytest

import engines
import mxfp
from benchmarks import ROOT, __main__, contest, pair, products, results, rivals, sizes, suites, tables
from benchmarks.page import markdown
from mxfp.report import throughput

GROUPS = ("gemm", "gemv", "end-to-end", "exact", "blackwell", "quantize", "dequantize")
DOCS = ROOT / "docs"


def everything():
    return suites.plans(sizes.TINY, (1,), (), ())


@pytest.fixture(scope="module")
def found():
    return results.gathered("python -m benchmarks", "quick", 1.0, __main__.measure(everything()))


def plan_of(group):
    return next(p for p in suites.plans(sizes.TINY, (1,), ("headline",), (group,)))


# --- bits before times


class Wrong(engines.Engine):
    """An engine whose results have one bit flipped, in their last element."""

    def __call__(self, function, *arguments, **options):
        result = super().__call__(function, *arguments, **options)
        if isinstance(result, mxfp.BlockArray):
            codes = result.codes.copy()
            codes[-1, -1] ^= 1
            return replace(result, codes=codes)
        bits = result.copy()
        bits.view(np.uint8)[..., -1] ^= 1
        return bits


@pytest.mark.parametrize("group", GROUPS)
def test_a_wrong_kernel_fails_before_anything_is_timed(group, monkeypatch):
    monkeypatch.setitem(engines.ENGINES, "numba", Wrong("numba"))
    monkeypatch.setattr(throughput, "interleaved", lambda *a, **k: pytest.fail("it was timed"))
    with pytest.raises(AssertionError, match="does not have the reference's bits"):
        plan_of(group).run(lambda amount: None)


@pytest.mark.parametrize("name", [name for name in engines.FAST if name != "numba"])
def test_every_instruction_set_is_held_to_the_same_bits(name, monkeypatch):
    if engines.ENGINES[name].isa == products.instruction_sets.chosen():
        name = "numba"
    monkeypatch.setitem(engines.ENGINES, name, Wrong("numba", engines.ENGINES[name].isa))
    with pytest.raises(AssertionError, match="does not have the reference's bits"):
        plan_of("gemm").run(lambda amount: None)


def test_the_table_of_engines_is_that_of_the_tests():
    assert products.ENGINES is engines.ENGINES
    ours = products.best_and_narrower()
    assert {engine for engine, _ in ours.values()} <= set(engines.ENGINES.values())
    assert ours["mxfp"][1] == products.instruction_sets.chosen()


def test_a_wrong_kernel_ends_the_command_in_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(engines.ENGINES, "numba", Wrong("numba"))
    monkeypatch.setattr(__main__, "QUICK", sizes.TINY)
    out = tmp_path / "out"
    assert run(monkeypatch, "--quick", "--only", "gemm", "--no-pair", "--out", str(out)) == 1
    assert "does not have the reference's bits" in capsys.readouterr().err
    assert not out.exists()


# --- records


def test_every_suite_leaves_records(found):
    assert {r.suite for r in found.records} | {g.suite for g in found.memory} == set(suites.SUITES)
    assert {r.group for r in found.records if r.suite == "headline"} == set(GROUPS)
    assert {r.group for r in found.records if r.suite == "sweep"} == {"m", "k", "n"}


def test_a_record_is_what_its_samples_say(found):
    machine = throughput.machine()
    for r in found.records:
        assert (r.cpu, r.blas, r.threads) == (machine.cpu, machine.blas, 1)
        assert len(r.samples) == r.rounds >= 1
        middle = throughput.spread(r.samples)
        assert (r.seconds, r.low, r.high) == pytest.approx((middle.median, middle.low, middle.high), rel=1e-4)
        assert 0 < r.share <= 1
        assert r.low <= r.seconds <= r.high


def test_a_ratio_is_taken_round_by_round_against_the_baseline(found):
    for r in found.records:
        same = [x for x in found.records if (x.suite, x.group, x.shape) == (r.suite, r.group, r.shape)]
        (base,) = [x for x in same if x.name == r.baseline]
        assert r.ratio == pytest.approx(
            np.median([b / s for b, s in zip(base.samples, r.samples, strict=True)]), rel=1e-4
        )
        assert (base.ratio, base.ratio_low, base.ratio_high) == (1, 1, 1)


def test_the_bits_of_every_product_of_ours_were_checked(found):
    ours = [r for r in found.records if r.name.startswith("mxfp") and r.suite in ("headline", "sweep")]
    assert ours
    assert all(r.checked for r in ours)


def test_a_slow_entrant_is_scaled_by_its_share():
    half = contest.Entrant("half", lambda: None, share=0.5)
    whole = contest.Entrant("whole", lambda: None)
    made = contest.Contest("s", "g", (2, 2), 4e9, "Gop/s", "whole", (half, whole))
    first, second = contest.records(made, 1, [[1.0, 1.0], [1.0, 1.0]])
    assert (first.seconds, first.rate, first.ratio) == (2.0, 2.0, 0.5)
    assert (second.seconds, second.rate, second.ratio) == (1.0, 4.0, 1.0)


@pytest.mark.parametrize(
    ("seconds_per_row", "rows"), [(1e-6, 1000), (0.01, 50), (0.4, 1)], ids=["all", "some", "one"]
)
def test_work_beyond_the_limit_is_cut_to_a_slice_of_the_rows(monkeypatch, seconds_per_row, rows):
    monkeypatch.setattr(throughput, "seconds_of", lambda run, enough: run() * seconds_per_row)
    run, share = contest.sliced(lambda count: lambda: count, 1000, 0.5)
    assert (run(), share) == (rows, rows / 1000)


@pytest.mark.parametrize(("length", "count"), [(1, 3), (5, 5), (10, 1), (10, 2), (1000, 7)])
def test_picked_rows_are_in_order_and_hold_both_ends(length, count):
    rows = contest.picked(length, count)
    assert len(rows) == min(length, count)
    assert list(rows) == sorted(set(rows.tolist()))
    assert rows[0] == 0
    if count > 1:
        assert rows[-1] == length - 1


# --- the stopwatch


def test_rounds_are_interleaved_and_each_begins_one_later():
    order = []
    runs = [lambda n=n: order.append(n) for n in range(3)]
    taken = throughput.interleaved(runs, rounds=4, seconds=0.0)
    assert order == [0, 1, 2, 1, 2, 0, 2, 0, 1, 0, 1, 2]
    assert [len(times) for times in taken] == [4, 4, 4]


def test_numba_blas_and_torch_get_the_same_threads_and_their_own_back(monkeypatch):
    torch = types.SimpleNamespace(count=5)
    torch.get_num_threads = lambda: torch.count
    torch.set_num_threads = lambda count: setattr(torch, "count", count)
    monkeypatch.setitem(sys.modules, "torch", torch)
    before = numba.get_num_threads()
    with throughput.threads(1):
        machine = throughput.machine()
        assert (machine.numba_threads, machine.blas_threads, torch.count) == (1, 1, 1)
    assert (numba.get_num_threads(), torch.count) == (before, 5)


# --- JSON, Markdown, files


def test_results_survive_json(found):
    text = results.json_text(found)
    assert results.from_json(text) == found
    data = json.loads(text)
    assert data["schema"] == "mxfp-benchmarks/1"
    assert all(set(r) == {f.name for f in fields(contest.Record)} for r in data["records"])


@pytest.mark.parametrize(
    "text", ["{}", '{"schema": "mxfp-report/1"}', "[]", '{"schema": "mxfp-benchmarks/1"}']
)
def test_other_json_is_refused(text):
    with pytest.raises(ValueError, match="results"):
        results.from_json(text)


def test_the_page_prints_every_table_and_how_to_measure_it_again(found):
    page = markdown(found)
    made = tables.sections(found)
    assert len(made) >= len(GROUPS) + 8
    for section in made:
        assert f"## {section.table.title}\n" in page
        assert all(len(row) == len(section.table.columns) for row in section.table.rows)
        assert all(
            "| " + " | ".join(cell or " " for cell in row) + " |" in page for row in section.table.rows
        )
        options = section.again.split()
        assert f"`python -m benchmarks {section.again}`" in page
        wanted = {key: options[n + 1] for n, key in enumerate(options) if key.startswith("--")}
        assert suites.plans(
            sizes.TINY, (1,), (wanted["--suite"],), tuple(filter(None, [wanted.get("--only")]))
        )


def test_the_page_of_the_docs_is_that_of_its_json():
    found = results.from_json((DOCS / "performance.json").read_text(encoding="utf-8"))
    assert (DOCS / "performance.md").read_text(encoding="utf-8") == markdown(found)
    assert "performance\n" in (DOCS / "index.md").read_text(encoding="utf-8")


def test_up_to_which_rows_reading_the_weights_bounds_a_product(found):
    def record(m, seconds):
        return replace(found.records[0], name="mxfp", threads=1, shape=[m, 64, 64], seconds=seconds)

    (line,) = tables._knees([record(1, 1.0), record(2, 1.1), record(4, 1.9), record(8, 2.0), record(16, 1.0)])
    assert line.endswith("M = 1 up to M = 4")


def run(monkeypatch, *words):
    """Run the command as a process would; its exit code."""
    monkeypatch.setattr(sys, "argv", ["benchmarks", *words])
    try:
        __main__.main()
    except SystemExit as stop:
        return stop.code
    return 0


def test_torch_is_loaded_before_the_threads_are_shared_out(monkeypatch):
    steps = []
    monkeypatch.setattr(rivals, "load", lambda: steps.append("load"))
    threads = throughput.threads
    monkeypatch.setattr(throughput, "threads", lambda n: steps.append(n) or threads(n))
    plan_of("gemv").run(lambda amount: None)
    assert steps == ["load", 1]


def test_the_command_writes_both_files_whole_and_prints_the_tables(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(__main__, "QUICK", sizes.TINY)
    monkeypatch.setenv("OPENBLAS_CORETYPE", "")
    words = ["--quick", "--suite", "headline", "--only", "gemm", "--threads", "1", "--no-pair"]
    assert run(monkeypatch, *words, "--out", str(tmp_path / "out")) == 0
    files = {p.name: p.read_text(encoding="utf-8") for p in (tmp_path / "out").iterdir()}
    assert set(files) == {"performance.md", "performance.json"}
    written = results.from_json(files["performance.json"])
    assert files["performance.md"] == markdown(written)
    assert " ".join(words) in written.command
    assert "In short" in capsys.readouterr().out
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_an_interrupted_run_leaves_nothing(monkeypatch, tmp_path, capsys):
    def stop(tick):
        raise KeyboardInterrupt

    monkeypatch.setattr(__main__, "plans", lambda *a: [suites.Plan("headline", "gemm", 1, stop)])
    assert run(monkeypatch, "--out", str(tmp_path / "out")) == 130
    assert "interrupted" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_group_that_is_not_there_is_answered_with_those_that_are(monkeypatch, capsys):
    assert run(monkeypatch, "--quick", "--only", "nonsense") == 2
    error = capsys.readouterr().err
    assert all(group in error for group in GROUPS)


def test_settings_of_the_environment_are_part_of_the_command(monkeypatch):
    for name in results.SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MXFP_ISA", "portable")
    assert results.command(["--only", "m"]) == "MXFP_ISA=portable python -m benchmarks --only m"


# --- rivals


def test_what_is_not_installed_is_left_out_with_a_line_that_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(rivals.importlib.util, "find_spec", lambda name: None)
    assert [line.split()[0] for line in rivals.missing()] == list(rivals.OPTIONAL)
    assert all("pip install 'mxfp-emulator[bench]'" in line for line in rivals.missing())
    names = {r.name for group in ("gemm", "quantize") for r in plan_of(group).run(lambda amount: None)}
    assert {"mxfp", "float32 BLAS", "float16 numpy", "ml_dtypes cast", "copy"} <= names
    assert not any(name.startswith(("torch", "gguf", "gfloat")) for name in names)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", [name for name, rival in rivals.PRODUCTS.items() if not rival.needs])
def test_rivals_multiply_the_same_matrices(name, rows):
    s = rivals.Sides(4, 64, 3000 if rows == 1 else 7)
    product = np.asarray(rivals.PRODUCTS[name].make(s, rows)()).reshape(rows, s.n)
    assert np.allclose(product.astype(np.float32), s.x[:rows] @ s.w.T, rtol=0.05, atol=0.1)


# --- AVX2 against AVX2


def test_the_pair_runs_avx2_on_both_sides_and_keeps_its_records_apart(monkeypatch, found):
    headline = replace(found, records=[r for r in found.records if r.suite == "headline"])

    def process(command, *, env, cwd, check):
        assert command[:3] == [sys.executable, "-m", "benchmarks"]
        assert (env["OPENBLAS_CORETYPE"], env["MXFP_ISA"]) == ("Haswell", "avx2")
        assert (Path(cwd), check) == (ROOT, True)
        assert "--no-pair" in command
        directory = Path(command[command.index("--out") + 1])
        (directory / pair.FILE).write_text(results.json_text(headline), encoding="utf-8")

    monkeypatch.setattr(subprocess, "run", process)
    records = pair.avx2(["gemm"], ["--quick"])
    assert len(records) == len(headline.records)
    both = replace(found, records=found.records + records)
    titles = [section.table.title for section in tables.sections(both)]
    assert len(titles) == len(set(titles))
    like = next(s.table for s in tables.sections(both) if s.table.title == "Like against like")
    assert len(like.rows) == 2 * 3


@pytest.mark.parametrize(
    ("blas", "chosen", "expected"),
    [
        ("openblas (SkylakeX)", "avx512vnni", True),
        ("openblas (Haswell)", "avx512vnni", True),
        ("openblas (Haswell)", "avx2", False),
    ],
)
def test_there_is_a_pair_where_either_side_runs_something_wider(monkeypatch, blas, chosen, expected):
    monkeypatch.setattr(pair.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(pair.isa, "available", lambda: ("avx512vnni", "avx2", "portable"))
    monkeypatch.setattr(pair.isa, "chosen", lambda: chosen)
    assert pair.possible(blas) is expected
    monkeypatch.setattr(pair.platform, "machine", lambda: "arm64")
    assert not pair.possible(blas)


def test_python_dash_m_benchmarks_runs_from_the_root():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--help"],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert all(f"--{option}" in done.stdout for option in ("suite", "quick", "rounds", "out", "docs"))
