"""Rows and names that hold what a terminal obeys, as each command and log shows them."""

from __future__ import annotations

import importlib
import json
import logging
import pkgutil
import re
import subprocess
from collections.abc import Callable
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

import spark_consumer
from gateway.core.display import as_html, lines_shown, shown
from gateway.core.lsn import Lsn
from gateway.monitor.status import Status, TableStatus
from gateway.observe import event, set_up_logging
from schemas.topic_names import topic_part
from spark_consumer.display import lines_shown as job_lines_shown
from spark_consumer.display import shown as job_shown
from spark_consumer.errors import COPY_AGAIN, TableError
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.job.subscriber_tables import SubscriberTables
from spark_consumer.observe.figures import Figures
from spark_consumer.observe.metrics import exposition
from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene, current_lsn, scene

__all__ = ["scene"]

MakeScene = Callable[..., Scene]
ACTS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
EVIL = "a\x1b[2J\x1b]0;owned\x07\rb\x9b31m\u202ec\u2028d"
"""Clears the screen, names the window, goes back, colours, turns the order, ends the line."""

DEFINITIONS = """
CREATE PUBLICATION p FOR TABLE t WHERE (a > 5), "evil\x1b[31m";
CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;
"""


def assert_harmless(text: str) -> None:
    """Nothing in it acts on a terminal."""
    found = ACTS.search(text)
    assert found is None, text[max(0, found.start() - 80) : found.end() + 20].encode()


@pytest.mark.postgres
@pytest.mark.kafka
def test_rows_and_names_reach_no_terminal_unescaped(scene: MakeScene, database: Database) -> None:
    with database.connect() as connection:
        connection.execute('CREATE TABLE t (a int PRIMARY KEY, "b\x1b[5m" text)')
        connection.execute('CREATE TABLE "evil\x1b[31m" (a int PRIMARY KEY)')
        connection.execute("INSERT INTO t VALUES (7, %s)", [EVIL])
        s = scene(DEFINITIONS)
        log = s.run_to("0/1").err
        connection.execute("INSERT INTO t VALUES (8, %s)", [EVIL])
        log += s.run_to(current_lsn(connection)).err
    shown_by = {
        "run": log,
        "tail": s.cli("tail", s.slot, "--from-beginning", "--no-follow").out,
        "status": s.cli("status").out,
        "status --json": s.cli("status", "--json").out,
        "check": s.cli("check").out,
        "explain": s.cli("explain", "t", json.dumps({"a": 9, "b\x1b[5m": EVIL})).out,
        "a wrong name": s.cli("explain", "no\x1b[31m", "(1)").err,
        "schemas": s.cli("schemas").out,
    }
    for text in shown_by.values():
        assert_harmless(text)
    assert r"\u001b[2J" in shown_by["tail"]
    for command in ("status", "a wrong name"):
        assert r"\u001b[31m" in shown_by[command], command


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_log_line_is_one_line_of_text(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        set_up_logging(log_format="json" if form == "json" else "text")
        event(
            logging.getLogger("gateway.x"), logging.WARNING, EVIL, name=EVIL, bare="\x7f", two="\n"
        )
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    line = capsys.readouterr().err
    assert_harmless(line)
    assert line.count("\n") == 1
    if form == "json":
        found = json.loads(line)
        assert (found["message"], found["name"], found["two"]) == (EVIL, EVIL, "\n")


def test_every_character_that_acts_is_escaped_and_no_other() -> None:
    everything = "".join(map(chr, range(0x3000))) + "\ud800\ufeff😀"
    assert ACTS.search(shown(everything)) is None
    assert shown(everything).encode()  # no half of a pair is left
    assert "\n" not in shown("a\nb")
    assert lines_shown("a\n\tb\r") == "a\n\tb\\r"
    assert as_html("<b\x1b>") == r"&lt;b\u001b&gt;"
    plain = "plain text, Grüße, 漢字, עברית, 😀"
    assert shown(plain) == plain


def test_the_spark_job_shows_what_the_gateway_shows() -> None:
    everything = "".join(map(chr, range(0x3000))) + "\ud800\ufeff😀"

    assert job_shown(everything) == shown(everything)
    assert job_lines_shown(everything) == lines_shown(everything)


def test_no_log_line_and_no_error_of_the_spark_job_has_a_character_that_acts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for each in pkgutil.walk_packages(spark_consumer.__path__, "spark_consumer."):
        if not each.name.endswith("__main__"):
            importlib.import_module(each.name)
    loggers = [
        found
        for name, found in logging.root.manager.loggerDict.items()
        if name.startswith("spark_consumer.") and isinstance(found, logging.Logger)
    ]
    assert len(loggers) > 5
    for found in loggers:
        caplog.clear()
        found.error("table held: table=%s records=%d: %s\nhint: %s", EVIL, 7, EVIL, "\n2026-")
        (line,) = caplog.messages
        assert_harmless(line)
        assert line.count("\n") == 1, found.name
        assert "records=7" in line
    error = TableError(EVIL, hint=EVIL)
    assert_harmless(str(error))
    assert str(error).count("\n") == 1


def test_a_command_in_a_hint_of_the_spark_job_is_harmless_and_means_the_table() -> None:
    name, session = "ev`il'$(id)\n\x1b[31m\\", cast("Any", None)
    tables = SubscriberTables(session, DeltaFormat(), "warehouse", name)
    tables.names["topic"] = f"public.{topic_part(name)}"
    hint = tables.hold(tables.names["topic"], TableError("x", hint=COPY_AGAIN)).hint
    assert hint is not None
    assert_harmless(hint)
    command = hint.partition("(pgsluice copy ")[2].removesuffix(")")
    run = ["bash", "-c", f"printf '%s|' {command}"]
    words = subprocess.run(run, capture_output=True, check=True).stdout.decode().split("|")
    assert words == [f'public."{name}"', "--subscription", name, ""]


def test_a_metric_s_label_is_one_line_that_prometheus_reads() -> None:
    text = exposition({EVIL + '"\\': Figures()})

    assert_harmless(text)
    (family,) = (f for f in text_string_to_metric_families(text) if f.name.endswith("_end_lsn"))
    assert [one.labels["subscription"] for one in family.samples] == [shown(EVIL) + '"\\']


def test_status_for_everybody_leaves_the_condition_of_a_copy_to_who_asked() -> None:
    def asked(condition: str | None) -> object:
        table = TableStatus("s", "public.t", "ready", 0, asked=condition)
        return Status("slot", None, Lsn(1), Lsn(1), (table,)).as_json()["tables"][0]["asked"]

    assert [asked(each) for each in (None, "", "salary > 100000")] == [None, "all", "part"]
