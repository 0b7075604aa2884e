# SPDX-License-Identifier: Apache-2.0
"""A failing case becomes the smallest that still fails, in few runs of a unit, however it is run."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from dataclasses import replace

import numpy as np
import pytest

import mxfp
from mxfp.names import accumulator
from mxfp.verify.explain import Datapath, Flow, behaviours
from mxfp.verify.layout import Adapter
from mxfp.verify.shrink import Command, RunError, ShrinkError, runner, shrink
from mxfp.verify.unit import Unit, expected
from mxfp.verify.vectors import Suite
from mxfp.widths import check_width


def unit_with(unit, *names):
    """A function that runs a unit with behaviours planted, and how often it was called."""
    path = Datapath.of(unit)
    known = {behaviour.name: behaviour for behaviour in behaviours(unit)}
    for name in names:
        path = known[name].apply(path)
    primary = "result" if unit.scaled else "sum"

    def run(batch):
        run.calls += 1
        return path.run(Flow.of(batch))[primary][:, 0]

    run.calls = 0
    return run


def failing(suite, run, which=0):
    """A case of a suite that the unit has wrong, with its steps, and the sequence before it."""
    primary = "result" if suite.unit.scaled else "sum"
    numbers = []
    for batch in suite.batches():
        right = expected(batch)[primary][:, 0]
        numbers += (np.flatnonzero(right != run(batch)) + batch.start).tolist()
    batch, place = suite.case(numbers[which])
    case = batch.cut(slice(0, place + 1))
    earlier = numbers[which] - len(case)
    if earlier < 0:
        return case, None
    batch, place = suite.case(earlier)
    return case, batch.cut(slice(0, place + 1))


# --- planted bugs


@pytest.mark.parametrize("kind", ["sum", "dot", "running"])
@pytest.mark.parametrize("which", [0, 3, -1])
def test_a_sum_of_13_bits_leaves_exactly_29_lanes(kind, which):
    unit = Unit(kind)
    suite = Suite(unit, groups=("walking-holes", "sum-extremes", "level-extremes"))
    run = unit_with(unit, "level5-wraps-13")
    case, _ = failing(suite, run, which)
    found = shrink(case, run)
    assert found.nonzero == 29 == check_width(13).nonzero
    assert len(found.batch) == 1


@pytest.mark.parametrize("kind", ["sum", "dot", "running"])
@pytest.mark.parametrize("lane", [0, 13, 31])
def test_a_lane_with_a_wrong_sign_leaves_that_lane_alone(kind, lane):
    unit = Unit(kind)
    suite = Suite(unit, groups=("random-uniform" if unit.scaled else "random-near-unit",))
    run = unit_with(unit, f"lane{lane}-sign-inverted")
    case, _ = failing(suite, run, 7)
    assert np.count_nonzero(case.codes_a) > 20
    found = shrink(case, run)
    assert found.nonzero == 1
    assert np.flatnonzero(found.batch.codes_a[0]).tolist() == [lane]
    one = mxfp.encode([1.0], mxfp.E2M1)[0]
    assert (found.batch.codes_a[0, lane], found.batch.codes_b[0, lane]) == (one, one)
    assert (found.batch.scales_a == 127).all()
    assert (found.batch.scales_b == 127).all()


def test_a_wrapped_level_leaves_the_lanes_of_one_adder():
    unit = Unit("sum")
    run = unit_with(unit, "level2-wraps-10")
    case, _ = failing(Suite(unit, groups=("level-extremes",)), run, 5)
    found = shrink(case, run)
    assert found.nonzero == check_width((9, 10, 10, 12, 13, 14)).nonzero == 4


@pytest.mark.parametrize(
    ("name", "lanes"),
    [
        ("nan-scale-ignored-a", 0),
        ("overflow-zero", 1),
        ("subnormal-signed-zero", 1),
        ("subnormal-elements-zero-ab", 1),
        ("lanes-10-11-swapped", 1),
    ],
)
def test_other_bugs_leave_the_lanes_that_they_take(name, lanes):
    unit = Unit("dot")
    run = unit_with(unit, name)
    case, _ = failing(Suite(unit, groups=("random-specials", "random-corner")), run, 2)
    found = shrink(case, run)
    assert found.nonzero == lanes
    assert found.right == expected(found.batch)["result"][-1, 0]
    assert found.got == run(found.batch)[-1] != found.right


def test_blocks_that_do_not_matter_are_dropped():
    unit = Unit("dot", blocks=4)
    run = unit_with(unit, "lane5-dropped")
    case, _ = failing(Suite(unit, groups=("random-near-unit",)), run, 3)
    found = shrink(case, run)
    assert found.nonzero == 1
    assert (found.batch.scales_a == 127).all()


def test_steps_that_do_not_matter_are_dropped():
    unit = Unit("running")
    run = unit_with(unit, "cancellation-2^-125")
    case, _ = failing(Suite(unit, groups=("cancellation-across-blocks",)), run, -1)
    found = shrink(case, run)
    assert len(found.batch) == 2
    assert found.nonzero == 2
    assert found.batch.first.tolist() == [True, False]
    assert (found.right, found.got) == (0, 0x01000000)


def test_what_stands_before_a_case_is_kept_where_it_matters():
    unit = Unit("dot")
    run = unit_with(unit, "accumulator-stale")
    suite = Suite(unit, groups=("random-near-unit",))
    case, before = failing(suite, run, 1)
    found = shrink(case, run, before=before)
    assert len(found.batch) == 2
    assert found.nonzero == 1
    assert "right on its own" in found.note
    with pytest.raises(ShrinkError, match="right on this case alone"):
        shrink(case, run)


def test_a_candidate_that_fails_only_after_another_is_not_the_answer():
    unit = Unit("dot")
    batch, place = Suite(unit, groups=("random-near-unit",)).case(3)
    case = batch.cut(slice(place, place + 1))
    case.codes_a[0, 3] = 7

    def run(batch):
        wrong = batch.codes_a[:, 3] == 7
        wrong = wrong | np.append(False, wrong[:-1])  # and the case after it
        return expected(batch)["result"][:, 0] ^ wrong.astype(np.uint64)

    found = shrink(case, run)
    assert np.flatnonzero(found.batch.codes_a[0]).tolist() == [3]
    assert found.batch.codes_a[0, 3] == 7
    assert found.got == found.right ^ 1


def test_the_answer_is_the_same_every_time():
    unit = Unit("running")
    run = unit_with(unit, "sticky-lost-1")
    case, _ = failing(Suite(unit, groups=("sticky",)), run, 11)
    one, other = shrink(case, run), shrink(case, run)
    assert one.vectors() == other.vectors()
    assert one.runs == other.runs


def test_few_runs_are_enough_and_their_number_is_bounded():
    unit = Unit("dot")
    run = unit_with(unit, "level5-wraps-13")
    case, _ = failing(Suite(unit, groups=("sum-extremes",)), run)
    run.calls = 0
    seen = []
    found = shrink(case, run, progress=lambda what, done, total: seen.append((done, total)))
    assert run.calls < 60
    assert seen[0] == (1, 200)
    run.calls = 0
    few = shrink(case, run, most_runs=5)
    assert run.calls <= 5 + 4  # the answer itself is run again
    assert "perhaps not the smallest" in few.note
    assert few.nonzero >= found.nonzero


# --- what cannot be shrunk


def test_a_unit_that_is_right_is_reported():
    unit = Unit("dot")
    batch, place = Suite(unit).case(5)
    with pytest.raises(ShrinkError, match="right on this case"):
        shrink(batch.cut(slice(place, place + 1)), unit_with(unit))


def test_a_unit_that_answers_now_this_and_now_that_is_reported():
    unit = Unit("dot")
    batch, place = Suite(unit).case(5)
    rng = np.random.default_rng(1)
    with pytest.raises(ShrinkError, match="not deterministic"):
        shrink(
            batch.cut(slice(place, place + 1)),
            lambda b: rng.integers(1, 1 << 31, len(b), dtype=np.int64),
        )


def test_a_function_that_gives_something_else_is_refused():
    unit = Unit("dot")
    batch, place = Suite(unit).case(5)
    with pytest.raises(RunError, match="due are 1 integers"):
        shrink(batch.cut(slice(place, place + 1)), lambda b: np.ones(7))


# --- how it is printed


@pytest.mark.parametrize(
    "unit", [Unit("sum"), Unit("dot", blocks=2), Unit("running"), Unit("dot", mxfp.NVFP4)], ids=str
)
def test_the_python_that_is_printed_gives_what_is_due(unit):
    run = unit_with(unit, "lane3-twice")
    case, _ = failing(Suite(unit, groups=("random-near-unit",)), run, 4)
    found = shrink(case, run)
    text = found.python()
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    due = found.digits(found.right) if unit.scaled else str(found.right)
    assert done.stdout.strip() == due
    assert text.rstrip().endswith(f"# {due}")


def test_the_line_and_the_initial_block_hold_the_operands():
    unit = Unit("dot")
    run = unit_with(unit, "lane2-dropped")
    case, _ = failing(Suite(unit, groups=("random-near-unit",)), run, 4)
    found = shrink(case, run)
    head = "3f800000" + "0" + "ffe" + "0004" + "3" + "7f" + "7f"  # result … flags and both scales
    assert found.vectors() == head + f"{0x200:032x}" + f"{0x200:032x}" + "\n"
    text = found.systemverilog()
    assert "a = 128'h00000000000000000000000000000200;" in text
    assert "scale_a = 8'h7f;" in text
    assert "due: 3f800000; the unit gave 00000000" in text
    assert text.startswith("initial begin\n")


# --- a command


SIMULATOR = """
    import sys
    from mxfp.verify.layout import VALUES, line_fields, values_of
    from mxfp.verify.unit import Unit
    import numpy as np
    unit = Unit("dot")
    lines = open(sys.argv[1]).read().split() if len(sys.argv) > 1 else sys.stdin.read().split()
    fields = {f.name: f for f in line_fields(unit)}
    digits = np.array([[int(c, 16) for c in line[::-1]] for line in lines], np.uint8)
    table = unit.a.element.integers
    a, b = (table[values_of(digits, fields[n]).astype(np.int64)] for n in "ab")
    scale = sum(values_of(digits, fields["scale_" + n])[:, 0].astype(np.int64) for n in "ab")
    products = a * b
    products[:, 9] *= -1
    with np.errstate(over="ignore"):
        value = np.ldexp(products.sum(axis=1).astype(np.float64), scale - 256).astype(np.float32)
    bits = value.view(np.uint32)
    nan = (values_of(digits, fields["scale_a"]) == 255) | (values_of(digits, fields["scale_b"]) == 255)
    bits = np.where(nan[:, 0], 0x7fc00000, bits)
    text = "".join(f"{v:08x}\\n" for v in bits.tolist())
    open(sys.argv[2], "w").write(text) if len(sys.argv) > 2 else sys.stdout.write(text)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("simulator")
    (found / "simulator.py").write_text(textwrap.dedent(SIMULATOR))
    return found


