# SPDX-License-Identifier: Apache-2.0
"""Side room off 7: a register's range and losses against every input, and inputs that reach them."""

import itertools
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

import mxfp
import oracle
from mxfp.formats import POWER_OF_TWO_RULES, SIGNIFICAND_RULES, BlockFormat
from mxfp.integers import WidthError
from mxfp.registers import SHIFT_ROUNDINGS
from mxfp.sizing import EXTREMES, fixed_point_for, longest_k
from support import FORMATS, name_of, oracle_terms
from test_sums import counted, products
from test_widths import bits_of

E8M0, UE4M3, MXFP4, NVFP4 = mxfp.E8M0, mxfp.UE4M3, mxfp.MXFP4, mxfp.NVFP4


def own(element, block, scale=E8M0):
    """Blocks of another size."""
    rules = SIGNIFICAND_RULES if scale is UE4M3 else POWER_OF_TWO_RULES
    return BlockFormat(f"{element.name}x{block}", element, scale, block, rules)


INT8X3, E2M3X4, E3M2X4 = own(mxfp.INT8, 3), own(mxfp.E2M3, 4), own(mxfp.E3M2, 4)
E4M3X1, E5M2X1, E4M3X1_U = own(mxfp.E4M3, 1), own(mxfp.E5M2, 1), own(mxfp.E4M3, 1, UE4M3)
E2M1X32_U = own(mxfp.E2M1, 32, UE4M3)


@cache
def sums_of(a, b, lanes):
    """Every sum of that many products, counted here."""
    if lanes == 1:
        return np.array(products(a, b), object)
    return list(counted(a, b, lanes))[-1].astype(object)


def unit_of(a, b):
    return oracle.magnitudes(a.element.name)[1] * oracle.magnitudes(b.element.name)[1]


