"""Changes that cannot be published: the gateway stops and says what gets past them, or goes on.

Each kind goes the same way: it stops, its message names a setting, and with that the next start
goes on where this one stopped, without another copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from psycopg.conninfo import make_conninfo

from gateway.sink.topics.topics import TopicSpec, ensure_topics
from tests.support.backends.servers import Database
from tests.support.gateway.process import Read
from tests.support.gateway.scene import (
    Connection,
    Ended,
    Scene,
    assert_exactly_once,
    current_lsn,
    value_of,
)

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]

DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE t;"
    "CREATE PUBLICATION few FOR TABLE t (id, name);"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
    "CREATE SUBSCRIPTION {s}_few CONNECTION '' PUBLICATION few;"
)
RANDOM = "(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, {}))"
"""Text of 32 bytes for each, which cannot be compressed to less than half."""
UNFIT = {
    "value": "UPDATE t SET n = 'NaN' WHERE id = 2",
    "size": "UPDATE t SET note = repeat('x', 1500000) WHERE id = 2",
}
SAYS = {
    "value": "public.t, column n: NaN or infinity cannot be carried by an Avro decimal(10,2)",
    "size": "public.t: a record of 15",
}


@pytest.fixture
def source(database: Database) -> Iterator[Connection]:
    with database.connect() as connection:
        connection.execute(
            "CREATE TABLE t"
            " (id int PRIMARY KEY, name text, n numeric(10, 2), at timestamptz, note text)"
        )
        yield connection


def errors(scene: Scene) -> list[dict[str, Any]]:
    records = scene.reader.read(f"{scene.slot}.error")
    return [record.value for record in records if record.value is not None]


def facts(error: dict[str, Any]) -> tuple[Any, ...]:
    return (error["kind"], error["op"], error["effect"], error["key"])


def copies_begun(scene: Scene, subscription: str | None = None) -> int:
    return sum(record.op == "t" for record in scene.read("t", subscription))


def stopped(scene: Scene, endpos: str, kind: str) -> Ended:
    """Run into the fault; the message names the setting that gets past it."""
    ended = scene.cli("run", "--endpos", endpos)
    assert ended.code == 1, ended.err
    assert f'[on_error] {kind} = "quarantine"' in ended.err
    assert "Traceback" not in ended.err
    return ended


def go_on(scene: Scene, endpos: str, kind: str) -> Ended:
    """Start again with the setting that the message names."""
    scene.project.extra = {**scene.project.extra, "on_error": {kind: "quarantine"}}
    return scene.run_to(endpos)


@pytest.mark.parametrize("kind", ["value", "size"])
def test_one_bad_row_of_the_stream_is_no_dead_end(
    scene: MakeScene, source: Connection, kind: str
) -> None:
    source.execute(
        "INSERT INTO t SELECT i, 'copied', i, now(), 'note' FROM generate_series(1, 3) i"
    )
    s = scene(DEFINITIONS)
    s.run_to("0/1")
    before = s.source_rows("SELECT * FROM t WHERE id = 2")
    with source.transaction():
        source.execute("INSERT INTO t VALUES (4, 'before', 4)")
        source.execute(UNFIT[kind])
        source.execute("UPDATE t SET name = 'behind' WHERE id = 1")
    xid = value_of(source, "SELECT xmin::text FROM t WHERE id = 2")
    source.execute("INSERT INTO t VALUES (5, 'later', 5)")
    end = current_lsn(source)

    ended = stopped(s, end, kind)
    published = s.rebuilt("t")
    went_on = go_on(s, end, kind)

    assert SAYS[kind] in ended.err
    assert f"transaction {xid}" in ended.err
    assert [row[0] for row in published] == [1, 2, 3]
    assert s.rebuilt("t") == sorted(
        [*s.source_rows("SELECT * FROM t WHERE id <> 2"), *before], key=repr
    )
    assert s.rebuilt("t", f"{s.slot}_few") == s.source_rows("SELECT id, name FROM t")
    (error,) = errors(s)
    assert facts(error) == (kind, "u", "stale", {"id": "2"})
    assert (error["subscription"], str(error["xid"])) == (s.slot, xid)
    assert error["after"]["name"] == "copied"
    assert error["omitted"] == ([] if kind == "value" else ["note"])
    assert f"kind={kind} records=1" in went_on.err
    for subscription in (s.slot, f"{s.slot}_few"):
        assert copies_begun(s, subscription) == 1
        assert_exactly_once(s, ["t"], subscription)


@pytest.mark.parametrize("kind", ["value", "size"])
def test_one_bad_row_of_a_copy_is_no_dead_end(
    scene: MakeScene, source: Connection, kind: str
) -> None:
    source.execute("INSERT INTO t SELECT i, 'copied', i, now(), '' FROM generate_series(1, 100) i")
    source.execute(UNFIT[kind].replace("id = 2", "id = 55"))
    s = scene(DEFINITIONS, copy={"chunk_rows": 10, "parallel": 1})

    ended = stopped(s, "0/1", kind)
    copied = [
        record.value["after"]["id"] for record in s.read("t") if record.op == "r" and record.value
    ]
    go_on(s, "0/1", kind)

    assert SAYS[kind] in ended.err
    assert "a row that is copied" in ended.err
    assert copied == [i for i in range(1, 51) if i <= len(copied)]
    published = [record.value for record in s.read("t") if record.op == "r"]
    rows = [value["after"]["id"] for value in published if value is not None]
    assert rows == [i for i in range(1, 101) if i != 55]
    assert s.rebuilt("t") == s.source_rows("SELECT * FROM t WHERE id <> 55")
    assert s.rebuilt("t", f"{s.slot}_few") == s.source_rows("SELECT id, name FROM t")
    assert [facts(error) for error in errors(s)] == [(kind, "r", "missing", {"id": "55"})]
    assert copies_begun(s) == 1
    assert_exactly_once(s, ["t"])


def test_bad_rows_of_a_streamed_transaction_on_disk_are_quarantined(
    scene: MakeScene, database: Database, source: Connection
) -> None:
    s = scene(
        DEFINITIONS.replace("PUBLICATION p;", "PUBLICATION p WITH (streaming = on);").replace(
            "PUBLICATION few;", "PUBLICATION few WITH (streaming = on);"
        ),
        source={"dsn": make_conninfo(database.dsn, options="-c logical_decoding_work_mem=64kB")},
        limits={"max_buffer_bytes": 100_000},
        on_error={"value": "quarantine", "size": "quarantine"},
    )
    s.run_to("0/1")
    with source.transaction():
        source.execute(
            "INSERT INTO t SELECT i, 'n', CASE WHEN i % 1000 = 0 THEN 'NaN'::numeric ELSE i END,"
            " CASE WHEN i % 1000 = 500 THEN '294276-12-31'::timestamptz END, repeat('y', 100)"
            " FROM generate_series(1, 3000) i"
        )
        source.execute(UNFIT["size"])
        source.execute("DELETE FROM t WHERE id = 3")
    s.run_to(current_lsn(source))

    expected = s.source_rows("SELECT * FROM t WHERE id <> 2 AND id % 500 <> 0")
    found = [row for row in s.rebuilt("t") if row[0] != 2]
    assert found == expected
    assert [(e["kind"], e["effect"], e["key"]["id"]) for e in errors(s)] == [
        *[("value", "missing", str(500 * i)) for i in range(1, 7)],
        ("size", "stale", "2"),
    ]
    assert s.rebuilt("t", f"{s.slot}_few") == s.source_rows("SELECT id, name FROM t")
    assert_exactly_once(s, ["t"])


def test_a_size_that_only_the_broker_finds_out_is_no_dead_end(
    scene: MakeScene, source: Connection, kafka: str
) -> None:
    s = scene(DEFINITIONS)
    topic = TopicSpec(s.topic("t"), config={"max.message.bytes": "10000"})
    ensure_topics({"bootstrap.servers": kafka}, [topic])
    s.run_to("0/1")
    source.execute(f"INSERT INTO t VALUES (1, 'large', 1, NULL, {RANDOM.format(1500)})")
    source.execute(
        "INSERT INTO t SELECT i, 'many', i, NULL, md5(i::text) FROM generate_series(2, 1000) i"
    )
    end = current_lsn(source)

    ended = stopped(s, end, "size")
    go_on(s, end, "size")

    assert f"topic {s.topic('t')}" in ended.err
    assert "the topic's max.message.bytes" in ended.err
    assert s.rebuilt("t") == s.source_rows("SELECT * FROM t WHERE id > 1")
    (error,) = errors(s)
    # The error topic takes what the table's topic does not.
    assert facts(error) == ("size", "c", "missing", {"id": "1"})
    assert (error["omitted"], len(error["after"]["note"])) == ([], 48_000)
    assert_exactly_once(s, ["t"])


def test_a_logical_message_that_is_too_large_is_no_dead_end(
    scene: MakeScene, source: Connection
) -> None:
    s = scene(DEFINITIONS, messages={"prefixes": ["app"]})
    s.run_to("0/1")
    source.execute("SELECT pg_logical_emit_message(true, 'app', repeat('x', 1500000))")
    source.execute("SELECT pg_logical_emit_message(false, 'app', repeat('x', 1500000))")
    source.execute("SELECT pg_logical_emit_message(true, 'app', 'small')")
    end = current_lsn(source)

    ended = stopped(s, end, "size")
    go_on(s, end, "size")

    assert "a logical message with prefix 'app': a record of 15" in ended.err
    assert [facts(error) for error in errors(s)] == [("size", "m", "missing", None)] * 2
    messages: list[Read] = s.reader.read(f"{s.slot}.message")
    assert [record.value["content"] for record in messages if record.value] == [b"small"]


def test_a_schema_that_the_registry_refuses_holds_the_table_until_it_is_accepted(
    scene: MakeScene, source: Connection, registry: str
) -> None:
    source.execute("INSERT INTO t SELECT i, 'copied', i FROM generate_series(1, 3) i")
    s = scene(DEFINITIONS)
    s.run_to("0/1")
    source.execute("INSERT INTO t VALUES (4, 'before', 4)")
    s.run_to(current_lsn(source))
    before = s.rebuilt("t")
    source.execute("ALTER TABLE t ALTER n TYPE bigint")
    source.execute("INSERT INTO t VALUES (5, 'refused', 5)")
    source.execute("DELETE FROM t WHERE id = 1")
    end = current_lsn(source)

    ended = stopped(s, end, "schema")
    held = go_on(s, end, "schema")
    stale = s.rebuilt("t")
    refused = [facts(error) for error in errors(s)]
    source.execute("TRUNCATE t")
    source.execute("INSERT INTO t VALUES (6, 'still refused', 6)")
    still = s.run_to(current_lsn(source))
    with SchemaRegistryClient({"url": registry}) as client:
        client.delete_subject(f"{s.topic('t')}-value")
    s.run_to(current_lsn(source))

    assert f"refuses the schema of subject {s.topic('t')}-value" in ended.err
    # It is to be copied at once, as its rows may have other values: before the first of them comes.
    assert "refuses the schema of a table" in held.err
    assert "a table is held" in still.err or "refuses the schema of a table" in still.err
    assert stale == before
    states = [m["copy"]["state"] for m in s.markers() if m["kind"] == "COPY"]
    assert states == ["pending", "copying", "ready"] * 2
    assert str(s.markers(f"{s.slot}_few")).count("'pending'") == 1, "of its first copy"
    assert refused == [
        ("schema", "c", "missing", {"id": "5"}),
        ("schema", "d", "kept", {"id": "1"}),
    ]
    assert [facts(error) for error in errors(s)][2:] == [
        ("schema", "t", "kept", None),
        ("schema", "c", "missing", {"id": "6"}),
    ]
    assert s.rebuilt("t") == s.source_rows("TABLE t")
    assert s.rebuilt("t", f"{s.slot}_few") == s.source_rows("SELECT id, name FROM t")
    assert (copies_begun(s), copies_begun(s, f"{s.slot}_few")) == (2, 2)  # the TRUNCATE is one
    assert_exactly_once(s, ["t"])
