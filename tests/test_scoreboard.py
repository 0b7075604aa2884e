# SPDX-License-Identifier: Apache-2.0
"""The scoreboard: right, wrong, late, lost, undefined, by order and by tag; and it needs no simulator."""

import subprocess
import sys

import numpy as np
import pytest

import mxfp
from mxfp.verify.coverage import Coverage
from mxfp.verify.mismatch import STAGES, Undefined, stage_order
from mxfp.verify.scoreboard import Scoreboard
from mxfp.verify.unit import Unit, expected
from mxfp.verify.vectors import Suite

DOT = Unit("dot", lanes=2)
SUM = Unit("sum", lanes=2)
ONE = {"scale_a": 127, "scale_b": 127}


def suite_batch(unit, group="random-corner"):
    return next(iter(Suite(unit, groups=(group,)).batches(size=64)))


def bits_of(batch):
    return expected(batch)["result"][:, 0].tolist()


def test_right_results_in_order_pass():
    batch = suite_batch(Unit("dot"))
    board = Scoreboard(batch.unit)
    board.push_batch(batch)
    for bits in bits_of(batch):
        assert board.got(bits) is None
    assert board.finish() == "PASS: 64 cases, 64 right, 0 wrong, 0 missing, 0 unasked"
    assert board.passed


@pytest.mark.parametrize("unit", [Unit("running"), Unit("running", accumulator=mxfp.Exact("bfloat16"))])
def test_a_running_unit_is_expected_case_by_case_as_in_a_batch(unit):
    batch = suite_batch(unit, "sticky")
    assert not batch.first.all()
    board = Scoreboard(unit)
    for row, bits in enumerate(bits_of(batch)):
        board.push(
            batch.codes_a[row].tolist(),
            batch.codes_b[row].tolist(),
            scale_a=batch.scales_a[row].tolist(),
            scale_b=batch.scales_b[row].tolist(),
            first=bool(batch.first[row]),
        )
        assert board.got(bits) is None
    board.finish()
    assert board.passed


def test_results_by_tag_may_come_in_any_order():
    batch = suite_batch(Unit("dot"))
    board = Scoreboard(batch.unit)
    board.push_batch(batch, tags=list(range(64)))
    for row in range(63, -1, -1):
        assert board.got(bits_of(batch)[row], tag=row) is None
    board.finish()
    assert board.passed


def test_a_tag_can_be_used_again_once_it_is_answered_and_not_before():
    board = Scoreboard(SUM)
    board.push([7, 0], [7, 0], tag=3)
    with pytest.raises(ValueError, match="tag 3"):
        board.push([1, 0], [1, 0], tag=3)
    board.got(144, tag=3)
    board.push([1, 0], [1, 0], tag=3)
    assert board.got(1, tag=3) is None


def test_one_flipped_bit_is_a_mismatch_with_operands_and_both_results():
    board = Scoreboard(DOT)
    board.push([7, 1], [7, 9], **ONE)
    found = board.got(0x420F0001)
    assert str(found) == (
        "case 0: result is 0x420f0001 (35.75), expected 0x420f0000 (35.75)\n"
        "  block 0: sum 143, scales 127 × 127, term 143 · 2^-2\n"
        "    lane 0      7 × 7  6 × 6  (12 · 12 = 144)\n"
        "    lane 1      1 × 9  0.5 × -0.5  (1 · -1 = -1)"
    )
    assert board.finish() == "FAIL: 1 case, 0 right, 1 wrong, 0 missing, 0 unasked"
    assert not board.passed


def test_a_mismatch_of_a_running_unit_shows_every_step_since_it_was_cleared():
    board = Scoreboard(Unit("running", lanes=2))
    for first in (True, True, False):
        board.push([7, 0], [7, 0], first=first, **ONE)
    for bits in (0x42100000, 0x42100000, 0x42100000):  # 36, 36, and 36 again instead of 72
        found = board.got(bits)
    text = str(found)
    assert "expected 0x42900000 (72)" in text
    assert text.count("block 0: sum 144") == 2
    assert "step 0, first\n" in text
    assert "step 1\n" in text


def test_the_first_stage_that_differs_is_the_one_that_is_told():
    right = {"product": [144, -1], "level1": 143, "sum": 143, "exponent": -2, "special": 0}
    for stage, wrong in (
        ("product", [144, 1]),
        ("level1", 145),
        ("sum", 145),
        ("exponent", 254),
        ("special", 1),
    ):
        board = Scoreboard(DOT)
        board.push([7, 1], [7, 9], **ONE)
        names = list(right)
        later = {name: right[name] for name in names[: names.index(stage)]} | {stage: wrong}
        found = board.got(0, stages=dict(reversed(later.items())))
        assert found.stage == stage
        assert found.index == (1 if stage == "product" else 0)


