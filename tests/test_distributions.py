# SPDX-License-Identifier: Apache-2.0
"""Inputs by name: what each distribution draws, from a seed, and nothing else."""

import numpy as np
import pytest

import mxfp
from mxfp.distributions import DISTRIBUTIONS, SCALES, draw, edges, scale_codes
from mxfp.formats import ELEMENT_FORMATS
from support import FORMATS, name_of, same_blocks


def drawn(name, fmt, shape=(40, 256), seed=1, **options):
    return draw(name, fmt, shape, np.random.default_rng(seed), **options)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_a_seed_gives_the_same_blocks_again_and_another_seed_others(fmt, name):
    one, again, other = (drawn(name, fmt, (3, 70), seed) for seed in (5, 5, 6))
    same_blocks(again, one.codes, one.scales)
    assert not np.array_equal(one.codes, other.codes)
    assert one.shape == (3, 70)
    assert one.tensor_scale == 1.0


def test_the_draws_of_a_seed_are_these():
    """Written out, so that a change of the draws is seen as one."""
    words = np.random.default_rng(7).integers(0, 2**64, 32, dtype=np.uint64).tolist()
    q = drawn("bits", mxfp.MXFP4, (32,), 7)
    assert q.codes.tolist() == [(word >> 32) * 16 >> 32 for word in words]
    assert "".join(f"{c:x}" for c in q.codes) == "aec34d0dc7444788fc9f3290087ea873"
    assert drawn("edges", mxfp.MXFP8_E5M2, (8,), 7, scales="corner").codes.tolist() == [
        129,
        251,
        140,
        4,
        60,
        188,
        0,
        140,
    ]
    assert drawn("zero-mixed", mxfp.MXFP4, (8,), 7).codes.tolist() == [10, 14, 8, 8, 8, 13, 0, 13]
    assert drawn("normal", mxfp.MXFP4, (8,), 7).codes.tolist() == [0, 2, 10, 14, 12, 14, 0, 7]
    assert drawn("subnormal", mxfp.MXFP8_E4M3, (8,), 7).codes.tolist() == [0, 2, 130, 135, 132, 136, 0, 11]


@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_bits_are_every_code_and_each_as_likely_as_another(fmt):
    q = drawn("bits", fmt, (256, 256))
    counts = np.bincount(q.codes.ravel(), minlength=fmt.element.code_count)
    expected = q.codes.size / fmt.element.code_count
    assert (np.abs(counts - expected) < 6 * np.sqrt(expected)).all()


@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_edges_are_the_edges_and_all_of_them(fmt):
    q = drawn("edges", fmt)
    assert np.unique(q.codes).tolist() == edges(fmt.element).tolist()


def test_the_edges_of_every_format():
    values = {
        name: sorted({abs(v) for v in mxfp.decode(edges(fmt, finite=True), fmt).tolist()})
        for name, fmt in ELEMENT_FORMATS.items()
    }
    assert values == {
        "E2M1": [0, 0.5, 1, 4, 6],
        "E2M3": [0, 0.125, 0.875, 1, 4, 7.5],
        "E3M2": [0, 0.0625, 0.1875, 0.25, 1, 28],
        "E4M3": [0, 2**-9, 7 * 2**-9, 2**-6, 2**-4, 1, 448],
        "E5M2": [0, 2**-16, 3 * 2**-16, 2**-14, 2**-12, 1, 57344],
        "INT8": [0, 2**-6, 63 / 64, 1, 127 / 64, 2],
    }
    specials = {n: mxfp.decode(edges(f), f) for n, f in ELEMENT_FORMATS.items()}
    assert {n: int(np.isnan(v).sum()) for n, v in specials.items() if np.isnan(v).any()} == {
        "E4M3": 1,
        "E5M2": 1,
    }
    assert {n: v[np.isinf(v)].tolist() for n, v in specials.items() if np.isinf(v).any()} == {
        "E5M2": [np.inf, -np.inf]
    }


@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_zero_mixed_has_a_quarter_of_zeros_and_a_tenth_of_minus_zeros(fmt):
    q = drawn("zero-mixed", fmt, (256, 256))
    plus, minus = 0, int(fmt.element.negated[0])
    rest = 0.65 / fmt.element.code_count
    if minus == plus:
        assert np.mean(q.codes == 0) == pytest.approx(0.35 + rest, abs=0.01)
    else:
        assert np.mean(q.codes == plus) == pytest.approx(0.25 + rest, abs=0.01)
        assert np.mean(q.codes == minus) == pytest.approx(0.10 + rest, abs=0.01)
    assert len(np.unique(q.codes)) == fmt.element.code_count


