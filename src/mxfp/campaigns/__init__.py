# SPDX-License-Identifier: Apache-2.0
"""Campaigns: many cases on many cores or machines, the same bytes from all of them, and never from the start.

`Campaign` says what is swept, `run` has it done by any `concurrent.futures` executor, `Results` are read
from the file that it writes, and `replay` gives the inputs of any dot product that they name.
"""

from .campaign import Campaign, CampaignError, Case, replay
from .measure import measure
from .results import Results, Row, Worst
from .runner import CampaignInterrupted, run

__all__ = [
    "Campaign",
    "CampaignError",
    "CampaignInterrupted",
    "Case",
    "Results",
    "Row",
    "Worst",
    "measure",
    "replay",
    "run",
]
