# SPDX-License-Identifier: Apache-2.0
"""Other packages, run beside mxfp: bit for bit where they agree, a table with reasons where they do not."""

import platform
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gfloat
import gfloat.formats as gf
import gguf
import ml_dtypes
import numpy as np
import pytest
from gfloat import RoundMode
from gguf import GGMLQuantizationType as Ggml

import mxfp

DOCUMENT = Path(__file__).parents[1] / "docs" / "differences.md"
FORMATS = (mxfp.E2M1, mxfp.E2M3, mxfp.E3M2, mxfp.E4M3, mxfp.E5M2)
BLOCK_FORMATS = (
    mxfp.MXFP4,
    mxfp.MXFP6_E2M3,
    mxfp.MXFP6_E3M2,
    mxfp.MXFP8_E4M3,
    mxfp.MXFP8_E5M2,
    mxfp.MXINT8,
)
DTYPES = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)

ML = {
    "E2M1": np.dtype(ml_dtypes.float4_e2m1fn),
    "E2M3": np.dtype(ml_dtypes.float6_e2m3fn),
    "E3M2": np.dtype(ml_dtypes.float6_e3m2fn),
    "E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "E5M2": np.dtype(ml_dtypes.float8_e5m2),
}
ML_E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)
GF = {
    "E2M1": gf.format_info_ocp_e2m1,
    "E2M3": gf.format_info_ocp_e2m3,
    "E3M2": gf.format_info_ocp_e3m2,
    "E4M3": gf.format_info_ocp_e4m3,
    "E5M2": gf.format_info_ocp_e5m2,
    "INT8": gf.format_info_ocp_int8,
}
GF_BLOCK = {
    "MXFP4": gf.format_info_mxfp4_e2m1,
    "MXFP6_E2M3": gf.format_info_mxfp6_e2m3,
    "MXFP6_E3M2": gf.format_info_mxfp6_e3m2,
    "MXFP8_E4M3": gf.format_info_mxfp8_e4m3,
    "MXFP8_E5M2": gf.format_info_mxfp8_e5m2,
    "MXINT8": gf.format_info_mxint8,
}
GF_MODES = {
    "nearest_even": RoundMode.TiesToEven,
    "nearest_away": RoundMode.TiesToAway,
    "toward_zero": RoundMode.TowardZero,
}

# An element with no mantissa bits turns "even" into "the nearest power of two, halfway up": the cast of
# a number to E8M0. Its largest value is 4, so a block whose amax is 4 v asks for the code of v.
POWERS = mxfp.BlockFormat(
    "POWERS", mxfp.ElementFormat("E2M0", 2, 0, bias=1), mxfp.E8M0, 32, ("floor", "ceil", "even")
)


def bits(x):
    x = np.asarray(x)
    return x.view(f"u{x.dtype.itemsize}")


def all_patterns(dtype):
    """Every float16 or bfloat16 but NaN."""
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    return x[~np.isnan(x.astype(np.float32))]


def around_thresholds(fmt, dtype):
    """Every value and midpoint of a format in `dtype`, one ulp to each side, both signs, and extremes."""
    values = fmt.magnitudes
    edges = np.concatenate(
        [values, (values[1:] + values[:-1]) / 2, [fmt.max * 1.01, fmt.max * 2, 1e30, 2.0**-149]]
    ).astype(dtype)
    up, down = (np.nextafter(edges, dtype(end)) for end in (np.inf, -np.inf))
    x = np.concatenate([edges, up, down])
    return np.concatenate([x, -x])


def to_e8m0(x, rule):
    """Reals (n,) -> E8M0 codes, through the scale rules."""
    return mxfp.quantize(np.asarray(x, np.float64)[:, None] * 4, POWERS, scale_rule=rule).scales[:, 0]


def ml_encode(x, fmt):
    """Cast with ml_dtypes; an overflow is no warning here."""
    with np.errstate(all="ignore"):
        return np.asarray(x).astype(ML[fmt.name]).view(np.uint8)


def gf_encode(x, name, mode, **kw):
    rounded = gfloat.round_ndarray(GF[name], np.asarray(x, np.float64), mode, True, **kw)
    return gfloat.encode_ndarray(GF[name], rounded).astype(np.uint8)


def gf_encode_scalar(x, name, mode):
    return [int(gfloat.encode_float(GF[name], gfloat.round_float(GF[name], float(v), mode, True))) for v in x]


def gguf_block(values):
    """Up to 32 values, filled up with zeros -> (scale byte, 32 codes) as gguf writes them."""
    x = np.zeros(32, np.float32)
    x[: len(values)] = values
    with np.errstate(all="ignore"):
        data = gguf.quants.quantize(x, Ggml.MXFP4)
    return int(data[0]), mxfp.unpack(data[1:], mxfp.MXFP4, 32, order="halves").tolist()


def our_block(values, **kw):
    x = np.zeros(32, np.float32)
    x[: len(values)] = values
    q = mxfp.quantize(x, **kw)
    return int(q.scales[0]), q.codes.tolist()


def gguf_dequantize(data, kind):
    with np.errstate(all="ignore"):
        return gguf.quants.dequantize(np.asarray(data, np.uint8), kind).astype(np.float32)


