# SPDX-License-Identifier: Apache-2.0
"""Layouts: the bits of a BlockArray in a file and back, and what the libraries that own them make of it."""

import json
import math
from fractions import Fraction
from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
import onnx
import pytest
import safetensors
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from safetensors.numpy import save_file

import mxfp
import oracle
from mxfp.files.header import FileError
from mxfp.files.layouts import LAYOUTS, layout_named
from mxfp.files.layouts.config import quantization_config
from mxfp.files.layouts.gguf import join, split
from mxfp.files.layouts.tensor_scale import divisor, nearest_divisible, reciprocal
from mxfp.files.model import open_model
from mxfp.files.tensor import Declared, LayoutError
from mxfp.files.writing import create_model, write_model
from mxfp.formats import BLOCK_FORMATS, E2M1, E8M0, BlockFormat, ElementFormat
from support import bits, random_blocks, same_bits, size

ENDINGS = {"safetensors": ".safetensors", "gguf": ".gguf", "onnx": ".onnx"}
HELD = [(layout.name, fmt) for layout in LAYOUTS.values() for fmt in layout.formats()]
SHAPES = [(5, 128), (1, 64), (128,), (3, 4, 64), (2, 3, 2, 64), (0, 128), (2, 0), (0,)]
"""Every layout holds these; NVFP4 of GGUF has rows of 64."""
ANY_SHAPES = [
    ((96, 5), 0),
    ((64, 3, 5), 0),
    ((3, 40, 5), 1),
    ((3, 33), -1),
    ((33,), -1),
    ((7, 5), 0),
    ((1, 1), 0),
]
"""With their block axes: for layouts that hold any."""


def held(fmt, shape, seed, layout, **options):
    """A BlockArray of every code, with a tensor scale that the layout has."""
    q = random_blocks(fmt, shape, seed, specials=True, **options)
    scale = nearest_divisible(q.tensor_scale) if layout == "compressed-tensors" else q.tensor_scale
    return mxfp.BlockArray(q.codes, q.scales, fmt, q.axis, scale if fmt.tensor_scale else 1.0)


def written(tmp_path, arrays, layout, **options):
    path = tmp_path / f"model{ENDINGS[layout_named(layout).container]}"
    write_model(path, arrays, layout=layout, overwrite=True, **options)
    return path


def only(path, name="w"):
    with open_model(path) as model:
        return model.read(name)


