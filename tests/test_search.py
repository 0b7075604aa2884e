# SPDX-License-Identifier: Apache-2.0
"""Side room off 3: the search finds the smallest exact error, and the larger exponent of a tie."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

import mxfp
import oracle
from mxfp.search import search_exponents
from support import DETERMINISTIC, DTYPES, MX, check_quantize, hard_array, name_of

ENGINES = mxfp.blocks.ENGINES


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fmt", MX, ids=name_of)
def test_a_search_agrees_with_the_oracle_on_hard_blocks(fmt, dtype):
    blocks = 12 if fmt.element.bits == 4 else 5
    x = hard_array(dtype, fmt.element, (blocks, 32), seed=21)
    check_quantize(x, fmt, scale_rule="search")


@pytest.mark.parametrize("rounding", DETERMINISTIC)
def test_a_search_measures_with_the_rounding_asked_for(rounding):
    x = np.random.default_rng(1).standard_normal((20, 32)).astype(np.float32)
    check_quantize(x, mxfp.MXFP4, scale_rule="search", rounding=rounding)


def test_the_scale_of_a_search_does_not_depend_on_the_draws():
    x = np.random.default_rng(1).standard_normal((10, 32)).astype(np.float32)
    check_quantize(x, mxfp.MXFP4, scale_rule="search", rounding="stochastic", seed=5)
    scales = mxfp.quantize(x, scale_rule="search").scales
    for seed in range(3):
        q = mxfp.quantize(x, scale_rule="search", rounding="stochastic", rng=np.random.default_rng(seed))
        assert np.array_equal(q.scales, scales)


@pytest.mark.parametrize("k", [-149, -130, -126, -3, 0, 5, 120, 126])
@pytest.mark.parametrize("value", [1.0, 2.0, 1.5])
def test_ties_go_to_the_larger_exponent(k, value):
    """1, 1.5 and 2 are exact at several scales, so every one of these has the error 0."""
    x = np.array([value * 2.0**k])
    best = max(
        e
        for e in range(k - 6, k + 6)
        if oracle.squared_error("E2M1", [Fraction(v) for v in x.tolist()], e, "nearest_even") == 0
        and e <= oracle.ceil_log2(Fraction(x[0])) - 2 + 1
    )
    for engine in ENGINES:
        q = mxfp.quantize(x, scale_rule="search", engine=engine)
        assert int(q.scales[0]) - 127 == max(min(best, 127), -127)


def near_ties() -> list[list[float]]:
    """Blocks in which two scales err equally but for one ulp or less of one element."""
    base = [float(v) for v in (5, 4.5, 3.5, 2.75, 1.25, 0.625)]
    found = []
    for tuples in itertools.product((5.0, 7.0, 6.5), (2.5, 3.5), (1.25, 0.75)):
        block = [*tuples, *base[3:]]
        found.append(block)
        for i in range(3):
            for towards in (0.0, 100.0):
                moved = list(block)
                moved[i] = float(np.nextafter(moved[i], towards))
                found.append(moved)
    return found


def test_near_ties_are_decided_exactly():
    for block in near_ties():
        check_quantize(np.array(block), mxfp.MXFP4, scale_rule="search")


def test_errors_too_close_for_float64_are_decided_exactly():
    """An element d makes the error of two candidates differ by about d * 2**-70 of the whole."""
    # 7 is 6 or 8 at the scales 1 and 2, and 2.5 is 2 or 2, 3.5 is 4 at both: the first tie is broken below.
    for tiny in (2.0**-60, 2.0**-200, 2.0**-1000):
        for k in (0, 40, -40):
            for other in ([tiny], [0.5 + tiny * 2**20, tiny], [-tiny, 1.0]):
                x = np.ldexp(np.array([7.0, *other]), k)
                check_quantize(x, mxfp.MXFP4, scale_rule="search")


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_integers_of_more_than_53_bits_are_measured_exactly(dtype):
    base = 7 << 58
    for delta in range(-3, 4):
        x = np.array([base + delta, 5 << 55, (3 << 40) + delta], dtype)
        check_quantize(x, mxfp.MXFP4, scale_rule="search")
        check_quantize(x, mxfp.MXFP8_E4M3, scale_rule="search")


def test_a_search_clamps_its_candidates_at_both_ends():
    for x in (
        [2.0**-149],
        [5e-324, 1e-320],
        [2.0**-130, 2.0**-128],
        [1e308, -1e300],
        [2.0**129 * 1.5, 2.0**126],
    ):
        for fmt in (mxfp.MXFP4, mxfp.MXINT8, mxfp.MXFP8_E5M2):
            check_quantize(np.array(x), fmt, scale_rule="search")


def test_infinities_and_missing_elements_do_not_count():
    x = np.array([[1.3, -np.inf, 2.9, 0.7], [np.nan, 1.0, 2.0, 3.0], [np.inf, np.inf, -np.inf, np.inf]])
    check_quantize(x, mxfp.MXFP4, scale_rule="search", nonfinite="saturate")
    check_quantize(x.T, mxfp.MXFP4, axis=0, scale_rule="search", nonfinite="saturate")


def test_a_search_never_errs_more_than_another_rule():
    x = np.random.default_rng(8).standard_t(3, (200, 32))
    errors = {}
    for rule in ("floor", "ceil", "rceil", "even", "search"):
        back = mxfp.quantize(x, scale_rule=rule).dequantize(dtype=np.float64)
        errors[rule] = ((back - x) ** 2).sum(axis=-1)
    for rule, error in errors.items():
        assert (errors["search"] <= error * (1 + 1e-12)).all(), rule
    assert errors["search"].sum() < errors["floor"].sum()


def test_candidates_run_from_below_floor_to_above_ceil():
    """7.9 is 8 at ceil's scale and at the one above, which wins the tie; floor's scale saturates at 6."""
    x = np.full((1, 1, 32), 7.9)
    found = search_exponents(x, x, np.array([[7.9]]), mxfp.MXFP4, "nearest_even")
    assert found.tolist() == [[2]]
    x = np.append(np.full(31, 0.2), 4.0)[None, None]
    errors = {
        e: oracle.squared_error("E2M1", [Fraction(v) for v in x.ravel().tolist()], e, "nearest_even")
        for e in range(-1, 2)
    }
    found = search_exponents(x, x, np.array([[4.0]]), mxfp.MXFP4, "nearest_even")
    assert errors[int(found[0, 0])] == min(errors.values())


@pytest.mark.parametrize("rule", ["search", "floor"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_signalling_nan_marks_its_block_in_silence(rule, dtype):
    bits = {"float16": np.uint16(0x7D01), "bfloat16": np.uint16(0x7FA0), "float32": np.uint32(0x7F800001)}
    x = np.full(2, bits[dtype]).view(mxfp.floats.float_dtype(dtype))
    assert mxfp.quantize(x, scale_rule=rule).scales.tolist() == [255]
    with pytest.raises(ValueError, match="index"):
        mxfp.quantize(x, scale_rule=rule, nonfinite="raise")
