# SPDX-License-Identifier: Apache-2.0
"""The others: what each needs, how to install it, and how it does the work."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np

from mxfp import BLACKWELL_MXFP4, MXFP4, BlockArray, PreparedMatrix, pack, prepare, quantize
from mxfp.report.throughput import Run

OPTIONAL: Final = ("torch", "gguf", "gfloat", "mmasim")
"""Packages of the extra `bench`."""


def installed(package: str) -> bool:
    """Whether a package can be imported."""
    return not package or importlib.util.find_spec(package) is not None


def load() -> None:
    """Import what has threads of its own, so that `throughput.threads` finds it."""
    if installed("torch"):
        importlib.import_module("torch")


def missing() -> list[str]:
    """A line for each package that is left out."""
    return [
        f"{name} is not installed and left out: pip install 'mxfp-emulator[bench]'"
        for name in OPTIONAL
        if not installed(name)
    ]


class Weight:
    """A weight (N, K) in every form, each made when first asked for."""

    def __init__(self, n: int, k: int) -> None:
        self.values = np.random.default_rng((n, k)).standard_normal((n, k), np.float32)

    @cached_property
    def float16(self) -> Any:
        """In float16."""
        return self.values.astype(np.float16)

    @cached_property
    def blocks(self) -> BlockArray:
        """In MXFP4, blocks along K."""
        return quantize(self.values)

    @cached_property
    def prepared(self) -> PreparedMatrix:
        """In MXFP4, transposed, and packed once for the kernels."""
        return prepare(self.blocks.T)


_weight = lru_cache(maxsize=1)(Weight)  # the sweep over M needs the same large one again and again


class Sides:
    """The inputs of one product: activations `x` (M, K) and a weight `w` (N, K), in float32 and otherwise."""

    def __init__(self, m: int, k: int, n: int) -> None:
        self.m, self.k, self.n = m, k, n
        self.x = np.random.default_rng((m, k, n)).standard_normal((m, k), np.float32)
        self.weight = _weight(n, k)
        self.w = self.weight.values

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, K, N."""
        return self.m, self.k, self.n

    @cached_property
    def x16(self) -> Any:
        """The activations in float16."""
        return self.x.astype(np.float16)

    @cached_property
    def qx(self) -> BlockArray:
        """The activations in MXFP4."""
        return quantize(self.x)

    @property
    def w16(self) -> Any:
        """The weight in float16."""
        return self.weight.float16

    @property
    def qw(self) -> BlockArray:
        """The weight in MXFP4."""
        return self.weight.blocks

    @property
    def prepared(self) -> PreparedMatrix:
        """The weight in MXFP4, prepared."""
        return self.weight.prepared

    def rows(self, count: int) -> BlockArray:
        """The first rows of x in MXFP4."""
        q = self.qx
        return q if count == self.m else BlockArray(q.codes[:count], q.scales[:count], q.format)


def _product(x: Any, w: Any) -> Run:
    """(M, K) and (N, K) of numpy or torch -> x @ w.T, as the library likes it: GEMV for one row."""
    one = x[0]
    return (lambda: w @ one) if len(x) == 1 else (lambda: x @ w.T)


def _stored_float16(s: Sides, rows: int) -> Run:
    """Weights in float16, widened slab by slab into a buffer that stays in the cache, for float32 BLAS."""
    x, w = s.x16[:rows].astype(np.float32), s.w16
    slab = min(max((1 << 18) // s.k, 1), s.n) if rows == 1 else s.n
    buffer = np.empty((slab, s.k), np.float32)
    out = np.empty((rows, s.n), np.float32)

    def run() -> Any:
        for first in range(0, s.n, slab):
            part = w[first : first + slab]
            np.copyto(buffer[: len(part)], part)
            np.matmul(x, buffer[: len(part)].T, out=out[:, first : first + slab])
        return out

    return run


def _torch(s: Sides, rows: int, dtype: str) -> Run:
    import torch

    kind = getattr(torch, dtype)
    return _product(torch.from_numpy(s.x[:rows]).to(kind), torch.from_numpy(s.w).to(kind))


def torch_quantize(x: Any) -> Any:
    """A tensor (rows, K) -> the values of its MXFP4 blocks, rule floor, in float32: what emulations do."""
    import torch

    blocks = x.view(x.shape[0], -1, MXFP4.block)
    amax = blocks.abs().amax(-1, keepdim=True)
    exponent = (torch.frexp(amax).exponent - 1 - MXFP4.element.emax).clamp(-127, 127)
    scale = torch.ldexp(torch.ones_like(amax), exponent)
    scaled = blocks / scale
    magnitude = scaled.abs().clamp(max=MXFP4.element.max)
    step = torch.where(magnitude < 2, 0.5, torch.where(magnitude < 4, 1.0, 2.0))
    rounded = torch.round(magnitude / step) * step
    return (torch.copysign(rounded, scaled) * scale).view(x.shape)


def _torch_emulation(s: Sides, rows: int) -> Run:
    """Quantize x to MXFP4 values, then a float32 product with the weight's values."""
    import torch

    x, w = torch.from_numpy(s.x[:rows]), torch.from_numpy(s.qw.dequantize())
    one = w if rows > 1 else None
    return lambda: torch_quantize(x) @ w.T if one is not None else w @ torch_quantize(x)[0]


def _mmasim(s: Sides, rows: int) -> Run:
    """MMA-Sim's mxf4 instruction of Blackwell over rows of x, all columns and all of K."""
    import torch
    from mmasim.nv_ptx import TCGen05MMABlockScale

    step = BLACKWELL_MXFP4.step
    if s.k % step:
        raise ValueError(f"mmasim takes K in steps of {step}, got {s.k}")
    unit = TCGen05MMABlockScale("Blackwell", "m128n8k64.kind::mxf4.block32.f32.e2m1.e2m1.ue8m0")
    q, w = s.rows(rows), s.qw
    # It takes the high nibble first; as both sides swap alike and its sums of 16 are exact, that is the same.
    a, b = (torch.from_numpy(pack(side.codes, MXFP4)) for side in (q, w))
    alpha, beta = (torch.from_numpy(side.scales.copy()).view(torch.float8_e8m0fnu) for side in (q, w))
    c = torch.zeros(rows, s.n)
    return lambda: unit(a, b.T, c, alpha, beta.T)


@dataclass(frozen=True)
class Rival:
    """Another way to the product: what it needs, its bytes a weight, and (sides, rows) -> a run."""

    needs: str
    weight_bytes: float
    make: Callable[[Sides, int], Run]


BASELINE: Final = "float32 BLAS"
PRODUCTS: Final = {
    BASELINE: Rival("", 4, lambda s, rows: _product(s.x[:rows], s.w)),
    "float16 numpy": Rival("", 2, lambda s, rows: _product(s.x16[:rows], s.w16)),
    "float16 stored, float32 BLAS": Rival("", 2, _stored_float16),
    "torch float32": Rival("torch", 4, lambda s, rows: _torch(s, rows, "float32")),
    "torch float16": Rival("torch", 2, lambda s, rows: _torch(s, rows, "float16")),
    "torch bfloat16": Rival("torch", 2, lambda s, rows: _torch(s, rows, "bfloat16")),
    "torch MX emulation": Rival("torch", 4, _torch_emulation),
    "mmasim": Rival("mmasim", 0.5 + 1 / 32, _mmasim),
}
FLOAT16: Final = ("float16 numpy", "float16 stored, float32 BLAS", "torch float16")
"""The ways to multiply in float16; the best of them is the one to beat."""
