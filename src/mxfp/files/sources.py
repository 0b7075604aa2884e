# SPDX-License-Identifier: Apache-2.0
"""Where bytes of tensors come from: files, read where and when they are asked for."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from io import FileIO
from pathlib import Path
from typing import Final

import numpy as np

from .header import FileError, Header, TensorInfo
from .tensor import Bytes

MOST_OPEN: Final = 64
"""Files of a model that are held open at a time."""
PIECE: Final = 1 << 30
"""Bytes that are asked of the system at a time."""


class Files:
    """The files of a model, opened when they are first read.

    They are read, and not mapped into memory: what another process cuts off is then a short read, which is a
    FileError, where a mapped page that is gone would end the process.
    """

    def __init__(
        self, headers: Iterable[Header], apart: Mapping[str, Callable[[int, int], Bytes]] | None = None
    ) -> None:
        """`apart`: readers, (first byte, how many), of tensors that do not lie in a file as they are."""
        self._of = {tensor.name: header for header in headers for tensor in header.tensors}
        self._apart = apart or {}
        self._open: OrderedDict[Path, FileIO] = OrderedDict()
        self._seen: dict[Path, int] = {}
        self._lock = threading.Lock()
        self._closed = False

    def fetch(self, info: TensorInfo, start: int, count: int) -> Bytes:
        """Bytes start … start + count of a tensor, in an array of its own."""
        if self._closed:
            raise ValueError("the model file is closed")
        assert 0 <= start <= start + count <= info.nbytes
        if info.name in self._apart:
            return self._apart[info.name](start, count)
        header = self._of[info.name]
        end = info.offset + start + count
        if count and end > header.file_size:
            raise FileError(
                f"{header.path}: cut off: {info.name!r:.80} is read up to byte {end}, and the file "
                f"has {header.file_size}"
            )
        out = np.empty(count, np.uint8)
        view = out.data
        with self._lock:
            try:
                file = self._file(header)
                file.seek(info.offset + start)
                done = 0
                while done < count:
                    got = file.readinto(view[done : done + PIECE])
                    if not got:
                        raise FileError(f"{header.path}: became shorter while it was read")
                    done += got
            except OSError as error:
                raise FileError(f"{header.path}: {error.strerror or error}") from None
        out.flags.writeable = False
        return out

    def _file(self, header: Header) -> FileIO:
        path = header.path
        if path in self._open:
            self._open.move_to_end(path)
            return self._open[path]
        file = FileIO(path)
        found = os.fstat(file.fileno())
        if found.st_size != header.file_size or self._seen.get(path, found.st_ino) != found.st_ino:
            file.close()
            raise FileError(f"{path}: is another file than when it was opened")
        self._seen[path] = found.st_ino
        self._open[path] = file
        if len(self._open) > MOST_OPEN:
            self._open.popitem(last=False)[1].close()
        return file

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            self._closed, self._apart = True, {}
            while self._open:
                self._open.popitem()[1].close()
