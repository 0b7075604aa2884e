# SPDX-License-Identifier: Apache-2.0
"""mxfp quantize: every bit of what it writes, what it leaves alone, and that it writes all or nothing."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from fractions import Fraction

import gguf
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import mxfp
from command_line import end_of, inside, one_line
from mutations import mutated
from mxfp.files import carrying, pipeline
from mxfp.files.choosing import KEPT, Choice
from mxfp.files.dtypes import type_of
from mxfp.files.header import FileError
from mxfp.files.layouts import LAYOUTS
from mxfp.files.layouts.tensor_scale import nearest_divisible
from mxfp.files.model import open_model
from mxfp.files.planning import plan_quantize
from mxfp.files.quantizing import quantize_model, rng_of
from mxfp.files.sqnr import Sqnr, sqnr
from mxfp.files.tensor import LayoutError, Tensor
from mxfp.files.writing import OWN, write_model
from support import DTYPES, hard_array, oracle_dequantize, oracle_quantize, random_blocks, same_bits, size

ENDING = {container: f".{container}" for container in OWN}
WEIGHT = "model.layers.0.mlp.up_proj.weight"
NORM = "model.norm.weight"
COMPILED = {**os.environ, "NUMBA_DISABLE_JIT": "0"}


def run(*arguments, **options):
    command = [sys.executable, "-m", "mxfp", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, **options)


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles so small that every tensor of these tests is in several, and three threads."""
    monkeypatch.setattr(carrying, "TILE", 200)
    monkeypatch.setattr(pipeline, "thread_count", lambda: 3)


def weights(dtype="float32", shape=(6, 128), seed=0):
    return hard_array(dtype, mxfp.E2M1, shape, seed)


def source_file(path, arrays=None):
    """A model with one weight that is quantized and a norm that is not, or other arrays."""
    write_model(path, arrays or {WEIGHT: weights(), NORM: np.ones(128, np.float32)})
    return path


def quantized(source, path, fmt=mxfp.MXFP4, *, plan=None, **options):
    """Plan and do; -> what was done."""
    with open_model(source) as model:
        return quantize_model(plan_quantize(model, path, fmt, **(plan or {})), **options)


def read(path, name=WEIGHT):
    with open_model(path) as model:
        return model.read(name)


# --- every bit


HELD = [(layout.name, fmt) for layout in LAYOUTS.values() for fmt in layout.formats()]


@pytest.mark.parametrize(("layout", "fmt"), HELD, ids=str)
@pytest.mark.usefixtures("small_tiles")
def test_codes_and_scales_are_those_of_quantize_for_the_whole_tensor(layout, fmt, tmp_path):
    source = source_file(tmp_path / "in.safetensors")
    out = tmp_path / f"out{ENDING[LAYOUTS[layout].container]}"
    done = quantized(source, out, fmt, plan={"layout": layout})
    scale = None
    if fmt.tensor_scale:
        scale = mxfp.quantize(weights(), fmt).tensor_scale
        scale = nearest_divisible(scale) if layout == "compressed-tensors" else scale
        assert done.tensor_scales == {WEIGHT: scale}
    expected = mxfp.quantize(weights(), fmt, tensor_scale=scale)
    found = read(out)
    assert found == expected
    assert found.scale_rule in (None, expected.scale_rule)
    assert done.sqnr[WEIGHT].elements == weights().size


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("ending", [".safetensors", ".gguf"])
@pytest.mark.usefixtures("small_tiles")
def test_every_float_type_is_read_from_either_container(dtype, ending, tmp_path):
    x = weights(dtype)
    source = source_file(tmp_path / f"in{ending}", {WEIGHT: x})
    quantized(source, tmp_path / "out.gguf")
    assert read(tmp_path / "out.gguf") == mxfp.quantize(x)


@pytest.mark.parametrize("rule", mxfp.MXFP4.scale_rules)
@pytest.mark.parametrize("rounding", ["nearest_even", "nearest_away", "toward_zero"])
def test_rules_and_roundings_are_those_of_quantize(rule, rounding, tmp_path):
    source = source_file(tmp_path / "in.safetensors")
    quantized(source, tmp_path / "out.safetensors", plan={"scale_rule": rule}, rounding=rounding)
    expected = mxfp.quantize(weights(), scale_rule=rule, rounding=rounding)
    assert read(tmp_path / "out.safetensors") == expected
    assert read(tmp_path / "out.safetensors").scale_rule == rule


