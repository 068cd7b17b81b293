"""Conditionals, rows and arrays in filters: each form beside the server's answer."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from gateway.definitions.model import Column
from gateway.errors import FilterError
from gateway.rowfilter import compile_filter
from gateway.rowfilter.compile import reference
from gateway.source.tables import read_tables_by_oid
from tests.oracle.filters.folding import ORDER_OF_EVALUATION
from tests.oracle.filters.forms import ARRAYS, COLUMNS, CONDITIONALS, ROWS
from tests.oracle.filters.judge import outcome, same
from tests.oracle.majors import MAJORS
from tests.servers import Connection, Database

pytestmark = pytest.mark.postgres


class Table:
    """The table on a server, and what the server says of filters on it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.major = connection.info.server_version // 10000
        connection.execute("SET search_path = ''")
        connection.execute(f"CREATE TABLE public.w ({COLUMNS})".encode())
        insert = f"INSERT INTO public.w VALUES (%s{', %s' * len(ROWS[0])})".encode()
        for number, values in enumerate(ROWS):
            connection.execute(insert, [number, *values])
        found = connection.execute("SELECT 'public.w'::regclass::oid::int8").fetchone()
        assert found is not None
        self.columns: tuple[Column, ...] = tuple(
            read_tables_by_oid(connection, [found[0]])[found[0]].columns
        )
        result = connection.execute("SELECT * FROM public.w ORDER BY id").pgresult
        assert result is not None
        self.rows = [
            tuple(result.get_value(row, column) for column in range(result.nfields))
            for row in range(len(ROWS))
        ]

    def rendering(self, expression: str) -> str:
        """The server's own text of a filter."""
        with self.connection.transaction(force_rollback=True):
            self.connection.execute(
                f"CREATE PUBLICATION p FOR TABLE public.w WHERE ({expression})".encode()
            )
            row = self.connection.execute(
                "SELECT pg_get_expr(prqual, prrelid) FROM pg_publication_rel"
            ).fetchone()
        assert row is not None
        return str(row[0])

    def answer(self, expression: str, number: int) -> object:
        """True, False or None, or the text of the error."""
        query = f"SELECT {expression} FROM public.w WHERE id = {number}".encode()
        try:
            row = self.connection.execute(query).fetchone()
        except psycopg.Error as error:
            return error.diag.message_primary
        assert row is not None
        return row[0]


@pytest.fixture
def table(database: Database) -> Iterator[Table]:
    with database.connect() as connection:
        yield Table(connection)


def differences(table: Table, expression: str) -> Iterator[str]:
    """What the gateway says differently of a filter, one line for each finding."""
    answers = [table.answer(f"({expression})", number) for number in range(len(ROWS))]
    text = table.rendering(expression)
    names = [column.name for column in table.columns]
    try:
        filter_ = compile_filter(text, table.columns, major=table.major)
        negated = compile_filter(f"NOT ({text})", table.columns, major=table.major).bind(names)
    except FilterError as error:
        # What fails for every row is refused at the start.
        if not all(isinstance(answer, str) and same(answer, str(error)) for answer in answers):
            yield f"{expression}: {error}"
        return
    forms = (
        ("generated", filter_.bind(names), True),
        ("interpreted", reference(filter_.expr, names), True),
        ("negated", negated, False),
    )
    for row, answer in zip(table.rows, answers, strict=True):
        for name, function, truth in forms:
            got = outcome(lambda: function(row))  # noqa: B023
            failed = isinstance(answer, str)
            if not (same(str(answer), got) if failed else got is (answer is truth)):
                yield f"{expression}: row {row[0]!r}, {name}: {got!r}, the server {answer!r}"


@pytest.mark.parametrize("postgres_major", MAJORS, indirect=True)
@pytest.mark.parametrize(
    "forms",
    [CONDITIONALS, ARRAYS, ORDER_OF_EVALUATION],
    ids=["conditionals", "arrays", "order of evaluation"],
)
def test_the_gateway_says_what_the_server_says(table: Table, forms: tuple[str, ...]) -> None:
    found = [line for expression in forms for line in differences(table, expression)]

    assert not found, "\n".join(found)
