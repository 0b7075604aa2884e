# SPDX-License-Identifier: Apache-2.0
"""Side room off 7: dot products on which an accumulator errs as much as its bound allows, found by search.

A bound says that no input is worse; a bad case says that the bound is not idle. The search starts from
constructed families (swamping: a large term, then many that are just too small to count; the same and the
large term taken away again; the same in another order) and from random blocks, and changes blocks one by one
while that makes the error larger against its bound. It works on codes and scale codes, so that what it finds
is an input.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .accumulate import Accumulator, Exact
from .blocks import BlockArray, blocks_along, check_choice
from .bounds import error_bound, errors, worst_error_bound
from .dot import Terms, block_dots, check_pair
from .floats import AnyFloats
from .formats import MXFP4, BlockFormat, Codes, Floats, Integers
from .integers import WidthError, sum_bounds
from .profiles import CodeRange, check_formats, check_length, scale_codes
from .sums import lanes_for, reaches

NEAR: Final = 0.95
"""The ratio from which an error has reached its bound, as far as a search is concerned."""
ROWS: Final = 96
"""Candidates that are tried together."""
MOST_TRIES: Final = 1 << 20
"""The most rounds, or orders, that are tried."""


Against = Literal["input", "range"]
"""What an error is held against: the bound of that input, or that of all inputs of its range."""
AGAINST: Final[tuple[Against, ...]] = ("input", "range")


class Family(NamedTuple):
    """Candidates of one kind, one a row: for each block which sum it has, and both scale codes."""

    name: str
    sums: Integers
    scales_a: Integers
    scales_b: Integers


@dataclass(frozen=True)
class BadCase:
    """The dot product of the largest error against its bound that was found.

    a, b: vectors. family: where the search began. result: what the accumulator gives. exact: the exact sum,
    rounded once to float64. error: their distance. bound: what it is held against. ratio: error /
    bound.
    """

    accumulator: Accumulator
    a: BlockArray
    b: BlockArray
    family: str
    result: float
    exact: float
    error: float
    bound: float

    @property
    def ratio(self) -> float:
        """How much of the bound the error takes; 1 is all of it."""
        return self.error / self.bound if self.bound else 0.0

    @property
    def terms(self) -> Terms:
        """The terms that are added: one a block, or one a group of the accumulator's."""
        return block_dots(self.a, self.b, group=self.accumulator.terms_of)

    def __str__(self) -> str:
        """What was found, and its first terms."""
        terms = self.terms
        shown = [
            f"{s}·2^{e}" for s, e in zip(terms.sums[:6].tolist(), terms.exponents[:6].tolist(), strict=True)
        ]
        more = f" … ({len(terms)} terms)" if len(terms) > len(shown) else ""
        return (
            f"{self.accumulator}: {self.result:g} where the exact sum is {self.exact:g}\n"
            f"  the error {self.error:g} is {self.ratio:.3f} of its bound {self.bound:g} ({self.family})\n"
            f"  terms {', '.join(shown)}{more}"
        )


def worst_case(
    accumulator: Accumulator,
    a: BlockFormat = MXFP4,
    b: BlockFormat | None = None,
    *,
    k: int = 1024,
    scales_a: CodeRange | None = None,
    scales_b: CodeRange | None = None,
    against: Against = "input",
    rounds: int = 60,
    seed: int = 0,
) -> BadCase:
    """Search for the dot product of k elements on which the accumulator errs most, against its bound.

    a, b: block formats, b is a's if not given. scales_a, scales_b: the smallest and the largest scale code;
    eight binades either side of 1 if not given. against: the bound of each "input"
    (`mxfp.bounds.error_bound`), or of the whole "range" (`worst_error_bound`), so that the largest error is
    sought. rounds: of changes. The same seed finds the same case. Cases that overflow do not count.
    ValueError if the accumulator is exact on all that was tried, or if the bound of the range is infinite.

    >>> import mxfp
    >>> found = worst_case(mxfp.Sequential("float16"), k=512, rounds=5)
    >>> found.ratio > 0.8, found.error == float(mxfp.bounds.errors(found.accumulator, found.terms))
    (True, True)
    """
    b = a if b is None else b
    rng = np.random.default_rng(seed)
    check_choice(against, AGAINST, "against")
    rounds = _check(accumulator, rounds, "rounds")
    check_formats(a, b)
    space = _Space(accumulator, a, b, check_length(k), scales_a, scales_b)
    if against == "range":
        ranges = [(int(codes[0]), int(codes[-1])) for codes in space.codes]
        space.limit = worst_error_bound(accumulator, a, b, k=k, scales_a=ranges[0], scales_b=ranges[1])
        if not np.isfinite(space.limit):
            raise ValueError(
                f"{accumulator} may overflow on scale codes {ranges[0]} and {ranges[1]} with k = {k}, so its "
                f"error has no bound; give narrower scales_a and scales_b"
            )
    best: tuple[float, BadCase] | None = None
    for start in space.families(rng):
        found = _climbed(space, start, rng, rounds)
        if found is not None and (best is None or found[0] > best[0]):
            best = found
    if best is None:
        raise ValueError(f"{accumulator} was exact, or overflowed, on all that was tried with k = {k}")
    return best[1]


