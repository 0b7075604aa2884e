# SPDX-License-Identifier: Apache-2.0
"""All that follows for one model on one device, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from ...files.types import block_size
from .ceiling import Answer, Ceiling, Device, answer, ceiling
from .compare import Compared, Fit, Measured, compare, fit
from .model import ROLES, Model
from .traffic import distinct_experts, kv_per_token, state_moved, weights_read
from .whatif import Case, converted, what_if

CONTEXTS: Final = (0, 512, 2048, 8192, 32_768)
SCHEMA: Final = "mxfp-decode/1"


@dataclass(frozen=True)
class Part:
    """Tensors that play one part: how many, in which types, their bytes, and those that one step reads."""

    role: str
    tensors: int
    types: tuple[str, ...]
    stored: int
    read: float


@dataclass(frozen=True)
class Forecast:
    """Ceilings of decode and prefill; `compared` and `fit` where something was measured, `cases` what-ifs."""

    model: Model
    devices: tuple[Device, ...]
    kv_type: str
    batch: int
    parts: tuple[Part, ...]
    kv_per_token: int
    roofs: tuple[Ceiling, ...]
    answer: Answer | None
    compared: tuple[Compared, ...]
    fit: Fit | None
    cases: tuple[Case, ...]

    @property
    def device(self) -> Device:
        """The first device, of which all but the what-ifs are."""
        return self.devices[0]

    @property
    def distinct_experts(self) -> float | None:
        """Experts that the batch touches, on average."""
        m = self.model
        return distinct_experts(m.experts, m.experts_used, self.batch) if m.experts else None

    def as_dict(self) -> dict[str, Any]:
        """Plain data of one schema."""
        m = self.model
        return {
            "schema": SCHEMA,
            "model": {
                "name": m.name,
                "architecture": m.architecture,
                "layers": len(m.layers),
                "experts": m.experts,
                "experts_used": m.experts_used,
                "stored_bytes": m.stored,
                "active_weights": m.active,
                "notes": list(m.notes),
            },
            "devices": [asdict(d) for d in self.devices],
            "kv_type": self.kv_type,
            "batch": self.batch,
            "distinct_experts": self.distinct_experts,
            "parts": [asdict(p) for p in self.parts],
            "weights_read": weights_read(m, batch=self.batch),
            "kv_bytes_per_token": self.kv_per_token,
            "state_bytes_moved": state_moved(m),
            "ceilings": [_roof(r) for r in self.roofs],
            "answer": None
            if self.answer is None
            else {
                **asdict(self.answer),
                "prefill_rate": self.answer.prefill_rate,
                "decode_rate": self.answer.decode_rate,
                "seconds": self.answer.seconds,
            },
            "measured": [
                {
                    **asdict(c.measured),
                    "ceiling": _roof(c.ceiling),
                    "share": c.share,
                    "bytes_per_second": c.bytes_per_second,
                }
                for c in self.compared
            ],
            "fit": None if self.fit is None else asdict(self.fit),
            "what_if": [{**asdict(c), "roof": _roof(c.roof)} for c in self.cases],
        }


def _roof(roof: Ceiling) -> dict[str, Any]:
    return {
        **asdict(roof),
        "bytes": roof.traffic.total,
        "tokens_per_second": roof.tokens_per_second,
    }


def forecast(
    model: Model,
    devices: Sequence[Device],
    *,
    contexts: Sequence[int] = CONTEXTS,
    kv_type: str = "F16",
    batches: Sequence[int] = (1,),
    prompt: int | None = None,
    output: int | None = None,
    measured: Sequence[Measured] = (),
    formats: Sequence[str] = (),
) -> Forecast:
    """What `mxfp decode` prints.

    The first device and batch are those of the ceilings and of what was `measured`; all of them, with all
    `formats`, are in the what-ifs, which are at the last of the contexts. Raises ValueError for sizes that
    make no sense, and for measurements of formats that are not asked about.
    """
    block_size(kv_type)
    device, batch, kv_type = devices[0], batches[0], kv_type.upper()
    names = {f.upper() for f in formats}
    for one in measured:
        if one.format is not None and one.format.upper() not in names:
            raise ValueError(f"measured in {one.format}: give it as --what-if {one.format} too")
    own = [m for m in measured if m.format is None]
    compared = compare(model, device, own, batch=batch, kv_type=kv_type)
    for one in measured:
        if one.format is not None:
            changed = converted(model, one.format)
            compared += compare(changed, device, [one], batch=batch, kv_type=kv_type)
    asked = len(formats) > 0 or len(devices) > 1 or len(batches) > 1
    found = None
    if prompt is not None and output is not None:
        found = answer(model, device, prompt, output, kv_type=kv_type)
    return Forecast(
        model,
        tuple(devices),
        kv_type,
        batch,
        _parts(model, batch),
        kv_per_token(model, kv_type=kv_type),
        tuple(ceiling(model, device, n, batch=batch, kv_type=kv_type) for n in contexts),
        found,
        compared,
        fit(compared[: len(own)], device),
        what_if(model, devices, formats, batches, contexts[-1], kv_type=kv_type, measured=measured)
        if asked
        else (),
    )


def _parts(model: Model, batch: int) -> tuple[Part, ...]:
    found = []
    for role in ROLES:
        weights = tuple(w for w in model.weights if w.role == role)
        if weights:
            alone = Model("", "", weights, (), model.experts, model.experts_used)
            types = tuple(sorted({w.type for w in weights}))
            read = weights_read(alone, batch=batch)
            found.append(Part(role, len(weights), types, alone.stored, read))
    return tuple(found)
