# SPDX-License-Identifier: Apache-2.0
"""The tests themselves: every comparison rejects one flipped bit, and named mutants are caught."""

import importlib
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import mxfp
import oracle
from mxfp import accumulate, blocks, dot, floats, packing, registers, scale
from mxfp.files.sqnr import sqnr
from mxfp.formats import ElementFormat
from mxfp.kernels import isa, scaled_tables
from support import (
    DTYPES,
    as_floats,
    bits,
    by_bisection,
    check_quantize,
    hard_array,
    oracle_dequantize,
    oracle_result,
    random_blocks,
    same_bits,
    same_blocks,
    values_of,
)

encode = importlib.import_module("mxfp.encode")  # the room; mxfp.encode is its function

# --- comparisons bite


@pytest.mark.parametrize("dtype", [*DTYPES, "uint8", "int64"])
def test_same_bits_rejects_every_flipped_bit(dtype):
    x = np.arange(6).astype(DTYPES.get(dtype, dtype)).reshape(2, 3)
    same_bits(x, x.copy())
    for i in range(x.size):
        for bit in range(8 * x.itemsize):
            other = bits(x).copy()
            other.ravel()[i] ^= other.dtype.type(1 << bit)
            with pytest.raises(AssertionError, match="1 of 6 differ"):
                same_bits(other.view(x.dtype), x)


def test_same_bits_tells_zeros_nans_dtypes_and_shapes_apart():
    for left, right in (
        (np.array([0.0]), np.array([-0.0])),
        (np.array([math.nan]), np.array([0x7FF8000000000001], np.uint64).view(np.float64)),
        (np.array([1.0], np.float32), np.array([1.0])),
        (np.array([1.0]), np.array([[1.0]])),
        (np.array([1.0]), np.array([1.0, 1.0])),
        (np.array(0.0), np.array(-0.0)),
    ):
        with pytest.raises(AssertionError):
            same_bits(left, right)
    same_bits(np.array([math.nan, -0.0]), np.array([math.nan, -0.0]))


def test_same_blocks_rejects_every_flipped_code_and_scale():
    q = random_blocks(mxfp.MXFP4, (2, 40), seed=1)
    same_blocks(q, q.codes, q.scales)
    for name in ("codes", "scales"):
        for i in range(getattr(q, name).size):
            arrays = {"codes": q.codes.copy(), "scales": q.scales.copy()}
            arrays[name].ravel()[i] ^= 1
            with pytest.raises(AssertionError):
                same_blocks(q, **arrays)


def test_bisection_finds_every_step_of_a_function_that_never_falls():
    for steps in ([], [0], [5], [1, 2, 3], [9, 9, 99], list(range(100))):
        expected = [sum(s <= n for s in steps) for n in range(100)]
        assert by_bisection(lambda n, expected=expected: expected[n], 100).tolist() == expected


def test_values_of_agrees_with_python_floats():
    x = np.array([1.5, -0.0, math.inf, -math.inf, math.nan, 5e-324])
    values, signs = values_of(x)
    assert values == [Fraction(3, 2), 0, "inf", "-inf", "nan", Fraction(5e-324)]
    assert signs == [False, True, False, True, False, False]


# --- mutants


def the_scale_check():
    x = np.array(
        [[np.nextafter(8.0, 0), 1.0], [8.0, 1.0], [7.0, 1.0], [6.0, 1.0], [np.nextafter(6.0, 7), 1.0]]
    )
    for rule in ("floor", "ceil", "rceil", "even"):
        check_quantize(x, mxfp.MXFP4, scale_rule=rule)


def the_rounding_check():
    for rounding in ("nearest_even", "nearest_away", "toward_zero"):
        check_quantize(
            np.array([4.0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -0.0, -0.1]), mxfp.MXFP4, rounding=rounding
        )


def the_stochastic_check():
    check_quantize(
        np.random.default_rng(1).uniform(-6, 6, (4, 33)), mxfp.MXFP4, rounding="stochastic", seed=3
    )


def the_hard_check():
    for fmt in (mxfp.MXFP4, mxfp.MXINT8):
        check_quantize(hard_array("float64", fmt.element, (12, 32), seed=1), fmt)


