# SPDX-License-Identifier: Apache-2.0
"""The header of an ONNX file: its graph without the bytes of its initializers, which are stepped over.

onnx (extra `files`) reads the messages; this module walks the three that hold initializers, so that the
bytes of those are never in memory: an ONNX file may have 2 GiB of them, and as much beside it as it likes.
"""

from __future__ import annotations

import math
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NoReturn

from .dtypes import PACKED, is_array, size_of
from .header import MOST_BYTES, MOST_TENSORS, FileError, Header, TensorInfo
from .layouts.onnx import NODES, ORDER, Dequantize
from .window import Window

MOST_GRAPH: Final = 1 << 28
"""Bytes of a graph without its initializers."""
MOST_FILE: Final = (1 << 31) - 1
"""The most that protobuf allows."""
_TYPES: Final = {
    "FLOAT": "F32",
    "DOUBLE": "F64",
    "FLOAT16": "F16",
    "BFLOAT16": "BF16",
    "FLOAT8E4M3FN": "F8_E4M3",
    "FLOAT8E5M2": "F8_E5M2",
    "FLOAT8E8M0": "F8_E8M0",
    "FLOAT8E4M3FNUZ": "F8_E4M3FNUZ",
    "FLOAT8E5M2FNUZ": "F8_E5M2FNUZ",
    "FLOAT4E2M1": "F4",
    "FLOAT6E2M3": "F6_E2M3",
    "FLOAT6E3M2": "F6_E3M2",
    "COMPLEX64": "C64",
    "BOOL": "BOOL",
    **{f"{sign}INT{n}": f"{kind}{n}" for sign, kind in (("", "I"), ("U", "U")) for n in (8, 16, 32, 64)},
}
"""ONNX's names of types -> those of this package; types that are not here keep their names."""
_GRAPH, _INITIALIZER, _RAW = 7, 5, 9
"""Numbers of the fields that are walked: model.graph, graph.initializer, tensor.raw_data."""


def onnx_types() -> Mapping[str, int]:
    """Types of this package -> numbers of ONNX. ImportError names the extra if onnx is not installed."""
    numbers = _onnx().TensorProto.DataType
    return {_TYPES[name]: number for name, number in numbers.items() if name in _TYPES}


def read_onnx_headers(path: str | Path) -> tuple[tuple[Header, ...], dict[str, bytes]]:
    """The headers of an ONNX file and of the files with its external data, and data that lie in neither.

    Those last are small initializers written as lists of numbers. The metadata of the first header have
    the nodes that dequantize blocks, the order of all initializers, the opset, and the model's properties.
    Raises FileError for what is no ONNX model, for initializers that do not have the bytes of their shape,
    and for external data outside the file's folder.
    """
    path = Path(path)
    with Window(path) as window:
        if window.size > MOST_FILE:
            raise FileError(f"{path}: has {window.size} bytes, expected at most {MOST_FILE} of an ONNX file")
        return _Walk(window).headers()


def _onnx() -> Any:
    try:
        import onnx
    except ImportError:
        raise ImportError("ONNX needs onnx; install it with: pip install 'mxfp-emulator[files]'") from None
    return onnx


