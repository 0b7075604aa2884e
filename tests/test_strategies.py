# SPDX-License-Identifier: Apache-2.0
"""What strategies draw is valid, strains what it says, and shrinks to what one can read."""

import itertools
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path

import flawed
import my_accumulator
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, given, seed, settings
from hypothesis import strategies as st

import mxfp
import oracle
from mxfp import strategies
from mxfp.dot import Terms
from mxfp.strategies import BIASES, DotPair, block_arrays, blocks, codes, describe, dot_pairs, scales, terms
from support import ELEMENTS, FORMATS, name_of

EXAMPLES = Path(__file__).parents[1] / "examples"
PAGE = Path(__file__).parents[1] / "docs" / "property-testing.md"
PAIRS = [(a, b) for a, b in itertools.product(FORMATS, FORMATS) if a.block == b.block]
MIXED = (mxfp.MXFP8_E5M2, mxfp.MXFP6_E2M3)
PHASES = [phase for phase in Phase if phase is not Phase.explain]
PLAIN = settings(database=None, deadline=None, derandomize=True, phases=PHASES)
FLAWS = {
    "DropsABit": "any",
    "RoundsTwice": "ties",
    "WrapsAt13Bits": "near_overflow",
    "AddsBackwards": "swamping",
}
"""Each wrong model of examples/flawed.py, and the bias whose failure the page shows."""

SAME_EVERY_TIME = """from hypothesis import settings
settings.register_profile("same", derandomize=True, database=None)
settings.load_profile("same")
"""


def minimal(strategy, condition):
    """The simplest example that hypothesis finds."""
    return find(strategy, condition, settings=PLAIN)


def drawn(strategy, count=100, number=0, checks=()):
    """What a test of so many examples sees, from a seed.

    Shares of it are asserted with room to spare: hypothesis also draws constants that it finds in the modules
    that happen to be loaded, so the same seed does not draw the same everywhere.
    checks: of health, that are left out.
    """
    found = []

    @seed(number)
    @settings(
        database=None,
        deadline=None,
        max_examples=count,
        phases=[Phase.generate],
        suppress_health_check=checks,
    )
    @given(strategy)
    def collect(value):
        found.append(value)

    collect()
    return found


def exact(pair):
    """The exact terms of a pair of finite scales."""
    return list(mxfp.block_dots(*pair).fractions())


def lanes(pair):
    """(index, code of a, code of b) of each lane that is not zero."""
    both = pair.a.codes.tolist(), pair.b.codes.tolist()
    return [(n, x, y) for n, (x, y) in enumerate(zip(*both, strict=True)) if x or y]


def one(table):
    """The code of 1.0 in a table of values."""
    return int(np.flatnonzero(table == 1.0)[0])


def exponent(value):
    """floor(log2 |value|) of a Fraction."""
    return oracle.floor_log2(abs(value))


# --- codes, scales, arrays


@pytest.mark.parametrize("element", ELEMENTS, ids=name_of)
def test_codes_shrink_to_zero_then_to_one_and_are_finite_unless_asked(element):
    assert minimal(codes(element), lambda code: True) == 0
    assert minimal(codes(element), lambda code: element.values[code] != 0) == one(element.values)
    assert minimal(codes(element), lambda code: element.values[code] < 0) == one(-element.values)
    assert set(drawn(codes(element), 2000)) == set(np.flatnonzero(element.finite).tolist())
    assert set(drawn(codes(element, specials=True), 2000)) == set(range(element.code_count))


@pytest.mark.parametrize("fmt", [mxfp.E8M0, mxfp.UE4M3], ids=name_of)
def test_scales_shrink_to_one_and_are_numbers_unless_asked(fmt):
    assert minimal(scales(fmt), lambda code: True) == one(fmt.values)
    assert minimal(scales(fmt), lambda code: code > one(fmt.values) + 9) == one(fmt.values) + 10
    assert minimal(scales(fmt), lambda code: code < one(fmt.values) - 9) == one(fmt.values) - 10
    assert minimal(scales(fmt, nan=True), lambda code: code == fmt.nan_code) == fmt.nan_code
    found = set(drawn(scales(fmt), 2000))
    assert found <= set(range(fmt.nan_code))
    assert {0, fmt.nan_code - 1} <= found
    assert fmt.nan_code in drawn(scales(fmt, nan=True), 20)


