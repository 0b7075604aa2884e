# SPDX-License-Identifier: Apache-2.0
"""The journal of a campaign: one line a finished case, kept beside the results until all are there.

A process that is killed loses at most the line that it was writing. Records stay on disk; in memory is
only where each begins.
"""

from __future__ import annotations

import contextlib
import os
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO

import numpy as np

from ..whole import write_whole
from .campaign import Campaign, CampaignError
from .lines import Record, check_file, line_of, number_of, record_of

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]


class Journal:
    """The finished cases of a campaign that is under way, as a context manager.

    Opening reads what an earlier run left, and drops a last line that was not finished. Raises
    CampaignError for a file that is no journal of this campaign, made by these versions of mxfp and numpy
    (whose streams may change), and for one that another process is writing.
    """

    def __init__(self, campaign: Campaign, results: Path) -> None:
        self.campaign = campaign
        self.results = results
        self.path = journal_of(results)
        self.header = line_of({**campaign.header(), "schema": "mxfp-journal/1", "numpy": np.__version__})
        self.places = array("q", [-1]) * len(campaign)
        self.done = 0

    def __enter__(self) -> Journal:
        """Open, lock and read."""
        while True:
            check_file(self.path)
            self.file: IO[bytes] = self.path.open("a+b")
            try:
                self._lock()
                if self._is_there():
                    self._read()
                    return self
                self.file.close()
            except BaseException:
                self.file.close()
                raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Close; a journal that has nothing in it goes."""
        with contextlib.suppress(OSError) if error else contextlib.nullcontext():  # a full disk is full twice
            if not self.done and not self.file.closed:
                self.remove()
            self.file.close()

    def _lock(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CampaignError(f"another process is at work on {self.results}") from None

    def _is_there(self) -> bool:
        """Whether what is open still has its name: who had it before may have finished and removed it."""
        try:
            return os.path.samestat(os.fstat(self.file.fileno()), self.path.stat())
        except FileNotFoundError:
            return False

    def _read(self) -> None:
        """Find the line of every finished case; leave the file ending with a whole line."""
        self.file.seek(0)
        first = self.file.readline()
        if first != self.header:
            if not self.header.startswith(first):
                raise CampaignError(
                    f"{self.path} belongs to another campaign, or to other versions of mxfp or numpy; go on "
                    "with that one, remove the file, or choose another place for the results"
                )
            self.file.truncate(0)
            self.file.write(self.header)
            self.file.flush()
            return
        end = self.file.tell()
        for n, line in enumerate(iter(self.file.readline, b""), 2):
            number = number_of(record_of(line), self.campaign)
            if number is None:
                if self.file.read(1):
                    raise CampaignError(f"{self.path}, line {n} is damaged; remove it or the file")
                break
            if self.places[number] < 0:
                self.done += 1
                self.places[number] = end
            end += len(line)
        self.file.truncate(end)

    def missing(self) -> Iterator[int]:
        """The numbers of the cases that are not finished."""
        return (number for number, place in enumerate(self.places) if place < 0)

    def has(self, number: int) -> bool:
        """Whether a case is finished."""
        return self.places[number] >= 0

    def add(self, record: Record) -> None:
        """Keep a finished case: after this it outlives the process."""
        self.file.seek(0, os.SEEK_END)
        place = self.file.tell()
        self.file.write(line_of(record))
        self.file.flush()
        self.places[record["case"]] = place
        self.done += 1

    def finish(self) -> None:
        """Write the results, whole and in the order of the cases, and remove the journal."""

        def write(out: IO[bytes]) -> None:
            out.write(line_of(self.campaign.header()))
            for place in self.places:
                self.file.seek(place)
                out.write(self.file.readline())

        write_whole(self.results, write)
        self.remove()

    def remove(self) -> None:
        """Take the journal away, while nobody else can have it, and close it."""
        if fcntl is None:
            self.file.close()
        self.path.unlink(missing_ok=True)
        self.file.close()


def journal_of(results: Path) -> Path:
    """Where the journal of a results file stands."""
    return results.with_name(f"{results.name}.journal")
