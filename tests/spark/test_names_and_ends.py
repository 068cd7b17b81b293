"""Values at the ends of their types, and names of columns that the job has other uses for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_consumer import writers
from spark_consumer.names import free_name
from tests.spark.direct import Direct
from tests.spark.records import Col, StaticSchemas, TableTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DAYS = Col("d", {"type": "int", "logicalType": "date"}, "date")
LOCAL = Col(
    "ts", {"type": "long", "logicalType": "local-timestamp-micros"}, "timestamp without time zone"
)
INSTANT = Col("tz", {"type": "long", "logicalType": "timestamp-micros"}, "timestamp with time zone")
ENDS = {
    1: (2**31 - 1, 2**63 - 1, 2**63 - 1),  # infinity
    2: (-(2**31) + 1, -(2**63) + 1, -(2**63) + 1),
    3: (-2_440_588, -210_866_803_200_000_000, -210_866_803_200_000_000),  # 4714-11-24 BC
    4: (19_000, 1_700_000_000_000_000, 1_700_000_000_000_001),
}


def test_an_internal_name_is_never_one_of_the_user_s() -> None:
    assert free_name("place", ["a", "b"]) == "place"
    assert free_name("place", ["PLACE", "place_"]) == "place__"


@pytest.mark.parametrize("small", [True, False], ids=["rewritten", "marked"])
def test_keys_at_the_ends_of_their_types_and_before_christ_are_found_again(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    small: bool,
) -> None:
    if not small:
        monkeypatch.setattr(writers, "REWRITE_BYTES", -1)
        monkeypatch.setattr(writers, "VECTOR_BYTES", -1)
    columns = [Col("id", "int", "integer"), DAYS, LOCAL, INSTANT, Col("b", "string", "text")]
    topic = TableTopic(StaticSchemas(), "s.public.t", columns, ["d", "ts", "tz"])
    table = Direct(spark, tmp_path, topic)

    def row(number: int, text: str) -> dict[str, Any]:
        d, ts, tz = ENDS[number]
        return {"id": number, "d": d, "ts": ts, "tz": tz, "b": text}

    topic.truncate(0x90, 0, snapshot="first")
    for number in ENDS:
        topic.change("r", 0x90, 0, after=row(number, "copied"))
    table.apply(small=small)
    for number in (1, 2, 3):
        topic.change("u", 0xA0, number, after=row(number, "changed"))
    table.apply(small=small)
    topic.change("d", 0xB0, 1, before=row(1, "x"))
    topic.change("d", 0xB0, 3, before=row(2, "x"))
    table.apply(small=small)
    topic.change("c", 0xC0, 1, after=row(1, "back"))
    topic.change("u", 0xC0, 2, after=row(4, "last"))
    table.apply(small=small)

    rows = spark.read.format("delta").load(table.path)
    found = rows.selectExpr(
        "id", "unix_date(d)", "unix_micros(CAST(ts AS TIMESTAMP))", "unix_micros(tz)", "b"
    ).collect()
    assert {one[0]: tuple(one) for one in found} == {
        number: (number, *ENDS[number], text)
        for number, text in [(1, "back"), (3, "changed"), (4, "last")]
    }
    assert table.skipped == 0


@pytest.mark.parametrize("small", [True, False], ids=["rewritten", "marked"])
def test_columns_may_be_called_whatever_the_job_calls_its_own(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    if not small:
        monkeypatch.setattr(writers, "REWRITE_BYTES", -1)
        monkeypatch.setattr(writers, "VECTOR_BYTES", -1)
    names = [
        "~there",
        "there",
        "need",
        "place",
        "file",
        "k",
        "v",
        "s",
        "t",
        "_metadata",
        "a`b",
        "value",
        "key",
        "before",
        "after",
    ]
    columns = [
        Col("x_" + "".join(f"{ord(one):x}" for one in name), "int", "integer", name)
        for name in names
    ]
    first, *others = (column.field for column in columns[::-1])
    topic = TableTopic(StaticSchemas(), "s.public.t", columns, [first, columns[-5].field])
    table = Direct(spark, tmp_path, topic)

    def row(number: int, value: int) -> dict[str, Any]:
        return {first: number, **dict.fromkeys(others, value), columns[-5].field: number}

    topic.truncate(0x90, 0, snapshot="first")
    for number in (1, 2, 3):
        topic.change("r", 0x90, 0, after=row(number, 0))
    table.apply()
    topic.change("u", 0xA0, 1, after=row(1, 7))
    topic.change("u", 0xA0, 3, after=row(2, 5), unchanged=others[:3])
    topic.change("d", 0xA0, 5, before=row(3, 0))
    topic.change("u", 0xA0, 7, after=row(4, 9))
    table.apply(small=small)

    rows = spark.read.format("delta").load(table.path)
    assert rows.columns == names
    found = {one[names.index("after")]: one[names.index("~there")] for one in rows.collect()}
    assert found == {1: 7, 2: 5}
    assert table.skipped == 1
