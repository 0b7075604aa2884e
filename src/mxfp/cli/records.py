# SPDX-License-Identifier: Apache-2.0
"""What mxfp inspect and mxfp diff print with --json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..files.difference import Difference, TensorDifference
from ..files.explaining import Explained, Explanation
from ..files.kinds import Side
from ..files.model import ModelFile
from ..files.statistics import Statistics
from ..files.tensor import Tensor


def totals(tensors: Iterable[Tensor]) -> dict[str, dict[str, Any]]:
    """By type and layout, and of all together: tensors, elements, bytes and bits an element."""
    found: dict[str, dict[str, Any]] = {}
    for tensor in tensors:
        for key in (f"{tensor.type} {tensor.layout}".strip(), "together"):
            entry = found.setdefault(key, {"tensors": 0, "elements": 0, "bytes": 0})
            entry["tensors"] += 1
            entry["elements"] += tensor.elements
            entry["bytes"] += tensor.nbytes
    for entry in found.values():
        entry["bits"] = 8 * entry["bytes"] / entry["elements"] if entry["elements"] else 0.0
    if together := found.pop("together", None):
        found["together"] = together
    return found


def inspect_record(
    model: ModelFile, tensors: Sequence[Tensor], found: Mapping[str, Statistics], missing: int
) -> dict[str, Any]:
    """A file: every tensor, with the statistics of those that were read."""
    return {
        "schema": "mxfp-inspect/1",
        "file": str(model.path),
        "format": model.format,
        "files": [str(header.path) for header in model.headers],
        "complete": not missing,
        "tensors": [
            {
                "name": t.name,
                "shape": t.shape,
                "type": t.type,
                "layout": t.layout,
                "axis": t.block_axis if t.format is not None else None,
                "bytes": t.nbytes,
                "bits": t.bits,
                "parts": [part.name for part in t.parts],
                "data": model.has_data(t.name),
                "statistics": _statistics(found[t.name]) if t.name in found else None,
            }
            for t in tensors
        ],
        "totals": totals(tensors),
    }


def _statistics(s: Statistics) -> dict[str, Any]:
    """Statistics as JSON has them: counts by code, and what is made of them."""
    return {
        "elements": s.elements,
        "blocks": s.blocks,
        "codes": s.codes.tolist(),
        "scales": {str(code): int(s.scales[code]) for code in np.flatnonzero(s.scales).tolist()},
        "scale_range": s.scale_range,
        "at_largest": s.at_largest,
        "zeros": s.zeros,
        "negative_zeros": s.negative_zeros,
        "special_elements": s.specials,
        "zero_blocks": s.zero_blocks,
        "nan_blocks": s.nan_blocks,
        "tensor_scales": s.tensor_scales if s.format.tensor_scale else None,
    }


def diff_record(
    difference: Difference, explained: Mapping[str, Explained], concluded: Mapping[str, list[str]]
) -> dict[str, Any]:
    """A difference, and what explains it, by format."""
    from ..report.measure import plain

    made = {
        "schema": "mxfp-diff/1",
        "a": str(difference.a.path),
        "b": str(difference.b.path),
        "equal": difference.equal,
        "only_a": difference.only_a,
        "only_b": difference.only_b,
        "tensors": [_tensor_json(t) for t in difference.tensors],
        "explained": {
            name: {"a": _explanation(e.a), "b": _explanation(e.b), "verdict": e.verdict}
            for name, e in explained.items()
        },
        "concluded": dict(concluded),
    }
    return dict(plain(made))


def _tensor_json(tensor: TensorDifference) -> dict[str, Any]:
    pair, counts, first = tensor.pair, tensor.counts, tensor.counts.first
    return {
        "name": pair.name,
        "status": tensor.status,
        "note": tensor.note or None,
        "types": [pair.a.type, pair.b.type],
        "layouts": [pair.a.layout, pair.b.layout],
        "shape": pair.a.shape,
        "source": pair.source.name if pair.source else None,
        "elements": dict(counts.elements),
        "blocks": dict(counts.blocks),
        "neighbours": dict(counts.steps),
        "tensor_scales": counts.tensor_scales,
        "first": None
        if first is None
        else {
            "index": first.index,
            "source": first.source,
            **{
                side: vars(one) if isinstance(one, Side) else one
                for side, one in (("a", first.a), ("b", first.b))
            },
        },
    }


def _explanation(explanation: Explanation) -> dict[str, Any]:
    weighed = explanation.weighed
    return {
        "complete": explanation.complete,
        "scale_rules": explanation.scale_rules,
        "roundings": explanation.roundings,
        "signs_of_zero": explanation.zeros,
        "reading": explanation.reading or None,
        "writer": explanation.writer or None,
        "blocks": weighed.blocks,
        "elements": weighed.elements,
        "misses": {name: weighed.misses[name] for name in weighed.tried},
        "nan_blocks": weighed.nan,
        "left_out": weighed.left_out,
        "text": str(explanation),
    }