@pytest.fixture(scope="module")
def case():
    batch, place = Suite(Unit("dot"), groups=("random-near-unit",)).case(17)
    return batch.cut(slice(place, place + 1))


@pytest.mark.parametrize("files", ["{vectors} {results}", "{vectors}", ""], ids=["files", "file", "pipe"])
def test_a_command_is_run_with_files_or_a_pipe(folder, case, files):
    command = Command(f"{sys.executable} {folder / 'simulator.py'} {files}", Unit("dot"))
    found = shrink(case, command)
    assert found.nonzero == 1
    assert np.flatnonzero(found.batch.codes_a[0]).tolist() == [9]
    assert (found.right, found.got) == (0x3F800000, 0xBF800000)


def test_a_command_that_always_reads_so_many_cases_gets_them(folder, case):
    count = f'{sys.executable} -c "import sys; n = len(open(sys.argv[1]).readlines()); sys.exit(n != 64)"'
    text = f"{count} {{vectors}} && {sys.executable} {folder / 'simulator.py'} {{vectors}} {{results}}"
    command = Command(text, Unit("dot"), fill=64)
    assert shrink(case, command, most_runs=30).nonzero < 20
    with pytest.raises(RunError, match="wrote no results and ended with exit status 1"):
        shrink(case, Command(text, Unit("dot"), fill=63))


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("import sys; print('no licence', file=sys.stderr); sys.exit(3)", "exit status 3.*no licence"),
        ("import os; os.kill(os.getpid(), 9)", "exit status 137|killed by signal 9"),
        ("print('hello world')", "0 of 1 cases.*'hello world' is no answer"),
        ("print('3f800000'); print('3f800000')", "more than there are cases"),
        ("print('3f8')", "3 digits"),
        ("pass", "0 of 1 cases"),
    ],
)
def test_a_command_that_dies_or_talks_is_reported(case, program, why):
    command = Command(f'{sys.executable} -c "{program}"', Unit("dot"))
    with pytest.raises(RunError, match=why):
        shrink(case, command)


