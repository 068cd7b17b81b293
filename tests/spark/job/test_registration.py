"""Names of Delta tables in the session catalog: given when possible, and never in a table's way."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_consumer.formats.catalog import Catalog
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.formats.delta.registration import SESSION_CATALOG
from spark_consumer.job.subscriber_tables import SubscriberTables
from spark_consumer.names import table_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_table_gets_its_name_once_it_is_there_and_does_without_where_the_catalog_refuses(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = f"d{uuid.uuid4().hex}"

    def tables(names: str) -> SubscriberTables:
        catalog = Catalog(SESSION_CATALOG, names)
        return SubscriberTables(spark, DeltaFormat(catalog=catalog), str(tmp_path), "s")

    mine = tables(f"{database}.{{table}}")
    mine.register(["public.t"])  # its folder was moved away, and it is copied again
    spark.range(3).write.format("delta").save(table_folder(str(tmp_path), "s", "public.t"))
    mine.register(["public.t"])

    assert spark.table(f"{SESSION_CATALOG}.{database}.t").count() == 3

    refused = tables("global_temp.{table}")  # Spark keeps this database for itself
    for _ in range(2):
        refused.check_name("public.t")
        refused.register(["public.t"])
    (warning,) = [one for one in caplog.messages if "without its name in the catalog" in one]
    assert "public.t" in warning
