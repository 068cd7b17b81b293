"""Each function of dates, times and intervals beside the server's, over special and random values.

PGSLUICE_ORACLE_SEED repeats a run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

import psycopg
import pytest

from gateway.pgtypes.catalog import TYPES
from gateway.pgtypes.datetime import format_date, format_timestamp, format_timestamptz
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.floats import parse_float8
from gateway.pgtypes.interval import format_interval
from gateway.pgtypes.timeofday import format_time, format_timetz
from gateway.rowfilter.builtins import datetimes, intervals, timezones
from gateway.rowfilter.expr import Operation
from gateway.rowfilter.types import PARSERS
from tests.oracle.datetime_samples import TEXTS, samples
from tests.servers import Database

pytestmark = pytest.mark.postgres

RANDOM_VALUES = 12
COMBINATIONS = 1500
DEPENDS_ON_MACHINE = ("make_interval",)  # before 17, when the seconds do not fit into 64 bits
UNKNOWN_VERSION = "the result depends on the major version of the server"


@dataclass(frozen=True, slots=True)
class Case:
    """A function: its key, how it is called with the arguments {0}, {1}, ..., and its types."""

    key: str
    sql: str
    arguments: tuple[str, ...]
    result: str


def case(key: str, sql: str, arguments: str, result: str) -> Case:
    return Case(key, sql, tuple(arguments.split()), result)


def comparisons() -> list[Case]:
    found = []
    operators = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
    for kind in ("date", "time", "timetz", "timestamp", "interval"):
        both = f"{kind} {kind}"
        for suffix, sign in operators.items():
            found.append(case(f"{kind}_{suffix}", f"{{0}} {sign} {{1}}", both, "bool"))
        found.append(case(f"{kind}_cmp", f"{kind}_cmp({{0}}, {{1}})", both, "int4"))
        found += [
            case(f"{kind}_{which}", f"{kind}_{which}({{0}}, {{1}})", both, kind)
            for which in ("larger", "smaller")
        ]
    found += [
        case("date_finite", "isfinite({0})", "date", "bool"),
        case("timestamp_finite", "isfinite({0})", "timestamp", "bool"),
        case("interval_finite", "isfinite({0})", "interval", "bool"),
    ]
    return found


DAYS = """CASE {0} WHEN 'infinity' THEN 2147483647 WHEN '-infinity' THEN -2147483648
    ELSE {0} - date '2000-01-01' END"""
"""A date as a number: before 18, dates were hashed by the function of integers."""

GROUPS: dict[str, list[Case]] = {
    "comparisons": comparisons(),
    "arithmetic": [
        case("date_pli", "{0} + {1}", "date int4", "date"),
        case("date_mii", "{0} - {1}", "date int4", "date"),
        case("integer_pl_date(int4,date)", "{0} + {1}", "int4 date", "date"),
        case("date_mi", "{0} - {1}", "date date", "int4"),
        case("date_pl_interval", "{0} + {1}", "date interval", "timestamp"),
        case("date_mi_interval", "{0} - {1}", "date interval", "timestamp"),
        case("interval_pl_date(interval,date)", "{0} + {1}", "interval date", "timestamp"),
        case("datetime_timestamp", "{0} + {1}", "date time", "timestamp"),
        case("timedate_pl(time,date)", "{0} + {1}", "time date", "timestamp"),
        case("datetimetz_timestamptz", "{0} + {1}", "date timetz", "timestamptz"),
        case("timetzdate_pl(timetz,date)", "{0} + {1}", "timetz date", "timestamptz"),
        case("timestamp_pl_interval", "{0} + {1}", "timestamp interval", "timestamp"),
        case("timestamp_mi_interval", "{0} - {1}", "timestamp interval", "timestamp"),
        case("interval_pl_timestamp(interval,timestamp)", "{0} + {1}", "interval timestamp",
             "timestamp"),
        case("timestamp_mi", "{0} - {1}", "timestamp timestamp", "interval"),
        case("timestamp_age", "age({0}, {1})", "timestamp timestamp", "interval"),
        case("time_pl_interval", "{0} + {1}", "time interval", "time"),
        case("time_mi_interval", "{0} - {1}", "time interval", "time"),
        case("interval_pl_time(interval,time)", "{0} + {1}", "interval time", "time"),
        case("timetz_pl_interval", "{0} + {1}", "timetz interval", "timetz"),
        case("timetz_mi_interval", "{0} - {1}", "timetz interval", "timetz"),
        case("interval_pl_timetz(interval,timetz)", "{0} + {1}", "interval timetz", "timetz"),
        case("time_mi_time", "{0} - {1}", "time time", "interval"),
        case("timestamp_bin", "date_bin({0}, {1}, {2})", "interval timestamp timestamp",
             "timestamp"),
    ],
    "intervals": [
        case("interval_um", "- {0}", "interval", "interval"),
        case("interval_pl", "{0} + {1}", "interval interval", "interval"),
        case("interval_mi", "{0} - {1}", "interval interval", "interval"),
        case("interval_mul", "{0} * {1}", "interval float8", "interval"),
        case("mul_d_interval", "{0} * {1}", "float8 interval", "interval"),
        case("interval_div", "{0} / {1}", "interval float8", "interval"),
        case("interval_justify_hours", "justify_hours({0})", "interval", "interval"),
        case("interval_justify_days", "justify_days({0})", "interval", "interval"),
        case("interval_justify_interval", "justify_interval({0})", "interval", "interval"),
        case("interval_scale", '"interval"({0}, {1})', "interval int4", "interval"),
        case("make_interval", "make_interval({0}, {1}, {2}, {3}, {4}, {5}, {6})",
             "int4 int4 int4 int4 int4 int4 float8", "interval"),
        case("interval_trunc", "date_trunc({0}, {1})", "unit interval", "interval"),
        case("extract_interval", "pg_catalog.extract({0}, {1})", "unit interval", "numeric"),
        case("interval_part", "date_part({0}, {1})", "unit interval", "float8"),
        case("interval_send", "interval_send({0})", "interval", "bytea"),
        case("in_range_interval_interval", "in_range({0}, {1}, {2}, {3}, {4})",
             "interval interval interval bool bool", "bool"),
    ],
    "fields": [
        case("extract_date", "pg_catalog.extract({0}, {1})", "unit date", "numeric"),
        case("extract_time", "pg_catalog.extract({0}, {1})", "unit time", "numeric"),
        case("extract_timetz", "pg_catalog.extract({0}, {1})", "unit timetz", "numeric"),
        case("extract_timestamp", "pg_catalog.extract({0}, {1})", "unit timestamp", "numeric"),
        case("date_part(text,date)", "date_part({0}, {1})", "unit date", "float8"),
        case("time_part", "date_part({0}, {1})", "unit time", "float8"),
        case("timetz_part", "date_part({0}, {1})", "unit timetz", "float8"),
        case("timestamp_part", "date_part({0}, {1})", "unit timestamp", "float8"),
        case("timestamp_trunc", "date_trunc({0}, {1})", "unit timestamp", "timestamp"),
    ],
    "casts and constructors": [
        case("date_timestamp", "{0}::timestamp", "date", "timestamp"),
        case("timestamp_date", "{0}::date", "timestamp", "date"),
        case("timestamp_time", "{0}::time", "timestamp", "time"),
        case("timetz_time", "{0}::time", "timetz", "time"),
        case("time_interval", "{0}::interval", "time", "interval"),
        case("interval_time", "{0}::time", "interval", "time"),
        case("time_scale", '"time"({0}, {1})', "time int4", "time"),
        case("timetz_scale", '"timetz"({0}, {1})', "timetz int4", "timetz"),
        case("timestamp_scale", '"timestamp"({0}, {1})', "timestamp int4", "timestamp"),
        case("make_date", "make_date({0}, {1}, {2})", "int4 int4 int4", "date"),
        case("make_time", "make_time({0}, {1}, {2})", "int4 int4 float8", "time"),
        case("make_timestamp", "make_timestamp({0}, {1}, {2}, {3}, {4}, {5})",
             "int4 int4 int4 int4 int4 float8", "timestamp"),
        case("float8_timestamptz", "to_timestamp({0})", "float8", "timestamptz"),
        case("timestamp_izone", "{1} AT TIME ZONE {0}", "interval timestamp", "timestamptz"),
        case("timestamptz_izone", "({1}::timestamptz) AT TIME ZONE {0}", "interval timestamp",
             "timestamp"),
        case("timestamptz_zone", "{1} AT TIME ZONE {0}", "zone timestamptz", "timestamp"),
        case("timestamp_zone", "{1} AT TIME ZONE {0}", "zone timestamp", "timestamptz"),
        case("timestamptz_pl_interval_at_zone", "date_add({0}, {1}, {2})",
             "timestamptz interval zone", "timestamptz"),
        case("timestamptz_mi_interval_at_zone", "date_subtract({0}, {1}, {2})",
             "timestamptz interval zone", "timestamptz"),
        case("timestamptz_trunc_zone", "date_trunc({0}, {1}, {2})", "unit timestamptz zone",
             "timestamptz"),
        case("timestamptz_bin", "date_bin({0}, {1}, {2})", "interval timestamptz timestamptz",
             "timestamptz"),
        case("timetz_izone", "{1} AT TIME ZONE {0}", "interval timetz", "timetz"),
        case("date_send", "date_send({0})", "date", "bytea"),
        case("time_send", "time_send({0})", "time", "bytea"),
        case("timetz_send", "timetz_send({0})", "timetz", "bytea"),
        case("timestamp_send", "timestamp_send({0})", "timestamp", "bytea"),
    ],
    "hashes": [
        *(
            case(f"{kind}_hash", f"{kind}_hash({{0}})", kind, "int4")
            for kind in ("time", "timetz", "timestamp", "interval")
        ),
        *(
            case(f"{kind}_hash_extended", f"{kind}_hash_extended({{0}}, {{1}})", f"{kind} int8",
                 "int8")
            for kind in ("time", "timetz", "timestamp", "interval")
        ),
        case("hashdate", f"hashint4({DAYS})", "date", "int4"),
        case("hashdateextended", f"hashint4extended({DAYS}, {{1}})", "date int8",
             "int8"),
    ],
    "periods": [
        case("overlaps_time", "({0}, {1}) OVERLAPS ({2}, {3})", "time time time time", "bool"),
        case("overlaps_timetz", "({0}, {1}) OVERLAPS ({2}, {3})", "timetz timetz timetz timetz",
             "bool"),
        case("overlaps_timestamp", "({0}, {1}) OVERLAPS ({2}, {3})",
             "timestamp timestamp timestamp timestamp", "bool"),
        *(
            case(f"overlaps({kind},{first},{kind},{second})", "({0}, {1}) OVERLAPS ({2}, {3})",
                 f"{kind} {first} {kind} {second}", "bool")
            for kind in ("time", "timestamp")
            for first, second in (("interval", "interval"), (kind, "interval"), ("interval", kind))
        ),
        case("in_range_date_interval", "in_range({0}, {1}, {2}, {3}, {4})",
             "date date interval bool bool", "bool"),
        case("in_range_time_interval", "in_range({0}, {1}, {2}, {3}, {4})",
             "time time interval bool bool", "bool"),
        case("in_range_timetz_interval", "in_range({0}, {1}, {2}, {3}, {4})",
             "timetz timetz interval bool bool", "bool"),
        case("in_range_timestamp_interval", "in_range({0}, {1}, {2}, {3}, {4})",
             "timestamp timestamp interval bool bool", "bool"),
    ],
}  # fmt: skip

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
NULLS = frozenset(case.key for case in GROUPS["periods"] if case.key.startswith("overlaps"))


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
@pytest.mark.parametrize("postgres_major", [16, 18], indirect=True)
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
