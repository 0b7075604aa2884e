# SPDX-License-Identifier: Apache-2.0
"""Run a campaign: cases to an executor, a bounded number at a time; records to the journal as they come."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from pathlib import Path
from typing import Any, Final

from .campaign import Campaign, CampaignError
from .journal import Journal, journal_of
from .lines import Record
from .results import Results
from .workers import Alone, Pool, cores, task, versions

AHEAD: Final = 4
"""Cases given out for each worker: enough that none waits, few however long the campaign."""
NAMED: Final = 5
"""Failed cases that an error names."""
LONGEST: Final = 300
"""Characters of what each says; registers of thousands of bits have much to say."""

Progress = Callable[[str, int, int], None]
"""Called with what is done, how many of it, and of how many."""


class CampaignInterrupted(KeyboardInterrupt):
    """Ctrl-C during a campaign: what is kept, and how to go on."""


def run(
    campaign: Campaign,
    path: Any,
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Results:
    """Run a campaign and write its results to `path`; go on with it if it was begun.

    executor: any of `concurrent.futures`, such as Dask's `Client.get_executor()`; it is left open. None is
    `workers` processes of its own, as many as there are cores (in a script, call this under
    `if __name__ == "__main__":`); workers=1 is this process. workers, with an executor: how many it has, if
    it does not say; a few cases for each are given out at a time. progress: called as cases finish.

    Finished cases go to a journal beside `path` as they come. If the process is killed, the same call goes
    on from there; once all are done, the results are written whole and the journal is removed. The file
    has the same bytes for every executor and any number of workers. If it is there already, nothing is run.

    Raises CampaignError naming the cases that failed, after all others are done, and for files of another
    campaign; CampaignInterrupted on Ctrl-C.

    >>> import tempfile
    >>> from mxfp.campaigns import Campaign, run
    >>> both = ["exact", "sequential:float16"]
    >>> campaign = Campaign(accumulators=both, distributions="bits", seeds=range(2), count=10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = run(campaign, folder + "/results.jsonl", workers=1)
    ...     [(row.accumulator, row.dots, row.differ) for row in results.rows()]
    [('exact:float32', 20, 0), ('sequential:float16', 20, 4)]
    """
    if not isinstance(campaign, Campaign):
        raise TypeError(f"campaign is a Campaign, got {type(campaign).__name__}")
    path = Path(path)
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise ValueError(f"workers is a number from 1 on, or None, got {workers!r}")
    if path.exists():
        results = Results(campaign, path)
        if not journal_of(path).exists():
            return results
    elif not path.parent.is_dir():
        raise FileNotFoundError(f"no folder {path.parent} to put {path.name} in")
    with Journal(campaign, path) as journal:
        if path.exists():  # killed, or finished by another, between writing the one and removing the other
            results = Results(campaign, path)
            journal.remove()
            return results
        try:
            _work(campaign, journal, executor, workers, progress)
            journal.finish()
        except OSError as error:
            raise CampaignError(f"{_line(error)}; {_kept(journal)}") from error
    return Results(campaign, path)


def _work(
    campaign: Campaign,
    journal: Journal,
    executor: Executor | None,
    workers: int | None,
    progress: Progress | None,
) -> None:
    """Have every missing case measured and kept, by whoever is there to do it."""
    if executor is not None:
        known = workers or getattr(executor, "_max_workers", None) or cores()
        _fill(campaign, journal, executor, AHEAD * known, progress)
    elif (workers or cores()) == 1:
        _fill(campaign, journal, Alone(), 1, progress)
    else:
        count = min(workers or cores(), max(1, len(campaign) - journal.done))
        pool = Pool(count)
        try:
            _fill(campaign, journal, pool, AHEAD * count, progress)
        except BaseException:
            pool.stop()
            raise
        pool.shutdown()


def _fill(
    campaign: Campaign, journal: Journal, executor: Executor, ahead: int, progress: Progress | None
) -> None:
    """Give out the missing cases, so many at a time, and keep what comes back."""
    named: list[str] = []
    failures, expected = 0, versions()
    missing = journal.missing()
    pending: dict[Future[Record], int] = {}

    def show() -> None:
        if progress is not None:
            progress("cases", journal.done + failures, len(campaign))

    try:
        show()
        while True:
            while len(pending) < ahead and (number := next(missing, None)) is not None:
                pending[executor.submit(task, campaign.case(number), expected)] = number
            if not pending:
                break
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                failure = _collect(journal, future)
                number = pending.pop(future)
                if failure is not None:
                    failures += 1
                    named += [f"{campaign.case(number).key}: {_line(failure)}"] * (len(named) < NAMED)
                show()
    except KeyboardInterrupt:
        _keep(journal, pending)
        raise CampaignInterrupted(f"interrupted; {_kept(journal)}") from None
    except BrokenExecutor as error:
        _keep(journal, pending)
        raise CampaignError(f"a worker ended abruptly ({_line(error)}); {_kept(journal)}") from error
    except BaseException:
        for future in pending:
            future.cancel()
        raise
    if failures:
        named += [f"and {failures - len(named)} more"] * (failures > len(named))
        raise CampaignError(
            f"{failures} of {len(campaign)} cases failed: {'; '.join(named)}; {_kept(journal)}"
        )


def _collect(journal: Journal, future: Future[Record]) -> Exception | None:
    """Keep the record of a finished case, or give back why there is none."""
    try:
        record = future.result()
    except BrokenExecutor:
        raise
    except Exception as error:
        return error
    journal.add(record)
    return None


def _keep(journal: Journal, pending: dict[Future[Record], int]) -> None:
    """Cancel what has not begun, and keep what is done and has not been kept."""
    for future, number in pending.items():
        if future.cancel() or not future.done() or journal.has(number):
            continue
        if future.exception() is None:
            journal.add(future.result())


def _kept(journal: Journal) -> str:
    total = len(journal.campaign)
    if not journal.done:
        return "no case was finished"
    return (
        f"{journal.done} of {total} cases are kept in {journal.path}; run the same again to go on from there"
    )


def _line(error: BaseException) -> str:
    """An error as one line."""
    lines = str(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    return f"{type(error).__name__}: {lines[0][:LONGEST]}{'…' * (len(lines[0]) > LONGEST)}"
