"""What an attempt needs before it touches the slot: definitions, topics, the producer.

Each function here derives from the configuration and the plan alone, so that commands which run
nothing (`check`, `schemas`, `slot drop`) stand on the same ground as the daemon.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.config import Settings
from gateway.definitions.model import Definitions, Plan
from gateway.definitions.parser import parse_definitions
from gateway.envelope.envelope import package_version
from gateway.envelope.naming import (
    error_topic,
    find_collisions,
    message_topic,
    transaction_topic,
)
from gateway.errors import ConfigError, FatalError
from gateway.routing import RoutingSettings
from gateway.routing.routes import topic_of
from gateway.sink.identity import SlotIdentity
from gateway.sink.producer import TransactionalSink
from gateway.sink.progress import KafkaProgress
from gateway.sink.registry import Registry
from gateway.sink.topics import TopicSpec, ensure_topics, progress_topic_spec
from gateway.source.connection import ServerFacts
from gateway.source.negotiation import wants_binary

__all__ = [
    "check_partitions",
    "ensure_all_topics",
    "make_sink",
    "read_definitions",
    "routing_settings",
    "slot_identity",
    "table_topics",
]


def read_definitions(settings: Settings) -> Definitions:
    """Read and parse the definitions file.

    Raises:
        ConfigError: the file cannot be read.
        DefinitionError: it does not parse, or says what is not supported.
    """
    path = settings.definitions.file
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"the file {path} does not exist", key="definitions.file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", key="definitions.file") from error
    definitions = parse_definitions(text)
    if not definitions.subscriptions:
        raise ConfigError(
            f"{path} defines no subscription",
            key="definitions.file",
            hint="add a line like: CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p;",
        )
    return definitions


def routing_settings(
    settings: Settings, facts: ServerFacts, plan: Plan, partitions: Mapping[str, int]
) -> RoutingSettings:
    """Return what routing needs of the configuration."""
    return RoutingSettings(
        gateway=settings.gateway.name,
        database=facts.database,
        version=package_version(),
        partitions=partitions,
        topic_names=settings.topics.names,
        tombstones=settings.topics.tombstones,
        truncate=settings.topics.truncate,
        numeric=settings.types.numeric,
        message_prefixes=frozenset(settings.messages.prefixes),
        binary=wants_binary(plan.subscriptions),
        major=facts.version_num // 10000,
        on_filter_error=settings.definitions.on_filter_error,
    )


def table_topics(plan: Plan, settings: Settings) -> list[TopicSpec]:
    """Return the topics of all subscriber tables, each once.

    Raises:
        ConfigError: two tables would share a topic, or an override is invalid.
    """
    owner: dict[str, tuple[str, int]] = {}
    specs: dict[str, TopicSpec] = {}
    for publish in plan.publishes:
        table = plan.tables[publish.target_oid]
        topic = topic_of(publish.subscription, table, settings.topics.names)
        identity = (publish.subscription, publish.target_oid)
        if owner.setdefault(topic, identity) != identity:
            raise ConfigError(
                f"two subscriber tables share the topic {topic!r}",
                key="topics.names",
                hint="give one of them another name",
            )
        keyed = bool(table.identity)
        truncates = any(o.value == "truncate" for o in publish.operations)
        specs[topic] = TopicSpec(
            topic,
            settings.topics.partitions,
            settings.topics.config,
            settings.topics.replication_factor,
            partitions_at_creation_only=True,
            forbid_compaction=not keyed or (truncates and settings.topics.truncate == "publish"),
        )
    return list(specs.values())


def slot_identity(facts: ServerFacts, settings: Settings) -> SlotIdentity:
    """Return under which key this gateway's watermark stands in Kafka."""
    return SlotIdentity(facts.system_identifier, facts.database, settings.source.slot)


def make_sink(settings: Settings, facts: ServerFacts, registry: Registry) -> TransactionalSink:
    """Make the producer of this gateway's slot; not yet opened.

    Raises:
        SchemaError, TransientError: the registry refuses its schemas, or cannot be reached.
    """
    identity = slot_identity(facts, settings)
    progress = KafkaProgress(
        settings.kafka,
        identity,
        registry,
        progress_topic=settings.topics.progress,
        totals_topic=settings.topics.totals,
    )
    return TransactionalSink(settings.kafka, identity, progress)


def _refuse_collisions(names: Sequence[str]) -> None:
    """Refuse names that Kafka takes for the same metric name: they differ in '.' and '_' only."""
    for group in find_collisions(names):
        raise ConfigError(
            f"the topics {', '.join(group)} collide in Kafka, which takes '.' and '_' for one",
            key="topics.names",
            hint="give one of them another name",
        )


def check_partitions(now: Mapping[str, int], totals: Mapping[str, Sequence[int]]) -> None:
    """Refuse a topic that has another number of partitions than when it was last written to."""
    for topic, partitions in now.items():
        before = len(totals.get(topic, ()))
        if before not in (0, partitions):
            raise FatalError(
                f"topic {topic} has {partitions} partitions, it had {before}",
                hint="records of one key would change their partition: restore the number, or "
                "start over with a new topic ([topics] names) and `pgsluice slot drop`",
            )


def ensure_all_topics(settings: Settings, plan: Plan, *, timeout_s: float) -> dict[str, int]:
    """Create or check every topic; return the partitions of the table topics.

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
    if settings.definitions.on_filter_error == "quarantine":
        names.append(error_topic(settings.gateway.name))
    specs = [
        *tables,
        *(TopicSpec(name, replication_factor=factor, forbid_compaction=True) for name in names),
        *(
            progress_topic_spec(name, replication_factor=factor)
            for name in (settings.topics.progress, settings.topics.totals)
        ),
    ]
    _refuse_collisions([spec.name for spec in specs])
    found = ensure_topics(settings.kafka, specs, timeout_s=timeout_s)
    return {spec.name: found[spec.name].partitions for spec in tables}
