# SPDX-License-Identifier: Apache-2.0
"""Accumulators compared on a layer: every figure again in exact rationals, and the command around them."""

import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from fractions import Fraction
from functools import cache

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

import mxfp
import oracle
from mxfp import cli, data, names
from mxfp.report import accumulation, accumulation_figures, accumulation_tables
from mxfp.report.accumulation import compare, default_accumulators, prefix
from support import FORMATS, bits, oracle_result, oracle_terms, size

PNG = b"\x89PNG\r\n\x1a\n"
MODELS = (
    "exact:float64",
    "exact:bfloat16",
    "sequential:float32",
    "sequential:float16",
    "sequential:bfloat16",
    "pairwise:float16",
    "fixed:24:-1",
    "fixed:90:-30:raise:nearest_even:float32",
    "blackwell",
)


def small_layer(k=40, seed=7):
    """3 tokens, 4 outputs, K with a partial block, and outputs that nearly cancel."""
    rng = np.random.default_rng(seed)
    a, w = rng.normal(size=(3, k)), rng.normal(size=(4, k))
    a *= np.exp2(rng.integers(-6, 6, size=(3, k)))
    w[0, 1::2] = -w[0, ::2][: k // 2]
    return data.Layer("small", a.astype(np.float32), w.astype(np.float32))


@cache
def compared(fmt, k, models=MODELS):
    return compare(
        small_layer(), fmt=fmt, accumulators=[names.accumulator(text) for text in models], ks=[k, 40, 32, 8]
    )


def vectors(q):
    """The rows of a (rows, K) BlockArray, each a vector."""
    return [
        mxfp.BlockArray(codes, scales, q.format, -1, q.tensor_scale)
        for codes, scales in zip(q.codes, q.scales, strict=True)
    ]


def rows_at(fmt, k):
    """The rows of both sides at K: what the layer has, the rows behind it where that is too short."""
    layer = small_layer()
    found = []
    for x in (layer.activations, layer.weight):
        count = -(-k // x.shape[1])
        longer = [[v for n in range(count) for v in x[(row + n) % len(x)]] for row in range(len(x))]
        q = mxfp.quantize(np.array(longer, np.float32), fmt)
        found.append(vectors(prefix(q, k)))
    return found


def exact_sum(a, b):
    factor = Fraction(a.tensor_scale) * Fraction(b.tensor_scale)
    return sum(oracle_terms(a, b), Fraction(0)) * factor


def unit_of(accumulator, x, factor):
    """The last place at a magnitude, from the dtype's description."""
    info = ml_dtypes.finfo(accumulator.result_dtype)
    exponent = max(oracle.floor_log2(x), int(info.minexp)) if x else int(info.minexp)
    unit = oracle.power(exponent - int(info.nmant))
    if isinstance(accumulator, mxfp.FixedPoint):
        unit = max(unit, oracle.power(accumulator.lsb_exponent) * factor)
    return unit


def result_of(accumulator, a, b):
    """The bits of a result; None where the register overflows."""
    try:
        return oracle_result(accumulator, a, b)
    except OverflowError:
        return None


@pytest.mark.parametrize("k", [100, 40, 32, 8])
@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4, mxfp.MXFP8_E4M3, mxfp.MXINT8], ids=repr)
def test_every_figure_is_that_of_the_exact_rationals(fmt, k):
    found = compared(fmt, 100)
    left, right = rows_at(fmt, 100)
    left, right = ([prefixed(x, k) for x in side] for side in (left, right))
    pairs = list(itertools.product(left, right))
    sums = [exact_sum(a, b) for a, b in pairs]
    rms = math.sqrt(sum(x * x for x in sums) / len(sums))
    factor = Fraction(left[0].tensor_scale) * Fraction(right[0].tensor_scale)
    for curve in found.curves:
        accumulator = names.accumulator(curve.accumulator)
        dtype = accumulator.result_dtype.name
        point = next(p for p in curve.points if p.k == k)
        patterns = [result_of(accumulator, a, b) for a, b in pairs]
        values = [p if p is None else oracle.bits_to_fraction(p, dtype) for p in patterns]
        finite = [n for n, v in enumerate(values) if isinstance(v, Fraction)]
        error = [abs(values[n] - sums[n]) for n in finite]
        assert (point.outputs, point.rms) == (12, pytest.approx(rms, rel=1e-12))
        assert point.overflowed == sum(v in (None, "inf", "-inf") for v in values)
        assert point.nan == values.count("nan")
        assert point.differ == sum(
            p != oracle.exact(oracle_terms(a, b), dtype, factor)
            for p, (a, b) in zip(patterns, pairs, strict=True)
        )
        if not finite:
            assert all(math.isnan(x) for x in (point.mean_error, point.largest_error, point.sqnr_db))
            continue
        assert point.mean_error == pytest.approx(float(sum(error) / len(error)), rel=1e-12)
        assert point.largest_error == pytest.approx(float(max(error)), rel=1e-15)
        assert point.mean_relative == pytest.approx(point.mean_error / rms, rel=1e-12)
        assert point.largest_relative == pytest.approx(point.largest_error / rms, rel=1e-12)
        ulps = [
            e / unit_of(accumulator, max(abs(sums[n]), abs(values[n])), factor)
            for n, e in zip(finite, error, strict=True)
        ]
        assert point.largest_ulps == pytest.approx(float(max(ulps)), rel=1e-12)
        noise = sum(e * e for e in error)
        if noise:
            signal_power = sum(sums[n] ** 2 for n in finite)
            assert point.sqnr_db == pytest.approx(10 * math.log10(signal_power / noise), abs=1e-9)
        else:
            assert point.sqnr_db == math.inf


