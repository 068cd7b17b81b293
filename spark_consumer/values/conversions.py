"""Conversions by name: PostgreSQL's text of a value to Spark's value, and back in SQL.

schemas/types.toml says which type has which conversion. Spark's casts do not parse all text that
PostgreSQL prints: they read the hexadecimal digits of a bytea as its bytes, ignore the BC suffix,
and have no infinite dates. Values that they misread are parsed and printed here.

Source: PostgreSQL's manual, output of date and time types (DateStyle ISO), and bytea_output hex;
EncodeDateOnly, EncodeDateTime in PostgreSQL's datetime.c.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Final

from pyspark.sql import Column as Expr
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StructField, StructType, VariantType

from schemas.array_text import array_items
from schemas.hstore_text import hstore_pairs
from schemas.interval_text import interval_parts
from schemas.range_text import multirange_ranges, range_bounds
from schemas.topic_names import topic_part
from schemas.types import TYPES, of_spark
from schemas.vector_text import sparsevec_parts, vector_items
from spark_consumer.values.variants import variant_sql, variant_text_sql

__all__ = [
    "CONVERSIONS",
    "MOST_LITERALS",
    "Conversion",
    "array_text",
    "clock_sql",
    "days",
    "is_vector",
    "literal",
    "micros",
    "printed_sql",
    "sparsevec_text",
    "vector_text",
    "zoned_sql",
]

_DATE: Final = r"(\d{4,})-(\d\d)-(\d\d)"
_CLOCK: Final = r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?"
_ZONE: Final = r"(?:([+-])(\d\d)(?::(\d\d)(?::(\d\d))?)?)?"
_ERA: Final = r"( BC)?"
_IS_DATE: Final = re.compile(_DATE + _ERA, re.ASCII)
_IS_TIMESTAMP: Final = re.compile(f"{_DATE} {_CLOCK}{_ZONE}{_ERA}", re.ASCII)
_IS_HEX: Final = re.compile(r"(?:[0-9A-F]{2})*", re.ASCII)
_IS_BYTES: Final = re.compile(r"\\x((?:[0-9a-f]{2})*)", re.ASCII)
_DATE_INFINITIES: Final = {"infinity": 2**31 - 1, "-infinity": -(2**31)}
_TIMESTAMP_INFINITIES: Final = {"infinity": 2**63 - 1, "-infinity": -(2**63)}
_OF_RANGES: Final = next(list(entry.fields) for entry in TYPES if entry.bounds)
_OF_SPARSE_VECTORS: Final = next(list(e.fields) for e in TYPES if e.conversion == "sparsevec")
_DAY_US: Final = 86_400_000_000
_HOUR_US: Final = 3_600_000_000

MOST_LITERALS: Final = 1_000
"""Number of an array's items up to which it is made an expression; each is a node of the plan."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """Both directions of a conversion.

    Attributes:
        literal: Function from PostgreSQL's text to the expression of a column's type, in a session
            whose time zone is UTC. Raises ValueError for text that PostgreSQL does not print for
            such a column.
        text: Function from a SQL expression to the SQL expression of its PostgreSQL text, in which
            the former appears several times.
    """

    literal: Callable[[str, DataType], Expr]
    text: Callable[[str], str]


def literal(text: str, field: StructField) -> Expr:
    """Return the expression of a column's type for a value that PostgreSQL printed.

    Args:
        text: Text of the value, as the gateway's sessions print it.
        field: Column; its comment is PostgreSQL's type.

    Raises:
        ValueError: PostgreSQL does not print `text` for a type that is stored this way, or it is an
            array of more than `MOST_LITERALS` items.
    """
    return _of(field).literal(text, field.dataType)


def printed_sql(value: str, field: StructField) -> str:
    """Return Spark SQL of the text that PostgreSQL prints for a column's value."""
    return _of(field).text(value)


def is_vector(field: StructField) -> bool:
    """Whether a column has the items of a vector, which prints other brackets than an array."""
    found = of_spark(field.dataType.simpleString(), field.metadata.get("comment", ""))
    return found.conversion == "vector"


