# SPDX-License-Identifier: Apache-2.0
"""A model file, opened: its tensors by name, one at a time or some rows of one."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ..blocks import BlockArray, check_choice, dequantize
from .dtypes import array_of, is_array, step_of
from .header import FileError, Header, TensorInfo
from .layouts import LAYOUTS, layout_named
from .layouts.native import KEY
from .layouts.onnx import ORDER
from .npy_header import read_npy_header
from .onnx_header import read_onnx_headers
from .others import Floats, as_floats, decode, is_decoded, rounded
from .shards import read_headers
from .sources import Files
from .tensor import Bytes, Tensor
from .types import block_size

Decoder = Literal["mxfp", "gguf"]
"""Whose values: this package's, by the contract, or those of the library that owns GGUF."""
DECODERS: Final[tuple[Decoder, ...]] = ("mxfp", "gguf")
TILE: Final = 1 << 22
"""Elements of a tile, about."""
Apart = Mapping[str, Callable[[int, int], Bytes]]


def open_model(
    path: str | Path,
    *,
    layouts: Sequence[str] | None = None,
    complete: bool = True,
    dequantize_others: Floats | None = None,
) -> ModelFile:
    """Open a .gguf, .safetensors, .onnx, .npz or .npy file, the index of shards, or a folder with one.

    layouts: which to look for, all by default; with () every tensor is as it lies in the file. Nothing but
    headers is read. complete: False opens a file that is cut off, too, for what its header says;
    `ModelFile.has_data` says what can be read. dequantize_others: "float32", "float16" or "bfloat16" has
    GGUF's other quantized types (Q8_0, Q4_K …) read as arrays of that dtype: decoded to float32 by gguf, then
    rounded to nearest even. Raises FileError, in one line, for a file that is not as its format has it, that
    is cut off, or whose parts of a BlockArray do not fit each other.
    """
    path = Path(path)
    for name in layouts or ():
        layout_named(name)
    headers, apart = _headers(path)
    for header in headers:
        for info in header.tensors:
            if complete and info.nbytes and info.offset + info.nbytes > header.file_size:
                end = info.offset + info.nbytes
                raise FileError(
                    f"{header.path}: cut off: tensor {info.name!r:.80} ends at byte {end}, and the file has "
                    f"{header.file_size}"
                )
    tensors = tensors_of(path, headers, LAYOUTS if layouts is None else layouts)
    if dequantize_others is not None:
        tensors = as_floats(path, headers[0], tensors, dequantize_others)
    return ModelFile(path, headers, tensors, Files(headers, apart))


def _headers(path: Path) -> tuple[tuple[Header, ...], Apart]:
    if path.suffix == ".onnx":
        headers, held = read_onnx_headers(path)
        return headers, {name: partial(_slice, raw) for name, raw in held.items()}
    if path.suffix in {".npz", ".npy"}:
        header, apart = read_npy_header(path)
        return (header,), apart
    return read_headers(path), {}


def _slice(raw: bytes, start: int, count: int) -> Bytes:
    return np.frombuffer(raw, np.uint8, count, start)


def tensors_of(
    path: Path, headers: tuple[Header, ...], layouts: Sequence[str] | Mapping[str, Any]
) -> tuple[Tensor, ...]:
    """BlockArrays in whatever layout, and everything that is no part of one, in the order of the file."""
    infos = {info.name: info for header in headers for info in header.tensors}
    if headers[0].format == "onnx":
        infos = {name: infos[name] for name in headers[0].metadata[ORDER]}
    container = "safetensors" if headers[0].format in {"npz", "npy"} else headers[0].format
    # Shards written by themselves have metadata of their own.
    told = [headers[0].metadata, *(h.metadata for h in headers[1:] if KEY in h.metadata)]
    found: dict[str, Tensor] = {}
    part_of: dict[str, str] = {}
    for layout in (layout_named(name) for name in layouts):
        if layout.container != container:
            continue
        for metadata in told if layout.name == KEY else told[:1]:
            try:
                some = layout.find(infos, metadata)
            except ValueError as error:
                raise FileError(f"{path}: {error}") from None
            for tensor in some:
                if found.setdefault(tensor.name, tensor) != tensor:
                    raise FileError(f"{path}: {tensor.name!r:.80} is there twice, in parts of other names")
                for part in tensor.parts:
                    if part_of.setdefault(part.name, tensor.name) != tensor.name:
                        raise FileError(f"{path}: {part.name!r:.80} is part of two tensors")
    placed = {name: tensor for tensor in found.values() for name in (tensor.parts[0].name,)}
    made = []
    for name, info in infos.items():
        if name in placed:
            made.append(placed[name])
        elif name not in part_of:
            made.append(_plain(info, container))
    names = [tensor.name for tensor in made]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise FileError(f"{path}: {twice!r:.80} is there by itself and in parts")
    return tuple(made)


