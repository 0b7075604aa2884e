# SPDX-License-Identifier: Apache-2.0
"""One body for every engine: the same bits, for every thread count and from several threads at once."""

import itertools
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mxfp
from engines import ENGINES, FAST, REFERENCE
from mxfp.blocks import ENGINES as NAMES
from mxfp.kernels import threads as helpers
from support import (
    DETERMINISTIC,
    DTYPES,
    FORMATS,
    INTEGERS,
    JIT,
    MX,
    ROUNDINGS,
    bits,
    hard_array,
    name_of,
    random_blocks,
    same_bits,
    same_blocks,
    size,
    with_specials,
)

QUANTIZING = [name for name in FAST if ENGINES[name].isa is None]
"""Instruction sets are for products; all others have the same kernels."""
ACCUMULATORS = [
    *(kind(dtype) for kind in (mxfp.Sequential, mxfp.Exact) for dtype in DTYPES),
    mxfp.Sequential("float32", 8),
    mxfp.Sequential("float32", 16),
    mxfp.Pairwise("float32"),
    mxfp.BLACKWELL_MXFP4,
    mxfp.Fused(8, 8, 16, -139),
    mxfp.FixedPoint(40, -20, "wrap"),
    mxfp.FixedPoint(24, -6, "saturate", "nearest_even"),
]
WITH_KERNELS = [a for a in ACCUMULATORS if isinstance(a, mxfp.Exact) or a == mxfp.Sequential("float32")]
ENDINGS = [mxfp.Sequential("float32"), mxfp.Exact("float32"), mxfp.FixedPoint(40, -20, "wrap")]
"""One accumulator for each thing that a micro-kernel does with its sums."""
PAIRS = {
    (mxfp.MXFP6_E2M3, mxfp.MXFP6_E2M3): ENDINGS,
    (mxfp.MXFP6_E3M2, mxfp.MXFP6_E3M2): ENDINGS,
    (mxfp.MXINT8, mxfp.MXINT8): ENDINGS,
    (mxfp.MXFP4, mxfp.MXINT8): ENDINGS,
    (mxfp.MXINT8, mxfp.MXFP4): ENDINGS,
    (mxfp.MXFP6_E2M3, mxfp.MXFP4): ENDINGS,
    (mxfp.MXFP4, mxfp.MXFP6_E3M2): ENDINGS,
    # Integers too wide for micro-kernels, the same loops everywhere.
    (mxfp.MXFP8_E4M3, mxfp.MXFP8_E4M3): ENDINGS[:1],
    (mxfp.MXFP8_E4M3, mxfp.MXFP4): ENDINGS[:1],
    (mxfp.MXFP4, mxfp.MXFP8_E5M2): ENDINGS[:1],
    (mxfp.MXFP8_E5M2, mxfp.MXFP8_E5M2): ENDINGS[:1],
}
"""Pairs of formats, and what they are added in on every instruction set: each compiles kernels of its own."""


def agree_quantize(x, fmt, engine, *, seed=None, **options):
    """Quantize and dequantize on one engine and on the reference."""
    found, expected = (
        ENGINES[name](
            mxfp.quantize, x, fmt, rng=None if seed is None else np.random.default_rng(seed), **options
        )
        for name in (engine, REFERENCE)
    )
    same_blocks(found, expected.codes, expected.scales)
    assert found.tensor_scale == expected.tensor_scale
    for dtype in DTYPES:
        same_bits(
            ENGINES[engine](mxfp.dequantize, expected, dtype=dtype),
            ENGINES[REFERENCE](mxfp.dequantize, expected, dtype=dtype),
        )


def agree_matmul(a, b, engine, accumulators=ACCUMULATORS):
    """Multiply on one engine and on the reference."""
    for accumulator in accumulators:
        found, expected = (
            ENGINES[name](mxfp.matmul, a, b, accumulator=accumulator) for name in (engine, REFERENCE)
        )
        same_bits(found, expected)


def test_every_engine_of_the_package_is_in_the_table():
    from mxfp.kernels import blocks, dequantize, encode, isa, scaled_blocks, scaled_dequantize

    assert {how.engine for how in ENGINES.values()} == set(NAMES)
    assert {how.isa for how in ENGINES.values()} == {None, *isa.available()}
    for module in (blocks, dequantize, encode, scaled_blocks, scaled_dequantize):
        assert isa not in vars(module).values(), "quantize has instruction sets now: see QUANTIZING"


