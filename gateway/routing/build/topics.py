"""Addresses of records: topics, ids of their schemas, and tables held for a refused schema.

All schemas are registered here. It is always an error if the registry refuses a schema of markers,
messages or errors, but subscriptions whose schema of markers it has refused before are not here; a
refused table schema concerns that table of that subscription alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import schemas as avro_schemas
from gateway.core.errors import SchemaRefusedError
from gateway.core.names import error_topic, message_topic, topic_of, transaction_topic
from gateway.core.records import Feed, Header, Record
from gateway.definitions.model import Plan, Table
from gateway.envelope.envelope import wire_prefix
from gateway.envelope.markers import encode_writer
from gateway.envelope.schema import TableSchema
from gateway.routing.ports import SchemaIds
from gateway.routing.row.counters import TopicCounter
from gateway.routing.row.quarantine import ErrorTopic
from gateway.routing.settings import RoutingSettings

__all__ = ["Address", "Addresses"]


@dataclass(frozen=True, slots=True)
class Address:
    """Address of one table's records for one subscription.

    Attributes:
        key_prefix: Prefix of a key in Confluent's wire format; empty without a key.
        value_prefix: Prefix of a value, likewise.
        refused: Error for which the table is held, or None. A held table has empty prefixes.
    """

    counter: TopicCounter
    key_prefix: bytes = b""
    value_prefix: bytes = b""
    refused: SchemaRefusedError | None = None


class Addresses:
    """Topics of a plan.

    Args:
        plan: Plan in force.
        targets: Subscription and OID of the subscriber tables.
        settings: Topic names, partitions, limits, and quarantined kinds.
        schemas: Schema registry.

    Attributes:
        feeds: Topics of every subscription that is not muted.
        counters: Counters of the topics used so far, by name.
        errors: Error topic for changes that cannot be published, or None.
        refused: Errors, by subscription and OID, of the tables held because the registry refuses a
            schema. They stay held until they are copied.
    """

    def __init__(
        self,
        plan: Plan,
        targets: Iterable[tuple[str, int]],
        settings: RoutingSettings,
        schemas: SchemaIds,
    ) -> None:
        self._settings = settings
        self._schemas = schemas
        names = (s.name for s in plan.subscriptions if s.name not in settings.muted)
        tables: dict[str, list[Table]] = {name: [] for name in names}
        for subscription, oid in targets:
            tables[subscription].append(plan.tables[oid])
        self._feeds = {name: self._feed(name, found) for name, found in tables.items()}
        self.feeds = tuple(self._feeds.values())
        self._places = {name: place for place, name in enumerate(self._feeds)}
        self.counters: dict[str, TopicCounter] = {}
        self.refused: dict[tuple[str, int], SchemaRefusedError] = {}
        self._message_topic = message_topic(settings.gateway)
        self._message_prefix = b""
        if settings.message_prefixes:
            self._message_prefix = self._register(
                f"{self._message_topic}-value", avro_schemas.load("message")
            )
        self.errors: ErrorTopic | None = None
        if settings.quarantined:
            name = error_topic(settings.gateway)
            prefix = self._register(f"{name}-value", avro_schemas.load("error"))
            self.errors = ErrorTopic(
                name,
                prefix,
                settings.quarantined,
                self.most_bytes(name),
                hides_values=settings.has_masks,
            )

    def marker(self, subscription: str, value: bytes, headers: list[Header]) -> Record:
        """Return the record of a marker."""
        feed = self._feeds[subscription]
        return (feed.markers, 0, None, feed.prefix + value, headers)

    @property
    def message_topic(self) -> str:
        """Topic of logical messages."""
        return self._message_topic

    def message(self, value: bytes, headers: list[Header]) -> Record:
        """Return the record of a logical message."""
        return (self._message_topic, 0, None, self._message_prefix + value, headers)

    def most_bytes(self, topic: str) -> int:
        """Return the maximum size of a record in `topic`, in bytes; see `RoutingSettings`."""
        return self._settings.most_bytes.get(topic, sys.maxsize)

    def of_table(self, subscription: str, table: Table, described: TableSchema) -> Address:
        """Register the schemas of a table, unless it is held; return its address.

        Raises:
            SchemaRefusedError: the registry refuses a schema, and the table cannot be held for it.
            TransientError: the registry cannot be reached.
        """
        counter = self._counter(self._topic(subscription, table), subscription, table)
        refused = self.refused.get((subscription, table.oid))
        if refused is None:
            try:
                schemas = self.schemas(subscription, table, described)
                *key, value = [self._register(subject, schema) for subject, schema in schemas]
            except SchemaRefusedError as error:
                if error.kind not in self._settings.quarantined:
                    error.name_setting()
                    raise
                self.refused[subscription, table.oid] = refused = error
            else:
                return Address(counter, b"".join(key), value)
        return Address(counter, refused=refused)

    def schemas(
        self, subscription: str, table: Table, described: TableSchema
    ) -> list[tuple[str, Mapping[str, Any]]]:
        """Return subject and schema of a table's keys, if it has any, and of its values."""
        topic = self._topic(subscription, table)
        values = (f"{topic}-value", described.value_schema)
        if described.key_schema is None:
            return [values]
        return [(f"{topic}-key", described.key_schema), values]

    def _topic(self, subscription: str, table: Table) -> str:
        return topic_of(subscription, table.schema, table.name, self._settings.topic_names)

    def _feed(self, subscription: str, tables: Iterable[Table]) -> Feed:
        markers = transaction_topic(subscription)
        prefix = self._register(f"{markers}-value", avro_schemas.load("transaction"))
        prefix += encode_writer(self._settings.writer)
        names = self._settings.topic_names
        topics = {topic_of(subscription, t.schema, t.name, names) for t in tables}
        partitions = {topic: self._settings.partitions[topic] for topic in sorted(topics)}
        return Feed(subscription, markers, prefix, partitions)

    def _counter(self, topic: str, subscription: str, table: Table) -> TopicCounter:
        if topic not in self.counters:
            partitions, most = self._settings.partitions[topic], self.most_bytes(topic)
            number = len(self.counters)
            place = self._places[subscription]
            self.counters[topic] = TopicCounter(
                topic, subscription, table, partitions, most, number, place
            )
        return self.counters[topic]

    def _register(self, subject: str, schema: Mapping[str, object]) -> bytes:
        return wire_prefix(self._schemas.register(subject, schema))