# ---------------------------------------------------------------------------------------------------
# Where they agree: ml_dtypes


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fmt", FORMATS, ids=repr)
def test_every_code_decodes_as_in_ml_dtypes_but_for_the_sign_of_nan(fmt, dtype):
    codes = np.arange(fmt.code_count, dtype=np.uint8)
    with np.errstate(all="ignore"):
        theirs = codes.view(ML[fmt.name]).astype(dtype)
    ours = mxfp.decode(codes, fmt, dtype=dtype)
    number = ~np.isnan(fmt.values)
    assert np.array_equal(bits(ours)[number], bits(theirs)[number])
    assert np.isnan(theirs[~number].astype(np.float32)).all()
    assert np.isnan(ours[~number].astype(np.float32)).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_e8m0_code_decodes_as_in_ml_dtypes(dtype):
    codes = np.arange(256, dtype=np.uint8)
    ones = mxfp.encode(np.ones((256, 1)), mxfp.E2M1)
    ours = mxfp.BlockArray(ones, codes[:, None], mxfp.MXFP4).dequantize(dtype=dtype)[:, 0]
    with np.errstate(all="ignore"):
        theirs = codes.view(ML_E8M0).astype(dtype)
    assert np.array_equal(bits(ours), bits(theirs))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("fmt", FORMATS, ids=repr)
def test_every_16_bit_float_within_range_encodes_as_in_ml_dtypes(fmt, dtype):
    x = all_patterns(dtype)
    if not fmt.finite.all():  # beyond max ml_dtypes gives NaN or infinity: ML-05, ML-06
        x = x[np.abs(x.astype(np.float64)) <= fmt.max]
    assert np.array_equal(mxfp.encode(x, fmt), ml_encode(x, fmt))


@pytest.mark.parametrize("fmt", FORMATS, ids=repr)
def test_float32_around_every_threshold_encodes_as_in_ml_dtypes(fmt):
    x = around_thresholds(fmt, np.float32)
    if not fmt.finite.all():
        x = x[np.abs(x) <= np.float32(fmt.max)]
    assert np.array_equal(mxfp.encode(x, fmt), ml_encode(x, fmt))


@pytest.mark.parametrize("fmt", FORMATS, ids=repr)
def test_random_float32_patterns_encode_as_in_ml_dtypes(fmt):
    x = np.random.default_rng(20).integers(0, 1 << 32, 200_000, dtype=np.uint32).view(np.float32)
    x = x[~np.isnan(x)]
    if not fmt.finite.all():
        x = x[np.abs(x) <= np.float32(fmt.max)]
    assert x.size > 50_000
    assert np.array_equal(mxfp.encode(x, fmt), ml_encode(x, fmt))


@pytest.mark.parametrize("fmt", FORMATS, ids=repr)
def test_float64_that_float32_holds_encodes_as_in_ml_dtypes(fmt):
    x = around_thresholds(fmt, np.float32).astype(np.float64)
    x = x[np.abs(x) <= fmt.max]
    assert np.array_equal(mxfp.encode(x, fmt), ml_encode(x, fmt))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64])
@pytest.mark.parametrize("fmt", FORMATS, ids=repr)
def test_integers_encode_as_in_ml_dtypes(fmt, dtype):
    limit = min(int(fmt.max), np.iinfo(dtype).max)
    x = np.arange(max(-limit, np.iinfo(dtype).min), limit + 1).astype(dtype)
    assert np.array_equal(mxfp.encode(x, fmt), ml_encode(x, fmt))


def test_largest_e2m1_is_no_infinity_on_either_side():
    six = np.array([7, 15], np.uint8)
    assert not np.isinf(mxfp.decode(six, mxfp.E2M1)).any()
    assert not np.isinf(six.view(ML["E2M1"])).any()


def test_powers_of_two_cast_to_e8m0_as_in_ml_dtypes():
    x = np.ldexp(1.0, np.arange(-127, 128))
    for rule in ("floor", "ceil", "even"):
        codes = to_e8m0(x, rule)
        assert np.array_equal(codes, np.arange(255))
        assert np.array_equal(codes, x.astype(np.float32).astype(ML_E8M0).view(np.uint8))


def test_the_nearest_power_of_two_is_the_e8m0_cast_of_ml_dtypes():
    # 2**-126 and up (below: ML-09), below 1.5 * 2**127 (from there: ML-10)
    x = np.random.default_rng(21).integers(0x00800000, 0x7F400000, 100_000, dtype=np.uint32)
    halfway = (np.arange(1, 254, dtype=np.uint32) << 23) | 0x00400000
    x = np.concatenate([x, halfway - 1, halfway, halfway + 1]).astype(np.uint32).view(np.float32)
    assert np.array_equal(to_e8m0(x, "even"), x.astype(ML_E8M0).view(np.uint8))


# ---------------------------------------------------------------------------------------------------
# Where they agree: gfloat


@pytest.mark.parametrize("fmt", [*FORMATS, mxfp.INT8], ids=repr)
def test_every_code_decodes_as_in_gfloat(fmt):
    codes = np.arange(fmt.code_count)
    ours = mxfp.decode(codes, fmt, dtype=np.float64)
    scalar = np.array([gfloat.decode_float(GF[fmt.name], int(c)).fval for c in codes])
    assert np.array_equal(bits(ours), bits(scalar))
    assert np.array_equal(bits(ours), bits(gfloat.decode_ndarray(GF[fmt.name], codes)))


def test_every_e8m0_code_decodes_as_in_gfloat():
    theirs = gfloat.decode_ndarray(gf.format_info_ocp_e8m0, np.arange(256))
    assert np.array_equal(bits(mxfp.E8M0.values), bits(theirs))


def test_every_ue4m3_code_is_the_positive_half_of_e4m3_in_gfloat():
    theirs = gfloat.decode_ndarray(GF["E4M3"], np.arange(128))
    assert np.array_equal(bits(mxfp.UE4M3.values), bits(theirs))


