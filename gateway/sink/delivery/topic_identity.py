"""Check that the topics written to are still the ones that were there at the start."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from gateway.core.errors import GatewayError, LostRecordsError
from gateway.observe import event
from gateway.sink.topics.topic_ids import other_topics, read_topic_ids

__all__ = ["TopicIdentity"]

_LOG: Final = logging.getLogger(__name__)
_TIMEOUT_S: Final = 3.0


class TopicIdentity:
    """Comparison of Kafka's topic IDs with those at the start; one request covers all topics.

    Args:
        kafka: librdkafka properties of the user.
        interval_s: Seconds between two periodic checks.
        clock: Monotonic clock, in seconds.

    Attributes:
        ids: Kafka's IDs of the topics written to, by name.
        lost: Result of a periodic check that found another topic; None if none has.
    """

    def __init__(
        self,
        kafka: Mapping[str, str | int | bool],
        *,
        interval_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._kafka = kafka
        self._interval_s = interval_s
        self._clock = clock
        self._next_check = clock() + interval_s
        self.ids: Mapping[str, str] = {}
        self.lost: LostRecordsError | None = None

    def check_periodically(self) -> None:
        """Check if it is due; errors other than a lost topic are left to the next batch."""
        if self.lost is not None or self._clock() < self._next_check:
            return
        self._next_check = self._clock() + self._interval_s
        try:
            self.check(_TIMEOUT_S)
        except LostRecordsError as lost:
            self.lost = lost
        except GatewayError as error:
            event(_LOG, logging.DEBUG, "topic IDs cannot be compared", error=error.message)

    def check(self, timeout_s: float = 10.0) -> None:
        """Raise if a topic was replaced by another one of its name.

        Raises:
            LostRecordsError: a topic was replaced.
            TransientError: Kafka does not answer.
        """
        now = read_topic_ids(self._kafka, self.ids, timeout_s=timeout_s)
        if lost := other_topics(self.ids, now):
            raise LostRecordsError(
                f"topic {', '.join(lost)}: it was deleted and recreated", topics=lost
            )
