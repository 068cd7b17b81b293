"""Every error that the Spark job raises on purpose, with the verdict in the class.

ConsumerError
├── TransientConsumerError   run again (a broker or a registry that is down)
└── FatalConsumerError       a person must act, and `hint` says how
    ├── AccessError              Kafka or the registry refuses the job's user
    ├── SettingsError            the settings cannot work
    ├── ContractError            what a topic holds is not what the topic contract says
    └── TableError               a subscriber table cannot store what the topic has
"""

from __future__ import annotations

from typing import Final

from spark_consumer.display import lines_shown, shown

__all__ = [
    "COPY_AGAIN",
    "NO_VARIANT",
    "AccessError",
    "ConsumerError",
    "ContractError",
    "FatalConsumerError",
    "SettingsError",
    "TableError",
    "TransientConsumerError",
]

COPY_AGAIN: Final = "copy the table again"
"""In a hint about one table; where the table's name is known, the command follows it."""

NO_VARIANT: Final = "no VARIANT can have a value of the column"
"""Text that a query of Spark fails with, before the column's name, of `[A-Za-z0-9_-]` alone."""


class ConsumerError(Exception):
    """Base of the tree.

    Attributes:
        message: The failure and its place, in one line, without secrets and without column values.
        hint: The remedy, or None.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = shown(message)
        self.hint = None if hint is None else shown(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"


class TransientConsumerError(ConsumerError):
    """Something outside failed temporarily; a restart continues where the job stopped."""


class FatalConsumerError(ConsumerError):
    """Retrying cannot help; a person must act."""


class AccessError(FatalConsumerError):
    """Kafka or the registry refuses the job's user, so it concerns every table.

    The subscription is started again a few times: a server that restarts may not know its users.
    """


class SettingsError(FatalConsumerError):
    """The settings cannot work; the message has a line for each that is wrong."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.message = lines_shown(message)


class ContractError(FatalConsumerError):
    """A record, or a topic, is not as the topic contract says; the message names the place."""


class TableError(FatalConsumerError):
    """A subscriber table cannot store what its topic has."""