@pytest.mark.parametrize("rounding", GF_MODES)
@pytest.mark.parametrize("fmt", [*FORMATS, mxfp.INT8], ids=repr)
def test_every_float16_rounds_as_in_gfloat(fmt, rounding):
    x = all_patterns(np.float16)
    theirs = gf_encode(x, fmt.name, GF_MODES[rounding])
    if fmt is mxfp.INT8:  # gfloat saturates to -2: GF-02
        theirs = np.where(theirs == 128, 129, theirs)
    assert np.array_equal(mxfp.encode(x, fmt, rounding=rounding), theirs)


@pytest.mark.parametrize("rounding", GF_MODES)
@pytest.mark.parametrize("fmt", [*FORMATS, mxfp.INT8], ids=repr)
def test_float64_around_every_threshold_rounds_as_in_gfloat(fmt, rounding):
    x = around_thresholds(fmt, np.float64)
    theirs = gf_encode(x, fmt.name, GF_MODES[rounding])
    ours = mxfp.encode(x, fmt, rounding=rounding)
    if fmt is mxfp.INT8:
        theirs = np.where(theirs == 128, 129, theirs)
    assert np.array_equal(ours, theirs)
    if rounding == "nearest_away":  # the scalar function is one ulp early: GF-01
        early = np.abs(x) == np.nextafter(fmt.smallest_subnormal / 2, 0)
        x, ours = x[~early], ours[~early]
    scalar = np.array(gf_encode_scalar(x, fmt.name, GF_MODES[rounding]))
    if fmt is mxfp.INT8:
        scalar = np.where(scalar == 128, 129, scalar)
    assert np.array_equal(ours, scalar)


def draw_of(key, index):
    """The draw of one element, written out from the contract in Python integers."""
    z = (key + (index + 1) * 0x9E3779B97F4A7C15) % 2**64
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) % 2**64
    return (z ^ z >> 31) >> 32


@pytest.mark.parametrize("fmt", FORMATS, ids=repr)
def test_stochastic_rounding_is_gfloats_fastest_with_the_same_draws(fmt):
    x = all_patterns(np.float16)[::3]
    key = int(np.random.default_rng(22).integers(0, 2**64, dtype=np.uint64))
    draws = np.array([2**32 - 1 - draw_of(key, i) for i in range(x.size)])
    theirs = gf_encode(x, fmt.name, RoundMode.StochasticFastest, srbits=draws, srnumbits=32)
    ours = mxfp.encode(x, fmt, rounding="stochastic", rng=np.random.default_rng(22))
    assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("rounding", GF_MODES)
@pytest.mark.parametrize("fmt", BLOCK_FORMATS, ids=repr)
def test_blocks_quantize_as_in_gfloat(fmt, rounding):
    rng = np.random.default_rng(23)
    info = GF_BLOCK[fmt.name]
    for k in range(12):
        x = rng.standard_normal(32) * 2.0 ** int(rng.integers(-140, 120))
        x = np.ldexp(rng.integers(-15, 16, 32), -3).astype(np.float64) if k % 3 == 2 else x  # many ties
        x = x.astype(np.float32).astype(np.float64)
        if fmt is mxfp.MXINT8:  # away from -2, where it saturates otherwise: GF-02
            x = np.maximum(x, -0.9 * np.abs(x).max())
        theirs = gfloat.quantize_block(info, x, gfloat.compute_scale_amax, GF_MODES[rounding])
        q = mxfp.quantize(x, fmt, rounding=rounding)
        assert np.array_equal(bits(q.dequantize(dtype=np.float64)), bits(theirs))
        assert mxfp.E8M0.values[q.scales[0]] == gfloat.compute_scale_amax(fmt.element.emax, x)


@pytest.mark.parametrize("fmt", BLOCK_FORMATS, ids=repr)
def test_blocks_of_extremes_quantize_as_in_gfloat(fmt):
    info = GF_BLOCK[fmt.name]
    for first in (0.0, -0.0, 2.0**-126, 2.0**-127, 1.5 * 2.0**-130, 2.0**-149, 3.4e38, 2.0**130, 1e308):
        x = np.zeros(32)
        x[0] = first
        theirs = list(
            gfloat.encode_block(
                info,
                gfloat.compute_scale_amax(fmt.element.emax, x),
                x / gfloat.compute_scale_amax(fmt.element.emax, x),
            )
        )
        q = mxfp.quantize(x, fmt)
        assert [int(q.scales[0]), *q.codes.tolist()] == [int(c) for c in theirs]


# ---------------------------------------------------------------------------------------------------
# Where they agree: gguf


def test_blocks_have_the_bytes_that_gguf_writes():
    x = np.random.default_rng(24).standard_normal((300, 32)).astype(np.float32)
    x *= np.ldexp(np.float32(1), np.random.default_rng(25).integers(-100, 100, (300, 1))).astype(np.float32)
    q = mxfp.quantize(x)  # no ties in here: GG-01
    codes = np.where(q.codes == 8, 0, q.codes)  # GG-02
    ours = np.concatenate([q.scales, mxfp.pack(codes, mxfp.MXFP4, order="halves")], axis=1)
    with np.errstate(all="ignore"):
        theirs = gguf.quants.quantize(x, Ggml.MXFP4)
    assert np.array_equal(ours, theirs)


