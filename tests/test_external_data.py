# SPDX-License-Identifier: Apache-2.0
"""ONNX models whose data lie beside them: what onnx makes of both files, and there are both or neither."""

import errno
import json
import os
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import mxfp
from command_line import inside, one_line
from mxfp import whole
from mxfp.files import create_model, declared, onnx_frame, open_model, write_model
from mxfp.files.converting import convert_model
from mxfp.files.header import FileError
from mxfp.files.tensor import LayoutError
from support import random_blocks


def a_model(seed=0):
    """Blocks of two formats; arrays of every size around the limit; one without elements, and one scalar."""
    rng = np.random.default_rng(seed)
    return {
        "w": random_blocks(mxfp.MXFP4, (48, 96), seed),
        "v": random_blocks(mxfp.NVFP4, (32, 64), seed + 1),
        "norm": rng.standard_normal(384).astype(np.float32),
        "half": rng.standard_normal((33, 17)).astype(ml_dtypes.bfloat16),
        "below": np.arange(1023, dtype=np.uint8),
        "limit": np.arange(1024).astype(np.uint8),
        "empty": np.zeros((0, 4), np.float32),
        "one": np.array(3, np.int64),
    }


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def same_model(path, expected):
    with open_model(path) as model:
        assert set(model.names) == set(expected)
        for name, array in expected.items():
            found = model.read(name)
            if isinstance(array, mxfp.BlockArray):
                assert found == array
            else:
                assert (found.dtype, found.shape, found.tobytes()) == (
                    array.dtype,
                    array.shape,
                    array.tobytes(),
                )


def test_data_go_beside_the_file_on_request_and_come_back(tmp_path):
    write_model(tmp_path / "m.onnx", a_model(), external_data=True, metadata={"a": "b"})
    assert names(tmp_path) == ["m.onnx", "m.onnx.data"]
    same_model(tmp_path / "m.onnx", a_model())
    with open_model(tmp_path / "m.onnx") as model:
        assert model.header.metadata["a"] == "b"
        beside = {t.name for t in model.headers[1].tensors}
    assert beside == {"w_quantized", "v_quantized", "norm", "half", "limit"}


def test_onnx_loads_checks_and_evaluates_it(tmp_path):
    path, expected = tmp_path / "m.onnx", a_model()
    write_model(path, expected, external_data=True)
    onnx.checker.check_model(path, full_check=True)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    found = {tensor.name: tensor for tensor in model.graph.initializer}
    for name in ("norm", "half", "below", "limit", "empty", "one"):
        array = numpy_helper.to_array(found[name])
        assert (array.shape, array.tobytes()) == (expected[name].shape, expected[name].tobytes())
    codes = numpy_helper.to_array(found["w_quantized"])
    assert np.array_equal(codes.view(np.uint8) & 15, expected["w"].codes)
    assert np.array_equal(numpy_helper.to_array(found["w_scale"]).view(np.uint8), expected["w"].scales)
    with np.errstate(over="ignore"):
        (values,) = ReferenceEvaluator(model).run(["w"], {})
    assert np.array_equal(values, mxfp.dequantize(expected["w"]))


def test_inside_and_beside_are_the_same_to_onnx(tmp_path):
    write_model(tmp_path / "inside.onnx", a_model())
    write_model(tmp_path / "beside.onnx", a_model(), external_data=True)
    one, other = (onnx.load(tmp_path / name) for name in ("inside.onnx", "beside.onnx"))
    for tensor in other.graph.initializer:
        del tensor.external_data[:]
        tensor.ClearField("data_location")
    assert one == other


def test_data_begin_at_pages_as_their_entries_say(tmp_path):
    write_model(tmp_path / "m.onnx", a_model(), external_data=True)
    model, raw = (
        onnx.load(tmp_path / "m.onnx", load_external_data=False),
        (tmp_path / "m.onnx.data").read_bytes(),
    )
    end = 0
    for tensor in model.graph.initializer:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            assert len(tensor.raw_data) < 1024
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        offset, length = int(entries["offset"]), int(entries["length"])
        assert entries["location"] == "m.onnx.data"
        assert length >= 1024
        assert offset % 4096 == 0
        assert offset >= end
        end = offset + length
    assert end == len(raw)


