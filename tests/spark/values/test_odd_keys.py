"""Keys whose equal values have several texts, or that no Python or Spark type holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.scene import Connection, Scene, current_lsn, scene
from tests.support.spark.every_format import EveryFormat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["scene"]

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres]

# A key's type, values that differ, and of the last one another text that is equal to it.
KEYS = {
    "time": ("00:00", "24:00", "23:59:59.999999", "23:59:59.9999990"),
    "timetz": ("24:00+15:59", "00:00-15:59", "12:00+05:45", "12:00:00+05:45"),
    "interval": ("-178000000 years", "-1 month +30 days", "1 day", "24:00:00"),
    "int[]": ("{}", "{NULL,1}", "{1,2}", "[1:2]={1,2}"),
    "numeric": ("NaN", "1e-20", "1.5", "1.50"),
    "double precision": ("NaN", "-Infinity", "0", "-0"),
    "text[]": ('{""}', '{"a,b","c\\"d",NULL}', "{x}", '{"x"}'),
    "uuid": (
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "{A0EEBC999C0B4EF8BB6D6BB9BD380A11}",
    ),
    "inet": ("::", "0.0.0.0/0", "10.0.0.1", "10.0.0.1/32"),
    "int4range": ("empty", "(,)", "[1,3)", "[1,2]"),
    "bit varying": ("", "0", "101", "101"),
}
COLUMNS = [f"k{number}" for number in range(len(KEYS))]
TABLE = "CREATE TABLE odd ({}, v int, PRIMARY KEY ({}));".format(
    ", ".join(f"{column} {kind}" for column, kind in zip(COLUMNS, KEYS, strict=True)),
    ", ".join(COLUMNS),
)


def row(number: int) -> str:
    """The key that has the value of this number in each column."""
    return ", ".join(f"'{texts[number]}'::{kind}" for kind, texts in KEYS.items())


def later_writes() -> Iterator[str]:
    """Changes of rows that were copied, and of keys to equal ones."""
    key = f"({', '.join(COLUMNS)})"
    yield "UPDATE odd SET v = v + 10"
    for column, (kind, texts) in zip(COLUMNS, KEYS.items(), strict=True):
        yield f"UPDATE odd SET {column} = '{texts[3]}' WHERE {column} = '{texts[2]}'::{kind}"
    yield f"DELETE FROM odd WHERE {key} = ({row(1)})"
    yield f"INSERT INTO odd VALUES ({row(1)}, 20)"
    yield f"UPDATE odd SET v = v + 100 WHERE {key} = ({row(3)})"


def contents(connection: Connection) -> list[tuple[str | int, ...]]:
    """What PostgreSQL holds, as it prints it: a cast to text is something else for inet."""
    columns = ", ".join(f"format('%s', {column})" for column in COLUMNS)
    return sorted(connection.execute(f"SELECT {columns}, v FROM odd".encode()).fetchall())


def test_rows_are_found_by_keys_of_any_type(
    spark: SparkSession,
    scene: Callable[..., Scene],
    database: Database,
    make_database: DatabaseFactory,
    tmp_path: Path,
) -> None:
    s = scene(
        "CREATE PUBLICATION p FOR TABLE odd; CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
    )
    rebuilt = EveryFormat(spark, tmp_path, s.project.bootstrap, s.project.registry)
    with database.connect() as connection:
        connection.execute(TABLE.encode())
        connection.execute("CREATE PUBLICATION p FOR TABLE odd")
        for number in range(3):
            connection.execute(f"INSERT INTO odd VALUES ({row(number)}, {number})".encode())
        native = NativeSubscription(database, make_database, TABLE, ("p",))
        s.run_to(current_lsn(connection))
        for statement in later_writes():
            assert connection.execute(statement.encode()).rowcount > 0, statement
        end = current_lsn(connection)
        s.run_to(end)
        native.wait_until_applied(end)
        rebuilt.complete(end, s.slot)
        with native.database.connect() as subscriber:
            expected = contents(subscriber)
        assert contents(connection) == expected
    found = rebuilt.rows(s.slot, "odd")
    assert sorted((*map(_text, row[:-1]), row[-1]) for row in found) == expected


def _text(value: object) -> str:
    """As PostgreSQL prints it."""
    if isinstance(value, float):
        named = {"nan": "NaN", "-inf": "-Infinity", "0.0": "0", "-0.0": "-0"}
        return named[str(value)]
    return str(value)
