# SPDX-License-Identifier: Apache-2.0
"""A slow, independent reading of the numeric contract, in exact rationals.

Imports nothing but the standard library, and knows nothing of the package it judges. Clause numbers
"MX §" are those of OCP Microscaling Formats (MX) v1.0; "contract §" are those of docs/contract.md.
A value is a Fraction, or one of the texts "nan", "inf", "-inf". A Fraction has no sign of zero, so
where that sign matters it is a separate argument.
"""

import math
from fractions import Fraction
from functools import cache
from typing import Literal

Special = Literal["nan", "inf", "-inf"]
Value = Fraction | Special

ELEMENTS = ("E2M1", "E2M3", "E3M2", "E4M3", "E5M2", "INT8")

# MX §5.3: exponent bits, mantissa bits, exponent bias. INT8 is not a float and is not here.
FIELDS = {"E2M1": (2, 1, 1), "E2M3": (2, 3, 1), "E3M2": (3, 2, 3), "E4M3": (4, 3, 7), "E5M2": (5, 2, 15)}
MANTISSA_BITS = {"E2M1": 1, "E2M3": 3, "E3M2": 2, "E4M3": 3, "E5M2": 2, "INT8": 6}
ELEMENT_BITS = {"E2M1": 4, "E2M3": 6, "E3M2": 6, "E4M3": 8, "E5M2": 8, "INT8": 8}
NAN_CODE = {"E4M3": 0x7F, "E5M2": 0x7E}
E8M0_NAN = 255
UE4M3_NAN = 127

# IEEE 754 §3.4 (bfloat16: the upper half of binary32): exponent bits, stored mantissa bits.
FLOATS = {"float16": (5, 10), "bfloat16": (8, 7), "float32": (8, 23), "float64": (11, 52)}
NAN_BITS = {"float16": 0x7E00, "bfloat16": 0x7FC0, "float32": 0x7FC00000, "float64": 0x7FF8000000000000}
BLACKWELL_NAN = 0x7FFFFFFF


# ---------------------------------------------------------------------------------------------------
# Arithmetic on values


def power(exponent: int) -> Fraction:
    """2**exponent, exactly."""
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def floor_log2(x: Fraction) -> int:
    """The k with 2**k <= x < 2**(k+1); contract §2: "log2 is exact"."""
    k = x.numerator.bit_length() - x.denominator.bit_length()
    return k if power(k) <= x else k - 1


def ceil_log2(x: Fraction) -> int:
    """The smallest k with x <= 2**k."""
    k = floor_log2(x)
    return k if power(k) == x else k + 1


def add(x: Value, y: Value) -> Value:
    """IEEE 754 §6.1 and §7.2: inf + finite = inf, inf - inf = NaN, NaN stays."""
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x + y
    if x == "nan" or y == "nan":
        return "nan"
    if isinstance(x, Fraction):
        return y
    if isinstance(y, Fraction):
        return x
    return x if x == y else "nan"


def multiply(x: Value, y: Value) -> Value:
    """IEEE 754 §6.1 and §7.2: inf * 0 = NaN, else the signs multiply."""
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x * y
    if x == "nan" or y == "nan" or x == 0 or y == 0:
        return "nan"
    return "-inf" if is_negative(x) != is_negative(y) else "inf"


def is_negative(x: Value) -> bool:
    """Below zero; false for NaN and zero."""
    return x < 0 if isinstance(x, Fraction) else x == "-inf"


# ---------------------------------------------------------------------------------------------------
# Elements and scales: contract §1


def negative(fmt: str, code: int) -> bool:
    """The sign bit, the uppermost (MX §5.3)."""
    return code >> (ELEMENT_BITS[fmt] - 1) == 1


