# SPDX-License-Identifier: Apache-2.0
"""A Forecast as tables of text, as Markdown and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from typing import Final

from ..render import page
from ..tables import Table
from .comparison_tables import comparisons
from .digits import gb, rate, si
from .forecast import Forecast
from .traffic import cached_bytes

_READ: Final = {
    "embedding": "a row each",
    "head": "all",
    "tied": "all, as the head",
    "experts": "those chosen",
    "dense": "all",
    "unused": "nothing",
}


def headline(found: Forecast) -> str:
    """One line: which model, which device."""
    m, d = found.model, found.device
    experts = f", {m.experts_used} of {m.experts} experts" if m.experts else ""
    peak = "" if d.peak is None else f" and {si(d.peak)}op/s"
    return (
        f"{m.name} ({m.architecture}, {len(m.layers)} layers{experts}) at {d.bandwidth / 1e9:g} GB/s{peak}, "
        "as given: ceilings, which nothing that reads these bytes can pass"
    )


def tables(found: Forecast) -> list[Table]:
    """The forecast in reading order."""
    return [
        _weights(found),
        _cache(found),
        _roofs(found),
        *_answer(found),
        *comparisons(found),
    ]


def _weights(found: Forecast) -> Table:
    rows = [
        (p.role, _READ[p.role], str(p.tensors), " ".join(p.types), gb(p.stored), gb(p.read))
        for p in found.parts
    ]
    count, read = sum(p.tensors for p in found.parts), sum(p.read for p in found.parts)
    rows.append(("together", "", str(count), "", gb(found.model.stored), gb(read)))
    remark = "GB are 10^9 bytes"
    m = found.model
    if m.experts and found.batch > 1:
        remark += (
            f"; a batch of {found.batch} touches {found.distinct_experts:.1f} of {m.experts} experts on "
            "average, E (1 - (1 - k/E)^B), if tokens choose evenly and independently"
        )
    step = "a token" if found.batch == 1 else f"a step of {found.batch} tokens"
    return Table(
        "Weights",
        ("part", f"{step} reads", "tensors", "types", "stored GB", "read GB"),
        tuple(rows),
        "; ".join([remark, *m.notes]),
    )


def _cache(found: Forecast) -> Table:
    kinds: Counter[tuple[str, str, str, int]] = Counter()
    for layer in found.model.layers:
        if layer.kv_heads:
            sizes = str(layer.key_size) if layer.latent else f"{layer.key_size} + {layer.value_size}"
            window = "all" if layer.window is None else f"{layer.window:,}"
            kinds[str(layer.kv_heads), sizes, window, cached_bytes(layer, found.kv_type)] += 1
    rows = [
        (str(count), heads, sizes, window, f"{each:,}", f"{count * each:,}")
        for (heads, sizes, window, each), count in kinds.items()
    ]
    return Table(
        f"KV cache in {found.kv_type}",
        ("layers", "KV heads", "size of a head", "tokens seen", "bytes a token", "in all layers"),
        tuple(rows) or (("0", "-", "-", "-", "0", "0"),),
        f"every token makes it {found.kv_per_token:,} bytes larger, while no window is full",
    )


def _roofs(found: Forecast) -> Table:
    each = found.batch > 1
    columns: tuple[str, ...] = (
        "context",
        "weights GB",
        "KV cache GB",
        "bytes GB",
        "tokens/s at most",
        "bound by",
    )
    rows = []
    for r in found.roofs:
        sizes = (gb(r.traffic.weights), gb(r.traffic.kv + r.traffic.state), gb(r.traffic.total))
        rates = (rate(r.tokens_per_second), *([rate(r.tokens_per_second / found.batch)] if each else ()))
        rows.append((f"{r.traffic.context:,}", *sizes, *rates, r.binds))
    if each:
        columns = (*columns[:5], "each sequence", columns[5])
    made = "one token" if not each else f"one token of each of {found.batch} sequences"
    known = all(r.compute_seconds is not None for r in found.roofs)
    looked = "" if known else "; without a --peak for all of them, operations are not looked at"
    return Table(
        "Ceiling of decode",
        columns,
        tuple(rows),
        f"bandwidth over the bytes of {made}: weights, and the cache of the tokens so far{looked}",
    )


def _answer(found: Forecast) -> list[Table]:
    a = found.answer
    if a is None:
        return []
    rows = [
        (
            "prefill",
            f"{a.prompt:,}",
            f"{si(a.prefill_operations)}op",
            rate(a.prefill_seconds),
            rate(a.prefill_rate),
            a.prefill_binds,
        ),
        (
            "decode",
            f"{a.output - 1:,}",
            f"{gb(a.decode_bytes)} GB",
            rate(a.decode_seconds),
            "-" if a.decode_rate is None else rate(a.decode_rate),
            "",
        ),
        ("together", f"{a.prompt + a.output:,}", "", rate(a.seconds), "", ""),
    ]
    peak = (
        "without a --peak for all of its operations, prefill has no ceiling but the bytes of its weights, "
        "far too fast; "
        if a.prefill_compute_seconds is None
        else "prefill: 2 operations for each active weight and token, the head once, and attention; "
    )
    return [
        Table(
            "Time to answer one prompt, at least",
            ("phase", "tokens", "work", "seconds", "tokens/s", "bound by"),
            tuple(rows),
            f"{peak}it makes the first token, decode the other {a.output - 1:,}, each with a longer cache. "
            "Not in it: queueing, tokenization, scheduling, sampling, the network. So the time of prefill is "
            "not the time to first token (TTFT) that a user sees",
        )
    ]


def markdown(found: Forecast) -> str:
    """A Forecast -> Markdown text."""
    title = f"The ceiling of decode: {found.model.name}"
    return page(title, headline(found), "", tables(found), {}, "Made by `mxfp decode`.")


def json_text(found: Forecast) -> str:
    """A Forecast -> JSON text, one schema: mxfp-decode/1."""
    return json.dumps(found.as_dict(), indent=1, allow_nan=False) + "\n"
