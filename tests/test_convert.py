# SPDX-License-Identifier: Apache-2.0
"""mxfp convert: no bit is lost between layouts; what cannot be held is refused before anything is written."""

import itertools
import json
import subprocess
import sys

import gguf
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import mxfp
from command_line import end_of, inside, one_line
from mutations import mutated
from mxfp.files import carrying, converting
from mxfp.files.converting import convert_model
from mxfp.files.header import FileError
from mxfp.files.layouts import LAYOUTS
from mxfp.files.layouts.tensor_scale import nearest_divisible
from mxfp.files.model import open_model
from mxfp.files.tensor import LayoutError
from mxfp.files.writing import write_model
from support import random_blocks, size

NAMES = list(LAYOUTS)


def path_for(folder, layout, name="model"):
    return folder / f"{name}.{LAYOUTS[layout].container}"


def converted(source, out, **options):
    with open_model(source) as model:
        return convert_model(model, out, **options)


def a_model(fmt=mxfp.MXFP4, *, seed=0, nan_share=0.1, scale=None):
    """BlockArrays of every code, both zeros and NaN scales among them, and arrays."""
    blocks = random_blocks(fmt, (3, 4, 128), seed, specials=True, nan_share=nan_share)
    if fmt.tensor_scale:
        shared = nearest_divisible(blocks.tensor_scale) if scale is None else scale
        blocks = mxfp.BlockArray(blocks.codes, blocks.scales, fmt, -1, shared)
    assert {0, 8} <= set(blocks.codes.ravel().tolist())
    assert nan_share == 0 or (blocks.scales == fmt.scale.nan_code).any()
    rng = np.random.default_rng(seed)
    return {
        "blk.0.ffn_up_exps.weight": blocks,
        "a.norm": np.frombuffer(rng.bytes(400), np.float32),
        "b.half": rng.standard_normal((5, 7)).astype(ml_dtypes.bfloat16),
        "c.count": np.arange(12, dtype=np.int32).reshape(3, 4),
        "d.empty": np.zeros((0, 4), np.float32),
    }


def same_model(path, expected):
    with open_model(path) as model:
        assert set(model.names) == set(expected)
        for name, array in expected.items():
            found = model.read(name)
            if isinstance(array, mxfp.BlockArray):
                assert found == array, name
                assert found.block_axis == array.block_axis
            else:
                assert (found.dtype, found.shape) == (array.dtype, array.shape), name
                assert found.tobytes() == array.tobytes(), name


# --- no bit is lost


PAIRS = [
    pytest.param(fmt, a, b, id=f"{fmt}: {a} to {b}")
    for fmt in (mxfp.MXFP4, mxfp.NVFP4, mxfp.MXFP8_E4M3, mxfp.MXFP8_E5M2)
    for a, b in itertools.product([name for name in NAMES if fmt in LAYOUTS[name].formats()], repeat=2)
]


@pytest.mark.parametrize(("fmt", "first", "second"), PAIRS)
def test_codes_scales_and_arrays_come_back_from_any_layout_to_any_other(
    fmt, first, second, tmp_path, monkeypatch
):
    monkeypatch.setattr(carrying, "TILE", 300)
    model = a_model(fmt)
    a, b, back = (path_for(tmp_path, name, str(n)) for n, name in enumerate((first, second, first)))
    write_model(a, model, layout=first, nan_scales="keep")
    done = converted(a, b, layout=second)
    assert done.checked
    assert done.nan_blocks == {
        "blk.0.ffn_up_exps.weight": (model["blk.0.ffn_up_exps.weight"].scales == fmt.scale.nan_code).sum()
    }
    same_model(b, model)
    converted(b, back, layout=first)
    same_model(back, model)
    assert back.read_bytes() == a.read_bytes()


def test_gpt_oss_bytes_become_the_blocks_that_ggml_has(tmp_path):
    rng = np.random.default_rng(1)
    blocks = rng.integers(0, 256, (2, 3, 4, 16), np.uint8)
    scales = rng.integers(0, 256, (2, 3, 4), np.uint8)
    scales[0, 0, 0] = 255
    save_file({"x_blocks": blocks, "x_scales": scales}, tmp_path / "in.safetensors")
    converted(tmp_path / "in.safetensors", tmp_path / "out.gguf")
    (tensor,) = gguf.GGUFReader(tmp_path / "out.gguf").tensors
    assert (tensor.name, tensor.tensor_type) == ("x", gguf.GGMLQuantizationType.MXFP4)
    assert tuple(tensor.shape) == (128, 3, 2)
    raw = np.asarray(tensor.data).reshape(2, 3, 4, 17)
    assert np.array_equal(raw[..., 0], scales)
    codes = np.stack([blocks & 15, blocks >> 4], -1).reshape(2, 3, 4, 32)
    assert np.array_equal(raw[..., 1:] & 15, codes[..., :16])
    assert np.array_equal(raw[..., 1:] >> 4, codes[..., 16:])
    converted(tmp_path / "out.gguf", tmp_path / "back.safetensors", layout="gpt-oss")
    found = load_file(tmp_path / "back.safetensors")
    assert np.array_equal(found["x_blocks"], blocks)
    assert np.array_equal(found["x_scales"], scales)


