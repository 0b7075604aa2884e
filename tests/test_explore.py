# SPDX-License-Identifier: Apache-2.0
"""The lessons: what they compute and check, their notebooks, and the pages in a real browser."""

import importlib
import importlib.util
import itertools
import math
import socket
import subprocess
import sys
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

import browser
import mxfp
import oracle
import support
from mxfp import blocks, cli
from mxfp.encode import ROUNDINGS
from mxfp.explore import accumulator, block, catalogue, fields, integers, journey, number, server, tables
from mxfp.explore.presets import Preset, Presets
from mxfp.explore.questions import Question

MODULES = {
    lesson.name: importlib.import_module(f"mxfp.explore.{lesson.name}") for lesson in catalogue.LESSONS
}
PRESETS = [(name, title) for name, module in MODULES.items() for title in module.PRESETS.titles]
QUESTIONS = [(name, key) for name, module in MODULES.items() for key in module.QUESTIONS]


# --- fields


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.1", 0.1),
        (" -6 ", -6.0),
        ("−6", -6.0),
        ("1e-3", 1e-3),
        ("2^24", 2.0**24),
        ("-2**-3", -0.125),
        ("1.75*2^2", 7.0),
        ("1.5·2^1", 3.0),
        ("0x1.8p3", 12.0),
        ("-0", -0.0),
        ("-inf", -math.inf),
        ("7.999999999999999", float(np.nextafter(8.0, 0.0))),
    ],
)
def test_a_number_is_read_in_every_way_that_one_writes_it(text, value):
    support.same_bits(np.float64(fields.number(text)), np.float64(value))


@pytest.mark.parametrize(
    "text", ["", "two", "1,5x", "2^", "2^99999", "2^99999999999999999999", "--1", "0x", "1e", "<b>"]
)
def test_what_is_no_number_is_named(text):
    with pytest.raises(ValueError, match=r"is no number; write 0\.1"):
        fields.number(text)


def test_numbers_are_separated_and_repeated():
    assert fields.numbers("6, -0.5\n1*3 2^4 2**1 2^4*2 1.5*2^2").tolist() == [
        6,
        -0.5,
        1,
        1,
        1,
        16,
        2,
        16,
        16,
        6,
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no numbers"),
        ("1 two", "'two' is no number"),
        ("1*0", "how often"),
        ("1*x", "how often"),
        ("1*99999999999999999999", "how often"),
        ("1*33", "that is 33 numbers; there is room for 32"),
        ("1 " * 33, "that is 33 numbers; there is room for 32"),
    ],
)
def test_a_field_says_what_is_wrong_with_it(text, said):
    with pytest.raises(ValueError, match=said):
        fields.numbers(text, 32)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("14", 14),
        ("14.0", 14),
        ("−3584", -3584),
        ("1,024", 1024),
        ("4 096", 4096),
        ("1/4", Fraction(1, 4)),
        ("2^-2", Fraction(1, 4)),
        ("0.1", Fraction(1, 10)),
        ("1e3", 1000),
    ],
)
def test_an_answer_is_an_exact_number(text, value):
    assert fields.exact(text) == value


@pytest.mark.parametrize("text", ["", "many", "nan", "inf", "1/0", "1e99999999", "1" * 50, "2^x"])
def test_an_answer_that_is_no_number_is_said_to_be_none_at_once(text):
    with pytest.raises(ValueError, match="write 14, -3584"):
        fields.exact(text)


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (0.1, "0.1"),
        (-0.0, "-0"),
        (1 / 3, "0.333333"),
        (float(np.nextafter(8.0, 0.0)), "7.999999999999999"),
        (2.5000000000000004, "2.5000000000000004"),
        (16777217.0, "16777217"),
        (-(2.0**36), "-2^36"),
        (2.0**-20, "2^-20"),
        (3.0 * 2.0**-20, "2.86102e-06"),
        (math.inf, "inf"),
        (math.nan, "nan"),
    ],
)
def test_a_number_is_shown_short_and_never_as_another_one(x, text):
    assert tables.shown(x) == text


# --- questions and presets

