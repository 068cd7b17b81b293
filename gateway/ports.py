"""The protocols between the pipeline and the two edges.

Declared here and not at the edges, so that the pipeline can be read and tested without them.
Every method that can wait has a bound; `fileno` lets one `select` watch both edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from gateway.definitions.model import Column, Table
from gateway.lsn import Lsn
from gateway.pgtypes.binary import TypeInfo
from gateway.records import Batch, Record
from gateway.transactions import Prepared, RolledBack, StandaloneMessage, Transaction


class Source(Protocol):
    """A started replication stream."""

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
    """

    ended: dict[str, Lsn]

    def route(self, transaction: Transaction) -> Iterator[list[Record]]:
        """Yield its records in bounded pieces."""

    def learn(self, event: Transaction | Prepared) -> None:
        """Take in what a transaction announces, without its rows."""

    def route_standalone(self, message: StandaloneMessage) -> list[Record]:
        """Return the records of a non-transactional message."""

    def mark(self, event: Prepared | RolledBack) -> list[Record]:
        """Return PREPARE or ROLLBACK_PREPARED markers."""

    def progress(self, subscriptions: Sequence[str], end_lsn: Lsn) -> list[Record]:
        """Return PROGRESS markers."""

    def take_lost_values(self) -> Mapping[str, int]:
        """Return, per table since the last call, the rows sent with NULL for a value not sent."""

    def take_quarantined(self) -> Mapping[str, int]:
        """Return, per table since the last call, the records made for the error topic."""

    def take_totals(self) -> Mapping[str, tuple[int, ...]]:
        """Return the running totals that have changed since the last call."""


class Switch(Protocol):
    """Says when the loop has to end so that other definitions can take over at one LSN."""

    def holds(self) -> bool:
        """Return whether nothing must be received now, because that LSN is about to be chosen.

        Once it has been told so, the loop receives nothing until this returns False.
        """

    def point(self) -> Lsn | None:
        """Return the LSN, when it is known: no transaction that ends behind it may be published."""


class CatalogReader(Protocol):
    """The source's catalog as it is now, asked when a Relation message brings something new."""

    def table(self, oid: int) -> Table | None:
        """Describe a table or partitioned table, or return None when it is gone."""

    def column(self, name: str, type_oid: int, type_modifier: int) -> Column:
        """Describe a column of which only a Relation message is left.

        Raises:
            SchemaError: the type is gone as well.
        """

    def type_info(self, oid: int) -> TypeInfo:
        """Describe a type, for reading its binary format.

        Raises:
            SchemaError: there is no such type.
        """


class SchemaIds(Protocol):
    """The schema registry, as far as encoding needs it."""

    def register(self, subject: str, schema: Mapping[str, Any]) -> int:
        """Return the id of `schema` under `subject`, registering it when it is new.

        Raises:
            SchemaError: the registry refuses it as incompatible.
            TransientError: the registry cannot be reached.
        """