@cache
def element(fmt: str, code: int) -> Value:
    """MX §5.3.1 to §5.3.4: the value of an element code; the sign of a zero is `negative`."""
    if not 0 <= code < 2 ** ELEMENT_BITS[fmt]:
        raise ValueError(f"{fmt} has no code {code}")
    if fmt == "INT8":  # MX §5.3.4: two's complement, implied scale 2**-6
        return Fraction(code - 256 if code >= 128 else code, 64)
    exponent_bits, mantissa_bits, bias = FIELDS[fmt]
    sign = -1 if negative(fmt, code) else 1
    exponent = code >> mantissa_bits & (2**exponent_bits - 1)
    mantissa = code & (2**mantissa_bits - 1)
    if fmt == "E4M3" and exponent == 15 and mantissa == 7:  # NaN at S.1111.111 only
        return "nan"
    if fmt == "E5M2" and exponent == 31:  # IEEE specials
        if mantissa != 0:
            return "nan"
        return "-inf" if sign < 0 else "inf"
    if exponent == 0:
        return sign * Fraction(mantissa, 2**mantissa_bits) * power(1 - bias)
    return sign * (1 + Fraction(mantissa, 2**mantissa_bits)) * power(exponent - bias)


@cache
def magnitudes(fmt: str) -> tuple[Fraction, ...]:
    """The finite values of the codes 0, 1, 2, ... without a sign; they ascend with the code."""
    values = []
    for code in range(2 ** (ELEMENT_BITS[fmt] - 1)):
        value = element(fmt, code)
        if isinstance(value, Fraction):
            values.append(value)
    return tuple(values)


def largest(fmt: str) -> Fraction:
    """Contract §1: `max`, to which encoding saturates (INT8: 127/64, symmetric)."""
    return magnitudes(fmt)[-1]


def emax(fmt: str) -> int:
    """Contract §1: the exponent of the format's largest value."""
    return floor_log2(largest(fmt))


def e8m0(code: int) -> Value:
    """MX §5.4.1: 2**(code - 127); 255 is NaN."""
    if not 0 <= code <= 255:
        raise ValueError(f"E8M0 has no code {code}")
    return "nan" if code == E8M0_NAN else power(code - 127)


def ue4m3(code: int) -> Value:
    """Contract §1: E4M3 without its sign; 127 is NaN, 128 and above do not exist."""
    if not 0 <= code <= 127:
        raise ValueError(f"UE4M3 has no code {code}")
    return element("E4M3", code)


def scale(scale_format: str, code: int) -> Value:
    """The value of a scale code, "E8M0" or "UE4M3"."""
    return {"E8M0": e8m0, "UE4M3": ue4m3}[scale_format](code)


# ---------------------------------------------------------------------------------------------------
# Encoding one element: contract §1 and §2


def splitmix64_draw(key: int, i: int) -> int:
    """Contract §2: the upper 32 bits of output i of SplitMix64 seeded with the key."""
    modulus = 2**64
    z = (key + (i + 1) * 0x9E3779B97F4A7C15) % modulus
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % modulus
    z = (z ^ z >> 27) * 0x94D049BB133111EB % modulus
    z = z ^ z >> 31
    return z >> 32


def nearest(x: Fraction, candidates: tuple[Fraction, ...], tie: str) -> int:
    """The index of the closest candidate; of two equally close the even index, or the farther from 0."""
    distances = [abs(x - candidate) for candidate in candidates]
    closest = min(distances)
    found = [index for index, distance in enumerate(distances) if distance == closest]
    if len(found) == 1:
        return found[0]
    return max(found) if tie == "away" else next(index for index in found if index % 2 == 0)


def encode(fmt: str, x: Value, rounding: str, *, negative: bool | None = None, u: int | None = None) -> int:
    """Contract §1 "Encoding one element" and §2 "Element": the code of x, saturating.

    `negative` is the sign of a zero; `u` the 32-bit draw of stochastic rounding.
    """
    if x == "nan":
        if fmt not in NAN_CODE:
            raise ValueError(f"{fmt} has no NaN")
        return NAN_CODE[fmt]
    values = magnitudes(fmt)
    if isinstance(x, Fraction):
        minus = x < 0 or (x == 0 and negative is True)
        code = round_magnitude(abs(x), values, rounding, u)
    else:
        minus = x == "-inf"
        code = len(values) - 1
    if not minus:
        return code
    if fmt == "INT8":  # two's complement, so no -0
        return (256 - code) % 256
    return code + (1 << ELEMENT_BITS[fmt] - 1)


