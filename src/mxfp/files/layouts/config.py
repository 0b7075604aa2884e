# SPDX-License-Identifier: Apache-2.0
"""What config.json says of a layout, so that the programs that load a model know it: quantization_config."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...formats import BlockFormat
from ..tensor import LayoutError
from .suffixed import COMPRESSED_TENSORS, GPT_OSS, MODELOPT

_PACKED = {"MXFP4": "mxfp4-pack-quantized", "NVFP4": "nvfp4-pack-quantized"}
_ALGORITHMS = {"MXFP4": "MXFP4", "NVFP4": "NVFP4", "MXFP8_E4M3": "MXFP8"}


def quantization_config(layout: str, fmt: BlockFormat, *, ignore: Sequence[str] = ()) -> dict[str, Any]:
    """The `quantization_config` of a config.json beside a model in a layout, with weights alone quantized.

    ignore: the modules that are not quantized, in the patterns that the loader has. LayoutError for a layout
    whose files say all by themselves, or which does not hold the format.

    >>> import mxfp
    >>> quantization_config("gpt-oss", mxfp.MXFP4, ignore=["lm_head"])
    {'quant_method': 'mxfp4', 'modules_to_not_convert': ['lm_head']}
    """
    known = {found.name: found for found in (GPT_OSS, COMPRESSED_TENSORS, MODELOPT)}
    if layout not in known:
        raise LayoutError(f"the layout {layout!r} needs no quantization_config; {', '.join(known)} do")
    if fmt not in known[layout].formats():
        raise LayoutError(f"the layout {layout!r} does not hold {fmt}")
    if layout == GPT_OSS.name:
        return {"quant_method": "mxfp4", "modules_to_not_convert": list(ignore)}
    if layout == MODELOPT.name:
        return {
            "quant_method": "modelopt",
            "quant_algo": _ALGORITHMS[fmt.name],
            "group_size": fmt.block,
            "ignore": list(ignore),
        }
    weights = {
        "num_bits": fmt.element.bits,
        "type": "float",
        "strategy": "tensor_group" if fmt.tensor_scale else "group",
        "group_size": fmt.block,
        "symmetric": True,
        "dynamic": False,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": _PACKED[fmt.name],
        "quantization_status": "compressed",
        "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": weights, "format": _PACKED[fmt.name]}
        },
        "ignore": list(ignore),
    }
