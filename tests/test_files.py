# SPDX-License-Identifier: Apache-2.0
"""Model files opened and written: whole or not at all, in bounded memory, one line for whatever is wrong."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
import textwrap
import tracemalloc
import types
import zipfile
from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
import onnx
import pytest
import safetensors
from onnx import TensorProto, helper, numpy_helper
from safetensors import safe_open
from safetensors.numpy import load_file

import mxfp
from mxfp import whole
from mxfp.files.dtypes import NUMPY, PACKED, is_array, type_of
from mxfp.files.gguf_header import read_gguf_header
from mxfp.files.header import FileError
from mxfp.files.interop import from_arrays, to_ml_dtypes, to_torch
from mxfp.files.layouts import LAYOUTS, layout_named
from mxfp.files.model import open_model
from mxfp.files.onnx_header import onnx_types, read_onnx_headers
from mxfp.files.tensor import Declared, LayoutError
from mxfp.files.writer import ModelWriter
from mxfp.files.writing import create_model, declared, write_model
from mxfp.formats import BLOCK_FORMATS
from support import random_blocks, same_bits, size

ENDINGS = (".safetensors", ".gguf", ".onnx")
GGUF_TYPES = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8")


def array_for(kind, shape=(3, 8), seed=0):
    """An array of a type, of any bits that it has."""
    rng = np.random.default_rng(seed)
    if kind in PACKED:
        element, dtype = PACKED[kind]
        return rng.integers(0, element.code_count, shape).astype(np.uint8).view(dtype)
    dtype = NUMPY[kind]
    if kind == "BOOL":
        return rng.integers(0, 2, shape).astype(np.bool_)
    raw = rng.integers(0, 256, (*shape, dtype.itemsize)).astype(np.uint8)
    return raw.reshape(-1).view(dtype).reshape(shape)


def same_bytes(found, expected):
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()


def small(path, layout=None):
    """A file with a BlockArray and two arrays."""
    arrays = {
        "w.weight": random_blocks(mxfp.MXFP4, (6, 64), 0),
        "norm": np.arange(5, dtype=np.float32),
        "bias": np.arange(6).astype(np.float16),
    }
    write_model(path, arrays, layout=layout, overwrite=True)
    return arrays


def one_line(error):
    assert "\n" not in str(error.value)
    return str(error.value)


# --- plain tensors


@pytest.mark.parametrize("kind", [*NUMPY, *PACKED])
def test_every_type_of_safetensors_comes_back(tmp_path, kind):
    arrays = {"a": array_for(kind), "b": array_for(kind, (8,), 1), "none": array_for(kind, (0, 8))}
    write_model(tmp_path / "m.safetensors", arrays)
    entries = {n: e for n, e in safetensors.deserialize((tmp_path / "m.safetensors").read_bytes())}
    assert {n: (e["dtype"], tuple(e["shape"])) for n, e in entries.items()} == {
        n: (kind, a.shape) for n, a in arrays.items()
    }
    with open_model(tmp_path / "m.safetensors") as model:
        for name, array in arrays.items():
            same_bytes(model.read(name), array)
            assert not model.read(name).flags.writeable
        same_bytes(model.rows("a", 1, 3), arrays["a"][1:3])


@pytest.mark.parametrize("kind", GGUF_TYPES)
def test_every_array_of_gguf_comes_back(tmp_path, kind):
    arrays = {"a": array_for(kind), "b": array_for(kind, (2, 3, 4, 5), 1), "c": array_for(kind, (7,), 2)}
    write_model(tmp_path / "m.gguf", arrays)
    found = {t.name: t for t in gguf.GGUFReader(tmp_path / "m.gguf").tensors}
    with open_model(tmp_path / "m.gguf") as model:
        assert model.names == tuple(arrays)
        for name, array in arrays.items():
            assert found[name].tensor_type.name == kind
            assert tuple(found[name].shape) == array.shape[::-1]
            assert found[name].data.tobytes() == array.tobytes()
            same_bytes(model.read(name), array)
            same_bytes(model.rows(name, 1, 2), array[1:2])


@pytest.mark.parametrize("kind", [k for k in (*NUMPY, *PACKED) if k in onnx_types()])
def test_every_type_of_onnx_comes_back(tmp_path, kind):
    array = array_for(kind)
    write_model(tmp_path / "m.onnx", {"a": array})
    model = onnx.load(tmp_path / "m.onnx")
    same_bytes(numpy_helper.to_array(model.graph.initializer[0]), array)
    with open_model(tmp_path / "m.onnx") as found:
        same_bytes(found.read("a"), array)
        same_bytes(found.rows("a", 1, 2), array[1:2])
    onnx.save(
        helper.make_model(helper.make_graph([], "g", [], [], [numpy_helper.from_array(array, "a")])),
        tmp_path / "theirs.onnx",
    )
    with open_model(tmp_path / "theirs.onnx") as found:
        same_bytes(found.read("a"), array)


def test_scalars_come_back(tmp_path):
    for ending in (".safetensors", ".onnx"):
        write_model(tmp_path / f"m{ending}", {"one": np.array(2.5, np.float32)})
        with open_model(tmp_path / f"m{ending}") as model:
            assert (model.read("one").shape, float(model.read("one"))) == ((), 2.5)
            assert [float(t) for t in model.tiles("one")] == [2.5]


def test_views_and_other_byte_orders_are_written_as_they_read(tmp_path):
    x = np.arange(48, dtype=np.float32).reshape(6, 8)
    arrays = {"t": x.T, "back": x[::-1, ::2], "big": x.astype(">f4"), "half": x.astype(np.float16)[:, 3:5]}
    for array in arrays.values():
        array.flags.writeable = False
    write_model(tmp_path / "m.safetensors", arrays)
    found = load_file(tmp_path / "m.safetensors")
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype.newbyteorder("=")


def test_a_big_endian_gguf_file_is_read_in_the_machines_order(tmp_path):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    blocks = random_blocks(mxfp.MXFP4, (2, 32), 0)
    small_model = tmp_path / "little.gguf"
    write_model(small_model, {"w": blocks})
    raw = gguf.GGUFReader(small_model).tensors[0].data
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama", endianess=gguf.GGUFEndian.BIG)
    writer.add_tensor("x", x)
    writer.add_tensor("w", raw, raw_dtype=gguf.GGMLQuantizationType.MXFP4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open_model(tmp_path / "m.gguf") as model:
        assert model.header.big_endian
        same_bits(model.read("x"), x)
        assert model.read("w") == blocks
        with pytest.raises(FileError, match="big-endian"):
            model.values("w", decoder="gguf")


GGUF_BLOCKS = ("Q4_0", "Q5_1", "Q8_0", "Q2_K", "Q4_K", "Q6_K", "IQ4_NL", "TQ1_0")


@pytest.mark.parametrize("kind", GGUF_BLOCKS)
def test_other_types_of_gguf_are_decoded_by_gguf_and_otherwise_refused(tmp_path, kind):
    number = gguf.GGMLQuantizationType[kind]
    block, each = gguf.GGML_QUANT_SIZES[number]
    raw = np.random.default_rng(0).integers(0, 256, (4, 2 * each)).astype(np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("w", raw, raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(raw, number)
    with open_model(tmp_path / "m.gguf") as model:
        assert model.info("w").type == kind
        with pytest.raises(FileError, match=f"'w' is {kind}, which is no array and none of the family"):
            model.read("w")
        np.testing.assert_array_equal(model.values("w"), expected)
        np.testing.assert_array_equal(model.values("w", 1, 3), expected[1:3])
        assert model.values("w").shape == (4, 2 * block)


def test_shards_are_one_model(tmp_path):
    q, x = random_blocks(mxfp.MXFP4, (4, 64), 0), np.arange(4, dtype=np.float32)
    write_model(tmp_path / "a.safetensors", {"q": q}, layout="gpt-oss")
    write_model(tmp_path / "b.safetensors", {"own": q, "x": x}, layout="mxfp")
    names = {"q_blocks": "a", "q_scales": "a", "own.codes": "b", "own.scales": "b", "x": "b"}
    index = {"weight_map": {name: f"{shard}.safetensors" for name, shard in names.items()}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with open_model(tmp_path) as model:
        assert set(model.names) == {"q", "own", "x"}
        assert model.read("q") == q == model.read("own")
        same_bits(model.read("x"), x)


# --- arrays of numpy


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_files_are_read_and_have_layouts_too(tmp_path, save):
    q = random_blocks(mxfp.MXFP4, (3, 64), 0)
    x = np.arange(600, dtype=np.float32).reshape(100, 6)
    blocks = mxfp.pack(q.codes, mxfp.E2M1).reshape(3, 2, 16)
    save(tmp_path / "m.npz", x=x, w_blocks=blocks, w_scales=q.scales, one=np.float64(3), empty=x[:0])
    with open_model(tmp_path / "m.npz") as model:
        assert set(model.names) == {"x", "w", "one", "empty"}
        assert model.read("w") == q
        same_bits(model.rows("x", 60, 70), x[60:70])
        assert float(model.read("one")) == 3
        assert model.read("empty").shape == (0, 6)


def test_bfloat16_that_numpy_saved_without_its_name_is_read(tmp_path):
    every = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16).reshape(256, 256)
    np.save(tmp_path / "m.npy", every)
    np.savez(tmp_path / "m.npz", m=every)
    np.savez_compressed(tmp_path / "c.npz", m=every)
    assert np.load(tmp_path / "m.npy").dtype == "V2"
    for name in ("m.npy", "m.npz", "c.npz"):
        with open_model(tmp_path / name) as model:
            assert model.info("m").type == "BF16"
            assert model.read("m").dtype == ml_dtypes.bfloat16
            assert model.read("m").tobytes() == every.tobytes()
            assert model.rows("m", 3, 5).tobytes() == every[3:5].tobytes()


def test_what_the_message_about_other_dtypes_says_works(tmp_path):
    for name in ("float8_e4m3fn", "float8_e8m0fnu", "float4_e2m1fn"):
        codes = np.arange(16, dtype=np.uint8).view(name)
        write_model(tmp_path / "m.safetensors", {"m": codes}, overwrite=True)
        np.save(tmp_path / "m.npy", codes.astype(np.float32))
        with open_model(tmp_path / "m.safetensors") as kept, open_model(tmp_path / "m.npy") as floats:
            assert kept.read("m").dtype == codes.dtype
            assert kept.read("m").tobytes() == codes.tobytes()
            np.testing.assert_array_equal(floats.read("m"), codes.astype(np.float32))


def test_an_npy_file_is_one_array_of_its_name(tmp_path):
    x = np.arange(12, dtype=np.int16).reshape(3, 4)
    np.save(tmp_path / "weights.npy", x)
    with open_model(tmp_path / "weights.npy") as model:
        assert (model.format, model.names) == ("npy", ("weights",))
        np.testing.assert_array_equal(model.rows("weights", 1, 3), x[1:])


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3, ml_dtypes.float4_e2m1fn), "saved by numpy without the name of its dtype"),
        (
            np.zeros(3, ml_dtypes.float8_e4m3fn),
            "of 1 byte an element .*write_model to .safetensors",
        ),
        (np.zeros(3, "V2"), "could be any of 2 bytes an element"),
        (np.array(["a"]), "has dtype <U1, expected one of"),
        (np.array([{}], object), "has dtype object"),
        (np.zeros((3, 4), order="F"), "Fortran's order"),
        (np.zeros(3, ">f4"), "byte order"),
        (np.zeros(3, [("a", "f4")]), "has dtype"),
    ],
)
def test_arrays_that_cannot_be_read_back_say_why(tmp_path, array, message):
    np.save(tmp_path / "m.npy", array)
    np.savez(tmp_path / "m.npz", a=array)
    for name in ("m.npy", "m.npz"):
        with pytest.raises(FileError, match=message) as error:
            open_model(tmp_path / name)
        one_line(error)


def test_an_archive_that_claims_more_than_deflate_can_make_is_refused(tmp_path):
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": "|u1", "fortran_order": False, "shape": (2**32 - 200,)}
    )
    with zipfile.ZipFile(tmp_path / "m.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", head.getvalue())
    raw = (tmp_path / "m.npz").read_bytes()
    place = raw.rindex(b"PK\x01\x02") + 24
    (tmp_path / "m.npz").write_bytes(raw[:place] + (2**32 - 72).to_bytes(4, "little") + raw[place + 4 :])
    with pytest.raises(FileError, match="is said to have 4294967224 bytes in"):
        open_model(tmp_path / "m.npz")


# --- what a model file says, and how it is asked


def test_names_that_are_not_there_name_those_near(tmp_path):
    small(tmp_path / "m.safetensors")
    with (
        open_model(tmp_path / "m.safetensors") as model,
        pytest.raises(FileError, match=r"has no tensor 'w.wieght'; near are w.weight"),
    ):
        model.read("w.wieght")


def test_a_tensor_says_what_it_takes(tmp_path):
    small(tmp_path / "m.gguf")
    with open_model(tmp_path / "m.gguf") as model:
        info = model.info("w.weight")
        assert (info.elements, info.nbytes, info.bits, info.rows) == (384, 204, 4.25, 6)
        assert info.tile(130) == 2
        assert info.tile(1) == 1
        assert repr(model).endswith("m.gguf: gguf, 3 tensors")


def test_rows_that_are_not_there_or_cut_a_block_are_refused(tmp_path):
    q = random_blocks(mxfp.MXFP4, (96,), 0)
    write_model(tmp_path / "m.gguf", {"w": q})
    with open_model(tmp_path / "m.gguf") as model:
        assert model.info("w").step == 32
        np.testing.assert_array_equal(model.rows("w", 32, 96).codes, q.codes[32:])
        for start, stop in ((0, 97), (-1, 32), (64, 32), (5, 32), (0, 31)):
            with pytest.raises(ValueError, match="rows"):
                model.rows("w", start, stop)


@pytest.mark.parametrize("ending", ENDINGS)
def test_tiles_are_the_tensor_in_bounded_pieces(tmp_path, ending):
    x = np.arange(100 * 32, dtype=np.float32).reshape(100, 32)
    q = random_blocks(mxfp.MXFP4, (100, 32), 0)
    write_model(tmp_path / f"m{ending}", {"x": x, "q": q})
    with open_model(tmp_path / f"m{ending}") as model:
        tiles = list(model.tiles("x", size=320))
        assert [len(t) for t in tiles] == [10] * 10
        np.testing.assert_array_equal(np.concatenate(tiles), x)
        codes = [t.codes for t in model.tiles("q", size=700)]
        assert max(map(len, codes)) == 21
        np.testing.assert_array_equal(np.concatenate(codes), q.codes)


def test_layouts_can_be_left_alone(tmp_path):
    small(tmp_path / "m.safetensors", "gpt-oss")
    with open_model(tmp_path / "m.safetensors", layouts=()) as model:
        assert model.names == ("w.weight_blocks", "w.weight_scales", "norm", "bias")
    with open_model(tmp_path / "m.safetensors", layouts=["modelopt"]) as model:
        assert "w.weight_blocks" in model.names
    with pytest.raises(ValueError, match="no layout 'x'"):
        open_model(tmp_path / "m.safetensors", layouts=["x"])


def test_only_gguf_decodes_for_gguf(tmp_path):
    small(tmp_path / "m.safetensors", "gpt-oss")
    with open_model(tmp_path / "m.safetensors") as model:
        with pytest.raises(ValueError, match="layout 'gpt-oss', which gguf does not decode"):
            model.values("w.weight", decoder="gguf")
        with pytest.raises(ValueError, match="decoder must be one of"):
            model.values("w.weight", decoder="ggml")
        same_bits(model.values("norm", decoder="gguf"), np.arange(5, dtype=np.float32))


def test_a_closed_file_says_so(tmp_path):
    small(tmp_path / "m.gguf")
    with open_model(tmp_path / "m.gguf") as model:
        pass
    with pytest.raises(ValueError, match="closed"):
        model.read("norm")


def test_many_files_are_open_a_few_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("mxfp.files.sources.MOST_OPEN", 2)
    names = {}
    for n in range(5):
        write_model(tmp_path / f"{n}.safetensors", {f"t{n}": np.full(3, n, np.float32)})
        names[f"t{n}"] = f"{n}.safetensors"
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    with open_model(tmp_path) as model:
        for n in (0, 1, 2, 3, 4, 0, 3):
            assert model.read(f"t{n}").tolist() == [n] * 3
            assert len(model._files._open) <= 2


# --- memory


def test_reading_and_writing_hold_a_tile_and_not_the_file(tmp_path):
    rows, width = 4096, 1024
    x = np.zeros((256, width), np.float32)
    with create_model(tmp_path / "in.safetensors", [Declared("w", (rows, width), "F32")]) as out:
        for _ in range(rows // 256):
            out.write("w", x)
    q = mxfp.quantize(x, engine="reference")
    tile = 256 * width * 4
    for layout, ending in (("gpt-oss", ".safetensors"), ("gguf", ".gguf"), ("onnx", ".onnx")):
        tracemalloc.start()
        with (
            open_model(tmp_path / "in.safetensors") as model,
            create_model(
                tmp_path / f"out{ending}", [Declared("w", (rows, width), mxfp.MXFP4)], layout=layout
            ) as out,
        ):
            for _ in model.tiles("w", size=256 * width):
                out.write("w", q)
        with open_model(tmp_path / f"out{ending}") as model:
            for found in model.tiles("w", size=256 * width):
                assert found.shape == (256, width)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 4 * tile, (layout, peak)


def test_the_data_of_an_onnx_file_are_stepped_over(tmp_path):
    write_model(tmp_path / "m.onnx", {"w": np.zeros((1024, 1024), np.float32)})
    read_onnx_headers(tmp_path / "m.onnx")
    tracemalloc.start()
    read_onnx_headers(tmp_path / "m.onnx")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 << 20 < (tmp_path / "m.onnx").stat().st_size


# --- writing, whole or not at all


def test_rows_may_come_in_any_number_and_tensors_take_turns(tmp_path):
    q, x = random_blocks(mxfp.NVFP4, (7, 64), 0), np.arange(21.0).reshape(7, 3)
    for ending in ENDINGS:
        with create_model(tmp_path / f"m{ending}", [declared("q", q), declared("x", x)]) as out:
            for start, stop in ((0, 0), (0, 1), (1, 5), (5, 7)):
                part = mxfp.BlockArray(
                    q.codes[start:stop], q.scales[start:stop], q.format, -1, q.tensor_scale
                )
                out.write("q", part)
                out.write("x", x[start:stop])
            assert not list(tmp_path.glob(f"m{ending}"))
        with open_model(tmp_path / f"m{ending}") as model:
            assert model.read("q") == q
            same_bits(model.read("x"), x)
        assert (tmp_path / f"m{ending}").stat().st_size == out.nbytes


def test_the_size_is_known_before_the_data(tmp_path):
    with create_model(tmp_path / "m.gguf", [Declared("w", (64, 64), mxfp.MXFP4)]) as out:
        assert out.info("w").parts[0].nbytes == 64 * 2 * 17
        size_of_file = out.nbytes
        out.write("w", random_blocks(mxfp.MXFP4, (64, 64), 0))
    assert (tmp_path / "m.gguf").stat().st_size == size_of_file


WRONG = [
    ("w", np.zeros((6, 64), np.float32), "declared as MXFP4, got ndarray"),
    ("x", random_blocks(mxfp.MXFP4, (6, 64), 0), "declared as F32, got BlockArray"),
    ("w", random_blocks(mxfp.NVFP4, (6, 64), 0), "declared as MXFP4, got a BlockArray of NVFP4"),
    (
        "w",
        random_blocks(mxfp.MXFP4, (6, 32), 0),
        r"declared with shape \(6, 64\), got rows of shape \(6, 32\)",
    ),
    ("w", random_blocks(mxfp.MXFP4, (64,), 0), r"got rows of shape \(64,\)"),
    ("w", random_blocks(mxfp.MXFP4, (6, 64), 0, axis=0), "blocks along axis -1, got blocks along 0"),
    ("w", random_blocks(mxfp.MXFP4, (7, 64), 0), "has 6 rows, got 7 after 0"),
    ("x", np.zeros(5, np.float64), "an array of float64 for a tensor of F32"),
    ("x", np.zeros((5, 1), np.float32), r"got rows of shape \(5, 1\)"),
    ("y", np.zeros(5, np.float32), "no tensor 'y' is declared"),
]


@pytest.mark.parametrize(("name", "rows", "message"), WRONG)
def test_rows_of_another_kind_are_refused_and_leave_nothing(tmp_path, name, rows, message):
    tensors = [Declared("w", (6, 64), mxfp.MXFP4), Declared("x", (5,), "F32")]
    with (
        pytest.raises(ValueError, match=message),
        create_model(tmp_path / "m.safetensors", tensors, layout="gpt-oss") as out,
    ):
        out.write(name, rows)
    assert not list(tmp_path.iterdir())


def test_missing_rows_leave_nothing(tmp_path):
    with (
        pytest.raises(ValueError, match="w has 6 rows, got 2; no file is left"),
        create_model(tmp_path / "m.gguf", [Declared("w", (6, 64), mxfp.MXFP4)]) as out,
    ):
        out.write("w", random_blocks(mxfp.MXFP4, (2, 64), 0))
    assert not list(tmp_path.iterdir())


def test_rows_in_multiples_of_a_step(tmp_path):
    q = random_blocks(mxfp.MXFP4, (70, 3), 0, axis=0)
    part = mxfp.BlockArray(q.codes[:33], q.scales[:2], q.format, 0)
    with (
        pytest.raises(ValueError, match="written in multiples of 32 rows, got 33"),
        create_model(tmp_path / "m.safetensors", [declared("w", q)]) as out,
    ):
        out.write("w", part)


def test_one_tensor_has_one_tensor_scale(tmp_path):
    q = random_blocks(mxfp.NVFP4, (2, 64), 0)
    with create_model(tmp_path / "m.safetensors", [Declared("w", (4, 64), mxfp.NVFP4)]) as out:
        out.write("w", q)
        with pytest.raises(ValueError, match="one tensor scale"):
            out.write("w", mxfp.BlockArray(q.codes, q.scales, q.format, -1, 2 * q.tensor_scale))
        out.write("w", q)


def test_a_tensor_without_rows_need_not_be_written(tmp_path):
    for ending in ENDINGS:
        with create_model(tmp_path / f"m{ending}", [Declared("w", (0, 64), mxfp.NVFP4)]):
            pass
        with open_model(tmp_path / f"m{ending}") as model:
            assert (model.read("w").shape, model.read("w").tensor_scale) == ((0, 64), 1.0)


@pytest.mark.parametrize(
    ("name", "tensors", "options", "message"),
    [
        ("m.bin", [], {}, r"ends in .safetensors, .gguf, .onnx"),
        ("m.gguf", [], {"layout": "gpt-oss"}, "the layout 'gpt-oss' is of safetensors files"),
        ("m.gguf", [Declared("a", (3,), "F8_E4M3")], {}, "GGUF has no type F8_E4M3"),
        ("m.gguf", [Declared("a" * 64, (3,), "F32")], {}, "a name of 64 bytes, and ggml reads at most 63"),
        ("m.gguf", [Declared("a", (1,) * 5, "F32")], {}, "more than the 4 axes of GGUF"),
        ("m.gguf", [], {"metadata": {"a": object()}}, "metadata of GGUF are texts, numbers"),
        ("m.gguf", [], {"metadata": {"a": 2**70}}, "metadata that GGUF does not have"),
        ("m.gguf", [], {"external_data": True}, "external data are ONNX's; a gguf file has all of its own"),
        ("m.onnx", [], {"metadata": {"a": 1}}, "metadata of ONNX are texts"),
        ("m.safetensors", [], {"metadata": {"a": 1}}, "metadata of safetensors are texts"),
        ("m.safetensors", [Declared("__metadata__", (1,), "F32")], {}, "can be called __metadata__"),
        ("m.safetensors", [Declared("a", (3,), "Q4_K")], {}, "Q4_K is no type of arrays"),
        ("m.safetensors", [Declared("a", (3,), "F4")], {}, "a: 3 elements of F4, expected a multiple of 2"),
        (
            "m.safetensors",
            [Declared("a", (1,), "F32"), Declared("a", (1,), "F32")],
            {},
            "'a' is declared twice",
        ),
        ("m.safetensors", [Declared("", (1,), "F32")], {}, "a tensor needs a name"),
        ("m.safetensors", [Declared("\ud800", (1,), "F32")], {}, "UTF-8 does not have"),
        (
            "m.safetensors",
            [Declared("a", (2, 32), mxfp.MXFP4), Declared("a.scales", (1,), "F32")],
            {},
            "'a.scales' and 'a' both have 'a.scales'",
        ),
    ],
)
def test_what_a_container_cannot_hold_is_refused_before_a_file_is_there(
    tmp_path, name, tensors, options, message
):
    with pytest.raises(LayoutError, match=message) as error:
        create_model(tmp_path / name, tensors, **options)
    one_line(error)
    assert not list(tmp_path.iterdir())


def test_a_file_that_exists_stays_unless_one_says_so(tmp_path):
    path = tmp_path / "m.safetensors"
    small(path)
    before = path.read_bytes()
    with pytest.raises(FileError, match="exists; ask for overwrite=True"):
        create_model(path, [Declared("x", (1,), "F32")])
    out = create_model(tmp_path / "late.safetensors", [Declared("x", (1,), "F32")])
    out.write("x", np.ones(1, np.float32))
    (tmp_path / "late.safetensors").write_text("someone else's")
    with pytest.raises(FileError, match="exists"):
        out.close()
    assert (tmp_path / "late.safetensors").read_text() == "someone else's"
    assert path.read_bytes() == before
    write_model(path, {"x": np.ones(1, np.float32)}, overwrite=True)
    with open_model(path) as model:
        assert model.names == ("x",)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["late.safetensors", "m.safetensors"]


def test_a_file_is_as_readable_as_others_are(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    small(tmp_path / "m.gguf")
    assert (tmp_path / "m.gguf").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("where", ["missing/m.gguf", "folder.gguf"])
def test_a_place_where_no_file_can_be_is_one_line(tmp_path, where):
    (tmp_path / "folder.gguf").mkdir()
    with pytest.raises(FileError, match=r"cannot be written|exists"):
        create_model(tmp_path / where, [Declared("x", (1,), "F32")])
    with pytest.raises(FileError, match="cannot be written"):
        create_model(tmp_path / where, [Declared("x", (1,), "F32")], overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["folder.gguf"]


@pytest.fixture(params=["without a name", "hidden"])
def way(request, monkeypatch):
    """Files without names, and the way of systems that have none."""
    if request.param == "hidden":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    return request.param


def test_both_ways_to_a_whole_file_give_the_same(tmp_path, way):
    small(tmp_path / "m.gguf")
    first = (tmp_path / "m.gguf").read_bytes()
    small(tmp_path / "m.gguf")
    with create_model(tmp_path / "new.gguf", [Declared("x", (1,), "F32")]) as out:
        hidden = [p.name for p in tmp_path.iterdir() if p.name != "m.gguf"]
        assert len(hidden) == (way == "hidden")
        assert all(name.startswith(".new.gguf-") for name in hidden)
        out.write("x", np.ones(1, np.float32))
    assert (tmp_path / "m.gguf").read_bytes() == first
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.gguf", "new.gguf"]


def test_an_interrupted_run_leaves_nothing(tmp_path, way):
    def interrupted():
        with create_model(tmp_path / "m.gguf", [Declared("x", (4,), "F32")]) as out:
            out.write("x", np.ones(2, np.float32))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not list(tmp_path.iterdir())


def test_what_is_done_with_whole_models_is_loaded_when_it_is_asked_for():
    code = (
        "import sys, mxfp.files as files\n"
        "later = 'choosing converting difference explaining planning quantizing statistics'.split()\n"
        "print(*(name for name in later if f'mxfp.files.{name}' in sys.modules))\n"
        "assert set(files.__all__) <= set(dir(files))\n"
        "print(*(getattr(files, name).__name__ for name in files.__all__ if name != 'LAYOUTS'))\n"
        "print(*(name for name in later if f'mxfp.files.{name}' not in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = [name for name in mxfp.files.__all__ if name != "LAYOUTS"]
    assert done.stdout.splitlines() == ["", " ".join(names), ""]
    with pytest.raises(AttributeError, match=r"module 'mxfp\.files' has no attribute 'nothing'"):
        mxfp.files.nothing  # noqa: B018


class FullDisk(io.FileIO):
    def write(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_fills_up_is_one_line_and_no_file(tmp_path, way, monkeypatch):
    tensors = [Declared("x", (4,), "F32")]
    out = create_model(tmp_path / "m.safetensors", tensors)
    (output,) = out._file.files
    with output.file as file:
        monkeypatch.setattr(output, "file", FullDisk(os.dup(file.fileno()), "wb"))
    with pytest.raises(
        FileError, match=r"m.safetensors: cannot be written: No space left on device"
    ) as error:
        out.write("x", np.ones(4, np.float32))
    one_line(error)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="closed"):
        out.write("x", np.ones(4, np.float32))


def test_a_disk_without_the_room_is_told_before_the_work(tmp_path, way, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(FileError, match="No space left on device"):
        create_model(tmp_path / "m.safetensors", [Declared("x", (4,), "F32")])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EOPNOTSUPP])
def test_a_file_system_that_cannot_set_room_aside_is_written_to(tmp_path, monkeypatch, number):
    def unable(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", unable, raising=False)
    small(tmp_path / "m.safetensors")
    with open_model(tmp_path / "m.safetensors") as model:
        assert len(model.tensors) == 3


def test_a_file_system_without_second_names_is_written_to(tmp_path, monkeypatch):
    def unable(*_, **__):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    monkeypatch.setattr(os, "link", unable)
    write_model(tmp_path / "m.safetensors", {"x": np.ones(1)})
    (tmp_path / "n.safetensors").write_text("there")
    with pytest.raises(FileError, match="exists"):
        write_model(tmp_path / "n.safetensors", {"x": np.ones(1)})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.safetensors", "n.safetensors"]


def run(code, cwd, **options):
    source = textwrap.dedent(
        """
        import sys, numpy as np, mxfp
        from mxfp.files.model import open_model
        from mxfp.files.tensor import Declared
        from mxfp.files.writing import create_model
        """
    ) + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", source], cwd=cwd, capture_output=True, text=True, check=False, **options
    )


@pytest.mark.skipif(sys.platform != "linux", reason="files without names are Linux's")
@pytest.mark.parametrize("name", ["m.safetensors", "m.gguf", "m.onnx"])
def test_a_killed_run_leaves_nothing(tmp_path, name):
    done = run(
        f"""
        import os, signal
        out = create_model({name!r}, [Declared("x", (1 << 20,), "F32")])
        out.write("x", np.ones(1 << 19, np.float32))
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        tmp_path,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="resource is Unix's")
def test_a_limit_on_the_size_of_files_is_one_line_and_no_file(tmp_path):
    done = run(
        """
        import resource
        from mxfp.files.header import FileError
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
        try:
            create_model("m.safetensors", [Declared("x", (1 << 20,), "F32")])
        except FileError as error:
            print(error)
        """,
        tmp_path,
    )
    assert done.stdout == "m.safetensors: cannot be written: File too large\n", done.stderr
    assert not list(tmp_path.iterdir())