def test_a_right_result_does_not_hide_a_wrong_stage():
    board = Scoreboard(DOT)
    board.push([0, 0], [0, 0], **ONE)
    assert board.got(0, stages={"exponent": 4}).stage == "exponent"
    assert not board.passed


def test_stages_are_ordered_as_the_numbers_travel():
    names = ["result", "term", "sum", "level2", "exponent", "level10", "product", "special", "level1"]
    assert sorted(names, key=stage_order) == [
        *("product", "level1", "level2", "level10", "sum", "exponent", "special", "term", "result")
    ]
    assert len(STAGES) == 7
    with pytest.raises(ValueError, match="'carry' is no stage"):
        stage_order("carry")


@pytest.mark.parametrize("given", [-142, (1 << 10) - 142, (1 << 16) - 142])
def test_a_negative_sum_may_be_signed_or_as_wide_as_its_register_or_wider(given):
    board = Scoreboard(SUM)
    board.push([7, 1], [15, 2])
    assert board.unit.sum_bits == 10
    assert board.got(given) is None


@pytest.mark.parametrize("given", [142, -143, (1 << 9) - 142, (1 << 16) - 142 - (1 << 12), 0])
def test_other_values_are_not_a_negative_sum(given):
    board = Scoreboard(SUM)
    board.push([7, 1], [15, 2])
    assert board.got(given) is not None


@pytest.mark.parametrize("given", [0xC20A0000, 0xC20A0000 - (1 << 32)])
def test_a_result_may_be_given_as_a_signed_integer_of_its_bits(given):
    board = Scoreboard(DOT)
    board.push([7, 1], [15, 5], **ONE)
    assert board.got(given) is None
    board.push([7, 1], [15, 5], **ONE)
    assert board.got(given + 1) is not None


def test_undefined_bits_are_wrong_whatever_was_expected():
    board = Scoreboard(DOT)
    board.push([0, 0], [0, 0], **ONE)
    found = board.got(Undefined("0" * 31 + "X"))
    assert "X (undefined bits)" in str(found)
    board.push([0, 0], [0, 0], **ONE)
    assert board.got(0, stages={"sum": Undefined("Z" * 9)}).stage == "sum"
    assert board.wrong == 2


def test_cases_that_are_not_answered_are_missing_at_the_end():
    board = Scoreboard(DOT)
    for tag in ("x", "y"):
        board.push([7, 1], [7, 9], tag=tag, **ONE)
    board.got(0x420F0000, tag="y")
    assert board.waiting == 1
    assert "1 still waiting" in board.summary
    assert board.summary.startswith("FAIL")
    assert board.finish() == "FAIL: 2 cases, 1 right, 0 wrong, 1 missing, 0 unasked"
    assert str(board.failures[0]).startswith("case 0 (tag x): no result came; expected 0x420f0000 (35.75)")


def test_a_result_that_was_not_asked_for_fails():
    board = Scoreboard(DOT)
    board.push([0, 0], [0, 0], **ONE)
    board.got(0)
    assert board.passed
    assert str(board.got(5)) == "a result without a case: 0x5"
    assert str(board.got(0, tag=9)) == "a result without a case, tag 9: 0x0"
    assert board.finish() == "FAIL: 1 case, 1 right, 0 wrong, 0 missing, 2 unasked"


def test_nothing_at_all_is_no_pass():
    assert not Scoreboard(DOT).passed
    assert Scoreboard(DOT).finish().startswith("FAIL: 0 cases")


def test_only_some_failures_are_told_and_all_are_counted():
    batch = suite_batch(Unit("dot"), "pairs")
    board = Scoreboard(batch.unit, limit=3)
    board.push_batch(batch)
    for bits in bits_of(batch):
        board.got(bits ^ 1)
    assert (board.wrong, len(board.failures)) == (64, 3)
    assert [f.number for f in board.failures] == [0, 1, 2]


def test_coverage_counts_what_came_and_illegal_results_with_their_case():
    cover = Coverage(DOT)
    board = Scoreboard(DOT, coverage=cover)
    for _ in range(2):
        board.push([7, 1], [7, 9], **ONE)
    board.got(0x420F0000)
    board.got(0x7FC00000)
    board.push([0, 0], [0, 0], **ONE)
    board.finish()
    assert cover.cases == 2
    assert [(hit.bin.name, hit.case) for hit in cover.wrong()] == [("NaN of numbers", 1)]