def test_toward_zero_at_ties_alone_is_what_gguf_does():
    ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], np.float32)
    just_above = np.nextafter(ties, np.float32(np.inf))
    just_below = np.nextafter(ties, np.float32(0))
    for near, rounding in ((ties, "toward_zero"), (just_above, "nearest_even"), (just_below, "nearest_even")):
        for sign in (1, -1):
            x = np.concatenate([[6], sign * near]).astype(np.float32)
            scale, codes = our_block(x, rounding=rounding)
            assert gguf_block(x) == (scale, [0 if c == 8 else c for c in codes])


def test_every_scale_and_code_decodes_as_in_gguf():
    codes = np.tile(np.arange(16, dtype=np.uint8), (255, 2))
    scales = np.arange(255, dtype=np.uint8)[:, None]  # 255: GG-06
    data = np.concatenate([scales, mxfp.pack(codes, mxfp.MXFP4, order="halves")], axis=1)
    theirs = gguf_dequantize(data, Ggml.MXFP4)
    ours = mxfp.BlockArray(codes, scales, mxfp.MXFP4).dequantize()
    ours[:, 8::16] = 0.0  # code 8: GG-03
    assert np.array_equal(bits(ours), bits(theirs))


def test_every_nvfp4_scale_and_code_decodes_as_in_gguf():
    codes = np.tile(np.arange(16, dtype=np.uint8), (127, 4))
    scales = np.repeat(np.arange(127, dtype=np.uint8)[:, None], 4, axis=1)  # 127: GG-07
    data = np.concatenate([scales, mxfp.pack(codes, mxfp.NVFP4, order="halves")], axis=1)
    theirs = gguf_dequantize(data, Ggml.NVFP4)
    ours = mxfp.BlockArray(codes, scales, mxfp.NVFP4).dequantize()
    ours[:, 8::16] = 0.0
    assert np.array_equal(bits(ours), bits(theirs))