# --- GGUF's keys


KEYS = {
    "general.architecture": "llama",
    "a.text": "Wörter",
    "a.small": 7,
    "a.negative": -7,
    "a.long": 2**40,
    "a.very.negative": -(2**40),
    "a.float": 0.5,
    "a.yes": True,
    "a.list": [1, 2, 3],
    "a.texts": ["x", "y"],
}


def test_metadata_of_gguf_come_back(tmp_path):
    write_model(tmp_path / "m.gguf", {"x": np.ones(3, np.float32)}, metadata=KEYS)
    fields = {k: f.contents() for k, f in gguf.GGUFReader(tmp_path / "m.gguf").fields.items()}
    assert {k: fields[k] for k in KEYS} == KEYS
    assert "general.file_type" not in fields


def test_a_file_of_blocks_says_so_to_llama_cpp(tmp_path):
    for fmt, kind in ((mxfp.MXFP4, "MOSTLY_MXFP4_MOE"), (mxfp.NVFP4, "MOSTLY_NVFP4")):
        write_model(tmp_path / "m.gguf", {"x": random_blocks(fmt, (2, 64), 0)}, overwrite=True)
        metadata = read_gguf_header(tmp_path / "m.gguf").metadata
        assert metadata["general.file_type"] == gguf.LlamaFileType[kind]
        assert metadata["general.quantization_version"] == gguf.GGML_QUANT_VERSION


