# SPDX-License-Identifier: Apache-2.0
"""Settings worth seeing, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Preset:
    """What the inputs of a lesson are set to, and what there is to see."""

    look: str
    """What to look at, in Markdown."""
    settings: Mapping[str, Any]
    """Values of inputs, by their names; the others keep those of the lesson's first preset."""


@dataclass(frozen=True)
class Presets:
    """The presets of one lesson by their titles, the one that it opens with first."""

    by_title: Mapping[str, Preset]

    @property
    def titles(self) -> list[str]:
        """All titles in order."""
        return list(self.by_title)

    def look(self, title: str) -> str:
        """What to look at."""
        return self.by_title[title].look

    def settings(self, title: str) -> dict[str, Any]:
        """A value for every input."""
        first = next(iter(self.by_title.values()))
        return {**first.settings, **self.by_title[title].settings}

    def opening(self, asked: object) -> str:
        """The title that a page opens with: the one asked for by its address, if there is such a one."""
        return asked if isinstance(asked, str) and asked in self.by_title else self.titles[0]
