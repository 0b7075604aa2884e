# SPDX-License-Identifier: Apache-2.0
"""mxfp inspect: blocks counted against the oracle, outlines of models, files that are cut off or wrong."""

import json
import re
import struct
from collections import Counter
from fractions import Fraction

import gguf
import headers
import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import save_file

import mxfp
import oracle
from mutations import mutated
from mxfp.cli import cli, main
from mxfp.cli import inspect as command
from mxfp.files.blockwise import in_blocks, magnitudes_of, present
from mxfp.files.header import FileError
from mxfp.files.model import ModelFile, open_model
from mxfp.files.outline import DEEPEST, numbers, outline
from mxfp.files.pipeline import TILE
from mxfp.files.statistics import measure, statistics_of, total
from mxfp.files.tensor import Tensor
from mxfp.files.writing import write_model
from support import FORMATS, random_blocks, size

SHAPES = [((6, 64), -1), ((3, 40), 1), ((40, 3), 0), ((2, 33, 3), 1), ((5,), 0), ((0, 64), 1), ((3, 0), 1)]


def run(*arguments):
    return CliRunner().invoke(cli, ["inspect", *map(str, arguments)], catch_exceptions=False)


def as_json(*arguments):
    done = run(*arguments, "--json")
    assert done.exit_code == 0
    return json.loads(done.output)


