# SPDX-License-Identifier: Apache-2.0
"""Measure a layer in a block format against fp16 and float32, and keep everything as plain data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..accumulate import Accumulator, Sequential
from ..blocks import BlockArray, dequantize, quantize
from ..data import Layer
from ..floats import round_float64, to_float64
from ..formats import MXFP4, BlockFormat, Floats, ScaleRule
from ..names import accumulator as accumulator_named
from ..scale import check_rule
from .accuracy import (
    Elements,
    Figures,
    WidthCheck,
    elements,
    figures,
    product_of_blocks,
    product_of_float16,
    relative_norm,
    width_check,
)
from .throughput import ROUNDS, Machine, Speed, machine, speeds

DEFAULT_ACCUMULATORS: Final = ("sequential:float32", "exact:float32", "sequential:float16", "blackwell")

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


def ticking(progress: Progress, what: str, total: int) -> Callable[[int], None]:
    """What is called with each amount that is done, and tells `progress` how much that makes in all."""
    done = 0

    def tick(amount: int) -> None:
        nonlocal done
        done += amount
        progress(what, done, total)

    progress(what, 0, total)
    return tick


@dataclass(frozen=True)
class Accuracy:
    """One way to compute the product, and how good it is. rule and accumulator are "" for plain floats."""

    name: str
    rule: str
    accumulator: str
    figures: Figures
    accumulator_error: float


@dataclass(frozen=True)
class Cause:
    """Where the error of one scale rule comes from, each relative to the exact product.

    from_activations, from_weights: with only that side quantized. from_both: both, accumulated exactly.
    """

    rule: str
    from_activations: float
    from_weights: float
    from_both: float
    activations: Elements
    weights: Elements


@dataclass(frozen=True)
class Stored:
    """Bytes of the weights in one format, and bits per weight."""

    name: str
    nbytes: int
    bits_per_weight: float


@dataclass(frozen=True)
class Report:
    """Everything `mxfp report` found. `as_dict` is what report.json holds.

    code_counts and scale_counts: how often each code and each scale code occurs, activations and
    weights, under the first rule.
    """

    layer: str
    attribution: str
    format: str
    tokens: int
    k: int
    n: int
    accuracy: list[Accuracy]
    causes: list[Cause]
    width: WidthCheck
    stored: list[Stored]
    code_counts: dict[str, list[int]]
    scale_counts: dict[str, list[int]]
    speeds: list[Speed]
    machine: Machine

    def as_dict(self) -> dict[str, Any]:
        """Plain lists, strings and numbers; a figure that is not finite is None."""
        return {"schema": "mxfp-report/1", **plain(asdict(self))}


def plain(value: Any) -> Any:
    """What json.dumps takes: NaN and infinities as texts, tuples as lists."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