def test_a_command_that_hangs_is_ended_with_all_that_it_started(case, tmp_path):
    note = tmp_path / "note"
    program = f"sleep 2; touch {note}"
    with pytest.raises(RunError, match=r"did not end within 0.3 seconds"):
        shrink(case, Command(f"({program}) & wait", Unit("dot"), timeout=0.3))
    subprocess.run(["sleep", "2.5"], check=True)
    assert not note.exists()


@pytest.mark.parametrize("flood", ["yes 3f800000", "yes hello", "yes >&2", "yes '' >&2 & yes"])
def test_a_command_that_writes_on_and_on_is_ended(case, flood, monkeypatch, tmp_path):
    monkeypatch.setattr(runner, "MOST_SAID", 1 << 20)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(RunError, match=r"writes on and on, more than 1,052,672 bytes"):
        shrink(case, Command(flood, Unit("dot")))
    assert list(tmp_path.iterdir()) == []


def test_what_a_command_leaves_running_is_not_waited_for(case, folder, tmp_path):
    simulator = f"{sys.executable} {folder / 'simulator.py'} {{vectors}}"
    for more in ("sleep 60 &", "setsid sleep 60 &"):
        found = Command(f"{more} {simulator}; echo $! > {tmp_path / 'id'}", Unit("dot"), timeout=30)(case)
        assert found[1].all()
        os.kill(int((tmp_path / "id").read_text()), signal.SIGKILL)
    hangs = f"setsid sleep 60 & echo $! > {tmp_path / 'id'}; sleep 60"
    with pytest.raises(RunError, match=r"did not end within 0\.3 seconds"):
        shrink(case, Command(hangs, Unit("dot"), timeout=0.3))
    os.kill(int((tmp_path / "id").read_text()), signal.SIGKILL)


