"""Every server goes away under load and comes back: the gateway goes on by itself, exactly."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import psycopg
import pytest

from tests.support.backends.proxy import Proxy
from tests.support.backends.rack import Rack, RackServer
from tests.support.gateway.scene import (
    Scene,
    WatermarkWatch,
    assert_exactly_once,
    current_lsn,
    reader_pid,
    running,
    value_of,
    wait_until_confirmed,
)
from tests.support.run.waiting import wait_until, within

pytestmark = [pytest.mark.postgres, pytest.mark.kafka, pytest.mark.slow]

SHUTDOWN_S = 3
SLACK_S = 7
"""Seconds that a busy machine adds to a stop; Kafka's own limits are far above that."""


@pytest.fixture
def proxy(registry: str) -> Iterator[Proxy]:
    with Proxy(registry) as made:
        yield made


@pytest.fixture
def server(rack: Rack) -> RackServer:
    # Short, so that feedback that stops while the broker is away would be noticed; not as short as
    # a gateway may have to wait for CPU.
    return rack.server(wal_sender_timeout="6s")


class Load:
    """Writes rows and moves them in and out of the filter; carries on when the server is back."""

    def __init__(self, server: RackServer) -> None:
        self._server = server
        self.done = 0

    def __call__(self, stop: Event) -> None:
        number = 0
        while not stop.is_set():
            with contextlib.suppress(psycopg.OperationalError), self._server.connect() as c:
                while not stop.wait(0.002):
                    number += 1
                    c.execute("INSERT INTO t VALUES (%s, %s, '')", [number, number % 10])
                    c.execute("UPDATE t SET b = (b + 3) %% 10 WHERE a %% 7 = %s", [number % 7])
                    c.execute("DELETE FROM t WHERE a = %s", [number - 40])
                    self.done += 1
                    stop.wait(0.01)
            stop.wait(0.1)

    def wait_for_more(self) -> None:
        """Wait until it has done some more."""
        before = self.done
        wait_until(lambda: self.done > before + 10, 60, "the load to go on")


def test_registry_broker_and_server_go_away_and_come_back(
    server: RackServer, rack: Rack, proxy: Proxy, registry: str, tmp_path: Path
) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, b int, c text)")
        connection.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    slot, broker = server.name, rack.broker
    s = Scene(
        tmp_path,
        server.dsn(),
        broker.bootstrap_servers,
        registry,
        slot,
        "CREATE PUBLICATION p FOR TABLE t WHERE (b > 4);"
        "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
        {
            "registry": {"url": proxy.through(registry)},
            # Kafka is away for longer than a Kafka transaction may last.
            "kafka": {"transaction.timeout.ms": "4000"},
            "limits": {"feedback_interval_s": 0.2, "shutdown_timeout_s": SHUTDOWN_S},
        },
    )
    load, watch = Load(server), WatermarkWatch(s)
    proxy.refuse()

    def caught_up() -> None:
        with server.connect() as c:
            wait_until_confirmed(c, slot)

    def reader() -> object:
        with server.connect() as c:
            return reader_pid(c, slot)

    def outlasted_the_timeout() -> Callable[[], bool]:
        with server.connect() as c:
            start = value_of(c, "SELECT clock_timestamp()")

        def passed() -> bool:
            with server.connect() as c:
                return bool(value_of(c, "SELECT clock_timestamp() - %s > '9s'", start))

        return passed

    try:
        with running(load):
            gateway = s.project.start()
            gateway.wait_until_doing("retrying")
            gateway.wait_for("schema registry")  # it says so after it is in that phase
            proxy.accept()
            gateway.wait_until_copied()
            with running(watch):
                load.wait_for_more()

                reading = reader()
                with watch.looking:
                    broker.kill()
                    wait_until(outlasted_the_timeout(), 60, "more than wal_sender_timeout to pass")
                    load.wait_for_more()
                    assert reader() == reading, "feedback goes on without Kafka"
                    broker.restart()
                caught_up()
                assert reader() == reading, "the stream outlasts Kafka's absence"

                server.kill()
                server.restart()
                load.wait_for_more()
                caught_up()
            load.wait_for_more()
            # Stopping takes no longer because Kafka is away.
            broker.kill()
            load.wait_for_more()
            with within(SHUTDOWN_S + SLACK_S, "the end of the gateway"):
                assert gateway.terminate() == 0, gateway.log()
        broker.restart()
        with server.connect() as connection:
            s.run_to(current_lsn(connection))
        assert s.rebuilt("t") == s.source_rows("SELECT * FROM t WHERE b > 4")
        assert_exactly_once(s, ["t"])
        assert watch.looks > 0
    finally:
        s.close()
