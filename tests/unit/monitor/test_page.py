"""The page is whole without JavaScript, loads nothing from elsewhere, and shows names as text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

from gateway.monitor.page import SECURITY, fragment, page
from gateway.monitor.watch import Sample

EVIL = "<script>alert('x')</script>&\"name"
VOID = {"meta", "link", "line", "polyline", "br"}


def shown(**changes: Any) -> dict[str, Any]:
    """A status as /status has it."""
    return {
        "gateway": {"name": "gw", "phase": "streaming", "lag_seconds": 1.5, "records": 1_234},
        "slot": {"name": "slot", "retained_bytes": 3 << 20, "left_bytes": None},
        "server_lsn": "0/2A",
        "watermark": "0/20",
        "behind_bytes": 10,
        "tables": [
            {
                "subscription": "nsw",
                "table": "public.t",
                "state": "ready",
                "rows_read": 5_000,
                "rows_published": 7,
                "estimate": None,
                "reason": None,
            }
        ],
        "rows": [
            {"subscription": "nsw", "table": "public.t", "operation": "insert", "rows": 30},
            {"subscription": "nsw", "table": "public.t", "operation": "copy", "rows": 7},
        ],
        "filtered": [{"subscription": "nsw", "table": "public.t", "rows": 10}],
        "filters": [{"subscription": "nsw", "table": "public.t", "by": "gateway"}],
        "problems": [],
        "log": [],
        **changes,
    }


HISTORY = [Sample(1_000.0 + 5 * n, n / 10, 0, 100 * n, 1_000 * n) for n in range(3)]


class Balanced(HTMLParser):
    """Fails where a tag is closed that is not open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def test_the_table_says_rows_filtered_share_and_who_evaluates() -> None:
    cells = re.findall(r'data-label="([a-z ]+)">(.*?)</td>', fragment(shown(), HISTORY))

    assert [(name, re.sub("<.*?>", "", text)) for name, text in cells] == [
        ("subscription", "nsw"),
        ("table", "public.t"),
        ("state", "ready"),
        ("changes", "30"),
        ("filtered", "10 (25%)"),
        ("copied", "7"),
        ("filter by", "gateway"),
    ]


def test_rates_are_those_of_the_last_two_samples_and_the_lag_is_drawn() -> None:
    text = fragment(shown(), HISTORY)

    assert "200 messages/s" in text and "20 records/s" in text
    assert "at most 0.2 s, now 0.2 s" in text
    (points,) = re.findall(r'points="(.*?)"', text)
    assert points.split() == ["598.3,100.0", "599.2,90.4", "600.0,80.8"]


def test_the_page_is_not_green_while_there_is_something_to_do_or_it_is_too_far_behind() -> None:
    problem = {"severity": "act", "message": "it is lost", "hint": None}

    banner = fragment(shown(problems=[problem]), ())
    behind = fragment(shown(lagging="400 s behind the source"), ())

    assert '<strong class="bad">streaming, but there is something to do</strong>' in banner
    assert '<strong class="wait">streaming, lag above the limit</strong>' in behind


def test_problems_and_troubles_come_with_their_hints() -> None:
    problem = {"severity": "act", "message": "it is lost", "hint": "raise it"}
    trouble = {
        "at": 0,
        "level": "error",
        "source": "daemon",
        "message": "no room",
        "fields": {"error": "full", "hint": "make room"},
    }

    text = fragment(shown(problems=[problem], log=[trouble]), ())

    assert "<strong>to do:</strong> it is lost<p>raise it</p>" in text
    assert "<strong>no room</strong> <small>error=full</small><p>make room</p>" in text


def test_before_anything_is_known_there_is_a_page() -> None:
    gateway = {"name": "gw", "phase": "starting", "lag_seconds": None, "records": 0}

    text = page({"gateway": gateway, "log": []}, ())

    assert "starting" in text


def test_names_are_text_and_every_tag_is_closed() -> None:
    table = {**shown()["tables"][0], "subscription": EVIL, "table": EVIL, "reason": EVIL}
    trouble = {
        "at": 0,
        "level": "warning",
        "source": "x",
        "message": EVIL,
        "fields": {EVIL: EVIL, "hint": EVIL},
    }
    problem = {"severity": "wait", "message": EVIL, "hint": EVIL}
    status = shown(tables=[table], log=[trouble], problems=[problem], server_lsn=EVIL)
    status["gateway"] = {**status["gateway"], "name": EVIL}
    parser = Balanced()

    text = page(status, HISTORY)
    parser.feed(text)

    assert "alert('x')" not in text
    assert parser.open == []
    assert [a for a in parser.addresses if ":" in a and not a.startswith("data:image/")] == []


def test_nothing_but_this_server_and_this_script_is_allowed() -> None:
    assert SECURITY.startswith("default-src 'none'")
    assert "unsafe-eval" not in SECURITY and "http" not in SECURITY
