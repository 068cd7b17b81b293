"""examples/ that need Spark, or a table that the Spark job has made."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import polars
import pytest

from examples.delta_tables import main, rows
from examples.spark_from_avro import changes
from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene, current_lsn
from tests.support.spark.direct import Direct
from tests.support.spark.records import Col, StaticSchemas, TableTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


@pytest.mark.postgres
@pytest.mark.kafka
@pytest.mark.parametrize("kind", ["pgsluice", "debezium"])
def test_spark_from_avro_reads_records_of_all_schemas(
    kind: str,
    spark: SparkSession,
    scene: Callable[..., Scene],
    database: Database,
    kafka: str,
    registry: str,
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
        connection.execute("INSERT INTO t VALUES (6, 'six')")
        s = scene(
            "CREATE PUBLICATION p FOR TABLE t WHERE (a > 5);"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
            envelope={"format": kind},
        )
        s.run_to("0/1")
        connection.execute("ALTER TABLE t ADD COLUMN c int")
        connection.execute("UPDATE t SET b = 'changed', c = 1")
        connection.execute("DELETE FROM t")
        s.run_to(current_lsn(connection))

    found = changes(spark, kafka, registry, s.topic("t")).orderBy("lsn", "source.seq", "op")

    assert [
        (row.op, row.before and tuple(row.before), row.after and tuple(row.after))
        for row in found.collect()
    ] == [
        ("r", None, (6, "six", None)),
        ("t", None, None),
        ("u", None, (6, "changed", 1)),
        ("d", (6, None, None), None),
    ]
