"""Filters with sub-selects: the normalised tree gives the rows that the server's SELECT gives."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import psycopg
import pytest

from gateway.core.errors import FilterError
from gateway.definitions.model import Table, TableClause
from gateway.rowfilter import compile_filter
from gateway.rowfilter.transform import Predicate
from gateway.source.catalog.filter_text import FilterResolver
from gateway.source.catalog.tables import read_tables_by_oid
from gateway.subselects.formula import Plain, resolved
from gateway.subselects.text.normalise import has_subselect, normalise
from gateway.subselects.text.scope import InnerTable
from tests.support.backends.majors import alternating
from tests.support.backends.servers import Connection, Database
from tests.support.models.subselects import TABLES, Recounted, Row, written
from tests.support.run.seeds import SEED

pytestmark = pytest.mark.postgres
FILTERS = 250


def fill(connection: Connection, random: Random) -> None:
    """Few values, so that most tests have members, and NULLs."""

    def some(*values: object) -> object:
        return None if random.random() < 0.15 else random.choice(values)

    for _ in range(random.randint(0, 5)):
        values = (some(0, 1, 2, 3), some("EU", "x", "a"), some(0, 1, 2))
        connection.execute("INSERT INTO cities VALUES (%s, %s, %s)", values)
    for _ in range(random.randint(0, 7)):
        customer = (some(0, 1, 2, 3), some(0, 1, 2), some(0, 1, 2), some("a", "EU", "b\n"))
        connection.execute("INSERT INTO customers VALUES (%s, %s, %s, %s)", customer)
    for number in range(random.randint(0, 12)):
        order = (number, some(0, 1, 2, 3), some(0, 1, 2), some(0, 1, 2, 3), some("x", "EU", "a"))
        connection.execute("INSERT INTO orders VALUES (%s, %s, %s, %s, %s)", order)


def read_rows(connection: Connection, tables: Mapping[str, Table]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for name, table in tables.items():
        result = connection.execute(f"SELECT * FROM {name}".encode()).pgresult
        assert result is not None
        found[table.oid] = [
            {c.name: result.get_value(row, column) for column, c in enumerate(table.columns)}
            for row in range(result.ntuples)
        ]
    return found


@alternating(__name__, 16, 18)
def test_a_normalised_filter_says_what_the_server_says(database: Database) -> None:
    random = Random(SEED)
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        oids = connection.execute(
            "SELECT oid FROM pg_class WHERE relname IN ('cities', 'customers', 'orders')"
            " AND relkind = 'r'"
        ).fetchall()
        by_oid = read_tables_by_oid(connection, [oid for (oid,) in oids])
        tables = {table.name: table for table in by_oid.values()}
        resolver = FilterResolver(connection, "")
        compiled: dict[tuple[int, Plain], Predicate] = {}

        def resolve(oid: int, plain: Plain) -> str:
            table = by_oid[oid]
            clause = TableClause(table.schema, table.name, where=plain.text)
            text = resolver.resolve(clause, table)
            names = [column.name for column in table.columns]
            compiled[oid, Plain(text)] = compile_filter(text, table.columns).bind(names)
            return text

        def passes(oid: int, plain: Plain, row: Row) -> bool:
            return compiled[oid, plain](list(row.values()))

        def lookup(schema: str | None, name: str) -> InnerTable:
            assert schema in (None, "public")
            return InnerTable(tables[name])

        compared = refused = 0
        for number in range(FILTERS):
            if number % 10 == 0:
                connection.execute("TRUNCATE cities, customers, orders")
                fill(connection, random)
                rows = read_rows(connection, tables)
            where = written(random)
            query = f"SELECT id FROM orders WHERE ({where}) ORDER BY id"
            expected = [str(key).encode() for (key,) in connection.execute(query.encode())]
            try:
                formula = normalise(where, tables["orders"], lookup)
            except FilterError:
                refused += 1
                continue
            oid = tables["orders"].oid
            formula = resolved(formula, oid, resolve)
            state = Recounted(rows, passes)
            got = [row["id"] for row in rows[oid] if state.wants(oid, formula, row)]

            assert got == expected, where
            compared += has_subselect(where)

        assert compared > FILTERS / 3
        assert refused < FILTERS / 10, "only what is meant to be refused"
        # The last words on what stays out are the server's, as for any filter.
        with pytest.raises((FilterError, psycopg.Error), match="mutable functions are not allowed"):
            now = "customer IN (SELECT id FROM customers WHERE random() < 0.5)"
            resolved(normalise(now, tables["orders"], lookup), tables["orders"].oid, resolve)
