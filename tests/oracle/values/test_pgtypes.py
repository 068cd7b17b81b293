"""Values that the server prints, read here: the server says what they are in another way."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from random import Random

import psycopg
import pytest

from gateway.pgtypes.datetimes.iso import parse_date, parse_timestamp, parse_timestamptz
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.numbers import floats, numeric
from gateway.pgtypes.numbers.nan import NAN
from gateway.pgtypes.text import strings
from tests.golden import equality
from tests.support.backends.servers import Database

pytestmark = pytest.mark.postgres

Connection = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def server(database: Database) -> Iterator[Connection]:
    with database.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def texts(server: Connection, query: str) -> list[tuple[bytes | None, ...]]:
    """The rows of a query as the output functions print them."""
    result = server.execute(query.encode()).pgresult
    assert result is not None
    return [
        tuple(result.get_value(row, column) for column in range(result.nfields))
        for row in range(result.ntuples)
    ]


def test_values_are_equal_as_the_golden_pairs_say(server: Connection) -> None:
    assert equality.ask(server) == equality.read()


def test_dates_over_the_whole_range(server: Connection) -> None:
    rows = texts(
        server,
        "SELECT d, d - '2000-01-01'::date FROM (SELECT '4714-11-24 BC'::date + (i * 429493) AS d"
        " FROM generate_series(0, 4999) AS i UNION ALL SELECT '0002-01-01 BC'::date + i"
        " FROM generate_series(0, 1500) AS i) AS s",
    )

    assert [parse_date(text or b"") for text, _ in rows] == [int(days or b"") for _, days in rows]


@pytest.mark.parametrize(
    "zone", ["UTC", "Asia/Kolkata", "America/New_York", "Africa/Monrovia", "Pacific/Chatham"]
)
def test_timestamps_over_the_whole_range_in_any_zone(server: Connection, zone: str) -> None:
    server.execute(f"SET TimeZone = '{zone}'".encode())
    rows = texts(
        server,
        "SELECT z, z AT TIME ZONE 'UTC', "
        " (extract(epoch FROM z) * 1000000)::bigint - 946684800000000"
        " FROM (SELECT '4714-11-25 00:00+00 BC'::timestamptz"
        " + i * '37 days 3 hours 0.123457 seconds'::interval AS z"
        " FROM generate_series(0, 2900000, 977) AS i) AS s",
    )

    usecs = [int(value or b"") for _, _, value in rows]
    assert [parse_timestamptz(text or b"") for text, _, _ in rows] == usecs
    assert [parse_timestamp(text or b"") for _, text, _ in rows] == usecs


def test_reals_and_doubles_of_random_bits(server: Connection, seed: int) -> None:
    random = Random(seed)
    singles = [random.randbytes(4) for _ in range(3000)]
    doubles = [random.randbytes(8) for _ in range(3000)]
    rows = [
        (struct.unpack("<f", single)[0], struct.unpack("<d", double)[0])
        for single, double in zip(singles, doubles, strict=True)
    ]
    server.execute("CREATE TEMP TABLE v (r real, f double precision)")
    with server.cursor().copy("COPY v FROM STDIN (FORMAT binary)") as copy:
        copy.set_types(["float4", "float8"])
        for row in rows:
            copy.write_row(row)

    for (single, double), (r, f) in zip(rows, texts(server, "SELECT r, f FROM v"), strict=True):
        assert floats.parse_float4(r or b"") == (single if single == single else NAN)
        assert floats.parse_float8(f or b"") == (double if double == double else NAN)


NUMERICS = (
    *("0", "0.00", "1", "-1", "1.0", "3", "7.125", "-2.50", "0.1", "1e-20", "10000", "9999"),
    *("99990000", "0.0001", "0.00012345", "123456789.123", "99999999999999999999.5", "1e30"),
    *("-12345678901234567890.123456789", "1e-40", "NaN", "Infinity", "-Infinity"),
)


@pytest.mark.parametrize(
    ("operator", "operation"),
    [
        ("+", numeric.add),
        ("-", numeric.subtract),
        ("*", numeric.multiply),
        ("/", numeric.divide),
        ("%", numeric.modulo),
    ],
)
def test_numeric_arithmetic_has_the_value_and_the_scale_of_the_server(
    server: Connection,
    operator: str,
    operation: Callable[[numeric.Numeric, numeric.Numeric], numeric.Numeric],
) -> None:
    for left in NUMERICS:
        for right in NUMERICS:
            a, b = (numeric.parse_numeric(f"{Decimal(v):f}".encode()) for v in (left, right))
            try:
                [(expected,)] = texts(
                    server, f"SELECT '{left}'::numeric {operator} '{right}'::numeric"
                )
            except psycopg.Error as error:
                with pytest.raises(EvaluationError) as caught:
                    operation(a, b)
                assert caught.value.message == error.diag.message_primary
                continue
            assert shown(operation(a, b)) == (expected or b"").decode(), (left, operator, right)


def shown(value: numeric.Numeric) -> str:
    if not isinstance(value, Decimal):
        return "NaN"
    text = f"{value:f}"
    return text.removeprefix("-") if value == 0 else text


@pytest.mark.parametrize("output", ["hex", "escape"])
def test_bytea_in_both_output_formats(server: Connection, output: str) -> None:
    server.execute(f"SET bytea_output = '{output}'".encode())
    every = bytes(range(256))

    [(text,)] = texts(server, f"SELECT '\\x{every.hex()}'::bytea")

    assert strings.parse_bytea(text or b"") == every


def test_like_on_random_texts_and_patterns(server: Connection, seed: int) -> None:
    random = Random(seed)
    alphabet = "ab%_\\é"
    pairs = [
        tuple("".join(random.choices(alphabet, k=random.randint(0, 6))) for _ in range(2))
        for _ in range(3000)
    ]
    server.execute(
        "CREATE FUNCTION pg_temp.try_like(t text, p text) RETURNS text LANGUAGE plpgsql AS $$"
        " BEGIN RETURN t LIKE p; EXCEPTION WHEN others THEN RETURN sqlerrm; END $$"
    )
    for text, pattern in pairs:
        found = server.execute("SELECT pg_temp.try_like(%s, %s)", (text, pattern)).fetchone()
        try:
            mine = str(strings.match_like(text.encode(), pattern.encode())).lower()
        except EvaluationError as error:
            mine = error.message
        assert found == (mine,), (text, pattern)
