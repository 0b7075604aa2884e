# SPDX-License-Identifier: Apache-2.0
"""The instruction sets that kernels are written for, which of them this process can use, and which it does.

Each is a tag: an argument whose type alone decides which micro-kernel is compiled into the loops around
it. The bits are the same for all.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple

import numba

_config: Any = numba.config


class Avx512Vnni(NamedTuple):
    """512-bit vectors and `vpdpbusd`: 64 products of bytes an instruction, added in int32."""

    bits: int = 512


class Avx2(NamedTuple):
    """256-bit vectors and `vpmaddubsw`: 32 products of bytes an instruction, added in pairs in int16."""

    bits: int = 256


class Portable(NamedTuple):
    """Plain loops for any machine that LLVM compiles for, and for Python where the compiler is off."""

    bits: int = 0


Isa = Avx512Vnni | Avx2 | Portable

_TAGS: Final[dict[str, Isa]] = {"avx512vnni": Avx512Vnni(), "avx2": Avx2(), "portable": Portable()}
INSTRUCTION_SETS: Final = tuple(_TAGS)
"""All of them by name, the widest first."""
VARIABLE: Final = "MXFP_ISA"
"""The environment variable that chooses one."""

_FEATURES: Final = {
    "avx512vnni": ("avx512f", "avx512bw", "avx512vl", "avx512vnni", "avx2", "fma"),
    "avx2": ("avx2", "fma"),
    "portable": (),
}


@cache
def available() -> tuple[str, ...]:
    """Names of those that numba compiles for in this process, the widest first."""
    if _config.DISABLE_JIT:
        return ("portable",)
    on_x86 = target().startswith("x86_64")
    has = features()
    return tuple(name for name, needs in _FEATURES.items() if has.issuperset(needs) and (on_x86 or not needs))


def target() -> str:
    """What numba compiles for in this process, as LLVM names it: x86_64-unknown-linux-gnu; "" for nothing."""
    return "" if _config.DISABLE_JIT else str(_magic()[0])


def features() -> frozenset[str]:
    """What that machine has, by LLVM's names: avx2, f16c."""
    return frozenset(name[1:] for name in _magic()[2].split(",") if name.startswith("+"))


def _magic() -> Any:
    from numba.core.registry import cpu_target

    return cpu_target.target_context.codegen().magic_tuple()


_forced: list[list[str]] = []


def chosen() -> str:
    """The one in use: `using`, then the environment variable, then the widest there is."""
    if _forced:
        return _forced[-1][0]
    name = os.environ.get(VARIABLE, "")
    return _checked(name, f"the environment variable {VARIABLE}") if name else available()[0]


def _checked(name: str, what: str) -> str:
    if name not in available():
        raise ValueError(f"{what} takes an instruction set of {', '.join(available())} here, got {name!r}")
    return name


def widest() -> Isa:
    """The tag of the widest there is, whatever is chosen."""
    return _TAGS[available()[0]]


def tag() -> Isa:
    """The tag of the one in use."""
    return _TAGS[chosen()]


@contextlib.contextmanager
def using(name: str) -> Iterator[None]:
    """Use another one for a while, in every thread: for comparing them. ValueError if it is not there."""
    forced = [_checked(name, "isa.using")]
    _forced.append(forced)
    try:
        yield
    finally:
        _forced[:] = [other for other in _forced if other is not forced]
