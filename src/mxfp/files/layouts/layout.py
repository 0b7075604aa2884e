# SPDX-License-Identifier: Apache-2.0
"""What a layout is: how one BlockArray lies in the tensors of a file, and comes back from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol

import numpy as np

from ...blocks import BlockArray
from ...formats import BlockFormat
from ..header import TensorInfo
from ..tensor import Bytes, Declared, Fetch, LayoutError, Tensor

Container = Literal["safetensors", "gguf", "onnx"]
"""The kinds of files that are written."""
NanScales = Literal["raise", "keep"]
"""What is done with a NaN scale where the owner of a layout reads its code as a number."""
NAN_SCALES: Final[tuple[NanScales, ...]] = ("raise", "keep")


class Layout(Protocol):
    """How BlockArrays lie in a container's tensors. `mxfp.files.layouts.LAYOUTS` has them by name."""

    @property
    def name(self) -> str:
        """What it is called: "gpt-oss", "gguf" …."""

    @property
    def container(self) -> Container:
        """The kind of file that its tensors are in."""

    @property
    def nan_is_number(self) -> bool:
        """Whether the owner's decoder makes a number of the NaN scale code; docs/files.md says which."""

    def formats(self) -> tuple[BlockFormat, ...]:
        """The formats of the family that it holds."""

    def plan(self, declared: Declared) -> Tensor:
        """The tensors that hold it, with names, types, shapes and sizes; their offsets are 0.

        Raises LayoutError for a format, axis or shape that the layout cannot hold.
        """

    def find(self, tensors: Mapping[str, TensorInfo], metadata: Mapping[str, Any]) -> list[Tensor]:
        """The BlockArrays among the tensors of a model.

        Raises ValueError, without the path, where parts are missing or do not fit each other.
        """

    def load(self, tensor: Tensor, fetch: Fetch, start: int, stop: int) -> BlockArray:
        """Rows start … stop of a tensor; `start` is a multiple of its step. ValueError if they are none."""

    def pieces(self, tensor: Tensor, array: BlockArray) -> tuple[Bytes, ...]:
        """The bytes of some rows, one array for each part. What belongs to all rows is in every piece."""

    def metadata(self, tensors: tuple[Tensor, ...]) -> Mapping[str, Any]:
        """What the container's metadata must say for `find` to find them."""


def check_scales(layout: Layout, tensor: Tensor, array: BlockArray) -> None:
    """Raise LayoutError for a NaN scale that the layout's owner would read as a number."""
    if not layout.nan_is_number:
        return
    nan = array.format.scale.nan_code
    if (array.scales == nan).any():
        first = tuple(int(i) for i in np.argwhere(array.scales == nan)[0])
        raise LayoutError(
            f"{tensor.name}: the block at {first} has the scale code {nan}, NaN, which readers of the layout "
            f"{layout.name!r} take for a number; mend it, write another layout, or ask for nan_scales='keep'"
        )