class _Walk:
    """One pass over a file."""

    def __init__(self, window: Window) -> None:
        self.window, self.path, self.onnx = window, window.path, _onnx()
        self.graph_bytes = 0
        self.held: dict[str, bytes] = {}
        self.elsewhere: dict[Path, list[TensorInfo]] = {}

    def fail(self, problem: str) -> NoReturn:
        raise FileError(f"{self.path}: {problem}")

    def headers(self) -> tuple[tuple[Header, ...], dict[str, bytes]]:
        outer, inner = bytearray(), bytearray()
        tensors: list[TensorInfo] = []
        graphs = 0
        for field, raw, body in self.fields(self.window.size):
            if field != _GRAPH or body is None:
                outer += self.whole(raw, body)
                continue
            graphs += 1
            for inside, some, within in self.fields(body):
                if inside == _INITIALIZER and within is not None:
                    tensors += self.initializer(within)
                    if len(tensors) > MOST_TENSORS:
                        self.fail(f"has more than {MOST_TENSORS} initializers")
                else:
                    inner += self.whole(some, within)
        model = self.parse(self.onnx.ModelProto, bytes(outer), "the model")
        graph = self.parse(self.onnx.GraphProto, bytes(inner), "the graph")
        if not (model.ir_version and graphs):
            self.fail(f"is no ONNX model: it has no {'graph' if model.ir_version else 'ir_version'}")
        names = [info.name for info in tensors]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            self.fail(f"two initializers are called {twice!r:.80}; every name must be used once")
        metadata = {p.key: p.value for p in model.metadata_props}
        nodes = tuple(_dequantizers(graph))
        self.check_texts(*names, *metadata, *metadata.values(), *(text for n in nodes for text in n.names))
        metadata["ir_version"] = model.ir_version
        metadata["opset"] = max((o.version for o in model.opset_import if not o.domain), default=0)
        metadata[NODES], metadata[ORDER] = nodes, tuple(names)
        return self.by_file(tensors, metadata), self.held

    def by_file(self, tensors: list[TensorInfo], metadata: dict[str, Any]) -> tuple[Header, ...]:
        """A header for this file, one for each file of external data, and one for data in neither."""
        away = {info.name for infos in self.elsewhere.values() for info in infos}
        here = tuple(t for t in tensors if t.name not in away and t.name not in self.held)
        lists = tuple(t for t in tensors if t.name in self.held)
        found = [Header("onnx", MappingProxyType(metadata), here, 0, self.window.size, path=self.path)]
        for path, infos in self.elsewhere.items():
            try:
                there = path.stat()
            except (OSError, ValueError) as error:
                self.fail(f"has data in {path.name!r:.80}: {getattr(error, 'strerror', None) or error}")
            if not stat.S_ISREG(there.st_mode):
                self.fail(f"has data in {path.name!r:.80}, which is no regular file")
            size = there.st_size
            found.append(Header("onnx", MappingProxyType({}), tuple(infos), 0, size, path=path))
        if lists:
            size = max(info.nbytes for info in lists)
            found.append(Header("onnx", MappingProxyType({}), lists, 0, size, path=self.path))
        return tuple(found)

    def check_texts(self, *texts: str | bytes) -> None:
        """FileError for a text that is no UTF-8, which comes as bytes."""
        wrong = next((text for text in texts if not isinstance(text, str)), None)
        if wrong is not None:
            self.fail(f"has a name that is not UTF-8: {wrong!r:.80}")

    def parse(self, message: Any, raw: bytes, what: str) -> Any:
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

        try:
            return message.FromString(raw)
        except (DecodeError, UnicodeDecodeError) as error:
            self.fail(f"{what} is no ONNX: {' '.join(str(error).split())[:80]}")

    def fields(self, size: int) -> Iterator[tuple[int, bytes, int | None]]:
        """The fields of a message of `size` bytes: number, bytes of the tag and of a plain value, length.

        A field with a length leaves the window at its content, and whoever takes the field steps over it.
        """
        end = self.window.position + size
        while self.window.position < end:
            tag, raw = self.varint()
            field, kind = tag >> 3, tag & 7
            if kind == 0:
                yield field, raw + self.varint()[1], None
            elif kind in {1, 5}:
                yield field, raw + self.window.take(8 if kind == 1 else 4, "a number"), None
            elif kind == 2:
                length, more = self.varint()
                if length > end - self.window.position:
                    self.fail(
                        f"a field at byte {self.window.position} of {length} bytes is beyond its message"
                    )
                yield field, raw + more, length
            else:
                self.fail(f"is no ONNX model: a field of kind {kind} at byte {self.window.position}")
        if self.window.position != end:
            self.fail(f"a message ends at byte {end} and its last field at {self.window.position}")

    def varint(self) -> tuple[int, bytes]:
        found, raw = 0, b""
        for n in range(10):
            one = self.window.take(1, "a number")
            raw += one
            found |= (one[0] & 0x7F) << 7 * n
            if one[0] < 0x80:
                return found, raw
        at = self.window.position
        raise FileError(f"{self.path}: is no ONNX model: a number of more than 10 bytes before byte {at}")

    def whole(self, raw: bytes, length: int | None) -> bytes:
        """All bytes of a field, which are kept."""
        self.graph_bytes += len(raw) + (length or 0)
        if self.graph_bytes > MOST_GRAPH:
            self.fail(f"has a graph of more than {MOST_GRAPH} bytes besides its initializers")
        return raw + (self.window.take(length, "a field") if length else b"")

    def initializer(self, size: int) -> list[TensorInfo]:
        """An initializer, its bytes stepped over; none for one that is a list of texts."""
        kept, offset, nbytes = bytearray(), 0, -1
        for field, raw, body in self.fields(size):
            if field == _RAW and body is not None:
                offset, nbytes = self.window.position, body
                self.window.skip(body, "an initializer")
            else:
                kept += self.whole(raw, body)
        tensor = self.parse(self.onnx.TensorProto, bytes(kept), "an initializer")
        shape, name = tuple(tensor.dims), tensor.name
        what = f"initializer {name!r:.80}"
        if any(n < 0 for n in shape) or math.prod(shape) > MOST_BYTES:
            self.fail(f"{what} has shape {shape!r:.80}")
        if tensor.data_type not in self.onnx.TensorProto.DataType.values():
            self.fail(f"{what} has type {tensor.data_type}, which onnx does not know")
        kind = self.onnx.TensorProto.DataType.Name(tensor.data_type)
        kind = _TYPES.get(kind, kind)
        info = TensorInfo(name, shape, kind, max(nbytes, 0), offset)
        if tensor.data_location == self.onnx.TensorProto.EXTERNAL:
            info = self.external(tensor, info)
        elif nbytes < 0 and is_array(kind):
            info = self.listed(tensor, info)
        if is_array(kind) and info.nbytes != (needed := _needed(kind, shape)):
            self.fail(f"{what} has {info.nbytes} bytes; shape {shape} of {kind} takes {needed}")
        return [info]

    def external(self, tensor: Any, info: TensorInfo) -> TensorInfo:
        """An initializer in another file, which must lie beside this one."""
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location, what = entries.get("location", ""), f"initializer {info.name!r:.80}"
        if not location or location != Path(location).name or location in {".", ".."}:
            self.fail(f"{what} has its data in {location!r:.80}, expected a file in the same folder")
        try:
            offset = int(entries.get("offset", "0"))
            nbytes = int(entries.get("length", _needed(info.type, info.shape)))
        except ValueError:
            self.fail(f"{what} has its data at {dict(entries)!r:.80}, expected numbers")
        if not (0 <= offset <= MOST_BYTES and 0 <= nbytes <= MOST_BYTES):
            self.fail(f"{what} has its data at {offset}, {nbytes} bytes, which no file has")
        info = TensorInfo(info.name, info.shape, info.type, nbytes, offset)
        self.elsewhere.setdefault(self.path.with_name(location), []).append(info)
        return info

    def listed(self, tensor: Any, info: TensorInfo) -> TensorInfo:
        """An initializer written as a list of numbers: its bytes, as raw data would have them."""
        try:
            raw = self.onnx.numpy_helper.from_array(self.onnx.numpy_helper.to_array(tensor)).raw_data
        except (ValueError, TypeError, OverflowError, KeyError, AttributeError) as error:
            reason = " ".join(str(error).split())[:80]
            self.fail(f"initializer {info.name!r:.80} does not fit its shape {info.shape}: {reason}")
        self.held[info.name] = raw
        return TensorInfo(info.name, info.shape, info.type, len(raw), 0)


