# SPDX-License-Identifier: Apache-2.0
"""Lines of answers: how they are read in big pieces, and what the words of one say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...formats import Bools, Integers
from ..layout import Field

PIECE: Final = 1 << 20
"""Bytes that are asked for at once."""
LONGEST: Final = 1 << 20
"""Bytes of the longest line."""
JOINED: Final = 4096
"""Lines given one by one that are put together into a piece."""
INDICES: Final = ("index", "case")
"""Names of the number of a case."""

HEX: Final = re.compile(r"[0-9a-fA-F]+")
UNKNOWN: Final = re.compile(r"[0-9a-fA-FxXzZ]+")
NOTHING_KNOWN: Final = re.compile(r"[xXzZ]+")
PAIR: Final = re.compile(r"([A-Za-z_]\w*)=(\S+)")


class AnswerError(ValueError):
    """A line that is no answer. kind: of the problem. takes_a_place: whether it stands where one is due."""

    def __init__(self, text: str, *, kind: str = "malformed", takes_a_place: bool = False) -> None:
        super().__init__(text)
        self.kind, self.takes_a_place = kind, takes_a_place


class Line(NamedTuple):
    """One answer: the number of its case if it gives one, digits by stage, and whether any is X or Z."""

    case: int | None
    words: dict[str, str]
    unknown: bool


def parse(text: str, fields: Mapping[str, Field], primary: str) -> Line:
    """A line -> what it says; AnswerError where that is no answer.

    Forms: `c20e0000`; `17 c20e0000`; `sum=3f72 result=c20e0000`, a number before them or index= among them;
    {"index": 17, "result": "c20e0000"}.
    """
    index: str | None = None
    if text.startswith("{"):
        index, words = _json(text)
    else:
        parts = text.split()
        pairs = [PAIR.fullmatch(part) for part in parts]
        if parts[0].isdigit() and len(parts) > 1 and not pairs[0]:
            index, parts, pairs = parts[0], parts[1:], pairs[1:]
        if len(parts) == 1 and not pairs[0]:
            words = {primary: parts[0]}
        elif all(pairs):
            words = {}
            for pair in pairs:
                name = pair[1] if pair else ""
                if name in words:
                    raise AnswerError(f"{text[:80]!r} gives {name} twice")
                words[name] = pair[2] if pair else ""
        else:
            raise AnswerError(
                f"{text[:80]!r} is no answer; if the simulator prints other lines too, mark the answers "
                "with a word of your own and name it with --prefix",
                kind="chatter",
            )
    for name in INDICES:
        if name in words:
            index = words.pop(name)
    if index is not None and not (index.isascii() and index.isdigit()):
        raise AnswerError(f"{text[:80]!r}: {index!r} is no number of a case")
    unknown = False
    for name, word in words.items():
        if name not in fields:
            raise AnswerError(f"{text[:80]!r}: no stage {name!r}; this unit has {', '.join(fields)}")
        unknown |= _is_unknown(word, fields[name], name)
    return Line(None if index is None else int(index), words, unknown)


def _json(text: str) -> tuple[str | None, dict[str, str]]:
    try:
        record = json.loads(text)
    except ValueError as error:
        raise AnswerError(f"{text[:80]!r} is no JSON: {error}") from None
    if not isinstance(record, dict):
        raise AnswerError(f"{text[:80]!r} is no JSON object")
    words: dict[str, str] = {}
    index = None
    for name, value in record.items():
        if name in INDICES:
            index = str(value)
        elif isinstance(value, str):
            words[name] = value
        else:
            raise AnswerError(f"{text[:80]!r}: {name} is a text of hex digits, got {value!r}")
    return index, words


def _is_unknown(word: str, f: Field, name: str) -> bool:
    """False for digits of a field, True for some that hold X or Z; AnswerError for anything else."""
    lengths = f.count * f.bits // 4, -(-f.count * f.width // 4)
    if len(word) in lengths and HEX.fullmatch(word):
        return False
    if NOTHING_KNOWN.fullmatch(word) or (len(word) in lengths and UNKNOWN.fullmatch(word)):
        return True
    due = f"{lengths[0]} hex digits"
    if re.match(r"0[xXbB]|\d*'", word):
        why = f"has a prefix; {due} alone are due (%h)"
    elif word[0] in "+-":
        why = f"is a signed number; {due} of its bits are due (%h, not %d)"
    elif set(word) <= {"0", "1"} and len(word) in (f.count * f.width, f.count * f.bits):
        why = f"is binary; {due} are due (%h, not %b)"
    elif re.fullmatch(r"[\d.]+(e[+-]?\d+)?", word) and "." in word:
        why = f"is a decimal fraction; {due} of its bits are due (%h)"
    elif HEX.fullmatch(word) or UNKNOWN.fullmatch(word):
        guess = "; decimal?" if word.isdigit() else ""
        less = " (%h writes all of them, %0h does not)" if len(word) < lengths[0] else ""
        why = f"has {len(word)} digits; {due} are due{less}{guess}"
    else:
        shown = "".join(sorted(set(re.sub(r"[0-9a-fA-FxXzZ]", "", word))))[:10]
        why = f"has {shown!r} in it; {due} are due"
    raise AnswerError(f"{name} {word[:80]!r} {why}", takes_a_place=True)


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
        if not self._buffer and not self.number and piece[:2] in (b"\xff\xfe", b"\xfe\xff"):
            self._ended = True
            raise AnswerError("the file is UTF-16, as PowerShell's > writes it; write ASCII", kind="junk")
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
        """The next line with its end, which stays where it is."""
        return self._line()

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
        raw = line.encode() if isinstance(line, str) else bytes(line)
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
            if equals and name.decode("ascii", "replace") in INDICES:
                index = where
            elif equals:
                spans[name.decode("ascii", "replace")] = where
                if not digits:
                    return None
            elif n == 0 and len(words) > 1:
                index = where
            elif primary in spans:
                return None
            else:
                spans[primary] = where
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
