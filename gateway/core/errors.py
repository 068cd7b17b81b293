"""Tree of all errors that pgsluice raises on purpose; the class says whether to retry.

    GatewayError
    ├── TransientError      retry with backoff (connection lost, broker not available)
    │   ├── SlotBusyError       another process reads the slot: stand by
    │   ├── FencedError         a younger gateway writes to Kafka: this attempt is over
    │   ├── LostRecordsError    a topic lacks what was written to it: its tables are copied again
    │   └── TopicAlteredError   a topic refuses records: its tables are held at the next attempt
    └── FatalError          exit; a person must act, and `hint` says how
        ├── ConfigError         the settings cannot work
        ├── UsageError          an argument of a command is wrong; exit code 2
        ├── AccessError         a server refuses the user, or the user lacks a right
        ├── DefinitionError     a publication or subscription cannot be served; text and position
        │   └── FilterError         its row filter is not allowed or not supported
        ├── ProtocolError       the bytes do not parse; has tag and offset
        ├── SchemaError         a relation cannot be published as Avro, or changed incompatibly
        ├── UnfitError          one change cannot be published; [on_error] gets past it
        │   ├── ValueFormatError    a value cannot be read, or cannot be carried by its Avro type
        │   ├── RecordSizeError     its record is larger than Kafka accepts
        │   └── SchemaRefusedError  the registry refuses the schema of its table
        ├── SlotError           the slot is gone, lost its WAL, or is ahead of the watermark
        └── KafkaTransactionTimeout  more than fits into one Kafka transaction

`gateway.rowfilter` adds FilterEvaluationError, an UnfitError: a row filter raises on a row.

`gateway.cli` maps the tree to exit codes: 1 fatal, 2 usage, 75 transient and given up.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar, Final, Literal, TypeAlias

__all__ = [
    "AccessError",
    "ConfigError",
    "DefinitionError",
    "FatalError",
    "FencedError",
    "FilterError",
    "GatewayError",
    "HeldCause",
    "KafkaTransactionTimeout",
    "LostRecordsError",
    "ProtocolError",
    "RecordSizeError",
    "SchemaError",
    "SchemaRefusedError",
    "SlotBusyError",
    "SlotError",
    "TopicAlteredError",
    "TransientError",
    "UnfitError",
    "UnfitKind",
    "UnloggedError",
    "UsageError",
    "ValueFormatError",
    "quote_position",
]


_UntilAsked: TypeAlias = Literal["lost", "partitions"]
_OfRights: TypeAlias = Literal["grant", "publication", "bypass_rls", "privilege", "topic_rights"]
_OfOthers: TypeAlias = Literal["taken_out"]
_OfKeys: TypeAlias = Literal["keys", "partition_by", "no_key", "identity"]
_OfTopics: TypeAlias = Literal["schema", "size", "topic_name", "compaction"]
_OfMarkers: TypeAlias = Literal["markers", "marker_schema"]
_OfTables: TypeAlias = Literal["lock", "foreign_partition", "column"]
HeldCause: TypeAlias = Literal[
    "", _UntilAsked, _OfRights, _OfKeys, _OfTopics, _OfMarkers, _OfTables, _OfOthers
]
"""Code of the reason for holding a table, by which its remedy is chosen; empty for others.

