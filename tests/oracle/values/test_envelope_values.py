"""Values that PostgreSQL prints, encoded, read back by fastavro, and compared with its own casts.

The values come from the server (`generate_series`, `random`, literals at the limits); what they
mean comes from the server, too, by way of casts and `extract`, never by way of the same text.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from itertools import product
from typing import Any

import fastavro
import psycopg
import pytest

from gateway.core.errors import ValueFormatError
from gateway.envelope.canonical import compile_canonical_key
from gateway.envelope.encoding.encoders import compile_row_encoder
from gateway.envelope.schema import TableSchema, describe
from gateway.pgtypes.datetimes.iso import parse_clock
from gateway.source.catalog.tables import describe_table
from schemas.settings.tables import Envelope, TypesTable
from schemas.types import TYPES
from tests.support.backends.servers import PostgresServer
from tests.support.run.seeds import setseed
from tests.unit.envelope.columns import NATIVE

pytestmark = [pytest.mark.postgres, pytest.mark.seeded]

Connection = psycopg.Connection[tuple[Any, ...]]

DEFAULT = TypesTable()
PLAIN = Envelope()

SESSION = """
    SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres'; SET TimeZone = 'UTC';
    SET extra_float_digits = 3; SET bytea_output = 'hex'
"""


@pytest.fixture
def server(postgres: PostgresServer) -> Iterator[Connection]:
    """A session with the gateway's settings; only temporary tables are made in it."""
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute(SESSION)
        connection.execute(setseed())
        yield connection


def schema_of(
    server: Connection,
    type_name: str,
    types: TypesTable = DEFAULT,
    envelope: Envelope = PLAIN,
) -> TableSchema:
    """Describe a table with one column of the type, from the catalog."""
    server.execute(f"CREATE TEMP TABLE probe (v {type_name})")
    row = server.execute("SELECT 'probe'::regclass::oid::int8").fetchone()
    assert row is not None
    table = describe_table(server, row[0])
    assert table is not None
    server.execute("DROP TABLE probe")
    # Arrays and records in a key are text.
    key = None if types is NATIVE else ("v",)
    return describe("public", "probe", table.columns, key, types=types, envelope=envelope)


def plain(avro: Any) -> Any:
    """A type without the logical types of times."""
    if isinstance(avro, list):
        return [plain(one) for one in avro]
    if isinstance(avro, dict) and avro["type"] == "array":
        return {**avro, "items": plain(avro["items"])}
    if isinstance(avro, dict) and avro["type"] == "record":
        return {**avro, "fields": [{**f, "type": plain(f["type"])} for f in avro["fields"]]}
    is_time = isinstance(avro, dict) and avro.get("logicalType") != "decimal"
    return avro["type"] if is_time else avro


def read_back(schema: TableSchema, text: bytes) -> Any:
    """Encode a value and let fastavro read it; the logical types of times are left off."""
    data = compile_row_encoder(schema, [0])((text,))
    avro = plain(schema.value_schema["fields"][0]["type"][1]["fields"][0]["type"][1])
    source = BytesIO(data)
    assert source.read(1) == b"\x02"
    value = fastavro.schemaless_reader(source, fastavro.parse_schema(avro), None)
    assert source.read() == b""
    return value


INT8_ENDS = "(-9223372036854775808), (9223372036854775807)"
# A day or a microsecond inside the ends that the manual gives, and around 1970 and 2000.
DATES = """('4713-01-01 BC'), ('0001-12-31 BC'), ('0001-01-01'), ('1582-10-15'), ('1969-12-31'),
    ('1970-01-01'), ('1999-12-31'), ('2000-01-01'), ('2024-02-29'), ('9999-12-31'),
    ('10000-01-01'), ('5874897-12-31')"""
