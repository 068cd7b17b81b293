"""SIGTERM, SIGINT and SIGHUP as flags that everything long-running asks."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["ReloadFlag", "StopFlag", "reload_on_signal", "stop_on_signals"]


class StopFlag:
    """Set by a signal; never cleared."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Ask everyone to stop."""
        self._event.set()

    def is_set(self) -> bool:
        """Whether somebody asked."""
        return self._event.is_set()

    def wait(self, timeout_s: float) -> None:
        """Wait so long, or until somebody asks."""
        self._event.wait(timeout_s)


@contextmanager
def stop_on_signals() -> Iterator[StopFlag]:
    """Turn the first SIGTERM or SIGINT into a flag; a second one ends the process at once."""
    flag = StopFlag()
    previous = {}

    def stop(number: int, _: FrameType | None) -> None:
        flag.set()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        previous[number] = signal.signal(number, stop)
    try:
        yield flag
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class ReloadFlag:
    """Set by SIGHUP; whoever takes it clears it."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Ask for the definitions to be read anew."""
        self._event.set()

    def take(self) -> bool:
        """Return whether somebody has asked since the last call."""
        asked = self._event.is_set()
        if asked:
            self._event.clear()
        return asked


@contextmanager
def reload_on_signal() -> Iterator[ReloadFlag]:
    """Turn SIGHUP into a flag."""
    flag = ReloadFlag()
    previous = signal.signal(signal.SIGHUP, lambda *_: flag.set())
    try:
        yield flag
    finally:
        signal.signal(signal.SIGHUP, previous)
