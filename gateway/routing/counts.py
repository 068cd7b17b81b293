"""How many records a source transaction has in each table's topic: what its END markers say."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["TopicCounter", "take_counts"]


class TopicCounter:
    """A table's topic, and the records that the transaction under way has there.

    Attributes:
        most_bytes: Of a record, as `gateway.records.wire_size` counts them.
        records: Tombstones left out.
    """

    __slots__ = ("most_bytes", "partitions", "records", "subscription", "topic")

    def __init__(self, topic: str, subscription: str, partitions: int, most_bytes: int) -> None:
        self.topic = topic
        self.subscription = subscription
        self.partitions = partitions
        self.most_bytes = most_bytes
        self.records = 0


def take_counts(counters: Iterable[TopicCounter]) -> dict[str, list[tuple[str, int]]]:
    """End a transaction: topics and numbers of records of each subscription that had any."""
    found: dict[str, list[tuple[str, int]]] = {}
    for counter in counters:
        if counter.records:
            found.setdefault(counter.subscription, []).append((counter.topic, counter.records))
            counter.records = 0
    return found
