# SPDX-License-Identifier: Apache-2.0
"""Side room off 4: a quantized matrix laid out once for the kernels, `PreparedMatrix`.

The right side of a product, most often a weight, is read panel by panel: 32 columns over all of K. A
panel of 4-bit codes is stored [block of 32 k][k // 8][column][4 bytes], where byte i holds the codes of
k % 8 = i in its low and k % 8 = i + 4 in its high bits; wider codes [block of 32 k][k // 4][column][4
bytes], one code each. Scale codes are [panel][block][column]. Columns and elements past the end are 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .blocks import (
    ENGINES,
    BlockArray,
    Engine,
    blocks_along,
    check_choice,
    check_tensor_scale,
    dequantize,
    kept,
)
from .formats import BlockFormat, Codes, check_codes

WIDTH: Final = 32
"""Columns of a panel."""
BLOCK: Final = 32
"""Elements of K that are stored together."""
PANELS: Final = 1 << 21
"""Codes that are laid out at a time."""


@dataclass(frozen=True, eq=False, repr=False)
class PreparedMatrix:
    """A quantized (K, N) matrix in blocks along K, packed for the kernels; `mxfp.prepare` makes it.

    `matmul` takes it as its right side in place of the BlockArray, and the result has the same bits.
    codes: uint8 panels; scales: uint8 scale codes; both read-only. MXFP4 takes 4.25 bits an element, K
    and N rounded up to multiples of 32.

    >>> import mxfp, numpy as np
    >>> w = mxfp.prepare(mxfp.quantize(np.eye(64), axis=0))
    >>> w
    PreparedMatrix MXFP4 (64, 64): 2,176 bytes, 4.25 bits an element
    >>> mxfp.matmul(mxfp.quantize(np.ones((1, 64))), w)[0, :3].tolist()
    [1.0, 1.0, 1.0]
    """

    codes: Codes
    scales: Codes
    format: BlockFormat
    shape: tuple[int, int]
    tensor_scale: float = 1.0

    def __post_init__(self) -> None:
        """Check the sizes, and keep the panels so that nobody else can write to them."""
        k, n = self.shape
        panels, blocks = blocks_along(n, WIDTH), blocks_along(k, BLOCK)
        check_block(self.format)
        sizes = {
            "codes": panels * blocks * block_bytes(self.format),
            "scales": panels * blocks * (BLOCK // self.format.block) * WIDTH,
        }
        for name, size in sizes.items():
            array = getattr(self, name)
            if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.shape != (size,):
                raise ValueError(
                    f"{name} of a PreparedMatrix {self.format.name} {self.shape} are uint8 ({size},), as "
                    f"prepare lays them out, got {getattr(array, 'dtype', type(array).__name__)} "
                    f"{getattr(array, 'shape', '')}"
                )
            kind = self.format.element if name == "codes" else self.format.scale
            if not (name == "codes" and kind.bits == 4):
                check_codes(array, kind.code_count, f"{kind.name} codes")
            object.__setattr__(self, name, kept(array))
        object.__setattr__(self, "tensor_scale", check_tensor_scale(self.tensor_scale, self.format))

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """Pickle and copy through the constructor, which checks and seals."""
        return PreparedMatrix, (self.codes, self.scales, self.format, self.shape, self.tensor_scale)

    @cached_property
    def marked(self) -> NDArray[np.bool_]:
        """(N,) whether a column has a NaN scale, or an element that is NaN or infinite."""
        k, n = self.shape
        panels = blocks_along(n, WIDTH)
        found = np.zeros((panels, WIDTH), np.bool_)
        if k and n:
            by_panel = self.scales.reshape(panels, -1, WIDTH)
            found |= (by_panel == self.format.scale.nan_code).any(axis=1)
            if not self.format.element.finite.all():
                for panel, codes in enumerate(self.codes.reshape(panels, 1, -1, block_bytes(self.format))):
                    found[panel] |= ~self.format.element.finite[_unlaid(codes, self.format)].all(axis=1)
        found = found.reshape(-1)[:n]
        found.flags.writeable = False
        return found

    @property
    def ndim(self) -> int:
        """Always 2."""
        return 2

    @property
    def block_axis(self) -> int:
        """The block axis: 0, along K."""
        return 0

    @property
    def axis(self) -> int:
        """The same."""
        return 0

    @property
    def nbytes(self) -> int:
        """Bytes of codes and scales, padding included, and four for a tensor scale."""
        return self.codes.nbytes + self.scales.nbytes + 4 * self.format.tensor_scale

    @cached_property
    def live_scales(self) -> tuple[int, int]:
        """The smallest and the largest scale code but NaN, blocks of zeros left out; (255, 0) for none."""
        return live_range(self.codes, self.scales, self.format, self.shape)

    def to_blocks(self) -> BlockArray:
        """The BlockArray that it was made from, bit for bit."""
        k, n = self.shape
        codes = np.empty((n, k), np.uint8)
        scales = np.empty((n, blocks_along(k, self.format.block)), np.uint8)
        for first, last, panels, scale_panels in _slabs(self.codes, self.scales, self.format, k, n):
            width = last - first
            codes[first:last] = _unlaid(panels, self.format)[:width, :k]
            by_column = scale_panels.transpose(0, 2, 1).reshape(-1, scale_panels.shape[1])
            scales[first:last] = by_column[:width, : scales.shape[1]]
        return BlockArray(codes.T, scales.T, self.format, 0, self.tensor_scale)

    def dequantize(
        self, *, dtype: Any = ..., out: NDArray[Any] | None = None, engine: Engine = "numba"
    ) -> NDArray[Any]:
        """The values (K, N), see `mxfp.dequantize`."""
        return dequantize(self.to_blocks(), dtype=dtype, out=out, engine=engine)

    def __eq__(self, other: object) -> bool:
        """Equal bits: format, shape, codes, scales and tensor scale."""
        if not isinstance(other, PreparedMatrix):
            return NotImplemented
        return (
            self.format == other.format
            and self.shape == other.shape
            and self.tensor_scale == other.tensor_scale
            and np.array_equal(self.codes, other.codes)
            and np.array_equal(self.scales, other.scales)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Format, shape and size."""
        count = self.shape[0] * self.shape[1]
        bits = f", {8 * self.nbytes / count:.4g} bits an element" if count else ""
        return f"PreparedMatrix {self.format.name} {self.shape}: {self.nbytes:,} bytes{bits}"