@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4, mxfp.MXFP6_E2M3], ids=str)
@pytest.mark.parametrize("tile", [200, 1 << 20])
def test_stochastic_rounding_depends_on_seed_and_name_and_on_nothing_else(fmt, tile, tmp_path, monkeypatch):
    monkeypatch.setattr(carrying, "TILE", tile)
    arrays = {WEIGHT: weights(seed=1), "other.weight": weights(seed=2), "partial.weight": weights()[:, :72]}
    source = source_file(tmp_path / "in.safetensors", arrays)
    include = {"choice": Choice(("*.weight",))}
    quantized(source, tmp_path / "out.safetensors", fmt, plan=include, rounding="stochastic", seed=7)
    for name, x in arrays.items():
        expected = mxfp.quantize(x, fmt, rounding="stochastic", rng=rng_of(7, name))
        assert read(tmp_path / "out.safetensors", name) == expected
    assert not np.array_equal(rng_of(7, "a").random(4), rng_of(7, "b").random(4))


def test_gguf_of_the_owners_library_decodes_to_the_values_of_the_oracle(tmp_path):
    x = np.random.default_rng(3).standard_normal((4, 96)).astype(np.float32)
    source = source_file(tmp_path / "in.safetensors", {WEIGHT: x})
    quantized(source, tmp_path / "out.gguf")
    (tensor,) = gguf.GGUFReader(tmp_path / "out.gguf").tensors
    assert tensor.tensor_type == gguf.GGMLQuantizationType.MXFP4
    found = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    codes, scales, _ = oracle_quantize(x, mxfp.MXFP4)
    expected = oracle_dequantize(mxfp.BlockArray(codes, scales, mxfp.MXFP4), "float32")
    assert np.array_equal(found, expected)


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def test_gpt_oss_files_decode_by_a_few_lines_of_numpy(tmp_path):
    x = np.random.default_rng(4).standard_normal((8, 64)).astype(np.float32)
    source = source_file(tmp_path / "in.safetensors", {"mlp.experts.down_proj": x})
    quantized(source, tmp_path / "out.safetensors", plan={"layout": "gpt-oss"})
    found = load_file(tmp_path / "out.safetensors")
    blocks, scales = found["mlp.experts.down_proj_blocks"], found["mlp.experts.down_proj_scales"]
    assert (blocks.shape, blocks.dtype, scales.shape) == ((8, 2, 16), np.uint8, (8, 2))
    values = np.stack([E2M1[blocks & 15], E2M1[blocks >> 4]], -1).reshape(8, 2, 32)
    values = np.ldexp(values, scales.astype(np.int64)[..., None] - 127).reshape(8, 64)
    assert np.array_equal(values, mxfp.quantize(x).dequantize(dtype=np.float64))


# --- what is not quantized


def test_all_else_is_copied_bit_for_bit(tmp_path):
    rng = np.random.default_rng(5)
    arrays = {WEIGHT: weights()}
    for kind in (*DTYPES.values(), ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu, np.int64, np.int8):
        dtype = np.dtype(kind)
        arrays[f"norm.{dtype.name}"] = rng.integers(0, 256, 24 * dtype.itemsize, np.uint8).view(dtype)
    arrays |= {
        "norm.bool": np.array([True, False]),
        "norm.empty": np.zeros((3, 0), np.float32),
        "norm.number": np.array(1.5, np.float32),
        "norm.cube": rng.standard_normal((2, 3, 64)).astype(np.float32),
        "norm.four": np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).reshape(2, 8),
    }
    source = source_file(tmp_path / "in.safetensors", arrays)
    quantized(source, tmp_path / "out.safetensors")
    with open_model(tmp_path / "out.safetensors") as model:
        assert model.names == tuple(arrays)
        for name, array in arrays.items():
            if name != WEIGHT:
                assert model.info(name).type == type_of(array.dtype)
                found = np.ascontiguousarray(model.read(name)).reshape(-1).view(np.uint8)
                assert np.array_equal(found, np.ascontiguousarray(array).reshape(-1).view(np.uint8)), name


def test_the_keys_of_a_gguf_file_go_along_and_the_file_type_is_the_new_one(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "in.gguf", "llama")
    writer.add_name("a model")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_token_list([f"token {n}" for n in range(3000)])
    writer.add_float32("llama.rope.freq_base", 1e6)
    writer.add_tensor("blk.0.ffn_up.weight", weights())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    quantized(tmp_path / "in.gguf", tmp_path / "out.gguf")
    before, after = (gguf.GGUFReader(tmp_path / name).fields for name in ("in.gguf", "out.gguf"))
    assert {*after} - {*before} == {"general.quantization_version"}
    assert after["general.file_type"].contents() == 38
    for key in {*before} - {"general.file_type"}:
        if not key.startswith("GGUF."):
            assert after[key].contents() == before[key].contents(), key


def test_texts_of_safetensors_go_along(tmp_path):
    save_file({WEIGHT: weights()}, tmp_path / "in.safetensors", metadata={"format": "pt"})
    quantized(tmp_path / "in.safetensors", tmp_path / "out.safetensors", plan={"layout": "gpt-oss"})
    with open_model(tmp_path / "out.safetensors") as model:
        assert dict(model.header.metadata) == {"format": "pt"}


