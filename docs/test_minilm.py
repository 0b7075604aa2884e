# SPDX-License-Identifier: Apache-2.0
"""A real model through its files, as minilm.md says; `.ci/run` downloads it and sets MXFP_MINILM."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import minilm
import ml_dtypes
import model_files
import numpy as np
import pytest
from safetensors.numpy import load_file

from mxfp.files import open_model

MODEL = Path(os.environ["MXFP_MINILM"]).resolve()  # MXFP_MINILM=DIR pytest docs/test_minilm.py
SOURCE = MODEL / "model.safetensors"
PAGE = Path(__file__).with_name("minilm.md").read_text(encoding="utf-8")
BLOCKS, KEPT = 37, 67


def mxfp(*arguments):
    command = [sys.executable, "-m", "mxfp", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the example has been run, as its reader would."""
    folder = tmp_path_factory.mktemp("minilm")
    command = [sys.executable, model_files.__file__, str(MODEL), "--out", str(folder)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "printed.txt").write_text(done.stdout, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def figures(folder):
    return json.loads((folder / "figures.json").read_text(encoding="utf-8"))


def floor_codes(x):
    """MXFP4 by the rule floor: the scale is 2 to floor(log2(largest)) - 2, ties go to even codes."""
    blocks = x.astype(np.float64).reshape(len(x), -1, 32)
    exponents = np.frexp(np.abs(blocks).max(axis=-1))[1] - 3
    v = np.abs(blocks) / np.exp2(exponents)[..., None]
    codes = sum((v > middle).astype(np.uint8) for middle in (0.25, 1.25, 2.5, 5))
    codes = codes + sum((v >= middle).astype(np.uint8) for middle in (0.75, 1.75, 3.5))
    codes = codes | np.where(np.signbit(blocks), np.uint8(8), np.uint8(0))
    return codes.reshape(x.shape), (exponents + 127).astype(np.uint8)


# --- bits


def test_all_files_have_equal_bits_and_the_example_says_so(folder):
    printed = (folder / "printed.txt").read_text(encoding="utf-8")
    for file in model_files.FILES:
        line = f"equal bits: {file}, {BLOCKS} matrices in MXFP4, {KEPT} tensors as they were"
        assert line in printed.splitlines()


def test_every_code_and_scale_is_that_of_the_rule_in_plain_numpy(folder):
    blocks, _ = model_files.read_gguf(folder / "quantized.gguf")
    source = load_file(SOURCE)
    assert len(blocks) == BLOCKS
    for name, (codes, scales) in blocks.items():
        expected = floor_codes(source[name])
        np.testing.assert_array_equal(codes, expected[0], name)
        np.testing.assert_array_equal(scales, expected[1], name)


@pytest.mark.parametrize("file", model_files.FILES)
@pytest.mark.parametrize("what", ["codes", "scales", "kept"])
def test_one_flipped_bit_of_a_file_is_found_and_its_tensor_named(file, what, folder, tmp_path):
    name = "embeddings.word_embeddings.weight" if what == "kept" else "encoder.layer.4.output.dense.weight"
    with open_model(folder / file) as model:
        parts = model.info(name).parts
    if what == "scales":
        at = parts[-1].offset + (17 * 1000 if file.endswith(".gguf") else 1000)
    else:
        at = parts[0].offset + 17 * 1000 + 1
    for other in model_files.FILES:
        if other != file:
            (tmp_path / other).symlink_to(folder / other)
    shutil.copy(folder / file, tmp_path / file)
    with (tmp_path / file).open("r+b") as changed:
        changed.seek(at)
        (byte,) = changed.read(1)
        changed.seek(at)
        changed.write(bytes([byte ^ 1]))
    with pytest.raises(SystemExit) as ended:
        model_files.compare(SOURCE, tmp_path)
    said = str(ended.value)
    assert file in said
    assert re.search(rf" {re.escape(name)}\b.*: [1-4] of \d+ bytes differ", said), said


def test_a_scale_that_is_nan_is_no_number():
    with pytest.raises(SystemExit, match="NaN"):
        model_files.decode(np.zeros((1, 32), np.uint8), np.full((1, 1), 255, np.uint8))


# --- what it costs


def test_sqnr_is_that_of_the_command_and_18_db(folder, figures):
    out = folder / "again.gguf"
    said = json.loads(mxfp("quantize", SOURCE, out, "--json"))
    assert out.read_bytes() == (folder / "quantized.gguf").read_bytes()
    expected = {t["name"]: t["sqnr_db"] for t in said["tensors"] if "sqnr_db" in t}
    assert figures["sqnr_db"] == pytest.approx(expected, rel=1e-12)
    assert figures["total_db"] == pytest.approx(said["sqnr_db"], rel=1e-12)
    assert figures["total_db"] > 18
    assert all(17 < db < 20 for db in expected.values())


def test_memory_is_bounded_far_below_the_model(figures):
    assert SOURCE.stat().st_size > 90_000_000
    beyond = [row["beyond"] for row in figures["commands"]]
    assert max(beyond) < 64_000_000
    # Of convert and diff, which load little; of the others it is hardly more than two runs differ by.
    assert min(beyond[2:]) > 0, "the memory of the process that starts them is counted with theirs"


def test_embeddings_of_the_weights_in_the_files_stay_near_those_of_float32(figures):
    cosines = figures["cosines"]
    assert [len(cosines[way]) for way in ("W4A16", "W4A4")] == [len(minilm.SENTENCES)] * 2
    assert min(cosines["W4A16"]) > 0.94
    assert min(cosines["W4A4"]) > 0.87
    assert all(a < b < 1 for a, b in zip(cosines["W4A4"], cosines["W4A16"], strict=True))


# --- the other commands on the same files


@pytest.mark.parametrize("file", model_files.FILES)
def test_inspect_counts_all_tensors_elements_and_bytes(file, folder):
    source = load_file(SOURCE).values()
    found = json.loads(mxfp("inspect", folder / file, "--json"))["totals"]
    layout = "gguf" if file.endswith(".gguf") else "gpt-oss"
    blocks, kept, together = found[f"MXFP4 {layout}"], found["F32"], found["together"]
    assert (blocks["tensors"], kept["tensors"], together["tensors"]) == (BLOCKS, KEPT - 1, BLOCKS + KEPT)
    assert found["I64"]["tensors"] == 1  # position_ids
    assert together["elements"] == sum(array.size for array in source)
    assert blocks["bytes"] == blocks["elements"] * 17 // 32
    before = sum(array.nbytes for array in source)
    assert together["bytes"] == before - 4 * blocks["elements"] + blocks["bytes"]


def test_diff_finds_no_difference_between_gguf_and_gpt_oss(folder):
    printed = mxfp("diff", folder / "quantized.gguf", folder / "quantized.safetensors")
    assert f"{BLOCKS + KEPT} tensors in both: {BLOCKS + KEPT} equal in every bit, 0 not" in printed


def test_evaluate_gives_the_errors_of_plain_numpy_on_the_files(folder):
    data = folder / "activations.npz"
    blocks, _ = model_files.read_gpt_oss(folder / "converted.safetensors")
    source, activations = load_file(SOURCE), np.load(data)
    options = ["--data", data, "--json", "--accumulator"]
    from_blocks = mxfp(
        "evaluate", folder / "quantized.gguf", "--source", SOURCE, *options, "sequential:float32"
    )
    from_floats = mxfp("evaluate", SOURCE, *options, "sequential:bfloat16")
    for said, dtype in (from_blocks, np.float32), (from_floats, ml_dtypes.bfloat16):
        layers = json.loads(said)["layers"]
        assert len(layers) == BLOCKS - 1  # all but the pooler, which sentence embeddings do without
        for layer in layers:
            name = layer["name"]
            x, w = activations[name].astype(np.float64), model_files.decode(*blocks[name]).astype(np.float64)
            exact = x @ source[name].astype(np.float64).T
            both = model_files.decode(*floor_codes(x)).astype(np.float64)
            added = np.zeros(exact.shape)
            for k in range(0, x.shape[1], 32):
                added = (added + both[:, k : k + 32] @ w[:, k : k + 32].T).astype(dtype).astype(np.float64)
            for way, product in ("W4A16", x.astype(np.float16).astype(np.float64) @ w.T), ("W4A4", added):
                error = np.linalg.norm(product - exact) / np.linalg.norm(exact)
                assert layer["ways"][way]["relative_error"] == pytest.approx(error, rel=1e-11), (name, way)


# --- the page


def table(first):
    """The table of the page whose header's first cell this is: its cells, without marks, row by row."""
    rows = re.search(rf"^\| {first} \|.*?(?=\n\n)", PAGE, re.MULTILINE | re.DOTALL)[0].splitlines()
    header, _, *rest = ([cell.strip(" `") for cell in row.strip("|").split("|")] for row in rows)
    return header, rest


def test_the_page_has_the_sqnr_of_every_matrix(figures):
    (_, *parts), rows = table("layer")
    said = {
        f"encoder.layer.{n}.{part}": value
        for n, *values in rows
        for part, value in zip(parts, values, strict=True)
    }
    said["pooler"] = re.search(r"The pooler.* has ([\d.]+) dB", PAGE)[1]
    found = {
        name.removesuffix(".weight").removesuffix(".dense"): f"{db:.2f}"
        for name, db in figures["sqnr_db"].items()
    }
    assert said == found
    assert f"All {BLOCKS} together have {figures['total_db']:.2f} dB" in PAGE


def test_the_page_has_the_cosine_of_every_sentence(figures):
    """As near as the page says: floats are added in an order that is the BLAS's own, and codes turn on it."""
    (_, *ways), rows = table("sentence")
    sentences, *columns = zip(*rows, strict=True)
    assert sentences == minilm.SENTENCES
    for way, column in zip(ways, columns, strict=True):
        near = {"W4A16": 0.003, "W4A4": 0.015}[way]
        assert [float(cell) for cell in column] == pytest.approx(figures["cosines"][way], abs=near)


def test_the_page_shows_the_commands_that_are_run():
    for command in model_files.COMMANDS:
        assert f"`mxfp {' '.join(command)}`" in PAGE
