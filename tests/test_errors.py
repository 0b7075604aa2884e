# SPDX-License-Identifier: Apache-2.0
"""Wrong calls: each is refused at mxfp's own door, in one line, with the numbers in hand."""

import traceback
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import mxfp
from mxfp.names import accumulator as parse
from mxfp.packing import packed_length

PACKAGE = Path(mxfp.__file__).parent

V = np.ones(64, np.float32)
X = np.ones((4, 64), np.float32)
U8 = np.uint8
VQ = mxfp.quantize(V)
XQ = mxfp.quantize(X)
XQ0 = mxfp.quantize(X, axis=0)
VN = mxfp.quantize(V, mxfp.NVFP4)
COLUMNS = mxfp.quantize(np.ones((64, 3)), axis=0)
SIXES = np.full(64, 6.0)
E5M2_MAX = mxfp.quantize(np.full((1, 32), 57344.0), mxfp.MXFP8_E5M2)
LATE = mxfp.quantize(np.concatenate([np.zeros(48), np.full(16, 6.0)]))


def with_one(value, *index, shape=(64,)):
    x = np.ones(shape, np.float32)
    x[index] = value
    return x


def third_of_four():
    """(2, 2, 64): only the second block of [1, 1] is not zero."""
    x = np.zeros((2, 2, 64))
    x[1, 1, 32:] = 6
    return mxfp.quantize(x)


def last_of(*shape):
    """Zeros, and sixes in the last row."""
    x = np.zeros(shape)
    x[(-1,) * (len(shape) - 1)] = 6
    return mxfp.quantize(x)


def block(codes, scales, fmt=mxfp.MXFP4, **kw):
    """A BlockArray of zeros of these shapes."""
    return mxfp.BlockArray(np.zeros(codes, U8), np.zeros(scales, U8), fmt, **kw)


def nvfp4(tensor_scale):
    return mxfp.quantize(X, mxfp.NVFP4, tensor_scale=tensor_scale)


def rng():
    return np.random.default_rng(1)


DTYPES = "float16, bfloat16, float32, float64 or integers"
OUT_DTYPES = "float16, bfloat16, float32 or float64"
ROUNDINGS = "'nearest_even', 'nearest_away', 'toward_zero', 'stochastic'"
TENSOR_SCALE = "tensor scale of NVFP4 is a positive finite float32"