def test_any_axis_and_partial_blocks_go_to_onnx_and_back(tmp_path, monkeypatch):
    monkeypatch.setattr(carrying, "TILE", 1)
    model = {
        "a": random_blocks(mxfp.MXFP4, (70, 6), 2, axis=0),
        "b": random_blocks(mxfp.NVFP4, (4, 33, 8), 3, axis=1),
        "c": random_blocks(mxfp.MXFP8_E5M2, (5, 40), 4),
        "d": random_blocks(mxfp.MXFP4, (5, 33), 5),  # two rows are whole bytes in ONNX, one is in the other
    }
    write_model(tmp_path / "in.safetensors", model)
    converted(tmp_path / "in.safetensors", tmp_path / "mid.onnx")
    converted(tmp_path / "mid.onnx", tmp_path / "out.safetensors")
    same_model(tmp_path / "out.safetensors", model)


def test_the_keys_of_gguf_go_along_to_gguf_and_are_said_to_be_left_elsewhere(tmp_path):
    write_model(
        tmp_path / "in.gguf", a_model(nan_share=0), metadata={"general.architecture": "llama", "n": 5}
    )
    done = converted(tmp_path / "in.gguf", tmp_path / "out.gguf")
    assert done.carried.note == ""
    before, after = (gguf.GGUFReader(tmp_path / name).fields for name in ("in.gguf", "out.gguf"))
    assert {k: v.contents() for k, v in after.items()} == {k: v.contents() for k, v in before.items()}
    assert after["n"].contents() == 5
    shown = inside("convert", tmp_path / "in.gguf", tmp_path / "out.safetensors").output
    assert "keys of GGUF metadata are not carried over to safetensors" in shown
    assert "5 tensors, 1 of them in blocks, in the layout mxfp; read again, all bits equal" in shown


def test_nan_scales_are_counted_and_said_to_be_numbers_to_others(tmp_path):
    model = a_model()
    write_model(tmp_path / "in.safetensors", model)
    count = int((model["blk.0.ffn_up_exps.weight"].scales == 255).sum())
    shown = inside("convert", tmp_path / "in.safetensors", tmp_path / "out.gguf").output
    note = f"blk.0.ffn_up_exps.weight has {count} NaN scales, which readers of this layout take for numbers"
    assert note in shown
    found = json.loads(inside("convert", tmp_path / "in.safetensors", tmp_path / "o.onnx", "--json").stdout)
    assert found["nan_scales"] == {"blk.0.ffn_up_exps.weight": count}
    assert (found["checked"], found["layout"], found["tensors"]) == (True, "onnx", 5)


