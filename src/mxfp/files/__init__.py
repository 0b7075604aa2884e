# SPDX-License-Identifier: Apache-2.0
"""Model files: their headers and tensors, read strictly and written whole.

A header says what a file holds: metadata, and for each tensor its name, shape, type and place. It is read
without the data behind it, which may be cut off or absent: `Header.complete` says whether it is there.
"""

from .gguf_header import read_gguf_header
from .header import FileError, Header, LongArray, TensorInfo
from .safetensors_header import read_safetensors_header
from .shards import read_headers

__all__ = [
    "FileError",
    "Header",
    "LongArray",
    "TensorInfo",
    "read_gguf_header",
    "read_headers",
    "read_safetensors_header",
]
