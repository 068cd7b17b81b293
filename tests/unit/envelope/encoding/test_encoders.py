"""Tuples to records: what the generated functions do with each kind of value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from io import BytesIO
from typing import Any
from uuid import UUID

import fastavro
import pytest

from gateway.core.errors import SchemaError, ValueFormatError
from gateway.definitions.model import Element
from gateway.envelope.encoding.conversions import value_encoder
from gateway.envelope.encoding.encoders import (
    EMPTY_ARRAY,
    compile_key_encoder,
    compile_old_encoder,
    compile_row_encoder,
    compile_unchanged_encoder,
)
from gateway.envelope.schema import TableSchema, describe
from gateway.pgoutput.messages import UNCHANGED, BinaryValue, ColumnValue
from schemas.settings.tables import Envelope, TypesTable
from tests.unit.envelope.columns import (
    BOOL,
    INT4,
    INT8,
    T1,
    TEXT,
    TIMESTAMPTZ,
    EnvelopeColumn,
    column,
    numeric,
)


def value_record(schema: TableSchema) -> dict[str, Any]:
    record = schema.value_schema["fields"][0]["type"][1]
    return {**record, "namespace": schema.value_schema["namespace"]}


def read(schema: dict[str, Any], data: bytes) -> Any:
    source = BytesIO(data)
    datum = fastavro.schemaless_reader(source, fastavro.parse_schema(schema), None)
    assert source.read() == b""
    return datum


DEFAULT = TypesTable()
PLAIN = Envelope()
DEBEZIUM = Envelope("debezium")
ARRAYS = TypesTable(arrays="native")
CONNECT = Envelope("debezium", connect_times=True)


def encode_one(
    column_: EnvelopeColumn,
    value: ColumnValue,
    types: TypesTable = DEFAULT,
    envelope: Envelope = PLAIN,
) -> Any:
    schema = describe("public", "t", [column_], types=types, envelope=envelope)
    data = compile_row_encoder(schema, [0])((value,))
    return read(value_record(schema), data)[schema.fields[0].name]


BYTEA = (17, "bytea")
DATE = (1082, "date")
TIMESTAMP = (1114, "timestamp without time zone")
UUID_TEXT = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"


@pytest.mark.parametrize(
    ("column_", "text", "value"),
    [
        pytest.param(column("c", BOOL), b"t", True, id="true"),
        pytest.param(column("c", BOOL), b"f", False, id="false"),
        pytest.param(column("c", INT4), b"0", 0, id="zero"),
        pytest.param(column("c", INT4), b"-2147483648", -(2**31), id="int4 min"),
        pytest.param(column("c", INT4), b"2147483647", 2**31 - 1, id="int4 max"),
        pytest.param(column("c", INT8), b"9223372036854775807", 2**63 - 1, id="int8 max"),
        pytest.param(column("c", INT8), b"-9223372036854775808", -(2**63), id="int8 min"),
        pytest.param(column("c", (26, "oid")), b"4294967295", 2**32 - 1, id="oid max"),
        pytest.param(column("c", (700, "real")), b"1.5", 1.5, id="float4"),
        pytest.param(column("c", (701, "double precision")), b"0.1", 0.1, id="float8"),
        pytest.param(
            column("c", (701, "double precision")), b"-Infinity", float("-inf"), id="-Infinity"
        ),
        pytest.param(numeric("c", 10, 2), b"-0.05", Decimal("-0.05"), id="decimal"),
        pytest.param(numeric("c", 10, 2), b"-1.28", Decimal("-1.28"), id="decimal -128"),
        pytest.param(numeric("c", 10, 2), b"1.28", Decimal("1.28"), id="decimal 128"),
        pytest.param(numeric("c", 5, 0), b"-99999", Decimal("-99999"), id="decimal scale 0"),
        pytest.param(
            numeric("c", 38, 38), b"0." + b"9" * 38, Decimal("0." + "9" * 38), id="decimal 38"
        ),
        pytest.param(column("c", (1700, "numeric")), b"1.00", "1.00", id="numeric as text"),
        pytest.param(column("c", TEXT), b"", "", id="empty text"),
        pytest.param(column("c", TEXT), "Größe €".encode(), "Größe €", id="text"),
        pytest.param(column("c", TEXT), b"x" * 8191, "x" * 8191, id="text of 8191"),
        pytest.param(column("c", TEXT), b"x" * 8192, "x" * 8192, id="text of 8192"),
        pytest.param(column("c", TEXT), b"x" * 3_000_000, "x" * 3_000_000, id="long text"),
        pytest.param(column("c", BYTEA), b"\\x", b"", id="empty bytea"),
        pytest.param(column("c", BYTEA), b"\\x00ff5c", b"\x00\xff\\", id="bytea"),
        pytest.param(column("c", DATE), b"1969-12-31", date(1969, 12, 31), id="date"),
        pytest.param(
            column("c", TIMESTAMPTZ),
            b"2024-02-29 23:59:59.999999+00",
            datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=UTC),
            id="timestamptz",
        ),
        pytest.param(
            column("c", TIMESTAMPTZ),
            b"2024-02-29 12:00:00+05:30",
            datetime(2024, 2, 29, 6, 30, tzinfo=UTC),
            id="timestamptz with offset",
        ),
        pytest.param(
            column("c", TIMESTAMP), b"1970-01-01 00:00:01", datetime(1970, 1, 1, 0, 0, 1),
            id="timestamp near 1970",
        ),
        pytest.param(
            column("c", (2950, "uuid")), UUID_TEXT.encode(), UUID(UUID_TEXT), id="uuid"
        ),
        pytest.param(
            column("c", (1186, "interval")), b"1 day 02:03:04", "1 day 02:03:04", id="interval"
        ),
        pytest.param(column("c", (1009, "text[]")), b"{a,NULL}", "{a,NULL}", id="array"),
    ],
)  # fmt: skip
def test_a_value_arrives_as_it_was_sent(
    column_: EnvelopeColumn, text: bytes, value: object
) -> None:
    assert encode_one(column_, text) == value


def plain_long(data: bytes) -> int:
    """Read the long behind a union's branch index, without its logical type."""
    assert data[:1] == b"\x02"
    number = read({"type": "long"}, data[1:])
    assert isinstance(number, int)
    return number


