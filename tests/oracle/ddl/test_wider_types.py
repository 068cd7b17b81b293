"""Types that get wider: the table is copied once, and its last rows are as wide as the stream's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from gateway.source.provisioning.event_trigger import INSTALL
from tests.oracle.ddl.test_changing_publications import (
    MakeScene,
    copied,
    finish,
    published_to,
    started,
)
from tests.oracle.ddl.test_leaving_tables import lagging
from tests.oracle.ddl.test_unseen_changes import copies
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.scene import Connection, Scene, current_lsn, wait_for_copy_marker
from tests.support.run.majors import EVALUATED_ON
from tests.support.run.waiting import wait_until

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.kafka,
    pytest.mark.parametrize("postgres_major", EVALUATED_ON, indirect=True),
]

DEFINED = "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
TABLES = "CREATE TABLE t (a int PRIMARY KEY, n int); CREATE TABLE u (a int PRIMARY KEY);"
BIG = 1 << 40


@pytest.mark.parametrize(
    "first", ["catalog", "stream", "event trigger", "both"], ids=lambda first: f"{first} first"
)
def test_a_type_that_gets_wider_brings_one_copy_whoever_notices_it_first(
    scene: MakeScene, database: Database, first: str
) -> None:
    told = first == "event trigger"
    watched = {"definitions": {"watch_interval_s": 0.2 if first in ("catalog", "both") else 0.0}}
    with database.connect() as connection:
        connection.execute(f"{TABLES} {INSTALL if told else ''}".encode())
        connection.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
        connection.execute("CREATE PUBLICATION p FOR TABLE t, u")
        s = scene(DEFINED, **watched)
        process = started(s)
        if first in ("both", "event trigger"):
            with lagging(process):
                _widen(connection)
                _write(connection)
        else:
            _widen(connection)
            if first == "stream":  # the watch is off: nobody else can notice it
                _write(connection)
        wait_until(lambda: copies(s, "t") == 2, 60, "the second copy")
        copied(s, "t")
        if first == "catalog":
            _write(connection)  # which announces it again
        published_to(s, current_lsn(connection))
        assert process.terminate() == 0, process.log()

        # Another start looks at all that it was copied for, and so does its watch.
        connection.execute("INSERT INTO t VALUES (3, 3)")
        process = s.project.start()
        assert s.cli("reload").code == 0
        _announce(s, connection)
        assert process.terminate() == 0, process.log()
        rows = s.source_rows("SELECT * FROM t")

    assert s.rebuilt("t") == rows
    assert copies(s, "t") == 2


def _widen(connection: Connection) -> None:
    # Of the key the values stay, of n they do not: the catalog is the same after both.
    connection.execute("ALTER TABLE t ALTER a TYPE bigint, ALTER n TYPE bigint USING n * 10")


def _write(connection: Connection) -> None:
    connection.execute(f"UPDATE t SET n = n + {BIG} WHERE a = 1; DELETE FROM t WHERE a = 2")


def _latest(registry: str, s: Scene) -> dict[str, Any]:
    """The schema of t's values that was registered last."""
    client = SchemaRegistryClient({"url": registry})
    text = client.get_latest_version(f"{s.topic('t')}-value").schema.schema_str
    assert text is not None
    schema: dict[str, Any] = json.loads(text)
    return schema


def _field_n(schema: dict[str, Any]) -> dict[str, Any]:
    fields: list[dict[str, Any]] = schema["fields"][0]["type"][1]["fields"]
    return next(field for field in fields if field["name"] == "n")


def _announce(s: Scene, connection: Connection) -> None:
    """Let the stream announce t again, and the gateway arrive behind that."""
    connection.execute("ALTER TABLE t ALTER n SET NOT NULL; UPDATE t SET n = n + 1")
    published_to(s, current_lsn(connection))


def test_the_last_rows_of_a_table_that_was_widened_and_dropped_are_published_as_natively(
    scene: MakeScene, database: Database, make_database: DatabaseFactory, registry: str
) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        connection.execute("CREATE PUBLICATION p FOR ALL TABLES")
        wide = TABLES.replace("n int", "n bigint")
        native = NativeSubscription(database, make_database, wide, ["p"])
        s = scene(DEFINED, definitions={"watch_interval_s": 0.5})
        s.run_to("0/1")
        connection.execute("INSERT INTO t VALUES (1, 1)")
        connection.execute("ALTER TABLE t ALTER n TYPE bigint")
        connection.execute(f"INSERT INTO t VALUES (2, {BIG}); INSERT INTO u VALUES (1)")
        connection.execute("DROP TABLE t")
        process = s.project.start()
        finish(s, process, native, current_lsn(connection))

    assert s.rebuilt("t") == native.rows("t") == [(1, 1), (2, BIG)]
    assert _field_n(_latest(registry, s))["type"] == ["null", "long"]
    assert s.rebuilt("u") == native.rows("u") == [(1,)]


def test_a_table_that_is_gone_stops_nothing_when_the_registry_refuses_its_last_rows(
    scene: MakeScene, database: Database, registry: str
) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        connection.execute("CREATE PUBLICATION p FOR ALL TABLES")
        s = scene(DEFINED, definitions={"watch_interval_s": 0.5})
        s.run_to("0/1")
        connection.execute("ALTER TABLE t ADD later text; INSERT INTO t VALUES (1, 1, 'x')")
        connection.execute("INSERT INTO u VALUES (1); DROP TABLE t")
        # As another table of the name would have it, which has left it since.
        schema = _latest(registry, s)
        _field_n(schema)["type"] = ["null", "long"]
        client = SchemaRegistryClient({"url": registry})
        client.register_schema(f"{s.topic('t')}-value", Schema(json.dumps(schema), "AVRO"))

        process = s.project.start()
        connection.execute("INSERT INTO u VALUES (2)")
        published_to(s, current_lsn(connection))
        wait_for_copy_marker(s, "t", "gone")
        assert process.terminate() == 0, process.log()

    assert s.rebuilt("u") == [(1,), (2,)]
    told = [m["copy"] for m in s.markers() if m["copy"] and m["copy"]["table"] == "t"][-1]
    assert told["state"] == "gone"
    assert "refuses the schema" in told["reason"]
