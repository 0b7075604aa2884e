# SPDX-License-Identifier: Apache-2.0
"""Which tensors of a model are quantized, and why the others are not."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from ..formats import BlockFormat
from .dtypes import is_array
from .header import FileError
from .tensor import Tensor

FLOATS: Final = ("F32", "F16", "BF16")
"""Types that are quantized."""
NORMS: Final = ("*norm*", "ln_*", "*.ln_*")
EMBEDDINGS: Final = ("*embed*", "*embd*", "wte.*", "*.wte.*", "wpe.*", "*.wpe.*", "shared.weight", "*rope*")
HEADS: Final = (
    *("*lm_head*", "output.weight", "head.weight", "*.head.weight"),
    *("score.weight", "*.score.weight", "*classifier*", "*qa_outputs*", "cls.*", "*.cls.*"),
)
ROUTERS: Final = ("*router*", "*.gate.weight", "*shared_expert_gate*", "*ffn_gate_inp*")
STATES: Final = ("*conv1d*", "*shortconv*", "*ssm_a*", "*A_log*", "*time_mix*", "*attention_bias*", "*rel_b*")
KEPT: Final = (*NORMS, *EMBEDDINGS, *HEADS, *ROUTERS, *STATES)
"""Names, as globs, that are not quantized unless --include says so: what is small, or said to be delicate."""
STACKS: Final = ("*_exps.weight",)
"""Names of stacks of matrices, (experts, rows, K), which are quantized though they have three axes."""


@dataclass(frozen=True)
class Choice:
    """Which tensors to quantize, by globs on their names, case and all.

    Without `include`: float32, float16 and bfloat16 of two axes (and GGUF's stacks of experts) whose last
    axis, K, is whole blocks, but for norms, embeddings, heads and routers, by the names in KEPT. With it:
    what it names, if it has two axes or more. `exclude` has the last word.

    >>> from mxfp import MXFP4
    >>> Choice().kept_because(Tensor("a.norm.weight", (64, 64), "F32", ()), MXFP4)
    'matches *norm*'
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def check(self, names: Iterable[str]) -> None:
        """Raise FileError for a glob that no name matches."""
        known = tuple(names)
        for option, globs in (("include", self.include), ("exclude", self.exclude)):
            for glob in globs:
                if not any(fnmatchcase(name, glob) for name in known):
                    near = difflib.get_close_matches(glob.strip("*"), known, 2, 0.4) or known[:2]
                    raise FileError(
                        f"{option} {glob!r} matches none of the {len(known)} tensors; some are called "
                        f"{', '.join(near)}"
                    )

    def kept_because(self, tensor: Tensor, fmt: BlockFormat) -> str:
        """Why a tensor is not quantized; empty if it is."""
        name, shape = tensor.name, tensor.shape
        if tensor.layout:
            return f"{tensor.type} already"
        if tensor.type not in FLOATS:
            return tensor.type if is_array(tensor.type) else f"{tensor.type} already"
        if glob := _matching(name, self.exclude):
            return f"--exclude {glob}"
        if self.include and not _matching(name, self.include):
            return "not in --include"
        if len(shape) < 2:
            return "one axis" if shape else "one number"
        if not tensor.elements:
            return "empty"
        if self.include:
            return ""
        if glob := _matching(name, KEPT):
            return f"matches {glob}"
        if len(shape) > 2 and not _matching(name, STACKS):
            return f"{len(shape)} axes"
        return f"K is {shape[-1]}, no multiple of {fmt.block}" if shape[-1] % fmt.block else ""


def _matching(name: str, globs: Iterable[str]) -> str:
    """The first glob that a name matches; empty if none."""
    return next((glob for glob in globs if fnmatchcase(name, glob)), "")