# (what is wrong, the call, the exact exception, what its message holds)
WRONG_CALLS = [
    # --- input dtypes
    ("complex input", lambda: mxfp.quantize(V.astype(np.complex64)), TypeError, [DTYPES, "complex64"]),
    ("bool input", lambda: mxfp.quantize(V > 0), TypeError, [DTYPES, "bool"]),
    ("object input", lambda: mxfp.quantize(V.astype(object)), TypeError, [DTYPES, "object"]),
    ("string input", lambda: mxfp.quantize("abc"), TypeError, [DTYPES, "<U3"]),
    ("list of strings", lambda: mxfp.quantize(["1", "2"]), TypeError, [DTYPES, "<U1"]),
    ("bytes input", lambda: mxfp.quantize(b"abc"), TypeError, [DTYPES, "S3"]),
    (
        "datetime input",
        lambda: mxfp.quantize(V.astype("datetime64[s]")),
        TypeError,
        [DTYPES, "datetime64[s]"],
    ),
    ("timedelta input", lambda: mxfp.quantize(V.astype("timedelta64[s]")), TypeError, [DTYPES, "timedelta"]),
    ("structured input", lambda: mxfp.quantize(np.zeros(3, [("a", "f4")])), TypeError, [DTYPES, "'a'"]),
    ("masked input", lambda: mxfp.quantize(np.ma.masked_array(V, V > 0)), TypeError, ["x is a masked array"]),
    ("None for input", lambda: mxfp.quantize(None), TypeError, [DTYPES, "object"]),
    ("a dict for input", lambda: mxfp.quantize({"a": 1}), TypeError, [DTYPES, "object"]),
    ("integers beyond 64 bits", lambda: mxfp.quantize([10**30]), TypeError, [DTYPES, "object"]),
    ("ragged input", lambda: mxfp.quantize([[1, 2], [3]]), ValueError, ["x "]),
    ("float8 input", lambda: mxfp.quantize(V.astype(ml_dtypes.float8_e4m3fn)), TypeError, ["float8_e4m3fn"]),
    ("float4 input", lambda: mxfp.quantize(V.astype(ml_dtypes.float4_e2m1fn)), TypeError, ["float4_e2m1fn"]),
    ("int4 input", lambda: mxfp.quantize(V.astype(ml_dtypes.int4)), TypeError, [DTYPES, "int4"]),
    ("a scalar to quantize", lambda: mxfp.quantize(1.0), ValueError, ["no axis", "x must", "one dimension"]),
    ("complex to encode", lambda: mxfp.encode(1j, mxfp.E2M1), TypeError, [DTYPES, "complex128"]),
    ("bool to encode", lambda: mxfp.encode([True], mxfp.E2M1), TypeError, [DTYPES, "bool"]),
    ("None to encode", lambda: mxfp.encode(None, mxfp.E2M1), TypeError, [DTYPES, "object"]),
    (
        "masked to encode",
        lambda: mxfp.encode(np.ma.zeros(3), mxfp.E2M1),
        TypeError,
        ["masked array", "filled"],
    ),
    ("ragged to encode", lambda: mxfp.encode([[1], [1, 2]], mxfp.E2M1), ValueError, ["x "]),
    # --- NaN and infinity
    (
        "NaN where the format has none",
        lambda: mxfp.encode(with_one(np.nan, 5), mxfp.E2M1),
        ValueError,
        ["E2M1 has no NaN", "index (5,)"],
    ),
    (
        "NaN for INT8, in a matrix",
        lambda: mxfp.encode(with_one(np.nan, 2, 7, shape=(4, 8)), mxfp.INT8),
        ValueError,
        ["INT8 has no NaN", "index (2, 7)"],
    ),
    (
        "NaN under raise",
        lambda: mxfp.quantize(with_one(np.nan, 5), nonfinite="raise"),
        ValueError,
        ["nan", "index (5,)", "'raise'"],
    ),
    (
        "infinity under raise",
        lambda: mxfp.quantize(with_one(-np.inf, 2, 3, shape=(4, 64)), nonfinite="raise"),
        ValueError,
        ["-inf", "index (2, 3)", "'raise'"],
    ),
    (
        "infinity under raise, blocks along axis 0",
        lambda: mxfp.quantize(with_one(np.inf, 2, 3, shape=(4, 64)), axis=0, nonfinite="raise"),
        ValueError,
        ["inf", "index (2, 3)", "'raise'"],
    ),
    # --- axis
    ("axis beyond the last", lambda: mxfp.quantize(X, axis=5), ValueError, ["axis 5", "x of 2 dimensions"]),
    ("axis below the first", lambda: mxfp.quantize(X, axis=-3), ValueError, ["axis -3", "2 dimensions"]),
    ("axis beyond int64", lambda: mxfp.quantize(X, axis=10**20), ValueError, [f"axis {10**20}", "2 dim"]),
    ("axis None", lambda: mxfp.quantize(X, axis=None), TypeError, ["axis must be an integer", "None"]),
    ("axis float", lambda: mxfp.quantize(X, axis=1.0), TypeError, ["axis must be an integer", "1.0"]),
    ("axis bool", lambda: mxfp.quantize(X, axis=True), TypeError, ["axis must be an integer", "True"]),
    ("axis numpy bool", lambda: mxfp.quantize(X, axis=np.True_), TypeError, ["axis must be", "True"]),
    ("axis string", lambda: mxfp.quantize(X, axis="last"), TypeError, ["axis must be", "'last'"]),
    ("axis tuple", lambda: mxfp.quantize(X, axis=(0, 1)), TypeError, ["axis must be", "(0, 1)"]),
    # --- formats
    ("format by name", lambda: mxfp.quantize(X, "MXFP4"), TypeError, ["block format", "'MXFP4'"]),
    ("element format to quantize", lambda: mxfp.quantize(X, mxfp.E2M1), TypeError, ["block format", "E2M1"]),
    ("format None", lambda: mxfp.quantize(X, None), TypeError, ["block format", "None"]),
    ("encode by name", lambda: mxfp.encode(V, "E2M1"), TypeError, ["element or block format", "'E2M1'"]),
    ("encode to a scale", lambda: mxfp.encode(V, mxfp.E8M0), TypeError, ["element or block", "ScaleFormat"]),
    ("decode by name", lambda: mxfp.decode([1], "E2M1"), TypeError, ["element or block format", "'E2M1'"]),
    ("pack by name", lambda: mxfp.pack([1], "E2M1"), TypeError, ["element or block format", "'E2M1'"]),
    ("unpack by name", lambda: mxfp.unpack(b"a", "E2M1", 2), TypeError, ["element or block", "'E2M1'"]),
    ("integers of no format", lambda: mxfp.to_integers([1], None), TypeError, ["element or block", "None"]),
    (
        "an element format of 17 bits",
        lambda: mxfp.ElementFormat("E8M8", 8, 8, bias=1),
        ValueError,
        ["E8M8", "at most 8 bits", "8 + 8"],
    ),
    (
        "an element format with no exponent",
        lambda: mxfp.ElementFormat("M1", 0, 1, bias=1),
        ValueError,
        ["M1", "1 or more exponent bits", "0 + 1"],
    ),
    (
        "an element format with a float field",
        lambda: mxfp.ElementFormat("E2M1", 2.0, 1, bias=1),
        TypeError,
        ["E2M1", "2.0"],
    ),
    (
        "a block format with blocks of 0",
        lambda: mxfp.BlockFormat("Empty", mxfp.E2M1, mxfp.E8M0, 0, ("floor",)),
        ValueError,
        ["Empty", "block", "0"],
    ),
    (
        "a block format with element and scale swapped",
        lambda: mxfp.BlockFormat("Swapped", mxfp.E8M0, mxfp.E2M1, 32, ("floor",)),
        TypeError,
        ["Swapped", "E8M0"],
    ),
    (
        "a block format without rules",
        lambda: mxfp.BlockFormat("Ruleless", mxfp.E2M1, mxfp.E8M0, 32, ()),
        ValueError,
        ["Ruleless", "scale_rules"],
    ),
    (
        "a power-of-two scale with the rule for significands",
        lambda: mxfp.BlockFormat("Odd", mxfp.E2M1, mxfp.E8M0, 32, ("nearest",)),
        ValueError,
        ["Odd", "'nearest'", "E8M0"],
    ),
    (
        "a scale with significands and a power-of-two rule",
        lambda: mxfp.BlockFormat("Odd", mxfp.E2M1, mxfp.UE4M3, 16, ("floor",)),
        ValueError,
        ["Odd", "'floor'", "UE4M3"],
    ),
    # --- names
    ("unknown rule", lambda: mxfp.quantize(X, scale_rule="floo"), ValueError, ["MXFP4", "'floor'", "'floo'"]),
    ("rule in capitals", lambda: mxfp.quantize(X, scale_rule="FLOOR"), ValueError, ["'search'", "'FLOOR'"]),
    ("rule as a number", lambda: mxfp.quantize(X, scale_rule=1), ValueError, ["'floor'", "got 1"]),
    ("rule in a list", lambda: mxfp.quantize(X, scale_rule=["floor"]), ValueError, ["got ['floor']"]),
    (
        "rule in an array",
        lambda: mxfp.quantize(X, scale_rule=np.array(["floor"])),
        ValueError,
        ["scale rules", "array"],
    ),
    (
        "an MX rule for NVFP4",
        lambda: mxfp.quantize(X, mxfp.NVFP4, scale_rule="floor"),
        ValueError,
        ["NVFP4", "'nearest', 'rceil'", "'floor'"],
    ),
    (
        "NVFP4's rule for MX",
        lambda: mxfp.quantize(X, scale_rule="nearest"),
        ValueError,
        ["MXFP4", "'floor', 'ceil', 'rceil', 'even', 'search'", "'nearest'"],
    ),
    ("unknown rounding", lambda: mxfp.quantize(X, rounding="nearest"), ValueError, [ROUNDINGS, "'nearest'"]),
    ("rounding None", lambda: mxfp.quantize(X, rounding=None), ValueError, [ROUNDINGS, "None"]),
    ("rounding in a list", lambda: mxfp.quantize(X, rounding=["stochastic"]), ValueError, [ROUNDINGS]),
    (
        "rounding in an array",
        lambda: mxfp.quantize(X, rounding=np.array(["a", "b"])),
        ValueError,
        [ROUNDINGS, "array"],
    ),
    (
        "unknown rounding to encode",
        lambda: mxfp.encode(V, mxfp.E2M1, rounding="even"),
        ValueError,
        [ROUNDINGS, "'even'"],
    ),
    (
        "unknown nonfinite",
        lambda: mxfp.quantize(X, nonfinite="ignore"),
        ValueError,
        ["nonfinite", "'nan', 'saturate', 'raise'", "'ignore'"],
    ),
    ("nonfinite None", lambda: mxfp.quantize(X, nonfinite=None), ValueError, ["nonfinite", "None"]),
    (
        "unknown engine to quantize",
        lambda: mxfp.quantize(X, engine="cuda"),
        ValueError,
        ["engine", "'numba', 'reference'", "'cuda'"],
    ),
    ("unknown engine to dequantize", lambda: mxfp.dequantize(VQ, engine="gpu"), ValueError, ["'gpu'"]),
    (
        "unknown engine to multiply",
        lambda: mxfp.matmul(XQ, VQ, engine="gpu"),
        ValueError,
        ["engine", "'gpu'"],
    ),
    (
        "unknown order to pack",
        lambda: mxfp.pack([1], mxfp.E2M1, order="low"),
        ValueError,
        ["order", "'pairs', 'halves'", "'low'"],
    ),
    ("order None", lambda: mxfp.pack([1], mxfp.E2M1, order=None), ValueError, ["order", "None"]),
    (
        "unknown order to unpack",
        lambda: mxfp.unpack(np.zeros(1, U8), mxfp.E2M1, 2, order="pair"),
        ValueError,
        ["order", "'pairs', 'halves'", "'pair'"],
    ),
    (
        "unknown order for a length",
        lambda: packed_length(33, mxfp.MXFP4, order="pair"),
        ValueError,
        ["order", "'pair'"],
    ),
    (
        "unknown overflow",
        lambda: mxfp.block_dots(VQ, VQ, overflow="clip"),
        ValueError,
        ["overflow", "'raise', 'wrap', 'saturate'", "'clip'"],
    ),
    # --- result dtypes
    ("dtype by an unknown name", lambda: VQ.dequantize(dtype="float8"), TypeError, [OUT_DTYPES, "'float8'"]),
    ("dtype of integers", lambda: VQ.dequantize(dtype=np.int32), TypeError, [OUT_DTYPES, "int32"]),
    ("dtype None", lambda: mxfp.dequantize(VQ, dtype=None), TypeError, [OUT_DTYPES, "None"]),
    ("dtype object", lambda: mxfp.dequantize(VQ, dtype=object), TypeError, [OUT_DTYPES, "object"]),
    ("dtype complex", lambda: mxfp.decode([1], mxfp.E2M1, dtype=complex), TypeError, [OUT_DTYPES, "complex"]),
    ("dtype as a number", lambda: mxfp.decode([1], mxfp.E2M1, dtype=17), TypeError, [OUT_DTYPES, "17"]),
    ("dtype in a list", lambda: mxfp.decode([1], mxfp.E2M1, dtype=["f4"]), TypeError, [OUT_DTYPES, "['f4']"]),
    (
        "dtype float8",
        lambda: mxfp.decode([1], mxfp.E2M1, dtype=ml_dtypes.float8_e4m3fn),
        TypeError,
        [OUT_DTYPES, "float8_e4m3fn"],
    ),
    ("an array of integers", lambda: np.asarray(VQ, dtype=int), TypeError, [OUT_DTYPES, "int64"]),
    ("an array without a copy", lambda: np.array(VQ, copy=False), ValueError, ["without a copy"]),
    # --- stochastic rounding
    (
        "stochastic without rng",
        lambda: mxfp.quantize(X, rounding="stochastic"),
        TypeError,
        ["rng=", "numpy.random.Generator", "NoneType"],
    ),
    (
        "stochastic with a seed",
        lambda: mxfp.quantize(X, rounding="stochastic", rng=0),
        TypeError,
        ["numpy.random.Generator", "got int"],
    ),
    (
        "stochastic with the legacy generator",
        lambda: mxfp.quantize(X, rounding="stochastic", rng=np.random.RandomState(1)),
        TypeError,
        ["numpy.random.Generator", "got RandomState"],
    ),
    (
        "stochastic with a module",
        lambda: mxfp.encode(X, mxfp.E2M1, rounding="stochastic", rng=np.random),
        TypeError,
        ["numpy.random.Generator", "got module"],
    ),
    (
        "rng without stochastic",
        lambda: mxfp.quantize(X, rng=rng()),
        TypeError,
        ["rng is for stochastic", "'nearest_even'"],
    ),
    (
        "rng without stochastic to encode",
        lambda: mxfp.encode(X, mxfp.E2M1, rounding="toward_zero", rng=rng()),
        TypeError,
        ["rng is for stochastic", "'toward_zero'"],
    ),
    # --- tensor scales
    ("tensor scale 0", lambda: nvfp4(0.0), ValueError, [TENSOR_SCALE, "0.0"]),
    ("tensor scale negative", lambda: nvfp4(-1.0), ValueError, [TENSOR_SCALE, "-1.0"]),
    ("tensor scale NaN", lambda: nvfp4(np.nan), ValueError, [TENSOR_SCALE, "nan"]),
    ("tensor scale infinite", lambda: nvfp4(np.inf), ValueError, [TENSOR_SCALE, "inf"]),
    ("tensor scale no float32", lambda: nvfp4(0.1), ValueError, [TENSOR_SCALE, "0.1"]),
    ("tensor scale beyond float32", lambda: nvfp4(1e300), ValueError, [TENSOR_SCALE, "1e+300"]),
    ("tensor scale below float32", lambda: nvfp4(1e-300), ValueError, [TENSOR_SCALE, "1e-300"]),
    ("tensor scale beyond float64", lambda: nvfp4(10**400), ValueError, [TENSOR_SCALE]),
    ("tensor scale a word", lambda: nvfp4("big"), TypeError, [TENSOR_SCALE, "'big'"]),
    ("tensor scale a number in quotes", lambda: nvfp4("2.0"), TypeError, [TENSOR_SCALE, "'2.0'"]),
    ("tensor scale complex", lambda: nvfp4(1j), TypeError, [TENSOR_SCALE, "1j"]),
    ("tensor scale a list", lambda: nvfp4([1.0]), TypeError, [TENSOR_SCALE, "[1.0]"]),
    ("tensor scale an array", lambda: nvfp4(np.ones(3, np.float32)), TypeError, [TENSOR_SCALE, "array"]),
    ("tensor scale a bool", lambda: nvfp4(True), TypeError, [TENSOR_SCALE, "True"]),
    (
        "tensor scale None in a BlockArray",
        lambda: block(16, 1, mxfp.NVFP4, tensor_scale=None),
        TypeError,
        [TENSOR_SCALE, "None"],
    ),
    (
        "tensor scale for MX",
        lambda: mxfp.quantize(X, tensor_scale=2.0),
        ValueError,
        ["MXFP4 has no tensor scale", "2.0"],
    ),
    (
        "tensor scale for MX in a BlockArray",
        lambda: block(3, 1, tensor_scale=0.5),
        ValueError,
        ["MXFP4 has no tensor scale", "0.5"],
    ),
    # --- codes
    ("code 16 of E2M1", lambda: mxfp.decode([1, 16], mxfp.E2M1), ValueError, ["0 … 15", "16", "index (1,)"]),
    ("code 64 of E2M3", lambda: mxfp.decode([[64]], mxfp.E2M3), ValueError, ["0 … 63", "64", "(0, 0)"]),
    ("code 256 of E4M3", lambda: mxfp.decode([256], mxfp.E4M3), ValueError, ["0 … 255", "256", "index (0,)"]),
    ("a negative code", lambda: mxfp.decode([-1], mxfp.E2M1), ValueError, ["0 … 15", "-1", "index (0,)"]),
    (
        "a code of 64 bits",
        lambda: mxfp.decode(np.array([2**63], np.uint64), mxfp.E2M1),
        ValueError,
        ["0 … 15", str(2**63)],
    ),
    ("a code beyond 64 bits", lambda: mxfp.decode([10**30], mxfp.E2M1), TypeError, ["0 … 15", "object"]),
    ("codes as floats", lambda: mxfp.decode([1.0], mxfp.E2M1), TypeError, ["integers 0 … 15", "float64"]),
    ("codes as bools", lambda: mxfp.decode([True], mxfp.E2M1), TypeError, ["integers 0 … 15", "bool"]),
    ("codes as text", lambda: mxfp.decode("f", mxfp.E2M1), TypeError, ["integers 0 … 15", "<U1"]),
    ("codes as bytes", lambda: mxfp.decode(b"\x01", mxfp.E2M1), TypeError, ["integers 0 … 15", "S1"]),
    ("codes None", lambda: mxfp.decode(None, mxfp.E2M1), TypeError, ["integers 0 … 15", "object"]),
    ("ragged codes", lambda: mxfp.decode([[1], [1, 2]], mxfp.E2M1), ValueError, ["E2M1 codes"]),
    (
        "masked codes",
        lambda: mxfp.decode(np.ma.masked_array([1, 2], [0, 1]), mxfp.E2M1),
        TypeError,
        ["codes", "masked array"],
    ),
    (
        "codes as float4",
        lambda: mxfp.decode(V.astype(ml_dtypes.float4_e2m1fn), mxfp.E2M1),
        TypeError,
        ["integers 0 … 15", "float4_e2m1fn"],
    ),
    (
        "the integer of NaN",
        lambda: mxfp.to_integers([0, 127], mxfp.E4M3),
        ValueError,
        ["E4M3 code 127", "index (1,)", "nan"],
    ),
    (
        "the integer of infinity",
        lambda: mxfp.to_integers([[0, 252]], mxfp.E5M2),
        ValueError,
        ["E5M2 code 252", "index (0, 1)", "-inf"],
    ),
    # --- BlockArray
    (
        "packed bytes for codes",
        lambda: mxfp.BlockArray(np.full(16, 0xF1, U8), np.zeros(1, U8), mxfp.MXFP4),
        ValueError,
        ["MXFP4 codes", "0 … 15", "241", "index (0,)"],
    ),
    (
        "a scale code that UE4M3 does not have",
        lambda: mxfp.BlockArray(np.zeros(32, U8), np.array([5, 128], U8), mxfp.NVFP4),
        ValueError,
        ["NVFP4 scale codes", "0 … 127", "128", "index (1,)"],
    ),
    (
        "scales too many",
        lambda: block((4, 64), (4, 3)),
        ValueError,
        ["(4, 64)", "axis -1", "(4, 2)", "(4, 3)"],
    ),
    ("scales flat", lambda: block((4, 64), 8), ValueError, ["(4, 64)", "(4, 2)", "(8,)"]),
    ("scales along another axis", lambda: block((64, 4), (64, 1), axis=0), ValueError, ["(2, 4)", "(64, 1)"]),
    ("scales for a part of a block", lambda: block(33, 1), ValueError, ["(33,)", "(2,)", "(1,)"]),
    (
        "scales as values",
        lambda: mxfp.BlockArray(np.zeros(3, U8), np.ones(1), mxfp.MXFP4),
        TypeError,
        ["scale codes are integers 0 … 255", "float64"],
    ),
    ("block axis out of range", lambda: block(3, 1, axis=1), ValueError, ["axis 1", "1 dimension"]),
    ("block axis None", lambda: block(3, 1, axis=None), TypeError, ["axis must be an integer", "None"]),
    ("a BlockArray of a scalar", lambda: block((), ()), ValueError, ["no axis", "one dimension"]),
    ("a BlockArray of a name", lambda: block(3, 1, "MXFP4"), TypeError, ["block format", "'MXFP4'"]),
    ("a BlockArray of elements", lambda: block(3, 1, mxfp.E2M1), TypeError, ["block format", "E2M1"]),
    ("a BlockArray by an unknown rule", lambda: block(3, 1, scale_rule="flor"), ValueError, ["'flor'"]),
    (
        "a BlockArray of masked codes",
        lambda: mxfp.BlockArray(np.ma.zeros(3, U8), np.zeros(1, U8), mxfp.MXFP4),
        TypeError,
        ["codes", "masked array"],
    ),
    # --- packing
    ("a code too large to pack", lambda: mxfp.pack([3, 16], mxfp.E2M1), ValueError, ["0 … 15", "16", "(1,)"]),
    ("a scalar to pack", lambda: mxfp.pack(3, mxfp.E2M1), ValueError, ["one dimension", "scalar"]),
    ("floats to pack", lambda: mxfp.pack([1.0], mxfp.E2M1), TypeError, ["integers 0 … 15", "float64"]),
    (
        "halves of an element format",
        lambda: mxfp.pack([1], mxfp.E2M1, order="halves"),
        ValueError,
        ["'halves'", "block formats of 4-bit elements", "E2M1"],
    ),
    (
        "halves of 6 bits",
        lambda: mxfp.pack([1], mxfp.MXFP6_E2M3, order="halves"),
        ValueError,
        ["'halves'", "4-bit", "MXFP6_E2M3"],
    ),
    (
        "halves of 8 bits",
        lambda: mxfp.unpack(np.zeros(32, U8), mxfp.MXFP8_E4M3, 32, order="halves"),
        ValueError,
        ["'halves'", "4-bit", "MXFP8_E4M3"],
    ),
    (
        "halves of an odd block",
        lambda: mxfp.pack(
            np.zeros(5, U8), mxfp.BlockFormat("Five", mxfp.E2M1, mxfp.E8M0, 5, ("floor",)), order="halves"
        ),
        ValueError,
        ["'halves'", "Five", "5"],
    ),
    (
        "too many bytes",
        lambda: mxfp.unpack(np.zeros(3, U8), mxfp.E2M1, 4),
        ValueError,
        ["4 codes of E2M1", "'pairs'", "2 bytes", "got 3"],
    ),
    (
        "too few bytes of 6-bit codes",
        lambda: mxfp.unpack(np.zeros((2, 3), U8), mxfp.E3M2, 5),
        ValueError,
        ["5 codes of E3M2", "4 bytes", "got 3"],
    ),
    (
        "too few bytes for whole blocks",
        lambda: mxfp.unpack(np.zeros(10, U8), mxfp.MXFP4, 20, order="halves"),
        ValueError,
        ["20 codes", "'halves'", "16 bytes", "got 10"],
    ),
    (
        "more codes than there are",
        lambda: mxfp.unpack(np.zeros(1, U8), mxfp.E2M1, 10**30),
        ValueError,
        [f"{10**30} codes", f"{5 * 10**29} bytes", "got 1"],
    ),
    (
        "more codes than memory",
        lambda: mxfp.unpack(np.zeros(1, U8), mxfp.MXFP4, 10**18, order="halves"),
        ValueError,
        [f"{10**18} codes", f"{5 * 10**17} bytes", "got 1"],
    ),
    ("a stray nibble", lambda: mxfp.unpack(np.array([18, 52], U8), mxfp.E2M1, 3), ValueError, ["3 codes"]),
    ("stray bits", lambda: mxfp.unpack(np.array([0, 0, 0xFC], U8), mxfp.E2M3, 3), ValueError, ["3 codes"]),
    (
        "stray halves",
        lambda: mxfp.unpack(np.full(16, 0x11, U8), mxfp.MXFP4, 20, order="halves"),
        ValueError,
        ["beyond the 20 codes"],
    ),
    ("int32 to unpack", lambda: mxfp.unpack(np.zeros(2, np.int32), mxfp.E2M1, 4), TypeError, ["int32 (2,)"]),
    ("a list to unpack", lambda: mxfp.unpack([1, 2], mxfp.E2M1, 4), TypeError, ["uint8", "int64 (2,)"]),
    ("text to unpack", lambda: mxfp.unpack("ab", mxfp.E2M1, 4), TypeError, ["uint8", "<U2"]),
    ("None to unpack", lambda: mxfp.unpack(None, mxfp.E2M1, 4), TypeError, ["uint8", "object"]),
    ("a scalar to unpack", lambda: mxfp.unpack(U8(3), mxfp.E2M1, 2), TypeError, ["one dimension", "()"]),
    ("masked to unpack", lambda: mxfp.unpack(np.ma.zeros(2, U8), mxfp.E2M1, 4), TypeError, ["masked array"]),
    ("ragged to unpack", lambda: mxfp.unpack([[1], [1, 2]], mxfp.E2M1, 2), TypeError, ["uint8"]),
    ("count negative", lambda: mxfp.unpack(np.zeros(2, U8), mxfp.E2M1, -1), ValueError, ["count", "-1"]),
    ("count float", lambda: mxfp.unpack(np.zeros(2, U8), mxfp.E2M1, 4.0), ValueError, ["count", "4.0"]),
    ("count bool", lambda: mxfp.unpack(np.zeros(1, U8), mxfp.E2M1, True), ValueError, ["count", "True"]),
    ("count None", lambda: mxfp.unpack(np.zeros(1, U8), mxfp.E2M1, None), ValueError, ["count", "None"]),
    # --- not a BlockArray
    ("an array to dequantize", lambda: mxfp.dequantize(V), TypeError, ["takes a BlockArray", "ndarray"]),
    ("None to dequantize", lambda: mxfp.dequantize(None), TypeError, ["takes a BlockArray", "NoneType"]),
    ("bytes to dequantize", lambda: mxfp.dequantize(b"abc"), TypeError, ["takes a BlockArray", "bytes"]),
    ("an array for a", lambda: mxfp.matmul(X, VQ), TypeError, ["a must be a BlockArray", "ndarray"]),
    ("an array for b", lambda: mxfp.matmul(XQ, V), TypeError, ["b must be a BlockArray", "ndarray"]),
    ("None for both", lambda: mxfp.matmul(None, None), TypeError, ["a must be a BlockArray", "NoneType"]),
    ("an array in block_dots", lambda: mxfp.block_dots(VQ, V), TypeError, ["b must be a BlockArray"]),
    ("an array in trace", lambda: mxfp.trace(V, V), TypeError, ["a must be a BlockArray", "ndarray"]),
    ("a list in trace", lambda: mxfp.trace(VQ, [1.0]), TypeError, ["b must be a BlockArray", "list"]),
    # --- pairs that do not match
    (
        "MXFP4 by NVFP4",
        lambda: mxfp.matmul(XQ, VN),
        ValueError,
        ["a is MXFP4 in blocks of 32", "b is NVFP4 in blocks of 16"],
    ),
    ("NVFP4 by MXFP4", lambda: mxfp.block_dots(VN, VQ), ValueError, ["a is NVFP4", "16", "b is MXFP4", "32"]),
    ("a trace of MXFP4 by NVFP4", lambda: mxfp.trace(VQ, VN), ValueError, ["MXFP4", "NVFP4", "32", "16"]),
    (
        "K of a vector",
        lambda: mxfp.matmul(XQ, mxfp.quantize(np.ones(32))),
        ValueError,
        ["(4, 64)", "(32,)", "K is 64 in a and 32 in b"],
    ),
    (
        "K of a matrix",
        lambda: mxfp.matmul(XQ, mxfp.quantize(np.ones((32, 5)), axis=0)),
        ValueError,
        ["(4, 64)", "(32, 5)", "K is 64 in a and 32 in b"],
    ),
    (
        "b quantized along N",
        lambda: mxfp.matmul(XQ, mxfp.quantize(np.ones((64, 64)))),
        ValueError,
        ["(64, 64) along axis -1", "blocks must lie along K", "axis 1 of a and axis 0 of b"],
    ),
    (
        "a quantized along M",
        lambda: mxfp.matmul(XQ0, COLUMNS),
        ValueError,
        ["(4, 64) along axis 0", "blocks must lie along K"],
    ),
    ("b not transposed", lambda: mxfp.matmul(XQ, XQ), ValueError, ["(4, 64) along axis -1", "axis 0 of b"]),
    (
        "leading axes that do not broadcast",
        lambda: mxfp.matmul(mxfp.quantize(np.ones((2, 3, 32))), mxfp.quantize(np.ones((3, 32, 2)), axis=1)),
        ValueError,
        ["(2, 3, 32)", "(3, 32, 2)", "(2,) and (3,)", "broadcast"],
    ),
    (
        "K in block_dots",
        lambda: mxfp.block_dots(VQ, mxfp.quantize(np.ones(32))),
        ValueError,
        ["a (64,)", "b (32,)"],
    ),
    (
        "rows in block_dots",
        lambda: mxfp.block_dots(XQ, mxfp.quantize(np.ones((3, 64)))),
        ValueError,
        ["a (4, 64)", "b (3, 64)"],
    ),
    (
        "block axis in block_dots",
        lambda: mxfp.block_dots(XQ, XQ0),
        ValueError,
        ["last axis", "b (4, 64)", "axis 0"],
    ),
    ("a trace of matrices", lambda: mxfp.trace(XQ, XQ), ValueError, ["two vectors", "a has shape (4, 64)"]),
    (
        "a trace by a matrix",
        lambda: mxfp.trace(VQ, COLUMNS),
        ValueError,
        ["two vectors", "b has shape (64, 3)"],
    ),
    ("K in trace", lambda: mxfp.trace(VQ, mxfp.quantize(np.ones(32))), ValueError, ["a (64,)", "b (32,)"]),
    # --- groups and widths
    ("group 5", lambda: mxfp.block_dots(VQ, VQ, group=5), ValueError, ["group 5", "block of 32 of MXFP4"]),
    ("group 0", lambda: mxfp.block_dots(VQ, VQ, group=0), ValueError, ["group 0", "32"]),
    ("group negative", lambda: mxfp.block_dots(VQ, VQ, group=-1), ValueError, ["group -1", "32"]),
    ("group beyond the block", lambda: mxfp.block_dots(VQ, VQ, group=64), ValueError, ["group 64", "32"]),
    ("group float", lambda: mxfp.block_dots(VQ, VQ, group=16.0), ValueError, ["group", "16.0"]),
    ("group string", lambda: mxfp.block_dots(VQ, VQ, group="16"), ValueError, ["group", "'16'"]),
    ("group bool", lambda: mxfp.block_dots(VQ, VQ, group=True), ValueError, ["group", "True"]),
    ("width 0", lambda: mxfp.block_dots(VQ, VQ, width=0), ValueError, ["width", "1 … 4096", "got 0"]),
    ("width float", lambda: mxfp.block_dots(VQ, VQ, width=8.0), ValueError, ["width", "8.0"]),
    ("width bool", lambda: mxfp.block_dots(VQ, VQ, width=True), ValueError, ["width", "True"]),
    (
        "13 bits for 32 products of matrices",
        lambda: mxfp.block_dots(last_of(3, 64), last_of(3, 64), width=13),
        mxfp.WidthError,
        ["block 0 of dot product (2,)", "4608", "signed 13 bits", "-4096 … 4095"],
    ),
    (
        "13 bits, negative",
        lambda: mxfp.block_dots(last_of(3, 64), mxfp.quantize(np.full((3, 64), -6.0)), width=13),
        mxfp.WidthError,
        ["block 0 of dot product (2,)", "-4608", "13 bits"],
    ),
    (
        "12 bits for vectors",
        lambda: mxfp.block_dots(LATE, LATE, width=12),
        mxfp.WidthError,
        ["block 1: the sum of products is 2304", "signed 12 bits", "-2048 … 2047"],
    ),
    (
        "13 bits in an array of three dimensions",
        lambda: mxfp.block_dots(third_of_four(), third_of_four(), width=13),
        mxfp.WidthError,
        ["block 1 of dot product (1, 1)", "4608", "13 bits"],
    ),
    (
        "12 bits for groups, of which the fourth lies in block 1",
        lambda: mxfp.block_dots(LATE, LATE, width=12, group=16),
        mxfp.WidthError,
        ["block 1", "2304", "12 bits"],
    ),
    (
        "40 bits for E5M2",
        lambda: mxfp.block_dots(E5M2_MAX, E5M2_MAX, width=40),
        mxfp.WidthError,
        ["block 0", str(32 * (7 * 2**29) ** 2), "signed 40 bits"],
    ),
    # --- accumulators
    ("accumulator by name", lambda: mxfp.matmul(XQ, VQ, accumulator="exact"), TypeError, ["'exact'"]),
    ("accumulator None", lambda: mxfp.matmul(XQ, VQ, accumulator=None), TypeError, ["accumulator", "None"]),
    (
        "accumulator class",
        lambda: mxfp.matmul(XQ, VQ, accumulator=mxfp.Exact),
        TypeError,
        ["accumulator must be", "mxfp.Sequential('float32')", "Exact"],
    ),
    ("accumulator of a trace", lambda: mxfp.trace(VQ, VQ, accumulator="exact"), TypeError, ["'exact'"]),
    ("accumulator dtype unknown", lambda: mxfp.Sequential("float8"), TypeError, [OUT_DTYPES, "'float8'"]),
    ("accumulator dtype integer", lambda: mxfp.Exact(np.int64), TypeError, [OUT_DTYPES, "int64"]),
    ("accumulator dtype None", lambda: mxfp.Pairwise(None), TypeError, [OUT_DTYPES, "None"]),
    ("register of 0 bits", lambda: mxfp.FixedPoint(0, 0), ValueError, ["width", "1 … 4096", "got 0"]),
    ("register of 24.0 bits", lambda: mxfp.FixedPoint(24.0, 0), ValueError, ["width", "24.0"]),
    ("register of True bits", lambda: mxfp.FixedPoint(True, 0), ValueError, ["width", "True"]),
    ("register with half an exponent", lambda: mxfp.FixedPoint(24, 0.5), ValueError, ["lsb_exponent", "0.5"]),
    ("register overflow unknown", lambda: mxfp.FixedPoint(24, 0, "clip"), ValueError, ["'wrap'", "'clip'"]),
    (
        "register rounding unknown",
        lambda: mxfp.FixedPoint(24, 0, "wrap", "ceil"),
        ValueError,
        ["rounding", "'floor', 'toward_zero', 'nearest_even'", "'ceil'"],
    ),
    (
        "register dtype unknown",
        lambda: mxfp.FixedPoint(24, 0, "wrap", "floor", "int8"),
        TypeError,
        [OUT_DTYPES, "'int8'"],
    ),
    (
        "integers that float64 rounds, beside NaN",
        lambda: mxfp.quantize([2**60 + 1, float("nan")]),
        TypeError,
        ["x mixes integers", str(2**60 + 1)],
    ),
    (
        "numpy integers that float64 rounds, beside a float",
        lambda: mxfp.encode([np.int64(2**60 + 1), 1.5], mxfp.E2M1),
        TypeError,
        ["x mixes integers", str(2**60 + 1)],
    ),
    (
        "an element format wider than int64",
        lambda: mxfp.ElementFormat("E7M0", 7, 0, bias=63),
        ValueError,
        ["E7M0", "7 exponent bits", "62 bits"],
    ),
    (
        "a tensor scale beside E8M0",
        lambda: mxfp.BlockFormat("Z", mxfp.E2M1, mxfp.E8M0, 32, ("floor",), tensor_scale=True),
        ValueError,
        ["Z", "tensor scale", "E8M0"],
    ),
    (
        "a tensor scale that float32 has not",
        lambda: mxfp.quantize([1.0], mxfp.NVFP4, tensor_scale=0.1),
        ValueError,
        ["0.1", "numpy.float32(0.10000000149011612)"],
    ),
    (
        "fused with -1 bits",
        lambda: mxfp.Fused(-1, 16, 64, -139),
        ValueError,
        ["fraction_bits", "0 …", "got -1"],
    ),
    ("fused with uneven groups", lambda: mxfp.Fused(35, 16, 60, -139), ValueError, ["group 16", "step 60"]),
    ("fused with no group", lambda: mxfp.Fused(35, 0, 64, -139), ValueError, ["group", "1 …", "got 0"]),
    ("fused with a float", lambda: mxfp.Fused(35.0, 16, 64, -139), ValueError, ["fraction_bits", "35.0"]),
    ("fused with None", lambda: mxfp.Fused(35, 16, 64, None), ValueError, ["zero_exponent", "None"]),
    (
        "fused groups that do not divide the block",
        lambda: mxfp.matmul(XQ, VQ, accumulator=mxfp.Fused(35, 12, 48, -139)),
        ValueError,
        ["group 12", "block of 32 of MXFP4"],
    ),
    (
        "fused groups larger than NVFP4's block",
        lambda: mxfp.matmul(VN, VN, accumulator=mxfp.Fused(35, 32, 64, -139)),
        ValueError,
        ["group 32", "block of 16 of NVFP4"],
    ),
    ("an accumulator of a BlockArray", lambda: mxfp.Exact()(VQ), TypeError, ["Terms", "BlockArray"]),
    ("an accumulator of an array", lambda: mxfp.Sequential()(V), TypeError, ["Terms", "ndarray"]),
    ("an accumulator of None", lambda: mxfp.BLACKWELL_MXFP4(None), TypeError, ["Terms", "NoneType"]),
    (
        "groups of 16 asked of terms of 32",
        lambda: mxfp.BLACKWELL_MXFP4(mxfp.block_dots(XQ, XQ)),
        ValueError,
        ["group", "16", "32"],
    ),
    (
        "a register too narrow, in a matrix",
        lambda: mxfp.matmul(
            last_of(3, 32), mxfp.quantize(np.full((32, 2), 6.0), axis=0), accumulator=mxfp.FixedPoint(13, -2)
        ),
        mxfp.WidthError,
        ["block 0 of result (2, 0)", "4608", "2**-2", "signed 13 bits", "-4096 … 4095"],
    ),
    (
        "a register too narrow for a second block",
        lambda: mxfp.FixedPoint(14, -2)(mxfp.block_dots(*[mxfp.quantize(SIXES)] * 2)),
        mxfp.WidthError,
        ["block 1: ", "9216", "2**-2", "signed 14 bits", "-8192 … 8191"],
    ),
    (
        "a register too narrow, matrix by vector",
        lambda: mxfp.matmul(last_of(3, 32), mxfp.quantize(SIXES[:32]), accumulator=mxfp.FixedPoint(13, -2)),
        mxfp.WidthError,
        ["block 0 of result (2,)", "4608", "13 bits"],
    ),
    (
        "a register too narrow, in a batch",
        lambda: mxfp.matmul(
            last_of(2, 1, 32),
            mxfp.quantize(np.full((2, 32, 1), 6.0), axis=1),
            accumulator=mxfp.FixedPoint(13, -2),
        ),
        mxfp.WidthError,
        ["block 0 of result (1, 0, 0)", "4608", "13 bits"],
    ),
    (
        "a register too narrow, far down",
        lambda: mxfp.matmul(
            last_of(1200, 32),
            mxfp.quantize(np.full((32, 1000), 6.0), axis=0),
            accumulator=mxfp.FixedPoint(13, -2),
        ),
        mxfp.WidthError,
        ["block 0 of result (1199, 0)", "4608", "13 bits"],
    ),
    # --- accumulators as text
    ("text of no accumulator", lambda: parse("exakt"), ValueError, ["'exakt'", "for example", "exact"]),
    ("text with a wrong dtype", lambda: parse("exact:int8"), ValueError, ["'exact:int8'", OUT_DTYPES]),
    ("text with too little", lambda: parse("fixed"), ValueError, ["'fixed'", "width", "for example"]),
    (
        "text with too much",
        lambda: parse("exact:float32:3"),
        ValueError,
        ["'exact:float32:3'", "for example"],
    ),
    ("text with a wrong number", lambda: parse("fused:35:16:60:-139"), ValueError, ["group 16", "step 60"]),
    ("text empty", lambda: parse(""), ValueError, ["''", "for example"]),
    ("text None", lambda: parse(None), TypeError, ["accumulator", "None"]),
]

