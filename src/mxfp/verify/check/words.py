# SPDX-License-Identifier: Apache-2.0
"""What the words of one line of answers say."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...formats import Bools
from ..digits import field_values, lengths_of
from ..layout import VALUES, Field

INDICES: Final = ("index", "case")
"""Names of the number of a case."""
MOST_DIGITS: Final = 18
"""Of such a number."""

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
    numbers, pairs = _of_json(text) if text.startswith("{") else _of_words(text, primary)
    words: dict[str, str] = {}
    for name, word in pairs:
        if name in INDICES:
            numbers.append(word)
        elif name in words:
            raise AnswerError(f"{text[:80]!r} gives {name} twice")
        else:
            words[name] = word
    if len(numbers) > 1:
        raise AnswerError(f"{text[:80]!r} gives the number of its case twice")
    for number in numbers:
        if not (number.isascii() and number.isdigit() and len(number) <= MOST_DIGITS):
            raise AnswerError(f"{text[:80]!r}: {number[:80]!r} is no number of a case")
    unknown = False
    for name, word in words.items():
        if name not in fields:
            raise AnswerError(f"{text[:80]!r}: no stage {name[:80]!r}; this unit has {', '.join(fields)}")
        unknown |= _is_unknown(word, fields[name], name)
    return Line(int(numbers[0]) if numbers else None, words, unknown)


def _of_words(text: str, primary: str) -> tuple[list[str], list[tuple[str, str]]]:
    """A line of words -> the number before them, if there is one, and names with their words."""
    parts = text.split()
    numbers = parts[:1] if len(parts) > 1 and parts[0].isdigit() else []
    parts = parts[len(numbers) :]
    pairs = [PAIR.fullmatch(part) for part in parts]
    if len(parts) == 1 and not pairs[0]:
        return numbers, [(primary, parts[0])]
    found = [(pair[1], pair[2]) for pair in pairs if pair]
    if len(found) != len(parts):
        raise AnswerError(
            f"{text[:80]!r} is no answer; if the simulator prints other lines too, mark the answers "
            "with a word of your own and name it with --prefix",
            kind="chatter",
        )
    return numbers, found


def _of_json(text: str) -> tuple[list[str], list[tuple[str, str]]]:
    """A JSON object -> the numbers of a case in it, and its other names with their texts."""
    try:
        record = json.loads(text, object_pairs_hook=list)
    except RecursionError:
        raise AnswerError(f"{text[:80]!r} is no answer: too many brackets") from None
    except ValueError as error:
        raise AnswerError(f"{text[:80]!r} is no JSON: {error}") from None
    numbers = [str(value) for name, value in record if name in INDICES]
    pairs = [(name, value) for name, value in record if name not in INDICES]
    for name, value in pairs:
        if not isinstance(value, str):
            raise AnswerError(f"{text[:80]!r}: {name[:80]!r} is a text of hex digits, got {value!r:.80}")
    return numbers, pairs


def _is_unknown(word: str, f: Field, name: str) -> bool:
    """False for digits of a field, True for some that hold X or Z; AnswerError for anything else."""
    lengths = lengths_of(f)
    if len(word) in lengths and HEX.fullmatch(word):
        return False
    if NOTHING_KNOWN.fullmatch(word) or (len(word) in lengths and UNKNOWN.fullmatch(word)):
        return True
    due = f"{lengths[0]} hex digits"
    if not word:
        why = f"is empty; {due} are due"
    elif re.match(r"0[xXbB]|\d*'", word):
        why = f"has a prefix; {due} alone are due (%h)"
    elif word.startswith(("+", "-")):
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


def decoded(words: Sequence[str], f: Field) -> tuple[NDArray[Any], Bools]:
    """Hex digits of a field, of any length that it may have -> (n, count) values, and which of them fit."""
    values = np.zeros((len(words), f.count), np.int64 if f.signed else np.uint64)
    fits = np.ones(len(words), np.bool_)
    sizes = np.array([len(word) for word in words])
    for length in np.unique(sizes).tolist():
        which = np.flatnonzero(sizes == length)
        joined = "".join(words[n] for n in which.tolist()).encode()
        digits = VALUES[np.frombuffer(joined, np.uint8)].reshape(-1, length)
        values[which], fits[which] = field_values(digits, f)
    return values, fits