def the_nvfp4_check():
    x = np.random.default_rng(3).standard_normal((8, 33)).astype(np.float32)
    for rule in ("nearest", "rceil"):
        check_quantize(x, mxfp.NVFP4, scale_rule=rule)
    for t in np.random.default_rng(4).uniform(0.5, 2, 12).astype(np.float32).tolist():
        middle = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]) * (1.125 * t)
        for beside in (middle, np.nextafter(middle, 0), np.nextafter(middle, 9)):
            check_quantize(np.append(beside, 6 * 1.125 * t), mxfp.NVFP4, tensor_scale=t)


def the_integer_check():
    check_quantize(np.array([1 << 62, 5 << 59, (5 << 59) + 1, (5 << 59) - 1]), mxfp.MXFP4)


def the_dequantize_check():
    for fmt in (mxfp.MXFP4, mxfp.NVFP4):
        q = random_blocks(fmt, (6, 70), seed=1, nan_share=0.2)
        for dtype in DTYPES:
            same_bits(mxfp.dequantize(q, dtype=dtype, engine="reference"), oracle_dequantize(q, dtype))


def the_product_check():
    a, b = (random_blocks(mxfp.MXFP4, (2, 200), seed=s, scales=(110, 145)) for s in (1, 2))
    accumulators = [
        mxfp.Sequential("float32"),
        mxfp.Sequential("bfloat16"),
        mxfp.Exact("float32"),
        mxfp.Pairwise("float32"),
        mxfp.FixedPoint(20, -8, "wrap"),
        mxfp.BLACKWELL_MXFP4,
        mxfp.Fused(8, 16, 64, -139),
    ]
    for accumulator in accumulators:
        found = accumulator(mxfp.block_dots(a, b, group=accumulator.terms_of))
        for row in range(2):
            x, y = (mxfp.BlockArray(q.codes[row], q.scales[row], mxfp.MXFP4) for q in (a, b))
            assert int(bits(found)[row]) == oracle_result(accumulator, x, y)


def the_tie_check():
    """1 + 2**-24 + 2**-90: a tie of float32 that one term far below decides."""
    codes = np.zeros(96, np.uint8)
    codes[[0, 32, 64]] = 2
    a = mxfp.BlockArray(codes, [127, 103, 37], mxfp.MXFP4)
    b = mxfp.BlockArray(codes, [127, 127, 127], mxfp.MXFP4)
    terms = mxfp.block_dots(a, b)
    assert int(bits(mxfp.Exact("float32")(terms))[()]) == 0x3F800001
    # In float16 the running sum 1 meets 2**-11 + 2**-60 in one term: a tie unless rounded to odd.
    wide = dot.Terms(np.array([1, (1 << 49) + 1]), np.array([0, -60]), 52, 0)
    assert int(bits(mxfp.Sequential("float16")(wide))[()]) == 0x3C01


def the_width_check():
    q = mxfp.quantize([6.0] * 32)
    with pytest.raises(mxfp.WidthError):
        mxfp.block_dots(q, q, width=13)


def the_packing_check():
    codes = np.arange(16, dtype=np.uint8)
    assert mxfp.pack(codes, mxfp.E2M1).tobytes().hex() == "1032547698badcfe"
    assert mxfp.unpack(mxfp.pack(codes, mxfp.E2M1), mxfp.E2M1, 16).tolist() == codes.tolist()


def log2_exponents(amax, element, rule):
    """floor(log2(amax)): one too high an ulp below a power of two."""
    with np.errstate(divide="ignore"):
        exponent = np.floor(np.log2(np.where(amax > 0, amax, 1.0).astype(np.float32))).astype(np.int64)
    fraction = amax / 2.0**exponent
    return exponent - element.emax + (fraction >= scale.step_up(rule, element)).astype(np.int64)


_step_up, _starts, _draws = scale.step_up, encode.starts, encode.draws
_round_float64 = floats.round_float64


def late_draws(key, index):
    return _draws(key, index + np.uint64(1))


def through_float32(x):
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return x.astype(np.float32).astype(np.float64)


