"""Topics as a consumer with ``read_committed`` sees them, decoded alike for both tools.

Both write Avro in Confluent's form: a zero byte, the schema's id, the datum. Both have ``op``,
``before`` and ``after`` in a value, and a tombstone after a delete, which is passed over.
"""

from __future__ import annotations

import io
import json
import struct
import time
import urllib.request
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from fastavro import parse_schema, schemaless_reader

from bench.compare.stage import Stage
from bench.processes import BenchError

__all__ = ["Change", "Topics", "fold"]

_HEAD: Final = struct.Struct(">bI")
_TIMEOUT_S: Final = 60.0


class Change(NamedTuple):
    """A change of a row.

    Attributes:
        op: ``c``, ``u``, ``d``, ``r``, or ``t`` for TRUNCATE.
        key: Columns of the key.
        before: Old row, as far as it is there.
        after: New row.
    """

    op: str
    key: Mapping[str, Any]
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


class Topics:
    """Reads the topics of a stage."""

    def __init__(self, stage: Stage) -> None:
        self._bootstrap = stage.kafka.bootstrap_servers
        self._registry = stage.registry.url
        self._schemas: dict[int, Any] = {}
        self._admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 3})

    def visible(self, topics: Collection[str]) -> int:
        """Return the sum of offsets up to which committed records can be read; 0 without topics."""
        there = self._admin.list_topics(timeout=_TIMEOUT_S).topics
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, 0): latest for topic in topics if topic in there}
        if not asked:
            return 0
        found = self._admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_TIMEOUT_S
        )
        return sum(int(each.result().offset) for each in found.values())

    def changes(self, topic: str) -> list[Change]:
        """Return the changes of a topic with one partition, from its beginning to its end.

        Raises:
            BenchError: it cannot be read.
        """
        return [change for message in self._messages(topic) if (change := self._change(message))]

    def decode(self, data: bytes) -> Any:
        """Return a datum."""
        _, schema_id = _HEAD.unpack_from(data)
        schema = self._schemas.get(schema_id)
        if schema is None:
            url = f"{self._registry}/schemas/ids/{schema_id}"
            with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
                text = json.loads(answer.read())["schema"]
            schema = self._schemas[schema_id] = parse_schema(json.loads(text))
        return schemaless_reader(io.BytesIO(data[_HEAD.size :]), schema, None)

    def _change(self, message: Any) -> Change | None:
        if message.value() is None:
            return None
        value = self.decode(message.value())
        if value["op"] == "m":  # a message of pg_logical_emit_message
            return None
        key = {} if message.key() is None else self.decode(message.key())
        return Change(value["op"], key, value.get("before"), value.get("after"))

    def _messages(self, topic: str) -> Iterator[Any]:
        settings = {
            "bootstrap.servers": self._bootstrap,
            "group.id": "compare",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
        if topic not in self._admin.list_topics(timeout=_TIMEOUT_S).topics:
            return
        with closing(Consumer(settings)) as consumer:
            consumer.assign([TopicPartition(topic, 0, 0)])
            last = time.monotonic()
            while time.monotonic() < last + _TIMEOUT_S:
                for message in consumer.consume(10_000, timeout=0.2):
                    last = time.monotonic()
                    if (error := message.error()) is None:
                        yield message
                    elif error.code() == KafkaError._PARTITION_EOF:
                        return
                    else:
                        raise BenchError(f"reading {topic}: {error}")
        raise BenchError(f"{topic} cannot be read to its end")


def fold(changes: Collection[Change], columns: Collection[str]) -> dict[tuple[Any, ...], Any]:
    """Return the rows by key that a table has after these changes, as its newest columns."""
    rows: dict[tuple[Any, ...], Any] = {}
    for change in changes:
        if change.op == "t":
            rows.clear()
            continue
        key = tuple(change.key.values())
        if change.op == "d" or change.after is None:
            rows.pop(key, None)
        else:
            rows[key] = tuple(change.after.get(column) for column in columns)
    return rows
