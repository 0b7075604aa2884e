# SPDX-License-Identifier: Apache-2.0
"""Figures: what is drawn is what the tables, the oracle and exact sums say, read back from the artists."""

import io
import itertools
import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Annotation, Text

import mxfp
import oracle
from mxfp import cli, data, draw
from mxfp.draw.accumulators import ACCUMULATORS
from mxfp.draw.bit_layout import LAYOUTS
from mxfp.draw.fates import block_of
from mxfp.draw.packed_bytes import owners
from support import ELEMENTS, FORMATS, MX, name_of

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
A, B = list(draw.example.A), list(draw.example.B)
SVG = "{http://www.w3.org/2000/svg}"


def fractions(values):
    return [Fraction(v) for v in values]


def quantized(values, fmt=mxfp.MXFP4):
    return mxfp.quantize(values, fmt, engine="reference")


def labelled(axes, label):
    """The artists of the axes with this label."""
    return [a for a in axes.get_children() if a.get_label() == label]


def texts(parent):
    return [t.get_text() for t in parent.findobj(Text) if t.get_text()]


def plain(text):
    """A printed number as a float."""
    return float(text.replace("−", "-"))


def ends(collection):
    """The x of upright lines."""
    return [float(segment[0][0]) for segment in collection.get_segments()]


def weights():
    return data.embedded_layer().weight


# --- the number line


@pytest.mark.parametrize("element", ELEMENTS, ids=name_of)
def test_the_number_line_has_every_finite_value_of_the_format(element):
    line = draw.number_line(element).axes[0]
    values = [oracle.element(element.name, code) for code in range(2**element.bits)]
    finite = [float(v) for v in values if isinstance(v, Fraction)]
    assert sorted(ends(labelled(line, "values")[0])) == sorted(finite)


@pytest.mark.parametrize("element", ELEMENTS, ids=name_of)
def test_both_ends_of_a_line_have_magnitudes_in_order_over_the_bits_of_their_codes(element):
    magnitudes = oracle.magnitudes(element.name)
    _, *runs = draw.number_line(element).axes
    for run, first in zip(runs, (0, len(magnitudes) - 1), strict=False):
        values = ends(labelled(run, "values")[0])
        codes = [int(t, 2) for t in texts(run) if re.fullmatch("[01]{4,8}", t)]
        assert values == [float(magnitudes[code]) for code in codes]
        assert first in codes
    assert len(runs) == (1 if element is mxfp.E2M1 else 2)


@pytest.mark.parametrize("rounding", ["nearest_even", "nearest_away", "toward_zero"])
@pytest.mark.parametrize("element", ELEMENTS, ids=name_of)
def test_midpoints_lead_to_the_neighbour_that_the_oracle_gives_them(element, rounding):
    for run in draw.number_line(element, rounding=rounding).axes[1:]:
        values = fractions(ends(labelled(run, "values")[0]))
        middles = [(a + b) / 2 for a, b in itertools.pairwise(values)]
        assert fractions(labelled(run, "midpoints")[0].get_xdata()) == middles
        annotations = [t for t in run.texts if isinstance(t, Annotation)]
        arrows = [t for t in annotations if type(t.arrow_patch.get_arrowstyle()).__name__ == "CurveFilledB"]
        assert len(arrows) == len(middles)
        for middle, arrow in zip(middles, arrows, strict=True):
            code = oracle.encode(element.name, middle, rounding)
            assert Fraction(arrow.xyann[0]) == middle
            assert Fraction(arrow.xy[0]) == oracle.element(element.name, code)


def test_gaps_of_e2m1_are_one_half_then_one_then_two():
    run = draw.number_line().axes[1]
    assert [t for t in texts(run) if "apart" in t] == ["0.5 apart", "1 apart", "2 apart"]


def test_the_number_line_of_a_block_format_is_that_of_its_elements():
    assert texts(draw.number_line(mxfp.MXFP4)) == texts(draw.number_line(mxfp.E2M1))


# --- a block


@pytest.mark.parametrize("rule", mxfp.MXFP4.scale_rules)
@pytest.mark.parametrize("fmt", MX, ids=name_of)
def test_a_block_is_drawn_where_it_was_and_where_the_oracle_puts_it(fmt, rule):
    axes = draw.block(A, fmt, rule=rule).axes[0]
    scale, codes = oracle.quantize_block(fmt.element.name, fractions(A), rule, "nearest_even")
    expected = oracle.dequantize(fmt.element.name, scale, codes)
    assert list(labelled(axes, "before")[0].get_xdata()) == A
    after = {}
    for label in ("after", "after a tie", "saturated", "to zero"):
        (line,) = labelled(axes, label)
        after.update(zip(line.get_ydata(), line.get_xdata(), strict=True))
    assert [Fraction(after[k]) for k in range(len(A))] == expected


