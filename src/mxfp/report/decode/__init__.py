# SPDX-License-Identifier: Apache-2.0
"""The ceiling of decode: tokens a second from a model's header and a device's bandwidth.

`model_from` reads a model, `traffic` counts the bytes that a token moves, `ceiling` divides, `compare` puts
measurements beside it, `whatif` changes one thing at a time, and `report` has them all as tables and JSON.
"""

from .ceiling import Device, answer, ceiling
from .model import Layer, Model, Weight
from .source import model_from
from .traffic import distinct_experts, kv_per_token, traffic

__all__ = [
    "Device",
    "Layer",
    "Model",
    "Weight",
    "answer",
    "ceiling",
    "distinct_experts",
    "kv_per_token",
    "model_from",
    "traffic",
]