def rounded(values, shift, rounding):
    """Integers * 2**-shift, each rounded to an integer."""
    if shift <= 0:
        return values * 2**-shift
    unit = 2**shift
    if rounding == "floor":
        return values // unit
    if rounding == "toward_zero":
        return np.sign(values) * (abs(values) // unit)
    low = values // unit
    twice = 2 * (values - low * unit)
    return low + ((twice > unit) | ((twice == unit) & (low % 2 == 1)))


def extremes(a, b, lanes, ranges, lsb, rounding):
    """Of one block, over every sum and every pair of scales: low, high, error_low, error_high, in LSBs."""
    sums, found = sums_of(a.element.name, b.element.name, lanes), [0, 0, 0, 0]
    pairs = itertools.product(*(range(first, last + 1) for first, last in ranges))
    factors = {oracle.scale(a.scale.name, x) * oracle.scale(b.scale.name, y) for x, y in pairs}
    for factor in factors:
        each = factor * unit_of(a, b) / oracle.power(lsb)  # LSBs of a register in one unit of the sum
        shift = each.denominator.bit_length() - 1
        integers = sums * each.numerator
        results = rounded(integers, shift, rounding)
        lost = results * 2**shift - integers
        found[0], found[1] = min(found[0], results.min()), max(found[1], results.max())
        found[2] = min(found[2], Fraction(int(lost.min()), 2**shift))
        found[3] = max(found[3], Fraction(int(lost.max()), 2**shift))
    return found


def brute(need):
    """The extremes of k elements: every block is on its own, and can be zero."""
    a, b = need.a, need.b
    full, rest = divmod(need.k, a.block)
    found = [Fraction(0)] * 4
    for count, lanes in ((full, a.block), (1, rest)):
        if count and lanes:
            one = extremes(a, b, lanes, (need.scales_a, need.scales_b), need.lsb_exponent, need.rounding)
            found = [x + count * y for x, y in zip(found, one, strict=True)]
    unit = oracle.power(need.lsb_exponent)
    return int(found[0]), int(found[1]), found[2] * unit, found[3] * unit


def check_witnesses(need):
    """The vectors given reach what is claimed, step by step in a register of that width."""
    reached = []
    for extreme in EXTREMES:
        a, b = need.witness(extreme)
        assert a.shape == b.shape == (need.k,)
        for q, (low, high) in ((a, need.scales_a), (b, need.scales_b)):
            assert ((q.scales >= low) & (q.scales <= high)).all()
        register = need.accumulator(overflow="raise")
        assert (register.width, register.lsb_exponent) == (need.width, need.lsb_exponent)
        states = [int(step.state.integers) for step in register.steps(mxfp.block_dots(a, b))]
        result = states[-1] * oracle.power(need.lsb_exponent)
        exact = sum(oracle_terms(a, b), Fraction(0))
        reached.append({"low": min(states), "high": max(states)}.get(extreme, result - exact))
    assert reached == [need.low, need.high, need.error_low, need.error_high]
    end = "low" if -need.low > need.high else "high"
    if need.width > 1:
        narrow = mxfp.FixedPoint(need.width - 1, need.lsb_exponent, "raise", need.rounding)
        with pytest.raises(WidthError, match=f"does not fit signed {need.width - 1} bits"):
            narrow(mxfp.block_dots(*need.witness(end)))


SMALL = [
    (MXFP4, MXFP4, 70, (125, 127), (126, 129), (-20, -9, -8, -5, -3, 0, 4, 12, 30)),
    (MXFP4, MXFP4, 5, (0, 2), (254, 254), (-300, -2, 0, 3)),
    (NVFP4, NVFP4, 37, (5, 12), (54, 60), (-24, -14, -9, -7, -4, 0, 6)),
    (NVFP4, NVFP4, 16, (0, 1), (0, 2), (-20, -18, -14, -10)),
    (E2M1X32_U, MXFP4, 32, (60, 66), (127, 127), (-8, -5, -3, 0, 5)),
    (INT8X3, INT8X3, 8, (127, 129), (126, 127), (-14, -13, -9, -1, 0, 5)),
    (E2M3X4, E3M2X4, 11, (125, 127), (127, 127), (-12, -9, -8, -5, -1, 3)),
    (E4M3X1, E4M3X1, 3, (127, 128), (126, 127), (-19, -18, -10, -1, 4, 12, 18, 40)),
    (E5M2X1, E5M2X1, 2, (127, 127), (127, 127), (-32, -31, -20, -2, 0, 17, 31, 40)),
    (E4M3X1_U, E4M3X1_U, 2, (56, 60), (57, 57), (-24, -23, -15, -3, 0, 9, 16, 24)),
]


@pytest.mark.parametrize("rounding", SHIFT_ROUNDINGS)
@pytest.mark.parametrize("case", SMALL, ids=lambda c: f"{c[0]}-{c[2]}")
def test_range_and_losses_are_those_of_every_input(case, rounding):
    a, b, k, scales_a, scales_b, lsbs = case
    for lsb in (None, *lsbs):
        need = fixed_point_for(
            a, b, k=k, scales_a=scales_a, scales_b=scales_b, lsb_exponent=lsb, rounding=rounding
        )
        low, high, error_low, error_high = brute(need)
        assert (need.low, need.high) == (low, high)
        assert need.width == bits_of(low, high)
        if need.proven:
            assert (need.error_low, need.error_high) == (error_low, error_high)
        else:  # of single products too many to try: the least that is known
            assert a in (E4M3X1, E5M2X1, E4M3X1_U)
            assert error_low <= need.error_low <= 0 <= need.error_high <= error_high
        check_witnesses(need)


@pytest.mark.parametrize("rounding", SHIFT_ROUNDINGS)
@pytest.mark.parametrize("case", SMALL, ids=lambda c: f"{c[0]}-{c[2]}")
def test_the_exact_lsb_loses_nothing_and_the_next_coarser_something(case, rounding):
    a, b, k, scales_a, scales_b, _ = case
    options = {"k": k, "scales_a": scales_a, "scales_b": scales_b, "rounding": rounding}
    need = fixed_point_for(a, b, **options)
    assert need.lsb_exponent == need.exact_lsb
    assert brute(need)[2:] == (need.error_low, need.error_high) == (0, 0)
    assert "nothing is lost" in str(need)
    coarser = fixed_point_for(a, b, lsb_exponent=need.exact_lsb + 1, **options)
    assert coarser.exact_lsb == need.exact_lsb
    assert brute(coarser)[2] < 0
    assert coarser.error_low < 0
    assert "lost by" in str(coarser)


@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_witnesses_of_many_blocks_and_wide_scales(fmt):
    middle = fmt.scale.code_count // 2
    for k, spread, lsb in ((1000, 0, None), (1000, 12, None), (1000, 12, -6), (64, 30, 2)):
        if fmt is mxfp.MXINT8 and lsb is None and spread:
            continue  # its sums take seconds to count, once is enough
        ranges = {"scales_a": (middle - spread, middle), "scales_b": (middle - spread // 2, middle)}
        need = fixed_point_for(fmt, k=k, lsb_exponent=lsb, **ranges)
        check_witnesses(need)
        assert need.proven


@pytest.mark.parametrize("rounding", SHIFT_ROUNDINGS)
@pytest.mark.parametrize("fmt", [mxfp.MXFP8_E4M3, mxfp.MXFP8_E5M2], ids=name_of)
def test_losses_of_sums_too_many_to_try_are_proven(fmt, rounding):
    for lsb in (-12, -1, 20):
        need = fixed_point_for(
            fmt, k=64, scales_a=(120, 130), scales_b=(127, 127), lsb_exponent=lsb, rounding=rounding
        )
        assert need.proven
        unit = oracle.power(lsb)
        least = {"floor": 1, "toward_zero": 1, "nearest_even": Fraction(1, 2)}[rounding] * unit
        assert 0.99 * 2 * least < -need.error_low <= 2 * least
        assert need.error_high == (0 if rounding == "floor" else -need.error_low)
        check_witnesses(need)


def test_all_scales_of_all_formats():
    """The width is that of the ends and the LSB that of the smallest product, worked out here."""
    for fmt in FORMATS:
        need = fixed_point_for(fmt, k=fmt.block)
        live = [x for x in (oracle.scale(fmt.scale.name, c) for c in range(fmt.scale.nan_code)) if x]
        low, high = (products(fmt.element.name, fmt.element.name)[i] * fmt.block for i in (0, -1))
        factor = unit_of(fmt, fmt) / oracle.power(need.lsb_exponent)
        assert (need.low, need.high) == (low * factor * max(live) ** 2, high * factor * max(live) ** 2)
        assert oracle.power(need.lsb_exponent) == min(live) ** 2 * unit_of(fmt, fmt)
        ratio = (max(live) / min(live)) ** 2
        assert 2 ** (need.range_bits - 1) < ratio <= 2**need.range_bits
        assert need.proven


def test_fourteen_bits_and_those_of_blocks_and_range():
    for blocks, spread in itertools.product((1, 2, 256), (0, 1, 7)):
        need = fixed_point_for(k=32 * blocks, scales_a=(127 - spread, 127), scales_b=(127, 127))
        assert need.width == 14 + (blocks.bit_length() - 1) + spread
        assert need.range_bits == spread


def longest(register, a, b, scales_a, scales_b):
    """One element more and more, until the register is too narrow."""
    for k in range(1, 1000):
        need = fixed_point_for(
            a,
            b,
            k=k,
            scales_a=scales_a,
            scales_b=scales_b,
            lsb_exponent=register.lsb_exponent,
            rounding=register.rounding,
        )
        low, high = brute(need)[:2]
        if bits_of(low, high) > register.width:
            return k - 1
    raise AssertionError("no K is too long")


@pytest.mark.parametrize("rounding", SHIFT_ROUNDINGS)
@pytest.mark.parametrize(
    ("width", "lsb", "fmt", "first", "last"),
    [
        (9, -2, MXFP4, 127, 127),
        (8, -2, MXFP4, 127, 127),
        (13, -2, MXFP4, 127, 127),
        (10, 3, MXFP4, 126, 128),
        (18, -12, INT8X3, 127, 127),
        (4, 9, INT8X3, 127, 128),
        (3, 40, INT8X3, 127, 127),
    ],
)
def test_the_longest_dot_product_that_a_register_holds(width, lsb, fmt, first, last, rounding):
    register = mxfp.FixedPoint(width, lsb, "raise", rounding)
    scales = {"scales_a": (first, last), "scales_b": (first, last)}
    found = longest_k(register, fmt, **scales)
    if rounding != "floor" and lsb >= 9:  # nothing ever reaches the register
        assert found > 1 << 20
        return
    assert found == longest(register, fmt, fmt, *scales.values())
    need = fixed_point_for(fmt, k=found + 1, lsb_exponent=lsb, rounding=rounding, **scales)
    overflows = 0
    for end in ("low", "high"):
        try:
            register(mxfp.block_dots(*need.witness(end)))
        except WidthError:
            overflows += 1
    assert overflows


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"a": mxfp.E2M1}, TypeError, "a is a BlockFormat, such as mxfp.MXFP4, got E2M1"),
        ({"b": "MXFP4"}, TypeError, "b is a BlockFormat, such as mxfp.MXFP4, got 'MXFP4'"),
        ({"b": NVFP4}, ValueError, "a is MXFP4 in blocks of 32, b is NVFP4 in blocks of 16"),
        ({"k": 0}, ValueError, "k is a number of elements, 1 … "),
        ({"k": 2.0}, ValueError, "k is a number of elements"),
        ({"k": True}, ValueError, "k is a number of elements"),
        ({"k": 10**20}, ValueError, "k is a number of elements"),
        ({"scales_a": (0, 255)}, ValueError, "scales_a is the smallest and the largest scale code of E8M0"),
        ({"scales_b": (5, 4)}, ValueError, "scales_b is the smallest and the largest scale code"),
        ({"scales_b": 5}, ValueError, "scales_b is the smallest and the largest scale code"),
        ({"rounding": "up"}, ValueError, "rounding"),
        ({"lsb_exponent": 0.5}, ValueError, "lsb_exponent is an integer"),
        ({"lsb_exponent": 10**6}, ValueError, "lsb_exponent is an integer"),
        ({"a": NVFP4, "scales_a": (0, 0)}, ValueError, "every scale of NVFP4 from code 0 to 0 is zero"),
    ],
)
def test_wrong_arguments(options, kind, words):
    with pytest.raises(kind, match=words):
        fixed_point_for(**{"k": 32, **options})


@pytest.mark.parametrize("register", ["fixed:24:-2", None, mxfp.Exact("float32"), 24])
def test_only_a_register_has_a_longest_dot_product(register):
    with pytest.raises(TypeError, match="register is a FixedPoint"):
        longest_k(register)


def test_extremes_have_four_names():
    with pytest.raises(ValueError, match="extreme"):
        fixed_point_for(k=32).witness("most")


def test_numbers_of_numpy_are_numbers():
    need = fixed_point_for(
        k=np.int64(64), scales_a=(np.uint8(127), np.int64(127)), lsb_exponent=np.int32(-130)
    )
    assert need == fixed_point_for(k=64, scales_a=(127, 127), lsb_exponent=-130)
    assert type(need.k) is int
