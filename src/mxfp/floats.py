# SPDX-License-Identifier: Apache-2.0
"""Side room off 1: the machine's own floats. Exact on the way in, rounded once on the way out.

Between the two doors a value that does not fit float64 is *rounded to odd*: truncated, and its last bit
set when anything was cut off. A later rounding to 51 bits or fewer, and any comparison with a number of
51 bits or fewer, then gives what the exact value would have given (Boldo and Melquiond, "Emulation of
FMA and correctly rounded sums", 2008). That is how every result here is rounded exactly once.
"""

from __future__ import annotations

import math
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from .formats import Floats

BFLOAT16: Final = np.dtype(ml_dtypes.bfloat16)
FLOAT_DTYPES: Final = (np.dtype(np.float16), BFLOAT16, np.dtype(np.float32), np.dtype(np.float64))
NAN_BITS: Final[dict[np.dtype[Any], Any]] = {
    np.dtype(np.float16): np.uint16(0x7E00),
    BFLOAT16: np.uint16(0x7FC0),
    np.dtype(np.float32): np.uint32(0x7FC00000),
    np.dtype(np.float64): np.uint64(0x7FF8000000000000),
}
"""The canonical quiet NaN of each dtype; every NaN that leaves the package has these bits."""

AnyFloats = NDArray[Any]
"""An array of one of FLOAT_DTYPES; numpy's typing cannot name bfloat16."""


def float_dtype(dtype: Any) -> np.dtype[Any]:
    """The dtype named, one of float16, bfloat16, float32, float64; TypeError otherwise.

    >>> float_dtype("bfloat16"), float_dtype(np.float32)
    (dtype(bfloat16), dtype('float32'))
    """
    try:
        found = BFLOAT16 if isinstance(dtype, str) and dtype == "bfloat16" else np.dtype(dtype)
    except TypeError:
        found = None
    if found is None or dtype is None or found.newbyteorder("=") not in FLOAT_DTYPES:
        raise TypeError(f"dtype must be float16, bfloat16, float32 or float64, got {dtype!r}")
    native: np.dtype[Any] = found.newbyteorder("=")
    return native


def real_array(x: Any, name: str = "x") -> NDArray[Any]:
    """Array-like of float16, bfloat16, float32, float64 or integers -> the same as an ndarray.

    Raises TypeError naming the dtype for everything else, and for masked arrays, whose mask has no
    meaning here.
    """
    if hasattr(x, "dequantize"):
        raise TypeError(f"{name} is quantized already; dequantize it first, to a dtype of your choice")
    array = plain_array(x, name)
    if array.dtype == np.float64 and not isinstance(x, (np.ndarray, np.generic)):
        _refuse_lost_integers(x, array, name)
    if array.dtype.kind not in "iu" and array.dtype.newbyteorder("=") not in FLOAT_DTYPES:
        raise TypeError(
            f"{name} must be float16, bfloat16, float32, float64 or integers, got dtype {array.dtype}"
        )
    return array


def plain_array(x: Any, name: str) -> NDArray[Any]:
    """Array-like -> ndarray; TypeError for a masked array, ValueError for rows of unequal length."""
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array; fill it first, for example with .filled(0)")
    try:
        return np.asarray(x)
    except ValueError as error:
        reason = str(error).partition(". ")[0]
        raise ValueError(f"{name} is not an array: {reason[0].lower()}{reason[1:]}") from None


def _refuse_lost_integers(x: Any, array: NDArray[np.float64], name: str) -> None:
    """TypeError if numpy rounded Python integers to float64 on the way into `array`."""
    if (np.abs(array) >= 2.0**53).any():  # not max(), which a NaN would hide
        for given, rounded in zip(np.asarray(x, object).flat, array.flat, strict=True):
            if isinstance(given, (int, np.integer)) and int(given) != int(rounded):
                raise TypeError(
                    f"{name} mixes integers beyond 53 bits with others, and no numpy dtype holds {given}; "
                    "give an array of one dtype"
                )


def to_float64(x: NDArray[Any]) -> Floats:
    """Real array -> float64, exact; integers of more than 53 bits are rounded to odd.

    >>> to_float64(np.array([2**60 + 1])).tolist() == [float(2**60 + 256)]
    True
    """
    if x.dtype.kind not in "iu" or x.dtype.itemsize < 8:
        with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
            return x.astype(np.float64)
    with np.errstate(over="ignore"):  # -2**63 as uint64 is its own magnitude
        magnitude = np.where(x < 0, -x.astype(np.uint64), x.astype(np.uint64))
    shift = np.maximum(_bit_length(magnitude) - 53, 0).astype(np.uint64)
    kept = magnitude >> shift
    kept |= (kept << shift != magnitude).astype(np.uint64)
    exact = np.ldexp(kept.astype(np.float64), shift.astype(np.int64))
    return np.where(x < 0, -exact, exact)


def _bit_length(x: NDArray[Any]) -> NDArray[np.int64]:
    """Non-negative integers -> how many bits each needs."""
    x = x.astype(np.uint64, copy=False)
    high, low = (x >> np.uint64(32)).astype(np.float64), (x & np.uint64(0xFFFFFFFF)).astype(np.float64)
    return np.where(high > 0, np.frexp(high)[1] + 32, np.frexp(low)[1]).astype(np.int64)


def _to_odd(rounded: Floats, error: Floats) -> Floats:
    """A nearest-rounded float64 and the error it left (exact - rounded) -> rounded to odd instead."""
    inexact = (error != 0) & np.isfinite(rounded)
    if not inexact.any():
        return rounded
    fix = inexact & (np.asarray(rounded, order="C").view(np.int64) & 1 == 0)
    return np.where(fix, np.nextafter(rounded, np.copysign(np.inf, error)), rounded)