def test_keys_of_another_file_go_along_byte_for_byte(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "in.gguf", "llama")
    writer.add_uint8("a.u8", 3)
    writer.add_int16("a.i16", -3)
    writer.add_float64("a.f64", 0.1)
    writer.add_array("tokenizer.ggml.tokens", [f"token {n}" for n in range(3000)])
    writer.add_file_type(1)
    writer.add_custom_alignment(64)
    writer.add_tensor("x", np.ones(64, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    q = random_blocks(mxfp.MXFP4, (2, 32), 0)
    with open_model(tmp_path / "in.gguf") as model:
        write_model(tmp_path / "out.gguf", {"w": q}, keep=model.header, metadata={"a.new": "yes"})
    before, after = (gguf.GGUFReader(tmp_path / name).fields for name in ("in.gguf", "out.gguf"))
    own = {"GGUF.version", "GGUF.tensor_count", "GGUF.kv_count", "general.alignment", "general.file_type"}
    for key, field in before.items():
        if key not in own:
            assert after[key].types == field.types
            assert after[key].contents() == field.contents()
    assert "general.alignment" not in after
    assert after["general.file_type"].contents() == 38
    assert after["a.new"].contents() == "yes"
    with open_model(tmp_path / "out.gguf") as model:
        assert model.read("w") == q
    small(tmp_path / "m.safetensors")
    with open_model(tmp_path / "m.safetensors") as model, pytest.raises(LayoutError, match="GGUF"):
        create_model(tmp_path / "x.gguf", [], keep=model.header)
    with pytest.raises(LayoutError, match="not in onnx"):
        create_model(tmp_path / "x.onnx", [], keep=read_gguf_header(tmp_path / "in.gguf"))


def test_texts_of_safetensors_and_onnx_come_back(tmp_path):
    for ending in (".safetensors", ".onnx"):
        write_model(tmp_path / f"m{ending}", {"x": np.ones(2)}, metadata={"format": "pt", "a": "Ä"})
        with open_model(tmp_path / f"m{ending}") as model:
            assert {k: model.header.metadata[k] for k in ("format", "a")} == {"format": "pt", "a": "Ä"}
    with safe_open(tmp_path / "m.safetensors", "np") as theirs:
        assert theirs.metadata() == {"format": "pt", "a": "Ä"}


def test_wide_elements_are_aligned(tmp_path):
    arrays = {"odd": np.zeros(3, np.uint8), "wide": np.arange(3.0), "half": np.zeros(3, np.float16)}
    write_model(tmp_path / "m.safetensors", arrays)
    with open_model(tmp_path / "m.safetensors") as model:
        assert model.names == tuple(arrays)
        assert all(t.parts[0].offset % arrays[t.name].dtype.itemsize == 0 for t in model.tensors)
    assert load_file(tmp_path / "m.safetensors")["wide"].tolist() == [0, 1, 2]


# --- files that change while they are open


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_that_shrinks_while_it_is_open_is_an_error_and_not_the_end(tmp_path, ending):
    path = tmp_path / f"m{ending}"
    write_model(path, {"a": np.zeros(8192, np.float32), "b": np.arange(8192, dtype=np.float32)})
    with open_model(path) as model:
        model.read("a")
        os.truncate(path, path.stat().st_size - 16384)
        with pytest.raises(FileError, match="became shorter while it was read"):
            model.read("b")
        assert not model.read("a").any()
        os.truncate(path, 8)
        with pytest.raises(FileError, match="became shorter while it was read"):
            model.read("a")


def test_a_file_that_is_replaced_stays_the_one_that_was_opened(tmp_path):
    path = tmp_path / "m.safetensors"
    write_model(path, {"a": np.zeros(3, np.float32)})
    with open_model(path) as model:
        model.read("a")
        write_model(path, {"a": np.ones(3, np.float32)}, overwrite=True)
        assert model.read("a").tolist() == [0, 0, 0]


def test_a_file_that_is_another_before_it_is_read_is_an_error(tmp_path):
    path = tmp_path / "m.safetensors"
    write_model(path, {"a": np.zeros(3, np.float32)})
    with open_model(path) as model:
        path.write_bytes(path.read_bytes() + b"more")
        with pytest.raises(FileError, match="is another file than when it was opened"):
            model.read("a")


# --- hostile files


def problem(path):
    """Read all of a file: None, or its FileError, which must be a line that one can read."""
    try:
        with open_model(path) as model:
            for name in model.names:
                model.values(name)
    except FileError as error:
        line = str(error)
    else:
        return None
    assert "\n" not in line
    assert len(line) < 700
    return line


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_cut_off_anywhere_is_one_line(tmp_path, ending):
    path = tmp_path / f"m{ending}"
    small(path)
    raw = path.read_bytes()
    for length in range(0, len(raw), 7):
        path.write_bytes(raw[:length])
        if problem(path) is None:
            # What can be missing is the padding behind the last tensor of GGUF.
            assert ending == ".gguf", length
            assert length >= len(raw) - 32


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("m.onnx", b""),
        ("m.onnx", b"\x08\x0a"),
        ("m.onnx", b"\xff" * 40),
        ("m.onnx", b"GGUF" + bytes(20)),
        ("m.onnx", b"\x3a\x7f"),
        ("m.onnx", b"\x3a" + b"\xff" * 9 + b"\x7f"),
        ("m.npz", b""),
        ("m.npz", b"PK\x03\x04" + bytes(100)),
        ("m.npy", b"\x93NUMPY"),
        ("m.npy", b"\x93NUMPY\x09\x00" + bytes(100)),
        ("m.npy", b"\x93NUMPY\x01\x00\x10\x00{'descr': [((" + bytes(100)),
    ],
)
def test_what_is_no_such_file_is_one_line(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileError) as error:
        open_model(tmp_path / name)
    one_line(error)
    assert str(tmp_path) in str(error.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path):
    for name in ("m.gguf", "m.safetensors", "m.onnx", "m.npz", "m.npy", "m.bin", ""):
        with pytest.raises(FileError) as error:
            open_model(tmp_path / "none" / name)
        one_line(error)


