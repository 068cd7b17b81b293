"""Settings of what is published: topics, types, envelopes, masked columns, messages.

The string below a field is its line in the reference of docs/operations.md, in Markdown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Final, Literal, TypeAlias

from schemas.settings.fields import Rule
from schemas.settings.masks import check_hash_key, check_masks


def _replication_factor(value: int) -> None:
    if value < 1 and value != -1:
        raise ValueError("must be -1 or at least 1", None)


def _columns_of_tables(value: Mapping[str, tuple[str, ...]]) -> None:
    for table, names in value.items():
        if "." not in table:
            raise ValueError(f"{table!r} does not name a table", "it is schema.table")
        if not names or len(set(names)) < len(names):
            raise ValueError(f"{table} has no columns, or one twice", "list each column once")


@dataclass(frozen=True, slots=True)
class ChosenColumns:
    """Columns of a table that ``[topics]`` names, in place of those of its replica identity.

    Attributes:
        key: Columns of the record key, in its order; empty for the default.
        partition: Columns by which the partition is chosen; empty for those of the record key.
    """

    key: tuple[str, ...] = ()
    partition: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsTable:
    """``[topics]``: how topics are made."""

    partitions: Annotated[int, Rule(least=1)] = 1
    """Partitions of a table's topic when it is created; the Spark job reads any number."""

    replication_factor: Annotated[int, Rule(check=_replication_factor)] = -1
    """Replication factor of a topic when it is created; -1 leaves it to the broker."""

    names: Mapping[str, str] = field(default_factory=dict)
    """Other names for topics: from `subscription.schema.table` to the topic. A table whose topic
    changes is copied to the new one."""

    keys: Annotated[Mapping[str, tuple[str, ...]], Rule(check=_columns_of_tables)] = field(
        default_factory=dict
    )
    """Columns of the record key, from `schema.table` to a list, where it is not to be the replica
    identity; see [envelope.md](envelope.md#other-keys-and-partitions). A table whose key changes is
    copied again, but for `copy_data = false`: that needs a new subscription."""

    partition_by: Annotated[Mapping[str, tuple[str, ...]], Rule(check=_columns_of_tables)] = field(
        default_factory=dict
    )
    """The same for the columns by which the partition is chosen, where it is not to be the key."""

    tombstones: bool = True
    """Follow each `d` record by a tombstone, where there is a key that identifies the row."""

    truncate: Literal["publish", "skip"] = "publish"
    """`publish` TRUNCATE, or `skip` it."""

    on_rename: Literal["follow", "keep"] = "follow"
    """A renamed table (`ALTER TABLE ... RENAME`, `SET SCHEMA`) is copied: `follow` to the topic of
    its new name, `keep` to the one it had, after a `t`; unless another table bears that name, or
    `topics.names` has the new one."""

    on_lost_records: Literal["copy", "stop"] = "copy"
    """A topic that lacks what was written to it (deleted, or cut by an unclean election): `copy`
    its table again, or `stop` that table (it is held) until somebody asks for its copy; with
    `definitions.on_table_error = "stop"`, the gateway."""

    progress: str = "pgsluice.progress"
    """The topic of the watermark; compacted."""

    config: Mapping[str, str] = field(default_factory=dict)
    """Further settings of a table's topic at its creation."""

    def chosen(self, table: str) -> ChosenColumns:
        """Return the columns chosen for a table, ``schema.table``."""
        return ChosenColumns(self.keys.get(table, ()), self.partition_by.get(table, ()))


