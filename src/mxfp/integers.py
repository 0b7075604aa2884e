# SPDX-License-Identifier: Apache-2.0
"""Room 5: codes -> integers in LSB units, and the width that every stage needs, derived (§6.2)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from .formats import BlockFormat, ElementFormat, Integers, check_codes, element_of

MOST_BITS: Final = 4096
"""The widest register that can be declared; the exact sum over all scales takes about 530 bits."""


class WidthError(ValueError):
    """A value does not fit the register that was declared for it.

    block: the block at which it happened. index: of the result (or dot product) it belongs to. value: in
    units of the register's LSB. width: signed bits of the register.
    """

    def __init__(
        self, what: str, of: str, block: int, index: tuple[int, ...], value: int, width: int
    ) -> None:
        low, high = -(1 << (width - 1)), (1 << (width - 1)) - 1
        where = f" of {of} {index}" if index else ""
        super().__init__(
            f"block {block}{where}: {what.format(value)}, which does not fit signed {width} bits "
            f"({low} … {high})"
        )
        self.what, self.of = what, of
        self.block, self.index, self.value, self.width = block, index, value, width

    def __reduce__(self) -> tuple[type[WidthError], tuple[Any, ...]]:
        """Pickle by the arguments, so that it comes back whole from a worker process."""
        return WidthError, (self.what, self.of, self.block, self.index, self.value, self.width)

    def at(self, index: tuple[int, ...]) -> WidthError:
        """The same error at the index that the caller knows it by."""
        return WidthError(self.what, self.of, self.block, index, self.value, self.width)


def check_bits(width: int) -> int:
    """A number of bits of a register; ValueError for anything else."""
    if isinstance(width, bool) or not isinstance(width, (int, np.integer)) or not 1 <= width <= MOST_BITS:
        raise ValueError(f"width is a number of bits, 1 … {MOST_BITS}, got {width!r}")
    return int(width)


def to_integers(codes: Any, fmt: ElementFormat | BlockFormat) -> Integers:
    """uint8 codes (...) -> int64 (...), each value in units of 2**lsb_exponent. Contract §4.

    E2M1 gives twice its values. Codes that are NaN or infinite have no integer: ValueError.

    >>> import mxfp
    >>> mxfp.to_integers([1, 7, 15], mxfp.E2M1).tolist()
    [1, 12, -12]
    """
    element = element_of(fmt)
    checked = check_codes(codes, element.code_count, f"{element.name} codes")
    if not element.finite[checked].all():
        first = tuple(int(i) for i in np.argwhere(~element.finite[checked])[0])
        raise ValueError(
            f"{element.name} code {int(checked[first])} at index {first} is "
            f"{element.values[checked[first]]}, which has no integer"
        )
    return element.integers[checked]


def signed_bits(low: int, high: int) -> int:
    """Bits of the smallest two's-complement register that holds low … high.

    >>> signed_bits(-4608, 4608), signed_bits(-4032, 4032), signed_bits(-4096, 4095)
    (14, 13, 13)
    """
    return 1 + max(high.bit_length() if high >= 0 else 0, (-low - 1).bit_length() if low < 0 else 0)


def product_bounds(a: ElementFormat, b: ElementFormat) -> tuple[int, int]:
    """The smallest and the largest product of two elements, in units of both LSBs.

    >>> from mxfp import E2M1
    >>> product_bounds(E2M1, E2M1)
    (-144, 144)
    """
    ends_a = int(a.integers.min()), int(a.integers.max())
    ends_b = int(b.integers.min()), int(b.integers.max())
    products = [x * y for x in ends_a for y in ends_b]
    return min(products), max(products)


def sum_bounds(a: ElementFormat, b: ElementFormat, terms: int) -> tuple[int, int]:
    """The smallest and the largest sum of `terms` products; both are attained."""
    low, high = product_bounds(a, b)
    return terms * low, terms * high


def sum_width(a: ElementFormat | BlockFormat, b: ElementFormat | BlockFormat, terms: int) -> int:
    """Signed bits that a sum of `terms` products needs, derived from the tables. Contract §4.

    >>> from mxfp import E2M1, E5M2
    >>> [sum_width(E2M1, E2M1, 2**n) for n in range(6)], sum_width(E5M2, E5M2, 32)
    ([9, 10, 11, 12, 13, 14], 70)
    """
    return signed_bits(*sum_bounds(element_of(a), element_of(b), terms))


def wrap(value: Any, width: int) -> Any:
    """Integers -> the same modulo 2**width, as two's complement of that width reads them."""
    return (value + (1 << (width - 1)) & ((1 << width) - 1)) - (1 << (width - 1))


def saturate(value: Any, width: int) -> Any:
    """Integers -> clamped to what two's complement of that width holds."""
    return np.minimum(np.maximum(value, -(1 << (width - 1))), (1 << (width - 1)) - 1)
