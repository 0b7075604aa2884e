# SPDX-License-Identifier: Apache-2.0
"""Vectors for a unit: named groups of cases, built one group at a time, with what is expected of each."""

from .groups import GROUPS, Group
from .sequences import Sequences
from .suite import Suite
from .writers import stream, write_suite

__all__ = ["GROUPS", "Group", "Sequences", "Suite", "stream", "write_suite"]
