# SPDX-License-Identifier: Apache-2.0
"""The smallest case that a unit still gets wrong."""

from .process import RunError
from .runner import Command
from .shrinking import ShrinkError, shrink
from .shrunk import Shrunk

__all__ = ["Command", "RunError", "ShrinkError", "Shrunk", "shrink"]
