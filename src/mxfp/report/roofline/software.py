# SPDX-License-Identifier: Apache-2.0
"""The software that multiplies in each format: ours, BLAS, torch, numpy; the quickest of them counts."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...blocks import BlockArray, quantize
from ...formats import BLOCK_FORMATS
from ...kernels import isa, plain, vectors
from ...kernels.threads import spread
from ...matmul import matmul
from ..throughput import FLOAT16_WORK, Run
from .roofline import Traffic
from .rounds import SPIN
from .weights import CHECKED, Turns, Weights, traffic

COMPILED: Final = "mxfp"
WIDENED: Final = "mxfp and BLAS"
SLAB: Final = 64
"""Rows of float16 weights that are widened at a time."""


@dataclass(frozen=True)
class Software:
    """One way to multiply M rows with a weight.

    make: rows -> a run of their product, each call with the next copy. traffic: what it moves. most_rows:
    those that it can be asked for, where it is too slow for more; None for all. check: a result and its
    rows -> AssertionError if it has the wrong bits. rest: seconds after a call in which its threads may
    still hold a core.
    """

    format: str
    name: str
    traffic: Traffic
    make: Callable[[int], Run]
    most_rows: int | None = None
    check: Callable[[Any, int], None] = lambda result, rows: None
    rest: float = 0.0


def softwares(fmt: str, weights: Weights) -> list[Software]:
    """Every software that is installed for a format."""
    if fmt == "float32":
        return list(_float32(weights))
    if fmt == "float16":
        return list(_float16(weights))
    return [_blocks(fmt, weights)]


def load_torch() -> bool:
    """Import torch if it is installed, so that `throughput.threads` finds it."""
    if importlib.util.find_spec("torch") is None:
        return False
    with contextlib.suppress(ImportError, OSError):  # installed, and broken
        importlib.import_module("torch")
        return True
    return False


def _blocks(fmt: str, weights: Weights) -> Software:
    """Quantized activations times the prepared weight; picked outputs have the reference's bits."""
    block = BLOCK_FORMATS[fmt]
    made, strip = weights.prepared(block)
    picked = np.unique(np.linspace(0, strip.shape[0] - 1, CHECKED).astype(int))
    columns = BlockArray(strip.codes[picked], strip.scales[picked], block, -1, strip.tensor_scale)
    quantized = quantize(weights.activations, block)

    def make(rows: int) -> Run:
        a = _rows(quantized, slice(0, rows))
        return Turns(lambda b: matmul(a, b), made)

    def check(result: Any, rows: int) -> None:
        some = np.unique(np.linspace(0, rows - 1, CHECKED).astype(int))
        expected = matmul(_rows(quantized, some), columns.T, engine="reference")
        if result[some][:, picked].tobytes() != expected.tobytes():
            raise AssertionError(
                f"the {fmt} product of {rows} rows does not have the reference's bits; timing it is pointless"
            )

    moved = traffic(fmt, weights.n, weights.k)
    return Software(fmt, "mxfp", moved, make, check=check)


def _rows(q: BlockArray, rows: Any) -> BlockArray:
    return BlockArray(q.codes[rows], q.scales[rows], q.format, -1, q.tensor_scale)


def _float32(weights: Weights) -> Iterator[Software]:
    x, made = weights.activations, weights.float32
    moved = traffic("float32", weights.n, weights.k)

    def blas(rows: int) -> Run:
        one, some = x[0], x[:rows]
        return Turns((lambda w: w @ one) if rows == 1 else (lambda w: some @ w.T), made)

    yield Software("float32", "BLAS", moved, blas, rest=SPIN)
    if not weights.k % vectors.STEP:

        def compiled(rows: int) -> Run:
            return Turns(lambda w: plain.multiply(x[:rows], w), made)

        yield Software("float32", COMPILED, moved, compiled)


def _float16(weights: Weights) -> Iterator[Software]:
    x, made = weights.activations16, weights.float16
    moved = traffic("float16", weights.n, weights.k)
    narrow = replace(moved, row=moved.row - 2 * weights.n)  # results are float16 too
    yield Software(
        "float16",
        "numpy",
        narrow,
        lambda rows: Turns(lambda w: x[:rows] @ w.T, made),
        max(FLOAT16_WORK // (weights.n * weights.k), 1),
    )
    if plain.widens() and not weights.k % vectors.STEP:

        def compiled(rows: int) -> Run:
            return Turns(lambda w: plain.multiply(x[:rows].astype(np.float32), w), made)

        def widened(rows: int) -> Run:
            return Turns(lambda w: widen_and_multiply(x[:rows].astype(np.float32), w), made)

        yield Software("float16", COMPILED, moved, compiled)
        yield Software("float16", WIDENED, moved, widened)
    if load_torch():
        import torch

        tensors = [torch.from_numpy(w) for w in made]
        activations = torch.from_numpy(x)

        def with_torch(rows: int) -> Run:
            one, some = activations[0], activations[:rows]
            return Turns((lambda w: w @ one) if rows == 1 else (lambda w: some @ w.T), tensors)

        yield Software("float16", "torch", narrow, with_torch, rest=SPIN)


def widen_and_multiply(x: NDArray[Any], w: NDArray[Any]) -> NDArray[np.float32]:
    """(M, K) float32 and (N, K) float16 -> x @ w.T in float32, for many rows.

    Threads take slabs of weights, widen each into a buffer and give it to BLAS, one thread each.
    """
    out = np.empty((len(x), len(w)), np.float32)
    tag, patterns = isa.widest(), plain.patterns(w)

    def slabs(begin: int, end: int) -> None:
        buffer = np.empty((SLAB, x.shape[1]), np.float32)
        for first in range(begin * SLAB, min(end * SLAB, len(w)), SLAB):
            some = buffer[: len(w) - first]
            plain.widen(tag, patterns, first, some)
            out[:, first : first + SLAB] = x @ some.T

    with _controller().limit(limits=1, user_api="blas"):
        spread(slabs, -(-len(w) // SLAB))
    return out


@cache
def _controller() -> Any:
    import threadpoolctl

    return threadpoolctl.ThreadpoolController()
