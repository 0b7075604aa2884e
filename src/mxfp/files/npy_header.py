# SPDX-License-Identifier: Apache-2.0
"""The headers of .npy and .npz files: arrays without the arrays, read by numpy and the zip library."""

from __future__ import annotations

import io
import lzma
import struct
import threading
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from tokenize import TokenError
from types import MappingProxyType
from typing import IO, Any, Final

import numpy as np
from numpy.lib import format as npy

from .dtypes import NUMPY, type_of
from .header import MOST_TENSORS, FileError, Header, TensorInfo
from .tensor import Bytes, LayoutError
from .window import check_regular

MOST_RATIO: Final = 1100
"""How many times its size deflate can make of anything, at most."""
Read = Callable[[int, int], Bytes]
_BROKEN: Final = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, lzma.LZMAError),
    *(EOFError, RuntimeError, ValueError, IndexError, struct.error),
)
"""What the zip library raises for archives that are none, or that it cannot read."""


def read_npy_header(path: str | Path) -> tuple[Header, dict[str, Read]]:
    """The header of an .npy or .npz file, and readers of arrays that are compressed.

    An array of an .npz file has the name it was saved under, that of an .npy file the file's. Raises
    FileError for what is no such file, is cut off, or holds objects, texts, structures, arrays in Fortran's
    order or of the other byte order.

    numpy saves dtypes of ml_dtypes without their names, as '<V' and a size: bfloat16 is the only one of two
    bytes, and is read; those of one byte (float8, float4 …) cannot be told apart, and are refused.
    """
    path = Path(path)
    check_regular(path)
    try:
        with path.open("rb") as file:
            if zipfile.is_zipfile(file):
                return _zipped(path, file)
            file.seek(0)
            info, size = _array(path, file, path.stem, 0), file.seek(0, 2)
            return Header("npy", MappingProxyType({}), (info,), info.offset, size, path=path), {}
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from None


def _array(path: Path, file: IO[bytes], name: str, begin: int) -> TensorInfo:
    """One array's header, read from where the file stands; `begin` is where that is in the whole file."""
    what = f"{path}: array {name!r:.80}"
    start = file.tell()
    try:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        if version not in {(1, 0), (2, 0)}:
            raise FileError(f"{what} is .npy of version {version}, expected 1.0 or 2.0")
        head = file.tell()
        shape, fortran, dtype = read(file)
    except (ValueError, EOFError, TypeError, SyntaxError, RecursionError, struct.error, TokenError) as error:
        if isinstance(error, FileError):
            raise
        reason = " ".join(str(error).split())[:80]
        raise FileError(f"{what} has no header of an array: {reason}") from None
    if dtype.kind == "V" and dtype.names is None:
        dtype = _unnamed(file, head, what, dtype)
    try:
        kind = type_of(dtype)
    except LayoutError:
        raise FileError(f"{what} has dtype {dtype}, expected one of {', '.join(NUMPY)}") from None
    if fortran and sum(n > 1 for n in shape) > 1:
        raise FileError(f"{what} is in Fortran's order; save numpy.ascontiguousarray of it")
    if not dtype.newbyteorder("<") == dtype:
        raise FileError(f"{what} has the byte order of other machines, {dtype.str}; expected little-endian")
    if any(n < 0 for n in shape):
        raise FileError(f"{what} has shape {shape}")
    nbytes = dtype.itemsize
    for n in shape:
        nbytes *= n
    return TensorInfo(name, tuple(int(n) for n in shape), kind, nbytes, begin + file.tell() - start)


