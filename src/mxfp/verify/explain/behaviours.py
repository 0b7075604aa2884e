# SPDX-License-Identifier: Apache-2.0
"""What hardware is known to do wrong, by name: each a change to a right unit.

`behaviours(unit)` are all that can occur in a unit; which of them explains what a simulator gave is found by
`explain`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..unit import Unit
from .datapath import Datapath
from .flow import Change, Named, Stage
from .wrong.adders import accumulators, adders, clearing
from .wrong.lanes import lanes, orders, signs
from .wrong.levels import levels, products
from .wrong.results import results
from .wrong.scales import exponents, scales
from .wrong.specials import specials
from .wrong.values import values


@dataclass(frozen=True)
class Behaviour:
    """A way to be wrong. name: short; about: one line; apply: a right datapath -> one that does it."""

    name: str
    about: str
    apply: Callable[[Datapath], Datapath]

    def __str__(self) -> str:
        """Name and what it is."""
        return f"{self.name}: {self.about}"


def behaviours(unit: Unit) -> tuple[Behaviour, ...]:
    """Every behaviour that a unit of this kind can have, the plainest first.

    >>> found = behaviours(Unit("sum"))
    >>> len(found) > 300, [b.name for b in found if "13" in b.name and "level5" in b.name][:2]
    (True, ['level5-wraps-13', 'level5-saturates-13'])
    """
    found = [
        Behaviour(name, about, apply) for part in (adders, clearing) for name, about, apply in part(unit)
    ]
    parts: tuple[Callable[[Unit], Named], ...]
    parts = (specials, exponents, orders, levels, products, values, lanes, signs, scales, results)
    for part in parts:
        for name, about, stage, change in part(unit):
            found.append(Behaviour(name, about, _changing(stage, change)))
    found += [Behaviour(*one) for one in accumulators(unit)]
    return tuple(found)


def _changing(stage: Stage, change: Change) -> Callable[[Datapath], Datapath]:
    return lambda path: path.changed(stage, change)
