# SPDX-License-Identifier: Apache-2.0
"""Vectors that a file holds: written as all others, read back with a proof, and used by every command."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

import mxfp
from mxfp import cli
from mxfp.verify.check import check
from mxfp.verify.coverage import Coverage, fill
from mxfp.verify.layout import Adapter, batch_of, line_fields, lines
from mxfp.verify.unit import Batch, Unit, expected
from mxfp.verify.vectors import Recorded, Suite, read_suite, write_suite

PARTS = ("codes_a", "codes_b", "scales_a", "scales_b", "first", "group")
CODES = tuple(np.random.default_rng(2).permutation(16).tolist())
LAID_OUT = [
    (Unit("sum", lanes=5), Adapter(lanes="descending"), True),
    (Unit("sum", lanes=1), Adapter(), True),
    (Unit("dot"), Adapter(), False),
    (Unit("dot", lanes=3, blocks=3), Adapter(endian="little", lanes="descending"), False),
    (Unit("dot", blocks=2), Adapter("descending", "high_first", "ba", CODES, "little"), True),
    (Unit("running"), Adapter(scales="ba", codes=CODES), False),
    (Unit("running", blocks=2, accumulator=mxfp.BLACKWELL_MXFP4), Adapter(endian="little"), True),
    (Unit("dot", mxfp.NVFP4), Adapter(nibbles="high_first"), True),
    (Unit("dot", mxfp.MXFP6_E2M3, mxfp.MXFP8_E5M2, lanes=4), Adapter(lanes="descending"), False),
    (Unit("dot", mxfp.MXINT8, lanes=6, accumulator=mxfp.FixedPoint(40, -20, "wrap")), Adapter(), True),
]


def drawn(unit, n=40, seed=0, groups=("one", "other")):
    """Any codes and scales; a third of a running unit's cases are first."""
    rng = np.random.default_rng(seed)
    codes = [rng.integers(0, f.element.code_count, (n, unit.elements)).astype(np.uint8) for f in unit.sides]
    blocks = unit.blocks * unit.scaled
    scales = [rng.integers(0, f.scale.code_count, (n, blocks)).astype(np.uint8) for f in unit.sides]
    first = rng.random(n) < (0.3 if unit.kind == "running" else 2)
    first[0] = True
    group = np.arange(n) * len(groups) // n
    return Batch(unit, *codes, *scales, first, group, groups)


