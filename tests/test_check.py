# SPDX-License-Identifier: Apache-2.0
"""What a simulator wrote is read strictly: every way to be wrong has a name, and none of them passes."""

import io
import json
import signal
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner

import mxfp
import mxfp.verify.check.verdict as verdicts
from mxfp import cli
from mxfp.names import accumulator
from mxfp.verify.check import AnswerReader, Policy, check
from mxfp.verify.check.failure import ulps
from mxfp.verify.layout import line_fields
from mxfp.verify.unit import Unit, expected
from mxfp.verify.vectors import Suite
from mxfp.verify.vectors.groups import SIZE

DOT = Suite(Unit("dot"), groups=("walking-lanes", "nan-scales", "scale-corners"))
SUM = Suite(Unit("sum"), groups=("walking-lanes", "sum-extremes"))
RUNNING = Suite(Unit("running"), groups=("ties",))


def bits_due(suite):
    """The bits that are due, one integer a case."""
    primary = "result" if suite.unit.scaled else "sum"
    found = [expected(batch, stages=False)[primary][:, 0] for batch in suite.batches()]
    return [int(v) for v in np.concatenate(found)]


def lines_due(suite):
    """The lines of a right unit."""
    if suite.unit.scaled:
        digits = 2 * suite.unit.accumulator.result_dtype.itemsize
        return [f"{v:0{digits}x}" for v in bits_due(suite)]
    digits = -(-suite.unit.sum_bits // 4)
    return [f"{v & (1 << 4 * digits) - 1:0{digits}x}" for v in bits_due(suite)]


def stage_words(suite, names):
    """The lines of a right unit that gives stages as name=hex."""
    layout = {f.name: f for f in line_fields(suite.unit, stages=True)}
    rows = []
    for batch in suite.batches():
        right = expected(batch)
        for n in range(len(batch)):
            words = []
            for name in names:
                f = layout[name]
                number = 0
                for k, value in enumerate(right[name][n].tolist()):
                    number |= (int(value) & ((1 << f.bits) - 1)) << (k * f.bits)
                words.append(f"{name}={number:0{f.bits * f.count // 4}x}")
            rows.append(" ".join(words))
    return rows


@pytest.fixture(scope="module")
def right():
    return lines_due(DOT)


def without_explaining(suite, lines, **options):
    return check(suite, lines, explain=False, **options)


# --- right answers, in every form


@pytest.mark.parametrize("suite", [DOT, SUM, RUNNING], ids=["dot", "sum", "running"])
def test_right_answers_pass(suite):
    verdict = check(suite, lines_due(suite))
    assert verdict
    assert verdict.status == 0
    assert verdict.total.right == suite.cases
    assert str(verdict) == f"PASS: {suite.cases} of {suite.cases} cases are right, every bit"


@pytest.mark.parametrize(
    "unit",
    [
        Unit("dot", blocks=3),
        Unit("dot", mxfp.MXFP8_E5M2, mxfp.MXFP4, lanes=4),
        Unit("dot", mxfp.NVFP4),
        Unit("running", blocks=2, accumulator=accumulator("blackwell")),
        Unit("dot", accumulator=accumulator("sequential:bfloat16")),
        Unit("dot", accumulator=accumulator("fixed:40:-20:wrap")),
    ],
    ids=str,
)
def test_right_answers_of_other_units_pass(unit):
    suite = Suite(unit, groups=("random-uniform",))
    assert check(suite, lines_due(suite))


def test_answers_may_have_numbers_and_come_out_of_order(right):
    numbered = [f"{n} {line}" for n, line in enumerate(right)]
    assert check(DOT, numbered)
    order = np.random.default_rng(5).permutation(len(numbered))
    assert check(DOT, [numbered[n] for n in order.tolist()])


def test_answers_may_be_json_lines_with_or_without_numbers(right):
    assert check(DOT, [json.dumps({"index": n, "result": line}) for n, line in enumerate(right)])
    assert check(DOT, [json.dumps({"result": line}) for line in right])


def test_answers_may_be_pairs_in_any_order_with_an_index(right):
    assert check(DOT, [f"result={line} index={n}" for n, line in enumerate(right)])
    assert check(DOT, [f"{n} result={line}" for n, line in enumerate(right)])


def test_capitals_comments_blank_lines_and_crlf_are_no_matter(right):
    text = "// a file of $writememh\n\n" + "\r\n".join(line.upper() for line in right) + "\r\n"
    assert check(DOT, io.BytesIO(text.encode()))


def test_a_last_line_without_an_end_is_read(right):
    assert check(DOT, io.BytesIO("\n".join(right).encode()))


def test_negative_sums_may_be_filled_with_zeros_or_with_their_sign():
    plain = [f"{v & 0x3FFF:04x}" for v in bits_due(SUM)]
    assert any(v < 0 for v in bits_due(SUM))
    assert plain != lines_due(SUM)
    assert check(SUM, plain)


def test_stages_may_be_packed_bit_by_bit():
    rows = []
    for batch in SUM.batches():
        found = expected(batch)
        for n in range(len(batch)):
            number = 0
            for k, value in enumerate(found["product"][n].tolist()):
                number |= (int(value) & 0x1FF) << (9 * k)
            rows.append(f"product={number:072x} sum={int(found['sum'][n, 0]) & 0xFFFF:04x}")
    assert check(SUM, rows)
    rows[17] = rows[17].replace("product=0", "product=1")
    assert check(SUM, rows).failures[0].stage == "product"


def test_a_prefix_picks_the_answers_out_of_chatter(right):
    said = ["VCD info: dumpfile x.vcd opened for output."]
    for line in right:
        said += [f"RESULT {line}", "some other line"]
    assert check(DOT, said, prefix="RESULT ")
    assert check(DOT, said).status == 2


# --- wrong answers


def test_one_flipped_bit_fails_and_is_shown_whole(right):
    wrong = list(right)
    wrong[7] = f"{int(wrong[7], 16) ^ 1:08x}"
    verdict = without_explaining(DOT, wrong)
    assert verdict.status == 1
    assert not verdict
    assert verdict.total.wrong == 1
    failure = verdict.failures[0]
    assert (failure.case, failure.group, failure.stage) == (7, "walking-lanes", "result")
    text = str(verdict)
    assert f"got      {wrong[7]}" in text
    assert f"expected {right[7]}" in text
    assert "1 ulp apart" in text
    assert "sign 0, exponent" in text
    assert "(level 1, seed 0)" in text
    assert f"group walking-lanes: 1 of {DOT.tally['walking-lanes']} wrong" in text
    assert text.endswith(f"FAIL: {DOT.cases - 1} of {DOT.cases} cases are right, every bit")


def test_failures_are_counted_by_group_and_class(right):
    verdict = without_explaining(DOT, ["7f800000" if line == "7fc00000" else line for line in right])
    assert set(name for name, tally in verdict.groups.items() if tally.wrong) == {"nan-scales"}
    assert verdict.classes["NaN"].wrong == verdict.total.wrong == verdict.groups["nan-scales"].wrong > 0


def test_the_operands_of_a_failure_are_those_of_the_case(right):
    verdict = without_explaining(DOT, ["00000001", *right[1:]])
    batch, row = DOT.case(0)
    assert np.array_equal(verdict.failures[0].batch.codes_a[0], batch.codes_a[row])
    assert len(verdict.failures[0].batch) == 1


def test_a_failing_step_is_shown_with_the_steps_before_it():
    lines = lines_due(RUNNING)
    first = np.concatenate([batch.first for batch in RUNNING.batches()])
    step = int(np.flatnonzero(~first)[5])
    lines[step] = "deadbeef"
    failure = without_explaining(RUNNING, lines).failures[0]
    assert failure.case == step
    assert failure.batch.first[0]
    assert not failure.batch.first[1:].any()
    assert len(failure.batch) == 1 + step - np.flatnonzero(first[: step + 1])[-1]
    assert str(failure).count("step ") == len(failure.batch)


@pytest.mark.parametrize("stage", ["product", "level1", "level4", "sum", "exponent", "special"])
def test_the_first_stage_that_differs_is_named(stage):
    suite = Suite(Unit("dot"), groups=("random-near-unit",))
    names = ("product", "level1", "level4", "sum", "exponent", "special", "result")
    rows = stage_words(suite, names)
    words = dict(word.split("=") for word in rows[3].split())
    for later in names[names.index(stage) :]:
        words[later] = f"{int(words[later], 16) ^ 1:0{len(words[later])}x}"
    rows[3] = " ".join(f"{name}={digits}" for name, digits in words.items())
    verdict = without_explaining(suite, rows)
    failure = verdict.failures[0]
    assert (failure.case, failure.stage, failure.place) == (3, stage, 0)
    assert verdict.stages == {stage: 1}
    assert f"first differs: {stage}" in str(failure)


def test_a_wrong_stage_fails_even_where_the_result_is_right():
    suite = Suite(Unit("dot"), groups=("walking-lanes",))
    rows = stage_words(suite, ("sum", "result"))
    rows[0] = rows[0].replace("sum=0", "sum=1")
    assert without_explaining(suite, rows).total.malformed + without_explaining(suite, rows).total.wrong == 1


def test_only_the_first_failures_are_kept_and_all_are_counted():
    verdict = without_explaining(DOT, ["12345678"] * DOT.cases, shown=3)
    assert len(verdict.failures) == 3
    assert verdict.total.wrong == DOT.cases


# --- X and Z


@pytest.mark.parametrize("said", ["xxxxxxxx", "3f8000xx", "zzzzzzzz", "X", "3F80000Z"])
def test_x_and_z_are_failures_of_their_case(right, said):
    verdict = without_explaining(DOT, [*right[:5], said, *right[6:]])
    assert verdict.status == 1
    assert (verdict.total.unknown, verdict.total.wrong) == (1, 0)
    assert verdict.failures[0].case == 5
    assert f"got      {said}" in str(verdict.failures[0])


def test_nothing_but_x_is_no_pass():
    verdict = check(DOT, ["xxxxxxxx"] * DOT.cases)
    assert verdict.status == 1
    assert verdict.total.unknown == DOT.cases


def test_an_x_in_a_stage_counts():
    suite = Suite(Unit("dot"), groups=("walking-lanes",))
    rows = stage_words(suite, ("sum", "result"))
    rows[1] = "sum=xxxx " + rows[1].split()[1]
    assert without_explaining(suite, rows).total.unknown == 1


# --- what is no answer


def unusable(lines, suite=DOT, **options):
    verdict = without_explaining(suite, lines, **options)
    assert verdict.status == 2
    assert not verdict
    assert "UNUSABLE" in str(verdict)
    assert "PASS" not in str(verdict)
    return verdict


def test_an_empty_file_is_said_to_be_empty():
    assert unusable(io.BytesIO(b"")).unusable == ["the answers are empty: the simulator wrote nothing"]


def test_comments_alone_are_no_answers():
    assert "none of 2 lines is an answer" in unusable(["// nothing", "# to see"]).unusable[0]


def test_a_simulator_that_died_halfway_is_reported_with_where(right):
    verdict = unusable(right[:100])
    assert verdict.total.missing == DOT.cases - 100
    assert "stop after case 99" in verdict.unusable[0]


def test_a_line_that_was_cut_off_is_reported(right):
    verdict = unusable(io.BytesIO(("\n".join(right[:100]) + "\n" + right[100][:5]).encode()))
    assert verdict.total.malformed == 1
    assert "5 digits; 8 hex digits are due" in str(verdict)


def test_a_missing_line_in_the_middle_is_no_pass(right):
    verdict = unusable([*right[:50], *right[51:]])
    assert verdict.total.missing == 1


def test_extra_lines_are_reported(right):
    verdict = unusable([*right, right[-1], right[-1]])
    assert verdict.counts == {"extra": 2}
    assert f"line {len(right) + 1}" in str(verdict)


def test_a_case_that_is_answered_twice_is_reported(right):
    numbered = [f"{n} {line}" for n, line in enumerate(right)]
    assert unusable([*numbered[:10], numbered[4], *numbered[10:]]).counts == {"duplicate": 1}
    assert unusable([*numbered, numbered[4]]).counts == {"duplicate": 1}


def test_a_number_that_is_left_out_is_missing_and_no_other(right):
    numbered = [f"{n} {line}" for n, line in enumerate(right)]
    verdict = unusable([*numbered[:10], *numbered[11:]])
    assert verdict.total.missing == 1
    assert verdict.total.wrong == 0


def test_a_number_beyond_the_cases_is_extra(right):
    numbered = [f"{n} {line}" for n, line in enumerate(right)]
    assert unusable([*numbered, f"{len(right) + 7} 00000000"]).counts == {"extra": 1}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("3f8", "3 digits; 8 hex digits are due (%h writes all of them, %0h does not)"),
        ("3f80000000", "10 digits; 8 hex digits are due"),
        ("0x3f800000", "has a prefix"),
        ("32'h3f800000", "has a prefix"),
        ("0b0011", "has a prefix"),
        ("00111111100000000000000000000000", "is binary"),
        ("1065353216", "decimal?"),
        ("-12", "is a signed number"),
        ("1.5", "is a decimal fraction"),
        ("3f80_000", "has '_' in it"),
        ("nan", "has 'n' in it"),
        ("hello", "in it; 8 hex digits are due"),
    ],
)
@pytest.mark.parametrize("place", [0, 5])
def test_a_malformed_value_takes_the_place_of_its_case(right, said, why, place):
    verdict = unusable([*right[:place], said, *right[place + 1 :]])
    assert verdict.total.malformed == 1
    assert verdict.total.wrong == 0
    assert verdict.problems[0].line == place + 1
    assert why in str(verdict.problems[0])


