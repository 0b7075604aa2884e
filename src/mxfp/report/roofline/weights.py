# SPDX-License-Identifier: Apache-2.0
"""One weight (N, K) in every format, in as many copies as no cache holds, and the activations for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...blocks import BlockArray, blocks_along, quantize
from ...formats import BLOCK_FORMATS, BlockFormat
from ...prepared import BLOCK, WIDTH, PreparedMatrix, block_bytes, prepare
from .caches import COLD
from .roofline import Traffic

FLOATS: Final = {"float16": 2, "float32": 4}
"""Plain formats, and their bytes."""
FORMATS: Final = (*BLOCK_FORMATS, *FLOATS)
MOST_BYTES: Final = 1 << 30
"""Bytes that the copies of a weight take at most, unless a single one is larger."""
MOST_COPIES: Final = 256
STRIPS: Final = 8
"""A weight is drawn once and repeated so many times along N, which saves most of the time to make it."""
CHECKED: Final = 8
"""Columns and rows of a product that the reference computes too."""


def weight_bytes(fmt: str, n: int, k: int) -> int:
    """Bytes of a weight (N, K): of a block format as `mxfp.prepare` lays it out.

    >>> weight_bytes("MXFP4", 32, 64), weight_bytes("float16", 32, 64)
    (1088, 4096)
    """
    if fmt in FLOATS:
        return FLOATS[fmt] * n * k
    block = BLOCK_FORMATS[fmt]
    panels, blocks = blocks_along(n, WIDTH), blocks_along(k, BLOCK)
    scales = panels * blocks * (BLOCK // block.block) * WIDTH
    return panels * blocks * block_bytes(block) + scales + 4 * block.tensor_scale


def traffic(fmt: str, n: int, k: int) -> Traffic:
    """Bytes of weights, and in and out of a row: activations in the same format, results in float32.

    Activations in a block format are a BlockArray's, which holds each code in a byte.

    >>> traffic("MXFP4", 32, 64), traffic("float32", 32, 64)
    (Traffic(weights=1088, row=194), Traffic(weights=8192, row=384))
    """
    row = FLOATS[fmt] * k if fmt in FLOATS else k + blocks_along(k, BLOCK_FORMATS[fmt].block)
    return Traffic(weight_bytes(fmt, n, k), row + 4 * n)


def copies(nbytes: int, last_level: int) -> int:
    """How many copies of so many bytes no cache holds, within MOST_BYTES.

    >>> copies(30 << 20, 16 << 20), copies(100 << 20, 16 << 20)
    (3, 1)
    """
    wanted = -(-COLD * last_level // nbytes)
    return max(min(wanted, MOST_BYTES // nbytes, MOST_COPIES), 1)


def strips(n: int) -> int:
    """How often the strip that is drawn is repeated along N."""
    return STRIPS if n % (STRIPS * WIDTH) == 0 else 1


class Turns:
    """Calls of a function with each of some things in turn."""

    def __init__(self, function: Callable[[Any], Any], things: Sequence[Any]) -> None:
        self.function, self.things, self.next = function, things, 0

    def __call__(self) -> Any:
        """The next call."""
        self.next = (self.next + 1) % len(self.things)
        return self.function(self.things[self.next])


class Weights:
    """A weight (N, K) in the formats asked for, and activations (M, K); random, the same in every run."""

    def __init__(self, n: int, k: int, most_rows: int, last_level: int) -> None:
        self.n, self.k, self.last_level = n, k, last_level
        rng = np.random.default_rng((n, k))
        self.strips = strips(n)
        self.strip = rng.standard_normal((n // self.strips, k), np.float32)
        self.activations = rng.standard_normal((most_rows, k), np.float32)

    def count(self, fmt: str) -> int:
        """Copies of the weight in a format."""
        return copies(weight_bytes(fmt, self.n, self.k), self.last_level)

    def _repeated(self, strip: NDArray[Any]) -> list[NDArray[Any]]:
        fmt = strip.dtype.name
        return [np.tile(strip, (self.strips, 1)) for _ in range(self.count(fmt))]

    @cached_property
    def float32(self) -> list[NDArray[Any]]:
        """Copies in float32."""
        return self._repeated(self.strip)

    @cached_property
    def float16(self) -> list[NDArray[Any]]:
        """Copies in float16."""
        return self._repeated(self.strip.astype(np.float16))

    @cached_property
    def activations16(self) -> NDArray[Any]:
        """The activations in float16."""
        return self.activations.astype(np.float16)

    def prepared(self, fmt: BlockFormat) -> tuple[list[PreparedMatrix], BlockArray]:
        """Copies in a block format, and a strip of it (rows, K) as a BlockArray."""
        strip = quantize(self.strip, fmt)
        laid = prepare(strip.T)
        made = []
        for _ in range(self.count(fmt.name)):
            codes, scales = (np.tile(part, self.strips) for part in (laid.codes, laid.scales))
            codes.flags.writeable = scales.flags.writeable = False
            made.append(PreparedMatrix(codes, scales, fmt, (self.k, self.n), laid.tensor_scale))
        for one in made:  # what a first product would look for
            _ = one.marked, one.live_scales
        return made, strip
