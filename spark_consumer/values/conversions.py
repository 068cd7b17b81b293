"""Values that PostgreSQL has printed, as expressions of the type that a Delta column has.

Spark's casts read other texts than PostgreSQL prints: they take the hexadecimal digits of a bytea
for its bytes, pass over BC, and know no infinite date. So what differs is read here.

Source: PostgreSQL's manual, output of date and time types (DateStyle ISO), and bytea_output hex.
"""

from __future__ import annotations

import re
from typing import Final

from pyspark.sql import Column as Expr
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, DateType, TimestampNTZType, TimestampType

__all__ = ["days", "literal", "micros"]

_DATE: Final = r"(\d{4,})-(\d\d)-(\d\d)"
_TIME: Final = r" (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?"
_ZONE: Final = r"(?:([+-])(\d\d)(?::(\d\d)(?::(\d\d))?)?)?"
_ERA: Final = r"( BC)?"
_IS_DATE: Final = re.compile(_DATE + _ERA, re.ASCII)
_IS_TIMESTAMP: Final = re.compile(_DATE + _TIME + _ZONE + _ERA, re.ASCII)
_IS_BYTES: Final = re.compile(r"\\x((?:[0-9a-f]{2})*)", re.ASCII)
_DATE_ENDS: Final = {"infinity": 2**31 - 1, "-infinity": -(2**31)}
_TIMESTAMP_ENDS: Final = {"infinity": 2**63 - 1, "-infinity": -(2**63)}
_DAY_US: Final = 86_400_000_000


def literal(text: str, kind: DataType) -> Expr:
    """A value as a column expression of type `kind`, in a session whose time zone is UTC.

    Raises:
        ValueError: `text` is not what PostgreSQL prints for a type that is kept as `kind`.
    """
    match kind:
        case DateType():
            return F.expr(f"date_from_unix_date(CAST('{days(text)}' AS INT))")
        case TimestampType() | TimestampNTZType():
            instant = f"timestamp_micros(CAST('{micros(text)}' AS BIGINT))"
            return F.expr(f"CAST({instant} AS {kind.simpleString()})")
        case BinaryType():
            if (found := _IS_BYTES.fullmatch(text)) is None:
                raise ValueError("not a bytea")
            return F.lit(bytearray.fromhex(found[1]))
    return F.lit(text).cast(kind)


def days(text: str) -> int:
    """A date as days since 1970; the infinities are the ends of 32 bits.

    Raises:
        ValueError: it is no date.
    """
    if text in _DATE_ENDS:
        return _DATE_ENDS[text]
    if (found := _IS_DATE.fullmatch(text)) is None:
        raise ValueError("not a date")
    return _days(found[1], found[2], found[3], found[4])


def micros(text: str) -> int:
    """A timestamp as microseconds since 1970; the infinities are the ends of 64 bits.

    Raises:
        ValueError: it is no timestamp.
    """
    if text in _TIMESTAMP_ENDS:
        return _TIMESTAMP_ENDS[text]
    if (found := _IS_TIMESTAMP.fullmatch(text)) is None:
        raise ValueError("not a timestamp")
    seconds = (int(found[4]) * 60 + int(found[5])) * 60 + int(found[6])
    if found[8]:
        east = (int(found[9]) * 60 + int(found[10] or 0)) * 60 + int(found[11] or 0)
        seconds -= east if found[8] == "+" else -east
    fraction = int((found[7] or "0").ljust(6, "0"))
    return _days(found[1], found[2], found[3], found[12]) * _DAY_US + seconds * 1_000_000 + fraction


def _days(year_text: str, month_text: str, day_text: str, era: str | None) -> int:
    """Days since 1970 in the proleptic Gregorian calendar; the year before 1 is 1 BC."""
    year, month, day = int(year_text), int(month_text), int(day_text)
    # From March on, so that a leap day is the last one of its year.
    year = (1 - year if era else year) - (month < 3)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return year * 365 + year // 4 - year // 100 + year // 400 + of_year - 719_468