def test_decimal_sums_are_not_taken_for_hex():
    verdict = unusable([str(v) for v in bits_due(SUM)], SUM)
    assert verdict.counts["malformed"] > 100


def test_chatter_is_reported_with_the_way_out(right):
    verdict = unusable(["VCD info: dumpfile opened", *right])
    assert verdict.total.right == DOT.cases
    assert "--prefix" in str(verdict.problems[0])


def test_a_value_beyond_the_bits_of_the_field_is_reported():
    lines = lines_due(SUM)
    lines[3] = "7fff"
    verdict = unusable(lines, SUM)
    assert verdict.counts == {"range": 1}
    assert "case 3: '7fff' does not fit" in str(verdict)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (bytes(range(256)) * 64, "is no text"),
        (b"\x00" * (1 << 21), "bytes: this is no text"),
        ("\ufeff3f800000\n".encode("utf-16"), "UTF-16"),
    ],
    ids=["binary", "zeros", "utf-16"],
)
def test_what_is_not_text_is_reported(content, why):
    assert why in str(unusable(io.BytesIO(content)))


def test_lines_of_another_form_are_reported(right):
    mixed = [*right[:5], f"result={right[5]} sum=0000", *right[6:]]
    assert "not written as the answers before it" in str(unusable(mixed))
    numbered = [f"{n} {line}" for n, line in enumerate(right)]
    numbered[5] = right[5]
    assert unusable(numbered).total.missing == 1


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"index": 0, "result": 12}', "'result' is a text of hex digits"),
        ('{"index": 0, "result": "3f800000"', "is no JSON"),
        ('{"index": "a", "result": "3f800000"}', "is no number of a case"),
        ('{"result": "3f800000", "carry": "0"}', "no stage 'carry'"),
        ("result=3f800000 result=3f800000", "gives result twice"),
        ('{"result": "deadbeef", "result": "3f800000"}', "gives result twice"),
        ('{"index": 0, "case": 1, "result": "3f800000"}', "gives the number of its case twice"),
        ("0 index=1 result=3f800000", "gives the number of its case twice"),
        ("index=0 case=1 result=3f800000", "gives the number of its case twice"),
        ("index=0 index=0 result=3f800000", "gives the number of its case twice"),
        ('{"result": ""}', "result '' is empty"),
        ('{"index": ' + "9" * 5000 + ', "result": "3f800000"}', "is no JSON"),
        ("9" * 5000 + " 3f800000", "is no number of a case"),
        ('{"\\ud800": 5}', "'\\ud800' is a text of hex digits"),
        ('{"a\\nb": 5}', "'a\\nb' is a text of hex digits"),
        ("sum=0001", "gives no result"),
    ],
)
def test_records_that_are_no_answers_are_reported(line, why):
    assert why in str(unusable([line] * DOT.cases))


