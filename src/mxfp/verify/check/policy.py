# SPDX-License-Identifier: Apache-2.0
"""What counts as the same result: the bits, unless a policy is named."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...formats import Bools
from ..digits import floats_of
from ..unit import Unit
from .failure import ulps

EXAMPLES = "bits, nan-any, zero-sign, ulps:1, or several with + between them"


@dataclass(frozen=True)
class Policy:
    """nan_any: every NaN is as good as another. zero_sign: so is every zero. ulps: numbers so far apart are.

    >>> Policy.named("nan-any+ulps:1"), str(Policy())
    (Policy(nan_any=True, zero_sign=False, ulps=1), 'bits')
    """

    nan_any: bool = False
    zero_sign: bool = False
    ulps: int = 0

    @staticmethod
    def named(text: str) -> Policy:
        """The policy of a text; ValueError if there is none."""
        found = {"nan_any": False, "zero_sign": False}
        most = 0
        for word in text.split("+"):
            name, _, number = word.strip().partition(":")
            if name in ("nan-any", "zero-sign") and not number:
                found[name.replace("-", "_")] = True
            elif name == "ulps" and number.isascii() and number.isdigit():
                most = int(number)
            elif word.strip() != "bits":
                raise ValueError(f"no policy {word!r}; there are {EXAMPLES}")
        return Policy(found["nan_any"], found["zero_sign"], most)

    def same(self, unit: Unit, due: NDArray[np.uint64], got: NDArray[np.uint64]) -> Bools:
        """(n,) patterns of results -> which are the same. Sums are compared by bits under any policy."""
        same: Bools = np.asarray(due == got)
        if not unit.scaled or self == Policy():
            return same
        dtype = unit.accumulator.result_dtype
        one, other = (floats_of(bits, dtype) for bits in (due, got))
        if self.nan_any:
            same = same | (np.isnan(one) & np.isnan(other))
        if self.zero_sign:
            same = same | ((one == 0) & (other == 0))
        if self.ulps:
            far, finite = ulps(unit, due, got)
            same = same | (finite & (far <= self.ulps) & ((far > 0) | self.zero_sign))
        return same

    def __str__(self) -> str:
        """The text that names it."""
        words = ["nan-any"] * self.nan_any + ["zero-sign"] * self.zero_sign
        words += [f"ulps:{self.ulps}"] * (self.ulps > 0)
        return "+".join(words) or "bits"
