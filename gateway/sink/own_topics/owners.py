"""Ownership of subscriptions' topics, as their markers say.

A marker names its writer. The writer of the last one owns the topics of the subscription, and no
other gateway writes there. A gateway that finds no marker writes a CLAIM first and reads it back
(`gateway.sink.own_topics.claims`): if two start at the same instant, the one whose CLAIM comes
first wins, because a CLAIM is valid only if the topics had no owner, or were owned by its writer or
by the one that it names in `taken_from`. The other CLAIM stays where it is and has no effect.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from confluent_kafka import Consumer, KafkaException

from gateway.core.errors import (
    FatalError,
    GatewayError,
    HiddenMarkersError,
    TransientError,
)
from gateway.core.lsn import ZERO_LSN, Lsn
from gateway.core.names import transaction_topic
from gateway.core.records import Writer
from gateway.observe import event
from gateway.sink.clients.client_errors import ErrorCallback
from gateway.sink.clients.failures import classify_kafka_error
from gateway.sink.clients.properties import connect_first, consumer_properties, make_client
from gateway.sink.own_topics.last_markers import MOST_VALUES, NamedOwners, TopicTail, search
from gateway.sink.reading.decoding import RegisteredSchemas
from gateway.sink.registry.registry import Registry
from gateway.sink.topics.log_bounds import read_bounds
from gateway.sink.topics.topics import describe_topics

__all__ = ["ForeignTopics", "Owner", "owner_of", "read_owners", "refuse_foreign"]

_LOG: Final = logging.getLogger(__name__)
_TIMEOUT_S: Final = 30.0
_TOPIC_S: Final = 0.2
"""Seconds by which each topic adds to the timeout."""
_AGAIN_S: Final = 5.0
"""Minimum time of a second search, after an error that may have passed."""
_LONGEST: Final = 256 << 10
"""Maximum total length of a topic's marker schemas; the gateway's own has a few thousand."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Owner of a subscription's topics.

    Attributes:
        writer: Owning gateway; None if the markers do not name their writer.
        taken_from: Previous owner, until the owner has written another marker than its CLAIM.
        reached: Position of the last PROGRESS that was read: the previous owner's if there is one.
            0 if none was read.
        timeline: Timeline that has this position; 0 if unknown.
        is_unclear: Whether another gateway may have taken the topics over since, whose markers
            cannot be read because the registry lacks their schemas.
    """

    writer: Writer | None
    taken_from: Writer | None = None
    reached: Lsn = field(default=ZERO_LSN, compare=False)
    timeline: int = field(default=0, compare=False)
    is_unclear: bool = field(default=False, compare=False)

    @property
    def reads_same_server(self) -> bool:
        """Whether it was taken from a gateway of the same server and database."""
        one, other = self.writer, self.taken_from
        return one is not None and other is not None and one.owner[:2] == other.owner[:2]


class ForeignTopics(FatalError):
    """Error of topics that are owned by another gateway."""


def owner_of(markers: Iterable[NamedOwners], before: Owner | None = None) -> Owner | None:
    """Return the owner of the topics after `markers`; None if they have none.

    Args:
        markers: Markers in the order of the topic.
        before: Owner before the first of them.
    """
    owner = before
    for marker in markers:
        held = None if owner is None else owner.writer
        reached, timeline = (ZERO_LSN, 0) if owner is None else (owner.reached, owner.timeline)
        if not marker.is_claim:
            if marker.reached:
                reached, timeline = marker.reached, marker.timeline
            owner = Owner(marker.writer, None, reached, timeline)
            continue
        taken_from = marker.taken_from
        if held is not None and marker.writer is not None:
            asked = None if taken_from is None else taken_from.owner
            if held.owner not in (marker.writer.owner, asked):
                continue  # another gateway was first
            if held.owner == marker.writer.owner:
                assert owner is not None
                taken_from = owner.taken_from  # claimed once more, or by its own owner
        owner = Owner(marker.writer, taken_from, reached, timeline)
    return owner


def read_owners(
    kafka: Mapping[str, str | int | bool],
    registry: Registry,
    subscriptions: Iterable[str],
    *,
    timeout_s: float = _TIMEOUT_S,
    refused: dict[str, FatalError] | None = None,
    without_schemas: bool = False,
) -> dict[str, Owner]:
    """Return the owner of each subscription's topics; subscriptions without one are left out.

    Args:
        kafka: librdkafka properties of the user.
        registry: Registry with the schemas of markers.
        subscriptions: Names of the subscriptions.
        timeout_s: Seconds, and a fifth of one for each topic, after which to give up: whoever may
            write to many topics could keep each of them from ending. A topic that Kafka has
            answered with an error that may pass is read a second time, for 5 seconds at least.
        refused: Receives the errors of marker topics that may not be described or read, by name,
            instead of raising them.
        without_schemas: Whether to return owners that are not clear, and one without a name if no
            marker of a topic can be read. The topics may be anybody's: the registry may have lost
            schemas, or something before it may answer in its place.

    Raises:
        HiddenMarkersError: the last markers of some were not found in time, or not in two searches,
            although Kafka answers, or cannot be read because the registry lacks their schemas; it
            may be all of them. If it lacks those of all that have markers, the error is also of
            those whose topics are empty: they are no reason to go on without the others.
        TransientError: Kafka or the registry does not answer in time.
        FatalError: one of them refuses access.
    """
    names = {transaction_topic(name): name for name in subscriptions}
    existing = describe_topics(kafka, list(names), refused=refused)
    if not existing:
        return {}
    connection_errors = ErrorCallback()
    consumer = make_client(Consumer, consumer_properties(kafka), connection_errors)
    try:
        tails = _tails(kafka, registry, existing, timeout_s)
        deadline = time.monotonic() + timeout_s + _TOPIC_S * len(tails)
        connect_first(consumer, next(iter(tails)))
        denied, late = search(consumer, tails, deadline)
        if failed := _failures(tails):
            deadline = max(deadline, time.monotonic() + _AGAIN_S)
            tails |= _tails_again(kafka, registry, failed, deadline)
            again = {topic: tails[topic] for topic in failed if tails[topic].failure is None}
            denied_again, late_again = search(consumer, again, deadline)
            denied |= denied_again
            late = late - again.keys() | late_again
    except KafkaException as raised:
        raise classify_kafka_error(
            raised.args[0], doing="reading the last markers", reported=connection_errors.last
        ) from None
    finally:
        consumer.close()
    if denied and refused is None:
        raise next(iter(denied.values()))
    if refused is not None:
        refused |= denied
    found: dict[str, Owner] = {}
    unclear: set[str] = set()
    for topic in tails.keys() - denied.keys() - late:
        tail, name = tails[topic], names[topic]
        owner = owner_of(tail.markers)
        if owner is None and tail.has_records:
            owner = Owner(None)
        if owner is not None and tail.lacks_schema:
            owner = replace(owner, is_unclear=True)
            if not without_schemas:
                unclear.add(name)
        if owner is not None:
            found[name] = owner
    unreadable = {*(names[topic] for topic in late), *unclear}
    # An empty topic does not show that the registry has schemas of markers.
    has_lost_all = bool(unclear) and unclear == found.keys()
    hidden = {names[topic] for topic in tails} if has_lost_all else unreadable
    if late:
        raise _hidden(unreadable, tails, hidden)
    if unclear:
        raise _unclear(unclear, hidden)
    return found


def _tails(
    kafka: Mapping[str, str | int | bool],
    registry: Registry,
    topics: Iterable[str],
    timeout_s: float,
) -> dict[str, TopicTail]:
    # Asked for one by one, many topics would take longer than there is time. A consumer that begins
    # after the first record of an open Kafka transaction gets no end before that is ended: a
    # gateway that was killed has left one.
    places = [(topic, 0) for topic in topics]
    bounds = read_bounds(kafka, places, committed=True, timeout_s=timeout_s)
    return {
        # One decoder each: a topic that names too many schemas must not hide others.
        topic: TopicTail(
            topic,
            bound,
            RegisteredSchemas(registry, longest=_LONGEST, most_values=MOST_VALUES),
        )
        for (topic, _), bound in bounds.items()
    }


def _failures(tails: Mapping[str, TopicTail]) -> dict[str, GatewayError]:
    """Return the errors that have ended the search of topics, and may pass, by topic."""
    return {topic: tail.failure for topic, tail in tails.items() if tail.failure is not None}


def _tails_again(
    kafka: Mapping[str, str | int | bool],
    registry: Registry,
    failed: Mapping[str, GatewayError],
    deadline: float,
) -> dict[str, TopicTail]:
    """Return new tails for a second search after errors: a subscription held is copied again.

    The bounds are asked for again, as records may have been deleted meanwhile. Nothing is returned
    if they are not: the errors remain.
    """
    for topic, error in failed.items():
        event(
            _LOG,
            logging.WARNING,
            "reading last markers again",
            topic=topic,
            error=error.message,
        )
    try:
        return _tails(kafka, registry, failed, deadline - time.monotonic())
    except GatewayError as error:
        event(_LOG, logging.WARNING, "last markers not read again", error=error.message)
        return {}


def _hidden(
    names: Collection[str], tails: Mapping[str, TopicTail], subscriptions: Collection[str]
) -> TransientError:
    topics = [transaction_topic(name) for name in sorted(names)]
    failed = _failures({topic: tails[topic] for topic in topics})
    reasons = [error.message for error in failed.values()]
    is_answered = any(tail.has_answered for tail in tails.values())
    if others := ", ".join(topic for topic in topics if topic not in failed):
        why = f"none found in {others} in time" if is_answered else f"no answer of {others} in time"
        reasons.insert(0, f"reading the last markers: {why}")
    message = "; ".join(reasons)
    if not is_answered:
        return TransientError(message)
    hints = [error.hint for error in failed.values() if error.hint is not None]
    if others:
        hints.insert(
            0,
            "Kafka is slow, or somebody else has written there: revoke that right; "
            "kafka-delete-records removes what was written",
        )
    return HiddenMarkersError(
        message, subscriptions=subscriptions, hint="; ".join(dict.fromkeys(hints)) or None
    )


def _unclear(names: Collection[str], subscriptions: Collection[str]) -> HiddenMarkersError:
    listed = ", ".join(transaction_topic(name) for name in sorted(names))
    return HiddenMarkersError(
        f"the last markers in {listed} cannot be read, because the registry lacks their schemas: "
        "the owner of the topics is not known",
        subscriptions=subscriptions,
        hint="check that registry.url reaches the registry in which the schemas were registered; "
        f"if they are lost, run `pgsluice takeover {' '.join(sorted(names))}`, which copies the "
        "tables again",
    )


def refuse_foreign(
    writer: Writer,
    owners: Mapping[str, Owner],
    *,
    known: Callable[[], bool] = lambda: False,
    siblings: Iterable[str] = (),
) -> None:
    """Raise if an owner is not the writer; arguments as for `claim`.

    Raises:
        ForeignTopics: names both.
    """
    slots = set(siblings)
    for name, owner in sorted(owners.items()):
        held = owner.writer
        if held is None:
            if known():
                continue
        elif held.owner == writer.owner or (
            held.owner[:2] == writer.owner[:2] and held.slot in slots
        ):
            continue
        raise ForeignTopics(
            f"the topics of subscription {name} are written by "
            f"{'a gateway that does not say who it is' if held is None else held}; this one is "
            f"{writer}",
            hint=_way_out(name, held, writer),
        )


def _way_out(name: str, held: Writer | None, writer: Writer) -> str:
    another = "give the subscription another name in the definitions"
    if held is not None and (held.database, held.slot) == (writer.database, writer.slot):
        return (
            "if this server replaces the other one (pg_upgrade, a restored dump), stop the "
            "gateway that reads the other one and run `pgsluice slot drop "
            f"--system-identifier {held.system_identifier}`; otherwise {another}"
        )
    return (
        f"{another}; or, if this gateway is to write there from now on, stop the other one "
        f"permanently and run `pgsluice takeover {name}`, which copies its tables again"
    )
