# SPDX-License-Identifier: Apache-2.0
"""Room 2: every rule gives the oracle's scale at every threshold, in every binade, for every format."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mxfp
import oracle
from mxfp.scale import (
    check_rule,
    exponents,
    power_of_two_codes,
    scale_factors,
    significand_codes,
    step_up,
    tensor_scale_for,
)
from support import ELEMENTS, FORMATS, MX, bits, by_bisection, from_bits, name_of, same_bits, table

RULES = ("floor", "ceil", "rceil", "even")


def expected_exponents(element: mxfp.ElementFormat, rule: str, amax: np.ndarray) -> list[int]:
    return [oracle.scale_exponent(element.name, [Fraction(v)], rule) for v in amax.tolist()]


def thresholds(element: mxfp.ElementFormat) -> list[float]:
    """The significands at which some rule steps up, and those of naive rules."""
    even = 2 - 2.0 ** -(oracle.MANTISSA_BITS[element.name] + 1)
    return [1.0, float(oracle.largest(element.name)) / 2.0 ** oracle.emax(element.name), even, 1.75, 1.5]


@pytest.mark.parametrize("row", table("scale_rules.csv"), ids=lambda row: f"{row['amax']} {row['rule']}")
def test_every_row_of_the_table_of_scale_rules(row):
    amax = from_bits([int(row["amax"], 16)], "float32")
    for engine in mxfp.blocks.ENGINES:
        q = mxfp.quantize(amax, mxfp.MXFP4, scale_rule=row["rule"], engine=engine)
        assert q.scales.tolist() == [int(row["code"])]


@pytest.mark.parametrize("element", ELEMENTS, ids=name_of)
@pytest.mark.parametrize("rule", RULES)
def test_every_float16_maximum(element, rule):
    infinity = oracle.infinity_bits("float16")
    amax = from_bits(np.arange(1, infinity), "float16").astype(np.float64)
    expected = by_bisection(
        lambda n: oracle.scale_exponent(element.name, [oracle.magnitude_of(n + 1, "float16")], rule),
        infinity - 1,
    )
    assert np.array_equal(exponents(amax, element, rule), expected)


@pytest.mark.parametrize("element", ELEMENTS, ids=name_of)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("dtype", "step"), [("float32", 1), ("float64", 13)])
def test_an_ulp_to_each_side_of_each_threshold_in_every_binade(element, rule, dtype, step):
    top = oracle.infinity_bits(dtype)
    lowest = oracle.floor_log2(oracle.magnitude_of(1, dtype))
    if element is mxfp.E2M1:
        step = 1 if dtype == "float32" else 3
    found = set()
    for k in range(lowest, 1024 if dtype == "float64" else 128, step):
        for significand in thresholds(element):
            at = oracle.pattern_below(Fraction(significand) * oracle.power(k), dtype)
            found |= {at - 1, at, at + 1}
    patterns = sorted(p for p in found if 0 < p < top)
    assert len(patterns) > 1000
    amax = from_bits(patterns, dtype).astype(np.float64)
    assert exponents(amax, element, rule).tolist() == expected_exponents(element, rule, amax)


@pytest.mark.parametrize("k", range(-140, 120, 10))
def test_just_below_a_power_of_two_floor_stays_and_ceil_goes_up(k):
    """The mutant floor(log2(amax)) is one too high here, in 249 of 253 binades of float32."""
    below = float(np.nextafter(np.float64(2.0**k), 0))
    for element in ELEMENTS:
        assert exponents(np.array([below]), element, "floor") == k - 1 - element.emax
        assert exponents(np.array([below]), element, "ceil") == k - element.emax


@pytest.mark.parametrize(
    ("rule", "first"),
    [
        ("floor", math.inf),
        ("ceil", np.nextafter(1.0, 2)),
        ("rceil", np.nextafter(1.5, 2)),
        ("even", 1.75),
    ],
)
def test_a_rule_is_the_significand_from_which_it_steps_up(rule, first):
    assert step_up(rule, mxfp.E2M1) == first


@pytest.mark.parametrize("element", ELEMENTS, ids=name_of)
def test_rceil_is_the_smallest_scale_at_which_nothing_saturates(element):
    amax = np.array([1.0, 1.3, 1.75, 1.7500001, 1.875, 1.8750001, 448.0, 448.00001, 6.0, 7.5, 3e-20])
    for value, e in zip(amax.tolist(), exponents(amax, element, "rceil").tolist(), strict=True):
        largest = oracle.largest(element.name)
        assert Fraction(value) <= largest * oracle.power(e)
        assert Fraction(value) > largest * oracle.power(e - 1)


def test_exponents_become_codes_clamped_to_the_format():
    exponent = np.array([-1000, -128, -127, -126, 0, 126, 127, 128, 1000, 5])
    amax = np.array([1.0] * 9 + [0.0])
    expected = [0, 0, 0, 1, 127, 253, 254, 254, 254, 0]
    assert power_of_two_codes(exponent, amax, mxfp.E8M0).tolist() == expected


@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_a_block_of_zeros_has_scale_code_0_under_every_rule(fmt):
    for rule in fmt.scale_rules:
        for engine in mxfp.blocks.ENGINES:
            q = mxfp.quantize(np.array([0.0, -0.0] * 20), fmt, scale_rule=rule, engine=engine)
            assert not q.scales.any()


@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_rules_of_other_formats_are_refused_with_those_there_are(fmt):
    assert check_rule(None, fmt) == ("nearest" if fmt is mxfp.NVFP4 else "floor")
    wrong = [
        rule for rule in ("floor", "ceil", "even", "search", "nearest", "max") if rule not in fmt.scale_rules
    ]
    for rule in wrong:
        with pytest.raises(
            ValueError, match=f"{fmt.name} has the scale rules '{fmt.scale_rules[0]}'.*{rule}"
        ):
            mxfp.quantize([1.0], fmt, scale_rule=rule)


# --- NVFP4

TENSOR_SCALES = [1.0, 0.5, float(np.float32(1 / 3)), float(np.float32(1e-20)), 2.0**-149, 2.0**128 - 2.0**104]


@pytest.mark.parametrize("tensor_scale", TENSOR_SCALES)
@pytest.mark.parametrize("rule", ["nearest", "rceil"])
def test_an_ulp_to_each_side_of_each_ue4m3_threshold(rule, tensor_scale):
    t = Fraction(tensor_scale)
    scales = oracle.magnitudes("E4M3")
    points = [s * 6 * t for s in scales[1:]] + [(a + b) * 3 * t for a, b in pairwise(scales)]
    points += [Fraction(1, 10**6) * t, 10**6 * t]
    found = set()
    for point in points:
        at = oracle.pattern_below(point, "float64")
        found |= {at - 1, at, at + 1}
    amax = from_bits(sorted(found), "float64")
    codes = significand_codes(amax, mxfp.E2M1, mxfp.UE4M3, rule, tensor_scale)
    expected = [oracle.nvfp4_scale_code(Fraction(a), t, rule) for a in amax.tolist()]
    assert codes.tolist() == expected
    assert min(expected) == 1
    assert max(expected) == 126


@pytest.mark.parametrize("rule", ["nearest", "rceil"])
def test_a_block_of_zeros_has_ue4m3_code_0(rule):
    assert significand_codes(np.zeros(3), mxfp.E2M1, mxfp.UE4M3, rule, 1.0).tolist() == [0, 0, 0]


def test_midpoints_of_ue4m3_go_to_the_even_code():
    t = 1.0
    values = oracle.magnitudes("E4M3")
    amax = np.array([float((values[c] + values[c + 1]) / 2 * 6) for c in range(1, 126)])
    codes = significand_codes(amax, mxfp.E2M1, mxfp.UE4M3, "nearest", t)
    assert codes.tolist() == [c + (c & 1) for c in range(1, 126)]


@given(st.floats(min_value=0, allow_infinity=False, allow_nan=False))
def test_the_tensor_scale_is_rounded_once_and_clamped(amax):
    found = tensor_scale_for(amax, mxfp.NVFP4)
    assert found.dtype == np.float32
    assert Fraction(float(found)) == oracle.nvfp4_tensor_scale([[Fraction(amax)]])


@pytest.mark.parametrize("dtype", ["float32"])
def test_the_tensor_scale_an_ulp_to_each_side_of_float32_midpoints(dtype):
    rng = np.random.default_rng(5)
    for pattern in rng.integers(1, oracle.infinity_bits(dtype), 300).tolist():
        middle = (oracle.magnitude_of(pattern, dtype) + oracle.magnitude_of(pattern + 1, dtype)) / 2 * 2688
        at = oracle.pattern_below(middle, "float64")
        for amax in from_bits([at - 1, at, at + 1], "float64").tolist():
            found = tensor_scale_for(amax, mxfp.NVFP4)
            assert int(bits(found)[()]) == oracle.round_to(Fraction(amax) / 2688, dtype)


@pytest.mark.parametrize(
    ("amax", "expected"),
    [
        (0.0, 1.0),
        (5e-324, 2.0**-149),
        (1.7e308, 2.0**128 - 2.0**104),
        (2688.0, 1.0),
        (6.0, float(np.float32(1 / 448))),
    ],
)
def test_the_tensor_scale_at_its_ends(amax, expected):
    assert float(tensor_scale_for(amax, mxfp.NVFP4)) == expected


@pytest.mark.parametrize("fmt", [MX[0], mxfp.NVFP4], ids=name_of)
def test_elements_are_divided_by_the_scale_or_by_1_where_nothing_is_left(fmt):
    codes = np.arange(fmt.scale.code_count, dtype=np.uint8)
    t = 0.75 if fmt.tensor_scale else 1.0
    expected = []
    for code in codes.tolist():
        value = oracle.scale(fmt.scale.name, code)
        expected.append(1.0 if value in ("nan", 0) else float(value * Fraction(t)))
    same_bits(scale_factors(codes, fmt.scale, t), np.array(expected))
