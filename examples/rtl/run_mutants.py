# SPDX-License-Identifier: Apache-2.0
"""Plant each bug of `mutants.py` in a copy of the RTL, and see on Icarus whether the vectors find it.

    python run_mutants.py [--table] [--jobs N] [NAME ...]

The vectors are groups of level 1, a third of it. Each bug is hunted until the first case that finds it;
the exit status is 1 if none does. --table runs every case of those groups, asks `mxfp check` which behaviour
explains what the unit gave, and writes the table of all bugs; the exit status is 1 if it is another one than
`mutants.py` has.
"""

import argparse
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mutants import BLACKWELL, MUTANTS

import mxfp
from mxfp.verify.check import check
from mxfp.verify.unit import Unit
from mxfp.verify.vectors import Suite, write_suite
from mxfp.whole import write_whole

HERE = Path(__file__).parent
BENCH = "tb_readmemh.sv"
PAGE = HERE.parent.parent / "docs" / "rtl-mutants.md"
MARK = "<!-- the table, by examples/rtl/run_mutants.py -->\n"
GROUPS = (
    "signed-zeros",
    "pairs-in-all-lanes",
    "walking-holes",
    "sum-extremes",
    "level-extremes",
    "scale-corners",
    "scale-sums",
    "nan-scales",
    "overflow",
    "smallest-normal",
    "subnormals",
    "half-the-smallest",
    "trace-beside-the-smallest",
    "ties",
    "sticky",
    "swamping-widest",
    "cancellation-across-blocks",
    "cancellation-across-blocks-but-one",
    "cancelled-beside-small",
    "stale-accumulator",
)
SUITES = {
    "running": Suite(Unit("running"), groups=GROUPS),
    "blackwell": Suite(
        Unit("dot", blocks=4, accumulator=mxfp.BLACKWELL_MXFP4),
        groups=(*GROUPS, "swamping", "opposite-accumulator"),
    ),
}


class NotRun(Exception):
    """The simulator did not get as far as a verdict: what it said."""


@dataclass(frozen=True)
class Failure:
    """One case that differs: vectors it is of, number, and the first stage that is wrong."""

    kind: str
    case: int
    stage: str


def kind_of(mutant):
    """The vectors that a bug can show in."""
    return "blackwell" if mutant.file == BLACKWELL else "running"


