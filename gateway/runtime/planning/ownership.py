"""Ownership of topics: no other gateway writes to them once this one does.

Identity is the source's system identifier, database and slot: a restart, a failover to another
process or to a promoted standby, and a slot that is made again have the same. A server after
pg_upgrade or restored from a dump has not, nor has a slot of another name; that is a takeover, and
a person says so (`pgsluice takeover`, `pgsluice slot drop --system-identifier`).

A gateway's knowledge of a subscription's topics is void once another one has written there. The
CLAIM says so until the first marker after it. In between, the offsets are forgotten, and then one
Kafka transaction has the first markers and the states in which all tables are pending. A start that
finds the CLAIM last does all of it, again if need be.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Final

import psycopg

from gateway.config import Settings
from gateway.core.errors import AccessError, FatalError, HiddenMarkersError, TransientError
from gateway.core.lsn import ZERO_LSN, Lsn, format_lsn
from gateway.core.names import transaction_topic
from gateway.core.records import Writer
from gateway.core.watermark import CopyState, Watermark, restarted
from gateway.definitions.model import Plan
from gateway.observe import event
from gateway.sink.clients.identity import SlotIdentity
from gateway.sink.delivery.committed_state import CommittedState
from gateway.sink.delivery.sink import TransactionalSink
from gateway.sink.own_topics.claims import claim
from gateway.sink.own_topics.owners import Owner, read_owners, refuse_foreign
from gateway.sink.own_topics.progress import read_progress
from gateway.sink.own_topics.requests import forget_offsets
from gateway.sink.registry.registry import Registry
from gateway.sink.topics.topics import describe_topics
from gateway.source.session.connection import ServerFacts
from gateway.source.stream.server_position import ServerPosition
from gateway.source.stream.slot import slot_status
from schemas.topic_names import topic_part

__all__ = [
    "all_pending",
    "check_owners",
    "claim_topics",
    "forget_foreign_offsets",
    "published_until",
    "refuse_foreign_topics",
    "topics_of",
    "warn_of_gaps",
    "writer_of",
]

_LOG: Final = logging.getLogger(__name__)


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


def check_owners(settings: Settings, facts: ServerFacts, subscriptions: Collection[str]) -> None:
    """Refuse topics that another gateway has taken over since they were claimed here.

    It may be called in any thread.

    Raises:
        ForeignTopics: names both.
        HiddenMarkersError: the markers of some cannot be read, or not any more.
        TransientError: those of all cannot be read for now; or Kafka or the registry does not
            answer, or answers with something else.
        AccessError: one of them refuses the user.
    """
    refused: dict[str, FatalError] = {}
    try:
        with Registry(settings.registry) as registry:
            owners = read_owners(settings.kafka, registry, subscriptions, refused=refused)
    except HiddenMarkersError as error:
        if error.subscriptions < set(subscriptions):
            raise
        raise TransientError(error.message, hint=error.hint) from None
    except AccessError:
        raise
    except FatalError as error:
        # Whether a person must act is for the next start to say.
        raise TransientError(error.message, hint=error.hint) from None
    refuse_foreign(writer_of(facts, settings), owners, known=lambda: True)
    if refused:
        raise HiddenMarkersError(
            "; ".join(error.message for error in refused.values()),
            subscriptions=[name for name in subscriptions if transaction_topic(name) in refused],
            hint=next(iter(refused.values())).hint,
        )


def claim_topics(
    settings: Settings,
    connection: psycopg.Connection,
    facts: ServerFacts,
    registry: Registry,
    subscriptions: Iterable[str],
) -> dict[str, Owner]:
    """Claim the topics for this gateway, before its first record goes there.

    Returns:
        The subscriptions taken from another gateway whose tables are not pending yet: see
        `gateway.sink.own_topics.claims.claim`.

    Raises:
        ForeignTopics: another gateway's; perhaps it was quicker.
        TransientError: Kafka or the registry does not answer.
    """
    return claim(
        settings.kafka,
        registry,
        writer_of(facts, settings),
        subscriptions,
        known=cache(partial(_has_watermark, settings, facts)),
        siblings=_idle_siblings(settings, connection),
    )


def forget_foreign_offsets(
    settings: Settings,
    facts: ServerFacts,
    registry: Registry,
    sink: TransactionalSink,
    committed: CommittedState,
    taken: Collection[str],
) -> CommittedState:
    """Forget the offsets of topics that others have written to; return what remains known.

    Args:
        settings: The configuration.
        facts: Facts of the source server.
        registry: Registry for the schema of progress records.
        sink: This gateway's sink, not busy, which forgets them as well.
        committed: The state that it has committed.
        taken: Subscriptions taken from another gateway.

    Raises:
        TransientError: Kafka or the registry does not answer.
    """
    states = () if committed.watermark is None else committed.watermark.copies
    stale = topics_of(states, committed.offsets, taken)
    if stale:
        topic, identity = settings.topics.progress, _identity(facts, settings)
        forget_offsets(settings.kafka, topic, identity, registry, sorted(stale))
        sink.forget(stale)
    known = {topic: ends for topic, ends in committed.offsets.items() if topic not in stale}
    return replace(committed, offsets=known)


def topics_of(
    states: Iterable[CopyState], topics: Iterable[str], subscriptions: Collection[str]
) -> set[str]:
    """Return those of `topics` that are of tables of `subscriptions`, now or formerly."""
    own = {state.topic for state in states if state.subscription in subscriptions}
    prefixes = tuple(f"{topic_part(name)}." for name in subscriptions)
    return {topic for topic in topics if topic in own or topic.startswith(prefixes)}


def all_pending(watermark: Watermark, subscriptions: Collection[str]) -> Watermark:
    """Return the watermark in which all tables of `subscriptions` are to be copied."""
    states = (
        replace(restarted(state), taken=state.taken)
        if state.subscription in subscriptions and state.state in ("copying", "ready")
        else state
        for state in watermark.copies
    )
    return replace(watermark, copies=tuple(states))


def published_until(
    settings: Settings, taken: Mapping[str, Owner], server: ServerPosition
) -> dict[str, Lsn]:
    """Return the position up to which the previous owner has published, by subscription.

    It is left out if the previous owner is no group of this configuration: it may have published
    other rows. It is also left out if the copy does not begin with a ``t``, which removes rows
    whose DELETE that owner did not publish, and if the timeline of its position is not known or is
    none of the server's: other changes may stand at the same positions.

    Args:
        settings: The configuration.
        taken: Owners of the subscriptions that were taken from another gateway.
        server: Position of the server.
    """
    siblings = _siblings(settings)
    found: dict[str, Lsn] = {}
    for name, owner in taken.items():
        before = owner.taken_from
        if before is None or not owner.reads_same_server or before.slot not in siblings:
            continue
        if not settings.envelope.of(name).truncates:
            continue
        until = _until(owner, server)
        if until is not None:
            found[name] = until
    return found


def _until(owner: Owner, server: ServerPosition) -> Lsn | None:
    """Return the end of what a previous owner has published and the server's WAL has, too.

    None if it is not known: its position is on no timeline of the server.
    """
    left = {**server.history, server.timeline: server.wal_end}.get(owner.timeline)
    return None if left is None else min(owner.reached, left)


def warn_of_gaps(
    plan: Plan, taken: Mapping[str, Owner], position: Lsn, server: ServerPosition
) -> None:
    """Log the subscriptions of which changes may be lost, because nothing is copied.

    The position of a previous owner counts up to where the server left its timeline.

    Args:
        plan: The plan.
        taken: Owners of the subscriptions that were taken from another gateway.
        position: Position from which this gateway reads; the slot does not have what is before.
        server: Position of the server.
    """
    copying = {one.name for one in plan.subscriptions if one.copy_data}
    for name, owner in taken.items():
        before = owner.taken_from
        if name in copying or not owner.reads_same_server or before is None:
            continue
        until = _until(owner, server) or ZERO_LSN
        if until >= position:
            continue
        if until == owner.reached:
            hint = (
                f"while the slot of {before} exists, move the subscription back there and let it "
                "read up to the second position; then move it again"
            )
        else:
            why = (
                "and the source has failed over since"
                if owner.timeline
                else "but its marker does not name the timeline"
            )
            hint = (
                f"{before} had published up to {format_lsn(owner.reached)}, {why}: compare the "
                "subscription's tables with what readers have"
            )
        event(
            _LOG,
            logging.WARNING,
            "changes of a subscription with copy_data = false may be lost",
            subscription=name,
            published_until=format_lsn(until) if until else "not known",
            read_from=format_lsn(position),
            hint=hint,
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
    found = []
    for slot in _siblings(settings):
        status = slot_status(connection, slot)
        if status is None or not status.active:
            found.append(slot)
    return found


def _siblings(settings: Settings) -> list[str]:
    """Return the slots of this configuration's other groups, and the one without groups."""
    if settings.group is None:
        return []
    base = settings.source.slot.removesuffix(f"_{settings.group}")
    slots = [base, *(f"{base}_{name}" for name in settings.source.groups)]
    return [slot for slot in slots if slot != settings.source.slot]