@pytest.mark.parametrize(
    ("kind", "text", "number"),
    [
        pytest.param(DATE, b"infinity", 2**31 - 1, id="date infinity"),
        pytest.param(DATE, b"-infinity", -(2**31), id="date -infinity"),
        # The manual, "Date/Time Types": 4713 BC to 5874897 AD, 294276 AD for timestamps.
        pytest.param(DATE, b"5874897-12-31", 2145042905, id="last date"),
        pytest.param(DATE, b"4713-01-01 BC", -2440550, id="4713 BC"),
        pytest.param(TIMESTAMP, b"infinity", 2**63 - 1, id="timestamp infinity"),
        pytest.param(TIMESTAMP, b"-infinity", -(2**63), id="timestamp -infinity"),
        pytest.param(TIMESTAMPTZ, b"infinity", 2**63 - 1, id="timestamptz infinity"),
        pytest.param(TIMESTAMPTZ, b"-infinity", -(2**63), id="timestamptz -infinity"),
        pytest.param(TIMESTAMP, b"294247-01-10 04:00:54.775806", 2**63 - 2, id="last that fits"),
    ],
)
def test_times_at_the_ends_are_integers_at_the_ends(
    kind: tuple[int, str], text: bytes, number: int
) -> None:
    schema = describe("public", "t", [column("c", kind)])

    assert plain_long(compile_row_encoder(schema, [0])((text,))) == number


@pytest.mark.parametrize("text", [b"294247-01-10 04:00:54.775807", b"294276-12-31 23:59:59.999999"])
def test_a_finite_timestamp_that_would_read_as_infinity_or_overflow_is_refused(
    text: bytes,
) -> None:
    with pytest.raises(ValueFormatError, match=r"public\.t, column c: a timestamp lies after"):
        encode_one(column("c", TIMESTAMP), text)


def test_nan_in_a_decimal_names_column_and_setting() -> None:
    with pytest.raises(ValueFormatError) as caught:
        encode_one(numeric("price", 10, 2), b"NaN")

    assert "public.t, column price" in caught.value.message
    assert caught.value.hint is not None
    assert '[types.columns] "public.t.price" = "text"' in caught.value.hint


