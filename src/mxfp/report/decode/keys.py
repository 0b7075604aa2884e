# SPDX-License-Identifier: Apache-2.0
"""Numbers out of metadata or a config.json, checked one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...files import FileError

MOST_LAYERS: Final = 4096
MOST: Final = 2**32
"""Larger numbers of heads, elements or tokens are a mistake."""


def shown(text: object) -> str:
    """A name out of a file as one short line that a terminal can print."""
    return "".join(c if c.isprintable() else "?" for c in str(text)[:80])


class Keys:
    """Values by key, with the file they are from and, for GGUF, the architecture before every key.

    What is not there and has no default, or is no number in its range, is a FileError that says so.
    """

    def __init__(self, values: Mapping[str, Any], where: str, prefix: str = "") -> None:
        self.values, self.where, self.prefix = values, where, prefix

    def __contains__(self, key: str) -> bool:
        return self.values.get(self.prefix + key) is not None

    def get(self, key: str) -> Any:
        """The value as it is, or None."""
        return self.values.get(self.prefix + key)

    def integer(self, key: str, default: int | None = None, *, least: int = 0, most: int = MOST) -> int:
        """A whole number in a range."""
        found = self.get(key)
        if found is None:
            if default is None:
                raise FileError(f"{self.where}: {self.prefix}{key} is missing")
            return default
        if isinstance(found, bool):
            raise self._wrong(key, found, f"a whole number {least} … {most}")
        return self._checked(key, found, least, most)

    def truth(self, key: str) -> bool:
        """True or false; false if it is not there."""
        found = self.get(key)
        if found is not None and not isinstance(found, bool):
            raise self._wrong(key, found, "true or false")
        return bool(found)

    def per_layer(self, key: str, layers: int, default: int | None = None) -> tuple[int, ...]:
        """A number for each layer: from an array, or one for all."""
        found = self.get(key)
        if not isinstance(found, (tuple, list)):
            return (self.integer(key, default),) * layers
        if len(found) < layers:
            raise FileError(
                f"{self.where}: {self.prefix}{key} has {len(found)} entries, expected {layers}, one a layer"
            )
        return tuple(self._checked(key, v, 0, MOST) for v in found[:layers])

    def flags(self, key: str, layers: int) -> tuple[bool, ...]:
        """A truth value for each layer, from an array of them or of 0 and 1."""
        return tuple(bool(v) for v in self.per_layer(key, layers))

    def _checked(self, key: str, found: Any, least: int, most: int) -> int:
        if not isinstance(found, int) or not least <= found <= most:
            raise self._wrong(key, found, f"a whole number {least} … {most}")
        return int(found)

    def _wrong(self, key: str, found: Any, expected: str) -> FileError:
        return FileError(f"{self.where}: {self.prefix}{key} is {found!r:.60}, expected {expected}")