ANSWERS = {
    ("number", "five"): 4,
    ("number", "ties"): 4,
    ("number", "codes"): 15,
    ("number", "apart"): 2,
    ("block", "scale"): 4,
    ("block", "rceil"): 6,
    ("block", "outlier"): 31,
    ("block", "log2"): 1,
    ("block", "nan"): "they become NaN too",
    ("integers", "integer"): 3,
    ("integers", "bits"): 14,
    ("integers", "wrapped"): -3584,
    ("integers", "most"): 28,
    ("accumulator", "first"): 2048,
    ("accumulator", "last"): 2064,
    ("accumulator", "bits"): 11,
    ("accumulator", "blackwell"): "0",
    ("journey", "rules"): 1.5,
    ("journey", "largest"): 1152,
    ("journey", "nan"): "NaN",
}
"""Worked out by hand, from the specification and contract.md."""


def test_every_question_has_its_answer_here():
    assert set(ANSWERS) == set(QUESTIONS)


@pytest.mark.parametrize(("lesson", "key"), QUESTIONS)
def test_the_right_answer_is_right_and_says_why(lesson, key):
    question = MODULES[lesson].QUESTIONS[key]
    assert question.check(str(ANSWERS[lesson, key])) == ("right", question.because)


@pytest.mark.parametrize(("lesson", "key"), QUESTIONS)
def test_every_wrong_answer_that_has_a_hint_is_wrong_and_gets_it(lesson, key):
    question = MODULES[lesson].QUESTIONS[key]
    for wrong, hint in question.hints.items():
        assert question.check(wrong) == ("wrong", hint)
    others = question.choices or ("123456789",)
    for other in set(others) - set(question.hints) - {str(ANSWERS[lesson, key])}:
        assert question.check(other) == ("wrong", question.hint)


@pytest.mark.parametrize(("lesson", "key"), QUESTIONS)
def test_no_hint_gives_the_answer_away_by_being_it(lesson, key):
    question = MODULES[lesson].QUESTIONS[key]
    assert question.hint != question.because
    if question.choices:
        assert ANSWERS[lesson, key] in question.choices


def test_an_answer_is_open_until_it_is_given_and_readable_or_not():
    question = Question("?", lambda: Fraction(1, 4), "yes", "no")
    assert [question.check(given).mark for given in (None, "", "  ", "a quarter", "0.3", "0.25", "2^-2")] == [
        *["open"] * 3,
        "unreadable",
        "wrong",
        "right",
        "right",
    ]


def test_a_preset_keeps_the_settings_of_the_first_one_that_it_does_not_change():
    presets = Presets({"a": Preset("", {"x": 1, "y": 2}), "b": Preset("", {"y": 3})})
    assert presets.settings("b") == {"x": 1, "y": 3}
    assert [presets.opening(asked) for asked in ("b", "c", None, ["b"])] == ["b", "a", "a", "a"]


@pytest.mark.parametrize(("lesson", "title"), PRESETS)
def test_a_preset_sets_only_what_the_lesson_has(lesson, title):
    presets = MODULES[lesson].PRESETS
    assert presets.settings(title).keys() == presets.settings(presets.titles[0]).keys()
    assert presets.look(title).rstrip().endswith((".", "!", "?"))


# --- lesson 1


@pytest.mark.parametrize("rounding", ROUNDINGS[:3])
@pytest.mark.parametrize("name", number.FORMATS)
def test_the_bracket_at_the_end_of_an_interval_says_which_code_the_end_becomes(name, rounding):
    element = number.FORMATS[name]
    shown = number.codes_table(number.encoded(0.0, element, rounding), most=99)
    assert len(shown.rows) == len(oracle.magnitudes(name))
    for code, _, value, interval, integer in shown.rows:
        low, high = (float(end) for end in interval[1:-1].replace("∞", "inf").split(","))
        for end, bracket in ((low, interval[0]), (high, interval[-1])):
            found = int(mxfp.encode([end], element, rounding=rounding)[0])
            belongs = bracket in "[]" or math.isinf(end)
            assert (found == int(code)) == belongs, (interval, end)
        inside = float(np.nextafter(low, 9e9)), float(np.nextafter(min(high, 1e9), 0))
        assert mxfp.encode(inside, element, rounding=rounding).tolist() == [int(code)] * 2
        assert float(value) == element.values[int(code)] == int(integer) * 2.0**element.lsb_exponent


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_what_happened_to_a_number_is_told_for_every_step_of_the_slider(rounding):
    low, high, step = number.slider(mxfp.E2M1)
    for x in np.arange(low, high + step, step):
        e = number.encoded(float(x), mxfp.E2M1, rounding)
        if rounding != "stochastic":
            assert e.value == float(mxfp.decode(mxfp.encode([x], mxfp.E2M1, rounding=rounding), mxfp.E2M1)[0])
        assert (e.fate == "exact") == (e.value == x) == ("nothing is lost" in number.story(e))
        assert (e.fate == "saturated") == (abs(x) > 6) == ("saturates" in number.story(e))
        assert "".join(e.fields) == f"{e.code:04b}"


