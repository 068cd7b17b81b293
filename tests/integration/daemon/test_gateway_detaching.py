"""Filters over a partitioned table of which a partition is detached concurrently, or for a while.

DETACH CONCURRENTLY is two transactions. After the first one, a query of the tree does not see the
partition; the second one waits for everybody who has locked the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from gateway.source.provisioning.event_trigger import INSTALL
from tests.integration.daemon.test_gateway_inner_trees import (
    DEFINITIONS,
    FILTERS,
    TABLES,
    is_as_the_source,
    is_settled,
)
from tests.support.backends.servers import Database
from tests.support.gateway.scene import (
    Connection,
    Scene,
    assert_exactly_once,
    current_lsn,
    value_of,
)
from tests.support.run.majors import alternating
from tests.support.run.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
ATTACH = "ALTER TABLE customers ATTACH PARTITION asia FOR VALUES IN ('asia')"
DETACH = "ALTER TABLE customers DETACH PARTITION asia CONCURRENTLY"
PENDING = "SELECT EXISTS (SELECT FROM pg_inherits WHERE inhdetachpending)"


@contextmanager
def detaching(database: Database, connection: Connection) -> Iterator[None]:
    """Keep a partition between the two transactions for as long as the block lasts."""

    def detach() -> None:
        with database.connect() as owner:
            owner.execute(DETACH)

    with ThreadPoolExecutor(1) as thread, database.connect() as reader:
        with reader.transaction():
            reader.execute("SELECT FROM customers")
            detached = thread.submit(detach)
            wait_until(lambda: value_of(connection, PENDING), 60, "the first transaction")
            yield
        detached.result(60 * PATIENCE)


def copies(s: Scene) -> int:
    """Number of markers of copies, of all subscriptions."""
    markers = (marker for name in FILTERS for marker in s.markers(f"{s.slot}{name}"))
    return sum(marker["kind"] == "COPY" for marker in markers)


@pytest.mark.parametrize("noticed", ["by_the_catalog", "by_event_triggers"])
@alternating(__name__, 15, 18)
def test_a_partition_that_is_detached_concurrently_leaves_a_set(
    scene: MakeScene, database: Database, noticed: str
) -> None:
    has_triggers = noticed == "by_event_triggers"
    with database.connect() as connection:
        connection.execute(f"{TABLES}; {ATTACH}".encode())
        if has_triggers:
            connection.execute(INSTALL.encode())
        s = scene(DEFINITIONS, definitions={"watch_interval_s": 3600 if has_triggers else 0.2})
        gateway = s.project.start()
        gateway.wait_until_copied()
        assert is_as_the_source(s)
        before, copied = s.source_rows("SELECT * FROM customers"), copies(s)

        with detaching(database, connection):
            assert s.source_rows("SELECT * FROM customers") != before
            # Of a DDL message that is written meanwhile, too, it is no partition any more.
            connection.execute(
                "CREATE TABLE africa (id int NOT NULL, tenant int, area text NOT NULL);"
                "ALTER TABLE africa REPLICA IDENTITY FULL;"
                "ALTER TABLE customers ATTACH PARTITION africa FOR VALUES IN ('af')"
            )
            wait_until(lambda: is_as_the_source(s), 60, "the rows of the partition to leave")
            connection.execute("UPDATE asia SET tenant = 3 - tenant WHERE id < 35")
            connection.execute("DELETE FROM asia WHERE id = 36")
            connection.execute("INSERT INTO customers VALUES (50, 1, 'us'), (44, 1, 'af')")
            wait_until(lambda: is_as_the_source(s), 60, "other rows to come")
            wait_until(lambda: is_settled(s), 60, "moves to be settled")
            assert copies(s) == copied, "rows move, and no table is copied again"
        connection.execute("UPDATE asia SET tenant = 1 WHERE id = 37")
        connection.execute("UPDATE customers SET tenant = 1 WHERE id = 13")
        wait_until(lambda: is_as_the_source(s), 60, "the second transaction")
        connection.execute(ATTACH)
        wait_until(lambda: is_as_the_source(s), 60, "the partition to be back")
        assert gateway.terminate() == 0, gateway.log()
        s.run_to(current_lsn(connection))
        assert is_as_the_source(s)
    for name in FILTERS:
        assert_exactly_once(s, ["orders"], f"{s.slot}{name}")


BY_ITSELF = "EXISTS (SELECT FROM asia WHERE asia.id = orders.customer AND asia.tenant = 1)"
"""Filter over the partition alone, which the gateway's publication has as a part of its tree."""
CHANGES = (
    "UPDATE asia SET tenant = 3 - tenant; DELETE FROM asia WHERE id = 31;"
    " INSERT INTO asia VALUES (1, 'asia', 40)"
)


