# SPDX-License-Identifier: Apache-2.0
"""The signal and noise of quantizing, added in one pass by a kernel, against numpy and exact sums."""

import itertools
import math
import threading
from fractions import Fraction

import numpy as np
import pytest

import mxfp
from mxfp import floats
from mxfp.blocks import square_sums, work_alone
from mxfp.files.pipeline import in_order
from mxfp.files.sqnr import Sqnr, sqnr
from mxfp.kernels import squares
from mxfp.kernels import threads as helpers
from mxfp.kernels.alone import works_alone
from support import DTYPES, FORMATS, JIT, MX, hard_array, name_of, random_blocks, size, with_specials

SINGLES = ("float32", "float16", "bfloat16")


def both(x, q):
    """The Sqnr of both engines, whose orders of additions differ; numpy's is returned."""
    found, expected = (sqnr(x, q, engine=engine) for engine in ("numba", "reference"))
    assert (found.elements, found.left_out) == (expected.elements, expected.left_out)
    for one, other in ((found.signal, expected.signal), (found.noise, expected.noise)):
        assert math.isclose(one, other, rel_tol=1e-12)
    return expected


def exact(x, q):
    """The two sums, exact but for differences that float32 or float64 does not hold."""
    wide = np.float64 if q.format.tensor_scale else np.float32
    given = x.astype(wide)
    left = given - q.dequantize(dtype=wide)
    return [sum((Fraction(v) ** 2 for v in a.ravel().tolist()), Fraction(0)) for a in (given, left)]


@pytest.mark.parametrize("dtype", SINGLES)
@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_the_sums_of_both_engines_are_exact_to_twelve_digits(fmt, dtype):
    x = np.random.default_rng(6).standard_normal((size(9, 3), 104)).astype(DTYPES[dtype])
    for rounding in ("nearest_even", "stochastic"):
        rng = np.random.default_rng(0) if rounding == "stochastic" else None
        q = mxfp.quantize(x, fmt, rounding=rounding, rng=rng)
        for engine in ("numba", "reference"):
            found = sqnr(x, q, engine=engine)
            assert (found.elements, found.left_out) == (x.size, 0)
            for total, wanted in zip((found.signal, found.noise), exact(x, q), strict=True):
                assert abs(Fraction(total) - wanted) <= wanted / 10**12


@pytest.mark.parametrize("dtype", SINGLES)
@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_hard_arrays_with_and_without_specials(fmt, dtype):
    x = hard_array(dtype, fmt.element, (size(30, 6), 75), seed=3, block=fmt.block)
    y = with_specials(x, seed=1, share=0.01)
    for rule, nonfinite in itertools.product(fmt.scale_rules, ("nan", "saturate")):
        if rule != "search":
            cost = both(x, mxfp.quantize(x, fmt, scale_rule=rule))
            assert cost.signal > cost.noise > 0
            cost = both(y, mxfp.quantize(y, fmt, scale_rule=rule, nonfinite=nonfinite))
            assert 0 < cost.left_out < x.size


@pytest.mark.parametrize(
    "shape", [(1,), (31,), (3, 33), (2, 5, 48), (0, 32), (4, 0), (size(700, 3), 16)], ids=str
)
def test_every_shape_and_axis(shape):
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    for fmt, axis in itertools.product((mxfp.MXFP4, mxfp.NVFP4, mxfp.MXFP8_E4M3), range(len(shape))):
        both(x, mxfp.quantize(x, fmt, axis=axis))
        both(x.T, mxfp.quantize(x.T, fmt, axis=axis))


@pytest.mark.parametrize("block", [1, 5, 16, 31, 64, 100])
def test_blocks_of_any_size(block):
    fmt = mxfp.BlockFormat("MXFP4 in other blocks", mxfp.E2M1, mxfp.E8M0, block, ("floor",))
    x = np.random.default_rng(block).standard_normal((size(40, 3), 213)).astype(np.float32)
    both(x, mxfp.quantize(x, fmt))


@pytest.mark.parametrize("fmt", [*MX, mxfp.NVFP4], ids=name_of)
def test_codes_that_are_nobodys_and_codes_that_are_no_numbers(fmt):
    """Any codes, beside floats that they do not come from."""
    q = random_blocks(fmt, (size(20, 3), 70), seed=1, scales=(60, 120), specials=True, nan_share=0.02)
    x = np.random.default_rng(2).standard_normal(q.shape).astype(np.float32)
    both(x, q)
    both(x.astype(np.float16), random_blocks(fmt, q.shape, seed=2, scales=(100, 127)))


def test_a_scale_beyond_float32_is_left_out_by_both():
    x = np.full((2, 32), 3.4e38, np.float32)
    x[1] = 1
    cost = both(x, mxfp.quantize(x, scale_rule="even"))
    assert cost.left_out == 32
    assert cost.elements == 32


