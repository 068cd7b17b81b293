"""Batches of markers: which of them are applied together, and so at which cut a batch ends.

A batch ends at a PROGRESS marker, so at whole source transactions over all tables. It has at most
`ConsumerSettings.max_batch_records` records, unless a single Kafka transaction has more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spark_consumer.kafka.markers import Copy, Marker

__all__ = ["MarkerBatch", "batch_markers"]


@dataclass(frozen=True, slots=True)
class MarkerBatch:
    """Consecutive markers whose records are applied together.

    Attributes:
        markers: PROGRESS markers, at least one.
        copies: States of copies that change until the last of them.
    """

    markers: tuple[Marker, ...]
    copies: tuple[Copy, ...] = ()

    @property
    def cut(self) -> Marker:
        """The last marker, whose position the tables have when the batch is applied."""
        return self.markers[-1]

    def first_commit_time(self) -> int | None:
        """Return the first known commit time, microseconds since 1970."""
        return next((one.commit_time for one in self.markers if one.commit_time), None)

    def last_commit_time(self) -> int | None:
        """Return the last known commit time, microseconds since 1970."""
        return next((one.commit_time for one in reversed(self.markers) if one.commit_time), None)

    def first_commit_times(self) -> dict[str, int]:
        """Return the same for each topic that has records in the batch, where known."""
        times: dict[str, int] = {}
        for marker in self.markers:
            if marker.commit_time:
                for topic in marker.ranges:
                    times.setdefault(topic, marker.commit_time)
        return times

    def topics(self) -> list[str]:
        """Return the topics that have records in the batch, ordered by name."""
        return sorted({topic for marker in self.markers for topic in marker.ranges})

    def records(self) -> int:
        """Return the number of records in tables' topics."""
        return sum(marker.records() for marker in self.markers)

    def halves(self) -> tuple[MarkerBatch, MarkerBatch]:
        """Split the batch in two; it must have more than one marker."""
        middle = len(self.markers) // 2
        first, second = self.markers[:middle], self.markers[middle:]
        border = first[-1].offset
        return (
            MarkerBatch(first, tuple(copy for copy in self.copies if copy.offset < border)),
            MarkerBatch(second, tuple(copy for copy in self.copies if copy.offset > border)),
        )


def batch_markers(
    markers: Sequence[Marker | Copy], max_records: int | None
) -> Iterator[MarkerBatch]:
    """Group markers into batches of at most `max_records` records; a single marker may have more.

    Trailing COPY markers belong to a Kafka transaction whose PROGRESS has not been read. They are
    in no batch: the caller keeps them for the next call.
    """
    progress: list[Marker] = []
    copies: list[Copy] = []
    # COPY markers of the Kafka transaction whose PROGRESS comes next.
    unfinished: list[Copy] = []
    records = 0
    for marker in markers:
        if isinstance(marker, Copy):
            unfinished.append(marker)
            continue
        size = marker.records()
        if progress and max_records is not None and records + size > max_records:
            yield MarkerBatch(tuple(progress), tuple(copies))
            progress, copies, records = [], [], 0
        progress.append(marker)
        copies += unfinished
        unfinished = []
        records += size
    if progress:
        yield MarkerBatch(tuple(progress), tuple(copies))