if np.dtype(np.longdouble).itemsize > 8:
    WRONG_CALLS += [
        (
            "longdouble input",
            lambda: mxfp.quantize(V.astype(np.longdouble)),
            TypeError,
            [DTYPES, np.dtype(np.longdouble).name],
        ),
        (
            "dtype longdouble",
            lambda: VQ.dequantize(dtype=np.longdouble),
            TypeError,
            [OUT_DTYPES, "longdouble"],
        ),
    ]

# What a message looks like when it was not written for this reader.
FOREIGN = (
    "__init__",
    "object has no attribute",
    "cannot be interpreted as an integer",
    "an integer is required",
    "inhomogeneous",
    "truth value",
    "could not convert",
    "must be a string or a real number",
    "0-dimensional arrays can be converted",
    "cannot reshape",
)


@pytest.mark.parametrize(
    ("call", "kind", "words"), [c[1:] for c in WRONG_CALLS], ids=[c[0] for c in WRONG_CALLS]
)
def test_wrong_call_is_refused_in_one_line(call, kind, words):
    with pytest.raises(Exception) as caught:  # noqa: PT011
        call()
    message = str(caught.value)
    shown = f"{type(caught.value).__name__}: {message}"
    assert type(caught.value) is kind, shown
    assert message == message.strip(), shown
    assert message, shown
    assert "\n" not in message, shown
    assert [w for w in words if w not in message] == [], shown
    assert [w for w in FOREIGN if w in message] == [], shown
    last = Path(traceback.extract_tb(caught.value.__traceback__)[-1].filename)
    assert last.is_relative_to(PACKAGE), f"{shown}, raised in {last}"