def test_block_and_byte_sizes_are_those_of_gguf():
    for fmt, kind, blocks in ((mxfp.MXFP4, Ggml.MXFP4, 1), (mxfp.NVFP4, Ggml.NVFP4, 4)):
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        assert elements == fmt.block * blocks
        assert size == blocks * (1 + fmt.block // 2)


# ---------------------------------------------------------------------------------------------------
# Where they differ


@dataclass(frozen=True)
class Difference:
    """One known difference: what was asked, what each answers, and who is right by what."""

    id: str
    package: str
    seen: str
    what: str
    given: str
    theirs: str
    ours: str
    right: str
    run_theirs: Callable[[], Any]
    run_ours: Callable[[], Any]
    x86_only: bool = False

    def row(self) -> str:
        """Its line in docs/differences.md."""
        cells = (self.id, f"{self.package} {self.seen}", self.what, self.given)
        return "| " + " | ".join((*cells, f"`{self.theirs}`", f"`{self.ours}`", self.right)) + " |"


def answer(call):
    """What a call answers, as text: plain data, or the name of its exception."""
    try:
        found = call()
    except (ValueError, gguf.quants.QuantError) as error:
        return type(error).__name__
    if isinstance(found, np.ndarray):
        found = found.tolist()
    return str(found)


def hexes(x):
    return [f"{int(b):08x}" for b in bits(np.asarray(x, np.float32)).ravel()]


def blocks_of(x, fmt=mxfp.MXFP4, **kw):
    q = mxfp.quantize(x, fmt, **kw)
    return int(q.scales[0]), int(q.codes[0])


def whole_block(x):
    q = mxfp.quantize(x)
    return int(q.scales[0]), q.codes.tolist()


def gf_block(first, dtype=np.float64):
    """Scale code and first element code of a block that is `first` and zeros."""
    x = np.zeros(32, dtype)
    x[0] = first
    scale = gfloat.compute_scale_amax(2.0, x)
    codes = gfloat.encode_block(GF_BLOCK["MXFP4"], scale, x / scale)
    return tuple(int(c) for c, _ in zip(codes, range(2), strict=False))


def gf_e8m0(x):
    info = gf.format_info_ocp_e8m0
    return [
        int(gfloat.encode_float(info, gfloat.round_float(info, v, RoundMode.TiesToEven, True))) for v in x
    ]


def first_of(block, *which):
    scale, codes = block
    return scale, [codes[i] for i in which]


TIES = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
BARELY = 2.0**-40
NEAR_TIES = (0.25 + BARELY, 2.5 + BARELY, 1.25 + BARELY, 0.75 - BARELY, 5 + BARELY, 3.5 - BARELY)
BELOW_65536 = float(np.nextafter(np.float32(65536), np.float32(0)))
BELOW_8 = float(np.nextafter(8.0, 0.0))
HALF_AND_MORE = {f.name: float(np.nextafter(f.smallest_subnormal / 2, 1.0)) for f in FORMATS}
NANS = np.array([0x7FC00000, 0xFFC00000], np.uint32).view(np.float32)
BELOW_BINADES = np.nextafter(np.ldexp(np.float32(1), np.arange(-125, 128)), np.float32(0)).astype(np.float32)


def wrong_binades():
    """For how many of the 253 float32 just below 2**k gguf's scale differs from the exact floor rule."""
    x = np.zeros((BELOW_BINADES.size, 32), np.float32)
    x[:, 0] = BELOW_BINADES
    with np.errstate(all="ignore"):
        theirs = gguf.quants.quantize(x, Ggml.MXFP4)[:, 0].astype(int)
    exact = np.frexp(BELOW_BINADES)[1] - 1 - 2 + 127
    return int((theirs != np.maximum(exact, 0)).sum())


def our_wrong_binades():
    exact = np.frexp(BELOW_BINADES)[1] - 1 - 2 + 127
    return int((mxfp.quantize(BELOW_BINADES[:, None]).scales[:, 0] != np.maximum(exact, 0)).sum())


def nvfp4_super_block(scale, code):
    data = np.zeros((1, 36), np.uint8)
    data[0, :4] = scale
    data[0, 4:] = code | code << 4
    return gguf_dequantize(data, Ggml.NVFP4)[0, 0]


def our_nvfp4(scale, code):
    codes, scales = np.full(16, code, np.uint8), np.full(1, scale, np.uint8)
    return mxfp.BlockArray(codes, scales, mxfp.NVFP4).dequantize()[0]


def our_ue4m3(x):
    amax = 6.0 * np.asarray(x, np.float64)
    return mxfp.quantize(amax[:, None], mxfp.NVFP4, tensor_scale=1.0).scales[:, 0]


def gguf_ue4m3(x):
    return gguf.quants.NVFP4.fp32_to_ue4m3(np.asarray(x, np.float32)).tolist()


def mxfp4_values(scale, code):
    block = mxfp.pack(np.full(32, code, np.uint8), mxfp.MXFP4, order="halves")
    return gguf_dequantize(np.concatenate([[scale], block])[None], Ggml.MXFP4)[0, 0]


def our_mxfp4_values(scale, code):
    codes, scales = np.full(32, code, np.uint8), np.full(1, scale, np.uint8)
    return mxfp.BlockArray(codes, scales, mxfp.MXFP4).dequantize()[0]


KNOWN_DIFFERENCES = (
    # --- ml_dtypes
    Difference(
        "ML-01",
        "ml_dtypes",
        "0.6.0",
        "float64 → E2M1 is rounded to float32 first, which makes ties",
        "0.25, 2.5, 1.25, 5 plus 2^−40 and 0.75, 3.5 minus 2^−40",
        "[0, 4, 2, 2, 6, 6]",
        "[1, 5, 3, 1, 7, 5]",
        "mxfp: one rounding (contract §2; MX §6.3 rounds V/X)",
        lambda: ml_encode(np.array(NEAR_TIES), mxfp.E2M1),
        lambda: mxfp.encode(NEAR_TIES, mxfp.E2M1),
    ),
    Difference(
        "ML-02",
        "ml_dtypes",
        "0.6.0",
        "float64 → E2M1, E2M3, E3M2, E4M3, E5M2 is rounded twice",
        "the float64 just above half of each format's smallest subnormal",
        "[0, 0, 0, 0, 0]",
        "[1, 1, 1, 1, 1]",
        "mxfp: one rounding (contract §2)",
        lambda: [int(ml_encode(np.array(HALF_AND_MORE[f.name]), f)) for f in FORMATS],
        lambda: [int(mxfp.encode(HALF_AND_MORE[f.name], f)) for f in FORMATS],
    ),
    Difference(
        "ML-03",
        "ml_dtypes",
        "0.6.0",
        "NaN → E2M1, E2M3, E3M2 becomes a zero, of the opposite sign",
        "+NaN and −NaN, each format",
        "[8, 0, 32, 0, 32, 0]",
        "ValueError",
        "mxfp: a format without NaN (MX §5.3) refuses it (contract §1); silence loses it",
        lambda: [int(c) for f in FORMATS[:3] for c in ml_encode(NANS, f)],
        lambda: [int(c) for f in FORMATS[:3] for c in mxfp.encode(NANS, f)],
    ),
    Difference(
        "ML-04",
        "ml_dtypes",
        "0.6.0",
        "NaN → E4M3, E5M2 keeps its sign",
        "+NaN and −NaN, each format",
        "[127, 255, 126, 254]",
        "[127, 127, 126, 126]",
        "both: MX leaves the NaN code open; mxfp has one canonical NaN (contract §1)",
        lambda: [int(c) for f in FORMATS[3:] for c in ml_encode(NANS, f)],
        lambda: [int(c) for f in FORMATS[3:] for c in mxfp.encode(NANS, f)],
    ),
    Difference(
        "ML-05",
        "ml_dtypes",
        "0.6.0",
        "float → E4M3 overflows to NaN",
        "464, 465, 1000, −∞",
        "[126, 127, 127, 255]",
        "[126, 126, 126, 254]",
        "mxfp, for quantizing: MX §6.3 saturates; as a cast, OFP8 knows both modes",
        lambda: ml_encode(np.array([464, 465, 1000, -np.inf], np.float32), mxfp.E4M3),
        lambda: mxfp.encode([464, 465, 1000, -np.inf], mxfp.E4M3),
    ),
    Difference(
        "ML-06",
        "ml_dtypes",
        "0.6.0",
        "float → E5M2 overflows to infinity",
        "61439, 61440, 1e9, −∞",
        "[123, 124, 124, 252]",
        "[123, 123, 123, 251]",
        "mxfp, for quantizing: MX §6.3 saturates; as a cast, OFP8 knows both modes",
        lambda: ml_encode(np.array([61439, 61440, 1e9, -np.inf], np.float32), mxfp.E5M2),
        lambda: mxfp.encode([61439, 61440, 1e9, -np.inf], mxfp.E5M2),
    ),
    Difference(
        "ML-07",
        "ml_dtypes",
        "0.6.0",
        "NaN codes with a sign decode to a negative NaN",
        "float32 bits of E4M3 255 and E5M2 253, 254, 255",
        "['ffc00000', 'ffc00000', 'ffc00000', 'ffc00000']",
        "['7fc00000', '7fc00000', '7fc00000', '7fc00000']",
        "both: a NaN's sign has no meaning (IEEE 754 §6.3); mxfp's is canonical (contract §3)",
        lambda: (
            hexes(np.array([255], np.uint8).view(ML["E4M3"]).astype(np.float32))
            + hexes(np.array([253, 254, 255], np.uint8).view(ML["E5M2"]).astype(np.float32))
        ),
        lambda: hexes(mxfp.decode([255], mxfp.E4M3)) + hexes(mxfp.decode([253, 254, 255], mxfp.E5M2)),
    ),
    Difference(
        "ML-08",
        "ml_dtypes",
        "0.6.0",
        "float32 → E8M0 of zero is NaN",
        "0 as a block's scale",
        "[255]",
        "[0]",
        "mxfp, for a scale: a block of zeros must not become NaN (contract §2); as a cast it is a choice",
        lambda: np.zeros(1, np.float32).astype(ML_E8M0).view(np.uint8),
        lambda: to_e8m0([0.0], "floor"),
    ),
    Difference(
        "ML-09",
        "ml_dtypes",
        "0.6.0",
        "float32 → E8M0 rounds up between 2^−127 and 2^−126, instead of to the nearest",
        "2^−127 · 1, 1.25, 1.5",
        "[0, 1, 1]",
        "[0, 0, 1]",
        "mxfp: nearest is nearest also where float32 is subnormal (MX §5.4.1: code 0 is 2^−127)",
        lambda: (np.array([1, 1.25, 1.5]) * 2.0**-127).astype(np.float32).astype(ML_E8M0).view(np.uint8),
        lambda: to_e8m0(np.array([1, 1.25, 1.5]) * 2.0**-127, "even"),
    ),
    Difference(
        "ML-10",
        "ml_dtypes",
        "0.6.0",
        "float32 → E8M0 from 1.5·2^127 on is NaN",
        "1.5·2^127",
        "[255]",
        "[254]",
        "mxfp, for a scale: clamped to 2^127 (contract §2); as a cast it is a choice",
        lambda: np.array([1.5 * 2.0**127], np.float32).astype(ML_E8M0).view(np.uint8),
        lambda: to_e8m0([1.5 * 2.0**127], "even"),
    ),
    Difference(
        "ML-11",
        "ml_dtypes",
        "0.6.0",
        "the E8M0 cast rounds to the nearest, which is not the scale rule of MX",
        "1.25, 1.5, 1.75",
        "[127, 128, 128]",
        "[127, 127, 127]",
        "MX §6.3 takes the largest power of two not above; the cast is right as a cast",
        lambda: np.array([1.25, 1.5, 1.75], np.float32).astype(ML_E8M0).view(np.uint8),
        lambda: to_e8m0([1.25, 1.5, 1.75], "floor"),
    ),
    Difference(
        "ML-12",
        "ml_dtypes",
        "0.6.0",
        "stray upper bits in a byte of float4_e2m1fn change the value",
        "byte 0x12 read as one code",
        "[-1.0]",
        "ValueError",
        "mxfp: codes are 0 … 15; a packed byte in their place is a mistake to report",
        lambda: np.array([0x12], np.uint8).view(ML["E2M1"]).astype(np.float32),
        lambda: mxfp.decode(np.array([0x12], np.uint8), mxfp.E2M1),
    ),
    # --- gfloat
    Difference(
        "GF-01",
        "gfloat",
        "0.5.2",
        "round_float with TiesToAway (delta + 0.5 ≥ 1 in floating point) is one ulp early",
        "nextafter(0.25, 0) → E2M1, scalar; its array function gives 0",
        "[1]",
        "[0]",
        "mxfp: below the midpoint is below it (contract §2)",
        lambda: gf_encode_scalar([np.nextafter(0.25, 0)], "E2M1", RoundMode.TiesToAway),
        lambda: mxfp.encode([np.nextafter(0.25, 0)], mxfp.E2M1, rounding="nearest_away"),
    ),
    Difference(
        "GF-02",
        "gfloat",
        "0.5.2",
        "INT8 saturates to −2, code 0x80",
        "−2, −1.9921875, −100",
        "[128, 128, 128]",
        "[129, 129, 129]",
        "both: −2 exists (MX §5.3.4); mxfp decodes it and never makes it (contract §1)",
        lambda: gf_encode([-2, -1.9921875, -100], "INT8", RoundMode.TiesToEven),
        lambda: mxfp.encode([-2, -1.9921875, -100], mxfp.INT8),
    ),
    Difference(
        "GF-03",
        "gfloat",
        "0.5.2",
        "NaN → E4M3, E5M2 is the last code, which is negative (E5M2: another NaN)",
        "NaN, each format",
        "[255, 255]",
        "[127, 126]",
        "both: MX leaves the NaN code open; mxfp has one canonical NaN (contract §1)",
        lambda: [int(gf_encode([np.nan], n, RoundMode.TiesToEven)[0]) for n in ("E4M3", "E5M2")],
        lambda: [int(mxfp.encode(np.nan, f)) for f in (mxfp.E4M3, mxfp.E5M2)],
    ),
    Difference(
        "GF-04",
        "gfloat",
        "0.5.2",
        "→ E8M0 sends ties to the even code, so halfway goes down or up by the exponent's parity",
        "1.5, 3, 6, 12",
        "[128, 128, 130, 130]",
        "[128, 129, 130, 131]",
        "both: no clause; mxfp (and ml_dtypes) treat every binade alike",
        lambda: gf_e8m0([1.5, 3.0, 6.0, 12.0]),
        lambda: to_e8m0([1.5, 3.0, 6.0, 12.0], "even"),
    ),
    Difference(
        "GF-05",
        "gfloat",
        "0.5.2",
        "→ E8M0 below the smallest scale is NaN, even with saturation",
        "2^−128, 2^−149, 0",
        "[255, 255, 255]",
        "[0, 0, 0]",
        "mxfp: finite data never makes a NaN scale (contract §2)",
        lambda: gf_e8m0([2.0**-128, 2.0**-149, 0.0]),
        lambda: to_e8m0([2.0**-128, 2.0**-149, 0.0], "floor"),
    ),
    Difference(
        "GF-06",
        "gfloat",
        "0.5.2",
        "the scale from floor(log2 amax) is one binade high just below a power of two",
        "nextafter(8, 0) in a block",
        "(128, 6)",
        "(127, 7)",
        "mxfp: MX §6.3, the largest power of two not above amax; log2 must be exact",
        lambda: gf_block(BELOW_8),
        lambda: blocks_of([BELOW_8]),
    ),
    Difference(
        "GF-07",
        "gfloat",
        "0.5.2",
        "the same in float32, where log2 is coarser still",
        "65535.996 in a block, float32",
        "(141, 6)",
        "(140, 7)",
        "mxfp: MX §6.3",
        lambda: gf_block(BELOW_65536, np.float32),
        lambda: blocks_of([np.float32(BELOW_65536)]),
    ),
    Difference(
        "GF-08",
        "gfloat",
        "0.5.2",
        "an infinity in a block becomes the largest number there is",
        "∞ in a block of zeros",
        "(254, 7)",
        "(255, 0)",
        "both: §6.3 leaves it open; mxfp's default makes the block NaN, `nonfinite=` chooses",
        lambda: gf_block(np.inf),
        lambda: blocks_of([np.inf]),
    ),
    Difference(
        "GF-09",
        "gfloat",
        "0.5.2",
        "a NaN in a block is an error",
        "NaN in a block of zeros",
        "ValueError",
        "(255, 0)",
        'both: §6.3 leaves it open; mxfp\'s default makes the block NaN, `nonfinite="raise"` is theirs',
        lambda: gf_block(np.nan),
        lambda: blocks_of([np.nan]),
    ),
    # --- gguf
    Difference(
        "GG-01",
        "gguf",
        "0.19.0",
        "ties go toward zero (the first nearest entry of its table)",
        "6 and the seven midpoints",
        "[7, 0, 1, 2, 3, 4, 5, 6]",
        "[7, 0, 2, 2, 4, 4, 6, 6]",
        "both: a rounding is a choice with a name; mxfp's default is nearest even (contract §2)",
        lambda: gguf_block((6, *TIES))[1][:8],
        lambda: our_block((6, *TIES))[1][:8],
    ),
    Difference(
        "GG-02",
        "gguf",
        "0.19.0",
        "negative numbers that round to zero, and −0, lose their sign",
        "6, −0.1, −0.25, −0",
        "[7, 0, 0, 0]",
        "[7, 8, 8, 8]",
        "mxfp: E2M1 has −0 (MX §5.3.3) and IEEE 754 §6.3 keeps the sign; ggml never writes code 8",
        lambda: gguf_block((6, -0.1, -0.25, -0.0))[1][:4],
        lambda: our_block((6, -0.1, -0.25, -0.0))[1][:4],
    ),
    Difference(
        "GG-03",
        "gguf",
        "0.19.0",
        "code 8 decodes to +0",
        "float32 bits of code 8 at scale 127",
        "['00000000']",
        "['80000000']",
        "mxfp: MX §5.3.3, code 8 is −0",
        lambda: hexes(mxfp4_values(127, 8)),
        lambda: hexes(our_mxfp4_values(127, 8)),
    ),
    Difference(
        "GG-04",
        "gguf",
        "0.19.0",
        "the scale from floor(log2 amax) in float32 is one binade high just below a power of two",
        "65535.996 in a block",
        "(141, [6])",
        "(140, [7])",
        "mxfp: MX §6.3, the largest power of two not above amax; log2 must be exact",
        lambda: first_of(gguf_block([BELOW_65536]), 0),
        lambda: first_of(our_block([BELOW_65536]), 0),
    ),
    Difference(
        "GG-05",
        "gguf",
        "0.19.0",
        "… in nearly every binade",
        "how many of the 253 float32 just below 2^−125 … 2^127 have a wrong scale",
        "248",
        "0",
        "mxfp: MX §6.3",
        wrong_binades,
        our_wrong_binades,
    ),
    Difference(
        "GG-06",
        "gguf",
        "0.19.0",
        "scale code 255 decodes to 2^128",
        "float32 bits of code 1 (0.5) at scale 255",
        "['7f000000']",
        "['7fc00000']",
        "mxfp: MX §5.4.1, code 255 is NaN",
        lambda: hexes(mxfp4_values(255, 1)),
        lambda: hexes(our_mxfp4_values(255, 1)),
    ),
    Difference(
        "GG-07",
        "gguf",
        "0.19.0",
        "NVFP4: scale code 127 decodes to 0",
        "float32 bits of code 2 (1.0) at scale 127",
        "['00000000']",
        "['7fc00000']",
        "mxfp: E4M3 0x7F is NaN (OFP8; NVFP4's scale is its positive half)",
        lambda: hexes(nvfp4_super_block(127, 2)),
        lambda: hexes(our_nvfp4(127, 2)),
    ),
    Difference(
        "GG-08",
        "gguf",
        "0.19.0",
        "NVFP4: scale codes 128 … 255 decode as if their top bit were 0 (255 to 480)",
        "code 2 (1.0) at scales 184 and 255",
        "[1.0, 480.0]",
        "ValueError",
        "mxfp: the scale is unsigned with 7 bits; such codes do not exist (contract §1)",
        lambda: [float(nvfp4_super_block(184, 2)), float(nvfp4_super_block(255, 2))],
        lambda: [float(our_nvfp4(184, 2)), float(our_nvfp4(255, 2))],
    ),
    Difference(
        "GG-09",
        "gguf",
        "0.19.0",
        "fp32_to_ue4m3 rounds ties up",
        "2.125, 2.375, 1.0625",
        "[65, 66, 57]",
        "[64, 66, 56]",
        "mxfp: ties to even (contract §2, NVFP4; NVIDIA's cast)",
        lambda: gguf_ue4m3([2.125, 2.375, 1.0625]),
        lambda: our_ue4m3([2.125, 2.375, 1.0625]),
    ),
    Difference(
        "GG-10",
        "gguf",
        "0.19.0",
        "fp32_to_ue4m3 jumps to 448 from 248 on: the last binade is lost",
        "240, 247, 248, 256, 384",
        "[119, 119, 126, 126, 126]",
        "[119, 119, 120, 120, 124]",
        "mxfp: E4M3 holds 256 … 448 (OFP8); only 0x7F is NaN",
        lambda: gguf_ue4m3([240, 247, 248, 256, 384]),
        lambda: our_ue4m3([240, 247, 248, 256, 384]),
    ),
    Difference(
        "GG-11",
        "gguf",
        "0.19.0",
        "fp32_to_ue4m3 of a tiny positive scale is 0",
        "2^−11",
        "[0]",
        "[1]",
        "mxfp, for a scale: clamped to 2^−9, so that a block that is not zero has one (contract §2)",
        lambda: gguf_ue4m3([2.0**-11]),
        lambda: our_ue4m3([2.0**-11]),
    ),
    Difference(
        "GG-12",
        "gguf",
        "0.19.0",
        "a row that is no multiple of 32 is refused",
        "3 elements",
        "QuantError",
        "(127, [0, 12, 7])",
        "both: a GGUF row is whole blocks; contract §2 gives the partial block a meaning",
        lambda: gguf.quants.quantize(np.array([0.1, -2.3, 7.0], np.float32), Ggml.MXFP4),
        lambda: whole_block([0.1, -2.3, 7.0]),
    ),
    Difference(
        "GG-13",
        "gguf",
        "0.19.0",
        "blocks below 2^−125: the scale code wraps (a negative float cast to uint8), and all is lost",
        "2^−126 in a block; 2^−149 in a block",
        "[(255, [0]), (232, [0])]",
        "[(0, [4]), (0, [0])]",
        "mxfp: the scale is clamped to code 0 (MX §5.4.1); seen on x86-64, the C cast is undefined",
        lambda: [first_of(gguf_block([v]), 0) for v in (2.0**-126, 2.0**-149)],
        lambda: [first_of(our_block([v]), 0) for v in (2.0**-126, 2.0**-149)],
        x86_only=True,
    ),
    Difference(
        "GG-14",
        "gguf",
        "0.19.0",
        "an infinity or a NaN makes its block all zeros, silently",
        "∞, 1; NaN, 1",
        "[(0, [0, 0]), (0, [0, 0])]",
        "[(255, [0, 0]), (255, [0, 0])]",
        "mxfp: §6.3 leaves the value open, but losing the block without a word helps nobody; on x86-64",
        lambda: [first_of(gguf_block([v, 1.0]), 0, 1) for v in (np.inf, np.nan)],
        lambda: [first_of(our_block([v, 1.0]), 0, 1) for v in (np.inf, np.nan)],
        x86_only=True,
    ),
)


def numbers(text):
    return tuple(int(n) for n in re.findall(r"\d+", text)[:3])


@pytest.mark.parametrize("known", KNOWN_DIFFERENCES, ids=lambda d: d.id)
def test_known_difference_is_still_there(known):
    if known.x86_only and platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("their answer is an undefined conversion, recorded on x86-64")
    installed = version(known.package)
    newer = numbers(installed) > numbers(known.seen)
    advice = (
        f"{known.id}: {known.package} {installed} is {'newer than' if newer else 'not'} the {known.seen} of "
        "the table and answers otherwise: update the table (KNOWN_DIFFERENCES and docs/differences.md)"
    )
    assert answer(known.run_theirs) == known.theirs, advice
    assert answer(known.run_ours) == known.ours, f"{known.id}: mxfp itself answers otherwise"


def test_a_known_difference_is_a_difference():
    assert [d.id for d in KNOWN_DIFFERENCES if d.theirs == d.ours] == []
    ids = [d.id for d in KNOWN_DIFFERENCES]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("known", KNOWN_DIFFERENCES, ids=lambda d: d.id)
def test_known_difference_is_in_the_document(known):
    rows = {row.split("|")[1].strip(): row for row in DOCUMENT.read_text("utf-8").splitlines() if "|" in row}
    assert rows.get(known.id) == known.row()


def test_the_document_has_no_other_rows_that_were_run():
    found = re.findall(r"^\| ((?:ML|GF|GG)-\d+) \|", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    assert found == [d.id for d in KNOWN_DIFFERENCES]


def test_mxfp_with_a_name_reproduces_the_differences_that_are_choices():
    # GG-01: toward zero at ties alone has no name; the others do.
    assert blocks_of([np.inf], nonfinite="saturate")[1] == 7  # GF-08
    with pytest.raises(ValueError, match="nonfinite is 'raise'"):  # GF-09
        mxfp.quantize([np.nan], nonfinite="raise")
