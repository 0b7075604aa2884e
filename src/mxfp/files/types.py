# SPDX-License-Identifier: Apache-2.0
"""The types that tensors in files have: how many elements one block holds, and in how many bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple


class BlockSize(NamedTuple):
    """Elements of one block, and the bytes they take: MXFP4 in GGUF is (32, 17)."""

    elements: int
    nbytes: int

    @property
    def bits(self) -> float:
        """Bits an element."""
        return 8 * self.nbytes / self.elements


_BITS: Final = {
    4: ("F4",),
    6: ("F6_E2M3", "F6_E3M2"),
    8: ("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"),
    16: ("I16", "U16", "F16", "BF16"),
    32: ("I32", "U32", "F32"),
    64: ("I64", "U64", "F64", "C64"),
}
SAFETENSORS: Final[Mapping[str, BlockSize]] = MappingProxyType(
    {
        name: BlockSize(math.lcm(bits, 8) // bits, math.lcm(bits, 8) // 8)
        for bits, names in _BITS.items()
        for name in names
    }
)
"""Every dtype of the safetensors format."""


@cache
def gguf_types() -> Mapping[int, str]:
    """GGUF's types by their numbers in the file. ImportError names the extra if gguf is not installed."""
    return MappingProxyType({int(kind): kind.name for kind in _constants()[0]})


@cache
def gguf_sizes() -> Mapping[str, BlockSize]:
    """The block sizes of GGUF's types.

    >>> gguf_sizes()["MXFP4"], gguf_sizes()["Q4_K"].bits
    (BlockSize(elements=32, nbytes=17), 4.5)
    """
    return MappingProxyType({kind.name: BlockSize(*size) for kind, size in _constants()[1].items()})


def _constants() -> tuple[Any, Any]:
    try:
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
    except ImportError:
        raise ImportError("GGUF needs gguf; install it with: pip install 'mxfp-emulator[files]'") from None
    return GGMLQuantizationType, GGML_QUANT_SIZES


def block_size(name: str) -> BlockSize:
    """A type's block, by its name in either format, upper or lower case.

    >>> block_size("q8_0"), block_size("bf16")
    (BlockSize(elements=32, nbytes=34), BlockSize(elements=1, nbytes=2))
    """
    key = name.upper()
    found = SAFETENSORS.get(key) or gguf_sizes().get(key)
    if found is None:
        known = ", ".join(sorted({*SAFETENSORS, *gguf_sizes()}))
        raise ValueError(f"there is no type {name!r}; expected one of {known}")
    return found
