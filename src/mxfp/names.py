# SPDX-License-Identifier: Apache-2.0
"""Side room off 7: accumulators by their short texts, as the command line takes and tables print them."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Final

from .accumulate import Accumulator, Exact, Pairwise, Sequential
from .registers import TENSOR_CORES, FixedPoint, Fused

ACCUMULATORS: Final[dict[str, type[Accumulator]]] = {
    kind.short: kind for kind in (Exact, Sequential, Pairwise, FixedPoint, Fused)
}
EXAMPLES: Final = (
    "exact, exact:float16, sequential:bfloat16, sequential:float32:8, pairwise:float32, "
    f"fixed:24:-12:saturate, fused:35:16:64:-139, {', '.join(TENSOR_CORES)}"
)


def accumulator(text: str) -> Accumulator:
    """The accumulator that a short text names, its parameters in order after colons.

    Raises ValueError with examples for a text that names none.

    >>> accumulator("sequential:float16"), str(accumulator("fixed:24:-12:saturate"))
    (Sequential(dtype='float16', group=None), 'fixed:24:-12:saturate:floor:float64')
    >>> accumulator("hopper-fp8")
    Fused(fraction_bits=13, group=1, step=32, zero_exponent=-133, exponents='products', result_bits=13)
    """
    if not isinstance(text, str):
        raise TypeError(f"an accumulator is named by a text such as {EXAMPLES}; got {text!r}")
    name, *parameters = text.strip().lower().split(":")
    if name in TENSOR_CORES and not parameters:
        return TENSOR_CORES[name]
    kind = ACCUMULATORS.get(name)
    names = [f.name for f in fields(kind)] if kind else []
    required = 0 if kind is None else sum(f.default is MISSING for f in fields(kind))
    try:
        if kind is None:
            raise ValueError("no such accumulator")
        if not required <= len(parameters) <= len(names):
            raise ValueError(f"{name} takes {required} to {len(names)} parameters, {':'.join(names)}")
        typed = [int(p) if p.lstrip("+-").isdigit() else p for p in parameters]
        return kind(*typed)
    except (TypeError, ValueError) as error:
        raise ValueError(f"accumulator {text!r}: {error}; for example {EXAMPLES}") from None
