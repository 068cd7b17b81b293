"""Ownership of subscriptions' topics, as their markers say.

A marker names its writer. The writer of the last one owns the topics of the subscription, and no
other gateway writes there. A gateway that finds no marker writes a CLAIM first and reads it back
(`gateway.sink.own_topics.claims`): if two start at the same instant, the one whose CLAIM comes
first wins, because a CLAIM is valid only if the topics had no owner, or were owned by its writer or
by the one that it names in `taken_from`. The other CLAIM stays where it is and has no effect.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from gateway.core.errors import (
    FatalError,
    HiddenMarkersError,
    ProtocolError,
    TransientError,
)
from gateway.core.lsn import ZERO_LSN, Lsn
from gateway.core.names import transaction_topic
from gateway.core.records import Writer
from gateway.observe import event
from gateway.sink.clients.client_errors import ErrorCallback
from gateway.sink.clients.failures import classify_kafka_error
from gateway.sink.clients.properties import connect_first, consumer_properties, make_client
from gateway.sink.reading.decoding import LackingSchemaError, RegisteredSchemas, decode_as
from gateway.sink.registry.registry import Registry
from gateway.sink.topics.log_bounds import LogBounds, read_bounds
from gateway.sink.topics.topics import describe_topics

__all__ = [
    "ForeignTopics",
    "NamedOwners",
    "Owner",
    "owner_of",
    "read_owners",
    "refuse_foreign",
]

_LOG: Final = logging.getLogger(__name__)
_TIMEOUT_S: Final = 30.0
_TOPIC_S: Final = 0.2
"""Seconds by which each topic adds to the timeout."""
_POLL_S: Final = 0.2
_FIRST_LOOK: Final = 64
"""Number of offsets before the end that are read first; control records have offsets, too."""
_LONGEST: Final = 256 << 10
"""Maximum total length of a topic's marker schemas; the gateway's own has a few thousand."""
_FARTHER: Final = 16
_MOST_NAMED: Final = 20
"""Maximum number of warnings about unreadable markers per topic: there may be any number."""


@dataclass(frozen=True, slots=True)
class NamedOwners:
    """Owners named in a marker.

    Attributes:
        is_claim: Whether the marker is a CLAIM.
        writer: Writer; None if the marker does not name one.
        taken_from: Previous owner named in a CLAIM.
        reached: Position of a PROGRESS; 0 for other markers.
    """

    is_claim: bool
    writer: Writer | None
    taken_from: Writer | None = None
    reached: Lsn = ZERO_LSN


@dataclass(frozen=True, slots=True)
class Owner:
    """Owner of a subscription's topics.

    Attributes:
        writer: Owning gateway; None if the markers do not name their writer.
        taken_from: Previous owner, until the owner has written another marker than its CLAIM.
        reached: Position of the last PROGRESS that was read: the previous owner's if there is one.
            0 if none was read.
    """

    writer: Writer | None
    taken_from: Writer | None = None
    reached: Lsn = field(default=ZERO_LSN, compare=False)

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
        reached = ZERO_LSN if owner is None else owner.reached
        if not marker.is_claim:
            owner = Owner(marker.writer, reached=marker.reached or reached)
            continue
        taken_from = marker.taken_from
        if held is not None and marker.writer is not None:
            asked = None if taken_from is None else taken_from.owner
            if held.owner not in (marker.writer.owner, asked):
                continue  # another gateway was first
            if held.owner == marker.writer.owner:
                assert owner is not None
                taken_from = owner.taken_from  # claimed once more, or by its own owner
        owner = Owner(marker.writer, taken_from, reached)
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
            write to many topics could keep each of them from ending.
        refused: Receives the errors of marker topics that may not be described or read, by name,
            instead of raising them.
        without_schemas: Whether a topic has an unnamed owner if none of its markers can be read,
            and the registry lacks schemas of some. Otherwise it may be anybody's: the registry may
            have lost them, or something before it may answer in its place.

    Raises:
        HiddenMarkersError: the markers of some cannot be read in time, those of others can; or not
            at all, because the registry lacks their schemas.
        TransientError: Kafka or the registry does not answer in time.
        FatalError: one of them refuses access.
    """
    topics = {transaction_topic(name): name for name in subscriptions}
    existing = describe_topics(kafka, list(topics), refused=refused)
    if not existing:
        return {}
    doing = "reading the last markers"
    # One per topic: a topic that names too many schemas must not keep others from being read.
    registered = {topic: RegisteredSchemas(registry, longest=_LONGEST) for topic in existing}
    connection_errors = ErrorCallback()
    consumer = make_client(Consumer, consumer_properties(kafka), connection_errors)
    found: dict[str, Owner] = {}
    lacking: set[str] = set()
    try:
        # Asked for one by one, many topics would take longer than there is time. A consumer that
        # begins after the first record of an open Kafka transaction gets no end before that is
        # ended: a gateway that was killed has left one.
        places = [(topic, 0) for topic in existing]
        bounds = read_bounds(kafka, places, committed=True, timeout_s=timeout_s)
        left, look = list(existing), _FIRST_LOOK
        deadline = time.monotonic() + timeout_s + _TOPIC_S * len(left)
        connect_first(consumer, left[0])
        while left:
            within = {topic: bounds[topic, 0] for topic in left}
            tails, whole, denied, late = _read_tails(
                consumer, within, look, registered, deadline, lacking
            )
            if late:
                names = [topics[topic] for topic in late]
                raise _too_late(names, whether_all=len(names) == len(existing))
            if denied and refused is None:
                raise next(iter(denied.values()))
            for topic, error in denied.items():
                assert refused is not None
                refused[topic] = error
                left.remove(topic)
            for topic, tail in tails.items():
                if topic in denied:
                    continue
                # For a CLAIM alone, the previous owner matters.
                if any(one is not None and not one.is_claim for one in tail) or topic in whole:
                    owner = owner_of(filter(None, tail))
                    if owner is not None:
                        found[topics[topic]] = owner
                    elif tail:
                        found[topics[topic]] = Owner(None)  # for unreadable records
                    left.remove(topic)
            look *= _FARTHER
        unknown = {name for topic, name in topics.items() if topic in lacking and name in found}
        unclear = {name for name in unknown if found[name].writer is None}
        if unclear and not without_schemas:
            raise _unclear(unclear)
    except KafkaException as raised:
        raise classify_kafka_error(
            raised.args[0], doing=doing, reported=connection_errors.last
        ) from None
    finally:
        consumer.close()
    return found