def initializer(name="a", dims=(3,), kind=TensorProto.FLOAT, **fields):
    return TensorProto(name=name, dims=dims, data_type=kind, **fields)


def external(**entries):
    tensor = initializer(data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ([initializer(raw_data=b"1234")], r"has 4 bytes; shape \(3,\) of F32 takes 12"),
        ([initializer(float_data=[1, 2])], "does not fit its shape"),
        ([initializer()], "does not fit its shape"),
        ([initializer(dims=(-3,), raw_data=b"")], r"has shape \(-3,\)"),
        ([initializer(dims=(2**40, 2**40), raw_data=b"")], "has shape"),
        ([initializer(kind=999, raw_data=b"")], "type 999, which onnx does not know"),
        (
            [initializer(raw_data=bytes(12)), initializer(raw_data=bytes(12))],
            "two initializers are called 'a'",
        ),
        ([external(location="../secret")], "expected a file in the same folder"),
        ([external(location="/etc/passwd")], "expected a file in the same folder"),
        ([external()], "expected a file in the same folder"),
        ([external(location="none")], "has data in 'none': No such file"),
        ([external(location="m.onnx", offset="x")], "expected numbers"),
        ([external(location="m.onnx", offset="-5")], "which no file has"),
        ([external(location="m.onnx", offset=str(2**62))], "cut off"),
        ([external(location="m.onnx", length="5")], "has 5 bytes; shape"),
    ],
)
def test_initializers_that_are_wrong_are_one_line(tmp_path, tensors, message):
    model = helper.make_model(helper.make_graph([], "g", [], [], tensors))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(FileError, match=message) as error:
        open_model(tmp_path / "m.onnx")
    one_line(error)