def compile_icarus(rtl, vectors, simulator, *, bench=BENCH, defines=()):
    """The sources in a folder and the include of some vectors -> a simulator for vvp."""
    top = bench.removesuffix(".sv")
    command = ["iverilog", "-g2012", "-Wall", "-I", vectors, "-s", top, "-o", simulator]
    command += [f"-D{define}" for define in defines]
    command += [HERE / bench, *sorted(Path(rtl).glob("mx_*.sv"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or done.stderr:
        raise NotRun(done.stderr)


def simulate(command):
    """Run a simulator; whether all cases passed, and what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    verdicts = [line for line in done.stdout.splitlines() if line.startswith(("PASS: ", "FAIL: "))]
    if len(verdicts) != 1 or verdicts[0].startswith("PASS") != (done.returncode == 0):
        raise NotRun(done.stdout + done.stderr)
    return verdicts[0].startswith("PASS"), done.stdout


def failures(rtl, vectors, kind, *, stop=False, results=None):
    """The cases of one folder of vectors that differ: all of them, or with stop the first.

    results: a path for what the unit gave.
    """
    with tempfile.TemporaryDirectory() as work:
        simulator, found = Path(work) / "simulator", Path(work) / "failures"
        compile_icarus(rtl, vectors, simulator, defines=["BLACKWELL"] if kind == "blackwell" else [])
        command = ["vvp", "-n", simulator, f"+vectors={vectors}/vectors.hex", f"+failures={found}"]
        command += ["+stop"] * stop + ([] if results is None else [f"+results={results}"])
        passed, said = simulate(command)
        rows = [line.split() for line in found.read_text().splitlines()] if found.exists() else []
        if passed != (not rows):
            raise NotRun(said)
        return [Failure(kind, int(case), stage) for case, stage in rows]


def hunt(mutant, vectors, *, stop=False, results=None):
    """Plant one bug; the cases that find it, or with stop the first. results: as of `failures`."""
    with tempfile.TemporaryDirectory() as work:
        for source in HERE.glob("mx_*.sv"):
            text = source.read_text()
            (Path(work) / source.name).write_text(mutant.plant(text) if source.name == mutant.file else text)
        kind = kind_of(mutant)
        return failures(work, Path(vectors) / kind, kind, stop=stop, results=results)


def study(mutant, vectors):
    """Plant one bug; all cases that find it, and the behaviour that `mxfp check` names first, or ""."""
    with tempfile.TemporaryDirectory() as work:
        results = Path(work) / "results.txt"
        found = hunt(mutant, vectors, results=results)
        with results.open("rb") as lines:
            explanation = check(SUITES[kind_of(mutant)], lines).explanation
        return found, explanation.names[0] if explanation else ""


def make_vectors(folder):
    """The vectors of the hunt, in a folder for each unit."""
    for kind, suite in SUITES.items():
        write_suite(suite, Path(folder) / kind, name="vectors", formats=("hex",))


def groups_of(kind):
    """The group of each case."""
    return [name for name, cases in SUITES[kind].tally.items() for _ in range(cases)]


def head(mutant, cases, groups):
    """What is known of a bug once the first case that finds it is: the first columns of its row."""
    first = cases[0] if cases else None
    where = (
        f"{first.kind} {first.case}: {groups[first.kind][first.case]}, {first.stage}"
        if first
        else "not found"
    )
    named = f"`{mutant.behaviour}`" if mutant.behaviour else "none"
    return f"| `{mutant.name}` | {mutant.file} | {mutant.wrong} | {named} | {where} |"


def table(found):
    """(bug, all failures) of each -> the table, in Markdown."""
    groups = {kind: groups_of(kind) for kind in SUITES}
    rows = [
        "| bug | file | what is wrong | explained by | first case that finds it: group, stage | cases "
        "| groups |",
        "|---|---|---|---|---|---|---|",
    ]
    for mutant, cases in found:
        names = list(dict.fromkeys(groups[case.kind][case.case] for case in cases))
        rows.append(f"{head(mutant, cases, groups)} {len(cases):,} | {len(names)} |")
    return "\n".join(rows) + "\n"


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="bugs to plant; all")
    parser.add_argument("--table", action="store_true", help=f"write the table into {PAGE.name}")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="simulations at a time; 2")
    given = parser.parse_args()
    known = [mutant.name for mutant in MUTANTS]
    for name in given.names:
        if name not in known:
            parser.error(f"no bug {name!r}; there are {', '.join(known)}")
    chosen = [mutant for mutant in MUTANTS if not given.names or mutant.name in given.names]
    if given.table and given.names:
        parser.error("the table is of all bugs; give no names")
    survivors, misnamed, found = [], [], []
    with tempfile.TemporaryDirectory() as vectors, ThreadPoolExecutor(given.jobs) as pool:
        make_vectors(vectors)
        if given.table:
            results = pool.map(lambda mutant: study(mutant, vectors), chosen)
        else:
            results = pool.map(lambda mutant: (hunt(mutant, vectors, stop=True), None), chosen)
        for mutant, (cases, name) in zip(chosen, results, strict=True):
            found.append((mutant, cases))
            if cases:
                first = cases[0]
                print(f"found    {mutant.name}: {first.kind} case {first.case}, {first.stage}", flush=True)
            else:
                survivors.append(mutant.name)
                print(f"SURVIVED {mutant.name}: {mutant.wrong}", flush=True)
            if name is not None and name != mutant.behaviour:
                misnamed.append(mutant.name)
                print(f"MISNAMED {mutant.name}: {name!r}, in mutants.py {mutant.behaviour!r}", flush=True)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} bugs found")
    if given.table:
        text = PAGE.read_text().partition(MARK)[0] + MARK + "\n" + table(found)
        write_whole(PAGE, lambda out: out.write(text.encode()))
    return 1 if survivors or misnamed else 0


if __name__ == "__main__":
    sys.exit(main())
