# SPDX-License-Identifier: Apache-2.0
"""How BlockArrays lie in files, by name: docs/files.md has each, byte by byte."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from .gguf import GGUF
from .layout import Container, Layout, NanScales
from .native import NATIVE
from .onnx import ONNX
from .suffixed import COMPRESSED_TENSORS, GPT_OSS, MODELOPT

LAYOUTS: Final[Mapping[str, Layout]] = MappingProxyType(
    {found.name: found for found in (GPT_OSS, COMPRESSED_TENSORS, MODELOPT, GGUF, ONNX, NATIVE)}
)
"""Every layout, by its name."""


def layout_named(name: str) -> Layout:
    """A layout by its name; ValueError names those there are.

    >>> layout_named("gpt-oss").container
    'safetensors'
    """
    if name not in LAYOUTS:
        raise ValueError(f"there is no layout {name!r}; expected one of {', '.join(LAYOUTS)}")
    return LAYOUTS[name]


__all__ = ["LAYOUTS", "Container", "Layout", "NanScales", "layout_named"]
