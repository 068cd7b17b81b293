"""A hot standby as the source: it is read and copied from, what it cannot do its primary does."""

from __future__ import annotations

import re
import time
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from devkit.embedded.postgres import EmbeddedPostgres
from gateway.core.lsn import parse_lsn
from tests.support.backends.standby import standby_of, wait_until_replayed
from tests.support.gateway.scene import (
    Connection,
    Scene,
    assert_exactly_once,
    current_lsn,
    running,
    value_of,
)
from tests.support.models.cuts import cuts
from tests.support.run.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

TABLE = "CREATE TABLE t (a int PRIMARY KEY, b text)"
PUBLICATION = "CREATE PUBLICATION p FOR TABLE t WHERE (a % 2 = 0);"
SUBSCRIPTION = "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
EVEN = "SELECT * FROM t WHERE a % 2 = 0"
ORDERS = """
CREATE TABLE customers (id int PRIMARY KEY, tenant int, city varchar(9) NOT NULL);
CREATE TABLE orders (id int PRIMARY KEY, customer int, doc text);
ALTER TABLE customers REPLICA IDENTITY FULL; ALTER TABLE orders REPLICA IDENTITY FULL;
CREATE TABLE regions (customer int, name text) PARTITION BY LIST (name);
CREATE TABLE north PARTITION OF regions FOR VALUES IN ('north');
CREATE TABLE south (name text, customer int);
ALTER TABLE north REPLICA IDENTITY FULL; ALTER TABLE south REPLICA IDENTITY FULL;
INSERT INTO regions SELECT n, 'north' FROM generate_series(1, 30, 3) AS n;
INSERT INTO south SELECT 'south', n FROM generate_series(2, 40, 3) AS n;
INSERT INTO customers SELECT n, n % 4, chr(65 + n % 3) FROM generate_series(1, 40) AS n;
INSERT INTO orders SELECT n, n % 50, repeat('x', n % 9) FROM generate_series(1, 2000) AS n;
"""
OF_TENANTS = (
    "customer IN (SELECT id FROM customers WHERE NOT tenant = 3 AND city IN ('A', 'B')) AND id <> 7"
)
OVER = (
    f"CREATE PUBLICATION over FOR TABLE orders WHERE ({OF_TENANTS});"
    "CREATE SUBSCRIPTION {s}_over CONNECTION '' PUBLICATION over;"
)
OF_REGIONS = "customer IN (SELECT customer FROM regions WHERE name <> 'east')"
TREE = (
    f"CREATE PUBLICATION tree FOR TABLE orders WHERE ({OF_REGIONS});"
    "CREATE SUBSCRIPTION {s}_tree CONNECTION '' PUBLICATION tree;"
)
LAST = 3
"""The last move with which a region comes, and after which it stays."""
SOUTH = ("DETACH PARTITION south", "ATTACH PARTITION south FOR VALUES IN ('south')")
UNKNOWN = OVER.replace("tenant = 3", "tenant = random()")


def move(primary: Connection, first: int) -> None:
    """Customers come and go, a region as well, and so do their orders; some orders change."""
    if first <= LAST:
        primary.execute(f"ALTER TABLE regions {SOUTH[1]}".encode())
    for n in range(first, first + 8):
        primary.execute(
            f"UPDATE customers SET tenant = (tenant + 1) % 4 WHERE id % 8 = {n % 8};"
            f"UPDATE orders SET customer = customer % 40 + 1, doc = 'moved' WHERE id % 97 = {n};"
            f"UPDATE customers SET city = chr(65 + id * {n} % 3) WHERE id = {n};"
            f"DELETE FROM orders WHERE id = {n * 31};"
            f"UPDATE regions SET customer = customer + 1 WHERE customer % 5 = {n % 5}".encode()
        )
    if first < LAST:
        primary.execute(f"ALTER TABLE regions {SOUTH[0]}".encode())


def is_settled(s: Scene, lsn: str) -> bool:
    """Whether all orders are complete at or after an LSN, as the markers say."""
    for subscription in (f"{s.slot}_over", f"{s.slot}_tree"):
        found = list(cuts(s.markers(subscription), [], "", "orders"))
        if not found or not found[-1].complete or found[-1].end_lsn < parse_lsn(lsn):
            return False
    return True


def keep_writing(server: EmbeddedPostgres, stop: Event) -> None:
    with server.connect() as primary:
        while not stop.wait(0.1):
            primary.execute("INSERT INTO t SELECT max(a) + 1, 'meanwhile' FROM t")


