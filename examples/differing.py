# SPDX-License-Identifier: Apache-2.0
"""Write one real matrix, quantized in four ways, for `mxfp diff` and `mxfp inspect`: 0.6 MB in all.

    python differing.py FOLDER

makes source.safetensors, a projection of 384 x 384 in bfloat16 (of the layer that comes with mxfp), and of it
floor.gguf and rceil.safetensors (the layout of gpt-oss) by the scale rules of those names, away.gguf with
ties away from zero, and theirs.gguf by gguf's own quantizer.
"""

import sys
from pathlib import Path

import gguf
import ml_dtypes
import numpy as np

import mxfp
from mxfp.data import embedded_layer
from mxfp.files import write_model

NAME = "blk.0.attn_output.weight"


def by_gguf(path, weight):
    """The file that gguf's own quantizer makes."""
    writer = gguf.GGUFWriter(path, "bert")
    kind = gguf.GGMLQuantizationType.MXFP4
    writer.add_tensor(NAME, gguf.quants.quantize(weight.astype(np.float32), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_all(folder):
    """Write every file into a folder, made if need be; return their paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weight = embedded_layer().weight.astype(ml_dtypes.bfloat16)
    made = {
        "source.safetensors": weight,
        "floor.gguf": mxfp.quantize(weight),
        "away.gguf": mxfp.quantize(weight, rounding="nearest_away"),
        "rceil.safetensors": mxfp.quantize(weight, scale_rule="rceil"),
    }
    for name, array in made.items():
        layout = "gpt-oss" if name.endswith(".safetensors") else None
        write_model(folder / name, {NAME: array}, layout=layout, overwrite=True)
    by_gguf(folder / "theirs.gguf", weight)
    return [folder / name for name in (*made, "theirs.gguf")]


if __name__ == "__main__":
    for written in write_all(sys.argv[1] if len(sys.argv) > 1 else "."):
        print(f"{written}: {written.stat().st_size:,} bytes")