def test_a_model_in_shards_becomes_one_file(tmp_path):
    for n in (1, 2):
        save_file({f"layers.{n}.w": weights(seed=n)}, tmp_path / f"model-{n}.safetensors")
    index = {"weight_map": {f"layers.{n}.w": f"model-{n}.safetensors" for n in (1, 2)}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    quantized(tmp_path, tmp_path / "out.gguf")
    for n in (1, 2):
        assert read(tmp_path / "out.gguf", f"layers.{n}.w") == mxfp.quantize(weights(seed=n))


def test_what_is_in_blocks_already_stays_so_in_the_new_layout(tmp_path):
    blocks = random_blocks(mxfp.MXFP4, (6, 128), 1, nan_share=0.2)
    arrays = {"old": blocks, WEIGHT: weights()}
    write_model(tmp_path / "in.safetensors", arrays, layout="gpt-oss", nan_scales="keep")
    done = quantized(tmp_path / "in.safetensors", tmp_path / "out.gguf")
    assert done.plan.items[0].kept_because == "MXFP4 already"
    assert read(tmp_path / "out.gguf", "old") == blocks
    assert read(tmp_path / "out.gguf") == mxfp.quantize(weights())


# --- which tensors


CHOSEN = [
    ("model.layers.3.self_attn.q_proj.weight", (64, 64), ""),
    ("encoder.layer.0.attention.output.dense.weight", (64, 64), ""),
    ("model.layers.3.mlp.gate_proj.weight", (64, 64), ""),
    ("blk.7.ffn_gate_exps.weight", (8, 64, 64), ""),
    ("transformer.h.0.attn.c_attn.weight", (64, 64), ""),
    ("model.layers.3.mlp.gate.weight", (64, 64), "matches *.gate.weight"),
    ("blk.7.ffn_gate_inp.weight", (64, 64), "matches *ffn_gate_inp*"),
    ("model.embed_tokens.weight", (64, 64), "matches *embed*"),
    ("token_embd.weight", (64, 64), "matches *embd*"),
    ("embeddings.word_embeddings.weight", (64, 64), "matches *embed*"),
    ("transformer.wte.weight", (64, 64), "matches *.wte.*"),
    ("lm_head.weight", (64, 64), "matches *lm_head*"),
    ("output.weight", (64, 64), "matches output.weight"),
    ("blk.0.attn_norm.weight", (64, 64), "matches *norm*"),
    ("model.layers.0.mlp.experts.gate_up_proj", (8, 64, 64), "3 axes"),
    ("conv.weight", (64, 64, 3, 3), "4 axes"),
    ("x.bias", (64,), "one axis"),
    ("x.weight", (64, 40), "K is 40, no multiple of 32"),
    ("x.weight", (0, 64), "empty"),
    ("x.scale", (), "one number"),
]


@pytest.mark.parametrize(("name", "shape", "because"), CHOSEN, ids=str)
def test_matrices_are_quantized_by_default_but_not_what_is_delicate(name, shape, because):
    assert Choice().kept_because(Tensor(name, shape, "F32", ()), mxfp.MXFP4) == because


def test_integers_and_wider_floats_are_not_quantized():
    for kind in ("I64", "F64", "F8_E4M3", "U8"):
        kept = Choice(("*",)).kept_because(Tensor("x", (64, 64), kind, ()), mxfp.MXFP4)
        assert kept == kind


def test_include_names_what_the_defaults_would_keep_and_exclude_has_the_last_word():
    def because(name, *choice, shape=(64, 64)):
        return Choice(*choice).kept_because(Tensor(name, shape, "BF16", ()), mxfp.MXFP4)

    assert because("lm_head.weight", ("lm_*",)) == ""
    assert because("lm_head.weight", ("lm_*",), ("*head*",)) == "--exclude *head*"
    assert because("x.weight", ("lm_*",)) == "not in --include"
    assert because("x.weight", (), ("x.*",)) == "--exclude x.*"
    assert because("x.weight", ("x.*",), shape=(2, 64, 64)) == ""
    assert because("x.weight", ("x.*",), shape=(64,)) == "one axis"
    assert because("X.weight", ("x.*",)) == "not in --include"
    assert all(because(glob.replace("*", "a"), ("*",)) == "" for glob in KEPT)


def test_a_glob_that_matches_nothing_is_a_mistake_and_near_names_are_said(tmp_path):
    source = source_file(tmp_path / "in.safetensors")
    line = one_line("quantize", source, tmp_path / "out.gguf", "--include", "*up_prj*")
    assert "include '*up_prj*' matches none of the 2 tensors" in line
    assert WEIGHT in line
    line = one_line("quantize", source, tmp_path / "out.gguf", "--exclude", "q_proj")
    assert "exclude 'q_proj' matches none" in line


def test_what_the_layout_cannot_hold_is_kept_and_the_plan_says_why(tmp_path):
    arrays = {"a.weight": weights(shape=(2, 80)), "b.weight": weights(shape=(2, 128))}
    source = source_file(tmp_path / "in.safetensors", arrays)
    done = quantized(source, tmp_path / "out.gguf", mxfp.NVFP4)
    assert [item.kept_because for item in done.plan.items] == [
        "the layout 'gguf' holds whole blocks: 80 elements, expected a multiple of 64",
        "",
    ]
    same_bits(read(tmp_path / "out.gguf", "a.weight"), arrays["a.weight"])


def test_a_layout_of_this_package_holds_partial_blocks_where_include_asks_for_them(tmp_path):
    x = weights(shape=(3, 72))
    source = source_file(tmp_path / "in.safetensors", {"x": x})
    done = quantized(source, tmp_path / "out.safetensors", plan={"choice": Choice(("x",))})
    assert read(tmp_path / "out.safetensors", "x") == mxfp.quantize(x)
    assert done.sqnr["x"] == sqnr(x, mxfp.quantize(x))


# --- what it costs


def exact_sqnr(x, q):
    """The two sums, as fractions."""
    signal = noise = Fraction(0)
    values = q.dequantize(dtype=np.float64)
    for a, b in zip(x.astype(np.float64).ravel().tolist(), values.ravel().tolist(), strict=True):
        signal, noise = signal + Fraction(a) ** 2, noise + (Fraction(a) - Fraction(b)) ** 2
    return signal, noise


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.MXFP8_E4M3, mxfp.MXINT8, mxfp.NVFP4], ids=str)
@pytest.mark.parametrize("rounding", ["nearest_even", "toward_zero", "stochastic"])
def test_the_sqnr_is_that_of_exact_sums(dtype, fmt, rounding):
    x = np.random.default_rng(6).standard_normal((5, 104)).astype(np.float32).astype(DTYPES[dtype])
    rng = np.random.default_rng(0) if rounding == "stochastic" else None
    q = mxfp.quantize(x, fmt, rounding=rounding, rng=rng)
    signal, noise = exact_sqnr(x, q)
    found = sqnr(x, q)
    assert found.elements == x.size
    # Stochastic differences are rounded once to 24 bits; all others are exact.
    tolerance = Fraction(1, 2**24 if rounding == "stochastic" else 2**48)
    assert abs(Fraction(found.signal) - signal) <= signal / 2**48
    assert abs(Fraction(found.noise) - noise) <= noise * tolerance
    assert math.isclose(found.db, 10 * math.log10(signal / noise), abs_tol=1e-6)