@PLAIN
@given(st.data())
def test_arrays_have_the_shape_and_the_axis_that_were_asked_for(data):
    fmt = data.draw(st.sampled_from(FORMATS))
    shape = data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=3).map(tuple))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    q = data.draw(block_arrays(fmt, shape, axis=axis))
    assert isinstance(q, mxfp.BlockArray)
    assert (q.format, q.shape, q.axis, q.tensor_scale) == (fmt, shape, axis, 1.0)
    assert fmt.element.finite[q.codes].all()
    assert fmt.scale.finite[q.scales].all()
    several = data.draw(block_arrays(fmt, st.tuples(st.integers(1, 3), st.just(40))))
    assert several.shape[1] == 40


def test_arrays_are_not_all_zeros_and_hold_specials_when_asked():
    found = drawn(block_arrays(mxfp.MXFP8_E5M2, (3, 70), specials=True, nan=True))
    values = [np.asarray(q, np.float64) for q in found]
    assert sum(bool((v == 0).all()) for v in values) < 60
    assert sum(bool((v != 0).mean() > 0.8) for v in values) > 0
    assert sum(bool((~q.format.element.finite[q.codes]).any()) for q in found) > 0
    assert sum(bool((q.scales == 255).any()) for q in found) > 0


def test_arrays_shrink_to_one_element_of_one_that_comes_first():
    q = minimal(block_arrays(mxfp.MXFP4, (40, 3), axis=0), lambda q: q.codes.any())
    assert np.argwhere(q.codes).tolist() == [[0, 0]]
    assert q.codes[0, 0] == one(mxfp.E2M1.values)
    assert set(q.scales.ravel().tolist()) == {127}
    q = minimal(blocks(mxfp.NVFP4), lambda q: (q.codes == 7).sum() >= 3)
    assert q.codes.tolist() == [7, 7, 7] + [0] * 13
    assert minimal(block_arrays(mxfp.MXFP4, st.integers(1, 99)), lambda q: True).shape == (1,)


def test_what_is_no_format_is_refused_by_name():
    with pytest.raises(TypeError, match=r"block format such as mxfp\.MXFP4, got mxfp\.E2M1|got E2M1"):
        blocks(mxfp.E2M1)
    with pytest.raises(TypeError, match="scale or block format"):
        scales(mxfp.E2M1)
    with pytest.raises(TypeError, match="element or block format"):
        codes("MXFP4")


# --- pairs


@pytest.mark.parametrize("bias", BIASES)
@settings(PLAIN, max_examples=60)
@given(data=st.data())
def test_pairs_are_valid_for_every_two_formats_and_every_bias(bias, data):
    fmt_a, fmt_b = data.draw(st.sampled_from(PAIRS))
    low = data.draw(st.integers(1, 5))
    high = data.draw(st.integers(max(low, 2), 6))
    dtype = data.draw(st.sampled_from(("float16", "bfloat16", "float32", "float64")))
    pair = data.draw(dot_pairs(fmt_a, fmt_b, blocks=(low, high), bias=bias, dtype=dtype))
    a, b = pair
    assert (a.format, b.format) == (fmt_a, fmt_b)
    assert a.shape == b.shape
    assert low * fmt_a.block <= a.shape[0] <= high * fmt_a.block
    assert a.shape[0] % fmt_a.block == 0
    assert fmt_a.element.finite[a.codes].all()
    assert fmt_b.element.finite[b.codes].all()
    numbers = fmt_a.scale.finite[a.scales].all() and fmt_b.scale.finite[b.scales].all()
    assert numbers == (bias != "nan_scales")
    assert mxfp.BlockArray(a.codes, a.scales, fmt_a) == a


