"""Iceberg tables of a catalog: commits are bound to what was read, by the catalog's own pointer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StringType, StructField

from spark_consumer.errors import SettingsError, TableError, TransientConsumerError
from spark_consumer.formats.catalog import Catalog
from spark_consumer.formats.changes import KeyedChanges, WriteMode
from spark_consumer.formats.choice import format_at
from spark_consumer.formats.commit_metadata import Commit, Found
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.formats.iceberg.format import IcebergFormat
from spark_consumer.formats.iceberg.table import IcebergTable
from spark_consumer.formats.schema_evolution import Add
from spark_consumer.kafka.layout import ColumnPlan
from spark_consumer.kafka.position import Position
from spark_consumer.names import table_folder
from tests.support.backends.servers import Database
from tests.support.spark.catalogs import LAKE, jdbc_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

ID = ColumnPlan("id", "id", "bigint", "bigint")


def commit(serial: int) -> Commit:
    return Commit(Position("j", serial, serial, None, "t", "id", {0: serial}), {}, serial)


def found_in(table: IcebergTable) -> Found:
    found = table.find()
    assert found is not None
    return found


def test_a_commit_is_on_top_of_the_pointer_that_was_read_or_is_not_made(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    catalog = Catalog(LAKE, properties=jdbc_catalog(database, tmp_path))
    tables = IcebergFormat.checked(spark, str(tmp_path), "current", catalog)
    path = table_folder(str(tmp_path), "s", "public.t")
    first, second = (tables.table(spark.newSession(), path, "table t") for _ in range(2))
    renamed = IcebergFormat(catalog=Catalog(LAKE, "x.{table}", {}, catalog.properties))

    drafts = [
        table.stage(table.spark.range(5), None, WriteMode.REPLACE_TABLE)
        for table in (first, second)
    ]
    drafts[0].commit(commit(0))
    with pytest.raises(TableError, match="its folder has an Iceberg table of a catalog"):
        IcebergFormat().table(spark.newSession(), path, "table t").find()
    with pytest.raises(TableError, match=f"the catalog has no {LAKE}.x.t"):
        renamed.table(spark.newSession(), path, "table t").find()
    with pytest.raises(TransientConsumerError, match="another writer"):
        drafts[1].commit(commit(0))
    assert not list(Path(path, ".writing").glob("*"))
    found = found_in(second)
    for number in (5, 6):
        rows = first.spark.range(number, number + 1)
        first.write(rows, commit(number), found_in(first), WriteMode.APPEND)
    with pytest.raises(TransientConsumerError, match="another writer"):
        second.write(second.spark.range(1), commit(5), found, WriteMode.APPEND)
    first.alter([Add(StructField("b", StringType()), None, False)])
    gone = second.spark.sql(
        "SELECT struct(id) AS k, 'delete' AS action, struct(id, string(NULL) AS b) AS v,"
        " array('id') AS sent, false AS made FROM range(2)"
    )
    plans = [ID, ColumnPlan("b", "b", "string", "string")]
    skipped = second.upsert(
        KeyedChanges(gone, plans, [ID], "TRUE", 2, 0, 0, 2), commit(7), found_in(second)
    )
    assert skipped == 0
    old = found_in(first)
    first.compact(old.commit, small=1 << 20)
    first.vacuum(0.0)

    assert second.find() == Found(first.version(), old.commit)
    assert sorted(second.rows().collect()) == [(number, None) for number in range(2, 7)]
    assert len(list(Path(path, "data").glob("*.parquet"))) < 5
    assert sorted(tables.rows_at(second.spark, path, first.version()).collect())[0].id == 2

    # A crash of the first commit before the catalog had the table.
    crashed = tables.table(spark.newSession(), table_folder(str(tmp_path), "s", "public.c"), "c")
    crashed.write(crashed.spark.range(1), commit(0), None, WriteMode.REPLACE_TABLE)
    with database.connect() as connection:
        connection.execute("DELETE FROM iceberg_tables WHERE table_name = 'public_c'")
    assert crashed.find() is None
    crashed.write(crashed.spark.range(2), commit(0), None, WriteMode.REPLACE_TABLE)
    assert crashed.rows().count() == 2

    # With other settings, or in a folder that has a table of its own.
    with pytest.raises(TableError, match="its folder has an Iceberg table of a catalog"):
        IcebergFormat().table(spark.newSession(), path, "table t").find()
    with pytest.raises(TableError, match=f"the catalog has no {LAKE}.x.t"):
        renamed.table(spark.newSession(), path, "table t").find()
    other = IcebergFormat().table(spark.newSession(), f"{tmp_path}/s/public/u", "table u")
    other.write(other.spark.range(1), commit(0), None, WriteMode.REPLACE_TABLE)
    with pytest.raises(TableError, match=f"the catalog has no {LAKE}.s.public_u"):
        tables.table(spark.newSession(), other.path, "table u").find()


def test_a_catalog_that_cannot_be_used_is_refused_without_its_password(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    properties = jdbc_catalog(database, tmp_path)
    key = f"spark.sql.catalog.{LAKE}"

    def open_with(catalog: Catalog) -> None:
        IcebergFormat.checked(spark, str(tmp_path), "current", catalog)

    with pytest.raises(SettingsError, match="Spark has no catalog nowhere"):
        open_with(Catalog("nowhere"))
    with pytest.raises(SettingsError, match="spark_catalog of Spark is not one of Iceberg's"):
        open_with(Catalog("spark_catalog"))
    for wrong in ({key: "no.such.Catalog"}, {f"{key}.type": "jdbcc"}, {f"{key}.warehouse": ""}):
        with pytest.raises(SettingsError, match="cannot make the catalog lake by its settings"):
            open_with(Catalog(LAKE, properties=properties | wrong))
    away = Catalog(LAKE, properties={**properties, f"{key}.uri": "jdbc:postgresql://127.0.0.1:1/x"})
    path = table_folder(str(tmp_path), "s", "public.t")
    for ask in (  # at the start, and by a session that needs the catalog for the first time
        lambda: open_with(away),
        lambda: IcebergFormat(catalog=away).table(spark.newSession(), path, "table t"),
    ):
        with pytest.raises(TransientConsumerError, match="the catalog lake does not answer") as no:
            ask()
        assert properties[f"{key}.jdbc.password"] not in no.value.message
    # A reader of a Delta table that is gone, in Spark's own catalog.
    assert format_at(spark.newSession(), path, Catalog("spark_catalog")) is None
    for catalog, why in (
        (Catalog(LAKE), "cannot be in the catalog lake, only in spark_catalog"),
        (Catalog("spark_catalog", "a.b.{table}"), "are of two parts"),
    ):
        with pytest.raises(SettingsError, match=why):
            DeltaFormat.checked(spark, "auto", "current", catalog)