def round_magnitude(v: Fraction, values: tuple[Fraction, ...], rounding: str, u: int | None) -> int:
    """Contract §2, the named roundings; magnitudes beyond the last value become the last."""
    if v >= values[-1]:
        return len(values) - 1
    if rounding == "nearest_even":
        return nearest(v, values, "even")
    if rounding == "nearest_away":
        return nearest(v, values, "away")
    below = max(code for code, value in enumerate(values) if value <= v)
    if rounding == "toward_zero":
        return below
    if rounding == "stochastic":
        if u is None:
            raise ValueError("stochastic rounding needs a draw")
        lo, hi = values[below], values[below + 1]
        return below + 1 if Fraction(u + 1, 2**32) <= (v - lo) / (hi - lo) else below
    raise ValueError(f"unknown rounding {rounding}")


# ---------------------------------------------------------------------------------------------------
# Quantize: contract §2


def squared_error(fmt: str, block: list[Fraction], exponent: int, rounding: str) -> Fraction:
    """The exact squared error of a block quantized with the scale 2**exponent."""
    total = Fraction(0)
    for x in block:
        decoded = element(fmt, encode(fmt, x / power(exponent), rounding))
        assert isinstance(decoded, Fraction)
        total += (decoded * power(exponent) - x) ** 2
    return total


def scale_exponent(fmt: str, block: list[Fraction], rule: str, rounding: str = "nearest_even") -> int:
    """Contract §2, the table of scale rules: the exponent before clamping, for amax > 0."""
    amax = max(abs(x) for x in block)
    floor, ceil = floor_log2(amax) - emax(fmt), ceil_log2(amax) - emax(fmt)
    if rule == "floor":
        return floor
    if rule == "ceil":
        return ceil
    if rule == "rceil":  # the smallest scale at which nothing saturates
        exponent = floor - 1
        while amax > largest(fmt) * power(exponent):
            exponent += 1
        return exponent
    if rule == "even":
        step = power(floor_log2(amax) - MANTISSA_BITS[fmt])
        half_up = math.floor(amax / step + Fraction(1, 2)) * step
        return floor_log2(half_up) - emax(fmt)
    if rule == "search":
        measure = "nearest_even" if rounding == "stochastic" else rounding
        candidates = {min(max(e, -127), 127) for e in range(floor - 1, ceil + 2)}  # scales that exist
        errors = {e: squared_error(fmt, block, e, measure) for e in candidates}
        return max(e for e in errors if errors[e] == min(errors.values()))
    raise ValueError(f"unknown scale rule {rule}")


def scale_code(fmt: str, block: list[Fraction], rule: str, rounding: str = "nearest_even") -> int:
    """MX §6.3 and contract §2: the E8M0 code for finite values; a block of zeros has code 0."""
    if all(x == 0 for x in block):
        return 0
    return min(max(scale_exponent(fmt, block, rule, rounding), -127), 127) + 127


def finite_part(values: list[Value]) -> list[Fraction]:
    """The finite elements, which alone count for amax."""
    return [x for x in values if isinstance(x, Fraction)]


def marked_nan(values: list[Value], nonfinite: str) -> bool:
    """Contract §2, `nonfinite`: whether the block becomes NaN as a whole."""
    specials = [x for x in values if not isinstance(x, Fraction)]
    if nonfinite == "nan":
        return len(specials) > 0
    if nonfinite == "saturate":
        return "nan" in specials
    if nonfinite == "raise":
        if specials:
            raise ValueError(f"not finite at {values.index(specials[0])}")
        return False
    raise ValueError(f"unknown nonfinite {nonfinite}")


def encode_scaled(
    fmt: str,
    values: list[Value],
    divisor: Fraction,
    rounding: str,
    signs: list[bool] | None,
    draws: list[int] | None,
) -> list[int]:
    """Contract §2, "Element: V/X": the codes of a block whose scale is known."""
    return [
        encode(
            fmt,
            x / divisor if isinstance(x, Fraction) else x,
            rounding,
            negative=signs[i] if signs is not None else None,
            u=draws[i] if draws is not None else None,
        )
        for i, x in enumerate(values)
    ]


