# SPDX-License-Identifier: Apache-2.0
"""A model of floats -> the same in a block format: tile by tile, in bounded memory, whole or not at all."""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..blocks import BlockArray, largest_magnitude, quantize
from ..encode import Rounding, check_rounding, draw_key
from ..formats import BlockFormat
from ..scale import tensor_scale_for
from .carrying import Progress, Rows, Ticker, cuts, rows_of, share, write_tiles
from .header import FileError
from .layouts import layout_named
from .layouts.suffixed import Suffixed
from .layouts.tensor_scale import nearest_divisible
from .pipeline import in_order
from .planning import Plan
from .sqnr import Sqnr, sqnr
from .tensor import LayoutError, Tensor
from .writing import create_model

_STRIDE: Final = 0x9E3779B97F4A7C15
"""What SplitMix64 adds for each element; see `mxfp.encode.draws`."""


@dataclass(frozen=True)
class Quantized:
    """What was done: for each quantized tensor its Sqnr, and its tensor scale where the format has one."""

    plan: Plan
    sqnr: Mapping[str, Sqnr]
    tensor_scales: Mapping[str, float]
    seconds: float

    @property
    def total(self) -> Sqnr:
        """Of all quantized tensors together."""
        return sum(self.sqnr.values(), Sqnr())

    def worst(self, count: int) -> list[tuple[str, Sqnr]]:
        """The tensors of least SQNR, the least first."""
        return sorted(self.sqnr.items(), key=lambda one: one[1].db)[:count]


def quantize_model(
    plan: Plan,
    *,
    rounding: Rounding = "nearest_even",
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress = lambda name, done, total: None,
) -> Quantized:
    """Do what a Plan says. The file appears when it is complete, or not at all.

    rounding: as for `mxfp.quantize`. seed: of stochastic rounding; a tensor has the draws of
    `rng_of(seed, its name)`, whichever others are quantized. overwrite: replace a file that exists.
    progress: called with a tensor's name, bytes done and all there are.

    Codes and scales are those that `mxfp.quantize` gives for the whole tensor; only NVFP4's tensor scale, in
    a layout that stores its reciprocal, is the next larger float32 that has one. Formats with a tensor scale
    are read twice. Raises FileError where the source is not what its header says, where a tensor is not
    finite, or where the file cannot be written.
    """
    start = time.perf_counter()
    job = _Job(plan, rounding, seed)
    chosen = [item.source for item in plan.quantized]
    total = sum(item.source.nbytes for item in plan.items)
    tick = Ticker(total + sum(t.nbytes for t in chosen) * plan.format.tensor_scale, progress)
    found = dict.fromkeys((tensor.name for tensor in chosen), Sqnr())
    with create_model(
        plan.path,
        plan.declared,
        layout=plan.layout,
        metadata=plan.carried.metadata,
        keep=plan.carried.keep,
        overwrite=overwrite,
        nan_scales="keep",
        external_data=plan.external_data,
    ) as writer:
        if plan.format.tensor_scale:
            job.find_tensor_scales(chosen, tick)
        sources = [item.source for item in plan.items]
        for tensor, one in write_tiles(writer, sources, job.rows, tick):
            if one is not None:
                found[tensor.name] += one
    return Quantized(plan, found, job.tensor_scales, time.perf_counter() - start)


