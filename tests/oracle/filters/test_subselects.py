"""Filters with sub-selects: the normalised tree gives the rows that the server's SELECT gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import pytest

from gateway.core.errors import FilterError
from gateway.definitions.model import Table, TableClause
from gateway.rowfilter import compile_filter
from gateway.rowfilter.transform import Predicate
from gateway.source.catalog.planned_filters import PlannedFilterResolver
from gateway.source.catalog.subselects import SubselectResolver
from gateway.source.catalog.tables import read_tables_by_oid
from gateway.subselects.formula import Plain
from gateway.subselects.moves.conditions import slice_condition
from gateway.subselects.text.normalise import has_subselect
from gateway.subselects.text.render import sql_of
from tests.support.backends.servers import Connection, Database
from tests.support.models.subselects import TABLES, Recounted, Row, value_of, written
from tests.support.run.majors import alternating
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
        order = (number, some(0, 1, 2, 3), some(0, 1, 2), some(0, 1, 2, 3), some("x", "EU", "a'\\"))
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
        orders = tables["orders"]
        # As a primary resolves plain parts, and as a standby does.
        planned = PlannedFilterResolver(connection, "")
        resolvers = [SubselectResolver(connection, "", way) for way in (None, planned)]
        compiled: dict[tuple[int, str], Predicate] = {}

        def passes(oid: int, plain: Plain, row: Row) -> bool:
            if (oid, plain.text) not in compiled:
                columns = by_oid[oid].columns
                names = [column.name for column in columns]
                compiled[oid, plain.text] = compile_filter(plain.text, columns).bind(names)
            return compiled[oid, plain.text](list(row.values()))

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
                clause = TableClause("public", "orders", where=where)
                formula = resolvers[number % 2].resolve(clause, orders)
            except FilterError:
                refused += 1
                continue
            state = Recounted(rows, passes)
            got = [row["id"] for row in rows[orders.oid] if state.wants(orders.oid, formula, row)]

            assert got == expected, where
            rendered = f"SELECT id FROM orders WHERE {sql_of(formula, by_oid)} ORDER BY id"
            again = [str(key).encode() for (key,) in connection.execute(rendered.encode())]
            assert again == expected, where
            if number % 10 == 0:
                find_slices(connection, rows[orders.oid])
            compared += has_subselect(where)

        assert compared > FILTERS / 3
        assert refused < FILTERS / 10, "only what is meant to be refused"
        refuse_what_the_server_knows(connection, orders)


def find_slices(connection: Connection, rows: Sequence[Row]) -> None:
    """The server finds the rows of slices by their values."""
    for columns in (("code",), ("customer",), ("city", "tenant")):
        for few in (rows[:1], rows[:4]):
            values = sorted({value_of(row, columns) for row in few}, key=str)
            if not values:
                continue
            query = f"SELECT id FROM orders WHERE {slice_condition(columns, values)} ORDER BY id"
            found = [str(key).encode() for (key,) in connection.execute(query.encode())]
            assert found == [row["id"] for row in rows if value_of(row, columns) in values]


def refuse_what_the_server_knows(connection: Connection, orders: Table) -> None:
    """The last words on what stays out are the server's; the position is that of the part."""
    role = f"reader_{connection.info.backend_pid}"
    connection.execute(
        "CREATE VIEW seen AS SELECT * FROM cities; CREATE UNLOGGED TABLE unlogged (id int);"
        "CREATE TABLE hidden (id int); ALTER TABLE hidden ENABLE ROW LEVEL SECURITY;"
        "CREATE TABLE parent (id int); CREATE TABLE child () INHERITS (parent);"
        "CREATE TABLE keyed (id int PRIMARY KEY, big bool);"
        "ALTER TABLE hidden REPLICA IDENTITY FULL; ALTER TABLE parent REPLICA IDENTITY FULL;"
        f"CREATE ROLE {role}; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role};".encode()
    )
    connection.execute(f"SET ROLE {role}".encode())
    for where, reason in (
        ("city IN (SELECT id FROM §seen)", "not a table whose changes"),
        ("city IN (SELECT id FROM §unlogged)", "not a table whose changes"),
        ("city IN (SELECT oid FROM §pg_class)", "not a table whose changes"),
        ("city IN (SELECT id FROM §nowhere.cities)", 'relation "nowhere.cities" does not exist'),
        ("city IN (SELECT id FROM §hidden)", "row-level security"),
        ("city IN (SELECT id FROM §parent)", "FROM ONLY"),
        ("city §IN (SELECT id FROM keyed WHERE big)", "column big of public.keyed is not part"),
        ("city IN (SELECT id FROM cities WHERE §size < random())", "mutable functions"),
        ("city IN (SELECT id FROM cities WHERE §country)", "boolean"),
    ):
        text = where.replace("§", "")
        clause = TableClause("public", "orders", where=text, where_position=0)
        resolver = SubselectResolver(connection, text)
        with pytest.raises(FilterError) as found:
            resolver.resolve(clause, orders)
        assert reason in str(found.value), where
        place = where.index("§") if "§IN" not in where else 0
        assert found.value.position == place, where
    only = TableClause("public", "orders", where="city IN (SELECT id FROM ONLY parent)")
    SubselectResolver(connection, "").resolve(only, orders)
    connection.execute(f"RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}".encode())
