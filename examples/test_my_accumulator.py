# SPDX-License-Identifier: Apache-2.0
"""Property tests of an accumulator of one's own. Copy this file, put your model in, run pytest.

    pip install 'mxfp-emulator[hypothesis]' pytest
    pytest test_my_accumulator.py

For each kind of pair that breaks accumulators, hypothesis draws 100 pairs of vectors. When one fails, it
looks for the simplest that still fails, and prints that one.
"""

import math
import os
import pkgutil

import pytest
from hypothesis import Phase, given, settings

import mxfp
from mxfp.bounds import error_bound, errors
from mxfp.strategies import BIASES, dot_pairs

# Your model. MODEL=flawed:RoundsTwice in the environment puts one of the wrong ones in its place.
model = pkgutil.resolve_name(os.environ.get("MODEL", "my_accumulator:MyAccumulator"))()

# The accumulator of mxfp that it is meant to be. If there is none, the second test is the one for you.
reference = mxfp.Sequential("float32")

# No limit on the time of one example, and no remarks on the lines of mxfp that a failure ran through.
plain = settings(deadline=None, phases=[phase for phase in Phase if phase is not Phase.explain])


def mine(terms):
    """The model's result for the terms of one dot product."""
    if terms.specials is not None:  # a NaN scale; the model leaves NaN to what stands before it
        return math.nan
    return model.dot(zip(terms.sums.tolist(), terms.exponents.tolist(), strict=True))


@pytest.mark.parametrize("bias", BIASES)
def test_it_gives_what_the_reference_gives(bias):
    @plain
    @given(dot_pairs(mxfp.MXFP4, bias=bias))
    def same(pair):
        terms = mxfp.block_dots(*pair)
        got, expected = mine(terms), float(reference(terms))
        if not (got == expected or (math.isnan(got) and math.isnan(expected))):
            raise AssertionError(f"the model gives {got}, {reference} {expected}")

    same()


@pytest.mark.parametrize("bias", BIASES)
def test_it_is_as_near_to_the_exact_sum_as_it_must_be(bias):
    @plain
    @given(dot_pairs(mxfp.MXFP4, bias=bias))
    def near(pair):
        terms = mxfp.block_dots(*pair)
        error, bound = float(errors(reference, terms, mine(terms))), float(error_bound(reference, terms))
        if error > bound:
            raise AssertionError(f"the error is {error}, more than {bound}")

    near()