TypeMode: TypeAlias = Literal["native", "text"]
"""Whether columns of a type are carried as an Avro type of their own, or as PostgreSQL's text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypesTable:
    """``[types]``: columns as an Avro type of their own, or as text. See docs/types.md."""

    numeric: TypeMode = "native"
    """`numeric(p, s)` as Avro `decimal`, or as text; see [types.md](types.md)."""

    date: TypeMode = "native"
    """`date` as Avro `date`, or as text."""

    timestamp: TypeMode = "native"
    """`timestamp` as Avro `local-timestamp-micros`, or as text."""

    timestamptz: TypeMode = "native"
    """`timestamptz` as Avro `timestamp-micros`, or as text."""

    uuid: TypeMode = "native"
    """`uuid` as Avro `uuid`, or as text without that mark."""

    time: TypeMode = "text"
    """`time` as Avro `time-micros`, which has no 24:00, or as text."""

    arrays: TypeMode = "text"
    """Arrays as Avro arrays, which have one dimension, or as text."""

    interval: TypeMode = "text"
    """`interval` as an Avro record of months, days and microseconds, which has no infinity, or as
    text."""

    ranges: TypeMode = "text"
    """The built-in ranges as Avro records of two bounds, multiranges as arrays of these, or both as
    text."""

    hstore: TypeMode = "text"
    """`hstore` as an Avro map of nullable texts, or as text."""

    vectors: TypeMode = "text"
    """pgvector's `vector`, `halfvec` as Avro arrays of `float` and `sparsevec` as a record, or as
    text."""

    geometry: TypeMode = "text"
    """PostGIS's `geometry` and `geography` as the bytes of their EWKB, or as text: its hexadecimal
    digits."""

    columns: Mapping[str, TypeMode] = field(default_factory=dict, hash=False)
    """Single columns that differ from the above: from `schema.table.column` to `native` or
    `text`."""

    def native_of(self, column: str, always: frozenset[str] = frozenset()) -> frozenset[str]:
        """Return the settings that are ``native`` for a column, ``schema.table.column``.

        Args:
            column: The column.
            always: Settings that are ``native`` for every column which is not named itself.
        """
        return _NATIVE[self.columns[column]] if column in self.columns else self._native | always

    @property
    def _native(self) -> frozenset[str]:
        return frozenset(name for name in TYPE_CHOICES if getattr(self, name) == "native")


TYPE_CHOICES: Final = frozenset(one.name for one in fields(TypesTable)) - {"columns"}
"""Settings of ``[types]`` that stand for types."""

_NATIVE: Final[Mapping[TypeMode, frozenset[str]]] = {"native": TYPE_CHOICES, "text": frozenset()}


EnvelopeFormat: TypeAlias = Literal["pgsluice", "debezium", "row"]
"""Layout of the values of a subscription's table topics."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """How one subscription gets its changes.

    Attributes:
        connect_times: Whether dates and times are Connect's logical types, in milliseconds.
        truncates: Whether there are ``t`` records, of a TRUNCATE and before a copy.
    """

    format: EnvelopeFormat = "pgsluice"
    connect_times: bool = False
    truncates: bool = True

    @property
    def always(self) -> frozenset[str]:
        """Settings of ``[types]`` that are ``native`` for every column which is not named there."""
        return frozenset({"time"} if self.format == "debezium" else ())

    def __str__(self) -> str:
        return f"{self.format} connect" if self.connect_times else self.format


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeTable:
    """``[envelope]``: the values of table topics. See docs/envelope.md."""

    format: EnvelopeFormat = "pgsluice"
    """Layout of the values: `pgsluice`, `debezium` (with Debezium's semantic types, for its
    consumers) or `row` (the row alone, for sinks that know no envelope); see
    [envelope.md](envelope.md#formats). A table whose format changes is copied again, but for
    `copy_data = false`: that needs a new subscription."""

    subscriptions: Mapping[str, EnvelopeFormat] = field(default_factory=dict, hash=False)
    """Subscriptions with another format: from the name to the format."""

    time_precision: Literal["microseconds", "connect"] = "microseconds"
    """Dates and times in the format `debezium`, by Debezium's modes of these names: `microseconds`,
    as `io.debezium.time.*`, or `connect`, as Connect's logical types in milliseconds."""

    without_truncates: tuple[str, ...] = ()
    """Subscriptions that get no `t` record, neither of a TRUNCATE nor before a copy, for consumers
    that stop at one; see [debezium.md](debezium.md#without-t-records) for what that costs. Those of
    the format `row` never get one."""

    def of(self, subscription: str) -> Envelope:
        """Return how a subscription gets its changes."""
        kind = self.subscriptions.get(subscription, self.format)
        return Envelope(
            kind,
            connect_times=kind == "debezium" and self.time_precision == "connect",
            truncates=kind != "row" and subscription not in self.without_truncates,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnsTable:
    """``[columns]``: columns whose values do not leave the gateway. See docs/envelope.md."""

    masks: Annotated[Mapping[str, str], Rule(check=check_masks)] = field(default_factory=dict)
    """Masks of columns, from `subscription.schema.table.column` to `hash` (HMAC-SHA-256 with
    `columns.hash_key`), `null` or `truncate(n)` (the first n characters of a text); a table whose
    masks change is copied again: see [envelope.md](envelope.md#masked-columns)."""

    hash_key: Annotated[str | None, Rule(check=check_hash_key)] = field(default=None, repr=False)
    """The key of `hash`, a secret of 32 bytes or more; set `PGSLUICE_COLUMNS__HASH_KEY_FILE`
    instead. With another key, the tables that have a `hash` are copied again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesTable:
    """``[messages]``: which ``pg_logical_emit_message`` prefixes are published."""

    prefixes: tuple[str, ...] = ()
    """Prefixes of `pg_logical_emit_message` that are published."""