def truncated(x, dtype):
    """Rounds to odd at the end instead of nearest even."""
    found = _round_float64(x, dtype)
    with np.errstate(invalid="ignore"):
        beyond = np.abs(found.astype(np.float64)) > np.abs(x)
    patterns = bits(found)
    return np.where(beyond, patterns - 1, patterns).astype(patterns.dtype).view(found.dtype)


MUTANTS = {
    "floor(log2(amax)) in float32": (scale, "exponents", log2_exponents, the_scale_check),
    "ceil steps up at the power of two": (
        scale,
        "step_up",
        lambda r, e: 1.0 if r == "ceil" else _step_up(r, e),
        the_scale_check,
    ),
    "rceil steps up at the maximum itself": (
        scale,
        "step_up",
        lambda r, e: 1.5 if r == "rceil" else _step_up(r, e),
        the_scale_check,
    ),
    "even steps up from 1.5": (
        scale,
        "step_up",
        lambda r, e: 1.5 if r == "even" else _step_up(r, e),
        the_scale_check,
    ),
    "floor steps up": (
        scale,
        "step_up",
        lambda r, e: 1.75 if r == "floor" else _step_up(r, e),
        the_scale_check,
    ),
    "ties away from zero": (
        encode,
        "starts",
        lambda e, r: _starts(e, "nearest_away" if r == "nearest_even" else r),
        the_rounding_check,
    ),
    "ties toward zero": (
        encode,
        "starts",
        lambda e, r: np.nextafter(_starts(e, "nearest_away"), 9) if r == "nearest_even" else _starts(e, r),
        the_rounding_check,
    ),
    "truncation rounds": (
        encode,
        "starts",
        lambda e, r: _starts(e, "nearest_even" if r == "toward_zero" else r),
        the_rounding_check,
    ),
    "the sign of zero is lost": (np, "signbit", lambda x: x < 0, the_rounding_check),
    "draws are one element late": (blocks, "draws", late_draws, the_stochastic_check),
    "float64 goes through float32": (blocks, "to_float64", through_float32, the_hard_check),
    "64-bit integers go through float64": (
        blocks,
        "to_float64",
        lambda x: x.astype(np.float64),
        the_integer_check,
    ),
    "NVFP4 divides in float32": (
        blocks,
        "divide_to_odd",
        lambda x, d: (x.astype(np.float32) / d.astype(np.float32)).astype(np.float64),
        the_nvfp4_check,
    ),
    "NVFP4 multiplies by a reciprocal": (blocks, "divide_to_odd", lambda x, d: x * (1 / d), the_nvfp4_check),
    "NVFP4 takes the scale one code up": (
        scale,
        "significand_codes",
        lambda *a, f=scale.significand_codes: np.minimum(f(*a) + 1, 126).astype(np.uint8),
        the_nvfp4_check,
    ),
    "decoding truncates": (blocks, "round_float64", truncated, the_dequantize_check),
    "the LSB of an element is twice as large": (
        ElementFormat,
        "lsb_exponent",
        property(lambda self: 2 - self.bias - self.mantissa_bits),
        the_product_check,
    ),
    "sums are added before they are rounded to odd": (
        accumulate,
        "add_to_odd",
        lambda a, b: a + b,
        the_tie_check,
    ),
    "the accumulator truncates": (accumulate, "round_float64", truncated, the_product_check),
    "shifts round toward zero": (
        registers,
        "shift_integers",
        lambda i, s, r, f=registers.shift_integers: f(i, s, "toward_zero"),
        the_product_check,
    ),
    "shifts round down": (
        registers,
        "shift_integers",
        lambda i, s, r, f=registers.shift_integers: f(i, s, "floor"),
        the_product_check,
    ),
    "sums wrap in silence": (dot, "_fit", lambda sums, *_: sums, the_width_check),
    "the first element in the high nibble": (
        packing,
        "_padded",
        lambda c, m, f=packing._padded: f(c, m).reshape(-1, 2)[:, ::-1].reshape(-1),
        the_packing_check,
    ),
}
CHECKS = sorted({check for *_, check in MUTANTS.values()}, key=lambda check: check.__name__)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_checks_pass_without_a_mutant(check):
    check()


