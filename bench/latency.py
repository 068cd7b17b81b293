"""From a commit in PostgreSQL to the record in a consumer's hands: ``python -m bench.latency``.

Every transaction inserts one row whose key is the clock before it was sent, so the time includes
INSERT and COMMIT. The consumer reads committed records only. First one transaction at a time, into
tables that differ in who evaluates their filter, in turns; then a writer of its own at some rates.
Beside them, what a bare producer takes on the same broker, one record at a time and at these rates:
it commits what is due as soon as it has committed what was before.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import psycopg
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.configuration import configure
from bench.processes import BenchError
from bench.stream import stop_on_sigterm
from devkit.embedded.kafka import EmbeddedKafka
from devkit.embedded.postgres import EmbeddedPostgres
from devkit.embedded.registry import EmbeddedRegistry

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

ROUNDS: Final = 300
RATES: Final = (100, 1_000, 3_000)
SECONDS: Final = 10
SUBSCRIPTIONS: Final = 100
TABLES: Final = {
    "unfiltered": "no filter",
    "here": "a filter that is evaluated here",
    "asked": "a filter that the server evaluates",
    "many": f"{SUBSCRIPTIONS} subscriptions, their filters evaluated by the server",
}
ONE: Final = (
    "CREATE PUBLICATION p FOR TABLE unfiltered, here WHERE (a > 0), asked WHERE (b ~ '^x');\n"
    "CREATE SUBSCRIPTION one CONNECTION '' PUBLICATION p;\n"
)
DEFINITIONS: Final = "".join(
    [
        ONE,
        *(
            f"CREATE PUBLICATION m{number} FOR TABLE many WHERE (b ~ '^x{number}$');\n"
            f"CREATE SUBSCRIPTION s{number} CONNECTION '' PUBLICATION m{number};\n"
            for number in range(SUBSCRIPTIONS)
        ),
    ]
)
TOPICS: Final = {name: f"{'s7' if name == 'many' else 'one'}.public.{name}" for name in TABLES}
_TIMEOUT_S: Final = 60.0
_START_S: Final = 180.0
_WARM_UP: Final = 10
_EMPTY: Final = "bench.transactions"


def main() -> int:
    """Measure and print."""
    stop_on_sigterm()
    print(f"\n{os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f}; milliseconds")
    print(f"{'':70}{'median':>9}{'99 %':>9}{'most':>9}")
    with running(ONE) as (server, kafka):
        print_times("a Kafka transaction of one record, and reading it", _kafka_alone(kafka))
        for rate in RATES:
            print_times(f"Kafka alone, {rate:,} records a second", _kafka_at_rate(kafka, rate))
        _report_rates(server, kafka, "one subscription")
    with running(DEFINITIONS) as (server, kafka):
        _report_one_at_a_time(server, kafka)
        _report_rates(server, kafka, f"{SUBSCRIPTIONS} more are idle")
    return 0


def _report_one_at_a_time(server: EmbeddedPostgres, kafka: EmbeddedKafka) -> None:
    with server.connect() as connection:
        alone = _one_at_a_time(connection, kafka)
    for name, title in TABLES.items():
        print_times(f"one at a time, {title}", alone[name])


def _report_rates(server: EmbeddedPostgres, kafka: EmbeddedKafka, who: str) -> None:
    for rate in RATES:
        times = at_rate(server, kafka, rate)
        reached = len(times) / SECONDS
        print_times(f"{rate:,} transactions a second ({reached:,.0f} reached), {who}", times)


def print_times(title: str, times: Sequence[float]) -> None:
    """Print median, 99th percentile and the most of some times in seconds, as milliseconds."""
    ordered = [seconds * 1000 for seconds in sorted(times)]
    median, high = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    print(f"{title:70}{median:9.2f}{high:9.2f}{ordered[-1]:9.2f}", flush=True)


def _one_at_a_time(
    connection: psycopg.Connection[tuple[object, ...]], kafka: EmbeddedKafka
) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in TABLES}
    with ExitStack() as stack:
        readers = {
            name: stack.enter_context(closing(Reader(kafka, topic)))
            for name, topic in TOPICS.items()
        }
        for number in range(ROUNDS + _WARM_UP):
            for name in TABLES:
                sent = time.monotonic_ns()
                connection.execute(f"INSERT INTO {name} VALUES (%s, 'x7')".encode(), [sent])
                passed = readers[name].seconds_since(sent)
                if number >= _WARM_UP:
                    times[name].append(passed)
    return times


def at_rate(server: EmbeddedPostgres, kafka: EmbeddedKafka, rate: int) -> list[float]:
    """Return the seconds that rows of `unfiltered` take that another process writes meanwhile."""
    with closing(Reader(kafka, TOPICS["unfiltered"])) as reader:
        writer = subprocess.Popen(
            [sys.executable, "-m", "bench.latency", server.dsn(), str(rate), str(SECONDS)],
            stdout=subprocess.PIPE,
        )
        try:
            # The writer says how many it has written only at its end.
            with ThreadPoolExecutor(1) as pool:
                said = pool.submit(writer.communicate)
                times: list[float] = []
                while not said.done() or len(times) < int(said.result()[0]):
                    found = reader.poll(0.1)
                    if found is not None and reader.counts(found[0]):
                        times.append(found[1])
                return times
        finally:
            writer.kill()
            writer.wait()


def write(dsn: str, rate: int, seconds: int) -> int:
    """Insert at `rate`; a writer that falls behind does not hurry afterwards. Prints the number."""
    written = 0
    with psycopg.connect(dsn, autocommit=True) as connection:
        began = due = time.monotonic()
        while (now := time.monotonic()) < began + seconds:
            if now < due:
                time.sleep(due - now)
            connection.execute("INSERT INTO unfiltered VALUES (%s, 'x7')", [time.monotonic_ns()])
            written += 1
            due = max(due + 1 / rate, time.monotonic() - 0.01)
    print(written)
    return 0


def _producer(kafka: EmbeddedKafka) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "transactional.id": "bench",
            "linger.ms": 0,
        }
    )
    producer.init_transactions(_TIMEOUT_S)
    return producer


def _produce(producer: Producer, keys: Sequence[int]) -> None:
    """Produce records in a Kafka transaction of their own."""
    producer.begin_transaction()
    for key in keys:
        producer.produce(_EMPTY, key=b"\0\0\0\0\0" + _zigzag(key), value=b"", partition=0)
    producer.commit_transaction(_TIMEOUT_S)


def _kafka_at_rate(kafka: EmbeddedKafka, rate: int) -> list[float]:
    """The same at a rate; what is due while a Kafka transaction is committed goes with the next."""
    producer = _producer(kafka)
    wanted = rate * SECONDS

    def produce() -> None:
        began, sent = time.monotonic_ns(), 0
        while sent < wanted:
            passed_s = (time.monotonic_ns() - began) / 1e9
            due = min(wanted, int(passed_s * rate))
            if due == sent:
                time.sleep((sent + 1) / rate - passed_s)
                continue
            keys = [began + number * 1_000_000_000 // rate for number in range(sent + 1, due + 1)]
            _produce(producer, keys)
            sent = due

    times: list[float] = []
    with closing(Reader(kafka, _EMPTY)) as reader, ThreadPoolExecutor(1) as pool:
        producing = pool.submit(produce)
        while len(times) < wanted:
            if (found := reader.poll(0.1)) is not None:
                times.append(found[1])
            elif producing.done():
                producing.result()
    return times


def _kafka_alone(kafka: EmbeddedKafka) -> list[float]:
    """What gateway and consumer cannot go below: begin, one record, commit, received."""
    producer = _producer(kafka)
    times: list[float] = []
    with closing(Reader(kafka, _EMPTY)) as reader:
        for number in range(ROUNDS + _WARM_UP):
            key = time.monotonic_ns()
            _produce(producer, [key])
            passed = reader.seconds_since(key)
            if number >= _WARM_UP:
                times.append(passed)
    return times


class Reader:
    """Committed records of a topic from its end on."""

    def __init__(self, kafka: EmbeddedKafka, topic: str) -> None:
        self._topic = topic
        self._started = time.monotonic_ns()
        self._consumer = Consumer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "group.id": "bench",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        end = self._consumer.get_watermark_offsets(TopicPartition(topic, 0), _TIMEOUT_S)[1]
        self._consumer.assign([TopicPartition(topic, 0, end)])

    def close(self) -> None:
        """End the connection."""
        self._consumer.close()

    def poll(self, timeout_s: float) -> tuple[int, float] | None:
        """The key of the next record, which is a time, and the seconds since then."""
        message = self._consumer.poll(timeout_s)
        if message is None:
            return None
        key = message.key()
        if message.error() is None and key is None:
            return 0, 0.0  # the `t` with which a copy begins
        if message.error() is not None or not isinstance(key, bytes):
            raise BenchError(f"{self._topic} cannot be read: {message.error()}")
        sent = _from_zigzag(key[5:])
        return sent, (time.monotonic_ns() - sent) / 1e9

    def counts(self, sent: int) -> bool:
        """Whether it was sent since the start, and is no part of the copy."""
        return sent >= self._started

    def seconds_since(self, sent: int) -> float:
        """Wait for the record with this key, the next one that was sent since the start."""
        # A copied row may stand before it: what is committed is readable a moment later.
        found = self.poll(_TIMEOUT_S)
        while found is not None and not self.counts(found[0]):
            found = self.poll(_TIMEOUT_S)
        if found is None or found[0] != sent:
            raise BenchError(f"{self._topic} does not have the record that is awaited")
        return found[1]


def _zigzag(number: int) -> bytes:
    number, encoded = number << 1, bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


def _from_zigzag(encoded: bytes) -> int:
    return sum((byte & 127) << 7 * place for place, byte in enumerate(encoded)) >> 1


@contextmanager
def running(
    definitions: str, prepare: Callable[[Connection], object] | None = None
) -> Iterator[tuple[EmbeddedPostgres, EmbeddedKafka]]:
    """Run servers, and a gateway that has copied the tables that `prepare` makes."""
    server, kafka, registry = EmbeddedPostgres(18), EmbeddedKafka(), EmbeddedRegistry()
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="pgsluice-bench-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        for part in (server, kafka, registry):
            stack.callback(part.stop)
        with ThreadPoolExecutor() as pool:
            for started in [pool.submit(part.start) for part in (server, kafka, registry)]:
                started.result()
        with server.connect() as connection:
            (prepare or _prepare)(connection)
        # It outlives the broker, and would complain of that.
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 2})
        admin.create_topics([NewTopic(_EMPTY, 1)])[_EMPTY].result()
        config = configure(folder, "latency", definitions, server, kafka, registry)
        log = stack.enter_context((folder / "log").open("wb"))
        gateway = subprocess.Popen(
            [sys.executable, "-m", "gateway", "run", "--config", config], stderr=log
        )
        stack.callback(gateway.wait)
        stack.callback(gateway.terminate)
        deadline = time.monotonic() + _START_S
        while b"all tables are copied" not in (said := (folder / "log").read_bytes()):
            if gateway.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"the gateway has not started; it said:\n{said.decode()[-2000:]}")
            time.sleep(0.1)
        yield server, kafka


def _prepare(connection: Connection) -> None:
    for name in TABLES:
        connection.execute(f"CREATE TABLE {name} (a bigint PRIMARY KEY, b text)".encode())
        connection.execute(f"ALTER TABLE {name} REPLICA IDENTITY FULL".encode())
        connection.execute(f"INSERT INTO {name} VALUES (1, 'x7')".encode())


if __name__ == "__main__":
    sys.exit(write(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])) if sys.argv[1:] else main())