def _unnamed(file: IO[bytes], head: int, what: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of an array that was saved without the name of it: bfloat16, or a FileError.

    numpy's own bytes without a meaning are '|V2'; only an extension's dtype has a byte order.
    """
    end = file.tell()
    file.seek(head)
    text = file.read(end - head)
    if b"'<V2'" in text:
        return NUMPY["BF16"]
    plural = "s" * (dtype.itemsize != 1)
    raise FileError(
        f"{what} was saved by numpy without the name of its dtype, which could be any of {dtype.itemsize} "
        f"byte{plural} an element (float8, float4 …); write it with mxfp.files.write_model to .safetensors, "
        "which keeps the name, or save it as .astype(numpy.float32)"
    )


def _zipped(path: Path, file: IO[bytes]) -> tuple[Header, dict[str, Read]]:
    try:
        with zipfile.ZipFile(file) as archive:
            members = [m for m in archive.infolist() if not m.is_dir()]
            if len(members) > MOST_TENSORS:
                raise FileError(f"{path}: has {len(members)} arrays, expected at most {MOST_TENSORS}")
            found = [_member(path, file, archive, member) for member in members]
    except FileError:
        raise
    except _BROKEN as error:
        raise FileError(f"{path}: is no .npz file: {' '.join(str(error).split())[:80]}") from None
    tensors = tuple(info for info, _ in found)
    if len({info.name for info in tensors}) < len(tensors):
        raise FileError(f"{path}: has two arrays of one name")
    size = max([file.seek(0, 2), *(info.offset + info.nbytes for info, read in found if read)])
    header = Header("npz", MappingProxyType({}), tensors, 0, size, path=path)
    return header, {info.name: read for info, read in found if read}


def _member(
    path: Path, file: IO[bytes], archive: zipfile.ZipFile, member: zipfile.ZipInfo
) -> tuple[TensorInfo, Read | None]:
    """One array: where it lies, or how to read it if it is compressed."""
    name = member.filename.removesuffix(".npy")
    if member.file_size > MOST_RATIO * member.compress_size + 1024:
        raise FileError(
            f"{path}: array {name!r:.80} is said to have {member.file_size} bytes in {member.compress_size}"
        )
    with archive.open(member) as inside:
        head = io.BytesIO(inside.read(1 << 16))
    stored = member.compress_type == zipfile.ZIP_STORED
    begin = _begin(path, file, member) if stored else 0
    info = _array(path, head, name, begin)
    if info.offset - begin + info.nbytes != member.file_size:
        raise FileError(
            f"{path}: array {name!r:.80} has {member.file_size} bytes, expected "
            f"{info.offset - begin + info.nbytes} for shape {info.shape} of {info.type}"
        )
    return info, None if stored else _Compressed(path, member.filename, info)


def _begin(path: Path, file: IO[bytes], member: zipfile.ZipInfo) -> int:
    """Where in the file the bytes of a member begin: behind a header of its own, of varying length."""
    file.seek(member.header_offset)
    head = file.read(30)
    if len(head) < 30 or head[:4] != b"PK\x03\x04":
        raise FileError(f"{path}: array {member.filename!r:.80} is not where the archive says")
    name, extra = struct.unpack("<HH", head[26:30])
    return member.header_offset + 30 + int(name) + int(extra)


class _Compressed:
    """Reads from a compressed member: what follows is read on, what lies before from its beginning anew."""

    def __init__(self, path: Path, filename: str, info: TensorInfo) -> None:
        self.path, self.filename, self.info = path, filename, info
        self._lock = threading.Lock()
        self._inside: IO[bytes] | None = None

    def __call__(self, start: int, count: int) -> Bytes:
        with self._lock:
            try:
                if self._inside is None:
                    # The member keeps the archive, and whoever drops the member closes it.
                    self._inside = zipfile.ZipFile(self.path).open(self.filename)  # noqa: SIM115
                self._inside.seek(self.info.offset + start)
                raw = self._inside.read(count)
            except (*_BROKEN, KeyError, OSError) as error:
                self._inside = None
                reason = " ".join(str(error).split())[:80]
                what = f"{self.path}: array {self.info.name!r:.80}"
                raise FileError(f"{what} cannot be read: {reason}") from None
            if start + count == self.info.nbytes:
                self._inside = None
        if len(raw) != count:
            raise FileError(f"{self.path}: became shorter while it was read")
        return np.frombuffer(raw, np.uint8)
