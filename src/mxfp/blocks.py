# SPDX-License-Identifier: Apache-2.0
"""Room 4: codes and scales together, the block array; quantize and dequantize (OCP MX §5.2, §6.3)."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from . import scale
from .encode import SLAB, Rounding, check_rounding, draw_key, draws, encode_scaled
from .floats import check_subnormals, divide_to_odd, float_dtype, real_array, round_float64, to_float64
from .formats import MXFP4, BlockFormat, Codes, Floats, ScaleRule, check_codes
from .search import search_exponents

Nonfinite = Literal["nan", "saturate", "raise"]
"""What a NaN or an infinity does to its block (contract §2; implementation-defined in §6.3)."""
Engine = Literal["numba", "reference"]
"""`numba`: compiled where a kernel exists; `reference`: numpy throughout. Both give the same bits."""

NONFINITE: Final[tuple[Nonfinite, ...]] = ("nan", "saturate", "raise")
ENGINES: Final[tuple[Engine, ...]] = ("numba", "reference")


def check_choice(value: str, choices: tuple[str, ...], name: str) -> None:
    """ValueError naming the choices if `value` is not one of them."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def check_axis(axis: Any, ndim: int, what: str = "x") -> int:
    """An axis of an array of `ndim` dimensions -> the same from 0 on; says what is wrong otherwise."""
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
        raise TypeError(f"axis must be an integer, got {axis!r}")
    if ndim == 0:
        raise ValueError(
            f"no axis to put blocks along: {what} must have at least one dimension, got a scalar"
        )
    if not -ndim <= axis < ndim:
        raise ValueError(f"axis {axis} is out of range for {what} of {ndim} dimensions")
    return int(axis) % ndim


