"""A gateway between servers of its own, under load, with everything that can go wrong at hand.

`Stage` has the parts and the checks; `FAULTS` names what can be done to it. A round does one of
them while the workload runs, waits until the gateway has caught up by itself, and checks all:
every change exactly once, in order, whole transactions, tables as the native judge has them.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Any, Final, Self

import psycopg

from tests.support.backends.proxy import Proxy
from tests.support.backends.rack import Rack
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.process import GatewayProcess
from tests.support.gateway.scene import (
    Scene,
    assert_exactly_once,
    current_lsn,
    reloads,
    running,
    value_of,
    wait_for_reload,
)
from tests.support.run.waiting import wait_until
from tests.support.workloads.dml import PUBLICATIONS, TABLES, Workload

# Without pc: two publications that publish other operations of one table can leave rows behind with
# the native subscriber, which then stops at a conflict.
PUBLISHED: Final = ("pa", "pb", "pd", "pe")
NATIVE_TABLES: Final = (
    "keyed", "filtered", "whole", "bag", "indexed", "toasted", "appended", "parted",
)  # fmt: skip
MOVING: Final = (
    "CREATE TABLE moving (a int PRIMARY KEY, b int, c text);"
    "ALTER TABLE moving REPLICA IDENTITY FULL"
)
CAUGHT_UP_S: Final = 120.0
SLOT: Final = "staged"

FIRST_START_POINTS: Final = (
    "start.claimed",
    "start.slot_made",
    "copy.begun",
    "copy.between_chunks",
    "copy.before_ready",
)
RUNNING_POINTS: Final = (
    "start.slot_taken",
    "start.fenced",
    "sink.produced",
    "sink.before_commit",
    "sink.committed",
    "pipeline.piece_submitted",
)
RELOAD_POINTS: Final = ("copy.announced", "copy.between_chunks", "copy.before_ready")
TAKEOVER_POINTS: Final = (
    "takeover.requested",
    "takeover.claimed",
    "start.topics_claimed",
    "start.offsets_forgotten",
    "copy.announced",
)


@dataclass(frozen=True)
class Usage:
    """Resources that a gateway has."""

    rss_kb: int
    descriptors: int


class Stage:
    """Servers, proxies, the judge, and the gateway; use it with ``with``.

    Args:
        folder: Folder of the configuration.
        rack: The servers that faults are inflicted on.
        registry: URL of a schema registry.
        seed: Seed of the workload.
    """

    def __init__(self, folder: Path, rack: Rack, registry: str, seed: int) -> None:
        self._stack = ExitStack()
        try:
            self._build(folder, rack, registry, seed)
        except BaseException:
            self._stack.close()
            raise

    def _build(self, folder: Path, rack: Rack, registry: str, seed: int) -> None:
        enter = self._stack.enter_context
        self.pick = random.Random(seed)
        self._load_seed = seed
        self.server = rack.postgres
        self.source_proxy = enter(Proxy(self.server.port))
        self.kafka_proxy = rack.kafka_proxy
        self.broker = rack.broker
        self.registry_proxy = enter(Proxy(registry))
        self.database = rack.database(wal_sender_timeout="5s")
        with self.database.connect() as connection:
            connection.execute(
                f"{TABLES} {PUBLICATIONS} {MOVING};"
                "INSERT INTO moving SELECT i, i % 10, repeat('m', 20)"
                " FROM generate_series(1, 4000) i".encode()
            )
            Workload(connection, seed).run(30)
        self.native = NativeSubscription(self.database, rack.databases, TABLES, PUBLISHED)
        dsn = psycopg.conninfo.make_conninfo(
            self.source_proxy.through(self.database.dsn),
            options="-c logical_decoding_work_mem=64kB",
        )
        self.version = 0
        self.scene = Scene(
            folder,
            dsn,
            self.broker.bootstrap_servers,
            registry,
            SLOT,
            "",
            {
                "kafka": {"bootstrap.servers": f"127.0.0.1:{self.kafka_proxy.port}"},
                "registry": {"url": self.registry_proxy.through(registry)},
                "limits": {
                    "progress_interval_s": 0.2,
                    "feedback_interval_s": 0.2,
                    "max_batch_records": 40,
                    "shutdown_timeout_s": 5,
                },
                "copy": {"chunk_rows": 500},
            },
        )
        self._stack.callback(self.scene.close)
        self.set_definitions()
        self.gateway: GatewayProcess

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    # The definitions: one subscription that the native one judges, one whose filter changes.

    @property
    def moving_filter(self) -> str:
        """The filter of table ``moving`` in the definitions that are written."""
        return f"b > {self.version % 7}"

    def set_definitions(self) -> None:
        """Write the definitions of `version`."""
        operations = (
            "insert, update, delete" if self.version % 3 else "insert, update, delete, truncate"
        )
        self.scene.project.definitions = (
            f"{PUBLICATIONS}"
            f"CREATE SUBSCRIPTION {SLOT} CONNECTION '' PUBLICATION {', '.join(PUBLISHED)};"
            f"CREATE PUBLICATION pm FOR TABLE moving WHERE ({self.moving_filter})"
            f" WITH (publish = '{operations}');"
            f"CREATE SUBSCRIPTION {SLOT}_moving CONNECTION '' PUBLICATION pm;"
        )
        self.scene.project.write()

    # The gateway

    def start(self, failpoint: str = "") -> GatewayProcess:
        """Start a gateway, which may be told where to die."""
        return self.scene.project.start(environment={"PGSLUICE_FAILPOINT": failpoint})

    def restart(self) -> None:
        """Start the gateway again after it has ended."""
        self.gateway = self.start()

    def die_at(self, failpoint: str) -> None:
        """Let a gateway run until it dies there."""
        self.gateway = self.start(failpoint)
        # A small transaction may be there as a whole before the sink is free: it makes no piece.
        large = "piece" in failpoint
        with running(self._while_it_lasts(self._rewrite)) if large else nullcontext():
            code = self.gateway.wait(CAUGHT_UP_S)
        assert code == -signal.SIGKILL, f"{failpoint}: ended with {code}:\n{self.gateway.log()}"

    def attempts(self) -> int:
        """How often the gateway has begun to stream."""
        return self.gateway.log().count(": streaming ")

    def usage(self) -> Usage:
        """Return the resources that the gateway has now."""
        folder = Path(f"/proc/{self.gateway.pid}")
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        return Usage(int(status["VmRSS"].split()[0]), len(list((folder / "fd").iterdir())))

    # The workload

    def load(self) -> Any:
        """Everything that writes, for as long as the block lasts."""
        stack = ExitStack()
        for work in (self._mix, self._overlap, self._move):
            stack.enter_context(running(self._while_it_lasts(work)))
        return stack

    def _while_it_lasts(
        self, work: Callable[[psycopg.Connection[Any], Event], None]
    ) -> Callable[[Event], None]:
        def run(stop: Event) -> None:
            while not stop.is_set():
                with suppress(psycopg.OperationalError), self.database.connect() as connection:
                    work(connection, stop)
                stop.wait(0.1)

        return run

    def _mix(self, connection: psycopg.Connection[Any], stop: Event) -> None:
        self._load_seed += 1
        workload = Workload(connection, self._load_seed)
        while not stop.is_set():
            workload.run(1)
            stop.wait(0.01)

    def _overlap(self, connection: psycopg.Connection[Any], stop: Event) -> None:
        """Transactions large enough to be streamed, open while others commit."""
        while not stop.is_set():
            with connection.transaction():
                connection.execute(
                    "INSERT INTO whole SELECT i, i, repeat('z', 2000)"
                    " FROM generate_series(1000, 1060) i"
                    " ON CONFLICT (a) DO UPDATE SET b = whole.b + 1"
                )
                stop.wait(0.05)
                connection.execute("DELETE FROM whole WHERE a > 1050")
            stop.wait(0.3)

    def _move(self, connection: psycopg.Connection[Any], stop: Event) -> None:
        pick = random.Random(self._load_seed)
        while not stop.is_set():
            connection.execute(
                "UPDATE moving SET b = %s WHERE a %% 97 = %s",
                [pick.randrange(10), pick.randrange(97)],
            )
            stop.wait(0.05)

    def _rewrite(self, connection: psycopg.Connection[Any], stop: Event) -> None:
        """Transactions of a hundred times as many rows as a batch has."""
        while not stop.is_set():
            connection.execute("UPDATE moving SET b = (b + 1) % 10")
            stop.wait(1)

    # The checks

    def catch_up(self) -> str:
        """Wait until all that is committed now is in Kafka and confirmed; its end."""
        with self.database.connect() as connection:
            end = current_lsn(connection)
            query = (
                "SELECT max(confirmed_flush_lsn) >= %s::pg_lsn FROM pg_replication_slots"
                " WHERE slot_name = %s"
            )

            def confirmed() -> bool:
                assert not self.gateway.ended(), f"it ended:\n{self.gateway.log()}"
                return bool(value_of(connection, query, end, SLOT))

            wait_until(confirmed, CAUGHT_UP_S, f"{end} to be confirmed")
        return end

    def check(self) -> None:
        """Compare everything; nothing is written meanwhile."""
        with self.database.connect() as connection:
            connection.execute("DELETE FROM keyed WHERE a = 0")  # flushes what was rolled back
        wait_until(self._is_copied, CAUGHT_UP_S, "all tables to be copied")
        self.native.wait_until_applied(self.catch_up())
        for table in NATIVE_TABLES:
            assert self.scene.rebuilt(table) == self.native.rows(table), table
        moving = self.scene.rebuilt("moving", f"{SLOT}_moving")
        assert moving == self.scene.source_rows(f"SELECT * FROM moving WHERE {self.moving_filter}")
        assert_exactly_once(self.scene, NATIVE_TABLES)
        assert_exactly_once(self.scene, ["moving"], f"{SLOT}_moving")

    def _is_copied(self) -> bool:
        assert not self.gateway.ended(), f"it ended:\n{self.gateway.log()}"
        wanted = {SLOT: set(NATIVE_TABLES), f"{SLOT}_moving": {"moving"}}
        for subscription, tables in wanted.items():
            states = {
                marker["copy"]["table"]: marker["copy"]["state"]
                for marker in self.scene.markers(subscription)
                if marker["kind"] == "COPY"
            }
            if any(states.get(table) != "ready" for table in tables):
                return False
        return True


def _moment(stage: Stage, longest_s: float = 1.0) -> None:
    """Let some time pass: the fault shall meet the gateway anywhere, so there is no condition."""
    Event().wait(stage.pick.random() * longest_s)


def kill_the_gateway(stage: Stage) -> None:
    stage.gateway.kill()
    stage.restart()


def kill_the_gateway_while_it_starts(stage: Stage) -> None:
    stage.gateway.kill()
    for _ in range(2):
        gateway = stage.start()
        _moment(stage, 2.0)
        gateway.kill()
    stage.restart()


def terminate_the_gateway(stage: Stage) -> None:
    assert stage.gateway.terminate() == 0, stage.gateway.log()
    stage.restart()


def kill_the_broker(stage: Stage) -> None:
    stage.broker.kill()
    _moment(stage)
    stage.broker.restart()


def shut_the_broker_down(stage: Stage) -> None:
    stage.broker.shut_down()
    _moment(stage)
    stage.broker.restart()


def kill_the_server(stage: Stage) -> None:
    stage.server.kill()
    _moment(stage)
    stage.server.restart()


def shut_the_server_down(stage: Stage) -> None:
    stage.server.shut_down()
    # It would say nothing if it had been killed in the end.
    assert "database system is shut down" in stage.server.log.read_text()[-1000:]
    _moment(stage)
    stage.server.restart()


def reset_the_source(stage: Stage) -> None:
    stage.source_proxy.reset()


def freeze_the_source(stage: Stage) -> None:
    stage.source_proxy.freeze()
    _moment(stage, 10.0)
    stage.source_proxy.thaw()


def reset_kafka(stage: Stage) -> None:
    stage.kafka_proxy.reset()


def freeze_kafka(stage: Stage) -> None:
    stage.kafka_proxy.freeze()
    _moment(stage, 10.0)
    stage.kafka_proxy.thaw()


def take_the_registry_away(stage: Stage) -> None:
    stage.registry_proxy.refuse()
    stage.gateway.kill()
    stage.restart()
    stage.gateway.wait_until_doing("retrying")
    stage.registry_proxy.accept()


def start_a_second_gateway(stage: Stage) -> None:
    """It stands by, and takes over when the first one dies."""
    second = stage.start()
    _moment(stage, 3.0)
    stage.gateway.kill()
    stage.gateway = second


def freeze_the_gateway(stage: Stage) -> None:
    """A second one takes over; when the first one wakes, it harms nobody."""
    first = stage.gateway
    first.send(signal.SIGSTOP)
    stage.gateway = stage.start()
    stage.gateway.wait_until_doing("streaming")
    first.send(signal.SIGCONT)
    stage.catch_up()
    first.kill()


def change_the_definitions(stage: Stage) -> None:
    stage.version += 1
    stage.set_definitions()
    before = reloads(stage.scene)
    stage.gateway.send(signal.SIGHUP)
    wait_for_reload(stage.scene, before)


def die_at(point: str) -> Callable[[Stage], None]:
    def fault(stage: Stage) -> None:
        stage.gateway.kill()
        stage.die_at(f"{point}:{stage.pick.randint(1, 3)}" if "start." not in point else point)
        stage.restart()

    return fault


def die_in_a_reload_at(point: str) -> Callable[[Stage], None]:
    def fault(stage: Stage) -> None:
        stage.gateway.kill()
        stage.version += 1
        stage.set_definitions()
        stage.die_at(point)
        stage.restart()

    return fault


FAULTS: Final[Mapping[str, Callable[[Stage], None]]] = {
    fault.__name__: fault
    for fault in (
        kill_the_gateway,
        kill_the_gateway_while_it_starts,
        terminate_the_gateway,
        kill_the_broker,
        shut_the_broker_down,
        kill_the_server,
        shut_the_server_down,
        reset_the_source,
        freeze_the_source,
        reset_kafka,
        freeze_kafka,
        take_the_registry_away,
        start_a_second_gateway,
        freeze_the_gateway,
        change_the_definitions,
    )
} | {
    **{f"die at {point}": die_at(point) for point in RUNNING_POINTS},
    **{f"die in a reload at {point}": die_in_a_reload_at(point) for point in RELOAD_POINTS},
}