@pytest.mark.parametrize("more", ["result=00000000 ", "index=5 ", "5 "])
def test_what_is_given_twice_is_seen_among_thousands_of_lines_that_look_alike(more):
    suite = Suite(Unit("dot"), groups=("pairs", "walking-lanes"))
    rows = [f"index={n} result={line}" for n, line in enumerate(lines_due(suite))]
    assert check(suite, rows)
    verdict = unusable([*rows[:SIZE], *(more + row for row in rows[SIZE:])], suite)
    assert verdict.total.right == SIZE
    assert verdict.counts == {"malformed": suite.cases - SIZE}


def test_lines_alone_not_one_text_are_answers():
    with pytest.raises(TypeError, match="got one text"):
        check(DOT, "3f800000")


def test_integers_are_no_lines(right):
    with pytest.raises(TypeError, match="is a line of text or bytes, got 0"):
        check(DOT, [int(line, 16) % 1000 for line in right])


def test_a_byte_order_mark_of_utf_8_is_no_matter(right):
    assert check(DOT, io.BytesIO(b"\xef\xbb\xbf" + "\r\n".join(right).encode()))
    assert unusable(io.BytesIO("\n".join([right[0], "\ufeff" + right[1]]).encode())).counts == {"junk": 1}


def test_what_is_no_text_is_not_said_to_be_empty():
    found = unusable(io.BytesIO("3f800000\n".encode("utf-16"))).unusable
    assert found == ["the answers are not text, or not all of them"]


