# SPDX-License-Identifier: Apache-2.0
"""The header of a GGUF file, walked strictly: nothing is believed before the file has the bytes for it.

Types, their block sizes and the names of value types come from `gguf.constants` (extra `files`). gguf's own
reader wants the data to be there and makes every string of a vocabulary; this one reads headers alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from pathlib import Path
from struct import Struct
from types import MappingProxyType
from typing import Any, Final, NoReturn

from .header import MOST_BYTES, MOST_TENSORS, FileError, Header, LongArray, TensorInfo, check_tensors
from .types import gguf_sizes, gguf_types
from .window import Window

VERSIONS: Final = (2, 3)
ALIGNMENT: Final = 32
"""Where `general.alignment` is not given."""
LONG: Final = 1024
"""Arrays with more entries are stepped over, unless their key is in `keep`."""
MOST_AXES: Final = 4
MOST_NAME: Final = 65_535
MOST_KEYS: Final = 65_536
MOST_TEXT: Final = 1 << 24
MOST_KEPT: Final = 1 << 28
"""Bytes of metadata that are kept; vocabularies, which are stepped over, do not count."""
MOST_ENTRIES: Final = 1 << 24
"""Entries of all arrays of texts and of arrays; each has to be walked."""
DEEPEST: Final = 4
"""Arrays within arrays."""

_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
_NAMES: Final = (
    *("uint8", "int8", "uint16", "int16", "uint32", "int32", "float32"),
    *("bool", "string", "array", "uint64", "int64", "float64"),
)
_UINT32, _BOOL, _STRING, _ARRAY = 4, 7, 8, 9


def read_gguf_header(path: str | Path, *, keep: Collection[str] = ()) -> Header:
    """The header of a GGUF file of version 2 or 3, of either byte order; its data need not be there.

    Metadata are int, float, bool, str, and tuples; arrays of more than 1,024 entries are `LongArray`, unless
    their key is in `keep`. Raises FileError, in one line, for whatever is not as the format has it:
    wrong magic or version, a header that is cut off, counts and sizes that the file has no bytes for, unknown
    types, shapes that blocks do not fill, names used twice, texts that are not UTF-8, tensors that overlap.
    """
    path = Path(path)
    with Window(path) as window:
        return _Walk(window, keep).header()


class _Walk:
    """One pass over a header."""

    def __init__(self, window: Window, keep: Collection[str]) -> None:
        self.window, self.path, self.keep = window, window.path, keep
        self.kept, self.entries = 0, 0
        self.order = "<"
        self.long, self.short = Struct("<Q"), Struct("<I")

    def header(self) -> Header:
        version = self.version()
        count, keys = self.unsigned("the number of tensors"), self.unsigned("the number of keys")
        # A tensor takes 24 bytes at least (name's length, axes, type, offset), a key 13; see what could fit.
        self.fits(count, MOST_TENSORS, 24, "tensors")
        self.fits(keys, MOST_KEYS, 13, "keys")
        metadata: dict[str, Any] = {}
        types: dict[str, int] = {}
        spans: dict[str, tuple[int, int]] = {}
        for n in range(keys):
            begin = self.window.position
            key = self.text(MOST_NAME, f"key {n + 1} of {keys}")
            if key in metadata:
                self.fail(f"key {key!r:.80} is there twice")
            what = f"key {key!r:.80}"
            types[key] = kind = self.number(f"the type of {what}")
            metadata[key] = self.value(kind, what, keep=key in self.keep)
            spans[key] = begin, self.window.position
        alignment = self.alignment(metadata, types)
        raw = [self.tensor(n, count) for n in range(count)]
        start = -(-self.window.position // alignment) * alignment
        tensors = tuple(self.placed(alignment, start, *one) for one in raw)
        check_tensors(self.path, tensors)
        return Header(
            "gguf",
            MappingProxyType(metadata),
            tensors,
            start,
            self.window.size,
            path=self.path,
            version=version,
            alignment=alignment,
            big_endian=self.order == ">",
            spans=MappingProxyType(spans),
        )

    def fail(self, problem: str) -> NoReturn:
        raise FileError(f"{self.path}: {problem}")

    def version(self) -> int:
        magic = self.window.take(min(4, self.window.size), "the magic")
        if magic != b"GGUF":
            shown = magic.hex(" ") or "nothing"
            self.fail(f"begins with {shown}, expected 47 47 55 46 (GGUF)")
        version = self.number("the version")
        if not version & 0xFFFF:
            # A small number whose low half is empty was written by a machine of the other byte order.
            version = int.from_bytes(version.to_bytes(4, "little"), "big")
            self.order, self.long, self.short = ">", Struct(">Q"), Struct(">I")
        if version not in VERSIONS:
            self.fail(f"is GGUF of version {version}, expected 2 or 3")
        return version

    def fits(self, count: int, most: int, least_bytes: int, what: str) -> None:
        if count * least_bytes > self.window.left:
            self.fail(f"is said to have {count} {what}, for which {self.window.left} bytes are not enough")
        if count > most:
            self.fail(f"has {count} {what}, expected at most {most}")

    def number(self, what: str) -> int:
        return int(self.short.unpack(self.window.take(4, what))[0])

    def unsigned(self, what: str) -> int:
        return int(self.long.unpack(self.window.take(8, what))[0])

    def text(self, most: int, what: str) -> str:
        size = self.unsigned(f"the length of {what}")
        self.window.need(size, what)
        if size > most:
            self.fail(f"{what} is a text of {size} bytes, expected at most {most}")
        self.keep_bytes(size)
        try:
            return self.window.take(size, what).decode("utf-8")
        except UnicodeDecodeError as error:
            self.fail(f"{what} is not UTF-8 (byte {error.start} of {size})")

    def keep_bytes(self, count: int) -> None:
        self.kept += count
        if self.kept > MOST_KEPT:
            self.fail(f"has metadata of more than {MOST_KEPT} bytes besides long arrays")

    def value(self, kind: int, what: str, *, keep: bool, depth: int = 0) -> Any:
        if kind == _STRING:
            return self.text(MOST_TEXT, what)
        if kind == _ARRAY:
            return self.array(what, keep=keep, depth=depth)
        if kind not in _SCALARS:
            self.fail(f"{what} has a value of type {kind}, expected 0 … {len(_NAMES) - 1}")
        return self.scalars(kind, 1, what)[0]

    def scalars(self, kind: int, count: int, what: str) -> tuple[Any, ...]:
        each = Struct(f"{self.order}{_SCALARS[kind]}").size
        self.window.need(count * each, what)
        self.keep_bytes(count * 8)
        found = Struct(f"{self.order}{count}{_SCALARS[kind]}").unpack(self.window.take(count * each, what))
        if kind != _BOOL:
            return found
        if any(v > 1 for v in found):
            self.fail(f"{what} is a truth value of {max(found)}, expected 0 or 1")
        return tuple(map(bool, found))

    def array(self, what: str, *, keep: bool, depth: int) -> tuple[Any, ...] | LongArray:
        if depth == DEEPEST:
            self.fail(f"{what} has arrays within arrays deeper than {DEEPEST}")
        kind, count = self.number(f"the type in {what}"), self.unsigned(f"the length of {what}")
        long = count > LONG and not keep
        begin = self.window.position
        if kind in _SCALARS:
            if not long:
                return self.scalars(kind, count, what)
            self.window.skip(count * Struct(f"<{_SCALARS[kind]}").size, what)
        elif kind in {_STRING, _ARRAY}:
            # An empty text takes 8 bytes, an empty array 12.
            self.window.need(count * (8 if kind == _STRING else 12), what)
            self.entries += count
            if self.entries > MOST_ENTRIES:
                self.fail(f"has more than {MOST_ENTRIES} texts and arrays in its metadata")
            if not long:
                self.keep_bytes(64 * count)
                return tuple(self.value(kind, what, keep=keep, depth=depth + 1) for _ in range(count))
            if kind == _STRING:
                self.window.skip_texts(count, self.long, what)
            else:
                self.fail(f"{what} has {count} arrays in an array, expected at most {LONG}")
        else:
            self.fail(f"{what} is an array of type {kind}, expected 0 … {len(_NAMES) - 1}")
        return LongArray(_NAMES[kind], count, begin)

    def alignment(self, metadata: dict[str, Any], types: dict[str, int]) -> int:
        key = "general.alignment"
        if key not in metadata:
            return ALIGNMENT
        found = metadata[key]
        if types[key] != _UINT32 or found < 1 or found & (found - 1):
            self.fail(f"{key} is {found!r}, expected a uint32 that is a power of two")
        return int(found)

    def tensor(self, n: int, count: int) -> tuple[str, tuple[int, ...], str, int]:
        name = self.text(MOST_NAME, f"the name of tensor {n + 1} of {count}")
        what = f"tensor {name!r:.80}"
        axes = self.number(f"the number of axes of {what}")
        if axes > MOST_AXES:
            self.fail(f"{what} has {axes} axes, expected at most {MOST_AXES}")
        shape = tuple(self.unsigned(f"an axis of {what}") for _ in range(axes))[::-1]
        kind, offset = self.number(f"the type of {what}"), self.unsigned(f"the place of {what}")
        if kind not in gguf_types():
            self.fail(f"{what} has type {kind}, expected one that gguf knows ({_known()})")
        return name, shape, gguf_types()[kind], offset

    def placed(
        self, alignment: int, start: int, name: str, shape: tuple[int, ...], kind: str, offset: int
    ) -> TensorInfo:
        block, elements, what = gguf_sizes()[kind], math.prod(shape), f"tensor {name!r:.80}"
        row = shape[-1] if shape else 1
        if row % block.elements:
            self.fail(f"{what} has rows of {row} in {kind}, expected a multiple of {block.elements}")
        if elements > MOST_BYTES or start + offset > MOST_BYTES:
            self.fail(f"{what} of shape {shape} at {offset} is more than a file holds")
        if offset % alignment:
            self.fail(f"{what} begins at byte {offset} of the data, expected a multiple of {alignment}")
        nbytes = elements // block.elements * block.nbytes
        return TensorInfo(name, shape, kind, nbytes, start + offset)


def _known() -> str:
    """The numbers of types, runs shortened: 0-3, 6-30."""
    numbers = sorted(gguf_types())
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][-1] + 1:
            runs[-1][1:] = [n]
        else:
            runs.append([n])
    return ", ".join("-".join(map(str, run)) for run in runs)
