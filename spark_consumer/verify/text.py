"""One text for equal values, whether they come from PostgreSQL, from a topic or from a Delta table.

It is what the type's output function prints under the settings that the gateway uses itself
(DateStyle ISO, TimeZone UTC, bytea_output hex), but for floating point numbers: of those it is the
bits, as a decimal number, since Java prints other digits than PostgreSQL. NULL is None. A value of
a column that is no key is its `mark` alone when it is long.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import Final, TypeAlias

from pyspark.sql import DataFrame
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

from spark_consumer.names import quoted

__all__ = ["Row", "digest", "mark", "marks", "plain_text", "row_digest_sql", "shown", "value_text"]

Row: TypeAlias = tuple[str | None, ...]
"""A row: the mark of each value."""

LONG_BYTES: Final = 64
_DATE_INFINITY: Final = 2**31 - 1
_TIMESTAMP_INFINITY: Final = 2**63 - 1
_DAY_US: Final = 86_400_000_000


def value_text(text: str, kind: DataType) -> str:
    """The text of a value that PostgreSQL has printed, for a Delta column of type `kind`."""
    match kind:
        case FloatType():
            (bits,) = struct.unpack(">i", struct.pack(">f", float(text)))
            return str(bits)
        case DoubleType():
            (bits,) = struct.unpack(">q", struct.pack(">d", float(text)))
            return str(bits)
    return text


def plain_text(text: str, kind: DataType) -> str:
    """The inverse of `value_text`: something that PostgreSQL reads as the same value."""
    match kind:
        case FloatType():
            return repr(struct.unpack(">f", struct.pack(">i", int(text)))[0])
        case DoubleType():
            return repr(struct.unpack(">d", struct.pack(">q", int(text)))[0])
    return text


def mark(text: str | None, *, key: bool = False) -> str | None:
    """What stands for a value: ``=`` and its text; when it is long, ``#``, length and MD5."""
    if text is None:
        return None
    if key or len(text) * 4 <= LONG_BYTES or len(encoded := text.encode()) <= LONG_BYTES:
        return "=" + text
    return f"#{len(encoded)}:{hashlib.md5(encoded, usedforsecurity=False).hexdigest()}"


def digest(row: Sequence[str | None]) -> str:
    """The MD5 of a row's marks, in hexadecimal digits."""
    return hashlib.md5(joined(row).encode(), usedforsecurity=False).hexdigest()


def joined(row: Sequence[str | None]) -> str:
    """The marks of a row as one text, different for different rows."""
    return "".join("-" if one is None else f"{len(one)}:{one}" for one in row)


def joined_sql(columns: Sequence[str]) -> str:
    """`joined`, of columns that have marks."""
    names = [quoted(column) for column in columns]
    if not names:
        return "''"
    each = (f"coalesce(concat(length({name}), ':', {name}), '-')" for name in names)
    return f"concat({', '.join(each)})"


def row_digest_sql(columns: Sequence[str]) -> str:
    """`digest`, of columns that have marks."""
    return f"md5({joined_sql(columns)})"


def shown(one: str | None, kind: DataType) -> str:
    """A mark for people."""
    if one is None:
        return "NULL"
    return plain_text(one[1:], kind) if one[0] == "=" else f"({one[1:].partition(':')[0]} bytes)"


def marks(table: DataFrame, key: Sequence[str] = ()) -> DataFrame:
    """Turn each value of a frame into its `mark`; those of the columns in `key` in full."""
    names = table.columns
    texts = table.select(
        *(F.expr(text_sql(quoted(name), table.schema[name].dataType)).alias(name) for name in names)
    )
    return texts.select(*(F.expr(mark_sql(quoted(n), key=n in key)).alias(n) for n in names))


def mark_sql(text: str, *, key: bool = False) -> str:
    """`mark`, of a text; it appears several times in the result."""
    if key:
        return f"concat('=', {text})"
    long = f"concat('#', octet_length({text}), ':', md5({text}))"
    return f"IF(octet_length({text}) > {LONG_BYTES}, {long}, concat('=', {text}))"


def _bits(value: str, java: str, method: str) -> str:
    return f"CASE WHEN {value} IS NOT NULL THEN reflect('{java}', '{method}', {value}) END"


def text_sql(value: str, kind: DataType) -> str:
    """The text of a value in Spark SQL."""
    match kind:
        case FloatType():
            return _bits(value, "java.lang.Float", "floatToIntBits")
        case DoubleType():
            return _bits(value, "java.lang.Double", "doubleToLongBits")
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
