# SPDX-License-Identifier: Apache-2.0
"""GGUF files with other quantized types, as gpt-oss has them: their bytes stay, or gguf decodes them."""

import json

import gguf
import ml_dtypes
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

import mxfp
from command_line import inside, one_line
from mxfp.files import Declared, carrying, create_model, open_model
from mxfp.files.choosing import Choice
from mxfp.files.converting import compare, convert_model
from mxfp.files.header import FileError
from mxfp.files.others import FLOATS
from mxfp.files.planning import plan_quantize
from mxfp.files.quantizing import quantize_model
from mxfp.files.tensor import LayoutError
from support import random_blocks

EXPERTS, ATTENTION, OUTPUT, NORM = (
    *("blk.0.ffn_up_exps.weight", "blk.0.attn_q.weight"),
    *("output.weight", "blk.0.attn_norm.weight"),
)
DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
CARRIED = [kind for kind in Type if kind.name[0] in "QIT" and gguf.GGML_QUANT_SIZES[kind][0] > 1]
SILENT = carrying.Ticker(0, lambda name, done, total: None)
QUANTIZED = [Type[name] for name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0")]
DECODED = [kind for kind in CARRIED if kind.name not in {"Q8_1", "Q8_K", "Q1_0"}]


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def gguf_file(path, tensors, **keys):
    """By gguf's own writer: arrays, or (bytes as gguf has them, type)."""
    writer = gguf.GGUFWriter(path, "gpt-oss")
    for key, value in {"general.file_type": 38, **keys}.items():
        writer.add_uint32(key, value)
    for name, found in tensors.items():
        raw, kind = found if isinstance(found, tuple) else (found, None)
        writer.add_tensor(name, raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def by_gguf(x, kind):
    return gguf.quants.quantize(x, kind), kind


def any_bytes(kind, *rows, blocks=2, seed=0):
    """Bytes of a type that gguf has no quantizer for: whatever they are, they must come through."""
    each = gguf.GGML_QUANT_SIZES[kind][1]
    return np.random.default_rng(seed).integers(0, 256, (*rows, blocks * each), np.uint8), kind


def gpt_oss(path, **more):
    """Experts in MXFP4, attention in Q8_0, the output in Q6_K, norms in F32; as llama.cpp writes gpt-oss."""
    tensors = {
        EXPERTS: by_gguf(normal(3, 8, 64), Type.MXFP4),
        ATTENTION: by_gguf(normal(6, 256, seed=1), Type.Q8_0),
        OUTPUT: any_bytes(Type.Q6_K, 5),
        NORM: normal(64, seed=2),
    }
    return gguf_file(path, {**tensors, **more})


def read_by_gguf(path):
    return {
        t.name: (t.tensor_type, tuple(t.shape.tolist()), bytes(t.data)) for t in gguf.GGUFReader(path).tensors
    }


@pytest.fixture
def small_tiles(monkeypatch):
    monkeypatch.setattr(carrying, "TILE", 100)


def converted(source, out, *, floats=None, **options):
    with open_model(source, dequantize_others=floats) as model:
        return convert_model(model, out, **options)


def quantized(source, out, fmt=mxfp.MXFP4, *, floats=None, **options):
    with open_model(source, dequantize_others=floats) as model:
        return quantize_model(plan_quantize(model, out, fmt, **options))


# --- from GGUF to GGUF


@pytest.mark.usefixtures("small_tiles")
def test_every_byte_of_other_types_goes_from_gguf_to_gguf(tmp_path):
    source = gpt_oss(tmp_path / "in.gguf")
    done = converted(source, tmp_path / "out.gguf")
    assert read_by_gguf(tmp_path / "out.gguf") == read_by_gguf(source)
    assert (done.checked, done.kept, done.decoded) == (True, {"Q8_0": 1, "Q6_K": 1}, {})
    before, after = (gguf.GGUFReader(tmp_path / name).fields for name in ("in.gguf", "out.gguf"))
    for key in ("general.architecture", "general.file_type"):
        assert after[key].contents() == before[key].contents()


@pytest.mark.parametrize("kind", CARRIED, ids=lambda kind: kind.name)
@pytest.mark.parametrize("rows", [(), (7,), (2, 3), (2, 3, 2), (0,)], ids=str)
@pytest.mark.usefixtures("small_tiles")
def test_every_type_of_gguf_is_carried_in_every_shape(kind, rows, tmp_path):
    raw = any_bytes(kind, *rows, blocks=5)
    source = gguf_file(tmp_path / "in.gguf", {"a": raw, "b": normal(3)})
    assert converted(source, tmp_path / "out.gguf").kept == {kind.name: 1}
    found = read_by_gguf(tmp_path / "out.gguf")
    assert found == read_by_gguf(source)
    assert found["a"] == (kind, (5 * gguf.GGML_QUANT_SIZES[kind][0], *rows[::-1]), raw[0].tobytes())


@pytest.mark.parametrize("kind", QUANTIZED, ids=lambda kind: kind.name)
def test_what_gguf_quantized_decodes_to_the_same_after_the_journey(kind, tmp_path):
    x = normal(4, 512)
    source = gguf_file(tmp_path / "in.gguf", {"a": by_gguf(x, kind)})
    converted(source, tmp_path / "out.gguf")
    (found,) = gguf.GGUFReader(tmp_path / "out.gguf").tensors
    expected = gguf.quants.dequantize(gguf.quants.quantize(x, kind), kind)
    assert np.array_equal(gguf.quants.dequantize(found.data, found.tensor_type), expected)


def test_a_type_of_the_same_size_is_not_the_same(tmp_path):
    """IQ4_NL and Q4_0 both have 18 bytes a block."""
    raw, kind = any_bytes(Type.Q4_0, 3)
    source = gguf_file(tmp_path / "in.gguf", {"a": (raw, kind)})
    gguf_file(tmp_path / "other.gguf", {"a": (raw, Type.IQ4_NL)})
    with open_model(source) as model, pytest.raises(ValueError, match="a: is IQ4_NL, expected Q4_0"):
        compare(model, tmp_path / "other.gguf", SILENT)


def test_one_flipped_bit_of_a_carried_tensor_is_found(tmp_path):
    source = gpt_oss(tmp_path / "in.gguf")
    converted(source, tmp_path / "out.gguf")
    with open_model(tmp_path / "out.gguf") as model:
        part = model.info(OUTPUT).parts[0]
    raw = bytearray((tmp_path / "out.gguf").read_bytes())
    raw[part.offset + part.nbytes - 1] ^= 1
    (tmp_path / "out.gguf").write_bytes(raw)
    with open_model(source) as model, pytest.raises(ValueError, match=f"{OUTPUT}: rows from 0 on differ"):
        compare(model, tmp_path / "out.gguf", SILENT)


def test_the_command_says_what_it_carries(tmp_path):
    source = gpt_oss(tmp_path / "in.gguf")
    shown = inside("convert", source, tmp_path / "out.gguf").output
    assert "Note: the bytes of other types stay in 2 tensors: 1 Q8_0, 1 Q6_K" in shown
    assert "4 tensors, 1 of them in blocks, in the layout gguf; read again, all bits equal" in shown
    found = json.loads(inside("convert", source, tmp_path / "out.gguf", "--force", "--json").stdout)
    assert (found["other_types"], found["dequantized"]) == ({"Q8_0": 1, "Q6_K": 1}, {})


# --- elsewhere


@pytest.mark.parametrize("name", ["out.safetensors", "out.onnx"])
def test_elsewhere_they_are_refused_by_name_with_the_way_out(name, tmp_path):
    source = gpt_oss(tmp_path / "in.gguf")
    line = one_line("convert", source, tmp_path / name)
    container = name.partition(".")[2]
    assert f"'{ATTENTION}' is Q8_0, and {container} has no such type (in all 1 Q8_0, 1 Q6_K)" in line
    assert "write .gguf, which keeps their bytes, or ask for --dequantize-others float32" in line
    assert [path.name for path in tmp_path.iterdir()] == ["in.gguf"]


@pytest.mark.parametrize("floats", FLOATS)
@pytest.mark.parametrize("name", ["out.safetensors", "out.onnx", "out.gguf"])
@pytest.mark.usefixtures("small_tiles")
def test_decoded_they_are_what_gguf_gives_rounded_once(floats, name, tmp_path):
    source = gpt_oss(tmp_path / "in.gguf", **{OUTPUT: by_gguf(normal(5, 512, seed=3) * 100, Type.Q5_1)})
    raw = {t.name: (t.data, t.tensor_type) for t in gguf.GGUFReader(source).tensors}
    done = converted(source, tmp_path / name, floats=floats)
    assert (done.kept, done.decoded) == ({}, {"Q8_0": 1, "Q5_1": 1})
    with open_model(source) as before, open_model(tmp_path / name) as after:
        assert after.read(EXPERTS) == before.read(EXPERTS)
        assert np.array_equal(after.read(NORM), before.read(NORM))
        for tensor in (ATTENTION, OUTPUT):
            expected = gguf.quants.dequantize(*raw[tensor]).astype(DTYPES[floats])
            found = after.read(tensor)
            assert found.dtype == expected.dtype
            assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("kind", DECODED, ids=lambda kind: kind.name)
def test_all_that_gguf_decodes_is_decoded(kind, tmp_path):
    raw = any_bytes(kind, 3, blocks=4)
    source = gguf_file(tmp_path / "in.gguf", {"a": raw, "b": normal(2, 2)})
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(*raw)
    converted(source, tmp_path / "out.safetensors", floats="float32")
    with open_model(tmp_path / "out.safetensors") as model:
        assert model.read("a").tobytes() == expected.tobytes()


@pytest.mark.parametrize(("floats", "bits"), [("float16", 11), ("bfloat16", 8)])
def test_decoded_values_are_rounded_to_nearest_and_ties_to_even(floats, bits, tmp_path):
    """Q8_0 of scale 257/256: values of up to 15 bits, some of them midway between two floats."""
    exact = [257 * n for n in range(-128, 128)]  # in units of 2^-8
    blocks = np.zeros((8, 34), np.uint8)
    blocks[:, :2] = np.array([257 * 2.0**-8], np.float16).view(np.uint8)
    blocks[:, 2:] = np.arange(-128, 128).astype(np.int8).view(np.uint8).reshape(8, 32)
    source = gguf_file(tmp_path / "in.gguf", {"a": (blocks, Type.Q8_0)})
    with open_model(source, dequantize_others=floats) as model:
        found = (model.read("a").astype(np.float64) * 2**8).reshape(-1).tolist()
    ties = 0
    for n, value in zip(exact, found, strict=True):
        step = 2 ** max(abs(n).bit_length() - bits, 0)
        low = n // step * step
        ties += step > 1 and n - low == step // 2
        assert value == min((low, low + step), key=lambda v: (abs(v - n), v // step % 2)), n
    assert ties > 10


def test_values_beyond_float16_are_refused_and_leave_nothing(tmp_path):
    source = gguf_file(tmp_path / "in.gguf", {"a": by_gguf(np.full((1, 32), 1e6, np.float32), Type.Q8_0)})
    line = one_line("convert", source, tmp_path / "out.safetensors", "--dequantize-others", "float16")
    assert "'a' has the value" in line
    assert "which F16 does not hold; decode it to float32" in line
    assert [path.name for path in tmp_path.iterdir()] == ["in.gguf"]
    assert inside("convert", source, tmp_path / "o.gguf", "--dequantize-others", "bfloat16").exit_code == 0


@pytest.mark.parametrize("kind", [Type.Q8_1, Type.Q8_K], ids=lambda kind: kind.name)
def test_types_that_gguf_does_not_decode_are_refused_before_anything_is_written(kind, tmp_path):
    source = gguf_file(tmp_path / "in.gguf", {"a": any_bytes(kind, 2)})
    line = one_line("convert", source, tmp_path / "out.safetensors", "--dequantize-others", "float32")
    assert line.endswith(f"in.gguf: 'a' is {kind.name}, which gguf does not decode")
    with pytest.raises(FileError, match="which gguf does not decode"):
        open_model(source, dequantize_others="float32")
    assert inside("convert", source, tmp_path / "out.gguf").exit_code == 0


def test_the_command_says_how_many_it_decodes_and_of_which_types(tmp_path):
    source = gpt_oss(tmp_path / "in.gguf", **{OUTPUT: by_gguf(normal(5, 256), Type.Q8_0)})
    options = ("--dequantize-others", "bfloat16")
    shown = inside("convert", source, tmp_path / "out.safetensors", *options).output
    assert "Note: decoded to bfloat16 by gguf, 2 tensors: 2 Q8_0" in shown
    found = json.loads(inside("convert", source, tmp_path / "out.onnx", *options, "--json").stdout)
    assert (found["other_types"], found["dequantized"]) == ({}, {"Q8_0": 2})


def test_there_and_back_the_experts_have_their_bytes(tmp_path):
    """GGUF -> gpt-oss's own layout -> GGUF, and what was decoded stays floats."""
    source = gpt_oss(tmp_path / "in.gguf", **{OUTPUT: by_gguf(normal(5, 256), Type.Q8_0)})
    converted(source, tmp_path / "mid.safetensors", floats="float16", layout="gpt-oss")
    converted(tmp_path / "mid.safetensors", tmp_path / "out.gguf")
    before, after = read_by_gguf(source), read_by_gguf(tmp_path / "out.gguf")
    assert after[EXPERTS] == before[EXPERTS]
    assert after[NORM] == before[NORM]
    assert after[ATTENTION][0] == Type.F16


@pytest.mark.parametrize(("floats", "number"), [("float32", 0), ("float16", 1), ("bfloat16", 32)])
def test_a_file_without_quantized_tensors_does_not_say_that_it_has_some(floats, number, tmp_path):
    source = gguf_file(
        tmp_path / "in.gguf",
        {"a": by_gguf(normal(4, 64), Type.Q8_0), "n": normal(8)},
        **{"general.file_type": 7},
    )
    converted(source, tmp_path / "out.gguf", floats=floats)
    assert gguf.GGUFReader(tmp_path / "out.gguf").fields["general.file_type"].contents() == number
    converted(source, tmp_path / "same.gguf")
    assert gguf.GGUFReader(tmp_path / "same.gguf").fields["general.file_type"].contents() == 7


# --- quantize


@pytest.mark.usefixtures("small_tiles")
def test_quantize_carries_what_it_does_not_choose(tmp_path):
    float_weight = "blk.1.ffn_up.weight"
    source = gpt_oss(tmp_path / "in.gguf", **{float_weight: normal(8, 64, seed=4)})
    quantized(source, tmp_path / "out.gguf")
    before, after = read_by_gguf(source), read_by_gguf(tmp_path / "out.gguf")
    assert {name for name in before if before[name] != after[name]} == {float_weight}
    with open_model(tmp_path / "out.gguf") as model:
        assert model.read(float_weight) == mxfp.quantize(normal(8, 64, seed=4))
    shown = inside("quantize", source, tmp_path / "o.gguf", "--dry-run").output
    assert "Q8_0 already" in shown
    assert "Note: the bytes of other types stay in 2 tensors: 1 Q8_0, 1 Q6_K" in shown


def test_quantizing_what_is_quantized_already_is_refused_by_name(tmp_path):
    source = gpt_oss(tmp_path / "in.gguf")
    line = one_line("quantize", source, tmp_path / "out.gguf", "--include", "*attn_q*")
    assert f"'{ATTENTION}' is Q8_0 already; begin with the float model, or ask for" in line
    line = one_line("quantize", source, tmp_path / "out.gguf")
    assert "none of its 4 tensors would be quantized" in line
    assert "of 1 Q8_0 already" in line
    assert line.endswith("begin with the float model, or ask for --dequantize-others float32")
    line = one_line("quantize", source, tmp_path / "out.safetensors", "--include", "*norm*")
    assert "is Q8_0, and safetensors has no such type" in line
    assert [path.name for path in tmp_path.iterdir()] == ["in.gguf"]


@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4], ids=str)
@pytest.mark.parametrize("floats", FLOATS)
@pytest.mark.usefixtures("small_tiles")
def test_decoded_and_quantized_at_once_is_decoded_and_then_quantized(floats, fmt, tmp_path):
    source = gpt_oss(tmp_path / "in.gguf", **{OUTPUT: by_gguf(normal(5, 256), Type.Q4_1)})
    quantized(source, tmp_path / "at_once.gguf", fmt, floats=floats)
    converted(source, tmp_path / "floats.gguf", floats=floats)
    quantized(tmp_path / "floats.gguf", tmp_path / "then.gguf", fmt)
    assert (tmp_path / "at_once.gguf").read_bytes() == (tmp_path / "then.gguf").read_bytes()
    raw = next(t for t in gguf.GGUFReader(source).tensors if t.name == ATTENTION)
    x = gguf.quants.dequantize(raw.data, raw.tensor_type).astype(DTYPES[floats])
    with open_model(tmp_path / "at_once.gguf") as model:
        assert model.read(ATTENTION) == mxfp.quantize(x, fmt)
        assert model.info(OUTPUT).type == FLOATS[floats]  # a head, which is kept
    options = ("--dequantize-others", floats, "--dry-run")
    shown = inside("quantize", source, tmp_path / "out.onnx", *options).output
    assert f"Note: decoded to {floats} by gguf, 2 tensors: 1 Q8_0, 1 Q4_1" in shown
    assert f"Q8_0 as {FLOATS[floats]}" in shown


def test_a_carried_tensor_need_not_be_named_but_others_can_be_quantized_beside_it(tmp_path):
    source = gpt_oss(tmp_path / "in.gguf", extra=normal(4, 64))
    done = quantized(source, tmp_path / "out.gguf", choice=Choice(include=("extra",)))
    assert set(done.sqnr) == {"extra"}


# --- inspect and diff


def test_inspect_shows_them_and_diff_compares_their_bytes(tmp_path):
    source = gpt_oss(tmp_path / "in.gguf")
    shown = inside("inspect", source).output
    assert "Q8_0" in shown
    assert "Q6_K" in shown
    converted(source, tmp_path / "same.gguf")
    assert inside("diff", source, tmp_path / "same.gguf").exit_code == 0
    gpt_oss(tmp_path / "other.gguf", **{ATTENTION: by_gguf(normal(6, 256, seed=9), Type.Q8_0)})
    differs = inside("diff", source, tmp_path / "other.gguf")
    assert differs.exit_code == 1
    assert ATTENTION in differs.output


def test_diff_of_what_was_decoded_is_by_value_on_request(tmp_path):
    source = gpt_oss(tmp_path / "in.gguf", **{OUTPUT: by_gguf(normal(5, 256), Type.Q8_0)})
    converted(source, tmp_path / "out.safetensors", floats="float16")
    without = inside("diff", source, tmp_path / "out.safetensors")
    assert without.exit_code == 1
    assert "Q8_0 in A, F16 in B" in without.output
    options = (source, tmp_path / "out.safetensors", "--dequantize-others")
    assert inside("diff", *options, "float16").exit_code == 0
    assert inside("diff", *options, "bfloat16").exit_code == 1


# --- written and read from Python


def test_rows_of_another_type_are_written_as_bytes(tmp_path):
    raw, _ = any_bytes(Type.Q8_0, 4)
    with create_model(tmp_path / "m.gguf", [Declared("a", (4, 64), "Q8_0")]) as out:
        for wrong in (raw.astype(np.int16), raw[:, :-1], raw[:, :34], normal(4, 64)):
            with pytest.raises(ValueError, match="a"):
                out.write("a", wrong)
        out.write("a", raw[:1])
        out.write("a", raw[1:])
    with open_model(tmp_path / "m.gguf") as model:
        assert np.array_equal(model.raw("a", 0, 4), raw.reshape(-1))


def test_one_axis_is_cut_between_blocks_and_nowhere_else(tmp_path):
    raw, kind = any_bytes(Type.Q8_0, blocks=3)
    gguf_file(tmp_path / "m.gguf", {"a": (raw, kind)})
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(raw, kind)
    with open_model(tmp_path / "m.gguf") as model:
        np.testing.assert_array_equal(model.values("a", 32, 96), expected[32:])
        with pytest.raises(ValueError, match="a is read in multiples of 32 rows, got 1"):
            model.values("a", 1, 33)


@pytest.mark.parametrize(
    ("name", "kind", "shape", "message"),
    [
        ("m.safetensors", "Q8_0", (4, 64), "Q8_0 is no type of arrays"),
        ("m.onnx", "Q8_0", (4, 64), "Q8_0 is no type of arrays"),
        ("m.gguf", "Q8_0", (64, 4), "a: 4 elements of Q8_0, expected a multiple of 32"),
        ("m.gguf", "Q8_0", (), "a: 1 elements of Q8_0, expected a multiple of 32"),
        ("m.gguf", "MXFP4", (4, 64), "MXFP4 is no type of arrays; a BlockFormat is"),
        ("m.gguf", "Q9_9", (4, 64), "Q9_9 is no type of arrays"),
    ],
)
def test_types_that_a_container_does_not_have_cannot_be_declared(name, kind, shape, message, tmp_path):
    with pytest.raises(LayoutError, match=message):
        create_model(tmp_path / name, [Declared("a", shape, kind)])
    assert not list(tmp_path.iterdir())


def test_an_opened_model_decodes_on_request_and_says_what_it_decodes(tmp_path):
    source = gpt_oss(tmp_path / "in.gguf")
    with open_model(source, dequantize_others="float16") as model:
        info = model.info(ATTENTION)
        assert (info.type, info.shape, info.parts[0].type) == ("F16", (6, 256), "Q8_0")
        assert not model.read(ATTENTION).flags.writeable
        assert np.array_equal(model.rows(ATTENTION, 2, 5), model.read(ATTENTION)[2:5])
        assert np.array_equal(model.values(ATTENTION), model.read(ATTENTION))
        assert isinstance(model.read(EXPERTS), mxfp.BlockArray)
    with open_model(source) as model, pytest.raises(FileError, match="is Q8_0, which is no array"):
        model.read(ATTENTION)
    with pytest.raises(ValueError, match="dequantize_others"):
        open_model(source, dequantize_others="float64")
    write = {"w": random_blocks(mxfp.MXFP4, (2, 64), 1)}
    mxfp.files.write_model(tmp_path / "m.safetensors", write)
    with open_model(tmp_path / "m.safetensors", dequantize_others="float32") as model:
        assert model.read("w") == write["w"]
