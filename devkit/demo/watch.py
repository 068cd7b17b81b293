"""An ordinary consumer of the topics: what every statement became for each subscription.

Knows nothing but the topic contract (docs/envelope.md). A marker says up to which offset each topic
has been written up to its `end_lsn`; so a transaction is known to be here whole, in whatever order
the partitions arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from devkit.demo.show import format_row
from devkit.demo.verdict import Row
from gateway.core.lsn import Lsn

__all__ = ["Change", "Watcher", "describe"]


@dataclass(frozen=True, slots=True)
class Change:
    """A record of a table topic, decoded.

    Attributes:
        topic: Its topic.
        op: ``c``, ``u``, ``d``, ``t`` or ``r``.
        key: None where the table has none, and for ``t``.
        rekey: ``old`` or ``new`` on the halves of a key change, else None.
    """

    topic: str
    op: str
    key: Mapping[str, Any] | None
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    rekey: str | None


def describe(change: Change) -> str | None:
    """Say in SQL's words what a change does; None for the first half of a key change."""
    after = _row(change.after)
    match change.op, change.rekey:
        case _, "old":
            return None
        case _, "new":
            names = list(change.key or ())
            old = {name: (change.before or {}).get(name) for name in names}
            return f"UPDATE {_row(old)} to {after}"
        case "u", _:
            return f"UPDATE {after}"
        case "d", _:
            return f"DELETE {_row(change.key or change.before)}"
        case "t", _:
            return "TRUNCATE"
        case _:
            return f"INSERT {after}"


def _row(values: Mapping[str, Any] | None) -> str:
    row: Row = tuple(None if v is None else str(v) for v in (values or {}).values())
    return format_row(row)


class Watcher:
    """Follows all topics of some subscriptions from their begin; reads what is committed."""

    def __init__(
        self,
        kafka: Mapping[str, str],
        registry: Mapping[str, str],
        subscriptions: Iterable[str],
    ) -> None:
        self._consumer = Consumer(
            {
                **kafka,
                # Required by the client; partitions are assigned, so no group ever forms.
                "group.id": "pgsluice-demo",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                # A transaction becomes visible with its commit; the default adds up to 0.5 s.
                "fetch.wait.max.ms": 50,
            }
        )
        self._avro = AvroDeserializer(SchemaRegistryClient(dict(registry)))
        self._published: dict[str, int] = dict.fromkeys(subscriptions, 0)
        self._read: dict[str, int] = {}
        self._promised: dict[str, int] = {}
        self._changes: list[Change] = []
        self._ready: dict[tuple[str, str, str], int] = {}

    def start(self) -> list[str]:
        """Begin to read the topics that are there now; return their names."""
        topics = sorted(
            topic
            for topic in self._consumer.list_topics(timeout=10).topics
            if topic.partition(".")[0] in self._published
        )
        self._consumer.assign([TopicPartition(topic, 0, 0) for topic in topics])
        return topics

    def poll(self, timeout_s: float = 0.1) -> None:
        """Accept the records that have arrived; if there are none, wait for them.

        Args:
            timeout_s: Longest time to wait.
        """
        for message in self._consumer.consume(500, timeout=timeout_s):
            if error := message.error():
                raise KafkaException(error)
            self._accept(message)

    def published(self, lsn: Lsn) -> bool:
        """Whether all that any subscription gets up to `lsn` has been read."""
        return min(self._published.values()) >= lsn and all(
            self._read.get(topic, 0) >= offset for topic, offset in self._promised.items()
        )

    def copied(self, tables: int) -> bool:
        """Whether the copies of a number of tables are there, and have been read."""
        return len(self._ready) >= tables and self.published(Lsn(max(self._ready.values())))

    def pop(self) -> list[Change]:
        """Return the changes since the last call, each topic's in order."""
        popped, self._changes = self._changes, []
        return sorted(popped, key=lambda change: change.topic)

    def close(self) -> None:
        """Leave."""
        self._consumer.close()

    def _accept(self, message: Message) -> None:
        topic, value = message.topic(), message.value()
        assert topic is not None
        self._read[topic] = (message.offset() or 0) + 1
        subscription, _, rest = topic.partition(".")
        if value is None:
            return  # a tombstone
        datum = self._avro(value, SerializationContext(topic, MessageField.VALUE))
        if rest == "transaction":
            self._published[subscription] = max(
                self._published[subscription], datum["end_lsn"] if datum["kind"] != "COPY" else 0
            )
            if (copy := datum["copy"]) is not None and copy["state"] == "ready":
                self._ready[subscription, copy["schema"], copy["table"]] = datum["end_lsn"]
            for written in datum["offsets"]:
                self._promised[written["topic"]] = written["next_offset"]
            return
        key = message.key()
        rekey = dict(message.headers() or ()).get("rekey")
        self._changes.append(
            Change(
                topic,
                datum["op"],
                None
                if key is None
                else self._avro(key, SerializationContext(topic, MessageField.KEY)),
                datum["before"],
                datum["after"],
                rekey.decode() if isinstance(rekey, bytes) else rekey,
            )
        )
