"""Keys and replica identities that change under a running gateway, and natively."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest

from tests.oracle.ddl.test_changing_publications import published_to, started
from tests.oracle.ddl.test_leaving_tables import lagging
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.scene import Connection, Scene, current_lsn
from tests.support.run.majors import EVALUATED_ON
from tests.support.run.waiting import wait_until

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.kafka,
    pytest.mark.parametrize("postgres_major", EVALUATED_ON, indirect=True),
]

MakeScene = Callable[..., Scene]
QUICK = {"definitions": {"watch_interval_s": 0.5}}
TABLE = "CREATE TABLE t (a int PRIMARY KEY, b text NOT NULL, c text);"
CHANGES = (
    "ALTER TABLE t REPLICA IDENTITY FULL",
    "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD CONSTRAINT t_pkey PRIMARY KEY (b)",
    "ALTER TABLE t REPLICA IDENTITY DEFAULT",
    "CREATE UNIQUE INDEX other ON t (a); ALTER TABLE t REPLICA IDENTITY USING INDEX other",
    "ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t REPLICA IDENTITY FULL",
    "ALTER TABLE t ADD CONSTRAINT t_pkey PRIMARY KEY (a); ALTER TABLE t REPLICA IDENTITY DEFAULT",
)


def _write(connection: Connection, first: int) -> None:
    for at in (first, first + 3):
        connection.execute("INSERT INTO t VALUES (%s, %s, 'new'), (%s, %s, 'new')",
                           (at, f"k{at}", at + 1, f"k{at + 1}"))  # fmt: skip
    connection.execute("UPDATE t SET c = c || '!'")
    connection.execute("UPDATE t SET a = a + 1000, b = b || '+' WHERE a = %s", (first,))
    connection.execute("DELETE FROM t WHERE a = %s", (first + 1,))


@pytest.mark.parametrize("behind", [False, True], ids=["keeping up", "behind"])
def test_another_key_or_identity_ends_in_the_native_table(
    scene: MakeScene, database: Database, make_database: DatabaseFactory, behind: bool
) -> None:
    with database.connect() as connection:
        connection.execute(TABLE.encode())
        connection.execute("INSERT INTO t VALUES (1, 'k1', 'copied'), (2, 'k2', 'copied')")
        connection.execute("CREATE PUBLICATION p FOR TABLE t")
        native = NativeSubscription(database, make_database, TABLE, ["p"])
        s = scene("CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;", **QUICK)
        process = started(s)
        with lagging(process) if behind else nullcontext():
            for number, change in enumerate(CHANGES):
                with native.database.connect() as subscriber:
                    subscriber.execute(change.encode())
                connection.execute(change.encode())
                _write(connection, 10 * (number + 1))
                end = current_lsn(connection)
                native.wait_until_applied(end)
                if not behind:
                    published_to(s, end)
        wait_until(lambda: _is_copied(s), 60, "all to be copied")
        connection.execute("UPDATE t SET c = c || '?'; DELETE FROM t WHERE a = 2")
        end = current_lsn(connection)
        published_to(s, end)
        native.wait_until_applied(end)
        assert process.terminate() == 0, process.log()

    assert s.rebuilt("t") == native.rows("t")


def _is_copied(scene: Scene) -> bool:
    """Whether all is copied, and the gateway has taken notice of what the catalog is."""
    with scene.connect() as connection:
        end = current_lsn(connection)
    published_to(scene, end)
    return "t: ready" in scene.cli("status").out