@pytest.mark.parametrize("fmt", MX, ids=name_of)
def test_marks_are_what_exact_arithmetic_says_of_each_element(fmt):
    name = fmt.element.name
    scale, codes = oracle.quantize_block(name, fractions(A), "floor", "nearest_even")
    x_scale = oracle.e8m0(scale)
    magnitudes = oracle.magnitudes(name)
    middles = {(a + b) / 2 for a, b in itertools.pairwise(magnitudes)}
    expected = []
    for x, code in zip(fractions(A), codes, strict=True):
        scaled = abs(x / x_scale)
        zero = oracle.element(name, code) == 0
        fate = "tie" if scaled in middles else ""
        fate = "to zero" if x and zero else fate
        expected.append("saturated" if scaled > magnitudes[-1] else fate)
    assert list(block_of(A, fmt).fates) == expected
    column = draw.block(A, fmt).axes[1]
    rows = {round(t.get_position()[1]): t.get_text() for t in column.texts if t.get_text() in expected}
    assert [rows.get(k, "") for k in range(len(A))] == expected


def test_the_running_example_has_a_tie_both_ways_a_saturated_element_and_ones_that_become_zero():
    made = block_of(A, mxfp.MXFP4)
    assert {"tie", "saturated", "to zero", ""} == set(made.fates)
    up = [abs(y) > abs(x) for x, y, f in zip(made.before, made.after, made.fates, strict=True) if f == "tie"]
    assert set(up) == {True, False}
    assert all(float(np.float16(x)) == x for x in (*A, *B))
    assert len(A) == len(B) == 32
    assert min(A) < 0 < max(A)


@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_the_figures_beside_a_block_are_its_codes_and_values(fmt):
    values = A[: fmt.block]
    q = quantized(values, fmt)
    column = draw.block(values, fmt).axes[1]
    bits = [t.get_text().replace(" ", "") for t in column.texts if t.get_family() == ["monospace"]]
    assert [int(b, 2) for b in bits] == q.codes.tolist()
    rows = [t for t in column.texts if t.get_ha() == "right" and t.get_position()[1] >= 0]
    for k, (x, y) in enumerate(zip(values, mxfp.dequantize(q, dtype="float64").tolist(), strict=True)):
        index, before, _, after = (t.get_text() for t in rows[4 * k : 4 * k + 4])
        assert (int(index), plain(before)) == (k, x)
        assert plain(after) == pytest.approx(y, rel=1e-2)


def test_the_largest_value_itself_does_not_saturate():
    assert block_of([6.0, -6.0, 6.5, 0.0], mxfp.MXFP4).fates == ("", "", "saturated", "")


def test_a_block_with_nan_has_no_values_after():
    figure = draw.block([1.0, float("nan"), -3.5])
    assert any("code 255 = NaN" in text for text in texts(figure))
    assert texts(figure).count("not finite") == 3
    assert all(labelled(figure.axes[0], label)[0].get_xdata().size == 0 for label in ("after", "saturated"))


def test_ties_are_found_under_a_scale_that_is_no_power_of_two():
    q = quantized([3.0, 1.25], mxfp.NVFP4)
    step = float(mxfp.UE4M3.values[q.scales[0]]) * q.tensor_scale
    made = block_of([3.0, 2.5 * step, np.nextafter(2.5 * step, 9)], mxfp.NVFP4)
    assert np.frexp(made.factor)[0] != 0.5
    assert made.fates == ("", "tie", "")


# --- scale rules


@pytest.mark.parametrize("fmt", MX, ids=name_of)
def test_each_strip_has_the_scale_of_its_rule_and_leads_elements_where_they_go(fmt):
    figure = draw.scale_rules(A, fmt)
    strips, columns = figure.axes[::2], figure.axes[1::2]
    name = fmt.element.name
    assert [texts(c)[0] for c in columns] == list(fmt.scale_rules)
    for rule, strip, column in zip(fmt.scale_rules, strips, columns, strict=True):
        code, codes = oracle.quantize_block(name, fractions(A), rule, "nearest_even")
        scale, after = oracle.e8m0(code), oracle.dequantize(name, code, codes)
        offered = {Fraction(x) for x in ends(labelled(strip, "offered")[0])}
        assert offered == {s * m * scale for m in oracle.magnitudes(name) for s in (1, -1)}
        drawn = [
            tuple(Fraction(float(p[0])) for p in segment)
            for label in ("moved", "tie", "to zero", "saturated")
            for lines in labelled(strip, label)
            for segment in lines.get_segments()
        ]
        assert sorted(drawn) == sorted(zip(fractions(A), after, strict=True))
        error = sum((x - y) ** 2 for x, y in zip(fractions(A), after, strict=True))
        words = texts(column)[1].splitlines()
        assert plain(words[0].removeprefix("scale ")) == pytest.approx(float(scale), rel=1e-5)
        assert plain(words[3].removeprefix("error² ")) == pytest.approx(float(error), rel=1e-3)