def test_the_sqnr_of_numbers_that_need_no_rounding_is_infinite():
    found = sqnr(np.array([[1.0, 2.0]], np.float32), mxfp.quantize(np.array([[1.0, 2.0]])))
    assert found.db == math.inf
    assert found.signal == 5


def test_the_sqnr_leaves_out_what_is_not_finite_and_counts_it():
    x = np.full((2, 64), 0.7, np.float32)
    x[0, 3], x[1, 40] = np.nan, np.inf
    found = sqnr(x, mxfp.quantize(x))
    rest = sqnr(np.full(64, 0.7, np.float32), mxfp.quantize(np.full(64, 0.7, np.float32)))
    assert (found.left_out, found.elements) == (64, 64)
    assert math.isclose(found.noise, rest.noise)
    found = sqnr(x, mxfp.quantize(x, nonfinite="saturate"))
    assert found.left_out == 33


def test_magnitudes_whose_squares_float32_does_not_hold_count():
    for factor in (1e25, 1e-30):
        x = (np.random.default_rng(0).standard_normal(64) * factor).astype(np.float32)
        found, exact = sqnr(x, mxfp.quantize(x)), exact_sqnr(x, mxfp.quantize(x))
        assert math.isclose(found.signal, float(exact[0]), rel_tol=1e-12)
        assert math.isclose(found.noise, float(exact[1]), rel_tol=1e-12)


def test_the_worst_tensors_come_first(tmp_path):
    easy, hard = np.ones((2, 64), np.float32), np.full((2, 64), 0.7, np.float32)
    source = source_file(tmp_path / "in.safetensors", {"easy": easy, "hard": hard, "noise": weights()})
    done = quantized(source, tmp_path / "out.gguf")
    names = [name for name, _ in done.worst(9)]
    assert names[-1] == "easy"
    assert [done.sqnr[name].db for name in names] == sorted(cost.db for cost in done.sqnr.values())
    assert done.total.elements == 2 * 128 + 768
    assert done.total.noise == sum(cost.noise for cost in done.sqnr.values())
    assert (Sqnr(3, 1.0, 2.0, 4) + Sqnr(1, 2.0, 3.0, 5)) == Sqnr(4, 3.0, 5.0, 9)