def _of(field: StructField) -> Conversion:
    found = _conversion(field.dataType, field.metadata.get("comment", ""))
    if isinstance(field.dataType, VariantType):
        # The query that cannot make the value names the column.
        return replace(found, literal=partial(_variant_literal, topic_part(field.name)))
    return found


def _conversion(kind: DataType, name: str) -> Conversion:
    entry = of_spark(kind.simpleString(), name)
    if isinstance(kind, ArrayType) and _is_range(kind.elementType) and not name.endswith("[]"):
        # By the parts: `name` can be that of a domain over a multirange.
        one = _conversion(kind.elementType, "")
        return Conversion(partial(_multirange_literal, one), partial(_multirange_text, one.text))
    if isinstance(kind, ArrayType) and entry.array:
        item = _conversion(kind.elementType, name.removesuffix("[]"))
        return Conversion(partial(_array_literal, item), partial(array_text, item.text))
    if isinstance(kind, StructType) and _is_range(kind):
        bound = _conversion(kind["lower"].dataType, "")
        return Conversion(partial(_range_literal, bound), partial(_range_text, bound.text))
    if isinstance(kind, StructType) and kind.names == _OF_SPARSE_VECTORS:
        return CONVERSIONS["sparsevec"]
    return CONVERSIONS[entry.conversion]


def _is_range(kind: DataType) -> bool:
    return isinstance(kind, StructType) and kind.names == _OF_RANGES


def days(text: str) -> int:
    """Return a date as days since 1970; ±infinity map to the int32 limits.

    Raises:
        ValueError: `text` is not a date.
    """
    if text in _DATE_INFINITIES:
        return _DATE_INFINITIES[text]
    if (found := _IS_DATE.fullmatch(text)) is None:
        raise ValueError("not a date")
    return _days(found[1], found[2], found[3], found[4])


def micros(text: str) -> int:
    """Return a timestamp as microseconds since 1970; ±infinity map to the int64 limits.

    Raises:
        ValueError: `text` is not a timestamp.
    """
    if text in _TIMESTAMP_INFINITIES:
        return _TIMESTAMP_INFINITIES[text]
    if (found := _IS_TIMESTAMP.fullmatch(text)) is None:
        raise ValueError("not a timestamp")
    of_day = _clock(found[4], found[5], found[6], found[7])
    if found[8]:
        east = _clock(found[9], found[10] or "0", found[11] or "0", None)
        of_day -= east if found[8] == "+" else -east
    return _days(found[1], found[2], found[3], found[12]) * _DAY_US + of_day


def _clock(hours: str, minutes: str, seconds: str, fraction: str | None) -> int:
    """Return microseconds since midnight."""
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    return whole * 1_000_000 + int((fraction or "0").ljust(6, "0"))


def _days(year_text: str, month_text: str, day_text: str, era: str | None) -> int:
    """Return days since 1970 in the proleptic Gregorian calendar; the year before 1 is 1 BC."""
    year, month, day = int(year_text), int(month_text), int(day_text)
    # From March on, so that a leap day is the last one of its year.
    year = (1 - year if era else year) - (month < 3)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return year * 365 + year // 4 - year // 100 + year // 400 + of_year - 719_468


def _cast(text: str, kind: DataType) -> Expr:
    return F.lit(text).cast(kind)


def _date_literal(text: str, kind: DataType) -> Expr:
    return F.expr(f"date_from_unix_date(CAST('{days(text)}' AS INT))").cast(kind)


def _timestamp_literal(text: str, kind: DataType) -> Expr:
    instant = f"timestamp_micros(CAST('{micros(text)}' AS BIGINT))"
    return F.expr(f"CAST({instant} AS {kind.simpleString()})")


def _bytea_literal(text: str, kind: DataType) -> Expr:
    if (found := _IS_BYTES.fullmatch(text)) is None:
        raise ValueError("not a bytea")
    return F.lit(bytearray.fromhex(found[1])).cast(kind)


def _ewkb_literal(text: str, kind: DataType) -> Expr:
    if _IS_HEX.fullmatch(text) is None:
        raise ValueError("not the EWKB of a geometry")
    return F.lit(bytearray.fromhex(text)).cast(kind)


def _variant_literal(column: str, text: str, kind: DataType) -> Expr:
    return F.expr(variant_sql(f"CAST(X'{text.encode().hex()}' AS STRING)", column))