def test_the_slider_stops_at_every_tie_of_its_format():
    for element in number.FORMATS.values():
        low, _, step = number.slider(element)
        ties = (element.magnitudes[:-1] + element.magnitudes[1:]) / 2
        assert np.all((ties - low) % step == 0)


def test_stochastic_draws_are_counted_and_their_mean_is_near():
    counted = number.draws_table(2.25, mxfp.E2M1)
    counts = {value: int(times) for value, times in counted.rows}
    assert set(counts) == {"2", "3"}
    assert sum(counts.values()) == number.DRAWS
    assert 180 < counts["3"] < 320


# --- lesson 2


@pytest.mark.parametrize("title", block.PRESETS.titles)
def test_the_rules_side_by_side_are_those_of_the_specification(title):
    settings = block.PRESETS.settings(title)
    x = block.with_first(fields.numbers(settings["values"]), settings["first"])
    shown = block.rules_table(x, mxfp.MXFP4, "nearest_even", "floor")
    values, signs = support.values_of(x)
    for rule, scale, *_ in shown.rows:
        code, _ = oracle.quantize_block("E2M1", values, rule, "nearest_even", "nan", signs)
        expected = "NaN" if code == 255 else block.power(code - 127)
        assert scale == expected, rule
    assert [row[0] for row in shown.rows] == list(mxfp.MXFP4.scale_rules)
    assert shown.marked == {0}


def test_a_logarithm_in_floats_is_marked_where_it_is_wrong():
    below = float(np.nextafter(8.0, 0.0))
    assert block.exponents_table(np.array([below, -1.0]), mxfp.MXFP4).rows == (
        ("exact, from the float's exponent field", "2", "2⁰"),
        ("floor(log2(x)) in float64", "3", "2¹"),
        ("floor(log2(x)) in float32", "3", "2¹"),
    )
    assert block.exponents_table(np.array([below]), mxfp.MXFP4).marked == {1, 2}
    assert block.exponents_table(np.array([7.0]), mxfp.MXFP4).marked == set()


@pytest.mark.parametrize("x", [[0.0], [-0.0, 0.0], [math.nan], [math.inf, 1.0], [1e300], [5e-324], [1e-60]])
@pytest.mark.parametrize("name", block.FORMATS)
def test_every_table_of_a_block_can_be_made_of_any_number(x, name):
    fmt, x = block.FORMATS[name], np.array(x)
    for rounding in ROUNDINGS:
        made = block.made(x, fmt, fmt.scale_rules[-1], rounding)
        assert len(block.elements_table(made).rows) == x.size
        assert len(block.rules_table(x, fmt, rounding, None).rows) == len(fmt.scale_rules)
    assert block.exponents_table(x, fmt).rows
    assert block.headline(made)


def test_a_part_of_a_row_is_the_block_that_the_element_lies_in():
    x = np.array([1.0] * 32 + [96.0, 1.0])
    q = mxfp.quantize(np.append(x, [0.0] * 10), engine="reference")
    found = block.part_of(x, q, 33)
    assert (found.factor, found.before[:3].tolist(), found.before.size) == (16.0, [96.0, 1.0, 0.0], 12)
    assert found.fates[:3] == ("", "to zero", "")
    assert block.part_of(x, q, 31).factor == 0.25


# --- lesson 3


def test_the_register_holds_what_its_policy_makes_of_4608():
    t = integers.pair(np.zeros(1), np.zeros(1), 32)
    assert integers.register_table(t, 13).rows == (
        ("raise", "WidthError", "not 4608"),
        ("wrap", "-3584", "not 4608"),
        ("saturate", "4095", "not 4608"),
    )
    assert all(row[1:] == ("4608", "the sum") for row in integers.register_table(t, 14).rows)


