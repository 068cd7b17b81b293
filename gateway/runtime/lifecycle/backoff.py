"""Pause before an attempt is repeated after a failure."""

from __future__ import annotations

from typing import Final

from gateway.core.errors import FatalError, FencedError, GatewayError

__all__ = ["Retries"]

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 15.0
STEADY_S: Final = 60.0
"""Seconds after which a stream counts as working, even if it had nothing to commit."""
FENCES: Final = 3
"""Number of fencings in a row, each while this gateway has the slot, that prove another server."""


class Retries:
    """State of retries: since when attempts have failed, and the next pause.

    Args:
        retry_for_s: Give up when nothing has worked for this long.
        slot: Name of the slot, for messages.
    """

    def __init__(self, retry_for_s: float, slot: str) -> None:
        self._retry_for_s = retry_for_s
        self._slot = slot
        self.reset()

    def reset(self) -> None:
        """Note that an attempt ended well."""
        self._failing_since: float | None = None
        self._pause_s = FIRST_PAUSE_S
        self._fences = 0

    def after(
        self,
        error: GatewayError,
        *,
        now: float,
        worked: bool,
        stood_by: bool,
        streaming_since: float | None = None,
    ) -> float:
        """Return the seconds to wait before the next attempt.

        Args:
            error: Error that ended this one.
            now: Seconds, monotonic.
            worked: Whether it committed something before that.
            stood_by: Whether another process had the slot at its beginning.
            streaming_since: When it began to stream, monotonic; None if it did not.

        Raises:
            GatewayError: `error`, because nothing has worked for `retry_for_s`.
            FatalError: trying again cannot help.
        """
        self._count_fences(error, stood_by)
        was_steady = streaming_since is not None and now - streaming_since > STEADY_S
        if self._failing_since is None or worked or stood_by or was_steady:
            self._failing_since, self._pause_s = now, FIRST_PAUSE_S
        pause_s = self._pause_s
        if now - self._failing_since + pause_s > self._retry_for_s:
            raise error
        self._pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
        return pause_s

    def _count_fences(self, error: GatewayError, stood_by: bool) -> None:
        """Detect two gateways on copies of one server, which both have the slot."""
        if not isinstance(error, FencedError):
            self._fences = 0
            return
        self._fences = 1 if stood_by else self._fences + 1
        if self._fences >= FENCES:
            raise FatalError(
                "another gateway writes to Kafka as this one does, and yet the slot "
                f'"{self._slot}" is free: it reads another server',
                hint="one of the two servers is a copy of the other: stop the gateway of the copy, "
                "or give it other topics ([topics] progress and other subscriptions)",
            )
