# SPDX-License-Identifier: Apache-2.0
"""Model files: their headers and tensors, read strictly and written whole.

A header says what a file holds: metadata, and for each tensor its name, shape, type and place. It is read
without the data behind it, which may be cut off or absent: `Header.complete` says whether it is there.

`open_model` reads the tensors, `create_model` writes them; how a BlockArray lies in a file is a layout.
"""

from .gguf_header import read_gguf_header
from .header import FileError, Header, LongArray, TensorInfo
from .layouts import LAYOUTS
from .model import ModelFile, open_model
from .safetensors_header import read_safetensors_header
from .shards import read_headers
from .tensor import Declared, LayoutError, Tensor
from .writer import ModelWriter
from .writing import create_model, declared, write_model

__all__ = [
    "LAYOUTS",
    "Declared",
    "FileError",
    "Header",
    "LayoutError",
    "LongArray",
    "ModelFile",
    "ModelWriter",
    "Tensor",
    "TensorInfo",
    "create_model",
    "declared",
    "open_model",
    "read_gguf_header",
    "read_headers",
    "read_safetensors_header",
    "write_model",
]
