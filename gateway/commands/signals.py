"""Flags for SIGTERM, SIGINT and SIGHUP, polled by everything long-running."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from gateway.observe import event

__all__ = ["ReloadFlag", "StopFlag", "end_in_time", "reload_on_signal", "stop_on_signals"]

_LOG: Final = logging.getLogger(__name__)
_LOOK_S: Final = 0.2


class StopFlag:
    """Flag set by a signal; never cleared."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Request a stop."""
        self._event.set()

    def is_set(self) -> bool:
        """Whether a stop was requested."""
        return self._event.is_set()

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until a stop is requested, at most `timeout_s`."""
        self._event.wait(timeout_s)


@contextmanager
def stop_on_signals() -> Iterator[StopFlag]:
    """Convert the first SIGTERM or SIGINT to a flag; a second one ends the process at once.

    It does not use the default action, which the first process of a container does not have.
    """
    flag = StopFlag()
    previous = {}

    def stop(number: int, _: FrameType | None) -> None:
        if flag.is_set():
            os._exit(128 + number)
        flag.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        previous[number] = signal.signal(number, stop)
    try:
        yield flag
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def end_in_time(flag: StopFlag, timeout_s: float) -> Iterator[None]:
    """End the process `timeout_s` after `flag` was set, if the block has not ended by then.

    It is for waits that cannot be interrupted: a name server or a disk that does not answer. It is
    as safe as kill -9, for which the gateway is built: whatever is not committed is read again.
    """
    ended = threading.Event()

    def watch() -> None:
        while not flag.is_set():
            if ended.wait(_LOOK_S):
                return
        if not ended.wait(timeout_s):
            event(
                _LOG,
                logging.WARNING,
                "stopped without waiting any longer; changes that are not in Kafka are read again",
                after_s=timeout_s,
            )
            logging.shutdown()
            os._exit(0)

    threading.Thread(target=watch, name="pgsluice end", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


class ReloadFlag:
    """Flag set by SIGHUP and cleared by `pop`."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Request that the definitions be read again."""
        self._event.set()

    def pop(self) -> bool:
        """Return whether a reload was requested since the last call."""
        asked = self._event.is_set()
        if asked:
            self._event.clear()
        return asked


@contextmanager
def reload_on_signal() -> Iterator[ReloadFlag]:
    """Convert SIGHUP to a flag."""
    flag = ReloadFlag()
    previous = signal.signal(signal.SIGHUP, lambda *_: flag.set())
    try:
        yield flag
    finally:
        signal.signal(signal.SIGHUP, previous)