def all_scales(fmt, layout):
    """A row for each scale code that the layout writes, with every element code in it."""
    last = fmt.scale.code_count - layout_named(layout).nan_is_number
    scales = np.arange(last, dtype=np.uint8)
    row = np.resize(np.arange(fmt.element.code_count, dtype=np.uint8), max(64, fmt.block))
    codes = np.stack([np.roll(row, n) for n in range(last)])
    return mxfp.BlockArray(codes, np.repeat(scales[:, None], row.size // fmt.block, 1), fmt, -1, 1.0)


# --- the bits, there and back


@pytest.mark.parametrize(("layout", "fmt"), HELD, ids=str)
def test_every_layout_gives_back_the_bits(tmp_path, layout, fmt):
    arrays = {f"l.{n}.weight": held(fmt, shape, n, layout) for n, shape in enumerate(SHAPES)}
    path = written(tmp_path, arrays, layout)
    with open_model(path) as model:
        assert model.names == tuple(arrays)
        for name, q in arrays.items():
            found, info = model.read(name), model.info(name)
            assert found == q
            assert (info.shape, info.format, info.layout, info.type) == (q.shape, fmt, layout, fmt.name)
            same_bits(model.values(name), mxfp.dequantize(q))


@pytest.mark.parametrize(("layout", "fmt"), HELD, ids=str)
def test_every_scale_code_and_every_element_code_comes_back(tmp_path, layout, fmt):
    q = all_scales(fmt, layout)
    assert only(written(tmp_path, {"w": q}, layout)) == q


@pytest.mark.parametrize(("layout", "fmt"), HELD, ids=str)
def test_rows_can_be_read_and_written_one_at_a_time(tmp_path, layout, fmt):
    shape = (size(9, 4), 64)
    q = held(fmt, shape, 1, layout)
    path = written(tmp_path, {"w": q}, layout)
    again = path.with_name("again" + path.suffix)
    with (
        open_model(path) as model,
        create_model(again, [Declared("w", shape, fmt)], layout=layout) as out,
    ):
        for row in range(shape[0]):
            piece = model.rows("w", row, row + 1)
            np.testing.assert_array_equal(piece.codes, q.codes[row : row + 1])
            np.testing.assert_array_equal(piece.scales, q.scales[row : row + 1])
            out.write("w", piece)
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize(("layout", "fmt"), HELD, ids=str)
def test_views_that_are_not_contiguous_are_written_as_they_read(tmp_path, layout, fmt):
    q = held(fmt, (64, 6, 128), 2, layout)
    part = mxfp.BlockArray(
        q.codes[::2, ::-1, :64], q.scales[::2, ::-1, : 64 // fmt.block], fmt, -1, q.tensor_scale
    )
    assert not part.codes.flags.writeable
    assert only(written(tmp_path, {"w": part}, layout)) == part


@pytest.mark.parametrize(("layout", "fmt"), [h for h in HELD if h[0] in {"onnx", "mxfp"}], ids=str)
def test_any_axis_and_partial_blocks_where_they_are_held(tmp_path, layout, fmt):
    arrays = {f"w{n}": held(fmt, shape, n, layout, axis=axis) for n, (shape, axis) in enumerate(ANY_SHAPES)}
    with open_model(written(tmp_path, arrays, layout)) as model:
        for name, q in arrays.items():
            assert model.read(name) == q
            step = model.info(name).step
            for start in range(0, q.shape[0], step):
                stop = min(start + step, q.shape[0])
                same_bits(model.values(name, start, stop), mxfp.dequantize(q)[start:stop])


def test_our_own_layout_keeps_axis_and_rule(tmp_path):
    q = mxfp.quantize(np.arange(96.0).reshape(2, 48), mxfp.MXFP6_E3M2, scale_rule="even")
    negative = mxfp.quantize(np.arange(96.0).reshape(2, 48), axis=-2, scale_rule="rceil")
    with open_model(written(tmp_path, {"w": q, "v": negative}, "mxfp")) as model:
        found = model.read("w")
        assert (found, found.axis, found.scale_rule) == (q, -1, "even")
        assert (model.read("v").axis, model.info("v").scale_rule) == (-2, "rceil")


def test_our_own_layout_keeps_formats_that_are_none_of_the_family(tmp_path):
    three = ElementFormat("E2M0", 2, 0, 1)
    fmt = BlockFormat("odd", three, E8M0, 5, ("floor", "rceil"))
    twin = BlockFormat("MXFP4", E2M1, E8M0, 8, ("floor",))
    arrays = {
        "odd": random_blocks(fmt, (7, 11), 0),
        "down": random_blocks(fmt, (83, 3), 0, axis=0),
        "name of another": random_blocks(twin, (2, 16), 0),
    }
    with open_model(written(tmp_path, arrays, "mxfp")) as model:
        assert {name: model.read(name) for name in arrays} == arrays
        step = model.info("down").step
        assert step * three.bits % 8 == 0
        assert model.rows("down", step, 2 * step).shape == (step, 3)


@pytest.mark.parametrize(("first", "fmt"), [h for h in HELD if h[1] in (mxfp.MXFP4, mxfp.NVFP4)], ids=str)
@pytest.mark.parametrize("second", LAYOUTS)
def test_from_any_layout_to_any_other_no_bit_is_lost(tmp_path, first, fmt, second):
    if fmt not in layout_named(second).formats():
        with pytest.raises(LayoutError, match="holds"):
            layout_named(second).plan(Declared("w", (4, 64), fmt))
        return
    q = held(fmt, (4, 192), 3, "compressed-tensors")
    there = written(tmp_path, {"w": q}, first)
    (tmp_path / "b").mkdir()
    back = written(tmp_path / "b", {"w": only(there)}, second)
    assert only(back) == q


# --- against the libraries that own the files


def ggml_values(q):
    """What gguf decodes, from the contract and its named departure: code 8, −0, is +0."""
    values = mxfp.dequantize(q)
    values[q.codes == 8] = 0.0
    return values


@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4], ids=str)
def test_gguf_decodes_what_was_written(tmp_path, fmt):
    q = all_scales(fmt, "gguf")
    with np.errstate(over="ignore"):
        path = written(tmp_path, {"w": q}, "gguf")
        tensor = gguf.GGUFReader(path).tensors[0]
        assert (tensor.name, tensor.tensor_type.name, tuple(tensor.shape)) == ("w", fmt.name, q.shape[::-1])
        found = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        same_bits(found, ggml_values(q))
        with open_model(path) as model:
            same_bits(model.values("w", decoder="gguf"), found)


@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4], ids=str)
def test_what_gguf_quantized_is_read(tmp_path, fmt):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 128)).astype(np.float32)
    kind = gguf.GGMLQuantizationType[fmt.name]
    if fmt is mxfp.MXFP4:
        raw = gguf.quants.quantize(x, kind)
    else:  # gguf decodes NVFP4 and does not quantize to it
        raw = rng.integers(0, 127, (4, 72)).astype(np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "w.gguf", "llama")
    writer.add_tensor("w", raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = only(tmp_path / "w.gguf")
    assert found.format is fmt
    same_bits(ggml_values(found), gguf.quants.dequantize(raw, kind))
    (tmp_path / "b").mkdir()
    with open_model(written(tmp_path / "b", {"w": found}, "gguf")) as model:
        info = model.info("w").parts[0]
        again = model.path.read_bytes()[info.offset : info.offset + info.nbytes]
    assert again == raw.tobytes()


@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4], ids=str)
def test_bytes_of_gguf_are_where_ggml_says(fmt):
    together = 1 if fmt is mxfp.MXFP4 else 4
    half = fmt.block // 2
    q = random_blocks(fmt, (3, 2 * together * fmt.block), 0)
    raw = join(q.codes, q.scales, fmt).reshape(-1, together * (1 + half))
    codes, scales = q.codes.reshape(-1, together, fmt.block), q.scales.reshape(-1, together)
    for line, (some, first) in zip(raw, zip(codes, scales, strict=True), strict=True):
        for block in range(together):
            assert line[block] == first[block]
            for j in range(half):
                byte = line[together + block * half + j]
                assert (byte & 15, byte >> 4) == (some[block, j], some[block, j + half])
    again = split(raw.reshape(-1), fmt)
    np.testing.assert_array_equal(again[0], q.codes.reshape(-1))
    np.testing.assert_array_equal(again[1], q.scales.reshape(-1))


