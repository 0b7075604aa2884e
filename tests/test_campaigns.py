# SPDX-License-Identifier: Apache-2.0
"""Campaigns: what is measured, the same bytes from every executor, and what is left after a kill."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from click.testing import CliRunner

import mxfp
from mxfp import bounds, cli, names
from mxfp.campaigns import (
    Campaign,
    CampaignError,
    CampaignInterrupted,
    Results,
    journal,
    measure,
    replay,
    run,
)
from mxfp.campaigns import campaign as campaigns_campaign
from mxfp.campaigns.workers import Alone, task, versions
from support import as_floats, oracle_result, oracle_terms

POSIX = pytest.mark.skipif(os.name == "nt", reason="sends a POSIX signal")
SMALL = Campaign(
    formats=["MXFP4", "MXFP8_E4M3:MXFP4"],
    accumulators=["sequential:float16", "blackwell", "fixed:16:-4:wrap"],
    distributions=["bits", "edges"],
    scales="near-unit",
    k=96,
    seeds=range(3),
    count=20,
)
"""Twelve cases of a few milliseconds."""


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> bytes:
    """The results of SMALL, from this process alone."""
    path = tmp_path_factory.mktemp("small") / "results.jsonl"
    return run(SMALL, path, workers=1).path.read_bytes()


# --- what is swept


def test_cases_are_every_combination_in_a_fixed_order_with_seeds_the_fastest():
    keys = [case.key for case in SMALL.cases()]
    assert len(SMALL) == len(keys) == len(set(keys)) == 12
    assert [case.number for case in SMALL.cases()] == list(range(12))
    assert keys[:4] == [
        "MXFP4/bits/near-unit/k=96/seed=0",
        "MXFP4/bits/near-unit/k=96/seed=1",
        "MXFP4/bits/near-unit/k=96/seed=2",
        "MXFP4/edges/near-unit/k=96/seed=0",
    ]
    assert keys[6] == "MXFP8_E4M3:MXFP4/bits/near-unit/k=96/seed=0"


def test_a_case_has_the_same_inputs_in_every_campaign_and_others_than_every_other_case():
    other = replace(SMALL, formats="MXFP4", distributions="edges", accumulators="exact", seeds=(7, 2))
    assert other.case(1).key == SMALL.case(5).key
    assert replay(other.case(1), 19) == replay(SMALL.case(5), 19)
    first = {case.key: replay(case, 0)[0].codes.tobytes() for case in SMALL.cases()}
    assert len(set(first.values())) == len(first)


def test_the_key_is_part_of_what_inputs_are_drawn_from_and_so_is_the_part(monkeypatch):
    sweep = replace(SMALL, scales=["unit", "wide"], seeds=0)
    first, second = (replay(case, 0)[0].codes.tolist() for case in (sweep.case(0), sweep.case(1)))
    assert first != second  # elements are drawn before scales: the seed alone would give the same
    monkeypatch.setattr(campaigns_campaign, "PART", 960)
    assert sweep.case(0).rows == 10
    assert replay(sweep.case(0), 0) != replay(sweep.case(0), 10)


def test_both_sides_have_their_formats_and_their_own_numbers():
    a, b = replay(SMALL.case(6), 3)
    assert (a.format, b.format, a.shape, b.shape) == (mxfp.MXFP8_E4M3, mxfp.MXFP4, (96,), (96,))
    a, b = replay(SMALL.case(0), 3)
    assert a != b


@pytest.mark.parametrize("finite", [True, False])
def test_nan_and_infinities_are_there_on_request_only(finite):
    case = Campaign(accumulators="exact", formats="MXFP8_E5M2", distributions="bits", finite=finite).case(0)
    found = measure(case)
    assert (found["finite"] == found["dots"]) is finite
    assert ("specials" in found["key"]) is not finite


WRONG = {
    "format": ({"formats": "MXFP5"}, "MXFP5"),
    "blocks": ({"formats": "MXFP4:NVFP4"}, "32 and 16"),
    "three formats": ({"formats": "MXFP4:MXFP4:MXFP4"}, "A:B"),
    "accumulator": ({"accumulators": ["quantum"]}, "quantum"),
    "no accumulator": ({"accumulators": []}, "at least one"),
    "group": ({"formats": "NVFP4", "accumulators": ["fused:25:32:64:-139"]}, "NVFP4"),
    "distribution": ({"distributions": ["cauchy"]}, "cauchy"),
    "scales": ({"scales": "huge"}, "huge"),
    "k": ({"k": [64, 0]}, "k of a campaign: integers from 1 to 16777216, got 0"),
    "long": ({"k": 2**24 + 1}, "k of a campaign: integers from 1 to 16777216, got 16777217"),
    "many seeds": ({"seeds": range(10**7 + 1)}, "up to 10,000,000 cases, got seeds range(0, 10000001)"),
    "seeds beyond counting": ({"seeds": range(5, 10**40)}, "up to 10,000,000 cases, got seeds range(5, 1000"),
    "many cases": (
        {"seeds": range(4000), "k": range(1, 4001)},
        "a campaign has up to 10,000,000 cases, got 16,000,000",
    ),
    "seed": ({"seeds": [-1]}, "-1"),
    "count": ({"count": 1.5}, "1.5"),
    "twice": ({"accumulators": ["exact", "exact:float32"]}, "'exact:float32' is there twice"),
    "same seed": ({"seeds": [1, 2, 1]}, "1 is there twice"),
}


@pytest.mark.parametrize(("fields", "piece"), WRONG.values(), ids=WRONG)
def test_a_campaign_that_cannot_be_is_refused(fields, piece):
    with pytest.raises(ValueError, match=re.escape(piece)):
        Campaign(**{"accumulators": "exact", **fields})


@pytest.mark.parametrize("index", [-1, 20, 1.0, True])
def test_replay_of_what_is_not_there_is_refused(index):
    with pytest.raises(ValueError, match=r"0 … 19"):
        replay(SMALL.case(0), index)


@pytest.mark.parametrize("number", [-1, 12, 1.0, True, "1", None], ids=str)
def test_a_case_that_is_not_there_is_refused(number):
    with pytest.raises(ValueError, match=re.escape(f"case is a number, 0 … 11, got {number!r}")):
        SMALL.case(number)


# --- what is measured


def one(a, b, accumulator):
    """The terms of one dot product, as a row."""
    sides = [mxfp.BlockArray(q.codes[None], q.scales[None], q.format) for q in (a, b)]
    return mxfp.block_dots(*sides, group=accumulator.terms_of)


def truth(case, accumulator):
    """What `measure` must find of one accumulator, from the oracle, one dot product after the other."""
    errors, relative, ratio, differ, overflow = [], [], [], [], []
    dtype = accumulator.result_dtype
    for index in range(case.count):
        a, b = replay(case, index)
        terms = oracle_terms(a, b)
        exact, magnitude = sum(terms, Fraction(0)), sum(map(abs, terms), Fraction(0))
        try:
            if isinstance(accumulator, mxfp.FixedPoint):
                oracle_result(replace(accumulator, overflow="raise"), a, b)
            lost = False
        except OverflowError:
            lost = True
        raises = lost and accumulator.overflow == "raise"
        pattern = None if raises else oracle_result(accumulator, a, b)
        result = math.inf if raises else float(as_floats([pattern], dtype)[0])
        if pattern != oracle_result(mxfp.Exact(dtype), a, b):
            differ.append(index)
        if lost or math.isinf(result):
            overflow.append(index)
        if math.isinf(result):
            continue
        error = float(abs(Fraction(result) - exact))
        errors.append((error, index))
        relative.append((error / float(magnitude) if error else 0.0, index))
        bound = float(bounds.error_bound(accumulator, one(a, b, accumulator))[0])
        if math.isfinite(bound):
            ratio.append((error / bound if error else 0.0, index))
    return errors, relative, ratio, differ, overflow


def largest(found):
    """(value, index) pairs -> the largest and its first index, as records have them."""
    if not found:
        return {"largest": None, "index": None}
    value = max(value for value, _ in found)
    return {"largest": value.hex(), "index": next(i for v, i in found if v == value)}


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize(
    ("accumulator", "scales"),
    [
        ("sequential:float16", "near-unit"),
        ("sequential:float16", "wide"),
        ("pairwise:bfloat16", "near-unit"),
        ("exact:float16", "near-unit"),
        ("fused:8:16:32:-139", "near-unit"),
        ("fixed:18:-4:raise", "near-unit"),
        ("fixed:18:-4:wrap", "near-unit"),
        ("fixed:18:-4:saturate:nearest_even:float32", "near-unit"),
    ],
)
def test_a_record_is_what_the_oracle_finds(accumulator, scales, parts, monkeypatch):
    if parts > 1:
        monkeypatch.setattr(campaigns_campaign, "PART", 64 * 16)
    made = names.accumulator(accumulator)
    sweep = Campaign(
        accumulators=[made, "exact"], formats="MXFP4", distributions="bits", scales=scales, k=64, count=40
    )
    case = sweep.case(0)
    assert case.parts == parts
    record = measure(case)
    found = record["accumulators"][str(made)]
    errors, relative, ratio, differ, overflow = truth(case, made)
    assert (record["dots"], record["finite"]) == (40, 40)
    assert found["differ"] == {"count": len(differ), "first": min(differ, default=None)}
    assert found["overflow"] == {"count": len(overflow), "first": min(overflow, default=None)}
    assert found["nan"] == {"count": 0, "first": None}
    for name, values in (("error", errors), ("relative", relative), ("ratio", ratio)):
        assert {key: found[name][key] for key in ("largest", "index")} == largest(values), name
    assert found["ratio"]["unbounded"] == 40 - len(ratio)
    assert found["error"]["count"] == len(errors)
    for name, values in (("error", errors), ("relative", relative)):
        groups = [[v for v, i in values if i // case.rows == part] for part in range(case.parts)]
        mean = math.fsum(math.fsum(group) for group in groups) / len(values)
        assert found[name]["mean"] == mean.hex()


@pytest.mark.parametrize("overflow", ["raise", "wrap"])
def test_a_register_of_all_the_bits_there_are_can_still_overflow(overflow):
    made = mxfp.FixedPoint(4096, -4096, overflow)
    sweep = Campaign(accumulators=made, distributions="bits", scales="near-unit", k=64, count=20)
    found = measure(sweep.case(0))["accumulators"][str(made)]
    lost = truth(sweep.case(0), made)[-1]
    assert len(lost) > 5
    assert found["overflow"] == {"count": len(lost), "first": lost[0]}


def test_a_nan_counts_and_makes_no_error():
    sweep = Campaign(
        accumulators=["sequential", "blackwell"], distributions="bits", scales="bits", finite=False, count=300
    )
    record = measure(sweep.case(0))
    special = record["dots"] - record["finite"]
    assert 0 < special < 300
    for found in record["accumulators"].values():
        assert special <= found["nan"]["count"] + found["overflow"]["count"]
        assert found["error"]["count"] + found["overflow"]["count"] <= record["finite"]
    a, b = replay(sweep.case(0), record["accumulators"]["sequential:float32"]["nan"]["first"])
    assert np.isnan(mxfp.Sequential("float32")(mxfp.block_dots(a, b)))


def test_the_recorded_worst_error_comes_again_from_its_replay(small, tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_bytes(small)
    seen = 0
    for row in Results(SMALL, path).rows():
        accumulator = names.accumulator(row.accumulator)
        a, b = replay(SMALL.case(row.error.case), row.error.index)
        assert bounds.errors(accumulator, one(a, b, accumulator)) == [row.error.value]
        a, b = replay(SMALL.case(row.ratio.case), row.ratio.index)
        terms = one(a, b, accumulator)
        error, bound = bounds.errors(accumulator, terms), bounds.error_bound(accumulator, terms)
        assert (float(error[0] / bound[0]) if error else 0.0) == row.ratio.value <= 1
        seen += row.error.value > 0
    assert seen >= 8


@dataclass(frozen=True)
class Narrow(mxfp.Sequential):
    """An accumulator of one's own: it raises as a register does, and no bound is known for it."""

    short: ClassVar[str] = "narrow"

    def _steps(self, terms: mxfp.Terms) -> Iterator[mxfp.accumulate.Step]:
        for step in super()._steps(terms):
            large = np.argwhere(np.abs(step.state) > 1000)
            if len(large):
                raise mxfp.WidthError("{} is too much", "result", 0, (int(large[0][0]),), 1000, 11)
            yield step


