"""A copy reads only rows that some subscription wants."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import pytest

from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.scene import (
    Connection,
    Scene,
    assert_exactly_once,
    current_lsn,
    running,
)
from tests.support.run.majors import alternating

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
Changes = Callable[[Connection, Event], None]
TABLE = "CREATE TABLE t (tenant int, id int, b int, c text, PRIMARY KEY (tenant, id));"
# Without autovacuum: it would see how many rows the changes make wanted, and nothing be narrowed.
ROWS = (
    "ALTER TABLE t SET (autovacuum_enabled = false);"
    "INSERT INTO t SELECT n % 10, n, n, repeat('x', 20) FROM generate_series(1, 6000) AS n;"
    "ANALYZE t"
)
NARROWED = "only rows that pass a filter are read"
WIDENED = "reading all rows"
PUBLICATIONS = (
    "CREATE PUBLICATION p_two FOR TABLE t WHERE (tenant = 2);"
    "CREATE PUBLICATION p_three FOR TABLE t (tenant, id, b) WHERE (tenant = 3 AND id > 2000);"
)
SMALL = {"copy": {"chunk_rows": 300, "rows_per_second": 3000}}


def write(connection: Connection, stop: Event) -> None:
    """Move rows into and out of what is wanted, and change, delete and insert some."""
    number = 0
    while not stop.wait(0.002):
        number += 1
        n = 1 + number * 37 % 6000
        with connection.transaction():
            connection.execute("UPDATE t SET b = b + 1, c = 'y' WHERE id = %s", [n])
            connection.execute("UPDATE t SET tenant = (tenant + 1) %% 10 WHERE id = %s", [n + 1])
            connection.execute("UPDATE t SET tenant = 2 WHERE id = %s", [n + 2])
            connection.execute("DELETE FROM t WHERE id = %s", [n + 3])
            connection.execute(
                "INSERT INTO t VALUES (2, %s, 0, 'z') ON CONFLICT DO NOTHING", [n + 3]
            )


def copy_while(
    s: Scene, natives: list[NativeSubscription], database: Database, changes: Changes
) -> None:
    """Copy narrowed while `changes` are made, and let both sides take all of them."""
    with database.connect() as connection, database.connect() as writer:
        with running(lambda stop: changes(writer, stop)):
            gateway = s.project.start()
            gateway.wait_until_copied(60)
        end = current_lsn(connection)
    assert gateway.terminate() == 0, gateway.log()
    s.run_to(end)
    for native in natives:
        native.wait_until_applied(end)
    assert NARROWED in gateway.log()
    assert WIDENED not in gateway.log()


@alternating(__name__, 16, 18)
def test_what_is_narrowed_ends_as_in_native_subscriptions_while_rows_come_and_go(
    scene: MakeScene, database: Database, make_database: DatabaseFactory
) -> None:
    with database.connect() as connection:
        connection.execute(f"{TABLE} {PUBLICATIONS} {ROWS}".encode())
    s = scene(
        f"{PUBLICATIONS}"
        "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p_two;"
        "CREATE SUBSCRIPTION {s}_three CONNECTION '' PUBLICATION p_three;",
        **SMALL,
    )
    two = NativeSubscription(database, make_database, TABLE, ("p_two",))
    three = NativeSubscription(database, make_database, TABLE, ("p_three",))

    copy_while(s, [two, three], database, write)

    assert s.rebuilt("t") == two.rows("t")
    assert s.rebuilt("t", f"{s.slot}_three") == sorted(
        (row[:3] for row in three.rows("t")), key=repr
    )
    assert_exactly_once(s, ["t"])


WHOLE = "CREATE TABLE w (id int PRIMARY KEY, n int, large text);"
WHOLE_IDENTITY = (
    "ALTER TABLE w REPLICA IDENTITY FULL; ALTER TABLE w ALTER COLUMN large SET STORAGE EXTERNAL;"
)
WHOLE_ROWS = (
    "ALTER TABLE w SET (autovacuum_enabled = false);"
    "INSERT INTO w SELECT n, n % 20, repeat(md5(n::text), n % 7 * 20)"
    " FROM generate_series(1, 6000) AS n; ANALYZE w"
)
BY_VALUE = (
    "CREATE PUBLICATION p_value FOR TABLE w WHERE (n = 3);"
    "CREATE PUBLICATION p_long FOR TABLE w WHERE (n = 4 AND length(large) > 1000);"
)


def change_values(connection: Connection, stop: Event) -> None:
    """Make rows wanted and unwanted by what is not their key; large values stay unsent."""
    number = 0
    while not stop.wait(0.002):
        number += 1
        n = 1 + number * 37 % 6000
        with connection.transaction():
            connection.execute("UPDATE w SET n = 3 WHERE id = %s", [n])
            connection.execute("UPDATE w SET n = n + 1 WHERE id BETWEEN %s AND %s", [n + 1, n + 4])
            connection.execute("UPDATE w SET id = -id, n = 4 WHERE id = %s", [n + 5])
            connection.execute("DELETE FROM w WHERE id = %s", [n + 6])


@alternating(__name__, 16, 18)
def test_what_is_narrowed_by_other_columns_than_the_key_ends_as_in_native_subscriptions(
    scene: MakeScene, database: Database, make_database: DatabaseFactory
) -> None:
    with database.connect() as connection:
        connection.execute(f"{WHOLE} {WHOLE_IDENTITY} {BY_VALUE} {WHOLE_ROWS}".encode())
    s = scene(
        f"{BY_VALUE}"
        "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p_value;"
        "CREATE SUBSCRIPTION {s}_long CONNECTION '' PUBLICATION p_long;",
        **SMALL,
    )
    tables = f"{WHOLE} ALTER TABLE w REPLICA IDENTITY FULL;"
    value = NativeSubscription(database, make_database, tables, ("p_value",))
    long = NativeSubscription(database, make_database, tables, ("p_long",))

    copy_while(s, [value, long], database, change_values)

    assert s.rebuilt("w") == value.rows("w")
    assert s.rebuilt("w", f"{s.slot}_long") == long.rows("w")
    assert_exactly_once(s, ["w"])


def test_a_filter_that_raises_is_dealt_with_as_where_all_rows_are_read(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(f"{TABLE} {ROWS}".encode())
        s = scene(
            "CREATE PUBLICATION p FOR TABLE t WHERE (tenant = 2 AND 10 / (id - 4002) < 100);"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
            on_error={"filter": "quarantine"},
            copy={"chunk_rows": 300},
        )
        gateway = s.project.start()
        gateway.wait_until_copied()
        assert gateway.terminate() == 0, gateway.log()

    assert NARROWED in gateway.log()
    assert WIDENED in gateway.log()
    assert s.rebuilt("t") == s.source_rows("SELECT * FROM t WHERE tenant = 2 AND id <> 4002")
    assert "are in the error topic instead" in gateway.log()
