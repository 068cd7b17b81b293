"""``pgsluice takeover``: let this gateway write to topics of another one.

The other one is fenced by its transactional id, so that nothing of it comes after the CLAIM; when
it starts again it is refused. All tables of the subscription are copied again: records of the other
one do not describe this source.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from gateway.config import Settings
from gateway.core.display import say
from gateway.core.errors import ConfigError, SlotBusyError
from gateway.core.failpoints import fail_point
from gateway.core.watermark import CopyRequest
from gateway.runtime.planning.ownership import topics_of, writer_of
from gateway.runtime.planning.plan import read_definitions
from gateway.runtime.planning.setup import slot_identity
from gateway.sink.own_topics.claims import take_over
from gateway.sink.own_topics.owners import Owner, read_owners
from gateway.sink.own_topics.progress import read_progress
from gateway.sink.own_topics.requests import forget_offsets, send_request
from gateway.sink.registry.registry import Registry
from gateway.sink.topics.topics import ensure_topics, progress_topic_spec
from gateway.source.session.connection import ServerFacts, connect, server_facts
from gateway.source.stream.slot import slot_status

__all__ = ["take_over_from", "takeover"]


def takeover(settings: Settings, subscriptions: Sequence[str]) -> int:
    """Take over the topics of subscriptions, and print their previous owners.

    Args:
        settings: Settings of the gateway that is to write there from now on.
        subscriptions: Names of the subscriptions.

    Raises:
        ConfigError: the definitions do not have one of them.
        SlotBusyError: this gateway runs.
        TransientError: a server cannot be reached.
    """
    defined = {
        subscription.name for subscription in read_definitions(settings, masks=False).subscriptions
    }
    for name in subscriptions:
        if name not in defined:
            raise ConfigError(
                f"the definitions have no subscription {name}",
                hint=f"they have {', '.join(sorted(defined))}",
            )
    with connect(settings.source.dsn) as connection, Registry(settings.registry) as registry:
        facts = server_facts(connection)
        slot = slot_status(connection, settings.source.slot)
        if slot is not None and slot.active:
            raise SlotBusyError(
                f'replication slot "{settings.source.slot}" is being read (process '
                f"{slot.active_pid} of the server)",
                hint="stop this gateway first",
            )
        owners = read_owners(settings.kafka, registry, subscriptions, without_schemas=True)
        mine = writer_of(facts, settings).owner
        foreign = {
            name: owner
            for name, owner in owners.items()
            if owner.is_unclear or owner.writer is None or owner.writer.owner != mine
        }
        take_over_from(settings, facts, registry, foreign)
    for name in subscriptions:
        if name in foreign:
            say(f"subscription {name}: taken over from {_name(foreign[name])}")
        else:
            whose = "this gateway's already" if name in owners else "nobody's"
            say(f"subscription {name}: its topics are {whose}")
    if foreign:
        say("`pgsluice run` copies the tables of what was taken over")
    return 0


def take_over_from(
    settings: Settings,
    facts: ServerFacts,
    registry: Registry,
    owners: Mapping[str, Owner],
) -> None:
    """Take over the topics of subscriptions; this gateway's knowledge of them becomes void.

    Raises:
        TransientError: Kafka or the registry does not answer.
        FatalError: one of them does not let us in.
    """
    if not owners:
        return
    # The CLAIM comes last: until then the topics are another's, and the rest says nothing. A start
    # that finds the CLAIM does the same again, unless retention has removed it by then.
    topic, identity = settings.topics.progress, slot_identity(facts, settings)
    factor = settings.topics.replication_factor
    ensure_topics(settings.kafka, [progress_topic_spec(topic, replication_factor=factor)])
    found = read_progress(settings.kafka, topic, identity)
    states = () if found.watermark is None else found.watermark.copies
    stale = topics_of(states, found.offsets, owners)
    forget_offsets(settings.kafka, topic, identity, registry, sorted(stale))
    for name in owners:
        request = CopyRequest(uuid.uuid4().hex, None, None, name)
        send_request(settings.kafka, topic, identity, registry, request)
    fail_point("takeover.requested")
    take_over(settings.kafka, registry, writer_of(facts, settings), owners)


def _name(owner: Owner) -> str:
    if owner.is_unclear:
        return "a gateway whose markers cannot be read"
    return "a gateway that does not say who it is" if owner.writer is None else str(owner.writer)
