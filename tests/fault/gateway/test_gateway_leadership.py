"""Who has the slot leads; everyone else stands by, and nobody fences a healthy gateway."""

from __future__ import annotations

import os
import signal
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.backends.servers import Database
from tests.support.gateway.scene import (
    Scene,
    assert_exactly_once,
    current_lsn,
    running,
    value_of,
    wait_until_confirmed,
    wait_until_slot_is_free,
)
from tests.support.run.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE t WHERE (a % 2 = 0);"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)
TABLE = "CREATE TABLE t (a int PRIMARY KEY, b int)"
PASSING = "SELECT * FROM t WHERE a % 2 = 0"
BUSY = 4
"""So many times as long may it take on a machine on which other tests run."""
DUEL_S = float(os.environ.get("PGSLUICE_DUEL_S", "20"))


@pytest.fixture
def server(database: Database) -> Database:
    with database.connect() as connection:
        connection.execute(TABLE)
        # Short, so that a frozen gateway loses the slot soon; one that only gets no CPU for a while
        # has to keep it.
        setting = f"ALTER DATABASE {database.name} SET wal_sender_timeout = '6s'"
        connection.execute(setting.encode())
    return database


@pytest.fixture
def s(server: Database, tmp_path: Path, kafka: str, registry: str) -> Iterator[Scene]:
    limits = {"limits": {"feedback_interval_s": 0.5}}
    made = Scene(tmp_path, server.dsn, kafka, registry, server.name, DEFINITIONS, limits)
    yield made
    made.close()


class Load:
    """Inserts one row after the other."""

    def __init__(self, server: Database) -> None:
        self._server = server
        self.rows = 0

    def __call__(self, stop: Event) -> None:
        with self._server.connect() as connection:
            while not stop.wait(0.01):
                self.rows += 1
                connection.execute("INSERT INTO t VALUES (%s, 0)", [self.rows])

    def wait_for_more(self) -> None:
        before = self.rows
        wait_until(lambda: self.rows > before + 20, 60, "more rows")


def caught_up(server: Database, slot: str) -> None:
    with server.connect() as connection:
        wait_until_confirmed(connection, slot)


def test_a_frozen_leader_that_wakes_stands_by(server: Database, s: Scene) -> None:
    load = Load(server)
    with running(load):
        first = s.project.start()
        first.wait_until_copied()
        second = s.project.start()
        second.wait_until_doing("standby")
        load.wait_for_more()

        os.kill(first.pid, signal.SIGSTOP)
        second.wait_until_copied()
        load.wait_for_more()
        os.kill(first.pid, signal.SIGCONT)
        first.wait_until_doing("standby")
        load.wait_for_more()
        caught_up(server, s.slot)

        assert second.log().count(": streaming ") == 1
        assert "another gateway took over" not in second.log()
        second.kill()
        first.wait_until_doing("streaming")
        load.wait_for_more()
    caught_up(server, s.slot)
    assert first.terminate() == 0
    with server.connect() as connection:
        s.run_to(current_lsn(connection))
    assert s.rebuilt("t") == s.source_rows(PASSING)
    assert_exactly_once(s, ["t"])


def test_two_gateways_under_a_supervisor_never_duel(server: Database, s: Scene) -> None:
    """`PGSLUICE_DUEL_S` says for how long; producer epochs count the takeovers.

    A first start counts twice: the claim of the slot is committed before there is a slot to hold,
    and who has it then begins again: they are counted from when the leader streams.
    """
    load = Load(server)
    starts = 0

    def supervise(stop: Event) -> None:
        nonlocal starts
        process = None
        while not stop.wait(0.2):
            if process is None or process.ended():
                starts += 1
                process = s.project.start()

    with running(load), running(supervise), running(supervise):
        wait_until(lambda: leaders(s) == 1, 60, "a leader")
        caught_up(server, s.slot)
        epoch = producer_epoch(s, server)
        assert epoch is not None
        load.wait_for_more()
        Event().wait(DUEL_S)
        caught_up(server, s.slot)

        logs = "\n".join(process.log()[-3000:] for process in s.project.processes)
        assert producer_epoch(s, server) == epoch, logs
        assert (leaders(s), starts) == (1, 2), logs
    for process in s.project.processes:
        assert process.terminate() == 0
        assert "another gateway took over" not in process.log()
    with server.connect() as connection:
        wait_until_slot_is_free(connection, s.slot)
        s.run_to(current_lsn(connection))
    assert s.rebuilt("t") == s.source_rows(PASSING)
    assert_exactly_once(s, ["t"])


def test_a_gateway_that_stands_by_goes_on_soon(server: Database, s: Scene) -> None:
    """Two seconds after the slot is free, on a machine that has nothing else to do.

    On a slower one the first start, which has more to do, says how long it may take.
    """
    began = time.monotonic()
    first = s.project.start()
    first.wait_until_copied()
    start_s = time.monotonic() - began
    second = s.project.start()
    second.wait_until_doing("standby")
    with server.connect() as connection:
        os.kill(first.pid, signal.SIGKILL)
        query = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s"
        leader = value_of(connection, query, s.slot)
        wait_until(lambda: value_of(connection, query, s.slot) != leader, 60, "the slot", poll_s=0)
        free_at = time.monotonic()
        second.wait_until_doing("streaming", max(2 * BUSY, 2 * start_s) / PATIENCE)
    print(f"streaming {time.monotonic() - free_at:.2f} s after the slot was free")


def leaders(scene: Scene) -> int:
    """How often a gateway has begun to stream."""
    return sum(process.log().count(": streaming ") for process in list(scene.project.processes))


def producer_epoch(scene: Scene, server: Database) -> int | None:
    """The epoch of the gateway's transactional id, as the broker has it; None: never used.

    Source: TransactionLogKey and TransactionLogValue in Kafka's transaction coordinator.
    """
    with server.connect() as connection:
        system = value_of(connection, "SELECT system_identifier FROM pg_control_system()")
    wanted = f"pgsluice-{system}-{server.name}-{scene.slot}".encode()
    topic = "__transaction_state"
    consumer = Consumer(
        {
            "bootstrap.servers": scene.project.bootstrap,
            "group.id": "epochs",
            "enable.auto.commit": False,
            "isolation.level": "read_uncommitted",
        }
    )
    epoch: int | None = None
    try:
        ends = {
            p: consumer.get_watermark_offsets(TopicPartition(topic, p), 60)[1]
            for p in consumer.list_topics(topic, 60).topics[topic].partitions
        }
        left = {p for p, end in ends.items() if end > 0}
        consumer.assign([TopicPartition(topic, p, 0) for p in left])
        while left:
            message = consumer.poll(60)
            assert message is not None and message.error() is None
            partition, offset = message.partition(), message.offset()
            assert partition is not None and offset is not None
            if offset + 1 >= ends[partition]:
                left.discard(partition)
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            if key[4:] == wanted and isinstance(value, bytes):
                _, epoch = struct.unpack_from(">qh", value, 2)
    finally:
        consumer.close()
    return epoch