# --- what is not finite


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.usefixtures("small_tiles")
def test_a_weight_that_is_not_finite_ends_it_and_is_named(value, fmt, dtype, tmp_path):
    x = weights(dtype).copy()
    x[4, 70] = value
    source = source_file(tmp_path / "in.safetensors", {"a.weight": weights(), WEIGHT: x})
    with pytest.raises(FileError, match=rf"{WEIGHT}' is {value} at \(4, 70\)"):
        quantized(source, tmp_path / "out.safetensors", fmt)
    assert [path.name for path in tmp_path.iterdir()] == ["in.safetensors"]


@pytest.mark.parametrize("policy", ["nan", "saturate"])
@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4], ids=str)
def test_the_other_policies_are_those_of_quantize(policy, fmt, tmp_path):
    x = weights().copy()
    x[4, 70], x[2, 2] = np.nan, -np.inf
    source = source_file(tmp_path / "in.safetensors", {WEIGHT: x})
    done = quantized(source, tmp_path / "out.safetensors", fmt, plan={"nonfinite": policy})
    assert read(tmp_path / "out.safetensors") == mxfp.quantize(x, fmt, nonfinite=policy)
    assert done.sqnr[WEIGHT].left_out > 0
    assert math.isfinite(done.sqnr[WEIGHT].db)


def test_blocks_are_not_made_nan_where_readers_take_that_for_a_number(tmp_path):
    source = source_file(tmp_path / "in.safetensors")
    for out, layout in (("o.gguf", "gguf"), ("o.safetensors", "gpt-oss")):
        with pytest.raises(LayoutError, match="take NaN scales for numbers"):
            quantized(source, tmp_path / out, plan={"layout": layout, "nonfinite": "nan"})


@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4], ids=str)
def test_infinities_saturate_there_and_a_nan_ends_it(fmt, tmp_path):
    x = weights().copy()
    x[2, 2] = -np.inf
    source = source_file(tmp_path / "in.safetensors", {WEIGHT: x})
    quantized(source, tmp_path / "out.gguf", fmt, plan={"nonfinite": "saturate"})
    assert read(tmp_path / "out.gguf") == mxfp.quantize(x, fmt, nonfinite="saturate")
    x[4, 70] = np.nan
    source = source_file(tmp_path / "nan.safetensors", {WEIGHT: x})
    with pytest.raises(FileError, match=rf"{WEIGHT}' is nan at \(4, 70\), and its block would be NaN"):
        quantized(source, tmp_path / "nan.gguf", fmt, plan={"nonfinite": "saturate"})
    assert not (tmp_path / "nan.gguf").exists()


# --- all or nothing


def test_a_dry_run_shows_the_plan_and_writes_nothing(tmp_path):
    source = source_file(tmp_path / "in.safetensors")
    out = tmp_path / "out.gguf"
    shown = inside("quantize", source, out, "--dry-run")
    assert shown.exit_code == 0
    assert "1 of 2 tensors are quantized; 3,584 bytes become 920 (25.7 %)" in " ".join(shown.output.split())
    assert [path.name for path in tmp_path.iterdir()] == ["in.safetensors"]
    found = json.loads(inside("quantize", source, out, "--dry-run", "--json").output)
    assert [t["kept_because"] for t in found["tensors"]] == [None, "one axis"]
    assert not out.exists()
    done = json.loads(inside("quantize", source, out, "--json").stdout)
    assert done["file_size"] == found["file_size"] == out.stat().st_size


def test_a_file_that_exists_is_replaced_only_with_force(tmp_path):
    source = source_file(tmp_path / "in.safetensors")
    out = tmp_path / "out.gguf"
    out.write_bytes(b"precious")
    assert "exists; --force replaces it" in one_line("quantize", source, out)
    assert out.read_bytes() == b"precious"
    with pytest.raises(FileError, match="exists"):
        quantized(source, out)
    assert inside("quantize", source, out, "--force").exit_code == 0
    assert read(out) == mxfp.quantize(weights())


@pytest.mark.parametrize("how", ["itself", "symlink", "hardlink", "folder"])
def test_a_file_is_not_written_over_itself(how, tmp_path):
    source = source_file(tmp_path / "in.safetensors")
    out = {"itself": source, "folder": tmp_path / ".." / tmp_path.name / "in.safetensors"}.get(how)
    if out is None:
        out = tmp_path / "other.safetensors"
        (out.symlink_to if how == "symlink" else out.hardlink_to)(source)
    before = source.read_bytes()
    line = one_line("quantize", tmp_path if how == "folder" else source, out, "--force")
    assert "is the file that is read" in line
    assert source.read_bytes() == before


