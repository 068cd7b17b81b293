"""Receiver timeout: detection of an open stream that has fallen silent. Pure.

A server that has nothing to send need not say so. Half of the time limit after the last word it is
asked for one; when none has come by the end of the other half, the connection counts as lost.

Source: WalRcvWakeup in PostgreSQL's walreceiver.c.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["Liveness", "SilenceWatch"]


class Liveness(Enum):
    """Liveness of a silent stream: wait, ask the server, or count it as lost."""

    WAIT = "wait"
    ASK = "ask"
    LOST = "lost"


class SilenceWatch:
    """Watch on the silence of a stream: call `on_message` after a message, else `judge`.

    Looks may be far apart, because a receiver that has no room does not read. The second half
    therefore begins with the request and not with the last message: the answer to it would be there
    by now.

    Args:
        timeout_s: Receiver timeout; 0 for none.
    """

    __slots__ = ("_asked_at", "_half_s", "_silent_since")

    def __init__(self, timeout_s: float) -> None:
        self._half_s = timeout_s / 2
        self._silent_since: float | None = None
        self._asked_at: float | None = None

    def on_message(self) -> None:
        """Record that a message has arrived."""
        self._silent_since = self._asked_at = None

    def judge(self, now: float) -> Liveness:
        """Note that no message was there at `now`, in monotonic seconds; return what to do."""
        if not self._half_s:
            return Liveness.WAIT
        if self._silent_since is None:
            self._silent_since = now
        if self._asked_at is None:
            if now - self._silent_since < self._half_s:
                return Liveness.WAIT
            self._asked_at = now
            return Liveness.ASK
        return Liveness.WAIT if now - self._asked_at < self._half_s else Liveness.LOST