@pytest.mark.parametrize("engine", QUANTIZING)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fmt", FORMATS, ids=name_of)
def test_hard_arrays_with_and_without_specials(fmt, dtype, engine):
    x = hard_array(dtype, fmt.element, (size(60, 12), size(100, 40)), seed=31, block=fmt.block)
    for rule in fmt.scale_rules:
        if rule == "search":
            continue
        for rounding in ROUNDINGS:
            agree_quantize(
                x,
                fmt,
                engine,
                scale_rule=rule,
                rounding=rounding,
                seed=3 if rounding == "stochastic" else None,
            )
    y = with_specials(x, seed=1)
    for nonfinite in ("nan", "saturate"):
        agree_quantize(y, fmt, engine, nonfinite=nonfinite)
        agree_quantize(y, fmt, engine, nonfinite=nonfinite, axis=0, rounding="stochastic", seed=8)


@pytest.mark.parametrize("engine", QUANTIZING)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype, engine):
    info = np.iinfo(dtype)
    x = np.random.default_rng(1).integers(info.min, info.max, (size(40, 8), 70), dtype, endpoint=True)
    x = x >> np.random.default_rng(2).integers(0, info.bits, x.shape).astype(dtype)
    for fmt in (mxfp.MXFP4, mxfp.MXINT8, mxfp.MXFP8_E4M3):
        for rounding in DETERMINISTIC:
            agree_quantize(x, fmt, engine, rounding=rounding)
            agree_quantize(x, fmt, engine, rounding=rounding, axis=0, scale_rule="rceil")


@pytest.mark.parametrize("engine", QUANTIZING)
@given(
    st.lists(st.floats(width=64), min_size=1, max_size=70),
    st.sampled_from(MX),
    st.sampled_from(["floor", "ceil", "rceil", "even"]),
    st.sampled_from(ROUNDINGS),
    st.sampled_from(["nan", "saturate"]),
    st.sampled_from(["float32", "float64"]),
)
def test_any_floats(engine, values, fmt, rule, rounding, nonfinite, dtype):
    with np.errstate(over="ignore"):
        x = np.array(values).astype(dtype)
    agree_quantize(
        x,
        fmt,
        engine,
        scale_rule=rule,
        rounding=rounding,
        nonfinite=nonfinite,
        seed=1 if rounding == "stochastic" else None,
    )


@pytest.mark.parametrize("engine", QUANTIZING)
@pytest.mark.parametrize(
    "shape", [(1,), (31,), (33, 3), (3, 33), (2, 34, 3), (0, 32), (32, 0), (1, 1, 1)], ids=str
)
def test_every_axis_of_every_shape(shape, engine):
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    for axis in range(len(shape)):
        for rounding in ("nearest_even", "stochastic"):
            agree_quantize(
                x,
                mxfp.MXFP4,
                engine,
                axis=axis,
                rounding=rounding,
                seed=1 if rounding == "stochastic" else None,
            )