def test_pairs_of_one_block_and_of_a_fixed_number():
    assert {p.a.shape for p in drawn(dot_pairs(blocks=1))} == {(32,)}
    assert {p.a.shape for p in drawn(dot_pairs(mxfp.NVFP4, blocks=5))} == {(80,)}
    assert len({p.a.shape for p in drawn(dot_pairs(blocks=(2, 6)), 300)}) == 5


@pytest.mark.parametrize(("fmt_a", "fmt_b"), [*[(f, f) for f in FORMATS], MIXED, MIXED[::-1]], ids=name_of)
def test_any_nonzero_term_shrinks_to_one_times_one_in_the_first_lane(fmt_a, fmt_b):
    pair = minimal(dot_pairs(fmt_a, fmt_b), lambda pair: mxfp.block_dots(*pair).sums.any())
    assert lanes(pair) == [(0, one(fmt_a.element.values), one(fmt_b.element.values))]
    assert pair.a.scales.tolist() == [one(fmt_a.scale.values)]
    assert pair.b.scales.tolist() == [one(fmt_b.scale.values)]


def test_anything_at_all_shrinks_to_one_block_of_zeros():
    for bias in ("any", "scale_extremes", "cancellation"):
        pair = minimal(dot_pairs(bias=bias), lambda pair: True)
        assert lanes(pair) == []
        assert (pair.a.scales.tolist(), pair.b.scales.tolist()) == ([127], [127])


@pytest.mark.parametrize("number", range(4))
def test_a_large_term_shrinks_to_few_equal_lanes(number):
    pair = find(
        dot_pairs(),
        lambda pair: mxfp.block_dots(*pair).sums.max() > 150,
        settings=settings(PLAIN, derandomize=False),
        random=random.Random(number),
    )
    assert pair.a.scales.tolist() == pair.b.scales.tolist() == [127]
    assert [n for n, _, _ in lanes(pair)] == [0, 1]
    assert len({(x, y) for _, x, y in lanes(pair)}) == 1


def test_fourteen_bits_shrink_to_29_lanes_of_six_times_six():
    pair = minimal(dot_pairs(bias="near_overflow"), lambda pair: mxfp.block_dots(*pair).sums.max() > 4095)
    assert lanes(pair) == [(n, 7, 7) for n in range(29)]
    with pytest.raises(mxfp.WidthError):
        mxfp.block_dots(*pair, width=13)


def test_a_rounding_in_float32_shrinks_to_the_classic_case():
    def rounds(pair):
        found = mxfp.block_dots(*pair)
        return mxfp.Sequential("float32")(found) != mxfp.Exact("float64")(found)

    pair = minimal(dot_pairs(bias="swamping"), rounds)
    assert [(n, x, y) for n, x, y in lanes(pair)] == [(0, 2, 2), (32, 2, 2)]
    assert exact(pair) == [2**24, 1]


def test_a_nan_shrinks_to_one_scale_of_a_block_of_zeros():
    pair = minimal(dot_pairs(), lambda pair: mxfp.block_dots(*pair).specials is not None)
    assert lanes(pair) == []
    assert sorted(pair.a.scales.tolist() + pair.b.scales.tolist()) == [127, 255]
    both = minimal(dot_pairs(bias="any"), lambda pair: pair.a.scales.max() > 139)
    assert (lanes(both), both.b.scales.tolist()) == ([], [127])


def test_the_mixture_has_every_bias_and_shrinks_to_any():
    seen = Counter()
    original = strategies._strain

    def counted(bias, *rest):
        seen[bias] += 1
        original(bias, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strategies, "_strain", counted)
        drawn(dot_pairs(), 1000)
    assert set(seen) == set(BIASES)
    assert min(seen.values()) > 8
    some = drawn(dot_pairs(bias=["nan_scales", "any"]), 300)
    assert 0 < sum(mxfp.block_dots(*pair).specials is not None for pair in some) < 300


# --- what each bias promises


