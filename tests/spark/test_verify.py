"""Spark's values as PostgreSQL's text; a real PostgreSQL says what that is."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import pytest

from spark_consumer.verify import Difference, compare, float_text, text_rows
from tests.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLES = [0.0, -0.0, 1e15, 1e14, 123456789012345.0, 1e-5, 1e-4, 5e-324, 0.1, 1e22, -2.5]
SAMPLES += [float("nan"), float("inf"), float("-inf"), 1e6, 123456.0, 1e5]


@pytest.mark.postgres
@pytest.mark.parametrize(("pg_type", "form"), [("float8", "d"), ("float4", "f")])
def test_floating_point_numbers_are_printed_as_postgresql_does(
    database: Database, pg_type: str, form: str, seed: int
) -> None:
    chance = random.Random(seed)
    size = struct.calcsize(form)
    drawn = [struct.unpack(form, chance.randbytes(size))[0] for _ in range(2000)]
    rounded = [round(chance.uniform(-1, 1) * 10 ** chance.randrange(-8, 18), 3) for _ in range(500)]
    numbers = [
        struct.unpack(form, struct.pack(form, number))[0]
        for number in [*SAMPLES, *drawn, *rounded]
        if form == "d" or not 3.4e38 < abs(number) < float("inf")
    ]

    with database.connect() as connection:
        printed = connection.execute(
            f"SELECT x::{pg_type}::text"
            " FROM unnest(%s::float8[]) WITH ORDINALITY u(x, n) ORDER BY n",
            (numbers,),
        ).fetchall()

    assert [float_text(x, single=form == "f") for x in numbers] == [text for (text,) in printed]


MICROS = [
    0,
    1,
    -1,
    1_500_000,
    951_826_554_120_000,
    -62_135_596_800_000_000 - 1,
    253_402_300_800_000_000,
]
MICROS += [2**63 - 1, -(2**63)]
DAYS = [0, -1, 11016, -719_163, 2_932_897, -719_529, 2**31 - 1, -(2**31)]


@pytest.mark.spark
@pytest.mark.postgres
def test_a_table_is_equal_to_what_postgresql_prints(
    spark: SparkSession, database: Database
) -> None:
    frame = spark.sql(
        "SELECT timestamp_micros(m) AS tz,"
        " timestampadd(MICROSECOND, m, TIMESTAMP_NTZ '1970-01-01 00:00:00') AS ts,"
        " date_from_unix_date(d) AS da, m % 7 = 0 AS bo, CAST(0 AS DECIMAL(38, 18)) AS nu,"
        " X'00FFAB' AS by, CAST(m / 8 AS FLOAT) AS re, m AS bi, CAST(NULL AS STRING) AS te"
        f" FROM (SELECT explode(array({', '.join(map(_long, MICROS))})) AS m)"
        f" CROSS JOIN (SELECT explode(array({', '.join(map(_int, DAYS))})) AS d)"
    )
    names = ["tz", "ts", "da", "bo", "nu", "by", "re", "bi", "te"]
    with database.connect() as connection:
        connection.execute("SET timezone = 'UTC'")
        expected = connection.execute(
            """
            SELECT CASE abs(m) WHEN 9223372036854775807 THEN 'infinity' WHEN 9223372036854775808
                     THEN '-infinity'
                     ELSE ('epoch'::timestamptz + make_interval(days => floor(m / 86400000000)::int)
                       + make_interval(secs => mod(mod(m, 86400000000) + 86400000000, 86400000000)
                         / 1000000.0))::text END,
                   CASE abs(m) WHEN 9223372036854775807 THEN 'infinity' WHEN 9223372036854775808
                     THEN '-infinity'
                     ELSE ('epoch'::timestamp + make_interval(days => floor(m / 86400000000)::int)
                       + make_interval(secs => mod(mod(m, 86400000000) + 86400000000, 86400000000)
                         / 1000000.0))::text END,
                   CASE abs(d) WHEN 2147483647 THEN 'infinity' WHEN 2147483648 THEN '-infinity'
                     ELSE ('epoch'::date + d::int)::text END,
                   CASE WHEN m %% 7 = 0 THEN 't' ELSE 'f' END, 0::numeric(38, 18)::text,
                   '\\x00ffab'::bytea::text, (m / 8)::float4::text, m::text, NULL
            FROM unnest(%s::numeric[]) m, unnest(%s::numeric[]) d
            """,
            (MICROS, DAYS),
        ).fetchall()

    difference = compare(frame, expected, names)

    assert not difference, difference.describe()
    assert difference.rows == len(MICROS) * len(DAYS)


def _long(number: int) -> str:
    return "(-9223372036854775807L - 1L)" if number == -(2**63) else f"{number}L"


def _int(number: int) -> str:
    return "(-2147483647 - 1)" if number == -(2**31) else f"{number}"


@pytest.mark.spark
def test_duplicates_count_in_a_comparison(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1,), (1,), (2,)], "a int")

    difference = compare(frame, [("1",), ("2",), ("2",), (None,)])

    assert difference == Difference(3, 4, missing=(("2",), (None,)), surplus=(("1",),))
    assert difference.describe() == (
        "different: 3 rows instead of 4, 2 missing, 1 too many\n  - 2\n  - NULL\n  + 1"
    )
    assert sorted(text_rows(frame)) == [("1",), ("1",), ("2",)]
