"""The protocols between the pipeline and the two edges.

Declared here and not at the edges, so that the pipeline can be read and tested without them.
Every method that can wait has a bound; `fileno` lets one `select` watch both edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.core.errors import UnfitKind
from gateway.core.lsn import Lsn
from gateway.core.records import Batch, Feed, Record
from gateway.core.watermark import CopyState
from gateway.definitions.ddl.authentication import Reason
from gateway.routing.row.counters import Tally
from gateway.routing.short_transactions import RoutedSeries
from gateway.transactions import (
    PreparedTransaction,
    RolledBack,
    Series,
    StandaloneMessage,
    Transaction,
)


class Source(Protocol):
    """A started replication stream.

    Attributes:
        silent_for_s: Seconds of silence after which the server counts as lost; 0 for never.
    """

    silent_for_s: float

    def fileno(self) -> int:
        """Return a descriptor that is readable when the server has sent something."""

    def receive(self, limit: int) -> Sequence[bytes]:
        """Return received frames, at most `limit`, without waiting.

        A frame is one CopyData payload: ``w`` XLogData (25 bytes of header: tag, wal_start,
        wal_end, send time; then one pgoutput message) or ``k`` keepalive (tag, wal_end, send time,
        reply requested). An empty result means: wait on `fileno`.

        Raises:
            TransientError: the connection is gone.
            SlotError: the server ended the stream because of the slot.
        """

    def send_feedback(
        self, flush_lsn: Lsn, *, write_lsn: Lsn | None = None, reply_requested: bool = False
    ) -> None:
        """Send a standby status update with flush = apply = `flush_lsn`.

        Args:
            flush_lsn: LSN that is safe; the slot moves to it.
            write_lsn: LSN that has been received, at least `flush_lsn`, which is also the default.
                Without it the server asks without a pause while flush lags.
            reply_requested: Whether the server is to answer with a keepalive.

        Raises:
            TransientError: the connection is gone.
        """

    def finish(self, timeout_s: float) -> bool:
        """End the stream in order; return whether the server has read everything in time."""

    def close(self) -> None:
        """End the stream at once."""


class Sink(Protocol):
    """A transactional producer that works in the background, one batch at a time."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when a batch has finished, or failed."""

    @property
    def busy(self) -> bool:
        """Whether a submitted batch has not been collected yet."""

    def submit(self, batch: Batch) -> None:
        """Hand over `batch` and return at once; only when not `busy`."""

    def collect(self) -> Batch | None:
        """Return a batch that has finished, or None, without waiting.

        With a watermark, it is committed: durable in Kafka and visible to ``read_committed``.

        Raises:
            TransientError: the Kafka transaction was aborted; start again from the watermark.
            FatalError: fenced by a newer gateway, not authorised, a record too large, ...
        """


class TransactionRouter(Protocol):
    """Turns transactions into records; see `gateway.routing.Router`.

    Attributes:
        ended: End of the last transaction that got an END marker, by subscription.
        awaits: Descriptor that is readable once `route` can go on; None if it waits for nothing.
    """

    ended: dict[str, Lsn]
    awaits: int | None

    def foresee(self, item: Transaction | PreparedTransaction) -> None:
        """Announce an item that will be routed, or marked, after all announced before."""

    @property
    def feeds(self) -> Sequence[Feed]:
        """The topics of every subscription; the same object from call to call."""

    def route(self, transaction: Transaction) -> Iterator[list[Record]]:
        """Yield its records in bounded pieces; after an empty one go on later, see `awaits`."""

    def route_series(self, series: Series, room: int) -> RoutedSeries | None:
        """Return records of some of its transactions, `room` or a few more.

        None: the next one is for `route`.
        """

    def learn(self, event: Transaction | PreparedTransaction) -> None:
        """Apply the relations that a transaction announces, without its rows."""

    def route_standalone(self, message: StandaloneMessage) -> list[Record]:
        """Return the records of a non-transactional message."""

    def mark(self, event: PreparedTransaction | RolledBack) -> list[Record]:
        """Return PREPARE or ROLLBACK_PREPARED markers."""

    def tally(self) -> Tally:
        """Return what was routed so far, by table."""

    def pop_lost_values(self) -> Mapping[str, int]:
        """Return, per table since the last call, the rows sent with NULL for a value not sent."""

    def pop_quarantined(self) -> Mapping[tuple[str, UnfitKind], int]:
        """Return, per table since the last call, the records made for the error topic."""

    def pop_ignored(self) -> Mapping[Reason, int]:
        """Return, by reason since the last call, the number of DDL messages that were refused."""


class Switch(Protocol):
    """Decides when the loop ends, so that other definitions can come into force at one LSN."""

    def holds(self) -> bool:
        """Return whether receiving has to stop, because that LSN is about to be chosen."""

    def confirm_hold(self) -> None:
        """Note that the loop receives nothing until `holds` returns False or `point` is known."""

    def point(self) -> Lsn | None:
        """Return the LSN after which no transaction may end that is published, once known."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Records that are placed between two transactions.

    Attributes:
        lsn: Position of the records.
        records: The records, in bounded pieces.
    """

    lsn: Lsn
    records: Iterator[list[Record]]


class Copier(Protocol):
    """Copies tables while the stream goes on (`gateway.runtime.copy.coordinator`)."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when there may be something to place."""

    @property
    def unfinished(self) -> bool:
        """Whether tables are still to be copied."""

    @property
    def needs_successor(self) -> bool:
        """Whether another copier has to take its place, because of how the tables are now."""

    def awaited(self) -> Lsn | None:
        """Return the first position for which something waits."""

    def place(self, last: Lsn, until: Lsn, room: int) -> Placement | None:
        """Return the records to publish now, between two transactions.

        Args:
            last: LSN at or before which everything published so far ends.
            until: LSN before which every commit has been published.
            room: Number of records there is room for, kept as far as it can be foreseen.

        Raises:
            GatewayError: tables cannot be copied.
        """

    def states(self) -> tuple[CopyState, ...]:
        """Return the states to commit with everything published so far.

        The same object from call to call while nothing changes.
        """
