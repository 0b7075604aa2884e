# SPDX-License-Identifier: Apache-2.0
"""Contests of casts: float32 to MXFP4 and back, against other casts and against a copy of the array."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Final

import ml_dtypes
import numpy as np

import mxfp
from engines import ENGINES, REFERENCE, Engine
from mxfp.report.throughput import Run

from .contest import Contest, Entrant, Expect, picked, same_bits, sliced
from .products import best_and_narrower
from .rivals import installed, torch_quantize
from .sizes import Sizes

ELEMENTS: Final = "G elements/s"
BLOCK_BYTES: Final = 1 + 1 / 32
"""Of an MXFP4 element in a BlockArray: a code in a byte, and its share of a scale."""
E2M1: Final = np.dtype(ml_dtypes.float4_e2m1fn)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)


def copy(x: Any, threads: int) -> Run:
    """Copy an array with as many threads: what memory allows."""
    out = np.empty_like(x)

    edges = np.linspace(0, len(x), threads + 1).astype(int)
    slices = [slice(a, b) for a, b in itertools.pairwise(edges)]
    out[...] = x
    if threads == 1:
        return lambda: np.copyto(out, x)
    return lambda: list(_pool(threads).map(lambda part: np.copyto(out[part], x[part]), slices))


def _array(shape: tuple[int, int]) -> Any:
    return np.random.default_rng(shape).standard_normal(shape, np.float32)


def _expect_blocks(x: Any, fmt: mxfp.BlockFormat, budget: int, **options: Any) -> Expect:
    """What asserts codes and scales of some rows; every row is quantized by itself."""

    def expect(q: mxfp.BlockArray) -> int:
        rows = picked(len(x), max(budget // x.shape[1], 1))
        wanted = ENGINES[REFERENCE](mxfp.quantize, x[rows], fmt, **options)
        same_bits(q.scales[rows], wanted.scales, f"{fmt.name} scales")
        return same_bits(q.codes[rows], wanted.codes, f"{fmt.name} codes")

    return expect


def _expect_values(q: mxfp.BlockArray, budget: int, dtype: Any) -> Expect:
    def expect(values: Any) -> int:
        rows = picked(q.shape[0], max(budget // q.shape[1], 1))
        part = mxfp.BlockArray(q.codes[rows], q.scales[rows], q.format)
        wanted = ENGINES[REFERENCE](mxfp.dequantize, part, dtype=dtype)
        return same_bits(values[rows], wanted, f"{q.format.name} values")

    return expect


def _slow(name: str, make: Callable[[int], Run], x: Any, sizes: Sizes, moves: float) -> Entrant:
    run, share = sliced(make, len(x), sizes.limit)
    return Entrant(name, run, share, moves)


def quantizing(suite: str, group: str, threads: int) -> Callable[[Sizes], Contest]:
    """A large float32 array to MXFP4."""

    def build(sizes: Sizes) -> Contest:
        x = _array(sizes.cast)
        budget = sizes.checked // 4
        expect = _expect_blocks(x, mxfp.MXFP4, budget)
        into = np.empty(x.shape, np.uint8), np.empty((len(x), -(-x.shape[1] // 32)), np.uint8)
        entrants = []
        for name, (engine, isa) in best_and_narrower().items():

            def run(engine: Engine = engine) -> Any:
                return engine(mxfp.quantize, x, out=into)

            entrants.append(Entrant(name, run, 1.0, (4 + BLOCK_BYTES) * x.size, isa, expect))
        entrants.append(Entrant("copy", copy(x, threads), moves=8 * x.size))
        entrants.append(_slow("ml_dtypes cast", lambda n: lambda: x[:n].astype(E2M1), x, sizes, 5 * x.size))
        packed = (4 + 17 / 32) * x.size
        if installed("gguf"):
            import gguf

            kind = gguf.GGMLQuantizationType.MXFP4

            def gguf_of(rows: int) -> Run:
                return lambda: gguf.quants.quantize(x[:rows], kind)

            entrants.append(_slow("gguf", gguf_of, x, sizes, packed))
        if installed("gfloat"):
            import gfloat
            from gfloat.formats import format_info_ocp_e2m1 as info

            wide = x.astype(np.float64)

            def gfloat_of(rows: int) -> Run:
                return lambda: gfloat.round_ndarray(info, wide[:rows], gfloat.RoundMode.TiesToEven, True)

            entrants.append(_slow("gfloat, elements only", gfloat_of, x, sizes, 16 * x.size))
        if installed("torch"):
            import torch

            tensor = torch.from_numpy(x)
            wanted = mxfp.dequantize(mxfp.quantize(x))

            def same(values: Any) -> int:
                return same_bits(values.numpy(), wanted[: len(values)], "the emulation in torch")

            emulation, share = sliced(lambda rows: lambda: torch_quantize(tensor[:rows]), len(x), sizes.limit)
            entrants.append(Entrant("torch MX emulation", emulation, share, 8 * x.size, expect=same))
        return Contest(suite, group, x.shape, x.size, ELEMENTS, "copy", tuple(entrants))

    return build


def dequantizing(suite: str, group: str, threads: int) -> Callable[[Sizes], Contest]:
    """The same array back to float32."""

    def build(sizes: Sizes) -> Contest:
        x = _array(sizes.cast)
        q = mxfp.quantize(x)
        expect = _expect_values(q, sizes.checked // 4, np.float32)
        into = np.empty(x.shape, np.float32)
        entrants = []
        for name, (engine, isa) in best_and_narrower().items():

            def run(engine: Engine = engine) -> Any:
                return engine(mxfp.dequantize, q, out=into)

            entrants.append(Entrant(name, run, 1.0, (4 + BLOCK_BYTES) * x.size, isa, expect))
        entrants.append(Entrant("copy", copy(x, threads), moves=8 * x.size))
        cast = x.astype(E2M1)
        entrants.append(
            _slow("ml_dtypes cast", lambda n: lambda: cast[:n].astype(np.float32), x, sizes, 5 * x.size)
        )
        if installed("gguf"):
            import gguf

            kind = gguf.GGMLQuantizationType.MXFP4
            data = gguf.quants.quantize(x, kind)

            def gguf_of(rows: int) -> Run:
                return lambda: gguf.quants.dequantize(data[:rows], kind)

            entrants.append(_slow("gguf", gguf_of, x, sizes, (4 + 17 / 32) * x.size))
        return Contest(suite, group, x.shape, x.size, ELEMENTS, "copy", tuple(entrants))

    return build


VARIANTS: Final[dict[str, dict[str, Any]]] = {
    **{f"rule {rule}": {"scale_rule": rule} for rule in mxfp.MXFP4.scale_rules},
    "nearest_away": {"rounding": "nearest_away"},
    "toward_zero": {"rounding": "toward_zero"},
    "stochastic": {"rounding": "stochastic"},
    "saturate": {"nonfinite": "saturate"},
}
"""Options of quantize, beside the default of each."""
DTYPES: Final = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float64": np.float64}
_FORMATS: Final = (
    mxfp.MXFP6_E2M3,
    mxfp.MXFP6_E3M2,
    mxfp.MXFP8_E4M3,
    mxfp.MXFP8_E5M2,
    mxfp.MXINT8,
    mxfp.NVFP4,
)


def quantize_variants(suite: str, group: str) -> Callable[[Sizes], Contest]:
    """Every rule, rounding, dtype and format, against MXFP4 with the defaults."""

    def build(sizes: Sizes) -> Contest:
        x = _array(sizes.variant)
        engine, isa = best_and_narrower()["mxfp"]

        def entrant(name: str, data: Any, fmt: mxfp.BlockFormat = mxfp.MXFP4, **options: Any) -> Entrant:
            drawn = options.get("rounding") == "stochastic"

            def make(rows: int) -> Run:
                def run() -> Any:
                    extra = {"rng": np.random.default_rng(1)} if drawn else {}
                    return engine(mxfp.quantize, data[:rows], fmt, **options, **extra)

                return run

            run, share = sliced(make, len(data), sizes.limit)
            # Stochastic draws go by the place in the whole array, NVFP4's scale by the whole array: both
            # are asserted by the tests on every engine, not here.
            rows_alone = not drawn and not fmt.tensor_scale
            part = data[: round(share * len(data))]
            expect = _expect_blocks(part, fmt, sizes.checked // 8, **options) if rows_alone else None
            return Entrant(name, run, share, 0.0, isa, expect)

        entrants = [entrant("float32 to MXFP4", x)]
        entrants += [entrant(name, x, **options) for name, options in VARIANTS.items()]
        entrants += [entrant(f"from {name}", x.astype(dtype)) for name, dtype in DTYPES.items()]
        entrants += [entrant(f"to {fmt.name}", x, fmt) for fmt in _FORMATS]
        return Contest(suite, group, x.shape, x.size, ELEMENTS, "float32 to MXFP4", tuple(entrants))

    return build


def dequantize_variants(suite: str, group: str) -> Callable[[Sizes], Contest]:
    """Every dtype and format, against MXFP4 to float32."""

    def build(sizes: Sizes) -> Contest:
        x = _array(sizes.variant)
        engine, isa = best_and_narrower()["mxfp"]

        def entrant(name: str, fmt: mxfp.BlockFormat = mxfp.MXFP4, dtype: Any = np.float32) -> Entrant:
            q = mxfp.quantize(x, fmt)

            def make(rows: int) -> Run:
                part = mxfp.BlockArray(q.codes[:rows], q.scales[:rows], fmt, -1, q.tensor_scale)
                return lambda: engine(mxfp.dequantize, part, dtype=dtype)

            run, share = sliced(make, len(x), sizes.limit)
            rows = round(share * len(x))
            part = mxfp.BlockArray(q.codes[:rows], q.scales[:rows], fmt, -1, q.tensor_scale)
            expect = None if fmt.tensor_scale else _expect_values(part, sizes.checked // 8, dtype)
            return Entrant(name, run, share, 0.0, isa, expect)

        entrants = [entrant("MXFP4 to float32")]
        entrants += [entrant(f"to {name}", dtype=dtype) for name, dtype in DTYPES.items()]
        entrants += [entrant(f"from {fmt.name}", fmt) for fmt in _FORMATS]
        return Contest(suite, group, x.shape, x.size, ELEMENTS, "MXFP4 to float32", tuple(entrants))

    return build
