# SPDX-License-Identifier: Apache-2.0
"""Ceilings: no step is faster than its bytes through the bandwidth, nor than its operations at the peak."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from ...files.types import block_size
from .model import Model
from .traffic import Traffic, kv_profile, state_moved, traffic, weights_read

Binding = Literal["weights", "KV cache", "compute"]
"""What a ceiling is made of: bytes of weights, bytes of the cache (or state), or operations."""
MOST_PROMPT: Final = 10_000_000
MOST_OUTPUT: Final = 1_000_000


@dataclass(frozen=True)
class Device:
    """A device by its roofs: `bandwidth` in bytes a second, `peak` in operations a second, None if not given.

    `native` has the peaks of formats in which it multiplies both sides as they are, such as
    `{"MXFP4": 4e14}`; ValueError for a name of none. All others are unpacked first, and run at `peak`, as
    attention does.
    """

    bandwidth: float
    peak: float | None = None
    native: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in (("bandwidth", self.bandwidth), ("peak", self.peak), *self.native.items()):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} {value}: expected a positive finite number")
        for name in self.native:
            block_size(name)
        object.__setattr__(self, "native", {k.upper(): v for k, v in self.native.items()})

    def seconds(self, weights: Mapping[str, float], attention: float = 0.0) -> float | None:
        """Time of 2 operations for each weight, by type, and of attention; None without a peak for one."""
        total = 0.0
        for kind, count in (*((k, 2 * n) for k, n in weights.items()), ("", attention)):
            peak = self.native.get(kind, self.peak)
            if count and peak is None:
                return None
            total += count / peak if peak else 0.0
        return total


@dataclass(frozen=True)
class Ceiling:
    """The fastest step: `seconds` for it, and its tokens a second, of all sequences together."""

    traffic: Traffic
    seconds: float
    memory_seconds: float
    compute_seconds: float | None
    operations: float
    binds: Binding

    @property
    def tokens_per_second(self) -> float:
        """Of all sequences of the batch."""
        return self.traffic.batch / self.seconds


def ceiling(
    model: Model,
    device: Device,
    context: int,
    *,
    batch: int = 1,
    kv_type: str = "F16",
) -> Ceiling:
    """The ceiling of decode at a context: bandwidth over bytes; with a peak, operations too."""
    moved = traffic(model, context, batch=batch, kv_type=kv_type)
    attention = model.attention(context)
    memory = moved.total / device.bandwidth
    once = device.seconds(model.multiplied(), attention)
    compute = None if once is None else batch * once
    operations = batch * (2 * model.active + attention)
    if not memory:
        raise ValueError("the model has no weights")
    binds: Binding = "KV cache" if moved.kv + moved.state > moved.weights else "weights"
    if compute is not None and compute > memory:
        binds = "compute"
    return Ceiling(moved, max(memory, compute or 0.0), memory, compute, operations, binds)


@dataclass(frozen=True)
class Answer:
    """The least time from a prompt to its whole answer, on the device alone.

    Prefill makes the first token, `output` - 1 steps of decode the rest, each with a longer cache than the
    one before. Without a peak for all of its operations `prefill_compute_seconds` is None, and there is no
    ceiling of prefill but the bytes of its weights.
    """

    prompt: int
    output: int
    prefill_seconds: float
    prefill_operations: float
    prefill_compute_seconds: float | None
    prefill_binds: Binding
    decode_seconds: float
    decode_bytes: float

    @property
    def prefill_rate(self) -> float:
        """Prompt tokens a second."""
        return self.prompt / self.prefill_seconds

    @property
    def decode_rate(self) -> float | None:
        """Steps of decode a second, on average; None if there are none."""
        return (self.output - 1) / self.decode_seconds if self.output > 1 else None

    @property
    def seconds(self) -> float:
        """Prefill and decode."""
        return self.prefill_seconds + self.decode_seconds


def answer(model: Model, device: Device, prompt: int, output: int, *, kv_type: str = "F16") -> Answer:
    """The least time to answer `prompt` tokens with `output` tokens, one sequence alone.

    Prefill: 2 operations for every active weight and prompt token, the head for the last token only, and
    attention of every token to those before it; the weights are read once. Raises ValueError unless
    there are 1 … 10,000,000 tokens of prompt and 1 … 1,000,000 of answer.
    """
    if not (1 <= prompt <= MOST_PROMPT and 1 <= output <= MOST_OUTPUT):
        raise ValueError(
            f"a prompt of {prompt} and an answer of {output} tokens: expected 1 … {MOST_PROMPT} and "
            f"1 … {MOST_OUTPUT}"
        )
    every, whole = model.multiplied(head=False), model.multiplied()
    weights = {kind: every.get(kind, 0.0) * (prompt - 1) + whole[kind] for kind in whole}
    attention = sum(layer.operations * _sum_seen(1, prompt, layer.window) for layer in model.layers)
    operations = 2 * sum(weights.values()) + attention
    memory = weights_read(model, batch=prompt) / device.bandwidth
    compute = device.seconds(weights, attention)
    decode_bytes, decode_seconds = _decode(model, device, prompt, output - 1, kv_type)
    return Answer(
        prompt,
        output,
        max(memory, compute or 0.0),
        operations,
        compute,
        "compute" if compute is not None and compute > memory else "weights",
        decode_seconds,
        decode_bytes,
    )


def _sum_seen(first: int, count: int, window: int | None) -> int:
    """min(n, window) summed over `count` numbers n from `first` on."""
    growing = count if window is None else max(0, min(count, window - first + 1))
    total = growing * first + growing * (growing - 1) // 2
    return total + (count - growing) * (window or 0)


def _decode(model: Model, device: Device, prompt: int, steps: int, kv_type: str) -> tuple[float, float]:
    """Bytes and seconds of `steps` steps after a prompt; step j looks back on prompt + j tokens."""
    fixed = weights_read(model) + state_moved(model)
    profile = kv_profile(model, kv_type)
    moved = fixed * steps + sum(
        each * _sum_seen(prompt + 1, steps, window) for window, each in profile.items()
    )
    matrices = device.seconds(model.multiplied())
    if matrices is None or device.peak is None:
        return moved, moved / device.bandwidth
    work: dict[int | None, int] = {}
    for layer in model.layers:
        work[layer.window] = work.get(layer.window, 0) + layer.operations
    contexts = np.arange(prompt + 1, prompt + steps + 1, dtype=np.float64)
    memory, compute = np.full(steps, fixed), np.full(steps, matrices)
    for window, each in profile.items():
        seen = contexts if window is None else np.minimum(contexts, window)
        memory += float(each) * seen
        compute += work[window] / device.peak * seen
    seconds = np.maximum(memory / device.bandwidth, compute).sum()
    return moved, float(seconds)
