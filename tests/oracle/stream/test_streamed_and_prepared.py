"""Streamed, prepared and foreign transactions; a native subscription with the options judges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.scene import Scene, assert_exactly_once, current_lsn
from tests.support.models.rebuild import Rebuilt
from tests.support.run.majors import alternating

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

Connection = psycopg.Connection[tuple[Any, ...]]

TABLES = """
CREATE TABLE t1 (a int PRIMARY KEY, b text);
CREATE TABLE t2 (a int PRIMARY KEY, b text);
CREATE TABLE t3 (a int PRIMARY KEY, b text);
"""
PUBLICATION = "CREATE PUBLICATION p FOR TABLE t1, t2, t3;"
NAMES = ("t1", "t2", "t3")
MANY = "SELECT i, repeat('x', 90) FROM generate_series({}, {}) i"
"""Some 700 rows of these are more than 64 kB of changes."""


def many(table: str, first: int, last: int) -> bytes:
    return f"INSERT INTO {table} {MANY.format(first, last)}".encode()


class Play:
    """Sessions on the publisher, by name; each statement runs in the session it names."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._open = ExitStack()
        self._sessions: dict[str, Connection] = {}

    def __call__(self, session: str, *statements: str | bytes) -> None:
        if session not in self._sessions:
            self._sessions[session] = self._open.enter_context(self._database.connect())
        for statement in statements:
            text = statement.encode() if isinstance(statement, str) else statement
            self._sessions[session].execute(text)

    def close(self) -> None:
        self._open.close()


def interleaved(play: Play) -> None:
    """Three large transactions that alternate, and small ones in between; out of order ends."""
    for number, session in enumerate("abc"):
        play(session, "BEGIN", many("t1", 1000 * number, 1000 * number + 799))
    play("small", "INSERT INTO t2 VALUES (1, 'between')")
    for number, session in enumerate("cab"):
        first = 10_000 + 1000 * number
        play(session, many("t2", first, first + 799), "UPDATE t1 SET b = 'mine' WHERE a % 100 = 99")
        play("small", f"INSERT INTO t3 VALUES ({number}, 'between')")
        play(session, "COMMIT" if session != "b" else "ROLLBACK")


def subtransactions(play: Play) -> None:
    """Savepoints rolled back, released and nested; t2 first appears in one that is rolled back."""
    play("a", "BEGIN", many("t1", 1, 800), "SAVEPOINT s1", many("t2", 1, 800))
    play("a", "ROLLBACK TO s1", many("t1", 801, 1600), "SAVEPOINT s2", many("t2", 1601, 2400))
    play(
        "a", "SAVEPOINT s3", many("t3", 1, 800), "RELEASE s3", "SAVEPOINT s4", many("t3", 801, 1600)
    )
    play("a", "ROLLBACK TO s4", "DELETE FROM t3 WHERE a < 100", "RELEASE s2", "COMMIT")
    play("a", "INSERT INTO t2 VALUES (-1, 'after')")


def aborted_announcement(play: Play) -> None:
    """What a rolled back savepoint announced is old when its transaction commits."""
    play("a", "BEGIN", many("t1", 1, 800), "SAVEPOINT s", many("t2", 1, 800), "ROLLBACK TO s")
    play("b", "ALTER TABLE t2 ADD COLUMN c int", "INSERT INTO t2 VALUES (-1, 'wider', 7)")
    play("a", many("t1", 801, 1600), "COMMIT")
    play(
        "b",
        "INSERT INTO t2 VALUES (-2, 'still wider', 8)",
        "INSERT INTO t2 SELECT i, 'wider', i FROM generate_series(1, 10) i",
    )


