# SPDX-License-Identifier: Apache-2.0
"""Vectors: what is expected against the oracle, what each group promises, and the files' bytes."""

import functools
import hashlib
import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

import mxfp
import oracle
import support
from mxfp import cli
from mxfp.names import accumulator as named
from mxfp.sums import reachable_sums
from mxfp.verify.layout import Adapter
from mxfp.verify.unit import Batch, Unit, expected
from mxfp.verify.vectors import Suite, writers
from mxfp.verify.vectors.draws import Draws
from mxfp.verify.vectors.groups import GROUPS, batches, case, plans

UNITS = {
    "sum": Unit("sum"),
    "dot": Unit("dot"),
    "dot of two": Unit("dot", blocks=2),
    "dot of three, bfloat16": Unit("dot", blocks=3, accumulator=named("sequential:bfloat16")),
    "dot of five, exact": Unit("dot", blocks=5, accumulator=named("exact:float32")),
    "dot of four, pairwise float16": Unit("dot", blocks=4, accumulator=named("pairwise:float16")),
    "dot of two, float64": Unit("dot", blocks=2, accumulator=named("sequential:float64")),
    "groups of eight": Unit("dot", blocks=2, accumulator=named("sequential:float32:8")),
    "blackwell": Unit("dot", blocks=4, accumulator=mxfp.BLACKWELL_MXFP4),
    "running": Unit("running"),
    "running, two blocks": Unit("running", blocks=2, accumulator=named("sequential:float16")),
    "running blackwell": Unit("running", blocks=2, accumulator=mxfp.BLACKWELL_MXFP4),
    "running register": Unit("running", accumulator=named("fixed:24:-12:saturate")),
    "register that wraps": Unit("dot", blocks=3, accumulator=named("fixed:20:-6:wrap:nearest_even")),
    "running pairwise": Unit("running", accumulator=named("pairwise:float32")),
    "MXFP8": Unit("dot", mxfp.MXFP8_E4M3, lanes=4),
    "MXFP6": Unit("dot", mxfp.MXFP6_E2M3, mxfp.MXFP6_E3M2, lanes=6, blocks=2),
    "MXINT8": Unit("running", mxfp.MXINT8, lanes=3),
    "NVFP4": Unit("running", mxfp.NVFP4),
    "NVFP4 float16": Unit("dot", mxfp.NVFP4, blocks=3, accumulator=named("sequential:float16")),
    "one lane": Unit("dot", lanes=1),
    "4,064 pairs": Unit("sum", mxfp.MXFP4, mxfp.MXFP8_E4M3),
    "infinities": Unit("running", mxfp.MXFP4, mxfp.MXFP8_E5M2, lanes=2),
    "mxf8f6f4": Unit("dot", mxfp.MXFP8_E4M3, accumulator=mxfp.BLACKWELL_MXF8F6F4),
}
SCALED = [name for name, unit in UNITS.items() if unit.scaled]


# --- the oracle's unit, and a parser of lines that knows the documented layout only


def lsb(fmt):
    """The exponent of an element's LSB."""
    return oracle.floor_log2(min(m for m in oracle.magnitudes(fmt.element.name) if m))


def scale_exponent(fmt, code):
    return code - 127 if fmt.scale.name == "E8M0" else max(code >> 3, 1) - 7 - 3


def integers(fmt, codes):
    values = [oracle.element(fmt.element.name, int(code)) for code in codes]
    return [int(v / oracle.power(lsb(fmt))) if isinstance(v, Fraction) else 0 for v in values]


def oracle_stages(batch, row):
    """What the oracle says of a case, stage by stage."""
    unit = batch.unit
    a, b = unit.sides
    lanes, blocks = unit.a.block, range(unit.blocks)
    level = [
        x * y for x, y in zip(integers(a, batch.codes_a[row]), integers(b, batch.codes_b[row]), strict=True)
    ]
    stages, number = {"product": level}, 0
    rows = [level[lanes * k : lanes * (k + 1)] for k in blocks]
    while len(rows[0]) > 1:
        number += 1
        rows = [[sum(r[i : i + 2]) for i in range(0, len(r), 2)] for r in rows]
        stages[f"level{number}"] = [value for r in rows for value in r]
    stages["sum"] = [r[0] for r in rows]
    if unit.kind == "sum":
        return stages
    scales = [(int(batch.scales_a[row, k]), int(batch.scales_b[row, k])) for k in blocks]
    stages["exponent"] = [scale_exponent(a, s) + scale_exponent(b, t) + lsb(a) + lsb(b) for s, t in scales]
    pair = [
        mxfp.BlockArray(codes[row], chosen[row], fmt)
        for codes, chosen, fmt in ((batch.codes_a, batch.scales_a, a), (batch.codes_b, batch.scales_b, b))
    ]
    kinds = {"nan": 1, "inf": 2, "-inf": 3}
    stages["special"] = [kinds.get(t, 0) if isinstance(t, str) else 0 for t in support.oracle_terms(*pair)]
    first = row
    while not batch.first[first]:
        first -= 1
    whole = [
        mxfp.BlockArray(codes[first : row + 1].ravel(), chosen[first : row + 1].ravel(), fmt)
        for codes, chosen, fmt in ((batch.codes_a, batch.scales_a, a), (batch.codes_b, batch.scales_b, b))
    ]
    stages["result"] = [support.oracle_result(unit.accumulator, *whole)]
    return stages


