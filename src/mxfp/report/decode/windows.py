# SPDX-License-Identifier: Apache-2.0
"""Which layers look back through a window only, and what of that is stated in the file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ...files import FileError
from .keys import Keys


@dataclass(frozen=True)
class Pattern:
    """Every `period`-th layer sees all tokens (the last of each group, or the first), the others a window."""

    period: int
    window: int | None = None
    dense_first: bool = False
    layers: int | None = None

    def slides(self, index: int) -> bool:
        """Whether a layer has the window. A period of 0: all have; of 1: none."""
        if not self.period:
            return True
        return bool(index % self.period) if self.dense_first else index % self.period < self.period - 1


GGUF_PATTERNS: Final = {
    "gpt-oss": Pattern(2),
    "gemma2": Pattern(2, 4096),
    "gemma3": Pattern(6),
    "gemma3n": Pattern(5),
    "cohere2": Pattern(4),
    "olmo2": Pattern(4),
    "afmoe": Pattern(4),
    "exaone4": Pattern(4, 4096, layers=64),
    "smallthinker": Pattern(4, 4096, dense_first=True),
    "llama4": Pattern(4, 8192),
}
"""What llama.cpp does (its load of each architecture's parameters), where metadata give no pattern."""
UNUSED: Final = {"llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "starcoder2", "phi3", "phimoe"}
"""Architectures that llama.cpp runs with full attention, even where metadata name a window."""
_KEY, _PATTERN = "attention.sliding_window", "attention.sliding_window_pattern"


def gguf_windows(
    architecture: str, keys: Keys, layers: int, period: int | None = None
) -> tuple[tuple[int | None, ...], str]:
    """The window of every layer, None for all tokens, and a sentence that says where that is from.

    `period`, if given, goes before all else. FileError where a window is named but not which layers have it.
    """
    window = keys.integer(_KEY, 0)
    known = GGUF_PATTERNS.get(architecture)
    if known and known.layers not in {None, layers}:
        known = None
    if known and not window:
        window = 0 if keys.get(_KEY) == 0 or architecture in {"olmo2", "smallthinker"} else known.window or 0
    if period is not None:
        if not window:
            raise FileError(
                f"{keys.where}: a pattern of windows was given, and {keys.prefix}{_KEY} is missing"
            )
        return _by(Pattern(period), window, layers, "as given")
    if not window:
        return (None,) * layers, ""
    stated = keys.get(_PATTERN)
    if isinstance(stated, (tuple, list)):
        slides = keys.flags(_PATTERN, layers)
        found = tuple(window if s else None for s in slides)
        return found, f"{sum(slides)} of {layers} layers have a window of {window} tokens, as metadata say"
    if stated is not None:
        first = bool(known and known.dense_first)
        chosen = Pattern(keys.integer(_PATTERN, most=layers), dense_first=first)
        return _by(chosen, window, layers, "by the period in the metadata")
    if known:
        how = f"as llama.cpp has it for {architecture}"
        if architecture == "llama4":
            how += "; chunks, counted as a window, which is the most they read"
        return _by(known, window, layers, how)
    if architecture in UNUSED:
        return (
            (None,) * layers,
            f"metadata name a window of {window} tokens; llama.cpp has full attention for {architecture}, "
            "and so it is counted",
        )
    raise FileError(
        f"{keys.where}: {architecture} has a window of {window} tokens and does not say in which layers; "
        "give it with --window-period (every N-th layer sees all; 0: none, 1: all)"
    )


HF_SLIDES_ALL: Final = {"mistral", "mixtral", "phi3", "starcoder2"}
HF_PATTERNS: Final = {
    "gemma2": Pattern(2),
    "cohere2": Pattern(4),
    "gemma3_text": Pattern(6),
    "gpt_oss": Pattern(2),
}


def config_windows(
    kind: str, keys: Keys, layers: int, period: int | None = None
) -> tuple[tuple[int | None, ...], str]:
    """The same from a config.json, which may name the kind of each layer (`layer_types`)."""
    window = keys.integer("sliding_window", 0)
    if "use_sliding_window" in keys and not keys.truth("use_sliding_window") and period is None:
        window = 0
    types = keys.get("layer_types")
    if period is not None:
        if not window:
            raise FileError(f"{keys.where}: a pattern of windows was given, and sliding_window is missing")
        return _by(Pattern(period), window, layers, "as given")
    if types:
        return _typed(types, window, keys, layers)
    if not window:
        return (None,) * layers, ""
    if "sliding_window_pattern" in keys:
        chosen = Pattern(keys.integer("sliding_window_pattern", most=layers))
        return _by(chosen, window, layers, "by the period in the config")
    if "max_window_layers" in keys:
        first = keys.integer("max_window_layers")
        found = tuple(window if n >= first else None for n in range(layers))
        return found, f"layers from {first} on have a window of {window} tokens, as the config says"
    if kind in HF_SLIDES_ALL:
        return _by(Pattern(0), window, layers, f"all of them, as {kind} has it")
    if kind in HF_PATTERNS:
        return _by(HF_PATTERNS[kind], window, layers, f"as {kind} has it")
    raise FileError(
        f"{keys.where}: {kind or 'the model'} has a sliding_window of {window} tokens and does not "
        "say in which layers; give it with --window-period (every N-th layer sees all; 0: none, 1: all)"
    )


def _typed(types: Any, window: int, keys: Keys, layers: int) -> tuple[tuple[int | None, ...], str]:
    sizes = {
        "full_attention": None,
        "sliding_attention": window,
        "chunked_attention": keys.integer("attention_chunk_size", 0),
    }
    if not isinstance(types, list) or not all(isinstance(name, str) for name in types):
        raise FileError(f"{keys.where}: layer_types is {types!r:.60}, expected a list of names")
    if len(types) < layers:
        raise FileError(f"{keys.where}: layer_types has {len(types)} entries, expected {layers}")
    found = []
    for n, name in enumerate(types[:layers]):
        if name not in sizes:
            raise FileError(
                f"{keys.where}: layer {n} is {name!r:.40}, not modelled from a config; use its GGUF file"
            )
        if sizes[name] == 0:
            raise FileError(f"{keys.where}: layer {n} is {name}, and the config has no size for its window")
        found.append(sizes[name])
    some = sum(w is not None for w in found)
    sized = ", ".join(str(w) for w in sorted({w for w in found if w is not None}))
    return tuple(found), (
        f"{some} of {layers} layers have a window of {sized} tokens, as layer_types says" if some else ""
    )


def _by(pattern: Pattern, window: int, layers: int, how: str) -> tuple[tuple[int | None, ...], str]:
    found = tuple(window if pattern.slides(n) else None for n in range(layers))
    some = sum(w is not None for w in found)
    return found, f"{some} of {layers} layers have a window of {window} tokens, {how}"
