# SPDX-License-Identifier: Apache-2.0
"""Layer by layer, what 4-bit weights and 4-bit weights with 4-bit activations cost on real activations.

Each layer is activations (tokens, K) @ weight (N, K).T. The exact product is of the float weights, in
float64. Beside it stand float16 (both sides rounded to it, products added exactly), W4A16 (weights in blocks,
activations in float16, added exactly) and W4A4 (both in blocks, added by a named accumulator).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..accumulate import Accumulator, Sequential
from ..blocks import BlockArray, dequantize, quantize
from ..files import FileError, ModelFile, open_model
from ..files.dtypes import is_array
from ..floats import real_array, round_float64, to_float64
from ..formats import MXFP4, BlockFormat, Floats, ScaleRule
from .accuracy import Figures, figures, product_of_blocks
from .measure import Progress, plain

WAYS: Final = ("float16", "W4A16", "W4A4")
FLOAT16: Final = np.dtype(np.float16)


@dataclass(frozen=True)
class LayerFigures:
    """One layer: tokens, K and N, and the figures of each of WAYS against the exact product.

    given: the weight was in blocks of the format already, and was taken as it is.
    """

    name: str
    tokens: int
    k: int
    n: int
    weight: str
    format: str
    given: bool
    ways: dict[str, Figures]


@dataclass(frozen=True)
class Evaluation:
    """All layers of a model that activations were given for; `rule` is "" for the formats' own."""

    model: str
    source: str
    data: str
    rule: str
    accumulator: str
    layers: list[LayerFigures]
    without: list[str]

    @property
    def format(self) -> str:
        """The format of the weights, or all of them."""
        return ", ".join(dict.fromkeys(layer.format for layer in self.layers))

    @property
    def given(self) -> int:
        """How many layers' weights were in blocks already."""
        return sum(layer.given for layer in self.layers)

    def worst(self, way: str) -> LayerFigures:
        """The layer with the largest relative error."""
        return max(self.layers, key=lambda layer: np.nan_to_num(layer.ways[way].relative_error, nan=np.inf))

    def as_dict(self) -> dict[str, Any]:
        """Plain lists, strings and numbers; a figure that is not finite is None."""
        return {"schema": "mxfp-evaluation/1", "format": self.format, **plain(asdict(self))}


