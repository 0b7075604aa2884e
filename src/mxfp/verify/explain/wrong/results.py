# SPDX-License-Identifier: Apache-2.0
"""Behaviours of the last stage: what is done to the bits of a result."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....floats import NAN_BITS
from ...unit import Unit
from ..addition import Bits, FloatAdder
from ..flow import Change, Flow, Named, on

Test = Callable[[Bits], np.ndarray]


def results(unit: Unit) -> Named:
    """NaN and zero with other bits, signs that are lost, bits that are stuck."""
    dtype = unit.accumulator.result_dtype
    size = dtype.itemsize * 8
    if not unit.scaled or size not in (16, 32):
        return
    adder = FloatAdder(dtype.name)
    places, top = adder.places - 1, 1 << (size - 1)
    infinity = ((1 << (size - 1 - places)) - 1) << places

    def is_nan(bits: Bits) -> np.ndarray:
        return np.asarray((bits & np.uint64(top - 1)) > np.uint64(infinity))

    quiet = 1 << (places - 1)
    for value, about in (
        (top - 1, "all ones"),
        (int(NAN_BITS[dtype]), "the canonical one"),
        (top | infinity | quiet, "the negative quiet one"),
        (top | infinity | ((1 << places) - 1), "all ones and negative"),
        (infinity | 1, "a signalling one"),
        (infinity, "the pattern of infinity"),
        (0, "zero"),
    ):
        digits = f"{value:0{size // 4}x}"
        yield (
            f"nan-is-{digits}",
            f"a result that is NaN is {digits}, {about}",
            "result",
            on("result", _where(is_nan, value)),
        )
    yield "zero-is-negative", "a result of zero is -0", "result", on("result", _where(_is_zero, top))
    yield "result-negated", "results have the opposite sign", "result", on("result", _xor(top))
    yield "sign-lost", "results lose their sign", "result", on("result", _and(top - 1))
    yield "result-zero", "results are always 0", "result", on("result", _and(0))
    yield (
        "bytes-reversed",
        "results have their bytes in reverse order",
        "result",
        on("result", _bytes_reversed(dtype.itemsize)),
    )
    for when in ("before", "after"):
        yield f"result-of-case-{when}", f"a result is that of the case {when}", "result", _late(when)
    every = (1 << size) - 1
    for bit in range(size):
        yield (
            f"bit{bit}-stuck-0",
            f"bit {bit} of a result is always 0",
            "result",
            on("result", _and(every ^ 1 << bit)),
        )
        yield f"bit{bit}-stuck-1", f"bit {bit} of a result is always 1", "result", on("result", _or(1 << bit))


def _late(when: str) -> Change:
    def change(flow: Flow) -> None:
        other = getattr(flow, f"result_{when}")
        flow.result = flow.result if other is None else other

    return change


def _is_zero(bits: Bits) -> np.ndarray:
    return np.asarray(bits == 0)


def _where(test: Test, value: int) -> Callable[[Bits], Bits]:
    return lambda bits: np.where(test(bits), np.uint64(value), bits)


def _xor(mask: int) -> Callable[[Bits], Bits]:
    return lambda bits: bits ^ np.uint64(mask)


def _and(mask: int) -> Callable[[Bits], Bits]:
    return lambda bits: bits & np.uint64(mask)


def _or(mask: int) -> Callable[[Bits], Bits]:
    return lambda bits: bits | np.uint64(mask)


def _bytes_reversed(size: int) -> Callable[[Bits], Bits]:
    return lambda bits: bits.astype(f"u{size}").byteswap().astype(np.uint64)
