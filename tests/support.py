# SPDX-License-Identifier: Apache-2.0
"""What the room tests share: tables, hard data, the oracle over whole arrays, and comparison of bits."""

import csv
import itertools
import json
import math
import os
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import mxfp
import oracle
from mxfp.formats import BLOCK_FORMATS, ELEMENT_FORMATS

HERE = Path(__file__).parent
JIT = os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")

DTYPES = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
ELEMENTS = list(ELEMENT_FORMATS.values())
FORMATS = list(BLOCK_FORMATS.values())
MX = [fmt for fmt in FORMATS if not fmt.tensor_scale]
DETERMINISTIC = ("nearest_even", "nearest_away", "toward_zero")
ROUNDINGS = (*DETERMINISTIC, "stochastic")


def size(full: int, without_jit: int) -> int:
    """A size for data that kernels work on: smaller where the kernels run as plain Python."""
    return full if JIT else without_jit


def name_of(value: Any) -> str:
    """An id for parametrize: a format's name, an accumulator's text, a dtype's name."""
    return str(value)


# --- files


def table(name: str) -> list[dict[str, str]]:
    """The rows of a file in tables/; every row has a source."""
    with (HERE / "tables" / name).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows
    assert all(row["source"] for row in rows)
    return rows


@cache
def golden(name: str) -> list[dict[str, Any]]:
    """The 400 cases of a file in golden/."""
    cases = [json.loads(line) for line in (HERE / "golden" / name).read_text(encoding="utf-8").splitlines()]
    assert len(cases) == 400
    return cases


def digits(text: str) -> np.ndarray:
    """Hex digits -> uint8 codes, one a digit."""
    return np.array([int(digit, 16) for digit in text], np.uint8)


# --- bits


def bits(x: Any) -> np.ndarray:
    """Floats -> their patterns, in unsigned integers of the same size."""
    array = np.ascontiguousarray(x)
    return array.view(f"u{array.dtype.itemsize}").reshape(np.shape(x))


def from_bits(patterns: Any, dtype: str) -> np.ndarray:
    """Patterns -> floats of the dtype named."""
    found = DTYPES[dtype]
    return np.array(patterns, f"u{found.itemsize}").view(found)


