# SPDX-License-Identifier: Apache-2.0
"""Faults met in the field: each case of field/cases.json that applies, under its id and source."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import threading
import tracemalloc
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import mxfp
from mxfp import BlockArray, packing
from mxfp.encode import draws
from mxfp.integers import sum_bounds, sum_width
from support import size

FIELD = Path(__file__).parent / "field" / "cases.json"
CONTRACT = Path(__file__).parents[1] / "docs" / "contract.md"
CASES = {case["id"]: case for case in json.loads(FIELD.read_text("utf-8"))}
TESTED: set[str] = set()
ENGINES = ("numba", "reference")
U8 = np.uint8

NOT_APPLICABLE_YET = {
    "F05": "the byte order of a GGUF container: comes with reading files",
    "F07": "safetensors header dtypes and shapes: comes with reading files",
}
"""Cases that belong to features that do not exist yet, and why."""


def case(number):
    """Parametrize a test with one case; its test id is the case's id and where it was met."""
    TESTED.add(number)
    found = CASES[number]
    return pytest.mark.parametrize("case", [pytest.param(found, id=f"{number} {found['source']}")])


engines = pytest.mark.parametrize("engine", ENGINES)


# ---------------------------------------------------------------------------------------------------
# Reading the notation of the file


def number(text):
    """2.5, "0.0", "2^-40", "5+2^-40", "3.5-2^-40", "1.5*2^127" or "inf" -> float."""
    found = re.fullmatch(r"(?:([\d.]+)([-+*]))?(-)?2\^(-?\d+)", str(text).strip())
    if not found:
        return float(text)
    first, operator, sign, power = found.groups()
    second = 2.0 ** int(power) * (-1 if sign else 1)
    if first is None:
        return second
    return {"+": float(first) + second, "-": float(first) - second, "*": float(first) * second}[operator]


def numbers(values):
    """A list, or a text with commas -> float64."""
    return np.array([number(v) for v in (values.split(",") if isinstance(values, str) else values)])


def block(text):
    """ "[957, 960, 0 x 30]" (value x count) or "32 x 0.0" (count x value) -> float64 (32,)."""
    if not text.startswith("["):
        count, value = text.split(" x ")
        return np.full(int(count), number(value))
    items = []
    for item in text.strip("[]").split(","):
        value, _, count = item.strip().partition(" x ")
        items += [number(value)] * int(count or 1)
    return np.array(items)


def float32_of(hexes):
    return np.array([int(h, 16) for h in hexes], np.uint32).view(np.float32)


def hexes(x):
    return [f"{int(b):08X}" for b in np.ascontiguousarray(x, np.float32).view(np.uint32).ravel()]


def bytes_of(text):
    """ "7F F1 00x15" -> uint8 array."""
    out = []
    for word in text.split():
        byte, _, count = word.partition("x")
        out += [int(byte, 16)] * int(count or 1)
    return np.array(out, U8)


def bits(x):
    x = np.asarray(x)
    return x.view(f"u{x.dtype.itemsize}")


def scale_byte(amax, rule, engine="numba"):
    return int(mxfp.quantize(np.array([amax], np.float64), scale_rule=rule, engine=engine).scales[0])


def in_blocks(values, byte, engine, **kw):
    """Values -> their codes, each in a block of its own whose scale is `byte` by a number that is 4 of it."""
    values = np.asarray(values, np.float64)
    x = np.stack([values, np.full(values.shape, 4 * 2.0 ** (byte - 127))], axis=-1)
    q = mxfp.quantize(x, engine=engine, **kw)
    assert (q.scales == byte).all()
    assert (q.codes[:, 1] == 6).all()
    return q.codes[:, 0].tolist()


def every_encoder(values, byte=127, **kw):
    """The codes by each way there is: elements, one scalar at a time, and blocks on each engine."""
    values = np.asarray(values, np.float64)
    scaled = values / 2.0 ** (byte - 127)
    found = [mxfp.encode(scaled, mxfp.E2M1, **kw).tolist()]
    found.append([int(mxfp.encode(v, mxfp.E2M1, **kw)) for v in scaled])
    found += [in_blocks(values, byte, engine, **kw) for engine in ENGINES]
    assert all(f == found[0] for f in found)
    return found[0]


def one_scale(codes, byte, **kw):
    """Up to 32 codes and one scale byte -> a vector."""
    return BlockArray(np.asarray(codes, U8), np.array([byte], U8), mxfp.MXFP4, **kw)


def values_by_scale(code, dtype):
    """One code under each of the 256 scales."""
    return BlockArray(np.full((256, 1), code, U8), np.arange(256, dtype=U8)[:, None], mxfp.MXFP4).dequantize(
        dtype=dtype
    )[:, 0]


# ---------------------------------------------------------------------------------------------------
# a: encode and rounding


@case("A01")
def test_ties_go_to_the_even_code(case):
    assert every_encoder(case["input"]["values"]) == case["expected"]["codes"]


@case("A02")
def test_every_code_path_rounds_alike_and_packs_the_same_byte(case):
    given = case["input"]
    codes = every_encoder(given["values"], given["scale_byte"])
    assert codes == case["expected"]["codes"]
    assert mxfp.pack(codes, mxfp.E2M1).tobytes().hex().upper() == case["expected"]["packed_byte_hex"]


@case("A03")
def test_no_sticky_bit_is_lost_next_to_the_smallest_tie(case):
    given = case["input"]
    codes = every_encoder(float32_of(given["f32_bits_hex"]), given["scale_byte"])
    assert codes == case["expected"]["codes"]


@case("A05")
def test_the_binade_of_four_is_not_clamped(case):
    codes = every_encoder(case["input"]["values"])
    assert codes == case["expected"]["codes"]
    assert mxfp.decode(codes, mxfp.E2M1).tolist() == case["expected"]["decoded"]


@case("A06")
def test_float64_is_rounded_once(case):
    x = numbers(case["input"]["values"])
    assert every_encoder(x) == case["expected"]["codes"]
    narrowed = x.astype(ml_dtypes.float4_e2m1fn).view(U8).tolist()
    assert narrowed != case["expected"]["codes"]


