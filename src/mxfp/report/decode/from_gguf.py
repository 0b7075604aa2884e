# SPDX-License-Identifier: Apache-2.0
"""A Model from the header of a GGUF file: tensors by their names, layers by metadata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...files import FileError, Header
from .keys import MOST_LAYERS, Keys, shown
from .model import Layer, Model, Weight
from .recurrent import recurrent_layers
from .roles import block_of, check_experts, check_keys, gguf_role, tie, weight_of
from .windows import gguf_windows

_NO_DECODER: Final = (
    *("bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3"),
    *("eurobert", "gemma-embedding", "llama-embed", "t5", "t5encoder", "wavtokenizer-dec", "clip", "mmproj"),
    *("dream", "llada", "llada-moe", "rnd1"),
)
_NOT_MODELLED: Final = ("grovemoe", "kimi-linear", "glm-dsa", "deepseek32")
_EMBEDDING: Final = frozenset({"token_embd.weight"})


def model_from_gguf(headers: Sequence[Header], *, window_period: int | None = None) -> Model:
    """The model of a GGUF file, or of all parts of a split one.

    Raises FileError for what is no decoder, what is not modelled, and metadata that are missing or that the
    tensors contradict.
    """
    first = headers[0]
    where = str(first.path)
    architecture = _architecture(first)
    keys = Keys(first.metadata, where, f"{architecture}.")
    blocks = keys.integer("block_count", least=1, most=MOST_LAYERS)
    drafting = keys.integer("nextn_predict_layers", 0)
    if drafting >= blocks:
        raise FileError(f"{where}: {drafting} of {blocks} blocks are for drafting, expected fewer")
    count = blocks - drafting
    experts = keys.integer("expert_count", 0)
    used = keys.integer("expert_used_count", least=1, most=experts) if experts else 0
    notes = []
    layers, note = _layers(architecture, keys, count, window_period)
    notes.extend(note)
    weights = tuple(_weights(headers, blocks, count))
    if not any(w.name in _EMBEDDING for w in weights):
        raise FileError(f"{where}: has no token_embd.weight, expected a whole model")
    weights = tie(weights, _EMBEDDING)
    check_experts(where, weights, experts)
    check_keys(where, weights, layers, "gguf", "attn_k.weight")
    if any(w.role == "tied" for w in weights):
        notes.append("there is no output.weight: the embedding of tokens is read whole, as the head")
    if drafting:
        notes.append(f"{drafting} blocks for drafting are not read in plain decode and not counted")
    if any(w.role == "unused" and not w.name.startswith("blk.") for w in weights):
        notes.append("tensors of other parts (vision, audio, classifier) are stored and not read for a token")
    name = shown(first.metadata.get("general.name") or first.path.stem)
    return Model(name, shown(architecture), weights, layers, experts, used, tuple(notes))


def _architecture(header: Header) -> str:
    architecture = header.metadata.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise FileError(f"{header.path}: general.architecture is missing, expected the metadata of a model")
    kind = header.metadata.get("general.type", "model")
    if kind != "model":
        raise FileError(f"{header.path}: is of type {kind!r:.40}, expected a model")
    if architecture in _NO_DECODER:
        raise FileError(f"{header.path}: {architecture} does not write one token after another")
    if architecture in _NOT_MODELLED:
        raise FileError(f"{header.path}: what {architecture} reads for a token is not modelled")
    return architecture


def _weights(headers: Sequence[Header], blocks: int, count: int) -> list[Weight]:
    found, seen = [], set()
    for header in headers:
        for info in header.tensors:
            block, role = block_of(info.name, "gguf"), gguf_role(info.name)
            if block is not None:
                if block >= blocks:
                    raise FileError(
                        f"{header.path}: tensor {info.name!r:.80} is of block {block} of {blocks}"
                    )
                seen.add(block)
                if block >= count:
                    role = "unused"
            found.append(weight_of(info, role))
    if missing := set(range(count)) - seen:
        raise FileError(f"{headers[0].path}: block {min(missing)} of {blocks} has no tensors")
    return found


def _layers(
    architecture: str, keys: Keys, count: int, period: int | None
) -> tuple[tuple[Layer, ...], list[str]]:
    states, attends, notes = recurrent_layers(architecture, keys, count)
    if not any(attends):
        return tuple(Layer(n, state_bytes=states[n]) for n in range(count)), notes
    heads = keys.per_layer("attention.head_count", count)
    if not max(heads):
        raise FileError(f"{keys.where}: {keys.prefix}attention.head_count is 0, expected at least 1")
    kv_heads = keys.per_layer("attention.head_count_kv", count, default=max(heads))
    if "attention.head_count_kv" not in keys:
        kv_heads = heads
    sizes = _head_sizes(architecture, keys, max(heads))
    windows, note = gguf_windows(architecture, keys, count, period)
    if note:
        notes.append(note)
    shared = keys.integer("attention.shared_kv_layers", 0, most=count)
    if architecture == "gemma3n":
        shared = max(0, count - 20)
    if shared:
        notes.append(f"the last {shared} layers read the cache of layers before them")
    latent = "attention.kv_lora_rank" in keys and "attention.key_length_mla" in keys
    if latent:
        notes.append("latent attention: one row of the latent and the rotary part a token and layer")
    elif "attention.kv_lora_rank" in keys:
        notes.append("latent attention in a file of the older kind, which llama.cpp expands to all heads")
    layers = []
    for n in range(count):
        if kv_heads[n] > heads[n]:
            raise FileError(
                f"{keys.where}: layer {n} has {kv_heads[n]} KV heads, expected at most its {heads[n]} heads"
            )
        key, value = sizes[windows[n] is not None]
        if attends[n] and kv_heads[n]:
            layers.append(
                Layer(
                    n,
                    heads[n],
                    1 if latent else kv_heads[n],
                    key,
                    value,
                    windows[n],
                    latent=latent,
                    borrowed=n >= count - shared,
                    state_bytes=states[n],
                )
            )
        else:
            layers.append(Layer(n, state_bytes=states[n]))
    return tuple(layers), notes


def _head_sizes(architecture: str, keys: Keys, heads: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Sizes of keys and values a head, in layers that see all tokens and in those with a window."""
    if "attention.kv_lora_rank" in keys and "attention.key_length_mla" in keys:
        latent = keys.integer("attention.kv_lora_rank", least=1)
        row = latent + keys.integer("rope.dimension_count")
        return (row, latent), (row, latent)
    plain = 0
    if "attention.key_length" not in keys or "attention.value_length" not in keys:
        plain = keys.integer("embedding_length", least=1) // max(heads, 1)
    key = keys.integer("attention.key_length", plain, least=1)
    value = keys.integer("attention.value_length", plain, least=1)
    slid = (
        keys.integer("attention.key_length_swa", key, least=1),
        keys.integer("attention.value_length_swa", value, least=1),
    )
    return (key, value), slid
