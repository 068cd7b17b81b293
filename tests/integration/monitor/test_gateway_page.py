"""The page of a running gateway, in a real browser."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.core.lsn import Lsn
from gateway.core.watermark import CopyState
from gateway.monitor.http import serve
from gateway.monitor.notify import Notifier
from gateway.monitor.page.selection import PORTION
from gateway.monitor.watch import View, Watch
from gateway.observe import Counters, RecentErrors
from tests.integration.monitor.test_gateway_monitor import LISTENING, Monitored
from tests.support.backends.browser import NAMES, Browser, find_browser
from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene
from tests.support.run.waiting import wait_until
from tests.unit.config.test_config import load
from tests.unit.monitor.figures import SLOT, loop_state

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

DEFINITIONS = """
CREATE PUBLICATION p FOR TABLE t WHERE (a > 5);
CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;
"""
WIDTHS = {"phone": 360, "desk": 1280}


@pytest.fixture(scope="module")
def only_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        why = f"no browser is installed here (looked for {', '.join(NAMES)}): the page was not seen"
        if os.environ.get("PGSLUICE_REQUIRE_BROWSER"):
            pytest.fail(why)
        pytest.skip(why)
    with Browser(program, tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def browser(only_browser: Browser) -> Browser:
    """The browser, which has not seen a page of this test."""
    only_browser.open("about:blank")
    only_browser.errors.clear()
    only_browser.requested.clear()
    return only_browser


@pytest.mark.parametrize("number", [3, 30, 1_000])
def test_tables_fit_on_a_phone_line_by_line_with_problems_on_top(
    tmp_path: Path, browser: Browser, number: int
) -> None:
    long = "a_table_with_a_name_of_almost_sixty_characters_as_some_are"
    held = CopyState("nsw", "public", "<b>held</b>", "held", reason="it has no identity")
    ready = [CopyState("nsw", "public", f"{long}{n}", "ready", Lsn(1)) for n in range(number - 1)]
    counters = Counters()
    counters.enter("streaming")
    counters.post(loop_state(copies=(*ready, held)))
    path = tmp_path / "pgsluice"
    path.mkdir()
    settings = load(path, {"http": ['listen = "127.0.0.1:0"']})
    watch = Watch(settings, counters, Notifier({}), server=False)
    watch.view = View(time.monotonic(), Lsn(1000), SLOT, ())
    top = "document.querySelector('{}').getBoundingClientRect().top"
    heights = "[...document.querySelectorAll('tbody tr')].map(e => e.offsetHeight)"
    rows = "[...document.querySelectorAll('tbody td.name')].map(e => e.innerText)"
    with serve(settings, watch, RecentErrors()) as port:
        for width in (400, 1280):
            browser.see_as(width, 900, scripts=False)
            browser.open(f"http://127.0.0.1:{port}/")
            assert browser.evaluate("document.documentElement.scrollWidth") <= width
            assert browser.evaluate(rows)[0] == "public.<b>held</b>"
            assert len(browser.evaluate(heights)) == min(number, PORTION)
            assert browser.evaluate("document.querySelectorAll('nav a').length") == (
                number > PORTION
            )
            assert browser.evaluate(top.format(".problems")) < browser.evaluate(top.format(".path"))
            if width == 400:
                assert max(browser.evaluate(heights)) < 50
                subscription = "document.querySelector('td.subscription').offsetWidth"
                assert browser.evaluate(subscription) > 0  # tables of one name differ in it alone
        browser.open(f"http://127.0.0.1:{port}/?attention=1")
        assert browser.evaluate(rows) == ["public.<b>held</b>"]
        browser.evaluate("document.querySelector('input[type=search]').value = 'sixty'")
        browser.evaluate("document.querySelector('input[type=checkbox]').checked = false")
        browser.evaluate("document.querySelector('form').submit()")
        ready_ones = min(number - 1, PORTION)
        wait_until(
            lambda: len(browser.evaluate(rows)) == ready_ones, 60, "the tables that were searched"
        )
        assert f"{number - 1} shown" in browser.text()


def test_the_page_is_read_on_a_phone_without_javascript_and_lives_with_it(
    scene: Callable[..., Scene], database: Database, browser: Browser
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY)")
        s = scene(DEFINITIONS, **LISTENING)
        gateway = Monitored(s.project.start())
        gateway.process.wait_until_copied()
        url = f"{gateway.url}/"

        for name, width in WIDTHS.items():
            browser.see_as(width, 800, scripts=False)

            def is_complete() -> bool:
                browser.open(url)
                return "public.t" in browser.text()

            wait_until(is_complete, 60, "the table to be on the page")
            text = browser.text()
            assert s.slot in text and "streaming" in text, (name, text)
            assert "no gateway reads the slot" not in text
            widest = browser.evaluate("document.documentElement.scrollWidth")
            assert widest <= width, (name, widest)
            small = browser.evaluate(
                "[...document.querySelectorAll('body *')].filter(e => e.innerText"
                " && parseFloat(getComputedStyle(e).fontSize) < 12).length"
            )
            assert small == 0

        browser.see_as(WIDTHS["phone"], 800)
        browser.open(url)
        connection.execute("INSERT INTO t SELECT generate_series(1, 9)")
        cells = "[...document.querySelectorAll('tbody td')].map(e => e.innerText).join('|')"
        wait_until(
            lambda: "5 (56%)" in browser.evaluate(cells), 60, "the page to show the rows by itself"
        )
        assert browser.evaluate("document.querySelector('#pulse').innerText") == "live"
        assert browser.errors == []
        assert {one for one in browser.requested if one.startswith("http")} <= {
            url,
            f"{url}fragment",
        }
        assert gateway.process.terminate() == 0
        pulse = "document.querySelector('#pulse').innerText"
        wait_until(
            lambda: "no answer since" in browser.evaluate(pulse), 60, "the page to say it is alone"
        )
