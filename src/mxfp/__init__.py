# SPDX-License-Identifier: Apache-2.0
"""mxfp: the reference for Microscaling (MX) arithmetic, bit for bit.

The front door: the public names, in the order of the rooms a number walks through.
"""

from .accumulate import Accumulator, Exact, Pairwise, Sequential
from .blocks import BlockArray, dequantize, quantize
from .dot import Terms, block_dots
from .encode import decode, encode
from .formats import (
    E2M1,
    E2M3,
    E3M2,
    E4M3,
    E5M2,
    E8M0,
    INT8,
    MXFP4,
    MXFP6_E2M3,
    MXFP6_E3M2,
    MXFP8_E4M3,
    MXFP8_E5M2,
    MXINT8,
    NVFP4,
    UE4M3,
    BlockFormat,
    ElementFormat,
    ScaleFormat,
)
from .integers import WidthError, to_integers
from .matmul import matmul
from .packing import pack, unpack
from .prepared import PreparedMatrix, prepare
from .registers import ADA_FP8, BLACKWELL_MXF8F6F4, BLACKWELL_MXFP4, HOPPER_FP8, FixedPoint, Fused
from .trace import Trace, trace

__version__ = "0.1.0"

__all__ = [
    "ADA_FP8",
    "BLACKWELL_MXF8F6F4",
    "BLACKWELL_MXFP4",
    "E2M1",
    "E2M3",
    "E3M2",
    "E4M3",
    "E5M2",
    "E8M0",
    "HOPPER_FP8",
    "INT8",
    "MXFP4",
    "MXFP6_E2M3",
    "MXFP6_E3M2",
    "MXFP8_E4M3",
    "MXFP8_E5M2",
    "MXINT8",
    "NVFP4",
    "UE4M3",
    "Accumulator",
    "BlockArray",
    "BlockFormat",
    "ElementFormat",
    "Exact",
    "FixedPoint",
    "Fused",
    "Pairwise",
    "PreparedMatrix",
    "ScaleFormat",
    "Sequential",
    "Terms",
    "Trace",
    "WidthError",
    "block_dots",
    "decode",
    "dequantize",
    "encode",
    "matmul",
    "pack",
    "prepare",
    "quantize",
    "to_integers",
    "trace",
    "unpack",
]
