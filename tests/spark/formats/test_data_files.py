"""Delta tables whose files are replaced as a whole, by commits that are written as text."""

from __future__ import annotations

import json
import shutil
import zlib
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import polars
import pytest

from spark_consumer.apply.driver import writer as driver_writer
from spark_consumer.apply.driver.writer import SMALL_TABLE_BYTES
from spark_consumer.errors import ContractError, TransientConsumerError
from spark_consumer.formats.commit_metadata import Found
from spark_consumer.formats.delta import checkpoints
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.formats.delta.internals import PrivateLog
from spark_consumer.formats.delta.table import DeltaTable
from tests.support.run.waiting import wait_until
from tests.support.spark.direct import Direct
from tests.support.spark.records import Col, Record, StaticSchemas, TableTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS = [Col("id", "int", "integer"), Col("b", "string", "text")]


def copied(spark: SparkSession, path: Path, tables: DeltaFormat) -> tuple[TableTopic, Direct]:
    """A table with two rows that the driver has copied."""
    topic = TableTopic(StaticSchemas(), "s.public.t", COLUMNS, ["id"])
    table = Direct(spark, path, topic, tables)
    topic.truncate(0x90, 0, snapshot="first")
    for key in (1, 2):
        topic.change("r", 0x90, 0, after={"id": key, "b": "copied"})
    table.apply()
    assert table.held == 1
    return topic, table


def opened(spark: SparkSession, table: Direct) -> DeltaTable:
    return DeltaFormat().table(spark.newSession(), table.path, "t")


def test_other_readers_see_what_spark_sees(spark: SparkSession, tmp_path: Path) -> None:
    topic, table = copied(spark, tmp_path, DeltaFormat())
    topic.change("u", 0xA0, 0, after={"id": 1, "b": None})
    topic.change("c", 0xA0, 1, after={"id": 3, "b": "new"})
    topic.change("d", 0xA0, 2, before={"id": 2})
    table.apply()
    assert table.held == 2

    read = polars.read_delta(table.path).sort("id").to_dicts()

    assert read == [{"id": 1, "b": None}, {"id": 3, "b": "new"}]
    assert table.rows() == [(1, None), (3, "new")]


def test_rows_that_all_go_leave_a_table_without_files(spark: SparkSession, tmp_path: Path) -> None:
    topic, table = copied(spark, tmp_path, DeltaFormat())
    for key in (1, 2):
        topic.change("d", 0xA0, key, before={"id": key})
    table.apply()

    assert table.rows() == []
    assert polars.read_delta(table.path).is_empty()

    topic.change("c", 0xB0, 0, after={"id": 3, "b": "new"})
    table.apply()
    assert table.rows() == [(3, "new")]
    assert table.held == 3


def test_a_commit_of_another_in_between_is_seen_by_the_next_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic, table = copied(spark, tmp_path, tables := DeltaFormat())
    topic.change("u", 0xA0, 0, after={"id": 1, "b": "mine"})
    spark.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('note' = 'somebody')")

    spark_table = tables.table(spark.newSession(), table.path, "t")
    found = spark_table.find()
    assert found is not None
    known = spark_table.data_files(found, SMALL_TABLE_BYTES)
    assert known is not None
    spark.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('note' = 'another')")
    with pytest.raises(TransientConsumerError, match="another writer"):
        spark_table.replace_files(known, (), (), found.commit)
    assert table.rows() == [(1, "copied"), (2, "copied")]

    table.apply()
    assert table.rows() == [(1, "mine"), (2, "copied")]


@pytest.mark.parametrize(
    "change",
    [
        "SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
        "SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
        "SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
        "ADD CONSTRAINT some CHECK (id > 0)",
    ],
)
def test_a_table_that_asks_for_more_is_left_to_delta(
    spark: SparkSession, tmp_path: Path, change: str
) -> None:
    _, table = copied(spark, tmp_path, DeltaFormat())
    assert opened(spark, table).data_files(table.found(), SMALL_TABLE_BYTES) is not None

    spark.sql(f"ALTER TABLE delta.`{table.path}` {change}")

    assert opened(spark, table).data_files(table.found(), SMALL_TABLE_BYTES) is None


