# SPDX-License-Identifier: Apache-2.0
"""ONNX: initializers of 4- or 8-bit floats and of scales, joined by a DequantizeLinear with a block size.

MXFP4 is one such node (opset 24, scales of FLOAT8E8M0). NVFP4 is two: its scales are dequantized with the
tensor scale first, and then the elements with them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from ...blocks import BlockArray, blocks_along
from ...formats import MXFP4, MXFP8_E4M3, MXFP8_E5M2, NVFP4, BlockFormat
from ...packing import pack, unpack
from ..dtypes import size_of, step_of
from ..header import TensorInfo
from ..tensor import Bytes, Declared, Fetch, LayoutError, Tensor
from .layout import Container
from .suffixed import check_codes, format_of
from .tensor_scale import read_scale

KINDS: Final[tuple[tuple[BlockFormat, str, str], ...]] = (
    (MXFP4, "F4", "F8_E8M0"),
    (NVFP4, "F4", "F8_E4M3"),
    (MXFP8_E4M3, "F8_E4M3", "F8_E8M0"),
    (MXFP8_E5M2, "F8_E5M2", "F8_E8M0"),
)
"""Formats, and the types of elements and scales."""
NODES: Final = "mxfp.nodes"
"""Where the header of an ONNX file has its nodes that dequantize blocks."""
ORDER: Final = "mxfp.order"
"""Where it has the names of the initializers, in their order, whichever files their data are in."""


@dataclass(frozen=True)
class Dequantize:
    """A DequantizeLinear of an ONNX graph, by the names of what goes in and comes out."""

    output: str
    elements: str
    scales: str
    axis: int
    block: int
    tensor_scale: str = ""
    """Of the scales, if they are dequantized themselves."""

    @property
    def names(self) -> tuple[str, ...]:
        """All the names that it has."""
        return self.output, self.elements, self.scales, self.tensor_scale


@dataclass(frozen=True)
class Onnx:
    """Blocks of ONNX."""

    name: str = "onnx"
    container: Container = "onnx"
    nan_is_number: bool = False

    def formats(self) -> tuple[BlockFormat, ...]:
        """The formats of the family that it holds."""
        return tuple(fmt for fmt, _, _ in KINDS)

    def plan(self, declared: Declared) -> Tensor:
        """The tensors that hold it; LayoutError for a format that ONNX does not have."""
        shape, name = declared.shape, declared.name
        kind = next((kind for kind in KINDS if kind[0] == declared.type), None)
        if kind is None:
            held = ", ".join(map(str, self.formats()))
            raise LayoutError(f"{name}: ONNX holds {held}, not {declared.type}")
        if not shape or not -len(shape) <= declared.axis < len(shape):
            raise LayoutError(f"{name}: shape {shape} has no axis {declared.axis} for blocks")
        fmt, elements, scales = kind
        axis = declared.axis % len(shape)
        nbytes = -(-math.prod(shape) * fmt.element.bits // 8)
        blocks = (*shape[:axis], blocks_along(shape[axis], fmt.block), *shape[axis + 1 :])
        parts = [
            TensorInfo(name + "_quantized", shape, elements, nbytes, 0),
            TensorInfo(name + "_scale", blocks, scales, size_of(scales, math.prod(blocks)), 0),
        ]
        if fmt.tensor_scale:
            parts.append(TensorInfo(name + "_tensor_scale", (), "F32", 4, 0))
        return self._tensor(name, tuple(parts), fmt, declared.axis)

    def _tensor(self, name: str, parts: tuple[TensorInfo, ...], fmt: BlockFormat, axis: int) -> Tensor:
        shape = parts[0].shape
        step = fmt.block if axis % len(shape) == 0 else step_of(parts[0].type, shape)
        return Tensor(name, shape, fmt.name, parts, self.name, fmt, axis, None, step)

    def find(self, tensors: Mapping[str, TensorInfo], metadata: Mapping[str, Any]) -> list[Tensor]:
        """The blocks that nodes dequantize; ValueError where scales do not fit."""
        found = (self._at(node, tensors) for node in metadata.get(NODES, ()))
        return [tensor for tensor in found if tensor is not None]

    def _at(self, node: Dequantize, tensors: Mapping[str, TensorInfo]) -> Tensor | None:
        elements, scales = tensors.get(node.elements), tensors.get(node.scales)
        if elements is None or scales is None:
            return None
        kind = (elements.type, scales.type, node.block, bool(node.tensor_scale))
        known = ((f, e, s) for f, e, s in KINDS if (e, s, f.block, f.tensor_scale) == kind)
        fmt = next((f for f, _, _ in known), None)
        if fmt is None:
            return None
        shape = elements.shape
        if not shape or not -len(shape) <= node.axis < len(shape):
            raise ValueError(f"{node.output!r:.80} is dequantized along axis {node.axis} of {shape}")
        planned = self.plan(Declared(node.output, shape, fmt, node.axis))
        if scales.shape != planned.parts[1].shape:
            raise ValueError(
                f"{elements.name!r:.80} of shape {shape} and {scales.name!r:.80} of shape {scales.shape} "
                f"disagree: expected scales of shape {planned.parts[1].shape}"
            )
        parts = [elements, scales]
        if fmt.tensor_scale:
            shared = tensors.get(node.tensor_scale)
            if shared is None:
                return None
            if shared.type != "F32" or shared.elements != 1:
                raise ValueError(f"{shared.name!r:.80} is {shared.type} {shared.shape}, expected one F32")
            parts.append(shared)
        return self._tensor(node.output, tuple(parts), fmt, node.axis)

    def load(self, tensor: Tensor, fetch: Fetch, start: int, stop: int) -> BlockArray:
        """Rows start … stop; ValueError if the bytes are no BlockArray."""
        fmt, axis = format_of(tensor), tensor.block_axis
        elements, scales = tensor.parts[:2]
        each, bits = math.prod(tensor.shape[1:]), fmt.element.bits
        shape = (stop - start, *tensor.shape[1:])
        begin, end = start * each * bits // 8, -(-stop * each * bits // 8)
        raw = fetch(elements, begin, end - begin)
        count = math.prod(shape)
        codes = unpack(raw, fmt.element, count).reshape(shape)
        rows = (start, stop) if axis else (start // fmt.block, blocks_along(stop, fmt.block))
        width = math.prod(scales.shape[1:])
        found = fetch(scales, rows[0] * width, (rows[1] - rows[0]) * width)
        found = found.reshape(rows[1] - rows[0], *scales.shape[1:])
        check_codes(found, fmt, scales.name)
        shared = 1.0
        if fmt.tensor_scale:
            part = tensor.parts[2]
            shared = read_scale(tensor, fetch(part, 0, part.nbytes), start, stop, divides=False)
        return BlockArray._of(codes, found, fmt, tensor.axis, shared, None)

    def pieces(self, tensor: Tensor, array: BlockArray) -> tuple[Bytes, ...]:
        """The bytes of some rows, one array for each part."""
        packed = pack(np.ascontiguousarray(array.codes).reshape(-1), array.format.element)
        scales = np.ascontiguousarray(array.scales).reshape(-1)
        if not array.format.tensor_scale:
            return packed, scales
        return packed, scales, np.array([array.tensor_scale], "<f4").view(np.uint8)

    def metadata(self, tensors: tuple[Tensor, ...]) -> Mapping[str, Any]:
        """The nodes that dequantize them."""
        nodes = tuple(
            Dequantize(
                t.name,
                t.parts[0].name,
                t.parts[1].name,
                t.axis,
                format_of(t).block,
                t.parts[2].name if len(t.parts) > 2 else "",
            )
            for t in tensors
        )
        return MappingProxyType({NODES: nodes})


ONNX: Final = Onnx()
"""As ONNX has it from opset 24 on."""
