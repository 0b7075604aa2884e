# SPDX-License-Identifier: Apache-2.0
"""The config.json beside a model's safetensors, and what it says of their quantization."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ..formats import BlockFormat
from ..whole import write_whole
from .header import FileError
from .layouts.config import quantization_config
from .model import ModelFile
from .planning import Plan
from .shards import read_json_file

CONFIG: Final = "config.json"
KEY: Final = "quantization_config"


def told(layout: str, fmt: BlockFormat, kept: Sequence[str]) -> dict[str, Any] | None:
    """The quantization_config of a layout whose loaders need weights alone; None for the others.

    kept: modules whose weights are floats. modelopt's loaders want scales of activations as well, which take
    calibration.

    >>> from mxfp import MXFP4
    >>> told("gpt-oss", MXFP4, ["lm_head"])
    {'quant_method': 'mxfp4', 'modules_to_not_convert': ['lm_head']}
    """
    if layout not in {"gpt-oss", "compressed-tensors"}:
        return None
    return quantization_config(layout, fmt, ignore=kept)


def config_beside(model: ModelFile) -> Path | None:
    """The config.json in the folder of a model's files, if there is one."""
    found = model.header.path.parent / CONFIG
    return found if found.is_file() else None


def check_config(plan: Plan, *, overwrite: bool = False) -> dict[str, Any]:
    """The config.json for a quantized model: that of the source, with the new quantization_config.

    Raises FileError where the layout has none, where there is none beside the source, or where one is beside
    the destination already.
    """
    found = config_beside(plan.model)
    new = told(plan.layout, plan.format, kept_modules(plan))
    if new is None:
        raise FileError(f"no config.json is written for {plan.format} in the layout {plan.layout!r}")
    if found is None:
        raise FileError(f"there is no config.json beside {plan.model.header.path}")
    target = plan.path.parent / CONFIG
    if target.exists() and (target.samefile(found) or target.is_dir() or not overwrite):
        raise FileError(f"{target} exists; write to a folder of its own, or leave config.json to yourself")
    made = {**read_json_file(found), KEY: new}
    try:
        json.dumps(made, allow_nan=False)
    except ValueError:
        raise FileError(f"{found}: has a number that float64 does not hold") from None
    return made


def kept_modules(plan: Plan) -> list[str]:
    """Modules with a weight of two axes or more that stays as it is."""
    kept = [item.source for item in plan.items if not item.quantized and len(item.source.shape) > 1]
    return [tensor.name.removesuffix(".weight") for tensor in kept if tensor.name.endswith(".weight")]


def write_config(plan: Plan, config: dict[str, Any]) -> Path:
    """Write what `check_config` gave beside the destination, whole. OSError if it cannot be written."""
    target = plan.path.parent / CONFIG
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    write_whole(target, lambda out: out.write(text.encode()))
    return target
