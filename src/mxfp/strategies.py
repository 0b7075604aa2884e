# SPDX-License-Identifier: Apache-2.0
"""Property testing for others: hypothesis strategies for codes, scales, blocks and dot products.

Needs the extra `hypothesis`. What is drawn shrinks to what is easiest to read: few blocks, few lanes, the
first ones; element codes to 0, then to that of 1.0, scale codes to that of 1.0. See docs/property-testing.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import Any, Final, Literal, get_args

import ml_dtypes
import numpy as np

from .blocks import BlockArray, blocks_along, check_axis, check_choice
from .distributions import sizes_of
from .dot import Terms, block_dots
from .drafts import SWAMPED, Draft, one_of
from .floats import float_dtype
from .formats import MXFP4, BlockFormat, ElementFormat, ScaleFormat, element_of
from .pairs import DotPair, describe, fewest_and_most

try:
    from hypothesis import assume
    from hypothesis import strategies as st
except ImportError as error:
    raise ImportError(
        "mxfp.strategies needs hypothesis, which is not installed: pip install 'mxfp-emulator[hypothesis]'"
    ) from error

__all__ = [
    "BIASES",
    "Bias",
    "DotPair",
    "block_arrays",
    "blocks",
    "codes",
    "describe",
    "dot_pairs",
    "scales",
    "terms",
]

Bias = Literal["any", "cancellation", "ties", "swamping", "near_overflow", "scale_extremes", "nan_scales"]
"""What a pair for a dot product is made to strain; see `dot_pairs`."""
BIASES: Final[tuple[Bias, ...]] = get_args(Bias)

REACHES: Final = (3, 12, 12, 12, 255)
"""How far scale codes lie from that of 1.0 in a pair, as often as it stands here."""

Draw = Any
"""What `hypothesis.strategies.composite` hands to the function that it decorates."""


@cache
def _readable(element: ElementFormat, specials: bool) -> tuple[int, ...]:
    """The codes, simplest first: 0; from 1.0 up; below 1.0 down; negative ones likewise; -0; specials."""

    def place(code: int) -> tuple[Any, ...]:
        value, negative = float(element.values[code]), bool(element.negative[code])
        size = abs(value)
        if not math.isfinite(value):
            return (3, math.isnan(value), negative, code)
        if not value:
            return (2 * negative, 1)
        return (1, negative, size < 1, size if size >= 1 else -size)

    finite = sorted(np.flatnonzero(element.finite).tolist(), key=place)
    others = sorted(np.flatnonzero(~element.finite).tolist(), key=place) if specials else []
    return (*finite, *others * (len(finite) // (8 * len(others) or 1)))  # one in nine


def codes(fmt: ElementFormat | BlockFormat, *, specials: bool = False) -> st.SearchStrategy[int]:
    """Element codes, as int. They shrink to 0, then to the code of 1.0. specials: NaN and infinities too.

    >>> import mxfp
    >>> from hypothesis import find, settings
    >>> find(codes(mxfp.E2M1), lambda code: code > 8, settings=settings(database=None, deadline=None))
    10
    """
    return st.sampled_from(_readable(element_of(fmt), specials))


def scales(fmt: ScaleFormat | BlockFormat, *, nan: bool = False) -> st.SearchStrategy[int]:
    """Scale codes, as int. They shrink to the code of 1.0 (E8M0: 127). nan: the code of NaN too.

    >>> import mxfp
    >>> from hypothesis import find, settings
    >>> find(scales(mxfp.MXFP4), lambda code: code > 130, settings=settings(database=None, deadline=None))
    131
    """
    scale = fmt.scale if isinstance(fmt, BlockFormat) else fmt
    if not isinstance(scale, ScaleFormat):
        raise TypeError(f"expected a scale or block format such as mxfp.E8M0 or mxfp.MXFP4, got {fmt!r}")
    one = one_of(scale)
    finite = st.integers(-one, scale.nan_code - 1 - one).map(lambda offset: one + offset)
    return st.one_of(finite, finite, finite, st.just(scale.nan_code)) if nan else finite


def _block_format(fmt: Any) -> BlockFormat:
    if not isinstance(fmt, BlockFormat):
        raise TypeError(f"expected a block format such as mxfp.MXFP4, got {fmt!r}")
    return fmt


def blocks(
    fmt: BlockFormat = MXFP4, *, specials: bool = False, nan: bool = False
) -> st.SearchStrategy[BlockArray]:
    """One block: a BlockArray of shape (block,). It shrinks as `block_arrays` do."""
    return block_arrays(fmt, _block_format(fmt).block, specials=specials, nan=nan)


def block_arrays(
    fmt: BlockFormat, shape: Any, *, axis: int = -1, specials: bool = False, nan: bool = False
) -> st.SearchStrategy[BlockArray]:
    """BlockArrays of a shape, in blocks along `axis`.

    shape: an int, a tuple of int, or a strategy that draws either. specials: NaN and infinite codes too;
    nan: NaN scales too. A tensor scale is 1. Arrays shrink to zeros at a scale of 1.0, then to few nonzero
    elements, those that come first along the block axis.

    >>> import mxfp
    >>> from hypothesis import find, settings
    >>> plain = settings(database=None, deadline=None)
    >>> find(block_arrays(mxfp.MXFP4, (2, 40)), lambda q: q.codes.any(), settings=plain).codes[:, :3].tolist()
    [[2, 0, 0], [0, 0, 0]]
    """
    _block_format(fmt)
    shapes = shape
    if not isinstance(shape, st.SearchStrategy):
        sizes = sizes_of(shape)
        check_axis(axis, len(sizes), f"a shape {sizes}")
        shapes = st.just(sizes)
    some_codes = st.lists(codes(fmt, specials=specials))
    some_scales = st.lists(scales(fmt, nan=nan), min_size=1, max_size=8)

    @st.composite
    def arrays(draw: Draw) -> BlockArray:
        sizes = sizes_of(draw(shapes))
        where = check_axis(axis, len(sizes), f"a shape {sizes}")
        rest = sizes[:where] + sizes[where + 1 :]
        flat = np.zeros(math.prod(sizes), np.uint8)
        fill, found = draw(st.integers(0, flat.size)), draw(some_codes)[: flat.size]
        if found:
            filled = max(fill, len(found))
            flat[:filled] = np.resize(np.array(found, np.uint8), filled)
        count = blocks_along(sizes[where], fmt.block)
        scale = np.resize(np.array(draw(some_scales), np.uint8), (*rest, count))
        along = flat.reshape(*rest, sizes[where])
        return BlockArray(np.moveaxis(along, -1, where), np.moveaxis(scale, -1, where), fmt, axis)

    return arrays()


def dot_pairs(
    fmt_a: BlockFormat = MXFP4,
    fmt_b: BlockFormat | None = None,
    *,
    blocks: int | tuple[int, int] = (1, 8),
    bias: Bias | Iterable[Bias] = BIASES,
    dtype: Any = "float32",
) -> st.SearchStrategy[DotPair]:
    """Pairs (a, b) of vectors in whole blocks, made to strain what adds their products.

    fmt_b: None is fmt_a. blocks: how many, or (fewest, most). dtype: of the accumulator. bias: one of these
    or several, of which each pair has one; it shrinks to the first that serves, "any" before all others.

    "any": whatever. "cancellation": the exact sum is 0 or one LSB, within each block or across blocks.
    "ties": a running sum on the midpoint of two floats of dtype, or one LSB beside it. "swamping": a large
    term before or behind many small ones, the gap around dtype's precision. "near_overflow": sums of
    products near the largest, or terms near dtype's overflow, smallest normal or smallest subnormal.
    "scale_extremes": the lowest and highest scale codes, and those around 1.0. "nan_scales": one or more.

    >>> import mxfp
    >>> from hypothesis import find, settings
    >>> plain = settings(database=None, deadline=None)
    >>> find(dot_pairs(bias="any"), lambda pair: mxfp.block_dots(*pair).sums.any(), settings=plain)
    MXFP4 × MXFP4, K = 32, exact sum 1
    block 0: scales 127 × 127, term 4 · 2^-2 = 1
      lane 0: 1 × 1 (codes 2, 2)
    """
    fmt_b = fmt_a if fmt_b is None else fmt_b
    if _block_format(fmt_a).block != _block_format(fmt_b).block:
        raise ValueError(f"block sizes must be equal: {fmt_a} has {fmt_a.block}, {fmt_b} {fmt_b.block}")
    for fmt in (fmt_a, fmt_b):
        if len(fmt.element.magnitudes) < 2:
            raise ValueError(f"{fmt} has no element but zero, so that there is nothing to add")
    low, high = fewest_and_most(blocks)
    wanted = (bias,) if isinstance(bias, str) or not isinstance(bias, Iterable) else tuple(bias)
    if not wanted:
        raise ValueError(f"bias is one of {', '.join(BIASES)}, or several of them, got none")
    for one in wanted:
        check_choice(one, BIASES, "bias")
    kept = sorted(set(wanted) - ({"swamping", "ties"} if high == 1 else set()), key=BIASES.index)
    if not kept:
        raise ValueError(f"bias {bias!r} needs room for two blocks or more, got blocks={blocks!r}")
    info = ml_dtypes.finfo(float_dtype(dtype))  # type: ignore[no-untyped-call]
    # hypothesis deletes five draws at once, no more: a block of zeros is four and one that says it is there.
    # It deletes none from a list as long as it may be, so that these may be longer than what is used.
    size, chosen, reaches = fmt_a.block, st.sampled_from(kept), st.sampled_from(REACHES)
    fills, lanes = st.integers(0, size), st.lists(st.tuples(codes(fmt_a), _magnitudes(fmt_b.element)))
    most = high if low == high else 4 * high
    drafts = {}
    for reach in sorted(set(REACHES)):
        block = st.tuples(_near(fmt_a.scale, reach), _near(fmt_b.scale, reach), fills, lanes)
        drafts[reach] = st.lists(block, min_size=low, max_size=most)
    edge = st.tuples(_edges(fmt_a.scale), _edges(fmt_b.scale))

    @st.composite
    def pairs(draw: Draw) -> DotPair:
        first, flip = draw(st.integers(0, size - 1)), draw(st.integers(0, 3))
        found = draw(drafts[draw(reaches)])[:high]
        draft = Draft.empty(fmt_a, fmt_b, len(found))
        for row, (scale_a, scale_b, fill, lanes) in enumerate(found):
            draft.scales_a[row], draft.scales_b[row] = scale_a, scale_b
            draft.tile(row, lanes, first=first, fill=fill, flip=flip)
        _strain(draw(chosen), draw, draft, low, high, info, edge)
        draft.pad(low)
        return draft.pair()

    return pairs()


def terms(
    fmt_a: BlockFormat = MXFP4, fmt_b: BlockFormat | None = None, *, group: int | None = None, **options: Any
) -> st.SearchStrategy[Terms]:
    """The terms of `dot_pairs(fmt_a, fmt_b, **options)`, for a unit that begins at the accumulator.

    group: products per term, as for `mxfp.block_dots`.
    """
    return dot_pairs(fmt_a, fmt_b, **options).map(lambda pair: block_dots(*pair, group=group))


def _magnitudes(element: ElementFormat) -> st.SearchStrategy[int]:
    """Codes of elements that are not negative."""
    return st.sampled_from([code for code in _readable(element, False) if not element.negative[code]])


def _near(scale: ScaleFormat, reach: int) -> st.SearchStrategy[int]:
    """Scale codes within so many of that of 1.0."""
    one = one_of(scale)
    least, most = max(-one, -reach), min(scale.nan_code - 1 - one, reach)
    return st.integers(least, most).map(lambda offset: one + offset)


def _edges(scale: ScaleFormat) -> st.SearchStrategy[int]:
    """The codes around 1.0, the two lowest and highest, where they exist (E8M0: 126…128, 0, 1, 253, 254)."""
    one, top = one_of(scale), scale.nan_code - 1
    wanted = (one, one + 1, one - 1, 1, 0, top - 1, top)
    return st.sampled_from([code for code in wanted if 0 <= code <= top])


def _strain(bias: Bias, draw: Draw, draft: Draft, low: int, high: int, info: Any, edge: Any) -> None:
    """Give the draft what the bias says. low, high: how many blocks it may have; info: of the dtype."""
    size, precision = draft.format_a.block, info.nmant + 1
    if bias in ("ties", "swamping", "near_overflow"):
        assume(draft.exponents()[0] is not None)  # so that "any" has something left where it serves as well
    if bias == "cancellation":
        nudge = draw(st.sampled_from((0, 0, 1, -1)))
        if high == 1 or not draw(st.booleans()):
            draft.cancel_inside(nudge)
        else:
            draft.take(list(range(min(len(draft), high // 2))))
            draft.cancel_across(nudge, backwards=draw(st.booleans()), trade=draw(st.integers(-3, 3)))
    elif bias == "ties":
        kind = draw(st.sampled_from(("", "below", "odd", "odd, away")[: 2 if high == 2 else 4]))
        odd, below = "odd" in kind, kind == "below"
        nudge = draw(st.sampled_from((0, 1, 1, -1))) * (-1 if odd else 1)  # 1: to where no tie goes
        draft.tie(precision, nudge=nudge, odd=odd, below=below, negative=below or "away" in kind)
        for row in range(len(draft)) if draw(st.booleans()) else ():
            draft.negate(row)
    elif bias == "swamping":
        where = draw(st.sampled_from(SWAMPED[: 2 if high == 2 else 3]))
        ends = 2 if where == "large at both ends" else 1
        small = draw(st.integers(max(low - ends, 1), high - ends))
        draft.swamp(precision + draw(st.integers(-4, 4)), small, where)
    elif bias == "near_overflow":
        at = draw(st.sampled_from((*["sum"] * 9, "overflow", "normal", "subnormal")))
        if at == "sum":
            full = st.integers(size - size // 8, size)
            draft.fill(draw(st.one_of(st.integers(0, size), *[full] * 4)), negative=draw(st.booleans()))
        else:
            exponents = {
                "overflow": info.maxexp,
                "normal": info.minexp,
                "subnormal": info.minexp - info.nmant,
            }
            draft.aim(exponents[at] + draw(st.integers(-2, 2)))
    elif bias == "scale_extremes":
        ends_ab = draw(st.lists(edge, min_size=1, max_size=3))
        for row in range(len(draft)):
            draft.scales_a[row], draft.scales_b[row] = ends_ab[row % len(ends_ab)]
    elif bias == "nan_scales":
        marked = st.tuples(st.integers(0, len(draft) - 1), st.sampled_from(("a", "b", "ab")))
        for row, sides in draw(st.lists(marked, min_size=1, max_size=2)):
            draft.mark(row, sides)
