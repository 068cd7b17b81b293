"""Receiver timeout: detection of an open stream that has fallen silent. Pure.

A server that has nothing to send need not say so. Half of the time limit after the last word it is
asked for one; when none has come by the end of the other half, the connection is taken for lost.

Source: WalRcvWakeup in PostgreSQL's walreceiver.c.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["SilenceWatch", "Verdict"]


class Verdict(Enum):
    """Action on a silence."""

    WAIT = "wait"
    ASK = "ask"
    LOST = "lost"


class SilenceWatch:
    """Told of each look at the stream: `on_message` when there was something, else `judge`.

    Looks may be far apart, because a receiver that has no room does not read. The second half
    therefore begins with the request and not with the last message: the answer to it would be there
    by now.

    Args:
        timeout_s: 0 means never.
    """

    __slots__ = ("_asked_at", "_half_s", "_silent_since")

    def __init__(self, timeout_s: float) -> None:
        self._half_s = timeout_s / 2
        self._silent_since: float | None = None
        self._asked_at: float | None = None

    def on_message(self) -> None:
        """Record that a message has arrived."""
        self._silent_since = self._asked_at = None

    def judge(self, now: float) -> Verdict:
        """Note that nothing was there at `now`, in seconds, monotonic."""
        if not self._half_s:
            return Verdict.WAIT
        if self._silent_since is None:
            self._silent_since = now
        if self._asked_at is None:
            if now - self._silent_since < self._half_s:
                return Verdict.WAIT
            self._asked_at = now
            return Verdict.ASK
        return Verdict.WAIT if now - self._asked_at < self._half_s else Verdict.LOST
