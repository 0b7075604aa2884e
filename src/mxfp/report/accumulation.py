# SPDX-License-Identifier: Apache-2.0
"""Compare accumulators on a layer: their error against the exact sum, at several K, as plain data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..accumulate import Accumulator, Exact
from ..blocks import BlockArray, blocks_along, quantize
from ..data import Layer
from ..dot import Terms, check_group, dots, operand
from ..floats import real_array
from ..formats import E2M1, MXFP4, BlockFormat
from ..integers import sum_width
from ..matmul import matmul
from ..names import accumulator as accumulator_named
from ..profiles import check_formats
from ..registers import BLACKWELL_MXF8F6F4, BLACKWELL_MXFP4, FixedPoint
from .measure import Progress, plain
from .tally import Point, Tally

DEFAULT_MODELS: Final = (
    "sequential:float32",
    "sequential:float16",
    "sequential:bfloat16",
    "pairwise:bfloat16",
)
"""Beside these, the tensor core for the formats, and registers of DEFAULT_WIDTHS bits."""
DEFAULT_WIDTHS: Final = (24, 16)
TERMS: Final = 1 << 18
"""Terms that are held at a time."""
MOST_ELEMENTS: Final = 1 << 28
"""Elements that a side made longer than the layer may have."""


@dataclass(frozen=True)
class Curve:
    """One accumulator at every K.

    accumulator: its whole text; label: that without defaults at its end. register_width: signed bits of
    its register, None without one.
    """

    accumulator: str
    label: str
    dtype: str
    register_width: int | None
    points: list[Point]


@dataclass(frozen=True)
class Accumulation:
    """Everything `mxfp accumulate` found. `as_dict` is what accumulate.json holds.

    layer_k: the layer's own K. joined: rows of the layer that stand one behind the other in an inner
    dimension, 1 unless a K beyond layer_k was asked for.
    """

    layer: str
    attribution: str
    format: str
    format_b: str
    tokens: int
    n: int
    layer_k: int
    joined: int
    curves: list[Curve]

    @property
    def ks(self) -> list[int]:
        """Every K measured, ascending."""
        return [point.k for point in self.curves[0].points]

    def as_dict(self) -> dict[str, Any]:
        """Plain lists, strings and numbers; a figure that is not finite is None."""
        return {"schema": "mxfp-accumulate/1", **plain(asdict(self))}


def compare(
    layer: Layer,
    *,
    fmt: BlockFormat = MXFP4,
    fmt_b: BlockFormat | None = None,
    accumulators: Sequence[Accumulator] | None = None,
    ks: Sequence[int] | None = None,
    progress: Progress = lambda what, done, total: None,
) -> Accumulation:
    """A layer -> how far each accumulator is from the exact sum, over all its outputs, at each K.

    Activations are quantized to `fmt`, weights to `fmt_b` (None: the same); an output at K is the dot
    product of the first K elements of a token and of a row of weights. accumulators: None is a set that
    shows the choices, see `default_accumulators`. ks: None is one block, doubled up to the layer's K; for
    larger ones the rows are made longer before they are quantized: token t by tokens t + 1, t + 2 …, a row
    of weights by the rows after it, the first after the last.

    Raises ValueError for formats whose blocks differ, for an accumulator whose group does not divide the
    block, and for a layer whose arrays do not fit together or are not finite.

    >>> from mxfp.data import Layer
    >>> found = compare(Layer("ones", np.ones((1, 64)), np.ones((1, 64))))
    >>> found.ks, {point.largest_error for curve in found.curves for point in curve.points}
    ([32, 64], {0.0})
    """
    fmt_b = fmt_b or fmt
    check_formats(fmt, fmt_b)
    layer = _checked(layer)
    layer_k = layer.activations.shape[1]
    lengths = _lengths(fmt, layer_k) if ks is None else sorted({_length(k) for k in _some(ks, "K")})
    joined = -(-lengths[-1] // layer_k)
    _check_size(layer, joined)
    chosen = [] if accumulators is None else list(dict.fromkeys(_some(accumulators, "accumulators")))
    for accumulator in chosen:
        _check_applies(accumulator, fmt)
    a, b = quantize(_longer(layer.activations, joined), fmt), quantize(_longer(layer.weight, joined), fmt_b)
    a, b = prefix(a, lengths[-1]), prefix(b, lengths[-1])
    chosen = chosen or default_accumulators(a, b)
    points: list[list[Point]] = [[] for _ in chosen]
    total = len(chosen) * sum(lengths) * a.shape[0] * b.shape[0]
    done = 0
    for k in lengths:
        tallies = [Tally(accumulator, k) for accumulator in chosen]
        for tally, amount in _fill(tallies, prefix(a, k), prefix(b, k)):
            done += amount
            progress(f"K = {k}, {tally.accumulator}", done, total)
        for found, tally in zip(points, tallies, strict=True):
            found.append(tally.point())
    curves = [
        Curve(
            str(accumulator),
            label(accumulator),
            accumulator.result_dtype.name,
            accumulator.width if isinstance(accumulator, FixedPoint) else None,
            found,
        )
        for accumulator, found in zip(chosen, points, strict=True)
    ]
    return Accumulation(
        layer.name,
        layer.attribution,
        fmt.name,
        fmt_b.name,
        a.shape[0],
        b.shape[0],
        layer_k,
        joined,
        curves,
    )


def _checked(layer: Layer) -> Layer:
    """The same layer; ValueError or TypeError unless it is one that has exact sums to compare with."""
    if not isinstance(layer, Layer):
        raise TypeError(f"layer is a Layer (see mxfp.data), got {type(layer).__name__}")
    a, w = real_array(layer.activations, "activations"), real_array(layer.weight, "weight")
    if a.ndim != 2 or w.ndim != 2 or a.shape[1] != w.shape[1] or 0 in (*a.shape, *w.shape):
        raise ValueError(f"activations (tokens, K) and weight (N, K) do not fit: {a.shape} and {w.shape}")
    for name, array in (("activations", a), ("weight", w)):
        if not np.isfinite(array.astype(np.float64)).all():
            raise ValueError(f"{name} of {layer.name} are not all finite, and errors need finite values")
    return Layer(layer.name, a, w, layer.attribution)


def _some(values: Any, what: str) -> list[Any]:
    """Several values as a list; ValueError for none, and for a single one that is no list."""
    if not isinstance(values, (Sequence, np.ndarray)) or isinstance(values, str) or not len(values):
        raise ValueError(f"{what}: a list of at least one, or None for the default, got {values!r}")
    return list(values)


def _lengths(fmt: BlockFormat, layer_k: int) -> list[int]:
    """One block, doubled as long as it is below the layer's K, and that K."""
    doubled = [fmt.block << n for n in range(layer_k.bit_length()) if fmt.block << n < layer_k]
    return [*doubled, layer_k]