CLOCK = (1083, "time without time zone")
NATIVE = TypesTable(time="native", interval="native", ranges="native", hstore="native")


@pytest.mark.parametrize("text", [b"00:00:00", b"12:34:56.7", b"23:59:59.999999"])
def test_a_time_of_day_is_microseconds_where_that_is_wanted(text: bytes) -> None:
    assert encode_one(column("c", CLOCK), text) == text.decode()
    assert encode_one(column("c", CLOCK), text, NATIVE) == time.fromisoformat(text.decode())


def test_the_end_of_the_day_is_carried_as_text_only() -> None:
    assert encode_one(column("c", CLOCK), b"24:00:00") == "24:00:00"
    with pytest.raises(ValueFormatError, match=r"public\.t, column c: 24:00 cannot be") as caught:
        encode_one(column("c", CLOCK), b"24:00:00", NATIVE)
    assert caught.value.hint is not None
    assert '[types.columns] "public.t.c" = "text"' in caught.value.hint


def test_a_range_is_its_bounds_where_that_is_wanted() -> None:
    days, without_end = (3912, "daterange"), (3904, "int4range")

    assert encode_one(column("c", days), b"[2024-01-01,2024-02-01)", NATIVE) == {
        "lower": date(2024, 1, 1),
        "upper": date(2024, 2, 1),
        "lower_inclusive": True,
        "upper_inclusive": False,
        "empty": False,
    }
    end = encode_one(column("c", without_end), b"(,-5]", NATIVE)
    assert (end["lower"], end["upper"], end["upper_inclusive"]) == (None, -5, True)
    empty = encode_one(column("c", without_end), b"empty", NATIVE)
    assert [*empty.values()] == [None, None, False, False, True]


def test_a_bound_that_cannot_be_carried_names_its_column() -> None:
    late = b'["294276-12-31 23:59:59",)'
    with pytest.raises(ValueFormatError, match=r"public\.t, column c: a timestamp lies after"):
        encode_one(column("c", (3908, "tsrange")), late, NATIVE)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [(b"", {}), (b'"a"=>"1", "b c"=>NULL', {"a": "1", "b c": None})],
)
def test_an_hstore_is_its_pairs_where_that_is_wanted(text: bytes, pairs: dict[str, str]) -> None:
    assert encode_one(column("c", (65_000, "public.hstore")), text, NATIVE) == pairs


INTERVAL = (1186, "interval")


def test_an_interval_is_its_parts_where_that_is_wanted() -> None:
    parts = {"months": 14, "days": -3, "microseconds": 1_500_000}

    assert encode_one(column("c", INTERVAL), b"1 year 2 mons -3 days +00:00:01.5", NATIVE) == parts


def test_an_infinite_interval_is_carried_as_text_only() -> None:
    assert encode_one(column("c", INTERVAL), b"-infinity") == "-infinity"
    with pytest.raises(
        ValueFormatError, match=r"public\.t, column c: an infinite interval"
    ) as caught:
        encode_one(column("c", INTERVAL), b"-infinity", NATIVE)
    assert caught.value.hint is not None
    assert '[types.columns] "public.t.c" = "text"' in caught.value.hint


def test_what_text_would_carry_has_a_hint_whatever_is_wrong_with_it() -> None:
    for kind, text, hinted in ((INTERVAL, b"P1D", True), (INT4, b"seven", False)):
        with pytest.raises(ValueFormatError, match="cannot be read as") as caught:
            encode_one(column("c", kind), text, NATIVE)
        assert ('"public.t.c" = "text"' in (caught.value.hint or "")) is hinted


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        (b"2024-02-29 12:34:56.789+00", "2024-02-29T12:34:56.789000Z"),
        (b"2024-02-29 12:34:56+00", "2024-02-29T12:34:56.000000Z"),
        (b"10000-01-01 00:00:00+00", "+10000-01-01T00:00:00.000000Z"),
        (b"0001-01-01 00:00:00+00", "0001-01-01T00:00:00.000000Z"),
        (b"0001-12-31 23:59:59.999999+00 BC", "0000-12-31T23:59:59.999999Z"),
        (b"0044-03-15 12:00:00+00 BC", "-0043-03-15T12:00:00.000000Z"),
        (b"4714-11-24 00:00:00+00 BC", "-4713-11-24T00:00:00.000000Z"),
        (b"infinity", "infinity"),
        (b"-infinity", "-infinity"),
    ],
)
def test_an_instant_for_debezium_s_consumers(text: bytes, iso: str) -> None:
    """Years are those of Java's ISO_LOCAL_DATE, and the fraction has the column's six digits.

    Source: Debezium's ZonedTimestamp.toIsoString and its getDateTimeFormatter, whose width is the
    column's scale (PostgresValueConverter.convertTimestampWithZone), which pgjdbc says is 6 without
    a precision; there, too, both infinities.
    """
    assert encode_one(column("c", TIMESTAMPTZ), text, envelope=DEBEZIUM) == iso


