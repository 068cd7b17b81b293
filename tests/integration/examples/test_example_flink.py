"""Flink SQL's tables on the gateway's topics hold what a native subscription holds.

Neither of Flink's formats knows truncates. The native subscription either has none, or the source
deletes the rows first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import pytest

from gateway.source.provisioning.truncate_trigger import INSTALL, trigger_sql
from tests.support.backends.flink import flink_rows
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.scene import Scene, current_lsn
from tests.support.workloads.one_table import FILTERED, TABLE, change_at_random

pytestmark = [pytest.mark.postgres, pytest.mark.kafka, pytest.mark.java]

SOURCE = f"""{TABLE}
ALTER TABLE t REPLICA IDENTITY FULL;
INSERT INTO t SELECT n, 'copied ' || n FROM generate_series(1, 30) AS n;
INSERT INTO t VALUES (31, 'hidden'), (32, NULL);
"""
WITHOUT_TRUNCATES = "WITH (publish = 'insert, update, delete')"
WORKLOADS = 20
END = 100_000
"""Key of the row that ends the first workload."""


def ends(changelog: Iterable[Sequence[str]]) -> list[list[tuple[str, ...]]]:
    """The rows that a changelog leaves at the end of each workload, sorted."""
    rows: Counter[tuple[str, ...]] = Counter()
    found = []
    for kind, *columns in changelog:
        rows[tuple(columns)] += 1 if kind[0] == "+" else -1
        assert rows[tuple(columns)] >= 0, columns
        if kind == "+I" and int(columns[0]) >= END:
            found.append(sorted(rows.elements()))
    return found


@pytest.mark.parametrize(
    ("kind", "program", "deletes"), [("debezium", "table.sql", True), ("row", "rows.sql", False)]
)
def test_flink_s_table_is_the_native_subscription_s(
    kind: str,
    program: str,
    deletes: bool,
    seed: int,
    scene: Callable[..., Scene],
    database: Database,
    make_database: DatabaseFactory,
    kafka: str,
    registry: str,
) -> None:
    expected = []
    with database.connect() as connection:
        connection.execute(SOURCE.encode())
        connection.execute(
            f"CREATE PUBLICATION n {FILTERED} {'' if deletes else WITHOUT_TRUNCATES}".encode()
        )
        if deletes:
            connection.execute((INSTALL + trigger_sql("public.t")).encode())
        native = NativeSubscription(database, make_database, TABLE, ["n"])
        s = scene(
            f"CREATE PUBLICATION p {FILTERED};"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
            envelope={"format": kind, "without_truncates": [f"gw_{database.name}"]},
        )
        s.run_to("0/1")
        for number in range(WORKLOADS):
            # Without deletes a native subscriber keeps the rows, so that their keys are taken.
            change_at_random(connection, seed + number, 1 if deletes else 1 + 100 * (number // 9))
            if number % 9 == 8:
                connection.execute("TRUNCATE t; INSERT INTO t VALUES (99, 'after')")
                connection.execute("DELETE FROM t WHERE a = 99")
            connection.execute(f"INSERT INTO t VALUES ({END + number}, 'end')".encode())
            native.wait_until_applied(current_lsn(connection))
            expected.append(sorted((str(a), b) for a, b in native.rows("t")))
        s.run_to(current_lsn(connection))

    found = ends(flink_rows(program, s.topic("t"), kafka, registry))

    assert len(found) == WORKLOADS
    assert found == expected
    assert ((str(END), "end") in expected[-1]) is not deletes
