# SPDX-License-Identifier: Apache-2.0
"""What cases have reached and what they have not: bins, counts, and cases that fill what is missing."""

from .bins import families
from .coverage import Coverage
from .filling import fill

__all__ = ["Coverage", "families", "fill"]
