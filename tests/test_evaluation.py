# SPDX-License-Identifier: Apache-2.0
"""mxfp evaluate: its figures against products computed here from the same numbers, and what it refuses."""

import io
import json
import zipfile

import gguf
import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import save_file

import mxfp
from mutations import mutated
from mxfp import cli
from mxfp.files import FileError, open_model, write_model
from mxfp.report.evaluation import Activations, evaluate
from mxfp.report.evaluation_tables import headline, tables

RNG = np.random.default_rng(5)
WEIGHTS = {
    "model.layers.0.mlp.up.weight": RNG.standard_normal((48, 64)).astype(np.float32),
    "model.layers.1.mlp.up.weight": (RNG.standard_normal((32, 96)) * 0.02).astype(np.float32),
    "model.norm.weight": np.ones(64, np.float32),
    "model.unused.weight": np.ones((4, 32), np.float32),
}
LAYERS = list(WEIGHTS)[:2]
INPUTS = {name: RNG.standard_normal((7, WEIGHTS[name].shape[1])).astype(np.float32) for name in LAYERS}


@pytest.fixture
def model(tmp_path):
    save_file(WEIGHTS, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


@pytest.fixture
def data(tmp_path):
    np.savez(tmp_path / "a.npz", **INPUTS)
    return tmp_path / "a.npz"


def run(*arguments):
    return CliRunner().invoke(cli.cli, ["evaluate", *map(str, arguments)], catch_exceptions=True)


def error_of(product, exact):
    return np.linalg.norm(product - exact) / np.linalg.norm(exact)


def evaluated(model, data, **options):
    with open_model(model) as opened, Activations(data) as activations:
        return evaluate(opened, activations, **options)


@pytest.mark.parametrize("rule", [None, "rceil"])
def test_every_way_is_the_product_that_its_name_says(model, data, rule):
    found = evaluated(model, data, rule=rule)
    assert [layer.name for layer in found.layers] == LAYERS
    for layer in found.layers:
        a, w = INPUTS[layer.name], WEIGHTS[layer.name]
        exact = a.astype(float) @ w.astype(float).T
        qa, qw = mxfp.quantize(a, scale_rule=rule), mxfp.quantize(w, scale_rule=rule)
        half = a.astype(np.float16).astype(float)
        due = {
            "float16": half @ w.astype(np.float16).astype(float).T,
            "W4A16": half @ qw.dequantize().astype(float).T,
            "W4A4": mxfp.matmul(qa, qw.T, engine="reference").astype(float),
        }
        for way, product in due.items():
            assert layer.ways[way].relative_error == pytest.approx(error_of(product, exact), rel=1e-12)
        assert layer.ways["float16"].relative_error < 1e-3 < layer.ways["W4A16"].relative_error


def test_weights_that_are_in_blocks_are_taken_as_they_are_in_the_file(model, data, tmp_path):
    blocks = {name: mxfp.quantize(WEIGHTS[name], scale_rule="even") for name in LAYERS}
    write_model(tmp_path / "q.safetensors", blocks, layout="mxfp")
    with open_model(model) as source:
        found = evaluated(tmp_path / "q.safetensors", data, source=source)
    again = evaluated(model, data, rule="even")
    assert found.given
    assert [layer.ways for layer in found.layers] == [layer.ways for layer in again.layers]


def test_activations_are_named_with_or_without_weight_behind(model, tmp_path):
    np.savez(tmp_path / "b.npz", **{name.removesuffix(".weight"): x for name, x in INPUTS.items()})
    assert [layer.weight for layer in evaluated(model, tmp_path / "b.npz").layers] == LAYERS


def test_the_accumulator_of_both_sides_in_blocks_is_the_one_that_was_named(model, data):
    exact = evaluated(model, data, accumulator=mxfp.Exact("float32"))
    coarse = evaluated(model, data, accumulator=mxfp.Sequential("bfloat16"))
    for one, other in zip(exact.layers, coarse.layers, strict=True):
        assert one.ways["W4A16"] == other.ways["W4A16"]
        assert one.ways["W4A4"] != other.ways["W4A4"]


def test_the_tables_shorten_names_and_tell_the_worst_layer(model, data):
    found = evaluated(model, data)
    layers, summary = tables(found)
    assert [row[0] for row in layers.rows] == ["0", "1"]
    assert "model.layers.….mlp.up.weight" in layers.remark
    assert summary.rows[1][3] == found.worst("W4A16").name
    assert found.without == ["model.unused.weight"]
    assert "1 other matrices" in summary.remark


def test_the_command_prints_and_writes_what_was_found(model, data, tmp_path):
    done = run(model, "--data", data, "--json", "--out", tmp_path / "out")
    assert done.exit_code == 0
    found = json.loads((tmp_path / "out" / "evaluate.json").read_text())
    assert found["schema"] == "mxfp-evaluation/1"
    assert [layer["name"] for layer in found["layers"]] == LAYERS
    assert (tmp_path / "out" / "evaluate.md").read_text().startswith("# MXFP4 on ")


def broken(tmp_path, **arrays):
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.npz"
    np.savez(path, **arrays)
    return path


def test_what_does_not_fit_is_refused_in_one_line(model, data, tmp_path):
    name = LAYERS[0]
    (tmp_path / "no.npz").write_bytes(b"PK nothing")
    np.save(tmp_path / "one.npy", INPUTS[name])
    nan = INPUTS[name].copy()
    nan[0, 0] = np.nan
    blocks = {name: mxfp.quantize(WEIGHTS[name])}
    write_model(tmp_path / "q.safetensors", blocks, layout="mxfp")
    cases = [
        (model, tmp_path / "none.npz", "none.npz: No such file"),
        (model, tmp_path / "no.npz", "no header of an array"),
        (model, tmp_path / "one.npy", "has no tensor 'one.weight'"),
        (model, broken(tmp_path, **{"model.layers.9.mlp.up": INPUTS[name]}), "near are"),
        (tmp_path / "q.safetensors", broken(tmp_path, **{name: INPUTS[name]}), "as the source"),
    ]
    for opened, given, said in cases:
        with pytest.raises(FileError, match=said):
            evaluated(opened, given)
    arrays = {"NaN or infinity": nan, "tokens, K": INPUTS[name][0], "needs a weight": INPUTS[name][:, :32]}
    for said, array in arrays.items():
        with pytest.raises(FileError, match=said):
            evaluated(model, broken(tmp_path, **{name: array}))
    with pytest.raises(FileError, match="no array matches 'x\\*'"):
        evaluated(model, data, include="x*")
    only = broken(tmp_path, **{name: INPUTS[name]})
    with open_model(model) as source, pytest.raises(ValueError, match="not made anew"):
        evaluated(tmp_path / "q.safetensors", only, source=source, fmt=mxfp.NVFP4)


# --- what a stranger tried


def test_activations_in_bfloat16_come_from_safetensors(model, tmp_path):
    given = {name: x.astype(ml_dtypes.bfloat16) for name, x in INPUTS.items()}
    save_file(given, tmp_path / "a.safetensors")
    np.savez(tmp_path / "a.npz", **{name: x.astype(np.float32) for name, x in given.items()})
    found, same = (evaluated(model, tmp_path / f"a.{kind}") for kind in ("safetensors", "npz"))
    assert [layer.ways for layer in found.layers] == [layer.ways for layer in same.layers]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed], ids=["stored", "deflated"])
