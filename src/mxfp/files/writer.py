# SPDX-License-Identifier: Apache-2.0
"""A model file being written: rows of its tensors come front to back, and it appears when it is whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..blocks import BlockArray
from .dtypes import bytes_of, is_array
from .frames import Frame
from .header import FileError
from .layouts import Layout, NanScales
from .layouts.layout import check_scales
from .others import shape_of_stored
from .outputs import Outputs
from .tensor import Bytes, Tensor


class ModelWriter:
    """A model file being written; a context manager.

    Left without an error, and with every tensor complete, the file appears under its name in one step.
    Otherwise nothing is left, not even if the process is killed (where the file system has files without
    names; elsewhere a hidden temporary file may stay).
    """

    def __init__(
        self,
        path: Path,
        tensors: tuple[Tensor, ...],
        layout: Layout,
        frame: Frame,
        overwrite: bool,
        nan_scales: NanScales,
    ) -> None:
        """What `create_model` has planned."""
        self.path, self.layout, self.nbytes, self._nan = path, layout, frame.nbytes, nan_scales
        placed = {part.name: part for part in (*frame.tensors, *frame.beside)}
        self.tensors = tuple(replace(t, parts=tuple(placed[p.name] for p in t.parts)) for t in tensors)
        self._by_name = {tensor.name: tensor for tensor in self.tensors}
        self._rows = dict.fromkeys(self._by_name, 0)
        self._at = {name: part.offset for name, part in placed.items()}
        self._shared: dict[str, Bytes] = {}
        self._file: Outputs | None = None
        try:
            self._file = Outputs(path, frame, overwrite)
        except OSError as error:
            self._fail(error)

    def __enter__(self) -> ModelWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def _fail(self, error: OSError) -> NoReturn:
        self.abandon()
        path = error.filename or self.path
        if isinstance(error, FileExistsError):
            raise FileError(f"{path}: exists; ask for overwrite=True, or give another name") from None
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from None

    def _put(self, name: str, offset: int, view: memoryview) -> None:
        assert self._file is not None
        self._file.put(name, offset, view)

    def info(self, name: str) -> Tensor:
        """How a tensor will lie in the file. ValueError if none of that name is declared."""
        if name not in self._by_name:
            raise ValueError(f"no tensor {name!r:.80} is declared")
        return self._by_name[name]

    def write(self, name: str, rows: NDArray[Any] | BlockArray) -> None:
        """The next rows of a tensor, along its first axis; tensors may take turns.

        Rows of GGUF's other quantized types are their bytes: uint8, the last axis in bytes as gguf has it.
        Rows are a multiple of the tensor's `step` (but for the last). Raises ValueError for another shape,
        dtype or format, LayoutError for what the layout cannot hold, FileError if they cannot be written.
        """
        if self._file is None:
            raise ValueError(f"{self.path}: is closed")
        tensor = self.info(name)
        count = self._checked(tensor, rows)
        if isinstance(rows, BlockArray):
            if self._nan == "raise":
                check_scales(self.layout, tensor, rows)
            pieces = self.layout.pieces(tensor, rows)
        else:
            kind = tensor.type if is_array(tensor.type) else "U8"
            pieces = (bytes_of(kind, np.asarray(rows)),)
        if isinstance(rows, BlockArray) and rows.format.tensor_scale:
            pieces = self._without_shared(tensor, pieces)
        try:
            for part, piece in zip(tensor.parts, pieces, strict=False):
                self._put(part.name, self._at[part.name], piece.data)
                self._at[part.name] += piece.size
        except OSError as error:
            self._fail(error)
        self._rows[name] += count

    def _checked(self, tensor: Tensor, rows: NDArray[Any] | BlockArray) -> int:
        """How many rows are given; ValueError if they are not the tensor's."""
        name, done = tensor.name, self._rows[tensor.name]
        if isinstance(rows, BlockArray) != bool(tensor.layout):
            raise ValueError(f"{name} is declared as {tensor.type}, got {type(rows).__name__}")
        if isinstance(rows, BlockArray) and rows.format != tensor.format:
            raise ValueError(f"{name} is declared as {tensor.type}, got a BlockArray of {rows.format}")
        if tensor.layout or is_array(tensor.type):
            shape = rows.shape if isinstance(rows, BlockArray) else np.shape(rows)
        else:
            shape = shape_of_stored(tensor.type, np.asarray(rows))
        if len(shape) != len(tensor.shape) or shape[1:] != tensor.shape[1:]:
            raise ValueError(f"{name} is declared with shape {tensor.shape}, got rows of shape {shape}")
        if isinstance(rows, BlockArray) and rows.block_axis != tensor.block_axis:
            raise ValueError(f"{name} has blocks along axis {tensor.axis}, got blocks along {rows.axis}")
        count = shape[0] if shape else 1
        if done + count > tensor.rows:
            raise ValueError(f"{name} has {tensor.rows} rows, got {count} after {done}")
        if count % tensor.step and done + count != tensor.rows:
            raise ValueError(f"{name} is written in multiples of {tensor.step} rows, got {count}")
        return count

    def _without_shared(self, tensor: Tensor, pieces: tuple[Bytes, ...]) -> tuple[Bytes, ...]:
        """Pieces without the tensor scale once it is written; ValueError if rows have another one."""
        first = self._shared.setdefault(tensor.name, pieces[-1])
        if first is pieces[-1]:
            return pieces
        if not np.array_equal(first, pieces[-1]):
            raise ValueError(f"{tensor.name}: rows of one tensor have one tensor scale")
        return pieces[:-1]

    def close(self) -> None:
        """Finish: everything on the disk, and then the file's name. ValueError if rows are missing."""
        if self._file is None:
            return
        self._complete()
        try:
            self._file.commit()
        except OSError as error:
            self._fail(error)
        self._file = None

    @contextmanager
    def readable(self) -> Iterator[Path]:
        """With every tensor complete, a path at which `open_model` reads it before it has its name.

        Whoever finds it wrong raises an error, and nothing is left, nor is what it would have replaced lost.
        """
        if self._file is None:
            raise ValueError(f"{self.path}: is closed")
        self._complete()
        with self._file.readable() as path:
            yield path

    def _complete(self) -> None:
        """ValueError if rows are missing, and nothing is left."""
        short = next((t for t in self.tensors if self._rows[t.name] < t.rows), None)
        if short is not None:
            self.abandon()
            raise ValueError(
                f"{short.name} has {short.rows} rows, got {self._rows[short.name]}; no file is left"
            )
        self._fill_shared()

    def _fill_shared(self) -> None:
        """The tensor scale of tensors without rows, which nobody had to write: 1."""
        one = np.array([1.0], "<f4").view(np.uint8)
        for tensor in self.tensors:
            if tensor.format and tensor.format.tensor_scale and tensor.name not in self._shared:
                try:
                    self._put(tensor.parts[-1].name, tensor.parts[-1].offset, one.data)
                except OSError as error:
                    self._fail(error)

    def abandon(self) -> None:
        """Stop, and leave nothing."""
        if self._file is not None:
            self._file.abandon()
            self._file = None
