"""Compare a Delta table with rows from elsewhere, as PostgreSQL prints them.

The text of a value is what its type's output function gives under the settings that the gateway
uses itself: DateStyle ISO, TimeZone UTC, bytea_output hex, extra_float_digits 1 or more.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    TimestampNTZType,
    TimestampType,
)

from spark_consumer.errors import TableError
from spark_consumer.names import quoted, table_path

__all__ = ["Difference", "TextRow", "compare", "float_text", "read_table", "rendered", "text_rows"]

TextRow: TypeAlias = tuple[str | None, ...]
"""A row's values as PostgreSQL prints them; None is NULL."""

_DATE_INFINITY: Final = 2**31 - 1
_TIMESTAMP_INFINITY: Final = 2**63 - 1
_DAY_US: Final = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Difference:
    """How a table differs from the rows it should have, as multisets.

    Attributes:
        rows: Number of rows in the table.
        expected: Number of rows it should have.
        missing: Rows that it lacks, sorted, each as often as it is lacking.
        surplus: Rows that it has too many, sorted, each as often.
    """

    rows: int
    expected: int
    missing: tuple[TextRow, ...]
    surplus: tuple[TextRow, ...]

    def __bool__(self) -> bool:
        """There is a difference."""
        return bool(self.missing or self.surplus)

    def describe(self, limit: int = 5) -> str:
        """Say it in a few lines; at most `limit` rows of each kind, with their values."""
        if not self:
            return f"equal: {self.rows} rows"
        lines = [
            f"different: {self.rows} rows instead of {self.expected},"
            f" {len(self.missing)} missing, {len(self.surplus)} too many"
        ]
        for sign, rows in (("-", self.missing), ("+", self.surplus)):
            lines += [f"  {sign} {_line(row)}" for row in rows[:limit]]
            if len(rows) > limit:
                lines.append(f"  {sign} ... and {len(rows) - limit} more")
        return "\n".join(lines)


def _line(row: TextRow) -> str:
    return " | ".join("NULL" if value is None else value for value in row)


def read_table(
    spark: SparkSession, warehouse: str, subscription: str, schema: str, table: str
) -> DataFrame:
    """A subscriber table as it is now.

    Raises:
        TableError: there is none.
    """
    path = table_path(warehouse, subscription, schema, table)
    if not DeltaTable.isDeltaTable(spark, path):
        raise TableError(
            f"subscription {subscription} has no table {schema}.{table} in the warehouse",
            hint="has the Spark job read its topic? It makes the table with the first record",
        )
    return spark.read.format("delta").load(path)


def compare(
    table: DataFrame, expected: Iterable[TextRow], columns: Sequence[str] | None = None
) -> Difference:
    """Compare a table with the rows it should have, as multisets.

    The driver holds the distinct rows that differ so far, at most those of the larger side.

    Args:
        table: any frame, usually a Delta table.
        expected: rows of PostgreSQL text, as ``COPY`` or a query in text format gives them.
        columns: the names of their values, in order; None for the table's own order.
    """
    balance: Counter[TextRow] = Counter()
    rows = wanted = 0
    for row in expected:
        balance[row] += 1
        wanted += 1
    for row in text_rows(table, columns):
        rows += 1
        balance[row] -= 1
        if not balance[row]:
            del balance[row]

    def sort_key(row: TextRow) -> tuple[tuple[bool, str], ...]:
        return tuple((value is None, value or "") for value in row)

    ordered = sorted(balance, key=sort_key)
    return Difference(
        rows=rows,
        expected=wanted,
        missing=tuple(row for row in ordered for _ in range(balance[row])),
        surplus=tuple(row for row in ordered for _ in range(-balance[row])),
    )


def text_rows(table: DataFrame, columns: Sequence[str] | None = None) -> Iterator[TextRow]:
    """The rows of a table as PostgreSQL prints them, one partition at a time."""
    names = list(columns) if columns is not None else table.columns
    single = [isinstance(table.schema[name].dataType, FloatType) for name in names]
    for row in rendered(table, names).toLocalIterator():
        yield tuple(
            float_text(value, single=is_single) if isinstance(value, float) else value
            for value, is_single in zip(row, single, strict=True)
        )


def rendered(table: DataFrame, columns: Sequence[str] | None = None) -> DataFrame:
    """Turn each column into PostgreSQL's text, in SQL; floating point numbers stay numbers.

    Java prints them with more digits than are needed, so `text_rows` prints them itself.
    """
    names = list(columns) if columns is not None else table.columns
    return table.select(
        *(F.expr(_sql(quoted(name), table.schema[name].dataType)).alias(name) for name in names)
    )