# --- the adder tree


def test_the_tree_has_every_sum_and_the_width_of_each_level():
    x, y = quantized(A), quantized(B)
    axes = draw.adder_tree(x.codes, y.codes).axes[0]
    t = mxfp.trace(x, y)
    expected = [t.products[0].tolist(), *(level[0].tolist() for level in t.levels)]
    nodes = [plain(text.get_text()) for text in axes.texts if text.get_bbox_patch()]
    assert nodes == [v for level in expected for v in level]
    assert [text for text in texts(axes) if text.endswith(" bits")] == [f"{n} bits" for n in range(9, 15)]
    spans = [text for text in texts(axes) if text.startswith("±")]
    assert spans == [f"±{144 * 2**n}" for n in range(6)]


def test_sums_that_thirteen_bits_lose_are_crossed_out():
    axes = draw.adder_tree([7] * 32, [7] * 32, width=13).axes[0]
    assert [text for text in texts(axes) if text.endswith("✗")] == ["4608 ✗"]
    axes = draw.adder_tree([7] * 32, [7] * 32, width=14).axes[0]
    assert not [text for text in texts(axes) if text.endswith("✗")]


def test_the_largest_of_each_level_has_a_thick_frame():
    axes = draw.adder_tree([7, 1, 2, 3], [15, 1, 1, 1]).axes[0]
    boxes = [(t.get_text(), t.get_bbox_patch().get_linewidth() > 1) for t in axes.texts if t.get_bbox_patch()]
    assert boxes == [
        ("−144", True),
        ("1", False),
        ("2", False),
        ("3", False),
        ("−143", True),
        ("5", False),
        ("−138", True),
    ]


def test_a_tree_of_other_shape_and_formats_is_drawn_from_its_netlist():
    tree = mxfp.adders.balanced(9, arity=3)
    axes = draw.adder_tree([1] * 9, [0x38] * 9, mxfp.E2M1, mxfp.E4M3, tree=tree).axes[0]
    nodes = [plain(text.get_text()) for text in axes.texts if text.get_bbox_patch()]
    assert nodes == [512.0] * 9 + [1536.0] * 3 + [4608.0]


# --- accumulators


def exact_sums(a, b, block):
    """Exact running sums of dot products of what codes and scales stand for, after each block."""
    x, y = (fractions(mxfp.dequantize(q, dtype="float64").tolist()) for q in (a, b))
    products = [p * q for p, q in zip(x, y, strict=True)]
    return [sum(products[:n], Fraction(0)) for n in range(block, len(products) + 1, block)]


