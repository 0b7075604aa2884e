# SPDX-License-Identifier: Apache-2.0
"""Bytes that one step of decode reads: weights once for the whole batch, the cache of every sequence."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ...files.types import block_size
from .model import Layer, Model


@dataclass(frozen=True)
class Traffic:
    """Bytes of one step, which makes one token for each of `batch` sequences of `context` tokens."""

    context: int
    batch: int
    weights: float
    kv: int
    state: int = 0

    @property
    def total(self) -> float:
        """All of them."""
        return self.weights + self.kv + self.state


def distinct_experts(experts: int, used: int, batch: int) -> float:
    """How many different experts a batch touches, on average: E (1 - (1 - k/E)^B).

    Every token chooses k of E, all choices equally likely and independent of the other tokens'. Real routers
    are less even, so fewer are touched.

    >>> distinct_experts(128, 8, 1), round(distinct_experts(128, 8, 16), 1)
    (8.0, 82.4)
    """
    return experts * (1.0 - (1.0 - used / experts) ** batch)


def weights_read(model: Model, *, batch: int = 1) -> float:
    """Bytes of weights that a step reads: every matrix once, one row of the embedding for each sequence."""
    share = distinct_experts(model.experts, model.experts_used, batch) / model.experts if model.experts else 1
    total = 0.0
    for w in model.weights:
        if w.role == "embedding":
            total += w.nbytes / w.rows * min(batch, w.rows)
        elif w.role == "experts":
            total += w.nbytes * share
        elif w.role != "unused":
            total += w.nbytes
    return total


def cached_bytes(layer: Layer, kv_type: str) -> int:
    """Bytes that one token leaves in a layer's cache. ValueError where blocks of the type do not fit rows."""
    block, total = block_size(kv_type), 0
    for row in layer.cached_rows:
        if row % block.elements:
            raise ValueError(
                f"a cache in {kv_type} has blocks of {block.elements}; layer {layer.index} has rows of {row}"
            )
        total += row // block.elements * block.nbytes
    return total


def kv_per_token(model: Model, *, kv_type: str = "F16") -> int:
    """Bytes by which one more token makes the cache larger, while no window is full."""
    return sum(cached_bytes(layer, kv_type) for layer in model.layers if not layer.borrowed)


def kv_profile(model: Model, kv_type: str) -> Counter[int | None]:
    """Bytes a token, added up by the window of the layers that read them."""
    profile: Counter[int | None] = Counter()
    for layer in model.layers:
        profile[layer.window] += cached_bytes(layer, kv_type)
    return profile


def kv_read(model: Model, context: int, *, kv_type: str = "F16") -> int:
    """Bytes of cache that one sequence reads for its next token; with a window, a layer reads no more."""
    return sum(
        each * (context if window is None else min(context, window))
        for window, each in kv_profile(model, kv_type).items()
    )


def state_moved(model: Model) -> int:
    """Bytes of recurrent state that one sequence reads and writes for a token."""
    return 2 * sum(layer.state_bytes for layer in model.layers)


def traffic(model: Model, context: int, *, batch: int = 1, kv_type: str = "F16") -> Traffic:
    """What one step moves: `context` counts the tokens in the cache that it looks back on.

    Raises ValueError unless context and batch are at least 0 and 1, and for a type the cache cannot have.
    """
    if context < 0 or batch < 1:
        raise ValueError(f"context {context} and batch {batch}: expected at least 0 and 1")
    return Traffic(
        context,
        batch,
        weights_read(model, batch=batch),
        batch * kv_read(model, context, kv_type=kv_type),
        batch * state_moved(model),
    )