def ddl(play: Play) -> None:
    """Columns come in the middle of a streamed transaction, some only to be rolled back."""
    play("a", "BEGIN", many("t2", 1, 800), "SAVEPOINT s", "ALTER TABLE t1 ADD COLUMN gone int")
    play("a", "INSERT INTO t1 SELECT i, 'x', i FROM generate_series(1, 2000) i", "ROLLBACK TO s")
    play("a", "ALTER TABLE t2 ADD COLUMN c int")
    play("a", "INSERT INTO t2 SELECT i, 'new', i FROM generate_series(3001, 5000) i", "COMMIT")
    play("a", "INSERT INTO t2 VALUES (-1, 'after', 5)", "INSERT INTO t1 VALUES (-1, 'after')")


def prepared(play: Play) -> None:
    """Prepared small and large, ended both ways, with others that commit in between."""
    play("a", "BEGIN", "INSERT INTO t1 VALUES (1, 'small')", "PREPARE TRANSACTION 'small'")
    play("a", "BEGIN", many("t1", 1001, 2000), "SAVEPOINT s", many("t2", 1001, 2000))
    play("a", "ROLLBACK TO s", many("t3", 1001, 2000), "PREPARE TRANSACTION 'large'")
    play("a", "BEGIN", many("t1", 3001, 4000), "PREPARE TRANSACTION 'large and gone'")
    play("a", "BEGIN", "INSERT INTO t3 VALUES (1, 'x')", "PREPARE TRANSACTION 'gone'")
    play("b", "INSERT INTO t1 VALUES (2, 'between')", many("t2", 1, 800))
    play("b", "COMMIT PREPARED 'large'", "INSERT INTO t1 VALUES (3, 'between')")
    play("b", "ROLLBACK PREPARED 'large and gone'", "COMMIT PREPARED 'small'")
    play("b", "ROLLBACK PREPARED 'gone'", "UPDATE t1 SET b = 'later' WHERE a IN (1, 1500)")


def origins(play: Play) -> None:
    """Rows that came from elsewhere, in small, large and prepared transactions."""
    play("a", "SELECT pg_replication_origin_session_setup('elsewhere')")
    play("a", "INSERT INTO t1 VALUES (1, 'foreign')", "BEGIN", many("t2", 1, 1000), "COMMIT")
    play("a", "SELECT pg_replication_origin_session_reset()")
    play("a", "INSERT INTO t1 VALUES (2, 'own')", "UPDATE t2 SET b = 'own' WHERE a <= 10")
    play("b", "INSERT INTO t3 VALUES (1, 'own')")


@pytest.fixture
def play(database: Database) -> Iterator[Play]:
    opened = Play(database)
    yield opened
    opened.close()


@pytest.fixture
def scene(
    tmp_path: Path, database: Database, kafka: str, registry: str
) -> Iterator[Callable[..., Scene]]:
    """A scene on the publisher; several have slots of their own."""
    made: list[Scene] = []

    def make(name: str, definitions: str) -> Scene:
        slot = f"{name}_{database.name}"
        # Spools, and Kafka transactions of many pieces, are used, too.
        limits = {"max_buffer_bytes": 100_000, "max_batch_records": 500}
        made.append(
            Scene(
                tmp_path / name,
                database.dsn,
                kafka,
                registry,
                slot,
                f"{PUBLICATION}{definitions}",
                {"limits": limits},
            )
        )
        return made[-1]

    yield make
    for one in made:
        one.close()


def set_up(connection: Connection, database: Database) -> None:
    connection.execute(f"{TABLES}{PUBLICATION}".encode())
    name = database.name
    connection.execute(f"ALTER DATABASE {name} SET logical_decoding_work_mem = '64kB'".encode())


def rows(scene: Scene, table: str, subscription: str | None = None) -> list[tuple[Any, ...]]:
    """A table from its topic, every row with the columns that the last schema has."""
    rebuilt = Rebuilt().apply(scene.read(table, subscription))
    width = max((len(row) for row in rebuilt.rows()), default=0)
    return sorted((row + (None,) * (width - len(row)) for row in rebuilt.rows()), key=repr)