class Activations:
    """Activations of a file, an array (tokens, K) for each layer, named as its weight is; read one by one.

    An .npz file, or whatever `open_model` reads: safetensors hold bfloat16, which numpy's files do not.
    FileError in one line for a file that is not there, or is not as its format has it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file = open_model(self.path, layouts=())

    def __enter__(self) -> Activations:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def names(self) -> tuple[str, ...]:
        """The layers."""
        return self._file.names

    def read(self, name: str) -> NDArray[Any]:
        """The activations of a layer, (tokens, K), finite; all axes but the last are tokens."""
        try:
            found = real_array(self._file.values(name), name)
        except TypeError as error:
            raise FileError(f"{self.path}: {error}") from None
        if found.ndim < 2 or 0 in found.shape:
            raise FileError(f"{self.path}: {name} must be (tokens, K), with no axis empty, got {found.shape}")
        found = found.reshape(-1, found.shape[-1])
        if not np.isfinite(to_float64(found)).all():
            raise FileError(f"{self.path}: {name} has NaN or infinity; figures need finite values")
        return found


def evaluate(
    model: ModelFile,
    data: Activations,
    *,
    source: ModelFile | None = None,
    fmt: BlockFormat | None = None,
    rule: ScaleRule | None = None,
    accumulator: Accumulator | None = None,
    include: str = "*",
    progress: Progress = lambda what, done, total: None,
) -> Evaluation:
    """Every layer of `data` -> an Evaluation, one layer in memory at a time.

    model: float weights, which are quantized to fmt (None: MXFP4) by rule; or weights in blocks, which are
    taken as they are, and `source` then has the float weights that they were made of. Activations are
    quantized to the weights' format by the same rule, None being that of the weights where they have one.
    accumulator: of W4A4; None is `Sequential("float32")`.

    Raises FileError, in one line, for activations that are to no weight, or of another K; and ValueError
    for a fmt with weights that are in blocks of another already, and for a source where none is in blocks.
    """
    chosen = accumulator if accumulator is not None else Sequential("float32")
    pairs = list(_pairs(model, data, include))
    if source is not None and not any(model.info(weight).layout for _, weight in pairs):
        raise ValueError(f"{model.path}: no weight is in blocks, so that there is no use for a source")
    found = []
    for n, (name, weight_name) in enumerate(pairs):
        progress(name, n, len(pairs))
        a = data.read(name)
        w, q = _weights(model, source, name, weight_name, fmt)
        if w.ndim != 2 or not w.size or a.shape[1] != w.shape[1]:
            raise FileError(
                f"{data.path}: {name} is {a.shape}, which needs a weight (N, {a.shape[1]}); "
                f"{weight_name} is {w.shape}"
            )
        given = q is not None
        if q is None:
            q = quantize(w, fmt or MXFP4, scale_rule=rule)
        try:
            ways = _ways(a, w, q, rule, chosen)
        except ValueError as error:  # of an accumulator that is too narrow, or of the scale rule
            raise ValueError(f"{name}: {error}") from None
        found.append(
            LayerFigures(name, len(a), w.shape[1], w.shape[0], weight_name, q.format.name, given, ways)
        )
    progress("done", len(pairs), len(pairs))
    used = {name for _, name in pairs}
    return Evaluation(
        str(model.path),
        str(source.path) if source else "",
        str(data.path),
        rule or "",
        str(chosen),
        found,
        [name for name in model.names if name not in used and len(model.info(name).shape) == 2],
    )


def _weights(
    model: ModelFile,
    source: ModelFile | None,
    name: str,
    weight_name: str,
    fmt: BlockFormat | None,
) -> tuple[NDArray[Any], BlockArray | None]:
    """The float weight of a layer, and the one in blocks if the model has it."""
    if not model.info(weight_name).layout:
        return _floats(model, weight_name), None
    q = model.read(weight_name)
    assert isinstance(q, BlockArray), "a tensor with a layout is in blocks"
    if source is None:
        raise FileError(
            f"{model.path}: {weight_name} is in blocks of {q.format.name} already; give the "
            "float model that it was made of as the source"
        )
    if fmt is not None and fmt != q.format:
        raise ValueError(f"{weight_name} is in {q.format.name}, not in {fmt.name}, and is not made anew")
    w = _floats(source, _weight_of(source, name))
    if w.shape != q.shape:
        raise FileError(f"{source.path}: {weight_name} is {w.shape}, and {q.shape} in blocks")
    return w, q


def _ways(
    a: NDArray[Any], w: NDArray[Any], q: BlockArray, rule: ScaleRule | None, accumulator: Accumulator
) -> dict[str, Figures]:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        exact = to_float64(a) @ to_float64(w).T
        if not np.isfinite(exact).all():
            raise ValueError("the exact product is beyond float64")
        half_a = _in_float16(a)
        qa = quantize(a, q.format, scale_rule=rule or q.scale_rule)
        # One wide copy of the weight at a time.
        return {
            "float16": figures(half_a @ _in_float16(w).T, exact),
            "W4A16": figures(half_a @ dequantize(q, dtype=np.float64).T, exact),
            "W4A4": figures(product_of_blocks(qa, q.T, accumulator, lambda amount: None), exact),
        }


def _in_float16(x: NDArray[Any]) -> Floats:
    return round_float64(to_float64(x), FLOAT16).astype(np.float64)


def _pairs(model: ModelFile, data: Activations, include: str) -> Iterator[tuple[str, str]]:
    wanted = [name for name in data.names if fnmatchcase(name, include)]
    if not wanted:
        raise FileError(
            f"{data.path}: no array matches {include!r}; it has {', '.join(data.names[:5]) or 'none'}"
        )
    for name in wanted:
        yield name, _weight_of(model, name)


def _weight_of(model: ModelFile, name: str) -> str:
    """The tensor that activations belong to: their own name, or that with .weight behind it."""
    for candidate in (name, f"{name}.weight"):
        if candidate in model.names:
            return candidate
    likely = name if name.endswith(".weight") else f"{name}.weight"
    return model.info(likely).name  # FileError, with names that are near


def _floats(model: ModelFile, name: str) -> NDArray[Any]:
    """A weight of floats or integers, finite; FileError for one that is quantized."""
    info = model.info(name)
    if info.layout or not is_array(info.type):
        raise FileError(f"{model.path}: {name} is {info.type}, expected the float weight")
    try:
        found = real_array(model.values(name), name)
    except TypeError as error:
        raise FileError(f"{model.path}: {error}") from None
    if not np.isfinite(to_float64(found)).all():
        raise FileError(f"{model.path}: {name} has NaN or infinity; figures need finite values")
    return found
