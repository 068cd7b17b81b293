"""From PostgreSQL through gateway and job: readers find the tables by their names in catalogs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import polars
import pytest
from pyiceberg.table import StaticTable

from gateway.core.lsn import parse_lsn
from spark_consumer.errors import FatalConsumerError
from spark_consumer.job.job import run
from spark_consumer.listing import print_tables
from spark_consumer.reader import read
from spark_consumer.settings import ConsumerSettings
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.scene import Scene, current_lsn, scene
from tests.support.spark.catalogs import LAKE, jdbc_catalog, with_catalog
from tests.support.spark.every_format import sorted_rows
from tests.support.spark.view_readers import SparkReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["scene"]

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres]

TABLES = """
CREATE TABLE orders (id int PRIMARY KEY, state text);
CREATE TABLE "Odd-Name" (id int PRIMARY KEY);
"""
PUBLICATION = 'CREATE PUBLICATION p FOR TABLE orders WHERE (id < 100), "Odd-Name";'


def test_tables_are_read_by_name_and_a_name_that_is_in_use_concerns_its_table_alone(
    spark: SparkSession,
    scene: Callable[..., Scene],
    database: Database,
    make_database: DatabaseFactory,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lake = make_database("lake")
    properties = jdbc_catalog(lake, tmp_path)
    # Spark would show a table of Iceberg's as it was when it was read up to 30 s before.
    fresh = {f"spark.sql.catalog.{LAKE}.cache-enabled": "false"}
    reader = with_catalog(spark, properties | fresh)

    def check(orders: str, odd: str) -> None:
        """Compare with the native subscription what Spark SQL finds by name."""
        assert sorted_rows(reader.sql(f"SELECT * FROM {orders}")) == native.rows("orders")
        assert sorted_rows(reader.sql(f"SELECT * FROM {odd}")) == native.rows("Odd-Name")

    with database.connect() as connection:
        connection.execute(f"{TABLES} {PUBLICATION}".encode())
        connection.execute("INSERT INTO orders SELECT n, 'new' FROM generate_series(1, 120) AS n")
        connection.execute('INSERT INTO "Odd-Name" VALUES (1)')
        native = NativeSubscription(database, make_database, TABLES, ["p"])
        s = scene(
            f"{PUBLICATION} CREATE SUBSCRIPTION {{s}} CONNECTION '' PUBLICATION p;"
            "CREATE SUBSCRIPTION {s}_i CONNECTION '' PUBLICATION p;"
        )
        delta, iceberg = s.slot, f"{s.slot}_i"
        settings = ConsumerSettings(
            kafka={"bootstrap.servers": s.project.bootstrap},
            registry_url=s.project.registry,
            warehouse=str(tmp_path / "ware house"),
            checkpoint=str(tmp_path / "checkpoint"),
            subscriptions=(delta, iceberg),
            formats={iceberg: "iceberg"},
            catalog="spark_catalog",
            catalogs={iceberg: LAKE},
            views=("spark",),
            spark=properties,
        )

        def consume() -> ConsumerSettings:
            end = current_lsn(connection)
            native.wait_until_applied(end)
            s.run_to(end)
            until = replace(settings, endpos=parse_lsn(end))
            assert run(until, spark, stopping=threading.Event()) == 0
            return until

        # Names that others have: a Delta table, and a table of another subscription's.
        taken = f"spark_catalog.{delta}.public_odd_name"
        reader.sql(f"CREATE DATABASE spark_catalog.{delta}")
        reader.sql(f"CREATE TABLE {taken} USING delta LOCATION '{tmp_path}/theirs' AS SELECT 7 x")
        reader.sql(f"CREATE TABLE {LAKE}.{iceberg}.public_odd_name (x int) USING iceberg")
        with pytest.raises(FatalConsumerError) as held:
            consume()
        assert held.value.message.count("its name") == 2
        assert f"{taken} is that of the table in file:" in held.value.message
        assert f"{LAKE}.{iceberg}.public_odd_name is that of the table in" in held.value.message
        assert "consumer.catalog_tables" in (held.value.hint or "")
        ours, theirs = f"spark_catalog.{delta}.public_orders", f"{LAKE}.{iceberg}.public_orders"
        for name in (ours, theirs):
            assert sorted_rows(reader.sql(f"SELECT * FROM {name}")) == native.rows("orders")
        assert [row.x for row in reader.sql(f"SELECT * FROM {taken}").collect()] == [7]

        # The state after a crash between the table's commit and its name.
        reader.sql(f"DROP TABLE {ours}")
        odd = {delta: f"{delta}_more.odd", iceberg: "more.levels.odd"}
        settings = replace(
            settings,
            catalog_tables={f"{name}.public.Odd-Name": chosen for name, chosen in odd.items()},
        )
        connection.execute("UPDATE orders SET id = id + 50, state = 'paid' WHERE id > 90")
        connection.execute("UPDATE orders SET id = -id WHERE id > 160")
        connection.execute("DELETE FROM orders WHERE id BETWEEN 1 AND 9")
        connection.execute('INSERT INTO "Odd-Name" VALUES (2)')
        until = consume()

    check(ours, f"spark_catalog.{odd[delta]}")
    check(theirs, f"{LAKE}.{odd[iceberg]}")
    with lake.connect() as connection:
        pointer = connection.execute(
            "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = %s"
            " AND table_name = 'public_orders'",
            [iceberg],
        )
        (place,) = pointer.fetchone() or ("",)
    found = polars.DataFrame(StaticTable.from_metadata(str(place)).scan().to_arrow())
    assert sorted(found.rows()) == sorted(native.rows("orders"))

    warehouse = settings.warehouse
    for name in (delta, iceberg):
        rows = read(name, "public.orders", warehouse=warehouse, spark=reader)
        assert sorted_rows(rows) == native.rows("orders")
        views = Path(warehouse, name, "views.spark.sql")
        _, answer = SparkReader(spark, reader).ask(views, f"SELECT * FROM `{name}.public.orders`")
        assert sorted(answer, key=repr) == native.rows("orders")
    print_tables(until, at=None, as_json=True)
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    names = {table["name"] for one in listed for table in one["tables"]}
    assert names == {ours, theirs, f"spark_catalog.{odd[delta]}", f"{LAKE}.{odd[iceberg]}"}
