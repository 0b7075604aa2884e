# SPDX-License-Identifier: Apache-2.0
"""The results of a campaign: a file of records, and rows that put the seeds together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .campaign import Campaign, CampaignError, name_of
from .lines import Record, check_file, line_of, number_of, record_of


@dataclass(frozen=True)
class Worst:
    """A largest value and where it is: number of the case and index in it, for `replay`."""

    value: float
    case: int
    index: int


@dataclass(frozen=True)
class Row:
    """One accumulator over all seeds of one combination; see `measure` for what each figure is."""

    formats: str
    distribution: str
    scales: str
    k: int
    accumulator: str
    dots: int
    finite: int
    differ: int
    overflow: int
    nan: int
    unbounded: int
    mean_error: float | None
    error: Worst | None
    relative: Worst | None
    ratio: Worst | None

    def as_dict(self) -> dict[str, Any]:
        """Itself as JSON holds it, a `Worst` as a dict; numbers that JSON has no word for as texts."""
        said = asdict(self)
        said["mean_error"] = None if self.mean_error is None else _json_number(self.mean_error)
        for value in said.values():
            if isinstance(value, dict):
                value["value"] = _json_number(value["value"])
        return said


@dataclass(frozen=True)
class Results:
    """The finished results of a campaign at `path`, JSON Lines: a header, then a record for each case.

    Iterate over it for the records (see `measure`), which are read from the file one by one.

    Raises CampaignError, when it is made, for a file that is not of this campaign; and on the way, naming the
    line, for one that lacks records or has altered ones.
    """

    campaign: Campaign
    path: Path

    def __post_init__(self) -> None:
        """Look at the header."""
        object.__setattr__(self, "path", Path(self.path))
        check_file(self.path)
        expected = line_of(self.campaign.header())
        with self.path.open("rb") as file:
            if file.readline(len(expected) + 1) != expected:
                raise CampaignError(
                    f"{self.path} is there already and is not of this campaign (or of another version of "
                    "mxfp); remove it, or choose another place for the results"
                )

    def __len__(self) -> int:
        """Number of cases."""
        return len(self.campaign)

    def __iter__(self) -> Iterator[Record]:
        """Each record in the order of the cases."""
        with self.path.open("rb") as file:
            file.readline()
            for number in range(len(self)):
                record = record_of(file.readline())
                if record is None or number_of(record, self.campaign) != number:
                    raise self._damaged(number + 2)
                yield record
            if file.read(1):
                raise self._damaged(len(self) + 2)

    def _damaged(self, line: int) -> CampaignError:
        return CampaignError(
            f"{self.path}, line {line} is not what was written there; remove the file and run the same again"
        )

    def rows(self) -> list[Row]:
        """A row for each accumulator and each combination of what is not a seed, in their order."""
        merged: dict[tuple[Any, ...], _Merged] = {}
        for record in self:
            case = self.campaign.case(record["case"])
            parts = (name_of(case.formats), case.distribution, case.scales or "default", case.k)
            for accumulator, figures in record["accumulators"].items():
                merged.setdefault((*parts, accumulator), _Merged()).add(record, figures)
        return [entry.row(*parts) for parts, entry in merged.items()]


class _Merged:
    """Records of one accumulator, put together."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.worst: dict[str, Worst] = {}
        self.sums: list[float] = []

    def add(self, record: Record, figures: Record) -> None:
        """Take in one more case."""
        self.counts.update({name: record[name] for name in ("dots", "finite")})
        self.counts.update({name: figures[name]["count"] for name in ("differ", "overflow", "nan", "error")})
        self.counts["unbounded"] += figures["ratio"]["unbounded"]
        for name in ("error", "relative", "ratio"):
            if figures[name]["largest"] is not None:
                value = float.fromhex(figures[name]["largest"])
                if name not in self.worst or value > self.worst[name].value:
                    self.worst[name] = Worst(value, record["case"], figures[name]["index"])
        if figures["error"]["count"]:
            self.sums.append(float.fromhex(figures["error"]["mean"]) * figures["error"]["count"])

    def row(self, formats: str, distribution: str, scales: str, k: int, accumulator: str) -> Row:
        """What was put together."""
        counts, measured = self.counts, self.counts["error"]
        return Row(
            formats,
            distribution,
            scales,
            k,
            accumulator,
            dots=counts["dots"],
            finite=counts["finite"],
            differ=counts["differ"],
            overflow=counts["overflow"],
            nan=counts["nan"],
            unbounded=counts["unbounded"],
            mean_error=math.fsum(self.sums) / measured if measured else None,
            error=self.worst.get("error"),
            relative=self.worst.get("relative"),
            ratio=self.worst.get("ratio"),
        )


def _json_number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
