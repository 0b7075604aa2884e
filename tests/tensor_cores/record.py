# SPDX-License-Identifier: Apache-2.0
"""Records what MMA-Sim's package gives, and compares it with mxfp where it is installed.

pip install -e '.[mmasim]'
PYTHONPATH=tests python -m tensor_cores.record            # writes results.npz and record.json anew
PYTHONPATH=tests python -m tensor_cores.record --check    # compares with mxfp, on a seed of its own too
"""

import argparse
import io
import json
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import mxfp
from tensor_cores import cases
from tensor_cores.cases import INSTRUCTIONS, RECORD, RESULTS, Instruction

SEED = 2511
"""Of what is recorded; --check compares on another one too."""
TORCH = {"E4M3": "float8_e4m3fn", "E5M2": "float8_e5m2", "E8M0": "float8_e8m0fnu", "UE4M3": "float8_e4m3fn"}


def as_torch(codes: np.ndarray, fmt: Any) -> Any:
    """Codes (rows, n) -> a tensor as MMA-Sim takes it: FP6 in bits 5:0 of bytes, FP4 in bits 5:2."""
    import torch

    shifted = codes << 2 if fmt is mxfp.E2M1 else codes
    tensor = torch.from_numpy(np.ascontiguousarray(shifted))
    return tensor.view(getattr(torch, TORCH[fmt.name])) if fmt.name in TORCH else tensor


def packed(codes: np.ndarray) -> Any:
    """E2M1 codes (rows, n) -> a tensor (rows, n / 2), the high nibble first, as MMA-Sim's mxf4 takes them."""
    import torch

    return torch.from_numpy(np.ascontiguousarray(codes[:, 0::2] << 4 | codes[:, 1::2]))


def unit_of(name: str, a: mxfp.BlockFormat, b: mxfp.BlockFormat) -> tuple[Any, int]:
    """MMA-Sim's model of an instruction for these formats, and the K of one."""
    from mmasim import nv_ptx as nv

    ta, tb = a.element.name.lower(), b.element.name.lower()
    scaled, plain = nv.TCGen05MMABlockScale, nv.TCGen05MMA
    block = f"block{a.block}.f32.{ta}.{tb}.{a.scale.name.lower().replace('e8m0', 'ue8m0')}"
    found = {
        "mxf4": lambda: scaled("Blackwell", f"m128n8k64.kind::mxf4.{block}"),
        "mxf4nvf4": lambda: scaled("Blackwell", f"m128n8k64.kind::mxf4nvf4.{block}"),
        "mxf8f6f4": lambda: scaled("Blackwell", f"m128n8k32.kind::mxf8f6f4.{block}"),
        "f8f6f4": lambda: plain("Blackwell", f"m128n8k32.kind::f8f6f4.f32.{ta}.{tb}"),
        "hopper": lambda: nv.WGMMA("Hopper", f"m64n8k32.f32.{ta}.{tb}"),
        "ada": lambda: nv.MMA("Ada Lovelace", f"m16n8k32.f32.{ta}.{tb}.f32"),
    }
    kind = name.split(".", maxsplit=1)[0]
    return found[kind](), 64 if kind.startswith("mxf4") else 32


