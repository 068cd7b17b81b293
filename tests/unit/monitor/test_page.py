"""The page is whole without JavaScript, loads nothing from elsewhere, and shows names as text."""

from __future__ import annotations

import re
import time
from html import unescape
from html.parser import HTMLParser
from typing import Any

from gateway.monitor.page.document import SECURITY, fragment, page
from gateway.monitor.page.selection import PORTION, Selection
from gateway.monitor.watch import Sample

EVIL = "<script>alert('x')</script>&\"name"
VOID = {"meta", "link", "line", "polyline", "br", "wbr", "input"}


def shown(**changes: Any) -> dict[str, Any]:
    """A status as /status has it."""
    return {
        "gateway": {
            "name": "gw",
            "version": "1.2.3",
            "started_at": time.time() - 7_230,
            "phase": "streaming",
            "lag_seconds": 1.5,
            "records": 1_234,
        },
        "last_change": time.time() - 600,
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
                "topic": "nsw.public.t",
            }
        ],
        "changed": [{"subscription": "nsw", "table": "public.t", "at": time.time() - 300}],
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
        ("last change", "5 min ago"),
        ("filter by", "gateway"),
        ("topic", "nsw.public.t"),
    ]
    # Wrapped after a point or an underscore, not within a word.
    assert cells[-1][1] == "nsw.<wbr>public.<wbr>t"


def test_a_table_whose_rows_move_says_so() -> None:
    moving = {"unsettled": 1_200, "moving_since": 5.0, "moved_rows": 4_000}
    table = {**shown()["tables"][0], **moving}

    assert (
        "rows moving since 1970-01-01 00:00:05 UTC: 1,200 values and keys to read, "
        "4,000 rows moved so far" in fragment(shown(tables=[table]), HISTORY)
    )
    settled = {**table, "unsettled": 0, "moving_since": None, "moved_rows": 0}
    assert "rows moving" not in fragment(shown(tables=[settled]), HISTORY)


def test_rates_are_those_of_the_last_two_samples_and_the_lag_is_drawn() -> None:
    text = fragment(shown(), HISTORY)

    assert "200 messages/s" in text and "20 records/s" in text
    assert "at most 0.2 s, now 0.2 s" in text
    (points,) = re.findall(r'points="(.*?)"', text)
    assert points.split() == ["598.3,100.0", "599.2,90.4", "600.0,80.8"]


def test_the_line_of_the_lag_is_interrupted_while_it_was_unknown_and_ends_after_an_hour() -> None:
    old = Sample(1_000.0 - 3_600, 99.0, 0, 0, 0)
    later = [Sample(1_100.0 + 5 * n, 0.0, 0, 0, 0) for n in range(2)]

    text = fragment(shown(), [old, *HISTORY, *later])

    assert len(re.findall("<polyline", text)) == 2
    assert "at most 0.2 s, now 0.0 s" in text


def test_version_uptime_and_last_change_are_on_the_page() -> None:
    text = page(shown(), HISTORY)

    assert "pgsluice gateway 1.2.3, started " in text
    assert "last change 10 min ago, up for 2.0 h" in text


def table(number: int, state: str = "ready") -> dict[str, Any]:
    named = {"table": f"public.t{number}", "topic": f"nsw.public.t{number}", "state": state}
    return {**shown()["tables"][0], **named}


def names(text: str) -> list[str]:
    found = re.findall(r'<td class="name".*?><a [^>]*>(.*?)</a>', text)
    return [name.replace("<wbr>", "") for name in found]


def test_many_tables_come_in_portions_those_that_need_attention_first() -> None:
    tables = [table(n, "held" if n == 700 else "ready") for n in range(1_000)]
    status = shown(tables=tables)

    first = fragment(status, HISTORY)
    last = fragment(status, HISTORY, Selection(start=5_000))

    assert names(first) == ["public.t700", *(f"public.t{n}" for n in range(PORTION - 1))]
    assert "1 to 100 of 1,000" in first and 'href="?start=100" rel="next"' in first
    assert names(last)[-1] == "public.t999" and len(names(last)) == PORTION
    assert 'rel="next"' not in last and 'href="?start=800" rel="prev"' in last
    assert len(page(status, HISTORY).encode()) < 100_000


def test_tables_are_searched_and_filtered_by_the_server() -> None:
    tables = [table(1), table(2, "pending"), table(12, "held")]
    status = shown(tables=tables)

    assert names(fragment(status, (), Selection(search="T1"))) == ["public.t12", "public.t1"]
    assert names(fragment(status, (), Selection(attention=True))) == ["public.t12", "public.t2"]
    assert names(fragment(status, (), Selection(search="nowhere"))) == []
    (only,) = re.findall(r'href="(\?q=[^"]*t1)"', fragment(status, ()))
    alone = fragment(status, (), Selection.parse(unescape(only).removeprefix("?")))
    assert names(alone) == ["public.t1"] and '<table class="one">' in alone


def test_a_query_that_cannot_be_read_selects_nothing() -> None:
    many = "&".join(f"{n}=1" for n in range(100))
    for query in ("start=-1", "start=" + "9" * 5_000, "start=\u0665", many):
        assert Selection.parse(query) == Selection()
    assert Selection.parse("q=+a+&attention=1&start=200") == Selection("a", True, 200)
    assert Selection.parse("q=" + "x" * 9_000).search == "x" * 500
    assert Selection("\ud800").query() == "?q=%3F"


def test_many_problems_are_cut_and_lead_to_the_filter() -> None:
    problems = [{"severity": "act", "message": f"table t{n}", "hint": None} for n in range(70)]

    text = fragment(shown(problems=problems), ())

    assert text.count("<strong>to do:</strong>") == 50
    assert text.partition("<details>")[0].count("<strong>to do:</strong>") == 5
    assert '20 more: <a href="?attention=1">' in text


def test_the_page_is_not_green_while_there_is_something_to_do_or_it_is_too_far_behind() -> None:
    problem = {"severity": "act", "message": "it is lost", "hint": None}

    banner = fragment(shown(problems=[problem]), ())
    behind = fragment(shown(lagging="400 s behind the source"), ())

    assert '<strong class="bad">streaming, but there is something to do</strong>' in banner
    assert '<strong class="wait">streaming, lag above the limit</strong>' in behind


def test_problems_and_troubles_come_with_their_hints() -> None:
    problem = {"severity": "act", "message": "it is lost", "hint": "raise it:\nSELECT 1;"}
    trouble = {
        "at": 0,
        "level": "error",
        "source": "daemon",
        "message": "no room",
        "fields": {"error": "full", "hint": "make room"},
    }

    text = fragment(shown(problems=[problem], log=[trouble]), ())

    assert "<strong>to do:</strong> it is lost<p>raise it:</p><p>SELECT 1;</p>" in text
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
    shown_as = {"tables": [table], "log": [trouble], "problems": [problem], "server_lsn": EVIL}
    status = shown(**shown_as, away={EVIL: EVIL})
    status["gateway"] = {**status["gateway"], "name": EVIL}
    parser = Balanced()

    text = page(status, HISTORY, Selection(search=EVIL))
    parser.feed(text)

    assert "alert('x')" not in text
    assert parser.open == []
    assert [a for a in parser.addresses if ":" in a and not a.startswith("data:image/")] == []


def test_nothing_but_this_server_and_this_script_is_allowed() -> None:
    assert SECURITY.startswith("default-src 'none'")
    assert "unsafe-eval" not in SECURITY and "http" not in SECURITY