def test_binary_behind_thousands_of_answers_is_reported():
    lines = ("\n".join(lines_due(SUM)) + "\n").encode()
    verdict = unusable(io.BytesIO(lines + b"3" * (1 << 21)), SUM)
    assert verdict.total.right == SUM.cases
    assert "bytes: this is no text" in str(verdict)
    half = lines[: len(lines) // 2]
    cut = unusable(io.BytesIO(half[: half.rindex(b"\n") + 1] + b"3" * (1 << 21)), SUM)
    assert cut.total.missing == SUM.cases - cut.total.right > 100


class Flood:
    """A stream that never ends."""

    def __init__(self, head, line):
        self.left, self.piece, self.given = head, line * 1000, 0

    def read(self, size):
        found, self.left = self.left or self.piece, b""
        self.given += len(found)
        assert self.given < 1 << 26, "read on and on"
        return found


@pytest.mark.parametrize(
    "line",
    [
        b"3f800000\n",
        b"hello world\n",
        b"5 3f800000\n",
        b"99999 3f800000\n",
        b"5 3f8\n",
        b"result=3f800000 result=3f800000\n",
    ],
)
@pytest.mark.parametrize("answered", [False, True])
def test_a_simulator_that_never_stops_is_not_read_for_ever(right, line, answered):
    numbered = line[:1].isdigit() and b" " in line
    rows = [f"{n} {text}\n" if numbered else f"{text}\n" for n, text in enumerate(right)]
    verdict = unusable(Flood("".join(rows).encode() * answered, line))
    assert verdict.counts["flood"] == 1
    assert sum(verdict.counts.values()) > 100_000
    assert "more than 100,000 lines" in str(verdict)
    assert (verdict.total.right == DOT.cases) is answered


def test_a_record_of_brackets_alone_is_no_answer():
    assert "too many brackets" in str(unusable(['{"a":' * 100_000]))


def test_numbered_answers_that_run_ahead_are_held_in_bounded_memory():
    unit = Unit("dot", lanes=4096)
    digits = sum(f.count * f.bits // 4 for f in line_fields(unit, stages=True) if not f.given)
    reader = AnswerReader((f"{n} 3f800000" for n in range(1, 1 << 20)), unit)
    reader.take(1)
    assert reader.line * digits < 1 << 28
    assert reader.line > 1000
    backwards = AnswerReader((f"{n} 3f800000" for n in range(65536, -1, -1)), Unit("dot"))
    assert backwards.take(65537).state.sum() == 0


# --- policies


def test_a_tolerance_is_a_named_policy_and_is_said(right):
    near = [f"{int(line, 16) + 1:08x}" if 0 < int(line, 16) < 0x7F000000 else line for line in right]
    assert near != right
    assert check(DOT, near, policy="bits", explain=False).status == 1
    verdict = check(DOT, near, policy="ulps:1")
    assert verdict
    assert "policy ulps:1" in str(verdict)


def test_other_nans_and_zeros_pass_only_where_they_are_named(right):
    other = ["ffffffff" if line == "7fc00000" else line for line in right]
    assert check(DOT, other, policy="zero-sign+ulps:3", explain=False).status == 1
    assert check(DOT, other, policy="nan-any")
    negative = ["80000000" if line == "00000000" else line for line in right]
    assert negative != right
    assert check(DOT, negative, policy="nan-any+ulps:3", explain=False).status == 1
    assert check(DOT, negative, policy="zero-sign")


def test_no_tolerance_makes_infinity_a_number():
    policy, unit = Policy.named("ulps:4"), Unit("dot")
    due, got = np.array([0x7F7FFFFF, 0x7F800000], np.uint64), np.array([0x7F800000, 0x7F7FFFFF], np.uint64)
    assert not policy.same(unit, due, got).any()


def test_a_policy_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="no policy 'close'; there are bits, nan-any"):
        check(DOT, [], policy="close")


def test_ulps_of_float64_do_not_wrap():
    policy = Policy.named(f"ulps:{1 << 62}")
    unit = Unit("dot", accumulator=accumulator("sequential:float64"))
    largest = np.array([0x7FEFFFFFFFFFFFFF], np.uint64)
    negative = largest | np.uint64(1 << 63)
    assert not policy.same(unit, largest, negative).any()
    assert ulps(unit, largest, negative)[0].tolist() == [2 * 0x7FEFFFFFFFFFFFFF]
    assert policy.same(unit, largest, np.array([1 << 62], np.uint64)).all()


@pytest.mark.parametrize(
    "text", ["ulps:²", "ulps:-1", "ulps:", "ulps:1.5", "ulps", "bits+close", "nan-any:1", ""]
)
def test_policies_that_are_none_are_named(text):
    with pytest.raises(ValueError, match=r"no policy .*; there are bits"):
        Policy.named(text)


# --- long streams


def test_lines_that_look_alike_and_those_that_do_not_give_the_same():
    unit = Unit("dot")
    rng = np.random.default_rng(1)
    values = rng.integers(0, 1 << 32, 30_000)
    plain = "".join(f"{v:08x}\n" for v in values.tolist()).encode()
    broken = "".join(f"{' ' * (n % 3)}{v:08x}\n" for n, v in enumerate(values.tolist())).encode()
    for text in (plain, broken):
        reader = AnswerReader(io.BytesIO(text), unit)
        for start in range(0, 30_000, 7001):
            found = reader.take(min(7001, 30_000 - start))
            assert not found.state.any()
            assert np.array_equal(
                found.values["result"][:, 0], values[start : start + 7001].astype(np.uint64)
            )
        reader.finish()
        assert not reader.counts
        assert reader.line == 30_000


def test_memory_does_not_grow_with_the_answers():
    unit = Unit("dot")
    line = b"3f800000\n"

    def pieces(count):
        for _ in range(count):
            yield line * 1000

    def peak(count):
        class Stream:
            def __init__(self):
                self.left = pieces(count)

            def read(self, size):
                return next(self.left, b"")

        tracemalloc.start()
        reader = AnswerReader(Stream(), unit)
        for _ in range(count // 10):
            reader.take(10_000)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert reader.line == count * 1000
        return most

    peak(50)
    assert peak(1000) < 1.5 * peak(100)


# --- reports


def test_json_and_junit_hold_the_verdict(right, tmp_path):
    wrong = [f"{int(right[0], 16) ^ 1:08x}", *right[1:]]
    verdict = check(DOT, wrong)
    verdict.write_json(tmp_path / "verdict.json")
    verdict.write_junit(tmp_path / "verdict.xml")
    record = json.loads((tmp_path / "verdict.json").read_text())
    assert record["schema"] == "mxfp-verdict/1"
    assert record["status"] == 1
    assert record["failures"][0]["case"] == 0
    assert record["failures"][0]["steps"][0]["a"] == DOT.case(0)[0].codes_a[0].tolist()
    root = ElementTree.parse(tmp_path / "verdict.xml").getroot()
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("4", "1", "0")
    assert [case.get("name") for case in root.iter("testcase")] == [*DOT.tally, "answers"]
    assert "case 0 of walking-lanes" in next(root.iter("failure")).text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["verdict.json", "verdict.xml"]


ODD = (
    "a\"b<c>&'",
    "nul\0",
    "\ud800x",
    "tab\tnl\nend",
    "\x1b[31m",
    "naïve 😀",
    "]]>",
    "answers",
    "\uffff",
    " ",
)


class Oddly:
    """Vectors whose groups have names that XML cannot hold."""

    unit, seed, level = Unit("dot"), 1, "\0<"

    def batches(self):
        batch = next(Suite(self.unit, groups=("walking-lanes",)).batches(size=64))
        yield replace(batch, group=np.arange(len(batch)) % len(ODD), groups=ODD)


def test_reports_are_whole_whatever_groups_are_called(tmp_path):
    verdict = check(Oddly(), ["00000001"] * 64)
    verdict.write_junit(tmp_path / "a.xml")
    root = ElementTree.parse(tmp_path / "a.xml").getroot()
    names = [case.get("name") for case in root.iter("testcase")]
    assert names[0] == ODD[0]
    assert names[1:5] == ["nul?", "?x", ODD[3], "?[31m"]
    assert names[5:] == ["naïve 😀", "]]>", "answers", "?", " ", "answers"]
    assert len(list(root.iter("failure"))) == len(ODD)
    assert [p.get("value") for p in root.iter("property")] == ["bits", "?<", "1"]
    verdict.write_json(tmp_path / "a.json")
    assert list(json.loads((tmp_path / "a.json").read_text())["groups"]) == list(ODD)


def test_junit_has_an_error_for_answers_that_cannot_be_used(right):
    root = ElementTree.fromstring(check(DOT, [*right[:9], "\x1b[31m"], explain=False).junit())
    assert root.get("errors") == "1"
    assert "stop after case 8" in next(root.iter("error")).get("message")


# --- the command


def mxfp_command(*words, given=None):
    return subprocess.run(
        [sys.executable, "-m", "mxfp", *words], input=given, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")
    done = mxfp_command("vectors", "dot", "--group", "walking-lanes", "--out", str(folder))
    assert done.returncode == 0, done.stderr
    lines = lines_due(Suite(Unit("dot"), groups=("walking-lanes",)))
    (folder / "right.txt").write_text("\n".join(lines) + "\n")
    (folder / "wrong.txt").write_text("\n".join(["00000001", *lines[1:]]) + "\n")
    return folder


def test_the_exit_status_is_0_1_or_2(files):
    sidecar = str(files / "dot.json")
    right = mxfp_command("check", sidecar, "--results", str(files / "right.txt"))
    assert (right.returncode, right.stdout.startswith("PASS: 1920 of 1920")) == (0, True)
    wrong = mxfp_command("check", sidecar, "--results", str(files / "wrong.txt"), "--no-explain")
    assert wrong.returncode == 1
    assert "FAIL: 1919 of 1920" in wrong.stdout
    assert mxfp_command("check", sidecar, given="").returncode == 2


def test_a_pipe_needs_no_files():
    asked = ("dot", "--group", "walking-lanes")
    lines = mxfp_command("vectors", *asked, "--stdout").stdout.splitlines()
    results = "\n".join(line[:8] for line in lines)  # the result is the highest field
    assert mxfp_command("check", *asked, given=results).returncode == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("dot", "--results", "nowhere.txt"), "did the simulator run?"),
        (("nowhere.json",), "there is no nowhere.json"),
        (("dot", "--policy", "close"), "no policy 'close'"),
        (("dot", "--policy", "ulps:²"), "no policy 'ulps:²'"),
        ((".",), "Is a directory"),
    ],
)
def test_a_wrong_call_is_one_line_and_status_2(words, why):
    done = mxfp_command("check", *words, given="")
    assert done.returncode == 2
    assert why in done.stderr
    assert "Traceback" not in done.stderr