def rng_of(seed: int, name: str) -> np.random.Generator:
    """The generator that stochastic rounding of a tensor begins with."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


class _Job:
    """What the threads share."""

    def __init__(self, plan: Plan, rounding: Rounding, seed: int) -> None:
        check_rounding(rounding, rng_of(seed, "") if rounding == "stochastic" else None)
        self.model, self.plan = plan.model, plan
        self.rounding, self.seed, self.nonfinite = rounding, seed, plan.nonfinite
        self.chosen = {item.source.name for item in plan.quantized}
        self.nan_is_number = layout_named(plan.layout).nan_is_number
        self.tensor_scales: dict[str, float] = {}

    def rows(self, tensor: Tensor, start: int, stop: int) -> tuple[Rows, Sqnr | None]:
        """Rows of a tensor as they will be written, and what quantizing them cost."""
        x = rows_of(self.model, tensor, start, stop)
        if tensor.name not in self.chosen or isinstance(x, BlockArray):
            return x, None
        rng = None
        if self.rounding == "stochastic":
            rng = _Draws(draw_key(rng_of(self.seed, tensor.name)), start * x[:1].size)
        q = quantize(
            x,
            self.plan.format,
            scale_rule=self.plan.scale_rule,
            rounding=self.rounding,
            nonfinite="saturate" if self.nonfinite == "saturate" else "nan",
            rng=rng,
            tensor_scale=self.tensor_scales.get(tensor.name),
        )
        if (self.nonfinite == "raise" or self.nan_is_number) and (q.scales == q.format.scale.nan_code).any():
            self.refuse_nonfinite(tensor, x, start)
        return q, sqnr(x, q)

    def find_tensor_scales(self, tensors: list[Tensor], tick: Ticker) -> None:
        """One pass for the largest magnitude of each tensor."""
        largest = dict.fromkeys((tensor.name for tensor in tensors), 0.0)
        jobs = ((tensor, *cut) for tensor in tensors for cut in cuts(tensor))
        for name, count, found in in_order(self.largest, jobs):
            largest[name] = max(largest[name], found)
            tick(name, count)
        for name, amax in largest.items():
            try:
                self.tensor_scales[name] = tensor_scale(amax, self.plan.format, self.plan.layout)
            except LayoutError as error:
                raise LayoutError(f"{name!r:.80}: {error}; exclude it, or take another layout") from None

    def largest(self, job: tuple[Tensor, int, int]) -> tuple[str, int, float]:
        """Rows of a tensor -> its name, their bytes, and their largest finite magnitude."""
        tensor, start, stop = job
        x = self.model.rows(tensor.name, start, stop)
        assert not isinstance(x, BlockArray)
        found = largest_magnitude(x, finite=False)
        if not math.isfinite(found):
            if self.nonfinite == "raise":
                self.refuse_nonfinite(tensor, x, start)
            found = largest_magnitude(x)
        return tensor.name, share(tensor, start, stop), found

    def refuse_nonfinite(self, tensor: Tensor, x: NDArray[Any], start: int) -> None:
        """FileError that names the first NaN, or the first infinity too if those do not saturate."""
        patterns, infinity = _patterns(x)
        wrong = patterns > infinity if self.nonfinite == "saturate" else patterns >= infinity
        if not wrong.any():
            return
        row, *rest = np.argwhere(wrong)[0].tolist()
        if self.nonfinite == "saturate":
            then = (
                f"its block would be NaN, which readers of the layout {self.plan.layout!r} take for a number"
            )
        else:
            then = "weights are finite; exclude the tensor, or ask for nonfinite 'saturate' or 'nan'"
        value = float(x[(row, *rest)])
        raise FileError(
            f"{self.model.path}: {tensor.name!r:.80} is {value} at {(row + start, *rest)}, and {then}"
        )


def tensor_scale(amax: float, fmt: BlockFormat, layout: str) -> float:
    """The tensor scale for a largest magnitude, and the nearest from there up that the layout can hold."""
    found, laid = float(tensor_scale_for(amax, fmt)), layout_named(layout)
    return nearest_divisible(found) if isinstance(laid, Suffixed) and laid.divides else found


class _Draws(np.random.Generator):
    """Draws of a tensor's elements from one on, for `mxfp.quantize` to take its key from.

    A draw is a function of key + index * _STRIDE, so that a key further on is a later first element.
    """

    def __init__(self, key: np.uint64, first: int) -> None:
        super().__init__(np.random.PCG64(0))
        self._key = (int(key) + first * _STRIDE) % 2**64

    def integers(self, *args: Any, **options: Any) -> Any:
        """The key."""
        return np.uint64(self._key)


def _patterns(x: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """Floats -> the patterns of their magnitudes, and that of infinity, above which is NaN."""
    size = x.dtype.itemsize
    bits = x.view(f"u{size}") & ((1 << 8 * size - 1) - 1)
    return bits, {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000}[x.dtype.name]
