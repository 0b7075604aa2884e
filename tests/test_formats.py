# SPDX-License-Identifier: Apache-2.0
"""Room 1: every table of a format is that of the specification, code by code."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest

import mxfp
import oracle
from mxfp.formats import BLOCK_FORMATS, ELEMENT_FORMATS, SCALE_FORMATS, Specials, check_codes, element_of
from support import ELEMENTS, FORMATS, name_of, same_bits, table

SCALES = list(SCALE_FORMATS.values())
LIMITS = {row["format"]: row for row in table("limits.csv")}


def values_in(name: str) -> np.ndarray:
    rows = table(f"{name.lower()}.csv")
    assert [int(row["code"]) for row in rows] == list(range(len(rows)))
    values = np.array([float.fromhex(row["value"]) for row in rows])
    return np.where(np.isnan(values), np.nan, values)


@pytest.mark.parametrize("fmt", [*ELEMENTS, *SCALES], ids=name_of)
def test_every_value_is_that_of_its_table(fmt):
    expected = values_in(fmt.name)
    actual = fmt.values
    assert actual.shape == (fmt.code_count,)
    nan = np.isnan(expected)
    assert np.array_equal(np.isnan(actual), nan)
    same_bits(actual[~nan], expected[~nan])


@pytest.mark.parametrize("fmt", ELEMENTS, ids=name_of)
def test_every_limit_is_that_of_its_table(fmt):
    row = LIMITS[fmt.name]
    assert fmt.bits == int(row["bits"])
    assert fmt.emax == int(row["emax"])
    for limit in ("max", "smallest_normal", "smallest_subnormal"):
        assert getattr(fmt, limit) == float.fromhex(row[limit])


@pytest.mark.parametrize("fmt", ELEMENTS, ids=name_of)
def test_integers_are_the_values_in_units_of_the_lsb(fmt):
    for code in range(fmt.code_count):
        value = oracle.element(fmt.name, code)
        if isinstance(value, Fraction):
            assert fmt.finite[code]
            assert int(fmt.integers[code]) * oracle.power(fmt.lsb_exponent) == value
        else:
            assert not fmt.finite[code]
            assert fmt.integers[code] == 0
            assert str(fmt.values[code]) == value or math.isnan(fmt.values[code])


def test_twice_every_e2m1_value_is_its_integer():
    assert mxfp.E2M1.integers.tolist() == [int(row["doubled"]) for row in table("e2m1.csv")]


@pytest.mark.parametrize("fmt", ELEMENTS, ids=name_of)
def test_magnitudes_ascend_and_each_has_its_negative(fmt):
    assert fmt.magnitudes.tolist() == [float(m) for m in oracle.magnitudes(fmt.name)]
    for code, magnitude in enumerate(fmt.magnitudes):
        assert fmt.negated[code] == oracle.encode(
            fmt.name, -Fraction(magnitude), "nearest_even", negative=True
        )
        assert fmt.values[fmt.negated[code]] == -magnitude


@pytest.mark.parametrize("fmt", ELEMENTS, ids=name_of)
def test_the_sign_bit_and_the_bits_of_an_integer_are_derived(fmt):
    assert fmt.negative.tolist() == [oracle.negative(fmt.name, code) for code in range(fmt.code_count)]
    integers = oracle.integers(fmt.name)
    # One bit more than the magnitude for INT8, whose -128 has no positive twin.
    assert fmt.bits_of_integer == oracle.signed_bits(min(integers), max(integers))


def test_nan_codes_are_the_quiet_ones():
    assert {f.name: f.nan_code for f in ELEMENTS if f.nan_code is not None} == oracle.NAN_CODE
    assert (mxfp.E8M0.nan_code, mxfp.UE4M3.nan_code) == (oracle.E8M0_NAN, oracle.UE4M3_NAN)


@pytest.mark.parametrize("fmt", SCALES, ids=name_of)
def test_a_scale_is_a_significand_and_an_exponent(fmt):
    for code in range(fmt.code_count):
        value = oracle.scale(fmt.name, code)
        if value == "nan":
            assert not fmt.finite[code]
            assert fmt.significands[code] == 0
        else:
            assert fmt.finite[code]
            assert int(fmt.significands[code]) * oracle.power(int(fmt.exponents[code])) == value


def test_scale_formats_have_their_limits():
    assert (mxfp.E8M0.bits, mxfp.E8M0.code_count) == (8, 256)
    assert (mxfp.UE4M3.bits, mxfp.UE4M3.code_count) == (7, 128)
    assert (mxfp.E8M0.smallest, mxfp.E8M0.max) == (2.0**-127, 2.0**127)
    assert (mxfp.UE4M3.smallest, mxfp.UE4M3.max) == (2.0**-9, 448.0)
    assert mxfp.UE4M3.significands.max() == 15
    assert mxfp.E8M0.exponents[[0, 127, 254]].tolist() == [-127, 0, 127]


@pytest.mark.parametrize(
    ("fmt", "element", "scale", "block", "per_element", "default"),
    [
        (mxfp.MXFP4, mxfp.E2M1, mxfp.E8M0, 32, 4.25, "floor"),
        (mxfp.MXFP6_E2M3, mxfp.E2M3, mxfp.E8M0, 32, 6.25, "floor"),
        (mxfp.MXFP6_E3M2, mxfp.E3M2, mxfp.E8M0, 32, 6.25, "floor"),
        (mxfp.MXFP8_E4M3, mxfp.E4M3, mxfp.E8M0, 32, 8.25, "floor"),
        (mxfp.MXFP8_E5M2, mxfp.E5M2, mxfp.E8M0, 32, 8.25, "floor"),
        (mxfp.MXINT8, mxfp.INT8, mxfp.E8M0, 32, 8.25, "floor"),
        (mxfp.NVFP4, mxfp.E2M1, mxfp.UE4M3, 16, 4.5, "nearest"),
    ],
    ids=name_of,
)
def test_block_formats_are_made_of_their_parts(fmt, element, scale, block, per_element, default):
    assert (fmt.element, fmt.scale, fmt.block) == (element, scale, block)
    assert fmt.bits_per_element == per_element
    assert fmt.scale_rules[0] == default
    assert fmt.tensor_scale == (fmt is mxfp.NVFP4)


@pytest.mark.parametrize("fmt", [*ELEMENTS, *SCALES], ids=name_of)
def test_tables_are_read_only(fmt):
    names = ["values", "finite"] + (
        ["integers", "negative", "negated", "magnitudes"] if fmt in ELEMENTS else []
    )
    names += [] if fmt in ELEMENTS else ["significands", "exponents"]
    for name in names:
        with pytest.raises(ValueError, match="read-only"):
            getattr(fmt, name)[0] = 1


def test_formats_are_frozen_and_their_repr_is_their_name():
    for fmt in [*ELEMENTS, *SCALES, *FORMATS]:
        assert repr(fmt) == fmt.name
        with pytest.raises(dataclasses.FrozenInstanceError):
            fmt.name = "other"
    assert list(ELEMENT_FORMATS) == list(oracle.ELEMENTS)
    assert set(BLOCK_FORMATS) == {fmt.name for fmt in FORMATS}


@pytest.mark.parametrize("fields", [(0, 3), (5, 3), (2, -1)], ids=str)
def test_fields_that_make_no_table_are_refused(fields):
    with pytest.raises(ValueError, match="ODD"):
        mxfp.ElementFormat("ODD", *fields, bias=1)


def test_a_format_of_ones_own_is_the_same_kind_of_object():
    fp3 = mxfp.ElementFormat("E2M0", 2, 0, bias=1)
    assert fp3.values[:4].tolist() == [0.0, 1.0, 2.0, 4.0]
    ieee = mxfp.ElementFormat("E3M1", 3, 1, bias=3, specials=Specials.IEEE)
    assert ieee.values[14] == math.inf
    assert math.isnan(ieee.values[15])
    assert ieee.nan_code == 15


def test_element_of_takes_formats_and_nothing_else():
    assert element_of(mxfp.NVFP4) is mxfp.E2M1
    assert element_of(mxfp.E4M3) is mxfp.E4M3
    for wrong in ("E2M1", None, mxfp.E8M0, 4):
        with pytest.raises(TypeError, match="element or block format"):
            element_of(wrong)


def test_codes_out_of_range_are_named_with_their_index():
    with pytest.raises(ValueError, match=r"0 … 15, got 16 at index \(1, 0\)"):
        check_codes(np.array([[0, 15], [16, 99]]), 16, "E2M1 codes")
    with pytest.raises(ValueError, match=r"got -1 at index \(0,\)"):
        check_codes(np.array([-1], np.int8), 256, "E4M3 codes")
    with pytest.raises(TypeError, match="float64"):
        check_codes(np.array([1.0]), 16, "E2M1 codes")
    assert check_codes([], 16, "E2M1 codes").dtype == np.uint8
    given = np.arange(16, dtype=np.uint8)
    assert np.shares_memory(check_codes(given, 16, "E2M1 codes"), given)