@case("A08")
def test_encoding_does_not_truncate(case):
    codes = every_encoder(case["input"]["values"])
    assert codes == case["expected"]["codes"]
    truncated = every_encoder(case["input"]["values"], rounding="toward_zero")
    assert truncated == case["expected"]["truncation_would_give"]


@case("A09")
def test_the_step_is_a_half_below_two(case):
    assert every_encoder(case["input"]["values"]) == case["expected"]["codes"]


@case("A10")
def test_the_contract_lists_the_seven_midpoints_and_their_codes(case):
    codes = every_encoder(case["input"]["values"])
    assert codes == case["expected"]["codes"]
    assert mxfp.decode(codes, mxfp.E2M1).tolist() == case["expected"]["decoded"]
    text = " ".join(CONTRACT.read_text("utf-8").split())
    assert "the seven midpoints 0.25 0.75 1.25 1.75 2.5 3.5 5 go to codes 0 2 2 4 4 6 6" in text


@case("A12")
def test_toward_zero_skips_no_value(case):
    codes = every_encoder(case["input"]["values"], rounding="toward_zero")
    found = mxfp.decode(codes, mxfp.E2M1)
    assert hexes(found) == hexes(case["expected"]["values_out"])
    for x in np.linspace(0, 6, 601):
        largest = max(v for v in mxfp.E2M1.magnitudes if v <= x)
        assert mxfp.decode(mxfp.encode(x, mxfp.E2M1, rounding="toward_zero"), mxfp.E2M1) == largest


# ---------------------------------------------------------------------------------------------------
# b: scales


@engines
@case("B01")
def test_the_floor_scale_comes_from_amax_and_not_from_amax_over_six(case, engine):
    amax = case["input"]["amax"]
    found = [scale_byte(a, "floor", engine) for a in amax]
    assert found == case["expected"]["bytes"]
    ratios = [a / 2.0 ** (b - 127) for a, b in zip(amax, found, strict=True)]
    assert ratios == case["expected"]["amax_over_scale"]


@engines
@case("B02")
def test_four_rules_give_four_answers_each_under_its_name(case, engine):
    rules = [text.split()[0].rstrip(":").lower() for text in case["input"]["order"]]
    assert rules == ["floor", "ceil", "rceil", "even"]
    for amax in case["input"]["amax"]:
        found = [scale_byte(float(amax), rule, engine) for rule in rules]
        assert found == case["expected"]["bytes"][amax], amax


@engines
@case("B03")
def test_the_thresholds_of_the_rules_are_exact_to_the_last_bit(case, engine):
    for rule, given in case["input"]["f32_bits_hex"].items():
        x = float32_of(given)[:, None]
        scales = mxfp.quantize(x, scale_rule=rule.lower(), engine=engine).scales[:, 0]
        assert scales.tolist() == case["expected"][rule], rule


@engines
@case("B04")
def test_amax_is_not_rounded_before_its_exponent_is_taken(case, engine):
    amax = float32_of([case["input"]["amax_f32_bits_hex"]])
    assert mxfp.quantize(amax, engine=engine).scales.tolist() == [case["expected"]["byte"]]
    via_bfloat16 = mxfp.quantize(amax.astype(ml_dtypes.bfloat16), engine=engine)
    assert via_bfloat16.scales.tolist() == [case["expected"]["via_bf16_wrong"]]


@engines
@case("B06")
def test_exponents_of_scales_below_one_are_not_truncated(case, engine):
    assert scale_byte(case["input"]["amax"], "floor", engine) == case["expected"]["byte"]


@engines
@case("B07")
def test_the_largest_exponent_of_the_element_is_subtracted_once(case, engine):
    q = mxfp.quantize(np.array([6.0]), engine=engine)
    assert q.scales.tolist() == [case["expected"]["byte"]]
    assert q.codes.tolist() == [case["expected"]["codes_of_6.0"]]


# A format without mantissa bits, largest value 4: a block whose amax is 4 v asks for the scale v itself.
POWERS = mxfp.BlockFormat(
    "POWERS", mxfp.ElementFormat("E2M0", 2, 0, bias=1), mxfp.E8M0, 32, ("floor", "ceil", "even")
)


def to_e8m0(values, rule, engine="numba"):
    x = 4 * np.asarray(values, np.float64)[:, None]
    return mxfp.quantize(x, POWERS, scale_rule=rule, engine=engine).scales[:, 0].tolist()


@engines
@case("B08")
def test_rounding_up_to_a_power_of_two_sees_every_mantissa_bit(case, engine):
    assert to_e8m0(case["input"]["values"], "ceil", engine) == case["expected"]["bytes"]


@engines
@case("B09")
def test_each_way_to_round_a_scale_has_its_name_and_no_parity(case, engine):
    for name, rule in (("down", "floor"), ("nearest", "even"), ("up", "ceil")):
        assert to_e8m0(case["input"]["values"], rule, engine) == case["expected"]["bytes"][name], name
    nearest = np.array(case["input"]["values"], np.float32).astype(ml_dtypes.float8_e8m0fnu).view(U8)
    assert nearest.tolist() == case["expected"]["bytes"]["nearest"]


@engines
@case("B11")
def test_finite_underflow_is_the_smallest_scale_and_never_nan(case, engine):
    values = numbers(case["input"]["values"])
    for rule in ("floor", "even"):
        assert to_e8m0(values, rule, engine) == case["expected"]["bytes"]
    assert to_e8m0(values, "ceil", engine) == case["expected"]["bytes"]
    assert "A block of zeros has scale code 0 under every rule" in CONTRACT.read_text("utf-8")


