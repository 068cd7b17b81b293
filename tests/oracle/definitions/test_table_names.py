"""Names of tables on the command line: PostgreSQL reads them in the same way."""

from __future__ import annotations

import psycopg
import pytest

from gateway.commands.table_names import split_name
from tests.support.backends.servers import Database

pytestmark = [pytest.mark.postgres]

NAMES = [
    "orders",
    "ORDERS",
    "Sales.Orders",
    'sales."Orders"',
    '"Sales".orders',
    ' sales . "Orders" ',
    '"a ""b"""',
    '"a.b"',
    "a.b",
    "ÄÖ",
    "äö",
    'o"rders',
    "1x",
    "sales.",
    ".orders",
    "sales..orders",
    '"orders',
    '"orders"x',
    "two words",
    "",
    " ",
]


def test_a_name_is_read_as_postgresql_reads_it(database: Database) -> None:
    tables = [
        ("public", "orders"), ("public", "Orders"), ("public", 'a "b"'), ("public", "a.b"),
        ("public", "ÄÖ"), ("public", "äö"), ("public", 'o"rders'), ("public", "1x"),
        ("sales", "orders"), ("sales", "Orders"), ("Sales", "orders"), ("a", "b"),
    ]  # fmt: skip
    with database.connect() as connection:
        for schema in sorted({schema for schema, _ in tables}):
            name = psycopg.sql.Identifier(schema)
            connection.execute(psycopg.sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
        for table in tables:
            name = psycopg.sql.Identifier(*table)
            connection.execute(psycopg.sql.SQL("CREATE TABLE {} (id int)").format(name))
        for text in NAMES:
            try:
                found = connection.execute(
                    "SELECT relnamespace::regnamespace::text, relname FROM pg_class"
                    " WHERE oid = to_regclass(%s)",
                    [text],
                ).fetchone()
                wanted = None if found is None else (found[0].strip('"'), found[1])
            except psycopg.Error:
                wanted = None

            parts = split_name(text)
            ours = parts if len(parts) == 2 else ("public", *parts)

            assert (ours if ours in tables else None) == wanted, text
