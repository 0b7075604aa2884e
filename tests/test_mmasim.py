# SPDX-License-Identifier: Apache-2.0
"""Tensor cores against MMA-Sim: its results on 206,720 dot products are recorded beside the inputs' digest.

`tensor_cores/record.py` recorded them, and compares live where the package `mmasim` is installed.
"""

import dataclasses

import numpy as np
import pytest

import mxfp
from mxfp.distributions import DISTRIBUTIONS
from mxfp.kernels.plans import plan
from support import size
from tensor_cores import cases
from tensor_cores.cases import INSTRUCTIONS

SEED = cases.recorded()[0]["seed"]
FINITE = 0x7F800000


def compared(instruction, every=1):
    """Each product that is compared: (its number, what MMA-Sim gave, a, b)."""
    kept = cases.recorded()[1][instruction.name]
    for n, (a, b) in enumerate(cases.products(instruction, SEED)):
        if n % every == 0:
            yield n, kept[n], a, b


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_the_inputs_are_those_that_were_recorded(name):
    """Where only this fails, draws have changed, not results: look at numpy's and `draw`, record again."""
    about = cases.recorded()[0]
    assert cases.digest(INSTRUCTIONS[name], SEED) == about["inputs_sha256"][name], about["versions"]


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_every_result_is_that_of_mma_sim(name):
    instruction = INSTRUCTIONS[name]
    for n, kept, a, b in compared(instruction):
        found = cases.ours(instruction, a, b, "reference")
        wrong = np.argwhere(found != kept)
        assert not len(wrong), (
            f"product {n}, {a.format.name} by {b.format.name}: {len(wrong)} differ, first at {wrong[0]}: "
            f"{found[tuple(wrong[0])]:#010x}, MMA-Sim {kept[tuple(wrong[0])]:#010x}"
        )


@pytest.mark.parametrize("name", ["mxf4", "mxf4nvf4", "mxf4nvf4.ue8m0"])
def test_every_result_of_the_kernels_is_that_of_mma_sim(name):
    instruction = INSTRUCTIONS[name]
    rows = size(instruction.shape[0], 1)
    for n, kept, a, b in compared(instruction, every=size(1, 5)):
        assert plan(a.format, b.format, instruction.accumulator) is not None
        few = mxfp.BlockArray(a.codes[:rows], a.scales[:rows], a.format)
        assert np.array_equal(cases.ours(instruction, few, b, "numba"), kept[:rows]), n


def test_what_the_kernels_do_not_do_goes_to_the_reference():
    for name in ("mxf8f6f4", "f8f6f4", "hopper", "ada"):
        instruction = INSTRUCTIONS[name]
        for n, kept, a, b in compared(instruction, every=7):
            assert plan(a.format, b.format, instruction.accumulator) is None
            assert np.array_equal(cases.ours(instruction, a, b, "numba"), kept), n
    assert plan(mxfp.MXFP4, mxfp.MXFP4, mxfp.Fused(35, 16, 64, -139, "scales", 13)) is None


def test_what_was_recorded_is_enough_and_of_every_kind():
    about, kept = cases.recorded()
    total = {name: instruction.dots for name, instruction in INSTRUCTIONS.items()}
    assert about["dots"] == total == {name: found.size for name, found in kept.items()}
    assert sum(total.values()) >= 100_000
    for name in INSTRUCTIONS:
        magnitude = kept[name] & 0x7FFFFFFF
        assert not (kept[name] == 0x80000000).any()  # never -0
        assert set(np.unique(kept[name][magnitude > FINITE]).tolist()) <= {0x7FFFFFFF}
        assert np.mean((magnitude > 0) & (magnitude < FINITE)) > 0.6
        for d in range(len(DISTRIBUTIONS)):
            numbers = magnitude[d :: len(DISTRIBUTIONS)]
            assert ((numbers > 0) & (numbers < FINITE)).sum() > 300, (name, DISTRIBUTIONS[d])
    mxf4 = kept["mxf4"] & 0x7FFFFFFF
    assert ((mxf4 > 0) & (mxf4 < 1 << 23)).any()  # subnormals
    assert (mxf4 == FINITE).any()
    pairs = {(a.name, b.name) for a, b in INSTRUCTIONS["mxf8f6f4"].pairs}
    assert len(pairs) == 25


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *((name, {"fraction_bits": by}) for name in INSTRUCTIONS for by in (-1, 1) if name != "mxf4nvf4"),
        *((name, {"zero_exponent": by}) for name in ("mxf4", "mxf8f6f4") for by in (-1, 1)),
        *((name, {"result_bits": by}) for name in ("hopper", "ada") for by in (-1, 1)),
        ("mxf4", {"step": -32}),
        ("mxf4", {"group": -8}),
        ("hopper", {"step": -16}),
        ("ada", {"step": 16}),
    ],
    ids=str,
)
def test_one_parameter_changed_by_one_is_seen(name, change):
    instruction = INSTRUCTIONS[name]
    values = {field: getattr(instruction.accumulator, field) + by for field, by in change.items()}
    other = dataclasses.replace(instruction.accumulator, **values)
    assert any(
        not np.array_equal(mxfp.matmul(a, b, accumulator=other, engine="reference").view(np.uint32), kept)
        for _, kept, a, b in compared(instruction)
    )