def test_28_maximal_products_fit_13_bits_and_29_do_not():
    for count, marked in ((28, set()), (29, {0, 1, 2})):
        assert integers.register_table(integers.pair(np.zeros(1), np.zeros(1), count), 13).marked == marked


def test_the_tree_has_its_widths_and_each_level_sums_the_one_before():
    t = integers.pair(fields.numbers("6*3 1 -2"), fields.numbers("6*2 -6 0.5 3"))
    shown = integers.tree_table(t)
    assert [row[1] for row in shown.rows] == ["9", "10", "11", "12", "13", "14"]
    levels = [[int(v) for v in row[2].split()] for row in shown.rows]
    for above, below in itertools.pairwise(levels):
        assert below == [x + y for x, y in zip(above[::2], above[1::2], strict=True)]
    products = [int(row[3]) * int(row[4]) for row in integers.products_table(t).rows]
    assert levels[0] == products == [int(row[5]) for row in integers.products_table(t).rows]


def test_a_scale_moves_the_exponent_of_a_term_and_nothing_else():
    near, far = (
        integers.pair(np.array([3.0, 1.5]), np.array([2.0, 3.0]) * scale) for scale in (1.0, 2.0**20)
    )
    assert integers.tree_table(near) == integers.tree_table(far)
    assert integers.term_text(far).split(" = ")[2].startswith(f"{10.5 * 2**20:.0f}")


# --- lesson 4


@pytest.mark.parametrize("title", accumulator.PRESETS.titles)
def test_each_accumulator_of_the_contest_has_the_bits_of_the_oracle(title):
    settings = accumulator.PRESETS.settings(title)
    a, b = accumulator.blocks_of(fields.numbers(settings["terms"]))
    register = mxfp.FixedPoint(settings["width"], settings["lsb"], "wrap")
    shown = accumulator.contest_table(a, b, register)
    for chosen, row in zip((*accumulator.NAMED.values(), register), shown.rows, strict=True):
        assert int(row[3], 16) == support.oracle_result(chosen, a, b), row


def test_a_register_that_overflows_is_a_row_and_no_error():
    a, b = accumulator.blocks_of(np.array([2.0**24, 1.0]))
    assert accumulator.contest_table(a, b, mxfp.FixedPoint(24, 0)).rows[-1] == (
        "fixed:24:0:raise",
        "overflow",
        "-",
        "WidthError",
    )


@pytest.mark.parametrize("name", accumulator.NAMED)
def test_the_last_step_holds_the_result_and_its_distance_from_the_exact_sum(name):
    a, b = accumulator.blocks_of(np.array([2048.0, 1.0, 1.0, -3.0, 0.5]))
    t = accumulator.followed(a, b, accumulator.NAMED[name])
    *_, held, lost = accumulator.steps_table(t).rows[-1]
    assert Fraction(lost) == Fraction(float(t.result)) - Fraction("2047.5")
    if "·" not in held:
        assert held == tables.shown(float(t.result))


def test_steps_that_lose_something_stand_out():
    a, b = accumulator.blocks_of(np.array([2048.0, 1.0, 2.0, 1.0]))
    assert accumulator.steps_table(accumulator.followed(a, b, mxfp.Sequential("float16"))).marked == {1, 3}
    assert accumulator.steps_table(accumulator.followed(a, b, mxfp.Sequential("float32"))).marked == set()


@pytest.mark.parametrize("name", accumulator.NAMED)
def test_a_nan_term_is_seen_in_the_step_that_adds_it(name):
    a, b = accumulator.blocks_of(np.array([4.0, math.nan, 8.0]))
    rows = accumulator.steps_table(accumulator.followed(a, b, accumulator.NAMED[name])).rows
    assert any("nan" in row[1].split() for row in rows)
    assert {row[3] for row in rows} == {"-"}


def test_terms_that_four_bits_cannot_hold_are_named():
    assert accumulator.rounded_away(np.array([5.0, 1.0, 2049.0, math.nan])) == (
        "Each number is one E2M1 value times a power of two; here 5 is 4, 2049 is 2048."
    )
    assert accumulator.rounded_away(np.array([2048.0, 1.0, 0.75, -3.0])) == ""


