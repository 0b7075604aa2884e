# SPDX-License-Identifier: Apache-2.0
"""Layouts of safetensors files in which endings of names tell elements from scales.

gpt-oss, compressed-tensors and modelopt differ in names, types, and who multiplies by what; the bytes are
the same: two 4-bit codes a byte, the even one low, and one byte a scale.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from ...blocks import BlockArray
from ...formats import MXFP4, MXFP8_E4M3, NVFP4, BlockFormat, Codes
from ...packing import pack, unpack
from ..header import TensorInfo
from ..tensor import Bytes, Declared, Fetch, LayoutError, Tensor
from .layout import Container
from .tensor_scale import divisor, read_scale


@dataclass(frozen=True)
class Kind:
    """One format as a layout has it: the types of elements and of scales, the first of which is written."""

    format: BlockFormat
    elements: tuple[str, ...]
    scales: tuple[str, ...]


@dataclass(frozen=True)
class Endings:
    """What follows the name of the array in the names of its parts."""

    elements: str
    scales: str
    tensor_scale: str = ""


@dataclass(frozen=True)
class Suffixed:
    """A layout by endings: of these, the first is written and all are read.

    grouped: elements have one more axis, (…, blocks, bytes of a block). divides: the tensor scale is
    written as its reciprocal. scalar: the shape in which it is written.
    """

    name: str
    endings: tuple[Endings, ...]
    kinds: tuple[Kind, ...]
    grouped: bool = False
    divides: bool = False
    scalar: tuple[int, ...] = ()
    nan_is_number: bool = True
    container: Container = "safetensors"

    def formats(self) -> tuple[BlockFormat, ...]:
        """The formats of the family that it holds."""
        return tuple(kind.format for kind in self.kinds)

    def plan(self, declared: Declared) -> Tensor:
        """The tensors that hold it; LayoutError for a format, axis or shape that the layout cannot hold."""
        kind = next((kind for kind in self.kinds if kind.format == declared.type), None)
        if kind is None:
            held = ", ".join(map(str, self.formats()))
            raise LayoutError(f"{declared.name}: the layout {self.name!r} holds {held}, not {declared.type}")
        check_shape(self.name, declared, kind.format.block)
        ending, shape, fmt = self.endings[0], declared.shape, kind.format
        element_bytes = shape[-1] * fmt.element.bits // 8
        blocks = shape[-1] // fmt.block
        elements = (*shape[:-1], blocks, element_bytes // blocks if blocks else fmt.block // 2)
        if not self.grouped:
            elements = (*shape[:-1], element_bytes)
        parts = [
            _part(declared.name + ending.elements, kind.elements[0], elements),
            _part(declared.name + ending.scales, kind.scales[0], (*shape[:-1], blocks)),
        ]
        if fmt.tensor_scale:
            parts.append(_part(declared.name + ending.tensor_scale, "F32", self.scalar))
        return self._tensor(declared.name, shape, tuple(parts), fmt)

    def _tensor(
        self, name: str, shape: tuple[int, ...], parts: tuple[TensorInfo, ...], fmt: BlockFormat
    ) -> Tensor:
        step = fmt.block if len(shape) == 1 else 1
        return Tensor(name, shape, fmt.name, parts, self.name, fmt, -1, None, step)

    def find(self, tensors: Mapping[str, TensorInfo], metadata: Mapping[str, Any]) -> list[Tensor]:
        """The BlockArrays among the tensors; ValueError where parts are missing or do not fit."""
        found = (self._at(info, tensors, ending) for ending in self.endings for info in tensors.values())
        return [tensor for tensor in found if tensor is not None]

    def _at(self, info: TensorInfo, tensors: Mapping[str, TensorInfo], ending: Endings) -> Tensor | None:
        """The BlockArray whose elements a tensor is, if it is one."""
        kinds = [kind for kind in self.kinds if info.type in kind.elements]
        if not kinds or not info.name.endswith(ending.elements) or not info.shape:
            return None
        name = info.name.removesuffix(ending.elements)
        scales = tensors.get(name + ending.scales)
        # A name without an ending says nothing by itself; an ending does, if the rest is as it should be.
        if scales is None:
            if not ending.elements or (self.grouped and info.shape[-1] != kinds[0].format.block // 2):
                return None
            raise ValueError(f"{info.name!r:.80} has no {name + ending.scales!r:.80} beside it")
        kind = next((kind for kind in kinds if scales.type in kind.scales), None)
        if kind is None:
            if not ending.elements:
                return None
            wanted = " or ".join(sorted({s for kind in kinds for s in kind.scales}))
            raise ValueError(f"{scales.name!r:.80} is of {scales.type}, expected {wanted}")
        shape = self._shape(info, scales, kind.format)
        parts = [info, scales]
        if kind.format.tensor_scale:
            parts.append(_tensor_scale(info, tensors.get(name + ending.tensor_scale), shape, name, ending))
        return self._tensor(name, shape, tuple(parts), kind.format)

    def _shape(self, info: TensorInfo, scales: TensorInfo, fmt: BlockFormat) -> tuple[int, ...]:
        """The shape that the elements stand for, if the scales fit it."""
        lead = info.shape[:-2] if self.grouped else info.shape[:-1]
        each = fmt.block * fmt.element.bits // 8
        if self.grouped:
            if len(info.shape) < 2 or info.shape[-1] != each:
                raise ValueError(
                    f"{info.name!r:.80} has shape {info.shape}, expected (…, blocks, {each}), the last the "
                    f"bytes of a block of {fmt.name}"
                )
            blocks = info.shape[-2]
        else:
            blocks, rest = divmod(info.shape[-1], each)
            if rest:
                raise ValueError(
                    f"{info.name!r:.80} has rows of {info.shape[-1]} bytes, expected a multiple of {each}, "
                    f"blocks of {fmt.name}"
                )
        if scales.shape != (*lead, blocks):
            raise ValueError(
                f"{info.name!r:.80} of shape {info.shape} and {scales.name!r:.80} of shape {scales.shape} "
                f"disagree: expected scales of shape {(*lead, blocks)}"
            )
        return (*lead, blocks * fmt.block)

    def load(self, tensor: Tensor, fetch: Fetch, start: int, stop: int) -> BlockArray:
        """Rows start … stop; ValueError if the bytes are no BlockArray."""
        fmt = format_of(tensor)
        shape = (stop - start, *tensor.shape[1:])
        count = math.prod(shape)
        first = start * math.prod(tensor.shape[1:])
        elements, scales = tensor.parts[:2]
        bits, block = fmt.element.bits, fmt.block
        raw = fetch(elements, first * bits // 8, count * bits // 8)
        codes = unpack(raw, fmt.element, count).reshape(shape)
        found = fetch(scales, first // block, count // block).reshape(*shape[:-1], shape[-1] // block)
        check_codes(found, fmt, scales.name)
        shared = 1.0
        if fmt.tensor_scale:
            part = tensor.parts[2]
            shared = read_scale(tensor, fetch(part, 0, part.nbytes), start, stop, divides=self.divides)
        return BlockArray._of(codes, found, fmt, -1, shared, None)

    def pieces(self, tensor: Tensor, array: BlockArray) -> tuple[Bytes, ...]:
        """The bytes of some rows, one array for each part."""
        packed = pack(array.codes, array.format.element).reshape(-1)
        scales = np.ascontiguousarray(array.scales).reshape(-1)
        if not array.format.tensor_scale:
            return packed, scales
        shared = array.tensor_scale
        if self.divides:
            shared = divisor(shared, tensor.name)
        return packed, scales, np.array([shared], "<f4").view(np.uint8)

    def metadata(self, tensors: tuple[Tensor, ...]) -> Mapping[str, Any]:
        """Nothing: the names say it."""
        return MappingProxyType({})


def _part(name: str, kind: str, shape: tuple[int, ...]) -> TensorInfo:
    return TensorInfo(name, shape, kind, math.prod(shape) * (4 if kind == "F32" else 1), 0)


def _tensor_scale(
    info: TensorInfo, found: TensorInfo | None, shape: tuple[int, ...], name: str, ending: Endings
) -> TensorInfo:
    """The part that holds the tensor scale: one float32, or one for each expert."""
    if found is None:
        raise ValueError(f"{info.name!r:.80} has no {name + ending.tensor_scale!r:.80} beside it")
    check_tensor_scale(found, shape)
    return found


def check_tensor_scale(found: TensorInfo, shape: tuple[int, ...]) -> None:
    """ValueError unless it is one float32, or one for each of the first axis of three or more."""
    experts = shape[0] if len(shape) > 2 else 1
    if found.type != "F32" or found.elements not in {1, experts}:
        each = f", or {experts}, one an expert" if experts > 1 else ""
        raise ValueError(f"{found.name!r:.80} is {found.type} {found.shape}, expected one F32{each}")


def check_shape(layout: str, declared: Declared, block: int) -> None:
    """LayoutError unless blocks lie along the last axis and fill it."""
    shape, what = declared.shape, f"{declared.name}: the layout {layout!r}"
    if not shape:
        raise LayoutError(f"{what} holds arrays of at least one axis, not a scalar")
    if declared.axis % len(shape) != len(shape) - 1:
        raise LayoutError(f"{what} has blocks along the last axis, not along axis {declared.axis} of {shape}")
    if shape[-1] % block:
        raise LayoutError(f"{what} holds whole blocks: {shape[-1]} elements, expected a multiple of {block}")


def format_of(tensor: Tensor) -> BlockFormat:
    """The format of a tensor that has one."""
    assert tensor.format is not None
    return tensor.format


def check_codes(scales: Codes, fmt: BlockFormat, name: str) -> None:
    """ValueError for a scale code that the format does not have: UE4M3 has 7 bits."""
    if fmt.scale.code_count <= 255 and scales.size and int(scales.max()) >= fmt.scale.code_count:
        first = tuple(int(i) for i in np.argwhere(scales >= fmt.scale.code_count)[0])
        raise ValueError(
            f"{name!r:.80} has the scale code {int(scales[first])} at {first}, a negative number; scales of "
            f"{fmt.name} are {fmt.scale.name}, 0 … {fmt.scale.code_count - 1}"
        )


_E8M0: Final = ("U8", "F8_E8M0")

GPT_OSS: Final = Suffixed(
    "gpt-oss",
    (Endings("_blocks", "_scales"), Endings(".blocks", ".scales")),
    (Kind(MXFP4, ("U8",), _E8M0),),
    grouped=True,
)
"""As openai/gpt-oss ships MXFP4: X_blocks (…, rows, blocks, 16) and X_scales (…, rows, blocks)."""

COMPRESSED_TENSORS: Final = Suffixed(
    "compressed-tensors",
    (Endings("_packed", "_scale", "_global_scale"),),
    (Kind(MXFP4, ("U8",), _E8M0), Kind(NVFP4, ("U8",), ("F8_E4M3",))),
    divides=True,
    scalar=(1,),
)
"""As llm-compressor writes and vLLM reads: X_packed (rows, K / 2), X_scale, and X_global_scale, a divisor."""

MODELOPT: Final = Suffixed(
    "modelopt",
    (Endings("", "_scale", "_scale_2"),),
    (
        Kind(NVFP4, ("U8",), ("F8_E4M3",)),
        Kind(MXFP4, ("U8",), _E8M0),
        Kind(MXFP8_E4M3, ("F8_E4M3",), _E8M0),
    ),
)
"""As NVIDIA's modelopt exports: X (rows, K / 2), X_scale, and X_scale_2, which multiplies."""