@case("B12")
def test_scale_codes_decode_to_the_bits_of_powers_of_two(case):
    found = hexes(values_by_scale(2, np.float32)[case["input"]["bytes"]])
    assert found[:-1] == case["expected"]["f32_bits_hex"][:-1]
    assert found[-1] == "7FC00000"
    a, b = one_scale([6] * 32, 254), one_scale([6] * 32, 0)
    for engine in ENGINES:
        assert float(mxfp.matmul(a, b, engine=engine)) == 512.0
    assert mxfp.block_dots(a, b).fractions().tolist() == [Fraction(512)]


@case("B15")
def test_the_largest_scale_is_divided_by_and_not_multiplied_by_its_inverse(case):
    given = case["input"]
    assert every_encoder(numbers(given["values"]), given["scale_byte"]) == case["expected"]["codes"]


@engines
@case("B17")
def test_blocks_of_zeros_and_tiny_numbers_need_no_threshold(case, engine):
    expected = case["expected"]
    zeros, minus_zeros, smallest, tiny = (
        mxfp.quantize(block(text), engine=engine) for text in case["input"]["blocks"]
    )
    assert zeros.codes.tolist() == [0] * 32
    assert zeros.scales.tolist() == [0]
    assert hexes(zeros.dequantize()) == ["00000000"] * 32
    assert minus_zeros.codes.tolist() == [8] * 32
    assert minus_zeros.scales.tolist() == [0]
    for q, text in ((smallest, "2^-149"), (tiny, "1e-11")):
        assert (int(q.scales[0]), int(q.codes[0])) == (expected[text]["byte"], expected[text]["code"])
        assert q.codes[1:].tolist() == [0] * 31


@engines
@case("B18")
def test_a_scale_one_step_too_large_would_make_numbers_vanish(case, engine):
    for names, expected in case["expected"].items():
        for rule in names.lower().split("="):
            q = mxfp.quantize(case["input"]["block"], scale_rule=rule, engine=engine)
            assert q.scales.tolist() == [expected["byte"]], rule
            assert q.codes.tolist() == expected["codes"], rule
            assert hexes(q.dequantize()) == hexes(expected["decoded"]), rule


@engines
@case("B19")
def test_saturation_under_floor_is_no_fault_and_rceil_avoids_it(case, engine):
    for rule in ("FLOOR", "RCEIL"):
        q = mxfp.quantize(block(case["input"]["block"]), scale_rule=rule.lower(), engine=engine)
        assert q.scales.tolist() == [case["expected"][rule]["byte"]]
        assert q.dequantize()[:2].tolist() == case["expected"][rule]["decoded"]
        assert q.dequantize()[2:].tolist() == [0.0] * 30


@engines
@case("B21")
def test_rceil_never_clips_and_floor_stays_within_its_binade(case, engine):
    amax = case["input"]["amax"]
    assert scale_byte(amax, "rceil", engine) == case["expected"]["RCEIL"]
    assert scale_byte(amax, "floor", engine) == case["expected"]["FLOOR"]
    x = np.random.default_rng(31).uniform(1, 2, 500) * 2.0 ** np.random.default_rng(32).integers(
        -100, 100, 500
    )
    edges = np.array([6.0, np.nextafter(6.0, 7), np.nextafter(6.0, 0), 4.0, np.nextafter(8.0, 0), 7.8])
    x = np.concatenate([x, edges])[:, None]
    ratio = {
        rule: x[:, 0] / mxfp.E8M0.values[mxfp.quantize(x, scale_rule=rule, engine=engine).scales[:, 0]]
        for rule in ("rceil", "floor")
    }
    assert (ratio["rceil"] <= 6).all()
    assert (ratio["rceil"] > 3).all()
    assert ((ratio["floor"] >= 4) & (ratio["floor"] < 8)).all()


@case("B22")
def test_the_scale_rule_is_shown_and_unknown_ones_are_refused(case):
    assert case["expected"]["behaviour"].startswith("rule is an explicit argument")
    for rule in mxfp.MXFP4.scale_rules:
        q = mxfp.quantize([7.8], scale_rule=rule)
        assert q.scale_rule == rule
        assert f"rule {rule}" in repr(q)
        assert q.T.scale_rule == rule
    with pytest.raises(ValueError, match=r"MXFP4 has the scale rules .*got 'stochastic'"):
        mxfp.quantize([7.8], scale_rule="stochastic")


# ---------------------------------------------------------------------------------------------------
# c: special values


@case("C01")
def test_scale_255_is_nan_in_every_dtype_and_no_infinity(case):
    assert "mantissa non-zero" in case["expected"]["each"]
    for dtype, pattern in (
        (np.float16, 0x7E00),
        (ml_dtypes.bfloat16, 0x7FC0),
        (np.float32, 0x7FC00000),
        (np.float64, 0x7FF8000000000000),
    ):
        for code in range(16):
            assert int(bits(values_by_scale(code, dtype))[255]) == pattern


@engines
@case("C03")
def test_a_nan_marks_its_block_wherever_it_stands(case, engine):
    for place in range(32):
        x = np.zeros(64)
        x[0], x[2] = 1, 2
        x[place] = np.nan
        q = mxfp.quantize(x, engine=engine)
        assert q.scales.tolist() == [case["expected"]["byte"], 0]
        assert q.codes.tolist() == [0] * 64
        assert mxfp.quantize(x, nonfinite="saturate", engine=engine).scales.tolist() == [255, 0]


@engines
@case("C04")
def test_an_infinity_follows_the_policy_that_was_named(case, engine):
    assert "one documented policy" in case["expected"]["behaviour"]
    for sign, largest in ((1, 7), (-1, 15)):
        x = np.zeros(32)
        x[:2] = sign * np.inf, 1.0
        nan = mxfp.quantize(x, engine=engine)
        assert (nan.scales.tolist(), nan.codes.tolist()) == ([255], [0] * 32)
        assert np.isnan(nan.dequantize()).all()
        saturated = mxfp.quantize(x, nonfinite="saturate", engine=engine)
        assert (saturated.scales.tolist(), saturated.codes.tolist()) == ([125], [largest, 6] + [0] * 30)
        with pytest.raises(ValueError, match=r"inf at index \(0,\)"):
            mxfp.quantize(x, nonfinite="raise", engine=engine)