def quantize_block(
    fmt: str,
    values: list[Value],
    rule: str,
    rounding: str,
    nonfinite: str = "nan",
    signs: list[bool] | None = None,
    draws: list[int] | None = None,
) -> tuple[int, list[int]]:
    """MX §6.3 and contract §2: (E8M0 code, element codes) of one block."""
    if marked_nan(values, nonfinite):
        return E8M0_NAN, [0] * len(values)
    code = scale_code(fmt, finite_part(values), rule, rounding)
    divisor = e8m0(code)
    assert isinstance(divisor, Fraction)
    return code, encode_scaled(fmt, values, divisor, rounding, signs, draws)


def nvfp4_tensor_scale(blocks: list[list[Value]]) -> Fraction:
    """Contract §2, NVFP4: amax / (6*448) rounded once to float32 and clamped; 1 if amax is 0."""
    amax = max((abs(x) for block in blocks for x in finite_part(block)), default=Fraction(0))
    if amax == 0:
        return Fraction(1)
    rounded = bits_to_fraction(round_to(amax / (6 * 448), "float32"), "float32")
    top = power(128) - power(104)
    return min(max(rounded, power(-149)), top) if isinstance(rounded, Fraction) else top


def nvfp4_scale_code(amax: Fraction, tensor_scale: Fraction, rule: str) -> int:
    """Contract §2, NVFP4: the UE4M3 code of a block's scale; a block of zeros has code 0."""
    if amax == 0:
        return 0
    values = magnitudes("E4M3")
    ratio = amax / (6 * tensor_scale)
    if rule == "nearest":
        return max(nearest(ratio, values, "even"), 1)
    if rule == "rceil":
        return min((code for code in range(1, 127) if ratio <= values[code]), default=126)
    raise ValueError(f"unknown scale rule {rule}")


def quantize_nvfp4(
    blocks: list[list[Value]],
    rule: str = "nearest",
    rounding: str = "nearest_even",
    tensor_scale: Fraction | None = None,
    nonfinite: str = "nan",
    signs: list[list[bool]] | None = None,
    draws: list[list[int]] | None = None,
) -> tuple[Fraction, list[int], list[list[int]]]:
    """Contract §2, NVFP4: a whole tensor, split in its blocks -> (tensor scale, scale codes, codes)."""
    t = nvfp4_tensor_scale(blocks) if tensor_scale is None else tensor_scale
    scales, codes = [], []
    for i, block in enumerate(blocks):
        if marked_nan(block, nonfinite):
            scales.append(UE4M3_NAN)
            codes.append([0] * len(block))
            continue
        amax = max((abs(x) for x in finite_part(block)), default=Fraction(0))
        code = nvfp4_scale_code(amax, t, rule)
        if amax == 0 and any(x in ("inf", "-inf") for x in block):
            code = 1  # the smallest positive scale
        s = ue4m3(code)
        assert isinstance(s, Fraction)
        scales.append(code)
        codes.append(
            encode_scaled(
                "E2M1",
                block,
                s * t if code != 0 else Fraction(1),  # code 0: no finite element but zeros
                rounding,
                signs[i] if signs is not None else None,
                draws[i] if draws is not None else None,
            )
        )
    return t, scales, codes


# ---------------------------------------------------------------------------------------------------
# Dequantize: contract §3


def dequantize(
    fmt: str,
    code_of_scale: int,
    codes: list[int],
    scale_format: str = "E8M0",
    tensor_scale: Fraction = Fraction(1),
) -> list[Value]:
    """Contract §3: table[code] * scale * tensor scale, exact; a NaN scale makes every element NaN."""
    factor = multiply(scale(scale_format, code_of_scale), tensor_scale)
    return [multiply(element(fmt, code), factor) for code in codes]


def dequantize_bits(
    fmt: str,
    code_of_scale: int,
    codes: list[int],
    dtype: str,
    scale_format: str = "E8M0",
    tensor_scale: Fraction = Fraction(1),
) -> list[int]:
    """Contract §3: the exact values after their one rounding; a zero keeps its code's sign."""
    values = dequantize(fmt, code_of_scale, codes, scale_format, tensor_scale)
    return [
        round_to(value, dtype, negative_zero=negative(fmt, code))
        for value, code in zip(values, codes, strict=True)
    ]


# ---------------------------------------------------------------------------------------------------
# Floats as bit patterns: IEEE 754 §3.4 and §4.3.1


