# SPDX-License-Identifier: Apache-2.0
"""The same contests with AVX2 kernels on both sides, in a process of its own: BLAS chooses once."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from mxfp.kernels import isa

from . import ROOT
from .contest import Record
from .results import from_json

AVX2: Final = {"OPENBLAS_CORETYPE": "Haswell", "MXFP_ISA": "avx2"}
"""OpenBLAS's kernels for AVX2, and ours."""
GROUPS: Final = ("gemm", "gemv", "end-to-end")
FILE: Final = "performance.json"
SUITE: Final = "pair"
"""Of the records: a headline of their own."""


def possible(blas: str) -> bool:
    """Whether there is another pair to measure: on x86, where BLAS or mxfp now run something wider."""
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    return x86 and "avx2" in isa.available() and not ("Haswell" in blas and isa.chosen() == "avx2")


def avx2(groups: Sequence[str], options: Sequence[str]) -> list[Record]:
    """The records of these groups of the headline, with AVX2 kernels on both sides."""
    with tempfile.TemporaryDirectory() as directory:
        only = [word for group in groups for word in ("--only", group)]
        command = [sys.executable, "-m", "benchmarks", "--suite", "headline", *only, *options]
        command += ["--no-pair", "--quiet", "--out", directory]
        subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, **AVX2})
        found = from_json((Path(directory) / FILE).read_text(encoding="utf-8")).records
    return [replace(record, suite=SUITE) for record in found]