def test_the_log_gets_a_checkpoint_now_and_then(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_COMMITS", 5)
    _, table = copied(spark, tmp_path, tables := DeltaFormat())
    held = tables.table(spark.newSession(), table.path, "t")
    found = held.find()
    for _ in range(6):
        assert found is not None
        # Nobody asks Delta for the table's newest state meanwhile.
        known = held.data_files(found, SMALL_TABLE_BYTES)
        assert known is not None
        commit = replace(found.commit, serial=found.commit.serial + 1)
        found = Found(held.replace_files(known, (), (), commit), commit)

    last = Path(table.path) / "_delta_log" / "_last_checkpoint"
    wait_until(lambda: last.exists() and last.read_text(), 30, "a checkpoint")
    requested = next(v for v in range(1, 7) if (v + zlib.crc32(table.path.encode())) % 5 == 0)
    assert json.loads(last.read_text())["version"] >= requested
    log = PrivateLog(spark, table.path, "t").log()
    wait_until(
        lambda: not log.unsafeVolatileSnapshot().stateReconstructionTriggered(),
        30,
        "a snapshot without the state that the checkpoint took",
    )
    assert table.rows() == [(1, "copied"), (2, "copied")]
    assert len(polars.read_delta(table.path)) == 2


def test_new_rows_are_written_beside_the_others_until_there_are_many_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic, table = copied(spark, tmp_path, DeltaFormat())
    counts = []
    for number in range(3, 12):
        topic.change("c", 0xA0 + number, 0, after={"id": number, "b": "new"})
        table.apply()
        counts.append(len(spark.read.format("delta").load(table.path).inputFiles()))
    topic.change("d", 0xF0, 0, before={"id": 11})
    topic.change("c", 0xF0, 1, after={"id": 11, "b": "again"})
    table.apply()

    assert counts == [2, 3, 4, 5, 6, 7, 8, 1, 2]
    assert len(spark.read.format("delta").load(table.path).inputFiles()) == 1
    copied_rows = [(1, "copied"), (2, "copied")]
    new = [(number, "new") for number in range(3, 11)]
    assert table.rows() == sorted([*copied_rows, *new, (11, "again")], key=repr)


@pytest.mark.parametrize("loss", ["the folder", "the last commit", "all commits but the first"])
def test_a_table_that_was_removed_or_restored_meanwhile_gets_no_commit(
    spark: SparkSession, tmp_path: Path, loss: str
) -> None:
    topic, table = copied(spark, tmp_path, tables := DeltaFormat())
    for number in range(3):
        topic.change("u", 0xA0 + number, 0, after={"id": 1, "b": f"change {number}"})
        table.apply()
    held = tables.table(spark.newSession(), table.path, "t")
    found = held.find()
    assert found is not None and held.believed() == found.version == 3
    known = held.data_files(found, SMALL_TABLE_BYTES)
    assert known is not None

    log = Path(table.path) / "_delta_log"
    if loss == "the folder":
        shutil.rmtree(table.path)
    for version in (1, 2, 3) if loss == "all commits but the first" else (3,):
        for path in log.glob(f"*{version:020}*"):
            path.unlink()
    left = {path.name for path in log.glob("*.json")}

    with pytest.raises(TransientConsumerError, match="another writer"):
        held.replace_files(known, (), (), found.commit)
    assert held.believed() is None
    assert {path.name for path in log.glob("*.json")} == left


def test_a_codec_that_only_spark_knows_is_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert driver_writer._CODECS["none"] == "uncompressed"
    before = spark.conf.get("spark.sql.parquet.compression.codec")
    monkeypatch.setattr(driver_writer, "_CODECS", {str(before): "uncompressed"})
    _, table = copied(spark, tmp_path, DeltaFormat())

    assert list(Path(table.path).glob("*.uncompressed.parquet"))
    assert table.rows() == [(1, "copied"), (2, "copied")]


def decimal(digits: int) -> dict[str, object]:
    return {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": 2}


def test_decimals_of_any_width_are_read_and_written(spark: SparkSession, tmp_path: Path) -> None:
    decimals = [
        Col(f"d{digits}", decimal(digits), f"numeric({digits},2)") for digits in (5, 15, 38)
    ]
    columns = [Col("id", "int", "integer"), *decimals]
    topic = TableTopic(StaticSchemas(), "s.public.t", columns, ["id"])
    table = Direct(spark, tmp_path, topic)
    topic.truncate(0x90, 0, snapshot="first")
    value = {f"d{digits}": Decimal("-123.45") for digits in (5, 15, 38)}
    topic.change("r", 0x90, 0, after={"id": 1, **value})
    topic.change("r", 0x90, 0, after={"id": 2, "d5": None, "d15": None, "d38": None})
    table.apply()
    topic.change("u", 0xA0, 0, after={"id": 2, **value})
    table.apply()

    assert table.held == 2
    assert table.rows() == [(n, *(Decimal("-123.45"),) * 3) for n in (1, 2)]


MALFORMED = [
    ("commit_lsn", "0/90"),
    ("seq", "many"),
    ("seq", None),
    ("op", "x"),
    ("op", None),
    ("rekey", "both"),
]
"""Headers with a text that they cannot have; None: the header is missing."""


def test_both_ways_refuse_a_malformed_record_in_the_same_words(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic, table = copied(spark, tmp_path, DeltaFormat())
    topic.change("u", 0xA0, 0, after={"id": 1, "b": "new"})
    record = topic.records.pop()

    def said(wrong: Record) -> str:
        messages = []
        for held in (True, False):
            topic.records.append(wrong)
            with pytest.raises(ContractError) as caught:
                table.apply(held=held)
            topic.records.pop()
            messages.append(caught.value.message)
        assert messages[0] == messages[1]
        return messages[0]

    for header, text in MALFORMED:
        headers = [(name, given) for name, given in record.headers if name != header]
        if text is not None:
            headers.append((header, text.encode()))
        place = f"topic s.public.t, partition 0, offset 3: header {header} is"
        assert place in said(replace(record, headers=headers))
    for value in (b"", b"\0", b"\0\0\0\0\1", b"\1\0\0\0\1ab"):
        refused = "offset 3: the value is not in the wire format"
        assert refused in said(replace(record, value=value))
    assert table.rows() == [(1, "copied"), (2, "copied")]


def test_a_record_that_is_not_what_its_schema_says_is_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic, table = copied(spark, tmp_path, DeltaFormat())
    topic.change("u", 0xA0, 0, after={"id": 1, "b": "new"})
    record = topic.records.pop()
    assert record.value is not None
    topic.records.append(replace(record, value=record.value[:-20]))

    with pytest.raises(ContractError, match="what its Avro schema says: partition 0, offset 3"):
        table.apply()
    assert table.rows() == [(1, "copied"), (2, "copied")]