# --- lesson 5


@pytest.mark.parametrize("name", block.FORMATS)
def test_the_stages_end_in_the_bits_of_matmul(name):
    x, y = fields.numbers("7 -0.5 0.25 3 1*40"), fields.numbers("1 2 3 4 5*20")
    a, b = journey.sides(x, y, block.FORMATS[name], "rceil", "nearest_even")
    t = accumulator.followed(a, b, mxfp.BLACKWELL_MXFP4)
    rows = dict(journey.stages_table(t, x, y).rows)
    bits = int(
        np.float32(mxfp.matmul(a, b, accumulator=mxfp.BLACKWELL_MXFP4, engine="reference")).view(np.uint32)
    )
    assert rows["result"].endswith(f"0x{bits:08x} (float32)")
    assert rows["exact product of the numbers"] == "118.75"
    assert rows["formats"].endswith("rule rceil")


# --- notebooks


def notebook(lesson):
    spec = importlib.util.spec_from_file_location(f"lesson_{lesson.name}", lesson.file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.app


@pytest.fixture
def no_compiler(monkeypatch):
    """Lessons use the reference engine alone: a student should not wait for kernels to be compiled."""
    real = blocks._twin

    def twin(engine, fmt):
        assert engine == "reference"
        return real(engine, fmt)

    monkeypatch.setattr(blocks, "_twin", twin)


@pytest.mark.parametrize("lesson", catalogue.LESSONS, ids=lambda lesson: lesson.name)
def test_every_cell_of_a_notebook_runs_under_every_preset(lesson, no_compiler):
    app, module = notebook(lesson), MODULES[lesson.name]
    _, names = app.run()
    assert names["lesson"] is lesson
    assert list(names["answers"].elements) == list(module.QUESTIONS)
    for title in module.PRESETS.titles[1:]:
        outputs, names = app.run(defs={"preset": SimpleNamespace(value=title)})
        assert names["start"] == module.PRESETS.settings(title)
        said = "".join(getattr(output, "text", "") for output in outputs)
        assert "Traceback" not in said
        assert f"of {len(module.QUESTIONS)} right" in said


def test_the_notebooks_are_as_marimo_writes_them():
    command = [sys.executable, "-m", "marimo", "check", *(str(lesson.file) for lesson in catalogue.LESSONS)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip(), done.stderr.strip()) == (0, "", "")


def test_each_lesson_states_what_to_try_and_there_are_no_other_files():
    assert sorted(catalogue.FOLDER.glob("[!_]*.py")) == [lesson.file for lesson in catalogue.LESSONS]
    for lesson in catalogue.LESSONS:
        text = lesson.file.read_text(encoding="utf-8")
        assert "**Try:**" in text
        assert f'app_title="{lesson.title}"' in text


# --- command line and server


def run(*arguments, **options):
    return CliRunner().invoke(cli.cli, ["explore", *arguments], **options)


def test_help_lists_the_lessons():
    shown = run("--help").output
    assert all(lesson.name in shown and lesson.title in shown for lesson in catalogue.LESSONS)


def test_a_lesson_that_does_not_exist_is_one_line_with_those_that_do():
    result = run("calculus")
    assert result.exit_code == 2
    assert "'calculus' is no lesson; there are: 1 number, 2 block" in result.output.splitlines()[-1]


@pytest.mark.parametrize("arguments", [(), ("--edit", "number")])
def test_without_the_extra_one_line_names_it(arguments, monkeypatch):
    monkeypatch.setattr(server, "find_spec", lambda name: None)
    result = run(*arguments)
    assert isinstance(result.exception, ImportError)
    assert str(result.exception) == (
        "the lessons need marimo and matplotlib; install with: pip install 'mxfp-emulator[explore]'"
    )


def test_a_port_that_is_taken_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"127.0.0.1 port {port}: .*; choose others by --host and --port"):
            server.listen("127.0.0.1", port)