@np.errstate(over="ignore", under="ignore", invalid="ignore")  # float16 may overflow; the figures say so
def measure(
    layer: Layer,
    *,
    fmt: BlockFormat = MXFP4,
    rules: Sequence[ScaleRule] | None = None,
    accumulators: Sequence[Accumulator] | None = None,
    progress: Progress = lambda what, done, total: None,
) -> Report:
    """A layer -> its Report: every rule with every accumulator, fp16 and float32 beside them.

    rules: None is all the format has; accumulators: None is DEFAULT_ACCUMULATORS. The first of each is
    the one that speed and histograms are for.
    """
    chosen_rules = (
        fmt.scale_rules if rules is None else tuple(dict.fromkeys(check_rule(r, fmt) for r in rules))
    )
    chosen = (
        [accumulator_named(text) for text in DEFAULT_ACCUMULATORS]
        if accumulators is None
        else list(accumulators)
    )
    a, w = layer.activations, layer.weight
    tokens, k, n = a.shape[0], a.shape[1], w.shape[0]
    work = tokens * k * n
    _check_range(a, w)
    exact = to_float64(a) @ to_float64(w).T

    def ticker(what: str, total: int = work) -> Callable[[int], None]:
        return ticking(progress, what, total)

    accuracy = _plain_floats(a, w, exact, ticker)
    causes = []
    first: tuple[BlockArray, BlockArray] | None = None
    for rule in chosen_rules:
        qa, qw = quantize(a, fmt, scale_rule=rule), quantize(w, fmt, scale_rule=rule)
        first = first or (qa, qw)
        wide_a, wide_w = dequantize(qa, dtype=np.float64), dequantize(qw, dtype=np.float64)
        both = wide_a @ wide_w.T
        causes.append(
            Cause(
                rule,
                relative_norm(wide_a @ to_float64(w).T - exact, exact),
                relative_norm(to_float64(a) @ wide_w.T - exact, exact),
                relative_norm(both - exact, exact),
                elements(a, qa),
                elements(w, qw),
            )
        )
        for accumulator in chosen:
            tick = ticker(f"{fmt.name}, {rule}, {accumulator}")
            product = product_of_blocks(qa, qw.T, accumulator, tick)
            wide = product.astype(np.float64)
            lost = relative_norm(wide - both, exact)
            accuracy.append(Accuracy(fmt.name, rule, str(accumulator), figures(product, exact), lost))
    assert first is not None
    qa, qw = first
    width = width_check(qa, qw.T, ticker("width check"))
    expected = product_of_blocks(qa, qw.T, Sequential("float32"), ticker("reference bits"), "reference")
    timing = speeds(qa, qw.T, a, w.T, expected, ticker("speed", 2 * ROUNDS))
    return Report(
        layer.name,
        layer.attribution,
        fmt.name,
        tokens,
        k,
        n,
        accuracy,
        causes,
        width,
        [
            Stored("float32", 4 * n * k, 32.0),
            Stored("float16", 2 * n * k, 16.0),
            Stored(fmt.name, qw.nbytes, 8 * qw.nbytes / (n * k)),
        ],
        {
            side: _counts(q.codes, fmt.element.code_count)
            for side, q in (("activations", qa), ("weights", qw))
        },
        {side: _counts(q.scales, 256) for side, q in (("activations", qa), ("weights", qw))},
        timing,
        machine(),
    )


def _check_range(a: NDArray[Any], w: NDArray[Any]) -> None:
    """Refuse data whose product float64, the yardstick, cannot hold."""
    largest_a, largest_w = (float(np.abs(to_float64(x)).max()) for x in (a, w))
    exponent = (np.frexp(largest_a)[1] + np.frexp(largest_w)[1]) if largest_a and largest_w else 0
    if abs(int(exponent)) > 900:
        raise ValueError(
            f"the largest magnitudes, {largest_a:.3g} of activations and {largest_w:.3g} of weight, have a "
            "product outside 2^-900 … 2^900, for which figures in float64 mean nothing; scale the data"
        )


def _counts(codes: NDArray[np.uint8], count: int) -> list[int]:
    return [int(c) for c in np.bincount(codes.ravel(), minlength=count)]


def _plain_floats(
    a: NDArray[Any], w: NDArray[Any], exact: Floats, ticker: Callable[[str], Callable[[int], None]]
) -> list[Accuracy]:
    """float32 by BLAS, and fp16 with both accumulations of contract §7."""
    found = []
    single = a.astype(np.float32) @ w.astype(np.float32).T
    lost = relative_norm(single.astype(np.float64) - exact, exact)
    found.append(Accuracy("float32 BLAS", "", "", figures(single, exact), lost))
    half_a = round_float64(to_float64(a), np.dtype(np.float16))
    half_w = round_float64(to_float64(w), np.dtype(np.float16))
    rounded = half_a.astype(np.float64) @ half_w.astype(np.float64).T
    for dtype in (np.dtype(np.float32), np.dtype(np.float16)):
        product = product_of_float16(half_a, half_w.T, dtype, ticker(f"float16, added in {dtype.name}"))
        lost = relative_norm(product.astype(np.float64) - rounded, exact)
        found.append(Accuracy("float16", "", f"sequential:{dtype.name}", figures(product, exact), lost))
    return found