SLOW = """
import sys, time, mxfp
from mxfp.files import carrying
from mxfp.files.model import open_model
from mxfp.files.planning import plan_quantize
from mxfp.files.quantizing import quantize_model
carrying.TILE = 200
def progress(name, done, total):
    print(done, total, flush=True)
    time.sleep(0.2)
with open_model(sys.argv[1]) as model:
    quantize_model(plan_quantize(model, sys.argv[2]), progress=progress, overwrite=True)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("before", [None, b"the file of last week"])
def test_a_killed_run_leaves_no_file_and_the_old_one_as_it_was(how, before, tmp_path):
    source = source_file(tmp_path / "in.safetensors", {WEIGHT: weights(shape=(60, 128))})
    out = tmp_path / "out.gguf"
    if before is not None:
        out.write_bytes(before)
    command = [sys.executable, "-c", SLOW, str(source), str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for _ in range(3):
            done, total = map(int, process.stdout.readline().split())
        assert 0 < done < total
        process.send_signal(how)
        assert process.wait(60) == -how
    # Where the system has no files without names, a hidden one may stay.
    left = {path.name for path in tmp_path.iterdir() if path.name[0] != "."}
    assert left == {"in.safetensors"} | ({"out.gguf"} if before else set())
    assert before is None or out.read_bytes() == before


def test_an_interrupt_is_one_line_and_leaves_nothing(tmp_path):
    source = source_file(tmp_path / "in.safetensors", {WEIGHT: weights(shape=(60, 128))})
    script = SLOW.partition("with open_model")[0] + (
        "import mxfp.cli, mxfp.cli.quantize as q\n"
        "real = q.quantize_model\n"
        "q.quantize_model = lambda plan, **o: real(plan, **{**o, 'progress': progress})\n"
        "sys.argv = ['mxfp', 'quantize', *sys.argv[1:]]\n"
        "mxfp.cli.main()\n"
    )
    command = [sys.executable, "-c", script, str(source), str(tmp_path / "out.gguf"), "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True) as process:
        for _ in range(3):
            process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert [line for line in error.splitlines() if line and "compiling" not in line] == ["mxfp: interrupted"]
    assert [path.name for path in tmp_path.iterdir()] == ["in.safetensors"]


def limited(code, resource_name, limit):
    """Python code that runs the command line under a limit of the system."""
    return (
        f"import resource, signal, sys\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.{resource_name}, ({limit}, {limit}))\n"
        f"sys.argv = ['mxfp', *sys.argv[1:]]\nimport mxfp.cli\n{code}mxfp.cli.main()\n"
    )


def test_a_full_disk_is_one_line_and_no_file(tmp_path):
    source = source_file(tmp_path / "in.safetensors", {WEIGHT: weights(shape=(600, 128))})
    script = limited("", "RLIMIT_FSIZE", 20_000)
    command = [sys.executable, "-c", script, "quantize", str(source), str(tmp_path / "out.gguf"), "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    lines = [line for line in done.stderr.splitlines() if "compiling" not in line]
    assert (done.returncode, len(lines)) == (1, 1), done.stderr
    assert "out.gguf: cannot be written: File too large" in lines[0]
    assert [path.name for path in tmp_path.iterdir()] == ["in.safetensors"]


def test_a_source_that_becomes_shorter_meanwhile_is_one_line_and_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr(carrying, "TILE", 200)
    source = source_file(tmp_path / "in.safetensors", {WEIGHT: weights(shape=(60, 128))})

    def cut(name, done, total):
        os.truncate(source, 1000)

    with pytest.raises(FileError, match="became shorter"):
        quantized(source, tmp_path / "out.gguf", progress=cut)
    assert [path.name for path in tmp_path.iterdir()] == ["in.safetensors"]


MEMORY = """
import resource, sys
from mxfp.files.model import open_model
from mxfp.files.planning import plan_quantize
from mxfp.files.quantizing import quantize_model
from mxfp.files.converting import convert_model
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
def both(source, folder):
    with open_model(source) as model:
        quantize_model(plan_quantize(model, folder + "/out.gguf"), overwrite=True)
    with open_model(folder + "/out.gguf") as model:
        convert_model(model, folder + "/out.safetensors", layout="gpt-oss", overwrite=True)
