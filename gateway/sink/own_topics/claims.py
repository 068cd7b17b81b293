"""Claims of subscriptions' topics: the CLAIM markers of a gateway that is to own them.

Claims are produced outside of Kafka transactions, because the start of a transactional producer
would fence another gateway of the slot.

A CLAIM that takes topics from another gateway is also the order to copy their tables. It stands
until its writer's next marker, which is in one Kafka transaction with the states in which the
tables are to be copied (`gateway.runtime.planning.ownership`): wherever a gateway dies between the
two, the next start finds the CLAIM without a successor, and does the same. The previous owner is
fenced before the CLAIM, since its open Kafka transaction would hide it, and once more when the
CLAIM can be read: whoever starts after that sees it, and whoever started before cannot write. A
sink that replaces its producer by itself starts in this sense, too (`TransactionalSink`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import schemas
from gateway.core.errors import HiddenMarkersError, TransientError
from gateway.core.failpoints import fail_point
from gateway.core.lsn import ZERO_LSN
from gateway.core.names import transaction_topic
from gateway.core.records import Record, Writer
from gateway.envelope.envelope import wire_prefix
from gateway.envelope.headers import HeaderMaker
from gateway.envelope.markers import encode_claim, encode_writer
from gateway.observe import event
from gateway.sink.clients.identity import SlotIdentity
from gateway.sink.delivery.producer import TransactionalProducer
from gateway.sink.own_topics.owners import Owner, read_owners, refuse_foreign
from gateway.sink.own_topics.requests import send
from gateway.sink.registry.registry import Registry
from gateway.sink.topics.log_bounds import read_bounds

__all__ = ["OPEN_TRANSACTION", "claim", "take_over"]

OPEN_TRANSACTION: Final = (
    "it ends with the program that writes there, at the latest after its transaction.timeout.ms; "
    "`kafka-transactions.sh` lists it"
)
_LOG: Final = logging.getLogger(__name__)
_FENCE_S: Final = 30.0
_SETTLE_S: Final = 10.0
"""Seconds that open Kafka transactions of others may take to end."""
_POLL_S: Final = 0.2


def claim(
    kafka: Mapping[str, str | int | bool],
    registry: Registry,
    writer: Writer,
    subscriptions: Iterable[str],
    *,
    known: Callable[[], bool] = lambda: False,
    siblings: Iterable[str] = (),
) -> dict[str, Owner]:
    """Ensure that `writer` owns the topics of `subscriptions`; claim those without an owner.

    The marker topics must exist.

    Args:
        kafka: librdkafka properties of the user.
        registry: Registry for the schema of markers.
        writer: Identity of this gateway.
        subscriptions: Names of the subscriptions.
        known: Whether the writer has a watermark, so that markers without a writer are its own;
            called only if there are such markers.
        siblings: Unread slots of the same configuration, whose topics are taken over.

    Returns:
        The subscriptions that were taken from another gateway, now or earlier, and have no marker
        of the writer's since: all that it knows of their topics is void, and their tables are to be
        copied.

    Raises:
        ForeignTopics: another gateway owns the topics of one.
        HiddenMarkersError: a claim could not be read, because of a Kafka transaction that is open.
        TransientError: Kafka or the registry does not answer in time.
    """
    names = list(subscriptions)
    owners = read_owners(kafka, registry, names)
    refuse_foreign(writer, owners, known=known, siblings=siblings)
    wanted: dict[str, Writer | None] = {}
    for name in names:
        owner = owners.get(name)
        if owner is None or owner.writer is None:
            wanted[name] = None
        elif owner.writer.owner != writer.owner:
            wanted[name] = owner.writer
    if wanted:
        owners |= _claim(kafka, registry, writer, wanted)
        # If another gateway started at the same instant, the first one wins.
        refuse_foreign(writer, owners, known=known)
        event(_LOG, logging.INFO, "topics claimed", subscriptions=", ".join(sorted(wanted)))
    return {name: owner for name, owner in owners.items() if owner.taken_from is not None}


def take_over(
    kafka: Mapping[str, str | int | bool],
    registry: Registry,
    writer: Writer,
    owners: Mapping[str, Owner],
) -> None:
    """Make the writer the owner of the topics, whoever owned them before.

    Raises:
        TransientError: Kafka or the registry does not answer, a claim cannot be read, or another
            gateway has written again.
    """
    wanted = {name: owner.writer for name, owner in owners.items()}
    for name, owner in _claim(kafka, registry, writer, wanted).items():
        if owner.writer is None or owner.writer.owner != writer.owner:
            raise TransientError(
                f"the topics of subscription {name} are not taken over: {owner.writer} has written "
                "again",
                hint="stop it first",
            )


def _claim(
    kafka: Mapping[str, str | int | bool],
    registry: Registry,
    writer: Writer,
    wanted: Mapping[str, Writer | None],
) -> dict[str, Owner]:
    """Claim topics; return their owners as of the claims.

    `wanted` has the gateway from which they are taken, or None, by subscription.

    Raises:
        HiddenMarkersError: a claim cannot be read, or could not be if it was written.
        TransientError: Kafka or the registry does not answer, or a topic is not there.
    """
    previous = {held.owner: held for held in wanted.values() if held is not None}
    for held in previous.values():
        _fence(kafka, held)
    topics = {transaction_topic(name): name for name in wanted}
    # Before anything is written: each try would leave another CLAIM.
    bounds = read_bounds(kafka, [(topic, 0) for topic in topics])
    _wait_until_settled(kafka, topics, {topic: bounds[topic, 0].end for topic in topics})
    claims = _produce_claims(kafka, registry, writer, wanted)
    fail_point("takeover.claimed")
    _wait_until_settled(kafka, topics, {topic: at + 1 for topic, at in claims.items()})
    for held in previous.values():
        _fence(kafka, held)
    owners = read_owners(kafka, registry, wanted)
    if lacking := sorted(wanted.keys() - owners.keys()):
        # A broker that has not learned of a new topic yet says that there is none.
        raise TransientError(f"claims in {transaction_topic(lacking[0])} cannot be read back")
    return owners


def _wait_until_settled(
    kafka: Mapping[str, str | int | bool], topics: Mapping[str, str], ends: Mapping[str, int]
) -> None:
    """Wait until topics can be read to `ends`; `topics` are the subscriptions by topic.

    Raises:
        HiddenMarkersError: some cannot, because of Kafka transactions that stay open.
        TransientError: Kafka does not answer.
    """
    deadline = time.monotonic() + _SETTLE_S
    left = [(topic, 0) for topic in topics]
    while True:
        bounds = read_bounds(kafka, left, committed=True)
        left = [place for place in left if bounds[place].end < ends[place[0]]]
        if not left:
            return
        if time.monotonic() >= deadline:
            break
        time.sleep(_POLL_S)
    names = sorted(topic for topic, _ in left)
    raise HiddenMarkersError(
        f"claims in {', '.join(names)} cannot be read: an open Kafka transaction is before them",
        subscriptions=[topics[topic] for topic in names],
        hint=OPEN_TRANSACTION,
    )


def _fence(kafka: Mapping[str, str | int | bool], writer: Writer) -> None:
    """Abort the gateway's open Kafka transaction; it restarts, and is refused if it is foreign."""
    deadline = time.monotonic() + _FENCE_S
    transactions = TransactionalProducer(
        kafka,
        SlotIdentity(*writer.owner).transactional_id,
        lambda *_: None,
        lambda: time.monotonic() >= deadline,
    )
    try:
        transactions.start()
    finally:
        transactions.close()


def _produce_claims(
    kafka: Mapping[str, str | int | bool],
    registry: Registry,
    writer: Writer,
    wanted: Mapping[str, Writer | None],
) -> dict[str, int]:
    """Produce a CLAIM for each subscription; return their offsets by topic."""
    headers = HeaderMaker(ZERO_LSN, None, None, None).make(ZERO_LSN, 0, b"CLAIM")
    records: list[Record] = []
    for name, taken_from in wanted.items():
        topic = transaction_topic(name)
        number = registry.register(f"{topic}-value", schemas.load("transaction"))
        value = wire_prefix(number) + encode_writer(writer, taken_from) + encode_claim()
        records.append((topic, 0, None, value, headers))
    return send(kafka, records, "claiming topics")
