"""Processes that run in turns: threads of which one moves at a time, so that a seed decides all."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Killed", "Process"]


class Killed(BaseException):
    """Raised inside a process that was killed, at its next step; it has no effect any more."""


class Process:
    """A process of the simulated world.

    Args:
        body: Run once, from its first turn to its end.

    Attributes:
        alive: Whether `body` has not ended.
        killed: Whether it was killed.
        failure: Exception with which it ended, or None.
    """

    def __init__(self, body: Callable[[Process], None]) -> None:
        self._body = body
        self._mine, self._back = threading.Lock(), threading.Lock()
        self._mine.acquire()
        self._back.acquire()
        self._steps = 0
        self.alive = True
        self.killed = False
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def resume(self, steps: int = 1) -> None:
        """Let it take some steps, or fewer if it ends; a failure is raised here."""
        if self.alive:
            self._steps = steps
            self._mine.release()
            self._back.acquire()
        if self.failure is not None:
            raise self.failure

    def pause(self) -> None:
        """End a step, and with the last one the turn; called by itself.

        Raises:
            Killed: it was killed meanwhile.
        """
        self._steps -= 1
        if self._steps > 0:
            return
        self._back.release()
        self._mine.acquire()
        self.check()

    def check(self) -> None:
        """Raise `Killed` if it was killed."""
        if self.killed:
            raise Killed

    def kill(self) -> None:
        """End it as kill -9 does: nothing it does from here on has an effect."""
        self.killed, self.failure = True, None
        while self.alive:
            self.resume()
        self._thread.join()

    def _run(self) -> None:
        self._mine.acquire()
        try:
            if not self.killed:
                self._body(self)
        except Killed:
            pass
        except Exception as error:
            self.failure = error
        finally:
            self.alive = False
            self._back.release()
