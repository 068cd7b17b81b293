"""Rows on which a row filter fails: the gateway stops, or quarantines them and goes on."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.backends.servers import Database
from tests.support.gateway.process import Read
from tests.support.gateway.scene import (
    Connection,
    Scene,
    assert_exactly_once,
    current_lsn,
    value_of,
)
from tests.support.run.majors import alternating

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
majors = alternating(__name__, 16, 18)

QUARANTINE = {"on_error": {"filter": "quarantine"}}
DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE t WHERE (100 / a > 5);"
    "CREATE PUBLICATION everything FOR TABLE t;"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
    "CREATE SUBSCRIPTION {s}_all CONNECTION '' PUBLICATION everything;"
)


@pytest.fixture
def source(database: Database) -> Any:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
        yield connection


def errors(scene: Scene) -> list[Read]:
    return scene.reader.read(f"{scene.slot}.error")


def facts(record: Read) -> tuple[Any, ...]:
    value = record.value
    assert value is not None
    return (value["op"], value["key"], value["before"], value["after"])


@majors
def test_quarantined_rows_are_in_the_error_topic_and_all_else_goes_on(
    scene: MakeScene, source: Connection
) -> None:
    source.execute("INSERT INTO t VALUES (0, 'copied'), (1, 'one'), (2, 'two'), (50, 'none')")
    s = scene(DEFINITIONS, **QUARANTINE)
    s.run_to("0/1")
    with source.transaction():
        source.execute("INSERT INTO t VALUES (3, 'three')")
        source.execute("UPDATE t SET b = 'new' WHERE a = 0")  # the new row raises, no old one
        source.execute("UPDATE t SET a = 4 WHERE a = 0")  # the old row raises
        source.execute("UPDATE t SET a = 0, b = NULL WHERE a = 2")  # the new row raises
        source.execute("UPDATE t SET b = 'ONE' WHERE a = 1")
    xid = value_of(source, "SELECT xmin::text FROM t WHERE a = 1")
    source.execute("DELETE FROM t WHERE a = 0")
    ended = s.run_to(current_lsn(source))

    assert s.rebuilt("t", f"{s.slot}_all") == s.source_rows("TABLE t")
    # (4, 'new') never came in, and (2, 'two') is stale: what the error topic tells of.
    assert s.rebuilt("t") == [(1, "ONE"), (2, "two"), (3, "three")]
    found = errors(s)
    assert [facts(record) for record in found] == [
        ("r", {"a": "0"}, None, {"a": "0", "b": "copied"}),
        ("u", {"a": "0"}, None, {"a": "0", "b": "new"}),
        ("u", {"a": "0"}, {"a": "0"}, {"a": "4", "b": "new"}),
        ("u", {"a": "2"}, {"a": "2"}, {"a": "0", "b": None}),
        ("d", {"a": "0"}, {"a": "0"}, None),
    ]
    assert [record.headers["op"] for record in found] == ["r", "u", "u", "u", "d"]
    assert [record.headers["seq"] for record in found] == ["0", "3", "5", "7", "1"]
    assert [record.headers.get("xid") for record in found[:4]] == [None, xid, xid, xid]
    values = [record.value for record in found if record.value is not None]
    assert {(v["subscription"], v["reason"], v["relation"]) for v in values} == {
        (s.slot, "division by zero", "public.t")
    }
    assert [v["where"] for v in values[0]["filters"]] == ["((100 / a) > 5)"]
    for subscription in (s.slot, f"{s.slot}_all"):
        assert_exactly_once(s, ["t"], subscription)
    warnings = [line for line in ended.err.splitlines() if "are in the error topic" in line]
    assert ["records=3" in line for line in warnings] == [True, False]


@pytest.mark.parametrize("options", ["", " WITH (binary = true)"], ids=["text", "binary"])
def test_quarantined_rows_are_written_once_however_often_the_gateway_starts(
    scene: MakeScene, source: Connection, options: str
) -> None:
    definitions = re.sub(r"(SUBSCRIPTION [^;]*);", rf"\1{options};", DEFINITIONS)
    s = scene(definitions, **QUARANTINE)
    s.run_to("0/1")
    source.execute("INSERT INTO t VALUES (0, 'bad')")
    s.run_to(current_lsn(source))
    s.run_to("0/1")
    source.execute("INSERT INTO t VALUES (1, 'good')")
    s.run_to(current_lsn(source))

    assert [facts(record) for record in errors(s)] == [
        ("c", {"a": "0"}, None, {"a": "0", "b": "bad"})
    ]
    assert s.rebuilt("t") == [(1, "good")]


def test_a_filter_column_outside_the_column_list_is_read_in_the_copy_and_not_shown(
    scene: MakeScene, source: Connection
) -> None:
    source.execute("ALTER TABLE t ADD c int")
    source.execute("INSERT INTO t VALUES (1, 'x', 0), (2, 'y', 5), (3, 'z', 50), (4, 'w', NULL)")
    s = scene(
        "CREATE PUBLICATION p FOR TABLE t (a) WHERE (100 / c > 5) WITH (publish = 'insert');"
        "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
        **QUARANTINE,
    )
    s.run_to("0/1")

    assert s.rebuilt("t") == [(2,)]
    assert [facts(record) for record in errors(s)] == [("r", {"a": "1"}, None, {"a": "1"})]


def test_without_quarantine_the_stream_stops_at_the_row_and_quarantine_takes_it_on(
    scene: MakeScene, source: Connection
) -> None:
    s = scene(DEFINITIONS)
    s.run_to("0/1")
    source.execute("INSERT INTO t VALUES (1, 'good')")
    source.execute("INSERT INTO t VALUES (0, 'bad')")
    end = current_lsn(source)

    ended = s.cli("run", "--endpos", end)

    assert ended.code == 1
    assert "row filter of publication p for public.t: division by zero" in ended.err
    assert "row at LSN" in ended.err
    assert '[on_error] filter = "quarantine"' in ended.err
    assert "Traceback" not in ended.err
    s.project.extra = QUARANTINE
    s.run_to(end)
    assert s.rebuilt("t") == [(1, "good")]
    assert len(errors(s)) == 1
    assert s.rebuilt("t", f"{s.slot}_all") == s.source_rows("TABLE t")


def test_without_quarantine_the_initial_copy_stops_and_says_what_to_do(
    scene: MakeScene, source: Connection
) -> None:
    source.execute("INSERT INTO t VALUES (0, 'secret')")
    s = scene(DEFINITIONS)

    ended = s.cli("run", "--endpos", "0/1")

    assert ended.code == 1
    assert "row filter of publication p for public.t: division by zero" in ended.err
    assert "a row that is copied" in ended.err
    assert '[on_error] filter = "quarantine"' in ended.err
    assert "secret" not in ended.err and "Traceback" not in ended.err


def test_a_filter_that_no_longer_raises_brings_the_quarantined_rows_in(
    scene: MakeScene, source: Connection
) -> None:
    source.execute("INSERT INTO t VALUES (0, 'copied'), (1, 'one')")
    s = scene(DEFINITIONS, **QUARANTINE)
    s.run_to("0/1")
    source.execute("INSERT INTO t VALUES (2, 'two')")
    source.execute("UPDATE t SET b = 'changed' WHERE a = 0")
    s.run_to(current_lsn(source))
    before = s.rebuilt("t")
    s.project.definitions = s.project.definitions.replace("100 / a > 5", "a < 20")
    process = s.project.start()
    process.wait_until_copied()
    assert process.terminate() == 0, process.log()

    assert before == [(1, "one"), (2, "two")]
    assert s.rebuilt("t") == s.source_rows("SELECT * FROM t WHERE a < 20")
    assert len(errors(s)) == 2
    assert_exactly_once(s, ["t"])


def test_check_names_the_publications_whose_filters_can_fail(
    scene: MakeScene, source: Connection
) -> None:
    s = scene(DEFINITIONS)

    stopping = s.cli("check")
    s.project.extra = QUARANTINE
    going_on = s.cli("check")

    assert (stopping.code, going_on.code) == (0, 0)
    assert "row filters: those of p can fail on a row" in stopping.out
    assert "the gateway stops there" in stopping.out
    assert f"such rows go to topic {s.slot}.error" in going_on.out


def test_a_repaired_row_that_leaves_the_filter_and_comes_back_is_as_in_the_source(
    scene: MakeScene, source: Connection
) -> None:
    source.execute("INSERT INTO t VALUES (2, 'two'), (3, 'three')")
    s = scene(DEFINITIONS, **QUARANTINE)
    s.run_to("0/1")
    source.execute("INSERT INTO t VALUES (0, 'bad')")
    source.execute("UPDATE t SET a = 4, b = 'repaired' WHERE a = 0")
    source.execute("UPDATE t SET a = 0, b = 'broken' WHERE a = 2")
    source.execute("UPDATE t SET a = 2, b = 'mended' WHERE a = 0")
    source.execute("UPDATE t SET a = a + 100 WHERE a IN (2, 4)")
    source.execute("UPDATE t SET a = a - 100 WHERE a > 100")
    s.run_to(current_lsn(source))

    assert s.rebuilt("t") == s.source_rows("SELECT * FROM t WHERE 100 / a > 5")
    assert len(errors(s)) == 4
