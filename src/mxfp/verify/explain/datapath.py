# SPDX-License-Identifier: Apache-2.0
"""A dot-product unit, stage by stage over whole batches, in which any stage can be made to go wrong.

What is right is `unit.expected`; with nothing changed this gives the same bits, which the tests compare.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ...accumulate import Accumulator, Exact, Pairwise, Sequential
from ...dot import Terms, check_group
from ...floats import round_float64
from ...formats import Bools, Floats, Integers
from ..unit import Unit
from .addition import Bits, FloatAdder
from .flow import Change, Flow, Stage

EXACT_BITS: Final = 53
"""Terms of more bits are left to the package's accumulators."""


@dataclass(frozen=True)
class Datapath:
    """A unit and what is changed in it.

    adder: what adds the terms. changes: what is done to the flow at each stage. clear: "first", or what a
    unit does instead with a case that is marked so. live: which groups a `Fused` aligns by. turns: groups
    take the scales of two blocks in turns.
    """

    unit: Unit
    adder: FloatAdder | Accumulator
    group: int | None = None
    changes: tuple[tuple[Stage, Change], ...] = ()
    clear: Literal["first", "never", "dropped", "always"] = "first"
    live: Literal["products", "sums", "always"] = "products"
    turns: bool = False

    @staticmethod
    def of(unit: Unit) -> Datapath:
        """The right one."""
        accumulator = unit.accumulator
        single = unit.kind == "dot" and unit.blocks == 1
        ours = isinstance(accumulator, Sequential) or (single and isinstance(accumulator, (Exact, Pairwise)))
        if ours and accumulator.result_dtype != np.float64 and unit.term_bits <= EXACT_BITS:
            return Datapath(unit, FloatAdder(accumulator.result_dtype.name), accumulator.terms_of)
        return Datapath(unit, accumulator, accumulator.terms_of)

    def changed(self, stage: Stage, change: Change) -> Datapath:
        """The same with one more change."""
        return replace(self, changes=(*self.changes, (stage, change)))

    def run(self, flow: Flow) -> dict[str, NDArray[Any]]:
        """A flow, which is used up -> stages as `unit.expected` has them."""
        at: dict[str, list[Change]] = {}
        for stage, change in self.changes:
            at.setdefault(stage, []).append(change)

        def apply(stage: Stage) -> None:
            for change in at.get(stage, ()):
                change(flow)

        apply("codes")
        a, b = self.unit.sides
        n = len(flow.codes_a)
        flow.x, flow.y = a.element.integers[flow.codes_a], b.element.integers[flow.codes_b]
        apply("integers")
        found = flow.stages
        if at.keys() & {"products", "level"} or self.group is not None:
            flow.products = flow.x * flow.y
            apply("products")
            found["product"] = flow.products.reshape(n, -1)
            self._add_levels(flow, apply)
        else:
            flow.sums = np.einsum("nbl,nbl->nb", flow.x, flow.y)
        apply("sum")
        found["sum"] = flow.sums
        if not self.unit.scaled:
            return found
        lsb = a.element.lsb_exponent + b.element.lsb_exponent
        flow.exponents = a.scale.exponents[flow.scales_a] + b.scale.exponents[flow.scales_b] + lsb
        apply("exponent")
        flow.special = self._special(flow)
        apply("special")
        found["exponent"] = flow.exponents
        kinds = [np.isnan(flow.special), flow.special == np.inf, flow.special == -np.inf]
        found["special"] = np.select(kinds, [1, 2, 3], 0)
        flow.result = self._accumulated(flow)
        apply("result")
        found["result"] = flow.result[:, None]
        return found

    def _add_levels(self, flow: Flow, apply: Callable[[Stage], None]) -> None:
        level = flow.products
        flow.number = 0
        while level.shape[-1] > 1:
            even = level.shape[-1] // 2 * 2
            level = np.concatenate([level[..., 0:even:2] + level[..., 1:even:2], level[..., even:]], axis=-1)
            flow.number += 1
            flow.level = level
            apply("level")
            level = flow.level
            flow.stages[f"level{flow.number}"] = level.reshape(len(level), -1)
        flow.sums = level[..., 0]

    def _special(self, flow: Flow) -> Floats:
        """(n, blocks): 0.0 for a finite term, else NaN or an infinity."""
        a, b = self.unit.sides
        finite = a.scale.finite[flow.scales_a] & b.scale.finite[flow.scales_b]
        special = np.where(finite, 0.0, np.nan)
        if a.element.finite.all() and b.element.finite.all():
            return special
        with np.errstate(invalid="ignore"):
            products = a.element.values[flow.codes_a] * b.element.values[flow.codes_b]
            flow.lanes_special = np.where(np.isfinite(products), 0.0, products)
            return np.asarray(special + flow.lanes_special.sum(axis=-1))

    # --- the terms are added

    def _terms(self, flow: Flow) -> tuple[Integers, Integers, Floats]:
        """Sums, exponents and specials (n, terms) of the group that is added at once."""
        a, b = self.unit.sides
        sums, exponents, special = flow.sums, flow.exponents, flow.special
        if self.group is not None:
            n, share = len(sums), self.unit.a.block // self.group
            level = self.group.bit_length() - 1
            if self.group == 1 << level and self.unit.a.block % self.group == 0:  # a level of the tree
                sums = (flow.stages[f"level{level}"] if level else flow.products).reshape(n, -1)
            else:
                sums = flow.products.reshape(n, -1, self.group).sum(axis=-1)
            order = self._order(exponents.shape[1], share)
            exponents = exponents[:, order]
            if flow.lanes_special is None:
                special = special[:, order]
            else:  # every group its own, and a NaN scale all of its block
                with np.errstate(invalid="ignore"):
                    of_scale = np.isnan(special) & ~np.isnan(flow.lanes_special.sum(axis=-1))
                    special = flow.lanes_special.reshape(n, -1, self.group).sum(axis=-1)
                special = np.where(of_scale[:, order], np.nan, special)
        if not (a.scale.power_of_two and b.scale.power_of_two):
            factor = a.scale.significands[flow.scales_a] * b.scale.significands[flow.scales_b]
            sums = sums * np.repeat(factor, sums.shape[1] // factor.shape[1], axis=1)
        return np.where(special != 0, 0, sums), exponents, special

    def _order(self, blocks: int, share: int) -> Integers:
        """The block that each group has its scales from."""
        order = np.repeat(np.arange(blocks), share)
        if self.turns and blocks % 2 == 0:
            order = np.tile(np.arange(blocks).reshape(-1, 2), share).ravel()
        return order

    def _accumulated(self, flow: Flow) -> Bits:
        sums, exponents, special = self._terms(flow)
        if isinstance(self.adder, Accumulator):
            return self._by_accumulator(self.adder, flow, sums, exponents, special)
        if self.unit.kind == "dot" and self.clear in ("first", "always"):
            return self._added(np.zeros(len(sums), np.uint64), sums, exponents, special)
        cleared = np.ones(len(sums), np.bool_) if self.unit.kind == "dot" else flow.first
        if flow.before is not None:
            return self._step(flow.before, cleared, sums, exponents, special)
        state = np.zeros(1, np.uint64)
        found = np.zeros(len(sums), np.uint64)
        if self.clear != "never":  # sequences side by side
            begins = np.flatnonzero(cleared)
            place = np.arange(len(sums)) - begins[np.cumsum(cleared) - 1] if len(sums) else begins
            for step in range(int(place.max(initial=-1)) + 1):
                rows = np.flatnonzero(place == step)
                held = found[rows - 1] if step else np.zeros(len(rows), np.uint64)
                found[rows] = self._step(held, cleared[rows], sums[rows], exponents[rows], special[rows])
            return found
        for n in range(len(sums)):
            row = slice(n, n + 1)
            state = self._step(state, cleared[row], sums[row], exponents[row], special[row])
            found[n] = state[0]
        return found

    def _step(self, held: Bits, cleared: Bools, sums: Integers, exponents: Integers, special: Floats) -> Bits:
        """One case of every row, onto what each row holds."""
        if self.clear != "never":
            held = np.where(cleared, np.uint64(0), held)
        added = self._added(held, sums, exponents, special)
        return np.where(cleared, np.uint64(0), added) if self.clear == "dropped" else added

    def _added(self, state: Bits, sums: Integers, exponents: Integers, special: Floats) -> Bits:
        if isinstance(self.adder, Accumulator):
            raise TypeError("accumulators add whole sequences")
        for k in range(sums.shape[1]):
            held = np.zeros_like(state) if self.clear == "always" else state
            state = self.adder.add(held, sums[:, k], exponents[:, k], special[:, k])
        return state

    def _by_accumulator(
        self, accumulator: Accumulator, flow: Flow, sums: Integers, exponents: Integers, special: Floats
    ) -> Bits:
        """What one of the package's accumulators makes of the terms, in the unit's own dtype."""
        a, b = self.unit.sides
        group = check_group(self.group, a)
        unit = a.element.lsb_exponent + b.element.lsb_exponent
        unit -= a.scale.mantissa_bits + b.scale.mantissa_bits
        n = len(sums)
        live = ((flow.x != 0) & (flow.y != 0)).reshape(n, -1, group).any(axis=-1)
        if self.live != "products":
            live = sums != 0 if self.live == "sums" else np.ones_like(live)
        leading = None
        if group == 1:  # with the exponents that the unit has, right or wrong
            lanes = a.element.exponents[flow.codes_a] + b.element.exponents[flow.codes_b]
            leading = lanes.reshape(n, -1) + exponents - unit
        whole = Terms(sums, exponents, self.unit.term_bits, unit, special, live, (1, 0), group, leading)

        def of(rows: Integers) -> Bits:
            """Rows (m, cases) of cases that are added one behind the other."""
            parts: dict[str, Any] = {}
            for name in ("sums", "exponents", "specials", "live", "leading"):
                array = getattr(whole, name)
                parts[name] = None if array is None else array[rows].reshape(len(rows), -1)
            if not (parts["specials"] != 0).any():
                parts["specials"] = None
            return self._in_own_dtype(np.asarray(accumulator(replace(whole, **parts))))

        if self.unit.kind == "dot":
            return of(np.arange(n)[:, None])
        found = np.zeros(n, np.uint64)
        begins = np.flatnonzero(flow.first)
        place = np.arange(n) - begins[np.cumsum(flow.first) - 1] if n else begins
        for length in range(1, int(place.max(initial=-1)) + 2):
            last = np.flatnonzero(place == length - 1)
            found[last] = of(last[:, None] + np.arange(1 - length, 1))
        return found

    def _in_own_dtype(self, result: NDArray[Any]) -> Bits:
        dtype = self.unit.accumulator.result_dtype
        if result.dtype != dtype:
            with np.errstate(over="ignore"):
                result = round_float64(result.astype(np.float64), dtype)
        return np.ascontiguousarray(result).view(f"u{dtype.itemsize}").astype(np.uint64)
