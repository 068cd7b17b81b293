"""Group commit: records are gathered while Kafka is busy with the batch before.

A batch is handed over when the sink is free and either the stream has nothing more to give or a
bound is reached; when exactly is in `gateway.runtime.loop.commit_cost`. A source transaction that
is larger than a batch goes over in pieces of one Kafka transaction; so do rows of copies while no
transactions come, since a flush and a commit for each batch would take as long as the rows
themselves; and so, while more transactions wait, does a batch with few records for each of many
partitions, each of which costs the broker at every commit.

A position without records is committed, too, as a watermark with PROGRESS markers, at most once per
progress interval: so consumers know that they are complete, and the slot moves on while other
databases of the cluster write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Final

from gateway.config import LimitsTable
from gateway.core.errors import KafkaTransactionTimeout
from gateway.core.failpoints import fail_point
from gateway.core.lsn import ZERO_LSN, Lsn, format_lsn
from gateway.core.records import RESENDABLE, Batch, CopyState, Cut, LastCommit, Record, Watermark
from gateway.observe import Counters
from gateway.routing.short_transactions import RoutedSeries
from gateway.runtime.loop.commit_cost import MEASURED, CommitCost, Gathered, Handover
from gateway.runtime.loop.progress_markers import Progress
from gateway.runtime.loop.reporter import Reporter
from gateway.runtime.ports import Sink, TransactionRouter
from gateway.transactions import Transaction

__all__ = ["GroupCommit"]

_NEVER: Final = ZERO_LSN
_PLACE: Final = itemgetter(0, 1)
_VALUE: Final = itemgetter(3)


@dataclass(slots=True)
class _Gathering:
    """The batch that is being gathered.

    Attributes:
        end_lsn: End of the last transaction that is wholly inside, or of a piece before.
        whole: No transaction is partly inside, so it can be committed.
        since: When its first record came, in the loop's clock.
        most: How many records are enough.
        partitions: How many these are for; 0: not counted yet.
        copied: How many of the records are of copies.
        commit_time: Of the last transaction that ends inside.
        last: The last one that ends inside and changes rows.
    """

    records: list[Record]
    size: int
    end_lsn: Lsn
    whole: bool
    since: float
    most: int
    partitions: int = 0
    copied: int = 0
    commit_time: int | None = None
    last: LastCommit | None = None

    def count_partitions(self) -> None:
        """Count the partitions that the records are for, which takes half a millisecond."""
        self.partitions = len(set(map(_PLACE, self.records)))


class GroupCommit:
    """What has been routed and is not committed yet, and what is.

    Args:
        watermark: What Kafka has committed.
        subscriptions: Those that get PROGRESS markers.
        copies: The states that go with the next watermark; None: as they are.
        clock: Seconds, monotonic.
        cost: Decides when a batch is handed over.

    Attributes:
        durable: The watermark that Kafka has committed.
        position: Everything that ends at or before it has been taken; it can be committed when
            nothing waits.
        promised: Told to consumers as complete, although the watermark must not stand there:
            endpos can lie inside a commit record.
        hurry: Progress does not wait for its interval.
    """

    def __init__(
        self,
        sink: Sink,
        router: TransactionRouter,
        watermark: Watermark,
        subscriptions: Sequence[str],
        limits: LimitsTable,
        counters: Counters,
        reporter: Reporter,
        copies: Callable[[], tuple[CopyState, ...]] | None,
        clock: Callable[[], float],
        cost: CommitCost = MEASURED,
    ) -> None:
        self._sink = sink
        self._router = router
        self._limits = limits
        self._usual = limits.max_batch_records
        self._counters = counters
        self._reporter = reporter
        self._copies = copies
        self._clock = clock
        self._cost = cost
        self.durable = watermark
        self.position = watermark.end_lsn
        self.promised = _NEVER
        self.hurry = False
        self._batch = _Gathering([], 0, watermark.end_lsn, True, 0.0, self._usual)
        self._pieces = 0  # of a Kafka transaction that is open
        self._in_pieces, self._opened_at = 0, 0.0  # how many records, and since when
        # Of the Kafka transaction that is gathered, and of the one that is being committed.
        self._largest: Transaction | None = None
        self._committing: Transaction | None = None
        self._mixed_records = cost.least_copied
        self._began_at = -cost.quiet_s
        self._submitted: tuple[float, int] = (0.0, 0)  # when, and how much of it is of copies
        # Commit time of the first source transaction in each of the two.
        self._oldest: int | None = None
        self._oldest_committing: int | None = None
        self._progress = Progress(subscriptions, limits.progress_interval_s, clock)

    def begin_with(self, watermark: Watermark, copies: Callable[[], tuple[CopyState, ...]]) -> None:
        """Go on from what Kafka has now; nothing is gathered, open or being committed."""
        assert self.is_empty
        self.durable, self._copies = watermark, copies

    @property
    def routed_lsn(self) -> Lsn:
        """Every transaction that ends at or before it has been routed."""
        return self._batch.end_lsn

    @property
    def records(self) -> int:
        """How many are gathered."""
        return len(self._batch.records)

    @property
    def size(self) -> int:
        """Bytes that are gathered."""
        return self._batch.size

    @property
    def oldest(self) -> int | None:
        """When the first transaction that was routed and is not committed was, at the source."""
        return self._oldest if self._oldest_committing is None else self._oldest_committing

    @property
    def is_full(self) -> bool:
        """Whether a bound is reached."""
        return (
            len(self._batch.records) >= self._batch.most
            or self._batch.size >= self._limits.max_batch_bytes
        )

    @property
    def room(self) -> int:
        """How many records fit in before a bound is reached."""
        return self._batch.most - len(self._batch.records)

    @property
    def room_for_copies(self) -> int:
        """How many records of copies may still be added to this batch.

        Where transactions come as well, a batch is to be through soon, because the next ones wait
        for it; how many records that are follows from how long the batches before have taken.
        """
        most = self._batch.most
        if not self.is_quiet:
            most = min(most, self._mixed_records)
        return most - self._batch.copied

    @property
    def is_quiet(self) -> bool:
        """Whether no transactions come that would wait for a batch."""
        return self._clock() - self._began_at >= self._cost.quiet_s

    @property
    def is_empty(self) -> bool:
        """Whether nothing is gathered, open or being committed."""
        return not self._batch.records and not self._pieces and not self._sink.busy

    def add(self, records: list[Record], *, whole: bool = True) -> None:
        """Take records; not `whole`: more of the same transaction come."""
        batch = self._batch
        if not whole:
            batch.whole = False
        if not batch.records:
            batch.since = self._clock()
        batch.records += records
        batch.size += sum(map(len, filter(None, map(_VALUE, records))))
        if len(batch.records) >= batch.most and not batch.partitions and not batch.copied:
            batch.count_partitions()
            batch.most = self._cost.batch_records(self._usual, batch.partitions)
        self._counters.records += len(records)

    def add_copied(self, records: list[Record]) -> None:
        """Take records of a copy."""
        self._batch.copied += len(records)
        self.add(records)

    def reach(self, end_lsn: Lsn) -> None:
        """Note that everything that ends at or before `end_lsn` has been routed."""
        self._batch.end_lsn = max(self._batch.end_lsn, end_lsn)
        self.position = max(self.position, end_lsn)

    def begin(self, transaction: Transaction) -> None:
        """Note which one is being routed, for what is said when Kafka finds it too large."""
        self._began_at = self._clock()
        if self._oldest is None:
            self._oldest = transaction.commit_time
        if self._largest is None or transaction.byte_size > self._largest.byte_size:
            self._largest = transaction

    def finish(self, transaction: Transaction) -> None:
        """Note that all records of `transaction` have been taken."""
        self.reach(transaction.end_lsn)
        self._batch.whole = True
        self._batch.commit_time = transaction.commit_time
        if transaction.changes_rows:
            self._batch.last = LastCommit(
                transaction.commit_lsn, transaction.xid, transaction.commit_time
            )

    def add_series(self, routed: RoutedSeries, oldest: int) -> None:
        """Take whole transactions, of which the first was committed at `oldest`."""
        self._began_at = self._clock()
        if self._oldest is None:
            self._oldest = oldest
        self.add(routed.records)
        self.reach(routed.end_lsn)
        self._batch.commit_time = routed.last.commit_time
        self._batch.last = routed.last

    def submit(self, *, idle: bool, waiting: bool, routing: bool) -> None:
        """Hand the batch over when the sink is free and it is time.

        Args:
            idle: The stream has nothing more to give now.
            waiting: There are transactions that are not routed yet.
            routing: One is being routed.
        """
        if self._sink.busy:
            return
        batch, had_pieces = self._batch, self._pieces > 0
        handover = self._cost.decide(
            self._gathered(waiting=waiting),
            self._clock(),
            max_age_s=self._limits.max_batch_ms / 1000,
            most_pieces=RESENDABLE,
            idle=idle,
            waiting=waiting,
            quiet=self.is_quiet,
        )
        if handover in (Handover.PIECE, Handover.ONE_OF_MANY):
            self._reporter.hand_over(len(batch.records))
            kept = handover is Handover.PIECE and batch.most == self._usual
            kept = kept and not self._is_surely_large()
            self._sink.submit(Batch(batch.records, kept=kept))
            if not self._pieces:
                self._opened_at = batch.since
            self._pieces += 1
            self._in_pieces += len(batch.records)
            fail_point("pipeline.piece_submitted")
        elif handover is Handover.COMMIT or self.is_progress_due(busy=waiting or routing):
            self._commit(batch, done=not waiting and not routing)
        else:
            return
        now = self._clock()
        # Of a piece it would tell nothing: its commit is to come, or was that of others, too.
        self._submitted = now, 0 if self._pieces or had_pieces else batch.copied
        self._batch = _Gathering([], 0, batch.end_lsn, batch.whole, now, self._usual)

    def _gathered(self, *, waiting: bool) -> Gathered:
        batch, full = self._batch, self.is_full
        if waiting and full and batch.whole and not batch.partitions:
            batch.count_partitions()
        return Gathered(
            len(batch.records),
            batch.since,
            batch.copied,
            batch.partitions,
            full,
            batch.whole,
            self._pieces,
            self._in_pieces,
            self._opened_at,
        )

    def _is_surely_large(self) -> bool:
        """Whether more pieces will come, as it seems, than the sink keeps."""
        most = RESENDABLE * self._usual
        return self._largest is not None and self._largest.message_count > most

    def _commit(self, batch: _Gathering, *, done: bool) -> None:
        if done:
            # Whatever came before an idle position is inside, so that the position holds too.
            batch.end_lsn = max(batch.end_lsn, self.position)
        published = self._published() if done else batch.end_lsn
        idle = self._progress.behind(published, everyone=self.hurry)
        self._progress.end_turns()
        self._progress.mark(idle, self._router.ended, published)
        self._pieces = self._in_pieces = 0
        self._committing, self._largest = self._largest, None
        self._oldest_committing, self._oldest = self._oldest, None
        self._reporter.hand_over(len(batch.records))
        self._reporter.commit()
        self._sink.submit(
            Batch(
                batch.records,
                replace(
                    self.durable,
                    end_lsn=batch.end_lsn,
                    last=batch.last or self.durable.last,
                    copies=self._states(),
                    refusal=self._counters.refusal,
                ),
                Cut(published, self._router.feeds, batch.commit_time, idle),
            )
        )

    def collect(self) -> bool:
        """Take what the sink has finished; return whether a watermark has been committed.

        Raises:
            KafkaTransactionTimeout: a Kafka transaction did not fit; names the largest one in it.
            TransientError, FatalError: as `Sink.collect`.
        """
        try:
            batch = self._sink.collect()
        except KafkaTransactionTimeout as error:
            if (large := self._committing or self._largest) is None:
                raise
            raise KafkaTransactionTimeout(
                f"transaction {large.xid} ({large.message_count} messages, {large.byte_size} "
                f"bytes, commit_lsn {format_lsn(large.commit_lsn)}) does not fit into one Kafka "
                f"transaction: {error.message}",
                hint=error.hint,
            ) from None
        if batch is None:
            return False
        since, copied = self._submitted
        self._mixed_records = self._cost.mixed_records(
            self._mixed_records, copied, self._clock() - since, self._usual
        )
        if batch.watermark is None:
            return False
        self._committing = None
        self._oldest_committing = None
        self._reporter.committed()
        self.durable = batch.watermark
        self._counters.durable_lsn = batch.watermark.end_lsn
        return True

    def is_progress_due(self, *, busy: bool) -> bool:
        """Whether a position without records should be committed now.

        Args:
            busy: Transactions wait, or one is being routed.
        """
        if busy or not self._batch.whole or not (self.hurry or self._progress.is_time()):
            return False
        moved = (
            self.position > self.durable.end_lsn
            or self._states() is not self.durable.copies
            or self._counters.refusal != self.durable.refusal
        )
        return moved or bool(self._progress.behind(self._published(), everyone=self.hurry))

    def due_at(self, *, waiting: bool) -> list[float]:
        """When the clock makes something due, while the sink is free.

        Args:
            waiting: As for `submit`.
        """
        due: list[float] = []
        if self._sink.busy:
            return due
        moved = self.position > self.durable.end_lsn
        if (turn := self._progress.due_at(self._published(), moved=moved)) is not None:
            due.append(turn)
        if self._batch.records:
            max_age_s = self._limits.max_batch_ms / 1000
            gathered = self._gathered(waiting=waiting)
            at = self._cost.due_at(gathered, self._clock(), max_age_s=max_age_s, waiting=waiting)
            due += [] if at is None else [at]
        return due

    def _states(self) -> tuple[CopyState, ...]:
        return self.durable.copies if self._copies is None else self._copies()

    def _published(self) -> Lsn:
        """Everything that ends at or before it has been routed, when nothing waits."""
        return max(self.position, self.promised)
