# SPDX-License-Identifier: Apache-2.0
"""Contests of products: GEMM, GEMV, accumulators, end to end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import mxfp
from engines import ENGINES, REFERENCE, Engine
from mxfp.kernels import isa as instruction_sets
from mxfp.report.throughput import Run

from .contest import Contest, Entrant, Expect, picked, same_bits, sliced
from .rivals import BASELINE, FLOAT16, PRODUCTS, Sides, installed
from .sizes import Shape, Sizes

SEQUENTIAL: Final = mxfp.Sequential("float32")
GOPS: Final = "Gop/s"


def best_and_narrower() -> dict[str, tuple[Engine, str]]:
    """Names in the tables -> engines and their instruction sets: the best one, then each narrower one."""
    best, sets = instruction_sets.chosen(), instruction_sets.available()
    narrower = sets[sets.index(best) + 1 :]
    return {
        "mxfp": (ENGINES["numba"], best),
        **{f"mxfp {name}": (ENGINES[f"numba/{name}"], name) for name in narrower},
    }


def expect_product(s: Sides, accumulator: mxfp.Accumulator, budget: int) -> Expect:
    """What asserts a product (rows, N): outputs picked within `budget` multiply-adds, by the reference."""

    def expect(result: Any) -> int:
        out = result.numpy() if hasattr(result, "numpy") else result
        side = max(int((budget / s.k) ** 0.5), 1)
        rows = picked(len(out), side)
        columns = picked(s.n, max(budget // (s.k * len(rows)), 1), seed=1)
        a = mxfp.BlockArray(s.qx.codes[rows], s.qx.scales[rows], s.qx.format)
        w = mxfp.BlockArray(s.qw.codes[columns], s.qw.scales[columns], s.qw.format)
        wanted = ENGINES[REFERENCE](mxfp.matmul, a, w.T, accumulator=accumulator)
        return same_bits(out[rows][:, columns], wanted, f"the product {s.shape}, {accumulator},")

    return expect


def _ours(
    s: Sides,
    sizes: Sizes,
    name: str,
    engine: Engine,
    isa: str,
    accumulator: mxfp.Accumulator = SEQUENTIAL,
    *,
    prepared: bool = True,
    limit: float | None = None,
) -> Entrant:
    right = s.prepared if prepared else s.qw.T
    nbytes = s.prepared.nbytes if prepared else s.qw.codes.nbytes + s.qw.scales.nbytes

    def make(rows: int) -> Run:
        left = s.rows(rows)
        return lambda: engine(mxfp.matmul, left, right, accumulator=accumulator)

    run, share = sliced(make, s.m, limit or sizes.limit)
    return Entrant(name, run, share, nbytes, isa, expect_product(s, accumulator, sizes.checked))


def _rivals(s: Sides, sizes: Sizes, names: Sequence[str], *, limit: float | None = None) -> list[Entrant]:
    found = []
    for name in names:
        rival = PRODUCTS[name]
        if installed(rival.needs):
            run, share = sliced(lambda rows, rival=rival: rival.make(s, rows), s.m, limit or sizes.limit)  # type: ignore[misc]
            found.append(Entrant(name, run, share, rival.weight_bytes * s.k * s.n))
    return found


def _contest(suite: str, group: str, s: Sides, baseline: str, entrants: Sequence[Entrant]) -> Contest:
    return Contest(suite, group, s.shape, 2.0 * s.m * s.k * s.n, GOPS, baseline, tuple(entrants))


def product(suite: str, group: str, shape: Shape) -> Callable[[Sizes], Contest]:
    """Quantized activations times prepared weights, against everyone."""

    def build(sizes: Sizes) -> Contest:
        s = Sides(*shape)
        ours = best_and_narrower()
        entrants = [_ours(s, sizes, name, engine, isa) for name, (engine, isa) in ours.items()]
        entrants.append(_ours(s, sizes, "mxfp unprepared", *ours["mxfp"], prepared=False))
        entrants += _rivals(s, sizes, [BASELINE, *FLOAT16, "torch float32", "torch bfloat16"])
        return _contest(suite, group, s, BASELINE, entrants)

    return build


def point(suite: str, group: str, shape: Shape) -> Callable[[Sizes], Contest]:
    """One point of a sweep: ours and BLAS alone."""

    def build(sizes: Sizes) -> Contest:
        s, limit = Sides(*shape), sizes.sweep_limit
        ours = _ours(s, sizes, "mxfp", *best_and_narrower()["mxfp"], limit=limit)
        return _contest(suite, group, s, BASELINE, [ours, *_rivals(s, sizes, [BASELINE], limit=limit)])

    return build


def accumulators(suite: str, group: str, shape: Shape) -> Callable[[Sizes], Contest]:
    """Exact and Sequential on the same operands."""

    def build(sizes: Sizes) -> Contest:
        s = Sides(*shape)
        engine, isa = best_and_narrower()["mxfp"]
        named = {
            "mxfp": SEQUENTIAL,
            "mxfp Exact(float32)": mxfp.Exact("float32"),
            "mxfp Exact(float64)": mxfp.Exact("float64"),
        }
        ours = [_ours(s, sizes, name, engine, isa, accumulator) for name, accumulator in named.items()]
        return _contest(suite, group, s, "mxfp", ours)

    return build


def blackwell(suite: str, group: str, shape: Shape) -> Callable[[Sizes], Contest]:
    """The Blackwell accumulator against MMA-Sim's, whose bits are asserted too."""

    def build(sizes: Sizes) -> Contest:
        s = Sides(*shape)
        tensor_core = mxfp.BLACKWELL_MXFP4
        entrants = [
            _ours(s, sizes, name, engine, isa, tensor_core)
            for name, (engine, isa) in best_and_narrower().items()
        ]
        expect = expect_product(s, tensor_core, sizes.checked)
        others = _rivals(s, sizes, ["mmasim"] if s.k % tensor_core.step == 0 else [])
        entrants += [replace(other, expect=expect) for other in others]
        return _contest(suite, group, s, "mxfp", entrants)

    return build


def end_to_end(suite: str, group: str, shape: Shape) -> Callable[[Sizes], Contest]:
    """`matmul(quantize(x), prepared)`: activations arrive in float32, as in a model."""

    def build(sizes: Sizes) -> Contest:
        s = Sides(*shape)
        entrants = []
        for name, (engine, isa) in best_and_narrower().items():

            def make(rows: int, engine: Engine = engine) -> Run:
                x, right = s.x[:rows], s.prepared
                return lambda: engine(mxfp.matmul, engine(mxfp.quantize, x), right)

            run, share = sliced(make, s.m, sizes.limit)
            expect = expect_product(s, SEQUENTIAL, sizes.checked)
            entrants.append(Entrant(name, run, share, s.prepared.nbytes, isa, expect))
        others = [BASELINE, *FLOAT16, "torch float32", "torch bfloat16", "torch MX emulation"]
        return _contest(suite, group, s, BASELINE, [*entrants, *_rivals(s, sizes, others)])

    return build
