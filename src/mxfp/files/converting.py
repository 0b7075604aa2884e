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
    rows_of,
    share,
    write_tiles,
)
from .header import FileError
from .layouts import Layout
from .model import ModelFile, open_model
from .others import carried_types, decoded_types
from .outputs import data_path
from .pipeline import in_order
from .tensor import LayoutError, Tensor
from .writer import ModelWriter
from .writing import create_model, layout_for, plan_model


@dataclass(frozen=True)
class Converted:
    """What was done. blocks: the tensors in blocks. nan_blocks: how many NaN scales each has, if any.

    nan_is_number: whether readers of the layout take those for numbers. kept, decoded: of GGUF's other
    quantized types, how many tensors of each have their bytes carried, and how many were read as floats.
    size: of all files. beside: the one with external data, if there is one. checked: whether it was read
    again.
    """

    path: Path
    layout: str
    tensors: int
    blocks: tuple[Tensor, ...]
    nan_blocks: Mapping[str, int]
    nan_is_number: bool
    carried: Carried
    kept: Mapping[str, int]
    decoded: Mapping[str, int]
    size: int
    beside: Path | None
    checked: bool
    seconds: float


def convert_model(
    model: ModelFile,
    path: str | Path,
    *,
    layout: str | None = None,
    check: bool = True,
    overwrite: bool = False,
    external_data: bool = False,
    progress: Progress = lambda name, done, total: None,
) -> Converted:
    """Write a model in another layout: the same names, codes, scales and arrays.

    path, layout, external_data: as for `create_model`. check: before the file has its name, read it again
    and compare all bits. NaN scales keep their code. GGUF's other quantized types (Q8_0, Q4_K …) keep their
    bytes, from GGUF to GGUF; open the model with `dequantize_others` for floats instead.

    Raises LayoutError, naming the tensor, before anything is written for whatever the layout cannot hold;
    FileError where the source is not what its header says, for GGUF's other types where they cannot go, for
    a file that is not what was written, and where it cannot be written. Nothing is left then, and what was
    there before is there still.
    """
    begin, path = time.perf_counter(), Path(path)
    check_destination(model, path)
    container = layout_for(path, layout).container
    going = carried(model, container)
    declared = [declared_like(model, tensor, container) for tensor in model.tensors]
    options: dict[str, Any] = {
        "layout": layout,
        "metadata": going.metadata,
        "keep": going.keep,
        "external_data": external_data,
    }
    planned, laid, frame = plan_model(path, declared, **options)
    for source, target in zip(model.tensors, planned, strict=True):
        if source.format is not None and source.format.tensor_scale:
            _check_tensor_scale(model, source, target, laid)
    blocks = tuple(tensor for tensor in model.tensors if tensor.format is not None)
    total = sum(tensor.nbytes for tensor in model.tensors)
    tick = Ticker(2 * total if check else total, progress)
    found = dict.fromkeys((tensor.name for tensor in blocks), 0)

    def rows(tensor: Tensor, start: int, stop: int) -> tuple[Rows, int]:
        some = rows_of(model, tensor, start, stop)
        if not isinstance(some, BlockArray):
            return some, 0
        return some, int(np.count_nonzero(some.scales == some.format.scale.nan_code))

    with create_model(path, declared, **options, overwrite=overwrite, nan_scales="keep") as writer:
        for tensor, count in write_tiles(writer, model.tensors, rows, tick):
            if count:
                found[tensor.name] += count
        if check:
            _check(model, writer, tick)
    return Converted(
        path,
        laid.name,
        len(declared),
        blocks,
        {name: count for name, count in found.items() if count},
        laid.nan_is_number,
        going,
        carried_types(model.tensors),
        decoded_types(model.tensors),
        frame.nbytes,
        data_path(path) if frame.beside else None,
        check,
        time.perf_counter() - begin,
    )


def _check(model: ModelFile, writer: ModelWriter, tick: Ticker) -> None:
    """FileError unless what has been written is the model, bit for bit; it has no name yet."""
    with writer.readable() as place:
        try:
            compare(model, place, tick)
        except ValueError as error:
            reason = str(error).replace(str(place.parent), str(writer.path.parent))
            raise FileError(
                f"{writer.path}: not written: read again, it is not what was written: {reason}"
            ) from None


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
            again = written.info(tensor.name)
            if again.type != tensor.type:
                raise ValueError(f"{tensor.name}: is {again.type}, expected {tensor.type}")
            one, other = rows_of(model, tensor, start, stop), rows_of(written, again, start, stop)
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
