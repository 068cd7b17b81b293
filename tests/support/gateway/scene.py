"""Scene of fault and gateway tests: one database, one gateway, and the contract as assertions."""

from __future__ import annotations

import io
import logging
import os
import re
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from gateway.cli import main
from gateway.core.lsn import parse_lsn
from tests.support.backends.broker import await_visible
from tests.support.backends.servers import Database
from tests.support.gateway.process import PROMPT, GatewayProject, Read, TopicReader
from tests.support.models.rebuild import Rebuilt
from tests.support.run.waiting import PATIENCE, wait_until

Connection = psycopg.Connection[tuple[Any, ...]]
TIMEOUT_S = 60.0
IN_TIME = ("--timeout", str(300 * PATIENCE))
"""Arguments of a command that waits for a Spark job, on a machine that may be busy."""


@dataclass(frozen=True)
class Ended:
    """A command that was run in this process."""

    code: int
    out: str
    err: str


def cli(*arguments: str, environment: Mapping[str, str] | None = None) -> Ended:
    """Run a command in this process, which is much faster than starting one."""
    out, err = io.StringIO(), io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    with redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        for name, value in (environment or {}).items():
            patch.setenv(name, value)
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
    return Ended(code, out.getvalue(), err.getvalue())


def unhurried(err: str) -> str:
    """Return standard error without the lines of steps that took long, on a slow machine."""
    return re.sub(
        r"^(reading the definitions,|waiting for the gateway to) .*\n", "", err, flags=re.M
    )


