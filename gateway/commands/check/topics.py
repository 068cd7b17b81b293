"""Findings about topics: whether Kafka has them, as they must be, with all their records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import psycopg

from gateway.commands.check.findings import Finding, Severity, fine
from gateway.config import Settings
from gateway.core.errors import FatalError
from gateway.core.names import transaction_topic
from gateway.definitions.model import Definitions, Plan
from gateway.runtime.planning.lost_records import MADE_AGAIN, changed_partitions, lost_records
from gateway.runtime.planning.ownership import refuse_foreign_topics
from gateway.runtime.planning.setup import slot_identity
from gateway.runtime.planning.topics import shared_topics, table_topics
from gateway.sink.own_topics.progress import read_progress
from gateway.sink.registry.registry import Registry
from gateway.sink.topics.durability import risks
from gateway.sink.topics.log_bounds import read_log_bounds
from gateway.sink.topics.topic_ids import ids_of, other_topics
from gateway.sink.topics.usability import examine_topics
from gateway.source.session.connection import ServerFacts

__all__ = ["owner_findings", "topic_findings"]


def owner_findings(
    connection: psycopg.Connection,
    settings: Settings,
    facts: ServerFacts,
    definitions: Definitions,
    failed_reads: dict[str, FatalError],
) -> Iterator[Finding]:
    """Yield the owners of the topics; those of another gateway are an error.

    `failed_reads` receives the errors of topics whose owner cannot be determined.
    """
    names = [subscription.name for subscription in definitions.subscriptions]
    with Registry(settings.registry) as registry:
        refuse_foreign_topics(settings, connection, facts, registry, names, refused=failed_reads)
    if not failed_reads:
        yield fine("topics: no other gateway writes to those of the subscriptions")


def topic_findings(
    settings: Settings, facts: ServerFacts, plan: Plan, failed_reads: Mapping[str, FatalError]
) -> Iterator[Finding]:
    """Yield the records that Kafka has lost, and the settings that let it lose records."""
    identity, progress = slot_identity(facts, settings), settings.topics.progress
    specs = table_topics(plan, settings)
    tables = [spec.name for spec in specs]
    markers = [transaction_topic(subscription.name) for subscription in plan.subscriptions]
    specs += shared_topics(plan, settings)
    examined = examine_topics(settings.kafka, specs, read=markers, failed_reads=failed_reads)
    found, unusable = dict(examined.found), examined.unusable
    for name, error in sorted(unusable.items()):
        then = "; its table is held" if name in tables else ""
        then = "; all tables of its subscription are held" if name in markers else then
        yield Finding(Severity.ERROR, f"kafka: {error.message}{then}", error.hint or "")
    if progress not in found:
        return
    recovered = read_progress(settings.kafka, progress, identity, settled=False)
    written = {t: o for t, o in recovered.offsets.items() if t in tables}
    there = {t: found[t].partitions for t in written if t in found}
    lost = lost_records(written, read_log_bounds(settings.kafka, there))
    lost |= {
        topic: "it does not exist any more"
        for topic in written
        if topic not in {**found, **unusable}
    }
    lost |= dict.fromkeys(other_topics(recovered.topic_ids, ids_of(examined.known)), MADE_AGAIN)
    changed = changed_partitions(there, {t: o for t, o in written.items() if t not in lost})
    for why in changed.values():
        yield Finding(
            Severity.ERROR,
            f"kafka: {why}",
            "its table is held until its copy is requested: `pgsluice copy TABLE`",
        )
    for topic, why in sorted(lost.items()):
        yield Finding(
            Severity.ERROR,
            f"kafka: topic {topic} has lost records: {why}",
            "its table is copied again at the next start"
            if settings.topics.on_lost_records == "copy"
            else "its table is held until its copy is requested: `pgsluice copy TABLE`",
        )
    others = [found.pop(progress)]
    for risk in risks(found.values(), others):
        severity = Severity.WARNING if risk.grave else Severity.FINE
        yield Finding(severity, f"kafka: {risk.message}", risk.hint)