TIMES = """('4713-01-01 00:00:00 BC'), ('0001-12-31 23:59:59.999999 BC'), ('0001-01-01'),
    ('1969-12-31 23:59:59.999999'), ('1970-01-01'), ('1970-01-01 00:00:00.000001'),
    ('1999-12-31 23:59:59.999999'), ('2000-01-01'), ('2024-02-29 12:34:56.7'),
    ('9999-12-31 23:59:59.999999'), ('10000-01-01'), ('294247-01-10 04:00:54.775806')"""

INTERVALS = """('0'), ('1 year 2 mons -3 days -04:05:06.7'), ('-1 year -2 mons +3 days 04:05:06.7'),
    ('-1 days +00:00:00.000001'), ('1 mon'), ('-13 mons'), ('1000:00'), ('178956970 years'),
    ('-178956970 years -7 mons -2147483648 days'), ('2562047787:59:59.999999')"""
PARTS = """CASE WHEN {0} IS NOT NULL THEN jsonb_build_object('months', (extract(year FROM {0}) * 12
    + extract(month FROM {0}))::int, 'days', extract(day FROM {0})::int, 'microseconds',
    (extract(hour FROM {0}) * 3600000000 + extract(minute FROM {0}) * 60000000
    + extract(microseconds FROM {0}))::int8) END"""


def of_range(bound: str, value: str = "v") -> str:
    """SQL of what a range is; `bound` is that of a bound, by the function that returns it."""
    return (
        f"CASE WHEN {value} IS NOT NULL THEN jsonb_build_object('lower', {bound.format('lower')},"
        f" 'upper', {bound.format('upper')}, 'lower_inclusive', lower_inc({value}),"
        f" 'upper_inclusive', upper_inc({value}), 'empty', isempty({value})) END"
    )


def ranges_of(bound: str) -> str:
    """SQL of what a multirange is: its ranges, each by `of_range`."""
    return f"(SELECT coalesce(jsonb_agg({of_range(bound, 'r')}), '[]') FROM unnest(v) AS r)"


