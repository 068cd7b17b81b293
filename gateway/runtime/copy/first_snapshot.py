"""Wait for the first snapshot that sees everything that was published before this process began."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from gateway.copy import Snapshot
from gateway.core.errors import AccessError, FatalError, TransientError
from gateway.observe import event
from gateway.runtime.wait_log import WaitNotice
from gateway.source.copy.chunk_reader import ChunkReader

__all__ = ["GATE_S", "FirstSnapshot"]

_LOG: Final = logging.getLogger(__name__)
GATE_S: Final = 0.1
"""Interval of the looks."""


class FirstSnapshot:
    """Shared by threads that read; `gateway.copy` says why they wait.

    Args:
        message: Constant text of the log line that says for whom they wait.
        closed: Set when nobody waits any more.
    """

    def __init__(self, message: str, closed: threading.Event) -> None:
        self._message = message
        self._closed = closed
        self._lock = threading.Lock()
        self._sure_from: int | None = None
        self._waiting: dict[ChunkReader, tuple[float, WaitNotice]] = {}

    def wait(self, reader: ChunkReader, note: Callable[[Snapshot], None]) -> None:
        """Wait until all transactions have ended that ran when the first thread asked.

        Args:
            reader: Connection of the thread.
            note: Called with each snapshot that is taken meanwhile.

        Raises:
            AccessError: the role may not begin a transaction with an id.
            TransientError: the connection is gone.
        """
        while not (self._closed.is_set() or self.is_passed(reader, note)):
            self._closed.wait(GATE_S)

    def is_passed(self, reader: ChunkReader, note: Callable[[Snapshot], None]) -> bool:
        """Whether they have ended, for a thread that has other work until then; see `wait`."""
        with self._lock:
            if self._sure_from is None:
                self._sure_from = _first_unused(reader)
        snapshot = reader.snapshot()
        note(snapshot)
        if snapshot.xmin >= self._sure_from:
            if self._waiting.pop(reader, None) is not None:
                reader.wait_for(None)
            return True
        if reader not in self._waiting:
            reader.wait_for(self._sure_from)
            self._waiting[reader] = (time.monotonic(), WaitNotice(self._message, reader.awaited))
        since, notice = self._waiting[reader]
        notice(time.monotonic() - since)
        return False


def _first_unused(reader: ChunkReader) -> int:
    """Return an id that follows those of all transactions that have written something.

    A snapshot's xmax follows the last one that has ended. One that is still running may be later,
    and yet be published: its commit is written, and waits for a synchronous standby.
    """
    try:
        if (xid := reader.new_xid()) is not None:
            return xid
    except (AccessError, TransientError):
        raise
    except FatalError as error:  # the server gives no ids: nobody begins to write any more
        event(
            _LOG,
            logging.WARNING,
            "the first reads do not wait for commits that a synchronous standby has not confirmed",
            because=error.message,
        )
    return reader.snapshot().xmax
