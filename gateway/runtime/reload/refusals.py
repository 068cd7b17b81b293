"""Refusal of changed definitions: posted while it lasts, logged when it begins and ends."""

from __future__ import annotations

import logging
import time
from typing import Final

from gateway.core.display import first_lines
from gateway.core.errors import GatewayError
from gateway.core.watermark import Refusal
from gateway.observe import Counters, event

__all__ = ["Refusals"]

_LOG: Final = logging.getLogger(__name__)
_MOST_KEPT: Final = 20_000
"""Number of characters of a refusal that are kept with the watermark."""


class Refusals:
    """Refusals of definitions that are checked one after the other.

    Args:
        counters: Counters that show the present one.
    """

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def refuse(self, fingerprint: str, error: GatewayError) -> None:
        """Post that definitions are refused, and since when; log it once.

        Args:
            fingerprint: Fingerprint of the definitions; empty if they could not be read.
            error: The reason.
        """
        before, now_ms = self._counters.refusal, time.time_ns() // 1_000_000
        same = before is not None and before.message == error.message[:_MOST_KEPT]
        self._counters.refusal = Refusal(
            before.since_ms if before is not None else now_ms,
            now_ms,
            fingerprint,
            error.message[:_MOST_KEPT],
            # A statement that is cut off can be another one, for another table.
            first_lines(error.hint or "", _MOST_KEPT, "`pgsluice check --sql` prints all of it"),
        )
        if not same:
            event(
                _LOG,
                logging.ERROR,
                "changed definitions are refused, the old ones stay in force",
                error=error.message,
                hint=error.hint or "",
            )

    def end(self) -> None:
        """Post that definitions are no longer refused; log it if they were."""
        if (before := self._counters.refusal) is None:
            return
        self._counters.refusal = None
        event(
            _LOG,
            logging.INFO,
            "definitions are no longer refused",
            after_s=round(time.time() - before.since_ms / 1000),
        )