class Scene:
    """A gateway project on one database. `{s}` in the definitions is the slot's name.

    The slot's name is also the first part of every subscription, so that topics are the test's own.
    """

    def __init__(
        self,
        folder: Path,
        dsn: str,
        bootstrap: str,
        registry: str,
        slot: str,
        definitions: str,
        extra: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.slot = slot
        self.job: Callable[[str, str], list[tuple[Any, ...]]] | None = None
        self.dsn = dsn
        folder.mkdir(exist_ok=True)
        self.project = GatewayProject(
            folder,
            dsn,
            bootstrap,
            registry,
            slot,
            definitions.replace("{s}", slot),
            extra or {},
        )
        self.reader = TopicReader(bootstrap, registry)
        self._admin = AdminClient({**PROMPT, "bootstrap.servers": bootstrap})

    def cli(self, *arguments: str, environment: Mapping[str, str] | None = None) -> Ended:
        """Run a command with this configuration in this process."""
        return cli(*arguments, "--config", str(self.project.write()), environment=environment)

    def run_to(self, endpos: str) -> Ended:
        """``run --endpos`` in this process; it must end with 0."""
        ended = self.cli("run", "--endpos", endpos)
        assert ended.code == 0, ended.err
        places = [
            TopicPartition(name, p)
            for name, topic in self._admin.list_topics(timeout=60).topics.items()
            if name.startswith(self.slot)
            for p in topic.partitions
        ]
        await_visible(self._admin, places)
        return ended

    def topic(self, table: str, subscription: str | None = None) -> str:
        """The topic of a table in schema public."""
        return f"{subscription or self.slot}.public.{table}"

    def read(self, table: str, subscription: str | None = None) -> list[Read]:
        """All records of a table's topic."""
        return self.reader.read(self.topic(table, subscription))

    def uncommitted_end(self, table: str) -> int:
        """The end offset of a table's one partition, records of open transactions included."""
        return self.reader.uncommitted_end(self.topic(table), 0)

    def markers(self, subscription: str | None = None) -> list[dict[str, Any]]:
        """The markers of a subscription; none while the topic does not exist."""
        topic = f"{subscription or self.slot}.transaction"
        if not self.reader.has(topic):
            return []
        return [record.value for record in self.reader.read(topic) if record.value is not None]

    def rebuilt(self, table: str, subscription: str | None = None) -> list[tuple[Any, ...]]:
        """The table as its topic's records make it, each of its partitions folded by itself.

        With PGSLUICE_REBUILT_BY, the table that the Spark job makes of them in that format.
        """
        if self.job is not None:
            return self.job(subscription or self.slot, table)
        partitions: dict[int, list[Read]] = defaultdict(list)
        for record in self.read(table, subscription):
            partitions[record.partition].append(record)
        rows = [row for part in partitions.values() for row in Rebuilt().apply(part).rows()]
        return sorted(rows, key=repr)

    def source_rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the answer of the source server, sorted as `rebuilt` sorts."""
        with self.connect() as connection:
            return sorted(connection.execute(query.encode()).fetchall(), key=repr)

    def connect(self) -> Connection:
        """An autocommit connection to the source."""
        return psycopg.connect(self.dsn, autocommit=True)

    def close(self) -> None:
        """End what still runs."""
        self.project.stop_all()
        self.reader.close()


@pytest.fixture
def scene(
    tmp_path: Path,
    database: Database,
    kafka: str,
    registry: str,
    request: pytest.FixtureRequest,
) -> Iterator[Callable[..., Scene]]:
    """Make a scene on the shared servers: ``scene(definitions, limits={...})``."""
    made: list[Scene] = []

    def make(definitions: str, /, **extra: Mapping[str, Any]) -> Scene:
        slot = f"gw_{database.name}"
        made.append(Scene(tmp_path, database.dsn, kafka, registry, slot, definitions, extra))
        if kind := os.environ.get("PGSLUICE_REBUILT_BY"):
            from tests.support.spark.rebuilt_by_job import by_job

            made[-1].job = by_job(request.getfixturevalue("spark"), made[-1], kind)
        return made[-1]

    yield make
    for one in made:
        one.close()


def current_lsn(connection: Connection) -> str:
    """The end of everything committed so far."""
    row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return str(row[0])


def value_of(connection: Connection, query: str, *parameters: object) -> Any:
    """The one value of a query."""
    row = connection.execute(query.encode(), parameters).fetchone()
    assert row is not None
    return row[0]


def wait_until_slot_is_free(connection: Connection, slot: str) -> None:
    """Wait until the server has noticed that the gateway has gone."""
    query = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
    wait_until(lambda: not value_of(connection, query, slot), TIMEOUT_S, "the slot to be free")


def reader_pid(connection: Connection, slot: str) -> Any:
    """The server's process that sends the stream; None while nobody reads."""
    query = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s"
    return value_of(connection, query, slot)


def wait_until_confirmed(connection: Connection, slot: str, within_s: float = 90) -> None:
    """Wait until everything written so far is confirmed."""
    end = current_lsn(connection)
    query = (
        "SELECT EXISTS (SELECT FROM pg_replication_slots"
        " WHERE slot_name = %s AND confirmed_flush_lsn >= %s::pg_lsn)"
    )
    wait_until(lambda: value_of(connection, query, slot, end), within_s, "the gateway to catch up")


def wait_for_copy_marker(
    scene: Scene, table: str, state: str, subscription: str | None = None
) -> None:
    """Wait until a COPY marker of this state has been committed."""

    def seen() -> bool:
        return any(
            m["kind"] == "COPY" and (m["copy"]["table"], m["copy"]["state"]) == (table, state)
            for m in scene.markers(subscription)
        )

    wait_until(seen, TIMEOUT_S, f"the copy of {table} to be {state}")


def reloads(scene: Scene) -> int:
    """How often changed definitions have come into force, by the subscription's markers."""
    return sum(marker["kind"] == "RELOAD" for marker in scene.markers())


def wait_for_reload(scene: Scene, more_than: int = 0) -> None:
    """Wait until definitions have come into force more often than that."""
    wait_until(lambda: reloads(scene) > more_than, TIMEOUT_S, "definitions to come into force")


def assert_exactly_once(
    scene: Scene, tables: Iterable[str], subscription: str | None = None
) -> None:
    """No record twice, and every marker's counts and offsets as the topics have them.

    A consumer that cuts by the markers (docs/envelope.md) relies on nothing else.
    """
    counted: dict[str, Counter[int]] = {}
    offsets: dict[tuple[str, int], list[int]] = {}
    for table in tables:
        topic = scene.topic(table, subscription)
        counted[topic] = Counter()
        for partition, records in _by_partition(scene.reader.read(topic)).items():
            rows = [record for record in records if record.value is not None]
            _assert_no_duplicates(rows)
            offsets[topic, partition] = [record.offset for record in records]
            counted[topic].update(
                parse_lsn(r.headers["commit_lsn"]) for r in rows if int(r.headers["seq"]) > 0
            )
    ends: dict[str, Counter[int]] = defaultdict(Counter)
    promised: dict[tuple[str, int], list[int]] = defaultdict(list)
    behind: dict[tuple[str, int], int] = {}
    published = 0
    markers = scene.markers(subscription)
    for marker in markers:
        if marker["kind"] == "END":
            assert marker["end_lsn"] > published, "an END after the PROGRESS that covers it"
            for count in marker["topics"]:
                ends[count["topic"]][marker["commit_lsn"]] += count["records"]
        if marker["kind"] == "PROGRESS":
            published = max(published, marker["end_lsn"])
        for span in marker["offsets"]:
            place = (span["topic"], span["partition"])
            if place not in behind:  # at 0, or after what an aborted transaction has left
                assert bisect_left(offsets[place], span["previous_offset"]) == 0
                behind[place] = span["previous_offset"]
            assert span["previous_offset"] == behind[place]
            assert span["first_offset"] >= span["previous_offset"]
            behind[place] = span["next_offset"]
            begin = bisect_left(offsets[place], span["first_offset"])
            covered = offsets[place][begin : bisect_left(offsets[place], span["next_offset"])]
            assert covered[0] == span["first_offset"]
            assert covered[-1] + 1 == span["next_offset"]
            assert len(covered) == span["records"]
            promised[place] += covered
    assert {t: c for t, c in ends.items() if c} == {t: c for t, c in counted.items() if c}
    assert promised == offsets
    assert markers[-1]["kind"] == "PROGRESS"


def _by_partition(records: Iterable[Read]) -> dict[int, list[Read]]:
    found: dict[int, list[Read]] = defaultdict(list)
    for record in records:
        found[record.partition].append(record)
    return found


def _assert_no_duplicates(records: Iterable[Read]) -> None:
    """Every change once; a row of a copy may come twice at one position, as the same row."""
    seen: Counter[tuple[Any, ...]] = Counter()
    copied: dict[tuple[Any, ...], Any] = {}
    for record in records:
        if int(record.headers["seq"]) > 0:
            seen[record.position] += 1
        elif record.op == "t":
            copied.clear()  # a copy that begins, perhaps again
        elif record.key is not None and not has_whole_row_key(record):
            row = (record.value or {}).get("after")
            place = (record.position, str(record.key))
            assert copied.setdefault(place, row) == row, f"{place} is copied as two rows"
    twice = [place for place, number in seen.items() if number > 1]
    assert not twice, f"{len(twice)} records twice, the first at {twice[:5]}"


def has_whole_row_key(record: Read) -> bool:
    """Whether its key is the row, for want of a primary key under REPLICA IDENTITY FULL."""
    row = (record.value or {}).get("after") or {}
    return set(record.key or ()) == set(row)


@contextmanager
def running(work: Callable[[Event], None]) -> Any:
    """Run `work` in a thread until the block ends; its failure is the block's failure."""
    stop = Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work(stop)
        except BaseException as error:
            failed.append(error)

    thread = Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(TIMEOUT_S * PATIENCE)
    assert not thread.is_alive()
    if failed:
        raise failed[0]


class WatermarkWatch:
    """Looks again and again whether PostgreSQL was told more than Kafka has committed.

    Attributes:
        looking: Hold it while the broker is away.
        looks: How many there were.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.looking = Lock()
        self.looks = 0
        self._watermark = 0

    def __call__(self, stop: Event) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._scene.project.bootstrap,
                "group.id": "watch",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        try:
            consumer.assign([TopicPartition(f"{self._scene.slot}.progress", 0, 0)])
            while not stop.is_set():
                # The server may be down, which is what these tests are about.
                with self.looking, suppress(psycopg.OperationalError):
                    self._look(consumer, stop)
                stop.wait(0.3)
        finally:
            consumer.close()

    def _look(self, consumer: Consumer, stop: Event) -> None:
        with self._scene.connect() as connection:
            text = value_of(
                connection,
                "SELECT max(confirmed_flush_lsn)::text FROM pg_replication_slots"
                " WHERE slot_name = %s",
                self._scene.slot,
            )
        if text is None:
            return
        # Read after it: the watermark only grows, and what it must have reached is committed.
        confirmed, deadline = parse_lsn(text), time.monotonic() + TIMEOUT_S * PATIENCE
        while self._watermark < confirmed and not stop.is_set():
            assert time.monotonic() < deadline, "confirmed what is not in Kafka"
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                value = self._scene.reader.decode(message.value())
                if value is not None and value["position"] is not None:
                    self._watermark = max(self._watermark, int(value["position"]["end_lsn"]))
        self.looks += 1