def _length(k: Any) -> int:
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise ValueError(f"K is a number of elements, 1 or more, got {k!r}")
    return int(k)


def _check_size(layer: Layer, joined: int) -> None:
    elements = joined * max(layer.activations.size, layer.weight.size)
    if joined > 1 and elements > MOST_ELEMENTS:
        raise ValueError(
            f"{joined} rows of K = {layer.activations.shape[1]} one behind the other make {elements:,} "
            f"elements of a side, more than {MOST_ELEMENTS:,}; ask for a smaller K"
        )


def _longer(x: NDArray[Any], joined: int) -> NDArray[Any]:
    """(rows, K) -> (rows, joined * K): behind each row the rows after it, the first after the last."""
    return x if joined == 1 else np.concatenate([np.roll(x, -n, axis=0) for n in range(joined)], axis=1)


def _check_applies(accumulator: Accumulator, fmt: BlockFormat) -> None:
    if not isinstance(accumulator, Accumulator):
        raise TypeError(f"an accumulator is one such as mxfp.Sequential('float32'), got {accumulator!r}")
    try:
        check_group(accumulator.terms_of, fmt)
    except ValueError as error:
        raise ValueError(f"{accumulator} does not apply to {fmt.name}: {error}") from None


def default_accumulators(a: BlockArray, b: BlockArray) -> list[Accumulator]:
    """What is compared unless asked otherwise, for (M, K) and (N, K) in blocks along K.

    DEFAULT_MODELS; Blackwell's tensor core where it has an instruction for the formats; and registers of
    DEFAULT_WIDTHS, each with the finest LSB with which it holds a sum of K products of the largest
    elements under the largest scales of both sides.
    """
    found = [accumulator_named(text) for text in DEFAULT_MODELS]
    elements = {q.format.element.name for q in (a, b)}
    if elements == {E2M1.name} and a.format.block % (BLACKWELL_MXFP4.terms_of or 1) == 0:
        found.append(BLACKWELL_MXFP4)
    elif "INT8" not in elements and a.format.block == 32:
        found.append(BLACKWELL_MXF8F6F4)
    bits = sum_width(a.format, b.format, a.shape[-1])
    unit = sum(q.format.element.lsb_exponent + _largest_scale(q) for q in (a, b))
    return [*found, *(FixedPoint(width, unit + bits - width) for width in DEFAULT_WIDTHS)]