@pytest.mark.parametrize(
    "formats", [(mxfp.MXFP4,) * 2, (mxfp.NVFP4,) * 2, (mxfp.MXINT8,) * 2, MIXED], ids=str
)
def test_cancellation_leaves_nothing_or_one_lsb(formats):
    kinds = Counter()
    for pair in drawn(dot_pairs(*formats, bias="cancellation"), 300):
        values = exact(pair)
        total = sum(values)
        found = mxfp.block_dots(*pair)
        last = max((n for n in range(len(pair.a.scales)) if values[n] or found.live[n]), default=0)
        scale = [q.format.scale.values[q.scales[last]] for q in pair]
        least = Fraction(2) ** (formats[0].element.lsb_exponent + formats[1].element.lsb_exponent)
        assert abs(total) in (0, least * Fraction(scale[0]) * Fraction(scale[1]))
        within = bool(found.live.any()) and not any(values)
        across = any(values) and total == 0
        kinds["within" if within else "across" if across else "one LSB" if total else "nothing"] += 1
    assert kinds["within"] > 8
    assert kinds["across"] > 8
    assert kinds["one LSB"] > 15
    assert kinds["nothing"] < 150


@pytest.mark.parametrize(("dtype", "precision"), [("float16", 11), ("bfloat16", 8), ("float32", 24)])
@pytest.mark.parametrize("formats", [(mxfp.MXFP4,) * 2, MIXED], ids=str)
def test_ties_lie_on_a_midpoint_or_one_lsb_beside_it(dtype, precision, formats):
    sides = Counter()
    for pair in drawn(dot_pairs(*formats, bias="ties", dtype=dtype), 200):
        values = exact(pair)
        total = abs(sum(values))
        unit = Fraction(2) ** (exponent(total) - precision + 1)
        beside = total / unit % 1 - Fraction(1, 2)
        lsb = Fraction(2) ** int(mxfp.block_dots(*pair).exponents[[n for n, v in enumerate(values) if v][-1]])
        if beside == 0:
            sides["on it"] += 1
        elif abs(beside * unit) <= lsb:
            sides["above" if beside > 0 else "below"] += 1
        else:
            sides["elsewhere"] += 1
    assert sides["elsewhere"] <= 20  # the scales do not reach
    assert min(sides["on it"], sides["above"], sides["below"]) > 3


@pytest.mark.parametrize(("dtype", "precision"), [("float16", 11), ("float32", 24), ("float64", 53)])
def test_swamping_puts_a_large_term_before_and_behind_small_ones(dtype, precision):
    places = Counter()
    for pair in drawn(dot_pairs(bias="swamping", dtype=dtype), 200):
        sizes = [exponent(v) for v in exact(pair)]
        large = [n for n, size in enumerate(sizes) if size > min(sizes)]
        if max(sizes) - min(sizes) in range(precision - 4, precision + 5):
            places[tuple("first" if n == 0 else "last" if n == len(sizes) - 1 else n for n in large)] += 1
            places["many small"] += len(sizes) - len(large) >= 4
    assert set(places) == {("first",), ("last",), ("first", "last"), "many small"}
    assert min(places.values()) > 5
    assert sum(places.values()) - places["many small"] > 120


def test_near_overflow_fills_the_width_and_aims_at_the_ends_of_the_dtype():
    found = drawn(dot_pairs(bias="near_overflow", dtype="float32"), 600)
    sums = [int(np.abs(mxfp.block_dots(*pair).sums).max()) for pair in found]
    assert sum(s > 4095 for s in sums) > 25
    assert max(sums) == 4608
    tops = Counter(max((exponent(v) for v in exact(pair) if v), default=None) for pair in found)
    for aim in (128, -126, -149):
        assert sum(tops[aim + near] for near in range(-2, 3)) > 3
        assert sum(tops[aim + near] > 0 for near in range(-2, 3)) >= 2
    small = drawn(dot_pairs(mxfp.NVFP4, bias="near_overflow", dtype="float16"), 300)
    tops = Counter(max((exponent(v) for v in exact(pair) if v), default=None) for pair in small)
    assert sum(tops[16 + near] for near in range(-2, 3)) > 1


