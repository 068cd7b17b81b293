"""Times of a batch on its way from the replication stream into Kafka."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["BatchTimes", "OnBatch"]


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """A Kafka transaction that has ended, with times in seconds of the monotonic clock.

    Attributes:
        received_at: Time at which its first transaction was received completely; that of its first
            record where it only has rows of copies.
        routed_at: Time of its first record.
        handed_over_at: Time at which its first records went to the producer.
        routed_until: Time at which its last records did.
        ended_at: Time of its commit, or of its failure.
        records: Number of records.
        pieces: Number of pieces in which they went to the producer.
        end_lsn: Watermark that it commits; 0 if it failed before there was one.
        error: Class of the error by which it failed; empty if it is committed.
    """

    received_at: float
    routed_at: float
    handed_over_at: float
    routed_until: float
    ended_at: float
    records: int
    pieces: int
    end_lsn: int
    error: str = ""


OnBatch: TypeAlias = Callable[[BatchTimes], None]
"""Called by the loop for each batch with records, so it must return at once."""
