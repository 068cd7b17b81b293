"""Filters over a partitioned table of which a partition is detached for a while."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from tests.integration.daemon.test_gateway_inner_trees import (
    DEFINITIONS,
    TABLES,
    is_as_the_source,
    is_settled,
)
from tests.support.backends.majors import alternating
from tests.support.backends.servers import Database
from tests.support.gateway.scene import (
    Scene,
    current_lsn,
)
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
ATTACH = "ALTER TABLE customers ATTACH PARTITION asia FOR VALUES IN ('asia')"


@pytest.mark.parametrize("noticed", ["by_the_catalog", "by_a_relation"])
@alternating(__name__, 15, 18)
def test_a_partition_that_is_back_before_anybody_looks_brings_what_it_got_meanwhile(
    scene: MakeScene, database: Database, noticed: str
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
                DEFINITIONS,
                source={"dsn": psycopg.conninfo.make_conninfo(database.dsn, user=role)},
                definitions={"watch_interval_s": 0.2 if looks else 3600},
            )
            gateway = s.project.start()
            gateway.wait_until_copied()
            gateway.wait_for("the gateway's publications lack partitions")
            assert is_as_the_source(s)

            with connection.transaction():  # so that no look falls in between
                connection.execute("ALTER TABLE customers DETACH PARTITION asia")
                connection.execute(
                    "UPDATE asia SET tenant = 3 - tenant; DELETE FROM asia"
                    " WHERE id = 31; INSERT INTO asia VALUES (1, 'asia', 40)"
                )
                connection.execute(ATTACH)
            if not looks:
                connection.execute("UPDATE customers SET tenant = 2 WHERE id = 39")
            wait_until(lambda: is_as_the_source(s), 60, "what has changed meanwhile")
            wait_until(lambda: is_settled(s), 60, "moves to be settled")
            connection.execute("UPDATE customers SET tenant = 1 WHERE id IN (30, 32, 33)")
            wait_until(lambda: is_as_the_source(s), 60, "rows to move")
            assert gateway.terminate() == 0, gateway.log()

            with connection.transaction():
                connection.execute("ALTER TABLE customers DETACH PARTITION asia")
                connection.execute("UPDATE asia SET tenant = 3 - tenant")
                connection.execute(ATTACH)
            s.run_to(current_lsn(connection))
            assert is_as_the_source(s), "a start finds it, too"
        finally:
            s.close()
            connection.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}".encode())
