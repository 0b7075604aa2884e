# SPDX-License-Identifier: Apache-2.0
"""Two model files, tensor by tensor: what is equal in every bit, and how the rest differs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..blocks import BlockArray
from .blockwise import pieces
from .choosing import FLOATS
from .dtypes import is_array
from .header import FileError
from .kinds import Counts, First, counts_of, same
from .model import ModelFile
from .pipeline import in_order
from .tensor import Tensor

Status = Literal["equal", "differs", "shape", "type"]
"""Equal bits; other bits; not compared further, as shapes differ; of another type, format or block axis."""


@dataclass(frozen=True)
class Pair:
    """A tensor that is in both files, and in the source if that has one that fits.

    without_source: why there is none, if a source was given.
    """

    a: Tensor
    b: Tensor
    source: Tensor | None = None
    without_source: str = ""

    @property
    def name(self) -> str:
        """Its name, as A has it."""
        return self.a.name


@dataclass(frozen=True)
class TensorDifference:
    """How one tensor differs: by kind, and the first that does. note: what differs beside bits."""

    pair: Pair
    status: Status
    counts: Counts
    note: str = ""

    @property
    def blocks(self) -> bool:
        """Whether it is in blocks of one format in both files, and could be compared."""
        return self.pair.a.format is not None and self.status in {"equal", "differs"}


@dataclass(frozen=True)
class Difference:
    """Two files: their tensors in the order of A, and the names that only one has."""

    a: ModelFile
    b: ModelFile
    tensors: tuple[TensorDifference, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether both have the same tensors, with the same bits; layouts and metadata may differ."""
        return not (self.only_a or self.only_b) and all(t.status == "equal" for t in self.tensors)

    @property
    def in_blocks(self) -> tuple[TensorDifference, ...]:
        """Tensors in blocks of one format in both, that differ."""
        return tuple(t for t in self.tensors if t.blocks and t.status == "differs")


def pairs_of(
    a: ModelFile,
    b: ModelFile,
    source: ModelFile | None = None,
    *,
    chosen: Callable[[str], bool] = lambda name: True,
    renames: Sequence[tuple[str, str]] = (),
) -> tuple[list[Pair], list[str], list[str]]:
    """Tensors of one name in both files; and the names that only A has, and only B.

    chosen: which names. renames: (regular expression, replacement), applied in their order to the names of B
    and of the source. FileError if two names become one, or an expression is none.
    """
    others = {renamed(tensor.name, renames): tensor for tensor in b.tensors}
    if len(others) < len(b.tensors):
        raise FileError(f"{b.path}: --rename gives {len(b.tensors) - len(others)} of its tensors names twice")
    floats = {} if source is None else {renamed(t.name, renames): t for t in source.tensors}
    found = []
    for tensor in a.tensors:
        if chosen(tensor.name) and tensor.name in others:
            given, reason = None, ""
            if source is not None:
                given, reason = _fitting(tensor, floats.get(tensor.name))
            found.append(Pair(tensor, others[tensor.name], given, reason))
    names = {tensor.name for tensor in a.tensors}
    only_a = [name for name in a.names if chosen(name) and name not in others]
    only_b = [name for name in others if chosen(name) and name not in names]
    return found, only_a, only_b


def renamed(name: str, renames: Sequence[tuple[str, str]]) -> str:
    r"""A name after all renames.

    >>> renamed("model.layers.3.up", [(r"^model\.layers\.", "blk.")])
    'blk.3.up'
    """
    for pattern, replacement in renames:
        try:
            name = re.sub(pattern, replacement, name)
        except (re.error, IndexError) as error:
            raise FileError(f"--rename {pattern}={replacement}: {error}") from None
    return name


def _fitting(tensor: Tensor, given: Tensor | None) -> tuple[Tensor | None, str]:
    """The tensor of a source, if what a file has can have been made of it; or else why not."""
    if given is None:
        return None, "the source has none of this name"
    if given.shape != tensor.shape:
        return None, f"the source has shape {given.shape}"
    if given.type not in (*FLOATS, "F64"):
        return None, f"the source has it in {given.type}, expected floats"
    return given, ""


def compare(
    a: ModelFile,
    b: ModelFile,
    source: ModelFile | None = None,
    *,
    chosen: Callable[[str], bool] = lambda name: True,
    renames: Sequence[tuple[str, str]] = (),
    progress: Callable[[str, int], None] = lambda name, nbytes: None,
) -> Difference:
    """Compare two files by bits: codes, scales and tensor scales of blocks, whatever the layouts.

    source: the floats that both were made of, which tell ties from other neighbours. chosen, renames: as for
    `pairs_of`. progress: called with a name and bytes of A done. Memory: as many tiles of a million elements
    of each file as there are threads, and one more. FileError where a file is not as its header says.
    """
    found, only_a, only_b = pairs_of(a, b, source, chosen=chosen, renames=renames)
    job = _Job(a, b, source)
    notes = {pair.name: _known(pair) for pair in found}
    totals = {pair.name: Counts() for pair in found}
    work = ((pair, *cut) for pair in found for cut in _cuts(pair, *notes[pair.name]))
    for pair, nbytes, counts in in_order(job.run, work):
        totals[pair.name].add(counts)
        progress(pair.name, nbytes)
    made = tuple(_made(pair, *notes[pair.name], totals[pair.name]) for pair in found)
    return Difference(a, b, made, tuple(only_a), tuple(only_b))