@pytest.mark.parametrize(
    ("digits", "iso"),
    [
        (0, "2024-02-29T12:34:56Z"),
        (1, "2024-02-29T12:34:56.5Z"),
        (3, "2024-02-29T12:34:56.500Z"),
        (6, "2024-02-29T12:34:56.500000Z"),
    ],
)
def test_an_instant_has_as_many_digits_as_its_column(digits: int, iso: str) -> None:
    """Source: Debezium's ZonedTimestamp.getDateTimeFormatter: none at the width 0."""
    of = column("c", TIMESTAMPTZ, modifier=digits)
    text = b"2024-02-29 12:34:56+00" if digits == 0 else b"2024-02-29 12:34:56.5+00"

    assert encode_one(of, text, envelope=DEBEZIUM) == iso
    element = Element(*TIMESTAMPTZ[:1], digits, TIMESTAMPTZ[1], "b")
    array = replace(column("c", (1185, "timestamp with time zone[]")), element=element)
    assert encode_one(array, b'{"%s"}' % text, ARRAYS, DEBEZIUM) == [iso]


def test_the_digits_of_an_instant_in_a_key_do_not_depend_on_its_precision() -> None:
    """As ALTER TYPE timestamptz(3) to timestamptz does not rewrite the rows."""
    for key in (("c",), ()):
        columns = [column("c", TIMESTAMPTZ, modifier=digits) for digits in (3, -1)]
        tables = [describe("public", "t", [c], key, envelope=DEBEZIUM) for c in columns]
        keys = {compile_key_encoder(one, [0])((b"2024-02-29 12:34:56.5+00",)) for one in tables}
        assert len(keys) == 1


@pytest.mark.parametrize(
    "text",
    [
        *(b"2024-02-29 12:34:56+01", b"02/29/2024 12:34:56+00", b"now"),
        *(b"2024-13-01 12:34:56+00", b"2024-02-30 12:34:56+00", b"2024-02-29 99:34:56+00"),
        b"0000-01-01 00:00:00+00",
    ],
)
def test_an_instant_of_another_session_is_refused(text: bytes) -> None:
    with pytest.raises(ValueFormatError, match=r"public\.t, column c"):
        encode_one(column("c", TIMESTAMPTZ), text, envelope=DEBEZIUM)


@pytest.mark.parametrize("envelope", [PLAIN, DEBEZIUM, CONNECT])
def test_the_last_instant_is_the_same_in_every_format(envelope: Envelope) -> None:
    schema = describe("public", "t", [column("c", TIMESTAMPTZ)], envelope=envelope)
    encode = compile_row_encoder(schema, [0])

    assert encode((b"294247-01-10 04:00:54.775806+00",))
    for text in (b"294247-01-10 04:00:54.775807+00", b"294276-12-31 23:59:59.999999+00"):
        with pytest.raises(ValueFormatError, match=r"column c: a timestamp lies after"):
            encode((text,))