def _array_literal(item: Conversion, text: str, kind: DataType) -> Expr:
    assert isinstance(kind, ArrayType)
    items = [None if one is None else one.decode() for one in array_items(text.encode())]
    if len(items) > MOST_LITERALS:
        raise ValueError(f"an array of more than {MOST_LITERALS:,} items")
    made = (F.lit(None) if one is None else item.literal(one, kind.elementType) for one in items)
    return F.array(*made).cast(kind)


def _range_literal(bound: Conversion, text: str, kind: DataType) -> Expr:
    assert isinstance(kind, StructType)
    found = range_bounds(text.encode())
    lower, upper, *flags = (None, None, False, False) if found is None else found
    bounds = (
        F.lit(None) if one is None else bound.literal(one.decode(), kind["lower"].dataType)
        for one in (lower, upper)
    )
    return F.struct(*bounds, *map(F.lit, (*flags, found is None))).cast(kind)


def _multirange_literal(one: Conversion, text: str, kind: DataType) -> Expr:
    assert isinstance(kind, ArrayType)
    ranges = multirange_ranges(text.encode())
    if len(ranges) > MOST_LITERALS:
        raise ValueError(f"a multirange of more than {MOST_LITERALS:,} ranges")
    return F.array(*(one.literal(r.decode(), kind.elementType) for r in ranges)).cast(kind)


def _hstore_literal(text: str, kind: DataType) -> Expr:
    pairs = list(islice(hstore_pairs(text.encode()), MOST_LITERALS + 1))
    if len(pairs) > MOST_LITERALS:
        raise ValueError(f"an hstore of more than {MOST_LITERALS:,} pairs")
    sides = (
        [None if one is None else one.decode() for one in side] for side in zip(*pairs, strict=True)
    )
    keys, values = (
        (F.array(*map(F.lit, side)) for side in sides) if pairs else (F.array(), F.array())
    )
    return F.map_from_arrays(keys, values).cast(kind)


def _vector_literal(text: str, kind: DataType) -> Expr:
    return _numbers(vector_items(text.encode())).cast(kind)


def _sparsevec_literal(text: str, kind: DataType) -> Expr:
    dimensions, indices, values = sparsevec_parts(text.encode())
    listed = (_numbers([b"%d" % index for index in indices]), _numbers(values))
    return F.struct(F.lit(dimensions), *listed).cast(kind)


def _numbers(texts: Sequence[bytes]) -> Expr:
    """Return the expression of a list of numbers as texts: few nodes for any number of them."""
    return F.split(F.lit(b",".join(texts).decode()), ",") if texts else F.array()


def _interval_literal(text: str, kind: DataType) -> Expr:
    months, days, usecs = interval_parts(text.encode())
    parts = f"'months', {months}, 'days', {days}, 'microseconds', CAST('{usecs}' AS BIGINT)"
    return F.expr(f"named_struct({parts})").cast(kind)


def array_text(item: Callable[[str], str], value: str) -> str:
    """Return Spark SQL of an array's text; `item` returns that of the text of an item."""
    texts = f"transform({value}, one -> {item('one')})"
    return f"concat('{{', array_join(transform({texts}, one -> {_item_text('one')}), ','), '}}')"


def _item_text(text: str) -> str:
    """Return SQL of a text as PostgreSQL prints it in an array."""
    escaped = rf"""regexp_replace({text}, r'(["\\])', r'\\$1')"""
    # Not upper(): Spark's asks ICU, which takes ten times as long as all the rest.
    quotes = rf"""{text} RLIKE r'(?i)^(null)?\z|["\\{{}},\s]'"""
    return (
        f"CASE WHEN {text} IS NULL THEN 'NULL' WHEN {quotes}"
        f" THEN concat('\"', {escaped}, '\"') ELSE {text} END"
    )


def _as_string(value: str) -> str:
    return f"CAST({value} AS STRING)"


def _boolean_text(value: str) -> str:
    return f"CASE WHEN {value} THEN 't' WHEN NOT {value} THEN 'f' END"


def _bytea_text(value: str) -> str:
    return rf"concat('\\x', lower(hex({value})))"