@case("C05")
def test_an_element_saturates_and_refuses_nan(case):
    *finite, nan = numbers(case["input"]["values"])
    assert mxfp.encode(finite, mxfp.E2M1).tolist() == case["expected"]["codes"][:-1]
    with pytest.raises(ValueError, match="E2M1 has no NaN, and x is NaN at index"):
        mxfp.encode([nan], mxfp.E2M1)
    assert bool(np.isinf(mxfp.decode(7, mxfp.E2M1))) == case["expected"]["isinf_of_6"]


@case("C06")
def test_the_sign_of_zero_is_kept(case):
    assert every_encoder(case["input"]["values"]) == case["expected"]["codes"]


@case("C08")
def test_one_scale_code_is_nan_and_every_view_agrees_which(case):
    assert "exactly one True" in case["expected"]["property"]
    for dtype in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64):
        nan = np.isnan(values_by_scale(2, dtype).astype(np.float64))
        assert np.flatnonzero(nan).tolist() == [255]
    assert np.flatnonzero(~mxfp.E8M0.finite).tolist() == [255]
    assert np.flatnonzero(np.isnan(mxfp.E8M0.values)).tolist() == [255]
    assert mxfp.E8M0.nan_code == 255


@case("C10")
def test_float16_loses_scales_that_float32_and_float64_keep(case):
    for (code, byte), expected in zip(case["input"]["code_byte"], case["expected"]["float16"], strict=True):
        assert float(values_by_scale(code, np.float16)[byte]) == float(expected)
    for code in range(16):
        exact = [float(mxfp.E2M1.values[code]) * 2.0 ** (byte - 127) for byte in range(255)]
        wide, single = (values_by_scale(code, d)[:255] for d in (np.float64, np.float32))
        assert wide.tolist() == exact
        fits = np.abs(exact) < 2.0**128
        assert single[fits].tolist() == np.array(exact)[fits].tolist()
        assert np.isinf(single[~fits]).all()


# ---------------------------------------------------------------------------------------------------
# d: layout


@case("D01")
def test_element_0_lies_in_the_low_nibble(case):
    codes = mxfp.encode(case["input"]["values"], mxfp.E2M1)
    assert codes.tolist() == case["expected"]["codes"]
    assert mxfp.pack(codes, mxfp.E2M1).tobytes().hex().upper() == "".join(case["expected"]["bytes_hex"])


@case("D02")
def test_an_odd_count_pads_with_zero_and_comes_back(case):
    values = case["input"]["values"]
    data = mxfp.pack(mxfp.encode(values, mxfp.E2M1), mxfp.E2M1)
    assert data.tobytes().hex().upper() == "".join(case["expected"]["bytes_hex"])
    assert data.astype(np.int32).tolist() == case["expected"]["int32_data"]
    back = mxfp.decode(mxfp.unpack(data, mxfp.E2M1, 3), mxfp.E2M1)
    assert back.tolist() == case["expected"]["unpack(n=3)"] == values
    for wrong in (1, 2, 5):
        with pytest.raises(ValueError, match=f"{wrong} codes"):
            mxfp.unpack(data, mxfp.E2M1, wrong)


@case("D03")
def test_packing_goes_along_the_last_axis(case):
    data = mxfp.pack(mxfp.encode(case["input"]["values"], mxfp.E2M1), mxfp.E2M1)
    assert [[f"{b:02X}" for b in row] for row in data] == case["expected"]["bytes_hex"]


@case("D04")
def test_a_packed_shape_and_a_logical_shape_are_told_apart(case):
    rows, columns = case["input"]["logical"]
    codes = np.arange(rows * columns, dtype=U8).reshape(rows, columns) % 16
    data = mxfp.pack(codes, mxfp.E2M1)
    assert list(data.shape) == case["expected"]["packed_shape"]
    assert data.nbytes == case["expected"]["nbytes"]
    back = mxfp.unpack(data, mxfp.E2M1, columns)
    assert list(back.shape) == case["expected"]["unpacked"]
    assert np.array_equal(back, codes)
    q = mxfp.quantize(np.ones((rows, columns)))
    assert q.shape == (rows, columns)
    assert q.nbytes == case["expected"]["nbytes"] + rows


@case("D06")
def test_the_axis_is_the_last_by_default_and_a_wrong_one_is_named(case):
    assert "axis=5 on 2-D raises" in case["expected"]["behaviour"]
    x = np.arange(128.0).reshape(2, 64)
    assert mxfp.quantize(x) == mxfp.quantize(x, axis=1)
    with pytest.raises(TypeError, match="axis must be an integer, got None"):
        mxfp.quantize(x, axis=None)
    with pytest.raises(ValueError, match="axis 5 is out of range for x of 2 dimensions"):
        mxfp.quantize(x, axis=5)


@engines
@case("D07")
def test_the_block_axis_of_the_scales_stays_in_its_place(case, engine):
    pairs = zip(case["input"]["cases"], case["expected"]["scale_shapes"], strict=True)
    for (shape, axis), expected in pairs:
        for sign in (0, len(shape)):
            q = mxfp.quantize(np.ones(shape), axis=axis - sign, engine=engine)
            assert list(q.scales.shape) == expected
            assert list(q.codes.shape) == shape


@engines
@case("D10")
def test_quantizing_the_transpose_is_not_transposing_the_quantized(case, engine):
    x = np.ones((32, 32))
    x[0, 0] = 6144
    rows, columns = (mxfp.quantize(x, axis=axis, engine=engine) for axis in (1, 0))
    for q, name in ((rows, "Q_axis1"), (columns, "Q_axis0")):
        values, expected = q.dequantize(), case["expected"][name]
        assert float(values[0, 1]) == expected["[0,1]"]
        assert float(values[1, 0]) == expected["[1,0]"]
    assert int(rows.scales[0, 0]) == case["expected"]["Q_axis1"]["byte_row0"]
    assert columns == mxfp.quantize(x.T, axis=1, engine=engine).T
    assert rows != columns


