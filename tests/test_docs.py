# SPDX-License-Identifier: Apache-2.0
"""Every snippet in README and docs runs and prints what the page says; every name in spec.md exists."""

import contextlib
import importlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import differing
import headers
import pytest
import small_model

import mxfp

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if "_build" not in p.parts)]
TRANSLATED = sorted((ROOT / "docs" / "course").glob("*.md"))
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def snippets(page):
    """(language, text) of each fenced block, in order."""
    return FENCE.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_python_snippet_runs_and_prints_what_follows_it(page):
    blocks, names = snippets(page), {}
    for n, (language, code) in enumerate(blocks):
        if language != "python":
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, f"{page.name}, snippet {n}", "exec"), names)
        expected = blocks[n + 1][1] if n + 1 < len(blocks) and blocks[n + 1][0] == "text" else ""
        assert out.getvalue() == expected, f"{page.name}, snippet {n}"


CONSOLE = [
    pytest.param(command, shown, id=f"{page.relative_to(ROOT)}: {command}")
    for page in PAGES
    for language, text in snippets(page)
    if language == "console"
    for command, _, shown in (part.partition("\n") for part in re.split(r"^\$ ", text, flags=re.M)[1:])
    if command.split()[0] == "mxfp"
]
"""Every command of mxfp that a page shows, and the lines that it shows below it."""
COMPILED = {**os.environ, "NUMBA_DISABLE_JIT": "0", "COLUMNS": "100"}
"""For commands that multiply millions of numbers, which are too many without the compiler."""


@pytest.fixture(scope="session")
def model_headers(tmp_path_factory):
    """Where the models are that pages have headers.py, differing.py and small_model.py of examples/ write."""
    folder = tmp_path_factory.mktemp("headers")
    headers.write_all(folder)
    differing.write_all(folder)
    small_model.write_all(folder)
    return folder


@pytest.mark.parametrize(("command", "shown"), CONSOLE)
def test_every_console_snippet_runs_and_prints_the_lines_below_it(command, shown, model_headers):
    run = [sys.executable, "-m", *shlex.split(command)]
    folder = model_headers if ".gguf" in command else None
    done = subprocess.run(run, check=False, capture_output=True, text=True, env=COMPILED, cwd=folder)
    # Files that differ are no failure of the command that says so.
    assert done.returncode in ({0, 1} if command.startswith("mxfp diff ") else {0}), done.stderr
    printed = {" ".join(line.split()) for line in done.stdout.splitlines()}
    for line in shown.splitlines():
        if not re.fullmatch(r"[\s─.]*", line):
            assert " ".join(line.split()) in printed, line


