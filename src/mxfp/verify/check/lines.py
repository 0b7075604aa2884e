# SPDX-License-Identifier: Apache-2.0
"""Lines of answers, one by one or thousands at once, out of anything that gives bytes or lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...formats import Bools, Integers
from .words import INDICES, AnswerError

PIECE: Final = 1 << 20
"""Bytes that are asked for at once."""
LONGEST: Final = 1 << 20
"""Bytes of the longest line."""
JOINED: Final = 4096
"""Lines given one by one that are put together into a piece."""
UTF_8: Final = b"\xef\xbb\xbf"
UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
"""Byte order marks."""


class LineReader:
    """Lines out of a file or any iterable, without holding it: one by one, or many as one array.

    Blank lines, and comments that begin with // or #, are passed over; with a prefix, so is every line that
    does not begin with it.
    """

    def __init__(self, source: Path | IO[bytes] | Iterable[bytes | str], prefix: bytes = b"") -> None:
        self.prefix = prefix
        self.number = 0
        self._pieces = _pieces(source)
        self._buffer, self._place, self._ended = b"", 0, False
        self._before = (0, 0)

    def _more(self) -> bool:
        """Read one more piece behind the buffer; False at the end."""
        if self._ended:
            return False
        piece = next(self._pieces, None)
        if piece is None:
            self._ended = True
            return False
        if not self._buffer and not self.number:
            if piece.startswith(UTF_16):
                self._ended = True
                raise AnswerError("the file is UTF-16, as PowerShell's > writes it; write ASCII", kind="junk")
            piece = piece.removeprefix(UTF_8)
        self._buffer = self._buffer[self._place :] + piece
        self._place = 0
        return True

    def _line(self) -> bytes | None:
        """The next line as it is, which stays where it is."""
        looked = self._place
        while (end := self._buffer.find(b"\n", looked)) < 0:
            looked = len(self._buffer) - self._place
            if looked > LONGEST:
                raise AnswerError(f"a line of more than {LONGEST} bytes: this is no text", kind="junk")
            if not self._more():
                return self._buffer[self._place :] or None
        return self._buffer[self._place : end + 1]

    def next(self) -> str | None:
        """The next line that holds something, without prefix and spaces; None at the end."""
        while (raw := self._line()) is not None:
            self._before = (self._place, self.number)
            self._place += len(raw)
            self.number += 1
            line = raw.strip()
            if not line or line.startswith((b"//", b"#")):
                continue
            if not line.startswith(self.prefix):
                continue
            line = line[len(self.prefix) :].strip()
            if not all(32 <= byte < 127 or byte == 9 for byte in line):
                raise AnswerError(f"{line[:40]!r} is no text", kind="junk")
            if line:
                return line.decode()
        return None

    def back(self) -> None:
        """Put the line that `next` gave back."""
        self._place, self.number = self._before

    def peek(self) -> bytes | None:
        """The next line with its end, which stays where it is; None if there is none that can be read."""
        try:
            return self._line()
        except AnswerError:  # which `next` will meet again
            return None

    def array(self, most: int, length: int) -> NDArray[np.uint8] | None:
        """Up to `most` lines of that many bytes as an array (n, length), which stay where they are."""
        while len(self._buffer) - self._place < most * length and self._more():
            pass
        n = min(most, (len(self._buffer) - self._place) // length)
        if n < 1:
            return None
        return np.frombuffer(self._buffer, np.uint8, n * length, self._place).reshape(n, length)

    def skip(self, rows: NDArray[np.uint8]) -> None:
        """Step over lines that `array` gave."""
        self._place += rows.size
        self.number += len(rows)


def _pieces(source: Path | IO[bytes] | Iterable[bytes | str]) -> Iterator[bytes]:
    """Bytes, piece by piece."""
    if isinstance(source, Path):
        with source.open("rb") as file:
            yield from _pieces(file)
        return
    read: Any = getattr(source, "read1", None) or getattr(source, "read", None)
    if read is not None:
        while piece := read(PIECE):
            yield piece.encode() if isinstance(piece, str) else piece
        return
    if isinstance(source, (str, bytes)):
        raise TypeError("answers are a pathlib.Path, a file open for bytes, or lines; got one text")
    part: list[bytes] = []
    for line in source:
        if not isinstance(line, (str, bytes)):
            raise TypeError(f"an answer is a line of text or bytes, got {line!r:.80}")
        raw = line.encode() if isinstance(line, str) else line
        part.append(raw if raw.endswith(b"\n") else raw + b"\n")
        if len(part) == JOINED:
            yield b"".join(part)
            part.clear()
    if part:
        yield b"".join(part)


class Template(NamedTuple):
    """Where the digits of a line stand: the same in every line of one array."""

    length: int
    spans: dict[str, slice]
    number: slice | None
    example: NDArray[np.uint8]
    fixed: NDArray[np.intp]
    """The columns that hold no digits."""

    @staticmethod
    def of(line: bytes, prefix: bytes, primary: str) -> Template | None:
        """The template of a line with its end; None if it is no plain one."""
        if not line.endswith(b"\n") or not line.startswith(prefix) or line.lstrip()[:1] in (b"{", b"#", b"/"):
            return None
        spans: dict[str, slice] = {}
        index: slice | None = None
        words = [(m.group(), m.start() + len(prefix)) for m in re.finditer(rb"\S+", line[len(prefix) :])]
        for n, (word, start) in enumerate(words):
            name, equals, digits = word.partition(b"=")
            where = (
                slice(start + len(name) + 1, start + len(word)) if equals else slice(start, start + len(word))
            )
            text = name.decode("ascii", "replace") if equals else primary
            if text in spans or (equals and not digits):
                return None
            if text in INDICES or (not equals and n == 0 and len(words) > 1):
                if index is not None:
                    return None
                index = where
            else:
                spans[text] = where
        if not spans:
            return None
        digit_columns = np.zeros(len(line), np.bool_)
        for span in (*spans.values(), *([index] if index else [])):
            digit_columns[span] = True
        return Template(
            len(line), spans, index, np.frombuffer(line, np.uint8), np.flatnonzero(~digit_columns)
        )

    def fits(self, rows: NDArray[np.uint8]) -> bool:
        """Whether all rows have what the example has between its digits."""
        same: Bools = rows[:, self.fixed] == self.example[self.fixed]
        return bool(same.all())

    def indices(self, rows: NDArray[np.uint8]) -> Integers:
        """The numbers of the cases; -1 where there is none."""
        digits = rows[:, self.number].astype(np.int64) - ord("0")
        found = np.zeros(len(rows), np.int64)
        for column in digits.T:
            found = found * 10 + column
        return np.where(((digits < 0) | (digits > 9)).any(axis=1), -1, found)