def test_texts_of_onnx_are_named_and_not_read(tmp_path):
    text = TensorProto(name="t", data_type=TensorProto.STRING, dims=[1], string_data=[b"x"])
    model = helper.make_model(helper.make_graph([], "g", [], [], [text]))
    onnx.save(model, tmp_path / "m.onnx")
    with open_model(tmp_path / "m.onnx") as found:
        assert found.info("t").type == "STRING"
        with pytest.raises(FileError, match="'t' is STRING"):
            found.read("t")
        with pytest.raises(FileError, match="cannot be decoded"):
            found.values("t")


def fuzz_seed(folder, ending, layout):
    path = folder / f"seed{ending}"
    if ending == ".npz":
        np.savez_compressed(
            path, w_blocks=np.zeros((2, 2, 16), np.uint8), w_scales=np.zeros((2, 2), np.uint8), x=np.ones(3)
        )
    else:
        fmt = mxfp.NVFP4 if layout in {"modelopt", "compressed-tensors"} else mxfp.MXFP4
        q = random_blocks(fmt, (2, 64), 0)
        q = mxfp.BlockArray(q.codes, q.scales, fmt, -1, 2.0 if fmt.tensor_scale else 1.0)
        write_model(path, {"w": q, "x": np.ones(3, np.float32)}, layout=layout)
    return path.read_bytes()


