# SPDX-License-Identifier: Apache-2.0
"""The report: figures re-derived in exact or independent arithmetic, files whole, bad data refused."""

import json
import re
import sys
from fractions import Fraction

import numpy as np
import pytest
from click.testing import CliRunner

import mxfp
import oracle
from mxfp import cli, data, whole
from mxfp.report import accuracy, measure, render, tables, throughput
from mxfp.report.accuracy import figures

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True, scope="module")
def _short_rounds():
    """Speed is not what is tested here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(throughput, "ROUND_SECONDS", 0.0)
        yield


@pytest.fixture(scope="module")
def layer():
    """A small one: 3 tokens, K with a partial block, 5 outputs."""
    rng = np.random.default_rng(7)
    a, w = rng.normal(size=(3, 40)).astype(np.float32), rng.normal(size=(5, 40)).astype(np.float32)
    return data.Layer("small", a, w)


@pytest.fixture(scope="module")
def report(layer):
    return measure(layer)


def norm(values):
    return float(sum(Fraction(float(v)) ** 2 for v in np.ravel(values))) ** 0.5


def test_figures_of_a_known_error():
    found = figures(np.array([3.0, 4.5]), np.array([3.0, 4.0]))
    assert (found.relative_error, found.max_abs_error) == (0.1, 0.5)
    assert found.sqnr_db == pytest.approx(20.0, abs=1e-12)


def test_an_exact_product_has_no_error():
    exact = np.array([[1.0, -2.0]])
    found = figures(exact, exact)
    assert (found.relative_error, found.sqnr_db, found.cosine) == (0.0, np.inf, pytest.approx(1.0))


def test_a_product_of_zeros_does_not_pass_for_a_small_signal():
    signal = np.full(4, 2.0**-40)
    assert figures(np.zeros(4), signal).relative_error == 1.0


def test_causes_are_those_of_the_exact_rationals(layer, report):
    exact = [
        [
            sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(r, c, strict=True))
            for c in layer.weight
        ]
        for r in layer.activations
    ]
    for cause in report.causes:
        sides = []
        for x in (layer.activations, layer.weight):
            rows = []
            for row in x:
                values = []
                for k in range(0, 40, 32):
                    block = [Fraction(float(v)) for v in row[k : k + 32]]
                    code, codes = oracle.quantize_block("E2M1", block, cause.rule, "nearest_even")
                    values += oracle.dequantize("E2M1", code, codes)
                rows.append(values)
            sides.append(rows)
        a, w = layer.activations.tolist(), layer.weight.tolist()
        for got, left, right in (
            (cause.from_activations, sides[0], w),
            (cause.from_weights, a, sides[1]),
            (cause.from_both, *sides),
        ):
            error = [
                sum(Fraction(x) * Fraction(y) for x, y in zip(r, c, strict=True)) - e
                for r, es in zip(left, exact, strict=True)
                for c, e in zip(right, es, strict=True)
            ]
            squares = sum(e * e for es in exact for e in es)
            assert got == pytest.approx(float(sum(e * e for e in error) / squares) ** 0.5, rel=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_float16_is_added_one_by_one_with_one_rounding_each(layer, dtype):
    a, b = layer.activations.astype(np.float16), layer.weight.T.astype(np.float16)
    got = accuracy.product_of_float16(a, b, np.dtype(dtype), lambda amount: None)
    for m, n in np.ndindex(got.shape):
        terms = [Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[m], b[:, n], strict=True)]
        assert got[m, n].tobytes() == np.uint64(oracle.sequential(terms, dtype)).tobytes()[: got.itemsize]


def test_the_width_check_finds_the_largest_sum(layer, report):
    qa, qw = mxfp.quantize(layer.activations), mxfp.quantize(layer.weight)
    largest = max(abs(mxfp.block_dots(qa, row_of(qw, n)).sums).max() for n in range(5))
    assert report.width.largest == largest
    assert (report.width.bound, report.width.bits_proved) == (4608, 14)
    assert report.width.bits_needed == mxfp.integers.signed_bits(-report.width.largest, report.width.largest)


def row_of(q, n):
    return mxfp.BlockArray(q.codes[n : n + 1], q.scales[n : n + 1], q.format)


def test_saturated_and_flushed_elements_are_counted():
    x = np.array([[7.0, 0.1, 1.0, 0.0]])
    found = accuracy.elements(x, mxfp.quantize(x))
    assert (found.saturated, found.flushed) == (0.25, 1 / 3)


def test_the_accumulator_has_its_own_share_of_the_error(layer):
    whole = mxfp.FixedPoint(24, 0)  # an LSB of 1 drops every fraction
    exact, coarse = measure(layer, rules=["floor"], accumulators=[mxfp.Exact(), whole]).accuracy[-2:]
    a, w = mxfp.quantize(layer.activations), mxfp.quantize(layer.weight).T
    lost = mxfp.matmul(a, w, accumulator=whole) - mxfp.matmul(a, w, accumulator=mxfp.Exact("float64"))
    product = layer.activations.astype(np.float64) @ layer.weight.astype(np.float64).T
    assert coarse.accumulator_error == pytest.approx(norm(lost) / norm(product), rel=1e-12)
    assert coarse.accumulator_error > 0.01
    assert exact.accumulator_error == 0


def test_counts_add_up(layer, report):
    assert sum(report.code_counts["weights"]) == layer.weight.size
    assert sum(report.scale_counts["activations"]) == 3 * 2


def test_every_rule_and_accumulator_asked_for_is_there(layer):
    found = measure(layer, rules=["even", "rceil"], accumulators=[mxfp.Pairwise("bfloat16")])
    rows = [(x.rule, x.accumulator) for x in found.accuracy if x.rule]
    assert rows == [("even", "pairwise:bfloat16"), ("rceil", "pairwise:bfloat16")]


@pytest.mark.parametrize("fmt", mxfp.formats.BLOCK_FORMATS.values(), ids=repr)
def test_every_format_can_be_reported(layer, fmt):
    found = measure(layer, fmt=fmt, accumulators=[mxfp.Sequential("float32")])
    assert [c.rule for c in found.causes] == list(fmt.scale_rules)
    assert json.loads(render.json_text(found))["format"] == fmt.name


def test_progress_runs_to_the_end(layer):
    seen = {}
    measure(layer, progress=lambda what, done, total: seen.__setitem__(what, (done, total)))
    assert len(seen) > 5
    assert all(done == total for done, total in seen.values())


def test_markdown_and_terminal_print_the_same_tables(report):
    text = render.markdown(report)
    for table in tables.tables(report):
        for row in table.rows:
            assert all(cell in text for cell in row)


def test_out_writes_every_file_whole(tmp_path, layer):
    np.savez(tmp_path / "small.npz", activations=layer.activations, weight=layer.weight)
    arguments = ["report", "--data", str(tmp_path / "small.npz"), "--out", str(tmp_path / "deep" / "out")]
    for _ in range(2):  # into a new directory, and into one that exists
        result = CliRunner().invoke(cli.cli, arguments, catch_exceptions=False)
        assert result.exit_code == 0
        files = {p.name: p.read_bytes() for p in (tmp_path / "deep" / "out").iterdir()}
        assert set(files) == {
            "report.md",
            "report.json",
            "scales.png",
            "codes.png",
            "errors.png",
            "throughput.png",
        }
        assert all(content.startswith(PNG) for name, content in files.items() if name.endswith(".png"))
        assert json.loads(files["report.json"])["schema"] == "mxfp-report/1"
        pictures = re.findall(r"!\[.*?\]\((.*?)\)", files["report.md"].decode())
        assert set(pictures) == {name for name in files if name.endswith(".png")}
        assert [p.name for p in (tmp_path / "deep").iterdir()] == ["out"]


def test_a_failed_write_leaves_what_was_there(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.md").write_bytes(b"before")
    with pytest.raises(TypeError):
        whole.write_folder({"report.md": b"after", "report.json": None}, tmp_path / "out")
    assert (tmp_path / "out" / "report.md").read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_missing_extra_is_named_before_the_work_begins(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'mxfp-emulator\[plot\]'"):
        CliRunner().invoke(cli.cli, ["report", "--out", str(tmp_path / "out")], catch_exceptions=False)
    assert not (tmp_path / "out").exists()


BAD = {
    "one array missing": ({"activations": np.ones((2, 4))}, "weight"),
    "another K": ({"activations": np.ones((2, 4)), "weight": np.ones((3, 5))}, r"\(2, 4\) and \(3, 5\)"),
    "vectors": ({"activations": np.ones(4), "weight": np.ones(4)}, r"\(4,\)"),
    "empty": ({"activations": np.ones((0, 4)), "weight": np.ones((3, 4))}, r"\(0, 4\)"),
    "complex": ({"activations": np.ones((2, 4)) * 1j, "weight": np.ones((3, 4))}, "complex128"),
    "not finite": ({"activations": np.full((2, 4), np.nan), "weight": np.ones((3, 4))}, r"\(0, 0\)"),
    "objects": ({"activations": np.array([[None]]), "weight": np.ones((3, 1))}, "activations"),
}


@pytest.mark.parametrize(("arrays", "message"), BAD.values(), ids=BAD)
def test_data_that_cannot_be_measured_is_refused_in_one_line(tmp_path, arrays, message):
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(ValueError, match=message) as caught:
        data.layer_from_file(tmp_path / "bad.npz")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04broken", b"hello", PNG])
def test_a_file_that_is_no_npz_is_refused(tmp_path, content):
    (tmp_path / "bad.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"not an \.npz file"):
        data.layer_from_file(tmp_path / "bad.npz")


def test_a_single_array_npy_is_refused(tmp_path):
    np.save(tmp_path / "one.npy", np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"not an \.npz file"):
        data.layer_from_file(tmp_path / "one.npy")


def test_half_precision_data_is_measured(tmp_path):
    rng = np.random.default_rng(3)
    np.savez(
        tmp_path / "half.npz",
        activations=rng.normal(size=(2, 32)).astype(np.float16),
        weight=rng.normal(size=(2, 32)).astype(np.float16),
    )
    found = measure(data.layer_from_file(tmp_path / "half.npz"), rules=["floor"])
    assert found.accuracy[1].figures.relative_error < 1e-6


@pytest.mark.parametrize("power", [-120, 120])
def test_figures_do_not_depend_on_the_size_of_the_numbers(layer, power):
    big = data.Layer("big", np.ldexp(layer.activations.astype(np.float64), power), layer.weight)
    one, other = (measure(x, rules=["floor"], accumulators=[mxfp.Exact("float64")]) for x in (layer, big))
    assert other.causes[0].from_both == pytest.approx(one.causes[0].from_both, rel=1e-12)
    assert other.accuracy[-1].figures.cosine == pytest.approx(one.accuracy[-1].figures.cosine, rel=1e-12)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_data_beyond_the_yardstick_is_refused(layer, size):
    far = data.Layer("far", layer.activations * np.float64(size), layer.weight * np.float64(size))
    with pytest.raises(ValueError, match="scale the data"):
        measure(far)


def test_tiny_products_do_not_pass_for_exact():
    found = figures(np.zeros(3), np.full(3, 1e-250))
    assert (found.relative_error, found.sqnr_db) == (pytest.approx(1.0), pytest.approx(0.0))


def test_a_directory_that_cannot_be_written_is_named_before_the_work_begins(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr("mxfp.report.measure", lambda *a, **k: pytest.fail("the work began"))
    for out in (tmp_path / "file" / "below", tmp_path / "dangling"):
        if out.name == "dangling":
            out.symlink_to(tmp_path / "nowhere")
        with pytest.raises(OSError, match=f"cannot write to {re.escape(str(out))}"):
            CliRunner().invoke(cli.cli, ["report", "--out", str(out)], catch_exceptions=False)


def test_what_else_lies_in_the_directory_stays(tmp_path, report):
    (tmp_path / "notes.txt").write_text("mine")
    whole.write_folder({"report.json": render.json_text(report).encode()}, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt", "report.json"]
