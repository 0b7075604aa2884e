# SPDX-License-Identifier: Apache-2.0
"""One hypothesis profile for every test: no deadline, and the same examples on every CI run."""

import os

import pytest
from hypothesis import settings

settings.register_profile("mxfp", deadline=None, derandomize=bool(os.environ.get("CI")), print_blob=True)
settings.load_profile("mxfp")


def pytest_configure(config: pytest.Config) -> None:
    """Without the compiler kernels wrap and overflow as scalars, which warn where machine code is silent."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        config.addinivalue_line(
            "filterwarnings", r"ignore:overflow encountered:RuntimeWarning:mxfp\.kernels\..*"
        )
