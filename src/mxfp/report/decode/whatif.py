# SPDX-License-Identifier: Apache-2.0
"""What if weights were in another format, the batch larger, the bandwidth another: one thing at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ...files.types import block_size
from .ceiling import Ceiling, Device, ceiling
from .compare import Measured
from .model import Model, Weight
from .shapes import stored_bytes
from .traffic import kv_read, weights_read

MOST_CONTEXT: Final = 2**30
MOST_BATCH: Final = 2**20


@dataclass(frozen=True)
class Case:
    """A format, a bandwidth and a batch, and what follows from them.

    `stored` are bytes of the file; `roof` is the ceiling of one step. `native_operations` are those with
    matrices that the device multiplies in the type they are stored in; all others unpack first. `kv_from` is
    the context from which the cache is more than the weights, `compute_from` the batch from which operations
    take longer than bytes; None where that is never so (or, without a peak, not known). `measured` is None
    unless somebody did.
    """

    format: str
    bandwidth: float
    stored: int
    roof: Ceiling
    native_operations: float
    kv_from: int | None
    compute_from: int | None
    measured: float | None = None


def converted(model: Model, kind: str) -> Model:
    """The model with every matrix in one type, embedding and head too; norms, biases and routers as they are.

    A row that does not fill its last block takes a whole one. Scales of blocks that are tensors of their own
    go with the type that they belong to.
    """
    block_size(kind)
    kind = kind.upper()

    def change(w: Weight) -> Weight:
        if len(w.shape) > 1 and not w.multiplied and "scale" in w.name:
            return replace(w, nbytes=0)
        matrix = len(w.shape) > 1 and (w.multiplied or w.role == "embedding")
        if not matrix or w.role == "unused" or is_router(w.name):
            return w
        shape = w.shape
        if w.multiplied and w.multiplied != _elements(shape):  # packed: the shape counts bytes or words
            shape = (1, w.multiplied)
        return replace(w, type=kind, nbytes=stored_bytes(shape, kind))

    return replace(model, weights=tuple(map(change, model.weights)), name=f"{model.name} in {kind}")


def is_router(name: str) -> bool:
    """Whether a matrix chooses experts: small, and kept in full precision by every recipe."""
    return "ffn_gate_inp" in name or name.endswith((".gate.weight", "router.weight"))


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for axis in shape:
        count *= axis
    return count


def what_if(
    model: Model,
    devices: Sequence[Device],
    formats: Sequence[str],
    batches: Sequence[int],
    context: int,
    *,
    kv_type: str = "F16",
    measured: Sequence[Measured] = (),
) -> tuple[Case, ...]:
    """Every format (and the model as it is) with every bandwidth and batch, at one context.

    `measured` are of the first device and the first batch.
    """
    found = []
    for label, changed in (("as stored", model), *((f.upper(), converted(model, f)) for f in formats)):
        for device in devices:
            native = sum(n for kind, n in changed.multiplied().items() if kind in device.native)
            kv_from = _kv_from(changed, kv_type)
            compute_from = _compute_from(changed, device, context, kv_type)
            for batch in batches:
                roof = ceiling(changed, device, context, batch=batch, kv_type=kv_type)
                found.append(
                    Case(
                        label,
                        device.bandwidth,
                        changed.stored,
                        roof,
                        batch * 2 * native,
                        kv_from,
                        compute_from,
                        _measured(label, context, measured)
                        if (device, batch) == (devices[0], batches[0])
                        else None,
                    )
                )
    return tuple(found)


def _measured(label: str, context: int, measured: Sequence[Measured]) -> float | None:
    """What was measured of just this, and not of something like it."""
    for one in measured:
        name = "as stored" if one.format is None else one.format.upper()
        if name == label and one.context == context:
            return one.tokens_per_second
    return None


def _kv_from(model: Model, kv_type: str) -> int | None:
    """The first context at which one sequence reads more cache than weights."""
    weights = weights_read(model)
    return _first(lambda n: kv_read(model, n, kv_type=kv_type) > weights, MOST_CONTEXT)


def _compute_from(model: Model, device: Device, context: int, kv_type: str) -> int | None:
    """The first batch at which operations take longer than bytes."""

    def computes(batch: int) -> bool:
        return ceiling(model, device, context, batch=batch, kv_type=kv_type).binds == "compute"

    return _first(computes, MOST_BATCH)


def _first(holds: Callable[[int], bool], most: int) -> int | None:
    """The least n in 1 … most at which something holds that holds from there on; None if nowhere."""
    if not holds(most):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
