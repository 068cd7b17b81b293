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
from gateway.core.records import Batch, CopyState, Feed, Record
from gateway.definitions.ddl.messages import Reason
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
        silent_for_s: When the server has said nothing for so long it is given up; 0: never.
    """

    silent_for_s: float

    def fileno(self) -> int:
        """Readable when the server has sent something."""

    def receive(self, limit: int) -> Sequence[bytes]:
        """Take what has arrived, at most `limit` frames, without waiting.

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
            flush_lsn: What is safe; the slot moves to it.
            write_lsn: What has been received; at least `flush_lsn`, which None stands for. Without
                it the server asks without a pause while flush is behind.
            reply_requested: The server is to answer with a keepalive.

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
        """Readable when a batch has finished, or failed."""

    @property
    def busy(self) -> bool:
        """A submitted batch has not been collected yet."""

    def submit(self, batch: Batch) -> None:
        """Hand over `batch` and return at once; only when not `busy`."""

    def collect(self) -> Batch | None:
        """Return the batch that has finished since, or None; never waits.

        With a watermark, it is committed: durable in Kafka and visible to ``read_committed``.

        Raises:
            TransientError: the Kafka transaction was aborted; start again from the watermark.
            FatalError: fenced by a newer gateway, not authorised, a record too large, ...
        """


class TransactionRouter(Protocol):
    """Turns transactions into records; see `gateway.routing.Router`.

    Attributes:
        ended: Per subscription, the end of the last transaction that got an END marker.
        awaits: What `route` waits for is there when this descriptor is readable; None: for nothing.
    """

    ended: dict[str, Lsn]
    awaits: int | None

    def foresee(self, item: Transaction | PreparedTransaction) -> None:
        """Take what will be routed, or marked, after all that was foreseen before."""

    @property
    def feeds(self) -> Sequence[Feed]:
        """The topics of every subscription; the same object from call to call."""

    def route(self, transaction: Transaction) -> Iterator[list[Record]]:
        """Yield its records in bounded pieces; an empty one means: go on later, see `awaits`."""

    def route_series(self, series: Series, room: int) -> RoutedSeries | None:
        """Return records of some of its transactions, `room` or a few more.

        None: the next one is for `route`.
        """

    def learn(self, event: Transaction | PreparedTransaction) -> None:
        """Take in what a transaction announces, without its rows."""

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
        """Return, by reason since the last call, the DDL messages that were not believed."""


class Switch(Protocol):
    """Says when the loop has to end so that other definitions can take over at one LSN."""

    def holds(self) -> bool:
        """Return whether nothing must be received now, because that LSN is about to be chosen."""

    def confirm_hold(self) -> None:
        """Note that the loop receives nothing until `holds` returns False or `point` is known."""

    def point(self) -> Lsn | None:
        """Return the LSN, when it is known: no transaction that ends after it may be published."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Records that have their place between two transactions.

    Attributes:
        lsn: Their position.
        records: In bounded pieces.
    """

    lsn: Lsn
    records: Iterator[list[Record]]


class Copier(Protocol):
    """Copies tables while the stream goes on (`gateway.runtime.copy.coordinator`)."""

    def fileno(self) -> int:
        """Readable when there may be something to place."""

    @property
    def unfinished(self) -> bool:
        """Whether tables are still to be copied."""

    @property
    def altered(self) -> bool:
        """Whether a new plan is needed to go on."""

    def awaited(self) -> Lsn | None:
        """Return the first position that something waits for."""

    def place(self, last: Lsn, until: Lsn, room: int) -> Placement | None:
        """Return what can be published now, between two transactions.

        Args:
            last: Everything published so far ends at or before it.
            until: Everything that commits before it has been published.
            room: Number of records there is room for, kept as far as it can be foreseen.

        Raises:
            GatewayError: tables cannot be copied.
        """

    def states(self) -> tuple[CopyState, ...]:
        """Return what is to be committed with everything that was published so far.

        The same object from call to call while nothing changes.
        """
