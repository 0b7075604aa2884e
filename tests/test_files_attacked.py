# SPDX-License-Identifier: Apache-2.0
"""What a stranger broke in the commands for model files, and must not break again."""

import errno
import json
import math
import os
import socket
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

import mxfp
from command_line import end_of, one_line
from mxfp.cli import cli
from mxfp.cli import inspect as inspecting
from mxfp.files import Declared, FileError, LayoutError, create_model, open_model, write_model
from mxfp.files.planning import plan_quantize
from mxfp.files.tensor import printable

EVIL = "\x1b[2J[/red]\n\u202e"
"""A name that clears a terminal, is wrong markup for rich, ends a line, and turns text round."""


def safetensors(path, tensors, metadata=None):
    """A safetensors file by hand: name -> (type, shape, bytes)."""
    header, data = {} if metadata is None else {"__metadata__": metadata}, b""
    for name, (kind, shape, raw) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def floats(*shape):
    return "F32", shape, np.ones(shape, np.float32).tobytes()


def bytes_of(*shape, value=0):
    return "U8", shape, bytes([value]) * math.prod(shape)


def process(*arguments, **environment):
    """The command line in a process of its own, in which the environment is another one."""
    return subprocess.run(
        [sys.executable, "-m", "mxfp", *map(str, arguments)],
        capture_output=True,
        env={**os.environ, **environment},
        check=False,
    )


# --- names


def test_names_that_are_commands_or_markup_are_shown_and_nothing_more(tmp_path):
    name = f"{EVIL}.weight"
    model = safetensors(tmp_path / "m.safetensors", {name: floats(4, 32), "b.weight": floats(4, 32)})
    other = safetensors(tmp_path / "n.safetensors", {name: floats(4, 33)})
    data = safetensors(tmp_path / "a.safetensors", {EVIL: floats(3, 32), "b": floats(3, 32)})
    for arguments in (
        ("inspect", model),
        ("quantize", model, tmp_path / "q.safetensors"),
        ("diff", model, other),
        ("evaluate", model, "--data", data),
    ):
        done = CliRunner().invoke(cli, [str(a) for a in arguments], catch_exceptions=False)
        assert done.exit_code == (arguments[0] == "diff"), done.output
        assert r"\x1b[2J[/red]\n\u202e" in "".join(done.output.split()), done.output
        assert all(c.isprintable() or c == "\n" for c in done.output)


def test_names_in_errors_are_one_line_that_ends(tmp_path):
    five = safetensors(tmp_path / "five.safetensors", {EVIL: floats(1, 1, 1, 1, 1), "w": floats(2, 32)})
    line = one_line("convert", five, tmp_path / "out.gguf")
    assert r"\x1b[2J[/red]\n\u202e: shape (1, 1, 1, 1, 1)" in line
    assert line.isprintable()
    assert printable("w.é中") == "w.é中"
    long = safetensors(tmp_path / "long.safetensors", {"n" * 50_000: floats(2, 32)})
    assert len(one_line("convert", long, tmp_path / "out.gguf")) < 3000


def test_a_table_in_markdown_keeps_its_columns_whatever_a_layer_is_called(tmp_path):
    model = safetensors(tmp_path / "m.safetensors", {"a|b.weight": floats(4, 32)})
    data = safetensors(tmp_path / "a.safetensors", {"a|b": floats(3, 32)})
    code, error = end_of("evaluate", model, "--data", data, "--out", tmp_path / "report")
    assert code == 0, error
    page = (tmp_path / "report" / "evaluate.md").read_text(encoding="utf-8")
    assert r"| a\|b | 3 x 32 x 4 |" in page
    assert error.count("\n") == 1, "standard error has nothing but what was written"


# --- what is no file


@pytest.mark.parametrize("ending", ["safetensors", "gguf", "onnx", "npz", "npy"])
def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path, monkeypatch, ending):
    monkeypatch.chdir(tmp_path)  # a socket's path has to be short
    os.mkfifo(f"pipe.{ending}")
    Path(f"zero.{ending}").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(f"socket.{ending}")
    for name in ("pipe", "zero", "socket"):
        line = one_line("inspect", f"{name}.{ending}")
        assert line == f"mxfp: {name}.{ending}: is no regular file; expected a model file"