def prefixed(q, k):
    """The first k elements of a vector, cut by hand."""
    return mxfp.BlockArray(q.codes[:k], q.scales[: -(-k // q.format.block)], q.format, -1, q.tensor_scale)


def test_some_outputs_differ_and_some_do_not():
    last = {curve.label: curve.points[-1] for curve in compared(mxfp.MXFP4, 100).curves}
    assert last["exact:float64"].differ == last["exact:float64"].largest_error == 0
    assert last["exact:bfloat16"].differ == 0 < last["exact:bfloat16"].largest_error
    assert 0 < last["sequential:bfloat16"].differ < 12
    assert last["fixed:24:-1"].largest_error > 0


@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4], ids=repr)
def test_a_longer_k_takes_the_rows_behind(fmt):
    found = compared(fmt, 100, ("sequential:float16",))
    assert (found.layer_k, found.joined, found.ks) == (40, 3, [8, 32, 40, 100])
    pairs = list(itertools.product(*rows_at(fmt, 100)))
    patterns = [oracle_result(mxfp.Sequential("float16"), a, b) for a, b in pairs]
    values = [oracle.bits_to_fraction(p, "float16") for p in patterns]
    error = [
        abs(v - exact_sum(a, b)) for v, (a, b) in zip(values, pairs, strict=True) if isinstance(v, Fraction)
    ]
    largest = found.curves[0].points[-1].largest_error
    if error:
        assert largest == pytest.approx(float(max(error)), rel=1e-15)
    else:
        assert math.isnan(largest)
    assert "up to 3 rows" in accumulation_tables.headline(found)


def test_prefixes_add_up():
    layer = small_layer(k=100)
    a, b = mxfp.quantize(layer.activations), mxfp.quantize(layer.weight[:3])
    whole = mxfp.block_dots(a, b).fractions()
    assert prefix(a, 100) == a
    for blocks, k in enumerate((32, 64, 96), start=1):
        got = mxfp.block_dots(prefix(a, k), prefix(b, k)).fractions()
        assert got.tolist() == whole[:, :blocks].tolist()
        last = mxfp.block_dots(prefix(a, k), prefix(b, k)).fractions().sum(axis=-1)
        assert (whole[:, blocks:].sum(axis=-1) + last).tolist() == whole.sum(axis=-1).tolist()


@pytest.mark.parametrize("rounding", mxfp.registers.SHIFT_ROUNDINGS)
def test_a_register_that_overflows_is_counted_named_and_sized(rounding):
    layer, lsb = small_layer(k=200, seed=8), -3
    kinds = {
        overflow: mxfp.FixedPoint(11, lsb, overflow, rounding) for overflow in ("raise", "wrap", "saturate")
    }
    found = compare(layer, accumulators=list(kinds.values()), ks=[200])
    pairs = list(itertools.product(*(vectors(mxfp.quantize(x)) for x in (layer.activations, layer.weight))))
    overflowing, first = [], []
    for n, (a, b) in enumerate(pairs):
        try:
            oracle_result(kinds["raise"], a, b)
            overflowing.append(False)
        except OverflowError:
            overflowing.append(True)
            with pytest.raises(mxfp.WidthError) as caught:
                kinds["raise"](mxfp.block_dots(a, b))
            first.append((caught.value.block, divmod(n, 4), caught.value.value))
    assert 0 < sum(overflowing) < 12
    for curve, overflow in zip(found.curves, kinds, strict=True):
        (point,) = curve.points
        assert point.overflowed == sum(overflowing)
        name = point.first_overflow
        assert (name.block, name.output, name.value) == min(first)
        assert point.largest_bound == math.inf
        counted = [pair for pair, lost in zip(pairs, overflowing, strict=True) if not lost]
        counted = counted if overflow == "raise" else pairs
        results = [oracle_result(kinds[overflow], a, b) for a, b in counted]
        error = [
            abs(oracle.bits_to_fraction(p, "float64") - exact_sum(a, b))
            for p, (a, b) in zip(results, counted, strict=True)
        ]
        assert point.mean_error == pytest.approx(float(sum(error) / len(error)), rel=1e-12)
        assert point.differ >= sum(overflowing)
    enough = found.curves[0].points[0].register_bits
    assert not compare_one(layer, mxfp.FixedPoint(enough, lsb, rounding=rounding)).overflowed
    assert compare_one(layer, mxfp.FixedPoint(enough - 1, lsb, rounding=rounding)).overflowed


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [("floor", (0, (1, 0), -5)), ("toward_zero", None), ("nearest_even", (0, (0, 0), 4))],
)
def test_what_rounding_makes_of_a_term_decides_whether_it_fits(rounding, expected):
    layer = data.Layer("halves", np.array([[3.0, 1.0], [-4.0, -1.0]]), np.array([[1.0, 0.5]]))  # 3.5, -4.5
    point = compare_one(layer, mxfp.FixedPoint(3, 0, rounding=rounding))
    first = point.first_overflow
    assert (first and (first.block, first.output, first.value)) == expected
    assert point.overflowed == (expected is not None)
    assert point.register_bits == 3 + (expected is not None)


