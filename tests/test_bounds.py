# SPDX-License-Identifier: Apache-2.0
"""Side room off 7: errors are exact, and none is above its bound. `print_ratios` prints how near."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, target
from hypothesis import strategies as st

import mxfp
import oracle
from mxfp.bounds import error_bound, errors, registers_without_ends, worst_error_bound
from mxfp.distributions import DISTRIBUTIONS, draw
from mxfp.dot import Terms
from mxfp.integers import WidthError
from mxfp.profiles import scale_codes
from mxfp.registers import TENSOR_CORES
from support import ACCUMULATORS, FORMATS, name_of, oracle_terms, random_blocks, size, values_of

FIXED = [
    mxfp.FixedPoint(24, -12),
    mxfp.FixedPoint(32, -8, "wrap", "toward_zero"),
    mxfp.FixedPoint(30, -6, "saturate", "nearest_even", "float16"),
    mxfp.FixedPoint(64, -30, "wrap", "nearest_even", "float32"),
    mxfp.FixedPoint(60, -2, "wrap", "floor", "bfloat16"),
    mxfp.FixedPoint(40, 3, "saturate"),
]
TABLE = [*dict.fromkeys([*ACCUMULATORS, *TENSOR_CORES.values(), *FIXED])]
"""Every kind with every dtype, rounding and overflow; every tensor core; odd ones."""
SOME = [*TABLE[:17:2], *TABLE[17:26], *FIXED]
"""Of every kind some."""
RESULTS = {"float16": (-24, 15), "bfloat16": (-133, 127), "float32": (-149, 127), "float64": (-149, 127)}
"""Exponents of the smallest and the largest power of two."""


def terms_for(accumulator, a, b):
    return mxfp.block_dots(a, b, group=accumulator.terms_of)


def judged(accumulator, a, b):
    """Error and bound of every row; a register that raises never does so where its bound is finite."""
    terms = terms_for(accumulator, a, b)
    bound = error_bound(accumulator, terms)
    assert bound.dtype == np.float64
    assert bound.shape == a.shape[:-1]
    try:
        return errors(accumulator, terms), bound
    except WidthError:
        sure = np.isfinite(bound)
        error = np.full(bound.shape, np.inf)
        a, b = (mxfp.BlockArray(q.codes[sure], q.scales[sure], q.format, -1, q.tensor_scale) for q in (a, b))
        error[sure] = errors(accumulator, terms_for(accumulator, a, b))
        return error, bound


def fraction_error(accumulator, a, b):
    """|result - exact sum| of two vectors as oracle bits of float64, exact sum from the oracle."""
    result = accumulator(terms_for(accumulator, a, b))
    total = Fraction(0)
    for term in oracle_terms(a, b):
        total = oracle.add(total, term)
    if not isinstance(total, Fraction):
        return oracle.NAN_BITS["float64"]
    (value,), _ = values_of(np.asarray(result).reshape(1))
    if not isinstance(value, Fraction):
        return oracle.infinity_bits("float64")
    total *= Fraction(a.tensor_scale) * Fraction(b.tensor_scale)
    return oracle.round_to(abs(value - total), "float64")


# --- hard blocks


def negated(q):
    """The codes of minus each element (-2 of INT8 stays)."""
    element = q.format.element
    sign = element.code_count // 2
    return -q.codes if element.twos_complement else q.codes ^ np.uint8(sign)


def rebuilt(q, codes=None, scales=None):
    codes, scales = q.codes if codes is None else codes, q.scales if scales is None else scales
    return mxfp.BlockArray(codes.astype(np.uint8), scales.astype(np.uint8), q.format, -1, q.tensor_scale)


def cancelling(a, b):
    """The second half takes away the first, but for the last block."""
    half = a.shape[-1] // 2 // a.format.block * a.format.block
    count = half // a.format.block
    sides = []
    for q, other in ((a, negated(a)), (b, b.codes)):
        codes, scales = q.codes.copy(), q.scales.copy()
        codes[..., half : 2 * half] = other[..., :half]
        scales[..., count : 2 * count] = scales[..., :count]
        sides.append(rebuilt(q, codes, scales))
    return sides[0], sides[1]


def swamping(a, b, rng):
    """One block is larger than all others, which have few elements that are not zero."""
    rows, count = a.scales.shape
    thin = np.where(rng.random(a.shape) < 0.06, a.codes, 0)
    thin[:, : a.format.block] = a.codes[:, : a.format.block]
    scales = []
    for q in (a, b):
        most = q.format.scale.code_count - 2
        high = rng.integers(most // 3, most, (rows, 1))
        low = np.maximum(high - rng.integers(0, 16, (rows, 1)), 0)
        scales.append(np.where(np.arange(count) == 0, high, low))
    return rebuilt(a, thin, scales[0]), rebuilt(b, None, scales[1])


def near(a, b, exponent, rng):
    """Power-of-two scales that bring the blocks near 2**exponent."""
    if not a.format.scale.power_of_two:
        return a, b
    top = a.format.element.emax + b.format.element.emax + 4
    total = 254 + exponent - top + rng.integers(-3, 4, a.scales.shape)
    first = np.clip(rng.integers(total // 2 - 9, total // 2 + 10), 0, 254)
    return rebuilt(a, None, first), rebuilt(b, None, np.clip(total - first, 0, 254))


def batches(fmt, k, rows, rng, dtype):
    """Inputs of every distribution, and hard ones, `rows` each."""
    for n, name in enumerate(DISTRIBUTIONS):
        drawn = ("near-unit", "unit", "near-unit", "wide", "corner")[(n + int(rng.integers(5))) % 5]
        few = rows if drawn in ("near-unit", "unit") else max(rows // 8, 1)
        few = min(few, size(rows, 20)) if name == "normal" else few
        sides = [draw(name, fmt, (few, k), rng, scales=drawn, finite=True) for _ in "ab"]
        if fmt.tensor_scale:
            shared = 2.0 ** rng.integers(-60, 60, 2) * (1 + rng.random(2))
            sides = [
                dataclasses.replace(q, tensor_scale=float(np.float32(t)))
                for q, t in zip(sides, shared, strict=True)
            ]
        yield sides[0], sides[1]
    a, b = (draw("bits", fmt, (rows, k), rng, scales="near-unit", finite=True) for _ in "ab")
    yield cancelling(a, b)
    yield swamping(a, b, rng)
    yield swamping(*cancelling(a, b), rng)
    for exponent in RESULTS[dtype]:
        yield near(a, b, exponent, rng)


def measured(cases, seed, accumulators=TABLE, formats=FORMATS):
    """{accumulator: (cases with a finite bound, largest error / bound)}, `cases` of them or more in all."""
    rng = np.random.default_rng(seed)
    found = dict.fromkeys(map(str, accumulators), (0, 0.0))
    share = math.ceil(cases / len(accumulators))
    for accumulator in accumulators:
        single = accumulator.terms_of is not None and accumulator.terms_of < 16
        counted, worst, turn = 0, 0.0, 0
        while counted < share:
            fmt = formats[turn % len(formats)]
            k = int(rng.integers(1, 5 if single else 9) * 16 * (1 if single else 2) - rng.integers(0, 2) * 3)
            for a, b in batches(fmt, k, 600, rng, accumulator.result_dtype.name):
                error, bound = judged(accumulator, a, b)
                usable = np.isfinite(bound)
                assert not np.isnan(bound).any()
                wrong = usable & ~(error <= bound)
                assert not wrong.any(), (accumulator, fmt, k, a[wrong][0], b[wrong][0])
                counted += int(usable.sum())
                ratios = error[usable & (bound > 0)] / bound[usable & (bound > 0)]
                worst = max(worst, float(ratios.max(initial=0.0)))
            turn += 1
        found[str(accumulator)] = (counted, worst)
    return found


def test_no_error_is_above_its_bound_on_a_million_cases():
    cases = 1_000_000
    found = measured(cases, 1)
    assert sum(count for count, _ in found.values()) >= cases
    assert max(ratio for _, ratio in found.values()) <= 1
    for name, (_, ratio) in found.items():  # and no bound is idle
        assert ratio > (0.4 if ":products" in name or "fp8" in name or "f8f6f4" in name else 0.9), name


# --- errors are exact


def close_calls(fmt, seed):
    """A few pairs of vectors of every kind, of lengths with partial blocks."""
    rng = np.random.default_rng(seed)
    for k, dtype in ((fmt.block + 5, "float16"), (3 * fmt.block, "float32")):
        for a, b in batches(fmt, k, 2, rng, dtype):
            yield rebuilt(a, a.codes[:1], a.scales[:1]), rebuilt(b, b.codes[:1], b.scales[:1])


@pytest.mark.parametrize("accumulator", SOME, ids=name_of)
def test_errors_are_the_fractions_rounded_once(accumulator):
    for fmt in FORMATS[:: 1 + (accumulator.terms_of == 1)]:
        for a, b in close_calls(fmt, 3):
            try:
                terms = terms_for(accumulator, a, b)
                found = errors(accumulator, terms)
            except WidthError:
                continue
            one, other = (mxfp.BlockArray(q.codes[0], q.scales[0], fmt, -1, q.tensor_scale) for q in (a, b))
            expected = fraction_error(accumulator, one, other)
            assert found.view(np.uint64).tolist() == [expected]
            assert errors(accumulator, terms, accumulator(terms)).tolist() == found.tolist()
            flat = errors(accumulator, terms_for(accumulator, one, other))
            assert flat.shape == ()
            assert flat == found[0]
            assert error_bound(accumulator, terms_for(accumulator, one, other)) >= flat


@pytest.mark.parametrize("accumulator", SOME, ids=name_of)
def test_what_is_nan_or_infinite_has_no_error(accumulator):
    for fmt in (mxfp.MXFP8_E5M2, mxfp.MXFP8_E4M3, mxfp.MXFP4, mxfp.NVFP4):
        a, b = (random_blocks(fmt, (40, 64), seed, specials=True, nan_share=0.1) for seed in (1, 2))
        narrow = [random_blocks(fmt, (40, 64), seed, scales=(50, 60)) for seed in (1, 2)]
        a, b = (
            rebuilt(q, None, np.where(q.scales == fmt.scale.nan_code, q.scales, n.scales))
            for q, n in zip((a, b), narrow, strict=True)
        )
        terms = terms_for(accumulator, a, b)
        with np.errstate(invalid="ignore"):
            special = [any(t in ("nan", "inf", "-inf") for t in oracle_terms(x, y)) for x, y in rows_of(a, b)]
        assert any(special)
        assert np.isnan(error_bound(accumulator, terms)).tolist() == special
        assert np.isnan(errors(accumulator, terms)).tolist() == special


def rows_of(a, b):
    for row in range(len(a.codes)):
        yield tuple(
            mxfp.BlockArray(q.codes[row], q.scales[row], q.format, -1, q.tensor_scale) for q in (a, b)
        )


def test_an_overflow_is_an_infinite_error_and_bound():
    up = mxfp.BlockArray(np.full((1, 64), 7, np.uint8), [[254, 254]], mxfp.MXFP4)
    down = rebuilt(up, np.where(np.arange(64) < 32, 7, 15)[None])
    for kind in (mxfp.Sequential, mxfp.Pairwise, mxfp.Exact):
        for dtype in ("float16", "bfloat16", "float32"):
            assert judged(kind(dtype), up, up) == (np.inf, np.inf)
    for dtype in ("float16", "bfloat16", "float32"):  # infinity - infinity is NaN, and no error of 0
        assert np.isnan(mxfp.Pairwise(dtype)(mxfp.block_dots(up, down)))
        assert judged(mxfp.Pairwise(dtype), up, down) == (np.inf, np.inf)
    for accumulator in TENSOR_CORES.values():
        assert judged(accumulator, up, up) == (np.inf, np.inf)


@pytest.mark.parametrize("accumulator", SOME, ids=name_of)
def test_nothing_is_added_without_an_error(accumulator):
    for fmt, shape in ((mxfp.MXFP4, (3, 0)), (mxfp.NVFP4, (0,)), (mxfp.MXFP4, (0, 32))):
        q = mxfp.BlockArray(
            np.zeros(shape, np.uint8), np.zeros((*shape[:-1], -(-shape[-1] // fmt.block)), np.uint8), fmt
        )
        error, bound = judged(accumulator, q, q)
        assert error.shape == bound.shape == shape[:-1]
        assert not error.any()
        assert not bound.any()
    zeros = mxfp.BlockArray(np.zeros((1, 64), np.uint8), np.full((1, 2), 254, np.uint8), mxfp.MXFP4)
    assert judged(accumulator, zeros, zeros) == (0, 0)


def test_a_register_of_any_width_is_full_where_it_is_full():
    """2**(width-1) LSBs do not fit, for limits and LSBs that float64 does not hold."""
    for width, lsb in ((8, -2), (54, -2), (55, -2), (60, -2), (64, -10), (120, -100), (1100, -1090)):
        register = mxfp.FixedPoint(width, lsb, "wrap")
        total = width - 1 + lsb
        first = np.clip(127 + total, 0, 254)
        b = mxfp.BlockArray([2], [127], mxfp.MXFP4)
        full = mxfp.BlockArray([2], [first], mxfp.MXFP4)
        error, bound = judged(register, full, b)
        assert error == 2.0 ** (total + 1)
        assert bound == np.inf
        half = mxfp.BlockArray([2], [first - 1], mxfp.MXFP4)
        error, bound = judged(register, half, b)
        assert error == 0
        assert bound < np.inf


@pytest.mark.parametrize("rounding", ["floor", "toward_zero", "nearest_even"])
@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.MXFP8_E5M2, mxfp.NVFP4], ids=name_of)
def test_a_register_without_ends_holds_the_rounded_terms_added_up(fmt, rounding):
    """The oracle's register, of more bits than any of these takes; NaN and infinities add nothing."""
    a, b = (random_blocks(fmt, (6, 5 * fmt.block), seed, specials=True, nan_share=0.02) for seed in (1, 2))
    for lsb in (-4096, -30, 3, 4096):
        register = mxfp.FixedPoint(9, lsb, "wrap", rounding)
        terms = mxfp.block_dots(a, b)
        held = [*registers_without_ends(register, terms)]
        for row in range(6):
            one, other = (mxfp.BlockArray(q.codes[row], q.scales[row], fmt) for q in (a, b))
            own = oracle_terms(one, other)
            right = [oracle.fixed_point(own[: n + 1], 9000, lsb, "raise", rounding) for n in range(5)]
            found = [0 if "nan" in right else integer for integer in right]
            assert [int(step[row]) for step in held] == found
            alone = registers_without_ends(register, mxfp.block_dots(one, other))
            assert [int(step) for step in alone] == found


