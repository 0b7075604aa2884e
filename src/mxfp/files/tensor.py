# SPDX-License-Identifier: Apache-2.0
"""A tensor of a model as a user means it: one array, however many tensors of the file it lies in."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..formats import BlockFormat, ScaleRule
from .header import TensorInfo

Bytes = NDArray[np.uint8]
Fetch = Callable[[TensorInfo, int, int], Bytes]
"""(a tensor of the file, first byte, how many) -> those bytes, 1-D."""


def printable(name: str) -> str:
    r"""A name of whatever file as a page or a terminal can show it: nothing in it is a command.

    >>> print(printable("blk.é\x1b[2J"))
    blk.é\x1b[2J
    """
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)


class LayoutError(ValueError):
    """A layout or a container cannot hold this: one line, with what was given and what it can hold."""


@dataclass(frozen=True)
class Tensor:
    """One array of a model, and where it lies.

    name: what the model calls it ("model.layers.0.mlp.experts.down_proj", not "…_blocks"). shape: of the
    array that it stands for. type: "F32", "BF16", "Q4_K", or a block format's name. layout: how a
    BlockArray lies in the file ("gpt-oss", "gguf" …), empty for plain tensors. parts: the tensors of the
    file that hold it. format, axis, scale_rule: of the BlockArray, None where it is none or not known.
    step: rows that `rows` and `write` take are multiples of this, but for the last.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    parts: tuple[TensorInfo, ...]
    layout: str = ""
    format: BlockFormat | None = None
    axis: int = -1
    scale_rule: ScaleRule | None = None
    step: int = 1

    @property
    def elements(self) -> int:
        """The product of the shape."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes in the file, of all parts."""
        return sum(part.nbytes for part in self.parts)

    @property
    def rows(self) -> int:
        """Length of the first axis; 1 for a scalar."""
        return self.shape[0] if self.shape else 1

    @property
    def bits(self) -> float:
        """Bits an element; 0 where there are none."""
        return 8 * self.nbytes / self.elements if self.elements else 0.0

    @property
    def block_axis(self) -> int:
        """The block axis, counted from 0; 0 where there is none."""
        return self.axis % max(len(self.shape), 1)

    def tile(self, size: int) -> int:
        """Rows, a multiple of `step`, that hold about `size` elements; at least one step."""
        if not self.elements:
            return max(self.rows, 1)  # rows of nothing, of which a header can claim any number
        each = max(self.elements // max(self.rows, 1), 1)
        return max(size // each // self.step, 1) * self.step


@dataclass(frozen=True)
class Declared:
    """A tensor to be written: its name, shape, and type: "F32" and the like, or a BlockFormat.

    axis, scale_rule: of the BlockArray that is written.
    """

    name: str
    shape: tuple[int, ...]
    type: str | BlockFormat
    axis: int = -1
    scale_rule: ScaleRule | None = None
