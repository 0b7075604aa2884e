# SPDX-License-Identifier: Apache-2.0
"""Beside the rooms: files and folders that are never seen half-written."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file that is never seen half-written: without a name until it is finished, see `Whole`."""
    whole = Whole(path, overwrite=True)
    try:
        with os.fdopen(os.dup(whole.file.fileno()), "wb") as out:
            write(out)
        whole.commit()
    finally:
        whole.abandon()


def writable(directory: Path) -> None:
    """Raise OSError naming `directory` unless files can be put there; leave nothing behind."""
    try:
        _staging(directory).rmdir()
    except OSError as error:
        raise OSError(f"cannot write to {directory}: {error.strerror}") from None


def _staging(directory: Path) -> Path:
    """Make a new folder on the same file system: inside `directory` if it exists, else beside it to be."""
    if directory.exists() or directory.is_symlink():
        return Path(tempfile.mkdtemp(prefix=".mxfp-", dir=directory))
    directory.parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))


def write_folder(files: Mapping[str, bytes], directory: Path) -> None:
    """Put all files into `directory`, made if need be, so that none is ever seen half-written.

    A new directory appears with everything in it, by one rename; in one that exists each file is
    replaced whole. Raises OSError where it cannot be written.
    """
    directory = directory.absolute()
    staging = _staging(directory)
    try:
        for name, content in files.items():
            (staging / name).write_bytes(content)
        if directory.exists():
            for name in files:
                (staging / name).replace(directory / name)
        else:
            staging.chmod(0o755)
            staging.rename(directory)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


class Whole:
    """A file that has its name when it is finished, and not before.

    Until `commit` it has no name at all where the system has such files (Linux), so that a killed process
    leaves nothing; elsewhere a hidden one beside where it will be. OSError where it cannot be made; with
    `overwrite` False that includes FileExistsError, at once and when it is finished.
    """

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        self.path, self.overwrite = path, overwrite
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not overwrite and (path.exists() or path.is_symlink()):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        handle, self._hidden = _unnamed(path)
        self.file = os.fdopen(handle, "wb", buffering=0)

    def reserve(self, size: int) -> None:
        """Have the system set room aside; OSError if there is none. Does nothing where it cannot."""
        if not size or not hasattr(os, "posix_fallocate"):
            return
        try:
            os.posix_fallocate(self.file.fileno(), 0, size)
        except OSError as error:
            if error.errno not in {errno.EINVAL, errno.EOPNOTSUPP}:
                raise

    @property
    def place(self) -> Path:
        """Where it can be read until then."""
        handles = Path("/proc/self/fd")
        return handles / str(self.file.fileno()) if self._hidden is None else self._hidden.absolute()

    def commit(self) -> None:
        """Everything on the disk, and then the name, in one step."""
        os.fsync(self.file.fileno())
        if self._hidden is None:
            self._link()
        else:
            self._rename(self._hidden)
        self._hidden = None
        self.file.close()

    def _rename(self, hidden: Path) -> None:
        """Give a hidden file its name."""
        if not self.overwrite:
            try:
                os.link(hidden, self.path)
            except OSError as error:
                # Some file systems have no second names; there, a look has to do.
                if error.errno not in {errno.EPERM, errno.EOPNOTSUPP} or self.path.exists():
                    raise
            else:
                hidden.unlink()
                return
        hidden.replace(self.path)

    def _link(self) -> None:
        """Give a file without a name its name. Over another one: a hidden name first, and then a rename."""
        source, folder = f"/proc/self/fd/{self.file.fileno()}", os.open(self.path.parent, os.O_RDONLY)
        try:
            if not self.overwrite:
                # src_dir_fd is there for Python to call linkat, which alone follows the link.
                os.link(source, self.path, src_dir_fd=folder)
                return
            hidden = _hidden_name(self.path)
            os.link(source, hidden, src_dir_fd=folder)
            try:
                hidden.replace(self.path)
            finally:
                hidden.unlink(missing_ok=True)
        finally:
            with contextlib.suppress(OSError):
                os.fsync(folder)
            os.close(folder)

    def abandon(self) -> None:
        """Leave nothing. Does nothing after `commit`."""
        self.file.close()
        if self._hidden is not None:
            self._hidden.unlink(missing_ok=True)
            self._hidden = None


def _hidden_name(path: Path) -> Path:
    return path.with_name(f".{path.name[:200]}-{secrets.token_hex(4)}")


def _unnamed(path: Path) -> tuple[int, Path | None]:
    """A new file in the folder of `path`: its handle, and its name if it had to have one."""
    if hasattr(os, "O_TMPFILE") and Path("/proc/self/fd").is_dir():
        try:
            return os.open(path.parent, os.O_TMPFILE | os.O_RDWR, 0o666), None
        except OSError as error:
            # Some file systems have none; some systems answer as if the folder were the file.
            if error.errno not in {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL}:
                raise
    hidden = _hidden_name(path)
    return os.open(hidden, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666), hidden
