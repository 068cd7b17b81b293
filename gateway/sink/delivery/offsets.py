"""Offsets of one Kafka transaction's records by partition, which PROGRESS markers promise.

Delivery reports are requested for the first record of each partition, and for its last record in
each batch, because the last batch is not known in advance. All others would only cost time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from gateway.core.records import Cut, Feed, PartitionOffsets, Record
from gateway.envelope.headers import HeaderMaker
from gateway.envelope.markers import encode_progress
from gateway.sink.delivery.batches import Place, find_places

__all__ = ["Ledger"]


@dataclass(slots=True)
class _Span:
    """Partition in the current Kafka transaction.

    Attributes:
        awaited: Number of delivery reports still missing.
        first, last: Offsets, -1 until reported.
    """

    records: int = 0
    awaited: int = 0
    first: int = -1
    last: int = -1


class Ledger:
    """Offsets of the current Kafka transaction, and end offsets of earlier ones.

    Args:
        committed: Next offsets by topic; the index is the partition.
        ends: End offsets of each partition of topics not in `committed`, before the first record:
            earlier records are another writer's, and no range starts within them.
    """

    def __init__(
        self,
        committed: Mapping[str, Sequence[int]],
        ends: Mapping[str, Sequence[int]] = MappingProxyType({}),
    ) -> None:
        self._next = {topic: list(offsets) for topic, offsets in committed.items()}
        self._ends = ends
        self._spans: dict[Place, _Span] = {}
        self._changed: set[str] = set()
        self._feeds: Sequence[Feed] = ()
        self._tables: dict[str, Feed] = {}

    def enter(self, records: list[Record]) -> set[int]:
        """Count `records`; return the indexes of those whose delivery is to be reported."""
        wanted: set[int] = set()
        for place, (count, first, last) in find_places(records).items():
            if (span := self._spans.get(place)) is None:
                span = self._spans[place] = _Span()
                indexes = {first, last}
            else:
                indexes = {last}
            span.records += count
            span.awaited += len(indexes)
            wanted |= indexes
        return wanted

    def report(self, topic: str, partition: int, offset: int) -> None:
        """Record a delivery report."""
        if (span := self._spans.get((topic, partition))) is None:
            return  # of a topic without a feed, which nobody waits for
        span.awaited -= 1
        span.first = offset if span.first < 0 else span.first
        span.last = offset

    def shorter(self, feeds: Sequence[Feed]) -> set[str]:
        """Return the tables' topics in which records were written to offsets already used.

        The earlier records are therefore gone: the topic was deleted and created again, or
        truncated.
        """
        tables = self._tables_of(feeds)
        return {
            topic
            for (topic, partition), span in self._spans.items()
            if topic in tables
            and span.awaited == 0
            and partition < len(known := self._next.get(topic, ()))
            and span.first < known[partition]
        }

    @property
    def open_topics(self) -> set[str]:
        """Topics of the current Kafka transaction."""
        return {topic for topic, _ in self._spans}

    def unreported(self, feeds: Sequence[Feed]) -> str | None:
        """Return a table's topic of `feeds` with missing delivery reports, or None."""
        tables = self._tables_of(feeds)
        return next(
            (t for (t, _), span in self._spans.items() if span.awaited and t in tables), None
        )

    def idle(self, cut: Cut) -> list[Record]:
        """Return the PROGRESS markers of idle subscriptions, which need no delivery report.

        They can therefore be produced together with other records, and Kafka adds all their
        partitions to the transaction in one step.
        """
        if not cut.idle:
            return []
        tables = self._tables_of(cut.feeds)
        busy = {feed.subscription for topic, _ in self._spans if (feed := tables.get(topic))}
        return [
            _progress(feed, cut, ())
            for feed in cut.feeds
            if feed.subscription in cut.idle
            and feed.subscription not in busy
            and (feed.markers, 0) not in self._spans
        ]

    def close(self, cut: Cut) -> list[Record]:
        """End the Kafka transaction; return the PROGRESS markers of subscriptions it wrote to.

        All delivery reports on the feeds' tables must have been recorded.
        """
        tables = self._tables_of(cut.feeds)
        written: dict[str, list[PartitionOffsets]] = {}
        for (topic, partition), span in self._spans.items():
            if (feed := tables.get(topic)) is not None:
                offsets = self._advance(topic, partition, feed.tables[topic], span)
                written.setdefault(feed.subscription, []).append(offsets)
        markers = [
            _progress(feed, cut, written.get(feed.subscription, ()))
            for feed in cut.feeds
            if feed.subscription in written or (feed.markers, 0) in self._spans
        ]
        self._spans.clear()
        return markers

    def next_offsets(self) -> dict[str, tuple[int, ...]]:
        """Return the next offsets last named by markers, by topic."""
        return {topic: tuple(offsets) for topic, offsets in self._next.items()}

    def pop_changed(self) -> dict[str, tuple[int, ...]]:
        """Return the next offsets that have changed since the last call, by topic."""
        changed = {topic: tuple(self._next[topic]) for topic in sorted(self._changed)}
        self._changed.clear()
        return changed

    def _tables_of(self, feeds: Sequence[Feed]) -> Mapping[str, Feed]:
        """Return the feed of each table's topic; `feeds` are the same for a long time."""
        if feeds is not self._feeds:
            self._feeds = feeds
            self._tables = {topic: feed for feed in feeds for topic in feed.tables}
        return self._tables

    def _advance(
        self, topic: str, partition: int, partitions: int, span: _Span
    ) -> PartitionOffsets:
        assert span.awaited == 0
        if (offsets := self._next.get(topic)) is None:
            offsets = self._next[topic] = list(self._ends.get(topic, ()))
        offsets += [0] * (partitions - len(offsets))
        previous, offsets[partition] = offsets[partition], span.last + 1
        self._changed.add(topic)
        return PartitionOffsets(topic, partition, span.first, span.last + 1, previous, span.records)


def _progress(feed: Feed, cut: Cut, offsets: Sequence[PartitionOffsets]) -> Record:
    headers = HeaderMaker(cut.end_lsn, None).make(cut.end_lsn, 0, b"PROGRESS")
    value = encode_progress(
        cut.end_lsn, timeline=cut.timeline, commit_time=cut.commit_time, offsets=offsets
    )
    return (feed.markers, 0, None, feed.prefix + value, headers)
