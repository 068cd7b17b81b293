"""Log of an exporter that cannot deliver: a line when that begins, and one when it ends."""

from __future__ import annotations

import logging
import threading
from typing import Protocol

__all__ = ["Log", "Outage"]


class Log(Protocol):
    """Writes a line: a fixed message, then its fields."""

    def __call__(self, level: int, message: str, **fields: object) -> None:
        """Write it."""


class Outage:
    """State of one exporter. Thread-safe.

    Args:
        log: Writer of the lines.
        what: Data that is exported, such as ``traces``.
        hint: Remedy, such as a variable to check.
    """

    def __init__(self, log: Log, what: str, hint: str) -> None:
        self._log = log
        self._what = what
        self._hint = hint
        self._guard = threading.Lock()
        self._is_out = False

    def failed(self, why: str) -> None:
        """Note that something could not be delivered.

        Args:
            why: The class of an error or the status of a response; never its text, which may
                quote a URL with a password.
        """
        with self._guard:
            begins, self._is_out = not self._is_out, True
        if begins:
            self._log(
                logging.WARNING,
                "a collector does not accept telemetry, which is dropped; all else goes on",
                what=self._what,
                error=why,
                hint=self._hint,
            )

    def passed(self) -> None:
        """Note that something was delivered."""
        with self._guard:
            ends, self._is_out = self._is_out, False
        if ends:
            self._log(logging.INFO, "a collector accepts telemetry again", what=self._what)