def test_an_accumulator_of_ones_own_is_measured_and_its_width_errors_are_counted_one_by_one():
    sweep = Campaign(
        accumulators=[Narrow(), "sequential"], distributions="bits", scales="near-unit", count=60
    )
    case = sweep.case(0)
    found = measure(case)["accumulators"]["narrow:float32"]
    raised = []
    for index in range(60):
        try:
            Narrow()(mxfp.block_dots(*replay(case, index)))
        except mxfp.WidthError:
            raised.append(index)
    assert 10 < len(raised) < 50
    assert found["overflow"] == {"count": len(raised), "first": raised[0]}
    assert found["error"]["count"] == 60 - len(raised)
    assert found["ratio"] == {"largest": None, "index": None, "unbounded": 60}


def test_rows_put_the_seeds_together(small, tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_bytes(small)
    results = Results(SMALL, path)
    rows = results.rows()
    assert len(rows) == 4 * 3
    records = list(results)
    assert [record["case"] for record in records] == list(range(len(results)))
    for n, row in enumerate(rows):
        group, accumulator = divmod(n, 3)
        parts = records[3 * group : 3 * group + 3]
        figures = [part["accumulators"][row.accumulator] for part in parts]
        assert row.accumulator == str(SMALL.accumulators[accumulator])
        assert (row.dots, row.finite) == (60, sum(part["finite"] for part in parts))
        assert row.differ == sum(figure["differ"]["count"] for figure in figures)
        values = [float.fromhex(figure["error"]["largest"]) for figure in figures]
        assert row.error.value == max(values)
        assert row.error.case == 3 * group + values.index(max(values))
    assert json.loads(json.dumps([row.as_dict() for row in rows], allow_nan=False))


# --- who works


class Shuffled(Executor):
    """An executor that finishes in any order but the one it was asked in, and counts what it was given."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.waiting: list[tuple[Future, object, tuple]] = []
        self.numbers: list[int] = []
        self.most = 0
        self.timer: threading.Timer | None = None
        self.lock = threading.Lock()

    def submit(self, fn, /, *args):
        future: Future = Future()
        with self.lock:
            self.numbers.append(args[0].number)
            self.waiting.append((future, fn, args))
            self.most = max(self.most, len(self.waiting))
            if self.timer is None:
                self.timer = threading.Timer(0.01, self.work)
                self.timer.start()
        return future

    def work(self):
        with self.lock:
            jobs, self.waiting, self.timer = self.waiting, [], None
        for n in self.rng.permutation(len(jobs)):
            future, fn, args = jobs[n]
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args))
                except Exception as error:
                    future.set_exception(error)


@pytest.mark.parametrize("seed", range(3))
def test_the_bytes_do_not_depend_on_the_order_of_finishing(small, tmp_path, seed):
    executor = Shuffled(seed)
    assert run(SMALL, tmp_path / "r", executor=executor).path.read_bytes() == small
    assert sorted(executor.numbers) == list(range(12))


def test_the_bytes_are_the_same_from_two_processes(small, tmp_path):
    assert run(SMALL, tmp_path / "r", workers=2).path.read_bytes() == small
    assert [p.name for p in tmp_path.iterdir()] == ["r"]


def test_the_bytes_are_the_same_from_threads(small, tmp_path):
    with ThreadPoolExecutor(3) as executor:
        assert run(SMALL, tmp_path / "r", executor=executor).path.read_bytes() == small
        executor.submit(int).result()  # it is left open


def test_only_a_few_cases_for_each_worker_are_given_out_at_a_time(tmp_path):
    executor = Shuffled(0)
    sweep = Campaign(accumulators="exact", distributions="bits", seeds=range(100), k=32, count=1)
    run(sweep, tmp_path / "r", executor=executor, workers=2)
    assert sorted(executor.numbers) == list(range(100))
    assert executor.most <= 8


def test_progress_counts_every_case(small, tmp_path):
    seen = []
    run(SMALL, tmp_path / "r", workers=1, progress=lambda *said: seen.append(said))
    assert seen == [("cases", n, 12) for n in range(13)]


def test_a_worker_of_another_version_is_refused(tmp_path):
    with pytest.raises(RuntimeError, match=r"0\.0\.0"):
        task(SMALL.case(0), ("0.0.0", versions()[1]))


CLUSTER = """
import subprocess, sys
from distributed import Client, LocalCluster
from mxfp.campaigns import run
from test_campaigns import SMALL

if __name__ == "__main__":
    local = dict(host="127.0.0.1", dashboard_address=None, local_directory=sys.argv[1])
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, **local) as cluster:
        with Client(cluster) as client:
            run(SMALL, "r", executor=client.get_executor(), workers=2)
        command = [sys.executable, "-m", "mxfp", "campaign", *sys.argv[2:]]
        command += ["--out", "cli", "--scheduler", cluster.scheduler_address]
        sys.exit(subprocess.run(command).returncode)