def _needed(kind: str, shape: tuple[int, ...]) -> int:
    """Bytes of an initializer: elements that do not fill their last byte leave it in part."""
    elements = math.prod(shape)
    if kind in PACKED:
        return -(-elements * PACKED[kind][0].bits // 8)
    return size_of(kind, elements) if is_array(kind) else 0


def _dequantizers(graph: Any) -> Iterator[Dequantize]:
    """The nodes of a graph that dequantize blocks of initializers."""
    made = {output: node for node in graph.node for output in node.output}

    def made_by(name: str, kind: str) -> Any:
        node = made.get(name)
        return node if node is not None and node.op_type == kind and node.domain in {"", "ai.onnx"} else None

    for node in graph.node:
        attributes = {a.name: a.i for a in node.attribute}
        if made_by(next(iter(node.output), ""), "DequantizeLinear") is not node or len(node.input) < 2:
            continue
        if attributes.get("block_size", 0) < 1 or any(node.input[2:]):
            continue
        scales, tensor_scale = node.input[1], ""
        if (cast := made_by(scales, "Cast")) and cast.input:
            scales = cast.input[0]
        if first := made_by(scales, "DequantizeLinear"):
            if len(first.input) < 2 or any(first.input[2:]):
                continue
            scales, tensor_scale = first.input[:2]
        axis = attributes.get("axis", 1)
        yield Dequantize(node.output[0], node.input[0], scales, axis, attributes["block_size"], tensor_scale)
