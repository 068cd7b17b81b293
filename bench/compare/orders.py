"""A load like TPC-C's: orders with lines, payments and deliveries over eight tables.

Not TPC-C: its keying times, its sizes and its fifth transaction are left out, and customers and
items are few. Every row has a ``version`` that each UPDATE raises, and triggers write each change
of a row into ``audit``, in the same transaction: what has to be in the topics, by the server's own
account.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from bench.compare.records import Change
from bench.compare.stage import Source

__all__ = ["KEYS", "SCHEMA", "Event", "audited", "events_of", "play"]

Event = tuple[str, str, int | None]
"""Table, key, and version; None for a delete, of which only the key is in a record."""

KEYS: Final = {
    "warehouse": ("id",),
    "district": ("warehouse", "id"),
    "customer": ("warehouse", "district", "id"),
    "stock": ("warehouse", "item"),
    "orders": ("warehouse", "district", "id"),
    "new_order": ("warehouse", "district", "id"),
    "order_line": ("warehouse", "district", "id", "number"),
    "payment": ("id",),
}
"""Columns of each table's primary key."""

_TABLES: Final = """
CREATE TABLE warehouse (id int PRIMARY KEY, ytd numeric(14,2) NOT NULL DEFAULT 0,
    version int NOT NULL DEFAULT 0);
CREATE TABLE district (warehouse int, id int, next_order int NOT NULL DEFAULT 1,
    ytd numeric(14,2) NOT NULL DEFAULT 0, version int NOT NULL DEFAULT 0,
    PRIMARY KEY (warehouse, id));
CREATE TABLE customer (warehouse int, district int, id int, name text NOT NULL,
    balance numeric(14,2) NOT NULL DEFAULT 0, changed_at timestamptz NOT NULL DEFAULT now(),
    version int NOT NULL DEFAULT 0, PRIMARY KEY (warehouse, district, id));
CREATE TABLE stock (warehouse int, item int, quantity int NOT NULL DEFAULT 100,
    version int NOT NULL DEFAULT 0, PRIMARY KEY (warehouse, item));
CREATE TABLE orders (warehouse int, district int, id int, customer int NOT NULL,
    entered_at timestamptz NOT NULL DEFAULT clock_timestamp(), carrier int,
    version int NOT NULL DEFAULT 0, PRIMARY KEY (warehouse, district, id));
CREATE TABLE new_order (warehouse int, district int, id int, version int NOT NULL DEFAULT 0,
    PRIMARY KEY (warehouse, district, id));
CREATE TABLE order_line (warehouse int, district int, id int, number int, item int NOT NULL,
    quantity int NOT NULL, amount numeric(10,2) NOT NULL, delivered_at timestamptz,
    version int NOT NULL DEFAULT 0, PRIMARY KEY (warehouse, district, id, number));
CREATE TABLE payment (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, warehouse int NOT NULL,
    district int NOT NULL, customer int NOT NULL, amount numeric(10,2) NOT NULL,
    note text NOT NULL, version int NOT NULL DEFAULT 0);
CREATE TABLE finish (id int PRIMARY KEY);
CREATE TABLE audit (of text NOT NULL, key text NOT NULL, version int);
INSERT INTO warehouse SELECT w FROM generate_series(1, 4) w;
INSERT INTO district SELECT w, d FROM generate_series(1, 4) w, generate_series(1, 10) d;
INSERT INTO customer SELECT w, d, c, 'customer ' || c
    FROM generate_series(1, 4) w, generate_series(1, 10) d, generate_series(1, 30) c;
INSERT INTO stock SELECT w, i FROM generate_series(1, 4) w, generate_series(1, 1000) i;
"""