def blocks_along(length: int, block: int) -> int:
    """Blocks that `length` elements fill, the last perhaps in part."""
    return -(-length // block)


@dataclass(frozen=True, eq=False)
class BlockArray:
    """An array in a block format: element codes, and one scale code per block along one axis.

    codes: uint8 (...), one element each, unpacked. scales: uint8, the same shape with the block axis
    shortened to ceil(K / block). format: a BlockFormat. axis: the block axis. tensor_scale: the float32
    of NVFP4, 1.0 elsewhere. scale_rule: the rule that made it, if known; it is shown, and not compared.

    It checks itself: ValueError for shapes, axis, codes or scales that do not fit, with the numbers.
    Frozen: it copies arrays that somebody could still write to. `==` compares bits. `np.asarray`
    dequantizes to float32.

    >>> import mxfp, numpy as np
    >>> mxfp.quantize(np.array([0.5, -6.0, 1.0]))
    BlockArray MXFP4 (3,) along axis -1: 1 block of 32, rule floor, 3 bytes
      scales 7f
      codes  1f2
      values 0.5 -6 1
    """

    codes: Codes
    scales: Codes
    format: BlockFormat
    axis: int = -1
    tensor_scale: float = 1.0
    scale_rule: ScaleRule | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Check everything once, so that no later room has to."""
        fmt = self.format
        if not isinstance(fmt, BlockFormat):
            raise TypeError(f"format must be a block format such as mxfp.MXFP4, got {fmt!r}")
        codes = check_codes(self.codes, fmt.element.code_count, f"{fmt.name} codes")
        scales = check_codes(self.scales, fmt.scale.code_count, f"{fmt.name} scale codes")
        axis = check_axis(self.axis, codes.ndim, f"{fmt.name} codes")
        expected = list(codes.shape)
        expected[axis] = blocks_along(codes.shape[axis], fmt.block)
        if scales.shape != tuple(expected):
            raise ValueError(
                f"{fmt.name}: codes {codes.shape} along axis {self.axis} need scales {tuple(expected)}, "
                f"got {scales.shape}"
            )
        tensor_scale = check_tensor_scale(self.tensor_scale, fmt)
        if self.scale_rule is not None:
            scale.check_rule(self.scale_rule, fmt)
        object.__setattr__(self, "codes", _kept(codes))
        object.__setattr__(self, "scales", _kept(scales))
        object.__setattr__(self, "axis", int(self.axis))
        object.__setattr__(self, "tensor_scale", tensor_scale)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array that it stands for."""
        return self.codes.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.codes.ndim

    @property
    def block_axis(self) -> int:
        """The block axis, counted from 0."""
        return self.axis % self.ndim

    @property
    def nbytes(self) -> int:
        """Bytes when packed along the block axis: codes, one byte a scale, four for a tensor scale."""
        length = self.shape[self.block_axis]
        rows = math.prod(self.shape[: self.block_axis] + self.shape[self.block_axis + 1 :])
        packed = rows * -(-length * self.format.element.bits // 8)
        return packed + self.scales.size + 4 * self.format.tensor_scale

    @property
    def T(self) -> BlockArray:
        """The transpose; the block axis goes along."""
        return BlockArray(
            self.codes.T,
            self.scales.T,
            self.format,
            self.ndim - 1 - self.block_axis,
            self.tensor_scale,
            scale_rule=self.scale_rule,
        )

    def dequantize(self, *, dtype: Any = np.float32) -> NDArray[Any]:
        """The values, see `mxfp.dequantize`."""
        return dequantize(self, dtype=dtype)

    def __eq__(self, other: object) -> bool:
        """Equal bits: format, block axis, codes, scales and tensor scale."""
        if not isinstance(other, BlockArray):
            return NotImplemented
        return (
            self.format == other.format
            and self.shape == other.shape
            and self.block_axis == other.block_axis
            and self.tensor_scale == other.tensor_scale
            and np.array_equal(self.codes, other.codes)
            and np.array_equal(self.scales, other.scales)
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """Pickle and copy through the constructor, which checks and seals."""
        parts = (self.codes, self.scales, self.format, self.axis, self.tensor_scale)
        return partial(BlockArray, scale_rule=self.scale_rule), parts

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Dequantize, to float32 or to another float dtype."""
        if copy is False:
            raise ValueError("a BlockArray cannot become an array without a copy: it has to be dequantized")
        return dequantize(self, dtype=np.float32 if dtype is None else dtype)

    def __repr__(self) -> str:
        """Format, shape, rule and size, then the first block."""
        count = self.scales.size
        rule = f", rule {self.scale_rule}" if self.scale_rule else ""
        tensor = f", tensor scale {self.tensor_scale:g}" if self.format.tensor_scale else ""
        title = (
            f"BlockArray {self.format.name} {self.shape} along axis {self.axis}: {count:,} "
            f"block{'s' * (count != 1)} of {self.format.block}{rule}{tensor}, {self.nbytes:,} bytes"
        )
        if not count:
            return title
        corner = (0,) * (self.ndim - 1)
        first = np.moveaxis(self.codes, self.block_axis, -1)[corner]
        scales = np.moveaxis(self.scales, self.block_axis, -1)[corner]
        shown = first[: min(self.format.block, 16)]
        one = BlockArray(shown, scales[:1], self.format, -1, self.tensor_scale)
        digits = (
            "".join(f"{c:x}" for c in shown) if self.format.element.bits == 4 else shown.tobytes().hex(" ")
        )
        more = " …" if first.size > shown.size else ""
        values = " ".join(f"{v:g}" for v in dequantize(one, dtype=np.float64, engine="reference"))
        extra = " …" if scales.size > 4 else ""
        return (
            f"{title}\n  scales {scales[:4].tobytes().hex(' ')}{extra}\n"
            f"  codes  {digits}{more}\n  values {values}{more}"
        )


def _kept(array: Codes) -> Codes:
    """An array nobody else can write to: a read-only view, or a read-only copy where that is not sure."""
    base: Any = array
    while isinstance(base, np.ndarray) and not base.flags.writeable:
        base = base.base
    if not (base is None or isinstance(base, (bytes, mmap.mmap))):
        array = array.copy()
    view = array.view()
    view.flags.writeable = False
    return view


def _sealed(array: Codes) -> Codes:
    """A fresh array, made read-only so that a BlockArray can keep it without a copy."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base.flags.writeable = False
        base = base.base
    return array


def check_tensor_scale(value: Any, fmt: BlockFormat) -> float:
    """A tensor scale -> a float that is a positive finite float32.

    Raises TypeError for what is not a number, ValueError for a number that it cannot be.
    """
    wanted = f"the tensor scale of {fmt.name} is a positive finite float32"
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{wanted}, got {value!r}")
    if not fmt.tensor_scale:
        if value != 1:
            raise ValueError(f"{fmt.name} has no tensor scale, got {value!r}")
        return 1.0
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{wanted}, got an integer beyond float64") from None
    with np.errstate(over="ignore", under="ignore"):
        single = float(np.float32(number))
    if not (number == single and 0 < single < math.inf):
        near = f"; the nearest is numpy.float32({single!r})" if 0 < single < math.inf else ""
        raise ValueError(f"{wanted}, got {value!r}{near}")
    return single


def quantize(
    x: Any,
    fmt: BlockFormat = MXFP4,
    *,
    axis: int = -1,
    scale_rule: ScaleRule | None = None,
    rounding: Rounding = "nearest_even",
    nonfinite: Nonfinite = "nan",
    rng: np.random.Generator | None = None,
    tensor_scale: float | None = None,
    engine: Engine = "numba",
) -> BlockArray:
    """Reals (...) -> BlockArray of the same shape, in blocks along `axis`. OCP MX §6.3, contract §2.

    x: float16, bfloat16, float32, float64 or integers, in any memory layout; every element is rounded
    once. A last block may be partial. scale_rule: None is the format's default, "floor" for MX and
    "nearest" for NVFP4. rounding: "stochastic" needs `rng`. nonfinite: "nan" makes a block that holds
    NaN or infinity NaN, "saturate" makes infinities the largest element, "raise" refuses. tensor_scale:
    NVFP4's float32, computed from the largest magnitude if None. engine: both give the same bits.

    Raises TypeError for another dtype, ValueError for an axis, rule, rounding or policy that does not
    exist, and under nonfinite="raise" for the first NaN or infinity.

    >>> import mxfp
    >>> q = mxfp.quantize([0.1, -2.3, 7.0, 1.0])
    >>> q.scales.tolist(), q.codes.tolist(), q.dequantize().tolist()
    ([127], [0, 12, 7, 2], [0.0, -2.0, 6.0, 1.0])
    """
    if not isinstance(fmt, BlockFormat):
        raise TypeError(f"fmt must be a block format such as mxfp.MXFP4, got {fmt!r}")
    rule = scale.check_rule(scale_rule, fmt)
    check_rounding(rounding, rng)
    check_choice(nonfinite, NONFINITE, "nonfinite")
    check_choice(engine, ENGINES, "engine")
    given = real_array(x)
    where = check_axis(axis, given.ndim)
    check_subnormals()
    if nonfinite == "raise":
        _refuse_nonfinite(given)
    if tensor_scale is not None or not fmt.tensor_scale:
        shared = check_tensor_scale(1.0 if tensor_scale is None else tensor_scale, fmt)
    else:
        shared = float(scale.tensor_scale_for(_largest(given), fmt))
    key = None if rng is None else draw_key(rng)
    rows = np.moveaxis(given, where, -1)
    flat = rows.reshape(math.prod(rows.shape[:-1]), rows.shape[-1])
    inner = math.prod(given.shape[where + 1 :])
    twin = _twin(engine, fmt) if rule != "search" else None
    run = _quantize_rows if twin is None else twin.quantize_rows
    codes, scales = run(flat, fmt, rule, rounding, nonfinite, shared, key, inner)
    return BlockArray(
        np.moveaxis(_sealed(codes).reshape(rows.shape), -1, where),
        np.moveaxis(_sealed(scales).reshape(*rows.shape[:-1], scales.shape[-1]), -1, where),
        fmt,
        axis,
        shared,
        scale_rule=rule,
    )


def _twin(engine: Engine, fmt: BlockFormat) -> Any:
    """The compiled twin of this room, or None where the reference does the work."""
    if engine == "reference" or fmt.scale.mantissa_bits:
        return None
    from .kernels import blocks

    return blocks


def _largest(x: NDArray[Any]) -> float:
    """The largest finite magnitude of the array, as float64."""
    largest = 0.0
    for slab in np.array_split(x.reshape(-1), max(1, x.size // SLAB)):
        values = np.abs(to_float64(slab))
        largest = max(largest, float(np.max(values, where=np.isfinite(values), initial=0.0)))
    return largest


def _refuse_nonfinite(x: NDArray[Any]) -> None:
    with np.errstate(invalid="ignore"):  # a signalling NaN
        finite = np.isfinite(x)
    if not finite.all():
        first = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise ValueError(f"x is {x[first]} at index {first}, and nonfinite is 'raise'")


def _slabs(rows: int, length: int, block: int) -> Iterator[tuple[slice, slice]]:
    """Cut (rows, length) into pieces of about SLAB elements, never through a block."""
    width = max(SLAB // block, 1) * block
    for left in range(0, length, width):
        columns = slice(left, min(left + width, length))
        height = max(SLAB // (columns.stop - left), 1)
        for top in range(0, rows, height):
            yield slice(top, min(top + height, rows)), columns


def _quantize_rows(
    x: NDArray[Any],
    fmt: BlockFormat,
    rule: ScaleRule,
    rounding: Rounding,
    nonfinite: Nonfinite,
    tensor_scale: float,
    key: np.uint64 | None,
    inner: int,
) -> tuple[Codes, Codes]:
    """(rows, K) reals -> (rows, K) codes and (rows, blocks) scales, one slab at a time."""
    rows, length = x.shape
    codes = np.zeros((rows, length), np.uint8)
    scales = np.zeros((rows, blocks_along(length, fmt.block)), np.uint8)
    for down, across in _slabs(rows, length, fmt.block):
        draw = None
        if key is not None:
            row, column = np.ogrid[down, across]
            index = ((row // inner) * length + column) * inner + row % inner
            draw = draws(key, index.astype(np.uint64))
        piece = _quantize_slab(x[down, across], fmt, rule, rounding, nonfinite, tensor_scale, draw)
        codes[down, across] = piece[0]
        scales[down, across.start // fmt.block : blocks_along(across.stop, fmt.block)] = piece[1]
    return codes, scales


def _into_blocks(x: NDArray[Any], block: int) -> NDArray[Any]:
    """(rows, K) -> (rows, blocks, block), padded with zeros."""
    rows, length = x.shape
    padding = -length % block
    if padding:
        x = np.concatenate([x, np.zeros((rows, padding), x.dtype)], axis=1)
    return x.reshape(rows, -1, block)


def _quantize_slab(
    x: NDArray[Any],
    fmt: BlockFormat,
    rule: ScaleRule,
    rounding: Rounding,
    nonfinite: Nonfinite,
    tensor_scale: float,
    draw: NDArray[np.uint64] | None,
) -> tuple[Codes, Codes]:
    given = _into_blocks(x, fmt.block)
    values = to_float64(given)
    infinite = np.isinf(values)
    marked = np.logical_or.reduce(np.isnan(values), axis=-1)
    if nonfinite == "nan":
        marked |= infinite.any(axis=-1)
    finite = np.isfinite(values)
    amax = np.max(np.abs(values), axis=-1, where=finite, initial=0.0)
    if fmt.scale.mantissa_bits:
        scales = scale.significand_codes(amax, fmt.element, fmt.scale, rule, tensor_scale)
    else:
        if rule == "search":
            exponent = search_exponents(given, np.where(finite, values, 0.0), amax, fmt, rounding)
        else:
            exponent = scale.exponents(amax, fmt.element, rule)
        scales = scale.power_of_two_codes(exponent, amax, fmt.scale)
    only_infinite = (amax == 0) & infinite.any(axis=-1)
    scales = np.where(only_infinite, int(fmt.scale.has_zero), scales)
    scales = np.where(marked, fmt.scale.nan_code, scales).astype(np.uint8)
    values = np.where(marked[..., None], 0.0, values)
    factors = scale.scale_factors(scales, fmt.scale, tensor_scale)[..., None]
    if draw is not None:
        draw = _into_blocks(draw, fmt.block)
    if fmt.scale.mantissa_bits:
        scaled = divide_to_odd(values, factors)
    else:
        with np.errstate(over="ignore", under="ignore"):
            scaled = values / factors  # a power of two: exact wherever a code can tell
    codes = encode_scaled(scaled, fmt.element, rounding, draw)
    return codes.reshape(x.shape[0], -1)[:, : x.shape[1]], scales


def dequantize(q: BlockArray, *, dtype: Any = np.float32, engine: Engine = "numba") -> NDArray[Any]:
    """BlockArray (...) -> values (...), one rounding to `dtype`. OCP MX §5.1, contract §3.

    dtype: float16, bfloat16, float32 (exact for MX but for overflow past 2**128) or float64 (exact). A
    NaN scale makes its whole block NaN.

    >>> import mxfp, numpy as np
    >>> q = mxfp.BlockArray(np.array([1, 15, 7], np.uint8), np.array([128], np.uint8), mxfp.MXFP4)
    >>> mxfp.dequantize(q).tolist()
    [1.0, -12.0, 12.0]
    """
    if not isinstance(q, BlockArray):
        raise TypeError(f"dequantize takes a BlockArray, got {type(q).__name__}")
    wanted = float_dtype(dtype)
    check_choice(engine, ENGINES, "engine")
    check_subnormals()
    codes = np.moveaxis(q.codes, q.block_axis, -1)
    scales = np.moveaxis(q.scales, q.block_axis, -1)
    rows, length = math.prod(codes.shape[:-1]), codes.shape[-1]
    out = np.empty((rows, length), wanted)
    flat, flat_scales = codes.reshape(rows, length), scales.reshape(rows, scales.shape[-1])
    twin = _twin(engine, q.format) if wanted in (np.float32, np.float64) else None
    if twin is not None:
        twin.dequantize_rows(flat, flat_scales, q.format, out)
    else:
        for down, across in _slabs(rows, length, q.format.block):
            out[down, across] = round_float64(_exact_slab(q, flat, flat_scales, down, across), wanted)
    return np.ascontiguousarray(np.moveaxis(out.reshape(codes.shape), -1, q.block_axis))


def _exact_slab(q: BlockArray, codes: Codes, scales: Codes, down: slice, across: slice) -> Floats:
    """The values of one slab in float64, exact: 3 to 8 bits of code, 4 of scale, 24 of tensor scale."""
    block = q.format.block
    values = q.format.element.values[codes[down, across]]
    shared = q.format.scale.values * q.tensor_scale
    factors = shared[scales[down, across.start // block : blocks_along(across.stop, block)]]
    with np.errstate(invalid="ignore"):
        exact: Floats = values * np.repeat(factors, block, axis=1)[:, : values.shape[1]]
    return exact
