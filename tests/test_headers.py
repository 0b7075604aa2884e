# SPDX-License-Identifier: Apache-2.0
"""Headers of model files: what gguf and safetensors read too, and one clear line for everything else."""

import json
import os
import struct
import sys
import tracemalloc

import gguf
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from mutations import mutated
from mxfp.files import FileError, LongArray, read_gguf_header, read_headers, read_safetensors_header
from mxfp.files.types import SAFETENSORS, block_size, gguf_sizes, gguf_types
from support import size

# --- files to read


def write_gguf(path, tensors=(), keys=(), endian=gguf.GGUFEndian.LITTLE, data=True):
    """A GGUF file of (name, shape outermost first, type) and (method, key, value), by gguf's writer."""
    writer = gguf.GGUFWriter(path, "llama", endianess=endian)
    for method, key, value in keys:
        getattr(writer, method)(key, value)
    for name, shape, kind in tensors:
        block, each = GGML_QUANT_SIZES[kind]
        packed = (*shape[:-1], shape[-1] // block * each) if shape else ()
        writer.add_tensor(name, np.zeros(packed, np.uint8), raw_shape=packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    if data:
        writer.write_tensors_to_file()
    else:
        writer.write_ti_data_to_file()
    writer.close()
    return path


TYPES = list(GGMLQuantizationType)
KEYS = [
    ("add_uint8", "a.u8", 200),
    ("add_int8", "a.i8", -7),
    ("add_uint16", "a.u16", 65_535),
    ("add_int16", "a.i16", -32_768),
    ("add_uint32", "a.u32", 2**32 - 1),
    ("add_int32", "a.i32", -(2**31)),
    ("add_uint64", "a.u64", 2**64 - 1),
    ("add_int64", "a.i64", -(2**63)),
    ("add_float32", "a.f32", 0.5),
    ("add_float64", "a.f64", 0.1),
    ("add_bool", "a.yes", True),
    ("add_string", "a.text", "Wörter, 言葉"),
    ("add_array", "a.numbers", [1, 2, 3]),
    ("add_array", "a.texts", ["one", "", "three"]),
    ("add_array", "a.truths", [True, False]),
]


@pytest.fixture
def whole(tmp_path):
    """A file with every type of tensor and of value."""
    tensors = [(f"t.{kind.name}", (3, 2, GGML_QUANT_SIZES[kind][0] * 2), kind) for kind in TYPES]
    return write_gguf(tmp_path / "whole.gguf", [*tensors, ("one", (5,), GGMLQuantizationType.F32)], KEYS)


def integer(n, wide=8):
    return n.to_bytes(wide, "little")


def text(t):
    raw = t.encode() if isinstance(t, str) else t
    return integer(len(raw)) + raw


def tensor_info(name="t", axes=(32,), kind=0, offset=0):
    return (
        text(name) + integer(len(axes), 4) + b"".join(map(integer, axes)) + integer(kind, 4) + integer(offset)
    )


def by_hand(keys=(), tensors=(), count=None, key_count=None, version=3, magic=b"GGUF", data=b""):
    """GGUF bytes written here; keys are (name, type, bytes)."""
    head = magic + integer(version, 4)
    head += integer(len(tensors) if count is None else count)
    head += integer(len(keys) if key_count is None else key_count)
    body = b"".join(text(name) + integer(kind, 4) + value for name, kind, value in keys)
    return head + body + b"".join(tensors) + data


# --- GGUF, against gguf


def test_a_gguf_header_is_what_gguf_reads(whole):
    header, reader = read_gguf_header(whole), gguf.GGUFReader(whole)
    assert header.format == "gguf"
    assert (header.version, header.alignment, header.big_endian) == (3, 32, False)
    assert header.complete
    assert header.data_start == reader.data_offset
    assert [(t.name, t.shape, t.type, t.nbytes, t.offset, t.elements) for t in header.tensors] == [
        (
            t.name,
            tuple(reversed(t.shape.tolist())),
            t.tensor_type.name,
            t.n_bytes,
            t.data_offset,
            t.n_elements,
        )
        for t in reader.tensors
    ]
    expected = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    found = {k: list(v) if isinstance(v, tuple) else v for k, v in header.metadata.items()}
    assert found == expected
    assert found["a.text"] == "Wörter, 言葉"


def test_block_sizes_are_those_of_gguf():
    assert {k: tuple(v) for k, v in gguf_sizes().items()} == {k.name: v for k, v in GGML_QUANT_SIZES.items()}
    assert block_size("mxfp4").bits == 4.25
    for name in gguf_sizes().keys() & SAFETENSORS.keys():
        assert gguf_sizes()[name] == SAFETENSORS[name]


def test_big_endian_files_are_read_and_say_so(tmp_path):
    keys = [("add_uint32", "a.n", 7), ("add_array", "a.list", [1, 2]), ("add_string", "a.text", "x")]
    tensors = [("t", (2, 64), GGMLQuantizationType.MXFP4)]
    path = write_gguf(tmp_path / "big.gguf", tensors, keys, gguf.GGUFEndian.BIG)
    header = read_gguf_header(path)
    assert header.big_endian
    assert header.metadata["a.n"] == 7
    assert header.metadata["a.list"] == (1, 2)
    assert [(t.name, t.shape, t.nbytes) for t in header.tensors] == [("t", (2, 64), 68)]


def test_a_header_without_its_data_is_read_and_says_so(tmp_path):
    tensors = [("big", (4096, 4096), GGMLQuantizationType.Q4_K), ("small", (32,), GGMLQuantizationType.F32)]
    whole = write_gguf(tmp_path / "whole.gguf", tensors)
    alone = write_gguf(tmp_path / "alone.gguf", tensors, data=False)
    full, empty = read_gguf_header(whole), read_gguf_header(alone)
    assert full.tensors == empty.tensors
    assert full.complete
    assert not empty.complete
    assert empty.file_size < 1000 < full.data_end == empty.data_end
    os.truncate(whole, full.data_end)
    assert read_gguf_header(whole).complete
    os.truncate(whole, full.data_end - 1)
    assert not read_gguf_header(whole).complete


def test_version_2_is_read_like_version_3(tmp_path):
    path = tmp_path / "two.gguf"
    path.write_bytes(by_hand([("k", 4, integer(9, 4))], [tensor_info(axes=(4, 3))], version=2))
    header = read_gguf_header(path)
    assert (header.version, header.metadata["k"]) == (2, 9)
    assert header.tensors[0].shape == (3, 4)


def test_alignment_moves_the_data(tmp_path):
    path = tmp_path / "aligned.gguf"
    keys = [("general.alignment", 4, integer(4096, 4))]
    path.write_bytes(by_hand(keys, [tensor_info("a"), tensor_info("b", offset=4096)]))
    header = read_gguf_header(path)
    assert [t.offset for t in header.tensors] == [4096, 8192]
    path.write_bytes(by_hand(keys, [tensor_info("a"), tensor_info("b", offset=128)]))
    with pytest.raises(FileError, match="multiple of 4096"):
        read_gguf_header(path)


def test_vocabularies_are_stepped_over_unless_asked_for(tmp_path):
    words = [f"word {n}" * (n % 5) for n in range(size(150_000, 5_000))]
    keys = [
        ("add_array", "tokenizer.tokens", words),
        ("add_array", "tokenizer.types", [1] * 2000),
        ("add_uint32", "after", 3),
    ]
    path = write_gguf(tmp_path / "vocabulary.gguf", keys=keys)
    tracemalloc.start()
    header = read_gguf_header(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    found = header.metadata["tokenizer.tokens"]
    assert isinstance(found, LongArray)
    assert (found.type, found.count) == ("string", len(words))
    assert path.read_bytes()[found.offset : found.offset + 8] == integer(len(words[0]))
    assert header.metadata["tokenizer.types"] == LongArray(
        "int32", 2000, header.metadata["tokenizer.types"].offset
    )
    assert header.metadata["after"] == 3
    assert peak < 4 << 20
    assert read_gguf_header(path, keep=["tokenizer.tokens"]).metadata["tokenizer.tokens"] == tuple(words)


def test_arrays_in_arrays_are_read_to_a_depth(tmp_path):
    def nested(depth):
        inner = integer(4, 4) + integer(1) + integer(7, 4)
        for _ in range(depth):
            inner = integer(9, 4) + integer(1) + inner
        return inner

    path = tmp_path / "nested.gguf"
    path.write_bytes(by_hand([("k", 9, nested(3))]))
    assert read_gguf_header(path).metadata["k"] == ((((7,),),),)
    path.write_bytes(by_hand([("k", 9, nested(4))]))
    with pytest.raises(FileError, match="deeper than 4"):
        read_gguf_header(path)


HUGE = 2**64 - 1
HOSTILE_GGUF = {
    "empty": (b"", "47 47 55 46"),
    "other magic": (by_hand(magic=b"GGML"), "begins with 47 47 4d 4c"),
    "three bytes": (b"GGU", "begins with 47 47 55"),
    "version 1": (by_hand(version=1), "version 1, expected 2 or 3"),
    "version 4": (by_hand(version=4), "version 4"),
    "cut in counts": (by_hand()[:20], "cut off: the number of keys at byte 16 takes 8 bytes"),
    "tensors beyond the file": (by_hand(count=HUGE), f"{HUGE} tensors"),
    "keys beyond the file": (by_hand(key_count=HUGE), f"{HUGE} keys"),
    "too many keys": (by_hand(key_count=70_000, data=bytes(1_000_000)), "at most 65536"),
    "too many tensors": (by_hand(count=300_000, data=bytes(8_000_000)), "at most 262144"),
    "long key": (by_hand([("k" * 70_000, 4, bytes(4))]), "text of 70000 bytes"),
    "key beyond the file": (by_hand(key_count=1, data=integer(HUGE) + bytes(20)), "cut off: key 1 of 1"),
    "key not UTF-8": (by_hand([(b"\xff\xfe", 4, bytes(4))]), "not UTF-8 (byte 0 of 2)"),
    "text not UTF-8": (by_hand([("k", 8, text(b"abc\xff"))]), "key 'k' is not UTF-8 (byte 3 of 4)"),
    "key twice": (by_hand([("k", 0, b"1"), ("k", 0, b"2")]), "key 'k' is there twice"),
    "unknown value": (by_hand([("k", 13, bytes(8))]), "value of type 13, expected 0 … 12"),
    "truth of 2": (by_hand([("k", 7, b"\2")]), "truth value of 2"),
    "array of nothing known": (by_hand([("k", 9, integer(99, 4) + integer(0))]), "array of type 99"),
    "array beyond the file": (by_hand([("k", 9, integer(10, 4) + integer(HUGE))]), "cut off: key 'k'"),
    "texts beyond the file": (by_hand([("k", 9, integer(8, 4) + integer(2**40))]), "cut off: key 'k'"),
    "a text beyond the file": (
        by_hand([("k", 9, integer(8, 4) + integer(2000) + integer(HUGE) + bytes(20_000))]),
        "cut off: key 'k'",
    ),
    "many arrays in an array": (
        by_hand([("k", 9, integer(9, 4) + integer(2000) + (bytes(4) + bytes(8)) * 2000)]),
        "2000 arrays in an array",
    ),
    "alignment 0": (by_hand([("general.alignment", 4, integer(0, 4))]), "power of two"),
    "alignment 48": (by_hand([("general.alignment", 4, integer(48, 4))]), "power of two"),
    "alignment of another type": (by_hand([("general.alignment", 10, integer(32))]), "uint32"),
    "alignment in words": (by_hand([("general.alignment", 8, text("32"))]), "general.alignment is '32'"),
    "five axes": (by_hand(tensors=[tensor_info(axes=(1,) * 5)]), "5 axes, expected at most 4"),
    "axes beyond the file": (
        by_hand(tensors=[text("t") + integer(2**32 - 1, 4) + bytes(24)]),
        f"{2**32 - 1} axes",
    ),
    "absurd axes": (by_hand(tensors=[tensor_info(axes=(2**62, 2**62))]), "more than a file holds"),
    "absurd place": (by_hand(tensors=[tensor_info(offset=2**64 - 32)]), "more than a file holds"),
    "absurd end": (by_hand(tensors=[tensor_info(axes=(2**61,), offset=2**62)]), "more than a file holds"),
    "unknown type": (
        by_hand(tensors=[tensor_info(kind=4)]),
        "type 4, expected one that gguf knows (0-3, 6-",
    ),
    "half a block": (by_hand(tensors=[tensor_info(axes=(48,), kind=39)]), "rows of 48 in MXFP4"),
    "misaligned": (by_hand(tensors=[tensor_info(offset=8)]), "multiple of 32"),
    "overlap": (by_hand(tensors=[tensor_info("a"), tensor_info("b", offset=64)]), "'a' and 'b' overlap"),
    "same name": (by_hand(tensors=[tensor_info(), tensor_info(offset=128)]), "2 tensors are called 't'"),
    "cut in a tensor": (by_hand(tensors=[tensor_info(), tensor_info()])[:-3], "cut off: the place of tensor"),
    "name not UTF-8": (by_hand(tensors=[tensor_info(name=b"\xc3\x28")]), "the name of tensor 1 of 1 is not"),
}


@pytest.mark.parametrize(("raw", "piece"), HOSTILE_GGUF.values(), ids=HOSTILE_GGUF)
def test_a_hostile_gguf_header_is_one_clear_error(tmp_path, raw, piece):
    path = tmp_path / "hostile.gguf"
    path.write_bytes(raw)
    with pytest.raises(FileError) as error:
        read_gguf_header(path)
    message = str(error.value)
    assert piece in message
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert len(message) < len(str(path)) + 300


def test_metadata_are_kept_up_to_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("mxfp.files.gguf_header.MOST_KEPT", 1000)
    path = tmp_path / "wordy.gguf"
    path.write_bytes(by_hand([(f"k{n}", 8, text("x" * 100)) for n in range(20)]))
    with pytest.raises(FileError, match="metadata of more than 1000 bytes"):
        read_gguf_header(path)


def test_texts_are_walked_up_to_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("mxfp.files.gguf_header.MOST_ENTRIES", 1000)
    path = tmp_path / "wordy.gguf"
    path.write_bytes(by_hand([("k", 9, integer(8, 4) + integer(1200) + bytes(8 * 1200))]))
    with pytest.raises(FileError, match="more than 1000 texts"):
        read_gguf_header(path)


def test_what_is_no_file_is_one_clear_error(tmp_path):
    os.mkfifo(tmp_path / "pipe.gguf")
    for name, piece in (("", "directory"), ("nowhere", "No such file"), ("pipe.gguf", "no regular file")):
        with pytest.raises(FileError, match=piece):
            read_gguf_header(tmp_path / name)
    with pytest.raises(FileError, match="null"):
        read_gguf_header(tmp_path / "a\0b")


# --- safetensors, against safetensors


def write_safetensors(path, header, data=b"", raw=None):
    raw = json.dumps(header).encode() if raw is None else raw
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + data)
    return path


def entry(dtype="F32", shape=(2, 3), begin=0, end=24):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def test_a_safetensors_header_is_what_safetensors_reads(tmp_path):
    arrays = {
        "a": np.ones((3, 5), np.float32),
        "b.weight": np.zeros((7,), np.uint8),
        "empty": np.zeros((0, 4), np.float16),
        "scalar": np.array(3.0),
        "flags": np.array([True, False]),
    }
    path = tmp_path / "model.safetensors"
    save_file(arrays, path, {"format": "np", "ü": "言葉"})
    header = read_safetensors_header(path)
    assert header.complete
    assert (header.format, header.nbytes) == ("safetensors", sum(a.nbytes for a in arrays.values()))
    raw = path.read_bytes()
    with safe_open(path, "numpy") as library:
        assert header.metadata == library.metadata()
        assert set(header.by_name) == set(library.keys())
        for name, info in header.by_name.items():
            part, array = library.get_slice(name), library.get_tensor(name)
            assert (info.shape, info.type) == (tuple(part.get_shape()), part.get_dtype())
            assert info.nbytes == array.nbytes
            assert raw[info.offset : info.offset + info.nbytes] == array.tobytes()


@pytest.mark.parametrize("dtype", SAFETENSORS)
def test_every_dtype_takes_the_bytes_that_safetensors_says(tmp_path, dtype):
    block, nbytes = SAFETENSORS[dtype]
    header = {"t": entry(dtype, (3, 4 * block), 0, 12 * nbytes)}
    path = write_safetensors(tmp_path / "t.safetensors", header, bytes(12 * nbytes))
    with safe_open(path, "numpy") as library:
        assert library.get_slice("t").get_dtype() == dtype
    assert read_safetensors_header(path).tensors[0].nbytes == 12 * nbytes
    header["t"]["data_offsets"][1] += 1
    write_safetensors(path, header, bytes(12 * nbytes + 1))
    with pytest.raises(SafetensorError), safe_open(path, "numpy"):
        pass
    with pytest.raises(FileError, match=f"of {dtype} takes {12 * nbytes}"):
        read_safetensors_header(path)


def test_safetensors_without_their_data_say_so(tmp_path):
    path = write_safetensors(tmp_path / "t.safetensors", {"t": entry()}, bytes(24))
    assert read_safetensors_header(path).complete
    os.truncate(path, path.stat().st_size - 1)
    assert not read_safetensors_header(path).complete


DEEP = b'{"a":' * 100_000
HOSTILE_SAFETENSORS = {
    "empty": (b"", "cut off: the header's length at byte 0 takes 8 bytes"),
    "length beyond the format": (integer(100_000_001) + bytes(20), "expected at most 100000000"),
    "length beyond the file": (integer(99_999_999) + bytes(20), "cut off: the header"),
    "no JSON": (integer(4) + b"{,,}", "is not JSON"),
    "no object": (integer(2) + b"[]", "begins with 5b, expected 7b"),
    "nothing": (integer(0), "begins with nothing"),
    "not UTF-8": (integer(4) + b'{"\xff"', "not UTF-8 (byte 2)"),
    "not a number": (integer(9) + b'{"a":NaN}', "NaN, which is not JSON"),
    "too deep": (integer(len(DEEP)) + DEEP, "too deep"),
    "too many digits": (integer(10_006) + b'{"a":' + b"9" * 10_000 + b"}", "is not JSON"),
    "too many things": (integer(5_000_002) + b"{" + b"," * 5_000_001, "more than 4194304 things"),
}
HOSTILE_LISTS = {
    "metadata of numbers": ('{"__metadata__": {"a": 1}}', "object of texts"),
    "no entry": ('{"t": 3}', "'t' has int, expected dtype"),
    "missing field": ('{"t": {"dtype": "F32", "shape": []}}', "expected dtype, shape and data_offsets"),
    "other field": (json.dumps({"t": {**entry(), "more": 1}}), "'more'"),
    "unknown dtype": (json.dumps({"t": entry("F33")}), "dtype 'F33', expected one of F4"),
    "dtype a number": (json.dumps({"t": entry(4)}), "dtype 4"),
    "negative axis": (json.dumps({"t": entry(shape=(-2, -3))}), "non-negative"),
    "axis in words": (json.dumps({"t": entry(shape=("6",))}), "non-negative"),
    "true axis": (json.dumps({"t": entry(shape=(True, 6))}), "non-negative"),
    "fractional axis": (json.dumps({"t": entry(shape=(2.0, 3))}), "non-negative"),
    "absurd axis": (json.dumps({"t": entry(shape=(2**70,))}), "non-negative"),
    "absurd shape": (json.dumps({"t": entry(shape=(2**62,) * 30)}), "takes too many"),
    "many axes": (json.dumps({"t": entry(shape=(1,) * 65)}), "65 axes"),
    "one offset": (json.dumps({"t": {**entry(), "data_offsets": [0]}}), "expected [begin, end]"),
    "end before begin": (json.dumps({"t": entry(begin=24, end=0)}), "expected [begin, end]"),
    "shape and bytes": (json.dumps({"t": entry(shape=(2, 4))}), "24 bytes; shape [2, 4] of F32 takes 32"),
    "half a byte": (json.dumps({"t": entry("F4", (3,), 0, 2)}), "takes 1.5"),
    "a key twice": ('{"t": 1, "t": 2}', "key 't' twice"),
    "a field twice": ('{"t": {"dtype": "F32", "dtype": "F16"}}', "key 'dtype' twice"),
    "half a surrogate": ('{"\\ud800": 1}', "surrogate"),
    "a gap": (json.dumps({"a": entry(), "b": entry(begin=32, end=56)}), "'b' begins at byte 32 of the data"),
    "a late begin": (json.dumps({"a": entry(begin=8, end=32)}), "expected 0"),
    "an overlap": (json.dumps({"a": entry(), "b": entry(begin=16, end=40)}), "overlap"),
    "left over": (json.dumps({"a": entry()}), "76 bytes after the last tensor"),
}


@pytest.mark.parametrize(
    ("raw", "piece"),
    [*HOSTILE_SAFETENSORS.values(), *((None, v) for v in HOSTILE_LISTS.values())],
    ids=[*HOSTILE_SAFETENSORS, *HOSTILE_LISTS],
)
def test_a_hostile_safetensors_header_is_one_clear_error(tmp_path, raw, piece):
    path = tmp_path / "hostile.safetensors"
    if raw is None:
        listed, piece = piece
        write_safetensors(path, None, bytes(100), raw=listed.encode())
    else:
        path.write_bytes(raw)
    with pytest.raises(FileError) as error:
        read_safetensors_header(path)
    message = str(error.value)
    assert piece in message
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert len(message) < len(str(path)) + 350


def test_without_gguf_the_extra_is_named(whole, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf.constants", None)
    gguf_types.cache_clear()
    gguf_sizes.cache_clear()
    with pytest.raises(ImportError, match=r"pip install 'mxfp-emulator\[files\]'"):
        read_gguf_header(whole)
    assert block_size("BF16") == (1, 2)


# --- models in several files


@pytest.fixture
def sharded(tmp_path):
    """An index and two shards."""
    where = {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-2.safetensors"}
    save_file({"a": np.ones(3, np.float32)}, tmp_path / "model-1.safetensors")
    save_file({"b": np.ones(4, np.float32), "c": np.ones(5, np.float32)}, tmp_path / "model-2.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 48}, "weight_map": where}))
    return index


def test_the_shards_of_an_index_are_read_in_order(sharded):
    for path in (sharded, sharded.parent):
        headers = read_headers(path)
        assert [h.path.name for h in headers] == ["model-1.safetensors", "model-2.safetensors"]
        assert sum(h.nbytes for h in headers) == 48


@pytest.mark.parametrize(
    ("change", "piece"),
    [
        ({"weight_map": {}}, "expected a weight_map"),
        ({"weight_map": {"a": 1}}, "expected a weight_map"),
        ({"weight_map": {"a": "../model-1.safetensors"}}, "beside it"),
        ({"weight_map": {"a": "/etc/passwd"}}, "beside it"),
        ({"weight_map": {"a": "model-3.safetensors"}}, "model-3.safetensors: not there; it is file 1 of 1"),
        ({"weight_map": {"x": "model-1.safetensors"}}, "tensor 'a' is in it and not in the index"),
        ({"weight_map": {"a": "model-1.safetensors", "x": "model-1.safetensors"}}, "tensor 'x' is not in it"),
    ],
)
def test_an_index_that_disagrees_with_its_shards_is_one_clear_error(sharded, change, piece):
    sharded.write_text(json.dumps(change))
    with pytest.raises(FileError, match=r"^[^\n]*$") as error:
        read_headers(sharded)
    assert piece in str(error.value)


def split_gguf(folder, count=3, total=None):
    for n in range(count):
        keys = [("add_uint16", "split.no", n), ("add_uint16", "split.count", count)]
        keys += [("add_int32", "split.tensors.count", count if total is None else total)]
        tensors = [(f"t{n}", (64,), GGMLQuantizationType.F16)]
        write_gguf(folder / f"m-{n + 1:05}-of-{count:05}.gguf", tensors, keys)
    return folder / f"m-00002-of-{count:05}.gguf"


def test_every_part_of_a_split_gguf_is_read(tmp_path):
    part = split_gguf(tmp_path)
    for path in (part, tmp_path):
        assert [t.name for h in read_headers(path) for t in h.tensors] == ["t0", "t1", "t2"]


def test_a_split_gguf_that_lacks_a_part_is_one_clear_error(tmp_path):
    part = split_gguf(tmp_path)
    (tmp_path / "m-00003-of-00003.gguf").unlink()
    with pytest.raises(FileError, match=r"m-00003-of-00003.gguf: not there; it is file 3 of 3"):
        read_headers(part)
    part.rename(tmp_path / "other.gguf")
    with pytest.raises(FileError, match="part of 3, expected a name that ends in"):
        read_headers(tmp_path / "other.gguf")


def test_a_split_gguf_whose_parts_do_not_add_up_is_one_clear_error(tmp_path):
    with pytest.raises(FileError, match=r"3 tensors, split.tensors.count says 4"):
        read_headers(split_gguf(tmp_path, total=4))


def test_a_folder_must_hold_one_model(tmp_path, whole):
    assert len(read_headers(whole.parent)) == 1
    write_gguf(tmp_path / "second.gguf")
    with pytest.raises(FileError, match=r"it has 2 of them \(second.gguf, whole.gguf"):
        read_headers(tmp_path)
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.raises(FileError, match="it has none"):
        read_headers(tmp_path)


def test_another_kind_of_file_is_one_clear_error(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"PK\3\4")
    with pytest.raises(FileError, match=r"expected a .gguf or .safetensors file, an index"):
        read_headers(tmp_path / "model.bin")


# --- mutations


def ends_well(read, path):
    """The Header, or None where the reader refused in one line that names the file; nothing else is well."""
    try:
        return read(path)
    except FileError as error:
        refused = str(error)
    assert refused.startswith(f"{path}: ")
    assert "\n" not in refused
    return None


@pytest.mark.parametrize("kind", ["gguf", "safetensors"])
def test_thousands_of_mutations_end_in_a_header_or_one_error(tmp_path, whole, kind):
    if kind == "gguf":
        raw, read = whole.read_bytes()[: read_gguf_header(whole).data_start + 64], read_gguf_header
    else:
        arrays = {f"layer.{n}.weight": np.zeros((n, 4), np.float16) for n in range(9)}
        save_file(arrays, tmp_path / "m.safetensors", {"a": "b"})
        raw, read = (tmp_path / "m.safetensors").read_bytes(), read_safetensors_header
    path, rng, taken, count = tmp_path / "mutated", np.random.default_rng(6), 0, 4000
    tracemalloc.start()
    for _ in range(count):
        path.unlink(missing_ok=True)  # a new file is cheaper to write than one that is cut to nothing first
        path.write_bytes(mutated(raw, rng))
        if header := ends_well(read, path):
            assert header.complete == (header.data_end <= header.file_size)
            assert header.nbytes <= header.data_end - header.data_start
            taken += 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 50 < taken < count / 2
    assert peak < 16 << 20


@given(st.binary(max_size=300))
def test_any_bytes_end_in_a_header_or_one_error(tmp_path_factory, raw):
    path = tmp_path_factory.mktemp("any") / "bytes"
    for head, read in (
        (b"GGUF\3\0\0\0", read_gguf_header),
        (b"", read_gguf_header),
        (integer(len(raw)), read_safetensors_header),
    ):
        path.write_bytes(head + raw)
        ends_well(read, path)
