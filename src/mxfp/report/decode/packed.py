# SPDX-License-Identifier: Apache-2.0
"""How many weights a safetensors tensor holds where its dtype packs several into one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from ...files import FileError, TensorInfo
from ...files.types import SAFETENSORS

_INTEGERS: Final = {"U8", "I8", "I16", "U16", "I32", "U32", "I64", "U64"}


def elements_of(
    info: TensorInfo, names: Collection[str], config: Mapping[str, Any], path: Path
) -> int | None:
    """Weights in a tensor, None where its shape says it.

    Two codes a byte: gpt-oss's `*_blocks`, `weight_packed` and modelopt's `weight` of bytes beside a
    `weight_scale`. 32-bit words: as many as `quantization_config` gives bits for. Integers that none of these
    explain are a FileError, since the operations on them cannot be counted.
    """
    if info.type not in _INTEGERS or len(info.shape) < 2:
        return None
    stem, _, last = info.name.rpartition(".")
    if last.endswith(("_scales", "scale", "qzeros", "g_idx", "zero_point", "weight_shape", "weight_zp")):
        return 0
    if info.type == "I8":
        return None
    if info.type == "U8" and (last.endswith(("_blocks", "weight_packed")) or f"{stem}.weight_scale" in names):
        return 2 * info.elements
    bits = _bits(config.get("quantization_config"))
    if last in {"qweight", "weight_packed"} and bits:
        return info.elements * 8 * SAFETENSORS[info.type].nbytes // bits
    raise FileError(
        f"{path}: tensor {info.name!r:.80} is {info.type}; how many weights that packs is not known here"
    )


def _bits(quantization: Any) -> int | None:
    """The bits of a weight as GPTQ, AWQ or compressed-tensors state them."""
    if not isinstance(quantization, dict):
        return None
    found = quantization.get("bits")
    groups = quantization.get("config_groups")
    if found is None and isinstance(groups, dict):
        first = next(iter(groups.values()), None)
        weights = first.get("weights") if isinstance(first, dict) else None
        found = weights.get("num_bits") if isinstance(weights, dict) else None
    return found if isinstance(found, int) and 1 <= found <= 32 else None