"""
ARGUMENTS = [
    *("--format", "mxfp4", "--format", "MXFP8_E4M3:MXFP4", "--accumulator", "sequential:float16"),
    *("--accumulator", "blackwell", "--accumulator", "fixed:16:-4:wrap", "--distribution", "bits"),
    *("--distribution", "edges", "--scales", "near-unit", "--k", "96", "--seeds", "3", "--count", "20"),
]
"""SMALL on the command line."""


def environment(**more):
    """The environment of a script that imports from tests, and knows nothing of a user's Dask settings."""
    here = str(Path(__file__).parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([here, *sys.path]), **more}


def test_the_bytes_are_the_same_from_a_dask_cluster(small, tmp_path):
    (tmp_path / "script.py").write_text(CLUSTER, encoding="utf-8")
    command = [sys.executable, "script.py", str(tmp_path / "scratch"), *ARGUMENTS]
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(DASK_CONFIG=str(tmp_path / "none"), NUMBA_NUM_THREADS="1"),
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r").read_bytes() == small
    assert (tmp_path / "cli").read_bytes() == small


def test_the_cluster_of_the_page_runs_as_it_stands(tmp_path):
    page = (Path(__file__).parents[1] / "docs" / "campaigns.md").read_text(encoding="utf-8")
    [code] = re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "script.py").write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "script.py", "r"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "DASK_CONFIG": str(tmp_path / "none"), "NUMBA_NUM_THREADS": "1"},
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, "20 cases\n"), done.stderr
    assert (tmp_path / "r").read_bytes().count(b"\n") == 21