def _climbed(
    space: _Space, family: Family, rng: np.random.Generator, rounds: int
) -> tuple[float, BadCase] | None:
    """The best of a family after so many rounds of changes, row by row only what makes it worse."""
    judged = space.judged(family)
    for _ in range(rounds):
        changed = space.changed(family, rng)
        now = space.judged(changed)
        worse = now.badness > judged.badness
        rows = worse[:, None]
        family = Family(
            family.name, *(np.where(rows, new, old) for new, old in zip(changed[1:], family[1:], strict=True))
        )
        judged = Judged(*(np.where(worse, new, old) for new, old in zip(now, judged, strict=True)))
    row = int(np.argmax(judged.badness))
    if not judged.badness[row] > 0:
        return None
    a, b = (BlockArray(q.codes[row], q.scales[row], q.format) for q in space.blocks(family))
    terms = block_dots(a, b, group=space.accumulator.terms_of)
    result = space.accumulator(terms)
    exact = Exact("float64")(terms)
    case = BadCase(
        space.accumulator,
        a,
        b,
        family.name,
        float(result),
        float(exact),
        float(judged.error[row]),
        float(judged.bound[row]),
    )
    return float(judged.badness[row]), case


class Judged(NamedTuple):
    """What candidates do: their errors, what those are held against, the sums of their terms' sizes."""

    error: Floats
    bound: Floats
    size: Floats

    @property
    def badness(self) -> Floats:
        """The ratio of error to bound; of those that come near it, by the error's share of the size."""
        usable = np.isfinite(self.error) & np.isfinite(self.bound) & (self.bound > 0)
        error = np.where(usable, self.error, 0.0)
        ratio = error / np.where(usable, self.bound, 1.0)
        return np.where(ratio < NEAR, ratio, NEAR + error / np.where(self.size > 0, self.size, 1.0))