def lines_due(suite):
    """What a right unit gives, in hex."""
    primary = "result" if suite.unit.scaled else "sum"
    due = np.concatenate([expected(b, stages=False)[primary][:, 0] for b in suite.batches()]).tolist()
    bits = 8 * suite.unit.accumulator.result_dtype.itemsize if suite.unit.scaled else suite.unit.sum_bits
    digits = -(-bits // 4)
    return [f"{v & (1 << 4 * digits) - 1:0{digits}x}" for v in due]


@pytest.mark.parametrize(("unit", "adapter", "stages"), LAID_OUT, ids=str)
def test_lines_are_read_back_as_they_were_written(unit, adapter, stages):
    batch, layout = drawn(unit), line_fields(unit, stages=stages, adapter=adapter)
    content = lines(batch, expected(batch, stages=stages), layout, adapter)
    again = batch_of(content, unit, layout, adapter)
    for name in PARTS[:-1]:
        assert np.array_equal(getattr(again, name), getattr(batch, name)), name
        assert getattr(again, name).dtype == getattr(batch, name).dtype


@pytest.mark.parametrize(("unit", "adapter", "stages"), LAID_OUT, ids=str)
def test_a_file_holds_the_cases_and_gives_them_back(unit, adapter, stages, tmp_path):
    suite = Recorded(drawn(unit), adapter, stages, "Any.", {"made_by": "a test"})
    paths = write_suite(suite, tmp_path, name="x", formats=("hex", "columns", "jsonl"))
    assert [path.name for path in paths] == ["x.hex", "x.txt", "x.jsonl", "x.svh", "x.json"]
    again = read_suite(tmp_path / "x.json")
    assert isinstance(again, Recorded)
    assert (again.unit, again.adapter, again.stages, again.tally) == (unit, adapter, stages, suite.tally)
    assert (again.level, again.seed, again.origin) == (None, None, {"made_by": "a test"})
    for name in PARTS:
        assert np.array_equal(getattr(again.batch, name), getattr(suite.batch, name)), name
    assert json.loads(json.dumps(again.as_dict())) == json.loads(json.dumps(suite.as_dict()))
    assert check(again, lines_due(suite))
    sidecar = json.loads((tmp_path / "x.json").read_text())
    assert sidecar["schema"] == "mxfp-vectors/1"
    assert sidecar["groups"][1] == {"name": "other", "about": "Any.", "cases": 20, "first": 20}
    for entry in sidecar["files"].values():
        assert entry["sha256"] == hashlib.sha256((tmp_path / entry["name"]).read_bytes()).hexdigest()


def test_read_suite_makes_a_suite_of_arguments_again(tmp_path):
    suite = Suite(Unit("dot"), groups=("nan-scales",))
    write_suite(suite, tmp_path, name="x")
    assert read_suite(tmp_path / "x.json") == suite


def test_cases_of_a_file_are_not_those_of_arguments(tmp_path):
    write_suite(Recorded(drawn(Unit("dot"))), tmp_path, name="x")
    with pytest.raises(ValueError, match=r"no arguments make again; read it with .*read_suite"):
        Suite.from_sidecar(tmp_path / "x.json")


@pytest.mark.parametrize("size", [1, 3, 7, 40, 1000])
def test_batches_hold_whole_sequences_in_order(size):
    suite = Recorded(drawn(Unit("running"), 60))
    batches = list(suite.batches(size=size))
    assert all(batch.first[0] for batch in batches)
    assert [batch.start for batch in batches] == np.cumsum([0, *map(len, batches)])[:-1].tolist()
    assert np.array_equal(np.concatenate([b.codes_a for b in batches]), suite.batch.codes_a)
    assert all(len(b) <= size or b.first.sum() == 1 for b in batches)
    if size == 7:
        assert 8 < len(batches) < 40


def test_a_case_comes_with_its_sequence():
    suite = Recorded(drawn(Unit("running"), 60))
    for number in range(60):
        batch, place = suite.case(number)
        assert batch.start + place == number
        assert batch.first.tolist() == [True] + [False] * (len(batch) - 1)
        assert np.array_equal(batch.codes_a[place], suite.batch.codes_a[number])
        end = batch.start + len(batch)
        assert end == 60 or suite.batch.first[end]
    for number in (-1, 60):
        with pytest.raises(IndexError, match="there are 60 cases, 0 … 59"):
            suite.case(number)


@pytest.mark.parametrize(
    ("unit", "change", "message"),
    [
        (Unit("dot"), lambda b: b.cut(slice(0, 0)), "no cases"),
        (Unit("dot"), lambda b: replace(b, first=b.first & (np.arange(len(b)) != 3)), "every case is first"),
        (Unit("running"), lambda b: replace(b, first=b.first & (np.arange(len(b)) > 0)), "every case is"),
        (Unit("dot"), lambda b: replace(b, group=b.group[::-1]), "stand together"),
        (Unit("dot"), lambda b: replace(b, groups=("one", "nul\0")), r"to be printed, got 'nul\\x00'"),
        (Unit("dot"), lambda b: replace(b, groups=("", "x")), "to be printed, got ''"),
    ],
)
def test_what_could_not_be_read_back_is_not_recorded(unit, change, message):
    with pytest.raises(ValueError, match=message):
        Recorded(change(drawn(unit)))


# --- a sidecar or a file that somebody has edited


@pytest.fixture
def written(tmp_path):
    write_suite(Recorded(drawn(Unit("dot"))), tmp_path, name="x")
    return tmp_path


def edit(folder, change):
    sidecar = json.loads((folder / "x.json").read_text())
    change(sidecar)
    (folder / "x.json").write_text(json.dumps(sidecar))


def rewrite(folder, content):
    """The file changed, and the sidecar with it."""
    (folder / "x.hex").write_bytes(content)
    entry = {"name": "x.hex", "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    edit(folder, lambda s: s["files"].update(hex=entry))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.update(recorded="columns"), "recorded is 'hex', got 'columns'"),
        (lambda s: s.update(recorded=7), "recorded is 'hex', got 7"),
        (lambda s: s["files"].pop("hex"), "it has no 'hex'"),
        (lambda s: s.pop("groups"), "it has no 'groups'"),
        (lambda s: s.update(groups=[]), "index out of range"),
        (lambda s: s.update(groups=5), "not iterable"),
        (lambda s: s["groups"][0].update(cases=-1), r"\[-1, 20\] cases, and x.hex has 40"),
        (lambda s: s["groups"][0].update(cases=10**30), "cases, and x.hex has 40"),
        (lambda s: s["groups"][0].update(cases=float("inf")), "infinity to integer"),
        (lambda s: s["groups"][0].update(cases=float("nan")), "NaN to integer"),
        (lambda s: s["groups"][0].update(name="\ud800"), "to be printed"),
        (lambda s: s["groups"][0].update(first=3), "its groups would differ"),
        (lambda s: s.update(cases=41), "its cases would differ"),
        (lambda s: s["fields"][2].update(width=-8), "its fields would differ"),
        (lambda s: s["unit"].update(lanes=16), "lines of 53 digits are due"),
        (lambda s: s["unit"].update(lanes=1 << 40), "at most 16384 elements"),
        (lambda s: s["unit"].update(lanes=None), "its unit would differ"),
        (lambda s: s["unit"].update(blocks=-1), "1 or more, got -1"),
        (lambda s: s["unit"].update(kind="dots"), "kind must be"),
        (lambda s: s["unit"].update(format_a="MXFP5"), "it has no 'MXFP5'"),
        (lambda s: s["unit"]["accumulator"].update(name="magic"), "no such accumulator"),
        (lambda s: s["unit"]["accumulator"].update(name="exact:float32"), "its unit would differ"),
        (lambda s: s["unit"]["accumulator"]["parameters"].update(dtype="float16"), "its unit would differ"),
        (lambda s: s["adapter"].update(endian="middle"), "endian must be"),
        (lambda s: s["adapter"].update(codes=[0, 0]), "every one once"),
        (lambda s: s["adapter"].update(codes=CODES), "what it expects of line 1 differs"),
        (lambda s: s["files"]["hex"].update(name="../x.hex"), "one beside it, got '../x.hex'"),
        (lambda s: s["files"]["hex"].update(name="/etc/hostname"), "one beside it, got '/etc/hostname'"),
        (lambda s: s["files"]["hex"].update(name=".."), "there is no such file beside it"),
        (lambda s: s["files"]["hex"].update(name=""), "there is no such file beside it"),
        (lambda s: s["files"]["hex"].update(name="y\0.hex"), "there is no such file beside it"),
        (lambda s: s["files"]["hex"].update(bytes=1), "has 3440 bytes, and the sidecar is of one with 1"),
        (lambda s: s["files"]["hex"].update(sha256="0" * 64), "is not the file that was written"),
    ],
)
def test_an_edited_sidecar_is_refused(written, change, message):
    edit(written, change)
    with pytest.raises(ValueError, match=message):
        read_suite(written / "x.json")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b"9" * 10_000])