_PLAY: Final = """
CREATE FUNCTION place_order() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    w int := 1 + floor(random() * 4); d int := 1 + floor(random() * 10); o int;
BEGIN
    UPDATE district SET next_order = next_order + 1, version = version + 1
        WHERE warehouse = w AND id = d RETURNING next_order INTO o;
    INSERT INTO orders VALUES (w, d, o, 1 + floor(random() * 30));
    INSERT INTO new_order VALUES (w, d, o);
    INSERT INTO order_line SELECT w, d, o, n, 1 + floor(random() * 1000), 1 + n % 10, n * 1.25
        FROM generate_series(1, 5 + floor(random() * 11)::int) n;
    UPDATE stock s SET quantity = CASE WHEN s.quantity < 10 THEN 100 ELSE s.quantity - 1 END,
        version = s.version + 1
        WHERE s.warehouse = w AND s.item IN (SELECT item FROM order_line l
            WHERE l.warehouse = w AND l.district = d AND l.id = o);
END $$;
CREATE FUNCTION pay() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    w int := 1 + floor(random() * 4); d int := 1 + floor(random() * 10);
    c int := 1 + floor(random() * 30); paid numeric := 1 + floor(random() * 5000);
BEGIN
    UPDATE warehouse SET ytd = ytd + paid, version = version + 1 WHERE id = w;
    UPDATE district SET ytd = ytd + paid, version = version + 1 WHERE warehouse = w AND id = d;
    UPDATE customer SET balance = balance - paid, changed_at = clock_timestamp(),
        version = version + 1 WHERE warehouse = w AND district = d AND id = c;
    INSERT INTO payment (warehouse, district, customer, amount, note)
        VALUES (w, d, c, paid, 'paid at the desk');
END $$;
CREATE FUNCTION deliver() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    oldest record;
BEGIN
    SELECT warehouse, district, id INTO oldest FROM new_order ORDER BY id LIMIT 1;
    IF NOT FOUND THEN RETURN; END IF;
    DELETE FROM new_order n WHERE (n.warehouse, n.district, n.id)
        = (oldest.warehouse, oldest.district, oldest.id);
    UPDATE orders o SET carrier = 1 + floor(random() * 10), version = version + 1
        WHERE (o.warehouse, o.district, o.id) = (oldest.warehouse, oldest.district, oldest.id);
    UPDATE order_line l SET delivered_at = clock_timestamp(), version = version + 1
        WHERE (l.warehouse, l.district, l.id) = (oldest.warehouse, oldest.district, oldest.id);
END $$;
CREATE PROCEDURE play(transactions int) LANGUAGE plpgsql AS $$
DECLARE
    dice float8;
BEGIN
    FOR n IN 1 .. transactions LOOP
        dice := random();
        IF dice < 0.48 THEN PERFORM place_order();
        ELSIF dice < 0.93 THEN PERFORM pay();
        ELSE PERFORM deliver();
        END IF;
        COMMIT;
    END LOOP;
END $$;
"""


def _audit() -> str:
    lines = []
    for table, key in KEYS.items():
        new, old = (
            " || '/' || ".join(f"{row}.{column}" for column in key) for row in ("new", "old")
        )
        lines.append(
            f"""
CREATE FUNCTION audit_{table}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF TG_OP = 'DELETE' THEN INSERT INTO audit VALUES ('{table}', {old});
    ELSE INSERT INTO audit VALUES ('{table}', {new}, new.version); END IF;
    RETURN NULL; END $$;
CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON {table}
    FOR EACH ROW EXECUTE FUNCTION audit_{table}();
"""
        )
    return "".join(lines)


SCHEMA: Final = _TABLES + _PLAY + _audit()
"""The tables with their first rows, the transactions, and the triggers."""


def play(source: Source, transactions: int) -> None:
    """Run a number of transactions in the server, one after the other."""
    with source.connect() as connection:
        connection.execute("CALL play(%s)", [transactions])


def audited(source: Source) -> Counter[Event]:
    """Return every change of a row that was committed, by the server's account."""
    with source.connect() as connection:
        rows = connection.execute("SELECT of, key, version FROM audit").fetchall()
    return Counter((str(of), str(key), version) for of, key, version in rows)


def events_of(table: str, changes: Iterable[Change]) -> Counter[Event]:
    """Return the changes of a topic as `audited` has them."""
    found: Counter[Event] = Counter()
    for change in changes:
        key = "/".join(str(change.key[column]) for column in KEYS[table])
        found[table, key, None if change.after is None else change.after["version"]] += 1
    return found
