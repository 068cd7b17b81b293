"""Cost model of group commit: when a batch is handed over, and whether that commits. Pure.

A Kafka transaction costs the broker something for each partition in it, and librdkafka sends the
records of each partition in a request of its own. Both costs are given in records: as many as could
have been sent for the same CPU time. The more partitions a batch has records for, the longer it is
therefore worth gathering; how long that may take is bounded, because what is gathered is not
visible yet.

Rows of copies and live changes share a Kafka transaction, and a change waits for the one on its way
and then for its own. The number of copied rows in a commit follows from the duration of the commits
before.

A broker ends a Kafka transaction after it has answered the commit, and refuses the next one until
then; librdkafka asks again after 20 ms. Changes that come meanwhile wait for that, and make the
commit after it follow at once, so that one refusal leads to others. Small commits therefore keep a
pause between them, which follows from how many were refused (decision 122).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

__all__ = ["MEASURED", "CommitCost", "Gathered", "Handover"]


class Handover(Enum):
    """Decision about a batch: wait, hand over a piece, or commit."""

    WAIT = "wait"
    PIECE = "as a piece of a Kafka transaction that goes on"
    ONE_OF_MANY = "as one of more or larger pieces than the sink keeps, as a rule"
    COMMIT = "commit"


@dataclass(frozen=True, slots=True)
class Gathered:
    """A batch, and the Kafka transaction that it belongs to. Times are of one monotonic clock.

    Attributes:
        records: Number of records in the batch.
        since: When the first of them came, in seconds.
        copied: Number of them that are rows of copies.
        partitions: Number of partitions that they are for; 0: not counted.
        full: Whether a bound is reached.
        whole: Whether no source transaction is partly inside.
        pieces: Number of batches handed over before, in the same Kafka transaction.
        in_pieces: Number of records in those.
        opened_at: When the first record of those came, in seconds.
    """

    records: int
    since: float
    copied: int = 0
    partitions: int = 0
    full: bool = False
    whole: bool = True
    pieces: int = 0
    in_pieces: int = 0
    opened_at: float = 0.0


@dataclass(frozen=True, slots=True)
class CommitCost:
    """Costs and bounds; the defaults are those of `MEASURED`.

    Attributes:
        partition_records: Cost of one partition in a Kafka transaction, in records.
        partition_share: Most that partitions may cost, as a share of what their records cost.
        request_records: Cost of one produce request, in records.
        request_share: Most that requests may cost, likewise.
        many_partitions: Number of partitions from which on a commit may be put off.
        most_batches: Largest batch, in multiples of the usual one.
        longest_spread_s: Most that a commit is put off, in seconds.
        mixed_s: Target duration of a commit that mixes copied rows with live changes, in seconds.
        least_copied: Number of copied rows that such a commit may have, however long it takes.
        quiet_s: Time without a transaction after which none is expected, in seconds.
        small_records: Most records of a commit whose duration says whether it was refused.
        refusal_s: Time by which a refused commit is longer than the quickest ones, in seconds; less
            than what librdkafka waits, as the quickest ones are not the usual ones.
        pause_step_s: Time that a refused commit adds to the pause, in seconds.
        pause_kept: Share of the pause that one that was not refused leaves.
        longest_pause_s: Longest pause after a commit, in seconds.
    """

    partition_records: int = 200
    partition_share: float = 0.2
    request_records: int = 30
    request_share: float = 0.375
    many_partitions: int = 10
    most_batches: int = 3
    longest_spread_s: float = 2.0
    mixed_s: float = 0.045
    least_copied: int = 2_000
    quiet_s: float = 1.0
    small_records: int = 1_000
    refusal_s: float = 0.015
    pause_step_s: float = 0.002
    pause_kept: float = 0.995
    longest_pause_s: float = 0.010

    def worth_commit(self, partitions: int) -> int:
        """Return the number of records that are worth a commit to `partitions` partitions."""
        return round(self.partition_records / self.partition_share) * partitions

    def worth_requests(self, partitions: int) -> int:
        """Return the number of records that are worth a request to each of `partitions`."""
        return round(self.request_records / self.request_share) * partitions

    def batch_records(self, usual: int, partitions: int) -> int:
        """Return the number of records with which a batch is full.

        Args:
            usual: Number for few partitions.
            partitions: Number of partitions that they are for; 0: not counted.
        """
        return max(usual, min(self.worth_requests(partitions), self.most_batches * usual))

    def decide(
        self,
        batch: Gathered,
        now: float,
        *,
        max_age_s: float,
        most_pieces: int,
        idle: bool,
        waiting: bool,
        quiet: bool,
    ) -> Handover:
        """Return what is done with `batch` while the sink is free.

        Args:
            batch: The batch; its partitions are counted if it is full and whole, and more waits.
            now: Time, by the clock of `batch`.
            max_age_s: Age at which a batch is committed as a rule.
            most_pieces: Number of full batches of copied rows in one Kafka transaction.
            idle: Whether the stream has nothing more to give.
            waiting: Whether there are transactions that are not routed yet.
            quiet: Whether no transactions come that would wait for the commit.
        """
        due_at = self.due_at(batch, now, max_age_s=max_age_s, waiting=waiting)
        if not batch.full and (due_at is None or (now < due_at and (waiting or not idle))):
            return Handover.WAIT
        if not batch.whole:
            return Handover.PIECE
        if waiting and self._is_spread_thin(batch, now):
            return Handover.ONE_OF_MANY
        only_copies = batch.full and batch.copied == batch.records
        if only_copies and quiet and batch.pieces < most_pieces - 1:
            return Handover.PIECE
        return Handover.COMMIT

    def due_at(
        self, batch: Gathered, now: float, *, max_age_s: float, waiting: bool
    ) -> float | None:
        """Return when the age of `batch` commits it, arguments as for `decide`; None: never."""
        if not batch.whole or not (batch.records or batch.pieces):
            return None
        if waiting and self._is_spread_thin(batch, now):
            return self._spread_until(batch)
        return batch.since + max_age_s

    def _is_spread_thin(self, batch: Gathered, now: float) -> bool:
        """Whether a commit would be for a few records of each of many partitions, and can wait."""
        return (
            batch.partitions >= self.many_partitions
            and batch.in_pieces + batch.records < self.worth_commit(batch.partitions)
            and now < self._spread_until(batch)
        )

    def _spread_until(self, batch: Gathered) -> float:
        return (batch.opened_at if batch.pieces else batch.since) + self.longest_spread_s

    def mixed_records(self, before: int, copied: int, duration_s: float, most: int) -> int:
        """Return the number of copied rows that a commit may have while transactions come.

        Args:
            before: Last result of this function; `least_copied` at first.
            copied: Number of copied rows in the last batch.
            duration_s: Duration of its commit, in seconds.
            most: Largest number.
        """
        if 2 * copied < before:
            return before  # others have taken the time
        wanted = self.mixed_s * copied / max(0.001, duration_s)
        # A commit that took too long counts for more than one that took less.
        learnt = before + (wanted - before) / (2 if wanted < before else 8)
        return int(min(max(self.least_copied, learnt), most))

    def pause_s(self, before: float, duration_s: float, quickest_s: float) -> float:
        """Return how long the next small batch waits after a commit, in seconds.

        Args:
            before: Last result of this function; 0 at first.
            duration_s: Duration of the last small commit, in seconds.
            quickest_s: Duration of the quickest of the small commits lately, in seconds.
        """
        if duration_s < quickest_s + self.refusal_s:
            return before * self.pause_kept
        return min(before + self.pause_step_s, self.longest_pause_s)


MEASURED: Final = CommitCost()
"""Costs as measured with one broker (decisions 19, 44 and 122)."""