def test_ulps_of_a_result_that_should_be_zero_are_its_own():
    a = np.zeros((1, 5 * 32))
    a[0, ::32] = [2048, 1, 1, -2048, -2]  # float16 drops both ones
    layer = data.Layer("cancels", a, np.ones((1, 5 * 32)))
    point = compare_one(layer, mxfp.Sequential("float16"))
    assert (point.rms, point.largest_error, point.largest_relative) == (0.0, 2.0, math.inf)
    assert point.largest_ulps == 2 / 2**-9
    assert point.sqnr_db == -math.inf


def test_a_register_whose_lsb_float64_does_not_hold_has_figures_too():
    point = compare_one(small_layer(), mxfp.FixedPoint(2, 4096, rounding="toward_zero"))
    assert (point.overflowed, point.differ, point.register_bits) == (0, 12, 1)
    assert (point.sqnr_db, point.largest_ulps) == (0.0, 0.0)
    assert point.largest_error > 0


def compare_one(layer, accumulator, **options):
    (curve,) = compare(layer, accumulators=[accumulator], ks=[layer.weight.shape[1]], **options).curves
    return curve.points[-1]


def test_a_register_that_holds_nothing_has_no_figures_and_the_report_lives():
    found = compare(small_layer(), accumulators=[mxfp.FixedPoint(4, -60)])
    point = found.curves[0].points[-1]
    assert (point.overflowed, point.differ, point.nan) == (12, 12, 0)
    assert math.isnan(point.largest_error)
    assert point.first_overflow.block == 0
    assert (
        json.loads(accumulation_tables.json_text(found))["curves"][0]["points"][-1]["largest_error"] is None
    )
    assert "block 0 of output (0, 0)" in accumulation_tables.markdown(found)
    assert all(accumulation_figures.pictures(found).values())


def test_an_infinite_output_is_counted_and_in_no_error():
    a = np.full((1, 32), 300.0)
    layer = data.Layer("hot", a, np.concatenate([a, np.ones((1, 32))]))
    point = compare_one(layer, mxfp.Sequential("float16"))
    assert (point.outputs, point.overflowed, point.differ) == (2, 1, 0)
    a, b = mxfp.quantize(layer.activations[0]), mxfp.quantize(layer.weight[1])
    exact = exact_sum(a, b)
    rounded = oracle.bits_to_fraction(oracle.exact([exact], "float16"), "float16")
    assert point.largest_error == float(abs(rounded - exact))
    assert point.largest_bound == math.inf


