"""Values and keys of many types, and columns that come and go, as PostgreSQL has them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pytest

from pgsluice_client import Reader, TableRows
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.scene import Scene, current_lsn

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

PUBLICATION = "CREATE PUBLICATION p FOR ALL TABLES"
DEFINITIONS = f"{PUBLICATION}; CREATE SUBSCRIPTION {{s}} CONNECTION '' PUBLICATION p;"
KEYED = """
CREATE DOMAIN amount AS numeric;
CREATE TABLE keyed (
  k amount, c char(5), i interval, j jsonb, f float8, v int, large text,
  PRIMARY KEY (k, c, i, j, f)
);
ALTER TABLE keyed ALTER COLUMN large SET STORAGE EXTERNAL;
CREATE TABLE bag (k numeric, c char(5), f float8, v int);
ALTER TABLE bag REPLICA IDENTITY FULL;
"""
FAR = """
SELECT id, d::text, ts::text, tz::text FROM far ORDER BY id
"""


def read(subscription: str, kafka: str, registry: str) -> dict[str, TableRows]:
    tables: dict[str, TableRows] = {}
    with Reader(subscription, {"bootstrap.servers": kafka}, {"url": registry}) as reader:
        for transaction in reader.transactions(to_end=True):
            for change in transaction.changes:
                tables.setdefault(change.table, TableRows()).apply(change)
    return tables


def test_keys_are_equal_when_postgresql_says_so(
    scene: Callable[..., Scene],
    database: Database,
    make_database: DatabaseFactory,
    kafka: str,
    registry: str,
) -> None:
    with database.connect() as connection:
        connection.execute(f"{KEYED} {PUBLICATION}".encode())
        native = NativeSubscription(database, make_database, KEYED, ["p"])
        s = scene(DEFINITIONS, topics={"partitions": 3})
        s.run_to("0/1")
        for statement in (
            "INSERT INTO keyed SELECT n, 'a', '1 day', '{\"x\": 1.50, \"y\": \"1.50\"}', '-0', n,"
            " repeat('x', 9000) FROM generate_series(1, 4) n",
            "INSERT INTO keyed VALUES (9, 'b', '00:00:01', '2.0', 'NaN', 9, 'y')",
            "UPDATE keyed SET k = 1.00, c = 'a  ', i = '24:00', f = 0,"
            ' j = \'{"x": 1.5, "y": "1.50"}\' WHERE k = 1',
            "UPDATE keyed SET k = 2.000, v = -2 WHERE k = 2",
            "UPDATE keyed SET i = '25:00', v = -3 WHERE k = 3",
            "DELETE FROM keyed WHERE k = 4.0 AND i = '24:00'",
            "UPDATE keyed SET v = 90 WHERE f = 'NaN' AND j = '2'",
            "INSERT INTO bag VALUES (1.0, 'a', 0, 1), (1.00, 'a ', '-0', 1), (2, 'b', 'NaN', 2)",
            "UPDATE bag SET v = 3 WHERE k = 2",
            "DELETE FROM bag WHERE ctid = (SELECT max(ctid) FROM bag WHERE k = 1)",
        ):
            connection.execute(statement.encode())
        gateway = s.project.start()
        gateway.wait_until_copied()
        assert s.cli("copy", "keyed", "--where", "abs(v) < 3").code == 0
        assert gateway.terminate() == 0
        end = current_lsn(connection)
        s.run_to(end)
        native.wait_until_applied(end)

    tables = read(s.slot, kafka, registry)

    assert _printed(tuple(row.values()) for row in tables["keyed"]) == _printed(
        native.rows("keyed")
    )
    # Which of the rows that PostgreSQL regards as equal is deleted, it does not say.
    bag = [(Decimal(row["k"]), row["c"], row["f"] + 0.0, row["v"]) for row in tables["bag"]]
    judged = [(k.normalize(), c, f + 0.0, v) for k, c, f, v in native.rows("bag")]
    assert _printed((k.normalize(), *rest) for k, *rest in bag) == _printed(judged)


def _printed(rows: Iterable[tuple[Any, ...]]) -> list[list[str]]:
    return sorted([str(value) for value in row] for row in rows)


def test_dates_are_those_of_python_or_as_postgresql_prints_them(
    scene: Callable[..., Scene], database: Database, kafka: str, registry: str
) -> None:
    texts = (
        ("2024-02-29", "2024-02-29 12:34:56.7"),
        ("0001-01-01", "0001-01-01 00:00:00"),
        ("0001-12-31 BC", "0001-12-31 23:59:59 BC"),
        ("9999-12-31", "9999-12-31 23:59:59.999999"),
        ("10000-01-01", "10000-01-01 00:00:00.5"),
        ("4713-01-01 BC", "4713-01-01 00:00:00.000001 BC"),
        ("5874897-12-31", "294246-12-31 23:59:59.999999"),
        ("infinity", "-infinity"),
        ("-infinity", "infinity"),
    )
    with database.connect() as connection:
        connection.execute(b"CREATE TABLE far (id serial, d date, ts timestamp, tz timestamptz)")
        connection.execute(b"SET TimeZone = 'UTC'")
        for day, moment in texts:
            connection.execute(
                b"INSERT INTO far (d, ts, tz) VALUES (%s, %s::timestamp, %s::timestamptz)",
                [day, moment, moment],
            )
        s = scene(DEFINITIONS.replace("FOR ALL TABLES", "FOR ALL TABLES WITH (publish = 'insert')"))
        s.run_to(current_lsn(connection))
        judged = connection.execute(FAR.encode()).fetchall()

    rows = sorted(read(s.slot, kafka, registry)["far"], key=lambda row: row["id"])

    shown = [tuple(_shown(value) for value in row.values()) for row in rows]
    assert shown == judged
    kinds = [tuple(type(value).__name__ for value in row.values()) for row in rows]
    assert kinds[0] == kinds[1] == kinds[3] == ("int", "date", "datetime", "datetime")
    assert {*kinds[2], *kinds[4]} == {"int", "str"}


def _shown(value: object) -> object:
    if isinstance(value, int):
        return value
    return re.sub(r"(\.\d+?)0+(?=\D|$)", r"\1", str(value)).replace("+00:00", "+00")


def test_rows_follow_columns_that_are_added_renamed_and_dropped(
    scene: Callable[..., Scene], database: Database, kafka: str, registry: str
) -> None:
    with database.connect() as connection:
        connection.execute(b"CREATE TABLE t (a int PRIMARY KEY, b text, c text, d int)")
        connection.execute(b"CREATE TABLE bag (b text, c int)")
        s = scene(
            "CREATE PUBLICATION p FOR TABLE t;"
            "CREATE PUBLICATION q FOR TABLE bag WITH (publish = 'insert');"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p, q;",
            types={"arrays": "native"},
        )
        s.run_to("0/1")
        connection.execute(
            b"INSERT INTO t SELECT n, 'b' || n, 'c' || n, n FROM generate_series(1, 3) n"
        )
        connection.execute(b"INSERT INTO bag VALUES ('x', 1), ('x', 1)")
        s.run_to(current_lsn(connection))
        for statement in (
            "ALTER TABLE t RENAME b TO e",
            "ALTER TABLE t RENAME c TO b",
            "ALTER TABLE t DROP d",
            "ALTER TABLE t ADD f int[] DEFAULT '{1,NULL}', ADD g numeric(5,2) DEFAULT 1.5,"
            " ADD h text, ADD i date DEFAULT '2024-02-29', ADD j bool DEFAULT true,"
            " ADD k bytea DEFAULT '\\x00ff', ADD l real DEFAULT 0.1,"
            " ADD m timestamptz DEFAULT '2024-02-29 12:00+02'",
            'ALTER TABLE bag RENAME b TO "ä b"',
            "UPDATE t SET h = 'new' WHERE a = 1",
            "INSERT INTO bag VALUES ('y', 2)",
        ):
            connection.execute(statement.encode())
        s.run_to(current_lsn(connection))
        expected = connection.execute(
            b"SELECT a, e, b, f, g, h, i, j, k, l::float8, m FROM t ORDER BY a"
        ).fetchall()
        bag = connection.execute(b"SELECT * FROM bag ORDER BY 1").fetchall()

    tables = read(s.slot, kafka, registry)

    def rows(table: str, columns: str) -> list[tuple[Any, ...]]:
        names = columns.split(",")
        return sorted(tuple(row[name] for name in names) for row in tables[table])

    assert rows("t", "a,e,b,f,g,h,i,j,k,l,m") == expected
    assert all(len(row) == 11 for row in tables["t"])
    assert rows("bag", "ä b,c") == bag
