# SPDX-License-Identifier: Apache-2.0
"""An Evaluation as tables of text, as Markdown and as JSON."""

from __future__ import annotations

import json

import numpy as np

from ..files.tensor import printable
from .evaluation import WAYS, Evaluation, LayerFigures
from .render import page
from .tables import Table


def headline(found: Evaluation) -> str:
    """One line: what was evaluated."""
    made = _quantized(found)
    if found.given:
        made = "as they are in the file"
        if found.given < len(found.layers):
            made = f"{found.given} of them {made}, the others {_quantized(found)}"
        elif found.rule:
            made += f", activations quantized by rule {found.rule}"
    files = f"{printable(found.model)} on {printable(found.data)}"
    return f"{files}: {len(found.layers)} layers, weights in {found.format}, {made}"


def _quantized(found: Evaluation) -> str:
    return f"quantized by rule {found.rule or 'of the format'}"


def tables(found: Evaluation) -> list[Table]:
    """Every layer, then the whole."""
    return [_layers(found), _summary(found)]


def _short(names: list[str]) -> tuple[list[str], str]:
    """Names without the words that all begin and end with; what they were, with … in between."""
    parts = [name.split(".") for name in names]
    most = min(len(words) for words in parts) - 1
    head = next((n for n in range(most) if len({words[n] for words in parts}) > 1), most)
    most -= head
    tail = next((n for n in range(most) if len({words[-1 - n] for words in parts}) > 1), most)
    if len(names) == 1 or not head + tail:
        return names, ""
    shown = [".".join(words[head : len(words) - tail]) for words in parts]
    return shown, ".".join([*parts[0][:head], "…", *parts[0][len(parts[0]) - tail :]])


def _layers(found: Evaluation) -> Table:
    names, pattern = _short([printable(layer.name) for layer in found.layers])
    rows = [
        (
            name,
            f"{layer.tokens} x {layer.k} x {layer.n}",
            *(f"{layer.ways[way].sqnr_db:.2f}" for way in WAYS),
        )
        for name, layer in zip(names, found.layers, strict=True)
    ]
    return Table(
        "SQNR of each layer's product, dB",
        ("layer", "tokens x K x N", *WAYS),
        tuple(rows),
        (f"layers are {pattern}; " if pattern else "")
        + "against the exact product of the float weights. float16: both sides rounded to it; W4A16: weights "
        f"in {found.format}, activations in float16; both added exactly. W4A4: both in {found.format}, "
        f"added by {found.accumulator}" + _unbounded(found),
    )


def _unbounded(found: Evaluation) -> str:
    """What figures that are no numbers mean, if there are any."""
    errors = [layer.ways[way].relative_error for layer in found.layers for way in WAYS]
    if np.isfinite(errors).all():
        return ""
    return (
        ". nan: a product has NaN or infinity, from a value beyond the largest of float16 (65504) or of the "
        "accumulator, or from a NaN scale"
    )


def _summary(found: Evaluation) -> Table:
    def row(way: str) -> tuple[str, ...]:
        errors = np.array([layer.ways[way].relative_error for layer in found.layers])
        worst: LayerFigures = found.worst(way)
        return (
            way,
            f"{100 * float(np.median(errors)):.3g}",
            f"{100 * worst.ways[way].relative_error:.3g}",
            printable(worst.name),
        )

    left = len(found.without)
    return Table(
        "Error of all layers",
        ("way", "median %", "worst %", "worst layer"),
        tuple(row(way) for way in WAYS),
        "Frobenius norm of the error over that of the exact product"
        + (f"; {left} other matrices of the model have no activations here" if left else ""),
    )


def markdown(found: Evaluation) -> str:
    """An Evaluation -> Markdown text."""
    title = f"{found.format} on {printable(found.model)}"
    return page(title, headline(found), "", tables(found), {}, "Made by `mxfp evaluate`.")


def json_text(found: Evaluation) -> str:
    """An Evaluation -> JSON text, one schema: mxfp-evaluation/1."""
    return json.dumps(found.as_dict(), indent=1, allow_nan=False) + "\n"