@pytest.mark.parametrize("fmt", FORMATS, ids=repr)
def test_no_error_is_above_its_bound_by_default(fmt):
    found = compare(small_layer(k=size(300, 70)), fmt=fmt)
    assert len(found.curves) >= 6
    for curve, point in ((c, p) for c in found.curves for p in c.points):
        assert not point.largest_ratio > 1, curve.label
        if point.largest_bound < math.inf:
            assert point.largest_error <= point.largest_bound, curve.label
            assert point.overflowed == 0


def test_an_error_above_its_bound_would_be_seen(monkeypatch):
    monkeypatch.setattr("mxfp.report.tally.error_bound", lambda accumulator, terms: np.full((3, 4), 1e-9))
    point = compare_one(small_layer(), mxfp.Sequential("float16"))
    assert point.largest_ratio == pytest.approx(point.largest_error / 1e-9)


def test_figures_do_not_depend_on_the_tiles(monkeypatch):
    layer = small_layer(k=size(100, 40))
    chosen = [mxfp.Sequential("bfloat16"), mxfp.FixedPoint(12, -6), mxfp.BLACKWELL_MXFP4]
    whole = compare(layer, accumulators=chosen)
    for terms in (size(1, 4), 30):
        monkeypatch.setattr(accumulation, "TERMS", terms)
        cut = compare(layer, accumulators=chosen)
        for one, other in zip(whole.curves, cut.curves, strict=True):
            for p, q in zip(one.points, other.points, strict=True):
                assert p.first_overflow == q.first_overflow
                assert (p.outputs, p.differ, p.overflowed, p.register_bits) == (
                    q.outputs,
                    q.differ,
                    q.overflowed,
                    q.register_bits,
                )
                assert (p.largest_error, p.largest_ulps, p.largest_bound, p.largest_ratio) == (
                    q.largest_error,
                    q.largest_ulps,
                    q.largest_bound,
                    q.largest_ratio,
                )
                assert p.mean_error == pytest.approx(q.mean_error, rel=1e-12)