DAYS = "{}(r) - date '1970-01-01'"
# type, rows of a VALUES list or a query, and what the value is by PostgreSQL's own account.
CASES = [
    ("boolean", "VALUES (true), (false)", "v"),
    ("int2", "SELECT (random() * 65535 - 32768)::int FROM generate_series(1, 300)", "v"),
    ("int2", "VALUES (-32768), (-1), (0), (1), (32767)", "v"),
    ("int4", "SELECT ((random() - 0.5) * 4294967294)::int8 FROM generate_series(1, 300)", "v"),
    ("int4", "VALUES (-2147483648), (-64), (63), (64), (8191), (8192), (2147483647)", "v"),
    (
        "int8",
        "SELECT ((random() - 0.5) * 2 ^ (random() * 64))::int8 FROM generate_series(1, 500)",
        "v",
    ),
    ("int8", f"VALUES {INT8_ENDS}", "v"),
    ("oid", "VALUES ('0'), ('2147483648'), ('4294967295')", "v::int8"),
    ("xid", "VALUES ('3'), ('4294967295')", "v::text::int8"),
    ("cid", "VALUES ('0'), ('4294967295')", "v::text::int8"),
    (
        "numeric(10,2)",
        "SELECT ((random() - 0.5) * 10 ^ (random() * 8))::numeric FROM generate_series(1, 300)",
        "v",
    ),
    ("numeric(10,2)", "VALUES (0), (-0.01), (1.27), (1.28), (-1.28), (-1.29), (99999999.99)", "v"),
    ("numeric(38,0)", "VALUES (repeat('9', 38)), ('-' || repeat('9', 38)), ('0')", "v"),
    ("numeric(38,38)", "VALUES ('0.' || repeat('9', 38)), ('-0.' || repeat('9', 38))", "v"),
    ("numeric(20,10)", "SELECT (random() - 0.5) * 1e9 FROM generate_series(1, 200)", "v"),
    ("numeric", "VALUES ('NaN'), ('Infinity'), ('-Infinity'), ('1.00'), ('0')", "v::text"),
    ("numeric", "VALUES (('1' || repeat('0', 131071))), ('0.' || repeat('1', 16383))", "v::text"),
    ("numeric(50,2)", "VALUES (repeat('9', 48)), ('NaN')", "v::text"),
    ("text", "VALUES (''), ('a'), (repeat('x', 63)), (repeat('x', 64)), ('it''s')", "v"),
    (
        "text",
        "SELECT string_agg(chr((128 + random() * 50000)::int), '') FROM generate_series(1, 400)"
        " GROUP BY generate_series % 20",
        "v",
    ),
    ("text", "VALUES (repeat('€', 3000)), (repeat('x', 100000)), (E'\\u6ce8\\U0001f600\\n')", "v"),
    ("varchar(10)", "VALUES (''), ('Größe'), ('ab   ')", "v"),
    ("char(5)", "VALUES ('ab'), (''), ('Größe')", "v"),
    ("name", "VALUES ('pg_class'), ('')", "v::text"),
    ('"char"', "VALUES ('a'), ('')", "v::text"),
    ("json", """VALUES ('{"a":  1.0}'), ('null')""", "v::text"),
    ("jsonb", """VALUES ('{"b":1, "a": "\\u00e9"}'), ('[]')""", "v::text"),
    ("uuid", "SELECT md5(random()::text)::uuid FROM generate_series(1, 20)", "v::text"),
    ("inet", "VALUES ('10.0.0.1'), ('10.0.0.1/8'), ('::1')", "abbrev(v)"),
    ("bytea", "VALUES (''), ('\\x00ff5c27'), ('\\x01')", "v"),
    (
        "bytea",
        "SELECT decode(string_agg(md5(random()::text), ''), 'hex') FROM generate_series(1, 300)"
        " GROUP BY generate_series % 10",
        "v",
    ),
    ("date", f"VALUES {DATES}", "v - date '1970-01-01'"),
    (
        "date",
        "SELECT date '0001-01-01' + (random() * 3000000)::int FROM generate_series(1, 300)",
        "v - date '1970-01-01'",
    ),
    ("timestamp", f"VALUES {TIMES}", "(extract(epoch FROM v) * 1000000)::int8"),
    (
        "timestamp",
        "SELECT timestamp '1900-01-01' + random() * interval '200 years'"
        " FROM generate_series(1, 300)",
        "(extract(epoch FROM v) * 1000000)::int8",
    ),
    ("timestamptz", f"VALUES {TIMES}", "(extract(epoch FROM v) * 1000000)::int8"),
    (
        "time",
        "SELECT time '00:00' + random() * interval '86399 s' FROM generate_series(1, 300)",
        "(extract(epoch FROM v) * 1000000)::int8",
    ),
    (
        "time",
        "VALUES ('00:00:00'), ('00:00:00.000001'), ('12:34:56.7'), ('23:59:59.999999')",
        "(extract(epoch FROM v) * 1000000)::int8",
    ),
    (
        "timestamptz",
        "SELECT timestamptz '1900-01-01' + random() * interval '200 years'"
        " FROM generate_series(1, 300)",
        "(extract(epoch FROM v) * 1000000)::int8",
    ),
    ("timetz", "VALUES ('12:00:00+05:30')", "v::text"),
    ("interval", f"VALUES {INTERVALS}", PARTS.format("v")),
    (
        "interval",
        "SELECT make_interval(months => (random() * 60 - 30)::int,"
        " days => (random() * 60 - 30)::int, secs => ((random() - 0.5) * 1e6)::numeric(9,2))"
        " FROM generate_series(1, 300)",
        PARTS.format("v"),
    ),
    (
        "interval[]",
        "VALUES ('{1 day,NULL,\"-1 mons +02:00:00\"}'), ('{}')",
        f"(SELECT coalesce(jsonb_agg({PARTS.format('x')}), '[]') FROM unnest(v) AS x)",
    ),
    ("int4[]", "VALUES ('{1,NULL,3}'), ('{}'), ('{-2147483648,2147483647}')", "v"),
    ("numeric(10,2)[]", "VALUES ('{1.10,NULL,-0.01}'), ('{99999999.99}')", "v"),
    ("text[]", r"""VALUES ('{"a \"b\\",NULL,"NULL","",",","{x}",é}'), (E'{"a\nb"}')""", "v"),
    (
        "text[]",
        "SELECT array_agg(chr((1 + random() * 300)::int)) FROM generate_series(1, 400)"
        " GROUP BY generate_series % 20",
        "v",
    ),
    (
        "time[]",
        "VALUES ('{00:00,12:34:56.7}'), ('{NULL}')",
        "ARRAY(SELECT (extract(epoch FROM x) * 1000000)::int8 FROM unnest(v) AS x)",
    ),
    ("numeric[]", "VALUES ('{NaN,1.00,NULL}')", "v::text[]"),
    ("box[]", "VALUES ('{(1,1),(0,0);(2,2),(1,1)}')", "v::text"),
    ("int2vector", "VALUES ('1 2 3')", "v::text"),
    ("int4range", "VALUES ('[1,5)'), ('empty'), ('(,)'), ('[,7]')", of_range("{}(v)")),
    ("int8range", f"VALUES ('[{-(2**63)},{2**63 - 1})')", of_range("{}(v)")),
    ("numrange", "VALUES ('(1.50,2]'), ('[-1e30,)'), ('(-Infinity,NaN)')", of_range("{}(v)::text")),
    (
        "daterange",
        "SELECT daterange(d, d + (random() * 99)::int) FROM generate_series(1, 99) AS g,"
        " LATERAL (SELECT date '0001-01-01' - 999 + (random() * 99999)::int + 0 * g) AS r(d)",
        of_range("{}(v) - date '1970-01-01'"),
    ),
    *(
        (
            f"{one}range",
            f"SELECT {one}range(b, b + random() * interval '1 year', '(]') FROM"
            " (SELECT timestamp '0001-01-01' + random() * interval '3000 years'"
            f" FROM generate_series(1, 99)) AS r(b)",
            of_range("(extract(epoch FROM {}(v)) * 1000000)::int8"),
        )
        for one in ("ts", "tstz")
    ),
    (
        "int4range[]",
        """VALUES ('{"[1,5)",NULL,empty}')""",
        f"(SELECT jsonb_agg({of_range('{}(x)', 'x')}) FROM unnest(v) AS x)",
    ),
    (
        "int4multirange",
        "VALUES ('{[1,5),[7,9)}'), ('{}'), ('{(,)}'), ('{[1,2]}')",
        ranges_of("{}(r)"),
    ),
    (
        "nummultirange",
        "VALUES ('{(1.50,2],[3,)}'), ('{(-Infinity,NaN)}')",
        ranges_of("{}(r)::text"),
    ),
    ("datemultirange", "VALUES ('{(,2024-01-01],(2024-02-01,2024-03-01)}')", ranges_of(DAYS)),
    *(
        (
            f"{one}multirange",
            'VALUES (\'{["2024-01-01 00:00:00.000001","2024-01-02 03:04:05"],(3000-01-01,)}\')',
            ranges_of("(extract(epoch FROM {}(r)) * 1000000)::int8"),
        )
        for one in ("ts", "tstz")
    ),
    ("int4multirange[]", "VALUES ('{\"{[1,5),[7,9)}\"}')", "v::text"),
    ("bit(3)", "VALUES (B'101')", "v::text"),
    ("money", "VALUES ('12.34')", "v::text"),
]


