"""Flink SQL's tables on the gateway's topics hold what a native subscription holds.

It is one that does not publish truncates: neither of Flink's formats knows them.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.support.backends.flink import flink_rows, table_of
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.scene import Connection, Scene, current_lsn

pytestmark = [pytest.mark.postgres, pytest.mark.kafka, pytest.mark.java]

TABLE = "CREATE TABLE t (a int PRIMARY KEY, b text);"
WHERE = "FOR TABLE t WHERE (b <> 'hidden')"
SOURCE = f"""{TABLE}
ALTER TABLE t REPLICA IDENTITY FULL;
CREATE PUBLICATION n {WHERE} WITH (publish = 'insert, update, delete');
INSERT INTO t SELECT n, 'copied ' || n FROM generate_series(1, 30) AS n;
INSERT INTO t VALUES (31, 'hidden'), (32, NULL);
"""


def change(connection: Connection, seed: int, first: int) -> None:
    """Change rows at random, their keys among them; some are hidden from the subscriber."""
    pick = random.Random(seed)
    for number in range(200):
        key, moved = first + pick.randint(0, 40), first + pick.randint(0, 40)
        text = pick.choice(["hidden", f"text {number}", ""])
        statement = pick.choice(
            (
                f"INSERT INTO t VALUES ({key}, '{text}') ON CONFLICT DO NOTHING",
                f"UPDATE t SET b = '{text}' WHERE a = {key}",
                f"UPDATE t SET a = {moved}, b = '{text}' WHERE a = {key}"
                f" AND NOT EXISTS (SELECT FROM t WHERE a = {moved})",
                f"DELETE FROM t WHERE a = {key}",
            )
        )
        connection.execute(statement.encode())


@pytest.mark.parametrize(("kind", "program"), [("debezium", "table.sql"), ("row", "rows.sql")])
def test_flink_s_table_is_the_native_subscription_s(
    kind: str,
    program: str,
    seed: int,
    scene: Callable[..., Scene],
    database: Database,
    make_database: DatabaseFactory,
    kafka: str,
    registry: str,
) -> None:
    with database.connect() as connection:
        connection.execute(SOURCE.encode())
        native = NativeSubscription(database, make_database, TABLE, ["n"])
        s = scene(
            f"CREATE PUBLICATION p {WHERE};CREATE SUBSCRIPTION {{s}} CONNECTION '' PUBLICATION p;",
            envelope={"format": kind, "without_truncates": [f"gw_{database.name}"]},
        )
        s.run_to("0/1")
        change(connection, seed, 1)
        connection.execute("TRUNCATE t")
        change(connection, seed + 1, 1_000)  # other keys: a native subscriber has the former
        connection.execute("INSERT INTO t VALUES (2000, 'last'), (2001, NULL)")
        end = current_lsn(connection)
        s.run_to(end)
        native.wait_until_applied(end)

    rows = flink_rows(program, s.topic("t"), kafka, registry)

    assert table_of(row for row in rows) == sorted((str(a), b) for a, b in native.rows("t"))
    assert (2000, "last") in native.rows("t")
