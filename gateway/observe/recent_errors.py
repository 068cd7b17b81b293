"""Recent errors: the latest warnings and errors of the log, kept for the status page."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["RecentError", "RecentErrors"]

_KEPT: Final = 50


@dataclass(frozen=True, slots=True)
class RecentError:
    """Warning or error, as logged.

    Attributes:
        at: Time, in seconds since 1970.
        level: ``warning`` or ``error``.
        source: Module that logged it, without ``gateway.``.
    """

    at: float
    level: str
    source: str
    message: str
    fields: Mapping[str, str]


class RecentErrors(logging.Handler):
    """Log handler that counts warnings and errors and keeps the latest ones. Thread-safe."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._latest: deque[RecentError] = deque(maxlen=_KEPT)
        self._counts: Counter[tuple[str, str]] = Counter()
        self._guard = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record; see `logging.Handler`."""
        level = "error" if record.levelno >= logging.ERROR else "warning"
        source = record.name.removeprefix("gateway.")
        fields = {name: str(value) for name, value in getattr(record, "fields", {}).items()}
        error = RecentError(record.created, level, source, record.getMessage(), fields)
        with self._guard:
            self._latest.append(error)
            self._counts[level, source] += 1

    def latest(self) -> list[RecentError]:
        """Return the recent errors, newest first."""
        with self._guard:
            return list(reversed(self._latest))

    def counts(self) -> dict[tuple[str, str], int]:
        """Return the number of warnings and errors, by level and source."""
        with self._guard:
            return dict(self._counts)