@pytest.mark.parametrize(
    ("type_name", "rows", "meaning"), CASES, ids=[f"{n}-{c[0]}" for n, c in enumerate(CASES)]
)
def test_a_value_means_what_postgresql_says(
    server: Connection, type_name: str, rows: str, meaning: str
) -> None:
    schema = schema_of(server, type_name, NATIVE)
    server.execute(f"CREATE TEMP TABLE given (v {type_name})")
    inner = f"INSERT INTO given SELECT v::text::{type_name} FROM ({rows}) AS r(v)"
    server.execute(inner if type_name != "bytea" else inner.replace("v::text::", "v::"))

    # format() calls the type's output function, as the walsender does; a cast may differ.
    found = server.execute(
        f"SELECT convert_to(format('%s', v), 'UTF8'), {meaning} FROM given"
    ).fetchall()

    assert found
    assert [read_back(schema, text) for text, _ in found] == [value for _, value in found]


# ISO 8601 counts a year 0, and writes years of more than four digits with their sign.
ISO = """CASE WHEN y < 0 THEN '-' WHEN y > 9999 THEN '+' ELSE '' END || lpad(abs(y)::text,
    greatest(4, length(abs(y)::text)), '0') || to_char({0}, '-MM-DD"T"HH24:MI:SS.US"Z"')
    FROM (SELECT extract(year FROM {0})::int + (extract(year FROM {0}) < 0)::int AS y) AS year"""
