# SPDX-License-Identifier: Apache-2.0
"""Model files written front to back in pieces: in bounded memory, and whole or not at all."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from ..blocks import BlockArray, check_choice
from ..formats import BlockFormat
from .dtypes import is_array, size_of, step_of, type_of
from .frames import Frame, safetensors_frame
from .gguf_frame import file_type, gguf_frame
from .header import MOST_BYTES, FileError, Header, TensorInfo
from .layouts import LAYOUTS, Layout, NanScales, layout_named
from .layouts.layout import NAN_SCALES, Container
from .layouts.native import KEY
from .model import tensors_of
from .onnx_frame import onnx_frame
from .others import is_other
from .outputs import data_path
from .safetensors_header import MOST_AXES, is_text
from .tensor import Declared, LayoutError, Tensor
from .writer import ModelWriter

CONTAINERS: Final[Mapping[str, Container]] = {
    ".safetensors": "safetensors",
    ".gguf": "gguf",
    ".onnx": "onnx",
}
"""Endings of names, and the files they stand for."""
OWN: Final[Mapping[Container, str]] = {"safetensors": "mxfp", "gguf": "gguf", "onnx": "onnx"}
"""The layout of a container where none is asked for."""


def create_model(
    path: str | Path,
    tensors: Sequence[Declared],
    *,
    layout: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    keep: Header | None = None,
    overwrite: bool = False,
    nan_scales: NanScales = "raise",
    external_data: bool = False,
) -> ModelWriter:
    """Start a model file with these tensors, in this order; `write` then takes their rows.

    path: ends in .safetensors, .gguf or .onnx. layout: for the BlockArrays; by default "mxfp", "gguf" or
    "onnx", by the ending. metadata: texts for safetensors and ONNX, values for GGUF. keep: the header of a
    GGUF file whose other keys go along, unchanged. overwrite: replace a file that exists. nan_scales:
    "raise" refuses NaN scales that the layout's owner would read as numbers, "keep" writes their code.
    external_data: write the data of an ONNX model to a file of its own beside it, "model.onnx.data", which
    is done anyhow with more than one ONNX file holds, 2 GiB.

    Raises LayoutError for what the layout or the container cannot hold, FileError if the file cannot be
    made or there is no room for it: all that before a byte of data is asked for.
    """
    check_choice(nan_scales, NAN_SCALES, "nan_scales")
    planned, laid, frame = plan_model(
        path, tensors, layout=layout, metadata=metadata, keep=keep, external_data=external_data
    )
    return ModelWriter(Path(path), planned, laid, frame, overwrite, nan_scales)


def plan_model(
    path: str | Path,
    tensors: Sequence[Declared],
    *,
    layout: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    keep: Header | None = None,
    external_data: bool = False,
) -> tuple[tuple[Tensor, ...], Layout, Frame]:
    """What `create_model` would write, its layout and its frame; nothing is touched but `keep`'s file."""
    laid = layout_for(path, layout)
    if external_data and laid.container != "onnx":
        raise LayoutError(f"{path}: external data are ONNX's; a {laid.container} file has all of its own")
    planned = tuple(
        laid.plan(d) if isinstance(d.type, BlockFormat) else _plain(d, laid.container)
        for d in map(_checked, tensors)
    )
    _check_names(planned)
    frame = _frame(planned, laid, metadata or {}, keep, Path(path), external_data)
    if frame.nbytes > MOST_BYTES:
        raise LayoutError(f"{path}: {frame.nbytes} bytes are more than a file holds")
    if laid.container == "safetensors":
        _check_read_again(Path(path), planned, laid, frame, metadata or {})
    return planned, laid, frame


def layout_for(path: str | Path, layout: str | None = None) -> Layout:
    """The layout of that name, or the one that the ending of the path stands for; LayoutError if neither.

    >>> layout_for("a.gguf").name
    'gguf'
    """
    path = Path(path)
    container = CONTAINERS.get(path.suffix)
    if container is None:
        raise LayoutError(f"{path}: expected a name that ends in {', '.join(CONTAINERS)}")
    laid = layout_named(OWN[container] if layout is None else layout)
    if laid.container != container:
        raise LayoutError(f"{path}: the layout {laid.name!r} is of {laid.container} files")
    return laid


def declared(name: str, array: NDArray[Any] | BlockArray) -> Declared:
    """What to declare to write an array that is there already.

    >>> import mxfp, numpy as np
    >>> declared("w", mxfp.quantize(np.ones((2, 64))))
    Declared(name='w', shape=(2, 64), type=MXFP4, axis=-1, scale_rule='floor')
    """
    if isinstance(array, BlockArray):
        return Declared(name, array.shape, array.format, array.axis, array.scale_rule)
    return Declared(name, array.shape, type_of(array.dtype))


