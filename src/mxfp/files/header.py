# SPDX-License-Identifier: Apache-2.0
"""What the head of a model file says: metadata, and each tensor's name, shape, type and place."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

MOST_BYTES: Final = 2**63 - 1
"""Sizes and offsets beyond what a file can have are a mistake of whoever wrote the header."""
MOST_TENSORS: Final = 2**18
"""Tensors that a header may list; the largest models in many small parts have a third of that."""


class FileError(ValueError):
    """A file is not what it says it is, or not there: one line, with what was found and what was expected."""


@dataclass(frozen=True)
class TensorInfo:
    """A tensor, as a header describes it.

    `shape` is outermost axis first, as numpy has it. `type` is the format's own name, such as "Q4_K",
    "MXFP4" or "BF16". `offset` is where its `nbytes` bytes begin, counted from the start of the file.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    nbytes: int
    offset: int

    @property
    def elements(self) -> int:
        """The product of the shape."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class LongArray:
    """An array of metadata that was stepped over: what it holds, how many, and where in the file."""

    type: str
    count: int
    offset: int


@dataclass(frozen=True)
class Header:
    """The head of one file.

    `format` is "gguf" or "safetensors"; `data_start` is where the data of tensors begin or would begin;
    `file_size` is the size of the file as it is. `version`, `alignment`, `big_endian` and `spans` are GGUF's:
    a span is from which byte to which a key lies in the file, with its value.

    >>> info = TensorInfo("x", (2, 32), "MXFP4", 34, 64)
    >>> Header("gguf", {}, (info,), data_start=64, file_size=64).complete
    False
    """

    format: str
    metadata: Mapping[str, Any]
    tensors: tuple[TensorInfo, ...]
    data_start: int
    file_size: int
    path: Path = field(default=Path(), kw_only=True)
    version: int = field(default=0, kw_only=True)
    alignment: int = field(default=1, kw_only=True)
    big_endian: bool = field(default=False, kw_only=True)
    spans: Mapping[str, tuple[int, int]] = field(default_factory=dict, kw_only=True, repr=False)

    @cached_property
    def data_end(self) -> int:
        """Where the data of the last tensor end, whether or not the file goes that far."""
        return max((t.offset + t.nbytes for t in self.tensors), default=self.data_start)

    @property
    def complete(self) -> bool:
        """Whether the file is long enough for the data of every tensor."""
        return all(t.offset + t.nbytes <= self.file_size for t in self.tensors if t.nbytes)

    @property
    def nbytes(self) -> int:
        """Bytes that the tensors take."""
        return sum(t.nbytes for t in self.tensors)

    @cached_property
    def by_name(self) -> Mapping[str, TensorInfo]:
        """The tensors by their names."""
        return {t.name: t for t in self.tensors}


def check_tensors(path: Path, tensors: Iterable[TensorInfo]) -> None:
    """Raise FileError if two tensors have one name, or share bytes, or lie beyond what a file can hold."""
    found = tuple(tensors)
    name, times = next(iter(Counter(t.name for t in found).most_common(1)), ("", 0))
    if times > 1:
        raise FileError(f"{path}: {times} tensors are called {name!r:.80}; every name must be used once")
    end, before = 0, ""
    for t in sorted((t for t in found if t.nbytes), key=lambda t: t.offset):
        if t.offset + t.nbytes > MOST_BYTES:
            raise FileError(
                f"{path}: tensor {t.name!r:.80} of {t.nbytes} bytes at {t.offset} is more than a file holds"
            )
        if t.offset < end:
            raise FileError(
                f"{path}: tensors {before!r:.80} and {t.name!r:.80} overlap: one ends at byte {end}, the "
                f"other begins at {t.offset}"
            )
        end, before = t.offset + t.nbytes, t.name
