# SPDX-License-Identifier: Apache-2.0
"""The head of a GGUF file to be written: by gguf's own writer, with keys of another file spliced in."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from .dtypes import is_array
from .frames import Frame
from .gguf_header import ALIGNMENT, MOST_AXES
from .header import FileError, Header, TensorInfo
from .tensor import LayoutError
from .types import gguf_sizes

LONGEST_NAME: Final = 63
"""Bytes of a name that ggml reads: GGML_MAX_NAME is 64, with the zero at the end."""
ARCHITECTURE: Final = "general.architecture"
_NOT_KEPT: Final = ("general.alignment", "split.no", "split.count", "split.tensors.count")
FILE_TYPE: Final = "general.file_type"
_FILE_TYPES: Final = {"MXFP4": 38, "NVFP4": 39}
_FLOAT_TYPES: Final = {"F32": 0, "F16": 1, "BF16": 32}


def gguf_frame(parts: Sequence[TensorInfo], metadata: Mapping[str, Any], keep: Header | None = None) -> Frame:
    """Magic, keys, tensor infos and padding. `keep`: keys of another GGUF file, as they are there.

    Raises LayoutError for types, names and shapes that GGUF does not have, and metadata of other types.
    """
    from gguf import GGMLQuantizationType, GGUFWriter

    for part in parts:
        _check(part)
    if own := next((key for key in _NOT_KEPT if key in metadata), None):
        raise LayoutError(f"{own} is the file's own to say, and no metadata to give")
    kept, kept_count = _kept(keep, metadata)
    architecture = metadata.get(ARCHITECTURE, "unknown")
    writer = GGUFWriter(None, architecture)
    if ARCHITECTURE not in metadata and keep is not None and ARCHITECTURE in keep.metadata:
        writer.kv_data[0].clear()
    for key, value in metadata.items():
        if key != ARCHITECTURE:
            _add(writer, key, value)
    for part in parts:
        kind = GGMLQuantizationType[part.type]
        writer.add_tensor_info(part.name, part.shape, np.dtype(np.float32), part.nbytes, raw_dtype=kind)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "head.gguf"
        try:
            writer.write_header_to_file(path)
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
        except (OverflowError, TypeError, ValueError, struct.error) as error:
            raise LayoutError(
                f"metadata that GGUF does not have: {' '.join(str(error).split())[:100]}"
            ) from None
        finally:
            writer.close()
        raw = path.read_bytes()
    # Magic, version, tensors, keys; then the keys that are kept; then what the writer wrote.
    keys = int.from_bytes(raw[16:24], "little") + kept_count
    raw = raw[:16] + keys.to_bytes(8, "little") + kept + raw[24:]
    start = -(-len(raw) // ALIGNMENT) * ALIGNMENT
    placed, end = [], start
    for part in parts:
        placed.append(replace(part, offset=end))
        end += -(-part.nbytes // ALIGNMENT) * ALIGNMENT
    return Frame(((0, raw),), tuple(placed), end)


def file_type(parts: Sequence[TensorInfo], keep: Header | None = None) -> dict[str, int]:
    """The keys by which llama.cpp knows a file whose blocks are mostly of the family.

    A file that says it is mostly of another quantized type, and has none left, says that no more.
    """
    for kind, number in _FILE_TYPES.items():
        if any(part.type == kind for part in parts):
            return {FILE_TYPE: number, "general.quantization_version": 2}
    known = None if keep is None else keep.metadata.get(FILE_TYPE)
    if known in {None, *_FLOAT_TYPES.values()} or not all(is_array(part.type) for part in parts):
        return {}
    sizes = {kind: sum(part.nbytes for part in parts if part.type == kind) for kind in _FLOAT_TYPES}
    return {FILE_TYPE: _FLOAT_TYPES[max(sizes, key=lambda kind: sizes[kind])]}


def _check(part: TensorInfo) -> None:
    if part.type not in gguf_sizes():
        raise LayoutError(f"{part.name}: GGUF has no type {part.type}; F32, F16 and BF16 it has")
    if len(part.name.encode()) > LONGEST_NAME:
        raise LayoutError(
            f"{part.name}: a name of {len(part.name.encode())} bytes, and ggml reads at most {LONGEST_NAME}"
        )
    if "\0" in part.name:
        raise LayoutError(f"{part.name!r:.80}: a name with a zero byte, at which ggml cuts it off")
    if len(part.shape) > MOST_AXES:
        raise LayoutError(f"{part.name}: shape {part.shape} has more than the {MOST_AXES} axes of GGUF")


def _kept(keep: Header | None, metadata: Mapping[str, Any]) -> tuple[bytes, int]:
    """The bytes of the keys of another file, but for those that are given anew or belong to that file."""
    if keep is None:
        return b"", 0
    if keep.format != "gguf" or keep.big_endian:
        kind = "big-endian" if keep.big_endian else keep.format
        raise LayoutError(
            f"{keep.path}: keys are kept from little-endian GGUF files, and this is {kind}; .safetensors and "
            ".onnx can be written of it"
        )
    found = []
    try:
        with keep.path.open("rb") as file:
            for key, (begin, end) in keep.spans.items():
                if key not in metadata and key not in _NOT_KEPT:
                    file.seek(begin)
                    found.append(file.read(end - begin))
    except OSError as error:
        raise FileError(f"{keep.path}: {error.strerror or error}") from None
    return b"".join(found), len(found)


def _add(writer: Any, key: str, value: Any) -> None:
    """A key of the type that its value has: uint32, or the least of the others that holds it."""
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, (int, np.integer)):
        if 0 <= value < 2**32:
            writer.add_uint32(key, int(value))
        elif -(2**31) <= value < 0:
            writer.add_int32(key, int(value))
        elif value > 0:
            writer.add_uint64(key, int(value))
        else:
            writer.add_int64(key, int(value))
    elif isinstance(value, (float, np.floating)):
        writer.add_float32(key, float(value))
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, (list, tuple)) and value:
        writer.add_array(key, list(value))
    else:
        raise LayoutError(
            f"metadata of GGUF are texts, numbers, truths and lists, got {value!r:.40} for {key!r}"
        )
