"""Output of the demo while it works: lines, and on a terminal a status line below them."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Final, TextIO

from gateway.core.errors import FatalError

__all__ = ["Console", "DemoError"]

_POLL_S: Final = 0.1


class DemoError(FatalError):
    """A part of the demo did not do what it has to."""


class Console:
    """Prints to `out`, standard output by default; times count from its making."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._begin = time.monotonic()
        self._terminal = self._out.isatty()

    def say(self, text: str = "") -> None:
        """Print a line, or several."""
        self.clear()
        self._out.write(f"{text}\n")
        self._out.flush()

    def head(self, text: str) -> None:
        """Print a line that begins a chapter."""
        self.say(f"\n=== {text}")

    def timed(self, text: str) -> None:
        """Print a line with the seconds since the begin."""
        self.say(f"{time.monotonic() - self._begin:6.1f} s  {text}")

    def status(self, text: str) -> None:
        """Show what is being waited for; only on a terminal."""
        if self._terminal:
            self._out.write(f"\r\x1b[K{time.monotonic() - self._begin:6.1f} s  {text} ...")
            self._out.flush()

    def wait_until(
        self,
        condition: Callable[[], bool],
        what: str,
        *,
        timeout_s: float,
        check: Callable[[], None],
    ) -> None:
        """Ask `condition` until it is true; call `check` meanwhile, which may raise.

        Raises:
            DemoError: `timeout_s` seconds have passed.
        """
        deadline = time.monotonic() + timeout_s
        pause = threading.Event()
        while not condition():
            check()
            if time.monotonic() > deadline:
                raise DemoError(f"waited {timeout_s:.0f} s in vain: {what}")
            self.status(what)
            pause.wait(_POLL_S)

    def wait_for(self, starting: dict[str, Future[str]]) -> None:
        """Wait for all of them; print name and result of each as it comes.

        Raises:
            FatalError: what the first one that failed has raised.
        """
        names = {future: name for name, future in starting.items()}
        while names:
            self.status(f"starting {', '.join(names.values())}")
            done, _ = wait(names, timeout=_POLL_S, return_when=FIRST_COMPLETED)
            for future in done:
                self.timed(f"{names.pop(future):<16} {future.result()}")

    def clear(self) -> None:
        """Remove the status line."""
        if self._terminal:
            self._out.write("\r\x1b[K")
            self._out.flush()