LAYOUTS = {
    "Fortran order": np.asfortranarray,
    "reversed twice": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "every second column": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "a transposed view": lambda x: x.T.copy().T,
    "every third row": lambda x: np.repeat(x, 3, axis=0)[::3],
    "big endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "unaligned": lambda x: np.frombuffer(b"\0" + x.tobytes(), x.dtype, offset=1).reshape(x.shape),
    "read-only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
}


@engines
@pytest.mark.parametrize("layout", LAYOUTS)
@case("D11")
def test_memory_layout_changes_no_bit(case, layout, engine):
    assert "identical bytes" in case["expected"]["property"]
    for dtype in (np.float16, np.float32, np.float64):
        x = np.random.default_rng(33).standard_normal((5, 70)).astype(dtype)
        given = LAYOUTS[layout](x)
        for axis in (0, 1):
            q = mxfp.quantize(given, axis=axis, engine=engine)
            assert q == mxfp.quantize(x, axis=axis, engine=engine)
            again = BlockArray(LAYOUTS[layout](q.codes), LAYOUTS[layout](q.scales), mxfp.MXFP4, axis)
            assert np.array_equal(bits(mxfp.dequantize(again, engine=engine)), bits(q.dequantize()))
        assert np.array_equal(mxfp.encode(given, mxfp.E2M1), mxfp.encode(x, mxfp.E2M1))
    codes = mxfp.quantize(x).codes
    data = mxfp.pack(codes, mxfp.E2M1)
    assert np.array_equal(mxfp.pack(LAYOUTS[layout](codes), mxfp.E2M1), data)
    assert np.array_equal(mxfp.unpack(LAYOUTS[layout](data), mxfp.E2M1, 70), codes)
    a, b = mxfp.quantize(x), mxfp.quantize(x.T, axis=0)
    strided = BlockArray(LAYOUTS[layout](a.codes), LAYOUTS[layout](a.scales), mxfp.MXFP4)
    product = mxfp.matmul(a, b, engine=engine)
    assert np.array_equal(bits(mxfp.matmul(strided, b, engine=engine)), bits(product))
    assert np.array_equal(bits(mxfp.matmul(a, strided.T, engine=engine)), bits(product))


@engines
@pytest.mark.parametrize("shape", [(0,), (0, 64), (3, 0), (2, 0, 5)])
@case("D11")
def test_nothing_in_gives_nothing_out(case, shape, engine):
    assert "zero-length gives zero-length" in case["expected"]["property"]
    for fmt in (mxfp.MXFP4, mxfp.NVFP4, mxfp.MXINT8):
        q = mxfp.quantize(np.zeros(shape, np.float32), fmt, engine=engine)
        assert q.shape == shape
        assert mxfp.dequantize(q, engine=engine).shape == shape
        packed = mxfp.pack(q.codes, fmt)
        assert mxfp.unpack(packed, fmt, shape[-1]).shape == shape
        assert str(shape) in repr(q)


# ---------------------------------------------------------------------------------------------------
# e: dot products and GEMM


@engines
@case("E01")
def test_the_largest_block_does_not_wrap(case, engine):
    a = one_scale([7] * 32, 127)
    for codes, sign, expected in (([7] * 32, 1, "dot"), ([15] * 32, -1, "negated")):
        b = one_scale(codes, 127)
        assert mxfp.block_dots(a, b).sums.tolist() == [sign * case["expected"]["doubled_int_sum"]]
        assert float(mxfp.matmul(a, b, engine=engine)) == case["expected"][expected]


@case("E02")
def test_widths_are_derived_and_twenty_eight_terms_are_the_last_in_13_bits(case):
    for n, most, width in zip(
        case["input"]["n"], case["expected"]["max_abs"], case["expected"]["min_signed_bits"], strict=True
    ):
        assert sum_bounds(mxfp.E2M1, mxfp.E2M1, n) == (-most, most)
        assert sum_width(mxfp.E2M1, mxfp.E2M1, n) == width
    six = mxfp.quantize(np.full(32, 6.0))
    assert mxfp.block_dots(six, six, width=14).sums.tolist() == [4608]
    with pytest.raises(mxfp.WidthError, match=r"is 4608, which does not fit signed 13 bits"):
        mxfp.block_dots(six, six, width=13)
    most = mxfp.quantize(np.full(28, 6.0))
    assert mxfp.block_dots(most, most, width=13).sums.tolist() == [4032]


def three_blocks():
    """Block values 2^24, 1, -2^24: one product each."""
    codes_a, codes_b = np.zeros(96, U8), np.zeros(96, U8)
    codes_a[[0, 32, 64]] = mxfp.encode([4, 1, -4], mxfp.E2M1)
    codes_b[[0, 32, 64]] = mxfp.encode([4, 1, 4], mxfp.E2M1)
    scales = np.array([137, 127, 137], U8)
    return BlockArray(codes_a, scales, mxfp.MXFP4), BlockArray(codes_b, scales, mxfp.MXFP4)


def permuted(q, order):
    return BlockArray(q.codes.reshape(-1, 32)[order].reshape(-1), q.scales[order], q.format)


@engines
@case("E05")
def test_the_accumulator_is_named_and_exact_does_not_see_the_order(case, engine):
    a, b = three_blocks()
    assert mxfp.block_dots(a, b).fractions().tolist() == [2**24, 1, -(2**24)]
    exact, loop = mxfp.Exact("float32"), mxfp.Sequential("float32")
    assert float(mxfp.matmul(a, b, accumulator=exact, engine=engine)) == case["expected"]["exact_mode"]
    left_to_right = case["expected"]["float32_left_to_right"]
    assert float(mxfp.matmul(a, b, accumulator=loop, engine=engine)) == left_to_right
    for order in ([0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]):
        pa, pb = permuted(a, order), permuted(b, order)
        assert float(mxfp.matmul(pa, pb, accumulator=exact, engine=engine)) == 1.0