def clear_tables() -> None:
    """Forget what a mutant may have put into the derived tables."""
    for fmt in mxfp.formats.ELEMENT_FORMATS.values():
        for name in ("values", "magnitudes", "integers"):
            vars(fmt).pop(name, None)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_named_mutant_is_caught(monkeypatch, name):
    owner, attribute, mutant, check = MUTANTS[name]
    with monkeypatch.context() as patch:
        if owner is ElementFormat:
            clear_tables()
        if attribute in ("starts", "step_up"):
            # Both engines: the kernels import these names for themselves.
            from mxfp.kernels import blocks as kernels

            patch.setattr(kernels, attribute, mutant)
        patch.setattr(owner, attribute, mutant)
        caught = False
        try:
            check()
        except (AssertionError, pytest.fail.Exception):
            caught = True
    if owner is ElementFormat:
        clear_tables()
    assert caught, f"nothing noticed: {name}"


def test_a_kernel_that_differs_in_one_bit_is_caught(monkeypatch):
    """One flipped code from the fast engine, whatever the block."""
    from mxfp.kernels import blocks as kernels

    real = kernels.quantize_rows

    def flipped(*arguments):
        codes, scales = real(*arguments)
        codes[-1, -1] ^= 1
        return codes, scales

    monkeypatch.setattr(kernels, "quantize_rows", flipped)
    with pytest.raises(AssertionError, match="1 of 66 differ"):
        check_quantize(np.linspace(-3, 3, 66).reshape(2, 33), mxfp.MXFP4)


# --- mutants of the kernels of matmul, each held against the reference


def agree(a, b, *accumulators):
    """The same bits on both engines."""
    for accumulator in accumulators:
        same_bits(
            mxfp.matmul(a, b, accumulator=accumulator),
            mxfp.matmul(a, b, accumulator=accumulator, engine="reference"),
        )


def two_sides(fmt, m, k, n, **options):
    return random_blocks(fmt, (m, k), 1, **options), random_blocks(fmt, (k, n), 2, axis=0, **options)


STEPS = [mxfp.Sequential("float16"), mxfp.FixedPoint(20, -6, "wrap", "nearest_even"), mxfp.BLACKWELL_MXFP4]


def the_tile_check():
    agree(*two_sides(mxfp.MXFP4, 7, 40, 3, scales=(120, 135)), mxfp.Sequential("float32"))


def the_field_check():
    """More rows than go through packed weights."""
    agree(*two_sides(mxfp.MXFP4, 66, 40, 3, scales=(120, 135)), mxfp.Sequential("float32"))


def the_portable_check():
    with isa.using("portable"):
        the_tile_check()


def the_wide_check():
    agree(*two_sides(mxfp.MXFP8_E4M3, 2, 40, 3, scales=(120, 135)), mxfp.Sequential("float32"))


def the_row_check():
    """One row, whose weights are looked up on the way."""
    for fmt in (mxfp.MXFP4, mxfp.NVFP4):
        agree(*two_sides(fmt, 1, 40, 3, scales=(40, 90)), mxfp.Sequential("float32"))


def the_float64_check():
    agree(*two_sides(mxfp.MXFP4, 7, 70, 5, scales=(124, 131)), mxfp.Exact("float32"))


def the_limb_check():
    agree(*two_sides(mxfp.MXFP4, 2, 40, 3), mxfp.Exact("float64"))


def the_step_check():
    agree(*two_sides(mxfp.MXFP4, 2, 70, 3, scales=(120, 130)), *STEPS)


def the_half_check():
    """Sums of float16 that are subnormal, ordinary, and beyond the largest."""
    for scales in ((110, 116), (120, 130), (132, 136)):
        agree(*two_sides(mxfp.MXFP4, 3, 70, 3, scales=scales), mxfp.Sequential("float16"))


def the_register_check():
    for overflow in ("wrap", "saturate"):
        for rounding in ("floor", "toward_zero", "nearest_even"):
            agree(
                *two_sides(mxfp.MXFP4, 2, 70, 3, scales=(120, 130)),
                mxfp.FixedPoint(12, -6, overflow, rounding),
            )