def test_connect_s_times_have_milliseconds() -> None:
    schema = describe("public", "t", [column("c", TIMESTAMP)], envelope=CONNECT)
    encode = compile_row_encoder(schema, [0])
    clock = describe("public", "t", [column("c", CLOCK)], envelope=CONNECT)

    assert plain_long(encode((b"1970-01-01 00:00:00.001999",))) == 1
    assert plain_long(encode((b"1969-12-31 23:59:59.999001",))) == -1
    assert plain_long(compile_row_encoder(clock, [0])((b"00:00:01.0009",))) == 1_000
    for text in (b"infinity", b"-infinity"):
        with pytest.raises(ValueFormatError, match=r"public\.t, column c: infinity cannot be"):
            encode((text,))
    with pytest.raises(ValueFormatError, match=r"public\.t, column c: 24:00 cannot be"):
        compile_row_encoder(clock, [0])((b"24:00:00",))


@pytest.mark.parametrize(
    ("column_", "text"),
    [
        (column("c", INT4), b"seven"),
        (column("c", BOOL), b"yes"),
        (column("c", BYTEA), b"\\001"),
        (column("c", BYTEA), b"\\x0"),
        (column("c", DATE), b"01.02.2024"),
        (column("c", TIMESTAMPTZ), b"yesterday"),
        (column("c", (701, "double precision")), b"seven"),
        (numeric("c", 4, 2), b"123.456"),
        (numeric("c", 4, 2), b"seven"),
        (numeric("c", 4, 0), b"1.5"),
        (numeric("c", 4, 2), b"\xd9\xa7.\xd9\xa5\xd9\xa0"),
        (column("c", BOOL), b"true"),
    ],
)
def test_a_value_of_another_type_is_refused_without_being_shown(
    column_: EnvelopeColumn, text: bytes
) -> None:
    with pytest.raises(ValueFormatError, match=r"public\.t, column c: ") as caught:
        encode_one(column_, text)

    assert text.decode() not in str(caught.value)


ONE_OF_EACH = [
    column("b", BOOL),
    column("i", INT4),
    column("l", INT8),
    column("f", (700, "real")),
    column("d", (701, "double precision")),
    numeric("n", 10, 2),
    column("y", BYTEA),
    column("da", DATE),
    column("ts", TIMESTAMP),
    column("tz", TIMESTAMPTZ),
    column("u", (2950, "uuid")),
    column("t", TEXT),
]


@pytest.mark.parametrize("value", [None, UNCHANGED])
@pytest.mark.parametrize("column_", ONE_OF_EACH, ids=lambda c: c.name)
def test_null_and_unchanged_are_null_in_a_row(column_: EnvelopeColumn, value: ColumnValue) -> None:
    assert encode_one(column_, value) is None


@pytest.mark.parametrize("column_", ONE_OF_EACH, ids=lambda c: c.name)
def test_binary_format_is_refused(column_: EnvelopeColumn) -> None:
    with pytest.raises(ValueFormatError, match=r"public\.t, column .*binary format"):
        encode_one(column_, BinaryValue(b"\x00\x00\x00\x07"))


def row_of_t1(indexes: Sequence[int], row: Sequence[ColumnValue]) -> Any:
    schema = describe("public", "t1", T1, ("a", "c"))
    return read(value_record(schema), compile_row_encoder(schema, indexes)(row))


def test_columns_are_taken_from_where_the_layout_has_them() -> None:
    row = (b"NSW", b"not published", b"6", b"106")

    assert row_of_t1([2, 3, 0], row) == {"a": 6, "b": 106, "c": "NSW"}


def test_a_list_is_as_good_as_a_tuple() -> None:
    assert row_of_t1([0, 1, 2], [b"6", None, b"NSW"]) == {"a": 6, "b": None, "c": "NSW"}


def test_an_old_key_has_the_identity_and_nothing_else() -> None:
    schema = describe("public", "t1", T1, ("a", "c"))
    encode_old = compile_old_encoder(schema, [0, 1, 2], ("a", "c"))

    assert read(value_record(schema), encode_old((b"6", b"106", b"NSW"))) == {
        "a": 6,
        "b": None,
        "c": "NSW",
    }


def test_a_key_has_its_columns_in_plain_types() -> None:
    schema = describe("public", "t1", T1, ("a", "c"))
    encode_key = compile_key_encoder(schema, [2, 1, 0])

    assert schema.key_schema is not None
    assert read(schema.key_schema, encode_key((b"NSW", None, b"6"))) == {"a": 6, "c": "NSW"}


