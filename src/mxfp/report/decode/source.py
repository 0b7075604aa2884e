# SPDX-License-Identifier: Apache-2.0
"""A Model from whatever names one: a GGUF file, safetensors with a config.json, or shapes alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ...files import FileError, read_headers
from ...files.shards import read_json_file
from .from_config import model_from_config
from .from_gguf import model_from_gguf
from .model import Model

CONFIG: Final = "config.json"


def model_from(
    path: str | Path | None = None,
    *,
    shapes: Mapping[str, Any] | None = None,
    stored_as: str | None = None,
    window_period: int | None = None,
) -> Model:
    """The model of a file or folder, or of shapes.

    A .gguf (any part of a split one); a .safetensors, an index of shards or a folder, with a config.json
    beside; a config.json or any small JSON with its keys; or, without a path, `shapes` by those keys, which
    otherwise overrule the config's. `stored_as` is the type of matrices where no header says it.
    Raises FileError, in one line.
    """
    given = dict(shapes or {})
    if path is None:
        return model_from_config(given, Path("the shapes"), stored_as=stored_as, window_period=window_period)
    path = Path(path)
    if path.suffix == ".json" and not path.name.endswith(".index.json"):
        config = {**read_json_file(path), **given}
        return model_from_config(config, path, stored_as=stored_as, window_period=window_period)
    headers = read_headers(path)
    if headers[0].format == "gguf":
        if given or stored_as:
            raise FileError(f"{path}: a GGUF file has its shapes and types; none can be given beside it")
        return model_from_gguf(headers, window_period=window_period)
    if stored_as:
        raise FileError(f"{path}: its header has the types of its tensors; none can be given beside it")
    beside = (path if path.is_dir() else path.parent) / CONFIG
    if not beside.exists():
        raise FileError(f"{beside}: not there; safetensors need it for heads and layers")
    return model_from_config(
        {**read_json_file(beside), **given}, beside, headers, window_period=window_period
    )


def shape_from(text: str) -> tuple[str, Any]:
    """`key=value` -> its two halves; the value as JSON, or as text where it is none.

    >>> shape_from("num_hidden_layers=36"), shape_from("model_type=qwen3")
    (('num_hidden_layers', 36), ('model_type', 'qwen3'))
    """
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise ValueError(
            f"{text!r}: expected key=value with a key of config.json, such as num_hidden_layers=36"
        )
    try:
        return key.strip(), json.loads(value)
    except (ValueError, RecursionError):
        return key.strip(), value.strip()
