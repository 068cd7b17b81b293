"""Decoded records of topics."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from confluent_kafka import Message

from gateway.core.errors import ProtocolError
from gateway.observe import event
from gateway.sink.reading.decoding import RegisteredSchemas

__all__ = ["NO_TIMES", "Followed", "decoded"]

_LOG: Final = logging.getLogger(__name__)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS: Final = 253_402_300_799_999
"""The last millisecond that Python's dates have; a record may claim any time."""
NO_TIMES: Final[Mapping[str, datetime]] = MappingProxyType({})
"""No commit time is known."""


@dataclass(frozen=True, slots=True)
class Followed:
    """Decoded record.

    Attributes:
        value: Decoded value; None for a tombstone.
        time: When its transaction was committed; for a row of a copy, when it was published.
        is_readable: Whether it is a record of its schema; if not, the log says why.
    """

    topic: str
    value: Mapping[str, Any] | None
    headers: Mapping[str, str]
    time: datetime
    is_readable: bool = True


def decoded(
    message: Message, schemas: RegisteredSchemas, times: Mapping[str, datetime] = NO_TIMES
) -> Followed:
    """Decode a record; one that cannot be decoded is logged.

    Args:
        message: Record as consumed.
        schemas: Schemas of its topic.
        times: Commit times by header `commit_lsn`.

    Raises:
        TransientError: the registry cannot be reached.
    """
    topic, wire = message.topic() or "", message.value()
    headers = {
        name: value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        for name, value in dict(message.headers() or ()).items()
    }
    milliseconds = min(max(message.timestamp()[1], 0), _LAST_MS)
    time = times.get(headers.get("commit_lsn", "")) or _EPOCH + timedelta(milliseconds=milliseconds)
    if wire is None:
        return Followed(topic, None, headers, time)
    try:
        return Followed(topic, schemas.decode(wire), headers, time)
    except ProtocolError as error:
        event(
            _LOG,
            logging.WARNING,
            "record cannot be read, skipped",
            topic=topic,
            partition=message.partition(),
            offset=message.offset(),
            error=error.reason,
        )
        return Followed(topic, None, headers, time, is_readable=False)
