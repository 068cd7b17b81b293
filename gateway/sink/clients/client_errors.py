"""Reports of librdkafka about its connections, several times a second: callback and log filter.

A call that cannot reach a broker only reports a timeout; the reason is here.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError

from schemas.kafka_errors import LastError

__all__ = ["ErrorCallback", "RepeatFilter"]

_NUMBERS: Final = re.compile(r"\d+")


class ErrorCallback(LastError[KafkaError]):
    """Last error of one client that says something; its ``error_cb``, which `poll` calls."""


@dataclass(slots=True)
class _Line:
    """State of one kind of log line.

    Attributes:
        since: Time of the first line of a run without a pause of `every_s`.
        seen_at: Time of the last line.
        passed_at: Time at which a line last passed.
        held_back: Number of lines suppressed since.
        lasting: Whether a line has passed at its own level.
    """

    since: float
    seen_at: float
    passed_at: float
    held_back: int = 0
    lasting: bool = False


class RepeatFilter(logging.Filter):
    """Log filter that passes a line once in `every_s`, with the number of suppressed repetitions.

    Lines that differ only in numbers are equal: the numbers are clients, ports and times. An error
    that does not last for `lasts_s` is transient (a coordinator loading, a broker restarting), and
    is logged at INFO only.
    """

    def __init__(
        self,
        every_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        *,
        lasts_s: float = 5.0,
    ) -> None:
        super().__init__()
        self._every_s = every_s
        self._lasts_s = lasts_s
        self._clock = clock
        self._known: dict[str, _Line] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line passes."""
        text = record.getMessage()
        now = self._clock()
        kind = _NUMBERS.sub("0", text)
        line = self._known.get(kind)
        if line is None or now - line.seen_at > self._every_s:
            self._known[kind] = _Line(now, now, now)
            self._inform(record)
            return True
        line.seen_at = now
        begins_to_last = not line.lasting and now - line.since >= self._lasts_s
        if not begins_to_last and now - line.passed_at < self._every_s:
            line.held_back += 1
            return False
        if line.held_back:
            record.msg, record.args = f"{text} ({line.held_back} more like it since)", ()
        line.passed_at, line.held_back, line.lasting = now, 0, True
        return True

    @staticmethod
    def _inform(record: logging.LogRecord) -> None:
        if record.levelno < logging.CRITICAL:
            record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
