"""Each function of dates, times and intervals beside the server's, over special and random values.

PGSLUICE_ORACLE_SEED repeats a run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any

import psycopg
import pytest

from gateway.pgoutput.decoder import Decoder
from gateway.pgoutput.messages import Insert
from gateway.pgtypes.catalog import TYPES
from gateway.pgtypes.datetime import format_date, format_timestamp, format_timestamptz
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.floats import parse_float8
from gateway.pgtypes.interval import format_interval
from gateway.pgtypes.timeofday import format_time, format_timetz
from gateway.rowfilter.builtins import datetimes, intervals, timezones
from gateway.rowfilter.expr import Operation
from gateway.rowfilter.types import PARSERS
from gateway.source.connection import connection_string
from tests.oracle.datetime_cases import GROUPS, Case
from tests.oracle.datetime_samples import TEXTS, samples
from tests.oracle.majors import MAJORS
from tests.servers import Database

pytestmark = pytest.mark.postgres

RANDOM_VALUES = 12
COMBINATIONS = 1500
DEPENDS_ON_MACHINE = ("make_interval",)  # before 17, when the seconds do not fit into 64 bits
UNKNOWN_VERSION = "the result depends on the major version of the server"


FORMATS: dict[str, Callable[[Any], str]] = {
    "bool": lambda value: "t" if value else "f",
    "int4": str,
    "int8": str,
    "numeric": lambda value: f"{value:f}" if value.is_finite() else str(value),
    "bytea": lambda value: "\\x" + value.hex(),
    "date": lambda value: format_date(value).decode(),
    "time": lambda value: format_time(value).decode(),
    "timetz": lambda value: format_timetz(value).decode(),
    "timestamp": lambda value: format_timestamp(value).decode(),
    "timestamptz": lambda value: format_timestamptz(value).decode(),
    "interval": lambda value: format_interval(value).decode(),
}
NULLS = frozenset(
    case.key
    for group in GROUPS.values()
    for case in group
    if case.key.startswith("overlaps") or case.key == "date_part(text,date)"
)
"""Functions that are called although an argument is NULL."""


def sql_type(kind: str) -> str:
    return "text" if kind in TEXTS else kind


class Server:
    """Evaluates cases over its own sample values; an error is a result like any other."""

    def __init__(self, connection: psycopg.Connection[Any], random: Random) -> None:
        self.connection, self.random = connection, random
        connection.execute("SET TimeZone = 'UTC'; SET extra_float_digits = 3")
        self.values: dict[str, list[tuple[int, Any]]] = {}

    def function(self, arguments: tuple[str, ...], body: str) -> None:
        """Make pg_temp.f: NULL, ``v`` and the text of the result, or ``e`` and the message."""
        names = ", ".join(f"a{n} {sql_type(kind)}" for n, kind in enumerate(arguments))
        self.connection.execute(
            f"""CREATE OR REPLACE FUNCTION pg_temp.f({names}) RETURNS text LANGUAGE plpgsql AS
                $$ BEGIN RETURN 'v' || ({body});
                EXCEPTION WHEN OTHERS THEN RETURN 'e' || sqlerrm; END $$""".encode()
        )

    def of(self, kind: str) -> list[tuple[int, Any]]:
        """Sample values of a type: their number in pg_temp.s_<type>, and as they are read here."""
        if kind not in self.values:
            self.connection.execute(
                f"CREATE TEMP TABLE s_{kind} (i serial, v {sql_type(kind)})".encode()
            )
            for expression in samples(kind, self.random, RANDOM_VALUES):
                with suppress(psycopg.Error):  # a version may not have it
                    self.connection.execute(
                        f"INSERT INTO s_{kind} (v) SELECT {expression}".encode()
                    )
            cursor = self.connection.execute(f"SELECT i, v FROM s_{kind}".encode())
            result, parse = cursor.pgresult, PARSERS[TYPES[sql_type(kind)][0]]
            assert result is not None
            self.values[kind] = [
                (int(result.get_value(row, 0) or 0), parse(result.get_value(row, 1) or b""))
                for row in range(result.ntuples)
            ]
        return self.values[kind]

    def answers(self, case: Case) -> Iterator[tuple[tuple[Any, ...], str | None]]:
        """Argument values, and what the server makes of them."""
        places = range(len(case.arguments))
        self.function(case.arguments, f"({case.sql.format(*(f'a{n}' for n in places))})::text")
        combinations = self.combinations(case)
        columns = [list(column) for column in zip(*combinations, strict=True)]
        numbers = [[None if item is None else item[0] for item in column] for column in columns]
        joins = "".join(
            f" LEFT JOIN s_{kind} AS s{n} ON s{n}.i = u.i{n}"
            for n, kind in enumerate(case.arguments)
        )
        query = f"""SELECT pg_temp.f({", ".join(f"s{n}.v" for n in places)})
            FROM unnest({", ".join("%s::int[]" for _ in places)}) WITH ORDINALITY
                AS u({", ".join(f"i{n}" for n in places)}, place){joins} ORDER BY place"""
        rows = self.connection.execute(query.encode(), numbers).fetchall()
        for items, (answer,) in zip(combinations, rows, strict=True):
            yield tuple(None if item is None else item[1] for item in items), answer

    def combinations(self, case: Case) -> list[tuple[Any, ...]]:
        """All pairs of arguments; of more, some."""
        values: list[list[Any]] = [list(self.of(kind)) for kind in case.arguments]
        if case.key in NULLS:
            values = [[*column, None, None, None] for column in values]
        if len(values) == 1:
            return [(item,) for item in values[0]]
        if len(values) == 2:
            return [(first, second) for first in values[0] for second in values[1]]
        return [tuple(self.random.choice(column) for column in values) for _ in range(COMBINATIONS)]


def outcome(operation: Operation, arguments: tuple[Any, ...], result: str) -> str | None:
    """What the operation makes of the arguments, as `Server.function` says it."""
    function, rest = operation.function, arguments
    if operation.prepare is not None:
        prepared = operation.prepare({0: arguments[0]})
        assert prepared is not None
        function, rest = prepared, arguments[1:]
    try:
        value = function(*rest)
    except EvaluationError as error:
        return "e" + error.message
    assert value is not None or operation.nullable
    if value is None:
        return None
    if result == "float8":
        return f"v{value!r}"
    return "v" + FORMATS[result](value)


def expected(answer: str | None, result: str) -> str | None:
    """The server's answer, floats as Python shows them, messages without values."""
    if answer is None:
        return None
    if answer[0] == "v":
        return f"v{parse_float8(answer[1:].encode())!r}" if result == "float8" else answer
    message = re.sub(r'( "[^"]*")|\(-?\d+\)', "", answer)
    return re.sub(r":( [-\d].*| \".*)?$", "", message, flags=re.DOTALL)