@engines
@case("E07")
def test_gemv_of_few_outputs_uses_the_scale_and_not_its_byte(case, engine):
    for n in range(1, 10):
        w = BlockArray(np.full((n, 64), 2, U8), np.full((n, 2), 128, U8), mxfp.MXFP4)
        x = BlockArray(np.full(64, 2, U8), np.full(2, 127, U8), mxfp.MXFP4)
        assert mxfp.matmul(w, x, engine=engine).tolist() == [case["expected"]["each_output"]] * n
        assert mxfp.matmul(x, w.T, engine=engine).tolist() == [case["expected"]["each_output"]] * n


@engines
@case("E09")
def test_each_row_and_column_has_its_own_scale(case, engine):
    a = BlockArray(np.full((2, 32), 2, U8), np.array([[128], [129]], U8), mxfp.MXFP4)
    b = BlockArray(np.full((32, 2), 2, U8), np.array([[127, 128]], U8), mxfp.MXFP4, axis=0)
    assert mxfp.matmul(a, b, engine=engine).tolist() == case["expected"]["D"]


@case("E11")
def test_the_integer_path_is_the_exact_dot_of_the_decoded_values(case):
    assert "exact rational dot" in case["expected"]["property"]
    rng = np.random.default_rng(34)
    codes = rng.integers(0, 16, (2, 40, 32), dtype=U8)
    scales = rng.integers(100, 151, (2, 40, 1), dtype=U8)
    a, b = (BlockArray(codes[i], scales[i], mxfp.MXFP4) for i in range(2))
    terms = mxfp.block_dots(a, b)
    assert (
        terms.exponents[:, 0].tolist() == (scales[0, :, 0].astype(int) + scales[1, :, 0] - 254 - 2).tolist()
    )
    x, y = (q.dequantize(dtype=np.float64) for q in (a, b))
    for n, found in enumerate(terms.fractions()[:, 0]):
        exact = sum(Fraction(float(u)) * Fraction(float(v)) for u, v in zip(x[n], y[n], strict=True))
        assert found == exact
        assert float(found) == float(x[n] @ y[n])
    for engine in ENGINES:
        for n in range(5):
            result = mxfp.matmul(
                BlockArray(codes[0, n], scales[0, n], mxfp.MXFP4),
                BlockArray(codes[1, n], scales[1, n], mxfp.MXFP4),
                accumulator=mxfp.Exact("float64"),
                engine=engine,
            )
            assert Fraction(float(result)) == terms.fractions()[n, 0]


@engines
@case("E12")
def test_a_tiny_product_is_not_zero_and_bits_tell(case, engine):
    a = one_scale([1] * 32, 107)
    found = mxfp.matmul(a, a, engine=engine)
    assert float(found) == case["expected"]["value"] == 8 * 2.0**-40
    assert not np.array_equal(bits(found), bits(np.float32(0.0)))


# ---------------------------------------------------------------------------------------------------
# f: the layouts of files


@case("F01")
def test_gguf_nibbles_are_the_two_halves_of_a_block(case):
    data = bytes_of(case["input"]["bytes_hex"])
    q = one_scale(mxfp.unpack(data[1:], mxfp.MXFP4, 32, order="halves"), data[0])
    values = q.dequantize()
    assert float(values[0]) == case["expected"]["element0"]
    assert float(values[16]) == case["expected"]["element16"]
    assert np.delete(values, [0, 16]).tolist() == [case["expected"]["others"]] * 30
    assert data.size == q.nbytes == case["expected"]["length"]
    assert np.array_equal(mxfp.pack(q.codes, mxfp.MXFP4, order="halves"), data[1:])
    adjacent = one_scale(mxfp.unpack(data[1:], mxfp.MXFP4, 32), data[0]).dequantize()
    assert float(adjacent[1]) == -6.0


@case("F03")
def test_doubled_tables_and_halved_scales_are_not_mixed(case):
    expected = [number(v) for v in case["expected"]["values"]]
    assert [float(values_by_scale(7, np.float32)[127]), float(values_by_scale(4, np.float32)[0])] == expected


@case("F06")
def test_blocks_and_scales_of_gpt_oss_decode_low_nibble_first(case):
    blocks = np.zeros((1, 1, 16), U8)
    blocks[0, 0, 0] = 0xF1
    assert case["input"]["blocks"] == "[[F1, 00 x15]]"
    scales = np.array([case["input"]["scales"]], U8)
    codes = mxfp.unpack(blocks, mxfp.MXFP4, 32).reshape(1, -1)
    q = BlockArray(codes, scales, mxfp.MXFP4)
    first, second, rest = case["expected"]["row"]
    assert q.dequantize().tolist() == [[first, second, *([0.0] * int(rest.split()[0]))]]
    assert q.shape == (1, 32)
    with pytest.raises(ValueError, match=r"codes \(1, 32\) along axis -1 need scales \(1, 1\), got \(1, 2\)"):
        BlockArray(codes, np.array([[128, 128]], U8), mxfp.MXFP4)


@case("F09")
def test_codes_and_scales_survive_numpy_files_as_plain_bytes(case, tmp_path):
    assert "stores uint8" in case["expected"]["behaviour"]
    q = mxfp.quantize(np.random.default_rng(35).standard_normal((3, 70)))
    np.savez(tmp_path / "q.npz", codes=q.codes, scales=q.scales)
    with np.load(tmp_path / "q.npz") as found:
        assert found["codes"].dtype == found["scales"].dtype == np.uint8
        assert BlockArray(found["codes"], found["scales"], mxfp.MXFP4) == q
    nameless = np.zeros(3, "V1")
    for call in (
        lambda: mxfp.decode(nameless, mxfp.E2M1),
        lambda: mxfp.quantize(nameless),
        lambda: BlockArray(nameless, np.zeros(1, U8), mxfp.MXFP4),
    ):
        with pytest.raises(TypeError, match="V1"):
            call()


@case("F10")
def test_the_onnx_payload_is_one_packed_byte_an_integer(case):
    data = mxfp.pack(mxfp.encode([1, -1, 0.5], mxfp.E2M1), mxfp.E2M1)
    assert data.tobytes().hex().upper() == case["expected"]["raw_hex"]
    assert data.astype(np.int32).tolist() == case["expected"]["int32_data"]