def _known(pair: Pair) -> tuple[Status, str]:
    """What differs before anything is read, and how; "equal" if bits decide."""
    a, b = pair.a, pair.b
    if a.shape != b.shape:
        return "shape", f"{a.shape} in A, {b.shape} in B"
    if a.format != b.format or (a.format is None and a.type != b.type):
        return "type", f"{a.type} in A, {b.type} in B"
    if a.format is not None and a.block_axis != b.block_axis:
        return "type", f"blocks along axis {a.block_axis} in A, {b.block_axis} in B"
    return "equal", ""


def _cuts(pair: Pair, status: Status, note: str) -> Iterator[tuple[int, int]]:
    """Rows to compare: none of what differs in shape, and of other types only floats, by value."""
    floats = {pair.a.type, pair.b.type} <= {*FLOATS, "F64"}
    if not pair.a.elements or status == "shape" or (status == "type" and not floats):
        return iter(())
    return pieces(pair.a, pair.b)


def _made(pair: Pair, status: Status, note: str, counts: Counts) -> TensorDifference:
    """The result for one tensor."""
    if status == "type" and {pair.a.type, pair.b.type} <= {*FLOATS, "F64"}:
        note += "; the same values" if counts.equal else "; other values too"
    if counts.tensor_scales:
        note = "tensor scale {!r} in A, {!r} in B".format(*counts.tensor_scales)
    if status == "equal" and not counts.equal:
        status = "differs"
    return TensorDifference(pair, status, counts, note)


class _Job:
    """What the threads share."""

    def __init__(self, a: ModelFile, b: ModelFile, source: ModelFile | None) -> None:
        self.a, self.b, self.source = a, b, source

    def run(self, job: tuple[Pair, int, int]) -> tuple[Pair, int, Counts]:
        """Compare some rows."""
        pair, start, stop = job
        nbytes = pair.a.nbytes * (stop - start) // pair.a.rows
        if pair.a.format is None and not is_array(pair.a.type):
            one, other = (m.raw(t.name, start, stop) for m, t in ((self.a, pair.a), (self.b, pair.b)))
            count = int(np.count_nonzero(one != other))
            return pair, nbytes, Counts(Counter(bytes=count) if count else Counter())
        a, b = self.a.rows(pair.a.name, start, stop), self.b.rows(pair.b.name, start, stop)
        if not isinstance(a, BlockArray) and not isinstance(b, BlockArray):
            return pair, nbytes, _arrays(a, b, start)
        assert isinstance(a, BlockArray)
        assert isinstance(b, BlockArray)
        if same(a, b):
            return pair, nbytes, Counts()
        x = None
        if self.source is not None and pair.source is not None:
            x = self.source.values(pair.source.name, start, stop)
        return pair, nbytes, counts_of(a, b, start, x)


def _arrays(a: NDArray[Any], b: NDArray[Any], start: int) -> Counts:
    """Rows of two arrays of one shape; of two dtypes by their values in float64."""
    if a.dtype != b.dtype:
        with np.errstate(invalid="ignore"):
            a, b = a.astype(np.float64), b.astype(np.float64)
    differ = (_bytes(a) != _bytes(b)).any(axis=1)
    if not differ.any():
        return Counts()
    flat = int(np.argmax(differ))
    index = tuple(int(i) for i in np.unravel_index(flat, a.shape))
    at = (index[0] + start, *index[1:]) if index else ()
    one, other = (_number(x[index]) for x in (a, b))
    if str(one) == str(other):  # two NaN, or bytes that mean the same
        one, other = (
            f"{n} (bits {_bytes(x)[flat, ::-1].tobytes().hex()})" for n, x in ((one, a), (other, b))
        )
    return Counts(Counter(bits=int(np.count_nonzero(differ))), first=First(at, one, other))


def _bytes(x: NDArray[Any]) -> NDArray[np.uint8]:
    """(n, bytes of one element)."""
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8).reshape(x.size, -1)


def _number(x: Any) -> float | str:
    """An element, to be shown; complex ones as a text."""
    kind = x.dtype.kind
    return str(x) if kind == "c" else int(x) if kind in "iub" else float(x)
