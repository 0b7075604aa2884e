# SPDX-License-Identifier: Apache-2.0
"""Side room of `strategies`: a pair for a dot product, in words: each block, and each lane that is not 0."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from .blocks import BlockArray
from .dot import block_dots
from .formats import BlockFormat


class DotPair(NamedTuple):
    """Two BlockArrays for a dot product, `a, b = pair`; it prints as `describe` does."""

    a: BlockArray
    b: BlockArray

    def __repr__(self) -> str:
        """The lines of `describe`."""
        return describe(self.a, self.b)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How hypothesis and IPython print it: the same lines, indented."""
        with printer.indent(4):
            for n, line in enumerate(describe(self.a, self.b).splitlines()):
                if n:
                    printer.break_()
                printer.text(line)


def fewest_and_most(blocks: Any) -> tuple[int, int]:
    """How many blocks a pair may have, as `strategies.dot_pairs` takes it: a number, or two -> two."""
    ends = tuple(blocks) if isinstance(blocks, (tuple, list)) else (blocks, blocks)
    whole = all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in ends)
    if len(ends) != 2 or not whole or not 1 <= ends[0] <= ends[1]:
        raise ValueError(f"blocks is a number of blocks, 1 or more, or (fewest, most), got {blocks!r}")
    return int(ends[0]), int(ends[1])


def describe(a: BlockArray, b: BlockArray) -> str:
    """Two vectors (K,) for a dot product -> lines for a person: its blocks, and all lanes that are not 0.

    Neighbouring lanes that hold the same share a line. Tensor scales count for the exact sum alone.

    >>> import mxfp
    >>> q = mxfp.quantize([6.0, 6.0, 0.5])
    >>> print(describe(q, q))
    MXFP4 × MXFP4, K = 3, exact sum 72.25
    block 0: scales 127 × 127, term 289 · 2^-2 = 72.25
      lanes 0–1: 6 × 6 (codes 7, 7)
      lane 2: 0.5 × 0.5 (codes 1, 1)
    """
    terms = block_dots(a, b)
    if terms.sums.ndim != 1:
        raise ValueError(f"describe takes two vectors, got {a.shape} and {b.shape}; take one row of each")
    values, specials = terms.fractions(), terms.specials
    if specials is not None and (specials != 0).any():
        with np.errstate(invalid="ignore"):  # infinities of both signs
            total = f"{specials.sum():g}"
    else:
        total = _text(values.sum() * Fraction(a.tensor_scale) * Fraction(b.tensor_scale))
    lines = [f"{a.format} × {b.format}, K = {a.shape[-1]}, exact sum {total}"]
    pairs = list(zip(a.codes.tolist(), b.codes.tolist(), strict=True))
    for n in range(len(terms)):
        if specials is not None and specials[n]:
            term = f"{specials[n]:g}"
        elif terms.sums[n]:
            term, value = f"{terms.sums[n]} · 2^{terms.exponents[n]}", _text(values[n])
            term += f" = {value}" if value != term else ""
        else:
            term = "0"
        lines.append(f"block {n}: scales {a.scales[n]} × {b.scales[n]}, term {term}")
        lines += _lanes(pairs[n * a.format.block : (n + 1) * a.format.block], a.format, b.format)
    return "\n".join(lines)


def _lanes(pairs: list[tuple[int, int]], a: BlockFormat, b: BlockFormat) -> list[str]:
    """One line for each run of lanes that hold the same, zeros left out."""
    lines, lane = [], 0
    while lane < len(pairs):
        first, (code_a, code_b) = lane, pairs[lane]
        while lane < len(pairs) and pairs[lane] == (code_a, code_b):
            lane += 1
        if code_a or code_b:
            shown = f"lane {first}" if lane == first + 1 else f"lanes {first}–{lane - 1}"
            x, y = a.element.values[code_a], b.element.values[code_b]
            lines.append(f"  {shown}: {x:g} × {y:g} (codes {code_a}, {code_b})")
    return lines


def _text(value: Any) -> str:
    """A dyadic Fraction, exactly: in decimals where they are few, else as integer · 2^exponent."""
    value = Fraction(value)
    if value.denominator <= 1024 and abs(value) < 1 << 40:
        return str(value.numerator) if value.denominator == 1 else str(float(value))
    zeros = (value.numerator & -value.numerator).bit_length() - 1
    odd, exponent = value.numerator >> zeros, zeros + 1 - value.denominator.bit_length()
    return f"{odd} · 2^{exponent}" if abs(odd) > 1 else f"{'-' * (odd < 0)}2^{exponent}"
