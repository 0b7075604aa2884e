# SPDX-License-Identifier: Apache-2.0
"""The groups of vectors, by name and in order; and batches of them for a unit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np

from ...accumulate import Accumulator
from ...formats import Integers
from ..unit import Batch, Unit
from . import adding, lanes, results, scales
from .cases import Cases, Plan, none, placed
from .draws import Draws

GENERATOR: Final = 2
"""Counts up whenever the cases of any group change."""
SIZE: Final = 1 << 12
"""Cases of a batch."""
ELEMENTS: Final = 1 << 21
"""Elements of one side of a batch, which bounds its memory for wide units."""
COUNT: Final = 1_000_000
"""Cases at random of level 2."""
BASE: Final = 4096
"""Cases at random of each such group at level 1."""


@dataclass(frozen=True)
class Group:
    """A group: its name, what is in it, and how it is planned.

    share: of the cases at random at level 2; 0 for a group whose cases are what they are. level: the first
    level that has it.
    """

    name: str
    about: str
    plan: Callable[..., Plan]
    share: int = 0
    level: int = 1


def _sentence(function: Callable[..., Plan]) -> str:
    return (function.__doc__ or "").partition("\n")[0]


def _drawn(name: str, about: str, share: int, elements: Any, kind: Any, *, level: int = 1) -> Group:
    return Group(name, about, partial(scales.drawn, elements=elements, scales=kind), share, level)


def _listed(name: str, plan: Callable[..., Plan]) -> Group:
    return Group(name, _sentence(plan), plan)


GROUPS: Final[tuple[Group, ...]] = (
    _listed("signed-zeros", lanes.signed_zeros),
    _listed("pairs", lanes.pairs),
    _listed("pairs-in-all-lanes", lanes.pairs_in_all_lanes),
    _listed("walking-lanes", lanes.walking_lanes),
    _listed("walking-holes", lanes.walking_holes),
    _listed("sum-extremes", lanes.sum_extremes),
    _listed("level-extremes", lanes.level_extremes),
    _listed("cancellation", lanes.cancellation),
    _listed("cancellation-but-one", lanes.cancellation_but_one),
    _listed("scale-corners", scales.scale_corners),
    _listed("scale-sums", scales.scale_sums),
    _listed("nan-scales", scales.nan_scales),
    _listed("special-elements", scales.special_elements),
    _listed("overflow", results.overflow),
    _listed("smallest-normal", results.smallest_normal),
    _listed("subnormals", results.subnormals),
    _listed("half-the-smallest", results.half_the_smallest),
    _listed("trace-beside-the-smallest", results.trace_beside_the_smallest),
    _listed("ties", adding.ties),
    _listed("sticky", adding.sticky),
    _listed("swamping", adding.swamping),
    _listed("swamping-widest", adding.swamping_widest),
    _listed("opposite-accumulator", adding.opposite_accumulator),
    _listed("cancellation-across-blocks", adding.cancellation_across_blocks),
    _listed("cancellation-across-blocks-but-one", adding.cancellation_across_blocks_but_one),
    _listed("cancelled-beside-small", adding.cancelled_beside_small),
    _listed("stale-accumulator", adding.stale_accumulator),
    _drawn("random-near-unit", "Any elements, scales 2^-4 … 2^4.", 4, "any", "near-unit"),
    _drawn("random-uniform", "Any elements, any scales that are numbers.", 4, "any", "uniform"),
    _drawn("random-corner", "Any elements, scales at the ends of their range and one.", 4, "any", "corner"),
    _drawn("random-specials", "Any codes of elements and of scales, NaN among them.", 1, "specials", "bits"),
    _drawn("random-sparse", "Mostly zeros, any scales.", 1, "sparse", "uniform"),
    _drawn("random-edges", "Elements at ends of ranges, scales near 1.", 1, "edges", "near-unit", level=2),
    _drawn("random-largest", "± the largest elements, scales at corners.", 1, "largest", "corner", level=2),
    Group("random-cancelling", _sentence(scales.drawn_cancelling), scales.drawn_cancelling, 1, 2),
)  # fmt: skip
"""All groups, in the order of their cases."""


def chosen(level: int, names: Sequence[str] | None) -> tuple[Group, ...]:
    """The groups of a level, or those of them that are named."""
    if level not in (1, 2):
        raise ValueError(f"level is 1 or 2, got {level!r}")
    there = [group for group in GROUPS if group.level <= level]
    if names is None:
        return tuple(there)
    known = [group.name for group in there]
    for name in names:
        if name not in known:
            higher = " (that group is of level 2)" if name in {g.name for g in GROUPS} else ""
            raise ValueError(f"no group {name!r} at level {level}{higher}; there are {', '.join(known)}")
    return tuple(group for group in there if group.name in set(names))


def check_unit(unit: Unit) -> None:
    """ValueError for a unit that has no expected results for all cases."""
    accumulator: Accumulator = unit.accumulator
    if unit.scaled and getattr(accumulator, "overflow", None) == "raise":
        raise ValueError(
            f"{accumulator} has no result for what overflows it; say what the register does instead, wrap "
            "or saturate, such as fixed:24:-12:wrap"
        )


@lru_cache(maxsize=8)
def plans(
    unit: Unit, level: int = 1, seed: int = 0, groups: tuple[str, ...] | None = None, count: int | None = None
) -> tuple[tuple[Group, Plan], ...]:
    """Each group with its plan for a unit."""
    check_unit(unit)
    if count is not None and (level != 2 or count < 0):
        raise ValueError(f"count is a number of cases at random, of level 2; got {count!r} at level {level}")
    found = chosen(level, groups)
    possible = [g for g in found if g.share and not g.plan(unit, Draws(seed, g.name), 1).why]
    shares = sum(group.share for group in possible)
    total, found_plans = (COUNT if count is None else count), []
    for group in found:
        draws = Draws(seed, group.name)
        if not group.share:
            plan = group.plan(unit, draws)
        else:
            more = 0 if level == 1 or not shares else total * group.share // shares
            wanted = BASE * (group.level == 1) + more
            plan = group.plan(unit, draws, wanted) if wanted else none(f"count {total} leaves none for it")
        found_plans.append((group, plan))
    return tuple(found_plans)


def batches(
    unit: Unit,
    *,
    level: int = 1,
    seed: int = 0,
    groups: Sequence[str] | None = None,
    count: int | None = None,
    size: int = SIZE,
) -> Iterator[Batch]:
    """The cases of a suite in order, at most `size` in a batch, but for a sequence that is longer.

    What the cases are depends neither on size nor on the machine. count: cases at random of level 2.

    >>> first = next(batches(Unit("dot"), groups=["pairs"], size=300))
    >>> len(first), first.groups, int(first.codes_a[17].max()), int(first.codes_b[17].max())
    (300, ('pairs',), 1, 1)
    """
    planned = plans(unit, level, seed, None if groups is None else tuple(groups), count)
    names = tuple(group.name for group, _ in planned)
    most = max(1, min(size, ELEMENTS // unit.elements))
    waiting: list[tuple[Cases, int]] = []
    held = start = 0
    for number, (_, plan) in enumerate(planned):
        steps, done = plan.steps_of(unit), 0
        while done < plan.sequences:
            take = min(plan.sequences - done, (most - held) // steps)
            if take < 1 and held:
                yield _joined(unit, waiting, names, start)
                start, held, waiting = start + held, 0, []
                continue
            take = max(take, 1)
            waiting.append((placed(plan, unit, np.arange(done, done + take)), number))
            held, done = held + take * steps, done + take
    if held:
        yield _joined(unit, waiting, names, start)


def case(
    unit: Unit, number: int, *, level: int = 1, seed: int = 0, groups: Sequence[str] | None = None,
    count: int | None = None,
) -> tuple[Batch, int]:  # fmt: skip
    """One case, made alone: the batch of its sequence, and its place there. IndexError if there is none."""
    planned = plans(unit, level, seed, None if groups is None else tuple(groups), count)
    start = 0
    for place, (_, plan) in enumerate(planned):
        cases, steps = plan.cases(unit), plan.steps_of(unit)
        if start <= number < start + cases:
            sequence = (number - start) // steps
            made = placed(plan, unit, np.array([sequence]))
            names = tuple(group.name for group, _ in planned)
            first = start + sequence * steps
            return _joined(unit, [(made, place)], names, first), number - first
        start += cases
    raise IndexError(f"there are {start} cases, 0 … {start - 1}; got {number}")


def _joined(unit: Unit, parts: list[tuple[Cases, int]], names: tuple[str, ...], start: int) -> Batch:
    """Cases of several groups -> one batch."""
    arrays: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part, _ in parts])
        for name in ("codes_a", "codes_b", "scales_a", "scales_b", "first")
    }
    group: Integers = np.concatenate([np.full(len(part.first), number) for part, number in parts])
    return Batch(unit, **arrays, group=group, groups=names, start=start)


__all__ = ["GENERATOR", "GROUPS", "Group", "batches", "case", "check_unit", "chosen", "plans"]
