# SPDX-License-Identifier: Apache-2.0
"""How long the lessons take to open, and to follow a change: `python -m benchmarks.explore`.

Needs chromium, chromedriver, and the extras `explore` and `browser`. One browser, beside the server: from the
command to the first lesson that can be used, from an address to each lesson, the first time and again, and
from a key to the text and to the figure that follow it.
"""

from __future__ import annotations

import statistics
import time
from typing import Any
from urllib.parse import quote

import click
from rich.console import Console

import browser
from mxfp.explore.catalogue import LESSONS
from mxfp.terminal import put_table

READY = ".mx-big"
"""What a lesson shows below its inputs."""
CHANGES = {
    "number": ("2.5, a tie", "x", "ARROW_RIGHT"),
    "block": ("an outlier", "First number", "ARROW_LEFT"),
    "integers": ("two blocks", "So many first pairs are 6 · 6", "ARROW_RIGHT"),
    "accumulator": ("a register that is too coarse", "Register: bits", "ARROW_LEFT"),
    "journey": ("swamping in float16", "Row b", "1"),
}
"""Lesson -> a preset, the input that is changed, and the key. A field waits for a pause in typing."""
WATCH = """
window.seen = {key: 0, text: 0, figure: 0};
const all = () => [...document.querySelectorAll('.mx-big, .mx table')].map(e => e.textContent).join();
const figures = () => [...document.querySelectorAll('.mx img')].map(i => i.src).join();
let text = all(), figure = figures();
addEventListener('keydown', () => { seen = {key: performance.now(), text: 0, figure: 0}; }, true);
new MutationObserver(() => {
  const now = performance.now();
  const t = all(), f = figures();
  if (t !== text) { text = t; if (!seen.text) seen.text = now; }
  if (f !== figure) { figure = f; if (!seen.figure) seen.figure = now; }
}).observe(document.body, {subtree: true, childList: true, characterData: true, attributes: true});
"""


def opened(page: browser.Page, url: str) -> float:
    """Seconds until a lesson can be used."""
    start = time.perf_counter()
    page.open(url)
    page.wait(lambda: page.all(READY), "the lesson")
    return time.perf_counter() - start


def changes(page: browser.Page, lesson: str, times: int) -> tuple[list[float], list[float]]:
    """Milliseconds from a key to the text, and to the figure, that follow it."""
    from selenium.webdriver.common.keys import Keys

    _, label, key = CHANGES[lesson]
    changed = page.labelled(label)
    page.driver.execute_script(WATCH)
    texts, figures = [], []
    for _ in range(times):
        changed.send_keys(getattr(Keys, key, key))
        time.sleep(1.0)
        seen: dict[str, Any] = page.driver.execute_script("return window.seen")
        if seen["text"]:
            texts.append(seen["text"] - seen["key"])
        if seen["figure"]:
            figures.append(seen["figure"] - seen["key"])
    return texts, figures


def _middle(values: list[float]) -> str:
    return f"{statistics.median(values):.0f} ({max(values):.0f})" if values else "-"


@click.command()
@click.option("--times", type=click.IntRange(1), default=10, show_default=True, help="Changes a lesson.")
def command(times: int) -> None:
    """Measure how long the lessons take to open and to follow a change."""
    driver = browser.driver()
    rows = []
    try:
        page = browser.Page(driver)
        start = time.perf_counter()
        with browser.explore() as home:
            address = time.perf_counter() - start
            first = address + opened(page, home + LESSONS[0].name + "/")
            for lesson in LESSONS:
                where = f"{home}{lesson.name}/?preset={quote(CHANGES[lesson.name][0])}"
                cold = opened(page, where)
                again = opened(page, where)
                texts, figures = changes(page, lesson.name, times)
                rows.append((lesson.name, f"{cold:.2f}", f"{again:.2f}", _middle(texts), _middle(figures)))
    finally:
        driver.quit()
    console = Console()
    console.print(
        f"from the command to its address {address:.2f} s, to the first lesson that can be used {first:.2f} s"
    )
    columns = ("lesson", "opens, s", "again, s", "change to text, ms", "to figure, ms")
    put_table(console, "", columns, rows, f"milliseconds: median (largest) of {times} changes")


if __name__ == "__main__":
    command()
