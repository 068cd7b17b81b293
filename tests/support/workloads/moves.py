"""Random transactions over cities, customers and orders, and what the tables held at any LSN.

Triggers write each change with its transaction into a log of their own; a slot that nobody but the
test reads says where each transaction ended. From both, PostgreSQL makes the rows that a query
would have seen at an LSN: views of the tables' names.

A load has a schema of its own, so that one gateway can carry several side by side. Some have a
partitioned table of customers, of which a partition goes and comes back: that is exact at every
position where the event triggers are installed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from threading import Event
from typing import Any

import psycopg

from tests.support.backends.servers import Database
from tests.support.gateway.scene import Connection

__all__ = ["FILTERS", "MoveLoad", "Past"]

TABLES = """
CREATE TABLE cities (id int PRIMARY KEY, country text);
CREATE TABLE orders (id int PRIMARY KEY, customer int, n int, document text);
ALTER TABLE orders ALTER document SET STORAGE EXTERNAL;
ALTER TABLE cities REPLICA IDENTITY FULL;
"""
_CUSTOMERS = "CREATE TABLE customers (id int PRIMARY KEY, city int, tier int)"
_TREE = f"""
{_CUSTOMERS} PARTITION BY RANGE (id);
CREATE TABLE low PARTITION OF customers FOR VALUES FROM (0) TO (8);
CREATE TABLE rest PARTITION OF customers FOR VALUES FROM (8) TO (100) PARTITION BY RANGE (id);
CREATE TABLE middle (gone int, tier int, id int NOT NULL, city int);
ALTER TABLE middle DROP gone;
ALTER TABLE rest ATTACH PARTITION middle FOR VALUES FROM (8) TO (16);
CREATE TABLE high PARTITION OF rest FOR VALUES FROM (16) TO (100);
"""
_LEAVES = ("low", "middle", "high")
_IDENTITIES = (
    # An UPDATE that leaves the large value of an order alone does not log it.
    "CREATE UNIQUE INDEX orders_key ON orders (id, customer, n);"
    "ALTER TABLE orders ALTER customer SET NOT NULL, ALTER n SET NOT NULL;"
    "ALTER TABLE orders REPLICA IDENTITY USING INDEX orders_key;",
    "ALTER TABLE orders REPLICA IDENTITY FULL;",
)

FILTERS = {
    "in": "customer IN (SELECT id FROM {schema}.customers WHERE city IN"
    " (SELECT id FROM {schema}.cities WHERE country = 'FR'))",
    "not_in": "n > 2 AND customer NOT IN (SELECT id FROM {schema}.customers WHERE tier = 1)",
    "exists": "EXISTS (SELECT FROM {schema}.customers c WHERE c.id = orders.customer"
    " AND c.tier > 1) OR n = 7",
}
"""Row filters, by the end of the subscription's name; the tables are those of a schema."""

