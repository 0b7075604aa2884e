# SPDX-License-Identifier: Apache-2.0
"""One decorator for every kernel: the same options everywhere, and never `fastmath`, which changes bits.

And what goes with it: machine code kept on disk, and a word while the compiler works.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import logging
import os
import pickle
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any, Final, TypeVar, cast

_began = time.perf_counter()

import numba  # noqa: E402 - its time is part of the first call
import numpy as np  # noqa: E402
from numba.core import event  # noqa: E402

_nb: Any = numba
Function = TypeVar("Function", bound=Callable[..., Any])

PATIENCE: Final = 1.0
"""Seconds that a call may compile before it says so."""
SILENCE: Final = 60.0
"""Seconds after that in which it does not say so again."""


def kernel(function: Function) -> Function:
    """Compile a function on its first call, without the GIL; cached on disk where that is possible.

    The function itself with NUMBA_DISABLE_JIT.
    """
    dispatcher = _nb.njit(nogil=True, error_model="numpy", boundscheck=False)(function)
    _ours.add(dispatcher)
    if _KNOWN and hasattr(dispatcher, "_cache"):
        dispatcher._cache = _Disk(dispatcher)
    return cast(Function, dispatcher)


_ours: weakref.WeakSet[Any] = weakref.WeakSet()
"""The dispatchers made here, among all those of the process."""


if hasattr(os, "register_at_fork"):
    with contextlib.suppress(ImportError):
        from numba.core.compiler_lock import global_compiler_lock

        # A fork waits for another thread's compilation: a child from its middle could never compile again.
        os.register_at_fork(
            before=global_compiler_lock.acquire,
            after_in_parent=global_compiler_lock.release,
            after_in_child=global_compiler_lock.release,
        )


# --- machine code on disk


class _Disk:
    """The machine code of one dispatcher on disk, a file for each signature, in numba's cache directory.

    numba's own cache asks only whether the file of the function itself has changed, not those of the
    kernels that it calls, and keeps an index beside the code, in two steps that a full disk, or another
    process, can separate. Here the name of a file is a digest of all that its code was made of, and the
    file holds a digest of itself. Whatever else happens, there is no file, and the kernel is compiled anew.
    """

    def __init__(self, dispatcher: Any) -> None:
        self.dispatcher = dispatcher

    @functools.cached_property
    def _impl(self) -> Any:
        """What knows the directory, and how to take code apart for a file and to put it together again."""
        return _caching.CompileResultCacheImpl(self.dispatcher.py_func)

    @property
    def cache_path(self) -> str | None:
        """The directory, or None where there is none to write to."""
        with contextlib.suppress(Exception):
            return str(self._impl.locator.get_cache_path()) if _SOURCES else None
        return None

    def flush(self) -> None:
        """Remove every file of this function."""
        self._remove(lambda name: True)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Compiled code for a signature, or None if it has to be compiled."""
        with contextlib.suppress(Exception):
            if self.cache_path:
                target_context.refresh()
                file = self._file(sig, target_context.codegen())
                content = file.read_bytes()
                body = content[32:]
                if content == _sealed(file, body):
                    found, parts = pickle.loads(body)
                    return self._impl.rebuild(target_context, parts) if found == sig else None
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep compiled code, unless a source has changed since it was read."""
        with contextlib.suppress(Exception):
            if not self.cache_path or _sources() != _SOURCES or not self._impl.check_cachable(data):
                return
            body = _serialize.dumps((sig, self._impl.reduce(data)))
            file = self._file(sig, data.codegen)
            self._impl.locator.ensure_cache_path()
            _write(file, _sealed(file, body))
            self._remove(lambda name: f".{_SOURCES[:8]}." not in name)

    def _file(self, sig: Any, codegen: Any) -> Path:
        """The file of a signature, named after everything its code depends on."""
        function = self.dispatcher.py_func
        parts = [
            _SOURCES,
            *(sys.version, numba.__version__, np.__version__, *map(str, codegen.magic_tuple())),
            *(str(sig), str(sorted(self.dispatcher.targetoptions.items()))),
            *(f"{name} {getattr(_nb.config, name, None)}" for name in _FLAGS),
            *_made_of(function, set()),
        ]
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
        return Path(self._impl.locator.get_cache_path(), f"{self._stem}.{_SOURCES[:8]}.{digest}.nbc")

    @property
    def _stem(self) -> str:
        function = self.dispatcher.py_func
        name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
        return f"{name.replace('<', '').replace('>', '')}.{sys.implementation.cache_tag}"

    def _remove(self, which: Callable[[str], bool]) -> None:
        """Remove files of this function: those of earlier sources can never be of use again."""
        with contextlib.suppress(Exception):
            for path in Path(self._impl.locator.get_cache_path()).glob(f"{self._stem}.*.nbc*"):
                if which(path.name):
                    path.unlink()


def _sealed(file: Path, body: bytes) -> bytes:
    """What a file holds: a digest of its name and its body, and the body."""
    return hashlib.sha256(file.name.encode() + body).digest() + body


def _write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, whoever else writes it."""
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        draft.write_bytes(content)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _sources() -> str:
    """A digest of the rooms and the kernels as they lie on disk, empty where they do not."""
    here, digest = Path(__file__), hashlib.sha256()
    paths = [*here.parent.glob("*.py"), *here.parents[1].glob("*.py")]
    try:
        for path in sorted(paths):
            content = path.read_bytes()
            digest.update(f"{path.parent.name}/{path.name} {len(content)}\n".encode() + content)
    except OSError:
        return ""
    return digest.hexdigest() if here in paths else ""


