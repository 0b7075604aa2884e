# SPDX-License-Identifier: Apache-2.0
"""Beside the rooms: files and folders that are never seen half-written."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file that is never seen half-written: a temporary one beside it, then a rename."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            write(out)
            out.flush()
            os.fsync(out.fileno())
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


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