``lost`` and ``partitions`` last until an operator requests the copy: the topic lost records, or has
another number of partitions. Otherwise the table is published again as soon as it can be.
"""


class GatewayError(Exception):
    """Base class of all errors.

    Attributes:
        message: Description of the fault and its place, without secrets and without column values.
        hint: Next step for the operator, or None.
        cause: Code of the cause if a table is held for it.
    """

    def __init__(self, message: str, *, hint: str | None = None, cause: HeldCause = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.cause: HeldCause = cause

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"


class TransientError(GatewayError):
    """A temporary failure outside the gateway; nothing was lost, retry from the watermark."""


class SlotBusyError(TransientError):
    """Another process reads the replication slot; it becomes free when that process ends."""


class FencedError(TransientError):
    """A newer gateway has fenced this one's transactional id; its open transaction is aborted.

    The slot, which only one of them can hold, decides whether this gateway continues.
    """


class LostRecordsError(TransientError):
    """Topics lack records that were written to them; the next attempt knows which.

    Attributes:
        topics: Names of the topics.
    """

    def __init__(self, message: str, *, topics: Collection[str], hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.topics = frozenset(topics)


class HiddenMarkersError(TransientError):
    """The last markers of subscriptions cannot be read now; the next attempt knows of which.

    Attributes:
        subscriptions: Names of the subscriptions.
    """

    def __init__(
        self, message: str, *, subscriptions: Collection[str], hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.subscriptions = frozenset(subscriptions)


class TopicAlteredError(TransientError):
    """Kafka refuses records of a topic that took them before; the next attempt looks at it."""


class FatalError(GatewayError):
    """Retrying cannot help; a person must act."""


class ConfigError(FatalError):
    """The settings cannot work.

    Attributes:
        key: The dotted key at fault, for example ``source.dsn``, or None.
    """

    def __init__(self, message: str, *, key: str | None = None, hint: str | None = None) -> None:
        super().__init__(message if key is None else f"{key}: {message}", hint=hint)
        self.key = key


class UsageError(FatalError):
    """An argument of a command is wrong, and nothing was done."""


class AccessError(FatalError):
    """A server refuses the gateway's user, or the user lacks a right.

    A gateway that has streamed had it: it tries again until somebody gives it back.
    """


class DefinitionError(FatalError):
    """A definition is wrong, not allowed or not supported.

    Attributes:
        text: The statement's source text, or None.
        position: 0-based character offset of the fault in `text`, or None.
        reason: The message and PostgreSQL's detail in one line, without the quotation of `text`:
            why a table is held for this error. If the error stands for several problems, it names
            them.
    """

    def __init__(
        self,
        message: str,
        *,
        text: str | None = None,
        position: int | None = None,
        hint: str | None = None,
        detail: str | None = None,
        reason: str | None = None,
        cause: HeldCause = "",
    ) -> None:
        shown = message
        if text is not None and position is not None:
            shown = f"{message}\n{quote_position(text, position)}"
        super().__init__(shown, hint=hint, cause=cause)
        self.text = text
        self.position = position
        self.reason = message.partition("\n")[0] if reason is None else reason
        if detail:
            self.reason += f": {detail[0].lower()}{detail[1:].rstrip('.')}"


class FilterError(DefinitionError):
    """A row filter is not allowed by PostgreSQL's rules, or not supported here."""


class ProtocolError(FatalError):
    """Bytes that are not a message of the protocol version in use.

    Attributes:
        tag: First byte of the message (empty for an empty message).
        offset: Offset in the message at which decoding stopped, in bytes.
    """

    def __init__(self, reason: str, *, tag: bytes, offset: int) -> None:
        super().__init__(f"message {tag!r}, offset {offset}: {reason}")
        self.reason = reason
        self.tag = tag
        self.offset = offset


class SchemaError(FatalError):
    """A relation cannot be published as Avro, or changed in an incompatible way."""


UnfitKind: TypeAlias = Literal["filter", "value", "size", "schema"]
"""Kind of a change that cannot be published: a key of ``[on_error]``."""


class UnfitError(FatalError):
    """A change cannot be published as it is; ``[on_error]`` decides whether it is quarantined.

    Attributes:
        kind: Key in ``[on_error]``.
        reason: Description for the error topic. Unlike the message, it may quote values.
        sqlstate: PostgreSQL's error code, if the server raised the error.
    """

    kind: ClassVar[UnfitKind]

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        reason: str | None = None,
        sqlstate: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.reason = message if reason is None else reason
        self.sqlstate = sqlstate

    def place(self, where: str) -> None:
        """Add the place to the message, and to the hint the setting that skips such changes."""
        self.message += f" ({where})"
        self.name_setting()

    def name_setting(self) -> None:
        """Add to the hint the setting that skips such changes."""
        setting = (
            f'set [on_error] {self.kind} = "quarantine" to put such changes into the error topic '
            "and go on"
        )
        self.hint = setting if self.hint is None else f"{self.hint}; or {setting}"


class ValueFormatError(UnfitError):
    """A value is not in its type's output format, or its Avro type cannot represent it.

    The message names type and relation, never the value.
    """

    kind = "value"


class UnloggedError(ValueFormatError):
    """Key or partition of a changed row need old values that the source has not logged."""


class RecordSizeError(UnfitError):
    """A record is larger than its topic or the producer accepts."""

    kind = "size"


class SchemaRefusedError(UnfitError):
    """The registry refuses a schema as incompatible with earlier versions."""

    kind = "schema"


class SlotError(FatalError):
    """The replication slot is gone, invalidated, or not where the watermark needs it."""


class KafkaTransactionTimeout(FatalError):
    """The broker has aborted a Kafka transaction that was open for too long."""


_WIDEST: Final = 400
_SHOWN_BEFORE: Final = 100
_CUT: Final = "..."


def quote_position(text: str, position: int) -> str:
    """Return the line of `text` that contains `position`, with its number and a caret below it.

    A long line is cut to the part around the position.
    """
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line = text[start : end if end >= 0 else len(text)]
    prefix = f"line {text.count(chr(10), 0, start) + 1}: "
    at = position - start
    if len(line) > _WIDEST:
        first = max(0, at - _SHOWN_BEFORE)
        before = _CUT if first else ""
        after = _CUT if first + _WIDEST < len(line) else ""
        line = f"{before}{line[first : first + _WIDEST]}{after}"
        at += len(before) - first
    column = len(line[:at].expandtabs(4))
    return f"{prefix}{line.expandtabs(4)}\n{' ' * (len(prefix) + column)}^"
