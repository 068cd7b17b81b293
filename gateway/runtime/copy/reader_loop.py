"""Loop of a thread that reads tables, and connects again when its connection is lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from gateway.copy import Snapshot
from gateway.core.background import OnWait
from gateway.core.errors import TransientError
from gateway.observe import event
from gateway.runtime.copy.first_snapshot import FirstSnapshot
from gateway.source.copy.chunk_reader import ChunkReader

__all__ = ["Connect", "ReaderLoop"]

_LOG: Final = logging.getLogger(__name__)

Connect: TypeAlias = Callable[[], ChunkReader]


@dataclass(frozen=True, slots=True)
class ReaderLoop:
    """Runs the steps of any number of threads, each over a connection of its own.

    Attributes:
        open_reader: Opens a connection; its argument is called during waits.
        first_snapshot: Gate that each connection passes before it is handed out, if there is one.
        closed: Ends all loops once it is set, also one that waits for a connection.
        retry_s: Pause before a connection is opened again.
        note: Called with each snapshot that is taken at the gate.
        fail: Called with the error that has ended a loop.
    """

    open_reader: Callable[[OnWait], ChunkReader]
    first_snapshot: FirstSnapshot | None
    closed: threading.Event
    retry_s: float
    note: Callable[[Snapshot], None]
    fail: Callable[[Exception], None]

    def run(self, step: Callable[[Connect], bool]) -> None:
        """Call `step` until it returns False.

        Args:
            step: Its argument returns the thread's connection, and opens one if there is none.
                After a TransientError the connection is given up and the step is called again,
                which has to remember what it had begun; any other exception ends the loop.
        """
        reader: ChunkReader | None = None

        def connect() -> ChunkReader:
            nonlocal reader
            if reader is None:
                reader = self.open_reader(self._go_on)
                if self.first_snapshot is not None:
                    self.first_snapshot.wait(reader, self.note)
            return reader

        try:
            while not self.closed.is_set():
                try:
                    if not step(connect):
                        return
                except TransientError as error:
                    if self.closed.is_set():
                        return
                    event(_LOG, logging.WARNING, "reading again", error=error.message)
                    if reader is not None:
                        reader.close()
                    reader = None
                    self.closed.wait(self.retry_s)
        except Exception as error:  # a thread cannot raise it where anybody would see it
            self.fail(error)
        finally:
            if reader is not None:
                reader.close()

    def _go_on(self) -> None:
        if self.closed.is_set():
            raise TransientError("the read is interrupted")
