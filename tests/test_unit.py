# SPDX-License-Identifier: Apache-2.0
"""What a unit should give, case by case: a running accumulator is that of all its terms so far."""

from dataclasses import replace

import numpy as np
import pytest

import mxfp
from mxfp.names import accumulator
from mxfp.verify.unit import Batch, Unit, expected, expected_last
from support import size

ACCUMULATORS = [
    "sequential:float32",
    "sequential:bfloat16:4",
    "sequential:float64",
    "sequential:float16",
    "exact:float32",
    "pairwise:float16",
    "fixed:24:-12:wrap",
    "fixed:14:-2:saturate:nearest_even",
    "fixed:61:-60:wrap",
    "blackwell",
    "blackwell-mxf8f6f4",
    "hopper-fp8",
    "fused:0:4:32:-200",
    "fused:3:1:8:-20:products:4",
]
SIDES = [(mxfp.MXFP4, mxfp.MXFP4), (mxfp.NVFP4, mxfp.MXFP8_E4M3), (mxfp.MXFP8_E5M2, mxfp.MXFP4)]


def sequences(unit, lengths, seed=0):
    """Sequences of these lengths of any codes and scales, NaN and infinities in some of the later cases."""
    rng, n = np.random.default_rng(seed), sum(lengths)
    codes = []
    for fmt in unit.sides:
        finite = rng.choice(np.flatnonzero(fmt.element.finite), (n, unit.elements))
        anything = rng.integers(0, fmt.element.code_count, (n, unit.elements))
        codes.append(np.where(rng.random((n, 1)) < 0.2, anything, finite).astype(np.uint8))
    scales = []
    for fmt in unit.sides:
        one = int(np.flatnonzero(fmt.scale.values == 1)[0])
        near = rng.integers(one - 6, one + 7, (n, unit.blocks))
        anything = rng.integers(0, fmt.scale.code_count, (n, unit.blocks))
        nan = np.where(rng.random((n, unit.blocks)) < 0.1, fmt.scale.nan_code, anything)
        scales.append(np.where(rng.random((n, unit.blocks)) < 0.2, nan, near).astype(np.uint8))
    first = np.zeros(n, np.bool_)
    first[np.cumsum([0, *lengths[:-1]])] = True
    return Batch(unit, *codes, *scales, first, np.zeros(n, np.int64), ("any",))


@pytest.mark.parametrize("sides", SIDES, ids=str)
@pytest.mark.parametrize("name", ACCUMULATORS)
def test_each_case_of_a_sequence_is_the_accumulator_of_all_terms_so_far(name, sides):
    unit = Unit("running", *sides, lanes=32, blocks=2, accumulator=accumulator(name))
    lengths = [1, 3, size(11, 5), 3, 1, 2, 2, 3]
    batch = sequences(unit, lengths)
    found = expected(batch, stages=False)["result"]
    begins = np.flatnonzero(batch.first)
    for row in range(len(batch)):
        begin = begins[begins <= row][-1]
        rows = slice(begin, row + 1)
        arrays = (batch.codes_a, batch.scales_a, batch.codes_b, batch.scales_b)
        flat = [array[rows].reshape(1, -1) for array in arrays]
        a, b = (
            mxfp.BlockArray(*part, fmt) for part, fmt in zip((flat[:2], flat[2:]), unit.sides, strict=True)
        )
        terms = mxfp.block_dots(a, b, group=unit.accumulator.terms_of)
        due = np.asarray(unit.accumulator(terms))
        assert found[row, 0] == due.view(f"u{due.itemsize}")[0], row
    assert len(np.unique(found)) > 2


@pytest.mark.parametrize("unit", [Unit("sum"), Unit("dot", blocks=3), Unit("running", blocks=2)], ids=str)
def test_the_last_case_alone_is_as_in_its_batch(unit):
    lengths = [5] if unit.kind == "running" else [1] * 5
    batch = sequences(unit, lengths)
    if not unit.scaled:
        batch = replace(batch, scales_a=batch.scales_a[:, :0], scales_b=batch.scales_b[:, :0])
    for stages in (True, False):
        whole, last = expected(batch, stages=stages), expected_last(batch, stages=stages)
        assert set(whole) == set(last)
        for name, values in whole.items():
            assert np.array_equal(values[-1:], last[name]), name


def test_a_long_sequence_takes_one_pass():
    unit = Unit("running")
    batch = sequences(unit, [size(3000, 300)])
    steps = []

    class Counting(mxfp.Sequential):
        def _steps(self, terms):
            for step in super()._steps(terms):
                steps.append(step.label)
                yield step

    counted = replace(batch, unit=replace(unit, accumulator=Counting("float32")))
    assert np.array_equal(expected(counted)["result"], expected(batch)["result"])
    assert len(steps) == len(batch)