@pytest.mark.parametrize(("fmt", "ends"), [(mxfp.MXFP4, (0, 1, 253, 254)), (mxfp.NVFP4, (0, 1, 125, 126))])
def test_scale_extremes_are_the_ends_and_what_is_around_one(fmt, ends):
    found = drawn(dot_pairs(fmt, bias="scale_extremes"), 200)
    middle = one(fmt.scale.values)
    for side in range(2):
        seen = Counter(code for pair in found for code in set(pair[side].scales.tolist()))
        assert set(seen) == {*ends, middle - 1, middle, middle + 1}
        assert min(seen.values()) > 3


def test_nan_scales_are_on_either_side():
    found = drawn(dot_pairs(bias="nan_scales"), 200)
    sides = Counter((bool((a.scales == 255).any()), bool((b.scales == 255).any())) for a, b in found)
    assert set(sides) == {(True, False), (False, True), (True, True)}
    assert min(sides.values()) > 5


def test_terms_are_those_of_a_pair():
    found = drawn(terms(mxfp.MXFP4, bias="cancellation", group=16), 50)
    assert all(isinstance(t, Terms) and t.group == 16 for t in found)
    assert sum(sum(t.fractions()) == 0 for t in found) > 6


def test_wrong_options_are_refused_with_what_to_do():
    with pytest.raises(ValueError, match="block sizes must be equal: MXFP4 has 32, NVFP4 16"):
        dot_pairs(mxfp.MXFP4, mxfp.NVFP4)
    with pytest.raises(ValueError, match=r"bias must be one of 'any', .* got 'large'"):
        dot_pairs(bias="large")
    with pytest.raises(ValueError, match=r"1 or more, or .fewest, most., got 0"):
        dot_pairs(blocks=0)
    with pytest.raises(ValueError, match="needs room for two blocks or more"):
        dot_pairs(blocks=1, bias="swamping")
    with pytest.raises(TypeError, match="dtype"):
        dot_pairs(dtype="int8")


NO_SHAPES = {
    "negative": (-1, ValueError, "shape is a number of elements along each axis, 0 or more, got -1"),
    "negative axis": ((2, -3), ValueError, r"0 or more, got \(2, -3\)"),
    "text": ("32", TypeError, "shape is an integer or a tuple of integers, got '32'"),
    "float": (2.5, TypeError, "got 2.5"),
    "floats": ((2.5,), TypeError, "got .2.5,."),
    "truth": (True, TypeError, "got True"),
    "none": (None, TypeError, "got None"),
    "scalar": ((), ValueError, "at least one dimension"),
}


@pytest.mark.parametrize(("shape", "error", "message"), NO_SHAPES.values(), ids=NO_SHAPES)
def test_what_is_no_shape_is_refused_before_anything_is_drawn(shape, error, message):
    with pytest.raises(error, match=message):
        block_arrays(mxfp.MXFP4, shape)
    with pytest.raises(error, match=message):
        minimal(block_arrays(mxfp.MXFP4, st.just(shape)), lambda q: True)


def test_an_axis_that_is_not_there_is_refused_before_anything_is_drawn():
    with pytest.raises(ValueError, match="axis 2 is out of range"):
        block_arrays(mxfp.MXFP4, (3, 4), axis=2)


@pytest.mark.parametrize(
    "number", [True, 2.5, None, (1, 2, 3), ("a", "b"), "12", (1.5, 2.5), (True, 2), (2, 1)], ids=str
)
def test_what_is_no_number_of_blocks_is_refused_in_one_line(number):
    with pytest.raises(ValueError, match=re.escape(f"or (fewest, most), got {number!r}")):
        dot_pairs(blocks=number)


