# SPDX-License-Identifier: Apache-2.0
"""What sort of case one is, by what is expected of it: the classes that a summary counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ..formats import Bools
from .digits import floats_of
from .unit import Unit


def classes_of(unit: Unit, right: Mapping[str, NDArray[Any]]) -> Iterator[tuple[str, Bools]]:
    """Names, and which of n cases are of each; a case can be of several. right: what is expected, by stage.

    By the result: normal, subnormal, +0, -0, +infinity, -infinity, NaN. Sums: positive, negative, zero. And:
    "cancelled", zero from terms that are not; "overflowed", infinite from terms that are finite.
    """
    sums = right["sum"]
    if not unit.scaled:
        yield "positive", sums[:, 0] > 0
        yield "negative", sums[:, 0] < 0
        yield "zero", sums[:, 0] == 0
        return
    dtype = unit.accumulator.result_dtype
    bits = right["result"][:, 0]
    values = floats_of(bits, dtype)
    least = float(ml_dtypes.finfo(dtype).smallest_normal)  # type: ignore[no-untyped-call]
    size, negative = np.abs(values), np.signbit(values)
    finite = (right["special"] == 0).all(axis=1)
    yield "normal", (size >= least) & np.isfinite(values)
    yield "subnormal", (size < least) & (size > 0)
    yield "+0", (values == 0) & ~negative
    yield "-0", (values == 0) & negative
    yield "+infinity", values == np.inf
    yield "-infinity", values == -np.inf
    yield "NaN", np.isnan(values)
    yield "cancelled to 0", (values == 0) & ~negative & finite & (sums != 0).any(axis=1)
    yield "overflowed", np.isinf(values) & finite
