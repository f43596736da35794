"""The dashboard in a real browser: content, updates, width and color scheme."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.browser import Browser
from tests.fakes.http_server import Served, served

_STATES = "[...document.querySelectorAll('.job')].map((job) => job.querySelector('.state').textContent).join()"
_FILL = "document.querySelector('.job .fill').style.width"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as answering:
        yield answering


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with Browser(tmp_path / "browser") as opened:
        yield opened


def test_page_follows_jobs_nodes_and_events(cluster: Served, browser: Browser) -> None:
    cluster.create("alpha", "beta")
    browser.open(cluster.server.url)
    browser.wait_for(_STATES, "waiting,waiting")
    cluster.cluster.logs["alpha"] = b"<b>step 5</b>\n"
    cluster.cluster.run("alpha", 5, 10)
    browser.wait_for(_STATES, "running 1/2,waiting")
    assert browser.value(_FILL) == "50%"
    browser.wait_for("document.querySelectorAll('.node').length", 2)
    browser.wait_for("document.querySelector('.event-list li').textContent.includes('started on node-0')", True)
    browser.value("document.querySelector('.job button').click()")
    browser.wait_for("document.querySelector('.job pre').textContent", "<b>step 5</b>\n")
    cluster.cluster.end("alpha")
    browser.wait_for(_STATES, "waiting,completed")
    cluster.cluster.delete(["beta"])
    browser.wait_for(_STATES, "completed")
    assert browser.value("document.title") == "Sterna"


def test_page_without_jobs_shows_the_submit_command(cluster: Served, browser: Browser) -> None:
    browser.open(cluster.server.url)
    browser.wait_for("document.getElementById('none').textContent.includes('sterna submit')", True)
    browser.wait_for("document.getElementById('link').textContent", "live")


@pytest.mark.parametrize("width", [360, 1280])
def test_page_fits_the_width_of_the_screen(cluster: Served, browser: Browser, width: int) -> None:
    name = "a-name-that-is-about-as-long-as-names-may-be-on-any-cluster-" + "x" * 3
    cluster.create(name)
    cluster.cluster.run(name, 1, 3).reason = "a sentence " * 30
    browser.open(f"{cluster.server.url}/#{name}", width)
    browser.wait_for("document.querySelectorAll('.more').length", 1)
    assert browser.value("document.documentElement.scrollWidth") == width


def test_page_follows_the_preferred_color_scheme(cluster: Served, browser: Browser) -> None:
    shade = "getComputedStyle(document.body).backgroundColor"
    browser.open(cluster.server.url, is_dark=False)
    browser.wait_for(shade, "rgb(246, 248, 249)")
    browser.open(cluster.server.url, is_dark=True)
    browser.wait_for(shade, "rgb(15, 22, 25)")


def test_page_shows_that_the_connection_is_lost(cluster: Served, browser: Browser) -> None:
    cluster.create("a")
    browser.open(cluster.server.url)
    browser.wait_for("document.getElementById('link').className", "live")
    browser.wait_for("document.querySelectorAll('.job').length", 1)
    cluster.server.stop()
    browser.wait_for("document.getElementById('link').className", "lost")
    assert browser.value("document.querySelectorAll('.job').length") == 1