def write_model(path: str | Path, arrays: Mapping[str, NDArray[Any] | BlockArray], **options: Any) -> None:
    """Write arrays that are all in memory to a model file; options and errors are those of `create_model`."""
    with create_model(path, [declared(name, array) for name, array in arrays.items()], **options) as out:
        for name, array in arrays.items():
            out.write(name, array)


def _checked(wanted: Declared) -> Declared:
    """What is declared, its shape in Python's numbers; LayoutError for what is no name, shape or axis."""
    name, what = wanted.name, f"{wanted.name!r:.80}"
    if not isinstance(name, str):
        raise LayoutError(f"the name of a tensor is a text, got {what}")
    try:
        shape, axis = tuple(map(operator.index, wanted.shape)), operator.index(wanted.axis)
    except TypeError:
        raise LayoutError(
            f"{what}: a shape and an axis are whole numbers, got {wanted.shape!r:.80} and {wanted.axis!r:.40}"
        ) from None
    if len(shape) > MOST_AXES or not all(0 <= n <= MOST_BYTES for n in shape):
        raise LayoutError(f"{what}: shape {shape!r:.80} is none of at most {MOST_AXES} axes, none negative")
    return replace(wanted, shape=shape, axis=axis)


def _plain(wanted: Declared, container: Container) -> Tensor:
    kind, shape, name = str(wanted.type), tuple(wanted.shape), wanted.name
    found = Tensor(name, shape, kind, ())
    if not is_array(kind) and not (container == "gguf" and is_other(found)):
        raise LayoutError(f"{name}: {kind} is no type of arrays; a BlockFormat is, or F32 and the like")
    try:
        if not is_array(kind):
            size_of(kind, shape[-1] if shape else 1)
        nbytes = size_of(kind, found.elements)
    except LayoutError as error:
        raise LayoutError(f"{name}: {error}") from None
    info = TensorInfo(name, shape, kind, nbytes, 0)
    return replace(found, parts=(info,), step=step_of(kind, shape))


def _check_names(tensors: Sequence[Tensor]) -> None:
    """LayoutError if two tensors of the file would have one name, or one has none that can be written."""
    seen: dict[str, str] = {}
    for tensor in tensors:
        for name in {tensor.name, *(part.name for part in tensor.parts)}:
            try:
                name.encode()
            except UnicodeEncodeError:
                raise LayoutError(f"{name!r:.80} is a name that UTF-8 does not have") from None
            if not name:
                raise LayoutError("a tensor needs a name, got an empty one")
            if seen.setdefault(name, tensor.name) != tensor.name:
                raise LayoutError(f"{tensor.name!r:.80} and {seen.get(name)!r:.80} both have {name!r:.80}")
    if len({tensor.name for tensor in tensors}) < len(tensors):
        names = [tensor.name for tensor in tensors]
        raise LayoutError(f"{next(n for n in names if names.count(n) > 1)!r:.80} is declared twice")


def _check_read_again(
    path: Path, planned: Sequence[Tensor], layout: Layout, frame: Frame, metadata: Mapping[str, Any]
) -> None:
    """LayoutError for names that would be taken for parts of another layout, as of a tensor "x_blocks"."""
    told = {**layout.metadata(tuple(t for t in planned if t.layout)), **metadata}
    header = Header("safetensors", told, frame.tensors, 0, frame.size, path=path)
    try:
        found = {tensor.name: tensor.layout for tensor in tensors_of(path, (header,), LAYOUTS)}
    except FileError as error:
        raise LayoutError(f"{error}; with such names it could not be read again") from None
    for tensor in planned:
        if tensor.layout and found.get(tensor.name) != tensor.layout:
            raise LayoutError(f"{tensor.name!r:.80} has a name that other layouts have for parts of theirs")


def _frame(
    tensors: Sequence[Tensor],
    layout: Layout,
    metadata: Mapping[str, Any],
    keep: Header | None,
    path: Path,
    external_data: bool,
) -> Frame:
    parts = [part for tensor in tensors for part in tensor.parts]
    told = {**layout.metadata(tuple(t for t in tensors if t.layout)), **metadata}
    if KEY in metadata and layout.container == "safetensors":
        raise LayoutError(f"the metadata {KEY!r} are this package's own; call yours otherwise")
    if not is_text(*(text for text in (*metadata, *metadata.values()) if isinstance(text, str))):
        raise LayoutError("metadata have half of a surrogate pair, which UTF-8 does not have")
    if keep is not None and layout.container != "gguf":
        raise LayoutError(f"keys are kept in GGUF files, not in {layout.container} files")
    if layout.container == "safetensors":
        return safetensors_frame(parts, told)
    if layout.container == "onnx":
        return onnx_frame(parts, told, data_path(path).name, external_data)
    return gguf_frame(parts, {**file_type(parts, keep), **told}, keep)
