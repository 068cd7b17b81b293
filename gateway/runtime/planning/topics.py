"""Topics that a plan needs: missing ones are created, the others are checked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import schemas
from gateway.config import Settings
from gateway.core.errors import ConfigError, FatalError, SchemaRefusedError
from gateway.core.names import (
    error_topic,
    find_collisions,
    message_topic,
    topic_of,
    transaction_topic,
)
from gateway.definitions.model import Fault, Operation, Plan, TableId
from gateway.definitions.tables.keys import identifies, key_of
from gateway.sink.delivery.record_limits import batch_bytes, most_bytes
from gateway.sink.registry.registry import Registry
from gateway.sink.topics.durability import Risk, risks
from gateway.sink.topics.topic_ids import ids_of, read_topics
from gateway.sink.topics.topics import TopicSpec, ensure_topics, progress_topic_spec
from gateway.sink.topics.usability import examine_topics, unusable_topics

__all__ = [
    "TOPICS_TIMEOUT_S",
    "AllHeldError",
    "Topics",
    "ensure_all_topics",
    "muted_subscriptions",
    "refused_marker_schemas",
    "shared_topics",
    "table_topics",
    "unusable_topic_faults",
]

TOPICS_TIMEOUT_S: Final = 10.0
"""Seconds that creating and checking topics may take."""

_SILENT: Final = "the topic of its subscription's markers cannot be used"


@dataclass(frozen=True, slots=True)
class Topics:
    """Limits, IDs and faults of the topics of a plan.

    Attributes:
        partitions: Number of partitions of each table's topic.
        most_bytes: Largest size of a record, by topic: `gateway.core.records.wire_size`.
        batch_bytes: Largest size of a batch for any of them; None for the producer's default.
        risks: Ways in which Kafka could lose acknowledged records.
        refused: Faults of tables whose topic cannot be used.
        ids: Kafka's ID of each topic of a table or of markers.
        muted: Subscriptions whose topic of markers cannot be used, and why; all their tables are in
            `refused`, unless the plan has none of them.
    """

    partitions: Mapping[str, int]
    most_bytes: Mapping[str, int] = field(default_factory=dict)
    batch_bytes: int | None = None
    risks: tuple[Risk, ...] = ()
    refused: Mapping[TableId, Fault] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)
    muted: Mapping[str, str] = field(default_factory=dict)


def table_topics(plan: Plan, settings: Settings) -> list[TopicSpec]:
    """Return the topics of all subscriber tables, each once.

    Raises:
        ConfigError: two tables would share a topic, or an override is invalid.
    """
    return list(_specs_by_table(plan, settings).values())


def _specs_by_table(plan: Plan, settings: Settings) -> dict[TableId, TopicSpec]:
    owner: dict[str, TableId] = {}
    specs: dict[TableId, TopicSpec] = {}
    for identity, columns, operations in _published(plan):
        subscription, oid = identity
        table = plan.tables[oid]
        topic = topic_of(subscription, table.schema, table.name, settings.topics.names)
        if owner.setdefault(topic, identity) != identity:
            raise ConfigError(
                f"two subscriber tables share the topic {topic!r}",
                key="topics.names",
                hint="give one of them another name",
            )
        keyed = identifies(key_of(table, columns), settings.topics.chosen(str(table)))
        truncates = Operation.TRUNCATE in operations
        truncates = truncates and settings.topics.truncate == "publish"
        truncates = truncates and settings.envelope.of(subscription).truncates
        forbidden = identity in specs and specs[identity].forbid_compaction
        specs[identity] = TopicSpec(
            topic,
            settings.topics.partitions,
            settings.topics.config,
            settings.topics.replication_factor,
            partitions_at_creation_only=True,
            forbid_compaction=forbidden or not keyed or truncates,
        )
    return specs


def _published(plan: Plan) -> Iterator[tuple[TableId, Collection[str], Collection[Operation]]]:
    """Yield the columns and operations of each table: by partition, and by copy."""
    for publish in plan.publishes:
        table = plan.tables[publish.target_oid]
        columns = {column.name for column in table.columns if publish.publishes(column)}
        yield (publish.subscription, table.oid), columns, publish.operations
    for copy in plan.copies:
        yield (copy.subscription, copy.target_oid), copy.columns, ()


def shared_topics(plan: Plan, settings: Settings) -> list[TopicSpec]:
    """Return the topics that belong to no table; the last one is that of progress.

    Raises:
        ConfigError: the topic of the progress has another use.
    """
    factor, progress = settings.topics.replication_factor, settings.topics.progress
    names = [transaction_topic(s.name) for s in plan.subscriptions]
    gateway = settings.gateway.name
    if progress in (*names, message_topic(gateway), error_topic(gateway)):
        raise ConfigError(
            f"{progress} is the topic of markers, messages or errors",
            key="topics.progress",
            hint="give it a name of its own",
        )
    if settings.messages.prefixes:
        names.append(message_topic(settings.gateway.name))
    if settings.on_error.quarantined:
        names.append(error_topic(settings.gateway.name))
    markers = [_marker_topic_spec(name, settings) for name in names]
    return [*markers, progress_topic_spec(progress, replication_factor=factor)]


def _refuse_collisions(names: Sequence[str]) -> None:
    """Refuse names that differ only in '.' and '_', which Kafka does not distinguish."""
    for group in find_collisions(names):
        raise ConfigError(
            f"the topics {', '.join(group)} collide in Kafka, which does not distinguish '.' from "
            "'_'",
            key="topics.names",
            hint="give one of them another name",
        )


class AllHeldError(FatalError):
    """All tables would be held, so that nothing is left to publish.

    Attributes:
        first: Error of the first of the topics.
    """

    def __init__(self, first: FatalError) -> None:
        super().__init__(first.message, hint=first.hint, cause=first.cause)
        self.first = first


def ensure_all_topics(
    settings: Settings,
    plan: Plan,
    *,
    timeout_s: float,
    holds: bool = False,
    muted: Mapping[str, str] = MappingProxyType({}),
    failed_reads: Mapping[str, FatalError] = MappingProxyType({}),
) -> Topics:
    """Create or check every topic; return their limits and faults.

    Args:
        settings: The configuration.
        plan: Plan with the tables.
        timeout_s: Timeout of each of a few requests.
        holds: Whether tables whose topic cannot be used can be held, and all tables of a
            subscription whose topic of markers cannot be used.
        muted: Subscriptions whose topic of markers is known to be so; the plan has none of their
            tables.
        failed_reads: Errors that reading topics of markers, or registering the schema of markers,
            has already met, by name of the topic.

    Raises:
        ConfigError: two tables would share a topic, or names collide.
        AllHeldError: all tables would be held.
        FatalError: a topic is not as it must be, and nothing can be held for it.
        TransientError: Kafka does not answer in time.
    """
    by_table = _specs_by_table(plan, settings)
    tables = list(by_table.values())
    markers = {transaction_topic(s.name): s.name for s in plan.subscriptions}
    others = [s for s in shared_topics(plan, settings) if markers.get(s.name) not in muted]
    progress = settings.topics.progress
    specs = [*tables, *others]
    _refuse_collisions([spec.name for spec in specs])
    refused: dict[str, FatalError] = {}
    found = ensure_topics(
        settings.kafka, specs, timeout_s=timeout_s, refused=refused if holds else None
    )
    known = read_topics(settings.kafka, found, timeout_s=timeout_s)
    denied = unusable_topics(
        specs,
        found,
        known,
        refused={name: error for name, error in refused.items() if name not in found},
        read=markers,
        failed_reads=failed_reads,
    )
    for name, error in denied.items():
        if not holds or (name not in markers and name not in (spec.name for spec in tables)):
            raise error
    silent = {markers[name]: error for name, error in denied.items() if name in markers}
    reasons = _faults_of_tables(by_table, denied)
    if silent and len(silent) == len(markers):
        raise AllHeldError(next(iter(silent.values())))
    if len(reasons) == len(by_table) > 0:
        raise AllHeldError(next(iter(denied.values())))
    return Topics(
        {spec.name: found[spec.name].partitions for spec in tables if spec.name in found},
        most_bytes(settings.kafka, found.values(), sure="size" in settings.on_error.quarantined),
        batch_bytes(settings.kafka, found.values()),
        tuple(risks([found[n] for n in found if n != progress], [found[progress]])),
        reasons,
        ids_of({name: topic for name, topic in known.items() if name != progress}),
        {**muted, **{name: _why_muted(error) for name, error in silent.items()}},
    )


def muted_subscriptions(settings: Settings, subscriptions: Iterable[str]) -> dict[str, str]:
    """Return the subscriptions whose topic of markers cannot be used, and why; creates nothing.

    Raises:
        FatalError: Kafka refuses the user.
        TransientError: Kafka does not answer in time.
    """
    markers = {transaction_topic(name): name for name in subscriptions}
    specs = [_marker_topic_spec(topic, settings) for topic in markers]
    unusable = examine_topics(settings.kafka, specs, read=markers).unusable
    return {markers[topic]: _why_muted(error) for topic, error in sorted(unusable.items())}


def refused_marker_schemas(
    registry: Registry, subscriptions: Iterable[str]
) -> dict[str, FatalError]:
    """Return the errors of topics of markers whose schema the registry refuses; register the rest.

    Somebody else has registered another one under their subject then, perhaps before the first
    start.

    Raises:
        FatalError, TransientError: the registry refuses the user, or does not answer.
    """
    schema = schemas.load("transaction")
    refused: dict[str, FatalError] = {}
    for topic in map(transaction_topic, subscriptions):
        try:
            registry.register(f"{topic}-value", schema)
        except SchemaRefusedError as error:
            hint = f"others have registered something under {topic}-value"
            refused[topic] = FatalError(error.message, hint=hint, cause="marker_schema")
    return refused


def unusable_topic_faults(settings: Settings, plan: Plan) -> dict[TableId, Fault]:
    """Return the faults of tables that would be held for a topic; creates nothing.

    Raises:
        ConfigError: two tables would share a topic.
        FatalError: Kafka refuses the user.
        TransientError: Kafka does not answer in time.
    """
    by_table = _specs_by_table(plan, settings)
    markers = [transaction_topic(subscription.name) for subscription in plan.subscriptions]
    specs = [*by_table.values(), *(_marker_topic_spec(topic, settings) for topic in markers)]
    return _faults_of_tables(by_table, examine_topics(settings.kafka, specs, read=markers).unusable)


def _faults_of_tables(
    by_table: Mapping[TableId, TopicSpec], unusable: Mapping[str, FatalError]
) -> dict[TableId, Fault]:
    """Return the faults of tables for which `unusable` topics are needed.

    The topic of the subscription's markers takes precedence over the table's own.
    """
    faults = {}
    for (name, oid), spec in by_table.items():
        if (error := unusable.get(transaction_topic(name))) is not None:
            faults[name, oid] = Fault(_why_muted(error), always=True, cause=error.cause)
        elif (error := unusable.get(spec.name)) is not None:
            faults[name, oid] = Fault(_line(error), always=True, cause=error.cause)
    return faults


def _marker_topic_spec(topic: str, settings: Settings) -> TopicSpec:
    """Return the specification of a topic of markers, messages or errors."""
    factor = settings.topics.replication_factor
    return TopicSpec(topic, replication_factor=factor, forbid_compaction=True)


def _why_muted(error: FatalError) -> str:
    return f"{_SILENT}: {_line(error)}"


def _line(error: FatalError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message
