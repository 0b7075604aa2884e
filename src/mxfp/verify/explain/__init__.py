# SPDX-License-Identifier: Apache-2.0
"""Why answers are wrong: the named behaviours of wrong units, and which of them give the answers seen."""

from .behaviours import Behaviour, behaviours
from .datapath import Datapath
from .evidence import Evidence
from .explanation import Explanation, explain
from .flow import Flow

__all__ = ["Behaviour", "Datapath", "Evidence", "Explanation", "Flow", "behaviours", "explain"]