def _read_tails(
    consumer: Consumer,
    topics: Mapping[str, LogBounds],
    look: int,
    registered: Mapping[str, RegisteredSchemas],
    deadline: float,
    lacking: set[str],
) -> tuple[dict[str, list[NamedOwners | None]], set[str], dict[str, FatalError], set[str]]:
    """Return the markers in the last `look` offsets of each topic.

    The other results are the topics that were read as a whole, the errors of those that may not be
    read, and those that were not read to their end by the deadline. `lacking` receives the topics
    with records for which the registry has no schema.
    """
    whole: set[str] = set()
    places = []
    for topic, bounds in topics.items():
        begin = max(bounds.start, bounds.end - look)
        if begin == bounds.start:
            whole.add(topic)
        places.append(TopicPartition(topic, 0, begin))
    consumer.assign(places)
    tails: dict[str, list[NamedOwners | None]] = {topic: [] for topic in topics}
    left, unreadable = set(topics), Counter[str]()
    denied: dict[str, FatalError] = {}
    while left and (rest := deadline - time.monotonic()) > 0:
        message = consumer.poll(min(_POLL_S, rest))
        if message is None:
            continue
        topic, error = message.topic() or "", message.error()
        if topic not in left and (error is None or error.code() == KafkaError._PARTITION_EOF):
            continue
        if error is None:
            level = logging.WARNING if unreadable[topic] < _MOST_NAMED else logging.DEBUG
            marker = _named_owners(message, registered[topic], level, lacking)
            unreadable[topic] += marker is None
            tails[topic].append(marker)
            # Somebody may write without an end.
            if (message.offset() or 0) >= topics[topic].end - 1:
                left.discard(topic)
        elif error.code() == KafkaError._PARTITION_EOF:
            left.discard(topic)
        elif error.code() != KafkaError._ALL_BROKERS_DOWN:
            doing = f"reading the last markers of topic {topic}"
            failure = classify_kafka_error(error, doing=doing)
            if topic not in left or not isinstance(failure, FatalError):
                raise failure
            denied[topic] = failure
            left.discard(topic)
    return tails, whole, denied, left


def _too_late(names: list[str], *, whether_all: bool) -> TransientError:
    if whether_all:  # it is not about them
        return TransientError("reading the last markers: no answer in time")
    listed = ", ".join(transaction_topic(name) for name in sorted(names))
    return HiddenMarkersError(
        f"reading the last markers: no end of {listed} in time", subscriptions=names
    )


def _unclear(names: Collection[str]) -> HiddenMarkersError:
    listed = ", ".join(transaction_topic(name) for name in sorted(names))
    return HiddenMarkersError(
        f"no marker in {listed} can be read, and the registry lacks schemas of some: the owner of "
        "the topics is not known",
        subscriptions=names,
        hint="check that registry.url reaches the registry in which the schemas were registered; "
        f"if they are lost, run `pgsluice takeover {' '.join(sorted(names))}`, which copies the "
        "tables again",
    )


def _named_owners(
    message: Message, registered: RegisteredSchemas, level: int, lacking: set[str]
) -> NamedOwners | None:
    """Return the owners named in a marker; None if it cannot be read and is skipped."""
    topic, value = message.topic() or "", message.value()
    try:
        try:
            datum = registered.decode(value, "transaction")
        except ProtocolError:
            # Whoever wrote it owns the topics, whatever answers in the registry's place. A gateway
            # of another version may have another schema.
            with contextlib.suppress(ProtocolError):
                return _names_in(decode_as(value, "transaction"))
            raise
        return _names_in(datum)
    except ProtocolError as error:
        if isinstance(error, LackingSchemaError):
            lacking.add(topic)
        event(
            _LOG,
            level,
            "marker cannot be read, skipped",
            topic=topic,
            offset=message.offset(),
            error=error.reason,
        )
        return None


def _names_in(datum: Mapping[str, Any]) -> NamedOwners:
    return NamedOwners(
        datum["kind"] == "CLAIM",
        _writer(datum["writer"]),
        _writer(datum["taken_from"]),
        Lsn(datum["end_lsn"]) if datum["kind"] == "PROGRESS" else ZERO_LSN,
    )


def _writer(datum: Mapping[str, Any] | None) -> Writer | None:
    return None if datum is None else Writer(**datum)


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
