"""Copies without a ``t`` at their beginning: consumers merge them with the rows that they have."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from gateway.core.errors import GatewayError
from gateway.observe import event
from gateway.sink.topics.log_bounds import read_log_bounds

__all__ = ["warn_of_merging"]

_LOG: Final = logging.getLogger(__name__)


def warn_of_merging(kafka: Mapping[str, str | int | bool], topics: Mapping[str, int]) -> None:
    """Warn of the topics that have records when a copy without a ``t`` begins in them.

    Args:
        kafka: librdkafka properties of the user.
        topics: Topics in which such a copy begins, with their number of partitions.
    """
    try:
        found = read_log_bounds(kafka, topics)
    except GatewayError as error:
        event(
            _LOG,
            logging.WARNING,
            "it is not known whether a copy is merged with records of its topic",
            topics=len(topics),
            reason=str(error),
        )
        return
    for topic, bounds in found.items():
        if any(one.end > one.start for one in bounds):
            event(
                _LOG,
                logging.WARNING,
                "a copy is merged with the records of its topic",
                topic=topic,
                because="[envelope] gives this subscription no `t` records, so that rows which have"
                " gone meanwhile stay in its consumers",
                hint="another topic ([topics] names), and an empty table in the consumer",
            )
