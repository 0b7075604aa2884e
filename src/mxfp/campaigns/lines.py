# SPDX-License-Identifier: Apache-2.0
"""Records as lines of JSON that say whether they are as they were written, and not torn, cut or altered."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any, Final

from .campaign import Campaign, CampaignError

Record = dict[str, Any]

MARK: Final = b',"crc32":"'
"""What stands before the last entry of every line: the CRC-32 of all that comes before it."""


def line_of(record: Record) -> bytes:
    """A record -> its line, with a last entry `crc32`: the same bytes for the same record."""
    text = json.dumps(record, separators=(",", ":"), allow_nan=False).encode()[:-1]
    return text + _end(text)


def record_of(line: bytes) -> Record | None:
    """A line -> its record without `crc32`; None for a line that is not one of `line_of`.

    >>> line = line_of({"case": 3})
    >>> line[:20], record_of(line), record_of(line.replace(b"3", b"4"))
    (b'{"case":3,"crc32":"4', {'case': 3}, None)
    """
    text = line.rpartition(MARK)[0]
    if not text or line != text + _end(text):
        return None
    try:
        record = json.loads(text + b"}")
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def number_of(record: Record | None, campaign: Campaign) -> int | None:
    """The number of the case that a record is of; None if it is of no case of this campaign."""
    try:
        case = campaign.case((record or {})["case"])
        return case.number if record and record["key"] == case.key else None
    except (KeyError, ValueError):
        return None


def _end(text: bytes) -> bytes:
    return MARK + f'{zlib.crc32(text):08x}"}}\n'.encode()


def check_file(path: Path) -> None:
    """CampaignError for what is there and is no file, such as a folder, or a pipe that one would wait at."""
    if path.exists() and not path.is_file():
        raise CampaignError(f"{path} is no regular file; choose another place for the results")