def test_running_values_end_at_the_results_and_stand_beside_exact_sums():
    a, b = quantized(draw.example.LONG_A), quantized(draw.example.LONG_B)
    figure = draw.accumulators(a, b)
    main, *strips = figure.axes
    sums = exact_sums(a, b, 32)
    assert fractions(labelled(main, "exact")[0].get_ydata()) == sums
    for accumulator, strip in zip(ACCUMULATORS, strips, strict=True):
        (line,) = labelled(main, str(accumulator))
        held, done = fractions(line.get_ydata()), [int(x) for x in line.get_xdata()]
        result = mxfp.matmul(a, b, accumulator=accumulator, engine="reference")
        assert held[-1] == Fraction(float(result))
        assert done[-1] == 512
        expected = [h - sums[n // 32 - 1] for h, n in zip(held, done, strict=True)]
        assert fractions(labelled(strip, "error")[0].get_ydata()) == expected
    assert [int(x) for x in labelled(main, "blackwell")[0].get_xdata()] == list(range(64, 513, 64))


def test_float16_rounds_every_running_value_as_the_oracle_does():
    a, b = quantized(draw.example.LONG_A), quantized(draw.example.LONG_B)
    main = draw.accumulators(a, b, [mxfp.Sequential("float16")]).axes[0]
    state, before = Fraction(0), Fraction(0)
    for held, total in zip(
        labelled(main, "sequential:float16")[0].get_ydata(), exact_sums(a, b, 32), strict=True
    ):
        state = oracle.bits_to_fraction(oracle.round_to(state + total - before, "float16"), "float16")
        before = total
        assert Fraction(held) == state


def test_groups_smaller_than_a_block_and_tensor_scales_are_followed_too():
    a, b = quantized(A, mxfp.NVFP4), quantized(B, mxfp.NVFP4)
    main = draw.accumulators(a, b, [mxfp.Sequential("float32", 8)]).axes[0]
    (line,) = labelled(main, "sequential:float32:8")
    assert [int(x) for x in line.get_xdata()] == [8, 16, 24, 32]
    held = [float(v) for v in line.get_ydata()]
    assert held == pytest.approx([float(v) for v in exact_sums(a, b, 8)], rel=1e-6)
    exact = labelled(main, "exact")[0].get_ydata()
    assert list(exact) == pytest.approx([float(v) for v in exact_sums(a, b, 16)], rel=1e-14)


def test_a_tree_of_floats_has_its_result_alone():
    a, b = quantized(draw.example.LONG_A), quantized(draw.example.LONG_B)
    main = draw.accumulators(a, b, [mxfp.Pairwise("float16")]).axes[0]
    (line,) = labelled(main, "pairwise:float16")
    result = mxfp.matmul(a, b, accumulator=mxfp.Pairwise("float16"), engine="reference")
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([512], [float(result)])


def test_an_accumulator_that_overflows_says_from_which_product_on():
    q = quantized([2.0**10] * 64)
    words = texts(draw.accumulators(q, q, [mxfp.Sequential("float16")]))
    assert "ends at ∞, not finite from product 32 on" in words


# --- bits and bytes


@pytest.mark.parametrize("fmt", [*ELEMENTS, mxfp.E8M0, mxfp.UE4M3], ids=name_of)
def test_codes_are_drawn_bit_by_bit_with_the_values_that_the_oracle_gives(fmt):
    codes = [c for c in range(fmt.code_count) if c % 5 == 0][:32]
    axes = draw.bit_layout(fmt, codes=codes).axes[0]
    digits = [t.get_text() for t in axes.texts if t.get_family() == ["monospace"]]
    assert len(digits) == fmt.bits * len(codes)
    drawn = ["".join(digits[n : n + fmt.bits]) for n in range(0, len(digits), fmt.bits)]
    assert [int(d, 2) for d in drawn] == codes
    values = [t.removeprefix("= ") for t in texts(axes) if t.startswith("= ")]
    for code, text in zip(codes, values, strict=True):
        value = (
            oracle.element(fmt.name, code)
            if isinstance(fmt, mxfp.ElementFormat)
            else oracle.scale(fmt.name, code)
        )
        if not isinstance(value, Fraction):
            assert text == {"nan": "NaN", "inf": "∞", "-inf": "−∞"}[value]
            continue
        made, _, decimal = text.partition(" = ")
        assert product(made) == value
        assert not decimal or plain(decimal) == pytest.approx(float(value), rel=1e-8)


def product(text):
    """3 · 2⁻⁴ -> 3/16, exactly."""
    found = Fraction(1)
    for part in text.replace("−", "-").split(" · "):
        base, sup = part[0], part[1:].translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
        is_power = base == "2" and any(c in "⁻⁰¹²³⁴⁵⁶⁷⁸⁹" for c in part)
        found *= Fraction(2) ** int(sup) if is_power else Fraction(part)
    return found


def test_fields_of_e4m3_are_one_four_and_three_bits():
    words = texts(draw.bit_layout("e4m3"))
    assert {"sign", "exponent", "mantissa"} <= set(words)
    assert "= 1.75 · 2⁸ = 448" in words
    assert {"largest", "smallest normal", "NaN"} <= set(words)


@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4], ids=name_of)
@pytest.mark.parametrize("order", ["pairs", "halves"])
def test_bytes_are_those_of_pack_and_stand_under_the_elements_of_the_order(fmt, order):
    codes = np.arange(fmt.block, dtype=np.uint8) * 7 % 16
    axes = draw.bit_layout(fmt, codes=codes).axes[("pairs", "halves").index(order)]
    digits = "".join(t.get_text() for t in axes.texts if t.get_family() == ["monospace"])
    assert bytes.fromhex(digits) == mxfp.pack(codes, fmt, order=order).tobytes()
    elements = [int(t) for t in texts(axes) if t.isdecimal()]
    half = fmt.block // 2
    pairs = {
        "pairs": [(2 * j + 1, 2 * j) for j in range(half)],
        "halves": [(j + half, j) for j in range(half)],
    }
    digits_of = [t for t in axes.texts if t.get_family() != ["monospace"] and t.get_text().isdecimal()]
    assert [int(t.get_text()) for t in digits_of] == [k for pair in pairs[order] for k in pair]
    assert set(elements) >= set(range(fmt.block))