def skeleton(page):
    """What a translation keeps: levels of headings, snippets, names of pictures, exercises and solutions."""
    text = page.read_text(encoding="utf-8")
    prose = FENCE.sub("", text)
    return {
        "headings": [len(marks) for marks in re.findall(r"^(#+) ", prose, re.MULTILINE)],
        "snippets": FENCE.findall(text),
        "pictures": [Path(name).name for name in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", prose)],
        "exercises": re.findall(r"^\*\*(\d+\.\d+)\*\*", prose, re.MULTILINE),
        "solutions": len(re.findall(r"^<details><summary>.+</summary>$", prose, re.MULTILINE)),
        "commands": re.findall(r"`(mxfp [a-z -]+)`", prose),
    }


@pytest.mark.parametrize("page", TRANSLATED, ids=lambda p: p.name)
def test_a_translation_keeps_the_structure_snippets_and_pictures_of_its_page(page):
    translated = ROOT / "docs" / "ja" / "course" / page.name
    assert skeleton(translated) == skeleton(page)


def test_every_page_of_the_course_is_translated_and_has_exercises():
    assert [p.name for p in TRANSLATED] == sorted(
        p.name for p in (ROOT / "docs" / "ja" / "course").glob("*.md")
    )
    for page in TRANSLATED:
        found = skeleton(page)
        assert len(found["exercises"]) == found["solutions"] >= (page.name != "index.md")


def test_the_pages_have_snippets_to_run():
    languages = [language for page in PAGES for language, _ in snippets(page)]
    assert languages.count("python") >= 8
    assert languages.count("console") >= 1


def test_the_readme_begins_with_eight_lines_of_python():
    language, code = snippets(ROOT / "README.md")[0]
    assert language == "python"
    assert len([line for line in code.splitlines() if line and not line.startswith("import")]) == 8


def test_the_table_of_formats_in_the_readme_is_that_of_the_formats():
    rows = re.findall(
        r"^\| `(\w+)` \| (.*) \|$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert [name for name, _ in rows] == [f.name for f in mxfp.formats.BLOCK_FORMATS.values()]
    for name, cells in rows:
        fmt = mxfp.formats.BLOCK_FORMATS[name]
        element, largest, block, scale, bits, width = cells.split(" | ")
        assert (element, block, scale.split()[0]) == (fmt.element.name, str(fmt.block), fmt.scale.name)
        assert (float(largest), float(bits)) == (fmt.element.max, fmt.bits_per_element)
        assert int(width) == mxfp.integers.sum_width(fmt, fmt, 32)


def test_the_accuracy_figures_in_the_readme_are_those_of_the_report():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    run = [sys.executable, "-m", "mxfp", "report", "--accumulator", "sequential", "--json"]
    found = json.loads(subprocess.run(run, check=True, capture_output=True, text=True, env=COMPILED).stdout)
    quoted = dict(re.findall(r"^\| (.*?(?:float\d+|`\w+`)) \| ([\d.]+ \| [\d.]+ %) \|$", text, re.MULTILINE))
    seen = 0
    for row in found["accuracy"]:
        name = (
            f"MXFP4 both sides, rule `{row['rule']}`"
            if row["rule"]
            else f"{row['name']}, added in {row['accumulator'].removeprefix('sequential:')}"
        )
        if name in quoted:
            sqnr, error = quoted[name].removesuffix(" %").split(" | ")
            assert sqnr == f"{row['figures']['sqnr_db']:.2f}", name
            places = len(error.partition(".")[2])
            assert error == f"{100 * row['figures']['relative_error']:.{places}f}", name
            seen += 1
    assert seen == len(quoted) == 7
    assert f"{found['width']['largest']:,}" in text
    assert all(f"{s['nbytes']:,}" in text for s in found["stored"] if s["name"] != "float32")


QUOTED = [
    ("GEMM", "BLAS float32"),
    ("GEMM", "float16, numpy"),
    ("GEMV", "BLAS float32"),
    ("quantize(x) and GEMM", "BLAS float32"),
    ("GEMM, Exact(float32)", "Sequential(float32)"),
    ("GEMM, Blackwell", "mmasim"),
    ("quantize", "ml_dtypes cast"),
    ("dequantize", "ml_dtypes cast"),
]
"""What the README's table of speed quotes from docs/performance.md: the work, and what is beside it."""


def test_the_speeds_in_the_readme_are_those_of_the_performance_page():
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8").split("## In short")[1]
    lines = [line.strip("| ").split(" | ") for line in page.split("\n## ")[0].splitlines() if line[:1] == "|"]
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("## Speed")[1].split("\n## ")[0]
    quoted = [line.strip("| ").split(" | ")[-1] for line in text.splitlines() if line[:1] == "|"][2:]
    measured = [
        next(line[4] for line in lines if line[0] == work and line[3].startswith(beside))
        for work, beside in QUOTED
    ]
    assert quoted == measured


def test_every_name_in_the_specification_map_exists():
    names = re.findall(r"`(mxfp\.[\w.]+)`", (ROOT / "docs" / "spec.md").read_text(encoding="utf-8"))
    assert len(names) > 20
    for name in names:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name
    files = re.findall(r"`(test_\w+\.py)`", (ROOT / "docs" / "spec.md").read_text(encoding="utf-8"))
    assert files
    assert all((ROOT / "tests" / name).is_file() for name in files)


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_ci_runs_exactly_the_commands_of_the_readme():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "grep -F 'pytest' README.md" in script
    commands = [
        line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if "venv .venv" in line
    ]
    assert len(commands) == 2
