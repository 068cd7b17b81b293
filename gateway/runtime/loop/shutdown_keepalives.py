"""Detection of a server that is stopping and waits for feedback, by its keepalives. Pure.

On a fast shutdown a walsender ends only when the client has confirmed everything that was sent; it
asks again as soon as an answer arrives. While a prepared transaction holds the confirmation back,
or Kafka is down, that would never end, and the server could not stop. Otherwise it asks once for
a position, and then not before half of wal_sender_timeout, because our answers say that we have
received it (``write``).

Source: WalSndDone and WalSndWaitForWal in PostgreSQL's walsender.c.
"""

from __future__ import annotations

from typing import Final

from gateway.core.lsn import Lsn

__all__ = ["ShutdownKeepalives"]

GAP_S: Final = 0.5
"""Maximum gap between an answer and the next request at the same position for the two to count as
one run, in seconds."""

PATIENCE_S: Final = 4.0
"""How long a run must last before the server is taken to be shutting down, in seconds.

A commit to Kafka that is under way is usually done before."""


class ShutdownKeepalives:
    """Watches the keepalives that request a reply."""

    __slots__ = ("_answered_at", "_since", "_wal_end")

    def __init__(self) -> None:
        self._wal_end: Lsn | None = None
        self._since = 0.0
        self._answered_at = 0.0

    def reset(self) -> None:
        """Forget the run: the server has sent data."""
        self._wal_end = None

    def is_shutting_down(self, wal_end: Lsn, flush_lsn: Lsn, now: float) -> bool:
        """Record a request answered with `flush_lsn`; return whether the server is shutting down.

        Args:
            wal_end: Position of the keepalive.
            flush_lsn: LSN that the answer confirms.
            now: Seconds, monotonic.
        """
        if flush_lsn >= wal_end:
            self._wal_end = None
            return False
        if wal_end != self._wal_end or now - self._answered_at > GAP_S:
            self._wal_end, self._since = wal_end, now
        self._answered_at = now
        return now - self._since > PATIENCE_S