@pytest.mark.parametrize("fmt", [f for f in MX if f.element.bits == 6], ids=name_of)
def test_six_bit_codes_run_from_the_lowest_bit_of_the_first_byte_up(fmt):
    owner, bit = owners(fmt, "pairs")
    stream = [(k, n) for k in range(fmt.block) for n in range(6)]
    for place, (k, n) in enumerate(stream):
        byte, low = divmod(place, 8)
        assert (owner[byte, 7 - low], bit[byte, 7 - low]) == (k, n)
    codes = np.arange(fmt.block, dtype=np.uint8) * 11 % 64
    axes = draw.bit_layout(fmt, codes=codes).axes[0]
    digits = "".join(t.get_text() for t in axes.texts if t.get_family() == ["monospace"])
    assert int(digits, 2).to_bytes(3, "big") == mxfp.pack(codes, fmt)[:3].tobytes()


# --- errors


def test_error_strips_have_the_shares_and_figures_of_each_format():
    x = np.random.default_rng(1).standard_normal((32, 64))
    formats = [mxfp.MXFP4, mxfp.MXFP6_E2M3, mxfp.MXFP8_E5M2]
    figure = draw.errors(x, formats)
    rms = float(np.sqrt(np.mean(x * x)))
    for fmt, axes in zip(formats, figure.axes, strict=True):
        sizes = np.abs(mxfp.dequantize(quantized(x, fmt), dtype="float64") - x) / rms
        heights, edges, _ = labelled(axes, "share")[0].get_data()
        inside = [np.sum((sizes >= low) & (sizes < high)) for low, high in itertools.pairwise(edges)]
        below = np.sum((sizes > 0) & (sizes < edges[0]))
        assert below, "the first bin has the smaller ones too"
        inside[0] += below
        assert (heights * x.size).tolist() == pytest.approx(inside)
        assert round(float(heights.sum()) * x.size) == np.count_nonzero(sizes)
        spread = float(np.sqrt(np.mean(sizes**2)))
        assert labelled(axes, "rms")[0].get_xdata()[0] == pytest.approx(spread)
        name, figures = (t.get_text() for t in axes.texts)
        assert name.startswith(fmt.name)
        assert f"SQNR {-20 * np.log10(spread):.1f} dB" in figures


def test_weights_that_a_format_holds_exactly_have_no_error_to_draw():
    (axes,) = draw.errors([[1.0, 2.0, 0.5]], [mxfp.MXFP4]).axes
    assert "SQNR no error · largest 0 % · exact 100 %" in texts(axes)
    assert not labelled(axes, "share")[0].get_data()[0].any()


# --- refusals

