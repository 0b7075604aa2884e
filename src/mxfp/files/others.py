# SPDX-License-Identifier: Apache-2.0
"""GGUF's other quantized types, Q8_0 and its like: decoded by gguf, or carried as the bytes that they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ..blocks import check_choice
from .dtypes import NUMPY, is_array
from .header import FileError, Header
from .layouts.gguf import GGUF
from .tensor import Bytes, Tensor
from .types import block_size, gguf_sizes

Floats = Literal["float32", "float16", "bfloat16"]
FLOATS: Final[Mapping[Floats, str]] = MappingProxyType(
    {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
)
"""What the other types can be decoded to, and the names of those types in files."""
_FAMILY: Final = {fmt.name for fmt in GGUF.formats()}


def is_other(tensor: Tensor) -> bool:
    """Whether a tensor is in a quantized type of GGUF that is none of the family, and not decoded."""
    kind = tensor.type
    return not (tensor.layout or is_array(kind) or kind in _FAMILY) and kind in gguf_sizes()


def is_decoded(tensor: Tensor) -> bool:
    """Whether it lies in such a type in the file, and is read as floats."""
    return not tensor.layout and tensor.type != tensor.parts[0].type


def carried_types(tensors: Iterable[Tensor]) -> Mapping[str, int]:
    """How many tensors of each of the other types there are, as they are."""
    return Counter(tensor.type for tensor in tensors if is_other(tensor))


def decoded_types(tensors: Iterable[Tensor]) -> Mapping[str, int]:
    """How many tensors of each of the other types are read as floats."""
    return Counter(tensor.parts[0].type for tensor in tensors if is_decoded(tensor))


def counted(types: Mapping[str, int]) -> str:
    """Types and how many there are of each, in words.

    >>> counted({"Q6_K": 1, "Q8_0": 24})
    '24 Q8_0, 1 Q6_K'
    """
    return ", ".join(f"{count:,} {kind}" for kind, count in sorted(types.items(), key=lambda one: -one[1]))


def as_floats(path: Path, header: Header, tensors: tuple[Tensor, ...], floats: Floats) -> tuple[Tensor, ...]:
    """The tensors of a file, those of the other types as they will be read.

    Raises FileError for a type that gguf does not decode.
    """
    check_choice(floats, tuple(FLOATS), "dequantize_others")
    if header.format != "gguf":
        return tensors
    for tensor in filter(is_other, tensors):
        block = block_size(tensor.type)
        try:
            decode(np.zeros(block.nbytes, np.uint8), (block.elements,), tensor)
        except FileError as error:
            raise FileError(f"{path}: {error}") from None
    return tuple(replace(t, type=FLOATS[floats]) if is_other(t) else t for t in tensors)


def decode(raw: Bytes, shape: tuple[int, ...], tensor: Tensor) -> NDArray[np.float32]:
    """Bytes of a quantized type of GGUF -> the values that gguf gives. FileError if it gives none."""
    from gguf import GGMLQuantizationType, quants

    kind = tensor.parts[0].type
    if not raw.size:
        return np.zeros(shape, np.float32)
    try:
        with np.errstate(all="ignore"):
            found = quants.dequantize(raw.reshape(*shape[:-1], -1), GGMLQuantizationType[kind])
    except NotImplementedError:
        raise FileError(f"{tensor.name!r:.80} is {kind}, which gguf does not decode") from None
    return np.asarray(found, np.float32).reshape(shape)


def rounded(values: NDArray[np.float32], tensor: Tensor) -> NDArray[Any]:
    """Values in the tensor's type, to nearest, ties to even. FileError for those that are beyond it."""
    if tensor.type == "F32":
        return values
    with np.errstate(all="ignore"):
        found = values.astype(NUMPY[tensor.type])
    beyond = np.isinf(found) & np.isfinite(values)
    if beyond.any():
        worst = float(values[beyond][0])
        raise FileError(
            f"{tensor.name!r:.80} has the value {worst:g}, which {tensor.type} does not hold; "
            "decode it to float32"
        )
    return found


def stored_shape(kind: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a tensor's bytes, as gguf has it: the last axis in bytes.

    >>> stored_shape("Q8_0", (3, 64))
    (3, 68)
    """
    block = block_size(kind)
    return (*shape[:-1], shape[-1] // block.elements * block.nbytes)


def shape_of_stored(kind: str, rows: NDArray[Any]) -> tuple[int, ...]:
    """The way back: bytes -> the shape that they stand for. ValueError for what are no whole blocks."""
    block = block_size(kind)
    if rows.dtype != np.uint8 or not rows.ndim or rows.shape[-1] % block.nbytes:
        raise ValueError(
            f"an array of {rows.dtype} {rows.shape} for a tensor of {kind}, expected uint8 with the last "
            f"axis in blocks of {block.nbytes} bytes"
        )
    return (*rows.shape[:-1], rows.shape[-1] // block.nbytes * block.elements)