@pytest.mark.parametrize(("bias", "message"), [([], "got none"), (5, "got 5"), (None, "got None")], ids=str)
def test_what_is_no_bias_is_refused_in_one_line(bias, message):
    with pytest.raises(ValueError, match=f"bias .*{message}"):
        dot_pairs(bias=bias)


# --- formats of one's own


SMALL = [
    mxfp.ElementFormat("E1M0", 1, 0, 1),
    mxfp.ElementFormat("INT4", 1, 2, 1, mxfp.formats.Specials.NONE, True),
    mxfp.ElementFormat("E2M1 of IEEE", 2, 1, 1, mxfp.formats.Specials.IEEE),
]
NARROW = [
    mxfp.ScaleFormat("one code", 1, 0, 0, False),
    mxfp.ScaleFormat("1.0 on top", 3, 0, 6, False),
    mxfp.ScaleFormat("UE1M1", 1, 1, 0, True),
]


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("scale", NARROW, ids=name_of)
def test_small_formats_of_ones_own_and_blocks_of_few_lanes_have_valid_pairs(scale, bias):
    rules = ("nearest",) if scale.mantissa_bits else ("floor",)
    for element, block in zip(SMALL, (2, 1, 3), strict=True):
        fmt = mxfp.BlockFormat("own", element, scale, block, rules)
        pairs = dot_pairs(fmt, blocks=(1, 4), bias=bias, dtype="float16")
        for pair in drawn(pairs, 15, checks=[HealthCheck.filter_too_much]):  # most of them are zeros
            assert element.finite[[*pair.a.codes, *pair.b.codes]].all()
            numbers = scale.finite[[*pair.a.scales, *pair.b.scales]].all()
            assert numbers == (bias != "nan_scales")
            if bias == "cancellation":
                lsb = Fraction(2) ** (2 * element.lsb_exponent) * Fraction(scale.max) ** 2
                assert abs(sum(exact(pair))) <= lsb
            assert str(pair).startswith("own × own")


def test_a_format_of_zeros_alone_has_no_pairs():
    nothing = mxfp.ElementFormat("N", 1, 0, 1, mxfp.formats.Specials.NAN_AT_TOP)
    fmt = mxfp.BlockFormat("nothing", nothing, mxfp.E8M0, 32, ("floor",))
    with pytest.raises(ValueError, match="nothing has no element but zero"):
        dot_pairs(mxfp.MXFP4, fmt)
    assert not minimal(blocks(fmt), lambda q: True).codes.any()


# --- words


def test_a_pair_is_described_lane_by_lane():
    scale = np.uint8([127, 255, 137, 127])
    x, y = np.zeros(128, np.uint8), np.zeros(128, np.uint8)
    x[[0, 1, 31, 32, 70]], y[[0, 1, 31, 32, 70]] = (7, 7, 1, 2, 15), (7, 7, 9, 2, 4)
    pair = DotPair(
        *(mxfp.BlockArray(c, s, mxfp.MXFP4) for c, s in ((x, scale), (y, np.full(4, 127, np.uint8))))
    )
    assert repr(pair) == describe(*pair)
    assert repr(pair) == (
        "MXFP4 × MXFP4, K = 128, exact sum nan\n"
        "block 0: scales 127 × 127, term 287 · 2^-2 = 71.75\n"
        "  lanes 0–1: 6 × 6 (codes 7, 7)\n"
        "  lane 31: 0.5 × -0.5 (codes 1, 9)\n"
        "block 1: scales 255 × 127, term nan\n"
        "  lane 0: 1 × 1 (codes 2, 2)\n"
        "block 2: scales 137 × 127, term -48 · 2^8 = -12288\n"
        "  lane 6: -6 × 2 (codes 15, 4)\n"
        "block 3: scales 127 × 127, term 0"
    )
    zero = mxfp.quantize(np.zeros(32))
    assert describe(zero, zero).splitlines()[0].endswith("exact sum 0")
    with pytest.raises(ValueError, match="two vectors"):
        describe(*[mxfp.quantize(np.ones((2, 32)))] * 2)