def test_broken_activations_are_one_error_and_nothing_else(tmp_path, save):
    path, rng, refused = tmp_path / "a.npz", np.random.default_rng(8), []
    save(path, a=INPUTS[LAYERS[0]])
    raw = path.read_bytes()
    for _ in range(300):
        path.write_bytes(mutated(raw, rng))
        try:
            with Activations(path) as activations:
                for name in activations.names:
                    activations.read(name)
        except FileError as error:
            refused.append(str(error))
    assert len(refused) > 50
    assert not any("\n" in text for text in refused)


def test_a_claim_of_more_than_the_file_holds_is_refused_before_memory_is_asked_for(tmp_path):
    head = io.BytesIO()
    claimed = {"descr": "<f4", "fortran_order": False, "shape": (10**12, 64)}
    np.lib.format.write_array_header_2_0(head, claimed)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", head.getvalue() + b"few")
    with pytest.raises(FileError, match="expected 256000000000"):
        Activations(tmp_path / "a.npz")


def test_a_product_beyond_float64_is_refused_and_one_beyond_float16_is_said_to_be(model, tmp_path):
    name = LAYERS[0]
    with pytest.raises(ValueError, match=f"{name}: the exact product is beyond float64"):
        evaluated(model, broken(tmp_path, **{name: np.full((2, 64), 1.7e308)}))
    found = evaluated(model, broken(tmp_path, **{name: INPUTS[name] * 1e6}))
    assert found.as_dict()["layers"][0]["ways"]["float16"]["relative_error"] is None
    assert found.layers[0].ways["W4A4"].relative_error < 0.3
    assert "largest of float16 (65504)" in tables(found)[0].remark
    assert "65504" not in tables(evaluated(model, broken(tmp_path, **INPUTS)))[0].remark


