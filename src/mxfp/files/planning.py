# SPDX-License-Identifier: Apache-2.0
"""What quantizing a model will do, tensor by tensor, before any of it is done."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ..blocks import NONFINITE, Nonfinite, check_choice
from ..formats import MXFP4, BlockFormat, ScaleRule
from ..scale import check_rule
from .carrying import Carried, carried, check_destination, declared_like, is_carried
from .choosing import Choice
from .header import FileError
from .layouts import Layout
from .layouts.native import NATIVE
from .model import ModelFile
from .outputs import data_path
from .tensor import Declared, LayoutError, Tensor
from .writing import layout_for, plan_model

BEGIN: Final = "; begin with the float model, or ask for --dequantize-others float32"
"""What to do about tensors that are in other quantized types already."""


@dataclass(frozen=True)
class Item:
    """A tensor as it is and as it will be. kept_because: empty if it will be quantized."""

    source: Tensor
    target: Tensor
    kept_because: str

    @property
    def quantized(self) -> bool:
        """Whether it will be quantized."""
        return not self.kept_because


@dataclass(frozen=True)
class Plan:
    """A model, and what becomes of it.

    size: bytes of what will be written. beside: the file with external data, if there will be one.
    external_data: whether it was asked for. carried: of the metadata.
    """

    model: ModelFile
    path: Path
    layout: str
    format: BlockFormat
    scale_rule: ScaleRule
    nonfinite: Nonfinite
    items: tuple[Item, ...]
    carried: Carried
    size: int
    beside: Path | None = None
    external_data: bool = False

    @property
    def quantized(self) -> tuple[Item, ...]:
        """What will be quantized."""
        return tuple(item for item in self.items if item.quantized)

    @property
    def declared(self) -> tuple[Declared, ...]:
        """The tensors to be written, in the order of the source."""
        return tuple(_declared(item.target) for item in self.items)


def _declared(target: Tensor) -> Declared:
    kind = target.type if target.format is None else target.format
    return Declared(target.name, target.shape, kind, target.axis, target.scale_rule)


def plan_quantize(
    model: ModelFile,
    path: str | Path,
    fmt: BlockFormat = MXFP4,
    *,
    layout: str | None = None,
    choice: Choice | None = None,
    scale_rule: ScaleRule | None = None,
    nonfinite: Nonfinite = "raise",
    external_data: bool = False,
) -> Plan:
    """A model and where it goes -> the Plan; nothing is written, and no tensor is read.

    path, layout, external_data: as for `create_model`. choice: which tensors, by default those of Choice().
    Tensors are quantized along their last axis; all others are written as they are. Of GGUF's other quantized
    types (Q8_0 …) GGUF files are given the bytes; open the model with `dequantize_others` to have floats.
    nonfinite: as for `mxfp.quantize`, but that "raise" names the tensor, and that no block is made NaN where
    readers take it for a number.

    Raises FileError for a path that is read from, for globs that match nothing, for tensors that can be
    neither quantized nor kept, and if nothing is to be quantized; LayoutError for what the layout cannot
    hold, and for nonfinite="nan" where its readers take NaN scales for numbers.
    """
    path, choice = Path(path), Choice() if choice is None else choice
    check_choice(nonfinite, NONFINITE, "nonfinite")
    laid = layout_for(path, layout)
    check_destination(model, path)
    choice.check(model.names)
    rule = check_rule(scale_rule, fmt)
    if nonfinite == "nan" and laid.nan_is_number:
        raise LayoutError(
            f"readers of the layout {laid.name!r} take NaN scales for numbers, so no block can be made NaN; "
            "ask for nonfinite 'saturate', or for the layout mxfp or onnx"
        )
    if fmt not in laid.formats() and laid.name != NATIVE.name:
        raise LayoutError(f"the layout {laid.name!r} holds {', '.join(map(str, laid.formats()))}, not {fmt}")
    reasons, declared = [], []
    for tensor in model.tensors:
        _check_begun_from_floats(model, tensor, choice, fmt)
        wanted = Declared(tensor.name, tensor.shape, fmt, -1, rule)
        reasons.append(choice.kept_because(tensor, fmt) or _not_held(laid, wanted))
        declared.append(declared_like(model, tensor, laid.container) if reasons[-1] else wanted)
    if not reasons:
        raise FileError(f"{model.path}: has no tensors")
    if all(reasons):
        most = "; ".join(f"of {count} {why}" for why, count in Counter(reasons).most_common(3))
        raise FileError(
            f"{model.path}: none of its {len(reasons)} tensors would be quantized: {most}"
            f"{BEGIN if any(is_carried(model, tensor) for tensor in model.tensors) else ''}"
        )
    going = carried(model, laid.container)
    planned, _, frame = plan_model(
        path, declared, layout=layout, metadata=going.metadata, keep=going.keep, external_data=external_data
    )
    items = tuple(Item(*one) for one in zip(model.tensors, planned, reasons, strict=True))
    beside = data_path(path) if frame.beside else None
    return Plan(
        model, path, laid.name, fmt, rule, nonfinite, items, going, frame.nbytes, beside, external_data
    )


def _check_begun_from_floats(model: ModelFile, tensor: Tensor, choice: Choice, fmt: BlockFormat) -> None:
    """FileError for a tensor that is asked for by its name and is in another quantized type already."""
    if not choice.include or not is_carried(model, tensor):
        return
    if not choice.kept_because(replace(tensor, type="F32"), fmt):
        raise FileError(f"{model.path}: {tensor.name!r:.80} is {tensor.type} already{BEGIN}")


def _not_held(layout: Layout, wanted: Declared) -> str:
    """Why a layout cannot hold a tensor; empty if it can."""
    try:
        layout.plan(wanted)
    except LayoutError as error:
        return str(error).removeprefix(f"{wanted.name}: ")
    return ""
