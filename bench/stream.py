"""A full slot into Kafka, beside ``pg_recvlogical`` draining the same WAL.

One table, and loads of changes (`bench.cases`); every measurement has a slot of its own that was
made before the load, so each reads all of it, or all but what it takes to warm up. In a repeat they
run one after the other, and the order turns round from repeat to repeat, because a shared machine
drifts. What the gateway has put into Kafka is read back and counted before its time is believed.

The servers are real, local and stopped at the end, also on Ctrl-C.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.cases import CASES, Case
from bench.configuration import configure
from bench.figures import head, report
from bench.load import Expected, Load, Shape
from bench.processes import BenchError, Run, cpu_s, timed
from devkit.embedded.kafka import EmbeddedKafka
from devkit.embedded.postgres import EmbeddedPostgres
from devkit.embedded.registry import EmbeddedRegistry

__all__ = ["measure", "stop_on_sigterm"]

_TIMEOUT_S: Final = 900.0
_SILENCE_S: Final = 30.0
_OPTIONS: Final = {"proto_version": "4", "streaming": "parallel"}
"""What the gateway asks a server of this version for, as its log line "streaming" says."""

_DRAIN: Final = "pg_recvlogical"


class Bench:
    """The servers, and the slots on them."""

    def __init__(self, folder: Path, load: Load, cases: Sequence[Case] = ()) -> None:
        self.folder = folder
        self.load = load
        self.cases = cases
        self.postgres = EmbeddedPostgres(18)
        self.kafka = EmbeddedKafka()
        self.registry = EmbeddedRegistry()

    @contextmanager
    def servers(self) -> Iterator[psycopg.Connection[Any]]:
        """Start them, give a connection, stop them."""
        parts = (self.postgres, self.kafka, self.registry)
        with ExitStack() as stack:
            for part in parts:
                stack.callback(part.stop)
            with ThreadPoolExecutor() as pool:
                for started in [pool.submit(part.start) for part in parts]:
                    started.result()
            yield stack.enter_context(self.postgres.connect())

    def make_slots(self, connection: psycopg.Connection[Any], repeat: int) -> None:
        """Let each gateway make its publications and slot, then add a slot for the drain."""
        for case in self.cases:
            if repeat < (case.most_repeats or repeat + 1):
                self._gateway(case, repeat, endpos="0/1")
        connection.execute(
            "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [f"drain_{repeat}"]
        )

    def run(
        self, case: Case | None, repeat: int, early: str, endpos: str, publications: str
    ) -> Run:
        """Drain the slot of one measurement; None: by ``pg_recvlogical``."""
        if case is None:
            return self._drain(f"drain_{repeat}", endpos, publications)
        if case.warm:
            self._gateway(case, repeat, endpos=early)
        run = self._gateway(case, repeat, endpos=endpos)
        self._verify(case.expected(f"{case.name}_{repeat}", self.load))
        return run

    def _drain(self, slot: str, endpos: str, publications: str) -> Run:
        return timed(
            [
                self.postgres.bin / _DRAIN,
                *("--dbname", self.postgres.dsn(), "--slot", slot, "--start", "--no-loop"),
                *("--endpos", endpos, "--file", os.devnull, "--verbose"),
                *(f"--option={name}={value}" for name, value in _OPTIONS.items()),
                *("--option", f"publication_names={publications}"),
            ],
            first="streaming initiated",
            last=None,
            timeout_s=_TIMEOUT_S,
        )

    def _gateway(self, case: Case, repeat: int, *, endpos: str) -> Run:
        config = self._configure(case, f"{case.name}_{repeat}")
        return timed(
            [sys.executable, "-m", "gateway", "run", "--config", config, "--endpos", endpos],
            first=": streaming ",
            last=": reached endpos ",
            timeout_s=_TIMEOUT_S,
            beside=lambda: self._beside(f"{case.name}_{repeat}"),
        )

    def _beside(self, slot: str) -> dict[str, tuple[int, float]]:
        """The pids of the broker, with what it took before, and of the walsender, which is new."""
        found: dict[str, tuple[int, float]] = {}
        if (broker := self.kafka.pid) is not None:
            found["broker"] = (broker, cpu_s(broker))
        with self.postgres.connect() as connection:
            row = connection.execute(
                "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", [slot]
            ).fetchone()
        if row is not None and row[0] is not None:
            found["walsender"] = (int(str(row[0])), 0.0)
        return found

    def _configure(self, case: Case, name: str) -> Path:
        """Write the configuration of a gateway that shares nothing with the others."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        definitions, more = case.subscriptions(name), {"limits": {"retry_for_s": 20}}
        return configure(folder, name, definitions, self.postgres, self.kafka, self.registry, more)

    def _verify(self, expected: Mapping[str, Expected]) -> None:
        """Count the committed records of the topics, then delete these for their disk space."""
        found = _count_ops(self.kafka.bootstrap_servers, expected)
        for topic, counts in found.items():
            if counts != expected[topic].by_op():
                raise BenchError(f"{topic} has {dict(counts)}, not {expected[topic].by_op()}")
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers, "log_level": 3})
        for deleted in admin.delete_topics(list(expected)).values():
            deleted.result()


