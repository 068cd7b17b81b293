"""Committed state in Kafka that a sink starts from, and the store that keeps it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from gateway.core.records import Record
from gateway.core.watermark import CopyRequest, StatePart, StatePartKind, Watermark

__all__ = ["CommittedState", "ProgressStore", "is_same", "is_same_watermark"]


@dataclass(frozen=True, slots=True)
class CommittedState:
    """State committed by a predecessor.

    Attributes:
        watermark: Watermark; None if there never was one.
        offsets: Offsets after the last record of each partition, by topic; the index is the
            partition.
        requests: Pending copy requests, oldest first.
        unreadable: Descriptions of skipped foreign records.
        topic_ids: Kafka's IDs of the topics written to, including those of markers, by name.
        parts: Values of the parts of the state, by kind and name.
    """

    watermark: Watermark | None
    offsets: Mapping[str, tuple[int, ...]]
    requests: tuple[CopyRequest, ...] = ()
    unreadable: tuple[str, ...] = ()
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[StatePartKind, Mapping[str, bytes]] = field(default_factory=dict)


class ProgressStore(Protocol):
    """Store of the watermark: `gateway.sink.own_topics.progress.KafkaProgress`."""

    @property
    def topic(self) -> str:
        """Topic that keeps the watermark."""

    def encode(
        self,
        watermark: Watermark,
        done_requests: Iterable[CopyRequest] = (),
        parts: Iterable[StatePart] = (),
    ) -> list[Record]:
        """Return the records of a watermark and of `parts`; they also remove `done_requests`."""

    def encode_offsets(
        self, offsets: Mapping[str, tuple[int, ...]], topic_ids: Mapping[str, str]
    ) -> list[Record]:
        """Return the records of the next offsets of some topics; the index is the partition."""

    def read(self, timeout_s: float) -> CommittedState:
        """Return the last committed state."""


def is_same(found: CommittedState, before: CommittedState | None) -> bool:
    """Whether two states have the same offsets and the same watermark."""
    return (
        before is not None
        and found.offsets == before.offsets
        and is_same_watermark(found.watermark, before.watermark)
    )


def is_same_watermark(one: Watermark | None, other: Watermark | None) -> bool:
    """Whether two watermarks are equal except for the order of the copies."""
    if one is None or other is None:
        return one is other
    return replace(one, copies=()) == replace(other, copies=()) and set(one.copies) == set(
        other.copies
    )
