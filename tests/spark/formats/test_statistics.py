"""Statistics of the files that the driver writes: of the columns of which Delta itself has them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.spark.direct import Direct
from tests.support.spark.records import Col, StaticSchemas, TableTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DOTTED = Col("d_x002E_e", "long", "bigint", "d.e", number=2)
TICKED = Col("t_x0060_k", "int", "integer", "t`k", number=3)
COLUMNS = [
    Col("id", "int", "integer", number=1),
    DOTTED,
    TICKED,
    *(Col(f"c{number}", "int", "integer", number=number) for number in range(4, 35)),
]
"""Two more than Delta has statistics of unless it is told otherwise."""
NUMBER = "delta.dataSkippingNumIndexedCols"
NAMES = "delta.dataSkippingStatsColumns"


def row(key: int, columns: Sequence[Col] = COLUMNS) -> dict[str, Any]:
    """A row whose columns differ in their bounds, and every third one in its nulls."""
    values = {
        column.field: None if at % 3 == 0 and key == 1 else key + 100 * at
        for at, column in enumerate(columns)
    }
    return values | {"id": key}


def newest(path: Path) -> dict[str, Any]:
    """The statistics of the file that the last commit has added."""
    log = max((path / "_delta_log").glob("*.json")).read_text()
    (added,) = [json.loads(line)["add"] for line in log.splitlines() if '"add"' in line]
    stats: dict[str, Any] = json.loads(added["stats"])
    return {name: value for name, value in stats.items() if name != "tightBounds"}


def of_delta(spark: SparkSession, table: Direct, copy: Path) -> dict[str, Any]:
    """The statistics that Delta writes for the same rows in the same table."""
    shutil.copytree(table.path, copy)
    rows = spark.createDataFrame(
        spark.read.format("delta").load(str(copy)).collect(),
        spark.read.format("delta").load(str(copy)).schema,
    )
    rows.coalesce(1).write.format("delta").mode("append").save(str(copy))
    return newest(copy)


def test_statistics_are_of_the_columns_of_which_delta_has_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic = TableTopic(StaticSchemas(), "s.public.t", list(COLUMNS), ["id"])
    table = Direct(spark, tmp_path, topic)

    def alter(change: str) -> None:
        spark.sql(f"ALTER TABLE delta.`{table.path}` {change}")

    def copy(at: int) -> None:
        topic.truncate(at, 0, snapshot="first")
        for key in (1, 2):
            topic.change("r", at, 0, after=row(key, topic.columns))
        table.apply()

    copy(0x90)
    found = [newest(Path(table.path))]
    expected = [of_delta(spark, table, tmp_path / "first")]
    chosen = [
        f"'{NUMBER}' = '2'",
        f"'{NUMBER}' = '-1'",
        f"'{NUMBER}' = '0'",
        f"'{NUMBER}' = '2', '{NAMES}' = 'c30, `d.e`,`t``k`'",
    ]
    for at, properties in enumerate(chosen):
        alter(f"SET TBLPROPERTIES ({properties})")
        topic.change("u", 0xA0 + at, 1, after=row(2))
        table.apply()
        found.append(newest(Path(table.path)))
        expected.append(of_delta(spark, table, tmp_path / str(at)))
    # A copy with other columns: by number alone, as a list may name one that is gone.
    alter(f"UNSET TBLPROPERTIES ('{NAMES}')")
    topic.columns[1:3] = []
    copy(0xB0)
    found.append(newest(Path(table.path)))
    expected.append(of_delta(spark, table, tmp_path / "copied"))
    # Renamed columns keep their names in files.
    alter(f"SET TBLPROPERTIES ('{NAMES}' = 'id,c4')")
    topic.columns[1] = Col("renamed", "int", "integer", number=4)
    for at in (0xC0, 0xC1):
        # Spark applies the cut that brings another name.
        topic.change("u", at, 1, after=row(2, topic.columns))
        table.apply()
    found.append(newest(Path(table.path)))
    expected.append(of_delta(spark, table, tmp_path / "renamed"))

    assert found == expected
    assert [len(one.get("nullCount", {})) for one in found] == [32, 2, 34, 0, 3, 2, 2]
    assert table.held == 7