def infinity_bits(dtype: str) -> int:
    """All exponent bits set, no mantissa: also the number of finite patterns without a sign."""
    exponent_bits, mantissa_bits = FLOATS[dtype]
    return ((1 << exponent_bits) - 1) << mantissa_bits


def sign_bit(dtype: str) -> int:
    """The uppermost bit."""
    return 1 << sum(FLOATS[dtype])


def magnitude_of(pattern: int, dtype: str) -> Fraction:
    """The value of an unsigned pattern. Infinity's would be 2**(emax+1), where rounding meets it."""
    exponent_bits, mantissa_bits = FLOATS[dtype]
    bias = (1 << exponent_bits - 1) - 1
    exponent, mantissa = pattern >> mantissa_bits, pattern & ((1 << mantissa_bits) - 1)
    if exponent == 0:
        return mantissa * power(1 - bias - mantissa_bits)
    return ((1 << mantissa_bits) + mantissa) * power(exponent - bias - mantissa_bits)


def bits_to_fraction(bits: int, dtype: str) -> Value:
    """IEEE 754 §3.4: the value of a bit pattern; the sign of a zero is lost."""
    minus = bits & sign_bit(dtype) != 0
    pattern = bits & (sign_bit(dtype) - 1)
    if pattern > infinity_bits(dtype):
        return "nan"
    if pattern == infinity_bits(dtype):
        return "-inf" if minus else "inf"
    return -magnitude_of(pattern, dtype) if minus else magnitude_of(pattern, dtype)


def pattern_below(x: Fraction, dtype: str) -> int:
    """The largest unsigned pattern whose value is at most x >= 0, infinity's at most; by bisection."""
    low, high = 0, infinity_bits(dtype)
    if magnitude_of(high, dtype) <= x:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if magnitude_of(middle, dtype) <= x:
            low = middle
        else:
            high = middle
    return low


def round_to(x: Value, dtype: str, negative_zero: bool = False) -> int:
    """IEEE 754 §4.3.1, roundTiesToEven, once: subnormals are kept, overflow goes to infinity.

    `negative_zero` is the sign of an x that is zero; a negative x that rounds to zero gives -0.
    """
    if x == "nan":
        return NAN_BITS[dtype]
    if not isinstance(x, Fraction):
        return infinity_bits(dtype) + (sign_bit(dtype) if x == "-inf" else 0)
    sign = sign_bit(dtype) if x < 0 or (x == 0 and negative_zero) else 0
    low = pattern_below(abs(x), dtype)
    if low == infinity_bits(dtype):
        return sign + low
    to_low = abs(x) - magnitude_of(low, dtype)
    to_high = magnitude_of(low + 1, dtype) - abs(x)
    if to_low < to_high or (to_low == to_high and low % 2 == 0):
        return sign + low
    return sign + low + 1


# ---------------------------------------------------------------------------------------------------
# The integer path: contract §4


def terms(
    fmt_a: str,
    fmt_b: str,
    a_codes: list[int],
    a_scales: list[int],
    b_codes: list[int],
    b_scales: list[int],
    block: int,
    scale_a: str = "E8M0",
    scale_b: str = "E8M0",
) -> list[Value]:
    """MX §6.1 (1) and §6.2, contract §4 "Term" and "Specials": one exact value per block."""
    result = []
    for i, (ca, cb) in enumerate(zip(a_scales, b_scales, strict=True)):
        part = slice(i * block, (i + 1) * block)
        products = dot(fmt_a, fmt_b, a_codes[part], b_codes[part])
        factor = multiply(scale(scale_a, ca), scale(scale_b, cb))
        result.append(multiply(products, factor))
    return result


def dot(fmt_a: str, fmt_b: str, a_codes: list[int], b_codes: list[int]) -> Value:
    """MX §6.1, equation (1) without its scales."""
    total: Value = Fraction(0)
    for x, y in zip(a_codes, b_codes, strict=True):
        total = add(total, multiply(element(fmt_a, x), element(fmt_b, y)))
    return total


@cache
def integers(fmt: str) -> tuple[int, ...]:
    """Contract §4: the finite values, of both signs, in units of the smallest step of the format."""
    lsb = element(fmt, 1)
    values = [element(fmt, code) for code in range(2 ** ELEMENT_BITS[fmt])]
    assert isinstance(lsb, Fraction)
    units = [value / lsb for value in values if isinstance(value, Fraction)]
    assert all(unit.denominator == 1 for unit in units)
    return tuple(unit.numerator for unit in units)


