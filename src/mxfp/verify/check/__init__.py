# SPDX-License-Identifier: Apache-2.0
"""Answers of a unit, read strictly and compared by bits."""

from .answers import AnswerReader
from .comparison import check
from .policy import Policy
from .verdict import Verdict

__all__ = ["AnswerReader", "Policy", "Verdict", "check"]
