"""Rows that move because another table has changed, and what other tables wait for them meanwhile.

One customer with 10,000 orders, of 110,000, comes to the region of a subscription, and leaves it
again: ``python -m bench.moves``. Counted is the time from before the UPDATE of the customer until a
reader has all rows. Beside it another table is written to, and read, as in `bench.latency`.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from bench.latency import Connection, at_rate, print_times, running
from bench.processes import BenchError
from bench.stream import stop_on_sigterm
from devkit.embedded.kafka import EmbeddedKafka

ROWS: Final = 10_000
MOVES: Final = 6
RATE: Final = 100
_TIMEOUT_S: Final = 120.0
_TABLES: Final = f"""
CREATE TABLE unfiltered (a bigint PRIMARY KEY, b text);
CREATE TABLE customers (id int PRIMARY KEY, region text);
CREATE TABLE orders (id int PRIMARY KEY, customer int, note text);
CREATE INDEX ON orders (customer);
ALTER TABLE unfiltered REPLICA IDENTITY FULL;
ALTER TABLE customers REPLICA IDENTITY FULL;
ALTER TABLE orders REPLICA IDENTITY FULL;
INSERT INTO unfiltered VALUES (1, 'x7');
INSERT INTO customers SELECT n, 'US' FROM generate_series(1, 1000) AS n;
INSERT INTO orders SELECT n, 1, 'some text' FROM generate_series(1, {ROWS}) AS n;
INSERT INTO orders SELECT n, n % 999 + 2, 'some text'
    FROM generate_series({ROWS + 1}, {11 * ROWS}) AS n;
ANALYZE;
"""
_DEFINITIONS: Final = (
    "CREATE PUBLICATION p FOR TABLE unfiltered;\n"
    "CREATE SUBSCRIPTION one CONNECTION '' PUBLICATION p;\n"
    "CREATE PUBLICATION eu FOR TABLE orders"
    " WHERE (customer IN (SELECT id FROM customers WHERE region = 'EU'));\n"
    "CREATE SUBSCRIPTION eu CONNECTION '' PUBLICATION eu;\n"
)


def main() -> int:
    """Measure and print."""
    stop_on_sigterm()
    print(f"\n{os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f}; milliseconds")
    print(f"{'':70}{'median':>9}{'99 %':>9}{'most':>9}")
    with running(_DEFINITIONS, _prepare) as (server, kafka):
        print_times("another table, nothing moves", at_rate(server, kafka, RATE))
        with ThreadPoolExecutor(1) as pool:
            beside = pool.submit(at_rate, server, kafka, RATE)
            with server.connect() as connection, closing(_Reader(kafka)) as reader:
                times = []
                for number in range(MOVES):
                    region = "US" if number % 2 else "EU"
                    began = time.monotonic()
                    connection.execute(b"UPDATE customers SET region = %s WHERE id = 1", [region])
                    reader.await_rows(ROWS)
                    times.append(time.monotonic() - began)
            print_times(f"{ROWS:,} rows enter, or leave", times)
            print_times("another table meanwhile", beside.result())
    return 0


def _prepare(connection: Connection) -> None:
    connection.execute(_TABLES.encode())


class _Reader:
    """Committed rows of the subscription, from the end of its topic on."""

    def __init__(self, kafka: EmbeddedKafka) -> None:
        topic = "eu.public.orders"
        self._consumer = Consumer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "group.id": "bench-moves",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        end = self._consumer.get_watermark_offsets(TopicPartition(topic, 0), _TIMEOUT_S)[1]
        self._consumer.assign([TopicPartition(topic, 0, end)])

    def await_rows(self, rows: int) -> None:
        """Wait for a number of records with a value: a delete has a tombstone as well."""
        deadline = time.monotonic() + _TIMEOUT_S
        while rows > 0:
            found = self._consumer.consume(1000, 0.05)
            rows -= sum(message.value() is not None for message in found)
            if time.monotonic() > deadline:
                raise BenchError(f"{rows} rows have not moved")

    def close(self) -> None:
        """End the connection."""
        self._consumer.close()


if __name__ == "__main__":
    sys.exit(main())
