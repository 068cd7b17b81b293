"""Every error that the client raises on purpose.

ReadError
├── UnavailableError        Kafka or the registry does not answer: call again
├── LostRecordsError        records that the position needs are no longer in Kafka
└── UnsupportedTopicError   a topic of which no equal table can be made
"""

from __future__ import annotations

__all__ = ["LostRecordsError", "ReadError", "UnavailableError", "UnsupportedTopicError"]


class ReadError(Exception):
    """Base of the tree. After any other than `UnavailableError` the reader is of no further use.

    Attributes:
        message: The failure and its place, without column values.
        hint: The remedy, or None.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = message
        self.hint = hint
        super().__init__(message if hint is None else f"{message}\nhint: {hint}")


class UnavailableError(ReadError):
    """Kafka or the registry fails temporarily; the same call may be made again."""


class LostRecordsError(ReadError):
    """Records between the position and what is in Kafka are gone, or are not the gateway's."""


class UnsupportedTopicError(ReadError):
    """The topic has a format without the information that equal rows need."""
