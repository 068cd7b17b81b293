"""What Kafka takes from the gateway's sink when nothing else has to be done.

The records are made before the clock starts: nothing is received, routed or encoded, and Kafka
transactions of 5,000 records, the default, follow one another, each with its watermark and PROGRESS
markers. Those for many partitions go over as in a backlog: 15,000 records at a time, and 195,000 in
a Kafka transaction. The gateway's can be longer, where source transactions lie across the end of a
batch.
Records are like those of `bench.load`'s table: a key, a value of 180 bytes, five headers; END
markers have 60 bytes. Rates are the best of three rounds, CPU is their mean.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Final

from bench.fixed import OneId
from bench.processes import BenchError, cpu_s
from devkit.embedded.kafka import EmbeddedKafka
from gateway.core.descriptors import wait_readable
from gateway.core.lsn import Lsn
from gateway.core.records import Batch, Cut, Feed, Record
from gateway.core.watermark import Watermark
from gateway.sink.clients.identity import SlotIdentity
from gateway.sink.delivery.sink import TransactionalSink
from gateway.sink.own_topics.progress import KafkaProgress
from gateway.sink.topics.topics import TopicSpec, ensure_topics, progress_topic_spec

__all__ = ["run"]

_BATCH: Final = 5_000
_LARGE: Final = 3 * _BATCH
_PIECES: Final = 13
_ROUNDS: Final = 3
_PREFIX: Final = b"\0\0\0\0\1"
_MARKER: Final = _PREFIX + b"\0\0"
_SUBSCRIPTIONS: Final = 100
_TIMEOUT_S: Final = 300.0


def run(rows: int) -> None:
    """Measure and print.

    Args:
        rows: to be sent in each round.
    """
    with EmbeddedKafka() as kafka:
        print(f"\n{os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f}; {rows:,} rows")
        print(f"{'':46}{'rows/s':>10}{'records/s':>11}{'CPU us/row: here':>18}{'broker':>8}")
        for title, name, subscriptions, size, batch, pieces in (
            ("transactions of 100 rows", "hundred", 1, 100, _BATCH, 1),
            ("transactions of 1 row", "one", 1, 1, _BATCH, 1),
            ("each row another subscription's", "each", _SUBSCRIPTIONS, 100, _LARGE, _PIECES),
        ):
            _measure(kafka, title, name, subscriptions, size, rows, batch, pieces)


def _measure(
    kafka: EmbeddedKafka,
    title: str,
    name: str,
    subscriptions: int,
    size: int,
    rows: int,
    batch: int,
    pieces: int,
) -> None:
    properties = {"bootstrap.servers": kafka.bootstrap_servers}
    assert kafka.pid is not None
    feeds = [
        Feed(f"{name}{n}", f"{name}{n}.transaction", _MARKER, {f"{name}{n}.public.orders": 1})
        for n in range(subscriptions)
    ]
    specs = [TopicSpec(topic) for feed in feeds for topic in (feed.markers, *feed.tables)]
    ensure_topics(properties, [*specs, progress_topic_spec(f"{name}.progress")])
    identity = SlotIdentity("7000000000000000001", "bench", name)
    progress = KafkaProgress(properties, identity, OneId(), topic=f"{name}.progress")
    with closing(TransactionalSink(properties, identity, progress)) as sink:
        sink.open()
        records, taken = _records(feeds, size, batch)
        batches = pieces * max(1, rows // (taken * pieces))
        _send(sink, feeds, records, 2 * pieces, pieces, Lsn(1))
        best = 0.0
        spent = broker = 0.0
        for number in range(_ROUNDS):
            before, beside, begun = time.process_time(), cpu_s(kafka.pid), time.monotonic()
            _send(sink, feeds, records, batches, pieces, Lsn((number + 1) << 32))
            best = max(best, batches * taken / (time.monotonic() - begun))
            spent += time.process_time() - before
            broker += cpu_s(kafka.pid) - beside
    each = 1e6 / (_ROUNDS * batches * taken)
    print(
        f"{title:46}{best:10,.0f}{best * len(records) / taken:11,.0f}"
        f"{spent * each:18.1f}{broker * each:8.1f}",
        flush=True,
    )


def _records(feeds: Sequence[Feed], size: int, batch: int) -> tuple[list[Record], int]:
    """The records of a batch of at least so many, and how many rows they are."""
    made: list[Record] = []
    rows = 0
    while len(made) < batch:
        touched = []
        headers = [
            ("lsn", b"00000000/%08X" % rows),
            ("commit_lsn", b"00000000/%08X" % rows),
            ("xid", b"%d" % (700 + rows)),
        ]
        for number in range(size):
            feed = feeds[rows % len(feeds)]
            (topic,) = feed.tables
            key, value = _PREFIX + b"%07d" % rows, _PREFIX + b"%0175d" % rows
            made.append((topic, 0, key, value, [*headers, ("seq", b"%d" % number), ("op", b"c")]))
            touched.append(feed)
            rows += 1
        for markers in dict.fromkeys(feed.markers for feed in touched):
            end = [*headers, ("seq", b"%d" % size), ("op", b"END")]
            made.append((markers, 0, None, _PREFIX + b"%055d" % rows, end))
    return made, rows


def _send(
    sink: TransactionalSink,
    feeds: Sequence[Feed],
    records: list[Record],
    batches: int,
    pieces: int,
    lsn: Lsn,
) -> None:
    for number in range(1, batches + 1):
        end_lsn = Lsn(lsn + number)
        if number % pieces:
            sink.submit(Batch(records, kept=False))
        else:
            sink.submit(Batch(records, Watermark(end_lsn, 1, "", ()), Cut(end_lsn, 1, feeds)))
        deadline = time.monotonic() + _TIMEOUT_S
        while sink.collect() is None:
            if time.monotonic() > deadline:
                raise BenchError(f"a batch has not been committed in {_TIMEOUT_S:.0f} s")
            wait_readable([sink.fileno()], 1.0)
