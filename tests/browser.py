# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium for tests, and `mxfp explore` for it to open (Debian: chromium, chromium-driver).

`chromium` is a fixture, one browser for a module that imports it; `Page` is what a reader sees and does.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 90
"""Seconds after which something that should appear has not; no test waits for them when all is well."""
PHONE, DESKTOP = (390, 844), (1280, 900)
INPUTS = "input, select, textarea, [role=slider], [role=radiogroup], [role=switch]"
DEEP = """
const found = [];
const selector = arguments[0];
(function walk(root) {
  for (const e of root.querySelectorAll('*')) {
    if (e.matches(selector)) found.push(e);
    if (e.shadowRoot) walk(e.shadowRoot);
  }
})(document);
return found;
"""
FOCUSED = """
let e = document.activeElement;
while (e && e.shadowRoot && e.shadowRoot.activeElement) e = e.shadowRoot.activeElement;
return e;
"""
SCROLLERS = """
const all = [document.documentElement, document.body];
(function walk(root) {
  for (const e of root.querySelectorAll('*')) {
    if (e.shadowRoot) walk(e.shadowRoot);
    const own = e.matches('textarea, [role=region]');
    if (/auto|scroll/.test(getComputedStyle(e).overflow) && !own) all.push(e);
  }
})(document);
"""
"""The page, and what marimo puts all of it into; not a table that scrolls by itself."""


def driver() -> Any:
    """A new headless Chromium; skips the test where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed (extra browser)")
    binary = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    program = shutil.which("chromedriver")
    if binary is None or program is None:
        pytest.skip("no chromium or no chromedriver; Debian: apt install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in (
        "--headless=new",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--no-first-run",
        "--force-prefers-reduced-motion",
    ):
        options.add_argument(argument)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # Chromium refuses to be root with one
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(program))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """One browser for the tests of a module."""
    started = driver()
    yield started
    started.quit()


class Page:
    """What a reader sees and does on a page: inputs by their labels, also those inside of components."""

    def __init__(self, driver: Any, size: tuple[int, int] = DESKTOP) -> None:
        """A page in a browser whose window has this size."""
        self.driver = driver
        self.resize(size)

    def resize(self, size: tuple[int, int]) -> None:
        """Make the viewport this wide and high, as a phone's would be: windows have a least width."""
        width, height = size
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def open(self, url: str, shows: str | None = None) -> Page:
        """Go there, and wait for a text if one is given."""
        self.driver.get_log("performance")
        self.driver.get_log("browser")
        self.driver.get(url)
        return self.wait_for(shows) if shows else self

    def all(self, selector: str) -> list[Any]:
        """Every element that a CSS selector matches, in components too."""
        found: list[Any] = self.driver.execute_script(DEEP, selector)
        return found

    @property
    def text(self) -> str:
        """What the page says."""
        return str(self.driver.execute_script("return document.body.innerText"))

    def wait(self, ready: Callable[[], Any], what: str) -> Any:
        """Wait until ready() gives something, and give it; says what never came and what was there."""
        from selenium.common.exceptions import JavascriptException, StaleElementReferenceException

        end = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(StaleElementReferenceException, JavascriptException):
                found = ready()
                if found:
                    return found
            assert time.monotonic() < end, (
                f"{what} did not come within {PATIENCE} s; the page says:\n{self.text}"
            )
            time.sleep(0.02)

    def wait_for(self, text: str) -> Page:
        """Wait until the page says a text, white space aside."""
        wanted = " ".join(text.split())
        self.wait(lambda: wanted in " ".join(self.text.split()), repr(text))
        return self

    def labelled(self, label: str, selector: str = INPUTS) -> Any:
        """The input beside a label."""

        def found() -> Any:
            return self.driver.execute_script(
                """
                const [label, selector] = arguments;
                const all = [];
                (function walk(root) {
                  for (const e of root.querySelectorAll('*')) {
                    if (e.localName.startsWith('marimo-') && e.shadowRoot) all.push(e);
                    if (e.shadowRoot) walk(e.shadowRoot);
                  }
                })(document);
                for (const e of all) {
                  const first = e.shadowRoot.querySelector('label, .markdown');
                  if (first && first.textContent.trim() === label) {
                    const input = e.shadowRoot.querySelector(selector);
                    if (input) return input;
                  }
                }
                return null;
                """,
                label,
                selector,
            )

        return self.wait(found, f"an input labelled {label!r}")

    def choose(self, label: str, option: str) -> None:
        """Pick an option of a drop-down."""
        from selenium.webdriver.support.ui import Select

        Select(self.labelled(label, "select")).select_by_visible_text(option)

    def type(self, label: str, text: str) -> None:
        """Replace what a field holds, as hands would."""
        self.replace(self.labelled(label), text)

    @staticmethod
    def replace(field: Any, text: str) -> None:
        """Select all in a field and write something else; in one go, for each begins at the field's end."""
        from selenium.webdriver.common.keys import Keys

        field.send_keys(Keys.CONTROL, "a", Keys.NULL, text or Keys.DELETE)

    def answer(self, place: int, text: str) -> None:
        """Type into the answer of a question, counted from 0 among those that take a number."""
        self.replace(self.all("input[placeholder='a number']")[place], text)

    def follow(self, text: str) -> None:
        """Follow a link by the keyboard, as one click does: the top of a page may lie over it."""
        from selenium.webdriver.common.by import By
        from selenium.webdriver.common.keys import Keys

        self.driver.find_element(By.LINK_TEXT, text).send_keys(Keys.ENTER)

    def press(self, *keys: str) -> None:
        """Keys, to whatever has the focus."""
        from selenium.webdriver import ActionChains

        chain = ActionChains(self.driver)
        for key in keys:
            chain.send_keys(key)
        chain.perform()

    @property
    def focused(self) -> Any:
        """The element that has the focus, in components too."""
        return self.driver.execute_script(FOCUSED)

    @property
    def too_wide(self) -> int:
        """By how many pixels the page is wider than its window; parts that scroll by themselves may be."""
        widest = "return Math.max(...all.map(e => e.scrollWidth - e.clientWidth))"
        return int(self.driver.execute_script(SCROLLERS + widest))

    def errors(self) -> list[str]:
        """The errors in the console since it was last asked."""
        return [e["message"] for e in self.driver.get_log("browser") if e["level"] == "SEVERE"]

    def hosts(self) -> set[str]:
        """The hosts that anything was asked of since the page was opened; data: and blob: ask nobody."""
        found = set()
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = message["params"]["request"]["url"]
            elif message["method"] == "Network.webSocketCreated":
                url = message["params"]["url"]
            else:
                continue
            host = re.match(r"(?:https?|wss?)://([^/:]+|\[[^]]*\])", url)
            if host:
                found.add(host[1])
        return found

    def picture(self, path: Path) -> None:
        """A screenshot of the whole page, however long."""
        for _ in range(2):  # the page may grow with its window
            width, height = self.driver.execute_script(
                SCROLLERS + "return [innerWidth, Math.max(...all.map(e => e.scrollHeight))]"
            )
            self.resize((width, height))
            time.sleep(0.3)  # what has become visible is drawn now
        self.driver.save_screenshot(str(path))


@contextlib.contextmanager
def explore(*arguments: str, cwd: Path | None = None) -> Iterator[str]:
    """`mxfp explore` in a process of its own; gives its address. Ends it with Ctrl-C, which has to work."""
    command = [sys.executable, "-m", "mxfp", "explore", "--no-browser", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=cwd)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, line + process.stdout.read()
        yield found[0]
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=PATIENCE)
        assert (process.returncode, said.strip()) == (0, ""), said
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
