# SPDX-License-Identifier: Apache-2.0
"""Layers that keep a state instead of a cache: which they are, and how large the state is."""

from __future__ import annotations

from typing import Final

from ...files import FileError
from .keys import Keys

_ALL: Final = ("mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7")
_WITHOUT_KV_HEADS: Final = ("jamba", "plamo2", "granitehybrid", "lfm2", "lfm2moe")
_WITHOUT_KV_HEADS_AND_FFN: Final = ("nemotron_h", "nemotron_h_moe")
_BESIDE_ATTENTION: Final = ("falcon-h1",)
_INTERVAL: Final = ("qwen3next", "qwen35", "qwen35moe")
_SIGNS: Final = ("ssm.", "wkv.", "kda.", "shortconv.", "attention.indexer.")
_FLOAT: Final = 4
"""Bytes: llama.cpp keeps states in float32."""


def recurrent_layers(
    architecture: str, keys: Keys, count: int
) -> tuple[tuple[int, ...], tuple[bool, ...], list[str]]:
    """Bytes of state of every layer, whether it has attention too, and notes; as llama.cpp has them.

    FileError for an architecture whose metadata speak of a state and that is not one of those known here.
    """
    everywhere = (True,) * count
    if architecture in _ALL:
        is_recurrent, attends = everywhere, (False,) * count
    elif architecture in _BESIDE_ATTENTION:
        is_recurrent, attends = everywhere, everywhere
    elif architecture in _WITHOUT_KV_HEADS:
        attends = keys.flags("attention.head_count_kv", count)
        is_recurrent = tuple(not a for a in attends)
    elif architecture in _WITHOUT_KV_HEADS_AND_FFN:
        attends = keys.flags("attention.head_count_kv", count)
        wide = keys.flags("feed_forward_length", count)
        is_recurrent = tuple(not a and not f for a, f in zip(attends, wide, strict=True))
    elif architecture in _INTERVAL:
        every = keys.integer("full_attention_interval", 4, least=1)
        attends = tuple((n + 1) % every == 0 for n in range(count))
        is_recurrent = tuple(not a for a in attends)
    else:
        for key in keys.values:
            if key.removeprefix(keys.prefix).startswith(_SIGNS):
                raise FileError(f"{keys.where}: {key}: what {architecture} reads for a token is not modelled")
        return (0,) * count, everywhere, []
    size = _state(keys)
    states = tuple(size if r else 0 for r in is_recurrent)
    note = (
        f"{sum(is_recurrent)} of {count} layers keep a state of {size:,} bytes in float32, read and written "
        "whole for every token, instead of a cache that grows"
    )
    return states, attends, [note]


def _state(keys: Keys) -> int:
    """Bytes of one layer's state: what a convolution remembers, and the state itself."""
    if "wkv.head_size" in keys:
        width = keys.integer("embedding_length", least=1)
        shifts = keys.integer("token_shift_count", 2)
        return _FLOAT * width * (shifts + keys.integer("wkv.head_size"))
    if "shortconv.l_cache" in keys:
        return (
            _FLOAT
            * keys.integer("embedding_length", least=1)
            * (keys.integer("shortconv.l_cache", least=1) - 1)
        )
    inner, state = keys.integer("ssm.inner_size"), keys.integer("ssm.state_size")
    groups, kernel = keys.integer("ssm.group_count", 0), keys.integer("ssm.conv_kernel", least=1)
    return _FLOAT * ((kernel - 1) * (inner + 2 * groups * state) + state * inner)
