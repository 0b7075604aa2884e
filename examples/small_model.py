# SPDX-License-Identifier: Apache-2.0
"""Write two small models to try commands on, one in floats and one in MXFP4.

    python small_model.py FOLDER

makes model.safetensors, float32: one real layer, with a norm and a small embedding beside it; and
experts.safetensors: the same layer as three experts in MXFP4, as gpt-oss has them, with a router in bfloat16.
"""

import sys
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

import mxfp
from mxfp.data import embedded_layer


def model(path):
    """A float32 model of four tensors."""
    layer = embedded_layer()
    tensors = {
        "embeddings.word_embeddings.weight": layer.activations,
        "encoder.layer.3.attention.output.dense.weight": layer.weight,
        "encoder.layer.3.attention.output.dense.bias": np.zeros(384, np.float32),
        "encoder.layer.3.attention.output.LayerNorm.weight": np.ones(384, np.float32),
    }
    contiguous = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    save_file(contiguous, path, metadata={"format": "pt"})


def experts(path):
    """Three experts of 128 rows: 16 bytes a block, element 0 in the low nibble, and a byte for its scale."""
    q = mxfp.quantize(embedded_layer().weight.reshape(3, 128, 384))
    tensors = {
        "mlp.experts.down_proj_blocks": mxfp.pack(q.codes, q.format).reshape(3, 128, 12, 16),
        "mlp.experts.down_proj_scales": np.ascontiguousarray(q.scales),
        "mlp.router.weight": np.ones((3, 384), ml_dtypes.bfloat16),
    }
    save_file(tensors, path)


def write_all(folder):
    """Write both."""
    folder.mkdir(parents=True, exist_ok=True)
    model(folder / "model.safetensors")
    experts(folder / "experts.safetensors")


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