def mutated(raw, rng):
    """A few bytes changed, or a run cut out, doubled, or put elsewhere; mostly near the front."""
    data = bytearray(raw)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(0, len(data)) * rng.random() ** 2)
        how, some = rng.integers(0, 6), int(rng.integers(1, 9))
        if how == 0:
            data[at] = int(rng.integers(0, 256))
        elif how == 1:
            data[at] ^= 1 << int(rng.integers(0, 8))
        elif how == 2:
            del data[at : at + some]
        elif how == 3:
            data[at:at] = data[at : at + some]
        elif how == 4:
            data[at : at + some] = bytes([rng.choice([0, 255, 127, 48, 57])] * some)
        else:
            del data[at + 1 :]
        if not data:
            return b""
    return bytes(data)


FUZZED = [
    (".safetensors", "gpt-oss"),
    (".safetensors", "modelopt"),
    (".safetensors", "compressed-tensors"),
    (".safetensors", "mxfp"),
    (".gguf", "gguf"),
    (".onnx", "onnx"),
    (".npz", "npz"),
]


@pytest.mark.parametrize(("ending", "layout"), FUZZED)
@pytest.mark.filterwarnings("ignore")  # of the zip library, about names
def test_mutated_files_are_read_or_are_one_line(tmp_path, ending, layout):
    rng = np.random.default_rng(17)
    seed, path = fuzz_seed(tmp_path, ending, layout), tmp_path / f"m{ending}"
    refused = 0
    for _ in range(size(1500, 300)):
        path.write_bytes(mutated(seed, rng))
        refused += problem(path) is not None
    assert refused > 200


