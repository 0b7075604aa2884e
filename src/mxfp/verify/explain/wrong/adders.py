# SPDX-License-Identifier: Apache-2.0
"""Behaviours of accumulators: rounding, overflow, subnormals, alignment; and other accumulators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from ....accumulate import Accumulator, Exact, Pairwise, Sequential
from ....integers import signed_bits
from ....registers import TENSOR_CORES, FixedPoint, Fused
from ...unit import Unit
from ..addition import FloatAdder
from ..datapath import Datapath

Changed = Iterator[tuple[str, str, Callable[[Datapath], Datapath]]]

ADDERS: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    ("truncation", "results are truncated", {"mode": "toward_zero"}),
    ("round-half-away", "halves are rounded up in magnitude", {"mode": "half_away"}),
    ("round-half-up", "halves are rounded toward +infinity", {"mode": "half_up"}),
    ("round-half-to-zero", "halves are rounded toward zero", {"mode": "half_zero"}),
    ("round-half-to-odd", "halves are rounded to the odd neighbour", {"mode": "half_odd"}),
    ("round-up", "results are rounded toward +infinity", {"mode": "up"}),
    ("round-down", "results are rounded toward -infinity", {"mode": "down"}),
    ("round-away", "results are rounded away from zero", {"mode": "away"}),
    ("round-to-odd", "results are rounded to odd", {"mode": "odd"}),
    ("round-by-jamming", "the first bit cut off is put into the last one kept", {"mode": "jam"}),
    ("rounding-carry-lost", "rounding up does not carry into the exponent", {"carry": False}),
    ("sticky-lost-1", "one bit below the last decides the rounding, no sticky bit", {"kept": 1}),
    ("sticky-lost-2", "two bits below the last decide the rounding, no sticky bit", {"kept": 2}),
    ("sticky-lost-3", "three bits below the last decide the rounding, no sticky bit", {"kept": 3}),
    ("overflow-largest", "what overflows becomes the largest number", {"overflow": "largest"}),
    ("overflow-zero", "what overflows becomes 0", {"overflow": "zero"}),
    ("overflow-negated", "what overflows becomes infinite with the wrong sign", {"overflow": "negated"}),
    ("overflow-positive", "what overflows becomes +infinity whatever its sign", {"overflow": "positive"}),
    ("overflow-nan", "what overflows becomes NaN", {"overflow": "nan"}),
    ("overflow-wraps-8", "the exponent of what overflows wraps in its field", {"overflow": "wraps_8"}),
    ("overflow-wraps-9", "the exponent of what overflows wraps in 9 bits: zero", {"overflow": "wraps_9"}),
    ("subnormal-zero", "subnormal results become +0", {"subnormal": "zero"}),
    ("subnormal-signed-zero", "subnormal results become a zero of their sign", {"subnormal": "signed_zero"}),
    ("subnormal-normal", "subnormal results become the smallest normal", {"subnormal": "smallest_normal"}),
    ("subnormal-twice", "subnormal results are rounded twice", {"subnormal": "twice"}),
    ("subnormal-truncated", "subnormal results are truncated", {"subnormal": "truncated"}),
    ("subnormal-unshifted", "results below the normals are not shifted down", {"subnormal": "unshifted"}),
    ("subnormal-halved", "subnormal results are half as large", {"subnormal": "halved"}),
    ("least-zero", "what is below the smallest subnormal becomes 0", {"subnormal": "least_zero"}),
    ("least-up", "half the smallest subnormal is rounded up", {"subnormal": "least_up"}),
    ("negative-zero-lost", "a negative result that rounds to zero is +0", {"negative_zero": False}),
    ("input-subnormal-zero", "a subnormal accumulator counts as 0", {"inputs": "zero"}),
    ("input-subnormal-hidden-bit", "a subnormal accumulator gets a hidden bit", {"inputs": "hidden_bit"}),
    ("input-subnormal-halved", "a subnormal accumulator counts half", {"inputs": "halved"}),
    ("input-nan-number", "an accumulator that is NaN counts as a number", {"inputs": "nan_number"}),
    ("input-infinity-number", "an infinite accumulator counts as a number", {"inputs": "infinity_number"}),
    ("cancellation-negative", "an exact cancellation gives -0", {"cancel": "negative"}),
    ("cancellation-of-term", "a sum of zero has the sign of the term", {"cancel": "of_term"}),
    ("cancellation-of-state", "a sum of zero has the sign of the accumulator", {"cancel": "of_state"}),
    ("cancellation-2^-125", "an exact cancellation gives 2^-125", {"cancel": "2^-125"}),
    ("cancellation-2^-126", "an exact cancellation gives 2^-126", {"cancel": "2^-126"}),
    ("cancellation-2^-149", "an exact cancellation gives 2^-149", {"cancel": "2^-149"}),
    ("cancellation-nan", "an exact cancellation gives NaN", {"cancel": "nan"}),
    ("sign-of-state", "results have the sign of the accumulator", {"sign": "of_state"}),
)
WINDOWS: Final = (25, 26, 27, 28, 29, 30, 31, 32, 36, 38, 39, 40, 41, 42, 48, 50)
"""Bits of adders, those beside the significand and 26 bits of room among them."""


def adders(unit: Unit) -> Changed:
    """Behaviours of an adder of floats, where the unit has one."""
    own = Datapath.of(unit).adder
    if not unit.scaled or not isinstance(own, FloatAdder):
        return
    for name, about, changed in ADDERS:
        yield name, about, _adding(**changed)
    places = own.places
    for guard in (*range(9), 12, 16, 24, 25, 26, 27, 28):
        for floor, name in ((False, ""), (True, "-floor")):
            how = ", toward -infinity" if floor else ""
            yield (
                f"alignment-loses-{guard}{name}",
                f"addends are cut {guard} bits below the larger one's last{how}, no sticky bit",
                _adding(guard=guard, floor=floor),
            )
    bits = signed_bits(-(1 << unit.sum_bits - 1), (1 << unit.sum_bits - 1) - 1)
    for window in (w for w in WINDOWS if w >= max(places, bits)):
        wide: dict[str, Any] = {"window": window, "sum_bits": bits}
        for changed, name, about in (
            ({}, "", "no sticky bit"),
            ({"sticky": True}, "-sticky", "with a sticky bit"),
            ({"sticky": True, "zero_moves": True}, "-zero", "and a sum of zero aligns"),
        ):
            yield f"adder-{window}{name}", f"the adder has {window} bits, {about}", _adding(**wide, **changed)
    wide = {"window": bits + 26, "sum_bits": bits}
    for which, what in (("term", "a term"), ("state", "the accumulator")):
        for most in (15, 16, 23, 24, 25, 26, 27, 28, 31, 32, 39, 40, 47, 48, 63):
            yield (
                f"{which}-shift-at-most-{most}",
                f"{what} is shifted by {most} at most",
                _adding(shift=(which, "clamped", most), **wide),
            )
        for width in (4, 5, 6, 7, 8):
            yield (
                f"{which}-shift-wraps-{width}",
                f"the shift of {what} has {width} bits",
                _adding(shift=(which, "wraps", width), **wide),
            )
    for first in range(places + 1, 52):
        yield f"double-rounding-{first}", f"results are rounded to {first} bits first", _adding(first=first)
        yield (
            f"double-rounding-{first}-normal",
            f"results are rounded to {first} bits first, subnormal ones too",
            _adding(first=first, unbounded=True),
        )
    for kept in range(places - 1, 1, -1):
        yield f"significand-{kept}", f"results keep {kept} bits of significand", _adding(bits=kept)
        yield (
            f"significand-{kept}-truncated",
            f"results are truncated to {kept} bits of significand",
            _adding(bits=kept, mode="toward_zero"),
        )


def _adding(**changed: Any) -> Callable[[Datapath], Datapath]:
    def apply(path: Datapath) -> Datapath:
        if not isinstance(path.adder, FloatAdder):
            return path
        return replace(path, adder=replace(path.adder, **changed))

    return apply


def clearing(unit: Unit) -> Changed:
    """What is kept, or not, from case to case."""
    if not unit.scaled:
        return
    if isinstance(Datapath.of(unit).adder, FloatAdder):
        yield (
            "accumulator-stale",
            "the accumulator is not cleared before a case that is first",
            _with(clear="never"),
        )
        if unit.kind == "running":
            yield "first-dropped", "a case that is first clears, and is not added", _with(clear="dropped")
        if unit.kind == "running" or unit.blocks > 1:
            yield "accumulator-forgotten", "every block starts from zero", _with(clear="always")
    if isinstance(unit.accumulator, Fused):
        yield "cancelled-group-zero", "a group that cancels is taken for one of zeros", _with(live="sums")
        yield "zero-group-aligns", "a group of zeros aligns by its scales", _with(live="always")
        if unit.blocks % 2 == 0:
            yield "scales-in-turns", "groups take the scales of two blocks in turns", _with(turns=True)


def _with(**changed: Any) -> Callable[[Datapath], Datapath]:
    return lambda path: replace(path, **changed)


def accumulators(unit: Unit) -> Changed:
    """Every other accumulator that has a name, and those beside the unit's own."""
    if not unit.scaled:
        return
    own, lanes = unit.accumulator, unit.a.block
    one_rounding = isinstance(own, (Sequential, Pairwise, Exact)) and own.terms_of is None
    seen: set[Accumulator] = {own}
    for accumulator in _candidates(own, lanes, unit.elements):
        step = accumulator.step if isinstance(accumulator, Fused) else 1
        alike = isinstance(accumulator, (Sequential, Pairwise, Exact)) and accumulator.terms_of is None
        if (
            accumulator in seen
            or lanes % (accumulator.terms_of or 1)
            or (unit.kind == "running" and unit.elements % step)
            or (
                (unit.kind == "dot" and unit.blocks == 1 and one_rounding and alike)
                and accumulator.result_dtype == own.result_dtype
            )
        ):
            continue
        seen.add(accumulator)
        yield f"accumulator-{accumulator}", f"terms are accumulated as by {accumulator}", _using(accumulator)