def test_a_standby_is_copied_from_and_streamed_from(
    tmp_path: Path, kafka: str, registry: str
) -> None:
    with EmbeddedPostgres(18) as server, server.connect() as primary:
        primary.execute(TABLE)
        primary.execute("INSERT INTO t SELECT n, 'copied' FROM generate_series(1, 1000) AS n")
        primary.execute(ORDERS.encode())
        with standby_of(server) as standby, standby.connect() as replica:
            name = f"standby_{standby.port}"
            tried = Scene(
                tmp_path / "tried",
                standby.dsn(),
                kafka,
                registry,
                name,
                PUBLICATION + SUBSCRIPTION,
            )
            refused = tried.cli("check")
            assert refused.code == 1
            assert "the filter on public.t cannot be tried out on a standby" in refused.out
            assert "create the publication on its primary" in refused.out
            tried.project.definitions = UNKNOWN.replace("{s}", name)
            refused = tried.cli("check")
            assert refused.code == 1
            assert "is not evaluated by the gateway: function random()" in refused.out
            tried.close()

            primary.execute(PUBLICATION)
            wait_until_replayed(server, standby)
            settings: dict[str, dict[str, Any]] = {
                "copy": {"chunk_rows": 100, "rows_per_second": 500},
                "definitions": {"watch_interval_s": 0.2},
            }
            all_three = SUBSCRIPTION + OVER + TREE
            s = Scene(tmp_path, standby.dsn(), kafka, registry, name, all_three, settings)
            refused = s.cli("run", "--endpos", "0/1")
            assert refused.code == 1
            assert "the gateway's publications cannot be made on a standby" in refused.err
            for statement in re.findall(r"^\s*(CREATE PUBLICATION .*;)$", refused.err, re.M):
                primary.execute(statement.encode())
            wait_until_replayed(server, standby)

            gateway = s.project.start()

            def streams() -> bool:
                # A slot on a standby begins where the primary says what is running.
                primary.execute("SELECT pg_log_standby_snapshot()")
                return gateway.is_doing("streaming")

            wait_until(streams, 60, "the gateway to stream")
            written = 1
            deadline, pace = time.monotonic() + 120 * PATIENCE, Event()
            while not gateway.is_copied():
                assert time.monotonic() < deadline
                even = 2 * written % 1000
                primary.execute(
                    f"UPDATE t SET b = 'changed {written}' WHERE a = {even};"
                    f"DELETE FROM t WHERE a = {even + 500};"
                    f"INSERT INTO t VALUES ({-written}, 'new');"
                    f"UPDATE t SET a = a + 100000 WHERE a = {even - 1}".encode()
                )
                if written % 10 == 1:
                    move(primary, written)
                written += 1
                # A gateway that shares its cores with others has to keep up with all of it.
                pace.wait(0.02)
            assert written > 10

            move(primary, 1)
            gateway.kill()
            move(primary, 2)
            gateway = s.project.start()
            move(primary, LAST)
            moved = current_lsn(primary)
            with running(lambda stop: keep_writing(server, stop)):
                wait_until(lambda: is_settled(s, moved), 60, "the moves to be settled")

            # A copy is complete when the stream is beyond it, so at the primary's next WAL.
            with running(lambda stop: keep_writing(server, stop)):
                timeout = ("--timeout", str(60 * PATIENCE))
                asked = s.cli("copy", "public.t", "--where", "a < 100", *timeout)
            assert asked.code == 0, asked.err
            assert "not watched" not in gateway.log()
            assert gateway.terminate() == 0
            end = current_lsn(primary)
            wait_until_replayed(server, standby)
            s.run_to(end)

            assert value_of(replica, "SELECT pg_is_in_recovery()") is True
            assert s.rebuilt("t") == s.source_rows(EVEN)
            assert len(s.rebuilt("t")) >= 250  # however much was written: half is never deleted
            assert_exactly_once(s, ["t"])
            over = s.source_rows(f"SELECT * FROM orders WHERE {OF_TENANTS}")
            assert s.rebuilt("orders", f"{name}_over") == over
            assert over and len(over) < len(s.source_rows("SELECT * FROM orders"))
            tree = s.source_rows(f"SELECT * FROM orders WHERE {OF_REGIONS}")
            assert s.rebuilt("orders", f"{name}_tree") == tree
            assert tree and len(tree) < len(s.source_rows("SELECT * FROM orders"))
            for each in ("over", "tree"):
                assert any(marker["kind"] == "MOVE" for marker in s.markers(f"{name}_{each}"))
            s.close()