# --- big files


@pytest.mark.slow
def test_tensors_beyond_four_gigabytes_are_read(tmp_path):
    """Sparse files: the last tensor lies beyond 4 GiB, and a row of the first one beyond 2."""
    big, last = 5 << 30, random_blocks(mxfp.MXFP4, (2, 64), 0)
    entries = {
        "big": {"dtype": "U8", "shape": [5 << 10, 1 << 20], "data_offsets": [0, big]},
        "w_blocks": {"dtype": "U8", "shape": [2, 2, 16], "data_offsets": [big, big + 64]},
        "w_scales": {"dtype": "U8", "shape": [2, 2], "data_offsets": [big + 64, big + 68]},
    }
    text = json.dumps(entries).encode()
    with (tmp_path / "m.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        start = file.tell()
        file.seek(start + (3 << 30))
        file.write(b"\x2a")
        file.seek(start + big)
        file.write(mxfp.pack(last.codes, mxfp.E2M1).tobytes() + last.scales.tobytes())
    with open_model(tmp_path / "m.safetensors") as model:
        assert model.read("w") == last
        row = model.rows("big", 3 << 10, (3 << 10) + 1)
        assert (row[0, 0], row.sum()) == (0x2A, 0x2A)


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".safetensors", ".gguf"])
def test_files_beyond_four_gigabytes_are_written(tmp_path, ending, monkeypatch):
    """Zeros are stepped over and not written, so that the file is sparse; all else is as ever."""
    monkeypatch.setattr(whole.Whole, "reserve", lambda self, size: self.file.truncate(size))
    put = ModelWriter._put
    monkeypatch.setattr(
        ModelWriter,
        "_put",
        lambda self, name, at, view: put(self, name, at, view) if any(view[:64]) else None,
    )
    q = random_blocks(mxfp.MXFP4, (2, 64), 0)
    tensors = [Declared("big", (1 << 16, 1 << 14), "F32"), declared("w", q)]
    with create_model(tmp_path / f"m{ending}", tensors) as out:
        for _ in range(1 << 8):
            out.write("big", np.zeros((1 << 8, 1 << 14), np.float32))
        out.write("w", q)
    assert (tmp_path / f"m{ending}").stat().st_size > 4 << 30
    with open_model(tmp_path / f"m{ending}") as model:
        assert model.read("w") == q
        assert not model.rows("big", 65_000, 65_001).any()
    if ending == ".gguf":
        found = gguf.GGUFReader(tmp_path / "m.gguf").tensors[1]
        np.testing.assert_array_equal(gguf.quants.dequantize(found.data, found.tensor_type), model_values(q))


def model_values(q):
    values = mxfp.dequantize(q)
    values[q.codes == 8] = 0
    return values


# --- other packages' arrays