def _candidates(own: Accumulator, lanes: int, elements: int) -> Iterator[Accumulator]:
    for dtype in ("float32", "bfloat16", "float16", "float64"):
        yield from (Sequential(dtype), Pairwise(dtype), Exact(dtype))
        yield from (Sequential(dtype, group) for group in (1, 2, 4, 8, 16, 32) if group < lanes)
    yield from TENSOR_CORES.values()
    if isinstance(own, Fused):
        most = own.fraction_bits
        yield from (replace(own, fraction_bits=f) for f in range(max(most - 14, 0), most + 6))
        yield from (replace(own, zero_exponent=z) for z in (-126, -127, -133, -139, -149, -200))
        yield from (replace(own, step=s) for s in (8, 16, 32, 64, 128) if s % own.group == 0)
        if own.exponents == "scales":
            yield from (replace(own, group=g) for g in (4, 8, 16, 32) if own.step % g == 0)
        yield from (replace(own, result_bits=r) for r in (22, 16, 13, 10, 7))
    else:
        for group in {min(16, lanes), lanes}:
            yield from (Fused(f, group, elements, -139) for f in range(20, 42) if elements % group == 0)
    if isinstance(own, FixedPoint):
        yield from (replace(own, width=w) for w in range(max(own.width - 4, 1), own.width + 5))
        yield from (replace(own, lsb_exponent=e) for e in range(own.lsb_exponent - 4, own.lsb_exponent + 5))
        for overflow in ("wrap", "saturate"):
            for rounding in ("floor", "toward_zero", "nearest_even"):
                yield replace(own, overflow=overflow, rounding=rounding)


def _using(accumulator: Accumulator) -> Callable[[Datapath], Datapath]:
    def apply(path: Datapath) -> Datapath:
        other = Datapath.of(replace(path.unit, accumulator=accumulator))
        same = accumulator.result_dtype == path.unit.accumulator.result_dtype
        adder = other.adder if same or not isinstance(other.adder, FloatAdder) else accumulator
        return replace(path, adder=adder, group=other.group)

    return apply