def add_to_odd(a: Floats, b: Floats) -> Floats:
    """A + b of float64 arrays, rounded to odd; its error is found by Knuth's TwoSum.

    >>> float(add_to_odd(np.array(1.0), np.array(2.0**-80))) == 1 + 2.0**-52
    True
    """
    with np.errstate(invalid="ignore", over="ignore"):
        total = np.asarray(a + b)
        virtual = total - a
        return _to_odd(total, (a - (total - virtual)) + (b - virtual))


def divide_to_odd(x: Floats, divisor: Floats) -> Floats:
    """X / divisor of float64 arrays, rounded to odd; the divisor is positive with at most 28 bits.

    The remainder x - q * divisor is exact: q is cut into three parts of 18 bits, whose products with
    the divisor are exact, and so is each subtraction.
    """
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        quotient = np.asarray(x / divisor)
        remainder, rest = x, quotient
        for _ in range(3):
            mantissa, exponent = np.frexp(rest)
            part = np.ldexp(np.trunc(np.ldexp(mantissa, 18)), exponent - 18)
            remainder, rest = remainder - part * divisor, rest - part
        return _to_odd(quotient, remainder)


def round_float64(x: Floats, dtype: np.dtype[Any]) -> AnyFloats:
    """float64, exact or rounded to odd -> dtype, nearest even, one rounding; NaN becomes canonical.

    For float64 the input must be the result itself. Subnormals are kept, overflow is infinity.
    """
    x = np.asarray(x)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if dtype != BFLOAT16:
            out = x.astype(dtype)
        else:
            single = x.astype(np.float32)
            error = x - single.astype(np.float64)
            odd = (error != 0) & np.isfinite(x) & (single.view(np.uint32) & 1 == 0)
            beyond = np.where(error > 0, np.float32(np.inf), np.float32(-np.inf))
            single = np.where(odd, np.nextafter(single, beyond), single)
            bits = np.asarray(single).view(np.uint32)
            bits = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
            out = (bits >> np.uint32(16)).astype(np.uint16).view(BFLOAT16)
    return canonical_nan(out, np.isnan(x))


def canonical_nan(x: AnyFloats, where: NDArray[np.bool_]) -> AnyFloats:
    """`x` with the canonical NaN of its dtype at `where`, in place where it can be."""
    if where.any():
        x = np.array(x, copy=True)
        x[where] = NAN_BITS[x.dtype].view(x.dtype)
    return x


def _integer_to_float64(odd: bool) -> np.ufunc:
    def convert(integer: int, exponent: int) -> float:
        magnitude = abs(integer)
        shift = magnitude.bit_length() - (53 if odd else 55)
        if shift > 0:
            magnitude = magnitude >> shift | (magnitude & ((1 << shift) - 1) != 0)
            exponent += shift
        try:
            value = math.ldexp(float(magnitude), exponent)
        except OverflowError:
            value = math.inf
        return -value if integer < 0 else value

    return np.frompyfunc(convert, 2, 1)


_ODD, _NEAREST = _integer_to_float64(odd=True), _integer_to_float64(odd=False)


def round_integers(integers: NDArray[Any], exponents: Any, dtype: np.dtype[Any]) -> AnyFloats:
    """Exact integers * 2**exponents -> dtype, nearest even, one rounding.

    `integers` is int64 or object (Python integers of any size); `exponents` broadcasts. Results of
    float64 must not be subnormal, which no term of any format can make.

    >>> round_integers(np.array([3, 2**40 + 1]), -1, np.dtype(np.float32)).tolist()
    [1.5, 549755813888.0]
    """
    nearest = dtype == np.float64
    if integers.dtype != object:
        with np.errstate(over="ignore", under="ignore"):
            exact = np.ldexp(integers.astype(np.float64) if nearest else to_float64(integers), exponents)
    else:
        convert = _NEAREST if nearest else _ODD
        with np.errstate(over="ignore", under="ignore"):
            exact = convert(integers.astype(object), np.asarray(exponents).astype(object))
        exact = np.asarray(exact, np.float64)
    return round_float64(exact, dtype)


def starts_of_nearest_even(midpoints: Floats) -> Floats:
    """(n,) midpoints between the values of codes 0 … n -> (n,) where each code from 1 on begins.

    A midpoint belongs to its even neighbour: an odd code gives it away, an even code keeps it, so the
    code above an even one begins one float64 ulp later.
    """
    even_below = np.arange(midpoints.size) % 2 == 0
    return np.where(even_below, np.nextafter(midpoints, np.inf), midpoints)


def check_subnormals() -> None:
    """Raise FloatingPointError if this thread flushes float32 subnormals to zero.

    Some libraries switch flush-to-zero on for the whole thread; 2**-127, the smallest E8M0 scale, is a
    float32 subnormal and would silently become 0.
    """
    if _SMALLEST_NORMAL[0] * _HALF[0] == 0 or _SMALLEST_SCALE.astype(np.float32)[0] == 0:
        raise FloatingPointError(
            "this thread flushes subnormal numbers to zero (another library has set FTZ/DAZ, for example "
            "torch.set_flush_denormal(True) or code built with -ffast-math), so 2**-127, the smallest "
            "E8M0 scale, would become 0; switch it off before calling mxfp"
        )


_SMALLEST_NORMAL: Final = np.array([2.0**-126], np.float32)
_HALF: Final = np.array([0.5], np.float32)
_SMALLEST_SCALE: Final = np.array([2.0**-127], np.float64)
