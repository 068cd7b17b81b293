"""Random filters on random rows: the server and the gateway must say the same of each.

PGSLUICE_ORACLE_SEED repeats a run, PGSLUICE_ORACLE_PAIRS (default 6000) sets its size.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from random import Random

import psycopg
import pytest

from gateway.errors import FilterError
from gateway.pgtypes.errors import EvaluationError
from gateway.rowfilter import FilterEvaluationError, compile_filter
from gateway.rowfilter.compile import reference
from gateway.rowfilter.interpret import interpret
from gateway.rowfilter.types import PARSERS
from tests.oracle.filter_generator import SPECS, Generator, columns
from tests.servers import Database

ROWS = 40
COLUMNS = columns()
NAMES = [column.name for column in COLUMNS]

pytestmark = pytest.mark.postgres


class Oracle:
    """One table on a server, and what the server says of filters on it."""

    def __init__(self, connection: psycopg.Connection[tuple[object, ...]], random: Random) -> None:
        self.connection = connection
        generator = Generator(random)
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET search_path = ''")
        listing = ", ".join(f'"{spec.name}" {spec.sql}' for spec in SPECS)
        connection.execute(f"CREATE TABLE public.f (id integer PRIMARY KEY, {listing})".encode())
        insert = f"INSERT INTO public.f VALUES ({', '.join(['%s'] * (len(SPECS) + 1))})"
        for number in range(ROWS):
            values = [generator.value(spec) for spec in SPECS]
            connection.execute(insert.encode(), [number, *values])
        cursor = connection.execute("SELECT * FROM public.f ORDER BY id")
        result = cursor.pgresult
        assert result is not None
        self.rows = [
            tuple(result.get_value(row, column + 1) for column in range(len(SPECS)))
            for row in range(ROWS)
        ]

    def canonical(self, expression: str) -> str | None:
        """The server's rendering, or None when it does not accept the filter."""
        try:
            with self.connection.transaction(force_rollback=True):
                self.connection.execute(
                    f"CREATE PUBLICATION p FOR TABLE public.f WHERE ({expression})".encode()
                )
                row = self.connection.execute(
                    "SELECT pg_get_expr(prqual, prrelid) FROM pg_publication_rel"
                ).fetchone()
        except psycopg.Error:
            return None
        assert row is not None
        return str(row[0])

    def truths(self, expression: str) -> list[bool | str | None]:
        """For each row true, false, None, or the text of the error."""
        query = f"SELECT ({expression}) FROM public.f"
        try:
            found = self.connection.execute(f"{query} ORDER BY id".encode()).fetchall()
            return [row[0] for row in found]  # type: ignore[misc]
        except psycopg.Error:
            return [self._truth(f"{query} WHERE id = {number}") for number in range(ROWS)]

    def _truth(self, query: str) -> bool | str | None:
        try:
            row = self.connection.execute(query.encode()).fetchone()
        except psycopg.Error as error:
            return error.diag.message_primary or ""
        assert row is not None
        return row[0]  # type: ignore[return-value]


def differences(oracle: Oracle, expression: str, text: str) -> Iterator[str]:
    """What the gateway says differently of the filter `text`, one line for each finding."""
    expected = oracle.truths(expression)
    try:
        filter_ = compile_filter(text, COLUMNS)
    except FilterError as error:
        # A constant part that fails does so for every row.
        if not all(isinstance(truth, str) and same(truth, str(error)) for truth in expected):
            yield f"refused: {error}"
        return
    passes = filter_.bind(NAMES)
    negated = compile_filter(f"NOT ({text})", COLUMNS).bind(NAMES)
    slow = reference(filter_.expr, NAMES)
    evaluate = interpret(filter_.expr)
    for row, truth in zip(oracle.rows, expected, strict=True):
        values = {
            column.name: None if raw is None else PARSERS[column.type_oid](raw)
            for column, raw in zip(COLUMNS, row, strict=True)
        }
        for name, function, wanted in (
            ("interpreted", lambda: evaluate(values), truth),  # noqa: B023
            ("reference", lambda: slow(row), truth is True),  # noqa: B023
            ("generated", lambda: passes(row), truth is True),  # noqa: B023
            ("negated", lambda: negated(row), truth is False),  # noqa: B023
        ):
            got = outcome(function)
            if isinstance(truth, str):
                agree = isinstance(got, str) and same(truth, got)
            else:
                agree = got is wanted
            if not agree:
                read = {n: values[n] for n in sorted(filter_.columns)}
                yield f"{name}: {got!r}, the server {truth!r}; row {read}"


def outcome(function: Callable[[], object]) -> object:
    """What `function` returns, or the text of its error."""
    try:
        return function()
    except EvaluationError as error:
        return error.message
    except FilterEvaluationError as error:
        return error.reason


def same(server: str, ours: str) -> bool:
    """The same error; ours leaves out the value where PostgreSQL quotes it."""
    if server in ours:
        return True
    return " is out of range for type " in server and server.split(" is out of ")[1] in ours


@pytest.mark.parametrize("postgres_major", [16, 18], indirect=True)
def test_the_gateway_agrees_with_the_server_on_random_filters(database: Database) -> None:
    seed = int(os.environ.get("PGSLUICE_ORACLE_SEED") or Random().randrange(2**32))
    pairs = int(os.environ.get("PGSLUICE_ORACLE_PAIRS") or 6000)
    print(f"PGSLUICE_ORACLE_SEED={seed}")
    random = Random(seed)
    generator = Generator(random)
    with database.connect() as connection:
        oracle = Oracle(connection, random)
        found, tried, compared = [], 0, 0
        while compared < pairs and tried < pairs:
            tried += 1
            expression = generator.filter()
            text = oracle.canonical(expression)
            if text is None:
                continue
            compared += ROWS
            found += [
                f"{expression}\n  as {text}\n  {line}"
                for line in list(differences(oracle, expression, text))[:1]
            ]

    assert not found, f"seed {seed}, {len(found)} filters differ:\n" + "\n".join(found[:20])
    assert compared >= pairs, f"the server accepted too few of {tried} filters"