_LOG = """
CREATE SCHEMA {past};
CREATE TABLE {past}.log (nr bigserial PRIMARY KEY, xid xid NOT NULL, tab text NOT NULL,
    id int NOT NULL, row jsonb);
CREATE FUNCTION {past}.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO {past}.log (xid, tab, id, row)
        VALUES (pg_current_xact_id()::xid, TG_ARGV[0], OLD.id, NULL);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO {past}.log (xid, tab, id, row)
        VALUES (pg_current_xact_id()::xid, TG_ARGV[0], NEW.id, to_jsonb(NEW));
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION {past}.note_truncate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('INSERT INTO {past}.log (xid, tab, id) SELECT pg_current_xact_id()::xid, %L, id'
        ' FROM %I.%I', TG_ARGV[0], TG_TABLE_SCHEMA, TG_TABLE_NAME);
    RETURN NULL;
END $$;
CREATE PUBLICATION {past} FOR TABLE {past}.log;
"""
_TRIGGER = """
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON {table}
    FOR EACH ROW EXECUTE FUNCTION {past}.note('{table}');
"""
_TRUNCATE_TRIGGER = """
CREATE TRIGGER note_truncate BEFORE TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION {past}.note_truncate('{named}');
"""
_DETACH = (
    "ALTER TABLE rest DETACH PARTITION middle",
    "INSERT INTO past_{schema}.log (xid, tab, id)"
    " SELECT pg_current_xact_id()::xid, 'customers', id FROM middle",
)
_ATTACH = (
    "ALTER TABLE rest ATTACH PARTITION middle FOR VALUES FROM (8) TO (16)",
    "INSERT INTO past_{schema}.log (xid, tab, id, row)"
    " SELECT pg_current_xact_id()::xid, 'customers', id, to_jsonb(middle) FROM middle",
)
"""Statements of one transaction each."""
_ENDS = """
CREATE TABLE {past}.ends AS
SELECT xid, lsn AS end_lsn FROM pg_logical_slot_get_binary_changes(
    '{past}_{database}', NULL, NULL, 'proto_version', '1', 'publication_names', '{past}')
WHERE get_byte(data, 0) = ascii('C')
"""
"""The row of a Commit has the end of the transaction."""
_VERSIONS = """
CREATE TABLE {past}.versions AS
SELECT tab, row, end_lsn AS since,
    lead(end_lsn) OVER (PARTITION BY tab, id ORDER BY end_lsn, nr) AS until
FROM {past}.log JOIN {past}.ends USING (xid)
"""
_VIEW = """
CREATE VIEW {past}.{table} AS
SELECT r.* FROM {past}.versions v, jsonb_populate_record(NULL::{schema}.{table}, v.row) AS r
WHERE v.tab = '{table}' AND v.row IS NOT NULL AND v.since <= current_setting('past.lsn')::pg_lsn
    AND (v.until IS NULL OR v.until > current_setting('past.lsn')::pg_lsn)
"""
_NAMES = ("cities", "customers", "orders")
_EXPECTED = (
    psycopg.errors.UniqueViolation,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.CheckViolation,  # a customer without a partition
    psycopg.errors.UndefinedTable,  # a partition that is there no more
    psycopg.errors.WrongObjectType,  # one that is there already
)


class MoveLoad:
    """Few cities, some customers, more orders; the same seed runs the same statements.

    Attributes:
        database: Database that it changes.
        schema: Schema of the tables.
        is_tree: Whether the customers are partitioned.
        transactions: Number of transactions that were committed.
        tried: The same, with those that were rolled back.
    """

    def __init__(self, database: Database, schema: str, seed: int, orders: int = 150) -> None:
        self.database = database
        self.schema = schema
        self._seed = seed
        self._orders = orders
        self.is_tree = seed // 2 % 2 == 0
        self.transactions = 0
        self.tried = 0
        self._picks: dict[int, random.Random] = {}

    def create(self, connection: Connection) -> None:
        """Make the tables, the log and the slot that sees all transactions on them; fill them."""
        past = f"past_{self.schema}"
        connection.execute(
            f"CREATE SCHEMA {self.schema}; SET search_path = {self.schema};"
            f"{TABLES}{_TREE if self.is_tree else f'{_CUSTOMERS};'}"
            f"{_IDENTITIES[self._seed % 2]}{_LOG.format(past=past)}".encode()
        )
        for table in _LEAVES if self.is_tree else ("customers",):
            connection.execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL".encode())
        for table in _NAMES:
            connection.execute(_TRIGGER.format(past=past, table=table).encode())
            leaves = _LEAVES if self.is_tree and table == "customers" else (table,)
            for leaf in leaves:
                made = _TRUNCATE_TRIGGER.format(past=past, table=leaf, named=table)
                connection.execute(made.encode())
        made = "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')"
        connection.execute(made, [f"{past}_{self.database.name}"])
        pick = random.Random(self._seed)
        for number in range(6):
            country = pick.choice(("FR", "US", None))
            connection.execute("INSERT INTO cities VALUES (%s, %s)", [number, country])
        connection.execute(
            "INSERT INTO customers SELECT n, n % 6, n % 4 FROM generate_series(0, 23) AS n"
        )
        connection.execute(
            "INSERT INTO orders SELECT n, n %% 26, n %% 9, repeat(md5(n::text), 70)"
            " FROM generate_series(1, %s) AS n",
            [self._orders],
        )

    def change(self, worker: int, most: int, stop: Event) -> None:
        """Run `most` transactions, or fewer if asked to stop."""
        pick = self._picks.setdefault(worker, random.Random(self._seed * 100 + worker))
        with self.database.connect() as connection:
            connection.execute(f"SET search_path = {self.schema}".encode())
            for _ in range(most):
                if stop.wait(0.03):  # so that commits of the gateway have few of them each
                    break
                try:
                    with connection.transaction():
                        if self.is_tree and pick.random() < 0.003:
                            for text in pick.choice((_DETACH, _ATTACH)):
                                connection.execute(text.format(schema=self.schema).encode())
                        for _ in range(pick.choice((1, 1, 2, 3, 5))):
                            self._statement(connection, pick)
                    self.transactions += 1
                except _EXPECTED:
                    pass  # rolled back as a whole: that is part of the workload
                self.tried += 1

    def _statement(self, connection: Connection, pick: random.Random) -> None:
        order, customer = pick.randint(1, self._orders), pick.randrange(26)
        values: dict[str, Any] = {
            "order": order,
            "customer": customer,
            "city": pick.randrange(6),
            "country": pick.choice(("FR", "US", None)),
            "tier": pick.choice((0, 1, 1, 2, 3, None)),
            "other": pick.choice((*range(26), 99)),
            "n": pick.randrange(9),
            "free": pick.randint(1, 2 * self._orders),
        }
        found: Sequence[str] = _STATEMENTS
        if pick.random() < 0.003:
            found = _RARE
        elif self.is_tree and pick.random() < 0.004:
            found = _OF_PARTITIONS
        connection.execute(pick.choice(found).encode(), values)