NAN = float("nan")
REFUSED = {
    "a name for a format": (lambda: draw.number_line("E2M1"), TypeError, "such as mxfp.E2M1"),
    "stochastic ties": (lambda: draw.number_line(rounding="stochastic"), ValueError, "go both ways"),
    "an unknown rounding": (lambda: draw.number_line(rounding="up"), ValueError, "rounding must be one of"),
    "more than a block": (lambda: draw.block([1.0] * 33), ValueError, r"1 … 32 values in a row.*\(33,\)"),
    "no values": (lambda: draw.block([]), ValueError, "1 … 32 values in a row"),
    "a matrix": (lambda: draw.block(np.ones((2, 2))), ValueError, "values in a row"),
    "words": (lambda: draw.block(["a"]), TypeError, "float16"),
    "another format's rule": (lambda: draw.block([1.0], rule="nearest"), ValueError, "scale rules"),
    "NaN under rules": (lambda: draw.scale_rules([NAN]), ValueError, "NaN under every scale rule"),
    "stochastic rules": (lambda: draw.scale_rules(A, rounding="stochastic"), ValueError, "not stochastic"),
    "one product": (lambda: draw.adder_tree([1], [1]), ValueError, "2 … 64 codes"),
    "65 products": (lambda: draw.adder_tree([1] * 65, [1] * 65), ValueError, "2 … 64 codes"),
    "sides that differ": (lambda: draw.adder_tree([1, 2], [1, 2, 3]), ValueError, r"\(2,\) and \(3,\)"),
    "codes without an integer": (
        lambda: draw.adder_tree([127, 0], [0, 0], mxfp.E4M3),
        ValueError,
        "no integer",
    ),
    "a deep tree": (
        lambda: draw.adder_tree([1] * 32, [1] * 32, tree=mxfp.adders.linear(32)),
        ValueError,
        "up to 8 levels.* 31",
    ),
    "a tree of other lanes": (
        lambda: draw.adder_tree([1] * 4, [1] * 4, tree=mxfp.adders.balanced(8)),
        ValueError,
        "8 lanes, got 4",
    ),
    "a width of none": (lambda: draw.adder_tree([1] * 4, [1] * 4, width=0), ValueError, "number of bits"),
    "no accumulators": (lambda: draw.accumulators(quantized(A), quantized(B), []), ValueError, "1 … 7"),
    "too many accumulators": (
        lambda: draw.accumulators(quantized(A), quantized(B), [mxfp.Exact()] * 8),
        ValueError,
        "got 8",
    ),
    "vectors that differ": (lambda: draw.accumulators(quantized(A), quantized([1.0])), ValueError, "1"),
    "a NaN scale": (
        lambda: draw.accumulators(quantized([NAN]), quantized([1.0])),
        ValueError,
        "no exact sum to draw",
    ),
    "no products": (lambda: draw.accumulators(quantized([]), quantized([])), ValueError, "no products"),
    "a register that overflows": (
        lambda: draw.accumulators(quantized(A), quantized(B), [mxfp.FixedPoint(4, 0)]),
        ValueError,
        "does not fit signed 4 bits",
    ),
    "an unknown layout": (lambda: draw.bit_layout("E9M9"), ValueError, "E2M1.*got 'E9M9'"),
    "no layout": (lambda: draw.bit_layout(4), ValueError, "got 4"),
    "codes out of range": (lambda: draw.bit_layout("E2M1", codes=[16]), ValueError, "0 … 15, got 16"),
    "too many codes": (lambda: draw.bit_layout("E4M3", codes=range(33)), ValueError, "1 … 32 codes"),
    "half a block": (lambda: draw.bit_layout("MXFP4", codes=[1] * 16), ValueError, "32 codes in a row"),
    "no formats": (lambda: draw.errors([1.0], []), ValueError, "got none"),
    "zeros": (lambda: draw.errors([0.0, 0.0]), ValueError, "not all zero"),
    "NaN weights": (lambda: draw.errors([1.0, NAN]), ValueError, "finite numbers"),
    "an unknown figure": (lambda: draw.named("pie"), ValueError, "number-line.*got 'pie'"),
    "an option of another figure": (
        lambda: draw.named("bit-layout", width=3),
        ValueError,
        "bit-layout is drawn from format, not from width",
    ),
    "one side": (lambda: draw.named("adder-tree", values=A), ValueError, "both sides"),
    "sides of two lengths": (
        lambda: draw.named("accumulators", values=A, values_b=B[:3]),
        ValueError,
        "32 and 3",
    ),
    "an element format for a block": (lambda: draw.named("block", format="E2M1"), ValueError, "MXFP4"),
    "another kind of file": (lambda: draw.render(draw.number_line(), "gif"), ValueError, "svg, png, pdf"),
    "values beyond any picture": (lambda: draw.block([1e308, 1.0]), ValueError, "magnitudes of 1e\\+300"),
    "rules on values beyond any picture": (
        lambda: draw.scale_rules([-1e308]),
        ValueError,
        "magnitudes of 1e\\+300",
    ),
    "a folder for a file": (lambda: draw.save(draw.number_line(), "."), ValueError, "got '.'"),
    "another ending": (lambda: draw.save(draw.number_line(), "x.jpg"), ValueError, "got 'x.jpg'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_drawn_is_refused_in_one_line(case):
    call, error, words = REFUSED[case]
    with pytest.raises(error, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


# --- files, and the settings they are made under


def test_a_figure_gives_the_same_bytes_whatever_the_settings_the_seed_and_the_process():
    code = (
        "import sys, matplotlib as mpl; from mxfp import draw\n"
        "mpl.rcParams.update({'font.size': 20, 'axes.facecolor': 'black', 'svg.hashsalt': 'other'})\n"
        "sys.stdout.buffer.write(draw.render(draw.named('scale-rules'), sys.argv[1]))\n"
    )
    here = {kind: draw.render(draw.named("scale-rules"), kind) for kind in ("svg", "png", "pdf")}
    figure = draw.named("scale-rules")
    for kind, made in here.items():
        assert draw.render(figure, kind) == draw.render(figure, kind) == made
        run = [sys.executable, "-c", code, kind]
        other = subprocess.run(
            run, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": "7"}
        )
        assert other.stdout == made


def test_drawing_leaves_the_users_settings_as_they_were():
    with mpl.rc_context({"font.size": 31.0, "svg.hashsalt": "mine"}):
        before = dict(mpl.rcParams)
        draw.render(draw.number_line())
        assert dict(mpl.rcParams) == before
        with pytest.raises(ValueError, match="go both ways"):
            draw.number_line(rounding="stochastic")
        assert dict(mpl.rcParams) == before


def test_pyplot_is_never_touched():
    code = (
        "import sys; from mxfp import draw\n"
        "[draw.render(draw.named(n)) for n in draw.FIGURES if n != 'errors']\n"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


@pytest.mark.parametrize("name", [n for n in draw.FIGURES if n != "errors"])
def test_an_svg_is_read_aloud_and_its_text_is_text(name):
    figure = draw.named(name)
    svg = draw.render(figure)
    root = ElementTree.fromstring(svg)
    title, _, words = figure.get_label().partition("\n")
    assert root.get("role") == "img"
    assert [child.tag for child in root[:2]] == [f"{SVG}title", f"{SVG}desc"]
    assert (root[0].text, root[1].text) == (title, words)
    assert len(words) > 60
    assert title in svg_texts(svg)
    assert b"<dc:date>" not in svg
    assert not re.search(rb"[ \t]\n", svg)


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    draw.save(draw.number_line(), tmp_path / "line.PDF")
    assert (tmp_path / "line.PDF").read_bytes().startswith(b"%PDF")
    with pytest.raises(OSError, match=r"cannot write .*no/x\.svg"):
        draw.save(draw.number_line(), tmp_path / "no" / "x.svg")
    assert [p.name for p in tmp_path.iterdir()] == ["line.PDF"]


# --- legible

SHOWN = {
    **{f"{f}": lambda f=f: draw.number_line(f) for f in ELEMENTS},
    **{f"block {f}": lambda f=f: draw.block(A[: f.block], f) for f in FORMATS},
    "block of one tiny": lambda: draw.block([1e-30]),
    "block of zeros": lambda: draw.block([0.0] * 4),
    "block of NaN": lambda: draw.block([1.0, NAN]),
    **{f"rules {f}": lambda f=f: draw.scale_rules(A[: f.block], f) for f in FORMATS},
    **{f"tree {f}": lambda f=f: draw.adder_tree(quantized(A, f).codes, quantized(B, f).codes, f) for f in MX},
    "tree of the largest": lambda: draw.adder_tree([7] * 32, [15] * 32, width=13),
    **{f"bits {n}": lambda n=n: draw.bit_layout(n) for n in LAYOUTS},
    "accumulators": lambda: draw.named("accumulators"),
    "seven accumulators": lambda: draw.accumulators(
        quantized(A * 4),
        quantized(B * 4),
        [mxfp.Sequential(d) for d in ("float16", "bfloat16") for _ in "abc"],
    ),
    "errors": lambda: draw.errors(np.array(A + B)),
}


@pytest.mark.parametrize("case", SHOWN)
def test_no_text_is_cut_off_or_lies_on_another(case):
    figure = SHOWN[case]()
    canvas = FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    boxes = [(t.get_text(), t.get_window_extent(canvas.get_renderer())) for t in drawn_texts(figure)]
    assert len(boxes) > 5
    for n, (text, box) in enumerate(boxes):
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= figure.bbox.x1, text
        assert box.y1 <= figure.bbox.y1, text
        for other, its in boxes[:n]:
            across = min(box.x1, its.x1) - max(box.x0, its.x0)
            down = min(box.y1, its.y1) - max(box.y0, its.y0)
            assert across < 1 or down < 1.5, (text, other)


def drawn_texts(figure):
    """Texts that are seen: those of ticks beyond their axis are not."""
    hidden = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in axis.get_major_ticks():
                if not low <= tick.get_loc() <= high:
                    hidden |= {tick.label1, tick.label2}
    found = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    return [t for t in found if t not in hidden]


# --- names, and the pictures of the pages


def test_every_figure_has_a_name_and_every_name_a_figure():
    others = {"FIGURES", "PICTURES", "example", "named", "pictures", "render", "save"}
    functions = set(draw.__all__) - others
    assert {name.replace("-", "_") for name in draw.FIGURES} == functions
    assert {name for name, _ in draw.PICTURES.values()} == set(draw.FIGURES)
    for entry in draw.FIGURES.values():
        assert entry.summary
        assert entry.options


def svg_texts(svg):
    return ["".join(t.itertext()) for t in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def made_by(svg):
    return re.search(rb"Matplotlib v([\w.]+)", svg)[1].decode()


def test_the_pictures_of_the_pages_are_what_is_drawn_now():
    made = draw.pictures(weights())
    assert set(made) == {path.name for path in FIGURES.iterdir()}
    for name, svg in made.items():
        committed = (FIGURES / name).read_bytes()
        assert svg_texts(committed) == svg_texts(svg), f"{name}: mxfp draw --all docs/figures"
        if made_by(committed) == mpl.__version__:
            assert committed == svg, f"{name}: mxfp draw --all docs/figures"


def test_the_page_of_figures_shows_every_picture_with_words_for_those_who_do_not_see_it():
    page = (FIGURES.parent / "figures.md").read_text(encoding="utf-8")
    shown = re.findall(r"!\[([^\]]+)\]\(figures/([\w-]+)\.svg\)", page)
    assert [name for _, name in shown] == list(draw.PICTURES)
    assert all(len(words) > 20 for words, _ in shown)
    for name in draw.FIGURES:
        assert f"mxfp draw {name}" in page


def test_figures_quoted_on_the_page_are_those_of_the_pictures():
    page = (FIGURES.parent / "figures.md").read_text(encoding="utf-8")
    quoted = {"accumulators": ("54.8125", "10.8125"), "errors": ("18.7", "42.1", "147,456")}
    for name, numbers in quoted.items():
        svg = (FIGURES / f"{name}.svg").read_text(encoding="utf-8")
        for number in numbers:
            assert number in page
            assert number in svg


# --- the command


def inside(*arguments):
    return CliRunner().invoke(cli.cli, [str(a) for a in arguments], catch_exceptions=False)


def test_draw_lists_the_figures_and_their_options():
    out = inside("draw").output
    assert all(name in out for name in draw.FIGURES)
    assert "--scale-rule" in out


@pytest.mark.parametrize("name", [n for n in draw.FIGURES if n != "errors"])
def test_draw_name_writes_what_the_function_draws(name, tmp_path):
    out = tmp_path / "figure.svg"
    result = inside("draw", name, "--out", out)
    assert (result.exit_code, result.output) == (0, f"{out}\n")
    assert out.read_bytes() == draw.render(draw.named(name))


def test_draw_writes_to_a_file_of_its_name_if_none_is_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert inside("draw", "bit-layout", "--format", "e8m0").output == "bit-layout.svg\n"
    assert (tmp_path / "bit-layout.svg").read_bytes() == draw.render(draw.bit_layout("E8M0"))


def test_draw_takes_numbers_rules_roundings_and_accumulators(tmp_path):
    def drawn(*arguments):
        return inside("draw", *arguments, "--out", "-").output.encode()

    x = [0.1, -2.3, 7.0, 2.5]
    text = " ".join(map(str, x))
    asked = drawn("block", "--values", text, "--scale-rule", "rceil", "--rounding", "stochastic", "--seed", 3)
    expected = draw.block(x, rule="rceil", rounding="stochastic", rng=np.random.default_rng(3))
    assert asked == draw.render(expected)
    asked = drawn("accumulators", "--values", text, "--values-b", text, "--accumulator", "exact:float16")
    assert asked == draw.render(draw.accumulators(quantized(x), quantized(x), [mxfp.Exact("float16")]))
    np.savez(tmp_path / "layer.npz", activations=np.ones((1, 4)), weight=np.array([x]))
    asked = drawn("errors", "--data", tmp_path / "layer.npz", "--format", "nvfp4")
    assert asked == draw.render(draw.errors(np.array([x]), [mxfp.NVFP4]))


def test_draw_all_writes_every_picture(tmp_path):
    result = inside("draw", "--all", tmp_path / "new")
    assert result.output == f"{len(draw.PICTURES)} pictures in {tmp_path / 'new'}\n"
    assert {p.stem for p in (tmp_path / "new").iterdir()} == set(draw.PICTURES)


WRONG = {
    ("pie",): "'pie' is not one of",
    ("--format", "E2M1"): "which figure? number-line",
    ("block", "--values", "one"): "could not convert",
    (
        "block",
        "--width",
        "3",
    ): "block is drawn from format, values, scale_rule, rounding, seed, not from width",
    ("block", "--data", "x.npz"): "block is not drawn from --data",
    ("block", "--out", "x.gif"): "got 'x.gif'",
    ("block", "--out", "/nowhere/x.svg"): "cannot write /nowhere/x.svg",
    ("errors", "--data", "/nowhere.npz"): "/nowhere.npz: No such file",
    ("--all", __file__): "is a file",
    ("block", "--all", "x"): "--all draws the pictures of the docs",
}


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_wrong_calls_of_draw_end_in_one_clear_line(arguments, tmp_path):
    run = [sys.executable, "-m", "mxfp", "draw", *arguments]
    done = subprocess.run(run, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode
    assert WRONG[arguments] in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_figures_are_listed_and_drawing_names_the_extra(tmp_path):
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import mxfp.cli; sys.argv = ['mxfp', 'draw', *sys.argv[1:]]; mxfp.cli.main()"
    )
    run = [sys.executable, "-c", code]
    done = subprocess.run([*run, "block"], check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert (
        done.stderr == "mxfp: figures need matplotlib; install it with: pip install 'mxfp-emulator[plot]'\n"
    )
    assert not list(tmp_path.iterdir())
    listed = subprocess.run(run, check=True, capture_output=True, text=True)
    assert "number-line" in listed.stdout


def test_png_is_wide_enough_for_print():
    picture = draw.render(draw.number_line(), "png")
    width = int.from_bytes(picture[16:20], "big")
    assert width == round(5.2 * 160)
    assert io.BytesIO(picture).read(8) == b"\x89PNG\r\n\x1a\n"
