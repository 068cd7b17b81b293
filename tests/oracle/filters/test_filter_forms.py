"""Conditionals, rows and arrays in filters: each form beside the server's answer."""

from __future__ import annotations

from contextlib import closing

import pytest

from gateway.source.filters.evaluator import ServerEvaluator
from tests.support.backends.servers import Connection, Database
from tests.support.filters.folding import ORDER_OF_EVALUATION
from tests.support.filters.forms import ARRAYS, COLUMNS, CONDITIONALS, ROWS
from tests.support.filters.judge import Judge
from tests.support.filters.server import Table, prepare, read_table
from tests.support.run.majors import EVALUATED_ON

pytestmark = pytest.mark.postgres


def make_table(connection: Connection) -> Table:
    """The table ``public.f``, with `ROWS`."""
    prepare(connection)
    connection.execute(f"CREATE TABLE public.f ({COLUMNS})".encode())
    insert = f"INSERT INTO public.f VALUES (%s{', %s' * len(ROWS[0])})".encode()
    for number, values in enumerate(ROWS):
        connection.execute(insert, [number, *values])
    return read_table(connection, (), len(ROWS))


@pytest.mark.parametrize("postgres_major", EVALUATED_ON, indirect=True)
@pytest.mark.parametrize(
    "forms",
    [CONDITIONALS, ARRAYS, ORDER_OF_EVALUATION],
    ids=["conditionals", "arrays", "order of evaluation"],
)
def test_the_gateway_says_what_the_server_says(database: Database, forms: tuple[str, ...]) -> None:
    evaluator = ServerEvaluator(database.dsn, timeout_s=60, source_dsn=database.dsn)
    with database.connect() as connection, closing(evaluator):
        table = make_table(connection)
        judge = Judge(table, evaluator)
        answers = table.answers([f"({expression})" for expression in forms])
        renderings = table.renderings(forms)
        found = [
            f"{expression}: {line}"
            for expression, (text, refusal), answer in zip(forms, renderings, answers, strict=True)
            for line in ([refusal] if text is None else judge.truths(text, answer))
        ]

    assert not found, "\n".join(map(str, found))
