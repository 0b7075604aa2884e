# SPDX-License-Identifier: Apache-2.0
"""Room 5: integers in LSB units, and widths that are needed and enough."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mxfp
import oracle
from mxfp.integers import product_bounds, saturate, signed_bits, sum_bounds, sum_width, wrap
from support import ELEMENTS, name_of, table

PAIRS = list(itertools.product(ELEMENTS, ELEMENTS))


@pytest.mark.parametrize("row", table("widths.csv"), ids=lambda row: f"{row['a']} {row['b']} {row['terms']}")
def test_every_row_of_the_table_of_widths(row):
    a, b = (next(e for e in ELEMENTS if e.name == row[side]) for side in "ab")
    assert sum_width(a, b, int(row["terms"])) == int(row["bits"])


@pytest.mark.parametrize(("a", "b"), PAIRS, ids=name_of)
def test_bounds_and_widths_are_those_of_the_oracle_and_attained(a, b):
    for terms in (1, 2, 3, 7, 16, 28, 29, 32, 4096):
        low, high = oracle.adder_bounds(a.name, b.name, terms)
        assert sum_bounds(a, b, terms) == (low, high)
        assert sum_width(a, b, terms) == oracle.signed_bits(low, high)
    low, high = product_bounds(a, b)
    products = np.multiply.outer(a.integers.astype(object), b.integers.astype(object))
    assert (products.min(), products.max()) == (low, high)


@given(st.integers(-(2**70), 2**70), st.integers(0, 2**70))
def test_signed_bits_are_enough_and_one_less_is_not(low, length):
    high = low + length
    bits = signed_bits(low, high)
    assert bits == oracle.signed_bits(low, high)
    assert -(2 ** (bits - 1)) <= low
    assert high < 2 ** (bits - 1)


def test_28_maximal_products_are_the_most_that_fit_13_bits():
    assert sum_width(mxfp.MXFP4, mxfp.MXFP4, 28) == 13
    assert sum_width(mxfp.MXFP4, mxfp.MXFP4, 29) == 14
    assert [sum_width(mxfp.MXFP4, mxfp.MXFP4, 2**n) for n in range(6)] == [9, 10, 11, 12, 13, 14]


@pytest.mark.parametrize("fmt", ELEMENTS, ids=name_of)
def test_every_finite_code_has_its_integer_and_others_are_refused(fmt):
    for code in range(fmt.code_count):
        value = oracle.element(fmt.name, code)
        if isinstance(value, str):
            with pytest.raises(ValueError, match=rf"{fmt.name} code {code} at index \(1,\).*no integer"):
                mxfp.to_integers([0, code], fmt)
        else:
            (integer,) = mxfp.to_integers([code], fmt).tolist()
            assert integer * oracle.element(fmt.name, 1) == value


def test_integers_keep_their_shape_and_are_int64():
    found = mxfp.to_integers(np.array([[1, 7], [15, 8]], np.uint8), mxfp.MXFP4)
    assert found.dtype == np.int64
    assert found.tolist() == [[1, 12], [-12, 0]]
    with pytest.raises(ValueError, match=r"got 16 at index \(0, 1\)"):
        mxfp.to_integers([[0, 16]], mxfp.E2M1)


@given(st.integers(-(2**60), 2**60), st.integers(1, 60))
def test_wrapping_and_saturating_are_those_of_twos_complement(value, width):
    low, high = -(1 << (width - 1)), (1 << (width - 1)) - 1
    for kind in (np.int64, object):
        wrapped = int(wrap(np.array([value], kind), width)[0])
        assert low <= wrapped <= high
        assert (wrapped - value) % (1 << width) == 0
        assert int(saturate(np.array([value], kind), width)[0]) == min(max(value, low), high)


def test_a_width_error_is_a_value_error():
    assert issubclass(mxfp.WidthError, ValueError)
