# SPDX-License-Identifier: Apache-2.0
"""The C model, written to a folder: one C99 file and its header, for simulators that call C."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Final

from ..whole import write_folder

C_FILES: Final = ("mxfp_dot.c", "mxfp_dot.h")
"""The files of the model, in `mxfp/verify/c/`; docs/c-model.md has what is in them."""


def c_files() -> dict[str, bytes]:
    """The files of the C model by name, as they are in the package.

    >>> {name: content[:41].decode() for name, content in c_files().items()}["mxfp_dot.h"]
    '/* SPDX-License-Identifier: Apache-2.0 */'
    """
    folder = resources.files(__package__).joinpath("c")
    return {name: folder.joinpath(name).read_bytes() for name in C_FILES}


def export_c(directory: str | Path, *, force: bool = False) -> list[Path]:
    """Write the C model to a folder, made if need be; the paths of its files.

    No file is ever seen half-written, and a new folder appears with everything in it. Files there that have
    the same content are left alone. Raises FileExistsError, having written nothing, where one has another
    content and force is False; OSError where the folder cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in export_c(folder)]
    ['mxfp_dot.c', 'mxfp_dot.h']
    """
    files = c_files()
    folder = Path(directory).absolute()
    paths = [folder / name for name in files]
    if folder.is_dir():
        files = {name: content for name, content in files.items() if not _holds(folder / name, content)}
        for name in files:
            if (folder / name).is_dir():
                raise FileExistsError(f"{folder / name} is a folder; give another folder for the files")
        other = [str(folder / name) for name in files if (folder / name).exists()]
        if other and not force:
            raise FileExistsError(
                f"{', '.join(other)} exists with other content, and nothing was written; force (--force) "
                "overwrites it, or give another folder"
            )
        if not files:
            return paths
    elif folder.exists() or folder.is_symlink():
        raise FileExistsError(f"{folder} is no folder; give the folder that the files go to")
    write_folder(files, folder)
    return paths


def _holds(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content
