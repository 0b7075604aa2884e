# SPDX-License-Identifier: Apache-2.0
"""An ONNX file to be written: the model by onnx, with room in it for the bytes of the initializers.

Protobuf puts a length before every message, and lengths are known before the bytes are: so an initializer
is what onnx serializes of it without data, and behind it a field for the data. What is more than protobuf
holds goes to a second file, of which each initializer says where its bytes are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from .frames import Frame
from .header import TensorInfo
from .layouts.onnx import NODES, Dequantize
from .onnx_header import MOST_FILE, onnx_types
from .tensor import LayoutError

OPSET: Final = 24
"""The first whose DequantizeLinear takes scales of FLOAT8E8M0."""
SMALL: Final = 1024
"""Initializers of fewer bytes stay in the file, as onnx has it."""
PAGE: Final = 4096
"""External data begin at multiples of this, so that each can be mapped into memory."""
_GRAPH, _INITIALIZER, _RAW = 7, 5, 9


def onnx_frame(
    parts: Sequence[TensorInfo], metadata: Mapping[str, Any], location: str, external_data: bool = False
) -> Frame:
    """A model whose outputs are the dequantized blocks; every tensor is an initializer.

    location: the name of the file beside it, for initializers of SMALL bytes or more, if `external_data` or
    if all together are more than the 2 GiB that one ONNX file holds. Raises LayoutError for types that ONNX
    does not have, and for metadata that are no texts.
    """
    from onnx import TensorProto, helper

    numbers = onnx_types()
    for part in parts:
        if part.type not in numbers:
            raise LayoutError(f"{part.name}: ONNX has no type {part.type}")
    nodes: tuple[Dequantize, ...] = metadata.get(NODES, ())
    shapes = {part.name: part.shape for part in parts}
    made, outputs = [], []
    for node in nodes:
        scales = node.scales
        if node.tensor_scale:
            scales += "_dequantized"
            made.append(
                helper.make_node(
                    "DequantizeLinear", [node.scales, node.tensor_scale], [scales], axis=node.axis
                )
            )
        made.append(
            helper.make_node(
                "DequantizeLinear",
                [node.elements, scales],
                [node.output],
                axis=node.axis,
                block_size=node.block,
                output_dtype=TensorProto.FLOAT,
            )
        )
        outputs.append(helper.make_tensor_value_info(node.output, TensorProto.FLOAT, shapes[node.elements]))
    graph = helper.make_graph(made, "mxfp", [], outputs)
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(graph, opset_imports=[opset], producer_name="mxfp")
    model.ir_version = helper.find_min_ir_version_for([opset])
    for key, value in metadata.items():
        if key == NODES:
            continue
        if not isinstance(value, str):
            raise LayoutError(f"metadata of ONNX are texts, got {value!r:.40} for {key!r:.40}")
        model.metadata_props.add(key=key, value=value)
    outside = type(model)()
    outside.CopyFrom(model)
    outside.ClearField("graph")
    around = outside.SerializeToString(), model.graph.SerializeToString()
    tensors = {
        part.name: TensorProto(dims=part.shape, data_type=numbers[part.type], name=part.name)
        for part in parts
    }
    if not external_data:
        frame = _laid_out(*around, parts, (), tensors)
        if frame.size <= MOST_FILE:
            return frame
    away, end = [], 0
    for part in parts:
        if part.nbytes < SMALL:
            continue
        away.append(replace(part, offset=end))
        tensors[part.name].data_location = TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", end), ("length", part.nbytes)):
            tensors[part.name].external_data.add(key=key, value=str(value))
        end += -(-part.nbytes // PAGE) * PAGE
    frame = _laid_out(*around, parts, away, tensors)
    if frame.size > MOST_FILE:
        raise LayoutError(
            f"an ONNX file of {frame.size} bytes beside its data, and it holds at most {MOST_FILE}; write "
            ".safetensors or .gguf"
        )
    return frame


def _laid_out(
    outside: bytes,
    graph: bytes,
    parts: Sequence[TensorInfo],
    away: Sequence[TensorInfo],
    tensors: Mapping[str, Any],
) -> Frame:
    """The frame; tensors: every initializer without its data, `away`: those whose data are elsewhere."""
    elsewhere = {part.name for part in away}
    here = {part.name: 0 if part.name in elsewhere else part.nbytes for part in parts}
    heads = [_head(tensors[part.name], None if part.name in elsewhere else part.nbytes) for part in parts]
    inside = len(graph) + sum(map(len, heads)) + sum(here.values())
    first = outside + _tag(_GRAPH, inside) + graph
    fixed, placed, end = [(0, first)], [], len(first)
    for head, part in zip(heads, parts, strict=True):
        fixed.append((end, head))
        end += len(head)
        if part.name not in elsewhere:
            placed.append(replace(part, offset=end))
            end += part.nbytes
    beside_size = max((part.offset + part.nbytes for part in away), default=0)
    return Frame(tuple(fixed), tuple(placed), end, tuple(away), beside_size)


def _head(tensor: Any, nbytes: int | None) -> bytes:
    """An initializer up to its data, of so many bytes: the tags and lengths of both are in it."""
    raw: bytes = tensor.SerializeToString()
    if nbytes is not None:
        raw += _tag(_RAW, nbytes)
    return _tag(_INITIALIZER, len(raw) + (nbytes or 0)) + raw


def _tag(field: int, length: int) -> bytes:
    """The beginning of a field with a length."""
    return _varint(field << 3 | 2) + _varint(length)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
