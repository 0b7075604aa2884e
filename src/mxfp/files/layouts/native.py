# SPDX-License-Identifier: Apache-2.0
"""The layout "mxfp": any BlockArray, with its format, axis and rule, in safetensors with metadata.

X.codes has the axes of the array, packed along the block axis; X.scales is its scales; the metadata has one
JSON text, under the key "mxfp", that says what each is. For what the other layouts cannot hold.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from ...blocks import BlockArray, blocks_along
from ...formats import (
    BLOCK_FORMATS,
    ELEMENT_FORMATS,
    SCALE_FORMATS,
    BlockFormat,
    Codes,
    ElementFormat,
    ScaleFormat,
    Specials,
)
from ...packing import pack, unpack
from ...scale import check_rule
from ..header import FileError, TensorInfo
from ..safetensors_header import read_json
from ..tensor import Bytes, Declared, Fetch, LayoutError, Tensor
from .layout import Container
from .suffixed import check_codes, format_of
from .tensor_scale import read_scale

KEY: Final = "mxfp"
SCHEMA: Final = 1


@dataclass(frozen=True)
class Native:
    """The layout of this package's own."""

    name: str = "mxfp"
    container: Container = "safetensors"
    nan_is_number: bool = False

    def formats(self) -> tuple[BlockFormat, ...]:
        """All of the family; it holds others too."""
        return tuple(BLOCK_FORMATS.values())

    def plan(self, declared: Declared) -> Tensor:
        """The tensors that hold it; LayoutError for a scalar."""
        fmt, shape = declared.type, declared.shape
        if not isinstance(fmt, BlockFormat):
            raise LayoutError(f"{declared.name}: the layout 'mxfp' holds block formats, not {fmt!r}")
        if not shape or not -len(shape) <= declared.axis < len(shape):
            raise LayoutError(f"{declared.name}: shape {shape} has no axis {declared.axis} for blocks")
        axis = declared.axis % len(shape)
        sizes = (-(-shape[axis] * fmt.element.bits // 8), blocks_along(shape[axis], fmt.block))
        parts = [
            TensorInfo(declared.name + ending, found, "U8", math.prod(found), 0)
            for ending, size in zip((".codes", ".scales"), sizes, strict=True)
            for found in [(*shape[:axis], size, *shape[axis + 1 :])]
        ]
        if fmt.tensor_scale:
            parts.append(TensorInfo(declared.name + ".tensor_scale", (), "F32", 4, 0))
        rule = check_rule(declared.scale_rule, fmt) if declared.scale_rule else None
        # Rows are bytes of whole blocks only if those are whole bytes.
        whole = fmt.block if fmt.block * fmt.element.bits % 8 == 0 else 8 * fmt.block
        step = whole if axis == 0 else 1
        return Tensor(declared.name, shape, fmt.name, tuple(parts), self.name, fmt, declared.axis, rule, step)

    def find(self, tensors: Mapping[str, TensorInfo], metadata: Mapping[str, Any]) -> list[Tensor]:
        """The BlockArrays that the metadata speak of; ValueError where they are not as they say."""
        text = metadata.get(KEY)
        if not isinstance(text, str):
            return []
        return [self._found(name, entry, tensors) for name, entry in _entries(text).items()]

    def _found(self, name: str, entry: Any, tensors: Mapping[str, TensorInfo]) -> Tensor:
        what = f"the metadata of {name!r:.80}"
        if not isinstance(entry, dict):
            raise ValueError(f"{what} is no object")
        shape, axis, rule = entry.get("shape"), entry.get("axis"), entry.get("scale_rule")
        sizes = isinstance(shape, list) and all(type(n) is int and 0 <= n < 2**63 for n in shape)
        if not sizes or type(axis) is not int or not (rule is None or isinstance(rule, str)):
            raise ValueError(f"{what} needs a shape, an axis, and a scale_rule or null")
        fmt = _format(entry.get("format"), what)
        planned = self.plan(Declared(name, tuple(shape), fmt, axis, rule))  # type: ignore[arg-type]
        parts = []
        for part in planned.parts:
            info = tensors.get(part.name)
            if info is None:
                raise ValueError(f"{part.name!r:.80} is not there; {what} speaks of it")
            if (info.type, info.shape) != (part.type, part.shape):
                raise ValueError(
                    f"{part.name!r:.80} is {info.type} {info.shape}, expected {part.type} {part.shape}"
                )
            parts.append(info)
        return replace(planned, parts=tuple(parts))

    def load(self, tensor: Tensor, fetch: Fetch, start: int, stop: int) -> BlockArray:
        """Rows start … stop; ValueError if the bytes are no BlockArray."""
        fmt, axis = format_of(tensor), tensor.block_axis
        shape = (stop - start, *tensor.shape[1:])
        if axis == 0:
            spans = (
                (start * fmt.element.bits // 8, -(-stop * fmt.element.bits // 8)),
                (start // fmt.block, blocks_along(stop, fmt.block)),
            )
        else:
            spans = ((start, stop), (start, stop))
        raw, scales = (_rows(part, fetch, *span) for part, span in zip(tensor.parts[:2], spans, strict=True))
        check_codes(scales, fmt, tensor.parts[1].name)
        moved = unpack(np.moveaxis(raw, axis, -1), fmt.element, shape[axis])
        shared = 1.0
        if fmt.tensor_scale:
            part = tensor.parts[2]
            shared = read_scale(tensor, fetch(part, 0, part.nbytes), start, stop, divides=False)
        codes = np.moveaxis(moved, -1, axis)
        return BlockArray._of(codes, scales, fmt, tensor.axis, shared, tensor.scale_rule)

    def pieces(self, tensor: Tensor, array: BlockArray) -> tuple[Bytes, ...]:
        """The bytes of some rows, one array for each part."""
        axis = array.block_axis
        packed = np.moveaxis(pack(np.moveaxis(array.codes, axis, -1), array.format.element), -1, axis)
        found: list[Codes] = [packed, array.scales]
        if array.format.tensor_scale:
            found.append(np.array([array.tensor_scale], "<f4").view(np.uint8))
        return tuple(np.ascontiguousarray(one).reshape(-1) for one in found)

    def metadata(self, tensors: tuple[Tensor, ...]) -> Mapping[str, Any]:
        """One JSON text that says what each is."""
        if not tensors:
            return MappingProxyType({})
        entries = {
            t.name: {
                "format": _described(format_of(t)),
                "shape": list(t.shape),
                "axis": t.axis,
                "scale_rule": t.scale_rule,
            }
            for t in tensors
        }
        text = json.dumps({"schema": SCHEMA, "tensors": entries}, separators=(",", ":"))
        return MappingProxyType({KEY: text})


def _rows(part: TensorInfo, fetch: Fetch, start: int, stop: int) -> Bytes:
    each = math.prod(part.shape[1:])
    return fetch(part, start * each, (stop - start) * each).reshape(stop - start, *part.shape[1:])


def _entries(text: str) -> dict[str, Any]:
    try:
        found = read_json(Path(KEY), text.encode(), "the metadata")
    except FileError as error:
        raise ValueError(str(error)) from None
    schema, entries = found.get("schema"), found.get("tensors")
    if schema != SCHEMA:
        raise ValueError(f"the metadata under {KEY!r} has schema {schema!r:.40}, expected {SCHEMA}")
    if not isinstance(entries, dict):
        raise ValueError(f"the metadata under {KEY!r} has tensors {entries!r:.40}, expected an object")
    return entries


def _described(fmt: BlockFormat) -> Any:
    """A format by its name, or by its fields if it is none of the family."""
    if BLOCK_FORMATS.get(fmt.name) == fmt:
        return fmt.name
    element, scale = fmt.element, fmt.scale
    return {
        "name": fmt.name,
        "element": element.name
        if ELEMENT_FORMATS.get(element.name) == element
        else {**_fields_of(element), "specials": element.specials.value},
        "scale": scale.name if SCALE_FORMATS.get(scale.name) == scale else _fields_of(scale),
        "block": fmt.block,
        "scale_rules": list(fmt.scale_rules),
        "tensor_scale": fmt.tensor_scale,
    }


def _fields_of(fmt: ElementFormat | ScaleFormat) -> dict[str, Any]:
    """The fields of a format, without the tables that were derived."""
    return {name: getattr(fmt, name) for name in fmt.__dataclass_fields__}


def _format(described: Any, what: str) -> BlockFormat:
    """The way back from `_described`; ValueError for what is no format."""
    if isinstance(described, str):
        if described not in BLOCK_FORMATS:
            raise ValueError(f"{what} has the format {described!r:.40}, which is not known")
        return BLOCK_FORMATS[described]
    try:
        element, scale = described["element"], described["scale"]
        return BlockFormat(
            str(described["name"]),
            ELEMENT_FORMATS[element]
            if isinstance(element, str)
            else ElementFormat(**{**element, "specials": Specials(element["specials"])}),
            SCALE_FORMATS[scale] if isinstance(scale, str) else ScaleFormat(**scale),
            described["block"],
            tuple(described["scale_rules"]),
            bool(described["tensor_scale"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ValueError(f"{what} has a format that is none: {reason}") from None


NATIVE: Final = Native()
"""This package's own."""