def _largest_scale(q: BlockArray) -> int:
    """The smallest e such that no scale exceeds 2**e."""
    values = q.format.scale.values[q.scales]
    mantissa, exponent = math.frexp(float(np.max(values, where=np.isfinite(values), initial=0.0)))
    return exponent - (mantissa == 0.5)


def label(accumulator: Accumulator) -> str:
    """The short text of an accumulator; a register's without the defaults at its end.

    >>> label(FixedPoint(24, -12)), label(FixedPoint(24, -12, "wrap")), label(Exact("float32"))
    ('fixed:24:-12', 'fixed:24:-12:wrap', 'exact:float32')
    """
    text = str(accumulator)
    while isinstance(accumulator, FixedPoint) and text.count(":") > 2:
        shorter = text.rpartition(":")[0]
        if accumulator_named(shorter) != accumulator:
            break
        text = shorter
    return text


def prefix(q: BlockArray, k: int) -> BlockArray:
    """(rows, K) in blocks along K -> its first k elements, the same codes and scales."""
    scales = q.scales[:, : blocks_along(k, q.format.block)]
    return BlockArray(q.codes[:, :k], scales, q.format, -1, q.tensor_scale)


def _rows(q: BlockArray, rows: slice) -> BlockArray:
    return BlockArray(q.codes[rows], q.scales[rows], q.format, -1, q.tensor_scale)


def _tiles(m: int, n: int, terms: int) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of outputs of so many terms each, about TERMS of them at a time."""
    width = max(min(n, TERMS // terms), 1)
    height = max(TERMS // (terms * width), 1)
    for top in range(0, m, height):
        for left in range(0, n, width):
            yield slice(top, min(top + height, m)), slice(left, min(left + width, n))


def _fill(tallies: Sequence[Tally], a: BlockArray, b: BlockArray) -> Iterator[tuple[Tally, int]]:
    """Every output of (M, K) and (N, K) into every tally; yields what has been done, to show and to stop."""
    finest = min(check_group(tally.accumulator.terms_of, a.format) for tally in tallies)
    for rows, columns in _tiles(a.shape[0], b.shape[0], blocks_along(a.shape[1], finest)):
        left, right = _rows(a, rows), _rows(b, columns)
        exact = matmul(left, right.T, accumulator=Exact("float64"))
        rounded: dict[Any, NDArray[Any]] = {exact.dtype: exact}
        terms: dict[int, Terms] = {}
        for tally in tallies:
            accumulator, dtype = tally.accumulator, tally.accumulator.result_dtype
            if dtype not in rounded:
                rounded[dtype] = matmul(left, right.T, accumulator=Exact(dtype.name))
            group = check_group(accumulator.terms_of, a.format)
            if group not in terms:
                terms[group] = _terms(left, right, group)
            product = matmul(left, right.T, accumulator=_never_raising(accumulator))
            tally.add(product, exact, rounded[dtype], terms[group], (rows.start, columns.start))
            yield tally, exact.size * a.shape[1]


def _terms(a: BlockArray, b: BlockArray, group: int) -> Terms:
    """(M, K) and (N, K) -> the terms of every output, (M, N, n)."""
    left, right = (operand(q.codes, q.scales, q.format, q.tensor_scale, group) for q in (a, b))
    return dots(left, right, outer=True)


def _never_raising(accumulator: Accumulator) -> Accumulator:
    """The same, but that a register wraps where it would raise: until then both hold the same."""
    if isinstance(accumulator, FixedPoint) and accumulator.overflow == "raise":
        return replace(accumulator, overflow="wrap")
    return accumulator