def prepare(q: BlockArray, *, engine: Engine = "numba") -> PreparedMatrix:
    """BlockArray (K, N) in blocks along K, the right side of a product -> PreparedMatrix.

    For a weight that many products read: packing it is done once. A weight stored (N, K), in blocks along
    its last axis, is prepared as `prepare(q.T)`. `PreparedMatrix.to_blocks()` gives q back, bit for bit.
    engine: both give the same bytes.

    Raises TypeError for what is not a BlockArray; ValueError for other than two dimensions, for blocks
    along N, and for a block size that does not divide 32.

    >>> import mxfp, numpy as np
    >>> weight = mxfp.quantize(np.ones((3, 64)))
    >>> w = mxfp.prepare(weight.T)
    >>> mxfp.matmul(mxfp.quantize(np.ones(64)), w).tolist(), w.to_blocks().T == weight
    ([64.0, 64.0, 64.0], True)
    """
    if not isinstance(q, BlockArray):
        raise TypeError(f"prepare takes a BlockArray (see mxfp.quantize), got {type(q).__name__}")
    check_choice(engine, ENGINES, "engine")
    if q.ndim != 2:
        raise ValueError(f"prepare takes a matrix (K, N), got {q.format.name} {q.shape}")
    if q.block_axis != 0:
        raise ValueError(
            f"prepare takes the right side of a product, in blocks along its first axis; {q.format.name} "
            f"{q.shape} is along axis {q.axis} (prepare(q.T) may be what you want)"
        )
    check_block(q.format)
    k, n = q.shape
    panels, blocks = blocks_along(n, WIDTH), blocks_along(k, BLOCK)
    per_block = BLOCK // q.format.block
    codes = np.zeros(panels * blocks * block_bytes(q.format), np.uint8)
    scales = np.zeros(panels * blocks * per_block * WIDTH, np.uint8)
    for first, last, some, some_scales in _slabs(codes, scales, q.format, k, n):
        pack = _twin if engine == "numba" else _lay
        pack(q.codes.T[first:last], some, q.format)
        lay_scales(q.scales.T[first:last], some_scales)
    codes.flags.writeable = scales.flags.writeable = False
    return PreparedMatrix(codes, scales, q.format, (k, n), q.tensor_scale)