def test_without_a_port_the_first_free_one_is_taken():
    with server.listen("127.0.0.1", None) as first, server.listen("127.0.0.1", None) as second:
        assert first.getsockname()[1] != second.getsockname()[1]
        assert server.address(second, catalogue.LESSONS[0]) == (
            f"http://127.0.0.1:{second.getsockname()[1]}/number/"
        )


def test_the_list_of_lessons_leads_to_every_lesson():
    shown = server.home()
    assert all(f'href="/{lesson.name}/"' in shown for lesson in catalogue.LESSONS)
    assert {mount.path for mount in server.application().routes[1].app.routes if hasattr(mount, "app")} >= {
        f"/{lesson.name}" for lesson in catalogue.LESSONS
    }


def test_editing_copies_the_lesson_once_and_keeps_what_a_student_has_written(tmp_path, monkeypatch):
    calls = []

    def editor(command, **options):
        calls.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(server.subprocess, "run", editor)
    monkeypatch.chdir(tmp_path)
    assert run("--edit", "number", "--port", "4321", "--no-browser").exit_code == 0
    copy = tmp_path / "01_number.py"
    assert copy.read_bytes() == catalogue.LESSONS[0].file.read_bytes()
    assert calls[0][1:] == [
        *("-m", "marimo", "edit", str(copy), "--skip-update-check"),
        *("--port", "4321", "--headless"),
    ]
    copy.write_text("mine")
    assert "opening it as it is" in run("--edit", "1", "--no-browser").output
    assert copy.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [copy]


def test_editing_nothing_is_one_line():
    result = run("--edit")
    assert result.exit_code == 2
    assert "--edit needs a lesson" in result.output.splitlines()[-1]


# --- pages in a browser

chromium = browser.chromium  # the fixture


@pytest.fixture(scope="module")
def home(chromium, tmp_path_factory):
    """The address of the lessons, served for the tests of this module."""
    with browser.explore(cwd=tmp_path_factory.mktemp("explore")) as address:
        yield address


@pytest.fixture
def page(chromium):
    return browser.Page(chromium)


def opened(page, home, lesson, size=browser.DESKTOP):
    page.resize(size)
    return page.open(f"{home}{lesson}/", f"of {len(MODULES[lesson].QUESTIONS)} right.")


def quiet(page):
    """No error in the console, and nobody was asked for anything but this machine."""
    assert page.errors() == []
    assert page.hosts() == {"127.0.0.1"}


@pytest.mark.slow
@pytest.mark.parametrize("lesson", MODULES)
def test_a_lesson_fits_a_phone_fetches_nothing_and_has_no_errors(lesson, page, home):
    opened(page, home, lesson, browser.PHONE)
    if lesson not in ("number", "journey"):
        page.wait(lambda: page.all(".mx img"), "the figure")
    assert page.too_wide <= 0
    quiet(page)


@pytest.mark.slow
def test_the_list_leads_to_a_lesson_and_the_lesson_to_the_next_and_back(page, home):
    page.open(home, "Thirty-two numbers share a scale")
    page.resize(browser.PHONE)
    assert page.too_wide <= 0
    page.follow("A number becomes four bits")
    page.wait_for("1. A number becomes four bits")
    page.wait_for("All lessons")
    page.follow("2. Thirty-two numbers share a scale")
    page.wait_for("The scale rules on this block")
    page.wait_for("All lessons")
    page.follow("All lessons")
    page.wait_for("Numbers of four bits")
    quiet(page)


