# SPDX-License-Identifier: Apache-2.0
"""What a check found, as one object: for a person, for JSON and for CI."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from ...whole import write_whole
from ..explain.explanation import Explanation
from ..unit import Unit
from .failure import Failure
from .problems import Problem, sentences

SCHEMA: Final = "mxfp-verdict/1"


@dataclass
class Tally:
    """Cases of some kind, and how many of them were wrong, X or Z, no value, or not there."""

    cases: int = 0
    wrong: int = 0
    unknown: int = 0
    malformed: int = 0
    missing: int = 0

    @property
    def right(self) -> int:
        """How many were right."""
        return self.cases - self.wrong - self.unknown - self.malformed - self.missing

    def __str__(self) -> str:
        """In a few words."""
        words = [f"{self.wrong} of {self.cases} wrong"]
        for name, text in (("unknown", "X or Z"), ("malformed", "malformed"), ("missing", "missing")):
            if getattr(self, name):
                words.append(f"{getattr(self, name)} {text}")
        return ", ".join(words)


@dataclass(frozen=True, eq=False)
class Verdict:
    """The outcome of a check. Truthy if every case was there, read, and right.

    status: 0 so, 1 some cases are wrong (or X), 2 the answers are not usable as they are. total, groups,
    classes: `Tally`; a case can be of several classes. stages: how often each was the first that differed.
    names: the stages that the answers gave. failures: the first of them. problems: the first lines that are
    no answers; counts: all of them by kind. last_answered: the last case with an answer, -1 if none.
    """

    unit: Unit
    policy: str
    level: int | None
    seed: int | None
    total: Tally
    groups: Mapping[str, Tally]
    classes: Mapping[str, Tally]
    stages: Mapping[str, int]
    names: tuple[str, ...]
    failures: tuple[Failure, ...]
    problems: tuple[Problem, ...]
    counts: Mapping[str, int]
    last_answered: int
    lines: int
    explanation: Explanation | None

    @property
    def status(self) -> int:
        """The exit status of `mxfp check`."""
        if sum(self.counts.values()) or self.total.malformed or self.total.missing or not self.total.cases:
            return 2
        return 1 if self.total.wrong or self.total.unknown else 0

    def __bool__(self) -> bool:
        """Whether all is right."""
        return self.status == 0

    @property
    def unusable(self) -> list[str]:
        """What is wrong with the answers as such, a sentence each."""
        found = []
        total = self.total
        if not total.cases:
            found.append("there are no cases to check")
        elif total.missing == total.cases:
            if self.lines:
                found.append(f"none of {self.lines} lines is an answer")
            elif not self.counts:
                found.append("the answers are empty: the simulator wrote nothing")
        elif total.missing and self.last_answered + total.missing + 1 == total.cases:
            found.append(
                f"the answers stop after case {self.last_answered}; {total.missing} of {total.cases} are "
                "missing, and the simulator may have died there"
            )
        elif total.missing:
            found.append(f"{total.missing} of {total.cases} cases have no answer")
        found += sentences(self.counts)
        return found

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "schema": SCHEMA,
            "status": self.status,
            "unit": {
                "kind": self.unit.kind,
                "a": self.unit.a.name,
                "b": self.unit.sides[1].name,
                "lanes": self.unit.lanes,
                "blocks": self.unit.blocks,
                "accumulator": str(self.unit.accumulator),
            },
            "policy": self.policy,
            "level": self.level,
            "seed": self.seed,
            "total": asdict(self.total),
            "groups": {name: asdict(tally) for name, tally in self.groups.items()},
            "classes": {name: asdict(tally) for name, tally in self.classes.items()},
            "first_stage": dict(self.stages),
            "stages": list(self.names),
            "failures": [failure.as_dict() for failure in self.failures],
            "unusable": self.unusable,
            "problems": [problem._asdict() for problem in self.problems],
            "explanation": None if self.explanation is None else self.explanation.as_dict(),
        }

    def write_json(self, path: str | Path) -> None:
        """Write it as JSON, whole or not at all."""
        text = json.dumps(self.as_dict(), indent=1) + "\n"
        write_whole(Path(path), lambda out: out.write(text.encode()))

    def write_junit(self, path: str | Path) -> None:
        """Write it as JUnit XML, a test case for each group and one for the answers as such."""
        text = self.junit()
        write_whole(Path(path), lambda out: out.write(text.encode()))

    def junit(self) -> str:
        """JUnit XML."""
        kind, failed = f"mxfp.{self.unit.kind}", 0
        suite = ElementTree.Element("testsuite", name=f"mxfp check {self.unit.kind}")
        properties = _node(suite, "properties")
        for name, value in (("policy", self.policy), ("level", self.level), ("seed", self.seed)):
            _node(properties, "property", name=name, value=value)
        for name, tally in self.groups.items():
            case = _node(suite, "testcase", classname=kind, name=name)
            if tally.right != tally.cases:
                failed += 1
                details = [str(failure) for failure in self.failures if failure.group == name]
                if self.explanation is not None:
                    details.append(str(self.explanation))
                _node(case, "failure", "\n".join(details), message=tally)
        case = _node(suite, "testcase", classname=kind, name="answers")
        if self.unusable:
            problems = "\n".join(str(problem) for problem in self.problems)
            _node(case, "error", problems, message="; ".join(self.unusable))
        suite.set("tests", str(len(self.groups) + 1))
        suite.set("failures", str(failed))
        suite.set("errors", str(int(bool(self.unusable))))
        return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"

    def __str__(self) -> str:
        """All of it in lines, the summary last."""
        lines: list[str] = []
        for failure in self.failures:
            lines += [str(failure), ""]
        if self.total.wrong or self.total.unknown:
            for title, tallies in (("group", self.groups), ("class", self.classes)):
                for name, tally in tallies.items():
                    if tally.right != tally.cases:
                        lines.append(f"{title} {name}: {tally}")
            if len(self.names) > 1 and self.stages:
                where = ", ".join(f"{name} {count}" for name, count in self.stages.items())
                lines.append(f"first stage that differs: {where}")
            lines.append("")
        if self.explanation is not None:
            lines += [str(self.explanation), ""]
        for problem in self.problems:
            lines.append(str(problem))
        lines += [f"UNUSABLE: {sentence}" for sentence in self.unusable]
        word = {0: "PASS", 1: "FAIL", 2: "UNUSABLE"}[self.status]
        how = "every bit" if self.policy == "bits" else f"policy {self.policy}"
        read = f" ({', '.join(self.names)})" if len(self.names) > 1 else ""
        lines.append(f"{word}: {self.total.right} of {self.total.cases} cases are right, {how}{read}")
        return "\n".join(lines)


def _node(
    parent: ElementTree.Element, tag: str, text: str | None = None, **attributes: object
) -> ElementTree.Element:
    """A new element inside another, with `?` for all characters that XML cannot hold."""
    given = {name: _printable(str(value)) for name, value in attributes.items()}
    element = ElementTree.SubElement(parent, tag, given)
    element.text = None if text is None else _printable(text)
    return element


def _printable(text: str) -> str:
    return re.sub(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)
