# SPDX-License-Identifier: Apache-2.0
"""Numbers drawn for vectors: of a seed, a group, a purpose and a place, and of nothing else.

SplitMix64 by its counter, as contract §2 has it, and not numpy's Generator: what its methods make of a bit
stream may change between versions (NEP 19), and a stream must be read from its start. Here every case can be
made alone, whatever is drawn before it and however cases are cut into batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...formats import Codes, Integers

GAMMA: Final = np.uint64(0x9E3779B97F4A7C15)
MIX: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
WORD: Final = np.dtype("<u8")
HALF: Final = np.dtype("<u2")


@lru_cache(maxsize=1024)
def _key(seed: int, group: str, purpose: str) -> int:
    text = f"mxfp-vectors/1 {seed} {group} {purpose}".encode()
    return int.from_bytes(sha256(text).digest()[:8], "little")


@dataclass(frozen=True)
class Draws:
    """What one group draws under a seed. `rows` are the places: of sequences, or of their blocks."""

    seed: int
    group: str

    def words(self, purpose: str, rows: Integers, count: int) -> NDArray[np.uint64]:
        """(n, count) words of 64 bits.

        >>> [hex(w) for w in Draws(0, "x").words("y", np.arange(2), 1)[:, 0].tolist()]
        ['0x9fcfb27655639ae4', '0x39f10a7f14939488']
        """
        place = rows.astype(np.uint64)[:, None] * np.uint64(count) + np.arange(1, count + 1, dtype=np.uint64)
        z: NDArray[np.uint64] = np.multiply(place, GAMMA)
        z += np.uint64(_key(self.seed, self.group, purpose))
        z ^= z >> np.uint64(30)
        z *= MIX[0]
        z ^= z >> np.uint64(27)
        z *= MIX[1]
        z ^= z >> np.uint64(31)
        return z

    def below(self, purpose: str, rows: Integers, count: int, limit: int) -> Integers:
        """(n, count) int64, 0 … limit - 1: a word's upper half times the limit, its upper half."""
        upper = self.words(purpose, rows, count) >> np.uint64(32)
        return (upper * np.uint64(limit) >> np.uint64(32)).astype(np.int64)

    def codes(self, purpose: str, rows: Integers, count: int, choices: NDArray[Any]) -> Codes:
        """(n, count) uint8: of these choices, a power of two of them by a byte each, else by two bytes."""
        whole = len(choices) & (len(choices) - 1) == 0
        each = 8 if whole else 4
        words = self.words(purpose, rows, -(-count // each)).astype(WORD, copy=False)
        table = choices.astype(np.uint8)
        if whole:
            found = words.view(np.uint8)[:, :count] & np.uint8(len(choices) - 1)
            return found if np.array_equal(table, np.arange(len(table))) else table[found]
        place = words.view(HALF)[:, :count].astype(np.uint32) * np.uint32(len(choices)) >> np.uint32(16)
        chosen: Codes = table[place]
        return chosen

    def order(self, purpose: str, rows: Integers, count: int) -> Integers:
        """(n, count) int64: a permutation of 0 … count - 1 in each row."""
        return np.argsort(self.words(purpose, rows, count), axis=1, kind="stable")