@pytest.mark.parametrize(
    "made", ["mkdir {results}", "mkfifo {results}", "ln -s /nowhere {results}", ": {results}"]
)
def test_results_that_are_no_file_are_reported(case, made):
    with pytest.raises(RunError, match="the command wrote no results"):
        shrink(case, Command(f"{made} {{results}}", Unit("dot")))


def test_what_a_command_says_is_quoted_without_its_control_characters(case):
    with pytest.raises(RunError, match=r"it said: \\x1b\[31mno \\x00 licence$"):
        shrink(case, Command(r"printf '\033[31mno \000 licence\n' >&2; exit 3", Unit("dot")))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"timeout": 0}, "timeout is a number of seconds above 0, got 0"),
        ({"timeout": float("nan")}, "above 0, got nan"),
        ({"fill": 0}, r"fill is a number of cases, 1 … 2097152 of this unit, got 0"),
        ({"fill": 10**12}, "got 1000000000000"),
    ],
)
def test_limits_that_are_none_are_refused(options, why):
    with pytest.raises(ValueError, match=why):
        Command("true", Unit("dot"), **options)


def test_no_limit_of_time_is_a_limit_too(folder, case):
    text = f"{sys.executable} {folder / 'simulator.py'} {{vectors}}"
    assert Command(text, Unit("dot"), timeout=float("inf"))(case)[1].all()