def test_no_wrong_call_is_listed_twice():
    names = [c[0] for c in WRONG_CALLS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("engine", ["numba", "reference"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_nonfinite_raise_names_the_first_index_on_every_engine_and_dtype(engine, dtype):
    x = np.ones((3, 40), dtype)
    x[1, 39] = np.inf
    x[2, 0] = np.nan
    with pytest.raises(ValueError, match=r"^x is inf at index \(1, 39\), and nonfinite is 'raise'$"):
        mxfp.quantize(x, nonfinite="raise", engine=engine)


def test_refused_calls_leave_the_generator_alone():
    used = np.random.default_rng(5)
    with pytest.raises(TypeError, match="rng is for stochastic"):
        mxfp.quantize(X, rng=used)
    with pytest.raises(ValueError, match="nonfinite is 'raise'"):
        mxfp.quantize(with_one(np.nan, 0), rounding="stochastic", rng=used, nonfinite="raise")
    with pytest.raises(ValueError, match="has no NaN"):
        mxfp.encode(with_one(np.nan, 0), mxfp.E2M1, rounding="stochastic", rng=used)
    assert used.bit_generator.state == np.random.default_rng(5).bit_generator.state


@pytest.mark.parametrize(
    "call",
    [
        lambda: mxfp.quantize(X),
        lambda: mxfp.dequantize(VQ),
        lambda: mxfp.decode([1], mxfp.E2M1),
        lambda: mxfp.matmul(XQ, VQ),
        lambda: mxfp.Sequential()(mxfp.block_dots(XQ, XQ)),
    ],
    ids=["quantize", "dequantize", "decode", "matmul", "accumulator"],
)
def test_a_thread_that_flushes_subnormals_is_told_so(call, monkeypatch):
    monkeypatch.setattr("mxfp.floats._HALF", np.zeros(1, np.float32))  # what such a thread would compute
    with pytest.raises(FloatingPointError, match=r"flushes subnormal numbers to zero .*2\*\*-127") as caught:
        call()
    assert "\n" not in str(caught.value)


def test_block_arrays_are_frozen():
    with pytest.raises(AttributeError, match="axis"):
        VQ.axis = 0
    for array in (VQ.codes, VQ.scales):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(VQ)


def test_block_arrays_have_no_arithmetic_of_their_own():
    with pytest.raises(TypeError, match="BlockArray"):
        VQ + VQ
    with pytest.raises(TypeError, match="BlockArray"):
        XQ @ VQ


def test_width_errors_are_value_errors():
    assert issubclass(mxfp.WidthError, ValueError)
