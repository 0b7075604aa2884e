# SPDX-License-Identifier: Apache-2.0
"""Room 9: each stage of the record follows from the one before, and the last is what matmul gives."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest

import mxfp
import oracle
from mxfp.accumulate import Fixed
from support import (
    ACCUMULATORS,
    FORMATS,
    bits,
    name_of,
    oracle_result,
    oracle_terms,
    random_blocks,
    same_bits,
)

VECTORS = [(fmt, length) for fmt in FORMATS for length in (1, 33, 100)]


def pair(fmt: mxfp.BlockFormat, length: int) -> tuple[mxfp.BlockArray, mxfp.BlockArray]:
    middle = 127 if fmt.scale is mxfp.E8M0 else 56
    scales = (middle - 8, middle + 9)
    a, b = (random_blocks(fmt, (length,), seed=s, scales=scales) for s in (1, 2))
    return a, b


@pytest.mark.parametrize(("fmt", "length"), VECTORS, ids=name_of)
def test_each_stage_follows_from_the_one_before(fmt, length):
    a, b = pair(fmt, length)
    for accumulator in (None, mxfp.BLACKWELL_MXFP4):
        t = mxfp.trace(a, b, accumulator=accumulator)
        group = fmt.block if accumulator is None else 16
        assert t.group == group
        assert t.a is a
        assert t.b is b
        integers = [
            [
                int(oracle.element(fmt.element.name, c) / oracle.element(fmt.element.name, 1))
                for c in q.codes.tolist()
            ]
            for q in (a, b)
        ]
        for side, found in zip(integers, (t.a_integers, t.b_integers), strict=True):
            assert found.ravel()[:length].tolist() == side
            assert not found.ravel()[length:].any()
            assert found.shape == (len(t.terms), group)
        products = [
            [int(x) * int(y) for x, y in zip(p, q, strict=True)]
            for p, q in zip(t.a_integers, t.b_integers, strict=True)
        ]
        assert t.products.tolist() == products
        level = products
        for stage in t.levels:
            level = [[sum(row[i : i + 2]) for i in range(0, len(row), 2)] for row in level]
            assert stage.tolist() == level
        assert all(len(row) == 1 for row in level)
        significands = 1
        if fmt.tensor_scale:
            share = fmt.block // group
            significands = [
                int(fmt.scale.significands[x]) * int(fmt.scale.significands[y])
                for x, y in zip(np.repeat(a.scales, share), np.repeat(b.scales, share), strict=True)
            ]
        assert t.terms.sums.tolist() == (np.array(level, object)[:, 0] * significands).tolist()
        expected = oracle_terms(a, b, group=group)
        assert t.terms.fractions().tolist()[: len(expected)] == expected


@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_widths_of_products_and_levels_are_those_of_the_oracle_and_hold(fmt):
    a, b = pair(fmt, 70)
    t = mxfp.trace(a, b)
    assert len(t.level_widths) == len(t.levels) + 1
    stages = [t.products, *t.levels]
    for n, (stage, width) in enumerate(zip(stages, t.level_widths, strict=True)):
        assert width == oracle.signed_bits(*oracle.adder_bounds(fmt.element.name, fmt.element.name, 2**n))
        values = [int(v) for v in stage.ravel()]
        assert -(2 ** (width - 1)) <= min(values)
        assert max(values) < 2 ** (width - 1)
    if fmt is mxfp.MXFP4:
        assert t.level_widths == (9, 10, 11, 12, 13, 14)


@pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=name_of)
@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4, mxfp.MXFP8_E5M2], ids=name_of)
def test_the_result_has_the_bits_of_matmul_and_of_the_oracle(fmt, accumulator):
    a, b = pair(fmt, 64)
    t = mxfp.trace(a, b, accumulator=accumulator)
    found = mxfp.matmul(a, b, accumulator=accumulator)
    same_bits(np.asarray(t.result), np.asarray(found))
    assert t.result_bits == int(bits(found)[()])
    assert t.result_bits == oracle_result(accumulator, a, b)
    assert t.accumulator == accumulator
    last = t.steps[-1].state
    same_bits(np.asarray(accumulator.finish(last, t.terms)), np.asarray(t.result))


def test_steps_of_the_default_accumulator_are_its_partial_sums():
    a, b = pair(mxfp.MXFP4, 200)
    t = mxfp.trace(a, b)
    terms = oracle_terms(a, b)
    for n, step in enumerate(t.steps):
        assert isinstance(step.added, Fixed)
        assert int(step.added.integers) * Fraction(2) ** int(step.added.exponent) == terms[n]
        assert int(bits(step.state)[()]) == oracle.sequential(terms[: n + 1], "float32")


def test_a_record_is_frozen_and_takes_two_vectors():
    a, b = pair(mxfp.MXFP4, 40)
    t = mxfp.trace(a, b)
    with pytest.raises(dataclasses.FrozenInstanceError):
        t.result = 0
    matrix = mxfp.quantize(np.ones((2, 40)))
    with pytest.raises(ValueError, match=r"b has shape \(2, 40\)"):
        mxfp.trace(a, matrix)
    with pytest.raises(TypeError, match="must be a BlockArray"):
        mxfp.trace(a, np.ones(40))
    with pytest.raises(TypeError, match="accumulator must be"):
        mxfp.trace(a, b, accumulator="exact")
    with pytest.raises(ValueError, match=r"\(40,\).*\(41,\)"):
        mxfp.trace(a, mxfp.quantize(np.ones(41)))


def test_a_nan_scale_shows_in_the_terms_and_the_result():
    a, b = pair(mxfp.MXFP4, 64)
    scales = a.scales.copy()
    scales[1] = 255
    t = mxfp.trace(mxfp.BlockArray(a.codes, scales, mxfp.MXFP4), b)
    assert np.isnan(t.terms.specials).tolist() == [False, True]
    assert t.result_bits == 0x7FC00000


def test_no_elements_make_plus_zero():
    q = mxfp.quantize(np.zeros(0))
    t = mxfp.trace(q, q)
    assert t.steps == ()
    assert t.result_bits == 0
