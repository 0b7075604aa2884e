# SPDX-License-Identifier: Apache-2.0
"""Twins of `mxfp.matmul`: GEMM and GEMV over tiles of rows and panels of weights.

A product is cut into tasks, each a panel of 32 columns by some tiles of 6 rows. A task turns a chunk of
its panel into integers, which stay in the first cache level, and takes every tile through it; the state
of the accumulator waits beside it for the next chunk. Nothing grows with K, M or N but the operands and
the result: rows and unprepared columns are packed a slab at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..accumulate import Accumulator, Exact
from ..dot import OVERFLOWS
from ..floats import NAN_BITS, round_float64, round_integers
from ..formats import Codes
from ..matmul import Side
from ..prepared import BLOCK, WIDTH, PreparedMatrix, block_bytes, lay_scales, live_range
from ..registers import NAN_TENSOR_CORE, FixedPoint, Fused
from . import isa
from .assembly import HEIGHT
from .operands import (
    SLAB,
    Edge,
    Factor,
    Kinds,
    Panels,
    Rows,
    Shape,
    Weights,
    as_integer,
    constants,
    in_table,
    marked_rows,
    pack_panels,
    rows_of,
    scale_exponents,
    scale_fields,
    scale_powers,
    scale_significands,
    scale_values,
)
from .plans import DOUBLE, INT64, SINGLE, Aligned, Plan, Register, Rounded, plan
from .threads import share, spread, thread_count

__all__ = ["multiply", "plan"]

ROWS: Final = 342 * HEIGHT
"""Rows of a slab at most."""
COLUMNS: Final = 128 * WIDTH
"""Columns at a time where results wait for one more rounding."""
FLOAT_WORK: Final = {"avx512vnni": 1 << 25, "avx2": 1 << 24, "portable": 1 << 19}
GEMV_WORK: Final = 1 << 22
STEP_WORK: Final = 1 << 20
"""Products that are worth a thread: about a hundred microseconds, several times what it takes to share."""
GEMV_ROWS: Final = {"avx512vnni": 4, "avx2": 1, "portable": 0}
"""Rows of a tile that goes through packed weights, which are looked up on the way."""
GEMV_MOST: Final = {"avx512vnni": 64, "avx2": 8, "portable": 0}
"""Rows up to which that is quicker than to unpack them: on Zen 5 by 4 to 29 % at the last, by more before."""


def multiply(
    chosen: Plan, a: Side, b: Side | PreparedMatrix, accumulator: Accumulator, out: NDArray[Any]
) -> int | None:
    """(M, K) and (N, K) -> out (M, N). See `mxfp.matmul._multiply`.

    None when it is done. Otherwise the row from which on the reference has to do it: a register that was
    to raise overflows there or below, or infinite elements take part.
    """
    rows, columns = out.shape
    length = a.codes.shape[1]
    if not (rows and columns and length):
        return None
    work = Work(chosen, a, b, accumulator, out)
    if work.infinite():
        return 0
    done = rows
    with np.errstate(all="ignore"):  # of numpy's scalars, where there is no compiler
        for left, right, panels in work.columns():
            for top in range(0, done, work.tall):
                bottom = min(top + work.tall, done)
                if not work.run(slice(top, bottom), slice(left, right), panels):
                    done = top
                    break
    nan = NAN_TENSOR_CORE if isinstance(accumulator, Fused) else NAN_BITS[out.dtype]
    patterns = out.view(f"u{out.dtype.itemsize}")
    if work.marked_a.any():
        patterns[work.marked_a] = nan
    if work.marked_b.any():
        patterns[:, work.marked_b] = nan
    return None if done == rows else done


def _even(count: int, most: int, unit: int) -> int:
    """A size of slabs, a multiple of unit and at most `most`, that cuts count into equal ones."""
    slabs = -(-count // most)
    return -(-count // (slabs * unit)) * unit


class Work:
    """One product: what its slabs share."""

    def __init__(
        self, chosen: Plan, a: Side, b: Side | PreparedMatrix, accumulator: Accumulator, out: NDArray[Any]
    ) -> None:
        self.plan, self.a, self.b, self.accumulator, self.out = chosen, a, b, accumulator, out
        self.isa = isa.chosen()
        self.largest = int(a.scales.max(initial=0))
        self.marked_a = marked_rows(a.codes, a.scales, a.format, self.largest)
        prepared = isinstance(b, PreparedMatrix)
        self.marked_b = (
            b.marked
            if isinstance(b, PreparedMatrix)
            else marked_rows(b.codes, b.scales, b.format, int(b.scales.max(initial=0)))
        )
        # There are micro-kernels for groups of 16 and 32; the loops serve the others.
        self.tag = isa.tag() if chosen.group in (16, 32) else isa.Portable()
        self.blocks = -(-a.codes.shape[1] // BLOCK)
        self.stored = self.blocks * (BLOCK // chosen.group)
        self.lsb = a.format.element.lsb_exponent + b.format.element.lsb_exponent
        kind = chosen.kind
        self.table = in_table(b.format.element, kind.b, kind.offset)
        self.constants = (
            constants(b.format, kind.b, kind.offset, 0) if kind.name == "bytes" else np.zeros(1, kind.b)
        )
        self.exact = isinstance(accumulator, Exact)
        self.direct = chosen.state == out.dtype or (self.exact and out.dtype == SINGLE)
        self.factor = Factor(a.tensor_scale * b.tensor_scale, out.dtype != DOUBLE)
        length = self.blocks * BLOCK
        self.tall = _even(out.shape[0], min(max(SLAB // (length * HEIGHT), 1) * HEIGHT, ROWS), HEIGHT)
        self.is_gemv = self._is_gemv()
        if self.is_gemv:
            self.tall = GEMV_MOST[self.isa]
        wide = out.shape[1] if self.direct else COLUMNS
        self.wide = wide if prepared else min(max(SLAB // (length * WIDTH), 1) * WIDTH, wide)

    def infinite(self) -> bool:
        """Whether elements take part that are infinite, or NaN in a format that has infinities."""
        sides = ((self.a.format, self.marked_a), (self.b.format, self.marked_b))
        return any(marked.any() and np.isinf(fmt.element.values).any() for fmt, marked in sides)

    def columns(self) -> Iterator[tuple[int, int, tuple[Codes, Codes, int]]]:
        """(first column, last, (codes, scales, first panel)) as prepared, a slab at a time."""
        count = self.out.shape[1]
        for left in range(0, count, self.wide):
            right = min(left + self.wide, count)
            if isinstance(self.b, PreparedMatrix):
                yield left, right, (self.b.codes, self.b.scales, left // WIDTH)
            else:
                yield left, right, (*self._packed(self.b, left, right), 0)

    def _packed(self, b: Side, left: int, right: int) -> tuple[Codes, Codes]:
        panels = -(-(right - left) // WIDTH)
        codes = np.empty(panels * self.blocks * block_bytes(b.format), np.uint8)
        pack_panels(b.codes[left:right], b.format.element, codes)
        scales = np.zeros((panels, self.blocks * (BLOCK // b.format.block), WIDTH), np.uint8)
        lay_scales(b.scales[left:right], scales)
        for array in (codes, scales):
            array.flags.writeable = False
        return codes, scales.reshape(-1)

    def run(self, down: slice, across: slice, packed: tuple[Codes, Codes, int]) -> bool:
        """Rows `down` by columns `across` -> out; False if the reference has to do it."""
        plan = self.plan
        if self.direct:
            target, edge = self.out, Edge(down.start, across.start, down.stop, across.stop)
        else:
            shape = down.stop - down.start, across.stop - across.start
            target, edge = np.empty(shape, plan.state), Edge(0, 0, *shape)
        if self.exact:
            done = self._exact(down, across, packed, target, edge)
        elif plan.vectors and (plan.state == DOUBLE or self._finite(down)):
            run = self._gemv if self.is_gemv else self._floats
            done = run(down, across, packed, target, edge)
        else:
            done = self._steps(down, across, packed, target, edge)
        if done and not self.direct:
            self.out[down, across] = self._finished(target)
        return done

    def _finite(self, down: slice) -> bool:
        """Whether every sum times its row's scale is finite in float32, as the micro-kernels need it."""
        scale = self.a.format.scale

        def finite(largest: int) -> bool:
            return float(scale.values[largest]) * 2.0 ** (self.lsb + self.plan.bits - 1) < 2.0**128

        if self.largest < scale.nan_code and finite(self.largest):
            return True
        codes = self.a.scales[down]
        return finite(int(codes.max(where=codes < scale.nan_code, initial=0)))

    def _is_gemv(self) -> bool:
        plan, a, b = self.plan, self.a.format, self.b.format
        return (
            plan.vectors
            and plan.state == SINGLE
            and plan.kind.name == "bytes"
            and b.element.bits == 4
            and plan.group == a.block
            and self.out.shape[0] <= GEMV_MOST[self.isa]
            and (plan.group, b.scale.mantissa_bits, b.scale.has_zero) in ((32, 0, False), (16, 3, True))
        )

    def _rows(self, down: slice, height: int = HEIGHT) -> Rows:
        a, plan = self.a, self.plan
        return rows_of(self.tag, a.codes[down], a.scales[down], a.format, plan.kind, plan.group, height)

    def _panels(self, packed: tuple[Codes, Codes, int], values: NDArray[Any]) -> Panels:
        b = self.b.format
        return Panels(
            packed[0],
            block_bytes(b),
            packed[1],
            b.block // self.plan.group,
            packed[2],
            self.table,
            self.constants,
            values,
        )

    def _shape(self, down: slice, across: slice, height: int = HEIGHT) -> Shape:
        """The tiles and panels, in as many parts as give every thread some."""
        count = -(-(down.stop - down.start) // height)
        panels = -(-(across.stop - across.start) // WIDTH)
        parts = min(max(4 * thread_count() // panels, 1), count)
        groups = -(-self.a.codes.shape[1] // self.plan.group)
        per_task = -(-count // parts)
        tasks = panels * -(-count // per_task)
        return Shape(count, panels, self.blocks, self.plan.group, self.stored, groups, per_task, tasks)

    def floats(self, down: slice, across: slice, packed: tuple[Codes, Codes, int]) -> tuple[Rows, Panels]:
        """Both sides as the micro-kernels that add floats take them."""
        rows = self._rows(down)
        if self._fields(rows.scales, packed, across):
            table_a, table_b = scale_fields(self.a.format, self.lsb), scale_fields(self.b.format, 127)
        else:
            table_a = scale_values(self.a.format, self.lsb, self.plan.state)
            table_b = scale_values(self.b.format, 0, self.plan.state)
        return rows._replace(scales=table_a.take(rows.scales)), self._panels(packed, table_b)

    def _floats(self, down: slice, across: slice, packed: Any, target: Any, edge: Edge) -> bool:
        from .gemm import float_tasks

        rows, panels = self.floats(down, across, packed)
        shape = self._shape(down, across)
        offset = self.plan.kind.offset
        spread(
            float_tasks, shape.tasks, self.tag, rows, panels, shape, offset, self.factor, target, edge,
            grain=shape.grain(FLOAT_WORK[self.isa]),
        )  # fmt: skip
        return True

    def _fields(self, codes: Codes, packed: Any, across: slice) -> bool:
        """Whether both scales multiplied are normal float32, so that adding exponent fields does it."""
        a, b, plan = self.a.format, self.b.format, self.plan
        wide = self.isa == "avx512vnni" and plan.state == SINGLE and plan.group == b.block == BLOCK
        if not (wide and a.scale.power_of_two and b.scale.power_of_two):
            return False
        if isinstance(self.b, PreparedMatrix):
            low, high = self.b.live_scales
        else:
            low, high = live_range(packed[0], packed[1], b, (self.blocks, across.stop - across.start))
        ones = b.scale.bias
        least = int(codes.min()) - a.scale.bias + min(low, ones) - ones + self.lsb
        most = int(codes.max()) - a.scale.bias + max(high, ones) - ones + self.lsb
        return min(low, int(codes.min())) > 0 and least >= -126 and most <= 127

    def _gemv(self, down: slice, across: slice, packed: Any, target: Any, edge: Edge) -> bool:
        from .gemm import gemv_tasks

        count = down.stop - down.start
        height = _even(count, GEMV_ROWS[self.isa], 1)
        rows = self._rows(down, height)
        values = scale_values(self.a.format, self.lsb, np.float32)
        rows = rows._replace(scales=values.take(rows.scales))
        shape = self._shape(down, across, height)
        panels = self._panels(packed, values)
        share(
            gemv_tasks, shape.panels, self.tag, rows, panels, shape, (0,) * height, self.factor, target, edge,
            grain=shape.grain(GEMV_WORK),
        )  # fmt: skip
        return True

    def _exact(self, down: slice, across: slice, packed: Any, target: Any, edge: Edge) -> bool:
        from .exact import LIMB, exact_tasks, limb_tasks, row_ranges

        plan, a, b = self.plan, self.a.format, self.b.format
        shape = self._shape(down, across)
        rows = self._rows(down)
        codes, offset = rows.scales, plan.kind.offset
        exponents_a, exponents_b = scale_exponents(a, self.lsb), scale_exponents(b, 0)
        low, high = np.empty((2, codes.size // HEIGHT), np.int32)
        row_ranges(shape.tiles, self.stored, rows.masks, exponents_a.take(codes), low, high)
        room = 53 - (plan.bits - 1) - (self.stored - 1).bit_length()
        kinds = self._kinds(plan.state, INT64)
        wide = np.zeros(shape.tiles * shape.panels, np.bool_)
        spread(
            exact_tasks, shape.tasks, self.tag,
            rows._replace(scales=scale_values(a, self.lsb, np.float64).take(codes)), low, high,
            self._panels(packed, scale_values(b, 0, np.float64)), exponents_b, shape, offset, kinds, room,
            wide, self.factor, target, edge, grain=shape.grain(FLOAT_WORK[self.isa]),
        )  # fmt: skip
        if not wide.any():
            return True
        # Tensor scales are integers times powers of two, and come into the register before it is rounded.
        (factor_a, shift_a), (factor_b, shift_b) = (
            as_integer(side.tensor_scale) for side in (self.a, self.b)
        )
        lowest = int(exponents_a.min() + exponents_b.min())
        limbs = (plan.bits + int(exponents_a.max() + exponents_b.max()) - lowest + 48 + 64) // LIMB + 3
        places = np.flatnonzero(wide)
        spread(
            limb_tasks, places.size, self.tag, rows._replace(scales=exponents_a.take(codes)),
            self._panels(packed, exponents_b), shape, offset, self._weights(codes, down, across), kinds,
            lowest, limbs, shift_a + shift_b, factor_a, factor_b, self.out.dtype == DOUBLE, places, target,
            edge,
        )  # fmt: skip
        return True

    def _weights(self, codes: Codes, down: slice, across: slice) -> Weights:
        a, b, how = self.a.format, self.b.format, self.plan.how
        raises = isinstance(how, Register) and OVERFLOWS[how.overflow] == "raise"
        return Weights(
            (self.exact or isinstance(how, (Register, Aligned)))
            and not (a.scale.power_of_two and b.scale.power_of_two),
            isinstance(how, Aligned),
            raises and bool(self.marked_a.any() or self.marked_b.any()),
            scale_significands(a).take(codes),
            scale_significands(b),
            self.marked_a[down],
            self.marked_b[across],
        )

    def _kinds(self, state: Any, found: Any) -> Kinds:
        wide = self.plan.kind.name == "wide"
        words = np.uint64 if wide else np.uint32
        sums = np.float64 if wide else np.int32
        return Kinds(np.zeros(0, words), np.zeros(0, sums), np.zeros(0, found), np.zeros(0, state))

    def _steps(self, down: slice, across: slice, packed: Any, target: Any, edge: Edge) -> bool:
        from .steps import step_tasks

        plan, a, b, how = self.plan, self.a.format, self.b.format, self.plan.how
        rows = self._rows(down)
        codes = rows.scales
        weights = self._weights(codes, down, across)
        if isinstance(how, Register):
            assert isinstance(self.accumulator, FixedPoint)
            table_a: NDArray[Any] = scale_exponents(a, self.lsb - self.accumulator.lsb_exponent)
            table_b: NDArray[Any] = scale_exponents(b, 0)
        elif isinstance(how, Aligned):
            table_a, table_b = (scale_powers(fmt, fmt.scale.mantissa_bits) for fmt in (a, b))
        else:
            table_a, table_b = scale_values(a, self.lsb, np.float64), scale_values(b, 0, np.float64)
        rows = rows._replace(scales=table_a.take(codes))
        if weights.used:
            rows = rows._replace(masks=np.where(weights.rows > 0, rows.masks, np.uint32(0)))
        raised = np.zeros(1, np.bool_)
        kinds = self._kinds(
            DOUBLE if isinstance(how, Rounded) else plan.state,
            INT64 if isinstance(how, Register) else DOUBLE,
        )
        per_step = how.per_step if isinstance(how, Aligned) else 1
        factor = Factor(1.0, False) if isinstance(how, Register) else self.factor
        shape = self._shape(down, across)
        spread(
            step_tasks, shape.tasks, self.tag, how, per_step, rows, self._panels(packed, table_b), shape,
            plan.kind.offset, weights, kinds, raised, factor, target, edge, grain=shape.grain(STEP_WORK),
        )  # fmt: skip
        return not (raised[0] and OVERFLOWS[how.overflow] == "raise")

    def _finished(self, found: NDArray[Any]) -> NDArray[Any]:
        """Results of the kernels -> the accumulator's: its register's value, or rounded to its dtype."""
        dtype = self.out.dtype
        if not isinstance(self.accumulator, FixedPoint):
            if self.factor.value == 1 and not self.exact:  # rounded by the kernel
                return found.astype(dtype)
            return round_float64(found.astype(np.float64), dtype)
        exponent = self.accumulator.lsb_exponent
        significand, shift = as_integer(self.factor.value)
        if significand == 1 and self.accumulator.width <= 54 and abs(exponent + shift) < 900:
            return round_float64(np.ldexp(found.astype(np.float64), exponent + shift), dtype)
        integers = found if significand == 1 else found.astype(object) * significand
        return round_integers(integers, exponent + shift, dtype)