def test_what_is_no_sidecar_is_refused(written, content):
    (written / "x.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.json is not a sidecar"):
        read_suite(written / "x.json")


def test_a_file_that_was_changed_or_is_gone_is_refused(written):
    content = (written / "x.hex").read_bytes()
    (written / "x.hex").write_bytes(content[:100] + b"7" + content[101:])
    with pytest.raises(ValueError, match=r"x\.hex is not the file that was written"):
        read_suite(written / "x.json")
    (written / "x.hex").unlink()
    with pytest.raises(ValueError, match="there is no such file beside it"):
        read_suite(written / "x.json")
    (written / "x.hex").mkdir()
    with pytest.raises(ValueError, match="there is no such file beside it"):
        read_suite(written / "x.json")


def with_digit(digit, place, line=2):
    """One digit of a line replaced; place counts from the end, as bits do."""
    return lambda text: text[: 86 * line + 84 - place] + digit + text[86 * line + 85 - place :]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_digit(b"g", 5), "line 3 is not 85 hex digits"),
        (with_digit(b"\n", 5), "line 3 is not 85 hex digits"),
        (with_digit(b"2", 68), "line 3 is not marked as valid"),
        (with_digit(b"7", 68), "line 3 is not marked as valid"),
        (with_digit(b"1", 68), "line 3 is not marked as first"),
        (with_digit(b"0", 69), "what it expects of line 3 differs"),
        (with_digit(b"e", 84), "what it expects of line 3 differs"),
        (lambda text: text[:-1], "are not so many of them"),
        (lambda text: text + text[:86], r"\[20, 20\] cases, and x.hex has 41"),
        (lambda text: text.replace(b"\n", b"\r\n"), "are not so many of them"),
        (lambda text: text.upper(), "what it expects of line 1 differs"),
        (lambda text: b"", "are not so many of them"),
        (lambda text: b"\xff\x00" * 43 * 40, "line 1 is not 85 hex digits"),
    ],
)
def test_lines_that_this_version_would_not_write_are_refused(written, change, message):
    rewrite(written, change((written / "x.hex").read_bytes()))
    with pytest.raises(ValueError, match=message):
        read_suite(written / "x.json")


