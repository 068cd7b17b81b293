"""Kafka is away for long, under load: the server is read and answered, and can stop."""

from __future__ import annotations

import os
import re
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import psycopg
import pytest

from devkit.embedded.kafka import EmbeddedKafka
from tests.support.backends.rack import Rack, RackServer
from tests.support.gateway.process import GatewayProcess
from tests.support.gateway.scene import (
    Scene,
    assert_exactly_once,
    current_lsn,
    reader_pid,
    running,
    value_of,
    wait_until_confirmed,
)
from tests.support.run.waiting import wait_until, within

pytestmark = [pytest.mark.postgres, pytest.mark.kafka, pytest.mark.slow]

DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE t WHERE (a % 2 = 0);"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)
PASSING = "SELECT a, b FROM t WHERE a % 2 = 0"
BUFFER_BYTES = 100_000
OUTAGE_S = float(os.environ.get("PGSLUICE_OUTAGE_S") or 0)
"""How long Kafka is away at least; a gateway in production has to stand half an hour."""


@pytest.fixture
def broker(rack: Rack) -> EmbeddedKafka:
    return rack.broker


@pytest.fixture
def server(rack: Rack) -> RackServer:
    made = rack.server(wal_sender_timeout="6s")
    with made.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
    return made


@pytest.fixture
def s(server: RackServer, broker: EmbeddedKafka, registry: str, tmp_path: Path) -> Iterator[Scene]:
    limits = {
        "max_buffer_bytes": BUFFER_BYTES,
        "max_batch_bytes": BUFFER_BYTES,
        "feedback_interval_s": 0.5,
        "retry_for_s": 300 + OUTAGE_S,
    }
    made = Scene(
        tmp_path,
        server.dsn(),
        broker.bootstrap_servers,
        registry,
        server.name,
        DEFINITIONS,
        {"limits": limits, "gateway": {"spool_directory": "spool"}},
    )
    yield made
    made.close()


class Load:
    """Inserts rows of 1 kB, in many transactions; carries on when the server is back."""

    def __init__(self, server: RackServer) -> None:
        self._server = server
        self.rows = 0

    def __call__(self, stop: Event) -> None:
        while not stop.is_set():
            try:
                with self._server.connect() as connection:
                    while not stop.wait(0.002):
                        self.rows += 1
                        text = "INSERT INTO t VALUES (%s, repeat(md5(%s::text), 32))"
                        connection.execute(text, [self.rows, self.rows])
            except psycopg.OperationalError:
                stop.wait(0.1)

    def wait_for(self, rows: int) -> None:
        """Wait until it has inserted so many more."""
        target = self.rows + rows
        wait_until(lambda: self.rows > target, 120, "more rows")


def test_a_long_outage_is_read_on_disk_and_made_up_for(
    server: RackServer, broker: EmbeddedKafka, s: Scene
) -> None:
    load = Load(server)
    with running(load):
        gateway = s.project.start()
        gateway.wait_until_copied()
        load.wait_for(50)
        reading, before = reader(server, s.slot), memory(gateway, "VmRSS")
        broker.kill()
        load.wait_for(2000)  # twenty times what may wait in memory
        time.sleep(OUTAGE_S)  # the outage itself; nothing to wait for
        behind = (
            "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), sent_lsn) FROM pg_stat_replication"
            f" WHERE pid = {reading}"
        )
        with server.connect() as connection:
            wait_until(
                lambda: value_of(connection, behind) < 10 * BUFFER_BYTES, 60, "it to be read"
            )
        assert reader(server, s.slot) == reading, "the connection stays"
        # What the server has still to send may be as much as that.
        wait_until(lambda: spooled_bytes(gateway) > 5 * BUFFER_BYTES, 60, "it to be on disk")
        broker.restart()
        caught_up(server, s.slot)
    # Without load: a machine that is busy otherwise may always have something on disk.
    wait_until(lambda: spooled_bytes(gateway) == 0, 60, "the disk to be free again")
    assert reader(server, s.slot) == reading
    grown = memory(gateway, "VmHWM") - before
    assert gateway.terminate() == 0
    assert grown < 100 * BUFFER_BYTES, f"{grown} bytes more than before the outage"
    # The sink may have taken another producer; the attempt, with the stream, was one.
    assert gateway.log().count(": streaming ") == 1
    assert_all(server, s)


def test_a_server_can_stop_while_kafka_is_away(
    server: RackServer, broker: EmbeddedKafka, s: Scene
) -> None:
    load = Load(server)
    with running(load):
        gateway = s.project.start()
        gateway.wait_until_copied()
        broker.kill()
        load.wait_for(500)
        # The stopping server asks again and again; after four seconds it is let go.
        with within(10, "the end of the server"):
            server.shut_down()
        server.restart()
        broker.restart()
        load.wait_for(50)
        caught_up(server, s.slot)
    assert gateway.terminate() == 0
    assert_all(server, s)


def test_a_full_disk_pauses_reading_and_the_gateway_goes_on_by_itself(
    server: RackServer, broker: EmbeddedKafka, s: Scene
) -> None:
    load = Load(server)
    with running(load):
        gateway = s.project.start()
        gateway.wait_until_copied()
        reading = reader(server, s.slot)
        # The kernel refuses what makes a file of the gateway larger, as a full disk does.
        unlimited = resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (BUFFER_BYTES, unlimited[1]))
        broker.kill()
        load.wait_for(500)
        gateway.wait_for("spool full")
        load.wait_for(500)
        assert reader(server, s.slot) == reading, "it is answered all the same"
        resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, unlimited)
        gateway.wait_for("spool has room again")
        broker.restart()
        caught_up(server, s.slot)
    assert gateway.terminate() == 0
    assert_all(server, s)


def assert_all(server: RackServer, s: Scene) -> None:
    with server.connect() as connection:
        s.run_to(current_lsn(connection))
    assert s.rebuilt("t") == s.source_rows(PASSING)
    assert_exactly_once(s, ["t"])


def reader(server: RackServer, slot: str) -> object:
    with server.connect() as connection:
        return reader_pid(connection, slot)


def caught_up(server: RackServer, slot: str) -> None:
    with server.connect() as connection:
        wait_until_confirmed(connection, slot, 90 + OUTAGE_S)


def memory(gateway: GatewayProcess, field: str) -> int:
    """VmRSS, or VmHWM, its peak, in bytes."""
    found = re.search(
        rf"^{field}:\s+(\d+) kB", Path(f"/proc/{gateway.pid}/status").read_text(), re.M
    )
    assert found is not None
    return int(found[1]) * 1024


def spooled_bytes(gateway: GatewayProcess) -> int:
    """Bytes of its open files that have no name, as spools have none."""
    sizes = 0
    for link in Path(f"/proc/{gateway.pid}/fd").iterdir():
        try:
            status = link.stat()
            target = link.readlink()
        except OSError:
            continue  # closed meanwhile
        if status.st_nlink == 0 and "spool" in str(target):
            sizes += status.st_size
    return sizes
