# SPDX-License-Identifier: Apache-2.0
"""A Model from a Hugging Face config.json, with the headers of its safetensors or with shapes alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ...files import FileError, Header
from .keys import MOST_LAYERS, Keys, shown
from .model import Layer, Model, Weight
from .packed import elements_of
from .roles import block_of, check_experts, check_keys, hf_role, tie, weight_of
from .shapes import standard_weights
from .windows import config_windows

_EXPERTS: Final = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_USED: Final = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "experts_per_token",
    "moe_topk",
    "top_k_experts",
)
_STATEFUL: Final = ("mamba_", "ssm_", "linear_", "attn_layer_", "conv_L_cache", "state_size", "index_topk")
_EMBEDDINGS: Final = frozenset({"embed_tokens.weight", "wte.weight", "word_embeddings.weight"})


def model_from_config(
    config: Mapping[str, Any],
    path: Path,
    headers: Sequence[Header] | None = None,
    *,
    stored_as: str | None = None,
    window_period: int | None = None,
) -> Model:
    """The model of a config; weights by the headers, or, without, those of a usual decoder of its shapes.

    `stored_as` is the type of matrices where there are no headers; the config's own dtype if it is None.
    Raises FileError for what is no decoder, not modelled, missing, or contradicted by the tensors.
    """
    inner = config.get("text_config")
    merged = {**config, **inner} if isinstance(inner, dict) else dict(config)
    keys = Keys(merged, str(path))
    kind = str(merged.get("model_type") or "")
    encoder = keys.truth("is_encoder_decoder")
    signs = [k for k in merged if k.startswith(_STATEFUL) and merged[k]]
    if encoder or signs:
        what = "an encoder beside the decoder" if encoder else f"{signs[0]}"
        raise FileError(f"{path}: has {what}, which is not modelled from a config; use its GGUF file")
    layers, notes = config_layers(kind, keys, window_period)
    experts = next((keys.integer(k) for k in _EXPERTS if k in keys), 0)
    used = 0
    if experts:
        used = keys.integer(next((k for k in _USED if k in keys), _USED[0]), least=1, most=experts)
    if headers is None:
        weights, more = standard_weights(keys, len(layers), experts, stored_as)
        notes += more
    else:
        weights = tuple(_weights(headers, merged, len(layers)))
        _check_layers(headers[0].path, weights, len(layers))
    weights = tie(weights, _EMBEDDINGS)
    if not any(w.role in {"embedding", "tied"} for w in weights):
        raise FileError(f"{path}: no tensor is an embedding of tokens, expected a whole model")
    check_experts(str(path), weights, experts)
    if any(w.role == "tied" for w in weights):
        notes.append("there is no head of its own: the embedding of tokens is read whole, as the head")
    if any(w.role == "unused" for w in weights):
        notes.append("tensors of other parts (vision, audio, drafting) are stored and not read for a token")
    check_keys(str(path), weights, layers, "hf", "k_proj.weight")
    name = shown(merged.get("_name_or_path") or path.absolute().parent.name or kind)
    return Model(name, shown(kind or "decoder"), weights, layers, experts, used, tuple(notes))


def config_layers(kind: str, keys: Keys, period: int | None) -> tuple[tuple[Layer, ...], list[str]]:
    """The layers of a config, and what to say about them."""
    count = keys.integer("num_hidden_layers", least=1, most=MOST_LAYERS)
    heads = keys.integer("num_attention_heads", least=1)
    notes = []
    windows, note = config_windows(kind, keys, count, period)
    if note:
        notes.append(note)
    if "kv_lora_rank" in keys:
        latent = keys.integer("kv_lora_rank", least=1)
        row = latent + keys.integer("qk_rope_head_dim")
        notes.append("latent attention: one row of the latent and the rotary part a token and layer")
        return tuple(Layer(n, heads, 1, row, latent, windows[n], latent=True) for n in range(count)), notes
    kv_heads = keys.integer("num_key_value_heads", heads, least=1, most=heads)
    size = keys.integer("head_dim", keys.integer("hidden_size", least=1) // heads, least=1)
    value = keys.integer("v_head_dim", size, least=1)
    return tuple(Layer(n, heads, kv_heads, size, value, windows[n]) for n in range(count)), notes


def _weights(headers: Sequence[Header], config: Mapping[str, Any], count: int) -> list[Weight]:
    found = []
    names = {t.name for h in headers for t in h.tensors}
    for header in headers:
        for info in header.tensors:
            block, role = block_of(info.name, "hf"), hf_role(info.name)
            if block is not None and block >= count:
                role = "unused"
            found.append(weight_of(info, role, elements_of(info, names, config, header.path)))
    return found


def _check_layers(path: Path, weights: Sequence[Weight], count: int) -> None:
    seen = {block_of(w.name, "hf") for w in weights if w.role != "unused"}
    if missing := set(range(count)) - seen:
        raise FileError(f"{path}: layer {min(missing)} of {count} has no tensors")