def adder_bounds(fmt_a: str, fmt_b: str, n: int) -> tuple[int, int]:
    """Contract §4, "Every width is derived": the least and largest sum of n products, in LSB units."""
    products = [x * y for x in integers(fmt_a) for y in integers(fmt_b)]
    return n * min(products), n * max(products)


def signed_bits(lo: int, hi: int) -> int:
    """The fewest bits whose two's complement range holds lo ... hi."""
    bits = 1
    while not (-(2 ** (bits - 1)) <= lo and hi <= 2 ** (bits - 1) - 1):
        bits += 1
    return bits


# ---------------------------------------------------------------------------------------------------
# Accumulators: contract §5


def exact(terms: list[Value], dtype: str, factor: Fraction | int = 1) -> int:
    """`Exact`: the exact sum, times the tensor scales, rounded once."""
    total: Value = Fraction(0)
    for term in terms:
        total = add(total, term)
    return round_to(multiply(total, Fraction(factor)), dtype)


def sequential(terms: list[Value], dtype: str) -> int:
    """`Sequential`: acc <- round(acc + term), in order, from +0; a zero sum is +0, as a term is never -0."""
    acc = 0
    for term in terms:
        acc = round_to(add(bits_to_fraction(acc, dtype), term), dtype)
    return acc


def pairwise(terms: list[Value], dtype: str) -> int:
    """`Pairwise`: terms rounded, then a balanced tree, the odd one out carried up; no terms give +0."""
    level = [round_to(term, dtype) for term in terms]
    while len(level) > 1:
        sums = [add_rounded(x, y, dtype) for x, y in zip(level[0::2], level[1::2], strict=False)]
        level = sums + (level[-1:] if len(level) % 2 == 1 else [])
    return level[0] if level else 0


def add_rounded(x: int, y: int, dtype: str) -> int:
    """IEEE 754 §6.3: one addition of two patterns; a zero sum is -0 only of two -0."""
    minus_zero = sign_bit(dtype)
    total = add(bits_to_fraction(x, dtype), bits_to_fraction(y, dtype))
    return round_to(total, dtype, negative_zero=x == minus_zero and y == minus_zero)


def fixed_point(
    terms: list[Value], width: int, lsb_exponent: int, overflow: str, rounding: str
) -> int | Literal["nan"]:
    """`FixedPoint`: the register after all terms; OverflowError where the contract has WidthError."""
    if not all(isinstance(term, Fraction) for term in terms):
        return "nan"
    least, most = -(1 << width - 1), (1 << width - 1) - 1
    register = 0
    for term in finite_part(terms):
        scaled = term / power(lsb_exponent)
        register += round_integer(scaled, rounding)
        if least <= register <= most:
            continue
        if overflow == "raise":
            raise OverflowError(f"{register} does not fit {width} bits")
        if overflow == "saturate":
            register = least if register < least else most
        elif overflow == "wrap":
            register = (register - least) % (1 << width) + least
        else:
            raise ValueError(f"unknown overflow {overflow}")
    return register


def round_integer(x: Fraction, rounding: str) -> int:
    """The shift of a term to the LSB, by the names of contract §5."""
    if rounding == "floor":
        return math.floor(x)
    if rounding == "toward_zero":
        return math.trunc(x)
    if rounding == "nearest_even":
        return round(x)  # of a Fraction: to nearest, ties to even
    raise ValueError(f"unknown rounding {rounding}")


def fixed_point_bits(register: int | Literal["nan"], lsb_exponent: int, dtype: str = "float64") -> int:
    """`FixedPoint`: register * 2**lsb_exponent, rounded once."""
    return round_to("nan" if register == "nan" else register * power(lsb_exponent), dtype)


def leading_exponent(scale_format: str, code: int) -> int:
    """Contract §5: the place of a scale's leading significand bit (UE4M3 subnormals: -6)."""
    if scale_format == "E8M0":
        return code - 127
    return max(code >> 3, 1) - 7


