"""Topics that a plan needs: made where they are missing, checked where they are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway.config import Settings
from gateway.definitions.model import Plan
from gateway.envelope.naming import (
    error_topic,
    find_collisions,
    message_topic,
    topic_of,
    transaction_topic,
)
from gateway.errors import ConfigError, FatalError
from gateway.sink.durability import Risk, risks
from gateway.sink.sizes import batch_bytes, most_bytes
from gateway.sink.topics import TopicSpec, ensure_topics, progress_topic_spec

__all__ = ["TOPICS_TIMEOUT_S", "Topics", "check_partitions", "ensure_all_topics", "table_topics"]

TOPICS_TIMEOUT_S: Final = 10.0
"""How long creating and checking topics may take."""


@dataclass(frozen=True, slots=True)
class Topics:
    """What the topics allow.

    Attributes:
        partitions: Of each table's topic.
        most_bytes: Of a record, by topic: `gateway.records.wire_size`.
        batch_bytes: Of a batch of records for any of them; None: as large as the producer makes it.
        risks: How Kafka could lose what it has acknowledged.
    """

    partitions: Mapping[str, int]
    most_bytes: Mapping[str, int] = field(default_factory=dict)
    batch_bytes: int | None = None
    risks: tuple[Risk, ...] = ()


def table_topics(plan: Plan, settings: Settings) -> list[TopicSpec]:
    """Return the topics of all subscriber tables, each once.

    Raises:
        ConfigError: two tables would share a topic, or an override is invalid.
    """
    owner: dict[str, tuple[str, int]] = {}
    specs: dict[str, TopicSpec] = {}
    published = [(p.subscription, p.target_oid, p.operations) for p in plan.publishes]
    unpublished = plan.targets.difference((name, oid) for name, oid, _ in published)
    published += [(*table, frozenset()) for table in sorted(unpublished)]
    for subscription, oid, operations in published:
        table = plan.tables[oid]
        topic = topic_of(subscription, table.schema, table.name, settings.topics.names)
        identity = (subscription, oid)
        if owner.setdefault(topic, identity) != identity:
            raise ConfigError(
                f"two subscriber tables share the topic {topic!r}",
                key="topics.names",
                hint="give one of them another name",
            )
        keyed = bool(table.identity)
        truncates = any(o.value == "truncate" for o in operations)
        specs[topic] = TopicSpec(
            topic,
            settings.topics.partitions,
            settings.topics.config,
            settings.topics.replication_factor,
            partitions_at_creation_only=True,
            forbid_compaction=not keyed or (truncates and settings.topics.truncate == "publish"),
        )
    return list(specs.values())


def _refuse_collisions(names: Sequence[str]) -> None:
    """Refuse names that Kafka takes for the same metric name: they differ in '.' and '_' only."""
    for group in find_collisions(names):
        raise ConfigError(
            f"the topics {', '.join(group)} collide in Kafka, which takes '.' and '_' for one",
            key="topics.names",
            hint="give one of them another name",
        )


def check_partitions(now: Mapping[str, int], known: Mapping[str, Sequence[int]]) -> None:
    """Refuse a topic that has another number of partitions than when it was last written to.

    Args:
        now: By topic, its partitions.
        known: By topic, what was kept of each partition at the last write.
    """
    for topic, partitions in now.items():
        before = len(known.get(topic, ()))
        if before not in (0, partitions):
            raise FatalError(
                f"topic {topic} has {partitions} partitions, it had {before}",
                hint="records of one key would change their partition: restore the number, or "
                "start over with a new topic ([topics] names) and `pgsluice slot drop`",
            )


def ensure_all_topics(settings: Settings, plan: Plan, *, timeout_s: float) -> Topics:
    """Create or check every topic; return what they allow.

    Raises:
        ConfigError: two tables would share a topic, or names collide.
        FatalError: a topic that exists is not as it must be.
        TransientError: Kafka does not answer in time.
    """
    tables = table_topics(plan, settings)
    factor = settings.topics.replication_factor
    names = [transaction_topic(s.name) for s in plan.subscriptions]
    if settings.messages.prefixes:
        names.append(message_topic(settings.gateway.name))
    quarantined = settings.on_error.quarantined
    if quarantined:
        names.append(error_topic(settings.gateway.name))
    markers = [TopicSpec(n, replication_factor=factor, forbid_compaction=True) for n in names]
    progress = progress_topic_spec(settings.topics.progress, replication_factor=factor)
    specs = [*tables, *markers, progress]
    _refuse_collisions([spec.name for spec in specs])
    found = ensure_topics(settings.kafka, specs, timeout_s=timeout_s)
    return Topics(
        {spec.name: found[spec.name].partitions for spec in tables},
        most_bytes(settings.kafka, found.values(), sure="size" in quarantined),
        batch_bytes(settings.kafka, found.values()),
        tuple(risks([found[spec.name] for spec in [*tables, *markers]], [found[progress.name]])),
    )
