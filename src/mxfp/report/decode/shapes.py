# SPDX-License-Identifier: Apache-2.0
"""The tensors of a usual decoder from its shapes: attention, a gated feed-forward or experts, head."""

from __future__ import annotations

from typing import Final

from ...files import FileError
from ...files.types import block_size
from .keys import Keys
from .model import Role, Weight

DTYPES: Final = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}


def stored_bytes(shape: tuple[int, ...], kind: str) -> int:
    """Bytes of a tensor in a type; a row whose last block is not full takes the whole block.

    >>> stored_bytes((2, 40), "MXFP4")
    68
    """
    block, rows = block_size(kind), 1
    for axis in shape[:-1]:
        rows *= axis
    return rows * -(-shape[-1] // block.elements) * block.nbytes


def standard_weights(
    keys: Keys, layers: int, experts: int, stored_as: str | None
) -> tuple[tuple[Weight, ...], list[str]]:
    """Weights of a decoder by the names of config.json, and notes on what was assumed.

    `stored_as` is the type of all matrices; None: the config's dtype. Norms, biases and routers, a thousandth
    of it all, are left out of the bytes. FileError for shapes that are missing or not of this kind.
    """
    if "kv_lora_rank" in keys:
        raise FileError(f"{keys.where}: latent attention: its shapes differ; give the headers of its tensors")
    if stored_as is None:
        named = keys.get("torch_dtype") or keys.get("dtype") or "bfloat16"
        stored_as = DTYPES.get(str(named).removeprefix("torch."))
        if stored_as is None:
            raise FileError(
                f"{keys.where}: dtype is {named!r:.40}; give the type of its matrices with --weights"
            )
    kind = stored_as.upper()
    block_size(kind)
    made: list[Weight] = []

    def add(name: str, role: Role, *shape: int) -> None:
        count = 1
        for axis in shape:
            count *= axis
        made.append(Weight(name, role, kind, shape, stored_bytes(shape, kind), count, shape[0]))

    width = keys.integer("hidden_size", least=1)
    heads = keys.integer("num_attention_heads", least=1)
    size = keys.integer("head_dim", width // heads, least=1)
    kv = keys.integer("num_key_value_heads", heads, least=1) * size
    vocabulary = keys.integer("vocab_size", least=1)
    tied = keys.truth("tie_word_embeddings")
    add("embed_tokens.weight", "embedding", vocabulary, width)
    if not tied:
        add("lm_head.weight", "head", vocabulary, width)
    first = keys.integer("first_k_dense_replace", 0) if experts else layers
    _check_every_layer(keys, experts)
    for n in range(layers):
        for name, rows, columns in (
            ("q_proj", heads * size, width),
            ("k_proj", kv, width),
            ("v_proj", kv, width),
            ("o_proj", width, heads * size),
        ):
            add(f"layers.{n}.self_attn.{name}.weight", "dense", rows, columns)
        if n < first:
            _gated(add, f"layers.{n}.mlp", "dense", keys.integer("intermediate_size", least=1), width, ())
            continue
        inner = keys.integer("moe_intermediate_size", keys.integer("intermediate_size", least=1), least=1)
        _gated(add, f"layers.{n}.mlp.experts", "experts", inner, width, (experts,))
        shared = keys.integer("shared_expert_intermediate_size", inner * keys.integer("n_shared_experts", 0))
        if shared:
            _gated(add, f"layers.{n}.mlp.shared_expert", "dense", shared, width, ())
    note = (
        f"no headers of tensors: the matrices of a usual decoder of these shapes, all in {kind}, with three "
        "of the feed-forward (gate, up, down); norms, biases and routers are left out"
    )
    return tuple(made), [note]


def _check_every_layer(keys: Keys, experts: int) -> None:
    """FileError where a config has experts in some of its layers only, by a rule that is not known here."""
    for key, plain in (("decoder_sparse_step", 1), ("interleave_moe_layer_step", 1), ("mlp_only_layers", [])):
        if experts and key in keys and keys.get(key) != plain:
            raise FileError(
                f"{keys.where}: {key} is {keys.get(key)!r:.60}: not every layer has experts; "
                "give the headers of its tensors"
            )


def _gated(add: object, name: str, role: Role, inner: int, width: int, outer: tuple[int, ...]) -> None:
    assert callable(add)
    for part, rows, columns in (("gate", inner, width), ("up", inner, width), ("down", width, inner)):
        add(f"{name}.{part}_proj.weight", role, *outer, rows, columns)
