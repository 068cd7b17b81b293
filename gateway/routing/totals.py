"""Running totals: how many records each topic partition has had since its first one.

Markers promise them to consumers, so they must survive restarts: the sink commits the changed ones
in the same Kafka transaction as the records, and a start reads them back. Tombstones do not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

__all__ = ["PartitionCount", "TopicCounter", "Totals"]


@dataclass(frozen=True, slots=True)
class PartitionCount:
    """One line of a marker: records of this transaction, and in all."""

    topic: str
    partition: int
    records: int
    total: int


class TopicCounter:
    """Counts for one topic; `current` belongs to the transaction (or copy) under way."""

    __slots__ = ("current", "subscription", "topic", "total")

    def __init__(self, topic: str, subscription: str, total: tuple[int, ...]) -> None:
        self.topic = topic
        self.subscription = subscription
        self.total = list(total)
        self.current = [0] * len(total)

    @property
    def partitions(self) -> int:
        """Number of partitions of the topic."""
        return len(self.total)

    def settle(self) -> list[PartitionCount]:
        """Add the current counts to the totals; return the partitions that had any."""
        counts = []
        for partition, records in enumerate(self.current):
            if records:
                self.total[partition] += records
                counts.append(PartitionCount(self.topic, partition, records, self.total[partition]))
        self.current = [0] * len(self.total)
        return counts


class Totals:
    """The counters of all table topics, and which have changed since the last commit."""

    def __init__(self, recovered: Mapping[str, tuple[int, ...]]) -> None:
        """Start from what a previous run has committed, by topic."""
        self._recovered = recovered
        self._counters: dict[str, TopicCounter] = {}
        self._changed: set[str] = set()

    def counter(self, topic: str, subscription: str, partitions: int) -> TopicCounter:
        """Return the counter of `topic`, making it at its first use."""
        if topic not in self._counters:
            total = self._recovered.get(topic, ())
            padded = (*total, *([0] * (partitions - len(total))))
            self._counters[topic] = TopicCounter(topic, subscription, padded)
        return self._counters[topic]

    def settle(self) -> Iterator[tuple[str, list[PartitionCount]]]:
        """End a transaction: yield each subscription that had records, with its counts."""
        by_subscription: dict[str, list[PartitionCount]] = {}
        for counter in self._counters.values():
            if any(counter.current):
                by_subscription.setdefault(counter.subscription, []).extend(counter.settle())
                self._changed.add(counter.topic)
        yield from by_subscription.items()

    def take_changed(self) -> dict[str, tuple[int, ...]]:
        """Return the totals that have changed since the last call."""
        changed = {topic: tuple(self._counters[topic].total) for topic in sorted(self._changed)}
        self._changed.clear()
        return changed
