# SPDX-License-Identifier: Apache-2.0
"""What is verified: a unit, batches of cases for it, and what it should give at every stage."""

from .batch import Batch
from .right import expected, expected_last
from .unit import DEFAULT, KINDS, MOST_ELEMENTS, Kind, Unit

__all__ = ["DEFAULT", "KINDS", "MOST_ELEMENTS", "Batch", "Kind", "Unit", "expected", "expected_last"]