def test_zeros_align_the_rest():
    """Dead and missing groups have the zero exponent, also where c is not zero, and all is cut below it."""
    core = mxfp.Fused(3, 16, 64, -20)
    codes = np.where(np.arange(192) % 64 == 0, 3, 0)  # 1.5 a step, and 0.75 units of 2**-23 with the scales
    a = mxfp.BlockArray(codes.astype(np.uint8), np.full(6, 127 - 24), mxfp.MXFP4)
    b = mxfp.BlockArray(np.full(192, 2, np.uint8), np.full(6, 127), mxfp.MXFP4)
    error, bound = judged(core, a, b)
    assert error == 3 * 1.5 * 2.0**-24
    assert error <= bound <= 8 * 2.0**-23


def test_terms_of_python_integers_without_axes():
    for fmt, k in ((mxfp.MXFP8_E5M2, 64), (mxfp.MXFP4, 64)):
        a = rebuilt(random_blocks(fmt, (k,), 3), None, np.array([254, 0]))
        for accumulator in (mxfp.Sequential("float64"), mxfp.Exact("float64"), mxfp.FixedPoint(600, -300)):
            error, bound = judged(accumulator, a, a)
            assert 0 <= error <= bound


# --- the bound of a range


def in_range(fmt, rng, low, high, k, rows):
    scales = rng.choice(np.array([low, high, *rng.integers(low, high + 1, 6)]), (rows, -(-k // fmt.block)))
    q = draw("bits", fmt, (rows, k), rng, scales="unit", finite=True)
    ends = np.array([np.argmin(fmt.element.integers), np.argmax(fmt.element.integers), 1, 0])
    codes = np.where(rng.random((rows, 1)) < 0.5, rng.choice(ends, q.shape, p=(0.1, 0.6, 0.2, 0.1)), q.codes)
    return rebuilt(q, codes, scales)


@pytest.mark.parametrize("accumulator", TABLE, ids=name_of)
def test_no_case_of_a_range_is_above_the_bound_of_the_range(accumulator):
    rng = np.random.default_rng(11)
    for fmt, k in zip(FORMATS, (1, 16, 70, 150, 33, 64, 90), strict=True):
        most = fmt.scale.code_count - 2
        middle = int(rng.integers(most // 3, most * 2 // 3))
        ranges = [(middle - int(rng.integers(9)), middle + int(rng.integers(9))) for _ in "ab"]
        worst = worst_error_bound(accumulator, fmt, k=k, scales_a=ranges[0], scales_b=ranges[1])
        a, b = (in_range(fmt, rng, *own, k, 30) for own in ranges)
        error, bound = judged(accumulator, a, b)
        assert (error <= worst).all()
        assert (bound <= worst * (1 + 1e-12)).all()


# --- sought by hypothesis

TERMS = st.lists(st.tuples(st.integers(-2304, 2304), st.integers(-60, 60)), min_size=1, max_size=12)


@pytest.mark.parametrize("accumulator", SOME, ids=name_of)
@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    terms=TERMS,
    middle=st.sampled_from([0, 0, 8, -20, -140, 110, 220]),
    factor=st.sampled_from([(1, 0), (1, 3), (12345, -9), (2**48 - 1, -200)]),
)
def test_no_search_finds_an_error_above_its_bound(accumulator, terms, middle, factor):
    sums = np.array([s for s, _ in terms], np.int64)
    exponents = np.array([e + middle for _, e in terms], np.int64)
    leading = exponents + 11 if accumulator.terms_of == 1 else None
    group = accumulator.terms_of
    found = Terms(sums, exponents, 13, -2, factor=factor, group=group, leading=leading)
    bound = error_bound(accumulator, found)
    try:
        error = errors(accumulator, found)
    except WidthError:
        assert bound == np.inf
        return
    assert error <= bound
    if 0 < bound < np.inf:
        target(float(error / bound))


# --- arguments


def test_results_have_the_shape_of_the_terms():
    q = mxfp.quantize(np.ones((3, 64)))
    terms = mxfp.block_dots(q, q)
    accumulator = mxfp.Sequential("bfloat16")
    assert errors(accumulator, terms, accumulator(terms)).shape == (3,)
    assert errors(accumulator, terms, [64.0, 65.0, np.inf]).tolist() == [0, 1, np.inf]
    with pytest.raises(ValueError, match=r"results of terms \(3, 2\) are \(3,\), got \(2,\)"):
        errors(accumulator, terms, np.zeros(2))


def test_terms_and_accumulators_are_checked():
    q = mxfp.quantize(np.ones(64))
    terms = mxfp.block_dots(q, q)
    for call in (errors, error_bound):
        with pytest.raises(TypeError, match="accumulator is one such as"):
            call("sequential:float32", terms)
        for wrong in (3, None, q, terms.sums):
            with pytest.raises(TypeError, match=r"terms are Terms \(see mxfp.block_dots\), got"):
                call(mxfp.Sequential("float32"), wrong)
        for accumulator in (mxfp.BLACKWELL_MXFP4, mxfp.HOPPER_FP8, mxfp.Sequential("float32", 8)):
            with pytest.raises(ValueError, match=f"takes terms of {accumulator.terms_of} products"):
                call(accumulator, terms)


def test_accumulators_of_others_have_no_bound_here():
    class Own(mxfp.Sequential):
        pass

    q = mxfp.quantize(np.ones(64))
    with pytest.raises(TypeError, match="error bounds are known for Sequential, Exact, Pairwise"):
        error_bound(Own("float32"), mxfp.block_dots(q, q))
    assert errors(Own("float32"), mxfp.block_dots(q, q)) == 0
    for wrong in (Own("float32"), "exact", None):
        with pytest.raises(TypeError, match="error bounds are known for"):
            worst_error_bound(wrong, k=32)


@pytest.mark.parametrize("k", [0, -1, 1.0, True, None, "3", 1 << 25])
def test_k_is_a_number_of_elements(k):
    with pytest.raises(ValueError, match="k is a number of elements, 1 … 16777216, got"):
        worst_error_bound(mxfp.Exact("float32"), k=k)


@pytest.mark.parametrize(
    "codes", [3, (3,), (3, 4, 5), (5, 4), (-1, 4), (0, 255), (0.0, 4), (False, True), "ab"]
)
def test_a_range_is_two_codes_that_are_numbers(codes):
    with pytest.raises(
        ValueError, match="scales_b is the smallest and the largest scale code of E8M0, within 0 … 254"
    ):
        worst_error_bound(mxfp.Exact("float32"), k=3, scales_b=codes)


def test_ranges_of_scales():
    assert scale_codes(mxfp.NVFP4, None, "scales_a").tolist() == list(range(127))
    assert scale_codes(mxfp.MXFP4, [np.int64(3), 5], "scales_a").tolist() == [3, 4, 5]
    with pytest.raises(ValueError, match="every scale of NVFP4 in the range is zero"):
        worst_error_bound(mxfp.Exact("float32"), mxfp.NVFP4, k=3, scales_a=(0, 0))


def test_formats_of_a_range():
    with pytest.raises(TypeError, match="a is a BlockFormat"):
        worst_error_bound(mxfp.Exact("float32"), mxfp.E2M1, k=3)
    with pytest.raises(ValueError, match="a is MXFP4 in blocks of 32, b is NVFP4 in blocks of 16"):
        worst_error_bound(mxfp.Exact("float32"), mxfp.MXFP4, mxfp.NVFP4, k=3)


def print_ratios(cases=1_000_000, seed=1):
    """The largest ratio of error to bound that random and hard cases find, a line an accumulator."""
    for name, (count, ratio) in measured(cases, seed).items():
        print(f"{name:<44}{count:>9}{ratio:>8.3f}")


if __name__ == "__main__":
    print_ratios()