# --- what is left after a kill


LONG = replace(SMALL, seeds=range(50), count=400)
"""Two hundred cases, some seconds of work."""
LONG_ARGUMENTS = [*ARGUMENTS[:-4], "--seeds", "50", "--count", "400"]


def started(folder, workers):
    """The command line at work on LONG, in a group of processes of its own."""
    command = [sys.executable, "-m", "mxfp", "campaign", *LONG_ARGUMENTS, "--out", "r"]
    command += ["--workers", str(workers)]
    return subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def after_some_cases(folder, process, cases=5):
    """Wait until some cases are in the journal."""
    journal = folder / "r.journal"
    while not journal.exists() or journal.read_bytes().count(b"\n") <= cases:
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)


def finished(folder):
    """The cases that the journal holds whole."""
    whole = (folder / "r.journal").read_bytes().rpartition(b"\n")[0].splitlines()[1:]
    return [json.loads(line)["case"] for line in whole]


@pytest.fixture(scope="module")
def long(tmp_path_factory) -> bytes:
    """The results of LONG, uninterrupted."""
    return run(LONG, tmp_path_factory.mktemp("long") / "r", workers=1).path.read_bytes()


@POSIX
@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_campaign_goes_on_where_it_was_and_ends_with_the_same_bytes(long, tmp_path, workers):
    process = started(tmp_path, workers)
    after_some_cases(tmp_path, process)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)  # ends when the last worker does: they leave with their parent
    assert process.returncode == -signal.SIGKILL
    done = finished(tmp_path)
    assert 5 <= len(set(done)) == len(done) < len(LONG)
    assert not (tmp_path / "r").exists()
    executor = Shuffled(0)
    assert run(LONG, tmp_path / "r", executor=executor).path.read_bytes() == long
    assert sorted(executor.numbers) == sorted(set(range(len(LONG))) - set(done))
    assert [p.name for p in tmp_path.iterdir()] == ["r"]


