# SPDX-License-Identifier: Apache-2.0
"""A file of tensors before its data: what is written first, and where each tensor will lie."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .header import TensorInfo
from .safetensors_header import METADATA, MOST_HEADER
from .tensor import LayoutError
from .types import SAFETENSORS, block_size


@dataclass(frozen=True)
class Frame:
    """Bytes at places of a file, its tensors with their offsets, and its size; the rest is zeros and data.

    beside: tensors in a second file (ONNX's external data), of beside_size bytes.
    """

    fixed: tuple[tuple[int, bytes], ...]
    tensors: tuple[TensorInfo, ...]
    size: int
    beside: tuple[TensorInfo, ...] = ()
    beside_size: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return self.size + self.beside_size


def safetensors_frame(parts: Sequence[TensorInfo], metadata: Mapping[str, Any]) -> Frame:
    """Length, JSON, and the data without gaps; wide elements first, as the library does, to align them.

    Raises LayoutError for types that safetensors does not have, and metadata that are no texts.
    """
    for part in parts:
        if part.type not in SAFETENSORS:
            raise LayoutError(f"{part.name}: safetensors has no type {part.type}")
        if part.name == METADATA:
            raise LayoutError(f"no tensor of a safetensors file can be called {METADATA}")
    for key, value in metadata.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise LayoutError(f"metadata of safetensors are texts, got {value!r:.40} for {key!r:.40}")
    offsets, end = {}, 0
    for part in sorted(parts, key=lambda part: -block_size(part.type).nbytes):
        offsets[part.name] = end
        end += part.nbytes
    entries: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    for part in parts:
        begin = offsets[part.name]
        entries[part.name] = {
            "dtype": part.type,
            "shape": list(part.shape),
            "data_offsets": [begin, begin + part.nbytes],
        }
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MOST_HEADER:
        raise LayoutError(
            f"a header of {len(text)} bytes, expected at most {MOST_HEADER}; write several files"
        )
    start = 8 + len(text)
    placed = tuple(replace(part, offset=start + offsets[part.name]) for part in parts)
    return Frame(((0, len(text).to_bytes(8, "little") + text),), placed, start + end)
