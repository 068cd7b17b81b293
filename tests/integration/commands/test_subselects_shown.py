"""Filters over other tables as commands show them: `check`, `explain`, and what `verify` reads."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable

import pytest

from gateway.commands.verify.compared_tables import compared_tables
from gateway.commands.verify.source import SourceReader, SourceTable
from gateway.config import load_settings
from gateway.runtime.planning.plan import read_definitions, read_plan
from gateway.source.session.connection import connect
from tests.integration.monitor.test_gateway_monitor import LISTENING, Monitored
from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
TABLES = """
CREATE TABLE cities (id int PRIMARY KEY, country text);
CREATE TABLE customers (id int PRIMARY KEY, city int, tenant int);
CREATE TABLE orders (id int PRIMARY KEY, customer int, doc text);
ALTER TABLE cities REPLICA IDENTITY FULL;
ALTER TABLE customers REPLICA IDENTITY FULL;
CREATE UNIQUE INDEX of_customer ON orders (id, customer);
ALTER TABLE orders ALTER customer SET NOT NULL;
ALTER TABLE orders REPLICA IDENTITY USING INDEX of_customer;
INSERT INTO cities VALUES (1, 'FR'), (2, NULL);
INSERT INTO customers VALUES (1, 1, 1), (2, 2, 2), (3, 1, 2);
INSERT INTO orders VALUES (1, 1, ''), (2, 2, ''), (3, 3, ''), (4, 9, '');
"""
PEOPLE = """
CREATE TABLE people (id int NOT NULL, tenant int, area text) PARTITION BY LIST (area);
CREATE TABLE eu PARTITION OF people FOR VALUES IN ('eu');
CREATE TABLE us PARTITION OF people FOR VALUES IN ('us');
CREATE TABLE asia (area text, tenant int, id int NOT NULL);
ALTER TABLE eu REPLICA IDENTITY FULL;
ALTER TABLE us REPLICA IDENTITY FULL;
ALTER TABLE asia REPLICA IDENTITY FULL;
INSERT INTO people VALUES (1, 1, 'eu'), (2, 2, 'us');
INSERT INTO asia VALUES ('asia', 1, 3);
"""
TENANT = "customer IN (SELECT id FROM customers WHERE tenant = 1)"
FRENCH = (
    "customer IN (SELECT id FROM customers WHERE city IN"
    " (SELECT id FROM cities WHERE country = 'FR'))"
)
DEFINITIONS = (
    f"CREATE PUBLICATION p_tenant FOR TABLE orders WHERE ({TENANT});"
    f"CREATE PUBLICATION p_not FOR TABLE orders WHERE (NOT {FRENCH} AND id < 4 OR {TENANT});"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p_tenant;"
    "CREATE SUBSCRIPTION {s}_not CONNECTION '' PUBLICATION p_not;"
)
IN_TENANT = "(customer IN (SELECT id FROM ONLY public.customers WHERE ((tenant = 1))))"


def test_commands_show_what_each_subselect_says(scene: MakeScene, database: Database) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
    s = scene(DEFINITIONS)

    checked, mine = s.cli("check"), s.cli("explain", "orders", "1")
    other = s.cli("explain", "orders", '{"id": 2, "customer": 2}')

    assert checked.code == 0, checked.out
    assert (
        f"table public.orders of subscription {s.slot}_not: its rows are selected by "
        "public.cities, public.customers, and move when that changes" in checked.out
    )
    assert "when an UPDATE of the key makes a row enter a filter" not in checked.out
    assert f"  {s.slot}: receives it (INSERT, UPDATE, DELETE) as {s.topic('orders')}" in mine.out
    assert f"{IN_TENANT} is true" in mine.out
    assert f"  {s.slot}: does not receive it (INSERT, UPDATE, DELETE)" in other.out
    assert f"  {s.slot}_not: receives it" in other.out
    (not_french,) = (
        line for line in other.out.splitlines() if "NOT IN" in line and "AND" not in line
    )
    assert not_french.startswith("      (customer NOT IN (SELECT id FROM ONLY public.customers")
    assert not_french.endswith(" is true")
    assert f"      {IN_TENANT} is false" in other.out
    assert (
        "followed here: the row enters or leaves when public.cities or public.customers changes"
        in other.out
    )
    assert read_by_verify(s) == {s.slot: {b"1"}, f"{s.slot}_not": {b"1", b"2"}}


def test_commands_show_what_a_partitioned_table_says(scene: MakeScene, database: Database) -> None:
    where = "customer IN (SELECT id FROM people WHERE tenant = 1)"
    with database.connect() as connection:
        connection.execute(f"{TABLES} {PEOPLE}".encode())
        s = scene(
            f"CREATE PUBLICATION p FOR TABLE orders WHERE ({where});"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
        )
        checked = s.cli("check")
        shown = [s.cli("explain", "orders", str(n)).out for n in (1, 2, 3)]
        read = read_by_verify(s)
        connection.execute("ALTER TABLE people ATTACH PARTITION asia FOR VALUES IN ('asia')")
        attached, read_since = s.cli("explain", "orders", "3").out, read_by_verify(s)

    assert checked.code == 0, checked.out
    assert (
        f"table public.orders of subscription {s.slot}: its rows are selected by public.people, "
        "and move when that changes" in checked.out
    )
    part = "(customer IN (SELECT id FROM public.people WHERE ((tenant = 1))))"
    for number, out in enumerate(shown, 1):
        assert f"{part} is {'true' if number == 1 else 'false'}" in out, out
        assert "the row enters or leaves when public.people changes" in out, out
    assert f"{part} is true" in attached
    assert read == {s.slot: {b"1"}}
    assert read_since == {s.slot: {b"1", b"3"}}


def test_status_page_and_metrics_show_what_moves_in_the_same_words(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection, database.connect() as locking:
        connection.execute(TABLES.encode())
        s = scene(DEFINITIONS, **LISTENING)
        gateway = Monitored(s.project.start())
        gateway.process.wait_until_copied()
        wait_until(lambda: gateway.get("/readyz")[0] == 200, 60, "the gateway to be ready")
        locking.execute("BEGIN; LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
        before = time.time()
        connection.execute("UPDATE customers SET tenant = 1 WHERE id IN (2, 3)")

        def by_command() -> str:
            return said(f"copy of {s.slot}: public.orders: .*", s.cli("status").out)

        wait_until(by_command, 60, "status to say that rows move")
        wait_until(lambda: said(".*", gateway.get("/readyz")[1]), 60, "the gateway to say so")
        words = by_command()
        assert words.endswith(": 2 values and keys to read, 0 rows moved so far")
        assert words == said(f".*{s.slot}: .*", gateway.get("/readyz")[1])
        assert words == said(".*", gateway.get(f"/?q={s.slot}+public.orders")[1])
        shown = json.loads(s.cli("status", "--json").out)["tables"]
        for found in (shown, gateway.status()["tables"]):
            (mine,) = (each for each in found if each["subscription"] == s.slot)
            assert (mine["unsettled"], mine["moved_rows"]) == (2, 0)
            assert before - 1 < mine["moving_since"] < time.time()
        assert gateway.metrics()["unsettled_values"][s.slot, "public.orders"] == 2
        assert gateway.metrics()["moving_seconds"][s.slot, "public.orders"] > 0

        locking.execute("ROLLBACK")
        wait_until(lambda: not by_command(), 60, "the rows to be read")

        def counted() -> bool:
            return gateway.metrics()["moved_rows_total"][s.slot, "public.orders"] == 2

        wait_until(counted, 60, "the metrics to count the rows, a report of the loop later")
        assert gateway.process.terminate() == 0


def said(line: str, text: str) -> str:
    """Return how far moves are by a text, of the first line where that follows `line`."""
    found = re.search(f"{line}(rows moving since .*? moved so far)", text)
    return "" if found is None else found[1]


def read_by_verify(s: Scene) -> dict[str, set[bytes | None]]:
    settings = load_settings(s.project.write(), {})
    with connect(settings.source.dsn) as connection:
        plan = read_plan(settings, connection, read_definitions(settings))
    found = {}
    with SourceReader(settings.source.dsn, 100) as reader:
        for name in (each.name for each in plan.subscriptions):
            (one,) = compared_tables(plan, name, b"")
            assert one.moves
            rows = reader.rows(SourceTable(one.table, one.filters, one.columns, one.key))
            found[name] = {row[0] for row in rows}
    return found