def external(location, shape=(0, 32)):
    """An ONNX initializer in another file."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=shape)
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", location
    return tensor


def onnx_file(path, initializers, nodes=()):
    graph = helper.make_graph(list(nodes), "g", [], [], initializer=initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)]), path)
    return path


def test_external_data_of_an_onnx_model_are_a_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.bin")
    for location, reason in (("pipe.bin", "'pipe.bin', which is no regular file"), ("a\0b", "null byte")):
        path = onnx_file(tmp_path / "m.onnx", [external(location)])
        with pytest.raises(FileError, match=reason) as caught:
            open_model(path)
        assert str(caught.value).startswith(f"{path}: has data in ")


def test_a_cast_of_nothing_makes_no_blocks(tmp_path):
    codes = TensorProto(name="q", data_type=TensorProto.FLOAT4E2M1, dims=(2, 32), raw_data=bytes(32))
    cast = helper.make_node("Cast", [], ["s"], to=TensorProto.FLOAT)
    node = helper.make_node("DequantizeLinear", ["q", "s"], ["w"], block_size=32, axis=1)
    with open_model(onnx_file(tmp_path / "m.onnx", [codes], [cast, node])) as model:
        assert [(tensor.name, tensor.layout) for tensor in model.tensors] == [("q", "")]


# --- what is not there, or there twice


def test_data_that_are_missing_are_no_reason_to_ask_for_their_memory(tmp_path):
    text = json.dumps({"w": {"dtype": "U8", "shape": [2**60], "data_offsets": [0, 2**60]}}).encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(100))
    with open_model(path, complete=False) as model, pytest.raises(FileError, match="cut off: 'w' is read up"):
        model.read("w")


@pytest.mark.parametrize(
    ("tensors", "native"),
    [
        ({"w_blocks": (2, 1, 16), "w_scales": (2, 1), "w.blocks": (2, 1, 16), "w.scales": (2, 1)}, False),
        ({"w.weight": (2, 16), "w.weight_packed": (2, 16), "w.weight_scale": (2, 1)}, False),
        ({"w_blocks": (2, 1, 16), "w_scales": (2, 1), "w.codes": (2, 16), "w.scales": (2, 1)}, True),
    ],
    ids=["two spellings", "two layouts", "ours and another"],
)
def test_of_two_tensors_of_one_name_none_is_lost_without_a_word(tmp_path, tensors, native):
    entry = {"format": "MXFP4", "shape": [2, 32], "axis": -1, "scale_rule": None}
    told = {"mxfp": json.dumps({"schema": 1, "tensors": {"w": entry}})} if native else None
    made = {name: bytes_of(*shape) for name, shape in tensors.items()}
    path = safetensors(tmp_path / "m.safetensors", made, told)
    with pytest.raises(FileError, match=r"'w(\.weight)?' is there twice"):
        open_model(path)


def test_a_model_without_tensors_has_nothing_to_quantize(tmp_path):
    path = safetensors(tmp_path / "m.safetensors", {})
    with open_model(path) as model, pytest.raises(FileError, match=r"m\.safetensors: has no tensors$"):
        plan_quantize(model, tmp_path / "out.safetensors")


def test_a_compressed_array_is_decompressed_once_however_many_tiles_are_read(tmp_path, monkeypatch):
    x = np.arange(4000, dtype=np.float32).reshape(100, 40)
    np.savez_compressed(tmp_path / "m.npz", x=x, y=-x)
    begun = []
    whole = zipfile.ZipFile.open
    with open_model(tmp_path / "m.npz") as model:
        monkeypatch.setattr(zipfile.ZipFile, "open", lambda *a, **k: begun.append(a[1]) or whole(*a, **k))
        for name, expected in (("x", x), ("y", -x)):
            assert np.array_equal(np.concatenate(list(model.tiles(name, size=400))), expected)
        assert begun == ["x.npy", "y.npy"]
        assert np.array_equal(model.rows("x", 50, 60), x[50:60])
        assert np.array_equal(model.rows("x", 20, 30), x[20:30]), "back again"
    (tmp_path / "m.npz").unlink()


# --- what is written


@pytest.mark.parametrize(
    ("name", "wanted", "metadata", "reason"),
    [
        ("m.safetensors", Declared("a", (-1,), "F32"), {}, r"'a': shape \(-1,\) is none of"),
        ("m.safetensors", Declared("a", (2**63, 0), "F32"), {}, "is none of at most 64 axes"),
        ("m.safetensors", Declared("a", (1,) * 65, "F32"), {}, "is none of at most 64 axes"),
        ("m.safetensors", Declared("a", (1.0,), "F32"), {}, "whole numbers, got \\(1.0,\\) and -1"),
        ("m.safetensors", Declared("a", "ab", "F32"), {}, "whole numbers, got 'ab' and -1"),
        ("m.safetensors", Declared("a", (2, 32), mxfp.MXFP4, "0"), {}, "whole numbers"),
        ("m.safetensors", Declared(5, (1,), "F32"), {}, "the name of a tensor is a text, got 5"),
        ("m.safetensors", Declared("a", (2**62, 4), "F32"), {}, "73786976294838206\\d* bytes are more than"),
        ("m.gguf", Declared("a\0b", (1,), "F32"), {}, "a name with a zero byte"),
        ("m.safetensors", None, {"mxfp": "mine"}, "the metadata 'mxfp' are this package's own"),
        ("m.safetensors", None, {5: "a"}, "texts, got 'a' for 5"),
        ("m.safetensors", None, {"a": "\ud800"}, "half of a surrogate pair"),
        ("m.onnx", None, {"\ud800": "a"}, "half of a surrogate pair"),
        ("m.gguf", None, {"general.alignment": 64}, "general.alignment is the file's own to say"),
        ("m.gguf", None, {"split.count": 2}, "split.count is the file's own to say"),
    ],
)
def test_what_could_not_be_read_again_is_not_begun(tmp_path, name, wanted, metadata, reason):
    declared = [] if wanted is None else [wanted]
    with pytest.raises(LayoutError, match=reason):
        create_model(tmp_path / name, declared, metadata=metadata)
    assert not list(tmp_path.iterdir())


def test_a_name_that_another_layout_takes_for_a_part_is_not_begun(tmp_path):
    blocks = mxfp.quantize(np.ones((2, 32), np.float32))
    with pytest.raises(LayoutError, match="'w_blocks' has no 'w_scales' beside it; with such names it could"):
        write_model(tmp_path / "m.safetensors", {"w_blocks": blocks}, layout="modelopt")
    with pytest.raises(LayoutError, match=r"'x\.blocks' has .* could not be read again"):
        write_model(tmp_path / "m.safetensors", {"x": blocks, "x.blocks": np.ones(3, np.uint8)})
    assert not list(tmp_path.iterdir())


def test_metadata_with_our_own_words_are_texts_like_others(tmp_path):
    told = {"mxfp.order": "abc", "mxfp.nodes": "x"}
    path = safetensors(tmp_path / "m.safetensors", {"w": floats(2, 32)}, told)
    with open_model(path) as model:
        assert (model.names, dict(model.header.metadata)) == (("w",), told)


def test_shapes_may_be_of_numpys_integers(tmp_path):
    path = tmp_path / "m.safetensors"
    with create_model(path, [Declared("a", (np.int64(0), np.uint8(32)), "F32")]):
        pass
    with open_model(path) as model:
        assert model.info("a").shape == (0, 32)


# --- numbers


def test_a_scalar_goes_to_gguf_and_back(tmp_path):
    write_model(tmp_path / "m.safetensors", {"one": np.array(2.5, np.float32), "w": np.ones((2, 32), "f4")})
    for source, out in (("m.safetensors", "m.gguf"), ("m.gguf", "back.safetensors")):
        assert end_of("convert", tmp_path / source, tmp_path / out)[0] == 0
    assert (tmp_path / "back.safetensors").read_bytes() == (tmp_path / "m.safetensors").read_bytes()


def test_a_tensor_too_small_for_a_divisor_is_named(tmp_path):
    tiny = np.full((2, 32), 2.0**-140, np.float32)
    write_model(tmp_path / "m.safetensors", {"fine": np.ones((2, 32), np.float32), "tiny": tiny})
    out = tmp_path / "q.safetensors"
    line = one_line(
        *("quantize", tmp_path / "m.safetensors", out),
        *("--format", "nvfp4", "--layout", "compressed-tensors", "--include", "*"),
    )
    assert line.startswith("mxfp: 'tiny': the tensor scale ")
    assert not out.exists()


def test_a_signalling_nan_for_a_tensor_scale_is_one_error_and_no_warning(tmp_path):
    parts = {
        "w.weight": bytes_of(2, 16),
        "w.weight_scale": ("F8_E4M3", (2, 2), b"\x38" * 4),
        "w.weight_scale_2": ("F32", (), struct.pack("<I", 0x7F800001)),
    }
    path = safetensors(tmp_path / "m.safetensors", parts)
    with open_model(path) as model, pytest.raises(FileError, match="is nan, expected a positive finite"):
        model.read("w.weight")


@pytest.mark.parametrize(
    ("kind", "shape", "one", "other", "shown"),
    [
        ("F32", (1,), 0x7FC00001, 0xFFC00002, "nan (bits 7fc00001) in A, nan (bits ffc00002) in B"),
        ("BOOL", (4,), 0x00010100, 0x00020100, "1 (bits 01) in A, 1 (bits 02) in B"),
        ("F32", (1,), 0x80000000, 0x00000000, "-0.0 in A, 0.0 in B"),
    ],
)
def test_the_first_element_that_differs_is_shown_so_that_it_does(tmp_path, kind, shape, one, other, shown):
    files = [
        safetensors(tmp_path / f"{name}.safetensors", {"w": (kind, shape, struct.pack("<I", bits))})
        for name, bits in (("a", one), ("b", other))
    ]
    done = CliRunner().invoke(cli, ["diff", *map(str, files)], catch_exceptions=False)
    assert done.exit_code == 1
    assert shown in done.output


def test_a_weight_without_rows_is_no_layer(tmp_path):
    model = safetensors(tmp_path / "m.safetensors", {"w.weight": floats(0, 32)})
    data = safetensors(tmp_path / "a.safetensors", {"w": floats(3, 32)})
    assert "needs a weight (N, 32); w.weight is (0, 32)" in one_line("evaluate", model, "--data", data)


# --- config.json


def configured(folder, text):
    safetensors(folder / "m.safetensors", {"w.weight": floats(4, 32)})
    (folder / "config.json").write_text(text, encoding="utf-8")
    (folder / "out").mkdir()
    out = folder / "out" / "q.safetensors"
    return ("quantize", folder / "m.safetensors", out, "--layout", "gpt-oss", "--config", "--force"), out


def test_a_number_beyond_float64_does_not_become_infinity_in_a_config(tmp_path):
    call, out = configured(tmp_path, '{"a": 1e999}')
    assert "config.json: has a number that float64 does not hold" in one_line(*call)
    assert not list(out.parent.iterdir())


def test_a_folder_called_config_json_is_seen_before_the_work(tmp_path):
    call, out = configured(tmp_path, "{}")
    (out.parent / "config.json").mkdir()
    assert f"{out.parent / 'config.json'} exists" in one_line(*call)
    assert not out.exists()


# --- the machine around it


def test_too_little_memory_is_one_line(tmp_path, monkeypatch):
    def no_room(*arguments, **options):
        raise MemoryError("Unable to allocate 8. GiB")

    path = safetensors(tmp_path / "m.safetensors", {"w": floats(2, 32)})
    monkeypatch.setattr(inspecting, "open_model", no_room)
    assert one_line("inspect", path) == "mxfp: not enough memory: Unable to allocate 8. GiB"
    monkeypatch.setattr("mxfp.cli.diff.open_model", no_room)
    code, error = end_of("diff", path, path)
    assert (code, error.count("\n")) == (2, 1), "1 would say that the files differ"


def test_a_terminal_without_unicode_gets_names_escaped(tmp_path):
    path = safetensors(tmp_path / "m.safetensors", {"é中.weight": floats(4, 32)})
    out = tmp_path / "q.safetensors"
    done = process("quantize", path, out, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0, done.stderr
    assert rb"\xe9\u4e2d.weight" in done.stdout
    assert out.exists()


def test_an_answer_that_cannot_be_printed_is_no_difference(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = safetensors(tmp_path / "m.safetensors", {"w": floats(2, 32)})
    monkeypatch.setattr("mxfp.cli.diff._print", full)
    assert end_of("diff", path, path) == (2, f"mxfp: [Errno {errno.ENOSPC}] {os.strerror(errno.ENOSPC)}\n")