@POSIX
@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_says_what_is_kept_and_the_same_command_goes_on(long, tmp_path, workers):
    process = started(tmp_path, workers)
    after_some_cases(tmp_path, process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the workers get it too
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    kept = len(finished(tmp_path))
    assert 5 <= kept < len(LONG)
    assert f"interrupted; {kept} of 200 cases are kept in r.journal; run the same again" in err
    assert len(err.strip().splitlines()) == 1
    assert out == ""
    again = started(tmp_path, workers)
    _, err = again.communicate(timeout=120)
    assert again.returncode == 0, err
    assert (tmp_path / "r").read_bytes() == long


@POSIX
@pytest.mark.parametrize("delay", [0.0, 0.1, 0.2, 0.3])
def test_ctrl_c_while_workers_start_is_one_line_too(tmp_path, delay):
    process = started(tmp_path, 2)
    after_some_cases(tmp_path, process, cases=0)
    time.sleep(delay)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert re.fullmatch(r"mxfp: interrupted.*\n", err.lstrip("\n"))


SLEEPY = """
import time
import mxfp
from mxfp.campaigns import Campaign, run

class Sleepy(mxfp.Sequential):
    def _steps(self, terms):
        if terms.bits > 20:
            time.sleep(600)
        return super()._steps(terms)

if __name__ == "__main__":
    formats = ["MXFP4", "MXFP8_E4M3"]
    sweep = Campaign(formats=formats, distributions="bits", accumulators=[Sleepy()], seeds=range(6), count=5)
    run(sweep, "r", workers=2)
"""


@POSIX
def test_an_interrupt_does_not_wait_for_cases_that_take_long(tmp_path):
    (tmp_path / "script.py").write_text(SLEEPY, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    after_some_cases(tmp_path, process, cases=6)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (
        err.strip()
        .splitlines()[-1]
        .startswith("mxfp.campaigns.runner.CampaignInterrupted: interrupted; 6 of")
    )
    assert sorted(finished(tmp_path)) == list(range(6))


def stop_after(cases):
    """A progress that is interrupted after some cases."""

    def progress(what, done, total):
        if done == cases:
            raise KeyboardInterrupt

    return progress


def interrupted(folder, cases=4, **options):
    """SMALL, interrupted; the path of the journal."""
    with pytest.raises(CampaignInterrupted, match=f"{cases} of 12 cases are kept in .*r.journal"):
        run(SMALL, folder / "r", workers=1, progress=stop_after(cases), **options)
    return folder / "r.journal"


def resumed(folder):
    """The numbers of the cases that were still to do, and the results."""
    executor = Shuffled(1)
    results = run(SMALL, folder / "r", executor=executor)
    assert not (folder / "r.journal").exists()
    return sorted(executor.numbers), results.path.read_bytes()


def test_an_interrupt_cancels_what_waits_and_keeps_what_is_done(small, tmp_path):
    class Slow(Shuffled):
        def work(self):
            first, *rest = self.waiting
            future, fn, args = first
            future.set_running_or_notify_cancel()
            future.set_result(fn(*args))
            self.left = [job[0] for job in rest]

    executor = Slow(0)
    with pytest.raises(CampaignInterrupted, match="1 of 12"):
        run(SMALL, tmp_path / "r", executor=executor, workers=2, progress=stop_after(1))
    assert len(executor.left) == 7
    assert all(future.cancelled() for future in executor.left)
    assert resumed(tmp_path) == (list(range(1, 12)), small)


def test_an_interrupt_keeps_what_was_done_and_not_yet_written(small, tmp_path):
    class Bursts(Shuffled):
        def submit(self, fn, /, *args):
            future: Future = Future()
            self.waiting.append((future, fn, args))
            if len(self.waiting) == 8:
                for job, function, given in self.waiting[:3]:
                    job.set_result(function(*given))
            return future

    with pytest.raises(CampaignInterrupted, match="3 of 12"):
        run(SMALL, tmp_path / "r", executor=Bursts(0), workers=2, progress=stop_after(1))
    assert sorted(finished(tmp_path)) == [0, 1, 2]
    assert resumed(tmp_path) == (list(range(3, 12)), small)


def test_nothing_is_left_of_a_campaign_that_finished_nothing(tmp_path):
    with pytest.raises(CampaignInterrupted, match="no case was finished"):
        run(SMALL, tmp_path / "r", workers=1, progress=stop_after(0))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cut", [1, 2, 100, -1])
def test_a_torn_last_line_is_dropped(small, tmp_path, cut):
    journal = interrupted(tmp_path)
    *whole, last = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(whole) + last[:cut])
    interrupted(tmp_path, 5)  # and what comes after it is whole, for the next time too
    assert sorted(finished(tmp_path)) == list(range(5))
    assert resumed(tmp_path) == (list(range(5, 12)), small)


def test_a_last_line_of_garbage_is_dropped(small, tmp_path):
    journal = interrupted(tmp_path)
    journal.write_bytes(journal.read_bytes() + b"\0" * 40 + b"\n")
    assert resumed(tmp_path) == (list(range(4, 12)), small)


def test_a_torn_header_is_written_again(small, tmp_path):
    journal = interrupted(tmp_path)
    journal.write_bytes(journal.read_bytes()[:30])
    assert resumed(tmp_path) == (list(range(12)), small)


def test_a_line_that_is_there_twice_counts_once(small, tmp_path):
    journal = interrupted(tmp_path)
    journal.write_bytes(journal.read_bytes() + journal.read_bytes().splitlines(keepends=True)[1])
    interrupted(tmp_path, 4)
    assert resumed(tmp_path) == (list(range(4, 12)), small)


def test_a_damaged_line_in_the_middle_is_an_error_and_nothing_is_touched(tmp_path):
    journal = interrupted(tmp_path)
    lines = journal.read_bytes().splitlines(keepends=True)
    damaged = b"".join([*lines[:2], lines[2].replace(b"MXFP4/", b"MXFP5/"), *lines[3:]])
    journal.write_bytes(damaged)
    with pytest.raises(CampaignError, match="line 3 is damaged"):
        run(SMALL, tmp_path / "r", workers=1)
    assert journal.read_bytes() == damaged


def test_a_line_whose_figures_were_altered_is_damaged(tmp_path):
    journal = interrupted(tmp_path)
    lines = journal.read_bytes().splitlines(keepends=True)
    altered = lines[2].replace(b'"differ":{"count":', b'"differ":{"count":1')
    assert altered != lines[2]
    journal.write_bytes(b"".join([*lines[:2], altered, *lines[3:]]))
    with pytest.raises(CampaignError, match="line 3 is damaged"):
        run(SMALL, tmp_path / "r", workers=1)


def test_the_journal_of_another_campaign_behind_this_ones_is_damage(tmp_path):
    (tmp_path / "other").mkdir()
    with pytest.raises(CampaignInterrupted):
        run(replace(SMALL, k=64), tmp_path / "other" / "r", workers=1, progress=stop_after(2))
    journal = interrupted(tmp_path)
    journal.write_bytes(journal.read_bytes() + (tmp_path / "other" / "r.journal").read_bytes())
    with pytest.raises(CampaignError, match="line 6 is damaged"):
        run(SMALL, tmp_path / "r", workers=1)


ALTERED = {
    "a figure": (lambda lines: [*lines[:3], lines[3].replace(b'"dots":20', b'"dots":21'), *lines[4:]], 4),
    "a line less": (lambda lines: lines[:-1], 13),
    "a line more": (lambda lines: [*lines, lines[-1]], 14),
    "half a line": (lambda lines: [*lines[:-1], lines[-1][:50]], 13),
    "another order": (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], 2),
    "zeros": (lambda lines: [*lines[:5], bytes(400)], 6),
    "nothing behind the header": (lambda lines: lines[:1], 2),
}