DEBEZIUM = [
    *(
        (name, rows.format(name), meaning)
        for name, meaning in (
            ("timestamptz", f"SELECT {ISO.format('v')}"),
            ("timestamp", "(extract(epoch FROM v) * 1000000)::int8"),
        )
        for rows in (
            f"VALUES {TIMES}",
            "SELECT {0} '1900-01-01' + random() * interval '200 years'"
            " FROM generate_series(1, 300)",
        )
    ),
    (
        "tstzrange",
        "SELECT tstzrange(b, b + random() * interval '1 year', '(]') FROM (SELECT timestamptz"
        " '0001-01-01' + random() * interval '3000 years' FROM generate_series(1, 99)) AS r(b)",
        of_range(f"(SELECT {ISO.format('{0}(v)')})"),
    ),
    ("tstzrange", "VALUES ('empty'), ('(,)')", of_range("{}(v)::text")),
    (
        "tstzmultirange",
        "VALUES ('{[2024-01-01 00:00:00.5+00,2024-01-02 03:04:05+00],(3000-01-01 00:00+00,)}')",
        ranges_of(f"(SELECT {ISO.format('{0}(r)')})"),
    ),
    ("interval", f"VALUES {INTERVALS}", PARTS.format("v")),
]


def micros(value: Any) -> Any:
    """Debezium's instants with all six digits."""
    if isinstance(value, list):
        return [micros(one) for one in value]
    if isinstance(value, dict):
        return {name: micros(part) for name, part in value.items()}
    if not isinstance(value, str):
        return value
    whole, _, fraction = value.removesuffix("Z").partition(".")
    return f"{whole}.{fraction:0<6}Z"


@pytest.mark.parametrize(
    ("type_name", "rows", "meaning"), DEBEZIUM, ids=[f"{n}-{c[0]}" for n, c in enumerate(DEBEZIUM)]
)
def test_a_value_in_debezium_s_records_means_what_postgresql_says(
    server: Connection, type_name: str, rows: str, meaning: str
) -> None:
    schema = schema_of(server, type_name, NATIVE, Envelope("debezium"))
    server.execute(f"CREATE TEMP TABLE given (v {type_name})")
    server.execute(f"INSERT INTO given SELECT r.v::text::{type_name} FROM ({rows}) AS r(v)")
    given = f"SELECT convert_to(format('%s', v), 'UTF8'), ({meaning}) FROM given"

    found = server.execute(given.encode()).fetchall()

    assert found
    assert [micros(read_back(schema, text)) for text, _ in found] == [value for _, value in found]


