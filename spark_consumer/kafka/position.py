"""Position of a table in its topic, and what it has to read next. Plain values, no I/O.

A table's position is stored in the commit that reached it. A share is one table's part of a batch:
it begins exactly where the table's position ends, or there is a gap, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from spark_consumer.kafka.markers import Marker, Range

__all__ = ["STEPS", "Gap", "Position", "Share", "Span", "TopicState", "beginning", "share"]

_FORMAT: Final = 2
STEPS: Final = 1000
"""Bound of the number of commits that a table needs for one batch."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as the broker describes it.

    Attributes:
        id: ID of the topic; a topic that is recreated under the same name has another.
        earliest: Offset of the first remaining record, by partition.
        latest: Offset after the last record, by partition.
    """

    id: str
    earliest: Mapping[int, int]
    latest: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Position:
    """Position until which a table holds its topic.

    Attributes:
        marker_topic_id: ID of the marker topic of `marker`.
        marker: Offset of the last marker of which the table has all records.
        end_lsn: LSN of that marker.
        commit_time: Commit time of that marker.
        topic: Topic of the table.
        topic_id: ID of that topic.
        next: Offset after the last record of that marker, by partition.
        step: Number of commits of the next batch that the table has; more than 0 only if a batch
            needs several, and between them.
        done: Offset after the last record of those commits, by partition, where it is
            beyond `next`.
        generation: Version of the table with which its rows were last replaced.
    """

    marker_topic_id: str
    marker: int
    end_lsn: int
    commit_time: int | None
    topic: str
    topic_id: str
    next: Mapping[int, int]
    step: int = 0
    done: Mapping[int, int] = field(default_factory=dict)
    generation: int = 0

    @property
    def version(self) -> int:
        """Number that grows with the position, within one marker topic."""
        return (self.marker + 1) * STEPS + self.step

    def to_json(self) -> dict[str, Any]:
        """Return the position as plain JSON; see `from_json`."""
        return {
            "pgsluice": _FORMAT,
            "marker_topic_id": self.marker_topic_id,
            "marker": self.marker,
            "end_lsn": self.end_lsn,
            "commit_time": self.commit_time,
            "topic": self.topic,
            "topic_id": self.topic_id,
            "next": {str(partition): offset for partition, offset in self.next.items()},
            "step": self.step,
            "done": {str(partition): offset for partition, offset in self.done.items()},
            "generation": self.generation,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Position | None:
        """Read back the result of `to_json`; return None for anything else."""
        if found.get("pgsluice") != _FORMAT or "marker" not in found:
            return None
        return cls(
            marker_topic_id=found["marker_topic_id"],
            marker=found["marker"],
            end_lsn=found["end_lsn"],
            commit_time=found["commit_time"],
            topic=found["topic"],
            topic_id=found["topic_id"],
            next={int(partition): offset for partition, offset in found["next"].items()},
            step=found["step"],
            done={int(partition): offset for partition, offset in found["done"].items()},
            generation=found["generation"],
        )


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets of one partition that must deliver exactly `records` records."""

    partition: int
    start: int
    end: int
    records: int


@dataclass(frozen=True, slots=True)
class Share:
    """Share of one table in a batch.

    Attributes:
        topic: Topic of the table.
        spans: Spans by partition.
        start: Position of the table before the share, as far as known.
        position: Position of the table after the share.
        begins: Whether a copy must begin in it, since earlier records are unknown.
    """

    topic: str
    spans: tuple[Span, ...]
    start: Position
    position: Position
    begins: bool = False

    def records(self) -> int:
        """Return the number of records."""
        return sum(span.records for span in self.spans)


@dataclass(frozen=True, slots=True)
class Gap:
    """Reason for which a share does not begin where the table's position ends."""

    reason: str


_MarkedRanges = list[tuple[Marker, tuple[Range, ...]]]


