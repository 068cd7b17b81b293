"""The page of a running gateway, in a real browser."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.monitor.test_gateway_monitor import LISTENING, Monitored
from tests.support.backends.browser import NAMES, Browser, find_browser
from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

DEFINITIONS = """
CREATE PUBLICATION p FOR TABLE t WHERE (a > 5);
CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;
"""
WIDTHS = {"phone": 360, "desk": 1280}


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        why = f"no browser is installed here (looked for {', '.join(NAMES)}): the page was not seen"
        if os.environ.get("PGSLUICE_REQUIRE_BROWSER"):
            pytest.fail(why)
        pytest.skip(why)
    with Browser(program, tmp_path) as browser:
        yield browser


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
        assert "live" not in browser.evaluate("document.querySelector('#pulse').className")
        connection.execute("INSERT INTO t SELECT generate_series(1, 9)")
        cells = "[...document.querySelectorAll('tbody td')].map(e => e.innerText).join('|')"
        wait_until(
            lambda: "5 (56%)" in browser.evaluate(cells), 60, "the page to show the rows by itself"
        )
        assert browser.evaluate("document.querySelector('#pulse').innerText") == "live"
        assert browser.complaints == []
        assert {one for one in browser.requested if one.startswith("http")} <= {
            url,
            f"{url}fragment",
        }
        assert gateway.process.terminate() == 0
        pulse = "document.querySelector('#pulse').innerText"
        wait_until(
            lambda: "no answer since" in browser.evaluate(pulse), 60, "the page to say it is alone"
        )
