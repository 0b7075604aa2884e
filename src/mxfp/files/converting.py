# SPDX-License-Identifier: Apache-2.0
"""A model from one layout to another, without losing a bit."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..blocks import BlockArray
from .carrying import (
    Carried,
    Progress,
    Rows,
    Ticker,
    carried,
    check_destination,
    cuts,
    declared_like,
    share,
    write_tiles,
)
from .header import FileError
from .layouts import Layout
from .model import ModelFile, open_model
from .pipeline import in_order
from .tensor import LayoutError, Tensor
from .writing import create_model, layout_for, plan_model


@dataclass(frozen=True)
class Converted:
    """What was done. blocks: the tensors in blocks. nan_blocks: how many NaN scales each has, if any.

    nan_is_number: whether readers of the layout take those for numbers. checked: whether it was read again.
    """

    path: Path
    layout: str
    tensors: int
    blocks: tuple[Tensor, ...]
    nan_blocks: Mapping[str, int]
    nan_is_number: bool
    carried: Carried
    size: int
    checked: bool
    seconds: float


def convert_model(
    model: ModelFile,
    path: str | Path,
    *,
    layout: str | None = None,
    check: bool = True,
    overwrite: bool = False,
    progress: Progress = lambda name, done, total: None,
) -> Converted:
    """Write a model in another layout: the same names, codes, scales and arrays.

    path, layout: as for `create_model`. check: read the file again and compare all bits; a file that differs
    is removed. NaN scales keep their code. Raises LayoutError, naming the tensor, before anything is written
    for whatever the layout cannot hold; FileError where the source is not what its header says, for GGUF's
    other quantized types, and where the file cannot be written.
    """
    begin, path = time.perf_counter(), Path(path)
    check_destination(model, path)
    going = carried(model, layout_for(path, layout).container)
    declared = [declared_like(model, tensor) for tensor in model.tensors]
    options: dict[str, Any] = {"layout": layout, "metadata": going.metadata, "keep": going.keep}
    planned, laid, frame = plan_model(path, declared, **options)
    for source, target in zip(model.tensors, planned, strict=True):
        if source.format is not None and source.format.tensor_scale:
            _check_tensor_scale(model, source, target, laid)
    blocks = tuple(tensor for tensor in model.tensors if tensor.format is not None)
    total = sum(tensor.nbytes for tensor in model.tensors)
    tick = Ticker(2 * total if check else total, progress)
    found = dict.fromkeys((tensor.name for tensor in blocks), 0)

    def rows(tensor: Tensor, start: int, stop: int) -> tuple[Rows, int]:
        some = model.rows(tensor.name, start, stop)
        if not isinstance(some, BlockArray):
            return some, 0
        return some, int(np.count_nonzero(some.scales == some.format.scale.nan_code))

    with create_model(path, declared, **options, overwrite=overwrite, nan_scales="keep") as writer:
        for tensor, count in write_tiles(writer, model.tensors, rows, tick):
            if count:
                found[tensor.name] += count
    if check:
        try:
            compare(model, path, tick)
        except ValueError as error:
            path.unlink(missing_ok=True)
            raise FileError(f"{path}: is not what was written, and is removed again: {error}") from None
    nan = {name: count for name, count in found.items() if count}
    seconds = time.perf_counter() - begin
    return Converted(
        path, laid.name, len(declared), blocks, nan, laid.nan_is_number, going, frame.size, check, seconds
    )


def _check_tensor_scale(model: ModelFile, source: Tensor, target: Tensor, layout: Layout) -> None:
    """LayoutError for tensor scales that the layout cannot hold, before anything is written."""
    shared = source.parts[-1]
    if len(source.parts) > 1 and shared.elements > 1:
        with open_model(model.path, layouts=()) as raw:
            values = np.asarray(raw.read(shared.name)).reshape(-1)
        if (values != values[0]).any():
            raise LayoutError(
                f"{source.name}: has {values.size} tensor scales that differ, one for each of the first "
                f"axis; the layout {layout.name!r} is written with one"
            )
    some = model.rows(source.name, 0, min(source.step, source.rows))
    assert isinstance(some, BlockArray)
    layout.pieces(target, some)


def compare(model: ModelFile, path: Path, tick: Ticker) -> None:
    """Raise ValueError for the first tensor of a file that is not, bit for bit, the model's."""
    with open_model(path) as written:
        if written.names != model.names:
            raise ValueError(f"it has {len(written.names)} tensors, expected {len(model.names)}")

        def same(job: tuple[Tensor, int, int]) -> tuple[str, int]:
            tensor, start, stop = job
            one, other = (m.rows(tensor.name, start, stop) for m in (model, written))
            _same(tensor.name, one, other, start)
            return tensor.name, share(tensor, start, stop)

        jobs = (
            (tensor, *cut) for tensor in model.tensors for cut in cuts(tensor, written.info(tensor.name).step)
        )
        for done in in_order(same, jobs):
            tick(*done)


def _same(name: str, one: Rows, other: Rows, start: int) -> None:
    if isinstance(one, BlockArray) and isinstance(other, BlockArray):
        if one == other:
            return
        raise ValueError(f"{name}: codes or scales from row {start} on differ")
    if isinstance(one, BlockArray) or isinstance(other, BlockArray):
        raise ValueError(f"{name}: is in blocks on one side only")
    if one.dtype != other.dtype or one.shape != other.shape or not np.array_equal(_raw(one), _raw(other)):
        raise ValueError(f"{name}: rows from {start} on differ")


def _raw(array: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