@pytest.mark.slow
def test_a_number_is_moved_by_keyboard_alone(page, home):
    from selenium.webdriver.common.keys import Keys

    opened(page, home, "number").wait_for("2.5 → 2")
    roles = []
    for _ in range(6):
        page.press(Keys.TAB)
        roles.append(page.focused.get_attribute("role") or page.focused.tag_name)
        if roles[-1] == "slider":
            break
    assert roles == ["select", "select", "select", "input", "slider"]
    page.press(Keys.ARROW_RIGHT)
    page.wait_for("2.625 → 3")
    page.press(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    page.wait_for("2.375 → 2")
    page.press(Keys.HOME)
    page.wait_for("-8 → -6")
    page.wait_for("8 is beyond the largest value, 6")
    quiet(page)


@pytest.mark.slow
def test_what_is_typed_is_encoded_and_what_is_no_number_is_said_to_be_none(page, home):
    opened(page, home, "number").type("Type x", "2.5000000000000004")
    page.wait_for("2.5000000000000004 → 3")
    page.choose("Rounding", "toward_zero")
    page.wait_for("2.5000000000000004 → 2")
    page.type("Type x", "<b>two</b>")
    page.wait_for("'<b>two</b>' is no number; write 0.1")
    page.type("Type x", "")
    page.wait_for("2.5 → 2")
    quiet(page)


@pytest.mark.slow
def test_a_wrong_answer_gets_its_hint_and_the_right_one_its_reason(page, home):
    opened(page, home, "number")
    five, ties = (number.QUESTIONS[key] for key in ("five", "ties"))
    page.answer(0, "6")
    page.wait_for(f"✗ Not yet. {five.hints['6']}")
    page.answer(0, "4")
    page.wait_for(f"✓ {five.because}")
    page.answer(1, "5")
    page.wait_for(f"✗ Not yet. {ties.hint}")
    page.wait_for("1 of 4 right.")
    quiet(page)


@pytest.mark.slow
def test_a_choice_is_checked_too(page, home):
    opened(page, home, "accumulator")
    question = accumulator.QUESTIONS["blackwell"]
    page.choose("Your answer", question.choices[0])
    page.wait_for(f"✗ Not yet. {question.hints[question.choices[0]]}")
    page.choose("Your answer", str(question.answer()))
    page.wait_for(f"✓ {question.because}")
    quiet(page)


@pytest.mark.slow
def test_a_preset_sets_the_inputs_and_the_block_follows_numbers_and_rule(page, home):
    from selenium.webdriver.common.keys import Keys

    opened(page, home, "block").choose("Preset", "an outlier")
    page.wait_for("largest magnitude 96 → scale code 131 = 2⁴; 0 saturated, 31 flushed to zero")
    page.labelled("First number").send_keys(Keys.ARROW_LEFT)
    page.wait_for("largest magnitude 95.875 → scale code 131")
    page.labelled("The slider sets the first number").send_keys(Keys.SPACE)
    page.wait_for("largest magnitude 96 → scale code 131")
    page.choose("Preset", "one ulp below 8")
    page.wait_for("largest magnitude 7.999999999999999 → scale code 127 = 2⁰; 1 saturated, 0 flushed to zero")
    page.choose("Scale rule", "rceil")
    page.wait_for("largest magnitude 7.999999999999999 → scale code 128 = 2¹; 0 saturated, 1 flushed to zero")
    page.type("Numbers of the block", "nan 1 2")
    page.wait_for("every number is NaN")
    page.type("Numbers of the block", "1*33")
    page.wait_for("that is 33 numbers; there is room for 32")
    quiet(page)


@pytest.mark.slow
def test_the_29th_product_overflows_13_bits_on_the_page(page, home):
    from selenium.webdriver.common.keys import Keys

    page.resize(browser.PHONE)
    page.open(f"{home}integers/?preset=28%20fit%2013%20bits,%2029%20do%20not", "sum of 32 products: 4032")
    page.labelled("So many first pairs are 6 · 6").send_keys(Keys.ARROW_RIGHT)
    page.wait_for("sum of 32 products: 4176, which needs 14 signed bits")
    page.wait_for("not 4176")
    page.labelled("Signed bits of the register for the sum").send_keys(Keys.ARROW_RIGHT)
    page.wait_for("signed 14 bits hold -8192 … 8191")
    assert "not 4176" not in page.text
    assert page.too_wide <= 0
    quiet(page)


@pytest.mark.slow
def test_every_stage_follows_a_change_of_the_journey(page, home):
    opened(page, home, "journey").choose("Preset", "swamping in float16")
    page.wait_for("sequential:float16 gives 2048; the exact sum is 2051")
    page.choose("Accumulator", "sequential:float32")
    page.wait_for("sequential:float32 gives 2051; the exact sum is 2051")
    page.choose("Preset", "a register that overflows")
    page.wait_for("block 0: the accumulator would hold 4608 in units of 2**-2")
    page.choose("when it is full", "wrap")
    page.wait_for("1024 · 2⁻²")
    page.choose("Format", "MXINT8")
    page.wait_for("MXINT8: blocks of 32")
    quiet(page)
