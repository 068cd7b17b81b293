"""SIGTERM under load: the server has read the last feedback, so nothing is sent again."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from threading import Event

import pytest

from tests.support.backends.servers import Database
from tests.support.gateway.scene import (
    Connection,
    Scene,
    assert_exactly_once,
    current_lsn,
    running,
    value_of,
)
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka, pytest.mark.slow]

ROUNDS = int(os.environ.get("PGSLUICE_STOP_ROUNDS", "3"))
DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE t WHERE (a % 2 = 0);"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)


def has_moved(connection: Connection, query: str, slot: str, start: object) -> bool:
    return bool(value_of(connection, query, slot) != start)


def test_the_slot_stands_at_the_watermark_after_each_stop_under_load(
    scene: Callable[..., Scene], database: Database
) -> None:
    confirmed = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s"
    active = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"

    def load(stop: Event) -> None:
        with database.connect() as writer:
            number = 0
            while not stop.wait(0.002):
                number += 10
                writer.execute(
                    "INSERT INTO t SELECT i, repeat('x', 200) FROM generate_series(%s::int, %s) i",
                    [number, number + 9],
                )
                writer.execute("DELETE FROM t WHERE a < %s", [number - 2000])

    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
        s = scene(DEFINITIONS)
        s.run_to(current_lsn(connection))
        stops: list[tuple[str, str, bool]] = []
        with running(load):
            for _ in range(ROUNDS):
                gateway = s.project.start()
                gateway.wait_until_doing("streaming")
                start = value_of(connection, confirmed, s.slot)
                wait_until(
                    partial(has_moved, connection, confirmed, s.slot, start), 60, "the slot to move"
                )
                assert gateway.terminate() == 0, gateway.log()
                stops.append(
                    (
                        gateway.log().rpartition("watermark=")[2].split()[0],
                        value_of(connection, confirmed, s.slot),
                        value_of(connection, active, s.slot),
                    )
                )
        assert len(stops) == ROUNDS
        assert [stop for stop in stops if stop[0] != stop[1] or stop[2]] == []
        s.run_to(current_lsn(connection))
        assert s.rebuilt("t") == s.source_rows("SELECT * FROM t WHERE a % 2 = 0")
    assert_exactly_once(s, ["t"])
