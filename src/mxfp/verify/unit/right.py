# SPDX-License-Identifier: Apache-2.0
"""What a right unit gives for a batch of cases, at every stage.

All of it is computed by the rooms of the package, on whole batches; nothing here re-implements them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...accumulate import Accumulator, Sequential
from ...dot import Terms, block_dots
from ...floats import AnyFloats, check_subnormals
from ...formats import Integers
from ...registers import FixedPoint, Fused
from .batch import Batch


def expected(batch: Batch, *, stages: bool = True) -> dict[str, NDArray[Any]]:
    """What a right unit gives for each case of a batch, at every stage, as integers.

    product, level1, level2 … (with stages): int64 (n, …); sum: int64 (n, blocks), of the codes alone. Units
    with scales: exponent: int64 (n, blocks), of the LSB of the sum; special: 0 finite, 1 NaN, 2 +infinity, 3
    -infinity; term: the sum times both scales' significands, where scales have any; result: the bits of the
    accumulator, unsigned (n, 1).

    >>> import numpy as np
    >>> from mxfp.verify.unit import Batch, Unit
    >>> unit = Unit("dot", lanes=2)
    >>> one = np.full((1, 1), 127, np.uint8)
    >>> codes, first = (np.uint8([[7, 1]]), np.uint8([[15, 2]])), np.array([True])
    >>> found = expected(Batch(unit, *codes, one, one, first, np.array([0]), ("x",)))
    >>> {name: values.tolist() for name, values in found.items() if name != "result"}
    {'product': [[-144, 2]], 'level1': [[-142]], 'sum': [[-142]], 'exponent': [[-2]], 'special': [[0]]}
    >>> f"{int(found['result'][0, 0]):08x}"
    'c20e0000'
    """
    unit = batch.unit
    found = _tree(batch) if stages else {}
    if not unit.scaled:
        return found if stages else {"sum": _sums(batch)}
    a, b = unit.sides
    lsb = a.element.lsb_exponent + b.element.lsb_exponent
    terms = block_dots(*batch.pair, group=unit.accumulator.terms_of)
    per_block = terms if terms.sums.shape[-1] == unit.blocks else block_dots(*batch.pair)
    if not stages:
        plain = per_block.specials is None and unit.term_bits == unit.sum_bits
        found["sum"] = per_block.sums if plain else _sums(batch)
    found["exponent"] = a.scale.exponents[batch.scales_a] + b.scale.exponents[batch.scales_b] + lsb
    found["special"] = _special(per_block)
    if unit.term_bits != unit.sum_bits:
        significands = a.scale.significands[batch.scales_a], b.scale.significands[batch.scales_b]
        found["term"] = found["sum"] * significands[0] * significands[1]
    add = unit.accumulator
    found["result"] = _bits(_running(batch, terms) if unit.kind == "running" else np.asarray(add(terms)))
    return found


def expected_last(sequence: Batch, *, stages: bool = True) -> dict[str, NDArray[Any]]:
    """The same for the last case of a sequence alone: (1, …) at every stage."""
    last = replace(sequence.cut(slice(len(sequence) - 1, None)), first=np.ones(1, np.bool_))
    found = expected(last, stages=stages)
    if sequence.unit.kind == "running":
        accumulator = sequence.unit.accumulator
        terms = block_dots(*sequence.pair, group=accumulator.terms_of)
        found["result"] = _bits(accumulator(_together(terms, np.arange(len(sequence))[None])))
    return found


def _bits(results: AnyFloats) -> NDArray[np.uint64]:
    """Floats (n,) -> their bits, (n, 1)."""
    return results.view(f"u{results.dtype.itemsize}").astype(np.uint64)[:, None]


def _integers(batch: Batch) -> tuple[Integers, Integers]:
    """Elements of both sides as integers, (n, blocks, lanes)."""
    shape = (len(batch), batch.unit.blocks, batch.unit.a.block)
    a, b = (fmt.element.integers for fmt in batch.unit.sides)
    return a[batch.codes_a].reshape(shape), b[batch.codes_b].reshape(shape)


def _sums(batch: Batch) -> Integers:
    x, y = _integers(batch)
    return np.asarray((x * y).sum(axis=-1))


def _tree(batch: Batch) -> dict[str, NDArray[Any]]:
    """The products, each level of a binary tree, and the sum."""
    x, y = _integers(batch)
    level = x * y
    found = {"product": level.reshape(len(batch), -1)}
    while level.shape[-1] > 1:
        even = level.shape[-1] // 2 * 2
        level = np.concatenate([level[..., 0:even:2] + level[..., 1:even:2], level[..., even:]], axis=-1)
        found[f"level{len(found)}"] = level.reshape(len(batch), -1)
    return {**found, "sum": level[..., 0]}


def _special(terms: Terms) -> Integers:
    if terms.specials is None:
        return np.zeros(terms.sums.shape, np.int64)
    kinds = [np.isnan(terms.specials), terms.specials == np.inf, terms.specials == -np.inf]
    return np.select(kinds, [1, 2, 3], 0).astype(np.int64)


def _running(batch: Batch, terms: Terms) -> NDArray[Any]:
    """The accumulator after each case: that of the terms of all cases since the last first one, together."""
    accumulator = batch.unit.accumulator
    if len(batch) and not batch.first[0]:
        raise ValueError("a batch of a running unit begins with a case that is marked first")
    begins = np.flatnonzero(batch.first)
    lengths = np.diff(np.append(begins, len(batch)))
    found = np.zeros(len(batch), accumulator.result_dtype)
    again = not isinstance(accumulator, (Sequential, FixedPoint, Fused))
    for length in range(1, int(lengths.max(initial=0)) + 1) if again else np.unique(lengths).tolist():
        rows = begins[lengths >= length if again else lengths == length][:, None] + np.arange(length)
        together = _together(terms, rows)
        if again:  # one that ends in a rounding begins again for each case
            found[rows[:, -1]] = accumulator(together)
        else:
            for case, result in enumerate(_after_each(accumulator, together, length)):
                found[rows[:, case]] = result
    return found


def _after_each(accumulator: Accumulator, terms: Terms, cases: int) -> Iterator[NDArray[Any]]:
    """Terms (n, m) of sequences of so many cases -> the results (n,) after each case."""
    check_subnormals()
    each = len(terms) // cases
    steps = each if not isinstance(accumulator, Fused) else each * accumulator.group // accumulator.step
    added = terms
    if isinstance(accumulator, FixedPoint):  # one NaN among all terms stops its register from the first on
        added = replace(terms, specials=None)
    for number, step in enumerate(accumulator.steps(added), 1):
        if number % steps == 0:
            yield np.asarray(accumulator.finish(step.state, _first(terms, number // steps * each)))


def _first(terms: Terms, count: int) -> Terms:
    """The first terms of each sequence."""
    return _changed(terms, lambda x: x[..., :count])


def _together(terms: Terms, rows: Integers) -> Terms:
    """(n, m) rows of terms -> n rows, the terms of m of them behind each other."""
    return _changed(terms, lambda x: x[rows].reshape(len(rows), -1))


def _changed(terms: Terms, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Terms:
    """Terms with every array of them changed alike."""
    arrays: dict[str, Any] = {}
    for name in ("sums", "exponents", "specials", "live", "leading"):
        array = getattr(terms, name)
        arrays[name] = None if array is None else change(array)
    return replace(terms, **arrays)
