# SPDX-License-Identifier: Apache-2.0
"""Which lessons there are, and where their notebooks lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "lessons"


@dataclass(frozen=True)
class Lesson:
    """One lesson: its place in the order, its name in addresses and files, its title, and what one sees."""

    place: int
    name: str
    title: str
    summary: str

    @property
    def file(self) -> Path:
        """The notebook."""
        return FOLDER / f"{self.place:02}_{self.name}.py"


LESSONS: Final = (
    Lesson(
        1,
        "number",
        "A number becomes four bits",
        "Drag a number along the line and watch its code: ties to even, saturation, flushing to zero.",
    ),
    Lesson(
        2,
        "block",
        "Thirty-two numbers share a scale",
        "The scale rules side by side on one block: outliers, rceil against floor, log2, zeros and NaN.",
    ),
    Lesson(
        3,
        "integers",
        "A dot product becomes integers",
        "Products, the adder tree, and why 4608 needs 14 bits.",
    ),
    Lesson(
        4,
        "accumulator",
        "The accumulator keeps it, or loses it",
        "Swamping in float16, order, pairs, registers that wrap, and a tensor core.",
    ),
    Lesson(
        5,
        "journey",
        "The whole journey",
        "Two blocks, every choice, every stage on one page.",
    ),
)


def lesson_named(text: str) -> Lesson:
    """A lesson by its name or its number; ValueError with all names for anything else.

    >>> lesson_named("integers") is lesson_named("3") is LESSONS[2]
    True
    """
    word = text.strip().lower().removesuffix(".py")
    for lesson in LESSONS:
        if word in (lesson.name, str(lesson.place), lesson.file.stem):
            return lesson
    known = ", ".join(f"{lesson.place} {lesson.name}" for lesson in LESSONS)
    raise ValueError(f"{text!r} is no lesson; there are: {known}")