class _Space:
    """The inputs that are searched, and what they do to the accumulator."""

    def __init__(
        self,
        accumulator: Accumulator,
        a: BlockFormat,
        b: BlockFormat,
        k: int,
        scales_a: CodeRange | None,
        scales_b: CodeRange | None,
    ) -> None:
        self.accumulator, self.a, self.b, self.k = accumulator, a, b, k
        self.limit: float | None = None
        self.count = blocks_along(k, a.block)
        self.codes = [
            scale_codes(f, _near_one(f) if r is None else r, n)
            for f, r, n in ((a, scales_a, "scales_a"), (b, scales_b, "scales_b"))
        ]
        self.sums = _library(a, b, min(a.block, k))
        pairs = [lanes_for(int(s), a.element, b.element, a.block) for s in self.sums]
        self.pairs: NDArray[np.uint8] = np.array(pairs)

    def blocks(self, family: Family) -> tuple[BlockArray, BlockArray]:
        """The inputs of a family, (rows, k) each."""
        rows = len(family.sums)
        sides = []
        for n, fmt in enumerate((self.a, self.b)):
            codes: Codes = self.pairs[family.sums, n].reshape(rows, -1)[:, : self.k]
            scales = (family.scales_a, family.scales_b)[n].astype(np.uint8)
            sides.append(BlockArray(codes, scales, fmt))
        return sides[0], sides[1]

    def judged(self, family: Family) -> Judged:
        """Error, bound and size of each row; a row that overflows has an infinite bound."""
        terms = block_dots(*self.blocks(family), group=self.accumulator.terms_of)
        bound = error_bound(self.accumulator, terms)
        if self.limit is not None:
            bound = np.where(np.isfinite(bound), self.limit, np.inf)
        size = np.ldexp(np.abs(terms.sums).astype(np.float64), terms.exponents).sum(axis=-1)
        try:
            return Judged(errors(self.accumulator, terms), bound, size)
        except WidthError:  # a register that raises: only the rows that are sure to fit
            sure = np.isfinite(bound)
            error = np.zeros(bound.shape)
            if sure.any():
                a, b = self.blocks(Family(family.name, *(x[sure] for x in family[1:])))
                fitting = block_dots(a, b, group=self.accumulator.terms_of)
                error[sure] = errors(self.accumulator, fitting)
            return Judged(error, bound, size)

    def families(self, rng: np.random.Generator) -> Iterator[Family]:
        """Where the search begins."""
        shape = (ROWS, self.count)
        large, zero = len(self.sums) - 1, int(np.flatnonzero(self.sums == 0)[0])
        small = rng.integers(len(self.sums), size=(ROWS, 1))
        scales = [rng.choice(codes, size=(ROWS, 1)) for codes in self.codes]
        tops = [rng.choice(codes[-4:], size=(ROWS, 1)) for codes in self.codes]
        first = np.arange(self.count) == 0
        last = np.arange(self.count) == self.count - 1
        swamped = [np.where(first, top, low) for top, low in zip(tops, scales, strict=True)]
        yield Family("swamping", np.where(first, large, small), *swamped)
        late = [np.where(last, top, low) for top, low in zip(tops, scales, strict=True)]
        yield Family("swamping, the large term last", np.where(last, large, small), *late)
        both = [np.where(first | last, top, low) for top, low in zip(tops, scales, strict=True)]
        opposite = int(np.argmin(self.sums))
        cancelled = np.where(first, large, np.where(last, opposite, small))
        yield Family("cancellation", cancelled, *both)
        some = np.where(rng.random(shape) < 0.2, zero, rng.integers(len(self.sums), size=shape))
        yield Family("random", some, *(rng.choice(codes, size=shape) for codes in self.codes))

    def changed(self, family: Family, rng: np.random.Generator) -> Family:
        """Every row with one change: a run of blocks takes another sum, other scales, or both."""
        shape = family.sums.shape
        start = rng.integers(self.count, size=(ROWS, 1))
        stop = start + 1 + rng.integers(self.count, size=(ROWS, 1)) * (rng.random((ROWS, 1)) < 0.5)
        place = np.arange(self.count)
        run = (place >= start) & (place < stop)
        sums = np.where(
            run & (rng.random((ROWS, 1)) < 0.6), rng.integers(len(self.sums), size=(ROWS, 1)), family.sums
        )
        scales = []
        for codes, old in zip(self.codes, family[2:], strict=True):
            new = np.where(
                rng.random((ROWS, 1)) < 0.5,
                rng.choice(codes, size=(ROWS, 1)),
                np.clip(old + rng.integers(-1, 2, size=(ROWS, 1)), codes[0], codes[-1]),
            )
            scales.append(np.where(run & (rng.random((ROWS, 1)) < 0.6), new, old).reshape(shape))
        return Family(family.name, sums, scales[0], scales[1])


def _check(accumulator: Accumulator, count: int, name: str) -> int:
    """The count; TypeError for what is no accumulator, ValueError for what is no number."""
    if not isinstance(accumulator, Accumulator):
        raise TypeError(f"accumulator is one such as mxfp.Sequential('float32'), got {accumulator!r}")
    whole = isinstance(count, (int, np.integer)) and not isinstance(count, bool)
    if not whole or not 0 <= count <= MOST_TRIES:
        raise ValueError(f"{name} is a number, 0 … {MOST_TRIES}, got {count!r}")
    return int(count)