def theirs(name: str, a: mxfp.BlockArray, b: mxfp.BlockArray) -> np.ndarray:
    """The bits (M, N) of MMA-Sim's results, instruction after instruction along K, from a c of 0.

    What is missing from the last instruction is zeros, under scales of 1.
    """
    import torch

    unit, step = unit_of(name, a.format, b.format)
    sides = []
    for q in (a, b.T):
        length = -(-q.shape[1] // step) * step
        codes = np.zeros((q.shape[0], length), np.uint8)
        codes[:, : q.shape[1]] = q.codes
        one = np.flatnonzero(q.format.scale.values == 1.0)[0]
        scales = np.full((q.shape[0], length // q.format.block), one, np.uint8)
        scales[:, : q.scales.shape[1]] = q.scales
        sides.append((codes, scales, q.format))
    c = torch.zeros(a.shape[0], b.shape[1])
    for left in range(0, sides[0][0].shape[1], step):
        part = slice(left, left + step)
        elements, scales = [], []
        for codes, scale, fmt in sides:
            mine = codes[:, part]
            elements.append(packed(mine) if step == 64 else as_torch(mine, fmt.element))
            blocks = slice(left // fmt.block, (left + step) // fmt.block)
            scales.append(as_torch(scale[:, blocks], fmt.scale))
        x, y = elements
        if name.startswith("mxf"):
            c = unit(x, y.T, c, scales[0], scales[1].T)
        else:
            assert all((side[1] == 127).all() for side in sides), "an instruction without scales"
            c = unit(x, y.T, c)
    return c.numpy().view(np.uint32).copy()


def gather(instruction: Instruction, seed: int) -> np.ndarray:
    """MMA-Sim's results (products, M, N) for a seed; says how far it is."""
    started = time.monotonic()
    found = []
    for n, (a, b) in enumerate(cases.products(instruction, seed), 1):
        found.append(theirs(instruction.name, a, b))
        if sys.stderr.isatty():
            print(f"\r{instruction.name}: {n} of {instruction.products}", end="\r", file=sys.stderr)
    print(f"{instruction.name}: {instruction.dots:,} dot products, {time.monotonic() - started:.1f} s")
    return np.stack(found)


def write(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def record() -> None:
    """Write what MMA-Sim gives for SEED."""
    results = {name: gather(instruction, SEED) for name, instruction in INSTRUCTIONS.items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **results)
    about = {
        "source": "MMA-Sim, arXiv:2511.10909",
        "versions": {name: version(name) for name in ("mmasim", "torch", "numpy")},
        "seed": SEED,
        "dots": {name: int(found.size) for name, found in results.items()},
        "inputs_sha256": {name: cases.digest(one, SEED) for name, one in INSTRUCTIONS.items()},
    }
    write(RESULTS, buffer.getvalue())
    write(RECORD, (json.dumps(about, indent=2) + "\n").encode())
    print(f"{sum(about['dots'].values()):,} dot products, {RESULTS.stat().st_size:,} bytes")


def check(seeds: list[int]) -> int:
    """Compare mxfp, and what was recorded, with MMA-Sim as it is installed; the number of differences."""
    _, kept = cases.recorded()
    wrong = dots = numbers = 0
    for seed in seeds:
        for name, instruction in INSTRUCTIONS.items():
            live = gather(instruction, seed)
            found = {
                engine: np.stack(
                    [cases.ours(instruction, a, b, engine) for a, b in cases.products(instruction, seed)]
                )
                for engine in ("numba", "reference")
            }
            if seed == SEED:
                found["recorded"] = kept[name]
            for side, patterns in found.items():
                different = np.argwhere(patterns != live)
                wrong += len(different)
                if len(different):
                    first = tuple(different[0].tolist())
                    print(
                        f"seed {seed}, {name}, {side}: {len(different)} of {live.size} differ, first at "
                        f"{first}: {patterns[first]:#010x}, MMA-Sim {live[first]:#010x}"
                    )
            dots += live.size
            numbers += int(((live & 0x7FFFFFFF) - np.uint32(1) < 0x7F800000 - 1).sum())
    print(
        f"mmasim {version('mmasim')}: {dots:,} dot products, {numbers:,} of them finite and not zero; "
        f"{wrong} differences"
    )
    return wrong


def main() -> int:
    """Record, or check."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare instead of recording")
    parser.add_argument(
        "--seed", type=int, default=SEED + 1, help="of the other cases that --check compares on"
    )
    options = parser.parse_args()
    if options.check:
        return 1 if check([SEED, options.seed]) else 0
    record()
    return 0


if __name__ == "__main__":
    sys.exit(main())