@pytest.mark.parametrize("noticed", ["by_the_catalog", "by_a_relation"])
@pytest.mark.parametrize(
    ("away", "back"),
    [
        ("ALTER TABLE customers DETACH PARTITION asia", ATTACH),
        ("ALTER TABLE asia SET UNLOGGED", "ALTER TABLE asia SET LOGGED"),
    ],
    ids=["detached", "unlogged"],
)
@alternating(__name__, 15, 18)
def test_a_partition_that_is_back_before_anybody_looks_brings_what_it_got_meanwhile(
    scene: MakeScene, database: Database, noticed: str, away: str, back: str
) -> None:
    looks = noticed == "by_the_catalog"
    role = f"role_{database.name}"
    with database.connect() as connection:
        connection.execute(f"{TABLES}; {ATTACH}".encode())
        connection.execute(
            f"CREATE ROLE {role} LOGIN REPLICATION; GRANT SELECT ON asia TO {role};"
            f"GRANT CREATE, TEMPORARY ON DATABASE {database.name} TO {role};".encode()
        )
        for table in ("customers", "us", "eu", "eu_low", "eu_high", "orders"):
            connection.execute(f"ALTER TABLE {table} OWNER TO {role}".encode())
        try:
            s = scene(
                f"{DEFINITIONS} CREATE PUBLICATION p_asia FOR TABLE orders WHERE ({BY_ITSELF});"
                "CREATE SUBSCRIPTION {s}_asia CONNECTION '' PUBLICATION p_asia;",
                source={"dsn": psycopg.conninfo.make_conninfo(database.dsn, user=role)},
                definitions={"watch_interval_s": 0.2 if looks else 3600},
            )
            filters = {**FILTERS, "_asia": BY_ITSELF}
            gateway = s.project.start()
            gateway.wait_until_copied()
            gateway.wait_for("the gateway's publications lack partitions")
            assert is_as_the_source(s, filters)

            with connection.transaction():  # so that no look falls in between
                for statement in (away, CHANGES, back):
                    connection.execute(statement.encode())
            if not looks:
                connection.execute("UPDATE customers SET tenant = 2 WHERE id = 39")
            wait_until(lambda: is_as_the_source(s, filters), 60, "what has changed meanwhile")
            wait_until(lambda: is_settled(s, filters), 60, "moves to be settled")
            connection.execute("UPDATE customers SET tenant = 1 WHERE id IN (30, 32, 33)")
            wait_until(lambda: is_as_the_source(s, filters), 60, "rows to move")

            # The set lacks a row that the stream removes: no reason to end the stream for all.
            with connection.transaction():
                for statement in (away, "INSERT INTO asia VALUES (1, 'asia', 41)", back):
                    connection.execute(statement.encode())
            connection.execute("DELETE FROM asia WHERE id IN (32, 41)")
            wait_until(lambda: is_as_the_source(s, filters), 60, "a removed row to go")
            wait_until(lambda: is_settled(s, filters), 60, "moves to be settled")
            assert "does not agree" not in gateway.log()
            assert gateway.terminate() == 0, gateway.log()

            with connection.transaction():
                for statement in (away, "UPDATE asia SET tenant = 3 - tenant", back):
                    connection.execute(statement.encode())
            s.run_to(current_lsn(connection))
            assert is_as_the_source(s, filters), "a start finds it, too"
        finally:
            s.close()
            connection.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}".encode())
