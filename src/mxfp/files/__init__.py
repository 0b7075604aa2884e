# SPDX-License-Identifier: Apache-2.0
"""Model files: their headers and tensors, read strictly and written whole.

A header says what a file holds: metadata, and for each tensor its name, shape, type and place. It is read
without the data behind it, which may be cut off or absent: `Header.complete` says whether it is there.

`open_model` reads the tensors, `create_model` writes them; how a BlockArray lies in a file is a layout.
What is done with whole models, `quantize_model`, `convert_model`, `measure`, `compare` and `explain`, is
loaded when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .gguf_header import read_gguf_header
from .header import FileError, Header, LongArray, TensorInfo
from .layouts import LAYOUTS
from .model import ModelFile, open_model
from .safetensors_header import read_safetensors_header
from .shards import read_headers
from .tensor import Declared, LayoutError, Tensor
from .writer import ModelWriter
from .writing import create_model, declared, write_model

if TYPE_CHECKING:
    from .choosing import Choice
    from .converting import Converted, convert_model
    from .difference import Difference, TensorDifference, compare
    from .explaining import Explained, Explanation, explain
    from .planning import Item, Plan, plan_quantize
    from .quantizing import Quantized, quantize_model
    from .sqnr import Sqnr
    from .statistics import Statistics, measure, statistics_of

_LATER = {
    **dict.fromkeys(("Choice",), "choosing"),
    **dict.fromkeys(("Converted", "convert_model"), "converting"),
    **dict.fromkeys(("Difference", "TensorDifference", "compare"), "difference"),
    **dict.fromkeys(("Explained", "Explanation", "explain"), "explaining"),
    **dict.fromkeys(("Item", "Plan", "plan_quantize"), "planning"),
    **dict.fromkeys(("Quantized", "quantize_model"), "quantizing"),
    **dict.fromkeys(("Sqnr",), "sqnr"),
    **dict.fromkeys(("Statistics", "measure", "statistics_of"), "statistics"),
}
"""Names, and the modules that have them, which are loaded when one is asked for."""


def __getattr__(name: str) -> Any:
    """A name of _LATER."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f".{_LATER[name]}", __name__), name)
    return found


def __dir__() -> list[str]:
    """All names, those that are not loaded yet too."""
    return sorted({*globals(), *_LATER})


__all__ = [
    "LAYOUTS",
    "Choice",
    "Converted",
    "Declared",
    "Difference",
    "Explained",
    "Explanation",
    "FileError",
    "Header",
    "Item",
    "LayoutError",
    "LongArray",
    "ModelFile",
    "ModelWriter",
    "Plan",
    "Quantized",
    "Sqnr",
    "Statistics",
    "Tensor",
    "TensorDifference",
    "TensorInfo",
    "compare",
    "convert_model",
    "create_model",
    "declared",
    "explain",
    "measure",
    "open_model",
    "plan_quantize",
    "quantize_model",
    "read_gguf_header",
    "read_headers",
    "read_safetensors_header",
    "statistics_of",
    "write_model",
]
