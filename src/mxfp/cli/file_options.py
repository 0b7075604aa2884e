# SPDX-License-Identifier: Apache-2.0
"""What the commands that write model files share: two options, and what they say of what became of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import click

from ..files.others import FLOATS, counted


def file_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command that writes a model --dequantize-others and --external-data."""
    for option in (
        click.option(
            "--external-data",
            is_flag=True,
            help="Write the data of an .onnx to OUT.data beside it, as is done anyhow beyond 2 GiB.",
        ),
        others_option("their bytes stay as they are in .gguf, and are refused elsewhere"),
    ):
        function = option(function)
    return function


def others_option(default: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """--dequantize-others, and what is done without it."""
    return click.option(
        "--dequantize-others",
        type=click.Choice(list(FLOATS)),
        help=f"Decode GGUF's other quantized types (Q8_0, Q4_K …) to this, by gguf. Default: {default}.",
    )


def others_notes(kept: Mapping[str, int], decoded: Mapping[str, int], floats: str | None) -> list[str]:
    """What became of GGUF's other quantized types, in lines."""
    notes = []
    if kept:
        notes.append(f"the bytes of other types stay in {_tensors(kept)}: {counted(kept)}")
    if decoded:
        notes.append(f"decoded to {floats} by gguf, {_tensors(decoded)}: {counted(decoded)}")
    return notes


def _tensors(types: Mapping[str, int]) -> str:
    count = sum(types.values())
    return f"{count:,} tensor{'s' * (count != 1)}"


def written(out: Path, beside: Path | None) -> str:
    """The files that were written, in words."""
    return f"{out}" if beside is None else f"{out} and {beside.name}"
