# SPDX-License-Identifier: Apache-2.0
"""The built documentation in a real browser; `.ci/run` builds it and says where it is (MXFP_SITE)."""

import os
from pathlib import Path

import pytest

from browser import DESKTOP, PHONE, Page, chromium

__all__ = ["chromium"]
SITE = os.environ["MXFP_SITE"]  # MXFP_SITE=DIR pytest docs/test_site.py, after sphinx -b html docs DIR
PAGES = ["index", "course/2-block", "ja/course/2-block", "figures", "decode", "verify", "glossary"]


def at(page):
    return (Path(SITE) / f"{page}.html").resolve().as_uri()


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_page_opens_without_errors_and_fits_the_window(chromium, page, size):
    shown = Page(chromium, size).open(at(page))
    assert [entry["message"] for entry in chromium.get_log("browser") if entry["level"] == "SEVERE"] == []
    wide = chromium.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
    assert wide <= 0, f"{page} is {wide} pixels wider than the window"
    assert len(shown.text) > 300


@pytest.mark.parametrize("page", ["course/2-block", "ja/course/2-block", "figures"])
def test_every_picture_of_a_page_is_there(chromium, page):
    Page(chromium).open(at(page))
    sizes = chromium.execute_script("return [...document.images].map(i => [i.src, i.naturalWidth])")
    assert len(sizes) >= 2
    assert all(width > 100 for _, width in sizes), sizes


@pytest.mark.parametrize(("page", "summary"), [("course/2-block", "Solution"), ("ja/course/2-block", "解答")])
def test_a_solution_is_hidden_until_it_is_asked_for(chromium, page, summary):
    shown = Page(chromium).open(at(page))
    assert "[nan nan]" not in shown.text
    [first, *_] = [s for s in shown.all("summary") if s.text == summary]
    first.send_keys("\n")
    shown.wait_for("[nan nan]")


def test_the_two_languages_lead_to_each_other(chromium):
    shown = Page(chromium).open(at("course/index"))
    shown.follow("六つのページで学ぶ MXFP4")
    shown.wait_for("一つのブロックがすべてのページを通っていく")
    shown.follow("A course in six pages")
    shown.wait_for("One block goes through every page")
