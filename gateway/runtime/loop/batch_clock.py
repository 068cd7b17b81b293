"""Times of the batches of one loop, for traces; it exists only where somebody wants them. Pure.

Transactions are noted as they are received, in the order of the stream, and forgotten when the
watermark that passes them is handed over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from gateway.core.lsn import ZERO_LSN, Lsn
from gateway.core.records import Batch
from gateway.observe import BatchTimes, OnBatch
from gateway.runtime.loop.transaction_queue import Item, end_of, position_of
from gateway.transactions import Series

__all__ = ["BatchClock"]


@dataclass(slots=True)
class _Open:
    """The Kafka transaction that has begun, as in `BatchTimes`."""

    routed_at: float
    handed_over_at: float
    routed_until: float
    received_at: float | None = None
    records: int = 0
    pieces: int = 0
    end_lsn: Lsn = ZERO_LSN


class BatchClock:
    """Clock of the batches.

    Args:
        on_batch: Called at the end of each batch that has records.
        clock: Seconds, monotonic.
    """

    def __init__(self, on_batch: OnBatch, clock: Callable[[], float]) -> None:
        self._on_batch = on_batch
        self._clock = clock
        self._received: deque[tuple[Lsn, Lsn, float]] = deque()
        self._open: _Open | None = None

    def receive(self, item: Item | Series) -> None:
        """Note that an item is queued."""
        self._received.append((position_of(item), end_of(item), self._clock()))

    def hand_over(self, batch: Batch, routed_at: float) -> None:
        """Note that a batch goes to the sink, whose first record was made at `routed_at`."""
        if batch.records:
            now = self._clock()
            if self._open is None:
                self._open = _Open(routed_at, now, now)
            self._open.routed_until = now
            self._open.records += len(batch.records)
            self._open.pieces += 1
        if batch.watermark is not None:
            received_at = self._pop_received(batch.watermark.end_lsn)
            if self._open is not None:
                self._open.end_lsn = batch.watermark.end_lsn
                self._open.received_at = received_at

    def end(self, error: Exception | None = None) -> None:
        """Note that the Kafka transaction is committed, or has failed."""
        begun, self._open = self._open, None
        if begun is None:
            return
        received_at = begun.routed_at if begun.received_at is None else begun.received_at
        self._on_batch(
            BatchTimes(
                min(received_at, begun.routed_at),
                begun.routed_at,
                begun.handed_over_at,
                begun.routed_until,
                self._clock(),
                begun.records,
                begun.pieces,
                begun.end_lsn,
                "" if error is None else type(error).__name__,
            )
        )

    def _pop_received(self, end_lsn: Lsn) -> float | None:
        """Forget what ends at or before an LSN; return when the first item until there came."""
        begins_at, _, first = self._received[0] if self._received else (end_lsn, end_lsn, None)
        while self._received and self._received[0][1] <= end_lsn:
            self._received.popleft()
        return first if begins_at < end_lsn else None
