# SPDX-License-Identifier: Apache-2.0
"""An ONNX file to be written: the model by onnx, with room in it for the bytes of the initializers.

Protobuf puts a length before every message, and lengths are known before the bytes are: so an initializer
is what onnx serializes of it without data, and behind it a field for the data.
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
_GRAPH, _INITIALIZER, _RAW = 7, 5, 9


def onnx_frame(parts: Sequence[TensorInfo], metadata: Mapping[str, Any]) -> Frame:
    """A model whose outputs are the dequantized blocks; every tensor is an initializer.

    Raises LayoutError for types that ONNX does not have, for metadata that are no texts, and for more than
    the 2 GiB that one ONNX file holds.
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
    heads = [_head(part, numbers[part.type], TensorProto) for part in parts]
    return _laid_out(outside.SerializeToString(), model.graph.SerializeToString(), parts, heads)


def _head(part: TensorInfo, kind: int, message: Any) -> bytes:
    """An initializer up to its data: the tags and lengths of both are in it."""
    tensor: bytes = message(dims=part.shape, data_type=kind, name=part.name).SerializeToString()
    tensor += _tag(_RAW, part.nbytes)
    return _tag(_INITIALIZER, len(tensor) + part.nbytes) + tensor


def _laid_out(outside: bytes, graph: bytes, parts: Sequence[TensorInfo], heads: Sequence[bytes]) -> Frame:
    inside = len(graph) + sum(len(head) + part.nbytes for head, part in zip(heads, parts, strict=True))
    first = outside + _tag(_GRAPH, inside) + graph
    size = len(outside) + len(_tag(_GRAPH, inside)) + inside
    if size > MOST_FILE:
        raise LayoutError(
            f"an ONNX file of {size} bytes, and it holds at most {MOST_FILE}; write .safetensors or .gguf"
        )
    fixed, placed, end = [(0, first)], [], len(first)
    for head, part in zip(heads, parts, strict=True):
        fixed.append((end, head))
        end += len(head)
        placed.append(replace(part, offset=end))
        end += part.nbytes
    return Frame(tuple(fixed), tuple(placed), end)


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