def test_shards_become_one_file(tmp_path):
    parts = [a_model(seed=n) for n in (1, 2)]
    for n, part in enumerate(parts):
        renamed = {f"{n}.{name}": array for name, array in part.items()}
        write_model(tmp_path / f"{n}.safetensors", renamed, layout="gpt-oss", nan_scales="keep")
    weight_map = {}
    for n in (0, 1):
        weight_map |= dict.fromkeys(load_file(tmp_path / f"{n}.safetensors"), f"{n}.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    converted(tmp_path, tmp_path / "out.gguf")
    same_model(
        tmp_path / "out.gguf", {f"{n}.{name}": array for n in (0, 1) for name, array in parts[n].items()}
    )


# --- what cannot be held


def refused(model, out, tmp_path, **options):
    """What is said of a model that another layout cannot hold; nothing is written."""
    write_model(tmp_path / "in.safetensors", model)
    before = set(tmp_path.iterdir())
    with pytest.raises(LayoutError) as found:
        converted(tmp_path / "in.safetensors", tmp_path / out, **options)
    assert set(tmp_path.iterdir()) == before
    return str(found.value)


def test_formats_axes_and_shapes_that_a_layout_cannot_hold_are_refused_by_name(tmp_path):
    fine = {"fine": random_blocks(mxfp.MXFP4, (2, 64), 1)}
    wrong = [
        (random_blocks(mxfp.MXFP6_E2M3, (2, 64), 1), "bad: GGUF holds MXFP4 and NVFP4, not MXFP6_E2M3"),
        (random_blocks(mxfp.MXFP4, (64, 2), 1, axis=0), "bad: the layout 'gguf' has blocks along the last"),
        (random_blocks(mxfp.MXFP4, (2, 40), 1), "bad: the layout 'gguf' holds whole blocks: 40 elements"),
        (random_blocks(mxfp.NVFP4, (2, 80), 1), "bad: the layout 'gguf' holds whole blocks: 80 elements"),
        (np.zeros(3, np.bool_), "bad: GGUF has no type BOOL"),
        (np.zeros((1, 1, 1, 1, 1), np.float32), "bad: shape (1, 1, 1, 1, 1) has more than the 4 axes"),
    ]
    for array, line in wrong:
        assert line in refused({**fine, "bad": array}, "out.gguf", tmp_path)
        (tmp_path / "in.safetensors").unlink()


def test_tensor_scales_that_no_reciprocal_gives_are_refused_before_anything_is_written(tmp_path):
    bad = np.float32(1.5)
    while nearest_divisible(float(bad)) == float(bad):
        bad = np.nextafter(bad, np.float32(2))
    model = {**a_model(), "bad": a_model(mxfp.NVFP4, scale=float(bad))["blk.0.ffn_up_exps.weight"]}
    line = refused(model, "out.safetensors", tmp_path, layout="compressed-tensors")
    assert line.startswith("bad: the tensor scale")


def test_a_tensor_scale_for_each_expert_is_refused_where_there_is_room_for_one(tmp_path):
    arrays = {
        "x": np.zeros((2, 4, 32), np.uint8),
        "x_scale": np.full((2, 4, 4), 56, np.uint8).view(ml_dtypes.float8_e4m3fn),
        "x_scale_2": np.array([1.0, 2.0], np.float32),
    }
    save_file(arrays, tmp_path / "in.safetensors")
    with pytest.raises(LayoutError, match=r"x: has 2 tensor scales that differ"):
        converted(tmp_path / "in.safetensors", tmp_path / "out.gguf")
    assert not (tmp_path / "out.gguf").exists()
    save_file({**arrays, "x_scale_2": np.full(2, 2.0, np.float32)}, tmp_path / "in.safetensors")
    converted(tmp_path / "in.safetensors", tmp_path / "out.gguf")
    with open_model(tmp_path / "out.gguf") as model:
        assert model.read("x").tensor_scale == 2.0


def test_other_types_of_gguf_are_refused_by_name(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "in.gguf", "llama")
    kind = gguf.GGMLQuantizationType.Q4_0
    writer.add_tensor("a.weight", gguf.quants.quantize(np.zeros((2, 64), np.float32), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    line = one_line("convert", tmp_path / "in.gguf", tmp_path / "out.safetensors")
    assert "'a.weight' is Q4_0, and safetensors has no such type (in all 1 Q4_0); write .gguf" in line
    assert "ask for --dequantize-others float32, float16 or bfloat16" in line


def test_a_file_is_not_written_over_itself_nor_over_another_without_force(tmp_path):
    write_model(tmp_path / "in.safetensors", a_model())
    before = (tmp_path / "in.safetensors").read_bytes()
    line = one_line("convert", tmp_path / "in.safetensors", tmp_path / "in.safetensors", "--force")
    assert "is the file that is read" in line
    assert (tmp_path / "in.safetensors").read_bytes() == before
    (tmp_path / "out.gguf").write_bytes(b"precious")
    assert "exists; --force replaces it" in one_line(
        "convert", tmp_path / "in.safetensors", tmp_path / "out.gguf"
    )
    assert (tmp_path / "out.gguf").read_bytes() == b"precious"
    assert inside("convert", tmp_path / "in.safetensors", tmp_path / "out.gguf", "--force").exit_code == 0
    same_model(tmp_path / "out.gguf", a_model())


# --- the file is read again


@pytest.mark.parametrize(("which", "said"), [(0, "codes or scales"), (1, "rows from"), (None, "tensors")])
def test_a_file_that_is_not_what_was_written_gets_no_name_and_replaces_nothing(
    which, said, tmp_path, monkeypatch
):
    model = a_model(nan_share=0)
    write_model(tmp_path / "in.safetensors", model)
    real = converting.compare

    def after_a_fault(opened, path, tick):
        if which is None:
            write_model(path, {"a.norm": model["a.norm"]}, overwrite=True)
        else:
            with open_model(path) as written:
                place = written.tensors[which].parts[0].offset
            raw = bytearray(path.read_bytes())
            raw[place + 5] ^= 0x10
            path.write_bytes(raw)
        real(opened, path, tick)

    monkeypatch.setattr(converting, "compare", after_a_fault)
    expected = f"{tmp_path / 'out.gguf'}: not written: read again, it is not what was written: .*{said}"
    with pytest.raises(FileError, match=expected):
        converted(tmp_path / "in.safetensors", tmp_path / "out.gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["in.safetensors"]
    (tmp_path / "out.gguf").write_bytes(b"what was there before")
    with pytest.raises(FileError, match=expected):
        converted(tmp_path / "in.safetensors", tmp_path / "out.gguf", overwrite=True)
    assert (tmp_path / "out.gguf").read_bytes() == b"what was there before"
    assert {path.name for path in tmp_path.iterdir()} == {"in.safetensors", "out.gguf"}
    (tmp_path / "out.gguf").unlink()
    done = converted(tmp_path / "in.safetensors", tmp_path / "out.gguf", check=False)
    assert not done.checked
    assert (tmp_path / "out.gguf").exists()


def test_progress_counts_bytes_to_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(carrying, "TILE", 1)
    write_model(tmp_path / "in.safetensors", a_model())
    seen = []
    converted(tmp_path / "in.safetensors", tmp_path / "out.gguf", progress=lambda *one: seen.append(one))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert seen[-1][1] == seen[-1][2]


def test_a_full_disk_is_one_line_and_no_file(tmp_path):
    write_model(tmp_path / "in.safetensors", {"x": random_blocks(mxfp.MXFP4, (600, 128), 1)})
    script = (
        "import resource, signal, sys\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "sys.argv = ['mxfp', *sys.argv[1:]]\nimport mxfp.cli\nmxfp.cli.main()\n"
    )
    command = [sys.executable, "-c", script, "convert", tmp_path / "in.safetensors", tmp_path / "out.gguf"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert "out.gguf: cannot be written: File too large" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.safetensors"]


# --- files that are not what they should be


def start(kind):
    """A small model in each container, for mutations."""
    model = {"w": random_blocks(mxfp.MXFP4, (2, 64), 5), "n": np.ones(4, np.float32)}
    return model if kind != "modelopt" else {**model, "v": random_blocks(mxfp.NVFP4, (2, 64), 6)}


@pytest.mark.parametrize("shape", [[2**40, 0], [2**62, 0], [3, 2**60, 0]])
def test_rows_of_nothing_take_no_time_however_many_are_claimed(shape, tmp_path):
    entry = {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}
    head = json.dumps({"x": entry, "y": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
    (tmp_path / "in.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + b"y")
    code, error = end_of("convert", tmp_path / "in.safetensors", tmp_path / "out.onnx")
    assert len(error.splitlines()) == 1
    assert (tmp_path / "out.onnx").exists() == (code == 0)


@pytest.mark.parametrize("kind", ["gpt-oss", "modelopt", "mxfp", "gguf", "onnx", "npz"])
def test_mutated_files_end_in_one_line_and_no_file_or_are_converted_whole(kind, tmp_path):
    source = tmp_path / "in.npz" if kind == "npz" else path_for(tmp_path, kind, "in")
    if kind == "npz":
        np.savez(source, a=np.arange(8, dtype=np.float32), b=np.zeros((2, 3), np.int8))
    else:
        write_model(source, start(kind), layout=kind)
    raw, rng = source.read_bytes(), np.random.default_rng(NAMES.index(kind) if kind in NAMES else 9)
    out, layout = (
        (tmp_path / "out.safetensors", "mxfp") if kind == "gguf" else (tmp_path / "out.gguf", "gguf")
    )
    ends = {"written": 0, "refused": 0}
    for _ in range(size(600, 200)):
        source.write_bytes(mutated(raw, rng))
        code, error = end_of("convert", source, out, "--layout", layout)
        assert len(error.splitlines()) == 1, error
        assert "Traceback" not in error
        if code == 0:
            ends["written"] += 1
            out.unlink()
        else:
            assert code == 1
            ends["refused"] += 1
        assert [path.name for path in tmp_path.iterdir()] == [source.name], error
    assert ends["refused"] > ends["written"] / 9
    assert ends["written"]
