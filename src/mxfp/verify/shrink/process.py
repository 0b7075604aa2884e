# SPDX-License-Identifier: Apache-2.0
"""A shell command run within limits of time and of what it writes, and ended with all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LOOKED: Final = 0.2
"""Seconds between two looks at a command that runs."""
TAIL: Final = 4096
"""Bytes at the end of what it wrote that are quoted from."""


class RunError(RuntimeError):
    """The unit could not be run: what happened, and what it said."""


@dataclass(frozen=True)
class Ended:
    """A command that ended by itself. said, errors: the files of its standard output and error."""

    code: int
    said: Path
    errors: Path

    def __str__(self) -> str:
        """How it ended, where that was not well."""
        if not self.code:
            return ""
        if self.code < 0:
            return f" and was killed by signal {-self.code}"
        return f" and ended with exit status {self.code}"


def run_shell(text: str, given: bytes, folder: Path, *, timeout: float, most: int) -> Ended:
    """Run a shell command in a process group of its own.

    given: its standard input. folder: where what it writes is kept; it is in its environment, as MXFP_FOLDER.
    RunError where it takes more than `timeout` seconds or writes more than `most` bytes; then, and on Ctrl-C,
    the whole group is killed.
    """
    names = ("input", "said", "errors")
    paths = {name: folder / f"{name}.txt" for name in names}
    paths["input"].write_bytes(given)
    with contextlib.ExitStack() as stack:
        modes = zip(names, ("rb", "wb", "wb"), strict=True)
        files = [stack.enter_context(paths[name].open(mode)) for name, mode in modes]
        process = subprocess.Popen(
            text,
            shell=True,
            stdin=files[0],
            stdout=files[1],
            stderr=files[2],
            start_new_session=True,
            env={**os.environ, "MXFP_FOLDER": str(folder)},
        )
        try:
            code = _waited(process, paths["said"], paths["errors"], timeout, most)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
    return Ended(code, paths["said"], paths["errors"])


def _waited(process: subprocess.Popen[bytes], said: Path, errors: Path, timeout: float, most: int) -> int:
    end = time.monotonic() + timeout
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(max(0.0, min(LOOKED, end - time.monotonic())))
        if said.stat().st_size + errors.stat().st_size > most:
            raise RunError(f"the command writes on and on, more than {most:,} bytes{tail(said, errors)}")
        if time.monotonic() >= end:
            raise RunError(f"the command did not end within {timeout:g} seconds{tail(said, errors)}")


def tail(*paths: Path) -> str:
    """The last lines of some files, as the end of a sentence."""
    text = b""
    for path in paths:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            text += file.read(TAIL)
    shown = [ascii(line)[1:-1] for line in text.decode(errors="replace").strip().splitlines()[-3:]]
    return "; it said: " + " | ".join(shown)[-300:] if shown else ""
