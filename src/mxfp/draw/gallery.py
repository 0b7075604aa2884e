# SPDX-License-Identifier: Apache-2.0
"""The figures by name, each with what it is made of if nothing is said, and the pictures of the pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..accumulate import Accumulator
from ..blocks import BlockArray, quantize
from ..encode import Rounding
from ..formats import BLOCK_FORMATS, ELEMENT_FORMATS, BlockFormat, ScaleRule
from ..names import accumulator as accumulator_named
from . import example
from .accumulators import ACCUMULATORS, accumulators
from .adder_tree import adder_tree
from .bit_layout import bit_layout
from .block import block
from .errors import FORMATS, errors
from .number_line import number_line
from .scale_rules import scale_rules
from .style import render

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Entry:
    """A figure that has a name: what it shows in a line, and the function that makes it from options."""

    summary: str
    make: Callable[..., Figure]

    @property
    def options(self) -> tuple[str, ...]:
        """The options that it takes."""
        return tuple(signature(self.make).parameters)


def _number_line(*, format: str = "E2M1", rounding: Rounding = "nearest_even") -> Figure:
    return number_line(_format(format, {**ELEMENT_FORMATS, **BLOCK_FORMATS}), rounding=rounding)


def _block(
    *,
    format: str = "MXFP4",
    values: Sequence[float] | None = None,
    scale_rule: ScaleRule | None = None,
    rounding: Rounding = "nearest_even",
    seed: int = 0,
) -> Figure:
    fmt = _block_format(format)
    rng = np.random.default_rng(seed) if rounding == "stochastic" else None
    return block(_first(values, fmt), fmt, rule=scale_rule, rounding=rounding, rng=rng)


def _scale_rules(
    *, format: str = "MXFP4", values: Sequence[float] | None = None, rounding: Rounding = "nearest_even"
) -> Figure:
    fmt = _block_format(format)
    return scale_rules(_first(values, fmt), fmt, rounding=rounding)


def _adder_tree(
    *,
    format: str = "MXFP4",
    values: Sequence[float] | None = None,
    values_b: Sequence[float] | None = None,
    width: int | None = None,
) -> Figure:
    fmt = _block_format(format)
    sides = _pair(values, values_b, example.A[: fmt.block], example.B[: fmt.block], fmt)
    return adder_tree(sides[0].codes, sides[1].codes, fmt, width=width)


def _accumulators(
    *,
    format: str = "MXFP4",
    values: Sequence[float] | None = None,
    values_b: Sequence[float] | None = None,
    accumulator: Sequence[str | Accumulator] = (),
) -> Figure:
    sides = _pair(values, values_b, example.LONG_A, example.LONG_B, _block_format(format))
    chosen = [accumulator_named(a) if isinstance(a, str) else a for a in accumulator]
    return accumulators(*sides, chosen or ACCUMULATORS)


def _bit_layout(*, format: str = "E2M1") -> Figure:
    return bit_layout(format)


def _errors(*, weights: Any, format: str | None = None) -> Figure:
    return errors(weights, FORMATS if format is None else (_block_format(format),))


FIGURES: Final[dict[str, Entry]] = {
    "number-line": Entry("values of a format, gaps between them, and where ties go", _number_line),
    "block": Entry("a block before and after: saturated, to zero, ties", _block),
    "scale-rules": Entry("the scale rules side by side on one block", _scale_rules),
    "adder-tree": Entry("products of two blocks added in a tree, and the bits of each level", _adder_tree),
    "accumulators": Entry("accumulators step by step against the exact sum", _accumulators),
    "bit-layout": Entry("the bits of a code; of a block format, its packed bytes", _bit_layout),
    "errors": Entry("errors of real weights in each format", _errors),
}
"""Every figure by its name, in the order of the rooms."""

PICTURES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "number-line-e2m1": ("number-line", {}),
    "number-line-e4m3": ("number-line", {"format": "E4M3"}),
    "number-line-int8": ("number-line", {"format": "INT8"}),
    "scale-rules": ("scale-rules", {}),
    "block": ("block", {}),
    "block-rceil": ("block", {"scale_rule": "rceil"}),
    "bit-layout-e2m1": ("bit-layout", {}),
    "bit-layout-e8m0": ("bit-layout", {"format": "E8M0"}),
    "bit-layout-mxfp4": ("bit-layout", {"format": "MXFP4"}),
    "bit-layout-mxfp6": ("bit-layout", {"format": "MXFP6_E2M3"}),
    "adder-tree": ("adder-tree", {}),
    "adder-tree-largest": (
        "adder-tree",
        {"values": (6.0,) * 32, "values_b": (6.0,) * 32, "width": 13},
    ),
    "accumulators": ("accumulators", {}),
    "errors": ("errors", {}),
}
"""The pictures of the documentation: file name without its ending -> figure and options."""


def named(name: str, **options: Any) -> Figure:
    """A figure by its name, from the options given and the running example.

    Raises ValueError for a name that is none, and for an option that the figure does not take.

    >>> named("bit-layout", format="e8m0").get_label().splitlines()[0]
    'E8M0: the bits of a code'
    """
    entry = FIGURES.get(name)
    if entry is None:
        raise ValueError(f"figures are {', '.join(FIGURES)}; got {name!r}")
    for option in options:
        if option not in entry.options:
            raise ValueError(f"{name} is drawn from {', '.join(entry.options)}, not from {option}")
    return entry.make(**options)


def pictures(weights: Any) -> dict[str, bytes]:
    """The pictures of the documentation as SVG files by name; `weights` are those of the errors."""
    made = {}
    for file, (name, options) in PICTURES.items():
        given = {"weights": weights} if "weights" in FIGURES[name].options else {}
        made[f"{file}.svg"] = render(named(name, **options, **given))
    return made


def _format(name: str, known: dict[str, Any]) -> Any:
    if name.upper() not in known:
        raise ValueError(f"the format is one of {', '.join(known)}, got {name!r}")
    return known[name.upper()]


def _block_format(name: str) -> BlockFormat:
    found: BlockFormat = _format(name, BLOCK_FORMATS)
    return found


def _first(values: Sequence[float] | None, fmt: BlockFormat) -> Sequence[float]:
    """The values given, or as much of the running example as a block holds."""
    return example.A[: fmt.block] if values is None else values


def _pair(
    a: Sequence[float] | None,
    b: Sequence[float] | None,
    default_a: Sequence[float],
    default_b: Sequence[float],
    fmt: BlockFormat,
) -> tuple[BlockArray, BlockArray]:
    """Both sides quantized: those given, or both of the example."""
    if (a is None) != (b is None):
        raise ValueError("give the values of both sides, or of neither for the running example")
    sides = (default_a, default_b) if a is None or b is None else (a, b)
    if len(sides[0]) != len(sides[1]):
        raise ValueError(f"both sides have as many values, got {len(sides[0])} and {len(sides[1])}")
    return quantize(sides[0], fmt, engine="reference"), quantize(sides[1], fmt, engine="reference")
