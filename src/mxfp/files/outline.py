# SPDX-License-Identifier: Apache-2.0
"""The tensors of a model as an outline, in which parts that are alike stand once: blk.0 … 35."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from .tensor import Tensor

DEEPEST: Final = 8
"""Numbers in a name that open a level: layers, experts within them …."""


@dataclass(frozen=True)
class Line:
    """A line of an outline: a heading, or one tensor and those that are like it.

    level: 0 outermost. text: a name, within the headings above. tensors: those it stands for, alike in shape,
    type and layout; none for a heading. alike: for a heading, how many parts it stands for.
    """

    level: int
    text: str
    tensors: tuple[Tensor, ...] = ()
    alike: int = 0


def outline(tensors: Iterable[Tensor]) -> list[Line]:
    """Tensors in order -> the lines of their outline. Numbers between dots open a level.

    >>> found = outline(Tensor(f"blk.{n}.w", (2, 32), "F32", ()) for n in range(3))
    >>> [(line.level, line.text, len(line.tensors), line.alike) for line in found]
    [(0, 'blk.0 … 2', 0, 3), (1, 'w', 3, 0)]
    """
    return _lines([(tensor.name, (tensor,)) for tensor in tensors], 0)


Named = tuple[str, tuple[Tensor, ...]]
"""The rest of a name, and the tensors that are alike under it."""


def _lines(named: Sequence[Named], level: int) -> list[Line]:
    whole: dict[str, tuple[Tensor, ...]] = {}
    numbered: dict[str, dict[str, list[Named]]] = {}
    order: dict[tuple[bool, str], None] = {}
    for text, tensors in named:
        prefix, number, rest = _cut(text) if level < DEEPEST else (text, "", "")
        if number:
            numbered.setdefault(prefix, {}).setdefault(number, []).append((rest, tensors))
        else:
            whole[text] = tensors
        order[bool(number), prefix] = None
    found = []
    for opens, text in order:
        if opens:
            found += _numbered(text, numbered[text], level)
        else:
            found.append(Line(level, text, whole[text]))
    return found


def _numbered(prefix: str, parts: dict[str, list[Named]], level: int) -> list[Line]:
    """Parts that differ in a number: those that are alike under one heading."""
    alike: dict[tuple[object, ...], dict[str, list[Named]]] = {}
    for number, named in parts.items():
        key = tuple((text, len(t), t[0].shape, t[0].type, t[0].layout) for text, t in named)
        alike.setdefault(key, {})[number] = named
    found = []
    for same in alike.values():
        merged = [
            (each[0][0], tuple(tensor for _, tensors in each for tensor in tensors))
            for each in zip(*same.values(), strict=True)
        ]
        heading = f"{prefix}{numbers(map(int, same))}"
        found.append(Line(level, heading, alike=len(same)))
        found += _lines(merged, level + 1)
    return found


def _cut(text: str) -> tuple[str, str, str]:
    """A name -> what is before its first number between dots, the number, and what is after it.

    A number at the end is no level: nothing would be in it.
    """
    words = text.split(".")
    for n, word in enumerate(words[:-1]):
        if word.isascii() and word.isdigit() and len(word) < 10 and (word == "0" or word[0] != "0"):
            return ".".join((*words[:n], "")), word, ".".join(words[n + 1 :])
    return text, "", ""


def numbers(found: Iterable[int]) -> str:
    """Whole numbers, four or more that are evenly apart as a range.

    >>> numbers([0, 1, 2, 3, 6, 9, 12, 15, 20])
    '0 … 3, 6, 9 … 15, 20'
    """
    ordered, texts, at = sorted(found), [], 0
    while at < len(ordered):
        step = ordered[at + 1] - ordered[at] if at + 1 < len(ordered) else 0
        last = at
        while last + 1 < len(ordered) and ordered[last + 1] - ordered[last] == step:
            last += 1
        if last - at >= (2 if step == 1 else 3):
            shown = ordered[at : at + 1 + (step > 1)]
            texts.append(f"{', '.join(map(str, shown))} … {ordered[last]}")
            at = last + 1
        else:
            texts.append(str(ordered[at]))
            at += 1
    return ", ".join(texts)
