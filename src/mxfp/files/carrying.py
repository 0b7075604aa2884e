# SPDX-License-Identifier: Apache-2.0
"""From one model file to another: what goes along as it is, and tensors written tile by tile."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray

from ..blocks import BlockArray
from .dtypes import is_array
from .header import FileError, Header
from .layouts import Container
from .layouts.native import KEY
from .layouts.onnx import NODES, ORDER
from .model import ModelFile
from .others import carried_types, counted, is_other, stored_shape
from .outputs import data_path
from .pipeline import TILE, in_order
from .tensor import Declared, Tensor
from .writer import ModelWriter

Rows = NDArray[Any] | BlockArray
Found = TypeVar("Found")
Progress = Callable[[str, int, int], None]
"""Called with the name of a tensor, the bytes that are done, and all there are."""


@dataclass(frozen=True)
class Carried:
    """What of a file's metadata goes along: texts; or the header whose keys do. note: what does not."""

    metadata: dict[str, str]
    keep: Header | None
    note: str = ""


def carried(model: ModelFile, container: Container) -> Carried:
    """The metadata that a file of another container can hold: GGUF's keys in GGUF, texts elsewhere."""
    metadata = model.header.metadata
    if model.format == "gguf":
        if container == "gguf":
            return Carried({}, model.header)
        keys = f"{len(metadata)} key{'s' * (len(metadata) != 1)}"
        return Carried({}, None, f"{keys} of GGUF metadata are not carried over to {container}")
    texts = {k: v for k, v in metadata.items() if isinstance(v, str) and k not in {KEY, NODES, ORDER}}
    if container != "gguf":
        return Carried(texts, None)
    note = "a GGUF file without the keys and names of an architecture, which llama.cpp does not load"
    return Carried({}, None, note)


def check_destination(model: ModelFile, path: Path) -> None:
    """Raise FileError for a path that is one of the model's own files, or whose external data are."""
    for out in (path, data_path(path)) if path.suffix == ".onnx" else (path,):
        for header in model.headers:
            if out.exists() and out.samefile(header.path):
                raise FileError(f"{out} is the file that is read; give another name")


def declared_like(model: ModelFile, tensor: Tensor, container: Container) -> Declared:
    """A tensor as it is, to be written: GGUF's other quantized types to GGUF alone.

    FileError for those elsewhere, naming the tensor and the types, and for types that nothing is known of.
    """
    if tensor.format is not None:
        return Declared(tensor.name, tensor.shape, tensor.format, tensor.axis, tensor.scale_rule)
    if is_array(tensor.type) or (container == "gguf" and is_carried(model, tensor)):
        return Declared(tensor.name, tensor.shape, tensor.type)
    what = f"{model.path}: {tensor.name!r:.80} is {tensor.type}"
    if not is_carried(model, tensor):
        raise FileError(f"{what}, which is no array and none of the family")
    raise FileError(
        f"{what}, and {container} has no such type (in all {counted(carried_types(model.tensors))}); "
        "write .gguf, which keeps their bytes, or ask for --dequantize-others float32, float16 or bfloat16"
    )


def is_carried(model: ModelFile, tensor: Tensor) -> bool:
    """Whether a tensor is in one of GGUF's other quantized types, whose bytes GGUF files are given."""
    return model.format == "gguf" and is_other(tensor)


def rows_of(model: ModelFile, tensor: Tensor, start: int, stop: int) -> Rows:
    """Rows as `ModelWriter.write` takes them: arrays, blocks, or the bytes of the other types."""
    if not is_carried(model, tensor):
        return model.rows(tensor.name, start, stop)
    shape = stored_shape(tensor.type, (stop - start, *tensor.shape[1:]))
    return model.raw(tensor.name, start, stop).reshape(shape)


def cuts(tensor: Tensor, step: int = 1) -> Iterator[tuple[int, int]]:
    """Rows from … to of about TILE elements, at which a tensor can be cut and so can one of that step."""
    rows, step = tensor.rows, math.lcm(tensor.step, step)
    each = -(-tensor.tile(TILE) // step) * step
    return ((start, min(start + each, rows)) for start in range(0, max(rows, 1), each))


def share(tensor: Tensor, start: int, stop: int) -> int:
    """Bytes of a tensor that rows from … to are; all rows together are all bytes."""
    rows = max(tensor.rows, 1)
    return tensor.nbytes * stop // rows - tensor.nbytes * start // rows


def write_tiles(
    writer: ModelWriter,
    tensors: Sequence[Tensor],
    work: Callable[[Tensor, int, int], tuple[Rows, Found]],
    tick: Callable[[str, int], None],
) -> Iterator[tuple[Tensor, Found]]:
    """Write the tensors, front to back; work gives rows from … to, and what else it found, which is yielded.

    Some threads work, and this one writes; as many tiles are in memory as there are threads, and two.
    tick: called with a name and the bytes of the source that are done with.
    """

    def run(job: tuple[Tensor, int, int]) -> tuple[tuple[Tensor, int, int], tuple[Rows, Found]]:
        return job, work(*job)

    jobs = (
        (tensor, start, stop)
        for tensor in tensors
        for start, stop in cuts(tensor, writer.info(tensor.name).step)
    )
    for (tensor, start, stop), (rows, found) in in_order(run, jobs):
        writer.write(tensor.name, rows)
        tick(tensor.name, share(tensor, start, stop))
        yield tensor, found


class Ticker:
    """Bytes that are done, counted for a progress bar."""

    def __init__(self, total: int, progress: Progress) -> None:
        self.done, self.total, self.progress = 0, total, progress

    def __call__(self, name: str, count: int) -> None:
        """Count some more."""
        self.done = min(self.done + count, self.total)
        self.progress(name, self.done, self.total)
