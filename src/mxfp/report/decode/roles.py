# SPDX-License-Identifier: Apache-2.0
"""The part that a tensor plays for a token, by its name in a GGUF file or in a Hugging Face model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ...files import FileError, TensorInfo
from .model import Layer, Role, Weight

_GGUF_EXPERTS = re.compile(r"_exps\.|\.ffn_(?:gate|up|down)\.\d+\.")
_GGUF_ROWS = {"token_embd.weight", "per_layer_token_embd.weight", "position_embd.weight"}
_HF_EXPERTS = re.compile(r"\.experts\.")
_HF_ROWS = re.compile(r"(?:^|\.)(?:embed_tokens|embed_tokens_per_layer|wte|wpe|word_embeddings)\.weight$")
_HF_UNUSED = re.compile(r"(?:^|\.)(?:vision|visual|audio|multi_modal|mm_|mtp\b)")
_BLOCK = {"gguf": re.compile(r"^blk\.(\d+)\."), "hf": re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")}
_VECTORS = re.compile(r"norm|bias|scale|sinks|conv1d|rope_f|ssm_a\b|ssm_d\b")
_ONE_EXPERT = re.compile(r"\.(?:experts|ffn_gate|ffn_up|ffn_down)\.\d+\.")


def gguf_role(name: str) -> Role:
    """The role of a tensor of a GGUF file, by llama.cpp's names.

    >>> gguf_role("token_embd.weight"), gguf_role("blk.3.ffn_up_exps.weight")
    ('embedding', 'experts')
    >>> gguf_role("blk.3.ffn_up_shexp.weight")
    'dense'
    """
    if name in _GGUF_ROWS:
        return "embedding"
    if name == "output.weight":
        return "head"
    if name.startswith(("v.", "mm.", "a.", "enc.", "cls.")):
        return "unused"
    return "experts" if _GGUF_EXPERTS.search(name) else "dense"


def hf_role(name: str) -> Role:
    """The role of a tensor of a Hugging Face model."""
    if _HF_UNUSED.search(name):
        return "unused"
    if _HF_ROWS.search(name):
        return "embedding"
    if re.search(r"(?:^|\.)lm_head\.", name):
        return "head"
    return "experts" if _HF_EXPERTS.search(name) else "dense"


def block_of(name: str, kind: str) -> int | None:
    """The layer that a tensor belongs to, or None."""
    found = _BLOCK[kind].search(name)
    return int(found[1][:9]) if found else None


def is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a token is multiplied with it: two axes or more, and no norm, bias, or scales of blocks."""
    return len(shape) > 1 and not _VECTORS.search(name)


def weight_of(info: TensorInfo, role: Role, elements: int | None = None) -> Weight:
    """A tensor with its role; `elements` where its type packs several into one."""
    counted = (info.elements if elements is None else elements) if is_matrix(info.name, info.shape) else 0
    rows = info.shape[0] if role == "embedding" and info.shape else 1
    return Weight(info.name, role, info.type, info.shape, info.nbytes, counted, max(rows, 1))


def tie(weights: Iterable[Weight], names: frozenset[str]) -> tuple[Weight, ...]:
    """Without a head of its own, the embedding of tokens (one of `names`) is read whole as the head."""
    found = tuple(weights)
    if any(w.role == "head" for w in found):
        return found
    return tuple(replace(w, role="tied") if _ends(w.name, names) else w for w in found)


def _ends(name: str, names: frozenset[str]) -> bool:
    return any(name == n or name.endswith("." + n) for n in names)


def check_experts(where: str, weights: Iterable[Weight], experts: int) -> None:
    """FileError unless tensors of experts are there just where there are experts, and hold as many."""
    found = [w for w in weights if w.role == "experts"]
    if bool(found) != bool(experts):
        what = f"tensor {found[0].name!r:.80} is of experts" if found else "no tensor is of experts"
        raise FileError(f"{where}: {what}, and the number of experts is {experts}")
    for w in found:
        if not _ONE_EXPERT.search(w.name) and w.shape[:1] != (experts,):
            raise FileError(
                f"{where}: tensor {w.name!r:.80} has shape {w.shape}, expected {experts} experts first"
            )


def check_keys(
    where: str, weights: Iterable[Weight], layers: Sequence[Layer], kind: str, projection: str
) -> None:
    """FileError where the matrix that makes keys has other rows than KV heads and their size come to."""
    for w in weights:
        block = block_of(w.name, kind)
        if block is None or block >= len(layers) or not w.name.endswith("." + projection) or not w.multiplied:
            continue
        layer = layers[block]
        expected = layer.kv_heads * layer.key_size
        if not layer.latent and w.shape[0] != expected:
            raise FileError(
                f"{where}: tensor {w.name!r:.80} makes keys of {w.shape[0]}, expected {expected}: "
                f"{layer.kv_heads} KV heads of {layer.key_size}"
            )