def _plain(info: TensorInfo, container: str) -> Tensor:
    step = step_of(info.type, info.shape) if is_array(info.type) or container == "gguf" else 1
    return Tensor(info.name, info.shape, info.type, (info,), step=step)


class ModelFile:
    """A model file, open for reading; a context manager, which closes it.

    Bytes are read when they are asked for (not mapped: a file that becomes shorter meanwhile is a FileError
    and not the end of the process), and never more than is asked for.
    """

    def __init__(
        self, path: Path, headers: tuple[Header, ...], tensors: tuple[Tensor, ...], files: Files
    ) -> None:
        """What `open_model` found."""
        self.path, self.headers, self.tensors = path, headers, tensors
        self._files = files
        self._by_name = {tensor.name: tensor for tensor in tensors}
        self._header_of = {info.name: header for header in headers for info in header.tensors}

    def __enter__(self) -> ModelFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._files.close()

    def __repr__(self) -> str:
        """Path, container, and how many tensors."""
        return f"ModelFile {self.path}: {self.format}, {len(self.tensors)} tensors"

    @property
    def format(self) -> str:
        """The container: "gguf", "safetensors", "onnx", "npz" or "npy"."""
        return self.header.format

    @property
    def header(self) -> Header:
        """The header of the first file."""
        return self.headers[0]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tensors, in the order of the file."""
        return tuple(self._by_name)

    def info(self, name: str) -> Tensor:
        """What is known of a tensor without reading it. FileError names near ones if there is none."""
        if name not in self._by_name:
            near = difflib.get_close_matches(name, self._by_name, 3)
            hint = f"; near are {', '.join(near)}" if near else ""
            raise FileError(f"{self.path}: has no tensor {name!r:.80}{hint}")
        return self._by_name[name]

    def has_data(self, name: str) -> bool:
        """Whether the file is long enough for all bytes of a tensor; see `complete` of `open_model`."""
        parts = ((part, self._header_of[part.name]) for part in self.info(name).parts)
        return all(not p.nbytes or p.offset + p.nbytes <= header.file_size for p, header in parts)

    def read(self, name: str) -> NDArray[Any] | BlockArray:
        """A whole tensor: a BlockArray if it is in blocks of the family, else an array; both read-only.

        Raises FileError for GGUF's other quantized types, naming the type; `values` decodes them.
        """
        return self.rows(name, 0, self.info(name).rows)

    def rows(self, name: str, start: int, stop: int) -> NDArray[Any] | BlockArray:
        """Rows start … stop, along the first axis; both multiples of the tensor's `step`, or the end."""
        tensor = self.info(name)
        _check_rows(tensor, start, stop)
        if tensor.layout:
            try:
                return LAYOUTS[tensor.layout].load(tensor, self._files.fetch, start, stop)
            except FileError:
                raise
            except ValueError as error:
                raise FileError(f"{self.path}: {error}") from None
        if not is_array(tensor.type):
            raise FileError(
                f"{self.path}: {name!r:.80} is {tensor.type}, which is no array and none of the family; "
                "ModelFile.values decodes it"
            )
        if is_decoded(tensor):
            found = self._by_gguf(tensor, start, stop)
            found.flags.writeable = False
            return found
        raw, shape = self._raw(tensor, start, stop)
        try:
            found = array_of(tensor.type, shape, raw, big_endian=self._header_of[name].big_endian)
        except ValueError as error:
            raise FileError(f"{self.path}: {name!r:.80}: {error}") from None
        found.flags.writeable = False
        return found

    def tiles(self, name: str, *, size: int = TILE) -> Iterator[NDArray[Any] | BlockArray]:
        """The tensor from front to back in rows of about `size` elements: bounded memory."""
        tensor = self.info(name)
        step = tensor.tile(size)
        for start in range(0, max(tensor.rows, 1), step):
            yield self.rows(name, start, min(start + step, tensor.rows))

    def raw(self, name: str, start: int, stop: int) -> Bytes:
        """The bytes of rows of a tensor that lies in one part, as they are in the file; also of Q4_K …."""
        tensor = self.info(name)
        _check_rows(tensor, start, stop)
        if tensor.layout:
            raise ValueError(f"{name} lies in blocks of {tensor.type}; read it with rows()")
        return self._raw(tensor, start, stop)[0]

    def values(
        self, name: str, start: int = 0, stop: int | None = None, *, decoder: Decoder = "mxfp"
    ) -> NDArray[Any]:
        """The values of rows: arrays as they are, the rest decoded to float32.

        decoder: "mxfp" decodes by the contract, and leaves to gguf what only gguf knows (Q4_K …). "gguf"
        has gguf decode MXFP4 and NVFP4 of GGUF files too, with its departures (docs/files.md).
        """
        check_choice(decoder, DECODERS, "decoder")
        tensor = self.info(name)
        stop = tensor.rows if stop is None else stop
        _check_rows(tensor, start, stop)
        if decoder == "gguf" and tensor.layout not in {"", "gguf"}:
            raise ValueError(f"{name} lies in the layout {tensor.layout!r}, which gguf does not decode")
        if is_array(tensor.type) or (tensor.layout and decoder == "mxfp"):
            found = self.rows(name, start, stop)
            return dequantize(found) if isinstance(found, BlockArray) else found
        return self._by_gguf(tensor, start, stop)

    def _by_gguf(self, tensor: Tensor, start: int, stop: int) -> NDArray[Any]:
        if self.header.format != "gguf":
            raise FileError(f"{self.path}: {tensor.name!r:.80} is {tensor.type}, which cannot be decoded")
        if self._header_of[tensor.parts[0].name].big_endian:
            raise FileError(
                f"{self.path}: is big-endian, and gguf decodes {tensor.type} of little-endian files"
            )
        raw, shape = self._raw(tensor, start, stop)
        try:
            found = decode(raw, shape, tensor)
            if is_decoded(tensor):
                return rounded(found, tensor)
        except FileError as error:
            raise FileError(f"{self.path}: {error}") from None
        if len(tensor.parts) > 1 and found.size:
            part = tensor.parts[1]
            scales = self._files.fetch(part, 0, part.nbytes).view("<f4")
            each = scales if scales.size == 1 else scales[start:stop]
            with np.errstate(all="ignore"):
                found *= each.reshape(-1, *[1] * (len(shape) - 1)).astype(np.float32)
        return found

    def _raw(self, tensor: Tensor, start: int, stop: int) -> tuple[Bytes, tuple[int, ...]]:
        """The bytes of rows of a tensor that lies in one part, and their shape."""
        info = tensor.parts[0]
        shape = (stop - start, *tensor.shape[1:]) if tensor.shape else ()
        if not tensor.shape:
            return self._files.fetch(info, 0, info.nbytes), shape
        block, each = block_size(info.type), math.prod(tensor.shape[1:])
        begin, end = (min(-(-n * each * block.nbytes // block.elements), info.nbytes) for n in (start, stop))
        return self._files.fetch(info, begin, end - begin), shape


def _check_rows(tensor: Tensor, start: int, stop: int) -> None:
    """ValueError unless start and stop are rows of a tensor at which it can be cut."""
    if not 0 <= start <= stop <= tensor.rows:
        raise ValueError(f"{tensor.name} has {tensor.rows} rows, got {start} … {stop}")
    if start % tensor.step or (stop % tensor.step and stop != tensor.rows):
        raise ValueError(f"{tensor.name} is read in multiples of {tensor.step} rows, got {start} … {stop}")
