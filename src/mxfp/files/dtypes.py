# SPDX-License-Identifier: Apache-2.0
"""The types of tensors in files as numpy arrays, and back: bytes are little-endian, codes are one a byte."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ..formats import E2M1, E2M3, E3M2, ElementFormat
from ..packing import pack, unpack
from .tensor import Bytes, LayoutError
from .types import block_size

_WHOLE: Final = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U64": np.uint64,
    "U32": np.uint32,
    "U16": np.uint16,
    "U8": np.uint8,
    "BOOL": np.bool_,
    "C64": np.complex64,
}
NUMPY: Final[Mapping[str, np.dtype[Any]]] = MappingProxyType({k: np.dtype(v) for k, v in _WHOLE.items()})
"""Types whose elements take whole bytes."""
PACKED: Final[Mapping[str, tuple[ElementFormat, np.dtype[Any]]]] = MappingProxyType(
    {
        "F4": (E2M1, np.dtype(ml_dtypes.float4_e2m1fn)),
        "F6_E2M3": (E2M3, np.dtype(ml_dtypes.float6_e2m3fn)),
        "F6_E3M2": (E3M2, np.dtype(ml_dtypes.float6_e3m2fn)),
    }
)
"""Types whose elements share bytes, in order, low bits first."""


def is_array(kind: str) -> bool:
    """Whether tensors of a type are arrays as they lie there: no blocks, no scales.

    >>> is_array("BF16"), is_array("F4"), is_array("Q4_K")
    (True, True, False)
    """
    return kind in NUMPY or kind in PACKED


def type_of(dtype: Any) -> str:
    """A numpy dtype -> the name of its type in files. LayoutError if it has none.

    >>> type_of(np.float32), type_of(ml_dtypes.bfloat16), type_of(ml_dtypes.float4_e2m1fn)
    ('F32', 'BF16', 'F4')
    """
    wanted = np.dtype(dtype).newbyteorder("=")
    for name, found in (*NUMPY.items(), *((k, v) for k, (_, v) in PACKED.items())):
        if found == wanted:
            return name
    raise LayoutError(f"there is no type of tensors for {wanted}; expected one of {', '.join(NUMPY)}")


def size_of(kind: str, elements: int) -> int:
    """Bytes of an array. ValueError if elements do not fill whole bytes or blocks."""
    block = block_size(kind)
    if elements % block.elements:
        raise LayoutError(f"{elements} elements of {kind}, expected a multiple of {block.elements}")
    return elements // block.elements * block.nbytes


def step_of(kind: str, shape: tuple[int, ...]) -> int:
    """The least number of rows that always fill whole bytes.

    >>> step_of("F32", (3, 5)), step_of("F4", (4, 5)), step_of("F6_E2M3", (4, 2))
    (1, 2, 2)
    """
    if kind in NUMPY:
        return 1
    block, each = block_size(kind).elements, math.prod(shape[1:])
    return block // math.gcd(block, each) if each else 1


def array_of(kind: str, shape: tuple[int, ...], raw: Bytes, *, big_endian: bool = False) -> NDArray[Any]:
    """Bytes as they lie in a file -> an array in the machine's byte order, without a copy where it can."""
    if kind in PACKED:
        element, dtype = PACKED[kind]
        return unpack(raw, element, math.prod(shape)).view(dtype).reshape(shape)
    dtype = NUMPY[kind]
    if dtype.itemsize == 1:
        return raw.view(dtype).reshape(shape)
    plain = np.dtype(f"{'>' if big_endian else '<'}u{dtype.itemsize}")
    if kind == "C64":
        plain = np.dtype("<u4")
    if plain.isnative:
        return raw.view(dtype).reshape(shape)
    return raw.view(plain).astype(plain.newbyteorder("=")).view(dtype).reshape(shape)


def bytes_of(kind: str, array: NDArray[Any]) -> Bytes:
    """An array -> its bytes in a file, 1-D, without a copy where it can. ValueError for another dtype."""
    dtype = PACKED[kind][1] if kind in PACKED else NUMPY[kind]
    if array.dtype.newbyteorder("=") != dtype:
        raise ValueError(f"an array of {array.dtype} for a tensor of {kind}, expected {dtype}")
    if kind in PACKED:
        return pack(np.ascontiguousarray(array).reshape(-1).view(np.uint8), PACKED[kind][0])
    if dtype.itemsize > 1 and array.dtype.kind in "iufc":
        array = np.asarray(array, array.dtype.newbyteorder("<"))
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
