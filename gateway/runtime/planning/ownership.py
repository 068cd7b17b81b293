"""Ownership of topics: no other gateway writes to them once this one does.

Identity is the source's system identifier, database and slot: a restart, a failover to another
process or to a promoted standby, and a slot that is made again have the same. A server after
pg_upgrade or restored from a dump has not, nor has a slot of another name; that is a takeover, and
a person says so (`pgsluice takeover`, `pgsluice slot drop --system-identifier`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial

import psycopg

from gateway.config import Settings
from gateway.core.errors import FatalError
from gateway.core.lsn import ZERO_LSN
from gateway.core.records import Writer
from gateway.sink.clients.identity import SlotIdentity
from gateway.sink.own_topics.owners import claim, read_owners, refuse_foreign
from gateway.sink.own_topics.progress import read_progress
from gateway.sink.registry.registry import Registry
from gateway.sink.topics.topics import describe_topics
from gateway.source.session.connection import ServerFacts
from gateway.source.stream.slot import slot_status

__all__ = ["claim_topics", "refuse_foreign_topics", "writer_of"]


def _identity(facts: ServerFacts, settings: Settings) -> SlotIdentity:
    return SlotIdentity(facts.system_identifier, facts.database, settings.source.slot)


def writer_of(facts: ServerFacts, settings: Settings) -> Writer:
    """Return this gateway's identity, as markers name it."""
    return Writer(*_identity(facts, settings).key, settings.gateway.name)


def refuse_foreign_topics(
    settings: Settings,
    connection: psycopg.Connection,
    facts: ServerFacts,
    registry: Registry,
    subscriptions: Iterable[str],
    *,
    refused: dict[str, FatalError] | None = None,
) -> None:
    """Refuse topics to which another gateway writes; changes nothing.

    `refused` is as in `gateway.sink.own_topics.owners.read_owners`: nothing is written there.

    Raises:
        ForeignTopics: names both.
        TransientError: Kafka or the registry does not answer.
    """
    owners = read_owners(settings.kafka, registry, subscriptions, refused=refused)
    refuse_foreign(
        writer_of(facts, settings),
        owners,
        known=cache(partial(_has_watermark, settings, facts)),
        siblings=_idle_siblings(settings, connection),
    )


def claim_topics(
    settings: Settings,
    connection: psycopg.Connection,
    facts: ServerFacts,
    registry: Registry,
    subscriptions: Iterable[str],
) -> None:
    """Claim the topics for this gateway, before its first record goes there.

    Raises:
        ForeignTopics: another gateway's; perhaps it was quicker.
        TransientError: Kafka or the registry does not answer.
    """
    claim(
        settings.kafka,
        registry,
        writer_of(facts, settings),
        subscriptions,
        known=cache(partial(_has_watermark, settings, facts)),
        siblings=_idle_siblings(settings, connection),
    )


def _has_watermark(settings: Settings, facts: ServerFacts) -> bool:
    topic, identity = settings.topics.progress, _identity(facts, settings)
    if not describe_topics(settings.kafka, [topic]):
        return False
    watermark = read_progress(settings.kafka, topic, identity, settled=False).watermark
    return watermark is not None and watermark.end_lsn > ZERO_LSN


def _idle_siblings(settings: Settings, connection: psycopg.Connection) -> list[str]:
    """Return the slots of this configuration's other groups that nobody reads.

    A subscription that was moved to another group comes to its gateway by itself.
    """
    if settings.group is None:
        return []
    base = settings.source.slot.removesuffix(f"_{settings.group}")
    slots = [base, *(f"{base}_{name}" for name in settings.source.groups)]
    found = []
    for slot in slots:
        status = slot_status(connection, slot)
        if slot != settings.source.slot and (status is None or not status.active):
            found.append(slot)
    return found