@pytest.mark.parametrize(("alter", "line"), ALTERED.values(), ids=ALTERED)
def test_results_that_were_altered_give_no_figures_but_the_line(alter, line, small, tmp_path):
    altered = b"".join(alter(small.splitlines(keepends=True)))
    assert altered != small
    (tmp_path / "r").write_bytes(altered)
    results = run(SMALL, str(tmp_path / "r"), workers=1)
    with pytest.raises(CampaignError, match=f"r, line {line} is not what was written there"):
        results.rows()
    said = inside(*ARGUMENTS, "--out", tmp_path / "r")
    assert (said.exit_code, said.stdout) == (1, "")
    assert f"line {line} is not what was written there; remove the file and run the same" in said.stderr


OTHERS = {
    "seeds": {"seeds": range(4)},
    "count": {"count": 21},
    "accumulators": {"accumulators": ["sequential:float16", "blackwell"]},
    "specials": {"finite": False},
}


@pytest.mark.parametrize("fields", OTHERS.values(), ids=OTHERS)
def test_the_journal_of_another_campaign_is_refused(tmp_path, fields):
    journal = interrupted(tmp_path)
    before = journal.read_bytes()
    with pytest.raises(CampaignError, match="belongs to another campaign"):
        run(replace(SMALL, **fields), tmp_path / "r", workers=1)
    assert journal.read_bytes() == before


def test_a_format_of_ones_own_by_a_known_name_is_another_campaign():
    twin = mxfp.BlockFormat("MXFP4", mxfp.E2M1, mxfp.E8M0, 16, ("floor",))
    assert (
        replace(SMALL, formats=[twin]).header()["digest"]
        != replace(SMALL, formats="MXFP4").header()["digest"]
    )


@pytest.mark.parametrize("name", ["numpy", "mxfp"])
def test_the_journal_of_another_version_is_refused(tmp_path, name):
    journal = interrupted(tmp_path)
    header, _, rest = journal.read_bytes().partition(b"\n")
    version = f'"{name}":"{versions()[name == "numpy"]}"'.encode()
    assert header.count(version) == 1
    journal.write_bytes(header.replace(version, f'"{name}":"0.0.1"'.encode()) + b"\n" + rest)
    with pytest.raises(CampaignError, match="other versions of mxfp or numpy"):
        run(SMALL, tmp_path / "r", workers=1)