def test_nvfp4_of_gguf_has_its_tensor_scale_where_llama_cpp_looks(tmp_path):
    q = random_blocks(mxfp.NVFP4, (4, 64), 0)
    path = written(tmp_path, {"blk.0.ffn_up.weight": q}, "gguf")
    tensors = {t.name: t for t in gguf.GGUFReader(path).tensors}
    assert tensors["blk.0.ffn_up.scale"].data.tolist() == [q.tensor_scale]
    with open_model(path) as model:
        assert model.names == ("blk.0.ffn_up.weight",)
        found = model.values("blk.0.ffn_up.weight", decoder="gguf")
        same_bits(found, ggml_values(q))


def test_nvfp4_of_gguf_without_a_tensor_scale_has_one_of_1(tmp_path):
    raw = np.zeros((2, 36), np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "w.gguf", "llama")
    writer.add_tensor("w.weight", raw, raw_dtype=gguf.GGMLQuantizationType.NVFP4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert only(tmp_path / "w.gguf", "w.weight").tensor_scale == 1.0


def raw_tensors(path):
    """What safetensors itself reads: names to (dtype, shape, bytes)."""
    return {
        name: (entry["dtype"], tuple(entry["shape"]), bytes(entry["data"]))
        for name, entry in safetensors.deserialize(Path(path).read_bytes())
    }


def low_then_high(raw, shape):
    """Two codes a byte, the even one low: decoded a byte at a time."""
    return np.array([c for byte in raw for c in (byte & 15, byte >> 4)], np.uint8).reshape(shape)


def by_the_formula(codes, scales, block, tensor_scale):
    """Element times scale times tensor scale in exact rationals, rounded once; signs are the codes'."""
    out = np.zeros(codes.shape, np.float32)
    for place in np.ndindex(codes.shape):
        scale = scales[(*place[:-1], place[-1] // block)]
        value = Fraction(float(mxfp.E2M1.values[codes[place]])) * scale * tensor_scale
        out[place] = oracle_float32(value, bool(codes[place] >> 3))
    return out


def oracle_float32(value, negative):
    pattern = oracle.round_to(abs(value), "float32")
    return np.array([pattern | (negative << 31)], np.uint32).view(np.float32)[0]


def test_gpt_oss_is_two_tensors_of_bytes(tmp_path):
    q = random_blocks(mxfp.MXFP4, (2, 3, 64), 0, scales=(100, 150))
    found = raw_tensors(written(tmp_path, {"l.experts.down_proj": q}, "gpt-oss"))
    blocks, scales = found["l.experts.down_proj_blocks"], found["l.experts.down_proj_scales"]
    assert (blocks[0], blocks[1], scales[0], scales[1]) == ("U8", (2, 3, 2, 16), "U8", (2, 3, 2))
    codes = low_then_high(blocks[2], q.shape)
    # 2**(scale - 127), as the loaders of gpt-oss apply it.
    values = np.array([Fraction(2) ** (s - 127) for s in scales[2]], object).reshape(2, 3, 2)
    same_bits(by_the_formula(codes, values, 32, 1), mxfp.dequantize(q))


def test_the_first_names_of_gpt_oss_are_read(tmp_path):
    q = random_blocks(mxfp.MXFP4, (2, 3, 64), 0)
    name = "block.0.mlp.mlp1_weight"
    tensors = {
        f"{name}.blocks": mxfp.pack(q.codes, mxfp.E2M1).reshape(2, 3, 2, 16),
        f"{name}.scales": np.array(q.scales),
    }
    save_file(tensors, tmp_path / "m.safetensors")
    assert only(tmp_path / "m.safetensors", name) == q


@pytest.mark.parametrize("layout", ["compressed-tensors", "modelopt"])
@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4], ids=str)
def test_compressed_tensors_and_modelopt_are_what_their_decoders_take(tmp_path, layout, fmt):
    q = held(fmt, (3, 64), 5, layout, scales=(40, 80))
    found = raw_tensors(written(tmp_path, {"l.up.weight": q}, layout))
    elements = found["l.up.weight_packed" if layout == "compressed-tensors" else "l.up.weight"]
    scales = found["l.up.weight_scale"]
    assert elements[:2] == ("U8", (3, 32))
    assert scales[:2] == ("F8_E4M3" if fmt is mxfp.NVFP4 else "U8", (3, 64 // fmt.block))
    codes = low_then_high(elements[2], q.shape)
    if fmt is mxfp.MXFP4:
        assert len(found) == 2
        values = [Fraction(2) ** (s - 127) for s in scales[2]]
        shared = Fraction(1)
    else:
        values = [Fraction(float(v)) for v in np.frombuffer(scales[2], ml_dtypes.float8_e4m3fn)]
        kind, shape, raw = found[
            "l.up.weight_global_scale" if layout == "compressed-tensors" else "l.up.weight_scale_2"
        ]
        assert (kind, shape) == ("F32", (1,) if layout == "compressed-tensors" else ())
        number = np.frombuffer(raw, "<f4")[0]
        if layout == "compressed-tensors":  # the one divides, the other multiplies
            number = np.float32(1) / number
        shared = Fraction(float(number))
    scales = np.array(values, object).reshape(3, -1)
    same_bits(by_the_formula(codes, scales, fmt.block, shared), mxfp.dequantize(q))


def test_mxfp8_of_modelopt_is_an_array_of_ml_dtypes_and_its_exponents(tmp_path):
    q = random_blocks(mxfp.MXFP8_E4M3, (3, 64), 0, scales=(100, 150))
    found = raw_tensors(written(tmp_path, {"w": q}, "modelopt"))
    assert (found["w"][:2], found["w_scale"][:2]) == (("F8_E4M3", (3, 64)), ("U8", (3, 2)))
    elements = np.frombuffer(found["w"][2], ml_dtypes.float8_e4m3fn).reshape(3, 64).astype(np.float32)
    scales = np.ldexp(np.float32(1), np.frombuffer(found["w_scale"][2], np.uint8).astype(int) - 127)
    expected = elements * np.repeat(scales.reshape(3, 2), 32, 1)
    same_bits(mxfp.dequantize(q), expected.astype(np.float32))


def test_what_safetensors_wrote_is_read(tmp_path):
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 256, (2, 3, 4, 16)).astype(np.uint8)
    scales = rng.integers(0, 255, (2, 3, 4)).astype(np.uint8)
    save_file({"a_blocks": blocks, "a_scales": scales, "b": np.arange(3)}, tmp_path / "m.safetensors")
    with open_model(tmp_path / "m.safetensors") as model:
        assert set(model.names) == {"a", "b"}
        found = model.read("a")
        np.testing.assert_array_equal(found.codes, low_then_high(blocks.tobytes(), (2, 3, 128)))
        np.testing.assert_array_equal(found.scales, scales)
        assert model.read("b").tolist() == [0, 1, 2]


@pytest.mark.parametrize("fmt", layout_named("onnx").formats(), ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_onnx_checks_and_evaluates_what_was_written(tmp_path, fmt, axis):
    q = random_blocks(fmt, (32 * (2 - axis), 64), 0, axis=axis, scales=(40, 120))
    path = written(tmp_path, {"w": q}, "onnx")
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    (found,) = ReferenceEvaluator(model).run(None, {})
    expected = mxfp.dequantize(q)
    if fmt.tensor_scale:
        # ONNX rounds the product of both scales, and then that with the element; the contract rounds once.
        scales = (fmt.scale.values[q.scales] * q.tensor_scale).astype(np.float32)
        expected = fmt.element.values[q.codes].astype(np.float32) * np.repeat(scales, fmt.block, axis)
    same_bits(found, expected.astype(np.float32))
    arrays = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    np.testing.assert_array_equal(arrays["w_quantized"].view(np.uint8), q.codes)
    np.testing.assert_array_equal(arrays["w_scale"].view(np.uint8), q.scales)


def onnx_model(nodes, initializers, opset=25):
    outputs = [helper.make_tensor_value_info(n.output[0], TensorProto.FLOAT, None) for n in nodes[-1:]]
    graph = helper.make_graph(nodes, "g", [], outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def onnx_parts(q, *, lists=False):
    """Initializers of a BlockArray as onnx makes them: as bytes, or as lists of numbers."""
    elements = q.codes.view(ml_dtypes.float4_e2m1fn)
    scales = q.scales.view(ml_dtypes.float8_e8m0fnu)
    if not lists:
        return [numpy_helper.from_array(elements, "e"), numpy_helper.from_array(scales, "s")]
    packed = mxfp.pack(q.codes.reshape(-1), mxfp.E2M1)
    return [
        TensorProto(name="e", data_type=TensorProto.FLOAT4E2M1, dims=q.shape, int32_data=packed.tolist()),
        TensorProto(
            name="s",
            data_type=TensorProto.FLOAT8E8M0,
            dims=q.scales.shape,
            int32_data=q.scales.reshape(-1).tolist(),
        ),
    ]


@pytest.mark.parametrize("lists", [False, True])
def test_what_onnx_wrote_is_read(tmp_path, lists):
    q = random_blocks(mxfp.MXFP4, (5, 64), 0)
    node = helper.make_node(
        "DequantizeLinear", ["e", "s"], ["w"], axis=1, block_size=32, output_dtype=TensorProto.FLOAT
    )
    onnx.save(onnx_model([node], onnx_parts(q, lists=lists)), tmp_path / "m.onnx")
    assert only(tmp_path / "m.onnx") == q


def test_nvfp4_of_onnx_through_a_cast_is_read(tmp_path):
    """As exporters for TensorRT have it: the scales are dequantized, cast to half, and dequantize."""
    q = random_blocks(mxfp.NVFP4, (5, 64), 0)
    nodes = [
        helper.make_node("DequantizeLinear", ["s", "t"], ["s32"]),
        helper.make_node("Cast", ["s32"], ["s16"], to=TensorProto.FLOAT16),
        helper.make_node("DequantizeLinear", ["e", "s16"], ["w"], axis=-1, block_size=16),
    ]
    initializers = [
        numpy_helper.from_array(q.codes.view(ml_dtypes.float4_e2m1fn), "e"),
        numpy_helper.from_array(q.scales.view(ml_dtypes.float8_e4m3fn), "s"),
        numpy_helper.from_array(np.array(q.tensor_scale, np.float32), "t"),
    ]
    onnx.save(onnx_model(nodes, initializers), tmp_path / "m.onnx")
    assert only(tmp_path / "m.onnx") == q


def test_external_data_of_onnx_is_read(tmp_path):
    q = random_blocks(mxfp.MXFP4, (5, 64), 0)
    node = helper.make_node("DequantizeLinear", ["e", "s"], ["w"], axis=1, block_size=32, output_dtype=1)
    plain = numpy_helper.from_array(np.arange(300, dtype=np.float32), "plain")
    model = onnx_model([node], [*onnx_parts(q), plain])
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    with open_model(tmp_path / "m.onnx") as found:
        assert {h.path.name for h in found.headers} == {"m.onnx", "m.data"}
        assert found.read("w") == q
        assert found.rows("plain", 290, 300).tolist() == list(range(290, 300))


# --- the tensor scale: who multiplies, and who divides


def test_a_divisor_is_found_whenever_there_is_one():
    """Every significand of one binade, both ways: what multiplies is the reciprocal of what divides."""
    step = size(1, 997)
    all_of = (np.arange(0, 1 << 23, step, dtype=np.uint32) | np.uint32(0x3F80_0000)).view(np.float32)
    reciprocals = np.float32(1) / all_of
    reachable = set(reciprocals.view(np.uint32).tolist())
    rng = np.random.default_rng(0)
    for found in rng.choice(reciprocals, 2000).tolist():
        assert reciprocal(divisor(found, "x")) == found
    if step == 1:
        below_1 = (np.arange(1 << 23, dtype=np.uint32) | np.uint32(0x3F00_0000)).view(np.float32)
        for scale in rng.choice(below_1, 2000).tolist():
            if np.float32(scale).view(np.uint32).item() in reachable:
                assert reciprocal(divisor(scale, "x")) == scale
            else:
                with pytest.raises(LayoutError, match="the next above that is one"):
                    divisor(scale, "x")
                near = nearest_divisible(scale)
                assert scale < near <= scale * (1 + 2**-20)
                assert reciprocal(divisor(near, "x")) == near


@pytest.mark.parametrize("scale", [2.0**-126, 2.0**-20, 1.0, 2.0**20, 2.0**126])
def test_powers_of_two_divide_exactly(scale):
    assert divisor(scale, "x") == 1 / scale
    assert nearest_divisible(scale) == scale


def test_a_tensor_scale_without_a_reciprocal_is_refused_and_not_changed(tmp_path):
    q = random_blocks(mxfp.NVFP4, (2, 16), 0)
    bad = next(
        s for s in (float(np.float32(0.9 + n * 2**-24)) for n in range(1, 100)) if nearest_divisible(s) != s
    )
    with pytest.raises(
        LayoutError, match="no float32 has it for its reciprocal; the next above that is one is"
    ):
        written(
            tmp_path, {"w": mxfp.BlockArray(q.codes, q.scales, mxfp.NVFP4, -1, bad)}, "compressed-tensors"
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shape", [(3,), (3, 1, 1)])
def test_experts_with_tensor_scales_of_their_own_are_read_one_at_a_time(tmp_path, shape):
    q = random_blocks(mxfp.NVFP4, (3, 4, 32), 0)
    tensors = {
        "w": mxfp.pack(q.codes, mxfp.E2M1),
        "w_scale": np.array(q.scales),
        "w_scale_2": np.array([0.5, 2.0, 2.0], np.float32).reshape(shape),
    }
    save_file(tensors, tmp_path / "u8.safetensors")
    raw = (tmp_path / "u8.safetensors").read_bytes()
    path = tmp_path / "m.safetensors"
    # safetensors.numpy has no F8_E4M3: the dtype of one entry, which is longer, is put in by hand.
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    header["w_scale"]["dtype"] = "F8_E4M3"
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + int.from_bytes(raw[:8], "little") :])
    with open_model(path) as model:
        assert [model.rows("w", n, n + 1).tensor_scale for n in range(3)] == [0.5, 2.0, 2.0]
        assert model.rows("w", 1, 3).tensor_scale == 2.0
        with pytest.raises(FileError, match=r"one row \(expert\) at a time"):
            model.read("w")


# --- what a layout cannot hold


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name not in {"onnx", "mxfp"}])
@pytest.mark.parametrize(
    ("shape", "axis", "message"),
    [
        ((4, 33), -1, "whole blocks: 33 elements, expected a multiple of 32"),
        ((31,), 0, "whole blocks: 31 elements"),
        ((64, 4), 0, "blocks along the last axis, not along axis 0"),
        ((64, 64), -2, "blocks along the last axis, not along axis -2"),
        ((), -1, "at least one axis, not a scalar"),
    ],
)
def test_other_axes_and_partial_blocks_are_refused_in_one_line(layout, shape, axis, message):
    with pytest.raises(LayoutError, match=message) as caught:
        layout_named(layout).plan(Declared("w", shape, mxfp.MXFP4, axis))
    assert str(caught.value).startswith("w: ")
    assert "\n" not in str(caught.value)


def test_rows_of_nvfp4_in_gguf_are_whole_super_blocks():
    with pytest.raises(LayoutError, match="48 elements, expected a multiple of 64"):
        layout_named("gguf").plan(Declared("w", (2, 48), mxfp.NVFP4))
    layout_named("modelopt").plan(Declared("w", (2, 48), mxfp.NVFP4))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_formats_that_a_layout_does_not_have_are_refused(layout):
    for fmt in BLOCK_FORMATS.values():
        if fmt in layout_named(layout).formats():
            continue
        with pytest.raises(LayoutError, match=f"not {fmt}"):
            layout_named(layout).plan(Declared("w", (4, 64), fmt))


@pytest.mark.parametrize(("layout", "fmt"), HELD, ids=str)
def test_a_nan_scale_is_written_where_it_means_nan_and_refused_elsewhere(tmp_path, layout, fmt):
    q = held(fmt, (3, 64), 0, layout)
    scales = q.scales.copy()
    scales[1, 1] = fmt.scale.nan_code
    nan = mxfp.BlockArray(q.codes, scales, fmt, -1, q.tensor_scale)
    if layout_named(layout).nan_is_number:
        with pytest.raises(LayoutError, match=r"the block at \(1, 1\) has the scale code"):
            written(tmp_path, {"w": nan}, layout)
        assert not list(tmp_path.iterdir())
        path = written(tmp_path, {"w": nan}, layout, nan_scales="keep")
    else:
        path = written(tmp_path, {"w": nan}, layout)
    assert only(path) == nan
    with open_model(path) as model:
        assert np.isnan(model.values("w")[1, fmt.block : 2 * fmt.block]).all()


def test_gguf_makes_a_number_of_a_nan_scale_and_says_so_only_there(tmp_path):
    q = mxfp.BlockArray(np.full((1, 32), 1, np.uint8), np.array([[255]], np.uint8), mxfp.MXFP4)
    with open_model(written(tmp_path, {"w": q}, "gguf", nan_scales="keep")) as model:
        assert np.isnan(model.values("w")).all()
        assert (model.values("w", decoder="gguf") == 2.0**127).all()


def test_a_negative_zero_is_kept_where_the_owner_reads_a_positive_one(tmp_path):
    q = mxfp.BlockArray(np.full((1, 32), 8, np.uint8), np.array([[127]], np.uint8), mxfp.MXFP4)
    with open_model(written(tmp_path, {"w": q}, "gguf")) as model:
        assert model.read("w") == q
        assert np.signbit(model.values("w")).all()
        assert not np.signbit(model.values("w", decoder="gguf")).any()


# --- files whose parts do not fit each other


def safetensors_of(path, tensors):
    """A safetensors file of (dtype, shape) with zeros, or with the bytes given."""
    header, data = {}, b""
    for name, (dtype, shape, *raw) in tensors.items():
        width = {"F32": 4, "BF16": 2, "I32": 4}.get(dtype, 1)
        some = raw[0] if raw else bytes(math.prod(shape) * width)
        header[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [len(data), len(data) + len(some)],
        }
        data += some
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


ODD = {
    "a partner is missing": (
        {"w_blocks": ("U8", (2, 3, 16))},
        "'w_blocks' has no 'w_scales' beside it",
    ),
    "packed without scales": ({"w_packed": ("U8", (2, 16))}, "'w_packed' has no 'w_scale' beside it"),
    "scales of another shape": (
        {"w_blocks": ("U8", (2, 3, 16)), "w_scales": ("U8", (3, 2))},
        r"\(2, 3, 16\) and 'w_scales' of shape \(3, 2\) disagree: expected scales of shape \(2, 3\)",
    ),
    "blocks of another size": (
        {"w_blocks": ("U8", (2, 3, 8)), "w_scales": ("U8", (2, 3))},
        r"\(2, 3, 8\), expected \(…, blocks, 16\)",
    ),
    "blocks without an axis of blocks": (
        {"w_blocks": ("U8", (16,)), "w_scales": ("U8", (1,))},
        r"\(16,\), expected \(…, blocks, 16\)",
    ),
    "scales of another type": (
        {"w_blocks": ("U8", (2, 16)), "w_scales": ("F32", (2,))},
        "'w_scales' is of F32, expected F8_E8M0 or U8",
    ),
    "no tensor scale": (
        {"w": ("U8", (2, 8)), "w_scale": ("F8_E4M3", (2, 1))},
        "'w' has no 'w_scale_2' beside it",
    ),
    "a tensor scale of another type": (
        {"w": ("U8", (2, 8)), "w_scale": ("F8_E4M3", (2, 1)), "w_scale_2": ("BF16", ())},
        r"'w_scale_2' is BF16 \(\), expected one F32",
    ),
    "two tensor scales for one matrix": (
        {"w": ("U8", (2, 8)), "w_scale": ("F8_E4M3", (2, 1)), "w_scale_2": ("F32", (2,))},
        r"'w_scale_2' is F32 \(2,\), expected one F32",
    ),
    "rows that are no blocks": (
        {"w": ("U8", (2, 9)), "w_scale": ("U8", (2, 1))},
        "rows of 9 bytes, expected a multiple of 16",
    ),
    "an array by itself and in parts": (
        {"w": ("F32", (2,)), "w_blocks": ("U8", (2, 16)), "w_scales": ("U8", (2,))},
        "'w' is there by itself and in parts",
    ),
}


@pytest.mark.parametrize("case", ODD)
def test_parts_that_do_not_fit_are_one_line(tmp_path, case):
    tensors, message = ODD[case]
    path = safetensors_of(tmp_path / "m.safetensors", tensors)
    with pytest.raises(FileError, match=message) as caught:
        open_model(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    with open_model(path, layouts=()) as model:
        assert set(model.names) == set(tensors)


PLAIN = {
    "int4 of compressed-tensors": {"w_packed": ("I32", (2, 4)), "w_scale": ("BF16", (2, 1))},
    "fp8 with a scale a row": {"w": ("F8_E4M3", (2, 32)), "w_scale": ("BF16", (2, 1))},
    "bytes with float scales": {"w": ("U8", (2, 32)), "w_scale": ("F32", (2,))},
    "a name that ends so": {"w_blocks": ("F32", (2, 16)), "v_scales": ("U8", (3,))},
    "bytes in blocks of their own": {"w_blocks": ("U8", (2, 7))},
}


@pytest.mark.parametrize("case", PLAIN)
def test_tensors_of_other_layouts_are_left_as_they_are(tmp_path, case):
    path = safetensors_of(tmp_path / "m.safetensors", PLAIN[case])
    with open_model(path) as model:
        assert set(model.names) == set(PLAIN[case])
        assert not any(tensor.layout for tensor in model.tensors)


@pytest.mark.parametrize(
    ("scale", "message"),
    [(0.0, "0.0, expected"), (-1.0, "-1.0, expected"), (math.inf, "inf"), (math.nan, "nan, expected")],
)
@pytest.mark.parametrize("layout", ["modelopt", "compressed-tensors"])
def test_a_tensor_scale_that_is_none_is_a_file_error(tmp_path, scale, message, layout):
    first, last = ("w", "w_scale_2") if layout == "modelopt" else ("w_packed", "w_global_scale")
    raw = np.array([scale], "<f4").tobytes()
    tensors = {first: ("U8", (2, 8)), "w_scale": ("F8_E4M3", (2, 1)), last: ("F32", (1,), raw)}
    path = safetensors_of(tmp_path / "m.safetensors", tensors)
    with open_model(path) as model, pytest.raises(FileError, match=message):
        model.read("w")


def test_a_negative_block_scale_is_a_file_error(tmp_path):
    one = np.array([1.0], "<f4").tobytes()
    tensors = {
        "w": ("U8", (2, 8)),
        "w_scale": ("F8_E4M3", (2, 1), b"\x10\x90"),
        "w_scale_2": ("F32", (), one),
    }
    path = safetensors_of(tmp_path / "m.safetensors", tensors)
    with open_model(path) as model, pytest.raises(FileError, match=r"scale code 144 at \(1, 0\)"):
        model.read("w")


def metadata_of(path):
    raw = path.read_bytes()
    return json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(schema=2), "schema 2, expected 1"),
        (lambda m: m.update(tensors=[]), "tensors \\[\\], expected an object"),
        (lambda m: m["tensors"].update(w=3), "is no object"),
        (lambda m: m["tensors"]["w"].update(axis="x"), "needs a shape, an axis"),
        (lambda m: m["tensors"]["w"].update(axis=7), "no axis 7"),
        (lambda m: m["tensors"]["w"].update(shape=[2, -3]), "needs a shape"),
        (lambda m: m["tensors"]["w"].update(shape=[2, 2**70]), "needs a shape"),
        (lambda m: m["tensors"]["w"].update(shape=[2**40, 2**40]), "expected U8"),
        (lambda m: m["tensors"]["w"].update(shape=[2, 96]), "expected U8"),
        (lambda m: m["tensors"]["w"].update(format="MXFP5"), "'MXFP5', which is not known"),
        (lambda m: m["tensors"]["w"].update(format={"name": "x"}), "has a format that is none"),
        (lambda m: m["tensors"]["w"].update(format=[1]), "has a format that is none"),
        (lambda m: m["tensors"]["w"].update(scale_rule="best"), "scale rules"),
        (lambda m: m["tensors"].update(v=m["tensors"]["w"]), "'v.codes' is not there"),
    ],
)
def test_metadata_of_our_own_that_are_wrong_are_one_line(tmp_path, change, message):
    path = written(tmp_path, {"w": random_blocks(mxfp.MXFP4, (2, 64), 0)}, "mxfp")
    raw, header = path.read_bytes(), metadata_of(path)
    told = json.loads(header["__metadata__"]["mxfp"])
    change(told)
    header["__metadata__"]["mxfp"] = json.dumps(told)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + int.from_bytes(raw[:8], "little") :])
    with pytest.raises(FileError, match=message) as caught:
        open_model(path)
    assert "\n" not in str(caught.value)