def _made_of(function: Any, seen: set[int]) -> Iterator[str]:
    """A function as it is in memory: bytecode, and the constants and kernels that it takes from around it.

    The sources on disk may be newer, where somebody edits them while the process runs.
    """
    if id(function) in seen:
        return
    seen.add(id(function))
    for code in _codes(function.__code__):
        yield f"{code.co_name} {code.co_code.hex()} {code.co_names}"
        yield from _constant(code.co_consts, seen)
        for name in code.co_names:
            yield from _constant(function.__globals__.get(name), seen)
    for cell in function.__closure__ or ():
        yield from _constant(cell.cell_contents, seen)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _constant(value: Any, seen: set[int]) -> Iterator[str]:
    """What the compiler would freeze into machine code."""
    function = getattr(value, "py_func", getattr(value, "_defn", None))
    if function is not None:
        yield from _made_of(function, seen)
    elif isinstance(value, tuple):
        for part in value:
            yield from _constant(part, seen)
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype.descr} {value.shape} {value.tobytes().hex()}"
    elif isinstance(value, (bool, int, float, complex, str, bytes, np.generic)):
        yield f"{type(value).__name__} {value!r}"


_SOURCES: Final = _sources()
"""Taken as the wing is imported: what is imported later and has changed by then is not kept on disk."""

_FLAGS: Final = ("BOUNDSCHECK", "OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "USING_SVML", "DEBUGINFO_DEFAULT")
"""What numba takes from the environment and puts into code."""

_KNOWN = False
"""Whether numba's insides are as `_Disk` knows them. If they are not, nothing is kept on disk."""
with contextlib.suppress(ImportError, AttributeError):
    _caching: Any = importlib.import_module("numba.core.caching")
    _serialize: Any = importlib.import_module("numba.core.serialize")
    _KNOWN = (
        _caching._Cache.__abstractmethods__ <= {*dir(_Disk), "enable", "disable"}
        and {"locator", "reduce", "rebuild", "check_cachable"} <= set(dir(_caching.CompileResultCacheImpl))
        and callable(_serialize.dumps)
    )


# --- a word while the compiler works


class _Notice(event.Listener):  # type: ignore[misc, unused-ignore]
    """Says so, on the logger "mxfp", when kernels have been compiling for a second."""

    def __init__(self) -> None:
        self.outermost: Any = None
        self.timer: threading.Timer | None = None
        self.started = self.ended = time.perf_counter()
        self.spent = self.started - _began
        self.silent_until = 0.0

    def on_start(self, event: Any) -> None:
        """One of our kernels, perhaps for the sake of another, begins to compile."""
        dispatcher, now = event.data["dispatcher"], time.perf_counter()
        nested = self.outermost is not None and self.outermost.is_compiling
        if dispatcher not in _ours or nested or now < self.silent_until:
            return
        if now - self.ended > PATIENCE:
            self.spent = 0.0
        self.outermost, self.started = dispatcher, now
        self.timer = threading.Timer(max(0.0, PATIENCE - self.spent), self.say, (dispatcher,))
        self.timer.daemon = True
        with contextlib.suppress(RuntimeError):  # no threads here, or no longer
            self.timer.start()

    def on_end(self, event: Any) -> None:
        """It is done, or has failed."""
        if self.timer is not None and event.data["dispatcher"] is self.outermost:
            self.timer.cancel()
            self.timer = self.outermost = None
            self.ended = time.perf_counter()
            self.spent += self.ended - self.started

    def say(self, dispatcher: Any) -> None:
        """The word itself."""
        self.silent_until = time.perf_counter() + SILENCE
        name = dispatcher.py_func.__module__.rpartition(".")[2]
        path = dispatcher.stats.cache_path
        kept = (
            f"; later runs find them in {path}"
            if path
            else ", anew in every run: they cannot be cached (NUMBA_CACHE_DIR names a directory)"
        )
        logging.getLogger("mxfp").warning("mxfp: compiling the %s kernels for this machine%s", name, kept)


_nb.core.event.register("numba:compile", _Notice())