def the_alignment_check():
    """Groups of zeros under a scale that would drown the others, and terms that truncation cuts."""
    a, b = two_sides(mxfp.MXFP4, 2, 100, 3, scales=(115, 140))
    codes, scales = a.codes.copy(), a.scales.copy()
    codes[:, :32], scales[:, 0] = 0, 250
    a = mxfp.BlockArray(codes, scales, mxfp.MXFP4)
    agree(a, b, mxfp.BLACKWELL_MXFP4, mxfp.Fused(10, 8, 32, 5))
    a, b = two_sides(mxfp.MXFP4, 2, 100, 3, scales=(70, 80))
    codes = a.codes.copy()
    codes[:, :16] = 0
    agree(mxfp.BlockArray(codes, a.scales, mxfp.MXFP4), b, mxfp.BLACKWELL_MXFP4)
    agree(*two_sides(mxfp.MXFP4, 2, 100, 3, scales=(124, 131)), mxfp.Fused(10, 8, 32, -139))


def the_54_bits_check():
    """6 * 115200 * 2**34 + 2**29 + 1: float64 would lose the last bit, which decides a tie of float32."""
    codes, other = np.zeros((1, 256), np.uint8), np.ones((256, 1), np.uint8)
    codes[0, :192] = other[:192] = 31
    codes[0, [192, 224]] = 1
    a = mxfp.BlockArray(codes, [[161] * 6 + [156, 127]], mxfp.MXFP6_E2M3)
    b = mxfp.BlockArray(other, np.full((8, 1), 127, np.uint8), mxfp.MXFP6_E2M3, 0)
    agree(a, b, mxfp.Exact("float32"))


def the_nan_check():
    agree(*two_sides(mxfp.MXFP4, 7, 40, 9, nan_share=0.2), mxfp.Sequential("float32"))


def the_tensor_scale_check():
    for accumulator in (mxfp.Sequential("float32"), mxfp.FixedPoint(60, -40, "wrap"), mxfp.Exact("float64")):
        agree(*two_sides(mxfp.NVFP4, 2, 40, 3), accumulator)


def the_layout_check():
    a, b = two_sides(mxfp.MXFP4, 2, 40, 3, scales=(120, 135))
    for engine in ("numba", "reference"):
        w = mxfp.prepare(b, engine=engine)
        assert w.to_blocks() == b
        same_bits(mxfp.matmul(a, w), mxfp.matmul(a, b, engine="reference"))


def scaled_blocks(dtype="float32", t=0.375):
    """Blocks of NVFP4 under the scale codes 50 … 69: elements on every midpoint and one pattern beside."""
    scales = mxfp.UE4M3.values[50:70, None] * t
    middles = (np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]) * scales).astype(DTYPES[dtype])
    x = np.zeros((20, 32), DTYPES[dtype])
    for left, by in ((0, -1), (8, 0), (16, 1)):
        x[:, left : left + 7] = as_floats(bits(middles).astype(np.int64) + by, DTYPES[dtype])
    x[:, 15] = x[:, 31] = (6 * scales[:, 0]).astype(DTYPES[dtype])
    return x, t


