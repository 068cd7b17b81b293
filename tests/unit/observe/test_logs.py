"""Log lines for people and for machines, and the latest troubles."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr

from gateway.observe import RecentErrors, event, set_up_logging

LOG = logging.getLogger("gateway.somewhere")


@contextmanager
def logging_to() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        with redirect_stderr(io.StringIO()) as written:
            yield written
    finally:
        root.handlers[:] = before
        root.setLevel(level)


def test_json_has_an_object_a_line_with_the_fields() -> None:
    with logging_to() as lines:
        set_up_logging(log_format="json")
        event(LOG, logging.WARNING, "something", slot="s", rows=3, table=None)

    found = json.loads(lines.getvalue())
    assert found.pop("time").endswith("+00:00")
    assert found == {
        "level": "warning",
        "logger": "gateway.somewhere",
        "message": "something",
        "slot": "s",
        "rows": 3,
        "table": None,
    }


def test_text_quotes_what_has_blanks() -> None:
    with logging_to() as lines:
        set_up_logging()
        event(LOG, logging.INFO, "something", slot="s", error="it is gone")

    assert lines.getvalue().endswith('gateway.somewhere: something slot=s error="it is gone"\n')


def test_troubles_are_counted_and_the_newest_comes_first() -> None:
    recent_errors = RecentErrors()
    LOG.addHandler(recent_errors)
    try:
        for number in range(60):
            event(LOG, logging.WARNING, "something", number=number)
        event(LOG, logging.ERROR, "worse", hint="do this")
        event(LOG, logging.INFO, "fine")
    finally:
        LOG.removeHandler(recent_errors)

    latest = recent_errors.latest()
    assert len(latest) == 50
    assert (latest[0].message, latest[0].level) == ("worse", "error")
    assert latest[0].fields == {"hint": "do this"}
    assert latest[1].fields == {"number": "59"}
    assert recent_errors.counts() == {("warning", "somewhere"): 60, ("error", "somewhere"): 1}