def test_the_include_of_a_run_has_the_lines_of_that_run(case, tmp_path):
    text = f"cp {{include}} {tmp_path / 'x.svh'}; cp {{vectors}} {tmp_path / 'x.hex'}; cut -c1-8 {{vectors}}"
    Command(text, Unit("dot"), adapter=Adapter(endian="little"))(case)
    line = (tmp_path / "x.hex").read_text().strip()
    assert len(line) == 86
    assert f"MXFP_LINE_BITS = {4 * len(line)};" in (tmp_path / "x.svh").read_text()


def test_results_may_be_signed_integers_of_as_many_bits(case):
    def run(batch):
        return expected(batch)["result"][:, 0].astype(np.uint32).view(np.int32)

    negative = replace(case, codes_a=case.codes_a ^ np.uint8(8))
    assert {bool(expected(batch)["result"][0, 0] >> np.uint64(31)) for batch in (case, negative)} == {
        True,
        False,
    }
    for batch in (case, negative):
        with pytest.raises(ShrinkError, match="right on this case"):
            shrink(batch, run)
    with pytest.raises(ShrinkError, match="right on this case"):
        shrink(case, lambda batch: run(batch).astype(np.int64))
    assert shrink(case, lambda batch: run(batch).astype(np.int64) - (1 << 32)).nonzero == 0


def test_x_from_a_command_is_a_failure(case):
    program = "import sys; [print('xxxxxxxx') for line in sys.stdin]"
    found = shrink(case, Command(f'{sys.executable} -c "{program}"', Unit("dot")))
    assert found.got is None
    assert found.nonzero == 0
    assert "the unit gave x" in str(found)


def mxfp_command(*words):
    return subprocess.run([sys.executable, "-m", "mxfp", *words], capture_output=True, text=True, check=False)


def test_the_command_line_shrinks_a_case_of_a_sidecar(folder):
    made = mxfp_command("vectors", "dot", "--group", "random-near-unit", "--out", str(folder))
    assert made.returncode == 0, made.stderr
    run = f"{sys.executable} {folder / 'simulator.py'} {{vectors}} {{results}}"
    asked = ("shrink", str(folder / "dot.json"), "--case", "17", "--run", run)
    done = mxfp_command(*asked)
    assert done.returncode == 0, done.stderr
    assert "1 lane not zero: due 3f800000, the unit gave bf800000" in done.stdout
    assert "initial begin" in done.stdout
    record = json.loads(mxfp_command(*asked, "--json").stdout)
    assert (record["nonzero"], record["got"]) == (1, "bf800000")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--case", "99999999", "--run", "true"), "there are cases 0"),
        (("--case", "1", "--run", "exit 4"), "exit status 4"),
        (("--case", "1", "--run", "sleep 9", "--timeout", "0.2"), "did not end within 0.2 seconds"),
        (("--case", "1", "--run", "true", "--timeout", "nan"), "above 0, got nan"),
        (("--case", "1", "--run", "true", "--fill", "99999999999"), "fill is a number of cases"),
        (("--case", "1", "--run", ""), "answered 0 of 1 cases"),
    ],
)
def test_a_wrong_call_is_one_line(words, why):
    done = mxfp_command("shrink", "dot", "--group", "walking-lanes", *words)
    assert done.returncode != 0
    assert why in done.stderr
    assert "Traceback" not in done.stderr


def test_an_interrupted_run_is_one_line_and_ends_all_that_it_started(folder, tmp_path):
    note = tmp_path / "note"
    run = f"echo x > {tmp_path / 'started'}; sleep 3; echo x > {note}"
    asked = ("shrink", "dot", "--group", "walking-lanes", "--case", "1", "--run", f"({run}) & wait")
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-m", "mxfp", *asked], **pipes, text=True, env=environment)
    while not (tmp_path / "started").exists():
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate()
    assert (process.returncode, said, errors.strip()) == (130, "", "mxfp: interrupted")
    time.sleep(3.5)
    assert [path.name for path in tmp_path.iterdir()] == ["started"]


def test_the_accumulators_of_tensor_cores_shrink_too():
    unit = Unit("dot", blocks=4, accumulator=accumulator("blackwell"))
    run = unit_with(unit, "lane17-dropped")
    case, _ = failing(Suite(unit, groups=("random-near-unit",)), run)
    assert shrink(case, run).nonzero == 1