def fails(capsys, monkeypatch, *arguments):
    """The exit status and the one line of a call that goes wrong."""
    monkeypatch.setattr("sys.argv", ["mxfp", "inspect", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert not out
    assert err.count("\n") == 1
    assert err.startswith("mxfp: ")
    return ended.value.code, err


def blocks_of(q):
    """Each block as (scale code, its element codes), in any order, one element at a time."""
    found = {}
    for index in np.ndindex(q.shape):
        place = tuple(i // q.format.block if n == q.block_axis else i for n, i in enumerate(index))
        found.setdefault(place, []).append(int(q.codes[index]))
    return [(int(q.scales[place]), codes) for place, codes in found.items()]


# --- what is counted


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_counts_are_those_made_one_element_at_a_time(fmt, shape, axis):
    q = random_blocks(fmt, shape, 3, axis=axis, specials=True, nan_share=0.2, zero_share=0.5)
    q = mxfp.BlockArray(np.where(q.codes % 7 == 3, 0, q.codes), q.scales, fmt, axis, q.tensor_scale)
    found, blocks = statistics_of(q), blocks_of(q)
    name, nan = fmt.element.name, fmt.scale.nan_code
    element = [oracle.element(name, code) for code in range(fmt.element.code_count)]
    size_of = [abs(v) if isinstance(v, Fraction) else None for v in element]
    zero = [v == 0 for v in size_of]
    codes = Counter(code for _, some in blocks for code in some)
    scales = Counter(scale for scale, _ in blocks)
    zeros = Counter(scale for scale, some in blocks if all(zero[code] for code in some))
    assert dict(enumerate(found.codes.tolist())) == {c: codes[c] for c in range(len(element))}
    assert {c: n for c, n in enumerate(found.scales.tolist()) if n} == scales
    assert {c: n for c, n in enumerate(found.zero_scales.tolist()) if n} == zeros
    assert (found.elements, found.blocks) == (q.codes.size, q.scales.size)
    assert found.zeros == sum(n for c, n in codes.items() if zero[c])
    assert found.negative_zeros == sum(n for c, n in codes.items() if zero[c] and oracle.negative(name, c))
    assert found.at_largest == sum(n for c, n in codes.items() if size_of[c] == oracle.largest(name))
    assert found.specials == sum(n for c, n in codes.items() if size_of[c] is None)
    assert (found.nan_blocks, found.zero_blocks) == (scales[nan], zeros.total())
    used = {s for s, some in blocks if s != nan and not all(zero[c] for c in some)}
    assert found.scale_range == ((min(used), max(used)) if used else None)


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_the_largest_of_each_block_is_counted_where_scales_are_not_clamped(fmt):
    q = random_blocks(fmt, (8, 5 * fmt.block + 3), 5, zero_share=0.9)
    ends = (int(fmt.scale.has_zero), fmt.scale.nan_code - 1)
    magnitudes = oracle.magnitudes(fmt.element.name)
    expected = Counter()
    for scale, codes in blocks_of(q):
        largest = max(abs(oracle.element(fmt.element.name, code)) for code in codes)
        if ends[0] < scale < ends[1]:
            expected[magnitudes.index(largest) if largest in magnitudes else len(magnitudes)] += 1
    assert {c: n for c, n in enumerate(statistics_of(q).largest.tolist()) if n} == expected


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_the_code_of_a_magnitude_is_that_of_the_positive_number(fmt):
    element, codes = fmt.element, np.arange(fmt.element.code_count, dtype=np.uint8)
    magnitudes = oracle.magnitudes(element.name)
    for code, found in zip(codes.tolist(), magnitudes_of(codes, element).tolist(), strict=True):
        value = oracle.element(element.name, code)
        finite = isinstance(value, Fraction) and abs(value) in magnitudes
        assert found == (magnitudes.index(abs(value)) if finite else len(magnitudes))


@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_every_element_is_in_one_block_and_what_fills_it_up_is_known(shape, axis):
    q = random_blocks(mxfp.MXFP4, shape, 0, axis=axis)
    index = np.arange(1, q.codes.size + 1).reshape(shape)
    rows, there = in_blocks(index, q.block_axis, 32), present(q)
    assert rows.shape == there.shape == (q.scales.size, 32)
    assert sorted(rows[there].tolist()) == index.reshape(-1).tolist()
    assert not rows[~there].any()


def test_counts_of_parts_add_up_to_those_of_the_whole():
    q = random_blocks(mxfp.NVFP4, (9, 64), 1, nan_share=0.1)
    rows = [
        mxfp.BlockArray(q.codes[n : n + 1], q.scales[n : n + 1], q.format, -1, q.tensor_scale)
        for n in range(9)
    ]
    one, whole = total(map(statistics_of, rows)), statistics_of(q)
    for name in ("codes", "scales", "zero_scales", "largest"):
        np.testing.assert_array_equal(getattr(one, name), getattr(whole, name))
    assert one.tensor_scales == whole.tensor_scales == (q.tensor_scale, q.tensor_scale)
    with pytest.raises(ValueError, match="statistics of NVFP4 and of MXFP4 cannot be added"):
        one + statistics_of(random_blocks(mxfp.MXFP4, (1, 32), 0))


def test_a_tensor_is_read_in_tiles_of_bounded_size(tmp_path, monkeypatch):
    rows = size(40, 12)
    q = random_blocks(mxfp.MXFP4, (rows, TILE // 4), 0)
    write_model(tmp_path / "w.gguf", {"w": q})
    seen, read = [], ModelFile.rows

    def watched(self, name, start, stop):
        seen.append((start, stop))
        return read(self, name, start, stop)

    monkeypatch.setattr(ModelFile, "rows", watched)
    with open_model(tmp_path / "w.gguf") as model:
        found = measure(model, model.tensors)["w"]
    assert sorted(seen) == [(n, n + 4) for n in range(0, rows, 4)]
    np.testing.assert_array_equal(found.codes, statistics_of(q).codes)


def test_experts_that_have_tensor_scales_of_their_own_are_counted_together(tmp_path):
    shape, fmt = (3, 4, 64), mxfp.NVFP4
    q = random_blocks(fmt, shape, 0)
    arrays = {
        "w": np.ascontiguousarray(mxfp.pack(q.codes, fmt)),
        "w_scale": q.scales.view(ml_dtypes.float8_e4m3fn),
        "w_scale_2": np.array([0.5, 0.25, 2.0], np.float32),
    }
    raw = {k: (v.view(np.uint8) if v.dtype.itemsize == 1 else v) for k, v in arrays.items()}
    save_file(raw, tmp_path / "w.safetensors")
    # The library writes uint8; the type of the scales is one word of the header.
    path, data = tmp_path / "w.safetensors", (tmp_path / "w.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + length])
    head["w_scale"]["dtype"] = "F8_E4M3"
    text = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])
    found = as_json(path)["tensors"]
    assert [t["name"] for t in found] == ["w"]
    assert found[0]["statistics"]["tensor_scales"] == [0.25, 2.0]
    assert found[0]["statistics"]["codes"] == np.bincount(q.codes.reshape(-1), minlength=16).tolist()


# --- what is printed


@pytest.fixture
def model(tmp_path):
    """A GGUF file by gguf's writer: three layers of MXFP4 by gguf's own quantizer, Q8_0, and floats."""
    rng = np.random.default_rng(0)
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    embedding = rng.standard_normal((16, 64)).astype(np.float32)
    writer.add_tensor("token_embd.weight", gguf.quants.quantize(embedding, Type.Q8_0), raw_dtype=Type.Q8_0)
    for n in range(3):
        for part in ("ffn_up", "ffn_down"):
            x = rng.standard_normal((8, 64)).astype(np.float32)
            packed = gguf.quants.quantize(x, Type.MXFP4)
            writer.add_tensor(f"blk.{n}.{part}.weight", packed, raw_dtype=Type.MXFP4)
        writer.add_tensor(f"blk.{n}.norm.weight", np.ones(64, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_json_has_what_gguf_reads(model):
    found, reader = as_json(model), gguf.GGUFReader(model)
    assert found["complete"]
    assert [(t["name"], t["shape"], t["type"], t["bytes"]) for t in found["tensors"]] == [
        (t.name, list(reversed(t.shape.tolist())), t.tensor_type.name, t.n_bytes) for t in reader.tensors
    ]
    for tensor, theirs in zip(found["tensors"], reader.tensors, strict=True):
        if theirs.tensor_type is not Type.MXFP4:
            assert tensor["statistics"] is None
            continue
        blocks = theirs.data.reshape(-1, 17)
        codes = np.concatenate([blocks[:, 1:] & 15, blocks[:, 1:] >> 4])
        assert tensor["statistics"]["codes"] == np.bincount(codes.reshape(-1), minlength=16).tolist()
        scales = Counter(map(str, blocks[:, 0].tolist()))
        assert tensor["statistics"]["scales"] == scales
    assert found["totals"]["MXFP4 gguf"] == {"tensors": 6, "elements": 3072, "bytes": 1632, "bits": 4.25}
    assert found["totals"]["together"]["tensors"] == 10
    assert found["totals"]["together"]["bytes"] == sum(t.n_bytes for t in reader.tensors)


def test_layers_that_are_alike_are_one_and_the_bytes_add_up(model):
    text = run(model).output
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "blk.0 … 2 (3 alike)" in lines
    assert "ffn_up.weight 8 × 64 MXFP4 3 816 4.25" in lines
    assert "norm.weight 64 F32 3 768 32" in lines
    assert "token_embd.weight 16 × 64 Q8_0 1 1,088 8.5" in lines
    assert any(line.startswith("together 10 4,288 3,488 100") for line in lines)
    assert lines.count("blk.0 … 2 (3 alike)") == 2  # of tensors, and of what is in their blocks
    assert any(line.startswith("Scales of MXFP4") for line in lines)
    # ggml never writes code 8.
    assert "8 -0 0 0" in lines


def test_only_the_tensors_asked_for_are_shown_and_read(model):
    found = as_json(model, "--tensor", "blk.1.*", "--tensor", "token*")
    names = [t["name"] for t in found["tensors"]]
    assert names == ["token_embd.weight", *(f"blk.1.{p}.weight" for p in ("ffn_up", "ffn_down", "norm"))]
    assert found["totals"]["together"]["tensors"] == 4


def test_statistics_are_made_unasked_up_to_a_size(model, monkeypatch):
    monkeypatch.setattr(command, "SMALL", 1631)
    text = run(model).output
    assert "1,632 bytes of blocks are not read; --statistics counts what is in them" in text
    assert "Codes of MXFP4" not in text
    assert "Codes of MXFP4" in run(model, "--statistics").output
    monkeypatch.setattr(command, "SMALL", 1632)
    assert "Codes of MXFP4" in run(model).output
    text = run(model, "--no-statistics").output
    assert "Codes of MXFP4" not in text
    assert "not read" not in text
    assert all(t["statistics"] is None for t in as_json(model, "--no-statistics")["tensors"])


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_every_format_is_printed_with_its_scales_and_few_rows(tmp_path, fmt):
    q = random_blocks(fmt, (64, 64), 0, specials=True, nan_share=0.1)
    write_model(tmp_path / "w.safetensors", {"w": q})
    text = run(tmp_path / "w.safetensors").output
    assert "NaN" in text
    assert (f"Codes of {fmt.name}" in text) == (fmt.element.bits == 4)
    table = re.split(r"─+ *\n", text.split(f"Scales of {fmt.name}")[1])[1]
    rows = [re.split(r"  +", row.strip()) for row in table.splitlines() if row.strip()]
    assert len(rows) <= command.MOST_ROWS
    assert sum(int(row[2].replace(",", "")) for row in rows) == q.scales.size


def test_a_file_without_tensors_says_so(tmp_path):
    save_file({}, tmp_path / "empty.safetensors")
    assert "It has no tensors." in run(tmp_path / "empty.safetensors").output
    assert as_json(tmp_path / "empty.safetensors")["totals"] == {}


def test_names_cannot_command_the_terminal(tmp_path):
    save_file(
        {"a\x1b[31mb\rc": np.zeros(2, np.float32), "[bold]x": np.ones(1, np.float32)},
        tmp_path / "a.safetensors",
    )
    text = run(tmp_path / "a.safetensors").output
    assert "\x1b" not in text
    assert "\r" not in text
    assert "a\\x1b[31mb\\rc" in text
    assert "[bold]x" in text


@pytest.mark.parametrize("layout", ["gpt-oss", "compressed-tensors", "modelopt", "mxfp"])
def test_layouts_of_several_tensors_are_one_and_name_their_parts(tmp_path, layout):
    q = random_blocks(mxfp.MXFP4, (4, 64), 0)
    write_model(tmp_path / "w.safetensors", {"w.weight": q}, layout=layout)
    (found,) = as_json(tmp_path / "w.safetensors")["tensors"]
    assert (found["name"], found["shape"], found["layout"], found["bits"]) == (
        "w.weight",
        [4, 64],
        layout,
        4.25,
    )
    assert len(found["parts"]) == 2
    assert f"MXFP4 {layout}" in run(tmp_path / "w.safetensors").output


def test_an_outline_without_end_is_cut_off(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "MOST_LINES", 10)
    write_model(tmp_path / "w.gguf", {f"w{n}": random_blocks(mxfp.MXFP4, (1, 32), 0) for n in range(13)})
    text = run(tmp_path / "w.gguf").output
    assert " ".join(text.split()).count("and 3 lines more, which --json has") == 2
    assert "w9" in text
    assert "w10" not in text
    assert len(as_json(tmp_path / "w.gguf")["tensors"]) == 13


# --- outlines


def named(*names, kind="F32"):
    return [Tensor(name, (2, 32), kind, ()) for name in names]


def lines(tensors):
    return [("  " * n.level + n.text, len(n.tensors), n.alike) for n in outline(tensors)]


def test_experts_within_layers_are_levels_of_their_own():
    tensors = named(*(f"m.layers.{n}.mlp.experts.{e}.w.weight" for n in range(2) for e in range(4)), "m.norm")
    assert lines(tensors) == [
        ("m.layers.0, 1", 0, 2),
        ("  mlp.experts.0 … 3", 0, 4),
        ("    w.weight", 8, 0),
        ("m.norm", 1, 0),
    ]


def test_layers_that_differ_in_shape_or_type_or_what_they_have_are_apart():
    tensors = [
        *named("b.0.x", "b.0.y", "b.1.x", "b.3.x", "b.3.y"),
        *named("b.4.x", "b.4.y", kind="F16"),
    ]
    assert lines(tensors) == [
        ("b.0, 3", 0, 2),
        ("  x", 2, 0),
        ("  y", 2, 0),
        ("b.1", 0, 1),
        ("  x", 1, 0),
        ("b.4", 0, 1),
        ("  x", 1, 0),
        ("  y", 1, 0),
    ]


def test_every_tensor_is_in_an_outline_once_whatever_its_name():
    rng = np.random.default_rng(0)
    words = ["a", "b", "0", "1", "07", "", "12345678901", "\0", "weight", "…", "-1"]
    names = {".".join(rng.choice(words, int(rng.integers(1, 12)))) for _ in range(2000)}
    names |= {".".join("0" * (3 * DEEPEST))}
    found = outline(named(*names))
    assert sorted(t.name for line in found for t in line.tensors) == sorted(names)
    assert max(line.level for line in found) == DEEPEST


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([], ""),
        ([5], "5"),
        ([0, 1], "0, 1"),
        ([2, 1, 0], "0 … 2"),
        ([0, 2, 4], "0, 2, 4"),
        ([0, 2, 4, 6], "0, 2 … 6"),
        ([0, 1, 2, 3, 6, 9, 12, 15, 20], "0 … 3, 6, 9 … 15, 20"),
        ([7, 8, 10, 11], "7, 8, 10, 11"),
    ],
)
def test_numbers_are_ranges_where_they_are_evenly_apart(given, text):
    assert numbers(given) == text


def test_the_many_layers_of_a_real_model_are_a_few_lines(tmp_path):
    headers.write_all(tmp_path)
    found = lines(open_model(tmp_path / "gpt-oss-20b.gguf", complete=False).tensors)
    assert len(found) == 23
    assert ("blk.0 … 23", 0, 24) in found
    assert ("  ffn_up_exps.weight", 24, 0) in found
    found = lines(open_model(tmp_path / "qwen3-8b.gguf", complete=False).tensors)
    assert [text for text, _, alike in found if alike] == [
        "blk.0 … 3, 6, 9 … 30, 31 … 35",
        "blk.4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 22, 23, 25, 26, 28, 29",
    ]


# --- what is not there, and what is wrong


def test_a_header_alone_is_shown_with_what_is_missing(tmp_path):
    headers.write_all(tmp_path)
    text = run(tmp_path / "gpt-oss-20b.gguf").output
    assert "Data are missing: 459 of 459 tensors are not there, or not whole." in text
    assert "ffn_up_exps.weight" in text
    assert "Codes of" not in text
    found = as_json(tmp_path / "gpt-oss-20b.gguf", "--statistics")
    assert not found["complete"]
    assert not any(t["data"] or t["statistics"] for t in found["tensors"])


def test_of_a_file_that_is_cut_off_what_is_there_is_counted(model, tmp_path):
    whole = as_json(model)["tensors"]
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(model.read_bytes()[: gguf.GGUFReader(model).tensors[5].data_offset + 3])
    found = as_json(cut)
    assert not found["complete"]
    assert [t["data"] for t in found["tensors"]] == [True] * 5 + [False] * 5
    for tensor, expected in zip(found["tensors"], whole, strict=True):
        assert tensor["statistics"] == (expected["statistics"] if tensor["data"] else None)
    assert "Data are missing: 5 of 10 tensors" in run(cut).output
    with pytest.raises(FileError, match="cut off"):
        open_model(cut)


def test_what_is_wrong_is_one_line(tmp_path, model, capsys, monkeypatch):
    (tmp_path / "text.gguf").write_text("no model")
    (tmp_path / "x.bin").write_bytes(b"1234")
    for arguments, piece in (
        ((tmp_path / "none.gguf",), "No such file"),
        ((tmp_path / "text.gguf",), "text.gguf"),
        ((tmp_path / "x.bin",), "expected a .gguf or .safetensors file"),
        (
            (model, "--tensor", "nothing*"),
            "none of its 10 tensors is called nothing*; some are token_embd.weight",
        ),
    ):
        code, line = fails(capsys, monkeypatch, *arguments)
        assert code == 1
        assert piece in line


@pytest.mark.parametrize("kind", ["gguf", "safetensors"])
def test_mutated_files_are_shown_or_end_in_one_line(tmp_path, model, kind, capsys, monkeypatch):
    if kind == "gguf":
        raw = model.read_bytes()
    else:
        q = random_blocks(mxfp.NVFP4, (32, 64), 0)
        write_model(tmp_path / "w.safetensors", {"w": q}, layout="modelopt")
        raw = (tmp_path / "w.safetensors").read_bytes()
    path, rng, shown = tmp_path / f"mutated.{kind}", np.random.default_rng(8), 0
    count = size(400, 60)
    for _ in range(count):
        path.write_bytes(mutated(raw, rng))
        monkeypatch.setattr("sys.argv", ["mxfp", "inspect", str(path)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        if ended.value.code:
            assert ended.value.code == 1
            assert not out
            assert err.startswith("mxfp: ")
            assert err.count("\n") == 1
        else:
            assert not err
            shown += 1
    assert 0 < shown < count