def agree_scaled(x, *, axis=-1, **options):
    """Quantize to NVFP4 on both engines, over memory in which nothing is right yet."""
    found = []
    for engine in ("numba", "reference"):
        shape = list(x.shape)
        shape[axis] = -(-shape[axis] // 16)
        out = np.full(x.shape, 99, np.uint8), np.full(shape, 99, np.uint8)
        rng = np.random.default_rng(1) if options.get("rounding") == "stochastic" else None
        found.append(mxfp.quantize(x, mxfp.NVFP4, axis=axis, rng=rng, out=out, engine=engine, **options))
    same_blocks(found[0], found[1].codes, found[1].scales)
    assert found[0].tensor_scale == found[1].tensor_scale


def the_scaled_check():
    for dtype in ("float32", "float64"):
        x, t = scaled_blocks(dtype)
        agree_scaled(x, tensor_scale=t)


def the_scaled_scale_check():
    """Largest magnitudes on and beside every start of a scale, and infinity."""
    found = scaled_tables.scale_starts(mxfp.NVFP4, "nearest", 1.0)
    x = np.concatenate([found, np.nextafter(found, 0), [np.inf]])[:, None]
    agree_scaled(x, tensor_scale=1.0)
    agree_scaled(x.T, tensor_scale=1.0, axis=0)


def the_scaled_drawn_check():
    x = np.random.default_rng(1).uniform(-6, 6, (4, 33))
    agree_scaled(x, rounding="stochastic", tensor_scale=0.25)
    agree_scaled(x, rounding="stochastic", tensor_scale=0.25, axis=0)


def the_largest_check():
    for at in (0, 40):
        x = np.zeros((2, 33))
        x.ravel()[at] = -700.0
        agree_scaled(x)


def the_scaled_dequantize_check():
    q = random_blocks(mxfp.NVFP4, (6, 70), seed=1, nan_share=0.2)
    for dtype in DTYPES:
        same_bits(mxfp.dequantize(q, dtype=dtype), mxfp.dequantize(q, dtype=dtype, engine="reference"))


def the_sqnr_check():
    for fmt in (mxfp.MXFP4, mxfp.NVFP4):
        for dtype in ("float32", "float16", "bfloat16"):
            x = np.random.default_rng(1).standard_normal((3, 72)).astype(DTYPES[dtype])
            q = mxfp.quantize(x, fmt)
            found, expected = (sqnr(x, q, engine=engine) for engine in ("numba", "reference"))
            assert math.isclose(found.signal, expected.signal, rel_tol=1e-12)
            assert math.isclose(found.noise, expected.noise, rel_tol=1e-12)


def changed(make, index=5, by=1):
    """What makes a table, with one entry of the table changed."""

    def mutant(*arguments):
        table = make(*arguments).copy()
        table[index] = table[index] + table.dtype.type(by)
        return table

    return mutant


def all_changed(make, function):
    """What makes a table, with all of it changed."""
    return lambda *arguments: function(make(*arguments))


def changed_plan(**parts):
    """What plans a product, with parts of the plan, or of its accumulator, made from what they were."""

    def mutant(make):
        def planned(*arguments):
            found = make(*arguments)
            own = {name: part(getattr(found, name)) for name, part in parts.items() if hasattr(found, name)}
            how = {name: part(getattr(found.how, name)) for name, part in parts.items() if name not in own}
            return replace(found, **own, how=found.how._replace(**how))

        return planned

    return mutant


def changed_rows(**parts):
    """What packs rows, with parts of what it makes changed."""

    def mutant(make):
        def packed(*arguments):
            rows = make(*arguments)
            return rows._replace(**{name: part(getattr(rows, name)) for name, part in parts.items()})

        return packed

    return mutant


def nibbles_swapped(pack):
    def mutant(codes, fmt, target):
        pack(codes, fmt, target)
        target[...] = target << 4 | target >> 4

    return mutant


def shifted_scales(lay):
    def mutant(scales, target):
        lay(scales, target)
        target[...] = np.roll(target, 1, axis=-1)

    return mutant


KERNEL_MUTANTS = {
    "a table of wide integers": (
        "matmul.in_table",
        lambda make: changed(make, slice(8, 120)),
        the_wide_check,
    ),
    "a table of integers of rows": (
        "operands.in_table",
        lambda make: changed(make, slice(8, 120)),
        the_wide_check,
    ),
    "an entry of the lookup of weights": ("matmul.constants", changed, the_tile_check),
    "the unit of scales that are looked up": (
        "matmul.constants",
        lambda make: all_changed(make, lambda x: np.roll(x, 1)),
        the_row_check,
    ),
    "a scale of float32 twice as large": (
        "matmul.scale_values",
        lambda make: changed(make, 127),
        the_portable_check,
    ),
    "a scale of float64 twice as large": (
        "matmul.scale_values",
        lambda make: changed(make, 127),
        the_float64_check,
    ),
    "exponents one too high": (
        "matmul.scale_exponents",
        lambda make: all_changed(make, lambda x: x + np.int32(1)),
        the_limb_check,
    ),
    "one exponent too high": (
        "matmul.scale_exponents",
        lambda make: changed(make, slice(120, 125)),
        the_step_check,
    ),
    "masks that take zeros for numbers": (
        "matmul.rows_of",
        changed_rows(masks=lambda x: x | np.uint32(0xFFFFFFFF), integers=lambda x: x),
        the_alignment_check,
    ),
    "masks that forget numbers": (
        "matmul.rows_of",
        changed_rows(masks=lambda x: x & np.uint32(0xFFFF0000)),
        the_alignment_check,
    ),
    "room for exact sums of 54 bits": (
        "matmul.plan",
        changed_plan(bits=lambda n: n - 1),
        the_54_bits_check,
    ),
    "one mantissa bit too few": ("matmul.plan", changed_plan(mantissa_bits=lambda n: n - 1), the_half_check),
    "one mantissa bit too many": ("matmul.plan", changed_plan(mantissa_bits=lambda n: n + 1), the_half_check),
    "subnormals begin one binade late": (
        "matmul.plan",
        changed_plan(lowest=lambda n: n - 1),
        the_half_check,
    ),
    "a largest float of twice the size": ("matmul.plan", changed_plan(top=lambda x: 2 * x), the_half_check),
    "a register one bit wider": ("matmul.plan", changed_plan(width=lambda n: n + 1), the_register_check),
    "a register that rounds another way": (
        "matmul.plan",
        changed_plan(rounding=lambda n: (n + 1) % 3),
        the_register_check,
    ),
    "a register that wraps": ("matmul.plan", changed_plan(overflow=lambda n: 1), the_register_check),
    "a register that saturates": ("matmul.plan", changed_plan(overflow=lambda n: 2), the_register_check),
    "one fraction bit more": (
        "matmul.plan",
        changed_plan(fraction_bits=lambda n: n + 1),
        the_alignment_check,
    ),
    "zeros with another exponent": (
        "matmul.plan",
        changed_plan(zero_exponent=lambda n: n - 1),
        the_alignment_check,
    ),
    "a unit of half the size": ("matmul.plan", changed_plan(unit=lambda n: n - 1), the_alignment_check),
    "steps of half the groups": (
        "matmul.plan",
        changed_plan(per_step=lambda n: n // 2),
        the_alignment_check,
    ),
    "NaN that is not seen": (
        "matmul.marked_rows",
        lambda make: all_changed(make, np.zeros_like),
        the_nan_check,
    ),
    "one row too many that is NaN": (
        "matmul.marked_rows",
        lambda make: all_changed(make, lambda x: x | np.roll(x, 1)),
        the_nan_check,
    ),
    "the high nibble first": ("matmul.pack_panels", nibbles_swapped, the_tile_check),
    "scales of the column beside": ("matmul.lay_scales", shifted_scales, the_tile_check),
    "tensor scales that are rounded first": (
        "matmul.Factor",
        lambda make: lambda value, odd: make(float(np.float32(value)), odd),
        the_tensor_scale_check,
    ),
    "a task that is left out": (
        "matmul.spread",
        lambda make: lambda run, count, *rest, **options: make(run, count - 1, *rest, **options),
        the_field_check,
    ),
    "codes that end one pattern late": (
        "scaled_tables.last_patterns",
        lambda make: all_changed(make, lambda x: x + 1),
        the_scaled_check,
    ),
    "one code that ends one pattern late": (
        "scaled_blocks.ends_of_elements",
        lambda make: changed(make, 60 * scaled_tables.STEPS + 3),
        the_scaled_check,
    ),
    "ends of the scale beside": (
        "scaled_blocks.ends_of_elements",
        lambda make: all_changed(make, lambda x: np.roll(x, scaled_tables.STEPS)),
        the_scaled_check,
    ),
    "midpoints of NVFP4 that go away from zero": (
        "scaled_tables.starts",
        lambda make: lambda element, rounding: make(element, "nearest_away"),
        the_scaled_check,
    ),
    "a scale that ends one pattern late": (
        "scaled_blocks.ends_of_scales",
        lambda make: changed(make, 60),
        the_scaled_scale_check,
    ),
    "infinity that has a scale": (
        "scaled_blocks.ends_of_scales",
        lambda make: changed(make, 126),
        the_scaled_scale_check,
    ),
    "draws of NVFP4 one element late": (
        "scaled_blocks.element_index",
        lambda make: all_changed(make, lambda x: x + np.uint64(1)),
        the_scaled_drawn_check,
    ),
    "starts of NVFP4 that the rounding is not": (
        "scaled_blocks.starts",
        lambda make: lambda element, rounding: make(element, "nearest_even"),
        the_scaled_drawn_check,
    ),
    "values that are rounded twice": (
        "scaled_dequantize.values_of",
        lambda make: lambda fmt, t, dtype: make(fmt, t, DTYPES["float32"]).astype(np.float64).astype(dtype),
        the_scaled_dequantize_check,
    ),
    "a block that is left out": (
        "arrays.spread",
        lambda make: lambda run, count, *rest, **options: make(run, count - 1, *rest, **options),
        the_scaled_check,
    ),
    "a largest magnitude that is not seen": (
        "largest.share_out",
        lambda make: lambda run, count, *rest, **options: None,
        the_largest_check,
    ),
    "squares of other elements": (
        "squares.decoding",
        lambda make: lambda element: make(mxfp.E2M3),
        the_sqnr_check,
    ),
    "squares under the scale beside": (
        "squares.patterns",
        lambda make: all_changed(make, lambda x: x if x.size > 32 else x + x.dtype.type(1)),
        the_sqnr_check,
    ),
    "prepared by a kernel with the high nibble first": (
        "operands.pack_panels",
        nibbles_swapped,
        the_layout_check,
    ),
    "prepared with the high nibble first": (
        "prepared._lay",
        lambda lay: (
            lambda codes, target, fmt: nibbles_swapped(lambda c, f, t: lay(c, t, f))(codes, fmt, target)
        ),
        the_layout_check,
    ),
    "prepared with the scales of the column beside": (
        "prepared.lay_scales",
        shifted_scales,
        the_layout_check,
    ),
}
ASSEMBLY_MUTANTS = {
    "seeds one too high": ("matmul.rows_of", changed_rows(seeds=lambda x: x + np.int32(1)), the_tile_check),
    "an entry of the lookup of rows": ("operands.constants", changed, the_tile_check),
    "a turn that is left out": (
        "matmul.share",
        lambda make: lambda run, count, *rest, **options: make(run, count - 1, *rest, **options),
        the_row_check,
    ),
}
"""What the loops for any machine do not read, or do."""
KERNEL_CHECKS = sorted(
    {check for *_, check in [*KERNEL_MUTANTS.values(), *ASSEMBLY_MUTANTS.values()]},
    key=lambda check: check.__name__,
)


@pytest.mark.parametrize("check", KERNEL_CHECKS, ids=lambda check: check.__name__)
def test_the_kernels_pass_without_a_mutant(check):
    check()


def is_caught(monkeypatch, place, mutate, check):
    """Whether a check notices that "module.name" is something else."""
    module, name = place.split(".", 1)
    owner = importlib.import_module("mxfp.prepared" if module == "prepared" else f"mxfp.kernels.{module}")
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, mutate(getattr(owner, name)))
        try:
            check()
        except AssertionError:
            return True
    return False


if "avx512vnni" in isa.available():
    KERNEL_MUTANTS["an exponent field one too high"] = (
        "matmul.scale_fields",
        lambda make: changed(make, 127, 1 << 23),
        the_field_check,
    )


@pytest.mark.parametrize("name", KERNEL_MUTANTS)
def test_a_mutant_of_a_kernel_is_caught(monkeypatch, name):
    assert is_caught(monkeypatch, *KERNEL_MUTANTS[name]), f"nothing noticed: {name}"


def test_mutants_of_what_the_assembly_reads_are_caught_where_there_is_assembly(monkeypatch):
    for name in isa.available():
        for what, mutant in ASSEMBLY_MUTANTS.items():
            with isa.using(name):
                assert is_caught(monkeypatch, *mutant) == (name != "portable"), f"{name}: {what}"


def test_the_oracle_imports_nothing_of_the_package():
    from pathlib import Path

    text = Path(oracle.__file__).read_text(encoding="utf-8")
    assert "import mxfp" not in text
    assert "from mxfp" not in text
    assert "numpy" not in text.split('"""', 2)[2]