def agree(ours: str | None, server: str | None, result: str) -> bool:
    if result == "bool" and server in ("vtrue", "vfalse"):
        server = server[:2]
    return ours == server


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("postgres_major", MAJORS, indirect=True)
def test_functions_give_what_the_server_gives(
    database: Database, postgres_major: int, group: str
) -> None:
    seed = int(os.environ.get("PGSLUICE_ORACLE_SEED") or Random().randrange(2**32))
    print(f"PGSLUICE_ORACLE_SEED={seed}")
    ours = {
        operation.name: operation
        for operation in (
            *datetimes.OPERATIONS,
            *intervals.operations(postgres_major),
            *timezones.operations(postgres_major),
        )
    }
    of_any_version = {
        operation.name: operation for operation in (*intervals.OPERATIONS, *timezones.OPERATIONS)
    }
    found, compared = [], 0
    with database.connect() as connection:
        server = Server(connection, Random(seed))
        for case in GROUPS[group]:
            for arguments, answer in server.answers(case):
                compared += 1
                wanted = expected(answer, case.result)
                got = outcome(ours[case.key], arguments, case.result)
                if got == "e" + UNKNOWN_VERSION and case.key in DEPENDS_ON_MACHINE:
                    continue
                if not agree(got, wanted, case.result):
                    found.append(f"{case.key}{arguments}: {got}, the server {wanted}")
                if case.key in of_any_version:
                    any_version = outcome(of_any_version[case.key], arguments, case.result)
                    if any_version not in (got, "e" + UNKNOWN_VERSION):
                        found.append(f"{case.key}{arguments} of any version: {any_version}")

    assert compared
    assert not found, f"{len(found)} of {compared} differ:\n" + "\n".join(found[:40])


@pytest.mark.parametrize("postgres_major", MAJORS, indirect=True)
def test_values_in_the_stream_are_read_whatever_the_database_is_set_to(database: Database) -> None:
    kinds = ("date", "time", "timetz", "timestamp", "timestamptz", "interval")
    with database.connect() as connection:
        for setting in ("IntervalStyle = 'iso_8601'", "DateStyle = 'German'", "TimeZone = 'Iran'"):
            connection.execute(f"ALTER DATABASE {database.name} SET {setting}".encode())
        server = Server(connection, Random(5))
        connection.execute(
            "CREATE TABLE stream (kind text, date date, time time, timetz timetz,"
            " timestamp timestamp, timestamptz timestamptz, interval interval);"
            "CREATE PUBLICATION p FOR TABLE stream"
        )
        connection.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
        for kind in kinds:
            server.of(kind)
            connection.execute(
                f"INSERT INTO stream (kind, {kind}) SELECT '{kind}', v FROM s_{kind}".encode()
            )
    with psycopg.connect(connection_string(database.dsn, application_name="t")) as settled:
        changes = settled.execute(
            "SELECT data FROM pg_logical_slot_get_binary_changes('s', NULL, NULL,"
            " 'proto_version', '1', 'publication_names', 'p')"
        ).fetchall()
        settled.execute("SELECT pg_drop_replication_slot('s')")

    decoder = Decoder()
    messages = [decoder.decode(data) for (data,) in changes]
    read = 0
    for message in messages:
        if not isinstance(message, Insert):
            continue
        name, *values = message.new
        assert isinstance(name, bytes)
        text = values[kinds.index(name.decode())]
        assert isinstance(text, bytes)
        value = PARSERS[TYPES[name.decode()][0]](text)
        assert FORMATS[name.decode()](value).encode() == text
        read += 1
    assert read == sum(len(server.of(kind)) for kind in kinds)
