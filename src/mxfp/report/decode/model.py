# SPDX-License-Identifier: Apache-2.0
"""A model as decode sees it: weights with the part they play for a token, and layers with their caches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Role = Literal["embedding", "head", "tied", "experts", "dense", "unused"]
"""What a token reads of a tensor. embedding: one row; head, dense: all of it; tied: all of it, as the head;
experts: the experts chosen; unused: nothing (vision towers, layers for drafting)."""
ROLES: Final[tuple[Role, ...]] = ("embedding", "head", "tied", "experts", "dense", "unused")


@dataclass(frozen=True)
class Weight:
    """A tensor: where it counts, what it is stored in, and how much it is.

    `rows` are rows of an embedding, of which a token reads one. `multiplied` are the elements that a token is
    multiplied with if all of the tensor is used: those of matrices; norms and biases do not count.
    """

    name: str
    role: Role
    type: str
    shape: tuple[int, ...]
    nbytes: int
    multiplied: int = 0
    rows: int = 1


@dataclass(frozen=True)
class Layer:
    """A layer's attention and what it keeps of every token.

    `key_size` and `value_size` are elements a head; `window` is how many tokens back it looks, None for all.
    `latent`: multi-head latent attention, whose cache is one row of `key_size` that also serves as values.
    `borrowed`: it reads the cache of another layer. `state_bytes`: of a recurrent layer, read and written
    whole for every token whatever the context. A layer without attention has no `kv_heads`.
    """

    index: int
    heads: int = 0
    kv_heads: int = 0
    key_size: int = 0
    value_size: int = 0
    window: int | None = None
    latent: bool = False
    borrowed: bool = False
    state_bytes: int = 0

    @property
    def cached_rows(self) -> tuple[int, ...]:
        """Elements of the rows that one token leaves in the cache."""
        if not self.kv_heads:
            return ()
        if self.latent:
            return (self.key_size,)
        return (self.kv_heads * self.key_size, self.kv_heads * self.value_size)

    @property
    def operations(self) -> int:
        """Additions and multiplications that attention to one cached token takes."""
        return 2 * self.heads * (self.key_size + self.value_size) if self.kv_heads else 0

    def seen(self, context: int) -> int:
        """Tokens that it looks at, of `context`."""
        if not self.kv_heads:
            return 0
        return context if self.window is None else min(context, self.window)


@dataclass(frozen=True)
class Model:
    """Weights and layers; `experts` of which each token uses `experts_used`; `notes` say what was assumed."""

    name: str
    architecture: str
    weights: tuple[Weight, ...]
    layers: tuple[Layer, ...]
    experts: int = 0
    experts_used: int = 0
    notes: tuple[str, ...] = ()

    @property
    def stored(self) -> int:
        """Bytes of all tensors."""
        return sum(w.nbytes for w in self.weights)

    @property
    def expert_share(self) -> float:
        """Of the experts, those that one token uses."""
        return self.experts_used / self.experts if self.experts else 1.0

    def multiplied(self, *, head: bool = True) -> dict[str, float]:
        """Weights that one token is multiplied with, by type: active parameters without embedding and norms.

        `head=False` leaves the head out, which a prompt needs for its last token only.
        """
        skipped = {"embedding", "unused"} | (set() if head else {"head", "tied"})
        found: dict[str, float] = {}
        for w in self.weights:
            if w.multiplied and w.role not in skipped:
                share = self.expert_share if w.role == "experts" else 1.0
                found[w.type] = found.get(w.type, 0.0) + w.multiplied * share
        return found

    @property
    def active(self) -> float:
        """All of them."""
        return sum(self.multiplied().values())

    def attention(self, context: int) -> int:
        """Operations of attention for one token that looks back on `context`."""
        return sum(layer.operations * layer.seen(context) for layer in self.layers)