def test_what_the_kernel_does_and_what_it_leaves_to_numpy():
    x = np.ones((4, 64), np.float32)
    assert square_sums(x, mxfp.quantize(x)) == (256, 0)
    assert square_sums(x, mxfp.quantize(x, axis=0)) is None
    assert square_sums(x.T, mxfp.quantize(x.T)) is None
    assert square_sums(x.astype(np.float64), mxfp.quantize(x)) is None
    fmt = mxfp.BlockFormat("E4M3 of UE4M3", mxfp.E4M3, mxfp.UE4M3, 16, ("nearest",))
    assert square_sums(x, mxfp.quantize(x, fmt)) is None
    assert square_sums(x[:2], mxfp.quantize(x)) is None
    x[1, 1] = np.nan
    assert not math.isfinite(sum(square_sums(x, mxfp.quantize(x))))
    with pytest.raises(ValueError, match="engine must be one of 'numba', 'reference', got 'fast'"):
        sqnr(x, mxfp.quantize(x), engine="fast")


def test_shapes_that_differ_are_an_error_of_both_engines():
    q = mxfp.quantize(np.ones((2, 32), np.float32))
    for shape, engine in itertools.product(((4, 16), (3, 32), (64,)), ("numba", "reference")):
        with pytest.raises(ValueError, match=r"x and q must have one shape, got \(.*\) and \(2, 32\)"):
            sqnr(np.ones(shape, np.float32), q, engine=engine)


@pytest.mark.parametrize("engine", ["numba", "reference"])
def test_a_thread_that_flushes_subnormals_is_told_so_and_gets_no_sums(monkeypatch, engine):
    x = np.array([2.0**-24], np.float16)
    q = mxfp.quantize(x)
    monkeypatch.setattr(floats, "_SMALLEST_NORMAL", np.zeros(1, np.float32))
    with pytest.raises(FloatingPointError, match="flushes subnormal numbers"):
        sqnr(x, q, engine=engine)


@pytest.mark.parametrize("dtype", SINGLES)
@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4], ids=name_of)
def test_signalling_nans_are_left_out_without_a_warning(fmt, dtype):
    first = np.array(np.inf, DTYPES[dtype]).view(f"u{DTYPES[dtype].itemsize}") + 1
    x = np.ones((2, 64), DTYPES[dtype])
    x.view(first.dtype)[1, 3] = first
    cost = both(x, mxfp.quantize(x, fmt, tensor_scale=1.0 if fmt.tensor_scale else None))
    assert (cost.elements, cost.left_out) == (128 - fmt.block, fmt.block)


def test_numbers_without_noise_and_nothing_at_all():
    x = np.array([[1.0, 2.0]], np.float32)
    assert both(x, mxfp.quantize(x)) == Sqnr(2, 5.0, 0.0)
    assert both(x[:0], mxfp.quantize(x[:0])) == Sqnr()


# --- threads


def test_threads_change_no_bit(monkeypatch):
    x = np.random.default_rng(1).standard_normal((size(900, 3), 160)).astype(np.float32)
    cases = [(fmt, mxfp.quantize(x, fmt)) for fmt in (mxfp.MXFP4, mxfp.NVFP4)]
    alone = [square_sums(x, q) for _, q in cases]
    monkeypatch.setattr(helpers, "WORTH", 0)
    for _ in range(3):
        for (fmt, q), sums in zip(cases, alone, strict=True):
            assert square_sums(x, q) == sums
            assert mxfp.quantize(x, fmt) == q


def test_chunks_are_added_one_after_the_other(monkeypatch):
    monkeypatch.setattr(helpers, "WORTH", 0)
    rows = size(2 * squares.CHUNK + 3, 5)
    x = np.zeros((rows, 16), np.float32)
    x[:, 3] = 0.75
    x[-1] = 6
    q = mxfp.BlockArray(np.full(x.shape, 2, np.uint8), np.full((rows, 1), 127, np.uint8), mxfp.MXFP4)
    assert square_sums(x, q) == ((rows - 1) * 0.75**2 + 16 * 36, (rows - 1) * (15 + 0.0625) + 16 * 25)


def test_kernels_in_a_thread_that_works_alone_have_no_helpers(monkeypatch):
    asked = []
    monkeypatch.setattr(helpers, "_together", lambda *job: bool(asked.append(threading.current_thread())))
    monkeypatch.setattr(helpers, "WORTH", 0)
    monkeypatch.setattr(helpers.layers, "_is_initialized", True)
    monkeypatch.setattr(helpers.numba, "get_num_threads", lambda: 4)
    x = np.ones((8, 64), np.float32)

    def work(_):
        q = mxfp.quantize(x)
        return works_alone(), sqnr(x, q).signal, float(mxfp.matmul(q, q.T)[0, 0])

    assert list(in_order(work, range(3))) == [(True, 512.0, 64.0)] * 3
    assert not asked
    assert work(0) == (False, 512.0, 64.0)
    assert bool(asked) == JIT


def test_to_work_alone_is_said_for_one_thread():
    found = []

    def work():
        work_alone()
        found.append(works_alone())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [True]
    assert not works_alone()


def test_squares_are_added_in_one_order_on_every_machine():
    x = np.random.default_rng(2).standard_normal(1000).astype(np.float32)
    q = mxfp.quantize(x)
    for found, values in zip(square_sums(x, q), (x, x - q.dequantize()), strict=True):
        sums = np.zeros(squares.LANES)
        for k, value in enumerate(values.astype(np.float64)):
            sums[k % squares.LANES] += value * value
        while sums.size > 1:
            left, right = np.split(sums, 2)
            sums = left + right
        assert found == sums[0]