def test_an_accumulator_that_is_too_narrow_names_the_layer(model, data):
    narrow = mxfp.FixedPoint(8, -12, overflow="raise")
    with pytest.raises(ValueError, match=f"{LAYERS[0]}: block 0 of result"):
        evaluated(model, data, accumulator=narrow)


def test_a_source_must_be_of_floats_and_of_use(model, data, tmp_path):
    blocks = {name: mxfp.quantize(WEIGHTS[name]) for name in LAYERS}
    write_model(tmp_path / "q.safetensors", blocks, layout="mxfp")
    save_file(
        {name: w[:, :32].copy() for name, w in WEIGHTS.items() if w.ndim > 1}, tmp_path / "s.safetensors"
    )
    with open_model(tmp_path / "q.safetensors") as q, open_model(tmp_path / "s.safetensors") as short:
        with pytest.raises(FileError, match="is MXFP4, expected the float weight"):
            evaluated(tmp_path / "q.safetensors", data, source=q)
        with pytest.raises(ValueError, match="no use for a source"):
            evaluated(model, data, source=short)
        with pytest.raises(FileError, match=r"is \(48, 32\), and \(48, 64\) in blocks"):
            evaluated(tmp_path / "q.safetensors", data, source=short)


def test_a_model_of_several_formats_says_which_and_how_many_were_given(model, data, tmp_path):
    first, second = LAYERS
    mixed = {first: mxfp.quantize(WEIGHTS[first], mxfp.NVFP4), second: WEIGHTS[second]}
    write_model(tmp_path / "mixed.safetensors", mixed, layout="mxfp")
    with open_model(model) as source:
        found = evaluated(tmp_path / "mixed.safetensors", data, source=source)
    assert [(layer.format, layer.given) for layer in found.layers] == [("NVFP4", True), ("MXFP4", False)]
    assert "weights in NVFP4, MXFP4, 1 of them as they are in the file, the others quantized" in headline(
        found
    )


def test_types_that_are_neither_floats_nor_of_the_family_are_named(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "q8.gguf", "llama")
    kind = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor("a.weight", gguf.quants.quantize(np.ones((4, 32), np.float32), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(FileError, match=r"q8.gguf: a.weight is Q8_0, expected the float weight"):
        evaluated(tmp_path / "q8.gguf", broken(tmp_path, a=np.ones((2, 32))))


def test_other_types_of_gguf_are_taken_for_floats_where_that_is_asked_for(tmp_path):
    kind, w = gguf.GGMLQuantizationType.Q8_0, RNG.standard_normal((4, 32)).astype(np.float32)
    raw = gguf.quants.quantize(w, kind)
    write_model(tmp_path / "decoded.safetensors", {"a.weight": gguf.quants.dequantize(raw, kind)})
    writer = gguf.GGUFWriter(tmp_path / "q8.gguf", "llama")
    writer.add_tensor("a.weight", raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    data = broken(tmp_path, a=RNG.standard_normal((2, 32)))
    refused = run(tmp_path / "q8.gguf", "--data", data)
    assert "a.weight is Q8_0, expected the float weight" in str(refused.exception)
    found, expected = (
        run(tmp_path / name, "--data", data, "--json", *options)
        for name, options in (
            ("q8.gguf", ["--dequantize-others", "float32"]),
            ("decoded.safetensors", []),
        )
    )
    assert json.loads(found.stdout)["layers"] == json.loads(expected.stdout)["layers"]