def test_infinities_of_both_signs_are_described_as_nan():
    fmt = mxfp.MXFP8_E5M2
    codes, scales = np.zeros((2, 64), np.uint8), np.full(2, 127, np.uint8)
    codes[0, [0, 32]] = [0x7C, 0xFC]  # infinity and minus infinity
    codes[1, [0, 32]] = one(fmt.element.values)
    lines = describe(*(mxfp.BlockArray(row, scales, fmt) for row in codes)).splitlines()
    assert lines[0].endswith("exact sum nan")
    assert [line.partition("term ")[2] for line in lines if "term" in line] == ["inf", "-inf"]


def test_numbers_that_are_long_in_decimals_are_written_with_an_exponent():
    scale = np.uint8([254])
    large = mxfp.BlockArray(np.uint8([2]), scale, mxfp.MXFP4)
    small = mxfp.BlockArray(np.uint8([11]), np.uint8([0]), mxfp.MXFP4)
    assert describe(large, large).splitlines()[0].endswith("exact sum 2^254")
    assert describe(small, small).splitlines()[0].endswith("exact sum 9 · 2^-256")
    assert describe(small, large).splitlines()[0].endswith("exact sum -1.5")


# --- without the extra


def test_without_hypothesis_the_import_names_the_extra():
    code = "import sys; sys.modules['hypothesis'] = None; import mxfp; import mxfp.strategies"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "ImportError: mxfp.strategies needs hypothesis" in done.stderr
    assert "pip install 'mxfp-emulator[hypothesis]'" in done.stderr


# --- the example


def run_example(folder, *options, model="my_accumulator:MyAccumulator"):
    """The example as a team would run it, copied to a folder of its own; its exit status and its output."""
    shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "conftest.py").write_text(SAME_EVERY_TIME, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *options,
        "test_my_accumulator.py",
    ]
    environment = {**os.environ, "MODEL": model}
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, env=environment)
    return done.returncode, done.stdout


def test_the_right_model_of_the_example_passes(tmp_path):
    status, output = run_example(tmp_path)
    assert status == 0, output
    assert f"{2 * len(BIASES)} passed" in output


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("flaw", FLAWS)
def test_every_wrong_model_is_caught_within_100_examples_whatever_the_seed(flaw, number):
    wrong, right = getattr(flawed, flaw)(), my_accumulator.MyAccumulator()
    differ = 0
    for pair in drawn(dot_pairs(mxfp.MXFP4, bias=FLAWS[flaw]), 100, number):
        found = mxfp.block_dots(*pair)
        pairs = list(zip(found.sums.tolist(), found.exponents.tolist(), strict=True))
        expected = float(mxfp.Sequential("float32")(found))
        assert right.dot(pairs) == expected
        differ += wrong.dot(pairs) != expected
    assert differ


def shown(output):
    """The message and the pair of a failure, as pytest prints them, without what is before and behind."""
    lines = [line[1:].strip() for line in output.splitlines() if line.startswith("E ")]
    start = next(n for n, line in enumerate(lines) if "AssertionError" in line)
    kept = [lines[start], *(line for line in lines if re.match(r"pair=|block \d|lanes? \d", line))]
    return [line.rstrip(",") for line in kept]


@pytest.mark.parametrize("flaw", FLAWS)
def test_the_page_shows_what_the_example_prints(flaw, tmp_path):
    status, output = run_example(tmp_path, "-k", f"reference and {FLAWS[flaw]}", model=f"flawed:{flaw}")
    assert status == 1, output
    section = PAGE.read_text(encoding="utf-8").split(
        f'MODEL=flawed:{flaw} pytest -k "reference and {FLAWS[flaw]}"'
    )[1]
    block = re.search(r"^```text\n(.*?)^```", section, re.MULTILINE | re.DOTALL).group(1)
    assert shown(block) == shown(output), f"in {PAGE.name}, put this:\n{output}"
    assert "1 failed" in output


def test_the_page_names_every_bias():
    text = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == list(BIASES)
