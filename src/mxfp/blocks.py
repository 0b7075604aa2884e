# SPDX-License-Identifier: Apache-2.0
"""Room 4: codes and scales together, the block array; quantize and dequantize (OCP MX §5.2, §6.3)."""

from __future__ import annotations

import itertools
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
from .floats import (
    FLOAT_DTYPES,
    check_subnormals,
    divide_to_odd,
    float_dtype,
    real_array,
    round_float64,
    to_float64,
)
from .formats import MXFP4, BlockFormat, Codes, ScaleRule, check_codes
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
        object.__setattr__(self, "codes", kept(codes))
        object.__setattr__(self, "scales", kept(scales))
        object.__setattr__(self, "axis", int(self.axis))
        object.__setattr__(self, "tensor_scale", tensor_scale)

    @classmethod
    def _of(
        cls,
        codes: Codes,
        scales: Codes,
        fmt: BlockFormat,
        axis: int,
        tensor_scale: float,
        scale_rule: ScaleRule | None,
    ) -> BlockArray:
        """Arrays that are known to be right, without another look at every code and without a copy."""
        self = object.__new__(cls)
        for array, name in ((codes, "codes"), (scales, "scales")):
            view = array.view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)
        rest = {"format": fmt, "axis": int(axis), "tensor_scale": tensor_scale, "scale_rule": scale_rule}
        for name, value in rest.items():
            object.__setattr__(self, name, value)
        return self

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
        return BlockArray._of(
            self.codes.T,
            self.scales.T,
            self.format,
            self.ndim - 1 - self.block_axis,
            self.tensor_scale,
            self.scale_rule,
        )

    def dequantize(self, *, dtype: Any = ..., out: NDArray[Any] | None = None) -> NDArray[Any]:
        """The values, see `mxfp.dequantize`."""
        return dequantize(self, dtype=dtype, out=out)

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


def kept(array: Codes) -> Codes:
    """An array nobody else can write to: a read-only view, or a read-only copy where that is not sure."""
    base: Any = array
    while isinstance(base, np.ndarray) and not base.flags.writeable:
        base = base.base
    if not (base is None or isinstance(base, (bytes, mmap.mmap))):
        array = array.copy()
    view = array.view()
    view.flags.writeable = False
    return view


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
    out: tuple[Codes, Codes] | None = None,
    engine: Engine = "numba",
) -> BlockArray:
    """Reals (...) -> BlockArray of the same shape, in blocks along `axis`. OCP MX §6.3, contract §2.

    x: float16, bfloat16, float32, float64 or integers, in any memory layout; every element is rounded
    once. A last block may be partial. scale_rule: None is the format's default, "floor" for MX and
    "nearest" for NVFP4. rounding: "stochastic" needs `rng`. nonfinite: "nan" makes a block that holds
    NaN or infinity NaN, "saturate" makes infinities the largest element, "raise" refuses. tensor_scale:
    NVFP4's float32, computed from the largest magnitude if None. out: two uint8 arrays (codes, scales) to
    write to; the result holds read-only views of them, so leave them alone while it is in use. engine:
    both give the same bits.

    Raises TypeError for another dtype, ValueError for an axis, rule, rounding or policy that does not
    exist, an `out` that does not fit, and under nonfinite="raise" for the first NaN or infinity; then
    nothing is written to `out`.

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
    codes, scales = _outputs(given, where, fmt, out)
    if nonfinite == "raise" and not (out is None and rng is None):
        _refuse_nonfinite(given)
    if tensor_scale is not None or not fmt.tensor_scale:
        shared = check_tensor_scale(1.0 if tensor_scale is None else tensor_scale, fmt)
    else:
        shared = float(scale.tensor_scale_for(largest_magnitude(given, engine=engine), fmt))
    key = None if rng is None else draw_key(rng)
    twin = _twin(engine, fmt) if rule != "search" else None
    run = _quantize_rows if twin is None else twin.quantize_rows
    policy: Nonfinite = "nan" if nonfinite == "raise" else nonfinite
    run(given, where, fmt, rule, rounding, policy, shared, key, codes, scales)
    if nonfinite == "raise" and out is None and (scales == fmt.scale.nan_code).any():
        _refuse_nonfinite(given)
    if out is None:
        codes.flags.writeable = scales.flags.writeable = False
    return BlockArray._of(codes, scales, fmt, axis, shared, rule)


def _outputs(x: NDArray[Any], axis: int, fmt: BlockFormat, out: Any) -> tuple[Codes, Codes]:
    """Where codes and scales go: the caller's arrays, checked, or new ones in the memory order of x."""
    shape = list(x.shape)
    shape[axis] = blocks_along(x.shape[axis], fmt.block)
    if out is None:
        codes = np.empty_like(x, np.uint8, subok=False)
        return codes, np.empty_like(codes, shape=tuple(shape))
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise TypeError(f"out must be two uint8 arrays (codes, scales), got {_kind(out)}")
    byte = (np.dtype(np.uint8),)
    codes = check_out(out[0], x.shape, byte, "out[0], for codes,")
    scales = check_out(out[1], tuple(shape), byte, "out[1], for scales,")
    named = {"out[0]": codes, "out[1]": scales, "x": x}
    for (one, first), (other, second) in itertools.combinations(named.items(), 2):
        if _overlap(first, second):
            raise ValueError(f"{one} and {other} share memory")
    return codes, scales