@alternating(__name__, 16, 18)
@pytest.mark.parametrize(
    ("script", "options"),
    [
        (interleaved, "streaming = on"),
        (interleaved, "streaming = parallel"),
        (subtransactions, "streaming = on"),
        (subtransactions, "streaming = parallel"),
        (aborted_announcement, "streaming = on"),
        (ddl, "streaming = on"),
        (prepared, "streaming = on, two_phase = on"),
        (prepared, "streaming = parallel, two_phase = on"),
    ],
)
def test_the_topics_hold_what_the_native_subscription_with_these_options_holds(
    scene: Callable[..., Scene],
    play: Play,
    database: Database,
    make_database: DatabaseFactory,
    script: Callable[[Play], None],
    options: str,
) -> None:
    with database.connect() as connection:
        set_up(connection, database)
        native = NativeSubscription(database, make_database, TABLES, ["p"], options)
        if script in (ddl, aborted_announcement):
            with native.database.connect() as subscriber:
                subscriber.execute("ALTER TABLE t2 ADD COLUMN c int")
        subscription = f"CREATE SUBSCRIPTION {{s}} CONNECTION '' PUBLICATION p WITH ({options});"
        s = scene("gw", subscription)
        # The same WAL, without streaming: every change must get the same number.
        whole = scene(
            "whole", subscription.replace("parallel", "off").replace("ing = on", "ing = off")
        )
        for each in (s, whole):
            each.run_to("0/1")

        script(play)

        end = current_lsn(connection)
        ended = s.run_to(end)
        assert "streaming=off" not in ended.err
        assert "streaming=off" in whole.run_to(end).err
        streamed = "SELECT stream_txns FROM pg_stat_replication_slots WHERE slot_name = %s"
        native.wait_until_applied(end)
        for table in NAMES:
            assert rows(s, table) == native.rows(table), table
            assert positions(s, table) == positions(whole, table), table
        assert_exactly_once(s, NAMES)
        row = connection.execute(streamed, [s.slot]).fetchone()
        assert row is not None and row[0] > 0, "nothing was streamed"


def positions(scene: Scene, table: str) -> list[tuple[Any, ...]]:
    return [
        (r.position, r.op, r.key, r.headers.get("xid"), r.headers.get("gid"))
        for r in scene.read(table)
        if int(r.headers["seq"]) > 0
    ]


@alternating(__name__, 16, 18)
def test_origin_none_leaves_out_what_came_from_elsewhere_and_any_names_it(
    scene: Callable[..., Scene], play: Play, database: Database, make_database: DatabaseFactory
) -> None:
    first, second = f"none_{database.name}", f"any_{database.name}"
    with database.connect() as connection:
        set_up(connection, database)
        connection.execute("SELECT pg_replication_origin_create('elsewhere')")
        try:
            natives = {
                name: NativeSubscription(
                    database, make_database, TABLES, ["p"], f"streaming = on, origin = {origin}"
                )
                for name, origin in ((first, "none"), (second, "any"))
            }
            s = scene(
                "gw",
                f"CREATE SUBSCRIPTION {first} CONNECTION '' PUBLICATION p"
                " WITH (streaming = on, origin = none);"
                f"CREATE SUBSCRIPTION {second} CONNECTION '' PUBLICATION p WITH (streaming = on);",
            )
            s.run_to("0/1")

            origins(play)

            end = current_lsn(connection)
            s.run_to(end)
            for native in natives.values():
                native.wait_until_applied(end)
            play.close()
        finally:
            play.close()
            connection.execute("SELECT pg_replication_origin_drop('elsewhere')")
    for name, native in natives.items():
        for table in NAMES:
            assert rows(s, table, name) == native.rows(table), f"{name}: {table}"
        assert_exactly_once(s, NAMES, name)
    named = [r.headers.get("origin") for r in s.read("t1", second) if int(r.headers["seq"]) > 0]
    assert named == ["elsewhere", None]
    marked = [m["origin"] for m in s.markers(second) if m["kind"] == "END"]
    assert marked == ["elsewhere", "elsewhere", None, None, None]
    assert {r.headers.get("origin") for r in s.read("t2", first)} <= {None}
