"""What librdkafka says beside the results of its calls: the reasons behind its time-outs.

A call that cannot reach a broker only says that it took too long. Why, librdkafka tells a callback
and its log, over and over again, several times a second.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError

__all__ = ["PATIENCE_S", "Complaints", "RepeatFilter"]

PATIENCE_S: Final = 4.0
"""How long brokers that do not let us in are asked again before a call fails."""

_SAY_NOTHING: Final = frozenset(
    {KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE}
)
_NUMBERS: Final = re.compile(r"\d+")


class Complaints:
    """Keeps the last complaint of one client; its ``error_cb``, which `poll` calls."""

    def __init__(self) -> None:
        self.last: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        """Take a complaint."""
        if error.code() not in _SAY_NOTHING:
            self.last = error

    def clear(self) -> None:
        """Forget it: a call has succeeded since."""
        self.last = None


class RepeatFilter(logging.Filter):
    """Lets a line pass once in `every_s`, and says then how often it was held back.

    Lines that differ in numbers alone are the same: librdkafka puts clients, ports and times there.
    """

    def __init__(self, every_s: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._every_s = every_s
        self._clock = clock
        self._known: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Decide on one line."""
        text = record.getMessage()
        now = self._clock()
        kind = _NUMBERS.sub("0", text)
        passed_at, held_back = self._known.get(kind, (now - self._every_s, 0))
        if now - passed_at < self._every_s:
            self._known[kind] = (passed_at, held_back + 1)
            return False
        self._known[kind] = (now, 0)
        if held_back:
            record.msg, record.args = f"{text} ({held_back} more like it since)", ()
        return True
