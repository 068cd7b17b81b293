"""From the sending of an INSERT to the record in a consumer's hands, at a steady rate."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from bench.compare.records import Topics
from bench.compare.scenarios.drain import await_stream, await_visible, running
from bench.compare.stage import Source, Stage
from bench.compare.tool import MakeTool
from bench.processes import BenchError

__all__ = ["latency"]

_SECONDS: Final = 20
_WARM_S: Final = 10
_LATE_S: Final = 60.0
_SCHEMA: Final = "CREATE TABLE event (id bigint PRIMARY KEY, note text)"


def latency(stage: Stage, name: str, make: MakeTool, rate: int) -> dict[str, str]:
    """Insert `rate` rows a second, each in a transaction of its own, the clock as its key."""
    source = stage.source(name, _SCHEMA)
    tool = make(stage, source, {"event": None})
    topics = Topics(stage)
    with running(tool):
        await_stream(source, tool)
        source.execute("INSERT INTO event VALUES (0, 'the first')")
        await_visible(topics, tool, "event", 1)
        writer = _Writer(source, rate)
        writer.start()
        times = sorted(_times(stage, topics, tool.topic("event"), writer))
    reached = len(times) / _SECONDS
    milliseconds = [1000 * times[int(len(times) * share)] for share in (0.5, 0.95, 0.99)]
    return {
        "transactions a second": f"{reached:,.0f}",
        "median, ms": f"{milliseconds[0]:.0f}",
        "95th percentile, ms": f"{milliseconds[1]:.0f}",
        "99th percentile, ms": f"{milliseconds[2]:.0f}",
    }


class _Writer(threading.Thread):
    def __init__(self, source: Source, rate: int) -> None:
        super().__init__(daemon=True)
        self._source = source
        self._rate = rate
        self.warm_until = 0
        self.last: int | None = None

    def run(self) -> None:
        with self._source.connect() as connection:
            begun = time.monotonic()
            self.warm_until = time.monotonic_ns() + _WARM_S * 10**9
            sent = 0
            for n in range(self._rate * (_WARM_S + _SECONDS)):
                time.sleep(max(0.0, begun + n / self._rate - time.monotonic()))
                sent = time.monotonic_ns()
                connection.execute("INSERT INTO event VALUES (%s, 'a note')", [sent])
        self.last = sent


def _times(stage: Stage, topics: Topics, topic: str, writer: _Writer) -> Iterator[float]:
    settings = {
        "bootstrap.servers": stage.kafka.bootstrap_servers,
        "group.id": "compare",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        late = 0.0
        while True:
            for message in consumer.consume(1000, timeout=0.05):
                now = time.monotonic_ns()
                data = message.key()
                if message.error() is not None or not isinstance(data, bytes):
                    raise BenchError(f"reading {topic}: {message.error()}")
                sent = topics.decode(data)["id"]
                if sent > writer.warm_until:
                    yield (now - sent) / 1e9
                if sent == writer.last:
                    return
            if writer.is_alive():
                late = time.monotonic() + _LATE_S
            elif time.monotonic() > late:
                raise BenchError(f"the last row of {topic} does not come")
