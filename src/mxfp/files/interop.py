# SPDX-License-Identifier: Apache-2.0
"""BlockArrays as arrays of ml_dtypes and as torch's tensors, and back; DLPack and the array interface too."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ..blocks import BlockArray, check_axis
from ..formats import BLOCK_FORMATS, BlockFormat, Codes, ScaleRule
from ..packing import pack, unpack

ELEMENTS: Final[Mapping[str, np.dtype[Any]]] = MappingProxyType(
    {
        "E2M1": np.dtype(ml_dtypes.float4_e2m1fn),
        "E2M3": np.dtype(ml_dtypes.float6_e2m3fn),
        "E3M2": np.dtype(ml_dtypes.float6_e3m2fn),
        "E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
        "E5M2": np.dtype(ml_dtypes.float8_e5m2),
        "INT8": np.dtype(np.int8),
    }
)
"""Elements by the names of their formats; INT8 has no dtype of its own, and -64 is -1 there."""
SCALES: Final[Mapping[str, np.dtype[Any]]] = MappingProxyType(
    {"E8M0": np.dtype(ml_dtypes.float8_e8m0fnu), "UE4M3": np.dtype(ml_dtypes.float8_e4m3fn)}
)
"""Scales by the names of their formats."""
PAIRS: Final = "float4_e2m1fn_x2"
"""torch's two elements in a byte, the even one low."""


def to_ml_dtypes(array: BlockArray) -> tuple[NDArray[Any], NDArray[Any]]:
    """Elements (…), one a byte, and scales, as arrays of ml_dtypes: read-only views, without a copy.

    >>> import mxfp
    >>> elements, scales = to_ml_dtypes(mxfp.quantize([0.5, -6.0, 3.0]))
    >>> elements.dtype.name, [float(e) for e in elements], scales.dtype.name, float(scales[0])
    ('float4_e2m1fn', [0.5, -6.0, 3.0], 'float8_e8m0fnu', 1.0)
    """
    fmt = _known(array.format)
    return array.codes.view(ELEMENTS[fmt.element.name]), array.scales.view(SCALES[fmt.scale.name])


def to_torch(array: BlockArray, *, copy: bool = True) -> tuple[Any, Any]:
    """Elements and scales as torch's tensors; E2M1 two in a byte (float4_e2m1fn_x2), along the last axis.

    copy: with False, elements of eight bits and scales share memory with the array, which must then not be
    written to; torch has no read-only tensors. Raises ImportError without torch, and ValueError for MXFP6,
    which torch has no dtype for, and for rows of E2M1 that do not fill their bytes.
    """
    import torch

    fmt = _known(array.format)
    element = fmt.element
    if element.bits == 6:
        raise ValueError(f"torch has no dtype for {fmt}; it has them for MXFP4, NVFP4, MXFP8 and MXINT8")
    name = ELEMENTS[element.name].name
    codes = array.codes
    if element.bits == 4:
        if not codes.ndim or codes.shape[-1] % 2:
            raise ValueError(f"torch has {name} two in a byte; rows of {codes.shape[-1:]} do not fill theirs")
        codes, name = pack(codes, element), PAIRS
    elif copy:
        codes = codes.copy()
    scales = array.scales.copy() if copy else array.scales
    dtypes = getattr(torch, name, None), getattr(torch, SCALES[fmt.scale.name].name, None)
    if None in dtypes:
        raise ValueError(f"this torch, {torch.__version__}, has no dtype {name}; a newer one does")
    first, second = (
        torch.from_dlpack(one).view(dtype) for one, dtype in zip((codes, scales), dtypes, strict=True)
    )
    return first, second


def from_arrays(
    elements: Any,
    scales: Any,
    fmt: BlockFormat | None = None,
    *,
    axis: int = -1,
    tensor_scale: float = 1.0,
    scale_rule: ScaleRule | None = None,
    packed: bool = False,
) -> BlockArray:
    """A BlockArray from elements and scales of ml_dtypes, of torch, or from the bytes of either.

    elements, scales: numpy's arrays, torch's tensors, or anything with `__dlpack__` or
    `__array_interface__`. fmt: known from the dtypes if they are those of the format; needed for uint8.
    packed: uint8 elements of four or six bits share bytes, as `mxfp.pack` packs them; then the last axis is
    the one of the blocks, and full. The memory is copied if somebody could write to it.

    Raises TypeError for dtypes that are no elements or scales, ValueError for what does not fit.

    >>> import mxfp, numpy as np
    >>> q = mxfp.quantize([0.5, -6.0, 3.0])
    >>> from_arrays(*to_ml_dtypes(q)) == q
    True
    """
    (found, kind), (shared, of) = _bytes(elements, "elements"), _bytes(scales, "scales")
    if fmt is None:
        fmt = _format(kind, of)
    _check(kind, fmt, ELEMENTS.get(fmt.element.name), "elements")
    _check(of, fmt, SCALES.get(fmt.scale.name), "scales")
    if kind == PAIRS or (packed and kind == "uint8"):
        where = check_axis(axis, found.ndim, "elements")
        if where != found.ndim - 1:
            raise ValueError(f"packed elements have blocks along the last axis, not along {axis}")
        length = shared.shape[-1] * fmt.block if shared.ndim else 0
        if kind == PAIRS:
            length = 2 * found.shape[-1]
        found = unpack(found, fmt.element, length)
        found.flags.writeable = False
    return BlockArray(found, shared, fmt, axis, tensor_scale, scale_rule=scale_rule)


def _known(fmt: BlockFormat) -> BlockFormat:
    """The format, if dtypes stand for its elements and scales."""
    if BLOCK_FORMATS.get(fmt.name) != fmt:
        raise ValueError(f"there are no dtypes for {fmt}; there are for {', '.join(BLOCK_FORMATS)}")
    return fmt


def _bytes(array: Any, what: str) -> tuple[Codes, str]:
    """Anything with bytes in it -> an array of them, and the name of its dtype."""
    name = str(getattr(array, "dtype", "")).removeprefix("torch.")
    if str(getattr(array, "dtype", "")).startswith("torch."):
        import torch

        array = np.from_dlpack(array.detach().cpu().view(torch.uint8))
    elif not isinstance(array, np.ndarray) and hasattr(array, "__dlpack__"):
        array = np.from_dlpack(array)
        name = array.dtype.name
    else:
        array = np.asarray(array)
        name = array.dtype.name
    if array.dtype.itemsize != 1 or name == "bool":
        raise TypeError(f"{what} are of dtype {name}, expected one of ml_dtypes or torch, or uint8")
    return array.view(np.uint8), name


def _format(elements: str, scales: str) -> BlockFormat:
    for fmt in BLOCK_FORMATS.values():
        names = {ELEMENTS[fmt.element.name].name, PAIRS if fmt.element.bits == 4 else ""}
        if elements in names and scales == SCALES[fmt.scale.name].name:
            return fmt
    raise TypeError(
        f"elements of {elements} and scales of {scales} are no format of the family; give fmt= for bytes"
    )


def _check(name: str, fmt: BlockFormat, dtype: np.dtype[Any] | None, what: str) -> None:
    wanted = {"uint8", dtype.name if dtype is not None else "uint8"}
    if what == "elements" and fmt.element.bits == 4:
        wanted.add(PAIRS)
    if name not in wanted:
        raise TypeError(f"{what} of {fmt} are {' or '.join(sorted(wanted))}, got {name}")