@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_normal_is_what_quantize_makes_of_gaussian_numbers(fmt):
    q = drawn("normal", fmt, (5, 100), 3)
    options = {"tensor_scale": 1.0} if fmt.tensor_scale else {}
    expected = mxfp.quantize(np.random.default_rng(3).standard_normal((5, 100)), fmt, **options)
    same_blocks(q, expected.codes, expected.scales)
    other = drawn("normal", fmt, (5, 100), 3, scales="unit")
    assert np.array_equal(other.codes, expected.codes)
    assert (fmt.scale.values[other.scales] == 1).all()


@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_subnormal_lies_around_the_smallest_normal(fmt):
    values = np.abs(mxfp.decode(drawn("subnormal", fmt).codes, fmt.element))
    below = np.mean(values < fmt.element.smallest_normal)
    assert 0.4 < below < 0.75
    assert values.max() < 6 * fmt.element.smallest_normal


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_scales_are_all_of_those_that_the_name_says(fmt, scales):
    q = drawn("bits", fmt, (100, 1024), scales=scales)
    values = fmt.scale.values[q.scales]
    expected = scale_codes(fmt.scale, scales)
    assert np.unique(q.scales).tolist() == expected.tolist()
    if scales in ("unit", "near-unit", "wide"):
        reach = {"unit": 0, "near-unit": 4, "wide": 30}[scales]
        assert values.min() == max(2.0**-reach, fmt.scale.smallest)
        assert values.max() == min(2.0**reach, fmt.scale.max)
    assert np.isnan(values).any() == (scales == "bits")
    if scales in ("uniform", "bits"):
        assert len(expected) == fmt.scale.code_count - (scales == "uniform")
    if scales == "corner":
        top = fmt.scale.nan_code - 1
        assert expected.tolist() == [0, 1, 127 if fmt.scale is mxfp.E8M0 else 56, top - 1, top]


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_finite_leaves_nan_and_infinities_out(fmt, name):
    q = drawn(name, fmt, scales="bits", finite=True)
    assert np.isfinite(mxfp.decode(q.codes, fmt.element)).all()
    assert np.isfinite(fmt.scale.values[q.scales]).all()
    if fmt.element.nan_code is not None and name in ("bits", "edges", "zero-mixed"):
        assert not np.isfinite(mxfp.decode(drawn(name, fmt).codes, fmt.element)).all()


def test_blocks_lie_along_the_axis():
    q = drawn("bits", mxfp.MXFP4, (70, 3), axis=0)
    assert q.scales.shape == (3, 3)
    assert q.block_axis == 0
    assert drawn("bits", mxfp.MXFP4, 5).shape == (5,)
    assert drawn("bits", mxfp.MXFP4, (2, 0)).scales.shape == (2, 0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda r: draw("gauss", mxfp.MXFP4, 3, r), ValueError, "'zero-mixed'.*'gauss'"),
        (lambda r: draw("bits", mxfp.MXFP4, 3, r, scales="any"), ValueError, "'near-unit'.*'any'"),
        (lambda r: draw("bits", mxfp.E2M1, 3, r), TypeError, "block format.*E2M1"),
        (lambda r: draw("bits", mxfp.MXFP4, 3, 5), TypeError, "default_rng.*5"),
        (lambda r: draw("bits", mxfp.MXFP4, (), r), ValueError, "scalar"),
        (lambda r: draw("bits", mxfp.MXFP4, "32", r), TypeError, "shape is an integer or a tuple .*'32'"),
        (lambda r: draw("normal", mxfp.MXFP4, (2.5,), r), TypeError, "tuple of integers, got .2.5,."),
        (lambda r: draw("bits", mxfp.MXFP4, True, r), TypeError, "got True"),
        (lambda r: draw("normal", mxfp.MXFP4, (2, -3), r), ValueError, "0 or more, got .2, -3."),
        (lambda r: edges(mxfp.MXFP4), TypeError, "element format such as mxfp.E2M1, got MXFP4"),
        (lambda r: scale_codes(mxfp.MXFP4, "unit"), TypeError, "scale format such as mxfp.E8M0, got MXFP4"),
        (lambda r: draw("bits", mxfp.MXFP4, (3, 4), r, axis=2), ValueError, "axis 2"),
        (
            lambda r: scale_codes(mxfp.ScaleFormat("half", 2, 0, -1, False), "unit"),
            ValueError,
            "half has no scale that is 'unit'",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call(np.random.default_rng(1))