@pytest.mark.parametrize("engine", QUANTIZING)
@pytest.mark.parametrize("fmt", MX, ids=name_of)
def test_every_code_under_every_scale(fmt, engine):
    count = fmt.element.code_count
    per_row = -(-count // 32)
    scales = np.arange(0, 256, size(1, 17), dtype=np.uint8)
    codes = np.tile(np.arange(count, dtype=np.uint8), (scales.size, 1))
    q = mxfp.BlockArray(codes, np.repeat(scales[:, None], per_row, 1), fmt)
    for dtype in DTYPES:
        same_bits(
            ENGINES[engine](mxfp.dequantize, q, dtype=dtype),
            ENGINES[REFERENCE](mxfp.dequantize, q, dtype=dtype),
        )


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4], ids=name_of)
def test_products_over_any_and_narrow_and_extreme_scales(fmt, engine):
    top = fmt.scale.nan_code
    middle = 127 if top == 255 else 60
    for seed, scales in enumerate(
        [None, (middle - 4, middle + 5), (middle - 40, middle + 40), (0, 3), (top - 3, top)]
    ):
        for m, k, n in ((1, 1, 3), (size(9, 3), 32, size(40, 3)), (size(4, 1), size(330, 40), 7)):
            nan_share = 0.03 if seed == 0 else 0
            a = random_blocks(fmt, (m, k), seed=seed, scales=scales, nan_share=nan_share)
            b = random_blocks(fmt, (k, n), seed=seed + 70, scales=scales, nan_share=nan_share, axis=0)
            agree_matmul(a, b, engine)


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: "-".join(map(str, pair)))
def test_products_of_every_kind_of_integers(pair, engine):
    for seed, (m, k, n) in enumerate(((1, 70, 3), (size(9, 3), 33, size(40, 3)))):
        options = {"specials": seed == 0, "nan_share": 0.03, "scales": (120, 135)}
        a = random_blocks(pair[0], (m, k), seed=seed, **options)
        b = random_blocks(pair[1], (k, n), seed=seed + 70, axis=0, **options)
        agree_matmul(a, b, engine, PAIRS[pair])


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: "-".join(map(str, pair)))
def test_the_largest_integers_of_both_signs(pair, engine):
    """Sums that fill the registers, or would overflow narrower ones: all alike, or changing sign by pairs."""
    sides = []
    for fmt, axis in zip(pair, (-1, 0), strict=True):
        ends = [int(fmt.element.integers.argmin()), int(fmt.element.integers.argmax())]
        codes = [np.tile(pattern, 16)[:32] for pattern in (ends[:1], ends[1:], ends, np.repeat(ends, 2))]
        codes = np.array([np.resize(pattern, 32) for pattern in codes], np.uint8)
        scales = np.full((4, 1), 127, np.uint8)
        sides.append(mxfp.BlockArray(*((x if axis else x.T) for x in (codes, scales)), fmt, axis))
    agree_matmul(*sides, engine, PAIRS[pair])


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("fmt", [mxfp.MXFP4, mxfp.NVFP4, mxfp.MXINT8], ids=name_of)
def test_prepared_matrices(fmt, engine):
    b = random_blocks(fmt, (70, 40), seed=1, axis=0, scales=(50, 60), nan_share=0.01)
    w = mxfp.prepare(b)
    for shape in ((70,), (1, 70), (4, 70), (2, size(3, 1), 70)):
        a = random_blocks(fmt, shape, seed=2, scales=(50, 60), nan_share=0.01)
        for accumulator in ENDINGS:
            same_bits(
                ENGINES[engine](mxfp.matmul, a, w, accumulator=accumulator),
                ENGINES[REFERENCE](mxfp.matmul, a, b, accumulator=accumulator),
            )


@pytest.mark.parametrize("engine", FAST)
def test_products_with_the_scale_codes_0_and_254_and_255(engine):
    """2**-254 to 2**254 in one sum: cancellation across the whole exact register."""
    rng = np.random.default_rng(4)
    for choices in ([0, 254], [0, 127, 254], [0, 1, 253, 254], [0, 254, 255]):
        a = random_blocks(mxfp.MXFP4, (size(8, 3), 32 * 6), seed=5)
        b = random_blocks(mxfp.MXFP4, (32 * 6, size(6, 2)), seed=6, axis=0)
        a = mxfp.BlockArray(a.codes, rng.choice(np.array(choices, np.uint8), a.scales.shape), mxfp.MXFP4)
        b = mxfp.BlockArray(b.codes, rng.choice(np.array(choices, np.uint8), b.scales.shape), mxfp.MXFP4, 0)
        agree_matmul(a, b, engine)
        # The negative of each block beside it, so that all but the smallest terms cancel.
        codes = np.concatenate([a.codes[:, :96], a.codes[:, :96] ^ 8], axis=1)
        scales = np.concatenate([a.scales[:, :3], a.scales[:, :3]], axis=1)
        other = np.concatenate([b.codes[:96], b.codes[:96]])
        other_scales = np.concatenate([b.scales[:3], b.scales[:3]])
        codes[:, -1] = 1
        agree_matmul(
            mxfp.BlockArray(codes, scales, mxfp.MXFP4),
            mxfp.BlockArray(other, other_scales, mxfp.MXFP4, 0),
            engine,
        )