def same_bits(actual: Any, expected: Any) -> None:
    """Two arrays of one dtype and shape, equal in every bit; every NaN is the canonical one."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype, f"dtype {actual.dtype}, expected {expected.dtype}"
    assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
    left, right = bits(actual), bits(expected)
    if not np.array_equal(left, right):
        wrong = np.argwhere(left != right)
        first = tuple(int(i) for i in wrong[0])
        raise AssertionError(
            f"{len(wrong)} of {left.size} differ, first at {first}: got {actual[first]!r} "
            f"({int(left[first]):#x}), expected {expected[first]!r} ({int(right[first]):#x})"
        )


def same_blocks(actual: mxfp.BlockArray, codes: np.ndarray, scales: np.ndarray) -> None:
    """A BlockArray holds exactly these codes and scale codes."""
    same_bits(actual.scales, scales)
    same_bits(actual.codes, codes)


# --- the oracle over arrays

_value = cache(oracle.bits_to_fraction)


def values_of(x: np.ndarray) -> tuple[list[oracle.Value], list[bool]]:
    """An array, in C order -> oracle values and signs."""
    if x.dtype.kind in "iu":
        integers = [int(i) for i in x.ravel().tolist()]
        return [Fraction(i) for i in integers], [i < 0 for i in integers]
    native = np.ascontiguousarray(x, x.dtype.newbyteorder("=")).ravel()
    dtype = native.dtype.name
    sign = oracle.sign_bit(dtype)
    patterns = bits(native).tolist()
    return [_value(p, dtype) for p in patterns], [p & sign != 0 for p in patterns]


def key_of(seed: int) -> int:
    """The key that a call with default_rng(seed) draws."""
    return int(np.random.default_rng(seed).integers(0, 2**64, dtype=np.uint64))


def oracle_quantize(
    x: np.ndarray,
    fmt: mxfp.BlockFormat,
    *,
    axis: int = -1,
    scale_rule: str | None = None,
    rounding: str = "nearest_even",
    nonfinite: str = "nan",
    seed: int | None = None,
    tensor_scale: float | None = None,
) -> tuple[np.ndarray, np.ndarray, float]:
    """What quantize must give, block by block from the oracle: codes, scale codes, tensor scale."""
    rule = scale_rule or fmt.scale_rules[0]
    values, signs = values_of(x)
    index = np.moveaxis(np.arange(x.size).reshape(x.shape), axis, -1)
    length = index.shape[-1]
    rows = index.reshape(math.prod(index.shape[:-1]), length)
    per_row = -(-length // fmt.block)
    blocks = [row[g * fmt.block : (g + 1) * fmt.block].tolist() for row in rows for g in range(per_row)]
    key = None if seed is None else key_of(seed)
    drawn = [None if key is None else [oracle.splitmix64_draw(key, i) for i in block] for block in blocks]
    codes = np.zeros(x.size, np.uint8)
    scales = []
    shared = 1.0
    if fmt.tensor_scale:
        t, scales, found = oracle.quantize_nvfp4(
            [[values[i] for i in block] for block in blocks],
            rule,
            rounding,
            None if tensor_scale is None else Fraction(tensor_scale),
            nonfinite,
            [[signs[i] for i in block] for block in blocks],
            None if key is None else drawn,
        )
        shared = float(t)
    else:
        found = []
        for block, draws in zip(blocks, drawn, strict=True):
            scale, one = oracle.quantize_block(
                fmt.element.name,
                [values[i] for i in block],
                rule,
                rounding,
                nonfinite,
                [signs[i] for i in block],
                draws,
            )
            scales.append(scale)
            found.append(one)
    for block, one in zip(blocks, found, strict=True):
        codes[block] = one
    shaped = np.array(scales, np.uint8).reshape(*index.shape[:-1], per_row)
    return codes.reshape(x.shape), np.moveaxis(shaped, -1, axis), shared


def check_quantize(x: np.ndarray, fmt: mxfp.BlockFormat, *, seed: int | None = None, **options: Any) -> None:
    """Quantize on both engines against the oracle, bit for bit."""
    codes, scales, shared = oracle_quantize(x, fmt, seed=seed, **options)
    for engine in mxfp.blocks.ENGINES:
        rng = None if seed is None else np.random.default_rng(seed)
        q = mxfp.quantize(x, fmt, rng=rng, engine=engine, **options)
        same_blocks(q, codes, scales)
        assert q.tensor_scale == shared


def oracle_dequantize(q: mxfp.BlockArray, dtype: str) -> np.ndarray:
    """What dequantize must give, from the oracle."""
    codes = np.moveaxis(q.codes, q.block_axis, -1)
    scales = np.moveaxis(q.scales, q.block_axis, -1)
    out = np.zeros(codes.shape, f"u{DTYPES[dtype].itemsize}")
    block = q.format.block
    for row in np.ndindex(codes.shape[:-1]):
        for g, scale in enumerate(scales[row].tolist()):
            part = slice(g * block, (g + 1) * block)
            out[(*row, part)] = oracle.dequantize_bits(
                q.format.element.name,
                scale,
                codes[(*row, part)].tolist(),
                dtype,
                q.format.scale.name,
                Fraction(q.tensor_scale),
            )
    return np.moveaxis(out, -1, q.block_axis).view(DTYPES[dtype]) if out.size else out.view(DTYPES[dtype])


def oracle_terms(a: mxfp.BlockArray, b: mxfp.BlockArray, *, group: int | None = None) -> list[oracle.Value]:
    """The exact terms of two vectors."""
    size = group or a.format.block
    share = a.format.block // size
    count = -(-a.shape[0] // size)
    return oracle.terms(
        a.format.element.name,
        b.format.element.name,
        a.codes.tolist(),
        np.repeat(a.scales, share)[:count].tolist(),
        b.codes.tolist(),
        np.repeat(b.scales, share)[:count].tolist(),
        size,
        a.format.scale.name,
        b.format.scale.name,
    )


def oracle_result(accumulator: Any, a: mxfp.BlockArray, b: mxfp.BlockArray) -> int:
    """The bits of the dot product of two vectors; OverflowError where the contract has WidthError."""
    factor = Fraction(a.tensor_scale) * Fraction(b.tensor_scale)
    dtype = accumulator.result_dtype.name
    if isinstance(accumulator, mxfp.Fused):
        found = oracle.fused(
            a.codes.tolist(),
            a.scales.tolist(),
            b.codes.tolist(),
            b.scales.tolist(),
            fraction_bits=accumulator.fraction_bits,
            group=accumulator.group,
            step=accumulator.step,
            zero_exponent=accumulator.zero_exponent,
            fmt_a=a.format.element.name,
            fmt_b=b.format.element.name,
            scale_a=a.format.scale.name,
            scale_b=b.format.scale.name,
            block=a.format.block,
            exponents=accumulator.exponents,
            result_bits=accumulator.result_bits,
        )
        return oracle.scale_tensor(found, dtype, factor)
    terms = oracle_terms(a, b, group=accumulator.terms_of)
    if isinstance(accumulator, mxfp.Exact):
        return oracle.exact(terms, dtype, factor)
    if isinstance(accumulator, mxfp.FixedPoint):
        register = oracle.fixed_point(
            terms,
            accumulator.width,
            accumulator.lsb_exponent,
            accumulator.overflow,
            accumulator.rounding,
        )
        if register == "nan":
            return oracle.NAN_BITS[dtype]
        return oracle.round_to(register * oracle.power(accumulator.lsb_exponent) * factor, dtype)
    if isinstance(accumulator, mxfp.Sequential):
        found = oracle.sequential(terms, dtype)
    else:
        found = oracle.pairwise(terms, dtype)
    return oracle.scale_tensor(found, dtype, factor)


def as_floats(patterns: list[int], dtype: np.dtype) -> np.ndarray:
    """Patterns -> an array of the dtype."""
    return np.array(patterns, f"u{dtype.itemsize}").view(dtype)


FLOAT_ACCUMULATORS = [
    kind(dtype) for kind in (mxfp.Exact, mxfp.Sequential, mxfp.Pairwise) for dtype in DTYPES
]
FUSED = [
    mxfp.BLACKWELL_MXFP4,
    mxfp.Fused(25, 16, 64, -139),
    mxfp.Fused(8, 8, 16, -139),
    mxfp.Fused(0, 4, 32, -200),
    mxfp.Fused(12, 16, 32, -139, "scales", 10),
    mxfp.BLACKWELL_MXF8F6F4,
    mxfp.HOPPER_FP8,
    mxfp.ADA_FP8,
    mxfp.Fused(3, 1, 8, -20, "products", 4),
]
FIXED = [
    mxfp.FixedPoint(width, lsb, overflow, rounding)
    for (width, lsb) in ((24, -12), (14, -2), (40, -20))
    for overflow in ("wrap", "saturate")
    for rounding in ("floor", "toward_zero", "nearest_even")
]
GROUPED = [
    mxfp.Sequential("float32", 8),
    mxfp.Sequential("bfloat16", 16),
    mxfp.Sequential("float16", 4),
    mxfp.Sequential("float64", 2),
    mxfp.Sequential("float32", 1),
]
ACCUMULATORS = [*FLOAT_ACCUMULATORS, *GROUPED, *FUSED, *FIXED]


# --- hard data


def ulps(x: float, dtype: str) -> list[float]:
    """A float and its two neighbours in the dtype, for a float that the dtype holds."""
    pattern = oracle.round_to(Fraction(abs(x)), dtype)
    found = from_bits([max(pattern - 1, 0), pattern, pattern + 1], dtype).astype(np.float64)
    return [math.copysign(v, x) for v in found.tolist()]


def midpoints(element: mxfp.ElementFormat) -> list[float]:
    """The numbers halfway between neighbouring magnitudes, from the oracle."""
    return [float((lo + hi) / 2) for lo, hi in itertools.pairwise(oracle.magnitudes(element.name))]


def hard_array(
    dtype: str, element: mxfp.ElementFormat, shape: tuple[int, ...], seed: int, *, block: int = 32
) -> np.ndarray:
    """Floats that lie where things go wrong, in blocks along the last axis.

    Blocks take turns: any pattern that is finite; normals; elements on and one ulp beside the midpoints
    of a power-of-two scale, with the largest on and beside the thresholds of the rules; subnormals and
    the smallest normals; the top of the range; zeros of both signs with few others.
    """
    rng = np.random.default_rng(seed)
    rows, length = math.prod(shape[:-1]), shape[-1]
    found = DTYPES[dtype]
    info = ml_dtypes.finfo(found)
    out = np.zeros((rows, length), found)
    points = np.array(midpoints(element) + oracle_magnitudes(element))
    limits = np.array([1.0, 1.25, 1.5, 1.75, 1.875, 1.9375, 1.984375, element.max / 2.0**element.emax])
    for n, (row, left) in enumerate(itertools.product(range(rows), range(0, length, block))):
        width = min(block, length - left)
        kind = n % 6
        with np.errstate(over="ignore", under="ignore"):
            if kind == 0:
                patterns = rng.integers(0, oracle.infinity_bits(found.name), width)
                x = from_bits(patterns, dtype)
            elif kind == 1:
                x = rng.standard_normal(width).astype(found)
            elif kind == 2:
                exponent = int(
                    rng.integers(max(info.minexp, -120) + element.emax + 3, min(info.maxexp, 120) - 3)
                )
                scaled = np.append(rng.choice(points, width - 1), rng.choice(limits) * 2.0**element.emax)
                x = np.ldexp(scaled, exponent - element.emax).astype(found)
                x = from_bits(np.maximum(bits(x).astype(np.int64) + rng.integers(-1, 2, width), 0), dtype)
            elif kind == 3:
                top = 3 << oracle.FLOATS[dtype][1]
                x = from_bits(rng.integers(0, top, width), dtype)
            elif kind == 4:
                top = oracle.infinity_bits(dtype)
                x = from_bits(rng.integers(top - (4 << oracle.FLOATS[dtype][1]), top, width), dtype)
            else:
                x = (rng.random(width) < 0.1).astype(found) * found.type(info.smallest_normal)
        negative = rng.random(width) < 0.5
        out[row, left : left + width] = np.where(negative, -x, x)
    return out.reshape(shape)


def oracle_magnitudes(element: mxfp.ElementFormat) -> list[float]:
    """The magnitudes of a format as floats, from the oracle."""
    return [float(m) for m in oracle.magnitudes(element.name)]


def with_specials(x: np.ndarray, seed: int, share: float = 0.04) -> np.ndarray:
    """The array with a share of its elements replaced by infinities and NaN of many patterns."""
    rng = np.random.default_rng(seed)
    patterns = bits(x).copy()
    infinity, sign = oracle.infinity_bits(x.dtype.name), oracle.sign_bit(x.dtype.name)
    quiet = sign - 1  # quiet ones only: casts of signalling ones are a test of their own
    choices = [infinity, infinity | sign, infinity | sign, quiet, quiet | sign, oracle.NAN_BITS[x.dtype.name]]
    where = rng.random(x.shape) < share
    patterns[where] = rng.choice(np.array(choices, patterns.dtype), int(where.sum()))
    return patterns.view(x.dtype)


def random_blocks(
    fmt: mxfp.BlockFormat,
    shape: tuple[int, ...],
    seed: int,
    *,
    axis: int = -1,
    scales: tuple[int, int] | None = None,
    specials: bool = False,
    nan_share: float = 0.0,
    zero_share: float = 0.2,
) -> mxfp.BlockArray:
    """A BlockArray of any codes: scales in [low, high), or any finite ones; NaN on request."""
    rng = np.random.default_rng(seed)
    element = fmt.element
    kept = np.arange(element.code_count) if specials else np.flatnonzero(element.finite)
    codes = rng.choice(kept, shape).astype(np.uint8)
    codes[rng.random(shape) < zero_share] = 0
    where = axis % len(shape)
    scale_shape = (*shape[:where], -(-shape[where] // fmt.block), *shape[where + 1 :])
    low, high = scales or (0, fmt.scale.nan_code)
    scale = rng.integers(low, high, scale_shape).astype(np.uint8)
    scale[rng.random(scale_shape) < nan_share] = fmt.scale.nan_code
    tensor = 1.0
    if fmt.tensor_scale:
        tensor = float(np.float32(rng.uniform(0.5, 2.0) * 2.0 ** rng.integers(-20, 20)))
    return mxfp.BlockArray(codes, scale, fmt, axis, tensor)


def by_bisection(function: Any, count: int) -> np.ndarray:
    """function(0 … count-1) of a function that never falls, asked only where its value changes."""
    out = np.empty(count, np.int64)
    todo = [(0, count - 1, function(0), function(count - 1))]
    while todo:
        first, last, low, high = todo.pop()
        if low == high:
            out[first : last + 1] = low
            continue
        out[first], out[last] = low, high
        if last - first > 1:
            middle = (first + last) // 2
            found = function(middle)
            todo += [(first, middle, low, found), (middle, last, found, high)]
    return out