@pytest.mark.parametrize(
    ("type_name", "value"),
    [
        ("numeric(10,2)", "NaN"),
        ("date", "infinity"),
        ("timestamp", "294276-12-31 23:59:59.999999"),
        ("timestamptz", "294276-12-31 23:59:59.999999+00"),
        ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("time", "24:00:00"),
        ("interval", "-1 days +02:03:04"),
        ("tsrange", '["2024-01-01 00:00:00",infinity)'),
        ("int4[]", "[0:1]={1,2}"),
    ],
)
def test_a_type_that_is_carried_as_text_has_every_value(
    server: Connection, type_name: str, value: str
) -> None:
    schema = schema_of(server, type_name, TypesTable(columns={"public.probe.v": "text"}))

    found = server.execute(f"SELECT convert_to('{value}'::{type_name}::text, 'UTF8')").fetchone()

    assert found is not None
    assert read_back(schema, found[0]).encode() == found[0]


FLOATS = [
    ("float4", "float4send", "SELECT (random() - 0.5) * 10 ^ (random() * 76 - 38)"
     " FROM generate_series(1, 5000)"),
    ("float4", "float4send", "VALUES ('NaN'), ('Infinity'), ('-Infinity'), ('-0'), ('1e-45'),"
     " ('3.4028235e+38'), ('1.17549435e-38'), ('16777216'), ('0.1')"),
    ("float8", "float8send", "SELECT (random() - 0.5) * 10 ^ (random() * 600 - 300)"
     " FROM generate_series(1, 2000)"),
    ("float8", "float8send", "VALUES ('NaN'), ('Infinity'), ('-Infinity'), ('-0'), ('5e-324'),"
     " ('1.7976931348623157e+308'), ('0.1'), ('9007199254740993')"),
]  # fmt: skip


@pytest.mark.parametrize(("type_name", "send", "rows"), FLOATS)
def test_a_float_has_the_bits_that_postgresql_has(
    server: Connection, type_name: str, send: str, rows: str
) -> None:
    encode = compile_row_encoder(schema_of(server, type_name), [0])

    found = server.execute(
        f"SELECT convert_to(v::text, 'UTF8'), {send}(v)"
        f" FROM (SELECT v::text::{type_name} FROM ({rows}) AS r(v)) AS f(v)"
    ).fetchall()

    # Both are IEEE 754; PostgreSQL sends the highest byte first, Avro the lowest.
    assert [encode((text,)) for text, _ in found] == [b"\x02" + bits[::-1] for _, bits in found]


@pytest.mark.parametrize(
    ("type_name", "bits"), [("date", 31), ("timestamp", 63), ("timestamptz", 63)]
)
def test_the_infinities_are_beyond_every_finite_value(
    server: Connection, type_name: str, bits: int
) -> None:
    schema = schema_of(server, type_name)

    found = server.execute(
        f"SELECT convert_to(v::{type_name}::text, 'UTF8')"
        " FROM (VALUES ('infinity'), ('-infinity')) AS r(v)"
    ).fetchall()

    assert [read_back(schema, text) for (text,) in found] == [2**bits - 1, -(2**bits)]


@pytest.mark.parametrize(
    ("type_name", "value", "message"),
    [
        ("timestamp", "294247-01-10 04:00:54.775807", "a timestamp lies after"),
        ("timestamptz", "294247-01-10 04:00:54.775807+00", "a timestamp lies after"),
        ("time", "24:00", "24:00 cannot be carried"),
        ("time[]", "{12:00,24:00}", "24:00 cannot be carried"),
        ("int4[]", "{{1,2},{3,4}}", "more than one dimension"),
        ("int4[]", "[0:1]={1,2}", "a lower bound other than 1"),
        ("numeric(4,2)[]", "{1,NaN}", "NaN or infinity cannot be carried"),
        ("interval", "infinity", "an infinite interval has no months"),
        ("tsrange", "[294276-12-31 23:59:59,)", "a timestamp lies after"),
        ("tsmultirange", "{[294276-12-31 23:59:59,)}", "a timestamp lies after"),
    ],
)
def test_a_value_of_postgresqls_that_avro_cannot_hold_is_refused(
    server: Connection, type_name: str, value: str, message: str
) -> None:
    assert_refused(server, schema_of(server, type_name, NATIVE), type_name, value, message)


