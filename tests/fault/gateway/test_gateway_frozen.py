"""The gateway as a process, when the network swallows everything and nothing is closed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.backends.proxy import Proxy
from tests.support.backends.servers import Database
from tests.support.gateway.process import GatewayProcess
from tests.support.gateway.scene import Scene, assert_exactly_once, current_lsn, value_of
from tests.support.run.waiting import wait_until, within

pytestmark = [pytest.mark.postgres, pytest.mark.kafka, pytest.mark.slow]

MakeScene = Callable[..., Scene]
DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE t; CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)
TABLE = "CREATE TABLE t (a int PRIMARY KEY, b int)"
TIMEOUT_S = 60.0
SHUTDOWN_S = 2.0
SLACK_S = 7.0
"""The interpreter's end, and what a busy machine adds; far below every limit of a single wait."""


@pytest.fixture
def source(database: Database) -> Iterator[Proxy]:
    """What stands between the gateway and PostgreSQL."""
    with Proxy(database.dsn) as made:
        yield made


@pytest.fixture
def registry_proxy(registry: str) -> Iterator[Proxy]:
    """What stands between the gateway and the registry."""
    with Proxy(registry) as made:
        yield made


@pytest.fixture
def gateway_scene(
    scene: MakeScene, database: Database, source: Proxy, registry_proxy: Proxy, registry: str
) -> Callable[..., Scene]:
    """A scene whose gateway goes through both proxies; `receiver_timeout_s` as given."""

    def make(receiver_timeout_s: float = 60.0) -> Scene:
        return scene(
            DEFINITIONS,
            source={
                "dsn": source.through(database.dsn),
                "slot": f"gw_{database.name}",
                "receiver_timeout_s": receiver_timeout_s,
                "connect_timeout_s": 60,
            },
            registry={"url": registry_proxy.through(registry), "timeout": 60},
            limits={
                "progress_interval_s": 0.2,
                "feedback_interval_s": 0.2,
                "shutdown_timeout_s": SHUTDOWN_S,
            },
        )

    return make


def assert_stops_in_time(gateway: GatewayProcess) -> None:
    with within(SHUTDOWN_S + SLACK_S, "the end of the gateway"):
        assert gateway.terminate() == 0, gateway.log()
    assert "Traceback" not in gateway.log()


def accepts_another(proxy: Proxy) -> Callable[[], bool]:
    before = proxy.accepted
    return lambda: proxy.accepted > before


def test_a_frozen_stream_is_noticed_and_started_again(
    gateway_scene: Callable[..., Scene], database: Database, source: Proxy
) -> None:
    with database.connect() as connection:
        connection.execute(TABLE)
        s = gateway_scene(receiver_timeout_s=2.0)
        gateway = s.project.start()
        gateway.wait_until_copied()
        source.freeze()
        connection.execute("INSERT INTO t VALUES (1, 0)")
        gateway.wait_for("no message from the server")
        source.reset()  # what was under way is lost for good
        source.thaw()
        wait_until(lambda: s.rebuilt("t") == [(1, 0)], TIMEOUT_S, "the row")
        assert_stops_in_time(gateway)
        assert "Traceback" not in gateway.log()
        s.run_to(current_lsn(connection))
    assert_exactly_once(s, ["t"])


def test_connections_that_are_reset_while_the_server_is_there_are_tried_again(
    gateway_scene: Callable[..., Scene], database: Database, source: Proxy
) -> None:
    with database.connect() as connection:
        connection.execute(TABLE)
        s = gateway_scene()
        gateway = s.project.start()
        gateway.wait_until_copied()
        source.freeze()
        source.reset()
        # Its next connections are accepted, hang, and are reset; the one after works.
        for _ in range(3):
            wait_until(lambda: source.connections > 0, TIMEOUT_S, "another connection")
            source.reset()
        source.thaw()
        connection.execute("INSERT INTO t VALUES (1, 0)")
        wait_until(lambda: s.rebuilt("t") == [(1, 0)], TIMEOUT_S, "the row")
        assert_stops_in_time(gateway)


@pytest.mark.parametrize("silent", ["source", "registry_proxy"])
def test_sigterm_ends_a_start_that_gets_no_answer(
    gateway_scene: Callable[..., Scene],
    database: Database,
    silent: str,
    request: pytest.FixtureRequest,
) -> None:
    with database.connect() as connection:
        connection.execute(TABLE)
    s = gateway_scene()
    proxy: Proxy = request.getfixturevalue(silent)
    proxy.freeze()
    connected = accepts_another(proxy)
    gateway = s.project.start()
    wait_until(connected, TIMEOUT_S, "its connection")
    assert_stops_in_time(gateway)


def test_sigterm_ends_a_start_whose_slot_waits_for_an_open_transaction(
    gateway_scene: Callable[..., Scene], database: Database
) -> None:
    with database.connect() as connection, database.connect() as writer:
        connection.execute(TABLE)
        s = gateway_scene()
        writer.execute("BEGIN; INSERT INTO t VALUES (1, 0)")
        gateway = s.project.start()
        slots = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s"
        wait_until(lambda: value_of(connection, slots, s.slot), TIMEOUT_S, "the slot")
        assert_stops_in_time(gateway)
        gone = "the half-made slot to go, the transaction being open still"
        wait_until(lambda: not value_of(connection, slots, s.slot), TIMEOUT_S, gone)


def test_sigterm_ends_a_frozen_stream(
    gateway_scene: Callable[..., Scene], database: Database, source: Proxy
) -> None:
    with database.connect() as connection:
        connection.execute(TABLE)
        s = gateway_scene()
        gateway = s.project.start()
        gateway.wait_until_copied()
        source.freeze()
        connection.execute("INSERT INTO t VALUES (1, 0)")
        assert_stops_in_time(gateway)


def test_sigterm_ends_a_loop_that_gets_no_answer_from_the_registry(
    gateway_scene: Callable[..., Scene], database: Database, registry_proxy: Proxy
) -> None:
    with database.connect() as connection:
        connection.execute(TABLE)
        s = gateway_scene()
        gateway = s.project.start()
        gateway.wait_until_copied()
        registry_proxy.freeze()
        registry_proxy.reset()
        connected = accepts_another(registry_proxy)
        connection.execute("ALTER TABLE t ADD c int; INSERT INTO t VALUES (1, 0, 0)")
        wait_until(connected, TIMEOUT_S, "the schema to be registered")
        assert_stops_in_time(gateway)
        registry_proxy.thaw()
        s.run_to(current_lsn(connection))
    assert s.rebuilt("t") == [(1, 0, 0)]
    assert_exactly_once(s, ["t"])