def parsed(line, unit, *, stages):
    """The fields of a line, from the documentation: bit 0 upward, everything a multiple of four bits."""
    number, found, place = int(line, 16), {}, 0

    def take(name, count, bits, width=0):
        nonlocal place
        for _ in range(count):
            value = number >> place & ((1 << bits) - 1)
            signed = width and value >> (bits - 1)
            found.setdefault(name, []).append(value - (1 << bits) if signed else value)
            place += bits

    def padded(width):
        return (width + 3) // 4 * 4

    a, b = unit.sides
    lanes, n = unit.a.block, unit.a.block * unit.blocks
    take("a", n, padded(a.element.bits))
    take("b", n, padded(b.element.bits))
    if unit.kind != "sum":
        take("scale_a", unit.blocks, 8)
        take("scale_b", unit.blocks, 8)
    take("flags", 1, 4)
    count, number_of = lanes, 0
    while stages:
        terms = min(1 << number_of, lanes)
        width = oracle.signed_bits(*oracle.adder_bounds(a.element.name, b.element.name, terms))
        take(f"level{number_of}" if number_of else "product", count * unit.blocks, padded(width), width)
        if count == 1:
            break
        count, number_of = -(-count // 2), number_of + 1
    width = oracle.signed_bits(*oracle.adder_bounds(a.element.name, b.element.name, lanes))
    take("sum", unit.blocks, padded(width), width)
    if unit.kind != "sum":
        e8m0 = a.scale.name == b.scale.name == "E8M0"
        exponents = [
            scale_exponent(a, s) + scale_exponent(b, s) + lsb(a) + lsb(b) for s in (0, 255 if e8m0 else 127)
        ]
        bits = oracle.signed_bits(*exponents)
        take("exponent", unit.blocks, padded(bits), bits)
        take("special", unit.blocks, 4)
        if not e8m0:
            ends = oracle.adder_bounds(a.element.name, b.element.name, lanes)
            most = 15 ** [a.scale.name, b.scale.name].count("UE4M3")
            largest = oracle.signed_bits(ends[0] * most, ends[1] * most)
            take("term", unit.blocks, padded(largest), largest)
        take("result", 1, unit.accumulator.result_dtype.itemsize * 8)
    assert len(line) == place // 4
    return found


def all_of(unit, **options):
    """All cases of a unit as one batch; the sequences of a running unit lie behind each other in it."""
    found = list(batches(unit, size=1 << 30, **options))
    assert len(found) >= 1
    parts = {
        name: np.concatenate([getattr(b, name) for b in found])
        for name in ("codes_a", "codes_b", "scales_a", "scales_b", "first", "group")
    }
    return Batch(unit, **parts, groups=found[0].groups)


@functools.cache
def only(unit, group, **options):
    return all_of(unit, groups=[group], **options)


def term_values(batch):
    """(n, blocks) exact values of the terms, as fractions; finite ones only."""
    return mxfp.block_dots(*batch.pair).fractions()


def exact_sums(batch):
    """The exact sum of all terms since the last first case, for every case."""
    found, total = [], Fraction(0)
    for first, row in zip(batch.first.tolist(), term_values(batch).tolist(), strict=True):
        total = (Fraction(0) if first else total) + sum(row)
        found.append(total)
    return found


def sequence_ends(batch):
    return np.flatnonzero(np.append(batch.first[1:], True))


def result_bits(batch):
    return expected(batch, stages=False)["result"][:, 0]


# --- expected values


@pytest.mark.parametrize("name", UNITS)
def test_lines_say_what_the_oracle_says_stage_by_stage_in_every_group(name):
    unit = UNITS[name]
    rng = np.random.default_rng(5)
    seen = set()
    for group, plan in plans(unit):
        if not plan.sequences:
            continue
        seen.add(group.name)
        per = support.size(3, 1)
        chosen = {0, plan.sequences - 1, *rng.integers(0, plan.sequences, per).tolist()}
        suite = Suite(unit, groups=(group.name,), stages=True)
        for sequence in sorted(chosen):
            batch, _ = suite.case(sequence * plan.steps_of(unit))
            lines = suite.lines(batch).decode().splitlines()
            assert len(lines) == len(batch)
            for row, line in enumerate(lines):
                found = parsed(line, unit, stages=True)
                assert found["a"] == batch.codes_a[row].tolist()
                assert found["b"] == batch.codes_b[row].tolist()
                assert found["flags"] == [3 if batch.first[row] else 1]
                if unit.scaled:
                    assert found["scale_a"] == batch.scales_a[row].tolist()
                    assert found["scale_b"] == batch.scales_b[row].tolist()
                for stage, values in oracle_stages(batch, row).items():
                    assert found[stage] == values, (group.name, sequence, row, stage)
    assert {"pairs-in-all-lanes", "sum-extremes", "random-near-unit"} <= seen


@pytest.mark.parametrize("name", ["sum", "dot", "MXFP6", "running"])
def test_lines_without_stages_are_equally_long_and_say_the_same(name):
    unit = UNITS[name]
    suite = Suite(unit)
    lengths = set()
    for batch in suite.batches():
        lines = suite.lines(batch).decode().split("\n")
        assert lines.pop() == ""
        assert len(lines) == len(batch)
        lengths |= {len(line) for line in lines}
    assert lengths == {suite.line_bits // 4}
    found = parsed(lines[-1], unit, stages=False)
    stages = oracle_stages(batch, len(batch) - 1)
    assert all(found[stage] == stages[stage] for stage in found if stage in stages)


# --- what each group promises


def test_all_pairs_of_codes_are_in_every_lane():
    batch = only(UNITS["dot"], "pairs")
    lane = np.argmax((batch.codes_a != 0) | (batch.codes_b != 0), axis=1)
    row = np.arange(len(batch))
    found = set(
        zip(lane.tolist(), batch.codes_a[row, lane].tolist(), batch.codes_b[row, lane].tolist(), strict=True)
    )
    expected_pairs = {(k, i, j) for k in range(32) for i in range(16) for j in range(16)}
    assert found | {(k, 0, 0) for k in range(32)} == expected_pairs
    assert ((batch.codes_a != 0) | (batch.codes_b != 0)).sum(axis=1).max() == 1


@pytest.mark.parametrize("name", ["sum", "MXFP8", "MXFP6", "MXINT8", "NVFP4", "infinities", "4,064 pairs"])
def test_all_pairs_of_codes_are_in_every_lane_at_once(name):
    unit = UNITS[name]
    batch = only(unit, "pairs-in-all-lanes")
    finite = [[c for c in range(f.element.code_count) if f.element.finite[c]] for f in unit.sides]
    assert len(batch) == len(finite[0]) * len(finite[1])
    blocks = batch.codes_a.reshape(len(batch), unit.blocks, -1)
    others = batch.codes_b.reshape(len(batch), unit.blocks, -1)
    place = np.argmax((blocks != 0).any(axis=2) | (others != 0).any(axis=2), axis=1)
    row = np.arange(len(batch))
    for lane in range(unit.a.block):
        pairs = blocks[row, place, lane].astype(int) * 256 + others[row, place, lane]
        assert set(pairs.tolist()) == {i * 256 + j for i in finite[0] for j in finite[1]}


def test_walking_lanes_are_one_lane_of_each_sign_and_magnitude():
    batch = only(UNITS["dot"], "walking-lanes")
    used = (batch.codes_a != 0) | (batch.codes_b != 0)
    assert used.sum(axis=1).max() == 1
    for side in (batch.codes_a, batch.codes_b):
        for lane in range(32):
            assert set(side[:, lane].tolist()) == set(range(16))
    sums = expected(batch, stages=False)["sum"][:, 0]
    for lane in range(32):
        assert len(set(sums[used[:, lane]].tolist())) >= 15


def test_walking_holes_leave_one_lane_out():
    batch = only(UNITS["dot"], "walking-holes")
    assert set(expected(batch, stages=False)["sum"][:, 0].tolist()) == {
        31 * 144,
        30 * 144,
        -31 * 144,
        -30 * 144,
    }
    products = expected(batch)["product"]
    odd = [
        np.flatnonzero(p != np.bincount(p + 144).argmax() - 144).tolist() for p in products.astype(np.int64)
    ]
    assert sorted(odd) == sorted([[lane] for lane in range(32)] * 4)


@pytest.mark.parametrize("name", ["sum", "running", "MXFP8", "MXINT8", "MXFP6", "NVFP4", "one lane"])
def test_sums_reach_both_ends_and_their_neighbours(name):
    unit = UNITS[name]
    sums = set(expected(only(unit, "sum-extremes"), stages=False)["sum"].ravel().tolist())
    low, high = oracle.adder_bounds(*(f.element.name for f in unit.sides), unit.a.block)
    assert {low, high} <= sums
    assert {-1, 0, 1} <= sums
    if unit.a.element.bits == 4:
        every = reachable_sums(unit.a, unit.sides[1], unit.a.block).values().tolist()
        assert {*every[:48], *every[-48:]} <= sums
    lanes = unit.a.block
    for value in (v for n in range(5, 40 if lanes > 2 else 0) for v in (1 << n, -(1 << n)) if low < v < high):
        assert any(abs(s - value) <= 2 for s in sums), value


@pytest.mark.parametrize("name", ["dot", "running, two blocks", "MXINT8", "MXFP6"])
def test_every_adder_reaches_both_ends(name):
    unit = UNITS[name]
    found = expected(only(unit, "level-extremes"))
    lanes, level = unit.a.block, 0
    while True:
        values = found[f"level{level}" if level else "product"]
        per = -(-lanes // (1 << level))
        values = values.reshape(len(values) * unit.blocks, per)
        for node in range(per):
            terms = min(1 << level, lanes - node * (1 << level))
            low, high = oracle.adder_bounds(*(f.element.name for f in unit.sides), terms)
            assert (values[:, node].min(), values[:, node].max()) == (low, high), (level, node)
            assert ((values[:, node] < high) & (values[:, node] > high - 200 * abs(high))).any()
        if per == 1:
            break
        level += 1


def test_zeros_of_both_signs_leave_the_result_plus_zero():
    unit = UNITS["dot"]
    batch = only(unit, "signed-zeros")
    found = expected(batch)
    nothing = (found["product"] == 0).all(axis=1)
    assert nothing.sum() >= 200
    assert (~nothing).sum() >= 150
    assert set(found["result"][nothing, 0].tolist()) == {0}
    for zero, other in ((batch.codes_a, batch.codes_b), (batch.codes_b, batch.codes_a)):
        for sign in (0, 8):
            for code in range(16):
                assert ((zero == sign) & (other == code)).any()
    assert {1} == set(np.count_nonzero(found["product"][~nothing], axis=1).tolist())


@pytest.mark.parametrize("name", ["sum", "dot", "MXINT8", "MXFP8", "NVFP4"])
def test_cancellation_is_exact_and_made_of_products(name):
    unit = UNITS[name]
    found = expected(only(unit, "cancellation"))
    assert (found["sum"] == 0).all()
    assert np.count_nonzero(found["product"], axis=1).max() >= unit.a.block - 1
    if unit.scaled:
        assert set(found["result"].ravel().tolist()) == {0}


@pytest.mark.parametrize("name", ["sum", "dot", "MXINT8", "MXFP8", "NVFP4"])
def test_cancellation_but_one_leaves_one_lsb_of_each_sign(name):
    found = expected(only(UNITS[name], "cancellation-but-one"), stages=False)
    assert set(found["sum"].ravel().tolist()) == {-1, 1}


@pytest.mark.parametrize("name", ["dot of two", "running", "blackwell", "MXFP6", "NVFP4", "infinities"])
@pytest.mark.parametrize("left", [0, 1])
def test_blocks_cancel_each_other_exactly_or_but_for_one_lsb(name, left):
    unit = UNITS[name]
    batch = only(unit, "cancellation-across-blocks" + ("-but-one" if left else ""))
    every = exact_sums(batch)
    sums = [every[n] for n in sequence_ends(batch)]
    found = expected(batch, stages=False)
    zero = [s == 0 for s in sums]
    assert all(zero) if not left else not any(zero), name
    assert np.count_nonzero(found["sum"]) > len(sums)
    scales = np.stack([batch.scales_a, batch.scales_b], axis=-1).reshape(len(sums), -1, 2)
    crossed = [len({tuple(s) for s in row if tuple(s) != tuple(row[0])}) > 0 for row in scales.tolist()]
    assert sum(crossed) > len(sums) // 8
    if left:
        total = found["sum"].reshape(len(sums), -1).sum(axis=1)
        assert set(total.tolist()) == {-1, 1}


@pytest.mark.parametrize("name", ["dot", "dot of two", "running", "NVFP4", "blackwell"])
def test_a_nan_scale_is_on_a_on_b_and_on_both_and_neither_zeros_nor_a_sum_of_zero_hide_it(name):
    unit = UNITS[name]
    batch = only(unit, "nan-scales")
    nan = [f.scale.nan_code for f in unit.sides]
    marked = np.stack([batch.scales_a == nan[0], batch.scales_b == nan[1]], axis=-1)
    found = expected(batch)
    kinds = set()
    for row, block in zip(*np.nonzero(marked.any(axis=2)), strict=True):
        products = found["product"].reshape(len(batch), unit.blocks, -1)[row, block]
        content = "sum" if products.sum() else "cancelled" if products.any() else "zeros"
        kinds.add((tuple(marked[row, block].tolist()), content, int(block)))
    sides = [(True, False), (False, True), (True, True)]
    contents = ("sum", "cancelled", "zeros")
    assert kinds == {(s, c, k) for s in sides for c in contents for k in range(unit.blocks)}
    ends = sequence_ends(batch)
    dtype = unit.accumulator.result_dtype
    values = found["result"][:, 0].astype(f"u{dtype.itemsize}").view(dtype).astype(np.float64)
    assert np.isnan(values[ends]).all()
    assert unit.kind != "running" or not np.isnan(values).all()


def test_scales_cross_at_their_corners_and_reach_every_sum():
    batch = only(UNITS["dot"], "scale-corners")
    pairs = set(zip(batch.scales_a[:, 0].tolist(), batch.scales_b[:, 0].tolist(), strict=True))
    corners = (0, 1, 126, 127, 128, 253, 254)
    assert {(s, t) for s in corners for t in corners} <= pairs
    batch = only(UNITS["dot"], "scale-sums")
    total = batch.scales_a.astype(int) + batch.scales_b
    assert set(total.ravel().tolist()) == set(range(509))


@pytest.mark.parametrize("name", ["MXFP8", "infinities", "mxf8f6f4"])
def test_every_element_that_is_no_number_is_in_every_lane(name):
    unit = UNITS[name]
    batch = only(unit, "special-elements")
    for codes, fmt in zip((batch.codes_a, batch.codes_b), unit.sides, strict=True):
        for code in np.flatnonzero(~fmt.element.finite).tolist():
            assert all((codes[:, lane] == code).any() for lane in range(unit.a.block))
    assert (expected(batch, stages=False)["special"] != 0).all()


SINGLES = {
    "float32": Unit("dot"),
    "float32, two": Unit("dot", blocks=2),
    "bfloat16": Unit("dot", accumulator=named("sequential:bfloat16")),
    "float16, three": Unit("dot", blocks=3, accumulator=named("exact:float16")),
    "running": Unit("running"),
    "INT8": Unit("dot", mxfp.MXINT8),
    "blackwell": Unit("dot", blocks=2, accumulator=mxfp.BLACKWELL_MXFP4),
}


def ends_of(unit, group):
    """Exact sum and result bits of each sequence of a group."""
    batch = only(unit, group)
    ends = sequence_ends(batch)
    sums, bits = exact_sums(batch), result_bits(batch)
    return [(sums[n], int(bits[n])) for n in ends]


@pytest.mark.parametrize("name", SINGLES)
def test_results_land_just_below_at_and_above_overflow(name):
    unit = SINGLES[name]
    dtype = unit.accumulator.result_dtype.name
    infinity, sign = oracle.infinity_bits(dtype), oracle.sign_bit(dtype)
    found = ends_of(unit, "overflow")
    bits = {b for _, b in found}
    assert {infinity, infinity | sign} <= bits
    top = oracle.power(int(ml_dtypes.finfo(unit.accumulator.result_dtype).maxexp))
    below = [s for s, b in found if abs(s) < top]
    assert {s > 0 for s in below} == {True, False}
    assert any(s == top for s, _ in found)
    assert any(s > top for s, _ in found)
    largest = oracle.bits_to_fraction(infinity - 1, dtype)
    if name != "float32" and name != "INT8":
        half = (top - largest) / 2
        for d in (-half / 2, half / 2, 0):
            assert {s for s, _ in found} >= {largest + half + d, -largest - half - d}
        assert {infinity - 1, (infinity - 1) | sign} <= bits


@pytest.mark.parametrize("name", SINGLES)
def test_results_land_at_and_beside_the_smallest_normal(name):
    unit = SINGLES[name]
    dtype = unit.accumulator.result_dtype.name
    found = ends_of(unit, "smallest-normal")
    normal = oracle.power(int(ml_dtypes.finfo(unit.accumulator.result_dtype).minexp))
    assert {normal, -normal} <= {s for s, _ in found}
    assert any(0 < s < normal for s, _ in found)
    assert any(normal < s < 2 * normal for s, _ in found)
    pattern = oracle.round_to(normal, dtype)
    bits = {b for _, b in found}
    assert {pattern, pattern | oracle.sign_bit(dtype)} <= bits
    if name not in ("float32", "INT8"):
        assert {pattern - 1, pattern + 1} <= bits


@pytest.mark.parametrize("name", SINGLES)
def test_results_are_subnormals_of_every_length(name):
    unit = SINGLES[name]
    dtype = unit.accumulator.result_dtype.name
    found = ends_of(unit, "subnormals")
    normal = oracle.round_to(oracle.power(int(ml_dtypes.finfo(unit.accumulator.result_dtype).minexp)), dtype)
    magnitudes = {b & ~oracle.sign_bit(dtype) for _, b in found}
    assert {b.bit_length() for b in magnitudes} >= set(range(1, normal.bit_length()))
    assert set(range(1, 17)) <= magnitudes


@pytest.mark.parametrize("name", SINGLES)
def test_half_the_smallest_goes_to_zero_and_just_above_to_the_smallest(name):
    unit = SINGLES[name]
    dtype = unit.accumulator.result_dtype.name
    sign = oracle.sign_bit(dtype)
    smallest = oracle.bits_to_fraction(1, dtype)
    found = ends_of(unit, "half-the-smallest")
    exact = [(s / smallest, b) for s, b in found if s]
    halves = {s: b for s, b in exact if abs(s) == Fraction(1, 2)}
    assert set(halves) == {Fraction(1, 2), Fraction(-1, 2)}
    above = [(s, b) for s, b in exact if Fraction(1, 2) < s < Fraction(5, 8)]
    beneath = [(s, b) for s, b in exact if Fraction(3, 8) < s < Fraction(1, 2)]
    assert above
    assert beneath
    if isinstance(unit.accumulator, mxfp.Fused):
        assert {b for s, b in exact if abs(s) < 1} == {0}
    else:
        assert halves == {Fraction(1, 2): 0, Fraction(-1, 2): sign}
        assert {b for s, b in exact if s == Fraction(3, 2)} == {2}
        if unit.kind == "dot" and unit.blocks == 1:
            assert {b for _, b in above} == {1}
            assert {b for _, b in beneath} == {0}


def neighbours(x, dtype):
    """The results below and above a positive number, and the bits of the lower one."""
    below = oracle.pattern_below(x, dtype)
    return oracle.bits_to_fraction(below, dtype), oracle.bits_to_fraction(below + 1, dtype), below


TIED = ["float32, two", "bfloat16", "float16, three", "running", "blackwell"]


@pytest.mark.parametrize("name", TIED)
def test_ties_are_midway_above_even_and_odd_results(name):
    unit = SINGLES[name]
    dtype = unit.accumulator.result_dtype.name
    infinity = oracle.infinity_bits(dtype)
    parities = set()
    carried = 0
    for value, bits in ends_of(unit, "ties"):
        low, high, below = neighbours(abs(value), dtype)
        assert below + 1 < infinity
        assert abs(value) * 2 == low + high
        parities.add((below & 1, value > 0))
        mantissa = 1 << int(ml_dtypes.finfo(unit.accumulator.result_dtype).nmant)
        carried += (below + 1) % mantissa == 0
        if not isinstance(unit.accumulator, mxfp.Fused):
            assert bits & ~oracle.sign_bit(dtype) == below + (below & 1)
    assert parities == {(0, True), (0, False), (1, True), (1, False)}
    assert carried >= 4


@pytest.mark.parametrize("name", TIED)
def test_a_sticky_bit_near_or_far_breaks_the_tie_both_ways(name):
    unit = SINGLES[name]
    dtype = unit.accumulator.result_dtype.name
    ways = set()
    distances = set()
    for value, _ in ends_of(unit, "sticky"):
        low, high, below = neighbours(abs(value), dtype)
        off = (abs(value) - (low + high) / 2) / (high - low)
        assert 0 < abs(off) <= Fraction(1, 4)
        ways.add((off > 0, below & 1, value > 0))
        distances.add(oracle.floor_log2(abs(off)))
    assert {(o, s) for o, _, s in ways} == {(o, s) for o in (True, False) for s in (True, False)}
    assert {p for _, p, _ in ways} == {0, 1}
    assert min(distances) < (-20 if name in ("float16, three", "running") else -3)


@pytest.mark.parametrize("name", ["dot of two", "running", "blackwell", "running register"])
def test_small_terms_are_swamped_at_every_distance(name):
    unit = UNITS[name]
    batch = only(unit, "swamping")
    terms = term_values(batch)
    ends = sequence_ends(batch)
    steps = np.split(terms, ends[:-1] + 1)
    gaps = set()
    for sequence in steps:
        found = [oracle.floor_log2(abs(t)) for t in sequence.ravel().tolist() if t]
        gaps.add(max(found) - min(found))
    grid = 35 if isinstance(unit.accumulator, mxfp.Fused) else 23
    assert set(range(1, grid + 3)) <= gaps


def sequences_of(batch, values):
    """Rows of a batch -> an array for each sequence."""
    return np.split(values, sequence_ends(batch)[:-1] + 1)


def log2(value):
    """The exponent of a power of two, and None for any other number."""
    exponent = oracle.floor_log2(abs(value))
    return exponent if abs(value) == oracle.power(exponent) else None


@pytest.mark.parametrize("name", ["dot of two", "running", "blackwell", "groups of eight"])
def test_the_widest_sums_meet_a_power_of_two_at_every_distance_until_they_are_lost(name):
    unit = UNITS[name]
    batch = only(unit, "swamping-widest")
    sums = expected(batch, stages=False)["sum"]
    seen = set()
    pairs = zip(sequences_of(batch, sums), sequences_of(batch, term_values(batch)), strict=True)
    for integers_of, terms in pairs:
        (wide,) = (s for s in (4473, -4473) if s in integers_of)  # 31 * 144 + 9, the largest odd one
        one, other = (t for t in terms.ravel().tolist() if t)
        order = log2(one) is not None
        power, small = (one, other) if order else (other, one)
        seen.add((order, power > 0, wide > 0, log2(power) - log2(small / wide)))
    kept = 35 if isinstance(unit.accumulator, mxfp.Fused) else 23
    turns = [(o, p, w) for o in (True, False) for p in (True, False) for w in (True, False)]
    assert {(*turn, gap) for turn in turns for gap in range(1, kept + 13 + 4)} <= seen


@pytest.mark.parametrize("name", ["dot of two", "running", "blackwell", "dot of three, bfloat16"])
def test_the_smallest_results_have_a_trace_above_and_below_them_at_every_distance(name):
    unit = UNITS[name]
    dtype = unit.accumulator.result_dtype.name
    smallest = oracle.bits_to_fraction(1, dtype)
    batch = only(unit, "trace-beside-the-smallest")
    ends = sequence_ends(batch)
    bits = result_bits(batch)[ends].tolist()
    seen, gone = set(), set()
    for terms, result in zip(sequences_of(batch, term_values(batch)), bits, strict=True):
        one, other = (t / smallest for t in terms.ravel().tolist() if t)
        order = abs(one) > abs(other)
        whole, trace = (one, other) if order else (other, one)
        assert whole.denominator == 1
        seen.add((order, whole > 0, trace > 0, -log2(trace)))
        if (whole > 0) != (trace > 0):
            gone.add((int(abs(whole)) - (result & ~oracle.sign_bit(dtype)), -log2(trace)))
    fused = isinstance(unit.accumulator, mxfp.Fused)
    farthest = int(ml_dtypes.finfo(unit.accumulator.result_dtype).nmant) + 6
    turns = [(o, w, t) for o in (True, False) for w in (True, False) for t in (True, False)]
    assert {(*turn, far) for turn in turns for far in range(1, farthest + 1)} == seen
    if fused:  # zeros have the exponent -139, and what is below 2**-174 is cut: 25 binades below 2**-149
        assert {far for less, far in gone if less == 1} == set(range(1, 26))
        assert {less for less, far in gone if far > 25} == {0}
    else:
        assert {less for less, far in gone if far > 1} == {0}


@pytest.mark.parametrize("name", ["dot of two", "running", "blackwell", "MXFP6"])
def test_lanes_that_cancel_two_by_two_at_large_scales_stand_beside_a_small_sum(name):
    unit = UNITS[name]
    batch = only(unit, "cancelled-beside-small")
    found = expected(batch)
    products = found["product"].reshape(len(batch), unit.blocks, -1)
    even = products.shape[2] // 2 * 2
    paired = (products[:, :, 0:even:2] == -products[:, :, 1:even:2]).all(axis=2)
    cancelled = sequences_of(batch, paired & products.any(axis=2))
    scales = sequences_of(batch, found["exponent"] - sum(lsb(f) for f in unit.sides))
    sums = sequences_of(batch, term_values(batch))
    dtype = unit.accumulator.result_dtype.name
    gaps, results = set(), result_bits(batch)[sequence_ends(batch)].tolist()
    cut = 0
    for where, exponents, terms, result in zip(cancelled, scales, sums, results, strict=True):
        (exponent,) = exponents[where].tolist()
        assert not any(terms[where].tolist())
        (small,) = (t for t in terms.ravel().tolist() if t)
        lowest = next(n for n in range(-400, 200) if (small / oracle.power(n)).numerator % 2)
        gaps.add((exponent - lowest, small > 0))
        cut += result != oracle.round_to(small, dtype)
    kept = 35 if isinstance(unit.accumulator, mxfp.Fused) else 23
    assert {(gap, sign) for gap in range(1, kept + 12) for sign in (True, False)} <= gaps
    assert bool(cut) == isinstance(unit.accumulator, mxfp.Fused)


def test_an_accumulator_meets_its_opposite_and_all_but_it():
    batch = only(UNITS["running"], "opposite-accumulator")
    sums = exact_sums(batch)
    bits = result_bits(batch)
    ends = sequence_ends(batch)
    zero = [n for n in ends if sums[n] == 0]
    assert len(zero) > 200
    assert {int(bits[n]) for n in zero} == {0, 0x80000000}  # -0 where what is taken away is below it all
    assert [int(bits[n]) for n in zero].count(0) > 200
    assert len({abs(sums[n]) for n in ends}) > 50


def test_sequences_follow_one_that_left_something_behind():
    unit = UNITS["running"]
    batch = only(unit, "stale-accumulator")
    values = result_bits(batch).astype(np.uint32).view(np.float32)
    before = values[np.flatnonzero(batch.first)[1:] - 1]
    after = values[np.flatnonzero(batch.first)[1:]]
    small = np.isfinite(after) & (np.abs(after) < 100)
    assert (np.isnan(before) & small).sum() >= 4
    assert (np.isinf(before) & small).sum() >= 4
    assert (np.isfinite(before) & (np.abs(before) > 1e30) & small).sum() >= 4
    assert unit.kind == "running"
    assert plans(UNITS["dot"], 1, 0, ("stale-accumulator",))[0][1].why == "the unit keeps no accumulator"


def test_random_groups_have_the_scales_that_they_say():
    unit = UNITS["dot"]
    near, uniform, corner = (only(unit, f"random-{name}") for name in ("near-unit", "uniform", "corner"))
    assert (near.scales_a.min(), near.scales_a.max()) == (123, 131)
    assert set(uniform.scales_b.ravel().tolist()) == set(range(255))
    assert set(corner.scales_a.ravel().tolist()) == {0, 1, 127, 253, 254}
    for batch in (near, uniform, corner):
        assert len(batch) == 4096
        counts = np.bincount(batch.codes_a.ravel(), minlength=16)
        assert counts.min() > 0.9 * batch.codes_a.size / 16


def test_random_cancellations_are_exact_and_off_by_one_by_turns():
    found = expected(only(UNITS["dot"], "random-cancelling", level=2, count=400), stages=False)
    assert [int(v) for v in np.abs(found["sum"][:, 0])] == [1, 0] * 200


def test_running_sequences_have_several_steps_and_lie_in_one_batch():
    for batch in batches(UNITS["running"], size=1001):
        assert batch.first[0]
        assert 900 < len(batch) <= 1001 or batch.start + len(batch) == Suite(UNITS["running"]).cases
    lengths = np.diff(np.flatnonzero(only(UNITS["running"], "random-uniform").first))
    assert set(lengths.tolist()) == {4}


# --- the same bytes


def digest(suite, size):
    found = hashlib.sha256()
    for batch in suite.batches(size=size):
        found.update(suite.lines(batch))
    return found.hexdigest()


@pytest.mark.parametrize("name", ["dot", "running, two blocks", "MXINT8"])
def test_bytes_do_not_depend_on_how_cases_are_cut_into_batches(name):
    suite = Suite(UNITS[name], level=2, count=5000, seed=7)
    assert len({digest(suite, size) for size in (1 << 12, 1 << 15, 777)}) == 1


def test_bytes_are_those_of_another_process_and_another_seed_has_others():
    suite = Suite(UNITS["dot of two"], groups=("random-uniform", "ties", "cancellation"))
    command = [sys.executable, "-m", "mxfp", "vectors", "dot", "--blocks", "2", "--stdout"]
    command += ["--group", "random-uniform", "--group", "ties", "--group", "cancellation"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert hashlib.sha256(done.stdout).hexdigest() == digest(suite, 4096)
    other = Suite(suite.unit, seed=1, groups=suite.groups)
    assert digest(other, 4096) != digest(suite, 4096)


def test_the_bytes_of_level_one_are_these():
    """Recorded: a change of any case needs a new GENERATOR, so that old sidecars are refused."""
    recorded = {
        "sum": "96674d58526d1c0e2e29bcf314848f5164550b934460e437361dec06b6e1a9b4",
        "dot": "48b292019d1cb274cdd4d70c7e9c081cea2b1ea08dd1518d71d0dc4b83f58b08",
        "running": "f56250a57baca9821df18ed52735b3cc4fc4d963983d20a9b4306573d2f1e6dc",
    }
    assert {name: digest(Suite(UNITS[name]), 4096) for name in recorded} == recorded


def test_draws_are_splitmix64():
    key = int.from_bytes(hashlib.sha256(b"mxfp-vectors/1 3 group use").digest()[:8], "little")
    words = Draws(3, "group").words("use", np.array([0, 5]), 4)
    for row, first in ((0, 0), (1, 20)):
        for n in range(4):
            assert int(words[row, n]) >> 32 == oracle.splitmix64_draw(key, first + n)


def test_a_case_made_alone_is_the_one_of_the_suite():
    unit = UNITS["running"]
    whole = all_of(unit)
    for number in (0, 517, 9000, 30001, len(whole) - 1):
        batch, place = case(unit, number)
        assert batch.start + place == number
        assert np.array_equal(batch.codes_a[place], whole.codes_a[number])
        assert batch.groups[batch.group[place]] == whole.groups[whole.group[number]]
    with pytest.raises(IndexError, match="there are"):
        case(unit, len(whole))


# --- sizes, choices and wrong calls


@pytest.mark.parametrize("name", UNITS)
def test_level_one_is_tens_of_thousands_of_cases_in_the_order_of_the_groups(name):
    suite = Suite(UNITS[name])
    assert 15_000 <= suite.cases < 150_000
    counted = dict.fromkeys(suite.tally, 0)
    start = 0
    for batch in suite.batches():
        assert batch.start == start
        start += len(batch)
        for number, count in zip(*np.unique(batch.group, return_counts=True), strict=True):
            counted[batch.groups[number]] += int(count)
    assert counted == suite.tally
    assert start == suite.cases
    assert list(suite.tally) == [group.name for group in GROUPS if group.level == 1]
    assert set(suite.empty) == {group for group, count in suite.tally.items() if not count}
    assert all(suite.empty.values())


def test_level_two_is_level_one_and_as_many_random_cases_as_asked_for():
    unit = UNITS["dot"]
    one, two = Suite(unit), Suite(unit, level=2, count=10_000)
    assert two.cases - one.cases == pytest.approx(10_000, abs=20)
    for name in ("sum", "running", "one lane"):
        more = Suite(UNITS[name], level=2, count=9000).cases - Suite(UNITS[name]).cases
        assert more == pytest.approx(9000, abs=40)
    none = Suite(unit, level=2, count=0)
    assert none.cases == one.cases
    assert none.empty["random-edges"] == "count 0 leaves none for it"
    constructed = [name for name in one.tally if not name.startswith("random")]
    assert {n: one.tally[n] for n in constructed} == {n: two.tally[n] for n in constructed}
    assert np.array_equal(
        only(unit, "random-uniform").codes_a,
        only(unit, "random-uniform", level=2, count=9000).codes_a[:4096],
    )


def test_wide_units_are_made_in_little_memory():
    unit = Unit("dot", lanes=4096, blocks=4)
    for batch in batches(unit, groups=["walking-lanes"]):
        assert batch.codes_a.nbytes <= 1 << 21
        break


def test_wrong_choices_are_named():
    with pytest.raises(ValueError, match="no group 'tie' at level 1; there are signed-zeros, pairs,"):
        Suite(UNITS["dot"], groups=("tie",))
    with pytest.raises(ValueError, match="that group is of level 2"):
        Suite(UNITS["dot"], groups=("random-edges",))
    with pytest.raises(ValueError, match="level is 1 or 2, got 3"):
        Suite(UNITS["dot"], level=3)
    with pytest.raises(ValueError, match="of level 2; got 5 at level 1"):
        Suite(UNITS["dot"], count=5)
    with pytest.raises(ValueError, match="say what the register does instead, wrap or saturate"):
        Suite(Unit("dot", accumulator=named("fixed:24:-12")))
    with pytest.raises(ValueError, match="no cases: the unit takes no scales"):
        Suite(UNITS["sum"], groups=("nan-scales",))
    with pytest.raises(ValueError, match="seed is a whole number"):
        Suite(UNITS["dot"], seed=-1)
    with pytest.raises(ValueError, match="even number of 4-bit codes"):
        Suite(UNITS["MXFP8"], adapter=Adapter(nibbles="high_first"))


# --- adapters


def swapped_nibbles(codes):
    return [c for n in range(0, len(codes), 2) for c in (codes[n + 1], codes[n])]


def test_adapters_undone_give_the_plain_lines():
    unit = UNITS["dot of two"]
    plain = Suite(unit, groups=("random-uniform",))
    mapping = tuple((5 * c + 3) % 16 for c in range(16))
    back = {mapped: code for code, mapped in enumerate(mapping)}
    batch = next(plain.batches(size=50))
    adapter = Adapter("descending", "high_first", "ba", mapping, "little")
    suite = Suite(unit, adapter=adapter, groups=("random-uniform",))
    for line, other in zip(plain.lines(batch).split(), suite.lines(batch).split(), strict=True):
        found = parsed(line.decode(), unit, stages=False)
        whole = bytes.fromhex(other.decode())[::-1].hex()
        whole = whole[len(whole) - len(line) :]
        adapted = parsed(whole, unit, stages=False)
        for side in ("a", "b"):
            codes = [back[c] for c in swapped_nibbles(adapted[side])][::-1]
            assert codes == found[side]
        assert (adapted["scale_a"], adapted["scale_b"]) == (found["scale_b"], found["scale_a"])
        for name in ("flags", "sum", "exponent", "special", "result"):
            assert adapted[name] == found[name]


@pytest.mark.parametrize(
    "adapter",
    [
        Adapter(lanes="descending"),
        Adapter(nibbles="high_first"),
        Adapter(scales="ba"),
        Adapter(codes=tuple(range(16))[::-1]),
        Adapter(endian="little"),
    ],
)
def test_every_adapter_changes_the_lines(adapter):
    plain = Suite(UNITS["dot"], groups=("random-uniform",))
    suite = Suite(UNITS["dot"], groups=("random-uniform",), adapter=adapter)
    batch = next(plain.batches())
    assert suite.lines(batch) != plain.lines(batch)


# --- files


def small(name="dot", **options):
    return Suite(UNITS[name], groups=("nan-scales", "scale-corners"), **options)


def test_files_are_what_the_sidecar_says(tmp_path):
    suite = small()
    paths = writers.write_suite(suite, tmp_path / "v", formats=("hex", "columns", "jsonl"))
    assert [p.name for p in paths] == ["dot.hex", "dot.txt", "dot.jsonl", "dot.svh", "dot.json"]
    assert sorted(p.name for p in (tmp_path / "v").iterdir()) == sorted(p.name for p in paths)
    sidecar = json.loads((tmp_path / "v" / "dot.json").read_text())
    assert sidecar["schema"] == "mxfp-vectors/1"
    assert sidecar["cases"] == suite.cases == sum(g["cases"] for g in sidecar["groups"])
    assert sidecar["unit"]["accumulator"]["parameters"] == {"dtype": "float32", "group": None}
    for entry in sidecar["files"].values():
        content = (tmp_path / "v" / entry["name"]).read_bytes()
        assert entry["sha256"] == hashlib.sha256(content).hexdigest()
        assert entry["bytes"] == len(content)
    lines = (tmp_path / "v" / "dot.hex").read_text().splitlines()
    assert {len(line) for line in lines} == {sidecar["line_digits"]}
    first = 0
    for group in sidecar["groups"]:
        assert group["first"] == first
        first += group["cases"]
    bits = {f["name"]: (f["lsb"], f["bits"], f["count"]) for f in sidecar["fields"]}
    assert bits["result"] == (308, 32, 1)
    include = (tmp_path / "v" / "dot.svh").read_text()
    assert f"localparam integer MXFP_CASES = {suite.cases};" in include
    assert "localparam integer MXFP_SUM_LSB = 276;" in include


def test_columns_and_json_lines_say_what_the_hex_lines_say(tmp_path):
    suite = small("dot of two", stages=True)
    writers.write_suite(suite, tmp_path, name="x", formats=("hex", "columns", "jsonl"))
    lines = (tmp_path / "x.hex").read_text().splitlines()
    heading, *columns = (tmp_path / "x.txt").read_text().splitlines()
    names = heading.removeprefix("# ").split()
    rows = [json.loads(row) for row in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert len(lines) == len(columns) == len(rows) == suite.cases
    for n, (line, column, row) in enumerate(zip(lines, columns, rows, strict=True)):
        found = parsed(line, suite.unit, stages=True)
        assert "".join(column.split()[::-1]) == line
        assert len(column.split()) == len(names)
        assert row["index"] == n
        assert row["group"] == ("scale-corners" if n < suite.tally["scale-corners"] else "nan-scales")
        for name in ("a", "b", "scale_a", "scale_b"):
            assert row[name] == found[name]
        for name, values in row["expected"].items():
            assert found[name] == ([int(values, 16)] if name == "result" else values)


@pytest.mark.parametrize("name", ["sum", "dot", "running blackwell", "NVFP4", "register that wraps", "MXFP6"])
def test_a_sidecar_makes_the_suite_again(tmp_path, name):
    groups = ("sum-extremes", "random-near-unit")
    suite = Suite(UNITS[name], 2, 11, Adapter(scales="ba"), True, groups, 300)
    writers.write_suite(suite, tmp_path, name="x")
    again = Suite.from_sidecar(tmp_path / "x.json")
    assert again == suite
    content = b"".join(again.lines(batch) for batch in again.batches())
    assert content == (tmp_path / "x.hex").read_bytes()


def edited(tmp_path, change):
    writers.write_suite(small(), tmp_path, name="x")
    sidecar = json.loads((tmp_path / "x.json").read_text())
    change(sidecar)
    (tmp_path / "x.json").write_text(json.dumps(sidecar))
    return tmp_path / "x.json"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.update(schema="mxfp-vectors/0"), "its schema is 'mxfp-vectors/0'"),
        (lambda s: s.update(generator=0), "generator 0; this is mxfp .* its generator would differ"),
        (lambda s: s.update(probe="0" * 64), "its probe would differ. Make the vectors again"),
        (lambda s: s["groups"][0].update(cases=1), "its groups would differ"),
        (lambda s: s.update(mxfp="9.9", cases=3), "made by mxfp 9.9.* its cases would differ"),
        (lambda s: s["fields"][0].update(lsb=4), "its fields would differ"),
        (lambda s: s.pop("unit"), "it has no 'unit'"),
        (lambda s: s["unit"]["accumulator"].update(name="magic"), "no such accumulator"),
        (lambda s: s.update(asked_groups=["x"]), "no group 'x'"),
    ],
)
def test_a_sidecar_of_other_vectors_is_refused(tmp_path, change, message):
    path = edited(tmp_path, change)
    with pytest.raises(ValueError, match=message):
        Suite.from_sidecar(path)


def test_what_is_no_sidecar_is_refused(tmp_path):
    path = tmp_path / "x.json"
    for content in (b"", b"[1]", b"{", b"\xff\xfe"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"x\.json is not a sidecar"):
            Suite.from_sidecar(path)


def test_an_interrupted_write_leaves_nothing(tmp_path):
    def interrupt(what, done, total):
        raise KeyboardInterrupt

    (tmp_path / "x.hex").write_text("old\n")
    with pytest.raises(KeyboardInterrupt):
        writers.write_suite(small(), tmp_path, name="x", progress=interrupt)
    assert [p.name for p in tmp_path.iterdir()] == ["x.hex"]
    assert (tmp_path / "x.hex").read_text() == "old\n"


def test_a_name_is_a_file_s(tmp_path):
    for name in ("", "a/b", "..", ".x"):
        with pytest.raises(ValueError, match="name is that of a file"):
            writers.write_suite(small(), tmp_path, name=name)


# --- level 1 sees what a wrong unit does


def mutants():
    """Wrong units in numpy: a name and what they give for all cases, from codes and scales alone."""

    def parts(batch):
        unit = batch.unit
        shape = (len(batch), unit.blocks, unit.a.block)
        x = mxfp.E2M1.integers[batch.codes_a].reshape(shape)
        y = mxfp.E2M1.integers[batch.codes_b].reshape(shape)
        return x, y, batch.scales_a.astype(int), batch.scales_b.astype(int)

    def rounded(sums, exponent, nan):
        with np.errstate(over="ignore"):
            value = np.ldexp(sums.astype(np.float64), exponent).astype(np.float32)
        found = value.view(np.uint32).astype(np.uint64)
        return np.where(nan, 0x7FC00000, found)

    def unit_of(change):
        def run(batch):
            x, y, s, t = parts(batch)
            p, s, t, nan = change(x * y, s, t, (s == 255) | (t == 255))
            return rounded(p.sum(axis=-1), s + t - 256, nan)[:, 0]

        return run

    def narrow(width):
        def run(batch):
            x, y, s, t = parts(batch)
            total = (x * y).sum(axis=-1)
            half = 1 << (width - 1)
            return rounded((total + half) % (2 * half) - half, s + t - 256, (s == 255) | (t == 255))[:, 0]

        return run

    def lane(n):
        def change(p, s, t, nan):
            p = p.copy()
            p[..., n] = -p[..., n]
            return p, s, t, nan

        return change

    def flushed(batch):
        right = unit_of(lambda p, s, t, nan: (p, s, t, nan))(batch)
        return np.where(right & 0x7F800000 == 0, right & 0x80000000, right)

    return {
        "right": unit_of(lambda p, s, t, nan: (p, s, t, nan)),
        "13-bit sum": narrow(13),
        "NaN scale ignored": unit_of(lambda p, s, t, nan: (p, s, t, nan & False)),
        "NaN of a only": unit_of(lambda p, s, t, nan: (p, s, t, s == 255)),
        "NaN of zeros ignored": unit_of(lambda p, s, t, nan: (p, s, t, nan & (p != 0).any(axis=-1))),
        "exponent wraps in 9 bits": unit_of(lambda p, s, t, nan: (p, (s + t) % 256, 0 * t, nan)),
        "scale 0 is zero": unit_of(lambda p, s, t, nan: (p * (s > 0)[..., None], s, t, nan)),
        "lane 17 has the other sign": unit_of(lane(17)),
        "a product of 36 only": unit_of(lambda p, s, t, nan: (np.where(p == 2, 3, p), s, t, nan)),
        "subnormals flushed": flushed,
    }


@pytest.mark.parametrize("name", mutants())
def test_level_one_sees_what_a_wrong_unit_does(name):
    unit = UNITS["dot"]
    wrong = {}
    for batch in batches(unit):
        right = result_bits(batch)
        differs = mutants()[name](batch) != right
        for group in np.unique(batch.group[differs]):
            wrong[batch.groups[group]] = True
    if name == "right":
        assert not wrong
    else:
        assert wrong


def test_swapped_scales_are_seen_where_sides_have_different_ones():
    unit = Unit("dot", mxfp.MXFP4, mxfp.NVFP4, lanes=16)
    batch = only(unit, "random-uniform")
    low = np.minimum(batch.scales_a, 126)
    turned = Batch(
        unit, batch.codes_a, batch.codes_b, batch.scales_b, low, batch.first, batch.group, batch.groups
    )
    assert (result_bits(turned) != result_bits(batch)).mean() > 0.5


# --- the command


def run(*arguments):
    return CliRunner().invoke(cli.cli, ["vectors", *map(str, arguments)])


def failed(*arguments):
    command = [sys.executable, "-m", "mxfp", "vectors", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_writes_what_the_library_writes(tmp_path):
    options = ["--group", "ties", "--group", "nan-scales", "--seed", 3, "--stages", "--scale-order", "ba"]
    result = run("dot", "--blocks", 2, *options, "--hex", "--jsonl", "--name", "x", "--out", tmp_path / "a")
    assert result.exit_code == 0, result.output
    suite = Suite(UNITS["dot of two"], 1, 3, Adapter(scales="ba"), stages=True, groups=("ties", "nan-scales"))
    assert Suite.from_sidecar(tmp_path / "a" / "x.json") == suite
    writers.write_suite(suite, tmp_path / "b", name="x", formats=("hex", "jsonl"))
    for path in (tmp_path / "b").iterdir():
        assert path.read_bytes() == (tmp_path / "a" / path.name).read_bytes()


def test_every_option_reaches_the_suite(tmp_path):
    mapping = ",".join(str(15 - c) for c in range(16))
    result = run(
        *("running", "--format", "mxfp4", "--format-b", "nvfp4", "--lanes", 16, "--blocks", 4),
        *("--accumulator", "blackwell", "--level", 2, "--count", 100, "--group", "random-sparse"),
        *("--lane-order", "descending", "--nibble-order", "high_first", "--code-map", mapping),
        *("--endian", "little", "--out", tmp_path),
    )
    assert result.exit_code == 0, result.output
    unit = Unit("running", mxfp.MXFP4, mxfp.NVFP4, 16, 4, mxfp.BLACKWELL_MXFP4)
    adapter = Adapter("descending", "high_first", "ab", tuple(range(16))[::-1], "little")
    suite = Suite.from_sidecar(tmp_path / "running.json")
    assert suite == Suite(unit, 2, 0, adapter, groups=("random-sparse",), count=100)


def test_a_stream_is_the_file(tmp_path):
    run("sum", "--group", "sum-extremes", "--columns", "--out", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "mxfp", "vectors", "sum", "--group", "sum-extremes", "--columns", "--stdout"],
        capture_output=True,
        check=True,
    )
    assert done.stdout == (tmp_path / "sum.txt").read_bytes()
    assert done.stderr == b""


def test_a_stream_ends_quietly_when_nobody_reads_on():
    command = [sys.executable, "-m", "mxfp", "vectors", "dot", "--level", "2", "--stdout"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert len(process.stdout.readline()) == 86
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() != 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dot"], "give --out FOLDER, or --stdout"),
        (["dot", "--out", "x", "--stdout"], "give --out FOLDER, or --stdout"),
        (["dot", "--stdout", "--hex", "--jsonl"], "--stdout takes one of"),
        (["mac", "--stdout"], "'mac' is not one of"),
        (["dot", "--stdout", "--accumulator", "fixed:24:-12"], "say what the register does instead"),
        (["dot", "--stdout", "--group", "nothing"], "no group 'nothing'"),
        (["dot", "--stdout", "--count", "5"], "of level 2"),
        (["dot", "--stdout", "--code-map", "a,b"], "is not numbers with commas"),
        (["dot", "--stdout", "--code-map", "0,1"], "has 16 codes"),
        (["dot", "--stdout", "--format", "mxfp8_e5m2"], "vectors hold at most"),
        (["sum", "--stdout", "--blocks", "2"], "has one block"),
    ],
)
def test_wrong_calls_end_in_one_line(arguments, message):
    done = failed(*arguments)
    assert done.returncode != 0
    assert done.stdout == ""
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


# --- the page


def test_the_page_has_the_groups_and_their_sizes():
    page = (Path(__file__).parents[1] / "docs" / "vectors.md").read_text(encoding="utf-8")
    units = [UNITS[name] for name in ("sum", "dot", "dot of two", "running")]
    tallies = [Suite(unit).tally for unit in units]
    for group in GROUPS:
        counts = [f"{t.get(group.name, 0):,}" if t.get(group.name) else "–" for t in tallies]
        counts = counts if group.level == 1 else ["level 2"] * 4
        assert f"| `{group.name}` | {group.about} | {' | '.join(counts)} |\n" in page
    assert f"| all | of level 1 | {' | '.join(f'{sum(t.values()):,}' for t in tallies)} |" in page
