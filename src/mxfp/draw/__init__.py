# SPDX-License-Identifier: Apache-2.0
"""Figures of formats, blocks, adders and accumulators, drawn from tables and traces (extra `plot`).

Each function returns a matplotlib Figure, whose label is what it shows in words; `render` and `save` make
SVG, PNG and PDF of it, the same bytes each time. `FIGURES` has them by name, made of the running example.
"""

from . import example
from .accumulators import accumulators
from .adder_tree import adder_tree
from .bit_layout import bit_layout
from .block import block
from .errors import errors
from .gallery import FIGURES, PICTURES, named, pictures
from .number_line import number_line
from .scale_rules import scale_rules
from .style import render, save

__all__ = [
    "FIGURES",
    "PICTURES",
    "accumulators",
    "adder_tree",
    "bit_layout",
    "block",
    "errors",
    "example",
    "named",
    "number_line",
    "pictures",
    "render",
    "save",
    "scale_rules",
]
