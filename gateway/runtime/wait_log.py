"""Log lines that name what the gateway waits for: each once, and again at intervals."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from gateway.core.errors import GatewayError
from gateway.definitions.model import Table
from gateway.observe import event
from gateway.source.session.blockers import Wait

__all__ = ["LockNotices", "WaitNotice"]

_LOG: Final = logging.getLogger(__name__)
_LOOK_S: Final = 2.0
_SAY_S: Final = 10.0
_LOCKED_S: Final = 60.0
"""Interval of the lines about one table that stays locked."""


class WaitNotice:
    """Called often while something waits.

    Args:
        message: Constant text of the log line.
        look: Asks the server for whom; None if it does not say.
    """

    def __init__(self, message: str, look: Callable[[], Wait | None]) -> None:
        self._message = message
        self._look = look
        self._looked_s = 0.0
        self._logged: tuple[str, float] = ("", 0.0)

    def __call__(self, waited_s: float) -> None:
        """Look, and log it, when it is time; `waited_s` is the time waited so far."""
        if waited_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = waited_s
        try:
            wait = self._look()
        except GatewayError:
            wait = None
        names = "" if wait is None else str(wait)
        logged, when_s = self._logged
        if waited_s - when_s < _SAY_S and names == logged:
            return
        self._logged = (names, waited_s)
        event(
            _LOG,
            logging.WARNING,
            self._message,
            waited_s=int(waited_s),
            awaited=names or "the server does not say which",
            **({} if wait is None or wait.age_s is None else {"age_s": wait.age_s}),
        )


class LockNotices:
    """Log lines about tables that others have locked."""

    def __init__(self) -> None:
        self._logged: dict[int, float] = {}

    def __call__(self, table: Table, error: GatewayError) -> None:
        """Log that a table is locked, unless that was logged not long ago."""
        now = time.monotonic()
        if now - self._logged.get(table.oid, -_LOCKED_S) >= _LOCKED_S:
            self._logged[table.oid] = now
            event(
                _LOG,
                logging.WARNING,
                "a table is locked: others are read until it is free",
                relation=table,
                error=error.message,
            )