@pytest.mark.parametrize(
    ("type_name", "value"),
    [
        ("timestamptz", "294247-01-10 04:00:54.775807+00"),
        ("timestamptz", "294276-12-31 23:59:59.999999+00"),
        ("tstzrange", "[294276-12-31 23:59:59+00,)"),
        ("timestamp", "294247-01-10 04:00:54.775807"),
    ],
)
def test_debezium_s_records_have_no_instants_that_ours_have_not(
    server: Connection, type_name: str, value: str
) -> None:
    schema = schema_of(server, type_name, NATIVE, Envelope("debezium"))
    assert_refused(server, schema, type_name, value, "a timestamp lies after")


def assert_refused(
    server: Connection, schema: TableSchema, type_name: str, value: str, message: str
) -> None:
    row = server.execute(f"SELECT convert_to(('{value}'::{type_name})::text, 'UTF8')").fetchone()
    assert row is not None

    with pytest.raises(ValueFormatError, match=message):
        read_back(schema, row[0])


def test_labels_of_an_enum_are_in_the_order_of_the_enum(server: Connection) -> None:
    server.execute(
        "CREATE TYPE pg_temp.mood AS ENUM ('sad', 'ok');"
        "CREATE DOMAIN pg_temp.feeling AS pg_temp.mood"
    )
    server.execute("ALTER TYPE pg_temp.mood ADD VALUE 'a''b' BEFORE 'ok'")
    for name in ("mood", "feeling", "mood[]", "feeling[]"):
        value = schema_of(server, f"pg_temp.{name}", NATIVE).value_schema
        (field,) = value["fields"][0]["type"][1]["fields"]
        assert field["pg_labels"] == ["sad", "a'b", "ok"], name


def test_labels_that_are_too_large_for_a_schema_are_not_read(server: Connection) -> None:
    labels = ", ".join(f"'{number:063}'" for number in range(1000))
    server.execute(f"CREATE TYPE pg_temp.large AS ENUM ({labels})".encode())
    for name in ("large", "large[]"):
        value = schema_of(server, f"pg_temp.{name}", NATIVE).value_schema
        (field,) = value["fields"][0]["type"][1]["fields"]
        assert "pg_labels" not in field, name


EQUALITY = {
    "numeric": "0 0.00 1 1.0 1.00 10 100 100.0 -1.5 -1.50 NaN Infinity -Infinity 1e10 1e-10",
    "float8": "0 -0 1 NaN Infinity -Infinity 0.1 0.10 1e300 1e22",
    "float4": "0 -0 1 NaN Infinity 0.1 0.10000000149 1e30",
    "char(4)": "|a|a |a  | a|ab|A",
    "text": "|a|a | a|A|1.0|1.00|é|e\u0301",
    "varchar(9)": "|a|a |A",
    "interval": "1 day|24:00:00|1 mon|30 days|720:00:00|1 year|12 mons|360 days|0|-0:00:01|-1 sec|"
    "-1 day +24:00:00|1 mon -30 days|-1 mon|-30 days|0.5 sec|500 ms|-1 year -2 mons +3 days -4:05",
    "timestamptz": "2024-01-01 12:00+00|2024-01-01 13:00+01|2024-01-01 12:00:00.000000+00|"
    "2024-01-01 12:00:00.000001+00|infinity|-infinity|0044-03-15 12:00+00 BC|12000-01-01 00:00+00",
    "timestamp": "2024-01-01 12:00|2024-01-01 12:00:00.0|2024-01-01 12:00:01|infinity",
    "timetz": "12:00+00|13:00+01|12:00:00.0+00|24:00+00|00:00+00",
    "time": "24:00|00:00|12:00|12:00:00.00",
    "jsonb": '{"a":1.0}|{"a": 1.00}|{"a":1}|{"a":"1.0"}|{"a":"1.00"}|[1,10]|[1.0,10]|1e2|100|'
    '{"x\\"1.0":1}|{"x\\"1.00":1}',
    "inet": "10.0.0.1|10.0.0.1/32|10.0.0.1/8|::1",
    "bit varying": "1|10|01|",
    "bytea": r"\x01|\x0100|\001|",
    "uuid": "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11|a0eebc999c0b4ef8bb6d6bb9bd380a11",
}