# ---------------------------------------------------------------------------------------------------
# g: use and performance


def peak_of(call):
    tracemalloc.start()
    try:
        result = call()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@engines
@pytest.mark.parametrize("elements", [size(1 << 22, 1 << 12), pytest.param(1 << 26, marks=pytest.mark.slow)])
@case("G01")
def test_dequantizing_needs_little_more_memory_than_its_result(case, elements, engine):
    assert "peak extra memory" in case["expected"]["behaviour"]
    warm = mxfp.quantize(np.ones((2, 32), np.float32))
    mxfp.dequantize(warm, engine=engine)
    codes = np.ones((elements // 4096, 4096), U8)
    q = BlockArray(codes, np.full((elements // 4096, 128), 127, U8), mxfp.MXFP4)
    values, peak = peak_of(lambda: mxfp.dequantize(q, engine=engine))
    assert values.nbytes == 4 * elements
    working = 48 * (1 << 18)  # the reference works on slabs of 2**18 elements
    assert peak <= 1.05 * values.nbytes + working


@engines
@case("G01")
def test_quantizing_needs_little_more_memory_than_its_codes(case, engine):
    x = np.ones((size(1 << 10, 2), 1 << 12), np.float32)
    mxfp.quantize(x[:1], engine=engine)
    q, peak = peak_of(lambda: mxfp.quantize(x, engine=engine))
    assert q.codes.nbytes == x.size
    assert peak <= 1.1 * (q.codes.nbytes + q.scales.nbytes) + 100 * (1 << 18)


@case("G02")
def test_a_float16_gemm_of_a_thousand_is_no_hang(case):
    assert "finishes in seconds" in case["expected"]["behaviour"]
    big = size(1000, 20)
    rng = np.random.default_rng(36)
    x = rng.standard_normal((big, 1024)).astype(np.float16)
    y = rng.standard_normal((1024, big)).astype(np.float16)
    mxfp.matmul(mxfp.quantize(x[:1]), mxfp.quantize(y[:, :1], axis=0))  # compiles
    found = mxfp.matmul(mxfp.quantize(x), mxfp.quantize(y, axis=0))
    assert (found.shape, found.dtype) == ((big, big), np.float32)


@case("G02")
def test_no_product_of_float16_arrays_is_taken(case, monkeypatch):
    assert "never goes through np.matmul on float16" in case["expected"]["behaviour"]
    real = np.matmul
    seen = []

    def watched(x, y, *arguments, **names):
        seen.append({np.asarray(x).dtype, np.asarray(y).dtype})
        return real(x, y, *arguments, **names)

    monkeypatch.setattr(np, "matmul", watched)
    x = np.random.default_rng(37).standard_normal((8, 64)).astype(np.float16)
    for accumulator in (mxfp.Sequential("float16"), mxfp.Exact("float16"), mxfp.BLACKWELL_MXFP4):
        mxfp.matmul(mxfp.quantize(x), mxfp.quantize(x.T, axis=0), accumulator=accumulator, engine="reference")
    assert seen
    assert np.dtype(np.float16) not in set.union(*seen)


def run(code, **variables):
    """Run Python code in a fresh process -> its output; anything on stderr but one warning is a fault."""
    environment = {**os.environ, **variables}
    environment = {k: v for k, v in environment.items() if v is not None}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="/dev/null is how nothing can be written")
@case("G03")
def test_a_read_only_installation_imports_and_works(case, tmp_path):
    assert "import works" in case["expected"]["behaviour"]
    package = tmp_path / "site" / "mxfp"
    shutil.copytree(Path(mxfp.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [package, *(p for p in package.rglob("*") if p.is_dir())]:
        (folder / "__pycache__").touch()  # where a cache would go there is a file, even for root
    for folder in sorted(package.rglob("*"), reverse=True):
        folder.chmod(0o555 if folder.is_dir() else 0o444)
    package.chmod(0o555)
    try:
        out, err = run(
            """
            import mxfp
            print(mxfp.__file__)
            q = mxfp.quantize([0.1, -2.3, 7.0, 1.0])
            print(q.codes.tolist(), float(mxfp.matmul(q, q)))
            """,
            PYTHONPATH=str(tmp_path / "site"),
            HOME="/dev/null/none",
            XDG_CACHE_HOME="/dev/null/none",
            NUMBA_CACHE_DIR=None,
        )
    finally:
        package.chmod(0o755)
        for folder in package.rglob("*"):
            folder.chmod(0o755)
    where, result = out.splitlines()
    assert Path(where).is_relative_to(tmp_path)
    assert result == "[0, 12, 7, 2] 41.0"
    assert err.count("Warning") <= 1
    assert "Traceback" not in err


@case("G04")
def test_threads_may_multiply_at_once_on_the_workqueue_layer(case):
    assert "no SIGABRT" in case["expected"]["behaviour"]
    out, err = run(
        """
        import threading
        import numpy as np
        import mxfp

        x = np.random.default_rng(38).standard_normal((64, 256)).astype(np.float32)
        a, b = mxfp.quantize(x), mxfp.quantize(x.T, axis=0)
        alone = mxfp.matmul(a, b)
        wrong = []

        def work():
            for _ in range(20):
                q = mxfp.quantize(x)
                if q != a or mxfp.matmul(q, b).tobytes() != alone.tobytes():
                    wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        print(len(wrong))
        """,
        NUMBA_THREADING_LAYER="workqueue",
        NUMBA_DISABLE_JIT="0",
    )
    assert out == "0", err


@case("G04")
def test_threads_get_the_results_of_one_thread(case):
    assert "results identical to single-thread" in case["expected"]["behaviour"]
    x = np.random.default_rng(39).standard_normal((16, 96)).astype(np.float32)
    a, b = mxfp.quantize(x), mxfp.quantize(x.T, axis=0)
    accumulators = (mxfp.Sequential("float32"), mxfp.Exact("float64"), mxfp.Pairwise("float16"))
    alone = [mxfp.matmul(a, b, accumulator=acc) for acc in accumulators]
    wrong = []

    def work():
        for _ in range(5):
            for acc, expected in zip(accumulators, alone, strict=True):
                if not np.array_equal(bits(mxfp.matmul(a, b, accumulator=acc)), bits(expected)):
                    wrong.append(acc)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@case("G05")
def test_importing_compiles_nothing_and_the_reference_needs_no_compiler(case):
    assert "no compilation at import" in case["expected"]["behaviour"]
    out, _ = run(
        """
        import sys
        import mxfp
        print("numba" in sys.modules, "llvmlite" in sys.modules)
        q = mxfp.quantize([0.1, -2.3, 7.0, 1.0], engine="reference")
        mxfp.encode([1.0], mxfp.E2M1), mxfp.dequantize(q, engine="reference")
        mxfp.matmul(q, q, engine="reference"), mxfp.pack(q.codes, mxfp.MXFP4)
        print("numba" in sys.modules, q.codes.tolist())
        """
    )
    assert out.splitlines() == ["False False", "False [0, 12, 7, 2]"]


@case("G07")
def test_scaling_does_not_go_through_small_floats(case):
    value = case["expected"]["value"]
    q = one_scale([7], 127 + 14)  # 12 halves times 2^14 = 12 * 2^13
    for engine in ENGINES:
        assert float(mxfp.dequantize(q, engine=engine)[0]) == value
    integers = mxfp.to_integers([7], mxfp.E2M1)
    assert integers.dtype == np.int64
    assert np.ldexp(integers, 13).tolist() == [value]


@case("G09")
def test_element_indices_have_64_bits(case):
    assert "int64 indices everywhere" in case["expected"]["behaviour"]
    key, count = 0x0123456789ABCDEF, 2**31 + 64
    index = np.array([0, 2**31 - 1, 2**31, count, 2**32, 2**40 + 7], np.uint64)
    expected = []
    for i in index.tolist():
        z = (key + (i + 1) * 0x9E3779B97F4A7C15) % 2**64
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) % 2**64
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) % 2**64
        expected.append((z ^ z >> 31) >> 32)
    assert draws(np.uint64(key), index).tolist() == expected
    from mxfp.kernels.encode import draw

    assert [int(draw(np.uint64(key), np.uint64(i))) for i in index] == expected
    assert packing.packed_length(count, mxfp.MXFP4) == count // 2
    assert packing.packed_length(2**40, mxfp.E2M3) == 2**40 * 6 // 8


def sums_to(*values):
    """Terms that are these values, one product each: powers of two up to a sign."""
    codes, scales = np.zeros(32 * len(values), U8), np.zeros(len(values), U8)
    for k, v in enumerate(values):
        codes[32 * k] = 2 if v > 0 else 10
        scales[k] = 127 + abs(v).bit_length() - 1
        assert 2 ** (abs(v).bit_length() - 1) == abs(v)
    ones = np.zeros_like(codes)
    ones[::32] = 2
    return mxfp.block_dots(
        BlockArray(codes[None], scales[None], mxfp.MXFP4),
        BlockArray(ones[None], np.full((1, len(values)), 127, U8), mxfp.MXFP4),
    )


@case("G11")
def test_a_register_raises_unless_wrapping_is_asked_for(case):
    parts = {8192: (8192,), -8193: (-8192, -1), 16383: (-1, 16384)}
    assert list(parts) == case["input"]["values"]
    for value, terms in parts.items():
        with pytest.raises(mxfp.WidthError, match=rf"{value} in units of 2\*\*0, .* signed 14 bits"):
            mxfp.FixedPoint(14, 0)(sums_to(*terms))
        wrapped = mxfp.FixedPoint(14, 0, "wrap")(sums_to(*terms))
        assert wrapped.tolist() == [(value + 8192) % 16384 - 8192]
        saturated = mxfp.FixedPoint(14, 0, "saturate")(sums_to(*terms))
        assert saturated.tolist() == [min(max(value, -8192), 8191)]


@engines
@case("G12")
def test_reference_and_compiled_code_widen_alike(case, engine):
    q = one_scale([7], 127)
    assert mxfp.block_dots(q, q).sums.tolist() == [case["expected"]["product"]]
    assert float(mxfp.matmul(q, q, engine=engine)) == case["expected"]["product"] / 4
    with np.errstate(over="ignore"):
        assert int((np.full(1, 12, np.int8) * np.full(1, 12, np.int8))[0]) != 144  # the trap itself


@case("G14")
def test_packed_bytes_codes_and_floats_are_not_mistaken_for_one_another(case):
    x = np.array(case["input"]["values"], ml_dtypes.float4_e2m1fn)
    codes = x.view(U8)
    assert codes.tolist() == case["expected"]["view_uint8"]
    assert mxfp.encode(case["input"]["values"], mxfp.E2M1).tolist() == codes.tolist()
    packed = mxfp.pack(codes, mxfp.E2M1)
    assert [f"{b:02X}" for b in packed] == case["expected"]["packed_hex"]
    with pytest.raises(ValueError, match="E2M1 codes are 0 … 15, got 241"):
        mxfp.decode(packed, mxfp.E2M1)
    with pytest.raises(ValueError, match="4 codes of E2M1 in order 'pairs' take 2 bytes, got 4"):
        mxfp.unpack(codes, mxfp.E2M1, 4)
    with pytest.raises(TypeError, match="float4_e2m1fn"):
        mxfp.decode(x, mxfp.E2M1)
    with pytest.raises(TypeError, match="float4_e2m1fn"):
        mxfp.quantize(x)


def test_every_case_of_the_file_is_tested_or_explained():
    assert not TESTED & set(NOT_APPLICABLE_YET)
    assert set(CASES) == TESTED | set(NOT_APPLICABLE_YET)
    assert len(CASES) == len(json.loads(FIELD.read_text("utf-8"))), "an id is used twice"