@pytest.mark.parametrize("external_data", [False, True])
def test_more_than_one_file_holds_goes_beside_it_by_itself(external_data, tmp_path, monkeypatch):
    write_model(tmp_path / "small.onnx", a_model(), external_data=external_data)
    size = (tmp_path / "small.onnx").stat().st_size
    monkeypatch.setattr(onnx_frame, "MOST_FILE", size)
    write_model(tmp_path / "exact.onnx", a_model(), external_data=external_data)
    assert (tmp_path / "exact.onnx.data").exists() == external_data
    monkeypatch.setattr(onnx_frame, "MOST_FILE", size - 1)
    if external_data:
        with pytest.raises(LayoutError, match=f"an ONNX file of {size} bytes beside its data, and it holds"):
            write_model(tmp_path / "large.onnx", a_model())
        assert not list(tmp_path.glob("large*"))
    else:
        write_model(tmp_path / "large.onnx", a_model())
        same_model(tmp_path / "large.onnx", a_model())
        assert (tmp_path / "large.onnx.data").exists()


def test_without_large_tensors_there_is_no_second_file(tmp_path):
    write_model(tmp_path / "m.onnx", {"a": np.zeros(8, np.float32)}, external_data=True)
    assert names(tmp_path) == ["m.onnx"]


@pytest.mark.parametrize("ending", [".safetensors", ".gguf"])
def test_other_containers_have_no_external_data(ending, tmp_path):
    with pytest.raises(LayoutError, match="external data are ONNX's"):
        write_model(tmp_path / f"m{ending}", a_model(), external_data=True)
    assert not list(tmp_path.iterdir())


# --- both or neither


@pytest.fixture(params=["without a name", "hidden"])
def way(request, monkeypatch):
    """Files without names, and the way of systems that have none."""
    if request.param == "hidden":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    return request.param


@pytest.mark.usefixtures("way")
def test_rows_that_are_missing_leave_neither(tmp_path):
    model = a_model()
    out = create_model(tmp_path / "m.onnx", [declared(*one) for one in model.items()], external_data=True)
    for name in ("w", "v"):
        out.write(name, model[name])
    with pytest.raises(ValueError, match="norm has 384 rows, got 0; no file is left"):
        out.close()
    assert names(tmp_path) == []


@pytest.mark.parametrize("fails", [1, 2], ids=["the data", "the file"])
@pytest.mark.usefixtures("way")
def test_where_a_name_cannot_be_given_nothing_is_left_and_the_old_ones_stay(fails, tmp_path, monkeypatch):
    real, calls = whole.Whole.commit, []

    def commit(self):
        calls.append(self.path.name)
        if len(calls) == fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(self)

    wrong = ["m.onnx.data", "m.onnx"][fails - 1]
    line = f"{tmp_path / wrong}: cannot be written: Input/output error"
    monkeypatch.setattr(whole.Whole, "commit", commit)
    with pytest.raises(FileError) as error:
        write_model(tmp_path / "m.onnx", a_model(), external_data=True)
    assert str(error.value) == line
    assert names(tmp_path) == []
    calls.extend(["", ""])
    write_model(tmp_path / "m.onnx", a_model(), external_data=True)
    calls.clear()
    with pytest.raises(FileError) as error:
        write_model(tmp_path / "m.onnx", a_model(5), external_data=True, overwrite=True)
    assert str(error.value) == line
    assert names(tmp_path) == ["m.onnx", "m.onnx.data"]
    same_model(tmp_path / "m.onnx", a_model())


@pytest.mark.usefixtures("way")
def test_old_files_are_replaced_together_and_the_data_first(tmp_path, monkeypatch):
    write_model(tmp_path / "m.onnx", a_model(), external_data=True)
    real, seen = whole.Whole.commit, []

    def commit(self):
        seen.append([name for name in names(tmp_path) if not name.startswith(".")])
        real(self)

    monkeypatch.setattr(whole.Whole, "commit", commit)
    write_model(tmp_path / "m.onnx", a_model(5), external_data=True, overwrite=True)
    assert seen == [[], ["m.onnx.data"]]
    assert names(tmp_path) == ["m.onnx", "m.onnx.data"]
    same_model(tmp_path / "m.onnx", a_model(5))


