"""Topics that have lost records: found at a start, and after an attempt that has met one.

See `gateway.runtime.lost_records` for what counts as lost. Their tables are pending then, which is
committed before what was known of the topics is forgotten: a crash in between finds it again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from gateway.config import Settings
from gateway.envelope.naming import transaction_topic
from gateway.errors import FatalError
from gateway.observe import event
from gateway.runtime.lost_records import lost_markers, lost_records, table_topics_of, unasked
from gateway.runtime.provision import Setup, slot_identity
from gateway.sink.log_bounds import read_log_bounds
from gateway.sink.producer import Recovered
from gateway.sink.registry import Registry
from gateway.sink.requests import forget_offsets

__all__ = ["find_lost", "forget_lost", "unknown_ends"]

_LOG: Final = logging.getLogger(__name__)


def find_lost(
    settings: Settings, setup: Setup, recovered: Recovered, seen: Collection[str]
) -> set[str]:
    """Return the topics that lack what was written to them, and say so.

    Args:
        settings: The configuration.
        setup: What it means; all topics exist.
        recovered: What was committed.
        seen: Topics that an attempt before has found to lack records.

    Raises:
        FatalError: the policy is to stop, and nobody has asked for a copy of one.
        TransientError: Kafka does not answer.
    """
    watermark, kafka = recovered.watermark, settings.kafka
    if watermark is None:
        return set()
    partitions, names = setup.routing.partitions, setup.routing.topic_names
    subscriptions = [subscription.name for subscription in setup.plan.subscriptions]
    markers = {transaction_topic(name): name for name in subscriptions}
    known = {topic: n for topic, n in partitions.items() if topic in recovered.offsets}
    bounds = read_log_bounds(kafka, {**known, **dict.fromkeys(markers, 1)})
    found = lost_records(recovered.offsets, {topic: bounds[topic] for topic in known})
    for topic in set(seen).intersection(known):
        found.setdefault(topic, "it was deleted while the gateway wrote to it")
    gone = lost_markers(subscriptions, watermark.copies, bounds)
    gone |= {name for topic, name in markers.items() if topic in seen}
    for name in sorted(gone):
        for topic in table_topics_of(setup.plan, names, [name]):
            found[topic] = f"the markers in {transaction_topic(name)} are gone"
    for topic, why in sorted(found.items()):
        event(
            _LOG,
            logging.ERROR,
            "records lost in Kafka",
            topic=topic,
            because=why,
            policy=settings.topics.on_lost_records,
        )
    if found and settings.topics.on_lost_records == "stop":
        waiting = unasked(watermark.copies, found, names, recovered.requests)
        if waiting:
            raise FatalError(
                f"Kafka has lost records of topic {waiting[0]}"
                f"{f' and {len(waiting) - 1} more' if len(waiting) > 1 else ''}: "
                f"{found[waiting[0]]}",
                hint="find out why; then ask for the tables with `pgsluice copy TABLE "
                '--no-wait`, or set [topics] on_lost_records = "copy", and start again',
            )
    return set(found)


def forget_lost(
    settings: Settings,
    setup: Setup,
    registry: Registry,
    recovered: Recovered,
    lost: Collection[str],
) -> None:
    """Forget where the topics ended that have lost records, now that their copies are due.

    Raises:
        TransientError: Kafka does not answer.
    """
    identity = slot_identity(setup.facts, settings)
    known = set(lost).intersection(recovered.offsets)
    forget_offsets(settings.kafka, settings.topics.progress, identity, registry, sorted(known))


def unknown_ends(
    settings: Settings, setup: Setup, recovered: Recovered, lost: Collection[str] = ()
) -> dict[str, tuple[int, ...]]:
    """Return where partitions end now, of topics of which nothing is known that counts.

    Raises:
        TransientError: Kafka does not answer.
    """
    unknown = {
        topic: partitions
        for topic, partitions in setup.routing.partitions.items()
        if topic in lost or topic not in recovered.offsets
    }
    bounds = read_log_bounds(settings.kafka, unknown)
    return {topic: tuple(each.end for each in found) for topic, found in bounds.items()}