@pytest.mark.parametrize("fmt", FORMATS, ids=repr)
def test_default_registers_hold_the_largest_elements_under_the_largest_scales(fmt):
    top = fmt.element.code_count // 2 - 1
    while not fmt.element.finite[top] or fmt.element.values[top] < fmt.element.max:
        top -= 1
    scale = 100 if fmt.scale.power_of_two else fmt.scale.nan_code - 1
    codes, scales = np.full((1, 128), top, np.uint8), np.full((1, 128 // fmt.block), scale, np.uint8)
    a = mxfp.BlockArray(codes, scales, fmt)
    registers = [x for x in default_accumulators(a, a) if isinstance(x, mxfp.FixedPoint)]
    assert [x.width for x in registers] == list(accumulation.DEFAULT_WIDTHS)
    terms = mxfp.block_dots(a, a)
    for register in registers:
        assert register(terms)[0] > 0
        with pytest.raises(mxfp.WidthError):
            mxfp.FixedPoint(register.width, register.lsb_exponent - 2)(terms)


def test_the_default_tensor_core_is_the_one_with_an_instruction_for_the_formats():
    def labels(fmt, fmt_b=None):
        return {c.label for c in compare(small_layer(), fmt=fmt, fmt_b=fmt_b).curves}

    assert "blackwell" in labels(mxfp.MXFP4)
    assert "blackwell" in labels(mxfp.NVFP4)
    assert "blackwell-mxf8f6f4" in labels(mxfp.MXFP8_E4M3, mxfp.MXFP4)
    assert not any("blackwell" in text for text in labels(mxfp.MXINT8))


def test_weights_may_have_a_format_of_their_own():
    layer = small_layer()
    found = compare(layer, fmt=mxfp.MXFP8_E4M3, fmt_b=mxfp.MXFP4, accumulators=[mxfp.Sequential("bfloat16")])
    a, b = mxfp.quantize(layer.activations, mxfp.MXFP8_E4M3), mxfp.quantize(layer.weight, mxfp.MXFP4)
    got = mxfp.matmul(a, b.T, accumulator=mxfp.Sequential("bfloat16"), engine="reference")
    rounded = mxfp.matmul(a, b.T, accumulator=mxfp.Exact("bfloat16"), engine="reference")
    assert found.curves[0].points[-1].differ == int((bits(got) != bits(rounded)).sum())
    assert "MXFP8_E4M3 x MXFP4" in accumulation_tables.headline(found)


def test_default_lengths_double_from_a_block_to_the_layer():
    assert compare(small_layer(k=200), accumulators=[mxfp.Exact()]).ks == [32, 64, 128, 200]
    assert compare(small_layer(k=64), accumulators=[mxfp.Exact()]).ks == [32, 64]
    assert compare(small_layer(k=20), accumulators=[mxfp.Exact()]).ks == [20]
    assert compare(small_layer(k=40), fmt=mxfp.NVFP4, accumulators=[mxfp.Exact()]).ks == [16, 32, 40]


def test_an_accumulator_asked_for_twice_is_measured_once():
    found = compare(small_layer(), accumulators=[mxfp.Exact(), mxfp.Exact("float32"), mxfp.Exact("float16")])
    assert [c.label for c in found.curves] == ["exact:float32", "exact:float16"]


def test_zeros_have_no_error_and_make_a_picture():
    found = compare(data.Layer("nothing", np.zeros((2, 64)), np.zeros((3, 64))))
    points = [p for c in found.curves for p in c.points]
    assert {(p.rms, p.largest_relative, p.differ, p.largest_ratio) for p in points} == {(0.0, 0.0, 0, 0.0)}
    assert all(accumulation_figures.pictures(found).values())


BAD = {
    "group": ({"accumulators": [mxfp.Fused(25, 32, 32, -133)], "fmt": mxfp.NVFP4}, "does not apply to NVFP4"),
    "blocks": ({"fmt": mxfp.MXFP4, "fmt_b": mxfp.NVFP4}, "MXFP4 in blocks of 32, b is NVFP4 in blocks of 16"),
    "no accumulator": ({"accumulators": []}, r"accumulators: a list of at least one, .* got \[\]"),
    "one accumulator": ({"accumulators": mxfp.Exact("float32")}, "accumulators: a list of at least one"),
    "no length": ({"ks": []}, r"K: a list of at least one, or None for the default, got \[\]"),
    "one length": ({"ks": 64}, "K: a list of at least one, or None for the default, got 64"),
    "zero": ({"ks": [0]}, "K is a number of elements, 1 or more, got 0"),
    "half": ({"ks": [1.5]}, "got 1.5"),
    "too long": ({"ks": [1 << 40]}, "ask for a smaller K"),
}


@pytest.mark.parametrize(("options", "message"), BAD.values(), ids=BAD)
def test_what_cannot_be_compared_is_refused_in_one_line(options, message):
    with pytest.raises(ValueError, match=message) as caught:
        compare(small_layer(), **options)
    assert "\n" not in str(caught.value)


OTHERS = {
    "format": ({"fmt": mxfp.E2M1}, "a is a BlockFormat, such as mxfp.MXFP4, got E2M1"),
    "other format": ({"fmt_b": mxfp.E2M1}, "b is a BlockFormat"),
    "text": ({"accumulators": ["exact"]}, "an accumulator is one such as .*, got 'exact'"),
}


@pytest.mark.parametrize(("options", "message"), OTHERS.values(), ids=OTHERS)
def test_what_is_something_else_is_refused_by_name(options, message):
    with pytest.raises(TypeError, match=message):
        compare(small_layer(), **options)


NO_LAYERS = {
    "K": (np.ones((2, 32)), np.ones((2, 64)), r"do not fit: \(2, 32\) and \(2, 64\)"),
    "vectors": (np.ones(32), np.ones(32), "do not fit"),
    "no tokens": (np.ones((0, 32)), np.ones((2, 32)), "do not fit"),
    "no K": (np.ones((2, 0)), np.ones((2, 0)), "do not fit"),
    "nan": (np.full((2, 32), np.nan), np.ones((2, 32)), "activations of odd are not all finite"),
    "infinity": (np.ones((2, 32)), np.full((2, 32), np.inf), "weight of odd are not all finite"),
}


@pytest.mark.parametrize(("a", "w", "message"), NO_LAYERS.values(), ids=NO_LAYERS)
def test_arrays_that_are_no_layer_have_no_figures(a, w, message):
    with pytest.raises(ValueError, match=message):
        compare(data.Layer("odd", a, w), accumulators=[mxfp.Exact("float32")])
    with pytest.raises(TypeError, match="layer is a Layer"):
        compare((a, w))


def test_lists_and_read_only_views_are_layers_too():
    layer = small_layer(k=128)
    a = layer.activations[::-1, ::2]
    a.flags.writeable = False
    view = data.Layer("small", a, layer.weight[:, ::-2])
    plain = data.Layer("small", a.tolist(), np.ascontiguousarray(layer.weight[:, ::-2]))
    chosen = [mxfp.Sequential("float16"), mxfp.FixedPoint(20, -9)]
    assert compare(view, accumulators=chosen) == compare(plain, accumulators=chosen)


def test_progress_runs_to_the_end():
    seen = []
    compare(small_layer(), progress=lambda what, done, total: seen.append((what, done, total)))
    assert seen[-1][1] == seen[-1][2]
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert any("sequential:float16" in what for what, _, _ in seen)


# --- what is printed and written


def test_markdown_and_terminal_print_the_same_tables():
    found = compared(mxfp.MXFP4, 40)
    text = accumulation_tables.markdown(found)
    for table in accumulation_tables.tables(found):
        assert all(cell in text for row in table.rows for cell in row)
        assert all(len(row) == len(table.columns) for row in table.rows)


def test_a_table_of_many_k_shows_the_ends():
    found = compare(small_layer(), accumulators=[mxfp.Exact()], ks=range(1, 41))
    columns = accumulation_tables.tables(found)[-1].columns
    assert (columns[1], columns[-1], len(columns)) == ("1", "40", 1 + accumulation_tables.MOST_COLUMNS)


def test_pictures_are_whole_and_the_same_each_time():
    found = compared(mxfp.MXFP4, 40)
    first, again = accumulation_figures.pictures(found), accumulation_figures.pictures(found)
    assert first == again
    assert first["error_by_k.png"].startswith(PNG)
    svg = first["error_by_k.svg"].decode()
    assert all(
        text in svg for text in ("<svg", "sequential:float16", "proved bound", "exact:float64 (no error)")
    )


def test_the_picture_says_which_accumulator_overflows():
    found = compare(small_layer(k=200), accumulators=[mxfp.FixedPoint(12, -3)])
    overflowing = [p.k for p in found.curves[0].points if p.overflowed]
    assert 0 < len(overflowing) < len(found.ks)
    svg = accumulation_figures.pictures(found)["error_by_k.svg"].decode()
    assert f"overflows from K = {overflowing[0]}" in svg


@pytest.mark.parametrize("ks", [[32], range(1, 41), [1, 3, 9, 27], [100_000]])
def test_ticks_have_room_and_keep_the_last(ks):
    ticks = accumulation_figures._ticks(list(ks))
    assert ticks[-1] == list(ks)[-1]
    assert len(ticks) <= 9
    assert all(b >= 1.4 * a for a, b in itertools.pairwise(ticks))


@pytest.fixture
def npz(tmp_path):
    layer = small_layer()
    path = tmp_path / "small.npz"
    np.savez(path, activations=layer.activations, weight=layer.weight)
    return path


def inside(*arguments):
    return CliRunner().invoke(cli.cli, ["accumulate", *map(str, arguments)], catch_exceptions=False)


def run(*arguments, **options):
    command = [sys.executable, "-m", "mxfp", "accumulate", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, **options)


def test_out_writes_every_file_whole(npz, tmp_path):
    for _ in range(2):  # into a new directory, and into one that exists
        out = tmp_path / "deep" / "out"
        assert inside("--data", npz, "--model", "sequential:float16", "--out", out).exit_code == 0
        files = {p.name: p.read_bytes() for p in out.iterdir()}
        assert set(files) == {"accumulate.md", "accumulate.json", "error_by_k.png", "error_by_k.svg"}
        assert re.findall(r"!\[.*?\]\((.*?)\)", files["accumulate.md"].decode()) == ["error_by_k.png"]
        assert json.loads(files["accumulate.json"])["schema"] == "mxfp-accumulate/1"
        assert [p.name for p in (tmp_path / "deep").iterdir()] == ["out"]


def test_json_has_every_point_and_no_infinities(npz):
    models = ("--model", "exact:float64", "--model", "fixed:9:-3", "--model", "sequential:float16")
    result = inside("--data", npz, *models, "--k", 32, "--k", 40, "--json")
    found = json.loads(result.stdout, parse_constant=pytest.fail)
    assert {key: value for key, value in found.items() if key != "curves"} == {
        "schema": "mxfp-accumulate/1",
        "layer": "small",
        "attribution": "",
        "format": "MXFP4",
        "format_b": "MXFP4",
        "tokens": 3,
        "n": 4,
        "layer_k": 40,
        "joined": 1,
    }
    assert [c["accumulator"] for c in found["curves"]] == [
        "exact:float64",
        "fixed:9:-3:raise:floor:float64",
        "sequential:float16",
    ]
    assert [p["k"] for c in found["curves"] for p in c["points"]] == [32, 40] * 3
    first = found["curves"][1]["points"][-1]["first_overflow"]
    assert first is None or set(first) == {"block", "output", "value"}
    assert set(found["curves"][0]["points"][0]) == set(accumulation.Point.__dataclass_fields__)
    assert found["curves"][0]["points"][0]["sqnr_db"] is None


def test_tokens_are_the_first(npz):
    few = json.loads(inside("--data", npz, "--tokens", 1, "--model", "sequential:bfloat16", "--json").stdout)
    layer = small_layer()
    one = data.Layer("small", layer.activations[:1], layer.weight)
    point = compare(one, accumulators=[mxfp.Sequential("bfloat16")]).curves[0].points[-1]
    assert few["tokens"] == 1
    assert few["curves"][0]["points"][-1]["largest_error"] == point.largest_error


def test_the_embedded_layer_is_the_default():
    out = inside("--tokens", 1, "--model", "sequential:float16", "--k", 32).output
    assert "minilm" in out
    assert "Data: encoder layer 3" in out
    assert "Error against the exact sum, K = 32" in out


def test_a_pipe_gets_plain_text(npz):
    environment = {**os.environ, "NO_COLOR": "1"}
    result = run("--data", npz, "--model", "fixed:9:-3:wrap", env=environment)
    assert result.returncode == 0
    assert "\x1b" not in result.stdout
    assert result.stdout.isprintable() or all(c.isprintable() or c == "\n" for c in result.stdout)
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "fixed:9:-3:wrap " in result.stdout


WRONG = {
    "unknown accumulator": (("--model", "quantum"), "quantum"),
    "accumulator of another width": (("--model", "fixed:0:1"), "width is a number of bits"),
    "missing file": (("--data", "nowhere.npz"), "nowhere.npz"),
    "unknown format": (("--format", "MXFP5"), "MXFP5"),
    "blocks that differ": (("--format", "MXFP4", "--format-b", "NVFP4"), "block sizes must be equal"),
    "group that does not divide": (("--format", "NVFP4", "--model", "fused:25:32:32:-133"), "NVFP4"),
    "no products": (("--k", "0"), "0"),
    "too many products": (("--k", str(1 << 40)), "smaller K"),
    "no tokens": (("--tokens", "0"), "0"),
    "an argument": (("layer.npz",), "layer.npz"),
}


@pytest.mark.parametrize(("arguments", "piece"), WRONG.values(), ids=WRONG)
def test_a_wrong_call_exits_non_zero_with_one_clear_line(arguments, piece):
    result = run(*arguments)
    assert result.returncode not in (0, 130)
    assert piece in result.stderr.strip().splitlines()[-1]
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_a_missing_extra_is_named_before_the_work_begins(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'mxfp-emulator\[plot\]'"):
        inside("--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_directory_that_cannot_be_written_is_named_before_the_work_begins(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(accumulation, "compare", lambda *a, **k: pytest.fail("the work began"))
    with pytest.raises(OSError, match="cannot write to"):
        inside("--out", tmp_path / "file" / "below")


INTERRUPTED = """
import pathlib, sys
from mxfp import cli
from mxfp.report import accumulation

fill = accumulation._fill

def told(*arguments):
    for found in fill(*arguments):
        yield found
        pathlib.Path("begun").touch()

accumulation._fill, accumulation.TERMS = told, 1 << 10
cli.main()
"""


@pytest.mark.skipif(os.name == "nt", reason="sends a POSIX signal")
def test_ctrl_c_leaves_nothing_half_written(tmp_path):
    rng = np.random.default_rng(0)
    big = {"activations": rng.normal(size=(128, 256)), "weight": rng.normal(size=(256, 256))}
    np.savez(tmp_path / "big.npz", **big)
    command = [sys.executable, "-c", INTERRUPTED, "accumulate", "--data", "big.npz", "--out", "out"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        while not (tmp_path / "begun").exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["begun", "big.npz"]