def _ewkb_text(value: str) -> str:
    return f"hex({value})"


def _date_text(value: str) -> str:
    return _with_infinities(f"unix_date({value})", _DATE_INFINITIES, _date(value, ""))


def _timestamp_text(value: str) -> str:
    epoch = "TIMESTAMP_NTZ '1970-01-01 00:00:00'"
    return _instant_text(f"timestampdiff(MICROSECOND, {epoch}, {value})", "")


def _timestamptz_text(value: str) -> str:
    return _instant_text(f"unix_micros({value})", "+00")


def _range_text(bound: Callable[[str], str], value: str) -> str:
    """Return SQL of a range's text; `bound` returns that of the text of a bound."""
    lower, upper = (_bound_text(bound(f"{value}.{side}")) for side in ("lower", "upper"))
    return (
        f"CASE WHEN {value}.empty THEN 'empty' WHEN {value} IS NOT NULL THEN"
        f" concat(IF({value}.lower_inclusive, '[', '('), {lower}, ',', {upper},"
        f" IF({value}.upper_inclusive, ']', ')')) END"
    )


def _bound_text(text: str) -> str:
    """Return SQL of a bound in a range: of what bounds print, only blanks need quotes."""
    return f"coalesce(regexp_replace({text}, '^(.* .*)$', '\"$1\"'), '')"


def _multirange_text(range_text: Callable[[str], str], value: str) -> str:
    """Return SQL of a multirange's text; `range_text` returns that of the text of a range."""
    ranges = f"transform({value}, one -> {range_text('one')})"
    return f"concat('{{', array_join({ranges}, ','), '}}')"


def _hstore_text(value: str) -> str:
    """Return SQL of an hstore's text, whose keys are in order of their lengths, then their bytes.

    A map that was decoded from Avro has them in any order.
    """
    pairs = (
        f"array_sort(transform(map_entries({value}), one -> struct(octet_length(one.key) AS size,"
        " one.key AS key, one.value AS value)))"
    )
    shown = (
        f"concat({_quoted_text('one.key')}, '=>', coalesce({_quoted_text('one.value')}, 'NULL'))"
    )
    return f"array_join(transform({pairs}, one -> {shown}), ', ')"


def vector_text(item: Callable[[str], str], value: str) -> str:
    """Return Spark SQL of a vector's text; `item` returns that of the text of an item."""
    return f"concat('[', array_join(transform({value}, one -> {item('one')}), ','), ']')"


def sparsevec_text(item: Callable[[str], str], value: str) -> str:
    """Return Spark SQL of a sparse vector's text; `item` returns that of the text of a value."""
    pair = f"concat(one.indices, ':', {item('one.values')})"
    pairs = f"transform(arrays_zip({value}.indices, {value}.values), one -> {pair})"
    return f"concat('{{', array_join({pairs}, ','), '}}/', {value}.dimensions)"


def _quoted_text(text: str) -> str:
    return rf"""concat('"', regexp_replace({text}, r'(["\\])', r'\\$1'), '"')"""


def clock_sql(value: str) -> str:
    """Return Spark SQL of the text of a time of day, given in microseconds."""
    return f"concat(lpad({value} div {_HOUR_US}, 2, '0'), {_within_hour(value)})"


def _within_hour(value: str) -> str:
    """Return SQL of the minutes and seconds of microseconds, which are not negative."""
    seconds = f"({value} div 1000000)"
    fraction = f"rtrim('.', rtrim('0', concat('.', lpad({value} % 1000000, 6, '0'))))"
    return (
        f"':', lpad({seconds} div 60 % 60, 2, '0'), ':', lpad({seconds} % 60, 2, '0'), {fraction}"
    )