_STATEMENTS = (
    "UPDATE cities SET country = %(country)s WHERE id = %(city)s",
    "UPDATE customers SET tier = %(tier)s WHERE id = %(customer)s",
    "UPDATE customers SET tier = %(tier)s WHERE city = %(city)s",
    "UPDATE customers SET city = %(city)s WHERE id = %(customer)s",
    "DELETE FROM customers WHERE id = %(customer)s",
    "INSERT INTO customers VALUES (%(customer)s, %(city)s, %(tier)s) ON CONFLICT (id) DO NOTHING",
    "UPDATE orders SET n = %(n)s WHERE id = %(order)s",
    "UPDATE orders SET n = %(n)s WHERE id = %(order)s",
    "UPDATE orders SET customer = %(other)s WHERE id = %(order)s",
    "UPDATE orders SET document = repeat(md5(%(n)s::text), 70) WHERE id = %(order)s",
    "UPDATE orders SET id = %(free)s WHERE id = %(order)s",
    "DELETE FROM orders WHERE id = %(order)s",
    "INSERT INTO orders VALUES (%(free)s, %(other)s, %(n)s, repeat(md5(%(free)s::text), 70))"
    " ON CONFLICT (id) DO NOTHING",
    "INSERT INTO orders VALUES (%(order)s, %(other)s, %(n)s, 'short') ON CONFLICT (id) DO NOTHING",
)
"""An order with customer 99 has none."""
_OF_PARTITIONS = (
    "TRUNCATE low",
    "TRUNCATE high, low",
    "UPDATE middle SET tier = %(tier)s",
    "UPDATE middle SET city = %(city)s WHERE id = %(customer)s",
    "UPDATE customers SET id = (id + 8) %% 26 WHERE id = %(customer)s",
)
_RARE = ("TRUNCATE customers", "TRUNCATE orders", "UPDATE customers SET tier = %(tier)s")


class Past:
    """The tables of a load as of any LSN, once nothing is written any more.

    Args:
        connection: Connection for this use alone.
        load: The load.
    """

    def __init__(self, connection: Connection, load: MoveLoad) -> None:
        self._connection = connection
        self._past = f"past_{load.schema}"
        connection.execute("SET past.lsn = '0/0'")
        for text in (_ENDS, _VERSIONS, "CREATE INDEX ON {past}.versions (tab)"):
            made = text.format(past=self._past, database=load.database.name)
            connection.execute(made.encode())
        for table in _NAMES:
            view = _VIEW.format(past=self._past, schema=load.schema, table=table)
            connection.execute(view.encode())
        connection.execute("SET jit = off")

    def rows(self, lsn: int, where: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return the orders that one of `FILTERS` selects at an LSN, as the server evaluates it."""
        text = f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
        self._connection.execute(f"SET past.lsn = '{text}'".encode())
        query = f"SELECT {', '.join(columns)} FROM {self._past}.orders WHERE "
        query += where.format(schema=self._past)
        return sorted(self._connection.execute(query.encode()).fetchall(), key=repr)
