# SPDX-License-Identifier: Apache-2.0
"""A file read front to back in pieces, never beyond its end and never more than asked for."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import Final

from .header import FileError

PIECE: Final = 1 << 20
"""Bytes held at a time."""


def check_regular(path: Path) -> None:
    """Raise FileError for a path that is no file, which may never end, or never begin."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise FileError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(mode):
        what = "a directory" if stat.S_ISDIR(mode) else "no regular file"
        raise FileError(f"{path}: is {what}; expected a model file")


class Window:
    """A file and a position in it. Everything taken is checked against the file's size before it is read.

    Raises FileError for a path that is no file or cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            check_regular(path)
            self._file = path.open("rb", buffering=0)
        except OSError as error:
            raise FileError(f"{path}: {error.strerror or error}") from None
        self.size = os.fstat(self._file.fileno()).st_size
        self.position = 0
        self._start, self._held = 0, b""

    def __enter__(self) -> Window:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def left(self) -> int:
        """Bytes from here to the end of the file."""
        return self.size - self.position

    def need(self, count: int, what: str) -> None:
        """Raise FileError unless the file has `count` more bytes."""
        if count > self.left:
            raise FileError(
                f"{self.path}: cut off: {what} at byte {self.position} takes {count} bytes, and the file has "
                f"{self.left} more"
            )

    def take(self, count: int, what: str) -> bytes:
        """The next `count` bytes."""
        self.need(count, what)
        begin = self.position - self._start
        if not 0 <= begin <= len(self._held) - count:
            self._fill(count)
            begin = 0
        self.position += count
        return self._held[begin : begin + count]

    def skip(self, count: int, what: str) -> None:
        """Step over the next `count` bytes without reading them."""
        self.need(count, what)
        self.position += count

    def skip_texts(self, count: int, length: Struct, what: str) -> None:
        """Step over `count` texts, each behind its `length`: a vocabulary, without making it."""
        wide = length.size
        for _ in range(count):
            begin = self.position - self._start
            if not 0 <= begin <= len(self._held) - wide:
                self.need(wide, what)
                self._fill(wide)
                begin = 0
            (size,) = length.unpack_from(self._held, begin)
            self.position += wide
            if size > self.size - self.position:
                self.need(size, what)
            self.position += size

    def _fill(self, count: int) -> None:
        """Hold at least `count` bytes from here on; the file has them, unless it shrank meanwhile."""
        try:
            self._file.seek(self.position)
            parts = []
            wanted = max(count, min(PIECE, self.left))
            while wanted:
                part = self._file.read(wanted)
                if not part:
                    raise FileError(f"{self.path}: became shorter while it was read")
                parts.append(part)
                wanted -= len(part)
        except OSError as error:
            raise FileError(f"{self.path}: {error.strerror or error}") from None
        self._start, self._held = self.position, b"".join(parts)