@pytest.mark.parametrize("engine", FAST)
def test_sums_that_lie_on_and_beside_ties(engine):
    """1 + 2**-24 and its like: half an ulp of float32 or float64, plus or minus one term far below."""
    for gap in size((11, 12, 24, 25, 53, 54), (24, 53)):
        for tail in size((-60, -90, -120), (-90,)):
            for sign in (2, 10):
                for lead in (2, 4):
                    scales = [127 + gap // 2, 127 + gap // 2 - gap, 127 + gap // 2 + tail]
                    codes = np.zeros((1, 96), np.uint8)
                    codes[0, 0], codes[0, 32], codes[0, 64] = lead, 2, sign
                    ones = np.full((96, 1), 2, np.uint8)
                    a = mxfp.BlockArray(codes, [scales], mxfp.MXFP4)
                    b = mxfp.BlockArray(ones, np.full((3, 1), 127, np.uint8), mxfp.MXFP4, 0)
                    agree_matmul(a, b, engine, WITH_KERNELS)


@pytest.mark.parametrize("engine", FAST)
@settings(max_examples=size(100, 15))
@given(st.data())
def test_any_codes_and_scales(engine, data):
    fmt = data.draw(st.sampled_from([mxfp.MXFP4, mxfp.MXFP4, mxfp.MXFP6_E3M2, mxfp.MXINT8]))
    k = data.draw(st.integers(0, size(130, 40)))
    code, scale = st.integers(0, fmt.element.code_count - 1), st.integers(0, 255)
    sides = []
    for _ in range(2):
        codes = np.array(data.draw(st.lists(code, min_size=k, max_size=k)), np.uint8)
        blocks = -(-k // 32)
        scales = np.array(data.draw(st.lists(scale, min_size=blocks, max_size=blocks)), np.uint8)
        sides.append(mxfp.BlockArray(codes, scales, fmt))
    agree_matmul(*sides, engine, WITH_KERNELS if fmt is mxfp.MXFP4 else [ENDINGS[0], ENDINGS[2]])


@pytest.mark.parametrize("engine", FAST)
def test_batches_broadcast_alike(engine):
    a = random_blocks(mxfp.MXFP4, (2, 1, 3, 70), seed=1)
    b = random_blocks(mxfp.MXFP4, (4, 70, 2), seed=2, axis=1)
    agree_matmul(a, b, engine, WITH_KERNELS)


# --- threads


@pytest.mark.skipif(not JIT, reason="numba's threads belong to compiled kernels")
@pytest.mark.parametrize("count", [1, 2])
def test_the_number_of_threads_changes_nothing(monkeypatch, count):
    import numba

    monkeypatch.setattr(helpers, "WORTH", 0)

    x = np.random.default_rng(1).standard_normal((64, 300)).astype(np.float32)
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(min(count, before))
        for fmt, rounding in itertools.product((mxfp.MXFP4, mxfp.NVFP4), ("nearest_even", "stochastic")):
            agree_quantize(x, fmt, "numba", rounding=rounding, seed=1 if rounding == "stochastic" else None)
        agree_matmul(
            random_blocks(mxfp.MXFP4, (20, 300), seed=1),
            random_blocks(mxfp.MXFP4, (300, 20), seed=2, axis=0),
            "numba",
            WITH_KERNELS,
        )
    finally:
        numba.set_num_threads(before)


def test_several_python_threads_at_once(monkeypatch):
    monkeypatch.setattr(helpers, "WORTH", 0)
    a = random_blocks(mxfp.MXFP4, (size(20, 3), 200), seed=1)
    b = random_blocks(mxfp.MXFP4, (200, size(20, 3)), seed=2, axis=0)
    x = np.random.default_rng(1).standard_normal((size(50, 4), 100)).astype(np.float32)
    product, quantized = mxfp.matmul(a, b, engine="reference"), mxfp.quantize(x, engine="reference")
    wrong: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(size(20, 1)):
                same_bits(mxfp.matmul(a, b), product)
                assert mxfp.quantize(x) == quantized
                same_bits(mxfp.dequantize(quantized), mxfp.dequantize(quantized, engine="reference"))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- kernels inside a caller's own compiled code


def test_kernels_can_be_called_from_compiled_code_of_ones_own():
    import numba

    from mxfp.encode import draws, starts
    from mxfp.kernels.encode import count_starts, draw

    table = starts(mxfp.E2M1, "nearest_even")

    @numba.njit
    def codes_of(x, table, out):
        for i in range(x.size):
            out[i] = count_starts(abs(x[i]), table)

    @numba.njit
    def draws_of(key, out):
        for i in range(out.size):
            out[i] = draw(key, np.uint64(i))

    x = np.linspace(-7, 7, 1001)
    out = np.zeros(x.size, np.uint8)
    codes_of(x, table, out)
    assert np.array_equal(out, mxfp.encode(np.abs(x), mxfp.E2M1))
    drawn = np.zeros(50, np.uint64)
    with np.errstate(over="ignore"):
        draws_of(np.uint64(2**63 + 11), drawn)
    assert np.array_equal(bits(drawn), draws(np.uint64(2**63 + 11), np.arange(50, dtype=np.uint64)))