@pytest.mark.parametrize("fmt", BLOCK_FORMATS.values(), ids=str)
def test_arrays_of_ml_dtypes_are_views_and_come_back(fmt):
    q = random_blocks(fmt, (3, 5, 64), 0, specials=True, nan_share=0.1)
    elements, scales = to_ml_dtypes(q)
    assert np.shares_memory(elements, q.codes)
    assert np.shares_memory(scales, q.scales)
    assert not elements.flags.writeable
    assert from_arrays(elements, scales, tensor_scale=q.tensor_scale) == q
    if fmt.element.name != "INT8":
        values = elements.astype(np.float32)
        expected = fmt.element.values[q.codes].astype(np.float32)
        np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(scales.astype(np.float64), fmt.scale.values[q.scales])


def test_memory_that_nobody_can_write_to_is_not_copied():
    q = mxfp.quantize(np.arange(64.0), engine="reference")
    found = from_arrays(*to_ml_dtypes(q))
    assert np.shares_memory(found.codes, q.codes)
    assert np.shares_memory(found.scales, q.scales)


def test_memory_that_somebody_can_write_to_is_copied():
    q = random_blocks(mxfp.MXFP4, (2, 32), 0)
    codes, scales = q.codes.copy(), q.scales.copy()
    found = from_arrays(codes.view(ml_dtypes.float4_e2m1fn), scales.view(ml_dtypes.float8_e8m0fnu))
    codes[:] = 0
    assert found == q


def test_bytes_need_a_format_and_may_be_packed():
    q = random_blocks(mxfp.MXFP4, (2, 64), 0)
    assert from_arrays(q.codes, q.scales, mxfp.MXFP4) == q
    assert from_arrays(mxfp.pack(q.codes, mxfp.E2M1), q.scales, mxfp.MXFP4, packed=True) == q
    with pytest.raises(TypeError, match="elements of uint8 and scales of uint8 are no format"):
        from_arrays(q.codes, q.scales)
    with pytest.raises(TypeError, match="elements are of dtype float32"):
        from_arrays(np.zeros(32, np.float32), q.scales, mxfp.MXFP4)
    with pytest.raises(TypeError, match="scales of MXFP4 are float8_e8m0fnu or uint8, got float8_e4m3fn"):
        from_arrays(q.codes, q.scales.view(ml_dtypes.float8_e4m3fn), mxfp.MXFP4)
    with pytest.raises(ValueError, match="along the last axis, not along 0"):
        from_arrays(q.codes, q.scales, mxfp.MXFP4, axis=0, packed=True)
    with pytest.raises(ValueError, match="no dtypes for"):
        to_ml_dtypes(random_blocks(mxfp.BlockFormat("X", mxfp.E2M1, mxfp.E8M0, 8, ("floor",)), (2, 8), 0))


class WithDLPack:
    """Anybody's array, as DLPack has it."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class WithInterface:
    """Anybody's array, as numpy's interface has it."""

    def __init__(self, array):
        self.__array_interface__ = array.__array_interface__
        self.kept = array


@pytest.mark.parametrize("wrapped", [WithDLPack, WithInterface])
def test_arrays_of_others_are_taken(wrapped):
    q = random_blocks(mxfp.MXFP4, (2, 64), 0)
    codes, scales = q.codes.copy(), q.scales.copy()
    found = from_arrays(wrapped(codes), wrapped(scales), mxfp.MXFP4)
    codes[:] = 0
    assert found == q


class FakeTensor:
    """What is used of torch's tensors, by numpy: torch itself is no dependency."""

    def __init__(self, array, dtype):
        self.array, self.dtype = array, dtype

    def detach(self):
        return self

    cpu = detach

    @property
    def shape(self):
        return self.array.shape

    def view(self, dtype):
        return FakeTensor(self.array, dtype)

    def __dlpack__(self, **options):
        assert self.dtype == "torch.uint8"  # torch exports no other of these
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.fixture
def fake_torch(monkeypatch):
    names = ("uint8", "int8", "float4_e2m1fn_x2", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")
    fake = types.SimpleNamespace(
        from_dlpack=lambda array: FakeTensor(np.from_dlpack(array), "torch.uint8"),
        __version__="0",
        **{name: f"torch.{name}" for name in names},
    )
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


@pytest.mark.parametrize("fmt", [f for f in BLOCK_FORMATS.values() if f.element.bits != 6], ids=str)
def test_tensors_of_torch_have_its_dtypes_and_come_back(fmt, fake_torch):
    q = random_blocks(fmt, (3, 64), 0, specials=True, nan_share=0.1)
    elements, scales = to_torch(q)
    assert scales.dtype == ("torch.float8_e4m3fn" if fmt.tensor_scale else "torch.float8_e8m0fnu")
    assert elements.shape == ((3, 32) if fmt.element.bits == 4 else (3, 64))
    assert not np.shares_memory(scales.array, q.scales)
    assert not np.shares_memory(elements.array, q.codes)
    assert from_arrays(elements, scales, tensor_scale=q.tensor_scale) == q
    elements, scales = to_torch(q, copy=False)
    assert np.shares_memory(scales.array, q.scales)
    assert np.shares_memory(elements.array, q.codes) == (fmt.element.bits == 8)


def test_what_torch_has_no_dtype_for_is_refused(fake_torch):
    with pytest.raises(ValueError, match="torch has no dtype for MXFP6_E2M3"):
        to_torch(random_blocks(mxfp.MXFP6_E2M3, (2, 32), 0))
    with pytest.raises(ValueError, match="do not fill theirs"):
        to_torch(random_blocks(mxfp.MXFP4, (2, 33), 0))
    del fake_torch.float4_e2m1fn_x2
    with pytest.raises(ValueError, match="this torch, 0, has no dtype float4_e2m1fn_x2"):
        to_torch(random_blocks(mxfp.MXFP4, (2, 32), 0))


# --- types


def test_types_have_names_both_ways():
    for name, dtype in NUMPY.items():
        assert type_of(dtype) == name
        assert is_array(name)
    with pytest.raises(LayoutError, match="no type of tensors for <U3"):
        type_of("U3")


def test_extras_that_are_missing_are_named(tmp_path, monkeypatch):
    small(tmp_path / "m.onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"pip install 'mxfp-emulator\[files\]'"):
        open_model(tmp_path / "m.onnx")


def test_every_layout_is_in_the_page_of_the_documentation():
    page = (Path(__file__).parents[1] / "docs" / "files.md").read_text(encoding="utf-8")
    for name in LAYOUTS:
        assert f"`{name}`" in page
        assert layout_named(name).container in page


def test_a_tensor_of_nothing_is_one_tile_however_many_rows_it_claims():
    nothing = mxfp.files.Tensor("x", (2**62, 0), "F32", ())
    assert nothing.tile(1 << 22) == 2**62