TEXTS = (
    b"t", b"-7", b"70000", b"1.5", b"-2.5", b"1.28", b"\\x01", b"2024-02-29",
    b"2024-02-29 01:02:03", b"1999-12-31 23:59:59+00", UUID_TEXT.encode(), b"x",
)  # fmt: skip


def test_a_key_of_every_type_is_read_back() -> None:
    schema = describe("public", "t", ONE_OF_EACH, tuple(c.name for c in ONE_OF_EACH))
    encode_key = compile_key_encoder(schema, range(12))

    assert schema.key_schema is not None
    assert read(schema.key_schema, encode_key(TEXTS)) == {
        "b": True,
        "i": -7,
        "l": 70000,
        "f": 1.5,
        "d": -2.5,
        "n": Decimal("1.28"),
        "y": b"\x01",
        "da": date(2024, 2, 29),
        "ts": datetime(2024, 2, 29, 1, 2, 3),
        "tz": datetime(1999, 12, 31, 23, 59, 59, tzinfo=UTC),
        "u": UUID(UUID_TEXT),
        "t": "x",
    }


@pytest.mark.parametrize(
    ("column_", "text"),
    [
        *zip(ONE_OF_EACH, TEXTS, strict=True),
        (column("b", BOOL), b"f"),
        (numeric("n", 5, 0), b"-7"),
        (numeric("n", 5, 2), b"7"),
        (numeric("n", 5, 2), b"7.5"),
        (numeric("n", 5, 2), b"7.500"),
        (column("da", DATE), b"-infinity"),
        (column("i", INT8), b"9223372036854775807"),
        (column("i", INT8), b"2199023255552"),
    ],
)
def test_the_function_of_one_value_agrees_with_the_generated_one(
    column_: EnvelopeColumn, text: bytes
) -> None:
    schema = describe("public", "t", [column_], (column_.name,))

    assert value_encoder(schema.fields[0])(text) == compile_key_encoder(schema, [0])((text,))


def test_the_whole_row_as_key_may_hold_null() -> None:
    schema = describe("public", "t1", T1, ())
    encode_key = compile_key_encoder(schema, [0, 1, 2])

    assert schema.key_schema is not None
    assert read(schema.key_schema, encode_key((b"6", None, b"NSW"))) == {
        "a": 6,
        "b": None,
        "c": "NSW",
    }


@pytest.mark.parametrize("key", [("a", "c"), ()], ids=["columns", "whole row"])
@pytest.mark.parametrize("value", [UNCHANGED, BinaryValue(b"x")])
def test_a_key_value_that_was_not_sent_or_is_binary_is_refused(
    key: tuple[str, ...], value: ColumnValue
) -> None:
    encode_key = compile_key_encoder(describe("public", "t1", T1, key), [0, 1, 2])

    with pytest.raises(ValueFormatError, match=r"public\.t1, column c: "):
        encode_key((b"6", b"1", value))


def test_null_in_a_key_of_columns_is_refused() -> None:
    encode_key = compile_key_encoder(describe("public", "t1", T1, ("a", "c")), [0, 1, 2])

    with pytest.raises(ValueFormatError, match=r"public\.t1, column a: NULL in a key"):
        encode_key((None, b"1", b"NSW"))


def test_a_table_without_a_key_has_no_key_encoder() -> None:
    with pytest.raises(SchemaError, match=r"public\.t1 has no key"):
        compile_key_encoder(describe("public", "t1", T1), [0, 1, 2])


def test_unchanged_columns_are_named_as_their_fields_are() -> None:
    schema = describe("public", "t", [column("a", INT4), column("long text", TEXT)])
    row = (UNCHANGED, b"not published", b"1")

    data = compile_unchanged_encoder(schema, [2, 0])(row)
    assert read({"type": "array", "items": "string"}, data) == ["long_x0020_text"]


def test_without_unchanged_columns_the_array_is_empty() -> None:
    schema = describe("public", "t1", T1)

    assert compile_unchanged_encoder(schema, [0, 1, 2])((b"1", None, b"")) == EMPTY_ARRAY


def test_a_table_without_columns_is_an_empty_record() -> None:
    schema = describe("public", "t", [])

    assert compile_row_encoder(schema, [])(()) == b""
