# SPDX-License-Identifier: Apache-2.0
"""GGUF's own types: MXFP4, 17 bytes a block, and NVFP4, 36 bytes for four; scales lie with the codes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from ...blocks import BlockArray
from ...encode import SLAB
from ...formats import MXFP4, NVFP4, BlockFormat, Codes
from ..header import TensorInfo
from ..tensor import Bytes, Declared, Fetch, LayoutError, Tensor
from .layout import Container
from .suffixed import check_codes, check_shape, check_tensor_scale, format_of
from .tensor_scale import read_scale

TOGETHER: Final[Mapping[str, int]] = MappingProxyType({"MXFP4": 1, "NVFP4": 4})
"""Blocks that lie together: their scales, and then their codes."""


def tensor_scale_name(name: str) -> str:
    """Where llama.cpp looks for NVFP4's tensor scale.

    >>> tensor_scale_name("blk.0.ffn_up.weight"), tensor_scale_name("x")
    ('blk.0.ffn_up.scale', 'x.scale')
    """
    return name.removesuffix(".weight") + ".scale"


@dataclass(frozen=True)
class Gguf:
    """The types MXFP4 and NVFP4 of GGUF."""

    name: str = "gguf"
    container: Container = "gguf"
    nan_is_number: bool = True

    def formats(self) -> tuple[BlockFormat, ...]:
        """The formats of the family that it holds."""
        return MXFP4, NVFP4

    def plan(self, declared: Declared) -> Tensor:
        """The tensors that hold it; LayoutError for a format, axis or shape that GGUF cannot hold."""
        fmt = next((fmt for fmt in self.formats() if fmt == declared.type), None)
        if fmt is None:
            raise LayoutError(f"{declared.name}: GGUF holds MXFP4 and NVFP4, not {declared.type}")
        together = fmt.block * TOGETHER[fmt.name]
        check_shape(self.name, declared, together)
        nbytes = math.prod(declared.shape) // together * _bytes(fmt)
        parts = [TensorInfo(declared.name, declared.shape, fmt.name, nbytes, 0)]
        if fmt.tensor_scale:
            parts.append(TensorInfo(tensor_scale_name(declared.name), (1,), "F32", 4, 0))
        return self._tensor(tuple(parts), fmt)

    def _tensor(self, parts: tuple[TensorInfo, ...], fmt: BlockFormat) -> Tensor:
        name, shape = parts[0].name, parts[0].shape
        step = fmt.block * TOGETHER[fmt.name] if len(shape) == 1 else 1
        return Tensor(name, shape, fmt.name, parts, self.name, fmt, -1, None, step)

    def find(self, tensors: Mapping[str, TensorInfo], metadata: Mapping[str, Any]) -> list[Tensor]:
        """The tensors of these types; ValueError for a tensor scale that does not fit."""
        found = []
        for info in tensors.values():
            fmt = next((fmt for fmt in self.formats() if fmt.name == info.type), None)
            if fmt is None or not info.shape:
                continue
            parts = [info]
            if fmt.tensor_scale and (scale := tensors.get(tensor_scale_name(info.name))):
                check_tensor_scale(scale, info.shape)
                parts.append(scale)
            found.append(self._tensor(tuple(parts), fmt))
        return found

    def load(self, tensor: Tensor, fetch: Fetch, start: int, stop: int) -> BlockArray:
        """Rows start … stop; ValueError if the bytes are no BlockArray."""
        fmt = format_of(tensor)
        shape = (stop - start, *tensor.shape[1:])
        together = fmt.block * TOGETHER[fmt.name]
        first = start * math.prod(shape[1:]) // together * _bytes(fmt)
        raw = fetch(tensor.parts[0], first, math.prod(shape) // together * _bytes(fmt))
        codes, scales = split(raw, fmt)
        scales = scales.reshape(*shape[:-1], shape[-1] // fmt.block)
        check_codes(scales, fmt, tensor.name)
        shared = 1.0
        if len(tensor.parts) > 1:
            part = tensor.parts[1]
            shared = read_scale(tensor, fetch(part, 0, part.nbytes), start, stop, divides=False)
        return BlockArray._of(codes.reshape(shape), scales, fmt, -1, shared, None)

    def pieces(self, tensor: Tensor, array: BlockArray) -> tuple[Bytes, ...]:
        """The bytes of some rows, one array for each part."""
        raw = join(array.codes, array.scales, array.format)
        if not array.format.tensor_scale:
            return (raw,)
        return raw, np.array([array.tensor_scale], "<f4").view(np.uint8)

    def metadata(self, tensors: tuple[Tensor, ...]) -> Mapping[str, Any]:
        """Nothing: the types say it."""
        return MappingProxyType({})


def _bytes(fmt: BlockFormat) -> int:
    """Bytes of the blocks that lie together."""
    return TOGETHER[fmt.name] * (1 + fmt.block // 2)


def _lines(fmt: BlockFormat) -> np.dtype[Any]:
    """Blocks that lie together, as a record: the scales, and the codes eight bytes at a time."""
    together = TOGETHER[fmt.name]
    return np.dtype([("scales", "u1", (together,)), ("words", "<u8", (together * fmt.block // 16,))])


_LOW: Final = np.uint64(0x0F0F_0F0F_0F0F_0F0F)


def split(raw: Bytes, fmt: BlockFormat) -> tuple[Codes, Codes]:
    """Bytes -> codes and scales, both 1-D: byte j of a block holds element j low, j + block / 2 high."""
    lines = raw.view(_lines(fmt))
    together, each = TOGETHER[fmt.name], fmt.block // 16
    codes = np.empty((len(lines), together, 2, each), "<u8")
    for part in _slabs(len(lines), together * fmt.block):
        for block, word in np.ndindex(together, each):
            packed = lines["words"][part, block * each + word]
            np.bitwise_and(packed, _LOW, out=codes[part, block, 0, word])
            np.bitwise_and(packed >> np.uint64(4), _LOW, out=codes[part, block, 1, word])
    return codes.reshape(-1).view(np.uint8), np.ascontiguousarray(lines["scales"]).reshape(-1)


def join(codes: Codes, scales: Codes, fmt: BlockFormat) -> Bytes:
    """The way back: codes (…, K) and scales, whole blocks -> bytes, 1-D."""
    together, each = TOGETHER[fmt.name], fmt.block // 16
    words = np.ascontiguousarray(codes).reshape(-1).view("<u8").reshape(-1, together, 2, each)
    lines = np.empty(len(words), _lines(fmt))
    lines["scales"] = np.ascontiguousarray(scales).reshape(-1, together)
    for part in _slabs(len(lines), together * fmt.block):
        for block, word in np.ndindex(together, each):
            packed = words[part, block, 1, word] << np.uint64(4)
            packed |= words[part, block, 0, word]
            lines["words"][part, block * each + word] = packed
    return lines.view(np.uint8)


def _slabs(count: int, each: int) -> list[slice]:
    """Cuts of `count` lines of `each` elements, so that what is made on the way stays in the cache."""
    size = max(SLAB // each, 1)
    return [slice(start, start + size) for start in range(0, count, size)]


GGUF: Final = Gguf()
"""As ggml and llama.cpp have it."""