def _near_one(fmt: BlockFormat) -> CodeRange:
    """The scale codes within eight binades of 1."""
    near = np.flatnonzero((fmt.scale.values >= 2.0**-8) & (fmt.scale.values <= 2.0**8))
    return int(near[0]), int(near[-1])


def _library(a: BlockFormat, b: BlockFormat, lanes: int) -> Integers:
    """Sums that a block can have, ascending: the ends, small ones, and those near powers of two."""
    low, high = sum_bounds(a.element, b.element, lanes)
    wanted = {0, low, high}
    for n in range(min(high.bit_length(), 40)):
        wanted |= {sign * (size << n) for size in (1, 3, 5, 7) for sign in (1, -1)}
        wanted |= {sign * ((1 << n) + step) for step in (-1, 1) for sign in (1, -1)}
    return np.array(sorted(s for s in wanted if reaches(s, a.element, b.element, lanes)), object)


class Orders(NamedTuple):
    """The smallest and the largest result over orders of the same terms, and those orders."""

    lowest: float
    highest: float
    lowest_order: Integers
    highest_order: Integers


def order_spread(
    accumulator: Accumulator, a: BlockArray, b: BlockArray, *, tries: int = 1000, seed: int = 0
) -> Orders:
    """How far the results of one dot product lie apart over orders of its blocks.

    A partial last block moves with zeros behind it. Tried: as they are, reversed, by value and by size, both
    ways, and `tries` random orders. A sum has no order, so whatever lies between lowest and highest is the
    accumulator's doing. NaN results are left out.

    >>> import mxfp, numpy as np
    >>> a = mxfp.BlockArray(np.repeat(np.uint8([7, 1, 15]), 32), np.uint8([139, 127, 139]), mxfp.MXFP4)
    >>> b = mxfp.BlockArray(np.full(96, 1, np.uint8), np.uint8([139, 127, 139]), mxfp.MXFP4)
    >>> found = order_spread(mxfp.Sequential("float32"), a, b, tries=20)
    >>> found.lowest, found.highest, found.highest_order.tolist()
    (0.0, 8.0, [2, 0, 1])
    """
    tries = _check(accumulator, tries, "tries")
    check_pair(a, b)
    if a.ndim != 1 or b.ndim != 1:
        raise ValueError(f"order_spread takes two vectors, got {a.shape} and {b.shape}")
    terms = block_dots(a, b)
    values = np.array([float(v) for v in terms.fractions()])
    count = len(terms)
    if not count:
        raise ValueError("order_spread takes vectors of one block or more, got none")
    rng = np.random.default_rng(seed)
    by_value, by_size = np.argsort(values, kind="stable"), np.argsort(np.abs(values), kind="stable")
    orders = [np.arange(count), np.arange(count)[::-1], by_value, by_value[::-1], by_size, by_size[::-1]]
    orders += [rng.permutation(count) for _ in range(tries)]
    results = _in_orders(accumulator, a, b, np.array(orders)).astype(np.float64)
    usable = np.flatnonzero(~np.isnan(results))
    if not len(usable):
        return Orders(np.nan, np.nan, orders[0], orders[0])
    low, high = usable[np.argmin(results[usable])], usable[np.argmax(results[usable])]
    return Orders(float(results[low]), float(results[high]), np.array(orders[low]), np.array(orders[high]))


def _in_orders(accumulator: Accumulator, a: BlockArray, b: BlockArray, orders: Integers) -> AnyFloats:
    """The result of every order; a partial last block is filled with zeros before it moves."""
    block, count = a.format.block, orders.shape[1]
    sides = []
    for q in (a, b):
        filled = np.zeros(count * block, np.uint8)
        filled[: q.shape[0]] = q.codes
        codes: Any = filled.reshape(count, block)[orders].reshape(len(orders), -1)
        sides.append(BlockArray(codes, q.scales[orders], q.format, tensor_scale=q.tensor_scale))
    return accumulator(block_dots(sides[0], sides[1], group=accumulator.terms_of))