def test_data_that_exist_are_not_replaced_unless_one_says_so(tmp_path):
    (tmp_path / "m.onnx.data").write_bytes(b"precious")
    with pytest.raises(FileError, match=r"m\.onnx\.data: exists; ask for overwrite=True"):
        write_model(tmp_path / "m.onnx", a_model(), external_data=True)
    assert names(tmp_path) == ["m.onnx.data"]
    write_model(tmp_path / "m.onnx", {"a": np.zeros(8, np.float32)})
    assert (tmp_path / "m.onnx.data").read_bytes() == b"precious"


def test_data_that_are_read_are_not_written_over(tmp_path):
    write_model(tmp_path / "in.onnx", a_model(), external_data=True)
    before = (tmp_path / "in.onnx.data").read_bytes()
    (tmp_path / "out.onnx.data").symlink_to("in.onnx.data")
    line = one_line("convert", tmp_path / "in.onnx", tmp_path / "out.onnx", "--external-data", "--force")
    assert "out.onnx.data is the file that is read" in line
    assert (tmp_path / "in.onnx.data").read_bytes() == before


# --- the commands


@pytest.mark.usefixtures("way")
def test_convert_writes_them_checks_them_and_says_so(tmp_path):
    write_model(tmp_path / "in.safetensors", a_model())
    found = inside("convert", tmp_path / "in.safetensors", tmp_path / "out.onnx", "--external-data", "--json")
    record = json.loads(found.stdout)
    assert record["external_data"] == str(tmp_path / "out.onnx.data")
    assert record["checked"]
    assert record["file_size"] == sum((tmp_path / n).stat().st_size for n in ("out.onnx", "out.onnx.data"))
    same_model(tmp_path / "out.onnx", a_model())
    shown = inside("convert", tmp_path / "out.onnx", tmp_path / "again.onnx", "--external-data")
    assert f"wrote {tmp_path / 'again.onnx'} and again.onnx.data: " in shown.output
    inside("convert", tmp_path / "again.onnx", tmp_path / "back.safetensors")
    assert (tmp_path / "back.safetensors").read_bytes() == converted_once(tmp_path).read_bytes()


def converted_once(folder):
    """The way through an ONNX file of one piece."""
    inside("convert", folder / "in.safetensors", folder / "one.onnx")
    inside("convert", folder / "one.onnx", folder / "one.safetensors")
    return folder / "one.safetensors"


@pytest.mark.usefixtures("way")
def test_a_fault_in_the_data_is_found_before_anything_is_replaced(tmp_path, monkeypatch):
    from mxfp.files import converting

    write_model(tmp_path / "in.safetensors", a_model(1))
    write_model(tmp_path / "out.onnx", a_model(), external_data=True)
    real = converting.compare

    def after_a_fault(opened, path, tick):
        data = Path(f"{path}.data")
        raw = bytearray(data.read_bytes())
        raw[5] ^= 0x10
        data.write_bytes(raw)
        real(opened, path, tick)

    monkeypatch.setattr(converting, "compare", after_a_fault)
    with open_model(tmp_path / "in.safetensors") as model, pytest.raises(FileError) as error:
        convert_model(model, tmp_path / "out.onnx", external_data=True, overwrite=True)
    assert "out.onnx: not written: read again, it is not what was written: w: codes or scales" in str(
        error.value
    )
    assert names(tmp_path) == ["in.safetensors", "out.onnx", "out.onnx.data"]
    same_model(tmp_path / "out.onnx", a_model())


def test_quantize_writes_them_too(tmp_path):
    x = np.random.default_rng(0).standard_normal((64, 96)).astype(np.float32)
    write_model(tmp_path / "in.safetensors", {"a.weight": x, "b.norm": x[0]})
    shown = inside("quantize", tmp_path / "in.safetensors", tmp_path / "out.onnx", "--external-data")
    assert f"wrote {tmp_path / 'out.onnx'} and out.onnx.data: " in shown.output
    same_model(tmp_path / "out.onnx", {"a.weight": mxfp.quantize(x), "b.norm": x[0]})
    line = one_line("quantize", tmp_path / "in.safetensors", tmp_path / "out.gguf", "--external-data")
    assert "external data are ONNX's; a gguf file has all of its own" in line