def test_coverage_of_a_running_unit_counts_each_case_once():
    batch = suite_batch(Unit("running"), "sticky")
    cover, whole = Coverage(batch.unit), Coverage(batch.unit)
    board = Scoreboard(batch.unit, coverage=cover)
    board.push_batch(batch)
    for bits in bits_of(batch):
        board.got(bits)
    board.finish()
    whole.add(batch)
    assert cover.cases == len(batch) > 60
    for family in ("sum", "rounding", "accumulation", "result", "element of a"):
        assert np.array_equal(cover.counts[family], whole.counts[family]), family


@pytest.mark.parametrize("given", [-1, 1 << 40, 0xC20A0000 - (1 << 32)])
def test_coverage_takes_whatever_bits_a_result_has(given):
    for unit, pushed in ((DOT, ONE), (SUM, {})):
        cover = Coverage(unit)
        board = Scoreboard(unit, coverage=cover)
        board.push([7, 1], [15, 5], **pushed)
        board.got(given << 70 if unit is SUM and given > 0 else given)
        board.finish()
        assert cover.cases == 1


def test_coverage_of_long_sequences_is_counted_as_it_goes():
    unit = Unit("running", lanes=2)
    cover = Coverage(unit)
    board = Scoreboard(unit, coverage=cover)
    for n in range(60):
        board.push([7, 1], [1, 9], first=n == 0, **ONE)
        board.got(0)
        assert len(board._answered.numbers) < 1024
    assert 60 > cover.cases > 30
    board.finish()
    assert cover.cases == cover.count("sum", "positive, 5 bits") == 60


def test_a_long_sequence_is_pushed_step_by_step_and_shown_by_its_end():
    unit = Unit("running", lanes=2, accumulator=mxfp.Sequential("float16"))
    board = Scoreboard(unit)
    for n in range(300):
        board.push([7, 0], [7, 0], first=n == 0, **ONE)
        found = board.got(int(np.float16(36.0 * (n + 1)).view(np.uint16)))
        if found:
            break
    assert n > 50
    assert f"  {n + 1 - 32} steps before these\n  step {n - 31}\n" in str(found)
    assert str(found).count("block 0") == 32


def test_what_is_no_value_of_a_stage_leaves_the_case_waiting():
    board = Scoreboard(DOT)
    board.push([0, 0], [0, 0], **ONE)
    for stages in ({"sum": [0.0]}, {"sum": ["0"]}, {"sum": [0, 0]}, {"term": 0}, {"sum": [None]}):
        with pytest.raises(ValueError, match=r"sum|term"):
            board.got(0, stages=stages)
    with pytest.raises((ValueError, TypeError)):
        board.got(0.0)
    assert board.waiting == 1
    assert board.got(0) is None


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda board: board.push([7.5, 1], [7, 7], **ONE), r"codes_a is 2 codes, 0 … 15, got \[7.5, 1.0\]"),
        (lambda board: board.push([7, 1], [7.0, 7.0], **ONE), "codes_b is 2 codes"),
        (lambda board: board.push([7, 1], [7, None], **ONE), "codes_b is 2 codes"),
        (lambda board: board.push([7, 1], [7, 10**30], **ONE), "codes_b is 2 codes"),
        (lambda board: board.push([7, 1], [7, -1], **ONE), "codes_b is 2 codes"),
        (lambda board: board.push([7], [7, 7], **ONE), "codes_a is 2 codes"),
        (lambda board: board.push([7, 16], [7, 7], **ONE), r"0 … 15, got \[7, 16\]"),
        (lambda board: board.push([7, 1], [7, 7]), "scales_a is 1 codes"),
        (lambda board: board.push([7, 1], [7, 7], scale_a=256, scale_b=0), "0 … 255, got 256"),
        (lambda board: board.push_batch(suite_batch(SUM, "pairs")), "the scoreboard is of"),
        (lambda board: (board.push([7, 1], [7, 7], **ONE), board.got(0, stages={"term": 1})), "not term"),
        (lambda board: (board.push([7, 1], [7, 7], **ONE), board.got(0, stages={"sum": [1, 2]})), "got 2"),
    ],
)
def test_wrong_calls_say_what_was_expected(call, said):
    with pytest.raises(ValueError, match=said):
        call(Scoreboard(DOT))


def test_a_running_unit_begins_with_a_first_case():
    with pytest.raises(ValueError, match="must be marked first"):
        Scoreboard(Unit("running", lanes=2)).push([7, 1], [7, 7], first=False, **ONE)


def test_the_scoreboard_and_coverage_need_no_simulator():
    code = "import sys, mxfp.verify.scoreboard; print(*sorted({n.split('.')[0] for n in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "numpy" in loaded
    assert not loaded & {"cocotb", "click", "numba", "rich"}
