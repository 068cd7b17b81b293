"""Detection of Kafka outages: reported once Kafka has been silent for a while, and when it returns.

One unanswered probe means little: a broker restarts, a leader moves, one broker of many is frozen,
and the next probe asks another one. Only consecutive probes over several seconds count.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from gateway.observe import event

__all__ = ["OutageDetector"]

_LOG: Final = logging.getLogger(__name__)
_SILENT_S: Final = 8.0
"""Seconds without an answered probe after which Kafka counts as away."""
_PAUSE_S: Final = 5.0
_SHORT_PAUSE_S: Final = 1.0
_PROBE_S: Final = 0.5
_LONG_PROBE_S: Final = 2.0


class OutageDetector:
    """Outage detector, used only by the sink's thread.

    Args:
        on_away: Callback with the reason when Kafka does not answer, and with an empty text when it
            does again.
        clock: Monotonic clock, in seconds.

    Attributes:
        named: Whether Kafka has been reported as away.
    """

    def __init__(self, on_away: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._on_away = on_away
        self._clock = clock
        self._silent_since: float | None = None
        self.named = False

    @property
    def pause_s(self) -> float:
        """Pause until the next probe, in seconds."""
        return _PAUSE_S if self._silent_since is None else _SHORT_PAUSE_S

    @property
    def probe_timeout_s(self) -> float:
        """Timeout of the next probe, in seconds; an arriving batch waits for the probe to end."""
        return _PROBE_S if self._silent_since is None else _LONG_PROBE_S

    def record_probe(self, *, answered: bool, reason: str) -> None:
        """Record the result of a probe, and the reason if there was no answer."""
        if answered:
            self._silent_since = None
            return
        now = self._clock()
        if self._silent_since is None:
            self._silent_since = now
        if now - self._silent_since >= _SILENT_S:
            if not self.named:
                event(_LOG, logging.WARNING, "Kafka does not answer", reason=reason)
            self._name(reason)

    def record_wait(self, reason: str, *, give_up_in_s: float) -> None:
        """Log that a batch is still waiting."""
        event(
            _LOG,
            logging.WARNING,
            "Kafka does not answer, waiting",
            give_up_in_s=round(give_up_in_s),
            reason=reason,
        )
        self._name(reason)

    def record_failure(self, reason: str) -> None:
        """Record that a Kafka transaction has failed and will be retried."""
        event(_LOG, logging.WARNING, "Kafka failed, trying again", error=reason)
        self._name(reason)

    def record_recovery(self) -> None:
        """Record that Kafka works again."""
        if self.named:
            event(_LOG, logging.INFO, "Kafka answers again")
        self.named, self._silent_since = False, None
        self._on_away("")

    def _name(self, reason: str) -> None:
        self.named = True
        self._on_away(f"Kafka does not answer: {reason}")
