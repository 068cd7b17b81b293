"""What a large batch does to a table that has rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.direct import Direct
from tests.spark.records import Col, StaticSchemas, TableTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS = [Col("id", "int", "integer"), Col("b", "string", "text")]


def test_a_large_batch_changes_rows_whose_keys_have_bounds(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic = TableTopic(StaticSchemas(), "s.public.t", COLUMNS, ["id"])
    table = Direct(spark, tmp_path, topic)
    topic.truncate(0x90, 0, snapshot="first")
    for key in range(1, 6):
        topic.change("r", 0x90, 0, after={"id": key, "b": "copied"})
    table.apply()
    topic.change("u", 0x98, 1, after={"id": 1, "b": None}, unchanged=["b"])
    topic.change("u", 0x98, 3, after={"id": 2, "b": "set"})
    topic.change("d", 0x98, 5, before={"id": 3})
    topic.change("c", 0x98, 7, after={"id": 7, "b": "new"})

    table.apply(small=False)

    assert table.rows() == [(1, "copied"), (2, "set"), (4, "copied"), (5, "copied"), (7, "new")]
