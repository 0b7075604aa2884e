# SPDX-License-Identifier: Apache-2.0
"""What two files' codes and scales alone say about why they differ, where there is no source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ..encode import starts
from ..formats import BlockFormat, ScaleRule
from ..scale import step_up
from .kinds import Counts
from .statistics import Statistics

ENOUGH: Final = 1000
"""Blocks from which on it says something that a code is the largest in none."""
EXPECTED: Final = 0.05
"""The share of blocks in which a code would be the largest that counts as missing."""
FEW: Final = 8
"""Elements that could all have the even code, or the larger, by chance."""


def largest_codes(fmt: BlockFormat, rule: ScaleRule) -> dict[int, float]:
    """The codes that can be the largest of a block under a scale rule -> in what share of blocks each is.

    The shares are those of maxima that are as likely in every part of a binade, rounded to nearest.

    >>> from mxfp import MXFP4
    >>> {code: round(share, 2) for code, share in largest_codes(MXFP4, "rceil").items()}
    {5: 0.22, 6: 0.51, 7: 0.26}
    """
    element = fmt.element
    limit = min(step_up(rule, element), 2.0)
    # The largest of a block over its scale, from … to.
    low, high = limit * 2.0 ** (element.emax - 1), limit * 2.0**element.emax
    begins = np.clip(starts(element, "nearest_away"), low, high)
    edges = np.log2(np.concatenate([[low], begins, [high]]))
    return {code: float(share) for code, share in enumerate(np.diff(edges)) if share > 1e-9}


def rules_that_fit(found: Statistics) -> tuple[str, ...]:
    """Scale rules that the largest codes of blocks are as of, if codes are rounded to nearest.

    A rule is out if a code is the largest of a block that it cannot give, or if one is missing among 1000
    blocks that it would give in one of 20. "search" is not among them: it gives nearly all. Scales with
    mantissa bits have none: every block of theirs ends at the largest code.
    """
    if found.format.scale.mantissa_bits or not found.format.element.max:
        return ()
    largest = found.largest.copy()
    largest[0] = 0
    seen, total = {int(code) for code in np.flatnonzero(largest)}, int(largest.sum())
    fitting = []
    for rule in found.format.scale_rules:
        if rule == "search" or not total:
            continue
        shares = largest_codes(found.format, rule)
        usual = {code for code, share in shares.items() if share >= EXPECTED}
        if seen <= {*shares} and (total < ENOUGH or usual <= seen):
            fitting.append(rule)
    return tuple(fitting)


def conclude(counts: Counts, a: Statistics, b: Statistics) -> list[str]:
    """What can be said of tensors of one format without the source, in sentences."""
    return [*_of_scales(counts, a, b), *_of_codes(counts, a, b)]


def _of_scales(counts: Counts, a: Statistics, b: Statistics) -> Iterator[str]:
    blocks = counts.blocks
    if counts.tensor_scales is not None:
        yield "the tensor scales differ, so that all values do, whatever the codes"
    if blocks["zeros"]:
        yield (
            f"{blocks['zeros']:,} blocks of zeros have other scale codes, which changes no value: "
            f"{_zero_codes(a)} in A, {_zero_codes(b)} in B"
        )
    for side, found in (("A", a), ("B", b)):
        if number := blocks[f"nan_{side.lower()}"]:
            yield (
                f"{number:,} blocks have the scale code {found.format.scale.nan_code}, NaN, in {side} alone: "
                "a source that was not finite, or a reader that takes that code for a number"
            )
    moved = blocks["up"] + blocks["down"] + blocks["other_scale"]
    if not moved:
        return
    for name, text in (("up", "higher"), ("down", "lower")):
        if blocks[name] == moved:
            yield f"wherever scales differ, that of B is one code {text} ({moved:,} of {a.blocks:,} blocks)"
    if counts.elements["same_value"] and not counts.elements["other_scale"] + _saturated(counts):
        yield "the codes make up for it: every value is the same"
        return
    one, other = rules_that_fit(a), rules_that_fit(b)
    for side, statistics, rules in (("A", a, one), ("B", b, other)):
        if not statistics.format.scale.mantissa_bits:
            seen, fitting = _largest(statistics), " or ".join((*rules, "search"))
            yield f"the largest codes of blocks in {side} ({seen}) are as of {fitting}"
    if one and other and not {*one} & {*other}:
        yield f"so B seems to have used {' or '.join(other)}, and A {' or '.join(one)}; --source would tell"


def _of_codes(counts: Counts, a: Statistics, b: Statistics) -> Iterator[str]:
    elements, steps = counts.elements, counts.steps
    if elements["zero_sign"]:
        never = [side for side, found in (("A", a), ("B", b)) if not found.negative_zeros]
        text = f"{elements['zero_sign']:,} zeros differ in sign"
        yield f"{text}; {never[0]} has no -0 at all" if len(never) == 1 else text
    number = steps["all"]
    if not number:
        return
    yield f"{number:,} elements lie in neighbouring codes of equal scales: {_roundings(counts)}"


def _roundings(counts: Counts) -> str:
    """What roundings the codes of neighbours are as of."""
    steps = counts.steps
    number, larger = steps["all"], steps["b_larger"]
    if number < FEW:
        return "too few to say more"
    even_a, even_b = steps["a_even"] == number, steps["b_even"] == number
    away = {0: "A", number: "B"}.get(larger)
    if even_a or even_b:
        even, other = ("A", "B") if even_a else ("B", "A")
        if away == even:
            return f"as of ties to even in {even} and toward zero in {other}"
        if away == other:
            return f"as of ties to even in {even} and away from zero in {other}"
        return f"{even} has the even code in all of them, as of ties rounded otherwise"
    if away:
        return f"{away} has the larger in all of them, as of a rounding further from zero"
    return "neither has the even, nor the larger code in all of them"


def _saturated(counts: Counts) -> int:
    return counts.elements["saturated_a"] + counts.elements["saturated_b"]


def _largest(found: Statistics) -> str:
    """The largest codes of blocks, and in how many."""
    largest = found.largest.copy()
    largest[0] = 0
    return ", ".join(f"{code} in {largest[code]:,}" for code in np.flatnonzero(largest).tolist()[-4:])


def _zero_codes(found: Statistics) -> str:
    codes = np.flatnonzero(found.zero_scales).tolist()
    return " ".join(map(str, codes[:4])) + (" …" if len(codes) > 4 else "")