# --- what config.json says


@pytest.mark.parametrize(
    ("layout", "fmt", "method", "told"),
    [
        ("gpt-oss", mxfp.MXFP4, "mxfp4", {"modules_to_not_convert": ["lm_head"]}),
        ("compressed-tensors", mxfp.MXFP4, "compressed-tensors", {"format": "mxfp4-pack-quantized"}),
        ("compressed-tensors", mxfp.NVFP4, "compressed-tensors", {"format": "nvfp4-pack-quantized"}),
        ("modelopt", mxfp.NVFP4, "modelopt", {"quant_algo": "NVFP4", "group_size": 16}),
        ("modelopt", mxfp.MXFP8_E4M3, "modelopt", {"quant_algo": "MXFP8", "group_size": 32}),
    ],
)
def test_config_json_names_the_method(layout, fmt, method, told):
    found = quantization_config(layout, fmt, ignore=["lm_head"])
    assert found["quant_method"] == method
    assert {key: found[key] for key in told} == told
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(("layout", "fmt"), [("gguf", mxfp.MXFP4), ("gpt-oss", mxfp.NVFP4)])
def test_config_json_has_nothing_to_say_of_others(layout, fmt):
    with pytest.raises(LayoutError):
        quantization_config(layout, fmt)


def test_a_layout_by_a_name_that_there_is_not():
    with pytest.raises(ValueError, match="no layout 'awq'; expected one of gpt-oss"):
        layout_named("awq")


# --- any shape


@given(
    st.sampled_from([h for h in HELD if h[0] in {"onnx", "mxfp"}]),
    st.lists(st.integers(0, 40), min_size=1, max_size=3),
    st.integers(-3, 2),
    st.integers(0, 2**32),
)
def test_any_shape_and_axis_comes_back(tmp_path_factory, pair, shape, axis, seed):
    layout, fmt = pair
    axis = max(min(axis, len(shape) - 1), -len(shape))
    q = held(fmt, tuple(shape), seed, layout, axis=axis)
    found = only(written(tmp_path_factory.mktemp("any"), {"w": q}, layout))
    assert found == q
    same_bits(bits(mxfp.dequantize(found)), bits(mxfp.dequantize(q)))
