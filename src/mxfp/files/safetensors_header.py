# SPDX-License-Identifier: Apache-2.0
"""The header of a safetensors file: eight bytes of length, JSON, and then the data without gaps."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from .header import MOST_BYTES, MOST_TENSORS, FileError, Header, TensorInfo, check_tensors
from .types import SAFETENSORS
from .window import Window

MOST_HEADER: Final = 100_000_000
"""The format's own limit, in bytes."""
MOST_MARKS: Final = 1 << 22
"""Commas and brackets of a header: what bounds the memory that its JSON takes. A tensor has some ten."""
MOST_AXES: Final = 64
"""As many as numpy allows."""
METADATA: Final = "__metadata__"
_FIELDS: Final = {"dtype", "shape", "data_offsets"}


def read_safetensors_header(path: str | Path) -> Header:
    """The header of a safetensors file; its data need not be there.

    `metadata` are the texts under `__metadata__`. Raises FileError, in one line, for whatever is not as the
    format has it: a length that the file or the format does not allow, what is not JSON or has a key twice,
    unknown dtypes, shapes that do not fit their bytes, data that overlap, leave gaps, or belong to no tensor.
    """
    path = Path(path)
    with Window(path) as window:
        size = int.from_bytes(window.take(8, "the header's length"), "little")
        if size > MOST_HEADER:
            raise FileError(f"{path}: a header of {size} bytes, expected at most {MOST_HEADER}")
        raw = window.take(size, "the header")
        start = window.position
        listed = read_json(path, raw, "the header")
        metadata = listed.pop(METADATA, {})
        _check_metadata(path, metadata)
        if len(listed) > MOST_TENSORS:
            raise FileError(f"{path}: has {len(listed)} tensors, expected at most {MOST_TENSORS}")
        tensors = tuple(_tensor(path, start, name, entry) for name, entry in listed.items())
        header = Header("safetensors", MappingProxyType(metadata), tensors, start, window.size, path=path)
    check_tensors(path, tensors)
    _check_tiling(header)
    return header


def read_json(path: Path, raw: bytes, what: str) -> dict[str, Any]:
    """Bytes -> a JSON object in which no key is there twice, or FileError."""
    if sum(raw.count(mark) for mark in (b",", b"[", b"{")) > MOST_MARKS:
        raise FileError(f"{path}: {what} lists more than {MOST_MARKS} things")
    if not raw.startswith(b"{"):
        raise FileError(
            f"{path}: {what} begins with {raw[:1].hex() or 'nothing'}, expected 7b, a JSON object"
        )

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(found)
        if len(made) < len(found):
            twice = Counter(key for key, _ in found).most_common(1)[0][0]
            raise FileError(f"{path}: {what} has the key {twice!r:.80} twice")
        if not is_text(*made, *(v for v in made.values() if isinstance(v, str))):
            raise FileError(f"{path}: {what} has half of a surrogate pair in a text")
        return made

    def constant(text: str) -> Any:
        raise FileError(f"{path}: {what} has {text}, which is not JSON")

    try:
        found = json.loads(raw.decode("utf-8"), object_pairs_hook=pairs, parse_constant=constant)
    except FileError:
        raise
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: {what} is not UTF-8 (byte {error.start})") from None
    except RecursionError:
        raise FileError(f"{path}: {what} has brackets within brackets, too deep") from None
    except ValueError as error:
        reason = " ".join(str(error).split())[:120]
        raise FileError(f"{path}: {what} is not JSON: {reason}") from None
    assert isinstance(found, dict)
    return found


def is_text(*texts: str) -> bool:
    """Whether texts can be written in UTF-8; JSON can escape what cannot."""
    try:
        "".join(texts).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _check_metadata(path: Path, metadata: Any) -> None:
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise FileError(f"{path}: {METADATA} must be an object of texts")


def _tensor(path: Path, start: int, name: str, entry: Any) -> TensorInfo:
    what = f"{path}: tensor {name!r:.80}"
    if not isinstance(entry, dict) or set(entry) != _FIELDS:
        found = sorted(entry) if isinstance(entry, dict) else type(entry).__name__
        raise FileError(f"{what} has {found}, expected dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in SAFETENSORS:
        raise FileError(f"{what} has dtype {dtype!r:.60}, expected one of {', '.join(SAFETENSORS)}")
    for numbers, field in ((shape, "shape"), (offsets, "data_offsets")):
        if not isinstance(numbers, list) or not all(type(v) is int and 0 <= v <= MOST_BYTES for v in numbers):
            raise FileError(f"{what} has {field} {numbers!r:.60}, expected a list of non-negative integers")
    if len(shape) > MOST_AXES:
        raise FileError(f"{what} has {len(shape)} axes, expected at most {MOST_AXES}")
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise FileError(f"{what} has data_offsets {offsets!r:.60}, expected [begin, end]")
    block, elements, nbytes = SAFETENSORS[dtype], math.prod(shape), offsets[1] - offsets[0]
    if elements % block.elements or elements // block.elements * block.nbytes != nbytes:
        needed = f"{elements * block.nbytes / block.elements:g}" if elements < MOST_BYTES else "too many"
        raise FileError(f"{what} has {nbytes} bytes; shape {shape!r:.60} of {dtype} takes {needed}")
    return TensorInfo(name, tuple(shape), dtype, nbytes, start + offsets[0])


def _check_tiling(header: Header) -> None:
    """Data must begin where the header ends, leave no gap, and be all that the file has."""
    end = header.data_start
    for t in sorted(header.tensors, key=lambda t: (t.offset, t.nbytes)):
        if t.offset != end:
            raise FileError(
                f"{header.path}: tensor {t.name!r:.80} begins at byte {t.offset - header.data_start} of the "
                f"data, expected {end - header.data_start}, where the one before ends"
            )
        end += t.nbytes
    if header.file_size > end:
        raise FileError(f"{header.path}: {header.file_size - end} bytes after the last tensor belong to none")
