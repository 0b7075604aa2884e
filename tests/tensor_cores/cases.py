# SPDX-License-Identifier: Apache-2.0
"""Dot products on which tensor cores are compared with MMA-Sim: instructions, inputs, our results."""

import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import mxfp
from mxfp.distributions import DISTRIBUTIONS, draw
from mxfp.formats import POWER_OF_TWO_RULES

HERE = Path(__file__).parent
RESULTS, RECORD = HERE / "results.npz", HERE / "record.json"

MXFP4_16 = mxfp.BlockFormat("E2M1 in 16", mxfp.E2M1, mxfp.E8M0, 16, POWER_OF_TWO_RULES)
EIGHT = (mxfp.MXFP8_E5M2, mxfp.MXFP8_E4M3)
MX = (*EIGHT, mxfp.MXFP6_E3M2, mxfp.MXFP6_E2M3, mxfp.MXFP4)

LOW = "low"
"""Scales of 2**-100 … 2**-66: products lie about float32's subnormals, where the zero exponent counts."""
WIDE = (("near-unit", True), ("wide", True), ("uniform", False), ("bits", False), ("corner", True))
"""Scales, and whether NaN and infinities are left out of all that is drawn."""
FEW = (("near-unit", True), ("wide", True), (LOW, True), ("bits", False))
UNIT = (("unit", True), ("unit", False))


@dataclass(frozen=True)
class Instruction:
    """An instruction that MMA-Sim models, what mxfp calls its adder, and what is multiplied with it.

    shape: (M, K, N) of a product for each pair, distribution and kind of scales.
    """

    name: str
    accumulator: mxfp.Fused
    pairs: tuple[tuple[mxfp.BlockFormat, mxfp.BlockFormat], ...]
    scales: tuple[tuple[Any, bool], ...]
    shape: tuple[int, int, int]

    @property
    def products(self) -> int:
        """Matrix products."""
        return len(self.pairs) * len(DISTRIBUTIONS) * len(self.scales)

    @property
    def dots(self) -> int:
        """Dot products in all of them."""
        return self.products * self.shape[0] * self.shape[2]


def _same(*formats: mxfp.BlockFormat) -> tuple[tuple[mxfp.BlockFormat, mxfp.BlockFormat], ...]:
    return tuple((fmt, fmt) for fmt in formats)


INSTRUCTIONS = {
    instruction.name: instruction
    for instruction in (
        Instruction("mxf4", mxfp.BLACKWELL_MXFP4, _same(mxfp.MXFP4), (*WIDE, (LOW, True)), (32, 160, 32)),
        Instruction("mxf4nvf4", mxfp.BLACKWELL_MXFP4, _same(mxfp.NVFP4), WIDE, (32, 144, 32)),
        Instruction("mxf4nvf4.ue8m0", mxfp.BLACKWELL_MXFP4, _same(MXFP4_16), FEW, (16, 144, 32)),
        Instruction("mxf8f6f4", mxfp.BLACKWELL_MXF8F6F4, tuple(itertools.product(MX, MX)), FEW, (12, 80, 16)),
        Instruction(
            "f8f6f4",
            mxfp.BLACKWELL_MXF8F6F4,
            (*_same(*MX), (MX[0], MX[4]), (MX[1], MX[2])),
            UNIT,
            (12, 80, 16),
        ),
        Instruction("hopper", mxfp.HOPPER_FP8, tuple(itertools.product(EIGHT, EIGHT)), UNIT, (16, 80, 24)),
        Instruction("ada", mxfp.ADA_FP8, tuple(itertools.product(EIGHT, EIGHT)), UNIT, (16, 80, 24)),
    )
}


def products(instruction: Instruction, seed: int) -> Iterator[tuple[mxfp.BlockArray, mxfp.BlockArray]]:
    """The products of an instruction: a (M, K) and b (K, N) in blocks along K, the same for a seed."""
    rows, length, columns = instruction.shape
    rng = np.random.default_rng([seed, *instruction.name.encode()])
    for (fa, fb), (scales, finite), name in itertools.product(
        instruction.pairs, instruction.scales, DISTRIBUTIONS
    ):
        a = draw(name, fa, (rows, length), rng, scales=None if scales == LOW else scales, finite=finite)
        b = draw(
            name, fb, (length, columns), rng, axis=0, scales=None if scales == LOW else scales, finite=finite
        )
        yield (_low(a, rng), _low(b, rng)) if scales == LOW else (a, b)


def _low(q: mxfp.BlockArray, rng: np.random.Generator) -> mxfp.BlockArray:
    words = rng.integers(0, 2**64, q.scales.shape, dtype=np.uint64) >> np.uint64(32)
    scales = 127 - 100 + ((words * np.uint64(35)) >> np.uint64(32))
    return mxfp.BlockArray(q.codes, scales.astype(np.uint8), q.format, q.axis)


def digest(instruction: Instruction, seed: int) -> str:
    """SHA-256 of all codes and scales that `products` draws."""
    found = hashlib.sha256()
    for pair in products(instruction, seed):
        for q in pair:
            for array in (q.codes, q.scales):
                found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def ours(instruction: Instruction, a: mxfp.BlockArray, b: mxfp.BlockArray, engine: Any) -> np.ndarray:
    """The bits (M, N) of mxfp's results."""
    found = mxfp.matmul(a, b, accumulator=instruction.accumulator, engine=engine)
    return np.ascontiguousarray(found).view(np.uint32)


@cache
def recorded() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What was recorded: the seed, versions and digests; and the bits (products, M, N) by instruction."""
    with np.load(RESULTS) as file:
        return json.loads(RECORD.read_text(encoding="utf-8")), {name: file[name] for name in file.files}