def _sql(value: str, kind: DataType) -> str:
    match kind:
        case FloatType() | DoubleType():
            return f"CAST({value} AS DOUBLE)"
        case BooleanType():
            return f"CASE WHEN {value} THEN 't' WHEN NOT {value} THEN 'f' END"
        case BinaryType():
            return rf"concat('\\x', lower(hex({value})))"
        case DateType():
            days = f"unix_date({value})"
            return _endless(days, _DATE_INFINITY, _date(value, ""))
        case TimestampType():
            return _timestamp(f"unix_micros({value})", "+00")
        case TimestampNTZType():
            epoch = "TIMESTAMP_NTZ '1970-01-01 00:00:00'"
            return _timestamp(f"timestampdiff(MICROSECOND, {epoch}, {value})", "")
    return f"CAST({value} AS STRING)"


def _endless(number: str, infinity: int, finite: str) -> str:
    low = f"(-{infinity} - 1)"
    return (
        f"CASE WHEN {number} = {infinity} THEN 'infinity' WHEN {number} = {low} THEN '-infinity'"
        f" ELSE {finite} END"
    )


def _date(date: str, time: str) -> str:
    """Source: EncodeDateOnly, EncodeDateTime in PostgreSQL's datetime.c."""
    year = f"IF(year({date}) > 0, year({date}), 1 - year({date}))"
    padded = f"IF({year} > 9999, CAST({year} AS STRING), lpad({year}, 4, '0'))"
    middle = f", {time}" if time else ""
    return (
        f"concat({padded}, '-', lpad(month({date}), 2, '0'), '-', lpad(day({date}), 2, '0')"
        f"{middle}, IF(year({date}) > 0, '', ' BC'))"
    )


def _timestamp(micros: str, zone: str) -> str:
    """From microseconds since 1970, so that the session's time zone has no part in it."""
    in_day = f"pmod({micros}, {_DAY_US})"
    # Not floor(a / b): that is a floating point division.
    date = f"date_from_unix_date(CAST(({micros} - {in_day}) div {_DAY_US} AS INT))"
    seconds = f"({in_day} div 1000000)"
    clock = ", ':', ".join(
        f"lpad({part}, 2, '0')"
        for part in (f"{seconds} div 3600", f"{seconds} div 60 % 60", f"{seconds} % 60")
    )
    fraction = f"rtrim('.', rtrim('0', concat('.', lpad({in_day} % 1000000, 6, '0'))))"
    return _endless(micros, _TIMESTAMP_INFINITY, _date(date, f"' ', {clock}, {fraction}, '{zone}'"))


def float_text(value: float, *, single: bool = False) -> str:
    """Print a floating point number as PostgreSQL does: the fewest digits that read back the same.

    Args:
        value: the number.
        single: it is a ``real``.

    Source: float4out, float8out; double_to_shortest_decimal in PostgreSQL's d2s.c.
    """
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    mantissa, _, exponent_text = _shortest(value, single=single).partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    digits = mantissa.lstrip("-").replace(".", "").rstrip("0")
    exponent = int(exponent_text)
    if exponent < -4 or exponent >= (6 if single else 15):
        fraction = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{fraction}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    whole, fraction = digits[: exponent + 1].ljust(exponent + 1, "0"), digits[exponent + 1 :]
    return f"{sign}{whole}.{fraction}" if fraction else f"{sign}{whole}"


def _shortest(value: float, *, single: bool) -> str:
    """The shortest ``d.ddde±x`` strictly nearer to `value` than to its neighbours.

    A number half way to a neighbour would read back the same where ties go to even. Python takes
    it then, PostgreSQL does not.
    """
    below, above = _neighbours(value, single=single)
    exact = Fraction(value)
    low, high = (exact + below) / 2, (exact + above) / 2
    # Python's own shortest form has at most as many digits.
    least = 0 if single else len(repr(value).partition("e")[0].strip("-0.").replace(".", "")) - 1
    for precision in range(max(least, 0), 17):
        text = f"{value:.{precision}e}"
        if low < Fraction(text) < high:
            return text
    raise AssertionError("17 digits tell any two numbers apart")


def _neighbours(value: float, *, single: bool) -> tuple[Fraction, Fraction]:
    """The floating point numbers next to `value`; beyond the last one, as if there were one."""
    if single:
        (bits,) = struct.unpack("<i", struct.pack("<f", abs(value)))
        inner, outer = (struct.unpack("<f", struct.pack("<i", bits + step))[0] for step in (-1, 1))
    else:
        inner, outer = (math.nextafter(abs(value), end) for end in (0.0, math.inf))
    exact, inward = Fraction(abs(value)), Fraction(inner)
    outward = Fraction(outer) if math.isfinite(outer) else 2 * exact - inward
    return (inward, outward) if value > 0 else (-outward, -inward)