def check_out(out: Any, shape: tuple[int, ...], dtypes: tuple[np.dtype[Any], ...], name: str) -> NDArray[Any]:
    """A caller's array to write to -> itself as a plain ndarray; says what is wrong with it otherwise."""
    wanted = " or ".join(map(str, dtypes))
    if not isinstance(out, np.ndarray) or isinstance(out, np.ma.MaskedArray):
        raise TypeError(f"{name} must be a numpy array of {wanted}, got {_kind(out)}")
    if out.dtype.newbyteorder("=") not in dtypes:
        raise TypeError(f"{name} must be of dtype {wanted}, got {out.dtype}")
    if out.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {out.shape}")
    if not out.flags.writeable:
        raise ValueError(f"{name} is read-only")
    return np.asarray(out)


def _overlap(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two arrays share memory, or may: a proof for interleaved ones is left when it gets long."""
    effort: Any = 1 << 16
    return np.may_share_memory(one, other, max_work=effort)


def _kind(value: Any) -> str:
    """What was given instead, for a message."""
    name = type(value).__name__
    return f"{name} of {len(value)}" if isinstance(value, (tuple, list)) else name


def _twin(engine: Engine, fmt: BlockFormat) -> Any:
    """The compiled twin of this room, or None where the reference does the work."""
    if engine == "reference":
        return None
    from .kernels import blocks, scaled_blocks

    return next((twin for twin in (blocks, scaled_blocks) if twin.supports(fmt)), None)


def work_alone() -> None:
    """Have all kernels that this thread calls work in it alone: for a thread among others. A door."""
    from .kernels import alone

    alone.work_alone()


def largest_magnitude(x: NDArray[Any], *, finite: bool = True, engine: Engine = "numba") -> float:
    """Reals (...) -> the largest finite magnitude, as float64, 0 if there is none.

    finite: False counts all, and is infinity or NaN where one of them is there.

    >>> largest_magnitude(np.array([1.5, -3.0, np.inf])), largest_magnitude(np.ones(0))
    (3.0, 0.0)
    """
    if engine == "numba" and x.dtype.kind not in "iu" and x.size:
        from .kernels.largest import largest as fast

        found = fast(x)
        if not finite or math.isfinite(found):
            return found
    largest = 0.0
    for place, _ in tiles(x.shape, 0, 1):
        values = np.abs(to_float64(x[place]))
        kept = np.isfinite(values) | (not finite)
        largest = float(np.maximum(largest, np.max(values, where=kept, initial=0.0)))
    return largest


def square_sums(x: NDArray[Any], q: BlockArray) -> tuple[float, float] | None:
    """Floats of 16 or 32 bits and the same quantized -> the sums of squares of x and of x - q, compiled.

    None where there is no kernel, and not finite where an element is not. `mxfp.files.sqnr` is the clear
    version, and all of the door's use.
    """
    from .kernels.squares import square_sums as fast

    return fast(x, q)


def _refuse_nonfinite(x: NDArray[Any]) -> None:
    found = []
    for place, _ in tiles(x.shape, 0, 1):
        with np.errstate(invalid="ignore"):  # a signalling NaN
            finite = np.isfinite(x[place])
        if not finite.all():
            inside = np.argwhere(~finite)[0].tolist()
            found.append(tuple(cut.start + i for cut, i in zip(place, inside, strict=True)))
    if found:
        first = min(found)
        raise ValueError(f"x is {x[first]} at index {first}, and nonfinite is 'raise'")


Place = tuple[slice, ...]
"""Where in an array a tile lies."""


def tiles(shape: tuple[int, ...], axis: int, block: int, size: int = SLAB) -> Iterator[tuple[Place, Place]]:
    """Cut an array into tiles of about `size` elements, never through a block: places in codes and scales.

    >>> [(codes[1].stop, scales[1].stop) for codes, scales in tiles((3, 300_000), 1, 32)]
    [(262144, 8192), (300000, 9375), (262144, 8192), (300000, 9375), (262144, 8192), (300000, 9375)]
    """
    room = max(size // block, 1)
    steps = list(shape)
    for n in reversed(range(len(shape))):
        whole = blocks_along(shape[n], block) if n == axis else shape[n]
        steps[n] = max(min(whole, room), 1)
        room = max(room // steps[n], 1)
    counts = [blocks_along(length, block) if n == axis else length for n, length in enumerate(shape)]
    cuts = [
        [slice(start, min(start + step, count)) for start in range(0, count, step)]
        for count, step in zip(counts, steps, strict=True)
    ]
    for scales in itertools.product(*cuts):
        along = scales[axis]
        codes = slice(along.start * block, min(along.stop * block, shape[axis]))
        yield (*scales[:axis], codes, *scales[axis + 1 :]), scales


def element_index(shape: tuple[int, ...], place: Place) -> NDArray[np.uint64]:
    """The index of each element of a tile among all elements, counted in C order."""
    index = np.zeros((1,) * len(shape), np.uint64)
    for length, along in zip(shape, np.ogrid[place], strict=True):
        index = index * np.uint64(length) + along.astype(np.uint64)
    return index


def _quantize_rows(
    x: NDArray[Any],
    axis: int,
    fmt: BlockFormat,
    rule: ScaleRule,
    rounding: Rounding,
    nonfinite: Nonfinite,
    tensor_scale: float,
    key: np.uint64 | None,
    codes: Codes,
    scales: Codes,
) -> tuple[Codes, Codes]:
    """Reals (...) in rows along the axis -> codes (...) and scales, in place, one tile at a time."""
    for place, scale_place in tiles(x.shape, axis, fmt.block):
        rows = _rows(x[place], axis)
        draw = None if key is None else _rows(draws(key, element_index(x.shape, place)), axis)
        some_codes, some_scales = _quantize_slab(rows, fmt, rule, rounding, nonfinite, tensor_scale, draw)
        _put_rows(codes[place], axis, some_codes)
        _put_rows(scales[scale_place], axis, some_scales)
    return codes, scales


def _rows(x: NDArray[Any], axis: int) -> NDArray[Any]:
    """A tile (...) -> (rows, K)."""
    return np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])


def _put_rows(x: NDArray[Any], axis: int, rows: NDArray[Any]) -> None:
    """The way back: rows (rows, K) into a tile (...)."""
    view = np.moveaxis(x, axis, -1)
    view[...] = rows.reshape(view.shape)


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


def dequantize(
    q: BlockArray, *, dtype: Any = ..., out: NDArray[Any] | None = None, engine: Engine = "numba"
) -> NDArray[Any]:
    """BlockArray (...) -> values (...), one rounding to `dtype`. OCP MX §5.1, contract §3.

    dtype: float16, bfloat16, float32 (the default; exact for MX but for overflow past 2**128) or float64
    (exact). A NaN scale makes its whole block NaN. out: an array of q's shape and of the dtype, in any
    memory layout, to write to and to return; its dtype is then the default.

    Raises TypeError for another dtype, ValueError for an `out` of another shape, that is read-only or
    shares memory with q; nothing is written then.

    >>> import mxfp, numpy as np
    >>> q = mxfp.BlockArray(np.array([1, 15, 7], np.uint8), np.array([128], np.uint8), mxfp.MXFP4)
    >>> mxfp.dequantize(q).tolist()
    [1.0, -12.0, 12.0]
    """
    if not isinstance(q, BlockArray):
        raise TypeError(f"dequantize takes a BlockArray, got {type(q).__name__}")
    wanted = None if dtype is ... else float_dtype(dtype)
    check_choice(engine, ENGINES, "engine")
    check_subnormals()
    if out is None:
        values = np.empty(q.shape, np.dtype(np.float32) if wanted is None else wanted)
    else:
        values = check_out(out, q.shape, FLOAT_DTYPES if wanted is None else (wanted,), "out")
        for array in (q.codes, q.scales):
            if _overlap(values, array):
                raise ValueError("out shares memory with the codes or scales of q")
    twin = _twin(engine, q.format)
    if twin is None:
        _dequantize_rows(q, values)
    else:
        twin.dequantize_rows(q.codes, q.scales, q.block_axis, q.format, q.tensor_scale, values)
    return values if out is None else out


def _dequantize_rows(q: BlockArray, out: NDArray[Any]) -> None:
    """Codes and scales in rows along the block axis -> values, in place, one tile at a time.

    Exact in float64, 3 to 8 bits of code, 4 of scale and 24 of tensor scale, and then rounded once.
    """
    axis, block = q.block_axis, q.format.block
    shared = q.format.scale.values * q.tensor_scale
    for place, scale_place in tiles(q.shape, axis, block):
        values = q.format.element.values[_rows(q.codes[place], axis)]
        factors = np.repeat(shared[_rows(q.scales[scale_place], axis)], block, axis=1)
        with np.errstate(invalid="ignore"):
            exact = values * factors[:, : values.shape[1]]
        _put_rows(out[place], axis, round_float64(exact, out.dtype.newbyteorder("=")))