def _interval_text(value: str) -> str:
    """Return SQL of an interval's text: a part after a negative one has a sign in any case."""
    months, days, usecs = (f"{value}.{part}" for part in ("months", "days", "microseconds"))
    parts = [
        _unit_text(f"({months} div 12)", "year", "false"),
        _unit_text(f"({months} % 12)", "mon", "false"),
        _unit_text(days, "day", f"{months} < 0"),
    ]
    hours = f"abs({usecs} div {_HOUR_US})"
    before = f"IF({days} = 0, {months}, {days}) < 0"
    clock = (
        f"concat(CASE WHEN {usecs} < 0 THEN '-' WHEN {before} THEN '+' ELSE '' END,"
        f" IF({hours} > 99, CAST({hours} AS STRING), lpad({hours}, 2, '0')),"
        f" {_within_hour(f'abs({usecs} % {_HOUR_US})')})"
    )
    shown = f"{usecs} <> 0 OR ({months} = 0 AND {days} = 0)"
    return (
        f"CASE WHEN {value} IS NOT NULL THEN concat_ws(' ', {', '.join(parts)},"
        f" CASE WHEN {shown} THEN {clock} END) END"
    )


def _unit_text(number: str, unit: str, is_before: str) -> str:
    """Return SQL of a part of an interval; NULL where it is zero."""
    return (
        f"CASE WHEN {number} <> 0 THEN concat(IF({number} > 0 AND {is_before}, '+', ''),"
        f" {number}, IF({number} = 1, ' {unit}', ' {unit}s')) END"
    )


def zoned_sql(value: str) -> str:
    """Return Spark SQL of the timestamp in ISO 8601, with its zone, or of an infinite one."""
    last = _TIMESTAMP_INFINITIES["infinity"]
    return (
        f"CASE {value} WHEN 'infinity' THEN timestamp_micros({last}L) WHEN '-infinity'"
        f" THEN timestamp_micros(-{last}L - 1L) ELSE CAST({value} AS TIMESTAMP) END"
    )


def _with_infinities(number: str, infinities: Mapping[str, int], finite: str) -> str:
    # The minimum of an integer type cannot be written as a literal: its digits without the sign are
    # out of range.
    last = infinities["infinity"]
    return (
        f"CASE WHEN {number} = {last} THEN 'infinity' WHEN {number} = (-{last} - 1)"
        f" THEN '-infinity' ELSE {finite} END"
    )


def _date(date: str, time: str) -> str:
    year = f"IF(year({date}) > 0, year({date}), 1 - year({date}))"
    padded = f"IF({year} > 9999, CAST({year} AS STRING), lpad({year}, 4, '0'))"
    middle = f", {time}" if time else ""
    return (
        f"concat({padded}, '-', lpad(month({date}), 2, '0'), '-', lpad(day({date}), 2, '0')"
        f"{middle}, IF(year({date}) > 0, '', ' BC'))"
    )


def _instant_text(number: str, zone: str) -> str:
    """Return SQL of the text of microseconds since 1970, independent of the session's time zone."""
    of_day = f"pmod({number}, {_DAY_US})"
    # Not floor(a / b): that is a floating point division.
    date = f"date_from_unix_date(CAST(({number} - {of_day}) div {_DAY_US} AS INT))"
    finite = _date(date, f"' ', {clock_sql(of_day)}, '{zone}'")
    return _with_infinities(number, _TIMESTAMP_INFINITIES, finite)


CONVERSIONS: Final[Mapping[str, Conversion]] = {
    "boolean": Conversion(_cast, _boolean_text),
    "integer": Conversion(_cast, _as_string),
    "float4": Conversion(_cast, _as_string),
    "float8": Conversion(_cast, _as_string),
    "decimal": Conversion(_cast, _as_string),
    "bytea": Conversion(_bytea_literal, _bytea_text),
    "date": Conversion(_date_literal, _date_text),
    "timestamp": Conversion(_timestamp_literal, _timestamp_text),
    "timestamptz": Conversion(_timestamp_literal, _timestamptz_text),
    "time": Conversion(_cast, _as_string),
    "interval": Conversion(_interval_literal, _interval_text),
    "hstore": Conversion(_hstore_literal, _hstore_text),
    "vector": Conversion(_vector_literal, partial(vector_text, _as_string)),
    "sparsevec": Conversion(_sparsevec_literal, partial(sparsevec_text, _as_string)),
    "ewkb": Conversion(_ewkb_literal, _ewkb_text),
    "variant": Conversion(partial(_variant_literal, "value"), variant_text_sql),
    "text": Conversion(_cast, _as_string),
}
"""Conversions by name in schemas/types.toml, without those of arrays, ranges and multiranges.
Floats are an exception: Java formats them differently than the server."""