def test_a_closed_standard_input_is_one_line_and_status_2(files):
    call = f"{sys.executable} -m mxfp check {files / 'dot.json'} <&-"
    done = subprocess.run(["sh", "-c", call], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "standard input is closed; give --results" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("option", ["--junit", "--json"])
def test_a_report_that_cannot_be_written_is_said_before_the_answers_are_read(files, tmp_path, option):
    (tmp_path / "file").write_text("x")
    for path, why in (("nowhere/a", "there is no folder"), ("file/a", "there is no folder")):
        asked = ("check", str(files / "dot.json"), option, str(tmp_path / path))
        done = mxfp_command(*asked, "--results", str(files / "right.txt"))
        assert (done.returncode, done.stdout) == (2, "")
        assert why in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]


def test_a_report_that_fails_at_the_end_leaves_the_verdict_and_the_old_report(files, tmp_path, monkeypatch):
    def full(path, write):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(verdicts, "write_whole", full)
    (tmp_path / "a.xml").write_text("old")
    asked = ["check", str(files / "dot.json"), "--results", str(files / "right.txt")]
    done = CliRunner().invoke(cli.cli, [*asked, "--junit", str(tmp_path / "a.xml")])
    assert done.exit_code == 2
    assert done.stdout.startswith("PASS: 1920 of 1920")
    assert "No space left on device" in done.stderr
    assert (tmp_path / "a.xml").read_text() == "old"