def check_block(fmt: BlockFormat) -> None:
    """ValueError for a format whose blocks the layout has no room for."""
    if BLOCK % fmt.block:
        raise ValueError(f"prepare lays out blocks whose size divides {BLOCK}, {fmt.name} has {fmt.block}")


def block_bytes(fmt: BlockFormat) -> int:
    """Bytes of one block of 32 k of a panel."""
    return BLOCK * WIDTH // (2 if fmt.element.bits == 4 else 1)


def live_range(codes: Codes, scales: Codes, fmt: BlockFormat, shape: tuple[int, int]) -> tuple[int, int]:
    """Panels -> the smallest and the largest scale code but NaN, blocks of zeros with code 0 left out."""
    finite = scales < fmt.scale.nan_code
    lowest = int(scales.min(where=scales > 0, initial=255))
    highest = int(scales.max(where=finite, initial=0))
    panels = blocks_along(shape[1], WIDTH)
    if (scales == 0).any():
        by_panel = scales.reshape(panels, -1, WIDTH)
        by_code = codes.reshape(panels, 1, -1, block_bytes(fmt))
        for panel in np.flatnonzero((by_panel == 0).any(axis=(1, 2))):
            integers = fmt.element.integers[_unlaid(by_code[panel], fmt)]
            live = (integers != 0).reshape(WIDTH, -1, fmt.block).any(axis=2)
            if (live.T & (by_panel[panel] == 0)).any():
                return 0, highest
    return lowest, highest


def _slabs(codes: Codes, scales: Codes, fmt: BlockFormat, k: int, n: int) -> Any:
    """(first column, last, panels of codes, panels of scales (panels, blocks, WIDTH)), a slab at a time."""
    panels, blocks = blocks_along(n, WIDTH), blocks_along(k, BLOCK)
    if not panels * blocks:
        return
    by_panel = codes.reshape(panels, blocks, block_bytes(fmt))
    by_scale = scales.reshape(panels, -1, WIDTH)
    step = max(PANELS // (blocks * BLOCK * WIDTH), 1)
    for panel in range(0, panels, step):
        last = min(panel + step, panels)
        yield panel * WIDTH, min(last * WIDTH, n), by_panel[panel:last], by_scale[panel:last]


def _lay(codes: Codes, target: Codes, fmt: BlockFormat) -> None:
    """Codes (columns, K) -> panels (panels, blocks, bytes)."""
    panels, blocks, _ = target.shape
    padded = np.zeros((panels * WIDTH, blocks * BLOCK), np.uint8)
    padded[: codes.shape[0], : codes.shape[1]] = codes
    if fmt.element.bits == 4:
        split = padded.reshape(panels, WIDTH, blocks, BLOCK // 8, 2, 4)
        joined = split[..., 0, :] | split[..., 1, :] << 4
    else:
        joined = padded.reshape(panels, WIDTH, blocks, BLOCK // 4, 4)
    target[...] = joined.transpose(0, 2, 3, 1, 4).reshape(target.shape)


def _twin(codes: Codes, target: Codes, fmt: BlockFormat) -> None:
    """The compiled twin of `_lay`."""
    from .kernels import operands

    operands.pack_panels(codes, fmt.element, target.reshape(-1))


def _unlaid(panels: Codes, fmt: BlockFormat) -> Codes:
    """Panels (panels, blocks, bytes) -> codes (columns, K), both padded."""
    count, blocks, _ = panels.shape
    joined = panels.reshape(count, blocks, -1, WIDTH, 4).transpose(0, 3, 1, 2, 4)
    if fmt.element.bits == 4:
        joined = np.stack([joined & 15, joined >> 4], axis=-2)
    return joined.reshape(count * WIDTH, blocks * BLOCK)


def lay_scales(scales: Codes, target: Codes) -> None:
    """Scale codes (columns, blocks) -> (panels, blocks, WIDTH)."""
    panels, blocks, _ = target.shape
    padded = np.zeros((panels * WIDTH, blocks), np.uint8)
    padded[: scales.shape[0], : scales.shape[1]] = scales
    target[...] = padded.reshape(panels, WIDTH, blocks).transpose(0, 2, 1)
