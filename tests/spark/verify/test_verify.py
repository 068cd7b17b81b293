"""Marks of values, and the comparison of tables by them; a real PostgreSQL says what they are."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import DoubleType, FloatType

from spark_consumer.verify.compare import Difference, Expected, compare
from spark_consumer.verify.spool import Spool
from spark_consumer.verify.text import Row, mark, marks, plain_text, shown, value_text
from tests.support.backends.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLES = [0.0, -0.0, 1e15, 1e14, 123456789012345.0, 1e-5, 1e-4, 5e-324, 0.1, 1e22, -2.5]
SAMPLES += [float("nan"), float("inf"), float("-inf"), 1e6, 123456.0, 1e5]


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("pg_type", "form", "kind"), [("float8", "d", DoubleType()), ("float4", "f", FloatType())]
)
def test_what_postgresql_prints_of_floating_point_numbers_are_their_bits(
    database: Database, pg_type: str, form: str, kind: DoubleType | FloatType, seed: int
) -> None:
    chance = random.Random(seed)
    size = struct.calcsize(form)
    drawn = [struct.unpack(form, chance.randbytes(size))[0] for _ in range(2000)]
    numbers = [
        struct.unpack(form, struct.pack(form, number))[0]
        for number in [*SAMPLES, *drawn]
        if form == "d" or not 3.4e38 < abs(number) < float("inf")
    ]

    with database.connect() as connection:
        printed = connection.execute(
            f"SELECT x::{pg_type}::text"
            " FROM unnest(%s::float8[]) WITH ORDINALITY u(x, n) ORDER BY n",
            (numbers,),
        ).fetchall()

    bits = {"d": "q", "f": "i"}[form]
    for number, (text,) in zip(numbers, printed, strict=True):
        alike = number if number == number else float("nan")  # NaN is NaN, whatever its bits
        (wanted,) = struct.unpack(bits, struct.pack(form, alike))
        assert value_text(text, kind) == str(wanted)
        again = struct.pack(form, float(plain_text(str(wanted), kind)))
        assert again == struct.pack(form, alike)


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
def test_values_have_the_marks_of_what_postgresql_prints(
    spark: SparkSession, database: Database
) -> None:
    frame = spark.sql(
        "SELECT timestamp_micros(m) AS tz,"
        " timestampadd(MICROSECOND, m, TIMESTAMP_NTZ '1970-01-01 00:00:00') AS ts,"
        " date_from_unix_date(d) AS da, m % 7 = 0 AS bo, CAST(0 AS DECIMAL(38, 18)) AS nu,"
        " X'00FFAB' AS `by`, CAST(m / 8 AS FLOAT) AS re, m / 7 AS dp, m AS bi,"
        " CAST(NULL AS STRING) AS te, repeat(CAST(m AS STRING) || 'ä', 9) AS lo"
        f" FROM (SELECT explode(array({', '.join(map(_long, MICROS))})) AS m)"
        f" CROSS JOIN (SELECT explode(array({', '.join(map(_int, DAYS))})) AS d)"
    )
    with database.connect() as connection:
        connection.execute("SET timezone = 'UTC'")
        printed = connection.execute(
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
                   '\\x00ffab'::bytea::text, (m::float8 / 8)::float4::text,
                   (m::float8 / 7)::text, m::text, NULL, repeat(m::text || 'ä', 9)
            FROM unnest(%s::numeric[]) m, unnest(%s::numeric[]) d
            """,
            (MICROS, DAYS),
        ).fetchall()

    kinds = [field.dataType for field in frame.schema.fields]
    wanted = [
        tuple(
            None if text is None else mark(value_text(text, kind))
            for text, kind in zip(row, kinds, strict=True)
        )
        for row in printed
    ]
    assert sorted(map(tuple, marks(frame).collect()), key=repr) == sorted(wanted, key=repr)
    assert any(row[-1].startswith("#") for row in wanted if row[-1])
    assert not compare(frame, Expected(frame.columns, (), wanted))


def _long(number: int) -> str:
    return "(-9223372036854775807L - 1L)" if number == -(2**63) else f"{number}L"


def _int(number: int) -> str:
    return "(-2147483647 - 1)" if number == -(2**31) else f"{number}"


def marked(*values: str | None) -> Row:
    return tuple(map(mark, values))


@pytest.mark.spark
def test_a_comparison_names_the_keys_that_differ(spark: SparkSession) -> None:
    there = [(number, "long" * number) for number in range(1000)]
    frame = spark.createDataFrame(
        [*there, (5000, "surplus"), (3, "another row")], "a int, b string"
    )
    spooled = [marked(str(a), b) for a, b in there]
    spooled[7] = marked("7", "another value")
    expected = Expected(["a", "b"], ["a"], spooled)
    expected.replaced = {marked("8"), marked("9"), marked("2000")}
    expected.rows = {marked("9"): marked("9", "long" * 9), marked("2000"): marked("2000", None)}

    difference = compare(frame, expected)

    assert difference == Difference(
        1002,
        1000,
        missing=(marked("2000"),),
        surplus=(marked("3"), marked("5000"), marked("8")),
        changed=(marked("7"),),
    )
    assert list(difference.lines(frame.schema, ["a"])) == [
        "1 missing:",
        "  (2000)",
        "3 unexpected:",
        "  (3)",
        "  (5000)",
        "  (8)",
        "1 with other values:",
        "  (7)",
    ]


@pytest.mark.spark
def test_rows_of_a_table_without_a_key_count_as_often_as_they_are_there(
    spark: SparkSession,
) -> None:
    frame = spark.createDataFrame([(1,), (1,), (2,)], "a int")
    expected = [marked("1"), marked("2"), marked("2"), marked(None)]

    difference = compare(frame, Expected(["a"], (), expected))

    assert (difference.rows, difference.expected) == (3, 4)
    assert (difference.missing, difference.surplus) == ((marked("2"), marked(None)), (marked("1"),))
    assert shown(None, frame.schema["a"].dataType) == "NULL"


@pytest.mark.spark
def test_the_rows_that_are_compared_are_not_in_memory(spark: SparkSession) -> None:
    count, bound = 100_000, 10_000_000
    frame = spark.range(count).selectExpr("CAST(id AS INT) AS a", "repeat('x', 40) || id AS b")

    def rows() -> Iterator[Row]:
        return (marked(str(number), f"{'x' * 40}{number}") for number in range(count))

    with Spool() as spool:
        tracemalloc.start()
        try:
            for row in rows():
                spool.append(row)
            difference = compare(frame, Expected(["a", "b"], ["a"], spool))
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            assert len(list(rows())) == count
            _, kept = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert not difference and difference.rows == count
    assert most < bound < kept