def test_a_file_that_is_something_else_is_never_overwritten(small, tmp_path):
    (tmp_path / "r").write_text("a year of work\n", encoding="utf-8")
    with pytest.raises(CampaignError, match="not of this campaign"):
        run(SMALL, tmp_path / "r", workers=1)
    assert (tmp_path / "r").read_text(encoding="utf-8") == "a year of work\n"
    (tmp_path / "s.journal").write_text("another", encoding="utf-8")
    with pytest.raises(CampaignError, match="another campaign"):
        run(SMALL, tmp_path / "s", workers=1)
    assert (tmp_path / "s.journal").read_text(encoding="utf-8") == "another"


def test_results_that_are_there_are_not_computed_again(small, tmp_path):
    (tmp_path / "r").write_bytes(small)
    executor = Shuffled(0)
    assert run(SMALL, tmp_path / "r", executor=executor).path.read_bytes() == small
    assert executor.numbers == []
    assert [p.name for p in tmp_path.iterdir()] == ["r"]


def test_a_kill_between_the_results_and_the_end_of_the_journal_leaves_no_journal(small, tmp_path):
    journal = interrupted(tmp_path)
    (tmp_path / "r").write_bytes(small)
    assert run(SMALL, tmp_path / "r", workers=1).path.read_bytes() == small
    assert not journal.exists()


@POSIX
def test_two_processes_cannot_be_at_work_on_the_same_results(tmp_path):
    def progress(what, done, total):
        if done == 2:
            run(SMALL, tmp_path / "r", workers=1)

    with pytest.raises(CampaignError, match="another process is at work"):
        run(SMALL, tmp_path / "r", workers=1, progress=progress)


def at_the_lock(monkeypatch, happens):
    """Something that another process does between our opening the journal and our locking it."""
    lock, left = journal.fcntl.flock, [happens]

    def flock(file, how):
        if left:
            left.pop()()
        return lock(file, how)

    monkeypatch.setattr(journal.fcntl, "flock", flock)


@POSIX
def test_a_journal_that_another_process_removes_as_it_is_opened_is_begun_anew(tmp_path, monkeypatch):
    """Else records would go to a file without a name, and a kill would lose them all."""
    at_the_lock(monkeypatch, (tmp_path / "r.journal").unlink)
    interrupted(tmp_path)
    assert len(finished(tmp_path)) == 4


@POSIX
def test_results_that_another_process_finishes_meanwhile_are_not_computed_again(small, tmp_path, monkeypatch):
    at_the_lock(monkeypatch, lambda: (tmp_path / "r").write_bytes(small))
    executor = Shuffled(0)
    assert run(SMALL, tmp_path / "r", executor=executor).path.read_bytes() == small
    assert executor.numbers == []
    assert [p.name for p in tmp_path.iterdir()] == ["r"]


@POSIX
@pytest.mark.parametrize("name", ["r", "r.journal"])
def test_a_pipe_is_no_place_for_results_and_nobody_waits_at_it(name, tmp_path):
    os.mkfifo(tmp_path / name)
    command = [sys.executable, "-m", "mxfp", "campaign", *ARGUMENTS, "--out", "r", "--workers", "1"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 1
    assert done.stderr == f"Error: {name} is no regular file; choose another place for the results\n"


FULL = """
import resource, sys
from test_campaigns import SMALL
from mxfp.campaigns import CampaignError, run

resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), -1))
try:
    run(SMALL, "r", workers=1)
except CampaignError as error:
    sys.exit(str(error))
"""


@POSIX
@pytest.mark.parametrize("room", [100, 6000, 12000])
def test_a_full_disk_is_one_line_that_says_what_is_kept_and_the_same_goes_on(room, small, tmp_path):
    (tmp_path / "script.py").write_text(FULL, encoding="utf-8")
    command = [sys.executable, "script.py", str(room)]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=tmp_path, env=environment(), timeout=120
    )
    kept = 0 if room == 100 else len(finished(tmp_path))
    if room > 100:
        assert re.fullmatch(
            rf"OSError: .*File too large; {kept} of 12 cases are kept in r.journal; .*\n", done.stderr
        )
        assert 0 < kept < 12
    assert done.returncode == 1
    assert not (tmp_path / "r").exists()
    executor = Shuffled(1)
    assert run(SMALL, tmp_path / "r", executor=executor).path.read_bytes() == small
    assert len(executor.numbers) == 12 - kept
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r", "script.py"]


def test_what_is_no_campaign_and_no_case_is_refused_by_name(tmp_path):
    with pytest.raises(TypeError, match="campaign is a Campaign, got str"):
        run("sweep", tmp_path / "r")
    with pytest.raises(TypeError, match=r"case is a Case, .* got int"):
        replay(3, 0)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere"):
        run(SMALL, tmp_path / "nowhere" / "r", workers=1)


@pytest.mark.parametrize("workers", [0, True, 1.5])
def test_a_number_of_workers_that_cannot_be_is_refused(tmp_path, workers):
    with pytest.raises(ValueError, match="workers"):
        run(SMALL, tmp_path / "r", workers=workers)