def element_exponent(fmt: str, code: int) -> int:
    """Contract §5: floor(log2 |value|), and below the smallest normal the exponent of that one.

    For codes that are neither zero nor special, whose exponents nobody asks for.
    """
    value = element(fmt, code)
    if not isinstance(value, Fraction) or value == 0:
        raise ValueError(f"{fmt} code {code} has no exponent")
    smallest_normal = 0 if fmt == "INT8" else 1 - FIELDS[fmt][2]
    return max(floor_log2(abs(value)), smallest_normal)


def truncate(x: Fraction, lsb: int) -> Fraction:
    """Toward zero to a multiple of 2**lsb."""
    return math.trunc(x / power(lsb)) * power(lsb)


def fused(
    a_codes: list[int],
    a_scales: list[int],
    b_codes: list[int],
    b_scales: list[int],
    *,
    fraction_bits: int = 35,
    group: int = 16,
    step: int = 64,
    zero_exponent: int = -139,
    fmt_a: str = "E2M1",
    fmt_b: str = "E2M1",
    scale_a: str = "E8M0",
    scale_b: str = "E8M0",
    block: int = 32,
    exponents: str = "scales",
    result_bits: int = 23,
) -> int:
    """`Fused`, by default "Blackwell, MXFP4" (arXiv:2511.10909): float32 bits, never -0."""
    if block % group != 0 or step % group != 0:
        raise ValueError("a group lies within one block and one step")
    c = 0  # float32 bits
    for start in range(0, len(a_codes), step):
        running = bits_to_fraction(c, "float32")
        addends: list[tuple[int, Value]] = [(carry_exponent(running, zero_exponent), running)]
        for first in range(start, start + step, group):
            x, y = a_codes[first : first + group], b_codes[first : first + group]
            if not x:  # past the end: missing codes are 0, and have no scale
                addends.append((zero_exponent, Fraction(0)))
                continue
            ca, cb = a_scales[first // block], b_scales[first // block]
            factor = multiply(scale(scale_a, ca), scale(scale_b, cb))
            value = multiply(dot(fmt_a, fmt_b, x, y), factor)
            products = [multiply(element(fmt_a, i), element(fmt_b, j)) for i, j in zip(x, y, strict=True)]
            if all(product == 0 for product in products) or factor == 0:
                exponent = zero_exponent
            else:
                exponent = leading_exponent(scale_a, ca) + leading_exponent(scale_b, cb)
                if exponents == "products" and isinstance(value, Fraction):
                    exponent += element_exponent(fmt_a, x[0]) + element_exponent(fmt_b, y[0])
            addends.append((exponent, value))
        c = add_truncated(addends, fraction_bits, result_bits)
    return c


def carry_exponent(c: Value, zero_exponent: int) -> int:
    """Contract §5: the running sum's own exponent, never below -126; that of a zero is given."""
    if not isinstance(c, Fraction) or c == 0:  # an infinity or NaN is never aligned
        return zero_exponent
    return max(floor_log2(abs(c)), -126)


def add_truncated(addends: list[tuple[int, Value]], fraction_bits: int, result_bits: int = 23) -> int:
    """Contract §5: align to the largest exponent, truncate, add exactly, truncate to the result's bits."""
    lsb = max(exponent for exponent, _ in addends) - fraction_bits
    total: Value = Fraction(0)
    for _, value in addends:
        total = add(total, truncate(value, lsb) if isinstance(value, Fraction) else value)
    if total == "nan":
        return BLACKWELL_NAN
    if not isinstance(total, Fraction):
        return round_to(total, "float32")
    pattern = pattern_below(abs(total), "float32")  # from 2**128 on: infinity
    pattern -= pattern % (1 << 23 - result_bits)  # the last fraction bits, of subnormals too
    return pattern + sign_bit("float32") if total < 0 and pattern != 0 else pattern


def scale_tensor(bits: int, dtype: str, factor: Fraction) -> int:
    """Contract §5, "Tensor scales": the epilogue, one rounding; a NaN keeps its pattern, a zero its sign."""
    value = bits_to_fraction(bits, dtype)
    if value == "nan":
        return bits
    return round_to(multiply(value, factor), dtype, negative_zero=bits == sign_bit(dtype))
