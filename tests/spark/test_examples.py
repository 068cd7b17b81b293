"""examples/ that need Spark, or a table that the Spark job has made."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import polars
import pytest

from examples.delta_tables import main, rows
from examples.spark_from_avro import changes
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.scene import Scene, current_lsn
from tests.support.spark.direct import Direct
from tests.support.spark.records import Col, StaticSchemas, TableTopic
from tests.support.workloads.one_table import FILTERED, TABLE, change_at_random

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.spark


def test_delta_tables_are_read_without_spark(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With a dropped column, for which the job maps columns, and with a deletion vector."""
    key, text = Col("a", "int", "integer"), Col("b", "string", "text")
    gone = Col("gone", "int", "integer")
    topic = TableTopic(StaticSchemas(), "s.public.t", [key, gone, text], ["a"])
    topic.truncate(0x90, 0, snapshot="first")
    for number in (1, 2, 3):
        topic.change("r", 0x90, 0, after={"a": number, "gone": number, "b": "copied"})
    topic.columns = [key, text]
    topic.change("u", 0x98, 1, after={"a": 1, "b": "changed"})
    table = Direct(spark, tmp_path, topic)
    table.apply(4)
    table.apply()
    properties = "delta.enableDeletionVectors = true"
    spark.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ({properties})")
    spark.sql(f"DELETE FROM delta.`{table.path}` WHERE a = 2")
    assert list(Path(table.path).glob("**/deletion_vector_*.bin"))

    expected = [(1, "changed"), (3, "copied")]
    assert sorted(polars.DataFrame(rows(table.path)).rows()) == expected
    assert duckdb.from_arrow(rows(table.path)).order("a").fetchall() == expected
    monkeypatch.setattr(sys, "argv", ["delta_tables.py", table.path])
    main()
    assert "changed" in capsys.readouterr().out


def folded(found: Iterable[Row]) -> list[tuple[int, str | None]]:
    """The rows that changes leave, which are in their order."""
    rows: dict[int, str | None] = {}
    for change in found:
        if change.op == "t":
            rows.clear()
        if change.before is not None:
            rows.pop(change.before.a, None)
        if change.after is not None:
            rows[change.after.a] = change.after.b
    return sorted(rows.items())


@pytest.mark.postgres
@pytest.mark.kafka
@pytest.mark.parametrize("kind", ["pgsluice", "debezium"])
def test_spark_from_avro_reads_records_of_all_schemas(
    kind: str,
    seed: int,
    spark: SparkSession,
    scene: Callable[..., Scene],
    database: Database,
    make_database: DatabaseFactory,
    kafka: str,
    registry: str,
) -> None:
    with database.connect() as connection:
        connection.execute(f"{TABLE} ALTER TABLE t REPLICA IDENTITY FULL".encode())
        connection.execute(f"CREATE PUBLICATION n {FILTERED}".encode())
        native = NativeSubscription(
            database, make_database, f"{TABLE} ALTER TABLE t ADD c int", ["n"]
        )
        s = scene(
            f"CREATE PUBLICATION p {FILTERED};"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
            envelope={"format": kind},
        )
        connection.execute("INSERT INTO t VALUES (1, 'copied'), (2, 'hidden')")
        s.run_to("0/1")
        connection.execute("TRUNCATE t")
        for number in range(10):
            change_at_random(connection, seed + number, 1 + 100 * number)
        connection.execute("ALTER TABLE t ADD COLUMN c int")
        for number in range(10, 20):
            change_at_random(connection, seed + number, 1 + 100 * number)
        connection.execute("INSERT INTO t VALUES (9000, 'new', 1)")
        s.run_to(current_lsn(connection))
        native.wait_until_applied(current_lsn(connection))

    found = changes(spark, kafka, registry, s.topic("t")).orderBy("lsn", "source.seq").collect()

    assert [change.op for change in found][:3] == ["t", "r", "t"]
    assert tuple(found[-1].after) == (9000, "new", 1)
    assert found[1].after.c is None, "of the schema before"
    assert folded(found) == sorted((a, b) for a, b, _ in native.rows("t"))
