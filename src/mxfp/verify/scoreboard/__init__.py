# SPDX-License-Identifier: Apache-2.0
"""What a unit was given, what it should give, and what it gave, case by case; it knows no simulator."""

from .scoreboard import Scoreboard

__all__ = ["Scoreboard"]
