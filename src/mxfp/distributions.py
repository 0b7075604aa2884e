# SPDX-License-Identifier: Apache-2.0
"""Side room off 9: inputs by the name of their distribution, as codes and scale codes.

The five of elements are those that models of tensor cores are compared on (the sweeps against MMA-Sim,
arXiv:2511.10909); scales have theirs beside them. All are derived from a format's tables.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from .blocks import BlockArray, blocks_along, check_axis, check_choice, quantize
from .encode import encode
from .formats import BlockFormat, Codes, ElementFormat, ScaleFormat

Distribution = Literal["normal", "bits", "edges", "zero-mixed", "subnormal"]
"""How elements are drawn, see `draw`."""
Scales = Literal["unit", "near-unit", "wide", "uniform", "bits", "corner"]
"""How scales are drawn, see `draw`."""

DISTRIBUTIONS: Final[tuple[Distribution, ...]] = ("normal", "bits", "edges", "zero-mixed", "subnormal")
SCALES: Final[tuple[Scales, ...]] = ("unit", "near-unit", "wide", "uniform", "bits", "corner")

REACH: Final[dict[str, float]] = {"unit": 0, "near-unit": 4, "wide": 30}
"""Scales of value 2**-reach … 2**reach."""
ZEROS: Final = (0.25, 0.35)
"""Of elements drawn "zero-mixed": +0 below the first share, -0 between the two."""


def draw(
    name: Distribution,
    fmt: BlockFormat,
    shape: int | tuple[int, ...],
    rng: np.random.Generator,
    *,
    axis: int = -1,
    scales: Scales | None = None,
    finite: bool = False,
) -> BlockArray:
    """A BlockArray of this shape, its elements drawn by `name` and its scales by `scales`.

    Elements, each on its own:

    - "normal": standard Gaussian numbers, quantized.
    - "bits": any code at all, all equally likely; NaN and infinities where the element has them.
    - "edges": one of `edges`, all equally likely: zero, the ends of subnormals and normals, 1, NaN and
      infinities.
    - "zero-mixed": as "bits", but a quarter are +0 and a tenth are -0 (0 where there is none).
    - "subnormal": Gaussian numbers times the smallest normal, each rounded to an element.

    Scale codes, all that qualify equally likely: "unit", of value 1; "near-unit", of value 2**-4 … 2**4;
    "wide", of value 2**-30 … 2**30; "uniform", any but NaN; "bits", any that exists, NaN among them;
    "corner", the two smallest, that of 1, and the two largest. None is what "normal" is quantized with
    (the format's default rule), and "near-unit" for the others.

    finite=True leaves NaN and infinities out of elements and scales. The tensor scale is 1. The draws are
    defined by the state of `rng`: elements first, in C order, then scales.

    Raises ValueError for a name that does not exist and for sizes below 0, TypeError for what is no shape,
    no format or no Generator.

    >>> import mxfp, numpy as np
    >>> q = draw("edges", mxfp.MXFP4, (2, 64), np.random.default_rng(1), scales="near-unit")
    >>> sorted(set(np.abs(mxfp.decode(q.codes, mxfp.E2M1)).ravel().tolist()))
    [0.0, 0.5, 1.0, 4.0, 6.0]
    >>> q.scales.tolist()
    [[125, 125], [125, 128]]
    """
    check_choice(name, DISTRIBUTIONS, "name")
    if scales is not None:
        check_choice(scales, SCALES, "scales")
    if not isinstance(fmt, BlockFormat):
        raise TypeError(f"fmt must be a block format such as mxfp.MXFP4, got {fmt!r}")
    if not isinstance(rng, np.random.Generator):
        raise TypeError(f"rng must be a numpy.random.Generator, such as default_rng(1), got {rng!r}")
    sizes = sizes_of(shape)
    where = check_axis(axis, len(sizes), "shape")
    element = fmt.element
    if name == "normal":
        tensor_scale = 1.0 if fmt.tensor_scale else None
        q = quantize(
            rng.standard_normal(sizes), fmt, axis=axis, tensor_scale=tensor_scale, engine="reference"
        )
        if scales is None:
            return q
        codes = q.codes
    elif name == "subnormal":
        codes = encode(rng.standard_normal(sizes) * element.smallest_normal, element)
    elif name == "edges":
        codes = _choice(rng, edges(element, finite=finite), sizes)
    else:
        every = np.arange(element.code_count)
        codes = _choice(rng, every[element.finite] if finite else every, sizes)
        if name == "zero-mixed":
            share = _uniform(rng, sizes)
            codes = np.where(share < ZEROS[1], element.negated[0], codes)
            codes = np.where(share < ZEROS[0], 0, codes).astype(np.uint8)
    blocks = (*sizes[:where], blocks_along(sizes[where], fmt.block), *sizes[where + 1 :])
    drawn = _choice(rng, scale_codes(fmt.scale, scales or "near-unit", finite=finite), blocks)
    return BlockArray(codes, drawn, fmt, axis)


def sizes_of(shape: Any) -> tuple[int, ...]:
    """A shape as numpy takes it, an integer or several -> a tuple; TypeError or ValueError for others."""
    several = isinstance(shape, (tuple, list, np.ndarray))
    sizes = tuple(shape) if several else (shape,)
    if not all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in sizes):
        raise TypeError(f"shape is an integer or a tuple of integers, got {shape!r}")
    if any(n < 0 for n in sizes):
        raise ValueError(f"shape is a number of elements along each axis, 0 or more, got {shape!r}")
    return tuple(map(int, sizes))


def edges(element: ElementFormat, *, finite: bool = False) -> Codes:
    """(n,) uint8: the codes of the values at which arithmetic changes its ways, each once.

    Of both signs: 0, the smallest and the largest subnormal, the smallest normal and four times it, 1, the
    largest value (INT8: both its ends); where the element has them and `finite` is False, infinities and
    the NaN that encoding gives.

    >>> import mxfp
    >>> mxfp.decode(edges(mxfp.E5M2)[:8], mxfp.E5M2).tolist()
    [0.0, 1.52587890625e-05, 4.57763671875e-05, 6.103515625e-05, 0.000244140625, 1.0, 57344.0, inf]
    """
    if not isinstance(element, ElementFormat):
        raise TypeError(f"element must be an element format such as mxfp.E2M1, got {element!r}")
    small, normal = element.smallest_subnormal, element.smallest_normal
    values = np.array([0.0, small, normal - small, normal, 4 * normal, 1.0, element.max])
    codes = set(encode(np.concatenate([values, -values]), element).tolist())
    codes.add(int(np.argmin(element.integers)))
    if not finite:
        codes.update(np.flatnonzero(np.isinf(element.values)).tolist())
        codes.update(() if element.nan_code is None else (element.nan_code,))
    return np.array(sorted(codes), np.uint8)


def scale_codes(scale: ScaleFormat, name: Scales, *, finite: bool = False) -> Codes:
    """(n,) uint8: the scale codes that `draw` chooses from.

    >>> import mxfp
    >>> scale_codes(mxfp.E8M0, "corner").tolist(), scale_codes(mxfp.UE4M3, "corner").tolist()
    ([0, 1, 127, 253, 254], [0, 1, 56, 125, 126])
    """
    if not isinstance(scale, ScaleFormat):
        raise TypeError(f"scale must be a scale format such as mxfp.E8M0, got {scale!r}")
    check_choice(name, SCALES, "scales")
    codes = np.arange(scale.code_count)
    if name in REACH:
        with np.errstate(invalid="ignore"):
            near = (scale.values >= 2.0 ** -REACH[name]) & (scale.values <= 2.0 ** REACH[name])
        codes = codes[near]
    elif name == "corner":
        number = codes[scale.finite]
        codes = np.unique([*number[:2], *np.flatnonzero(scale.values == 1.0), *number[-2:]])
    elif name == "uniform" or finite:
        codes = codes[scale.finite]
    if not codes.size:
        raise ValueError(f"{scale.name} has no scale that is {name!r}; scales are {', '.join(SCALES)}")
    return codes.astype(np.uint8)


def _choice(rng: np.random.Generator, codes: NDArray[Any], shape: tuple[int, ...]) -> Codes:
    """One of these codes for each place: word * count / 2**32 of a 32-bit word."""
    index = (_words(rng, shape) * np.uint64(len(codes))) >> np.uint64(32)
    return codes.astype(np.uint8)[index.astype(np.intp)]


def _uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
    return np.ldexp(_words(rng, shape).astype(np.float64), -32)


def _words(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.uint64]:
    """32-bit words, the upper halves of the bit generator's; numpy keeps those streams as they are."""
    return rng.integers(0, 2**64, shape, dtype=np.uint64) >> np.uint64(32)