@pytest.mark.parametrize("type_name", EQUALITY)
def test_canonical_keys_are_equal_exactly_when_the_server_says_so(
    server: Connection, type_name: str
) -> None:
    given = EQUALITY[type_name]
    values = given.split("|") if "|" in given else given.split()
    canonical = compile_canonical_key(schema_of(server, type_name), [0])

    found = server.execute(
        f"SELECT a, b, a::{type_name} = b::{type_name},"
        f" convert_to(format('%%s', a::{type_name}), 'UTF8'),"
        f" convert_to(format('%%s', b::{type_name}), 'UTF8')"
        " FROM unnest(%s::text[]) AS x(a), unnest(%s::text[]) AS y(b)",
        (values, values),
    ).fetchall()

    wrong = [
        (a, b)
        for a, b, equal, one, other in found
        if (canonical((one,)) == canonical((other,))) is not equal
    ]
    assert wrong == []
    assert len(found) == len(list(product(values, values)))


@pytest.mark.parametrize(
    ("type_name", "value"),
    [
        (
            "interval",
            "make_interval(months => (random() * 3)::int - 1, days => (random() * 90)::int - 45,"
            " hours => 24 * ((random() * 90)::int - 45))",
        ),
        ("numeric", "round((random() * 3)::numeric, 1) * (10 ^ (random() * 3)::int)::numeric"),
    ],
)
def test_canonical_keys_of_random_values_are_equal_when_the_server_says_so(
    server: Connection, type_name: str, value: str
) -> None:
    canonical = compile_canonical_key(schema_of(server, type_name), [0])

    server.execute(
        f"CREATE TEMP TABLE given AS SELECT ({value})::{type_name} AS v"
        " FROM generate_series(1, 200)"
    )
    found = server.execute(
        "SELECT convert_to(x.v::text, 'UTF8'), convert_to(y.v::text, 'UTF8'), x.v = y.v"
        " FROM given x, given y"
    ).fetchall()

    assert {equal for _, _, equal in found} == {True, False}
    assert [
        (one, other)
        for one, other, equal in found
        if (canonical((one,)) == canonical((other,))) is not equal
    ] == []


def test_the_table_of_types_has_postgresqls_names_and_oids(server: Connection) -> None:
    named = {(name, oid) for entry in TYPES for name, oid in entry.names.items()}

    found = server.execute(
        "SELECT f.name, t.oid::int8 FROM pg_type AS t, unnest(ARRAY[format_type(t.oid, NULL),"
        " format_type(t.oid, -1)]) AS f(name) WHERE t.oid < 16384"
    ).fetchall()

    assert named - set(found) == set()


@pytest.mark.parametrize(
    ("type_name", "values"),
    [
        ("time", "00:00|23:59:59.999999|24:00|12:34:56.7|00:00:00.000001"),
        ("interval", "-04:05:06.7|720:00:00|0|00:00:00.5"),
    ],
)
def test_a_clock_reads_as_the_microseconds_that_the_server_says(
    server: Connection, type_name: str, values: str
) -> None:
    found = server.execute(
        f"SELECT convert_to(v::{type_name}::text, 'UTF8'),"
        f" (extract(epoch FROM v::{type_name}) * 1000000)::int8 FROM unnest(%s::text[]) AS r(v)",
        (values.split("|"),),
    ).fetchall()

    assert [parse_clock(text) for text, _ in found] == [usecs for _, usecs in found]
