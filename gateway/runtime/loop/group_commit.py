"""Group commit: gathers records while Kafka is busy with the batch before. Pure.

A batch is ready when the sink is free and either the stream has nothing more to give or a
bound is reached; when exactly is in `gateway.runtime.loop.commit_cost`. A source transaction that
is larger than a batch goes over in pieces of one Kafka transaction; so do rows of copies while no
transactions come, since a flush and a commit for each batch would take as long as the rows
themselves; and, while more transactions wait, a batch with few records for each of many partitions,
each of which costs the broker at every commit.

A position without records is committed, too, as a watermark with PROGRESS markers, at most once per
progress interval: this is how consumers know that they are complete, and how the slot moves on
while other databases of the cluster write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gateway._speedups.layouts import place_of, value_of
from gateway.config import LimitsTable
from gateway.core.errors import KafkaTransactionTimeout
from gateway.core.lsn import Lsn, format_lsn
from gateway.core.records import RESENDABLE, Batch, Cut, Feed, Record
from gateway.core.watermark import CopyState, LastCommit, Refusal, Watermark
from gateway.routing.short_transactions import RoutedSeries
from gateway.runtime.loop.commit_cost import MEASURED, Gathered, Handover
from gateway.runtime.loop.progress_markers import ProgressMarkers
from gateway.transactions import Transaction

__all__ = ["GroupCommit", "Turn"]


@dataclass(slots=True)
class _Gathering:
    """The batch that is being gathered.

    Attributes:
        end_lsn: End of the last transaction that is wholly inside, or of a piece before.
        whole: Whether no transaction is partly inside, so that it can be committed.
        since: Time of its first record, by the loop's clock.
        most: Number of records with which it is full.
        partitions: Number of partitions of the records; 0 until counted.
        copied: Number of records of copies.
        commit_time: Commit time of the last transaction that ends inside.
        last: The last transaction that ends inside and changes rows.
    """

    end_lsn: Lsn
    most: int
    whole: bool = True
    since: float = 0.0
    records: list[Record] = field(default_factory=list)
    size: int = 0
    partitions: int = 0
    copied: int = 0
    commit_time: int | None = None
    last: LastCommit | None = None

    def count_partitions(self) -> None:
        """Count the partitions that the records are for, which takes half a millisecond."""
        self.partitions = len(set(map(place_of, self.records)))


@dataclass(slots=True)
class _KafkaTransaction:
    """The Kafka transaction that a batch belongs to.

    Attributes:
        pieces: Number of its batches that were handed over as pieces.
        in_pieces: Number of records in those.
        opened_at: Time of the first of those records, by the loop's clock.
        largest: The largest source transaction inside.
        oldest: Commit time, at the source, of the first transaction inside.
    """

    pieces: int = 0
    in_pieces: int = 0
    opened_at: float = 0.0
    largest: Transaction | None = None
    oldest: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """State of the loop in a turn in which the sink is free.

    Attributes:
        position: LSN until which everything has been routed, if nothing waits.
        published: LSN that may be reported to consumers as complete, if nothing waits.
        idle: Whether the stream has nothing more to give now.
        waiting: Whether there are transactions that are not routed yet.
        routing: Whether one is being routed.
        hurry: Whether progress does not wait for its interval.
        copies: States that go with the next watermark; None for those of the last one.
        refusal: Refusal of changed definitions, or None.
        ended: End of the last transaction that got an END marker, by subscription.
        feeds: Topics of every subscription.
    """

    position: Lsn
    published: Lsn
    idle: bool = False
    waiting: bool = False
    routing: bool = False
    hurry: bool = False
    copies: tuple[CopyState, ...] | None = None
    refusal: Refusal | None = None
    ended: Mapping[str, Lsn] = field(default_factory=dict)
    feeds: Sequence[Feed] = ()

    @property
    def busy(self) -> bool:
        """Whether there is more to route."""
        return self.waiting or self.routing


class GroupCommit:
    """Records that have been routed and are not committed yet.

    Args:
        watermark: The watermark that Kafka has committed.
        subscriptions: Subscriptions that get PROGRESS markers.
        clock: Seconds, monotonic.

    Attributes:
        durable: The watermark that Kafka has committed.
    """

    def __init__(
        self,
        watermark: Watermark,
        subscriptions: Sequence[str],
        limits: LimitsTable,
        clock: Callable[[], float],
    ) -> None:
        self._limits = limits
        self._usual = limits.max_batch_records
        self._clock = clock
        self.durable = watermark
        self._batch = _Gathering(watermark.end_lsn, self._usual)
        self._open = _KafkaTransaction()
        self._committing = _KafkaTransaction()  # an empty one if none is
        self._mixed_records = MEASURED.least_copied
        self._began_at = -MEASURED.quiet_s
        self._handed_over = 0.0, 0  # when, and how much of it is of copies
        self._quickest_s = float("inf")  # of the small commits lately
        self._pause_s = 0.0
        self._resume_at = -MEASURED.quiet_s
        self._progress = ProgressMarkers(subscriptions, limits.progress_interval_s, clock)

    def go_on_from(self, watermark: Watermark) -> None:
        """Continue from a watermark that was committed elsewhere; nothing is gathered or open."""
        assert self.is_empty
        self.durable = watermark

    @property
    def routed_lsn(self) -> Lsn:
        """Every transaction that ends at or before it has been routed."""
        return self._batch.end_lsn

    @property
    def records(self) -> int:
        """Number of gathered records."""
        return len(self._batch.records)

    @property
    def since(self) -> float:
        """Time of the first gathered record, by the loop's clock."""
        return self._batch.since

    @property
    def size(self) -> int:
        """Number of gathered bytes."""
        return self._batch.size

    @property
    def oldest(self) -> int | None:
        """Commit time, at the source, of the first transaction that is routed and not in Kafka."""
        committing = self._committing.oldest
        return self._open.oldest if committing is None else committing

    @property
    def is_full(self) -> bool:
        """Whether a bound is reached."""
        return (
            len(self._batch.records) >= self._batch.most
            or self._batch.size >= self._limits.max_batch_bytes
        )

    @property
    def room(self) -> int:
        """Number of records that fit in before a bound is reached."""
        return self._batch.most - len(self._batch.records)

    @property
    def room_for_copies(self) -> int:
        """Number of records of copies that may still be added to this batch.

        While transactions come, a batch has to be committed soon, because the next ones wait for
        it; the number follows from the duration of the batches before.
        """
        most = self._batch.most
        if not self.is_quiet:
            most = min(most, self._mixed_records)
        return most - self._batch.copied

    @property
    def is_quiet(self) -> bool:
        """Whether no transactions come that would wait for a batch."""
        return self._clock() - self._began_at >= MEASURED.quiet_s

    @property
    def is_empty(self) -> bool:
        """Whether nothing is gathered, and no Kafka transaction is open."""
        return not self._batch.records and not self._open.pieces

    def add(self, records: list[Record], *, whole: bool = True) -> None:
        """Add records; `whole` unless more of the same transaction follow."""
        batch = self._batch
        if not whole:
            batch.whole = False
        if not batch.records:
            batch.since = self._clock()
        batch.records += records
        batch.size += sum(map(len, filter(None, map(value_of, records))))
        if len(batch.records) >= batch.most and not batch.partitions and not batch.copied:
            batch.count_partitions()
            batch.most = MEASURED.batch_records(self._usual, batch.partitions)

    def add_copied(self, records: list[Record]) -> None:
        """Add records of a copy."""
        self._batch.copied += len(records)
        self.add(records)

    def reach(self, end_lsn: Lsn) -> None:
        """Note that everything that ends at or before `end_lsn` has been routed."""
        self._batch.end_lsn = max(self._batch.end_lsn, end_lsn)

    def begin(self, transaction: Transaction) -> None:
        """Note which transaction is being routed, for the error when Kafka finds it too large."""
        self._begin(transaction.commit_time)
        largest = self._open.largest
        if largest is None or transaction.byte_size > largest.byte_size:
            self._open.largest = transaction

    def finish(self, transaction: Transaction) -> None:
        """Note that all records of `transaction` have been added."""
        self.reach(transaction.end_lsn)
        self._batch.whole = True
        self._batch.commit_time = transaction.commit_time
        if transaction.changes_rows:
            self._batch.last = LastCommit(
                transaction.commit_lsn, transaction.xid, transaction.commit_time
            )

    def add_series(self, routed: RoutedSeries, oldest: int) -> None:
        """Add whole transactions, of which the first was committed at `oldest`."""
        self._begin(oldest)
        self.add(routed.records)
        self.reach(routed.end_lsn)
        self._batch.commit_time = routed.last.commit_time
        self._batch.last = routed.last

    def _begin(self, commit_time: int) -> None:
        self._began_at = self._clock()
        if self._open.oldest is None:
            self._open.oldest = commit_time

    def next_batch(self, turn: Turn) -> Batch | None:
        """Return the batch to give to the sink, which is free, or None."""
        if self._clock() < self._resume_at and not (self.is_full or turn.hurry):
            return None
        batch, transaction = self._batch, self._open
        handover = MEASURED.decide(
            self._gathered(turn.waiting),
            self._clock(),
            max_age_s=self._limits.max_batch_ms / 1000,
            most_pieces=RESENDABLE,
            idle=turn.idle,
            waiting=turn.waiting,
            quiet=self.is_quiet,
        )
        if handover in (Handover.PIECE, Handover.ONE_OF_MANY):
            kept = handover is Handover.PIECE and batch.most == self._usual
            made = Batch(batch.records, kept=kept and not self._is_surely_large())
            if not transaction.pieces:
                transaction.opened_at = batch.since
            transaction.pieces += 1
            transaction.in_pieces += len(batch.records)
        elif handover is Handover.COMMIT or self.is_progress_due(turn):
            made = self._last_piece(batch, turn)
        else:
            return None
        now = self._clock()
        # A piece has no duration of its own: it is committed later, or with others.
        self._handed_over = now, 0 if transaction.pieces else batch.copied
        self._batch = _Gathering(batch.end_lsn, self._usual, whole=batch.whole, since=now)
        return made

    def _gathered(self, waiting: bool) -> Gathered:
        batch, full = self._batch, self.is_full
        if waiting and full and batch.whole and not batch.partitions:
            batch.count_partitions()
        return Gathered(
            len(batch.records),
            batch.since,
            copied=batch.copied,
            partitions=batch.partitions,
            full=full,
            whole=batch.whole,
            pieces=self._open.pieces,
            in_pieces=self._open.in_pieces,
            opened_at=self._open.opened_at,
        )

    def _is_surely_large(self) -> bool:
        """Whether more pieces are likely to come than the sink keeps."""
        largest = self._open.largest
        return largest is not None and largest.message_count > RESENDABLE * self._usual

    def _last_piece(self, batch: _Gathering, turn: Turn) -> Batch:
        """Return the batch that commits the Kafka transaction."""
        if not turn.busy:
            # Everything before an idle position is inside, so that the position holds too.
            batch.end_lsn = max(batch.end_lsn, turn.position)
        published = batch.end_lsn if turn.busy else turn.published
        idle = self._progress.lagging(published, everyone=turn.hurry)
        self._progress.end_turns()
        self._progress.mark(idle, turn.ended, published)
        self._committing, self._open = self._open, _KafkaTransaction()
        watermark = replace(
            self.durable,
            end_lsn=batch.end_lsn,
            last=batch.last or self.durable.last,
            copies=self.durable.copies if turn.copies is None else turn.copies,
            refusal=turn.refusal,
        )
        cut = Cut(published, watermark.timeline, turn.feeds, batch.commit_time, idle)
        return Batch(batch.records, watermark, cut)

    def collected(self, batch: Batch) -> bool:
        """Note that the sink has finished `batch`; return whether a watermark is committed."""
        (since, copied), now = self._handed_over, self._clock()
        self._mixed_records = MEASURED.mixed_records(
            self._mixed_records, copied, now - since, self._usual
        )
        if batch.watermark is None:
            return False
        if not self._committing.pieces and 0 < len(batch.records) <= MEASURED.small_records:
            self._learn_pause(now - since)
        self._resume_at = now + self._pause_s
        self._committing = _KafkaTransaction()
        self.durable = batch.watermark
        return True

    def _learn_pause(self, duration_s: float) -> None:
        # A broker that has become slower counts as such after a hundred commits.
        longer_s = duration_s - self._quickest_s
        self._quickest_s = min(duration_s, self._quickest_s + max(0.0, longer_s) / 100)
        self._pause_s = MEASURED.pause_s(self._pause_s, duration_s, self._quickest_s)

    def explained(self, error: KafkaTransactionTimeout) -> KafkaTransactionTimeout:
        """Return `error` with the largest source transaction that did not fit, if there is one."""
        if (large := self._committing.largest or self._open.largest) is None:
            return error
        return KafkaTransactionTimeout(
            f"transaction {large.xid} ({large.message_count} messages, {large.byte_size} "
            f"bytes, commit_lsn {format_lsn(large.commit_lsn)}) does not fit into one Kafka "
            f"transaction: {error.message}",
            hint=error.hint,
        )

    def is_progress_due(self, turn: Turn) -> bool:
        """Whether a position without records should be committed now."""
        if turn.busy or not self._batch.whole or not (turn.hurry or self._progress.is_time()):
            return False
        return (
            turn.position > self.durable.end_lsn
            or (turn.copies is not None and turn.copies is not self.durable.copies)
            or turn.refusal != self.durable.refusal
            or bool(self._progress.lagging(turn.published, everyone=turn.hurry))
        )

    def due_at(self, turn: Turn) -> list[float]:
        """Return when the clock makes something due."""
        moved = turn.position > self.durable.end_lsn
        due = [self._progress.due_at(turn.published, moved=moved)]
        if self._batch.records:
            max_age_s, gathered = self._limits.max_batch_ms / 1000, self._gathered(turn.waiting)
            due.append(
                MEASURED.due_at(gathered, self._clock(), max_age_s=max_age_s, waiting=turn.waiting)
            )
        resume_at = -1.0 if self.is_full or turn.hurry else self._resume_at
        if not self.is_empty and self._clock() < resume_at:
            due.append(resume_at)
        return [max(at, resume_at) for at in due if at is not None]