def share(
    topic: str,
    marker_topic_id: str,
    state: TopicState,
    markers: Sequence[Marker],
    known: Position | None,
) -> Share | Gap | None:
    """Return what a table has to read to reach the last of `markers` from its position.

    Args:
        topic: Topic of the table.
        marker_topic_id: ID of the marker topic.
        state: Current state of the topic.
        markers: Consecutive markers, in order.
        known: Position of the table; None if there is no table.

    Returns:
        The share, or the reason for which there is none; None if the table has everything.
    """
    begun = known is not None and known.marker_topic_id == marker_topic_id
    mine: _MarkedRanges = [
        (marker, marker.ranges[topic])
        for marker in markers
        if topic in marker.ranges and not (begun and known and marker.offset <= known.marker)
    ]
    if not mine:
        return None
    if known is not None:
        if known.topic != topic:
            return Gap(f"the table comes from topic {known.topic}, not from {topic}")
        if known.topic_id != state.id:
            return Gap(f"topic {topic} was recreated")
        if not begun:
            return Gap(f"the marker topic of topic {topic} was recreated")
    started = dict(known.next) if known is not None else {}
    return _connected(topic, marker_topic_id, state, mine, started, known)


def beginning(
    topic: str, marker_topic_id: str, state: TopicState, markers: Sequence[Marker]
) -> Share | None:
    """Return a topic's records from where a table can begin with a copy; None if there are none."""
    mine: _MarkedRanges = [
        (marker, marker.ranges[topic]) for marker in markers if topic in marker.ranges
    ]
    for begin in range(len(mine)):
        started = {part.partition: part.previous for part in mine[begin][1]}
        for _, parts in mine[begin + 1 :]:
            for part in parts:
                started.setdefault(part.partition, part.previous)
        found = _connected(topic, marker_topic_id, state, mine[begin:], started, None, begins=True)
        if isinstance(found, Share):
            return found
    return None


def _connected(
    topic: str,
    marker_topic_id: str,
    state: TopicState,
    mine: _MarkedRanges,
    started: Mapping[int, int],
    known: Position | None,
    *,
    begins: bool = False,
) -> Share | Gap:
    spans: dict[int, Span] = {}
    reached = dict(started)
    for marker, parts in mine:
        for part in parts:
            number = part.partition
            if (gap := _gap(topic, state, marker, part, reached.get(number, 0))) is not None:
                return gap
            before = spans.get(number)
            spans[number] = Span(
                number,
                # A topic's head may be gone until the first of our records; and records before a
                # copy, which no marker names, may be of another writer.
                before.start
                if before is not None
                else max(part.first if begins else part.previous, state.earliest.get(number, 0)),
                part.next,
                part.records + (before.records if before is not None else 0),
            )
            reached[number] = part.next
    end = mine[-1][0]
    position = Position(
        marker_topic_id=marker_topic_id,
        marker=end.offset,
        end_lsn=end.end_lsn,
        commit_time=end.commit_time,
        topic=topic,
        topic_id=state.id,
        next=reached,
    )
    if known is not None:
        start = known
    else:
        start = replace(
            position,
            marker=mine[0][0].offset - 1,
            end_lsn=0,
            commit_time=None,
            next=dict(started),
        )
    return Share(
        topic=topic,
        spans=tuple(spans[number] for number in sorted(spans)),
        start=start,
        position=position,
        begins=begins,
    )


def _gap(topic: str, state: TopicState, marker: Marker, part: Range, reached: int) -> Gap | None:
    """Return why a range does not continue a partition from `reached`; None if it does."""
    place = f"topic {topic}, partition {part.partition}"
    if part.previous != reached:
        return Gap(
            f"{place}: the table holds it until offset {reached}, and the marker at offset"
            f" {marker.offset} continues from {part.previous}"
        )
    if not part.first < part.next or part.records < 1:
        return Gap(
            f"{place}: the marker at offset {marker.offset} says {part.records} records from offset"
            f" {part.first} to {part.next}, which cannot be"
        )
    if part.first < part.previous or part.next > state.latest.get(part.partition, 0):
        return Gap(f"{place}: it has fewer records than its markers say: it was recreated")
    earliest = state.earliest.get(part.partition, 0)
    if part.first < earliest:
        return Gap(
            f"{place}: records from offset {part.first} on are gone, it begins at {earliest}"
        )
    return None