def test_an_interrupted_check_is_one_line_and_writes_nothing(files, tmp_path):
    call = [
        sys.executable,
        "-m",
        "mxfp",
        "check",
        str(files / "dot.json"),
        "--junit",
        str(tmp_path / "a.xml"),
    ]
    run = subprocess.Popen(
        call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    run.stdin.write("00000000\n" * 100_000)  # more than a pipe holds: it reads
    run.send_signal(signal.SIGINT)
    said, errors = run.communicate()
    assert run.returncode == 130
    assert said == ""
    assert errors.strip() == "mxfp: interrupted"
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_goes_away_is_no_traceback_and_no_pass(files):
    check_it = (
        f"{sys.executable} -m mxfp check {files / 'dot.json'} --results {files / 'wrong.txt'} --show 99"
    )
    for reader in ("true", "head -n 1", "exec <&-"):
        call = f"({check_it}; echo status $? >&2) | ({reader})"
        done = subprocess.run(["sh", "-c", call], capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr
        assert done.stderr.splitlines()[-1] in ("status 1", "status 141")


def test_a_sidecar_takes_no_options_of_vectors(files):
    done = mxfp_command("check", str(files / "dot.json"), "--seed", "3", given="")
    assert done.returncode == 2
    assert "--seed" in done.stderr


def test_a_file_that_is_no_sidecar_is_status_2(files):
    (files / "other.json").write_text("{}")
    done = mxfp_command("check", str(files / "other.json"), given="")
    assert done.returncode == 2
    assert "is not a sidecar" in done.stderr


def test_the_command_writes_both_reports(files, tmp_path):
    done = mxfp_command(
        "check", str(files / "dot.json"), "--results", str(files / "wrong.txt"), "--no-explain",
        "--junit", str(tmp_path / "a.xml"), "--json", str(tmp_path / "a.json"),
    )  # fmt: skip
    assert done.returncode == 1
    assert json.loads((tmp_path / "a.json").read_text())["total"]["wrong"] == 1
    assert ElementTree.parse(tmp_path / "a.xml").getroot().get("failures") == "1"