def test_codes_that_do_not_exist_are_refused(tmp_path):
    unit = Unit("dot", mxfp.MXFP6_E2M3, lanes=2)
    write_suite(Recorded(drawn(unit)), tmp_path, name="x")
    lines_there = (tmp_path / "x.hex").read_bytes().split(b"\n")
    lines_there[4] = lines_there[4][:-2] + b"40"
    rewrite(tmp_path, b"\n".join(lines_there))
    with pytest.raises(ValueError, match="line 5 has a code of a that is none"):
        read_suite(tmp_path / "x.json")


# --- the commands


def run(*arguments, given=None):
    return CliRunner().invoke(cli.cli, [str(a) for a in arguments], input=given)


@pytest.fixture(scope="module", params=["dot", "sum", "running"])
def filled(request, tmp_path_factory):
    """Vectors of a group, and those that fill what they missed; each with the layout of the first."""
    folder = tmp_path_factory.mktemp(request.param)
    laid_out = ("--lane-order", "descending", "--endian", "little", "--stages")
    made = run("vectors", request.param, "--group", "sum-extremes", *laid_out, "--out", folder)
    assert made.exit_code == 0, made.output
    done = run("coverage", folder / f"{request.param}.json", "--fill", "--fill-seed", 3, "--out", folder)
    assert done.exit_code == 0, done.output
    return folder / f"{request.param}-fill.json"


def test_filled_vectors_are_the_cases_of_fill_in_the_layout_of_the_suite(filled):
    origin = read_suite(filled.with_name(filled.name.replace("-fill", "")))
    suite = read_suite(filled)
    cover = Coverage(origin.unit)
    for batch in origin.batches():
        cover.add(batch)
    batch = fill(cover, seed=3)
    assert np.array_equal(suite.batch.codes_a, batch.codes_a)
    assert np.array_equal(suite.batch.scales_b, batch.scales_b)
    assert (suite.unit, suite.adapter, suite.stages) == (origin.unit, origin.adapter, True)
    assert suite.origin == {"made_by": "mxfp coverage --fill", "vectors": origin.unit.kind, "fill_seed": 3}
    cover.add(suite.batch)
    assert cover.missed() == []


def test_check_reads_the_answers_to_filled_vectors(filled, tmp_path):
    due = lines_due(read_suite(filled))
    right = run("check", filled, given="\n".join(due))
    assert (right.exit_code, right.stdout) == (
        0,
        f"PASS: {len(due)} of {len(due)} cases are right, every bit\n",
    )
    wrong = [f"{int(due[0], 16) ^ 1:0{len(due[0])}x}", *due[1:]]
    reports = ("--json", tmp_path / "a.json", "--junit", tmp_path / "a.xml")
    failed = run("check", filled, *reports, given="\n".join(wrong))
    assert failed.exit_code == 1
    assert "case 0 of fill\n" in failed.stdout
    assert json.loads((tmp_path / "a.json").read_text())["groups"] == {
        "fill": {"cases": len(due), "wrong": 1, "unknown": 0, "malformed": 0, "missing": 0}
    }
    assert run("check", filled, given="\n".join(due[:-1])).exit_code == 2


def test_check_says_what_is_wrong_with_filled_vectors_that_were_edited(filled, tmp_path):
    for path in filled.parent.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    hex_file = tmp_path / filled.with_suffix(".hex").name
    hex_file.write_bytes(hex_file.read_bytes()[::-1])
    done = run("check", tmp_path / filled.name, given="")
    assert done.exit_code == 2
    assert f"{hex_file.name} is not the file that was written" in done.stderr
    assert done.stderr.count("\n") == 1


def test_coverage_reads_filled_vectors_and_adds_them_up(filled, tmp_path):
    origin = filled.with_name(filled.name.replace("-fill", ""))
    counts = tmp_path / "counts.json"
    counts.write_text(run("coverage", origin, "--json").stdout)
    assert run("coverage", filled, "--strict").exit_code == 1
    both = run("coverage", filled, "--add", counts, "--strict", "--json")
    assert both.exit_code == 0
    found = json.loads(both.stdout)
    assert found["hit"] == found["wanted"]
    assert found["groups"]["fill"] == read_suite(filled).cases


def test_shrink_reads_filled_vectors(filled):
    done = run("shrink", filled, "--case", 1, "--run", "exit 4")
    assert done.exit_code == 1
    assert "exit status 4" in done.stderr
    beyond = run("shrink", filled, "--case", 10**9, "--run", "true")
    assert "there are cases 0 …" in beyond.stderr