both(sys.argv[1], sys.argv[3])
before = peak()
both(sys.argv[2], sys.argv[3])
print(peak() - before)
"""


def sparse(path, rows, columns=4096):
    """A safetensors file of zeros, which takes no room on the disk."""
    nbytes = 4 * rows * columns
    head = json.dumps({"w": {"dtype": "F32", "shape": [rows, columns], "data_offsets": [0, nbytes]}}).encode()
    with path.open("wb") as out:
        out.write(len(head).to_bytes(8, "little") + head)
        out.truncate(8 + len(head) + nbytes)
    return path


def test_memory_does_not_grow_with_the_model(tmp_path):
    small, large = sparse(tmp_path / "small.safetensors", 2048), sparse(tmp_path / "large.safetensors", 24576)
    command = [sys.executable, "-c", MEMORY, str(small), str(large), str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=COMPILED)
    assert large.stat().st_size > 400e6
    assert int(done.stdout) < 40e6


@pytest.mark.slow
def test_models_beyond_four_gigabytes_are_quantized(tmp_path):
    large = sparse(tmp_path / "large.safetensors", 300_000)
    assert large.stat().st_size > 2**32
    done = run("quantize", large, tmp_path / "out.gguf", "--json", env=COMPILED)
    assert json.loads(done.stdout)["file_size"] == (tmp_path / "out.gguf").stat().st_size
    with open_model(tmp_path / "out.gguf") as model:
        last = model.rows("w", 299_999, 300_000)
    assert not last.codes.any()
    assert (last.scales == 0).all()
    (tmp_path / "out.gguf").unlink()


# --- the command


def test_the_command_shows_plan_and_cost(tmp_path):
    arrays = {f"model.layers.{n}.up.weight": weights(seed=n) for n in range(12)}
    source = source_file(tmp_path / "in.safetensors", {**arrays, "lm_head.weight": weights()})
    shown = inside("quantize", source, tmp_path / "out.safetensors", "--layout", "gpt-oss")
    lines = [" ".join(line.split()) for line in shown.output.splitlines()]
    assert "To be quantized to MXFP4, rule floor, rounding nearest_even" in lines
    assert "model.layers.N.up.weight 12 6 × 128 F32 36,864 4,896" in lines
    assert "lm_head.weight 1 6 × 128 F32 3,072 matches *lm_head*" in lines
    assert sum(line.startswith("model.layers.") for line in lines) == 11
    costs = sorted(sqnr(x, mxfp.quantize(x)).db for x in arrays.values())
    found = [
        float(line.split()[-2]) for line in lines if re.fullmatch(r"model.layers.\d+.up.weight 6 × .*", line)
    ]
    assert found == [round(cost, 2) for cost in costs[:10]]
    assert any(line.startswith("All quantized tensors together:") for line in lines)


def test_json_has_every_tensor_and_its_cost(tmp_path):
    source = source_file(tmp_path / "in.safetensors")
    asked = ("quantize", source, tmp_path / "o.safetensors", "--format", "nvfp4", "--json")
    found = json.loads(inside(*asked).stdout)
    first, second = found["tensors"]
    cost = sqnr(weights(), mxfp.quantize(weights(), mxfp.NVFP4))
    assert (first["name"], first["becomes"], first["kept_because"]) == (WEIGHT, "NVFP4", None)
    assert math.isclose(first["sqnr_db"], cost.db)
    assert first["tensor_scale"] == mxfp.quantize(weights(), mxfp.NVFP4).tensor_scale
    assert (second["becomes"], "sqnr_db" in second) == ("F32", False)
    assert (found["format"], found["layout"], found["rounding"], found["seed"]) == (
        "NVFP4",
        "mxfp",
        "nearest_even",
        None,
    )


def test_names_that_would_command_a_terminal_are_shown_as_text(tmp_path):
    source = source_file(tmp_path / "in.safetensors", {"\x1b[2J[bold]w": weights(), "b" * 200: weights()})
    shown = inside("quantize", source, tmp_path / "out.safetensors")
    assert shown.exit_code == 0
    assert "\x1b" not in shown.output
    assert "\\x1b[2J[bold]w" in shown.output
    assert "b" * 81 not in shown.output.replace("\n", "")


def quantized_gguf(path):
    data = np.zeros((2, 256), np.float32)
    writer = gguf.GGUFWriter(path, "llama")
    raw = gguf.quants.quantize(data, gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("a.weight", raw, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("b.weight", data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


WRONG = [
    (["in.safetensors", "out.bin"], "expected a name that ends in .safetensors, .gguf, .onnx"),
    (["in.safetensors", "no/such/out.gguf"], "cannot be written: No such file or directory"),
    (["in.safetensors", "out.gguf", "--layout", "gpt-oss"], "the layout 'gpt-oss' is of safetensors files"),
    (["in.safetensors", "out.gguf", "--format", "mxfp8_e4m3"], "holds MXFP4, NVFP4, not MXFP8_E4M3"),
    (["in.safetensors", "out.gguf", "--scale-rule", "nearest"], "MXFP4 has the scale rules 'floor'"),
    (["in.safetensors", "out.gguf", "--exclude", "*"], "none of its 2 tensors would be quantized: of 2"),
    (["in.safetensors", "out.gguf", "--config"], "no config.json is written for MXFP4 in the layout 'gguf'"),
    (["none.safetensors", "out.gguf"], "No such file or directory"),
    (
        ["q8.gguf", "out.safetensors"],
        "'a.weight' is Q8_0, and safetensors has no such type (in all 1 Q8_0)",
    ),
    (["q8.gguf", "out.gguf", "--include", "a.*"], "'a.weight' is Q8_0 already; begin with the float model"),
    (["q8.gguf", "out.gguf", "--exclude", "b.*"], "of 1 Q8_0 already; of 1 --exclude b.*; begin with the"),
    (["in.safetensors", "out.gguf", "--nonfinite", "nan"], "take NaN scales for numbers"),
    (["long.safetensors", "out.gguf"], "a name of 70 bytes, and ggml reads at most 63"),
]


@pytest.mark.parametrize(("arguments", "line"), WRONG, ids=lambda v: v if isinstance(v, str) else " ".join(v))
def test_a_wrong_call_is_one_clear_line_and_writes_nothing(arguments, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source_file(tmp_path / "in.safetensors")
    source_file(tmp_path / "long.safetensors", {"w" * 70: weights()})
    quantized_gguf(tmp_path / "q8.gguf")
    before = {path.name for path in tmp_path.iterdir()}
    assert line in one_line("quantize", *arguments)
    assert {path.name for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("ending", [".safetensors", ".gguf"])
def test_mutated_files_end_in_one_line_and_no_file_or_are_quantized_whole(ending, tmp_path):
    source = source_file(tmp_path / f"in{ending}", {WEIGHT: weights(shape=(2, 64)), NORM: np.ones(8)})
    raw, rng = source.read_bytes(), np.random.default_rng(8)
    out, ends = tmp_path / "out.gguf", []
    for _ in range(size(400, 150)):
        source.write_bytes(mutated(raw, rng))
        code, error = end_of("quantize", source, out)
        assert code in (0, 1)
        assert len(error.splitlines()) == 1, error
        assert {path.name for path in tmp_path.iterdir()} == {source.name} | (
            {out.name} if not code else set()
        )
        out.unlink(missing_ok=True)
        ends.append(code)
    assert 10 < sum(ends) < len(ends)


# --- config.json


def hub_folder(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    arrays = {WEIGHT: weights(), "lm_head.weight": weights(), NORM: np.ones(128, np.float32)}
    source_file(folder / "model.safetensors", arrays)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "note": "é"}))
    (tmp_path / "out").mkdir()
    return folder, tmp_path / "out" / "model.safetensors"


@pytest.mark.parametrize("layout", ["gpt-oss", "compressed-tensors"])
def test_config_json_goes_along_with_what_loaders_read(layout, tmp_path):
    folder, out = hub_folder(tmp_path)
    plain = inside("quantize", folder, out, "--layout", layout)
    assert "config.json is not written; with --config it is" in plain.output
    assert not (out.parent / "config.json").exists()
    assert inside("quantize", folder, out, "--layout", layout, "--config", "--force").exit_code == 0
    found = json.loads((out.parent / "config.json").read_text(encoding="utf-8"))
    assert (found["model_type"], found["note"]) == ("llama", "é")
    told = found["quantization_config"]
    if layout == "gpt-oss":
        assert told == {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    else:
        assert (told["quant_method"], told["format"]) == ("compressed-tensors", "mxfp4-pack-quantized")
        assert told["ignore"] == ["lm_head"]
        assert told["config_groups"]["group_0"]["weights"]["group_size"] == 32


def test_a_config_json_is_not_written_over(tmp_path):
    folder, out = hub_folder(tmp_path)
    options = ["--layout", "gpt-oss", "--config"]
    line = one_line("quantize", folder, folder / "out.safetensors", *options, "--force")
    assert "config.json exists; write to a folder of its own" in line
    (out.parent / "config.json").write_text("{}")
    assert "config.json exists" in one_line("quantize", folder, out, *options)
    assert not out.exists()
    (folder / "config.json").unlink()
    assert "there is no config.json beside" in one_line("quantize", folder, out, *options)


# --- the threads


def test_results_come_in_the_order_of_the_jobs_and_few_wait(monkeypatch):
    monkeypatch.setattr(pipeline, "thread_count", lambda: 3)
    begun = []

    def work(n):
        begun.append(n)
        time.sleep(0.002 * (7 - n % 7))
        return n

    for seen, n in enumerate(pipeline.in_order(work, range(40))):
        assert n == seen
        assert len(begun) <= seen + 5


def test_the_first_error_is_raised_and_nothing_is_begun_after_it(monkeypatch):
    monkeypatch.setattr(pipeline, "thread_count", lambda: 2)
    begun = []

    def work(n):
        begun.append(n)
        if n == 3:
            raise FileError("three")
        return n

    with pytest.raises(FileError, match="three"):
        list(pipeline.in_order(work, range(1000)))
    assert max(begun) < 10
