# SPDX-License-Identifier: Apache-2.0
"""What a model is written to: a file, or an .onnx and its data beside it, which appear together."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ..whole import Whole
from .frames import Frame

PIECE: Final = 1 << 26
"""Bytes that are handed to the system at a time."""


def data_path(path: Path) -> Path:
    """Where the external data of an ONNX file lie.

    >>> data_path(Path("model.onnx")).name
    'model.onnx.data'
    """
    return path.with_name(f"{path.name}.data")


class Output(Whole):
    """A file being written, at whatever place of it."""

    def put(self, offset: int, view: memoryview) -> None:
        """Write bytes at a place."""
        done = 0
        self.file.seek(offset)
        while done < len(view):
            done += self.file.write(view[done : done + PIECE])


class Outputs:
    """The files of one model. OSError, with the name of the file, where they cannot be made or written."""

    def __init__(self, path: Path, frame: Frame, overwrite: bool) -> None:
        """Room for all of it is set aside at once, and what is known of it is written."""
        self.path, self.overwrite = path, overwrite
        self._away = {part.name for part in frame.beside}
        self._aside: list[tuple[Path, Path]] = []
        self._beside: Output | None = None
        with _named(path):
            self._main = Output(path, overwrite=overwrite)
        try:
            if frame.beside:
                with _named(data_path(path)):
                    self._beside = Output(data_path(path), overwrite=overwrite)
                    self._beside.reserve(frame.beside_size)
            with _named(path):
                self._main.reserve(frame.size)
                for offset, raw in frame.fixed:
                    self._main.put(offset, memoryview(raw))
        except BaseException:
            self.abandon()
            raise

    @property
    def files(self) -> tuple[Output, ...]:
        """The data, if they are apart, and then the file."""
        return (self._main,) if self._beside is None else (self._beside, self._main)

    def put(self, name: str, offset: int, view: memoryview) -> None:
        """Write bytes of a part of a tensor, at a place of the file that it lies in."""
        file = self._beside if name in self._away and self._beside is not None else self._main
        with _named(file.path):
            file.put(offset, view)

    @contextlib.contextmanager
    def readable(self) -> Iterator[Path]:
        """A path at which the model can be read before it has its name; another folder, the same names."""
        with tempfile.TemporaryDirectory(prefix="mxfp-") as folder:
            for file in self.files:
                (Path(folder) / file.path.name).symlink_to(file.place)
            yield Path(folder) / self.path.name

    def commit(self) -> None:
        """Give the files their names, the data first.

        Of two files the old ones are put aside before, so that never one is new and the other old; if this
        fails they are put back.
        """
        done: list[Output] = []
        try:
            if len(self.files) > 1 and self.overwrite:
                for file in self.files:  # what takes long comes first, while the old ones have their names
                    os.fsync(file.file.fileno())
                for file in reversed(self.files):
                    self._put_aside(file.path)
            for file in self.files:
                with _named(file.path):
                    file.commit()
                done.append(file)
        except BaseException:
            if len(done) < len(self.files):
                for file in done:
                    file.path.unlink(missing_ok=True)
                for hidden, path in self._aside:
                    hidden.replace(path)
            self.abandon()
            raise
        for hidden, _ in self._aside:
            with contextlib.suppress(OSError):
                hidden.unlink()

    def _put_aside(self, path: Path) -> None:
        if path.exists() or path.is_symlink():
            hidden = path.with_name(f".{path.name[:200]}-{secrets.token_hex(4)}")
            with _named(path):
                path.rename(hidden)
            self._aside.append((hidden, path))

    def abandon(self) -> None:
        """Leave nothing."""
        for file in self.files:
            file.abandon()


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors that say which of the files."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise
