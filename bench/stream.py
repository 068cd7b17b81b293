"""A full slot into Kafka, beside ``pg_recvlogical`` draining the same WAL.

One table, one subscription, one load of changes; every measurement has a slot of its own that was
made before the load, so each reads all of it. In a repeat they run one after the other, and the
order turns round from repeat to repeat, because a shared machine drifts. What the gateway has put
into Kafka is read back and counted before its time is believed.

The servers are real, local and stopped at the end, also on Ctrl-C.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import psycopg
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.load import CHANGES_PER_TRANSACTION, SELECTED, Expected, Load
from bench.processes import BenchError, Run, timed
from gateway.embedded.kafka import EmbeddedKafka
from gateway.embedded.postgres import EmbeddedPostgres
from gateway.embedded.registry import EmbeddedRegistry

__all__ = ["measure", "stop_on_sigterm"]

_TIMEOUT_S: Final = 900.0
_OPTIONS: Final = {"proto_version": "4", "streaming": "parallel"}
"""What the gateway asks a server of this version for, as its log line "streaming" says."""

_DRAIN: Final = "pg_recvlogical"


@dataclass(frozen=True, slots=True)
class Case:
    """A subscription to measure.

    Attributes:
        title: For the table of results.
        where: Its row filter, by the id alone.
        passes: The same filter, for counting what must be in Kafka.
    """

    name: str
    title: str
    where: str
    passes: Callable[[int], bool]


CASES: Final = (
    Case("all", "gateway, every row passes", "id > 0", lambda i: i > 0),
    Case(
        "one",
        f"gateway, 1 row in {SELECTED} passes",
        f"id % {SELECTED} = 0",
        lambda i: i % SELECTED == 0,
    ),
)


class Bench:
    """The servers, and the slots on them."""

    def __init__(self, folder: Path, load: Load) -> None:
        self.folder = folder
        self.load = load
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
        for case in CASES:
            self._gateway(case, repeat, endpos="0/1")
        connection.execute(
            "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [f"drain_{repeat}"]
        )

    def run(self, name: str, repeat: int, endpos: str, publications: str) -> Run:
        """Drain the slot of one measurement."""
        if name == _DRAIN:
            return self._drain(f"drain_{repeat}", endpos, publications)
        (case,) = (case for case in CASES if case.name == name)
        run = self._gateway(case, repeat, endpos=endpos)
        self._verify(f"{name}_{repeat}.public.orders", self.load.expected(case.passes))
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
        )

    def _configure(self, case: Case, name: str) -> Path:
        """Write the configuration of a gateway that shares nothing with the others."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "replication.sql").write_text(
            f"CREATE PUBLICATION p FOR TABLE orders WHERE ({case.where});\n"
            f"CREATE SUBSCRIPTION {name} CONNECTION '' PUBLICATION p;\n"
        )
        tables: Mapping[str, Mapping[str, str | int]] = {
            "source": {"dsn": self.postgres.dsn(), "slot": name},
            "definitions": {"file": "replication.sql"},
            "kafka": {"bootstrap.servers": self.kafka.bootstrap_servers},
            "registry": {"url": self.registry.url},
            "gateway": {"name": name},
            "limits": {"retry_for_s": 20},
        }
        lines: list[str] = []
        for table, values in tables.items():
            lines.append(f"[{table}]")
            lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in values.items()]
        path = folder / "pgsluice.toml"
        path.write_text("\n".join(lines) + "\n")
        return path

    def _verify(self, topic: str, expected: Expected) -> None:
        """Count the committed records of the stream, then delete the topic for its disk space."""
        found = Counter(_ops(self.kafka.bootstrap_servers, topic))
        for copied in ("t", "r"):
            del found[copied]
        if found != expected.by_op():
            raise BenchError(f"{topic} has {dict(found)}, not {expected.by_op()}")
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})
        admin.delete_topics([topic])[topic].result()


def _ops(bootstrap: str, topic: str) -> Iterator[str]:
    """The header ``op`` of every committed record of a topic with one partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            messages = consumer.consume(10_000, timeout=10.0)
            if not messages:
                raise BenchError(f"{topic} cannot be read to its end")
            for message in messages:
                if (error := message.error()) is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        return
                    raise BenchError(f"reading {topic}: {error}")
                op = dict(message.headers() or [])["op"]
                assert isinstance(op, bytes)
                yield op.decode()
    finally:
        consumer.close()


def measure(changes: int, repeats: int) -> None:
    """Start the servers, measure, print.

    Raises:
        BenchError: a process failed, or Kafka does not hold what it should.
        ServerError: a server did not start.
    """
    load = Load(changes)
    order = [_DRAIN, *(case.name for case in CASES)]
    results: dict[str, list[Run]] = {name: [] for name in order}
    folder = Path(tempfile.mkdtemp(prefix="pgsluice-bench-"))
    bench = Bench(folder, load)
    try:
        _say("starting PostgreSQL, Kafka and the schema registry")
        with bench.servers() as connection:
            load.prepare(connection)
            for repeat in range(repeats):
                _say(f"making slots, {repeat + 1} of {repeats}")
                bench.make_slots(connection, repeat)
            _say(f"writing {load.changes:,} changes")
            endpos = load.write(connection)
            publications = _publications(connection, f"{CASES[0].name}_0")
            for repeat in range(repeats):
                for name in order if repeat % 2 == 0 else reversed(order):
                    _say(f"repeat {repeat + 1} of {repeats}: {name}")
                    results[name].append(bench.run(name, repeat, endpos, publications))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _report(load, results)


def _publications(connection: psycopg.Connection[Any], slot: str) -> str:
    """The server-side publications of one gateway, as pgoutput's option wants them."""
    rows = connection.execute(
        "SELECT pubname FROM pg_publication WHERE starts_with(pubname, %s) ORDER BY 1", [slot]
    ).fetchall()
    return ",".join(f'"{name}"' for (name,) in rows)


def _say(what: str) -> None:
    print(f"bench: {what}", file=sys.stderr, flush=True)


def _report(load: Load, results: Mapping[str, Sequence[Run]]) -> None:
    repeats = len(results[_DRAIN])
    print(
        f"\n{load.changes:,} changes in transactions of {CHANGES_PER_TRANSACTION}, seven columns; "
        f"repeated {repeats} times: median (least-most)\n"
        f"PostgreSQL 18, fsync off; Python {platform.python_version()}, {os.cpu_count()} CPUs, "
        f"load average {os.getloadavg()[0]:.1f}\n"
    )
    print(f"{'':30}{'rows/s':>28}{'of pg_recvlogical':>24}{'CPU us/row':>24}{'peak MiB':>10}")
    drained = [load.changes / run.wall_s for run in results[_DRAIN]]
    titles = {_DRAIN: _DRAIN, **{case.name: case.title for case in CASES}}
    for name, runs in results.items():
        rates = [load.changes / run.wall_s for run in runs]
        ratios = [rate / base for rate, base in zip(rates, drained, strict=True)]
        cpus = [run.cpu_s / load.changes * 1e6 for run in runs]
        peaks = [run.peak_rss for run in runs if run.peak_rss is not None]
        print(
            f"{titles[name]:30}{_spread(rates, ',.0f'):>28}{_spread(ratios, '.3f'):>24}"
            f"{_spread(cpus, '.1f'):>24}{f'{max(peaks) / 2**20:.0f}' if peaks else '':>10}"
        )
    starts = [run.start_cpu_s for case in CASES for run in results[case.name]]
    print(f"\nCPU of a gateway before its stream, not counted above: {median(starts):.2f} s")


def _spread(values: Sequence[float], form: str) -> str:
    return f"{median(values):{form}} ({min(values):{form}}-{max(values):{form}})"


def stop_on_sigterm() -> None:
    """Let SIGTERM unwind as Ctrl-C does, so that the servers are stopped."""

    def stop(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, stop)