def _count_ops(bootstrap: str, topics: Collection[str]) -> dict[str, Counter[str]]:
    """Count the committed records of topics with one partition by their header ``op``."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found: dict[str, Counter[str]] = {topic: Counter() for topic in topics}
    unread = set(topics)
    last = time.monotonic()
    try:
        consumer.assign([TopicPartition(topic, 0, 0) for topic in topics])
        while unread:
            messages = consumer.consume(10_000, timeout=0.2)
            if messages:
                last = time.monotonic()
            elif time.monotonic() - last > _SILENCE_S:
                raise BenchError(f"{min(unread)} cannot be read to its end")
            for message in messages:
                topic = message.topic()
                assert topic is not None
                if (error := message.error()) is not None:
                    if error.code() != KafkaError._PARTITION_EOF:
                        raise BenchError(f"reading {topic}: {error}")
                    unread.discard(topic)
                    continue
                op = dict(message.headers() or [])["op"]
                assert isinstance(op, bytes)
                found[topic][op.decode()] += 1
    finally:
        consumer.close()
    return found


def measure(changes: int, repeats: int, names: Collection[str] = ()) -> None:
    """Start the servers, measure, print; of the cases only those in `names`, where there are any.

    Raises:
        BenchError: a process failed, or Kafka does not hold what it should.
        ServerError: a server did not start.
    """
    loads: dict[tuple[Shape, float], list[Case]] = {}
    for case in CASES:
        if not names or case.name in names:
            loads.setdefault((case.shape, case.share), []).append(case)
    folder = Path(tempfile.mkdtemp(prefix="pgsluice-bench-"))
    bench = Bench(folder, Load(0))
    try:
        _say("starting PostgreSQL, Kafka and the schema registry")
        with bench.servers() as connection:
            head(repeats)
            for cases in loads.values():
                bench.cases, bench.load = cases, cases[0].load(changes)
                report(bench.load, cases, _measure(bench, connection, repeats))
                _clear(connection)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(
    bench: Bench, connection: psycopg.Connection[Any], repeats: int
) -> dict[Case | None, list[Run]]:
    load, cases = bench.load, bench.cases
    repeats = min(repeats, max(case.most_repeats or repeats for case in cases))
    order: list[Case | None] = [None, *cases]
    results: dict[Case | None, list[Run]] = {case: [] for case in order}
    load.prepare(connection)
    for repeat in range(repeats):
        _say(f"making slots, {repeat + 1} of {repeats}")
        bench.make_slots(connection, repeat)
    _say(f"writing {load.changes:,} changes")
    early, endpos = load.write(connection)
    publications = _publications(connection, f"{cases[0].name}_0")
    for repeat in range(repeats):
        for case in order if repeat % 2 == 0 else reversed(order):
            _say(f"repeat {repeat + 1} of {repeats}: {_DRAIN if case is None else case.name}")
            results[case].append(bench.run(case, repeat, early, endpos, publications))
    return results


def _clear(connection: psycopg.Connection[Any]) -> None:
    """Make room for the next load: the table, and slots, of which there are only so many."""
    connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    connection.execute("DROP TABLE orders")


def _publications(connection: psycopg.Connection[Any], slot: str) -> str:
    """The server-side publications of one gateway, as pgoutput's option wants them."""
    rows = connection.execute(
        "SELECT pubname FROM pg_publication WHERE starts_with(pubname, %s) ORDER BY 1", [slot]
    ).fetchall()
    return ",".join(f'"{name}"' for (name,) in rows)


def _say(what: str) -> None:
    print(f"bench: {what}", file=sys.stderr, flush=True)


def stop_on_sigterm() -> None:
    """Let SIGTERM unwind as Ctrl-C does, so that the servers are stopped."""

    def stop(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, stop)