# --- what fails


@dataclass(frozen=True)
class Picky(mxfp.Sequential):
    """An accumulator that cannot do wide terms."""

    short: ClassVar[str] = "picky"

    def _steps(self, terms: mxfp.Terms) -> Iterator[mxfp.accumulate.Step]:
        if terms.bits > 20:
            raise ZeroDivisionError(f"wide terms {'!' * 1000}\nare not for me")
        return super()._steps(terms)


@pytest.mark.parametrize("executor", [Alone(), Shuffled(0)], ids=["alone", "shuffled"])
def test_a_case_that_fails_is_named_and_takes_no_other_with_it(tmp_path, executor):
    sweep = replace(SMALL, formats=["MXFP8_E4M3", "MXFP4"], accumulators=[Picky()])
    with pytest.raises(CampaignError) as caught:
        run(sweep, tmp_path / "r", executor=executor)
    message = str(caught.value)
    assert message.startswith("6 of 12 cases failed: MXFP8_E4M3/")
    assert f"/seed=0: ZeroDivisionError: wide terms {'!' * 289}…; " in message
    assert "and 1 more; 6 of 12 cases are kept in" in message
    assert sorted(finished(tmp_path)) == list(range(6, 12))
    assert not (tmp_path / "r").exists()


DYING = """
import os, sys
from dataclasses import dataclass
import mxfp
from mxfp.campaigns import Campaign, CampaignError, run

class Dying(mxfp.Sequential):
    def _steps(self, terms):
        if terms.bits > 20:
            os._exit(3)
        return super()._steps(terms)

if __name__ == "__main__":
    formats = ["MXFP4", "MXFP6_E2M3:MXFP4", "MXFP8_E4M3"]
    sweep = Campaign(formats=formats, distributions="bits", accumulators=[Dying()], seeds=range(40), count=5)
    try:
        run(sweep, "r", workers=2)
    except CampaignError as error:
        sys.exit(str(error))
"""


def test_a_worker_that_dies_is_an_error_that_says_what_is_kept(tmp_path):
    (tmp_path / "script.py").write_text(DYING, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "script.py"], check=False, capture_output=True, text=True, cwd=tmp_path, timeout=120
    )
    assert done.returncode == 1
    assert re.match(
        r"a worker ended abruptly \(BrokenProcessPool: .*\); \d+ of 120 cases are kept", done.stderr
    )
    assert len(finished(tmp_path)) >= 60


# --- the command line


def inside(*arguments):
    return CliRunner().invoke(cli.cli, ["campaign", *map(str, arguments)], catch_exceptions=False)


def test_the_command_prints_a_row_for_each_accumulator_and_format(small, tmp_path):
    result = inside(*ARGUMENTS, "--workers", 1, "--out", tmp_path / "r")
    assert result.exit_code == 0
    assert (tmp_path / "r").read_bytes() == small
    for piece in ("MXFP8", "seque", "K 96", "60 dot products", "near-unit scales", "bound", "overf"):
        assert piece in result.stdout
    assert "12 cases of 20 dot products" in result.stderr


def test_the_command_prints_json_that_the_rows_are(small, tmp_path):
    (tmp_path / "r").write_bytes(small)
    found = json.loads(inside(*ARGUMENTS, "--json", "--out", tmp_path / "r").stdout)
    assert found == [row.as_dict() for row in Results(SMALL, tmp_path / "r").rows()]


MISTAKES = {
    "no accumulator": (("--out", "r"), "--accumulator"),
    "no file": (("--accumulator", "exact"), "--out"),
    "format": (("--accumulator", "exact", "--out", "r", "--format", "MXFP5"), "MXFP5"),
    "twice": (("--accumulator", "exact", "--accumulator", "exact", "--out", "r"), "twice"),
    "folder": (("--accumulator", "exact", "--out", "nowhere/r"), "nowhere"),
    "nothing": (("--accumulator", "exact", "--out", ""), ". is no regular file"),
    "seeds": (("--accumulator", "exact", "--out", "r", "--seeds", str(10**30)), "up to 10,000,000 cases"),
    "k": (("--accumulator", "exact", "--out", "r", "--k", str(10**12)), "integers from 1 to 16777216"),
    "another's": (("--accumulator", "exact", "--out", "other"), "not of this campaign"),
    "scheduler": (("--accumulator", "exact", "--out", "r", "--scheduler", "carrier://pigeon"), "carrier"),
}


@pytest.mark.parametrize(("arguments", "piece"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_exits_non_zero_with_one_clear_line(arguments, piece, tmp_path):
    (tmp_path / "other").write_text("{}\n", encoding="utf-8")
    command = [sys.executable, "-m", "mxfp", "campaign", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert piece in done.stderr.strip().splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other"]


def test_without_the_extra_a_scheduler_is_refused_with_its_name(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "distributed", None)
    result = inside("--accumulator", "exact", "--out", tmp_path / "r", "--scheduler", "tcp://127.0.0.1:1")
    assert result.exit_code == 1
    assert "mxfp-emulator[cluster]" in result.stderr
