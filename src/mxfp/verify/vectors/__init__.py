# SPDX-License-Identifier: Apache-2.0
"""Vectors for a unit: named groups of cases, built one group at a time, with what is expected of each."""

from .groups import GROUPS, Group
from .recorded import Recorded, read_suite
from .sequences import Sequences
from .suite import Suite
from .writers import stream, write_suite
from .written import Written

__all__ = [
    "GROUPS",
    "Group",
    "Recorded",
    "Sequences",
    "Suite",
    "Written",
    "read_suite",
    "stream",
    "write_suite",
]
